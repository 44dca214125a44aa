//! sessiond or the keyer may say anything at any rate and never read: that costs the vault a bounded amount of memory, and the other
//! one is answered. Needs root.

mod common;

use common::{Bench, SLOT, SLOTS, hear, session, spi_of};
use levee_hostile::{MOST, flood, resident};
use levee_ipc::vault::{Cipher, KeyerToVault, Sa, SessiondToVault, VaultToKeyer};
use levee_ipc::warden::Order;
use levee_ipc::warden::vault::VaultPart;
use levee_ipc::{Channel, Secret};
use std::os::fd::AsFd as _;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// Keys for a session that is not there: refused.
fn keys(number: u64) -> KeyerToVault {
    let sa = || Sa { spi: spi_of(SLOTS, SLOT, 7), keying_material: Secret::new(vec![1; 36]).unwrap() };
    KeyerToVault::Install {
        session: session(number as u8),
        cipher: Cipher::Aes256Gcm,
        esn: true,
        inbound: sa(),
        outbound: sa(),
        answered: false,
        peer: None,
        aggregation: None,
    }
}

/// The agent has sessiond's channel at a workstation. Floods: sessiond → vault or gate; keyer → vault or gate; tpe's agent → vault or gate.
#[test]
fn a_sessiond_or_keyer_that_asks_and_never_reads_is_cut_off_and_the_other_is_answered() {
    let mut bench = Bench::new();
    for vault in [&mut bench.server.vault, &mut bench.client.vault] {
        let pid = vault.child.pid.as_raw_nonzero().get();
        let before = resident(pid);
        let asked = flood(&vault.sessiond, LONG, SessiondToVault::Ping);
        assert!(asked.cut, "{asked:?}");
        assert!(resident(pid).saturating_sub(before) < MOST, "{asked:?}");
        vault.keyer.send(&keys(1)).unwrap();
        assert!(matches!(hear(&vault.keyer), VaultToKeyer::Refused { .. }));

        let (sessiond, theirs) = Channel::pair().unwrap();
        let part = VaultPart::Sessiond;
        vault.warden.send_with(&Order::Give(part), &[theirs.as_fd()]).unwrap();
        vault.sessiond = sessiond;
        let asked = flood(&vault.keyer, LONG, keys);
        assert!(asked.cut, "{asked:?}");
        assert!(resident(pid).saturating_sub(before) < MOST, "{asked:?}");
        assert_eq!(vault.report().sa_count, 0);
    }
}
