//! Whose turn it is to get a child, and who gives way when there is no room. No I/O.
//!
//! A client waits until its first bytes are here, gets a child for its handshake, and is up once TLS is. Sources
//! take turns, and within a source the newest goes first and the oldest gives way: a flood delays its own source
//! by little, and other sources not at all.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// What counts as one source of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source(IpAddr);

impl Source {
    /// An IPv4 address, or an IPv6 /64, which is what one host commonly has.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
            v4 => v4,
        })
    }
}

/// The most clients in each state.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Without a child, from one source and in all.
    pub waiting: (usize, usize),
    /// In the handshake, from one source and in all.
    pub handshakes: (usize, usize),
    /// With TLS up, from one source and in all.
    pub up: (usize, usize),
    /// A client without a child, and a handshake, end after this long.
    pub deadline: Duration,
    /// A handshake that is younger gives way to nobody.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting: (1024, 4096),
            // Each computes for a while: more of them at once would only slow each other down.
            handshakes: (16, 128),
            up: (1024, 12_288),
            deadline: Duration::from_secs(5),
            grace: Duration::from_millis(50),
        }
    }
}

/// A client, by the parent's own number; numbers grow.
pub type Client = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No byte yet.
    Silent,
    /// Its first bytes are here.
    Ready,
    Handshake,
    Up,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    source: Source,
    state: State,
    since: Instant,
}

/// Clients of one source, or all there are, by state; the oldest of a state comes first.
#[derive(Debug, Default)]
struct Group {
    /// Silent or ready: a client's number tells its age.
    waiting: BTreeSet<Client>,
    ready: BTreeSet<Client>,
    handshakes: BTreeSet<(Instant, Client)>,
    up: usize,
}

impl Group {
    fn add(&mut self, client: Client, entry: &Entry) {
        match entry.state {
            State::Silent => drop(self.waiting.insert(client)),
            State::Ready => drop((self.waiting.insert(client), self.ready.insert(client))),
            State::Handshake => drop(self.handshakes.insert((entry.since, client))),
            State::Up => self.up = self.up.saturating_add(1),
        }
    }

    fn remove(&mut self, client: Client, entry: &Entry) {
        match entry.state {
            State::Silent => drop(self.waiting.remove(&client)),
            State::Ready => drop((self.waiting.remove(&client), self.ready.remove(&client))),
            State::Handshake => drop(self.handshakes.remove(&(entry.since, client))),
            State::Up => self.up = self.up.saturating_sub(1),
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.handshakes.is_empty() && self.up == 0
    }
}

/// Every client there is, and its state.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    clients: HashMap<Client, Entry>,
    sources: BTreeMap<Source, Group>,
    all: Group,
    /// Clients that are not up, by the time since when they are in their state.
    unfinished: BTreeSet<(Instant, Client)>,
}

impl Admission {
    /// Nobody yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            clients: HashMap::new(),
            sources: BTreeMap::new(),
            all: Group::default(),
            unfinished: BTreeSet::new(),
        }
    }

    /// Whether a client is waiting or in a handshake, so that time matters.
    pub fn is_pressed(&self) -> bool {
        !self.unfinished.is_empty()
    }

    fn enter(&mut self, client: Client, entry: Entry) {
        self.sources.entry(entry.source).or_default().add(client, &entry);
        self.all.add(client, &entry);
        if entry.state != State::Up {
            self.unfinished.insert((entry.since, client));
        }
        self.clients.insert(client, entry);
    }

    fn leave(&mut self, client: Client) -> Option<Entry> {
        let entry = self.clients.remove(&client)?;
        self.unfinished.remove(&(entry.since, client));
        self.all.remove(client, &entry);
        if let Some(group) = self.sources.get_mut(&entry.source) {
            group.remove(client, &entry);
            if group.is_empty() {
                self.sources.remove(&entry.source);
            }
        }
        Some(entry)
    }

    fn change(&mut self, client: Client, state: State, since: Option<Instant>) {
        if let Some(entry) = self.leave(client) {
            self.enter(client, Entry { state, since: since.unwrap_or(entry.since), ..entry });
        }
    }

    /// A client has connected. Returns the one that gives way to it, if there are too many.
    pub fn connected(&mut self, client: Client, source: Source, now: Instant) -> Option<Client> {
        self.enter(client, Entry { source, state: State::Silent, since: now });
        let here = self.sources.get(&source)?;
        if here.waiting.len() > self.limits.waiting.0 {
            return here.waiting.first().copied();
        }
        if self.all.waiting.len() > self.limits.waiting.1 {
            return self.sources.values().max_by_key(|group| group.waiting.len())?.waiting.first().copied();
        }
        None
    }

    /// The client's first bytes are here.
    pub fn ready(&mut self, client: Client) {
        if self.clients.get(&client).is_some_and(|entry| entry.state == State::Silent) {
            self.change(client, State::Ready, None);
        }
    }

    /// The next client to get a child, which must follow at once; first, the one whose child must go for it.
    pub fn next(&mut self, now: Instant) -> Option<(Option<Client>, Client)> {
        if self.all.ready.is_empty() {
            return None;
        }
        // The source with fewest handshakes, and its newest client.
        let asking = self.sources.values().filter(|group| !group.ready.is_empty());
        let group = asking.min_by_key(|group| group.handshakes.len())?;
        let client = *group.ready.last()?;
        let crowded = if group.handshakes.len() >= self.limits.handshakes.0 {
            Some(group)
        } else if self.all.handshakes.len() >= self.limits.handshakes.1 {
            self.sources.values().max_by_key(|group| group.handshakes.len())
        } else {
            None
        };
        let victim = match crowded {
            None => None,
            Some(group) => {
                let &(since, victim) = group.handshakes.first()?;
                if now.saturating_duration_since(since) < self.limits.grace {
                    return None;
                }
                Some(victim)
            }
        };
        self.change(client, State::Handshake, Some(now));
        Some((victim, client))
    }

    /// TLS is up. False if there are too many of them, so that this one must go.
    pub fn up(&mut self, client: Client, now: Instant) -> bool {
        let Some(entry) = self.clients.get(&client) else { return false };
        let here = self.sources.get(&entry.source).map_or(0, |group| group.up);
        if entry.state != State::Handshake || here >= self.limits.up.0 || self.all.up >= self.limits.up.1 {
            return false;
        }
        self.change(client, State::Up, Some(now));
        true
    }

    /// The client is gone.
    pub fn gone(&mut self, client: Client) {
        self.leave(client);
    }

    /// Every client whose deadline has passed.
    pub fn late(&self, now: Instant) -> Vec<Client> {
        let late =
            |&&(since, _): &&(Instant, Client)| now.saturating_duration_since(since) >= self.limits.deadline;
        self.unfinished.iter().take_while(late).map(|&(_, client)| client).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> Source {
        Source::of(IpAddr::from([192, 0, 2, last]))
    }

    fn small() -> Admission {
        Admission::new(Limits {
            waiting: (4, 8),
            handshakes: (2, 3),
            up: (2, 3),
            deadline: Duration::from_secs(5),
            grace: Duration::from_millis(50),
        })
    }

    fn add(admission: &mut Admission, client: Client, from: u8, now: Instant) {
        assert_eq!(admission.connected(client, source(from), now), None);
        admission.ready(client);
    }

    #[test]
    fn a_silent_client_never_gets_a_child_and_ends_at_its_deadline() {
        let (mut admission, now) = (small(), Instant::now());
        admission.connected(1, source(1), now);
        assert_eq!(admission.next(now), None);
        assert_eq!(admission.late(now + Duration::from_millis(4999)), Vec::<Client>::new());
        assert_eq!(admission.late(now + Duration::from_secs(5)), [1]);
    }

    #[test]
    fn sources_take_turns_and_the_newest_of_a_source_goes_first() {
        let (mut admission, now) = (small(), Instant::now());
        for client in 1..=3 {
            add(&mut admission, client, 1, now);
        }
        assert_eq!(admission.next(now), Some((None, 3)));
        add(&mut admission, 4, 2, now);
        assert_eq!(
            admission.next(now),
            Some((None, 4)),
            "another source comes before the second of the first"
        );
        assert_eq!(admission.next(now), Some((None, 2)));
    }

    #[test]
    fn a_full_source_gives_way_to_its_own_newest_only_after_the_grace() {
        let (mut admission, now) = (small(), Instant::now());
        for client in 1..=3 {
            add(&mut admission, client, 1, now);
        }
        assert_eq!(admission.next(now), Some((None, 3)));
        assert_eq!(admission.next(now), Some((None, 2)));
        assert_eq!(admission.next(now), None);
        let later = now + Duration::from_millis(50);
        let (victim, client) = admission.next(later).unwrap();
        assert_eq!((victim, client), (Some(2), 1));
    }

    #[test]
    fn when_all_is_full_the_largest_source_gives_way_to_a_new_one() {
        let (mut admission, now) = (small(), Instant::now());
        for (client, from) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
            add(&mut admission, client, from, now);
        }
        let mut served = Vec::new();
        for _ in 0..3 {
            served.push(admission.next(now).unwrap().1);
        }
        served.sort_unstable();
        assert_eq!(served, [2, 3, 4], "one of each source");
        add(&mut admission, 5, 4, now);
        assert_eq!(admission.next(now), None, "nobody is old enough to give way");
        let (victim, client) = admission.next(now + Duration::from_millis(50)).unwrap();
        assert_eq!(client, 5);
        assert!([2, 3, 4].contains(&victim.unwrap()));
    }

    #[test]
    fn too_many_waiting_clients_push_out_the_oldest_of_their_own_source() {
        let (mut admission, now) = (small(), Instant::now());
        for client in 1..=4 {
            add(&mut admission, client, 1, now);
        }
        assert_eq!(admission.connected(5, source(1), now), Some(1));
        admission.gone(1);
        for client in 6..=9 {
            add(&mut admission, client, 2, now);
        }
        assert!(admission.connected(10, source(3), now).is_some_and(|victim| victim < 10));
    }

    #[test]
    fn clients_that_are_up_are_capped_per_source_and_in_all_and_counts_return_to_zero() {
        let (mut admission, now) = (small(), Instant::now());
        let mut client = 0;
        for (from, fits) in [(1, true), (1, true), (1, false), (2, true), (3, false)] {
            client += 1;
            add(&mut admission, client, from, now);
            assert_eq!(admission.next(now), Some((None, client)));
            assert_eq!(admission.up(client, now), fits, "client {client}");
            if !fits {
                admission.gone(client);
            }
        }
        for client in 1..=5 {
            admission.gone(client);
        }
        assert!(admission.clients.is_empty() && admission.all.is_empty());
        assert!(admission.sources.is_empty());
        assert!(!admission.is_pressed());
    }

    #[test]
    fn an_ipv6_network_of_64_bits_is_one_source_and_a_mapped_address_is_its_ipv4_one() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
