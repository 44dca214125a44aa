//! sessiond, the tpe's agent, a vault or the signer may say anything at any rate and never read: that costs the keyer a bounded amount of memory, and others are
//! heard.

mod world;

use levee_hostile::{MOST, bears, flood, resident};
use levee_ipc::Channel;
use levee_ipc::keyer::{FromKeyer, KeyRecord, ToKeyer};
use levee_ipc::signer::FromSigner;
use levee_ipc::vault::{Carriage, KeyerToVault, VaultToKeyer};
use levee_ipc::warden::Place;
use levee_ipc::warden::keyer::KeyerPart;
use levee_policy::{HostName, LabelName};
use levee_session::SessionId;
use std::time::{Duration, Instant};
use world::*;

/// Of a peer that is not cut off.
const WHILE: Duration = Duration::from_secs(1);
/// Of one that is to be, sooner or later.
const LONG: Duration = Duration::from_secs(60);

/// The record of a session that no peer has.
fn record() -> KeyRecord {
    KeyRecord {
        session: SessionId::from_random([7; 16]),
        device: HostName::new("ws1").unwrap(),
        label: LabelName::new("SECRET").unwrap(),
        inner: vec!["10.80.1.2".parse().unwrap()],
        reach: vec!["10.80.0.1/32".parse().unwrap()],
        carriage: Carriage::Each,
        ciphers: None,
        key_life: None,
    }
}

/// Floods: sessiond → keyer; vault or gate → keyer.
#[test]
fn a_sessiond_that_asks_and_never_reads_is_cut_off_and_the_next_is_answered() {
    let authority = Authority::new();
    let keyer = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    let pid = keyer.process.pid.as_raw_nonzero().get();
    let before = resident(pid);
    let record = record();
    // Each is answered: there is no such peer.
    let asked = flood(&keyer.asker, Duration::from_secs(60), |_| ToKeyer::Renew(record.clone()));
    assert!(asked.cut, "{asked:?}");
    assert!(resident(pid).saturating_sub(before) < MOST, "{asked:?}");
    let vault = keyer.vault(&record.label, 3);
    let said = flood(&vault, Duration::from_secs(1), |_| VaultToKeyer::Acquire(record.session));
    assert!(said.said > 0 && resident(pid).saturating_sub(before) < MOST, "{said:?}");

    let asker = attach(&keyer.control, KeyerPart::Sessiond);
    asker.send(&ToKeyer::Renew(record)).unwrap();
    loop {
        match next(&asker) {
            FromKeyer::NoPeer(_) => return,
            FromKeyer::Passes(_) | FromKeyer::Dropped(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The SPI of the next keys that a vault is given within this time.
fn given(vault: &Channel, within: Duration) -> Option<u32> {
    let until = Instant::now() + within;
    while readable(vault, until.saturating_duration_since(Instant::now())) {
        if let KeyerToVault::Install { inbound, .. } = next(vault) {
            vault.send(&VaultToKeyer::Installed { spi: inbound.spi }).unwrap();
            return Some(inbound.spi);
        }
    }
    None
}

/// Floods: tpe's agent → keyer.
#[test]
fn an_agent_that_tells_without_end_costs_a_workstations_keyer_little_and_the_next_is_heard() {
    let authority = Authority::new();
    let keyer = Keyer::new(Place::Workstation, &authority, authority.identity("ws1", Some(RANGE)));
    let pid = keyer.process.pid.as_raw_nonzero().get();
    let server = || "127.0.0.1:9".parse().unwrap();
    let connect = |_| ToKeyer::Connect { record: record(), server: server(), passes: Vec::new() };
    let admit = |n: u64| ToKeyer::Admit {
        record: KeyRecord { session: SessionId::from_random([n as u8; 16]), ..record() },
        server: server(),
        name: SERVER.parse().unwrap(),
    };
    let revoke = |n: u64| ToKeyer::Revoke(SessionId::from_random([n as u8; 16]));
    bears(pid, "what is a server's", || flood(&keyer.asker, WHILE, |_| ToKeyer::MorePasses));
    bears(pid, "ends", || flood(&keyer.asker, WHILE, revoke));
    let connections = bears(pid, "connections", || flood(&keyer.asker, WHILE, connect));
    // Who does not hear its answers is cut off at so many, which a fast host comes to: then there is another one.
    let another = connections.cut.then(|| attach(&keyer.control, KeyerPart::Sessiond));
    let asker = another.as_ref().unwrap_or(&keyer.asker);
    bears(pid, "admissions", || flood(asker, WHILE, admit));
    let nonsense = bears(pid, "nonsense", || flood(asker, LONG, |_| vec![0xffu8; 5_000]));
    assert!(nonsense.cut, "{nonsense:?}");
    let next = attach(&keyer.control, KeyerPart::Sessiond);
    assert!(bears(pid, "the next", || flood(&next, WHILE, revoke)).said > 1_000);
}

/// Floods: signer → keyer.
#[test]
fn a_signer_that_answers_what_nobody_asked_costs_the_keyer_little_and_sessiond_is_answered() {
    let authority = Authority::new();
    let keyer = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    let pid = keyer.process.pid.as_raw_nonzero().get();
    let signer = attach(&keyer.control, KeyerPart::Signer);
    let word = |n: u64| FromSigner::Signature(vec![7; n as usize % 4_000]);
    let asks = |when: &str| {
        keyer.asker.send(&ToKeyer::Renew(record())).unwrap();
        while !matches!(next(&keyer.asker), FromKeyer::NoPeer(_)) {}
        println!("{when}: answered");
    };
    bears(pid, "signatures", || flood(&signer, WHILE, word));
    asks("then");
    std::thread::scope(|scope| {
        let loud = scope.spawn(|| flood(&signer, WHILE, word));
        asks("meanwhile");
        assert!(loud.join().unwrap().said > 0);
    });
    let nonsense = bears(pid, "nonsense", || flood(&signer, LONG, |_| vec![0xffu8; 5_000]));
    assert!(nonsense.cut, "{nonsense:?}");
    asks("without a signer");
}

#[test]
fn a_vault_that_has_each_pair_replaced_as_soon_as_it_has_it_gets_so_many_and_then_few_in_a_second() {
    let (pair, there, _) = Pair::agreed();
    let (begun, mut spi, mut replaced) = (Instant::now(), there.inbound.0, 0);
    let ask = |spi| pair.secret.send(&VaultToKeyer::Expiring { spi, session: session(1) }).unwrap();
    while replaced < 8_000 {
        ask(spi);
        given(&pair.at_workstation, Duration::from_secs(2));
        match given(&pair.secret, Duration::from_secs(2)) {
            Some(next) => (spi, replaced) = (next, replaced + 1),
            None => break,
        }
    }
    // The answer to the last took four seconds.
    let most = 1_024 + 64 * begun.elapsed().as_secs();
    assert!((1_024..=most).contains(&replaced), "{replaced}");
    ask(spi);
    assert!(given(&pair.secret, Duration::from_secs(10)).is_some(), "a moment later it has one more");
}
