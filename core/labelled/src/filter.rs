//! What becomes of a packet on a link that carries many labels.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
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
    unlabelled: Vec<(IpNet, Label)>,
    fragments: Fragments,
    drops: Drops,
}

impl Filter {
    /// A filter that has seen nothing yet.
    pub fn new(domain: Domain, range: Range) -> Self {
        let (fragments, drops) = (Fragments::default(), Drops::default());
        Self { domain, range, unlabelled: Vec::new(), fragments, drops }
    }

    /// With single-level hosts beside the labelled ones: each prefix of addresses has one label. The longest counts.
    ///
    /// Their packets carry no label; they are told apart by their addresses alone, which anyone on the link can write.
    #[must_use]
    pub fn beside(mut self, unlabelled: impl IntoIterator<Item = (IpNet, Label)>) -> Self {
        self.unlabelled = unlabelled.into_iter().collect();
        self
    }

    /// The label of a single-level host with this address; `None` where it is a labelled one's.
    fn single_level(&self, address: IpAddr) -> Option<&Label> {
        let theirs = self.unlabelled.iter().filter(|(prefix, _)| prefix.contains(&address));
        theirs.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, label)| label)
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
                let option = packet.label()?;
                if let Some(label) = self.single_level(packet.source()) {
                    return match option {
                        Some(_) => Err(Drop::Claimed),
                        None if !self.range.contains(label) => Err(Drop::OutOfRange),
                        None => Ok(Arrived::At(label.clone(), packet.inward()?)),
                    };
                }
                let option = option.ok_or(Drop::Unlabelled)?;
                let label = cipso::decode(&self.domain, option)?;
                self.admit(&label, packet.datagram(), now)?;
                Ok(Arrived::At(label, packet.inward()?))
            }
            Some(6) => {
                let packet = ipv6::Packet::parse(octets)?;
                let option = packet.label()?;
                if let Some(label) = self.single_level(packet.source()) {
                    return match option {
                        Some(_) => Err(Drop::Claimed),
                        None if packet.is_neighbours() => Ok(Arrived::Link),
                        None if !self.range.contains(label) => Err(Drop::OutOfRange),
                        None => Ok(Arrived::At(label.clone(), packet.inward()?)),
                    };
                }
                let label = option.map(|option| calipso::decode(&self.domain, option)).transpose()?;
                if let Some(label) = &label {
                    self.admit(label, packet.datagram(), now)?;
                }
                match label {
                    _ if packet.is_neighbours() => Ok(Arrived::Link),
                    Some(label) => Ok(Arrived::At(label, packet.inward()?)),
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
        // Whether it goes to a single-level host, and so without a label.
        let bare = |to: IpAddr| match self.single_level(to) {
            Some(at) if at != label => Err(Drop::Elsewhere),
            at => Ok(at.is_some()),
        };
        let sent = match octets.first().map(|first| first >> 4) {
            Some(4) => {
                let packet = ipv4::Packet::parse(octets)?;
                own(packet.label()?)?;
                if bare(packet.destination())? {
                    packet.with(&[])?
                } else {
                    packet.with(&cipso::encode(&self.domain, label).map_err(unwritable)?)?
                }
            }
            Some(6) => {
                let packet = ipv6::Packet::parse(octets)?;
                own(packet.label()?)?;
                if packet.is_neighbours() {
                    return Err(Drop::Neighbour);
                }
                if bare(packet.destination())? {
                    packet.with(&[])?
                } else {
                    packet.with(&calipso::encode(&self.domain, label).map_err(unwritable)?)?
                }
            }
            _ => return Err(Drop::Malformed),
        };
        if sent.len() > mtu { Err(Drop::TooLarge) } else { Ok(sent) }
    }
}
