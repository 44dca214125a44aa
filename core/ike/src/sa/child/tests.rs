//! What an answer to a request for a child may say, and what it may not: each line of it changed, by a peer that has proved who it is.

use super::*;
use crate::api::{Now, Random};
use crate::config::Config;
use crate::crypto::suite::{ChildProposal, Encryption, KeyExchange};
use crate::endpoint::Endpoint;
use std::time::Duration;

struct Zero;

impl Random for Zero {
    fn fill(&mut self, out: &mut [u8]) {
        out.fill(0);
    }
}

fn label(name: &str) -> SecurityLabel {
    SecurityLabel::new(name.as_bytes()).expect("a label")
}

fn net(third: u8) -> Selector {
    Selector::subnet([10, 1, third, 0].into(), 24).expect("a network")
}

/// What the answer says.
#[derive(Clone)]
struct Said {
    proposals: Vec<Proposal>,
    initiator: (Vec<Selector>, Option<SecurityLabel>, bool),
    responder: (Vec<Selector>, Option<SecurityLabel>, bool),
    aggfrag: Option<Vec<u8>>,
}

fn honest() -> Said {
    let one = ChildProposal {
        encryption: vec![Encryption::Aes256Gcm16],
        integrity: vec![],
        key_exchange: vec![KeyExchange::X25519],
        key_exchange_optional: false,
        esn: vec![true],
    };
    let secret = || Some(label("SECRET"));
    Said {
        proposals: vec![one.offer(4_096, true)],
        initiator: (vec![net(1)], secret(), false),
        responder: (vec![net(2)], secret(), false),
        aggfrag: None,
    }
}

/// What is made of it, where a child with this label, and AGGFRAG or not, was asked for.
fn heard(said: &Said, wanted: Option<&str>, aggfrag: bool) -> Result<Child, ChildError> {
    let mut chain = Chain::new();
    if let Some(octets) = &said.aggfrag {
        chain.push(kind::NOTIFY, Notify::write(NotifyKind::UseAggfrag, octets));
    }
    chain.push(kind::SA, |out| Proposal::write_all(&said.proposals, out));
    for (of, (ranges, label, strange)) in [(kind::TS_I, &said.initiator), (kind::TS_R, &said.responder)] {
        chain.push(of, |out| {
            let begin = out.len();
            TrafficSelectors::write(ranges, label.as_ref(), out);
            if *strange {
                out[begin] += 1;
                out.extend_from_slice(&[200, 0, 0, 4]);
            }
        });
    }
    let fields = Fields::parse(chain.first(), chain.bytes()).unwrap_or_else(|_| panic!("it can be read"));
    let wanted = NewChild {
        spi: 512,
        label: wanted.map(label),
        local: vec![net(1), net(3)],
        remote: vec![net(2)],
        want_address: false,
        resource: None,
        aggfrag,
    };
    let now = Now { monotonic: Duration::ZERO, unix_seconds: 0 };
    let mut around = Endpoint::new(Config::new(Vec::new()));
    around.with_ctx(now, &mut Zero, |ctx| read_answer(&wanted, &fields, false, ctx)).map(|(child, _)| child)
}

#[test]
fn an_answer_that_keeps_to_what_was_asked_for_is_taken() {
    let child = heard(&honest(), Some("SECRET"), false).expect("taken");
    assert_eq!((child.inbound, child.outbound, child.label), (512, 4_096, Some(label("SECRET"))));
    assert_eq!((child.local, child.remote, child.aggfrag), (vec![net(1)], vec![net(2)], None));
    for (flags, fragments) in [(0, true), (DONT_FRAGMENT, false)] {
        let said = Said { aggfrag: Some(vec![flags]), ..honest() };
        let child = heard(&said, Some("SECRET"), true).expect("taken");
        assert_eq!(child.aggfrag, Some(Aggfrag { fragments }));
    }
    // Who does not know AGGFRAG says nothing.
    assert_eq!(heard(&honest(), Some("SECRET"), true).expect("taken").aggfrag, None);
    let mut plain = honest();
    (plain.initiator.1, plain.responder.1) = (None, None);
    assert_eq!(heard(&plain, None, false).expect("taken").label, None);
}

#[test]
fn an_answer_that_says_anything_else_in_any_part_is_none() {
    let bad = |what: &str, change: &dyn Fn(&mut Said), wanted: Option<&str>, aggfrag: bool| {
        let mut said = honest();
        change(&mut said);
        match heard(&said, wanted, aggfrag) {
            Err(ChildError::BadAnswer(why)) => assert_eq!(why, what),
            other => panic!("{what}: {other:?}"),
        }
    };
    let another = Some(label("UNCLASSIFIED"));
    let secret = Some("SECRET");
    // RFC 9478 2.2: the label that was asked for, in both.
    bad("another label", &|said| said.initiator.1 = another.clone(), secret, false);
    bad("another label", &|said| said.responder.1 = another.clone(), secret, false);
    bad("another label", &|said| said.initiator.1 = None, secret, false);
    bad("another label", &|said| said.responder.1 = None, secret, false);
    bad("another label", &|_| {}, None, false);
    bad("another label", &|_| {}, Some("UNCLASSIFIED"), false);
    // Selectors within ours, on both sides, at least one of each, of kinds that are known.
    let beyond = "selectors that were not asked for";
    let all = || vec![Selector::subnet([0, 0, 0, 0].into(), 0).expect("all")];
    bad(beyond, &|said| said.initiator.0 = all(), secret, false);
    bad(beyond, &|said| said.responder.0 = all(), secret, false);
    bad(beyond, &|said| said.responder.0.push(net(9)), secret, false);
    bad(beyond, &|said| said.initiator.0.clear(), secret, false);
    bad(beyond, &|said| said.responder.0.clear(), secret, false);
    bad(beyond, &|said| said.initiator.2 = true, secret, false);
    bad(beyond, &|said| said.responder.2 = true, secret, false);
    // AGGFRAG where it was asked for, and as it can be given.
    let unasked = "AGGFRAG that was not asked for";
    bad(unasked, &|said| said.aggfrag = Some(vec![0]), secret, false);
    for flags in [vec![CONGESTION], vec![CONGESTION | DONT_FRAGMENT], vec![], vec![0, 0]] {
        bad(unasked, &|said| said.aggfrag = Some(flags.clone()), secret, true);
    }
    // One proposal, of those that were made, with an SPI that ESP has.
    bad("not one proposal", &|said| said.proposals.push(said.proposals[0].clone()), secret, false);
    for spi in [0, 255] {
        bad("SPI", &|said| said.proposals[0].spi = u32::to_be_bytes(spi).to_vec(), secret, false);
    }
    let weak = ChildProposal {
        encryption: vec![Encryption::Aes128Cbc],
        integrity: vec![crate::crypto::suite::Integrity::HmacSha256],
        key_exchange: vec![KeyExchange::X25519],
        key_exchange_optional: false,
        esn: vec![true],
    };
    bad(
        "algorithms that were not offered",
        &|said| said.proposals = vec![weak.offer(4_096, true)],
        secret,
        false,
    );
}

#[test]
fn labels_that_stand_in_both_payloads_are_to_choose_from_and_one_in_one_alone_is_a_contradiction() {
    let with = |names: &[&str]| TrafficSelectors {
        ranges: vec![net(1)],
        labels: names.iter().map(|name| label(name)).collect(),
        unknown: 0,
    };
    let common = |one: &[&str], other: &[&str]| common_labels(&with(one), &with(other));
    let of = |names: &[&str]| Some(names.iter().map(|name| label(name)).collect::<Vec<_>>());
    assert_eq!(common(&[], &[]), of(&[]));
    assert_eq!(common(&["A", "B", "A"], &["B", "A", "A"]), of(&["A", "B"]));
    assert_eq!(common(&["A", "B"], &["B", "C"]), of(&["B"]));
    for (one, other) in [(&["A"][..], &[][..]), (&[], &["A"]), (&["A"], &["B"])] {
        assert_eq!(common(one, other), None);
    }
}

#[test]
fn spis_that_esp_reserves_are_nobodys() {
    for (spi, usable) in [(0, false), (1, false), (255, false), (256, true), (u32::MAX, true)] {
        assert_eq!((usable_spi(spi), esp_spi(&spi.to_be_bytes()).is_some()), (usable, usable), "{spi}");
    }
}
