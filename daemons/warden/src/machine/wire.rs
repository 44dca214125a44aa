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

/// What lets packets pass from one interface to another.
const FORWARDING: [(&str, &str); 2] = [("ipv4/conf/all/forwarding", "1"), ("ipv6/conf/all/forwarding", "1")];

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
