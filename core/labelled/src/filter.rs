//! What becomes of a packet on a link that carries many labels.

use std::time::Duration;

use levee_policy::{Domain, Label, Range};

use crate::fragments::{Fragments, Key};
use crate::{Drop, Drops, calipso, cipso, ipv4, ipv6};

/// Where a packet from the link goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// To the compartment of this label, without its option and any other.
    At(Label, Vec<u8>),
    /// To no compartment: it is how hosts of the link find each other (RFC 4861), which has no label.
    Link,
}

/// The filter of one link: its domain, its range of labels, and its counters.
#[derive(Debug)]
pub struct Filter {
    domain: Domain,
    range: Range,
    fragments: Fragments,
    drops: Drops,
}

impl Filter {
    /// A filter that has seen nothing yet.
    pub fn new(domain: Domain, range: Range) -> Self {
        Self { domain, range, fragments: Fragments::default(), drops: Drops::default() }
    }

    /// What has been dropped.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Where a packet from the link goes. `now` is any clock that does not step; octets behind the packet's own length are
    /// the link's padding.
    ///
    /// # Errors
    /// Why it is dropped; counted.
    pub fn receive(&mut self, packet: &[u8], now: Duration) -> Result<Arrived, Drop> {
        let arrived = self.arrived(packet, now);
        arrived.inspect_err(|reason| self.drops.count(*reason))
    }

    fn arrived(&mut self, octets: &[u8], now: Duration) -> Result<Arrived, Drop> {
        match octets.first().map(|first| first >> 4) {
            Some(4) => {
                let packet = ipv4::Packet::parse(octets)?;
                let option = packet.label()?.ok_or(Drop::Unlabelled)?;
                let label = cipso::decode(&self.domain, option)?;
                self.admit(&label, packet.datagram(), now)?;
                Ok(Arrived::At(label, packet.with(&[])?))
            }
            Some(6) => {
                let packet = ipv6::Packet::parse(octets)?;
                let label =
                    packet.label()?.map(|option| calipso::decode(&self.domain, option)).transpose()?;
                if let Some(label) = &label {
                    self.admit(label, packet.datagram(), now)?;
                }
                match label {
                    _ if packet.is_neighbours() => Ok(Arrived::Link),
                    Some(label) => Ok(Arrived::At(label, packet.with(&[])?)),
                    None => Err(Drop::Unlabelled),
                }
            }
            _ => Err(Drop::Malformed),
        }
    }

    fn admit(&mut self, label: &Label, datagram: Option<Key>, now: Duration) -> Result<(), Drop> {
        if !self.range.contains(label) {
            return Err(Drop::OutOfRange);
        }
        match datagram {
            Some(key) if !self.fragments.agrees(key, label, now) => Err(Drop::Disagrees),
            _ => Ok(()),
        }
    }

    /// What goes out for a packet of the compartment at `label`. `mtu` is the link's, in octets.
    ///
    /// Fragments and ICMP errors get their label as every packet does: each carries it.
    ///
    /// # Errors
    /// Why it is dropped; counted.
    pub fn send(&mut self, label: &Label, packet: &[u8], mtu: usize) -> Result<Vec<u8>, Drop> {
        let sent = self.labelled(label, packet, mtu);
        sent.inspect_err(|reason| self.drops.count(*reason))
    }

    fn labelled(&self, label: &Label, octets: &[u8], mtu: usize) -> Result<Vec<u8>, Drop> {
        if !self.range.contains(label) {
            return Err(Drop::OutOfRange);
        }
        let unwritable = |_| Drop::Unwritable;
        let own = |found: Option<&[u8]>| if found.is_some() { Err(Drop::Forged) } else { Ok(()) };
        let sent = match octets.first().map(|first| first >> 4) {
            Some(4) => {
                let packet = ipv4::Packet::parse(octets)?;
                own(packet.label()?)?;
                packet.with(&cipso::encode(&self.domain, label).map_err(unwritable)?)?
            }
            Some(6) => {
                let packet = ipv6::Packet::parse(octets)?;
                own(packet.label()?)?;
                if packet.is_neighbours() {
                    return Err(Drop::Neighbour);
                }
                packet.with(&calipso::encode(&self.domain, label).map_err(unwritable)?)?
            }
            _ => return Err(Drop::Malformed),
        };
        if sent.len() > mtu { Err(Drop::TooLarge) } else { Ok(sent) }
    }
}

/// Takes every label out of a packet that leaves for a network without labels: CIPSO, RFC 1108's and CALIPSO. Its length
/// and its other options stay. Whether there was one.
///
/// # Errors
/// Why it must not leave: labels could not be looked for.
pub fn strip(packet: &mut [u8]) -> Result<bool, Drop> {
    match packet.first().map(|first| first >> 4) {
        Some(4) => ipv4::strip(packet),
        Some(6) => ipv6::strip(packet),
        _ => Err(Drop::Malformed),
    }
}
