//! Options of TCP sockets that have no safe wrapper elsewhere.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `SO_RCVLOWAT`: the socket, and what a listener accepts, is readable only once so many bytes are there, or
/// the end of the stream.
///
/// # Errors
/// Whatever the kernel says.
pub fn set_receive_low_water(socket: impl AsFd, bytes: u16) -> io::Result<()> {
    let value = libc::c_int::from(bytes);
    // SAFETY: the descriptor is open while it is borrowed; the option is an int, and the pointer and length are
    // those of one that outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            std::mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
