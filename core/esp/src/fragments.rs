//! Stateful checking of inner fragments (RFC 4301 7.3): where a selector names ports, a later fragment has none to be checked. It
//! passes if the first fragment of its datagram has passed, lately, and if it overlaps nothing that passed.
//!
//! Nothing is kept of packets themselves. Fragments in any order behind the first pass; one that comes before it does not.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::VecDeque;

use crate::inner::{Direction, Fragment, Inner, TCP, UDP, UDP_LITE};

/// Datagrams of one session whose fragments are under way, each way. What of those that come in has passed lies in a table of all of the label until they
/// are whole or too old: so no more begin. Of those that go out the oldest gives way.
const MOST: usize = 32;
/// How long the fragments of a datagram may take, from the first one on: they are sent one behind the other.
const LIFE: Duration = Duration::from_secs(2);
/// Stretches of a datagram, each without a hole, that have passed at a time.
const STRETCHES: usize = 8;
/// Octets that a datagram may have behind its IP header.
const LONGEST: u32 = 65_535;

/// By what fragments are of one datagram (RFC 791 3.2, RFC 8200 4.5).
#[derive(Clone, Copy, PartialEq, Eq)]
struct Of {
    direction: Direction,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    id: u32,
}

/// A datagram whose first fragment has passed.
#[derive(Clone)]
pub(crate) struct Trail {
    of: Of,
    began: Duration,
    /// What has passed, first octet and the one behind the last, in order and apart.
    passed: Vec<(u32, u32)>,
    /// How long the datagram is, once its last fragment has passed.
    end: Option<u32>,
}

impl Trail {
    /// Takes a fragment's octets; false where they overlap, lie beyond the end, or are too scattered.
    fn take(&mut self, from: u32, to: u32, last: bool) -> bool {
        let covered = self.passed.last().map_or(0, |&(_, to)| to);
        let beyond = self.end.is_some_and(|end| last || to > end) || last && covered > to;
        if beyond || self.passed.iter().any(|&(first, behind)| from < behind && first < to) {
            return false;
        }
        let mut passed = self.passed.clone();
        passed.push((from, to));
        passed.sort_unstable();
        passed.dedup_by(|next, before| {
            let adjoins = before.1 == next.0;
            if adjoins {
                before.1 = next.1;
            }
            adjoins
        });
        if passed.len() > STRETCHES {
            return false;
        }
        self.passed = passed;
        if last {
            self.end = Some(to);
        }
        true
    }

    fn lives(&self, now: Duration) -> bool {
        now.saturating_sub(self.began) < LIFE
    }

    fn is_whole(&self) -> bool {
        self.end.is_some_and(|end| *self.passed == [(0, end)])
    }
}

/// What changes when a packet has passed.
pub(crate) enum Step {
    Nothing,
    /// The first fragment of this datagram has passed.
    Begin(Trail),
    /// Another one of the datagram at this place, which is then as here.
    Go(usize, Trail),
}

/// The datagrams of one session whose fragments are under way.
#[derive(Default)]
pub(crate) struct Trails(VecDeque<Trail>);

impl Trails {
    /// What it changes if this fragment passes, a first one with ports that the selectors allow or a later one without; `None` if it
    /// may not.
    pub(crate) fn step(&self, now: Duration, direction: Direction, packet: &Inner) -> Option<Step> {
        let (from, length) = (u32::from(packet.piece.offset), u32::from(packet.piece.length));
        let (to, last) = (from + length, !packet.piece.more);
        if length == 0 || to > LONGEST || !last && length % 8 != 0 {
            return None;
        }
        let Inner { source, destination, protocol, .. } = *packet;
        let of = Of { direction, source, destination, protocol, id: packet.piece.id };
        let known = self.0.iter().enumerate().find(|(_, trail)| trail.of == of && trail.lives(now));
        match (packet.fragment, known) {
            // RFC 3128: what is decided on must be in the first fragment.
            (Fragment::First, None)
                if packet.length.saturating_sub(packet.header) >= least(protocol)
                    && (direction == Direction::Out || self.count(now, direction) < MOST) =>
            {
                Some(Step::Begin(Trail { of, began: now, passed: vec![(from, to)], end: None }))
            }
            (Fragment::Later, Some((place, trail))) => {
                let mut after = trail.clone();
                after.take(from, to, last).then_some(Step::Go(place, after))
            }
            // A first fragment again or a tiny one, a later one of nothing, or none at all.
            _ => None,
        }
    }

    fn count(&self, now: Duration, direction: Direction) -> usize {
        self.0.iter().filter(|trail| trail.of.direction == direction && trail.lives(now)).count()
    }

    /// The packet of this step has passed; nothing has changed since [`Trails::step`].
    pub(crate) fn take(&mut self, now: Duration, step: Step) {
        match step {
            Step::Nothing => {}
            Step::Begin(trail) => {
                self.0.retain(|trail| trail.lives(now));
                if self.count(now, trail.of.direction) >= MOST
                    && let Some(oldest) = self.0.iter().position(|old| old.of.direction == trail.of.direction)
                {
                    self.0.remove(oldest);
                }
                self.0.push_back(trail);
            }
            Step::Go(place, trail) if trail.is_whole() => drop(self.0.remove(place)),
            Step::Go(place, trail) => {
                if let Some(old) = self.0.get_mut(place) {
                    *old = trail;
                }
            }
        }
    }
}

/// Octets of the next layer that a first fragment must have: its header without options.
fn least(protocol: u8) -> usize {
    match protocol {
        TCP => 20,
        UDP | UDP_LITE => 8,
        _ => 12,
    }
}
