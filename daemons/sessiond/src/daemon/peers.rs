//! Levee's other processes: what warden, keyer, vaults and signer say, and what becomes of one that is lost.

use super::{Certificate, Client, Daemon, Source};
use crate::known::Subject;
use crate::worded;
use levee_daemon::{Fatal, Lost, TURN};
use levee_ipc::Channel;
use levee_ipc::keyer::{FromKeyer, ToKeyer};
use levee_ipc::signer::{FromSigner, ToSigner};
use levee_ipc::vault::VaultToSessiond;
use levee_ipc::warden::{CompartmentStatus, LabelEvent, Role, SessiondRequest, WhatRuns};
use levee_policy::audit::{Action, Event as Entry, PPK, Verdict, ppk_used};
use levee_policy::{HostName, LabelName};
use levee_session::{ClientId, CutId, Event, OperatorId};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Between two records about packets on which one label's stacks disagree.
const ALARM: Duration = Duration::from_secs(1);
/// A keyer that has ended is followed by another sooner.
const FOLLOWED: Duration = Duration::from_secs(10);

impl Daemon {
    /// Takes the channel to a signer, which knows nothing of what the one before was asked.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn signer_came(&mut self, channel: Channel) -> Result<(), Fatal> {
        self.signer.replace(channel, &mut self.events, Source::Signer)?;
        self.audit.signer_lost(self.clock.now());
        Ok(())
    }

    /// A standing process is gone. One that is merely deaf, or says what is no message, has to go.
    pub(crate) fn lost(&mut self, role: Role, why: Lost) {
        if why != Lost::Gone {
            let what = format!("{}: {why}", role.program());
            self.counts.add_many(&what, 1, self.clock.now());
            self.ask_warden(SessiondRequest::Replace(role));
        } else if role == Role::Keyer {
            self.keyer_due = Some(self.clock.now().after(FOLLOWED));
        }
    }

    /// One that has closed its channel and lives gets no other: the warden does not know. Nobody has keys until it is replaced.
    pub(super) fn see_to_keyer(&mut self) {
        let now = self.clock.now();
        if self.keyer_due.take_if(|due| *due <= now).is_some() {
            self.ask_warden(SessiondRequest::Replace(Role::Keyer));
        }
    }

    /// As [`Daemon::lost`], for what belongs to a label.
    pub(crate) fn lost_at(&mut self, label: &LabelName, why: Lost) {
        if why != Lost::Gone {
            self.counts.add_many(&format!("a label's vault or mediator: {why}"), 1, self.clock.now());
            self.ask_warden(SessiondRequest::Kill(label.clone()));
        }
    }

    /// A revocation list has come. What it names has no session from now on, with an IKE SA or without, and asks for nothing more: that the
    /// trusted path's server ends its connection is not waited for. A session is known by the certificate that its device showed; one whose
    /// certificate nobody has shown since sessiond started may be named, and ends.
    pub(super) fn revocations(&mut self, fd: &OwnedFd) {
        if self.devices.believe(fd).is_err() {
            // The trusted path and the keyer go by the one before it, too.
            return self.counts.add_many("revocation lists that cannot be read", 1, self.clock.now());
        }
        self.look_at(&Subject::Revocations);
        let Self { certificates, devices, machine, .. } = self;
        let all = certificates.values();
        let named = all.filter(|shown| devices.is_revoked(&shown.serial)).map(|shown| shown.device.clone());
        let mut named: BTreeSet<HostName> = named.collect();
        let mut unseen = BTreeSet::new();
        for session in machine.shown() {
            match certificates.get(&session.fingerprint) {
                None => drop(unseen.insert(session.device)),
                Some(shown) if devices.is_revoked(&shown.serial) => drop(named.insert(session.device)),
                // By another one, which it has had since.
                Some(_) => drop(named.remove(&session.device)),
            }
        }
        for device in named {
            self.handle(Event::Revoked(device));
        }
        for device in unseen {
            self.handle(Event::Unproved(device));
        }
        let is_named = |client: &Client| client.has_shown(|serial| self.devices.is_revoked(serial));
        let out = self.clients.iter().filter(|(_, client)| is_named(client)).map(|(id, _)| *id);
        for client in out.collect::<Vec<_>>() {
            self.drop_client(client);
        }
    }

    /// What was begun by a certificate that has run out ends, as where it is revoked: nothing could be begun by it any more.
    pub(super) fn see_to_certificates(&mut self) {
        let now = self.clock.now();
        if self.certificate_ends.is_none_or(|end| now <= end) {
            return;
        }
        let Self { certificates, machine, clients, .. } = self;
        self.certificate_ends = certificates.values().map(|shown| shown.end).filter(|end| *end >= now).min();
        let over = |shown: &&Certificate| shown.end < now;
        let serials: BTreeSet<&[u8]> =
            certificates.values().filter(over).map(|shown| shown.serial.as_slice()).collect();
        let began = machine.shown().filter_map(|session| certificates.get(&session.fingerprint).filter(over));
        let began: Vec<HostName> = began.map(|shown| shown.device.clone()).collect();
        let out = clients.iter().filter(|(_, client)| client.has_shown(|serial| serials.contains(serial)));
        let out: Vec<ClientId> = out.map(|(id, _)| *id).collect();
        for device in began {
            self.handle(Event::RanOut(device));
        }
        for client in out {
            self.drop_client(client);
        }
    }

    pub(super) fn hear_label(&mut self, event: LabelEvent) {
        match event {
            LabelEvent::Up(label) => {
                self.operators.failed.remove(&label, None);
                self.handle(Event::LabelUp(label));
            }
            LabelEvent::Failed { label, reason } => {
                self.vaults.forget_all(&label);
                self.operators.failed.add(&label, None, &reason, self.clock.now());
                self.handle(Event::LabelFailed(label, reason));
            }
            LabelEvent::Died(label) => {
                self.vaults.forget(&label);
                self.handle(Event::LabelDied(label));
            }
            LabelEvent::Cut { ticket, sockets } => self.handle(Event::Cut(CutId(ticket), sockets)),
            LabelEvent::Executing { ticket, number } => self.operators.executing(OperatorId(ticket), number),
            LabelEvent::Executed { ticket, result } => self.operators.executed(OperatorId(ticket), result),
            LabelEvent::Partition { ticket, result } => self.operators.ended(OperatorId(ticket), result),
            LabelEvent::Postures { ticket } => self.handle(Event::PosturesKept(ticket)),
            LabelEvent::Rotated { text, begun } => {
                let (object, done, reason) = worded::rotation(&text, begun);
                self.done(None, object, done, reason);
            }
            LabelEvent::Note { label, object, done, reason } => {
                if let Some(label) = label.as_ref().filter(|_| object.starts_with("service ")) {
                    match done {
                        true => self.operators.failed.remove(label, Some(&object)),
                        false => self.operators.failed.add(label, Some(&object), &reason, self.clock.now()),
                    }
                }
                self.done(label, object, done, reason)
            }
        }
    }

    /// What the warden says runs.
    pub(super) fn hear_running(&mut self, file: OwnedFd) {
        let all = WhatRuns::read(File::from(file));
        let Ok(WhatRuns { mut running, upflow, partitions, steering, frames, alarms }) = all else {
            return self.counts.add_many("what runs cannot be read", 1, self.clock.now());
        };
        self.begin_federation(!running.is_empty());
        self.sweep(&running);
        worded::left_behind(&mut running, &upflow);
        let steering = steering.into_iter().chain(frames.iter().flat_map(worded::frames)).collect();
        self.operators.compartments(running, partitions, steering, alarms);
    }

    /// The warden, or `levee enrol`, has done this, or could not.
    fn done(&mut self, label: Option<LabelName>, object: String, done: bool, reason: String) {
        let verdict = if done { Verdict::Noted } else { Verdict::Denied };
        self.note(Entry { user: None, host: None, label, action: Action::Run, object, verdict, reason });
    }

    /// Has the warden stop what no session needs that the store has.
    fn sweep(&mut self, running: &[CompartmentStatus]) {
        if !std::mem::take(&mut self.unswept) {
            return;
        }
        let needed: Vec<&LabelName> = self.machine.labels().collect();
        for idle in running.iter().map(|status| &status.label).filter(|label| !needed.contains(label)) {
            self.warden.say(SessiondRequest::Release(idle.clone()));
        }
        // Where nothing ran, the keys went with the vault: the whole server was down, not sessiond alone.
        let lost = needed.into_iter().filter(|label| !running.iter().any(|status| status.label == **label));
        let lost: Vec<LabelName> = lost.cloned().collect();
        for label in lost {
            self.handle(Event::LabelDied(label));
        }
    }

    pub(super) fn hear_keyer(&mut self) {
        for _ in 0..TURN {
            match self.keyer.hear::<FromKeyer>() {
                Ok(Some(message)) => match message {
                    FromKeyer::Wanted { ticket, device, label, accreditation } => {
                        self.handle(Event::Wanted { ticket, device, label, accreditation });
                    }
                    FromKeyer::Refused { device, label, reason } => {
                        self.handle(Event::Refused(device, label, reason));
                    }
                    FromKeyer::Revoked(device) => self.handle(Event::Revoked(device)),
                    FromKeyer::NewPpk { device, id } => {
                        let (host, object, reason) = (Some(device), PPK.to_owned(), ppk_used(&id));
                        let (action, verdict) = (Action::Negotiate, Verdict::Noted);
                        self.note(Entry { user: None, host, label: None, action, object, verdict, reason });
                    }
                    FromKeyer::Passes(passes) => self.passes.add(passes),
                    FromKeyer::NoPeer(session) => self.handle(Event::Renew(session)),
                    FromKeyer::Dropped(dropped) => {
                        let now = self.clock.now();
                        for (what, count) in dropped.into_iter().take(TURN) {
                            self.counts.add_many(&what, count, now);
                        }
                    }
                    // A workstation's.
                    FromKeyer::Completed(_) | FromKeyer::Failed { .. } => {
                        self.keyer.close();
                        return self.lost(Role::Keyer, Lost::Malformed);
                    }
                },
                Ok(None) => return,
                Err(why) => return self.lost(Role::Keyer, why),
            }
        }
    }

    /// A keyer that is gone has forgotten everything; the next one is told what is so.
    pub(super) fn tell_keyer(&mut self, message: ToKeyer) {
        self.keyer.send(message);
    }

    pub(super) fn hear_vault(&mut self, label: &LabelName, slot: u16) {
        for _ in 0..TURN {
            let Some(worker) = self.vaults.link(label, slot) else { return };
            match worker.hear::<VaultToSessiond>() {
                Ok(Some(VaultToSessiond::Disagreed(packets))) => self.alarm(label, packets),
                Ok(Some(message)) => {
                    let answer = self.vaults.answered(label, slot, message);
                    self.answered(label, answer);
                }
                Ok(None) => return,
                Err(why) => {
                    self.vaults.lost(label, slot);
                    self.handle(Event::VaultLost(label.clone()));
                    return self.lost_at(label, why);
                }
            }
        }
        self.heard.may_have_more();
    }

    /// A label's vault, with its mediator where it has one, has done what it was told.
    pub(crate) fn answered(&mut self, label: &LabelName, answer: Option<VaultToSessiond>) {
        match answer {
            Some(VaultToSessiond::Opened(id)) => self.handle(Event::VaultOpened(label.clone(), id)),
            Some(VaultToSessiond::Closed(id)) => self.handle(Event::VaultClosed(label.clone(), id)),
            Some(VaultToSessiond::Pong(number)) => self.handle(Event::VaultPong(label.clone(), number)),
            Some(VaultToSessiond::Moved { number, severed }) => {
                self.handle(Event::Moved(label.clone(), number, severed));
            }
            Some(VaultToSessiond::Report(report)) => self.operators.report(label, report),
            Some(VaultToSessiond::Disagreed(_)) | None => {}
        }
    }

    /// One of the label's stacks is wrong, or taken over. However often it says so, the log has one record a second.
    fn alarm(&mut self, label: &LabelName, packets: u64) {
        let (_, untold) = self.alarms.entry(label.clone()).or_default();
        *untold = untold.saturating_add(packets);
        self.counts.add_many("packets on which redundant stacks disagreed", packets, self.clock.now());
    }

    /// Writes the alarms that are due.
    pub(super) fn raise_alarms(&mut self) {
        let now = self.clock.now();
        for (label, (due, untold)) in
            self.alarms.iter_mut().filter(|(_, (due, untold))| *untold > 0 && *due <= now)
        {
            let packets = std::mem::take(untold);
            *due = now.after(ALARM);
            let entry = Entry {
                user: None,
                host: None,
                label: Some(label.clone()),
                action: Action::Pass,
                object: "redundant stacks".into(),
                verdict: Verdict::Denied,
                reason: format!("they disagreed about {packets} packets: all of them were dropped"),
            };
            self.pending.note([entry]);
        }
    }

    pub(super) fn hear_signer(&mut self) {
        for _ in 0..TURN {
            match self.signer.hear::<FromSigner>() {
                Ok(Some(FromSigner::Stated { epoch, number, signature })) => {
                    self.stated(epoch, number, signature);
                }
                Ok(Some(message)) => {
                    if let Some(signed) = self.audit.heard_signer(message, self.clock.now()) {
                        self.federation(|machine, _| machine.signed(signed));
                    }
                }
                Ok(None) => return,
                Err(why) => {
                    self.audit.signer_lost(self.clock.now());
                    return self.lost(Role::Signer, why);
                }
            }
        }
    }

    /// What is lost with the signer is asked for again by who needs it.
    pub(crate) fn ask_to_sign(&mut self, question: ToSigner) {
        self.signer.send(question);
    }

    /// Tells the signer what is new in the log, or has it sign a checkpoint. True if it is asked something, now or before.
    pub(super) fn ask_signer(&mut self, last: bool) -> bool {
        let now = self.clock.now();
        if !self.signer.is_open() {
            self.audit.put_off(now);
            return false;
        }
        match self.audit.ask_signer(last, now) {
            Some(question) => self.signer.send(question),
            None => return self.audit.waits_for_signer(),
        }
        true
    }
}
