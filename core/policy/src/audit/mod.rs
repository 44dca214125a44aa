//! Audit records: what was decided, sealed so that a later change shows.

use serde::{Deserialize, Serialize};

use crate::names::{HostName, LabelName, UserName};

/// How a decision went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It was granted.
    Granted,
    /// It was denied.
    Denied,
    /// Something that is no decision happened, such as the end of a session.
    Noted,
}

/// What is to be recorded, before it has a time and a place in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Who, if a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserName>,
    /// From which workstation, if one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostName>,
    /// The label of the subject, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<LabelName>,
    /// What was wanted: `session`, `read`, `login`, ...
    pub action: String,
    /// Of what.
    pub object: String,
    /// How it went.
    pub verdict: Verdict,
    /// Why, in words.
    pub reason: String,
}
