//! Labels in packets: CIPSO in IPv4 and CALIPSO (RFC 5570) in IPv6, and what becomes of a packet that carries one.
//!
//! Pure: octets go in, octets, a label or the reason of a drop come out. The invariant it keeps: a packet is delivered at
//! a label only if it carries exactly that one, whole, known in the link's domain and within its range; and a packet leaves
//! with the label of the compartment that it comes from, whatever the compartment wrote into it.
//!
//! It may not know a session, a socket or a clock. Begin reading with `filter.rs`, which says it plainly, and which no process runs:
//! `kernel/` writes the same as programs, and tests hold these against it, packet by packet.

pub mod calipso;
pub mod cipso;
mod drops;
mod fault;
pub mod filter;
mod fragments;
mod icmp;
mod ipv4;
mod ipv6;
pub mod kernel;
mod spellings;

pub use drops::{Drop, Drops};
pub use fault::Fault;
pub use filter::{Arrived, Filter};
pub use spellings::spellings;
