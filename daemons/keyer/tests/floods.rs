//! sessiond or a vault may say anything at any rate and never read: that costs the keyer a bounded amount of memory, and others are
//! heard.

mod world;

use levee_hostile::{MOST, flood, resident};
use levee_ipc::Channel;
use levee_ipc::keyer::{FromKeyer, KeyRecord, ToKeyer};
use levee_ipc::vault::{Carriage, KeyerToVault, VaultToKeyer};
use levee_ipc::warden::Place;
use levee_ipc::warden::keyer::KeyerPart;
use levee_policy::{HostName, LabelName};
use levee_session::SessionId;
use std::time::{Duration, Instant};
use world::*;

#[test]
fn a_sessiond_that_asks_and_never_reads_is_cut_off_and_the_next_is_answered() {
    let authority = Authority::new();
    let keyer = Keyer::new(Place::Server, &authority, authority.identity(SERVER, None));
    let pid = keyer.process.pid.as_raw_nonzero().get();
    let before = resident(pid);
    let record = KeyRecord {
        session: SessionId::from_random([7; 16]),
        device: HostName::new("ws1").unwrap(),
        label: LabelName::new("SECRET").unwrap(),
        inner: vec!["10.80.1.2".parse().unwrap()],
        reach: vec!["10.80.0.1/32".parse().unwrap()],
        carriage: Carriage::Each,
        ciphers: None,
        key_life: None,
    };
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
