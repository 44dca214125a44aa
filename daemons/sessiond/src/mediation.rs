//! Connections that mediators ask about: who may have them, and the grant before they are passed on.

use crate::audit::Weight;
use crate::convert;
use crate::daemon::Daemon;
use crate::rates::Whose;
use crate::vaults::MEDIATOR;
use levee_daemon::{Fatal, TURN};
use levee_ipc::Channel;
use levee_ipc::mediator::{self, MediatorToSessiond, SessiondToMediator};
use levee_ipc::vault::{Report, VaultToSessiond};
use levee_policy::audit::Event as Entry;
use levee_policy::site::Recorded;
use levee_policy::{Grant, LabelName, ServiceName, decision};
use std::net::SocketAddr;

/// A connection that a mediator waits to pass on, until its grant is recorded as the site has it.
pub(crate) struct Connection {
    label: LabelName,
    ticket: u64,
    /// From where, for the log.
    why: String,
    grant: Grant<decision::Connect>,
}

impl Connection {
    pub(crate) fn entry(&self) -> (Weight, Entry) {
        let event = self.grant.audit();
        (Weight::Connection, Entry { reason: format!("{}: {}", event.reason, self.why), ..event.clone() })
    }

    /// Whether its record must be on the disk before it is passed on; else it must be written.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.grant.action().recorded() == Recorded::Synced
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
        for shown in self.machine.shown().filter(|shown| shown.label == name) {
            let Some(reach) = self.machine.reach(shown.id) else { continue };
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
        self.heard.may_have_more();
    }

    /// A connection is granted if its session lives at the mediator's label and the session's grant lets it reach the service, or the
    /// site gives it to the network; the grant takes effect once it is recorded.
    fn connect(
        &mut self,
        label: &LabelName,
        ticket: u64,
        client: &mediator::Client,
        service: &ServiceName,
        from: SocketAddr,
    ) {
        let granted = match client {
            mediator::Client::Session(id) => self.machine.connect(*id, label, from.ip(), service),
            mediator::Client::Network(interface) => self.site.label(label).and_then(|point| {
                let posture = self.machine.posture_at(label);
                self.site.decide_network_connection(&point, interface, service, posture).ok()
            }),
        };
        match granted {
            Some(_) if !self.keeps_pace(client, from) => {
                let what = "connections beyond the rate of one person or host";
                self.counts.add_many(what, 1, self.clock.now());
                self.answer_mediator(label, SessiondToMediator::Refuse(ticket));
            }
            Some(grant) => {
                let why = match client {
                    mediator::Client::Session(id) => format!("session {id} from {from}"),
                    mediator::Client::Network(interface) => format!("the network at {interface} from {from}"),
                };
                self.pending.connections.push(Connection { label: label.clone(), ticket, why, grant });
            }
            None => {
                self.counts.add_many("connections that no session or network has", 1, self.clock.now());
                self.answer_mediator(label, SessiondToMediator::Refuse(ticket));
            }
        }
    }

    fn keeps_pace(&mut self, client: &mediator::Client, from: SocketAddr) -> bool {
        let (a_second, now) = (self.site.limits().connections, self.clock.now());
        match client {
            mediator::Client::Session(id) => {
                let whose = self.machine.live(*id);
                whose.is_some_and(|shown| self.rates.take(Whose::Person(&shown.user), a_second, now))
            }
            mediator::Client::Network(interface) => {
                self.rates.take(Whose::Host(interface, from.ip()), a_second, now)
            }
        }
    }

    /// The one place where a connection is passed on: it consumes the grant, which is in the log if it is `recorded`.
    pub(crate) fn pass_on(&mut self, connection: Connection, recorded: bool) {
        let Connection { label, ticket, grant, .. } = connection;
        if recorded {
            drop(grant.into_parts());
            self.answer_mediator(&label, SessiondToMediator::Pass(ticket));
        } else {
            self.answer_mediator(&label, SessiondToMediator::Refuse(ticket));
        }
    }

    fn answer_mediator(&mut self, label: &LabelName, answer: SessiondToMediator) {
        if let Some(mediator) = self.vaults.mediator(label) {
            mediator.send(answer);
        }
    }
}
