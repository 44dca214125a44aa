//! CIPSO and CALIPSO options: others' vectors, and that nothing is lost.

use std::sync::LazyLock;

use levee_labelled::{Fault, calipso, cipso, spellings};
use levee_policy::{CategorySet, Domain, Label, TagForm};
use proptest::prelude::*;

/// Every level and category there can be, each as itself.
fn domain(form: TagForm) -> &'static Domain {
    static ALL: LazyLock<Vec<Domain>> = LazyLock::new(|| {
        let domain = |(_, form)| Domain::new(16, form, (0..=255).map(|n| (n, n)), (0..1024).map(|n| (n, n)));
        TagForm::ALL.into_iter().filter_map(domain).collect()
    });
    ALL.iter().find(|domain| domain.form() == form).unwrap()
}

fn label(level: u8, categories: impl IntoIterator<Item = u16>) -> Label {
    Label::confidential(level, CategorySet::from_numbers(categories).unwrap())
}

fn written(form: TagForm, label: &Label) -> Vec<u8> {
    let option = cipso::encode(domain(form), label).unwrap();
    assert_eq!(cipso::decode(domain(form), &option).as_ref(), Ok(label));
    option
}

fn refused(form: TagForm, label: Label) {
    assert_eq!(cipso::encode(domain(form), &label), Err(Fault::Room(label)));
}

#[test]
fn cipso_s_tags_have_the_octets_of_the_draft() {
    let head = [134, 0, 0, 0, 0, 16];
    let option = |tag: &[u8]| {
        let mut option = [&head[..], tag].concat();
        option[1] = option.len() as u8;
        option
    };
    assert_eq!(written(TagForm::Bitmap, &label(0, [])), option(&[1, 4, 0, 0]));
    assert_eq!(written(TagForm::Bitmap, &label(5, [0, 9])), option(&[1, 6, 0, 5, 0x80, 0x40]));
    assert_eq!(written(TagForm::Enumerated, &label(5, [3, 258])), option(&[2, 8, 0, 5, 0, 3, 1, 2]));
    let ranged = option(&[5, 14, 0, 5, 1, 4, 1, 2, 0, 9, 0, 9, 0, 2]);
    assert_eq!(written(TagForm::Ranged, &label(5, [0, 1, 2, 9, 258, 259, 260])), ranged);
    // Sixteen categories; released to the first and the last, so in none but the others.
    let domain = Domain::new(16, TagForm::Permissive, [(5, 5)], (0..16).map(|n| (n, n))).unwrap();
    let permissive = cipso::encode(&domain, &label(5, 1..15)).unwrap();
    assert_eq!(permissive, option(&[6, 6, 0, 5, 0x80, 0x01]));
    assert_eq!(cipso::decode(&domain, &permissive), Ok(label(5, 1..15)));
    let beyond = cipso::decode(&domain, &option(&[6, 7, 0, 5, 0x80, 0x01, 0x80]));
    assert!(matches!(beyond, Err(Fault::Untranslated(_))), "{beyond:?}");
}

/// The label sets of the SELinux project's tests of labelled networking.
#[test]
fn cipso_s_tags_hold_what_linux_lets_them_hold() {
    written(TagForm::Bitmap, &label(0, 61..=239));
    refused(TagForm::Bitmap, label(0, 20..=250));
    written(TagForm::Bitmap, &label(0, [19, 120, 239]));
    refused(TagForm::Bitmap, label(0, [19, 120, 240]));
    let fifteen = || (0..15).map(|n| n * 17);
    written(TagForm::Enumerated, &label(0, fifteen()));
    refused(TagForm::Enumerated, label(0, fifteen().chain([1023])));
    // Ranges of two with a gap between.
    let ranges = |first: u16, n: u16| (0..n).flat_map(move |at| [first + at * 5, first + at * 5 + 1]);
    written(TagForm::Ranged, &label(0, ranges(1, 7)));
    refused(TagForm::Ranged, label(0, ranges(1, 8)));
    written(TagForm::Ranged, &label(0, ranges(0, 8)));
    refused(TagForm::Ranged, label(0, ranges(0, 9)));
}

#[test]
fn what_is_not_one_label_of_the_domain_is_refused() {
    let decode = |octets: &[u8]| cipso::decode(domain(TagForm::Bitmap), octets).unwrap_err();
    assert_eq!(decode(&[134, 10, 0, 0, 0, 17, 1, 4, 0, 0]), Fault::Domain(17));
    assert_eq!(decode(&[134, 6, 0, 0, 0, 16]), Fault::Length);
    assert_eq!(decode(&[134, 11, 0, 0, 0, 16, 1, 4, 0, 0]), Fault::Length);
    assert_eq!(decode(&[134, 10, 0, 0, 0, 16, 1, 5, 0, 0]), Fault::Length);
    assert_eq!(decode(&[134, 10, 0, 0, 0, 16, 1, 1, 0, 0]), Fault::Length);
    assert_eq!(decode(&[134, 10, 0, 0, 0, 16, 1, 4, 1, 0]), Fault::Alignment);
    assert_eq!(decode(&[134, 10, 0, 0, 0, 16, 3, 4, 0, 0]), Fault::Tag(3));
    assert_eq!(decode(&[134, 14, 0, 0, 0, 16, 1, 4, 0, 0, 1, 4, 0, 0]), Fault::Several);
    let local = 7u32.to_ne_bytes();
    assert_eq!(decode(&[&[134, 12, 0, 0, 0, 16, 128, 6][..], &local].concat()), Fault::Local(7));
    assert_eq!(decode(&[134, 11, 0, 0, 0, 16, 2, 5, 0, 0, 9]), Fault::Length);
    assert_eq!(decode(&[134, 14, 0, 0, 0, 16, 2, 8, 0, 0, 0, 9, 0, 9]), Fault::Order);
    assert_eq!(decode(&[134, 12, 0, 0, 0, 16, 2, 6, 0, 0, 4, 0]), Fault::Number(1024));
    // The low end above the high one; and a range that goes on where the one before ended.
    assert_eq!(decode(&[134, 14, 0, 0, 0, 16, 5, 8, 0, 0, 0, 1, 0, 2]), Fault::Order);
    assert_eq!(decode(&[134, 18, 0, 0, 0, 16, 5, 12, 0, 0, 0, 9, 0, 5, 0, 4, 0, 1]), Fault::Order);
}

#[test]
fn calipso_has_the_octets_that_linux_writes() {
    let domain = domain(TagForm::Bitmap);
    let option = calipso::encode(domain, &label(5, [0, 9])).unwrap();
    let crc = calipso::checksum(&option).to_le_bytes();
    assert_eq!(option, [7, 12, 0, 0, 0, 16, 1, 5, crc[0], crc[1], 0x80, 0x40, 0, 0]);
    assert_eq!(calipso::decode(domain, &option), Ok(label(5, [0, 9])));
    for at in 0..option.len() {
        for bit in 0..8 {
            let mut broken = option.clone();
            broken[at] ^= 1 << bit;
            assert!(calipso::decode(domain, &broken).is_err(), "octet {at} bit {bit}");
        }
    }
    // What a table has that stands for the decoder.
    for option in calipso::spellings(domain, &label(5, [0, 9])).unwrap() {
        assert_eq!(calipso::decode(domain, &option), Ok(label(5, [0, 9])), "{option:02x?}");
    }
    // By another implementation of CRC-16/X-25, of which 0x906e is the check value.
    assert_eq!(calipso::checksum(&option), 0x47a1);
    assert_eq!(calipso::checksum(b"12345678"), 0x86a);
    assert_eq!(calipso::checksum(b"12345678..."), calipso::checksum(b"12345678\0\0."));
}

/// An option with its checksum made right, whatever else it says.
fn checked(mut option: Vec<u8>) -> Vec<u8> {
    let crc = calipso::checksum(&option).to_le_bytes();
    option[8..10].copy_from_slice(&crc);
    option
}

#[test]
fn a_right_checksum_does_not_make_up_for_a_type_or_a_length_that_is_wrong() {
    let domain = domain(TagForm::Bitmap);
    let option = calipso::encode(domain, &label(5, [0, 9])).unwrap();
    assert_eq!(checked(option.clone()), option);
    // Type, length in octets, bitmap in words: every other value.
    for at in [0, 1, 6] {
        for value in (0..=255).filter(|value| *value != option[at]) {
            let mut other = option.clone();
            other[at] = value;
            assert_eq!(calipso::decode(domain, &checked(other)), Err(Fault::Length), "octet {at}: {value}");
        }
    }
}

#[test]
fn a_label_has_as_many_calipso_spellings_as_zero_words_have_room() {
    let domain = domain(TagForm::Bitmap);
    for (label, words) in
        [(label(5, []), 0), (label(5, [0, 9]), 1), (label(5, [32]), 2), (label(5, [1023]), 32)]
    {
        let shortest = calipso::encode(domain, &label).unwrap();
        // Up to one word more than any domain has categories for.
        let expected: Vec<Vec<u8>> = (words..=33u8)
            .map(|words| {
                let mut option = shortest.clone();
                option.resize(10 + usize::from(words) * 4, 0);
                (option[1], option[6]) = (8 + words * 4, words);
                checked(option)
            })
            .filter(|option| calipso::decode(domain, option).as_ref() == Ok(&label))
            .collect();
        assert_eq!(expected.len(), 33 - usize::from(words));
        assert_eq!(calipso::spellings(domain, &label).as_ref(), Ok(&expected), "{label:?}");
    }
}

/// A kernel's table that lacked one would drop what a host may send.
#[test]
fn every_spelling_that_fills_an_option_to_its_end_is_among_a_labels() {
    let full = |tag: u8, data: &[u8]| {
        let mut option = [&[134, 40, 0, 0, 0, 16, tag, 34, 0, 7][..], data].concat();
        option.resize(40, 0);
        option
    };
    let numbers: Vec<u8> = (0..15u16).flat_map(u16::to_be_bytes).collect();
    let ranges: Vec<u8> =
        (1..8u16).rev().flat_map(|n| [n * 10 + 1, n * 10]).flat_map(u16::to_be_bytes).collect();
    for (option, set) in [
        (full(1, &[]), vec![]),
        (full(1, &[0x81]), vec![0, 7]),
        (full(2, &numbers), (0..15).collect::<Vec<u16>>()),
        (full(5, &ranges), (1..8).flat_map(|n| [n * 10, n * 10 + 1]).chain([0]).collect()),
        (full(6, &[0x40]), (0..1024).filter(|n| *n != 1).collect()),
    ] {
        let domain = domain(TagForm::Bitmap);
        let label = label(7, set);
        assert_eq!(cipso::decode(domain, &option).as_ref(), Ok(&label), "{option:?}");
        let among = spellings(domain, &label).unwrap();
        assert!(among.contains(&option) && among.iter().all(|one| one.len() <= 40), "{option:?}");
    }
}

fn labels() -> impl Strategy<Value = Label> {
    let spread = proptest::collection::vec(0u16..1024, 0..20);
    let run = (0u16..300, 0u16..300).prop_map(|(from, n)| (from..from + n).collect::<Vec<_>>());
    (any::<u8>(), prop_oneof![spread, run]).prop_map(|(level, numbers)| label(level, numbers))
}

proptest! {
    #[test]
    fn a_label_is_written_and_read_whole_or_refused(label in labels()) {
        for (_, form) in TagForm::ALL {
            match cipso::encode(domain(form), &label) {
                Ok(option) => {
                    prop_assert!(option.len() <= cipso::MOST);
                    prop_assert_eq!(cipso::decode(domain(form), &option), Ok(label.clone()));
                    // Whatever the form it is written in, every domain reads it.
                    prop_assert_eq!(cipso::decode(domain(TagForm::Bitmap), &option), Ok(label.clone()));
                }
                Err(fault) => prop_assert_eq!(fault, Fault::Room(label.clone())),
            }
        }
        let option = calipso::encode(domain(TagForm::Bitmap), &label).unwrap();
        prop_assert_eq!(calipso::decode(domain(TagForm::Bitmap), &option), Ok(label));
    }

    #[test]
    fn any_octets_are_refused_or_are_a_label(tag in 0u8..9, body in proptest::collection::vec(any::<u8>(), 0..36)) {
        let mut option = vec![134, 8 + body.len() as u8, 0, 0, 0, 16, tag, 2 + body.len() as u8];
        option.extend(&body);
        if let Ok(label) = cipso::decode(domain(TagForm::Ranged), &option) {
            prop_assert!(label.confidentiality.categories.last().is_none_or(|last| last < 1024));
        }
        let _ = cipso::decode(domain(TagForm::Ranged), &body);
        let _ = calipso::decode(domain(TagForm::Ranged), &body);
    }
}
