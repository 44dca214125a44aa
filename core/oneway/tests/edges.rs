//! The edges of a one-way channel: what a header may say, how much a block has, what is of no use a second time, and what is waited for how long.

use levee_aead::Library;
use levee_oneway::*;
use std::collections::BTreeSet;
use std::time::Duration;

const SYMBOL: usize = 1_416;

fn form(repair: u32) -> Form {
    Form::new(SYMBOL + OVERHEAD, MESSAGE, repair).expect("a form")
}

fn secret() -> Secret {
    Secret::new([1; KEY].into(), "readings")
}

fn sender(repair: u32) -> Sender {
    Sender::new(form(repair), &secret(), Run { began: 1, random: 7 }, &Library::Ring).expect("keys")
}

/// The datagrams of each block of these messages.
fn blocks(sender: &mut Sender, messages: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    let datagram = SYMBOL + OVERHEAD;
    sender
        .send(messages.iter().map(|message| Some(&message[..])), &mut |block| {
            all.push(block.chunks(datagram).map(<[u8]>::to_vec).collect());
        })
        .expect("sealed");
    all
}

fn header(of: &[u8]) -> Header {
    Header::read(of.first_chunk().expect("a header")).expect("one")
}

#[test]
fn a_header_is_read_as_it_was_written_and_what_is_another_is_none() {
    let run = Run { began: 0x0102_0304_0506_0708, random: 0x1112_1314_1516_1718 };
    let symbol = |length, number| Header { run, block: 0x2122_2324, kind: Kind::Symbol { length, number } };
    let longest = u32::try_from(BLOCK).expect("a length");
    for (header, good) in [
        (symbol(1, 0), true),
        (symbol(longest, (1 << 24) - 1), true),
        (symbol(0, 0), false),
        (symbol(longest + 1, 0), false),
        (symbol(1, 1 << 24), false),
        (Header { kind: Kind::Beat(0), ..symbol(1, 0) }, true),
        (Header { kind: Kind::Beat(u32::MAX >> 1), ..symbol(1, 0) }, true),
    ] {
        assert_eq!(Header::read(&header.write()), if good { Ok(header) } else { Err(Malformed) });
    }
    // Octet by octet of what says what it is.
    let (symbol, beat) = (symbol(1, 5).write(), Header { kind: Kind::Beat(5), ..symbol(1, 0) }.write());
    for (at, octet) in [(0, 0), (0, 2), (1, 2), (1, 255), (2, 1), (3, 1)] {
        for mut bytes in [symbol, beat] {
            bytes[at] = octet;
            assert_eq!(Header::read(&bytes), Err(Malformed), "{at}");
        }
    }
    // A beat has no length, and a number above all symbols'.
    for (at, octet) in [(28, 1), (31, 1), (32, 0)] {
        let mut bytes = beat;
        bytes[at] = octet;
        assert_eq!(Header::read(&bytes), Err(Malformed), "{at}");
    }
    // A symbol is no beat, and a beat no symbol.
    for (mut bytes, other) in [(symbol, 1), (beat, 0)] {
        bytes[1] = other;
        assert_eq!(Header::read(&bytes), Err(Malformed));
    }
}

#[test]
fn a_form_has_symbols_messages_and_repair_within_its_bounds() {
    for (symbol, good) in [(504, false), (511, false), (512, true), (16_384, true), (16_392, false)] {
        assert_eq!(Form::new(symbol + OVERHEAD, 1, 0).is_some(), good, "{symbol}");
    }
    for (message, good) in [(0, false), (1, true), (MESSAGE, true), (MESSAGE + 1, false)] {
        assert_eq!(Form::new(1_472, message, 0).is_some(), good, "{message}");
    }
    for (repair, good) in [(0, true), (100, true), (101, false)] {
        assert_eq!(Form::new(1_472, 1, repair).is_some(), good, "{repair}");
    }
    assert!(Form::new(OVERHEAD - 1, 1, 0).is_none());
    // RFC 6330 4.4.1.2.
    assert_eq!(Form::new(1_472, 1, 0).expect("a form").datagram() % 8, OVERHEAD % 8);
}

#[test]
fn a_block_has_its_own_symbols_the_share_of_repair_that_the_site_says_and_four_more() {
    for (repair, share) in [(0, 0), (10, 5), (100, 47)] {
        let mut sender = sender(repair);
        // 8 octets before, 4 for its length: 46.3 symbols.
        let sent = blocks(&mut sender, &[vec![7; 65_500]]);
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [47 + share + 4], "{repair}");
    }
}

#[test]
fn a_block_is_as_full_as_it_may_be_and_no_fuller() {
    for (messages, count) in [
        (vec![vec![7; MESSAGE]; 2], 1),
        (vec![vec![7; MESSAGE]; 3], 2),
        (vec![vec![7; MESSAGE], vec![7; MESSAGE], vec![7]], 2),
        // Of one octet, with the four of its length.
        (vec![vec![7]; (BLOCK - 8) / 5], 1),
        (vec![vec![7]; (BLOCK - 8) / 5 + 1], 2),
    ] {
        let sent = blocks(&mut sender(0), &messages);
        assert_eq!(sent.len(), count, "{}", messages.len());
        let mut receiver = Receiver::new(form(0), secret(), Library::Ring);
        for mut datagram in sent.into_iter().flatten() {
            receiver.receive(Duration::ZERO, &mut datagram);
        }
        assert_eq!(receiver.heard(Duration::ZERO).len(), messages.len());
    }
}

#[test]
fn no_two_datagrams_of_a_run_have_one_number() {
    let mut sender = sender(10);
    let mut seen = BTreeSet::new();
    for _ in 0..3 {
        let mut all = vec![sender.beat().expect("a beat"), sender.beat().expect("a beat")];
        all.extend(blocks(&mut sender, &[vec![7; 5_000]]).into_iter().flatten());
        all.push(sender.beat().expect("a beat"));
        for datagram in all {
            // Of a header all but the length of the block, which no nonce has.
            let header = header(&datagram).write();
            assert!(seen.insert((header[1], header[20..28].to_vec(), header[32..36].to_vec())));
        }
    }
    assert_eq!(seen.len(), 3 * (3 + 4 + 1 + 4));
}

#[test]
fn what_has_come_or_is_not_sent_or_belongs_to_another_length_is_of_no_use() {
    let all = blocks(&mut sender(10), &[vec![7; 5_000]]).remove(0);
    let mut receiver = Receiver::new(form(10), secret(), Library::Ring);
    let mut take = |datagram: &[u8]| receiver.receive(Duration::ZERO, &mut datagram.to_vec());
    assert!(take(&all[0]) && !take(&all[0]), "once");
    for kind in [Kind::Symbol { length: 5_011, number: 1 }, Kind::Symbol { length: 5_012, number: 9 }] {
        let mut other = all[1].clone();
        let changed = Header { kind, ..header(&other) };
        other[..HEADER].copy_from_slice(&changed.write());
        assert!(!take(&other));
    }
    let (counts, before) = (receiver.counts(), Counts { spare: 3, ..Counts::default() });
    assert_eq!(counts, before, "none of them cost a key's work");
    // Its last own symbol does not come: one of repair takes its place, which is counted.
    for datagram in [&all[1], &all[2], &all[4]] {
        assert!(receiver.receive(Duration::ZERO, &mut datagram.clone()));
    }
    assert_eq!(receiver.heard(Duration::ZERO), [Heard::Message(0, vec![7; 5_000])]);
    assert_eq!(receiver.counts(), Counts { repaired: 1, ..before });
    // Whole without repair, it is not.
    let mut receiver = Receiver::new(form(10), secret(), Library::Ring);
    for datagram in &all {
        receiver.receive(Duration::ZERO, &mut datagram.clone());
    }
    assert_eq!(receiver.counts(), Counts { spare: 5, ..Counts::default() });
}

#[test]
fn what_is_no_datagram_is_counted_and_one_of_another_run_or_key_is_too() {
    let mut receiver = Receiver::new(form(10), secret(), Library::Ring);
    let mut sender = sender(10);
    let beat = sender.beat().expect("a beat");
    for length in [0, HEADER - 1, HEADER, beat.len() - 1] {
        assert!(!receiver.receive(Duration::ZERO, &mut beat[..length].to_vec()), "{length}");
    }
    assert!(!receiver.receive(Duration::ZERO, &mut [&beat[..], &[0]].concat()));
    assert_eq!(receiver.counts(), Counts { malformed: 5, ..Counts::default() });
    // Nobody is heard by what nobody sealed.
    let mut forged = beat.clone();
    forged[HEADER] ^= 1;
    assert!(!receiver.receive(Duration::ZERO, &mut forged));
    assert!(receiver.run().is_none() && receiver.due().is_none());
    assert!(receiver.receive(Duration::ZERO, &mut beat.clone()));
    assert_eq!(receiver.run(), Some(Run { began: 1, random: 7 }));
    assert!(!receiver.receive(Duration::ZERO, &mut forged));
    // Neither an earlier run nor another of the same moment takes its place.
    for run in [Run { began: 0, random: 7 }, Run { began: 1, random: 8 }] {
        let mut other = Sender::new(form(10), &secret(), run, &Library::Ring).expect("keys");
        assert!(!receiver.receive(Duration::ZERO, &mut other.beat().expect("a beat")));
    }
    let counts = Counts { malformed: 5, forged: 2, earlier: 2, ..Counts::default() };
    assert_eq!(receiver.counts(), counts);
}

#[test]
fn a_symbol_behind_those_that_are_sent_is_of_no_use_whoever_sealed_it() {
    // Of the same channel, with more repair than the receiver's site says: eight of the twelve.
    let all = blocks(&mut sender(100), &[vec![7; 5_000]]).remove(0);
    let mut receiver = Receiver::new(form(0), secret(), Library::Ring);
    let beat = sender(0).beat().expect("a beat");
    assert!(receiver.receive(Duration::ZERO, &mut beat.clone()));
    for (number, good) in [(8, false), (11, false), (7, true)] {
        assert_eq!(receiver.receive(Duration::ZERO, &mut all[number].clone()), good, "{number}");
        assert_eq!(receiver.blocks(), usize::from(good));
    }
    assert_eq!(receiver.counts(), Counts { spare: 2, ..Counts::default() });
}

const MS: Duration = Duration::from_millis(1);

fn take(receiver: &mut Receiver<Library>, ms: u32, datagrams: &[Vec<u8>]) {
    for datagram in datagrams {
        assert!(receiver.receive(MS * ms, &mut datagram.clone()));
    }
}

/// A block with one message, and as many of its symbols as make it whole.
fn block(sender: &mut Sender, octet: u8) -> Vec<Vec<u8>> {
    blocks(sender, &[vec![octet; 5_000]]).remove(0).into_iter().take(4).collect()
}

#[test]
fn a_block_is_waited_for_as_long_as_nothing_is_behind_it_and_for_a_second() {
    let (mut sender, mut receiver) = (sender(0), Receiver::new(form(0), secret(), Library::Ring));
    let all: Vec<Vec<Vec<u8>>> = (0..2).map(|octet| block(&mut sender, octet)).collect();
    take(&mut receiver, 0, &all[0][..3]);
    assert_eq!((receiver.due(), receiver.blocks()), (Some(MS * 1_000), 1));
    take(&mut receiver, 10, &all[1][..3]);
    assert_eq!((receiver.due(), receiver.blocks()), (Some(MS * 110), 2));
    assert_eq!((receiver.heard(MS * 109), receiver.blocks()), (vec![], 2));
    assert_eq!((receiver.heard(MS * 110), receiver.blocks()), (vec![], 1));
    assert_eq!(receiver.due(), Some(MS * 1_010));
    take(&mut receiver, 1_009, &all[1][3..]);
    assert_eq!(receiver.heard(MS * 1_010), [Heard::Message(1, vec![1; 5_000])]);
    assert_eq!((receiver.due(), receiver.blocks()), (None, 0));
    assert_eq!(receiver.counts(), Counts { lost: 1, missing: 1, ..Counts::default() });
}

#[test]
fn a_beat_says_what_is_missing_once_and_an_older_one_or_the_same_puts_nothing_off() {
    let (mut sender, mut receiver) = (sender(0), Receiver::new(form(0), secret(), Library::Ring));
    take(&mut receiver, 0, &block(&mut sender, 0));
    assert_eq!(receiver.ready(), [Heard::Message(0, vec![0; 5_000])]);
    block(&mut sender, 1);
    let (second, again) = (sender.beat().expect("a beat"), sender.beat().expect("a beat"));
    take(&mut receiver, 50, std::slice::from_ref(&second));
    assert_eq!(receiver.due(), Some(MS * 150));
    take(&mut receiver, 100, &[again]);
    assert_eq!(receiver.due(), Some(MS * 150));
    block(&mut sender, 2);
    take(&mut receiver, 120, &[sender.beat().expect("a beat")]);
    take(&mut receiver, 130, &[second]);
    assert_eq!((receiver.due(), receiver.heard(MS * 219)), (Some(MS * 220), vec![]));
    assert_eq!(receiver.heard(MS * 220), [Heard::Missing(3)]);
    // It says so once, however often it comes.
    take(&mut receiver, 230, &[sender.beat().expect("a beat")]);
    assert_eq!((receiver.due(), receiver.heard(MS * 1_000)), (None, vec![]));
    // Nor does one that says nothing new keep what is behind it from being given on.
    block(&mut sender, 3);
    take(&mut receiver, 1_000, &block(&mut sender, 4));
    assert_eq!(receiver.heard(MS * 1_099), []);
    assert_eq!(receiver.heard(MS * 1_100), [Heard::Message(4, vec![4; 5_000])]);
    assert_eq!(receiver.counts(), Counts { lost: 3, missing: 3, ..Counts::default() });
}

/// A receiver that waits for the first and the third block, of which it has a part, and has the second, which is whole; by a beat it knows
/// of a fourth.
fn waiting() -> Receiver<Library> {
    let (mut sender, mut receiver) = (sender(0), Receiver::new(form(0), secret(), Library::Ring));
    for (octet, count) in [(0, 3), (1, 4), (2, 3)] {
        take(&mut receiver, 0, &block(&mut sender, octet)[..count]);
    }
    block(&mut sender, 3);
    take(&mut receiver, 0, &[sender.beat().expect("a beat")]);
    assert_eq!((receiver.ready(), receiver.blocks()), (vec![], 3));
    receiver
}

#[test]
fn what_has_come_of_a_sender_goes_on_when_another_takes_its_place_and_what_has_not_is_told() {
    let mut receiver = waiting();
    let mut later =
        Sender::new(form(0), &secret(), Run { began: 2, random: 7 }, &Library::Ring).expect("keys");
    take(&mut receiver, 20, &block(&mut later, 9));
    let heard = receiver.ready();
    let second = Heard::Message(1, vec![1; 5_000]);
    assert_eq!(heard, [second, Heard::Missing(4), Heard::Message(0, vec![9; 5_000])]);
    assert_eq!(receiver.counts(), Counts { lost: 3, missing: 3, ..Counts::default() });
    assert_eq!((receiver.due(), receiver.blocks()), (None, 0));
}

#[test]
fn what_waits_of_a_sender_is_given_up_and_counted_when_its_key_counts_no_more() {
    let mut receiver = waiting();
    receiver.rekey(Secret::new([2; KEY].into(), "readings").into());
    assert_eq!((receiver.run(), receiver.due(), receiver.heard(MS * 2_000)), (None, None, vec![]));
    assert_eq!(receiver.counts(), Counts { lost: 3, ..Counts::default() });
}
