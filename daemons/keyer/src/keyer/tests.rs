//! A server's keyer and a workstation's in one process, on sockets of this host. Tests stand in for everybody else, and say what time it is.

use super::{Kernel, Keyer};
use crate::net::Sockets;
use crate::source::Source;
use crate::start::{Authority, Believed, Started, config};
use levee_daemon::{Events, Warden};
use levee_esp::{Spi, Steering};
use levee_ike::{IkeId, TrustAnchors};
use levee_ipc::Channel;
use levee_ipc::keyer::{FromKeyer, KeyRecord, ToKeyer};
use levee_ipc::signer::{FromSigner, ToSigner};
use levee_ipc::vault::{Aggregation, Carriage, Cipher, KeyerToVault, Refusal, Sa, VaultToKeyer};
use levee_ipc::warden::keyer::KeyerPart;
use levee_ipc::warden::{Nothing, Order, Place, Said};
use levee_policy::LabelName;
use levee_policy::site::Suites;
use levee_session::SessionId;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CustomExtension,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, PKCS_ECDSA_P256_SHA256, RevokedCertParams,
    SanType, SerialNumber,
};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use std::collections::BTreeMap;
use std::io::{Seek as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
pub const SERVER: &str = "server.example";
const SLOTS: u16 = 64;
const STEERING: [u8; Steering::KEY] = [4; Steering::KEY];
/// The accreditation in every certificate.
pub const RANGE: &str = "UNCLASSIFIED..SECRET";
const ACCREDITATION: [u64; 14] =
    [1, 2, 840, 113_556, 1, 8000, 2554, 36_053, 36_488, 38_356, 17_904, 41_662, 1_017_755, 10_205_640];
/// The workers of the label SECRET at the server.
pub const WORKERS: [u16; 2] = [9, 12];
/// The worker at the workstation.
pub const WORKER: u16 = 1;

/// The label of most tests.
pub fn label() -> LabelName {
    LabelName::new("SECRET").unwrap()
}

/// A session of the host `ws1`.
pub fn session(number: u8) -> SessionId {
    SessionId::from_random([number; 16])
}

/// What sessiond grants it, and what the TPE is told.
pub fn record(number: u8) -> KeyRecord {
    KeyRecord {
        session: session(number),
        device: "ws1".parse().unwrap(),
        label: label(),
        inner: vec!["10.81.0.5".parse().unwrap()],
        reach: vec!["10.80.0.1/32".parse().unwrap()],
        carriage: Carriage::Each,
        ciphers: None,
        key_life: None,
    }
}

/// The slot that an SPI names.
pub fn slot_of(spi: u32) -> u16 {
    Steering::new(&STEERING, SLOTS).unwrap().slot(Spi::new(spi).unwrap())
}

/// The keys of a pair, as a vault got them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    pub session: SessionId,
    pub cipher: Cipher,
    pub inbound: (u32, Vec<u8>),
    pub outbound: (u32, Vec<u8>),
    pub answered: bool,
    pub peer: Option<SocketAddr>,
    pub aggregation: Option<Aggregation>,
}

/// What a vault was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Install(Keys),
    Only(SessionId, Vec<u32>),
    Retire(u32),
    Delete(u32),
}

impl From<KeyerToVault> for Told {
    fn from(told: KeyerToVault) -> Self {
        let of = |sa: Sa| (sa.spi, sa.keying_material.expose().to_vec());
        match told {
            KeyerToVault::Install {
                session, cipher, inbound, outbound, answered, peer, aggregation, ..
            } => {
                let (inbound, outbound) = (of(inbound), of(outbound));
                Self::Install(Keys { session, cipher, inbound, outbound, answered, peer, aggregation })
            }
            KeyerToVault::Only { session, spis } => Self::Only(session, spis),
            KeyerToVault::Retire { spi } => Self::Retire(spi),
            KeyerToVault::Delete { spi } => Self::Delete(spi),
        }
    }
}

/// A site's authority.
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    der: Vec<u8>,
}

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let der = params.self_signed(&key).unwrap().der().to_vec();
        Self { der, issuer: Issuer::new(params, key) }
    }

    /// A revocation list that names these serial numbers, as the warden hands it over.
    fn list(&self, serials: &[Vec<u8>]) -> OwnedFd {
        let now = time::OffsetDateTime::now_utc();
        let revoked = |serial: &Vec<u8>| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: now - time::Duration::days(2),
            next_update: now + time::Duration::days(2),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let text = list.signed_by(&self.issuer).unwrap().pem().unwrap();
        let file = rustix::fs::memfd_create("list", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(file);
        file.write_all(text.as_bytes()).and_then(|()| file.rewind()).unwrap();
        file.into()
    }

    /// A host's certificate and key.
    fn identity(&self, name: &str) -> (Vec<u8>, EcdsaKeyPair) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names.push(SanType::DnsName(name.try_into().unwrap()));
        params.serial_number = Some(SerialNumber::from_slice(serial(name)));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 17])];
        let der = [&[0x0c, RANGE.len() as u8], RANGE.as_bytes()].concat();
        params.custom_extensions = vec![CustomExtension::from_oid_content(&ACCREDITATION, der)];
        let der = params.signed_by(&key, &self.issuer).unwrap().der().to_vec();
        let der_of_key = key.serialize_der();
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der_of_key, &SystemRandom::new());
        (der, key.unwrap())
    }
}

/// The serial number of this host's certificate.
fn serial(name: &str) -> &[u8] {
    name.as_bytes()
}

/// One keyer, and the other ends of its channels.
pub struct End {
    pub keyer: Keyer,
    control: Channel,
    asker: Channel,
    signer: Channel,
    key: EcdsaKeyPair,
    vaults: BTreeMap<(LabelName, u16), Channel>,
    pub address: SocketAddr,
    /// What it has said to sessiond, or to the TPE.
    pub said: Vec<FromKeyer>,
    /// What it has told vaults, by slot.
    pub told: Vec<(u16, Told)>,
    /// Its vaults take keys; else this is why not.
    pub refusal: Option<Refusal>,
}

impl End {
    fn new(place: Place, ca: &Ca, name: &str, workers: &[u16]) -> Self {
        let (chain, key) = ca.identity(name);
        let (control, theirs) = Channel::pair().unwrap();
        let mut events = Events::new().unwrap();
        let warden = Warden::new(theirs, &mut events, Source::Warden).unwrap();
        let anchors = Arc::new(TrustAnchors::new(std::slice::from_ref(&ca.der), &[]).unwrap());
        let server = (place == Place::Workstation).then(|| SERVER.parse().unwrap());
        let believed = Believed { chain: vec![chain], anchors, suites: Suites::default(), server };
        let socket = levee_sys::udp::bind(SocketAddr::from(([127, 0, 0, 1], 0)), 1 << 20).unwrap();
        let address = levee_sys::udp::local_address(socket.as_fd()).unwrap();
        let mut sockets = Sockets::default();
        sockets.add(socket, address, true, &mut events).unwrap();
        let started = Started {
            events,
            warden,
            place,
            config: config(believed, &[], place).unwrap(),
            authority: Authority::of(vec![ca.der.clone()]),
            sockets,
            steering: Steering::new(&STEERING, SLOTS).unwrap(),
            channels: Vec::new(),
        };
        let keyer = Keyer::new(started).unwrap();
        assert!(matches!(control.recv::<Said<Nothing>>().unwrap().message, Said::Ready));
        let attach = |part| attach(&control, part);
        let (asker, signer) = (attach(KeyerPart::Sessiond), attach(KeyerPart::Signer));
        let (said, told, refusal) = (Vec::new(), Vec::new(), None);
        let mut end = Self {
            keyer,
            control,
            asker,
            signer,
            key,
            vaults: BTreeMap::new(),
            address,
            said,
            told,
            refusal,
        };
        workers.iter().for_each(|slot| end.vault(*slot));
        end.round();
        end.said.clear();
        end
    }

    /// A worker is there, or another in its place.
    pub fn vault(&mut self, slot: u16) {
        self.vault_of(label(), slot);
    }

    /// The same of another label.
    pub fn vault_of(&mut self, label: LabelName, slot: u16) {
        let channel = attach(&self.control, KeyerPart::Vault { label: label.clone(), slot });
        self.vaults.insert((label, slot), channel);
    }

    /// Another sessiond is there.
    pub fn another_asker(&mut self) {
        self.asker = attach(&self.control, KeyerPart::Sessiond);
        self.round();
    }

    /// A revocation list comes that names these hosts' certificates.
    pub fn revokes(&mut self, ca: &Ca, names: &[&str]) {
        let serials: Vec<Vec<u8>> = names.iter().map(|name| serial(name).to_vec()).collect();
        let list = ca.list(&serials);
        self.control.send_with(&Order::Give(KeyerPart::Revocations), &[list.as_fd()]).unwrap();
        self.round();
    }

    /// A worker is gone.
    pub fn no_vault(&mut self, slot: u16) {
        self.vaults.remove(&(label(), slot)).unwrap();
    }

    /// sessiond or the TPE says something.
    pub fn say(&mut self, message: &ToKeyer) {
        self.asker.send(message).unwrap();
        self.round();
    }

    /// A vault says something.
    pub fn vault_says(&mut self, slot: u16, message: &VaultToKeyer) {
        self.vaults[&(label(), slot)].send(message).unwrap();
        self.round();
    }

    /// Time goes by, and nothing is done meanwhile.
    pub fn later(&mut self, time: Duration) {
        self.keyer.began = self.keyer.began.checked_sub(time).unwrap();
    }

    /// How long it has been at work.
    pub fn age(&self) -> Duration {
        self.keyer.now().monotonic
    }

    /// What it has counted whose words have this in them.
    pub fn counted(&self, what: &str) -> u64 {
        let counted = self.keyer.dropped.iter().filter(|(why, _)| why.contains(what));
        counted.map(|(_, count)| count).sum()
    }

    /// It does what there is to do, and what it says is answered. Whether there was anything.
    fn round(&mut self) -> bool {
        assert!(self.keyer.hear(Some(Duration::ZERO)).unwrap());
        let before = self.said.len() + self.told.len();
        let mut signed = false;
        while let Ok(asked) = self.signer.try_recv::<ToSigner>() {
            let ToSigner::IkeAuth(octets) = asked.message else { panic!("{:?}", asked.message) };
            let signature = self.key.sign(&SystemRandom::new(), &octets).unwrap().as_ref().to_vec();
            self.signer.send(&FromSigner::Signature(signature)).unwrap();
            signed = true;
        }
        while let Ok(said) = self.asker.try_recv::<FromKeyer>() {
            self.said.push(said.message);
        }
        for ((_, slot), vault) in &self.vaults {
            while let Ok(told) = vault.try_recv::<KeyerToVault>() {
                let told = Told::from(told.message);
                if let Told::Install(Keys { inbound: (spi, _), .. }) = told {
                    let refused = self.refusal.map(|reason| VaultToKeyer::Refused { spi, reason });
                    vault.send(&refused.unwrap_or(VaultToKeyer::Installed { spi })).unwrap();
                }
                self.told.push((*slot, told));
            }
        }
        signed || self.said.len() + self.told.len() > before
    }

    /// The keys that its vaults were told, and nothing of them again.
    pub fn keys(&mut self) -> Vec<Keys> {
        let all = std::mem::take(&mut self.told);
        let of = |told: &(u16, Told)| match told {
            (slot, Told::Install(keys)) => {
                assert_eq!(slot_of(keys.inbound.0), *slot, "the worker that its SPI names");
                Some(keys.clone())
            }
            _ => None,
        };
        all.iter().filter_map(of).collect()
    }

    /// All that vaults were told since the last look, less what there is about keys in them.
    pub fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.told).into_iter().map(|(_, told)| told).collect()
    }
}

fn attach(control: &Channel, part: KeyerPart) -> Channel {
    let (ours, theirs) = Channel::pair().unwrap();
    control.send_with(&Order::Give(part), &[theirs.as_fd()]).unwrap();
    ours
}

/// A server and a workstation.
pub struct Two {
    pub ca: Ca,
    pub server: End,
    pub workstation: End,
    /// What sessiond grants, whatever is asked for; none: nothing.
    pub grants: Option<KeyRecord>,
    /// It answers no question.
    pub is_slow: bool,
    /// What it was asked.
    pub asked: Vec<FromKeyer>,
}

impl Two {
    /// Without a session.
    pub fn new() -> Self {
        let ca = Ca::new();
        let server = End::new(Place::Server, &ca, SERVER, &WORKERS);
        let workstation = End::new(Place::Workstation, &ca, "ws1", &[WORKER]);
        Self { ca, server, workstation, grants: None, is_slow: false, asked: Vec::new() }
    }

    fn round(&mut self) -> bool {
        let mut any = self.workstation.round();
        any |= self.server.round();
        let is_question = |said: &FromKeyer| matches!(said, FromKeyer::Wanted { .. });
        let (asked, said): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.server.said).into_iter().partition(is_question);
        self.server.said = said;
        for question in &asked {
            if let FromKeyer::Wanted { ticket, .. } = question
                && !self.is_slow
            {
                self.server.say(&ToKeyer::Answer { ticket: *ticket, record: self.grants.clone() });
            }
        }
        self.asked.extend(asked);
        any
    }

    /// Goes on until this holds.
    pub fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < end, "in vain: {what}");
            if !self.round() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    /// Goes on until nothing happens any more. What waits for an answer would say it again in a second, and is waited for longer.
    pub fn settle(&mut self) {
        let soon = Duration::from_secs(5);
        let waits = |end: &End| end.keyer.due.is_some_and(|due| due < end.age() + soon);
        let mut idle = 0;
        while idle < if waits(&self.server) || waits(&self.workstation) { 600 } else { 40 } {
            idle = if self.round() { 0 } else { idle + 1 };
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Time goes by at both, and what is due then is done.
    pub fn later(&mut self, time: Duration) {
        self.server.later(time);
        self.workstation.later(time);
        self.settle();
    }

    /// Has the workstation negotiate for this.
    pub fn connect(&mut self, record: &KeyRecord) {
        let (record, server, passes) = (record.clone(), self.server.address, Vec::new());
        self.workstation.say(&ToKeyer::Connect { record, server, passes });
    }

    /// Has both agree on keys for a session; the server's, and the workstation's.
    pub fn agree(&mut self, record: &KeyRecord) -> (Keys, Keys) {
        self.grants = Some(record.clone());
        self.connect(record);
        let has = |end: &End| end.told.iter().any(|(_, told)| matches!(told, Told::Install(_)));
        self.until("keys at both ends", |two| has(&two.server) && has(&two.workstation));
        self.settle();
        let (mut there, mut here) = (self.server.keys(), self.workstation.keys());
        assert_eq!((there.len(), here.len()), (1, 1));
        (there.remove(0), here.remove(0))
    }

    /// With a session that has keys.
    pub fn agreed() -> (Self, Keys, Keys) {
        let mut two = Self::new();
        let (there, here) = two.agree(&record(1));
        (two, there, here)
    }
}

/// So many IKE SAs of this keyer, of which nothing will come.
pub fn begun(end: &mut End, count: usize) -> Vec<IkeId> {
    // Where nobody is.
    let path = end.keyer.sockets.path(SocketAddr::from(([127, 0, 0, 1], 9))).unwrap();
    let now = end.keyer.now();
    let mut random = Kernel(SystemRandom::new());
    let mut begin = || end.keyer.endpoint.connect(0, path, None, None, now, &mut random).unwrap();
    (0..count).map(|_| begin()).collect()
}

#[test]
fn times_that_must_not_be_the_same_everywhere_are_spread() {
    let mut two = Two::new();
    let most = Duration::from_secs(600);
    let all: Vec<Duration> = (0..64).map(|_| two.server.keyer.jitter(most)).collect();
    assert!(all.iter().all(|one| *one <= most));
    assert!(all.iter().any(|one| *one < most / 2) && all.iter().any(|one| *one > most / 2));
}

#[test]
fn no_more_reasons_are_told_apart_than_there_is_room_for() {
    let keyer = &mut Two::new().server.keyer;
    for round in 1..=2 {
        for number in 0..super::REASONS + 3 {
            keyer.count(format!("reason {number}"));
        }
        assert_eq!(keyer.dropped.len(), super::REASONS + 1);
        assert_eq!((keyer.dropped["reason 31"], keyer.dropped[super::OTHERS]), (round, 3 * round));
    }
}

#[test]
fn a_vault_has_its_own_pairs_replaced_and_no_others() {
    let (mut two, there, _) = Two::agreed();
    let (spi, slot) = (there.inbound.0, slot_of(there.inbound.0));
    let other = *WORKERS.iter().find(|worker| **worker != slot).unwrap();
    for (at, of, replaces) in [(other, 1, 0), (slot, 2, 0), (slot, 1, 1)] {
        two.server.vault_says(at, &VaultToKeyer::Expiring { spi, session: session(of) });
        assert_eq!(two.server.keyer.children.under_way(), replaces, "{at} {of}");
    }
    two.settle();
    assert_eq!(two.server.keys().len(), 1);
}

#[test]
fn what_was_dropped_is_told_every_ten_seconds_and_once() {
    let mut two = Two::new();
    let dropped = |end: &mut End| {
        let all = std::mem::take(&mut end.said).into_iter();
        all.filter_map(|said| if let FromKeyer::Dropped(all) = said { Some(all) } else { None })
            .collect::<Vec<_>>()
    };
    for (end, told) in [(true, vec![vec![("a reason".to_owned(), 2)]]), (false, vec![])] {
        let end = if end { &mut two.server } else { &mut two.workstation };
        end.keyer.count("a reason");
        end.keyer.count("a reason");
        end.round();
        assert!(dropped(end).is_empty(), "not yet");
        for told in [told, vec![]] {
            end.later(super::REPORT);
            end.round();
            end.round();
            assert_eq!(dropped(end), told);
            assert!(end.keyer.dropped.is_empty());
        }
    }
}

#[test]
fn a_session_that_is_over_has_no_keys_at_either_end() {
    for by_server in [true, false] {
        let (mut two, there, here) = Two::agreed();
        two.server.told.clear();
        two.workstation.told.clear();
        let end = if by_server { &mut two.server } else { &mut two.workstation };
        end.say(&ToKeyer::Revoke(session(1)));
        two.settle();
        assert_eq!(two.server.told(), [Told::Delete(there.inbound.0)]);
        assert_eq!(two.workstation.told(), [Told::Delete(here.inbound.0)]);
        let left = usize::from(by_server);
        assert_eq!((two.server.keyer.endpoint.len(), two.workstation.keyer.endpoint.len()), (left, left));
    }
}

#[test]
fn what_strangers_send_is_counted_and_told_once() {
    let mut two = Two::new();
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let dropped =
        |two: &Two| two.server.keyer.endpoint.counters().iter().map(|(_, count)| count).sum::<u64>();
    for count in [1, 2, 1] {
        let before = dropped(&two);
        for _ in 0..count {
            socket.send_to(&[0, 0, 0, 0, 7, 7], two.server.address).unwrap();
        }
        two.until("they have come", |two| dropped(two) == before + count);
        two.server.said.clear();
        two.server.later(super::REPORT);
        two.settle();
        let told = two.server.said.iter().find_map(|said| match said {
            FromKeyer::Dropped(all) => all.iter().find(|(why, _)| why.starts_with("IKE datagrams dropped: ")),
            _ => None,
        });
        assert_eq!(told.map(|(_, count)| *count), Some(count));
    }
}

#[test]
fn sessiond_gets_more_passes_and_says_how_keys_are_agreed() {
    let mut two = Two::new();
    two.server.say(&ToKeyer::MorePasses);
    two.settle();
    assert!(matches!(two.server.said[..], [FromKeyer::Passes(_)]));
    let exchanges = levee_policy::site::Exchanges { curves: Vec::new(), ml_kem: true };
    let keying = levee_policy::site::Keying { ciphers: Vec::new(), exchanges, key_life: None };
    for (end, count) in [(&mut two.server, 0), (&mut two.workstation, 3)] {
        let told = [ToKeyer::MorePasses, ToKeyer::Renew(record(9)), ToKeyer::Keying(label(), keying.clone())];
        told.iter().for_each(|told| end.say(told));
        assert_eq!(end.counted("messages of the wrong kind to the keyer"), count);
        assert_eq!(end.keyer.children.keying(&label()).is_some(), count == 0);
    }
}
