//! Who reaches a service, as its owners decide while it runs.

use super::{Ask, Denial, DenialKind, Grant, Session, Who};
use crate::audit::Action;
use crate::names::{LabelName, ServiceName, UserName};
use crate::site::Site;

/// To let a person reach a service at a label, or no more.
#[derive(Debug, PartialEq, Eq)]
pub struct ChangeAccess {
    label: LabelName,
    service: ServiceName,
    user: UserName,
    admits: bool,
}

impl ChangeAccess {
    /// At which label: the instance there, and none at another.
    pub fn label(&self) -> &LabelName {
        &self.label
    }

    /// Which service.
    pub fn service(&self) -> &ServiceName {
        &self.service
    }

    /// Whom it is about.
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// Whether they reach it.
    pub fn admits(&self) -> bool {
        self.admits
    }
}

impl Site {
    /// May the person of this session say who reaches this service: only if they own it, and at the session's own label. So what
    /// somebody decides at a label changes nothing at any other, where a service could see it.
    pub fn decide_access(
        &self,
        session: &Grant<Session>,
        service: &ServiceName,
        user: &UserName,
        admits: bool,
    ) -> Result<Grant<ChangeAccess>, Box<Denial>> {
        let Session { user: owner, host, label, name, .. } = session.action();
        let ask = Ask {
            who: Who { user: Some(owner), host: Some(host) },
            label: Some(name.clone()),
            verb: Action::Access,
            object: service.to_string(),
        };
        let found = self.service(service).filter(|found| found.range().contains(label));
        // One answer for a service that is not there and for one that is another's.
        let Some(access) = found.map(|found| found.access()).filter(|access| access.owners().contains(owner))
        else {
            return Err(ask.deny(DenialKind::NotOwner, format!("you own no service `{service}` at {name}")));
        };
        self.change_access(ask, access.owners().contains(user), name, (service, user, admits))
    }

    /// An operator says so in an owner's place, of any service that has owners.
    pub fn decide_access_by_operator(
        &self,
        name: &LabelName,
        service: &ServiceName,
        user: &UserName,
        admits: bool,
    ) -> Result<Grant<ChangeAccess>, Box<Denial>> {
        let label = self.label(name);
        // A label that the site does not have is in no record.
        let known = label.as_ref().map(|_| name.clone());
        let ask =
            Ask { who: Who::default(), label: known, verb: Action::Access, object: service.to_string() };
        let Some(label) = label else {
            return Err(ask.deny(DenialKind::UnknownLabel, format!("the site has no label {name}")));
        };
        let Some(found) = self.service(service).filter(|found| found.range().contains(&label)) else {
            return Err(ask.deny(DenialKind::NotOffered, format!("there is no `{service}` at {name}")));
        };
        if found.access().owners().is_empty() {
            let why = format!("`{service}` has no `owners`: who reaches it stands in the site file alone");
            return Err(ask.deny(DenialKind::NotOwner, why));
        }
        self.change_access(ask, found.access().owners().contains(user), name, (service, user, admits))
    }

    fn change_access(
        &self,
        ask: Ask<'_>,
        is_owner: bool,
        label: &LabelName,
        (service, user, admits): (&ServiceName, &UserName, bool),
    ) -> Result<Grant<ChangeAccess>, Box<Denial>> {
        if self.user(user).is_none() {
            return Err(ask.deny(DenialKind::UnknownUser, format!("the site has no user `{user}`")));
        }
        if is_owner {
            let why = format!("`{user}` owns `{service}`, and so reaches it");
            return Err(ask.deny(DenialKind::IsOwner, why));
        }
        let by = match ask.who.user {
            Some(owner) => format!("`{owner}`, who owns it"),
            None => "an operator".to_owned(),
        };
        let reaches = if admits { "reaches" } else { "does not reach" };
        let reason = format!("`{user}` {reaches} it at {label}, by {by}");
        let (label, service, user) = (label.clone(), service.clone(), user.clone());
        Ok(ask.grant(ChangeAccess { label, service, user, admits }, reason))
    }
}
