//! sessiond (on a workstation: the TPE) ↔ keyer: who may have keys, at which label, now.

use crate::Secret;
use crate::vault::Carriage;
use ipnet::IpNet;
use levee_policy::site::{Cipher, Keying};
use levee_policy::{DomainName, HostName, LabelName, PpkId};
use levee_session::SessionId;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A session for which keys may be agreed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// The session.
    pub session: SessionId,
    /// Whose keys: the host that the peer's certificate must name.
    pub device: HostName,
    /// Its label; the keys go to that label's vault and no other.
    pub label: LabelName,
    /// The session's inner addresses: what the peer may be.
    pub inner: Vec<IpAddr>,
    /// The addresses that it may reach; which services there, the vault knows.
    pub reach: Vec<IpNet>,
    /// How its packets are to go.
    pub carriage: Carriage,
    /// What they are sealed by, the preferred first; `None`: by whatever the label has.
    pub ciphers: Option<Vec<Cipher>>,
    /// How old its keys may become; `None`: as old as any.
    pub key_life: Option<Duration>,
}

/// A way in at the server's keyer that strangers do not have, good for one IKE SA: a random name, and a secret that the keyer has from
/// the name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pass {
    /// The name.
    pub name: [u8; 16],
    /// The secret, 32 octets.
    pub secret: Secret,
}

/// sessiond or TPE → keyer.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToKeyer {
    /// Server: answer to [`FromKeyer::Wanted`]. Without a record: no.
    Answer {
        /// As in the question.
        ticket: u64,
        /// What may be agreed.
        record: Option<KeyRecord>,
    },
    /// Server: the session's vault has its record, and the keys that the keyer may have given it are gone; or the
    /// keyer is new. Agree anew, or say [`FromKeyer::NoPeer`].
    Renew(KeyRecord),
    /// Workstation: negotiate with the server, and give the keys to the local vault; again where that was done
    /// before and the server's keyer knows us no more.
    Connect {
        /// The session that the server opened; `device` is this workstation.
        record: KeyRecord,
        /// Where the server receives the tunnel.
        server: SocketAddr,
        /// What the server's keyer knows this workstation by.
        passes: Vec<Pass>,
    },
    /// Server: answer with [`FromKeyer::Passes`].
    MorePasses,
    /// Workstation: once a packet waits for it, negotiate with another server of the site, for the part of the session that is
    /// there. It ends with the session that was connected last.
    Admit {
        /// That part, under a name of its own; `device` is this workstation.
        record: KeyRecord,
        /// Where the server receives the tunnel.
        server: SocketAddr,
        /// The name that its certificate must have.
        name: DomainName,
    },
    /// Server: agree keys at this label like this alone, and rekey what is there where it may not be kept. Unsaid, by all that the site's
    /// suites have.
    Keying(LabelName, Keying),
    /// This session is over: delete its security associations and forget it.
    Revoke(SessionId),
}

/// Keyer → sessiond or TPE.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromKeyer {
    /// Server: an authenticated peer wants keys; answered by [`ToKeyer::Answer`].
    Wanted {
        /// The keyer's own number.
        ticket: u64,
        /// The host in its certificate.
        device: HostName,
        /// The label that it asks for.
        label: LabelName,
        /// The range of labels in its certificate, in the site's words.
        accreditation: Option<String>,
    },
    /// Server: an authenticated peer was refused keys without a question.
    Refused {
        /// The host in its certificate, where it names one.
        device: Option<HostName>,
        /// The label that it asked for, where it could be one.
        label: Option<LabelName>,
        /// Why.
        #[serde(deserialize_with = "crate::said::reason")]
        reason: String,
    },
    /// Server: a revocation list that has come names the certificate of this host, which had an IKE SA until now.
    Revoked(HostName),
    /// Server: this host has proved itself with the newer of two PPKs that it may use; said once of each host, and again to a
    /// sessiond that is new to this keyer.
    NewPpk {
        /// The host in its certificate.
        device: HostName,
        /// The PPK.
        id: PpkId,
    },
    /// Server: there is no IKE SA with this session's workstation.
    NoPeer(SessionId),
    /// Server: passes for those who are signed on; unasked when sessiond is new to this keyer.
    Passes(Vec<Pass>),
    /// What was dropped or failed since the last such message, by reason.
    Dropped(#[serde(deserialize_with = "crate::said::counts")] Vec<(String, u64)>),
    /// Workstation: the vault has its first keys for this session.
    Completed(SessionId),
    /// Workstation: there are no keys for this session and none can be had.
    Failed {
        /// The session.
        session: SessionId,
        /// Why, for the person.
        #[serde(deserialize_with = "crate::said::reason")]
        reason: String,
    },
}
