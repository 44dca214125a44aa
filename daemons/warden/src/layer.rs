//! The sockets of the second tunnel, and whom they reach: who takes levee-layer over has them, and sends nothing but where its peers can be.

use crate::outer::{QUEUE, named, patiently, within};
use levee_sys::cgroup::{Cgroup, Limits};
use levee_sys::reach::{self, Rule};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd as _, OwnedFd};

/// No client's port is below (RFC 6335 6).
const CLIENTS: RangeInclusive<u16> = 1_024..=u16::MAX;
const ANY: RangeInclusive<u16> = 0..=u16::MAX;

/// What the sockets' group has: nothing runs in it, and with cgroup v2 what waits in the sockets counts there.
const LIMITS: Limits = Limits { memory: 768 << 20, processes: 1, cpu_percent: Limits::ANY_TIME };

/// The sockets of the second tunnel.
#[derive(Debug)]
pub struct Layer {
    /// That the world reaches, each with its address.
    pub outer: Vec<(SocketAddr, OwnedFd)>,
    /// On the loopback interface.
    pub inner: OwnedFd,
    _group: Group,
}

/// The group that the sockets were made in. It goes with the value.
#[derive(Debug)]
struct Group(Cgroup);

impl Drop for Group {
    fn drop(&mut self) {
        // The next one of this name takes what is left.
        let _ = self.0.remove();
    }
}

fn rule(to: impl Into<IpAddr>, bits: u8, ports: RangeInclusive<u16>, may: bool) -> Rule {
    Rule { to: (to.into(), bits), ports, may }
}

/// One destination.
fn exactly(to: SocketAddr) -> Rule {
    let bits = if to.is_ipv4() { 32 } else { 128 };
    rule(to.ip(), bits, to.port()..=to.port(), true)
}

/// Who ends tunnels reaches who takes what comes out of them, and ports of clients on other hosts. Which addresses the host has the kernel
/// knows.
fn rules_of_end(own: &[SocketAddr], to: SocketAddr) -> Vec<Rule> {
    let here = own.iter().map(|own| rule(own.ip(), if own.is_ipv4() { 32 } else { 128 }, ANY, false));
    // The host itself by any name («this host», RFC 1122 3.2.1.3, as Linux takes it, too), and groups.
    let nobody = [
        rule(Ipv4Addr::LOCALHOST, 8, ANY, false),
        rule(Ipv4Addr::UNSPECIFIED, 8, ANY, false),
        rule(Ipv4Addr::new(224, 0, 0, 0), 3, ANY, false),
        rule(Ipv6Addr::LOCALHOST, 128, ANY, false),
        rule(Ipv6Addr::UNSPECIFIED, 128, ANY, false),
        rule(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, ANY, false),
    ];
    let others =
        [rule(Ipv4Addr::UNSPECIFIED, 0, CLIENTS, true), rule(Ipv6Addr::UNSPECIFIED, 0, CLIENTS, true)];
    std::iter::once(exactly(to)).chain(here).chain(nobody).chain(others).collect()
}

fn made(
    uid: u32,
    rules: &[Rule],
    here: &[Rule],
    make: impl FnOnce() -> io::Result<(Vec<(SocketAddr, OwnedFd)>, OwnedFd)>,
) -> io::Result<Layer> {
    let group = Cgroup::create_own(&format!("levee/sockets-{uid}"), LIMITS).map(Group);
    let group = group.map_err(io::Error::other)?;
    let (outer, inner) = reach::within(&group.0, rules, here, make).map_err(io::Error::other)??;
    Ok(Layer { outer, inner, _group: group })
}

/// A socket of the second tunnel, at this address.
fn bind(address: SocketAddr) -> io::Result<(SocketAddr, OwnedFd)> {
    let socket = patiently(|| levee_sys::udp::bind_whole(address, QUEUE));
    Ok((address, socket.map_err(|e| named("the second tunnel's UDP socket", address, &e))?))
}

/// A server's sockets of the second tunnel, which is at these addresses; `uid` is that of the process.
///
/// # Errors
/// The kernel's, with the address.
pub fn server(uid: u32, own: &[SocketAddr], tunnel: SocketAddr) -> io::Result<Layer> {
    made(uid, &rules_of_end(own, tunnel), &[exactly(tunnel)], || {
        let outer = own.iter().copied().map(bind).collect::<io::Result<_>>()?;
        Ok((outer, levee_sys::udp::bind_within(QUEUE)?))
    })
}

/// Those of a server whose second tunnel ends at this gateway: they reach that and the steering group.
///
/// # Errors
/// The kernel's, with the address.
pub fn behind(uid: u32, own: SocketAddr, gateway: SocketAddr, tunnel: SocketAddr) -> io::Result<Layer> {
    made(uid, &[exactly(gateway), exactly(tunnel)], &[exactly(tunnel)], || {
        Ok((vec![bind(own)?], levee_sys::udp::bind_within(QUEUE)?))
    })
}

/// A gateway's, of tunnels that are at these addresses: they reach its server from `inside`, clients, and nothing of the host's own.
///
/// # Errors
/// The kernel's, with the address.
pub fn gateway(uid: u32, own: &[SocketAddr], inside: SocketAddr, server: SocketAddr) -> io::Result<Layer> {
    let all = [own, &[inside]].concat();
    made(uid, &rules_of_end(&all, server), &[], || {
        let outer = own.iter().copied().map(bind).collect::<io::Result<_>>()?;
        Ok((outer, bind(inside)?.1))
    })
}

/// A workstation's sockets of the second tunnel, to this server: they reach that, and what the vault and the keyer here have.
///
/// # Errors
/// The kernel's.
pub fn workstation(uid: u32, server: SocketAddr) -> io::Result<Layer> {
    let any: IpAddr =
        if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let here = rule(Ipv4Addr::LOCALHOST, 32, CLIENTS, true);
    made(uid, &[exactly(server), here.clone()], &[here], || {
        let outer = levee_sys::udp::bind_whole(SocketAddr::new(any, 0), QUEUE)?;
        let address = levee_sys::udp::local_address(outer.as_fd())?;
        Ok((vec![(address, outer)], levee_sys::udp::bind(within(0), QUEUE)?))
    })
}
