//! Strangers, whom no authority of the site knows, who go on to IKE_AUTH and say there how they prove who they are.

#[path = "../../../tests/fuzz/src/attacker.rs"]
#[allow(dead_code, reason = "it can do more than is needed here")]
mod attacker;
mod world;

use attacker::{Attacker, chain};
use levee_ipc::keyer::{FromKeyer, ToKeyer};
use levee_ipc::warden::Place;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use world::*;

/// What IKE_AUTH consists of (RFC 7296 3.2).
const ID_I: u8 = 35;
const CERT: u8 = 37;
const AUTH: u8 = 39;
const IKE_AUTH: u8 = 35;

/// A stranger begins from here, and shows this certificate, of this host, with an AUTH payload of this method and data; until it is answered.
fn proves(from: Ipv4Addr, server: SocketAddr, certificate: &[u8], (method, auth): (u8, &[u8])) {
    let socket = UdpSocket::bind((from, 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let (mut stranger, mut buffer) = (Attacker::new(true), [0; 4_096]);
    // Where others have begun too often in this moment, once more.
    let begins = |_| socket.send_to(&stranger.init(&[]), server).and_then(|_| socket.recv(&mut buffer)).ok();
    let Some(length) = (0..8).find_map(begins) else { return };
    stranger.hear(&buffer[..length]).unwrap();
    let (first, payloads) = chain(&[
        (ID_I, [&[2, 0, 0, 0], &b"ws1"[..]].concat()),
        (CERT, [&[4], certificate].concat()),
        (AUTH, [&[method, 0, 0, 0], auth].concat()),
    ]);
    socket.send_to(&stranger.ask(IKE_AUTH, first, &payloads).unwrap(), server).unwrap();
    let _ = socket.recv(&mut buffer);
}

#[test]
fn who_signs_by_made_up_algorithms_parts_the_keyer_not_from_sessiond_nor_takes_the_room_of_what_others_do() {
    let authority = Authority::new();
    let server = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    let certificate = Authority::new().identity("ws1", Some(RANGE)).der();
    let proves = |auth: (u8, &[u8])| proves(Ipv4Addr::LOCALHOST, server.group.address(), &certificate, auth);
    // RFC 7427 3: the length of the AlgorithmIdentifier, and then that.
    for number in 0..700_u32 {
        let made_up = [&[24, 0x30, 22, 6, 20][..], &number.to_be_bytes().repeat(5), b"a signature"].concat();
        proves((14, &made_up[..]));
    }
    // And by each method that there could be (RFC 7296 3.8).
    (0..=255).for_each(|method| proves((method, &b"a signature"[..])));
    // What failed is told in a few words.
    let mut told = BTreeSet::new();
    while !told.iter().any(|why: &String| why.contains("by method 13")) {
        if let FromKeyer::Dropped(reasons) = next(&server.asker) {
            told.extend(reasons.into_iter().map(|(why, _)| why));
        }
    }
    let of = |what: &str| told.iter().filter(|why| why.contains(what)).count();
    assert!(of("signs with an algorithm that has no name") == 1 && of("signs with") == 1, "{told:?}");
    assert_eq!(of("authenticates by"), 14, "{told:?}");
    // And whatever sessiond asks is answered.
    server.tell(&ToKeyer::Renew(record(1, "SECRET")));
    assert!(matches!(server.said(), FromKeyer::NoPeer(of) if of == session(1)));
}

/// A public key of 8,192 bits, which is the largest that is looked at, and of the largest exponent (RFC 8017 A.1.1).
struct Largest(Vec<u8>);

impl Largest {
    fn new() -> Self {
        let modulus = [&[2, 0x82, 4, 1, 0, 0xc5][..], &[0x5b; 1_023]].concat();
        let exponent = [2, 5, 1, 0xff, 0xff, 0xff, 0xff];
        let length = u16::try_from(modulus.len() + exponent.len()).unwrap().to_be_bytes();
        Self([&[0x30, 0x82], &length[..], &modulus, &exponent].concat())
    }
}

impl rcgen::PublicKeyData for Largest {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_RSA_SHA256
    }
}

#[test]
fn who_is_signed_on_gets_keys_while_strangers_show_the_largest_keys_that_are_looked_at() {
    let pair = Pair::new();
    let calm = waits(&pair, 1);
    let certificate = Authority::new().of_a_key("ws1", &Largest::new());
    let scheme = rustls_pki_types::alg_id::RSA_PSS_SHA256;
    let length = u8::try_from(scheme.len()).unwrap();
    // A signature is a number below the modulus.
    let auth = [&[length + 2, 0x30, length], &scheme[..], &[0x5a; 1_024]].concat();
    let (stop, server) = (AtomicBool::new(false), pair.server.group.address());
    let besieged = std::thread::scope(|scope| {
        for last in 1..=24 {
            let from = Ipv4Addr::new(127, 0, 2, last);
            let (certificate, auth, stop) = (&certificate, &auth, &stop);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    proves(from, server, certificate, (14, auth));
                }
            });
        }
        std::thread::sleep(Duration::from_secs(2));
        let besieged = waits(&pair, 1 + SESSIONS);
        stop.store(true, Relaxed);
        besieged
    });
    let median = |all: &[Duration]| all[all.len() / 2];
    eprintln!(
        "keys in {:?}, at most {:?}, without {:?}",
        median(&besieged),
        besieged.last().unwrap(),
        median(&calm)
    );
    assert!(median(&besieged) < Duration::from_millis(200), "{besieged:?}");
}
