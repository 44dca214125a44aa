//! Children, asked for by ours and by a peer that answers anything.

use super::*;
use crate::api::{ChildClosed, ChildError};
use crate::wire::Delete;

/// Ours has a child, which the peer knows by its own SPI.
fn with_child(config: Config) -> Rogue {
    let mut rogue = Rogue::connected(config, true);
    child_of(&mut rogue, 512, 4_096);
    rogue
}

/// Ours asks for a child of this SPI, and gets it.
fn child_of(rogue: &mut Rogue, inbound: u32, outbound: u32) {
    let ike = rogue.ike();
    rogue.command(Command::CreateChild { ike, child: wish(inbound) });
    let request = rogue.asked.pop().expect("a request");
    let granted = Said::grants(rogue, &request, outbound, 9);
    rogue.answer(Exchange::CreateChild, &granted.chain());
    assert!(rogue.children().contains(&inbound));
}

fn requests(rogue: &mut Rogue) -> usize {
    let asked = std::mem::take(&mut rogue.asked);
    asked.iter().filter(|r| r.exchange == Exchange::CreateChild).count()
}

#[test]
fn a_child_is_asked_for_with_each_group_that_was_offered_once() {
    let mut rogue = Rogue::connected(config(), true);
    let ike = rogue.ike();
    rogue.command(Command::CreateChild { ike, child: wish(512) });
    let mut methods = Vec::new();
    for wanted in [KeyExchange::P256, KeyExchange::P384, KeyExchange::P256] {
        let request = rogue.asked.pop().expect("a request");
        let fields = Fields::parse(request.first, &request.plain).expect("payloads");
        methods.push(fields.ke.expect("a share").method);
        rogue.refuse(NotifyKind::InvalidKePayload, &wanted.code().to_be_bytes());
    }
    assert_eq!(methods, [KeyExchange::X25519, KeyExchange::P256, KeyExchange::P384].map(KeyExchange::code));
    // The third time it wants what was tried.
    let why = || ChildError::Notified("INVALID_KE_PAYLOAD".to_owned());
    assert_eq!((rogue.failed(), rogue.asked.len()), (vec![(512, why())], 0));
    // What was not offered, and what is no group.
    for data in [&KeyExchange::MlKem768.code().to_be_bytes()[..], &[0, 1], &[19], &[]] {
        rogue.events.retain(|event| matches!(event, Event::IkeEstablished { .. }));
        rogue.command(Command::CreateChild { ike, child: wish(512) });
        rogue.asked.clear();
        rogue.refuse(NotifyKind::InvalidKePayload, data);
        assert_eq!((rogue.failed(), rogue.asked.len()), (vec![(512, why())], 0), "{data:?}");
    }
}

#[test]
fn a_peer_that_is_busy_is_asked_again_up_to_nine_times_and_not_at_once() {
    let mut rogue = Rogue::connected(config(), true);
    let ike = rogue.ike();
    rogue.command(Command::CreateChild { ike, child: wish(512) });
    let mut asked = requests(&mut rogue);
    while rogue.failed().is_empty() {
        assert!(asked <= 9);
        let now = rogue.now.monotonic;
        rogue.refuse(NotifyKind::TemporaryFailure, &[]);
        assert_eq!(requests(&mut rogue), 0);
        if rogue.failed().is_empty() {
            let due = rogue.due.expect("a time") - now;
            assert!((100..=1_123).contains(&due.as_millis()), "{due:?}");
            rogue.at(now + due - Duration::from_nanos(1));
            assert_eq!(requests(&mut rogue), 0);
            rogue.at(now + due);
            asked += requests(&mut rogue);
        }
    }
    assert_eq!(asked, 9);
    assert_eq!(rogue.failed(), [(512, ChildError::Notified("TEMPORARY_FAILURE".to_owned()))]);
    // Its SPI is free again.
    assert_eq!(rogue.try_command(Command::CreateChild { ike, child: wish(512) }), Ok(()));
}

#[test]
fn a_rekeying_whose_child_is_gone_is_not_put_off_and_one_that_the_peer_does_not_know_is_gone() {
    let mut rogue = with_child(config());
    let ike = rogue.ike();
    rogue.command(Command::RekeyChild { ike, inbound: 512, spi: 513 });
    assert_eq!(requests(&mut rogue), 1);
    let mut delete = Chain::new();
    delete.push(kind::DELETE, |out| out.extend_from_slice(&[3, 4, 0, 1, 0, 0, 0x10, 0]));
    let answer = rogue.ask(Exchange::Informational, &delete).expect("an answer");
    assert_eq!(deletes(&answer), [Delete::Esp(vec![512])]);
    rogue.refuse(NotifyKind::TemporaryFailure, &[]);
    assert_eq!(rogue.failed(), [(513, ChildError::Notified("TEMPORARY_FAILURE".to_owned()))]);
    assert_eq!(rogue.gone(), [(512, ChildClosed::Peer)]);
    // RFC 7296 2.25: CHILD_SA_NOT_FOUND, and then it is of no use on our side either.
    let mut rogue = with_child(config());
    rogue.command(Command::RekeyChild { ike, inbound: 512, spi: 513 });
    assert_eq!(requests(&mut rogue), 1);
    rogue.refuse(NotifyKind::ChildSaNotFound, &[]);
    assert_eq!(rogue.gone(), [(512, ChildClosed::Peer)]);
    assert_eq!(rogue.failed(), [(513, ChildError::Notified("CHILD_SA_NOT_FOUND".to_owned()))]);
    // For a new child it means nothing of another one.
    let mut rogue = with_child(config());
    rogue.command(Command::CreateChild { ike, child: wish(513) });
    rogue.refuse(NotifyKind::ChildSaNotFound, &[]);
    assert!(rogue.gone().is_empty() && rogue.failed().len() == 1);
}

#[test]
fn a_childs_keys_come_of_the_group_that_was_chosen_and_a_child_that_has_none_is_taken_away() {
    let method = |k: KeyExchange, said: &mut Said| {
        let mut one = ChildProposal::default();
        one.encryption.truncate(1);
        one.esn.truncate(1);
        one.key_exchange = vec![k];
        said.proposals = vec![one.offer(4_096, true)];
    };
    let p256 = |rogue: &mut Rogue, said: &mut Said| {
        let (_, public) = Private::generate(KeyExchange::P256, &mut rogue.random).expect("a key");
        said.share = Some((KeyExchange::P256.code(), public));
    };
    type Change<'a> = (&'a str, Option<&'static str>, &'a dyn Fn(&mut Rogue, &mut Said));
    let cases: [Change<'_>; 8] = [
        ("honest", None, &|_, _| {}),
        ("as it is", None, &|_, said| method(KeyExchange::X25519, said)),
        ("another group chosen", Some("key exchange"), &|_, said| method(KeyExchange::P256, said)),
        ("another group given", Some("key exchange"), &|rogue, said| p256(rogue, said)),
        ("another name of it", Some("key exchange"), &|_, said| {
            said.share = said.share.take().map(|(_, public)| (KeyExchange::P256.code(), public));
        }),
        ("another in both", Some("key exchange"), &|rogue, said| {
            method(KeyExchange::P256, said);
            p256(rogue, said);
        }),
        ("none given", Some("key exchange"), &|_, said| said.share = None),
        ("all zeros", Some("key share"), &|_, said| {
            said.share = Some((KeyExchange::X25519.code(), vec![0; 32]));
        }),
    ];
    for (what, why, change) in cases {
        let mut rogue = Rogue::connected(config(), true);
        let ike = rogue.ike();
        rogue.command(Command::CreateChild { ike, child: wish(512) });
        let request = rogue.asked.pop().expect("a request");
        let mut said = Said::grants(&mut rogue, &request, 4_096, 9);
        change(&mut rogue, &mut said);
        rogue.answer(Exchange::CreateChild, &said.chain());
        assert_eq!(rogue.children().len(), usize::from(why.is_none()), "{what}");
        let failed: Vec<_> = why.map(|why| (512, ChildError::BadAnswer(why))).into_iter().collect();
        assert_eq!(rogue.failed(), failed, "{what}");
        // The peer believes in it: it is told.
        let told: Vec<_> = rogue.asked.iter().map(deletes).collect();
        assert_eq!(told, vec![vec![Delete::Esp(vec![512])]; usize::from(why.is_some())], "{what}");
    }
}

/// A rekeying of ours and one of the peer's of the same child cross: the lowest nonces of the two exchanges are these.
fn crossing(ours: u8, theirs: u8) -> (Rogue, Vec<Vec<Delete>>) {
    let mut rogue = with_child(config());
    let ike = rogue.ike();
    rogue.command(Command::RekeyChild { ike, inbound: 512, spi: 513 });
    let request = rogue.asked.pop().expect("a request");
    let said = Said::asks(&mut rogue, 5_000, theirs, Some(4_096));
    assert!(rogue.ask(Exchange::CreateChild, &said.chain()).is_none());
    rogue.grant(600);
    rogue.answered.pop().expect("granted");
    let said = Said::grants(&mut rogue, &request, 5_001, ours);
    rogue.answer(Exchange::CreateChild, &said.chain());
    assert_eq!(rogue.children(), [512, 600, 513]);
    let told = rogue.asked.iter().map(deletes).collect();
    rogue.answer(Exchange::Informational, &Chain::new());
    (rogue, told)
}

#[test]
fn of_two_rekeyings_of_a_child_that_cross_the_one_with_the_lowest_nonce_is_redundant() {
    // RFC 7296 2.8.1: "The SA created with the lowest of the four nonces should be deleted by the endpoint that created it", and the
    // other's maker deletes the old one. Ours has random nonces, hardly one of all zeros.
    let (rogue, told) = crossing(0xff, 0);
    assert_eq!((told, rogue.gone()), (vec![vec![Delete::Esp(vec![512])]], vec![(512, ChildClosed::Rekeyed)]));
    let (rogue, told) = crossing(0, 0xff);
    assert_eq!(
        (told, rogue.gone()),
        (vec![vec![Delete::Esp(vec![513])]], vec![(513, ChildClosed::Collision)])
    );
}

#[test]
fn a_rekeying_that_waits_for_a_decision_comes_too_late_when_ours_of_the_same_child_is_answered() {
    // The old one's deletion is over, is under way, or waits behind a probe.
    for (is_over, waits) in [(true, false), (false, false), (false, true)] {
        let mut rogue = with_child(config());
        let ike = rogue.ike();
        rogue.command(Command::RekeyChild { ike, inbound: 512, spi: 513 });
        let request = rogue.asked.pop().expect("a request");
        if waits {
            rogue.command(Command::Probe { ike });
        }
        let said = Said::asks(&mut rogue, 5_000, 0xff, Some(4_096));
        assert!(rogue.ask(Exchange::CreateChild, &said.chain()).is_none());
        let said = Said::grants(&mut rogue, &request, 5_001, 0);
        rogue.answer(Exchange::CreateChild, &said.chain());
        if is_over {
            rogue.answer(Exchange::Informational, &Chain::new());
        }
        // Were it granted, ours would be redundant by its nonce, and nobody would delete it.
        rogue.grant(600);
        let answer = rogue.answered.pop().expect("an answer");
        let kind = if is_over { NotifyKind::ChildSaNotFound } else { NotifyKind::TemporaryFailure };
        assert!(says(&answer, kind).is_some(), "{is_over} {waits}");
        assert_eq!(rogue.children(), [512, 513]);
        for _ in usize::from(is_over)..1 + usize::from(waits) {
            rogue.answer(Exchange::Informational, &Chain::new());
        }
        assert_eq!(rogue.gone(), [(512, ChildClosed::Rekeyed)]);
        assert_eq!(rogue.try_command(Command::CreateChild { ike, child: wish(600) }), Ok(()), "it is free");
    }
}

#[test]
fn while_the_ike_sa_is_being_replaced_or_closed_nobody_gets_a_child_over_it() {
    // RFC 7296 2.25.2.
    for command in [|ike| Command::RekeyIke { ike }, |ike| Command::CloseIke { ike }] {
        let mut rogue = Rogue::connected(config(), true);
        let ike = rogue.ike();
        rogue.command(command(ike));
        let said = Said::asks(&mut rogue, 5_000, 9, None);
        let answer = rogue.ask(Exchange::CreateChild, &said.chain()).expect("an answer");
        assert!(says(&answer, NotifyKind::TemporaryFailure).is_some());
        assert!(rogue.questions().is_empty());
    }
    // A child of our own that is being made is no hindrance.
    let mut rogue = Rogue::connected(config(), true);
    let ike = rogue.ike();
    rogue.command(Command::CreateChild { ike, child: wish(512) });
    let said = Said::asks(&mut rogue, 5_000, 9, None);
    assert!(rogue.ask(Exchange::CreateChild, &said.chain()).is_none());
    rogue.grant(600);
    assert_eq!(rogue.children(), [600]);
}

#[test]
fn a_child_that_is_being_deleted_or_rekeyed_is_not_rekeyed_once_more() {
    let mut rogue = with_child(config());
    let ike = rogue.ike();
    let again = Command::RekeyChild { ike, inbound: 512, spi: 514 };
    let again = || match again {
        Command::RekeyChild { ike, inbound, spi } => Command::RekeyChild { ike, inbound, spi },
        _ => unreachable!(),
    };
    let none = Err(CommandError::NoSuchChild);
    // Under way.
    rogue.command(Command::RekeyChild { ike, inbound: 512, spi: 513 });
    assert_eq!(rogue.try_command(again()), none);
    // In the queue, behind a probe; and to be deleted.
    for first in
        [Command::RekeyChild { ike, inbound: 512, spi: 513 }, Command::CloseChild { ike, inbound: 512 }]
    {
        let mut rogue = with_child(config());
        rogue.command(Command::Probe { ike });
        rogue.command(first);
        assert_eq!(rogue.try_command(again()), none);
        // Another child may be.
        rogue.answer(Exchange::Informational, &Chain::new());
    }
    let mut rogue = with_child(config());
    child_of(&mut rogue, 520, 4_097);
    rogue.command(Command::Probe { ike });
    for command in
        [Command::RekeyChild { ike, inbound: 520, spi: 521 }, Command::CloseChild { ike, inbound: 520 }]
    {
        rogue.command(command);
    }
    assert_eq!(rogue.try_command(again()), Ok(()));
    // Its deletion is under way; the peer may not rekey it then, and RFC 7296 2.25.1 says how it is told.
    let mut rogue = with_child(config());
    child_of(&mut rogue, 520, 4_097);
    rogue.command(Command::CloseChild { ike, inbound: 512 });
    assert_eq!(rogue.try_command(again()), none);
    let said = Said::asks(&mut rogue, 5_000, 9, Some(4_096));
    let answer = rogue.ask(Exchange::CreateChild, &said.chain()).expect("an answer");
    assert!(says(&answer, NotifyKind::TemporaryFailure).is_some());
    let said = Said::asks(&mut rogue, 5_000, 9, Some(4_097));
    assert!(rogue.ask(Exchange::CreateChild, &said.chain()).is_none());
    assert_eq!(rogue.questions()[0].rekeys, Some(520));
    // The peer has rekeyed it already: its successor is to be.
    let mut rogue = with_child(config());
    let said = Said::asks(&mut rogue, 5_000, 9, Some(4_096));
    assert!(rogue.ask(Exchange::CreateChild, &said.chain()).is_none());
    rogue.grant(600);
    rogue.answered.clear();
    assert_eq!(rogue.try_command(again()), none);
    assert_eq!(rogue.try_command(Command::RekeyChild { ike, inbound: 600, spi: 514 }), Ok(()));
}

#[test]
fn a_childs_spi_is_above_255_and_no_other_childs() {
    let mut rogue = with_child(config());
    let ike = rogue.ike();
    rogue.command(Command::CreateChild { ike, child: wish(700) });
    for spi in [0, 255, 512, 700] {
        let none = Err(CommandError::SpiInUse);
        assert_eq!(rogue.try_command(Command::CreateChild { ike, child: wish(spi) }), none, "{spi}");
        assert_eq!(rogue.try_command(Command::RekeyChild { ike, inbound: 512, spi }), none, "{spi}");
        let said = Said::asks(&mut rogue, 5_000, 9, None);
        if rogue.questions().is_empty() {
            assert!(rogue.ask(Exchange::CreateChild, &said.chain()).is_none());
        }
        let request = rogue.questions()[0].request;
        let (assign, label, resource) = (Vec::new(), None, None);
        let (local, remote) = (any(), any());
        let decision = ChildDecision::Accept { spi, label, local, remote, assign, resource, aggfrag: false };
        assert_eq!(rogue.try_command(Command::Decide { request, decision }), none, "{spi}");
    }
    // The question is still open.
    rogue.grant(256);
    assert_eq!(rogue.children(), [512, 256]);
    assert_eq!(rogue.try_command(Command::CreateChild { ike, child: wish(257) }), Ok(()));
}

#[test]
fn a_child_both_delete_at_once_is_named_by_nobody_in_answer() {
    // RFC 7296 1.4.1.
    let mut delete = Chain::new();
    delete.push(kind::DELETE, |out| out.extend_from_slice(&[3, 4, 0, 1, 0, 0, 0x10, 0]));
    for crossing in [false, true] {
        let mut rogue = with_child(config());
        let ike = rogue.ike();
        if crossing {
            rogue.command(Command::CloseChild { ike, inbound: 512 });
        }
        let answer = rogue.ask(Exchange::Informational, &delete).expect("an answer");
        let named = if crossing { vec![] } else { vec![Delete::Esp(vec![512])] };
        assert_eq!((deletes(&answer), rogue.gone()), (named, vec![(512, ChildClosed::Peer)]));
    }
}

#[test]
fn a_child_whose_deletion_overtook_its_making_is_not_made_and_only_64_are_remembered() {
    // RFC 7296 2.25: requests and answers go their own ways.
    for (strangers, made) in [(0, false), (63, false), (64, true), (200, true)] {
        let mut rogue = Rogue::connected(config(), true);
        let ike = rogue.ike();
        rogue.command(Command::CreateChild { ike, child: wish(512) });
        let request = rogue.asked.pop().expect("a request");
        let mut delete = Chain::new();
        delete.push(kind::DELETE, |out| {
            out.extend_from_slice(&[3, 4]);
            out.extend_from_slice(&(strangers + 1_u16).to_be_bytes());
            for n in 0..strangers {
                out.extend_from_slice(&(10_000 + u32::from(n)).to_be_bytes());
            }
            out.extend_from_slice(&4_096_u32.to_be_bytes());
        });
        let answer = rogue.ask(Exchange::Informational, &delete).expect("an answer");
        assert!(deletes(&answer).is_empty());
        let said = Said::grants(&mut rogue, &request, 4_096, 9);
        rogue.answer(Exchange::CreateChild, &said.chain());
        assert_eq!(rogue.children().len(), usize::from(made), "{strangers}");
        assert_eq!(rogue.failed().len(), usize::from(!made));
    }
}

#[test]
fn a_child_has_its_packets_in_udp_where_a_translation_is_between_or_ours_wants_it() {
    for (nat, forced) in [(false, false), (false, true), (true, false), (true, true)] {
        for begins in [true, false] {
            let mut ours = config();
            ours.force_udp = forced;
            let mut rogue = Rogue::meets_over(nat, ours, begins, None);
            let request = if begins { None } else { rogue.asked.pop() };
            let chain = rogue.proof(request.as_ref().map_or(1, |r| r.id));
            match request {
                None => drop(rogue.ask(Exchange::Auth, &chain)),
                Some(_) => rogue.answer(Exchange::Auth, &chain),
            }
            child_of(&mut rogue, 512, 4_096);
            let udp = rogue.told(|event| matches!(event, Event::ChildEstablished(child) if child.udp));
            assert_eq!(udp, usize::from(nat || forced), "{nat} {forced} {begins}");
        }
    }
}
