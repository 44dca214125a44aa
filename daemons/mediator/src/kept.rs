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

/// Bounds what the kernel keeps of a socket, both ways, where its holder has so many connections with this one.
///
/// # Errors
/// The kernel's.
pub fn bound(socket: &impl AsFd, held: usize) -> Result<(), Errno> {
    if held <= AS_IT_LIKES {
        return Ok(());
    }
    let most = if held > FEW { LITTLE } else { MUCH };
    set_socket_send_buffer_size(socket, most)?;
    set_socket_recv_buffer_size(socket, most)
}
