//! A tunnel between the two ends.

use std::net::Ipv4Addr;

use crate::link::Guard;

/// Where a tunnel leads, and what carries it.
#[derive(Clone, Debug, Default)]
pub struct Way {
    /// The server's address in each label; one for those without labels.
    pub servers: Vec<Ipv4Addr>,
    /// The processes that carry it, the server's first.
    pub processes: Vec<u32>,
}

/// A tunnel that stands.
#[derive(Debug, Default)]
#[expect(dead_code, reason = "kept for as long as the tunnel stands")]
pub struct Tunnel {
    /// What is to be known to measure it.
    pub way: Way,
    /// What ends with it.
    pub guards: Vec<Guard>,
    /// What else ends with it, in this order: processes before the descriptors and files that they have.
    pub held: Vec<Box<dyn Held>>,
}

/// Anything that is only kept.
pub trait Held: std::fmt::Debug {}
impl<T: std::fmt::Debug> Held for T {}
