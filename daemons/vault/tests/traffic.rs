//! Traffic through two vault processes.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use levee_ipc::vault::{Cipher, KeyerToVault};
use levee_ipc::warden::Place;
use levee_sys::ns;

const SECOND: Duration = Duration::from_secs(1);
const SHORT: Duration = Duration::from_millis(150);

#[test]
fn icmp_and_tcp_pass_under_every_suite_with_and_without_esn() {
    every_suite(false);
}

#[test]
fn icmp_and_tcp_pass_with_offloads_under_every_suite_with_and_without_esn() {
    every_suite(true);
}

fn every_suite(vnet: bool) {
    let mut bench = Bench::with(vnet, false);
    bench.sessions();
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
        for esn in [true, false] {
            bench.keys(session(1), cipher, esn);
            // The newest pair is in use once it has settled.
            std::thread::sleep(Duration::from_millis(550));
            assert!(bench.ping(5 * SECOND), "{cipher:?} {esn}");
            tcp(&bench, SERVER_INNER, 300_000);
            tcp(&bench, SERVER_INNER6, 300_000);
        }
    }
    let report = bench.server.vault.report();
    assert_eq!(report.sa_count, 6);
    assert!(report.sas.iter().all(|sa| sa.packets.0 > 100 && sa.packets.1 > 100), "{:?}", report.sas);
    for vault in [&bench.server.vault, &bench.client.vault] {
        let counters = vault.counters();
        let drops = ["auth-failed", "malformed", "not-taken", "oversize", "replay", "selector", "no-peer"];
        assert!(drops.iter().all(|&name| counters[name] == 0), "{counters:?}");
    }
}

#[test]
fn keys_that_the_peer_asked_for_in_others_place_are_used_when_it_is_heard_by_them_or_has_closed_those() {
    for heard in [true, false] {
        let mut bench = Bench::with(false, false);
        bench.sessions();
        let (old, _) = bench.keys(session(1), Cipher::Aes256Gcm, true);
        assert!(bench.ping(5 * SECOND));
        // Or its kernel would say that nobody listens, and be heard.
        let _quiet = ns::in_net(bench.client.compartment.as_fd(), || UdpSocket::bind((CLIENT_INNER, 9)))
            .unwrap()
            .unwrap();
        bench.answered = true;
        let (new, _) = bench.keys(session(1), Cipher::Aes256Gcm, true);
        let sent = |by: u32| {
            let report = bench.server.vault.report();
            report.sas.iter().find(|sa| sa.inbound_spi == by).expect("the pair").packets.1
        };
        let leaves_by = |by: u32| {
            let before = sent(by);
            let from = ns::in_net(bench.server.compartment.as_fd(), || UdpSocket::bind((SERVER_INNER, 0)));
            from.unwrap().unwrap().send_to(b"down", (CLIENT_INNER, 9)).unwrap();
            let until = Instant::now() + 5 * SECOND;
            while sent(by) == before && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            sent(by) > before
        };
        // Longer than keys of another kind would wait.
        std::thread::sleep(Duration::from_millis(700));
        assert!(leaves_by(old) && sent(new) == 0, "{heard}");
        if heard {
            // The client, which asked, sends by the new ones.
            assert!(bench.ping(5 * SECOND));
        } else {
            bench.server.vault.keyer.send(&KeyerToVault::Retire { spi: old }).unwrap();
            std::thread::sleep(Duration::from_millis(700));
        }
        assert!(leaves_by(new), "{heard}");
    }
}

#[test]
fn a_tunnel_over_ipv6_carries_both_families() {
    for vnet in [false, true] {
        let mut bench = Bench::with(vnet, true);
        bench.sessions();
        bench.keys(session(1), Cipher::Aes256Gcm, true);
        assert!(bench.ping(5 * SECOND));
        tcp(&bench, SERVER_INNER, 300_000);
        tcp(&bench, SERVER_INNER6, 300_000);
    }
}

#[test]
fn datagrams_of_every_size_arrive_as_they_were_sent() {
    datagrams(false);
}

#[test]
fn datagrams_of_every_size_arrive_with_offloads_as_they_were_sent() {
    datagrams(true);
}

fn datagrams(vnet: bool) {
    let bench = Bench::up(vnet);
    let server = ns::in_net(bench.server.compartment.as_fd(), || UdpSocket::bind((SERVER_INNER, 53)))
        .unwrap()
        .unwrap();
    let client =
        ns::in_net(bench.client.compartment.as_fd(), || UdpSocket::bind((CLIENT_INNER, 0))).unwrap().unwrap();
    server.set_read_timeout(Some(10 * SECOND)).unwrap();
    client.set_read_timeout(Some(10 * SECOND)).unwrap();
    let mut buffer = vec![0; 65_536];
    // Beyond 1,372 in fragments.
    for length in (0..1_450).step_by(7).chain([1_372, 1_373, 4_000, 20_000, 60_000]) {
        let data: Vec<u8> = (0..length).map(|n| (n ^ length) as u8).collect();
        client.send_to(&data, (SERVER_INNER, 53)).unwrap();
        let (got, from) = server.recv_from(&mut buffer).unwrap_or_else(|e| panic!("{length}: {e}"));
        assert_eq!(buffer[..got], data[..]);
        server.send_to(&data, from).unwrap();
        let got = client.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..got], data[..]);
    }
}

#[test]
fn a_burst_of_datagrams_arrives_in_order_each_as_it_was_sent() {
    for vnet in [false, true] {
        let bench = Bench::up(vnet);
        let bind = |host: &Host, address: (&str, u16)| {
            ns::in_net(host.compartment.as_fd(), || UdpSocket::bind(address)).unwrap().unwrap()
        };
        for (from, to) in [(CLIENT_INNER, SERVER_INNER), (CLIENT_INNER6, SERVER_INNER6)] {
            let (server, client) = (bind(&bench.server, (to, 53)), bind(&bench.client, (from, 0)));
            server.set_read_timeout(Some(10 * SECOND)).unwrap();
            for length in [1_usize, 64, 512, 1_340] {
                for n in 0..60_u8 {
                    // Every seventh is shorter, which ends what can be put together.
                    let data = vec![n; if n % 7 == 6 { length.div_ceil(2) } else { length }];
                    client.send_to(&data, (to, 53)).unwrap();
                }
                let mut buffer = vec![0; 65_536];
                for n in 0..60_u8 {
                    let got = server.recv(&mut buffer).unwrap_or_else(|e| panic!("{length} {n}: {e}"));
                    assert_eq!(got, if n % 7 == 6 { length.div_ceil(2) } else { length });
                    assert!(buffer[..got].iter().all(|&byte| byte == n));
                }
            }
        }
        assert_eq!(bench.server.vault.count("not-taken"), 0);
    }
}

#[test]
fn the_end_of_a_session_cuts_a_running_download_before_it_is_acknowledged() {
    let bench = Bench::up(false);
    let address: SocketAddr = SocketAddr::new(ip(SERVER_INNER), 8080);
    let listener =
        ns::in_net(bench.server.compartment.as_fd(), || TcpListener::bind(address)).unwrap().unwrap();
    let mut stream =
        ns::in_net(bench.client.compartment.as_fd(), || TcpStream::connect(address)).unwrap().unwrap();
    let (mut sender, _) = listener.accept().unwrap();
    sender.set_write_timeout(Some(SHORT)).unwrap();
    let cut = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&cut);
    let flood = std::thread::spawn(move || {
        while !over.load(Ordering::Relaxed) {
            // A full queue is tried again: only the test ends this.
            let _ = sender.write(&[7; 4_096]);
        }
    });
    stream.set_read_timeout(Some(10 * SECOND)).unwrap();
    stream.read_exact(&mut vec![0; 1 << 20]).unwrap();
    bench.server.vault.close(session(1));
    let before = bench.server.vault.counters();
    assert_eq!(bench.server.vault.report().sa_count, 0);
    std::thread::sleep(SHORT);
    assert!(!bench.ping(SHORT));
    let after = bench.server.vault.counters();
    for counter in ["packets-in", "packets-out", "bytes-in", "bytes-out"] {
        assert_eq!(before[counter], after[counter], "{counter}");
    }
    assert!(after["unknown-spi"] > before["unknown-spi"], "what still arrives is dropped");
    assert!(after["no-session"] > before["no-session"], "what still would leave is dropped");
    cut.store(true, Ordering::Relaxed);
    flood.join().unwrap();
}

#[test]
fn packets_wait_for_keys_and_then_go() {
    let mut bench = Bench::new();
    bench.sessions();
    assert!(!bench.ping(SHORT));
    let asked: levee_ipc::vault::VaultToKeyer = hear(&bench.client.vault.keyer);
    assert!(matches!(asked, levee_ipc::vault::VaultToKeyer::Acquire(id) if id == session(1)));
    let client =
        ns::in_net(bench.client.compartment.as_fd(), || UdpSocket::bind((CLIENT_INNER, 0))).unwrap().unwrap();
    let server = ns::in_net(bench.server.compartment.as_fd(), || UdpSocket::bind((SERVER_INNER, 53)))
        .unwrap()
        .unwrap();
    for n in 0..10_u8 {
        client.send_to(&[n], (SERVER_INNER, 53)).unwrap();
    }
    std::thread::sleep(SHORT);
    bench.keys(session(1), Cipher::Aes256Gcm, true);
    server.set_read_timeout(Some(SECOND)).unwrap();
    for n in 0..10_u8 {
        let mut buffer = [0; 10];
        assert_eq!(
            (server.recv(&mut buffer).unwrap(), buffer[0]),
            (1, n),
            "in the order in which they were sent"
        );
    }
}

#[test]
fn a_path_narrower_than_the_datagrams_carries_them_in_fragments() {
    for vnet in [false, true] {
        let bench = Bench::up(vnet);
        for host in [&bench.server, &bench.client] {
            levee_sys::net::Net::in_ns(host.outer.as_fd()).unwrap().set_mtu("up", 1_280).unwrap();
        }
        tcp(&bench, SERVER_INNER, 300_000);
        tcp(&bench, SERVER_INNER6, 300_000);
        assert_eq!(bench.server.vault.count("not-taken") + bench.client.vault.count("not-taken"), 0);
    }
}

#[test]
fn large_datagrams_in_fragments_pass_where_selectors_name_ports() {
    const PORT: u16 = 7;
    let mut bench = Bench::new();
    for place in [Place::Server, Place::Workstation] {
        let mut record = record(session(1), place);
        for row in &mut record.selectors {
            row.protocol = Some(17);
            let ports = if place == Place::Server { &mut row.local_ports } else { &mut row.remote_ports };
            *ports = (PORT, PORT);
        }
        if place == Place::Server { &bench.server } else { &bench.client }.vault.open(record);
    }
    bench.keys(session(1), Cipher::Aes256Gcm, true);
    for (server, client) in [(SERVER_INNER, CLIENT_INNER), (SERVER_INNER6, CLIENT_INNER6)] {
        let bound = |space: BorrowedFd<'_>, address: &str, port| {
            let socket = ns::in_net(space, || UdpSocket::bind((ip(address), port))).unwrap().unwrap();
            socket.set_read_timeout(Some(SECOND * 5)).unwrap();
            socket
        };
        let service = bound(bench.server.compartment.as_fd(), server, PORT);
        let client = bound(bench.client.compartment.as_fd(), client, 0);
        let mut buffer = vec![0; 65_536];
        // Whole; in four fragments; in 22.
        for length in [500, 5_000, 30_000] {
            let sent: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            client.send_to(&sent, (ip(server), PORT)).unwrap();
            let (got, from) = service.recv_from(&mut buffer).unwrap();
            assert!(buffer[..got] == sent, "{got} of {length} octets");
            service.send_to(&sent, from).unwrap();
            let (got, _) = client.recv_from(&mut buffer).unwrap();
            assert!(buffer[..got] == sent, "{got} of {length} octets came back");
        }
        // To another port: nothing of it.
        let before = bench.client.vault.count("fragment");
        client.send_to(&[1; 5_000], (ip(server), PORT + 1)).unwrap();
        bench.client.vault.reaches("fragment", before + 3);
    }
    for vault in [&bench.server.vault, &bench.client.vault] {
        let counters = vault.counters();
        assert!(counters["packets-in"] >= 54 && counters["malformed"] == 0, "{counters:?}");
    }
}
