//! A machine's network: a TAP device in the label's namespace, and the way between it and the vault's TUN device.
//!
//! A wire with two ends needs no neighbours: both have one Ethernet address and no address resolution. The namespace has no
//! address of its own on it and forwards between the two devices, so a machine reaches its label's vault and nothing else.

use std::os::fd::OwnedFd;

use levee_sys::{Error, Result, ns, tun};

use super::proto::{WIRE, Wire};
use crate::compartment::{Interface, Network};

/// The name of the TAP device.
const NAME: &str = "machine0";

/// What lets packets pass from one interface to another, where the host has the protocol.
const FORWARDING: [&str; 2] =
    ["/proc/sys/net/ipv4/conf/all/forwarding", "/proc/sys/net/ipv6/conf/all/forwarding"];

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
    ns::in_net(network.ns(), || {
        for setting in FORWARDING.map(std::path::Path::new).into_iter().filter(|setting| setting.exists()) {
            let set = std::fs::write(setting, "1");
            set.map_err(|e| Error::new(format!("write 1 to {}", setting.display()), e))?;
        }
        Ok(())
    })??;
    Ok(tap)
}
