//! Keyers as processes on real sockets, one at each end, with signers of their own; the test stands in for warden,
//! sessiond, TPE and vaults.
#![allow(dead_code, unused_imports, reason = "each test file uses its own part")]

mod client;
mod later;
mod waits;
pub use client::*;
use levee_esp::{Spi, Steering};
use levee_ike::{
    ChildDecision, Childless, Command, Config, Endpoint, Event, IkeId, IkeProposal, LocalAuth, NewChild, Now,
    Output, Path, Peer, Random, RemoteAuth, RemoteId, SecurityLabel, Selector, SignatureScheme, TrustAnchors,
};
use levee_ipc::keyer::{FromKeyer, KeyRecord, Pass, ToKeyer};
use levee_ipc::signer::{FromSigner, PpkKeys, Prf, ToSigner};
use levee_ipc::vault::{Aggregation, Carriage, Cipher, KeyerToVault, Sa, VaultToKeyer};
use levee_ipc::warden::keyer::KeyerPart;
use levee_ipc::warden::{Nothing, Order, Place, Said};
use levee_ipc::{Channel, Secret};
use levee_policy::site::{Exchange, Exchanges, Keying};
use levee_policy::{DomainName, HostName, LabelName, PpkId};
use levee_session::SessionId;
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use levee_sys::udp::{SteeringGroup, SteeringKey, steering_group};
use p256::ecdsa::signature::hazmat::PrehashSigner as _;
use p256::pkcs8::DecodePrivateKey as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, PKCS_ECDSA_P256_SHA256, RevokedCertParams,
    SanType, SerialNumber, SignatureAlgorithm,
};
use ring::digest::{SHA256, SHA384, SHA512, digest};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
pub use waits::*;

pub const PATIENCE: Duration = Duration::from_secs(30);
pub const SERVER: &str = "server.example";
/// The workstation's accreditation, as its certificate has it.
pub const RANGE: &str = "UNCLASSIFIED..SECRET";
const ACCREDITATION: [u64; 14] =
    [1, 2, 840, 113_556, 1, 8000, 2554, 36_053, 36_488, 38_356, 17_904, 41_662, 1_017_755, 10_205_640];

/// A site's authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    kind: &'static SignatureAlgorithm,
}

/// A certificate and its key.
pub struct Identity {
    chain: String,
    key: Vec<u8>,
    pub serial: Vec<u8>,
}

impl Authority {
    pub fn new() -> Self {
        Self::on(&PKCS_ECDSA_P256_SHA256)
    }

    /// With keys of this kind, its own and those that it vouches for.
    pub fn on(kind: &'static SignatureAlgorithm) -> Self {
        let key = KeyPair::generate_for(kind).unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let certificate = params.self_signed(&key).unwrap();
        Self { pem: certificate.pem(), issuer: Issuer::new(params, key), kind }
    }

    /// The same authority, vouching for keys of another kind.
    pub fn vouching(self, kind: &'static SignatureAlgorithm) -> Self {
        Self { kind, ..self }
    }

    pub fn identity(&self, name: &str, range: Option<&str>) -> Identity {
        self.identity_until(name, range, OffsetDateTime::now_utc() + time::Duration::days(365))
    }

    /// As [`Authority::identity`], good until then.
    pub fn identity_until(&self, name: &str, range: Option<&str>, until: OffsetDateTime) -> Identity {
        let key = KeyPair::generate_for(self.kind).unwrap();
        let mut params = CertificateParams::default();
        let mut serial = vec![0; 16];
        SystemRandom::new().fill(&mut serial).unwrap();
        // Positive, and as short as DER wants it.
        serial[0] = serial[0] & 0x3f | 0x40;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.not_after = until;
        // Its host's name, by which it is known, and another that it could come by.
        params.subject_alt_names.push(SanType::DnsName(name.try_into().unwrap()));
        params.subject_alt_names.push(SanType::Rfc822Name(format!("keeper@{name}").try_into().unwrap()));
        let ike = ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 5, 5, 7, 3, 17]);
        params.extended_key_usages = vec![ike];
        if let Some(range) = range {
            let der = [&[0x0c, u8::try_from(range.len()).unwrap()], range.as_bytes()].concat();
            params.custom_extensions.push(CustomExtension::from_oid_content(&ACCREDITATION, der));
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity { chain: certificate.pem(), key: key.serialize_der(), serial }
    }

    /// A revocation list that names these serial numbers, good until so many hours from now.
    pub fn list(&self, serials: &[&[u8]], hours: i64) -> String {
        let now = OffsetDateTime::now_utc();
        let revoked = |serial: &&[u8]| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: now - time::Duration::days(2),
            next_update: now + time::Duration::hours(hours),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// Slots of either end.
pub const SLOTS: u16 = 64;
/// By which the kernel steers.
pub const KEY: [u8; 16] = [4; 16];

/// The slot that an SPI names.
pub fn slot_of(spi: u32) -> u16 {
    Steering::new(&KEY, SLOTS).unwrap().slot(Spi::new(spi).unwrap())
}

/// A keyer, what it was given, and the ends of its channels.
pub struct Keyer {
    pub process: Child,
    pub control: Channel,
    pub asker: Channel,
    pub group: SteeringGroup,
    /// What a server's keyer gave for those who are signed on.
    pub passes: RefCell<Vec<Pass>>,
}

impl Drop for Keyer {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

pub fn attach(control: &Channel, part: KeyerPart) -> Channel {
    let (ours, theirs) = Channel::pair().unwrap();
    control.send_with(&Order::Give(part), &[theirs.as_fd()]).unwrap();
    ours
}

fn file(text: &str) -> OwnedFd {
    let mut file = std::fs::File::from(
        rustix::fs::memfd_create("certificates", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
    );
    file.write_all(text.as_bytes()).unwrap();
    file.into()
}

impl Keyer {
    /// Starts a keyer at a loopback port of its own, with this many slots.
    pub fn new(place: Place, authority: &Authority, identity: Identity) -> Self {
        Self::with(place, authority, identity, &[])
    }

    /// As [`Keyer::new`], with arguments.
    pub fn with(place: Place, authority: &Authority, identity: Identity, arguments: &[&str]) -> Self {
        Self::start(place, authority, identity, arguments, &[])
    }

    /// As [`Keyer::with`], with PPKs that its signer has.
    pub fn start(
        place: Place,
        authority: &Authority,
        identity: Identity,
        arguments: &[&str],
        ppks: &[SharedPpk],
    ) -> Self {
        let (control, theirs) = Channel::pair().unwrap();
        let stderr = std::io::stderr();
        let mut program = Program::new(env!("CARGO_BIN_EXE_levee-keyer"));
        program.args.extend(arguments.iter().map(Into::into));
        program.fds = vec![theirs.as_fd()];
        program.stdio = [None, None, Some(stderr.as_fd())];
        let process = program.start().unwrap();
        let give = |what, fd: OwnedFd| {
            control.send_with(&Order::Give(what), &[fd.as_fd()]).unwrap();
        };
        give(KeyerPart::Chain, file(&identity.chain));
        give(KeyerPart::Authority, file(&authority.pem));
        let group =
            steering_group(SocketAddr::from(([127, 0, 0, 1], 0)), SLOTS, 1 << 20, &SteeringKey::new(KEY))
                .unwrap();
        let key = Secret::new(KEY.to_vec()).unwrap();
        control.send(&Order::Give(KeyerPart::Steering { key, slots: SLOTS })).unwrap();
        give(KeyerPart::Udp(group.address()), group.first().unwrap().try_clone_to_owned().unwrap());
        if place == Place::Workstation {
            let name = DomainName::new(SERVER).unwrap();
            control.send(&Order::Give(KeyerPart::Server(name))).unwrap();
        }
        for SharedPpk { host, id, mandatory, .. } in ppks {
            let (host, id) = (host.map(|host| HostName::new(host).unwrap()), PpkId::new(id).unwrap());
            control.send(&Order::Give(KeyerPart::Ppk { host, id, mandatory: *mandatory })).unwrap();
        }
        let ppks = ppks.iter().filter_map(|ppk| Some((ppk.id.to_owned(), ppk.key?.to_vec()))).collect();
        let asker = attach(&control, KeyerPart::Sessiond);
        let signer = attach(&control, KeyerPart::Signer);
        control.send(&Order::<KeyerPart>::Begin(place)).unwrap();
        assert!(matches!(next::<Said<Nothing>>(&control), Said::Ready));
        std::thread::spawn(move || sign(&signer, &identity.key, &ppks));
        let passes = match place {
            Place::Server => match next(&asker) {
                FromKeyer::Passes(passes) => passes,
                other => panic!("{other:?}"),
            },
            Place::Workstation => Vec::new(),
        };
        Self { process, control, asker, group, passes: RefCell::new(passes) }
    }

    pub fn vault(&self, label: &LabelName, slot: u16) -> Channel {
        attach(&self.control, KeyerPart::Vault { label: label.clone(), slot })
    }

    pub fn tell(&self, message: &ToKeyer) {
        self.asker.send(message).unwrap();
    }

    /// Hands it a revocation list, as the warden does.
    pub fn revoke(&self, list: &str) {
        let mut file = std::fs::File::from(file(list));
        file.rewind().unwrap();
        self.control.send_with(&Order::Give(KeyerPart::Revocations), &[file.as_fd()]).unwrap();
    }

    /// Waits until what was dropped or failed has this in it.
    pub fn counts(&self, what: &str) {
        loop {
            if let FromKeyer::Dropped(reasons) = next(&self.asker)
                && reasons.iter().any(|(why, _)| why.contains(what))
            {
                return;
            }
        }
    }

    /// The next message to sessiond or the TPE that is not about what was dropped.
    pub fn said(&self) -> FromKeyer {
        loop {
            match next(&self.asker) {
                FromKeyer::Dropped(_) => {}
                other => return other,
            }
        }
    }
}

/// A PPK that a keyer is told of.
#[derive(Clone, Copy, Debug)]
pub struct SharedPpk {
    pub host: Option<&'static str>,
    pub id: &'static str,
    pub mandatory: bool,
    /// What the signer has for it, if anything.
    pub key: Option<&'static [u8]>,
}

/// prf+ (PPK, key) (RFC 8784 3).
fn mix(prf: Prf, ppk: &[u8], keys: &PpkKeys) -> PpkKeys {
    let algorithm = match prf {
        Prf::HmacSha256 => hmac::HMAC_SHA256,
        Prf::HmacSha384 => hmac::HMAC_SHA384,
        Prf::HmacSha512 => hmac::HMAC_SHA512,
    };
    let ppk = hmac::Key::new(algorithm, ppk);
    let one = |key: &Secret| {
        Secret::new(hmac::sign(&ppk, &[key.expose(), &[1]].concat()).as_ref().to_vec()).unwrap()
    };
    PpkKeys { d: one(&keys.d), pi: one(&keys.pi), pr: one(&keys.pr) }
}

/// A key on either curve.
fn ecdsa(key: &[u8]) -> EcdsaKeyPair {
    let on = |algorithm| EcdsaKeyPair::from_pkcs8(algorithm, key, &SystemRandom::new());
    on(&ECDSA_P256_SHA256_ASN1_SIGNING).or_else(|_| on(&ECDSA_P384_SHA384_ASN1_SIGNING)).unwrap()
}

/// Stands in for the signer.
fn sign(channel: &Channel, key: &[u8], ppks: &BTreeMap<String, Vec<u8>>) {
    let (random, key) = (SystemRandom::new(), ecdsa(key));
    while let Ok(received) = channel.recv::<ToSigner>() {
        let answer = match received.message {
            ToSigner::IkeAuth(octets) => {
                FromSigner::Signature(key.sign(&random, &octets).unwrap().as_ref().to_vec())
            }
            ToSigner::MixPpk { id, prf, keys } => match ppks.get(id.as_str()) {
                Some(ppk) => FromSigner::Mixed(mix(prf, ppk, &keys)),
                None => FromSigner::Refused,
            },
            other => panic!("{other:?}"),
        };
        channel.send(&answer).unwrap();
    }
}

pub fn readable(channel: &Channel, within: Duration) -> bool {
    let timeout = Timespec::try_from(within).unwrap();
    poll(&mut [PollFd::new(channel, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

pub fn next<T: DeserializeOwned>(channel: &Channel) -> T {
    assert!(readable(channel, PATIENCE), "nothing came in {PATIENCE:?}");
    channel.try_recv().unwrap().message
}

/// The keys of a pair, as a vault got them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    pub session: SessionId,
    pub inbound: (u32, Vec<u8>),
    pub outbound: (u32, Vec<u8>),
    pub cipher: Cipher,
    /// The peer asked for them in others' place.
    pub answered: bool,
    pub peer: Option<SocketAddr>,
    pub aggregation: Option<Aggregation>,
}

/// The next message to a vault that is neither about what its sessions have in all nor about what is no longer sent by.
pub fn told(vault: &Channel) -> KeyerToVault {
    loop {
        match next(vault) {
            KeyerToVault::Only { .. } | KeyerToVault::Retire { .. } => {}
            other => return other,
        }
    }
}

/// The next pair that a vault is to send by no longer, and nothing is erased before.
pub fn retired(vault: &Channel) -> u32 {
    loop {
        match next(vault) {
            KeyerToVault::Only { .. } => {}
            KeyerToVault::Retire { spi } => return spi,
            other => panic!("{other:?}"),
        }
    }
}

/// Whether a vault hears of no pair within this time.
pub fn silent(vault: &Channel, within: Duration) -> bool {
    let until = Instant::now() + within;
    while readable(vault, until.saturating_duration_since(Instant::now())) {
        if !matches!(next(vault), KeyerToVault::Only { .. } | KeyerToVault::Retire { .. }) {
            return false;
        }
    }
    true
}

/// The next keys that a vault gets; it says that it has them.
pub fn keys(vault: &Channel) -> Keys {
    match told(vault) {
        KeyerToVault::Install { session, cipher, inbound, outbound, answered, peer, aggregation, .. } => {
            let of = |sa: Sa| (sa.spi, sa.keying_material.expose().to_vec());
            let (inbound, outbound) = (of(inbound), of(outbound));
            let keys = Keys { session, inbound, outbound, cipher, answered, peer, aggregation };
            vault.send(&VaultToKeyer::Installed { spi: keys.inbound.0 }).unwrap();
            keys
        }
        other => panic!("{other:?}"),
    }
}

/// The next deletion that a vault gets.
pub fn deleted(vault: &Channel) -> u32 {
    match told(vault) {
        KeyerToVault::Delete { spi } => spi,
        other => panic!("{other:?}"),
    }
}

pub fn label(name: &str) -> LabelName {
    LabelName::new(name).unwrap()
}

pub fn session(number: u8) -> SessionId {
    SessionId::from_random([number ^ 0x5a; 16])
}

/// What sessiond grants, and what the TPE is told.
pub fn record(number: u8, at: &str) -> KeyRecord {
    KeyRecord {
        session: session(number),
        device: HostName::new("ws1").unwrap(),
        label: label(at),
        inner: vec!["10.81.0.5".parse().unwrap()],
        reach: vec!["10.80.0.1/32".parse().unwrap()],
        carriage: Carriage::Each,
        ciphers: None,
        key_life: None,
    }
}

/// Whether these bytes are anywhere in a process's memory.
pub fn remembers(process: &Child, secret: &[u8]) -> bool {
    let pid = process.pid.as_raw_nonzero();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut searched = 0;
    for line in maps.lines() {
        let mut fields = line.split_whitespace();
        let (range, mode) = (fields.next().unwrap(), fields.next().unwrap());
        if !mode.starts_with("rw") {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        memory.seek(SeekFrom::Start(start)).unwrap();
        if memory.read_exact(&mut bytes).is_err() {
            continue;
        }
        searched += bytes.len();
        if bytes.windows(secret.len()).any(|window| window == secret) {
            return true;
        }
    }
    assert!(searched > 100_000, "only {searched} bytes could be read: this test needs root");
    false
}

/// A server's keyer with two vaults and a workstation's with one.
pub struct Pair {
    pub server: Keyer,
    pub workstation: Keyer,
    pub secret: Channel,
    pub unclassified: Channel,
    pub at_workstation: Channel,
    pub authority: Authority,
    /// The serial number of the workstation's certificate.
    pub serial: Vec<u8>,
    /// That of the server's.
    pub server_serial: Vec<u8>,
    /// The number of the last question.
    pub tickets: std::cell::Cell<u64>,
}

pub const SLOT: u16 = 9;

impl Pair {
    pub fn new() -> Self {
        Self::with(&[])
    }

    /// As [`Pair::new`], with arguments for both keyers.
    pub fn with(arguments: &[&str]) -> Self {
        Self::start(arguments, &[], &[])
    }

    /// As [`Pair::new`], with PPKs at the server and at the workstation.
    pub fn start(arguments: &[&str], there: &[SharedPpk], here: &[SharedPpk]) -> Self {
        Self::of(Authority::new(), arguments, there, here)
    }

    /// As [`Pair::start`], with this authority.
    pub fn of(authority: Authority, arguments: &[&str], there: &[SharedPpk], here: &[SharedPpk]) -> Self {
        let identity = authority.identity(SERVER, None);
        let server_serial = identity.serial.clone();
        let server = Keyer::start(Place::Server, &authority, identity, arguments, there);
        let identity = authority.identity("ws1", Some(RANGE));
        let serial = identity.serial.clone();
        let workstation = Keyer::start(Place::Workstation, &authority, identity, arguments, here);
        let secret = server.vault(&label("SECRET"), SLOT);
        let unclassified = server.vault(&label("UNCLASSIFIED"), 10);
        let at_workstation = workstation.vault(&label("SECRET"), 1);
        let tickets = std::cell::Cell::new(0);
        Self {
            server,
            workstation,
            secret,
            unclassified,
            at_workstation,
            authority,
            serial,
            server_serial,
            tickets,
        }
    }

    /// Has the workstation's keyer negotiate for this record, with a pass of the server's if there is one left.
    pub fn connect(&self, record: KeyRecord) {
        let passes = self.server.passes.borrow_mut().pop().into_iter().collect();
        self.workstation.tell(&ToKeyer::Connect { record, server: self.server.group.address(), passes });
    }

    /// Answers the next question of the server's keyer, which must be about this label.
    pub fn answer(&self, at: &str, record: Option<KeyRecord>) {
        match self.server.said() {
            FromKeyer::Wanted { ticket, device, label, accreditation } => {
                assert_eq!((device.as_str(), label.as_str()), ("ws1", at));
                assert_eq!(accreditation.as_deref(), Some(RANGE));
                assert!(ticket > self.tickets.replace(ticket));
                self.server.tell(&ToKeyer::Answer { ticket, record });
            }
            other => panic!("{other:?}"),
        }
    }

    /// A session with keys at both ends: the server's, and the workstation's.
    pub fn agreed() -> (Self, Keys, Keys) {
        Self::new().agree()
    }

    /// Makes a session with keys at both ends.
    pub fn agree(self) -> (Self, Keys, Keys) {
        let pair = self;
        pair.connect(record(1, "SECRET"));
        pair.answer("SECRET", Some(record(1, "SECRET")));
        let there = keys(&pair.secret);
        let here = keys(&pair.at_workstation);
        assert!(matches!(pair.workstation.said(), FromKeyer::Completed(of) if of == session(1)));
        (pair, there, here)
    }
}

/// The network between two keyers: a relay that can lose what goes through it.
pub struct Relay {
    pub address: SocketAddr,
    fate: Arc<Mutex<Fate>>,
    /// Whether each datagram went to the server, and its length.
    seen: Arc<Mutex<Vec<(bool, usize)>>>,
}

/// What becomes of a datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Arrives,
    /// The first copy of what goes to the server is lost, and what goes to the workstation arrives twice.
    FirstLost,
    /// It is lost.
    Lost,
}

impl Relay {
    /// In front of a server.
    pub fn before(server: SocketAddr) -> Self {
        let [front, back] = [(); 2].map(|()| UdpSocket::bind(("127.0.0.1", 0)).unwrap());
        let address = front.local_addr().unwrap();
        let fate = Arc::new(Mutex::new(Fate::Arrives));
        let client = Arc::new(Mutex::new(None));
        let seen = Mutex::new(BTreeSet::new());
        let lengths = Arc::new(Mutex::new(Vec::new()));
        let (lengths_there, lengths_back) = (Arc::clone(&lengths), Arc::clone(&lengths));
        let there = [front.try_clone().unwrap(), back.try_clone().unwrap()];
        let (fate_there, client_there) = (Arc::clone(&fate), Arc::clone(&client));
        std::thread::spawn(move || {
            let mut buffer = [0; 65_535];
            while let Ok((length, from)) = there[0].recv_from(&mut buffer) {
                *client_there.lock().unwrap() = Some(from);
                lengths_there.lock().unwrap().push((true, length));
                let fate = *fate_there.lock().unwrap();
                let first = seen.lock().unwrap().insert(buffer[..length].to_vec());
                if fate == Fate::Arrives || fate == Fate::FirstLost && !first {
                    let _ = there[1].send_to(&buffer[..length], server);
                }
            }
        });
        let fate_back = Arc::clone(&fate);
        std::thread::spawn(move || {
            let mut buffer = [0; 65_535];
            while let Ok((length, _)) = back.recv_from(&mut buffer) {
                lengths_back.lock().unwrap().push((false, length));
                let copies = match *fate_back.lock().unwrap() {
                    Fate::Arrives => 1,
                    Fate::FirstLost => 2,
                    Fate::Lost => 0,
                };
                for to in (*client.lock().unwrap()).into_iter().cycle().take(copies) {
                    let _ = front.send_to(&buffer[..length], to);
                }
            }
        });
        Self { address, fate, seen: lengths }
    }

    /// What went through so far, and nothing of it again.
    pub fn lengths(&self) -> Vec<(bool, usize)> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    pub fn set(&self, fate: Fate) {
        *self.fate.lock().unwrap() = fate;
    }
}
