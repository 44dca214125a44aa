//! The trusted path to the server, as its client: TLS 1.3, one answer for each request.

use super::Source;
use levee_daemon::{Events, Watched};
use levee_ipc::client::{KEEP_ALIVE, Reply, Request, SILENCE};
use levee_ipc::device::{EXPORTER, Proof, Sealed};
use levee_ipc::{FrameReader, encode_frame};
use levee_policy::DomainName;
use levee_sys::clock;
use levee_tls::SignerHandle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For the TCP connection, and again for the handshake.
const CONNECT: Duration = Duration::from_secs(3);
/// A request unanswered for so long means that the path is gone. The password hash takes its time.
const ANSWER: Duration = Duration::from_secs(25);

/// Older than this, what a try has said may have changed.
const RECENT: Duration = Duration::from_secs(5);
/// What finds out more.
pub const DOCTOR: &str = "`levee-tpe doctor` says what is in the way";

/// How long the server may take to answer.
pub fn patience(request: &Request) -> Duration {
    match request {
        Request::KeepAlive | Request::Active => SILENCE,
        // A label at which nobody works is started first.
        Request::Level(..) => levee_session::LEVEL,
        // After wrong ones a password waits before it is looked at.
        Request::Login { .. } | Request::Passwd { .. } | Request::Unlock { .. } => {
            levee_session::LONGEST_DELAY + ANSWER
        }
        _ => ANSWER,
    }
}

/// What the server said.
pub enum Heard {
    /// The answer to the request that the agent waits for.
    Answer(Reply),
    /// Something unasked.
    Notice(Reply),
}

enum Asked {
    KeepAlive,
    Request,
}

struct Outstanding {
    asked: Asked,
    /// Since the host's start.
    at: Duration,
    /// Then its answer is late.
    until: Instant,
}

struct Up {
    stream: Watched<TcpStream>,
    tls: ClientConnection,
    frames: FrameReader,
    outstanding: VecDeque<Outstanding>,
    sent: Instant,
    peer: SocketAddr,
    /// Why TLS ended.
    refused: Option<rustls::Error>,
}

/// The trusted path, up or not.
pub struct Link {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    server: DomainName,
    device: Device,
    addresses: Vec<SocketAddr>,
    up: Option<Up>,
    /// Why it could not be made last, and when, until it is.
    failed: Option<(String, Instant)>,
    /// When what was answered last was asked.
    heard: Duration,
    /// Whether the server is to be told that somebody sits here and does something.
    used: bool,
}

/// What shows which device this is.
pub struct Device {
    /// What the site's authority says about it.
    pub sealed: Sealed,
    /// Who signs with its key.
    pub signer: SignerHandle,
}

impl Link {
    /// Not connected yet. `server` is what the server's certificate must say.
    pub fn new(
        config: Arc<ClientConfig>,
        server: &DomainName,
        device: Device,
        addresses: Vec<SocketAddr>,
    ) -> Result<Self, levee_tls::Error> {
        let (name, server) = (levee_tls::server_name(server)?, server.clone());
        Ok(Self {
            config,
            name,
            server,
            device,
            addresses,
            up: None,
            failed: None,
            heard: Duration::ZERO,
            used: false,
        })
    }

    /// Goes by another configuration, on a path that begins anew.
    pub fn believe_by(&mut self, config: Arc<ClientConfig>) {
        self.config = config;
        self.close();
    }

    /// When that was asked which the server has answered last: time since the host's start, suspended or not.
    pub fn heard(&self) -> Duration {
        self.heard
    }

    /// Whether TLS is up.
    pub fn is_up(&self) -> bool {
        self.up.is_some()
    }

    /// The server's address in use.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.up.as_ref().map(|up| up.peer)
    }

    /// Closes the path in good order.
    pub fn close(&mut self) {
        if let Some(mut up) = self.up.take() {
            up.tls.send_close_notify();
            let _ = up.tls.write_tls(&mut &*up.stream);
        }
    }

    /// Connects, to whichever of the server's addresses answers first in their order. What comes is waited for as [`Source::Link`].
    ///
    /// # Errors
    /// In words for the person.
    pub fn connect(&mut self, events: &mut Events<Source>) -> Result<(), String> {
        if self.up.is_some() {
            return Ok(());
        }
        let mut failed = "no address of the server is known".to_owned();
        for &address in &self.addresses {
            match self.connect_to(address, events) {
                Ok(up) => {
                    (self.up, self.failed) = (Some(up), None);
                    return Ok(());
                }
                Err(error) => failed = format!("the trusted path to {address}: {error}"),
            }
        }
        self.failed = Some((failed.clone(), Instant::now()));
        Err(failed)
    }

    /// Why it is not there, as far as that is known, and when that was found out if it is not just now.
    pub fn failure(&self) -> Option<String> {
        let (why, at) = self.failed.as_ref()?;
        let ago = at.elapsed();
        Some(if ago < RECENT { why.clone() } else { format!("{why} (tried {} s ago)", ago.as_secs()) })
    }

    /// That it is not there, in words.
    pub fn is_down(&self) -> String {
        let why = self.failure().unwrap_or_else(|| "the trusted path is down".to_owned());
        format!("{why}; {DOCTOR}")
    }

    fn connect_to(&self, address: SocketAddr, events: &mut Events<Source>) -> Result<Up, String> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None).map_err(|e| e.to_string())?;
        let deadline = Instant::now() + CONNECT;
        match connect(&socket, &address) {
            Ok(()) => {}
            Err(rustix::io::Errno::INPROGRESS) => {
                wait(socket.as_fd(), PollFlags::OUT, deadline)?;
                sockopt::socket_error(&socket).map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
            }
            Err(error) => return Err(error.to_string()),
        }
        sockopt::set_tcp_nodelay(&socket, true).map_err(|e| e.to_string())?;
        let mut stream = TcpStream::from(socket);
        let mut tls =
            ClientConnection::new(Arc::clone(&self.config), self.name.clone()).map_err(|e| e.to_string())?;
        let deadline = Instant::now() + CONNECT;
        while tls.is_handshaking() || tls.wants_write() {
            if tls.wants_write() {
                match tls.write_tls(&mut stream) {
                    Ok(_) => continue,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error.to_string()),
                }
            }
            let write = if tls.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
            wait(stream.as_fd(), PollFlags::IN | write, deadline)?;
            match tls.read_tls(&mut stream) {
                Ok(0) => return Err("the server closed the connection".into()),
                Ok(_) => {
                    if let Err(error) = tls.process_new_packets() {
                        let _ = tls.write_tls(&mut stream);
                        return Err(error.to_string());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        let stream = events.watch(stream, Source::Link).map_err(|e| e.to_string())?;
        let (frames, outstanding) = (FrameReader::default(), VecDeque::new());
        let mut up =
            Up { stream, tls, frames, outstanding, sent: Instant::now(), peer: address, refused: None };
        self.prove(&mut up)?;
        Ok(up)
    }

    /// Shows the server which device this is: nothing else is answered before.
    fn prove(&self, up: &mut Up) -> Result<(), String> {
        let deadline = Instant::now() + CONNECT;
        let Reply::Challenge(nonce) = up.exchange(&Request::Hello, deadline)? else {
            return Err("the server does not ask which device this is".into());
        };
        let exporter = up.tls.export_keying_material([0; 32], EXPORTER, None).map_err(|e| e.to_string())?;
        let signature =
            self.device.signer.prove(self.server.clone(), nonce, exporter).map_err(|e| e.to_string())?;
        let proof = Proof { sealed: self.device.sealed.clone(), signature };
        match up.exchange(&Request::Prove(Box::new(proof)), deadline)? {
            Reply::Alive => Ok(()),
            Reply::Refused { reason, .. } => Err(reason),
            _ => Err("the server does not say whether it believes this device".into()),
        }
    }

    /// The person has done something: the next keep-alive says so.
    pub fn used(&mut self) {
        self.used = true;
    }

    /// Sends a request; its answer comes from [`Link::turn`].
    pub fn send(&mut self, request: &Request) -> Result<(), String> {
        let Some(up) = self.up.as_mut() else { return Err(self.is_down()) };
        let frame = encode_frame(request).map_err(|e| e.to_string())?;
        let taken = up.tls.writer().write_all(&frame).is_ok();
        // It goes out with the next turn, which comes as soon as there is room.
        if !taken || up.stream.wait_for(true, up.tls.wants_write()).is_err() {
            self.up = None;
            return Err("the trusted path does not take any more".into());
        }
        let asked = if matches!(request, Request::KeepAlive | Request::Active) {
            Asked::KeepAlive
        } else {
            Asked::Request
        };
        up.sent = Instant::now();
        let (at, until) = (clock::since_boot(), up.sent + patience(request));
        up.outstanding.push_back(Outstanding { asked, at, until });
        Ok(())
    }

    /// Moves bytes both ways as far as they go now. A path that breaks is closed, and [`Link::is_up`] says so.
    pub fn turn(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        if let Some(up) = &mut self.up
            && let Err(()) = up.turn(&mut heard, &mut self.heard)
        {
            self.up = None;
        }
        if self.up.as_ref().is_some_and(|up| up.outstanding.is_empty() && up.sent.elapsed() >= KEEP_ALIVE) {
            // What cannot be sent has closed the path, which is what a keep-alive is to find out.
            let used = std::mem::take(&mut self.used);
            let _ = self.send(if used { &Request::Active } else { &Request::KeepAlive });
        }
        heard
    }
}

impl Up {
    /// Why a server that answers does not go on.
    fn unwelcome(&self) -> String {
        match &self.refused {
            Some(error) => unwelcome(error),
            None => "the server closed the connection, or does not answer".into(),
        }
    }

    /// Asks something and waits for the answer.
    fn exchange(&mut self, request: &Request, deadline: Instant) -> Result<Reply, String> {
        let frame = encode_frame(request).map_err(|e| e.to_string())?;
        self.tls.writer().write_all(&frame).map_err(|e| e.to_string())?;
        let at = clock::since_boot();
        self.outstanding.push_back(Outstanding { asked: Asked::Request, at, until: deadline });
        loop {
            let (mut heard, mut when) = (Vec::new(), at);
            let turned = self.turn(&mut heard, &mut when);
            if let Some(Heard::Answer(reply)) = heard.pop() {
                return Ok(reply);
            }
            turned.map_err(|()| self.unwelcome())?;
            let write = if self.tls.wants_write() { PollFlags::OUT } else { PollFlags::empty() };
            wait(self.stream.as_fd(), PollFlags::IN | write, deadline)?;
        }
    }

    fn turn(&mut self, heard: &mut Vec<Heard>, when: &mut Duration) -> Result<(), ()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut &*self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(()),
            }
        }
        let ended = match self.tls.read_tls(&mut &*self.stream) {
            Ok(0) => true,
            Ok(_) => {
                if let Err(error) = self.tls.process_new_packets() {
                    self.refused = Some(error);
                    return Err(());
                }
                false
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Other) => false,
            Err(_) => true,
        };
        loop {
            while let Some(reply) = self.frames.take::<Reply>().map_err(|_| ())? {
                if reply.is_unasked() {
                    heard.push(Heard::Notice(reply));
                    continue;
                }
                // An answer to nothing: this is not the protocol.
                let Outstanding { asked, at, .. } = self.outstanding.pop_front().ok_or(())?;
                *when = at;
                if matches!(asked, Asked::Request) {
                    heard.push(Heard::Answer(reply));
                }
            }
            match self.tls.reader().read(self.frames.space()) {
                Ok(0) => return Err(()),
                Ok(bytes) => self.frames.advance(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Err(()),
            }
        }
        self.stream.wait_for(true, self.tls.wants_write()).map_err(|_| ())?;
        let late = self.outstanding.front().is_some_and(|first| Instant::now() >= first.until);
        if ended || late { Err(()) } else { Ok(()) }
    }
}

/// Why a server does not go on, in words for the person: it judges this device once TLS is up (RFC 8446 4.4.2.4).
pub fn unwelcome(error: &rustls::Error) -> String {
    use rustls::AlertDescription as Alert;
    match error {
        rustls::Error::AlertReceived(Alert::CertificateRevoked) => {
            "this workstation's certificate is revoked: the site does not let it in any more".into()
        }
        rustls::Error::AlertReceived(Alert::CertificateExpired) => {
            "this workstation's certificate has ended: have the host enrolled anew (levee enrol host)".into()
        }
        rustls::Error::AlertReceived(
            alert @ (Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::DecryptError),
        ) => format!(
            "the server does not believe this workstation's certificate ({alert:?}): have the host enrolled anew (levee enrol host)"
        ),
        error => error.to_string(),
    }
}

/// For whom trying again at once would be in vain. (The agent's filter has no other way to sleep.)
pub fn pause() {
    let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 300_000_000 }));
}

fn wait(fd: BorrowedFd<'_>, flags: PollFlags, deadline: Instant) -> Result<(), String> {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(left).map_err(|e| e.to_string())?;
    match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], Some(&timeout)) {
        Ok(0) => Err("no answer".into()),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_policy::LabelName;

    #[test]
    fn a_level_is_waited_for_as_long_as_the_server_may_take_to_start_it() {
        let level = patience(&Request::Level(LabelName::new("SECRET").unwrap(), None));
        assert!(level >= levee_session::START + levee_session::OPENING);
        for other in [Request::Status, Request::Logout] {
            assert_eq!(patience(&other), ANSWER);
        }
        assert_eq!(patience(&Request::KeepAlive), SILENCE);
        let password = levee_ipc::Secret::new(b"right".to_vec()).unwrap();
        let login =
            Request::Login { user: levee_policy::UserName::new("ada").unwrap(), password, code: None };
        assert!(
            patience(&login) > levee_session::LONGEST_DELAY + Duration::from_secs(20),
            "the right one is waited for"
        );
    }
}
