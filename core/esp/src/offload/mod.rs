//! Super-segments: cutting up what a TUN device hands over whole, and putting together what arrives in pieces.
//!
//! Pure functions on packets. Segmenting a TCP super-segment and coalescing the pieces gives it back bit for bit, but
//! for its checksum, which the device completes.

pub(crate) mod checksum;
mod coalesce;
mod joint;
mod segment;
mod vnet;

pub use checksum::complete as complete_checksum;
pub(crate) use checksum::set_ipv4;
pub use coalesce::{MAX_HEADER, Run};
pub use joint::{Joint, Whole};
pub use segment::Segments;
pub use vnet::{Gso, GsoKind, VNET_HEADER, Vnet};
