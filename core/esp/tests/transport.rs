//! Transport mode and the authentication header: what comes out is what went in, and nothing that was changed.

mod common;

use common::*;
use levee_aead::Library;
use levee_esp::ah::{AH, AhInbound, AhOutbound};
use levee_esp::transport::{self, ESP};
use levee_esp::{DropReason, InboundSa, Inner, OutboundSa, SaKeys, Spi, Suite};
use proptest::prelude::*;

fn spi() -> Spi {
    Spi::new(0x1234).unwrap()
}

fn ah(extended: bool) -> (AhOutbound, AhInbound) {
    let outbound = AhOutbound::new(spi(), &[7; 32], extended, &Library::Ring).unwrap();
    (outbound, AhInbound::new(spi(), &[7; 32], extended, &Library::AwsLc).unwrap())
}

fn esp(extended: bool) -> (OutboundSa, InboundSa) {
    let keys = SaKeys::new(Suite::Aes128Gcm, &[3; 20]).unwrap();
    let outbound = OutboundSa::new(spi(), &keys, extended, &Library::Ring).unwrap();
    (outbound, InboundSa::new(spi(), &keys, extended, &Library::AwsLc).unwrap())
}

/// With options before what is protected: in IPv4 router alert and a timestamp, in IPv6 hop-by-hop options.
fn with_options(v6: bool, payload: &[u8]) -> Vec<u8> {
    if v6 {
        let mut body = vec![UDP, 1, 5, 2, 0, 0, 0x3e, 8, 1, 2, 3, 4, 5, 6, 7, 8];
        body[6..8].copy_from_slice(&[0x3e, 8]);
        body.extend([0, 5, 0, 9]);
        body.extend(payload);
        return super_v6(&body);
    }
    let plain = packet(UDP, "10.0.0.2", "10.9.0.1", Some((5, 9)), payload);
    let mut bytes = plain[..20].to_vec();
    bytes.extend([148, 4, 0, 0, 68, 8, 9, 0, 1, 2, 3, 4]);
    bytes.extend(&plain[20..]);
    bytes[0] = 0x48;
    let length = bytes.len() as u16;
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    checksummed(bytes)
}

fn super_v6(body: &[u8]) -> Vec<u8> {
    v6(0, "fd00::2", "fd00:9::1", body)
}

/// With a right IPv4 header checksum.
fn checksummed(mut bytes: Vec<u8>) -> Vec<u8> {
    let header = usize::from(bytes[0] & 15) * 4;
    bytes[10..12].fill(0);
    let mut sum: u32 =
        bytes[..header].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    bytes
}

fn some_packet() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop::collection::vec(any::<u8>(), 0..300);
    (any::<bool>(), any::<bool>(), payload).prop_map(|(six, options, payload)| match (six, options) {
        (six, true) => with_options(six, &payload),
        (false, false) => packet(UDP, "10.0.0.2", "10.9.0.1", Some((5, 9)), &payload),
        (true, false) => packet(UDP, "fd00::2", "fd00:9::1", Some((5, 9)), &payload),
    })
}

/// What may change on the way: class, flow label, time to live, checksum, fragmentation flags, the IPv4 timestamp, the
/// IPv6 option 0x3e.
fn on_the_way(mut bytes: Vec<u8>, noise: u8) -> Vec<u8> {
    if bytes[0] >> 4 == 6 {
        bytes[0] = 0x60 | noise & 15;
        bytes[1..4].fill(noise);
        bytes[7] = noise;
        if bytes[6] == 0 {
            bytes[48..56].fill(noise);
        }
        return bytes;
    }
    bytes[1] = noise;
    bytes[6] = noise & 0x40;
    bytes[8] = noise;
    if bytes[0] & 15 > 5 {
        bytes[30] = noise;
    }
    checksummed(bytes)
}

/// Equal but for what may change on the way: of an IPv4 option that may, everything.
fn alike(one: &[u8], other: &[u8]) -> bool {
    let still = |bytes: &[u8]| {
        let mut bytes = on_the_way(bytes.to_vec(), 0);
        if bytes[0] == 0x48 {
            bytes[24..32].fill(0);
            bytes[10..12].fill(0);
        }
        bytes
    };
    // Where the version or the header's length differs there is nothing to compare.
    let head = |bytes: &[u8]| if bytes[0] >> 4 == 4 { bytes[0] } else { bytes[0] & 0xf0 };
    head(one) == head(other) && (head(one) >> 4 == 4 || one[6] == other[6]) && still(one) == still(other)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_packet_comes_through_transport_mode_and_ah_as_it_was(packet in some_packet(), extended in any::<bool>()) {
        let (mut outbound, mut inbound) = esp(extended);
        let sealed = transport::seal(&mut outbound, &packet).unwrap();
        prop_assert_eq!(transport::spi(&sealed), Ok(spi()));
        prop_assert_eq!(Inner::parse(&sealed).unwrap().protocol, ESP);
        prop_assert_eq!(transport::open(&mut inbound, &sealed), Ok(packet.clone()));
        prop_assert_eq!(transport::open(&mut inbound, &sealed), Err(DropReason::Replay));

        let (mut outbound, mut inbound) = ah(extended);
        let signed = outbound.protect(&packet).unwrap();
        prop_assert_eq!(Inner::parse(&signed).unwrap().protocol, AH);
        prop_assert_eq!(inbound.verify(&signed), Ok(packet.clone()));
        prop_assert_eq!(inbound.verify(&signed), Err(DropReason::Replay));

        for (from, to) in [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")] {
            let signed = outbound.protect_in_tunnel(&packet, ip(from), ip(to)).unwrap();
            prop_assert_eq!(Inner::parse(&signed).unwrap().source, ip(from));
            prop_assert_eq!(inbound.verify_in_tunnel(&signed), Ok(packet.clone()));
        }
    }

    #[test]
    fn ah_lets_change_what_routers_change_and_nothing_else(
        packet in some_packet(),
        noise in any::<u8>(),
        byte in any::<prop::sample::Index>(),
        bit in 0..8,
    ) {
        let (mut outbound, mut inbound) = ah(true);
        let signed = outbound.protect(&packet).unwrap();
        let changed = on_the_way(signed.clone(), noise);
        prop_assert!(inbound.verify(&changed).is_ok());

        let (mut outbound, mut inbound) = ah(true);
        let signed = outbound.protect(&packet).unwrap();
        let mut harmed = signed.clone();
        let byte = byte.index(harmed.len());
        harmed[byte] ^= 1_u8 << bit;
        if !alike(&harmed, &signed) {
            prop_assert!(inbound.verify(&harmed).is_err(), "byte {byte} bit {bit}");
        }
    }

    #[test]
    fn any_bytes_are_safe(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        first in prop::sample::select(vec![0x45_u8, 0x48, 0x60]),
        protocol in prop::sample::select(vec![50_u8, 51, 0, 43, 60, 17]),
    ) {
        if bytes.len() >= 40 {
            let length = bytes.len() as u16;
            bytes[0] = first;
            if first == 0x60 {
                bytes[4..6].copy_from_slice(&(length - 40).to_be_bytes());
                bytes[6] = protocol;
            } else {
                bytes[2..4].copy_from_slice(&length.to_be_bytes());
                bytes[6..8].fill(0);
                bytes[9] = protocol;
            }
        }
        let _ = transport::open(&mut esp(true).1, &bytes);
        let _ = transport::seal(&mut esp(true).0, &bytes);
        let _ = ah(true).1.verify(&bytes);
        let _ = ah(true).1.verify_in_tunnel(&bytes);
        let _ = ah(true).0.protect(&bytes);
        let _ = ah(true).0.protect_in_tunnel(&bytes, ip("192.0.2.1"), ip("192.0.2.2"));
    }
}

#[test]
fn fragments_are_not_for_transport_mode() {
    let mut fragment = packet(UDP, "10.0.0.2", "10.9.0.1", Some((5, 9)), &[0; 40]);
    fragment[6] = 0x20;
    assert_eq!(transport::seal(&mut esp(true).0, &fragment), Err(DropReason::Fragment));
    assert_eq!(ah(true).0.protect(&fragment), Err(DropReason::Fragment));
}

#[test]
fn another_association_and_another_protocol_are_told_apart() {
    let plain = packet(UDP, "10.0.0.2", "10.9.0.1", Some((5, 9)), &[0; 40]);
    let (mut outbound, mut inbound) = ah(false);
    assert_eq!(inbound.verify(&plain), Err(DropReason::BadNextHeader));
    assert_eq!(transport::open(&mut esp(false).1, &plain), Err(DropReason::BadNextHeader));
    let mut other = AhInbound::new(Spi::new(0x9999).unwrap(), &[7; 32], false, &Library::Ring).unwrap();
    assert_eq!(other.verify(&outbound.protect(&plain).unwrap()), Err(DropReason::UnknownSpi));
    assert_eq!(
        inbound.verify_in_tunnel(&outbound.protect(&plain).unwrap()),
        Err(DropReason::Malformed),
        "no packet"
    );
    let mut routed = plain[..20].to_vec();
    routed.extend([131, 7, 4, 1, 2, 3, 4, 0]);
    routed.extend(&plain[20..]);
    routed[0] = 0x47;
    let length = routed.len() as u16;
    routed[2..4].copy_from_slice(&length.to_be_bytes());
    assert_eq!(outbound.protect(&checksummed(routed)), Err(DropReason::Malformed), "a source route");
}

/// RFC 4303 3.1.1: destination options may stand before it as well, where the peer put them.
#[test]
fn behind_destination_options_or_a_routing_header_it_is_found() {
    let plain = packet(UDP, "fd00::2", "fd00:9::1", Some((5, 9)), &[7; 40]);
    for (header, number) in
        [([0, 0, 1, 4, 0, 0, 0, 0], 60), ([0, 0, 4, 0, 0, 0, 0, 0], 43), ([0, 0, 1, 4, 0, 0, 0, 0], 0)]
    {
        let before = |packet: &[u8]| {
            let mut header = header;
            header[0] = packet[6];
            v6(number, "fd00::2", "fd00:9::1", &[&header, &packet[40..]].concat())
        };
        let (mut outbound, mut inbound) = esp(true);
        let sealed = before(&transport::seal(&mut outbound, &plain).unwrap());
        assert_eq!(transport::spi(&sealed), Ok(spi()), "{number}");
        assert_eq!(transport::open(&mut inbound, &sealed), Ok(before(&plain)), "{number}");
        // Of its own accord it puts itself behind what is for the way, and before what is for the destination.
        let sealed = transport::seal(&mut outbound, &before(&plain)).unwrap();
        assert_eq!(sealed[6], if number == 60 { ESP } else { number });
        assert_eq!(transport::open(&mut inbound, &sealed), Ok(before(&plain)), "{number}");
    }
}
