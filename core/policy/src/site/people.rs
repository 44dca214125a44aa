//! People, and the workstations at which they work.

use super::ppk::HostPpk;
use crate::carry::Direction;
use crate::label::Range;
use crate::names::{HostName, UserName};

/// A person.
#[derive(Clone, Debug)]
pub struct User {
    pub(super) name: UserName,
    pub(super) clearance: Range,
    pub(super) export: Option<Range>,
    pub(super) import: Option<Range>,
    pub(super) second_factor: Option<SecondFactor>,
}

/// What a person shows beside their password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondFactor {
    /// A code that is good for 30 seconds, and once (TOTP, RFC 6238).
    Totp,
}

impl User {
    /// The person's name.
    pub fn name(&self) -> &UserName {
        &self.name
    }

    /// The labels at which the person may work.
    pub fn clearance(&self) -> &Range {
        &self.clearance
    }

    /// What the person shows beside their password, if anything.
    pub fn second_factor(&self) -> Option<SecondFactor> {
        self.second_factor
    }

    /// The labels at which this person may carry files out of a session or into one, if any: each is recorded.
    pub fn carries(&self, direction: Direction) -> Option<&Range> {
        match direction {
            Direction::Export => self.export.as_ref(),
            Direction::Import => self.import.as_ref(),
        }
    }
}

/// A workstation (TPE).
#[derive(Clone, Debug)]
pub struct Host {
    pub(super) name: HostName,
    pub(super) accreditation: Range,
    pub(super) ppk: Option<HostPpk>,
    pub(super) layered: bool,
}

impl Host {
    /// The name in its certificate.
    pub fn name(&self) -> &HostName {
        &self.name
    }

    /// The labels that may be worked at on it.
    pub fn accreditation(&self) -> &Range {
        &self.accreditation
    }

    /// The post-quantum preshared key that it shares with the server, if any (RFC 8784).
    pub fn ppk(&self) -> Option<&HostPpk> {
        self.ppk.as_ref()
    }

    /// Whether its sessions' ESP travels within a second tunnel, and never otherwise.
    pub fn is_layered(&self) -> bool {
        self.layered
    }
}
