//! The loop: messages first, then connections.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use levee_daemon::{Events, Fatal, Order, Outbox, TURN, Warden, Watched};
use levee_ipc::mediator::{Client, FromStarter, MediatorToSessiond, SessiondToMediator, ToStarter};
use levee_ipc::warden::mediator::MediatorPart;
use levee_policy::{ServiceName, UserName};
use levee_session::SessionId;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags};

use crate::kept;
use crate::records::{Records, Refused};
use crate::relay::{Pipes, Relay, Side, Turn};
use crate::shares::{Full, Holder, Shares};
use crate::start::{Listener, Source, Started};
use crate::unread::{self, Unread};

/// How long after a connection process 1 has processes ready without being asked: less than it keeps them.
const READY: Duration = Duration::from_secs(10);

/// How long a server process may go on when its session has ended.
const GRACE: Duration = Duration::from_secs(2);

/// A connection.
struct Connection {
    client: Client,
    user: Option<UserName>,
    service: ServiceName,
    from: SocketAddr,
    /// Relayed, or else handed off.
    relayed: bool,
    /// How many its holder had with it: what is kept of both its sockets goes by that ([`kept`]).
    held: usize,
    state: State,
}

enum State {
    /// Until sessiond says that the grant is durable. Which listener it came to.
    Asked(OwnedFd, usize),
    /// A server process has it; this is a duplicate.
    Handed(OwnedFd),
    /// The connection is shut down; the server process still runs.
    Ending,
    /// Between the client and the daemon.
    Relayed(Box<Relay>),
}

/// What happened so far, for operators.
#[derive(Default)]
struct Counts {
    handed: u64,
    relayed: u64,
    no_record: u64,
    no_service: u64,
    no_room: u64,
    no_share: u64,
    not_granted: u64,
    not_started: u64,
    ended: u64,
    broken: u64,
    unread: u64,
}

struct Mediator {
    events: Events<Source>,
    warden: Warden<MediatorPart>,
    sessiond: Outbox<MediatorToSessiond>,
    starter: Outbox<ToStarter>,
    listeners: Vec<Listener>,
    epoll: Watched<OwnedFd>,
    records: Records,
    /// Whether sessiond has named every session since it came: before, nobody is accepted.
    synced: bool,
    connections: BTreeMap<u64, Connection>,
    /// How many of them are handed off, or may be.
    handed: Shares,
    /// How many of them are relayed, or may be.
    relayed: Shares,
    /// Connections that are ending, in order, and when their server processes are to be killed.
    ending: VecDeque<(Instant, u64)>,
    /// Relayed connections that gave way to others.
    busy: VecDeque<u64>,
    pipes: Pipes,
    unread: Unread,
    tickets: u64,
    counts: Counts,
}

/// Serves until the warden is gone or says stop.
///
/// # Errors
/// Why it cannot go on; with it end all connections.
pub fn serve(started: Started) -> Result<(), Fatal> {
    let Started { events, warden, sessiond, starter, listeners, epoll, most, most_relayed } = started;
    let mut mediator = Mediator {
        events,
        warden,
        sessiond,
        starter,
        listeners,
        epoll,
        records: Records::default(),
        synced: false,
        connections: BTreeMap::new(),
        handed: Shares::new(most),
        relayed: Shares::new(most_relayed),
        ending: VecDeque::new(),
        busy: VecDeque::new(),
        pipes: Pipes::default(),
        unread: Unread::default(),
        tickets: 0,
        counts: Counts::default(),
    };
    while mediator.turn()? {}
    Ok(())
}

impl Mediator {
    /// False when it is time to end.
    fn turn(&mut self) -> Result<bool, Fatal> {
        let ending = self.ending.front().map(|(at, _)| at.saturating_duration_since(Instant::now()));
        let limit = match ending.into_iter().chain(self.unread.wait()).min() {
            _ if !self.busy.is_empty() => Some(Duration::ZERO),
            limit => limit,
        };
        for (source, _) in self.events.wait(limit)? {
            match source {
                Source::Warden => {
                    if !self.hear_warden()? {
                        return Ok(false);
                    }
                }
                Source::Sessiond => self.hear_sessiond()?,
                Source::Starter => self.hear_starter()?,
                Source::Listener(listener) => self.accept(listener)?,
                Source::Relayed => self.go_on()?,
            }
        }
        for _ in 0..self.busy.len().min(TURN) {
            let Some(ticket) = self.busy.pop_front() else { break };
            self.relay(ticket, Side::Front, true, true);
            self.relay(ticket, Side::Back, true, true);
        }
        self.kill_late()?;
        if self.unread.wait() == Some(Duration::ZERO) {
            self.break_off_unread();
        }
        // Nobody is accepted who could not be granted anything.
        let open = self.synced && self.sessiond.is_open();
        for listener in &self.listeners {
            listener.fd.wait_for(open, false).map_err(|why| Fatal::new("wait for connections", why))?;
        }
        Ok(true)
    }

    fn hear_warden(&mut self) -> Result<bool, Fatal> {
        while let Some(order) = self.warden.hear()? {
            match order {
                Order::Stop => return Ok(false),
                Order::Take(MediatorPart::Sessiond, with) => {
                    // What the one before was asked it will not answer; it names every session anew.
                    self.sessiond.replace(with.channel()?, &mut self.events, Source::Sessiond)?;
                    self.synced = false;
                    self.records.anew();
                    self.end_where(|connection| matches!(connection.state, State::Asked(..)))?;
                }
                Order::Take(part, _) => return Err(Warden::unwanted(&part)),
            }
        }
        Ok(true)
    }

    fn hear_sessiond(&mut self) -> Result<(), Fatal> {
        for _ in 0..TURN {
            let Ok(Some(message)) = self.sessiond.hear::<SessiondToMediator>() else { return Ok(()) };
            match message {
                SessiondToMediator::Networks(networks) => {
                    self.records.networks(networks);
                    self.end_disallowed()?;
                }
                SessiondToMediator::Open(record) => {
                    let id = record.id;
                    if self.records.open(record) {
                        self.end_disallowed()?;
                    }
                    self.sessiond.send(MediatorToSessiond::Opened(id));
                }
                SessiondToMediator::Close(id) => {
                    self.records.close(id);
                    self.end_session(id)?;
                    self.sessiond.send(MediatorToSessiond::Closed(id));
                }
                SessiondToMediator::Synced => {
                    for id in self.records.synced() {
                        self.end_session(id)?;
                        self.sessiond.send(MediatorToSessiond::Closed(id));
                    }
                    self.synced = true;
                }
                SessiondToMediator::Ping(number) => self.sessiond.send(MediatorToSessiond::Pong(number)),
                SessiondToMediator::Report => {
                    let report = self.report();
                    self.sessiond.send(MediatorToSessiond::Report(report));
                }
                SessiondToMediator::Pass(ticket) => self.pass(ticket)?,
                SessiondToMediator::Refuse(ticket) => self.refuse(ticket)?,
            }
        }
        Ok(())
    }

    fn accept(&mut self, number: usize) -> Result<(), Fatal> {
        for _ in 0..TURN {
            if !self.synced || !self.sessiond.is_open() {
                return Ok(());
            }
            let Some(listener) = self.listeners.get_mut(number) else { return Ok(()) };
            // A server process expects a socket that blocks.
            let blocks = if listener.relayed { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
            let accepted = rustix::net::acceptfrom_with(&listener.fd, SocketFlags::CLOEXEC | blocks);
            let (fd, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(Errno::AGAIN) => return Ok(()),
                // It was gone before it was accepted (accept(2), "Error handling").
                Err(
                    Errno::CONNABORTED
                    | Errno::INTR
                    | Errno::PROTO
                    | Errno::NETDOWN
                    | Errno::NETUNREACH
                    | Errno::HOSTDOWN
                    | Errno::HOSTUNREACH,
                ) => continue,
                Err(why) => return Err(Fatal::new("accept a connection", why)),
            };
            let Some(from) = peer.and_then(|peer| SocketAddr::try_from(peer).ok()) else { continue };
            let (client, user) = match self.records.find(from.ip(), &listener.service) {
                Ok(found) => found,
                Err(why) => {
                    match why {
                        Refused::NoRecord => self.counts.no_record += 1,
                        Refused::NoService => self.counts.no_service += 1,
                    }
                    continue;
                }
            };
            let relayed = listener.relayed;
            let shares = if relayed { &mut self.relayed } else { &mut self.handed };
            let holder = Holder::of(user.as_ref(), from.ip());
            if let Err(full) = shares.take(&holder) {
                match full {
                    Full::All => self.counts.no_room += 1,
                    Full::Share => self.counts.no_share += 1,
                }
                continue;
            }
            // A socket that has just been accepted takes both; what the kernel keeps of it counts here, whoever is handed it.
            let held = shares.crowd(&holder);
            if kept::bound(&fd, held).is_err() {
                shares.give_back(&holder);
                self.counts.not_started += 1;
                continue;
            }
            // While the grant is recorded, a process is made that can take the connection.
            if !listener.relayed && listener.prepared.is_none_or(|last| last.elapsed() > READY) {
                self.starter.send(ToStarter::Prepare { service: listener.service.clone() });
            }
            listener.prepared = Some(Instant::now());
            self.tickets += 1;
            let (ticket, service) = (self.tickets, listener.service.clone());
            let state = State::Asked(fd, number);
            let connect = MediatorToSessiond::Connect {
                ticket,
                client: client.clone(),
                service: service.clone(),
                from,
            };
            self.connections.insert(ticket, Connection { client, user, service, from, relayed, held, state });
            self.sessiond.send(connect);
        }
        Ok(())
    }

    /// The connection that sessiond was asked about, and its listener's number; `None` if it has ended since then.
    fn asked_about(&mut self, ticket: u64) -> Result<Option<(OwnedFd, usize)>, Fatal> {
        let Some(connection) = self.connections.get_mut(&ticket) else { return Ok(None) };
        match std::mem::replace(&mut connection.state, State::Ending) {
            State::Asked(fd, number) => Ok(Some((fd, number))),
            _ => Err(Fatal::new("hear sessiond", "it decides about a connection a second time")),
        }
    }

    fn refuse(&mut self, ticket: u64) -> Result<(), Fatal> {
        if self.asked_about(ticket)?.is_some() {
            self.counts.not_granted += 1;
            self.remove(ticket);
        }
        Ok(())
    }

    fn pass(&mut self, ticket: u64) -> Result<(), Fatal> {
        let Some((fd, number)) = self.asked_about(ticket)? else { return Ok(()) };
        let Some(connection) = self.connections.get_mut(&ticket) else { return Ok(()) };
        let Some(listener) = self.listeners.get(number) else { return Ok(()) };
        if !listener.relayed {
            let (service, user) = (connection.service.clone(), connection.user.clone());
            let start = ToStarter::Start { ticket, service, user, from: connection.from };
            if self.starter.send_with(&start, &[fd.as_fd()]) {
                connection.state = State::Handed(fd);
                self.counts.handed += 1;
            } else {
                self.counts.not_started += 1;
                self.remove(ticket);
            }
            return Ok(());
        }
        match Relay::connect(fd, connection.from.ip(), listener.address, connection.held) {
            Ok(relay) => {
                connection.state = State::Relayed(Box::new(relay));
                self.counts.relayed += 1;
                self.begin(ticket);
            }
            Err(_) => {
                self.counts.not_started += 1;
                self.remove(ticket);
            }
        }
        Ok(())
    }

    /// Moves what the client has said already, and waits for what comes after.
    fn begin(&mut self, ticket: u64) {
        let Some(connection) = self.connections.get_mut(&ticket) else { return };
        let State::Relayed(relay) = &mut connection.state else { return };
        self.unread.touch(ticket);
        let turn = relay.turn(Side::Front, true, false, &mut self.pipes).and_then(|turn| {
            let blocked = relay.blocked();
            for (side, socket) in [(Side::Front, &relay.front), (Side::Back, &relay.back)] {
                epoll::add(&self.epoll, socket, data(ticket, side), interest(blocked.contains(&side)))?;
            }
            Ok(turn)
        });
        self.moved(ticket, turn);
    }

    fn hear_starter(&mut self) -> Result<(), Fatal> {
        for _ in 0..TURN {
            let (ticket, started) = match self.starter.hear::<FromStarter>() {
                Ok(Some(FromStarter::Ended { ticket })) => (ticket, true),
                Ok(Some(FromStarter::Refused { ticket })) => (ticket, false),
                Ok(None) => return Ok(()),
                Err(why) => return Err(Fatal::new("hear process 1", why)),
            };
            match self.connections.get(&ticket).map(|connection| &connection.state) {
                // What it may have left behind does not keep the connection.
                Some(State::Handed(fd)) => {
                    let _ = rustix::net::shutdown(fd, Shutdown::Both);
                }
                Some(State::Ending) => {}
                _ => return Err(Fatal::new("hear process 1", "it speaks of a server that it has not got")),
            }
            self.counts.not_started += u64::from(!started);
            self.remove(ticket);
        }
        Ok(())
    }

    /// What happened at the relayed connections.
    fn go_on(&mut self) -> Result<(), Fatal> {
        let mut events = Vec::with_capacity(TURN);
        match epoll::wait(
            &self.epoll,
            rustix::buffer::spare_capacity(&mut events),
            Some(&Timespec::default()),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(Fatal::new("wait for connections", why)),
        }
        for epoll::Event { flags, data } in events {
            let token = data.u64();
            let side = if token & 1 == 0 { Side::Front } else { Side::Back };
            let writes =
                flags.intersects(epoll::EventFlags::OUT | epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            let reads = flags.intersects(
                epoll::EventFlags::IN
                    | epoll::EventFlags::RDHUP
                    | epoll::EventFlags::ERR
                    | epoll::EventFlags::HUP,
            );
            self.relay(token >> 1, side, reads, writes);
        }
        Ok(())
    }

    fn relay(&mut self, ticket: u64, side: Side, reads: bool, writes: bool) {
        // One that ended earlier in this turn may have an event left.
        let Some(connection) = self.connections.get_mut(&ticket) else { return };
        let State::Relayed(relay) = &mut connection.state else { return };
        self.unread.touch(ticket);
        let turn = relay.turn(side, reads, writes, &mut self.pipes).and_then(|turn| {
            let blocked = if turn == Turn::Waits { relay.blocked() } else { Vec::new() };
            for side in blocked {
                let socket = if side == Side::Front { &relay.front } else { &relay.back };
                epoll::modify(&self.epoll, socket, data(ticket, side), interest(true))?;
            }
            Ok(turn)
        });
        self.moved(ticket, turn);
    }

    /// What became of a turn of a relayed connection.
    fn moved(&mut self, ticket: u64, turn: Result<Turn, Errno>) {
        match turn {
            Ok(Turn::Waits) => {}
            Ok(Turn::More) => {
                if !self.busy.contains(&ticket) {
                    self.busy.push_back(ticket);
                }
            }
            Ok(Turn::Over) => self.let_go(ticket),
            Err(_) => {
                self.counts.broken += 1;
                self.let_go(ticket);
            }
        }
    }

    /// A relayed connection is over, once what was written is taken.
    fn let_go(&mut self, ticket: u64) {
        let Some(connection) = self.connections.get_mut(&ticket) else { return };
        let State::Relayed(relay) = &mut connection.state else { return };
        if !relay.lingers() {
            self.remove(ticket);
        }
    }

    /// Where too much is kept of connections that do not go on, some are broken off.
    fn break_off_unread(&mut self) {
        let connections = &self.connections;
        let slow = self.unread.look(|ticket| {
            let connection = connections.get(&ticket)?;
            let State::Relayed(relay) = &connection.state else { return None };
            let holder = Holder::of(connection.user.as_ref(), connection.from.ip());
            Some((holder, relay.moved, relay.kept()))
        });
        for ticket in unread::too_much(slow, unread::MOST) {
            self.counts.unread += 1;
            self.abort(ticket);
        }
    }

    /// Ends a relayed connection, and what the kernel has of it.
    fn abort(&mut self, ticket: u64) {
        if let Some(Connection { state: State::Relayed(relay), .. }) = self.connections.get(&ticket) {
            relay.abort();
        }
        self.remove(ticket);
    }

    fn end_session(&mut self, id: SessionId) -> Result<(), Fatal> {
        self.end_where(|connection| connection.client == Client::Session(id))
    }

    /// Ends what the records do not allow any more.
    fn end_disallowed(&mut self) -> Result<(), Fatal> {
        let records = std::mem::take(&mut self.records);
        let ended = self.end_where(|connection| {
            let found = records.find(connection.from.ip(), &connection.service);
            found.map(|(client, _)| client).as_ref() != Ok(&connection.client)
        });
        self.records = records;
        ended
    }

    /// Ends these connections. Once this has returned, no byte of those that are relayed will pass, also none that the kernel had; of those that were handed off
    /// none that was not written before.
    fn end_where(&mut self, is: impl Fn(&Connection) -> bool) -> Result<(), Fatal> {
        let these = self.connections.iter().filter(|(_, connection)| is(connection));
        for ticket in these.map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            let Some(connection) = self.connections.get_mut(&ticket) else { continue };
            match &connection.state {
                State::Ending => continue,
                State::Asked(..) | State::Relayed(_) => self.abort(ticket),
                State::Handed(fd) => {
                    // Who is not connected any more needs no end.
                    let _ = rustix::net::shutdown(fd, Shutdown::Both);
                    connection.state = State::Ending;
                    self.ending.push_back((Instant::now() + GRACE, ticket));
                    self.end_server(ticket, false);
                }
            }
            self.counts.ended += 1;
        }
        Ok(())
    }

    fn end_server(&mut self, ticket: u64, at_once: bool) {
        self.starter.send(ToStarter::End { ticket, at_once });
    }

    /// Kills server processes that outstay their session.
    fn kill_late(&mut self) -> Result<(), Fatal> {
        while let Some((_, ticket)) = self.ending.front().copied().filter(|(at, _)| *at <= Instant::now()) {
            self.ending.pop_front();
            // It stays until process 1 says that the process has ended.
            if self.connections.contains_key(&ticket) {
                self.end_server(ticket, true);
            }
        }
        Ok(())
    }

    /// Nothing is left of a connection.
    fn remove(&mut self, ticket: u64) {
        let Some(connection) = self.connections.remove(&ticket) else { return };
        let shares = if connection.relayed { &mut self.relayed } else { &mut self.handed };
        shares.give_back(&Holder::of(connection.user.as_ref(), connection.from.ip()));
    }

    fn report(&self) -> Vec<(String, u64)> {
        let c = &self.counts;
        let open = self.connections.len() as u64;
        let all = [
            ("connections open", open),
            ("connections handed off", c.handed),
            ("connections relayed", c.relayed),
            ("connections refused: no record", c.no_record),
            ("connections refused: service not in the record", c.no_service),
            ("connections refused: too many", c.no_room),
            ("connections refused: too many of one person or host", c.no_share),
            ("connections refused: not granted", c.not_granted),
            ("connections refused: not started", c.not_started),
            ("connections ended with their session", c.ended),
            ("connections broken off", c.broken),
            ("connections broken off: too much of them unread", c.unread),
        ];
        all.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }
}

/// A side of a relayed connection, as epoll knows it.
fn data(ticket: u64, side: Side) -> epoll::EventData {
    epoll::EventData::new_u64(ticket << 1 | u64::from(side == Side::Back))
}

/// What a side is waited for: that it can be written to only since it once could not.
fn interest(writes: bool) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    flags.set(epoll::EventFlags::OUT, writes);
    flags
}
