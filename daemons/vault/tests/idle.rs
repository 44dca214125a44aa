//! What a vault costs while nothing comes. Counted by how often it sleeps and wakes, never by time.

mod common;

use std::time::Duration;

use common::peer::{Peer, echo, install, server_spi};
use common::*;
use levee_ipc::vault::VaultToKeyer;
use levee_ipc::warden::Place;

const SECOND: Duration = Duration::from_secs(1);

/// A server whose vault looks on for up to `poll` µs, with session and pair 1, and a peer in this test.
fn looking_for(poll: &str) -> (Bench, Peer) {
    let bench = Bench::with_arguments(true, false, &["--poll", poll, "--aead", "ring"]);
    bench.server.vault.open(record(session(1), Place::Server));
    assert!(matches!(
        install(&bench.server.vault, session(1), 1, server_spi(1)),
        VaultToKeyer::Installed { spi } if spi == server_spi(1)
    ));
    let peer = Peer::new(&bench.client, bench.server.group.address(), 1);
    (bench, peer)
}

/// One after the other, so many echoes that are answered.
fn round_trips(peer: &mut Peer, count: u16) {
    for number in 0..count {
        let request = peer.seal(&echo(CLIENT_INNER, SERVER_INNER, number));
        peer.send(&request);
        assert!(peer.receive(5 * SECOND).is_some(), "no answer to {number}");
    }
}

/// How often the vault has gone to sleep of its own will, and its processor time in ticks.
fn slept(vault: &Vault) -> (u64, u64) {
    let pid = vault.child.pid.as_raw_nonzero();
    let read = |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let status = read("status");
    let field = |line: &str| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok();
    let stat = read("stat");
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    (status.lines().find_map(field).unwrap(), ticks)
}

#[test]
fn after_round_trips_a_vault_that_nobody_talks_to_neither_wakes_nor_works() {
    let (bench, mut peer) = looking_for("1000");
    round_trips(&mut peer, 1_000);
    std::thread::sleep(SECOND / 10);
    let before = slept(&bench.server.vault);
    std::thread::sleep(2 * SECOND);
    let after = slept(&bench.server.vault);
    // A device may say something of its own.
    assert!(after.0 - before.0 <= 4, "{before:?} {after:?}");
    assert!(after.1 - before.1 <= 1, "{before:?} {after:?}");
}
