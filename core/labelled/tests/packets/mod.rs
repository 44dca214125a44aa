//! Packets made at random: TCP, UDP and ICMP over IPv4 and IPv6, whole.

use std::net::IpAddr;

/// SplitMix64.
pub struct Dice(pub u64);

impl Dice {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    fn octets(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.bits() as u8).collect()
    }
}

/// A packet of either version.
pub fn bare(dice: &mut Dice) -> Vec<u8> {
    if dice.below(2) == 0 { ipv4(dice) } else { ipv6(dice) }
}

/// An IPv4 packet without options, whole.
pub fn ipv4(dice: &mut Dice) -> Vec<u8> {
    let n = 8 + dice.below(200) as usize;
    let mut packet = vec![0x45, dice.bits() as u8, 0, 0];
    packet.extend(dice.octets(2));
    packet.extend([0x40, 0, 64, [1, 6, 17][dice.below(3) as usize], 0, 0]);
    packet.extend(dice.octets(8 + n));
    finished(packet)
}

/// An IPv6 packet without extension headers.
pub fn ipv6(dice: &mut Dice) -> Vec<u8> {
    let n = 8 + dice.below(200) as usize;
    let mut packet = vec![0x60, dice.bits() as u8 & 15, 0, 0, 0, 0, [6, 17, 58][dice.below(3) as usize], 64];
    packet.extend(dice.octets(32 + n));
    finished(packet)
}

/// The packet with its source, or its destination, at this address; an address of the other version leaves it as it is.
pub fn at(mut packet: Vec<u8>, is_source: bool, address: IpAddr) -> Vec<u8> {
    let (place, octets) = match address {
        IpAddr::V4(four) => (if is_source { 12 } else { 16 }, four.octets().to_vec()),
        IpAddr::V6(six) => (if is_source { 8 } else { 24 }, six.octets().to_vec()),
    };
    if packet[0] >> 4 == if address.is_ipv4() { 4 } else { 6 } {
        packet[place..place + octets.len()].copy_from_slice(&octets);
    }
    finished(packet)
}

/// An error that says what size passes, in most cases: now and then it is another, or quotes something odd, or is cut short.
pub fn too_big(dice: &mut Dice, is_six: bool) -> Vec<u8> {
    let odd = |dice: &mut Dice, usual: u8| if dice.below(8) == 0 { dice.bits() as u8 } else { usual };
    let size = [0, 1, 12, 16, 41, 68, 576, 1_280, 1_499, 0xffff][dice.below(10) as usize];
    let size = if dice.below(2) == 0 { size } else { dice.bits() as u16 };
    let (kind, code) = if is_six { (2, 0) } else { (3, 4) };
    let mut body = vec![odd(dice, kind), odd(dice, code)];
    body.extend(dice.octets(2));
    body.extend([odd(dice, 0), odd(dice, 0)]);
    body.extend(size.to_be_bytes());
    let mut quoted = if is_six { with_hop_by_hop(&ipv6(dice), &[1, 4, 0, 0, 0, 0]) } else { ipv4(dice) };
    let words = [0, 4, 5, 6, 8, 15][dice.below(6) as usize];
    quoted[0] = if is_six { odd(dice, 0x60) } else { odd(dice, 0x40) & 0xf0 | words };
    if is_six {
        (quoted[6], quoted[41]) =
            (odd(dice, 0), dice.bits() as u8 & if dice.below(2) == 0 { 3 } else { 255 });
    }
    body.extend(quoted);
    body.truncate(if dice.below(4) == 0 { 8 + dice.below(52) as usize } else { 100 });
    let mut packet = if is_six { ipv6(dice) } else { ipv4(dice) };
    let (protocol, header) = if is_six { (6, 40) } else { (9, 20) };
    packet[protocol] = if is_six { 58 } else { 1 };
    packet.truncate(header);
    packet.extend(body);
    finished(packet)
}

/// An ICMPv6 message with a hop limit.
pub fn icmpv6(kind: u8, hop_limit: u8) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0, 0, 0, 58, hop_limit];
    packet.extend([0xfe; 32]);
    packet.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
    finished(packet)
}

/// The packet with its length and, in IPv4, its checksum.
fn finished(mut packet: Vec<u8>) -> Vec<u8> {
    if packet[0] >> 4 == 6 {
        let length = packet.len() as u16 - 40;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        return packet;
    }
    let header = usize::from(packet[0] & 15) * 4;
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[10..12].fill(0);
    let words = packet[..header].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet
}

/// An IPv4 packet without options, with these. At most 40 octets stand there: what is beyond is cut off.
pub fn with_options(packet: &[u8], options: &[u8]) -> Vec<u8> {
    let mut options = options.to_vec();
    options.resize(options.len().next_multiple_of(4).min(40), 0);
    let mut packet = [&packet[..20], &options, &packet[20..]].concat();
    packet[0] = 0x40 | (5 + options.len() / 4) as u8;
    finished(packet)
}

fn extension(next: u8, options: &[u8]) -> Vec<u8> {
    let mut header = vec![next, 0];
    header.extend(options);
    while !header.len().is_multiple_of(8) {
        header.push(0);
    }
    header[1] = (header.len() / 8 - 1) as u8;
    header
}

/// An IPv6 packet with a hop-by-hop header of these options.
pub fn with_hop_by_hop(packet: &[u8], options: &[u8]) -> Vec<u8> {
    let mut packet = [&packet[..40], &extension(packet[6], options), &packet[40..]].concat();
    packet[6] = 0;
    finished(packet)
}

/// An IPv6 packet with a destination options header of these.
pub fn with_destination_options(packet: &[u8], options: &[u8]) -> Vec<u8> {
    let mut packet = [&packet[..40], &extension(packet[6], options), &packet[40..]].concat();
    packet[6] = 60;
    finished(packet)
}

/// The packet as a fragment of a datagram of its own.
pub fn fragment_of(packet: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let offset = (dice.below(100) as u16) << 3;
    if packet[0] >> 4 == 4 {
        packet[6..8].copy_from_slice(&(offset >> 3 | 0x2000).to_be_bytes());
        return finished(packet);
    }
    let [high, low] = (offset | 1).to_be_bytes();
    let mut header = vec![packet[6], 0, high, low];
    header.extend(dice.octets(4));
    packet.splice(40..40, header);
    packet[6] = 44;
    finished(packet)
}
