//! What passes through a tunnel and what does not.

mod common;

use common::*;
use core::time::Duration;

use levee_aead::Library;
use levee_esp::{
    DropReason, Install, InstallError, Outer, PortRange, Route, SaKeys, Sad, SelectorSet, SessionError,
    SessionPolicy, Side, Spi, Suite,
};
use proptest::prelude::*;

fn down(length: usize) -> Vec<u8> {
    packet(ICMP, "10.9.0.1", "10.0.0.2", None, &vec![0x5a; length])
}

fn up(length: usize) -> Vec<u8> {
    packet(ICMP, "10.0.0.2", "10.9.0.1", None, &vec![0xa5; length])
}

/// A tunnel whose server knows where the client is.
fn met(suite: Suite, extended: bool) -> Tunnel {
    let mut tunnel = Tunnel::new(suite, extended, everything());
    let (hello, to) = seal(&mut tunnel.client, &up(1)).unwrap().unwrap();
    assert_eq!(to, server_address());
    assert_eq!(open(&mut tunnel.server, &hello, client_address()).unwrap(), up(1));
    tunnel
}

#[test]
fn every_suite_and_both_number_sizes_carry_both_families_both_ways() {
    for suite in Suite::ALL {
        for extended in [false, true] {
            let mut tunnel = met(suite, extended);
            for length in (0..70).chain([1_380, 9_000]) {
                let (v4, v6) = (down(length), packet(ICMP, "fd00:9::1", "fd00::2", None, &vec![3; length]));
                for inner in [v4, v6] {
                    let (datagram, to) = seal(&mut tunnel.server, &inner).unwrap().unwrap();
                    assert_eq!(to, client_address());
                    assert!(datagram.len().is_multiple_of(4));
                    assert_eq!(open(&mut tunnel.client, &datagram, server_address()).unwrap(), inner);
                }
            }
            assert_eq!(dropped(&tunnel.client.counters) + dropped(&tunnel.server.counters), 0);
            assert_eq!(tunnel.client.counters.packets_in, tunnel.server.counters.packets_out);
            assert_eq!(tunnel.client.counters.bytes_in, tunnel.server.counters.bytes_out);
        }
    }
}

#[test]
fn a_packet_passes_once() {
    let mut tunnel = met(Suite::Aes256Gcm, true);
    let (datagram, _) = seal(&mut tunnel.server, &down(10)).unwrap().unwrap();
    open(&mut tunnel.client, &datagram, server_address()).unwrap();
    for _ in 0..3 {
        assert_eq!(open(&mut tunnel.client, &datagram, server_address()), Err(DropReason::Replay));
    }
    assert_eq!(tunnel.client.counters.dropped(DropReason::Replay), 3);
}

#[test]
fn a_forged_packet_does_not_advance_the_window() {
    let mut tunnel = met(Suite::Aes128Gcm, false);
    let (mut forged, _) = seal(&mut tunnel.server, &down(10)).unwrap().unwrap();
    let (good, _) = seal(&mut tunnel.server, &down(10)).unwrap().unwrap();
    forged[4..8].copy_from_slice(&4_000_000_000_u32.to_be_bytes());
    assert_eq!(open(&mut tunnel.client, &forged, server_address()), Err(DropReason::AuthFailed));
    assert_eq!(open(&mut tunnel.client, &good, server_address()).unwrap(), down(10));
}

#[test]
fn an_unknown_spi_and_a_stump_are_told_apart() {
    let mut tunnel = met(Suite::ChaCha20Poly1305, true);
    let (good, _) = seal(&mut tunnel.client, &up(10)).unwrap().unwrap();
    let with = |spi: u32| [&spi.to_be_bytes(), &good[4..]].concat();
    let mut drops = |bytes: &[u8]| open(&mut tunnel.server, bytes, client_address()).unwrap_err();
    assert_eq!(drops(&with(u32::from(SLOT) << 20 | 0xabcde)), DropReason::UnknownSpi);
    assert_eq!(drops(&with(u32::from(SLOT + 1) << 20 | 1)), DropReason::UnknownSpi);
    assert_eq!(drops(&with(255)), DropReason::UnknownSpi);
    for length in 0..4 {
        assert_eq!(drops(&good[..length]), DropReason::Truncated);
    }
    for length in 4..36 {
        assert_eq!(drops(&good[..length]), DropReason::Truncated, "{length}");
    }
    for cut in 1..4 {
        assert_eq!(drops(&good[..good.len() - cut]), DropReason::Truncated);
    }
    assert_eq!(drops(&good[..good.len() - 4]), DropReason::AuthFailed);
    assert_eq!(open(&mut tunnel.server, &good, client_address()).unwrap(), up(10));
}

#[test]
fn ports_and_protocols_outside_the_selectors_are_dropped_both_ways() {
    let mut https = any_selector("10.9.0.1/32", "10.0.0.2/32");
    https.protocol = Some(TCP);
    https.local_ports = PortRange::only(443);
    let mut tunnel = Tunnel::new(Suite::Aes256Gcm, true, vec![https]);
    // The far end is not bound by selectors of ours: give the client everything.
    let open_policy = SessionPolicy {
        inner: inner(),
        selectors: SelectorSet::new(vec![
            any_selector("0.0.0.0/0", "0.0.0.0/0"),
            any_selector("::/0", "::/0"),
        ]),
        only: None,
    };
    tunnel.client.open_session(1, open_policy).unwrap();
    let allowed = packet(TCP, "10.0.0.2", "10.9.0.1", Some((50_000, 443)), &[0; 16]);
    let reply = packet(TCP, "10.9.0.1", "10.0.0.2", Some((443, 50_000)), &[0; 16]);
    let wrong = [
        packet(TCP, "10.0.0.2", "10.9.0.1", Some((50_000, 80)), &[0; 16]),
        packet(TCP, "10.0.0.2", "10.9.0.1", Some((443, 50_000)), &[0; 16]),
        packet(UDP, "10.0.0.2", "10.9.0.1", Some((50_000, 443)), &[0; 16]),
        packet(TCP, "10.0.0.2", "10.9.0.2", Some((50_000, 443)), &[0; 16]),
        packet(ICMP, "10.0.0.2", "10.9.0.1", None, &[8; 16]),
    ];
    let mut pass = |inner: &[u8]| {
        let (datagram, _) = seal(&mut tunnel.client, inner).unwrap().unwrap();
        open(&mut tunnel.server, &datagram, client_address())
    };
    assert_eq!(pass(&allowed).unwrap(), allowed);
    for inner in &wrong {
        assert_eq!(pass(inner), Err(DropReason::Selector));
    }
    assert!(seal(&mut tunnel.server, &reply).unwrap().is_some());
    let back = [
        packet(TCP, "10.9.0.1", "10.0.0.2", Some((444, 50_000)), &[0; 16]),
        packet(UDP, "10.9.0.1", "10.0.0.2", Some((443, 50_000)), &[0; 16]),
        packet(TCP, "10.9.0.3", "10.0.0.2", Some((443, 50_000)), &[0; 16]),
    ];
    for inner in &back {
        assert_eq!(seal(&mut tunnel.server, inner), Err(DropReason::Selector));
    }
    assert_eq!(tunnel.server.counters.dropped(DropReason::Selector), (wrong.len() + back.len()) as u64);
}

/// The packet with these IPv4 options, or with this IPv6 extension header of options.
fn with_options(mut packet: Vec<u8>, header: u8, options: &[u8]) -> Vec<u8> {
    if packet[0] >> 4 == 4 {
        packet.splice(20..20, options.iter().copied());
        packet[0] += (options.len() / 4) as u8;
        let length = packet.len() as u16;
        packet[2..4].copy_from_slice(&length.to_be_bytes());
        return packet;
    }
    let extension = [&[packet[6], (options.len() / 8) as u8][..], options].concat();
    packet.splice(40..40, extension);
    packet[6] = header;
    let length = packet.len() as u16 - 40;
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet
}

#[test]
fn a_packet_with_a_label_of_its_own_passes_neither_way_whatever_it_says() {
    let mut tunnel = met(Suite::Aes256Gcm, true);
    let cipso = [0x86, 10, 0, 0, 0, 16, 1, 4, 0, 5, 0, 0];
    let calipso = [7, 8, 0, 0, 0, 16, 0, 5, 0xba, 0x55, 1, 2, 0, 0];
    let labelled: [(&str, u8, &[u8]); 9] = [
        ("four", 0, &cipso),
        ("four", 0, &[&[1; 4][..], &cipso].concat()),
        ("four", 0, &[130, 4, 0xab, 0]),
        ("four", 0, &[133, 3, 1, 0]),
        // What cannot be looked through.
        ("four", 0, &[68, 9, 0, 0]),
        ("four", 0, &[68, 1, 0, 0]),
        ("six", 0, &calipso),
        ("six", 60, &calipso),
        ("six", 0, &[1, 5, 0, 0, 0, 0]),
    ];
    let bare: [(&str, u8, &[u8]); 6] = [
        ("four", 0, &[1; 8]),
        ("four", 0, &[68, 4, 5, 0]),
        ("four", 0, &[7, 2, 9, 2]),
        // Behind the end nothing is an option.
        ("four", 0, &[&[0; 4][..], &cipso].concat()),
        ("six", 0, &[1, 4, 0, 0, 0, 0]),
        ("six", 0, &[5, 2, 0, 0, 1, 0]),
    ];
    let ends = |version: &str, up: bool| match (version, up) {
        ("four", true) => ("10.0.0.2", "10.9.0.1"),
        ("four", false) => ("10.9.0.1", "10.0.0.2"),
        (_, true) => ("fd00::2", "fd00:9::1"),
        (_, false) => ("fd00:9::1", "fd00::2"),
    };
    for (all, passes) in [(&labelled[..], false), (&bare[..], true)] {
        for (version, header, options) in all {
            for up in [true, false] {
                let (from, to) = ends(version, up);
                let inner = with_options(packet(UDP, from, to, Some((7, 7)), &[0; 8]), *header, options);
                assert_eq!(levee_esp::Inner::parse(&inner).unwrap().labelled, !passes, "{inner:02x?}");
                let left = if up {
                    seal(&mut tunnel.client, &inner).map(|sealed| sealed.is_some())
                } else {
                    seal(&mut tunnel.server, &inner).map(|sealed| sealed.is_some())
                };
                assert_eq!(left, if passes { Ok(true) } else { Err(DropReason::Labelled) }, "{inner:02x?}");
            }
        }
    }
    assert_eq!(tunnel.server.counters.dropped(DropReason::Labelled), labelled.len() as u64);
    // Two labels are no less than one.
    let two = with_options(packet(UDP, "fd00::2", "fd00:9::1", Some((7, 7)), &[0; 8]), 60, &calipso);
    assert!(levee_esp::Inner::parse(&with_options(two, 0, &calipso)).unwrap().labelled);
    // From a peer that does not look, into one that does.
    let good = packet(UDP, "10.0.0.2", "10.9.0.1", Some((7, 7)), &[0; 20]);
    let labelled = with_options(packet(UDP, "10.0.0.2", "10.9.0.1", Some((7, 7)), &[0; 8]), 0, &cipso);
    assert_eq!(good.len(), labelled.len());
    let way = levee_esp::Inner::parse(&good).unwrap();
    let Ok(Route::Through(mut lane)) = tunnel.client.route(NOW, &way) else { panic!("no way") };
    let mut datagram = vec![0; levee_esp::sealed_length(labelled.len())];
    datagram[levee_esp::ESP_HEADER..][..labelled.len()].copy_from_slice(&labelled);
    lane.seal(&mut datagram, labelled.len()).unwrap();
    assert_eq!(open(&mut tunnel.server, &datagram, client_address()), Err(DropReason::Labelled));
}

#[test]
fn an_inner_address_of_another_session_is_dropped_whatever_the_selectors_say() {
    let mut tunnel = Tunnel::new(Suite::Aes256Gcm, true, vec![any_selector("0.0.0.0/0", "0.0.0.0/0")]);
    // A client that has itself configured with two addresses more.
    let mut addresses = inner();
    addresses.extend([ip("10.0.0.3")]);
    let selectors = SelectorSet::new(vec![any_selector("0.0.0.0/0", "0.0.0.0/0")]);
    tunnel.client.open_session(1, SessionPolicy { inner: addresses, selectors, only: None }).unwrap();
    let spoofed = packet(ICMP, "10.0.0.3", "10.9.0.1", None, &[1; 8]);
    let (datagram, _) = seal(&mut tunnel.client, &spoofed).unwrap().unwrap();
    assert_eq!(open(&mut tunnel.server, &datagram, client_address()), Err(DropReason::Selector));
}

#[test]
fn an_empty_set_of_selectors_lets_nothing_pass() {
    let mut tunnel = Tunnel::new(Suite::Aes256Gcm, true, vec![]);
    assert_eq!(seal(&mut tunnel.server, &down(1)), Err(DropReason::Selector));
    assert_eq!(seal(&mut tunnel.client, &up(1)), Err(DropReason::Selector));
}

#[test]
fn a_later_fragment_passes_where_no_ports_are_asked_for_or_behind_its_first_one() {
    let fragment = |offset: u16, more: bool| {
        let mut bytes = packet(UDP, "10.0.0.2", "10.9.0.1", Some((5, 53)), &[0; 20]);
        bytes[6..8].copy_from_slice(&(offset | u16::from(more) << 13).to_be_bytes());
        bytes
    };
    let fragment6 = |offset: u16, more: u16| {
        let head = [17, 0, (offset << 3 >> 8) as u8, (offset << 3 | more) as u8, 0, 0, 0, 1];
        v6(44, "fd00::2", "fd00:9::1", &[&head[..], &[0, 5, 0, 53], &[0; 20]].concat())
    };
    let mut dns = everything();
    let mut tunnel = Tunnel::new(Suite::Aes256Gcm, true, dns.clone());
    for bytes in [fragment(0, true), fragment(3, true), fragment(6, false), fragment6(0, 1), fragment6(4, 0)]
    {
        let (datagram, _) = seal(&mut tunnel.client, &bytes).unwrap().unwrap();
        assert_eq!(open(&mut tunnel.server, &datagram, client_address()).unwrap(), bytes);
    }
    for selector in &mut dns {
        selector.local_ports = PortRange::only(53);
    }
    tunnel
        .server
        .open_session(1, SessionPolicy { inner: inner(), selectors: SelectorSet::new(dns), only: None })
        .unwrap();
    for (bytes, expected) in [
        (fragment(3, true), Some(DropReason::Fragment)),
        (fragment(0, true), None),
        (fragment(3, true), None),
        (fragment(6, false), None),
        (fragment6(4, 0), Some(DropReason::Fragment)),
        (fragment6(0, 1), None),
        (fragment6(4, 0), None),
    ] {
        let (datagram, _) = seal(&mut tunnel.client, &bytes).unwrap().unwrap();
        assert_eq!(open(&mut tunnel.server, &datagram, client_address()).err(), expected);
    }
}

#[test]
fn ipv6_extension_headers_are_followed_to_the_ports_but_not_for_ever() {
    let mut web = any_selector("fd00:9::/32", "fd00::2/128");
    web.protocol = Some(TCP);
    web.local_ports = PortRange::only(80);
    let mut tunnel = Tunnel::new(Suite::Aes256Gcm, true, vec![web]);
    let chained = |count: usize, port: u16| {
        let mut body = Vec::new();
        for n in 0..count {
            body.extend([if n + 1 == count { TCP } else { 60 }, 0, 1, 4, 0, 0, 0, 0]);
        }
        body.extend(4_000_u16.to_be_bytes());
        body.extend(port.to_be_bytes());
        body.extend([0; 16]);
        v6(if count == 0 { TCP } else { 60 }, "fd00::2", "fd00:9::1", &body)
    };
    for count in 0..=8 {
        assert!(seal(&mut tunnel.client, &chained(count, 80)).unwrap().is_some(), "{count}");
        assert_eq!(seal(&mut tunnel.client, &chained(count, 81)), Err(DropReason::Selector), "{count}");
    }
    assert_eq!(seal(&mut tunnel.client, &chained(9, 80)), Err(DropReason::Malformed));
}

#[test]
fn a_session_without_keys_waits_and_asks_once_a_second() {
    let mut sad: Sad<u32> = Sad::new(Side::Server);
    let policy = SessionPolicy { inner: inner(), selectors: SelectorSet::new(everything()), only: None };
    sad.open_session(1, policy).unwrap();
    assert_eq!(seal(&mut sad, &down(5)), Ok(None));
    assert!(sad.hold(NOW, 1, &down(5)));
    assert!(!sad.hold(NOW, 1, &down(6)));
    assert!(sad.hold(NOW + Sad::<u32>::ASK_AGAIN, 1, &down(7)));
    assert_eq!(sad.release(1).unwrap()[..], down(5)[..]);
    assert!(sad.close_session(1));
    assert_eq!(sad.counters.dropped(DropReason::NoSession), 2, "what still waited");
    assert!(!sad.hold(NOW, 1, &down(7)), "nobody's packets do not wait");
}

#[test]
fn a_session_that_goes_by_one_socket_is_met_by_no_other_and_answers_by_no_other() {
    let mut tunnel = met(Suite::Aes256Gcm, true);
    let (near, far) = (Outer { socket: 1, ..client_address() }, client_address());
    let policy = |only| SessionPolicy { inner: inner(), selectors: SelectorSet::new(everything()), only };
    // What there was may have gone elsewhere.
    tunnel.server.open_session(1, policy(Some(1))).unwrap();
    assert_eq!(tunnel.server.pair_count(), 0);
    let install = |tunnel: &mut Tunnel, n: u32, peer: Option<Outer>| {
        let keys = || SaKeys::new(Suite::Aes128Gcm, &[n as u8; 20]).unwrap();
        let pair = |inbound, outbound, peer| Install {
            session: 1,
            extended: true,
            inbound: (inbound, keys()),
            outbound: (outbound, keys()),
            answered: false,
            peer,
            aggregation: None,
        };
        let (here, there) = (spi(SLOT, n), spi(1, n));
        tunnel.server.install(NOW, pair(here, there, peer), &Library::Ring)?;
        tunnel.client.install(NOW, pair(there, here, Some(server_address())), &Library::Ring)
    };
    assert_eq!(install(&mut tunnel, 70, Some(far)), Err(InstallError::Outside));
    assert_eq!(install(&mut tunnel, 71, None), Ok(()));
    tunnel.client.delete(spi(1, 1)).unwrap();
    let (datagram, _) = seal(&mut tunnel.client, &up(9)).unwrap().unwrap();
    // Elsewhere it is nobody's: it moves no peer and uses up no number.
    assert_eq!(open(&mut tunnel.server, &datagram, far), Err(DropReason::Outside));
    assert_eq!(seal(&mut tunnel.server, &down(1)), Err(DropReason::NoPeer));
    assert_eq!(open(&mut tunnel.server, &datagram, near), Ok(up(9)));
    assert_eq!(seal(&mut tunnel.server, &down(1)).unwrap().unwrap().1, near);
    let (datagram, _) = seal(&mut tunnel.client, &up(9)).unwrap().unwrap();
    assert_eq!(open(&mut tunnel.server, &datagram, far), Err(DropReason::Outside));
    assert_eq!(seal(&mut tunnel.server, &down(1)).unwrap().unwrap().1, near);
    assert_eq!(tunnel.server.counters.dropped(DropReason::Outside), 2);
    // The same again leaves its keys.
    tunnel.server.open_session(1, policy(Some(1))).unwrap();
    assert_eq!(install(&mut tunnel, 72, Some(near)), Ok(()));
    assert_eq!(tunnel.server.pair_count(), 2);
}

#[test]
fn keys_without_a_session_or_under_a_used_spi_are_refused() {
    let mut tunnel = met(Suite::Aes256Gcm, true);
    let mut install = |session, spi: Spi| {
        let keys = || SaKeys::new(Suite::Aes128Gcm, &[9; 20]).unwrap();
        let install = Install {
            session,
            extended: true,
            inbound: (spi, keys()),
            outbound: (Spi::new(5_000).unwrap(), keys()),
            answered: false,
            peer: None,
            aggregation: None,
        };
        tunnel.server.install(NOW, install, &Library::Ring)
    };
    let free = spi(SLOT, 77);
    assert_eq!(install(2, free), Err(InstallError::NoSession));
    assert_eq!(install(1, spi(SLOT, 1)), Err(InstallError::SpiInUse));
    assert_eq!(install(1, free), Ok(()));
    for n in 0..Sad::<u32>::PAIRS_OF_ONE as u32 - 2 {
        assert_eq!(install(1, spi(SLOT, 100 + n)), Ok(()));
    }
    assert_eq!(install(1, spi(SLOT, 99)), Err(InstallError::Full));
}

#[test]
fn two_sessions_never_share_an_inner_address() {
    let mut tunnel = met(Suite::Aes256Gcm, true);
    let policy = SessionPolicy { inner: vec![ip("10.0.0.2")], selectors: SelectorSet::default(), only: None };
    assert_eq!(tunnel.server.open_session(2, policy.clone()), Err(SessionError::AddressInUse));
    assert!(tunnel.server.close_session(1));
    assert_eq!(tunnel.server.open_session(2, policy), Ok(()));
}

#[test]
fn the_end_of_a_session_ends_both_directions_at_once() {
    let mut tunnel = met(Suite::Aes256Gcm, true);
    let (late, _) = seal(&mut tunnel.client, &up(5)).unwrap().unwrap();
    assert!(tunnel.server.close_session(1));
    assert!(!tunnel.server.close_session(1));
    assert_eq!(open(&mut tunnel.server, &late, client_address()), Err(DropReason::UnknownSpi));
    assert_eq!(seal(&mut tunnel.server, &down(5)), Err(DropReason::NoSession));
    assert_eq!(tunnel.server.pair_count(), 0);
}

#[test]
fn a_rekey_loses_no_packet_whichever_end_installs_first() {
    let mut tunnel = met(Suite::Aes256Gcm, true);
    let (old, _) = tunnel.spis();
    let (in_flight_up, _) = seal(&mut tunnel.client, &up(1)).unwrap().unwrap();
    tunnel.rekey(Suite::ChaCha20Poly1305, true);
    // The old pair's direction is known good, so it is used until the new one is heard or settled.
    let (still_old, _) = seal(&mut tunnel.server, &down(1)).unwrap().unwrap();
    assert_eq!(open(&mut tunnel.client, &still_old, server_address()).unwrap(), down(1));
    assert_eq!(open(&mut tunnel.server, &in_flight_up, client_address()).unwrap(), up(1));
    let _ = old;
    // The client deletes the old pair; the new one is all it has.
    let first_to_client = spi(1, 1);
    assert_eq!(tunnel.client.delete(first_to_client), Some(1));
    let (by_new, _) = seal(&mut tunnel.client, &up(2)).unwrap().unwrap();
    assert_eq!(Spi::of(&by_new).unwrap(), spi(SLOT, 2));
    assert_eq!(open(&mut tunnel.server, &by_new, client_address()).unwrap(), up(2));
    // Heard through the new pair: the server follows at once.
    let (reply, _) = seal(&mut tunnel.server, &down(2)).unwrap().unwrap();
    assert_eq!(Spi::of(&reply).unwrap(), spi(1, 2));
    assert_eq!(open(&mut tunnel.client, &reply, server_address()).unwrap(), down(2));
}

#[test]
fn who_answered_a_rekeying_sends_by_the_older_keys_until_it_hears_the_new_or_the_older_are_gone() {
    for heard in [true, false] {
        let mut tunnel = met(Suite::Aes256Gcm, true);
        tunnel.answered = true;
        tunnel.rekey(Suite::Aes256Gcm, true);
        let by = |sad: &mut Sad<u32>, packet: &[u8], after: Duration| {
            Spi::of(&seal_at(NOW + after, sad, packet).unwrap().unwrap().0).unwrap()
        };
        // Its peer may be long in hearing the answer.
        let hour = Duration::from_secs(3_600);
        for after in [Duration::ZERO, Sad::<u32>::SETTLE, hour] {
            assert_eq!(by(&mut tunnel.server, &down(1), after), spi(1, 1), "{after:?}");
        }
        // Who asked knows that the other has them.
        let settled = Sad::<u32>::SETTLE;
        let just_before = settled - Duration::from_nanos(1);
        assert_eq!(by(&mut tunnel.client, &up(1), just_before), spi(SLOT, 1));
        assert_eq!(by(&mut tunnel.client, &up(1), settled), spi(SLOT, 2));
        if heard {
            // Who cannot seal by them says nothing.
            let (by_new, _) = seal_at(NOW + settled, &mut tunnel.client, &up(2)).unwrap().unwrap();
            let mut forged = by_new.clone();
            *forged.last_mut().unwrap() ^= 1;
            assert_eq!(open(&mut tunnel.server, &forged, client_address()), Err(DropReason::AuthFailed));
            assert_eq!(by(&mut tunnel.server, &down(1), hour), spi(1, 1));
            open(&mut tunnel.server, &by_new, client_address()).unwrap();
        } else {
            // The client has asked to close the older: it may still send by it.
            let (late, _) = seal_at(NOW + just_before, &mut tunnel.client, &up(3)).unwrap().unwrap();
            assert!(tunnel.server.retire(NOW, spi(SLOT, 1)) && !tunnel.server.retire(NOW, spi(SLOT, 9)));
            // It may not have taken the newer into use yet.
            assert_eq!(by(&mut tunnel.server, &down(2), just_before), spi(1, 1));
            assert_eq!(by(&mut tunnel.server, &down(2), settled), spi(1, 2));
            assert_eq!(open(&mut tunnel.server, &late, client_address()).unwrap(), up(3));
            assert_eq!(by(&mut tunnel.server, &down(2), settled), spi(1, 2), "whatever comes by it");
            tunnel.server.delete(spi(SLOT, 1)).unwrap();
        }
        assert_eq!(by(&mut tunnel.server, &down(2), Duration::ZERO), spi(1, 2), "{heard}");
        // Where there is nothing else it is used.
        assert!(tunnel.server.retire(NOW, spi(SLOT, 2)));
        assert_eq!(by(&mut tunnel.server, &down(2), settled), spi(1, if heard { 1 } else { 2 }));
    }
}

#[test]
fn the_server_follows_a_peer_that_moves_on_the_newest_authenticated_packet_alone() {
    let mut tunnel = met(Suite::Aes256Gcm, true);
    let (elsewhere, attacker) = (at("203.0.113.5:1234"), at("203.0.113.66:6"));
    let (first, _) = seal(&mut tunnel.client, &up(1)).unwrap().unwrap();
    let (second, _) = seal(&mut tunnel.client, &up(2)).unwrap().unwrap();
    let (mut forged, _) = seal(&mut tunnel.client, &up(3)).unwrap().unwrap();
    open(&mut tunnel.server, &second, elsewhere).unwrap();
    assert_eq!(seal(&mut tunnel.server, &down(1)).unwrap().unwrap().1, elsewhere);
    open(&mut tunnel.server, &first, client_address()).unwrap();
    assert_eq!(
        seal(&mut tunnel.server, &down(1)).unwrap().unwrap().1,
        elsewhere,
        "an older packet says nothing"
    );
    open(&mut tunnel.server, &second, attacker).unwrap_err();
    *forged.last_mut().unwrap() ^= 1;
    open(&mut tunnel.server, &forged, attacker).unwrap_err();
    let (answer, to) = seal(&mut tunnel.server, &down(1)).unwrap().unwrap();
    assert_eq!(to, elsewhere);
    // The workstation stays with the server it was given.
    open(&mut tunnel.client, &answer, attacker).unwrap();
    assert_eq!(seal(&mut tunnel.client, &up(1)).unwrap().unwrap().1, server_address());
}

#[test]
fn congestion_marked_outside_arrives_inside_and_never_where_it_cannot() {
    let mut tunnel = met(Suite::Aes256Gcm, true);
    let mut capable = down(8);
    levee_esp::ecn::set(&mut capable, levee_esp::ecn::ECT_0);
    let mut buffer = seal(&mut tunnel.server, &capable).unwrap().unwrap().0;
    let opened = tunnel.client.open(NOW, &mut buffer, 0, server_address(), levee_esp::ecn::CE).unwrap();
    assert_eq!(levee_esp::ecn::of(&buffer[..opened.inner.length]), levee_esp::ecn::CE);
    let mut buffer = seal(&mut tunnel.server, &down(8)).unwrap().unwrap().0;
    let result = tunnel.client.open(NOW, &mut buffer, 0, server_address(), levee_esp::ecn::CE);
    assert_eq!(result.unwrap_err(), DropReason::Ecn);
}

#[test]
fn a_packet_that_may_not_pass_never_waits_or_asks() {
    let mut sad: Sad<u32> = Sad::new(Side::Server);
    let mut web = any_selector("10.9.0.0/16", "10.0.0.2/32");
    web.protocol = Some(TCP);
    sad.open_session(1, SessionPolicy { inner: inner(), selectors: SelectorSet::new(vec![web]), only: None })
        .unwrap();
    let inner = levee_esp::Inner::parse(&down(1)).unwrap();
    assert!(matches!(sad.route(NOW, &inner), Err(DropReason::Selector)));
    let inner =
        levee_esp::Inner::parse(&packet(TCP, "10.9.0.1", "10.0.0.2", Some((1, 2)), &[0; 16])).unwrap();
    assert!(matches!(sad.route(NOW, &inner), Ok(Route::Wait(1))));
}

proptest! {
    #[test]
    fn a_flipped_bit_anywhere_is_a_counted_drop_and_the_original_still_passes(
        suite in prop::sample::select(&Suite::ALL[..]),
        extended in any::<bool>(),
        length in 0_usize..1_500,
        byte in any::<prop::sample::Index>(),
        bit in 0..8,
    ) {
        let mut tunnel = met(suite, extended);
        let inner = down(length);
        let (datagram, _) = seal(&mut tunnel.server, &inner).unwrap().unwrap();
        let mut flipped = datagram.clone();
        flipped[byte.index(datagram.len())] ^= 1_u8 << bit;
        let before = dropped(&tunnel.client.counters);
        prop_assert!(open(&mut tunnel.client, &flipped, server_address()).is_err());
        prop_assert_eq!(dropped(&tunnel.client.counters), before + 1);
        prop_assert_eq!(open(&mut tunnel.client, &datagram, server_address()).unwrap(), inner);
    }

    #[test]
    fn any_bytes_are_safe_to_open_and_to_send(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        known in any::<bool>(),
        from in 0_usize..320,
        version in prop::sample::select(vec![0x40_u8, 0x45, 0x4f, 0x60, 0x6f, 0x00, 0xf0]),
        next in prop::sample::select(vec![0_u8, 43, 44, 60, 135, 6, 17, 59]),
    ) {
        let mut tunnel = met(Suite::Aes256Gcm, true);
        let mut bytes = bytes;
        if known && bytes.len() >= 4 {
            bytes[..4].copy_from_slice(&spi(SLOT, 1).to_be_bytes());
        }
        let mut buffer = bytes.clone();
        prop_assert!(tunnel.server.open(NOW, &mut buffer, 0, client_address(), 0).is_err());
        let mut buffer = bytes.clone();
        prop_assert!(tunnel.server.open(NOW, &mut buffer, from, client_address(), 3).is_err());
        if let Some(first) = bytes.first_mut() {
            *first = version;
        }
        if let Some(field) = bytes.get_mut(6) {
            *field = next;
        }
        let length = bytes.len();
        if let (Some(field), true) = (bytes.get_mut(2..6), version == 0x45) {
            field[..2].copy_from_slice(&(length as u16).to_be_bytes());
        } else if let (Some(field), Some(rest)) = (bytes.get_mut(4..6), length.checked_sub(40)) {
            field.copy_from_slice(&(rest as u16).to_be_bytes());
        }
        if let Ok(inner) = levee_esp::Inner::parse(&bytes) {
            prop_assert!(inner.length <= bytes.len() && inner.header <= inner.length);
        }
        let _ = seal(&mut tunnel.server, &bytes);
    }
}

#[test]
fn dummies_other_protocols_and_a_wrong_version_are_dropped_each_under_its_name() {
    let mut tunnel = met(Suite::Aes256Gcm, true);
    // A sender with the client's keys that puts any next header on any bytes.
    let (to_server, _) = (spi(SLOT, 1), ());
    let material: Vec<u8> = (0..36_u8).map(|b| b ^ 31 ^ 1).collect();
    let keys = SaKeys::new(Suite::Aes256Gcm, &material).unwrap();
    let mut sender = levee_esp::OutboundSa::new(to_server, &keys, true, &Library::Ring).unwrap();
    let mut send = |bytes: &[u8], next_header: u8| {
        let mut buffer = vec![0; levee_esp::sealed_length(bytes.len())];
        buffer[levee_esp::ESP_HEADER..][..bytes.len()].copy_from_slice(bytes);
        sender.seal(&mut buffer, bytes.len(), next_header).unwrap();
        open(&mut tunnel.server, &buffer, client_address())
    };
    assert_eq!(send(&up(1), 4), Err(DropReason::Replay), "the number that the client used");
    assert_eq!(send(&[], 59), Err(DropReason::Dummy));
    assert_eq!(send(&up(9), 59), Err(DropReason::Dummy));
    assert_eq!(send(&up(9), 17), Err(DropReason::BadNextHeader));
    assert_eq!(send(&up(9), 41), Err(DropReason::Malformed));
    assert_eq!(send(&[], 4), Err(DropReason::Malformed));
    // RFC 4303 2.7: what follows the inner packet's own length is padding against traffic analysis.
    assert_eq!(send(&[up(9), vec![0xee; 100]].concat(), 4), Ok(up(9)));
    let drops = &tunnel.server.counters;
    assert_eq!(drops.dropped(DropReason::Dummy), 2);
    assert_eq!(drops.dropped(DropReason::Malformed), 2);
    assert_eq!(dropped(drops), 6);
}

#[test]
fn parts_of_one_session_at_several_servers_share_its_address_and_a_packet_goes_where_the_selectors_say() {
    let mut sad: Sad<u32> = Sad::new(Side::Workstation);
    let part = |remote: &str| {
        let selectors = SelectorSet::new(vec![any_selector("10.0.0.2/32", remote)]);
        SessionPolicy { inner: vec![ip("10.0.0.2")], selectors, only: None }
    };
    sad.open_session(1, part("10.9.0.1/32")).unwrap();
    sad.open_session(2, part("10.9.0.2/32")).unwrap();
    let goes = |sad: &mut Sad<u32>, to: &str| {
        let packet = packet(ICMP, "10.0.0.2", to, None, &[0; 8]);
        match sad.route(NOW, &levee_esp::Inner::parse(&packet).unwrap()) {
            Ok(Route::Wait(id)) => Some(id),
            _ => None,
        }
    };
    let all = |sad: &mut Sad<u32>| ["10.9.0.1", "10.9.0.2", "10.9.0.3"].map(|to| goes(sad, to));
    assert_eq!(all(&mut sad), [Some(1), Some(2), None]);
    // The first may end before the second.
    sad.close_session(1);
    assert_eq!(all(&mut sad), [None, Some(2), None]);
    sad.close_session(2);
    assert_eq!(all(&mut sad), [None; 3]);
    // On a server, an address belongs to one session.
    let mut sad: Sad<u32> = Sad::new(Side::Server);
    sad.open_session(1, part("10.9.0.1/32")).unwrap();
    assert_eq!(sad.open_session(2, part("10.9.0.2/32")), Err(SessionError::AddressInUse));
}
