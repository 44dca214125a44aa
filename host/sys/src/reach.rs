//! Whom sockets may send datagrams to, whoever has them: held by the kernel for the sockets that a process makes while it is in a control group.
//!
//! A socket belongs to the group in which it was made (`net/core/sock.c` `sk_alloc`), also when another process has it. At each datagram that
//! names its destination (`net/ipv4/udp.c` `udp_sendmsg`, `net/ipv6/udp.c` `udpv6_sendmsg`) a program of that group says whether it may be sent.

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
/// long as the group is there. The calling process, which has one thread, is in the group meanwhile.
///
/// # Errors
/// The kernel refuses the programs, or the process can get into the group or back no more.
pub fn within<T>(group: &Cgroup, rules: &[Rule], make: impl FnOnce() -> T) -> Result<T> {
    let directory = fs::File::open(group.unified()).step(|| "open a control group".into())?;
    for (is_six, place) in [false, true].into_iter().zip(SENDMSG) {
        let mut code = Vec::new();
        let program = program(rules, is_six);
        let encoded = program.iter().try_for_each(|one| bpf::encode(one, &[], &mut code));
        let loaded = encoded.and_then(|()| bpf::load(CGROUP_SOCK_ADDR, place, &code, &mut []));
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

/// Returns 1 where the datagram may be sent, 0 where not.
fn program(rules: &[Rule], is_six: bool) -> Vec<Instruction> {
    let one =
        |code, destination, source, offset, value| Instruction { code, destination, source, offset, value };
    // r7 = the port.
    let mut all = vec![one(0x61, 7, 1, PORT, 0), one(0xdc, 7, 0, 0, 16)];
    for Rule { to: (address, bits), ports, may } in rules.iter().filter(|rule| rule.to.0.is_ipv6() == is_six)
    {
        let (words, at) = match address {
            IpAddr::V4(address) => (vec![address.to_bits()], AT4),
            IpAddr::V6(address) => {
                ((0..4).rev().map(|n| (address.to_bits() >> (32 * n)) as u32).collect(), AT6)
            }
        };
        // To the next rule, each to be told how far.
        let (mut rule, mut away) = (Vec::new(), Vec::new());
        for ((word, at), before) in words.into_iter().zip((at..).step_by(4)).zip((0u8..).step_by(32)) {
            let here = u32::from(bits.saturating_sub(before)).min(32);
            let mask = u32::MAX.checked_shl(32 - here).unwrap_or(0);
            if mask == 0 {
                break;
            }
            rule.extend([one(0x61, 2, 1, at, 0), one(0xdc, 2, 0, 0, 32), one(0x54, 2, 0, 0, mask as i32)]);
            away.push(rule.len());
            rule.push(one(0x56, 2, 0, 0, (word & mask) as i32));
        }
        away.extend([rule.len(), rule.len() + 1]);
        rule.extend([one(0xa5, 7, 0, 0, (*ports.start()).into()), one(0x25, 7, 0, 0, (*ports.end()).into())]);
        rule.extend([one(0xb7, 0, 0, 0, (*may).into()), one(0x95, 0, 0, 0, 0)]);
        let end = rule.len();
        for from in away {
            if let Some(jump) = rule.get_mut(from) {
                // A few instructions.
                jump.offset = (end - from - 1) as i16;
            }
        }
        all.append(&mut rule);
    }
    all.extend([one(0xb7, 0, 0, 0, 0), one(0x95, 0, 0, 0, 0)]);
    all
}
