//! A trusted path server with a real signer, and a test program in the place of the warden and sessiond.
//!
//! The programs are those of the workspace: build it whole first (`cargo build --workspace`).
#![allow(dead_code, reason = "each test file uses its part")]

use levee_ipc::client::{ChildToSessiond, Dropped, Reply, Request, TpsToSessiond};
use levee_ipc::signer::Use;
use levee_ipc::warden::signer::SignerPart;
use levee_ipc::warden::tps::TpsPart;
use levee_ipc::warden::{Nothing, Order, Part, Place, Said};
use levee_ipc::{Channel, FrameReader, encode_frame};
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Long enough for a loaded machine; nothing that works waits for it.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// The server's name in its certificate.
pub const SERVER: &str = "server.small.example";

/// One of the workspace's programs.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(|deps| deps.parent()).unwrap().join(name);
    assert!(path.exists(), "{} is not built: run `cargo build --workspace` first", path.display());
    path
}

/// A sealed-to-be file with these bytes.
pub fn memory_file(bytes: &[u8]) -> OwnedFd {
    let mut file = std::fs::File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(bytes).unwrap();
    file.into()
}

/// Starts a program with its control channel at descriptor 3.
pub fn start(name: &str, arguments: &[&str]) -> (Child, Channel) {
    let (ours, theirs) = Channel::pair().unwrap();
    let stderr = io::stderr();
    let mut program = Program::new(program(name));
    program.args.extend(arguments.iter().map(Into::into));
    program.fds = vec![theirs.as_fd()];
    program.stdio = [None, None, Some(stderr.as_fd())];
    (program.start().unwrap(), ours)
}

/// Gives a part with its descriptor.
pub fn give(control: &Channel, part: impl Part, fd: impl AsFd) {
    control.send_with(&Order::Give(part), &[fd.as_fd()]).unwrap();
}

/// Whether something is to be read within this time.
pub fn readable(fd: impl AsFd, within: Duration) -> bool {
    let timeout = Timespec::try_from(within).unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

/// The next message, which must come.
pub fn next<T: DeserializeOwned>(channel: &Channel) -> T {
    assert!(readable(channel, PATIENCE), "nothing came in {PATIENCE:?}");
    channel.try_recv().unwrap().message
}

/// Lets a process begin and waits until it is at work.
pub fn begin(control: &Channel, place: Place) {
    control.send(&Order::<Nothing>::Begin(place)).unwrap();
    assert!(matches!(next::<Said<Nothing>>(control), Said::Ready));
}

/// A key and its certificate, as PEM.
#[derive(Clone)]
pub struct Identity {
    pub chain: String,
    pub key: String,
    pub serial: [u8; 16],
}

/// A site's authority.
pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// Signs a certificate for `names`, valid for `days` from a day ago.
    pub fn sign(&self, names: &[&str], usage: ExtendedKeyUsagePurpose, days: i64) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        // Positive, and as short as DER wants it.
        let mut serial: [u8; 16] = key.public_key_raw()[1..17].try_into().unwrap();
        serial[0] = serial[0] & 0x3f | 0x40;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.distinguished_name.push(DnType::CommonName, "leaf");
        params.subject_alt_names =
            names.iter().map(|&name| SanType::DnsName(name.try_into().unwrap())).collect();
        params.extended_key_usages = vec![usage];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.not_before = time::OffsetDateTime::now_utc() - time::Duration::days(1);
        params.not_after = params.not_before + time::Duration::days(days);
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { chain, key: key.serialize_pem(), serial }
    }

    /// A revocation list that names the certificate of this identity, or none.
    pub fn list(&self, revoked: Option<&Identity>) -> String {
        let now = time::OffsetDateTime::now_utc();
        let entry = |identity: &Identity| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&identity.serial),
            revocation_time: now,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: now - time::Duration::days(1),
            next_update: now + time::Duration::days(1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.map(entry).into_iter().collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    pub fn device(&self, name: &str) -> Identity {
        self.sign(&[name], ExtendedKeyUsagePurpose::ClientAuth, 30)
    }

    pub fn server(&self) -> Identity {
        self.sign(&[SERVER], ExtendedKeyUsagePurpose::ServerAuth, 30)
    }
}

/// A signer with one TLS key and one client of it.
pub struct Signer {
    pub process: Child,
    control: Channel,
}

impl Drop for Signer {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

impl Signer {
    /// Another channel to it.
    pub fn client(&self) -> Channel {
        let (ours, theirs) = Channel::pair().unwrap();
        give(&self.control, SignerPart::Client(Use::Tls), &theirs);
        ours
    }
}

/// Starts a signer with this key; the channel to it.
pub fn signer(key: &str, place: Place) -> (Signer, Channel) {
    let (process, control) = start("levee-signer", &[]);
    give(&control, SignerPart::PrivateKey(Use::Tls), memory_file(key.as_bytes()));
    let (ours, theirs) = Channel::pair().unwrap();
    give(&control, SignerPart::Client(Use::Tls), &theirs);
    begin(&control, place);
    (Signer { process, control }, ours)
}

/// A trusted path server.
pub struct Server {
    pub process: Child,
    pub control: Channel,
    /// sessiond's end of the channel to it.
    pub sessiond: Channel,
    pub address: SocketAddr,
    pub authority: Authority,
    pub signer: Signer,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
    }
}

impl Server {
    /// Starts one that listens at this address of the machine itself.
    pub fn at(address: IpAddr) -> Self {
        let authority = Authority::new();
        let identity = authority.server();
        let (signer, to_signer) = signer(&identity.key, Place::Server);
        let (process, control) = start("levee-tps", &[]);
        let listener = TcpListener::bind((address, 0)).unwrap();
        // The standard library's queue of 128 is short of what is tried here.
        rustix::net::listen(&listener, 4096).unwrap();
        let address = listener.local_addr().unwrap();
        let (sessiond, theirs) = Channel::pair().unwrap();
        give(&control, TpsPart::Listener, &listener);
        give(&control, TpsPart::Sessiond, &theirs);
        give(&control, TpsPart::Signer, &to_signer);
        give(&control, TpsPart::Chain, memory_file(identity.chain.as_bytes()));
        give(&control, TpsPart::Authority, memory_file(authority.pem.as_bytes()));
        begin(&control, Place::Server);
        Self { process, control, sessiond, address, authority, signer }
    }

    pub fn new() -> Self {
        Self::at([127, 0, 0, 1].into())
    }

    /// The next client that sessiond hears of; none where that one is `gone` before.
    pub fn client_unless(&self, mut gone: impl FnMut() -> bool) -> Option<(SocketAddr, Channel)> {
        let until = Instant::now() + PATIENCE;
        loop {
            if readable(&self.sessiond, Duration::from_millis(5)) {
                let mut received = self.sessiond.try_recv::<TpsToSessiond>().unwrap();
                if let TpsToSessiond::Client(address) = received.message {
                    return Some((address, Channel::from_fd(received.fds.pop().unwrap())));
                }
            } else if gone() {
                return None;
            }
            assert!(Instant::now() < until, "no client came in {PATIENCE:?}");
        }
    }

    /// The next client that sessiond hears of.
    pub fn client(&self) -> (SocketAddr, Channel) {
        loop {
            assert!(readable(&self.sessiond, PATIENCE), "no client came in {PATIENCE:?}");
            let mut received = self.sessiond.try_recv::<TpsToSessiond>().unwrap();
            if let TpsToSessiond::Client(address) = received.message {
                return (address, Channel::from_fd(received.fds.pop().unwrap()));
            }
        }
    }

    /// The next client, which introduces itself.
    pub fn introduced(&self) -> Channel {
        let (_, channel) = self.client();
        match next::<ChildToSessiond>(&channel) {
            ChildToSessiond::Hello { exporter } => assert_ne!(exporter, [0; 32]),
            ChildToSessiond::Request(_) => panic!("a request before the introduction"),
        }
        channel
    }

    /// How many connections were counted as dropped for this reason, in the next report.
    pub fn dropped(&self) -> Vec<(String, u64)> {
        loop {
            if let TpsToSessiond::Dropped(counts) = next(&self.sessiond) {
                // Whoever connects here is on this host; what has no client has no network.
                let here = |dropped: &Dropped| dropped.from.is_none_or(|net| net.addr().is_loopback());
                assert!(counts.iter().all(here), "{counts:?}");
                return counts.into_iter().map(|dropped| (dropped.reason, dropped.count)).collect();
            }
        }
    }
}

/// A TLS client's settings.
pub fn client_config(authority: &str, identity: Option<&Identity>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match identity {
        Some(Identity { chain, key, .. }) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap(),
        None => builder.with_no_client_auth(),
    })
}

/// A client of the trusted path.
pub struct Client {
    pub tls: StreamOwned<ClientConnection, TcpStream>,
    frames: FrameReader,
}

impl Client {
    /// Connects from `from` and completes its side of the handshake.
    pub fn connect_from(from: IpAddr, to: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let mut stream = connect_from(from, to)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let name = ServerName::try_from(SERVER).unwrap();
        let mut tls = ClientConnection::new(Arc::clone(config), name).unwrap();
        while tls.is_handshaking() || tls.wants_write() {
            tls.complete_io(&mut stream)?;
        }
        Ok(Self { tls: StreamOwned::new(tls, stream), frames: FrameReader::default() })
    }

    pub fn connect(to: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<Self> {
        Self::connect_from([127, 0, 0, 1].into(), to, config)
    }

    pub fn send(&mut self, request: &Request) {
        self.tls.write_all(&encode_frame(request).unwrap()).unwrap();
    }

    /// The next reply, or the error that ended the connection.
    pub fn reply(&mut self) -> io::Result<Reply> {
        loop {
            if let Some(reply) = self.frames.take().map_err(io::Error::other)? {
                return Ok(reply);
            }
            match self.tls.read(self.frames.space())? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                bytes => self.frames.advance(bytes),
            }
        }
    }

    /// Whether the server ends the connection within this time.
    pub fn ends_within(&mut self, time: Duration) -> bool {
        self.tls.sock.set_read_timeout(Some(time)).unwrap();
        let reply = self.reply();
        self.tls.sock.set_read_timeout(Some(PATIENCE)).unwrap();
        match reply {
            Ok(_) => false,
            Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
        }
    }
}

/// A TCP connection from a chosen address of the machine itself.
pub fn connect_from(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}
