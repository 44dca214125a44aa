//! The trusted path server as a process, under good clients and bad ones.

mod common;

use common::{
    Authority, Client, Identity, PATIENCE, Server, client_config, connect_from, give, memory_file, next,
    readable,
};
use levee_ipc::client::{ChildToSessiond, MAX_FRAME, Reply, Request, Status};
use levee_ipc::warden::Order;
use levee_ipc::warden::tps::TpsPart;
use levee_ipc::{Channel, RecvError, Secret};
use levee_policy::UserName;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::{ClientConfig, RootCertStore};
use std::io::{Read, Seek, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn good(server: &Server) -> std::sync::Arc<rustls::ClientConfig> {
    client_config(&server.authority.pem, Some(&server.authority.device("ws1")))
}

/// A client that is let in, and sessiond's channel to its child.
fn let_in(server: &Server) -> (Client, Channel) {
    let client = Client::connect(server.address, &good(server)).unwrap();
    let channel = server.introduced();
    (client, channel)
}

fn request(channel: &Channel) -> Request {
    match next::<ChildToSessiond>(channel) {
        ChildToSessiond::Request(request) => request,
        ChildToSessiond::Hello { .. } => panic!("a second introduction"),
    }
}

fn status() -> Reply {
    Reply::Status(Status { user: None, session: None, age: 7, locked: false })
}

fn closed(channel: &Channel) -> bool {
    readable(channel, PATIENCE) && matches!(channel.try_recv::<ChildToSessiond>(), Err(RecvError::Closed))
}

#[test]
fn a_device_is_introduced_and_its_requests_and_their_answers_pass() {
    let server = Server::new();
    let (mut client, channel) = let_in(&server);
    let password = Secret::new(b"correct horse".to_vec()).unwrap();
    client.send(&Request::Login { user: UserName::new("ada").unwrap(), password, code: None });
    match request(&channel) {
        Request::Login { user, password, code: None } => {
            assert_eq!(user.as_str(), "ada");
            assert_eq!(password.expose(), b"correct horse");
        }
        other => panic!("{other:?}"),
    }
    channel.send(&status()).unwrap();
    assert!(matches!(client.reply().unwrap(), Reply::Status(status) if status.age == 7));
}

#[test]
fn who_is_let_in_takes_no_place_at_the_signer_and_its_child_signs_nothing_any_more() {
    let server = Server::new();
    let descriptors = || {
        let directory = format!("/proc/{}/fd", server.signer.process.pid.as_raw_nonzero());
        std::fs::read_dir(directory).unwrap().count()
    };
    let before = descriptors();
    let mut clients: Vec<(Client, Channel)> = (0..8).map(|_| let_in(&server)).collect();
    let until = Instant::now() + PATIENCE;
    while descriptors() > before {
        assert!(Instant::now() < until, "{before} descriptors became {}", descriptors());
        std::thread::sleep(Duration::from_millis(5));
    }
    // They are all there still.
    for (client, channel) in &mut clients {
        client.send(&Request::Status);
        assert!(matches!(request(channel), Request::Status));
    }
}

#[test]
fn requests_are_handed_on_one_at_a_time_and_notices_pass_at_any_time() {
    let server = Server::new();
    let (mut client, channel) = let_in(&server);
    channel.send(&Reply::Ended { reason: "an operator ended it".into() }).unwrap();
    assert!(matches!(client.reply().unwrap(), Reply::Ended { .. }));
    client.send(&Request::Status);
    client.send(&Request::KeepAlive);
    assert!(matches!(request(&channel), Request::Status));
    channel.send(&Reply::Renew { passes: Vec::new(), carriage: Default::default() }).unwrap();
    assert!(matches!(client.reply().unwrap(), Reply::Renew { .. }));
    assert!(!readable(&channel, Duration::from_millis(300)), "the second waits for the answer to the first");
    channel.send(&status()).unwrap();
    assert!(matches!(client.reply().unwrap(), Reply::Status(_)));
    assert!(matches!(request(&channel), Request::KeepAlive));
}

#[test]
fn only_devices_of_the_sites_authority_reach_sessiond() {
    let server = Server::new();
    let strangers = Authority::new();
    let expired = server.authority.sign(&["ws1"], ExtendedKeyUsagePurpose::ClientAuth, 0);
    let as_server = server.authority.server();
    let nameless = server.authority.sign(&["ws1", "ws2"], ExtendedKeyUsagePurpose::ClientAuth, 30);
    let strange = strangers.device("ws1");
    let refused: [Option<&Identity>; 5] =
        [None, Some(&strange), Some(&expired), Some(&as_server), Some(&nameless)];
    for identity in refused {
        let config = client_config(&server.authority.pem, identity);
        // In TLS 1.3 a client learns only after its own handshake that it was refused.
        if let Ok(mut client) = Client::connect(server.address, &config) {
            assert!(client.ends_within(PATIENCE));
        }
    }
    // A cipher that the site does not take, and nothing else.
    let provider = rustls::crypto::CryptoProvider {
        cipher_suites: vec![rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..rustls::crypto::ring::default_provider()
    };
    let with = ClientConfig::builder_with_provider(Arc::new(provider));
    let with = with.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
    let with = with.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let refused = Client::connect(server.address, &Arc::new(with)).err().expect("no cipher in common");
    assert!(refused.to_string().contains("HandshakeFailure"), "{refused}");
    let counts = server.dropped();
    let count = |name: &str| counts.iter().find(|(reason, _)| reason == name).map_or(0, |(_, count)| *count);
    assert_eq!((count("handshake"), count("device_name")), (4, 1), "{counts:?}");
    assert_eq!(count("no_common_algorithms"), 1, "{counts:?}");
    let _ = let_in(&server);
}

#[test]
fn a_revoked_device_is_cut_and_refused_and_every_other_may_come_again() {
    let server = Server::new();
    let (ada, mia) = (server.authority.device("ws1"), server.authority.device("ws2"));
    let connect = |identity: &Identity| {
        Client::connect(server.address, &client_config(&server.authority.pem, Some(identity)))
    };
    let mut clients = [connect(&ada).unwrap(), connect(&mia).unwrap()];
    let channels = [server.introduced(), server.introduced()];
    let mut list = std::fs::File::from(memory_file(server.authority.list(Some(&ada)).as_bytes()));
    list.rewind().unwrap();
    give(&server.control, TpsPart::Revocations, &list);
    for (client, channel) in clients.iter_mut().zip(&channels) {
        assert!(client.ends_within(PATIENCE), "each has to show its certificate again");
        assert!(closed(channel));
    }
    if let Ok(mut client) = connect(&ada) {
        assert!(client.ends_within(PATIENCE));
    }
    let _mia = connect(&mia).unwrap();
    let _mias = server.introduced();
    // Without a valid list, the one before it counts on.
    give(&server.control, TpsPart::Revocations, memory_file(b"nonsense"));
    if let Ok(mut client) = connect(&ada) {
        assert!(client.ends_within(PATIENCE));
    }
    // What came to nothing is told every ten seconds.
    let mut counts = std::collections::BTreeMap::<String, u64>::new();
    let expected = [("handshake", 2), ("must_show_its_certificate_again", 2), ("revocation_list", 1)];
    while expected.iter().any(|(name, count)| counts.get(*name).copied().unwrap_or(0) < *count) {
        for (reason, count) in server.dropped() {
            *counts.entry(reason).or_default() += count;
        }
    }
    assert!(expected.iter().all(|(name, count)| counts[*name] == *count), "{counts:?}");
}

/// A frame of the smallest class that begins so.
fn frame(begins: &[u8]) -> Vec<u8> {
    let class = levee_ipc::CLASSES[0];
    let mut frame = u16::try_from(class).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(begins);
    frame.resize(2 + class, 0);
    frame
}

#[test]
fn garbage_before_tls_and_inside_it_ends_only_its_own_connection() {
    let server = Server::new();
    let (mut good, channel) = let_in(&server);
    for garbage in [vec![0u8; 400], b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(8), vec![0xff; 20_000]] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(&garbage);
        let mut rest = Vec::new();
        // The end, by a close or a reset.
        let _ = stream.read_to_end(&mut rest);
    }
    let bad_frames: [Vec<u8>; 4] = [
        vec![0, 0],
        u16::try_from(MAX_FRAME + 1).unwrap().to_be_bytes().to_vec(),
        frame(&[0, 4, 0xff, 0xff, 0xff, 0xff]),
        // A request with a byte left over.
        frame(&[0, 2, 5, 0]),
    ];
    for frame in bad_frames {
        let (mut bad, its_channel) = let_in(&server);
        bad.tls.write_all(&frame).unwrap();
        assert!(bad.ends_within(PATIENCE), "{frame:?}");
        assert!(closed(&its_channel), "sessiond hears nothing of {frame:?} but the end");
    }
    let (mut cut, its_channel) = let_in(&server);
    cut.tls.write_all(&[0, 9, 1]).unwrap();
    drop(cut);
    assert!(closed(&its_channel));
    good.send(&Request::Status);
    assert!(matches!(request(&channel), Request::Status));
}

/// How long a good client waits for its handshake and the answer to one request.
fn waits(server: &Server, config: &std::sync::Arc<rustls::ClientConfig>, from: IpAddr) -> Duration {
    let started = Instant::now();
    // A handshake in a crowd of the client's own source may have to give way, also when the client's part of it is done; a TPE
    // tries again at once.
    let (mut client, channel) = loop {
        assert!(started.elapsed() < PATIENCE);
        let Ok(mut client) = Client::connect_from(from, server.address, config) else { continue };
        let gone = || client.ends_within(Duration::from_millis(1));
        if let Some((_, channel)) = server.client_unless(gone) {
            break (client, channel);
        }
    };
    assert!(matches!(next(&channel), ChildToSessiond::Hello { .. }));
    client.send(&Request::Status);
    assert!(matches!(request(&channel), Request::Status));
    channel.send(&status()).unwrap();
    client.reply().unwrap();
    started.elapsed()
}

/// The first flight of a handshake, so that the server starts a child that then waits.
fn client_hello() -> Vec<u8> {
    let authority = Authority::new();
    let config = client_config(&authority.pem, None);
    let name = rustls::pki_types::ServerName::try_from(common::SERVER).unwrap();
    let mut tls = rustls::ClientConnection::new(config, name).unwrap();
    let mut hello = Vec::new();
    tls.write_tls(&mut hello).unwrap();
    hello
}

fn thousand(server: &Server, from: IpAddr, first: &[u8]) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = connect_from(from, server.address).unwrap();
        if !first.is_empty() {
            let _ = stream.write_all(first);
        }
        stream
    };
    (0..1000).map(connect).collect()
}

#[test]
fn a_thousand_bad_clients_at_once_do_not_delay_a_good_one() {
    let config_of = good;
    let hello = client_hello();
    let half = hello.get(..hello.len() / 2).unwrap();
    for (what, first) in [
        ("half-open", &[][..]),
        ("one byte", &[22][..]),
        ("half a ClientHello", half),
        ("a ClientHello and silence", &hello),
        ("garbage", &[0x55; 300]),
    ] {
        let server = Server::new();
        let config = config_of(&server);
        let quantiles = |from: IpAddr| {
            let mut times: Vec<Duration> = (0..9).map(|_| waits(&server, &config, from)).collect();
            times.sort_unstable();
            (times[4], times[7], times[8])
        };
        // One who waited for one of the crowd to be given up would wait for 5 s, and one behind all of it for much longer. How much
        // less than that it is depends on what else runs on this machine.
        let alone = quantiles([127, 0, 0, 9].into());
        for (source, from) in [("another", [127, 0, 0, 9]), ("the same", [127, 0, 0, 1])] {
            let crowd = thousand(&server, [127, 0, 0, 1].into(), first);
            let crowded = quantiles(from.into());
            println!(
                "{what}, from {source} source: median, worst but one, worst {crowded:?}, alone {alone:?}"
            );
            let said = format!("{what}, {source} source: {crowded:?}, alone {alone:?}");
            assert!(crowded.0 < alone.0 + Duration::from_secs(1), "{said}");
            if source == "another" {
                assert!(crowded.1 < alone.2 + Duration::from_secs(1), "{said}");
            }
            assert!(crowded.2 < Duration::from_secs(4), "{said}");
            drop(crowd);
        }
    }
}

#[test]
fn a_silent_client_and_a_handshake_that_does_not_end_are_closed_after_their_time() {
    let server = Server::new();
    for first in [Vec::new(), client_hello()] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        stream.write_all(&first).unwrap();
        let started = Instant::now();
        let mut rest = Vec::new();
        if let Err(error) = stream.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
        let took = started.elapsed();
        assert!((4..7).contains(&took.as_secs()), "{took:?}");
    }
}

#[test]
fn clients_end_with_sessiond_and_are_served_again_with_the_next_one() {
    let mut server = Server::new();
    let (mut client, channel) = let_in(&server);
    drop(channel);
    assert!(client.ends_within(PATIENCE));
    let (next, theirs) = Channel::pair().unwrap();
    server.sessiond = next;
    let config = good(&server);
    let refused = Client::connect(server.address, &config);
    assert!(refused.is_err() || refused.is_ok_and(|mut client| client.ends_within(PATIENCE)));
    common::give(&server.control, TpsPart::Sessiond, &theirs);
    drop(theirs);
    // The listener hears of it in its next turn.
    std::thread::sleep(Duration::from_millis(100));
    let _ = let_in(&server);
}

#[test]
fn every_child_dies_with_the_listener() {
    let server = Server::new();
    let (mut client, channel) = let_in(&server);
    server.process.signal(rustix::process::Signal::KILL).unwrap();
    assert!(client.ends_within(PATIENCE));
    assert!(closed(&channel));
}

#[test]
fn the_listener_ends_when_the_warden_says_stop_or_is_gone() {
    for stop in [true, false] {
        let mut server = Server::new();
        let address: SocketAddr = server.address;
        if stop {
            server.control.send(&Order::<TpsPart>::Stop).unwrap();
        } else {
            server.control = Channel::pair().unwrap().0;
        }
        let started = Instant::now();
        while server.process.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < PATIENCE);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(TcpStream::connect(address).is_err());
    }
}

#[test]
fn without_a_listener_or_certificates_it_does_not_start() {
    let (process, control) = common::start("levee-tps", &[]);
    common::give(&control, TpsPart::Chain, common::memory_file(b"no certificate"));
    control.send(&Order::<TpsPart>::Begin(levee_ipc::warden::Place::Server)).unwrap();
    let started = Instant::now();
    loop {
        if let Some(exit) = process.try_wait().unwrap() {
            assert_eq!(exit.code(), 1);
            break;
        }
        assert!(started.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
}
