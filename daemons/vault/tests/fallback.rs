//! What the kernel, the path or the compartment does not do as a vault would like it: traffic passes all the same.

mod common;

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use common::*;
use levee_ipc::vault::Cipher;
use levee_sys::net::Net;
use levee_sys::tun::{self, Offload};
use levee_sys::{ns, udp};

const SECOND: Duration = Duration::from_secs(1);

/// Streams and bursts of datagrams both ways in both families, byte for byte, and nothing is lost between them.
fn everything_passes(bench: &Bench) {
    assert!(bench.ping(10 * SECOND));
    tcp(bench, SERVER_INNER, 300_000);
    tcp(bench, SERVER_INNER6, 300_000);
    let bind = |host: &Host, address: (&str, u16)| {
        ns::in_net(host.compartment.as_fd(), || UdpSocket::bind(address)).unwrap().unwrap()
    };
    for (from, to) in [(CLIENT_INNER, SERVER_INNER), (CLIENT_INNER6, SERVER_INNER6)] {
        let (server, client) = (bind(&bench.server, (to, 53)), bind(&bench.client, (from, 0)));
        for length in [1_usize, 512, 1_340, 1_352, 9_000] {
            for (sender, receiver, at) in [
                (&client, &server, (to, 53)),
                (&server, &client, (from, client.local_addr().unwrap().port())),
            ] {
                receiver.set_read_timeout(Some(10 * SECOND)).unwrap();
                // As many as the receiving socket has room for: what it would drop says nothing about the tunnel.
                let burst = if length > 2_000 { 3_u8 } else { 20 };
                for n in 0..burst {
                    sender.send_to(&vec![n; length], at).unwrap();
                }
                let mut buffer = vec![0; 65_536];
                for n in 0..burst {
                    let got = receiver.recv(&mut buffer).unwrap_or_else(|e| panic!("{length} {n}: {e}"));
                    assert_eq!((got, buffer[0], buffer[got - 1]), (length, n, n));
                }
            }
        }
    }
    for vault in [&bench.server.vault, &bench.client.vault] {
        assert_eq!(vault.count("not-taken"), 0);
    }
}

#[test]
fn traffic_passes_where_devices_hand_over_no_udp_segments() {
    let mut bench = Bench::up(true);
    for host in [&mut bench.server, &mut bench.client] {
        tun::limit_offload(&mut host.tun, Offload::Tcp).unwrap();
    }
    everything_passes(&bench);
}

#[test]
fn traffic_passes_where_devices_hand_over_no_segments_at_all() {
    let mut bench = Bench::up(true);
    for host in [&mut bench.server, &mut bench.client] {
        tun::limit_offload(&mut host.tun, Offload::None).unwrap();
    }
    everything_passes(&bench);
}

#[test]
fn traffic_passes_where_only_one_end_has_what_makes_it_fast() {
    let mut bench = Bench::up(true);
    tun::limit_offload(&mut bench.server.tun, Offload::None).unwrap();
    let socket = bench.server.group.slot(SLOT).unwrap();
    udp::set_aggregates(socket, false).unwrap();
    everything_passes(&bench);
}

#[test]
fn traffic_passes_where_datagrams_are_received_one_by_one() {
    let bench = Bench::up(true);
    for host in [&bench.server, &bench.client] {
        for slot in 1..=host.group.slots() {
            udp::set_aggregates(host.group.slot(slot).unwrap(), false).unwrap();
        }
    }
    everything_passes(&bench);
}

#[test]
fn traffic_passes_where_datagrams_are_refused_together_and_then_together_again() {
    let bench = Bench::up(true);
    let narrow = |mtu| {
        for host in [&bench.server, &bench.client] {
            Net::in_ns(host.outer.as_fd()).unwrap().set_mtu("up", mtu).unwrap();
        }
    };
    // A sealed packet of full length is longer than this: a send of many is refused, each alone goes in fragments.
    narrow(1_280);
    everything_passes(&bench);
    narrow(1_500);
    everything_passes(&bench);
}

#[test]
fn a_sender_whose_device_lets_more_through_than_the_tunnel_is_told_what_fits() {
    for vnet in [false, true] {
        let bench = Bench::up(vnet);
        for host in [&bench.server, &bench.client] {
            Net::in_ns(host.compartment.as_fd()).unwrap().set_mtu("tun0", 3_000).unwrap();
        }
        // Both ends offer segments of 3,000 bytes less headers; only an ICMP message makes them shorter.
        tcp(&bench, SERVER_INNER, 300_000);
        tcp(&bench, SERVER_INNER6, 300_000);
        assert!(bench.client.vault.count("oversize") > 0, "the stream was never too long");
    }
}

#[test]
fn a_vault_that_looks_on_for_long_carries_everything_and_sleeps_when_nothing_comes() {
    let mut bench = Bench::with_arguments(true, false, &["--poll", "10000", "--aead", "ring"]);
    bench.sessions();
    bench.keys(session(1), Cipher::Aes256Gcm, true);
    everything_passes(&bench);
    let pid = bench.server.vault.child.pid.as_raw_nonzero();
    let sleeps = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('S')
    };
    // A vault that looked on for ever would be found asleep now and then by no one but the scheduler: never ten times.
    let (mut row, end) = (0, Instant::now() + 30 * SECOND);
    while row < 10 {
        assert!(Instant::now() < end, "it does not sleep");
        row = if sleeps() { row + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(5));
    }
}
