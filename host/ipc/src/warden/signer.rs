//! The warden ↔ the signer.

use super::{Part, Peer, Role};
use crate::Secret;
use crate::signer::Use;
use levee_policy::PpkId;
use serde::{Deserialize, Serialize};

/// What the signer is given.
#[derive(Debug, Serialize, Deserialize)]
pub enum SignerPart {
    /// Before any key: what its encrypted keys are encrypted with (RFC 8018 6.2).
    Passphrase(Secret),
    /// A file with a PKCS#8 private key in PEM, for this use; one that is encrypted comes behind [`SignerPart::Passphrase`].
    PrivateKey(Use),
    /// A file with the PPK of this name in PEM, which may be encrypted as private keys may.
    Ppk(PpkId),
    /// The file in which the signer keeps how far the audit log is, to be read and written. Empty before the first record.
    AuditChain,
    /// A place that each checkpoint of the audit log is sent to, as a line: a file that is appended to, or a datagram socket on which
    /// the host's syslog listens.
    Checkpoints,
    /// A channel, and what may be signed on it. One that replaces another comes when that one's end is closed.
    Client(Use),
}

/// What the signer says in the place of [`Said::Ready`](super::Said::Ready): which of its files cannot be used, and why. It ends, and
/// starting it again would change nothing.
#[derive(Debug, Serialize, Deserialize)]
pub struct Unusable(pub String);

/// What the signer signs for a process, if anything.
pub fn use_of(role: Role) -> Option<Use> {
    match role {
        Role::Tps | Role::Tpe => Some(Use::Tls),
        Role::Keyer => Some(Use::Ike),
        Role::Sessiond => Some(Use::Audit),
        Role::Fsd => Some(Use::Federation),
        Role::Signer
        | Role::Vault
        | Role::Stack
        | Role::Witness
        | Role::Mediator
        | Role::Snapshot
        | Role::Copy
        | Role::Channel
        | Role::Frames
        | Role::Guard
        | Role::Layer => None,
    }
}

impl Part for SignerPart {
    const ROLES: &[Role] = &[Role::Signer];
    type Says = Unusable;

    fn channel(to: &Peer) -> Option<Self> {
        use_of(to.role).map(Self::Client)
    }

    fn descriptors(&self) -> usize {
        if matches!(self, Self::Passphrase(_)) { 0 } else { 1 }
    }

    fn is_late(&self) -> bool {
        matches!(self, Self::Client(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_signs_only_with_the_key_of_its_use() {
        assert_eq!(use_of(Role::Tps), Some(Use::Tls));
        assert_eq!(use_of(Role::Keyer), Some(Use::Ike));
        assert_eq!(use_of(Role::Sessiond), Some(Use::Audit));
        assert_eq!(use_of(Role::Fsd), Some(Use::Federation));
        assert_eq!(use_of(Role::Vault), None);
    }
}
