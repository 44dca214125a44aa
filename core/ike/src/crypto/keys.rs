//! Key derivation (RFC 7296 2.13 to 2.18, RFC 8784, RFC 9370).

use super::Secret;
use super::cipher::{Cipher, DirectionKeys};
use super::prf::{prf, prf_plus};
use super::suite::{ChildSuite, IkeSuite, Prf};

/// The keys of an IKE SA (RFC 7296 2.14), before they are put to their uses.
pub(crate) struct IkeKeys {
    pub(crate) d: Secret,
    pub(crate) initiator: DirectionKeys,
    pub(crate) responder: DirectionKeys,
    pub(crate) p_i: Secret,
    pub(crate) p_r: Secret,
}

impl IkeKeys {
    /// SKEYSEED of a first IKE SA: prf(Ni | Nr, g^ir) (RFC 7296 2.14).
    pub(crate) fn first_seed(alg: Prf, ni: &[u8], nr: &[u8], shared: &[u8]) -> Secret {
        let nonces = [ni, nr].concat();
        prf(alg, &nonces, &[shared])
    }

    /// SKEYSEED of a rekeyed IKE SA: prf(SK_d (old), g^ir (new) | Ni | Nr) (RFC 7296 2.18), `alg` being the old SA's. RFC 9370
    /// 2.2.2 makes the same computation after each additional key exchange in IKE_INTERMEDIATE.
    pub(crate) fn next_seed(alg: Prf, old_d: &[u8], shared: &[u8], ni: &[u8], nr: &[u8]) -> Secret {
        prf(alg, old_d, &[shared, ni, nr])
    }

    /// {SK_d | SK_ai | SK_ar | SK_ei | SK_er | SK_pi | SK_pr} = prf+ (SKEYSEED, Ni | Nr | SPIi | SPIr).
    pub(crate) fn derive(
        suite: &IkeSuite,
        seed: &[u8],
        ni: &[u8],
        nr: &[u8],
        spi_i: u64,
        spi_r: u64,
    ) -> Self {
        let prf_length = suite.prf.length();
        let integrity = suite.integrity.map_or(0, |i| i.key_length());
        let encryption = suite.encryption.key_length() + suite.encryption.salt_length();
        let total = 3 * prf_length + 2 * integrity + 2 * encryption;
        let all = prf_plus(suite.prf, seed, &[ni, nr, &spi_i.to_be_bytes(), &spi_r.to_be_bytes()], total);
        let mut cut = Cut(&all);
        let d = cut.next(prf_length);
        let (ai, ar) = (cut.next(integrity), cut.next(integrity));
        let (ei, er) = (cut.next(encryption), cut.next(encryption));
        let (p_i, p_r) = (cut.next(prf_length), cut.next(prf_length));
        Self {
            d,
            initiator: DirectionKeys { encryption: ei, integrity: ai },
            responder: DirectionKeys { encryption: er, integrity: ar },
            p_i,
            p_r,
        }
    }

    pub(crate) fn ciphers(&self, suite: &IkeSuite) -> (Cipher, Cipher) {
        (Cipher::new(suite, self.initiator.clone()), Cipher::new(suite, self.responder.clone()))
    }
}

/// Cuts consecutive keys out of prf+'s output.
struct Cut<'a>(&'a [u8]);

impl Cut<'_> {
    fn next(&mut self, n: usize) -> Secret {
        // prf+ gave as many octets as were asked for; were it short, a short key would be refused by the cipher.
        let (head, rest) = self.0.split_at_checked(n).unwrap_or((self.0, &[]));
        self.0 = rest;
        Secret::new(head.to_vec())
    }
}

impl Prf {
    /// Octets of its output, which is also its preferred key size (RFC 4868 2.1.2).
    pub(crate) fn length(self) -> usize {
        match self {
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }
}

/// The keys of one direction of a child SA. Erased when dropped; not printable.
#[derive(Clone, PartialEq, Eq)]
pub struct EspKeys {
    /// The encryption key, without the salt.
    pub encryption: Secret,
    /// The salt of an AEAD (4 octets); empty otherwise.
    pub salt: Secret,
    /// The integrity key; empty for an AEAD.
    pub integrity: Secret,
}

impl std::fmt::Debug for EspKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EspKeys(..)")
    }
}

/// KEYMAT = prf+(SK_d, [g^ir |] Ni | Nr) (RFC 7296 2.17): the initiator's direction first, and in each direction encryption
/// before integrity. "Initiator" is who began the exchange that made the child.
pub(crate) fn child_keys(
    alg: Prf,
    sk_d: &[u8],
    suite: &ChildSuite,
    shared: Option<&[u8]>,
    ni: &[u8],
    nr: &[u8],
) -> (EspKeys, EspKeys) {
    let key = suite.encryption.key_length();
    let salt = suite.encryption.salt_length();
    let integrity = suite.integrity.map_or(0, |i| i.key_length());
    let all = prf_plus(alg, sk_d, &[shared.unwrap_or_default(), ni, nr], 2 * (key + salt + integrity));
    let mut cut = Cut(&all);
    let mut one =
        || EspKeys { encryption: cut.next(key), salt: cut.next(salt), integrity: cut.next(integrity) };
    (one(), one())
}
