//! Writes the IKE targets' corpora from conversations of an honest endpoint with the tests' own peer, and the audit log's:
//! `cargo run -p levee-fuzz-targets --example seeds -- fuzz/corpus`.

use levee_fuzz_targets::attacker::{Seen, chain};
use levee_fuzz_targets::ike_exchange::{Duel, op};
use std::path::Path;

/// One action as the target reads it.
fn action(kind: u8, data: &[u8]) -> Vec<u8> {
    let n = u16::try_from(data.len()).expect("a short action").to_be_bytes();
    [&[kind], &n[..], data].concat()
}

fn ask(s: &Seen) -> Vec<u8> {
    action(op::ASK, &[&[s.exchange, s.first], s.chain.as_slice()].concat())
}

fn answer(s: &Seen) -> Vec<u8> {
    action(op::ANSWER, &[&[s.first], s.chain.as_slice()].concat())
}

/// Runs actions against a victim and gives what it said.
fn talk(options: u8, victim_begins: bool, actions: &[(u8, Vec<u8>)]) -> Vec<Seen> {
    let mut duel = Duel::new(options, victim_begins);
    duel.begin();
    duel.handshake();
    for (kind, data) in actions {
        duel.act(*kind, data);
    }
    duel.seen
}

/// The audit log's; and what an honest workstation says first to the second tunnel, twice, and what that carries.
fn simple() -> [(&'static str, &'static str, Vec<u8>); 4] {
    let log = |options: u8| [&[options], levee_fuzz_targets::audit_log::honest()].concat();
    let datagram = |bytes: &[u8]| [&u16::try_from(bytes.len()).expect("short").to_be_bytes(), bytes].concat();
    let first = levee_fuzz_targets::layer::first();
    let kinds = [vec![0, 1], vec![3; 90], vec![0x40]].map(|bytes| datagram(&bytes)).concat();
    [
        ("audit_log", "sealed", log(0)),
        ("audit_log", "without-key", log(1)),
        ("layer", "first-and-again", [&[2][..], &datagram(&first), &datagram(&first)].concat()),
        ("layer", "carried", [&[1][..], &kinds].concat()),
    ]
}

/// What is said of labelled links to the kernel, and what a server hears from another.
fn links_and_servers() -> [(&'static str, &'static str, Vec<u8>); 4] {
    let session = levee_fuzz_targets::federation::session();
    let comes_and_goes = [action(2, &session), action(2, b"\0"), action(255, &[])].concat();
    [
        ("federation", "stated", action(0, &levee_fuzz_targets::federation::honest())),
        ("federation", "session-comes-and-goes", comes_and_goes),
        (
            "kernel",
            "ranged",
            [&[0, 0, 0, 16, 2, 0, 0, 5, 220, 0, 0, 0, 7, 3][..], &[1, 0, 1, 2, 1, 44]].concat(),
        ),
        (
            "kernel",
            "permissive",
            [&[0, 0, 1, 0, 3, 0, 0, 255, 255, 0, 1, 0, 0, 9][..], &[5, 0, 200]].concat(),
        ),
    ]
}

/// What servers, and what levee's own processes, say to each other.
fn messages() -> impl Iterator<Item = (&'static str, &'static str, Vec<u8>)> {
    let statements = levee_fuzz_targets::statement::honest().map(|(name, input)| ("statement", name, input));
    let between = levee_fuzz_targets::ipc_message::honest();
    statements.into_iter().chain(between.into_iter().map(|(name, input)| ("ipc_message", name, input)))
}

fn main() {
    let dir = std::env::args().nth(1).expect("where the corpora are");
    let write = |target: &str, name: &str, input: &[u8]| {
        let dir = Path::new(&dir).join(target);
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join(name), input).expect("a file");
    };
    for (target, name, input) in simple().into_iter().chain(links_and_servers()).chain(messages()) {
        write(target, name, &input);
    }
    let wire = |s: &Seen| [&[0; 16], &[s.first][..], &[0; 11], s.chain.as_slice()].concat();
    let framed = |m: &[u8]| [&u16::try_from(m.len()).expect("short").to_be_bytes(), m].concat();

    // What a victim asks as initiator, in order: IKE_SA_INIT, IKE_AUTH, and (childless, so at once) its first child.
    let asked = talk(4, true, &[]);
    let init = &asked[0];
    let create = asked.iter().find(|s| s.exchange == 36).expect("a child is asked for").clone();
    let data = [&[create.exchange, create.first], create.chain.as_slice()].concat();
    // What a victim answers as responder.
    let answered = talk(4, false, &[(op::ASK, data)]);
    let granted = answered.iter().rev().find(|s| s.exchange == 36).expect("a child is granted").clone();
    let body = [&[granted.first], granted.chain.as_slice()].concat();
    // With the child that was granted, the victim as initiator rekeys, deletes, probes.
    let said = |what: &[u8]| {
        let mut actions = vec![(op::ANSWER, body.clone())];
        actions.extend(what.iter().map(|w| (op::COMMAND, vec![*w])));
        talk(4, true, &actions).last().expect("a request").clone()
    };
    let (rekey, delete, rekey_ike, close, probe) =
        (said(&[1]), said(&[2]), said(&[3]), said(&[4]), said(&[5]));

    let auth_child = {
        // IKE_AUTH with a first child, as a peer that is not childless wants it.
        let all = talk(0, true, &[]);
        all.iter().find(|s| s.exchange == 35).expect("IKE_AUTH").clone()
    };
    let tail = {
        let parts: Vec<(u8, Vec<u8>)> =
            levee_fuzz_targets::attacker::payloads(auth_child.first, &auth_child.chain)
                .into_iter()
                .filter(|(k, _)| [33, 44, 45, 47].contains(k))
                .map(|(k, b)| (k, b.to_vec()))
                .collect();
        let (first, chain) = chain(&parts);
        [&[first], chain.as_slice()].concat()
    };

    let responder = |name: &str, options: u8, actions: &[Vec<u8>]| {
        write("ike_responder", name, &[&[options], actions.concat().as_slice()].concat());
    };
    responder("child", 4, &[ask(&create)]);
    responder("child-rekeyed", 4, &[ask(&create), ask(&rekey)]);
    responder("child-deleted", 4, &[ask(&create), ask(&delete)]);
    responder("child-refused", 4 | 8, &[ask(&create)]);
    responder("ike-rekeyed", 4, &[ask(&create), action(op::REKEY_ASK, &[]), ask(&rekey), ask(&probe)]);
    responder("ike-rekeyed-badly", 4, &[ask(&create), ask(&rekey_ike), ask(&probe)]);
    responder("closed", 4, &[ask(&create), ask(&close)]);
    responder("child-in-auth", 1 | 16, &[action(op::INIT, &[0]), action(op::AUTH, &tail), ask(&probe)]);
    responder(
        "crossing",
        4,
        &[ask(&create), action(op::COMMAND, &[1]), ask(&rekey), answer(&granted), action(op::TIME, &[8, 0])],
    );
    responder(
        "crossing-ike",
        4,
        &[ask(&create), action(op::COMMAND, &[3]), action(op::REKEY_ASK, &[]), action(op::REKEY_ANSWER, &[])],
    );
    let (left, right) = create.chain.split_at(create.chain.len() / 2);
    responder(
        "fragments",
        2 | 4,
        &[
            action(op::FRAGMENT, &[&[36, create.first, 1, 2], left].concat()),
            action(op::FRAGMENT, &[&[36, 0, 2, 2], right].concat()),
        ],
    );

    let initiator = |name: &str, options: u8, actions: &[Vec<u8>]| {
        write("ike_initiator", name, &[&[options], actions.concat().as_slice()].concat());
    };
    let yes = answer(&granted);
    initiator("child", 4, std::slice::from_ref(&yes));
    initiator("child-rekeyed", 4, &[yes.clone(), action(op::COMMAND, &[1]), yes.clone()]);
    initiator("child-deleted", 4, &[yes.clone(), action(op::COMMAND, &[2]), answer(&delete)]);
    initiator("both-delete", 4, &[yes.clone(), action(op::COMMAND, &[2]), ask(&delete), answer(&probe)]);
    initiator("rekeyed-by-peer", 4, &[yes.clone(), ask(&rekey), ask(&delete)]);
    initiator("more-by-peer", 4, &[yes.clone(), ask(&create), ask(&probe)]);
    initiator(
        "ike-rekeyed",
        4,
        &[yes.clone(), action(op::COMMAND, &[3]), action(op::REKEY_ANSWER, &[]), ask(&probe)],
    );
    initiator(
        "crossing-ike",
        4,
        &[yes.clone(), action(op::COMMAND, &[3]), action(op::REKEY_ASK, &[]), action(op::REKEY_ANSWER, &[])],
    );
    initiator("child-in-auth", 1, &[action(op::INIT, &[0]), action(op::AUTH, &tail)]);
    // INVALID_KE_PAYLOAD asks for P-256, COOKIE for a cookie, TEMPORARY_FAILURE for patience.
    let notify = |kind: u16, data: &[u8]| {
        let (first, chain) = chain(&[(41, [&[0, 0], &kind.to_be_bytes()[..], data].concat())]);
        [&[first], chain.as_slice()].concat()
    };
    initiator("other-group", 4, &[action(op::ANSWER, &notify(17, &[0, 19])), yes.clone()]);
    initiator("patience", 4, &[action(op::ANSWER, &notify(43, &[])), action(op::TIME, &[9, 0]), yes]);

    let parse = |name: &str, options: u8, messages: &[Vec<u8>]| {
        let all: Vec<u8> = messages.iter().flat_map(|m| framed(m)).collect();
        write("ike_parse", name, &[&[options], all.as_slice()].concat());
    };
    parse("init", 0, &[wire(init)]);
    parse("init-cookie", 2, &[wire(init)]);
    parse("answer", 0, &[wire(&answered[0])]);
    parse("auth", 0, &[wire(&auth_child)]);
    parse("child", 0, &[wire(&create), wire(&granted)]);
    parse("rekey", 0, &[wire(&rekey), wire(&rekey_ike)]);
    parse("delete", 0, &[wire(&delete), wire(&close)]);
}
