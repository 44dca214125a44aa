//! Traffic over a link that loses, repeats, reorders and corrupts: what arrives is right.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use levee_ipc::vault::{Aggregation, Cipher};
use levee_sys::ns;

/// A reproducible sequence (xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// What happened to datagrams on the way, in this order: lost, repeated, held back, corrupted.
#[derive(Default)]
struct Harm([u64; 4]);

/// Carries datagrams between the client, who knows only `near`, and the server, and harms each kind by 1 in 100.
fn relay(near: &UdpSocket, far: &UdpSocket, server: SocketAddr, stop: &AtomicBool) -> Harm {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut harm = Harm::default();
    let mut client = None;
    let mut held: Vec<(bool, Vec<u8>)> = Vec::new();
    let mut buffer = vec![0; 65_536];
    for socket in [near, far] {
        socket.set_nonblocking(true).unwrap();
    }
    while !stop.load(Ordering::Relaxed) {
        let mut idle = true;
        for up in [true, false] {
            let Ok((length, from)) = (if up { near } else { far }).recv_from(&mut buffer) else { continue };
            idle = false;
            if up {
                client = Some(from);
            }
            let mut datagram = buffer[..length].to_vec();
            let mut copies = vec![];
            match random.below(100) {
                0 => harm.0[0] += 1,
                1 => {
                    harm.0[1] += 1;
                    copies = vec![datagram.clone(), datagram];
                }
                2 => {
                    harm.0[2] += 1;
                    held.push((up, datagram));
                }
                3 => {
                    harm.0[3] += 1;
                    // Not the SPI: the right vault shall see it.
                    let at = 4 + random.below(length as u64 - 4) as usize;
                    datagram[at] ^= 1 << random.below(8);
                    copies = vec![datagram];
                }
                _ => copies = vec![datagram],
            }
            if random.below(10) == 0 {
                copies.extend(held.iter().filter(|(way, _)| *way == up).map(|(_, held)| held.clone()));
                held.retain(|(way, _)| *way != up);
            }
            for datagram in copies {
                // A full queue is one more loss.
                let _ = match (up, client) {
                    (true, _) => far.send_to(&datagram, server),
                    (false, Some(client)) => near.send_to(&datagram, client),
                    (false, None) => continue,
                };
            }
        }
        if idle {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    harm
}

#[test]
fn no_wrong_byte_is_delivered_over_a_link_that_loses_repeats_reorders_and_corrupts() {
    let aggfrag = Aggregation { packet: 1_420, interval: None, fragment: true };
    for (vnet, aggregation) in [(false, None), (true, None), (true, Some(aggfrag))] {
        let mut bench = Bench::with(vnet, false);
        bench.sessions();
        let server = bench.server.group.address();
        let bind = || UdpSocket::bind("192.0.2.2:0");
        let [near, far] = [(); 2].map(|()| ns::in_net(bench.client.outer.as_fd(), bind).unwrap().unwrap());
        bench.keys_with(session(1), Cipher::Aes256Gcm, true, near.local_addr().unwrap(), aggregation);
        let stop = AtomicBool::new(false);
        let harm = std::thread::scope(|scope| {
            let relay = scope.spawn(|| relay(&near, &far, server, &stop));
            // Compares every byte.
            tcp(&bench, SERVER_INNER, 1_500_000);
            tcp(&bench, SERVER_INNER6, 500_000);
            stop.store(true, Ordering::Relaxed);
            relay.join().unwrap()
        });
        assert!(harm.0.iter().all(|&count| count > 5), "the link was not bad enough: {:?}", harm.0);
        let dropped = |name: &str| bench.server.vault.count(name) + bench.client.vault.count(name);
        assert_eq!(dropped("malformed"), 0, "nothing corrupted passed");
        assert!(dropped("auth-failed") > 0 && dropped("replay") > 0);
        assert!(dropped("auth-failed") + dropped("replay") <= harm.0[3] + harm.0[1] + 1);
    }
}
