//! sessiond ↔ levee-fsd, which carries what the site's servers say to each other; and how a server shows that it has said it.
//!
//! fsd and etcd behind it are believed nothing. What they bring is an [`Envelope`], which sessiond opens by the site's authority for its
//! servers, and pages, which count if a statement in an envelope names them.

use crate::device::Curve;
use crate::sealed;
use levee_policy::DomainName;
use serde::{Deserialize, Serialize};

pub use levee_session::federation::{PAGE, PAGES, PEERS, SIGNATURE, Setting, Signed, Statement, Word};

/// The most bytes of an envelope as it is written.
pub const ENVELOPE: usize = 30 * 1024;

/// What begins a signed passport. No certificate begins so: these are DER, and begin with 0x30; and no passport of a device.
const PASSPORT: &[u8] = b"levee server passport\0";

/// sessiond → fsd.
#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Give up whatever a try before has. Tell what these servers' keys say, then [`Heard::Joined`], then what changes.
    Join {
        /// Which try.
        attempt: u64,
        /// This server, and the others.
        servers: Vec<DomainName>,
    },
    /// Write this server's keys, all by one change.
    Put {
        /// Which try.
        attempt: u64,
        /// The statement's number, said again in the answer.
        number: u64,
        /// The envelope.
        envelope: Vec<u8>,
        /// Pages by number.
        pages: Vec<(u16, Vec<u8>)>,
    },
}

/// fsd → sessiond.
#[derive(Debug, Serialize, Deserialize)]
pub enum Heard {
    /// An envelope, of one of the servers that were named.
    Told {
        /// Which try.
        attempt: u64,
        /// At most [`ENVELOPE`] bytes.
        envelope: Vec<u8>,
    },
    /// A page of one of the servers.
    Page {
        /// Which try.
        attempt: u64,
        /// Whose key it is.
        server: DomainName,
        /// Which.
        page: u16,
        /// At most [`PAGE`] bytes.
        bytes: Vec<u8>,
    },
    /// All of the table has been told as it was.
    Joined {
        /// Which try.
        attempt: u64,
    },
    /// A [`Ask::Put`] was carried out.
    Written {
        /// Which try.
        attempt: u64,
        /// The statement's.
        number: u64,
    },
    /// There are so many things in the table that no server of the site writes.
    Strange {
        /// Which try.
        attempt: u64,
        /// How many more.
        count: u64,
    },
    /// The watch or the table cannot be had any more.
    Lost {
        /// Which try.
        attempt: u64,
        /// Why.
        #[serde(deserialize_with = "crate::said::reason")]
        reason: String,
    },
}

/// What the servers' authority says about a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passport {
    /// The server.
    pub server: DomainName,
    /// The serial number of its certificate, as it is encoded there: a revocation list names it by that.
    pub serial: Vec<u8>,
    /// Until when it is good, in seconds since 1970-01-01 UTC.
    pub not_after: u64,
    /// The curve of its key.
    pub curve: Curve,
    /// Its public key: an uncompressed point.
    pub point: Vec<u8>,
}

impl Passport {
    /// The bytes that the authority signs: no two passports have the same. `None` if the key is not of its curve.
    pub fn message(&self) -> Option<Vec<u8>> {
        let name = self.server.as_str().as_bytes();
        let mut message = PASSPORT.to_vec();
        message.push(u8::try_from(name.len()).ok()?);
        message.extend_from_slice(name);
        message.push(u8::try_from(self.serial.len()).ok()?);
        message.extend_from_slice(&self.serial);
        message.extend_from_slice(&self.not_after.to_be_bytes());
        message.push(self.curve as u8);
        message.extend_from_slice(&self.point);
        (self.point.len() == self.curve.point()).then_some(message)
    }
}

impl sealed::Passport for Passport {
    const KIND: &str = "LEVEE SERVER PASSPORT";
}

/// A passport and the authority's signature over [`Passport::message`].
pub type Sealed = sealed::Sealed<Passport>;

/// A statement, with all that is needed to believe it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Who says it.
    pub sealed: Sealed,
    /// What: [`Statement::encode`].
    pub statement: Vec<u8>,
    /// The server's signature over [`Statement::message`]: ASN.1 ECDSA with the hash of its key's curve.
    pub signature: Vec<u8>,
}

impl Envelope {
    /// As it is written; `None` if it is too long.
    pub fn encode(&self) -> Option<Vec<u8>> {
        postcard::to_allocvec(self).ok().filter(|bytes| bytes.len() <= ENVELOPE)
    }

    /// Reads one, to the last octet.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > ENVELOPE {
            return None;
        }
        let (envelope, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(envelope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_policy::site::Placed;
    use levee_session::{InForce, Time};

    fn sealed() -> Sealed {
        let server = "two.example".parse().unwrap();
        let serial = vec![1; 20];
        let passport = Passport { server, serial, not_after: 3, curve: Curve::P384, point: vec![4; 97] };
        Sealed { passport, signature: vec![5; 104] }
    }

    #[test]
    fn a_servers_passport_is_signed_in_whole_and_is_not_a_devices() {
        let whole = sealed().passport;
        let other = |change: fn(&mut Passport)| {
            let mut passport = whole.clone();
            change(&mut passport);
            passport.message()
        };
        let mut messages = vec![
            whole.message(),
            other(|p| p.server = "two.exampl".parse().unwrap()),
            other(|p| p.serial[0] = 2),
            other(|p| p.serial.truncate(19)),
            other(|p| p.not_after = 4),
            other(|p| p.point[0] = 0),
            other(|p| (p.curve, p.point) = (Curve::P256, vec![4; 65])),
        ];
        assert!(messages.iter().all(Option::is_some));
        messages.sort();
        messages.dedup();
        assert_eq!(messages.len(), 7);
        assert_eq!(other(|p| p.point.push(4)), None);
        let text = sealed().to_text().unwrap();
        assert_eq!(Sealed::from_text(text.as_bytes()), Some(sealed()));
        assert_eq!(crate::device::Sealed::from_text(text.as_bytes()), None);
    }

    #[test]
    fn the_longest_statement_fits_its_envelope_and_its_pages_a_message() {
        let name = |n: usize| {
            let part = format!("{n:0>63}");
            format!("{part}.{part}.{part}.{}", &part[..61]).parse::<DomainName>().unwrap()
        };
        let word =
            |n| Word { server: name(n), epoch: u64::MAX, heard: u64::MAX, granted: u64::MAX, done: u64::MAX };
        let until = Some(Time::from_millis(u64::MAX));
        // As many octets of ranges as there may be: the longest, and others.
        let range = |n: usize| match n {
            0 => format!("{0}..{0}", "A".repeat(255)),
            _ => "A".repeat(32),
        };
        let in_force = (0..16).map(|n| {
            let labels = Some(vec![range(n).parse().unwrap()]);
            InForce { what: Placed { posture: Some("p".repeat(32).parse().unwrap()), labels }, until }
        });
        let statement = Statement {
            site: "harbourharbo".parse().unwrap(),
            server: name(99),
            epoch: u64::MAX,
            number: u64::MAX,
            words: (0..PEERS).map(word).collect(),
            pages: vec![[0xff; 32]; PAGES],
            setting: Setting { number: u64::MAX >> 1, at: Some(name(99)), in_force: in_force.collect() },
            is_kept: true,
            signed: Some(Signed { count: u64::MAX, hash: [0xff; 32], signature: vec![1; SIGNATURE] }),
            postures: [0xff; 32],
        };
        let mut sealed = sealed();
        sealed.passport.server = name(99);
        let envelope = Envelope { sealed, statement: statement.encode(), signature: vec![1; 104] };
        let bytes = envelope.encode().unwrap();
        assert_eq!(Envelope::decode(&bytes), Some(envelope));
        assert_eq!(Statement::decode(&statement.encode()), Some(statement.clone()));
        let mut more = statement;
        more.setting.in_force[1].what.labels = Some(vec!["A".repeat(33).parse().unwrap()]);
        assert_eq!(Statement::decode(&more.encode()), None, "an octet more");
        let pages = vec![(0, vec![1; PAGE]); 3];
        let put = Ask::Put { attempt: u64::MAX, number: u64::MAX, envelope: bytes.clone(), pages };
        let (a, b) = crate::Channel::pair().unwrap();
        a.try_send(&put).unwrap();
        assert!(matches!(b.recv().unwrap().message, Ask::Put { pages, .. } if pages.len() == 3));
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Envelope::decode(&longer), None, "to the last octet");
    }
}
