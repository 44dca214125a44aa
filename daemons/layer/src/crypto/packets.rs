//! Packet and header protection by ChaCha20-Poly1305 (RFC 9001 5) in contexts of OpenSSL's that are kept: the library begins one for each
//! packet, and a stream had ×0.29 of one layer's by that, where it has ×0.37.

use openssl::cipher::{Cipher, CipherRef};
use openssl::cipher_ctx::CipherCtx;
use openssl::error::ErrorStack;
use rustls::Error;
use rustls::crypto::cipher::{AeadKey, Iv, Nonce};
use rustls::quic::{Algorithm, HeaderProtectionKey, PacketKey, Tag};
use std::sync::{Mutex, MutexGuard};

const TAG: usize = 16;
/// RFC 9001 5.4.4: a counter and a nonce.
pub(super) const SAMPLE: usize = 16;
/// RFC 9001 5.4.1: for the first octet, and for a packet number of four.
const MASK: usize = 5;
/// RFC 9001 6.6: so many packets may fail to open.
const INTEGRITY_LIMIT: u64 = 1 << 36;

/// ChaCha20-Poly1305 for QUIC.
#[derive(Debug)]
pub struct ChaCha20Poly1305;

impl Algorithm for ChaCha20Poly1305 {
    fn packet_key(&self, key: AeadKey, iv: Iv) -> Box<dyn PacketKey> {
        Box::new(Packet { kept: Kept::new(Cipher::chacha20_poly1305(), &key), iv })
    }

    fn header_protection_key(&self, key: AeadKey) -> Box<dyn HeaderProtectionKey> {
        Box::new(Header::new(&key))
    }

    fn aead_key_len(&self) -> usize {
        Cipher::chacha20_poly1305().key_length()
    }
}

/// A context with its key. OpenSSL erases that when it goes.
struct Kept(Mutex<Option<CipherCtx>>);

impl Kept {
    fn new(cipher: &CipherRef, key: &AeadKey) -> Self {
        let begun = || {
            let mut context = CipherCtx::new()?;
            context.encrypt_init(Some(cipher), Some(key.as_ref()), None)?;
            Ok::<_, ErrorStack>(context)
        };
        // One that could not begin does nothing, each time.
        Self(Mutex::new(begun().ok()))
    }

    /// Does this with it. What one packet left of it is nothing to the next, which begins with a nonce of its own.
    fn with<T>(&self, work: impl FnOnce(&mut CipherCtx) -> Result<T, ErrorStack>) -> Result<T, Error> {
        let mut context: MutexGuard<'_, _> = self.0.lock().map_err(|_| Error::EncryptError)?;
        work(context.as_mut().ok_or(Error::EncryptError)?).map_err(|_| Error::DecryptError)
    }
}

struct Packet {
    kept: Kept,
    iv: Iv,
}

impl PacketKey for Packet {
    fn encrypt_in_place(&self, number: u64, header: &[u8], payload: &mut [u8]) -> Result<Tag, Error> {
        let nonce = Nonce::new(&self.iv, number).0;
        let tag = self.kept.with(|context| {
            context.encrypt_init(None, None, Some(&nonce))?;
            context.cipher_update(header, None)?;
            context.cipher_update_inplace(payload, payload.len())?;
            context.cipher_final(&mut [])?;
            let mut tag = [0; TAG];
            context.tag(&mut tag)?;
            Ok(tag)
        })?;
        Ok(Tag::from(&tag[..]))
    }

    fn decrypt_in_place<'a>(
        &self,
        number: u64,
        header: &[u8],
        payload: &'a mut [u8],
    ) -> Result<&'a [u8], Error> {
        let nonce = Nonce::new(&self.iv, number).0;
        let sealed = payload.len().checked_sub(TAG).ok_or(Error::DecryptError)?;
        let (sealed, tag) = payload.split_at_mut(sealed);
        self.kept.with(|context| {
            context.decrypt_init(None, None, Some(&nonce))?;
            context.set_tag(tag)?;
            context.cipher_update(header, None)?;
            context.cipher_update_inplace(sealed, sealed.len())?;
            context.cipher_final(&mut [])
        })?;
        Ok(sealed)
    }

    fn tag_len(&self) -> usize {
        TAG
    }

    /// RFC 9001 6.6: none is stated for this cipher.
    fn confidentiality_limit(&self) -> u64 {
        u64::MAX
    }

    fn integrity_limit(&self) -> u64 {
        INTEGRITY_LIMIT
    }
}

pub(super) struct Header(Kept);

impl Header {
    pub(super) fn new(key: &AeadKey) -> Self {
        Self(Kept::new(Cipher::chacha20(), key))
    }

    /// Octets that nobody else makes of others.
    pub(super) fn mask(&self, sample: &[u8]) -> Result<[u8; MASK], Error> {
        if sample.len() != SAMPLE {
            return Err(Error::DecryptError);
        }
        self.0.with(|context| {
            context.encrypt_init(None, None, Some(sample))?;
            let mut mask = [0; MASK];
            context.cipher_update_inplace(&mut mask, MASK)?;
            Ok(mask)
        })
    }

    /// The bits of the first octet that are protected: RFC 9001 5.4.1.
    const fn protected(first: u8) -> u8 {
        if first & 0x80 == 0x80 { 0x0f } else { 0x1f }
    }

    /// Masks a packet number that is as long as the first octet, without its mask, says.
    fn mask_number(first: u8, number: &mut [u8], mask: [u8; MASK]) {
        let length = usize::from(first & 3) + 1;
        for (octet, mask) in number.iter_mut().zip(mask.into_iter().skip(1)).take(length) {
            *octet ^= mask;
        }
    }
}

impl HeaderProtectionKey for Header {
    fn encrypt_in_place(&self, sample: &[u8], first: &mut u8, number: &mut [u8]) -> Result<(), Error> {
        let mask = self.mask(sample)?;
        Self::mask_number(*first, number, mask);
        *first ^= mask[0] & Self::protected(*first);
        Ok(())
    }

    fn decrypt_in_place(&self, sample: &[u8], first: &mut u8, number: &mut [u8]) -> Result<(), Error> {
        let mask = self.mask(sample)?;
        *first ^= mask[0] & Self::protected(*first);
        Self::mask_number(*first, number, mask);
        Ok(())
    }

    fn sample_len(&self) -> usize {
        SAMPLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls_openssl::cipher_suite;

    fn octets<const N: usize>(hex: &str) -> [u8; N] {
        std::array::from_fn(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
    }

    /// Those of RFC 9001 A.5.
    const KEY: &str = "c6d98ff3441c3fe1b2182094f69caa2ed4b716b65488960a7a984979fb23e1c8";
    const IV: &str = "e0459b3474bdd0e44a41c144";
    const HEADERS: &str = "25a282b9e82f06f21f488917a4fc8f1b73573685608597d0efcb076b0ab7a7a4";

    fn both(algorithm: &dyn Algorithm) -> (Box<dyn PacketKey>, Box<dyn HeaderProtectionKey>) {
        let packets = algorithm.packet_key(octets::<32>(KEY).into(), Iv::from(octets(IV)));
        (packets, algorithm.header_protection_key(octets::<32>(HEADERS).into()))
    }

    #[test]
    fn the_rfcs_packet_is_sealed_and_opened() {
        let (packets, headers) = both(&ChaCha20Poly1305);
        let (mut packet, whole) =
            (octets::<21>(&"0".repeat(42)), "4cfe4189655e5cd55c41f69080575d7999c25a5bfb");
        packet[..5].copy_from_slice(&octets::<5>("4200bff401"));
        for _ in 0..2 {
            let (header, payload) = packet.split_at_mut(4);
            let tag = packets.encrypt_in_place(654_360_564, header, &mut payload[..1]).unwrap();
            payload[1..].copy_from_slice(tag.as_ref());
            let (header, sample) = packet.split_at_mut(5);
            let (first, number) = header.split_first_mut().unwrap();
            headers.encrypt_in_place(sample, first, &mut number[..3]).unwrap();
            assert_eq!(packet, octets(whole));
            let (header, sample) = packet.split_at_mut(5);
            let (first, number) = header.split_first_mut().unwrap();
            headers.decrypt_in_place(sample, first, &mut number[..3]).unwrap();
            let (header, payload) = packet.split_at_mut(4);
            assert_eq!(header, octets::<4>("4200bff4"));
            assert_eq!(packets.decrypt_in_place(654_360_564, header, payload).unwrap(), [1]);
        }
    }

    #[test]
    fn all_is_as_the_library_has_it_whatever_came_before() {
        let theirs =
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256.tls13().and_then(|suite| suite.quic).unwrap();
        let ((packets, headers), (their_packets, their_headers)) = (both(&ChaCha20Poly1305), both(theirs));
        assert_eq!(packets.integrity_limit(), their_packets.integrity_limit());
        assert_eq!(packets.confidentiality_limit(), their_packets.confidentiality_limit());
        assert_eq!(ChaCha20Poly1305.aead_key_len(), theirs.aead_key_len());
        for length in (0..200).chain([1_199, 1_200, 1_451, 65_000]) {
            let (number, header) = (length as u64 * 0x1_0001, &[0x43; 29][..length % 29]);
            let plain: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
            let (mut sealed, mut expected) = (plain.clone(), plain.clone());
            let tag = packets.encrypt_in_place(number, header, &mut sealed).unwrap();
            let their_tag = their_packets.encrypt_in_place(number, header, &mut expected).unwrap();
            sealed.extend_from_slice(tag.as_ref());
            expected.extend_from_slice(their_tag.as_ref());
            assert_eq!(sealed, expected);
            // What is altered anywhere is not opened, nor what is short, and the next is.
            let at = number as usize % sealed.len();
            let mut altered = sealed.clone();
            altered[at] ^= 0x10;
            assert!(packets.decrypt_in_place(number, header, &mut altered).is_err());
            assert!(packets.decrypt_in_place(number + 1, header, &mut sealed.clone()).is_err());
            assert!(packets.decrypt_in_place(number, &[0x43; 30], &mut sealed.clone()).is_err());
            assert!(packets.decrypt_in_place(number, header, &mut sealed.clone()[..TAG - 1]).is_err());
            assert_eq!(packets.decrypt_in_place(number, header, &mut sealed.clone()).unwrap(), plain);
            for first in [0x40, 0x43, 0xc0, 0xe2, length as u8] {
                for digits in 0..=4 {
                    let sample: [u8; SAMPLE] = tag.as_ref().try_into().unwrap();
                    let masked = |key: &dyn HeaderProtectionKey, opens: bool| {
                        let (mut first, mut number) = (first, [0xa5; 4]);
                        let number_then = &mut number[..digits];
                        let done = if opens {
                            key.decrypt_in_place(&sample, &mut first, number_then)
                        } else {
                            key.encrypt_in_place(&sample, &mut first, number_then)
                        };
                        done.unwrap();
                        (first, number)
                    };
                    for opens in [false, true] {
                        assert_eq!(masked(&*headers, opens), masked(&*their_headers, opens));
                    }
                }
            }
        }
        assert!(headers.encrypt_in_place(&[0; 15], &mut 0x40, &mut [0]).is_err());
        assert!(headers.decrypt_in_place(&[0; 17], &mut 0x40, &mut [0]).is_err());
    }
}
