//! What server and workstation have in common: the processes, how they are wired to each other, and what
//! becomes of one that ends.

use crate::process::{Key, Process};
use levee_ipc::warden::signer::use_of;
use levee_ipc::warden::{Peer, Role};
use levee_ipc::{Channel, SendError};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// This many ends of one process within [`PERIOD`] are a fault that starting it again does not mend.
const MOST_RESTARTS: usize = 8;
/// See [`MOST_RESTARTS`].
const PERIOD: Duration = Duration::from_secs(20);

/// Every process of this warden, by key.
#[derive(Debug, Default)]
pub struct Processes {
    running: BTreeMap<Key, Process>,
    ends: BTreeMap<Key, VecDeque<Instant>>,
}

/// Whether there is a channel between processes of these roles. Everything that may be said between processes
/// is a row here; on a workstation the tpe stands in sessiond's place. (A gate and its two stacks, of one label, are wired
/// by [`crate::stacks`].)
fn wired(a: Role, b: Role) -> bool {
    let pair = |x, y| (a, b) == (x, y) || (a, b) == (y, x);
    pair(Role::Sessiond, Role::Tps)
        || pair(Role::Sessiond, Role::Keyer)
        || pair(Role::Sessiond, Role::Vault)
        || pair(Role::Sessiond, Role::Mediator)
        || pair(Role::Sessiond, Role::Fsd)
        || pair(Role::Tpe, Role::Keyer)
        || pair(Role::Tpe, Role::Vault)
        || pair(Role::Keyer, Role::Vault)
        || (a == Role::Signer && use_of(b).is_some())
        || (b == Role::Signer && use_of(a).is_some())
}

impl Processes {
    /// The process of this key, if it runs.
    pub fn get(&self, key: &Key) -> Option<&Process> {
        self.running.get(key)
    }

    /// As [`Processes::get`], to change it.
    pub fn get_mut(&mut self, key: &Key) -> Option<&mut Process> {
        self.running.get_mut(key)
    }

    /// All that run.
    pub fn iter(&self) -> impl Iterator<Item = &Process> {
        self.running.values()
    }

    /// The first of these roles whose process has not said yet that it is at work.
    pub fn unready(&self, roles: &[Role]) -> Option<Role> {
        roles.iter().copied().find(|role| self.get(&Key::of(*role)).is_none_or(|process| !process.ready))
    }

    /// Takes over a started process, and wires it to every running one that it speaks with. `slot` is the
    /// steering slot of a label: both ends of a channel learn it, the keyer to choose SPIs and the vault to refuse others.
    ///
    /// # Errors
    /// When the new process itself cannot be reached; a partner that cannot is killed.
    pub fn admit(&mut self, process: Process, slot: impl Fn(&Key) -> Option<u16>) -> Result<(), SendError> {
        for other in self.running.values() {
            if !wired(process.key.role, other.key.role) {
                continue;
            }
            let (a, b) = Channel::pair().map_err(SendError::Io)?;
            let slot = slot(&process.key).or_else(|| slot(&other.key));
            let end = |key: &Key| Peer { role: key.role, label: key.label.clone(), slot };
            process.connect(&end(&other.key), a.into_fd())?;
            if other.connect(&end(&process.key), b.into_fd()).is_err() {
                other.kill();
            }
        }
        self.running.insert(process.key.clone(), process);
        Ok(())
    }

    /// Forgets a process that has ended. Says whether it may be started again, or has ended too often.
    pub fn ended(&mut self, key: &Key, now: Instant) -> Option<(Process, bool)> {
        let process = self.running.remove(key)?;
        let ends = self.ends.entry(key.clone()).or_default();
        ends.push_back(now);
        while ends.front().is_some_and(|first| now.duration_since(*first) > PERIOD) {
            ends.pop_front();
        }
        Some((process, ends.len() <= MOST_RESTARTS))
    }

    /// Takes a process out whose end is wanted.
    pub fn remove(&mut self, key: &Key) -> Option<Process> {
        self.ends.remove(key);
        self.running.remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: [Role; 12] = [
        Role::Sessiond,
        Role::Signer,
        Role::Tps,
        Role::Keyer,
        Role::Vault,
        Role::Stack,
        Role::Witness,
        Role::Mediator,
        Role::Snapshot,
        Role::Copy,
        Role::Fsd,
        Role::Tpe,
    ];

    #[test]
    fn wiring_is_symmetric_and_no_process_speaks_with_its_own_kind() {
        for a in ROLES {
            assert!(!wired(a, a), "{a:?}");
            for b in ROLES {
                assert_eq!(wired(a, b), wired(b, a));
            }
        }
    }

    #[test]
    fn what_reads_bytes_from_outside_reaches_no_vault_but_through_sessiond_and_keyer() {
        assert!(!wired(Role::Tps, Role::Vault));
        assert!(!wired(Role::Tps, Role::Keyer));
        assert!(
            !wired(Role::Fsd, Role::Vault) && !wired(Role::Fsd, Role::Keyer) && !wired(Role::Fsd, Role::Tps)
        );
        assert!(!wired(Role::Vault, Role::Signer));
        for role in ROLES {
            assert_eq!(wired(Role::Mediator, role), role == Role::Sessiond);
            assert!(!wired(Role::Snapshot, role));
            assert!(!wired(Role::Copy, role));
            // They know their gate, and nobody else.
            assert!(!wired(Role::Stack, role) && !wired(Role::Witness, role));
        }
    }
}
