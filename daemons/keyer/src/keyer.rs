//! The loop: what is heard goes to the state machine, what that says is done.

use crate::children::Children;
use crate::exchanges::Agreed;
use crate::net::{LONGEST, Received, Sockets};
use crate::server::Server;
use crate::signer::Signer;
use crate::source::Source;
use crate::start::{Authority, Started};
use crate::timers::{Timer, Timers};
use crate::workstation::Workstation;
use levee_daemon::{Descriptors, Events, Fatal, Order, Outbox, TURN, Warden};
use levee_ike::{
    CloseReason, Command, CommandError, Endpoint, Event, IkeId, IkeProposal, Now, Output, Random,
};
use levee_ipc::keyer::{FromKeyer, ToKeyer};
use levee_ipc::vault::{KeyerToVault, VaultToKeyer};
use levee_ipc::warden::Place;
use levee_ipc::warden::keyer::KeyerPart;
use levee_policy::LabelName;
use levee_session::SessionId;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often what was dropped is reported.
const REPORT: Duration = Duration::from_secs(10);
/// Reasons that are told apart between two reports: a stranger makes some of them up, and with those that the state machine counts they have
/// to fit into one message.
const REASONS: usize = 32;
/// All beyond them.
const OTHERS: &str = "IKE: what else there was";
/// Sockets that a workstation keeps: the session's, and one of the session before, whose end it may still have to say.
const WORKSTATION_SOCKETS: usize = 2;

/// The kernel's random octets.
#[derive(Debug)]
pub struct Kernel(SystemRandom);

impl Random for Kernel {
    fn fill(&mut self, out: &mut [u8]) {
        // Without random octets there is nothing that could be done safely, not even an orderly end.
        if self.0.fill(out).is_err() {
            std::process::abort();
        }
    }
}

/// The workers of a label's vault, each by the steering slot that its SPIs name.
pub type Workers = BTreeMap<u16, Outbox<KeyerToVault>>;

/// Everything that the keyer holds.
pub struct Keyer {
    events: Events<Source>,
    warden: Warden<KeyerPart>,
    pub(crate) place: Place,
    pub(crate) endpoint: Endpoint,
    pub(crate) authority: Authority,
    pub(crate) random: Kernel,
    pub(crate) sockets: Sockets,
    /// Where datagrams are read to.
    buffer: Vec<u8>,
    pub(crate) asker: Outbox<FromKeyer>,
    signer: Signer,
    pub(crate) vaults: BTreeMap<LabelName, Workers>,
    pub(crate) children: Children,
    pub(crate) agreed: Agreed,
    /// What the site's suites have.
    pub(crate) proposals: Vec<IkeProposal>,
    pub(crate) server: Server,
    pub(crate) workstation: Workstation,
    pub(crate) timers: Timers,
    /// When the state machine's next timer is due.
    due: Option<Duration>,
    began: Instant,
    dropped: BTreeMap<String, u64>,
    reported: levee_ike::Counters,
}

/// Serves until the warden says stop or is gone.
///
/// # Errors
/// When the warden sends what is no message.
pub fn serve(started: Started) -> Result<(), Fatal> {
    let mut keyer = Keyer::new(started)?;
    while keyer.turn()? {}
    Ok(())
}

impl Keyer {
    fn new(started: Started) -> Result<Self, Fatal> {
        let Started { events, warden, place, config, authority, sockets, steering, channels } = started;
        let mut keyer = Self {
            events,
            warden,
            place,
            proposals: config.ike.clone(),
            endpoint: Endpoint::new(config),
            authority,
            random: Kernel(SystemRandom::new()),
            sockets,
            buffer: vec![0; LONGEST],
            asker: Outbox::new(),
            signer: Signer::default(),
            vaults: BTreeMap::new(),
            children: Children::new(steering),
            agreed: Agreed::default(),
            server: Server::default(),
            workstation: Workstation::default(),
            timers: Timers::default(),
            due: None,
            began: Instant::now(),
            dropped: BTreeMap::new(),
            reported: levee_ike::Counters::default(),
        };
        for (part, with) in channels {
            keyer.take(part, with)?;
        }
        keyer.at(REPORT, Timer::Report);
        Ok(keyer)
    }

    /// Now, on both clocks.
    pub(crate) fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Now { monotonic: self.began.elapsed(), unix_seconds: unix }
    }

    /// Sets a timer, so far from now.
    pub(crate) fn at(&mut self, wait: Duration, timer: Timer) {
        self.timers.set(self.began.elapsed().saturating_add(wait), timer);
    }

    /// A random number below `most`, for times that must not be the same everywhere.
    pub(crate) fn jitter(&mut self, most: Duration) -> Duration {
        let mut octets = [0; 4];
        self.random.fill(&mut octets);
        most.mul_f64(f64::from(u32::from_be_bytes(octets)) / f64::from(u32::MAX))
    }

    /// Gives the state machine a wish or an answer.
    pub(crate) fn command(&mut self, command: Command) -> Result<(), CommandError> {
        let now = self.now();
        self.endpoint.command(command, now, &mut self.random)
    }

    /// Counts what anybody can cause.
    pub(crate) fn count(&mut self, what: impl Into<String>) {
        let what = what.into();
        let is_told = self.dropped.len() < REASONS || self.dropped.contains_key(&what);
        *self.dropped.entry(if is_told { what } else { OTHERS.to_owned() }).or_default() += 1;
    }

    /// Waits for something, and does it. False when it is time to end.
    fn turn(&mut self) -> Result<bool, Fatal> {
        let first = self.timers.first();
        let next = [first, self.due].into_iter().flatten().min();
        let limit = next.map(|at| at.saturating_sub(self.began.elapsed()));
        let ends = self.server.first_end().into_iter().chain(self.workstation.first_end()).min();
        let ends = ends.map(|end| Duration::from_secs(end.saturating_sub(self.now().unix_seconds)));
        self.hear(limit.into_iter().chain(ends).min())
    }

    /// As [`Keyer::turn`], waiting no longer than this.
    fn hear(&mut self, limit: Option<Duration>) -> Result<bool, Fatal> {
        for (source, _) in self.events.wait(limit)? {
            match source {
                Source::Warden => {
                    if !self.hear_warden()? {
                        return Ok(false);
                    }
                }
                Source::Asker => self.hear_asker(),
                Source::Signer => self.hear_signer(),
                Source::Vault(label, slot) => self.hear_vault(&label, slot),
                Source::Socket(number) => self.hear_peers(number),
            }
        }
        self.drive();
        self.ring();
        self.see_to_certificates();
        self.drive();
        Ok(true)
    }

    fn hear_warden(&mut self) -> Result<bool, Fatal> {
        while let Some(order) = self.warden.hear()? {
            match order {
                Order::Stop => return Ok(false),
                Order::Take(part, with) => self.take(part, with)?,
            }
        }
        Ok(true)
    }

    fn take(&mut self, part: KeyerPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            KeyerPart::Sessiond => {
                self.asker.replace(with.channel()?, &mut self.events, Source::Asker)?;
                self.asker_lost();
                if self.place == Place::Server {
                    self.give_passes();
                    self.tell_ppks();
                }
            }
            KeyerPart::Signer => {
                for refused in self.signer.replace(with.channel()?, &mut self.events)? {
                    let _ = self.command(refused);
                }
            }
            KeyerPart::Vault { label, slot } => {
                let mut channel = Outbox::of_one();
                channel.replace(with.channel()?, &mut self.events, Source::Vault(label.clone(), slot))?;
                self.vaults.entry(label.clone()).or_default().insert(slot, channel);
                self.vault_lost(&label, slot);
            }
            KeyerPart::Revocations => self.revocations(&with.one()?),
            KeyerPart::Udp(address) => {
                self.sockets.add(with.one()?, address, true, &mut self.events)?;
                if self.place == Place::Workstation {
                    self.sockets.keep(WORKSTATION_SOCKETS);
                }
            }
            part => return Err(Warden::unwanted(&part)),
        }
        Ok(())
    }

    fn hear_peers(&mut self, number: u64) {
        let mut buffer = std::mem::take(&mut self.buffer);
        for _ in 0..TURN {
            let (datagrams, path) = match self.sockets.receive(number, &mut buffer) {
                Received::Datagrams(datagrams, path) => (datagrams, path),
                Received::Nothing => break,
                Received::Nonsense => continue,
            };
            for datagram in datagrams {
                let now = self.now();
                let host = self.endpoint.whose(datagram, path).and_then(|ike| self.server.host_of(ike));
                if host.is_some_and(|host| self.server.shares.is_spent(host, now.monotonic)) {
                    // It is lost: whoever means it says it again.
                    self.count("IKE: what a host says that has had its part of the time");
                    continue;
                }
                let host = host.cloned();
                self.endpoint.handle(datagram, path, now, &mut self.random);
                let after = self.now();
                let took = after.monotonic.saturating_sub(now.monotonic);
                self.endpoint.took(took, after);
                if let Some(host) = host {
                    self.server.shares.spend(&host, took, after.monotonic);
                }
                self.drive();
            }
        }
        self.buffer = buffer;
    }

    fn hear_asker(&mut self) {
        for _ in 0..TURN {
            let message = match self.asker.hear::<ToKeyer>() {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(_) => return self.asker_lost(),
            };
            match (message, self.place) {
                (ToKeyer::Answer { ticket, record }, Place::Server) => self.answered(ticket, record),
                (ToKeyer::Renew(record), Place::Server) => self.renew(record),
                (ToKeyer::Connect { record, server, passes }, Place::Workstation) => {
                    self.connect(record, server, passes);
                }
                (ToKeyer::MorePasses, Place::Server) => self.give_passes(),
                (ToKeyer::Admit { record, server, name }, Place::Workstation) => {
                    self.admit(record, server, &name);
                }
                (ToKeyer::Keying(label, keying), Place::Server) => self.move_to(label, keying),
                (ToKeyer::Revoke(session), _) => self.revoke(session),
                // Not for this place.
                _ => self.count("messages of the wrong kind to the keyer"),
            }
            self.drive();
        }
    }

    fn hear_signer(&mut self) {
        for answer in self.signer.hear() {
            // The IKE SA may have ended meanwhile.
            let _ = self.command(answer);
            self.drive();
        }
    }

    fn hear_vault(&mut self, label: &LabelName, slot: u16) {
        for _ in 0..TURN {
            let Some(workers) = self.vaults.get_mut(label) else { return };
            let Some(channel) = workers.get_mut(&slot) else { return };
            let message = match channel.hear::<VaultToKeyer>() {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(_) => {
                    workers.remove(&slot);
                    if workers.is_empty() {
                        self.vaults.remove(label);
                    }
                    return self.vault_lost(label, slot);
                }
            };
            self.serve_vault(label, slot, message);
            self.drive();
        }
    }

    fn serve_vault(&mut self, label: &LabelName, slot: u16, message: VaultToKeyer) {
        match message {
            VaultToKeyer::Installed { spi } => {
                if self.place == Place::Workstation
                    && let Some(session) = self.children.session(spi)
                {
                    self.installed(session);
                }
            }
            VaultToKeyer::Refused { spi, reason } => {
                self.count(format!("a vault refused keys: {reason:?}"));
                self.not_installed(label, slot, spi, &format!("the vault refused the keys: {reason:?}"));
            }
            VaultToKeyer::Acquire(session) => {
                // A vault speaks for its own label's sessions alone.
                if self.children.label(session) == Some(label) {
                    self.at_its_word(label, |keyer| keyer.acquire(session, slot));
                }
            }
            VaultToKeyer::Expiring { spi, session } => {
                if self.children.label(session) == Some(label) && self.children.slot_of(spi) == slot {
                    self.at_its_word(label, |keyer| keyer.rekey(spi));
                }
            }
        }
    }

    /// Begins an exchange because a vault says so. A server's serve many hosts, and the time is all labels'; one that waits for keys says so
    /// again, also when its pair has ended without another.
    fn at_its_word(&mut self, label: &LabelName, begin: impl FnOnce(&mut Self)) {
        let now = self.now().monotonic;
        if self.place == Place::Server && !self.server.at_their_word.may(label, now) {
            self.count("what a label's vaults ask for beyond so many exchanges a second");
            return;
        }
        let before = self.children.under_way();
        begin(self);
        if self.children.under_way() > before {
            self.server.at_their_word.begun(label, now);
        }
    }

    /// Does all that the state machine has to say. Keys go to their vault before the message that tells the peer of
    /// them goes out, so that its first packet finds them there.
    fn drive(&mut self) {
        let mut datagrams = Vec::new();
        loop {
            let now = self.now();
            match self.endpoint.poll(now, &mut self.random) {
                Output::Transmit { path, datagram } => datagrams.push((path, datagram)),
                Output::Event(event) => self.happened(event),
                Output::Wait(due) => {
                    self.due = due;
                    break;
                }
            }
        }
        for (path, datagram) in datagrams {
            self.sockets.send(path, &datagram);
        }
    }

    fn happened(&mut self, event: Event) {
        match event {
            Event::Sign { request, octets, .. } => {
                if let Some(refused) = self.signer.sign(request, octets) {
                    let _ = self.command(refused);
                }
            }
            Event::MixPpk { request, id, prf, keys, .. } => {
                if let Some(refused) = self.signer.mix(request, &id, prf, &keys) {
                    let _ = self.command(refused);
                }
            }
            Event::IkeEstablished { ike, role, peer, identity, initial_contact, ppk, suite, .. } => {
                match self.place {
                    Place::Server => {
                        self.agreed(ike, suite);
                        if self.peer_came(ike, peer, &identity, initial_contact) {
                            self.see_to_ppk(peer, &identity, ppk.as_deref());
                        }
                    }
                    Place::Workstation => self.server_came(ike, role, identity.certificate),
                }
            }
            Event::IkeRekeyed { ike, suite } => {
                if self.place == Place::Server {
                    self.agreed_anew(ike, suite);
                }
            }
            Event::IkeNotRekeyed { ike, .. } => self.not_agreed_anew(ike),
            Event::PathChanged { .. } => {}
            Event::IkeRekeyDue { ike } => {
                let _ = self.command(Command::RekeyIke { ike });
            }
            Event::IkeClosed { ike, reason, children } => {
                for spi in children {
                    self.child_gone(spi, false);
                }
                self.closed(ike, &reason);
            }
            Event::ChildRequested(request) => match self.place {
                Place::Server => self.asked_by_peer(request),
                Place::Workstation => self.asked_by_server(&request),
            },
            Event::ChildEstablished(child) => self.established(child),
            Event::ChildFailed { ike, inbound, rekeys, reason } => {
                self.child_failed(ike, inbound, rekeys, &reason);
            }
            Event::ChildClosed { inbound, reason, .. } => {
                self.child_gone(inbound, reason == levee_ike::ChildClosed::Rekeyed);
            }
        }
    }

    /// An IKE SA is gone, and its children.
    fn closed(&mut self, ike: IkeId, reason: &CloseReason) {
        self.children.forget(ike);
        self.agreed.forget(ike);
        match self.place {
            Place::Server => self.peer_gone(ike, reason),
            Place::Workstation => self.server_gone(ike, reason),
        }
    }

    /// The session is over.
    fn revoke(&mut self, session: SessionId) {
        for (ike, inbound) in self.children.end(session) {
            // It may be on its way out already.
            let _ = self.command(Command::CloseChild { ike, inbound });
        }
        if self.place == Place::Workstation {
            self.disconnect(session);
        }
    }

    /// Nobody is there any more who would answer what was asked.
    fn asker_lost(&mut self) {
        for request in self.server.unanswered() {
            let decision = levee_ike::ChildDecision::Refuse;
            let _ = self.command(Command::Decide { request, decision });
        }
    }

    /// Does what is due.
    fn ring(&mut self) {
        let now = self.began.elapsed();
        while let Some(timer) = self.timers.due(now) {
            match timer {
                Timer::Rekey(inbound) => self.rekey(inbound),
                Timer::Expire(inbound) => self.expire(inbound),
                Timer::Forget(label, _, spi) => {
                    self.erase(&label, spi);
                }
                Timer::Settle(session) => self.settle(session),
                Timer::Connect(session) => self.connect_again(session),
                Timer::Leave(session, ike) => self.leave(session, ike),
                Timer::Change(session) => self.change_part(session),
                Timer::Report => {
                    self.report();
                    self.at(REPORT, Timer::Report);
                }
            }
        }
    }

    fn report(&mut self) {
        let counters = self.endpoint.counters().clone();
        for (why, count) in counters.iter() {
            let new = count.saturating_sub(self.reported.get(why));
            if new > 0 {
                let what = match why {
                    levee_ike::Drop::NoProposal => {
                        "IKE: a peer offers no algorithms that this site takes".to_owned()
                    }
                    why => format!("IKE datagrams dropped: {}", why.as_str()),
                };
                *self.dropped.entry(what).or_default() += new;
            }
        }
        self.reported = counters;
        if self.place == Place::Server && !self.dropped.is_empty() {
            let dropped = std::mem::take(&mut self.dropped).into_iter().collect();
            self.asker.send(FromKeyer::Dropped(dropped));
        }
        self.dropped.clear();
    }
}

#[cfg(test)]
pub mod tests;
