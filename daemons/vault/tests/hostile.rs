//! What a vault does with what it should not get.

mod common;

use std::os::fd::AsFd;
use std::time::Duration;

use common::peer::{Peer, echo, install, packet, ports, server_spi};
use common::*;
use levee_ipc::vault::{
    KeyerToVault, Refusal, SessionRecord, SessiondToVault, VaultToKeyer, VaultToSessiond,
};
use levee_ipc::warden::Place;
use levee_policy::site::Cipher;

const SECOND: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(150);

/// A bench whose server has a session and pair 1 with a peer in this test.
fn hostile(vnet: bool) -> (Bench, Peer) {
    let bench = Bench::with(vnet, false);
    bench.server.vault.open(record(session(1), Place::Server));
    assert!(matches!(
        install(&bench.server.vault, session(1), 1, server_spi(1)),
        VaultToKeyer::Installed { spi } if spi == server_spi(1)
    ));
    let peer = Peer::new(&bench.client, bench.server.group.address(), 1);
    (bench, peer)
}

/// The peer is answered: the tunnel is alive.
fn answered(peer: &mut Peer, number: u16) -> bool {
    let request = peer.seal(&echo(CLIENT_INNER, SERVER_INNER, number));
    peer.send(&request);
    peer.receive(SECOND).is_some_and(|reply| reply[20] == 0 && reply[26..28] == number.to_be_bytes())
}

#[test]
fn bad_datagrams_are_dropped_and_counted_by_reason_and_harm_nobody() {
    for vnet in [false, true] {
        let (bench, mut peer) = hostile(vnet);
        let vault = &bench.server.vault;
        assert!(answered(&mut peer, 1));
        let good = peer.seal(&echo(CLIENT_INNER, SERVER_INNER, 2));
        let spi = |spi: u32| [&spi.to_be_bytes()[..], &good[4..]].concat();
        let flipped = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            bytes
        };
        let cases: Vec<(&str, Vec<u8>)> = vec![
            ("unknown-spi", spi(server_spi(99))),
            ("truncated", good[..8].to_vec()),
            ("truncated", good[..35].to_vec()),
            ("truncated", good[..good.len() - 1].to_vec()),
            ("auth-failed", flipped(7)),
            ("auth-failed", flipped(12)),
            ("auth-failed", flipped(20)),
            ("auth-failed", flipped(good.len() - 1)),
            ("auth-failed", good[..good.len() - 4].to_vec()),
        ];
        let passed = vault.count("packets-in");
        for (reason, datagram) in &cases {
            let before = vault.count(reason);
            peer.send(datagram);
            vault.reaches(reason, before + 1);
        }
        assert_eq!(vault.count("packets-in"), passed);
        peer.send(&good);
        assert!(peer.receive(SECOND).is_some());
        for _ in 0..3 {
            peer.send(&good);
        }
        vault.reaches("replay", 3);
        assert_eq!(peer.receive(SHORT), None, "nothing passes twice");
        assert!(answered(&mut peer, 3));
    }
}

#[test]
fn inner_packets_outside_the_selectors_are_dropped_both_ways() {
    let (bench, mut peer) = hostile(false);
    let mut only_web = record(session(1), Place::Server);
    only_web.selectors.truncate(1);
    only_web.selectors[0].protocol = Some(6);
    only_web.selectors[0].local_ports = (80, 80);
    let vault = &bench.server.vault;
    vault.open(only_web);
    let mut fragment = packet(6, CLIENT_INNER, SERVER_INNER, &ports(999, 80));
    fragment[7] = 5;
    // CIPSO, whatever it says, in a packet that would pass without.
    let mut labelled = packet(6, CLIENT_INNER, SERVER_INNER, &ports(999, 80));
    labelled.splice(20..20, [0x86, 10, 0, 0, 0, 16, 1, 4, 0, 5, 0, 0]);
    (labelled[0], labelled[3]) = (0x48, labelled[3] + 12);
    let cases = [
        ("labelled", labelled),
        ("selector", echo(CLIENT_INNER, SERVER_INNER, 1)),
        ("selector", packet(6, CLIENT_INNER, SERVER_INNER, &ports(999, 81))),
        ("selector", packet(17, CLIENT_INNER, SERVER_INNER, &ports(999, 80))),
        ("selector", packet(6, "10.0.0.3", SERVER_INNER, &ports(999, 80))),
        ("selector", packet(6, CLIENT_INNER, "10.8.0.1", &ports(999, 80))),
        ("fragment", fragment),
        ("malformed", packet(6, CLIENT_INNER, SERVER_INNER, &[0, 1])),
    ];
    for (reason, inner) in &cases {
        let before = vault.count(reason);
        // What the peer's own stack would refuse to make is written over a good packet of the same length.
        let datagram = if ["malformed", "labelled"].contains(reason) {
            peer.seal_anyway(inner)
        } else {
            peer.seal(inner)
        };
        peer.send(&datagram);
        vault.reaches(reason, before + 1);
    }
    assert_eq!(vault.count("packets-in"), 0);
    let allowed = peer.seal(&packet(6, CLIENT_INNER, SERVER_INNER, &ports(999, 80)));
    peer.send(&allowed);
    vault.reaches("packets-in", 1);
    // The server's own stack sends an echo; it must not leave.
    let before = vault.count("selector");
    let pinged = levee_sys::ns::in_net(bench.server.compartment.as_fd(), || {
        ping(CLIENT_INNER.parse().unwrap(), 56, SHORT)
    });
    assert!(!pinged.unwrap());
    vault.reaches("selector", before + 1);
    assert_eq!(peer.receive(SHORT), None);
}

#[test]
fn a_datagram_of_another_slot_inside_an_aggregate_is_dropped_not_opened() {
    let (bench, mut peer) = hostile(true);
    let mut burst: Vec<_> = (0..6).map(|n| peer.seal(&echo(CLIENT_INNER, SERVER_INNER, n))).collect();
    for n in [2, 4] {
        burst[n][..4].copy_from_slice(&spi_of(SLOTS, OTHER_SLOT, 1).to_be_bytes());
    }
    peer.send_together(&burst);
    bench.server.vault.reaches("unknown-spi", 2);
    bench.server.vault.reaches("packets-in", 4);
    for _ in 0..4 {
        assert!(peer.receive(SECOND).is_some());
    }
}

#[test]
fn a_bad_datagram_inside_an_aggregate_costs_only_itself() {
    let (bench, mut peer) = hostile(true);
    // TCP segments that would be put together.
    let segment = |n: u32| {
        let mut tcp = ports(999, 8_080);
        tcp[4..8].copy_from_slice(&(n * 100).to_be_bytes());
        tcp.resize(120, 0x41);
        (tcp[12], tcp[13]) = (0x50, 0x10);
        let mut pseudo: Vec<u8> = [[10, 0, 0, 2], [10, 9, 0, 1], [0, 6, 0, 120]].concat();
        pseudo.extend(&tcp);
        let sum = checksum(&pseudo);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let mut bytes = packet(6, CLIENT_INNER, SERVER_INNER, &tcp);
        bytes[4..6].copy_from_slice(&(n as u16).to_be_bytes());
        let fixed = [&bytes[..10], &[0, 0], &bytes[12..20]].concat();
        let sum = checksum(&fixed);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes
    };
    let mut burst: Vec<_> = (0..10).map(|n| peer.seal(&segment(n))).collect();
    for n in [0, 3, 9] {
        burst[n][40] ^= 1;
    }
    peer.send_together(&burst);
    bench.server.vault.reaches("auth-failed", 3);
    bench.server.vault.reaches("packets-in", 7);
    assert_eq!(bench.server.vault.count("not-taken"), 0);
    // The server's stack knows no such connection: each reset names the sequence number it answers, so what the
    // device got is right to the last byte's checksum.
    let reset = peer.receive(SECOND).expect("an answer to segments of no connection");
    assert_eq!((reset[9], reset[33] & 4), (6, 4));
}

#[test]
fn random_datagrams_to_the_slot_change_nothing() {
    let (bench, mut peer) = hostile(true);
    let mut seed = 0x1234_5678_9abc_def1_u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut sent = 0;
    for _ in 0..5_000 {
        let length = (random() % 1_400) as usize + 4;
        let mut bytes: Vec<u8> = (0..length).map(|_| random() as u8).collect();
        let spi = if random() % 2 == 0 { server_spi(1) } else { server_spi(random() as u32 & 0xf_ffff) };
        bytes[..4].copy_from_slice(&spi.to_be_bytes());
        peer.send(&bytes);
        sent += 1;
        if sent % 100 == 0 {
            bench.server.vault.count("packets-in");
        }
    }
    let counters = bench.server.vault.counters();
    let dropped: u64 =
        ["unknown-spi", "auth-failed", "truncated", "replay"].iter().map(|&name| counters[name]).sum();
    assert!(dropped > sent / 2, "{counters:?}");
    assert_eq!(counters["packets-in"], 0);
    assert!(answered(&mut peer, 9));
}

#[test]
fn keys_that_no_session_asked_for_or_that_make_no_sense_are_refused() {
    let (bench, _peer) = hostile(false);
    let vault = &bench.server.vault;
    let refused = |answer: VaultToKeyer| match answer {
        VaultToKeyer::Refused { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(install(vault, session(2), 2, server_spi(2))), Refusal::NoSession);
    assert_eq!(refused(install(vault, session(1), 2, server_spi(1))), Refusal::SpiInUse);
    assert_eq!(refused(install(vault, session(1), 2, 17)), Refusal::Spi);
    vault.close(session(1));
    assert_eq!(refused(install(vault, session(1), 2, server_spi(2))), Refusal::NoSession);
    assert_eq!(vault.report().sa_count, 0);
}

#[test]
fn the_vault_follows_a_peer_that_moves() {
    let (bench, mut peer) = hostile(false);
    assert!(answered(&mut peer, 1));
    let before = bench.server.vault.report().sas[0].peer;
    let elsewhere = Peer::new(&bench.client, bench.server.group.address(), 1);
    // The same keys from another port: what a NAT does that forgets.
    peer.socket = elsewhere.socket;
    assert!(answered(&mut peer, 2));
    assert_ne!(bench.server.vault.report().sas[0].peer, before);
}

#[test]
fn a_session_within_the_second_tunnel_has_no_packet_and_no_key_by_another_way() {
    let (bench, peer) = hostile(false);
    let layered = || SessionRecord { layered: true, ..record(session(1), Place::Server) };
    // Where there is no second tunnel such a session is nowhere, nor what it had.
    bench.server.vault.sessiond.send(&SessiondToVault::Open(layered())).unwrap();
    assert!(matches!(hear(&bench.server.vault.sessiond), VaultToSessiond::Closed(id) if id == session(1)));
    assert_eq!(bench.server.vault.report().sa_count, 0);
    drop(peer);

    // The same with the socket that the second tunnel's end sends to beside the one that the world reaches.
    let within = levee_sys::ns::in_net(bench.server.outer.as_fd(), || {
        levee_sys::udp::steering_group("127.0.0.1:4500".parse().unwrap(), SLOTS, 4 << 20, &steering_key())
    });
    let (within, group) = (within.unwrap().unwrap(), &bench.server.group);
    within.admit(OTHER_SLOT).unwrap();
    group.admit(OTHER_SLOT).unwrap();
    let sockets = [group, &within].map(|group| (group.address(), group.slot(OTHER_SLOT).unwrap()));
    let tun = levee_sys::ns::in_net(bench.server.compartment.as_fd(), || {
        let options = levee_sys::tun::Options { multi_queue: false, exclusive: true, vnet_header: false };
        levee_sys::tun::open("tun1", options)
    });
    let tun = tun.unwrap().unwrap();
    let vault = Vault::start(Place::Server, tun.as_fd(), &sockets);
    vault.open(layered());
    let spi = |n| spi_of(SLOTS, OTHER_SLOT, n);
    let keys = |n: u32, peer: Option<&str>| {
        let secret = |up| levee_ipc::Secret::new(common::peer::material(n, up)).unwrap();
        let message = KeyerToVault::Install {
            session: session(1),
            cipher: Cipher::Aes256Gcm,
            esn: true,
            inbound: levee_ipc::vault::Sa { spi: spi(n), keying_material: secret(true) },
            outbound: levee_ipc::vault::Sa { spi: 0x00a0_0000 | n, keying_material: secret(false) },
            answered: false,
            peer: peer.map(|peer| peer.parse().unwrap()),
            aggregation: None,
        };
        vault.keyer.send(&message).unwrap();
        hear(&vault.keyer)
    };
    let refused = keys(1, Some("192.0.2.2:4500"));
    assert!(matches!(refused, VaultToKeyer::Refused { reason: Refusal::Outside, .. }), "{refused:?}");
    let taken = keys(2, Some("127.64.0.0:4500"));
    assert!(matches!(taken, VaultToKeyer::Installed { .. }), "{taken:?}");
    // A datagram that would do is not looked at by the socket that the world reaches.
    let mut outside = Peer::with(&bench.client, group.address(), 2, spi(2));
    let request = outside.seal(&echo(CLIENT_INNER, SERVER_INNER, 1));
    outside.send(&request);
    vault.reaches("outside", 1);
    assert_eq!((vault.count("packets-in"), vault.report().sas[0].packets), (0, (0, 0)));
    assert_eq!(vault.report().sas[0].peer, Some("127.64.0.0:4500".parse().unwrap()));
    // By the other it is.
    let from = levee_sys::ns::in_net(bench.server.outer.as_fd(), || {
        std::net::UdpSocket::bind("127.64.0.0:4500").map(|socket| socket.send_to(&request, within.address()))
    });
    assert_eq!(from.unwrap().unwrap().unwrap(), request.len());
    vault.reaches("packets-in", 1);
}

#[test]
fn a_session_has_keys_for_its_own_ciphers_alone_whatever_its_label_has() {
    let (bench, _peer) = hostile(false);
    let vault = &bench.server.vault;
    let taken = |n| match install(vault, session(1), n, server_spi(n)) {
        VaultToKeyer::Installed { .. } => true,
        VaultToKeyer::Refused { reason: Refusal::Cipher, .. } => false,
        other => panic!("{other:?}"),
    };
    assert!(taken(2));
    let only = |ciphers| SessionRecord { ciphers, ..record(session(1), Place::Server) };
    vault.open(only(Some(vec![Cipher::ChaCha20Poly1305])));
    assert!(!taken(3));
    vault.open(only(Some(vec![Cipher::ChaCha20Poly1305, Cipher::Aes256Gcm, Cipher::Aes128Gcm])));
    assert!(taken(3));
    vault.open(only(None));
    assert!(taken(4));
}

#[test]
fn ciphers_that_sessiond_does_not_allow_are_refused_and_what_is_old_goes_when_it_says_so() {
    let (bench, mut peer) = hostile(false);
    let vault = &bench.server.vault;
    let told = |number, ciphers: &[Cipher], anew| {
        vault.sessiond.send(&SessiondToVault::Ciphers { number, ciphers: ciphers.to_vec(), anew }).unwrap();
    };
    let ciphers = |number, ciphers: &[Cipher]| told(number, ciphers, false);
    let moved = || match hear(&vault.sessiond) {
        VaultToSessiond::Moved { number, severed } => (number, severed),
        other => panic!("{other:?}"),
    };
    // From a vault's first word of it on, what there is is old, until it is told the same again.
    ciphers(1, &[Cipher::ChaCha20Poly1305]);
    assert!(answered(&mut peer, 1), "old keys pass packets until there are others");
    let refused = install(vault, session(1), 2, server_spi(2));
    assert!(matches!(refused, VaultToKeyer::Refused { reason: Refusal::Cipher, .. }), "{refused:?}");
    vault.sessiond.send(&SessiondToVault::Sever(9)).unwrap();
    assert_eq!(vault.report().sa_count, 1, "no such order");
    vault.sessiond.send(&SessiondToVault::Sever(1)).unwrap();
    assert_eq!(moved(), (1, vec![session(1)]));
    assert_eq!(vault.report().sa_count, 0);
    assert!(!answered(&mut peer, 2));

    // Who has something new is not severed; and the keyer's own deletion is an end too.
    ciphers(2, &[Cipher::Aes256Gcm]);
    assert_eq!(moved(), (2, vec![]));
    let taken = |n| matches!(install(vault, session(1), n, server_spi(n)), VaultToKeyer::Installed { .. });
    assert!(taken(3));
    ciphers(3, &[Cipher::Aes256Gcm, Cipher::Aes128Gcm]);
    assert!(taken(4));
    vault.keyer.send(&KeyerToVault::Delete { spi: server_spi(3) }).unwrap();
    assert_eq!(moved(), (3, vec![]));
    assert_eq!(vault.report().sa_count, 1);
    ciphers(4, &[Cipher::Aes256Gcm, Cipher::Aes128Gcm]);
    assert_eq!(moved(), (4, vec![]), "the same again makes nothing old");
    // Unless it says so: keys are to live less long.
    told(5, &[Cipher::Aes256Gcm, Cipher::Aes128Gcm], true);
    vault.sessiond.send(&SessiondToVault::Sever(5)).unwrap();
    assert_eq!(moved(), (5, vec![session(1)]));
    assert_eq!(vault.report().sa_count, 0);
}
