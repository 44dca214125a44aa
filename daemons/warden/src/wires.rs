//! Wires of one-way channels: an interface of the host that one channel has, in a namespace where nothing else is, and the socket by which
//! its process sends or receives. The namespace is pinned, as those of single-level networks are ([`crate::networks`]).
//!
//! What a wire does is one way by several things that do not depend on each other: the socket's other half is shut, and of one that sends
//! the kernel drops what comes (`levee_sys::udp::one_way`); the namespace's rules let pass datagrams of the channel that way, and nothing
//! the other way, not even ARP or ICMP ([`crate::rules`]); and who sends knows the other's hardware address from the site file.

use crate::networks::{add_address, give_back, give_back_others, open_or_make, take_interface, unpin};
use crate::rules::{Counting, Rules};
use crate::ruleset::CHANNEL;
use crate::waits::Waits;
use crate::{log, state};
use levee_ipc::warden::channel;
use levee_policy::site::{self, Channel};
use levee_policy::{ChannelName, LabelName, Site};
use levee_sys::{Error, Result, ns, udp};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What can have been sent that has not left, or come and not been received, at least and at most: of four turns, with what is added to it.
/// It counts as the warden's memory, who makes the sockets.
const QUEUES: std::ops::RangeInclusive<u64> = 1 << 20..=16 << 20;

/// All wires of a site.
#[derive(Debug)]
pub struct Wires {
    outer: OwnedFd,
    rules: Rules,
    attached: Vec<Attached>,
}

#[derive(Debug)]
struct Attached {
    channel: ChannelName,
    /// As its rules and its pin are called.
    name: LabelName,
    interface: String,
    sends: bool,
    ns: OwnedFd,
    pin: PathBuf,
    socket: OwnedFd,
    counting: Option<Counting>,
    /// What its rules let in and out and what not, when that was read last.
    counted: Vec<u64>,
}

impl Wires {
    /// Takes the interface of each, which is in the caller's network namespace or, after a warden that was killed, in one that is pinned in
    /// the directory `pins`. Each must have a key in the state directory.
    ///
    /// # Errors
    /// The first that could not be had; then none is, and every interface is back and down.
    pub fn attach(site: &Site, rules: Rules, pins: &Path, state: &Path) -> Result<Self> {
        let mut wires = Self { outer: ns::current_net()?, rules, attached: Vec::new() };
        match wires.attach_all(site, pins, state) {
            Ok(()) => Ok(wires),
            Err(e) => {
                wires.detach();
                Err(e)
            }
        }
    }

    fn attach_all(&mut self, site: &Site, pins: &Path, state: &Path) -> Result<()> {
        let name = |channel: &Channel| {
            let name = LabelName::new(&format!("{CHANNEL}{}", channel.name()));
            name.map_err(|e| Error::invalid("name a channel", e.to_string()))
        };
        let with = || site.channels().iter().filter_map(|channel| Some((channel, channel.wire()?)));
        let wanted = with().map(|(channel, _)| name(channel)).collect::<Result<Vec<_>>>()?;
        give_back_others(pins, &wanted, self.outer.as_fd())?;
        for ((channel, wire), name) in with().zip(wanted) {
            state::channel_keys(state, channel.name()).map_err(|e| {
                let path = state::channel_key(state, channel.name());
                let remedy = "levee enrol channel makes one, and both hosts have the same";
                Error::invalid(format!("use {} ({remedy})", path.display()), e.to_string())
            })?;
            let pin = pins.join(name.file_name());
            let ns = open_or_make(&pin)?;
            match begin(&self.rules, channel, wire, &name, ns.as_fd(), self.outer.as_fd()) {
                Ok(socket) => self.attached.push(Attached {
                    channel: channel.name().clone(),
                    name,
                    interface: wire.interface().to_string(),
                    sends: channel.from().is_some(),
                    ns,
                    pin,
                    socket,
                    counting: None,
                    counted: Vec::new(),
                }),
                Err(e) => {
                    let back = give_back(ns.as_fd(), self.outer.as_fd()).and_then(|()| unpin(&pin));
                    back.unwrap_or_else(|e| log!("{name}: its interface stays in its namespace: {e}"));
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// The socket of a channel's wire.
    pub fn socket(&self, channel: &ChannelName) -> Option<BorrowedFd<'_>> {
        let attached = self.attached.iter().find(|attached| attached.channel == *channel)?;
        Some(attached.socket.as_fd())
    }

    /// Has what the rules counted read again, where that does not go on already.
    pub fn count(&mut self, waits: &mut Waits) {
        for one in self.attached.iter_mut().filter(|one| one.counting.is_none()) {
            match self.rules.count(&one.name, one.ns.as_fd(), waits) {
                Ok(counting) => one.counting = Some(counting),
                Err(e) => log!("{}: what its wire counted: {e}", one.name),
            }
        }
    }

    /// Takes what has been read.
    pub fn counted(&mut self) {
        for one in &mut self.attached {
            let Some(over) = one.counting.as_ref().and_then(Counting::over) else { continue };
            one.counting = None;
            match over {
                Ok(counted) => one.counted = counted,
                Err(why) => log!("{}: what its wire counted: {why}", one.name),
            }
        }
    }

    /// What the rules dropped, for operators; what is 0 is left out.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let of = |one: &Attached| {
            let whats =
                ["came in and is none of the channel's", "would have left and is none of the channel's"];
            let (interface, counted) = (one.interface.clone(), one.counted.clone());
            let some = whats.into_iter().zip(counted).filter(|(_, packets)| *packets > 0);
            some.map(move |(what, packets)| (format!("dropped at {interface}: {what}"), packets))
                .collect::<Vec<_>>()
        };
        self.attached.iter().flat_map(of).collect()
    }

    /// Gives every interface back, down.
    pub fn detach(&mut self) {
        for one in std::mem::take(&mut self.attached) {
            let back = give_back(one.ns.as_fd(), self.outer.as_fd()).and_then(|()| unpin(&one.pin));
            let way = if one.sends { "to" } else { "from" };
            back.unwrap_or_else(|e| {
                log!("{}: the interface {way} another host stays in its namespace: {e}", one.name)
            });
        }
    }
}

/// The interface into the namespace, down; then the rules, which name it; then the socket, and up it goes.
fn begin(
    rules: &Rules,
    channel: &Channel,
    wire: &site::Wire,
    name: &LabelName,
    ns: BorrowedFd<'_>,
    outer: BorrowedFd<'_>,
) -> Result<OwnedFd> {
    let interface = wire.interface().as_str();
    let own = ns.try_clone_to_owned().map_err(|e| Error::new("keep a network namespace", e))?;
    let network = crate::compartment::Network::in_ns(own)?;
    take_interface(ns, outer, interface, name)?;
    rules.load(name, ns)?;
    let mut net = network.net()?;
    let mtu = net.find(interface)?.map_or(0, |link| link.mtu);
    if mtu < u32::from(wire.mtu()) {
        let why = format!("its longest packet has {mtu} octets: ip link set {interface} mtu {}", wire.mtu());
        return Err(Error::invalid(format!("use the interface {interface} for {name}"), why));
    }
    add_address(&mut net, interface, wire.address())?;
    net.set_up(interface)?;
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
