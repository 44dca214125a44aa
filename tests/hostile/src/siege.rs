//! Beginnings of IKE SAs from thousands of networks, each of which is where it says it is: it returns cookies, and never goes on.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Networks that it comes from.
pub const NETWORKS: u16 = 4_096;
/// Datagrams a second that are sent if the machine lets it.
pub const RATE: u64 = 20_000;

/// What has come of it so far.
#[derive(Debug, Default)]
pub struct Told {
    /// Datagrams that were sent.
    pub sent: AtomicU64,
    /// Cookies that were asked for, and returned.
    pub cookies: AtomicU64,
    /// Beginnings that were answered.
    pub begun: AtomicU64,
    /// It is to end.
    pub stop: AtomicBool,
}

/// Numbers that differ: nobody is to guess them here.
struct Different(u64);

impl Different {
    fn next(&mut self) -> [u8; 8] {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.to_be_bytes()
    }
}

/// An `IKE_SA_INIT` request that a server takes: AES-256-GCM, PRF-HMAC-SHA-256, X25519 (RFC 7296 3.3, RFC 8031), behind a non-ESP marker.
pub fn first_message() -> Vec<u8> {
    let mut different = Different(7);
    let mut noise = |octets: usize| -> Vec<u8> { (0..octets / 8).flat_map(|_| different.next()).collect() };
    let transforms: [&[u8]; 3] =
        [&[3, 0, 0, 12, 1, 0, 0, 20, 0x80, 14, 1, 0], &[3, 0, 0, 8, 2, 0, 0, 5], &[0, 0, 0, 8, 4, 0, 0, 31]];
    let transforms = transforms.concat();
    let proposal = [&[0, 0, 0, 8 + 28, 1, 1, 0, 3][..], &transforms].concat();
    let sa = [&[34, 0, 0, 4 + 36][..], &proposal].concat();
    let exchange = [&[40, 0, 0, 8 + 32, 0, 31, 0, 0][..], &noise(32)].concat();
    let nonce = [&[0, 0, 0, 4 + 32][..], &noise(32)].concat();
    let payloads = [sa, exchange, nonce].concat();
    let length = u32::try_from(28 + payloads.len()).unwrap_or_default();
    let header =
        [&[0; 4][..], &noise(8), &[0; 8], &[33, 0x20, 34, 8, 0, 0, 0, 0], &length.to_be_bytes()].concat();
    [header, payloads].concat()
}

/// A COOKIE answer's payload, to be put before the others of a request (RFC 7296 2.6).
fn cookie(answer: &[u8]) -> Option<&[u8]> {
    let payload = answer.get(4 + 28..)?;
    (answer.get(4 + 16) == Some(&41) && payload.get(6..8)? == 16_390_u16.to_be_bytes()).then_some(payload)
}

fn with_cookie(first: &[u8], payload: &[u8], spi: &[u8]) -> Vec<u8> {
    let mut all = first.to_vec();
    all[4..12].copy_from_slice(spi);
    let mut payload = payload.to_vec();
    payload[0] = all[4 + 16];
    all[4 + 16] = 41;
    let length = u32::try_from(all.len() - 4 + payload.len()).unwrap_or_default().to_be_bytes();
    all[4 + 24..4 + 28].copy_from_slice(&length);
    all.splice(4 + 28..4 + 28, payload);
    all
}

/// Begins from each of these addresses at that server, in turn, until it is told to stop.
///
/// # Panics
/// An address is nobody's here.
pub fn lay(first: &[u8], sources: impl Iterator<Item = (SocketAddr, SocketAddr)>, told: &Told) {
    let sources: Vec<(UdpSocket, SocketAddr)> = sources
        .map(|(from, to)| {
            let socket = UdpSocket::bind(from).expect("an address of this host");
            socket.set_nonblocking(true).expect("a socket");
            (socket, to)
        })
        .collect();
    let (mut different, began) = (Different(u64::from(std::process::id())), Instant::now());
    let (mut sent, mut buffer) = (0_u64, [0; 4_096]);
    let send = |socket: &UdpSocket, datagram: &[u8], to| {
        let _ = socket.send_to(datagram, to);
        told.sent.fetch_add(1, Relaxed);
    };
    while !told.stop.load(Relaxed) {
        for (socket, to) in &sources {
            while let Ok((length, _)) = socket.recv_from(&mut buffer) {
                let answer = &buffer[..length];
                match cookie(answer) {
                    Some(payload) => {
                        told.cookies.fetch_add(1, Relaxed);
                        send(socket, &with_cookie(first, payload, &answer[4..12]), to);
                        sent += 1;
                    }
                    None => {
                        told.begun.fetch_add(1, Relaxed);
                    }
                }
            }
            let mut datagram = first.to_vec();
            datagram[4..12].copy_from_slice(&different.next());
            send(socket, &datagram, to);
            sent += 1;
            let due = Duration::from_micros(sent * 1_000_000 / RATE);
            if let Some(early) = due.checked_sub(began.elapsed()).filter(|early| early.as_micros() > 500) {
                std::thread::sleep(early);
            }
            if told.stop.load(Relaxed) {
                return;
            }
        }
    }
}
