//! Trusted paths: who is at the other end, what they ask, and what they are answered.

use super::{Certificate, Daemon, Source};
use crate::convert;
use crate::known::{Subject, digest_of};
use crate::passwords::{self, Job, Seen};
use levee_daemon::{Bound, Can, Lost, Outbox, TURN};
use levee_ipc::client::{ChildToSessiond, Dropped, Request as Asked, TpsToSessiond};
use levee_ipc::device::{Passport, Proof};
use levee_ipc::keyer::ToKeyer;
use levee_ipc::warden::Role;
use levee_ipc::{Channel, Received, Secret, client};
use levee_policy::audit::{Action, Event as Entry, Verdict};
use levee_policy::{HostName, UserName};
use levee_session::{ClientId, Event, RefusalKind, Reply, Request, SessionId, Time, Verified};
use std::collections::BTreeSet;
use zeroize::Zeroizing;

/// The most trusted paths at a time, in all: 10,000 sessions, and some that come back before their old path is known to be gone.
const MAX_CLIENTS: usize = 12_288;
/// Of these, so many that have not shown whose they are: a device that has shows it in two turns, and has eight at most. Beyond that the
/// oldest gives way.
const MAX_UNSHOWN: usize = 1_024;
/// So many show it in a turn, each by two signatures: everybody else is heard in between.
const PROOFS: usize = 16;

/// The most causes in one message of the trusted path's server.
const MAX_DROPPED: usize = 512;
/// How connections end that come to something.
const ORDINARY: [&str; 4] = ["closed", "lost", "idle", "must_show_its_certificate_again"];
/// What a client sent along that the state machine does not see.
pub(super) enum Kept {
    Login(Secret, Option<Secret>),
    Passwd(Secret, Secret),
    /// The new password's hash, until it may be stored, and in the place of what.
    Hash(Zeroizing<String>, Seen),
}

/// How far a trusted path has shown whose it is.
pub(super) enum Shown {
    /// Its tps child has not said that TLS is up.
    Nothing,
    /// TLS is up, and its keys make this number.
    Tls([u8; 32]),
    /// The device is to sign this number for that connection.
    Asked { exporter: [u8; 32], nonce: [u8; 32] },
    /// The device has proved that it is this one, by a certificate of this serial number.
    Device(HostName, Vec<u8>),
}

pub(super) struct Client {
    link: Outbox<client::Reply>,
    shown: Shown,
    kept: Option<Kept>,
}

impl Client {
    fn device(&self) -> Option<&HostName> {
        match &self.shown {
            Shown::Device(device, _) => Some(device),
            Shown::Nothing | Shown::Tls(_) | Shown::Asked { .. } => None,
        }
    }

    /// Whether it has shown one of these certificates.
    pub(super) fn has_shown(&self, is_one: impl Fn(&[u8]) -> bool) -> bool {
        matches!(&self.shown, Shown::Device(_, serial) if is_one(serial))
    }
}

impl Daemon {
    pub(super) fn hear_tps(&mut self) {
        for _ in 0..TURN {
            match self.tps.hear_with::<TpsToSessiond>() {
                Ok(Some(Received { message: TpsToSessiond::Client(_), mut fds })) => {
                    let now = self.clock.now();
                    if self.clients.len() >= MAX_CLIENTS {
                        self.counts.add_many("trusted paths beyond the most there may be", 1, now);
                    } else if let (Some(fd), true) = (fds.pop(), fds.is_empty()) {
                        self.next_client += 1;
                        let id = ClientId(self.next_client);
                        let mut link = Outbox::with(Bound::ANSWERS);
                        if link.replace(Channel::from_fd(fd), &mut self.events, Source::Client(id)).is_ok() {
                            self.clients.insert(id, Client { link, shown: Shown::Nothing, kept: None });
                            self.unshown.insert(id);
                        }
                        if self.unshown.len() > MAX_UNSHOWN
                            && let Some(oldest) = self.unshown.pop_first()
                        {
                            self.counts.add_many("a trusted path that does not show whose it is", 1, now);
                            self.drop_client(oldest);
                        }
                    }
                }
                Ok(Some(Received { message: TpsToSessiond::Dropped(dropped), .. })) => {
                    self.hear_dropped(dropped)
                }
                Ok(None) => return,
                // Its children go on; the warden gives the next one.
                Err(why) => return self.lost(Role::Tps, why),
            }
        }
    }

    /// Connections that came to nothing. What ends in the ordinary way is counted for the status alone; the others are in the log with
    /// the network that they came from.
    fn hear_dropped(&mut self, dropped: Vec<Dropped>) {
        for Dropped { reason, from, count } in dropped.into_iter().take(MAX_DROPPED) {
            let reason: String = reason.chars().filter(|c| !c.is_control()).take(64).collect();
            self.counts.total(&reason, count);
            let Some(from) = from.filter(|_| !ORDINARY.contains(&reason.as_str())) else { continue };
            let entry = Entry {
                user: None,
                host: None,
                label: None,
                action: Action::Connect,
                object: format!("trusted path from {from}"),
                verdict: Verdict::Denied,
                reason: format!("{reason}: {count} since the last record"),
            };
            self.note(entry);
        }
    }

    /// Whether a client has an answer to wait for, or to take.
    fn waits(&self, id: ClientId) -> bool {
        let waits = |client: &Client| {
            !client.link.is_clear() || (client.device().is_some() && !self.machine.is_ready(id))
        };
        self.clients.get(&id).is_some_and(waits)
    }

    /// Hears those again that were held back and have been answered.
    pub(super) fn release(&mut self) {
        let held = std::mem::take(&mut self.held);
        let (waiting, free) = held.into_iter().partition(|id| self.waits(*id));
        self.held = waiting;
        let free: BTreeSet<ClientId> = free;
        for id in free {
            if let Some(client) = self.clients.get_mut(&id) {
                client.link.hold(false);
            }
        }
    }

    pub(super) fn hear_client(&mut self, id: ClientId, can: Can) {
        for _ in 0..TURN {
            let waits = self.waits(id);
            let Some(client) = self.clients.get_mut(&id) else { return };
            if matches!(client.shown, Shown::Asked { .. }) && self.proofs >= PROOFS {
                // The kernel says of it again in the next turn.
                return;
            }
            if waits {
                // It is not read, and so held back; that it is gone is seen anyhow.
                if can.gone {
                    return self.drop_client(id);
                }
                client.link.hold(true);
                self.held.insert(id);
            }
            let message = match client.link.hear::<ChildToSessiond>() {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(why) => {
                    if why != Lost::Gone {
                        self.counts.add_many(&format!("a trusted path: {why}"), 1, self.clock.now());
                    }
                    return self.drop_client(id);
                }
            };
            match (message, &client.shown) {
                (ChildToSessiond::Hello { exporter }, Shown::Nothing) => client.shown = Shown::Tls(exporter),
                (ChildToSessiond::Request(Asked::Hello), Shown::Tls(exporter)) => {
                    let (exporter, mut nonce) = (*exporter, [0; 32]);
                    if passwords::fill_random(&mut nonce).is_err() {
                        return self.drop_client(id);
                    }
                    client.shown = Shown::Asked { exporter, nonce };
                    client.link.send(client::Reply::Challenge(nonce));
                }
                (ChildToSessiond::Request(Asked::Prove(proof)), Shown::Asked { exporter, nonce }) => {
                    let (exporter, nonce) = (*exporter, *nonce);
                    // Refused, or more than there may be, it is not known to the state machine and will be disconnected.
                    return self.hear_proof(id, *proof, &nonce, &exporter);
                }
                (ChildToSessiond::Request(asked), Shown::Device(..)) => self.hear_request(id, asked),
                _ => {
                    self.counts.add_many("a trusted path out of order", 1, self.clock.now());
                    return self.drop_client(id);
                }
            }
        }
    }

    /// A device shows who it is; whoever holds the channel has no say in that.
    fn hear_proof(&mut self, id: ClientId, proof: Proof, nonce: &[u8; 32], exporter: &[u8; 32]) {
        let now = self.clock.now();
        self.proofs += 1;
        let proved = self.devices.prove(proof, nonce, exporter, now);
        let Some(client) = self.clients.get_mut(&id) else { return };
        match proved {
            Ok(passport) => {
                let Passport { device, serial, fingerprint, not_after, .. } = passport;
                client.shown = Shown::Device(device.clone(), serial.clone());
                self.unshown.remove(&id);
                client.link.send(client::Reply::Alive);
                if self.site.host(&device).is_some() {
                    let end = Time::from_millis(not_after.saturating_mul(1_000));
                    let shown = Certificate { device: device.clone(), serial, end };
                    self.certificates.insert(fingerprint, shown);
                    self.certificate_ends = Some(self.certificate_ends.map_or(end, |first| first.min(end)));
                }
                self.handle(Event::Hello { client: id, device, fingerprint });
            }
            Err(why) => {
                let reason = format!("the server does not believe this workstation: {why}");
                client.link.send(client::Reply::Refused { kind: RefusalKind::Protocol, reason });
                self.counts.add_many("a device that is not the one it says", 1, now);
                self.drop_client(id);
            }
        }
    }

    fn hear_request(&mut self, id: ClientId, asked: Asked) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let request = match asked {
            // Once for each trusted path.
            Asked::Hello | Asked::Prove(_) => {
                self.counts.add_many("a trusted path out of order", 1, self.clock.now());
                return self.drop_client(id);
            }
            // Whoever it is: that they are asked tells nobody who has one.
            Asked::Login { code: None, .. } | Asked::Unlock { code: None, .. } if self.site.asks_codes() => {
                let why = "this site asks for a code as well".to_owned();
                return self.reply(id, Reply::Refused(RefusalKind::Code, why));
            }
            Asked::Login { user, password, code } => {
                client.kept = Some(Kept::Login(password, code.filter(|_| self.site.asks_codes())));
                Request::Login(user)
            }
            Asked::Unlock { password, code } => {
                client.kept = Some(Kept::Login(password, code.filter(|_| self.site.asks_codes())));
                Request::Unlock
            }
            Asked::Lock => Request::Lock,
            Asked::Active => Request::Active,
            Asked::Resume(session) => Request::Resume(session),
            Asked::Level(label, protection) => {
                let mut random = [0u8; 24];
                if passwords::fill_random(&mut random).is_err() {
                    return self.refuse(id, "the server has no random numbers");
                }
                let (name, place) = random.split_at(16);
                let (Ok(name), Ok(place)) = (name.try_into(), place.try_into()) else { return };
                let random = u64::from_ne_bytes(place);
                Request::Level { label, protection, id: SessionId::from_random(name), random }
            }
            Asked::Passwd { old, new } => {
                if new.expose().len() < passwords::MIN_PASSWORD {
                    let least = passwords::MIN_PASSWORD;
                    return self.refuse(id, &format!("a new password has at least {least} bytes"));
                }
                client.kept = Some(Kept::Passwd(old, new));
                Request::Passwd
            }
            Asked::Status => Request::Status,
            Asked::KeepAlive => Request::KeepAlive,
            Asked::Carry(file) => Request::Carry(file),
            Asked::Releases => Request::Releases,
            Asked::ShowRelease { id, from } => Request::ShowRelease(id, from),
            Asked::Release { id, digest, consent } => Request::Release(id, digest, consent),
            Asked::Accesses => Request::Accesses,
            Asked::Access { service, user, admits } => Request::Access(service, user, admits),
            Asked::Logout => Request::Logout,
        };
        self.handle(Event::Request(id, request));
    }

    fn refuse(&mut self, id: ClientId, reason: &str) {
        self.reply(id, Reply::Refused(RefusalKind::Unavailable, reason.to_owned()));
    }

    pub(super) fn drop_client(&mut self, id: ClientId) {
        self.unshown.remove(&id);
        if self.clients.remove(&id).is_some() {
            self.handle(Event::Gone(id));
        }
    }

    pub(super) fn hear_passwords(&mut self) {
        for done in self.passwords.finished() {
            // Nobody signs on with what the log does not know.
            let now = self.passwords.seen(&done.user).ok();
            self.look_at_person(done.user);
            // What an operator has replaced since is not right any more.
            let verified = match done.verified {
                Verified::Right(_) if now.is_none() || now != done.of => Verified::Unavailable,
                verified => verified,
            };
            if let Some(client) = self.clients.get_mut(&done.client) {
                client.kept = done.hash.zip(done.of).map(|(hash, of)| Kept::Hash(hash, of));
            }
            self.handle(Event::Verified(done.client, verified));
        }
    }

    pub(super) fn reply(&mut self, id: ClientId, reply: Reply) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(device) = client.device() else { return };
        let asker = convert::Asker { device, now: self.clock.now() };
        let unknown = || client::Reply::Refused {
            kind: RefusalKind::Unavailable,
            reason: "the site file does not fit the session".into(),
        };
        let mut reply = convert::reply(&self.site, &asker, reply).unwrap_or_else(unknown);
        if let client::Reply::Opened(opened) = &mut reply {
            self.price(opened);
        }
        let Some(client) = self.clients.get_mut(&id) else { return };
        self.passes.give(&mut reply);
        levee_ipc::hide_names(&mut reply);
        client.link.send(reply);
        if self.passes.wanted() {
            self.tell_keyer(ToKeyer::MorePasses);
        }
    }

    /// Has a session that is opened know what its tunnel costs.
    fn price(&mut self, opened: &mut client::Opened) {
        let Some(label) = self.site.label(&opened.label) else { return };
        let posture = self.machine.posture_at(&opened.label);
        let now = self.clock.now();
        opened.costs = self.prices.told(&self.site, &label, posture, &opened.protected, now);
    }

    /// Has the password looked at that came with the client's request.
    pub(super) fn verify(&mut self, id: ClientId, user: UserName) {
        let kept = self.clients.get_mut(&id).and_then(|client| client.kept.take());
        let job = match kept {
            Some(Kept::Login(password, code)) => Some(Job::Verify(password, code)),
            Some(Kept::Passwd(old, new)) => Some(Job::Change(old, new)),
            Some(Kept::Hash(..)) | None => None,
        };
        if !job.is_some_and(|job| self.passwords.submit(id, user, job)) {
            self.handle(Event::Verified(id, Verified::Unavailable));
        }
    }

    /// Puts the new password on the disk.
    pub(super) fn store_password(&mut self, id: ClientId, user: &UserName) {
        let kept = self.clients.get_mut(&id).and_then(|client| client.kept.take());
        let stored = match kept {
            Some(Kept::Hash(hash, of)) => self.passwords.store(user, &hash, of).inspect_err(|error| {
                levee_ipc::say!("levee-sessiond: the credential file of {user}: {error}");
            }),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        if let Ok(file) = &stored {
            self.pending.changes.push(Subject::Password(user.clone()).is(Some(digest_of(file.as_bytes()))));
        }
        self.handle(Event::PasswordStored(id, stored.is_ok()));
    }
}
