//! What must never fail, held against a second statement of it for every value of a small domain, or for every value around each edge of
//! a large one. The second statement is the standard's sentence, written as plainly as it can be, and slow.
//!
//! 33 ways to break the code that they are about (an edge moved by one, a comparison turned round, a check left out) were tried, and each was
//! found by one of them, but for three that change nothing: with `top_low == WINDOW - 1` both cases of A2.1 say the same, the highest number
//! seen is marked and so never the newest again, and a packet longer than its buffer is refused a second time where its payload is taken.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use levee_aead::Library;
use levee_esp::aggfrag::Header;
use levee_esp::offload::{Gso, GsoKind, VNET_HEADER, Vnet};
use levee_esp::{
    AddressRange, Direction, DropReason, ESP_HEADER, Fragment, InboundSa, Inner, IpVersion, OutboundSa,
    Piece, PortRange, ReplayWindow, SaKeys, Selector, SelectorSet, Spi, Suite, TAG, TOO_BIG, Verdict, WINDOW,
    sealed_length, too_big,
};

/// Every number within `reach` of one of `middles`, without wrapping.
fn around(middles: &[u64], reach: u64) -> BTreeSet<u64> {
    let near = |middle: &u64| middle.saturating_sub(reach)..=middle.saturating_add(reach);
    middles.iter().flat_map(near).collect()
}

const SUBSPACE: u64 = 1 << 32;

#[test]
fn the_half_that_is_not_sent_is_inferred_as_rfc_4303_a2_1_has_it_at_every_edge_of_the_window() {
    let tops = around(&[0, WINDOW, SUBSPACE, SUBSPACE + WINDOW, 7 * SUBSPACE, 7 * SUBSPACE + WINDOW], 2);
    let last = around(&[u64::MAX - WINDOW, u64::MAX], 2);
    for top in tops.into_iter().chain(last).filter(|top| *top > 0) {
        let mut window = ReplayWindow::new(true);
        window.advance(top).unwrap();
        let edges = [top, top.wrapping_sub(WINDOW), top.wrapping_add(1), 0, SUBSPACE - 1];
        let lows: BTreeSet<u32> = edges
            .iter()
            .flat_map(|e| (0..=6).map(move |n| e.wrapping_add(n).wrapping_sub(3) as u32))
            .collect();
        for low in lows {
            // The one number that ends so, from the bottom of the window on. A window that reaches below zero begins in no subspace
            // before the first.
            let bottom = i128::from(top) - i128::from(WINDOW) + 1;
            let ends = |number: &i128| number.rem_euclid(i128::from(SUBSPACE)) == i128::from(low);
            let subspace = bottom.div_euclid(i128::from(SUBSPACE));
            let whole = (0..=1)
                .map(|more| (subspace + more) * i128::from(SUBSPACE) + i128::from(low))
                .find(|number| *number >= bottom && ends(number))
                .unwrap();
            let expected = u64::try_from(whole).ok().filter(|number| *number > 0 && *number != top);
            assert_eq!(window.check(low).ok(), expected, "{low:#x} at a top of {top:#x}");
        }
    }
}

#[test]
fn short_numbers_are_new_above_the_window_within_it_and_never_below() {
    for top in around(&[1, WINDOW, 2 * WINDOW, SUBSPACE - 1], 2)
        .into_iter()
        .filter(|top| (1..SUBSPACE).contains(top))
    {
        let mut window = ReplayWindow::new(false);
        window.advance(top).unwrap();
        for low in around(&[0, top.saturating_sub(WINDOW), top, SUBSPACE - 1], 3)
            .into_iter()
            .filter(|low| *low < SUBSPACE)
        {
            let fresh = low > 0 && low != top && low + WINDOW > top;
            assert_eq!(window.check(low as u32).ok(), fresh.then_some(low), "{low} at a top of {top}");
        }
    }
}

#[test]
fn every_order_of_numbers_at_the_edges_of_words_and_window_passes_each_once() {
    let ring = (WINDOW / 64 + 1) * 64;
    let numbers =
        [1, 63, 64, 65, WINDOW - 1, WINDOW, WINDOW + 1, ring - 1, ring + 1, ring + 63, 2 * ring + 64];
    let mut orders = vec![Vec::new()];
    for _ in 0..4 {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<u64>| numbers.iter().map(move |n| [&order[..], &[*n]].concat()))
            .collect();
    }
    assert_eq!(orders.len(), numbers.len().pow(4));
    for order in orders {
        let (mut window, mut seen, mut top) = (ReplayWindow::new(true), BTreeSet::new(), 0);
        for number in &order {
            // As it would be if nobody had looked before.
            let fresh = !seen.contains(number) && number + WINDOW > top;
            assert_eq!(window.advance(*number).is_ok(), fresh, "{number} in {order:?}");
            if fresh {
                seen.insert(*number);
                top = top.max(*number);
            }
            assert_eq!(window.top(), top);
        }
        for number in numbers {
            let fresh = !seen.contains(&number) && number + WINDOW > top;
            let checked = window.check(number as u32).is_ok_and(|whole| whole == number);
            assert_eq!(checked, fresh, "{number} after {order:?}");
        }
        assert!(window.advance(0).is_err());
    }
}

/// The first `length` of the bits of two addresses are the same.
fn agree(a: &[u8], b: &[u8], length: usize) -> bool {
    (0..length).all(|bit| (a[bit / 8] ^ b[bit / 8]) >> (7 - bit % 8) & 1 == 0)
}

#[test]
fn a_prefix_of_every_length_contains_what_shares_its_bits_and_nothing_beside() {
    let fours: Vec<Ipv4Addr> =
        [0, 1, 0x0a50_0107, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, u32::MAX].map(Ipv4Addr::from).into();
    let sixes: Vec<Ipv6Addr> =
        [0, 1, 0xfd77 << 112 | 7, u128::MAX >> 1, 1 << 127, u128::MAX].map(Ipv6Addr::from).into();
    let mut held = 0;
    for length in 0..=u8::MAX {
        for base in &fours {
            let prefix = AddressRange::prefix(IpAddr::V4(*base), length);
            assert_eq!(prefix.is_some(), length <= 32);
            let Some(prefix) = prefix else { continue };
            // Each bit turned alone, and some others.
            let turned = (0..32).map(|bit| Ipv4Addr::from(base.to_bits() ^ 1 << bit));
            for other in turned.chain(fours.iter().copied()) {
                let expected = agree(&base.octets(), &other.octets(), usize::from(length));
                assert_eq!(prefix.contains(other.into()), expected, "{other} in {base}/{length}");
                held += 1;
            }
            assert!(sixes.iter().all(|six| !prefix.contains((*six).into())), "another family");
        }
        for base in &sixes {
            let prefix = AddressRange::prefix(IpAddr::V6(*base), length);
            assert_eq!(prefix.is_some(), length <= 128);
            let Some(prefix) = prefix else { continue };
            let turned = (0..128).map(|bit| Ipv6Addr::from(base.to_bits() ^ 1 << bit));
            for other in turned.chain(sixes.iter().copied()) {
                let expected = agree(&base.octets(), &other.octets(), usize::from(length));
                assert_eq!(prefix.contains(other.into()), expected, "{other} in {base}/{length}");
                held += 1;
            }
            assert!(fours.iter().all(|four| !prefix.contains((*four).into())), "another family");
        }
    }
    assert!(held > 100_000);
}

#[test]
fn a_range_of_addresses_is_of_one_family_and_the_right_way_round() {
    let all = ["0.0.0.0", "10.0.0.1", "10.0.0.2", "255.255.255.255", "::", "fd00::1", "fd00::2"];
    let all: Vec<IpAddr> = all.iter().map(|text| text.parse().unwrap()).collect();
    for first in &all {
        for last in &all {
            let range = AddressRange::new(*first, *last);
            assert_eq!(range.is_some(), first.is_ipv4() == last.is_ipv4() && first <= last);
            let Some(range) = range else { continue };
            for address in &all {
                let within = first.is_ipv4() == address.is_ipv4() && first <= address && address <= last;
                assert_eq!(range.contains(*address), within, "{address} in {first}-{last}");
            }
        }
    }
}

fn selector(protocol: Option<u8>, local_ports: PortRange, remote_ports: PortRange) -> Selector {
    let only = |text: &str| AddressRange::new(text.parse().unwrap(), text.parse().unwrap()).unwrap();
    Selector { local: only("10.9.0.1"), remote: only("10.0.0.2"), protocol, local_ports, remote_ports }
}

#[test]
fn a_selector_lets_pass_what_it_says_for_every_combination_of_what_it_can_say() {
    let (here, there, other): (IpAddr, IpAddr, IpAddr) =
        ("10.9.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), "10.9.0.9".parse().unwrap());
    let ranges = [PortRange::ANY, PortRange::only(80), PortRange::new(80, 90).unwrap(), PortRange::only(0)];
    let holds = |range: PortRange, port: u16| match range {
        all if all == PortRange::ANY => true,
        one if one == PortRange::only(80) => port == 80,
        one if one == PortRange::only(0) => port == 0,
        _ => (80..=90).contains(&port),
    };
    let mut seen = [0; 4];
    for protocol in [None, Some(6), Some(17)] {
        for local_ports in ranges {
            for remote_ports in ranges {
                let set = SelectorSet::new(vec![selector(protocol, local_ports, remote_ports)]);
                for (source, destination) in
                    [(here, there), (there, here), (other, there), (here, other), (there, other)]
                {
                    for fragment in [Fragment::Whole, Fragment::First, Fragment::Later] {
                        for carried in [6, 17, 1] {
                            for ports in
                                [None, Some((80, 80)), Some((80, 91)), Some((0, 85)), Some((u16::MAX, 80))]
                            {
                                if fragment == Fragment::Later && ports.is_some() {
                                    continue;
                                }
                                let packet = Inner {
                                    version: IpVersion::V4,
                                    source,
                                    destination,
                                    protocol: carried,
                                    ports,
                                    fragment,
                                    piece: Piece::default(),
                                    header: 20,
                                    length: 40,
                                    labelled: false,
                                };
                                let any = local_ports == PortRange::ANY && remote_ports == PortRange::ANY;
                                let judge = |inward: bool| {
                                    let (local, remote) =
                                        if inward { (destination, source) } else { (source, destination) };
                                    if local != here
                                        || remote != there
                                        || protocol.is_some_and(|p| p != carried)
                                    {
                                        return Verdict::No;
                                    }
                                    match ports {
                                        _ if any => Verdict::Freely,
                                        Some((s, d)) => {
                                            let (l, r) = if inward { (d, s) } else { (s, d) };
                                            let pass = holds(local_ports, l) && holds(remote_ports, r);
                                            if pass { Verdict::ByPorts } else { Verdict::No }
                                        }
                                        None if fragment == Fragment::Later => Verdict::ByTrail,
                                        None => Verdict::No,
                                    }
                                };
                                for (direction, expected) in
                                    [(Direction::In, judge(true)), (Direction::Out, judge(false))]
                                {
                                    assert_eq!(
                                        set.verdict(&packet, direction),
                                        expected,
                                        "{packet:?} by {set:?}"
                                    );
                                    seen[expected as usize] += 1;
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(seen.iter().all(|n| *n > 100), "{seen:?}");
}

#[test]
fn ports_are_within_a_range_from_its_first_to_its_last() {
    let edges = [0, 1, 79, 80, 81, 1023, 1024, u16::MAX - 1, u16::MAX];
    for first in edges {
        for last in edges {
            let range = PortRange::new(first, last);
            assert_eq!(range.is_some(), first <= last);
            let Some(range) = range.filter(|range| *range != PortRange::ANY) else { continue };
            let set = SelectorSet::new(vec![selector(Some(6), range, PortRange::ANY)]);
            for port in 0..=u16::MAX {
                let packet = Inner {
                    version: IpVersion::V4,
                    source: "10.0.0.2".parse().unwrap(),
                    destination: "10.9.0.1".parse().unwrap(),
                    protocol: 6,
                    ports: Some((9, port)),
                    fragment: Fragment::Whole,
                    piece: Piece::default(),
                    header: 20,
                    length: 40,
                    labelled: false,
                };
                let within = first <= port && port <= last;
                let expected = if within { Verdict::ByPorts } else { Verdict::No };
                assert_eq!(set.verdict(&packet, Direction::In), expected);
            }
        }
    }
}

#[test]
fn a_sealed_packet_is_as_long_as_rfc_4303_2_4_asks_for_every_length_and_no_longer() {
    for inner in 0..=usize::from(u16::MAX) {
        let length = sealed_length(inner);
        let text = length - ESP_HEADER - TAG;
        assert!(text.is_multiple_of(4) && text >= inner + 2 && text < inner + 2 + 4, "{inner}");
    }
}

#[test]
fn what_is_sealed_is_opened_for_every_length_of_packet_and_cut_or_altered_anywhere_it_is_not() {
    let spi = Spi::new(0x0070_0001).unwrap();
    let keys = || (16..64).find_map(|n| SaKeys::new(Suite::ALL[0], &vec![7; n])).unwrap();
    for inner in 0..=70 {
        let provider = Library::Ring;
        let mut out = OutboundSa::new(spi, &keys(), true, &provider).unwrap();
        let packet: Vec<u8> = (0..inner).map(|n| n as u8).collect();
        let mut buffer = vec![0; sealed_length(inner)];
        buffer[ESP_HEADER..][..inner].copy_from_slice(&packet);
        assert_eq!(out.seal(&mut buffer, inner, 4), Ok(buffer.len()));
        let open = |mut datagram: Vec<u8>| {
            let mut sa = InboundSa::new(spi, &keys(), true, &provider).unwrap();
            sa.open(&mut datagram, 0).map(|opened| datagram[..opened.length].to_vec())
        };
        assert_eq!(open(buffer.clone()), Ok(packet), "{inner}");
        for length in 0..buffer.len() {
            assert!(open(buffer[..length].to_vec()).is_err(), "{inner} cut to {length}");
        }
        for at in 0..buffer.len() {
            let mut altered = buffer.clone();
            altered[at] ^= 0x10;
            assert!(open(altered).is_err(), "{inner} altered at {at}");
        }
        // Room for one octet less is no room.
        let mut small = vec![0; buffer.len() - 1];
        assert_eq!(out.seal(&mut small, inner, 4), Err(DropReason::Oversize));
    }
}

#[test]
fn an_ipv4_header_is_read_only_within_the_packet_for_every_length_it_can_claim() {
    let mut whole = 0;
    for words in 0..16_u8 {
        for claimed in 0..=72_u16 {
            for there in 0..=72_usize {
                for protocol in [1, 6] {
                    let mut bytes = [0; 80];
                    bytes[0] = 0x40 | words;
                    bytes[2..4].copy_from_slice(&claimed.to_be_bytes());
                    bytes[9] = protocol;
                    let bytes = &bytes[..there];
                    let (header, length) = (usize::from(words) * 4, usize::from(claimed));
                    let has_ports = protocol != 6 || length >= header + 4;
                    let good =
                        there >= 20 && header >= 20 && length >= header && there >= length && has_ports;
                    match Inner::parse(bytes) {
                        Ok(inner) => {
                            assert!(good, "{words} {claimed} {there}");
                            assert_eq!((inner.header, inner.length), (header, length));
                            whole += 1;
                        }
                        Err(why) => {
                            assert!(!good && why == DropReason::Malformed, "{words} {claimed} {there}")
                        }
                    }
                }
            }
        }
    }
    assert!(whole > 10_000);
}

#[test]
fn which_part_of_a_datagram_an_ipv4_packet_is_for_every_value_of_flags_and_offset() {
    for flags in 0..=u16::MAX {
        let mut bytes = [0_u8; 24];
        bytes[0] = 0x45;
        bytes[2..4].copy_from_slice(&24_u16.to_be_bytes());
        bytes[6..8].copy_from_slice(&flags.to_be_bytes());
        bytes[9] = 17;
        let (offset, more) = (flags % 0x2000, flags / 0x2000 % 2 == 1);
        let expected = match (offset, more) {
            (0, false) => Fragment::Whole,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        };
        let inner = Inner::parse(&bytes).unwrap();
        assert_eq!(inner.fragment, expected, "{flags:#x}");
        assert_eq!(inner.ports.is_none(), expected == Fragment::Later);
    }
}

#[test]
fn which_part_of_a_datagram_an_ipv6_packet_is_for_every_value_of_its_fragment_header() {
    for offset in 0..=u16::MAX {
        let mut bytes = [0_u8; 52];
        bytes[0] = 0x60;
        bytes[4..6].copy_from_slice(&12_u16.to_be_bytes());
        bytes[6] = 44;
        bytes[40] = 17;
        bytes[42..44].copy_from_slice(&offset.to_be_bytes());
        let expected = match (offset / 8, offset % 2 == 1) {
            (0, false) => Fragment::Whole,
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        };
        assert_eq!(Inner::parse(&bytes).unwrap().fragment, expected, "{offset:#x}");
    }
}

/// Where the next layer begins, by RFC 8200 4: each extension header has eight octets and eight more for each that it counts, but a
/// fragment header, which has eight.
fn expected_header(packet: &[u8]) -> usize {
    let (mut next, mut at) = (packet[6], 40);
    while [0, 43, 44, 60, 135].contains(&next) {
        let counted = if next == 44 { 0 } else { usize::from(packet[at + 1]) };
        (next, at) = (packet[at], at + 8 + 8 * counted);
    }
    at
}

#[test]
fn a_chain_of_ipv6_headers_ends_within_the_packet_whatever_it_says_of_itself() {
    let kinds = [0_u8, 43, 44, 60, 135, 17, 59, 255];
    let (mut good, mut bad) = (0, 0);
    for chain in 0..kinds.len().pow(3) {
        let of = |n: u32| kinds[chain / kinds.len().pow(n) % kinds.len()];
        for claimed in [0_u8, 1, 2, 255] {
            for body in (0..=40_usize).step_by(4) {
                let mut bytes = vec![0_u8; 40 + body];
                bytes[0] = 0x60;
                bytes[4..6].copy_from_slice(&(body as u16).to_be_bytes());
                bytes[6] = of(0);
                for (at, next) in [(40, of(1)), (48, of(2)), (56, 17)] {
                    if let Some(place) = bytes.get_mut(at..at + 2) {
                        place.copy_from_slice(&[next, if next == 44 { 0 } else { claimed }]);
                    }
                }
                match Inner::parse(&bytes) {
                    Ok(inner) => {
                        assert_eq!(inner.length, bytes.len());
                        assert_eq!(inner.header, expected_header(&bytes), "{bytes:?}");
                        assert!(inner.header <= inner.length);
                        assert!(
                            inner.ports.is_none() || inner.header + 4 <= inner.length,
                            "ports beyond the packet"
                        );
                        good += 1;
                    }
                    Err(why) => {
                        assert_eq!(why, DropReason::Malformed);
                        bad += 1;
                    }
                }
                // One octet less than it says is never a packet.
                assert!(Inner::parse(&bytes[..bytes.len() - 1]).is_err());
            }
        }
    }
    assert!(good > 1_000 && bad > 1_000, "{good} {bad}");
}

#[test]
fn the_header_before_a_tun_devices_packet_is_read_for_every_kind_and_flag() {
    for flags in 0..=u8::MAX {
        for kind in 0..=u8::MAX {
            for size in [0_u16, 1, 1_400, u16::MAX] {
                let mut bytes = [0; VNET_HEADER];
                (bytes[0], bytes[1]) = (flags, kind);
                bytes[4..6].copy_from_slice(&size.to_ne_bytes());
                bytes[6..8].copy_from_slice(&34_u16.to_ne_bytes());
                bytes[8..10].copy_from_slice(&16_u16.to_ne_bytes());
                let of = match kind & 0x7f {
                    0 => Some(None),
                    1 => Some(Some(GsoKind::TcpV4)),
                    4 => Some(Some(GsoKind::TcpV6)),
                    5 => Some(Some(GsoKind::Udp)),
                    _ => None,
                };
                let gso = match of {
                    Some(None) => Ok(None),
                    Some(Some(kind)) if size > 0 => Ok(Some(Gso { kind, size: usize::from(size) })),
                    _ => Err(DropReason::Malformed),
                };
                let checksum = (flags % 2 == 1).then_some((34, 16));
                let expected = gso.map(|gso| Vnet { checksum, gso });
                assert_eq!(Vnet::parse(&bytes), expected, "{flags} {kind} {size}");
                if let Ok(vnet) = expected {
                    assert_eq!(Vnet::parse(&vnet.to_bytes(54)), Ok(vnet));
                }
            }
        }
    }
}

#[test]
fn the_header_of_an_aggfrag_payload_is_read_for_every_kind_and_length() {
    for kind in 0..=u8::MAX {
        for length in 0..=30 {
            for offset in [0_u16, 1, u16::MAX] {
                let mut payload = [0_u8; 32];
                payload[0] = kind;
                payload[2..4].copy_from_slice(&offset.to_be_bytes());
                let expected = match kind {
                    0 if length >= 4 => Some(4),
                    1 if length >= 24 => Some(24),
                    _ => None,
                };
                let read = Header::parse(&payload[..length]).ok();
                assert_eq!(
                    read.map(|header| (header.length, header.offset)),
                    expected.map(|n| (n, usize::from(offset)))
                );
            }
        }
    }
}

#[test]
fn who_sent_too_large_a_packet_is_answered_within_bounds_for_every_length() {
    let mut answered = 0;
    for length in 20..=2_000_usize {
        let mut packet = vec![0x17_u8; length];
        packet[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 9, 0, 1]);
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        let Ok(inner) = Inner::parse(&packet) else { continue };
        let mut out = [0; TOO_BIG];
        if let Some(written) = too_big(&packet, &inner, 1_400, &mut out) {
            // RFC 1812 4.3.2.3: as much as fits 576 octets.
            assert_eq!(written, (length + 28).min(576));
            assert_eq!(Inner::parse(&out[..written]).unwrap().length, written);
            answered += 1;
        }
    }
    assert!(answered > 1_900);
}
