//! Whose turn it is to get a child, and who gives way when there is no room. No I/O.
//!
//! A client waits until its first bytes are here, gets a child for its handshake, and is up once TLS is. Networks
//! take turns, and in each its sources; within a source the newest goes first and the oldest gives way: a flood delays its own source
//! by little, other sources of its network by a turn of each source, and other networks by a turn of each network.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
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

    /// The first address of its network, which is what one holder of many addresses commonly has: an IPv4 /24, an IPv6 /48.
    fn network(self) -> Self {
        Self(match self.0 {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 80 << 80)),
            IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() >> 8 << 8)),
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

/// Clients of one source, of one network, or all there are, by state; the oldest of a state comes first.
#[derive(Debug, Default)]
struct Group {
    /// When one of it last got a child, or it came to be, by how many had got one before: who comes back at once comes last.
    turn: u64,
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

    fn at(turn: u64) -> Self {
        Self { turn, ..Self::default() }
    }

    /// How many wait, and since when: of those with the most the one that has waited longest gives way.
    fn waits(&self) -> (usize, Reverse<Option<Client>>) {
        (self.waiting.len(), Reverse(self.waiting.first().copied()))
    }

    /// How many are in a handshake, and since when, likewise.
    fn handshaking(&self) -> (usize, Reverse<Option<(Instant, Client)>>) {
        (self.handshakes.len(), Reverse(self.handshakes.first().copied()))
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.handshakes.is_empty() && self.up == 0
    }
}

/// The clients of one network, and those of each of its sources.
#[derive(Debug, Default)]
struct Network {
    all: Group,
    sources: BTreeMap<Source, Group>,
}

/// Whether there is room for another handshake.
enum Room {
    Free,
    /// When this one has given way.
    Of(Client),
    /// Nobody may give way yet.
    Full,
}

/// Every client there is, and its state.
#[derive(Debug)]
pub struct Admission {
    limits: Limits,
    clients: HashMap<Client, Entry>,
    networks: BTreeMap<Source, Network>,
    all: Group,
    /// How many have got a child.
    turns: u64,
    /// Clients that are not up, by the time since when they are in their state.
    unfinished: BTreeSet<(Instant, Client)>,
}

impl Admission {
    /// Nobody yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            clients: HashMap::new(),
            networks: BTreeMap::new(),
            all: Group::default(),
            turns: 0,
            unfinished: BTreeSet::new(),
        }
    }

    /// Whether a client is waiting or in a handshake, so that time matters.
    pub fn is_pressed(&self) -> bool {
        !self.unfinished.is_empty()
    }

    fn enter(&mut self, client: Client, entry: Entry) {
        let new = || Group::at(self.turns);
        let network = self.networks.entry(entry.source.network());
        let network = network.or_insert_with(|| Network { all: new(), sources: BTreeMap::new() });
        network.sources.entry(entry.source).or_insert_with(new).add(client, &entry);
        network.all.add(client, &entry);
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
        let name = entry.source.network();
        if let Some(network) = self.networks.get_mut(&name) {
            network.all.remove(client, &entry);
            if let Some(group) = network.sources.get_mut(&entry.source) {
                group.remove(client, &entry);
                if group.is_empty() {
                    network.sources.remove(&entry.source);
                }
            }
            if network.all.is_empty() {
                self.networks.remove(&name);
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
        let here = self.networks.get(&source.network())?.sources.get(&source)?;
        if here.waiting.len() > self.limits.waiting.0 {
            return here.waiting.first().copied();
        }
        if self.all.waiting.len() > self.limits.waiting.1 {
            let network = self.networks.values().max_by_key(|network| network.all.waits())?;
            return network.sources.values().max_by_key(|group| group.waits())?.waiting.first().copied();
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
        // The network that has not had its turn for longest; one that is full waits, and keeps nobody else.
        let room = self.room(now);
        let mut asking: Vec<&Network> =
            self.networks.values().filter(|network| !network.all.ready.is_empty()).collect();
        asking.sort_by_key(|network| network.all.turn);
        let (victim, client) = asking.into_iter().find_map(|network| self.of_network(network, &room, now))?;
        self.change(client, State::Handshake, Some(now));
        self.had_its_turn(client);
        Some((victim, client))
    }

    /// Whether there is room for another handshake, whosever it is, and who gives way to it.
    fn room(&self, now: Instant) -> Room {
        if self.all.handshakes.len() < self.limits.handshakes.1 {
            return Room::Free;
        }
        let largest = self.networks.values().max_by_key(|network| network.all.handshaking());
        let sources = largest.into_iter().flat_map(|network| network.sources.values());
        let oldest =
            sources.max_by_key(|group| group.handshaking()).and_then(|group| self.oldest(group, now));
        oldest.map_or(Room::Full, Room::Of)
    }

    /// Of these the handshake that has lasted longest, if it may give way.
    fn oldest(&self, group: &Group, now: Instant) -> Option<Client> {
        let &(since, client) = group.handshakes.first()?;
        (now.saturating_duration_since(since) >= self.limits.grace).then_some(client)
    }

    fn had_its_turn(&mut self, client: Client) {
        self.turns = self.turns.saturating_add(1);
        let Some(source) = self.clients.get(&client).map(|entry| entry.source) else { return };
        if let Some(network) = self.networks.get_mut(&source.network()) {
            network.all.turn = self.turns;
            network.sources.get_mut(&source).into_iter().for_each(|group| group.turn = self.turns);
        }
    }

    /// The next of this network, and the one that gives way to it: of its source with fewest handshakes the newest.
    fn of_network(&self, network: &Network, room: &Room, now: Instant) -> Option<(Option<Client>, Client)> {
        let asking = network.sources.values().filter(|group| !group.ready.is_empty());
        let group = asking.min_by_key(|group| (group.handshakes.len(), group.turn))?;
        let client = *group.ready.last()?;
        let victim = match room {
            _ if group.handshakes.len() >= self.limits.handshakes.0 => Some(self.oldest(group, now)?),
            Room::Free => None,
            Room::Of(victim) => Some(*victim),
            Room::Full => return None,
        };
        Some((victim, client))
    }

    /// TLS is up. False if there are too many of them, so that this one must go.
    pub fn up(&mut self, client: Client, now: Instant) -> bool {
        let Some(entry) = self.clients.get(&client) else { return false };
        let network = self.networks.get(&entry.source.network());
        let here = network.and_then(|network| network.sources.get(&entry.source)).map_or(0, |group| group.up);
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
        assert!(admission.networks.is_empty());
        assert!(!admission.is_pressed());
    }

    /// The first address of another /64 of one /48 for each number.
    fn of_a_network(number: u16) -> Source {
        Source::of(IpAddr::from([0x2001, 0xdb8, 0, number, 0, 0, 0, 1]))
    }

    #[test]
    fn who_waits_from_all_addresses_of_a_network_pushes_out_nobody_of_another() {
        let (most, now) = (u64::try_from(Limits::default().waiting.1).unwrap(), Instant::now());
        // (The last in the order of addresses, and the first.)
        for other in ["2001:db9::1", "192.0.2.1"] {
            let mut admission = Admission::new(Limits::default());
            for client in 0..most {
                let source = of_a_network(u16::try_from(client).unwrap());
                assert_eq!(admission.connected(client, source, now), None);
            }
            let victim = admission.connected(most, Source::of(other.parse().unwrap()), now).unwrap();
            assert!(victim < most, "{other}");
            admission.gone(victim);
            admission.ready(most);
            assert_eq!(admission.next(now), Some((None, most)));
        }
        // Where all are of networks of their own, who has waited longest gives way, and not who comes; so in the handshake.
        let mut admission = Admission::new(Limits::default());
        for client in 0..=most {
            let network = IpAddr::from([0x2001, u16::try_from(client).unwrap(), 0, 0, 0, 0, 0, 1]);
            assert_eq!(admission.connected(client, Source::of(network), now), (client == most).then_some(0));
            admission.ready(client);
        }
        let most = Limits::default().handshakes.1;
        let first: Vec<_> = (0..most).map(|_| admission.next(now).unwrap().1).collect();
        let later = now + Limits::default().grace;
        assert_eq!(admission.next(later).unwrap().0, Some(first[0]));
    }

    #[test]
    fn who_comes_again_and_again_from_many_addresses_has_the_turn_of_one_network() {
        let (mut admission, now) = (Admission::new(Limits::default()), Instant::now());
        let mut next = 0;
        let mut begins = |admission: &mut Admission, source: Source| {
            next += 1;
            admission.connected(next, source, now);
            admission.ready(next);
            next
        };
        for number in 0..200 {
            begins(&mut admission, of_a_network(number));
        }
        let ([near, far], mut served) =
            ([of_a_network(300), Source::of("2001:db9::1".parse().unwrap())], Vec::new());
        let (near, far) = (begins(&mut admission, near), begins(&mut admission, far));
        for turn in 0..300 {
            let (_, client) = admission.next(now).unwrap();
            let source = admission.clients[&client].source;
            admission.gone(client);
            if [near, far].contains(&client) {
                served.push((turn, client));
            } else {
                // Each has ended at once, and is there again.
                begins(&mut admission, source);
            }
        }
        assert_eq!(served, [(1, far), (201, near)], "a turn of each network, and in it of each source");
    }

    #[test]
    fn however_many_networks_wait_it_is_soon_known_that_nobody_gives_way_yet() {
        let (mut admission, now) = (Admission::new(Limits::default()), Instant::now());
        let networks = (0..2_000).map(|number| Source::of([0x2001, number, 0, 0, 0, 0, 0, 1].into()));
        for (client, source) in (0..).zip(networks) {
            admission.connected(client, source, now);
            admission.ready(client);
        }
        let most = Limits::default().handshakes.1;
        assert!((0..most).all(|_| admission.next(now).is_some()));
        let began = Instant::now();
        assert_eq!(admission.next(now), None);
        // Nobody is served meanwhile.
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }

    #[test]
    fn a_source_that_is_full_keeps_no_other_network_waiting() {
        let (mut admission, now) = (small(), Instant::now());
        for client in 1..=3 {
            add(&mut admission, client, 1, now);
            if client < 3 {
                assert_eq!(admission.next(now), Some((None, client)));
            }
        }
        assert_eq!(admission.next(now), None);
        admission.connected(4, of_a_network(1), now);
        admission.ready(4);
        assert_eq!(admission.next(now), Some((None, 4)));
    }

    #[test]
    fn an_ipv6_network_of_64_bits_is_one_source_and_a_mapped_address_is_its_ipv4_one() {
        let of = |text: &str| Source::of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
