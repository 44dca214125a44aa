//! Keys for a session: agreed when a workstation asks for them, and again when they are lost.

use super::{Ask, Denial, DenialKind, Grant, Session, Who};
use crate::audit::{Action, Event, Verdict};
use crate::names::{HostName, LabelName};
use crate::site::{Protected, Site};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// To agree keys for a session, once.
#[derive(Debug, PartialEq, Eq)]
pub struct Keys {
    host: HostName,
    label: LabelName,
    reach: Vec<IpAddr>,
    protected: Protected,
}

impl Keys {
    /// With which workstation.
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// At which label.
    pub fn label(&self) -> &LabelName {
        &self.label
    }

    /// The addresses that may be reached by them.
    pub fn reach(&self) -> &[IpAddr] {
        &self.reach
    }

    /// What the tunnel must have beyond what every tunnel at the label has.
    pub fn protected(&self) -> &Protected {
        &self.protected
    }

    fn of(session: &Session) -> Self {
        let reach: BTreeSet<IpAddr> = session.reach.iter().map(|reach| reach.address).collect();
        let (host, label, protected) =
            (session.host.clone(), session.name.clone(), session.protected.clone());
        Self { host, label, reach: reach.into_iter().collect(), protected }
    }
}

impl Site {
    /// May this host have keys at this label: only if the session that it has is at this label, and the accreditation in its
    /// certificate has the label, too. The site file has decided already when the session was opened; a certificate can only
    /// narrow that. `accreditation` is the certificate's, in the site's words.
    ///
    /// Without a session's grant nobody can ask:
    /// ```compile_fail,E0308
    /// fn keys(site: &levee_policy::Site, host: &levee_policy::HostName, label: &levee_policy::LabelName) {
    ///     let _ = site.decide_keys((host, label), host, label, None);
    /// }
    /// ```
    /// ```
    /// use levee_policy::{Grant, HostName, LabelName, Site, decision::Session};
    /// fn keys(site: &Site, session: &Grant<Session>, host: &HostName, label: &LabelName) {
    ///     let _ = site.decide_keys(session, host, label, None);
    /// }
    /// ```
    pub fn decide_keys(
        &self,
        session: &Grant<Session>,
        host: &HostName,
        label: &LabelName,
        accreditation: Option<&str>,
    ) -> Result<Grant<Keys>, Box<Denial>> {
        let who = Who { user: None, host: Some(host) };
        let point = self.label(label);
        let known = point.as_ref().map(|_| label.clone());
        let ask = Ask { who, label: known, verb: Action::Negotiate, object: label.to_string() };
        let deny = |kind, why: &str| Err(ask.deny(kind, why.to_owned()));
        let Some(point) = point else { return deny(DenialKind::UnknownLabel, "the site has no such label") };
        let Some(text) = accreditation else {
            return deny(DenialKind::NoAccreditation, "its certificate has no accreditation");
        };
        let Ok(range) = self.vocabulary().parse_range(text) else {
            return deny(
                DenialKind::NoAccreditation,
                "the accreditation in its certificate is not of this site",
            );
        };
        if !range.contains(&point) {
            let why = format!("its certificate is accredited for {text}");
            return Err(ask.deny(DenialKind::NotAccredited, why));
        }
        let session = session.action();
        if session.host != *host {
            return deny(DenialKind::UnknownHost, "it has no session");
        }
        if session.name != *label {
            return deny(DenialKind::OtherLabel, "its session is at another label");
        }
        Ok(ask.grant(Keys::of(session), format!("it has a session at {label}")))
    }
}

impl Grant<Session> {
    /// As long as a session's grant is not used up, its keys may be agreed anew with the host that had them.
    pub fn keys_again(&self) -> Grant<Keys> {
        let session = self.action();
        let event = Event {
            user: None,
            host: Some(session.host.clone()),
            label: Some(session.name.clone()),
            action: Action::Negotiate,
            object: session.name.to_string(),
            verdict: Verdict::Granted,
            reason: "the session's keys were lost".to_owned(),
        };
        Grant { action: Keys::of(session), event }
    }
}
