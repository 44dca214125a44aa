//! A session as the store keeps it, and as servers tell each other of it.

use crate::{SessionId, Time};
use levee_policy::{HostName, LabelName, ProtectionName, UserName};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A session as the store keeps it. To bring it back, the policy is asked again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// Its name.
    pub id: SessionId,
    /// Who.
    pub user: UserName,
    /// From which TPE.
    pub device: HostName,
    /// SHA-256 of the TPE's certificate.
    pub fingerprint: [u8; 32],
    /// At which label.
    pub label: LabelName,
    /// Its inner addresses.
    pub inner: Vec<IpAddr>,
    /// When its person signed on: a change of level does not begin anew what the site lets a session last.
    pub opened: Time,
    /// The protection that its person asked for.
    pub protection: Option<ProtectionName>,
}
