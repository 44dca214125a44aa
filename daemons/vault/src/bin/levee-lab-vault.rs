//! A vault that authenticates packets and does not encrypt them: the pass-through of the Vaulted VPN's study (section 8), by AES-GMAC as
//! in RFC 4543. The laboratory alone starts it, in a directory of programs of its own (`lab/src/study/vaulted.rs`). No site can ask
//! for it and no key exchange offers it: both ends have agreed on AES-GCM, and their vaults use the key for less.
//!
//! It may not be among the programs of a server or workstation. `scripts/install` puts it with the laboratory's.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::process::ExitCode;

use levee_esp::{Aead, AeadError, NONCE, TAG};

/// Bytes of the nonce that are the salt; the rest is the packet's IV (RFC 4543, section 3.2).
const SALT: usize = 4;

fn main() -> ExitCode {
    levee_vault::run("levee-lab-vault", |gcm| Box::new(Gmac { gcm, scratch: RefCell::default() }))
}

/// AES-GMAC: AES-GCM of nothing, with everything as additional data.
struct Gmac {
    gcm: Box<dyn Aead>,
    /// The libraries want additional data in one piece: SPI and sequence number, IV, text (RFC 4543, section 3.3).
    scratch: RefCell<Vec<u8>>,
}

impl Gmac {
    /// Calls `with` the key and all that is authenticated.
    fn over<T>(
        &self,
        nonce: &[u8; NONCE],
        aad: &[u8],
        text: &[u8],
        with: impl FnOnce(&dyn Aead, &[u8]) -> T,
    ) -> T {
        let mut scratch = self.scratch.borrow_mut();
        scratch.clear();
        [aad, nonce.get(SALT..).unwrap_or_default(), text]
            .iter()
            .for_each(|part| scratch.extend_from_slice(part));
        with(self.gcm.as_ref(), &scratch)
    }
}

impl Aead for Gmac {
    fn seal_in_place(
        &self,
        nonce: &[u8; NONCE],
        aad: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; TAG], AeadError> {
        self.over(nonce, aad, text, |gcm, all| gcm.seal_in_place(nonce, all, &mut []))
    }

    fn open_within(
        &self,
        nonce: &[u8; NONCE],
        aad: &[u8],
        buffer: &mut [u8],
        from: usize,
    ) -> Result<usize, AeadError> {
        let (text, tag) = buffer.get(from..).and_then(<[u8]>::split_last_chunk::<TAG>).ok_or(AeadError)?;
        let (length, mut tag) = (text.len(), *tag);
        self.over(nonce, aad, text, |gcm, all| gcm.open_within(nonce, all, &mut tag, 0))?;
        buffer.copy_within(from..from + length, 0);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_aead::Library;
    use levee_esp::{AeadProvider as _, Suite};

    fn gmac(library: Library, key: &[u8; 32]) -> Gmac {
        Gmac { gcm: library.key(Suite::Aes256Gcm, key).unwrap(), scratch: RefCell::default() }
    }

    #[test]
    fn a_packet_is_readable_and_its_tag_is_that_of_gcm_over_all_of_it() {
        let (key, nonce, aad, text) = ([7; 32], [3; NONCE], [5; 12], *b"in the clear");
        let mut sealed = text;
        let tag = gmac(Library::Ring, &key).seal_in_place(&nonce, &aad, &mut sealed).unwrap();
        assert_eq!(sealed, text);
        // The other library, by hand.
        let all = [&aad[..], &nonce[SALT..], &text].concat();
        let plain = Library::AwsLc.key(Suite::Aes256Gcm, &key).unwrap();
        assert_eq!(plain.seal_in_place(&nonce, &all, &mut []).unwrap(), tag);
        // Nothing is encrypted, and yet the nonce counts.
        assert_ne!(gmac(Library::Ring, &key).seal_in_place(&[4; NONCE], &aad, &mut sealed).unwrap(), tag);
    }

    #[test]
    fn every_octet_of_a_packet_is_authenticated() {
        let (nonce, aad) = ([3; NONCE], [5; 8]);
        let [one, other] = Library::ALL.map(|library| gmac(library, &[7; 32]));
        let mut packet = *b"head0123456789";
        let tag = one.seal_in_place(&nonce, &aad, &mut packet[4..]).unwrap();
        let whole = [&packet[..], &tag].concat();
        let mut opened = whole.clone();
        assert_eq!(other.open_within(&nonce, &aad, &mut opened, 4).unwrap(), 10);
        assert_eq!(&opened[..10], b"0123456789");
        for at in 4..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(other.open_within(&nonce, &aad, &mut changed, 4).is_err(), "{at}");
        }
        for (nonce, aad) in [([4; NONCE], [5; 8]), ([3; NONCE], [6; 8])] {
            assert!(other.open_within(&nonce, &aad, &mut whole.clone(), 4).is_err());
        }
        assert!(other.open_within(&nonce, &aad, &mut [0; 15], 0).is_err());
        assert!(other.open_within(&nonce, &aad, &mut [0; 15], 16).is_err());
    }
}
