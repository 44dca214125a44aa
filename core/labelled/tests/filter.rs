//! What becomes of packets on a link that carries labels.

mod packets;

use std::sync::LazyLock;
use std::time::Duration;

use levee_labelled::{Arrived, Drop, Filter, calipso, cipso};
use levee_policy::{CategorySet, Domain, Label, Range, TagForm};
use packets::{Dice, bare, fragment_of, with_hop_by_hop, with_options};
use proptest::prelude::*;

const NOW: Duration = Duration::ZERO;
const MTU: usize = 1_500;
/// Packets that each reason is tried with.
const EACH: u32 = 10_000;

fn label(level: u8, categories: impl IntoIterator<Item = u16>) -> Label {
    Label::confidential(level, CategorySet::from_numbers(categories).unwrap())
}

fn domain() -> &'static Domain {
    static DOMAIN: LazyLock<Domain> = LazyLock::new(|| {
        let levels = [(0, 0), (1, 3), (2, 5), (3, 9)];
        Domain::new(16, TagForm::Bitmap, levels, (0..8).map(|n| (n, n * 3))).unwrap()
    });
    &DOMAIN
}

/// Levels 1 and 2, categories 0 to 3.
fn filter() -> Filter {
    Filter::new(domain().clone(), Range::new(label(1, []), label(2, 0..4)).unwrap())
}

/// A label of the link's range.
fn allowed(dice: &mut Dice) -> Label {
    label(1 + dice.below(2) as u8, (0..4).filter(|_| dice.below(2) == 0))
}

#[test]
fn the_reasons_are_all_listed_in_their_order() {
    assert!(Drop::ALL.iter().zip(0usize..).all(|(reason, at)| *reason as usize == at));
}

#[test]
fn every_reason_has_words_of_its_own() {
    let words: std::collections::BTreeSet<&str> = Drop::ALL.iter().map(|reason| reason.as_str()).collect();
    assert_eq!(words.len(), Drop::ALL.len());
    assert!(!words.contains(""));
}

#[test]
fn what_is_sent_arrives_at_its_label_as_it_was() {
    let (mut dice, mut filter) = (Dice(1), filter());
    for _ in 0..EACH {
        let (label, packet) = (allowed(&mut dice), bare(&mut dice));
        let sent = filter.send(&label, &packet, MTU).unwrap();
        assert!(sent.len() > packet.len());
        // Padding of the link is not the packet's.
        let arrived = filter.receive(&[&sent[..], &[0; 6]].concat(), NOW).unwrap();
        assert_eq!(arrived, Arrived::At(label, packet));
    }
    assert_eq!(filter.drops().all(), 0);
}

/// Every way in which `make` spoils a packet is dropped for this reason, and counted.
fn all_dropped(reason: Drop, make: impl Fn(&mut Dice, &mut Filter) -> Vec<u8>) {
    let (mut dice, mut filter) = (Dice(reason as u64), filter());
    for n in 0..EACH {
        let packet = make(&mut dice, &mut filter);
        assert_eq!(filter.receive(&packet, NOW), Err(reason), "packet {n}: {packet:02x?}");
    }
    assert_eq!((filter.drops().of(reason), filter.drops().all()), (EACH.into(), EACH.into()));
}

/// A packet with these octets as its label's option: one for IPv4 and one for IPv6.
fn with_label(dice: &mut Dice, cipso: &[u8], calipso: &[u8]) -> Vec<u8> {
    let packet = bare(dice);
    if packet[0] >> 4 == 4 { with_options(&packet, cipso) } else { with_hop_by_hop(&packet, calipso) }
}

fn options(label: &Label) -> (Vec<u8>, Vec<u8>) {
    (cipso::encode(domain(), label).unwrap(), calipso::encode(domain(), label).unwrap())
}

#[test]
fn of_ten_thousand_hostile_packets_of_each_kind_none_is_delivered() {
    all_dropped(Drop::Unlabelled, |dice, _| bare(dice));
    all_dropped(Drop::Malformed, |dice, filter| {
        let label = allowed(dice);
        let packet = bare(dice);
        let mut sent = filter.send(&label, &packet, MTU).unwrap();
        sent.truncate(dice.below(sent.len() as u64) as usize);
        sent
    });
    all_dropped(Drop::Checksum, |dice, filter| {
        let (label, packet) = (allowed(dice), packets::ipv4(dice));
        let mut sent = filter.send(&label, &packet, MTU).unwrap();
        // Any octet but those of version and lengths.
        let at = 4 + dice.below(16) as usize;
        sent[at] ^= 1 << dice.below(8);
        sent
    });
    all_dropped(Drop::Duplicate, |dice, _| {
        let (a, b) = (options(&allowed(dice)), options(&allowed(dice)));
        with_label(dice, &[a.0, b.0].concat(), &[a.1, b.1].concat())
    });
    all_dropped(Drop::Truncated, |dice, _| {
        let (mut four, mut six) = options(&allowed(dice));
        four[1] = 41 + dice.below(200) as u8;
        six[1] = 30 + dice.below(200) as u8;
        with_label(dice, &four, &six)
    });
    all_dropped(Drop::BadOption, |dice, _| {
        let (mut four, mut six) = options(&allowed(dice));
        four[8] = 1 + dice.below(255) as u8;
        let at = 6 + dice.below(six.len() as u64 - 6) as usize;
        // The bitmap's length is another fault of the same kind.
        six[at] ^= 1 << dice.below(8);
        with_label(dice, &four, &six)
    });
    all_dropped(Drop::OtherDomain, |dice, _| {
        let other = Domain::new(
            17 + dice.below(1 << 30) as u32,
            TagForm::Bitmap,
            [(1, 3), (2, 5)],
            (0..4).map(|n| (n, n * 3)),
        );
        let (other, label) = (other.unwrap(), allowed(dice));
        let (four, six) = (cipso::encode(&other, &label).unwrap(), calipso::encode(&other, &label).unwrap());
        with_label(dice, &four, &six)
    });
    all_dropped(Drop::UnknownTag, |dice, _| {
        let packet = packets::ipv4(dice);
        let (mut four, _) = options(&label(1, []));
        four[6] = [0, 3, 4, 7, 127, 129, 255][dice.below(7) as usize];
        with_options(&packet, &four)
    });
    all_dropped(Drop::UnknownTag, |dice, _| {
        let packet = packets::ipv4(dice);
        let secid = (dice.bits() as u32).to_ne_bytes();
        with_options(&packet, &[&[134, 12, 0, 0, 0, 16, 128, 6][..], &secid].concat())
    });
    all_dropped(Drop::UnknownLabel, |dice, _| {
        let other = Domain::new(16, TagForm::Bitmap, [(0, 4)], (0..4).map(|n| (n, n * 3 + 1))).unwrap();
        let label = label(0, (0..4).filter(|_| dice.below(2) == 0));
        let (four, six) = (cipso::encode(&other, &label).unwrap(), calipso::encode(&other, &label).unwrap());
        with_label(dice, &four, &six)
    });
    all_dropped(Drop::OutOfRange, |dice, _| {
        let outside = match dice.below(3) {
            0 => label(0, []),
            1 => label(3, [dice.below(4) as u16]),
            _ => label(2, [4 + dice.below(4) as u16]),
        };
        let (four, six) = options(&outside);
        with_label(dice, &four, &six)
    });
    all_dropped(Drop::OtherOption, |dice, _| {
        // Source routes, record route, time stamp, RFC 1108's labels, router alert; jumbo, router alert, quick start.
        let four = [131, 137, 7, 68, 130, 133, 148][dice.below(7) as usize];
        let six = [0xc2, 0x05, 0x26][dice.below(3) as usize];
        let label = options(&allowed(dice));
        let (four, six) = ([four, 4, 0, 0], [six, 4, 0, 0, 0, 0]);
        let first = dice.below(2) == 0;
        let join = |a: &[u8], b: &[u8]| if first { [a, b].concat() } else { [b, a].concat() };
        with_label(dice, &join(&label.0, &four), &join(&label.1, &six))
    });
    all_dropped(Drop::OtherOption, |dice, _| {
        let option = options(&allowed(dice)).1;
        packets::with_destination_options(&packets::ipv6(dice), &option)
    });
    all_dropped(Drop::Disagrees, |dice, filter| {
        let packet = fragment_of(&bare(dice), dice);
        let (one, other) = (label(1, [1]), label(2, (0..4).filter(|_| dice.below(2) == 0)));
        let first = filter.send(&one, &packet, MTU).unwrap();
        assert_eq!(filter.receive(&first, NOW), Ok(Arrived::At(one, packet.clone())));
        filter.send(&other, &packet, MTU).unwrap()
    });
}

#[test]
fn a_compartment_neither_forges_a_label_nor_leaves_its_range() {
    let (mut dice, mut filter) = (Dice(7), filter());
    for n in 0..u64::from(EACH) {
        let (four, six) = options(&allowed(&mut dice));
        let mut four = four;
        // Forged well or badly, it is one of its own making.
        if dice.below(2) == 0 {
            four[5] ^= 1;
        }
        let packet = with_label(&mut dice, &four, &six);
        assert_eq!(filter.send(&label(1, []), &packet, MTU), Err(Drop::Forged), "{packet:02x?}");
        assert_eq!(filter.drops().of(Drop::Forged), n + 1);
    }
    let packet = bare(&mut dice);
    assert_eq!(filter.send(&label(3, []), &packet, MTU), Err(Drop::OutOfRange));
    assert_eq!(filter.send(&label(2, []), &packet, packet.len()), Err(Drop::TooLarge));
    let sent = filter.send(&label(2, []), &packet, MTU).unwrap();
    assert_eq!(
        filter.send(&label(2, []), &packet, sent.len()),
        Ok(sent.clone()),
        "as large as the link takes"
    );
    assert_eq!(filter.send(&label(2, []), &packet, sent.len() - 1), Err(Drop::TooLarge));
    // A link on which the domain's form has no room for the label.
    let wide = Domain::new(16, TagForm::Bitmap, [(0, 0)], [(0, 240)]).unwrap();
    let mut link = Filter::new(wide, Range::single(label(0, [0])));
    let packet = packets::ipv4(&mut dice);
    assert_eq!(link.send(&label(0, [0]), &packet, MTU), Err(Drop::Unwritable));
    assert_eq!(link.drops().of(Drop::Unwritable), 1);
}

#[test]
fn what_hosts_of_the_link_say_about_it_reaches_no_compartment_and_none_says_it() {
    let mut filter = filter();
    for kind in 133..=137 {
        let packet = packets::icmpv6(kind, 255);
        assert_eq!(filter.receive(&packet, NOW), Ok(Arrived::Link));
        let option = options(&label(1, [])).1;
        assert_eq!(filter.receive(&with_hop_by_hop(&packet, &option), NOW), Ok(Arrived::Link));
        assert_eq!(filter.send(&label(1, []), &packet, MTU), Err(Drop::Neighbour));
        // A router forwarded it.
        assert_eq!(filter.receive(&packets::icmpv6(kind, 254), NOW), Err(Drop::Unlabelled));
    }
    assert_eq!(filter.receive(&packets::icmpv6(1, 255), NOW), Err(Drop::Unlabelled));
}

/// The label sets of the SELinux project's tests of CALIPSO: a server of c0.c10; who calls has as many, fewer, and others.
#[test]
fn calipso_equal_and_subset_pass_and_what_the_range_lacks_does_not() {
    let domain = Domain::new(16, TagForm::Bitmap, [(0, 0)], (0..16).map(|n| (n, n))).unwrap();
    let range = Range::new(label(0, []), label(0, 0..=10)).unwrap();
    let (mut filter, mut dice) = (Filter::new(domain.clone(), range), Dice(16));
    for (categories, passes) in [(0..=10, true), (8..=10, true), (8..=12, false)] {
        let (label, packet) = (label(0, categories), packets::ipv6(&mut dice));
        let labelled = packets::with_hop_by_hop(&packet, &calipso::encode(&domain, &label).unwrap());
        let expected = if passes { Ok(Arrived::At(label, packet)) } else { Err(Drop::OutOfRange) };
        assert_eq!(filter.receive(&labelled, NOW), expected);
    }
}

#[test]
fn a_datagram_s_label_is_forgotten_with_it() {
    let (mut dice, mut filter) = (Dice(3), filter());
    let packet = fragment_of(&packets::ipv4(&mut dice), &mut dice);
    let low = filter.send(&label(1, []), &packet, MTU).unwrap();
    let high = filter.send(&label(2, []), &packet, MTU).unwrap();
    assert!(filter.receive(&low, NOW).is_ok());
    assert_eq!(filter.receive(&high, Duration::from_secs(29)), Err(Drop::Disagrees));
    assert!(filter.receive(&high, Duration::from_secs(30)).is_ok());
}

#[test]
fn whole_datagrams_of_two_labels_may_have_one_identification() {
    let (mut dice, mut filter) = (Dice(6), filter());
    for _ in 0..100 {
        let packet = packets::ipv4(&mut dice);
        for level in [1, 2] {
            let sent = filter.send(&label(level, []), &packet, MTU).unwrap();
            assert_eq!(filter.receive(&sent, NOW), Ok(Arrived::At(label(level, []), packet.clone())));
        }
    }
}

#[test]
fn labels_of_1024_datagrams_are_remembered_and_one_more_costs_the_oldest_alone_its_place() {
    let (mut dice, mut filter) = (Dice(4), filter());
    let both: Vec<[Vec<u8>; 2]> = (0..1_025)
        .map(|_| {
            let packet = fragment_of(&packets::ipv4(&mut dice), &mut dice);
            [1, 2].map(|level| filter.send(&label(level, []), &packet, MTU).unwrap())
        })
        .collect();
    let (last, first) = both.split_last().unwrap();
    for [low, _] in first {
        assert!(filter.receive(low, NOW).is_ok());
    }
    for [_, high] in first {
        assert_eq!(filter.receive(high, NOW), Err(Drop::Disagrees));
    }
    assert!(filter.receive(&last[0], NOW).is_ok());
    for [_, high] in &first[1..] {
        assert_eq!(filter.receive(high, NOW), Err(Drop::Disagrees));
    }
    assert!(filter.receive(&first[0][1], NOW).is_ok(), "the oldest was forgotten");
}

#[test]
fn labels_are_looked_for_behind_options_of_two_octets_and_not_behind_shorter_ones() {
    let mut dice = Dice(7);
    let packet = packets::ipv4(&mut dice);
    for (length, why) in [(0, Drop::Truncated), (1, Drop::Truncated), (2, Drop::OtherOption)] {
        let packet = with_options(&packet, &[7, length, 134, 6, 0, 0, 0, 16]);
        assert_eq!(filter().receive(&packet, NOW), Err(why), "an option of {length}");
    }
}

proptest! {
    #[test]
    fn any_octets_are_dropped_or_delivered_within_the_range(
        mut octets in proptest::collection::vec(any::<u8>(), 0..120),
        version in prop_oneof![Just(4u8), Just(6)],
    ) {
        if let Some(first) = octets.first_mut() {
            *first = version << 4 | *first & 15;
        }
        let mut filter = filter();
        if let Ok(Arrived::At(label, packet)) = filter.receive(&octets, NOW) {
            prop_assert!(label.dominates(&self::label(1, [])));
            prop_assert!(packet.len() <= octets.len());
        }
        let _ = filter.send(&label(1, []), &octets, MTU);
    }
}

/// With single-level hosts: a prefix of each version at level 1, one host of it at level 2, and one outside of the link's range.
fn beside() -> Filter {
    let hosts = [
        ("192.168.7.64/26", label(1, [])),
        ("192.168.7.70/32", label(2, [1])),
        ("192.168.7.71/32", label(3, [])),
        ("fd07::4000/114", label(1, [])),
        ("fd07::4001/128", label(2, [1])),
        ("fd07::4002/128", label(3, [])),
    ];
    filter().beside(hosts.map(|(prefix, label)| (prefix.parse().unwrap(), label)))
}

#[test]
fn a_single_level_host_has_the_label_of_its_address_and_neither_writes_nor_gets_one() {
    let (mut dice, mut filter) = (Dice(31), beside());
    let hosts = [
        (["192.168.7.64", "fd07::4000"], Ok(label(1, []))),
        (["192.168.7.127", "fd07::7fff"], Ok(label(1, []))),
        (["192.168.7.70", "fd07::4001"], Ok(label(2, [1]))),
        (["192.168.7.71", "fd07::4002"], Err(Drop::OutOfRange)),
        (["192.168.7.63", "fd07::3fff"], Err(Drop::Unlabelled)),
        (["192.168.7.128", "fd07::8000"], Err(Drop::Unlabelled)),
    ];
    for (addresses, expected) in hosts {
        for (address, make) in addresses.into_iter().zip([packets::ipv4, packets::ipv6]) {
            let address = address.parse().unwrap();
            let from = packets::at(make(&mut dice), true, address);
            let arrived = filter.receive(&from, NOW);
            assert_eq!(arrived, expected.clone().map(|label| Arrived::At(label, from.clone())), "{address}");
            // One that writes a label, its own or another.
            for written in [label(1, []), label(2, [1])] {
                let (cipso, calipso) = options(&written);
                let labelled = if address.is_ipv4() {
                    with_options(&from, &cipso)
                } else {
                    with_hop_by_hop(&from, &calipso)
                };
                let heard = match expected {
                    Err(Drop::Unlabelled) => Ok(Arrived::At(written, from.clone())),
                    _ => Err(Drop::Claimed),
                };
                assert_eq!(filter.receive(&labelled, NOW), heard, "{address}");
            }
            // What goes there has no label, and comes from its own.
            let to = packets::at(make(&mut dice), false, address);
            for sender in [label(1, []), label(2, [1])] {
                let sent = filter.send(&sender, &to, MTU);
                match &expected {
                    Ok(label) if *label == sender => assert_eq!(sent, Ok(to.clone()), "{address}"),
                    Err(Drop::Unlabelled) => assert!(sent.unwrap().len() > to.len(), "{address}"),
                    _ => assert_eq!(sent, Err(Drop::Elsewhere), "{address}"),
                }
            }
        }
    }
}

#[test]
fn options_that_say_nothing_do_not_leave_for_a_single_level_host_and_labels_of_a_compartments_making_are_dropped()
 {
    let (mut dice, mut filter) = (Dice(32), beside());
    let four = packets::at(packets::ipv4(&mut dice), false, "192.168.7.64".parse().unwrap());
    let six = packets::at(packets::ipv6(&mut dice), false, "fd07::4000".parse().unwrap());
    let (sender, (cipso, calipso)) = (label(1, []), options(&label(1, [])));
    assert_eq!(filter.send(&sender, &with_options(&four, &[1, 1, 1, 1]), MTU), Ok(four.clone()));
    assert_eq!(filter.send(&sender, &with_hop_by_hop(&six, &[1, 4, 0, 0, 0, 0]), MTU), Ok(six.clone()));
    assert_eq!(filter.send(&sender, &with_options(&four, &cipso), MTU), Err(Drop::Forged));
    assert_eq!(filter.send(&sender, &with_hop_by_hop(&six, &calipso), MTU), Err(Drop::Forged));
    // RFC 1108's.
    assert_eq!(filter.send(&sender, &with_options(&four, &[130, 4, 0xab, 0]), MTU), Err(Drop::OtherOption));
    // Neighbours are of the link wherever they are.
    let solicitation = packets::at(packets::icmpv6(135, 255), true, "fd07::4000".parse().unwrap());
    assert_eq!(filter.receive(&solicitation, NOW), Ok(Arrived::Link));
}

/// The ones' complement sum of octets (RFC 1071).
fn sum(octets: &[u8]) -> u32 {
    let words =
        octets.chunks(2).map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |low| u32::from(*low)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

#[test]
fn a_router_s_error_tells_a_compartment_what_passes_before_its_packets_have_a_label() {
    let (mut dice, mut filter) = (Dice(33), filter());
    for n in 0..2_000u16 {
        let label = allowed(&mut dice);
        let is_six = n % 2 == 1;
        let (kind, code, protocol, header) = if is_six { (2, 0, 58, 40) } else { (3, 4, 1, 20) };
        // What has left, as the router quotes it.
        let bare = if is_six { packets::ipv6(&mut dice) } else { packets::ipv4(&mut dice) };
        let left = filter.send(&label, &bare, MTU).unwrap();
        let cost = (left.len() - bare.len()) as u16;
        let says = [cost + 1, 576, 1_280, 1_400][dice.below(4) as usize];
        let mut message = vec![kind, code, 0, 0, 0, 0];
        message.extend(says.to_be_bytes());
        message.extend(&left[..left.len().min(96)]);
        let checksum = !(sum(&message) as u16);
        message[2..4].copy_from_slice(&checksum.to_be_bytes());
        let mut error = if is_six { packets::ipv6(&mut dice) } else { packets::ipv4(&mut dice) };
        error.truncate(header);
        error[if is_six { 6 } else { 9 }] = protocol;
        error.extend(&message);
        let source = if is_six { "fd07::9" } else { "192.168.7.9" };
        // With its length and checksum.
        let error = packets::at(error, true, source.parse().unwrap());
        let sent = filter.send(&label, &error, MTU).unwrap();
        let Ok(Arrived::At(at, heard)) = filter.receive(&sent, NOW) else { panic!("{sent:02x?}") };
        assert_eq!(at, label);
        let told = u16::from_be_bytes([heard[header + 6], heard[header + 7]]);
        assert_eq!(told, says - cost, "{heard:02x?}");
        assert_eq!(sum(&heard[header..]), 0xffff, "{heard:02x?}");
        // Nothing else of it is another.
        assert_eq!((&heard[header + 8..], &heard[..header]), (&message[8..], &error[..header]));
    }
}

/// A datagram that only looks like such an error, by its ports or as a piece of one, is a compartment's own.
#[test]
fn what_is_no_whole_error_arrives_as_it_was_though_it_begins_as_one() {
    let (mut dice, mut filter, mut tried) = (Dice(35), filter(), 0);
    for n in 0..4_000 {
        let is_six = n % 2 == 1;
        let (label, error) = (allowed(&mut dice), packets::too_big(&mut dice, is_six));
        let protocol = if is_six { 6 } else { 9 };
        let mut other = error.clone();
        other[protocol] = [6, 17][dice.below(2) as usize];
        let other = packets::at(other, true, if is_six { "fd07::9" } else { "192.168.7.9" }.parse().unwrap());
        let piece = fragment_of(&error, &mut dice);
        for packet in [other, piece] {
            let sent = filter.send(&label, &packet, MTU).unwrap();
            assert_eq!(filter.receive(&sent, NOW), Ok(Arrived::At(label.clone(), packet)));
            tried += 1;
        }
    }
    assert_eq!(tried, 8_000);
}

#[test]
fn a_label_whose_option_fills_the_header_to_its_end_is_sent_and_arrives() {
    let domain = Domain::new(16, TagForm::Bitmap, [(0, 0)], (0..240).map(|n| (n, n))).unwrap();
    let full = label(0, [239]);
    assert_eq!(cipso::encode(&domain, &full).unwrap().len(), 40);
    let mut filter = Filter::new(domain, Range::single(full.clone()));
    let packet = packets::ipv4(&mut Dice(36));
    let sent = filter.send(&full, &packet, MTU).unwrap();
    assert_eq!((sent.len(), sent[0]), (packet.len() + 40, 0x4f));
    assert_eq!(filter.receive(&sent, NOW), Ok(Arrived::At(full, packet)));
}

#[test]
fn a_label_costs_a_packet_of_ipv6_no_more_than_its_octets_and_their_padding() {
    let (mut dice, mut filter) = (Dice(37), filter());
    for _ in 0..200 {
        let (label, packet) = (allowed(&mut dice), packets::ipv6(&mut dice));
        let sent = filter.send(&label, &packet, MTU).unwrap();
        let option = options(&label).1;
        assert_eq!(sent.len() - packet.len(), (2 + option.len()).next_multiple_of(8));
        assert_eq!(sent[42..42 + option.len()], option);
    }
}

/// One header of hops alone is looked through for a label: a second, wherever it stands, could have another.
#[test]
fn a_second_header_of_hops_is_refused_behind_the_first_and_behind_a_fragments() {
    let (mut dice, mut filter) = (Dice(38), filter());
    let (low, high) = (options(&label(1, [])).1, options(&label(2, [])).1);
    for _ in 0..100 {
        let packet = packets::ipv6(&mut dice);
        let second = with_hop_by_hop(&packet, &high);
        assert_eq!(filter.receive(&with_hop_by_hop(&second, &low), NOW), Err(Drop::Malformed));
        assert_eq!(
            filter.send(&label(1, []), &with_hop_by_hop(&second, &[1, 4, 0, 0, 0, 0]), MTU),
            Err(Drop::Malformed)
        );
        let mut piece = fragment_of(&packet, &mut dice);
        // What comes behind the fragment's header.
        piece[40] = 0;
        assert_eq!(filter.receive(&with_hop_by_hop(&piece, &low), NOW), Err(Drop::Malformed));
    }
}

#[test]
fn of_an_odd_error_nothing_changes_but_its_size_and_checksum() {
    let (mut dice, mut filter, mut changed) = (Dice(34), filter(), 0);
    for n in 0..4_000 {
        let is_six = n % 2 == 1;
        let (label, error) = (allowed(&mut dice), packets::too_big(&mut dice, is_six));
        let header = if is_six { 40 } else { 20 };
        let sent = filter.send(&label, &error, MTU).unwrap();
        let Ok(Arrived::At(_, mut heard)) = filter.receive(&sent, NOW) else { panic!("{sent:02x?}") };
        let size = |packet: &[u8]| u16::from_be_bytes([packet[header + 6], packet[header + 7]]);
        assert!(size(&heard) > 0 || size(&error) == 0, "{error:02x?}");
        assert!(size(&heard) <= size(&error), "{error:02x?}");
        changed += u32::from(heard != error);
        for range in [2..4, 6..8] {
            let range = header + range.start..header + range.end;
            heard[range.clone()].copy_from_slice(&error[range]);
        }
        assert_eq!(heard, error);
    }
    assert!((500..3_500).contains(&changed), "{changed}");
}
