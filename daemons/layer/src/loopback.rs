//! Each tunnel's own addresses on the server's loopback interface, so that keyer and vaults tell one workstation from another. A gateway says
//! the same address before each packet, and hears it before each from the server.

use crate::carried::{Flow, LONGEST};
use std::net::Ipv4Addr;

/// 127.64.0.0, the first of 4,194,304: four for each tunnel.
const FIRST: u32 = 0x7f40_0000;
/// How many tunnels can have theirs.
const LOOPBACKS: u32 = 1 << 20;

/// The four addresses of one tunnel, one for each flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Loopback(u32);

impl Loopback {
    /// The address that a flow of this tunnel has.
    pub fn address(self, flow: Flow) -> Ipv4Addr {
        Ipv4Addr::from(FIRST | self.0 << 2 | u32::from(flow.number()))
    }

    /// Whose address it is.
    pub fn of(address: Ipv4Addr) -> Option<(Self, Flow)> {
        let offset = u32::from(address).checked_sub(FIRST)?;
        let (loopback, [.., low]) = (offset >> 2, offset.to_be_bytes());
        (loopback < LOOPBACKS).then_some((Self(loopback), Flow::new(low & 3)))
    }
}

/// Octets before a packet between gateway and server: the address.
const ADDRESS: usize = 4;

/// What goes between gateway and server: whose packet it is, then the packet.
pub fn between(loopback: Loopback, flow: Flow, packet: &[u8]) -> Vec<u8> {
    [&loopback.address(flow).octets()[..], packet].concat()
}

/// Reads that. What is too short or too long, or of an address that no tunnel has, is nothing.
pub fn from_between(datagram: &[u8]) -> Option<(Loopback, Flow, &[u8])> {
    let (address, packet) = datagram.split_first_chunk::<ADDRESS>()?;
    let (loopback, flow) = Loopback::of(Ipv4Addr::from(*address))?;
    (!packet.is_empty() && packet.len() <= LONGEST).then_some((loopback, flow, packet))
}

/// Hands them out, each again as late as can be: whoever knew the last tunnel that had them may go on for a while.
#[derive(Debug, Default)]
pub struct Loopbacks {
    next: u32,
}

impl Loopbacks {
    /// One that nobody has, as `taken` says; there are far more than tunnels.
    pub fn take(&mut self, taken: impl Fn(Loopback) -> bool) -> Option<Loopback> {
        let all = (0..LOOPBACKS).map(|step| Loopback((self.next.wrapping_add(step)) % LOOPBACKS));
        let loopback = all.into_iter().find(|loopback| !taken(*loopback))?;
        self.next = (loopback.0 + 1) % LOOPBACKS;
        Some(loopback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_is_one_places_and_one_flows() {
        for loopback in [0, 1, 70_000, LOOPBACKS - 1].map(Loopback) {
            for flow in (0..4).map(Flow::new) {
                assert_eq!(Loopback::of(loopback.address(flow)), Some((loopback, flow)));
            }
        }
        for foreign in ["127.0.0.1", "127.63.255.255", "127.128.0.0", "10.0.0.1"] {
            assert_eq!(Loopback::of(foreign.parse().unwrap()), None, "{foreign}");
        }
    }

    #[test]
    fn what_goes_between_gateway_and_server_is_read_as_written_and_nothing_else_is() {
        let longest = [7; LONGEST];
        for (loopback, flow, packet) in [(0, 0, &b"x"[..]), (70_000, 3, &longest)] {
            let (loopback, flow) = (Loopback(loopback), Flow::new(flow));
            let datagram = between(loopback, flow, packet);
            assert_eq!(from_between(&datagram), Some((loopback, flow, packet)));
        }
        let over = between(Loopback(1), Flow::new(1), &[7; LONGEST + 1]);
        let foreign = [&[127, 0, 0, 1][..], b"x"].concat();
        for nothing in [&b""[..], &[127, 64, 0], &[127, 64, 0, 0], &foreign, &over] {
            assert_eq!(from_between(nothing), None, "{} octets", nothing.len());
        }
    }

    #[test]
    fn a_place_that_is_free_again_is_the_last_to_be_taken() {
        let mut loopbacks = Loopbacks::default();
        assert_eq!(loopbacks.take(|_| false), Some(Loopback(0)));
        assert_eq!(loopbacks.take(|_| false), Some(Loopback(1)));
        assert_eq!(loopbacks.take(|loopback| loopback == Loopback(2)), Some(Loopback(3)));
        loopbacks.next = LOOPBACKS - 1;
        assert_eq!(loopbacks.take(|_| false), Some(Loopback(LOOPBACKS - 1)));
        assert_eq!(loopbacks.take(|_| false), Some(Loopback(0)));
        assert_eq!(loopbacks.take(|_| true), None);
    }
}
