//! Steps that IPv4 and IPv6 have in common.

use super::assembler::{Alu, FRAME, If, Size, Target};
use super::header::{CLOCK, LENGTH, LOOK_UP, MARK, OTHER, PACKET, Program, STORE_BYTES, TOTAL, UPDATE};
use super::{Map, WIRE};
use crate::Drop;

/// `bpf_redirect_peer`: straight into the namespace at the other end of the wire.
const REDIRECT_PEER: i32 = 155;
/// `bpf_redirect`: out by this end of the wire. What comes out at the other is joined with what it continues (GRO), before anything looks at it.
const REDIRECT: i32 = 23;
const TCP: i32 = 6;
/// A segment that is worth joining, in octets with its Ethernet header.
const LONG: i32 = 600;
/// What is counted of a wire's segments is between 0 and this; below the half they are joined. Who crosses the half goes on to the end, so that as many the other
/// way are wanted to come back.
const MOST: i32 = 128;
const HALF: i32 = MOST / 2;
/// `pkt_type` of `struct __sk_buff`: 0 for what is for the link's own address (PACKET_HOST).
const FOR_WHOM: i16 = 4;
/// `cb[0]` of `struct __sk_buff`: where the packet goes, for who runs the program on a packet of their own.
const NOTE: i16 = 48;

/// `gso_size` of `struct __sk_buff`: octets of a segment in an aggregate that the link is to cut up.
const SEGMENT: i16 = 176;
/// How long a datagram is remembered, in ns, less than 2³¹ each.
const LIFE: [i32; 2] = [30, 1_000_000_000];

/// The octets two by two, as the machine loads them.
pub(super) fn halves(octets: &[u8]) -> impl Iterator<Item = i32> + '_ {
    octets.as_chunks::<2>().0.iter().map(|two| i32::from(u16::from_ne_bytes(*two)))
}

/// A fragment goes where the first of its datagram went, or nowhere. The datagram's name is on the stack; there is room for what is
/// remembered of it at `value`. Register 8 is used.
pub(super) fn agree(program: &mut Program, datagrams: Map, name: i16, value: i16) {
    let disagrees = program.drop(Drop::Disagrees);
    let asm = &mut program.asm;
    let (first, done) = (asm.place(), asm.place());
    asm.call(CLOCK);
    asm.with(Alu::Move, TOTAL, 0);
    asm.map(1, datagrams as i32);
    asm.stack(2, name);
    asm.call(LOOK_UP);
    asm.jump_if(0, If::Equal, 0, first);
    asm.load(Size::Double, 1, 0, 8);
    asm.with(Alu::Move, 2, TOTAL);
    asm.with(Alu::Sub, 2, 1);
    asm.set(Alu::Move, 3, LIFE[0]);
    asm.multiply(3, LIFE[1]);
    asm.jump_if_register(2, If::AtLeast, 3, first);
    asm.load(Size::Double, 1, 0, 0);
    asm.jump_if_register(1, If::Differs, OTHER, disagrees);
    asm.jump(done);
    asm.here(first);
    asm.store(Size::Double, FRAME, value, OTHER);
    asm.store(Size::Double, FRAME, value + 8, TOTAL);
    asm.map(1, datagrams as i32);
    asm.stack(2, name);
    asm.stack(3, value);
    asm.set(Alu::Move, 4, 0);
    asm.call(UPDATE);
    asm.here(done);
}

/// Goes on at `labelled` if the address at `from` on the stack is no single-level host's; if it is, register 0 = its entry's place. The
/// address has so many octets; there is room for 4 more at `to`.
pub(super) fn single_level(
    program: &mut Program,
    hosts: Map,
    (from, octets): (i16, i16),
    to: i16,
    labelled: Target,
) {
    let asm = &mut program.asm;
    asm.put(Size::Word, FRAME, to, i32::from(octets) * 8);
    for at in (0..octets).step_by(4) {
        asm.load(Size::Word, 1, FRAME, from + at);
        asm.store(Size::Word, FRAME, to + 4 + at, 1);
    }
    asm.map(1, hosts as i32);
    asm.stack(2, to);
    asm.call(LOOK_UP);
    asm.jump_if(0, If::Equal, 0, labelled);
}

/// Register 9 = the interface that packets from the single-level host go to, whose entry register 0 has.
pub(super) fn from_single_level(program: &mut Program) {
    let outside = program.drop(Drop::OutOfRange);
    let asm = &mut program.asm;
    asm.load(Size::Word, OTHER, 0, 0);
    asm.jump_if(OTHER, If::Equal, 0, outside);
}

/// Drops what goes to a single-level host, whose entry register 0 has, from another compartment than its own.
pub(super) fn to_single_level(program: &mut Program) {
    let elsewhere = program.drop(Drop::Elsewhere);
    let asm = &mut program.asm;
    asm.load(Size::Word, 1, 0, 4);
    asm.load(Size::Word, 2, PACKET, MARK);
    asm.jump_if_register(1, If::Differs, 2, elsewhere);
}

/// To the other end of the wire with the index in register 9; register 1 = the protocol, as it stands in the header.
///
/// A packet costs the compartment's rules the same however much it has, and a network card joins none that has options. So segments of TCP are joined behind
/// the wire, where long ones come alone: each takes one from a count, a short one gives one, and an aggregate all. So each of a connection's
/// goes the same way as the one before, but for few that overtake others where that changes. What is short alone, as requests are, is there sooner without.
/// `key` has room for 8 octets.
pub(super) fn redirect(program: &mut Program, key: i16) {
    let malformed = program.drop(Drop::Malformed);
    let asm = &mut program.asm;
    let (at_once, single, short, counted) = (asm.place(), asm.place(), asm.place(), asm.place());
    let (less, more) = (asm.place(), asm.place());
    asm.store(Size::Word, PACKET, NOTE, OTHER);
    asm.jump_if(1, If::Differs, TCP, at_once);
    asm.load(Size::Word, 1, PACKET, FOR_WHOM);
    asm.jump_if(1, If::Differs, 0, at_once);
    asm.store(Size::Word, FRAME, key, OTHER);
    asm.map(1, Map::Aggregates as i32);
    asm.stack(2, key);
    asm.call(LOOK_UP);
    asm.jump_if(0, If::Equal, 0, at_once);
    asm.load(Size::Word, 2, 0, 0);
    asm.load(Size::Word, 1, PACKET, SEGMENT);
    asm.jump_if(1, If::Equal, 0, single);
    asm.set(Alu::Move, 2, MOST);
    asm.jump(counted);
    asm.here(single);
    asm.load(Size::Word, 1, PACKET, LENGTH);
    asm.jump_if(1, If::Less, LONG, short);
    asm.jump_if(2, If::Equal, 0, counted);
    asm.jump_if(2, If::Differs, HALF, less);
    asm.set(Alu::Move, 2, 1);
    asm.here(less);
    asm.set(Alu::Sub, 2, 1);
    asm.jump(counted);
    asm.here(short);
    asm.jump_if(2, If::AtLeast, MOST, counted);
    asm.jump_if(2, If::Differs, HALF - 1, more);
    asm.set(Alu::Move, 2, MOST - 1);
    asm.here(more);
    asm.set(Alu::Add, 2, 1);
    asm.here(counted);
    asm.store(Size::Word, 0, 0, 2);
    asm.jump_if(2, If::AtLeast, HALF, at_once);
    // Both ends of a wire have its own address; what comes from the link has the link's.
    let [a, b, c, d, e, f] = WIRE;
    asm.put(Size::Word, FRAME, key, i32::from_ne_bytes([a, b, c, d]));
    asm.put(Size::Half, FRAME, key + 4, i32::from(u16::from_ne_bytes([e, f])));
    asm.with(Alu::Move, 1, PACKET);
    asm.set(Alu::Move, 2, 0);
    asm.stack(3, key);
    asm.set(Alu::Move, 4, WIRE.len() as i32);
    asm.set(Alu::Move, 5, 0);
    asm.call(STORE_BYTES);
    asm.jump_if(0, If::Differs, 0, malformed);
    asm.with(Alu::Move, 1, OTHER);
    asm.set(Alu::Move, 2, 0);
    asm.call(REDIRECT);
    asm.exit();
    asm.here(at_once);
    asm.with(Alu::Move, 1, OTHER);
    asm.set(Alu::Move, 2, 0);
    asm.call(REDIRECT_PEER);
    asm.exit();
}

/// Drops what is larger than the link takes, with the length in register 8; but an aggregate is cut up.
pub(super) fn fits(program: &mut Program, mtu: u32) -> Option<()> {
    let large = program.drop(Drop::TooLarge);
    let asm = &mut program.asm;
    let fits = asm.place();
    asm.jump_if(TOTAL, If::Less, i32::try_from(mtu.checked_add(1)?).ok()?, fits);
    asm.load(Size::Word, 1, PACKET, SEGMENT);
    asm.jump_if(1, If::Equal, 0, large);
    asm.here(fits);
    Some(())
}
