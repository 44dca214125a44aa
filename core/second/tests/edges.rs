//! What the second stack takes and what not, at the ends of each bound, told by hand.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use levee_aead::Library;
use levee_esp::{AeadProvider as _, Suite};
use levee_second::{Half, Outer, Refused, Row, Second};

const SUITE: Suite = Suite::Aes128Gcm;
const NOW: Duration = Duration::from_secs(5);
const SPI: u32 = 0x0010_0042;
const THEIRS: u32 = 0x0777_0001;
const ANY: (u16, u16) = (0, u16::MAX);
/// Sequence numbers that the window covers.
const WINDOW: u64 = 8_192;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn row(local: &str, remote: &str, protocol: Option<u8>, local_ports: (u16, u16)) -> Row {
    let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
    Row { local, remote, protocol, local_ports, remote_ports: ANY }
}

/// Session 1 may have two ports of TCP and of UDP, and everything of ICMP.
fn rows() -> Vec<Row> {
    vec![
        row("10.9.0.0/16", "10.0.0.0/24", Some(6), (80, 81)),
        row("10.9.0.0/16", "10.0.0.0/24", Some(1), ANY),
        row("fd00:9::/32", "fd00::/64", Some(17), (53, 54)),
    ]
}

fn material(way: u8) -> Vec<u8> {
    (0..SUITE.keying_material() as u8).map(|byte| byte ^ way << 7).collect()
}

fn place(n: u8) -> Outer {
    let address: SocketAddr = format!("192.0.2.{n}:4500").parse().unwrap();
    Outer { address, socket: 0 }
}

/// What a tunnel's end makes of this text with this number: 0, the peer's; 1, the server's own.
fn sealed(way: u8, spi: u32, extended: bool, sequence: u64, text: &[u8]) -> Vec<u8> {
    let (material, whole) = (material(way), sequence.to_be_bytes());
    let (key, salt) = material.split_at(SUITE.key_length());
    let mut packet = spi.to_be_bytes().to_vec();
    let aad = [&packet[..], if extended { &whole[..] } else { &whole[4..] }].concat();
    packet.extend([&whole[4..], &whole].concat());
    let nonce = [salt, &whole].concat().try_into().unwrap();
    let mut text = text.to_vec();
    let tag = Library::Ring.key(SUITE, key).unwrap().seal_in_place(&nonce, &aad, &mut text).unwrap();
    packet.extend(text);
    packet.extend(tag);
    packet
}

/// The ESP text of a packet.
fn text(packet: &[u8], kind: u8) -> Vec<u8> {
    let pad = (4 - (packet.len() + 2) % 4) % 4;
    [packet, &[1, 2, 3][..pad], &[pad as u8, kind]].concat()
}

/// So many octets of text that say they are no packet (RFC 4303 2.6).
fn dummy(octets: u8) -> Vec<u8> {
    let padding = octets.saturating_sub(2);
    let text: Vec<u8> = (1..=padding).chain([padding, 59]).collect();
    text[text.len() - usize::from(octets)..].to_vec()
}

/// IPv4 of session 1 to the service, or back.
fn four(inward: bool, protocol: u8, field: u16, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend((20 + body.len() as u16).to_be_bytes());
    packet.extend([0, 7]);
    packet.extend(field.to_be_bytes());
    packet.extend([64, protocol, 0, 0]);
    let (client, service) = ([10, 0, 0, 2], [10, 9, 0, 1]);
    packet.extend(if inward { [client, service] } else { [service, client] }.concat());
    packet.extend(body);
    packet
}

/// IPv6 of session 1 to the service: what stands behind the fixed header, the first of this kind.
fn six(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, body.len() as u8, kind, 64];
    for address in ["fd00::2", "fd00:9::1"] {
        let IpAddr::V6(address) = ip(address) else { unreachable!() };
        packet.extend(address.octets());
    }
    packet.extend(body);
    packet
}

/// One session with one pair, and the last number of either way.
struct One {
    second: Second<u8>,
    extended: bool,
    came: u64,
    left: u64,
}

impl One {
    fn new(extended: bool) -> Self {
        let mut second = Second::default();
        assert!(second.open_session(1, vec![ip("10.0.0.2"), ip("fd00::2")], rows()));
        let mut one = Self { second, extended, came: 0, left: 0 };
        one.install(SPI, THEIRS).unwrap();
        one
    }

    fn install(&mut self, inbound: u32, outbound: u32) -> Result<(), Refused> {
        let (ours, theirs) = (material(0), material(1));
        let half = |spi, material| Half { spi, material };
        let (inbound, outbound) = (half(inbound, &ours), half(outbound, &theirs));
        self.second.install(1, SUITE, self.extended, inbound, outbound, Some(place(1)), &Library::AwsLc)
    }

    fn open_numbered(&mut self, sequence: u64, text: &[u8]) -> bool {
        let datagram = sealed(0, SPI, self.extended, sequence, text);
        self.second.open(NOW, &datagram, place(1), 0).is_some()
    }

    /// Whether this text passes with the next number.
    fn opens(&mut self, text: &[u8]) -> bool {
        self.came += 1;
        self.open_numbered(self.came, text)
    }

    fn agrees(&mut self, sequence: u64, to: Outer) -> bool {
        let packet = four(false, 1, 0, &[8; 8]);
        let datagram = sealed(1, THEIRS, self.extended, sequence, &text(&packet, 4));
        self.second.agrees(NOW, &packet, &datagram, to, 0)
    }

    /// Whether packets go there.
    fn goes_to(&mut self, to: Outer) -> bool {
        self.left += 1;
        self.agrees(self.left, to)
    }
}

/// An echo request of session 1.
fn hello() -> Vec<u8> {
    text(&four(true, 1, 0, &[8; 8]), 4)
}

#[test]
fn a_session_has_addresses_that_no_other_has_and_ports_in_order() {
    let mut second = Second::default();
    let mut opens = |id: u8, addresses: &[&str], rows: Vec<Row>| {
        second.open_session(id, addresses.iter().map(|address| ip(address)).collect(), rows)
    };
    assert!(opens(1, &["10.0.0.2", "fd00::2"], rows()));
    assert!(opens(1, &["10.0.0.2", "fd00::2"], rows()), "the same anew");
    assert!(!opens(2, &["10.0.0.3", "fd00::2"], rows()), "one address is another's");
    assert!(opens(2, &["10.0.0.3"], rows()));
    let with = |local_ports, remote_ports| {
        vec![Row { local_ports, remote_ports, ..row("0.0.0.0/0", "10.0.0.4/32", None, ANY) }]
    };
    assert!(opens(3, &["10.0.0.4"], with((80, 80), (9, 9))));
    assert!(!opens(3, &["10.0.0.4"], with((81, 80), ANY)));
    assert!(!opens(3, &["10.0.0.4"], with(ANY, (81, 80))));
    assert!(!opens(3, &["10.0.0.4"], [rows(), with((1, 0), (1, 0))].concat()));
}

#[test]
fn spis_from_256_on_are_taken_once_and_only_with_keys_of_the_suites_length() {
    let mut one = One::new(true);
    assert_eq!(one.install(255, 0x0777_0002), Err(Refused::Spi));
    assert_eq!(one.install(0x0010_0043, 255), Err(Refused::Spi));
    assert_eq!(one.install(256, 256), Ok(()));
    assert_eq!(one.install(256, 257), Err(Refused::SpiInUse));
    let (whole, short) = (material(0), vec![7; 19]);
    for (id, ours, theirs, why) in [
        (2, &whole, &whole, Refused::NoSession),
        (1, &short, &whole, Refused::Keys),
        (1, &whole, &short, Refused::Keys),
    ] {
        let (inbound, outbound) = (Half { spi: 300, material: ours }, Half { spi: 301, material: theirs });
        let installed = one.second.install(id, SUITE, true, inbound, outbound, None, &Library::AwsLc);
        assert_eq!(installed, Err(why));
    }
}

#[test]
fn a_deleted_pair_opens_nothing_and_the_sessions_other_pair_goes_on() {
    let mut one = One::new(true);
    assert!(one.opens(&hello()) && one.goes_to(place(1)));
    one.install(SPI + 1, THEIRS + 1).unwrap();
    one.second.delete(SPI + 2);
    one.second.delete(SPI);
    assert!(!one.opens(&hello()) && !one.goes_to(place(1)));
    let datagram = sealed(0, SPI + 1, true, 1, &hello());
    assert!(one.second.open(NOW, &datagram, place(1), 0).is_some());
    let packet = four(false, 1, 0, &[8; 8]);
    let datagram = sealed(1, THEIRS + 1, true, 1, &text(&packet, 4));
    assert!(one.second.agrees(NOW, &packet, &datagram, place(1), 0));
    assert_eq!(one.install(SPI, THEIRS), Ok(()), "its SPI is free");
}

#[test]
fn each_number_of_the_window_is_taken_once_and_none_below_it() {
    for (extended, top) in [(false, 10_000), (true, 10_000), (true, (1 << 32) + 5), (true, (1 << 32) + 9_000)]
    {
        let mut one = One::new(extended);
        for (sequence, is) in [
            (0, false),
            (1, true),
            (1, false),
            // The high half is the one that comes next: no jump is of more than 2^32.
            (top / 2 + 1, true),
            (top, true),
            (top, false),
            (top + 1 - WINDOW, true),
            (top + 1 - WINDOW, false),
            (top - WINDOW, false),
            (top + 1, true),
            (top + 1 - WINDOW, false),
            (top + 2 - WINDOW, true),
        ] {
            assert_eq!(one.open_numbered(sequence, &hello()), is, "{sequence} behind {top}, {extended}");
        }
    }
}

#[test]
fn a_number_that_does_not_fit_its_field_is_sent_only_where_numbers_are_extended() {
    let most = u64::from(u32::MAX);
    for extended in [false, true] {
        let mut one = One::new(extended);
        assert!(!one.agrees(0, place(1)) && one.agrees(1, place(1)) && !one.agrees(1, place(1)));
        assert!(one.agrees(most, place(1)), "{extended}");
        assert_eq!(one.agrees(most + 2, place(1)), extended);
        assert_eq!(one.agrees(u64::MAX, place(1)), extended);
    }
}

#[test]
fn the_shortest_text_has_four_octets_and_of_what_is_no_text_no_peer_is_followed() {
    let mut one = One::new(true);
    for octets in 0..=16 {
        let to = place(10 + octets);
        let datagram = sealed(0, SPI, true, u64::from(octets) + 1, &dummy(octets));
        assert!(one.second.open(NOW, &datagram, to, 0).is_none(), "no packet is in it");
        assert_eq!(one.goes_to(to), octets > 0 && octets % 4 == 0, "{octets}");
    }
}

#[test]
fn a_packet_is_of_the_version_that_esp_says_and_from_an_address_of_its_session() {
    let mut one = One::new(true);
    let (echo, query) = (four(true, 1, 0, &[8; 8]), six(17, &[0, 9, 0, 53, 0, 8, 0, 0]));
    assert!(one.opens(&text(&echo, 4)) && !one.opens(&text(&echo, 41)) && !one.opens(&text(&echo, 59)));
    assert!(one.opens(&text(&query, 41)) && !one.opens(&text(&query, 4)));
    let mut others = echo;
    others[15] = 3;
    assert!(!one.opens(&text(&others, 4)), "a row allows it, and it is nobody's address");
}

#[test]
fn a_packet_may_be_its_header_alone_and_no_less() {
    let mut one = One::new(true);
    let bare = four(true, 1, 0, &[]);
    assert!(one.opens(&text(&bare, 4)));
    for (first, length) in [(0x44, 20), (0x45, 19), (0x46, 20), (0x45, 21), (0x40, 20)] {
        let mut harmed = bare.clone();
        (harmed[0], harmed[3]) = (first, length);
        assert!(!one.opens(&text(&harmed, 4)), "{first:x} {length}");
    }
    let mut options = four(true, 1, 0, &[1; 4]);
    options[0] = 0x46;
    assert!(one.opens(&text(&options, 4)));
}

#[test]
fn extension_headers_are_passed_by_at_their_whole_length_and_searched_to_their_end() {
    let mut one = One::new(true);
    for kind in [0, 60, 43, 135] {
        for units in [0_u8, 1, 2, 5] {
            let behind = usize::from(units) * 8;
            let mut passes = |port: u8, options: Vec<u8>| {
                let body = [&[17, units][..], &options, &[0, 9, 0, port, 0, 8, 0, 0]].concat();
                one.opens(&text(&six(kind, &body), 41))
            };
            // Where the ports would be, were the header shorter, stands the port that may not be.
            let padded =
                [[1, 4, 0, 0, 0, 0].to_vec(), [1, 6, 0, 80, 0, 80, 0, 80].repeat(behind / 8)].concat();
            assert!(passes(53, padded.clone()), "{kind} {units}");
            assert!(!passes(80, padded.clone()), "{kind} {units}");
            if behind > 0 && (kind == 0 || kind == 60) {
                let mut labelled = padded;
                let last = labelled.len() - 8;
                labelled[last] = 7;
                assert!(!passes(53, labelled), "a label of CALIPSO at the end of {units} units");
            }
        }
    }
}

#[test]
fn eight_extension_headers_are_followed_and_no_ninth() {
    let mut one = One::new(true);
    for count in 1..=10 {
        let next = |at: usize| if at + 1 == count { 17 } else { 43 };
        let headers = (0..count).flat_map(|at| [next(at), 0, 0, 0, 0, 0, 0, 0]);
        let body: Vec<u8> = headers.chain([0, 9, 0, 53, 0, 8, 0, 0]).collect();
        assert_eq!(one.opens(&text(&six(43, &body), 41)), count <= 8, "{count}");
    }
}

/// A fragment of TCP of session 1, with so many octets from `units` times eight on.
fn fragment(units: u16, octets: usize, more: bool) -> Vec<u8> {
    let mut body = vec![7; octets];
    if units == 0 {
        body[..4].copy_from_slice(&[0, 9, 0, 80]);
    }
    text(&four(true, 6, units | u16::from(more) << 13, &body), 4)
}

#[test]
fn eight_stretches_of_a_datagram_pass_and_no_ninth_but_what_fills_a_hole() {
    let mut one = One::new(true);
    assert!(one.opens(&fragment(0, 24, true)));
    for stretch in 1..8 {
        assert!(one.opens(&fragment(stretch * 10, 16, true)), "{stretch}");
    }
    assert!(!one.opens(&fragment(80, 16, true)), "a ninth");
    assert!(one.opens(&fragment(12, 64, true)), "between the second and the third");
    assert!(one.opens(&fragment(80, 16, true)));
}

#[test]
fn a_long_datagram_passes_in_order_however_many_fragments_it_has() {
    let mut one = One::new(true);
    assert!(one.opens(&fragment(0, 24, true)));
    for units in 3..40 {
        assert!(one.opens(&fragment(units, 8, true)), "{units}");
    }
    assert!(one.opens(&fragment(40, 3, false)));
    assert!(!one.opens(&fragment(40, 3, false)), "it is whole, and forgotten");
}

#[test]
fn a_fragment_has_an_octet_at_least_and_ends_where_a_datagram_may() {
    let mut one = One::new(true);
    assert!(one.opens(&fragment(0, 24, true)));
    assert!(!one.opens(&fragment(3, 0, false)), "nothing, and the end");
    assert!(!one.opens(&fragment(3, 0, true)), "nothing");
    assert!(!one.opens(&fragment(8_191, 8, false)), "an octet too many");
    assert!(one.opens(&fragment(8_191, 7, false)));
}
