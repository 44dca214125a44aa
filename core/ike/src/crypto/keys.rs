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
        Self::followed_seed(alg, old_d, shared, ni, nr, &[])
    }

    /// As [`next_seed`](Self::next_seed), where additional key exchanges followed in IKE_FOLLOWUP_KE (RFC 9370 2.2.4):
    /// prf(SK_d (old), SK(0) | Ni | Nr | SK(1) | ... | SK(n)).
    pub(crate) fn followed_seed(
        alg: Prf,
        old_d: &[u8],
        shared: &[u8],
        ni: &[u8],
        nr: &[u8],
        more: &[Secret],
    ) -> Secret {
        let mut parts = vec![shared, ni, nr];
        parts.extend(more.iter().map(|s| s.as_slice()));
        prf(alg, old_d, &parts)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::suite::{Encryption, Integrity, KeyExchange};

    fn hex(s: &str) -> Vec<u8> {
        s.as_bytes()
            .chunks(2)
            .map(|c| u8::from_str_radix(std::str::from_utf8(c).expect("ASCII"), 16).expect("hexadecimal"))
            .collect()
    }

    /// NIST's samples for the IKEv2 key derivation of SP 800-135 (CAVP `ikev2.rsp`, SHA-256).
    mod nist {
        pub(super) const NI: &str = "3f302be1abcb28e1";
        pub(super) const NR: &str = "8c332ee006064c9b";
        pub(super) const SPI_I: u64 = 0x40da_c39e_1e1a_8640;
        pub(super) const SPI_R: u64 = 0x8619_a1cf_9a6e_4c07;
        pub(super) const SHARED: &str = "0f4d257d7a58fc4545c7d7a88119eee5d5c9690c5b4c989171d3abbfd99d1d29";
        pub(super) const SKEYSEED: &str = "5f00d1bd2c58ec224b1e6b71fa0f19a1faa7a193952c444411b47c1a9d8ba6fe";
        pub(super) const MATERIAL: &str = "0b137d669b0947d7d026d593f0305ad401ff0c471357d695778a9c7f4b4869ec\
            e98aca531188d16041b3bb936d2dbb3b4993a6e768a809160de45d0283f273a6cdf6854379e31be72b8d3d1fa990cf9c5b015ca9f918a7df\
            6253c958114a09d4e1c19bdcd4db14b29d98db1a74ad405c588662c14a04d0d36aa4ab55e90f8986d12d4aad";
        pub(super) const NEW_SHARED: &str =
            "25f3b12d6f282739256e39bf54eda53b60ffcf379bb7bcc90c27b4c4c578616c";
        pub(super) const NEW_SKEYSEED: &str =
            "2d63f6debc92048b4fef3889c4c99ca67d6496e0fac14a2bca9a2d6566ff2398";
    }

    #[test]
    fn the_keys_of_an_ike_sa_are_those_of_nists_samples() {
        let (ni, nr) = (hex(nist::NI), hex(nist::NR));
        let seed = IkeKeys::first_seed(Prf::HmacSha256, &ni, &nr, &hex(nist::SHARED));
        assert_eq!(*seed, hex(nist::SKEYSEED));
        // AES-128-CBC would take 160 octets; the sample has 132, so each key that lies within them is compared.
        let suite = IkeSuite {
            encryption: Encryption::Aes128Gcm16,
            integrity: None,
            prf: Prf::HmacSha256,
            key_exchange: KeyExchange::P256,
            additional: vec![],
        };
        let keys = IkeKeys::derive(&suite, &seed, &ni, &nr, nist::SPI_I, nist::SPI_R);
        let material = hex(nist::MATERIAL);
        assert_eq!(*keys.d, material[..32]);
        assert_eq!(*keys.initiator.encryption, material[32..52]);
        assert_eq!(*keys.responder.encryption, material[52..72]);
        assert_eq!(*keys.p_i, material[72..104]);
        assert_eq!(keys.p_r[..28], material[104..132]);
        let suite =
            IkeSuite { encryption: Encryption::Aes128Cbc, integrity: Some(Integrity::HmacSha256), ..suite };
        let keys = IkeKeys::derive(&suite, &seed, &ni, &nr, nist::SPI_I, nist::SPI_R);
        assert_eq!(*keys.initiator.integrity, material[32..64]);
        assert_eq!(*keys.responder.integrity, material[64..96]);
        assert_eq!(*keys.initiator.encryption, material[96..112]);
        assert_eq!(*keys.responder.encryption, material[112..128]);
    }

    #[test]
    fn the_seed_of_a_rekeyed_ike_sa_is_that_of_nists_samples() {
        let old_d = &hex(nist::MATERIAL)[..32];
        let seed = IkeKeys::next_seed(
            Prf::HmacSha256,
            old_d,
            &hex(nist::NEW_SHARED),
            &hex(nist::NI),
            &hex(nist::NR),
        );
        assert_eq!(*seed, hex(nist::NEW_SKEYSEED));
    }

    /// The numbers were computed with Python's hmac alone: prf(SK_d (old), SK(0) | Ni | Nr | SK(1) | SK(2)).
    #[test]
    fn the_secrets_of_a_rekeyings_further_key_exchanges_are_all_in_its_seed_and_in_their_order() {
        let more = [b"SK(1)", b"SK(2)"].map(|secret| Secret::new(secret.to_vec()));
        let seed = |alg| IkeKeys::followed_seed(alg, b"SK_d", b"SK(0)", b"Ni", b"Nr", &more);
        assert_eq!(
            *seed(Prf::HmacSha256),
            hex("9c0ae1a35164bfee9b9aaea358d077f17e6a105eb0a83ded8a1e04de3383719d")
        );
        assert_eq!(
            *seed(Prf::HmacSha384),
            hex(
                "58fbd9bc7e61ae7bbd3336bb36e1c209437db5d4ffb2326ef268c3dc1b1de2dfe933a914df10d68a67afa926ef2e7bca"
            )
        );
    }

    #[test]
    fn the_prfs_are_those_of_rfc_4231() {
        let data: [&[u8]; 2] = [b"what do ya want ", b"for nothing?"];
        for (alg, expected) in [
            (Prf::HmacSha256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (
                Prf::HmacSha384,
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
            ),
            (
                Prf::HmacSha512,
                "164b7a7bfcf819e2e395fbe73b56e0a387bd64222e831fd610270cd7ea2505549758bf75c05a994a6d034f65f8f0e6fdcaeab1a34d4a6b4b\
                 636e070a38bce737",
            ),
        ] {
            assert_eq!(*prf(alg, b"Jefe", &data), hex(&expected.replace(' ', "")));
        }
    }

    #[test]
    fn a_childs_keys_are_cut_initiator_first_and_encryption_before_integrity() {
        let suite = ChildSuite {
            encryption: Encryption::Aes256Cbc,
            integrity: Some(Integrity::HmacSha256),
            key_exchange: None,
            esn: false,
        };
        let all = prf_plus(Prf::HmacSha256, b"SK_d", &[b"g^ir", b"Ni", b"Nr"], 128);
        let (i, r) = child_keys(Prf::HmacSha256, b"SK_d", &suite, Some(b"g^ir"), b"Ni", b"Nr");
        assert_eq!((&*i.encryption, &*i.integrity), (&all[..32].to_vec(), &all[32..64].to_vec()));
        assert_eq!((&*r.encryption, &*r.integrity), (&all[64..96].to_vec(), &all[96..].to_vec()));
        let (other, _) = child_keys(Prf::HmacSha256, b"SK_d", &suite, None, b"Ni", b"Nr");
        assert!(other != i, "the child's own key exchange counts");
    }

    #[test]
    fn every_key_of_every_suite_is_as_long_as_it_must_be_and_like_no_other() {
        let ciphers = [
            (Encryption::Aes128Gcm16, None, 16, 4, 0),
            (Encryption::Aes256Gcm16, None, 32, 4, 0),
            (Encryption::ChaCha20Poly1305, None, 32, 4, 0),
            (Encryption::Aes128Cbc, Some(Integrity::HmacSha256), 16, 0, 32),
            (Encryption::Aes256Cbc, Some(Integrity::HmacSha384), 32, 0, 48),
            (Encryption::Aes256Cbc, Some(Integrity::HmacSha512), 32, 0, 64),
        ];
        let prfs = [(Prf::HmacSha256, 32), (Prf::HmacSha384, 48), (Prf::HmacSha512, 64)];
        let differ = |keys: &[&[u8]]| {
            let some: Vec<_> = keys.iter().filter(|key| !key.is_empty()).collect();
            some.iter().collect::<std::collections::BTreeSet<_>>().len() == some.len()
        };
        for ((encryption, integrity, key, salt, tag), (prf, output)) in
            ciphers.iter().flat_map(|one| prfs.map(|prf| (*one, prf)))
        {
            let (key_exchange, additional) = (KeyExchange::X25519, Vec::new());
            let suite = IkeSuite { encryption, integrity, prf, key_exchange, additional };
            let all = IkeKeys::derive(&suite, &[1; 32], &[2; 32], &[3; 32], 4, 5);
            let (one, other) = (&all.initiator, &all.responder);
            for (what, length) in [(&all.d, output), (&all.p_i, output), (&all.p_r, output)] {
                assert_eq!(what.len(), length, "{suite:?}");
            }
            for end in [one, other] {
                assert_eq!((end.encryption.len(), end.integrity.len()), (key + salt, tag), "{suite:?}");
            }
            let keys = [&all.d, &all.p_i, &all.p_r, &one.encryption, &other.encryption];
            let tags = [&one.integrity, &other.integrity];
            assert!(differ(&keys.into_iter().chain(tags).map(|key| &key[..]).collect::<Vec<_>>()));

            let child = ChildSuite { encryption, integrity, key_exchange: None, esn: true };
            let (one, other) = child_keys(prf, &[1; 32], &child, None, &[2; 32], &[3; 32]);
            for end in [&one, &other] {
                let lengths = (end.encryption.len(), end.salt.len(), end.integrity.len());
                assert_eq!(lengths, (key, salt, tag), "{child:?}");
            }
            let keys = [
                &one.encryption,
                &other.encryption,
                &one.salt,
                &other.salt,
                &one.integrity,
                &other.integrity,
            ];
            assert!(differ(&keys.map(|key| &key[..])));
        }
    }
}
