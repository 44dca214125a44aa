//! What goes to the link.

use super::assembler::{Alu, FRAME, If, Instruction, Size};
use super::header::{HEAD, HEADER, HEADER_LENGTH, LOOK_UP, MARK, OTHER, PACKET, PASS, Program, TOTAL};
use super::steps::{fits, single_level, to_single_level};
use super::{Carries, Map, OPTION, six};
use crate::Drop;

/// `bpf_redirect_neigh`: out at the link, to the neighbour that the routes of the link's namespace name.
const REDIRECT_NEIGHBOUR: i32 = 152;
/// The stack: the mark.
const INDEX: i16 = -104;
/// A single-level host's address, as it stands in the table.
const ADDRESS: i16 = -112;

/// The program at the outer end of the wire from a compartment: its packets, of IPv4 and, `with_six`, of IPv6, get its mark, which no packet has by itself when
/// it leaves a namespace, and go to the link with this index.
///
/// `None` if it cannot be made; there are no numbers for which that is so.
pub fn compartment(mark: u32, link: u32, with_six: bool) -> Option<Vec<Instruction>> {
    let mut program = Program::new();
    let (malformed, goes) = (program.drop(Drop::Malformed), program.asm.place());
    program.protocols(malformed, with_six.then_some(goes));
    let asm = &mut program.asm;
    asm.here(goes);
    asm.set(Alu::Move, 1, i32::try_from(mark).ok()?);
    asm.store(Size::Word, PACKET, MARK, 1);
    asm.set(Alu::Move, 1, i32::try_from(link).ok()?);
    for register in 2..=4 {
        asm.set(Alu::Move, register, 0);
    }
    asm.call(REDIRECT_NEIGHBOUR);
    asm.exit();
    program.finish()
}

/// The program for what goes to the link: with the label of its mark's compartment and no other, to a single-level host of that label
/// without, or nowhere. `mtu` is the link's, in octets; what else the link carries is in `carries`.
///
/// `None` if it cannot be made; there is no MTU for which that is so.
pub fn egress(mtu: u32, carries: Carries) -> Option<Vec<Instruction>> {
    let mut program = Program::new();
    let (unlabelled, outside) = (program.drop(Drop::Unlabelled), program.drop(Drop::OutOfRange));
    let (forged, large) = (program.drop(Drop::Forged), program.drop(Drop::TooLarge));
    let (arp, six) = (program.asm.place(), program.asm.place());
    program.protocols(arp, carries.six.then_some(six));
    let asm = &mut program.asm;
    asm.load(Size::Word, 1, PACKET, MARK);
    asm.jump_if(1, If::Equal, 0, unlabelled);
    program.header();
    program.scan();
    let asm = &mut program.asm;
    asm.load(Size::Double, 1, FRAME, super::header::FOUND);
    asm.jump_if(1, If::Differs, 0, forged);
    let (labelled, written) = (asm.place(), asm.place());
    if carries.unlabelled {
        single_level(&mut program, Map::Unlabelled, (HEADER + 16, 4), ADDRESS, labelled);
        to_single_level(&mut program);
        let asm = &mut program.asm;
        for at in (0..OPTION as i16).step_by(4) {
            asm.put(Size::Word, FRAME, HEADER + HEAD as i16 + at, 0);
        }
        asm.set(Alu::Move, OTHER, 0);
        asm.jump(written);
    }
    let asm = &mut program.asm;
    asm.here(labelled);
    asm.load(Size::Word, 1, PACKET, MARK);
    asm.store(Size::Word, FRAME, INDEX, 1);
    asm.map(1, Map::Options as i32);
    asm.stack(2, INDEX);
    asm.call(LOOK_UP);
    asm.jump_if(0, If::Equal, 0, outside);
    // The option behind the header's 20 octets, all 40 of them; how long it is, in register 9.
    for at in (0..OPTION as i16).step_by(4) {
        asm.load(Size::Word, 1, 0, 4 + at);
        asm.store(Size::Word, FRAME, HEADER + HEAD as i16 + at, 1);
    }
    asm.load(Size::Word, OTHER, 0, 0);
    asm.jump_if(OTHER, If::Equal, 0, outside);
    asm.jump_if(OTHER, If::Greater, OPTION as i32, outside);
    asm.here(written);
    // The new length, in register 8.
    asm.with(Alu::Sub, TOTAL, HEADER_LENGTH);
    asm.set(Alu::Add, TOTAL, HEAD);
    asm.with(Alu::Add, TOTAL, OTHER);
    asm.jump_if(TOTAL, If::Greater, 0xffff, large);
    fits(&mut program, mtu)?;
    let asm = &mut program.asm;
    asm.set(Alu::Move, 2, HEAD);
    asm.with(Alu::Sub, 2, HEADER_LENGTH);
    asm.with(Alu::Add, 2, OTHER);
    program.adjust();
    let asm = &mut program.asm;
    asm.with(Alu::Move, HEADER_LENGTH, OTHER);
    asm.set(Alu::Add, HEADER_LENGTH, HEAD);
    asm.with(Alu::Move, 1, HEADER_LENGTH);
    asm.set(Alu::Right, 1, 2);
    asm.set(Alu::Add, 1, 0x40);
    asm.store(Size::Octet, FRAME, HEADER, 1);
    asm.swap16(TOTAL);
    asm.store(Size::Half, FRAME, HEADER + 2, TOTAL);
    program.write(60);
    let asm = &mut program.asm;
    asm.set(Alu::Move, 0, PASS);
    asm.exit();
    if carries.six {
        asm.here(six);
        six::to_link(&mut program, mtu, carries.unlabelled)?;
    }
    let asm = &mut program.asm;
    asm.here(arp);
    // ARP is the link's own namespace's. A compartment has no part in it.
    asm.load(Size::Word, 1, PACKET, MARK);
    asm.jump_if(1, If::Differs, 0, outside);
    asm.set(Alu::Move, 0, PASS);
    asm.exit();
    program.finish()
}
