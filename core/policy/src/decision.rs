//! Decisions, and the permissions that only they can make.
//!
//! Everything that grants something takes a [`Grant`], and nothing outside this module can build one. A
//! grant is used once: it is neither `Clone` nor readable from bytes.

mod access;
mod connect;
mod keys;
mod pass;
mod password;
mod sign_on;

pub use crate::carry::{Carry, Direction};
pub use access::ChangeAccess;
pub use connect::{Connect, Start};
pub use keys::Keys;
pub use pass::{Message, Pass, Release};
pub use password::ChangePassword;
pub use sign_on::SignOn;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::audit::{Action, Event, Verdict};
use crate::label::Label;
use crate::names::{HostName, LabelName, ProtectionName, UserName};
use crate::site::{Posture, Protected, Reach, Site};

/// A permission to do what `A` describes, made by a decision of this module and by nothing else.
///
/// Nobody else can build one, keep one by copying it, or read one from bytes:
///
/// ```compile_fail,E0451
/// fn forge(event: levee_policy::audit::Event) -> levee_policy::Grant<()> {
///     levee_policy::Grant { action: (), event }
/// }
/// ```
/// ```compile_fail,E0308
/// fn copy(grant: &levee_policy::Grant<levee_policy::decision::Read>) {
///     let _: levee_policy::Grant<levee_policy::decision::Read> = grant.clone();
/// }
/// ```
/// ```compile_fail,E0277
/// fn read(bytes: &[u8]) -> levee_policy::Grant<levee_policy::decision::Read> {
///     serde_json::from_slice(bytes).unwrap()
/// }
/// ```
/// A decision is the way to one:
/// ```
/// fn allowed(site: &levee_policy::Site, label: &levee_policy::Label) -> bool {
///     site.decide_read(levee_policy::Who::default(), label, label).is_ok()
/// }
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a grant is worth nothing unless it is carried out"]
pub struct Grant<A> {
    action: A,
    event: Event,
}

impl<A> Grant<A> {
    /// What is permitted.
    pub fn action(&self) -> &A {
        &self.action
    }

    /// What must be in the audit log, synced, before the grant takes effect.
    pub fn audit(&self) -> &Event {
        &self.event
    }

    /// A record of what this permission is used for: another action than the one that was decided about, or of another object.
    /// Who, from where, at which label and the verdict are the decision's.
    pub fn entry(&self, action: Action, object: String, reason: String) -> Event {
        Event { action, object, reason, ..self.event.clone() }
    }

    /// Uses the grant up.
    pub fn into_parts(self) -> (A, Event) {
        (self.action, self.event)
    }
}

/// Why something was denied, for a program to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DenialKind {
    /// The site file does not name this user.
    UnknownUser,
    /// The site file does not name this host.
    UnknownHost,
    /// The site file does not name this service.
    UnknownService,
    /// The label is not one of the site's.
    UnknownLabel,
    /// The user's clearance does not contain the label.
    NotCleared,
    /// The host's accreditation does not contain the label.
    NotAccredited,
    /// No service or network host can be reached at the label.
    NothingThere,
    /// The service's range does not contain the label.
    NotOffered,
    /// The subject does not dominate the object.
    NotDominated,
    /// An operator has said that the user may not sign on.
    Disabled,
    /// The certificate says nothing of labels, or not in the site's words.
    NoAccreditation,
    /// The session is at another label.
    OtherLabel,
    /// The posture in force does not let the user, or the host, have sessions at the label, or has the service off.
    Posture,
    /// The protection that was asked for, or that a service at the label asks for, cannot be had.
    NotProtected,
    /// The user may not carry files out of sessions at the label, or into them.
    NotCarried,
    /// The site has no such guard, or nobody releases its messages.
    UnknownChannel,
    /// The user is not one of those who release the guard's messages.
    NotReleaser,
    /// Two people have not released the message, each from a workstation of their own.
    NotReleased,
    /// The user does not decide who reaches the service.
    NotOwner,
    /// The service is not for the user, by the site's word or an owner's.
    NotAdmitted,
    /// The user owns the service, and so reaches it.
    IsOwner,
}

/// A decision against, with its reason in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    kind: DenialKind,
    event: Event,
}

impl Denial {
    /// The reason, for a program.
    pub fn kind(&self) -> DenialKind {
        self.kind
    }

    /// The reason, in words. It names labels and clearances: it is for the audit log and the operator, and
    /// for a person who has already signed on.
    pub fn reason(&self) -> &str {
        &self.event.reason
    }

    /// What must be in the audit log.
    pub fn audit(&self) -> &Event {
        &self.event
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for Denial {}

/// To read an object at its label from a subject at its own.
#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    subject: Label,
    object: Label,
}

impl Read {
    /// The reader's label.
    pub fn subject(&self) -> &Label {
        &self.subject
    }

    /// The label of what is read.
    pub fn object(&self) -> &Label {
        &self.object
    }
}

/// To open a session.
#[derive(Debug, PartialEq, Eq)]
pub struct Session {
    user: UserName,
    host: HostName,
    label: Label,
    name: LabelName,
    reach: Vec<Reach>,
    protected: Protected,
}

impl Session {
    /// Whose session it is.
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// The workstation it runs on.
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// The session's label, by its name.
    pub fn name(&self) -> &LabelName {
        &self.name
    }

    /// The session's label.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// The label's canonical name.
    pub fn label_name(&self) -> &LabelName {
        &self.name
    }

    /// All the session may reach, and nothing else: the selectors of its security association.
    pub fn reach(&self) -> &[Reach] {
        &self.reach
    }

    /// What its tunnel must have beyond what every tunnel at the label has.
    pub fn protected(&self) -> &Protected {
        &self.protected
    }
}

/// Who asks, for the audit record. Decisions themselves look at labels only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Who<'a> {
    /// The user on whose behalf, if one.
    pub user: Option<&'a UserName>,
    /// The workstation from which, if one.
    pub host: Option<&'a HostName>,
}

impl Site {
    /// May a subject read an object: only if the subject's label dominates the object's (simple security
    /// property; for integrity, Biba's simple integrity).
    ///
    /// Writing is decided by nobody: what can be written at a label is its own, because nothing else of a compartment is mounted
    /// writable. A blind write up would keep the *-property, but lets a low subject destroy what it cannot see; Biba's dual holds with
    /// equality too.
    pub fn decide_read(
        &self,
        who: Who<'_>,
        subject: &Label,
        object: &Label,
    ) -> Result<Grant<Read>, Box<Denial>> {
        let ask =
            Ask { who, label: self.label_name(subject), verb: Action::Read, object: self.words(object) };
        self.check_known(&ask, subject)?;
        self.check_known(&ask, object)?;
        if !subject.dominates(object) {
            return Err(ask.deny(
                DenialKind::NotDominated,
                format!("{} does not dominate {}", self.words(subject), self.words(object)),
            ));
        }
        Ok(ask.grant(
            Read { subject: subject.clone(), object: object.clone() },
            format!("{} dominates {}", self.words(subject), self.words(object)),
        ))
    }

    /// May this user open a session at this label on this host: only if the label is in the user's
    /// clearance and the host's accreditation, and something can be reached there.
    ///
    /// A change of level is the same decision for the new label.
    pub fn decide_session(
        &self,
        user: &UserName,
        host: &HostName,
        label: &LabelName,
    ) -> Result<Grant<Session>, Box<Denial>> {
        self.decide_protected_session(user, host, label, None, None)
    }

    /// The same where the user asks for this protection, and this posture counts at the label now ([`Site::posture_at`]): only if it lets
    /// the user have sessions there from this host, and that protection and what services at the label ask for can be had with the
    /// ciphers that it leaves. Nothing less is granted instead.
    pub fn decide_protected_session(
        &self,
        user: &UserName,
        host: &HostName,
        label: &LabelName,
        asked: Option<&ProtectionName>,
        posture: Option<&Posture>,
    ) -> Result<Grant<Session>, Box<Denial>> {
        let ask = Ask {
            who: Who { user: Some(user), host: Some(host) },
            label: Some(label.clone()),
            verb: Action::Session,
            object: self.name().to_string(),
        };
        let Some(found_host) = self.host(host) else {
            return Err(ask.deny(DenialKind::UnknownHost, format!("the site has no host `{host}`")));
        };
        let Some(found_user) = self.user(user) else {
            return Err(ask.deny(DenialKind::UnknownUser, format!("the site has no user `{user}`")));
        };
        let Some(wanted) = self.label(label) else {
            return Err(ask.deny(DenialKind::UnknownLabel, format!("the site has no label `{label}`")));
        };
        if !found_user.clearance().contains(&wanted) {
            return Err(ask.deny(
                DenialKind::NotCleared,
                format!(
                    "`{user}` is cleared for {}, not for {label}",
                    self.range_words(found_user.clearance())
                ),
            ));
        }
        if !found_host.accreditation().contains(&wanted) {
            return Err(ask.deny(
                DenialKind::NotAccredited,
                format!(
                    "`{host}` is accredited for {}, not for {label}",
                    self.range_words(found_host.accreditation())
                ),
            ));
        }
        let reach = self.reachable_by(user, &wanted);
        if reach.is_empty() {
            return Err(ask.deny(DenialKind::NothingThere, format!("nothing can be reached at {label}")));
        }
        if let Some(posture) = posture.filter(|posture| !posture.admits(user, host)) {
            let why = format!("posture `{}` {}", posture.name(), posture.refusal(user, host, label));
            return Err(ask.deny(DenialKind::Posture, why));
        }
        let protected = match self.protected(&wanted, asked, self.ciphers_under(posture)) {
            Ok(protected) => protected,
            Err(why) => return Err(ask.deny(DenialKind::NotProtected, why.to_string())),
        };
        let mut reason = format!("`{user}` is cleared and `{host}` accredited for {label}");
        if !protected.names.is_empty() {
            reason.push_str(&format!("; protection {}", protected.words()));
        }
        let (user, host, name) = (user.clone(), host.clone(), label.clone());
        Ok(ask.grant(Session { user, host, label: wanted, name, reach, protected }, reason))
    }

    /// May this user carry this file out of a session at this label, or into one: only if the label is in the range that the
    /// site gives this user for it. The record says what the file was.
    pub fn decide_carry(
        &self,
        user: &UserName,
        host: &HostName,
        label: &LabelName,
        file: Carry,
    ) -> Result<Grant<Carry>, Box<Denial>> {
        let (verb, way) = match file.direction {
            Direction::Export => (Action::Export, "out of"),
            Direction::Import => (Action::Import, "into"),
        };
        let who = Who { user: Some(user), host: Some(host) };
        let object = format!("{} bytes, SHA-256 {}", file.bytes, crate::audit::hex(&file.digest));
        let ask = Ask { who, label: Some(label.clone()), verb, object };
        let Some(found) = self.user(user) else {
            return Err(ask.deny(DenialKind::UnknownUser, format!("the site has no user `{user}`")));
        };
        let Some(point) = self.label(label) else {
            return Err(ask.deny(DenialKind::UnknownLabel, format!("the site has no label `{label}`")));
        };
        match found.carries(file.direction).filter(|range| range.contains(&point)) {
            Some(_) => Ok(ask.grant(file, format!("`{user}` may carry files {way} sessions at {label}"))),
            None => Err(ask.deny(
                DenialKind::NotCarried,
                format!("the site does not let `{user}` carry files {way} sessions at {label}"),
            )),
        }
    }

    fn check_known(&self, ask: &Ask<'_>, label: &Label) -> Result<(), Box<Denial>> {
        if self.vocabulary().knows(label) {
            return Ok(());
        }
        Err(ask.deny(DenialKind::UnknownLabel, format!("the site has no label {label:?}")))
    }

    fn words(&self, label: &Label) -> String {
        self.vocabulary().text(label).unwrap_or_else(|| format!("{label:?}"))
    }

    fn range_words(&self, range: &crate::label::Range) -> String {
        self.vocabulary().print_range(range).unwrap_or_else(|| format!("{range:?}"))
    }
}

/// What is asked, for the record of the answer.
struct Ask<'a> {
    who: Who<'a>,
    label: Option<LabelName>,
    verb: Action,
    object: String,
}

impl Ask<'_> {
    fn event(&self, verdict: Verdict, reason: String) -> Event {
        Event {
            user: self.who.user.cloned(),
            host: self.who.host.cloned(),
            label: self.label.clone(),
            action: self.verb.clone(),
            object: self.object.clone(),
            verdict,
            reason,
        }
    }

    fn grant<A>(self, action: A, reason: String) -> Grant<A> {
        Grant { event: self.event(Verdict::Granted, reason), action }
    }

    fn deny(&self, kind: DenialKind, reason: String) -> Box<Denial> {
        Box::new(Denial { kind, event: self.event(Verdict::Denied, reason) })
    }
}
