//! Transport mode and AH by `levee-esp` on raw sockets, against the kernel in the guest: echoes both ways.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use levee_aead::Library;
use levee_esp::ah::{AH, AhInbound, AhOutbound};
use levee_esp::transport::{self, ESP};
use levee_esp::{InboundSa, OutboundSa, SaKeys, Spi, Suite};
use levee_guest::Guest;
use levee_sys::ns;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::OUTSIDE;

/// The guest's and our SPI: by which we and it receive.
const SPIS: (u32, u32) = (0x1001, 0x1002);
const INNER: (&str, &str) = ("10.9.0.1", "10.0.0.2");

/// One way of protecting packets, with both associations.
enum Protection {
    Esp(OutboundSa, InboundSa),
    Ah(AhOutbound, AhInbound),
    AhTunnel(AhOutbound, AhInbound, IpAddr, IpAddr),
}

impl Protection {
    fn protect(&mut self, packet: &[u8]) -> Vec<u8> {
        match self {
            Self::Esp(sa, _) => transport::seal(sa, packet),
            Self::Ah(sa, _) => sa.protect(packet),
            Self::AhTunnel(sa, _, from, to) => sa.protect_in_tunnel(packet, *from, *to),
        }
        .unwrap()
    }

    fn open(&mut self, packet: &[u8]) -> Result<Vec<u8>, levee_esp::DropReason> {
        match self {
            Self::Esp(_, sa) => transport::open(sa, packet),
            Self::Ah(_, sa) => sa.verify(packet),
            Self::AhTunnel(_, sa, ..) => sa.verify_in_tunnel(packet),
        }
    }
}

fn raw(net: &OwnedFd, six: bool, protocol: u8) -> OwnedFd {
    let family = if six { AddressFamily::INET6 } else { AddressFamily::INET };
    let protocol = rustix::net::Protocol::from_raw(u32::from(protocol).try_into().unwrap());
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    ns::in_net(net.as_fd(), || {
        rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol)).expect("needs root")
    })
    .unwrap()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// An IP packet.
fn packet(from: IpAddr, to: IpAddr, protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = if from.is_ipv4() {
        let [l0, l1] = (20 + body.len() as u16).to_be_bytes();
        vec![0x45, 0, l0, l1, 0x12, 0x34, 0, 0, 64, protocol, 0, 0]
    } else {
        let [l0, l1] = (body.len() as u16).to_be_bytes();
        vec![0x60, 0, 0, 0, l0, l1, protocol, 64]
    };
    bytes.extend(octets(from));
    bytes.extend(octets(to));
    if from.is_ipv4() {
        let sum = super::common::checksum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    bytes.extend(body);
    bytes
}

/// An echo request (or its answer) with this content behind type, code and checksum.
fn echo(from: IpAddr, to: IpAddr, answer: bool, content: &[u8]) -> Vec<u8> {
    let six = from.is_ipv6();
    let kind = match (six, answer) {
        (false, false) => 8,
        (false, true) => 0,
        (true, false) => 128,
        (true, true) => 129,
    };
    let mut body = vec![kind, 0, 0, 0];
    body.extend(content);
    let mut summed = Vec::new();
    if six {
        summed.extend(octets(from));
        summed.extend(octets(to));
        summed.extend((body.len() as u32).to_be_bytes());
        summed.extend([0, 0, 0, 58]);
    }
    summed.extend(&body);
    let sum = super::common::checksum(&summed);
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    packet(from, to, if six { 58 } else { 1 }, &body)
}

/// What an echo is: request or answer, and its content.
fn read_echo(packet: &[u8]) -> Option<(bool, Vec<u8>)> {
    let body = if packet[0] >> 4 == 4 { &packet[20..] } else { &packet[40..] };
    match body[0] {
        8 | 128 => Some((false, body[4..].to_vec())),
        0 | 129 => Some((true, body[4..].to_vec())),
        _ => None,
    }
}

struct Wire {
    receive: OwnedFd,
    send: OwnedFd,
    protocol: u8,
    ours: IpAddr,
    theirs: IpAddr,
}

impl Wire {
    fn send(&self, packet: &[u8]) {
        // The kernel makes the IPv6 header itself; the IPv4 one it takes as it is.
        let bytes = if self.ours.is_ipv6() { &packet[40..] } else { packet };
        let to = SocketAddr::new(self.theirs, 0);
        rustix::net::sendto(&self.send, bytes, SendFlags::empty(), &to).unwrap();
    }

    fn receive(&self, buffer: &mut [u8]) -> Option<Vec<u8>> {
        let (_, length) = rustix::net::recv(&self.receive, &mut *buffer, RecvFlags::empty()).ok()?;
        Some(if self.ours.is_ipv6() {
            packet(self.theirs, self.ours, self.protocol, &buffer[..length])
        } else {
            buffer[..length].to_vec()
        })
    }
}

/// Lets the guest ping us, then pings the guest, all under this protection.
fn echoes(guest: &mut Guest, wire: &Wire, inside: (IpAddr, IpAddr), mut protection: Protection, case: &str) {
    let (us, them) = inside;
    let stop = AtomicBool::new(false);
    let six = if us.is_ipv6() { "6" } else { "" };
    let mut buffer = vec![0; 65_536];
    std::thread::scope(|scope| {
        let (stop, protection, buffer) = (&stop, &mut protection, &mut buffer);
        let answering = scope.spawn(move || {
            let (mut requests, mut refused) = (0, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                let Some(packet) = wire.receive(buffer) else {
                    std::thread::sleep(Duration::from_millis(2));
                    continue;
                };
                match protection.open(&packet) {
                    Ok(packet) => {
                        if let Some((false, content)) = read_echo(&packet) {
                            requests += 1;
                            wire.send(&protection.protect(&echo(us, them, true, &content)));
                        }
                    }
                    Err(why) => refused.push(why),
                }
            }
            (requests, refused)
        });
        let (good, said) = guest.attempt(&format!("ping{six} -c 2 -i 0.1 -s 777 -W 10 -I {them} {us}"));
        stop.store(true, Ordering::Relaxed);
        let (requests, refused) = answering.join().unwrap();
        assert!(good && requests >= 2, "{case}: {requests} requests, {refused:?}\n{said}");
        assert!(refused.is_empty(), "{case}: {refused:?}");
    });
    let content: Vec<u8> = [0x4c, 0x56, 0, 1].into_iter().chain((0..=255).cycle().take(501)).collect();
    wire.send(&protection.protect(&echo(us, them, false, &content)));
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        assert!(Instant::now() < end, "{case}: no answer from the guest");
        if let Some(packet) = wire.receive(&mut buffer) {
            let packet = protection.open(&packet).unwrap_or_else(|why| panic!("{case}: {why:?}"));
            if read_echo(&packet) == Some((true, content.clone())) {
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn policies(ours: &str, theirs: &str, inside: (IpAddr, IpAddr), how: &str) -> Vec<String> {
    let (us, them) = inside;
    // In IPv6 neighbours find each other by the same protocol, in clear.
    let what: &[&str] = if us.is_ipv6() { &["proto 58 type 128", "proto 58 type 129"] } else { &["proto 1"] };
    let mut lines = Vec::new();
    for what in what {
        lines.push(format!(
            "xfrm policy add dir out src {them} dst {us} {what} tmpl src {theirs} dst {ours} {how}"
        ));
        lines.push(format!(
            "xfrm policy add dir in src {us} dst {them} {what} tmpl src {ours} dst {theirs} {how}"
        ));
    }
    lines
}

/// Every protocol and mode, both families and both number sizes.
pub fn every_case(guest: &mut Guest, net: BorrowedFd<'_>) {
    let net = net.try_clone_to_owned().unwrap();
    for (protocol, tunnel, outside, extended) in [
        (ESP, false, OUTSIDE[0], false),
        (ESP, false, OUTSIDE[1], true),
        (AH, false, OUTSIDE[0], false),
        (AH, false, OUTSIDE[0], true),
        (AH, false, OUTSIDE[1], false),
        (AH, true, OUTSIDE[0], true),
    ] {
        let case = format!("protocol {protocol}, tunnel {tunnel}, {outside:?}, extended {extended}");
        let (ours, theirs): (IpAddr, IpAddr) = (outside.0.parse().unwrap(), outside.1.parse().unwrap());
        let inside =
            if tunnel { (INNER.0.parse().unwrap(), INNER.1.parse().unwrap()) } else { (ours, theirs) };
        let keys: [Vec<u8>; 2] = [1, 2].map(|way| (0..32).map(|b| b * 7 + way).collect());
        let (name, length, algorithm) = match protocol {
            ESP => ("esp", 20, "aead rfc4106(gcm(aes))"),
            _ => ("ah", 32, "auth-trunc hmac(sha256)"),
        };
        let mode = if tunnel { "tunnel" } else { "transport" };
        let mut flags = Vec::new();
        if extended {
            flags.push("esn");
        }
        if protocol == AH && ours.is_ipv4() {
            // RFC 4302 3.3.3.2.1; Linux pads to 8 bytes unless told.
            flags.push("align4");
        }
        let flags = flags.iter().map(|flag| format!("flag {flag} ")).collect::<String>();
        let mut lines = vec!["xfrm state flush".to_owned(), "xfrm policy flush".to_owned()];
        for (spi, key, from, to) in [(SPIS.0, &keys[0], theirs, ours), (SPIS.1, &keys[1], ours, theirs)] {
            let key: String = key[..length].iter().map(|byte| format!("{byte:02x}")).collect();
            lines.push(format!(
                "xfrm state add src {from} dst {to} proto {name} spi {spi:#x} reqid 9 mode {mode} \
                 replay-window 32 {flags}{algorithm} 0x{key} 128"
            ));
        }
        lines.extend(policies(outside.0, outside.1, inside, &format!("proto {name} reqid 9 mode {mode}")));
        guest.run(&format!("printf '{}\\n' | ip -batch -", lines.join("\\n")));

        let [inbound, outbound] = [SPIS.0, SPIS.1].map(|spi| Spi::new(spi).unwrap());
        let protection = match protocol {
            ESP => {
                let [to_us, to_them] =
                    [0, 1].map(|way: usize| SaKeys::new(Suite::Aes128Gcm, &keys[way][..20]).unwrap());
                Protection::Esp(
                    OutboundSa::new(outbound, &to_them, extended, &Library::Ring).unwrap(),
                    InboundSa::new(inbound, &to_us, extended, &Library::AwsLc).unwrap(),
                )
            }
            _ => {
                let out = AhOutbound::new(outbound, &keys[1], extended, &Library::Ring).unwrap();
                let back = AhInbound::new(inbound, &keys[0], extended, &Library::AwsLc).unwrap();
                if tunnel { Protection::AhTunnel(out, back, ours, theirs) } else { Protection::Ah(out, back) }
            }
        };
        let six = ours.is_ipv6();
        let wire = Wire {
            receive: raw(&net, six, protocol),
            // IPPROTO_RAW: with the header.
            send: raw(&net, six, if six { protocol } else { 255 }),
            protocol,
            ours,
            theirs,
        };
        echoes(guest, &wire, inside, protection, &case);
    }
}
