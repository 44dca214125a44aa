//! Just enough ESP to see that a child's keys work: one ping through it. Written from RFC 4303 and RFC 4106 with ring alone, so that
//! it shares nothing with the product's own ESP.

use crate::host::Host;
use levee_ike::{ChildEstablished, Encryption, EspKeys};
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::time::Duration;

/// One child SA as a tunnel.
pub struct Tunnel {
    inbound: u32,
    outbound: u32,
    seal: (LessSafeKey, [u8; 4]),
    open: (LessSafeKey, [u8; 4]),
    esn: bool,
    /// Whom to ping: an address on strongSwan's side.
    pub to: [u8; 4],
}

fn key(encryption: Encryption, keys: &EspKeys) -> (LessSafeKey, [u8; 4]) {
    let algorithm = match encryption {
        Encryption::Aes128Gcm16 => &AES_128_GCM,
        Encryption::Aes256Gcm16 => &AES_256_GCM,
        Encryption::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        other => panic!("the test's ESP has no {other:?}"),
    };
    let key = UnboundKey::new(algorithm, &keys.encryption).expect("a key of the right length");
    (LessSafeKey::new(key), keys.salt.as_slice().try_into().expect("four octets of salt"))
}

impl Tunnel {
    /// Takes a child's keys.
    pub fn new(child: &ChildEstablished) -> Self {
        let encryption = child.suite.encryption;
        Self {
            inbound: child.inbound,
            outbound: child.outbound,
            seal: key(encryption, &child.outbound_keys),
            open: key(encryption, &child.inbound_keys),
            esn: child.suite.esn,
            to: [10, 9, 2, 1],
        }
    }

    fn aad(&self, spi: u32, sequence: u32) -> Vec<u8> {
        let mut out = spi.to_be_bytes().to_vec();
        if self.esn {
            out.extend_from_slice(&[0; 4]);
        }
        out.extend_from_slice(&sequence.to_be_bytes());
        out
    }

    fn nonce(salt: [u8; 4], iv: &[u8]) -> Nonce {
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&salt);
        nonce[4..].copy_from_slice(iv);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Sends pings from 10.9.1.1 until the answer to one comes back through the child, and says whether it did. A responder has its
    /// child before the initiator has, so the first ping may come too early for the other side.
    pub fn ping(&self, host: &mut Host) -> bool {
        (0..10).any(|_| self.ping_once(host))
    }

    fn ping_once(&self, host: &mut Host) -> bool {
        let sequence = host.next_sequence(self.outbound);
        let number = u16::try_from(sequence).unwrap_or(0);
        let request = echo(8, [10, 9, 1, 1], self.to, number);
        let mut plain = request.clone();
        let pad = (4 - (plain.len() + 2) % 4) % 4;
        plain.extend(1..=u8::try_from(pad).expect("at most three"));
        plain.extend_from_slice(&[u8::try_from(pad).expect("at most three"), 4]);
        let iv = u64::from(sequence).to_be_bytes();
        let aad = Aad::from(self.aad(self.outbound, sequence));
        self.seal.0.seal_in_place_append_tag(Self::nonce(self.seal.1, &iv), aad, &mut plain).expect("seal");
        let mut packet = self.outbound.to_be_bytes().to_vec();
        packet.extend_from_slice(&sequence.to_be_bytes());
        packet.extend_from_slice(&iv);
        packet.extend_from_slice(&plain);
        host.esp.clear();
        host.send_esp(&packet);
        let expected = echo(0, self.to, [10, 9, 1, 1], number);
        host.run(Duration::from_millis(700), |host| {
            host.esp.drain(..).collect::<Vec<_>>().iter().any(|p| {
                // The identification and TTL are the other kernel's own; what counts is addresses, kind, and the echoed octets.
                self.unseal(p).is_some_and(|inner| {
                    inner.get(12..22) == expected.get(12..22) && inner.get(24..) == expected.get(24..)
                })
            })
        })
    }

    fn unseal(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let spi = u32::from_be_bytes(packet.get(..4)?.try_into().ok()?);
        let sequence = u32::from_be_bytes(packet.get(4..8)?.try_into().ok()?);
        if spi != self.inbound {
            return None;
        }
        let mut body = packet.get(16..)?.to_vec();
        let aad = Aad::from(self.aad(spi, sequence));
        let plain =
            self.open.0.open_in_place(Self::nonce(self.open.1, packet.get(8..16)?), aad, &mut body).ok()?;
        let (pad, next) = (usize::from(*plain.get(plain.len().checked_sub(2)?)?), *plain.last()?);
        (next == 4).then(|| plain[..plain.len() - 2 - pad].to_vec())
    }
}

/// An ICMP echo request (8) or reply (0) in IPv4.
fn echo(kind: u8, from: [u8; 4], to: [u8; 4], sequence: u16) -> Vec<u8> {
    let mut icmp = vec![kind, 0, 0, 0, 0x12, 0x34];
    icmp.extend_from_slice(&sequence.to_be_bytes());
    icmp.extend_from_slice(b"levee asks whether the keys agree");
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let total = u16::try_from(20 + icmp.len()).expect("short").to_be_bytes();
    let mut ip = vec![0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, 1, 0, 0];
    ip.extend_from_slice(&from);
    ip.extend_from_slice(&to);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend_from_slice(&icmp);
    ip
}

fn checksum(data: &[u8]) -> u16 {
    let mut sum: u32 =
        data.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded")
}
