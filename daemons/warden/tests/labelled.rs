//! The kernel's programs of a labelled link, held packet by packet against the filter in `core/labelled`.

mod twin;

use std::collections::BTreeMap;

use levee_labelled::{Drop, calipso, cipso, spellings};
use levee_policy::TagForm;
use twin::packets::{Dice, bare, fragment_of, icmpv6, ipv4, ipv6, with_hop_by_hop, with_options};
use twin::{DROPPED, Link, MTU, PASSED, frame, hostile};

/// Generated packets of each version: a million together.
const HOSTILE: u32 = 500_000;
/// And beside single-level hosts.
const BESIDE: u32 = 100_000;

#[test]
fn what_is_sent_arrives_at_its_label_in_every_tag() {
    twin::in_every_tag(1_000);
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

/// Why a packet of either version does not come in.
const FOR_EITHER: [Drop; 8] = [
    Drop::Malformed,
    Drop::Unlabelled,
    Drop::Duplicate,
    Drop::Truncated,
    Drop::OtherDomain,
    Drop::UnknownLabel,
    Drop::OtherOption,
    Drop::Disagrees,
];

/// For each of these reasons the kernel's program has dropped 10,000 packets or more.
fn each_often(dropped: &BTreeMap<Drop, u64>, reasons: &[Drop]) {
    for reason in reasons {
        assert!(dropped.get(reason).is_some_and(|packets| *packets >= 10_000), "{reason:?}: {dropped:?}");
    }
}

#[test]
fn the_program_does_with_hostile_packets_what_the_filter_does() {
    let twin::Came { delivered, dropped, .. } = twin::of_four(HOSTILE);
    each_often(&dropped, &[&FOR_EITHER[..], &[Drop::Checksum, Drop::UnknownTag, Drop::OutOfRange]].concat());
    assert!(delivered > HOSTILE / 20 && delivered < HOSTILE / 2, "{delivered}");
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
    // One number of another protocol, or from elsewhere, or to, is another datagram's.
    for _ in 0..20 {
        let fragment = fragment_of(&ipv4(&mut dice), &mut dice);
        for (at, octet) in [4, 5, 9, 12, 15, 16, 19].into_iter().enumerate() {
            let mut other = fragment.clone();
            other[octet] ^= 0x40;
            let option = cipso::encode(&link.domain, &link.labels[at + 1]).unwrap();
            assert!(link.receive(&with_options(&other, &option)), "octet {octet}");
        }
        let option = cipso::encode(&link.domain, &link.labels[0]).unwrap();
        assert!(link.receive(&with_options(&fragment, &option)));
    }
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
    // Where the link has no IPv6, it goes neither way, labelled or not.
    let six = calipso::encode(&link.domain, &link.labels[0]).unwrap();
    for packet in [ipv6(&mut dice), with_hop_by_hop(&ipv6(&mut dice), &six), icmpv6(135, 255)] {
        for mark in [0, 1] {
            assert_eq!(link.egress.run(&frame(&packet), mark).unwrap().verdict, DROPPED);
        }
        assert_eq!(link.ingress.run(&frame(&packet), 0).unwrap().verdict, DROPPED);
    }
}

#[test]
fn on_a_link_with_ipv6_what_is_sent_arrives_at_its_label_in_either_version() {
    let (mut link, mut dice) = (Link::of_both(), Dice(6));
    for n in 0..2_000 {
        let at = n % link.labels.len();
        let packet = bare(&mut dice);
        let sent = link.send(at, &packet).unwrap();
        assert!(sent.len() > packet.len());
        assert!(link.receive(&[&sent[..], &[0; 6]].concat()));
    }
    assert_eq!(link.programs.dropped().unwrap(), []);
}

#[test]
fn every_spelling_of_a_label_in_ipv6_is_delivered_at_it_and_no_other_bit_is() {
    let (mut link, mut dice) = (Link::of_both(), Dice(7));
    for label in link.labels.clone() {
        let all = calipso::spellings(&link.domain, &label).unwrap();
        assert!(all.len() > 30);
        for mut option in all {
            let packet = ipv6(&mut dice);
            assert!(link.receive(&with_hop_by_hop(&packet, &option)), "{option:02x?}");
            // The checksum finds every one.
            let at = 2 + dice.below(option.len() as u64 - 2) as usize;
            option[at] ^= 1 << dice.below(8);
            assert!(!link.receive(&with_hop_by_hop(&packet, &option)), "{option:02x?}");
        }
    }
    // One word more than any domain can fill.
    let mut long = vec![7, 140, 0, 0, 0, 16, 33, 5, 0, 0];
    long.resize(142, 0);
    let crc = calipso::checksum(&long).to_le_bytes();
    long[8..10].copy_from_slice(&crc);
    assert!(!link.receive(&with_hop_by_hop(&ipv6(&mut dice), &long)));
}

#[test]
fn with_hostile_packets_of_ipv6_the_program_does_what_the_filter_does() {
    let twin::Came { delivered, dropped, .. } = twin::of_six(HOSTILE);
    each_often(&dropped, &[&FOR_EITHER[..], &[Drop::BadOption]].concat());
    assert!(delivered > HOSTILE / 20 && delivered < HOSTILE / 2, "{delivered}");
}

#[test]
fn fragments_of_ipv6_go_to_one_compartment_and_neighbours_to_none() {
    let (mut link, mut dice) = (Link::of_both(), Dice(9));
    for _ in 0..200 {
        let fragment = fragment_of(&ipv6(&mut dice), &mut dice);
        let (one, other) =
            (dice.below(32) as usize % link.labels.len(), dice.below(32) as usize % link.labels.len());
        for at in [one, other, one] {
            let option = calipso::encode(&link.domain, &link.labels[at]).unwrap();
            assert_eq!(link.receive(&with_hop_by_hop(&fragment, &option)), at == one);
        }
    }
    let option = calipso::encode(&link.domain, &link.labels[0]).unwrap();
    // Of a fragment's header that ends before it is whole, padding of the link is not the rest.
    for cut in 0..8 {
        let mut packet = with_hop_by_hop(&fragment_of(&ipv6(&mut dice), &mut dice), &option);
        let length = (u16::from(packet[41]) + 1) * 8 + cut;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        assert!(!link.receive(&packet), "{cut} octets");
    }
    for kind in [1, 128, 132, 133, 134, 135, 136, 137, 138, 143] {
        for hop_limit in [1, 254, 255] {
            let packet = icmpv6(kind, hop_limit);
            let of_link = (133..=137).contains(&kind) && hop_limit == 255;
            link.receive(&packet);
            assert_eq!(link.receive(&with_hop_by_hop(&packet, &option)), !of_link, "{kind} {hop_limit}");
            assert_eq!(link.send(0, &packet).is_some(), !of_link, "{kind} {hop_limit}");
            // What the link's own namespace says: this, and nothing else.
            let own = link.egress.run(&frame(&packet), 0).unwrap();
            assert_eq!(own.verdict, if of_link { PASSED } else { DROPPED }, "{kind} {hop_limit}");
        }
    }
}

#[test]
fn a_packet_of_ipv6_that_is_too_large_with_its_label_does_not_leave() {
    let (mut link, mut dice) = (Link::of_both(), Dice(10));
    let label = calipso::encode(&link.domain, &link.labels[0]).unwrap();
    let cost = (2 + label.len()).next_multiple_of(8);
    for (size, goes) in [(MTU as usize - cost, true), (MTU as usize - cost + 1, false)] {
        let mut packet = ipv6(&mut dice);
        packet.resize(size, 0);
        packet[4..6].copy_from_slice(&(size as u16 - 40).to_be_bytes());
        assert_eq!(link.send(0, &packet).is_some(), goes);
        // With a header of padding, which goes, it is as large as without.
        let padded = with_hop_by_hop(&packet, &[1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(link.send(0, &padded).is_some(), goes);
    }
}

#[test]
fn beside_single_level_hosts_the_programs_do_with_hostile_packets_what_the_filter_does() {
    let twin::Came { delivered, sent, bare, dropped } = twin::beside(BESIDE);
    each_often(&dropped, &[Drop::Claimed]);
    assert!(delivered > BESIDE / 20 && delivered < BESIDE / 2, "{delivered}");
    assert!(sent > BESIDE / 40 && bare > BESIDE / 1_000 && bare < sent, "{sent}, {bare} without a label");
}
