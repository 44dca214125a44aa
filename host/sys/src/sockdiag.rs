//! Destroys the sockets of one address: how a session's connections end with it. And says how many connections nobody has accepted.

use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
    NetlinkSerializable,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP, IPPROTO_UDP};
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponseHeader, SocketId, StateFlags, Timer,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};

use crate::error::Step;
use crate::{Result, net, ns};

/// `SOCK_DESTROY` (linux/sock_diag.h), which the message crate has no name for.
const SOCK_DESTROY: u16 = 21;

/// What is destroyed, by protocol and family.
const KINDS: [(u8, u8); 4] =
    [(IPPROTO_TCP, AF_INET), (IPPROTO_TCP, AF_INET6), (IPPROTO_UDP, AF_INET), (IPPROTO_UDP, AF_INET6)];

/// Destroys every TCP and UDP socket in the namespace `net` whose local or remote address is `address`
/// (also as an IPv4-mapped IPv6 address). Their owners see `ECONNABORTED`; the peer sees a reset, if it
/// can still be reached. A UDP socket loses its peer and fails its pending call. Listening sockets bound to a wildcard stay. Returns how many were destroyed.
///
/// # Errors
/// The kernel's.
pub fn destroy(net: BorrowedFd<'_>, address: IpAddr) -> Result<usize> {
    let mut doomed = Doomed::find(net, address, usize::MAX)?;
    while doomed.destroy(usize::MAX)? {}
    Ok(doomed.destroyed())
}

/// Sockets that are to be destroyed, as many at a time as the caller has time for.
#[derive(Debug, Default)]
pub struct Doomed {
    /// Whose they are, while not all have been listed: the namespace, the address, and how many are listed at a time.
    of: Option<(OwnedFd, IpAddr, usize)>,
    /// What asks for it, while there is any left.
    socket: Option<Socket>,
    left: Vec<(u8, u8, SocketId)>,
    destroyed: usize,
    sequence: u32,
}

impl Doomed {
    /// What [`destroy`] would destroy, however many there are; `most` are listed at a time. The kernel picks them, so that what others have in the namespace
    /// costs little.
    ///
    /// # Errors
    /// The kernel's.
    pub fn find(net: BorrowedFd<'_>, address: IpAddr, most: usize) -> Result<Self> {
        let net = net.try_clone_to_owned().step(LIST)?;
        let mut doomed = Self { of: Some((net, address, most)), ..Self::default() };
        doomed.look()?;
        Ok(doomed)
    }

    /// Lists some of an address's, if not all have been.
    fn look(&mut self) -> Result<()> {
        let Some((net, address, most)) = self.of.take() else { return Ok(()) };
        let socket = open(net.as_fd())?;
        // A socket in TIME_WAIT carries nothing more and cannot be aborted on the oldest kernels.
        let states = StateFlags::all() - StateFlags::TIME_WAIT;
        for (protocol, family) in KINDS {
            self.sequence = self.sequence.wrapping_add(1);
            let room = most.saturating_sub(self.left.len());
            let wanted = Wanted { family, protocol, states: states.clone(), address: Some(address) };
            let found = list(&socket, wanted, room.saturating_add(1), self.sequence).step(LIST)?;
            let more = found.len() > room;
            self.left.extend(found.into_iter().take(room).map(|id| (family, protocol, id)));
            if more {
                // On this socket the kernel would go on with what was asked.
                self.socket = Some(open(net.as_fd())?);
                self.of = Some((net, address, most));
                return Ok(());
            }
        }
        self.socket = Some(socket);
        Ok(())
    }

    /// Every TCP connection in the namespace `net`, whose programs have ended: the kernel goes on with what they had not sent yet.
    ///
    /// # Errors
    /// The kernel's; or it does not destroy what belongs to nobody any more, as older kernels may not: they throw away what there is to send, and
    /// have the rest for ever. One connection is lost to find that out.
    pub fn left(net: BorrowedFd<'_>) -> Result<Self> {
        let socket = open(net)?;
        // Who waits for the other end's last word, or for nothing, has nothing more to send.
        let silent = StateFlags::TIME_WAIT | StateFlags::FIN_WAIT2 | StateFlags::LISTEN;
        let states = StateFlags::all() - silent;
        let list = |family, sequence| {
            let wanted = Wanted { family, protocol: IPPROTO_TCP, states: states.clone(), address: None };
            list(&socket, wanted, usize::MAX, sequence).step(LIST)
        };
        let mut left = Vec::new();
        for (family, sequence) in [(AF_INET, 1), (AF_INET6, 2)] {
            let mut found = list(family, sequence)?;
            if let (true, Some(first)) = (left.is_empty(), found.pop()) {
                kill(&socket, family, IPPROTO_TCP, first.clone(), sequence + 2)
                    .step(|| "destroy a socket".into())?;
                if list(family, sequence + 4)?.contains(&first) {
                    return Err(crate::Error::invalid(
                        "destroy what a program has left",
                        "this kernel does not destroy connections that are nobody's",
                    ));
                }
            }
            left.extend(found.into_iter().map(|id| (family, IPPROTO_TCP, id)));
        }
        Ok(Self { of: None, socket: Some(socket), left, destroyed: 0, sequence: 6 })
    }

    /// Destroys as many as `most`; whether there are more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn destroy(&mut self, most: usize) -> Result<bool> {
        for _ in 0..most {
            let (Some(socket), Some((family, protocol, id))) = (&self.socket, self.left.pop()) else { break };
            self.sequence = self.sequence.wrapping_add(1);
            let killed = kill(socket, family, protocol, id, self.sequence);
            self.destroyed += usize::from(killed.step(|| "destroy a socket".into())?);
            if self.left.is_empty() {
                self.look()?;
            }
        }
        Ok(!self.left.is_empty())
    }

    /// How many it has destroyed.
    pub fn destroyed(&self) -> usize {
        self.destroyed
    }
}

/// Destroys every TCP connection in the namespace `net` whose local end is `local`, and leaves who listens there. Returns how
/// many were destroyed.
pub fn destroy_connections(net: BorrowedFd<'_>, local: std::net::SocketAddr) -> Result<usize> {
    let states = StateFlags::all() - StateFlags::TIME_WAIT - StateFlags::LISTEN;
    let of = |id: &SocketId| id.source_address.to_canonical() == local.ip() && id.source_port == local.port();
    let socket = open(net)?;
    let (mut destroyed, mut sequence) = (0, 0);
    for family in [AF_INET, AF_INET6] {
        sequence += 1;
        let address = Some(local.ip());
        let wanted = Wanted { family, protocol: IPPROTO_TCP, states: states.clone(), address };
        for id in list(&socket, wanted, usize::MAX, sequence).step(LIST)?.into_iter().filter(of) {
            sequence += 1;
            let killed = kill(&socket, family, IPPROTO_TCP, id, sequence);
            destroyed += usize::from(killed.step(|| format!("destroy a socket of {local}"))?);
        }
    }
    Ok(destroyed)
}

/// Who listens at more places is not counted any further.
const LISTENERS: usize = 16_384;

/// How many connections wait in the namespace `net` for a program to accept them; `None` where somebody listens at more places than are
/// counted. The kernel looks at who listens, and not at connections, however many there are.
///
/// # Errors
/// The kernel's.
pub fn waiting(net: BorrowedFd<'_>) -> Result<Option<u64>> {
    waiting_at(net, LISTENERS)
}

fn waiting_at(net: BorrowedFd<'_>, most: usize) -> Result<Option<u64>> {
    let mut all = 0;
    for family in [AF_INET, AF_INET6] {
        let wanted = Wanted { family, protocol: IPPROTO_TCP, states: StateFlags::LISTEN, address: None };
        let listening = listed(&open(net)?, wanted, most.saturating_add(1), 1).step(LIST)?;
        if listening.len() > most {
            return Ok(None);
        }
        all += listening.iter().map(|one| u64::from(one.recv_queue)).sum::<u64>();
    }
    Ok(Some(all))
}

fn open(net: BorrowedFd<'_>) -> Result<Socket> {
    ns::in_net(net, || {
        let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok::<_, std::io::Error>(socket)
    })?
    .step(|| "open a sock_diag socket".into())
}

/// What is listed.
struct Wanted {
    family: u8,
    protocol: u8,
    states: StateFlags,
    /// Only sockets with this address at one end.
    address: Option<IpAddr>,
}

/// The step.
const LIST: fn() -> String = || "list the sockets of a network namespace".into();

/// At most about `most`: then the rest is not read, and the socket is good for no other list.
fn list(socket: &Socket, wanted: Wanted, most: usize, sequence: u32) -> std::io::Result<Vec<SocketId>> {
    Ok(listed(socket, wanted, most, sequence)?.into_iter().map(|one| one.socket_id).collect())
}

fn listed(
    socket: &Socket,
    wanted: Wanted,
    most: usize,
    sequence: u32,
) -> std::io::Result<Vec<InetResponseHeader>> {
    let Wanted { family, protocol, states, address } = wanted;
    let states = if protocol == IPPROTO_TCP { states - StateFlags::CLOSE } else { states };
    let socket_id = if family == AF_INET { SocketId::new_v4() } else { SocketId::new_v6() };
    let request = InetRequest { family, protocol, extensions: ExtensionFlags::empty(), states, socket_id };
    let list = List { request, filter: address.map(filter) };
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::InnerMessage(list));
    message.header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    message.header.sequence_number = sequence;
    // What is left of a connection that its program has ended, and that waits for the other end's last word, is no socket any more: it carries nothing, and
    // the oldest kernels do not abort it.
    let is_socket = |answer: &SockDiagMessage| match answer {
        SockDiagMessage::InetResponse(it) => it.header.timer != Some(Timer::TimeWait),
        _ => true,
    };
    let answers: Vec<SockDiagMessage> = net::exchange_some(socket, message, most, is_socket)?;
    Ok(answers
        .into_iter()
        .filter_map(|answer| match answer {
            SockDiagMessage::InetResponse(response) => Some(response.header),
            _ => None,
        })
        .collect())
}

/// By which the kernel finds sockets with this address at either end (linux/inet_diag.h, `inet_diag_bc_op` and `inet_diag_hostcond`). It
/// takes IPv4-mapped addresses for IPv4's.
fn filter(address: IpAddr) -> Vec<u8> {
    const JUMP: u8 = 1;
    const SOURCE: u8 = 7;
    const DESTINATION: u8 = 8;
    let (family, octets) = match address.to_canonical() {
        IpAddr::V4(v4) => (AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AF_INET6, v6.octets().to_vec()),
    };
    let bits = if family == AF_INET { 32 } else { 128 };
    // An instruction has 4 octets, and a condition 8 before its address.
    let size = if family == AF_INET { 16_u8 } else { 28 };
    let condition = |code: u8| {
        let mut bytes = vec![code, size];
        // Where it does not hold: behind the jump, or, of the second one, behind the end, which is a refusal.
        bytes.extend((u16::from(size) + 4).to_ne_bytes());
        bytes.extend([family, bits, 0, 0]);
        bytes.extend((-1_i32).to_ne_bytes()); // any port
        bytes.extend(&octets);
        bytes
    };
    let mut filter = condition(DESTINATION);
    filter.extend([JUMP, 4]);
    filter.extend((u16::from(size) + 4).to_ne_bytes()); // to the end, which is a yes
    filter.extend(condition(SOURCE));
    filter
}

/// Whether it was there to be destroyed.
fn kill(socket: &Socket, family: u8, protocol: u8, id: SocketId, sequence: u32) -> std::io::Result<bool> {
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
    match net::exchange::<_, SockDiagMessage>(socket, message) {
        Ok(_) => Ok(true),
        // It ended by itself between the listing and now.
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// An [`InetRequest`] with a filter.
struct List {
    request: InetRequest,
    filter: Option<Vec<u8>>,
}

/// `INET_DIAG_REQ_BYTECODE` (linux/inet_diag.h).
const REQ_BYTECODE: u16 = 1;
/// `SOCK_DIAG_BY_FAMILY` (linux/sock_diag.h).
const SOCK_DIAG_BY_FAMILY: u16 = 20;

impl NetlinkSerializable for List {
    fn message_type(&self) -> u16 {
        SOCK_DIAG_BY_FAMILY
    }

    fn buffer_len(&self) -> usize {
        self.request.buffer_len() + self.filter.as_ref().map_or(0, |filter| 4 + filter.len())
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let (request, attribute) = buffer.split_at_mut(self.request.buffer_len());
        self.request.emit(request);
        let Some(program) = &self.filter else { return };
        let (head, filter) = attribute.split_at_mut(4);
        // 36 or 60 octets.
        let length = 4 + program.len() as u16;
        head.copy_from_slice(&[length.to_ne_bytes(), REQ_BYTECODE.to_ne_bytes()].concat());
        filter.copy_from_slice(program);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    /// (Root.)
    #[test]
    fn who_listens_at_more_places_than_are_counted_is_told_from_who_has_nobody_waiting() {
        let net = ns::new_net().unwrap();
        net::Net::in_ns(net.as_fd()).unwrap().set_up("lo").unwrap();
        let listen = || (0..300).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect::<Vec<_>>();
        let all = ns::in_net(net.as_fd(), listen).unwrap();
        assert_eq!(waiting_at(net.as_fd(), 300).unwrap(), Some(0));
        assert_eq!(waiting_at(net.as_fd(), 299).unwrap(), None);
        drop(all);
    }
}
