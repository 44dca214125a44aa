//! What the endpoint says to a peer that speaks extensions which it does not announce, or that strongSwan 5.9.8 does not know. strongSwan
//! does not, unasked; the fuzz targets' own peer does, and shares nothing with the endpoint but libraries of primitives.

use levee_fuzz_targets::attacker::{Seen, chain, payloads};
use levee_fuzz_targets::ike_exchange::{Duel, op};
use ml_kem::kem::{Decapsulate, KeyExport};
use ml_kem::{DecapsulationKey, MlKem768};

fn notify(kind: u16, data: &[u8]) -> (u8, Vec<u8>) {
    (41, [&[0, 0], &kind.to_be_bytes()[..], data].concat())
}

/// A victim that has answered an honest handshake.
fn established() -> Duel {
    let mut duel = Duel::new(4, false);
    duel.begin();
    duel.handshake();
    duel
}

fn ask(duel: &mut Duel, exchange: u8, parts: &[(u8, Vec<u8>)]) -> Seen {
    let before = duel.seen.len();
    let (first, body) = chain(parts);
    duel.act(op::ASK, &[&[exchange, first], body.as_slice()].concat());
    assert!(duel.seen.len() > before, "the request is answered");
    duel.seen.last().expect("an answer").clone()
}

fn notifications(s: &Seen) -> Vec<u16> {
    payloads(s.first, &s.chain)
        .into_iter()
        .filter(|p| p.0 == 41)
        .map(|(_, b)| u16::from_be_bytes([b[2], b[3]]))
        .collect()
}

/// The saved request for a child at SECRET, with another inbound SPI for the peer.
fn request_for_a_child(spi: u32) -> Vec<(u8, Vec<u8>)> {
    let saved = include_bytes!("../../../fuzz/corpus/ike_responder/child");
    let (first, body) = (saved[5], &saved[6..]);
    payloads(first, body)
        .into_iter()
        .map(|(kind, b)| {
            let mut b = b.to_vec();
            if kind == 33 {
                b[8..12].copy_from_slice(&spi.to_be_bytes());
            }
            (kind, b)
        })
        .collect()
}

/// The first payload of this type in what the victim said.
fn body(s: &Seen, kind: u8) -> Vec<u8> {
    let found = payloads(s.first, &s.chain).into_iter().find(|p| p.0 == kind);
    found.unwrap_or_else(|| panic!("no payload {kind}: {s:?}")).1.to_vec()
}

fn with_first((first, body): (u8, Vec<u8>)) -> Vec<u8> {
    [&[first], body.as_slice()].concat()
}

#[test]
fn ml_kem_is_in_the_keys_of_an_ike_sa_and_of_its_successor_as_another_key_schedule_has_it() {
    let key = DecapsulationKey::<MlKem768>::from_seed([7; 64].into());
    let share = [&[0, 36, 0, 0][..], key.encapsulation_key().to_bytes().to_vec().as_slice()].concat();
    let secret = |answer: &Seen| {
        let ciphertext = body(answer, 34).split_off(4);
        key.decapsulate(ciphertext.as_slice().try_into().expect("a ciphertext")).to_vec()
    };
    let mut duel = Duel::hybrid();
    // INTERMEDIATE_EXCHANGE_SUPPORTED.
    duel.act(op::INIT, &with_first(chain(&[notify(16438, &[])])));
    let request = [(34, share.clone())];
    let answer = ask(&mut duel, 43, &request);
    let (first, asked) = chain(&request);
    duel.attacker.mix([(first, asked.as_slice()), (answer.first, answer.chain.as_slice())], &secret(&answer));
    // From here on whatever is understood was under the keys with the secret in them, and the two messages are in both proofs.
    duel.act(op::AUTH, &[0]);
    let answer = duel.seen.last().expect("the end of the handshake").clone();
    assert_eq!((answer.exchange, notifications(&answer)), (35, vec![]));
    assert_eq!(body(&answer, 39), duel.attacker.proof(false, "victim.test", 2).expect("keys").1);
    let child = ask(&mut duel, 36, &request_for_a_child(0x0500_0001));
    assert!(notifications(&child).is_empty(), "{child:?}");

    // A rekeying, with the same key exchange in IKE_FOLLOWUP_KE: ADDITIONAL_KEY_EXCHANGE is its link.
    let spi = [0xa8; 8];
    let (first, asked) = duel.attacker.rekey_chain(spi);
    duel.act(op::ASK, &[&[36, first], asked.as_slice()].concat());
    let granted = duel.seen.last().expect("an answer").clone();
    assert_eq!(notifications(&granted), [16441]);
    let answer = ask(&mut duel, 44, &[(34, share.clone()), (41, body(&granted, 41))]);
    assert!(notifications(&answer).is_empty(), "{answer:?}");
    let more = secret(&answer);
    duel.attacker = duel.attacker.successor(true, spi, &granted, &more).expect("keys");
    let probe = ask(&mut duel, 37, &[]);
    assert!(probe.response && probe.chain.is_empty());
    assert_eq!(duel.made, (1, 1));
}

#[test]
fn a_peer_that_wants_eap_is_refused_in_either_role() {
    let id = [&[2, 0, 0, 0][..], b"peer.test"].concat();
    // Who begins asks for it by leaving out its proof (RFC 7296 2.16).
    let mut duel = Duel::new(4, false);
    duel.act(op::INIT, &[0]);
    let answer = ask(&mut duel, 35, &[(35, id.clone())]);
    assert_eq!(notifications(&answer), [24], "AUTHENTICATION_FAILED");
    // Who answers has an EAP request in its place.
    let mut duel = Duel::new(4, true);
    duel.begin();
    duel.act(op::INIT, &[0]);
    duel.act(op::ANSWER, &with_first(chain(&[(36, id), (48, vec![1, 1, 0, 5, 1])])));
    let said = duel.seen.last().expect("a word");
    assert_eq!((said.exchange, notifications(said)), (37, vec![24]));
    assert_eq!(duel.made, (0, 0));
}

#[test]
fn compression_and_transport_mode_are_left_out_of_the_answer_and_ah_is_no_proposal() {
    let mut duel = established();
    let mut parts = request_for_a_child(0x0500_0001);
    // IPCOMP_SUPPORTED (a CPI, and DEFLATE), USE_TRANSPORT_MODE, ESP_TFC_PADDING_NOT_SUPPORTED, NON_FIRST_FRAGMENTS_ALSO, and
    // SET_WINDOW_SIZE.
    let offers: [(u16, &[u8]); 5] =
        [(16387, &[0x12, 0x34, 2]), (16391, &[]), (16394, &[]), (16395, &[]), (16385, &[0, 0, 0, 9])];
    parts.extend(offers.map(|(kind, data)| notify(kind, data)));
    // A vendor ID is skipped, and none is ever sent.
    parts.push((43, b"somebody's own".to_vec()));
    let answer = ask(&mut duel, 36, &parts);
    assert!(notifications(&answer).is_empty(), "{answer:?}");
    assert!(!duel.seen.iter().any(|s| payloads(s.first, &s.chain).iter().any(|p| p.0 == 43)));
    assert_eq!(duel.made, (1, 0));
    let mut parts = request_for_a_child(0x0500_0002);
    // The proposal's protocol (RFC 7296 3.3.1).
    parts.iter_mut().filter(|(kind, _)| *kind == 33).for_each(|(_, sa)| sa[5] = 2);
    assert_eq!(notifications(&ask(&mut duel, 36, &parts)), [14], "NO_PROPOSAL_CHOSEN");
    assert_eq!(duel.made, (1, 0));
}

#[test]
fn what_is_not_there_cannot_be_rekeyed_and_an_ike_sa_that_is_being_replaced_takes_no_children() {
    let mut duel = established();
    let rekeys = [&[3, 4][..], &16393_u16.to_be_bytes(), &0x0bad_0bad_u32.to_be_bytes()].concat();
    let mut parts = vec![(41, rekeys)];
    parts.extend(request_for_a_child(0x0500_0001));
    assert_eq!(notifications(&ask(&mut duel, 36, &parts)), [44], "CHILD_SA_NOT_FOUND");
    // Its own rekeying is under way.
    duel.act(op::COMMAND, &[3]);
    let answer = ask(&mut duel, 36, &request_for_a_child(0x0500_0002));
    assert_eq!(notifications(&answer), [43], "TEMPORARY_FAILURE");
    assert_eq!(duel.made, (0, 0));
}

#[test]
fn an_unknown_critical_payload_is_named_and_leaves_the_ike_sa() {
    let mut duel = established();
    for critical in [true, false] {
        duel.act(op::ASK, &[37, 200, 0, if critical { 0x80 } else { 0 }, 0, 4]);
        let answer = duel.seen.last().expect("an answer");
        // UNSUPPORTED_CRITICAL_PAYLOAD, with the payload's type.
        let named: &[u8] = &[0, 0, 0, 1, 200];
        let expected = if critical { vec![(41, named)] } else { vec![] };
        assert_eq!((answer.exchange, payloads(answer.first, &answer.chain)), (37, expected));
    }
    let child = ask(&mut duel, 36, &request_for_a_child(0x0500_0001));
    assert!(notifications(&child).is_empty());
}

#[test]
fn a_wish_for_an_address_of_either_family_is_answered_and_none_is_given_unasked() {
    // CFG_REQUEST with an empty INTERNAL_IP4_ADDRESS, INTERNAL_IP6_ADDRESS, or neither but the name servers' attribute.
    for (attribute, answered) in [(1, true), (8, true), (3, false), (10, false)] {
        let mut duel = Duel::new(0, false);
        duel.act(op::INIT, &[0]);
        let mut parts = vec![(47, vec![1, 0, 0, 0, 0, attribute, 0, 0])];
        parts.extend(request_for_a_child(0x0500_0001).into_iter().filter(|(k, _)| [33, 44, 45].contains(k)));
        duel.act(op::AUTH, &with_first(chain(&parts)));
        let answer = duel.seen.last().expect("an answer");
        let given = payloads(answer.first, &answer.chain).into_iter().find(|p| p.0 == 47).map(|p| p.1);
        // CFG_REPLY: the peer is 10.0.0.1.
        let expected: &[u8] = &[2, 0, 0, 0, 0, 1, 0, 4, 10, 0, 0, 1];
        assert_eq!(given, answered.then_some(expected), "{attribute}");
        assert_eq!(duel.made, (1, 0));
    }
}

#[test]
fn mobike_is_not_announced_and_its_requests_are_answered_without_effect() {
    let mut duel = established();
    assert!(!duel.seen.iter().any(|s| notifications(s).contains(&16396)), "MOBIKE_SUPPORTED");
    let child = ask(&mut duel, 36, &request_for_a_child(0x0500_0001));
    assert!(notifications(&child).is_empty());
    // UPDATE_SA_ADDRESSES, with a wrong NAT detection, a COOKIE2, and more addresses: an empty answer, and nothing moves.
    // (That all later datagrams go where the earlier ones went is checked for each by the duel.)
    let update = [
        notify(16400, &[]),
        notify(16388, &[1; 20]),
        notify(16389, &[2; 20]),
        notify(16401, &[3; 16]),
        notify(16397, &[10, 0, 0, 9]),
    ];
    let answer = ask(&mut duel, 37, &update);
    assert!(answer.response && answer.chain.is_empty(), "{answer:?}");
    let probe = ask(&mut duel, 37, &[]);
    assert!(probe.response && probe.chain.is_empty());
    assert_eq!(duel.made, (1, 0));
}

#[test]
fn children_for_each_resource_are_made_side_by_side() {
    let mut duel = established();
    for cpu in 0..4u8 {
        let mut parts = request_for_a_child(0x0500_0001 + u32::from(cpu));
        // SA_RESOURCE_INFO (RFC 9611 5.1) names the resource in octets that mean something to its sender alone.
        parts.push(notify(16444, &[0, cpu]));
        let answer = ask(&mut duel, 36, &parts);
        assert_eq!(notifications(&answer), [16444], "{answer:?}");
    }
    assert_eq!(duel.made, (4, 0));
}

#[test]
fn unknown_status_notifications_are_ignored_and_unknown_errors_are_no_reason_to_end() {
    let mut duel = established();
    for kind in [16390, 16401, 40_000, 65_535, 8_192, 47] {
        let answer = ask(&mut duel, 37, &[notify(kind, b"whatever")]);
        assert!(answer.response && answer.chain.is_empty(), "{kind}: {answer:?}");
    }
}
