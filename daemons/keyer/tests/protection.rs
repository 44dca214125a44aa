//! Keys of sessions whose tunnels have more than every tunnel at their label.

mod world;

use levee_ipc::keyer::{KeyRecord, ToKeyer};
use levee_ipc::vault::{Cipher, VaultToKeyer};
use levee_policy::site::Keying;
use std::time::Duration;
use world::*;

const MOMENT: Duration = Duration::from_millis(300);

#[test]
fn a_session_with_ciphers_of_its_own_has_those_or_no_keys_whoever_of_the_two_keyers_was_told() {
    let with = |ciphers: Option<Cipher>| KeyRecord {
        ciphers: ciphers.map(|cipher| vec![cipher]),
        ..record(1, "SECRET")
    };
    let other = Some(Cipher::ChaCha20Poly1305);
    let pair = Pair::new();
    pair.connect(with(other));
    pair.answer("SECRET", Some(with(other)));
    let keys_here = keys(&pair.at_workstation);
    assert_eq!(
        (keys(&pair.secret).cipher, keys_here.cipher),
        (Cipher::ChaCha20Poly1305, Cipher::ChaCha20Poly1305)
    );
    // And so when they are replaced, by either side.
    pair.at_workstation
        .send(&VaultToKeyer::Expiring { spi: keys_here.inbound.0, session: session(1) })
        .unwrap();
    pair.answer("SECRET", Some(with(other)));
    assert_eq!(keys(&pair.secret).cipher, Cipher::ChaCha20Poly1305);

    // The workstation was not told, and asks for what the server would choose: the server's vault never hears of its keys.
    let pair = Pair::new();
    pair.connect(with(None));
    pair.answer("SECRET", Some(with(other)));
    pair.server.counts("keys that a vault was not to have: its session's protection has not this cipher");
    assert!(silent(&pair.secret, MOMENT));
}

#[test]
fn keys_are_replaced_before_they_are_as_old_as_they_may_be() {
    let with = || KeyRecord { key_life: Some(Duration::from_secs(3)), ..record(1, "SECRET") };
    let pair = Pair::new();
    pair.connect(with());
    pair.answer("SECRET", Some(with()));
    let (there, here) = (keys(&pair.secret), keys(&pair.at_workstation));
    pair.answer("SECRET", Some(with()));
    let (new_there, new_here) = (keys(&pair.secret), keys(&pair.at_workstation));
    assert_ne!((there.inbound, here.inbound), (new_there.inbound, new_here.inbound));
}

#[test]
fn keys_are_replaced_at_once_and_then_by_the_life_that_their_label_has_from_now_on() {
    let with = || record(1, "SECRET");
    let pair = Pair::new();
    pair.connect(with());
    pair.answer("SECRET", Some(with()));
    let before = keys(&pair.secret);
    keys(&pair.at_workstation);
    let tell = |key_life: Option<u64>| {
        let key_life = key_life.map(Duration::from_secs);
        pair.server.tell(&ToKeyer::Keying(label("SECRET"), Keying { key_life, ..keying(&ALL, false) }));
    };
    // What a new label is told first is no less than before, and the same again is nothing.
    tell(None);
    let first = keys(&pair.secret);
    keys(&pair.at_workstation);
    assert_eq!(deleted(&pair.secret), before.inbound.0);
    tell(None);
    assert!(silent(&pair.secret, MOMENT));
    // By the same ciphers, and with nobody's word.
    tell(Some(3));
    let at_once = keys(&pair.secret);
    keys(&pair.at_workstation);
    assert_eq!(deleted(&pair.secret), first.inbound.0);
    let by_age = keys(&pair.secret);
    assert_ne!(at_once.inbound, by_age.inbound);
}
