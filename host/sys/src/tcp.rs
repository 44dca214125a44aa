//! Options of TCP sockets that have no safe wrapper elsewhere.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `SO_RCVLOWAT`: the socket, and what a listener accepts, is readable only once so many bytes are there, or
/// the end of the stream.
///
/// # Errors
/// Whatever the kernel says.
pub fn set_receive_low_water(socket: impl AsFd, bytes: u16) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// `IP_BIND_ADDRESS_NO_PORT`, for IPv6 too: binding gives the socket an address alone, and connecting a port that is free for
/// that pair of ends, not one that is free for all.
///
/// # Errors
/// Whatever the kernel says.
pub fn bind_address_alone(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

fn set(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: u16) -> io::Result<()> {
    let value = libc::c_int::from(value);
    // SAFETY: the descriptor is open while it is borrowed; both options are ints, and the pointer and length are
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
