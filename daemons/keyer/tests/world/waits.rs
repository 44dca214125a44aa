//! How long sessions wait for their keys.

use super::*;

/// Sessions that get their keys, before somebody does something and meanwhile.
pub const SESSIONS: u8 = 20;
/// Usually it is some hundredth of a second. Who has to wait for room among strangers waits longer than this.
const SOON: Duration = Duration::from_secs(5);

/// The next keys that a vault gets; what it loses is of sessions before.
fn installed(vault: &Channel) {
    loop {
        if let KeyerToVault::Install { inbound, .. } = told(vault) {
            return vault.send(&VaultToKeyer::Installed { spi: inbound.spi }).unwrap();
        }
    }
}

/// How long each of some sessions, one after the other, waits for its keys, the longest last.
pub fn waits(pair: &Pair, first: u8) -> Vec<Duration> {
    let each = |number| {
        let began = Instant::now();
        let record = record(number, "SECRET");
        pair.connect(record.clone());
        pair.answer("SECRET", Some(record));
        installed(&pair.secret);
        installed(&pair.at_workstation);
        loop {
            match pair.workstation.said() {
                FromKeyer::Completed(of) if of == session(number) => {
                    let waited = began.elapsed();
                    assert!(waited < SOON, "session {number}: {waited:?}");
                    return waited;
                }
                FromKeyer::Failed { reason, .. } => panic!("session {number}: {reason}"),
                _ => {}
            }
        }
    };
    let mut all: Vec<Duration> = (first..first + SESSIONS).map(each).collect();
    all.sort();
    all
}
