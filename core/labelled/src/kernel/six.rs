//! What the programs do with IPv6. As `ipv6.rs`, step by step.

use super::assembler::{Alu, FRAME, If, Size, Target};
use super::header::{
    ETHERNET, HEADER_LENGTH as HOP_BY_HOP, LENGTH, LOAD_BYTES, LOOK_UP, MARK, OTHER, PACKET, PASS, Program,
    RECOMPUTE, STORE_BYTES, TOTAL,
};
use super::{Map, SIX_DATAGRAM, SIX_HEADER, SIX_OPTION, SIX_PREFIX, steps};
use crate::ipv6::{MOST_OPTIONS, MOST_STEPS, QUOTED};
use crate::{Drop, calipso};
use levee_policy::Domain;

/// Octets of an IPv6 header.
const HEAD: i32 = 40;

// The stack. The header and, behind it, the hop-by-hop header.
const HEADER: i16 = OPTIONS - HEAD as i16;
const OPTIONS: i16 = -64 - MOST_OPTIONS as i16;
/// The label's option, as it stands in the table.
const KEY: i16 = HEADER - 144;
/// The datagram's name, and what is remembered of it.
const NAME: i16 = KEY - 40;
const VALUE: i16 = NAME - 16;
/// A single-level host's address, as it stands in the table. It is looked up before the datagram has its name.
const ADDRESS: i16 = NAME;
/// What comes behind the hop-by-hop header.
const NEXT: i16 = VALUE - 8;
/// Where the label's option begins in the hop-by-hop header, and its length.
const FOUND: i16 = NEXT - 8;
const FOUND_LENGTH: i16 = FOUND - 8;
/// Whether it is a fragment.
const FRAGMENT: i16 = FOUND_LENGTH - 8;
/// Whether it speaks of the link (RFC 4861). Then, in the other program, the mark.
const NEIGHBOUR: i16 = FRAGMENT - 8;
const INDEX: i16 = NEIGHBOUR;
const _: () = assert!(
    INDEX >= -512
        && SIX_OPTION <= 144
        && SIX_DATAGRAM <= 40
        && SIX_PREFIX <= 32
        && SIX_HEADER <= MOST_OPTIONS
);

/// From the link: to the compartment of its label, to `link` for what neighbours say, or nowhere.
pub(super) fn from_link(program: &mut Program, domain: &Domain, link: Target, unlabelled: bool) {
    parse(program);
    scan(program);
    let (labelled, bare) = (program.asm.place(), program.asm.place());
    if unlabelled {
        let claimed = program.drop(Drop::Claimed);
        steps::single_level(program, Map::SixUnlabelled, (HEADER + 8, 16), ADDRESS, labelled);
        let asm = &mut program.asm;
        asm.load(Size::Double, 1, FRAME, FOUND);
        asm.jump_if(1, If::Differs, 0, claimed);
        asm.load(Size::Double, 1, FRAME, NEIGHBOUR);
        asm.jump_if(1, If::Differs, 0, link);
        steps::from_single_level(program);
        program.asm.jump(bare);
    }
    program.asm.here(labelled);
    look_up(program, domain, link);
    let asm = &mut program.asm;
    let whole = asm.place();
    asm.load(Size::Double, 1, FRAME, FRAGMENT);
    asm.jump_if(1, If::Equal, 0, whole);
    for at in (0..32).step_by(8) {
        asm.load(Size::Double, 1, FRAME, HEADER + 8 + at);
        asm.store(Size::Double, FRAME, NAME + at, 1);
    }
    steps::agree(program, Map::SixDatagrams, NAME, VALUE);
    program.asm.here(whole);
    program.asm.here(bare);
    deliver(program);
}

/// To the link: with the label of its mark's compartment and no other, to a single-level host of that label without, or nowhere. Without
/// a mark it is the link's own.
///
/// `None` if it cannot be made; there is no MTU for which that is so.
pub(super) fn to_link(program: &mut Program, mtu: u32, with_unlabelled: bool) -> Option<()> {
    let (unlabelled, outside) = (program.drop(Drop::Unlabelled), program.drop(Drop::OutOfRange));
    let (forged, neighbour) = (program.drop(Drop::Forged), program.drop(Drop::Neighbour));
    let large = program.drop(Drop::TooLarge);
    parse(program);
    scan(program);
    let asm = &mut program.asm;
    let labelled = asm.place();
    asm.load(Size::Double, 2, FRAME, NEIGHBOUR);
    asm.load(Size::Word, 1, PACKET, MARK);
    asm.jump_if(1, If::Differs, 0, labelled);
    asm.jump_if(2, If::Equal, 0, unlabelled);
    asm.set(Alu::Move, 0, PASS);
    asm.exit();
    asm.here(labelled);
    asm.load(Size::Double, 3, FRAME, FOUND);
    asm.jump_if(3, If::Differs, 0, forged);
    asm.jump_if(2, If::Differs, 0, neighbour);
    if with_unlabelled {
        let several = asm.place();
        steps::single_level(program, Map::SixUnlabelled, (HEADER + 24, 16), ADDRESS, several);
        without_label(program, mtu)?;
        program.asm.here(several);
    }
    let asm = &mut program.asm;
    asm.load(Size::Word, 1, PACKET, MARK);
    asm.store(Size::Word, FRAME, INDEX, 1);
    asm.map(1, Map::SixOptions as i32);
    asm.stack(2, INDEX);
    asm.call(LOOK_UP);
    asm.jump_if(0, If::Equal, 0, outside);
    for at in (0..SIX_HEADER as i16).step_by(4) {
        asm.load(Size::Word, 1, 0, 4 + at);
        asm.store(Size::Word, FRAME, OPTIONS + at, 1);
    }
    asm.load(Size::Word, OTHER, 0, 0);
    asm.jump_if(OTHER, If::Equal, 0, outside);
    asm.jump_if(OTHER, If::Greater, SIX_HEADER as i32, outside);
    asm.load(Size::Double, 1, FRAME, NEXT);
    asm.store(Size::Octet, FRAME, OPTIONS, 1);
    // The new length, in register 8.
    asm.with(Alu::Sub, TOTAL, HOP_BY_HOP);
    asm.with(Alu::Add, TOTAL, OTHER);
    asm.jump_if(TOTAL, If::Greater, 0xffff + HEAD, large);
    steps::fits(program, mtu)?;
    let asm = &mut program.asm;
    asm.with(Alu::Move, 2, OTHER);
    asm.with(Alu::Sub, 2, HOP_BY_HOP);
    program.adjust();
    let asm = &mut program.asm;
    asm.put(Size::Octet, FRAME, HEADER + 6, 0);
    asm.set(Alu::Sub, TOTAL, HEAD);
    asm.swap16(TOTAL);
    asm.store(Size::Half, FRAME, HEADER + 4, TOTAL);
    asm.with(Alu::Move, 4, OTHER);
    asm.set(Alu::Add, 4, HEAD);
    write(program);
    program.asm.set(Alu::Move, 0, PASS);
    program.asm.exit();
    Some(())
}

/// To a single-level host, whose entry register 0 has: without a hop-by-hop header.
fn without_label(program: &mut Program, mtu: u32) -> Option<()> {
    steps::to_single_level(program);
    program.asm.with(Alu::Sub, TOTAL, HOP_BY_HOP);
    steps::fits(program, mtu)?;
    shorten(program);
    program.asm.set(Alu::Move, 0, PASS);
    program.asm.exit();
    Some(())
}

/// Reads the header and that of hop-by-hop options, and looks at what is behind them; drops what is not whole.
fn parse(program: &mut Program) {
    let (malformed, other) = (program.drop(Drop::Malformed), program.drop(Drop::OtherOption));
    for flag in [FOUND, FOUND_LENGTH, FRAGMENT, NEIGHBOUR] {
        program.asm.put(Size::Double, FRAME, flag, 0);
    }
    let asm = &mut program.asm;
    asm.set(Alu::Move, 2, ETHERNET);
    asm.set(Alu::Move, 4, HEAD);
    read(program, HEADER);
    let asm = &mut program.asm;
    asm.load(Size::Octet, 1, FRAME, HEADER);
    asm.set(Alu::Right, 1, 4);
    asm.jump_if(1, If::Differs, 6, malformed);
    asm.load(Size::Half, TOTAL, FRAME, HEADER + 4);
    asm.swap16(TOTAL);
    asm.set(Alu::Add, TOTAL, HEAD);
    asm.load(Size::Word, 1, PACKET, LENGTH);
    asm.with(Alu::Move, 2, TOTAL);
    asm.set(Alu::Add, 2, ETHERNET);
    asm.jump_if_register(2, If::Greater, 1, malformed);
    let looked = asm.place();
    asm.set(Alu::Move, HOP_BY_HOP, 0);
    asm.load(Size::Octet, 1, FRAME, HEADER + 6);
    asm.store(Size::Double, FRAME, NEXT, 1);
    asm.jump_if(1, If::Differs, 0, looked);
    asm.jump_if(TOTAL, If::Less, HEAD + 8, malformed);
    for at in (0..MOST_OPTIONS as i16).step_by(8) {
        asm.put(Size::Double, FRAME, OPTIONS + at, 0);
    }
    asm.set(Alu::Move, 2, ETHERNET + HEAD);
    asm.set(Alu::Move, 4, 8);
    read(program, OPTIONS);
    let asm = &mut program.asm;
    asm.load(Size::Octet, HOP_BY_HOP, FRAME, OPTIONS + 1);
    asm.set(Alu::Add, HOP_BY_HOP, 1);
    asm.set(Alu::Left, HOP_BY_HOP, 3);
    asm.with(Alu::Move, 1, HOP_BY_HOP);
    asm.set(Alu::Add, 1, HEAD);
    asm.jump_if_register(1, If::Greater, TOTAL, malformed);
    asm.jump_if(HOP_BY_HOP, If::Greater, MOST_OPTIONS as i32, other);
    asm.set(Alu::Move, 2, ETHERNET + HEAD);
    asm.with(Alu::Move, 4, HOP_BY_HOP);
    read(program, OPTIONS);
    let asm = &mut program.asm;
    asm.load(Size::Octet, 1, FRAME, OPTIONS);
    asm.store(Size::Double, FRAME, NEXT, 1);
    asm.here(looked);
    look_through(program);
}

/// Looks at what is behind the hop-by-hop header.
fn look_through(program: &mut Program) {
    let malformed = program.drop(Drop::Malformed);
    let asm = &mut program.asm;
    let (fragment, icmp, done) = (asm.place(), asm.place(), asm.place());
    asm.load(Size::Double, 1, FRAME, NEXT);
    may_follow(program);
    let asm = &mut program.asm;
    asm.jump_if(1, If::Equal, 44, fragment);
    asm.jump_if(1, If::Equal, 58, icmp);
    asm.jump(done);
    asm.here(fragment);
    asm.with(Alu::Move, 1, HOP_BY_HOP);
    asm.set(Alu::Add, 1, HEAD + 8);
    asm.jump_if_register(1, If::Greater, TOTAL, malformed);
    asm.set(Alu::Move, 4, 8);
    behind(program);
    let asm = &mut program.asm;
    asm.load(Size::Octet, 1, FRAME, VALUE);
    asm.jump_if(1, If::Equal, 44, malformed);
    may_follow(program);
    let asm = &mut program.asm;
    asm.load(Size::Word, 1, FRAME, VALUE + 4);
    asm.store(Size::Word, FRAME, NAME + 32, 1);
    asm.put(Size::Double, FRAME, FRAGMENT, 1);
    asm.jump(done);
    asm.here(icmp);
    asm.with(Alu::Move, 1, HOP_BY_HOP);
    asm.set(Alu::Add, 1, HEAD);
    asm.jump_if_register(1, If::AtLeast, TOTAL, done);
    asm.set(Alu::Move, 4, 1);
    behind(program);
    let asm = &mut program.asm;
    asm.load(Size::Octet, 1, FRAME, VALUE);
    asm.jump_if(1, If::Less, 133, done);
    asm.jump_if(1, If::Greater, 137, done);
    asm.load(Size::Octet, 1, FRAME, HEADER + 7);
    asm.jump_if(1, If::Differs, 255, done);
    asm.put(Size::Double, FRAME, NEIGHBOUR, 1);
    asm.here(done);
}

/// Drops a packet where the header named in register 1 may not follow.
fn may_follow(program: &mut Program) {
    let (malformed, other) = (program.drop(Drop::Malformed), program.drop(Drop::OtherOption));
    let asm = &mut program.asm;
    asm.jump_if(1, If::Equal, 0, malformed);
    for header in [43, 51, 60] {
        asm.jump_if(1, If::Equal, header, other);
    }
}

/// Reads so many octets behind the hop-by-hop header as register 4 has, into the place of what is remembered of a datagram.
fn behind(program: &mut Program) {
    let asm = &mut program.asm;
    asm.with(Alu::Move, 2, HOP_BY_HOP);
    asm.set(Alu::Add, 2, ETHERNET + HEAD);
    read(program, VALUE);
}

/// Reads so many octets as register 4 has, from the place in register 2.
fn read(program: &mut Program, to: i16) {
    let malformed = program.drop(Drop::Malformed);
    let asm = &mut program.asm;
    asm.with(Alu::Move, 1, PACKET);
    asm.stack(3, to);
    asm.call(LOAD_BYTES);
    asm.jump_if(0, If::Differs, 0, malformed);
}

/// Looks through the options: [`FOUND`] is where the label's begins, 0 where there is none.
fn scan(program: &mut Program) {
    let (truncated, other) = (program.drop(Drop::Truncated), program.drop(Drop::OtherOption));
    let duplicate = program.drop(Drop::Duplicate);
    let asm = &mut program.asm;
    let done = asm.place();
    asm.set(Alu::Move, OTHER, 2);
    // Step by step, and not in a circle: the verifier would try every way through it.
    for _ in 0..MOST_STEPS {
        let (long, next, again) = (asm.place(), asm.place(), asm.place());
        asm.jump_if_register(OTHER, If::AtLeast, HOP_BY_HOP, done);
        // It is less: the verifier of Linux 6.1 sees no bound in another register.
        asm.jump_if(OTHER, If::AtLeast, MOST_OPTIONS as i32, done);
        asm.with(Alu::Move, 1, FRAME);
        asm.with(Alu::Add, 1, OTHER);
        asm.load(Size::Octet, 2, 1, OPTIONS);
        asm.jump_if(2, If::Differs, 0, long);
        asm.set(Alu::Add, OTHER, 1);
        asm.jump(again);
        asm.here(long);
        asm.with(Alu::Move, 3, OTHER);
        asm.set(Alu::Add, 3, 1);
        asm.jump_if_register(3, If::AtLeast, HOP_BY_HOP, truncated);
        asm.jump_if(3, If::AtLeast, MOST_OPTIONS as i32, truncated);
        asm.with(Alu::Move, 1, FRAME);
        asm.with(Alu::Add, 1, 3);
        asm.load(Size::Octet, 3, 1, OPTIONS);
        asm.set(Alu::Add, 3, 2);
        asm.with(Alu::Move, 4, OTHER);
        asm.with(Alu::Add, 4, 3);
        asm.jump_if_register(4, If::Greater, HOP_BY_HOP, truncated);
        asm.jump_if(2, If::Equal, 1, next);
        asm.jump_if(2, If::Differs, i32::from(calipso::TYPE), other);
        asm.load(Size::Double, 5, FRAME, FOUND);
        asm.jump_if(5, If::Differs, 0, duplicate);
        asm.store(Size::Double, FRAME, FOUND, OTHER);
        asm.store(Size::Double, FRAME, FOUND_LENGTH, 3);
        asm.here(next);
        asm.with(Alu::Move, OTHER, 4);
        asm.here(again);
        // It is less: so the verifier forgets what it knows of it, and sees that each step is as the one before.
        asm.set(Alu::And, OTHER, 0xff);
    }
    asm.jump_if_register(OTHER, If::Less, HOP_BY_HOP, other);
    asm.here(done);
}

/// Register 9 = the interface that the label's packets go to.
fn look_up(program: &mut Program, domain: &Domain, link: Target) {
    let (unlabelled, bad) = (program.drop(Drop::Unlabelled), program.drop(Drop::BadOption));
    let asm = &mut program.asm;
    let (labelled, known) = (asm.place(), asm.place());
    asm.load(Size::Double, 2, FRAME, FOUND);
    asm.jump_if(2, If::Differs, 0, labelled);
    asm.load(Size::Double, 1, FRAME, NEIGHBOUR);
    asm.jump_if(1, If::Differs, 0, link);
    asm.jump(unlabelled);
    asm.here(labelled);
    for at in (0..SIX_OPTION as i16).step_by(4) {
        asm.put(Size::Word, FRAME, KEY + at, 0);
    }
    asm.load(Size::Double, 4, FRAME, FOUND_LENGTH);
    asm.jump_if(4, If::Greater, calipso::MOST as i32, bad);
    asm.jump_if(4, If::Less, 10, bad);
    asm.set(Alu::Add, 2, ETHERNET + HEAD);
    read(program, KEY);
    let asm = &mut program.asm;
    asm.map(1, Map::SixLabels as i32);
    asm.stack(2, KEY);
    asm.call(LOOK_UP);
    asm.jump_if(0, If::Differs, 0, known);
    reason(program, domain);
    let asm = &mut program.asm;
    asm.here(known);
    asm.load(Size::Word, OTHER, 0, 0);
    asm.load(Size::Double, 1, FRAME, NEIGHBOUR);
    asm.jump_if(1, If::Differs, 0, link);
}

/// Why an option is not in the table; a wrong checksum and a label that the link does not have are an unknown label here.
fn reason(program: &mut Program, domain: &Domain) {
    let (bad, other) = (program.drop(Drop::BadOption), program.drop(Drop::OtherDomain));
    let unknown = program.drop(Drop::UnknownLabel);
    let asm = &mut program.asm;
    asm.load(Size::Double, 4, FRAME, FOUND_LENGTH);
    asm.load(Size::Octet, 1, FRAME, KEY + 6);
    asm.set(Alu::Left, 1, 2);
    asm.set(Alu::Add, 1, 10);
    asm.jump_if_register(1, If::Differs, 4, bad);
    for (half, at) in steps::halves(&domain.doi().to_be_bytes()).zip((KEY + 2..).step_by(2)) {
        asm.load(Size::Half, 1, FRAME, at);
        asm.jump_if(1, If::Differs, half, other);
    }
    asm.jump(unknown);
}

/// Without its hop-by-hop header, to the other end of the wire.
fn deliver(program: &mut Program) {
    shorten(program);
    size(program);
    program.asm.load(Size::Double, 1, FRAME, NEXT);
    steps::redirect(program, FRAGMENT);
}

/// An error that says what size passes says it of packets with their label.
fn size(program: &mut Program) {
    let asm = &mut program.asm;
    let done = asm.place();
    asm.load(Size::Double, 1, FRAME, NEXT);
    asm.jump_if(1, If::Differs, 58, done);
    asm.load(Size::Half, 1, FRAME, HEADER + 4);
    asm.swap16(1);
    asm.jump_if(1, If::Less, QUOTED as i32, done);
    asm.set(Alu::Move, 2, ETHERNET + HEAD);
    asm.set(Alu::Move, 4, QUOTED as i32);
    read(program, KEY);
    let asm = &mut program.asm;
    for (at, is) in [(0, 2), (4, 0), (5, 0), (14, 0)] {
        asm.load(Size::Octet, 1, FRAME, KEY + at);
        asm.jump_if(1, If::Differs, is, done);
    }
    asm.load(Size::Octet, 1, FRAME, KEY + 8);
    asm.set(Alu::Right, 1, 4);
    asm.jump_if(1, If::Differs, 6, done);
    asm.load(Size::Octet, 2, FRAME, KEY + QUOTED as i16 - 1);
    asm.set(Alu::Add, 2, 1);
    asm.set(Alu::Left, 2, 3);
    program.less((ETHERNET + HEAD + 6, KEY + 6), ETHERNET + HEAD + 2);
    program.asm.here(done);
}

/// Takes the hop-by-hop header away.
fn shorten(program: &mut Program) {
    let asm = &mut program.asm;
    asm.set(Alu::Move, 2, 0);
    asm.with(Alu::Sub, 2, HOP_BY_HOP);
    program.adjust();
    let asm = &mut program.asm;
    asm.load(Size::Half, 1, FRAME, HEADER + 4);
    asm.swap16(1);
    asm.with(Alu::Sub, 1, HOP_BY_HOP);
    asm.swap16(1);
    asm.store(Size::Half, FRAME, HEADER + 4, 1);
    asm.load(Size::Double, 1, FRAME, NEXT);
    asm.store(Size::Octet, FRAME, HEADER + 6, 1);
    asm.set(Alu::Move, 4, HEAD);
    write(program);
}

/// Writes so many octets of the headers as register 4 has.
fn write(program: &mut Program) {
    let malformed = program.drop(Drop::Malformed);
    let asm = &mut program.asm;
    asm.with(Alu::Move, 1, PACKET);
    asm.set(Alu::Move, 2, ETHERNET);
    asm.stack(3, HEADER);
    asm.set(Alu::Move, 5, RECOMPUTE);
    asm.call(STORE_BYTES);
    asm.jump_if(0, If::Differs, 0, malformed);
}
