//! What the kernel keeps of a connection. All that a label's connections keep is counted in one place, its mediator's group: what one person does
//! not read would be what another's pages have no room for.

use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use std::os::fd::AsFd;

/// Connections of one person, or by what goes for one host ([`crate::shares::Shares::crowd`]), of which the kernel keeps what it finds best, up to some MiB (the network's `tcp_rmem` and `tcp_wmem`): over
/// a path with delay a stream is as fast as that lets it be.
const AS_IT_LIKES: usize = 4;
/// Those that may have much under way; those beyond have little. Browsers have fewer, and only who does not read, or whose daemon does not, has it all
/// used.
const FEW: usize = 32;
/// What a socket keeps each way, in octets: as much as a kernel gives to who asks for it where nobody has set anything else (`net.core.wmem_max`).
const MUCH: usize = 208 << 10;
/// The same for a connection beyond [`FEW`].
const LITTLE: usize = 8 << 10;
/// Connections of one holder that have that; those beyond have the [`LEAST`], and a browser none such.
const MANY: usize = 1_024;
/// The same for those. The kernel keeps pages of 4 KiB, and has more than twice 2 KiB be asked for.
const LEAST: usize = 3 << 10;

/// What a socket keeps each way where its holder has so many connections with this one; `None`: as the kernel likes.
const fn each_way(held: usize) -> Option<usize> {
    if held <= AS_IT_LIKES {
        None
    } else if held <= FEW {
        Some(MUCH)
    } else if held <= MANY {
        Some(LITTLE)
    } else {
        Some(LEAST)
    }
}

/// Whether it must be looked at what waits in such a socket: as much as a segment has room for, 64 KiB, the kernel has follow into one that cannot go,
/// whatever the bound.
pub const fn little(held: usize) -> bool {
    held > FEW
}

/// Bounds what the kernel keeps of a socket, both ways, where its holder has so many connections with this one.
///
/// # Errors
/// The kernel's.
pub fn bound(socket: &impl AsFd, held: usize) -> Result<(), Errno> {
    let Some(most) = each_way(held) else { return Ok(()) };
    set_socket_send_buffer_size(socket, most)?;
    set_socket_recv_buffer_size(socket, most)
}
