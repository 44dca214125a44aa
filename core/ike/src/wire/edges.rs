//! The edges of what parsers take: each limit from both sides, and each kind of identity and configuration in every length.

use super::ident::Identity;
use super::kind;
use super::notify::NotifyKind;
use super::payload::{CpKind, Fields, Problem};
use super::proposal::{Proposal, Protocol, Transform, TransformKind};
use super::selector::{SecurityLabel, Selector, TrafficSelectors, narrow};
use std::net::IpAddr;

#[test]
fn each_kind_of_identity_has_its_own_length_and_a_written_one_is_read_again() {
    let parsed = |code: u8, data: &[u8]| Identity::parse(&[&[code, 0, 0, 0], data].concat());
    for length in 0..=20 {
        assert_eq!(parsed(1, &vec![1; length]).is_ok(), length == 4, "IPv4, {length} octets");
        assert_eq!(parsed(5, &vec![1; length]).is_ok(), length == 16, "IPv6, {length} octets");
    }
    for code in [2, 3, 9, 11] {
        for (length, goes) in [(0, false), (1, true), (2_048, true), (2_049, false)] {
            assert_eq!(parsed(code, &vec![b'a'; length]).is_ok(), goes, "{code}, {length} octets");
        }
        let read = parsed(code, b"a.example").expect("an identity");
        assert_eq!(read.write(), [&[code, 0, 0, 0], &b"a.example"[..]].concat());
    }
    // What is a name has nothing in it that no name has.
    for wrong in [&b"a b"[..], b"a\0", "\u{e9}".as_bytes(), b"\xff", b"a\n"] {
        assert!(parsed(2, wrong).is_err() && parsed(3, wrong).is_err(), "{wrong:?}");
        assert!(parsed(11, wrong).is_ok());
    }
    for code in [0, 4, 6, 7, 8, 10, 12, 255] {
        assert!(parsed(code, &[1; 4]).is_err(), "{code}");
    }
}

#[test]
fn attributes_of_a_configuration_are_empty_or_whole_and_no_more_than_32_are_kept() {
    let body = |code: u16, value: &[u8]| {
        let length = (value.len() as u16).to_be_bytes();
        [&[1, 0, 0, 0][..], &code.to_be_bytes(), &length, value].concat()
    };
    let read = |body: &[u8]| {
        Fields::parse(kind::CP, &[&[0, 0][..], &(body.len() as u16 + 4).to_be_bytes(), body].concat())
            .map(|fields| fields.cp.map_or(0, |(_, all)| all.len()))
    };
    for (code, whole) in [(1, 4), (3, 4), (8, 17), (10, 16)] {
        for length in 0..=20 {
            let goes = length == 0 || length == whole;
            assert_eq!(read(&body(code, &vec![1; length])).is_ok(), goes, "{code}, {length} octets");
        }
    }
    for prefix in [0, 64, 128, 129, 255] {
        let value = [&[1; 16][..], &[prefix]].concat();
        assert_eq!(read(&body(8, &value)).is_ok(), prefix <= 128, "/{prefix}");
    }
    // The reserved bit is no part of the kind; a kind that is not known is left out.
    assert_eq!((read(&body(0x8001, &[1; 4])), read(&body(2, &[1; 4]))), (Ok(1), Ok(0)));
    for count in [31_usize, 32, 33] {
        let many = [&[2, 0, 0, 0][..], &[0, 1, 0, 0].repeat(count)].concat();
        assert_eq!(read(&many), Ok(count.min(32)));
    }
}

#[test]
fn a_message_has_at_most_96_payloads_and_none_that_is_critical_and_unknown() {
    // Vendor IDs, which mean nothing.
    let chain = |count: usize| {
        let more = [kind::VENDOR, 0, 0, 4].repeat(count - 1);
        [&more[..], &[0, 0, 0, 4]].concat()
    };
    for (count, goes) in [(1, true), (95, true), (96, true), (97, false)] {
        assert_eq!(Fields::parse(kind::VENDOR, &chain(count)).is_ok(), goes, "{count}");
    }
    for (this, critical, goes) in [
        (200, 0, true),
        (200, 0x80, false),
        (kind::SK, 0, false),
        (kind::SKF, 0, false),
        (kind::VENDOR, 0x80, true),
    ] {
        let chain = [0, critical, 0, 4];
        let parsed = Fields::parse(this, &chain);
        match goes {
            true => assert!(parsed.is_ok(), "{this}"),
            false => {
                assert!(matches!(parsed, Err(Problem::Critical(of)) if of == this), "{this}: {parsed:?}")
            }
        }
    }
}

#[test]
fn an_offer_has_at_most_64_proposals_of_128_transforms_and_spis_of_known_lengths() {
    let transform =
        |id| Transform { kind: TransformKind::Encryption, id, key_bits: Some(256), understood: true };
    let one = |spi: usize, transforms: u16| Proposal {
        number: 1,
        protocol: Protocol::Esp,
        spi: vec![7; spi],
        transforms: (0..transforms).map(transform).collect(),
    };
    let parsed = |all: &[Proposal]| {
        let mut out = Vec::new();
        Proposal::write_all(all, &mut out);
        Proposal::parse_all(&out)
    };
    for (count, goes) in [(1, true), (63, true), (64, true), (65, false)] {
        let all: Vec<Proposal> = (1..=count).map(|number| Proposal { number, ..one(4, 1) }).collect();
        let read = parsed(&all);
        assert_eq!(read.is_ok(), goes, "{count}");
        assert!(!goes || read.is_ok_and(|read| read == all));
    }
    for (transforms, goes) in [(0, true), (1, true), (128, true), (129, false)] {
        assert_eq!(parsed(&[one(4, transforms)]).is_ok(), goes, "{transforms}");
    }
    for length in 0..=16 {
        assert_eq!(parsed(&[one(length, 1)]).is_ok(), matches!(length, 0 | 4 | 8), "{length}");
    }
}

#[test]
fn what_is_narrowed_is_said_whole_with_a_label_or_without() {
    let ports = |first: u16, last| {
        Selector::new(6, (first, last), IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 9]))
    };
    let all: Vec<Selector> = (1..=64).filter_map(|n| ports(4 * n, 4 * n + 1)).collect();
    let label = SecurityLabel::new(b"s0:c1").expect("a label");
    for (count, left) in [(1, 1), (62, 62), (63, 63), (64, 63)] {
        let narrowed = narrow(&all[..count], &all);
        assert_eq!(narrowed, all[..left]);
        for label in [None, Some(&label)] {
            let mut body = Vec::new();
            TrafficSelectors::write(&narrowed, label, &mut body);
            let read = TrafficSelectors::parse(&body).expect("a payload");
            assert_eq!((read.ranges, read.labels.len()), (narrowed.clone(), usize::from(label.is_some())));
        }
    }
    // (65535, 0) is the RFC's OPAQUE; no other range ends before it begins.
    assert!(ports(u16::MAX, 0).is_some());
    for (first, last) in [(u16::MAX, 1), (u16::MAX - 1, 0), (1, 0)] {
        assert_eq!(ports(first, last), None);
    }
}

#[test]
fn of_two_lengths_of_a_key_in_one_transform_neither_is_understood() {
    // RFC 7296 3.3.5: an attribute of a fixed size, twice; and one with a length of its own.
    let key = |bits: u16| [0x800e_u16.to_be_bytes(), bits.to_be_bytes()].concat();
    let long = [0x000e_u16.to_be_bytes(), 2_u16.to_be_bytes()].concat();
    for (attributes, bits, understood) in [
        (vec![], None, true),
        (key(128), Some(128), true),
        ([key(128), key(256)].concat(), Some(128), false),
        ([long, vec![1, 0]].concat(), None, false),
        ([0x800d_u16.to_be_bytes(), [0, 1]].concat(), None, false),
    ] {
        let length = (8 + attributes.len() as u16).to_be_bytes();
        let transform = [&[0, 0][..], &length, &[1, 0, 0, 20], &attributes].concat();
        let whole = (8 + transform.len() as u16).to_be_bytes();
        let body = [&[0, 0][..], &whole, &[1, 3, 0, 1], &transform].concat();
        let read = Proposal::parse_all(&body).expect("a proposal");
        let [Proposal { transforms, .. }] = &read[..] else { panic!("{read:?}") };
        assert_eq!((transforms[0].key_bits, transforms[0].understood), (bits, understood));
    }
}

#[test]
fn a_payload_of_the_rfcs_is_read_with_the_critical_bit_too() {
    // RFC 7296 2.5: the bit says something of payloads that are not known, and nothing of those that are.
    let (address, selectors) = ([1, 0, 0, 0, 10, 0, 0, 1], [1, 0, 0, 0, 7, 0, 0, 16]);
    let selectors = [&selectors[..], &[0, 0, 0xff, 0xff, 10, 0, 0, 1, 10, 0, 0, 9]].concat();
    for (this, body) in [
        (kind::KE, &[0, 31, 0, 0, 1][..]),
        (kind::ID_I, &address),
        (kind::ID_R, &address),
        (kind::CERT, &[4, 0x30]),
        (kind::CERTREQ, &[4]),
        (kind::AUTH, &[2, 0, 0, 0, 1]),
        (kind::NONCE, &[7; 16]),
        (kind::NOTIFY, &[0, 0, 0x40, 0]),
        (kind::DELETE, &[1, 0, 0, 0]),
        (kind::VENDOR, &[1]),
        (kind::TS_I, &selectors),
        (kind::TS_R, &selectors),
        (kind::CP, &[1, 0, 0, 0]),
        (kind::EAP, &[1, 0, 0, 4]),
    ] {
        for critical in [0, 0x80] {
            let chain = [&[0, critical], &(4 + body.len() as u16).to_be_bytes()[..], body].concat();
            assert!(Fields::parse(this, &chain).is_ok(), "{this} {critical}");
        }
    }
    // RFC 7296 3.6, 3.7: the encoding at the least.
    for this in [kind::CERT, kind::CERTREQ] {
        assert!(matches!(Fields::parse(this, &[0, 0, 0, 4]), Err(Problem::Malformed(_))), "{this}");
    }
}

#[test]
fn a_configuration_asks_answers_sets_or_acknowledges() {
    // RFC 7296 3.15.
    for (code, means) in [
        (0, None),
        (1, Some(CpKind::Request)),
        (2, Some(CpKind::Reply)),
        (3, Some(CpKind::Set)),
        (4, Some(CpKind::Ack)),
        (5, None),
    ] {
        let chain = [0, 0, 0, 8, code, 0, 0, 0];
        let fields = Fields::parse(kind::CP, &chain);
        assert_eq!(fields.ok().and_then(|fields| fields.cp).map(|(kind, _)| kind), means, "{code}");
    }
}

#[test]
fn a_notification_below_16384_is_an_error_and_a_name_is_shown_as_people_write_it() {
    // RFC 7296 3.10.1.
    for (code, error) in [(1, true), (16_383, true), (16_384, false), (40_960, false), (u16::MAX, false)] {
        assert_eq!(NotifyKind::from_code(code).is_error(), error, "{code}");
    }
    let der = [0x30, 0x0c, 0x31, 0x0a, 0x30, 0x08, 0x06, 3, 0x55, 4, 3, 0x0c, 1, b'b'];
    assert_eq!(Identity::DistinguishedName(der.to_vec()).to_string(), "CN=b");
    for (cut, shown) in [(&der[..13], "DN of 13 octets"), (&[&der[..], &[0]].concat(), "DN of 15 octets")] {
        assert_eq!(Identity::DistinguishedName(cut.to_vec()).to_string(), shown);
    }
}
