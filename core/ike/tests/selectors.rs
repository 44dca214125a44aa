//! Traffic selectors (RFC 7296 3.13.1), held against what they mean: packet by packet, over all pairs of a small world.

use levee_ike::{SecurityLabel, Selector};
use std::net::IpAddr;

const ANY: (u16, u16) = (0, u16::MAX);
const OPAQUE: (u16, u16) = (u16::MAX, 0);

/// Whether a packet of this protocol, with this port or where none can be seen, to this address is meant.
fn matches(of: &Selector, (protocol, port, address): (u8, Option<u16>, IpAddr)) -> bool {
    let (start, end) = of.addresses();
    let by_port = match (of.ports(), port) {
        (ANY, _) | (OPAQUE, None) => true,
        ((first, last), Some(port)) => first <= port && port <= last,
        (_, None) => false,
    };
    let here = start.is_ipv4() == address.is_ipv4() && start <= address && address <= end;
    (of.protocol() == 0 || of.protocol() == protocol) && by_port && here
}

fn address(six: bool, last: u8) -> IpAddr {
    if six { [0xfd00, 0, 0, 0, 0, 0, 0, last.into()].into() } else { [10, 0, 0, last].into() }
}

fn world() -> Vec<Selector> {
    let mut all = Vec::new();
    for protocol in [0, 6, 17] {
        for ports in [ANY, OPAQUE, (0, 0), (2, 4), (3, 3), (4, 6), (5, 5), (u16::MAX, u16::MAX)] {
            for six in [false, true] {
                for (first, last) in [(1, 1), (1, 3), (2, 4), (4, 4)] {
                    let selector = Selector::new(protocol, ports, address(six, first), address(six, last));
                    all.push(selector.expect("a selector"));
                }
            }
        }
    }
    all
}

#[test]
fn what_two_selectors_have_in_common_is_what_both_mean_and_within_is_all_of_it() {
    let all = world();
    let ports = std::iter::once(None).chain((0..=7).chain([u16::MAX]).map(Some));
    let mut packets = Vec::new();
    for port in ports {
        for protocol in [1, 6, 17] {
            for (six, last) in
                [(false, 1), (false, 2), (false, 3), (false, 4), (true, 1), (true, 2), (true, 4)]
            {
                packets.push((protocol, port, address(six, last)));
            }
        }
    }
    for one in &all {
        for other in &all {
            let common = one.intersect(other);
            let mut missing = false;
            for packet in &packets {
                let both = matches(one, *packet) && matches(other, *packet);
                assert_eq!(
                    common.as_ref().is_some_and(|it| matches(it, *packet)),
                    both,
                    "{one:?} {other:?} {packet:?}"
                );
                missing |= matches(one, *packet) && !both;
            }
            // Nothing of it is missing, as far as packets show; a range of ports that is all there are does not pass for any.
            if one.is_within(other) {
                assert!(!missing, "{one:?} {other:?}");
            }
            assert_eq!(one.is_within(other), common.as_ref() == Some(one));
            assert_eq!(common, other.intersect(one));
        }
        assert!(one.is_within(one));
    }
}

#[test]
fn a_network_is_the_addresses_that_begin_as_it_does() {
    for length in 0..=32u8 {
        let net = Selector::subnet([10, 201, 77, 130].into(), length).expect("a network");
        let (start, end) = net.addresses();
        let bits = u32::from_be_bytes([10, 201, 77, 130]);
        let of = |it: IpAddr| if let IpAddr::V4(it) = it { u32::from(it) } else { panic!("IPv4") };
        let begins = |it: u32| length == 0 || it >> (32 - length) == bits >> (32 - length);
        assert!(begins(of(start)) && begins(of(end)), "{length}");
        assert_eq!(u64::from(of(end)) - u64::from(of(start)) + 1, 1 << (32 - length), "{length}");
    }
    let long: IpAddr = "fd12:3456:789a:bcde:f012:3456:789a:bcde".parse().expect("an address");
    for length in 0..=128u8 {
        let (start, end) = Selector::subnet(long, length).expect("a network").addresses();
        let of = |it: IpAddr| if let IpAddr::V6(it) = it { u128::from(it) } else { panic!("IPv6") };
        let begins = |it: u128| length == 0 || it >> (128 - length) == of(long) >> (128 - length);
        assert!(begins(of(start)) && begins(of(end)), "{length}");
        let size = if length == 0 { u128::MAX } else { (1u128 << (128 - length)) - 1 };
        assert_eq!(of(end) - of(start), size, "{length}");
    }
    assert!(Selector::subnet([10, 0, 0, 0].into(), 33).is_none() && Selector::subnet(long, 129).is_none());
    assert_eq!(
        Selector::host([10, 0, 0, 7].into()),
        Selector::subnet([10, 0, 0, 7].into(), 32).expect("one")
    );
}

#[test]
fn a_range_that_ends_before_it_begins_or_in_another_family_is_none() {
    let new = |ports, start: IpAddr, end: IpAddr| Selector::new(0, ports, start, end);
    assert!(new(ANY, address(false, 2), address(false, 1)).is_none());
    assert!(new(ANY, address(false, 2), address(true, 2)).is_none());
    assert!(new((5, 4), address(false, 1), address(false, 2)).is_none());
    assert!(new((u16::MAX, 1), address(false, 1), address(false, 2)).is_none());
    assert!(new((1, 0), address(false, 1), address(false, 2)).is_none());
    assert!(new((5, 5), address(false, 2), address(false, 2)).is_some());
    assert!(new(OPAQUE, address(false, 1), address(false, 2)).is_some());
}

#[test]
fn a_label_is_at_most_1024_octets() {
    let longest = [b'x'; 1_024];
    assert_eq!(SecurityLabel::new(&longest).expect("a label").as_bytes(), longest);
    assert!(SecurityLabel::new(&[b'x'; 1_025]).is_err());
}
