//! Interfaces, addresses and routes of one network namespace, by rtnetlink (synchronous).

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use ipnet::IpNet;
use netlink_packet_core::{
    DefaultNla, Emitable as _, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REQUEST,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::error::Step;
use crate::tun::check;
use crate::{Error, Result, ns};

/// Longest interface name, in bytes (`IFNAMSIZ` less the NUL).
const NAME_MAX: usize = 15;

/// The routing table of what is the namespace's own (`RT_TABLE_LOCAL`, linux/rtnetlink.h).
const LOCAL_TABLE: u8 = 255;

/// Of a tc filter: its options, its program, its name, its flags (linux/pkt_cls.h, linux/rtnetlink.h).
const TC_OPTIONS: u16 = 2;
const BPF_FD: u16 = 6;
const BPF_NAME: u16 = 7;
const BPF_FLAGS: u16 = 8;
/// What the program returns is what becomes of the packet (`TCA_BPF_FLAG_ACT_DIRECT`).
const DIRECT_ACTION: u32 = 1;
/// The first priority there is, and `ETH_P_ALL`.
const FIRST: u32 = 1;
const ALL_PROTOCOLS: u16 = 3;

/// Segments that arrive are joined; super-segments are taken (linux/ethtool.h).
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_STSO: u32 = 0x1f;

/// Where a program sees packets of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// As they come from it.
    From,
    /// As they go to it.
    To,
}

/// An rtnetlink socket: a handle to one network namespace, the one it was opened in.
pub struct Net {
    socket: Socket,
    sequence: u32,
}

/// One interface of the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Interface index in this namespace.
    pub index: u32,
    /// Interface name.
    pub name: String,
    /// Administratively up.
    pub up: bool,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// The group that it was put in; 0 if in none.
    pub group: u32,
}

/// What an interface may leave to others, or do for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offload {
    /// Segments that arrive are joined before the stack sees them (GRO). One end of a pair does so with what its other end sends, where that takes no
    /// super-segments (veth.c, `veth_skb_is_eligible_for_gro`).
    Joined,
    /// The stack may hand it super-segments of TCP (TSO). Else the kernel cuts them up.
    SuperSegments,
}

impl Net {
    /// The namespace of the calling thread.
    pub fn here() -> Result<Self> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok::<_, std::io::Error>(socket)
        };
        Ok(Self { socket: open().step(|| "open an rtnetlink socket".into())?, sequence: 0 })
    }

    /// The namespace that `net` refers to.
    pub fn in_ns(net: BorrowedFd<'_>) -> Result<Self> {
        ns::in_net(net, Self::here)?
    }

    /// Every interface of the namespace.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let step = || "list the interfaces".to_owned();
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.exchange(request, NLM_F_REQUEST | NLM_F_DUMP).step(step)?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => Some(Link::of(&link)),
                _ => None,
            })
            .collect())
    }

    /// The interface called `name`, if there is one.
    pub fn find(&mut self, name: &str) -> Result<Option<Link>> {
        Ok(self.links()?.into_iter().find(|link| link.name == name))
    }

    /// Index of the interface called `name`; an error where there is none.
    pub fn index(&mut self, name: &str) -> Result<u32> {
        self.find(name)?
            .map(|link| link.index)
            .ok_or_else(|| Error::new(format!("find interface {name}"), rustix::io::Errno::NODEV))
    }

    /// Sets `name` administratively up.
    pub fn set_up(&mut self, name: &str) -> Result<()> {
        self.set_flags(name, true)
    }

    /// Sets `name` administratively down.
    pub fn set_down(&mut self, name: &str) -> Result<()> {
        self.set_flags(name, false)
    }

    /// Sets the largest packet of `name`, in bytes.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<()> {
        self.set_link(name, vec![LinkAttribute::Mtu(mtu)], || format!("set the MTU of {name} to {mtu}"))
    }

    /// Sets the largest segment that the stack may hand to `name` for it to cut up, in bytes.
    pub fn set_gso_max_size(&mut self, name: &str, bytes: u32) -> Result<()> {
        let attributes = vec![LinkAttribute::GsoMaxSize(bytes), LinkAttribute::GsoIpv4MaxSize(bytes)];
        self.set_link(name, attributes, || format!("set gso_max_size of {name} to {bytes}"))
    }

    /// Gives `name`, which must be down, this Ethernet address, and no address resolution: what leaves by it goes to that very address.
    /// So the two ends of a wire with two ends need no neighbours if both are set up like this, with one address.
    pub fn make_wire(&mut self, name: &str, address: [u8; 6]) -> Result<()> {
        self.set_link(name, vec![LinkAttribute::Address(address.to_vec())], || {
            format!("set the Ethernet address of {name}")
        })?;
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.header.change_mask = LinkFlags::Noarp;
        message.header.flags = LinkFlags::Noarp;
        self.exchange(RouteNetlinkMessage::SetLink(message), NLM_F_REQUEST | NLM_F_ACK)
            .step(|| format!("take address resolution from {name}"))?;
        Ok(())
    }

    /// Switches an offload of `name`.
    pub fn set_offload(&mut self, name: &str, offload: Offload, is_on: bool) -> Result<()> {
        let step = || format!("switch an offload of {name}");
        check_name(name)?;
        let command = match offload {
            Offload::Joined => ETHTOOL_SGRO,
            Offload::SuperSegments => ETHTOOL_STSO,
        };
        let mut value = [command, is_on.into()];
        let mut request = libc::ifreq {
            ifr_name: [0; libc::IFNAMSIZ],
            ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_data: value.as_mut_ptr().cast() },
        };
        for (to, &from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
            *to = from as libc::c_char;
        }
        // SAFETY: SIOCETHTOOL with these commands reads one `struct ifreq`, and one `struct ethtool_value` (two `u32`) where that points to; both are
        // initialised and outlive the call. The name is shorter than its field, so that a NUL ends it.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) })
            .step(step)?;
        Ok(())
    }

    /// Renames `name`, which must be down.
    pub fn rename(&mut self, name: &str, new: &str) -> Result<()> {
        check_name(new)?;
        self.set_link(name, vec![LinkAttribute::IfName(new.to_owned())], || format!("rename {name} to {new}"))
    }

    /// Moves `name` to another network namespace, where it arrives down and without addresses.
    pub fn move_to(&mut self, name: &str, target: BorrowedFd<'_>) -> Result<()> {
        self.set_link(name, vec![LinkAttribute::NetNsFd(target.as_raw_fd())], || {
            format!("move {name} to another network namespace")
        })
    }

    /// Adds an address with its prefix length. An IPv6 address is usable at once (no duplicate detection).
    pub fn add_address(&mut self, name: &str, address: IpNet) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.index = self.index(name)?;
        message.header.prefix_len = address.prefix_len();
        message.header.family = family(address.addr());
        message.attributes = vec![AddressAttribute::Address(address.addr())];
        match address.addr() {
            IpAddr::V4(_) => message.attributes.push(AddressAttribute::Local(address.addr())),
            IpAddr::V6(_) => message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad)),
        }
        self.create(RouteNetlinkMessage::NewAddress(message), || format!("add address {address} to {name}"))
    }

    /// Adds a route to `destination` out of `name`, through `gateway` where one is given.
    pub fn add_route(&mut self, destination: IpNet, gateway: Option<IpAddr>, name: &str) -> Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination.addr());
        message.header.destination_prefix_length = destination.prefix_len();
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        message.header.scope = if gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
        if destination.prefix_len() > 0 {
            message.attributes.push(RouteAttribute::Destination(route_address(destination.network())));
        }
        if let Some(gateway) = gateway {
            message.attributes.push(RouteAttribute::Gateway(route_address(gateway)));
        }
        message.attributes.push(RouteAttribute::Oif(self.index(name)?));
        self.create(RouteNetlinkMessage::NewRoute(message), || match gateway {
            Some(gateway) => format!("add a route to {destination} via {gateway} on {name}"),
            None => format!("add a route to {destination} on {name}"),
        })
    }

    /// Takes the way to groups (IPv6 multicast) from `name`, which is up: Linux gives it to every interface that comes up. Where it has none
    /// there is nothing to take.
    pub fn forget_groups(&mut self, name: &str) -> Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet6;
        message.header.destination_prefix_length = 8;
        message.header.table = LOCAL_TABLE;
        message.header.kind = RouteType::Multicast;
        let groups = IpAddr::V6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0));
        message.attributes =
            vec![RouteAttribute::Destination(route_address(groups)), RouteAttribute::Oif(self.index(name)?)];
        match self.exchange(RouteNetlinkMessage::DelRoute(message), NLM_F_REQUEST | NLM_F_ACK) {
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(()),
            done => done.map(drop).step(|| format!("take the way to groups from {name}")),
        }
    }

    /// Says which hardware address a neighbour has, which is then asked for it no more.
    pub fn add_neighbour(&mut self, name: &str, address: IpAddr, hardware: [u8; 6]) -> Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.index(name)?;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unicast;
        let destination = match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        };
        message.attributes.extend([
            NeighbourAttribute::Destination(destination),
            NeighbourAttribute::LinkLayerAddress(hardware.to_vec()),
        ]);
        self.create(RouteNetlinkMessage::NewNeighbour(message), || {
            format!("say at {name} which hardware address {address} has")
        })
    }

    /// Makes every address in `range` one of the namespace's own, at interface `name`.
    pub fn add_local(&mut self, range: IpNet, name: &str) -> Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(range.addr());
        message.header.destination_prefix_length = range.prefix_len();
        message.header.table = LOCAL_TABLE;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Local;
        message.header.scope = RouteScope::Host;
        message.attributes.push(RouteAttribute::Destination(route_address(range.network())));
        message.attributes.push(RouteAttribute::Oif(self.index(name)?));
        self.create(RouteNetlinkMessage::NewRoute(message), || format!("make {range} local to {name}"))
    }

    /// Creates a pair of virtual Ethernet interfaces; `peer` is born in `peer_ns` where one is given.
    pub fn add_veth(&mut self, name: &str, peer: &str, peer_ns: Option<BorrowedFd<'_>>) -> Result<()> {
        self.add_veth_of_group(name, peer, peer_ns, 0)
    }

    /// As [`Net::add_veth`], both in a group, by which they are known from interfaces that others made.
    pub fn add_veth_of_group(
        &mut self,
        name: &str,
        peer: &str,
        peer_ns: Option<BorrowedFd<'_>>,
        group: u32,
    ) -> Result<()> {
        check_name(name)?;
        check_name(peer)?;
        let mut other = LinkMessage::default();
        other.attributes.extend([LinkAttribute::IfName(peer.to_owned()), LinkAttribute::Group(group)]);
        if let Some(fd) = peer_ns {
            other.attributes.push(LinkAttribute::NetNsFd(fd.as_raw_fd()));
        }
        let mut message = LinkMessage::default();
        message.attributes.extend([LinkAttribute::IfName(name.to_owned()), LinkAttribute::Group(group)]);
        message.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other))),
        ]));
        self.create(RouteNetlinkMessage::NewLink(message), || format!("create veth pair {name}, {peer}"))
    }

    /// Deletes a virtual interface (and the other end, where it has one).
    pub fn delete(&mut self, name: &str) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        self.exchange(RouteNetlinkMessage::DelLink(message), NLM_F_REQUEST | NLM_F_ACK)
            .step(|| format!("delete interface {name}"))?;
        Ok(())
    }

    /// Gives `name` the places at which programs see its packets, without those that it had.
    pub fn add_program_hooks(&mut self, name: &str) -> Result<()> {
        let mut message = TcMessage::with_index(self.signed_index(name)?);
        message.header.parent = TcHandle::CLSACT;
        message.header.handle = TcHandle { major: TcHandle::CLSACT.major, minor: 0 };
        message.attributes = vec![TcAttribute::Kind("clsact".to_owned())];
        // Where it has none, there is nothing to delete.
        let old = RouteNetlinkMessage::DelQueueDiscipline(message.clone());
        let _ = self.exchange(old, NLM_F_REQUEST | NLM_F_ACK);
        self.create(RouteNetlinkMessage::NewQueueDiscipline(message), || {
            format!("make {name} show its packets to programs")
        })
    }

    /// Lets a tc program decide about every packet that comes from `name`, or goes to it; it has its hooks.
    pub fn add_program(&mut self, name: &str, hook: Hook, program: BorrowedFd<'_>) -> Result<()> {
        let mut message = TcMessage::with_index(self.signed_index(name)?);
        let minor = match hook {
            Hook::From => TcHandle::MIN_INGRESS,
            Hook::To => TcHandle::MIN_EGRESS,
        };
        message.header.parent = TcHandle { major: TcHandle::CLSACT.major, minor };
        message.header.info = FIRST << 16 | u32::from(ALL_PROTOCOLS.to_be());
        let fd = program.as_raw_fd().to_ne_bytes().to_vec();
        let options = [
            DefaultNla::new(BPF_FD, fd),
            DefaultNla::new(BPF_NAME, b"levee\0".to_vec()),
            DefaultNla::new(BPF_FLAGS, DIRECT_ACTION.to_ne_bytes().to_vec()),
        ];
        let options = options.as_slice();
        let mut octets = vec![0; options.buffer_len()];
        options.emit(&mut octets);
        message.attributes = vec![
            TcAttribute::Kind("bpf".to_owned()),
            TcAttribute::Other(DefaultNla::new(TC_OPTIONS, octets)),
        ];
        self.create(RouteNetlinkMessage::NewTrafficFilter(message), || format!("put a program at {name}"))
    }

    fn signed_index(&mut self, name: &str) -> Result<i32> {
        i32::try_from(self.index(name)?).map_err(|e| Error::invalid("number an interface", e.to_string()))
    }

    fn set_flags(&mut self, name: &str, up: bool) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        self.exchange(RouteNetlinkMessage::SetLink(message), NLM_F_REQUEST | NLM_F_ACK)
            .step(|| format!("set {name} {}", if up { "up" } else { "down" }))?;
        Ok(())
    }

    fn set_link(
        &mut self,
        name: &str,
        attributes: Vec<LinkAttribute>,
        step: impl FnOnce() -> String,
    ) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.attributes = attributes;
        self.exchange(RouteNetlinkMessage::SetLink(message), NLM_F_REQUEST | NLM_F_ACK).step(step)?;
        Ok(())
    }

    fn create(&mut self, message: RouteNetlinkMessage, step: impl FnOnce() -> String) -> Result<()> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL).step(step)?;
        Ok(())
    }

    /// Sends one request and collects its answers until the acknowledgement or the end of the dump.
    fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> std::io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        request.header.sequence_number = self.sequence;
        exchange(&self.socket, request)
    }
}

/// One netlink request and its answers. Datagrams with another sequence number are leftovers of an
/// earlier request that failed half-way; they are skipped.
pub(crate) fn exchange<M, A>(socket: &Socket, request: NetlinkMessage<M>) -> std::io::Result<Vec<A>>
where
    M: netlink_packet_core::NetlinkSerializable,
    A: netlink_packet_core::NetlinkDeserializable,
{
    exchange_some(socket, request, usize::MAX, |_| true)
}

/// As [`exchange`], but no more is read once there are `most` answers: then nothing else is to be asked on this socket.
pub(crate) fn exchange_some<M, A>(
    socket: &Socket,
    mut request: NetlinkMessage<M>,
    most: usize,
    wanted: impl Fn(&A) -> bool,
) -> std::io::Result<Vec<A>>
where
    M: netlink_packet_core::NetlinkSerializable,
    A: netlink_packet_core::NetlinkDeserializable,
{
    let invalid =
        |e: &dyn std::fmt::Display| std::io::Error::new(std::io::ErrorKind::InvalidData, e.to_string());
    request.finalize();
    let sequence = request.header.sequence_number;
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;

    let mut answers = Vec::new();
    while answers.len() < most {
        let (datagram, from) = socket.recv_from_full()?;
        if from.port_number() != 0 {
            continue; // only the kernel (port 0) may answer
        }
        let mut rest: &[u8] = &datagram;
        while !rest.is_empty() {
            let message = NetlinkMessage::<A>::deserialize(rest).map_err(|e| invalid(&e))?;
            let length = usize::try_from(message.header.length).map_err(|e| invalid(&e))?;
            // Messages are aligned to four bytes; the last one may lack its padding.
            rest = length.checked_next_multiple_of(4).and_then(|n| rest.get(n..)).unwrap_or(&[]);
            if message.header.sequence_number != sequence {
                continue;
            }
            match message.payload {
                NetlinkPayload::InnerMessage(answer) => answers.extend(Some(answer).filter(&wanted)),
                NetlinkPayload::Done(_) => return Ok(answers),
                NetlinkPayload::Error(e) => match e.code {
                    None => return Ok(answers),
                    Some(code) => return Err(std::io::Error::from_raw_os_error(code.get().saturating_neg())),
                },
                _ => {}
            }
        }
    }
    Ok(answers)
}

impl Link {
    fn of(message: &LinkMessage) -> Self {
        let mut link = Self {
            index: message.header.index,
            name: String::new(),
            up: message.header.flags.contains(LinkFlags::Up),
            mtu: 0,
            group: 0,
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::Group(group) => link.group = *group,
                _ => {}
            }
        }
        link
    }
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(v4) => RouteAddress::Inet(v4),
        IpAddr::V6(v6) => RouteAddress::Inet6(v6),
    }
}

/// What the kernel's `dev_valid_name` takes, and no `%`, which it would fill in with a number.
fn check_name(name: &str) -> Result<()> {
    let allowed = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%');
    if name.is_empty() || name.len() > NAME_MAX || name == "." || name == ".." || !name.chars().all(allowed) {
        return Err(Error::invalid(format!("name an interface {name:?}"), "not an interface name"));
    }
    Ok(())
}
