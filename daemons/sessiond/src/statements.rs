//! What servers of the site say to each other: sealed here, and opened here. Nothing that etcd or its client bring is believed otherwise.

use crate::devices::{Authorities, algorithm};
use levee_daemon::pem;
use levee_ipc::federation::{Envelope, Sealed, Statement};
use levee_policy::DomainName;
use levee_session::Time;
use ring::signature::UnparsedPublicKey;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

/// This server's passport, and the authority of the others'.
pub struct Statements {
    own: Sealed,
    authorities: Authorities,
    /// The passports that were found good, each server's last one.
    known: BTreeMap<DomainName, Sealed>,
}

impl Statements {
    /// By the files that the warden gives.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub fn new(me: &DomainName, own: OwnedFd, authority_file: OwnedFd) -> Result<Self, String> {
        let own = pem(&own).map_err(|e| format!("the federation's certificate: {e}"))?;
        let own = Sealed::from_text(&own)
            .filter(|sealed| sealed.passport.server == *me)
            .ok_or("the federation's certificate has no passport of this server: levee enrol server")?;
        Ok(Self { own, authorities: Authorities::read(authority_file)?, known: BTreeMap::new() })
    }

    /// This server's statement as it is written; `None` if it is too long.
    pub fn seal(&self, statement: &Statement, signature: Vec<u8>) -> Option<Vec<u8>> {
        Envelope { sealed: self.own.clone(), statement: statement.encode(), signature }.encode()
    }

    /// What a server of the site says: the one that the statement names has signed it.
    ///
    /// # Errors
    /// Why it is not believed.
    pub fn open(&mut self, bytes: &[u8], now: Time) -> Result<Statement, &'static str> {
        let envelope = Envelope::decode(bytes).ok_or("it is malformed")?;
        let passport = &envelope.sealed.passport;
        if self.known.get(&passport.server) != Some(&envelope.sealed) {
            let message = passport.message().ok_or("its passport is malformed")?;
            if !self.authorities.have_signed(&message, &envelope.sealed.signature) {
                return Err("its passport is not of the servers' authority");
            }
        }
        if passport.not_after.saturating_mul(1000) < now.as_millis() {
            return Err("its passport has run out");
        }
        UnparsedPublicKey::new(algorithm(passport.curve), &passport.point)
            .verify(&Statement::message(&envelope.statement), &envelope.signature)
            .map_err(|_| "its signature is not of its server")?;
        let statement = Statement::decode(&envelope.statement).ok_or("it is no statement")?;
        if statement.server != passport.server {
            return Err("it is signed by another server");
        }
        // Those whom the authority knows are few.
        self.known.insert(statement.server.clone(), envelope.sealed);
        Ok(statement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_ipc::device::Curve;
    use levee_ipc::federation::Passport;
    use rcgen::{
        CertificateParams, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, SigningKey as _,
    };
    use std::io::Write as _;

    const NOW: Time = Time::from_millis(1_000_000_000_000);

    struct Authority {
        key: KeyPair,
        pem: String,
    }

    impl Authority {
        fn new() -> Self {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let pem = params.self_signed(&key).unwrap().pem();
            Self { key, pem }
        }

        fn sealed(&self, server: &str, key: &KeyPair, not_after: u64) -> Sealed {
            let point = key.public_key_raw().to_vec();
            let curve = if point.len() == 65 { Curve::P256 } else { Curve::P384 };
            let passport = Passport { server: server.parse().unwrap(), not_after, curve, point };
            let signature = self.key.sign(&passport.message().unwrap()).unwrap();
            Sealed { passport, signature }
        }

        fn reader(&self) -> Statements {
            let one = self.sealed("one.example", &KeyPair::generate().unwrap(), u64::MAX);
            let file = |text: &str| {
                let mut file = tempfile::tempfile().unwrap();
                file.write_all(text.as_bytes()).unwrap();
                OwnedFd::from(file)
            };
            let own = file(&one.to_text().unwrap());
            Statements::new(&"one.example".parse().unwrap(), own, file(&self.pem)).unwrap()
        }
    }

    fn statement(server: &str, number: u64) -> Statement {
        let (site, server) = ("harbour".parse().unwrap(), server.parse().unwrap());
        Statement { site, server, epoch: 5, number, words: vec![], pages: vec![[3; 32]] }
    }

    fn envelope(sealed: Sealed, key: &KeyPair, statement: &Statement) -> Envelope {
        let statement = statement.encode();
        let signature = key.sign(&Statement::message(&statement)).unwrap();
        Envelope { sealed, statement, signature }
    }

    #[test]
    fn what_a_server_has_signed_is_believed_and_no_octet_of_it_can_be_another() {
        let authority = Authority::new();
        let mut reader = authority.reader();
        for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let sealed = authority.sealed("two.example", &key, u64::MAX);
            let said = statement("two.example", 7);
            let bytes = envelope(sealed, &key, &said).encode().unwrap();
            // With a passport that is seen for the first time, and with one that is known.
            for mut reader in [authority.reader(), {
                reader.open(&bytes, NOW).unwrap();
                authority.reader()
            }] {
                for at in 0..bytes.len() {
                    let mut other = bytes.clone();
                    other[at] ^= 1;
                    assert!(reader.open(&other, NOW).is_err(), "octet {at}");
                }
                assert_eq!(reader.open(&bytes, NOW), Ok(said.clone()));
                for at in 0..bytes.len() {
                    let mut other = bytes.clone();
                    other[at] ^= 0x80;
                    assert!(reader.open(&other, NOW).is_err(), "octet {at}");
                }
                for length in 0..bytes.len() {
                    assert!(reader.open(&bytes[..length], NOW).is_err());
                }
                assert!(reader.open(&[&bytes[..], &[0]].concat(), NOW).is_err(), "one octet more");
                assert!(reader.open(&vec![0; 70_000], NOW).is_err());
            }
        }
    }

    #[test]
    fn nobody_speaks_for_another_server_nor_with_a_passport_that_is_over_or_of_somebody_else() {
        let authority = Authority::new();
        let mut reader = authority.reader();
        let (two, three) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let said = statement("two.example", 7);
        let of =
            |authority: &Authority, server: &str, key: &KeyPair, until| authority.sealed(server, key, until);
        let good = of(&authority, "two.example", &two, u64::MAX);
        assert!(reader.open(&envelope(good.clone(), &two, &said).encode().unwrap(), NOW).is_ok());
        for wrong in [
            // A server with a key of its own, as another.
            envelope(of(&authority, "three.example", &three, u64::MAX), &three, &said),
            envelope(good.clone(), &three, &said),
            // Another authority: the workstations', say.
            envelope(of(&Authority::new(), "two.example", &three, u64::MAX), &three, &said),
            envelope(of(&authority, "two.example", &two, 999_999_999), &two, &said),
            // A signature of this key for another purpose.
            Envelope { signature: two.sign(&said.encode()).unwrap(), ..envelope(good.clone(), &two, &said) },
        ] {
            assert!(reader.open(&wrong.encode().unwrap(), NOW).is_err(), "{wrong:?}");
        }
        // A new key, with a passport for it, is as good as the one before.
        let renewed = of(&authority, "two.example", &three, u64::MAX);
        assert!(reader.open(&envelope(renewed, &three, &said).encode().unwrap(), NOW).is_ok());
    }

    #[test]
    fn a_server_without_a_passport_of_its_own_does_not_begin() {
        let authority = Authority::new();
        let key = KeyPair::generate().unwrap();
        let file = |text: &str| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            OwnedFd::from(file)
        };
        let others = authority.sealed("two.example", &key, u64::MAX).to_text().unwrap();
        for text in [authority.pem.clone(), others] {
            let me = "one.example".parse().unwrap();
            assert!(Statements::new(&me, file(&text), file(&authority.pem)).is_err());
        }
    }
}
