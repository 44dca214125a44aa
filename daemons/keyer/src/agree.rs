//! One key agreement: ephemeral X25519 on both sides, and the keys of one pair of SAs derived from it.

use hkdf::Hkdf;
use levee_ipc::Secret;
use levee_ipc::keyer::KeyOffer;
use levee_ipc::vault::{Sa, Suite};
use levee_policy::LabelName;
use levee_session::SessionId;
use levee_sys::wipe::scrub_stack;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::Sha256;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

/// Domain separation: keys of this exchange are keys of no other.
const CONTEXT: &[u8] = b"levee interim key agreement 1";

/// Which end of the trusted path this is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one that offers.
    Workstation,
    /// The one that answers.
    Server,
}

/// The kernel has no random bytes, or the peer's public value is not usable.
#[derive(Clone, Copy, Debug)]
pub struct Unusable(pub &'static str);

/// A secret used for one exchange and erased with it.
pub struct Ephemeral {
    secret: StaticSecret,
    offer: KeyOffer,
}

/// The keying material of both directions, as its vault wants it.
pub struct Pair {
    /// Packets that arrive here.
    pub inbound: Sa,
    /// Packets that leave here.
    pub outbound: Sa,
}

/// Fills an array from the kernel's random bytes.
pub fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, Unusable> {
    let mut bytes = Zeroizing::new([0; N]);
    SystemRandom::new().fill(bytes.as_mut()).map_err(|_| Unusable("no random bytes"))?;
    Ok(bytes)
}

/// A random SPI of a vault's slot: the slot in the top 12 bits (steering), never the reserved 0 to 255.
pub fn spi(slot: u16) -> Result<u32, Unusable> {
    let slot = u32::from(slot);
    // RFC 4303 2.1 reserves 0 to 255, all of them in slot 0, which is the keyer's own.
    if slot == 0 || slot >= 1 << 12 {
        return Err(Unusable("a slot outside 1 to 4095"));
    }
    let low = u32::from_be_bytes(*random()?) & 0x000f_ffff;
    Ok(slot << 20 | low)
}

impl Ephemeral {
    /// Draws a secret.
    pub fn new(spi: u32, suite: Suite) -> Result<Self, Unusable> {
        let secret = StaticSecret::from(*random::<32>()?);
        let public = PublicKey::from(&secret).to_bytes();
        scrub_stack();
        Ok(Self { secret, offer: KeyOffer { public, spi, suite } })
    }

    /// This side's public part.
    pub fn offer(&self) -> &KeyOffer {
        &self.offer
    }

    /// The pair of keys that the other side derives too; the secret is erased.
    ///
    /// # Errors
    /// If the peer chose another suite, our own SPI, or a public value of low order.
    pub fn derive(
        self,
        side: Side,
        peer: &KeyOffer,
        session: SessionId,
        label: &LabelName,
    ) -> Result<Pair, Unusable> {
        let pair = self.derive_inner(side, peer, session, label);
        scrub_stack();
        pair
    }

    #[inline(never)]
    fn derive_inner(
        self,
        side: Side,
        peer: &KeyOffer,
        session: SessionId,
        label: &LabelName,
    ) -> Result<Pair, Unusable> {
        if peer.suite != self.offer.suite {
            return Err(Unusable("the peer took another suite"));
        }
        let shared = self.secret.diffie_hellman(&PublicKey::from(peer.public));
        // RFC 7748 6.1: the all-zero value means that the peer did not contribute.
        if !shared.was_contributory() {
            return Err(Unusable("the peer's public value is of low order"));
        }
        let (workstation, server) = match side {
            Side::Workstation => (&self.offer, peer),
            Side::Server => (peer, &self.offer),
        };
        let kdf = Hkdf::<Sha256>::new(Some(CONTEXT), shared.as_bytes());
        // RFC 5869 3.2: everything that the keys are for, so that another session, label, suite or SPI has others.
        let mut info = Vec::with_capacity(512);
        info.extend_from_slice(session.as_bytes());
        for part in [workstation, server] {
            info.extend_from_slice(&part.public);
            info.extend_from_slice(&part.spi.to_be_bytes());
        }
        info.push(match self.offer.suite {
            Suite::Aes128Gcm => 1,
            Suite::Aes256Gcm => 2,
            Suite::ChaCha20Poly1305 => 3,
        });
        info.extend_from_slice(label.as_str().as_bytes());
        let length = self.offer.suite.keying_material();
        let mut material = Zeroizing::new([0u8; 2 * 36]);
        let both = material.get_mut(..2 * length).ok_or(Unusable("a suite with longer keys"))?;
        kdf.expand(&info, both).map_err(|_| Unusable("too much keying material"))?;
        let (to_server, to_workstation) = both.split_at(length);
        let sa = |spi: u32, key: &[u8]| {
            Secret::new(key.to_vec())
                .map(|keying_material| Sa { spi, keying_material })
                .ok_or(Unusable("key length"))
        };
        let to_server = sa(server.spi, to_server)?;
        let to_workstation = sa(workstation.spi, to_workstation)?;
        Ok(match side {
            Side::Workstation => Pair { inbound: to_workstation, outbound: to_server },
            Side::Server => Pair { inbound: to_server, outbound: to_workstation },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(suite: Suite) -> (Pair, Pair) {
        let session = SessionId::from_random([7; 16]);
        let label = LabelName::new("SECRET").unwrap();
        let workstation = Ephemeral::new(spi(1).unwrap(), suite).unwrap();
        let server = Ephemeral::new(spi(9).unwrap(), suite).unwrap();
        let (offer, answer) = (workstation.offer().clone(), server.offer().clone());
        let there = server.derive(Side::Server, &offer, session, &label).unwrap();
        let here = workstation.derive(Side::Workstation, &answer, session, &label).unwrap();
        (here, there)
    }

    #[test]
    fn both_sides_derive_the_same_keys_and_each_direction_has_its_own() {
        for suite in [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::ChaCha20Poly1305] {
            let (here, there) = exchange(suite);
            assert_eq!(here.inbound.spi, there.outbound.spi);
            assert_eq!(here.outbound.spi, there.inbound.spi);
            assert_eq!(here.inbound.keying_material.expose(), there.outbound.keying_material.expose());
            assert_eq!(here.outbound.keying_material.expose(), there.inbound.keying_material.expose());
            assert_ne!(here.inbound.keying_material.expose(), here.outbound.keying_material.expose());
            assert_eq!(here.inbound.keying_material.expose().len(), suite.keying_material());
        }
    }

    #[test]
    fn another_session_label_or_spi_gives_other_keys() {
        let label = LabelName::new("SECRET").unwrap();
        let session = SessionId::from_random([7; 16]);
        let peer = Ephemeral::new(spi(1).unwrap(), Suite::Aes256Gcm).unwrap().offer().clone();
        let derive = |session: SessionId, label: &LabelName, peer: &KeyOffer| {
            let own = Ephemeral {
                secret: StaticSecret::from([5; 32]),
                offer: KeyOffer { public: [6; 32], spi: 0x0090_0001, suite: Suite::Aes256Gcm },
            };
            own.derive(Side::Server, peer, session, label).unwrap().inbound.keying_material.expose().to_vec()
        };
        let base = derive(session, &label, &peer);
        assert_eq!(base, derive(session, &label, &peer));
        assert_ne!(base, derive(SessionId::from_random([8; 16]), &label, &peer));
        assert_ne!(base, derive(session, &LabelName::new("SECRET/NATO").unwrap(), &peer));
        let other = KeyOffer { spi: peer.spi ^ 1, ..peer.clone() };
        assert_ne!(base, derive(session, &label, &other));
    }

    #[test]
    fn a_public_value_of_low_order_and_another_suite_are_refused() {
        let label = LabelName::new("SECRET").unwrap();
        let session = SessionId::from_random([7; 16]);
        for (public, suite) in [([0; 32], Suite::Aes256Gcm), ([9; 32], Suite::Aes128Gcm)] {
            let own = Ephemeral::new(spi(1).unwrap(), Suite::Aes256Gcm).unwrap();
            let peer = KeyOffer { public, spi: spi(2).unwrap(), suite };
            assert!(own.derive(Side::Server, &peer, session, &label).is_err());
        }
    }

    #[test]
    fn an_spi_names_its_slot_and_slot_zero_has_none() {
        for slot in [1, 2, 4095] {
            assert_eq!(spi(slot).unwrap() >> 20, u32::from(slot));
        }
        assert!(spi(0).is_err());
        assert!(spi(4096).is_err());
    }
}
