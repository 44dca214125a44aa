//! IKE_AUTH: what a peer says of itself and does not prove, and what becomes of an IKE SA that is not made yet.

use super::*;
use crate::api::ChildError;
use crate::config::Ppk;

/// ID and AUTH payloads with something changed or left out, and what follows them.
fn chain_of(parts: &[(u8, Vec<u8>)]) -> Chain {
    let mut chain = Chain::new();
    for (kind, body) in parts {
        chain.push(*kind, |out| out.extend_from_slice(body));
    }
    chain
}

/// The bodies of an honest proof: ID, then AUTH.
fn bodies(rogue: &Rogue, message_id: u32) -> (Vec<u8>, Vec<u8>) {
    let id = name("theirs.test").write();
    let octets = rogue.hs.octets(rogue.hs.channel.role, &id, message_id);
    let auth = rogue.hs.shared_key_auth(KEY, &octets);
    (id, [&[auth_method::SHARED_KEY, 0, 0, 0][..], &auth[..]].concat())
}

#[test]
fn who_begins_and_does_not_prove_who_it_is_is_refused_and_leaves_nothing() {
    let failed = CloseReason::Authentication;
    type Case = (&'static str, CloseReason, fn(Vec<u8>, Vec<u8>) -> Vec<(u8, Vec<u8>)>);
    let cases: [Case; 8] = [
        ("no identity", failed("no identity"), |_, auth| vec![(kind::AUTH, auth)]),
        ("no proof", failed("the peer wants EAP"), |id, _| vec![(kind::ID_I, id)]),
        ("no proof, and EAP", failed("the peer wants EAP"), |id, _| {
            vec![(kind::ID_I, id), (kind::EAP, vec![1, 0, 0, 4])]
        }),
        ("another method", failed("the peer does not authenticate by the shared key"), |id, mut auth| {
            auth[0] = auth_method::DIGITAL_SIGNATURE;
            vec![(kind::ID_I, id), (kind::AUTH, auth)]
        }),
        ("another proof", failed("the shared key differs"), |id, mut auth| {
            auth[4] ^= 1;
            vec![(kind::ID_I, id), (kind::AUTH, auth)]
        }),
        ("a proof cut short", failed("the shared key differs"), |id, mut auth| {
            auth.truncate(auth.len() - 1);
            vec![(kind::ID_I, id), (kind::AUTH, auth)]
        }),
        ("somebody else", failed("no configured peer has these identities"), |_, auth| {
            vec![(kind::ID_I, name("another.test").write()), (kind::AUTH, auth)]
        }),
        // There is such an identity of ours, for another peer.
        ("to somebody else", failed("no configured peer has these identities"), |id, auth| {
            vec![(kind::ID_I, id), (kind::ID_R, name("second.test").write()), (kind::AUTH, auth)]
        }),
    ];
    for (what, why, parts) in cases {
        let mut ours = config();
        let (local_id, remote_id) = (name("second.test"), RemoteId::Exactly(name("third.test")));
        ours.peers.push(Peer { local_id, remote_id, ..ours.peers[0].clone() });
        let mut rogue = Rogue::meets(ours, true, None);
        let (id, auth) = bodies(&rogue, 1);
        let answer = rogue.ask(Exchange::Auth, &chain_of(&parts(id, auth))).expect("an answer");
        assert!(says(&answer, NotifyKind::AuthenticationFailed).is_some(), "{what}");
        assert_eq!(rogue.closed(), Some(&why), "{what}");
        assert_eq!((rogue.ours.len(), rogue.ours.half_open(), rogue.events.len()), (0, 0, 1), "{what}");
    }
}

#[test]
fn a_request_that_cannot_be_read_ends_the_ike_sa_that_is_not_made_yet() {
    // RFC 7296 2.21.2, 2.5: one is malformed, one has a critical payload that nobody knows.
    for (critical, kind) in
        [(true, NotifyKind::UnsupportedCriticalPayload), (false, NotifyKind::InvalidSyntax)]
    {
        let mut rogue = Rogue::meets(config(), true, None);
        let mut chain = rogue.proof(1);
        if critical {
            chain.push(200, critically);
        } else {
            chain.push(kind::DELETE, |out| out.push(9));
        }
        let answer = rogue.ask(Exchange::Auth, &chain).expect("an answer");
        assert_eq!(says(&answer, kind), Some(if critical { vec![200] } else { vec![] }));
        assert_eq!(rogue.closed(), Some(&CloseReason::Protocol("IKE_AUTH request")));
        assert_eq!((rogue.ours.len(), rogue.ours.half_open()), (0, 0));
    }
}

#[test]
fn who_asks_for_half_a_child_is_established_without_one_and_told_so() {
    let selectors = || {
        let mut body = Vec::new();
        TrafficSelectors::write(&any(), None, &mut body);
        body
    };
    let mut proposals = Vec::new();
    Proposal::write_all(&[ChildProposal::default().offer(4_096, false)], &mut proposals);
    for parts in [
        vec![(kind::SA, proposals.clone())],
        vec![(kind::TS_I, selectors())],
        vec![(kind::TS_R, selectors())],
        vec![(kind::SA, proposals.clone()), (kind::TS_I, selectors())],
        vec![(kind::TS_I, selectors()), (kind::TS_R, selectors())],
    ] {
        let mut rogue = Rogue::meets(config(), true, None);
        let (id, auth) = bodies(&rogue, 1);
        let all = [vec![(kind::ID_I, id), (kind::AUTH, auth)], parts].concat();
        let answer = rogue.ask(Exchange::Auth, &chain_of(&all)).expect("an answer");
        assert!(says(&answer, NotifyKind::InvalidSyntax).is_some());
        assert!(rogue.questions().is_empty() && rogue.ours.len() == 1 && rogue.closed().is_none());
    }
}

#[test]
fn an_intermediate_exchange_too_many_is_dropped_and_harms_nothing() {
    let mut rogue = Rogue::meets(config(), true, None);
    let mut chain = Chain::new();
    push_ke(&mut chain, KeyExchange::X25519, &[9; 32]);
    assert!(rogue.ask(Exchange::Intermediate, &chain).is_none());
    assert_eq!(rogue.ours.counters().get(Drop::Unexpected), 1);
    assert_eq!((rogue.ours.len(), rogue.ours.half_open()), (1, 1));
}

#[test]
fn who_answers_and_does_not_prove_who_it_is_is_no_peer_and_its_childs_spi_is_free() {
    let failed = CloseReason::Authentication;
    type Case = (&'static str, CloseReason, bool, fn(Vec<u8>, Vec<u8>) -> Vec<(u8, Vec<u8>)>);
    let cases: [Case; 6] = [
        ("it refuses", CloseReason::Notified("AUTHENTICATION_FAILED".into()), false, |_, _| {
            vec![(kind::NOTIFY, vec![0, 0, 0, 24])]
        }),
        ("no identity", CloseReason::Protocol("IKE_AUTH response without identity"), false, |_, auth| {
            vec![(kind::AUTH, auth)]
        }),
        ("no proof", failed("no AUTH payload"), true, |id, _| vec![(kind::ID_R, id)]),
        ("another proof", failed("the shared key differs"), true, |id, mut auth| {
            auth[4] ^= 1;
            vec![(kind::ID_R, id), (kind::AUTH, auth)]
        }),
        ("somebody else", failed("the peer is somebody else"), true, |_, auth| {
            vec![(kind::ID_R, name("another.test").write()), (kind::AUTH, auth)]
        }),
        ("nonsense", CloseReason::Protocol("IKE_AUTH response"), true, |id, auth| {
            vec![(kind::ID_R, id), (kind::AUTH, auth), (kind::DELETE, vec![9])]
        }),
    ];
    for (what, why, told, parts) in cases {
        let mut rogue = Rogue::meets(config(), false, Some(wish(512)));
        let request = rogue.asked.pop().expect("IKE_AUTH");
        let (id, auth) = bodies(&rogue, request.id);
        rogue.answer(Exchange::Auth, &chain_of(&parts(id, auth)));
        assert_eq!(rogue.closed(), Some(&why), "{what}");
        assert_eq!((rogue.ours.len(), rogue.events.len()), (0, 1), "{what}");
        // RFC 7296 2.21.2: it is told, where it does not know.
        let says = rogue.asked.iter().filter_map(|r| says(r, NotifyKind::AuthenticationFailed)).count();
        assert_eq!(says, usize::from(told), "{what}");
        let now = rogue.now;
        let again = rogue.ours.connect(0, path(true), None, Some(wish(512)), now, &mut rogue.random);
        assert!(again.is_ok(), "{what}");
    }
}

#[test]
fn a_first_child_that_is_refused_forgotten_or_answered_wrongly_is_none() {
    let mut proposals = Vec::new();
    Proposal::write_all(&[ChildProposal::default().offer(4_096, false)], &mut proposals);
    type Case = (ChildError, bool, Vec<(u8, Vec<u8>)>);
    let cases: [Case; 3] = [
        (ChildError::NotAnswered, false, Vec::new()),
        (ChildError::Notified("TS_UNACCEPTABLE".to_owned()), false, vec![(kind::NOTIFY, vec![0, 0, 0, 38])]),
        (ChildError::BadAnswer("no SA or TS payload"), true, vec![(kind::SA, proposals)]),
    ];
    for (why, deleted, parts) in cases {
        let mut ours = config();
        ours.peers[0].childless = Childless::Never;
        let mut rogue = Rogue::meets(ours, false, Some(wish(512)));
        let request = rogue.asked.pop().expect("IKE_AUTH");
        let (id, auth) = bodies(&rogue, request.id);
        let all = [vec![(kind::ID_R, id), (kind::AUTH, auth)], parts].concat();
        rogue.answer(Exchange::Auth, &chain_of(&all));
        assert_eq!(rogue.failed(), [(512, why)]);
        assert!(rogue.children().is_empty() && rogue.ours.len() == 1 && rogue.closed().is_none());
        // What the peer believes in is taken away again, by our SPI.
        let told: Vec<_> = rogue.asked.iter().map(deletes).collect();
        let expected = vec![vec![crate::wire::Delete::Esp(vec![512])]; usize::from(deleted)];
        assert_eq!(told, expected);
        let ike = rogue.ike();
        assert_eq!(rogue.try_command(Command::CreateChild { ike, child: wish(512) }), Ok(()));
    }
}

/// Ours, with a key that is elsewhere.
fn signing() -> Config {
    let mut ours = config();
    ours.peers[0].local_auth =
        LocalAuth::Certificate { chain: Vec::new(), schemes: SignatureScheme::DEFAULT.to_vec() };
    ours
}

fn with_ppk(mandatory: bool) -> Config {
    let mut ours = config();
    let former = Some(b"old".to_vec());
    ours.peers[0].ppk = Some(Ppk { id: b"new".to_vec(), former, mandatory });
    ours
}

fn question(rogue: &Rogue) -> RequestId {
    let asked = |event: &Event| match event {
        Event::Sign { request, .. } | Event::MixPpk { request, .. } => Some(*request),
        Event::ChildRequested(r) => Some(r.request),
        _ => None,
    };
    rogue.events.iter().rev().find_map(asked).expect("a question")
}

/// Everything that ours can be waiting for before it is established, with a child of this SPI wanted.
fn waiting() -> Vec<(&'static str, Rogue)> {
    let mut hybrid = config();
    hybrid.ike[0].additional = vec![vec![KeyExchange::MlKem768]];
    let mut all = Vec::new();
    for (what, ours) in [
        ("exchanging", hybrid),
        ("mixing", with_ppk(true)),
        ("signing", signing()),
        ("authenticating", config()),
    ] {
        all.push((what, Rogue::meets(ours, false, Some(wish(512)))));
    }
    all
}

#[test]
fn an_ike_sa_that_is_not_made_yet_takes_no_command_but_to_be_given_up_and_frees_its_childs_spi() {
    for (what, mut rogue) in waiting() {
        let ike = IkeId(1);
        let none = Err(CommandError::NoSuchIke);
        assert_eq!(rogue.try_command(Command::Probe { ike }), none, "{what}");
        assert_eq!(rogue.try_command(Command::CreateChild { ike, child: wish(600) }), none, "{what}");
        assert_eq!(rogue.try_command(Command::RekeyIke { ike }), none, "{what}");
        assert!(rogue.ours.len() == 1 && rogue.closed().is_none(), "{what}");
        let (now, again) = (rogue.now, wish(512));
        let connected = rogue.ours.connect(0, path(true), None, Some(again), now, &mut rogue.random);
        assert_eq!(connected, Err(CommandError::SpiInUse), "{what}");
        rogue.command(Command::CloseIke { ike });
        assert_eq!((rogue.closed(), rogue.ours.len()), (Some(&CloseReason::Local), 0), "{what}");
        let connected = rogue.ours.connect(0, path(true), None, Some(wish(512)), now, &mut rogue.random);
        assert!(connected.is_ok(), "{what}");
    }
}

#[test]
fn who_waits_for_an_answer_from_its_own_host_waits_as_long_as_a_handshake_may_take() {
    let now = Duration::from_secs(100);
    let wait = Config::new(Vec::new()).timers.half_open;
    for late in [Duration::ZERO, Duration::from_secs(7)] {
        for (what, mut rogue) in
            waiting().into_iter().filter(|(what, _)| ["mixing", "signing"].contains(what))
        {
            assert_eq!(rogue.due, Some(now + wait), "{what}");
            rogue.at(now + wait - Duration::from_millis(1));
            assert!(rogue.ours.len() == 1 && rogue.closed().is_none(), "{what}");
            rogue.at(now + wait + late);
            assert_eq!((rogue.closed(), rogue.ours.len()), (Some(&CloseReason::TimedOut), 0), "{what}");
            // What is answered now was asked by nobody any more.
            let request = question(&rogue);
            let none = Err(CommandError::NoSuchRequest);
            assert_eq!(rogue.try_command(Command::Signed { request, signature: None }), none, "{what}");
            assert_eq!(rogue.due, None, "{what}: there is nothing to be called for");
            let again =
                rogue.ours.connect(0, path(true), None, Some(wish(512)), rogue.now, &mut rogue.random);
            assert!(again.is_ok(), "{what}");
        }
        let mut rogue = Rogue::meets(config(), true, None);
        rogue.at(now + wait - Duration::from_millis(1));
        assert_eq!((rogue.ours.len(), rogue.ours.half_open()), (1, 1));
        rogue.at(now + wait + late);
        assert_eq!((rogue.ours.len(), rogue.ours.half_open(), rogue.events.len()), (0, 0, 0));
    }
}

/// Sends its last request again.
fn repeat(rogue: &mut Rogue) {
    let before = rogue.ours.counters().get(Drop::InProgress);
    rogue.now.monotonic += Duration::from_secs(3);
    let Rogue { around, hs, random, now, .. } = rogue;
    around.with_ctx(*now, random, |ctx| hs.channel.on_timer(ctx));
    rogue.say();
    assert_eq!(rogue.ours.counters().get(Drop::InProgress), before + 1, "it came");
}

/// Ours is asked for a child in IKE_AUTH.
fn asks_for_a_child(rogue: &mut Rogue, notes: &[(NotifyKind, &[u8])]) -> Option<Received> {
    let (id, auth) = bodies(rogue, 1);
    let mut chain = chain_of(&[(kind::ID_I, id), (kind::AUTH, auth)]);
    for (note, data) in notes {
        chain.push(kind::NOTIFY, Notify::write(*note, data));
    }
    chain.push(kind::SA, |out| {
        Proposal::write_all(&[ChildProposal::default().offer(4_096, false)], out);
    });
    chain.push(kind::TS_I, |out| TrafficSelectors::write(&any(), None, out));
    chain.push(kind::TS_R, |out| TrafficSelectors::write(&any(), None, out));
    rogue.ask(Exchange::Auth, &chain)
}

#[test]
fn while_ours_decides_and_signs_a_request_that_comes_again_changes_nothing_and_its_place_is_freed_after() {
    for signature in [Some(vec![7; 64]), None] {
        let mut rogue = Rogue::meets(signing(), true, None);
        assert!(asks_for_a_child(&mut rogue, &[]).is_none());
        repeat(&mut rogue);
        assert_eq!((rogue.ours.half_open(), rogue.questions().len()), (1, 1));
        // Nobody else's question is answered by this one's name.
        let request = question(&rogue);
        let none = Err(CommandError::NoSuchRequest);
        assert_eq!(rogue.try_command(Command::Signed { request, signature: Some(vec![7]) }), none);
        assert_eq!(rogue.try_command(Command::PpkMixed { request, keys: None }), none);
        rogue.grant(512);
        repeat(&mut rogue);
        assert_eq!((rogue.ours.half_open(), rogue.told(|e| matches!(e, Event::Sign { .. }))), (1, 1));
        let signed = question(&rogue);
        assert_ne!(signed, request);
        let decision = ChildDecision::Refuse;
        assert_eq!(rogue.try_command(Command::Decide { request: signed, decision }), none);
        let good = signature.is_some();
        rogue.command(Command::Signed { request: signed, signature });
        assert_eq!((rogue.ours.half_open(), rogue.ours.len()), (0, usize::from(good)));
        assert_eq!(rogue.children(), if good { vec![512] } else { vec![] });
        let answer = rogue.answered.pop().expect("an answer");
        assert_eq!(says(&answer, NotifyKind::AuthenticationFailed).is_some(), !good);
        assert_eq!(rogue.closed(), (!good).then_some(&CloseReason::NotSigned));
        let again = rogue.ours.connect(0, path(true), None, Some(wish(512)), rogue.now, &mut rogue.random);
        assert_eq!(again.is_ok(), !good, "its SPI is free where there is no child");
        // What was answered is asked no more.
        assert!(format!("{:?}", rogue.ours).contains("questions: {}"));
    }
}

#[test]
fn a_child_that_was_granted_and_not_signed_for_in_time_is_none_and_its_spi_is_free() {
    let mut rogue = Rogue::meets(signing(), true, None);
    assert!(asks_for_a_child(&mut rogue, &[]).is_none());
    rogue.grant(512);
    rogue.at(Duration::from_millis(129_999));
    assert_eq!(rogue.ours.half_open(), 1);
    rogue.at(Duration::from_secs(130));
    assert_eq!((rogue.ours.half_open(), rogue.closed()), (0, Some(&CloseReason::TimedOut)));
    let again = rogue.ours.connect(0, path(true), None, Some(wish(512)), rogue.now, &mut rogue.random);
    assert!(again.is_ok() && rogue.children().is_empty());
    // The same for a decision that does not come.
    let mut rogue = Rogue::meets(signing(), true, None);
    assert!(asks_for_a_child(&mut rogue, &[]).is_none());
    rogue.at(Duration::from_secs(130));
    assert_eq!((rogue.ours.half_open(), rogue.closed()), (0, Some(&CloseReason::TimedOut)));
}

#[test]
fn a_ppk_is_mixed_in_by_one_of_its_two_names_and_any_other_is_none() {
    for (id, mandatory, mixed) in [
        (&b"\x02new"[..], true, true),
        (b"\x02old", true, true),
        (b"\x02ol", true, false),
        (b"\x02other", true, false),
        (b"\x02other", false, false),
        // Of another type.
        (b"\x01new", true, false),
        (b"", true, false),
    ] {
        let mut rogue = Rogue::meets(with_ppk(mandatory), true, None);
        let answer = asks_for_a_child(&mut rogue, &[(NotifyKind::PpkIdentity, id)]);
        assert_eq!(rogue.told(|e| matches!(e, Event::MixPpk { .. })), usize::from(mixed), "{id:?}");
        if mixed {
            assert_eq!((answer.is_none(), rogue.ours.half_open()), (true, 1));
            repeat(&mut rogue);
            let request = question(&rogue);
            rogue.command(Command::PpkMixed { request, keys: None });
            assert_eq!(rogue.closed(), Some(&CloseReason::PpkNotMixed));
        } else {
            let why = match mandatory {
                true => "the peer did not use the PPK",
                false => "the peer uses a PPK that is not the one it shares",
            };
            assert_eq!(rogue.closed(), Some(&CloseReason::Authentication(why)), "{id:?}");
        }
        assert_eq!((rogue.ours.len(), rogue.ours.half_open()), (0, 0), "{id:?}");
    }
}
