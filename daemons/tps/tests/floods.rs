//! sessiond and the signer may say anything at any rate and never read: that costs one client's process a bounded amount of memory and
//! its end, and the next client is served.

mod common;

use common::{Client, PATIENCE, Server, client_config, connect_from, give};
use levee_hostile::{MOST, bears, flood, watched};
use levee_ipc::Channel;
use levee_ipc::client::{ChildToSessiond, Reply, Request};
use levee_ipc::signer::{FromSigner, ToSigner};
use levee_ipc::warden::tps::TpsPart;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

fn good(server: &Server) -> Arc<rustls::ClientConfig> {
    client_config(&server.authority.pem, Some(&server.authority.device("ws1")))
}

/// The processes of the clients that there are.
fn children(server: &Server) -> Vec<i32> {
    let pid = server.process.pid.as_raw_nonzero();
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// The one client's process, soon.
fn child(server: &Server) -> i32 {
    let until = Instant::now() + PATIENCE;
    loop {
        if let [child] = children(server)[..] {
            return child;
        }
        assert!(Instant::now() < until, "{:?}", children(server));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether somebody who comes now is served.
fn serves(server: &Server) {
    let mut client = Client::connect(server.address, &good(server)).unwrap();
    let channel = server.introduced();
    client.send(&Request::KeepAlive);
    assert!(matches!(
        common::next::<ChildToSessiond>(&channel),
        ChildToSessiond::Request(Request::KeepAlive)
    ));
    channel.send(&Reply::Alive).unwrap();
    assert!(matches!(client.reply().unwrap(), Reply::Alive));
}

/// Floods: sessiond → tps child.
#[test]
fn a_sessiond_that_tells_a_client_without_end_ends_its_process_and_no_others() {
    let server = Server::new();
    let short = |n: u64| Reply::Notice { reason: n.to_string() };
    let long = |n: u64| Reply::Notice { reason: "x".repeat(n as usize % 50_000) };
    for (what, word) in [("short notices", short as fn(u64) -> Reply), ("long notices", long)] {
        // It never reads.
        let client = Client::connect(server.address, &good(&server)).unwrap();
        let channel = server.introduced();
        let told = bears(child(&server), what, || flood(&channel, LONG, word));
        assert!(told.cut, "{what}: {told:?}");
        drop(client);
        serves(&server);
        while !children(&server).is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Floods: signer → tps child.
#[test]
fn a_signer_that_says_more_than_it_is_asked_ends_the_handshake_and_the_next_one_signs() {
    let server = Server::new();
    let (ours, theirs) = Channel::pair().unwrap();
    give(&server.control, TpsPart::Signer, &theirs);
    let over = AtomicBool::new(false);
    let config = good(&server);
    std::thread::scope(|scope| {
        let loud = scope.spawn(|| {
            let joined = ours.recv::<ToSigner>().unwrap();
            assert!(matches!(joined.message, ToSigner::Join));
            let own = joined.into_fd().map(Channel::from_fd).unwrap();
            let word = |n: u64| FromSigner::Signature(vec![7; n as usize % 4_000]);
            let mut said = 0;
            while !over.load(Ordering::Relaxed) {
                let flood = flood(&own, Duration::from_millis(50), word);
                said += flood.said;
                if flood.cut {
                    break;
                }
            }
            said
        });
        let (came, grown) = watched(server.process.pid.as_raw_nonzero().get(), || {
            let stream = connect_from([127, 0, 0, 1].into(), server.address).unwrap();
            let shaken = handshake(stream, &config);
            over.store(true, Ordering::Relaxed);
            shaken
        });
        assert!(came.is_err(), "nothing was signed");
        assert!(grown < MOST && loud.join().unwrap() > 0);
    });
    // It counts as any handshake that came to nothing; and there is a signer again.
    let dropped = server.dropped();
    assert!(dropped.iter().any(|(reason, _)| reason == "handshake"), "{dropped:?}");
    drop(ours);
    give(&server.control, TpsPart::Signer, server.signer.client());
    serves(&server);
}

fn handshake(mut stream: std::net::TcpStream, config: &Arc<rustls::ClientConfig>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let name = common::SERVER.try_into().expect("a name");
    let mut tls = rustls::ClientConnection::new(Arc::clone(config), name).map_err(std::io::Error::other)?;
    let begun = Instant::now();
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)
            .inspect_err(|_| assert!(begun.elapsed() < PATIENCE, "it stands still"))?;
    }
    Ok(())
}
