//! The signer as a process; the test is the warden and the clients at the other ends of its channels.

use levee_ipc::federation::{Setting, Statement};
use levee_ipc::signer::{FromSigner, PpkKeys, Prf, ToSigner, Use};
use levee_ipc::warden::signer::{SignerPart as Part, Unusable};
use levee_ipc::warden::{Order, Place, Said};
use levee_ipc::{Channel, Secret};
use levee_policy::PpkId;
use levee_policy::audit::{Chain, Hash, checkpoint_message};
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use ring::signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, UnparsedPublicKey};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(15);

struct Signer {
    child: Child,
    control: Channel,
}

/// A key file, and the public key.
fn key() -> (OwnedFd, Vec<u8>) {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    (file(pair.serialize_pem().as_bytes()), pair.public_key_raw().to_vec())
}

fn file(text: &[u8]) -> OwnedFd {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text).unwrap();
    file.into()
}

fn launch(keys: &[(Use, &OwnedFd)], clients: &[(Use, OwnedFd)], place: Place) -> Signer {
    launch_with(None, keys, clients, place)
}

fn launch_with(
    passphrase: Option<&str>,
    keys: &[(Use, &OwnedFd)],
    clients: &[(Use, OwnedFd)],
    place: Place,
) -> Signer {
    launch_with_ppks(passphrase, keys, &[], clients, place)
}

fn launch_with_ppks(
    passphrase: Option<&str>,
    keys: &[(Use, &OwnedFd)],
    ppks: &[(&str, &OwnedFd)],
    clients: &[(Use, OwnedFd)],
    place: Place,
) -> Signer {
    let (control, child) = started();
    let attach = |attachment, fd: &OwnedFd| {
        let _ = control.send_with(&Order::Give(attachment), &[fd.as_fd()]);
    };
    if let Some(passphrase) = passphrase {
        let secret = Secret::new(passphrase.as_bytes().to_vec()).unwrap();
        control.send(&Order::Give(Part::Passphrase(secret))).unwrap();
    }
    for (key_use, fd) in keys {
        attach(Part::PrivateKey(*key_use), fd);
    }
    for (id, fd) in ppks {
        attach(Part::Ppk(PpkId::new(id).unwrap()), fd);
    }
    for (key_use, fd) in clients {
        attach(Part::Client(*key_use), fd);
    }
    let _ = control.send(&Order::<Part>::Begin(place));
    Signer { child, control }
}

/// A signer that has been told nothing yet.
fn started() -> (Channel, Child) {
    let (control, theirs) = Channel::pair().unwrap();
    let theirs = theirs.into_fd();
    let errors = std::io::stderr();
    let mut program = Program::new(env!("CARGO_BIN_EXE_levee-signer"));
    program.stdio = [None, None, Some(errors.as_fd())];
    program.fds = vec![theirs.as_fd()];
    let child = program.start().unwrap();
    (control, child)
}

impl Signer {
    fn ready(self) -> Self {
        assert!(matches!(self.control.recv::<Said<Unusable>>().unwrap().message, Said::Ready));
        self
    }

    fn stop(self) {
        self.control.send(&Order::<Part>::Stop).unwrap();
        assert_eq!(self.child.wait(PATIENCE).unwrap().expect("it ends").code(), 0);
    }
}

fn channel() -> (Channel, OwnedFd) {
    let (ours, theirs) = Channel::pair().unwrap();
    (ours, theirs.into_fd())
}

fn ask(channel: &Channel, request: &ToSigner) -> FromSigner {
    channel.send(request).unwrap();
    channel.recv().unwrap().message
}

fn handshake(side: &str) -> Vec<u8> {
    let context = format!("TLS 1.3, {side} CertificateVerify");
    [&[0x20; 64][..], context.as_bytes(), &[0], &[7; 32]].concat()
}

fn signed_by(public: &[u8], message: &[u8], answer: &FromSigner) -> bool {
    match answer {
        FromSigner::Signature(signature) => {
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, public).verify(message, signature).is_ok()
        }
        _ => false,
    }
}

#[test]
fn each_channel_gets_its_own_kind_signed_by_its_own_key_and_nothing_else() {
    let (tls_key, tls_public) = key();
    let (audit_key, _) = key();
    let (tls, tls_end) = channel();
    let (audit, audit_end) = channel();
    let keys = [(Use::Tls, &tls_key), (Use::Audit, &audit_key)];
    let signer = launch(&keys, &[(Use::Tls, tls_end), (Use::Audit, audit_end)], Place::Server).ready();

    let server = handshake("server");
    assert!(signed_by(&tls_public, &server, &ask(&tls, &ToSigner::TlsVerify(server.clone()))));
    let client = ToSigner::TlsVerify(handshake("client"));
    assert!(matches!(ask(&tls, &client), FromSigner::Refused), "a server does not sign as a client");
    for request in [ToSigner::AuditCheckpoint, ToSigner::AuditChain, records(0, 1)] {
        assert!(matches!(ask(&tls, &request), FromSigner::Refused), "not on this channel");
        // Nor where it belongs, without a file that says how far the log is.
        assert!(matches!(ask(&audit, &request), FromSigner::Refused));
    }
    assert!(matches!(ask(&audit, &ToSigner::TlsVerify(server)), FromSigner::Refused), "not on this channel");
    signer.stop();
}

/// So many records from this one on, each with a digest of its own.
fn records(from: u64, count: u64) -> ToSigner {
    let digests = (from..from + count).map(|n| [n as u8; 32]).collect();
    ToSigner::AuditRecords { from, digests }
}

/// A signer that keeps an audit log's hash in this file and sends checkpoints to those places.
fn launch_for_audit(key: &OwnedFd, state: &std::fs::File, away: &[OwnedFd]) -> (Signer, Channel) {
    let (audit, end) = channel();
    let (control, child) = started();
    let attach = |attachment, fd: &dyn std::os::fd::AsFd| {
        control.send_with(&Order::Give(attachment), &[fd.as_fd()]).unwrap();
    };
    attach(Part::PrivateKey(Use::Audit), key);
    attach(Part::AuditChain, state);
    away.iter().for_each(|fd| attach(Part::Checkpoints, fd));
    attach(Part::Client(Use::Audit), &end);
    control.send(&Order::<Part>::Begin(Place::Server)).unwrap();
    (Signer { child, control }, audit)
}

#[test]
fn who_takes_sessiond_over_gets_no_signature_over_a_log_that_was_written_anew() {
    let (key, public) = key();
    let state = tempfile::tempfile().unwrap();
    let (signer, audit) = launch_for_audit(&key, &state, &[]);
    let signer = signer.ready();
    let honest = (0..10u8).fold(Chain::START, |chain, n| chain.with(&Hash([n; 32])));
    assert!(
        matches!(ask(&audit, &records(0, 10)), FromSigner::Chained { count: 10, hash } if hash == honest.hash.0)
    );
    // The same log with one record changed, from its beginning or from that record on; a gap; an end cut off.
    let anew = |from: u64, to: u64| ToSigner::AuditRecords {
        from,
        digests: (from..to).map(|n| [if n == 4 { 99 } else { n as u8 }; 32]).collect(),
    };
    for forged in [anew(0, 10), anew(0, 11), anew(4, 10), anew(4, 11), anew(9, 10), anew(11, 12)] {
        assert!(matches!(ask(&audit, &forged), FromSigner::Refused), "{forged:?}");
    }
    let FromSigner::Checkpoint { count: 10, hash, signature, kept_back: false } =
        ask(&audit, &ToSigner::AuditCheckpoint)
    else {
        panic!("no checkpoint")
    };
    assert_eq!(hash, honest.hash.0, "over what was written first, whoever asks");
    let message = checkpoint_message(10, &honest.hash);
    assert!(signed_by(&public, &message, &FromSigner::Signature(signature)));

    // Another signer knows what the one before it knew, killed or stopped.
    signer.child.kill().unwrap();
    let (signer, audit) = launch_for_audit(&key, &state, &[]);
    let signer = signer.ready();
    assert!(
        matches!(ask(&audit, &ToSigner::AuditChain), FromSigner::Chained { count: 10, hash } if hash == honest.hash.0)
    );
    for forged in [anew(0, 10), anew(0, 11), anew(9, 10)] {
        assert!(matches!(ask(&audit, &forged), FromSigner::Refused), "{forged:?}");
    }
    assert!(matches!(ask(&audit, &records(10, 1024)), FromSigner::Chained { count: 1034, .. }));
    assert!(
        matches!(ask(&audit, &records(1034, 1025)), FromSigner::Refused),
        "more than one message may have"
    );
    signer.stop();

    // What cannot be read is not taken for a beginning.
    state.set_len(50).unwrap();
    let (signer, _audit) = launch_for_audit(&key, &state, &[]);
    let Said::Says(Unusable(why)) = signer.control.recv::<Said<Unusable>>().unwrap().message else {
        panic!("usable")
    };
    assert!(why.contains("is damaged") && why.contains("signer/audit.chain"), "{why}");
    assert_eq!(signer.child.wait(PATIENCE).unwrap().expect("it ends").code(), 1);
}

#[test]
fn a_checkpoint_is_sent_away_to_a_file_and_to_syslog_and_what_does_not_take_it_is_told() {
    use std::os::unix::net::UnixDatagram;
    let (key, _) = key();
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("checkpoints");
    let file = std::fs::File::options().append(true).create(true).open(&path).unwrap();
    // What is gone, and a full disk, before the one that takes it.
    let (gone, _) = UnixDatagram::pair().unwrap();
    let full = std::fs::File::options().append(true).open("/dev/full").unwrap();
    for (away, expected) in
        [(vec![theirs.into(), file.into()], false), (vec![gone.into(), full.into()], true)]
    {
        let state = tempfile::tempfile().unwrap();
        let (signer, audit) = launch_for_audit(&key, &state, &away);
        let signer = signer.ready();
        ask(&audit, &records(0, 3));
        let FromSigner::Checkpoint { count: 3, hash, kept_back, .. } =
            ask(&audit, &ToSigner::AuditCheckpoint)
        else {
            panic!("no checkpoint")
        };
        assert_eq!(kept_back, expected);
        if !expected {
            let line = std::fs::read_to_string(&path).unwrap();
            let said = format!("levee audit checkpoint 3 {} ", String::from(Hash(hash)));
            assert!(line.starts_with(&said) && line.ends_with('\n'), "{line}");
            let mut datagram = [0; 1024];
            let length = ours.recv(&mut datagram).unwrap();
            let text = std::str::from_utf8(&datagram[..length]).unwrap();
            assert_eq!(text, format!("<109>levee-signer: {}", line.trim_end()));
        }
        signer.stop();
    }
}

#[test]
fn a_key_on_p384_signs_with_sha384_and_one_of_another_kind_stops_the_start() {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let (tls, end) = channel();
    let key = file(pair.serialize_pem().as_bytes());
    let signer = launch(&[(Use::Tls, &key)], &[(Use::Tls, end)], Place::Server).ready();
    let message = handshake("server");
    let FromSigner::Signature(signature) = ask(&tls, &ToSigner::TlsVerify(message.clone())) else {
        panic!("not signed")
    };
    let public = UnparsedPublicKey::new(&ECDSA_P384_SHA384_ASN1, pair.public_key_raw());
    public.verify(&message, &signature).unwrap();
    signer.stop();
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let signer = launch(&[(Use::Tls, &file(pair.serialize_pem().as_bytes()))], &[], Place::Server);
    let Said::Says(Unusable(why)) = signer.control.recv::<Said<Unusable>>().unwrap().message else {
        panic!("usable")
    };
    assert!(why.contains("neither for ECDSA on P-256 nor on P-384"), "{why}");
    assert_eq!(signer.child.wait(PATIENCE).unwrap().expect("it ends").code(), 1);
}

#[test]
fn the_trusted_paths_server_introduces_its_children_and_they_introduce_nobody() {
    let (tls_key, public) = key();
    let (parent, end) = channel();
    let signer = launch(&[(Use::Tls, &tls_key)], &[(Use::Tls, end)], Place::Server).ready();
    let join = |through: &Channel| {
        let (child, end) = channel();
        through.send_with(&ToSigner::Join, &[end.as_fd()]).unwrap();
        child
    };
    let message = handshake("server");
    for _ in 0..50 {
        let child = join(&parent);
        assert!(signed_by(&public, &message, &ask(&child, &ToSigner::TlsVerify(message.clone()))));
    }
    let child = join(&parent);
    let grandchild = join(&child);
    let _ = grandchild.send(&ToSigner::TlsVerify(message.clone()));
    assert!(grandchild.recv::<FromSigner>().is_err(), "a child introduces nobody");
    assert!(child.recv::<FromSigner>().is_err(), "and is cut for trying");
    assert!(signed_by(&public, &message, &ask(&parent, &ToSigner::TlsVerify(message.clone()))));
    signer.stop();
}

#[test]
fn a_client_that_speaks_nonsense_or_does_not_read_loses_its_channel_and_no_one_elses() {
    let (tls_key, public) = key();
    let (parent, end) = channel();
    let signer = launch(&[(Use::Tls, &tls_key)], &[(Use::Tls, end)], Place::Server).ready();
    let message = handshake("server");
    let join = || {
        let (child, end) = channel();
        parent.send_with(&ToSigner::Join, &[end.as_fd()]).unwrap();
        child
    };
    let nonsense = join();
    nonsense.send(&u64::MAX).unwrap();
    assert!(nonsense.recv::<FromSigner>().is_err());
    let deaf = join();
    while deaf.send(&ToSigner::TlsVerify(message.clone())).is_ok() {}
    assert!(signed_by(&public, &message, &ask(&parent, &ToSigner::TlsVerify(message.clone()))));
    signer.stop();
}

#[test]
fn a_channel_without_a_key_is_refused_and_a_bad_key_file_stops_the_start() {
    let (ike, end) = channel();
    let signer = launch(&[], &[(Use::Ike, end)], Place::Server).ready();
    assert!(matches!(ask(&ike, &ToSigner::IkeAuth(vec![9; 200])), FromSigner::Refused));
    signer.stop();

    for text in [&b"no key"[..], &[b'x'; 10_000]] {
        let bad = file(text);
        let signer = launch(&[(Use::Tls, &bad)], &[], Place::Server);
        assert_eq!(signer.child.wait(PATIENCE).unwrap().expect("it ends").code(), 1);
    }
    let (one, _) = key();
    let (two, _) = key();
    let signer = launch(&[(Use::Tls, &one), (Use::Tls, &two)], &[], Place::Server);
    assert_eq!(signer.child.wait(PATIENCE).unwrap().expect("it ends").code(), 1);
}

#[test]
fn it_opens_no_file_once_it_has_begun() {
    let (tls_key, _) = key();
    let (_tls, end) = channel();
    let signer = launch(&[(Use::Tls, &tls_key)], &[(Use::Tls, end)], Place::Workstation).ready();
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", signer.child.pid.as_raw_nonzero())).unwrap();
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert_eq!(line("NoNewPrivs:").split_whitespace().nth(1), Some("1"));
    assert_eq!(line("Seccomp:").split_whitespace().nth(1), Some("2"), "a filter is in force");
    // And the filter has neither open nor socket.
    for call in ["openat", "open", "socket", "connect", "ptrace", "execve"] {
        let allowed = include_str!("../../../conf/seccomp/signer.toml")
            .lines()
            .any(|line| line.starts_with(&format!("{call} =")));
        assert!(!allowed, "{call}");
    }
    signer.stop();
}

/// The same key as OpenSSL encrypts it: PKCS#8 with PBES2.
fn encrypted(pair: &rcgen::KeyPair, passphrase: &str, how: &[&str]) -> OwnedFd {
    let mut openssl = std::process::Command::new("openssl")
        .args(["pkcs8", "-topk8", "-passout"])
        .arg(format!("pass:{passphrase}"))
        .args(how)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("run openssl (scripts/need test installs it)");
    openssl.stdin.take().unwrap().write_all(pair.serialize_pem().as_bytes()).unwrap();
    let output = openssl.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(output.stdout.starts_with(b"-----BEGIN ENCRYPTED PRIVATE KEY-----"));
    file(&output.stdout)
}

#[test]
fn an_encrypted_key_signs_with_its_passphrase_and_stops_the_start_without() {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let passphrase = "correct horse battery staple";
    for how in [
        &["-v2", "aes-256-cbc", "-v2prf", "hmacWithSHA256", "-iter", "2048"][..],
        &["-v2", "aes-128-cbc", "-scrypt", "-scrypt_N", "1024"],
    ] {
        let key = encrypted(&pair, passphrase, how);
        let (tls, end) = channel();
        let signer =
            launch_with(Some(passphrase), &[(Use::Tls, &key)], &[(Use::Tls, end)], Place::Server).ready();
        let message = handshake("server");
        let answer = ask(&tls, &ToSigner::TlsVerify(message.clone()));
        assert!(signed_by(pair.public_key_raw(), &message, &answer), "{how:?}");
        let pid = signer.child.pid.as_raw_nonzero().get();
        assert!(!remembers(pid, passphrase.as_bytes()), "the passphrase is erased");
        assert!(remembers(pid, b"levee-signer"), "what is there is found");
        signer.stop();
        for wrong in [None, Some("correct horse battery stable"), Some("")] {
            let signer = launch_with(wrong, &[(Use::Tls, &key)], &[], Place::Server);
            assert_eq!(signer.child.wait(PATIENCE).unwrap().expect("it ends").code(), 1, "{wrong:?}");
        }
    }
}

/// Whether these bytes are anywhere in a process's writable memory.
fn remembers(pid: i32, what: &[u8]) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut memory = std::fs::File::open(format!("/proc/{pid}/mem")).expect("this test needs root");
    maps.lines().filter(|line| line.contains(" rw")).any(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(end - start).unwrap()];
        memory.seek(SeekFrom::Start(start)).unwrap();
        memory.read_exact(&mut bytes).is_ok() && bytes.windows(what.len()).any(|window| window == what)
    })
}

/// A PPK of 32 bytes as base64, as it is written after `0s` for other programs.
const PPK: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn ppk(label: &str, base64: &str) -> OwnedFd {
    file(format!("-----BEGIN {label}-----\n{base64}\n-----END {label}-----\n").as_bytes())
}

fn mix(id: &str, prf: Prf, lengths: [usize; 3]) -> ToSigner {
    let mut first = 0;
    let [d, pi, pr] = lengths.map(|length| {
        first += 1;
        Secret::new(vec![first; length]).unwrap()
    });
    ToSigner::MixPpk { id: PpkId::new(id).unwrap(), prf, keys: PpkKeys { d, pi, pr } }
}

#[test]
fn a_ppk_is_mixed_into_the_keys_of_an_ike_sa_and_is_of_no_other_use() {
    let (ike, ike_end) = channel();
    let (tls, tls_end) = channel();
    let key = ppk("PRESHARED KEY", PPK);
    let clients = [(Use::Ike, ike_end), (Use::Tls, tls_end)];
    let signer = launch_with_ppks(None, &[], &[("ws1", &key)], &clients, Place::Server).ready();
    let octets: Vec<u8> = (0..32).collect();
    for (prf, length, algorithm) in [
        (Prf::HmacSha256, 32, ring::hmac::HMAC_SHA256),
        (Prf::HmacSha384, 48, ring::hmac::HMAC_SHA384),
        (Prf::HmacSha512, 64, ring::hmac::HMAC_SHA512),
    ] {
        let FromSigner::Mixed(mixed) = ask(&ike, &mix("ws1", prf, [length; 3])) else { panic!("refused") };
        let ppk = ring::hmac::Key::new(algorithm, &octets);
        for (number, mixed) in [(1, &mixed.d), (2, &mixed.pi), (3, &mixed.pr)] {
            let input = [vec![number; length], vec![1]].concat();
            assert_eq!(mixed.expose(), ring::hmac::sign(&ppk, &input).as_ref(), "{prf:?}");
        }
        // Keys of another prf, of several, or none at all; another PPK.
        for lengths in
            [[length - 1; 3], [length + 1; 3], [length, length, 0], [0, length, length], [length, 16, length]]
        {
            assert!(matches!(ask(&ike, &mix("ws1", prf, lengths)), FromSigner::Refused), "{lengths:?}");
        }
        assert!(matches!(ask(&ike, &mix("ws2", prf, [length; 3])), FromSigner::Refused));
        // Not on a channel for something else.
        assert!(matches!(ask(&tls, &mix("ws1", prf, [length; 3])), FromSigner::Refused));
    }
    signer.stop();
}

#[test]
fn what_is_no_whole_ppk_stops_the_start_and_an_encrypted_one_needs_its_passphrase() {
    let half = "AAECAwQFBgcICQoLDA0ODw==";
    for bad in [ppk("PRESHARED KEY", half), ppk("PRIVATE KEY", PPK), file(PPK.as_bytes()), key().0] {
        let signer = launch_with_ppks(None, &[], &[("ws1", &bad)], &[], Place::Server);
        assert_eq!(signer.child.wait(PATIENCE).unwrap().expect("it ends").code(), 1);
    }
    let one = ppk("PRESHARED KEY", PPK);
    let signer = launch_with_ppks(None, &[], &[("ws1", &one), ("ws1", &one)], &[], Place::Server);
    assert_eq!(signer.child.wait(PATIENCE).unwrap().expect("it ends").code(), 1, "two of one name");

    let how =
        pkcs8::pkcs5::pbes2::Parameters::generate_pbkdf2_sha256_aes256cbc(1_000, &[3; 16], [4; 16]).unwrap();
    let octets: Vec<u8> = (0..32).collect();
    // An OCTET STRING in DER.
    let sealed = how.encrypt("correct horse", &[&[4, 32], &octets[..]].concat()).unwrap();
    let sealed = pkcs8::EncryptedPrivateKeyInfoRef {
        encryption_algorithm: how.into(),
        encrypted_data: pkcs8::der::asn1::OctetStringRef::new(&sealed).unwrap(),
    };
    let sealed = pkcs8::SecretDocument::try_from(sealed).unwrap();
    let sealed = file(sealed.to_pem("ENCRYPTED PRESHARED KEY", pkcs8::LineEnding::LF).unwrap().as_bytes());
    let (ike, end) = channel();
    let ppks = [("ws1", &sealed)];
    let signer =
        launch_with_ppks(Some("correct horse"), &[], &ppks, &[(Use::Ike, end)], Place::Workstation).ready();
    let FromSigner::Mixed(mixed) = ask(&ike, &mix("ws1", Prf::HmacSha256, [32; 3])) else {
        panic!("refused")
    };
    let input = [vec![1; 32], vec![1]].concat();
    let expected = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &octets), &input);
    assert_eq!(mixed.d.expose(), expected.as_ref());
    signer.stop();
    for wrong in [None, Some("correct house")] {
        let signer = launch_with_ppks(wrong, &[], &[("ws1", &sealed)], &[], Place::Server);
        assert_eq!(signer.child.wait(PATIENCE).unwrap().expect("it ends").code(), 1, "{wrong:?}");
    }
}

#[test]
fn what_a_server_says_to_the_others_is_signed_for_sessiond_alone_and_each_number_once() {
    let (federation_key, public) = key();
    let (audit_key, _) = key();
    let (audit, audit_end) = channel();
    let (fsd, fsd_end) = channel();
    let (tls, tls_end) = channel();
    let keys = [(Use::Federation, &federation_key), (Use::Audit, &audit_key)];
    let clients = [(Use::Audit, audit_end), (Use::Federation, fsd_end), (Use::Tls, tls_end)];
    let signer = launch(&keys, &clients, Place::Server).ready();
    let statement = |epoch, number| Statement {
        site: "harbour".parse().unwrap(),
        server: "one.example".parse().unwrap(),
        epoch,
        number,
        words: vec![],
        pages: vec![],
        setting: Setting::default(),
        is_kept: true,
        signed: None,
        postures: [0; 32],
    };
    let state = |channel: &Channel, epoch, number| {
        let answer = ask(channel, &ToSigner::Statement(Box::new(statement(epoch, number))));
        match answer {
            FromSigner::Stated { epoch: of, number: n, signature } => {
                assert_eq!((of, n), (epoch, number));
                signature.inspect(|signature| {
                    let message = Statement::message(&statement(epoch, number).encode());
                    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &public);
                    key.verify(&message, signature).unwrap();
                })
            }
            _ => None,
        }
    };
    assert!(state(&audit, 5, 1).is_some() && state(&audit, 5, 2).is_some() && state(&audit, 6, 1).is_some());
    // Not twice, and nothing that goes back: not by who takes sessiond over either.
    assert!(
        state(&audit, 6, 1).is_none() && state(&audit, 5, 900).is_none() && state(&audit, 6, 0).is_none()
    );
    // etcd's client has a channel for its handshakes, and for nothing else.
    for channel in [&fsd, &tls] {
        let request = ToSigner::Statement(Box::new(statement(9, 9)));
        assert!(matches!(ask(channel, &request), FromSigner::Refused));
    }
    assert!(state(&audit, 6, 2).is_some());
    signer.stop();
}

/// Why a signer with these files does not start.
fn unusable(passphrase: Option<&str>, keys: &[(Use, &OwnedFd)], ppks: &[(&str, &OwnedFd)]) -> String {
    let signer = launch_with_ppks(passphrase, keys, ppks, &[], Place::Server);
    let Said::Says(Unusable(why)) = signer.control.recv::<Said<Unusable>>().unwrap().message else {
        panic!("usable")
    };
    assert_eq!(signer.child.wait(PATIENCE).unwrap().expect("it ends").code(), 1);
    why
}

#[test]
fn why_a_key_is_not_used_is_said_and_what_is_called_otherwise_is_none() {
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let sealed = encrypted(&pair, "correct horse", &["-v2", "aes-256-cbc", "-iter", "2048"]);
    assert!(unusable(None, &[(Use::Tls, &sealed)], &[]).contains("no passphrase was given"));
    assert!(unusable(Some("wrong"), &[(Use::Tls, &sealed)], &[]).contains("not with this passphrase"));
    // The right octets under another name, and more than any key has.
    let named = file(pair.serialize_pem().replace("PRIVATE KEY", "CERTIFICATE").as_bytes());
    for bad in [named, file(&[b'x'; 10_000])] {
        assert!(unusable(None, &[(Use::Tls, &bad)], &[]).contains("has no PKCS#8 private key"));
    }
}

#[test]
fn a_ppk_has_32_to_256_octets() {
    let of = |length: usize| {
        // 48 groups of three octets and what is left, as base64 has it.
        let octets = vec![0; length];
        let text: String = octets.chunks(3).map(|three| ["AA==", "AAA=", "AAAA"][three.len() - 1]).collect();
        let lines: Vec<String> =
            text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        ppk("PRESHARED KEY", &lines.join("\n"))
    };
    for length in [31, 257] {
        assert!(unusable(None, &[], &[("ws1", &of(length))]).contains("32 to 256 bytes"), "{length}");
    }
    for length in [32, 256] {
        let (ike, end) = channel();
        let signer = launch_with_ppks(None, &[], &[("ws1", &of(length))], &[(Use::Ike, end)], Place::Server);
        let signer = signer.ready();
        assert!(matches!(ask(&ike, &mix("ws1", Prf::HmacSha256, [32; 3])), FromSigner::Mixed(_)), "{length}");
        signer.stop();
    }
}

#[test]
fn a_request_has_the_descriptors_that_belong_to_it_and_the_trusted_path_alone_introduces() {
    let (tls_key, public) = key();
    let ends: Vec<(Channel, OwnedFd)> = (0..4).map(|_| channel()).collect();
    let uses = [Use::Tls, Use::Tls, Use::Ike, Use::Federation];
    let (ours, theirs): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let clients: Vec<(Use, OwnedFd)> = uses.into_iter().zip(theirs).collect();
    let signer = launch(&[(Use::Tls, &tls_key)], &clients, Place::Server).ready();
    drop(clients);
    let is_cut = |channel: &Channel| channel.recv::<FromSigner>().is_err();
    let message = ToSigner::TlsVerify(handshake("server"));
    // With one more than there is to be, or one where none belongs.
    let (_one, other) = (channel(), channel());
    ours[0].send_with(&ToSigner::Join, &[other.1.as_fd(), other.1.as_fd()]).unwrap();
    assert!(is_cut(&ours[0]));
    ours[1].send_with(&message, &[other.1.as_fd()]).unwrap();
    assert!(is_cut(&ours[1]));
    for of_others in &ours[2..] {
        let (child, end) = channel();
        of_others.send_with(&ToSigner::Join, &[end.as_fd()]).unwrap();
        drop(end);
        assert!(is_cut(of_others) && is_cut(&child));
    }
    // The warden gives another in the place of one.
    let (again, end) = channel();
    signer.control.send_with(&Order::Give(Part::Client(Use::Tls)), &[end.as_fd()]).unwrap();
    assert!(signed_by(&public, &handshake("server"), &ask(&again, &message)));
    signer.stop();
}

#[test]
fn so_many_are_introduced_and_no_more_but_whom_the_warden_gives() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    // It begins with this process's.
    let limit = getrlimit(Resource::Nofile);
    let more =
        rustix::process::Rlimit { current: Some(9_000), maximum: limit.maximum.map(|most| most.max(9_000)) };
    setrlimit(Resource::Nofile, more).expect("this test needs root");
    let (tls_key, public) = key();
    let (parent, end) = channel();
    let signer = launch(&[(Use::Tls, &tls_key)], &[(Use::Tls, end)], Place::Server).ready();
    let message = handshake("server");
    let request = ToSigner::TlsVerify(message.clone());
    let is_heard = |child: &Channel| {
        child.send(&request).is_ok()
            && child.recv::<FromSigner>().is_ok_and(|answer| signed_by(&public, &message, &answer.message))
    };
    let join = || {
        let (child, end) = channel();
        parent.send_with(&ToSigner::Join, &[end.as_fd()]).unwrap();
        child
    };
    // The one that introduces is one of 4,096.
    let all: Vec<Channel> = (1..4_096).map(|_| join()).collect();
    assert!(all.iter().all(is_heard));
    assert!(!is_heard(&join()), "one more");
    let (given, end) = channel();
    signer.control.send_with(&Order::Give(Part::Client(Use::Tls)), &[end.as_fd()]).unwrap();
    drop(end);
    assert!(is_heard(&given), "the warden's comes in");
    drop(all);
    signer.stop();
}

#[test]
fn a_workstation_states_nothing_to_servers() {
    let (key, _) = key();
    let (audit, end) = channel();
    let signer = launch(&[(Use::Federation, &key)], &[(Use::Audit, end)], Place::Workstation).ready();
    let statement = Statement {
        site: "harbour".parse().unwrap(),
        server: "one.example".parse().unwrap(),
        epoch: 1,
        number: 1,
        words: vec![],
        pages: vec![],
        setting: Setting::default(),
        is_kept: true,
        signed: None,
        postures: [0; 32],
    };
    assert!(matches!(ask(&audit, &ToSigner::Statement(Box::new(statement))), FromSigner::Refused));
    signer.stop();
}

#[test]
fn a_place_that_takes_no_checkpoint_keeps_none_from_those_behind_it() {
    let (key, _) = key();
    let (gone, _) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let mut file = tempfile::tempfile().unwrap();
    let (signer, audit) = launch_for_audit(
        &key,
        &tempfile::tempfile().unwrap(),
        &[gone.into(), file.try_clone().unwrap().into()],
    );
    let signer = signer.ready();
    ask(&audit, &records(0, 3));
    let answer = ask(&audit, &ToSigner::AuditCheckpoint);
    assert!(matches!(answer, FromSigner::Checkpoint { count: 3, kept_back: true, .. }));
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("levee audit checkpoint 3 "), "{text}");
    signer.stop();
}
