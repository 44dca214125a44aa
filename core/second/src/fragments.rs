//! Fragments that do not say which ports they are for (RFC 4301 7.3): each passes in the wake of its datagram's first one.

use std::net::IpAddr;
use std::time::Duration;

use crate::packet::{Packet, Part};

/// Datagrams of a session that are remembered, of each way. Inward another one begins when one of them is over; outward the oldest is forgotten.
const REMEMBERED: usize = 32;
/// For how long, from the first fragment on.
const LATELY: Duration = Duration::from_secs(2);
/// Runs of units without a hole.
const RUNS: usize = 8;
/// Fragments begin at multiples of so many octets.
const UNIT: usize = 8;
/// Octets of a datagram, without its IP header, are fewer than this.
const TOO_LONG: usize = 1 << 16;

/// What the fragments of one datagram have in common, and the way they go.
type Name = (bool, IpAddr, IpAddr, u8, u32);

/// What is known of a datagram: which of its units have been seen, and where it ends.
struct Wake {
    name: Name,
    since: Duration,
    units: Vec<bool>,
    octets: Option<usize>,
}

/// The wakes of a session, oldest first.
#[derive(Default)]
pub(crate) struct Wakes(Vec<Wake>);

/// How often a run of `true` begins.
fn runs(units: &[bool]) -> usize {
    let before = std::iter::once(&false).chain(units);
    before.zip(units).filter(|(before, unit)| !**before && **unit).count()
}

impl Wakes {
    /// Whether this fragment may pass now. It counts as passed only with [`Wakes::note`].
    pub(crate) fn allows(&self, now: Duration, inward: bool, packet: &Packet) -> bool {
        let Some(part) = packet.part else { return false };
        if !sound(part) {
            return false;
        }
        let wake = self.find(now, inward, packet);
        match (part.at, wake.and_then(|place| self.0.get(place))) {
            (0, None) => {
                part.transport >= header_of(packet.protocol)
                    && (!inward || self.remembered(now, true) < REMEMBERED)
            }
            (0, Some(_)) | (_, None) => false,
            (_, Some(wake)) => wake.with(part).is_some(),
        }
    }

    /// It has passed: what comes behind it may.
    pub(crate) fn note(&mut self, now: Duration, inward: bool, packet: &Packet) {
        let Some(part) = packet.part else { return };
        if part.at == 0 {
            self.0.retain(|wake| wake.lives(now));
            if self.remembered(now, inward) == REMEMBERED
                && let Some(oldest) = self.0.iter().position(|wake| wake.name.0 == inward)
            {
                self.0.remove(oldest);
            }
            let empty =
                Wake { name: name(inward, packet, part), since: now, units: Vec::new(), octets: None };
            self.0.extend(empty.with(part));
        } else if let Some(place) = self.find(now, inward, packet) {
            let wake = self.0.remove(place);
            // Where it was: age decides who gives way.
            if let Some(wake) = wake.with(part).filter(|wake| !wake.complete()) {
                self.0.insert(place, wake);
            }
        }
    }

    fn remembered(&self, now: Duration, inward: bool) -> usize {
        self.0.iter().filter(|wake| wake.name.0 == inward && wake.lives(now)).count()
    }

    fn find(&self, now: Duration, inward: bool, packet: &Packet) -> Option<usize> {
        let name = name(inward, packet, packet.part?);
        self.0.iter().position(|wake| wake.name == name && wake.lives(now))
    }
}

impl Wake {
    fn lives(&self, now: Duration) -> bool {
        now < self.since + LATELY
    }

    /// With this part, unless it does not fit.
    fn with(&self, part: Part) -> Option<Self> {
        let behind = part.at + part.octets;
        let (first, end) = (part.at / UNIT, behind.div_ceil(UNIT));
        let mut units = self.units.clone();
        if units.len() < end {
            units.resize(end, false);
        }
        let octets = match (part.more, self.octets) {
            (true, octets) => octets,
            (false, None) => Some(behind),
            // A second end.
            (false, Some(_)) => return None,
        };
        if octets.is_some_and(|octets| behind > octets || units.len() > octets.div_ceil(UNIT)) {
            return None;
        }
        for unit in units.get_mut(first..end)? {
            if std::mem::replace(unit, true) {
                return None;
            }
        }
        (runs(&units) <= RUNS).then_some(Self { units, octets, ..*self })
    }

    fn complete(&self) -> bool {
        self.octets.is_some() && self.units.iter().all(|unit| *unit)
    }
}

fn name(inward: bool, packet: &Packet, part: Part) -> Name {
    (inward, packet.source, packet.destination, packet.protocol, part.name)
}

/// Whether a fragment is of a shape that a datagram is cut into.
fn sound(part: Part) -> bool {
    part.octets > 0 && (!part.more || part.octets.is_multiple_of(UNIT)) && part.at + part.octets < TOO_LONG
}

/// The shortest header of a protocol with ports.
fn header_of(protocol: u8) -> usize {
    match protocol {
        6 => 20,
        17 | 136 => 8,
        // DCCP, SCTP.
        _ => 12,
    }
}
