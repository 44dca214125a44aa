//! AGGFRAG payloads at their edges: what fills one, what waits and for how long pieces are kept.

mod common;

use common::*;
use levee_esp::aggfrag::{HEADER, Packer, Reassembler};
use levee_esp::{DropReason, ecn};

/// Outer packets whose pieces are kept, and octets of them.
const SLOTS: u64 = 256;
const HELD: usize = 256 * 1024;

/// A packet of so many octets, 32 at least, with this in it.
fn of(length: usize, content: u8) -> Vec<u8> {
    packet(UDP, "10.0.0.2", "10.9.0.1", Some((1, 2)), &vec![content; length - 24])
}

struct Receiver {
    reassembler: Reassembler,
    out: Vec<(Vec<u8>, u8)>,
    drops: Vec<DropReason>,
}

impl Receiver {
    fn new() -> Self {
        Self { reassembler: Reassembler::default(), out: Vec::new(), drops: Vec::new() }
    }

    /// A payload with this in its blocks, whose first packet begins at `offset`; how many packets are whole and how many reasons there are
    /// to drop one.
    fn marked(&mut self, sequence: u64, offset: usize, blocks: &[u8], mark: u8) -> (usize, usize) {
        let before = (self.out.len(), self.drops.len());
        let [o0, o1] = (offset as u16).to_be_bytes();
        let mut payload = [&[0, 0, o0, o1], blocks].concat();
        let (out, drops) = (&mut self.out, &mut self.drops);
        self.reassembler.take(
            &mut payload,
            sequence,
            mark,
            |packet, mark| out.push((packet.to_vec(), mark)),
            |why| drops.push(why),
        );
        (self.out.len() - before.0, self.drops.len() - before.1)
    }

    fn take(&mut self, sequence: u64, offset: usize, blocks: &[u8]) -> (usize, usize) {
        self.marked(sequence, offset, blocks, 0)
    }
}

#[test]
fn what_waits_is_full_when_it_fills_a_payload_to_its_last_octet() {
    for fragment in [true, false] {
        let mut packer = Packer::new(400, fragment);
        let mut buffer = [0; 400];
        packer.push(&of(100, 1)).unwrap();
        packer.push(&of(295, 2)).unwrap();
        assert!(!packer.is_full(), "an octet is missing");
        assert_eq!((packer.payload(&mut buffer, false, false), packer.packets()), (Some(399), 0));
        packer.push(&of(100, 1)).unwrap();
        packer.push(&of(296, 2)).unwrap();
        assert!(packer.is_full() && packer.packets() == 2);
        // Both, to the last octet.
        assert_eq!((packer.payload(&mut buffer, false, false), packer.waiting()), (Some(400), 0));
        assert_eq!(buffer[HEADER..], [of(100, 1), of(296, 2)].concat());
    }
}

#[test]
fn the_smallest_payload_has_one_octet_of_packets() {
    let mut packer = Packer::new(0, true);
    let (packet, mut buffer, mut back) = (of(40, 9), [0; 8], Vec::new());
    packer.push(&packet).unwrap();
    while let Some(length) = packer.payload(&mut buffer, false, false) {
        assert_eq!(length, HEADER + 1);
        back.push(buffer[HEADER]);
    }
    assert_eq!(back, packet);
}

/// Up to 128 KiB wait, to the last octet, wherever in its room a packer is.
#[test]
fn as_much_waits_as_may_and_nothing_of_it_is_lost_or_written_over() {
    let mut packer = Packer::new(1_028, true);
    let (mut sent, mut back, mut buffer) = (Vec::new(), Vec::new(), [0; 1_028]);
    let mut push = |packer: &mut Packer, length: usize| {
        let packet = of(length, sent.len() as u8);
        let pushed = packer.push(&packet);
        if pushed.is_ok() {
            sent.extend(packet);
        }
        pushed
    };
    for _ in 0..128 {
        assert_eq!(push(&mut packer, 1_024), Ok(()));
    }
    assert_eq!(packer.waiting(), Packer::LIMIT);
    assert_eq!(push(&mut packer, 32), Err(DropReason::QueueFull));
    for turn in 0..300 {
        let length = packer.payload(&mut buffer, false, false).unwrap();
        back.extend_from_slice(&buffer[HEADER..length]);
        // In one packet or in two there is room for what has gone, and for no more.
        let parts: &[usize] = if turn % 2 == 0 { &[1_024] } else { &[500, 524] };
        for part in parts {
            assert_eq!(push(&mut packer, *part), Ok(()), "{turn}");
        }
        assert_eq!(packer.waiting(), Packer::LIMIT);
        assert_eq!(push(&mut packer, 32), Err(DropReason::QueueFull), "{turn}");
    }
    while let Some(length) = packer.payload(&mut buffer, false, false) {
        back.extend_from_slice(&buffer[HEADER..length]);
    }
    assert!(back == sent, "{} of {}", back.len(), sent.len());
}

#[test]
fn a_packet_of_a_header_alone_and_the_longest_there_is_come_out() {
    let mut receiver = Receiver::new();
    let alone = packet(UDP, "10.0.0.2", "10.9.0.1", None, &[]);
    let header = [0x45, 0, 0, 20].iter().chain(&alone[4..]).copied().collect::<Vec<u8>>();
    assert_eq!(receiver.take(1, 0, &header), (1, 0));
    let longest = v6(UDP, "fd00::2", "fd00:9::1", &[7; 65_535]);
    assert_eq!(longest.len(), 40 + 65_535);
    let (first, second) = longest.split_at(40_000);
    assert_eq!(receiver.take(2, 0, first), (0, 0));
    assert_eq!(receiver.take(3, second.len(), second), (1, 0));
    assert!(receiver.out[1].0 == longest);
    assert_eq!(receiver.reassembler.held(), 0);
}

#[test]
fn pieces_of_outer_packets_that_are_255_apart_fit_and_of_256_do_not() {
    let whole = of(100, 1);
    let (first, second) = whole.split_at(60);
    let middle = |receiver: &mut Receiver, sequences: std::ops::Range<u64>| {
        // Padding alone, which may stand between.
        sequences.for_each(|sequence| assert_eq!(receiver.take(sequence, 0, &[0; 4]), (0, 0), "{sequence}"));
    };
    for order in 0..2 {
        let mut receiver = Receiver::new();
        if order == 0 {
            assert_eq!(receiver.take(1, 0, first), (0, 0));
            middle(&mut receiver, 2..SLOTS);
            assert_eq!(receiver.take(SLOTS, 40, second), (1, 0));
        } else {
            // The beginning comes last.
            middle(&mut receiver, 2..SLOTS);
            assert_eq!(receiver.take(SLOTS, 40, second), (0, 0));
            assert_eq!(receiver.take(1, 0, first), (1, 0));
        }
        assert_eq!(receiver.out[0].0, whole);
    }
    let mut receiver = Receiver::new();
    assert_eq!(receiver.take(1, 0, first), (0, 0));
    middle(&mut receiver, 2..SLOTS + 1);
    assert_eq!(receiver.reassembler.held(), 60);
    assert_eq!(receiver.take(SLOTS + 1, 40, second), (0, 1), "its beginning has left the window");
    assert_eq!(receiver.reassembler.held(), 40);
    // What comes as late is dropped where it has a piece of a packet, and passes where it has a whole one.
    for (blocks, offset, expected) in
        [(first, 0, (0, 1)), (second, 40, (0, 1)), (&[0; 4][..], 0, (0, 0)), (&whole[..], 0, (1, 0))]
    {
        assert_eq!(receiver.take(1, offset, blocks), expected, "{blocks:?}");
    }
    assert_eq!(receiver.reassembler.held(), 40);
}

#[test]
fn a_piece_that_leaves_the_window_is_counted_whichever_end_of_a_packet_it_is() {
    let whole = of(100, 1);
    let (first, second) = whole.split_at(60);
    for (offset, blocks, drops) in [(0, first, 1), (40, second, 1), (0, &[0; 4][..], 0), (0, &whole[..], 0)] {
        let mut receiver = Receiver::new();
        receiver.take(7, offset, blocks);
        assert_eq!(receiver.take(7 + SLOTS - 1, 0, &[0; 4]), (0, 0));
        assert_eq!(receiver.take(7 + SLOTS, 0, &[0; 4]), (0, drops), "{blocks:?}");
        assert_eq!(receiver.reassembler.held(), 0);
    }
    // Far beyond, each goes once.
    let mut receiver = Receiver::new();
    for sequence in 1..=10 {
        receiver.take(2 * sequence, 0, first);
    }
    assert_eq!(receiver.take(1_000_000, 0, &[0; 4]), (0, 10));
    assert_eq!(receiver.reassembler.held(), 0);
}

/// No more than 256 KiB of pieces are kept: the oldest give way, each counted.
#[test]
fn the_oldest_pieces_give_way_to_new_ones_beyond_256_kib() {
    let long = v6(UDP, "fd00::2", "fd00:9::1", &[7; 65_535]);
    let quarter = HELD / 4;
    // (A beginning alone is shorter than the packet.)
    let piece = &long[..quarter - 1];
    let mut receiver = Receiver::new();
    for sequence in 1..=4 {
        assert_eq!(receiver.take(2 * sequence, 0, piece), (0, 0), "{sequence}");
    }
    assert_eq!(receiver.reassembler.held(), HELD - 4);
    // Four octets more have room, and one more has not.
    assert_eq!(receiver.take(9, 0, &long[..4]), (0, 0));
    assert_eq!(receiver.reassembler.held(), HELD);
    assert_eq!(receiver.take(11, 0, &long[..1]), (0, 1));
    assert_eq!(receiver.reassembler.held(), HELD - piece.len() + 1);
    // The second oldest is there: what goes on with it is put together.
    assert_eq!(receiver.take(5, long.len() - piece.len(), &long[piece.len()..]), (1, 0));
    assert_eq!(
        receiver.take(3, long.len() - piece.len(), &long[piece.len()..]),
        (0, 0),
        "its beginning gave way"
    );
    // For the largest piece all give way.
    let whole = vec![0x60; HELD];
    let mut receiver = Receiver::new();
    for sequence in 1..=4 {
        receiver.take(2 * sequence, 0, piece);
    }
    assert_eq!(receiver.take(10, usize::from(u16::MAX), &whole[..65_535]).1, 1);
    assert!(receiver.reassembler.held() <= HELD);
}

/// A packet that a peer began and never ended is not taken for one with what begins behind it.
#[test]
fn what_was_begun_and_not_gone_on_with_stays_a_piece() {
    let (begun, whole) = (of(100, 1), of(80, 2));
    let mut receiver = Receiver::new();
    assert_eq!(receiver.take(1, 0, &begun[..60]), (0, 0));
    assert_eq!(receiver.take(2, 0, &whole), (1, 0));
    let mut receiver = Receiver::new();
    assert_eq!(receiver.take(2, 0, &whole), (1, 0));
    assert_eq!(receiver.take(1, 0, &begun[..60]), (0, 0));
    assert_eq!(receiver.drops, []);
}

/// RFC 9347 2.4.1: a packet that came in several is marked as its first one was, and where any was marked with congestion.
#[test]
fn a_packet_of_several_pieces_has_its_firsts_mark_unless_congestion_was_met() {
    let whole = of(100, 1);
    for (one, two, three) in (0..64).map(|marks| (marks & 3, marks >> 2 & 3, marks >> 4)) {
        let mut receiver = Receiver::new();
        receiver.marked(1, 0, &whole[..40], one);
        receiver.marked(2, 60, &whole[40..70], two);
        assert_eq!(receiver.marked(3, 30, &whole[70..], three), (1, 0));
        let expected = if [two, three].contains(&ecn::CE) { ecn::CE } else { one };
        assert_eq!(receiver.out[0], (whole.clone(), expected), "{one} {two} {three}");
    }
}
