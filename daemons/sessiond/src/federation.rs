//! Where the site has several servers: between the state machines, the signer and fsd, and the leases that vaults keep.

use crate::daemon::{Daemon, Source};
use crate::statements::Statements;
use levee_daemon::{Fatal, Outbox};
use levee_ipc::Channel;
use levee_ipc::federation::{Ask, Heard, Statement};
use levee_ipc::operator::FederationStatus;
use levee_ipc::signer::ToSigner;
use levee_ipc::vault::SessiondToVault;
use levee_ipc::warden::Role;
use levee_policy::audit::{Action, Checkpoint, Event as Entry, Hash, Verdict};
use levee_policy::{DomainName, Site};
use levee_session::federation::{Federation, Said, Signed};
use levee_session::{Event, Time};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// The most messages of fsd in a turn: each may cost the check of two signatures.
const TURN: usize = 8;

/// What is to be written once it is signed.
struct Signing {
    attempt: u64,
    statement: Box<Statement>,
    pages: Vec<(u16, Vec<u8>)>,
}

/// This server among the site's.
pub struct Federated {
    pub(crate) machine: Option<Federation>,
    /// Where the site has several servers.
    statements: Option<Statements>,
    link: Outbox<Ask>,
    signing: Option<Signing>,
    /// Sessions may pass packets until then.
    until: Time,
    /// And those of another server until then.
    theirs: BTreeMap<DomainName, Time>,
}

impl Federated {
    pub fn new(statements: Option<Statements>) -> Self {
        let (link, until, theirs) = (Outbox::new(), Time::default(), BTreeMap::new());
        Self { machine: None, statements, link, signing: None, until, theirs }
    }

    /// For operators.
    pub fn status(&self, site: &Site) -> Option<FederationStatus> {
        site.federation()?;
        let (member, others, theirs) = self.machine.as_ref().map(Federation::shown).unwrap_or_default();
        let strange = self.machine.as_ref().map_or(0, Federation::strange);
        Some(FederationStatus { member, others, theirs: theirs as u64, strange })
    }

    /// Whether a posture can be set now, which is in force at all servers then.
    pub fn may_set(&self, site: &Site) -> Result<(), String> {
        match (&self.machine, site.federation()) {
            (_, None) => Ok(()),
            (Some(machine), _) => machine.may_set(),
            (None, Some(_)) => Err("this server has only begun; try again in a moment".to_owned()),
        }
    }

    /// When time is next.
    pub fn deadline(&self) -> Option<Time> {
        self.machine.as_ref().and_then(Federation::deadline)
    }
}

impl Daemon {
    /// What ran before sessiond started is known now: where a vault ran, it may pass packets under a lease that another run had.
    pub(crate) fn begin_federation(&mut self, ran: bool) {
        let Some(federation) = self.site.federation().filter(|_| self.federated.machine.is_none()) else {
            return;
        };
        let (lease, now) = (federation.lease(), self.now());
        let begin = if ran { now.after(lease) } else { now };
        let (site, name) = (self.site.name().clone(), self.site.server().name().clone());
        let peers = federation.peers().iter().map(|peer| peer.name().clone());
        let machine = Federation::new(site, name, peers, lease, begin);
        let (digest, setting) = (self.site.postures_digest(), self.machine.setting().clone());
        let is_moving = self.machine.postures().1;
        self.federated.machine = Some(machine.with_postures(digest, setting, is_moving));
        // Sessions of the run before, which ended with it.
        for record in std::mem::take(&mut self.withdrawals) {
            self.federation(|machine, now| machine.withdraw(&record, now));
        }
    }

    pub(crate) fn fsd_came(&mut self, channel: Channel) -> Result<(), Fatal> {
        self.federated.link.replace(channel, &mut self.events, Source::Fsd)?;
        self.federation(|machine, now| machine.lost(None, "the client of the table is another one", now));
        Ok(())
    }

    /// Without a lease no vault passes anything; told first of all, on every channel to a vault.
    pub(crate) fn lease_for_new_vault(&mut self, label: &levee_policy::LabelName, slot: u16) {
        if !is_federated(&self.site) {
            return;
        }
        let Some(link) = self.vaults.link(label, slot) else { return };
        link.send(SessiondToVault::Until { owner: None, until: self.clock.monotonic(self.federated.until) });
        for (owner, until) in &self.federated.theirs {
            let (owner, until) = (Some(owner.clone()), self.clock.monotonic(*until));
            link.send(SessiondToVault::Until { owner, until });
        }
    }

    /// A revocation list of the servers' authority has come: what a server uses by a passport that it names ends now.
    pub(crate) fn revoked_servers(&mut self, fd: &OwnedFd) {
        let now = self.now();
        let me = self.site.server().name().clone();
        let Some(statements) = &mut self.federated.statements else { return };
        let believed = statements.believe(fd);
        let unbelieved = statements.unbelieved(now);
        unbelieved.iter().for_each(|(server, _)| statements.forget(server));
        let note = |object: String, reason: String| denied(Action::Run, object, reason);
        if let Err(why) = believed {
            let object = "servers' revocation list".to_owned();
            return self.note(note(object, format!("{why}: the one before it holds")));
        }
        for (server, why) in unbelieved {
            if server == me {
                self.federation(|machine, now| {
                    machine.lost(None, "this server's passport is good no more", now)
                });
            } else {
                self.federation(|machine, now| machine.disown(&server, now));
                self.handle(Event::Disowned(server.clone()));
            }
            self.note(note(format!("server {server}"), format!("{why}: it is believed no more")));
        }
    }

    /// A file that stands for a key is another one while the server runs. One that cannot be used changes nothing.
    pub(crate) fn renewed(
        &mut self,
        what: &str,
        file: OwnedFd,
        renew: fn(&mut Self, OwnedFd) -> Result<(), String>,
    ) {
        if let Err(why) = renew(self, file) {
            self.note(denied(Action::Run, what.to_owned(), format!("{why}: the one before it holds")));
        }
    }

    pub(crate) fn authority_renewed(&mut self, file: OwnedFd) -> Result<(), String> {
        self.devices.renew(file)
    }

    pub(crate) fn passport_renewed(&mut self, file: OwnedFd) -> Result<(), String> {
        let me = self.site.server().name();
        self.federated.statements.as_mut().map_or(Ok(()), |statements| statements.renew(me, &file))
    }

    pub(crate) fn servers_authority_renewed(&mut self, file: OwnedFd) -> Result<(), String> {
        self.federated.statements.as_mut().map_or(Ok(()), |statements| statements.renew_authority(file))
    }

    pub(crate) fn hear_fsd(&mut self) {
        for _ in 0..TURN {
            match self.federated.link.hear::<Heard>() {
                Ok(Some(heard)) => self.heard_from_fsd(heard),
                Ok(None) => return,
                Err(why) => {
                    self.federation(|machine, now| {
                        machine.lost(None, "the client of the table is gone", now)
                    });
                    return self.lost(Role::Fsd, why);
                }
            }
        }
    }

    /// Nothing of it is believed without a signature of the server that it is said to be of.
    fn heard_from_fsd(&mut self, heard: Heard) {
        let now = self.now();
        match heard {
            Heard::Told { attempt, envelope } => {
                let Some(statements) = &mut self.federated.statements else { return };
                match statements.open(&envelope, now) {
                    Ok(statement) => self.federation(|machine, now| machine.hear(attempt, statement, now)),
                    Err(why) => {
                        self.counts.add_many(&format!("a server's statement: {why}"), 1, now);
                        self.federation(|machine, _| machine.add_strange(1));
                    }
                }
            }
            Heard::Page { attempt, server, page, bytes } => {
                self.federation(|machine, now| machine.page(attempt, &server, page, &bytes, now));
            }
            Heard::Joined { attempt } => self.federation(|machine, now| machine.joined(attempt, now)),
            Heard::Written { attempt, number } => {
                self.federation(|machine, now| machine.written(attempt, number, now));
            }
            Heard::Strange { count, .. } => self.federation(|machine, _| machine.add_strange(count)),
            Heard::Lost { attempt, reason } => {
                self.federation(|machine, now| machine.lost(Some(attempt), &reason, now));
            }
        }
    }

    /// The signer has answered about a statement.
    pub(crate) fn stated(&mut self, epoch: u64, number: u64, signature: Option<Vec<u8>>) {
        let asked =
            |signing: &mut Signing| (signing.statement.epoch, signing.statement.number) == (epoch, number);
        let Some(Signing { attempt, statement, pages }) = self.federated.signing.take_if(asked) else {
            return;
        };
        let sealed =
            signature.and_then(|signature| self.federated.statements.as_ref()?.seal(&statement, signature));
        match sealed {
            Some(envelope) => self.federated.link.send(Ask::Put { attempt, number, envelope, pages }),
            // It will be said again, with another number.
            None => self.counts.add_many("a statement that levee-signer has not signed", 1, self.clock.now()),
        }
    }

    /// Gives the state machine something, and carries out what it says.
    pub(crate) fn federation(&mut self, give: impl FnOnce(&mut Federation, Time)) {
        let now = self.now();
        let Some(machine) = &mut self.federated.machine else { return };
        give(machine, now);
        while let Some(said) = self.federated.machine.as_mut().and_then(Federation::poll) {
            match said {
                Said::Join { attempt } => {
                    let peers = self.federated.machine.iter().flat_map(Federation::peers);
                    let servers = std::iter::once(self.site.server().name()).chain(peers).cloned().collect();
                    self.federated.link.send(Ask::Join { attempt, servers });
                }
                Said::State { attempt, statement, pages } => {
                    self.ask_for_signature(Signing { attempt, statement, pages });
                }
                Said::Until(owner, until) => {
                    match &owner {
                        None => self.federated.until = until,
                        Some(owner) => drop(self.federated.theirs.insert(owner.clone(), until)),
                    }
                    let until = self.clock.monotonic(until);
                    self.vaults.tell_all(|| SessiondToVault::Until { owner: owner.clone(), until });
                }
                Said::Fence(reason) => self.handle(Event::Fence(reason)),
                Said::Appeared(shared) => self.handle(Event::Appeared(Box::new(shared))),
                Said::Vanished(owner, session) => self.handle(Event::Vanished(owner, session)),
                Said::Published(session, what) => self.handle(Event::Published(session, what)),
                Said::Clash(session) => self.handle(Event::Clash(session)),
                Said::Withdrawn(session) => self.handle(Event::Withdrawn(session)),
                Said::Set(from, setting) => self.handle(Event::Set(from, setting)),
                Said::Witness(server, signed) => self.note(witnessed(&server, signed)),
                Said::Kept(late) => self.handle(Event::Kept(late)),
                Said::Unlike(server) => {
                    let why = format!(
                        "server {server} has set postures that its site file has otherwise than this one's: they are not taken up here"
                    );
                    self.note(denied(Action::Posture, "postures".to_owned(), why));
                }
            }
        }
    }

    /// One at a time: what is not signed in time is said anew.
    fn ask_for_signature(&mut self, signing: Signing) {
        self.ask_to_sign(ToSigner::Statement(signing.statement.clone()));
        self.federated.signing = Some(signing);
    }
}

/// How far another server's log was.
fn witnessed(server: &DomainName, signed: Signed) -> Entry {
    let reason = Checkpoint::kept(signed.count, Hash(signed.hash), signed.signature);
    let object = format!("server {server}");
    Entry {
        user: None,
        host: None,
        label: None,
        action: Action::Witness,
        object,
        verdict: Verdict::Noted,
        reason,
    }
}

/// Something of another server's that is not obeyed.
fn denied(action: Action, object: String, reason: String) -> Entry {
    Entry { user: None, host: None, label: None, action, object, verdict: Verdict::Denied, reason }
}

/// Whether the site has several servers.
pub fn is_federated(site: &Site) -> bool {
    site.federation().is_some()
}
