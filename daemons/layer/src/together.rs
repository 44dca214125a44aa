//! Packets that leave together, in one call of the kernel: of one length, from one address to one, and with the same first four octets. These are
//! the SPI, by which the kernel chooses who hears them, or between gateway and server the address before each.

use levee_sys::udp::{self, MAX_SEGMENTS, MAX_SEND};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::BorrowedFd;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    from: Option<Ipv4Addr>,
    to: SocketAddr,
    first: Option<[u8; 4]>,
}

/// What has not left yet.
#[derive(Default)]
pub struct Together {
    way: Option<Way>,
    /// Octets of each but the last.
    size: usize,
    /// The last one was shorter.
    ends: bool,
    bytes: Vec<u8>,
}

impl Together {
    /// Adds a packet; what it does not go with leaves first.
    pub fn add(&mut self, socket: BorrowedFd<'_>, from: Option<Ipv4Addr>, to: SocketAddr, packet: &[u8]) {
        let way = Way { from, to, first: packet.first_chunk().copied() };
        let goes = self.way == Some(way)
            && !self.ends
            && packet.len() <= self.size
            && self.bytes.len() + packet.len() <= MAX_SEND
            && self.bytes.len() < MAX_SEGMENTS * self.size;
        if !goes {
            self.leave(socket);
            (self.way, self.size, self.ends) = (Some(way), packet.len(), false);
        }
        self.ends |= packet.len() < self.size;
        self.bytes.extend_from_slice(packet);
    }

    /// Sends what there is. What the kernel does not take as a whole goes one by one; what it does not take then is lost like any other.
    pub fn leave(&mut self, socket: BorrowedFd<'_>) {
        let Some(way) = self.way.take() else { return };
        let send = |bytes: &[u8], segment| udp::send_from(socket, bytes, way.to, segment, way.from);
        if let Err(error) = send(&self.bytes, u16::try_from(self.size).ok())
            && error.kind() != ErrorKind::WouldBlock
            && self.bytes.len() > self.size
        {
            for packet in self.bytes.chunks(self.size.max(1)) {
                let _ = send(packet, None);
            }
        }
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd as _;

    #[test]
    fn what_goes_together_is_of_one_way_and_length_and_each_packet_comes_once_and_whole() {
        let heard = UdpSocket::bind("127.0.0.1:0").unwrap();
        heard.set_nonblocking(true).unwrap();
        let to = heard.local_addr().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut together = Together::default();
        let (mut said, mut came) = (Vec::new(), Vec::new());
        // Runs of one length, a shorter one at an end and in between, longer ones, another SPI, and more than one call may have.
        for (number, length) in
            [900, 900, 900, 40, 900, 40, 1_316, 20].into_iter().chain([500; 150]).enumerate()
        {
            let mut packet = vec![number as u8; length];
            packet[..4].copy_from_slice(&[1, 2, 3, u8::from(number > 5)]);
            together.add(socket.as_fd(), None, to, &packet);
            said.push(packet);
            if number % 40 == 39 {
                together.leave(socket.as_fd());
            }
        }
        together.leave(socket.as_fd());
        let mut buffer = [0; 2_000];
        while let Ok(length) = heard.recv(&mut buffer) {
            came.push(buffer[..length].to_vec());
        }
        assert_eq!(came, said);
        together.leave(socket.as_fd());
        assert!(heard.recv(&mut buffer).is_err(), "nothing leaves twice");
        // Another SPI is another's: what was before it has left by then, and not together with it.
        for spi in [7, 8] {
            together.add(socket.as_fd(), None, to, &[spi; 100]);
        }
        assert_eq!(heard.recv(&mut buffer).map(|length| (length, buffer[0])).unwrap(), (100, 7));
        assert!(heard.recv(&mut buffer).is_err(), "it is kept for those that go with it");
    }
}
