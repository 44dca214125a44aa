//! The same with another implementation of QUIC and TLS at one of the ends (aioquic, which `scripts/aioquic` makes ready), over UDP and in
//! real time.

use super::*;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

const OTHER: &str = include_str!("aioquic.py");
/// Octets of packets within that are sent.
const LENGTHS: [usize; 5] = [1, 2, 100, 1_000, LONGEST];

/// The other end, and what it says.
struct Other {
    process: Child,
    says: Receiver<String>,
    _files: tempfile::TempDir,
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Other {
    fn start(
        role: &str,
        authority: &Authority,
        own: Option<(String, String)>,
        port: u16,
        protocol: &str,
    ) -> Self {
        let program = std::env::current_exe().unwrap();
        let target = program.ancestors().nth(3).expect("target/debug/deps").to_path_buf();
        let library = target.join("aioquic");
        assert!(library.exists(), "{} is not there: run scripts/aioquic", library.display());
        let files = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| -> PathBuf {
            std::fs::write(files.path().join(name), text).unwrap();
            files.path().join(name)
        };
        let (chain, key) = own.map_or(("-".into(), "-".into()), |(chain, key)| {
            (write("chain.pem", &chain), write("key.pem", &key))
        });
        let mut process = Command::new("python3")
            .env("PYTHONPATH", &library)
            .args(["-c", OTHER, role])
            .args([chain, key, write("authority.pem", &authority.pem)])
            .args([SERVER, &port.to_string(), protocol])
            .stdout(Stdio::piped())
            .spawn()
            .expect("start python3");
        let out = BufReader::new(process.stdout.take().unwrap());
        let (tell, says) = channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Self { process, says, _files: files }
    }

    fn said(&self) -> Vec<String> {
        self.says.try_iter().collect()
    }
}

/// Our end at a socket, until this is enough of what it tells.
fn until(socket: &UdpSocket, end: &mut Quic, mut turn: impl FnMut(&mut Quic, Vec<News>) -> bool) {
    let at = socket.local_addr().unwrap().ip();
    socket.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
    let send = |out: Out<'_>| {
        let step = out.segment.map_or(out.bytes.len(), usize::from).max(1);
        out.bytes.chunks(step).for_each(|datagram| drop(socket.send_to(datagram, out.to)));
    };
    let (until, mut buffer) = (Instant::now() + Duration::from_secs(20), [0; 2_048]);
    while Instant::now() < until {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            end.receive(Instant::now(), from, at, &buffer[..length], &mut { send });
        }
        let news = end.work(Instant::now(), &mut { send });
        if turn(end, news) {
            return;
        }
    }
    panic!("not within 20 s");
}

fn port(socket: &UdpSocket) -> u16 {
    socket.local_addr().unwrap().port()
}

#[test]
fn a_client_of_another_make_has_the_tunnel_that_ours_has_or_none() {
    let authority = Authority::new();
    let pems = |name| authority.pems(name, ExtendedKeyUsagePurpose::ClientAuth, &PKCS_ED25519);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut server = authority.server();
    let other = Other::start("client", &authority, Some(pems("ws1")), port(&socket), "levee-layer/1");
    let (mut said, mut ups, mut came, mut back) = (Vec::new(), 0, Vec::new(), Vec::new());
    until(&socket, &mut server, |server, news| {
        for one in news {
            match one {
                News::Up(_, who) => ups += usize::from(!who.is_empty()),
                News::Datagram(handle, datagram) => {
                    let carried = Carried::parse(&datagram).expect("what it is");
                    assert!(matches!(carried, Carried::Packet(flow, _) if flow.number() == 1));
                    came.push(datagram.len() - 1);
                    back.push((handle, datagram));
                }
                News::Gone(_, why) => panic!("{why}"),
            }
        }
        // Once it knows what the path carries.
        while let Some((handle, datagram)) = back.pop_if(|(handle, _)| server.room(*handle) >= NEEDED) {
            assert!(server.send(handle, datagram.to_vec()));
        }
        said.extend(other.said());
        said.len() > LENGTHS.len()
    });
    assert_eq!((ups, &came[..]), (1, &LENGTHS[..]));
    assert_eq!(said.remove(0), "up levee-layer/1 CHACHA20_POLY1305_SHA256");
    let came = LENGTHS.map(|length| format!("came 1 {length}"));
    assert_eq!(BTreeSet::from_iter(said), BTreeSet::from(came));
    drop(other);

    // What is not as it must be is no tunnel, and its other end is told.
    let stranger = Authority::named("a stranger's");
    let strange = stranger.pems("ws1", ExtendedKeyUsagePurpose::ClientAuth, &PKCS_ED25519);
    for (own, protocol) in
        [(None, "levee-layer/1"), (Some(strange), "levee-layer/1"), (Some(pems("ws1")), "h3")]
    {
        let other = Other::start("client", &authority, own, port(&socket), protocol);
        until(&socket, &mut server, |_, news| {
            assert!(!news.iter().any(|one| matches!(one, News::Datagram(..))), "{news:?}");
            let up = |one: &News| matches!(one, News::Up(_, who) if *who != [] as [u8; 0]);
            assert!(!news.iter().any(up), "{news:?}");
            other.said().iter().any(|line| line.starts_with("over "))
        });
    }
}

#[test]
fn a_server_of_another_make_has_the_tunnel_that_ours_has_or_none() {
    let authority = Authority::new();
    let stranger = Authority::named("a stranger's");
    for (own, passes) in [(&authority, true), (&stranger, false)] {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = taken.local_addr().unwrap();
        drop(taken);
        let pems = own.pems(SERVER, ExtendedKeyUsagePurpose::ServerAuth, &PKCS_ED25519);
        let other = Other::start("server", &authority, Some(pems), at.port(), "levee-layer/1");
        assert_eq!(other.says.recv_timeout(Duration::from_secs(20)).unwrap(), "serves");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut client = authority.client("ws1");
        let tunnel = client.connect(Instant::now(), at, SERVER).unwrap();
        let (mut is_up, mut sent, mut came) = (false, false, Vec::new());
        until(&socket, &mut client, |client, news| {
            for one in news {
                match one {
                    News::Up(..) => is_up = true,
                    News::Datagram(_, datagram) => came.push(datagram.len() - 1),
                    News::Gone(_, why) => {
                        assert!(!passes, "{why}");
                        return true;
                    }
                }
            }
            if !sent && client.room(tunnel) >= NEEDED {
                sent = true;
                for length in LENGTHS {
                    let packet = Carried::Packet(Flow::new(2), &vec![7; length]).write().unwrap();
                    assert!(client.send(tunnel, packet));
                }
            }
            came.len() == LENGTHS.len()
        });
        assert_eq!((is_up, came), (passes, if passes { LENGTHS.to_vec() } else { Vec::new() }));
    }
}
