//! New keys for the IKE SA, with a peer that answers anything and keeps what it should delete.

use super::*;
use crate::api::ChildError;

/// An answer to a rekeying of the IKE SA, or a request for one.
pub(super) fn asks(rogue: &mut Rogue, spi: u64, nonce: u8) -> Said {
    let (_, public) = Private::generate(KeyExchange::X25519, &mut rogue.random).expect("a key");
    Said {
        proposals: vec![rogue.ours.config().ike[0].offer(Some(spi))],
        nonce: vec![nonce; 32],
        share: Some((KeyExchange::X25519.code(), public)),
        selectors: false,
        rekeys: None,
    }
}

/// The request of ours for a new IKE SA.
fn requested(rogue: &mut Rogue) -> Received {
    let ike = rogue.ike();
    rogue.command(Command::RekeyIke { ike });
    rogue.asked.pop().expect("a request")
}

/// An honest answer to it, of this SPI.
fn grants(rogue: &mut Rogue, request: &Received, spi: u64, nonce: u8) -> (Said, Secret) {
    let fields = Fields::parse(request.first, &request.plain).expect("payloads");
    let chosen = choose_ike(&rogue.ours.config().ike, &fields.sa.expect("proposals")).expect("one");
    let share = fields.ke.expect("a share");
    let method = KeyExchange::from_code(share.method).expect("known");
    let (public, shared) = ke::respond(method, share.data, &mut rogue.random).expect("agreed");
    let said = Said {
        proposals: vec![chosen.answer(Some(spi))],
        nonce: vec![nonce; 32],
        share: Some((share.method, public)),
        selectors: false,
        rekeys: None,
    };
    (said, shared)
}

fn rekeyed(rogue: &Rogue) -> usize {
    rogue.told(|event| matches!(event, Event::IkeRekeyed { .. }))
}

#[test]
fn an_ike_sa_is_rekeyed_with_each_group_that_was_offered_once() {
    let mut rogue = Rogue::connected(config(), true);
    let mut request = Some(requested(&mut rogue));
    let mut methods = Vec::new();
    for wanted in [KeyExchange::P256, KeyExchange::P384, KeyExchange::P256] {
        let request = request.take().or_else(|| rogue.asked.pop()).expect("a request");
        let fields = Fields::parse(request.first, &request.plain).expect("payloads");
        methods.push(fields.ke.expect("a share").method);
        rogue.refuse(NotifyKind::InvalidKePayload, &wanted.code().to_be_bytes());
    }
    assert_eq!(methods, [KeyExchange::X25519, KeyExchange::P256, KeyExchange::P384].map(KeyExchange::code));
    assert_eq!((rogue.asked.len(), rogue.ours.len(), rogue.closed()), (0, 1, None));
    // What was not offered, and what is no group: the old keys are as good as before.
    for data in [&KeyExchange::MlKem768.code().to_be_bytes()[..], &[0, 1], &[19], &[]] {
        requested(&mut rogue);
        rogue.refuse(NotifyKind::InvalidKePayload, data);
        assert_eq!((rogue.asked.len(), rogue.ours.len(), rogue.closed()), (0, 1, None), "{data:?}");
    }
    assert_eq!(rekeyed(&rogue), 0);
}

#[test]
fn an_answer_to_a_rekeying_gives_the_group_that_was_chosen_and_ends_all_if_it_does_not() {
    let chooses = |k: KeyExchange, said: &mut Said| {
        let mut one = IkeProposal::default();
        one.encryption.truncate(1);
        one.prf.truncate(1);
        one.key_exchange = vec![k];
        said.proposals = vec![one.offer(Some(0x8888))];
    };
    let p256 = |rogue: &mut Rogue, said: &mut Said| {
        let (_, public) = Private::generate(KeyExchange::P256, &mut rogue.random).expect("a key");
        said.share = Some((KeyExchange::P256.code(), public));
    };
    type Change<'a> = (&'a str, bool, &'a dyn Fn(&mut Rogue, &mut Said));
    let cases: [Change<'_>; 9] = [
        ("honest", true, &|_, _| {}),
        ("as it is", true, &|_, said| chooses(KeyExchange::X25519, said)),
        ("another group chosen", false, &|_, said| chooses(KeyExchange::P256, said)),
        ("another group given", false, &|rogue, said| p256(rogue, said)),
        ("another name of it", false, &|_, said| {
            said.share = said.share.take().map(|(_, public)| (KeyExchange::P256.code(), public));
        }),
        ("another in both", false, &|rogue, said| {
            chooses(KeyExchange::P256, said);
            p256(rogue, said);
        }),
        ("no SPI", false, &|_, said| said.proposals[0].spi = vec![0; 8]),
        ("two proposals", false, &|_, said| said.proposals.push(said.proposals[0].clone())),
        ("all zeros", false, &|_, said| said.share = Some((KeyExchange::X25519.code(), vec![0; 32]))),
    ];
    for (what, taken, change) in cases {
        let mut rogue = Rogue::connected(config(), true);
        let request = requested(&mut rogue);
        let (mut said, _) = grants(&mut rogue, &request, 0x8888, 9);
        change(&mut rogue, &mut said);
        rogue.answer(Exchange::CreateChild, &said.chain());
        assert_eq!(rekeyed(&rogue), usize::from(taken), "{what}");
        let why = CloseReason::Protocol("answer to the rekeying of the IKE SA");
        assert_eq!(rogue.closed(), (!taken).then_some(&why), "{what}");
    }
}

/// A rekeying of ours and one of the peer's cross, and the lowest nonces of the two exchanges are these. Gives the channel over the
/// peer's SA too.
fn crossing(ours: u8, theirs: u8) -> (Rogue, Channel) {
    let (mut rogue, channel, request) = crossed(theirs);
    let (said, _) = grants(&mut rogue, &request, 0x9999, ours);
    rogue.answer(Exchange::CreateChild, &said.chain());
    (rogue, channel)
}

/// The peer's rekeying is granted while ours is under way.
fn crossed(theirs: u8) -> (Rogue, Channel, Received) {
    let mut rogue = Rogue::connected(config(), true);
    let request = requested(&mut rogue);
    let (private, public) = Private::generate(KeyExchange::X25519, &mut rogue.random).expect("a key");
    let mut said = asks(&mut rogue, 0x8888, theirs);
    said.share = Some((KeyExchange::X25519.code(), public));
    let answer = rogue.ask(Exchange::CreateChild, &said.chain()).expect("granted");
    let fields = Fields::parse(answer.first, &answer.plain).expect("payloads");
    let chosen = choose_ike(&rogue.ours.config().ike, &fields.sa.expect("one")).expect("ours");
    let spi = u64::from_be_bytes(chosen.spi.try_into().expect("an SPI"));
    let shared = private.agree(fields.ke.expect("a share").data).expect("agreed");
    let (ni, nr) = (vec![theirs; 32], fields.nonce.expect("a nonce"));
    let old = &rogue.hs.channel;
    let seed = IkeKeys::followed_seed(old.suite.prf, &old.sk_d, &shared, &ni, nr, &[]);
    let keys = IkeKeys::derive(&chosen.suite, &seed, &ni, nr, 0x8888, spi);
    let channel =
        Channel::new(Role::Initiator, 0x8888, spi, chosen.suite, &keys, path(false), true, rogue.now, 0, 0);
    (rogue, channel, request)
}

#[test]
fn of_two_rekeyings_of_the_ike_sa_that_cross_the_one_with_the_lowest_nonce_is_redundant() {
    // RFC 7296 2.8.2, as 2.8.1: its maker deletes it. Theirs has the lowest: ours stands, and ours deletes the old one.
    let (mut rogue, _) = crossing(0xff, 0);
    assert_eq!(rekeyed(&rogue), 1);
    let old = rogue.asked.pop().expect("over the old one");
    assert_eq!(deletes(&old), [crate::wire::Delete::Ike]);
    // Ours has the lowest: the peer's has the children, and the peer deletes the old one.
    let (rogue, _) = crossing(0, 0xff);
    assert_eq!((rekeyed(&rogue), rogue.asked.len()), (1, 0));
}

/// Says this over another channel; what is answered there.
fn over(rogue: &mut Rogue, channel: &mut Channel, exchange: Exchange, chain: &Chain) -> Option<Received> {
    std::mem::swap(&mut rogue.hs.channel, channel);
    let answer = rogue.ask(exchange, chain);
    std::mem::swap(&mut rogue.hs.channel, channel);
    answer
}

#[test]
fn a_request_over_an_sa_that_is_not_decided_on_waits_until_it_is() {
    let (mut rogue, mut channel, request) = crossed(0xff);
    let said = Said::asks(&mut rogue, 5_000, 9, None);
    assert!(over(&mut rogue, &mut channel, Exchange::CreateChild, &said.chain()).is_none());
    assert!(rogue.questions().is_empty());
    // Ours has the lowest nonce, and gives way.
    let (said, _) = grants(&mut rogue, &request, 0x9999, 0);
    rogue.answer(Exchange::CreateChild, &said.chain());
    assert_eq!(rogue.questions().len(), 1);
    std::mem::swap(&mut rogue.hs.channel, &mut channel);
    rogue.grant(600);
    assert_eq!((rogue.children(), rogue.answered.len()), (vec![600], 1));
}

#[test]
fn a_peer_that_takes_away_the_sa_that_it_chose_ends_all_and_what_was_promised_is_free() {
    let (mut rogue, mut channel, _) = crossed(0xff);
    let ike = rogue.ike();
    // In the queue behind our rekeying.
    rogue.command(Command::CreateChild { ike, child: wish(700) });
    let mut delete = Chain::new();
    delete.push(kind::DELETE, |out| out.extend_from_slice(&[1, 0, 0, 0]));
    over(&mut rogue, &mut channel, Exchange::Informational, &delete).expect("an answer");
    assert_eq!(rogue.closed(), None, "the one that has the children lives");
    rogue.refuse(NotifyKind::NoProposalChosen, &[]);
    assert_eq!(rogue.closed(), Some(&CloseReason::Protocol("the new IKE SA was taken away")));
    let now = rogue.now;
    let again = rogue.ours.connect(0, path(true), None, Some(wish(700)), now, &mut rogue.random);
    assert!(again.is_ok());
    assert_eq!(rogue.try_command(Command::Probe { ike }), Err(CommandError::NoSuchIke));
}

#[test]
fn a_replaced_ike_sa_is_not_rekeyed_again_and_no_child_comes_over_it() {
    let mut rogue = Rogue::connected(config(), true);
    let said = asks(&mut rogue, 0x8888, 9);
    rogue.ask(Exchange::CreateChild, &said.chain()).expect("granted");
    assert_eq!((rekeyed(&rogue), rogue.ours.len()), (1, 2));
    let said = asks(&mut rogue, 0x8889, 9);
    let answer = rogue.ask(Exchange::CreateChild, &said.chain()).expect("an answer");
    assert!(says(&answer, NotifyKind::TemporaryFailure).is_some());
    let said = Said::asks(&mut rogue, 5_000, 9, None);
    let answer = rogue.ask(Exchange::CreateChild, &said.chain()).expect("an answer");
    assert!(says(&answer, NotifyKind::TemporaryFailure).is_some());
    assert_eq!((rekeyed(&rogue), rogue.ours.len(), rogue.questions().len()), (1, 2, 0));
    // While a child is being made, deleted, or all is being closed, nobody rekeys (RFC 7296 2.25.2).
    for command in [|ike| Command::CreateChild { ike, child: wish(512) }, |ike| Command::CloseIke { ike }] {
        let mut rogue = Rogue::connected(config(), true);
        let ike = rogue.ike();
        rogue.command(command(ike));
        let said = asks(&mut rogue, 0x8888, 9);
        let answer = rogue.ask(Exchange::CreateChild, &said.chain()).expect("an answer");
        assert!(says(&answer, NotifyKind::TemporaryFailure).is_some());
        assert_eq!((rekeyed(&rogue), rogue.ours.len()), (0, 1));
    }
}

fn hybrid() -> Config {
    let mut ours = config();
    ours.ike[0].additional = vec![vec![KeyExchange::MlKem768]];
    // One datagram a message.
    ours.limits.fragment_above = 4_096;
    ours
}

/// The peer has begun a series; the link of it.
fn series() -> (Rogue, Vec<u8>) {
    let mut rogue = Rogue::connected(hybrid(), true);
    let said = asks(&mut rogue, 0x8888, 9);
    let answer = rogue.ask(Exchange::CreateChild, &said.chain()).expect("an answer");
    let link = says(&answer, NotifyKind::AdditionalKeyExchange).expect("a link");
    assert_eq!(rekeyed(&rogue), 0);
    (rogue, link)
}

fn follows(rogue: &mut Rogue, link: &[u8]) -> Received {
    let (_, public) = Private::generate(KeyExchange::MlKem768, &mut rogue.random).expect("a key");
    let mut chain = Chain::new();
    push_ke(&mut chain, KeyExchange::MlKem768, &public);
    chain.push(kind::NOTIFY, Notify::write(NotifyKind::AdditionalKeyExchange, link));
    rogue.ask(Exchange::FollowupKe, &chain).expect("an answer")
}

#[test]
fn a_series_goes_on_by_its_link_and_in_its_time_alone() {
    // RFC 9370 2.2.4: STATE_NOT_FOUND for what is not known, or no more. Three times what a handshake may take.
    let end = Duration::from_secs(100 + 90);
    for (when, known, good) in [
        (Duration::from_secs(100), true, true),
        (end - Duration::from_nanos(1), true, true),
        (end, true, false),
        (Duration::from_secs(100), false, false),
    ] {
        let (mut rogue, mut link) = series();
        link[15] ^= u8::from(!known);
        // No probe of ours in between.
        rogue.now.monotonic = when;
        let answer = follows(&mut rogue, &link);
        assert_eq!(says(&answer, NotifyKind::StateNotFound).is_none(), good, "{when:?} {known}");
        assert_eq!((rekeyed(&rogue), rogue.closed()), (usize::from(good), None));
    }
    // It is no other's, and over once it is.
    let mut rogue = Rogue::connected(hybrid(), true);
    let answer = follows(&mut rogue, &[7; 16]);
    assert!(says(&answer, NotifyKind::StateNotFound).is_some());
}

#[test]
fn what_we_begin_ends_a_series_of_the_peers_and_a_probe_does_not() {
    for (command, goes_on) in [
        ((|ike| Command::Probe { ike }) as fn(IkeId) -> Command, true),
        (|ike| Command::CreateChild { ike, child: wish(512) }, false),
        (|ike| Command::RekeyIke { ike }, false),
    ] {
        let (mut rogue, link) = series();
        let ike = rogue.ike();
        rogue.command(command(ike));
        let answer = follows(&mut rogue, &link);
        assert_eq!(says(&answer, NotifyKind::StateNotFound).is_none(), goes_on);
        assert_eq!((rekeyed(&rogue), rogue.closed()), (usize::from(goes_on), None));
    }
}

#[test]
fn a_series_of_the_peers_that_was_begun_before_the_ike_sa_was_narrowed_comes_to_nothing() {
    for narrowed in [true, false] {
        let (mut rogue, link) = series();
        let ike = rogue.ike();
        // The peer asks for a child meanwhile, which may be of an IKE SA that is agreed by this alone.
        let mut proposals = hybrid().ike;
        proposals[0].key_exchange = vec![KeyExchange::P384];
        rogue.command(Command::NarrowIke { ike, proposals: narrowed.then_some(proposals) });
        let answer = follows(&mut rogue, &link);
        assert_eq!(says(&answer, NotifyKind::StateNotFound).is_some(), narrowed);
        assert_eq!((rekeyed(&rogue), rogue.closed()), (usize::from(!narrowed), None));
    }
}

#[test]
fn a_child_that_cannot_be_asked_for_over_a_replaced_sa_is_asked_for_over_its_successor() {
    let (mut rogue, mut channel, request) = crossed(0xff);
    let ike = rogue.ike();
    rogue.command(Command::CreateChild { ike, child: wish(700) });
    assert!(rogue.asked.is_empty());
    let (said, _) = grants(&mut rogue, &request, 0x9999, 0);
    // Ours gives way; what it had to do goes over the peer's.
    std::mem::swap(&mut rogue.hs.channel, &mut channel);
    let Rogue { around, random, now, .. } = &mut rogue;
    around
        .with_ctx(*now, random, |ctx| channel.respond(Exchange::CreateChild, &said.chain(), ctx))
        .expect("sent");
    rogue.say();
    let request = rogue.asked.pop().expect("a request over the peer's SA");
    let granted = Said::grants(&mut rogue, &request, 4_096, 9);
    rogue.answer(Exchange::CreateChild, &granted.chain());
    assert_eq!((rogue.children(), rogue.failed()), (vec![700], Vec::<(u32, ChildError)>::new()));
}
