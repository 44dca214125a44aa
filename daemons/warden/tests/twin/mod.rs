//! The kernel's programs of a labelled link and its filter in `core/labelled`, which do the same with every packet: for the warden's tests, and
//! for a machine with another kernel.

#[path = "../../../../core/labelled/tests/packets/mod.rs"]
#[allow(dead_code)] // Some are for the filter's own tests.
pub mod packets;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use levee_labelled::{Arrived, Drop, Filter, calipso, cipso};
use levee_policy::{CategorySet, Domain, Label, Range, TagForm};
use levee_sys::bpf::LoadedProgram;
use levee_warden::labelled::programs::LinkPrograms;
use packets::{Dice, fragment_of, ipv4, ipv6, too_big, with_hop_by_hop, with_options};

pub const MTU: u32 = 1_500;
/// The interface that the first label's packets go to; each label has the next.
pub const WIRE: u32 = 100;
pub const REDIRECT: u32 = 7;
pub const DROPPED: u32 = 2;
pub const PASSED: u32 = 0;
/// Single-level hosts: prefix, level, category.
pub const HOSTS: [(&str, u8, u16); 6] = [
    ("192.168.7.64/26", 1, 0),
    ("192.168.7.70/32", 2, 1),
    ("192.168.7.71/32", 3, 1),
    ("fd07::4000/114", 1, 0),
    ("fd07::4001/128", 2, 1),
    ("fd07::4002/128", 3, 1),
];

fn label(level: u8, categories: impl IntoIterator<Item = u16>) -> Label {
    Label::confidential(level, CategorySet::from_numbers(categories).unwrap())
}

fn domain(form: TagForm) -> Domain {
    let levels = [(0, 0), (1, 3), (2, 5), (3, 9)];
    Domain::new(16, form, levels, (0..8).map(|n| (n, n * 3))).unwrap()
}

/// One link with its filter and its programs, which have all labels of the filter's range: levels 1 and 2, categories 0 to 3.
pub struct Link {
    pub domain: Domain,
    pub labels: Vec<Label>,
    pub unlabelled: Vec<(IpNet, Label)>,
    pub filter: Filter,
    pub ingress: LoadedProgram,
    pub egress: LoadedProgram,
    pub programs: LinkPrograms,
    /// How many had been dropped of what arrived, by reason, when it was last looked.
    before: BTreeMap<Drop, u64>,
}

impl Link {
    pub fn new(form: TagForm) -> Self {
        Self::with(form, false, &[])
    }

    /// One that takes IPv6 as well.
    pub fn of_both() -> Self {
        Self::with(TagForm::Bitmap, true, &[])
    }

    /// One that takes IPv6 as well, and has single-level hosts beside: a prefix of each version at one label, a host of it at another,
    /// and one at a label that the link does not have.
    pub fn beside() -> Self {
        Self::with(TagForm::Bitmap, true, &HOSTS)
    }

    fn with(form: TagForm, six: bool, hosts: &[(&str, u8, u16)]) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test loads BPF programs: run it as root");
        let domain = domain(form);
        let range = Range::new(label(1, []), label(2, 0..4)).unwrap();
        let labels: Vec<Label> = range.labels(100).unwrap().collect();
        let unlabelled: Vec<(IpNet, Label)> = (hosts.iter())
            .map(|(prefix, level, category)| (prefix.parse().unwrap(), label(*level, [*category])))
            .collect();
        let programs = LinkPrograms::new(&domain, labels.len() as u32, 1, six, &unlabelled).unwrap();
        for (label, at) in labels.iter().zip(0u32..) {
            programs.add(label, at + 1, WIRE + at).unwrap();
        }
        programs.compartment(1).unwrap();
        Self {
            filter: Filter::new(domain.clone(), range).beside(unlabelled.clone()),
            ingress: programs.ingress().unwrap(),
            egress: programs.egress(MTU).unwrap(),
            domain,
            labels,
            unlabelled,
            programs,
            before: BTreeMap::new(),
        }
    }

    /// Where there are single-level hosts, the packet is often from one or to one, or close by.
    fn placed(&self, mut packet: Vec<u8>, dice: &mut Dice) -> Vec<u8> {
        for is_source in [true, false] {
            if self.unlabelled.is_empty() || dice.below(4) == 0 {
                continue;
            }
            let (net, _) = &self.unlabelled[dice.below(self.unlabelled.len() as u64) as usize];
            let near = match net.network() {
                IpAddr::V4(four) => {
                    (u32::from(four) ^ dice.below(256) as u32 & mask(dice)).to_be_bytes().into()
                }
                IpAddr::V6(six) => (u128::from(six) ^ u128::from(dice.below(65_536) as u32 & mask(dice)))
                    .to_be_bytes()
                    .into(),
            };
            packet = packets::at(packet, is_source, near);
        }
        packet
    }

    fn any_label(&self, dice: &mut Dice) -> &Label {
        &self.labels[dice.below(self.labels.len() as u64) as usize]
    }

    /// Packets that the programs dropped, by reason, as the filter counts them.
    pub fn agree_on_counts(&self) {
        let dropped = self.programs.dropped().unwrap();
        for reason in Drop::ALL {
            let counted: u64 = dropped.iter().filter(|d| d.reason == reason).map(|d| d.packets).sum();
            assert_eq!(counted, self.filter.drops().of(reason), "{reason:?}");
        }
    }

    /// Both do the same with a packet from the link. Whether it was delivered.
    pub fn receive(&mut self, packet: &[u8]) -> bool {
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
            Ok(Arrived::Link) => {
                assert_eq!((ran.verdict, &ran.packet[14..]), (PASSED, packet), "{packet:02x?}");
                false
            }
            Err(reason) => {
                assert_eq!(ran.verdict, DROPPED, "{reason:?}: {packet:02x?}");
                // Of one reason alone: all of them are a hundred calls of the kernel's for each packet, and are looked at in the end.
                let mut more = |reason| {
                    let after = self.programs.dropped_for(reason, true).unwrap();
                    after - self.before.insert(reason, after).unwrap_or(0)
                };
                // Of tags 2, 5 and 6 and of CALIPSO the program says only that the label is unknown.
                let coarse = [Drop::BadOption, Drop::UnknownLabel, Drop::OutOfRange].contains(&reason);
                let coarse = coarse && !is_bitmap(packet);
                assert!(
                    more(reason) == 1 || coarse && more(Drop::UnknownLabel) == 1,
                    "{reason:?}, but {:?}: {packet:02x?}",
                    self.programs.dropped()
                );
                false
            }
        }
    }

    /// Both do the same with a packet of a compartment.
    pub fn send(&mut self, at: usize, packet: &[u8]) -> Option<Vec<u8>> {
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

/// Whether the first option of this packet of IPv4 is CIPSO's with tag 1, of which the program says as much as the filter.
fn is_bitmap(packet: &[u8]) -> bool {
    let options = packet.get(20..).filter(|_| packet[0] >> 4 == 4).unwrap_or_default();
    let option = options.iter().position(|octet| *octet != 1).map_or(&[][..], |at| &options[at..]);
    option.first() == Some(&134) && option.get(6) == Some(&1)
}

/// Often none of an address's last bits, sometimes some.
fn mask(dice: &mut Dice) -> u32 {
    [0, 0, 1, 0x3f, u32::MAX][dice.below(5) as usize]
}

/// The packet behind an Ethernet header, which says that it is what its version says.
pub fn frame(packet: &[u8]) -> Vec<u8> {
    let kind = if packet.first().is_some_and(|first| first >> 4 == 6) { [0x86, 0xdd] } else { [8, 0] };
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind, packet].concat()
}

/// A label of the domain that no link has.
fn beyond(dice: &mut Dice) -> Label {
    label(3, [dice.below(8) as u16])
}

/// A fragment of the one datagram that all such are of, whatever their labels.
fn of_the_same(packet: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut fragment = fragment_of(packet, dice);
    if fragment[0] >> 4 == 4 {
        fragment[4..6].fill(7);
        fragment[9] = 17;
        fragment[12..20].fill(77);
    } else {
        fragment[8..40].fill(77);
        fragment[44..48].fill(7);
    }
    fragment
}

/// A packet from the link that is wrong in one way or another, or in none.
pub fn hostile(link: &Link, dice: &mut Dice) -> Vec<u8> {
    let mut option = cipso::encode(&link.domain, link.any_label(dice)).unwrap();
    let packet = if dice.below(6) == 0 { too_big(dice, false) } else { ipv4(dice) };
    let packet = link.placed(packet, dice);
    match dice.below(14) {
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
        11 => option = cipso::encode(&link.domain, &beyond(dice)).unwrap(),
        12 => return with_options(&of_the_same(&packet, dice), &option),
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

/// An IPv6 packet from the link that is wrong in one way or another, or in none.
fn hostile_six(link: &Link, dice: &mut Dice) -> Vec<u8> {
    let mut option = calipso::encode(&link.domain, link.any_label(dice)).unwrap();
    let packet = if dice.below(6) == 0 { too_big(dice, true) } else { ipv6(dice) };
    let mut packet = link.placed(packet, dice);
    match dice.below(15) {
        0 => return packet,
        1 => option = [&option[..], &calipso::encode(&link.domain, link.any_label(dice)).unwrap()].concat(),
        2 => option[1] = dice.bits() as u8,
        3 => option[2 + dice.below(4) as usize] ^= 1 << dice.below(8),
        4 => option[6] = dice.bits() as u8,
        5 => option[7] = dice.bits() as u8,
        6 => {
            let other = [0x05, 0x26, 0xc2, 0x63, 0x04][dice.below(5) as usize];
            let other = [other, 2, 0, 0];
            option = if dice.below(2) == 0 {
                [&other, &option[..]].concat()
            } else {
                [&option[..], &other].concat()
            };
        }
        7 => {
            let noise: Vec<u8> = (0..dice.below(200)).map(|_| dice.bits() as u8).collect();
            return with_hop_by_hop(&packet, &noise);
        }
        8 => {
            let n = dice.below(160) as usize;
            let padding =
                if dice.below(2) == 0 { vec![0; n] } else { [&[1, n as u8][..], &vec![0; n]].concat() };
            option = [&padding[..], &option].concat();
        }
        9 => return with_hop_by_hop(&fragment_of(&packet, dice), &option),
        12 => option = calipso::encode(&link.domain, &beyond(dice)).unwrap(),
        13 => return with_hop_by_hop(&of_the_same(&packet, dice), &option),
        10 => {
            let mut packet = with_hop_by_hop(&packet, &option);
            // What is shorter than a header the kernel does not run a program on by itself.
            packet.truncate(40 + dice.below(packet.len() as u64 - 40) as usize);
            return packet;
        }
        // Another header behind it, or first: of those that there are, often.
        11 => packet[6] = [0, 43, 44, 50, 51, 58, 59, 60, 135][dice.below(9) as usize],
        _ => {
            let mut packet = with_hop_by_hop(&packet, &option);
            let at = dice.below(60) as usize;
            packet[at] ^= 1 << dice.below(8);
            // The kernel runs it by what the frame says.
            packet[0] = 0x60 | packet[0] & 15;
            return packet;
        }
    }
    with_hop_by_hop(&packet, &option)
}

/// What came of generated packets.
#[derive(Debug, Default)]
pub struct Came {
    /// From the link, to a compartment.
    pub delivered: u32,
    /// From a compartment, to the link.
    pub sent: u32,
    /// Of these without a label.
    pub bare: u32,
    /// From the link, to nobody, by reason.
    pub dropped: BTreeMap<Drop, u64>,
}

impl Came {
    /// Counts what a link's programs have dropped, which go with it.
    fn count(&mut self, link: &Link) {
        for dropped in link.programs.dropped().unwrap().iter().filter(|dropped| dropped.arrived) {
            *self.dropped.entry(dropped.reason).or_default() += dropped.packets;
        }
    }
}

/// So many hostile packets of IPv4 from a link.
///
/// # Panics
/// When program and filter differ.
pub fn of_four(packets: u32) -> Came {
    let (mut link, mut dice) = (Link::new(TagForm::Bitmap), Dice(3));
    let mut came = Came::default();
    for n in 0..packets {
        // The link's table of datagrams is smaller than what fragments there would be.
        if n % 5_000 == 0 {
            came.count(&link);
            link = Link::new(TagForm::Bitmap);
        }
        let packet = hostile(&link, &mut dice);
        came.delivered += u32::from(link.receive(&packet));
    }
    came.count(&link);
    came
}

/// So many of IPv6, from a link and from compartments.
///
/// # Panics
/// When program and filter differ.
pub fn of_six(packets: u32) -> Came {
    let (mut link, mut dice) = (Link::of_both(), Dice(8));
    let mut came = Came::default();
    for n in 0..packets {
        if n % 5_000 == 0 {
            came.count(&link);
            link = Link::of_both();
        }
        let packet = hostile_six(&link, &mut dice);
        came.delivered += u32::from(link.receive(&packet));
        // Of a compartment's making, some have no label of their own: those leave with its own.
        let at = dice.below(link.labels.len() as u64) as usize;
        came.sent += u32::from(link.send(at, &packet).is_some());
    }
    came.count(&link);
    came
}

/// So many of both, where single-level hosts are on the link, too.
///
/// # Panics
/// When program and filter differ.
pub fn beside(packets: u32) -> Came {
    let (mut link, mut dice) = (Link::beside(), Dice(11));
    let mut came = Came::default();
    for n in 0..packets {
        if n % 5_000 == 0 {
            came.count(&link);
            link = Link::beside();
        }
        let packet = if n % 2 == 0 { hostile(&link, &mut dice) } else { hostile_six(&link, &mut dice) };
        came.delivered += u32::from(link.receive(&packet));
        let at = dice.below(link.labels.len() as u64) as usize;
        // Half of them come from where something may go to single-level hosts.
        let (_, theirs) = &link.unlabelled[dice.below(2) as usize];
        let own = link.labels.iter().position(|label| label == theirs).unwrap();
        let at = if dice.below(2) == 0 { at } else { own };
        if let Some(left) = link.send(at, &packet) {
            came.sent += 1;
            came.bare += u32::from(left.len() <= packet.len());
        }
    }
    came.count(&link);
    came
}

/// What a compartment sends arrives at its label, in every tag; so many packets in each.
///
/// # Panics
/// When it does not.
pub fn in_every_tag(packets: usize) {
    for (_, form) in TagForm::ALL {
        let (mut link, mut dice) = (Link::new(form), Dice(1));
        for n in 0..packets {
            let at = n % link.labels.len();
            let packet = ipv4(&mut dice);
            let sent = link.send(at, &packet).unwrap();
            assert!(sent.len() > packet.len());
            assert!(link.receive(&[&sent[..], &[0; 6]].concat()));
        }
        assert_eq!(link.programs.dropped().unwrap(), []);
    }
}
