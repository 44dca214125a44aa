//! Public captures of IKE (tcpdump's own tests: `captures/README.md`) into an endpoint: each datagram is answered or dropped for the
//! reason that it should be, and none of them leaves anything behind.

use levee_ike::*;
use std::net::SocketAddr;
use std::time::Duration;

/// The UDP payloads of a capture, each with whether it went to or came from port 4500.
fn datagrams(file: &[u8]) -> Vec<(bool, Vec<u8>)> {
    let frames = if file.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) { pcapng(file) } else { pcap(file) };
    frames.into_iter().filter_map(|(link, frame)| udp(link, &frame)).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four octets")) as usize
}

/// libpcap's format: a header of 24 octets, then records behind headers of 16.
fn pcap(file: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let (link, mut at, mut frames) = (u32_at(file, 20) & 0xffff, 24, Vec::new());
    while at + 16 <= file.len() {
        let length = u32_at(file, at + 8);
        let end = (at + 16 + length).min(file.len());
        frames.push((link, file[at + 16..end].to_vec()));
        at = end;
    }
    frames
}

/// pcapng: blocks; type 1 tells the link, type 6 has a frame.
fn pcapng(file: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let (mut link, mut at, mut frames) = (1, 0, Vec::new());
    while at + 12 <= file.len() {
        let length = u32_at(file, at + 4);
        match u32_at(file, at) {
            1 => link = u32_at(file, at + 8) & 0xffff,
            6 => frames.push((link, file[at + 28..at + 28 + u32_at(file, at + 20)].to_vec())),
            _ => {}
        }
        at += length.max(12);
    }
    frames
}

/// The UDP payload of a frame, as much as was captured; `None` where it has none.
fn udp(link: usize, frame: &[u8]) -> Option<(bool, Vec<u8>)> {
    let packet = match link {
        0 => frame.get(4..)?,
        1 => frame.get(14..)?,
        _ => frame,
    };
    let header = match packet.first()? >> 4 {
        4 if *packet.get(9)? == 17 => usize::from(packet[0] & 0xf) * 4,
        6 if *packet.get(6)? == 17 => 40,
        _ => return None,
    };
    let datagram = packet.get(header..)?;
    let port = |at: usize| Some(u16::from_be_bytes([*datagram.get(at)?, *datagram.get(at + 1)?]));
    Some((port(0)? == 4500 || port(2)? == 4500, datagram.get(8..)?.to_vec()))
}

fn endpoint() -> Endpoint {
    let name = |s: &str| Identity::Fqdn(s.to_owned());
    let key = || Secret::new(b"a shared key".to_vec());
    Endpoint::new(Config::new(vec![Peer {
        local_id: name("a.test"),
        remote_id: RemoteId::Exactly(name("b.test")),
        local_auth: LocalAuth::SharedKey(key()),
        remote_auth: RemoteAuth::SharedKey(key()),
        childless: Childless::Allow,
        ppk: None,
    }]))
}

fn random(out: &mut [u8]) {
    for (i, b) in out.iter_mut().enumerate() {
        *b = (i * 31 + 7) as u8;
    }
}

/// What became of a capture's datagrams: how many there are, the first notification of each answer, the drops by reason.
fn replay(file: &[u8]) -> (usize, Vec<u16>, String) {
    let (a, b): (SocketAddr, SocketAddr) = (([192, 0, 2, 1], 500).into(), ([192, 0, 2, 2], 500).into());
    let now = Now { monotonic: Duration::from_secs(1), unix_seconds: 1_800_000_000 };
    let (mut endpoint, mut answers) = (endpoint(), Vec::new());
    let all = datagrams(file);
    for (marker, datagram) in &all {
        endpoint.handle(datagram, Path { local: a, remote: b, marker: *marker }, now, &mut random);
        loop {
            match endpoint.poll(now, &mut random) {
                Output::Transmit { datagram, .. } => {
                    let message = if *marker { &datagram[4..] } else { &datagram[..] };
                    assert_eq!(message[16], 41, "an answer is a notification");
                    answers.push(u16::from_be_bytes([message[34], message[35]]));
                }
                Output::Event(event) => panic!("nobody is authenticated: {event:?}"),
                Output::Wait(_) => break,
            }
        }
    }
    assert!(endpoint.is_empty(), "nothing is kept of strangers whose proposals do not fit");
    let mut drops: Vec<String> =
        endpoint.counters().iter().filter(|(_, n)| *n > 0).map(|(why, n)| format!("{why:?} {n}")).collect();
    drops.sort();
    (all.len(), answers, drops.join(", "))
}

macro_rules! capture {
    ($name:literal) => {
        ($name, &include_bytes!(concat!("../captures/", $name))[..])
    };
}

/// A capture and its name, how many datagrams it has, what the answers say, and the drops.
type Row = ((&'static str, &'static [u8]), usize, &'static [u16], &'static str);

#[test]
fn public_captures_are_answered_or_dropped_for_the_right_reason() {
    // Requests of IKEv2 whose algorithms are not spoken are told so (14: NO_PROPOSAL_CHOSEN), and what follows them belongs to no IKE SA.
    // The others are of IKEv1, or ESP, and IKEv2's header is not in them.
    let expected: [Row; 15] = [
        (capture!("ikev2four.pcap"), 21, &[14, 14], "NoProposal 2, UnknownSpi 19"),
        (capture!("ikev2pI2.pcap"), 2, &[14], "NoProposal 1, UnknownSpi 1"),
        (capture!("ikev2pI2-segfault.pcapng"), 1, &[], "Malformed 1"),
        (capture!("ISAKMP_sa_setup.pcap"), 9, &[], "Header 9"),
        (capture!("isakmp4500.pcap"), 27, &[], "Header 27"),
        (capture!("isakmp-no-none-np.pcapng"), 1, &[], "Header 1"),
        (capture!("isakmp-rfc3948-oobr.pcap"), 1, &[], "Header 1"),
        (capture!("isakmp-3948-oobr-2.pcap"), 1, &[], "Header 1"),
        (capture!("isakmp-delete-segfault.pcap"), 1, &[], "Header 1"),
        (capture!("isakmp-identification-segfault.pcap"), 1, &[], "Header 1"),
        (capture!("isakmp-ikev1_n_print-oobr.pcap"), 2, &[], "Header 2"),
        (capture!("isakmp-pointer-loop.pcap"), 1, &[], "Header 1"),
        (capture!("isakmp-various-oobr.pcap"), 2, &[], "Header 2"),
        (capture!("isakmpv1-attr-oobr.pcap"), 1, &[], "Header 1"),
        (capture!("ikev1_id_ipv6_addr_subnet-oobr.pcap"), 1, &[], "Header 1"),
    ];
    for ((name, file), count, answers, drops) in expected {
        assert_eq!(replay(file), (count, answers.to_vec(), drops.to_owned()), "{name}");
    }
}
