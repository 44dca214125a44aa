//! sessiond or the signer may say anything at any rate and never read: that costs fsd a bounded amount of memory. A sessiond that asks
//! more than it may is its end; a signer that says more than it is asked is the end of the one handshake.

use levee_hostile::{MOST, bears, flood, watched};
use levee_ipc::Channel;
use levee_ipc::federation::{Ask, Heard};
use levee_ipc::signer::FromSigner;
use levee_ipc::warden::fsd::FsdPart;
use levee_ipc::warden::{Nothing, Order, Place, Said};
use levee_policy::DomainName;
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);
const ETCD: &str = "etcd.example";

fn readable(fd: impl AsFd, within: Duration) -> bool {
    let limit = Timespec::try_from(within).unwrap();
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).unwrap() > 0
}

fn hear<T: DeserializeOwned>(channel: &Channel) -> T {
    assert!(readable(channel, PATIENCE), "nothing came");
    channel.recv().unwrap().message
}

fn name(text: &str) -> DomainName {
    DomainName::new(text).unwrap()
}

fn file(text: &str) -> OwnedFd {
    let mut file = File::from(memfd_create("certificates", MemfdFlags::CLOEXEC).unwrap());
    file.write_all(text.as_bytes()).unwrap();
    file.into()
}

/// An authority, and a certificate of this name with its key: all in PEM.
fn certified(name: &str) -> [String; 3] {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let authority = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(SanType::DnsName(name.try_into().unwrap()));
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    [authority, params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem()]
}

/// An fsd, the other ends of its channels, and etcd's listener.
struct Fsd {
    child: Child,
    _warden: Channel,
    sessiond: Channel,
    signer: Channel,
    etcd: TcpListener,
}

impl Drop for Fsd {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

impl Fsd {
    fn start(authority: &str, chain: &str) -> Self {
        let etcd = TcpListener::bind("127.0.0.1:0").unwrap();
        let (warden, theirs) = Channel::pair().unwrap();
        let mut program = Program::new(env!("CARGO_BIN_EXE_levee-fsd"));
        let stderr = std::io::stderr();
        program.stdio[2] = Some(stderr.as_fd());
        program.fds = vec![theirs.as_fd()];
        let child = program.start().unwrap();
        let give = |part, fd: OwnedFd| warden.send_with(&Order::Give(part), &[fd.as_fd()]).unwrap();
        let address = etcd.local_addr().unwrap();
        warden.send(&Order::Give(FsdPart::Server { address, name: name(ETCD) })).unwrap();
        let member = FsdPart::Member { site: "harbour".parse().unwrap(), server: name("one.example") };
        warden.send(&Order::Give(member)).unwrap();
        give(FsdPart::Chain, file(chain));
        give(FsdPart::Authority, file(authority));
        let [sessiond, signer] = [FsdPart::Sessiond, FsdPart::Signer].map(|part| {
            let (ours, theirs) = Channel::pair().unwrap();
            give(part, theirs.into_fd());
            ours
        });
        warden.send(&Order::<FsdPart>::Begin(Place::Server)).unwrap();
        assert!(matches!(hear(&warden), Said::<Nothing>::Ready));
        Self { child, _warden: warden, sessiond, signer, etcd }
    }

    fn pid(&self) -> i32 {
        self.child.pid.as_raw_nonzero().get()
    }
}

fn join(attempt: u64) -> Ask {
    Ask::Join { attempt, servers: vec![name("one.example"), name("two.example")] }
}

/// Floods: sessiond → fsd.
#[test]
fn a_sessiond_that_asks_without_end_ends_its_fsd() {
    let [authority, chain, _] = certified("one.example");
    let put = |number| Ask::Put {
        attempt: 0,
        number,
        envelope: vec![7; 30_000],
        pages: vec![(1, vec![9; 20_000])],
    };
    for (what, word) in [("joins", join as fn(u64) -> Ask), ("statements", put)] {
        // etcd takes the connection, and says nothing.
        let fsd = Fsd::start(&authority, &chain);
        let asked = bears(fsd.pid(), what, || flood(&fsd.sessiond, LONG, word));
        assert!(asked.cut && readable(&fsd.child.pidfd, PATIENCE), "{what}: {asked:?}");
        assert!(asked.said < 10_000, "{what}: {asked:?}");
    }
    let fsd = Fsd::start(&authority, &chain);
    let nonsense = bears(fsd.pid(), "nonsense", || flood(&fsd.sessiond, LONG, |_| vec![0xffu8; 5_000]));
    assert!(nonsense.cut && readable(&fsd.child.pidfd, PATIENCE), "{nonsense:?}");
}

/// Floods: signer → fsd.
#[test]
fn a_signer_that_says_more_than_it_is_asked_ends_the_handshake_and_nothing_else() {
    let [authority, chain, key] = certified(ETCD);
    let fsd = Fsd::start(&authority, &chain);
    let mut roots = RootCertStore::empty();
    let of = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    roots.add(of(&authority)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let asks = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(asks.unwrap())
        .with_single_cert(vec![of(&chain)], PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap());
    let config = Arc::new(config.unwrap());
    let etcd = fsd.etcd.try_clone().unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = etcd.accept() {
            let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
            // It ends as the handshake does.
            while tls.is_handshaking() && tls.complete_io(&mut stream).is_ok() {}
        }
    });
    let over = AtomicBool::new(false);
    let (heard, grown) = watched(fsd.pid(), || {
        std::thread::scope(|scope| {
            let signer = &fsd.signer;
            let loud = scope.spawn(|| {
                let word = |n: u64| FromSigner::Signature(vec![7; n as usize % 4_000]);
                let mut said = 0;
                while !over.load(Ordering::Relaxed) {
                    said += flood(signer, Duration::from_millis(50), word).said;
                }
                said
            });
            let tell = |attempt| {
                fsd.sessiond.send(&join(attempt)).ok()?;
                readable(&fsd.sessiond, PATIENCE).then(|| fsd.sessiond.recv::<Heard>().ok())?
            };
            let heard: Vec<_> = (1..4).map_while(tell).collect();
            over.store(true, Ordering::Relaxed);
            assert!(loud.join().unwrap() > 0);
            heard
        })
    });
    let lost = heard.iter().filter(|heard| matches!(heard.message, Heard::Lost { .. })).count();
    assert_eq!(lost, 3, "{heard:?}");
    assert!(grown < MOST, "{grown} KiB");
    assert!(fsd.child.try_wait().unwrap().is_none(), "it goes on");
}
