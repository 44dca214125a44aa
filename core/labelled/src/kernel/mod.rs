//! The filter of a labelled link as programs of the kernel's (tc, `sched_cls`), which do for IPv4 what [`crate::Filter`] says.
//!
//! The kernel's program does not parse labels. It finds the one option in the header, and looks its octets up, as they are, in
//! a table of every spelling of every label of the link ([`crate::spellings`]): so only what [`crate::cipso`] would take is
//! taken. A packet that is not in the table is dropped; the program then looks closer, for the reason alone.
//!
//! Three programs: [`ingress`] and [`egress`] at the link, and [`compartment`] at the outer end of the wire from a compartment.
//! Nothing but ARP and, where the link has IPv6, what neighbours say to each other (RFC 4861) passes between the link and the
//! namespace that holds it. Where it has none, IPv6 is dropped.

use std::net::IpAddr;

use ipnet::IpNet;

mod assembler;
mod egress;
mod header;
mod ingress;
mod six;
mod steps;

pub use assembler::{Instruction, LOAD_WIDE, MAP};
pub use egress::{compartment, egress};
pub use ingress::ingress;

/// The Ethernet address of both ends of each wire: nobody else is on one. Locally administered.
pub const WIRE: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
/// Octets that a label's option has in the tables: those that it lacks are 0.
pub const OPTION: usize = crate::cipso::MOST;
/// Datagrams whose fragments are on their way, that are remembered.
pub const DATAGRAMS: u32 = 1_024;

/// A map that a program uses. Instructions name it by its number here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// Hash: an option's octets ([`OPTION`] of them) → where it goes (the interface's index, `u32`).
    Labels = 0,
    /// Least recently used hash of [`DATAGRAMS`]: a datagram ([`DATAGRAM`] octets) → where its first fragment went (16 octets).
    Datagrams = 1,
    /// Array: [`crate::Drop`] as a number → packets dropped (`u64`).
    Drops = 2,
    /// Array: a compartment's mark → the option that its packets get ([`Written`]).
    Options = 3,
    /// As `Labels`, for IPv6 ([`SIX_OPTION`] octets).
    SixLabels = 4,
    /// As `Datagrams`, for IPv6 ([`SIX_DATAGRAM`] octets).
    SixDatagrams = 5,
    /// As `Options`, for IPv6 ([`SixWritten`]).
    SixOptions = 6,
    /// Longest prefix: a single-level host's address ([`prefix`], [`PREFIX`] octets) → [`SingleLevel`].
    Unlabelled = 7,
    /// As `Unlabelled`, for IPv6 ([`SIX_PREFIX`] octets).
    SixUnlabelled = 8,
    /// Hash: a wire (the interface's index, `u32`) → what is counted of the segments that go there (`u32`), [`ALONE`] at first.
    Aggregates = 9,
}

/// In [`Map::Aggregates`], of a wire on which nothing came yet.
pub const ALONE: u32 = 128;

/// What a link carries beside labelled packets of IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carries {
    /// IPv6.
    pub six: bool,
    /// Packets of single-level hosts, which have none. Else the programs do not look for them.
    pub unlabelled: bool,
}

/// Octets of a prefix in [`Map::Unlabelled`]: its length as `u32` in the machine's order, the address.
pub const PREFIX: usize = 8;
/// Octets of a prefix in [`Map::SixUnlabelled`].
pub const SIX_PREFIX: usize = 20;

/// A prefix as it stands in [`Map::Unlabelled`] or [`Map::SixUnlabelled`].
pub fn prefix(net: &IpNet) -> Vec<u8> {
    let length = u32::from(net.prefix_len()).to_ne_bytes();
    match net.network() {
        IpAddr::V4(address) => [&length[..], &address.octets()].concat(),
        IpAddr::V6(address) => [&length[..], &address.octets()].concat(),
    }
}

/// What stands in [`Map::Unlabelled`]: where packets from there go (the interface's index, `u32`), then the mark of the compartment
/// that sends there, both in the machine's order; 0 for none.
pub type SingleLevel = [u8; 8];

/// Octets of what names a datagram: source, destination, identification, protocol, 0.
pub const DATAGRAM: usize = 12;

/// Octets that a label's option has in the tables for IPv6: those that it lacks are 0.
pub const SIX_OPTION: usize = crate::calipso::MOST.next_multiple_of(4);
/// Octets of what names a datagram of IPv6: source, destination, identification.
pub const SIX_DATAGRAM: usize = 36;
/// Octets of the longest hop-by-hop header with a label.
pub const SIX_HEADER: usize = (2 + crate::calipso::MOST).next_multiple_of(8);

/// What stands in [`Map::SixOptions`]: the hop-by-hop header's length as `u32` in the machine's order, then the header, in which
/// the octet that says what comes next is 0; all 0 for none.
pub type SixWritten = [u8; 4 + SIX_HEADER];

/// What stands in [`Map::Options`]: the length with padding as `u32` in the machine's order, then the octets; all 0 for none.
pub type Written = [u8; 4 + OPTION];

/// An option with zeros behind it, as it stands in [`Map::Labels`], [`Map::SixLabels`] and [`Map::Options`].
///
/// `None` if it is longer than one can be.
pub fn padded<const LENGTH: usize>(option: &[u8]) -> Option<[u8; LENGTH]> {
    let mut padded = [0; LENGTH];
    padded.get_mut(..option.len())?.copy_from_slice(option);
    Some(padded)
}

/// The entry of [`Map::Options`] for an option.
///
/// `None` if it is longer than one can be.
pub fn written(option: &[u8]) -> Option<Written> {
    let length = u32::try_from(option.len().next_multiple_of(4)).ok()?;
    let mut entry = [0; 4 + OPTION];
    entry.get_mut(..4)?.copy_from_slice(&length.to_ne_bytes());
    entry.get_mut(4..)?.copy_from_slice(&padded::<OPTION>(option)?);
    Some(entry)
}

/// The entry of [`Map::SixOptions`] for an option.
///
/// `None` if it is longer than one can be.
pub fn six_written(option: &[u8]) -> Option<SixWritten> {
    let header = crate::ipv6::hop_by_hop_with(0, option)?;
    let mut entry = [0; 4 + SIX_HEADER];
    entry.get_mut(..4)?.copy_from_slice(&u32::try_from(header.len()).ok()?.to_ne_bytes());
    entry.get_mut(4..)?.copy_from_slice(&padded::<SIX_HEADER>(&header)?);
    Some(entry)
}
