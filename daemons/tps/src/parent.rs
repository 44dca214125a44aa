//! The listener: accepts clients, starts a child for each, counts those that come to nothing.

use crate::admission::{self, Admission, Client, Limits};
use crate::child::{self, Child, Prepared};
use crate::ended::Ended;
use crate::news::{End, News};
use levee_daemon::{
    Can, Descriptors, Events, Fatal, Kit, Many, One, Order, Outbox, Warden, Watched, begin, pem, revocations,
};
use levee_ipc::Channel;
use levee_ipc::client::TpsToSessiond;
use levee_ipc::signer::ToSigner;
use levee_ipc::warden::tps::TpsPart;
use levee_sys::fork::Forker;
use levee_sys::sandbox::Sandbox;
use levee_sys::seccomp::Filter;
use levee_tls::{SignerHandle, Suites};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, sockopt};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The system calls that the listener may make, and a child before it confines itself.
const FILTER: &str = include_str!("../../../conf/seccomp/tps.toml");

/// The system calls that a child may make once it serves its client.
const CHILDS_FILTER: &str = include_str!("../../../conf/seccomp/tps-child.toml");

/// How often sessiond hears of what came to nothing.
const REPORT: Duration = Duration::from_secs(10);
/// While clients wait or are in the handshake, time is looked at this often.
const TICK: Duration = Duration::from_millis(20);
/// A client gets a child once so many bytes of it are here: no TLS 1.3 ClientHello is shorter.
const FIRST_BYTES: u16 = 100;

/// The most addresses on which the trusted path is offered.
const MOST_LISTENERS: usize = 32;

/// How many connections are accepted before children are looked after again.
const ACCEPTS: usize = 1024;
/// How many children are started before new connections are looked for again.
const STARTS: usize = 4;

/// What is waited for.
#[derive(Clone, Copy)]
enum Source {
    Warden,
    Sessiond,
    Signer,
    /// By its number.
    Listener(usize),
    Client(Client),
}

struct Accepted {
    /// Before there is a child.
    stream: Watched<Rc<OwnedFd>>,
    address: SocketAddr,
}

struct Running {
    pid: Pid,
    address: SocketAddr,
    /// The parent tells its child nothing.
    channel: Outbox<()>,
    /// sessiond's end, until TLS is up.
    sessiond: Option<Channel>,
}

enum Stage {
    Waiting(Accepted),
    Running(Running),
}

struct Parent {
    events: Events<Source>,
    warden: Warden<TpsPart>,
    sessiond: Outbox<TpsToSessiond>,
    signer: Outbox<ToSigner>,
    listeners: Vec<Watched<OwnedFd>>,
    forker: Forker,
    prepared: Arc<Prepared>,
    certificates: Certificates,
    admission: Admission,
    clients: HashMap<Client, Stage>,
    next: Client,
    /// Killed, and not yet reaped: their numbers stay theirs until then.
    dying: Vec<Pid>,
    dropped: Ended,
    reported: Instant,
    /// The last turn left clients that could have had a child.
    more: bool,
}

/// What the warden gives.
#[derive(Default)]
struct Given {
    sessiond: One<Channel>,
    signer: One<Channel>,
    listeners: Many<OwnedFd, MOST_LISTENERS>,
    chain: One<Vec<u8>>,
    authority: One<Vec<u8>>,
    revoked: One<Vec<u8>>,
}

impl Kit for Given {
    type Part = TpsPart;

    fn take(&mut self, part: TpsPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            TpsPart::Listener => self.listeners.put(with.one()?),
            TpsPart::Chain => self.chain.put(pem(&with.one()?)?),
            TpsPart::Authority => self.authority.put(pem(&with.one()?)?),
            TpsPart::Revocations => self.revoked.put(revocations(&with.one()?)?),
            TpsPart::Sessiond => self.sessiond.put(with.channel()?),
            TpsPart::Signer => self.signer.put(with.channel()?),
        }
    }
}

/// What the authority is believed by, kept for the next revocation list.
struct Certificates {
    chain: Vec<u8>,
    authority: Vec<u8>,
    suites: Suites,
}

/// Takes part in the warden's start-up, then serves until the warden says stop or is gone.
///
/// # Errors
/// Why it cannot go on.
pub fn serve(suites: Suites) -> Result<(), Fatal> {
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(()) };
    let (chain, authority) = (given.chain.needed("certificate chain")?, given.authority.needed("authority")?);
    let (listeners, revoked) = (given.listeners.needed("listener")?, given.revoked.get());
    let handle = SignerHandle::new();
    let config = levee_tls::server(&chain, &authority, revoked.as_deref(), &handle, suites)
        .map_err(|why| Fatal::new("prepare TLS", why))?;
    // Compiled here, so that no child spends time on it.
    let filter = Filter::compile(CHILDS_FILTER).map_err(|why| Fatal::new("compile a filter", why))?;
    let forker = Forker::new().map_err(|why| Fatal::new("look at /proc/self/task", why))?;
    let mut events = Events::new()?;
    let listen = |(number, fd)| listen(fd, number, &mut events);
    let listeners = listeners.into_iter().enumerate().map(listen).collect::<std::io::Result<_>>();
    let listeners = listeners.map_err(|why| Fatal::new("listen", why))?;
    let warden = beginning.confine(&Sandbox::new(FILTER))?.ready(&mut events, Source::Warden)?;
    let mut parent = Parent {
        events,
        warden,
        sessiond: Outbox::new(),
        signer: Outbox::new(),
        listeners,
        forker,
        prepared: Arc::new(Prepared { config, handle, filter: Arc::new(filter) }),
        certificates: Certificates { chain, authority, suites },
        admission: Admission::new(Limits::default()),
        clients: HashMap::new(),
        next: 0,
        dying: Vec::new(),
        dropped: Ended::default(),
        reported: Instant::now(),
        more: false,
    };
    if let Some(channel) = given.sessiond.get() {
        parent.sessiond.replace(channel, &mut parent.events, Source::Sessiond)?;
    }
    if let Some(channel) = given.signer.get() {
        parent.signer.replace(channel, &mut parent.events, Source::Signer)?;
    }
    while parent.turn()? {}
    Ok(())
}

/// A listener whose connections are readable only once a ClientHello can be there, and whose handshakes' small flights do not wait for
/// acknowledgements: both pass on to what is accepted.
fn listen(fd: OwnedFd, number: usize, events: &mut Events<Source>) -> std::io::Result<Watched<OwnedFd>> {
    levee_sys::tcp::set_receive_low_water(&fd, FIRST_BYTES).map_err(std::io::Error::other)?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    rustix::io::ioctl_fionbio(&fd, true)?;
    events.watch(fd, Source::Listener(number))
}

impl Parent {
    /// Waits for something, and does it. False when it is time to end.
    fn turn(&mut self) -> Result<bool, Fatal> {
        let wait = if self.more {
            Duration::ZERO
        } else if self.admission.is_pressed() || !self.dying.is_empty() {
            TICK
        } else if self.dropped.is_empty() {
            Duration::from_secs(3600)
        } else {
            REPORT
        };
        for (source, can) in self.events.wait(Some(wait))? {
            match source {
                Source::Warden => {
                    if !self.hear_warden()? {
                        return Ok(false);
                    }
                }
                // Neither says anything here; they can only be gone.
                Source::Sessiond => {
                    if self.sessiond.hear::<()>() != Ok(None) {
                        self.sessiond.close();
                    }
                }
                Source::Signer => {
                    if self.signer.hear::<()>() != Ok(None) {
                        self.signer.close();
                    }
                }
                Source::Listener(number) => self.accept(number),
                Source::Client(client) => self.hear_client(client, can),
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

    fn hear_warden(&mut self) -> Result<bool, Fatal> {
        while let Some(order) = self.warden.hear()? {
            match order {
                Order::Stop => return Ok(false),
                Order::Take(TpsPart::Sessiond, with) => {
                    self.sessiond.replace(with.channel()?, &mut self.events, Source::Sessiond)?;
                }
                Order::Take(TpsPart::Signer, with) => {
                    self.signer.replace(with.channel()?, &mut self.events, Source::Signer)?;
                }
                Order::Take(TpsPart::Revocations, with) => self.revoke(&revocations(&with.one()?)?),
                Order::Take(part, _) => return Err(Warden::unwanted(&part)),
            }
        }
        Ok(true)
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
            Err(_) => return self.count("revocation_list", None),
        }
        let running = self.clients.iter().filter(|(_, stage)| matches!(stage, Stage::Running(_)));
        for client in running.map(|(client, _)| *client).collect::<Vec<_>>() {
            self.drop_client(client, "must_show_its_certificate_again");
        }
    }

    fn count(&mut self, reason: &'static str, from: Option<IpAddr>) {
        self.dropped.count(reason, from);
    }

    fn accept(&mut self, number: usize) {
        for _ in 0..ACCEPTS {
            let Some(listener) = self.listeners.get(number) else { return };
            let (stream, address) =
                match acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                    Ok((stream, Some(address))) => (stream, address),
                    Ok((_, None)) | Err(Errno::INTR | Errno::CONNABORTED) => continue,
                    Err(Errno::AGAIN) => return,
                    Err(_) => return self.count("accept", None),
                };
            let Ok(address) = SocketAddr::try_from(address) else { continue };
            let client = self.next;
            self.next = self.next.saturating_add(1);
            let Ok(stream) = self.events.watch(Rc::new(stream), Source::Client(client)) else {
                self.count("accept", Some(address.ip()));
                continue;
            };
            self.clients.insert(client, Stage::Waiting(Accepted { stream, address }));
            if let Some(victim) =
                self.admission.connected(client, admission::Source::of(address.ip()), Instant::now())
            {
                self.drop_client(victim, "too_many_waiting");
            }
        }
    }

    fn hear_client(&mut self, client: Client, can: Can) {
        match self.clients.get_mut(&client) {
            // Who goes before the handshake is not worth a child.
            Some(Stage::Waiting(_)) if can.gone => self.drop_client(client, End::Lost.name()),
            Some(Stage::Waiting(accepted)) => {
                // Said once; what it has sent, its child reads.
                if accepted.stream.wait_for(false, false).is_err() {
                    return self.drop_client(client, "epoll");
                }
                self.admission.ready(client);
            }
            Some(Stage::Running(running)) => match running.channel.hear::<News>() {
                Ok(Some(News::Up)) => self.up(client),
                Ok(Some(News::End(End::Closed))) => self.forget(client),
                Ok(Some(News::End(end))) => self.drop_client(client, end.name()),
                Ok(None) => {}
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
        let shared = Rc::clone(&*stream);
        drop(stream);
        let stream = Rc::into_inner(shared).ok_or("descriptors")?;
        levee_sys::tcp::set_receive_low_water(&stream, 1).map_err(|_| "descriptors")?;
        if !self.sessiond.is_open() {
            return Err("sessiond");
        }
        let (channel, childs_channel) = Channel::pair().map_err(|_| "descriptors")?;
        let (sessiond, childs_sessiond) = Channel::pair().map_err(|_| "descriptors")?;
        let (signer, childs_signer) = Channel::pair().map_err(|_| "descriptors")?;
        if !self.signer.send_with(&ToSigner::Join, &[signer.as_fd()]) {
            return Err("signer");
        }
        drop(signer);
        let mut news = Outbox::new();
        news.replace(channel, &mut self.events, Source::Client(client)).map_err(|_| "epoll")?;
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
        self.clients.insert(
            client,
            Stage::Running(Running { pid, address, channel: news, sessiond: Some(sessiond) }),
        );
        Ok(())
    }

    /// TLS is up: only now does sessiond hear of the client.
    fn up(&mut self, client: Client) {
        if !self.admission.up(client, Instant::now()) {
            return self.drop_client(client, "too_many_up");
        }
        let Some(Stage::Running(running)) = self.clients.get_mut(&client) else { return };
        let (theirs, address) = (running.sessiond.take(), running.address);
        let known = theirs.is_some_and(|theirs| {
            self.sessiond.send_with(&TpsToSessiond::Client(address), &[theirs.as_fd()])
        });
        if !known {
            self.drop_client(client, "sessiond");
        }
    }

    /// Ends a client, whatever its stage, and counts it.
    fn drop_client(&mut self, client: Client, reason: &'static str) {
        let from = self.clients.get(&client).map(|stage| match stage {
            Stage::Waiting(Accepted { address, .. }) | Stage::Running(Running { address, .. }) => {
                address.ip()
            }
        });
        self.count(reason, from);
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
        if self.sessiond.send_with(&TpsToSessiond::Dropped(self.dropped.told()), &[]) {
            self.dropped.clear();
        }
        self.reported = Instant::now();
    }
}
