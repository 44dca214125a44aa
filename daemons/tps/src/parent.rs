//! The listener: accepts clients, starts a child for each, counts those that come to nothing.

use crate::admission::{Admission, Client, Limits, Source};
use crate::child::{self, Child, End, News, Prepared};
use levee_ipc::client::TpsToSessiond;
use levee_ipc::signer::ToSigner;
use levee_ipc::warden::{Attachment, CONTROL_FD, FromWarden, Role, ToWarden};
use levee_ipc::{Channel, Received, RecvError, SendError};
use levee_sys::fork::{Forker, inherited};
use levee_sys::sandbox::Sandbox;
use levee_sys::seccomp::{self, Filter};
use levee_tls::{SignerHandle, Suites};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, sockopt};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often sessiond hears of what came to nothing.
const REPORT: Duration = Duration::from_secs(10);
/// While clients wait or are in the handshake, time is looked at this often.
const TICK: Duration = Duration::from_millis(20);
/// A client gets a child once so many bytes of it are here: no TLS 1.3 ClientHello is shorter.
const FIRST_BYTES: u16 = 100;
/// Files with certificates are not larger.
const MAX_PEM: u64 = 1024 * 1024;

// Tokens of the event queue; clients count on from here.
const CONTROL: u64 = 0;
const SESSIOND: u64 = 1;
const LISTENERS: u64 = 16;
const CLIENTS: u64 = 1 << 32;

/// How many connections are accepted before children are looked after again.
const ACCEPTS: usize = 1024;
/// How many children are started before new connections are looked for again.
const STARTS: usize = 4;

struct Accepted {
    /// Before there is a child.
    stream: OwnedFd,
    address: SocketAddr,
}

struct Running {
    pid: Pid,
    address: SocketAddr,
    channel: Channel,
    /// sessiond's end, until TLS is up.
    sessiond: Option<Channel>,
}

enum Stage {
    Waiting(Accepted),
    Running(Running),
}

struct Parent {
    control: Channel,
    sessiond: Option<Channel>,
    signer: Option<Channel>,
    listeners: Vec<OwnedFd>,
    queue: OwnedFd,
    forker: Forker,
    prepared: Arc<Prepared>,
    certificates: Certificates,
    admission: Admission,
    clients: HashMap<Client, Stage>,
    next: Client,
    /// Killed, and not yet reaped: their numbers stay theirs until then.
    dying: Vec<Pid>,
    dropped: BTreeMap<&'static str, u64>,
    reported: Instant,
    /// The last turn left clients that could have had a child.
    more: bool,
}

#[derive(Default)]
struct Attached {
    sessiond: Option<Channel>,
    signer: Option<Channel>,
    listeners: Vec<OwnedFd>,
    chain: Option<Vec<u8>>,
    authority: Option<Vec<u8>>,
    revoked: Option<Vec<u8>>,
}

/// What the authority is believed by, kept for the next revocation list.
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

impl Attached {
    fn take(&mut self, attachment: Attachment, fd: OwnedFd) -> Result<(), String> {
        match attachment {
            Attachment::Peer { role: Role::Sessiond, .. } => self.sessiond = Some(Channel::from_fd(fd)),
            Attachment::Peer { role: Role::Signer, .. } | Attachment::SignerClient(_) => {
                self.signer = Some(Channel::from_fd(fd));
            }
            Attachment::Listener => self.listeners.push(fd),
            Attachment::Chain => self.chain = Some(contents(fd)?),
            Attachment::Authority => self.authority = Some(contents(fd)?),
            Attachment::Revocations => self.revoked = Some(revocations(&fd)?),
            _ => {}
        }
        Ok(())
    }
}

/// Takes part in the warden's start-up, then serves until the warden says stop or is gone.
pub fn serve(suites: Suites) -> Result<(), String> {
    let control = Channel::from_fd(inherited(CONTROL_FD).map_err(|e| e.to_string())?);
    let mut attached = Attached::default();
    loop {
        match control.recv::<FromWarden>() {
            Ok(Received { message: FromWarden::Begin(_), .. }) => break,
            Ok(Received { message: FromWarden::Attach(attachment), mut fds }) => {
                if let (Some(fd), true) = (fds.pop(), fds.is_empty()) {
                    attached.take(attachment, fd)?;
                }
            }
            Ok(Received { message: FromWarden::Stop, .. }) | Err(RecvError::Closed) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(format!("from the warden: {error}")),
        }
    }
    let mut parent = Parent::new(control, attached, suites)?;
    Sandbox::new(seccomp::TPS).enter().map_err(|e| e.to_string())?;
    parent.control.send(&ToWarden::Ready).map_err(|e| format!("to the warden: {e}"))?;
    while parent.turn()? {}
    Ok(())
}

impl Parent {
    fn new(control: Channel, attached: Attached, suites: Suites) -> Result<Self, String> {
        let missing = |what: &str| format!("the warden attached no {what}");
        let chain = attached.chain.ok_or_else(|| missing("certificate chain"))?;
        let authority = attached.authority.ok_or_else(|| missing("authority"))?;
        if attached.listeners.is_empty() {
            return Err(missing("listener"));
        }
        let handle = SignerHandle::new();
        let revoked = attached.revoked.as_deref();
        let config =
            levee_tls::server(&chain, &authority, revoked, &handle, suites).map_err(|e| e.to_string())?;
        // Compiled here, so that no child spends time on it.
        let filter = Arc::new(Filter::compile(seccomp::TPS_CHILD).map_err(|e| e.to_string())?);
        let queue = epoll::create(CreateFlags::CLOEXEC).map_err(|e| format!("epoll: {e}"))?;
        let watch = |fd: &dyn AsFd, token: u64| {
            epoll::add(&queue, fd.as_fd(), EventData::new_u64(token), EventFlags::IN)
                .map_err(|e| format!("epoll: {e}"))
        };
        watch(&control, CONTROL)?;
        for (token, listener) in (LISTENERS..).zip(&attached.listeners) {
            // Both pass on to what is accepted. With the first, a connection is readable only once a ClientHello
            // can be there; without delay, the handshake's small flights do not wait for acknowledgements.
            levee_sys::tcp::set_receive_low_water(listener, FIRST_BYTES)
                .map_err(|e| format!("SO_RCVLOWAT: {e}"))?;
            sockopt::set_tcp_nodelay(listener, true).map_err(|e| format!("TCP_NODELAY: {e}"))?;
            rustix::io::ioctl_fionbio(listener, true).map_err(|e| format!("a listener: {e}"))?;
            watch(listener, token)?;
        }
        if let Some(sessiond) = &attached.sessiond {
            watch(sessiond, SESSIOND)?;
        }
        Ok(Self {
            control,
            sessiond: attached.sessiond,
            signer: attached.signer,
            listeners: attached.listeners,
            queue,
            forker: Forker::new().map_err(|e| format!("/proc/self/task: {e}"))?,
            prepared: Arc::new(Prepared { config, handle, filter }),
            certificates: Certificates { chain, authority, suites },
            admission: Admission::new(Limits::default()),
            clients: HashMap::new(),
            next: CLIENTS,
            dying: Vec::new(),
            dropped: BTreeMap::new(),
            reported: Instant::now(),
            more: false,
        })
    }

    /// Waits for something, and does it. False when it is time to end.
    fn turn(&mut self) -> Result<bool, String> {
        let mut events = Vec::with_capacity(256);
        let wait = if self.more {
            Duration::ZERO
        } else if self.admission.is_pressed() || !self.dying.is_empty() {
            TICK
        } else if self.dropped.is_empty() {
            Duration::from_secs(3600)
        } else {
            REPORT
        };
        let timeout = rustix::event::Timespec::try_from(wait).map_err(|e| e.to_string())?;
        match epoll::wait(&self.queue, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(format!("epoll: {error}")),
        }
        for event in &events {
            match event.data.u64() {
                CONTROL => {
                    if !self.hear_warden()? {
                        return Ok(false);
                    }
                }
                SESSIOND => self.hear_sessiond(),
                client @ CLIENTS.. => self.hear_client(client, event.flags),
                listener => self.accept(listener),
            }
        }
        let now = Instant::now();
        for client in self.admission.late(now) {
            self.drop_client(client, "handshake_deadline");
        }
        // A few a turn, so that those who have connected meanwhile are seen: the newest goes first.
        self.more = true;
        for _ in 0..STARTS {
            let Some((victim, client)) = self.admission.next(now) else {
                self.more = false;
                break;
            };
            if let Some(victim) = victim {
                self.drop_client(victim, "crowded_out");
            }
            if let Err(reason) = self.start(client) {
                self.drop_client(client, reason);
            }
        }
        self.reap();
        self.report();
        Ok(true)
    }

    fn hear_warden(&mut self) -> Result<bool, String> {
        loop {
            match self.control.try_recv::<FromWarden>() {
                Ok(Received { message: FromWarden::Attach(attachment), mut fds }) => {
                    if let (Some(fd), true) = (fds.pop(), fds.is_empty()) {
                        self.attach(attachment, fd)?;
                    }
                }
                Ok(Received { message: FromWarden::Stop, .. }) | Err(RecvError::Closed) => return Ok(false),
                Ok(_) => {}
                Err(RecvError::Empty) => return Ok(true),
                Err(error) => return Err(format!("from the warden: {error}")),
            }
        }
    }

    fn attach(&mut self, attachment: Attachment, fd: OwnedFd) -> Result<(), String> {
        let mut attached = Attached::default();
        attached.take(attachment, fd)?;
        if let Some(sessiond) = attached.sessiond {
            // The old one's descriptor leaves the queue when it is closed.
            epoll::add(&self.queue, &sessiond, EventData::new_u64(SESSIOND), EventFlags::IN)
                .map_err(|e| format!("epoll: {e}"))?;
            self.sessiond = Some(sessiond);
        }
        if let Some(signer) = attached.signer {
            self.signer = Some(signer);
        }
        if let Some(revoked) = attached.revoked {
            self.revoke(&revoked);
        }
        Ok(())
    }

    /// Another revocation list counts from now on. Which certificate a client showed, its child alone knows: so every client shows it
    /// again, and takes up its session where it left it.
    fn revoke(&mut self, revoked: &[u8]) {
        let (old, own) = (&self.prepared, &self.certificates);
        match levee_tls::server(&own.chain, &own.authority, Some(revoked), &old.handle, own.suites) {
            Ok(config) => {
                let (handle, filter) = (old.handle.clone(), Arc::clone(&old.filter));
                self.prepared = Arc::new(Prepared { config, handle, filter });
            }
            // The one before it goes on counting.
            Err(_) => return self.count("revocation_list"),
        }
        let running = self.clients.iter().filter(|(_, stage)| matches!(stage, Stage::Running(_)));
        for client in running.map(|(client, _)| *client).collect::<Vec<_>>() {
            self.drop_client(client, "must_show_its_certificate_again");
        }
    }

    /// sessiond says nothing on this channel; it can only be gone.
    fn hear_sessiond(&mut self) {
        if let Some(sessiond) = &self.sessiond
            && !matches!(sessiond.try_recv::<()>(), Err(RecvError::Empty))
        {
            self.sessiond = None;
        }
    }

    fn count(&mut self, reason: &'static str) {
        let count = self.dropped.entry(reason).or_default();
        *count = count.saturating_add(1);
    }

    fn accept(&mut self, token: u64) {
        let index = usize::try_from(token.saturating_sub(LISTENERS)).unwrap_or(usize::MAX);
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(index) else { return };
            let (stream, address) =
                match acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                    Ok((stream, Some(address))) => (stream, address),
                    Ok((_, None)) | Err(Errno::INTR | Errno::CONNABORTED) => continue,
                    Err(Errno::AGAIN) => return,
                    Err(_) => return self.count("accept"),
                };
            let Ok(address) = SocketAddr::try_from(address) else { continue };
            let client = self.next;
            self.next = self.next.saturating_add(1);
            if epoll::add(
                &self.queue,
                &stream,
                EventData::new_u64(client),
                EventFlags::IN | EventFlags::ONESHOT,
            )
            .is_err()
            {
                self.count("accept");
                continue;
            }
            self.clients.insert(client, Stage::Waiting(Accepted { stream, address }));
            if let Some(victim) = self.admission.connected(client, Source::of(address.ip()), Instant::now()) {
                self.drop_client(victim, "too_many_waiting");
            }
        }
    }

    fn hear_client(&mut self, client: Client, flags: EventFlags) {
        match self.clients.get(&client) {
            // Who goes before the handshake is not worth a child.
            Some(Stage::Waiting(_))
                if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) =>
            {
                self.drop_client(client, End::Lost.name());
            }
            Some(Stage::Waiting(_)) => self.admission.ready(client),
            Some(Stage::Running(running)) => match running.channel.try_recv::<News>() {
                Ok(Received { message: News::Up, .. }) => self.up(client),
                Ok(Received { message: News::End(End::Closed), .. }) => self.forget(client),
                Ok(Received { message: News::End(end), .. }) => self.drop_client(client, end.name()),
                Err(RecvError::Empty) => {}
                Err(_) => self.drop_client(client, "child_died"),
            },
            None => {}
        }
    }

    /// Starts the child of a client whose first bytes are here.
    fn start(&mut self, client: Client) -> Result<(), &'static str> {
        let Some(Stage::Waiting(Accepted { stream, address })) = self.clients.remove(&client) else {
            return Err("lost");
        };
        // It is the child that hears of its bytes from now on.
        epoll::delete(&self.queue, &stream).map_err(|_| "epoll")?;
        levee_sys::tcp::set_receive_low_water(&stream, 1).map_err(|_| "descriptors")?;
        if self.sessiond.is_none() {
            return Err("sessiond");
        }
        let (channel, childs_channel) = Channel::pair().map_err(|_| "descriptors")?;
        let (sessiond, childs_sessiond) = Channel::pair().map_err(|_| "descriptors")?;
        let (signer, childs_signer) = Channel::pair().map_err(|_| "descriptors")?;
        let signers = self.signer.as_ref().ok_or("signer")?;
        if let Err(error) = signers.try_send_with(&ToSigner::Join, &[signer.as_fd()]) {
            if matches!(error, SendError::Closed) {
                self.signer = None;
            }
            return Err("signer");
        }
        drop(signer);
        epoll::add(&self.queue, &channel, EventData::new_u64(client), EventFlags::IN).map_err(|_| "epoll")?;
        let prepared = Arc::clone(&self.prepared);
        let keep = vec![stream, childs_sessiond.into_fd(), childs_signer.into_fd(), childs_channel.into_fd()];
        let pid = self
            .forker
            .fork(keep, move |kept| {
                let Ok([stream, sessiond, signer, parent]) = <[OwnedFd; 4]>::try_from(kept) else { return 1 };
                let stream = TcpStream::from(stream);
                let [sessiond, signer, parent] = [sessiond, signer, parent].map(Channel::from_fd);
                child::serve(Child { stream, sessiond, signer, parent }, &prepared);
                0
            })
            .map_err(|_| "fork")?;
        self.clients
            .insert(client, Stage::Running(Running { pid, address, channel, sessiond: Some(sessiond) }));
        Ok(())
    }

    /// TLS is up: only now does sessiond hear of the client.
    fn up(&mut self, client: Client) {
        if !self.admission.up(client, Instant::now()) {
            return self.drop_client(client, "too_many_up");
        }
        let Some(Stage::Running(running)) = self.clients.get_mut(&client) else { return };
        let (Some(theirs), Some(sessiond)) = (running.sessiond.take(), &self.sessiond) else {
            return self.drop_client(client, "sessiond");
        };
        match sessiond.try_send_with(&TpsToSessiond::Client(running.address), &[theirs.as_fd()]) {
            Ok(()) => {}
            Err(error) => {
                if matches!(error, SendError::Closed) {
                    self.sessiond = None;
                }
                self.drop_client(client, "sessiond");
            }
        }
    }

    /// Ends a client, whatever its stage, and counts it.
    fn drop_client(&mut self, client: Client, reason: &'static str) {
        self.count(reason);
        self.forget(client);
    }

    fn forget(&mut self, client: Client) {
        self.admission.gone(client);
        if let Some(Stage::Running(running)) = self.clients.remove(&client) {
            // Ours and not yet reaped, so the number is still its own. It ends now even if it lied about ending.
            let _ = kill_process(running.pid, Signal::KILL);
            self.dying.push(running.pid);
        }
    }

    /// Reaps what has ended. Nobody waits for a child to die: on a loaded machine that takes its time.
    fn reap(&mut self) {
        self.dying.retain(|&pid| matches!(waitpid(Some(pid), WaitOptions::NOHANG), Ok(None)));
    }

    fn report(&mut self) {
        if self.dropped.is_empty() || self.reported.elapsed() < REPORT {
            return;
        }
        let counts = self.dropped.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
        if let Some(sessiond) = &self.sessiond
            && sessiond.try_send(&TpsToSessiond::Dropped(counts)).is_ok()
        {
            self.dropped.clear();
        }
        self.reported = Instant::now();
    }
}
