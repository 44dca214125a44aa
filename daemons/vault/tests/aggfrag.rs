//! Traffic in AGGFRAG payloads (RFC 9347) through two vault processes.

mod common;

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::*;
use levee_ipc::vault::{Aggregation, Cipher};
use levee_sys::ns;

const SECOND: Duration = Duration::from_secs(1);
const FREE: Aggregation = Aggregation { packet: 1_420, interval: None, fragment: true };

fn up(vnet: bool, aggregation: Aggregation) -> Bench {
    let mut bench = Bench::with(vnet, false);
    bench.sessions();
    let by = bench.server.group.address();
    bench.keys_with(session(1), Cipher::Aes256Gcm, true, by, Some(aggregation));
    bench
}

fn no_drops(bench: &Bench) {
    for vault in [&bench.server.vault, &bench.client.vault] {
        let counters = vault.counters();
        let drops =
            ["auth-failed", "malformed", "not-taken", "oversize", "replay", "selector", "fragment-lost"];
        assert!(drops.iter().all(|&name| counters[name] == 0), "{counters:?}");
    }
}

#[test]
fn pings_streams_and_datagrams_of_every_size_pass_in_aggfrag_payloads() {
    for (vnet, aggregation) in [
        (false, FREE),
        (true, FREE),
        (true, Aggregation { packet: 300, ..FREE }),
        (true, Aggregation { packet: 9_000, ..FREE }),
    ] {
        let bench = up(vnet, aggregation);
        assert!(bench.ping(5 * SECOND), "{aggregation:?}");
        tcp(&bench, SERVER_INNER, 400_000);
        tcp(&bench, SERVER_INNER6, 400_000);
        let bind = |host: &Host, address: (&str, u16)| {
            ns::in_net(host.compartment.as_fd(), || UdpSocket::bind(address)).unwrap().unwrap()
        };
        let server = bind(&bench.server, (SERVER_INNER, 53));
        let client = bind(&bench.client, (CLIENT_INNER, 0));
        server.set_read_timeout(Some(5 * SECOND)).unwrap();
        client.set_read_timeout(Some(5 * SECOND)).unwrap();
        let mut buffer = vec![0; 65_536];
        for length in (0..1_450).step_by(97).chain([4_000, 20_000]) {
            let data: Vec<u8> = (0..length).map(|n| (n ^ length) as u8).collect();
            client.send_to(&data, (SERVER_INNER, 53)).unwrap();
            let (got, from) = server.recv_from(&mut buffer).unwrap_or_else(|e| panic!("{length}: {e}"));
            assert_eq!(buffer[..got], data[..]);
            server.send_to(&data, from).unwrap();
            let got = client.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..got], data[..]);
        }
        no_drops(&bench);
    }
}

/// Packets that a compartment's device was given, as its own kernel counts them: a super-segment is one.
fn given(host: &Host) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let text = ns::in_net(host.compartment.as_fd(), read).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("tun0:")).expect("the device");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn packets_of_a_stream_that_came_in_aggfrag_payloads_go_to_the_device_many_at_once() {
    let bench = up(true, FREE);
    assert!(bench.ping(5 * SECOND));
    let (before, came) = (given(&bench.server), bench.server.vault.count("packets-in"));
    tcp(&bench, SERVER_INNER, 4_000_000);
    let (writes, came) = (given(&bench.server) - before, bench.server.vault.count("packets-in") - came);
    // 4,000,000 bytes there are 2,968 packets of full size; with them came acknowledgements, which go alone.
    assert!(came >= 2_900, "{came}");
    assert!(writes < came * 3 / 4, "{writes} writes for {came} packets");
    no_drops(&bench);
}

#[test]
fn a_stream_goes_on_while_its_pairs_change_and_no_piece_is_lost() {
    let mut bench = up(true, FREE);
    let by = bench.server.group.address();
    assert!(bench.ping(5 * SECOND));
    let address = SocketAddr::new(ip(SERVER_INNER), 8080);
    let (from, to) =
        (bench.client.compartment.try_clone().unwrap(), bench.server.compartment.try_clone().unwrap());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                stream(from.as_fd(), to.as_fd(), address, 1_000_000);
            }
        });
        for _ in 0..4 {
            bench.keys_with(session(1), Cipher::ChaCha20Poly1305, true, by, Some(FREE));
            std::thread::sleep(Duration::from_millis(600));
        }
        over.store(true, Ordering::Relaxed);
    });
    no_drops(&bench);
}

#[test]
fn an_association_that_agreed_on_aggfrag_takes_nothing_else_and_the_other_way_round() {
    for (server, client) in [(Some(FREE), None), (None, Some(FREE))] {
        let mut bench = Bench::new();
        bench.sessions();
        bench.keys_at_odds(session(1), server, client);
        assert!(!bench.ping(SECOND / 2));
        bench.server.vault.reaches("bad-next-header", 1);
    }
}

/// A datagram on the wire: which way, how long, when.
type Seen = (bool, usize, Instant);

/// Carries datagrams between the client, who knows only `near`, and the server; notes each.
fn watch(near: &UdpSocket, far: &UdpSocket, server: SocketAddr, stop: &AtomicBool, seen: &Mutex<Vec<Seen>>) {
    let mut client = None;
    let mut buffer = vec![0; 65_536];
    for socket in [near, far] {
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    }
    while !stop.load(Ordering::Relaxed) {
        for up in [true, false] {
            let Ok((length, from)) = (if up { near } else { far }).recv_from(&mut buffer) else { continue };
            if up {
                client = Some(from);
            }
            seen.lock().unwrap().push((up, length, Instant::now()));
            let _ = match (up, client) {
                (true, _) => far.send_to(&buffer[..length], server),
                (false, Some(client)) => near.send_to(&buffer[..length], client),
                (false, None) => continue,
            };
        }
    }
}

#[test]
fn at_a_constant_rate_the_wire_looks_the_same_whether_a_stream_runs_or_nothing_does() {
    const INTERVAL: Duration = Duration::from_millis(4);
    const PACKET: usize = 1_200;
    let rate = Aggregation { packet: 1_200, interval: Some(INTERVAL), fragment: true };
    let mut bench = Bench::with(true, false);
    bench.sessions();
    let server = bench.server.group.address();
    let bind = || UdpSocket::bind("192.0.2.2:0");
    let [near, far] = [(); 2].map(|()| ns::in_net(bench.client.outer.as_fd(), bind).unwrap().unwrap());
    bench.keys_with(session(1), Cipher::Aes128Gcm, true, near.local_addr().unwrap(), Some(rate));
    let (stop, seen) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let phases = std::thread::scope(|scope| {
        scope.spawn(|| watch(&near, &far, server, &stop, &seen));
        // The server learns from the client's first packet where it is.
        assert!(bench.ping(20 * SECOND));
        let phase = |busy: bool| {
            seen.lock().unwrap().clear();
            let start = Instant::now();
            if busy {
                tcp(&bench, SERVER_INNER, 100_000);
            } else {
                std::thread::sleep(SECOND);
            }
            (busy, start.elapsed(), seen.lock().unwrap().clone())
        };
        let phases = [phase(false), phase(true), phase(false)];
        stop.store(true, Ordering::Relaxed);
        phases
    });
    for (busy, time, seen) in phases {
        let sizes: BTreeSet<usize> = seen.iter().map(|(_, length, _)| *length).collect();
        assert_eq!(sizes, BTreeSet::from([PACKET]), "busy: {busy}");
        for up in [true, false] {
            let packets = seen.iter().filter(|(way, ..)| *way == up).count();
            // Never more than the grid has moments, with those that a late turn makes good; on a machine that has
            // other things to do, sometimes fewer.
            let most = (time.as_nanos() / INTERVAL.as_nanos()) as usize + 20;
            assert!(packets <= most, "busy: {busy}, {packets} packets, {most} moments");
            assert!(packets >= most / 8, "busy: {busy}, {packets} packets, {most} moments");
        }
    }
    // Inside the third phase nothing went on, and inside the second hundreds of packets did.
    assert!(bench.server.vault.count("packets-in") > 50);
}
