//! What IKEv2 costs: `cargo bench -p levee-ike-interop --bench ike` (as root; strongSwan installed; alone on the machine). Prints one
//! line of JSON for each figure. Arms that are compared run in turn, round by round.
//!
//! `handshake`: IKE_SA_INIT, IKE_AUTH with P-256 certificates on both sides under one root, and the SA's deletion; X25519, AES-256-GCM,
//! HMAC-SHA2-384; both peers' processor time together. levee's arms are `core/ike` on UDP sockets with ring's signatures in the same
//! process: without the keyer's messages to the signer and to sessiond.

use levee_ike::*;
use levee_ike_interop::{Authority, Key, KeyKind, Net, OURS, Swan, THEIRS, Tuning};
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use rustix::time::ClockId;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Whether Cargo measures; else it tests, with little of each, to see that all of it runs.
static IS_MEASURED: LazyLock<bool> = LazyLock::new(|| std::env::args().any(|word| word == "--bench"));

fn rounds() -> usize {
    if *IS_MEASURED { 7 } else { 1 }
}

/// Of what is done one after the other.
fn each() -> usize {
    if *IS_MEASURED { 60 } else { 3 }
}

/// IKE SAs whose memory is looked at: more than an endpoint lets in from strangers in a second.
fn sas() -> u32 {
    if *IS_MEASURED { 10_000 } else { 600 }
}

struct System(SystemRandom);

impl Random for System {
    fn fill(&mut self, out: &mut [u8]) {
        self.0.fill(out).expect("random octets");
    }
}

fn unix() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .expect("after 1970")
        .as_secs()
}

fn processor_time() -> Duration {
    spent(ClockId::ProcessCPUTime)
}

fn spent(by: ClockId) -> Duration {
    let t = rustix::time::clock_gettime(by);
    Duration::new(u64::try_from(t.tv_sec).expect("positive"), u32::try_from(t.tv_nsec).expect("below 10^9"))
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("our memory");
    text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number of pages") * 4096
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn tell(what: &str, figures: &[(&str, f64)]) {
    let figures: Vec<String> = figures.iter().map(|(k, v)| format!("\"{k}\":{v:.3}")).collect();
    println!("{{\"what\":\"{what}\",{}}}", figures.join(","));
}

fn name(s: &str) -> Identity {
    Identity::Fqdn(s.to_owned())
}

/// One host: endpoint, signing key, and perhaps sockets.
struct Side {
    endpoint: Endpoint,
    key: Option<EcdsaKeyPair>,
    rng: System,
    started: Instant,
    next_spi: u32,
    established: usize,
    closed: usize,
    children: usize,
}

impl Side {
    fn new(mut config: Config, key: Option<&Key>) -> Self {
        // All are strangers here, and come as fast as can be: how few a second an endpoint lets in by itself is not what is measured.
        config.limits.strangers_per_second = 1_000_000;
        let rng = SystemRandom::new();
        let pair = |k: &Key| {
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &k.pkcs8(), &rng).expect("a P-256 key")
        };
        let key = key.map(pair);
        Self {
            endpoint: Endpoint::new(config),
            key,
            rng: System(SystemRandom::new()),
            started: Instant::now(),
            next_spi: 0x1000,
            established: 0,
            closed: 0,
            children: 0,
        }
    }

    fn now(&self) -> Now {
        Now { monotonic: self.started.elapsed(), unix_seconds: unix() }
    }

    /// Handles all that is due; datagrams go to `send`.
    fn drain(&mut self, mut send: impl FnMut(Path, Vec<u8>)) {
        loop {
            let now = self.now();
            match self.endpoint.poll(now, &mut self.rng) {
                Output::Transmit { path, datagram } => send(path, datagram),
                Output::Wait(_) => return,
                Output::Event(Event::Sign { request, octets, .. }) => {
                    let key = self.key.as_ref().expect("a key");
                    let signature = key.sign(&self.rng.0, &octets).expect("a signature").as_ref().to_vec();
                    self.command(Command::Signed { request, signature: Some(signature) });
                }
                Output::Event(Event::ChildRequested(r)) => {
                    self.next_spi += 1;
                    let decision = ChildDecision::Accept {
                        spi: self.next_spi,
                        label: r.labels.first().cloned(),
                        local: any(),
                        remote: any(),
                        assign: vec![],
                        resource: None,
                        aggfrag: false,
                    };
                    self.command(Command::Decide { request: r.request, decision });
                }
                Output::Event(Event::IkeEstablished { .. }) => self.established += 1,
                Output::Event(Event::IkeClosed { reason, .. }) => {
                    assert!(matches!(reason, CloseReason::Local | CloseReason::Peer), "{reason:?}");
                    self.closed += 1;
                }
                Output::Event(Event::ChildEstablished(_)) => self.children += 1,
                Output::Event(Event::ChildFailed { reason, .. }) => panic!("{reason:?}"),
                Output::Event(_) => {}
            }
        }
    }

    fn command(&mut self, command: Command) {
        let now = self.now();
        self.endpoint.command(command, now, &mut self.rng).expect("command");
    }
}

fn any() -> Vec<Selector> {
    vec![Selector::subnet([0, 0, 0, 0].into(), 0).expect("all")]
}

fn config(own: &Key, root: &Authority, us: &str, them: &str, lent: bool) -> Config {
    let mut anchors = TrustAnchors::new(std::slice::from_ref(&root.der), &[]).expect("anchors");
    if lent {
        anchors = anchors.verified_by(&[webpki::ring::ECDSA_P256_SHA256]);
    }
    let mut config = Config::new(vec![Peer {
        local_id: name(us),
        remote_id: RemoteId::Exactly(name(them)),
        local_auth: LocalAuth::Certificate { chain: own.chain.clone(), schemes: own.schemes() },
        remote_auth: RemoteAuth::Certificate {
            anchors: Arc::new(anchors),
            schemes: vec![SignatureScheme::EcdsaP256Sha256],
        },
        childless: Childless::Force,
        ppk: None,
    }]);
    config.ike[0].encryption = vec![Encryption::Aes256Gcm16];
    config.ike[0].prf = vec![Prf::HmacSha384];
    config.ike[0].key_exchange = vec![KeyExchange::X25519];
    config
}

fn shared_key_config(us: &str, them: &str) -> Config {
    let key = || Secret::new(b"a shared key of some length".to_vec());
    let mut config = Config::new(vec![Peer {
        local_id: name(us),
        remote_id: RemoteId::Exactly(name(them)),
        local_auth: LocalAuth::SharedKey(key()),
        remote_auth: RemoteAuth::SharedKey(key()),
        childless: Childless::Allow,
        ppk: None,
    }]);
    config.timers.liveness = None;
    config
}

fn path(from: Ipv4Addr, to: Ipv4Addr) -> Path {
    Path { local: (from, 4500).into(), remote: (to, 4500).into(), marker: true }
}

/// Moves datagrams between two sides in memory until both are still.
fn converse(a: &mut Side, b: &mut Side) {
    loop {
        let (mut to_a, mut to_b) = (Vec::new(), Vec::new());
        a.drain(|_, d| to_b.push(d));
        b.drain(|_, d| to_a.push(d));
        if to_a.is_empty() && to_b.is_empty() {
            return;
        }
        for d in to_b {
            let now = b.now();
            b.endpoint.handle(&d, path(THEIRS, OURS), now, &mut b.rng);
        }
        for d in to_a {
            let now = a.now();
            a.endpoint.handle(&d, path(OURS, THEIRS), now, &mut a.rng);
        }
    }
}

fn begin(a: &mut Side) -> IkeId {
    let now = a.now();
    a.endpoint.connect(0, path(OURS, THEIRS), None, None, now, &mut a.rng).expect("connect")
}

fn child(spi: u32) -> NewChild {
    let label = SecurityLabel::new(b"SECRET").ok();
    NewChild { spi, label, local: any(), remote: any(), want_address: false, resource: None, aggfrag: false }
}

/// A side on a socket, run until `done`.
fn serve(side: &mut Side, socket: &UdpSocket, local: SocketAddr, done: impl Fn(&Side) -> bool) {
    let mut buffer = [0; 4096];
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        side.drain(|path, d| {
            socket.send_to(&d, path.remote).expect("send");
        });
        if done(side) {
            return;
        }
        assert!(Instant::now() < end, "no answer: {:?}", side.endpoint.counters());
        if let Ok((n, remote)) = socket.recv_from(&mut buffer) {
            let now = side.now();
            side.endpoint.handle(&buffer[..n], Path { local, remote, marker: true }, now, &mut side.rng);
        }
    }
}

/// Handshakes between two threads over UDP: processor time of both together and of the responder alone, each, in
/// microseconds; latencies too.
fn over_sockets(
    net: &Net,
    root: &Authority,
    keys: &[Key; 2],
    lent: bool,
    latencies: &mut Vec<f64>,
) -> [f64; 2] {
    let sockets = [net.socket(4500), net.their_socket(4500)];
    for s in &sockets {
        s.set_nonblocking(false).expect("blocking");
        s.set_read_timeout(Some(Duration::from_millis(500))).expect("a time limit");
    }
    let mut a = Side::new(config(&keys[0], root, "levee.test", "swan.test", lent), Some(&keys[0]));
    let mut b = Side::new(config(&keys[1], root, "swan.test", "levee.test", lent), Some(&keys[1]));
    let before = processor_time();
    let responder = std::thread::scope(|scope| {
        let theirs = &sockets[1];
        let b = &mut b;
        let responder = scope.spawn(move || {
            let before = spent(ClockId::ThreadCPUTime);
            serve(b, theirs, (THEIRS, 4500).into(), |s| s.closed >= each());
            spent(ClockId::ThreadCPUTime) - before
        });
        for i in 1..=each() {
            let start = Instant::now();
            let ike = begin(&mut a);
            serve(&mut a, &sockets[0], (OURS, 4500).into(), |s| s.established >= i);
            latencies.push(start.elapsed().as_secs_f64() * 1e6);
            a.command(Command::CloseIke { ike });
            serve(&mut a, &sockets[0], (OURS, 4500).into(), |s| s.closed >= i);
        }
        responder.join().expect("the responder")
    });
    [processor_time() - before, responder].map(|time| time.as_secs_f64() * 1e6 / each() as f64)
}

fn swan_connection(ours: bool) -> String {
    let (local, remote, us, them) =
        if ours { (OURS, THEIRS, "levee", "swan") } else { (THEIRS, OURS, "swan", "levee") };
    format!(
        "connections {{ c {{
  version = 2
  local_addrs = {local}
  remote_addrs = {remote}
  local_port = 4500
  remote_port = 4500
  proposals = aes256gcm16-prfsha384-x25519
  childless = force
  send_cert = always
  local {{ auth = pubkey
  certs = {us}.pem
  id = {us}.test }}
  remote {{ auth = pubkey
  id = {them}.test }}
  children {{ net {{ local_ts = 10.9.2.0/24
  remote_ts = 10.9.1.0/24 }} }}
}} }}
"
    )
}

fn quiet() -> Tuning {
    Tuning { silent: true, ..Tuning::default() }
}

/// As [`over_sockets`], between two charons.
fn charons(ours: &Swan, theirs: &Swan) -> f64 {
    let before = ours.processor_time() + theirs.processor_time();
    for _ in 0..each() {
        ours.swanctl(&["--initiate", "--ike", "c", "--loglevel", "-1"]);
        ours.swanctl(&["--terminate", "--ike", "c", "--loglevel", "-1"]);
    }
    (ours.processor_time() + theirs.processor_time() - before).as_secs_f64() * 1e6 / each() as f64
}

/// Latency of levee's initiator with charon as responder, in microseconds; and charon's processor time for each.
fn with_charon(net: &Net, root: &Authority, keys: &[Key; 2], theirs: &Swan, latencies: &mut Vec<f64>) -> f64 {
    let socket = net.socket(4500);
    socket.set_nonblocking(false).expect("blocking");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a time limit");
    let mut a = Side::new(config(&keys[0], root, "levee.test", "swan.test", true), Some(&keys[0]));
    let before = theirs.processor_time();
    for i in 1..=each() {
        let start = Instant::now();
        let ike = begin(&mut a);
        serve(&mut a, &socket, (OURS, 4500).into(), |s| s.established >= i);
        latencies.push(start.elapsed().as_secs_f64() * 1e6);
        a.command(Command::CloseIke { ike });
        serve(&mut a, &socket, (OURS, 4500).into(), |s| s.closed >= i);
    }
    (theirs.processor_time() - before).as_secs_f64() * 1e6 / each() as f64
}

fn handshakes() {
    let root = Authority::new("root", KeyKind::P256);
    let keys = [root.issue("levee.test", KeyKind::P256), root.issue("swan.test", KeyKind::P256)];
    let (mut own, mut lent, mut memory) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    let (mut swan, mut swan_responder, mut responder) = (Vec::new(), Vec::new(), Vec::new());
    let [mut own_latency, mut lent_latency, mut swan_latency] = [const { Vec::new() }; 3];
    let theirs =
        |net: &Net| Swan::start(net, &swan_connection(false), &quiet(), &[("swan", &keys[1])], &[&root]);
    for _ in 0..rounds() {
        let net = Net::new();
        own.push(over_sockets(&net, &root, &keys, false, &mut own_latency)[0]);
        let [both, alone] = over_sockets(&net, &root, &keys, true, &mut lent_latency);
        lent.push(both);
        responder.push(alone);
        for (lent, all) in [false, true].into_iter().zip(&mut memory) {
            let mut a = Side::new(config(&keys[0], &root, "levee.test", "swan.test", lent), Some(&keys[0]));
            let mut b = Side::new(config(&keys[1], &root, "swan.test", "levee.test", lent), Some(&keys[1]));
            let before = processor_time();
            for _ in 0..each() {
                let ike = begin(&mut a);
                converse(&mut a, &mut b);
                a.command(Command::CloseIke { ike });
                converse(&mut a, &mut b);
            }
            all.push((processor_time() - before).as_secs_f64() * 1e6 / each() as f64);
            assert_eq!((a.established, b.closed), (each(), each()));
        }
        let there = theirs(&net);
        swan_responder.push(with_charon(&net, &root, &keys, &there, &mut swan_latency));
        let here =
            Swan::start_as_us(&net, &swan_connection(true), &quiet(), &[("levee", &keys[0])], &[&root]);
        swan.push(charons(&here, &there));
    }
    let [memory, memory_lent] = memory.map(median);
    let (own, lent, swan) = (median(own), median(lent), median(swan));
    tell(
        "handshake, both peers' processor time, µs",
        &[
            ("levee", own),
            ("levee with ring's signature checks", lent),
            ("strongSwan", swan),
            ("ratio", own / swan),
            ("ratio with ring", lent / swan),
        ],
    );
    tell(
        "handshake without sockets, both peers, µs",
        &[
            ("levee", memory),
            ("levee with ring's signature checks", memory_lent),
            ("handshakes a second on one core, with ring", 1e6 / memory_lent),
        ],
    );
    tell(
        "latency of a handshake over a veth, levee initiates, µs",
        &[
            ("levee responds", median(own_latency)),
            ("levee responds, ring", median(lent_latency)),
            ("strongSwan responds", median(swan_latency)),
        ],
    );
    let (responder, swan_responder) = (median(responder), median(swan_responder));
    tell(
        "handshake, the responder's processor time alone, levee initiates, µs",
        &[("levee, ring", responder), ("strongSwan", swan_responder), ("ratio", responder / swan_responder)],
    );
}

/// Two sides with a shared key and an IKE SA between them.
fn pair() -> (Side, Side, IkeId) {
    let mut a = Side::new(shared_key_config("a.test", "b.test"), None);
    let mut b = Side::new(shared_key_config("b.test", "a.test"), None);
    let ike = begin(&mut a);
    converse(&mut a, &mut b);
    assert_eq!(b.established, 1);
    (a, b, ike)
}

fn children() {
    let (mut a, mut b, ike) = pair();
    let mut all = Vec::new();
    for round in 0..rounds() {
        let before = processor_time();
        for i in 0..each() {
            let spi = u32::try_from(0x0010_0000 + round * each() + i).expect("small");
            a.command(Command::CreateChild { ike, child: child(spi) });
            converse(&mut a, &mut b);
            a.command(Command::CloseChild { ike, inbound: spi });
            converse(&mut a, &mut b);
        }
        all.push((processor_time() - before).as_secs_f64() * 1e6 / each() as f64);
    }
    assert_eq!((a.children, b.children), (rounds() * each(), rounds() * each()));
    tell("child SA with X25519, made and deleted, both peers' processor time, µs", &[("levee", median(all))]);
}

/// Many IKE SAs as responder, each with one child, from as many initiators that are forgotten at once.
fn memory() {
    let mut b = Side::new(shared_key_config("b.test", "a.test"), None);
    let before = resident();
    for i in 0..sas() {
        let mut a = Side::new(shared_key_config("a.test", "b.test"), None);
        let now = a.now();
        let way = path(Ipv4Addr::from(0x0a00_0000 + i), THEIRS);
        a.endpoint.connect(0, way, None, Some(child(0x2000)), now, &mut a.rng).expect("connect");
        loop {
            let (mut to_a, mut to_b) = (Vec::new(), Vec::new());
            a.drain(|_, d| to_b.push(d));
            for d in to_b {
                let now = b.now();
                b.endpoint.handle(
                    &d,
                    Path { local: way.remote, remote: way.local, marker: true },
                    now,
                    &mut b.rng,
                );
            }
            b.drain(|_, d| to_a.push(d));
            if to_a.is_empty() {
                break;
            }
            for d in to_a {
                let now = a.now();
                a.endpoint.handle(&d, way, now, &mut a.rng);
            }
        }
    }
    assert_eq!((b.endpoint.len(), b.children), (sas() as usize, sas() as usize));
    let grown = resident().saturating_sub(before) as f64;
    tell(
        &format!("memory of {} IKE SAs with a child each", sas()),
        &[("MiB", grown / 1048576.0), ("octets each", grown / f64::from(sas()))],
    );
}

/// A real handshake beside a thousand half-open ones, and the price of an attacker's datagram.
fn attackers() {
    let first = {
        let mut a = Side::new(shared_key_config("a.test", "b.test"), None);
        begin(&mut a);
        let mut out = Vec::new();
        a.drain(|_, d| out.push(d));
        out.remove(0)
    };
    let attack = |b: &mut Side, i: u32| {
        let mut d = first.clone();
        d[4..8].copy_from_slice(&i.to_be_bytes());
        let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::from(0xc633_0000 + i)), 4500);
        let now = b.now();
        let way = Path { local: (THEIRS, 4500).into(), remote: from, marker: true };
        b.endpoint.handle(&d, way, now, &mut b.rng);
        b.drain(|_, _| {});
    };
    let (mut calm, mut besieged, mut open, mut cookie) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds() {
        for siege in [false, true] {
            let mut c = shared_key_config("b.test", "a.test");
            // The half-open ones are kept, as if each had returned its cookie: the worst that a thousand can do.
            c.limits.cookie_above = if siege { 1000 } else { 128 };
            let mut b = Side::new(c, None);
            if siege {
                let before = processor_time();
                (0..1000).for_each(|i| attack(&mut b, i + 1));
                open.push((processor_time() - before).as_secs_f64() * 1e6 / 1000.0);
                assert_eq!(b.endpoint.half_open(), 1000);
                let before = processor_time();
                (0..1000).for_each(|i| attack(&mut b, i + 5000));
                cookie.push((processor_time() - before).as_secs_f64() * 1e6 / 1000.0);
                assert_eq!(b.endpoint.half_open(), 1000);
            }
            let before = processor_time();
            for i in 1..=each() {
                let mut a = Side::new(shared_key_config("a.test", "b.test"), None);
                begin(&mut a);
                converse(&mut a, &mut b);
                assert_eq!((a.established, b.established), (1, i));
            }
            let each = (processor_time() - before).as_secs_f64() * 1e6 / each() as f64;
            if siege { besieged.push(each) } else { calm.push(each) }
        }
    }
    let (calm, besieged) = (median(calm), median(besieged));
    tell(
        "handshake with a shared key beside 1,000 half-open ones, both peers' processor time, µs",
        &[
            ("none", calm),
            ("1,000 half-open, cookies demanded", besieged),
            ("ratio", besieged / calm),
            ("attacker's first message, kept", median(open)),
            ("attacker's first message, answered by a cookie", median(cookie)),
        ],
    );
}

fn main() {
    // Cargo says --bench; a word of one's own picks a part.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let parts: [(&str, fn()); 4] =
        [("memory", memory), ("children", children), ("attackers", attackers), ("handshakes", handshakes)];
    for (name, part) in parts {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            part();
        }
    }
}
