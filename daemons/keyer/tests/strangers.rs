//! Strangers, whom no authority of the site knows, who go on to IKE_AUTH and say there how they prove who they are.

#[path = "../../../tests/fuzz/src/attacker.rs"]
#[allow(dead_code, reason = "it can do more than is needed here")]
mod attacker;
mod world;

use attacker::{Attacker, chain};
use levee_ipc::keyer::{FromKeyer, ToKeyer};
use levee_ipc::warden::Place;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;
use world::*;

/// What IKE_AUTH consists of (RFC 7296 3.2).
const ID_I: u8 = 35;
const CERT: u8 = 37;
const AUTH: u8 = 39;
const IKE_AUTH: u8 = 35;

/// A stranger begins, and shows this certificate, of this host, with an AUTH payload of this data; until it is answered.
fn proves(server: SocketAddr, certificate: &[u8], auth: &[u8]) {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let (mut stranger, mut buffer) = (Attacker::new(true), [0; 4_096]);
    socket.send_to(&stranger.init(&[]), server).unwrap();
    let Ok(length) = socket.recv(&mut buffer) else { return };
    stranger.hear(&buffer[..length]).unwrap();
    let (first, payloads) = chain(&[
        (ID_I, [&[2, 0, 0, 0], &b"ws1"[..]].concat()),
        (CERT, [&[4], certificate].concat()),
        (AUTH, [&[14, 0, 0, 0], auth].concat()),
    ]);
    socket.send_to(&stranger.ask(IKE_AUTH, first, &payloads).unwrap(), server).unwrap();
    let _ = socket.recv(&mut buffer);
}

#[test]
fn who_signs_by_made_up_algorithms_does_not_part_the_keyer_from_sessiond() {
    let authority = Authority::new();
    let server = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    let certificate = Authority::new().identity("ws1", Some(RANGE)).der();
    // RFC 7427 3: the length of the AlgorithmIdentifier, and then that.
    for number in 0..700_u32 {
        let made_up = [&[24, 0x30, 22, 6, 20][..], &number.to_be_bytes().repeat(5), b"a signature"].concat();
        proves(server.group.address(), &certificate, &made_up);
    }
    // What failed is told as far as there is room for it.
    loop {
        if let FromKeyer::Dropped(reasons) = next(&server.asker) {
            let made_up = reasons.iter().filter(|(why, _)| why.contains("the peer signs with"));
            assert!((1..64).contains(&made_up.count()) && reasons.len() <= 64, "{reasons:?}");
            break;
        }
    }
    // And whatever sessiond asks is answered.
    server.tell(&ToKeyer::Renew(record(1, "SECRET")));
    assert!(matches!(server.said(), FromKeyer::NoPeer(of) if of == session(1)));
}
