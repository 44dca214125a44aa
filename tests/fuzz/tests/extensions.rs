//! What the endpoint says to a peer that speaks extensions which it does not announce. strongSwan does not, unasked; the fuzz targets'
//! own peer does.

use levee_fuzz_targets::attacker::{Seen, chain, payloads};
use levee_fuzz_targets::ike_exchange::{Duel, op};

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
