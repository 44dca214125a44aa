//! Destroys the sockets of one address: how a session's connections end with it.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};

use crate::error::Step;
use crate::{Result, net, ns};

/// `SOCK_DESTROY` (linux/sock_diag.h), which the message crate has no name for.
const SOCK_DESTROY: u16 = 21;

/// Destroys every TCP and UDP socket in the namespace `net` whose local or remote address is `address`
/// (also as an IPv4-mapped IPv6 address). Their owners see `ECONNABORTED`; the peer sees a reset, if it
/// can still be reached. A UDP socket loses its peer and fails its pending call. Listening sockets bound to a wildcard stay. Returns how many were destroyed.
pub fn destroy(net: BorrowedFd<'_>, address: IpAddr) -> Result<usize> {
    // A socket in TIME_WAIT carries nothing more and cannot be aborted on the oldest kernels.
    let states = StateFlags::all() - StateFlags::TIME_WAIT;
    let of = |id: &SocketId| {
        id.source_address.to_canonical() == address || id.destination_address.to_canonical() == address
    };
    destroy_all(net, &[IPPROTO_TCP, IPPROTO_UDP], states, &address, of)
}

/// Destroys every TCP connection in the namespace `net` whose local end is `local`, and leaves who listens there. Returns how
/// many were destroyed.
pub fn destroy_connections(net: BorrowedFd<'_>, local: std::net::SocketAddr) -> Result<usize> {
    let states = StateFlags::all() - StateFlags::TIME_WAIT - StateFlags::LISTEN;
    let of = |id: &SocketId| id.source_address.to_canonical() == local.ip() && id.source_port == local.port();
    destroy_all(net, &[IPPROTO_TCP], states, &local, of)
}

fn destroy_all(
    net: BorrowedFd<'_>,
    protocols: &[u8],
    states: StateFlags,
    what: &dyn std::fmt::Display,
    of: impl Fn(&SocketId) -> bool,
) -> Result<usize> {
    let socket = ns::in_net(net, || {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok::<_, std::io::Error>(socket)
    })?
    .step(|| "open a sock_diag socket".into())?;

    let mut destroyed = 0;
    let mut sequence = 0;
    for protocol in protocols.iter().copied() {
        for family in [AF_INET, AF_INET6] {
            sequence += 1;
            for id in list(&socket, family, protocol, states.clone(), sequence)
                .step(|| "list the sockets of a network namespace".into())?
            {
                if !of(&id) {
                    continue;
                }
                sequence += 1;
                match kill(&socket, family, protocol, id, sequence) {
                    Ok(()) => destroyed += 1,
                    // It ended by itself between the listing and now.
                    Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                    Err(e) => return Err(e).step(|| format!("destroy a socket of {what}")),
                }
            }
        }
    }
    Ok(destroyed)
}

fn list(
    socket: &Socket,
    family: u8,
    protocol: u8,
    states: StateFlags,
    sequence: u32,
) -> std::io::Result<Vec<SocketId>> {
    let states = if protocol == IPPROTO_TCP { states - StateFlags::CLOSE } else { states };
    let socket_id = if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() };
    let request = InetRequest { family, protocol, extensions: ExtensionFlags::empty(), states, socket_id };
    let mut message = NetlinkMessage::new(
        NetlinkHeader::default(),
        NetlinkPayload::from(SockDiagMessage::InetRequest(request)),
    );
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.header.sequence_number = sequence;
    let answers: Vec<SockDiagMessage> = net::exchange(socket, message)?;
    Ok(answers
        .into_iter()
        .filter_map(|answer| match answer {
            SockDiagMessage::InetResponse(response) => Some(response.header.socket_id),
            _ => None,
        })
        .collect())
}

fn kill(socket: &Socket, family: u8, protocol: u8, id: SocketId, sequence: u32) -> std::io::Result<()> {
    let request = InetRequest {
        family,
        protocol,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::all(),
        socket_id: id,
    };
    let mut message =
        NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::InnerMessage(Destroy(request)));
    message.header.flags = NLM_F_REQUEST | NLM_F_ACK;
    message.header.sequence_number = sequence;
    net::exchange::<_, SockDiagMessage>(socket, message).map(drop)
}

/// An [`InetRequest`] under the message type that destroys instead of listing.
struct Destroy(InetRequest);

impl NetlinkSerializable for Destroy {
    fn message_type(&self) -> u16 {
        SOCK_DESTROY
    }

    fn buffer_len(&self) -> usize {
        self.0.buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        self.0.emit(buffer);
    }
}
