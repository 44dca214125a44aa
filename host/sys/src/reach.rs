//! Whom sockets may send datagrams to, whoever has them: held by the kernel for the sockets that a process makes while it is in a control group.
//!
//! A socket belongs to the group in which it was made (`net/core/sock.c` `sk_alloc`), also when another process has it. At each datagram that
//! names its destination (`net/ipv4/udp.c` `udp_sendmsg`, `net/ipv6/udp.c` `udpv6_sendmsg`) a program of that group says whether it may be sent.
//! Another one looks at each packet as it leaves (`net/ipv4/ip_output.c` `ip_finish_output`): by then its destination is what a route by way of
//! others has made of it, and it is known whether that is this host itself, by whatever address.

use std::fs;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd as _;

use crate::bpf::{self, Instruction};
use crate::cgroup::Cgroup;
use crate::error::Step as _;
use crate::ports::{CGROUP_SOCK_ADDR, attach};
use crate::{Error, Result};

/// `BPF_CGROUP_UDP4_SENDMSG` and the other one (linux/bpf.h).
const SENDMSG: [u32; 2] = [14, 15];

/// Where in `struct bpf_sock_addr` the destination is: IPv4, IPv6, port.
const AT4: i16 = 4;
const AT6: i16 = 8;
const PORT: i16 = 24;

/// `BPF_PROG_TYPE_CGROUP_SKB`, `BPF_CGROUP_INET_EGRESS`, and `bpf_skb_load_bytes` (linux/bpf.h).
const CGROUP_SKB: u32 = 8;
const EGRESS: u32 = 1;
const LOAD_BYTES: i32 = 26;

/// Where in `struct __sk_buff` the protocol and the interface are.
const PROTOCOL: i16 = 16;
const INTERFACE: i16 = 40;

/// What is for the host itself leaves by `lo`, which has this number in each network namespace (`include/net/flow.h`).
const LOOPBACK: i32 = 1;

/// Where a packet's headers are on the stack.
const HEADERS: i16 = -48;

/// Destinations, and whether anything may go there.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Of these addresses, which begin with so many bits of this one. An IPv4 address within an IPv6 one is that IPv4 address.
    pub to: (IpAddr, u8),
    /// These ports.
    pub ports: RangeInclusive<u16>,
    /// Whether it may.
    pub may: bool,
}

/// Makes sockets in `group`: from them datagrams go where the first rule that knows their destination lets them, and nowhere that none knows, as
/// long as the group is there; to this host itself, by whatever address, where the rules of `here` let them, too. Nothing but these leaves, and none
/// with an option or with another header between that of IP and that of UDP. The calling process, which has one thread, is in the group meanwhile.
///
/// # Errors
/// The kernel refuses the programs, or the process can get into the group or back no more.
pub fn within<T>(group: &Cgroup, rules: &[Rule], here: &[Rule], make: impl FnOnce() -> T) -> Result<T> {
    let directory = fs::File::open(group.unified()).step(|| "open a control group".into())?;
    let [four, six] = SENDMSG;
    for (program, kind, place) in [
        (named(rules, false), CGROUP_SOCK_ADDR, four),
        (named(rules, true), CGROUP_SOCK_ADDR, six),
        (leaving(rules, here), CGROUP_SKB, EGRESS),
    ] {
        let mut code = Vec::new();
        let encoded = program.iter().try_for_each(|one| bpf::encode(one, &[], &mut code));
        let loaded = encoded.and_then(|()| bpf::load(kind, place, &code, &mut []));
        let loaded = loaded.step(|| "load the program for destinations".into())?;
        attach(directory.as_raw_fd(), loaded.as_raw_fd(), place)
            .step(|| "give a control group the program for destinations".into())?;
    }
    let text = fs::read_to_string("/proc/self/cgroup").step(|| "find the own control group".into())?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = own.ok_or_else(|| Error::invalid("find the own control group", "it has none"))?;
    let own = crate::cgroup::top()?.join(own);
    let enter = |directory: &std::path::Path| {
        fs::write(directory.join("cgroup.procs"), "0").step(|| format!("enter {}", directory.display()))
    };
    enter(group.unified())?;
    let made = make();
    enter(&own)?;
    Ok(made)
}

const fn one(code: u8, destination: u8, source: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, destination, source, offset, value }
}

/// Says this of a datagram, and ends.
fn verdict(may: bool) -> [Instruction; 2] {
    [one(0xb7, 0, 0, 0, may.into()), one(0x95, 0, 0, 0, 0)]
}

/// Goes over so many instructions; there are a few.
fn far(instructions: &[Instruction]) -> i16 {
    i16::try_from(instructions.len()).unwrap_or(i16::MAX)
}

/// Of a datagram that names its destination: returns 1 where it may be sent, 0 where not.
fn named(rules: &[Rule], is_six: bool) -> Vec<Instruction> {
    // r7 = the port.
    let mut all = vec![one(0x61, 7, 1, PORT, 0), one(0xdc, 7, 0, 0, 16)];
    all.extend(first(rules, is_six, (1, if is_six { AT6 } else { AT4 })));
    all
}

/// Of a packet that leaves: the same, by the rules of `here` where it is for the host itself.
fn leaving(rules: &[Rule], here: &[Rule]) -> Vec<Instruction> {
    // r6 = the packet, r8 = the interface.
    let mut all = vec![one(0xbf, 6, 1, 0, 0), one(0x61, 8, 6, INTERFACE, 0)];
    for (protocol, is_six) in [(libc::ETH_P_IP, false), (libc::ETH_P_IPV6, true)] {
        let block = packet(rules, here, is_six);
        let protocol = u16::try_from(protocol).unwrap_or_default().to_be();
        all.push(one(0x61, 2, 6, PROTOCOL, 0));
        all.push(one(0x55, 2, 0, far(&block), protocol.into()));
        all.extend(block);
    }
    all.extend(verdict(false));
    all
}

/// Of a packet of one family.
fn packet(rules: &[Rule], here: &[Rule], is_six: bool) -> Vec<Instruction> {
    // How long the headers are of IP and UDP as far as the ports, which octet of them is to say what, and where the destination and its port are.
    let (length, expected, to, port) = if is_six {
        (44, [(6, libc::IPPROTO_UDP)].as_slice(), 24, 42)
    } else {
        // Version 4, and five words: a source route, or another option, would be behind them.
        (24, [(0, 0x45), (9, libc::IPPROTO_UDP)].as_slice(), 16, 22)
    };
    let mut all = vec![
        one(0xbf, 1, 6, 0, 0),
        one(0xb7, 2, 0, 0, 0),
        one(0xbf, 3, 10, 0, 0),
        one(0x07, 3, 0, 0, HEADERS.into()),
        one(0xb7, 4, 0, 0, length),
        one(0x85, 0, 0, 0, LOAD_BYTES),
        one(0x15, 0, 0, 2, 0),
    ];
    all.extend(verdict(false));
    for (at, is) in expected {
        all.extend([one(0x71, 2, 10, HEADERS + at, 0), one(0x15, 2, 0, 2, *is)]);
        all.extend(verdict(false));
    }
    // r7 = the port.
    all.extend([one(0x69, 7, 10, HEADERS + port, 0), one(0xdc, 7, 0, 0, 16)]);
    let (here, rules) = (first(here, is_six, (10, HEADERS + to)), first(rules, is_six, (10, HEADERS + to)));
    all.push(one(0x55, 8, 0, far(&here), LOOPBACK));
    all.extend(here);
    all.extend(rules);
    all
}

/// Says what the first rule says that knows the destination, which is at this place behind this register, and the port in r7; ends in any case.
fn first(rules: &[Rule], is_six: bool, (register, place): (u8, i16)) -> Vec<Instruction> {
    let mut all = Vec::new();
    for Rule { to: (address, bits), ports, may } in rules.iter().filter(|rule| rule.to.0.is_ipv6() == is_six)
    {
        let words = match address {
            IpAddr::V4(address) => vec![address.to_bits()],
            IpAddr::V6(address) => (0..4).rev().map(|n| (address.to_bits() >> (32 * n)) as u32).collect(),
        };
        // To the next rule, each to be told how far.
        let (mut rule, mut away) = (Vec::new(), Vec::new());
        for ((word, at), before) in words.into_iter().zip((place..).step_by(4)).zip((0u8..).step_by(32)) {
            let here = u32::from(bits.saturating_sub(before)).min(32);
            let mask = u32::MAX.checked_shl(32 - here).unwrap_or(0);
            if mask == 0 {
                break;
            }
            rule.extend([
                one(0x61, 2, register, at, 0),
                one(0xdc, 2, 0, 0, 32),
                one(0x54, 2, 0, 0, mask as i32),
            ]);
            away.push(rule.len());
            rule.push(one(0x56, 2, 0, 0, (word & mask) as i32));
        }
        away.extend([rule.len(), rule.len() + 1]);
        rule.extend([one(0xa5, 7, 0, 0, (*ports.start()).into()), one(0x25, 7, 0, 0, (*ports.end()).into())]);
        rule.extend(verdict(*may));
        let end = rule.len();
        for from in away {
            if let Some(jump) = rule.get_mut(from) {
                // A few instructions.
                jump.offset = (end - from - 1) as i16;
            }
        }
        all.append(&mut rule);
    }
    all.extend(verdict(false));
    all
}
