//! Keys of sessions whose tunnels have more than every tunnel at their label.

mod world;

use levee_ipc::keyer::KeyRecord;
use levee_ipc::vault::{Cipher, VaultToKeyer};
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
