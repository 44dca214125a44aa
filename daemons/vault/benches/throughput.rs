//! One TCP stream and one request/response stream through two vaults and over the bare link, between namespaces.
//!
//! Rounds are interleaved and every round is shown; compare medians, and expect the two ends to share the processors.

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use common::*;
use levee_ipc::vault::Suite;
use levee_sys::ns;

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(2);

fn cubic(net: BorrowedFd<'_>) {
    let set = || std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "cubic");
    ns::in_net(net, set).unwrap().expect("the kernel has cubic");
}

fn pair(server: BorrowedFd<'_>, client: BorrowedFd<'_>, address: SocketAddr) -> (TcpStream, TcpStream) {
    cubic(server);
    cubic(client);
    let listener = ns::in_net(server, || TcpListener::bind(address)).unwrap().unwrap();
    let near = ns::in_net(client, || TcpStream::connect(address)).unwrap().unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    (far, near)
}

/// Gbit/s from client to server.
fn stream(server: BorrowedFd<'_>, client: BorrowedFd<'_>, address: SocketAddr) -> f64 {
    let (mut far, mut near) = pair(server, client, address);
    let sender = std::thread::spawn(move || {
        let data = vec![0x55; 1 << 17];
        let end = Instant::now() + ROUND;
        while Instant::now() < end && near.write_all(&data).is_ok() {}
    });
    let mut buffer = vec![0; 1 << 20];
    let (start, mut bytes) = (Instant::now(), 0);
    while let Ok(length @ 1..) = far.read(&mut buffer) {
        bytes += length;
    }
    sender.join().unwrap();
    bytes as f64 * 8.0 / start.elapsed().as_secs_f64() / 1e9
}

/// Median round trip of one byte, in microseconds.
fn request_response(server: BorrowedFd<'_>, client: BorrowedFd<'_>, address: SocketAddr) -> f64 {
    let (mut far, mut near) = pair(server, client, address);
    let echo = std::thread::spawn(move || {
        let mut byte = [0];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let mut times: Vec<f64> = (0..5_000)
        .map(|_| {
            let start = Instant::now();
            near.write_all(&[1]).unwrap();
            near.read_exact(&mut [0]).unwrap();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    drop(near);
    echo.join().unwrap();
    median(&mut times)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut with: Vec<(&str, Bench)> = [("offloads", true), ("no offloads", false)]
        .map(|(name, vnet)| (name, Bench::with(vnet, false)))
        .into();
    for (_, bench) in &mut with {
        bench.sessions();
        bench.keys(session(1), Suite::Aes256Gcm, true);
    }
    let inner: SocketAddr = SocketAddr::new(ip(SERVER_INNER), 8080);
    let outer: SocketAddr = "192.0.2.1:8080".parse().unwrap();
    let mut rows: Vec<(String, Vec<f64>, Vec<f64>)> = Vec::new();
    for _ in 0..ROUNDS {
        let mut cases: Vec<(&str, BorrowedFd<'_>, BorrowedFd<'_>, SocketAddr)> = with
            .iter()
            .map(|(name, b)| (*name, b.server.compartment.as_fd(), b.client.compartment.as_fd(), inner))
            .collect();
        let first = &with[0].1;
        cases.push(("bare link", first.server.outer.as_fd(), first.client.outer.as_fd(), outer));
        for (n, (name, server, client, address)) in cases.into_iter().enumerate() {
            if rows.len() <= n {
                rows.push((name.to_owned(), vec![], vec![]));
            }
            rows[n].1.push(stream(server, client, address));
            rows[n].2.push(request_response(server, client, address));
        }
    }
    for (name, streams, trips) in rows {
        println!(
            "{name:12} stream {:6.2} Gbit/s {streams:.2?}   round trip {:6.1} µs {trips:.1?}",
            median(&mut streams.clone()),
            median(&mut trips.clone())
        );
    }
    for (name, bench) in &with {
        let pid = bench.server.vault.child.pid.as_raw_nonzero();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let resident = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("");
        println!("{name:12} vault {resident}");
        for vault in [&bench.server.vault, &bench.client.vault] {
            println!(
                "{:?}",
                vault.counters().into_iter().filter(|(_, value)| *value > 0).collect::<Vec<_>>()
            );
        }
    }
}
