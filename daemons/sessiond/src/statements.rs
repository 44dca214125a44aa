//! What servers of the site say to each other: sealed here, and opened here. Nothing that etcd or its client bring is believed otherwise.

use crate::devices::{Authorities, algorithm};
use crate::revoked::{self, Listed};
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
    revoked: Revoked,
    /// The passports that were found good, each server's last one.
    known: BTreeMap<DomainName, Sealed>,
}

/// Whose passports are good no more.
enum Revoked {
    /// Nobody's: no list was ever written.
    Nobodys,
    /// Those with these serial numbers; from when the list is not good any more, everybody's.
    These(Listed),
    /// There is a list that cannot be used: everybody's.
    Everybodys,
}

impl Revoked {
    fn refuses(&self, serial: &[u8], now: Time) -> Result<(), &'static str> {
        match self {
            Self::Nobodys => Ok(()),
            Self::These(list) if list.serials.contains(serial) => Err("its passport is revoked"),
            Self::These(list) if list.until.saturating_mul(1000) < now.as_millis() => {
                Err("the servers' revocation list has run out")
            }
            Self::These(_) => Ok(()),
            Self::Everybodys => Err("the servers' revocation list cannot be used"),
        }
    }
}

/// This server's passport, in the file that the warden gives.
fn passport(me: &DomainName, file: &OwnedFd) -> Result<Sealed, String> {
    let text = pem(file).map_err(|e| format!("the federation's certificate: {e}"))?;
    let own = Sealed::from_text(&text).filter(|sealed| sealed.passport.server == *me);
    Ok(own.ok_or("the federation's certificate has no passport of this server: levee enrol server")?)
}

impl Statements {
    /// By the files that the warden gives.
    ///
    /// # Errors
    /// If one of them cannot be used.
    pub fn new(
        me: &DomainName,
        own: OwnedFd,
        authority_file: OwnedFd,
        list: Option<OwnedFd>,
    ) -> Result<Self, String> {
        let own = passport(me, &own)?;
        let (authorities, known) = (Authorities::read(authority_file)?, BTreeMap::new());
        let mut statements = Self { own, authorities, revoked: Revoked::Nobodys, known };
        if let Some(list) = list
            && let Err(why) = statements.believe(&list)
        {
            levee_ipc::say!("levee-sessiond: the servers' revocation list: {why}: no server is believed");
            statements.revoked = Revoked::Everybodys;
        }
        Ok(statements)
    }

    /// Speaks with another passport of this server.
    ///
    /// # Errors
    /// If it cannot be used; the one before it is spoken with.
    pub fn renew(&mut self, me: &DomainName, own: &OwnedFd) -> Result<(), String> {
        self.own = passport(me, own)?;
        Ok(())
    }

    /// Believes another authority of the servers, or two: each passport is checked anew.
    ///
    /// # Errors
    /// If it cannot be used; the one before it is believed.
    pub fn renew_authority(&mut self, authority: OwnedFd) -> Result<(), String> {
        self.authorities = Authorities::read(authority)?;
        self.known.clear();
        Ok(())
    }

    /// Goes by another revocation list of the servers' authority.
    ///
    /// # Errors
    /// If it cannot be used; what held before holds.
    pub fn believe(&mut self, list: &OwnedFd) -> Result<(), String> {
        let list =
            revoked::signed(list, |message, signature| self.authorities.have_signed(message, signature))?;
        self.revoked = Revoked::These(list);
        Ok(())
    }

    /// Whose passports are not good now, of those that were found good; this server's own among them.
    pub fn unbelieved(&self, now: Time) -> Vec<(DomainName, &'static str)> {
        let all = self.known.values().chain([&self.own]).map(|sealed| &sealed.passport);
        all.filter_map(|passport| {
            let why = self.revoked.refuses(&passport.serial, now).err()?;
            Some((passport.server.clone(), why))
        })
        .collect()
    }

    /// Forgets a passport: it is checked anew.
    pub fn forget(&mut self, server: &DomainName) {
        self.known.remove(server);
    }

    /// This server's statement as it is written; `None` if it is too long, or was not signed by the passport's key, as when that has become another meanwhile.
    pub fn seal(&self, statement: &Statement, signature: Vec<u8>) -> Option<Vec<u8>> {
        let (passport, encoded) = (&self.own.passport, statement.encode());
        let key = UnparsedPublicKey::new(algorithm(passport.curve), &passport.point);
        key.verify(&Statement::message(&encoded), &signature).ok()?;
        Envelope { sealed: self.own.clone(), statement: encoded, signature }.encode()
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
        self.revoked.refuses(&passport.serial, now)?;
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
    use levee_ipc::federation::{Passport, Setting};
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
            let (server, serial) = (server.parse().unwrap(), serial(key));
            let passport = Passport { server, serial, not_after, curve, point };
            let signature = self.key.sign(&passport.message().unwrap()).unwrap();
            Sealed { passport, signature }
        }

        fn reader(&self) -> Statements {
            let one = self.sealed("one.example", &KeyPair::generate().unwrap(), u64::MAX);
            let own = file(&one.to_text().unwrap());
            Statements::new(&"one.example".parse().unwrap(), own, file(&self.pem), None).unwrap()
        }

        fn list(&self, revoked: &[&KeyPair], days: i64) -> OwnedFd {
            let now = rcgen::date_time_ymd(2001, 9, 1);
            let revoked_certs = revoked.iter().map(|key| rcgen::RevokedCertParams {
                serial_number: serial(key).into(),
                revocation_time: now,
                reason_code: None,
                invalidity_date: None,
            });
            let list = rcgen::CertificateRevocationListParams {
                this_update: now,
                next_update: now + std::time::Duration::from_secs(86_400 * u64::try_from(days).unwrap()),
                crl_number: 1_u64.into(),
                issuing_distribution_point: None,
                revoked_certs: revoked_certs.collect(),
                key_identifier_method: rcgen::KeyIdMethod::Sha256,
            };
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let issuer = rcgen::Issuer::new(params, &self.key);
            file(&list.signed_by(&issuer).unwrap().pem().unwrap())
        }
    }

    fn file(text: &str) -> OwnedFd {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        OwnedFd::from(file)
    }

    /// Of its certificate: positive, and never empty.
    fn serial(key: &KeyPair) -> Vec<u8> {
        [&[0x41], &key.public_key_raw()[1..12]].concat()
    }

    fn statement(server: &str, number: u64) -> Statement {
        let (site, server) = ("harbour".parse().unwrap(), server.parse().unwrap());
        let (words, pages, setting) = (vec![], vec![[3; 32]], Setting::default());
        Statement {
            site,
            server,
            epoch: 5,
            number,
            words,
            pages,
            setting,
            is_kept: true,
            postures: [0; 32],
            signed: None,
        }
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
    fn a_revoked_passport_is_refused_at_once_and_a_list_that_is_over_or_not_the_authoritys_believes_nobody() {
        let authority = Authority::new();
        let mut reader = authority.reader();
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut number = 0;
        let mut open = |reader: &mut Statements, key: &KeyPair| {
            number += 1;
            let said = envelope(
                authority.sealed("two.example", key, u64::MAX),
                key,
                &statement("two.example", number),
            );
            reader.open(&said.encode().unwrap(), NOW).map(drop)
        };
        assert_eq!(open(&mut reader, &key), Ok(()));
        assert!(reader.unbelieved(NOW).is_empty());
        reader.believe(&authority.list(&[&key], 30)).unwrap();
        assert_eq!(reader.unbelieved(NOW), [("two.example".parse().unwrap(), "its passport is revoked")]);
        assert_eq!(open(&mut reader, &key), Err("its passport is revoked"));
        assert_eq!(open(&mut reader, &other), Ok(()), "with a new key it is believed");
        // Another's list changes nothing; one that is over is nobody's leave.
        reader.believe(&Authority::new().list(&[], 30)).unwrap_err();
        reader.believe(&file("no list")).unwrap_err();
        assert_eq!(open(&mut reader, &key), Err("its passport is revoked"));
        reader.believe(&authority.list(&[], 1)).unwrap();
        assert_eq!(open(&mut reader, &other), Err("the servers' revocation list has run out"));
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
            assert!(Statements::new(&me, file(&text), file(&authority.pem), None).is_err());
        }
    }
    /// As long as it says, to its last millisecond.
    #[test]
    fn a_passport_and_a_list_are_good_until_they_say_and_not_longer() {
        let authority = Authority::new();
        let key = KeyPair::generate().unwrap();
        let said = |until| {
            let sealed = authority.sealed("two.example", &key, until);
            envelope(sealed, &key, &statement("two.example", 7)).encode().unwrap()
        };
        let at = |millis| Time::from_millis(millis);
        let until = NOW.as_millis() / 1_000;
        let open = |reader: &mut Statements, now| reader.open(&said(until), now).map(drop);
        assert_eq!(open(&mut authority.reader(), NOW), Ok(()));
        let late = at(NOW.as_millis() + 1);
        assert_eq!(open(&mut authority.reader(), late), Err("its passport has run out"));
        // The list is until 2 September 2001.
        let over = at(999_388_800_000);
        for (now, expected) in
            [(over, Ok(())), (at(over.as_millis() + 1), Err("the servers' revocation list has run out"))]
        {
            let mut reader = authority.reader();
            reader.believe(&authority.list(&[], 1)).unwrap();
            assert_eq!(reader.open(&said(u64::MAX), now).map(drop), expected, "{now:?}");
        }
    }

    #[test]
    fn what_a_server_seals_is_what_the_others_open_and_one_that_is_forgotten_is_checked_anew() {
        let authority = Authority::new();
        let key = KeyPair::generate().unwrap();
        let own = file(&authority.sealed("two.example", &key, u64::MAX).to_text().unwrap());
        let two = Statements::new(&"two.example".parse().unwrap(), own, file(&authority.pem), None).unwrap();
        let said = statement("two.example", 7);
        let sealed = two.seal(&said, key.sign(&Statement::message(&said.encode())).unwrap()).unwrap();
        let mut reader = authority.reader();
        assert_eq!(reader.open(&sealed, NOW), Ok(said.clone()));
        assert!(reader.known.contains_key(&said.server));
        reader.forget(&said.server);
        assert!(reader.known.is_empty());
        assert_eq!(reader.open(&sealed, NOW), Ok(said));
    }

    #[test]
    fn a_passport_that_is_renewed_seals_by_the_new_key_alone_and_one_that_cannot_be_used_changes_nothing() {
        let authority = Authority::new();
        let [old, new, foreign] = [(); 3].map(|()| KeyPair::generate().unwrap());
        let passport =
            |server: &str, key: &KeyPair| file(&authority.sealed(server, key, u64::MAX).to_text().unwrap());
        let me = "two.example".parse().unwrap();
        let mut two =
            Statements::new(&me, passport("two.example", &old), file(&authority.pem), None).unwrap();
        let said = statement("two.example", 7);
        let by = |two: &Statements, key: &KeyPair| {
            two.seal(&said, key.sign(&Statement::message(&said.encode())).unwrap())
        };
        assert!(by(&two, &old).is_some() && by(&two, &new).is_none());
        two.renew(&me, &passport("one.example", &new)).unwrap_err();
        two.renew(&me, &file("nothing")).unwrap_err();
        assert!(by(&two, &old).is_some());
        two.renew(&me, &passport("two.example", &new)).unwrap();
        assert!(by(&two, &old).is_none() && by(&two, &foreign).is_none());
        let sealed = by(&two, &new).unwrap();
        let mut reader = authority.reader();
        assert_eq!(reader.open(&sealed, NOW), Ok(said.clone()));

        // Another authority: whom it has not signed for is believed no more, and by a file without one nothing changes.
        reader.renew_authority(file("no certificate")).unwrap_err();
        assert_eq!(reader.open(&sealed, NOW), Ok(said.clone()));
        let next = Authority::new();
        reader.renew_authority(file(&format!("{}{}", authority.pem, next.pem))).unwrap();
        assert_eq!(reader.open(&sealed, NOW), Ok(said));
        reader.renew_authority(file(&next.pem)).unwrap();
        assert_eq!(reader.open(&sealed, NOW), Err("its passport is not of the servers' authority"));
    }

    #[test]
    fn the_serial_numbers_of_a_list_are_those_that_it_names() {
        let authority = Authority::new();
        let keys: Vec<KeyPair> = (0..3).map(|_| KeyPair::generate().unwrap()).collect();
        let (found, digest) = revoked::serials(&authority.list(&[&keys[0], &keys[2]], 30)).unwrap();
        assert_eq!(found, [serial(&keys[0]), serial(&keys[2])].into());
        let (none, other) = revoked::serials(&authority.list(&[], 30)).unwrap();
        assert!(none.is_empty() && digest != other);
        assert!(revoked::serials(&file("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")).is_err());
    }
}
