//! The life of an established IKE SA: its times, its queue, and its end.

use super::*;
use crate::config::Timers;

const BEGAN: Duration = Duration::from_secs(100);

fn seconds(n: u64) -> Duration {
    BEGAN + Duration::from_secs(n)
}

fn just_before(time: Duration) -> Duration {
    time - Duration::from_nanos(1)
}

#[test]
fn a_peer_is_asked_whether_it_lives_after_its_silence_and_not_before() {
    let mut rogue = Rogue::connected(config(), true);
    // Thirty seconds of silence, as the defaults have it.
    assert_eq!(rogue.due, Some(seconds(30)));
    rogue.at(just_before(seconds(30)));
    assert!(rogue.asked.is_empty());
    rogue.at(seconds(30));
    assert_eq!(rogue.asked.len(), 1);
    // Nothing but the same again is due while it is not answered.
    assert_eq!(rogue.due, Some(seconds(31)));
    rogue.at(seconds(31));
    assert_eq!((rogue.asked.len(), rogue.due), (1, Some(seconds(31) + Duration::from_millis(1_800))));
    rogue.answer(Exchange::Informational, &Chain::new());
    assert_eq!(rogue.due, Some(seconds(61)), "from when it was heard");
    // Whatever it says counts.
    rogue.at(seconds(50));
    rogue.ask(Exchange::Informational, &Chain::new()).expect("an answer");
    assert_eq!(rogue.due, Some(seconds(80)));
}

#[test]
fn an_ike_sas_age_is_told_when_it_has_it_and_wakes_nobody_after() {
    let mut ours = config();
    ours.timers = Timers { liveness: None, ike_rekey: Some(Duration::from_secs(600)), ..ours.timers };
    let mut rogue = Rogue::connected(ours, true);
    let due = |rogue: &Rogue| rogue.told(|event| matches!(event, Event::IkeRekeyDue { .. }));
    assert_eq!(rogue.due, Some(seconds(600)));
    rogue.at(just_before(seconds(600)));
    assert_eq!(due(&rogue), 0);
    rogue.at(seconds(600));
    assert_eq!((due(&rogue), rogue.due), (1, None));
    rogue.at(seconds(6_000));
    assert_eq!((due(&rogue), rogue.due), (1, None));
    // Neither is there anything to wait for but an answer while one is due.
    let ike = rogue.ike();
    rogue.command(Command::Probe { ike });
    assert_eq!(rogue.due, Some(seconds(6_001)));
}

#[test]
fn an_age_that_comes_while_an_answer_is_awaited_is_told_and_a_probe_does_not_follow_another() {
    let mut ours = config();
    let short = Some(Duration::from_secs(2));
    ours.timers = Timers { liveness: Some(Duration::from_millis(1)), ike_rekey: short, ..ours.timers };
    let mut rogue = Rogue::connected(ours, true);
    rogue.at(BEGAN + Duration::from_millis(1));
    // Sent again after 1 s and 1.8 s more.
    let retransmit = BEGAN + Duration::from_millis(1_001);
    assert_eq!((rogue.asked.len(), rogue.due), (1, Some(retransmit)));
    rogue.at(retransmit);
    let due = |rogue: &Rogue| rogue.told(|event| matches!(event, Event::IkeRekeyDue { .. }));
    assert_eq!((due(&rogue), rogue.due), (0, Some(BEGAN + Duration::from_millis(2_801))));
    rogue.at(BEGAN + Duration::from_millis(2_801));
    assert_eq!(due(&rogue), 1);
    rogue.asked.clear();
    rogue.answer(Exchange::Informational, &Chain::new());
    assert_eq!(rogue.asked.len(), 0);
    rogue.at(BEGAN + Duration::from_millis(2_802));
    assert_eq!(rogue.asked.len(), 1, "one probe, when it is due again");
}

#[test]
fn a_rekeyed_ike_sa_that_the_peer_does_not_delete_is_forgotten_after_a_minute() {
    let mut ours = config();
    ours.timers.liveness = None;
    ours.timers.ike_rekey = None;
    let mut rogue = Rogue::connected(ours, true);
    let said = super::rekeying::asks(&mut rogue, 0x8888, 9);
    let answer = rogue.ask(Exchange::CreateChild, &said.chain()).expect("an answer");
    assert!(says(&answer, NotifyKind::TemporaryFailure).is_none());
    // Twice what a handshake may take.
    assert_eq!((rogue.ours.len(), rogue.due), (2, Some(seconds(60))));
    rogue.at(just_before(seconds(60)));
    assert_eq!(rogue.ours.len(), 2);
    rogue.at(seconds(60));
    assert_eq!((rogue.ours.len(), rogue.due, rogue.closed()), (1, None, None));
}

#[test]
fn an_ike_sa_remembers_1024_things_to_do_and_gives_their_spis_back_when_it_ends() {
    let mut rogue = Rogue::connected(config(), true);
    let ike = rogue.ike();
    rogue.command(Command::Probe { ike });
    for n in 0..1_024 {
        let child = wish(1_000 + n);
        assert_eq!(rogue.try_command(Command::CreateChild { ike, child }), Ok(()), "{n}");
    }
    assert_eq!(rogue.try_command(Command::Probe { ike }), Err(CommandError::Busy));
    let child = wish(5_000);
    assert_eq!(rogue.try_command(Command::CreateChild { ike, child }), Err(CommandError::Busy));
    let taken = |rogue: &mut Rogue, spi| {
        let now = rogue.now;
        let child = Some(wish(spi));
        rogue.ours.connect(0, path(true), None, child, now, &mut rogue.random) == Err(CommandError::SpiInUse)
    };
    assert!(taken(&mut rogue, 1_000) && taken(&mut rogue, 2_023));
    rogue.command(Command::ForgetIke { ike });
    for spi in [1_000, 1_500, 2_023, 5_000] {
        assert!(!taken(&mut rogue, spi), "{spi}");
    }
}

#[test]
fn a_request_that_is_not_what_it_must_be_is_answered_with_what_is_wrong_and_ends_what_it_must() {
    // RFC 7296 2.5: an unknown payload that is critical is named, and changes nothing.
    let mut rogue = Rogue::connected(config(), true);
    let mut strange = Chain::new();
    strange.push(200, critically);
    let answer = rogue.ask(Exchange::Informational, &strange).expect("an answer");
    assert_eq!(says(&answer, NotifyKind::UnsupportedCriticalPayload), Some(vec![200]));
    assert_eq!((rogue.ours.len(), rogue.closed()), (1, None));
    // An exchange that has no place here.
    let answer = rogue.ask(Exchange::Auth, &Chain::new()).expect("an answer");
    assert!(says(&answer, NotifyKind::InvalidSyntax).is_some() && rogue.ours.len() == 1);
    // RFC 7296 2.21.3: one that is malformed ends it.
    let mut malformed = Chain::new();
    malformed.push(kind::DELETE, |out| out.push(9));
    let answer = rogue.ask(Exchange::Informational, &malformed).expect("an answer");
    assert!(says(&answer, NotifyKind::InvalidSyntax).is_some());
    assert_eq!(rogue.closed(), Some(&CloseReason::Protocol("malformed request")));
    // And the peer's word that it does not believe us does.
    let mut rogue = Rogue::connected(config(), true);
    let failed = notification(NotifyKind::AuthenticationFailed, &[]);
    rogue.ask(Exchange::Informational, &failed).expect("an answer");
    assert_eq!(rogue.closed(), Some(&CloseReason::Notified("AUTHENTICATION_FAILED".to_owned())));
}

#[test]
fn a_message_with_another_spi_of_the_peers_is_no_ike_sas() {
    for begins in [true, false] {
        let mut rogue = Rogue::connected(config(), begins);
        let Rogue { around, hs, random, now, .. } = &mut rogue;
        around
            .with_ctx(*now, random, |ctx| hs.channel.request(Exchange::Informational, &Chain::new(), ctx))
            .expect("sent");
        let request = transmitted(around, *now, random);
        // Its own SPI: the first of the two where it began.
        let at = if begins { 7 } else { 15 };
        let mut other = request.clone();
        other[at] ^= 1;
        let unknown = |rogue: &Rogue| rogue.ours.counters().get(Drop::UnknownSpi);
        rogue.ours.handle(&other, path(true), rogue.now, &mut rogue.random);
        assert_eq!((unknown(&rogue), rogue.ours.counters().get(Drop::Forged)), (1, 0), "{begins}");
        rogue.ours.handle(&request, path(true), rogue.now, &mut rogue.random);
        rogue.hear();
        assert_eq!((unknown(&rogue), rogue.answered.len()), (1, 1), "{begins}");
    }
}

#[test]
fn a_question_outlives_another_ike_sas_end_and_goes_with_its_own() {
    let mut rogue = Rogue::connected(config(), true);
    let ike = rogue.ike();
    let said = Said::asks(&mut rogue, 5_000, 9, None);
    assert!(rogue.ask(Exchange::CreateChild, &said.chain()).is_none());
    let now = rogue.now;
    let other = rogue.ours.connect(0, path(true), None, None, now, &mut rogue.random).expect("begun");
    while !matches!(rogue.ours.poll(now, &mut rogue.random), Output::Wait(_)) {}
    rogue.command(Command::CloseIke { ike: other });
    rogue.grant(600);
    assert_eq!(rogue.children(), [600]);
    rogue.answered.clear();
    let said = Said::asks(&mut rogue, 5_001, 9, None);
    assert!(rogue.ask(Exchange::CreateChild, &said.chain()).is_none());
    let requests: Vec<_> = rogue.questions().iter().map(|question| question.request).collect();
    assert_ne!(requests[0], requests[1], "no name is used twice");
    rogue.command(Command::ForgetIke { ike });
    let none = Err(CommandError::NoSuchRequest);
    let (request, decision) = (requests[1], ChildDecision::Refuse);
    assert_eq!(rogue.try_command(Command::Decide { request, decision }), none);
    assert_eq!((rogue.ours.len(), rogue.due), (0, None));
}

#[test]
fn an_endpoint_begins_with_peers_that_it_knows_as_often_as_it_may_and_with_spis_that_are_free() {
    let mut config = config();
    config.limits.ike_sas = 3;
    let mut ours = Endpoint::new(config);
    let (now, mut random) = (Now { monotonic: BEGAN, unix_seconds: 0 }, Seeded(7));
    let mut begin = |peer, spi: Option<u32>| {
        ours.connect(peer, path(true), None, spi.map(wish), now, &mut random).map(drop)
    };
    assert_eq!(begin(1, None), Err(CommandError::NoSuchPeer));
    assert_eq!(begin(usize::MAX, None), Err(CommandError::NoSuchPeer));
    for spi in [0, 1, 254, 255] {
        assert_eq!(begin(0, Some(spi)), Err(CommandError::SpiInUse), "{spi}");
    }
    assert_eq!(begin(0, Some(256)), Ok(()));
    assert_eq!(begin(0, Some(256)), Err(CommandError::SpiInUse));
    assert_eq!((begin(0, None), begin(0, None)), (Ok(()), Ok(())));
    assert_eq!(begin(0, None), Err(CommandError::Busy));
    // A peer that came later is known by the number that it was given.
    let mut more = super::config();
    let peer = more.peers.remove(0);
    let mut ours = Endpoint::new(super::config());
    let number = ours.add_peer(peer.clone());
    assert_eq!((number, ours.add_peer(peer)), (1, 2));
    assert!(ours.connect(2, path(true), None, None, now, &mut random).is_ok());
}
