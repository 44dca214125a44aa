//! What only unsafe code can do.

pub mod tun;
pub mod udp;
pub mod wipe;
