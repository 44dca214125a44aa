//! Passes: what a server gives to those it knows, so that strangers cannot crowd them out.
//!
//! A pass is a random name and prf(server's key, name). Who begins with it shows the name, and prf(that secret, SPIi | Ni): an
//! onlooker learns nothing that another request could be made with, and two names say nothing of whether one host has both.

use crate::api::Random;
use crate::crypto::Secret;
use crate::crypto::prf::prf;
use crate::crypto::suite::Prf;
use std::collections::BTreeSet;
use subtle::ConstantTimeEq;

/// Octets of a pass's name.
const NAME: usize = 16;
/// Octets of the proof that one has a pass.
const PROOF: usize = 16;
/// So many passes are made by one key. Then there is another, and those of the one before are good until the next one but one: no pass is good whose use has
/// been forgotten.
const OF_ONE_KEY: usize = 65_536;

/// A way in that strangers do not have: good for one IKE SA with the endpoint that made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// A random name, shown to anyone.
    pub name: [u8; NAME],
    /// What only the endpoint that made it and its holder know: 32 octets.
    pub secret: Secret,
}

impl Pass {
    /// What a request with this initiator's SPI and nonce says: the name and the proof.
    pub(crate) fn show(&self, spi_i: u64, nonce: &[u8]) -> Vec<u8> {
        let mut out = self.name.to_vec();
        out.extend_from_slice(proof(&self.secret, spi_i, nonce).get(..PROOF).unwrap_or_default());
        out
    }
}

fn proof(secret: &[u8], spi_i: u64, nonce: &[u8]) -> Secret {
    prf(Prf::HmacSha256, secret, &[b"levee: begin", &spi_i.to_be_bytes(), nonce])
}

/// The passes that an endpoint made, as two keys, and those that were used.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    key: Option<Secret>,
    made: usize,
    before: Option<Secret>,
    /// Names of those that were used since there is this key, and while the one before was the newest.
    used: BTreeSet<[u8; NAME]>,
    used_before: BTreeSet<[u8; NAME]>,
}

impl Passes {
    /// A new pass.
    pub(crate) fn make(&mut self, rng: &mut dyn Random) -> Pass {
        if self.made >= OF_ONE_KEY {
            (self.before, self.made) = (self.key.take(), 0);
            self.used_before = std::mem::take(&mut self.used);
        }
        self.made += 1;
        let key = self.key.get_or_insert_with(|| {
            let mut key = Secret::new(vec![0; 32]);
            rng.fill(&mut key);
            key
        });
        let mut name = [0; NAME];
        rng.fill(&mut name);
        Pass { name, secret: secret(key, &name) }
    }

    /// The pass that a request shows, if it is one of ours that was not used.
    pub(crate) fn shown(&self, said: &[u8], spi_i: u64, nonce: &[u8]) -> Option<[u8; NAME]> {
        let (name, said) = said.split_first_chunk::<NAME>()?;
        let is_by = |key: &Secret| {
            let expected = proof(&secret(key, name), spi_i, nonce);
            expected.get(..PROOF).is_some_and(|expected| bool::from(expected.ct_eq(said)))
        };
        let good = [&self.key, &self.before].into_iter().flatten().any(is_by);
        let used = self.used.contains(name) || self.used_before.contains(name);
        (good && !used).then_some(*name)
    }

    /// A pass was used.
    pub(crate) fn spend(&mut self, name: [u8; NAME]) {
        self.used.insert(name);
    }
}

fn secret(key: &[u8], name: &[u8; NAME]) -> Secret {
    prf(Prf::HmacSha256, key, &[b"levee: pass", name])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting() -> impl FnMut(&mut [u8]) {
        let mut n = 0_u8;
        move |out: &mut [u8]| {
            out.iter_mut().for_each(|octet| {
                n = n.wrapping_add(1);
                *octet = n;
            })
        }
    }

    #[test]
    fn a_pass_is_good_once_and_for_the_request_that_shows_it() {
        let (mut passes, mut rng) = (Passes::default(), counting());
        let pass = passes.make(&mut rng);
        let shown = pass.show(7, b"nonce");
        assert_eq!(passes.shown(&shown, 7, b"nonce"), Some(pass.name));
        assert_eq!(passes.shown(&shown, 8, b"nonce"), None, "another SPI");
        assert_eq!(passes.shown(&shown, 7, b"nonces"), None, "another nonce");
        for at in 0..shown.len() {
            let mut other = shown.clone();
            other[at] ^= 1;
            assert_eq!(passes.shown(&other, 7, b"nonce"), None, "octet {at}");
        }
        assert_eq!(passes.shown(&shown[..shown.len() - 1], 7, b"nonce"), None);
        assert_eq!(passes.shown(&[], 7, b"nonce"), None);
        passes.spend(pass.name);
        assert_eq!(passes.shown(&shown, 7, b"nonce"), None, "used");
        assert_eq!(Passes::default().shown(&shown, 7, b"nonce"), None, "another server's");
    }

    #[test]
    fn no_pass_is_good_twice_however_many_others_are_used_and_the_names_of_those_are_bounded() {
        let (mut passes, mut rng) = (Passes::default(), counting());
        let good = |passes: &Passes, pass: &Pass| passes.shown(&pass.show(1, b"n"), 1, b"n").is_some();
        let [first, kept] = [(); 2].map(|()| passes.make(&mut rng));
        passes.spend(first.name);
        // Whoever saw the first one used can say the same again at any time.
        for n in 2..=3 * OF_ONE_KEY as u64 {
            let made = passes.make(&mut |out: &mut [u8]| {
                out.fill(0);
                out[..8].copy_from_slice(&n.to_be_bytes());
            });
            if n % 4_096 == 0 {
                assert!(!good(&passes, &first), "{n}");
                assert!(good(&passes, &made));
                // One that was not used stays good while as many are made as workstations have.
                assert_eq!(good(&passes, &kept), n < 2 * OF_ONE_KEY as u64, "{n}");
            }
            passes.spend(made.name);
        }
        assert!(passes.used.len() + passes.used_before.len() <= 2 * OF_ONE_KEY);
    }
}
