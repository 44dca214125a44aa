//! Two ends of a channel, one of which says anything: messages in fragments of every shape, again, late and elsewhere.

use super::*;
use crate::api::Random;
use crate::config::Config;
use crate::crypto::suite::{Encryption, KeyExchange, Prf};
use crate::endpoint::Endpoint;
use std::net::SocketAddr;

struct Counting(u8);

impl Random for Counting {
    fn fill(&mut self, out: &mut [u8]) {
        for octet in out {
            self.0 = self.0.wrapping_add(1);
            *octet = self.0;
        }
    }
}

/// An initiator and a responder who have agreed, and what surrounds them.
struct Ends {
    initiator: Channel,
    responder: Channel,
    around: Endpoint,
    random: Counting,
    now: Now,
}

fn path(port: u16) -> Path {
    let address = |host| SocketAddr::from(([192, 0, 2, host], port));
    Path { local: address(1), remote: address(2), marker: false }
}

impl Ends {
    fn new(fragment_above: usize) -> Self {
        let mut config = Config::new(Vec::new());
        config.limits.fragment_above = fragment_above;
        let suite = IkeSuite {
            encryption: Encryption::Aes256Gcm16,
            integrity: None,
            prf: Prf::HmacSha256,
            key_exchange: KeyExchange::X25519,
            additional: Vec::new(),
        };
        let keys = IkeKeys::derive(&suite, &[1; 32], &[2; 32], &[3; 32], 4, 5);
        let now = Now { monotonic: Duration::from_secs(100), unix_seconds: 1_790_000_000 };
        let end = |role| Channel::new(role, 4, 5, suite.clone(), &keys, path(4500), true, now, 1, 1);
        let (initiator, responder) = (end(Role::Initiator), end(Role::Responder));
        Self { initiator, responder, around: Endpoint::new(config), random: Counting(0), now }
    }

    /// One fragment of a message of the initiator's.
    fn fragment(&mut self, header: Header, (number, total): (u16, u16), plain: &[u8]) -> Vec<u8> {
        let ([a, b], [c, d]) = (number.to_be_bytes(), total.to_be_bytes());
        let first = if number == 1 { kind::NOTIFY } else { 0 };
        let Self { initiator, around, random, now, .. } = self;
        around
            .with_ctx(*now, random, |ctx| {
                initiator.seal_one(header, kind::SKF, first, &[a, b, c, d], plain, ctx)
            })
            .expect("sealed")
    }

    fn request(&self, id: u32) -> Header {
        self.initiator.header(Exchange::Informational, false, id)
    }

    /// What the responder makes of a datagram that comes by this port: what it delivers, or why it drops it.
    fn hears(&mut self, datagram: &[u8], port: u16) -> Result<Option<Received>, Drop> {
        let (header, _) = Header::parse(datagram).expect("a header");
        let Self { responder, around, random, now, .. } = self;
        around.with_ctx(*now, random, |ctx| responder.try_receive(&header, datagram, path(port), ctx))
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        while let Output::Transmit { datagram, .. } = self.around.poll(self.now, &mut self.random) {
            sent.push(datagram);
        }
        sent
    }
}

/// A message of these parts, its datagrams in the order of their numbers.
fn message(ends: &mut Ends, id: u32, parts: &[&[u8]]) -> Vec<Vec<u8>> {
    let (header, total) = (ends.request(id), parts.len() as u16);
    (1..).zip(parts).map(|(number, part)| ends.fragment(header, (number, total), part)).collect()
}

fn waits(heard: Result<Option<Received>, Drop>) {
    assert!(matches!(heard, Ok(None)), "{heard:?}");
}

fn dropped(heard: Result<Option<Received>, Drop>) {
    assert!(matches!(heard, Err(Drop::Fragment)), "{heard:?}");
}

fn delivered(heard: Result<Option<Received>, Drop>) -> (u32, u8, Vec<u8>) {
    let whole = heard.expect("taken").expect("whole");
    (whole.id, whole.first, whole.plain.to_vec())
}

#[test]
fn fragments_come_in_any_order_and_twice_and_the_message_is_delivered_once() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut ends = Ends::new(1_280);
        let sent = message(&mut ends, 1, &[b"ab", b"cd", b"e"]);
        waits(ends.hears(&sent[order[0]], 4500));
        dropped(ends.hears(&sent[order[0]], 4500));
        waits(ends.hears(&sent[order[1]], 4500));
        let whole = delivered(ends.hears(&sent[order[2]], 4500));
        assert_eq!(whole, (1, kind::NOTIFY, b"abcde".to_vec()), "{order:?}");
        // Until it is answered it is not heard again.
        assert!(matches!(ends.hears(&sent[0], 4500), Err(Drop::InProgress)));
    }
}

#[test]
fn a_repeated_request_is_answered_again_by_its_first_fragment_alone() {
    let mut ends = Ends::new(1_280);
    let sent = message(&mut ends, 1, &[b"ab", b"cd"]);
    waits(ends.hears(&sent[0], 4500));
    delivered(ends.hears(&sent[1], 4500));
    let Ends { responder, around, random, now, .. } = &mut ends;
    let answered =
        around.with_ctx(*now, random, |ctx| responder.respond(Exchange::Informational, &Chain::new(), ctx));
    assert!(answered.is_some() && ends.sent().len() == 1);
    // RFC 7383 2.6.1.
    waits(ends.hears(&sent[1], 4500));
    assert_eq!(ends.sent().len(), 0);
    waits(ends.hears(&sent[0], 4500));
    assert_eq!(ends.sent().len(), 1);
}

#[test]
fn a_peer_that_fragments_anew_makes_smaller_ones_and_fragments_of_before_count_no_more() {
    let mut ends = Ends::new(1_280);
    let header = ends.request(1);
    let two = message(&mut ends, 1, &[b"abc", b"de"]);
    let three = message(&mut ends, 1, &[b"ab", b"cd", b"e"]);
    waits(ends.hears(&two[0], 4500));
    // RFC 7383 2.6: a larger total is a new one, a smaller one is old.
    waits(ends.hears(&three[0], 4500));
    dropped(ends.hears(&two[1], 4500));
    waits(ends.hears(&three[1], 4500));
    assert_eq!(delivered(ends.hears(&three[2], 4500)).2, b"abcde");
    // What is of another kind of exchange begins anew, too.
    let mut ends = Ends::new(1_280);
    let other = Header { exchange: Exchange::CreateChild, ..header };
    let one = ends.fragment(other, (1, 2), b"x");
    let (second, of_before) = (ends.fragment(other, (2, 2), b"y"), ends.fragment(header, (2, 2), b"y"));
    for datagram in [&one, &of_before, &second] {
        waits(ends.hears(datagram, 4500));
    }
    assert_eq!(delivered(ends.hears(&one, 4500)).2, b"xy");
}

#[test]
fn a_request_has_the_next_number_and_no_other() {
    let mut ends = Ends::new(1_280);
    let refused = |ends: &mut Ends, id| {
        let datagram = message(ends, id, &[b"ab", b"cd"]).remove(0);
        assert!(matches!(ends.hears(&datagram, 4500), Err(Drop::MessageId)), "{id}");
    };
    // RFC 7296 2.2, with a window of one: neither one before that was never answered, nor one after.
    for wrong in [0, 2, 3, u32::MAX] {
        refused(&mut ends, wrong);
    }
    let first = message(&mut ends, 1, &[b"ab", b"cd"]);
    waits(ends.hears(&first[0], 4500));
    delivered(ends.hears(&first[1], 4500));
    // While it is being answered, none but it is known.
    for wrong in [0, 2] {
        refused(&mut ends, wrong);
    }
    let Ends { responder, around, random, now, .. } = &mut ends;
    around.with_ctx(*now, random, |ctx| responder.respond(Exchange::Informational, &Chain::new(), ctx));
    for wrong in [0, 3, u32::MAX] {
        refused(&mut ends, wrong);
    }
    let next = message(&mut ends, 2, &[b"ab", b"cd"]);
    waits(ends.hears(&next[0], 4500));
    assert_eq!(delivered(ends.hears(&next[1], 4500)).0, 2);
}

#[test]
fn a_message_has_at_most_64_fragments_and_65536_octets() {
    let mut ends = Ends::new(1_280);
    let header = ends.request(1);
    let beyond = ends.fragment(header, (1, MOST_FRAGMENTS + 1), b"a");
    dropped(ends.hears(&beyond, 4500));
    let part = [7; MOST_REASSEMBLED / MOST_FRAGMENTS as usize];
    for number in 1..=MOST_FRAGMENTS {
        let datagram = ends.fragment(header, (number, MOST_FRAGMENTS), &part);
        let heard = ends.hears(&datagram, 4500);
        match number {
            MOST_FRAGMENTS => assert_eq!(delivered(heard).2.len(), MOST_REASSEMBLED),
            _ => waits(heard),
        }
    }
    let mut ends = Ends::new(1_280);
    let most = ends.fragment(header, (1, 2), &[7; 40_000]);
    waits(ends.hears(&most, 4500));
    let beyond = ends.fragment(header, (2, 2), &[7; MOST_REASSEMBLED - 40_000 + 1]);
    dropped(ends.hears(&beyond, 4500));
}

#[test]
fn who_agreed_to_no_fragments_takes_none() {
    let mut ends = Ends::new(1_280);
    let sent = message(&mut ends, 1, &[b"ab", b"cd"]);
    ends.responder.fragments = false;
    dropped(ends.hears(&sent[0], 4500));
}

#[test]
fn only_what_is_new_moves_the_way() {
    let mut ends = Ends::new(1_280);
    let sent = message(&mut ends, 1, &[b"ab", b"cd"]);
    waits(ends.hears(&sent[0], 4500));
    delivered(ends.hears(&sent[1], 4501));
    assert_eq!(ends.responder.path, path(4501));
    let Ends { responder, around, random, now, .. } = &mut ends;
    around.with_ctx(*now, random, |ctx| responder.respond(Exchange::Informational, &Chain::new(), ctx));
    // A copy of it, which anybody on the way can send.
    waits(ends.hears(&sent[0], 4502));
    assert_eq!(ends.responder.path, path(4501));
    // Where the way is fixed, nothing moves it.
    ends.responder.follow = false;
    let next = message(&mut ends, 2, &[b"ab", b"cd"]);
    waits(ends.hears(&next[0], 4503));
    assert_eq!(ends.responder.path, path(4501));
}

#[test]
fn no_datagram_is_longer_than_is_said_and_lengths_inside_do_not_show() {
    for most in [256, 300, 600, 1_000, 1_280, 2_000] {
        let mut ends = Ends::new(most);
        let mut lengths = std::collections::BTreeMap::new();
        for length in (0..3_000).step_by(7) {
            let mut chain = Chain::new();
            chain.push(kind::NOTIFY, |out| out.resize(out.len() + length, 7));
            let header = ends.request(1);
            let Ends { initiator, around, random, now, .. } = &mut ends;
            let sent =
                around.with_ctx(*now, random, |ctx| initiator.seal(header, &chain, ctx)).expect("sealed");
            assert!(sent.iter().all(|datagram| datagram.len() <= most), "{most} {length}");
            let all: Vec<usize> = sent.iter().map(Vec::len).collect();
            // RFC 7383 2.5.1: each but the last is as long as there is room for.
            assert!(all.iter().rev().skip(1).all(|it| *it == most), "{most} {length} {all:?}");
            // What fits into a class, and into a datagram where that is smaller, is in one.
            let filled = chain.bytes().len() + SMALLEST_NOTIFY;
            let sealed = HEADER + GENERIC + initiator.seal.sealed_length(0) + filled;
            assert_eq!(all.len() == 1, filled <= CLASS && sealed <= most, "{most} {length} {all:?}");
            *lengths.entry(all).or_insert(0) += 1;
        }
        // A few classes, and not one for each length.
        assert!(lengths.len() <= 4, "{most}: {lengths:?}");
    }
}

#[test]
fn a_request_is_sent_again_when_it_is_due_and_not_before() {
    let mut ends = Ends::new(1_280);
    let Ends { initiator, around, random, now, .. } = &mut ends;
    around.with_ctx(*now, random, |ctx| initiator.request(Exchange::Informational, &Chain::new(), ctx));
    assert!(ends.initiator.timer().is_some());
    assert_eq!(ends.sent().len(), 1);
    for again in [0, 1] {
        let due = ends.initiator.timer().expect("it waits");
        ends.now.monotonic = due - Duration::from_millis(1 - again);
        let Ends { initiator, around, random, now, .. } = &mut ends;
        around.with_ctx(*now, random, |ctx| initiator.on_timer(ctx));
        assert_eq!(ends.sent().len() as u64, again);
    }
}

#[test]
fn what_an_intermediate_exchange_authenticates_is_laid_out_as_rfc_9242_says() {
    let mut header = Ends::new(1_280).request(3);
    header.exchange = Exchange::Intermediate;
    let octets = authenticated(header, kind::NOTIFY, &[9; 20]);
    // 3.3.2: the header, with the length that the message has in clear, and the Encrypted payload's without IV, padding and tag.
    header.next = kind::SK;
    let expected = [&header.write(28 + 4 + 20)[..], &[kind::NOTIFY, 0, 0, 24], &[9; 20]].concat();
    assert_eq!(octets, expected);
}

#[test]
fn only_the_request_before_may_come_again() {
    let mut ends = Ends::new(1_280);
    // None was answered: what would be before the first is nothing to answer again.
    let zeroth = message(&mut ends, 0, &[b"ab"]);
    assert!(matches!(ends.hears(&zeroth[0], 4500), Err(Drop::MessageId)));
    let mut sent = Vec::new();
    for id in 1..=3 {
        sent.push(message(&mut ends, id, &[b"ab"]).remove(0));
        delivered(ends.hears(&sent[sent.len() - 1], 4500));
        let Ends { responder, around, random, now, .. } = &mut ends;
        around.with_ctx(*now, random, |ctx| responder.respond(Exchange::Informational, &Chain::new(), ctx));
    }
    assert_eq!(ends.sent().len(), 3);
    // RFC 7296 2.3: a window of one. Older ones and those to come are not heard.
    let beyond = message(&mut ends, 5, &[b"ab"]).remove(0);
    for other in [&zeroth[0], &sent[0], &sent[1], &beyond] {
        assert!(matches!(ends.hears(other, 4500), Err(Drop::MessageId)));
        assert_eq!(ends.sent().len(), 0);
    }
    waits(ends.hears(&sent[2], 4500));
    assert_eq!(ends.sent().len(), 1);
}

#[test]
fn fragments_of_another_exchange_do_not_stand_in_the_way() {
    let mut ends = Ends::new(1_280);
    let header = ends.request(1);
    let other = Header { exchange: Exchange::CreateChild, ..header };
    let abandoned = ends.fragment(other, (1, 3), b"x");
    waits(ends.hears(&abandoned, 4500));
    let two = message(&mut ends, 1, &[b"ab", b"c"]);
    waits(ends.hears(&two[0], 4500));
    assert_eq!(delivered(ends.hears(&two[1], 4500)).2, b"abc");
}

/// A notification that with its header has so many octets, sealed.
fn sealed(ends: &mut Ends, octets: usize) -> Option<Vec<Vec<u8>>> {
    let mut chain = Chain::new();
    chain.push(kind::NOTIFY, |out| out.resize(out.len() + octets - GENERIC, 7));
    let header = ends.request(1);
    let Ends { initiator, around, random, now, .. } = ends;
    around.with_ctx(*now, random, |ctx| initiator.seal(header, &chain, ctx))
}

#[test]
fn what_fills_a_datagram_to_its_end_is_one_and_64_fragments_are_the_most() {
    let overhead = HEADER + GENERIC + Ends::new(0).initiator.seal.sealed_length(0);
    for (most, datagrams) in [(overhead + 2 * CLASS, 1), (overhead + 2 * CLASS - 1, 2)] {
        let sent = sealed(&mut Ends::new(most), 2 * CLASS - SMALLEST_NOTIFY).expect("sealed");
        assert_eq!(sent.len(), datagrams);
    }
    let room = 256 - overhead - 4;
    let most = (64 * room) / CLASS * CLASS - SMALLEST_NOTIFY;
    assert_eq!(sealed(&mut Ends::new(256), most).expect("sealed").len(), 64);
    assert!(sealed(&mut Ends::new(256), most + 1).is_none());
}

#[test]
fn a_peer_that_takes_no_fragments_gets_nothing_longer_for_what_is_longer_than_a_class() {
    for (octets, filled) in [(40, CLASS), (CLASS - SMALLEST_NOTIFY, CLASS), (CLASS, CLASS), (1_500, 1_500)] {
        let mut ends = Ends::new(1_280);
        ends.initiator.fragments = false;
        let sent = sealed(&mut ends, octets).expect("sealed");
        let overhead = HEADER + GENERIC + ends.initiator.seal.sealed_length(0);
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [overhead + filled], "{octets}");
    }
}

#[test]
fn fragments_of_a_request_and_of_a_response_with_one_number_are_two_messages() {
    let mut ends = Ends::new(1_280);
    let Ends { responder, around, random, now, .. } = &mut ends;
    around.with_ctx(*now, random, |ctx| responder.request(Exchange::Informational, &Chain::new(), ctx));
    let request = ends.request(1);
    let response = ends.fragment(Header { response: true, ..request }, (1, 2), b"x");
    let second = ends.fragment(request, (2, 2), b"y");
    waits(ends.hears(&response, 4500));
    waits(ends.hears(&second, 4500));
}
