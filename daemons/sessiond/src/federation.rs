//! Where the site has several servers: between the state machines and fsd, and the lease that vaults keep.

use crate::daemon::{Daemon, Source};
use levee_daemon::{Fatal, Outbox, TURN};
use levee_ipc::Channel;
use levee_ipc::federation::{Ask, Heard};
use levee_ipc::operator::FederationStatus;
use levee_ipc::vault::SessiondToVault;
use levee_ipc::warden::Role;
use levee_policy::Site;
use levee_session::federation::{Federation, Said};
use levee_session::{Event, Time};

/// This server among the site's.
pub struct Federated {
    pub(crate) machine: Option<Federation>,
    link: Outbox<Ask>,
    /// Sessions may pass packets until then.
    until: Time,
}

impl Federated {
    pub fn new() -> Self {
        Self { machine: None, link: Outbox::new(), until: Time::default() }
    }

    /// For operators.
    pub fn status(&self, site: &Site) -> Option<FederationStatus> {
        site.federation()?;
        let (member, others, theirs) = self.machine.as_ref().map(Federation::shown).unwrap_or_default();
        let strange = self.machine.as_ref().map_or(0, Federation::strange);
        Some(FederationStatus { member, others, theirs: theirs as u64, strange })
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
        let name = self.site.server().name().clone();
        let peers = federation.peers().iter().map(|peer| peer.name().clone()).collect();
        self.federated.machine = Some(Federation::new(name, peers, lease, begin));
        // Sessions of the run before, which ended with it.
        for record in std::mem::take(&mut self.withdrawals) {
            self.federation(|machine, _| machine.withdraw(&record));
        }
    }

    pub(crate) fn fsd_came(&mut self, channel: Channel) -> Result<(), Fatal> {
        self.federated.link.replace(channel, &mut self.events, Source::Fsd)?;
        self.federation(|machine, now| machine.lost("the client of the table is another one", now));
        Ok(())
    }

    /// Without a lease no vault passes anything; told first of all, on every channel to a vault.
    pub(crate) fn lease_for_new_vault(&mut self, label: &levee_policy::LabelName, slot: u16) {
        if is_federated(&self.site) {
            let until = self.clock.monotonic(self.federated.until);
            if let Some(link) = self.vaults.link(label, slot) {
                link.send(SessiondToVault::Until(until));
            }
        }
    }

    pub(crate) fn hear_fsd(&mut self) {
        for _ in 0..TURN {
            match self.federated.link.hear::<Heard>() {
                Ok(Some(heard)) => self.federation(|machine, now| machine.hear(heard, now)),
                Ok(None) => return,
                Err(why) => {
                    self.federation(|machine, now| machine.lost("the client of the table is gone", now));
                    return self.lost(Role::Fsd, why);
                }
            }
        }
    }

    /// Gives the state machine something, and carries out what it says.
    pub(crate) fn federation(&mut self, give: impl FnOnce(&mut Federation, Time)) {
        let now = self.now();
        let Some(machine) = &mut self.federated.machine else { return };
        give(machine, now);
        while let Some(said) = self.federated.machine.as_mut().and_then(Federation::poll) {
            match said {
                Said::Ask(ask) => {
                    self.federated.link.send(ask);
                }
                Said::Until(until) => {
                    self.federated.until = until;
                    let until = self.clock.monotonic(until);
                    self.vaults.tell_all(|| SessiondToVault::Until(until));
                }
                Said::Fence(reason) => self.handle(Event::Fence(reason)),
                Said::Appeared(shared) => self.handle(Event::Appeared(Box::new(shared))),
                Said::Vanished(session) => self.handle(Event::Vanished(session)),
                Said::Published(session, what) => self.handle(Event::Published(session, what)),
                Said::Withdrawn(session) => self.handle(Event::Withdrawn(session)),
            }
        }
    }
}

/// Whether the site has several servers.
pub fn is_federated(site: &Site) -> bool {
    site.federation().is_some()
}
