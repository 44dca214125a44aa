//! What an endpoint makes by itself: tokens that show an address to be its sender's (RFC 9000 8.1), stateless resets (RFC 9000 10.3),
//! and the tag of a Retry packet (RFC 9001 5.8).

use super::packets::{Header, SAMPLE};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::memcmp;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use openssl::symm::{Cipher, decrypt_aead, encrypt_aead};
use quinn_proto::crypto::{AeadKey, CryptoError, HandshakeTokenKey, HmacKey};
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use std::sync::Arc;
use std::time::Duration;

const KEY: usize = 32;
const TAG: usize = 16;

/// Drawn at the start, and nobody else's.
#[derive(Clone, Copy)]
struct Secret([u8; KEY]);

impl Secret {
    fn random() -> Result<Self, String> {
        let mut key = [0; KEY];
        openssl::rand::rand_bytes(&mut key).map_err(|e| e.to_string())?;
        Ok(Self(key))
    }

    /// HMAC-SHA-256 (RFC 2104).
    fn sum(&self, data: &[u8]) -> Result<[u8; KEY], ErrorStack> {
        let key = PKey::hmac(&self.0)?;
        let mut sum = [0; KEY];
        Signer::new(MessageDigest::sha256(), &key)?.sign_oneshot(&mut sum, data)?;
        Ok(sum)
    }
}

/// The key of stateless resets.
pub struct Reset(Secret);

impl Reset {
    /// Draws it.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn random() -> Result<Self, String> {
        Secret::random().map(Self)
    }

    /// That of an end with this private key, each time that it begins: whoever has a tunnel to one that has ended hears so from the next
    /// (RFC 9000 10.3.2), and need not wait until nothing has come for long.
    ///
    /// # Errors
    /// OpenSSL's.
    pub fn of(private: &[u8]) -> Result<Self, String> {
        let sum = || -> Result<[u8; KEY], ErrorStack> {
            let mut sum = [0; KEY];
            let key = PKey::hmac(private)?;
            Signer::new(MessageDigest::sha256(), &key)?.sign_oneshot(&mut sum, b"levee: stateless resets")?;
            Ok(sum)
        };
        sum().map(Secret).map(Self).map_err(|e| e.to_string())
    }

    /// What goes with it: connection IDs, of which an end knows those of the one before it, too.
    ///
    /// # Errors
    /// OpenSSL's.
    pub fn ids(&self) -> Result<Ids, String> {
        let key = self.0.sum(b"connection IDs").map_err(|e| e.to_string())?;
        Ok(Ids(Arc::new(Header::new(&key.into()))))
    }
}

/// Octets of a connection ID that are drawn. Each has a token by which its tunnel is ended, and who shows one that nobody has is told that: so
/// nobody comes to have one that somebody could have asked for before.
const DRAWN: usize = 8;
/// Octets behind them that say whose it is: what is none is not answered.
const SAYS_WHOSE: usize = 4;

/// Connection IDs of an end. Whatever comes from anybody is looked at for one, so that is done as a packet's header is masked: a sum of
/// SHA-256 by OpenSSL takes ten microseconds.
#[derive(Clone)]
pub struct Ids(Arc<Header>);

impl Ids {
    fn of(&self, drawn: [u8; DRAWN]) -> Option<ConnectionId> {
        let mut sample = [0; SAMPLE];
        sample.first_chunk_mut().map(|place: &mut [u8; DRAWN]| *place = drawn)?;
        let sum = self.0.mask(&sample).ok()?;
        let all: Vec<u8> = drawn.iter().chain(sum.iter().take(SAYS_WHOSE)).copied().collect();
        Some(ConnectionId::new(&all))
    }
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut drawn = [0; DRAWN];
        let id = openssl::rand::rand_bytes(&mut drawn).ok().and_then(|()| self.of(drawn));
        id.unwrap_or_else(|| std::process::abort())
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let own = id.first_chunk().and_then(|drawn| self.of(*drawn));
        own.filter(|own| own == id).map(drop).ok_or(InvalidCid)
    }

    fn cid_len(&self) -> usize {
        DRAWN + SAYS_WHOSE
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

impl HmacKey for Reset {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        // Were there none, none that could be guessed.
        let sum = self.0.sum(data).or_else(|_| Secret::random().map(|Secret(sum)| sum));
        let Ok(sum) = sum else { std::process::abort() };
        for (to, from) in signature.iter_mut().zip(sum) {
            *to = from;
        }
    }

    fn signature_len(&self) -> usize {
        KEY
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), CryptoError> {
        let sum = self.0.sum(data).map_err(|_| CryptoError)?;
        if signature.len() == KEY && memcmp::eq(&sum, signature) { Ok(()) } else { Err(CryptoError) }
    }
}

/// The key of address tokens.
pub struct Tokens(Secret);

impl Tokens {
    /// Draws it.
    ///
    /// # Errors
    /// There is no randomness.
    pub fn random() -> Result<Self, String> {
        Secret::random().map(Self)
    }
}

impl HandshakeTokenKey for Tokens {
    fn aead_from_hkdf(&self, random: &[u8]) -> Box<dyn AeadKey> {
        Box::new(TokenKey(self.0.sum(random).ok()))
    }
}

/// The key of one token: of its random octets, so that one nonce serves it. `None` seals and opens nothing.
struct TokenKey(Option<[u8; KEY]>);

const NONCE: [u8; 12] = [0; 12];

impl AeadKey for TokenKey {
    fn seal(&self, data: &mut Vec<u8>, additional: &[u8]) -> Result<(), CryptoError> {
        let key = self.0.as_ref().ok_or(CryptoError)?;
        let mut tag = [0; TAG];
        let sealed = encrypt_aead(Cipher::chacha20_poly1305(), key, Some(&NONCE), additional, data, &mut tag);
        *data = sealed.map_err(|_| CryptoError)?;
        data.extend_from_slice(&tag);
        Ok(())
    }

    fn open<'a>(&self, data: &'a mut [u8], additional: &[u8]) -> Result<&'a mut [u8], CryptoError> {
        let key = self.0.as_ref().ok_or(CryptoError)?;
        let length = data.len().checked_sub(TAG).ok_or(CryptoError)?;
        let (sealed, tag) = data.split_at(length);
        let opened = decrypt_aead(Cipher::chacha20_poly1305(), key, Some(&NONCE), additional, sealed, tag);
        let opened = opened.map_err(|_| CryptoError)?;
        let place = data.get_mut(..opened.len()).ok_or(CryptoError)?;
        place.copy_from_slice(&opened);
        Ok(place)
    }
}

/// RFC 9001 5.8: of version 1.
const RETRY_KEY: [u8; 16] =
    [0xbe, 0x0c, 0x69, 0x0b, 0x9f, 0x66, 0x57, 0x5a, 0x1d, 0x76, 0x6b, 0x54, 0xe3, 0x68, 0xc8, 0x4e];
const RETRY_NONCE: [u8; 12] = [0x46, 0x15, 0x99, 0xd3, 0x5d, 0x63, 0x2b, 0xf2, 0x23, 0x98, 0x25, 0xbb];

/// The tag of a Retry packet without its own, as an answer to the packet with this destination.
pub fn retry_tag(original: &ConnectionId, packet: &[&[u8]]) -> Option<[u8; TAG]> {
    let length = u8::try_from(original.len()).ok()?;
    let pseudo = [&[length], &original[..], &packet.concat()].concat();
    let mut tag = [0; TAG];
    encrypt_aead(Cipher::aes_128_gcm(), &RETRY_KEY, Some(&RETRY_NONCE), &pseudo, &[], &mut tag).ok()?;
    Some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_of_a_retry_packet_is_that_of_the_rfc() {
        // RFC 9001 A.4.
        let original = ConnectionId::new(&[0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08]);
        let packet = [
            0xff, 0, 0, 0, 1, 0, 8, 0xf0, 0x67, 0xa5, 0x50, 0x2a, 0x42, 0x62, 0xb5, 0x74, 0x6f, 0x6b, 0x65,
            0x6e,
        ];
        let tag =
            [4, 0xa2, 0x65, 0xba, 0x2e, 0xff, 0x4d, 0x82, 0x90, 0x58, 0xfb, 0x3f, 0x0f, 0x24, 0x96, 0xba];
        assert_eq!(retry_tag(&original, &[&packet]), Some(tag));
    }

    #[test]
    fn a_token_is_opened_by_its_own_key_and_unchanged_alone() {
        let tokens = Tokens::random().unwrap();
        let (one, other) = (tokens.aead_from_hkdf(b"one"), tokens.aead_from_hkdf(b"other"));
        let mut sealed = b"10.0.0.1".to_vec();
        one.seal(&mut sealed, b"with").unwrap();
        assert_eq!(one.open(&mut sealed.clone(), b"with").unwrap(), b"10.0.0.1");
        assert!(one.open(&mut sealed.clone(), b"without").is_err());
        assert!(other.open(&mut sealed.clone(), b"with").is_err());
        sealed[0] ^= 1;
        assert!(one.open(&mut sealed, b"with").is_err());
        assert!(one.open(&mut [0; TAG - 1], b"with").is_err());
    }

    #[test]
    fn connection_ids_are_known_by_who_has_the_key_and_no_two_are_one() {
        let reset = Reset::of(b"a private key").unwrap();
        let (mut ids, again) = (reset.ids().unwrap(), Reset::of(b"a private key").unwrap().ids().unwrap());
        let others = Reset::of(b"another").unwrap().ids().unwrap();
        let all: std::collections::BTreeSet<Vec<u8>> =
            std::iter::repeat_with(|| ids.generate_cid().to_vec()).take(20_000).collect();
        assert_eq!(all.len(), 20_000);
        for id in all.iter().take(100) {
            let (whole, mut changed) = (ConnectionId::new(id), id.clone());
            assert!(ids.validate(&whole).is_ok() && again.validate(&whole).is_ok());
            assert!(others.validate(&whole).is_err() && whole.len() == ids.cid_len());
            changed[0] ^= 1;
            assert!(ids.validate(&ConnectionId::new(&changed)).is_err());
        }
        assert!(ids.validate(&ConnectionId::new(&[7; DRAWN - 1])).is_err());
    }

    #[test]
    fn a_reset_is_known_again() {
        let reset = Reset::random().unwrap();
        let mut sum = [0; KEY];
        reset.sign(b"a", &mut sum);
        assert!(reset.verify(b"a", &sum).is_ok() && reset.verify(b"b", &sum).is_err());
        assert!(reset.verify(b"a", &sum[..31]).is_err());
    }
}
