//! A sender and a receiver with a link between them that loses, repeats and reorders.

use levee_aead::Library;
use levee_oneway::{Counts, Form, Heard, KEY, Keys, Reached, Receiver, Run, Secret, Sender};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A small generator (SplitMix64): a failure names its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

fn form() -> Form {
    Form::new(1_472, 64 << 10, 10).unwrap()
}

fn secret(octet: u8) -> Secret {
    Secret::new([octet; KEY].into(), "readings")
}

fn run(began: u64) -> Run {
    Run { began, random: 7 }
}

fn sender(began: u64) -> Sender {
    Sender::new(form(), &secret(1), run(began), &Library::Ring).unwrap()
}

fn receiver() -> Receiver<Library> {
    Receiver::new(form(), secret(1), Library::AwsLc)
}

/// A message of which number and length are known.
fn message(number: u64, length: usize) -> Vec<u8> {
    number.to_be_bytes().into_iter().cycle().take(length.max(8)).collect()
}

/// The datagrams of these messages.
fn sent<'a>(sender: &mut Sender, messages: impl IntoIterator<Item = Option<&'a [u8]>>) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    sender
        .send(messages, &mut |block| all.extend(block.chunks(form().datagram()).map(<[u8]>::to_vec)))
        .unwrap();
    all
}

/// A link that loses `loss` of 1,000 datagrams, sends as many twice, and lets each take up to 20 ms.
struct Link {
    random: Random,
    loss: u64,
    underway: Vec<(Duration, Vec<u8>)>,
}

impl Link {
    fn take(&mut self, now: Duration, datagram: Vec<u8>) {
        if self.random.below(1_000) < self.loss {
            return;
        }
        for _ in 0..=u64::from(self.random.below(1_000) < self.loss) {
            let late = now + MS * u32::try_from(self.random.below(20)).unwrap();
            self.underway.push((late, datagram.clone()));
        }
    }

    fn give(&mut self, now: Duration) -> Vec<Vec<u8>> {
        let (due, later) = std::mem::take(&mut self.underway).into_iter().partition(|(at, _)| *at <= now);
        self.underway = later;
        let due: Vec<(Duration, Vec<u8>)> = due;
        due.into_iter().map(|(_, datagram)| datagram).collect()
    }
}

/// What becomes of so many turns' messages: those that came, in their order, and what was counted.
fn carried(seed: u64, loss: u64, turns: u64) -> (u64, Vec<Heard>, Counts, Duration) {
    let (mut sender, mut receiver) = (sender(1), receiver());
    let mut link = Link { random: Random(seed), loss, underway: Vec::new() };
    let (mut now, mut sent, mut heard, mut lengths) = (Duration::ZERO, 0, Vec::new(), Random(seed ^ 1));
    let mut longest = Duration::ZERO;
    // Two seconds more of beats alone.
    for turn in 0..turns + 200 {
        let count = if turn < turns { lengths.below(20) } else { 0 };
        let messages: Vec<Vec<u8>> = (sent..sent + count)
            .map(|number| message(number, usize::try_from(lengths.below(9_000)).unwrap()))
            .collect();
        sent += count;
        let mut out = self::sent(&mut sender, messages.iter().map(|message| Some(&message[..])));
        if turn % 25 == 0 {
            out.push(sender.beat().unwrap());
        }
        out.into_iter().for_each(|datagram| link.take(now, datagram));
        for _ in 0..10 {
            now += MS;
            for mut datagram in link.give(now) {
                receiver.receive(now, &mut datagram);
            }
            let more = receiver.heard(now);
            heard.extend(more);
            if let Some(due) = receiver.due() {
                assert!(due > now, "seed {seed}: what is due was done");
                longest = longest.max(due - now);
            }
        }
    }
    assert_eq!(receiver.due(), None, "seed {seed}: nothing is waited for in the end");
    (sent, heard, receiver.counts(), longest)
}

fn numbers(seed: u64, heard: &[Heard]) -> Vec<u64> {
    let mut numbers = Vec::new();
    for one in heard {
        match one {
            Heard::Message(number, bytes) => {
                assert_eq!(*bytes, message(*number, bytes.len()), "seed {seed}: whole");
                assert!(numbers.last().is_none_or(|last| last < number), "seed {seed}: in order, and once");
                numbers.push(*number);
            }
            Heard::Missing(_) => {}
        }
    }
    numbers
}

#[test]
fn at_one_percent_of_loss_with_reordering_and_repeats_every_message_comes_whole_and_in_order() {
    for seed in 0..4 {
        let (sent, heard, counts, _) = carried(seed, 10, 300);
        assert_eq!(numbers(seed, &heard), (0..sent).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(
            (counts.lost, counts.missing, counts.forged, counts.malformed),
            (0, 0, 0, 0),
            "seed {seed}"
        );
        assert!(counts.repaired > 50, "seed {seed}: {counts:?}");
    }
}

#[test]
fn where_too_much_is_lost_what_is_missing_is_told_within_the_time_and_all_else_comes() {
    for seed in 0..4 {
        let (sent, heard, counts, longest) = carried(seed, 120, 300);
        let numbers = numbers(seed, &heard);
        assert!(counts.lost > 0, "seed {seed}: {counts:?}");
        assert_eq!(u64::try_from(numbers.len()).unwrap() + counts.missing, sent, "seed {seed}: each is told");
        assert!(longest <= Duration::from_secs(1), "seed {seed}: {longest:?}");
    }
}

#[test]
fn the_last_message_is_told_as_missing_although_nothing_follows_it() {
    let (mut sender, mut receiver) = (sender(1), receiver());
    let at = |ms: u32| MS * ms;
    for mut datagram in sent(&mut sender, [Some(&b"first"[..])]) {
        receiver.receive(at(0), &mut datagram);
    }
    assert_eq!(receiver.heard(at(0)), [Heard::Message(0, b"first".to_vec())]);
    // All of it is lost, and half of what follows.
    sent(&mut sender, [Some(&b"second"[..]), Some(&b"third"[..])]);
    let mut out = sent(&mut sender, [Some(&[7; 9_000][..])]);
    out.push(sender.beat().unwrap());
    for mut datagram in out.into_iter().skip(8) {
        receiver.receive(at(10), &mut datagram);
    }
    assert_eq!(receiver.heard(at(100)), []);
    assert_eq!(receiver.due(), Some(at(110)));
    assert_eq!(receiver.heard(at(110)), [Heard::Missing(4)]);
    assert_eq!((receiver.counts().missing, receiver.counts().lost), (3, 2));
    assert_eq!(receiver.due(), None);
}

#[test]
fn what_was_too_large_or_empty_at_the_sender_is_told_as_missing() {
    let (mut sender, mut receiver) = (sender(1), receiver());
    let large = vec![1; (64 << 10) + 1];
    let messages = [Some(&b"one"[..]), None, Some(&large[..]), Some(&b""[..]), Some(&b"five"[..]), None];
    for mut datagram in sent(&mut sender, messages) {
        receiver.receive(MS, &mut datagram);
    }
    let expected = [
        Heard::Message(0, b"one".to_vec()),
        Heard::Missing(2),
        Heard::Missing(3),
        Heard::Missing(4),
        Heard::Message(4, b"five".to_vec()),
        Heard::Missing(6),
    ];
    assert_eq!(receiver.heard(MS), expected);
}

#[test]
fn what_the_holder_of_the_key_did_not_make_or_somebody_repeats_changes_nothing() {
    let (mut sender, mut receiver) = (sender(5), receiver());
    let mut forger = Sender::new(form(), &secret(2), run(9), &Library::Ring).unwrap();
    let mut other =
        Sender::new(form(), &Secret::new([1; KEY].into(), "others"), run(9), &Library::Ring).unwrap();
    let mut offered = Vec::new();
    for by in [&mut forger, &mut other] {
        offered.extend(sent(by, [Some(&b"forged"[..])]));
        offered.push(by.beat().unwrap());
    }
    for datagram in &offered {
        assert!(!receiver.receive(MS, &mut datagram.clone()));
    }
    let first = sent(&mut sender, [Some(&b"first"[..])]);
    // An octet of each is another, wherever it is.
    for at in 0..first[0].len() {
        let mut datagram = first[0].clone();
        datagram[at] ^= 1;
        assert!(!receiver.receive(MS, &mut datagram), "octet {at}");
    }
    assert_eq!(receiver.heard(MS), []);
    for datagram in first.iter().chain(&offered).chain(&first) {
        receiver.receive(MS, &mut datagram.clone());
    }
    assert_eq!(receiver.heard(MS), [Heard::Message(0, b"first".to_vec())]);
    // A sender that is started anew takes its place; what the one before it sent is not taken a second time.
    let mut next = self::sender(6);
    let second = sent(&mut next, [Some(&b"second"[..])]);
    for datagram in second.iter().chain(&first).chain(&second) {
        receiver.receive(MS, &mut datagram.clone());
    }
    assert_eq!(receiver.heard(MS), [Heard::Message(0, b"second".to_vec())]);
    assert!(receiver.counts().earlier > 0 && receiver.counts().forged > 0);
}

#[test]
fn a_receiver_that_is_started_anew_takes_nothing_a_second_time_and_knows_what_is_missing_since() {
    let mut sender = sender(5);
    let mut blocks: Vec<Vec<Vec<u8>>> =
        (0..20).map(|n| sent(&mut sender, [Some(&message(n, 100)[..])])).collect();
    let take = |receiver: &mut Receiver<Library>, blocks: &[Vec<Vec<u8>>]| {
        for datagram in blocks.iter().flatten() {
            receiver.receive(MS, &mut datagram.clone());
        }
        receiver.heard(MS)
    };
    let mut first = receiver();
    assert_eq!(Reached::read(&[0; Reached::LENGTH]).map(|_| ()), first.reached().map(|_| ()));
    assert_eq!(take(&mut first, &blocks[..10]).len(), 10);
    let place = first.reached().unwrap().write();
    // Somebody repeats what has been sent, of this run and of one before it.
    let next = || Receiver::after(Reached::read(&place), form(), secret(1), Library::Ring);
    let before = vec![sent(&mut self::sender(4), [Some(&b"of old"[..])])];
    let mut second = next();
    assert_eq!(take(&mut second, &blocks[3..10]), []);
    assert_eq!(take(&mut second, &before), []);
    assert_eq!(second.reached().unwrap().write(), place);
    // What was sent while nobody heard is missing, and told.
    assert_eq!(take(&mut second, &blocks[19..]), []);
    let heard: Vec<Heard> = second.heard(MS * 2_000);
    assert_eq!(heard, [Heard::Message(19, message(19, 100))]);
    assert_eq!(second.counts().missing, 9);
    // A sender that began later is heard from its beginning.
    blocks.push(sent(&mut self::sender(6), [Some(&b"anew"[..])]));
    assert_eq!(take(&mut next(), &blocks[20..]), [Heard::Message(0, b"anew".to_vec())]);
    for none in [&[][..], &place[1..], &[&place[..], &[0]].concat()] {
        assert_eq!(Reached::read(none), None);
    }
}

#[test]
fn a_sender_that_is_started_anew_is_heard_from_its_first_message_on() {
    let mut receiver = receiver();
    for (began, lost) in [(1, 0), (2, 1), (3, 0)] {
        let mut sender = sender(began);
        for turn in 0..3_u64 {
            let message = message(turn, 100);
            let out = sent(&mut sender, [Some(&message[..])]);
            for mut datagram in out.into_iter().filter(|_| turn >= lost) {
                receiver.receive(MS, &mut datagram);
            }
        }
        let heard = receiver.heard(MS * 200);
        assert_eq!(numbers(began, &heard), (lost..3).collect::<Vec<_>>());
        assert_eq!(receiver.counts().missing, u64::from(began > 1), "the first of the second was lost");
    }
}

#[test]
fn whoever_has_the_key_makes_it_keep_no_more_than_it_may() {
    let (mut receiver, mut now) = (receiver(), Duration::ZERO);
    let mut sender = sender(1);
    let full = vec![1; 60_000];
    for _ in 0..200 {
        now += MS;
        // Of each block all but one symbol of those it takes.
        let out = sent(&mut sender, [Some(&full[..]), Some(&full[..])]);
        let enough = 120_016_usize.div_ceil(form().datagram() - levee_oneway::OVERHEAD) - 1;
        for mut datagram in out.into_iter().take(enough) {
            receiver.receive(now, &mut datagram);
        }
        assert!(receiver.blocks() <= 8, "{}", receiver.blocks());
    }
    receiver.heard(now + Duration::from_secs(2));
    assert_eq!((receiver.counts().lost, receiver.blocks()), (200, 0));
}

/// Of the current key, and the next one.
fn keys(current: u8, next: Option<u8>) -> Keys {
    Keys { current: secret(current), next: next.map(secret) }
}

fn opened(receiver: &Receiver<Library>) -> Vec<u64> {
    receiver.opened().map(|(_, opened)| opened).collect()
}

#[test]
fn while_one_key_follows_another_no_message_is_lost_and_none_is_numbered_anew() {
    for seed in 0..4 {
        let (mut sender, mut receiver) = (sender(1), receiver());
        // It loses as much as is repaired, and each datagram may be 20 ms late: those of the old key come behind those of the new one.
        let mut link = Link { random: Random(seed), loss: 10, underway: Vec::new() };
        let (mut now, mut sent, mut heard) = (Duration::ZERO, 0, Vec::new());
        for turn in 0..400_u64 {
            match turn {
                50 => receiver.rekey(keys(1, Some(2))),
                100 => sender.rekey(&secret(2), &Library::Ring).unwrap(),
                // The same once more changes nothing.
                120 => sender.rekey(&secret(2), &Library::Ring).unwrap(),
                150 => receiver.rekey(keys(2, None)),
                _ => {}
            }
            let count = if turn < 200 { 10 } else { 0 };
            let messages: Vec<Vec<u8>> = (sent..sent + count).map(|number| message(number, 700)).collect();
            sent += count;
            let mut out = self::sent(&mut sender, messages.iter().map(|message| Some(&message[..])));
            if turn % 25 == 0 {
                out.push(sender.beat().unwrap());
            }
            out.into_iter().for_each(|datagram| link.take(now, datagram));
            for _ in 0..10 {
                now += MS;
                for mut datagram in link.give(now) {
                    receiver.receive(now, &mut datagram);
                }
                heard.extend(receiver.heard(now));
            }
        }
        assert_eq!(numbers(seed, &heard), (0..sent).collect::<Vec<_>>(), "seed {seed}");
        let counts = receiver.counts();
        assert_eq!((counts.lost, counts.missing, counts.forged, counts.earlier), (0, 0, 0, 0), "seed {seed}");
    }
}

#[test]
fn which_key_opened_what_is_known_and_stays_known_when_the_next_one_is_the_current_one() {
    let (mut sender, mut receiver) = (sender(1), receiver());
    assert_eq!(receiver.opened().collect::<Vec<_>>(), [(secret(1).fingerprint(), 0)]);
    assert_ne!(secret(1).fingerprint(), secret(2).fingerprint());
    let carry = |sender: &mut Sender, receiver: &mut Receiver<Library>| {
        receiver.receive(MS, &mut sender.beat().unwrap())
    };
    assert!(carry(&mut sender, &mut receiver));
    receiver.rekey(keys(1, Some(2)));
    assert_eq!(opened(&receiver), [1, 0]);
    assert!(carry(&mut sender, &mut receiver));
    sender.rekey(&secret(2), &Library::Ring).unwrap();
    assert!(carry(&mut sender, &mut receiver));
    assert_eq!(opened(&receiver), [2, 1]);
    // A sender that begins with the next key is heard too.
    let mut later = Sender::new(form(), &secret(2), run(5), &Library::Ring).unwrap();
    assert!(carry(&mut later, &mut receiver));
    receiver.rekey(keys(2, None));
    assert_eq!(receiver.opened().collect::<Vec<_>>(), [(secret(2).fingerprint(), 2)]);
    assert!(carry(&mut later, &mut receiver));
    // The next one of a site whose operators have begun once more.
    receiver.rekey(keys(2, Some(3)));
    assert_eq!(opened(&receiver), [3, 0]);
}

#[test]
fn what_is_sealed_with_a_key_that_counts_no_more_is_refused_and_whoever_used_it_keeps_nobody_from_being_heard()
 {
    let (mut sender, mut receiver) = (sender(1), receiver());
    let deliver = |receiver: &mut Receiver<Library>, sender: &mut Sender, text: &[u8]| {
        sent(sender, [Some(text)]).into_iter().fold(false, |heard, mut datagram| {
            let more = receiver.receive(MS, &mut datagram);
            heard || more
        })
    };
    assert!(deliver(&mut receiver, &mut sender, b"one"));
    receiver.rekey(keys(1, Some(2)));
    sender.rekey(&secret(2), &Library::Ring).unwrap();
    assert!(deliver(&mut receiver, &mut sender, b"two"));
    // Whoever has the old key says that it began later: until that key counts no more it is believed.
    let mut thief = Sender::new(form(), &secret(1), run(9), &Library::Ring).unwrap();
    assert!(deliver(&mut receiver, &mut thief, b"stolen"));
    assert!(!deliver(&mut receiver, &mut sender, b"three"));
    receiver.heard(MS);
    // Nor does a receiver that is started anew go on from where a key was heard that counts no more.
    let place = receiver.reached();
    let anew = |keys: Keys| Receiver::after(place, form(), keys, Library::Ring).run();
    assert_eq!((anew(keys(1, Some(2))), anew(keys(2, Some(1)))), (Some(run(9)), Some(run(9))));
    assert_eq!((anew(keys(2, None)), anew(keys(2, Some(3)))), (None, None));
    receiver.rekey(keys(2, None));
    assert_eq!(receiver.run(), None);
    assert!(!deliver(&mut receiver, &mut thief, b"stolen again"));
    assert!(deliver(&mut receiver, &mut sender, b"four"));
    assert_eq!(receiver.heard(MS), [Heard::Message(3, b"four".to_vec())]);
    let mut thief = Sender::new(form(), &secret(1), run(10), &Library::Ring).unwrap();
    assert!(!deliver(&mut receiver, &mut thief, b"and once more"));
    assert!(receiver.counts().forged > 1);
}

/// What the receiver gives on of a message that a sender sends now.
fn given(receiver: &mut Receiver<Library>, sender: &mut Sender, text: &[u8]) -> Vec<Heard> {
    for mut datagram in sent(sender, [Some(text)]) {
        receiver.receive(MS, &mut datagram);
    }
    receiver.heard(MS * 10_000)
}

#[test]
fn what_was_said_in_the_senders_own_run_with_a_key_that_counts_no_more_keeps_nobody_from_being_heard() {
    // By one block far behind, by many, by a beat, by numbers of messages alone; with and without a start in between.
    for (how, anew) in (0..4).flat_map(|how| [(how, false), (how, true)]) {
        let (mut sender, mut receiver) = (sender(1), receiver());
        given(&mut receiver, &mut sender, b"one");
        receiver.rekey(keys(1, Some(2)));
        sender.rekey(&secret(2), &Library::Ring).unwrap();
        assert_eq!(given(&mut receiver, &mut sender, b"two"), [Heard::Message(1, b"two".to_vec())]);
        let heard = sent(&mut sender, [Some(&b"three"[..])]);
        for mut datagram in heard.clone() {
            receiver.receive(MS, &mut datagram);
        }
        assert_eq!(receiver.ready(), [Heard::Message(2, b"three".to_vec())]);
        // Whoever has the old key sees the run in the clear, and goes on in it.
        let mut thief = Sender::new(form(), &secret(1), run(1), &Library::Ring).unwrap();
        let mut all = match how {
            0 | 1 => (0..300).map(|_| sent(&mut thief, [Some(&b"stolen"[..])])).collect::<Vec<_>>(),
            2 => {
                (0..300).for_each(|_| drop(sent(&mut thief, [Some(&b"stolen"[..])])));
                vec![vec![thief.beat().unwrap()]]
            }
            _ => (0..4).map(|_| sent(&mut thief, std::iter::repeat_n(None, 100))).collect(),
        };
        if how == 0 {
            all.drain(..299);
        }
        for mut datagram in all.concat() {
            receiver.receive(MS, &mut datagram);
        }
        receiver.heard(MS * 10_000);
        if anew {
            let place = Reached::read(&receiver.reached().unwrap().write());
            receiver = Receiver::after(place, form(), keys(2, None), Library::Ring);
        } else {
            receiver.rekey(keys(2, None));
        }
        // What was heard comes no second time; what comes now does.
        for mut datagram in heard {
            receiver.receive(MS * 10_000, &mut datagram);
        }
        assert_eq!(receiver.heard(MS * 20_000), [], "{how} {anew}");
        let said = given(&mut receiver, &mut sender, b"four");
        assert_eq!(said, [Heard::Message(3, b"four".to_vec())], "{how} {anew}");
    }
}
