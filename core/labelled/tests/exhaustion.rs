//! Labels in packets and the lengths about them, by every value of a small domain.

use std::collections::HashMap;
use std::time::Duration;

use levee_labelled::{Arrived, Drop, Fault, Filter, calipso, cipso, spellings};
use levee_policy::{CategorySet, Domain, Label, Range, TagForm};

/// Two levels and four categories, each with another number there.
fn domain(form: TagForm) -> Domain {
    Domain::new(16, form, [(0, 1), (1, 3)], [(0, 1), (1, 2), (2, 3), (3, 12)]).unwrap()
}

/// All of them: 2 levels by 16 sets.
fn labels() -> impl Iterator<Item = Label> {
    (0..32_u16).map(|n| {
        let categories = (0..4).filter(|category| n >> category & 1 == 1);
        Label::confidential((n >> 4) as u8, CategorySet::from_numbers(categories).unwrap())
    })
}

type Decode = fn(&Domain, &[u8]) -> Result<Label, Fault>;
type Spellings = fn(&Domain, &Label) -> Result<Vec<Vec<u8>>, Fault>;

/// What differs in one octet, or is shorter or longer by one, from any spelling of any label is read as what the tables have it for.
fn one_octet_apart(domain: &Domain, spellings: Spellings, decode: Decode, as_is: fn(Vec<u8>) -> Vec<u8>) {
    let mut table = HashMap::new();
    for label in labels() {
        for option in spellings(domain, &label).unwrap() {
            let before = table.insert(option, label.clone());
            assert_eq!(before, None, "two labels have one spelling");
        }
    }
    assert!(table.len() >= 32);
    let check = |option: Vec<u8>| {
        let option = as_is(option);
        assert_eq!(decode(domain, &option).ok().as_ref(), table.get(&option), "{option:?}");
    };
    for option in table.keys().filter(|option| option.len() <= 18) {
        for at in 0..option.len() {
            for value in 0..=u8::MAX {
                let mut changed = option.clone();
                changed[at] = value;
                check(changed);
            }
        }
        check(option[..option.len() - 1].to_vec());
        check([&option[..], &[0]].concat());
    }
}

#[test]
fn an_option_of_cipso_that_is_an_octet_apart_from_a_labels_is_another_spelling_or_none() {
    // Whatever the form that a domain's labels are written in, all four are read.
    one_octet_apart(&domain(TagForm::Ranged), spellings, cipso::decode, |option| option);
}

#[test]
fn an_option_of_calipso_that_is_an_octet_apart_from_a_labels_is_another_spelling_or_none() {
    let domain = domain(TagForm::Bitmap);
    one_octet_apart(&domain, calipso::spellings, calipso::decode, |option| option);
    // And with a checksum that is right for what was changed.
    one_octet_apart(&domain, calipso::spellings, calipso::decode, |mut option| {
        let sum = calipso::checksum(&option).to_le_bytes();
        if let Some(place) = option.get_mut(8..10) {
            place.copy_from_slice(&sum);
        }
        option
    });
}

/// A packet of UDP with 24 octets, whole.
fn ipv4() -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 44, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    let words = packet.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum = words.sum::<u32>();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend([5; 24]);
    packet
}

/// As there.
fn ipv6() -> Vec<u8> {
    [&[0x60, 0, 0, 0, 0, 24, 17, 64][..], &[7; 32], &[5; 24]].concat()
}

fn filter() -> Filter {
    let labels: Vec<Label> = labels().collect();
    Filter::new(domain(TagForm::Bitmap), Range::new(labels[0].clone(), labels[31].clone()).unwrap())
}

#[test]
fn every_label_arrives_as_it_was_sent_and_a_packet_cut_anywhere_does_not() {
    let mut filter = filter();
    for label in labels() {
        for packet in [ipv4(), ipv6()] {
            let sent = filter.send(&label, &packet, 1_500).unwrap();
            for length in 0..sent.len() {
                let cut = filter.receive(&sent[..length], Duration::ZERO);
                assert_eq!(cut, Err(Drop::Malformed), "{length} of {}", sent.len());
            }
            let arrived = filter.receive(&sent, Duration::ZERO);
            assert_eq!(arrived, Ok(Arrived::At(label.clone(), packet)));
        }
    }
}

/// What RFC 8200 4.2 says of options in a row: padding, others, or none whole. `None`: not a row of whole ones, or more than are
/// looked through.
fn row(mut octets: &[u8]) -> Option<Vec<&[u8]>> {
    let mut all = Vec::new();
    for _ in 0..12 {
        octets = match octets {
            [] => return Some(all),
            [0, rest @ ..] => rest,
            [kind, length, rest @ ..] if rest.len() >= usize::from(*length) => {
                let (option, rest) = octets.split_at(2 + usize::from(*length));
                if *kind != 1 {
                    all.push(option);
                }
                rest
            }
            _ => return None,
        };
    }
    octets.is_empty().then_some(all)
}

#[test]
fn a_label_is_found_in_a_header_of_hops_if_all_beside_it_is_padding_whatever_the_row_is() {
    let (mut filter, domain) = (filter(), domain(TagForm::Bitmap));
    let label = labels().nth(5).unwrap();
    let option = calipso::encode(&domain, &label).unwrap();
    assert_eq!(option.len(), 14, "there are 16 octets for others");
    let bare = ipv6();
    // Four octets of these, and what fills up is 0; before the label, behind it, and about it.
    let worth = [0, 1, 2, 4, 5, 7, 0x82, 255];
    let mut delivered = 0;
    for before in [0, 4, 7, 16] {
        for (a, b) in worth.into_iter().flat_map(|a| worth.map(|b| (a, b))) {
            for (c, d) in worth.into_iter().flat_map(|c| worth.map(|d| (c, d))) {
                let mut rest = vec![a, b, c, d];
                rest.resize(16, 0);
                let behind = rest.split_off(before);
                let header = [&[bare[6], 3][..], &rest, &option, &behind].concat();
                let mut packet = [&bare[..40], &header, &bare[40..]].concat();
                packet[6] = 0;
                let length = (packet.len() - 40) as u16;
                packet[4..6].copy_from_slice(&length.to_be_bytes());
                let is_right = row(&header[2..]).is_some_and(|all| all == [&option[..]]);
                let arrived = filter.receive(&packet, Duration::ZERO);
                assert_eq!(arrived.is_ok(), is_right, "{:?}: {arrived:?}", &header[2..]);
                if let Ok(Arrived::At(at, inner)) = arrived {
                    assert_eq!((at, &inner), (label.clone(), &bare));
                    delivered += 1;
                }
            }
        }
    }
    assert!(delivered > 100, "{delivered}");
}

#[test]
fn a_header_of_hops_is_as_long_as_it_says_within_its_packet_and_160_octets() {
    let mut filter = filter();
    let option = calipso::encode(&domain(TagForm::Bitmap), &labels().nth(9).unwrap()).unwrap();
    for words in 0..=u8::MAX {
        for there in 0..40_usize {
            // The label, and padding as far as the header goes.
            let length = (usize::from(words) + 1) * 8;
            let mut header = [&[17, words][..], &option].concat();
            while header.len() < length {
                match length - header.len() {
                    1 => header.push(0),
                    more => {
                        let pad = more.min(200) - 2;
                        header.extend([1, pad as u8]);
                        header.resize(header.len() + pad, 0);
                    }
                }
            }
            header.resize(there * 8, 0);
            let mut packet = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
            packet.extend([7; 32]);
            packet.extend(&header);
            packet[4..6].copy_from_slice(&((there * 8) as u16).to_be_bytes());
            let arrived = filter.receive(&packet, Duration::ZERO);
            // The option of 14 octets and the header's first two.
            let is_right = (16..=160).contains(&length) && length <= there * 8;
            assert_eq!(arrived.is_ok(), is_right, "{length} of {} octets: {arrived:?}", there * 8);
        }
    }
}
