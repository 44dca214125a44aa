//! TUN devices (Linux `Documentation/networking/tuntap.rst`).
//!
//! Whoever may opens a device inside a network namespace and hands the queue to a process without rights, which
//! then only reads and writes it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// Bytes of the vnet header before each packet (`struct virtio_net_hdr`, virtio 1.2 section 5.1.6, without
/// `num_buffers`).
pub const VNET_HEADER: usize = 10;

/// What the kernel may leave to the reader, and the writer to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Checksums, TCP and UDP super-segments (kernels from 6.2 on).
    TcpAndUdp,
    /// Checksums and TCP super-segments.
    Tcp,
    /// None: one packet a read, checksums complete.
    None,
}

/// How to open a queue.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Several queues on one device, one per worker.
    pub multi_queue: bool,
    /// Fail if the device exists already (the first queue of a device that must be ours alone).
    pub exclusive: bool,
    /// Every read and write begins with a [`VNET_HEADER`]; super-segments as far as the kernel has them.
    pub vnet_header: bool,
}

/// An open queue of a TUN device; the device lives as long as one of its queues.
#[derive(Debug)]
pub struct Queue {
    fd: OwnedFd,
    name: String,
    vnet_header: bool,
    offload: Offload,
    attached: bool,
}

impl Queue {
    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The offloads that the kernel accepted.
    #[must_use]
    pub fn offload(&self) -> Offload {
        self.offload
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Queue> for OwnedFd {
    fn from(queue: Queue) -> OwnedFd {
        queue.fd
    }
}

/// Creates the TUN device `name` (1 to 15 bytes) in the caller's network namespace, or adds a queue to it; without
/// the packet-information header, non-blocking, close-on-exec.
///
/// # Errors
/// `InvalidInput` for a bad name; otherwise the kernel's: `EPERM` without CAP_NET_ADMIN, `EBUSY` when it exists
/// and `exclusive` was asked, `ENOENT` when `/dev/net/tun` is missing.
pub fn open(name: &str, options: Options) -> io::Result<Queue> {
    let mut flags = libc::IFF_TUN;
    if options.multi_queue {
        flags |= libc::IFF_MULTI_QUEUE;
    }
    if options.exclusive {
        flags |= libc::IFF_TUN_EXCL;
    }
    if options.vnet_header {
        flags |= libc::IFF_VNET_HDR;
    }
    let fd = create(name, flags)?;
    let offload = if options.vnet_header { negotiate(fd.as_fd())? } else { Offload::None };
    Ok(Queue { fd, name: name.to_owned(), vnet_header: options.vnet_header, offload, attached: true })
}

/// Creates the TAP device `name` (1 to 15 bytes; Ethernet frames, without a vnet header) in the caller's network
/// namespace, which must not have it yet: a virtual machine's network card. What that machine's kernel says in such a header the kernel of
/// the host would do: cut one frame into 65,000 packets, of one octet each, before anything else runs on that processor.
///
/// # Errors
/// As for [`open`].
pub fn open_tap(name: &str) -> io::Result<OwnedFd> {
    create(name, libc::IFF_TAP | libc::IFF_TUN_EXCL)
}

fn create(name: &str, flags: libc::c_int) -> io::Result<OwnedFd> {
    let flags = flags | libc::IFF_NO_PI;
    let bytes = name.as_bytes();
    if bytes.is_empty()
        || bytes.len() >= libc::IFNAMSIZ
        || bytes.iter().any(|&b| b == 0 || b == b'/' || b == b'%')
    {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a device name has 1 to 15 bytes, no '/' or '%'",
        ));
    }
    let fd =
        rustix::fs::open("/dev/net/tun", OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        // The flag bits all lie in the low 16 bits; the kernel reads this field as unsigned.
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags as libc::c_short },
    };
    for (to, &from) in request.ifr_name.iter_mut().zip(bytes) {
        *to = from as libc::c_char;
    }
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`; `request` is one, initialised, and outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    Ok(fd)
}

/// Has the kernel leave to the reader as much as it can of `most`, and nothing beyond; the vnet header stays. Where there is no such
/// header nothing is left to the reader: it would not be told of it.
///
/// # Errors
/// The kernel's.
pub fn limit_offload(queue: &mut Queue, most: Offload) -> io::Result<()> {
    if queue.vnet_header {
        queue.offload = accepted(queue.fd.as_fd(), most)?;
    }
    Ok(())
}

/// Has the kernel give packets to the first so many of a device's queues, with as much left to their readers as it can of `most`, and
/// to the others none.
///
/// # Errors
/// The kernel's.
pub fn share(queues: &mut [Queue], among: usize, most: Offload) -> io::Result<()> {
    queues.iter_mut().enumerate().try_for_each(|(number, queue)| attach(queue, number < among))?;
    queues.iter_mut().take(among).try_for_each(|queue| limit_offload(queue, most))
}

fn attach(queue: &mut Queue, attached: bool) -> io::Result<()> {
    if queue.attached == attached {
        return Ok(());
    }
    let flags = if attached { libc::IFF_ATTACH_QUEUE } else { libc::IFF_DETACH_QUEUE };
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags as libc::c_short },
    };
    // SAFETY: TUNSETQUEUE reads one `struct ifreq`; `request` is one, initialised, and outlives the call.
    check(unsafe { libc::ioctl(queue.fd.as_raw_fd(), libc::TUNSETQUEUE, &raw mut request) })?;
    queue.attached = attached;
    Ok(())
}

fn offload_bits(offload: Offload) -> libc::c_uint {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    match offload {
        Offload::TcpAndUdp => tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6,
        Offload::Tcp => tcp,
        Offload::None => 0,
    }
}

fn negotiate(fd: BorrowedFd<'_>) -> io::Result<Offload> {
    let size = libc::c_int::try_from(VNET_HEADER).map_err(io::Error::other)?;
    // SAFETY: TUNSETVNETHDRSZ reads one `int` through the pointer; `size` is one and outlives the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const size) })?;

    accepted(fd, Offload::TcpAndUdp)
}

/// The most of `most` that the kernel takes.
fn accepted(fd: BorrowedFd<'_>, most: Offload) -> io::Result<Offload> {
    let mut last = io::Error::from(io::ErrorKind::Unsupported);
    let all = [Offload::TcpAndUdp, Offload::Tcp, Offload::None];
    for offload in all.into_iter().skip_while(|offload| *offload != most) {
        let bits = libc::c_ulong::from(offload_bits(offload));
        // SAFETY: TUNSETOFFLOAD takes its argument by value; no memory is passed.
        match check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD, bits) }) {
            Ok(()) => return Ok(offload),
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// True when the host has the TUN driver; for `levee doctor`.
#[must_use]
pub fn available() -> bool {
    File::open("/dev/net/tun").is_ok()
}

/// Whether reads and writes of this queue begin with a [`VNET_HEADER`].
///
/// # Errors
/// The kernel's; `InvalidData` when the queue has a vnet header of another size.
pub fn has_vnet_header(queue: BorrowedFd<'_>) -> io::Result<bool> {
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: 0 },
    };
    // SAFETY: TUNGETIFF writes one `struct ifreq`; `request` is one, initialised, and outlives the call.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNGETIFF, &raw mut request) })?;
    // SAFETY: TUNGETIFF has filled in the flags, and any bits make a valid `short`.
    let flags = unsafe { request.ifr_ifru.ifru_flags };
    if libc::c_int::from(flags) & libc::IFF_VNET_HDR == 0 {
        return Ok(false);
    }
    let mut size: libc::c_int = 0;
    // SAFETY: TUNGETVNETHDRSZ writes one `int` through the pointer; `size` is one and outlives the call.
    check(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNGETVNETHDRSZ, &raw mut size) })?;
    if usize::try_from(size) == Ok(VNET_HEADER) {
        Ok(true)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("a vnet header of {size} bytes")))
    }
}
