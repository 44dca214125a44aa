//! Key exchanges: RFC 5903 (P-256, P-384), RFC 8031 (X25519), FIPS 203 (ML-KEM), with the checks of RFC 6989.

use super::Secret;
use super::suite::KeyExchange;
use crate::Random;
use ml_kem::kem::{Decapsulate, KeyExport};
use ml_kem::{MlKem768, MlKem1024};
use zeroize::Zeroizing;

/// A key share that is not a valid public value of its method, or a shared secret of all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadKeyShare;

/// Our half of a key exchange that the peer has yet to answer.
pub(crate) enum Private {
    P256(p256::SecretKey),
    P384(p384::SecretKey),
    X25519(x25519_dalek::StaticSecret),
    MlKem768(Box<ml_kem::DecapsulationKey<MlKem768>>),
    MlKem1024(Box<ml_kem::DecapsulationKey<MlKem1024>>),
}

impl std::fmt::Debug for Private {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Private({:?})", self.method())
    }
}

/// Tries to make a scalar out of random octets. A failure means that the octets were not random: a valid scalar misses with
/// probability below 2^-32.
const TRIES: usize = 16;

fn p256_secret(rng: &mut dyn Random) -> Result<p256::SecretKey, BadKeyShare> {
    let mut bytes = Zeroizing::new([0u8; 32]);
    for _ in 0..TRIES {
        rng.fill(&mut *bytes);
        if let Ok(key) = p256::SecretKey::from_slice(&*bytes) {
            return Ok(key);
        }
    }
    Err(BadKeyShare)
}

fn p384_secret(rng: &mut dyn Random) -> Result<p384::SecretKey, BadKeyShare> {
    let mut bytes = Zeroizing::new([0u8; 48]);
    for _ in 0..TRIES {
        rng.fill(&mut *bytes);
        if let Ok(key) = p384::SecretKey::from_slice(&*bytes) {
            return Ok(key);
        }
    }
    Err(BadKeyShare)
}

fn x25519_secret(rng: &mut dyn Random) -> x25519_dalek::StaticSecret {
    let mut bytes = Zeroizing::new([0u8; 32]);
    rng.fill(&mut *bytes);
    x25519_dalek::StaticSecret::from(*bytes)
}

fn seed(rng: &mut dyn Random) -> ml_kem::Seed {
    let mut bytes = Zeroizing::new([0u8; 64]);
    rng.fill(&mut *bytes);
    (*bytes).into()
}

/// RFC 5903 7: x and y, without the octet that says the point is uncompressed.
fn uncompressed(data: &[u8]) -> Vec<u8> {
    let mut point = vec![4];
    point.extend_from_slice(data);
    point
}

impl Private {
    pub(crate) fn method(&self) -> KeyExchange {
        match self {
            Self::P256(_) => KeyExchange::P256,
            Self::P384(_) => KeyExchange::P384,
            Self::X25519(_) => KeyExchange::X25519,
            Self::MlKem768(_) => KeyExchange::MlKem768,
            Self::MlKem1024(_) => KeyExchange::MlKem1024,
        }
    }

    /// Makes a fresh private value and gives the public one for the KE payload.
    pub(crate) fn generate(
        method: KeyExchange,
        rng: &mut dyn Random,
    ) -> Result<(Self, Vec<u8>), BadKeyShare> {
        Ok(match method {
            KeyExchange::P256 => {
                let key = p256_secret(rng)?;
                let public = p256_public(&key);
                (Self::P256(key), public)
            }
            KeyExchange::P384 => {
                let key = p384_secret(rng)?;
                let public = p384_public(&key);
                (Self::P384(key), public)
            }
            KeyExchange::X25519 => {
                let key = x25519_secret(rng);
                let public = x25519_dalek::PublicKey::from(&key).as_bytes().to_vec();
                (Self::X25519(key), public)
            }
            KeyExchange::MlKem768 => {
                let key = ml_kem::DecapsulationKey::<MlKem768>::from_seed(seed(rng));
                let public = key.encapsulation_key().to_bytes().to_vec();
                (Self::MlKem768(Box::new(key)), public)
            }
            KeyExchange::MlKem1024 => {
                let key = ml_kem::DecapsulationKey::<MlKem1024>::from_seed(seed(rng));
                let public = key.encapsulation_key().to_bytes().to_vec();
                (Self::MlKem1024(Box::new(key)), public)
            }
        })
    }

    /// The shared secret, from the peer's answer.
    pub(crate) fn agree(self, peer: &[u8]) -> Result<Secret, BadKeyShare> {
        match self {
            Self::P256(key) => p256_agree(&key, peer),
            Self::P384(key) => p384_agree(&key, peer),
            Self::X25519(key) => x25519_agree(&key, peer),
            Self::MlKem768(key) => {
                let shared = key.decapsulate(peer.try_into().map_err(|_| BadKeyShare)?);
                Ok(Secret::new(shared.to_vec()))
            }
            Self::MlKem1024(key) => {
                let shared = key.decapsulate(peer.try_into().map_err(|_| BadKeyShare)?);
                Ok(Secret::new(shared.to_vec()))
            }
        }
    }
}

/// The responder's half at once: the public value (or ciphertext) to send and the shared secret.
pub(crate) fn respond(
    method: KeyExchange,
    peer: &[u8],
    rng: &mut dyn Random,
) -> Result<(Vec<u8>, Secret), BadKeyShare> {
    match method {
        KeyExchange::P256 => {
            let key = p256_secret(rng)?;
            Ok((p256_public(&key), p256_agree(&key, peer)?))
        }
        KeyExchange::P384 => {
            let key = p384_secret(rng)?;
            Ok((p384_public(&key), p384_agree(&key, peer)?))
        }
        KeyExchange::X25519 => {
            let key = x25519_secret(rng);
            Ok((x25519_dalek::PublicKey::from(&key).as_bytes().to_vec(), x25519_agree(&key, peer)?))
        }
        KeyExchange::MlKem768 => {
            let bytes = peer.try_into().map_err(|_| BadKeyShare)?;
            let key = ml_kem::EncapsulationKey::<MlKem768>::new(bytes).map_err(|_| BadKeyShare)?;
            let mut m = Zeroizing::new([0u8; 32]);
            rng.fill(&mut *m);
            let (ciphertext, shared) = key.encapsulate_deterministic(&(*m).into());
            Ok((ciphertext.to_vec(), Secret::new(shared.to_vec())))
        }
        KeyExchange::MlKem1024 => {
            let bytes = peer.try_into().map_err(|_| BadKeyShare)?;
            let key = ml_kem::EncapsulationKey::<MlKem1024>::new(bytes).map_err(|_| BadKeyShare)?;
            let mut m = Zeroizing::new([0u8; 32]);
            rng.fill(&mut *m);
            let (ciphertext, shared) = key.encapsulate_deterministic(&(*m).into());
            Ok((ciphertext.to_vec(), Secret::new(shared.to_vec())))
        }
    }
}

fn p256_public(key: &p256::SecretKey) -> Vec<u8> {
    use p256::elliptic_curve::sec1::ToSec1Point;
    key.public_key().to_sec1_point(false).as_bytes().get(1..).unwrap_or_default().to_vec()
}

fn p384_public(key: &p384::SecretKey) -> Vec<u8> {
    use p384::elliptic_curve::sec1::ToSec1Point;
    key.public_key().to_sec1_point(false).as_bytes().get(1..).unwrap_or_default().to_vec()
}

// RFC 6989 2.3: the point must lie on the curve, which the parser checks; cofactor one leaves no small subgroup.
fn p256_agree(key: &p256::SecretKey, peer: &[u8]) -> Result<Secret, BadKeyShare> {
    if peer.len() != 64 {
        return Err(BadKeyShare);
    }
    let peer = p256::PublicKey::from_sec1_bytes(&uncompressed(peer)).map_err(|_| BadKeyShare)?;
    Ok(Secret::new(key.diffie_hellman(&peer).raw_secret_bytes().to_vec()))
}

fn p384_agree(key: &p384::SecretKey, peer: &[u8]) -> Result<Secret, BadKeyShare> {
    if peer.len() != 96 {
        return Err(BadKeyShare);
    }
    let peer = p384::PublicKey::from_sec1_bytes(&uncompressed(peer)).map_err(|_| BadKeyShare)?;
    Ok(Secret::new(key.diffie_hellman(&peer).raw_secret_bytes().to_vec()))
}

fn x25519_agree(key: &x25519_dalek::StaticSecret, peer: &[u8]) -> Result<Secret, BadKeyShare> {
    let peer: [u8; 32] = peer.try_into().map_err(|_| BadKeyShare)?;
    let shared = key.diffie_hellman(&x25519_dalek::PublicKey::from(peer));
    // RFC 8031 5: an all-zero result means a point of small order.
    if !shared.was_contributory() {
        return Err(BadKeyShare);
    }
    Ok(Secret::new(shared.as_bytes().to_vec()))
}
