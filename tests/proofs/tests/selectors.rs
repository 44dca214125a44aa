//! The model of addresses, ranges and selectors, held to ESP's `AddressRange` and `SelectorSet` and to IKE's `Selector`.

use levee_esp::{
    AddressRange, Direction, Fragment, Inner, IpVersion, Piece, PortRange, Selector as Row, SelectorSet,
    Verdict,
};
use levee_ike::Selector;
use levee_proofs::{Case, Draw, Model, bits, none};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// 33 hexadecimal digits.
fn digits(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => format!("0{:032x}", v4.to_bits()),
        IpAddr::V6(v6) => format!("1{:032x}", v6.to_bits()),
    }
}

fn of(address: IpAddr) -> String {
    format!("#x{}", digits(address))
}

fn of_ports(ports: (u16, u16)) -> String {
    bits(32, u32::from(ports.0) << 16 | u32::from(ports.1))
}

fn of_selector(selector: &Selector) -> String {
    let ((first, last), (start, end)) = (selector.ports(), selector.addresses());
    format!("#x{:02x}{first:04x}{last:04x}{}{}", selector.protocol(), digits(start), digits(end))
}

/// Few addresses of both families, so that they are often the same or beside each other, or any.
fn address(draw: &mut Draw) -> IpAddr {
    let few = draw.one(&[0, 1, 2, 3, 0x0a00_0001, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff]);
    let (wide, shift) = (draw.wide(), draw.below(128));
    match draw.below(6) {
        0 | 1 => Ipv4Addr::from_bits(few).into(),
        2 => Ipv4Addr::from_bits(wide as u32).into(),
        3 => Ipv6Addr::from_bits(few.into()).into(),
        4 => Ipv6Addr::from_bits(!u128::from(few)).into(),
        _ => Ipv6Addr::from_bits(wide >> shift).into(),
    }
}

fn port(draw: &mut Draw) -> u16 {
    let any = draw.number() as u16;
    draw.one(&[0, 0, 1, 2, 3, 443, 65_534, 65_535, 65_535, any])
}

fn ports(draw: &mut Draw) -> (u16, u16) {
    let (first, last) = (port(draw), port(draw));
    draw.one(&[(first, last), (first.min(last), first.max(last)), (0, 65_535), (65_535, 0)])
}

fn addresses(draw: &mut Draw, cases: &mut Vec<Case>) {
    for _ in 0..500 {
        let (first, last, at) = (address(draw), address(draw), address(draw));
        let ends = format!("{} {}", of(first), of(last));
        let range = AddressRange::new(first, last);
        cases.push(Case::truth(format!("(is-range {ends})"), range.is_some()));
        for at in [at, first, last] {
            let contains = |range: AddressRange| {
                Case::truth(format!("(contains {ends} {})", of(at)), range.contains(at))
            };
            cases.extend(range.map(contains));
        }
        let any = draw.number() as u8;
        let length = draw.one(&[0, 1, 31, 32, 33, 64, 127, 128, 129, 255, any, any % 33, any % 129]);
        let given = format!("{} {}", of(at), bits(8, length));
        let prefix = AddressRange::prefix(at, length);
        cases.push(Case::truth(format!("(has-prefix {given})"), prefix.is_some()));
        let subnet = Selector::subnet(at, length);
        assert_eq!(subnet.is_some(), prefix.is_some(), "{at}/{length}");
        if let Some((start, end)) = subnet.map(|subnet| subnet.addresses()) {
            cases.push(Case::written(format!("(subnet-start {given})"), of(start)));
            cases.push(Case::written(format!("(subnet-end {given})"), of(end)));
        }
        if let Some(prefix) = prefix {
            // A range does not say its ends: the model's are the two of which it is.
            let ends = format!("(prefix-first {given}) (prefix-last {given})");
            let [first, last] = [at, address(draw)].map(|at| (at, prefix.contains(at)));
            for (at, code) in [first, last].into_iter().chain(edges(&prefix, at, length)) {
                cases.push(Case::truth(format!("(contains {ends} {})", of(at)), code));
            }
        }
    }
}

/// The addresses at the ends of a prefix, and those just beyond.
fn edges(prefix: &AddressRange, at: IpAddr, length: u8) -> Vec<(IpAddr, bool)> {
    let near: Vec<IpAddr> = match at {
        IpAddr::V4(v4) => {
            let host = u32::MAX.checked_shr(length.into()).unwrap_or(0);
            let (first, last) = (v4.to_bits() & !host, v4.to_bits() | host);
            let near = [Some(first), Some(last), first.checked_sub(1), last.checked_add(1)];
            near.into_iter().flatten().map(|n| Ipv4Addr::from_bits(n).into()).collect()
        }
        IpAddr::V6(v6) => {
            let host = u128::MAX.checked_shr(length.into()).unwrap_or(0);
            let (first, last) = (v6.to_bits() & !host, v6.to_bits() | host);
            let near = [Some(first), Some(last), first.checked_sub(1), last.checked_add(1)];
            near.into_iter().flatten().map(|n| Ipv6Addr::from_bits(n).into()).collect()
        }
    };
    near.into_iter().map(|at| (at, prefix.contains(at))).collect()
}

/// A selector of IKE, and the case of whether there is one.
fn made(draw: &mut Draw, cases: &mut Vec<Case>) -> Option<Selector> {
    let (protocol, ports) = (draw.one(&[0, 6, 6, 17, 255]), ports(draw));
    let (a, b) = (address(draw), address(draw));
    let (start, end) = draw.one(&[(a, b), (a.min(b), a.max(b)), (a, a)]);
    let given = format!("{} {} {}", of_ports(ports), of(start), of(end));
    let code = Selector::new(protocol, ports, start, end);
    cases.push(Case::truth(format!("(is-selector {given})"), code.is_some()));
    let made =
        |code: &Selector| Case::written(format!("(made {} {given})", bits(8, protocol)), of_selector(code));
    cases.extend(code.iter().map(made));
    code
}

fn pair(a: &Selector, b: &Selector, cases: &mut Vec<Case>) -> bool {
    let both = format!("{} {}", of_selector(a), of_selector(b));
    let code = a.intersect(b);
    cases.push(Case::truth(format!("(is-intersect {both})"), code.is_some()));
    let common = |code: &Selector| Case::written(format!("(intersect {both})"), of_selector(code));
    cases.extend(code.iter().map(common));
    cases.push(Case::truth(format!("(is-within {both})"), a.is_within(b)));
    code.is_some()
}

/// Every two rows of ports at the ends of what there is: (65535, 0) is OPAQUE, and no two others have it in common.
fn edges_of_ports(cases: &mut Vec<Case>) {
    let (start, end) = (Ipv4Addr::from_bits(1).into(), Ipv4Addr::from_bits(9).into());
    let all = [0, 1, 65_534, 65_535].map(|first| [0, 1, 65_534, 65_535].map(|last| (first, last)));
    let all: Vec<Selector> =
        all.into_iter().flatten().filter_map(|ports| Selector::new(6, ports, start, end)).collect();
    assert_eq!(all.len(), 11);
    for a in &all {
        for b in &all {
            pair(a, b, cases);
        }
    }
}

fn common(draw: &mut Draw, cases: &mut Vec<Case>) {
    let mut found = 0;
    while found < 400 {
        let (Some(a), Some(b)) = (made(draw, cases), made(draw, cases)) else { continue };
        // With the other's ports or addresses, too, so that they often have something in common.
        let ((start, end), ports) = (a.addresses(), b.ports());
        let near = Selector::new(b.protocol(), ports, start, end).expect("a selector");
        let whole = Selector::new(0, (0, 65_535), start, end).expect("a selector");
        for (a, b) in [(a, b), (a, near), (near, a), (whole, near), (near, whole)] {
            found += usize::from(pair(&a, &b, cases));
        }
    }
}

fn range(draw: &mut Draw, with: IpAddr) -> (AddressRange, String) {
    let any = address(draw);
    let other = if any.is_ipv4() == with.is_ipv4() && draw.below(8) > 0 { any } else { with };
    // Mostly with the packet's address in it.
    let from = if draw.below(6) == 0 { other } else { with };
    let (first, last) = (from.min(other), from.max(other));
    let range = AddressRange::new(first, last).expect("a range");
    (range, format!("{} {}", of(first), of(last)))
}

fn row_ports(draw: &mut Draw, with: u16) -> (PortRange, String) {
    let (first, last) = draw.one(&[(0, 65_535), (with, with), (0, with), (with, 65_535), (5, 9)]);
    (PortRange::new(first, last).expect("ports"), of_ports((first, last)))
}

fn rows(draw: &mut Draw, cases: &mut Vec<Case>) {
    for _ in 0..1_500 {
        let (source, destination) = (address(draw), address(draw));
        let (ports, has_ports, is_later) = ((port(draw), port(draw)), draw.below(3) > 0, draw.below(2) == 0);
        let protocol = draw.one(&[6_u8, 17]);
        let packet = Inner {
            version: IpVersion::V4,
            source,
            destination,
            protocol,
            ports: has_ports.then_some(ports),
            fragment: if is_later { Fragment::Later } else { Fragment::Whole },
            piece: Piece::default(),
            header: 0,
            length: 0,
            labelled: false,
        };
        let is_in = draw.below(2) == 0;
        let (mine, theirs) = if is_in { (destination, source) } else { (source, destination) };
        let (my_port, their_port) = if is_in { (ports.1, ports.0) } else { ports };
        let ((local, local_said), (remote, remote_said)) = (range(draw, mine), range(draw, theirs));
        let (local_ports, local_ports_said) = row_ports(draw, my_port);
        let (remote_ports, remote_ports_said) = row_ports(draw, their_port);
        let of_protocol = draw.one(&[None, Some(6_u8), Some(6)]);
        let row = Row { local, remote, protocol: of_protocol, local_ports, remote_ports };
        let direction = if is_in { Direction::In } else { Direction::Out };
        let code = match SelectorSet::new(vec![row]).verdict(&packet, direction) {
            Verdict::No => 0_u8,
            Verdict::ByTrail => 1,
            Verdict::ByPorts => 2,
            Verdict::Freely => 3,
        };
        let said = format!(
            "(packet {} {} {} {} {has_ports} {is_later})",
            of(source),
            of(destination),
            bits(8, protocol),
            of_ports(ports)
        );
        let term = format!(
            "(verdict {local_said} {remote_said} {} {} {local_ports_said} {remote_ports_said} {said} {is_in})",
            of_protocol.is_none(),
            bits(8, of_protocol.unwrap_or(0)),
        );
        cases.push(Case::bits(term, 4, code));
    }
}

#[test]
fn addresses_and_selectors_are_what_the_model_says() {
    let mut draw = Draw::new(0x7e57_0007);
    let mut cases = Vec::new();
    addresses(&mut draw, &mut cases);
    common(&mut draw, &mut cases);
    edges_of_ports(&mut cases);
    rows(&mut draw, &mut cases);
    assert!(cases.len() > 7_000, "{} cases", cases.len());
    none(&Model::read("selectors").compare(&cases));
}
