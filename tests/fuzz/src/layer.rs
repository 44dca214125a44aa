//! Any datagrams at a server's second tunnel, from strangers; and any content of a tunnel's datagrams.
//!
//! Input: a byte of options, then datagrams, each behind two bytes with its length. With option 1 they are what a tunnel carries; else what
//! comes from the network, each from the address that the rest of the options name.

use levee_layer::carried::{Carried, LONGEST};
use levee_layer::crypto::{Believed, Own};
use levee_layer::quic::{Out, Quic};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Of nobody: made for this.
const AUTHORITY: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBNDCB56ADAgECAhQV0s2H2u7N1aqlZDsyNcSlNf7ZGDAFBgMrZXAwDzENMAsG\n\
A1UEAwwEZnV6ejAgFw0yNjExMjMxNDQ2NTJaGA8yMTI2MTAzMDE0NDY1MlowDzEN\n\
MAsGA1UEAwwEZnV6ejAqMAUGAytlcAMhAKOa/sm45/FqCJJ8hF2TG8ubJ4mC31BD\n\
l0BOLh/htxPCo1MwUTAdBgNVHQ4EFgQULEJ8Tt7zKfBeRsAYneEvKPsQisUwHwYD\n\
VR0jBBgwFoAULEJ8Tt7zKfBeRsAYneEvKPsQisUwDwYDVR0TAQH/BAUwAwEB/zAF\n\
BgMrZXADQQBGzi8R3QS+To7U2D7gaz5VrORbmFCpFbBRUENm0PWehOe5JAc743QN\n\
ec20MjkY0J27SwHDRZwq6BpfBJ5+tAUK\n\
-----END CERTIFICATE-----\n\n";
const CHAIN: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBRDCB96ADAgECAhQpqKXPG34kqs8QQuiu+ugbioIYRDAFBgMrZXAwDzENMAsG\n\
A1UEAwwEZnV6ejAgFw0yNjExMjMxNDQ2NTJaGA8yMTI2MTAzMDE0NDY1MlowFzEV\n\
MBMGA1UEAwwMZnV6ei5leGFtcGxlMCowBQYDK2VwAyEA9uP2eyVK7Lnj+jGNNbTR\n\
4ymfbgdv4LpR+7FS+jpY81ajWzBZMBcGA1UdEQQQMA6CDGZ1enouZXhhbXBsZTAd\n\
BgNVHQ4EFgQU7Jhx2TqFOv1zo3YI6AKrBhDxZfMwHwYDVR0jBBgwFoAULEJ8Tt7z\n\
KfBeRsAYneEvKPsQisUwBQYDK2VwA0EAl1LHLKsAEyHiUQVbLU/NFl9hdgqyhcL8\n\
38gZSUmonBYDMo26XpU+Vm/Ju4zq/YP0hpatCNSB+6nmV1V8RhtdBA==\n\
-----END CERTIFICATE-----\n\n";
const KEY: &str = "\
-----BEGIN PRIVATE KEY-----\n\
MC4CAQAwBQYDK2VwBCIEIBVQaNIsYrsHJD/iMRvHnPoVz5mJSdsjCyCwhezj9NTI\n\
-----END PRIVATE KEY-----\n\n";

fn own() -> Own {
    Own::read(CHAIN.as_bytes(), KEY.as_bytes()).expect("a certificate and its key")
}

/// What an honest workstation says first.
pub fn first() -> Vec<u8> {
    let server = Believed::server(AUTHORITY.as_bytes(), "fuzz.example").expect("an authority");
    let mut client = Quic::client(own(), server).expect("a client");
    let (now, mut said) = (Instant::now(), Vec::new());
    client.connect(now, SocketAddr::from(([192, 0, 2, 1], 4433)), "fuzz.example").expect("a tunnel");
    client.work(now, &mut |out: Out<'_>| said = out.bytes.to_vec());
    said
}

fn carried(datagram: &[u8]) {
    let Some(read) = Carried::parse(datagram) else { return };
    assert_eq!(read.write().as_deref(), Some(datagram), "it is one thing alone");
    if let Carried::Packet(_, packet) = read {
        assert!((1..=LONGEST).contains(&packet.len()));
    }
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((&options, mut rest)) = input.split_first() else { return };
    let mut datagrams = Vec::new();
    while let Some((length, behind)) = rest.split_at_checked(2) {
        let length = usize::from(u16::from_be_bytes([length[0], length[1]])).min(behind.len());
        let (datagram, after) = behind.split_at(length);
        datagrams.push(datagram);
        rest = after;
    }
    if options & 1 != 0 {
        return datagrams.into_iter().for_each(carried);
    }
    let believed = Believed::clients(AUTHORITY.as_bytes()).expect("an authority");
    let mut server = Quic::server(own(), believed).expect("a server");
    let mut now = Instant::now();
    for (number, datagram) in datagrams.into_iter().enumerate() {
        let last = if options & 2 != 0 { 1 } else { u8::try_from(number & 0x7f).expect("seven bits") };
        let from = SocketAddr::from(([198, 51, 100, last], 40_000));
        let mut said = 0;
        server.receive(now, from, Ipv4Addr::LOCALHOST.into(), datagram, &mut |out| said += out.bytes.len());
        assert!(said <= datagram.len(), "{said} octets for {}: an amplifier", datagram.len());
        now += Duration::from_millis(u64::from(options >> 2));
        let news = server.work(now, &mut |_| panic!("to a stranger nothing is sent unasked"));
        assert!(news.is_empty(), "{news:?}");
        // Nobody has shown that the address is theirs: that would take a token, and its key is the server's alone.
        assert_eq!(server.count(), 0, "a stranger has memory here");
    }
}
