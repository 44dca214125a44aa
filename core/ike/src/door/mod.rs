//! The door: what those can make an endpoint keep and do who have not proved anything yet.
//!
//! Strangers share a bounded number of half-open IKE SAs, a bounded number of beginnings a second and a part of the endpoint's time. Under
//! load they show by a cookie
//! that they are where they say; at a bound an old one gives way, drawn at random, in the newcomer's own network where that is what
//! is full: whoever is quick gets through, and nobody can hold the door shut by staying. Networks with many half-open IKE SAs have
//! beginnings of their own, fewer. Who holds a [`Pass`] has a number of
//! half-open IKE SAs and of beginnings that strangers have no part in.

mod cookie;
mod crowd;
mod pass;

use crate::api::{Now, Path, Random};
use crate::config::Limits;
use cookie::Cookies;
use crowd::{Bounds, Crowd};
use pass::Passes;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

pub use pass::Pass;

/// Half-open IKE SAs of one IPv4 address or IPv6 /64 that are many for it.
const MANY: usize = 8;

/// A request to begin, as far as the door looks at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Knock<'a> {
    pub(crate) spi_i: u64,
    pub(crate) nonce: &'a [u8],
    pub(crate) cookie: Option<&'a [u8]>,
    pub(crate) pass: Option<&'a [u8]>,
    pub(crate) path: Path,
}

/// Of each second of the endpoint's, strangers have this part: what they ask for takes as long as they like it to, by the groups that they choose
/// and the keys that they show.
const PART: u32 = 3;
/// So much they can have at once of what they will have.
const AHEAD: Duration = Duration::from_millis(300);

/// What is to be done with a request to begin.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Its key exchange is made. Where the crowd is full, the first of these that can gives way; none can: nothing is made.
    Enter { guest: Guest, full: Option<Vec<u64>> },
    /// It is to come again with this cookie.
    Cookie(Vec<u8>),
    /// There were too many beginnings in this moment.
    Busy,
}

/// In which crowd a half-open IKE SA is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guest {
    Stranger,
    /// By the pass of this name.
    Known([u8; 16]),
}

/// Beginnings of strangers: so many a second, and as many at once.
#[derive(Debug, Default)]
struct Budget {
    /// When all that was spent is earned again.
    paid: Duration,
}

impl Budget {
    fn spend(&mut self, per_second: u32, now: Duration) -> bool {
        let one = Duration::from_secs(1) / per_second.max(1);
        let paid = self.paid.max(now);
        if paid.saturating_sub(now) >= Duration::from_secs(1) {
            return false;
        }
        self.paid = paid.saturating_add(one);
        true
    }
}

/// The time that strangers take.
#[derive(Debug, Default)]
struct Time {
    /// When they will have had no more than their part.
    paid: Duration,
}

impl Time {
    fn is_spent(&self, now: Duration) -> bool {
        self.paid.saturating_sub(now) >= AHEAD
    }

    /// No one thing takes longer than [`AHEAD`]: what did was not at work all the time, and its process stood still.
    fn spend(&mut self, took: Duration, now: Duration) {
        self.paid = self.paid.max(now).saturating_add(took.min(AHEAD).saturating_mul(PART));
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Door {
    /// Half-open SAs by where the initiator is and the SPI it chose, so that a repeated request finds its own.
    opening: BTreeMap<(SocketAddr, u64), u64>,
    strangers: Crowd,
    known: Crowd,
    budget: Budget,
    /// Of networks that have many half-open IKE SAs already, so that they take nothing from the others.
    budget_of_many: Budget,
    time: Time,
    cookies: Cookies,
    passes: Passes,
}

impl Door {
    /// How many half-open IKE SAs there are.
    pub(crate) fn len(&self) -> usize {
        self.strangers.len() + self.known.len()
    }

    /// The half-open IKE SA that a request began.
    pub(crate) fn begun(&self, from: SocketAddr, spi_i: u64) -> Option<u64> {
        self.opening.get(&(from, spi_i)).copied()
    }

    /// Whether a half-open IKE SA is a stranger's.
    pub(crate) fn is_strangers(&self, spi: u64) -> bool {
        self.strangers.has(spi)
    }

    /// Whether strangers have had their part of the time.
    pub(crate) fn is_spent(&self, now: Duration) -> bool {
        self.time.is_spent(now)
    }

    /// Something for a stranger took so long.
    pub(crate) fn spend(&mut self, took: Duration, now: Duration) {
        self.time.spend(took, now);
    }

    pub(crate) fn make_pass(&mut self, rng: &mut dyn Random) -> Pass {
        self.passes.make(rng)
    }

    /// Looks at a request.
    pub(crate) fn knock(&mut self, k: Knock<'_>, limits: &Limits, now: Now, rng: &mut dyn Random) -> Verdict {
        let address = canonical(k.path.remote.ip());
        let bounds = |all| Bounds {
            all,
            narrow: limits.half_open_per_network,
            wide: limits.half_open_per_wide_network,
        };
        let shown = k.pass.and_then(|said| self.passes.shown(said, k.spi_i, k.nonce));
        if let Some(name) = shown {
            let full = self.known.full(address, bounds(limits.half_open_with_pass), rng);
            return Verdict::Enter { guest: Guest::Known(name), full };
        }
        // RFC 7296 2.6: before any state or key exchange, under load, the initiator shows that it is where it says.
        let near = self.strangers.near(address);
        let load = self.strangers.len() >= limits.cookie_above || near >= limits.half_open_per_network / 2;
        if load && !self.cookies.is_good(k.cookie, k.nonce, k.spi_i, k.path, now, rng) {
            return Verdict::Cookie(self.cookies.make(k.nonce, k.spi_i, k.path, now, rng));
        }
        let (budget, share) = match near >= MANY {
            false => (&mut self.budget, limits.strangers_per_second),
            true => (&mut self.budget_of_many, limits.strangers_per_second / 4),
        };
        if self.time.is_spent(now.monotonic) || !budget.spend(share, now.monotonic) {
            return Verdict::Busy;
        }
        let full = self.strangers.full(address, bounds(limits.half_open), rng);
        Verdict::Enter { guest: Guest::Stranger, full }
    }

    /// A half-open IKE SA was made.
    pub(crate) fn enter(&mut self, guest: Guest, from: SocketAddr, spi_i: u64, spi: u64) {
        self.opening.insert((from, spi_i), spi);
        let address = canonical(from.ip());
        match guest {
            Guest::Stranger => self.strangers.enter(spi, address),
            Guest::Known(name) => {
                self.passes.spend(name);
                self.known.enter(spi, address);
            }
        }
    }

    /// It is half-open no more.
    pub(crate) fn leave(&mut self, from: SocketAddr, spi_i: u64, spi: u64) {
        self.opening.remove(&(from, spi_i));
        self.strangers.leave(spi);
        self.known.leave(spi);
    }
}

/// An IPv4 address that came in an IPv6 one counts as what it is.
fn canonical(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_begin_so_often_a_second_and_no_more() {
        let mut budget = Budget::default();
        let mut begun = 0;
        // Ten thousand a second for ten seconds.
        for n in 0..100_000_u64 {
            let now = Duration::from_secs(100) + Duration::from_micros(n * 100);
            begun += u32::from(budget.spend(400, now));
        }
        assert!((4_000..=4_000 + 402).contains(&begun), "{begun}");
        assert!(budget.spend(400, Duration::from_secs(200)), "what was not used is not lost for ever");
    }

    /// Knocks at a door, at this time, from this address; with the cookie that it was given, if it was given one.
    fn knocks(door: &mut Door, limits: &Limits, host: u32, at: Duration) -> (&'static str, Option<Guest>) {
        let remote = SocketAddr::new(std::net::Ipv4Addr::from_bits(host).into(), 500);
        let path = Path { local: SocketAddr::from(([192, 0, 2, 1], 500)), remote, marker: false };
        let (now, mut rng) = (Now { monotonic: at, unix_seconds: 0 }, |out: &mut [u8]| out.fill(7));
        let mut knock = Knock { spi_i: 5, nonce: b"a nonce", cookie: None, pass: None, path };
        match door.knock(knock, limits, now, &mut rng) {
            Verdict::Cookie(cookie) => {
                knock.cookie = Some(&cookie);
                match door.knock(knock, limits, now, &mut rng) {
                    Verdict::Enter { guest, .. } => ("cookie", Some(guest)),
                    _ => ("busy with its cookie", None),
                }
            }
            Verdict::Enter { guest, .. } => ("enter", Some(guest)),
            Verdict::Busy => ("busy", None),
        }
    }

    #[test]
    fn a_cookie_is_asked_of_all_in_a_crowd_and_of_a_network_with_half_of_its_share() {
        // RFC 7296 2.6.
        let limits = Limits { cookie_above: 20, half_open_per_network: 12, ..Limits::default() };
        let mut door = Door::default();
        let at = Duration::from_secs(100);
        // Six of one network, then one of each.
        for n in 0..25_u32 {
            let host = if n < 7 { 1 } else { 0x0a00_0000 + (n << 8) };
            let (how, guest) = knocks(&mut door, &limits, host, at);
            assert_eq!(how, if n == 6 || n >= 20 { "cookie" } else { "enter" }, "{n}");
            let from = SocketAddr::new(std::net::Ipv4Addr::from_bits(host).into(), 500);
            door.enter(guest.expect("a guest"), from, u64::from(n), u64::from(n) + 1);
        }
    }

    #[test]
    fn a_network_that_has_eight_half_open_begins_a_quarter_as_often_and_takes_nothing_from_others() {
        let limits = Limits {
            strangers_per_second: 40,
            cookie_above: usize::MAX,
            half_open_per_network: usize::MAX,
            ..Limits::default()
        };
        let mut door = Door::default();
        let second = |n: u64| Duration::from_secs(100 + n);
        let mut begins = |host: u32, at: Duration, first: u64| {
            let mut begun = 0;
            for n in 0..60_u64 {
                let (how, guest) = knocks(&mut door, &limits, host, at);
                let Some(guest) = guest else { continue };
                assert_eq!(how, "enter");
                begun += 1;
                // Seven stay.
                let from = SocketAddr::new(std::net::Ipv4Addr::from_bits(host).into(), 500);
                if host == 2 || n < 7 && first == 0 {
                    door.enter(guest, from, n, first + n + 1);
                }
            }
            begun
        };
        // With seven it is one of all; with eight it has ten of its own, and one more at once.
        let of_seven = begins(1, second(0), 0);
        assert_eq!(of_seven, 40);
        let of_eight = begins(2, second(10), 1_000);
        assert_eq!(of_eight, 8 + 10, "eight as everybody, then a quarter");
        assert_eq!(begins(1, second(10), 2_000), 40 - 8, "what is left to everybody");
    }
}
