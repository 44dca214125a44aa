//! Two ends of a second tunnel, without sockets: time and the wire are the test's.

#[path = "pair/certificates.rs"]
mod certificates;
#[path = "pair/other.rs"]
mod other;

use levee_layer::carried::{Carried, Flow, LONGEST, NEEDED};
use levee_layer::crypto::{Believed, Client, Own, Reset};
use levee_layer::quic::{self, Handle, News, Out, Quic};
use quinn_proto::{ClientConfig, Connection, DatagramEvent, Endpoint, EndpointConfig};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SanType, SignatureAlgorithm,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SERVER: &str = "www.harbour.example";

struct Authority {
    key: KeyPair,
    params: CertificateParams,
    pem: String,
    /// When those that it makes run out, if soon.
    until: Option<std::time::SystemTime>,
}

/// As OpenSSL 3.0 reads it: PKCS#8 without the public key behind (RFC 5208).
fn alone(key: &KeyPair) -> String {
    let der = key.serialize_der();
    let seed = der.windows(4).position(|at| at == [4, 0x22, 4, 0x20]).map(|at| der[at + 4..at + 36].to_vec());
    let Some(seed) = seed else { return key.serialize_pem() };
    let mut short = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    short.extend(seed);
    format!("-----BEGIN PRIVATE KEY-----\n{}-----END PRIVATE KEY-----\n", base64(&short))
}

fn base64(octets: &[u8]) -> String {
    const SIXTY_FOUR: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in octets.chunks(3) {
        let word =
            three.iter().fold(0u32, |word, octet| word << 8 | u32::from(*octet)) << (8 * (3 - three.len()));
        (0..4).for_each(|n| {
            let letter =
                if n <= three.len() { SIXTY_FOUR[(word >> (18 - 6 * n) & 63) as usize] } else { b'=' };
            text.push(char::from(letter));
        });
    }
    text + "\n"
}

impl Authority {
    fn new() -> Self {
        Self::named("second")
    }

    fn named(name: &str) -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Self { key, params, pem, until: None }
    }

    fn leaf(&self, name: &str, usage: ExtendedKeyUsagePurpose, kind: &'static SignatureAlgorithm) -> Own {
        let (chain, key) = self.pems(name, usage, kind);
        Own::read(chain.as_bytes(), key.as_bytes()).unwrap()
    }

    /// A certificate, and its key.
    fn pems(
        &self,
        name: &str,
        usage: ExtendedKeyUsagePurpose,
        kind: &'static SignatureAlgorithm,
    ) -> (String, String) {
        let key = KeyPair::generate_for(kind).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![usage];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.subject_alt_names = vec![SanType::DnsName(name.try_into().unwrap())];
        if let Some(until) = self.until {
            params.not_after = until.into();
        }
        let issuer = Issuer::from_params(&self.params, &self.key);
        (params.signed_by(&key, &issuer).unwrap().pem(), alone(&key))
    }

    fn server(&self) -> Quic {
        self.server_named(SERVER)
    }

    fn server_named(&self, name: &str) -> Quic {
        let own = self.leaf(name, ExtendedKeyUsagePurpose::ServerAuth, &PKCS_ED25519);
        Quic::server(own, Believed::clients(self.pem.as_bytes()).unwrap()).unwrap()
    }

    fn client(&self, name: &str) -> Quic {
        self.client_of(name, ExtendedKeyUsagePurpose::ClientAuth, &PKCS_ED25519)
    }

    fn client_of(
        &self,
        name: &str,
        usage: ExtendedKeyUsagePurpose,
        kind: &'static SignatureAlgorithm,
    ) -> Quic {
        Quic::client(self.leaf(name, usage, kind), Believed::server(self.pem.as_bytes(), SERVER).unwrap())
            .unwrap()
    }
}

/// From where, to where, and what.
type Sent = (SocketAddr, SocketAddr, Vec<u8>);
type Wire = Vec<Sent>;

fn put(wire: &mut Wire, from: SocketAddr, out: &Out<'_>) {
    let step = out.segment.map_or(out.bytes.len(), usize::from).max(1);
    wire.extend(out.bytes.chunks(step).map(|datagram| (from, out.to, datagram.to_vec())));
}

/// Ends at addresses, and a wire between them that carries UDP payloads of so many octets.
struct World {
    now: Instant,
    ends: Vec<(SocketAddr, Quic)>,
    wire: Wire,
    carries: usize,
    /// The wire is long, uneven and loses one datagram in a hundred.
    is_bad: bool,
    /// How many have gone over a bad wire, and those that are still on it, each with when it comes.
    gone: u64,
    away: Vec<(Instant, Sent)>,
}

impl World {
    fn new(ends: Vec<(&str, Quic)>) -> Self {
        let ends = ends.into_iter().map(|(at, end)| (at.parse().unwrap(), end)).collect();
        let (wire, away) = (Vec::new(), Vec::new());
        Self { now: Instant::now(), ends, wire, carries: 1_472, is_bad: false, gone: 0, away }
    }

    /// What comes out of the wire now.
    fn comes(&mut self) -> Wire {
        let fresh = std::mem::take(&mut self.wire);
        if !self.is_bad {
            return fresh;
        }
        for one in fresh {
            self.gone += 1;
            // 15 to 25 ms, and what leaves later often comes before.
            let late = Duration::from_millis(15 + self.gone * 7 % 11);
            if !self.gone.is_multiple_of(100) {
                self.away.push((self.now + late, one));
            }
        }
        let (come, away) = std::mem::take(&mut self.away).into_iter().partition(|(due, _)| *due <= self.now);
        self.away = away;
        let come: Vec<_> = come;
        come.into_iter().map(|(_, one)| one).collect()
    }

    /// What has happened at each end within so long.
    fn run(&mut self, time: Duration) -> Vec<(usize, News)> {
        let (until, mut news) = (self.now + time, Vec::new());
        while self.now < until {
            for (from, to, datagram) in self.comes() {
                let end = self.ends.iter_mut().find(|(at, _)| *at == to);
                if let Some((_, end)) = end.filter(|_| datagram.len() <= self.carries) {
                    let wire = &mut self.wire;
                    end.receive(self.now, from, to.ip(), &datagram, &mut |out| put(wire, to, &out));
                }
            }
            for (number, (at, end)) in self.ends.iter_mut().enumerate() {
                let wire = &mut self.wire;
                news.extend(
                    end.work(self.now, &mut |out| put(wire, *at, &out)).into_iter().map(|one| (number, one)),
                );
            }
            self.now += Duration::from_millis(1);
        }
        news
    }

    fn server(&mut self) -> &mut Quic {
        &mut self.ends[0].1
    }

    fn connect(&mut self, end: usize) -> Handle {
        let (now, to) = (self.now, self.ends[0].0);
        self.ends[end].1.connect(now, to, SERVER).unwrap()
    }
}

fn two(server: Quic, client: Quic) -> World {
    World::new(vec![("192.0.2.1:4433", server), ("192.0.2.11:40000", client)])
}

fn ups(news: &[(usize, News)], at: usize) -> Vec<Handle> {
    let up = |(end, one): &(usize, News)| match one {
        News::Up(handle, who) if *end == at && !who.is_empty() => Some(*handle),
        _ => None,
    };
    news.iter().filter_map(up).collect()
}

#[test]
fn the_longest_packet_passes_both_ways_or_the_path_is_known_to_carry_too_little() {
    // UDP payloads: with IPv6 and UDP headers 48 octets more.
    for (carries, passes) in [(1_452, true), (1_400, true), (1_200, false), (1_300, false)] {
        let authority = Authority::new();
        let mut world = two(authority.server(), authority.client("ws1"));
        world.carries = carries;
        let handle = world.connect(1);
        let news = world.run(Duration::from_secs(4));
        let [there] = ups(&news, 0)[..] else { panic!("{carries}: {news:?}") };
        assert_eq!(
            world.ends[1].1.room(handle) >= NEEDED,
            passes,
            "{carries}: {}",
            world.ends[1].1.room(handle)
        );
        assert_eq!(world.server().room(there) >= NEEDED, passes, "{carries}");
        let packet = [5; LONGEST];
        let datagram = Carried::Packet(Flow::new(1), &packet).write().unwrap();
        assert_eq!(world.ends[1].1.send(handle, datagram.clone()), passes, "{carries}");
        assert_eq!(world.server().send(there, datagram.clone()), passes, "{carries}");
        let news = world.run(Duration::from_millis(100));
        let came = |at| {
            news.iter()
                .any(|(end, one)| *end == at && matches!(one, News::Datagram(_, one) if **one == *datagram))
        };
        assert_eq!((came(0), came(1)), (passes, passes), "{carries}");
    }
}

#[test]
fn a_server_that_has_ended_and_begun_anew_with_its_key_is_known_to_have_by_the_next_packet() {
    let authority = Authority::new();
    let (chain, key) = authority.pems(SERVER, ExtendedKeyUsagePurpose::ServerAuth, &PKCS_ED25519);
    let server = || {
        let own = Own::read(chain.as_bytes(), key.as_bytes()).unwrap();
        Quic::server(own, Believed::clients(authority.pem.as_bytes()).unwrap()).unwrap()
    };
    for (next, is_known) in [(server(), true), (authority.server(), false)] {
        let mut world = two(server(), authority.client("ws1"));
        let handle = world.connect(1);
        world.run(Duration::from_secs(1));
        world.ends[0].1 = next;
        let datagram = Carried::Packet(Flow::new(1), &[5; 1_000]).write().unwrap();
        assert!(world.ends[1].1.send(handle, datagram));
        let (now, at, wire) = (world.now, world.ends[1].0, &mut world.wire);
        world.ends[1].1.work(now, &mut |out| put(wire, at, &out));
        // Who repeats what others say hears so as well, and keeps nobody from hearing it.
        let stranger = "198.51.100.7:9".parse().unwrap();
        let repeated =
            world.wire.iter().map(|(_, to, bytes)| (stranger, *to, bytes.clone())).collect::<Wire>();
        let mut news = Vec::new();
        for _ in 0..100 {
            world.wire.splice(..0, repeated.clone());
            news.extend(world.run(Duration::from_millis(1)));
        }
        let gone =
            |(end, one): &(usize, News)| *end == 1 && matches!(one, News::Gone(of, _) if *of == handle);
        assert_eq!(news.iter().any(gone), is_known, "{news:?}");
    }
}

/// The first packet of a client, as it is on the wire.
fn first_packet(world: &mut World) -> Sent {
    world.connect(1);
    let (now, at, wire) = (world.now, world.ends[1].0, &mut world.wire);
    world.ends[1].1.work(now, &mut |out| put(wire, at, &out));
    world.wire.first().cloned().expect("it says something")
}

#[test]
fn of_the_connection_ids_that_a_stranger_is_told_none_comes_a_second_time() {
    let authority = Authority::new();
    let mut world = two(authority.server(), authority.client("ws1"));
    let (from, to, first) = first_packet(&mut world);
    let mut told = std::collections::BTreeSet::new();
    for _ in 0..20_000 {
        // As seldom as all of them are looked at.
        world.now += Duration::from_millis(100);
        let now = world.now;
        // Retry (RFC 9000 17.2.5): behind the version and the ID of who asked.
        world.server().receive(now, from, to.ip(), &first, &mut |out| {
            let (_, rest) = out.bytes[5..].split_at(1 + usize::from(out.bytes[5]));
            told.insert(rest[1..=usize::from(rest[0])].to_vec());
        });
    }
    assert_eq!(told.len(), 20_000, "whoever has one of them again has its token told already");
}

/// A client that is quinn's own, and does this at each turn; what its server says of it, until it is gone or this is true of the client.
fn until(turn: impl Fn(&mut Connection), is_enough: impl Fn(&Connection) -> bool) -> (Connection, Vec<News>) {
    let authority = Authority::new();
    let mut server = authority.server();
    let own = authority.leaf("ws1", ExtendedKeyUsagePurpose::ClientAuth, &PKCS_ED25519);
    let tls = Client::new(own, Believed::server(authority.pem.as_bytes(), SERVER).unwrap()).unwrap();
    let config = EndpointConfig::new(Arc::new(Reset::random().unwrap()));
    let mut endpoint = Endpoint::new(Arc::new(config), None, true, None);
    let [at, to] = ["192.0.2.11:40000", "192.0.2.1:4433"].map(|at| at.parse::<SocketAddr>().unwrap());
    let mut now = Instant::now();
    let config = ClientConfig::new(Arc::new(tls));
    let (handle, mut client) = endpoint.connect(now, config, to, SERVER).unwrap();
    let mut news = Vec::new();
    while !is_enough(&client) && !news.iter().any(|one| matches!(one, News::Gone(..))) {
        let mut buffer = Vec::new();
        let mut wire = Wire::new();
        while let Some(out) = client.poll_transmit(now, 1, &mut buffer) {
            server.receive(now, at, to.ip(), &buffer[..out.size], &mut |out| put(&mut wire, to, &out));
            buffer.clear();
        }
        news.extend(server.work(now, &mut |out| put(&mut wire, to, &out)));
        for (_, _, datagram) in wire {
            let event = endpoint.handle(now, to, None, None, datagram[..].into(), &mut buffer);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                client.handle_event(event);
            }
        }
        while let Some(event) = client.poll_endpoint_events() {
            endpoint.handle_event(handle, event).into_iter().for_each(|answer| client.handle_event(answer));
        }
        turn(&mut client);
        now += Duration::from_millis(5);
        client.handle_timeout(now);
    }
    assert!(news.iter().any(|one| matches!(one, News::Up(..))), "{news:?}");
    (client, news)
}

/// It gives back the connection ID that it uses, and asks for another, as often as it is given one.
#[test]
fn who_gives_connection_ids_back_without_end_has_no_tunnel_any_more() {
    let given_back = |client: &Connection| client.stats().frame_tx.retire_connection_id;
    let (client, _) = until(Connection::local_address_changed, |client| given_back(client) >= 1_000);
    assert!((64..100).contains(&given_back(&client)), "{}", given_back(&client));
}

/// One of levee's does so once.
#[test]
fn who_has_the_keys_of_a_tunnel_replaced_without_end_has_it_no_more() {
    let turn = |client: &mut Connection| {
        // When the keys before are of no use any more to either.
        if client.stats().frame_tx.ping.is_multiple_of(40) {
            client.force_key_update();
        }
        client.ping();
    };
    let (_, news) = until(turn, |client| client.stats().path.sent_packets >= 8_000);
    let [.., News::Gone(_, why)] = &news[..] else { panic!("{news:?}") };
    assert!(why.contains("keys"), "{why}");
}

/// A workstation that hears nothing of what is said to it, and goes on from two addresses by turns.
#[test]
fn who_acknowledges_nothing_has_so_many_packets_kept_wherever_it_goes_on_from() {
    let authority = Authority::new();
    let mut world = two(authority.server(), authority.client("ws1"));
    let handle = world.connect(1);
    let news = world.run(Duration::from_secs(2));
    let [there] = ups(&news, 0)[..] else { panic!("{news:?}") };
    let small = || Carried::Packet(Flow::new(1), &[5; 64]).write().unwrap();
    let (mut sent, mut gone) = (0, false);
    for round in 0.. {
        let (now, [(to, server), (at, client)]) = (world.now, &mut world.ends[..]) else { panic!() };
        let (mut from, mut wire) = (*at, Wire::new());
        from.set_port(at.port() + round % 2);
        assert!(client.send(handle, small()));
        client.work(now, &mut |out| put(&mut wire, *at, &out));
        for (_, _, datagram) in std::mem::take(&mut wire) {
            server.receive(now, from, to.ip(), &datagram, &mut |_| {});
        }
        // What it asks for stays at its address: nobody is sent more than they have sent.
        (0..if round == 0 { 9_000 } else { 1 }).for_each(|_| {
            server.send(there, small());
            world.now += Duration::from_micros(100);
            let news = server.work(world.now, &mut |out| put(&mut wire, *to, &out));
            gone |= news.iter().any(|one| matches!(one, News::Gone(of, _) if *of == there));
        });
        sent += wire.len();
        if round == 0 {
            assert!((8_000..8_500).contains(&sent), "{sent}");
        }
        if gone || sent > 20_000 {
            break;
        }
    }
    assert!(gone && sent < 13_000, "{sent}");
    assert_eq!(world.server().count(), 0, "nothing is kept of it");
}

#[test]
fn of_all_tunnels_the_one_of_which_the_most_is_kept_gives_way() {
    let authority = Authority::new();
    let clients =
        [("192.0.2.11:40000", authority.client("ws1")), ("192.0.2.12:40000", authority.client("ws2"))];
    let mut world = World::new([("192.0.2.1:4433", authority.server())].into_iter().chain(clients).collect());
    world.server().most_kept = 1_000;
    // One after the other: what handshakes may take of the time is of the clock's own, and a busy host takes long.
    let mut there = Vec::new();
    for end in 1..=2 {
        world.connect(end);
        there.extend(ups(&world.run(Duration::from_secs(2)), 0));
    }
    let mut gone = Vec::new();
    for (handle, packets) in [(there[0], 700), (there[1], 400)] {
        for _ in 0..packets {
            world.server().send(handle, Carried::Ask.write().unwrap());
            world.now += Duration::from_micros(100);
            let now = world.now;
            gone.extend(world.server().work(now, &mut |_| {}));
        }
    }
    let [News::Gone(handle, _)] = gone[..] else { panic!("{gone:?}") };
    assert_eq!((handle, world.server().count()), (there[0], 1));
}

#[test]
fn who_only_hears_is_heard_when_it_says_something_again() {
    let authority = Authority::new();
    let mut world = two(authority.server(), authority.client("ws1"));
    let handle = world.connect(1);
    let news = world.run(Duration::from_secs(2));
    let [there] = ups(&news, 0)[..] else { panic!("{news:?}") };
    for _ in 0..8_500 {
        for _ in 0..2 {
            world.ends[1].1.send(handle, Carried::Ask.write().unwrap());
        }
        world.run(Duration::from_millis(1));
    }
    assert!(world.server().send(there, Carried::Ask.write().unwrap()));
    let news = world.run(Duration::from_millis(5));
    assert!(matches!(news[..], [.., (1, News::Datagram(..))]), "{news:?}");
}

#[test]
fn over_a_way_that_is_uneven_and_loses_some_the_rest_passes_as_fast_as_it_is_sent() {
    let authority = Authority::new();
    let mut world = two(authority.server(), authority.client("ws1"));
    world.connect(1);
    let news = world.run(Duration::from_secs(2));
    let [there] = ups(&news, 0)[..] else { panic!("{news:?}") };
    world.is_bad = true;
    let (mut sent, mut came) = (0, 0);
    // Some ten megabits a second, for ten seconds.
    for _ in 0..10_000 {
        let datagram = Carried::Packet(Flow::new(1), &[5; 1_200]).write().unwrap();
        world.server().send(there, datagram);
        sent += 1;
        let news = world.run(Duration::from_millis(1));
        came += news.iter().filter(|(end, one)| *end == 1 && matches!(one, News::Datagram(..))).count();
    }
    assert!(came * 100 >= sent * 98, "{came} of {sent}");
}

#[test]
fn who_has_no_certificate_of_the_second_authority_for_its_part_gets_no_tunnel() {
    let (ours, others) = (Authority::new(), Authority::new());
    let client = ExtendedKeyUsagePurpose::ClientAuth;
    let cases: Vec<(&str, Quic, Quic)> = vec![
        ("another authority's client", ours.server(), {
            let own = others.leaf("ws1", client.clone(), &PKCS_ED25519);
            Quic::client(own, Believed::server(ours.pem.as_bytes(), SERVER).unwrap()).unwrap()
        }),
        ("another authority's server", others.server(), ours.client("ws1")),
        ("a server of another name", ours.server_named("ftp.harbour.example"), ours.client("ws1")),
        (
            "a server's certificate at a client",
            ours.server(),
            ours.client_of(SERVER, ExtendedKeyUsagePurpose::ServerAuth, &PKCS_ED25519),
        ),
        (
            "a key of the kind that the other layer has",
            ours.server(),
            ours.client_of("ws1", client, &PKCS_ECDSA_P256_SHA256),
        ),
    ];
    for (what, server, client) in cases {
        let mut world = two(server, client);
        let handle = world.connect(1);
        // What closes is kept for three times as long as an answer may take, which is up to a second.
        let news = world.run(Duration::from_secs(10));
        assert!(ups(&news, 0).is_empty(), "{what}: {news:?}");
        assert_eq!(world.server().count(), 0, "{what}: nothing is kept of it");
        assert_eq!(world.ends[1].1.room(handle), 0, "{what}");
    }
}

#[test]
fn a_flood_before_the_handshake_has_no_memory_here_and_one_address_has_its_share() {
    let authority = Authority::new();
    let mut world = two(authority.server(), authority.client("ws1"));
    // As if from ten thousand addresses that never answer.
    let (from, to, first) = first_packet(&mut world);
    let (mut answered, began) = (0, Instant::now());
    for number in 0..10_000_u32 {
        let from = SocketAddr::new(IpAddr::from((0x0a00_0000 + number).to_be_bytes()), from.port());
        let now = world.now;
        world.server().receive(now, from, to.ip(), &first, &mut |out| {
            assert!(out.bytes.len() < first.len(), "no amplification: {} octets", out.bytes.len());
            answered += 1;
        });
    }
    // All of it at once: a sixth of the time, and no more than fifty milliseconds of it ahead.
    let (took, counts) = (began.elapsed(), world.server().counts);
    assert!(took < Duration::from_secs(1) && answered > 20, "{took:?}");
    assert_eq!((counts.asked, counts.asked + counts.late, world.server().count()), (answered, 10_000, 0));
    // Its own tunnel comes up all the same, at the next time that it asks.
    assert_eq!(ups(&world.run(Duration::from_secs(4)), 0).len(), 1);

    // From one address that answers, and never goes on: so many handshakes and no more.
    let clients = (0..quic::MOST_OF_ONE + 3).map(|number| {
        let at: SocketAddr = format!("192.0.2.66:{}", 50_000 + number).parse().unwrap();
        (at, authority.client("mallory"))
    });
    world.ends.extend(clients.collect::<Vec<_>>());
    for end in 2..world.ends.len() {
        world.connect(end);
        // Not so fast that they have had their part of the time.
        for _ in 0..200 {
            world.run(Duration::from_millis(1));
            // Of what the server says they hear Retry alone.
            world.wire.retain(|(from, _, datagram)| from.port() != 4433 || datagram[0] & 0xf0 == 0xf0);
        }
    }
    // Who came too soon for that on a busy host asks again.
    for _ in 0..5_000 {
        if world.server().counts.refused >= 3 {
            break;
        }
        world.run(Duration::from_millis(1));
        world.wire.retain(|(from, _, datagram)| from.port() != 4433 || datagram[0] & 0xf0 == 0xf0);
    }
    assert_eq!(world.server().count(), 1 + quic::MOST_OF_ONE);
    assert!(world.server().counts.refused >= 3, "{:?}", world.server().counts);
    // They are given up in time.
    world.wire.clear();
    world.ends.truncate(2);
    world.run(Duration::from_secs(10));
    assert_eq!(world.server().count(), 1);
}

#[test]
fn what_shows_an_address_and_is_none_has_a_part_of_the_time() {
    let authority = Authority::new();
    let mut world = two(authority.server(), authority.client("ws1"));
    let (from, to, _) = first_packet(&mut world);
    let is_shown = |(_, at, datagram): &Sent| *at == to && datagram.len() > 1_199 && datagram[5] == 12;
    for _ in 0..10 {
        if !world.wire.iter().any(is_shown) {
            world.run(Duration::from_millis(1));
        }
    }
    let (_, _, mut datagram) = world.wire.iter().find(|one| is_shown(one)).cloned().expect("it goes on");
    datagram[1_000] ^= 1;
    let (now, began) = (world.now, Instant::now());
    for _ in 0..10_000 {
        world.server().receive(now, from, to.ip(), &datagram, &mut |_| {});
    }
    let (took, counts) = (began.elapsed(), world.server().counts);
    assert!(took < Duration::from_secs(1) && counts.late > 9_000, "{took:?}, {counts:?}");
    // The same where it has an ID from here, and has shown nothing.
    let mut world = two(authority.server(), authority.client("ws1"));
    let (_, to, first) = first_packet(&mut world);
    let (now, mut told) = (world.now, Vec::new());
    world.server().receive(now, "198.51.100.7:9".parse().unwrap(), to.ip(), &first, &mut |out| {
        let (_, rest) = out.bytes[5..].split_at(1 + usize::from(out.bytes[5]));
        told = rest[..=usize::from(rest[0])].to_vec();
    });
    let forged = [&first[..5], &told, &first[6 + usize::from(first[5])..], &[0; 20]].concat();
    for number in 0..10_000_u32 {
        let of = SocketAddr::new(from.ip(), 1_024 + (number % 60_000) as u16);
        world.server().receive(now, of, to.ip(), &forged, &mut |_| {});
    }
    assert!(world.server().counts.late > 9_000, "{:?}", world.server().counts);
}

#[test]
fn strangers_who_begin_and_never_go_on_keep_nobody_of_another_network_out() {
    let authority = Authority::new();
    let mut world = two(authority.server(), authority.client("ws1"));
    let workstation = world.ends[1].0;
    // As few as are sure to be begun before the first is given up, however busy this machine is.
    let most = 32;
    world.server().most_handshakes = most;
    // More addresses than all handshakes that there may be take, of eight networks, each of which answers once.
    for number in 0..most / quic::MOST_OF_ONE + 8 {
        let number = u8::try_from(number).unwrap();
        let at = SocketAddr::new(IpAddr::from([198, 51, 100 + number % 8, number]), 50_000);
        world.ends.push((at, authority.client("mallory")));
    }
    let step = |world: &mut World| {
        let news = world.run(Duration::from_millis(1));
        // Of what the server says they hear Retry alone.
        let is_heard = |(from, to, datagram): &Sent| {
            from.port() != 4433 || *to == workstation || datagram[0] & 0xf0 == 0xf0
        };
        world.wire.retain(is_heard);
        ups(&news, 0).len()
    };
    // Not so fast that they have had their part of the time.
    for end in (2..world.ends.len()).cycle().take(quic::MOST_OF_ONE * (world.ends.len() - 2)) {
        world.connect(end);
        assert_eq!((0..60).map(|_| step(&mut world)).sum::<usize>(), 0);
        if world.server().count() == most {
            break;
        }
    }
    assert_eq!(world.server().count(), most, "{:?}", world.server().counts);
    world.connect(1);
    let mut up = 0;
    for _ in 0..500 {
        up += step(&mut world);
    }
    assert_eq!(up, 1, "{:?}", world.server().counts);
    assert!(world.server().count() <= most + 1);
}

/// The time that the server took, while so much passed by its clock.
fn taken(world: &mut World, time: Duration) -> Duration {
    let (until, mut taken) = (world.now + time, Duration::ZERO);
    while world.now < until {
        let (now, at) = (world.now, world.ends[0].0);
        let (here, elsewhere): (Wire, Wire) = world.comes().into_iter().partition(|(_, to, _)| *to == at);
        world.wire = elsewhere;
        let wire = &mut Vec::new();
        let (_, server) = &mut world.ends[0];
        let began = Instant::now();
        for (from, to, datagram) in here {
            server.receive(now, from, to.ip(), &datagram, &mut |out| put(wire, to, &out));
        }
        server.work(now, &mut |out| put(wire, at, &out));
        taken += began.elapsed();
        world.wire.append(wire);
        for (from, to, datagram) in std::mem::take(&mut world.wire) {
            let Some((_, end)) = world.ends.iter_mut().find(|(at, _)| *at == to) else { continue };
            end.receive(now, from, to.ip(), &datagram, &mut |out| put(wire, to, &out));
        }
        for (at, end) in world.ends.iter_mut().skip(1) {
            end.work(now, &mut |out| put(wire, *at, &out));
        }
        world.wire.append(wire);
        world.now += Duration::from_millis(1);
    }
    taken
}

#[test]
fn strangers_have_a_part_of_the_time_and_a_tunnel_that_is_there_goes_on() {
    let authority = Authority::new();
    let mut world = two(authority.server(), authority.client("ws1"));
    let handle = world.connect(1);
    let news = world.run(Duration::from_secs(1));
    let [there] = ups(&news, 0)[..] else { panic!("{news:?}") };
    // All at once, each of another network, with certificates as the server asks for: what costs the most.
    for number in 0..200 {
        world
            .ends
            .push((SocketAddr::new(IpAddr::from([198, 51, number, 1]), 50_000), authority.client("mallory")));
    }
    for end in 2..world.ends.len() {
        world.connect(end);
    }
    // A third of this, and 100 ms that they may have at once: 134 ms, with room for what the machine does beside. Together they cost some 900.
    let bound = Duration::from_millis(500);
    let taken = taken(&mut world, Duration::from_millis(100));
    let counts = world.server().counts;
    assert!(taken < bound && counts.refused + counts.late > 0, "{taken:?}, {counts:?}");
    let datagram = Carried::Packet(Flow::new(1), &[5; 1_000]).write().unwrap();
    assert!(world.ends[1].1.send(handle, datagram.clone()) && world.server().send(there, datagram));
    let news = world.run(Duration::from_millis(10));
    let came = news.iter().filter(|(end, one)| *end < 2 && matches!(one, News::Datagram(..)));
    assert_eq!(came.count(), 2);
}

#[test]
fn who_begins_slowly_and_goes_on_all_at_once_has_no_more_than_a_part_of_the_time() {
    let authority = Authority::new();
    let mut world = two(authority.server(), authority.client("ws1"));
    let mut held = Vec::new();
    for number in 0..200 {
        let at = SocketAddr::new(IpAddr::from([198, 51, number, 1]), 50_000);
        world.ends.push((at, authority.client("mallory")));
        world.connect(world.ends.len() - 1);
        let mut said = 0;
        for _ in 0..15 {
            world.run(Duration::from_millis(1));
            // Its first packet, and the same with its address shown. What it shows itself by waits.
            let (all, begins): (Wire, Wire) =
                std::mem::take(&mut world.wire).into_iter().partition(|(from, ..)| {
                    said += usize::from(*from == at);
                    from.port() == 50_000 && (*from != at || said > 2)
                });
            world.wire = begins;
            held.extend(all);
        }
    }
    let there = world.server().count();
    assert!(there > 20, "{there}, {:?}", world.server().counts);
    world.wire.extend(held);
    let taken = taken(&mut world, Duration::from_millis(20));
    // The hundred milliseconds that they may have at once.
    assert!(taken < Duration::from_millis(400) && world.server().counts.late > 0, "{taken:?}");
    // What was lost is sent again.
    let up = ups(&world.run(Duration::from_secs(5)), 0).len();
    assert!(up > 10, "{up} of {there}");
}

#[test]
fn whatever_bytes_come_nothing_passes_but_what_was_sent() {
    let authority = Authority::new();
    let mut world = two(authority.server(), authority.client("ws1"));
    let handle = world.connect(1);
    world.run(Duration::from_secs(1));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (at, to) = (world.ends[1].0, world.ends[0].0);
    for number in 0..200_u64 {
        let packet = number.to_be_bytes();
        world.ends[1].1.send(handle, Carried::Packet(Flow::new(0), &packet).write().unwrap());
        // Each datagram also comes changed in one octet, cut short, twice, and from elsewhere; and so does noise.
        let (now, wire) = (world.now, &mut world.wire);
        world.ends[1].1.work(now, &mut |out| put(wire, at, &out));
        for (_, _, datagram) in world.wire.clone().into_iter().filter(|(_, there, _)| *there == to) {
            let mut changed = datagram.clone();
            let place = random() as usize % changed.len();
            changed[place] ^= 1 << (random() % 8);
            let short = datagram[..random() as usize % datagram.len()].to_vec();
            let noise: Vec<u8> = (0..random() % 1_500).map(|_| random() as u8).collect();
            world.wire.extend([changed, short, noise, datagram].map(|bytes| (at, to, bytes)));
        }
        for (_, one) in world.run(Duration::from_millis(3)) {
            match one {
                News::Datagram(_, datagram) => {
                    let Some(Carried::Packet(_, packet)) = Carried::parse(&datagram) else {
                        panic!("{datagram:?}")
                    };
                    let came = u64::from_be_bytes(packet.try_into().expect("what was sent"));
                    assert!(came <= number);
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(world.ends[1].1.room(handle) >= NEEDED, "the tunnel is as it was");
}
