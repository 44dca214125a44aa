//! A peer of the server's vault inside the test: it can send what no honest peer would.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use levee_aead::Library;
use levee_esp::{
    AddressRange, ESP_HEADER, Inner, Install, Outer, PortRange, Route, SaKeys, Sad, Selector, SelectorSet,
    SessionPolicy, Side, Spi, Suite,
};
use levee_ipc::Secret;
use levee_ipc::vault::{KeyerToVault, Sa, VaultToKeyer};
use levee_session::SessionId;
use levee_sys::{ns, udp};

use super::{Host, SLOT, SLOTS, Vault, hear, ip, spi_of};

pub const MATERIAL: usize = 36;

/// Keys that nothing else has, different each way.
pub fn material(n: u32, from_peer: bool) -> Vec<u8> {
    (0..MATERIAL as u32)
        .map(|b| (b.wrapping_mul(41) ^ n.wrapping_mul(97) ^ (u32::from(from_peer) << 7)) as u8)
        .collect()
}

pub fn server_spi(n: u32) -> u32 {
    spi_of(SLOTS, SLOT, n)
}

/// Gives the vault pair `n` with this inbound SPI; answers what it says.
pub fn install(vault: &Vault, session: SessionId, n: u32, spi: u32) -> VaultToKeyer {
    let secret = |from_peer| Secret::new(material(n, from_peer)).unwrap();
    let message = KeyerToVault::Install {
        session,
        cipher: levee_ipc::vault::Cipher::Aes256Gcm,
        esn: true,
        inbound: Sa { spi, keying_material: secret(true) },
        outbound: Sa { spi: 0x00a0_0000 | n, keying_material: secret(false) },
        answered: false,
        peer: None,
        aggregation: None,
    };
    vault.keyer.send(&message).unwrap();
    loop {
        match hear(&vault.keyer) {
            VaultToKeyer::Acquire(_) => {}
            other => return other,
        }
    }
}

pub struct Peer {
    pub sad: Sad<u32>,
    pub socket: OwnedFd,
    pub to: SocketAddr,
    began: Instant,
    received: VecDeque<Vec<u8>>,
}

impl Peer {
    /// A peer with pair `n`, on a socket of its own in the client's network.
    pub fn new(client: &Host, server: SocketAddr, n: u32) -> Self {
        Self::with(client, server, n, server_spi(n))
    }

    /// The same by this SPI of the server's.
    pub fn with(client: &Host, server: SocketAddr, n: u32, spi: u32) -> Self {
        let everything = |family: &str| {
            let any = AddressRange::prefix(ip(family), 0).unwrap();
            Selector {
                local: any,
                remote: any,
                protocol: None,
                local_ports: PortRange::ANY,
                remote_ports: PortRange::ANY,
            }
        };
        let mut sad = Sad::new(Side::Workstation);
        let policy = SessionPolicy {
            inner: ["10.0.0.2", "10.0.0.3", "10.9.0.1", "fd00::2"].map(ip).to_vec(),
            selectors: SelectorSet::new(vec![everything("0.0.0.0"), everything("::")]),
            only: None,
        };
        sad.open_session(1, policy).unwrap();
        let keys = |from_peer| SaKeys::new(Suite::Aes256Gcm, &material(n, from_peer)).unwrap();
        let install = Install {
            session: 1,
            extended: true,
            inbound: (Spi::new(0x00a0_0000 | n).unwrap(), keys(false)),
            outbound: (Spi::new(spi).unwrap(), keys(true)),
            answered: false,
            peer: Some(Outer { address: server, socket: 0 }),
            aggregation: None,
        };
        sad.install(Duration::ZERO, install, &Library::AwsLc).unwrap();
        let socket = ns::in_net(client.outer.as_fd(), || udp::bind("192.0.2.2:0".parse().unwrap(), 1 << 22))
            .unwrap()
            .unwrap();
        Self { sad, socket, to: server, began: Instant::now(), received: VecDeque::new() }
    }

    /// The inner packet as a datagram for the vault.
    pub fn seal(&mut self, packet: &[u8]) -> Vec<u8> {
        let inner = Inner::parse(packet).unwrap();
        let Ok(Route::Through(mut lane)) = self.sad.route(self.began.elapsed(), &inner) else {
            panic!("no way")
        };
        let mut buffer = vec![0; levee_esp::sealed_length(packet.len())];
        buffer[ESP_HEADER..][..packet.len()].copy_from_slice(packet);
        lane.seal(&mut buffer, packet.len()).unwrap();
        buffer
    }

    /// As [`Peer::seal`] for bytes that are no proper packet: sent as if they were the flow of an echo.
    pub fn seal_anyway(&mut self, bytes: &[u8]) -> Vec<u8> {
        let inner = Inner::parse(&echo("10.0.0.2", "10.9.0.1", 0)).unwrap();
        let Ok(Route::Through(mut lane)) = self.sad.route(self.began.elapsed(), &inner) else {
            panic!("no way")
        };
        let mut buffer = vec![0; levee_esp::sealed_length(bytes.len())];
        buffer[ESP_HEADER..][..bytes.len()].copy_from_slice(bytes);
        lane.seal(&mut buffer, bytes.len()).unwrap();
        buffer
    }

    pub fn send(&self, datagram: &[u8]) {
        udp::send(self.socket.as_fd(), datagram, self.to, None, 0).unwrap();
    }

    /// Several datagrams of one length in one send, so that they arrive as one aggregate.
    pub fn send_together(&self, datagrams: &[Vec<u8>]) {
        let size = datagrams[0].len() as u16;
        udp::send(self.socket.as_fd(), &datagrams.concat(), self.to, Some(size), 0).unwrap();
    }

    /// The next inner packet from the vault within `limit`.
    pub fn receive(&mut self, limit: Duration) -> Option<Vec<u8>> {
        let end = Instant::now() + limit;
        let mut buffer = vec![0; 65_536];
        while self.received.is_empty() && Instant::now() < end {
            let Ok(received) = udp::receive(self.socket.as_fd(), &mut buffer) else {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            };
            let from = Outer { address: received.from, socket: 0 };
            let size = received.segment.map_or(received.length, usize::from);
            for datagram in buffer[..received.length].chunks_mut(size) {
                if let Ok(opened) = self.sad.open(Duration::ZERO, datagram, 0, from, received.ecn) {
                    self.received.push_back(datagram[..opened.inner.length].to_vec());
                }
            }
        }
        self.received.pop_front()
    }
}

/// An IPv4 packet with a right header checksum.
pub fn packet(protocol: u8, from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    let address = |text: &str| text.parse::<std::net::Ipv4Addr>().unwrap().octets();
    let mut bytes = vec![0x45, 0];
    bytes.extend((20 + payload.len() as u16).to_be_bytes());
    bytes.extend([0x12, 0x34, 0, 0, 64, protocol, 0, 0]);
    bytes.extend(address(from));
    bytes.extend(address(to));
    let sum = super::checksum(&bytes);
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// An ICMP echo request from `from` to `to`.
pub fn echo(from: &str, to: &str, number: u16) -> Vec<u8> {
    let mut icmp = vec![8, 0, 0, 0, 0, 7];
    icmp.extend(number.to_be_bytes());
    icmp.extend([0x33; 24]);
    let sum = super::checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    packet(1, from, to, &icmp)
}

/// The start of a TCP or UDP payload: its ports, and zeros.
pub fn ports(source: u16, destination: u16) -> Vec<u8> {
    let mut bytes = source.to_be_bytes().to_vec();
    bytes.extend(destination.to_be_bytes());
    bytes.resize(28, 0);
    bytes
}
