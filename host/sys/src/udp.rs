//! UDP with segmentation and receive offload by control message, and the SO_REUSEPORT group that steers ESP by SPI.
//!
//! Everything that needs `setsockopt` is done here before a socket is handed out, so that the filter of who receives it can forbid
//! it.

use std::io;
use std::mem::{offset_of, size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

mod steering;

pub use steering::SteeringKey;
pub(crate) use steering::{op, ret};

/// `linux/udp.h`: segment size of a send (`u16`).
const UDP_SEGMENT: libc::c_int = 103;
/// `linux/udp.h`: accept aggregates; as a control message their segment size (`int`).
const UDP_GRO: libc::c_int = 104;

/// Most segments that one send may have (`UDP_MAX_SEGMENTS` of the kernel, 128 since 6.9, 64 before).
pub const MAX_SEGMENTS: usize = 64;

/// Most bytes of payload in one send over IPv4, all segments together.
pub const MAX_SEND: usize = 65_507;

/// Highest number of slots.
pub const MAX_SLOTS: u16 = 4_095;

/// What one receive gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes placed at the start of the buffer.
    pub length: usize,
    /// Size of each datagram in an aggregate (the last may be shorter); `None` for a single datagram.
    pub segment: Option<u16>,
    /// The sender.
    pub from: SocketAddr,
    /// The local IPv4 address that it was sent to, where the socket reports it ([`bind_within`]).
    pub to: Option<Ipv4Addr>,
    /// The ECN field of the outer IP header (RFC 3168), 0 when the socket does not report it.
    pub ecn: u8,
    /// The datagram was longer than the buffer; the rest is lost.
    pub truncated: bool,
}

impl Received {
    /// Each datagram, of the buffer that it was received into.
    pub fn datagrams<'b>(&self, buffer: &'b [u8]) -> impl Iterator<Item = &'b [u8]> + use<'b> {
        let whole = buffer.get(..self.length).unwrap_or_default();
        whole.chunks(self.segment.map_or(whole.len(), usize::from).max(1))
    }
}

/// The control buffer, aligned as `cmsghdr` needs it.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// Receives one datagram or, when the socket accepts them, one aggregate; never blocks.
///
/// # Errors
/// The kernel's: `WouldBlock` when nothing waits, and errors that ICMP brought for earlier sends (such as
/// `ConnectionRefused`), which say nothing about this socket.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<Received> {
    // SAFETY: sockaddr_storage and msghdr are plain C structs for which all-zero bytes are a valid value.
    let (mut name, mut message): (libc::sockaddr_storage, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
    let mut control = Control([0; 128]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    message.msg_name = (&raw mut name).cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: every pointer in `message` refers to a live local or to `buffer`, each with its true length, and all
    // outlive the call.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;

    let mut segment = None;
    let mut ecn = 0;
    let mut to = None;
    // SAFETY: `message` describes `control`, which the kernel has filled up to `msg_controllen`; CMSG_FIRSTHDR and
    // CMSG_NXTHDR give null or a header that lies wholly inside it.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: non-null, so a whole, aligned cmsghdr inside `control` (above).
        let (level, kind, len) = unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len) };
        // SAFETY: as above; CMSG_DATA only computes an address.
        let data = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: CMSG_LEN only computes a length.
        let head = unsafe { libc::CMSG_LEN(0) } as usize;
        let payload = len.saturating_sub(head);
        match (level, kind) {
            (libc::SOL_UDP, UDP_GRO) if payload >= size_of::<libc::c_int>() => {
                // SAFETY: the message carries at least one `int` (checked), which may be unaligned.
                let size = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                segment = u16::try_from(size).ok().filter(|&size| size > 0);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) if payload >= 1 => {
                // SAFETY: the message carries at least one byte (checked).
                ecn = unsafe { data.read() } & 3;
            }
            (libc::IPPROTO_IP, libc::IP_PKTINFO) if payload >= size_of::<libc::in_pktinfo>() => {
                // SAFETY: the message carries a whole in_pktinfo (checked), which may be unaligned; any bytes are one.
                let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                to = Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if payload >= size_of::<libc::c_int>() => {
                // SAFETY: the message carries at least one `int` (checked), which may be unaligned.
                let class = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                ecn = (class & 3) as u8;
            }
            _ => {}
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    // GRO reports the size even for a lone datagram; a single one is not an aggregate.
    let segment = segment.filter(|&size| usize::from(size) < length);
    let from = from_storage(&name, message.msg_namelen)?;
    Ok(Received { length, segment, from, to, ecn, truncated: message.msg_flags & libc::MSG_TRUNC != 0 })
}

/// Sends `bytes` to `to`: one datagram, or with `segment` datagrams of that size (the last may be shorter), with the
/// given ECN field in the outer header. The whole is sent or nothing.
///
/// # Errors
/// The kernel's: `WouldBlock` when the socket's buffer is full, `EINVAL`/`EMSGSIZE` when the path's MTU or the kernel
/// does not allow that segment size (send the datagrams one by one then), `EIO` when a device cannot checksum.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    to: SocketAddr,
    segment: Option<u16>,
    ecn: u8,
) -> io::Result<()> {
    send_as(socket, bytes, to, segment, ecn, None)
}

/// As [`send`], from this local IPv4 address, where it matters.
///
/// # Errors
/// As [`send`].
pub fn send_from(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    to: SocketAddr,
    segment: Option<u16>,
    from: Option<Ipv4Addr>,
) -> io::Result<()> {
    send_as(socket, bytes, to, segment, 0, from)
}

fn send_as(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    to: SocketAddr,
    segment: Option<u16>,
    ecn: u8,
    from: Option<Ipv4Addr>,
) -> io::Result<()> {
    let segment = segment.filter(|&size| size > 0 && usize::from(size) < bytes.len());
    // SAFETY: sockaddr_storage and msghdr are plain C structs for which all-zero bytes are a valid value.
    let (mut name, mut message): (libc::sockaddr_storage, libc::msghdr) = unsafe { (zeroed(), zeroed()) };
    let mut control = Control([0; 128]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    message.msg_namelen = to_storage(to, &mut name);
    message.msg_name = (&raw mut name).cast();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    let mut used = 0;
    if let Some(size) = segment {
        used += put(&mut control.0, used, libc::SOL_UDP, UDP_SEGMENT, &size.to_ne_bytes());
    }
    if ecn & 3 != 0 {
        let value = libc::c_int::from(ecn & 3).to_ne_bytes();
        let (level, kind) = if to.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_TOS)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
        };
        used += put(&mut control.0, used, level, kind, &value);
    }
    if let Some(from) = from {
        // ip(7), in_pktinfo: no interface, the local address, nothing.
        let mut info = [0; size_of::<libc::in_pktinfo>()];
        let at = offset_of!(libc::in_pktinfo, ipi_spec_dst);
        if let Some(field) = info.get_mut(at..at + 4) {
            field.copy_from_slice(&from.octets());
        }
        used += put(&mut control.0, used, libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
    }
    if used > 0 {
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = used;
    }
    // SAFETY: every pointer in `message` refers to a live local or to `bytes`, each with its true length, and all
    // outlive the call; the kernel only reads through `msg_iov` on a send.
    let sent = unsafe {
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    };
    match usize::try_from(sent) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(sent) if sent == bytes.len() => Ok(()),
        Ok(_) => Err(io::Error::from(io::ErrorKind::WriteZero)),
    }
}

/// Writes one control message at `at`; answers the space it takes. At most two of at most 4 bytes and one of 12 are ever
/// written, 80 bytes of the 128.
fn put(control: &mut [u8; 128], at: usize, level: libc::c_int, kind: libc::c_int, data: &[u8]) -> usize {
    // SAFETY: CMSG_LEN and CMSG_SPACE only compute lengths.
    let (len, head, space) = unsafe {
        let size = data.len() as libc::c_uint;
        (libc::CMSG_LEN(size) as usize, libc::CMSG_LEN(0) as usize, libc::CMSG_SPACE(size) as usize)
    };
    let Some(area) = control.get_mut(at..at + space) else { return 0 };
    let fields: [(usize, &[u8]); 4] = [
        (offset_of!(libc::cmsghdr, cmsg_len), &len.to_ne_bytes()),
        (offset_of!(libc::cmsghdr, cmsg_level), &level.to_ne_bytes()),
        (offset_of!(libc::cmsghdr, cmsg_type), &kind.to_ne_bytes()),
        (head, data),
    ];
    for (offset, bytes) in fields {
        if let Some(field) = area.get_mut(offset..offset + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }
    space
}

fn to_storage(address: SocketAddr, storage: &mut libc::sockaddr_storage) -> libc::socklen_t {
    match address {
        SocketAddr::V4(v4) => {
            let value = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is at least as large and as aligned as sockaddr_in, and ours to write.
            unsafe { (&raw mut *storage).cast::<libc::sockaddr_in>().write(value) };
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        SocketAddr::V6(v6) => {
            let value = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: sockaddr_storage is at least as large and as aligned as sockaddr_in6, and ours to write.
            unsafe { (&raw mut *storage).cast::<libc::sockaddr_in6>().write(value) };
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

fn from_storage(storage: &libc::sockaddr_storage, length: libc::socklen_t) -> io::Result<SocketAddr> {
    let length = length as usize;
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET if length >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: the family says sockaddr_in, the kernel wrote at least that much, and storage is aligned for it.
            let value = unsafe { (&raw const *storage).cast::<libc::sockaddr_in>().read() };
            let ip = IpAddr::V4(u32::from_be(value.sin_addr.s_addr).into());
            Ok(SocketAddr::new(ip, u16::from_be(value.sin_port)))
        }
        libc::AF_INET6 if length >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: the family says sockaddr_in6, the kernel wrote at least that much, and storage is aligned for it.
            let value = unsafe { (&raw const *storage).cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(value.sin6_addr.s6_addr);
            let port = u16::from_be(value.sin6_port);
            Ok(SocketAddrV6::new(ip, port, value.sin6_flowinfo, value.sin6_scope_id).into())
        }
        family => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("a sender of address family {family}")))
        }
    }
}

/// The sockets of one UDP address: the first, one per slot, and a sink.
///
/// Keep all of them open for as long as the address is served: closing one re-orders the others. Whoever holds one
/// may not have `setsockopt`, `connect` or `shutdown` (each would move or break the group).
#[derive(Debug)]
pub struct SteeringGroup {
    /// Index 0 is the first, 1 to N the slots, N+1 the sink; the order in which the kernel knows them.
    sockets: Vec<OwnedFd>,
    address: SocketAddr,
}

impl SteeringGroup {
    /// The address that all sockets are bound to, with the port the kernel chose if none was given.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of slots; slots are 1 to this.
    #[must_use]
    pub fn slots(&self) -> u16 {
        u16::try_from(self.sockets.len().saturating_sub(2)).unwrap_or(u16::MAX)
    }

    /// The socket that receives datagrams whose first word is zero (RFC 3948 2.2, the non-ESP marker) or is not
    /// whole (such as NAT keepalives).
    #[must_use]
    pub fn first(&self) -> Option<BorrowedFd<'_>> {
        self.sockets.first().map(AsFd::as_fd)
    }

    /// The socket that receives ESP whose SPI names `slot`; `None` outside 1 to [`Self::slots`].
    #[must_use]
    pub fn slot(&self, slot: u16) -> Option<BorrowedFd<'_>> {
        if slot == 0 || slot > self.slots() {
            return None;
        }
        self.sockets.get(usize::from(slot)).map(AsFd::as_fd)
    }

    /// Lets datagrams reach `slot`, which drops all of them until then.
    ///
    /// # Errors
    /// `InvalidInput` for a slot that is none; the kernel's.
    pub fn admit(&self, slot: u16) -> io::Result<()> {
        set(self.checked(slot)?, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)
    }

    /// Drops every datagram for `slot` in the kernel from now on, and what waits in its queue.
    ///
    /// # Errors
    /// `InvalidInput` for a slot that is none; the kernel's.
    pub fn idle(&self, slot: u16) -> io::Result<()> {
        let socket = self.checked(slot)?;
        drop_everything(socket)?;
        let mut byte = [0_u8; 1];
        loop {
            match receive(socket, &mut byte) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // An error that ICMP left is taken by the read that reports it.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What the kernel has dropped at these sockets since the group was made.
    ///
    /// # Errors
    /// The kernel's.
    pub fn dropped(&self) -> io::Result<Dropped> {
        let mut dropped = Dropped::default();
        let last = self.sockets.len().saturating_sub(1);
        for (index, socket) in self.sockets.iter().enumerate() {
            let count = match index {
                0 => &mut dropped.first,
                index if index == last => &mut dropped.sink,
                _ => &mut dropped.slots,
            };
            *count = count.saturating_add(drops(socket.as_fd())?.into());
        }
        Ok(dropped)
    }

    fn checked(&self, slot: u16) -> io::Result<BorrowedFd<'_>> {
        self.slot(slot)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("there is no slot {slot}")))
    }
}

/// Datagrams that no process got, by the socket that they were steered to. An aggregate counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// For the first socket, whose queue was full.
    pub first: u64,
    /// For slots that nobody serves, or whose queue was full.
    pub slots: u64,
    /// With an SPI that none may have.
    pub sink: u64,
}

/// Binds a first socket (for IKE), one for each of `slots` and a sink to `address` (port 0: the kernel's
/// choice), in this order, and has the kernel steer each datagram: first 32-bit word zero → the first; 1 to 255 (RFC 4303 2.1) → sink;
/// anything else → the slot that it names under `key` ([`SteeringKey`]). All sockets are non-blocking, accept aggregates (UDP_GRO)
/// and report ECN. The first receives at once; every slot drops until [`SteeringGroup::admit`]; the sink drops for ever.
///
/// `buffer` is the size in bytes asked for each socket's send and receive queue; above the host's limit it needs
/// CAP_NET_ADMIN.
///
/// # Errors
/// `InvalidInput` when `slots` is 0 or above [`MAX_SLOTS`]; the kernel's, such as `EADDRINUSE` when someone who did
/// not set SO_REUSEPORT has the port.
pub fn steering_group(
    address: SocketAddr,
    slots: u16,
    buffer: usize,
    key: &SteeringKey,
) -> io::Result<SteeringGroup> {
    if slots == 0 || slots > MAX_SLOTS {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("slots: 1 to {MAX_SLOTS}, not {slots}"),
        ));
    }
    // Another process's sockets may be in the group of this port already (same uid): then our indices would be wrong. A bind
    // without SO_REUSEPORT succeeds only when there are none, and where the kernel is to choose the port, it then chooses none that
    // another group has. So the first socket is bound alone, and only then lets the others in.
    let mut bound = address;
    let count = usize::from(slots) + 2;
    let mut sockets = Vec::with_capacity(count);
    for index in 0..count {
        let socket = open(bound.ip())?;
        let together = || set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, &1);
        if index > 0 {
            together()?;
        }
        // Before the bind: between it and the program below the kernel would spread datagrams over the group by hash.
        drop_everything(socket.as_fd())?;
        configure(socket.as_fd(), bound.ip(), buffer)?;
        rustix::net::bind(&socket, &bound)?;
        if index == 0 {
            bound = local_address(socket.as_fd())?;
            together()?;
        }
        sockets.push(socket);
    }
    let group = SteeringGroup { sockets, address: bound };
    if let Some(first) = group.first() {
        attach(first, libc::SO_ATTACH_REUSEPORT_CBPF, key.program(slots).instructions())?;
        set(first, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0)?;
    }
    Ok(group)
}

/// A lone non-blocking UDP socket bound to `address`, with aggregates, ECN and queues as in [`steering_group`].
///
/// # Errors
/// The kernel's.
pub fn bind(address: SocketAddr, buffer: usize) -> io::Result<OwnedFd> {
    let socket = open(address.ip())?;
    configure(socket.as_fd(), address.ip(), buffer)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

/// As [`bind`], and what leaves it is never in fragments: for who finds out by itself what the path carries (RFC 8899).
///
/// # Errors
/// The kernel's.
pub fn bind_whole(address: SocketAddr, buffer: usize) -> io::Result<OwnedFd> {
    let socket = bind(address, buffer)?;
    whole(socket.as_fd(), address)?;
    Ok(socket)
}

/// What leaves the socket is never in fragments.
fn whole(socket: BorrowedFd<'_>, address: SocketAddr) -> io::Result<()> {
    let (level, option, value) = match address {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
    };
    set(socket, level, option, &value)
}

/// A socket between these two addresses that is good for one way alone, as long as it lives: one that sends hears nothing, not even that a
/// datagram did not arrive; one that receives hears this peer alone, and can send nothing. It may be that the kernel sends ICMP of its own:
/// rules are to drop that.
///
/// # Errors
/// The kernel's.
pub fn one_way(own: SocketAddr, peer: SocketAddr, buffer: usize, sends: bool) -> io::Result<OwnedFd> {
    let socket = open(own.ip())?;
    if sends {
        // Before anything can come; and nobody takes it away again.
        drop_everything(socket.as_fd())?;
        set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_LOCK_FILTER, &1)?;
    }
    configure(socket.as_fd(), own.ip(), buffer)?;
    whole(socket.as_fd(), own)?;
    rustix::net::bind(&socket, &own)?;
    if sends {
        // One that is connected would be told by ICMP, with the next send, that nobody is there. Linux shuts what is not connected, too, and
        // says that it is not (net/ipv4/af_inet.c, inet_shutdown).
        match rustix::net::shutdown(&socket, rustix::net::Shutdown::Read) {
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => {}
            Err(e) => return Err(e.into()),
        }
    } else {
        rustix::net::connect(&socket, &peer)?;
        rustix::net::shutdown(&socket, rustix::net::Shutdown::Write)?;
    }
    Ok(socket)
}

/// A UDP socket for which every IPv4 address of the loopback interface is its own ([`send_from`], [`Received::to`]), and which nothing
/// from another interface reaches.
///
/// # Errors
/// The kernel's; binding to an interface needs CAP_NET_RAW.
pub fn bind_within(buffer: usize) -> io::Result<OwnedFd> {
    let socket = open(Ipv4Addr::UNSPECIFIED.into())?;
    on_device(socket.as_fd(), c"lo")?;
    configure(socket.as_fd(), Ipv4Addr::UNSPECIFIED.into(), buffer)?;
    set(socket.as_fd(), libc::IPPROTO_IP, libc::IP_PKTINFO, &1)?;
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    Ok(socket)
}

/// The address a socket is bound to.
///
/// # Errors
/// The kernel's; `InvalidData` for a family other than IPv4 and IPv6.
pub fn local_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddr> {
    rustix::net::getsockname(socket)?.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

fn open(ip: IpAddr) -> io::Result<OwnedFd> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, Some(rustix::net::ipproto::UDP))?;
    if ip.is_ipv6() {
        set(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1)?;
    }
    Ok(socket)
}

/// Whether a socket hands over datagrams of one sender that came together as one aggregate.
///
/// # Errors
/// `ENOPROTOOPT` where the kernel has no UDP_GRO.
pub fn set_aggregates(socket: BorrowedFd<'_>, together: bool) -> io::Result<()> {
    set(socket, libc::SOL_UDP, UDP_GRO, &libc::c_int::from(together))
}

/// What this kernel does for datagrams that travel together, tried over the loopback interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    /// One send may hold many (UDP_SEGMENT).
    pub sends: bool,
    /// One receive may bring many (UDP_GRO).
    pub receives: bool,
}

/// Tries both.
///
/// # Errors
/// The kernel's, where not even a lone datagram passes.
pub fn together() -> io::Result<Together> {
    let address = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
    let (from, to) = (bind(address, 65_536)?, bind(address, 65_536)?);
    let target = local_address(to.as_fd())?;
    let sends = send(from.as_fd(), &[0; 300], target, Some(100), 0).is_ok();
    if !sends {
        send(from.as_fd(), &[0; 100], target, None, 0)?;
    }
    // What is sent over the loopback interface has arrived when the send returns.
    let received = receive(to.as_fd(), &mut [0; 300])?;
    Ok(Together { sends, receives: received.segment.is_some() })
}

fn configure(socket: BorrowedFd<'_>, ip: IpAddr, buffer: usize) -> io::Result<()> {
    // Kernels without UDP_GRO give single datagrams: slower, and as correct.
    let _ = set_aggregates(socket, true);
    if ip.is_ipv4() {
        set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, &1)?;
        // What anybody says of the path by ICMP is not believed: by five words of a stranger's all went in pieces for ten minutes, and pieces
        // are easy to keep away. Routers may divide what is too large for them. (IPv6's may not, and are believed.)
        set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, &libc::IP_PMTUDISC_OMIT)?;
    } else {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, &1)?;
    }
    let size = libc::c_int::try_from(buffer).unwrap_or(libc::c_int::MAX);
    for (force, ordinary) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set(socket, libc::SOL_SOCKET, force, &size).is_err() {
            set(socket, libc::SOL_SOCKET, ordinary, &size)?;
        }
    }
    Ok(())
}

fn set(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &libc::c_int,
) -> io::Result<()> {
    // SAFETY: the option reads one `int`; `value` points at one, with its true size, and outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const *value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// From now on the socket sends to and hears from this interface alone (SO_BINDTODEVICE).
fn on_device(socket: BorrowedFd<'_>, name: &std::ffi::CStr) -> io::Result<()> {
    let name = name.to_bytes_with_nul();
    // SAFETY: the option reads `name.len()` bytes at `name`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_BINDTODEVICE,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Datagrams that the kernel dropped at a socket: refused by its filter, or without room in its queue.
fn drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // linux/sock_diag.h: nine numbers, of which SK_MEMINFO_DROPS is the last.
    let mut numbers = [0_u32; 9];
    let mut length = size_of_val(&numbers) as libc::socklen_t;
    // SAFETY: the option writes at most `length` bytes, which is the true size of `numbers`, and how many it wrote to
    // `length`; both are ours alone and outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            numbers.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(numbers[8])
}

fn drop_everything(socket: BorrowedFd<'_>) -> io::Result<()> {
    attach(socket, libc::SO_ATTACH_FILTER, &[ret(0)])
}

pub(crate) fn attach(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    let value = libc::sock_fprog {
        len: libc::c_ushort::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the option reads one sock_fprog, which `value` is; its `filter` points at `len` instructions, which the
    // kernel copies; both outlive the call and neither is written.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
