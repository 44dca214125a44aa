//! Several workers for one label: each a process with a TUN queue, a steering slot and associations of its own.

mod common;

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use common::*;
use levee_ipc::vault::{Aggregation, VaultToKeyer};
use levee_ipc::warden::Place;
use levee_sys::ns;

const WORKERS: u16 = 2;
const FLOWS: usize = 24;

/// Session 1 at every worker, with keys for each.
fn up(aggregation: Option<Aggregation>) -> Bench {
    let mut bench = Bench::with_workers(true, false, &[], WORKERS);
    for worker in 0..WORKERS {
        bench.server.worker(worker.into()).open(record(session(1), Place::Server));
        bench.client.worker(worker.into()).open(record(session(1), Place::Workstation));
        bench.keys_of_worker(worker, session(1), aggregation);
    }
    bench
}

fn flows(bench: &Bench) -> (UdpSocket, Vec<UdpSocket>) {
    let bind = |space: &std::os::fd::OwnedFd, address: (&str, u16)| {
        ns::in_net(space.as_fd(), || UdpSocket::bind(address)).unwrap().unwrap()
    };
    let server = bind(&bench.server.compartment, (SERVER_INNER, 7));
    server.set_nonblocking(true).unwrap();
    // Of all that the flows have under way, the test's own socket must drop nothing.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&server, 8 << 20).unwrap();
    let client = || {
        let socket = bind(&bench.client.compartment, (CLIENT_INNER, 0));
        socket.connect((SERVER_INNER, 7)).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    };
    (server, (0..FLOWS).map(|_| client()).collect())
}

/// The numbers in the datagrams that wait at a socket, with their senders.
fn waiting(socket: &UdpSocket) -> Vec<(SocketAddr, u32)> {
    let mut buffer = [0; 2048];
    std::iter::from_fn(|| socket.recv_from(&mut buffer).ok().map(|(length, from)| (from, length, buffer)))
        .map(|(from, length, buffer)| {
            assert!(length >= 4);
            (from, u32::from_be_bytes(buffer[..4].try_into().unwrap()))
        })
        .collect()
}

#[test]
fn flows_are_spread_over_workers_and_none_is_reordered_there_or_back() {
    spread(None);
}

#[test]
fn so_they_are_in_aggfrag_payloads() {
    spread(Some(Aggregation { packet: 1_420, interval: None, fragment: true }));
}

fn spread(aggregation: Option<Aggregation>) {
    const EACH: u32 = 400;
    let bench = up(aggregation);
    let (server, clients) = flows(&bench);
    let mut there: BTreeMap<SocketAddr, Vec<u32>> = BTreeMap::new();
    let mut back: Vec<Vec<u32>> = vec![Vec::new(); FLOWS];
    let end = Instant::now() + Duration::from_secs(60);
    // At most 4 of a flow are under way, so that no queue overflows.
    let mut sent = [0_u32; FLOWS];
    while back.iter().any(|back| back.len() < EACH as usize) {
        if Instant::now() >= end {
            let counters: Vec<_> = [&bench.server, &bench.client]
                .into_iter()
                .flat_map(|host| (0..WORKERS).map(|n| host.worker(n.into()).counters()))
                .collect();
            panic!("datagrams were lost: {:?}, {counters:?}", back.iter().map(Vec::len).collect::<Vec<_>>());
        }
        for (client, (sent, back)) in clients.iter().zip(sent.iter_mut().zip(&mut back)) {
            back.extend(waiting(client).into_iter().map(|(_, number)| number));
            while *sent < EACH && (*sent as usize) < back.len() + 4 {
                let mut datagram = [0; 300];
                datagram[..4].copy_from_slice(&sent.to_be_bytes());
                client.send(&datagram).unwrap();
                *sent += 1;
            }
        }
        for (from, number) in waiting(&server) {
            there.entry(from).or_default().push(number);
            server.send_to(&number.to_be_bytes(), from).unwrap();
        }
    }
    let inorder: Vec<u32> = (0..EACH).collect();
    assert_eq!(there.len(), FLOWS);
    assert!(there.values().chain(&back).all(|numbers| *numbers == inorder), "a flow was reordered");
    for host in [&bench.server, &bench.client] {
        let counts: Vec<_> = (0..WORKERS).map(|n| host.worker(n.into()).counters()).collect();
        let all = u64::from(EACH) * FLOWS as u64;
        for name in ["packets-in", "packets-out"] {
            assert!(counts.iter().all(|counts| counts[name] >= u64::from(EACH)), "{name}: {counts:?}");
            assert!(counts.iter().map(|counts| counts[name]).sum::<u64>() >= all, "{name}: {counts:?}");
        }
    }
    tcp(&bench, SERVER_INNER, 300_000);
    tcp(&bench, SERVER_INNER6, 300_000);
    for vault in [&bench.server, &bench.client].into_iter().flat_map(|host| [0, 1].map(|n| host.worker(n))) {
        let counters = vault.counters();
        let drops = ["auth-failed", "malformed", "bad-next-header", "fragment-lost", "not-taken", "selector"];
        assert!(drops.iter().all(|&name| counters[name] == 0), "{counters:?}");
    }
}

#[test]
fn a_worker_without_keys_asks_for_its_own_and_sends_what_waited() {
    let mut bench = Bench::with_workers(true, false, &[], WORKERS);
    for worker in 0..WORKERS {
        bench.server.worker(worker.into()).open(record(session(1), Place::Server));
        bench.client.worker(worker.into()).open(record(session(1), Place::Workstation));
    }
    bench.keys_of_worker(0, session(1), None);
    let (server, clients) = flows(&bench);
    for client in &clients {
        client.send(&[0; 4]).unwrap();
    }
    let asked: VaultToKeyer = hear(&bench.client.worker(1).keyer);
    assert!(matches!(asked, VaultToKeyer::Acquire(id) if id == session(1)), "{asked:?}");
    bench.keys_of_worker(1, session(1), None);
    let mut arrived = 0;
    let end = Instant::now() + Duration::from_secs(10);
    while arrived < FLOWS {
        assert!(Instant::now() < end, "{arrived} of {FLOWS}");
        arrived += waiting(&server).len();
    }
}
