//! Length arithmetic of IKEv2's messages, and selectors, by every value of a small domain and every value around each edge of a
//! large one, against the sentences of RFC 7296.

use super::payload::{Fields, Shape, shape};
use super::{Chain, Exchange, GENERIC, HEADER, Header, Selector, TrafficSelectors, kind, narrow, within};
use std::net::IpAddr;

/// Every small length, and the edges of 16 bits.
fn claims() -> impl Iterator<Item = u16> {
    (0..=300).chain([0x7fff, 0x8000, 0xfffe, 0xffff])
}

#[test]
fn a_header_is_read_if_it_says_its_datagrams_own_length_and_with_no_other() {
    let header = Header {
        spi_i: 1,
        spi_r: 0,
        next: kind::NONCE,
        exchange: Exchange::Init,
        from_initiator: true,
        response: false,
        message_id: 0,
    };
    for length in 0..=120_usize {
        for claim in claims().map(usize::from).chain([1 << 16 | length, 1 << 24 | length, u32::MAX as usize])
        {
            let mut datagram = header.write(claim).to_vec();
            datagram.resize(length, 0);
            let read = Header::parse(&datagram);
            assert_eq!(read.is_ok(), length >= HEADER && claim == length, "{length} octets that say {claim}");
            if let Ok((read, body)) = read {
                assert_eq!((read, body.len()), (header, length - HEADER));
            }
        }
    }
}

#[test]
fn an_encrypted_payload_is_all_the_rest_of_its_message_or_none() {
    for length in 0..=80_usize {
        for claim in claims() {
            let mut body = vec![kind::NONCE, 0];
            body.extend(claim.to_be_bytes());
            // A fragment's number and total, 1 of 1.
            body.extend([0, 1, 0, 1]);
            body.resize(length, 9);
            let whole = usize::from(claim) == length;
            match shape(kind::SK, &body) {
                Ok(Shape::Sealed { first, data }) => {
                    assert!(whole && length >= GENERIC, "{length} octets that say {claim}");
                    assert_eq!((first, data), (kind::NONCE, &body[GENERIC..]));
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => assert!(!whole || length < GENERIC, "{length} octets that say {claim}"),
            }
            match shape(kind::SKF, &body) {
                Ok(Shape::Fragment { number: 1, total: 1, data, .. }) => {
                    assert!(whole && length >= 8, "{length} octets that say {claim}");
                    assert_eq!(data, &body[8..]);
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => assert!(!whole || length < 8, "{length} octets that say {claim}"),
            }
        }
    }
}

#[test]
fn a_fragment_has_a_number_from_one_to_its_total_and_no_other() {
    let numbers = || (0..=20).chain([0xfe, 0xff, 0x100, 0x101, 0xfffe, 0xffff]);
    for number in numbers() {
        for total in numbers() {
            let fields = [u16::from_be_bytes([kind::NONCE, 0]), 9, number, total];
            let mut body: Vec<u8> = fields.into_iter().flat_map(u16::to_be_bytes).collect();
            body.push(0);
            let read = shape(kind::SKF, &body);
            assert_eq!(read.is_ok(), (1..=total).contains(&number), "{number} of {total}");
        }
    }
}

#[test]
fn a_chain_of_payloads_ends_with_its_message_whatever_lengths_they_say() {
    // Two payloads that may be anything inside, in messages of 0 to 40 octets.
    for length in 0..=40_usize {
        for first in claims() {
            let at = usize::from(first);
            for second in 0..=44_u16 {
                let mut chain = vec![0_u8; length];
                let put = |chain: &mut [u8], at: usize, octets: &[u8]| {
                    for (to, from) in chain.iter_mut().skip(at).zip(octets) {
                        *to = *from;
                    }
                };
                put(&mut chain, at, &[&[0, 0][..], &second.to_be_bytes()].concat());
                put(&mut chain, 0, &[&[kind::VENDOR, 0][..], &first.to_be_bytes()].concat());
                // A first payload of fewer octets than its own header is none.
                let is_right =
                    at >= GENERIC && usize::from(second) >= GENERIC && at + usize::from(second) == length;
                let read = Fields::parse(kind::VENDOR, &chain);
                assert_eq!(read.is_ok(), is_right, "{first} and {second} in {length}");
            }
        }
    }
}

#[test]
fn a_nonce_has_16_to_256_octets() {
    for length in 0..=600_usize {
        let mut chain = Chain::new();
        chain.push(kind::NONCE, |out| out.resize(out.len() + length, 7));
        let read = Fields::parse(chain.first(), chain.bytes());
        assert_eq!(read.is_ok(), (16..=256).contains(&length), "{length}");
    }
}

#[test]
fn a_payload_that_is_written_says_its_own_length_and_what_has_none_is_left_out() {
    for length in (0..=300).chain(65_520..=65_540) {
        let mut chain = Chain::new();
        chain.push(kind::VENDOR, |out| out.resize(out.len() + length, 7));
        chain.push(kind::NONCE, |out| out.resize(out.len() + 16, 7));
        // 65,535 with its header (RFC 7296 3.2).
        let fits = length + GENERIC <= 65_535;
        assert_eq!(chain.first(), if fits { kind::VENDOR } else { kind::NONCE }, "{length}");
        assert_eq!(chain.bytes().len(), if fits { GENERIC + length } else { 0 } + GENERIC + 16);
        let read = Fields::parse(chain.first(), chain.bytes()).expect("what is written can be read");
        assert_eq!(read.nonce, Some(&[7; 16][..]));
    }
}

#[test]
fn a_delete_payload_has_as_many_spis_as_it_says() {
    for (protocol, size) in
        [(0, 0), (0, 4), (1, 0), (1, 4), (2, 0), (2, 4), (3, 0), (3, 3), (3, 4), (3, 8), (4, 4)]
    {
        for count in claims() {
            for spis in 0..=20_usize {
                for more in 0..4_usize {
                    let mut chain = Chain::new();
                    chain.push(kind::DELETE, |out| {
                        out.extend([protocol, size]);
                        out.extend(count.to_be_bytes());
                        out.resize(out.len() + spis * 4 + more, 1);
                    });
                    let read = Fields::parse(chain.first(), chain.bytes());
                    let all = more == 0 && usize::from(count) == spis;
                    let is_right = match (protocol, size) {
                        (1, 0) => all && count == 0,
                        (2 | 3, 4) => all,
                        _ => false,
                    };
                    assert_eq!(read.is_ok(), is_right, "{protocol}, {size}: {count} of {spis} and {more}");
                }
            }
        }
    }
}

#[test]
fn a_traffic_selector_is_as_long_as_its_kind_and_all_lie_within_their_payload() {
    for kind in [0_u8, 6, 7, 8, 9, 10, 11, 255] {
        for length in 0..=60_usize {
            for claim in claims() {
                let mut body = vec![1, 0, 0, 0, kind, 0];
                body.extend(claim.to_be_bytes());
                // Ports and addresses of which each is the same twice; for a label, its octets.
                body.resize(8 + length, 1);
                let whole = usize::from(claim) == 4 + length;
                let is_right = whole
                    && match kind {
                        7 => length == 12,
                        8 => length == 36,
                        10 => length > 0,
                        _ => true,
                    };
                let read = TrafficSelectors::parse(&body);
                assert_eq!(read.is_ok(), is_right, "kind {kind}: {length} octets that say {claim}");
            }
        }
    }
    // As many as the payload says, 1 to 64.
    for count in 0..=u8::MAX {
        for there in 0..=70_usize {
            let mut body = vec![count, 0, 0, 0];
            (0..there).for_each(|_| body.extend([10, 0, 0, 5, b'A']));
            let is_right = usize::from(count) == there && (1..=64).contains(&count);
            assert_eq!(TrafficSelectors::parse(&body).is_ok(), is_right, "{count} of {there}");
        }
    }
}

/// Four addresses, three ports, three protocols.
fn address(n: u8) -> IpAddr {
    [10, 0, 0, n].into()
}

fn selectors() -> Vec<Selector> {
    let mut all = Vec::new();
    for protocol in [0, 6, 17] {
        for (first, last) in [(0, u16::MAX), (0, 0), (0, 1), (1, 1), (1, 2), (2, u16::MAX)] {
            for start in 0..3 {
                for end in start..3 {
                    all.extend(Selector::new(protocol, (first, last), address(start), address(end)));
                }
            }
        }
    }
    all
}

/// By the sentence of RFC 7296 3.13.1.
fn matches(selector: &Selector, protocol: u8, port: u16, of: IpAddr) -> bool {
    let ((first, last), (start, end)) = (selector.ports(), selector.addresses());
    (selector.protocol() == 0 || selector.protocol() == protocol)
        && (first..=last).contains(&port)
        && start <= of
        && of <= end
}

fn packets() -> Vec<(u8, u16, IpAddr)> {
    let mut all = Vec::new();
    for protocol in [1, 6, 17] {
        for port in [0, 1, 2, 3, u16::MAX] {
            all.extend((0..4).map(|n| (protocol, port, address(n))));
        }
    }
    all
}

#[test]
fn what_two_selectors_have_in_common_is_what_both_match_for_every_pair() {
    let (all, packets) = (selectors(), packets());
    for a in &all {
        for b in &all {
            let both = a.intersect(b);
            let mut whole = true;
            for &(protocol, port, of) in &packets {
                let (in_a, in_b) = (matches(a, protocol, port, of), matches(b, protocol, port, of));
                let is = both.is_some_and(|both| matches(&both, protocol, port, of));
                assert_eq!(is, in_a && in_b, "{a:?} and {b:?}: {protocol}, {port}, {of}");
                whole &= !in_a || in_b;
            }
            assert!(!a.is_within(b) || whole, "{a:?} within {b:?}");
            assert_eq!(both.is_some(), b.intersect(a).is_some());
            assert_eq!(within(&[*a], &[*b]), a.is_within(b));
        }
    }
}

#[test]
fn narrowing_leaves_no_packet_that_either_side_refuses_and_loses_none_that_both_have() {
    let (all, packets) = (selectors(), packets());
    // Every pair offered, against some that are allowed.
    for (a, b) in all.iter().zip(all.iter().cycle().skip(7)) {
        for allowed in all.windows(2) {
            let narrowed = narrow(&[*a, *b], allowed);
            assert!(within(&narrowed, allowed) && within(&narrowed, &[*a, *b]));
            for &(protocol, port, of) in &packets {
                let any = |of_these: &[Selector]| of_these.iter().any(|s| matches(s, protocol, port, of));
                assert_eq!(any(&narrowed), any(&[*a, *b]) && any(allowed), "{a:?}, {b:?}, {allowed:?}");
            }
        }
    }
    // A 65th that is offered is not looked at.
    let mut many: Vec<Selector> = (0..64).map(|n| Selector::host([11, 0, 0, n].into())).collect();
    many.push(Selector::host(address(1)));
    let net = [Selector::subnet(address(0), 8).expect("a net")];
    assert_eq!((narrow(&many, &net), narrow(&many[1..], &net)), (vec![], vec![many[64]]));
}
