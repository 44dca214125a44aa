//! Connections that mediators ask about: who may have them, and the grant before they are passed on.

use crate::audit::Weight;
use crate::convert;
use crate::daemon::Daemon;
use crate::vaults::MEDIATOR;
use levee_daemon::{Fatal, TURN};
use levee_ipc::Channel;
use levee_ipc::mediator::{self, MediatorToSessiond, SessiondToMediator};
use levee_ipc::vault::{Report, VaultToSessiond};
use levee_policy::audit::Event as Entry;
use levee_policy::{Grant, LabelName, ServiceName, Who, decision};
use std::net::SocketAddr;

/// A connection that a mediator waits to pass on, until its grant is durable.
pub(crate) struct Connection {
    pub(crate) label: LabelName,
    pub(crate) ticket: u64,
    /// From where, for the log.
    why: String,
    pub(crate) grant: Grant<decision::Connect>,
}

impl Connection {
    pub(crate) fn entry(&self) -> (Weight, Entry) {
        let event = self.grant.audit();
        (Weight::Connection, Entry { reason: format!("{}: {}", event.reason, self.why), ..event.clone() })
    }
}

impl Daemon {
    /// A mediator has come, in the place of one that is dead: it is told all that it needs before it accepts a connection.
    pub(crate) fn mediator_came(&mut self, name: LabelName, channel: Channel) -> Result<(), Fatal> {
        let Some(label) = self.site.label(&name) else {
            return Err(Fatal::new("take a mediator", format!("the site has no label {name}")));
        };
        self.operators.unmediated(&name);
        for answer in self.vaults.attach_mediator(name.clone(), channel, &mut self.events)? {
            self.answered(&name, Some(answer));
        }
        let Some(mediator) = self.vaults.mediator(&name) else { return Ok(()) };
        mediator.send(SessiondToMediator::Networks(convert::networks(&self.site, &label)));
        let reach = self.site.reachable(&label);
        let live = self.machine.shown().filter(|shown| shown.label == name);
        for shown in live.filter_map(|shown| self.machine.live(shown.id)) {
            let record = convert::mediated(&self.site, shown.id, shown.user, shown.inner, &reach);
            mediator.send(SessiondToMediator::Open(record));
        }
        mediator.send(SessiondToMediator::Synced);
        Ok(())
    }

    pub(crate) fn hear_mediator(&mut self, label: &LabelName) {
        for _ in 0..TURN {
            let Some(mediator) = self.vaults.mediator(label) else { return };
            let message = match mediator.hear::<MediatorToSessiond>() {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(why) => {
                    self.vaults.mediator_lost(label);
                    return self.lost_at(label, why);
                }
            };
            let answer = match message {
                MediatorToSessiond::Opened(id) => VaultToSessiond::Opened(id),
                MediatorToSessiond::Closed(id) => VaultToSessiond::Closed(id),
                MediatorToSessiond::Pong(number) => VaultToSessiond::Pong(number),
                MediatorToSessiond::Report(counters) => {
                    self.operators.mediated(label, counters);
                    VaultToSessiond::Report(Report::default())
                }
                MediatorToSessiond::Connect { ticket, client, service, from } => {
                    self.connect(label, ticket, &client, &service, from);
                    continue;
                }
            };
            let answer = self.vaults.answered(label, MEDIATOR, answer);
            self.answered(label, answer);
        }
    }

    /// A connection is granted if its session lives at the mediator's label and the service is one that a mediator there decides
    /// about, or the site gives it to the network; the grant takes effect once it is durable.
    fn connect(
        &mut self,
        label: &LabelName,
        ticket: u64,
        client: &mediator::Client,
        service: &ServiceName,
        from: SocketAddr,
    ) {
        let granted = (|| {
            let point = self.site.label(label)?;
            let mediated = self.site.service(service)?.mode().is_mediated();
            let (shown, given) = match client {
                mediator::Client::Session(id) => {
                    let shown = self.machine.live(*id).filter(|shown| shown.label == *label)?;
                    let given = shown.inner.contains(&from.ip());
                    (Some(shown), given)
                }
                mediator::Client::Network(interface) => {
                    let network = self.site.networks_at(&point).find(|n| n.interface() == interface)?;
                    (None, network.services().contains(service))
                }
            };
            let who = Who {
                user: shown.as_ref().map(|shown| &shown.user),
                host: shown.as_ref().map(|shown| &shown.device),
            };
            let grant = self.site.decide_connect(who, &point, service).ok()?;
            (mediated && given).then_some(grant)
        })();
        match granted {
            Some(grant) => {
                let why = match client {
                    mediator::Client::Session(id) => format!("session {id} from {from}"),
                    mediator::Client::Network(interface) => format!("the network at {interface} from {from}"),
                };
                self.batch.connections.push(Connection { label: label.clone(), ticket, why, grant });
            }
            None => {
                self.counts.add_many("connections that no session or network has", 1, self.clock.now());
                self.decided(label, ticket, false);
            }
        }
    }

    pub(crate) fn decided(&mut self, label: &LabelName, ticket: u64, granted: bool) {
        if let Some(mediator) = self.vaults.mediator(label) {
            mediator.send(SessiondToMediator::Decided { ticket, granted });
        }
    }
}
