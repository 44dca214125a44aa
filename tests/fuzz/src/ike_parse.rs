//! Any datagrams before anybody is authenticated, into an endpoint as responder and into one as initiator: every payload has the same
//! parser in clear as under encryption.
//!
//! Input: a byte of options, then datagrams, each behind two bytes of length. Options: 1: leave the header as it is, or else it is
//! made that of an IKE_SA_INIT; 2: cookies are demanded.

use levee_ike::*;
use std::net::SocketAddr;
use std::time::Duration;

fn config(options: u8) -> Config {
    let name = |s: &str| Identity::Fqdn(s.to_owned());
    let key = || Secret::new(b"a shared key".to_vec());
    let mut config = Config::new(vec![Peer {
        local_id: name("a.test"),
        remote_id: RemoteId::Exactly(name("b.test")),
        local_auth: LocalAuth::SharedKey(key()),
        remote_auth: RemoteAuth::SharedKey(key()),
        childless: Childless::Allow,
        ppk: None,
    }]);
    if options & 2 != 0 {
        config.limits.cookie_above = 0;
    }
    config
}

fn random(out: &mut [u8]) {
    for (i, b) in out.iter_mut().enumerate() {
        *b = (i * 31 + 7) as u8;
    }
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    let Some((&options, mut rest)) = input.split_first() else { return };
    let now = Now { monotonic: Duration::from_secs(1), unix_seconds: 1_800_000_000 };
    let (a, b): (SocketAddr, SocketAddr) = (([192, 0, 2, 1], 500).into(), ([192, 0, 2, 2], 500).into());
    let path = Path { local: a, remote: b, marker: false };
    let mut responder = Endpoint::new(config(options));
    let mut initiator = Endpoint::new(config(options));
    initiator.connect(0, path, None, None, now, &mut random).expect("connect");
    let Output::Transmit { datagram: first, .. } = initiator.poll(now, &mut random) else {
        panic!("no first message")
    };
    let mut count = 0u64;
    while let Some((&[high, low], tail)) = rest.split_first_chunk::<2>() {
        let (datagram, tail) =
            tail.split_at(tail.len().min(usize::from(u16::from_be_bytes([high & 0x1f, low]))));
        rest = tail;
        count += 1;
        for (endpoint, begins) in [(&mut responder, false), (&mut initiator, true)] {
            let mut d = datagram.to_vec();
            if options & 1 == 0 && d.len() >= 28 {
                d[..8].copy_from_slice(&first[..8]);
                // A different initiator each time, so that no copy of an earlier request is found.
                if !begins {
                    d[..8].copy_from_slice(&(count << 8 | 1).to_be_bytes());
                    d[8..16].fill(0);
                }
                d[17..20].copy_from_slice(&[0x20, 34, if begins { 0x20 } else { 0x08 }]);
                d[20..24].fill(0);
                let length = (d.len() as u32).to_be_bytes();
                d[24..28].copy_from_slice(&length);
            }
            endpoint.handle(&d, path, now, &mut random);
            let mut answers = 0;
            loop {
                match endpoint.poll(now, &mut random) {
                    Output::Transmit { datagram, .. } => {
                        answers += 1;
                        // What one who began says next is protected, and filled up to a multiple of 1,024 octets.
                        let more = if begins { 4_096 } else { 512 };
                        assert!(datagram.len() <= d.len() + more, "an answer that amplifies");
                    }
                    Output::Event(_) => {}
                    Output::Wait(at) => {
                        assert!(at.is_none_or(|at| at > now.monotonic));
                        break;
                    }
                }
            }
            assert!(answers <= 1, "{answers} answers to one datagram");
        }
    }
    assert!(responder.len() as u64 <= count && initiator.len() <= 1);
}
