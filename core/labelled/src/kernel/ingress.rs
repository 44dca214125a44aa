//! What comes from the link.

use levee_policy::Domain;

use super::assembler::{Alu, FRAME, If, Instruction, Size};
use super::header::{
    ETHERNET, FOUND, FOUND_LENGTH, HEAD, HEADER, HEADER_LENGTH, LOAD_BYTES, LOOK_UP, OTHER, PACKET, PASS,
    Program,
};
use super::steps::{agree, from_single_level, halves, redirect, single_level};
use super::{Carries, DATAGRAM, Map, OPTION, six};
use crate::Drop;

/// The stack, below the header: the option, the datagram's name, and what is remembered of it.
const KEY: i16 = -104;
const NAME: i16 = -116;
const VALUE: i16 = -136;
/// A single-level host's address, as it stands in the table.
const ADDRESS: i16 = -168;
/// The program for what comes from the link: to the compartment of its label, without its option, or nowhere. What else the
/// link carries is in `carries`.
///
/// `None` if it cannot be made; there is no domain for which that is so.
pub fn ingress(domain: &Domain, carries: Carries) -> Option<Vec<Instruction>> {
    let mut program = Program::new();
    let (link, six) = (program.asm.place(), program.asm.place());
    program.protocols(link, carries.six.then_some(six));
    program.header();
    program.scan();
    let (labelled, bare) = (program.asm.place(), program.asm.place());
    if carries.unlabelled {
        let claimed = program.drop(Drop::Claimed);
        single_level(&mut program, Map::Unlabelled, (HEADER + 12, 4), ADDRESS, labelled);
        program.asm.load(Size::Double, 1, FRAME, FOUND);
        program.asm.jump_if(1, If::Differs, 0, claimed);
        from_single_level(&mut program);
        program.asm.jump(bare);
    }
    program.asm.here(labelled);
    look_up(&mut program, domain);
    name(&mut program);
    program.asm.here(bare);
    deliver(&mut program);
    if carries.six {
        program.asm.here(six);
        six::from_link(&mut program, domain, link, carries.unlabelled);
    }
    program.asm.here(link);
    program.asm.set(Alu::Move, 0, PASS);
    program.asm.exit();
    program.finish()
}

/// Register 9 = the interface that the label's packets go to.
fn look_up(program: &mut Program, domain: &Domain) {
    let (unlabelled, malformed) = (program.drop(Drop::Unlabelled), program.drop(Drop::Malformed));
    let truncated = program.drop(Drop::Truncated);
    let asm = &mut program.asm;
    for at in (KEY..HEADER).step_by(8) {
        asm.put(Size::Double, FRAME, at, 0);
    }
    asm.load(Size::Double, 2, FRAME, FOUND);
    asm.jump_if(2, If::Equal, 0, unlabelled);
    asm.set(Alu::Add, 2, ETHERNET);
    asm.load(Size::Double, 4, FRAME, FOUND_LENGTH);
    // It is neither: the verifier is told so.
    asm.jump_if(4, If::Greater, OPTION as i32, truncated);
    asm.jump_if(4, If::Less, 2, truncated);
    asm.with(Alu::Move, 1, PACKET);
    asm.stack(3, KEY);
    asm.call(LOAD_BYTES);
    asm.jump_if(0, If::Differs, 0, malformed);
    asm.map(1, Map::Labels as i32);
    asm.stack(2, KEY);
    asm.call(LOOK_UP);
    let known = asm.place();
    asm.jump_if(0, If::Differs, 0, known);
    reason(program, domain);
    program.asm.here(known);
    program.asm.load(Size::Word, OTHER, 0, 0);
}

/// Why an option is not in the table. Of tags 2, 5 and 6 only that it is not.
fn reason(program: &mut Program, domain: &Domain) {
    let (bad, other) = (program.drop(Drop::BadOption), program.drop(Drop::OtherDomain));
    let (tag, unknown) = (program.drop(Drop::UnknownTag), program.drop(Drop::UnknownLabel));
    let outside = program.drop(Drop::OutOfRange);
    let asm = &mut program.asm;
    let (bitmap, global, known) = (asm.place(), asm.place(), asm.place());
    asm.load(Size::Double, 4, FRAME, FOUND_LENGTH);
    asm.jump_if(4, If::Less, 6, bad);
    for (half, at) in halves(&domain.doi().to_be_bytes()).zip((KEY + 2..).step_by(2)) {
        asm.load(Size::Half, 1, FRAME, at);
        asm.jump_if(1, If::Differs, half, other);
    }
    asm.jump_if(4, If::Less, 8, bad);
    asm.load(Size::Octet, 1, FRAME, KEY + 7);
    asm.jump_if(1, If::Less, 2, bad);
    asm.with(Alu::Move, 2, 1);
    asm.set(Alu::Add, 2, 6);
    asm.jump_if_register(2, If::Differs, 4, bad);
    asm.load(Size::Octet, 2, FRAME, KEY + 6);
    asm.jump_if(2, If::Differs, 128, global);
    asm.jump_if(1, If::Differs, 6, bad);
    asm.jump(tag);
    asm.here(global);
    for form in [1, 2, 5, 6] {
        asm.jump_if(2, If::Equal, form, known);
    }
    asm.jump(tag);
    asm.here(known);
    asm.jump_if(1, If::Less, 4, bad);
    asm.load(Size::Octet, 1, FRAME, KEY + 8);
    asm.jump_if(1, If::Differs, 0, bad);
    asm.jump_if(2, If::Differs, 1, unknown);
    asm.load(Size::Octet, 1, FRAME, KEY + 9);
    for level in domain.foreign_levels() {
        asm.jump_if(1, If::Equal, i32::from(level), bitmap);
    }
    asm.jump(unknown);
    asm.here(bitmap);
    let mut octets = crate::cipso::bitmap(domain.foreign_categories());
    octets.resize(OPTION - 10, 0);
    for (half, at) in halves(&octets).zip((KEY + 10..).step_by(2)) {
        asm.load(Size::Half, 1, FRAME, at);
        asm.set(Alu::And, 1, !half & 0xffff);
        asm.jump_if(1, If::Differs, 0, unknown);
    }
    asm.jump(outside);
}

/// Names the datagram that the packet is a fragment of, if it is one; the fragment goes where the first of it went.
fn name(program: &mut Program) {
    let asm = &mut program.asm;
    let done = asm.place();
    asm.load(Size::Half, 1, FRAME, HEADER + 6);
    asm.swap16(1);
    asm.set(Alu::And, 1, 0x3fff);
    asm.jump_if(1, If::Equal, 0, done);
    for (from, to) in [(12, 0), (16, 4)] {
        asm.load(Size::Word, 1, FRAME, HEADER + from);
        asm.store(Size::Word, FRAME, NAME + to, 1);
    }
    const { assert!(DATAGRAM == 12) };
    asm.load(Size::Half, 1, FRAME, HEADER + 4);
    asm.store(Size::Half, FRAME, NAME + 8, 1);
    asm.load(Size::Octet, 1, FRAME, HEADER + 9);
    asm.store(Size::Half, FRAME, NAME + 10, 1);
    agree(program, Map::Datagrams, NAME, VALUE);
    program.asm.here(done);
}

/// Without its options, to the other end of the wire.
fn deliver(program: &mut Program) {
    let asm = &mut program.asm;
    asm.set(Alu::Move, 2, HEAD);
    asm.with(Alu::Sub, 2, HEADER_LENGTH);
    program.adjust();
    let asm = &mut program.asm;
    asm.put(Size::Octet, FRAME, HEADER, 0x45);
    asm.load(Size::Half, 1, FRAME, HEADER + 2);
    asm.swap16(1);
    asm.with(Alu::Sub, 1, HEADER_LENGTH);
    asm.set(Alu::Add, 1, HEAD);
    asm.swap16(1);
    asm.store(Size::Half, FRAME, HEADER + 2, 1);
    asm.set(Alu::Move, HEADER_LENGTH, HEAD);
    program.write(HEAD);
    size(program);
    program.asm.load(Size::Octet, 1, FRAME, HEADER + 9);
    redirect(program, NAME);
}

/// An error that says what size passes says it of packets with their label.
fn size(program: &mut Program) {
    const { assert!(KEY + 12 <= HEADER) };
    let malformed = program.drop(Drop::Malformed);
    let asm = &mut program.asm;
    let done = asm.place();
    asm.load(Size::Octet, 1, FRAME, HEADER + 9);
    asm.jump_if(1, If::Differs, 1, done);
    asm.load(Size::Half, 1, FRAME, HEADER + 6);
    asm.swap16(1);
    asm.set(Alu::And, 1, 0x3fff);
    asm.jump_if(1, If::Differs, 0, done);
    asm.load(Size::Half, 1, FRAME, HEADER + 2);
    asm.swap16(1);
    asm.jump_if(1, If::Less, HEAD + 9, done);
    asm.with(Alu::Move, 1, PACKET);
    asm.set(Alu::Move, 2, ETHERNET + HEAD);
    asm.stack(3, KEY);
    asm.set(Alu::Move, 4, 9);
    asm.call(LOAD_BYTES);
    asm.jump_if(0, If::Differs, 0, malformed);
    for (at, is) in [(0, 3), (1, 4)] {
        asm.load(Size::Octet, 1, FRAME, KEY + at);
        asm.jump_if(1, If::Differs, is, done);
    }
    asm.load(Size::Octet, 2, FRAME, KEY + 8);
    asm.with(Alu::Move, 1, 2);
    asm.set(Alu::Right, 1, 4);
    asm.jump_if(1, If::Differs, 4, done);
    asm.set(Alu::And, 2, 15);
    asm.set(Alu::Left, 2, 2);
    asm.jump_if(2, If::Less, HEAD + 1, done);
    asm.set(Alu::Sub, 2, HEAD);
    program.less((ETHERNET + HEAD + 6, KEY + 6), ETHERNET + HEAD + 2);
    program.asm.here(done);
}
