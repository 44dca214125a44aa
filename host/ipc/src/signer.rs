//! tps and its children, keyer, sessiond, fsd, and a workstation's tpe → signer: one typed thing at a time.
//!
//! The warden says which [`Use`] a channel has when it attaches it; a request of another use is refused.

use crate::Secret;
use crate::federation::Statement;
use levee_policy::{DomainName, PpkId};
use serde::{Deserialize, Serialize};

/// What a key, and a channel to the signer, is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Use {
    /// TLS 1.3 CertificateVerify of a server or client (RFC 8446 4.4.3).
    Tls,
    /// IKEv2 AUTH payload (RFC 7296 2.15, RFC 7427).
    Ike,
    /// A checkpoint of the audit log.
    Audit,
    /// TLS 1.3 CertificateVerify of a server of a federation as etcd's client. The key also signs what the server says to the others, but
    /// not on this channel.
    Federation,
}

/// To the signer.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToSigner {
    /// From the TPS alone: a further channel, with the same use, for one client; its descriptor comes along.
    Join,
    /// Sign the content of a TLS 1.3 CertificateVerify with the TLS key (ECDSA, with the hash of the key's curve). It has 64
    /// spaces, the context string, a zero byte and a transcript hash; anything else is refused.
    TlsVerify(Vec<u8>),
    /// On a workstation's channel for TLS: sign the proof of which device this is ([`crate::device::proof_message`]) with the TLS key.
    DeviceProof {
        /// For which server.
        server: DomainName,
        /// The server's number.
        nonce: [u8; 32],
        /// The connection's number.
        exporter: [u8; 32],
    },
    /// Sign an IKE_AUTH octets string, bounded in length, with the IKE key.
    IkeAuth(Vec<u8>),
    /// On a channel for IKE: mix the PPK of this name into keys of one IKE SA (RFC 8784 3).
    MixPpk {
        /// Which PPK.
        id: PpkId,
        /// By which prf.
        prf: Prf,
        /// The keys, each as long as the prf's output.
        keys: PpkKeys,
    },
    /// On sessiond's channel, that for the audit log: sign what this server says to the others of its site, with the key for the
    /// federation. In one run of the signer, each has a later run and number than the one before. Answered by [`FromSigner::Stated`].
    Statement(Box<Statement>),
    /// How far is the audit log, as the signer knows it? Answered by [`FromSigner::Chained`].
    AuditChain,
    /// These records are in the log, and on the disk. The signer chains their digests by itself; those that do not follow the last
    /// one it has are refused. Answered by [`FromSigner::Chained`].
    AuditRecords {
        /// The number of the first.
        from: u64,
        /// SHA-256 of each line: at most [`DIGESTS`].
        digests: Vec<[u8; 32]>,
    },
    /// Sign a checkpoint over the audit log as the signer knows it. Answered by [`FromSigner::Checkpoint`].
    AuditCheckpoint,
}

/// The most digests in one message.
pub const DIGESTS: usize = 1024;

/// From the signer.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromSigner {
    /// An ASN.1 ECDSA signature (RFC 3279 2.2.3).
    Signature(Vec<u8>),
    /// An ASN.1 ECDSA signature over a statement of this run and number; `None` if it is not to be signed.
    Stated {
        /// The statement's run.
        epoch: u64,
        /// Its number.
        number: u64,
        /// With the hash of the key's curve.
        signature: Option<Vec<u8>>,
    },
    /// The keys, with the PPK in them: prf+ (PPK, key) for each.
    Mixed(PpkKeys),
    /// The audit log as the signer knows it.
    Chained {
        /// Records.
        count: u64,
        /// The running hash over them.
        hash: [u8; 32],
    },
    /// The same, signed; and whether it could not be sent to where it was to be sent.
    Checkpoint {
        /// Records before this checkpoint.
        count: u64,
        /// The running hash over them.
        hash: [u8; 32],
        /// An ASN.1 ECDSA signature.
        signature: Vec<u8>,
        /// At least one of the places where checkpoints are sent did not take it.
        kept_back: bool,
    },
    /// Not a thing that this channel may have signed, or no such PPK.
    Refused,
}

/// A prf of IKEv2 (RFC 4868).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prf {
    /// PRF_HMAC_SHA2_256
    HmacSha256,
    /// PRF_HMAC_SHA2_384
    HmacSha384,
    /// PRF_HMAC_SHA2_512
    HmacSha512,
}

/// What stands before a PPK's name, in the first line of its file.
pub const PPK_ID: &str = "PPK_ID: ";

/// The keys of an IKE SA that a PPK is mixed into.
#[derive(Debug, Serialize, Deserialize)]
pub struct PpkKeys {
    /// SK_d.
    pub d: Secret,
    /// SK_pi.
    pub pi: Secret,
    /// SK_pr.
    pub pr: Secret,
}
