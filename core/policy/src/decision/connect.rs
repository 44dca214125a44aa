//! Services: which run at a label, and who may have a connection to one.

use super::{Ask, Denial, DenialKind, Grant, Session, Who};
use crate::audit::Action;
use crate::label::Label;
use crate::names::{InterfaceName, LabelName, ServiceName};
use crate::site::{Destination, Posture, Recorded, Service, Site};

/// To reach a service at the session's label.
#[derive(Debug, PartialEq, Eq)]
pub struct Connect {
    label: Label,
    service: ServiceName,
    recorded: Recorded,
}

impl Connect {
    /// The label of the session and of the service's instance.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// The service.
    pub fn service(&self) -> &ServiceName {
        &self.service
    }

    /// When its record is as good as kept; before that it has no effect.
    pub fn recorded(&self) -> Recorded {
        self.recorded
    }
}

/// To start a service at a label.
#[derive(Debug, PartialEq, Eq)]
pub struct Start {
    label: Label,
    service: ServiceName,
}

impl Start {
    /// Where.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// The service.
    pub fn service(&self) -> &ServiceName {
        &self.service
    }
}

impl Site {
    /// May a session at this label reach this service: only if the service's range contains the label. It
    /// reaches the instance at its own label, so that the traffic both ways stays at one label.
    pub fn decide_connect(
        &self,
        who: Who<'_>,
        session: &Label,
        service: &ServiceName,
    ) -> Result<Grant<Connect>, Box<Denial>> {
        let ask = ask(who, self.label_name(session), service);
        self.check_known(&ask, session)?;
        let Some(found) = self.service(service) else {
            return Err(ask.deny(DenialKind::UnknownService, format!("the site has no service `{service}`")));
        };
        if !found.range().contains(session) {
            return Err(ask.deny(
                DenialKind::NotOffered,
                format!(
                    "`{service}` is offered at {}, not at {}",
                    self.range_words(found.range()),
                    self.words(session)
                ),
            ));
        }
        Ok(ask.grant(
            Connect { label: session.clone(), service: service.clone(), recorded: found.recorded() },
            format!("`{service}` is offered at {}", self.words(session)),
        ))
    }

    /// May this session have one connection to this service, which a mediator decides about, where this posture counts at its label, and
    /// an owner has said this of its person, or nothing: only if the session's own grant lets it reach the service, the service is on, and
    /// is for that person. The site is not asked again what may be reached.
    pub fn decide_connection(
        &self,
        session: &Grant<Session>,
        service: &ServiceName,
        posture: Option<&Posture>,
        said: Option<bool>,
    ) -> Result<Grant<Connect>, Box<Denial>> {
        let Session { user, host, label, name, reach, .. } = session.action();
        let who = Who { user: Some(user), host: Some(host) };
        let ask = ask(who, Some(name.clone()), service);
        let found = self.check_mediated(&ask, service)?;
        let recorded = found.recorded();
        check_on(&ask, service, posture)?;
        if !found.access().admits(user, said) {
            return Err(ask.deny(DenialKind::NotAdmitted, format!("`{service}` is not for `{user}`")));
        }
        if !reach
            .iter()
            .any(|reach| matches!(&reach.destination, Destination::Service(name) if name == service))
        {
            return Err(ask.deny(DenialKind::NotOffered, format!("the session does not reach `{service}`")));
        }
        let connect = Connect { label: label.clone(), service: service.clone(), recorded };
        Ok(ask.grant(connect, format!("`{service}` is offered at {name}")))
    }

    /// May a host of the single-level network at this interface have one connection to this service, which a mediator decides about,
    /// where this posture counts at the label: only if the site gives the network this service there, and the service is on.
    pub fn decide_network_connection(
        &self,
        label: &Label,
        interface: &InterfaceName,
        service: &ServiceName,
        posture: Option<&Posture>,
    ) -> Result<Grant<Connect>, Box<Denial>> {
        let ask = ask(Who::default(), self.label_name(label), service);
        let found = self.check_mediated(&ask, service)?;
        check_on(&ask, service, posture)?;
        if found.access().is_limited() {
            let why = format!("`{service}` is for some people alone, and a host of a network is nobody");
            return Err(ask.deny(DenialKind::NotAdmitted, why));
        }
        let network = self.networks_at(label).find(|network| network.interface() == interface);
        if !network.is_some_and(|network| network.services().contains(service)) {
            let why = format!("the network at {interface} is not given `{service}` at {}", self.words(label));
            return Err(ask.deny(DenialKind::NotOffered, why));
        }
        self.decide_connect(Who::default(), label, service)
    }

    fn check_mediated(&self, ask: &Ask<'_>, service: &ServiceName) -> Result<&Service, Box<Denial>> {
        let Some(found) = self.service(service) else {
            return Err(ask.deny(DenialKind::UnknownService, format!("the site has no service `{service}`")));
        };
        if found.mode().is_mediated() {
            return Ok(found);
        }
        let why = format!("nobody decides about connections to `{service}` one by one");
        Err(ask.deny(DenialKind::NotOffered, why))
    }

    /// Why a service is or is not one that runs at a label where this posture counts, as a decision without a subject: what the
    /// warden asks before it has an instance started.
    pub fn decide_start(
        &self,
        label: &Label,
        service: &Service,
        posture: Option<&Posture>,
    ) -> Result<Grant<Start>, Box<Denial>> {
        let ask = ask(Who::default(), self.label_name(label), service.name());
        check_on(&ask, service.name(), posture)?;
        let reason = self.decide_connect(Who::default(), label, service.name())?.audit().reason.clone();
        Ok(ask.grant(Start { label: label.clone(), service: service.name().clone() }, reason))
    }
}

/// That a posture leaves a service on.
fn check_on(ask: &Ask<'_>, service: &ServiceName, posture: Option<&Posture>) -> Result<(), Box<Denial>> {
    match posture.filter(|posture| !posture.offers(service)) {
        None => Ok(()),
        Some(posture) => {
            Err(ask.deny(DenialKind::Posture, format!("posture `{}` has `{service}` off", posture.name())))
        }
    }
}

fn ask<'a>(who: Who<'a>, label: Option<LabelName>, service: &ServiceName) -> Ask<'a> {
    Ask { who, label, verb: Action::Connect, object: service.to_string() }
}
