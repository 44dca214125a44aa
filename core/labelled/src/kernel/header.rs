//! What both programs begin and end with: the header, its options, and the drops. As `ipv4.rs`, step by step.

use super::Map;
use super::assembler::{Alu, Assembler, FRAME, If, Instruction, Register, Size, Target};
use crate::Drop;
use crate::cipso;

/// The packet (`struct __sk_buff`).
pub(super) const PACKET: Register = 6;
/// Octets of the IPv4 header.
pub(super) const HEADER_LENGTH: Register = 7;
/// Octets of the whole IPv4 packet.
pub(super) const TOTAL: Register = 8;
pub(super) const OTHER: Register = 9;

/// Offsets in `struct __sk_buff` (linux/bpf.h).
pub(super) const LENGTH: i16 = 0;
pub(super) const MARK: i16 = 8;
const PROTOCOL: i16 = 16;
const VLAN: i16 = 20;

/// Helpers (linux/bpf.h).
pub(super) const LOOK_UP: i32 = 1;
pub(super) const UPDATE: i32 = 2;
pub(super) const CLOCK: i32 = 5;
pub(super) const STORE_BYTES: i32 = 9;
pub(super) const LOAD_BYTES: i32 = 26;
const L4_CHECKSUM: i32 = 11;
const CSUM_DIFF: i32 = 28;
const ADJUST_ROOM: i32 = 50;
/// `BPF_F_RECOMPUTE_CSUM`: what the card summed stays right.
pub(super) const RECOMPUTE: i32 = 1;
/// `BPF_ADJ_ROOM_NET`: behind the 20 octets of an IPv4 header.
const BEHIND_HEADER: i32 = 0;
/// `BPF_F_ADJ_ROOM_FIXED_GSO`: segments of an aggregate keep their size.
const FIXED_GSO: i32 = 1;

/// `TC_ACT_OK` and `TC_ACT_SHOT`.
pub(super) const PASS: i32 = 0;
const SHOT: i32 = 2;

/// Octets of an Ethernet header.
pub(super) const ETHERNET: i32 = 14;
/// Octets of an IPv4 header without options.
pub(super) const HEAD: i32 = 20;
/// Octets of the longest one.
const LONGEST: i32 = 60;
const IP: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const ARP: u16 = 0x0806;

/// The stack: the header, 60 octets.
pub(super) const HEADER: i16 = -64;
const COUNTER: i16 = -140;
/// Where the label's option begins in the header, and its length.
pub(super) const FOUND: i16 = -152;
pub(super) const FOUND_LENGTH: i16 = -160;

/// A program with a place for each reason to drop.
pub(super) struct Program {
    pub(super) asm: Assembler,
    drops: Vec<Target>,
}

impl Program {
    /// Begins: register 1 has the packet.
    pub(super) fn new() -> Self {
        let mut asm = Assembler::default();
        let drops = Drop::ALL.iter().map(|_| asm.place()).collect();
        asm.with(Alu::Move, PACKET, 1);
        Self { asm, drops }
    }

    /// Where a packet goes that is dropped for this reason.
    pub(super) fn drop(&self, reason: Drop) -> Target {
        // There is a place for each of them.
        self.drops.get(reason as usize).copied().unwrap_or_else(|| Assembler::default().place())
    }

    /// Goes to `arp` for ARP, to `six` for IPv6 where that is taken, on for IPv4, and drops what else there is.
    pub(super) fn protocols(&mut self, arp: Target, six: Option<Target>) {
        let malformed = self.drop(Drop::Malformed);
        let asm = &mut self.asm;
        asm.load(Size::Word, 0, PACKET, VLAN);
        asm.jump_if(0, If::Differs, 0, malformed);
        asm.load(Size::Word, 0, PACKET, PROTOCOL);
        asm.jump_if(0, If::Equal, i32::from(ARP.to_be()), arp);
        if let Some(six) = six {
            asm.jump_if(0, If::Equal, i32::from(IPV6.to_be()), six);
        }
        asm.jump_if(0, If::Differs, i32::from(IP.to_be()), malformed);
    }

    /// Reads the header: 60 octets on the stack, 0 where there is none; drops what is not whole.
    pub(super) fn header(&mut self) {
        let malformed = self.drop(Drop::Malformed);
        let asm = &mut self.asm;
        asm.set(Alu::Move, 4, HEAD);
        load_header(asm, malformed);
        asm.load(Size::Octet, HEADER_LENGTH, FRAME, HEADER);
        asm.with(Alu::Move, 1, HEADER_LENGTH);
        asm.set(Alu::Right, 1, 4);
        asm.jump_if(1, If::Differs, 4, malformed);
        asm.set(Alu::And, HEADER_LENGTH, 15);
        asm.set(Alu::Left, HEADER_LENGTH, 2);
        asm.jump_if(HEADER_LENGTH, If::Less, HEAD, malformed);
        asm.load(Size::Half, TOTAL, FRAME, HEADER + 2);
        asm.swap16(TOTAL);
        asm.jump_if_register(TOTAL, If::Less, HEADER_LENGTH, malformed);
        asm.load(Size::Word, 1, PACKET, LENGTH);
        asm.with(Alu::Move, 2, TOTAL);
        asm.set(Alu::Add, 2, ETHERNET);
        asm.jump_if_register(2, If::Greater, 1, malformed);
        for at in (HEADER..HEADER + 56).step_by(8) {
            asm.put(Size::Double, FRAME, at, 0);
        }
        asm.put(Size::Word, FRAME, HEADER + 56, 0);
        asm.with(Alu::Move, 4, HEADER_LENGTH);
        load_header(asm, malformed);
        let wrong = self.drop(Drop::Checksum);
        self.sum(LONGEST);
        self.asm.jump_if(0, If::Differs, 0xffff, wrong);
    }

    /// Register 0 = the ones' complement sum (RFC 1071) of so many octets of the header.
    fn sum(&mut self, octets: i32) {
        let asm = &mut self.asm;
        asm.set(Alu::Move, 1, 0);
        asm.set(Alu::Move, 2, 0);
        asm.stack(3, HEADER);
        asm.set(Alu::Move, 4, octets);
        asm.set(Alu::Move, 5, 0);
        asm.call(CSUM_DIFF);
        asm.narrow(0);
        for _ in 0..2 {
            asm.with(Alu::Move, 1, 0);
            asm.set(Alu::Right, 1, 16);
            asm.set(Alu::And, 0, 0xffff);
            asm.with(Alu::Add, 0, 1);
        }
    }

    /// Looks through the options: [`FOUND`] is where the label's begins, 0 where there is none.
    pub(super) fn scan(&mut self) {
        let (truncated, other) = (self.drop(Drop::Truncated), self.drop(Drop::OtherOption));
        let duplicate = self.drop(Drop::Duplicate);
        let asm = &mut self.asm;
        let (again, long, done) = (asm.place(), asm.place(), asm.place());
        asm.set(Alu::Move, OTHER, HEAD);
        asm.put(Size::Double, FRAME, FOUND, 0);
        asm.put(Size::Double, FRAME, FOUND_LENGTH, 0);
        asm.here(again);
        asm.jump_if_register(OTHER, If::AtLeast, HEADER_LENGTH, done);
        // It is less: the verifier of Linux 6.1 sees no bound in another register.
        asm.jump_if(OTHER, If::AtLeast, LONGEST, done);
        asm.with(Alu::Move, 1, FRAME);
        asm.with(Alu::Add, 1, OTHER);
        asm.load(Size::Octet, 2, 1, HEADER);
        asm.jump_if(2, If::Equal, 0, done);
        asm.jump_if(2, If::Differs, 1, long);
        asm.set(Alu::Add, OTHER, 1);
        asm.jump(again);
        asm.here(long);
        asm.with(Alu::Move, 3, OTHER);
        asm.set(Alu::Add, 3, 1);
        asm.jump_if_register(3, If::AtLeast, HEADER_LENGTH, truncated);
        asm.jump_if(3, If::AtLeast, LONGEST, truncated);
        asm.with(Alu::Move, 1, FRAME);
        asm.with(Alu::Add, 1, 3);
        asm.load(Size::Octet, 3, 1, HEADER);
        asm.jump_if(3, If::Less, 2, truncated);
        asm.with(Alu::Move, 4, OTHER);
        asm.with(Alu::Add, 4, 3);
        asm.jump_if_register(4, If::Greater, HEADER_LENGTH, truncated);
        asm.jump_if(2, If::Differs, i32::from(cipso::TYPE), other);
        asm.load(Size::Double, 5, FRAME, FOUND);
        asm.jump_if(5, If::Differs, 0, duplicate);
        asm.store(Size::Double, FRAME, FOUND, OTHER);
        asm.store(Size::Double, FRAME, FOUND_LENGTH, 3);
        asm.with(Alu::Move, OTHER, 4);
        asm.jump(again);
        asm.here(done);
    }

    /// Makes the header longer by what register 2 has, or shorter.
    pub(super) fn adjust(&mut self) {
        let malformed = self.drop(Drop::Malformed);
        let asm = &mut self.asm;
        let done = asm.place();
        asm.jump_if(2, If::Equal, 0, done);
        asm.with(Alu::Move, 1, PACKET);
        asm.set(Alu::Move, 3, BEHIND_HEADER);
        asm.set(Alu::Move, 4, FIXED_GSO);
        asm.call(ADJUST_ROOM);
        asm.jump_if(0, If::Differs, 0, malformed);
        asm.here(done);
    }

    /// Writes the header with its checksum; its length is in register [`HEADER_LENGTH`], at least 20, and so many octets are
    /// summed up.
    pub(super) fn write(&mut self, octets: i32) {
        let malformed = self.drop(Drop::Malformed);
        self.asm.put(Size::Half, FRAME, HEADER + 10, 0);
        self.sum(octets);
        let asm = &mut self.asm;
        asm.set(Alu::Xor, 0, 0xffff);
        asm.store(Size::Half, FRAME, HEADER + 10, 0);
        asm.with(Alu::Move, 1, PACKET);
        asm.set(Alu::Move, 2, ETHERNET);
        asm.stack(3, HEADER);
        asm.with(Alu::Move, 4, HEADER_LENGTH);
        asm.set(Alu::Move, 5, RECOMPUTE);
        asm.call(STORE_BYTES);
        asm.jump_if(0, If::Differs, 0, malformed);
    }

    /// As [`crate::icmp::less`], where register 2 has by how much: the size's place in the packet and, as it was read, on the stack,
    /// where there is room for 2 octets more behind it; and the checksum's place in the packet.
    pub(super) fn less(&mut self, (size, read): (i32, i16), checksum: i32) {
        let malformed = self.drop(Drop::Malformed);
        let asm = &mut self.asm;
        let done = asm.place();
        asm.load(Size::Half, 3, FRAME, read);
        asm.swap16(3);
        asm.jump_if_register(2, If::AtLeast, 3, done);
        asm.with(Alu::Sub, 3, 2);
        asm.swap16(3);
        asm.store(Size::Half, FRAME, read + 2, 3);
        asm.with(Alu::Move, 4, 3);
        asm.load(Size::Half, 3, FRAME, read);
        asm.with(Alu::Move, 1, PACKET);
        asm.set(Alu::Move, 2, checksum);
        // Octets that change.
        asm.set(Alu::Move, 5, 2);
        asm.call(L4_CHECKSUM);
        asm.jump_if(0, If::Differs, 0, malformed);
        asm.with(Alu::Move, 1, PACKET);
        asm.set(Alu::Move, 2, size);
        asm.stack(3, read + 2);
        asm.set(Alu::Move, 4, 2);
        // What the card summed is as it was: the checksum makes up for the change.
        asm.set(Alu::Move, 5, 0);
        asm.call(STORE_BYTES);
        asm.jump_if(0, If::Differs, 0, malformed);
        asm.here(done);
    }

    /// Ends: what was dropped is counted.
    pub(super) fn finish(mut self) -> Option<Vec<Instruction>> {
        let asm = &mut self.asm;
        let (count, end) = (asm.place(), asm.place());
        for (place, reason) in self.drops.iter().zip(0..) {
            // The verifier takes nothing that is never run.
            if !asm.is_used(*place) {
                continue;
            }
            asm.here(*place);
            asm.put(Size::Word, FRAME, COUNTER, reason);
            asm.jump(count);
        }
        asm.here(count);
        asm.map(1, Map::Drops as i32);
        asm.stack(2, COUNTER);
        asm.call(LOOK_UP);
        asm.jump_if(0, If::Equal, 0, end);
        asm.set(Alu::Move, 1, 1);
        asm.count(0, 1);
        asm.here(end);
        asm.set(Alu::Move, 0, SHOT);
        asm.exit();
        self.asm.finish()
    }
}

/// Reads so many octets of the header as register 4 has.
fn load_header(asm: &mut Assembler, malformed: Target) {
    asm.with(Alu::Move, 1, PACKET);
    asm.set(Alu::Move, 2, ETHERNET);
    asm.stack(3, HEADER);
    asm.call(LOAD_BYTES);
    asm.jump_if(0, If::Differs, 0, malformed);
}
