//! Several servers, the table between them, and all that can go wrong with both, in the order that a seed says.

use levee_policy::site::Placed;
use levee_policy::{DomainName, HostName, SiteName};
use levee_session::federation::*;
use levee_session::{SessionId, Stored, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub const SERVERS: usize = 3;
const HOSTS: usize = 4;
/// Milliseconds.
pub const TTL: u64 = 4_000;

/// splitmix64: reproducible from its seed, and good enough to order events.
pub struct Random(u64);

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

/// A key of the table with what it says.
#[derive(Clone)]
pub enum Item {
    Statement(Box<Statement>),
    Page(DomainName, u16, Vec<u8>),
}

impl Item {
    pub fn key(&self) -> (DomainName, u32) {
        match self {
            Self::Statement(statement) => (statement.server.clone(), 0),
            Self::Page(server, page, _) => (server.clone(), 1 + u32::from(*page)),
        }
    }
}

pub enum Hears {
    Item(Item),
    Joined,
    Written(u64),
    Lost,
}

pub enum Asks {
    Join,
    Put(u64, Vec<Item>),
}

/// One server: its state machine, its connection to the table, and what its vaults would pass.
pub struct Server {
    pub name: DomainName,
    pub machine: Federation,
    /// Its clock: true time times this, in thousandths.
    pub rate: u64,
    /// True time until which it is cut off from the table.
    pub cut_off: u64,
    /// True time at which what is under way arrives; with its try.
    pub asks: VecDeque<(u64, u64, Asks)>,
    pub hears: VecDeque<(u64, u64, Hears)>,
    /// The try whose watch is on, and what it has been told of the log.
    pub watch: Option<(u64, usize)>,
    /// Late watch: told no earlier than this.
    pub watch_at: u64,
    /// Packets of these may pass, with the owner where that is another server.
    pub passing: BTreeMap<SessionId, Option<DomainName>>,
    pub until: Time,
    pub theirs: BTreeMap<DomainName, Time>,
    /// Being cut, and the true time when that is done.
    pub cutting: Vec<(u64, DomainName, SessionId)>,
    /// Those whose owner has said that they are over, and which may take a while to cut: that is waited for.
    pub vanished: BTreeSet<SessionId>,
    pub own: BTreeMap<SessionId, Stored>,
    /// Own sessions whose end has begun.
    pub ending: BTreeSet<SessionId>,
    pub dead: Option<u64>,
    /// Its pages, as it has stated them.
    pub pages: BTreeMap<u16, Vec<SessionId>>,
    /// The postures that are on its disk.
    pub setting: Setting,
    /// Until then something is left at it that these do not allow.
    pub moving: Option<u64>,
    /// What its operator waits for.
    pub awaited: Option<Setting>,
}

pub struct World {
    pub random: Random,
    /// No new faults.
    pub calm: bool,
    /// The carrier is an enemy.
    pub hostile: bool,
    pub now: u64,
    /// Everything that was ever written.
    pub log: Vec<Item>,
    pub silent: u64,
    pub servers: Vec<Server>,
    /// Sessions whose end was acknowledged.
    pub over: BTreeSet<SessionId>,
    /// When a session's owner last said that it lives.
    pub alive: BTreeMap<SessionId, u64>,
    pub serial: u64,
    pub published: u64,
    pub acknowledged: u64,
    pub fences: u64,
    pub used_elsewhere: u64,
    /// Postures that were acknowledged, and those whose operators were told who has not said so.
    pub kept: u64,
    pub late: u64,
    /// Nobody takes up what another server says of postures.
    pub deaf: bool,
}

pub fn name(n: usize) -> DomainName {
    DomainName::new(&format!("s{n}.example")).unwrap()
}

fn machine(n: usize, begin: Time) -> Federation {
    let others = (0..SERVERS).filter(|other| *other != n).map(name);
    Federation::new(SiteName::new("harbour").unwrap(), name(n), others, Duration::from_millis(TTL), begin)
}

impl World {
    pub fn new(seed: u64, hostile: bool) -> Self {
        let mut random = Random(seed);
        let servers = (0..SERVERS)
            .map(|n| Server {
                name: name(n),
                machine: machine(n, Time::default()),
                // Up to five in a hundred fast or slow.
                rate: 950 + random.below(101),
                cut_off: 0,
                asks: VecDeque::new(),
                hears: VecDeque::new(),
                watch: None,
                watch_at: 0,
                passing: BTreeMap::new(),
                until: Time::default(),
                theirs: BTreeMap::new(),
                cutting: Vec::new(),
                vanished: BTreeSet::new(),
                own: BTreeMap::new(),
                ending: BTreeSet::new(),
                dead: None,
                pages: BTreeMap::new(),
                setting: Setting::default(),
                moving: None,
                awaited: None,
            })
            .collect();
        Self {
            random,
            calm: false,
            hostile,
            now: 1,
            log: Vec::new(),
            silent: 0,
            servers,
            over: BTreeSet::new(),
            alive: BTreeMap::new(),
            serial: 0,
            published: 0,
            acknowledged: 0,
            fences: 0,
            used_elsewhere: 0,
            kept: 0,
            late: 0,
            deaf: false,
        }
    }

    /// Milliseconds that something is under way: seldom long.
    fn delay(&mut self, seldom: u64, long: u64) -> u64 {
        let is_long = self.random.one_in(seldom) && !self.calm;
        self.random.below(if is_long { long } else { 40 })
    }

    pub fn clock(&self, n: usize) -> Time {
        Time::from_millis(self.now * self.servers[n].rate / 1000)
    }

    /// The invariants, looked at after every step.
    fn check(&self) {
        for (n, server) in self.servers.iter().enumerate() {
            // Vaults keep the deadlines by themselves, dead sessiond or not.
            let clock = self.clock(n);
            for (id, owner) in &server.passing {
                let lease = owner.as_ref().map_or(server.until, |owner| {
                    server.theirs.get(owner).copied().unwrap_or_default().min(server.until)
                });
                if clock >= lease {
                    continue;
                }
                assert!(
                    !self.over.contains(id),
                    "{} passes {id} of {owner:?} after its end was acknowledged",
                    server.name
                );
                let alive = self.alive.get(id).copied().unwrap_or_default();
                assert!(
                    owner.is_none() || alive + TTL > self.now || server.vanished.contains(id),
                    "{} passes {id} without its owner's living word",
                    server.name
                );
            }
        }
    }

    pub fn carry_out(&mut self, n: usize) {
        while let Some(said) = self.servers[n].machine.poll() {
            let delay = self.delay(7, 1500);
            let now = self.now;
            let server = &mut self.servers[n];
            match said {
                Said::Join { attempt } => {
                    let at = server.asks.back().map_or(0, |(at, ..)| *at).max(now + delay);
                    server.asks.push_back((at, attempt, Asks::Join));
                }
                Said::State { attempt, statement, pages } => {
                    for (page, bytes) in &pages {
                        let sessions: Vec<Stored> = postcard::from_bytes(bytes).unwrap();
                        server.pages.insert(*page, sessions.iter().map(|record| record.id).collect());
                    }
                    server.pages.retain(|page, _| usize::from(*page) < statement.pages.len());
                    for id in server.pages.values().flatten() {
                        self.alive.insert(*id, now);
                    }
                    let number = statement.number;
                    let mut items = vec![Item::Statement(statement)];
                    let name = server.name.clone();
                    items
                        .extend(pages.into_iter().map(|(page, bytes)| Item::Page(name.clone(), page, bytes)));
                    // One connection: in order.
                    let at = server.asks.back().map_or(0, |(at, ..)| *at).max(now + delay);
                    server.asks.push_back((at, attempt, Asks::Put(number, items)));
                }
                Said::Until(None, until) => server.until = until,
                Said::Until(Some(owner), until) => {
                    server.theirs.insert(owner, until);
                }
                Said::Fence(_) => {
                    self.fences += 1;
                    let own = server.own.keys().copied().collect::<Vec<_>>();
                    for id in own {
                        self.end(n, id);
                    }
                }
                Said::Appeared(shared) => {
                    // A real one asks the policy; this one takes all that there is.
                    server.vanished.remove(&shared.record.id);
                    server.passing.insert(shared.record.id, Some(shared.owner));
                    self.used_elsewhere += 1;
                }
                Said::Vanished(owner, id) => {
                    server.vanished.insert(id);
                    server.cutting.push((now + delay * 2, owner, id));
                }
                Said::Published(id, Publication::Done) => {
                    if !server.ending.contains(&id) {
                        server.passing.insert(id, None);
                        self.published += 1;
                    }
                }
                Said::Published(id, Publication::Refused(_)) => {
                    server.own.remove(&id);
                }
                Said::Published(id, Publication::Unknown(_)) | Said::Clash(id) => self.end(n, id),
                // What came before what was set here since says nothing.
                Said::Set(_, setting) if self.deaf || !setting.is_after(&server.setting) => {}
                Said::Set(_, setting) => self.set(n, setting, false),
                Said::Unlike(_) => panic!("all have the same postures"),
                Said::Witness(..) => panic!("nobody's log is signed here"),
                Said::Kept(late) if late.is_empty() => {
                    // Where another counts since, nobody waits any more.
                    let Some(setting) = server.awaited.take() else { continue };
                    for other in &self.servers {
                        let is_before = setting.is_after(&other.setting);
                        let is_left = setting == other.setting && other.moving.is_some();
                        assert!(!is_before && !is_left, "{}: {setting:?} is not so there", other.name);
                    }
                    self.kept += 1;
                }
                Said::Kept(_) => self.late += 1,
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

    /// A server has other postures in force from now on, and something of before for a while.
    fn set(&mut self, n: usize, setting: Setting, awaited: bool) {
        let (now, clock, takes) = (self.now, self.clock(n), self.delay(5, 2_000));
        let server = &mut self.servers[n];
        server.setting = setting.clone();
        (server.moving, server.awaited) = (Some(now + takes), awaited.then(|| setting.clone()));
        server.machine.set(setting, clock.after(Duration::from_millis(8_000)), awaited, clock);
    }

    /// A session of this server ends: cut here, and then to be withdrawn.
    pub fn end(&mut self, n: usize, id: SessionId) {
        let clock = self.clock(n);
        let server = &mut self.servers[n];
        server.passing.remove(&id);
        if let Some(record) = server.own.get(&id).cloned()
            && server.ending.insert(id)
        {
            server.machine.withdraw(&record, clock);
        }
    }

    /// The table's side of one connection.
    pub fn serve(&mut self, n: usize) {
        let (now, silent) = (self.now, self.silent);
        let lost = !self.calm && self.random.one_in(60);
        let answer = now + self.delay(101, 3000);
        let server = &mut self.servers[n];
        let Some((at, ..)) = server.asks.front() else { return };
        if *at > now {
            return;
        }
        let Some((_, attempt, ask)) = server.asks.pop_front() else { return };
        if now < server.cut_off || now < silent {
            if matches!(ask, Asks::Join) {
                server.hears.push_back((answer, attempt, Hears::Lost));
            }
            return;
        }
        match ask {
            Asks::Join => {
                let rolled = self.hostile && self.random.one_in(3);
                let upto = if rolled {
                    self.random.below(self.log.len() as u64 + 1) as usize
                } else {
                    self.log.len()
                };
                let mut table = BTreeMap::new();
                for item in &self.log[..upto] {
                    table.insert(item.key(), item.clone());
                }
                for item in table.into_values() {
                    server.hears.push_back((answer, attempt, Hears::Item(item)));
                }
                server.hears.push_back((answer, attempt, Hears::Joined));
                server.watch = Some((attempt, self.log.len()));
            }
            Asks::Put(number, items) => {
                self.log.extend(items);
                // It was carried out, and the answer may be lost.
                if !lost {
                    server.hears.push_back((answer, attempt, Hears::Written(number)));
                }
            }
        }
    }

    pub fn watch(&mut self, n: usize) {
        let server = &mut self.servers[n];
        if self.now < server.watch_at || self.now < server.cut_off || self.now < self.silent {
            return;
        }
        let Some((attempt, told)) = server.watch else { return };
        let mut news: Vec<Item> = self.log[told..].iter().take(4).cloned().collect();
        server.watch = Some((attempt, told + news.len()));
        if self.hostile && !self.calm {
            self.twist(&mut news);
        }
        let at = self.now + self.random.below(30);
        let server = &mut self.servers[n];
        let after = server.hears.iter().map(|(at, ..)| *at).max().unwrap_or(0).min(self.now + 40);
        server.hears.extend(news.into_iter().map(|item| (at.max(after), attempt, Hears::Item(item))));
        if !self.calm && self.random.one_in(200) {
            server.watch_at = self.now + self.random.below(8000);
        }
    }

    /// What an enemy makes of what is to be told.
    fn twist(&mut self, news: &mut Vec<Item>) {
        let some = |random: &mut Random, log: &[Item]| {
            (!log.is_empty()).then(|| log[random.below(log.len() as u64) as usize].clone())
        };
        match self.random.below(60) {
            0 => news.clear(),
            1 => news.reverse(),
            // Old words, of long ago or of just now.
            2 => news.extend(some(&mut self.random, &self.log)),
            3 => {
                let late = self.log.len().saturating_sub(30);
                news.extend(some(&mut self.random, &self.log[late..]));
            }
            4 => {
                let again = news.clone();
                news.extend(again);
            }
            5 => {
                for item in news.iter_mut() {
                    if let Item::Page(_, _, bytes) = item {
                        let at = self.random.below(bytes.len() as u64) as usize;
                        bytes[at] ^= 1 << self.random.below(8);
                    }
                }
            }
            // Another server's page, or another place for it.
            6 => {
                for item in news.iter_mut() {
                    if let Item::Page(server, page, _) = item {
                        *server = name(self.random.below(SERVERS as u64) as usize);
                        *page = self.random.below(3) as u16;
                    }
                }
            }
            // A statement without its pages, or pages without their statement.
            7 => news.retain(|item| matches!(item, Item::Statement(_))),
            8 => news.retain(|item| matches!(item, Item::Page(..))),
            _ => {}
        }
    }

    pub fn step(&mut self) {
        self.now += 1 + self.random.below(12);
        let now = self.now;
        if self.random.one_in(4000) {
            self.silent = now + self.random.below(9000);
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
                && let Some((attempt, _)) = self.servers[n].watch.take()
            {
                self.servers[n].hears.push_back((now, attempt, Hears::Lost));
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
            self.turn(n);
            self.people(n);
            if self.random.one_in(900) {
                self.loses(n);
            }
            self.carry_out(n);
            self.check();
        }
    }

    /// A session of another server cannot go on at this one.
    fn loses(&mut self, n: usize) {
        let clock = self.clock(n);
        let server = &mut self.servers[n];
        let theirs = server.passing.iter().find_map(|(id, owner)| Some((*id, owner.clone()?)));
        if let Some((id, owner)) = theirs {
            server.passing.remove(&id);
            server.machine.missing(&owner, id, clock);
        }
    }

    /// What a server does by itself.
    pub fn turn(&mut self, n: usize) {
        let (now, clock) = (self.now, self.clock(n));
        while self.servers[n].hears.front().is_some_and(|(at, ..)| *at <= now) {
            let Some((_, attempt, heard)) = self.servers[n].hears.pop_front() else { break };
            let machine = &mut self.servers[n].machine;
            match heard {
                Hears::Item(Item::Statement(statement)) => machine.hear(attempt, *statement, clock),
                Hears::Item(Item::Page(of, page, bytes)) => machine.page(attempt, &of, page, &bytes, clock),
                Hears::Joined => machine.joined(attempt, clock),
                Hears::Written(number) => machine.written(attempt, number, clock),
                Hears::Lost => machine.lost(Some(attempt), "the watch", clock),
            }
            self.carry_out(n);
            self.check();
        }
        self.servers[n].machine.tick(clock);
        self.carry_out(n);
        if self.servers[n].moving.take_if(|at| *at <= now).is_some() {
            self.servers[n].machine.kept(clock);
            self.carry_out(n);
        }
        let cutting = std::mem::take(&mut self.servers[n].cutting);
        let (done, left): (Vec<_>, Vec<_>) = cutting.into_iter().partition(|(at, ..)| *at <= now);
        self.servers[n].cutting = left;
        for (_, owner, id) in done {
            self.servers[n].passing.remove(&id);
            self.servers[n].machine.cut(&owner, id, clock);
            self.carry_out(n);
        }
    }

    /// Beyond a deadline a server's vaults have erased what they had, whoever else is dead.
    fn erase(&mut self, n: usize) {
        let clock = self.clock(n);
        let server = &mut self.servers[n];
        let (until, theirs) = (server.until, &server.theirs);
        server.passing.retain(|_, owner| {
            clock < until
                && owner.as_ref().is_none_or(|owner| theirs.get(owner).is_some_and(|until| clock < *until))
        });
    }

    pub fn sign_on(&mut self, n: usize, host: u64) {
        self.serial += 1;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.serial.to_be_bytes());
        let record = record(SessionId::from_random(bytes), &format!("ws{host}"));
        let clock = self.clock(n);
        let server = &mut self.servers[n];
        server.own.insert(record.id, record.clone());
        server.machine.publish(&record, clock);
    }

    /// An operator sets the postures of the site, if that is possible.
    pub fn operator(&mut self, n: usize) -> bool {
        let server = &self.servers[n];
        let may = server.machine.may_set().is_ok() && server.moving.is_none();
        if may {
            let of = |posture: Option<&str>, range: &str| {
                let posture = posture.map(|name| name.parse().unwrap());
                InForce { what: Placed { posture, labels: Some(vec![range.parse().unwrap()]) }, until: None }
            };
            let low = of(Some("siege"), "LOW..HIGH");
            let in_force = match self.random.below(3) {
                0 => vec![],
                1 => vec![low],
                _ => vec![low, of(None, "LOW")],
            };
            let server = &self.servers[n];
            let setting = server.setting.next(&server.name, in_force).unwrap();
            self.set(n, setting, true);
        }
        may
    }

    /// Somebody signs on, or off.
    pub fn people(&mut self, n: usize) {
        if self.random.one_in(500) {
            self.operator(n);
        }
        if self.random.one_in(40) {
            let host = self.random.below(HOSTS as u64);
            let there = format!("ws{host}");
            // At one server a workstation has one session.
            if !self.servers[n].own.values().any(|record| record.device.as_str() == there) {
                self.sign_on(n, host);
            }
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
    pub fn die(&mut self, n: usize) {
        let begin = self.now + self.random.below(6000);
        let rate = self.servers[n].rate;
        let clock = self.clock(n);
        let server = &mut self.servers[n];
        server.dead = Some(begin);
        let wait = Time::from_millis(begin * rate / 1000).after(Duration::from_millis(TTL));
        server.machine = machine(n, wait).with_postures([0; 32], server.setting.clone(), false);
        (server.moving, server.awaited) = (None, None);
        server.asks.clear();
        server.hears.clear();
        server.cutting.clear();
        server.pages.clear();
        server.watch = None;
        for (id, record) in server.own.clone() {
            server.ending.insert(id);
            server.machine.withdraw(&record, clock);
        }
        // What vaults hold of the run before they erase at their deadline, and the next run's know nothing of it: modelled by leaving
        // `passing` as it is until then.
    }

    /// A step without new sessions and new faults.
    pub fn calm_step(&mut self) {
        self.calm = true;
        self.now += 5;
        for n in 0..SERVERS {
            self.serve(n);
            self.watch(n);
            if self.servers[n].dead.is_some_and(|until| until > self.now) {
                continue;
            }
            self.servers[n].dead = None;
            self.turn(n);
            self.erase(n);
            self.check();
        }
    }

    pub fn all_members(&mut self) {
        let member =
            |server: &Server| server.machine.shown().1.len() == SERVERS - 1 && server.machine.shown().0;
        while !self.servers.iter().all(member) {
            self.calm_step();
            assert!(self.now < 60_000, "they do not find each other");
        }
    }
}

fn record(id: SessionId, device: &str) -> Stored {
    Stored {
        id,
        user: "ada".parse().unwrap(),
        device: HostName::new(device).unwrap(),
        fingerprint: [0; 32],
        label: "LOW".parse().unwrap(),
        inner: vec![],
        opened: Time::default(),
        protection: None,
    }
}

pub fn run(seed: u64, hostile: bool, steps: usize) -> World {
    let mut world = World::new(seed, hostile);
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for _ in 0..steps {
            world.step();
        }
    }));
    if let Err(panic) = run {
        eprintln!("seed {seed}, at {}, hostile: {hostile}", world.now);
        std::panic::resume_unwind(panic);
    }
    world
}
