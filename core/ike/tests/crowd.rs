//! Many who begin and never go on, each from where it says it is: they do not shut out who means it.

mod pair;

use levee_ike::*;
use pair::*;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Initiators that return their cookies and say no more.
struct Siege {
    first: Vec<u8>,
    count: u64,
}

impl Siege {
    fn new() -> Self {
        let mut q = Pair::new(psk_configs(), 5);
        q.connect(A, None);
        q.drain(A);
        Self { first: q.log[0].1.clone(), count: 0 }
    }

    /// One begins from this address, and again with the cookie if it is given one.
    fn begin(&mut self, p: &mut Pair, from: IpAddr) {
        self.count += 1;
        let remote = SocketAddr::new(from, 4500);
        let path = Path { local: SocketAddr::from(([192, 0, 2, 3], 4500)), remote, marker: true };
        let mut first = self.first.clone();
        first[4..12].copy_from_slice(&self.count.to_be_bytes());
        let mut said = say(p, path, &first);
        // COOKIE is the answer's only payload.
        if let Some(answer) = said.pop()
            && answer[4 + 16] == 41
            && answer[4 + 28 + 6..4 + 28 + 8] == 16_390_u16.to_be_bytes()
        {
            let mut payload = answer[4 + 28..].to_vec();
            payload[0] = first[4 + 16];
            first[4 + 16] = 41;
            let length = u32::try_from(first.len() - 4 + payload.len()).expect("a length").to_be_bytes();
            first[4 + 24..4 + 28].copy_from_slice(&length);
            first.splice(4 + 28..4 + 28, payload);
            say(p, path, &first);
        }
    }
}

/// What B answers. What it has to say to A stays on the wire.
fn say(p: &mut Pair, path: Path, datagram: &[u8]) -> Vec<Vec<u8>> {
    let (now, before) = (p.now(), p.wire.len());
    p.sides[B].endpoint.handle(datagram, path, now, &mut p.rng);
    p.drain(B);
    p.wire.split_off(before).into_iter().map(|(_, _, datagram)| datagram).collect()
}

fn besieged() -> Pair {
    Pair::new(psk_configs(), 3)
}

/// So many octets of datagrams that A has sent.
fn sent(p: &Pair) -> usize {
    p.log.iter().filter(|(side, _)| *side == A).count()
}

#[test]
fn all_addresses_of_one_ipv6_64_together_have_no_more_than_their_networks_share() {
    let (mut p, mut siege) = (besieged(), Siege::new());
    for n in 0..8_000_u32 {
        let host = Ipv6Addr::from_bits(0xfd77_u128 << 112 | u128::from(n % 72 + 1));
        siege.begin(&mut p, host.into());
        p.time += Duration::from_micros(700);
    }
    let limits = p.sides[B].endpoint.config().limits.clone();
    assert_eq!(p.sides[B].endpoint.half_open(), limits.half_open_per_network);
    let child = p.child(A, Some("SECRET"));
    p.connect(A, Some(child));
    p.run();
    assert_eq!(p.children(A).len(), 1);
    assert_eq!(sent(&p), 3, "IKE_SA_INIT, IKE_AUTH and no cookie: nobody else is held for a crowd");
}

/// As many strangers a second as B makes key exchanges for, and more, from everywhere at once.
fn from_everywhere(p: &mut Pair, siege: &mut Siege, seconds: u64) {
    for n in 0..seconds * 2_000 {
        let network = (n * 2_654_435_761 % 4_096) as u32;
        let from: IpAddr = match network % 2 {
            0 => std::net::Ipv4Addr::from_bits(0x0a00_0001 + (network << 8)).into(),
            _ => Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(network) << 80 | 1).into(),
        };
        siege.begin(p, from);
        p.time += Duration::from_micros(500);
    }
}

#[test]
fn who_has_a_pass_begins_at_once_whatever_strangers_do() {
    let (mut p, mut siege) = (besieged(), Siege::new());
    from_everywhere(&mut p, &mut siege, 3);
    assert!(p.sides[B].endpoint.counters().get(Drop::Busy) > 1_000);
    for number in 1..=20 {
        let pass = p.sides[B].endpoint.make_pass(&mut p.rng);
        let child = p.child(A, Some("SECRET"));
        let before = sent(&p);
        p.connect_with(A, Some(pass), Some(child));
        p.run();
        assert_eq!((p.children(A).len(), sent(&p) - before), (number, 3), "no cookie, nothing sent again");
        from_everywhere(&mut p, &mut siege, 1);
    }
}

/// Where a first message's nonce begins.
fn nonce(message: &[u8]) -> usize {
    let (mut kind, mut at) = (message[4 + 16], 4 + 28);
    while kind != 40 {
        kind = message[at];
        at += usize::from(u16::from_be_bytes([message[at + 2], message[at + 3]]));
    }
    at + 4
}

#[test]
fn a_pass_is_of_no_use_twice_nor_to_who_only_saw_it() {
    let (mut p, mut siege) = (besieged(), Siege::new());
    let pass = p.sides[B].endpoint.make_pass(&mut p.rng);
    from_everywhere(&mut p, &mut siege, 1);
    p.connect_with(A, Some(pass.clone()), None);
    p.drain(A);
    let (_, path, request) = p.wire.pop_front().expect("a request");
    // An onlooker is quicker, from elsewhere, with an SPI or a nonce of its own.
    let from =
        |port| Path { local: path.remote, remote: SocketAddr::from(([198, 51, 100, 7], port)), marker: true };
    for (port, at) in [(1, 8), (2, nonce(&request))] {
        let mut copy = request.clone();
        copy[at] ^= 1;
        let answers = say(&mut p, from(port), &copy);
        assert!(answers.iter().all(|a| a.len() < 128), "a stranger's answer at octet {at}");
    }
    p.wire.push_back((B, path, request.clone()));
    p.run();
    assert_eq!(p.established(A).len(), 1);
    // And later, from elsewhere, word for word.
    let answers = say(&mut p, from(3), &request);
    assert!(answers.iter().all(|a| a.len() < 128), "a cookie at most");
    // Its own holder has one beginning with it too.
    let before = sent(&p);
    p.connect_with(A, Some(pass), None);
    p.drain(A);
    p.run();
    assert!(sent(&p) - before > 2 || p.established(A).len() == 1, "a stranger's way");
}

#[test]
fn a_stranger_that_means_it_gets_through_by_trying_again() {
    let (mut p, mut siege) = (besieged(), Siege::new());
    from_everywhere(&mut p, &mut siege, 12);
    let limits = p.sides[B].endpoint.config().limits.clone();
    assert_eq!(p.sides[B].endpoint.half_open(), limits.half_open, "the crowd is full");
    // The crowd goes on for as long as it takes; who means it comes at any moment between two of its requests, or five.
    for _ in 0..60 {
        if p.sides[A].endpoint.is_empty() {
            p.connect(A, None);
        }
        let mut octets = [0; 2];
        p.rng.fill(&mut octets);
        p.time += Duration::from_micros(u64::from(u16::from_be_bytes(octets) % 2_500));
        p.run();
        if !p.established(A).is_empty() {
            return;
        }
        from_everywhere(&mut p, &mut siege, 1);
    }
    panic!("no IKE SA in a minute: {:?}", p.sides[B].endpoint.counters());
}

#[test]
fn those_with_a_pass_are_bounded_too() {
    let mut configs = psk_configs();
    configs[1].limits.half_open_with_pass = 50;
    let mut p = Pair::new(configs, 3);
    for n in 0..200_u8 {
        let pass = p.sides[B].endpoint.make_pass(&mut p.rng);
        let path = Path { local: SocketAddr::from(([198, 51, n, 1], 4500)), ..p.path(A) };
        let now = p.now();
        p.sides[A]
            .endpoint
            .connect_with_pass(0, path, None, Some(pass), None, now, &mut p.rng)
            .expect("connect");
        p.drain(A);
        let (to, path, datagram) = p.wire.pop_front().expect("a request");
        p.deliver(to, path, &datagram);
        p.drain(B);
        p.wire.clear();
    }
    assert_eq!(p.sides[B].endpoint.half_open(), 50);
    assert_eq!(p.sides[B].endpoint.counters().get(Drop::GaveWay), 150);
}

/// B hears what is first on the wire, which takes it so long.
fn heard(p: &mut Pair, took: Duration) {
    let (to, path, datagram) = p.wire.pop_front().expect("a datagram");
    assert_eq!(to, B);
    p.deliver(to, path, &datagram);
    let now = p.now();
    p.sides[B].endpoint.took(took, now);
    p.drain(B);
}

#[test]
fn strangers_have_a_part_of_the_time_whatever_they_ask_for() {
    let tenth = Duration::from_millis(100);
    for (took, busy) in [(tenth - Duration::from_nanos(1), 0), (tenth, 1)] {
        let mut p = besieged();
        p.connect(A, None);
        p.drain(A);
        heard(&mut p, took);
        let counted = |p: &Pair| p.sides[B].endpoint.counters().get(Drop::Busy);
        // Its proof is looked at when they have some again: it is sent once more by then.
        p.run();
        assert_eq!((counted(&p), p.established(A).len()), (busy, 1 - busy as usize), "{took:?}");
        // Nobody else begins.
        let other = Siege::new().first;
        let path = Path { remote: SocketAddr::from(([198, 51, 100, 7], 4500)), ..p.path(B) };
        let answers = say(&mut p, path, &other);
        assert_eq!((counted(&p), answers.len()), (2 * busy, 1 - busy as usize), "{took:?}");
        p.pass(Duration::from_secs(2));
        assert_eq!(p.established(A).len(), 1);
    }
}

#[test]
fn a_process_that_stood_still_with_a_strangers_word_keeps_no_stranger_out_for_longer() {
    let mut p = besieged();
    p.connect(A, None);
    p.drain(A);
    // It was stopped, or had no processor.
    heard(&mut p, Duration::from_secs(600));
    let path = Path { remote: SocketAddr::from(([198, 51, 100, 7], 4500)), ..p.path(B) };
    let first = Siege::new().first;
    assert_eq!(say(&mut p, path, &first).len(), 0);
    p.pass(Duration::from_secs(1));
    assert_eq!(say(&mut p, path, &first).len(), 1);
}

#[test]
fn who_has_a_pass_takes_nothing_of_strangers_time_nor_waits_for_it() {
    let mut p = besieged();
    for (number, took) in [(1, Duration::from_secs(60)), (2, Duration::ZERO)] {
        let pass = p.sides[B].endpoint.make_pass(&mut p.rng);
        p.connect_with(A, Some(pass), None);
        p.drain(A);
        heard(&mut p, took);
        p.drain(A);
        p.run();
        assert_eq!(p.established(A).len(), number);
        // A stranger comes, and takes all that there is.
        let path = Path { remote: SocketAddr::from(([198, 51, 100, number as u8], 4500)), ..p.path(B) };
        let first = Siege::new().first;
        assert_eq!(say(&mut p, path, &first).len(), 2 - number);
        let now = p.now();
        p.sides[B].endpoint.took(Duration::from_secs(60), now);
    }
}
