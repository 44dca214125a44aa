//! Any client may ask at any rate and never read: that costs the signer a bounded amount of memory and the client its channel, and every
//! other client is answered.

use levee_hostile::{bears, flood};
use levee_ipc::Channel;
use levee_ipc::signer::{DIGESTS, FromSigner, ToSigner, Use};
use levee_ipc::warden::signer::{SignerPart, Unusable};
use levee_ipc::warden::{Order, Place, Said};
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const USES: [Use; 4] = [Use::Tls, Use::Ike, Use::Audit, Use::Federation];

struct Signer {
    child: Child,
    warden: Channel,
}

impl Drop for Signer {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

impl Signer {
    /// One with a key for each use.
    fn start(place: Place) -> Self {
        let (warden, theirs) = Channel::pair().unwrap();
        let mut program = Program::new(env!("CARGO_BIN_EXE_levee-signer"));
        let stderr = std::io::stderr();
        program.stdio[2] = Some(stderr.as_fd());
        program.fds = vec![theirs.as_fd()];
        let child = program.start().unwrap();
        for key_use in USES {
            let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(key.serialize_pem().as_bytes()).unwrap();
            warden.send_with(&Order::Give(SignerPart::PrivateKey(key_use)), &[file.as_fd()]).unwrap();
        }
        warden.send(&Order::<SignerPart>::Begin(place)).unwrap();
        assert!(matches!(warden.recv::<Said<Unusable>>().unwrap().message, Said::Ready));
        Self { child, warden }
    }

    fn client(&self, key_use: Use) -> Channel {
        let (ours, theirs) = Channel::pair().unwrap();
        self.warden.send_with(&Order::Give(SignerPart::Client(key_use)), &[theirs.as_fd()]).unwrap();
        ours
    }

    /// A client of this use asks without end, and then says what is no message; others are answered.
    fn bears(&self, what: &str, channel: impl Fn() -> Channel, word: fn(u64) -> ToSigner) {
        let others = USES.map(|key_use| self.client(key_use));
        let pid = self.child.pid.as_raw_nonzero().get();
        let (deaf, loud) = (channel(), channel());
        let asked = bears(pid, what, || flood(&deaf, LONG, word));
        assert!(asked.cut, "{what}: {asked:?}");
        let nonsense = bears(pid, what, || flood(&loud, LONG, |_| vec![0xffu8; 5_000]));
        assert!(nonsense.cut, "{what}: {nonsense:?}");
        for (other, key_use) in others.iter().zip(USES) {
            other.send(&ToSigner::IkeAuth(vec![7; 100])).unwrap();
            let answer = other.recv::<FromSigner>().unwrap().message;
            assert_eq!(matches!(answer, FromSigner::Signature(_)), key_use == Use::Ike, "{what}: {answer:?}");
        }
    }
}

fn handshake(_: u64) -> ToSigner {
    let context = b"TLS 1.3, server CertificateVerify";
    ToSigner::TlsVerify([&[0x20; 64][..], context, &[0], &[7; 32]].concat())
}

/// Floods: tps → signer; tps child → signer; keyer → signer; sessiond → signer; fsd → signer.
#[test]
fn any_client_of_a_servers_that_asks_and_never_reads_is_cut_off_and_every_other_is_answered() {
    let signer = Signer::start(Place::Server);
    let tps = signer.client(Use::Tls);
    let child = || {
        let (ours, theirs) = Channel::pair().unwrap();
        tps.send_with(&ToSigner::Join, &[theirs.as_fd()]).unwrap();
        ours
    };
    signer.bears("tps", || signer.client(Use::Tls), handshake);
    signer.bears("a child of it", child, handshake);
    signer.bears("the keyer", || signer.client(Use::Ike), |n| ToSigner::IkeAuth(vec![n as u8; 100]));
    let records = |from| ToSigner::AuditRecords { from, digests: vec![[7; 32]; DIGESTS] };
    signer.bears("sessiond, about its log", || signer.client(Use::Audit), records);
    signer.bears("sessiond, about checkpoints", || signer.client(Use::Audit), |_| ToSigner::AuditCheckpoint);
    signer.bears("fsd", || signer.client(Use::Federation), handshake);
}

/// Floods: tpe's agent → signer.
#[test]
fn an_agent_that_asks_and_never_reads_is_cut_off_and_every_other_client_is_answered() {
    let signer = Signer::start(Place::Workstation);
    let proof = |n: u64| ToSigner::DeviceProof {
        server: "server.example".parse().unwrap(),
        nonce: [n as u8; 32],
        exporter: [1; 32],
    };
    signer.bears("the agent", || signer.client(Use::Tls), proof);
}
