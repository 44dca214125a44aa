//! One client: TLS, its messages to sessiond, sessiond's answers to it. Whatever it is sent, only this child errs.

use crate::news::{End, News};
use levee_ipc::client::{ChildToSessiond, RefusalKind, Reply, Request, SILENCE};
use levee_ipc::device::EXPORTER;
use levee_ipc::{Channel, FrameReader, RecvError, encode_frame};
use levee_sys::seccomp::Filter;
use levee_tls::SignerHandle;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustls::{ServerConfig, ServerConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// From the first byte to the end of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Between two whole requests: then the path is lost, and the session's grace time begins.
const IDLE: Duration = SILENCE;
/// While bytes wait for the client to take them.
const WRITE: Duration = Duration::from_secs(10);
/// Bytes of memory that may be written: a child that is made to take more ends, alone.
const DATA: u64 = 64 << 20;
/// TLS data that may wait to be sent.
const OUTGOING: usize = 64 * 1024;

/// All that a child has.
pub struct Child {
    /// The client.
    pub stream: TcpStream,
    /// To sessiond.
    pub sessiond: Channel,
    /// To the signer.
    pub signer: Channel,
    /// To the parent.
    pub parent: Channel,
}

/// What a child takes over from its parent's memory.
pub struct Prepared {
    /// TLS.
    pub config: Arc<ServerConfig>,
    /// Where `config` looks for the signer.
    pub handle: SignerHandle,
    /// The child's system-call filter.
    pub filter: Arc<Filter>,
}

/// Serves one client to its end.
pub fn serve(child: Child, prepared: &Prepared) {
    let Child { stream, sessiond, signer, parent } = child;
    prepared.handle.set(signer);
    let data = Rlimit { current: Some(DATA), maximum: Some(DATA) };
    // Before the filter, which forbids it.
    let bounded = setrlimit(Resource::Data, data).is_ok();
    let end = match prepared.filter.apply() {
        Ok(()) if !bounded => End::Sandbox,
        Ok(()) => match ServerConnection::new(Arc::clone(&prepared.config)) {
            Ok(mut tls) => {
                tls.set_buffer_limit(Some(OUTGOING));
                let now = Instant::now();
                Client {
                    stream,
                    tls,
                    sessiond,
                    frames: FrameReader::default(),
                    busy: false,
                    heard: now,
                    stuck: None,
                }
                .run(&parent, &prepared.handle)
            }
            Err(_) => End::Handshake,
        },
        Err(_) => End::Sandbox,
    };
    // A parent that is gone has taken its children with it.
    let _ = parent.try_send(&News::End(end));
}

struct Client {
    stream: TcpStream,
    tls: ServerConnection,
    sessiond: Channel,
    frames: FrameReader,
    /// A request is with sessiond. Until it is answered the client is not read: it waits in its own buffers.
    busy: bool,
    /// When the last whole request came, or was answered.
    heard: Instant,
    /// Since when bytes wait for the client.
    stuck: Option<Instant>,
}

impl Client {
    fn run(mut self, parent: &Channel, signer: &SignerHandle) -> End {
        let handshake = self.handshake();
        // The server signs once. Whoever takes this process over later has nothing signed, and the signer keeps its room for those who come.
        signer.close();
        match handshake.and_then(|()| self.introduce(parent)).and_then(|()| self.converse()) {
            Ok(end) | Err(end) => {
                self.tls.send_close_notify();
                let _ = self.tls.write_tls(&mut self.stream);
                end
            }
        }
    }

    fn handshake(&mut self) -> Result<(), End> {
        let deadline = self.heard + HANDSHAKE;
        while self.tls.is_handshaking() {
            self.wait(deadline, false)?;
            self.read_tls(End::Handshake)?;
            self.flush()?;
            if Instant::now() >= deadline && self.tls.is_handshaking() {
                return Err(End::HandshakeDeadline);
            }
        }
        Ok(())
    }

    fn introduce(&mut self, parent: &Channel) -> Result<(), End> {
        // A certificate that names no device proves none. Which one it is, the device proves to sessiond itself.
        let certificate = self.tls.peer_certificates().and_then(|chain| chain.first()).ok_or(End::Device)?;
        levee_tls::device(certificate).map_err(|_| End::Device)?;
        let exporter =
            self.tls.export_keying_material([0; 32], EXPORTER, None).map_err(|_| End::Handshake)?;
        self.tell(&ChildToSessiond::Hello { exporter })?;
        parent.try_send(&News::Up).map_err(|_| End::Lost)?;
        self.heard = Instant::now();
        Ok(())
    }

    fn converse(&mut self) -> Result<End, End> {
        loop {
            if self.requests()? {
                return Ok(End::Closed);
            }
            self.flush()?;
            let idle = (!self.busy).then(|| self.heard + IDLE);
            let stuck = self.stuck.map(|since| since + WRITE);
            let now = Instant::now();
            if stuck.is_some_and(|until| now >= until) {
                return Err(End::Slow);
            }
            if idle.is_some_and(|until| now >= until) {
                return Err(End::Idle);
            }
            let until = [idle, stuck].into_iter().flatten().min();
            self.wait(until.unwrap_or(now + IDLE), true)?;
            self.answers()?;
            if !self.busy {
                self.read_tls(End::Malformed)?;
            }
        }
    }

    /// Waits until the client or (if `both`) sessiond has something to say, or can take something, or `until`.
    fn wait(&self, until: Instant, both: bool) -> Result<(), End> {
        let mut interest = PollFlags::empty();
        if !self.busy {
            interest |= PollFlags::IN;
        }
        if self.tls.wants_write() {
            interest |= PollFlags::OUT;
        }
        let mut fds = vec![PollFd::new(&self.stream, interest)];
        if both {
            fds.push(PollFd::new(&self.sessiond, PollFlags::IN));
        }
        // Rounded up, so that the last turn does not spin.
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        let timeout = Timespec::try_from(left).map_err(|_| End::Lost)?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(End::Lost),
        }
        // A client that is not read shows its end in this way alone.
        let gone = PollFlags::HUP | PollFlags::ERR;
        if self.busy && fds.first().is_some_and(|fd| fd.revents().intersects(gone)) {
            return Err(End::Lost);
        }
        Ok(())
    }

    fn read_tls(&mut self, bad: End) -> Result<(), End> {
        match self.tls.read_tls(&mut self.stream) {
            Ok(0) => return Err(End::Lost),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            // rustls: its buffer of plaintext is full; what is in it is read first.
            Err(error) if error.kind() == ErrorKind::Other => return Ok(()),
            Err(_) => return Err(End::Lost),
        }
        if let Err(error) = self.tls.process_new_packets() {
            // Says what is wrong, as far as the client will hear it.
            let _ = self.tls.write_tls(&mut self.stream);
            let incompatible = matches!(error, rustls::Error::PeerIncompatible(_));
            return Err(if incompatible { End::Algorithms } else { bad });
        }
        Ok(())
    }

    /// Sends what the client takes.
    fn flush(&mut self) -> Result<(), End> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => self.stuck = None,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stuck.get_or_insert_with(Instant::now);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(End::Lost),
            }
        }
        self.stuck = None;
        Ok(())
    }

    /// Hands requests on, one at a time. True if the client has closed the connection.
    fn requests(&mut self) -> Result<bool, End> {
        while !self.busy {
            if let Some(request) = self.frames.take::<Request>().map_err(|_| End::Malformed)? {
                self.tell(&ChildToSessiond::Request(request))?;
                (self.busy, self.heard) = (true, Instant::now());
                return Ok(false);
            }
            match self.tls.reader().read(self.frames.space()) {
                Ok(0) => return Ok(true),
                Ok(bytes) => self.frames.advance(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(End::Lost),
            }
        }
        Ok(false)
    }

    /// Hands answers on.
    fn answers(&mut self) -> Result<(), End> {
        loop {
            let reply = match self.sessiond.try_recv::<Reply>() {
                Ok(received) => received.message,
                Err(RecvError::Empty) => return Ok(()),
                Err(_) => return Err(End::Sessiond),
            };
            if !reply.is_unasked() {
                (self.busy, self.heard) = (false, Instant::now());
            }
            let frame = encode_frame(&reply).or_else(|_| {
                let reason = "the answer is too long for the trusted path".to_owned();
                encode_frame(&Reply::Refused { kind: RefusalKind::Unavailable, reason })
            });
            let sent = frame.map_err(io::Error::other).and_then(|frame| self.tls.writer().write_all(&frame));
            sent.map_err(|_| End::Slow)?;
        }
    }

    fn tell(&self, message: &ChildToSessiond) -> Result<(), End> {
        self.sessiond.try_send(message).map_err(|_| End::Sessiond)
    }
}
