//! A sessiond, as a process, and a test program at the other end of its channels.
//!
//! The test stands in for the warden, the trusted path's server, the keyer, the vaults and the signer: this is
//! the boundary of the process under test. All of them together are tried in `tests/system`.
#![allow(dead_code, reason = "each test file uses its part")]

mod auditor;
mod devices;
mod stand_ins;

#[allow(unused_imports, reason = "each test file uses its part")]
pub use auditor::{auditor_pem, first_key};
pub use devices::Devices;
#[allow(unused_imports, reason = "each test file uses its part")]
pub use stand_ins::{Faults, Shared};

use stand_ins::StandIns;

use levee_ipc::client::{ChildToSessiond, Login, Opened, RefusalKind, Reply, Request, TpsToSessiond};
use levee_ipc::operator;
use levee_ipc::warden::sessiond::SessiondPart;
use levee_ipc::warden::{Order, Place};
use levee_ipc::{Channel, RecvError, Secret};
use levee_policy::{LabelName, UserName};
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Long enough for a loaded machine; nothing waits for it that works.
pub const PATIENCE: Duration = Duration::from_secs(15);

pub const SITE: &str = r#"
[site]
name = "harbour"

[labels]
levels = ["UNCLASSIFIED", "CONFIDENTIAL", "SECRET"]
categories = ["NATO"]
colours = { SECRET = "red" }

[server]
name = "server.example"
addresses = ["10.77.0.1"]
trusted-path-port = 7443
ike-port = 500
tunnel-port = 4500
inner-address = "10.80.0.1"
inner-pool = "10.81.0.0/16"
names = ["www.example"]
slots = 64
grace = "GRACE"

[limits]
memory = "512M"
processes = 256
cpu = "100%"
store = "64M"
changes = 100000

[[user]]
name = "ada"
clearance = "UNCLASSIFIED..SECRET//NATO"

[[user]]
name = "ugo"
clearance = "UNCLASSIFIED"

[[host]]
name = "ws1"
accreditation = "UNCLASSIFIED..SECRET//NATO"

[[host]]
name = "ws2"
accreditation = "UNCLASSIFIED..SECRET//NATO"

[[service]]
name = "web"
port = 80
protocol = "tcp"
range = "UNCLASSIFIED..SECRET//NATO"
mode = "direct"
program = "nginx"
"#;

pub const ADA: &str = "correct horse battery";
pub const UGO: &str = "staple of the harbour";

/// Everything but sessiond that outlives it: its directory, and the vaults.
pub struct Site {
    pub directory: PathBuf,
    _temporary: Option<tempfile::TempDir>,
    pub site: String,
    pub shared: Arc<Mutex<Shared>>,
    pub key: Arc<Vec<u8>>,
    pub devices: Arc<Devices>,
    /// A revocation list in PEM.
    pub revoked: Option<String>,
}

impl Site {
    pub fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let directory = temporary.path().to_owned();
        Self { _temporary: Some(temporary), ..Self::at(&directory) }
    }

    pub fn at(directory: &Path) -> Self {
        let credentials = directory.join("credentials");
        std::fs::create_dir_all(&credentials).unwrap();
        for (user, password) in [("ada", ADA), ("ugo", UGO)] {
            std::fs::write(credentials.join(user), format!("{}\n", phc(password))).unwrap();
        }
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        Self {
            directory: directory.to_owned(),
            _temporary: None,
            site: SITE.replace("GRACE", "30s"),
            shared: Arc::default(),
            key: Arc::new(key.as_ref().to_vec()),
            devices: Arc::new(Devices::new()),
            revoked: None,
        }
    }

    pub fn with_grace(mut self, grace: &str) -> Self {
        self.site = SITE.replace("GRACE", grace);
        self
    }

    /// The public key that signs checkpoints, as a point.
    pub fn public_key(&self) -> Vec<u8> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &self.key, &random).unwrap();
        key.public_key().as_ref().to_vec()
    }

    /// The log's records, without the space that its file has ahead of them.
    pub fn log(&self) -> String {
        let file = std::fs::read_to_string(self.directory.join("audit.jsonl")).unwrap();
        file.trim_end_matches(' ').to_owned()
    }
}

pub fn phc(password: &str) -> String {
    use argon2::password_hash::{PasswordHasher as _, SaltString};
    let salt = SaltString::encode_b64(&[7; 16]).unwrap();
    argon2::Argon2::default().hash_password(password.as_bytes(), &salt).unwrap().to_string()
}

/// A running sessiond.
pub struct World {
    pub place: Site,
    pub child: Child,
    pub tps: Channel,
    pub socket: PathBuf,
    stand_ins: Option<std::thread::JoinHandle<()>>,
    /// For the warden's own thread: what to send on the control channel.
    control: Arc<Channel>,
}

fn pair() -> (Channel, OwnedFd) {
    let (ours, theirs) = Channel::pair().unwrap();
    (ours, theirs.into_fd())
}

fn sealed(text: &str) -> OwnedFd {
    let fd = memfd_create("site", MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(fd);
    file.write_all(text.as_bytes()).unwrap();
    file.into()
}

/// A file with a revocation list, at its beginning.
fn revocations(list: &str) -> OwnedFd {
    memory_file(list.as_bytes())
}

/// A file with these octets, at its beginning.
fn memory_file(octets: &[u8]) -> OwnedFd {
    let mut file = File::from(memfd_create("octets", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(octets).unwrap();
    file.rewind().unwrap();
    file.into()
}

/// This server's, for its federation: it is believed by others alone.
fn passport() -> String {
    use levee_ipc::federation::{Passport, Sealed};
    let server = "server.example".parse().unwrap();
    let curve = levee_ipc::device::Curve::P256;
    let passport =
        Passport { server, serial: vec![1; 20], not_after: u64::MAX / 2000, curve, point: vec![4; 65] };
    Sealed { passport, signature: vec![5; 70] }.to_text().unwrap()
}

impl World {
    pub fn start(place: Site) -> Self {
        match Self::try_start(place) {
            Ok(world) => world,
            Err(_) => panic!("sessiond has ended"),
        }
    }

    /// `Err` if it ends instead of getting ready.
    pub fn try_start(place: Site) -> Result<Self, Site> {
        let (control, theirs) = pair();
        let mut program = Program::new(env!("CARGO_BIN_EXE_levee-sessiond"));
        let errors = std::io::stderr();
        program.stdio = [None, None, Some(errors.as_fd())];
        program.fds = vec![theirs.as_fd()];
        program.die_with_parent = false;
        let child = program.start().unwrap();
        drop(theirs);

        let attach = |part: SessiondPart, fd: OwnedFd| {
            control.send_with(&Order::Give(part), &[fd.as_fd()]).unwrap();
        };
        attach(SessiondPart::Site, sealed(&place.site));
        attach(SessiondPart::Authority, sealed(&place.devices.authority_pem));
        if let Some(list) = &place.revoked {
            attach(SessiondPart::Revocations, revocations(list));
        }
        if place.site.contains("[federation]") {
            attach(SessiondPart::Federation, sealed(&(place.devices.authority_pem.clone() + &passport())));
            attach(SessiondPart::FederationAuthority, sealed(&place.devices.authority_pem));
        }
        attach(SessiondPart::Auditor, sealed(&auditor_pem()));
        attach(SessiondPart::Directory, File::open(&place.directory).unwrap().into());
        let (tps, fd) = pair();
        attach(SessiondPart::Tps, fd);
        let (keyer, fd) = pair();
        attach(SessiondPart::Keyer, fd);
        let (signer, fd) = pair();
        attach(SessiondPart::Signer, fd);
        let socket = std::env::temp_dir().join(format!("levee-sessiond-{}.sock", child.pid.as_raw_nonzero()));
        let _ = std::fs::remove_file(&socket);
        attach(SessiondPart::Operators, listener(&socket));
        control.send(&Order::<SessiondPart>::Begin(Place::Server)).unwrap();

        let control = Arc::new(control);
        let mut stand_ins = StandIns {
            control: Arc::clone(&control),
            keyer,
            signer,
            key: Arc::clone(&place.key),
            shared: Arc::clone(&place.shared),
            channels: BTreeMap::new(),
        };
        let shared = Arc::clone(&place.shared);
        {
            let mut shared = shared.lock().unwrap();
            shared.ready = false;
            shared.stop = false;
        }
        let stand_ins = std::thread::spawn(move || stand_ins.run());
        let world = Self { place, child, tps, socket, stand_ins: Some(stand_ins), control };
        let start = Instant::now();
        let mut world = world;
        while !world.shared(|shared| shared.ready) {
            if world.child.try_wait().unwrap().is_some() {
                return Err(world.end());
            }
            assert!(start.elapsed() < PATIENCE, "sessiond does not get ready");
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(world)
    }

    pub fn until(&self, what: &str, mut done: impl FnMut(&mut Shared) -> bool) {
        let start = Instant::now();
        while !done(&mut self.place.shared.lock().unwrap()) {
            assert!(start.elapsed() < PATIENCE, "waiting in vain: {what}\n{:#?}", self.trace());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub fn shared<R>(&self, f: impl FnOnce(&mut Shared) -> R) -> R {
        f(&mut self.place.shared.lock().unwrap())
    }

    pub fn trace(&self) -> Vec<String> {
        self.shared(|shared| shared.trace.clone())
    }

    pub fn note(&self, what: impl Into<String>) {
        self.shared(|shared| shared.trace.push(what.into()));
    }

    pub fn sessions_in_vaults(&self) -> usize {
        self.shared(|shared| shared.vaults.values().map(BTreeMap::len).sum())
    }

    /// Gives sessiond a channel in the place of the one that it has, if any; this is the other end.
    pub fn give(&self, part: SessiondPart) -> Channel {
        let (channel, theirs) = pair();
        self.control.send_with(&Order::Give(part), &[theirs.as_fd()]).unwrap();
        channel
    }

    /// Hands it a revocation list, as the warden does.
    pub fn revoke(&self, list: &str) {
        self.control
            .send_with(&Order::Give(SessiondPart::Revocations), &[revocations(list).as_fd()])
            .unwrap();
    }

    /// The mediator's end of its channel.
    pub fn attach_mediator(&self, label: &LabelName) -> Channel {
        self.give(SessiondPart::Mediator(label.clone()))
    }

    /// A new trusted path from this TPE.
    pub fn connect(&self, device: &str) -> Client {
        let client = self.child();
        let nonce = client.challenge([3; 32]);
        let proof = self.place.devices.proof(device, &nonce, &[3; 32]);
        assert!(matches!(client.call_quietly(Request::Prove(Box::new(proof))), Some(Reply::Alive)));
        client
    }

    /// A tps child that has said nothing yet.
    pub fn child(&self) -> Client {
        let (channel, theirs) = pair();
        let from = "10.77.0.2:50000".parse().unwrap();
        self.tps.send_with(&TpsToSessiond::Client(from), &[theirs.as_fd()]).unwrap();
        Client { channel, shared: Arc::clone(&self.place.shared) }
    }

    pub fn operator(&self, command: &operator::Command) -> operator::Answer {
        let channel = self.operator_connected();
        channel.send(command).unwrap();
        receive(&channel).expect("the operator's answer")
    }

    /// An operator's connection.
    pub fn operator_connected(&self) -> Channel {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
        let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        connect(&fd, &SocketAddrUnix::new(&self.socket).unwrap()).unwrap();
        Channel::from_fd(fd)
    }

    pub fn status(&self) -> operator::ServerStatus {
        match self.operator(&operator::Command::Status) {
            operator::Answer::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Asks it to end in good order, and waits for that.
    pub fn stop(mut self) -> Site {
        self.control.send(&Order::<SessiondPart>::Stop).unwrap();
        let exit = self.child.wait(PATIENCE).unwrap().expect("it ends");
        assert_eq!(exit.code(), 0);
        self.end()
    }

    /// Kills it.
    pub fn kill(mut self) -> Site {
        self.child.kill().unwrap();
        self.end()
    }

    fn end(&mut self) -> Site {
        self.shared(|shared| shared.stop = true);
        if let Some(stand_ins) = self.stand_ins.take() {
            stand_ins.join().unwrap();
        }
        let empty = Site {
            directory: PathBuf::new(),
            _temporary: None,
            site: String::new(),
            shared: Arc::default(),
            key: Arc::default(),
            devices: Arc::clone(&self.place.devices),
            revoked: None,
        };
        std::mem::replace(&mut self.place, empty)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.shared(|shared| shared.stop = true);
        if let Some(stand_ins) = self.stand_ins.take() {
            let _ = stand_ins.join();
        }
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn listener(path: &Path) -> OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
    let fd = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&fd, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&fd, 16).unwrap();
    fd
}

/// Waits for a message; `None` if the channel is closed.
pub fn receive<T: DeserializeOwned>(channel: &Channel) -> Option<T> {
    let mut fds = [PollFd::new(channel, PollFlags::IN)];
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    assert!(poll(&mut fds, Some(&patience)).unwrap() > 0, "no message in {PATIENCE:?}");
    match channel.try_recv::<T>() {
        Ok(received) => Some(received.message),
        Err(RecvError::Closed) => None,
        Err(error) => panic!("{error}"),
    }
}

/// A trusted path, as a tps child hands it on.
pub struct Client {
    channel: Channel,
    shared: Arc<Mutex<Shared>>,
}

pub fn label(text: &str) -> LabelName {
    LabelName::new(text).unwrap()
}

impl Client {
    /// What the device is to sign for a connection of this number.
    pub fn challenge(&self, exporter: [u8; 32]) -> [u8; 32] {
        self.channel.send(&ChildToSessiond::Hello { exporter }).unwrap();
        match self.call_quietly(Request::Hello) {
            Some(Reply::Challenge(nonce)) => nonce,
            other => panic!("{other:?}"),
        }
    }

    /// As [`Client::call`], without a word in the trace. `None` if the channel is closed.
    pub fn call_quietly(&self, request: Request) -> Option<Reply> {
        let _ = self.channel.send(&ChildToSessiond::Request(request));
        receive(&self.channel)
    }

    /// The child's end of its channel.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    pub fn ask(&self, request: Request) {
        self.channel.send(&ChildToSessiond::Request(request)).unwrap();
    }

    pub fn next(&self) -> Option<Reply> {
        let reply = receive(&self.channel);
        self.shared.lock().unwrap().trace.push(format!("client {}", name(reply.as_ref())));
        reply
    }

    pub fn call(&self, request: Request) -> Reply {
        self.ask(request);
        self.next().expect("an answer")
    }

    pub fn login(&self, user: &str, password: &str) -> Reply {
        self.login_with(user, password, None)
    }

    pub fn login_with(&self, user: &str, password: &str, code: Option<&str>) -> Reply {
        let secret = |text: &str| Secret::new(text.as_bytes().to_vec()).unwrap();
        let (user, password, code) = (UserName::new(user).unwrap(), secret(password), code.map(secret));
        self.call(Request::Login { user, password, code })
    }

    pub fn sign_on(&self, user: &str, password: &str) -> Login {
        match self.login(user, password) {
            Reply::LoggedIn(login) => login,
            other => panic!("{other:?}"),
        }
    }

    pub fn level(&self, at: &str) -> Reply {
        self.call(Request::Level(label(at), None))
    }

    pub fn open(&self, at: &str) -> Opened {
        match self.level(at) {
            Reply::Opened(opened) => *opened,
            other => panic!("{other:?}"),
        }
    }
}

pub fn refusal(reply: &Reply) -> Option<RefusalKind> {
    match reply {
        Reply::Refused { kind, .. } => Some(*kind),
        _ => None,
    }
}

fn name(reply: Option<&Reply>) -> String {
    let text = format!("{reply:?}");
    let text = text.strip_prefix("Some(").unwrap_or(&text);
    text.chars().take_while(|c| c.is_alphanumeric()).collect()
}

/// The different inner addresses in use.
pub fn inner_addresses(world: &World) -> BTreeSet<std::net::IpAddr> {
    world.shared(|shared| {
        shared.vaults.values().flat_map(BTreeMap::values).flat_map(|record| record.inner.clone()).collect()
    })
}
