//! The Encrypted payload's protection (RFC 7296 3.14, RFC 5282, RFC 7634).

use super::Secret;
use super::prf::prf;
use super::suite::{Encryption, IkeSuite};
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{Aes128Gcm, Aes256Gcm, KeyInit};
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use chacha20poly1305::ChaCha20Poly1305;
use subtle::ConstantTimeEq;

/// The message is not from the peer, or was changed on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forged;

/// The keys of one direction of an IKE SA.
#[derive(Debug, Clone)]
pub(crate) struct DirectionKeys {
    /// SK_e, with the salt at its end for AEADs.
    pub(crate) encryption: Secret,
    /// SK_a; empty for AEADs.
    pub(crate) integrity: Secret,
}

/// Protects messages one way.
#[derive(Debug)]
pub(crate) struct Cipher {
    suite: Encryption,
    integrity: Option<super::suite::Integrity>,
    keys: DirectionKeys,
    /// RFC 5282 3.1: the IV of an AEAD must not repeat under a key; a counter does not.
    next_iv: u64,
}

impl Cipher {
    pub(crate) fn new(suite: &IkeSuite, keys: DirectionKeys) -> Self {
        Self { suite: suite.encryption, integrity: suite.integrity, keys, next_iv: 0 }
    }

    /// Goes on with the IVs of the cipher before: no nonce comes twice between two peers, whatever becomes of the keys.
    pub(crate) fn after(self, before: &Self) -> Self {
        Self { next_iv: before.next_iv, ..self }
    }

    fn iv_length(&self) -> usize {
        if self.suite.is_aead() { 8 } else { 16 }
    }

    fn tag_length(&self) -> usize {
        self.integrity.map_or(16, |i| i.tag_length())
    }

    /// The length of IV, ciphertext with padding, and ICV for a plaintext of `n` octets.
    pub(crate) fn sealed_length(&self, n: usize) -> usize {
        let padded = if self.suite.is_aead() { n + 1 } else { (n + 1).next_multiple_of(16) };
        self.iv_length() + padded + self.tag_length()
    }

    /// Seals `plaintext` behind `head`, which is authenticated (RFC 5282 5.1: the octets from the IKE header to the Encrypted
    /// payload's header, which for fragments includes their numbers), and appends it to `head`. `iv` is the first block for CBC and
    /// must be unpredictable. Gives nothing once 2^64 - 1 messages have been sealed.
    pub(crate) fn seal(&mut self, mut head: Vec<u8>, plaintext: &[u8], iv: [u8; 16]) -> Option<Vec<u8>> {
        let counter = self.next_iv;
        self.next_iv = counter.checked_add(1)?;
        let mut plain = Secret::new(plaintext.to_vec());
        if self.suite.is_aead() {
            plain.push(0);
            let iv = counter.to_be_bytes();
            let sealed = self.aead_seal(&iv, &head, &plain)?;
            head.extend_from_slice(&iv);
            head.extend_from_slice(&sealed);
            return Some(head);
        }
        let pad = (plain.len() + 1).next_multiple_of(16) - plain.len() - 1;
        let padded = plain.len() + pad;
        plain.resize(padded, 0);
        plain.push(u8::try_from(pad).ok()?);
        self.cbc_encrypt(&iv, &mut plain)?;
        head.extend_from_slice(&iv);
        head.extend_from_slice(&plain);
        let tag = self.tag(&head)?;
        head.extend_from_slice(tag.get(..self.tag_length())?);
        Some(head)
    }

    /// Opens what [`seal`](Self::seal) made: `sealed` is the tail of `message`.
    pub(crate) fn open(&self, message: &[u8], sealed: &[u8]) -> Result<Secret, Forged> {
        let head_length = message.len().checked_sub(sealed.len()).ok_or(Forged)?;
        let head = message.get(..head_length).ok_or(Forged)?;
        let (iv, rest) = sealed.split_at_checked(self.iv_length()).ok_or(Forged)?;
        let mut plain = if self.suite.is_aead() {
            Secret::new(self.aead_open(iv, head, rest).ok_or(Forged)?)
        } else {
            let body_length = rest.len().checked_sub(self.tag_length()).ok_or(Forged)?;
            let (body, tag) = rest.split_at_checked(body_length).ok_or(Forged)?;
            let signed = message.get(..message.len() - self.tag_length()).ok_or(Forged)?;
            let expected = self.tag(signed).ok_or(Forged)?;
            let expected = expected.get(..self.tag_length()).ok_or(Forged)?;
            if !bool::from(expected.ct_eq(tag)) {
                return Err(Forged);
            }
            let mut plain = Secret::new(body.to_vec());
            self.cbc_decrypt(iv, &mut plain).ok_or(Forged)?;
            plain
        };
        // RFC 7296 3.14: the recipient must accept any length that results in proper alignment.
        let pad = usize::from(plain.pop().ok_or(Forged)?);
        let length = plain.len().checked_sub(pad).ok_or(Forged)?;
        plain.truncate(length);
        Ok(plain)
    }

    fn key_and_nonce(&self, iv: &[u8]) -> Option<(&[u8], [u8; 12])> {
        let (key, salt) = self.keys.encryption.split_at_checked(self.suite.key_length())?;
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(salt.get(..4)?);
        nonce[4..].copy_from_slice(iv.get(..8)?);
        Some((key, nonce))
    }

    fn aead_seal(&self, iv: &[u8], aad: &[u8], msg: &[u8]) -> Option<Vec<u8>> {
        let (key, nonce) = self.key_and_nonce(iv)?;
        let payload = Payload { msg, aad };
        match self.suite {
            Encryption::Aes128Gcm16 => {
                Aes128Gcm::new_from_slice(key).ok()?.encrypt((&nonce).into(), payload).ok()
            }
            Encryption::Aes256Gcm16 => {
                Aes256Gcm::new_from_slice(key).ok()?.encrypt((&nonce).into(), payload).ok()
            }
            Encryption::ChaCha20Poly1305 => {
                ChaCha20Poly1305::new_from_slice(key).ok()?.encrypt((&nonce).into(), payload).ok()
            }
            Encryption::Aes128Cbc | Encryption::Aes256Cbc => None,
        }
    }

    pub(super) fn aead_open(&self, iv: &[u8], aad: &[u8], msg: &[u8]) -> Option<Vec<u8>> {
        let (key, nonce) = self.key_and_nonce(iv)?;
        let payload = Payload { msg, aad };
        match self.suite {
            Encryption::Aes128Gcm16 => {
                Aes128Gcm::new_from_slice(key).ok()?.decrypt((&nonce).into(), payload).ok()
            }
            Encryption::Aes256Gcm16 => {
                Aes256Gcm::new_from_slice(key).ok()?.decrypt((&nonce).into(), payload).ok()
            }
            Encryption::ChaCha20Poly1305 => {
                ChaCha20Poly1305::new_from_slice(key).ok()?.decrypt((&nonce).into(), payload).ok()
            }
            Encryption::Aes128Cbc | Encryption::Aes256Cbc => None,
        }
    }

    fn tag(&self, message: &[u8]) -> Option<Secret> {
        Some(prf(self.integrity?.prf(), &self.keys.integrity, &[message]))
    }

    fn cbc_encrypt(&self, iv: &[u8], data: &mut [u8]) -> Option<()> {
        let (blocks, rest) = aes::Block::slice_as_chunks_mut(data);
        if !rest.is_empty() {
            return None;
        }
        let key = &self.keys.encryption;
        match self.suite {
            Encryption::Aes128Cbc => {
                cbc::Encryptor::<aes::Aes128>::new_from_slices(key, iv).ok()?.encrypt_blocks(blocks)
            }
            Encryption::Aes256Cbc => {
                cbc::Encryptor::<aes::Aes256>::new_from_slices(key, iv).ok()?.encrypt_blocks(blocks)
            }
            _ => return None,
        }
        Some(())
    }

    fn cbc_decrypt(&self, iv: &[u8], data: &mut [u8]) -> Option<()> {
        let (blocks, rest) = aes::Block::slice_as_chunks_mut(data);
        if !rest.is_empty() {
            return None;
        }
        let key = &self.keys.encryption;
        match self.suite {
            Encryption::Aes128Cbc => {
                cbc::Decryptor::<aes::Aes128>::new_from_slices(key, iv).ok()?.decrypt_blocks(blocks)
            }
            Encryption::Aes256Cbc => {
                cbc::Decryptor::<aes::Aes256>::new_from_slices(key, iv).ok()?.decrypt_blocks(blocks)
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::suite::{Integrity, KeyExchange, Prf};

    #[test]
    fn no_octet_of_a_message_under_cbc_may_be_changed_and_none_left_out() {
        let suite = IkeSuite {
            encryption: Encryption::Aes256Cbc,
            integrity: Some(Integrity::HmacSha256),
            prf: Prf::HmacSha256,
            key_exchange: KeyExchange::X25519,
            additional: Vec::new(),
        };
        let keys =
            DirectionKeys { encryption: Secret::new(vec![1; 32]), integrity: Secret::new(vec![2; 32]) };
        let mut cipher = Cipher::new(&suite, keys);
        let head = b"a header".to_vec();
        for length in [0, 1, 14, 15, 16, 17, 40] {
            let plain = vec![7; length];
            let message = cipher.seal(head.clone(), &plain, [3; 16]).expect("sealed");
            assert_eq!(message.len() - head.len(), cipher.sealed_length(length));
            assert_eq!(cipher.open(&message, &message[head.len()..]).expect("opens").to_vec(), plain);
            for at in 0..message.len() {
                let mut changed = message.clone();
                changed[at] ^= 0x10;
                assert!(cipher.open(&changed, &changed[head.len()..]).is_err(), "{length} {at}");
                let short = &message[..at];
                assert!(cipher.open(short, short.get(head.len()..).unwrap_or(&[])).is_err(), "{length} {at}");
            }
            // A right tag over what is no whole block, or none, is of no use.
            for kept in [0, 1, 15, 17] {
                let mut odd = message[..head.len() + 16].to_vec();
                odd.resize(odd.len() + kept, 7);
                let tag = cipher.tag(&odd).expect("a tag");
                odd.extend_from_slice(&tag[..16]);
                assert!(cipher.open(&odd, &odd[head.len()..]).is_err(), "{kept}");
            }
        }
    }
}
