//! The kernel's programs of a labelled link, held packet by packet against the filter in `core/labelled`.

#[path = "../../../core/labelled/tests/packets/mod.rs"]
#[allow(dead_code)] // Its IPv6 packets are for the filter's own tests.
mod packets;

use std::time::Duration;

use levee_labelled::{Arrived, Drop, Filter, calipso, cipso, spellings};
use levee_policy::{CategorySet, Domain, Label, Range, TagForm};
use levee_sys::bpf::Program;
use levee_warden::labelled::programs::{Dropped, Programs};
use packets::{Dice, fragment_of, ipv4, with_options};

const MTU: u32 = 1_500;
/// The interface that the first label's packets go to; each label has the next.
const WIRE: u32 = 100;
const REDIRECT: u32 = 7;
const DROPPED: u32 = 2;
const PASSED: u32 = 0;

fn label(level: u8, categories: impl IntoIterator<Item = u16>) -> Label {
    Label::confidential(level, CategorySet::from_numbers(categories).unwrap())
}

fn domain(form: TagForm) -> Domain {
    let levels = [(0, 0), (1, 3), (2, 5), (3, 9)];
    Domain::new(16, form, levels, (0..8).map(|n| (n, n * 3))).unwrap()
}

/// One link with its filter and its programs, which have all labels of the filter's range: levels 1 and 2, categories 0 to 3.
struct Link {
    domain: Domain,
    labels: Vec<Label>,
    filter: Filter,
    ingress: Program,
    egress: Program,
    programs: Programs,
    /// What had been dropped after the packet before.
    before: Vec<Dropped>,
}

impl Link {
    fn new(form: TagForm) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test loads BPF programs: run it as root");
        let domain = domain(form);
        let range = Range::new(label(1, []), label(2, 0..4)).unwrap();
        let labels: Vec<Label> = range.labels(100).unwrap().collect();
        let programs = Programs::new(&domain, labels.len() as u32, 1).unwrap();
        for (label, at) in labels.iter().zip(0u32..) {
            programs.add(label, at + 1, WIRE + at).unwrap();
        }
        programs.compartment(1).unwrap();
        Self {
            filter: Filter::new(domain.clone(), range),
            ingress: programs.ingress().unwrap(),
            egress: programs.egress(MTU).unwrap(),
            domain,
            labels,
            programs,
            before: Vec::new(),
        }
    }

    fn any_label(&self, dice: &mut Dice) -> &Label {
        &self.labels[dice.below(self.labels.len() as u64) as usize]
    }

    /// Packets that the programs dropped, by reason, as the filter counts them.
    fn agree_on_counts(&self) {
        let dropped = self.programs.dropped().unwrap();
        for reason in Drop::ALL {
            let counted: u64 = dropped.iter().filter(|d| d.reason == reason).map(|d| d.packets).sum();
            assert_eq!(counted, self.filter.drops().of(reason), "{reason:?}");
        }
    }

    /// Both do the same with a packet from the link. Whether it was delivered.
    fn receive(&mut self, packet: &[u8]) -> bool {
        let ran = self.ingress.run(&frame(packet), 0).unwrap();
        match self.filter.receive(packet, Duration::ZERO) {
            Ok(Arrived::At(label, expected)) => {
                assert_eq!(ran.verdict, REDIRECT, "{packet:02x?}: {:?}", self.programs.dropped());
                let at = self.labels.iter().position(|one| *one == label).unwrap() as u32;
                assert_eq!(ran.note, WIRE + at, "{packet:02x?}");
                // Octets of padding stay behind it, for the kernel to cut off.
                assert_eq!(ran.packet[14..14 + expected.len()], expected, "{packet:02x?}");
                true
            }
            Ok(Arrived::Link) => panic!("{packet:02x?}"),
            Err(reason) => {
                assert_eq!(ran.verdict, DROPPED, "{reason:?}: {packet:02x?}");
                let after = self.programs.dropped().unwrap();
                let before = std::mem::replace(&mut self.before, after.clone());
                let more = |reason| {
                    let count = |all: &[Dropped]| {
                        all.iter().find(|d| d.arrived && d.reason == reason).map_or(0, |d| d.packets)
                    };
                    count(&after) - count(&before)
                };
                // Of tags 2, 5 and 6 the program says only that the label is unknown.
                let coarse = [Drop::BadOption, Drop::UnknownLabel, Drop::OutOfRange].contains(&reason);
                assert!(
                    more(reason) == 1 || coarse && more(Drop::UnknownLabel) == 1,
                    "{reason:?}, but {after:?}: {packet:02x?}"
                );
                false
            }
        }
    }

    /// Both do the same with a packet of a compartment.
    fn send(&mut self, at: usize, packet: &[u8]) -> Option<Vec<u8>> {
        let label = self.labels[at].clone();
        let ran = self.egress.run(&frame(packet), at as u32 + 1).unwrap();
        match self.filter.send(&label, packet, MTU as usize) {
            Ok(expected) => {
                assert_eq!(ran.verdict, PASSED, "{packet:02x?}: {:?}", self.programs.dropped());
                assert_eq!(ran.packet[14..14 + expected.len()], expected, "{packet:02x?}");
                Some(expected)
            }
            Err(reason) => {
                assert_eq!(ran.verdict, DROPPED, "{reason:?}: {packet:02x?}");
                None
            }
        }
    }
}

/// The packet behind an Ethernet header.
fn frame(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], packet].concat()
}

#[test]
fn what_is_sent_arrives_at_its_label_in_every_tag() {
    for (_, form) in TagForm::ALL {
        let (mut link, mut dice) = (Link::new(form), Dice(1));
        for n in 0..1_000 {
            let at = n % link.labels.len();
            let packet = ipv4(&mut dice);
            let sent = link.send(at, &packet).unwrap();
            assert!(sent.len() > packet.len());
            assert!(link.receive(&[&sent[..], &[0; 6]].concat()));
        }
        assert_eq!(link.programs.dropped().unwrap(), []);
    }
}

#[test]
fn every_spelling_of_a_label_is_delivered_at_it_and_nothing_near_it_elsewhere() {
    let (mut link, mut dice) = (Link::new(TagForm::Bitmap), Dice(2));
    let (mut delivered, mut all) = (0, 0);
    for label in link.labels.clone() {
        for option in spellings(&link.domain, &label).unwrap() {
            assert_eq!(cipso::decode(&link.domain, &option).as_ref(), Ok(&label));
            let packet = ipv4(&mut dice);
            assert!(link.receive(&with_options(&packet, &option)));
            // One bit of it is another.
            for _ in 0..10 {
                let mut option = option.clone();
                let at = dice.below(option.len() as u64) as usize;
                option[at] ^= 1 << dice.below(8);
                delivered += u32::from(link.receive(&with_options(&packet, &option)));
                all += 1;
            }
        }
    }
    // Another label of the link, now and then.
    assert!(delivered > 0 && delivered < all / 2, "{delivered} of {all}");
}

/// A packet from the link that is wrong in one way or another, or in none.
fn hostile(link: &Link, dice: &mut Dice) -> Vec<u8> {
    let mut option = cipso::encode(&link.domain, link.any_label(dice)).unwrap();
    let packet = ipv4(dice);
    match dice.below(12) {
        0 => return packet,
        1 => option = [&option[..], &cipso::encode(&link.domain, link.any_label(dice)).unwrap()].concat(),
        2 => option[1] = dice.bits() as u8,
        3 => option[2 + dice.below(4) as usize] ^= 1 << dice.below(8),
        4 => option[6] = dice.bits() as u8,
        5 => option[9] = dice.bits() as u8,
        6 => {
            let other = [0, 1, 7, 68, 130, 131, 133, 136, 137, 148][dice.below(10) as usize];
            let other = [other, 4, 0, 0];
            option = if dice.below(2) == 0 {
                [&other, &option[..]].concat()
            } else {
                [&option[..], &other].concat()
            };
        }
        7 => {
            let noise: Vec<u8> = (0..dice.below(41)).map(|_| dice.bits() as u8).collect();
            return with_options(&packet, &noise);
        }
        8 => option = [&vec![1; dice.below(9) as usize][..], &option].concat(),
        9 => return with_options(&fragment_of(&packet, dice), &option),
        10 => {
            let mut packet = with_options(&packet, &option);
            // What is shorter than a header the kernel does not run a program on by itself.
            packet.truncate(20 + dice.below(packet.len() as u64 - 20) as usize);
            return packet;
        }
        _ => {
            let mut packet = with_options(&packet, &option);
            let at = dice.below(24) as usize;
            packet[at] ^= 1 << dice.below(8);
            return packet;
        }
    }
    with_options(&packet, &option)
}

#[test]
fn the_program_does_with_hostile_packets_what_the_filter_does() {
    let (mut link, mut dice) = (Link::new(TagForm::Bitmap), Dice(3));
    let mut delivered = 0u32;
    for n in 0..20_000 {
        // The link's table of datagrams is smaller than what fragments there would be.
        if n % 5_000 == 0 {
            link = Link::new(TagForm::Bitmap);
        }
        let packet = hostile(&link, &mut dice);
        delivered += u32::from(link.receive(&packet));
    }
    assert!(delivered > 1_000 && delivered < 10_000, "{delivered}");
}

#[test]
fn fragments_of_one_datagram_go_to_one_compartment() {
    let (mut link, mut dice) = (Link::new(TagForm::Bitmap), Dice(4));
    for _ in 0..200 {
        let fragment = fragment_of(&ipv4(&mut dice), &mut dice);
        let (one, other) =
            (dice.below(32) as usize % link.labels.len(), dice.below(32) as usize % link.labels.len());
        for at in [one, other, one] {
            let option = cipso::encode(&link.domain, &link.labels[at]).unwrap();
            assert_eq!(link.receive(&with_options(&fragment, &option)), at == one);
        }
    }
    link.agree_on_counts();
}

#[test]
fn a_compartment_s_packet_leaves_with_its_label_or_not_at_all() {
    let (mut link, mut dice) = (Link::new(TagForm::Bitmap), Dice(5));
    for _ in 0..5_000 {
        let at = dice.below(link.labels.len() as u64) as usize;
        let packet = match dice.below(3) {
            0 => ipv4(&mut dice),
            1 => hostile(&link, &mut dice),
            _ => with_options(&ipv4(&mut dice), &vec![1; 1 + dice.below(40) as usize]),
        };
        link.send(at, &packet);
    }
    link.agree_on_counts();
    // Too large with its label; as large as it can be.
    let option = cipso::encode(&link.domain, &link.labels[0]).unwrap().len().next_multiple_of(4);
    for (size, goes) in [(MTU as usize - option, true), (MTU as usize - option + 1, false)] {
        let mut packet = ipv4(&mut dice);
        packet.resize(size, 0);
        let packet = with_options(&packet, &[]);
        assert_eq!(link.send(0, &packet).is_some(), goes);
    }
    link.agree_on_counts();
    // A mark that no compartment has, and none.
    for mark in [0, 1_000, u32::MAX] {
        assert_eq!(link.egress.run(&frame(&ipv4(&mut dice)), mark).unwrap().verdict, DROPPED);
    }
    // IPv6, labelled or not, goes neither way.
    for packet in [packets::ipv6(&mut dice), {
        let packet = packets::ipv6(&mut dice);
        packets::with_hop_by_hop(&packet, &calipso::encode(&link.domain, &link.labels[0]).unwrap())
    }] {
        let mut frame = frame(&packet);
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        assert_eq!(link.egress.run(&frame, 1).unwrap().verdict, DROPPED);
        assert_eq!(link.ingress.run(&frame, 0).unwrap().verdict, DROPPED);
    }
}
