//! IKE_SA_INIT: what anybody can say who sees it, as the one who is asked and as the one who answers.

use super::*;
use crate::config::Ppk;
use sha1::{Digest, Sha1};

/// Ours, and what it sends.
struct Beginning {
    ours: Endpoint,
    random: Seeded,
    now: Now,
    sent: Vec<(Path, Vec<u8>)>,
    closed: Option<CloseReason>,
    due: Option<Duration>,
}

impl Beginning {
    fn new(config: Config) -> Self {
        let now = Now { monotonic: Duration::from_secs(100), unix_seconds: 1_790_000_000 };
        let (sent, closed) = (Vec::new(), None);
        Self { ours: Endpoint::new(config), random: Seeded(7), now, sent, closed, due: None }
    }

    /// Ours begins.
    fn connects(config: Config, path: Path, float: Option<SocketAddr>) -> Self {
        let mut it = Self::new(config);
        it.ours.connect(0, path, float, None, it.now, &mut it.random).expect("begun");
        it.hear();
        it
    }

    fn hear(&mut self) {
        loop {
            match self.ours.poll(self.now, &mut self.random) {
                Output::Transmit { path, datagram } => self.sent.push((path, datagram)),
                Output::Event(Event::IkeClosed { reason, .. }) => self.closed = Some(reason),
                Output::Event(_) => {}
                Output::Wait(due) => {
                    self.due = due;
                    return;
                }
            }
        }
    }

    fn take(&mut self, message: &[u8]) {
        self.ours.handle(message, path(true), self.now, &mut self.random);
        self.hear();
    }

    fn at(&mut self, milliseconds: u64) {
        self.now.monotonic = Duration::from_millis(milliseconds);
        self.hear();
    }

    /// The last message that ours sent.
    fn last(&self) -> &[u8] {
        let (path, message) = self.sent.last().expect("a message");
        if path.marker { &message[4..] } else { message }
    }

    fn drops(&self, why: Drop) -> u64 {
        self.ours.counters().get(why)
    }

    /// The head of an answer to the last request.
    fn head(&self) -> Header {
        Header { spi_r: 0x7777, from_initiator: false, response: true, ..header(self.last()) }
    }

    /// An honest answer's parts.
    fn answer(&mut self) -> Answer {
        let request = self.last().to_vec();
        let fields = Fields::parse(header(&request).next, &request[HEADER..]).expect("payloads");
        let chosen = choose_ike(&self.ours.config().ike, &fields.sa.expect("proposals")).expect("one");
        let share = fields.ke.expect("a share");
        let method = KeyExchange::from_code(share.method).expect("known");
        let (public, _) = ke::respond(method, share.data, &mut self.random).expect("agreed");
        let mut proposal = chosen.answer(None);
        proposal.spi.clear();
        let (proposals, share) = (vec![proposal], Some((share.method, public)));
        let notes = vec![(NotifyKind::ChildlessSupported, Vec::new())];
        Answer { head: self.head(), proposals, share, nonce: Some(vec![9; 32]), notes }
    }
}

struct Answer {
    head: Header,
    proposals: Vec<Proposal>,
    share: Option<(u16, Vec<u8>)>,
    nonce: Option<Vec<u8>>,
    notes: Vec<(NotifyKind, Vec<u8>)>,
}

impl Answer {
    fn message(&self) -> Vec<u8> {
        let mut chain = Chain::new();
        if !self.proposals.is_empty() {
            chain.push(kind::SA, |out| Proposal::write_all(&self.proposals, out));
        }
        if let Some((method, public)) = &self.share {
            chain.push(kind::KE, |out| {
                out.extend_from_slice(&[method.to_be_bytes(), [0, 0]].concat());
                out.extend_from_slice(public);
            });
        }
        if let Some(nonce) = &self.nonce {
            chain.push(kind::NONCE, |out| out.extend_from_slice(nonce));
        }
        for (note, data) in &self.notes {
            chain.push(kind::NOTIFY, Notify::write(*note, data));
        }
        chain.message(self.head)
    }
}

type Change = fn(&mut Header);
type Notes = fn(&Header) -> Vec<(NotifyKind, Vec<u8>)>;

fn method(of: &[u8]) -> u16 {
    Fields::parse(header(of).next, &of[HEADER..]).expect("payloads").ke.expect("a share").method
}

#[test]
fn an_answer_to_the_first_message_has_its_header_and_what_has_another_changes_nothing() {
    let mut it = Beginning::connects(config(), path(true), None);
    let honest = it.answer();
    let strange: [(&str, Change); 3] = [
        ("another exchange", |head| head.exchange = Exchange::Auth),
        ("another message", |head| head.message_id = 1),
        ("from who began", |head| {
            head.from_initiator = true;
            std::mem::swap(&mut head.spi_i, &mut head.spi_r);
        }),
    ];
    for (n, (what, change)) in (1..).zip(strange) {
        let mut answer = it.answer();
        change(&mut answer.head);
        it.take(&answer.message());
        assert_eq!((it.drops(Drop::Unexpected), it.sent.len()), (n, 1), "{what}");
    }
    it.take(&honest.message());
    assert_eq!(header(it.last()).exchange, Exchange::Auth);
}

#[test]
fn an_error_that_anybody_could_have_sent_waits_two_seconds_for_a_real_answer() {
    for real in [false, true] {
        let mut it = Beginning::connects(config(), path(true), None);
        let head = it.head();
        let error = |kind| notification(kind, &[]).message(head);
        it.take(&error(NotifyKind::NoProposalChosen));
        // The request is sent again meanwhile, and another error changes nothing.
        assert_eq!(it.due, Some(Duration::from_secs(101)));
        it.at(101_000);
        assert_eq!((it.sent.len(), it.due), (2, Some(Duration::from_secs(102))));
        it.take(&error(NotifyKind::InvalidSyntax));
        it.at(101_999);
        assert!(it.closed.is_none() && it.ours.len() == 1);
        if real {
            let answer = it.answer().message();
            it.take(&answer);
            assert_eq!(header(it.last()).exchange, Exchange::Auth);
        }
        it.at(102_000);
        let why = CloseReason::Notified("NO_PROPOSAL_CHOSEN".to_owned());
        assert_eq!(it.closed, (!real).then_some(why));
        assert_eq!(it.ours.len(), usize::from(real));
    }
}

#[test]
fn of_the_groups_that_a_responder_asks_for_one_that_was_offered_and_not_tried_is_taken() {
    let wants = |it: &mut Beginning, data: &[u8]| {
        let answer = notification(NotifyKind::InvalidKePayload, data).message(it.head());
        it.take(&answer);
        method(it.last())
    };
    let [first, second] = [KeyExchange::X25519, KeyExchange::P256].map(KeyExchange::code);
    let mut it = Beginning::connects(config(), path(true), None);
    assert_eq!(wants(&mut it, &second.to_be_bytes()), second);
    assert_eq!(it.sent.len(), 2);
    // Each was tried by now; the third is known, and was not offered; the others are no group's number.
    for data in [
        &first.to_be_bytes()[..],
        &second.to_be_bytes(),
        &KeyExchange::MlKem768.code().to_be_bytes(),
        &[0, 0],
        &[19],
        &[0, 0, 20],
    ] {
        wants(&mut it, data);
        assert_eq!(it.sent.len(), 2, "{data:?}");
    }
    it.at(102_000);
    assert_eq!(it.closed, Some(CloseReason::Notified("INVALID_KE_PAYLOAD".to_owned())));
}

#[test]
fn a_cookie_comes_first_in_the_next_request_and_nobody_begins_more_than_five_times_again() {
    let mut it = Beginning::connects(config(), path(true), None);
    for n in 1..=6_u8 {
        let cookie = vec![n; if n == 1 { 1 } else { 64 }];
        let answer = notification(NotifyKind::Cookie, &cookie).message(it.head());
        it.take(&answer);
        if n < 6 {
            let request = it.last();
            assert_eq!((it.sent.len(), header(request).next), (1 + usize::from(n), kind::NOTIFY));
            let fields = Fields::parse(header(request).next, &request[HEADER..]).expect("payloads");
            assert_eq!((fields.notifies[0].kind, fields.notifies[0].data), (NotifyKind::Cookie, &cookie[..]));
        }
    }
    assert_eq!(it.sent.len(), 6);
    assert_eq!(it.closed, Some(CloseReason::Protocol("too many restarts of IKE_SA_INIT")));
    // RFC 7296 2.6: 1 to 64 octets.
    for length in [0, 65] {
        let mut it = Beginning::connects(config(), path(true), None);
        let answer = notification(NotifyKind::Cookie, &vec![1; length]).message(it.head());
        it.take(&answer);
        assert_eq!(it.sent.len(), 1);
    }
}

#[test]
fn an_answer_chooses_what_was_offered_in_each_part_and_gives_what_it_chose() {
    let hybrid = || {
        let mut ours = config();
        ours.ike[0].additional = vec![vec![KeyExchange::MlKem768]];
        ours
    };
    let p256 = |it: &mut Beginning| {
        let (_, public) = Private::generate(KeyExchange::P256, &mut it.random).expect("a key");
        Some((KeyExchange::P256.code(), public))
    };
    let proposes = |of: KeyExchange, answer: &mut Answer| {
        let mut one = IkeProposal::default();
        one.encryption.truncate(1);
        one.prf.truncate(1);
        one.key_exchange = vec![of];
        answer.proposals = vec![one.offer(None)];
    };
    type Case<'a> = (&'a str, bool, &'a dyn Fn(&mut Beginning, &mut Answer));
    let changes: [Case<'_>; 10] = [
        ("honest", true, &|_, _| {}),
        ("as it is", true, &|_, answer| proposes(KeyExchange::X25519, answer)),
        ("no SPI", false, &|_, answer| answer.head.spi_r = 0),
        ("another group chosen", false, &|_, answer| proposes(KeyExchange::P256, answer)),
        ("another group given", false, &|it, answer| answer.share = p256(it)),
        ("another name of the group", false, &|_, answer| {
            answer.share = answer.share.take().map(|(_, public)| (KeyExchange::P256.code(), public));
        }),
        ("another group in both", false, &|it, answer| {
            proposes(KeyExchange::P256, answer);
            answer.share = p256(it);
        }),
        ("two proposals", false, &|_, answer| answer.proposals.push(answer.proposals[0].clone())),
        ("no nonce", false, &|_, answer| answer.nonce = None),
        ("no share", false, &|_, answer| answer.share = None),
    ];
    for (what, taken, change) in changes {
        let mut it = Beginning::connects(config(), path(true), None);
        let mut answer = it.answer();
        change(&mut it, &mut answer);
        it.take(&answer.message());
        assert_eq!(header(it.last()).exchange == Exchange::Auth, taken, "{what}");
        assert_eq!(it.drops(Drop::Refused), u64::from(!taken), "{what}");
    }
    // RFC 9370 2.2.1: no additional key exchanges with who does not say that it knows IKE_INTERMEDIATE.
    for knows in [true, false] {
        let mut it = Beginning::connects(hybrid(), path(true), None);
        let mut answer = it.answer();
        if knows {
            answer.notes.push((NotifyKind::IntermediateSupported, Vec::new()));
        }
        it.take(&answer.message());
        assert_eq!(header(it.last()).exchange == Exchange::Intermediate, knows);
    }
}

/// RFC 7296 2.23: SHA-1 of the SPIs, the address and the port.
fn nat_hash(head: &Header, address: [u8; 4], port: u16) -> Vec<u8> {
    let spis = [head.spi_i.to_be_bytes(), head.spi_r.to_be_bytes()].concat();
    Sha1::digest([&spis[..], &address, &port.to_be_bytes()].concat()).to_vec()
}

#[test]
fn with_a_translation_between_all_goes_on_over_the_port_for_it_and_without_one_it_stays() {
    use NotifyKind::{NatDetectionDestinationIp as Destination, NatDetectionSourceIp as Source};
    let float = SocketAddr::from(([192, 0, 2, 1], 4500));
    let ours = || Config { force_udp: false, ..config() };
    let cases: [(&str, bool, Notes); 6] = [
        ("nothing is said", false, |_| Vec::new()),
        ("both are what they are", false, |head| {
            vec![
                (Source, nat_hash(head, [192, 0, 2, 2], 500)),
                (Destination, nat_hash(head, [192, 0, 2, 1], 500)),
            ]
        }),
        ("one of its addresses is the one", false, |head| {
            vec![
                (Source, nat_hash(head, [10, 0, 0, 2], 500)),
                (Source, nat_hash(head, [192, 0, 2, 2], 500)),
                (Destination, nat_hash(head, [192, 0, 2, 1], 500)),
            ]
        }),
        ("it is behind one", true, |head| {
            vec![
                (Source, nat_hash(head, [10, 0, 0, 2], 500)),
                (Destination, nat_hash(head, [192, 0, 2, 1], 500)),
            ]
        }),
        ("its port is another", true, |head| vec![(Source, nat_hash(head, [192, 0, 2, 2], 501))]),
        ("we are behind one", true, |head| {
            vec![
                (Source, nat_hash(head, [192, 0, 2, 2], 500)),
                (Destination, nat_hash(head, [10, 0, 0, 1], 500)),
            ]
        }),
    ];
    for (what, between, notes) in cases {
        for float in [Some(float), None] {
            let mut it = Beginning::connects(ours(), path(true), float);
            let mut answer = it.answer();
            answer.notes.extend(notes(&answer.head));
            it.take(&answer.message());
            let (over, _) = it.sent.last().expect("IKE_AUTH").clone();
            let floated = Path {
                local: SocketAddr::from(([192, 0, 2, 1], 4500)),
                remote: SocketAddr::from(([192, 0, 2, 2], 4500)),
                marker: true,
            };
            let floats = between && float.is_some();
            assert_eq!(over, if floats { floated } else { path(true) }, "{what}");
            assert_eq!(header(it.last()).exchange, Exchange::Auth, "{what}");
        }
        // Who began on a socket that carries ESP stays there.
        let there = Path { marker: true, ..path(true) };
        let mut it = Beginning::connects(ours(), there, Some(float));
        let mut answer = it.answer();
        answer.notes.extend(notes(&answer.head));
        let message = [&[0; 4][..], &answer.message()].concat();
        it.ours.handle(&message, there, it.now, &mut it.random);
        it.hear();
        assert_eq!(it.sent.last().expect("IKE_AUTH").0, there, "{what}");
    }
}

#[test]
fn the_hashes_that_are_announced_are_those_that_some_peer_may_sign_with() {
    let announced = |auth: Vec<RemoteAuth>| {
        let mut config = config();
        let peer = config.peers.remove(0);
        config.peers = auth.into_iter().map(|remote_auth| Peer { remote_auth, ..peer.clone() }).collect();
        let it = Beginning::connects(config, path(true), None);
        let fields = Fields::parse(header(it.last()).next, &it.last()[HEADER..]).expect("payloads");
        fields.notify(NotifyKind::SignatureHashAlgorithms).expect("announced").data.to_vec()
    };
    let signs = |schemes: &[SignatureScheme]| {
        let anchors = crate::crypto::pki::TrustAnchors::new(&[], &[]).expect("none");
        RemoteAuth::Certificate { anchors: anchors.into(), schemes: schemes.to_vec() }
    };
    // RFC 7427 7, RFC 8420 2.
    assert_eq!(announced(vec![signs(&[SignatureScheme::EcdsaP384Sha384])]), [0, 3]);
    assert_eq!(
        announced(vec![signs(&[SignatureScheme::Ed25519, SignatureScheme::RsaPssSha512])]),
        [0, 4, 0, 5]
    );
    let two = vec![signs(&[SignatureScheme::EcdsaP256Sha256]), signs(&[SignatureScheme::Ed25519])];
    assert_eq!(announced(two), [0, 2, 0, 5]);
    assert_eq!(announced(vec![signs(&SignatureScheme::DEFAULT)]), [0, 2, 0, 3, 0, 4, 0, 5]);
}

/// A first request of a stranger, and its header.
fn request(notes: &[(NotifyKind, &[u8])], padding: usize) -> (Header, Chain) {
    let head = Header {
        spi_i: 0x5555,
        spi_r: 0,
        next: 0,
        exchange: Exchange::Init,
        from_initiator: true,
        response: false,
        message_id: 0,
    };
    let (_, public) = Private::generate(KeyExchange::X25519, &mut Seeded(3)).expect("a key");
    let mut chain = Chain::new();
    chain.push(kind::SA, |out| Proposal::write_all(&[IkeProposal::default().offer(None)], out));
    push_ke(&mut chain, KeyExchange::X25519, &public);
    chain.push(kind::NONCE, |out| out.extend_from_slice(&[5; 32]));
    for (note, data) in notes {
        chain.push(kind::NOTIFY, Notify::write(*note, data));
    }
    if padding > 0 {
        chain.push(kind::VENDOR, |out| out.resize(out.len() + padding - crate::wire::GENERIC, 0));
    }
    (head, chain)
}

#[test]
fn a_first_request_has_its_header_and_what_has_another_makes_nothing() {
    let strange: [(&str, Change); 3] = [
        ("from who answers", |head| head.from_initiator = false),
        ("with an SPI of ours", |head| head.spi_r = 1),
        ("another message", |head| head.message_id = 1),
    ];
    for (what, change) in strange {
        let mut it = Beginning::new(config());
        let (mut head, chain) = request(&[], 0);
        change(&mut head);
        it.take(&chain.message(head));
        assert_eq!((it.ours.len(), it.sent.len(), it.drops(Drop::Unexpected)), (0, 0, 1), "{what}");
    }
    let mut it = Beginning::new(config());
    let (head, chain) = request(&[], 0);
    it.take(&chain.message(head));
    assert_eq!((it.ours.len(), it.sent.len()), (1, 1));
}

#[test]
fn a_first_request_is_at_most_8192_octets_long() {
    for (length, taken) in [(8_191, true), (8_192, true), (8_193, false), (20_000, false)] {
        let mut it = Beginning::new(config());
        let (head, chain) = request(&[], 0);
        let rest = length - chain.message(head).len();
        let (head, chain) = request(&[], rest);
        let message = chain.message(head);
        assert_eq!(message.len(), length);
        it.take(&message);
        assert_eq!((it.ours.len(), it.sent.len()), (usize::from(taken), usize::from(taken)), "{length}");
    }
}

#[test]
fn only_a_first_request_of_a_higher_version_is_answered() {
    // RFC 7296 2.5: not a response, or two that speak past each other would do so for ever.
    let versions = |change: fn(&mut Header)| {
        let mut it = Beginning::new(config());
        let (mut head, chain) = request(&[], 0);
        change(&mut head);
        let mut message = chain.message(head);
        message[17] = 0x30;
        it.take(&message);
        assert_eq!((it.ours.len(), it.drops(Drop::Version)), (0, 1));
        it.sent.len()
    };
    assert_eq!(versions(|_| {}), 1);
    assert_eq!(versions(|head| head.response = true), 0);
    assert_eq!(versions(|head| head.exchange = Exchange::Auth), 0);
    assert_eq!(versions(|head| head.spi_r = 1), 0);
}

#[test]
fn that_a_ppk_can_be_used_is_said_to_who_said_it_where_there_is_one() {
    for (said, has) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut ours = config();
        let ppk = Ppk { id: b"the key".to_vec(), former: None, mandatory: false };
        ours.peers[0].ppk = has.then_some(ppk);
        let mut it = Beginning::new(ours);
        let notes: &[(NotifyKind, &[u8])] = if said { &[(NotifyKind::UsePpk, &[])] } else { &[] };
        let (head, chain) = request(notes, 0);
        it.take(&chain.message(head));
        let fields = Fields::parse(header(it.last()).next, &it.last()[HEADER..]).expect("payloads");
        assert_eq!(fields.has(NotifyKind::UsePpk), said && has, "{said} {has}");
    }
}

#[test]
fn no_spi_is_zero_or_another_sas_even_from_a_source_that_repeats_itself() {
    // RFC 7296 3.1: the initiator's SPI is not zero.
    let mut ours = Endpoint::new(config());
    let now = Now { monotonic: Duration::from_secs(1), unix_seconds: 0 };
    let mut zero = |out: &mut [u8]| out.fill(0);
    let mut spis = std::collections::BTreeSet::new();
    for _ in 0..3 {
        // A key of zeros is one for X25519.
        ours.connect(0, path(true), None, None, now, &mut zero).expect("begun");
        let Output::Transmit { datagram, .. } = ours.poll(now, &mut zero) else { panic!("no request") };
        spis.insert(header(&datagram).spi_i);
    }
    assert_eq!((spis.len(), spis.contains(&0), ours.len()), (3, false, 3));
}
