//! Two ends of a tunnel, and packets for it.
#![allow(dead_code, reason = "each test file uses its part")]

use std::net::IpAddr;
use std::time::Duration;

use levee_aead::Library;
use levee_esp::aggfrag::Aggregation;
use levee_esp::{
    AddressRange, Counters, DropReason, ESP_HEADER, Inner, Install, Outer, PortRange, Route, SaKeys, Sad,
    Selector, SelectorSet, SessionPolicy, Side, Spi, Suite,
};

pub const NOW: Duration = Duration::from_secs(100);
/// What the server's SPIs begin with.
pub const SLOT: u16 = 7;

/// SPI `n` of those that begin so.
pub fn spi(with: u16, n: u32) -> Spi {
    Spi::new(u32::from(with) << 20 | n).unwrap()
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Drops for whatever reason.
pub fn dropped(counters: &Counters) -> u64 {
    DropReason::ALL.iter().map(|reason| counters.dropped(*reason)).sum()
}

pub fn at(text: &str) -> Outer {
    Outer { address: text.parse().unwrap(), socket: 3 }
}

pub fn client_address() -> Outer {
    at("192.0.2.9:40000")
}

pub fn server_address() -> Outer {
    at("198.51.100.1:4500")
}

pub fn any_selector(local: &str, remote: &str) -> Selector {
    let prefix = |text: &str| {
        let (address, length) = text.split_once('/').unwrap();
        AddressRange::prefix(ip(address), length.parse().unwrap()).unwrap()
    };
    Selector {
        local: prefix(local),
        remote: prefix(remote),
        protocol: None,
        local_ports: PortRange::ANY,
        remote_ports: PortRange::ANY,
    }
}

fn mirrored(selector: &Selector) -> Selector {
    Selector {
        local: selector.remote,
        remote: selector.local,
        protocol: selector.protocol,
        local_ports: selector.remote_ports,
        remote_ports: selector.local_ports,
    }
}

/// Inner addresses of session 1.
pub fn inner() -> Vec<IpAddr> {
    vec![ip("10.0.0.2"), ip("fd00::2")]
}

pub fn everything() -> Vec<Selector> {
    vec![any_selector("10.9.0.0/16", "10.0.0.2/32"), any_selector("fd00:9::/32", "fd00::2/128")]
}

pub struct Tunnel {
    pub server: Sad<u32>,
    pub client: Sad<u32>,
    pub next: u32,
    /// Of the pairs to come.
    pub aggregation: Option<Aggregation>,
    /// The server has answered the client's rekeying.
    pub answered: bool,
}

impl Tunnel {
    /// One session with these selectors, as the server sees them, and one pair.
    pub fn new(suite: Suite, extended: bool, selectors: Vec<Selector>) -> Self {
        let mut tunnel = Self {
            server: Sad::new(Side::Server),
            client: Sad::new(Side::Workstation),
            next: 1,
            aggregation: None,
            answered: false,
        };
        let mirror = selectors.iter().map(mirrored).collect();
        let policy = |rows| SessionPolicy { inner: inner(), selectors: SelectorSet::new(rows), only: None };
        tunnel.server.open_session(1, policy(selectors)).unwrap();
        tunnel.client.open_session(1, policy(mirror)).unwrap();
        tunnel.rekey(suite, extended);
        tunnel
    }

    /// The SPIs of the next pair: what the server and what the client receives.
    pub fn spis(&self) -> (Spi, Spi) {
        (spi(SLOT, self.next), spi(1, self.next))
    }

    pub fn rekey(&mut self, suite: Suite, extended: bool) {
        let (to_server, to_client) = self.spis();
        let n = self.next as u8;
        let keys = |from_client: bool| {
            let material: Vec<u8> = (0..suite.keying_material() as u8)
                .map(|b| b ^ n.wrapping_mul(31) ^ u8::from(from_client))
                .collect();
            SaKeys::new(suite, &material).unwrap()
        };
        let up = Install {
            session: 1,
            extended,
            inbound: (to_server, keys(true)),
            outbound: (to_client, keys(false)),
            answered: self.answered,
            peer: None,
            aggregation: self.aggregation,
        };
        let down = Install {
            session: 1,
            extended,
            inbound: (to_client, keys(false)),
            outbound: (to_server, keys(true)),
            answered: false,
            peer: Some(server_address()),
            aggregation: self.aggregation,
        };
        self.server.install(NOW, up, &Library::Ring).unwrap();
        self.client.install(NOW, down, &Library::AwsLc).unwrap();
        self.next += 1;
    }
}

/// Routes and seals; `None` when it has to wait.
pub fn seal(sad: &mut Sad<u32>, packet: &[u8]) -> Result<Option<(Vec<u8>, Outer)>, levee_esp::DropReason> {
    seal_at(NOW, sad, packet)
}

pub fn seal_at(
    now: Duration,
    sad: &mut Sad<u32>,
    packet: &[u8],
) -> Result<Option<(Vec<u8>, Outer)>, levee_esp::DropReason> {
    let inner = Inner::parse(packet)?;
    match sad.route(now, &inner)? {
        Route::Wait(_) => Ok(None),
        Route::Gather(_) => panic!("no AGGFRAG here"),
        Route::Through(mut lane) => {
            let mut buffer = vec![0; levee_esp::sealed_length(packet.len())];
            buffer[ESP_HEADER..][..packet.len()].copy_from_slice(packet);
            let sealed = lane.seal(&mut buffer, packet.len())?;
            assert_eq!(sealed.length, buffer.len());
            Ok(Some((buffer, sealed.peer)))
        }
    }
}

/// Opens; answers the inner packet.
pub fn open(sad: &mut Sad<u32>, datagram: &[u8], from: Outer) -> Result<Vec<u8>, levee_esp::DropReason> {
    let mut buffer = datagram.to_vec();
    let opened = sad.open(NOW, &mut buffer, 0, from, 0)?;
    buffer.truncate(opened.inner.length);
    Ok(buffer)
}

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const ICMP: u8 = 1;

/// An IP packet; for protocols with ports the payload begins with them.
pub fn packet(protocol: u8, from: &str, to: &str, ports: Option<(u16, u16)>, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    if let Some((source, destination)) = ports {
        body.extend(source.to_be_bytes());
        body.extend(destination.to_be_bytes());
    }
    body.extend(payload);
    match (ip(from), ip(to)) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut bytes = vec![0x45, 0];
            bytes.extend((20 + body.len() as u16).to_be_bytes());
            bytes.extend([0x12, 0x34, 0, 0, 64, protocol, 0, 0]);
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            let mut sum: u32 = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
            while sum >> 16 != 0 {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            bytes[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
            bytes.extend(body);
            bytes
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => v6(protocol, &from.to_string(), &to.to_string(), &body),
        _ => panic!("two families"),
    }
}

/// An IPv6 packet with this next header and everything behind the fixed header.
pub fn v6(next: u8, from: &str, to: &str, body: &[u8]) -> Vec<u8> {
    let (IpAddr::V6(from), IpAddr::V6(to)) = (ip(from), ip(to)) else { panic!("IPv6 addresses") };
    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend([next, 64]);
    bytes.extend(from.octets());
    bytes.extend(to.octets());
    bytes.extend(body);
    bytes
}
