//! What is looked at, and what is found.

use levee_policy::DomainName;
use levee_policy::site::Suites;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The tunnel's UDP port (RFC 3948).
pub const TUNNEL: u16 = 4500;

/// How one thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As it should be.
    Has,
    /// Not as it should be: no session comes about.
    Lacks,
    /// Sessions come about, but not well, or not for long.
    Weaker,
    /// What it needs is lacking.
    Untried,
}

/// What was found of one thing.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub what: &'static str,
    pub state: State,
    /// What was found.
    pub detail: String,
    /// What to do; empty where nothing is to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Finding {
    pub fn has(what: &'static str, detail: impl Into<String>) -> Self {
        Self { what, state: State::Has, detail: detail.into(), remedy: String::new() }
    }

    pub fn lacks(what: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what, state: State::Lacks, detail: detail.into(), remedy: remedy.into() }
    }

    pub fn weaker(what: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what, state: State::Weaker, detail: detail.into(), remedy: remedy.into() }
    }

    pub fn untried(what: &'static str, why: impl Into<String>) -> Self {
        Self { what, state: State::Untried, detail: why.into(), remedy: String::new() }
    }
}

/// What the doctor reads of `workstation.toml`; the warden reads all of it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Bundle {
    pub server_name: DomainName,
    pub addresses: Vec<IpAddr>,
    pub trusted_path_port: u16,
    #[serde(default)]
    pub suites: Suites,
    pub layer_port: Option<u16>,
    /// Where that is, if it is not at the server's own address.
    pub gateway: Option<IpAddr>,
}
