//! The post-quantum preshared keys (RFC 8784): read once, never given out; what is done with one is to mix it into keys.

use crate::keys::{KeyError, pem};
use levee_ipc::Secret;
use levee_ipc::signer::{PpkKeys, Prf};
use levee_policy::PpkId;
use levee_sys::wipe::scrub_stack;
use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::der::Decode as _;
use pkcs8::der::asn1::OctetStringRef;
use ring::hmac;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use zeroize::Zeroizing;

/// RFC 8784 6 asks for 256 bits of entropy at least.
const LENGTHS: RangeInclusive<usize> = 32..=256;

/// PPKs by name.
#[derive(Default)]
pub struct Ppks(BTreeMap<PpkId, Zeroizing<Vec<u8>>>);

impl Ppks {
    /// Reads the PPK of this name, decrypting it if need be.
    pub fn read(&mut self, id: PpkId, fd: OwnedFd, passphrase: Option<&Secret>) -> Result<(), KeyError> {
        if self.0.contains_key(&id) {
            return Err(KeyError::Twice);
        }
        let (label, content) = pem(fd)?;
        let key = match label.as_str() {
            "PRESHARED KEY" => content,
            "ENCRYPTED PRESHARED KEY" => {
                let passphrase = passphrase.ok_or(KeyError::Encrypted)?;
                let sealed = EncryptedPrivateKeyInfoRef::try_from(content.as_slice())
                    .map_err(|_| KeyError::Passphrase)?;
                let opened = sealed
                    .encryption_algorithm
                    .decrypt(passphrase.expose(), sealed.encrypted_data.as_bytes());
                let opened = Zeroizing::new(opened.map_err(|_| KeyError::Passphrase)?);
                // Padding alone would take one wrong passphrase in 256 for the right one.
                let key = <&OctetStringRef>::from_der(&opened).map_err(|_| KeyError::Passphrase)?;
                Zeroizing::new(key.as_bytes().to_vec())
            }
            _ => return Err(KeyError::Ppk),
        };
        if !LENGTHS.contains(&key.len()) {
            return Err(KeyError::Ppk);
        }
        self.0.insert(id, key);
        Ok(())
    }

    /// prf+ (PPK, key) in the place of each key (RFC 8784 3). `None` if there is no such PPK, or a key is not as long as the prf's
    /// output.
    pub fn mix(&self, id: &PpkId, prf: Prf, keys: &PpkKeys) -> Option<PpkKeys> {
        let mixed = self.mixed(id, prf, keys);
        scrub_stack();
        mixed
    }

    // Its own frame, which `scrub_stack` reaches.
    #[inline(never)]
    fn mixed(&self, id: &PpkId, prf: Prf, keys: &PpkKeys) -> Option<PpkKeys> {
        let algorithm = match prf {
            Prf::HmacSha256 => hmac::HMAC_SHA256,
            Prf::HmacSha384 => hmac::HMAC_SHA384,
            Prf::HmacSha512 => hmac::HMAC_SHA512,
        };
        let length = algorithm.digest_algorithm().output_len();
        let ppk = hmac::Key::new(algorithm, self.0.get(id)?);
        let mix = |key: &Secret| {
            if key.expose().len() != length {
                return None;
            }
            // RFC 7296 2.13: as much as one output of the prf is prf (PPK, key | 0x01).
            let mut context = hmac::Context::with_key(&ppk);
            context.update(key.expose());
            context.update(&[1]);
            Secret::new(context.sign().as_ref().to_vec())
        };
        Some(PpkKeys { d: mix(&keys.d)?, pi: mix(&keys.pi)?, pr: mix(&keys.pr)? })
    }
}
