//! A machine's network: a TAP device in the label's namespace, and the way between it and the vault's TUN device.
//!
//! A wire with two ends needs no neighbours: both have one Ethernet address and no address resolution. The namespace has no
//! address of its own on it and forwards between the two devices, so a machine reaches its label's vault and nothing else.

use std::os::fd::OwnedFd;

use levee_sys::{Error, Result, ns, tun};

use super::proto::{WIRE, Wire};
use crate::compartment::{Interface, Network, set};

/// The name of the TAP device.
const NAME: &str = "machine0";

/// What lets packets pass from one interface to another. By IPv6 that is for all of them; and where one's own setting says so Linux answers there as
/// routers do: it remembers everybody who asks for one (`net/ipv6/ndisc.c` `ndisc_recv_rs`), in a table that all labels have in common.
const FORWARDING: [(&str, &str); 3] = [
    ("ipv4/conf/all/forwarding", "1"),
    ("ipv6/conf/all/forwarding", "1"),
    ("ipv6/conf/machine0/forwarding", "0"),
];

/// Makes the TAP device whose other end has the addresses of `wire`.
pub(super) fn make(network: &Network, wire: &Wire) -> Result<OwnedFd> {
    let failed = |e: std::io::Error| Error::new(format!("make interface {NAME}"), e);
    let tap = ns::in_net(network.ns(), || tun::open_tap(NAME))?.map_err(failed)?;
    network.net()?.make_wire(NAME, WIRE)?;
    network.configure(&Interface {
        name: NAME.into(),
        mtu: wire.mtu,
        addresses: Vec::new(),
        routes: wire.addresses.clone(),
    })?;
    set(network.ns(), &FORWARDING)?;
    Ok(tap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipnet::IpNet;
    use std::net::Ipv6Addr;

    const INNER: &str = "fd80::1";
    const PERSON: &str = "fd80:1::7";

    /// How many neighbours the machine knows by IPv6, of all namespaces together (the first field of a processor's line, in hexadecimal).
    fn neighbours() -> u32 {
        let table = std::fs::read_to_string("/proc/net/stat/ndisc_cache").unwrap();
        let first = table.lines().nth(1).and_then(|line| line.split_whitespace().next());
        u32::from_str_radix(first.unwrap(), 16).unwrap()
    }

    /// What a machine sends.
    fn frame([from, to]: [Ipv6Addr; 2], next: u8, hops: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        let mut frame = [&WIRE[..], &WIRE, &[0x86, 0xdd, 0x60, 0, 0, 0], &length].concat();
        frame.extend([next, hops]);
        frame.extend(from.octets().into_iter().chain(to.octets()));
        frame.extend(body);
        frame
    }

    /// A question for a router (RFC 4861 4.1), with the checksum that it must have.
    fn solicitation(from: Ipv6Addr) -> Vec<u8> {
        let all_routers: Ipv6Addr = "ff02::2".parse().unwrap();
        let mut body = [&[133, 0, 0, 0, 0, 0, 0, 0, 1, 1][..], &WIRE].concat();
        let pseudo = [&from.octets()[..], &all_routers.octets(), &[0, 0, 0, 16, 0, 0, 0, 58], &body].concat();
        let sum = pseudo.chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum::<u32>();
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        body[2..4].copy_from_slice(&sum.to_be_bytes());
        frame([from, all_routers], 58, 255, &body)
    }

    /// A label's network with the vault's end of its device, and a machine's card.
    fn wire() -> (Network, tun::Queue, OwnedFd) {
        let network = Network::new().unwrap();
        let pools: Vec<IpNet> = vec!["fd80:1::/64".parse().unwrap()];
        let vault =
            Interface { name: "levee0".into(), mtu: 1400, addresses: Vec::new(), routes: pools.clone() };
        let options = tun::Options { multi_queue: false, exclusive: true, vnet_header: true };
        let tunnel = network.add(&vault, || tun::open("levee0", options)).unwrap();
        let addresses = vec![format!("{INNER}/128").parse().unwrap()];
        let card = make(&network, &Wire { mtu: 1400, addresses, routes: pools }).unwrap();
        (network, tunnel, card)
    }

    /// What comes to the vault.
    fn passed(tunnel: &tun::Queue) -> impl Iterator<Item = Vec<u8>> {
        let mut buffer = vec![0; 70_000];
        std::iter::from_fn(move || {
            rustix::io::read(tunnel, &mut buffer[..]).ok().map(|n| buffer[..n].to_vec())
        })
    }

    #[test]
    fn a_machine_that_asks_for_a_router_in_made_up_names_takes_no_room_in_the_table_of_neighbours() {
        let (_network, tunnel, card) = wire();
        // As QEMU gives them on, whose they are.
        let send = |frame: &[u8]| assert_eq!(rustix::io::write(&card, frame), Ok(frame.len()));

        let before = neighbours();
        for name in 1..400 {
            send(&solicitation(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0x17, name)));
        }
        let grown = neighbours().saturating_sub(before);
        // Others on this machine have neighbours too.
        assert!(grown < 100, "{grown}");

        // And what it says to a session passes.
        let ends = [INNER, PERSON].map(|address| address.parse().unwrap());
        send(&frame(ends, 17, 64, &[0, 9, 0, 9, 0, 12, 1, 2, b't', b'i', b'd', b'e']));
        assert!(passed(&tunnel).any(|packet| packet.ends_with(b"tide")));
    }

    #[test]
    fn the_hosts_kernel_cuts_no_frame_into_packets_as_a_machine_says() {
        let (_network, tunnel, card) = wire();
        let ends = [INNER, PERSON].map(|address| address.parse().unwrap());
        let segment =
            [&[0, 80, 15, 160, 0, 0, 0, 1, 0, 0, 0, 1, 5 << 4, 0x10, 4, 0, 0, 0, 0, 0][..], &[7; 60_000]];
        let long = frame(ends, 6, 64, &segment.concat());
        // A checksum is missing; TCP over IPv6, with congestion told of; 74 octets of headers; an octet in each; where the checksum is. With the two
        // octets more that a newer card has, and without any.
        let said = [1, 0x84, 74, 0, 1, 0, 54, 0, 16, 0, 0, 0];
        for header in [&said[..10], &said, &[]] {
            // Whether or not it is taken.
            let _ = rustix::io::write(&card, &[header, &long].concat());
            assert_eq!(passed(&tunnel).filter(|packet| packet.contains(&7)).count(), 0);
        }
    }
}
