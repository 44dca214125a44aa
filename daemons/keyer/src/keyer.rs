//! The keyer's loop: who may have keys comes from sessiond (or the TPE), keys go to one vault, and nothing stays.

use crate::agree::{Ephemeral, Pair, Side, Unusable, spi};
use levee_ipc::keyer::{FromKeyer, KeyOffer, ToKeyer};
use levee_ipc::vault::{KeyerToVault, Suite, VaultToKeyer};
use levee_ipc::warden::{Attachment, CONTROL_FD, FromWarden, Place, Role, ToWarden};
use levee_ipc::{Channel, Received, RecvError, SendError};
use levee_policy::LabelName;
use levee_session::SessionId;
use levee_sys::sandbox::Sandbox;
use levee_sys::seccomp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A workstation has one vault, in this slot.
const WORKSTATION_SLOT: u16 = 1;
/// The suite a workstation offers.
const SUITE: Suite = Suite::Aes256Gcm;
/// How long a vault may take to say that it has its keys.
const INSTALL_DEADLINE: Duration = Duration::from_secs(2);
/// How long an offer may wait for the server's answer.
const OFFER_LIFE: Duration = Duration::from_secs(60);
/// How long packets under replaced keys may still arrive.
const OVERLAP: Duration = Duration::from_secs(10);
/// The most sessions, offers and pending installations; a request beyond them fails.
const MAX_SESSIONS: usize = 65_536;
const MAX_OFFERS: usize = 16;

struct Vault {
    channel: Channel,
    slot: u16,
}

struct Session {
    label: LabelName,
    /// Inbound SPIs in the vault, newest last, and when each was replaced.
    installed: Vec<(u32, Option<Instant>)>,
}

struct Pending {
    session: SessionId,
    since: Instant,
    /// What the asker gets once the vault has its keys.
    answer: Option<KeyOffer>,
}

struct Offer {
    ephemeral: Ephemeral,
    since: Instant,
}

struct Keyer {
    control: Channel,
    place: Option<Place>,
    asker: Option<Channel>,
    vaults: BTreeMap<LabelName, Vault>,
    sessions: BTreeMap<SessionId, Session>,
    pending: BTreeMap<(LabelName, u32), Pending>,
    offers: BTreeMap<u64, Offer>,
    /// Descriptors of a job that this keyer does not do yet, held open for the steering group's sake.
    held: Vec<OwnedFd>,
}

/// Takes part in the warden's start-up, then serves until the warden says stop or is gone.
pub fn serve() -> Result<(), String> {
    let control = levee_sys::fork::inherited(CONTROL_FD).map_err(|e| e.to_string())?;
    let mut keyer = Keyer {
        control: Channel::from_fd(control),
        place: None,
        asker: None,
        vaults: BTreeMap::new(),
        sessions: BTreeMap::new(),
        pending: BTreeMap::new(),
        offers: BTreeMap::new(),
        held: Vec::new(),
    };
    while keyer.place.is_none() {
        match keyer.control.recv::<FromWarden>() {
            Ok(received) => {
                if !keyer.hear_warden(received) {
                    return Ok(());
                }
            }
            Err(RecvError::Closed) => return Ok(()),
            Err(error) => return Err(format!("from the warden: {error}")),
        }
    }
    Sandbox::new(seccomp::KEYER).enter().map_err(|e| e.to_string())?;
    keyer.control.send(&ToWarden::Ready).map_err(|e| format!("to the warden: {e}"))?;
    while keyer.turn()? {}
    Ok(())
}

impl Keyer {
    /// Waits for something, and does it. False when it is time to end.
    fn turn(&mut self) -> Result<bool, String> {
        let labels: Vec<LabelName> = self.vaults.keys().cloned().collect();
        let mut fds = vec![PollFd::new(&self.control, PollFlags::IN)];
        fds.extend(self.asker.iter().map(|asker| PollFd::new(asker, PollFlags::IN)));
        fds.extend(self.vaults.values().map(|vault| PollFd::new(&vault.channel, PollFlags::IN)));
        let idle = self.pending.is_empty() && self.offers.is_empty() && !self.replaced();
        let tick = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
        match poll(&mut fds, if idle { None } else { Some(&tick) }) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("poll: {error}")),
        }
        drop(fds);
        if !self.hear_control()? || !self.hear_asker()? {
            return Ok(false);
        }
        for label in labels {
            self.hear_vault(&label);
        }
        self.expire();
        Ok(true)
    }

    fn hear_warden(&mut self, received: Received<FromWarden>) -> bool {
        match received.message {
            FromWarden::Attach(ref attachment) => {
                let attachment = attachment.clone();
                if let Some(fd) = received.into_fd() {
                    self.attach(attachment, fd);
                }
            }
            FromWarden::Begin(place) => self.place = Some(place),
            FromWarden::Stop => return false,
            _ => {}
        }
        true
    }

    fn attach(&mut self, attachment: Attachment, fd: OwnedFd) {
        match attachment {
            Attachment::Peer { role: Role::Sessiond | Role::Tpe, .. } => {
                self.asker = Some(Channel::from_fd(fd))
            }
            Attachment::Peer { role: Role::Vault, label: Some(label), slot: Some(slot) } => {
                self.vaults.insert(label.clone(), Vault { channel: Channel::from_fd(fd), slot });
                self.vault_lost(&label, "the vault was started anew");
                // The new vault has no keys. Whose sessions those are is for the asker to know too: it opens
                // them in the vault before it asks for keys again.
                let renew: Vec<SessionId> =
                    self.sessions.iter_mut().filter(|(_, s)| s.label == label).map(|(id, _)| *id).collect();
                for session in renew {
                    self.tell(&FromKeyer::Renew(session));
                }
            }
            Attachment::Udp(_) => self.held.push(fd),
            _ => {}
        }
    }

    fn tell(&mut self, message: &FromKeyer) {
        if let Some(asker) = &self.asker
            && let Err(SendError::Closed) = asker.try_send(message)
        {
            self.asker = None;
        }
    }

    fn fail(&mut self, session: Option<SessionId>, ticket: Option<u64>, reason: &str) {
        self.tell(&FromKeyer::Failed { session, ticket, reason: reason.to_owned() });
    }

    fn hear_control(&mut self) -> Result<bool, String> {
        loop {
            match self.control.try_recv::<FromWarden>() {
                Ok(received) => {
                    if !self.hear_warden(received) {
                        return Ok(false);
                    }
                }
                Err(RecvError::Empty) => return Ok(true),
                Err(RecvError::Closed) => return Ok(false),
                Err(error) => return Err(format!("from the warden: {error}")),
            }
        }
    }

    fn hear_asker(&mut self) -> Result<bool, String> {
        while let Some(asker) = &self.asker {
            match asker.try_recv::<ToKeyer>() {
                Ok(Received { message, .. }) => {
                    // Whoever asks for keys knows of a vault that was attached before: so must we.
                    if !self.hear_control()? {
                        return Ok(false);
                    }
                    self.serve_asker(message);
                }
                Err(RecvError::Empty) => break,
                Err(_) => self.asker = None,
            }
        }
        Ok(true)
    }

    fn serve_asker(&mut self, message: ToKeyer) {
        match (message, self.place) {
            (ToKeyer::Agree { session, label, offer }, Some(Place::Server)) => {
                if let Err(Unusable(reason)) = self.agree(session, label, &offer) {
                    self.fail(Some(session), None, reason);
                }
            }
            (ToKeyer::Offer { ticket }, Some(Place::Workstation)) => match self.offer(ticket) {
                Ok(offer) => self.tell(&FromKeyer::Offered { ticket, offer }),
                Err(Unusable(reason)) => self.fail(None, Some(ticket), reason),
            },
            (ToKeyer::Complete { ticket, session, label, answer, server }, Some(Place::Workstation)) => {
                if let Err(Unusable(reason)) = self.complete(ticket, session, label, &answer, server) {
                    self.fail(Some(session), Some(ticket), reason);
                }
            }
            (ToKeyer::Revoke(session), _) => self.revoke(session),
            (ToKeyer::Agree { session, .. }, _) => self.fail(Some(session), None, "this is not a server"),
            (ToKeyer::Offer { ticket } | ToKeyer::Complete { ticket, .. }, _) => {
                self.fail(None, Some(ticket), "this is not a workstation");
            }
        }
    }

    fn agree(&mut self, session: SessionId, label: LabelName, offer: &KeyOffer) -> Result<(), Unusable> {
        self.admit(session, &label)?;
        let slot = self.vaults.get(&label).ok_or(Unusable("no vault runs at this label"))?.slot;
        let ephemeral = Ephemeral::new(spi(slot)?, offer.suite)?;
        let answer = ephemeral.offer().clone();
        let pair = ephemeral.derive(Side::Server, offer, session, &label)?;
        self.install(session, label, pair, answer.suite, None, Some(answer))
    }

    fn offer(&mut self, ticket: u64) -> Result<KeyOffer, Unusable> {
        if self.offers.len() >= MAX_OFFERS {
            return Err(Unusable("too many offers wait for an answer"));
        }
        let ephemeral = Ephemeral::new(spi(WORKSTATION_SLOT)?, SUITE)?;
        let offer = ephemeral.offer().clone();
        self.offers.insert(ticket, Offer { ephemeral, since: Instant::now() });
        Ok(offer)
    }

    fn complete(
        &mut self,
        ticket: u64,
        session: SessionId,
        label: LabelName,
        answer: &KeyOffer,
        server: SocketAddr,
    ) -> Result<(), Unusable> {
        let Offer { ephemeral, .. } = self.offers.remove(&ticket).ok_or(Unusable("no such offer"))?;
        self.admit(session, &label)?;
        if self.vaults.get(&label).is_none_or(|vault| vault.slot != WORKSTATION_SLOT) {
            return Err(Unusable("no vault runs at this label"));
        }
        let pair = ephemeral.derive(Side::Workstation, answer, session, &label)?;
        self.install(session, label, pair, answer.suite, Some(server), None)
    }

    /// A session has one label for ever: keys for another label would be another session's.
    fn admit(&mut self, session: SessionId, label: &LabelName) -> Result<(), Unusable> {
        match self.sessions.get(&session) {
            Some(known) if known.label != *label => Err(Unusable("the session is at another label")),
            Some(_) => Ok(()),
            None if self.sessions.len() >= MAX_SESSIONS => Err(Unusable("too many sessions")),
            None => {
                self.sessions.insert(session, Session { label: label.clone(), installed: Vec::new() });
                Ok(())
            }
        }
    }

    /// Hands a pair of keys to the vault of `label`. They are erased here when this returns.
    fn install(
        &mut self,
        session: SessionId,
        label: LabelName,
        pair: Pair,
        suite: Suite,
        peer: Option<SocketAddr>,
        answer: Option<KeyOffer>,
    ) -> Result<(), Unusable> {
        let vault = self.vaults.get(&label).ok_or(Unusable("no vault runs at this label"))?;
        let spi = pair.inbound.spi;
        let Pair { inbound, outbound } = pair;
        let install = KeyerToVault::Install { session, suite, esn: true, inbound, outbound, peer };
        let sent = vault.channel.try_send(&install);
        // The encoder's frames held the keys for a moment.
        levee_sys::wipe::scrub_stack();
        sent.map_err(|_| Unusable("the vault does not take messages"))?;
        self.pending.insert((label, spi), Pending { session, since: Instant::now(), answer });
        Ok(())
    }

    fn revoke(&mut self, session: SessionId) {
        self.pending.retain(|_, pending| pending.session != session);
        if let Some(gone) = self.sessions.remove(&session)
            && let Some(vault) = self.vaults.get(&gone.label)
        {
            for (spi, _) in gone.installed {
                // sessiond closes the session in the vault itself; this only tidies up sooner.
                let _ = vault.channel.try_send(&KeyerToVault::Delete { spi });
            }
        }
    }

    fn hear_vault(&mut self, label: &LabelName) {
        while let Some(vault) = self.vaults.get(label) {
            match vault.channel.try_recv::<VaultToKeyer>() {
                Ok(Received { message, .. }) => self.serve_vault(label, message),
                Err(RecvError::Empty) => return,
                Err(_) => {
                    self.vaults.remove(label);
                    self.vault_lost(label, "the vault is gone");
                }
            }
        }
    }

    fn serve_vault(&mut self, label: &LabelName, message: VaultToKeyer) {
        match message {
            VaultToKeyer::Installed { spi } => {
                let Some(Pending { session, answer, .. }) = self.pending.remove(&(label.clone(), spi)) else {
                    return;
                };
                if let Some(known) = self.sessions.get_mut(&session) {
                    let now = Instant::now();
                    for (_, replaced) in &mut known.installed {
                        replaced.get_or_insert(now);
                    }
                    known.installed.push((spi, None));
                }
                self.tell(&match answer {
                    Some(answer) => FromKeyer::Agreed { session, answer },
                    None => FromKeyer::Completed { session },
                });
            }
            VaultToKeyer::Refused { spi, reason } => {
                if let Some(Pending { session, .. }) = self.pending.remove(&(label.clone(), spi)) {
                    self.fail(Some(session), None, &format!("the vault refused the keys: {reason:?}"));
                }
            }
            VaultToKeyer::Acquire(session) | VaultToKeyer::Expiring { session, .. } => {
                // A vault speaks for its own label's sessions alone.
                if self.sessions.get(&session).is_some_and(|known| known.label == *label) {
                    self.tell(&FromKeyer::Renew(session));
                }
            }
        }
    }

    /// The label's vault has lost every key it had or was about to have.
    fn vault_lost(&mut self, label: &LabelName, reason: &str) {
        for session in self.sessions.values_mut().filter(|session| session.label == *label) {
            session.installed.clear();
        }
        let lost: Vec<(LabelName, u32)> =
            self.pending.keys().filter(|(at, _)| at == label).cloned().collect();
        for key in lost {
            if let Some(pending) = self.pending.remove(&key) {
                self.fail(Some(pending.session), None, reason);
            }
        }
    }

    fn replaced(&self) -> bool {
        self.sessions.values().any(|session| session.installed.len() > 1)
    }

    /// What has waited too long.
    fn expire(&mut self) {
        self.offers.retain(|_, offer| offer.since.elapsed() < OFFER_LIFE);
        let late: Vec<(LabelName, u32)> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.since.elapsed() >= INSTALL_DEADLINE)
            .map(|(key, _)| key.clone())
            .collect();
        for (label, spi) in late {
            let Some(pending) = self.pending.remove(&(label.clone(), spi)) else { continue };
            if let Some(vault) = self.vaults.get(&label) {
                let _ = vault.channel.try_send(&KeyerToVault::Delete { spi });
            }
            self.fail(Some(pending.session), None, "the vault does not answer");
        }
        for session in self.sessions.values_mut() {
            let Some(vault) = self.vaults.get(&session.label) else { continue };
            session.installed.retain(|(spi, replaced)| {
                let over = replaced.is_some_and(|since| since.elapsed() >= OVERLAP);
                // A vault that is too busy for this is asked again in the next turn.
                !(over && vault.channel.try_send(&KeyerToVault::Delete { spi: *spi }).is_ok())
            });
        }
    }
}
