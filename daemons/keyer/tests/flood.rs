//! A flood of beginnings from thousands of networks, each of which is where it says it is, at a keyer as a process.

mod world;

use levee_hostile::siege::{NETWORKS, Told, lay};
use levee_ike::{Childless, Config, Endpoint, Event, Identity, Output, Path};
use levee_ipc::warden::Order;
use levee_ipc::warden::keyer::KeyerPart;
use levee_sys::ns::{in_net, new_net};
use levee_sys::udp::{SteeringKey, steering_group};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use world::*;

/// A first message that the server takes.
fn first_message(authority: &Authority) -> Vec<u8> {
    let identity = authority.identity("ws9", Some(RANGE));
    let config: Config = Client::config(authority, &identity, Identity::Fqdn("ws9".into()), Childless::Allow);
    let mut endpoint = Endpoint::new(config);
    let address = SocketAddr::from(([127, 0, 0, 1], 4500));
    let path = Path { local: address, remote: address, marker: true };
    let now = levee_ike::Now { monotonic: Duration::ZERO, unix_seconds: 1_790_000_000 };
    let mut random = Kernel::new();
    endpoint.connect(0, path, None, None, now, &mut random).unwrap();
    match endpoint.poll(now, &mut random) {
        Output::Transmit { datagram, .. } => datagram,
        other => panic!("{other:?}"),
    }
}

/// Every second network is an IPv4 /24, the others IPv6 /64s of /48s of their own.
fn networks(servers: [SocketAddr; 2]) -> impl Iterator<Item = (SocketAddr, SocketAddr)> {
    (0..NETWORKS).map(move |n| {
        let (from, to): (IpAddr, _) = match n % 2 {
            0 => (Ipv4Addr::new(127, (n >> 8) as u8 + 1, n as u8, 1).into(), servers[0]),
            _ => (Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 1).into(), servers[1]),
        };
        (SocketAddr::new(from, 0), to)
    })
}

fn ip(arguments: &str) {
    assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

#[test]
fn who_is_signed_on_gets_keys_while_thousands_of_networks_begin_and_never_go_on() {
    let net = new_net().unwrap();
    in_net(net.as_fd(), besieged).unwrap();
}

fn besieged() {
    ip("link set lo up");
    ip("-6 route add local 2001:db8::/32 dev lo");
    std::fs::write("/proc/sys/net/ipv6/ip_nonlocal_bind", "1").unwrap();
    let pair = Pair::new();
    let over_v6 =
        steering_group(SocketAddr::from((Ipv6Addr::LOCALHOST, 0)), SLOTS, 1 << 20, &SteeringKey::new(KEY))
            .unwrap();
    let attachment = Order::Give(KeyerPart::Udp(over_v6.address()));
    pair.server.control.send_with(&attachment, &[over_v6.first().unwrap()]).unwrap();
    let calm = waits(&pair, 1);

    let (told, first) = (Arc::new(Told::default()), first_message(&pair.authority));
    let (flooding, servers) = (Arc::clone(&told), [pair.server.group.address(), over_v6.address()]);
    let flooder = std::thread::spawn(move || lay(&first, networks(servers), &flooding));
    // The server keeps as many half-open IKE SAs as it ever does, or has been at it for a while.
    let (began, until) = (Instant::now(), Instant::now() + PATIENCE);
    while told.cookies.load(Relaxed) < 10_000 || began.elapsed() < Duration::from_secs(5) {
        assert!(
            Instant::now() < until,
            "{} datagrams, {} cookies",
            told.sent.load(Relaxed),
            told.cookies.load(Relaxed)
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let (at, before) = (Instant::now(), told.sent.load(Relaxed));
    let besieged = waits(&pair, 1 + SESSIONS);
    let rate = (told.sent.load(Relaxed) - before) as f64 / at.elapsed().as_secs_f64();
    told.stop.store(true, Relaxed);
    flooder.join().unwrap();
    let median = |all: &[Duration]| all[all.len() / 2];
    eprintln!(
        "{rate:.0} datagrams/s from {NETWORKS} networks, {} half-open made: keys in {:?} (at most {:?}), without {:?} ({:?})",
        told.begun.load(Relaxed),
        median(&besieged),
        besieged.last().unwrap(),
        median(&calm),
        calm.last().unwrap(),
    );
    assert!(told.begun.load(Relaxed) > 128, "the flood is let in as far as strangers are");
    // How much longer it takes than without is measured (`make bench`); this is about whether it does not come to a stop.
    assert!(median(&besieged) < Duration::from_secs(1), "{besieged:?}");
}

/// Somebody without a certificate of the site has the keyer look for the way from theirs to its authority, again and again.
#[test]
fn who_is_signed_on_gets_keys_while_strangers_show_certificates_that_lead_round_and_round() {
    let pair = Pair::new();
    let calm = waits(&pair, 1);
    let (told, server) = (Arc::new(Told::default()), pair.server.group.address());
    let strangers: Vec<_> = (0..4)
        .map(|_| {
            let (told, mut stranger) = (Arc::clone(&told), Client::tangled(&pair.authority, server));
            std::thread::spawn(move || {
                while !told.stop.load(Relaxed) {
                    stranger.connect("SECRET");
                    stranger.until("the end", |events| {
                        told.stop.load(Relaxed)
                            || events.iter().any(|event| matches!(event, Event::IkeClosed { .. }))
                    });
                    stranger.events.clear();
                    told.begun.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    let until = Instant::now() + PATIENCE;
    while told.begun.load(Relaxed) < 8 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let (at, before) = (Instant::now(), told.begun.load(Relaxed));
    let besieged = waits(&pair, 1 + SESSIONS);
    let rate = (told.begun.load(Relaxed) - before) as f64 / at.elapsed().as_secs_f64();
    told.stop.store(true, Relaxed);
    strangers.into_iter().for_each(|stranger| stranger.join().unwrap());
    let (longest, longest_calm) = (besieged.last().unwrap(), calm.last().unwrap());
    eprintln!("{rate:.1} strangers/s refused: keys in {longest:?} at most, without {longest_calm:?}");
    assert!(*longest < Duration::from_secs(2), "{besieged:?}");
}
