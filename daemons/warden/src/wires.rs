//! Wires of one-way channels: an interface of the host that one channel has, in a namespace where nothing else is, and the socket by which
//! its process sends or receives. The namespace is pinned, as those of single-level networks are ([`crate::networks`]).
//!
//! What a wire does is one way by several things that do not depend on each other: the socket's other half is shut, and of one that sends
//! the kernel drops what comes (`levee_sys::udp::one_way`); the namespace's rules let pass datagrams of the channel that way, and nothing
//! the other way, not even ARP or ICMP ([`crate::rules`]); and who sends knows the other's hardware address from the site file.

use crate::pinned::{Pinned, raise};
use crate::rules::{Counts, Rules};
use crate::state;
use levee_ipc::warden::channel;
use levee_policy::site::{self, Channel};
use levee_policy::{ChannelName, LabelName};
use levee_sys::{Error, Result, udp};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// What can have been sent that has not left, or come and not been received, at least and at most: of four turns, with what is added to it.
/// It counts as the warden's memory, who makes the sockets.
const QUEUES: std::ops::RangeInclusive<u64> = 1 << 20..=16 << 20;

/// The wire of one channel.
#[derive(Debug)]
pub struct ChannelWire {
    /// Which.
    pub channel: ChannelName,
    /// As its rules and its pin are called.
    pub name: LabelName,
    /// Its namespace.
    pub place: Pinned,
    /// By which its process sends or receives.
    pub socket: OwnedFd,
    /// What its rules let in and out and what not.
    pub counts: Counts,
}

impl ChannelWire {
    /// Takes its interface, which is in the namespace `outer` or still in its place. There must be a key in the state directory.
    ///
    /// # Errors
    /// The step that failed; then the interface is back and down.
    pub fn attach(
        rules: &Rules,
        (channel, wire): (&Channel, &site::Wire),
        name: LabelName,
        place: Pinned,
        outer: BorrowedFd<'_>,
        state: &Path,
    ) -> Result<Self> {
        let keys = state::channel_keys(state, channel.name()).map_err(|e| {
            let path = state::channel_key(state, channel.name());
            let remedy = "levee enrol channel makes one, and both hosts have the same";
            Error::invalid(format!("use {} ({remedy})", path.display()), e.to_string())
        });
        match keys.and_then(|_| begin(rules, channel, wire, &name, &place, outer)) {
            Ok(socket) => {
                let (channel, counts) = (channel.name().clone(), Counts::default());
                Ok(Self { channel, name, place, socket, counts })
            }
            Err(e) => {
                place.release(outer)?;
                Err(e)
            }
        }
    }
}

/// The interface into the namespace, down; then the rules, which name it; then the socket, and up it goes.
fn begin(
    rules: &Rules,
    channel: &Channel,
    wire: &site::Wire,
    name: &LabelName,
    place: &Pinned,
    outer: BorrowedFd<'_>,
) -> Result<OwnedFd> {
    let interface = wire.interface().as_str();
    let network = place.network()?;
    place.take(outer, interface, name)?;
    rules.load(name, place.ns())?;
    let mut net = network.net()?;
    let mtu = net.find(interface)?.map_or(0, |link| link.mtu);
    if mtu < u32::from(wire.mtu()) {
        let why = format!("its longest packet has {mtu} octets: ip link set {interface} mtu {}", wire.mtu());
        return Err(Error::invalid(format!("use the interface {interface} for {name}"), why));
    }
    raise(&mut net, interface, &[wire.address()])?;
    if let Some(hardware) = wire.hardware() {
        net.add_neighbour(interface, wire.peer(), hardware.octets())?;
    }
    let sends = channel.from().is_some();
    let (own, peer) = ends(wire);
    // Of each second there are a hundred turns, and a queue has room for four: half as much again for headers and repair.
    let queue = (channel.rate() / 100 * 4 * 3 / 2).clamp(*QUEUES.start(), *QUEUES.end());
    let queue = usize::try_from(queue).unwrap_or(usize::MAX);
    let make = || udp::one_way(own, peer, queue, sends);
    network.make(make)?.map_err(|e| Error::new(format!("make the socket of {name}"), e))
}

fn ends(wire: &site::Wire) -> (SocketAddr, SocketAddr) {
    (SocketAddr::new(wire.address().addr(), wire.port()), SocketAddr::new(wire.peer(), wire.port()))
}

/// What a channel's process is told of its wire; `None` where both ends are here.
pub fn told(asked: &Channel) -> Option<channel::Wire> {
    let wire = asked.wire()?;
    Some(channel::Wire {
        name: asked.name().clone(),
        sends: asked.from().is_some(),
        peer: ends(wire).1,
        datagram: u32::try_from(wire.datagram()).unwrap_or(0),
        repair: wire.repair(),
    })
}
