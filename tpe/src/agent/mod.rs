//! The workstation's agent: holds the trusted path, and plays sessiond's part towards the local vault and keyer.
//!
//! What a person asks for is done one thing after the other, each a straight sequence in [`operations`]; while it
//! waits, [`Agent::pump`] keeps everything else going.

mod carry;
mod link;
mod operations;
mod people;

use carry::Spool;
use levee_ipc::client::{Login, RefusalKind, Reply};
use levee_ipc::device::Sealed;
use levee_ipc::keyer::{FromKeyer, KeyRecord, Pass};
use levee_ipc::tpe::{Answer, Input, Output, Session};
use levee_ipc::vault::VaultToSessiond;
use levee_ipc::warden::{Attachment, CONTROL_FD, FromWarden, Role, ToWarden, TpeRequest, WorkstationEvent};
use levee_ipc::{Channel, Received, RecvError};
use levee_policy::site::Suites;
use levee_policy::{DomainName, HostName, LabelName};
use levee_session::SessionId;
use levee_sys::sandbox::Sandbox;
use levee_tls::SignerHandle;
use link::{Device, Heard, Link};
use people::{People, Person, Program};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Files with certificates are not larger.
const MAX_PEM: u64 = 1024 * 1024;
/// Programs that have no terminal, at most: each may have two files of [`levee_ipc::tpe::MAX_CARRIED`] in memory.
const MOST_SPOOLED: usize = 8;
/// Time is looked at this often while there is a login.
const TICK: Duration = Duration::from_millis(500);

/// The session there is.
struct Live {
    id: SessionId,
    shown: Session,
    /// Without a word from the server for so long it ends here too.
    patience: Duration,
    /// What the keyer is told, when it is to negotiate anew.
    keys: KeyRecord,
    /// And of the site's other servers.
    parts: Vec<Part>,
    /// What the server's keyer knows us by, each good once.
    passes: Vec<Pass>,
}

/// The part of the session at another server of the site.
#[derive(Clone)]
struct Part {
    record: KeyRecord,
    /// Where it receives the tunnel.
    server: SocketAddr,
    /// The name in its certificate.
    name: DomainName,
}

/// What came in while the agent waited for something else.
#[derive(Default)]
struct Mail {
    answers: VecDeque<Reply>,
    keyer: VecDeque<FromKeyer>,
    warden: VecDeque<WorkstationEvent>,
    vault: VecDeque<VaultToSessiond>,
}

impl Mail {
    fn left(&self) -> usize {
        self.answers.len() + self.keyer.len() + self.warden.len() + self.vault.len()
    }
}

/// What must be seen to once the present operation is over.
#[derive(Default)]
struct Due {
    /// The server has ended the session.
    ended: Option<String>,
    /// The compartment or vault of this session is dead.
    died: Option<SessionId>,
    /// The server's keyer does not know us, or ours is new.
    renew: bool,
    /// The keyer can have no keys any more for this session.
    failed: Option<(SessionId, String)>,
}

struct Agent {
    control: Channel,
    keyer: Option<Channel>,
    vault: Option<(LabelName, Channel)>,
    signer: SignerHandle,
    certificates: Certificates,
    link: Link,
    /// This workstation, as its certificate names it.
    device: HostName,
    /// Another IPsec client of this host makes the tunnel.
    no_tunnel: bool,
    people: People,
    /// Standard output and error of the programs that have no terminal, by ticket.
    spools: BTreeMap<u64, Vec<Spool>>,
    /// Of these, those that have ended.
    over: VecDeque<(u64, u8)>,
    /// Whose command is being carried out.
    person: Option<people::Person>,
    login: Option<Login>,
    session: Option<Live>,
    ended: Option<String>,
    mail: Mail,
    due: Due,
    /// The trusted path is down: when to try again, and how long to wait the next time.
    down: Option<(Instant, Duration)>,
    /// What the warden knows of when the server was heard.
    heard: Duration,
    /// Where the server receives the tunnel.
    tunnel: SocketAddr,
    stop: bool,
}

#[derive(Default)]
struct Attached {
    keyer: Option<Channel>,
    signer: SignerHandle,
    listener: Option<OwnedFd>,
    chain: Option<Vec<u8>>,
    authority: Option<Vec<u8>>,
    revoked: Option<Vec<u8>>,
    server: Vec<(SocketAddr, DomainName)>,
}

/// What the server is believed by, kept for the next revocation list.
struct Certificates {
    chain: Vec<u8>,
    authority: Vec<u8>,
    suites: Suites,
}

fn revocations(fd: &OwnedFd) -> Result<Vec<u8>, String> {
    levee_ipc::revocations(fd).map_err(|e| format!("a revocation list: {e}"))
}

fn contents(fd: OwnedFd) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = File::from(fd);
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).map_err(|e| format!("a memory file: {e}"))?;
    file.take(MAX_PEM).read_to_end(&mut bytes).map_err(|e| format!("a memory file: {e}"))?;
    Ok(bytes)
}

/// The name in our own certificate, the first of the chain.
fn own_name(chain: &[u8]) -> Result<HostName, String> {
    let own = CertificateDer::pem_slice_iter(chain).next().ok_or("the chain is empty")?;
    let own = own.map_err(|e| format!("the certificate chain: {e}"))?;
    levee_tls::device(&own).map(|device| device.name).map_err(|e| e.to_string())
}

/// Takes part in the warden's start-up, then serves until the warden says stop or is gone.
///
/// With `no_tunnel` it holds the trusted path and nothing else: another IPsec client of this host makes the tunnel.
pub fn serve(no_tunnel: bool, suites: Suites) -> Result<(), String> {
    let control = Channel::from_fd(levee_sys::fork::inherited(CONTROL_FD).map_err(|e| e.to_string())?);
    let mut attached = Attached::default();
    loop {
        match control.recv::<FromWarden>() {
            Ok(Received { message: FromWarden::Begin(_), .. }) => break,
            Ok(Received { message: FromWarden::Attach(attachment), mut fds }) => {
                match (attachment, fds.pop()) {
                    (Attachment::Server { address, name }, None) => attached.server.push((address, name)),
                    (Attachment::Peer { role: Role::Keyer, .. }, Some(fd)) => {
                        attached.keyer = Some(Channel::from_fd(fd))
                    }
                    (Attachment::Peer { role: Role::Signer, .. } | Attachment::SignerClient(_), Some(fd)) => {
                        attached.signer.set(Channel::from_fd(fd));
                    }
                    (Attachment::Listener, Some(fd)) => attached.listener = Some(fd),
                    (Attachment::Chain, Some(fd)) => attached.chain = Some(contents(fd)?),
                    (Attachment::Authority, Some(fd)) => attached.authority = Some(contents(fd)?),
                    (Attachment::Revocations, Some(fd)) => attached.revoked = Some(revocations(&fd)?),
                    _ => {}
                }
            }
            Ok(Received { message: FromWarden::Stop, .. }) | Err(RecvError::Closed) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(format!("from the warden: {error}")),
        }
    }
    let mut agent = Agent::new(control, attached, no_tunnel, suites)?;
    Sandbox { tcp: true, ..Sandbox::new(levee_sys::seccomp::TPE) }.enter().map_err(|e| e.to_string())?;
    agent.control.send(&ToWarden::Ready).map_err(|e| format!("to the warden: {e}"))?;
    agent.run()
}

impl Agent {
    fn new(control: Channel, attached: Attached, no_tunnel: bool, suites: Suites) -> Result<Self, String> {
        let missing = |what: &str| format!("the warden attached no {what}");
        let chain = attached.chain.ok_or_else(|| missing("certificate chain"))?;
        let authority = attached.authority.ok_or_else(|| missing("authority"))?;
        let revoked = attached.revoked.as_deref();
        let config = levee_tls::client(&chain, &authority, revoked, &attached.signer, suites);
        let config = config.map_err(|e| e.to_string())?;
        let device = own_name(&chain)?;
        const NONE: &str =
            "the bundle has no passport of this device: enrol the host anew on the server (levee enrol host)";
        let shown =
            Device { sealed: Sealed::from_text(&chain).ok_or(NONE)?, signer: attached.signer.clone() };
        let name = attached.server.first().map(|(_, name)| name.clone()).ok_or_else(|| missing("server"))?;
        let addresses =
            attached.server.iter().filter(|(_, n)| *n == name).map(|(address, _)| *address).collect();
        Ok(Self {
            control,
            keyer: attached.keyer,
            vault: None,
            signer: attached.signer,
            certificates: Certificates { chain, authority, suites },
            device,
            no_tunnel,
            link: Link::new(config, &name, shown, addresses).map_err(|e| e.to_string())?,
            people: People::new(attached.listener.ok_or_else(|| missing("listener"))?)?,
            spools: BTreeMap::new(),
            over: VecDeque::new(),
            person: None,
            login: None,
            session: None,
            ended: None,
            mail: Mail::default(),
            due: Due::default(),
            down: None,
            heard: Duration::ZERO,
            tunnel: SocketAddr::from(([0; 4], 0)),
            stop: false,
        })
    }

    fn run(&mut self) -> Result<(), String> {
        while !self.stop {
            let wait =
                if self.login.is_some() || self.people.any() { TICK } else { Duration::from_secs(3600) };
            self.pump(Instant::now() + wait)?;
            self.settle()?;
            while let Some((ticket, status)) = self.over.pop_front() {
                self.let_out(ticket, status)?;
                self.settle()?;
            }
            while let Some((person, program)) = self.people.next_import() {
                self.let_in(person, program)?;
                self.settle()?;
            }
            while let Some((person, command)) = self.people.next_command() {
                self.person = Some(person);
                let answer = self.carry_out(command);
                self.person = None;
                self.people.answer(person, &answer?);
                self.settle()?;
            }
        }
        self.link.close();
        Ok(())
    }

    /// Waits until something comes, or `until`, and sorts it.
    fn pump(&mut self, until: Instant) -> Result<(), String> {
        let mut fds = vec![PollFd::new(&self.control, PollFlags::IN)];
        fds.extend(self.keyer.iter().map(|keyer| PollFd::new(keyer, PollFlags::IN)));
        fds.extend(self.vault.iter().map(|(_, vault)| PollFd::new(vault, PollFlags::IN)));
        fds.extend(self.link.interest().map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        fds.extend(self.people.interest().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let spools = self.spools.values().flatten().filter_map(Spool::interest);
        fds.extend(spools.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let left = until.saturating_duration_since(Instant::now()).min(Duration::from_secs(3600));
        let timeout = Timespec::try_from(left).map_err(|e| e.to_string())?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("poll: {error}")),
        }
        drop(fds);
        self.hear_warden()?;
        self.hear_keyer();
        self.hear_vault();
        for heard in self.link.turn() {
            match heard {
                Heard::Answer(reply) => self.mail.answers.push_back(reply),
                Heard::Notice(Reply::Ended { reason }) => self.due.ended = Some(reason),
                Heard::Notice(Reply::Renew { passes }) => {
                    self.due.renew = true;
                    if let Some(live) = &mut self.session {
                        live.passes = passes;
                    }
                }
                Heard::Notice(_) => self.due.renew = true,
            }
        }
        if self.link.heard() > self.heard && !self.no_tunnel {
            self.heard = self.link.heard();
            // A warden that cannot take it now hears of the next.
            let _ = self.control.try_send(&ToWarden::Tpe(TpeRequest::Heard(self.heard)));
        }
        self.hear_people();
        for spool in self.spools.values_mut().flatten() {
            spool.turn();
        }
        Ok(())
    }

    fn hear_warden(&mut self) -> Result<(), String> {
        loop {
            let received = match self.control.try_recv::<FromWarden>() {
                Ok(received) => received,
                Err(RecvError::Empty) => return Ok(()),
                Err(RecvError::Closed) => {
                    self.stop = true;
                    return Ok(());
                }
                Err(error) => return Err(format!("from the warden: {error}")),
            };
            match received.message {
                FromWarden::Attach(ref attachment) => {
                    let attachment = attachment.clone();
                    let Some(fd) = received.into_fd() else { continue };
                    match attachment {
                        Attachment::Peer { role: Role::Keyer, .. } => {
                            self.keyer = Some(Channel::from_fd(fd));
                            self.due.renew = true;
                        }
                        Attachment::Peer { role: Role::Vault, label: Some(label), .. } => {
                            self.vault = Some((label, Channel::from_fd(fd)));
                        }
                        Attachment::Peer { role: Role::Signer, .. } | Attachment::SignerClient(_) => {
                            self.signer.set(Channel::from_fd(fd));
                        }
                        Attachment::Revocations => self.revocations(&fd),
                        _ => {}
                    }
                }
                FromWarden::Workstation(WorkstationEvent::Exited { ticket, status: Ok(status) })
                    if self.spools.contains_key(&ticket) =>
                {
                    self.over.push_back((ticket, status));
                }
                FromWarden::Workstation(WorkstationEvent::Exited { ticket, status }) => {
                    self.spools.remove(&ticket);
                    self.people.program_ended(ticket, status);
                }
                FromWarden::Workstation(WorkstationEvent::Died(session)) => {
                    self.mail.warden.push_back(WorkstationEvent::Died(session));
                    self.due.died = Some(session);
                }
                FromWarden::Workstation(event) => self.mail.warden.push_back(event),
                FromWarden::Stop => self.stop = true,
                _ => {}
            }
        }
    }

    /// A revocation list has come: the server shows its certificate again, on a new path.
    fn revocations(&mut self, fd: &OwnedFd) {
        let own = &self.certificates;
        let config = revocations(fd).and_then(|revoked| {
            levee_tls::client(&own.chain, &own.authority, Some(&revoked), &self.signer, own.suites)
                .map_err(|e| e.to_string())
        });
        match config {
            Ok(config) => self.link.believe_by(config),
            // The one before it, or none, goes on counting.
            Err(why) => levee_ipc::say!("levee-tpe: the revocation list is not used: {why}"),
        }
    }

    fn hear_keyer(&mut self) {
        while let Some(keyer) = &self.keyer {
            match keyer.try_recv::<FromKeyer>() {
                Ok(Received { message: FromKeyer::Failed { session, reason }, .. })
                    if self.session.as_ref().is_some_and(|live| live.id == session) =>
                {
                    self.due.failed = Some((session, reason));
                }
                Ok(Received { message, .. }) => self.mail.keyer.push_back(message),
                Err(RecvError::Empty) => return,
                Err(_) => self.keyer = None,
            }
        }
    }

    fn hear_vault(&mut self) {
        while let Some((_, vault)) = &self.vault {
            match vault.try_recv::<VaultToSessiond>() {
                Ok(Received { message, .. }) => self.mail.vault.push_back(message),
                Err(RecvError::Empty) => return,
                // Its end is for the warden to report.
                Err(_) => self.vault = None,
            }
        }
    }

    fn hear_people(&mut self) {
        if self.login.is_none() {
            self.people.left();
        }
        self.people.accept();
        let running = self.people.hear();
        for request in running {
            match request {
                people::Wish::Status(person) => {
                    let answer = Answer::Status(self.status());
                    self.people.answer(person, &answer);
                }
                people::Wish::Run { person, program } => {
                    if let Err((kind, reason)) = self.start_program(person, program, None) {
                        self.people.answer(person, &Answer::Refused { kind, reason });
                    }
                }
                people::Wish::Signal { ticket, signal } => {
                    let request = TpeRequest::Signal { ticket, signal };
                    // A program whose signal the warden cannot take now keeps running, and its person sees it.
                    let _ = self.control.try_send(&ToWarden::Tpe(request));
                }
            }
        }
    }

    /// Starts a program; `imported` is its standard input where that is a file that may be carried in.
    fn start_program(
        &mut self,
        person: Person,
        program: Program,
        imported: Option<OwnedFd>,
    ) -> Result<(), (RefusalKind, String)> {
        if self.session.is_none() {
            return Err((RefusalKind::NoSession, "no session is open: choose a level first".into()));
        }
        let Program { argv, env, input, output, mut fds } = program;
        let unavailable =
            |e: rustix::io::Errno| (RefusalKind::Unavailable, format!("a program's descriptors: {e}"));
        let protocol = || (RefusalKind::Protocol, "what came along is no pseudo-terminal".to_owned());
        let is_terminal = input == Input::Terminal || output == Output::Terminal;
        let terminal =
            is_terminal.then(|| fds.drain(..).next().filter(carry::is_terminal).ok_or_else(protocol));
        let terminal = terminal.transpose()?;
        let ours = match (input, imported) {
            (Input::Terminal, _) => None,
            (Input::Import, Some(file)) => Some(file),
            (Input::None | Input::Import, _) => Some(carry::nothing().map_err(unavailable)?),
        };
        let (mut spools, mut theirs) = (Vec::new(), Vec::new());
        if output != Output::Terminal {
            if self.spools.len() >= MOST_SPOOLED {
                return Err((
                    RefusalKind::Unavailable,
                    "too many programs without a terminal run already".into(),
                ));
            }
            for _ in 0..2 {
                let (spool, end) = Spool::new(output == Output::Export).map_err(unavailable)?;
                spools.push(spool);
                theirs.push(end);
            }
        }
        // Standard input, output and error: each a descriptor of ours, or the terminal.
        let own = [ours.as_ref(), theirs.first(), theirs.get(1)];
        let given: Option<Vec<_>> =
            own.iter().map(|own| own.or(terminal.as_ref()).map(AsFd::as_fd)).collect();
        let request = TpeRequest::Run { ticket: person, argv, env, terminal: input == Input::Terminal };
        self.control
            .try_send_with(&ToWarden::Tpe(request), &given.ok_or_else(protocol)?)
            .map_err(|e| (RefusalKind::Unavailable, format!("the warden: {e}")))?;
        if !spools.is_empty() {
            self.spools.insert(person, spools);
        }
        Ok(())
    }

    fn status(&self) -> levee_ipc::tpe::Status {
        levee_ipc::tpe::Status {
            connected: self.link.is_up(),
            user: self.login.as_ref().map(|login| login.user.clone()),
            labels: self.login.as_ref().map(|login| login.labels.clone()).unwrap_or_default(),
            session: self.session.as_ref().map(|live| live.shown.clone()),
            ended: self.ended.clone(),
        }
    }
}
