//! Several servers and a table in random order: messages that are late, servers that are cut off, that die and come back, a table that
//! does not answer, clocks at rates of their own. A failure prints its seed.
//!
//! What must always hold: no server passes a packet of a session whose end was acknowledged, and none of a session that it was never
//! told of. The table is a model of etcd's promises: one order of changes, leases that it may let live longer and never shorter.

use levee_policy::{DomainName, HostName};
use levee_session::federation::*;
use levee_session::{SessionId, Stored, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

const SERVERS: usize = 3;
const HOSTS: usize = 4;
/// Seconds.
const TTL: u64 = 4;

/// splitmix64: reproducible from its seed, and good enough to order events.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A lease as the table has it.
#[derive(Debug)]
struct Lease {
    until: u64,
}

/// The table: keys, in one order of changes, with their leases.
#[derive(Default)]
struct Table {
    revision: u64,
    leases: BTreeMap<u64, Lease>,
    /// Server's name and lease → its entry.
    servers: BTreeMap<(DomainName, u64), Entry>,
    sessions: BTreeMap<HostName, (Shared, u64)>,
    log: Vec<(u64, TableChange)>,
    next_lease: u64,
}

impl Table {
    fn change(&mut self, change: TableChange) {
        self.revision += 1;
        self.log.push((self.revision, change));
    }

    fn expire(&mut self, now: u64) {
        let over: Vec<u64> = self.leases.iter().filter(|(_, l)| l.until <= now).map(|(id, _)| *id).collect();
        for lease in over {
            self.leases.remove(&lease);
            let servers = self.servers.keys().filter(|(_, of)| *of == lease).cloned().collect::<Vec<_>>();
            let sessions = self.sessions.iter().filter(|(_, (_, of))| *of == lease);
            let sessions = sessions.map(|(host, _)| host.clone()).collect::<Vec<_>>();
            // All of a lease goes by one change.
            self.revision += 1;
            for host in sessions {
                self.sessions.remove(&host);
                self.log.push((self.revision, TableChange::SessionGone(host)));
            }
            for key in servers {
                self.servers.remove(&key);
                self.log.push((self.revision, TableChange::ServerGone(key.0, key.1)));
            }
        }
    }
}

/// One server: its state machine, its connection to the table, and what its vaults would pass.
struct Server {
    name: DomainName,
    machine: Federation,
    /// Its clock: true time times this, in thousandths.
    rate: u64,
    /// True time until which it is cut off from the table.
    cut_off: u64,
    /// True time at which what is under way arrives.
    asks: VecDeque<(u64, Ask)>,
    hears: VecDeque<(u64, Heard)>,
    lease: Option<(u64, u64)>,
    /// What has been told of the log.
    watched: usize,
    /// Late watch: told no earlier than this.
    watch_at: u64,
    /// Packets of these may pass, until this time of its own clock.
    passing: BTreeSet<SessionId>,
    until: Time,
    /// Being cut, and the true time when that is done.
    cutting: Vec<(u64, SessionId)>,
    own: BTreeMap<SessionId, Stored>,
    /// Own sessions whose end has begun.
    ending: BTreeSet<SessionId>,
    dead: Option<u64>,
}

struct World {
    random: Random,
    /// No new faults.
    calm: bool,
    now: u64,
    table: Table,
    table_silent: u64,
    servers: Vec<Server>,
    /// Sessions whose end was acknowledged.
    over: BTreeSet<SessionId>,
    told: BTreeSet<SessionId>,
    serial: u64,
    published: u64,
    acknowledged: u64,
    fences: u64,
    used_elsewhere: u64,
}

fn name(n: usize) -> DomainName {
    DomainName::new(&format!("s{n}.example")).unwrap()
}

/// All servers but one.
fn peers(n: usize) -> BTreeSet<DomainName> {
    (0..SERVERS).filter(|other| *other != n).map(name).collect()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let servers = (0..SERVERS)
            .map(|n| Server {
                name: name(n),
                machine: Federation::new(name(n), peers(n), Duration::from_secs(TTL), Time::default()),
                // Up to five in a hundred fast or slow.
                rate: 950 + random.below(101),
                cut_off: 0,
                asks: VecDeque::new(),
                hears: VecDeque::new(),
                lease: None,
                watched: 0,
                watch_at: 0,
                passing: BTreeSet::new(),
                until: Time::default(),
                cutting: Vec::new(),
                own: BTreeMap::new(),
                ending: BTreeSet::new(),
                dead: None,
            })
            .collect();
        Self {
            random,
            calm: false,
            now: 1,
            table: Table { next_lease: 7, ..Table::default() },
            table_silent: 0,
            servers,
            over: BTreeSet::new(),
            told: BTreeSet::new(),
            serial: 0,
            published: 0,
            acknowledged: 0,
            fences: 0,
            used_elsewhere: 0,
        }
    }

    /// Milliseconds that something is under way: seldom long.
    fn delay(&mut self, seldom: u64, long: u64) -> u64 {
        let is_long = self.random.one_in(seldom) && !self.calm;
        self.random.below(if is_long { long } else { 40 })
    }

    fn clock(&self, n: usize) -> Time {
        Time::from_millis(self.now * self.servers[n].rate / 1000)
    }

    /// The invariants, looked at after every step.
    fn check(&self) {
        for (n, server) in self.servers.iter().enumerate() {
            // Vaults keep the deadline by themselves, dead sessiond or not.
            if self.clock(n) >= server.until {
                continue;
            }
            for id in &server.passing {
                assert!(
                    !self.over.contains(id),
                    "{} passes {id} after its end was acknowledged",
                    server.name
                );
                assert!(self.told.contains(id), "{} passes {id}, of which nobody told it", server.name);
            }
        }
    }

    fn carry_out(&mut self, n: usize) {
        while let Some(said) = self.servers[n].machine.poll() {
            let delay = self.delay(7, 1500);
            let now = self.now;
            let server = &mut self.servers[n];
            match said {
                // One connection: in order.
                Said::Ask(ask) => {
                    let at = server.asks.back().map_or(0, |(at, _)| *at).max(now + delay);
                    server.asks.push_back((at, ask));
                }
                Said::Until(until) => server.until = until,
                Said::Fence(_) => {
                    self.fences += 1;
                    let own = server.own.keys().copied().collect::<Vec<_>>();
                    for id in own {
                        self.end(n, id);
                    }
                }
                Said::Appeared(shared) => {
                    // A real one asks the policy; this one takes all that was published.
                    self.told.insert(shared.record.id);
                    server.passing.insert(shared.record.id);
                    self.used_elsewhere += 1;
                }
                Said::Vanished(id) => server.cutting.push((now + delay * 2, id)),
                Said::Published(id, Publication::Done) => {
                    if !server.ending.contains(&id) {
                        server.passing.insert(id);
                        self.told.insert(id);
                        self.published += 1;
                    }
                }
                Said::Published(id, Publication::Refused(_)) => {
                    server.own.remove(&id);
                }
                Said::Published(id, Publication::Unknown(_)) => self.end(n, id),
                Said::Withdrawn(id) => {
                    if server.own.remove(&id).is_some() {
                        server.ending.remove(&id);
                        // Acknowledged once it is cut here, too, which it is at once in this model.
                        self.over.insert(id);
                        self.acknowledged += 1;
                    }
                }
            }
        }
    }

    /// A session of this server ends: cut here, and then to be withdrawn.
    fn end(&mut self, n: usize, id: SessionId) {
        let server = &mut self.servers[n];
        server.passing.remove(&id);
        if let Some(record) = server.own.get(&id).cloned()
            && server.ending.insert(id)
        {
            server.machine.withdraw(&record);
        }
    }

    /// The table's side of one connection.
    fn serve(&mut self, n: usize) {
        let (now, silent) = (self.now, self.table_silent);
        let lost = !self.calm && self.random.one_in(60);
        let answer = now + self.delay(101, 3000);
        let server = &mut self.servers[n];
        let Some((at, _)) = server.asks.front() else { return };
        if *at > now {
            return;
        }
        let Some((_, ask)) = server.asks.pop_front() else { return };
        let unknown = match &ask {
            Ask::Publish { attempt, session } => {
                Some(Heard::Published { attempt: *attempt, session: session.record.id, done: None })
            }
            Ask::Withdraw { attempt, session } => {
                Some(Heard::Withdrawn { attempt: *attempt, session: session.record.id, revision: None })
            }
            Ask::Join { attempt, .. } => Some(Heard::Lost { attempt: *attempt, reason: "no answer".into() }),
            Ask::Beat { .. } | Ask::Renew { .. } => None,
        };
        if now < server.cut_off || now < silent {
            server.hears.extend(unknown.map(|heard| (answer, heard)));
            return;
        }
        let table = &mut self.table;
        table.expire(now);
        let lease_of = |attempt: u64| server.lease.filter(|(of, _)| *of == attempt).map(|(_, lease)| lease);
        let gone = |attempt| Heard::Lost { attempt, reason: "the lease is gone".into() };
        let heard = match ask {
            Ask::Join { attempt, ttl } => {
                table.next_lease += 1;
                let lease = table.next_lease;
                // etcd may let it live longer.
                let until = now + ttl * 1000 + self.random.below(500);
                table.leases.insert(lease, Lease { until });
                let joined = table.revision + 1;
                let entry = Entry::Server { name: server.name.clone(), lease, joined, beat: 0, cut: 0 };
                table.servers.insert((server.name.clone(), lease), entry.clone());
                table.change(TableChange::Put(entry));
                server.lease = Some((attempt, lease));
                let sessions = table.sessions.values().map(|(shared, _)| Entry::Session(shared.clone()));
                let entries = table.servers.values().cloned().chain(sessions).collect();
                server.hears.push_back((answer, Heard::There { attempt, entries }));
                server.watched = table.log.len();
                Some(Heard::Joined { attempt, lease, revision: table.revision })
            }
            Ask::Beat { attempt, number, cut } => match lease_of(attempt) {
                Some(lease) if table.leases.contains_key(&lease) => {
                    let key = (server.name.clone(), lease);
                    if let Some(Entry::Server { joined, .. }) = table.servers.get(&key) {
                        let entry =
                            Entry::Server { name: key.0.clone(), lease, joined: *joined, beat: number, cut };
                        table.servers.insert(key, entry.clone());
                        table.change(TableChange::Put(entry));
                    }
                    None
                }
                _ => Some(gone(attempt)),
            },
            Ask::Renew { attempt, number } => {
                match lease_of(attempt).and_then(|id| table.leases.get_mut(&id)) {
                    Some(lease) => {
                        lease.until = now + TTL * 1000 + self.random.below(500);
                        Some(Heard::Renewed { attempt, number })
                    }
                    None => Some(gone(attempt)),
                }
            }
            Ask::Publish { attempt, session } => match lease_of(attempt) {
                Some(lease) if table.leases.contains_key(&lease) => {
                    let (id, host) = (session.record.id, session.record.device.clone());
                    let free = !table.sessions.contains_key(&host);
                    if free {
                        table.sessions.insert(host, (session.clone(), lease));
                        table.change(TableChange::Put(Entry::Session(session)));
                    }
                    Some(Heard::Published { attempt, session: id, done: Some(free) })
                }
                _ => Some(gone(attempt)),
            },
            Ask::Withdraw { attempt, session } => {
                let (id, host) = (session.record.id, session.record.device.clone());
                if table.sessions.get(&host).is_some_and(|(there, _)| *there == session) {
                    table.sessions.remove(&host);
                    table.change(TableChange::SessionGone(host));
                }
                Some(Heard::Withdrawn { attempt, session: id, revision: Some(table.revision) })
            }
        };
        // It was carried out, and the answer may be lost.
        let heard = if lost { unknown } else { heard };
        server.hears.extend(heard.map(|heard| (answer, heard)));
    }

    fn watch(&mut self, n: usize) {
        let server = &mut self.servers[n];
        if self.now < server.watch_at || self.now < server.cut_off || self.now < self.table_silent {
            return;
        }
        let Some((attempt, _)) = server.lease else { return };
        let rest = &self.table.log[server.watched..];
        let last = rest.get(2).or(rest.last()).map_or(0, |(revision, _)| *revision);
        // All of one change comes together.
        let news: Vec<_> = rest.iter().take_while(|(revision, _)| *revision <= last).cloned().collect();
        let Some((revision, _)) = news.last() else { return };
        let heard = Heard::Changed { attempt, revision: *revision, changes: news.clone() };
        server.watched += news.len();
        let at = self.now + self.random.below(30);
        let after = server.hears.iter().map(|(at, _)| *at).max().unwrap_or(0);
        server.hears.push_back((at.max(after), heard));
        if !self.calm && self.random.one_in(200) {
            server.watch_at = self.now + self.random.below(8000);
        }
    }

    fn step(&mut self) {
        self.now += 1 + self.random.below(12);
        let now = self.now;
        self.table.expire(now);
        if self.random.one_in(4000) {
            self.table_silent = now + self.random.below(9000);
        }
        for n in 0..SERVERS {
            self.erase(n);
            if self.random.one_in(2500) {
                self.servers[n].cut_off = now + self.random.below(9000);
            }
            if self.random.one_in(6000) {
                self.die(n);
            }
            if self.random.one_in(3000)
                && let Some((attempt, _)) = self.servers[n].lease
            {
                self.servers[n].hears.push_back((now, Heard::Lost { attempt, reason: "the watch".into() }));
            }
            self.serve(n);
            self.watch(n);
            if let Some(until) = self.servers[n].dead {
                if until > now {
                    self.check();
                    continue;
                }
                self.servers[n].dead = None;
            }
            let clock = self.clock(n);
            while let Some((at, _)) = self.servers[n].hears.front()
                && *at <= now
            {
                if let Some((_, heard)) = self.servers[n].hears.pop_front() {
                    self.servers[n].machine.hear(heard, clock);
                    self.carry_out(n);
                    self.check();
                }
            }
            self.servers[n].machine.tick(clock);
            self.carry_out(n);
            let done: Vec<SessionId> =
                self.servers[n].cutting.iter().filter(|(at, _)| *at <= now).map(|(_, id)| *id).collect();
            self.servers[n].cutting.retain(|(at, _)| *at > now);
            for id in done {
                self.servers[n].passing.remove(&id);
                self.servers[n].machine.cut(id, clock);
                self.carry_out(n);
            }
            self.people(n);
            self.carry_out(n);
            self.check();
        }
    }

    /// Beyond the deadline a server's vaults have erased what they had, whoever else is dead.
    fn erase(&mut self, n: usize) {
        if self.clock(n) >= self.servers[n].until {
            self.servers[n].passing.clear();
        }
    }

    /// Somebody signs on, or off.
    fn people(&mut self, n: usize) {
        if self.random.one_in(40) {
            self.serial += 1;
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&self.serial.to_be_bytes());
            let id = SessionId::from_random(bytes);
            let host = format!("ws{}", self.random.below(HOSTS as u64));
            let record = Stored {
                id,
                user: "ada".parse().unwrap(),
                device: HostName::new(&host).unwrap(),
                fingerprint: [0; 32],
                label: "LOW".parse().unwrap(),
                inner: vec![],
                opened: Time::default(),
            };
            let clock = self.clock(n);
            let server = &mut self.servers[n];
            server.own.insert(id, record.clone());
            server.machine.publish(record, clock);
        }
        if self.random.one_in(80) {
            let open = self.servers[n].own.keys().filter(|id| !self.servers[n].ending.contains(id));
            let open: Vec<SessionId> = open.copied().collect();
            if !open.is_empty() {
                let id = open[self.random.below(open.len() as u64) as usize];
                self.end(n, id);
            }
        }
    }

    /// sessiond and its client die; vaults go on until their deadline. The next run waits for that, and withdraws what the store has.
    fn die(&mut self, n: usize) {
        let begin = self.now + self.random.below(6000);
        let rate = self.servers[n].rate;
        let name = self.servers[n].name.clone();
        let server = &mut self.servers[n];
        server.dead = Some(begin);
        let wait = Time::from_millis(begin * rate / 1000).after(Duration::from_secs(TTL));
        server.machine = Federation::new(name, peers(n), Duration::from_secs(TTL), wait);
        server.asks.clear();
        server.hears.clear();
        server.cutting.clear();
        server.lease = None;
        for (id, record) in server.own.clone() {
            server.ending.insert(id);
            server.machine.withdraw(&record);
        }
        // What vaults hold of the run before they erase at their deadline, and the next run's know nothing of it: modelled by leaving
        // `passing` as it is until then.
    }
}

#[test]
fn whatever_happens_no_server_passes_a_session_after_its_end_was_acknowledged() {
    let (mut published, mut acknowledged, mut fences, mut elsewhere) = (0, 0, 0, 0);
    for seed in 0..30 {
        let mut world = World::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..6_000 {
                world.step();
            }
        }));
        if let Err(panic) = run {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
        published += world.published;
        acknowledged += world.acknowledged;
        fences += world.fences;
        elsewhere += world.used_elsewhere;
    }
    // It has to have been about something.
    assert!(published > 800 && acknowledged > 800, "{published} {acknowledged}");
    assert!(fences > 200 && elsewhere > 1_500, "{fences} {elsewhere}");
}

#[test]
fn once_all_is_well_every_end_is_acknowledged_and_soon() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        for _ in 0..3_000 {
            world.step();
        }
        // No more faults: whoever was cut off comes back, and whoever was dead.
        let from = world.now;
        for n in 0..SERVERS {
            let open = world.servers[n].own.keys().copied().collect::<Vec<_>>();
            for id in open {
                world.end(n, id);
            }
        }
        let unfinished = |world: &World| world.servers.iter().any(|server| !server.own.is_empty());
        while unfinished(&world) {
            for server in &mut world.servers {
                (server.cut_off, server.watch_at) = (0, 0);
            }
            world.table_silent = 0;
            world.calm_step();
            assert!(world.now < from + 40_000, "seed {seed}: an end is not acknowledged");
        }
    }
}

#[test]
fn a_server_whose_watch_is_behind_is_not_waited_for_longer_than_its_lease() {
    let mut world = World::new(1);
    let member = |server: &Server, others: usize| server.machine.shown().1.len() == others;
    while !world.servers.iter().all(|server| member(server, SERVERS - 1)) {
        world.calm_step();
    }
    let id = SessionId::from_random([9; 16]);
    let record = Stored {
        id,
        user: "ada".parse().unwrap(),
        device: "ws1".parse().unwrap(),
        fingerprint: [0; 32],
        label: "LOW".parse().unwrap(),
        inner: vec![],
        opened: Time::default(),
    };
    let clock = world.clock(0);
    world.servers[0].own.insert(id, record.clone());
    world.servers[0].machine.publish(record, clock);
    while !world.servers.iter().all(|server| server.passing.contains(&id)) {
        world.calm_step();
    }
    // Requests go through as ever, the watch says nothing.
    world.servers[1].watch_at = u64::MAX;
    let from = world.now;
    world.end(0, id);
    while !world.over.contains(&id) {
        world.calm_step();
        assert!(world.now < from + 2 * TTL * 1000, "its lease goes on");
    }
    assert!(!world.servers[2].passing.contains(&id) && world.now > from + TTL * 500);
}

impl World {
    /// A step without new sessions and new faults.
    fn calm_step(&mut self) {
        self.calm = true;
        self.now += 5;
        let now = self.now;
        self.table.expire(now);
        for n in 0..SERVERS {
            self.serve(n);
            self.watch(n);
            let clock = self.clock(n);
            while let Some((at, _)) = self.servers[n].hears.front()
                && *at <= now
            {
                if let Some((_, heard)) = self.servers[n].hears.pop_front() {
                    self.servers[n].machine.hear(heard, clock);
                    self.carry_out(n);
                }
            }
            self.servers[n].machine.tick(clock);
            self.carry_out(n);
            let cutting = std::mem::take(&mut self.servers[n].cutting);
            for (_, id) in cutting {
                self.servers[n].passing.remove(&id);
                self.servers[n].machine.cut(id, clock);
                self.carry_out(n);
            }
            self.erase(n);
            self.check();
        }
    }
}
