//! Both stacks come to the same end with everything: `levee-esp` with ring, this crate with aws-lc-rs.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use levee_aead::Library;
use levee_esp::{
    AddressRange, AeadProvider as _, ESP_HEADER, Inner, Install, Outer, PortRange, Route, SaKeys, Sad,
    Selector, SelectorSet, SessionPolicy, Side, Spi, Suite,
};
use levee_second::{Half, Row, Second};
use proptest::prelude::*;

const SPI: u32 = 0x0010_0042;
const THEIRS: u32 = 0x0777_0001;
const NOW: Duration = Duration::from_secs(5);

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Session 1 may have two ports of TCP and of UDP and everything of ICMP; session 2, at another address, everything.
fn rows() -> [(u8, Vec<IpAddr>, Vec<Row>); 2] {
    let row = |local: &str, remote: &str, protocol, ports| Row {
        local: local.parse().unwrap(),
        remote: remote.parse().unwrap(),
        protocol,
        local_ports: ports,
        remote_ports: (0, 65_535),
    };
    let any = (0, 65_535);
    [
        (
            1,
            vec![ip("10.0.0.2"), ip("fd00::2")],
            vec![
                row("10.9.0.0/16", "10.0.0.2/32", Some(6), (80, 81)),
                row("10.9.0.0/16", "10.0.0.2/32", Some(1), any),
                row("fd00:9::/32", "fd00::2/128", Some(17), (53, 54)),
                row("fd00:9::/32", "fd00::2/128", Some(58), any),
            ],
        ),
        (2, vec![ip("10.0.0.3")], vec![row("0.0.0.0/0", "10.0.0.3/32", None, any)]),
    ]
}

fn place(n: u8) -> (Outer, levee_second::Outer) {
    let address: SocketAddr = format!("192.0.2.{n}:4500").parse().unwrap();
    (Outer { address, socket: usize::from(n % 2) }, levee_second::Outer { address, socket: n % 2 })
}

struct Two {
    first: Sad<u8>,
    second: Second<u8>,
}

impl Two {
    fn new(suite: Suite, extended: bool) -> Self {
        let (mut first, mut second) = (Sad::new(Side::Server), Second::new());
        for (id, inner, rows) in rows() {
            let prefix = |net: ipnet::IpNet| AddressRange::prefix(net.addr(), net.prefix_len()).unwrap();
            let ports = |(from, to)| PortRange::new(from, to).unwrap();
            let selectors = rows.iter().map(|row| Selector {
                local: prefix(row.local),
                remote: prefix(row.remote),
                protocol: row.protocol,
                local_ports: ports(row.local_ports),
                remote_ports: ports(row.remote_ports),
            });
            let policy = SessionPolicy {
                inner: inner.clone(),
                selectors: SelectorSet::new(selectors.collect()),
                only: None,
            };
            first.open_session(id, policy).unwrap();
            assert!(second.open_session(id, inner, rows));
        }
        let keys = |way| SaKeys::new(suite, &material(suite, way)).unwrap();
        let install = Install {
            session: 1,
            extended,
            inbound: (Spi::new(SPI).unwrap(), keys(0)),
            outbound: (Spi::new(THEIRS).unwrap(), keys(1)),
            answered: false,
            peer: None,
            aggregation: None,
        };
        first.install(Duration::ZERO, install, &Library::Ring).unwrap();
        let (inbound, outbound) = (material(suite, 0), material(suite, 1));
        let half = |spi, material| Half { spi, material };
        second
            .install(1, suite, extended, half(SPI, &inbound), half(THEIRS, &outbound), None, &Library::AwsLc)
            .unwrap();
        Self { first, second }
    }

    fn open(&mut self, datagram: &[u8], from: u8, ecn: u8) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let (outer, place) = place(from);
        let mut buffer = datagram.to_vec();
        let one = self.first.open(NOW, &mut buffer, 0, outer, ecn).ok();
        let one = one.map(|opened| buffer[..opened.inner.length].to_vec());
        (one, self.second.open(NOW, datagram, place, ecn).map(|text| text.to_vec()))
    }

    /// What the first stack makes of a packet, where it goes, and its ECN field.
    fn seal(&mut self, packet: &[u8]) -> Option<(Vec<u8>, levee_second::Outer, u8)> {
        self.seal_at(NOW, packet)
    }

    fn seal_at(&mut self, now: Duration, packet: &[u8]) -> Option<(Vec<u8>, levee_second::Outer, u8)> {
        let inner = Inner::parse(packet).ok()?;
        let Ok(Route::Through(mut lane)) = self.first.route(now, &inner) else { return None };
        let mut buffer = vec![0; levee_esp::sealed_length(inner.length)];
        buffer[ESP_HEADER..ESP_HEADER + inner.length].copy_from_slice(&packet[..inner.length]);
        let sealed = lane.seal(&mut buffer, inner.length).ok()?;
        buffer.truncate(sealed.length);
        let to = levee_second::Outer { address: sealed.peer.address, socket: sealed.peer.socket as u8 };
        Some((buffer, to, levee_esp::ecn::of(packet)))
    }
}

fn material(suite: Suite, way: u8) -> Vec<u8> {
    (0..suite.keying_material() as u8).map(|byte| byte ^ way << 7).collect()
}

/// A sealed packet with this number and everything behind the IV as given.
fn sealed(suite: Suite, extended: bool, sequence: u64, text: &[u8]) -> Vec<u8> {
    let material = material(suite, 0);
    let (key, salt) = material.split_at(suite.key_length());
    let whole = sequence.to_be_bytes();
    let mut packet = SPI.to_be_bytes().to_vec();
    let mut aad = packet.clone();
    aad.extend(if extended { &whole[..] } else { &whole[4..] });
    packet.extend(&whole[4..]);
    packet.extend(&whole);
    let nonce = [salt, &whole].concat();
    let mut text = text.to_vec();
    let key = Library::Ring.key(suite, key).unwrap();
    let tag = key.seal_in_place(&nonce.try_into().unwrap(), &aad, &mut text).unwrap();
    packet.extend(text);
    packet.extend(tag);
    packet
}

/// What happens to a datagram.
#[derive(Clone, Debug)]
enum Harm {
    No,
    /// Padding that is not 1, 2, 3, …
    Padding(u8),
    Bit(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Longer(u8),
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        20 => Just(Harm::No),
        1 => any::<u8>().prop_map(Harm::Padding),
        1 => (any::<prop::sample::Index>(), 0_u8..8).prop_map(|(at, bit)| Harm::Bit(at, bit)),
        1 => any::<prop::sample::Index>().prop_map(Harm::Cut),
        1 => (1_u8..9).prop_map(Harm::Longer),
    ]
}

/// Steps of a sequence number, among them ones across the window and across 2^32.
fn step() -> impl Strategy<Value = i64> {
    prop_oneof![
        40 => 1_i64..4,
        6 => -40_i64..40,
        3 => -9_000_i64..9_000,
        1 => prop::sample::select(vec![-8_191_i64, -8_192, 8_191, 8_192, 1 << 31, (1 << 32) - 9_000, 1 << 32]),
    ]
}

/// Packets that may pass, unless congestion was marked on one that takes no part in that.
fn good() -> impl Strategy<Value = (Vec<u8>, u8)> {
    (any::<u8>(), any::<bool>(), prop::collection::vec(any::<u8>(), 8..40)).prop_map(|(class, four, body)| {
        let mut packet = if four {
            let mut head = vec![0x45, class, 0, 20 + body.len() as u8, 0, 7, 0x40, 0, 64, 1, 0x12, 0x34];
            head.extend([10, 0, 0, 2, 10, 9, 0, 1]);
            head
        } else {
            let mut head = vec![0x60 | class >> 4, class << 4, 0, 0, 0, body.len() as u8, 58, 64];
            for address in ["fd00::2", "fd00:9::1"] {
                let IpAddr::V6(address) = ip(address) else { unreachable!() };
                head.extend(address.octets());
            }
            head
        };
        packet.extend(body);
        (packet, if four { 4 } else { 41 })
    })
}

/// Those, and packets of the session and of others, most of them well-formed, some with bytes changed.
fn packet() -> impl Strategy<Value = (Vec<u8>, u8)> {
    prop_oneof![good(), varied()]
}

/// Octets where options stand: labels (CIPSO, RFC 1108, CALIPSO), others, padding, lengths that fit and that do not.
fn options() -> impl Strategy<Value = Vec<u8>> {
    let octet = prop::sample::select(vec![0_u8, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 68, 130, 133, 134, 148]);
    prop_oneof![3 => Just(vec![1, 4, 0, 0, 0, 0, 1, 1]), 2 => prop::collection::vec(octet, 8)]
}

fn varied() -> impl Strategy<Value = (Vec<u8>, u8)> {
    let body = prop::collection::vec(any::<u8>(), 0..40);
    let port = prop::sample::select(vec![0_u16, 53, 54, 79, 80, 80, 80, 80, 81, 65_535]);
    let v4 = (
        any::<u8>(),
        prop::sample::select(vec![0_u16, 0, 0, 0x2000, 0x4000, 0x4000, 0x0007, 0x2007]),
        prop::sample::select(vec![1_u8, 1, 1, 6, 6, 6, 17, 33, 47, 132, 136]),
        prop::sample::select(vec![
            "10.0.0.2", "10.0.0.2", "10.0.0.2", "10.0.0.2", "10.0.0.3", "10.9.0.1", "11.0.0.1",
        ]),
        prop::sample::select(vec![
            "10.9.0.1",
            "10.9.0.1",
            "10.9.255.255",
            "10.9.0.1",
            "10.10.0.0",
            "10.0.0.2",
        ]),
        (port.clone(), port.clone(), body.clone(), 5_u8..8, options()),
    );
    let v4 =
        v4.prop_map(|(class, flags, protocol, from, to, (source, destination, body, words, options))| {
            let header = usize::from(words) * 4;
            let length = header + 4 + body.len();
            let mut packet = vec![0x40 | words, class];
            packet.extend((length as u16).to_be_bytes());
            packet.extend([0, 7]);
            packet.extend(flags.to_be_bytes());
            packet.extend([64, protocol, 0x12, 0x34]);
            for address in [from, to] {
                let IpAddr::V4(address) = ip(address) else { unreachable!() };
                packet.extend(address.octets());
            }
            packet.extend(options.iter().take(header - 20));
            packet.extend(source.to_be_bytes());
            packet.extend(destination.to_be_bytes());
            packet.extend(body);
            (packet, 4)
        });
    let extension = prop_oneof![
        Just(vec![0_u8]),
        Just(vec![60, 43]),
        Just(vec![44]),
        Just(vec![0, 44, 60]),
        Just(vec![60; 8]),
        Just(vec![60; 9])
    ];
    let v6 = (
        any::<u8>(),
        prop_oneof![3 => Just(Vec::new()), 2 => extension],
        prop::sample::select(vec![0_u16, 1, 8, 9]),
        prop::sample::select(vec![58_u8, 58, 17, 6, 59]),
        prop::sample::select(vec!["fd00::2", "fd00::2", "fd00::2", "fd00::3"]),
        prop::sample::select(vec!["fd00:9::1", "fd00:9::1", "fd00:9::1", "fd00:10::1"]),
        (port.clone(), port, body, options()),
    );
    let v6 =
        v6.prop_map(|(class, chain, offset, protocol, from, to, (source, destination, body, options))| {
            let mut inner = Vec::new();
            let kinds: Vec<u8> = chain.iter().copied().chain([protocol]).collect();
            for pair in kinds.windows(2) {
                match pair[0] {
                    44 => inner.extend([&[pair[1], 0][..], &offset.to_be_bytes(), &[0; 4]].concat()),
                    // Of one unit, or of two.
                    _ if options[7] == 1 => inner.extend([&[pair[1], 1], &options[..6], &options].concat()),
                    _ => inner.extend([&[pair[1], 0], &options[..6]].concat()),
                }
            }
            inner.extend(source.to_be_bytes());
            inner.extend(destination.to_be_bytes());
            inner.extend(body);
            let mut packet = vec![0x60 | class >> 4, class << 4, 0, 0];
            packet.extend((inner.len() as u16).to_be_bytes());
            packet.extend([kinds[0], 64]);
            for address in [from, to] {
                let IpAddr::V6(address) = ip(address) else { unreachable!() };
                packet.extend(address.octets());
            }
            packet.extend(inner);
            (packet, 41)
        });
    let junk = prop::collection::vec(any::<u8>(), 0..80).prop_map(|bytes| (bytes, 4));
    let any_packet = prop_oneof![6 => v4, 4 => v6, 1 => junk];
    let changed = prop::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
    (any_packet, changed, prop::option::weighted(0.2, 0_usize..6)).prop_map(
        |((mut packet, kind), change, cut)| {
            if let Some((at, byte)) = change.filter(|_| !packet.is_empty()) {
                let at = at.index(packet.len().min(48));
                packet[at] = byte;
            }
            if let Some(cut) = cut {
                packet.truncate(packet.len().saturating_sub(cut));
            }
            (packet, kind)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn both_find_the_same_in_every_datagram(
        suite in prop::sample::select(Suite::ALL.to_vec()),
        extended in any::<bool>(),
        start in prop_oneof![6 => 0_u64..10, 2 => Just(4_294_967_290), 1 => Just(8_589_934_500), 1 => Just(u64::MAX - 20)],
        datagrams in prop::collection::vec(
            (step(), packet(), harm(), 0_u8..4, 2_u8..4, prop::sample::select(vec![0_u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 59, 144, 6])), 1..60),
    ) {
        let mut two = Two::new(suite, extended);
        let mut sequence = start;
        for (step, (inner, kind), harm, ecn, from, other) in datagrams {
            sequence = sequence.saturating_add_signed(step);
            let pad = (4 - (inner.len() + 2) % 4) % 4;
            let mut text = inner.clone();
            text.extend(1..=pad as u8);
            text.extend([pad as u8, if other == 0 { kind } else { other }]);
            if let Harm::Padding(byte) = harm {
                let at = text.len() - 2;
                text[at] = byte;
            }
            let mut datagram = sealed(suite, extended, sequence, &text);
            match harm {
                Harm::No | Harm::Padding(_) => {}
                Harm::Bit(at, bit) => {
                    let at = at.index(datagram.len());
                    datagram[at] ^= 1 << bit;
                }
                Harm::Cut(at) => datagram.truncate(at.index(datagram.len())),
                Harm::Longer(by) => datagram.extend(vec![0; usize::from(by)]),
            }
            let (one, other) = two.open(&datagram, from, ecn);
            prop_assert_eq!(one, other, "{} {:?} {:?}", sequence, harm, inner);
        }
    }

    #[test]
    fn what_the_first_seals_the_second_agrees_to_once_and_to_nothing_else(
        suite in prop::sample::select(Suite::ALL.to_vec()),
        extended in any::<bool>(),
        packets in prop::collection::vec((packet(), any::<prop::sample::Index>(), 0_u8..8), 1..20),
    ) {
        let mut two = Two::new(suite, extended);
        // The first datagram says where the peer is.
        let hello = hello();
        prop_assert!(two.open(&sealed(suite, extended, 1, &hello), 3, 0).0.is_some());
        for ((mut packet, _), at, bit) in packets {
            // Turned round: from the server to the session.
            match packet.first().map(|first| first >> 4) {
                Some(4) if packet.len() >= 20 => {
                    let (from, to) = packet[12..20].split_at_mut(4);
                    from.swap_with_slice(to);
                }
                Some(6) if packet.len() >= 40 => {
                    let (from, to) = packet[8..40].split_at_mut(16);
                    from.swap_with_slice(to);
                }
                _ => {}
            }
            let Some((sealed, to, ecn)) = two.seal(&packet) else { continue };
            let mut wrong = sealed.clone();
            let place = at.index(wrong.len());
            wrong[place] ^= 1 << bit;
            prop_assert!(!two.second.agrees(NOW, &packet, &wrong, to, ecn), "a bit at {}", place);
            let elsewhere = levee_second::Outer { socket: to.socket ^ 1, ..to };
            prop_assert!(!two.second.agrees(NOW, &packet, &sealed, elsewhere, ecn));
            prop_assert!(two.second.agrees(NOW, &packet, &sealed, to, ecn));
            prop_assert!(!two.second.agrees(NOW, &packet, &sealed, to, ecn), "no sequence number twice");
        }
    }
}

/// An echo request of session 1 with its ESP trailer.
fn hello() -> Vec<u8> {
    let mut text =
        vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 9, 0, 1, 8, 0, 0, 0, 0, 0, 0, 0];
    text.extend([1, 2, 2, 4]);
    text
}

#[test]
fn another_packet_another_mark_and_another_way_out_are_not_agreed_to() {
    let mut two = Two::new(Suite::Aes256Gcm, true);
    assert_eq!(
        two.open(&sealed(Suite::Aes256Gcm, true, 1, &hello()), 3, 0).1.map(|packet| packet.len()),
        Some(28)
    );
    let mut packet = hello()[..28].to_vec();
    packet[12..20].rotate_left(4);
    let (first, to, ecn) = two.seal(&packet).unwrap();
    let mut other = packet.clone();
    other[27] ^= 1;
    assert!(!two.second.agrees(NOW, &other, &first, to, ecn), "another packet than came from the device");
    let (next, ..) = two.seal(&packet).unwrap();
    assert!(!two.second.agrees(NOW, &packet, &next, to, 1), "a mark that the packet has not");
    let (next, ..) = two.seal(&packet).unwrap();
    let away = levee_second::Outer { address: "198.51.100.1:4500".parse().unwrap(), ..to };
    assert!(!two.second.agrees(NOW, &packet, &next, away, ecn), "to somebody else");
    assert!(two.second.agrees(NOW, &packet, &next, to, ecn));
    two.second.close_session(1);
    let (last, ..) = two.seal(&packet).unwrap();
    assert!(!two.second.agrees(NOW, &packet, &last, to, ecn), "of a session that is over");
}

/// A fragment of TCP over IPv4 or of UDP over IPv6, to the service or from it, with so many octets from `units` times eight on.
#[derive(Clone, Copy, Debug)]
struct Cut {
    six: bool,
    inward: bool,
    id: u8,
    units: u16,
    octets: usize,
    more: bool,
    port: u16,
}

impl Cut {
    fn packet(self) -> Vec<u8> {
        let mut body = vec![7; self.octets];
        let ports = if self.inward { [9_000, self.port] } else { [self.port, 9_000] };
        if self.units == 0 {
            for (place, port) in body.chunks_mut(2).zip(ports) {
                place.copy_from_slice(&port.to_be_bytes()[..place.len()]);
            }
        }
        let field = self.units | u16::from(self.more) << 13;
        if !self.six {
            let mut packet = vec![0x45, 0, 0, 20 + self.octets as u8, 0, self.id];
            packet.extend(field.to_be_bytes());
            packet.extend([64, 6, 0, 0]);
            let (from, to) = ([10, 0, 0, 2], [10, 9, 0, 1]);
            packet.extend(if self.inward { [from, to] } else { [to, from] }.concat());
            packet.extend(body);
            return packet;
        }
        let mut packet = vec![0x60, 0, 0, 0, 0, 8 + self.octets as u8, 44, 64];
        let (from, to) = if self.inward { ("fd00::2", "fd00:9::1") } else { ("fd00:9::1", "fd00::2") };
        for address in [from, to] {
            let IpAddr::V6(address) = ip(address) else { unreachable!() };
            packet.extend(address.octets());
        }
        packet.extend([17, 0]);
        packet.extend((self.units << 3 | u16::from(self.more)).to_be_bytes());
        packet.extend([0, 0, 0, self.id]);
        packet.extend(body);
        packet
    }
}

/// The ESP text of a packet.
fn text(packet: &[u8], kind: u8) -> Vec<u8> {
    let pad = (4 - (packet.len() + 2) % 4) % 4;
    let mut text = packet.to_vec();
    text.extend(1..=pad as u8);
    text.extend([pad as u8, kind]);
    text
}

impl Two {
    /// What both say of a fragment now.
    fn judge(&mut self, now: Duration, sequence: u64, cut: Cut) -> (bool, bool) {
        let (suite, packet) = (Suite::Aes128Gcm, cut.packet());
        if cut.inward {
            let datagram = sealed(suite, true, sequence, &text(&packet, if cut.six { 41 } else { 4 }));
            let (outer, place) = place(3);
            let mut buffer = datagram.clone();
            let one = self.first.open(now, &mut buffer, 0, outer, 0).is_ok();
            return (one, self.second.open(now, &datagram, place, 0).is_some());
        }
        let Some((sealed, to, ecn)) = self.seal_at(now, &packet) else {
            // The second one is not asked about what the first one does not seal.
            return (false, false);
        };
        (true, self.second.agrees(now, &packet, &sealed, to, ecn))
    }
}

fn cuts() -> impl Strategy<Value = (u64, Cut)> {
    let wait = prop_oneof![12 => 0_u64..300, 1 => Just(1_999), 1 => Just(2_000)];
    let which = (any::<bool>(), prop::bool::weighted(0.8), 1_u8..4);
    let what = (
        prop_oneof![4 => Just(0_u16), 8 => 1_u16..9],
        prop::sample::select(vec![4_usize, 8, 8, 16, 20, 24, 24, 24]),
        prop::bool::weighted(0.8),
        prop::sample::select(vec![80_u16, 80, 80, 53, 53, 53, 443]),
    );
    (wait, which, what).prop_map(|(wait, (six, inward, id), (units, octets, more, port))| {
        (wait, Cut { six, inward, id, units, octets, more, port })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn both_let_the_same_fragments_pass(cuts in prop::collection::vec(cuts(), 1..80)) {
        let mut two = Two::new(Suite::Aes128Gcm, true);
        prop_assert!(two.open(&sealed(Suite::Aes128Gcm, true, 1, &hello()), 3, 0).0.is_some());
        let mut now = NOW;
        for (number, (wait, cut)) in cuts.into_iter().enumerate() {
            now += Duration::from_millis(wait);
            let (one, other) = two.judge(now, number as u64 + 2, cut);
            prop_assert_eq!(one, other, "{} {:?}", number, cut);
        }
    }
}

#[test]
fn so_many_datagrams_of_a_session_are_under_way_inward_and_neither_lets_another_begin() {
    let mut two = Two::new(Suite::Aes128Gcm, true);
    let mut sequence = 0;
    let mut judged = |now, inward, id, units, more| {
        sequence += 1;
        two.judge(now, sequence, Cut { six: false, inward, id, units, octets: 24, more, port: 80 })
    };
    for id in 0..32 {
        assert_eq!(judged(NOW, true, id, 0, true), (true, true), "{id}");
    }
    assert_eq!(judged(NOW, true, 32, 0, true), (false, false));
    assert_eq!(judged(NOW, true, 3, 3, false), (true, true), "one is whole");
    assert_eq!(judged(NOW, true, 32, 0, true), (true, true));
    assert_eq!(judged(NOW, true, 33, 0, true), (false, false));
    // Outward they are others, and the oldest gives way.
    for id in 0..33 {
        assert_eq!(judged(NOW, false, id, 0, true), (true, true), "{id}");
    }
    assert_eq!(judged(NOW, false, 0, 3, true), (false, false));
    assert_eq!(judged(NOW, false, 1, 3, true), (true, true));
    assert_eq!(judged(NOW, true, 0, 3, true), (true, true), "it is none of those");
    assert_eq!(judged(NOW + Duration::from_secs(2), true, 33, 0, true), (true, true), "all are too old");
    // The shortest that a first one may be: the whole of UDP's header.
    let least = Cut { six: true, inward: true, id: 1, units: 0, octets: 8, more: true, port: 53 };
    assert_eq!(two.judge(NOW + Duration::from_secs(2), 1_000, least), (true, true));
}

/// What is right of a few fragments of one datagram, found by counting octets.
fn right(before: &[Cut], cut: Cut) -> bool {
    let octets = |cut: &Cut| usize::from(cut.units) * 8..usize::from(cut.units) * 8 + cut.octets;
    let (mine, fits) = (octets(&cut), !cut.more || cut.octets.is_multiple_of(8));
    if cut.units == 0 && !cut.more {
        return true;
    }
    if cut.units == 0 || before.is_empty() {
        return fits && before.is_empty() && cut.units == 0 && cut.octets >= 20;
    }
    let others = || before.iter().map(octets);
    let end = before.iter().find(|other| !other.more).map(|other| octets(other).end);
    let covered = others().map(|other| other.end).max().unwrap_or(0);
    fits && others().all(|other| mine.end <= other.start || other.end <= mine.start)
        && end.is_none_or(|end| cut.more && mine.end <= end)
        && (cut.more || covered <= mine.end)
}

#[test]
fn all_sequences_of_four_fragments_are_judged_alike_and_right() {
    let all: Vec<Cut> = [(0, 24), (0, 8), (2, 8), (3, 8), (3, 12), (4, 8), (4, 16), (6, 8)]
        .into_iter()
        .flat_map(|(units, octets)| [true, false].map(|more| (units, octets, more)))
        .map(|(units, octets, more)| Cut { six: false, inward: true, id: 1, units, octets, more, port: 80 })
        .collect();
    let mut two = Two::new(Suite::Aes128Gcm, true);
    let (mut now, mut sequence, mut passed) = (NOW, 1, 0);
    for which in 0..all.len().pow(3) {
        // What was before is forgotten. The first of the four is one that may be.
        now += Duration::from_secs(3);
        let others = [1, 16, 256].map(|step| all[which / step % all.len()]);
        let mut before: Vec<Cut> = Vec::new();
        for cut in std::iter::once(all[0]).chain(others) {
            sequence += 1;
            let whole = || {
                let end =
                    before.iter().find(|cut| !cut.more).map(|cut| usize::from(cut.units) * 8 + cut.octets);
                end == Some(before.iter().map(|cut| cut.octets).sum())
            };
            if !before.is_empty() && whole() {
                before.clear();
            }
            let expected = right(&before, cut);
            assert_eq!(two.judge(now, sequence, cut), (expected, expected), "{cut:?} behind {before:?}");
            if expected && (cut.units > 0 || cut.more) {
                before.push(cut);
                passed += 1;
            }
        }
    }
    assert!(passed > 5_000, "{passed}");
}

/// All sequences of so many of these octets.
fn sequences(of: &[u8], length: u32) -> impl Iterator<Item = Vec<u8>> + '_ {
    (0..of.len().pow(length))
        .map(move |n| (0..length).map(|at| of[n / of.len().pow(at) % of.len()]).collect())
}

#[test]
fn all_short_rows_of_options_are_judged_alike_and_labels_among_them_are_found() {
    let mut two = Two::new(Suite::Aes256Gcm, true);
    let mut sequence = 0;
    let mut passes = |packet: &[u8], kind| {
        sequence += 1;
        let (one, other) = two.open(&sealed(Suite::Aes256Gcm, true, sequence, &text(packet, kind)), 0, 0);
        assert_eq!(one, other, "{packet:02x?}");
        one.is_some()
    };
    let (mut passed, mut refused) = ([0; 2], [0; 2]);
    let mut note =
        |version: usize, whole: bool| if whole { passed[version] += 1 } else { refused[version] += 1 };
    for options in sequences(&[0, 1, 2, 3, 4, 5, 68, 130, 133, 134], 4) {
        let mut packet = vec![0x46, 0, 0, 32, 0, 7, 0x40, 0, 64, 1, 0x12, 0x34, 10, 0, 0, 2, 10, 9, 0, 1];
        packet.extend(&options);
        packet.extend([8; 8]);
        let whole = passes(&packet, 4);
        note(0, whole);
        // One that stands first is found whatever its length says.
        if let [130 | 133 | 134, ..] = options[..] {
            assert!(!whole, "{options:?}");
        }
    }
    for options in sequences(&[0, 1, 2, 4, 5, 7], 5) {
        let mut packet = vec![0x60, 0, 0, 0, 0, 16, 0, 64];
        for address in ["fd00::2", "fd00:9::1"] {
            let IpAddr::V6(address) = ip(address) else { unreachable!() };
            packet.extend(address.octets());
        }
        packet.extend([58, 0]);
        packet.extend(&options);
        packet.push(0);
        packet.extend([128; 8]);
        let whole = passes(&packet, 41);
        note(1, whole);
        if options[0] == 7 {
            assert!(!whole, "{options:?}");
        }
    }
    assert!(passed.iter().chain(&refused).all(|n| *n > 1_000), "{passed:?} {refused:?}");
}
