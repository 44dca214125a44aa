//! A workstation and its server, with the programs that run there: tps, signers, the agent and its commands. Test
//! threads stand in for sessiond, the wardens, the vault and the keyer.
#![allow(dead_code, reason = "each test file uses its part")]

#[path = "../../../daemons/tps/tests/common/mod.rs"]
pub mod common;

use common::{Server, memory_file, readable};
use levee_ipc::client::{
    ChildToSessiond, Lattice, Login, Offered, Opened, Reached, RefusalKind, Release, ReleaseId, Released,
    Reply, Request, Status,
};
use levee_ipc::device::{Passport, Sealed};
use levee_ipc::keyer::{FromKeyer, KeyRecord, ToKeyer};
use levee_ipc::vault::{SessionRecord, SessiondToVault, VaultToSessiond};
use levee_ipc::warden::tpe::{Open, TpePart};
use levee_ipc::warden::{Nothing, Order, Place, Said, TpeRequest, WorkstationEvent};
use levee_ipc::{Channel, RecvError};
use levee_policy::{DomainName, LabelName, UserName};
use levee_session::SessionId;
use levee_sys::pidfd::Child;
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What happened, in order, as the stand-ins saw it.
#[derive(Default)]
pub struct Seen {
    pub events: Vec<String>,
    /// What the keyer was told to negotiate, and where.
    pub negotiated: Vec<(KeyRecord, std::net::SocketAddr)>,
    pub records: Vec<SessionRecord>,
}

pub type Shared = Arc<Mutex<Seen>>;

/// What a test asks the stand-in for sessiond to do unasked.
pub enum Prod {
    /// End the session.
    End(String),
    /// Say something to the person.
    Notice(String),
    /// Lock the session.
    Lock,
    /// Sign the person off.
    SignOff(String),
    /// Ask for new keys.
    Renew,
    /// Cut the trusted path.
    Cut,
    /// The same, and believe this device no more.
    Exclude,
    /// Look at the password of `late`, which waits for this.
    Look,
    /// Open the level that it was asked for last, `SLOW`, which waits for this.
    Open,
}

pub struct World {
    pub server: Server,
    pub seen: Shared,
    pub socket: PathBuf,
    pub agent: Child,
    /// To give the agent more than it has, as its warden does.
    pub control: Channel,
    pub warden: std::sync::mpsc::Sender<WorkstationEvent>,
    prods: std::sync::mpsc::Sender<Prod>,
    _directory: tempfile::TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.agent.kill();
    }
}

pub fn label(name: &str) -> LabelName {
    LabelName::new(name).unwrap()
}

fn reached(address: &str, protocol: u8, port: u16) -> Reached {
    Reached { address: address.parse().unwrap(), protocol, port }
}

/// What waits at a guard.
pub const RELEASED: &[u8] = b"tide table\n\x1b[2J";

pub fn release() -> Release {
    use sha2::{Digest as _, Sha256};
    Release {
        id: ReleaseId(7),
        channel: "downgrade".parse().unwrap(),
        digest: Sha256::digest(RELEASED).into(),
        octets: RELEASED.len().try_into().unwrap(),
        to: label("UNCLASSIFIED"),
        left: Duration::from_secs(60),
        by: vec!["mia".parse().unwrap()],
    }
}

fn note(seen: &Shared, event: impl Into<String>) {
    seen.lock().unwrap().events.push(event.into());
}

/// Stands in for the keyer: whatever it is told to negotiate, the vault has keys for at once.
fn keyer(asker: &Channel, seen: &Shared) {
    while let Ok(received) = asker.recv::<ToKeyer>() {
        match received.message {
            ToKeyer::Connect { record, .. } if record.label.as_str() == "KEYLESS" => {
                let reason = "the server refuses keys (TS_UNACCEPTABLE)".into();
                asker.send(&FromKeyer::Failed { session: record.session, reason }).unwrap();
            }
            ToKeyer::Connect { record, server, .. } => {
                let session = record.session;
                seen.lock().unwrap().negotiated.push((record, server));
                asker.send(&FromKeyer::Completed(session)).unwrap();
            }
            ToKeyer::Revoke(_) => {}
            other => panic!("the agent spoke as sessiond: {other:?}"),
        }
    }
}

struct Sessiond {
    channel: Option<Channel>,
    labels: Vec<LabelName>,
    lattice: Option<Lattice>,
    session: Option<(SessionId, LabelName)>,
    opened: u8,
    /// Opens nothing any more.
    full: bool,
    /// Believes nobody any more.
    excludes: bool,
    seen: Shared,
}

impl Sessiond {
    fn reply(&mut self, request: Request) -> Reply {
        match request {
            Request::Hello => Reply::Challenge([7; 32]),
            Request::Prove(_) if self.excludes => {
                Reply::Refused { kind: RefusalKind::Credentials, reason: "this device is revoked".into() }
            }
            Request::Prove(_) => Reply::Alive,
            Request::Login { password, code: None, .. } if password.expose() == b"a code beside it" => {
                Reply::Refused { kind: RefusalKind::Code, reason: "this site asks for a code as well".into() }
            }
            Request::Login { user, password, code }
                if password.expose() == b"correct horse"
                    || code.as_ref().is_some_and(|code| code.expose() == b"123456") =>
            {
                note(&self.seen, format!("login {user}"));
                let (labels, lattice) = (self.labels.clone(), self.lattice.clone());
                Reply::LoggedIn(Login { user, labels, lattice, clearance: "UNCLASSIFIED..SECRET".into() })
            }
            Request::Login { .. } => Reply::Refused {
                kind: RefusalKind::Credentials,
                reason: "unknown user or wrong password".into(),
            },
            Request::Level(label, _) if self.full || ["CROWDED", "FULL"].contains(&label.as_str()) => {
                // The old session was ended before it turned out that the new one cannot be opened.
                self.session = None;
                self.full |= label.as_str() == "FULL";
                Reply::Refused { kind: RefusalKind::Unavailable, reason: "no slot is free".into() }
            }
            Request::Level(label, _) => {
                let known = self.labels.contains(&label) || ["SLOW", "TRICKED"].contains(&label.as_str());
                if !known && self.lattice.is_none() {
                    let reason = format!("{label} is not within your clearance");
                    return Reply::Refused { kind: RefusalKind::Label, reason };
                }
                self.opened += 1;
                let session = SessionId::from_random([self.opened; 16]);
                note(&self.seen, format!("server opens {label}"));
                self.session = Some((session, label.clone()));
                // A server that was taken over might open something else.
                let label =
                    if label.as_str() == "TRICKED" { LabelName::new("SECRET").unwrap() } else { label };
                Reply::Opened(Box::new(Opened {
                    session,
                    label,
                    colour: Some("green".into()),
                    inner: vec!["10.81.0.5".parse().unwrap(), "fd00:81::5".parse().unwrap()],
                    services: vec!["10.80.0.1".parse().unwrap()],
                    names: vec![DomainName::new("www.example").unwrap()],
                    reach: vec![
                        reached("10.80.0.1", 6, 80),
                        reached("10.80.0.1", 17, 7),
                        reached("fd00:80::1", 6, 80),
                    ],
                    offered: vec![Offered { service: "wiki".parse().unwrap(), protocol: 6, port: 80 }],
                    mtu: 1400,
                    carriage: levee_ipc::vault::Carriage::Each,
                    protected: Default::default(),
                    costs: Err(levee_prices::Unpriced::Absent),
                    tunnel_port: 4500,
                    grace: Duration::from_secs(30),
                    others: Vec::new(),
                    passes: Vec::new(),
                }))
            }
            Request::Resume(session) => match &self.session {
                Some((known, label)) if *known == session => {
                    note(&self.seen, "resume");
                    let session = Some((session, label.clone()));
                    Reply::Resumed(Status { user: UserName::new("ada").ok(), session, age: 1, locked: false })
                }
                _ => {
                    Reply::Refused { kind: RefusalKind::NoSession, reason: "there is no such session".into() }
                }
            },
            Request::Passwd { old, .. } if old.expose() == b"correct horse" => Reply::PasswordChanged,
            Request::Passwd { .. } => {
                Reply::Refused { kind: RefusalKind::Credentials, reason: "wrong password".into() }
            }
            Request::Carry(file) => {
                let digest: String = file.digest.iter().map(|byte| format!("{byte:02x}")).collect();
                note(&self.seen, format!("{:?} {} {digest}", file.direction, file.bytes));
                match &self.session {
                    Some((_, label)) if label.as_str() == "SECRET" => Reply::Carried,
                    _ => Reply::Refused { kind: RefusalKind::Carry, reason: "not at this level".into() },
                }
            }
            Request::Status => {
                Reply::Status(Status { user: None, session: self.session.clone(), age: 0, locked: false })
            }
            Request::KeepAlive | Request::Active => Reply::Alive,
            Request::Lock => {
                note(&self.seen, "lock");
                Reply::Locked
            }
            Request::Unlock { password, .. } if password.expose() == b"correct horse" => Reply::Unlocked,
            Request::Unlock { .. } => {
                Reply::Refused { kind: RefusalKind::Credentials, reason: "wrong password".into() }
            }
            // One message waits; whatever is asked of it, its second half is longer in coming.
            Request::Accesses => Reply::Accesses(Vec::new()),
            Request::Access { .. } => {
                Reply::Refused { kind: RefusalKind::Access, reason: "you own no such service".into() }
            }
            Request::Releases => Reply::Releases(vec![release()]),
            Request::ShowRelease { from: 0, .. } => Reply::Part(RELEASED[..4].to_vec()),
            Request::ShowRelease { from, .. } => Reply::Part(RELEASED[from as usize..].to_vec()),
            Request::Release { id, digest, consent } => {
                note(&self.seen, format!("release {} {consent:?} {}", id.0, digest == release().digest));
                Reply::Released(Released::Waits)
            }
            Request::Logout => {
                note(&self.seen, "logout");
                self.session = None;
                Reply::LoggedOut
            }
        }
    }

    fn run(mut self, listener: &Channel, prods: &std::sync::mpsc::Receiver<Prod>) {
        loop {
            match listener.try_recv::<levee_ipc::client::TpsToSessiond>() {
                Ok(mut received) => {
                    if let Some(fd) = received.fds.pop() {
                        self.channel = Some(Channel::from_fd(fd));
                    }
                }
                Err(RecvError::Empty) => {}
                Err(_) => return,
            }
            match prods.try_recv() {
                Ok(Prod::End(reason)) => {
                    self.session = None;
                    self.channel.as_ref().unwrap().send(&Reply::Ended { reason }).unwrap();
                }
                Ok(Prod::Notice(reason)) => {
                    self.channel.as_ref().unwrap().send(&Reply::Notice { reason }).unwrap();
                }
                Ok(Prod::Lock) => {
                    let reason = "nobody has used it".to_owned();
                    self.channel.as_ref().unwrap().send(&Reply::LockedUnasked { reason }).unwrap();
                }
                Ok(Prod::SignOff(reason)) => {
                    self.session = None;
                    self.channel.as_ref().unwrap().send(&Reply::SignedOff { reason }).unwrap();
                }
                Ok(Prod::Renew) => self
                    .channel
                    .as_ref()
                    .unwrap()
                    .send(&Reply::Renew { passes: Vec::new(), carriage: Default::default() })
                    .unwrap(),
                Ok(Prod::Cut) => self.channel = None,
                Ok(Prod::Exclude) => (self.channel, self.excludes) = (None, true),
                Ok(Prod::Look) => {
                    let user = UserName::new("late").unwrap();
                    let password = levee_ipc::Secret::new(b"correct horse".to_vec()).unwrap();
                    let reply = self.reply(Request::Login { user, password, code: None });
                    self.channel.as_ref().unwrap().send(&reply).unwrap();
                }
                Ok(Prod::Open) => {
                    let reply = self.reply(Request::Level(label("SLOW"), None));
                    self.channel.as_ref().unwrap().send(&reply).unwrap();
                }
                Err(std::sync::mpsc::TryRecvError::Empty) => {}
                Err(_) => return,
            }
            let Some(channel) = &self.channel else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            if !readable(channel, Duration::from_millis(5)) {
                continue;
            }
            match channel.try_recv::<ChildToSessiond>() {
                Ok(received) => {
                    let slow = |request: &Request| match request {
                        Request::Level(label, _) => label.as_str() == "SLOW",
                        Request::Login { user, .. } => user.as_str() == "late",
                        _ => false,
                    };
                    if let ChildToSessiond::Request(request) = received.message
                        && !slow(&request)
                    {
                        let reply = self.reply(request);
                        if let Some(channel) = &self.channel {
                            let _ = channel.send(&reply);
                        }
                    }
                }
                Err(RecvError::Empty) => {}
                Err(_) => self.channel = None,
            }
        }
    }
}

/// The workstation's warden and vault.
struct Warden {
    agent: Channel,
    vault: Option<Channel>,
    running: BTreeMap<u64, std::process::Child>,
    seen: Shared,
    label: Option<LabelName>,
}

impl Warden {
    fn tell(&self, event: WorkstationEvent) {
        let _ = self.agent.send(&Order::Give(TpePart::Workstation(event)));
    }

    fn run(mut self, events: &std::sync::mpsc::Receiver<WorkstationEvent>) {
        loop {
            if let Ok(event) = events.try_recv() {
                self.tell(event);
            }
            if readable(&self.agent, Duration::from_millis(5)) {
                match self.agent.try_recv::<Said<TpeRequest>>() {
                    Ok(received) => {
                        if let Said::Says(request) = received.message {
                            self.request(request, received.fds);
                        }
                    }
                    Err(_) => return,
                }
            }
            self.vault();
            let ended: Vec<(u64, u8)> = self
                .running
                .iter_mut()
                .filter_map(|(&ticket, child)| {
                    let status = child.try_wait().unwrap()?;
                    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
                    Some((ticket, u8::try_from(code).unwrap()))
                })
                .collect();
            for (ticket, status) in ended {
                self.running.remove(&ticket);
                self.tell(WorkstationEvent::Exited { ticket, status: Ok(status) });
            }
        }
    }

    fn request(&mut self, request: TpeRequest, fds: Vec<std::os::fd::OwnedFd>) {
        match request {
            TpeRequest::Open(Open { session, label, inner, hosts, .. }) => {
                note(&self.seen, format!("compartment {label} {inner:?} {hosts:?}"));
                if label.as_str() == "BROKEN" {
                    return self.tell(WorkstationEvent::Failed { session, reason: "mount: no space".into() });
                }
                let (ours, theirs) = Channel::pair().unwrap();
                common::give(&self.agent, TpePart::Vault(label.clone()), &theirs);
                self.vault = Some(ours);
                self.label = Some(label);
                self.tell(WorkstationEvent::Up(session));
            }
            TpeRequest::Heard(_) => {}
            TpeRequest::Close(session) => {
                note(
                    &self.seen,
                    format!("purge {}", self.label.take().map_or("?".into(), |l| l.to_string())),
                );
                for child in self.running.values_mut() {
                    child.kill().unwrap();
                }
                self.vault = None;
                self.tell(WorkstationEvent::Closed(session));
            }
            TpeRequest::Run { ticket, argv, env, .. } => {
                let [stdin, stdout, stderr] = <[std::os::fd::OwnedFd; 3]>::try_from(fds).unwrap();
                let spawned = Command::new(&argv[0])
                    .args(&argv[1..])
                    .envs(env.iter().filter_map(|pair| pair.split_once('=')))
                    .stdin(Stdio::from(stdin))
                    .stdout(Stdio::from(stdout))
                    .stderr(Stdio::from(stderr))
                    .spawn();
                match spawned {
                    Ok(child) => {
                        self.running.insert(ticket, child);
                    }
                    Err(error) => {
                        let status = Err(format!("{}: {error}", argv[0]));
                        self.tell(WorkstationEvent::Exited { ticket, status });
                    }
                }
            }
            TpeRequest::Signal { ticket, signal } => {
                if let Some(child) = self.running.get(&ticket) {
                    let pid = rustix::process::Pid::from_child(child);
                    let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
        }
    }

    fn vault(&mut self) {
        let Some(sessiond) = &self.vault else { return };
        if let Ok(received) = sessiond.try_recv::<SessiondToVault>()
            && let SessiondToVault::Open(record) = received.message
        {
            let id = record.id;
            self.seen.lock().unwrap().records.push(record);
            sessiond.send(&VaultToSessiond::Opened(id)).unwrap();
        }
    }
}

/// What a bundle says about the device; the stand-in for sessiond believes anybody.
fn passport() -> String {
    let passport = Passport {
        device: levee_policy::HostName::new("ws1").unwrap(),
        serial: vec![1],
        fingerprint: [1; 32],
        not_after: u64::MAX,
        curve: levee_ipc::device::Curve::P256,
        point: vec![4; 65],
    };
    Sealed { passport, signature: vec![] }.to_text().unwrap()
}

impl World {
    pub fn new() -> Self {
        Self::offering(["BROKEN", "KEYLESS", "SECRET", "UNCLASSIFIED"].map(label).to_vec(), None)
    }

    /// A server that offers its people these labels, and these parts of more.
    pub fn offering(labels: Vec<LabelName>, lattice: Option<Lattice>) -> Self {
        let server = Server::new();
        let seen = Shared::default();
        let (prods, prodded) = std::sync::mpsc::channel();
        let listener =
            Channel::from_fd(std::os::fd::AsFd::as_fd(&server.sessiond).try_clone_to_owned().unwrap());
        let sessiond = Sessiond {
            channel: None,
            labels,
            lattice,
            session: None,
            opened: 0,
            full: false,
            excludes: false,
            seen: Arc::clone(&seen),
        };
        std::thread::spawn(move || sessiond.run(&listener, &prodded));

        let mut device = server.authority.device("ws1");
        device.chain.push_str(&passport());
        let (signer, to_signer) = common::signer(&device.key, Place::Workstation);
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("tpe.sock");
        let commands = listen(&socket);
        let (agent, agent_control) = common::start("levee-tpe", &["agent"]);
        let (tpe_end, keyer_end) = Channel::pair().unwrap();
        let told = Arc::clone(&seen);
        std::thread::spawn(move || keyer(&keyer_end, &told));
        common::give(&agent_control, TpePart::Keyer, &tpe_end);
        common::give(&agent_control, TpePart::Signer, &to_signer);
        common::give(&agent_control, TpePart::Commands, &commands);
        common::give(&agent_control, TpePart::Chain, memory_file(device.chain.as_bytes()));
        common::give(&agent_control, TpePart::Authority, memory_file(server.authority.pem.as_bytes()));
        let name = DomainName::new(common::SERVER).unwrap();
        let address = server.address;
        agent_control.send(&Order::Give(TpePart::Server { address, name })).unwrap();
        agent_control.send(&Order::<Nothing>::Begin(Place::Workstation)).unwrap();
        assert!(matches!(common::next::<Said<Nothing>>(&agent_control), Said::Ready));
        let control =
            Channel::from_fd(std::os::fd::AsFd::as_fd(&agent_control).try_clone_to_owned().unwrap());
        let (warden, events) = std::sync::mpsc::channel();
        let stand_in = Warden {
            agent: agent_control,
            vault: None,
            running: BTreeMap::new(),
            seen: Arc::clone(&seen),
            label: None,
        };
        std::thread::spawn(move || {
            let _signer = signer;
            stand_in.run(&events);
        });
        Self { server, seen, socket, agent, control, warden, prods, _directory: directory }
    }

    pub fn prod(&self, prod: Prod) {
        self.prods.send(prod).unwrap();
    }

    /// A `levee-tpe` command.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_levee-tpe"));
        command.arg("--socket").arg(&self.socket).args(arguments);
        command
    }

    /// Runs a `levee-tpe` command with this on standard input.
    pub fn tpe(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that refuses at once ends without reading; what it says is what counts.
        let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes());
        let output = child.wait_with_output().unwrap();
        levee_system::schema::hold("levee-tpe", arguments, &String::from_utf8_lossy(&output.stdout));
        output
    }

    pub fn log_in(&self) {
        let output = self.tpe(&["login", "ada", "--password-stdin"], "correct horse\n");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn level(&self, name: &str) {
        let output = self.tpe(&["level", name], "");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn status(&self) -> serde_json::Value {
        let output = self.tpe(&["--json", "status"], "");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    pub fn events(&self) -> Vec<String> {
        self.seen.lock().unwrap().events.clone()
    }

    /// Waits until this is so.
    pub fn until(&self, what: &str, so: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !so(self) {
            assert!(started.elapsed() < common::PATIENCE, "not so: {what}; {:?}", self.events());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn listen(path: &std::path::Path) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    listen(&socket, 16).unwrap();
    socket
}
