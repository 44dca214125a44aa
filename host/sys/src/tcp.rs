//! Options of TCP sockets that have no safe wrapper elsewhere.

use crate::udp::{attach, op, ret};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// `SO_RCVLOWAT`: the socket, and what a listener accepts, is readable only once so many bytes are there, or
/// the end of the stream.
///
/// # Errors
/// Whatever the kernel says.
pub fn set_receive_low_water(socket: impl AsFd, bytes: u16) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes.into())
}

/// `IP_BIND_ADDRESS_NO_PORT`, for IPv6 too: binding gives the socket an address alone, and connecting a port that is free for
/// that pair of ends, not one that is free for all.
///
/// # Errors
/// Whatever the kernel says.
pub fn bind_address_alone(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// Has a socket, and what it accepts, be given this one port where connect(2) gives it one. A socket keeps the control group of who made it, so that the
/// program of [`crate::ports`] does not count for what others were given: who undoes the connection of what a listener accepted, and connects it anew, would draw
/// by the machine's counters. Linux before 6.3 has no such option, and then nothing is done.
///
/// # Errors
/// Whatever the kernel says.
pub fn one_source_port(socket: impl AsFd) -> io::Result<()> {
    /// `linux/in.h`: the lowest in the lower half, the highest in the upper one.
    const IP_LOCAL_PORT_RANGE: libc::c_int = 51;
    /// The last of those that every network namespace begins with.
    const ONLY: u32 = 60_999;
    match set(socket, libc::IPPROTO_IP, IP_LOCAL_PORT_RANGE, ONLY << 16 | ONLY) {
        Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
        done => done,
    }
}

/// Has a listener, and what it accepts, take connections and make none, whoever has them. A socket is of the network in which it was made;
/// connect(2) to AF_UNSPEC undoes its connection, and then it could have any address that is local there, and connect to whatever listens
/// there. It still can ask: the answer does not reach it.
///
/// # Errors
/// Whatever the kernel says.
pub fn only_accept(listener: BorrowedFd<'_>) -> io::Result<()> {
    /// `struct tcphdr`: which octet has the flags, and SYN and ACK.
    const FLAGS: u32 = 13;
    const ANSWER: u32 = 0x12;
    let program = [
        op(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, FLAGS),
        op(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, ANSWER),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, ANSWER),
        ret(0),
        ret(u32::MAX),
    ];
    attach(listener, libc::SO_ATTACH_FILTER, &program)?;
    // For good.
    set(listener, libc::SOL_SOCKET, libc::SO_LOCK_FILTER, 1)
}

/// What the kernel has for a socket, in octets of its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What has come and was not read.
    pub unread: usize,
    /// What was written and is not acknowledged.
    pub unsent: usize,
    /// How much that may be, roughly.
    pub most_unsent: usize,
}

impl Kept {
    /// How much more the socket has room for: nothing where the kernel does not say that it can be written to, as while more than two
    /// thirds are used (`sk_stream_is_writeable`), so that who then waits for it waits for something.
    pub const fn room(self) -> usize {
        let left = self.most_unsent.saturating_sub(self.unsent);
        if left >= self.unsent / 2 { left } else { 0 }
    }
}

/// `SO_MEMINFO`: what the kernel has for a socket.
///
/// # Errors
/// Whatever the kernel says.
pub fn kept(socket: impl AsFd) -> io::Result<Kept> {
    // `linux/sock_diag.h`: `SK_MEMINFO_RMEM_ALLOC`, `SNDBUF` and `WMEM_QUEUED`, of nine.
    let mut all = [0_u32; 9];
    let mut length = std::mem::size_of_val(&all) as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed; the kernel writes so much at most to an array that outlives the call,
    // and how much it was.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            (&raw mut all).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let [unread, _, _, most_unsent, _, unsent, ..] = all.map(|octets| octets as usize);
    Ok(Kept { unread, unsent, most_unsent })
}

fn set(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: u32) -> io::Result<()> {
    // SAFETY: the descriptor is open while it is borrowed; the options have 32 bits, and the pointer and length are
    // those of one that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            std::mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    /// Whether a socket whose connection is undone gets one to this address.
    fn connects(socket: impl AsFd, to: SocketAddr) -> bool {
        rustix::net::connect_unspec(&socket).unwrap();
        rustix::io::ioctl_fionbio(&socket, true).unwrap();
        let _ = rustix::net::connect(&socket, &to);
        let wait = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };
        poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&wait)).unwrap() > 0
    }

    #[test]
    fn what_is_kept_of_a_socket_is_known_and_there_is_room_when_the_kernel_says_so() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let writable = || {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&server, PollFlags::OUT)], Some(&now)).unwrap() > 0
        };
        let empty = kept(&server).unwrap();
        assert_eq!((empty.unread, empty.unsent), (0, 0));
        assert!(empty.room() == empty.most_unsent && empty.room() > 4_000 && writable());
        server.set_nonblocking(true).unwrap();
        // Until neither end's kernel takes more.
        while (&server).write(&[0; 1 << 16]).is_ok() {}
        let full = kept(&server).unwrap();
        assert!(full.unsent > full.most_unsent / 3 * 2 && full.room() == 0, "{full:?}");
        assert!(!writable());
        assert!(kept(&client).unwrap().unread > 1 << 16);
        client.set_nonblocking(true).unwrap();
        while !writable() {
            let _ = client.read(&mut [0; 1 << 16]);
        }
        assert!(kept(&server).unwrap().room() > 0);
        assert!(kept(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    #[test]
    fn what_is_accepted_gets_one_port_whatever_the_machine_has_counted() {
        // A namespace of its own: elsewhere another program may have the port.
        let net = crate::ns::new_net().unwrap();
        crate::net::Net::in_ns(net.as_fd()).unwrap().set_up("lo").unwrap();
        crate::ns::in_net(net.as_fd(), || {
            for any in ["127.0.0.1:0", "[::1]:0"] {
                let (listener, other) = (TcpListener::bind(any).unwrap(), TcpListener::bind(any).unwrap());
                one_source_port(&listener).unwrap();
                for _ in 0..3 {
                    let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                    let (socket, _) = listener.accept().unwrap();
                    assert!(connects(&socket, other.local_addr().unwrap()));
                    assert_eq!(socket.local_addr().unwrap().port(), 60_999);
                    // What it leaves is not in the way of the next.
                    rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO))
                        .unwrap();
                }
            }
        })
        .unwrap();
    }

    #[test]
    fn what_only_accepts_serves_and_connects_to_nobody_whoever_has_it() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let (listener, other) = (TcpListener::bind(any).unwrap(), TcpListener::bind(any).unwrap());
            let to = other.local_addr().unwrap();
            let plain = TcpListener::bind(any).unwrap();
            let _client = TcpStream::connect(plain.local_addr().unwrap()).unwrap();
            assert!(connects(plain.accept().unwrap().0, to), "nothing was tried");
            other.accept().unwrap();

            only_accept(listener.as_fd()).unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let mut heard = [0; 5];
            client.write_all(b"hello").unwrap();
            server.read_exact(&mut heard).unwrap();
            server.write_all(&heard).unwrap();
            client.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"hello");

            for socket in [server.as_fd(), listener.as_fd()] {
                assert!(set(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0).is_err());
                assert!(!connects(socket, to));
            }
            other.set_nonblocking(true).unwrap();
            assert_eq!(other.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }
}
