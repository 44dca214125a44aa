//! User ids: a block of 2^28 for each warden on a host, so that two never share one.

use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// The first uid that levee uses, above what distributions hand out (systemd's containers end below it).
const BASE: u32 = 0x8000_0000;
/// Uids in a block: one of 65,536 for each of 4,096 slots.
const BLOCK: u32 = 0x1000_0000;
/// How many blocks there are below the reserved end of the range.
const BLOCKS: u32 = 7;
/// Uids of one slot.
pub const PER_SLOT: u32 = 0x1_0000;

/// A block of uids that is this warden's as long as this value lives.
#[derive(Debug)]
pub struct Uids {
    base: u32,
    _lock: Option<File>,
}

/// A process's place in the first slot's uids, which belong to no compartment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Own {
    /// sessiond.
    Sessiond,
    /// signer.
    Signer,
    /// tps and its children.
    Tps,
    /// keyer.
    Keyer,
    /// The tpe's agent.
    Tpe,
    /// The vault in this slot.
    Vault(u16),
    /// The first of two stacks in this slot that must agree.
    Stack(u16),
    /// The second of them.
    Witness(u16),
    /// The first stage of upflow for the label in this slot.
    Snapshot(u16),
    /// The second stage of upflow for the label in this slot.
    Copy(u16),
}

impl Uids {
    /// Claims the first block that no other warden on this host has; `registry` is the same for all of them.
    ///
    /// # Errors
    /// When the registry cannot be written, or every block is taken.
    pub fn claim(registry: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(registry)?;
        for block in 0..BLOCKS {
            let path = registry.join(block.to_string());
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { base: BASE + block * BLOCK, _lock: Some(file) }),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(io::Error::other(format!(
            "{BLOCKS} wardens run on this host already; stop one with `levee down`"
        )))
    }

    /// The first block, without claiming it: for showing what would be done.
    pub fn first() -> Self {
        Self { base: BASE, _lock: None }
    }

    /// The number of the block: no two running wardens of a host have the same.
    pub fn block(&self) -> u32 {
        (self.base - BASE) / BLOCK
    }

    /// The uid (and gid) of one of levee's own processes.
    pub fn own(&self, who: Own) -> u32 {
        let offset = match who {
            Own::Sessiond => 1,
            Own::Signer => 2,
            Own::Tps => 3,
            Own::Keyer => 4,
            Own::Tpe => 5,
            Own::Vault(slot) => 0x1000 + u32::from(slot & 0xfff),
            Own::Snapshot(slot) => 0x2000 + u32::from(slot & 0xfff),
            Own::Copy(slot) => 0x3000 + u32::from(slot & 0xfff),
            Own::Stack(slot) => 0x4000 + u32::from(slot & 0xfff),
            Own::Witness(slot) => 0x5000 + u32::from(slot & 0xfff),
        };
        self.base + offset
    }

    /// The first of the [`PER_SLOT`] uids of the compartment in this slot (1 to 4,095).
    pub fn compartment(&self, slot: u16) -> u32 {
        self.base + u32::from(slot & 0xfff) * PER_SLOT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_wardens_have_different_uids_and_a_block_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let a = Uids::claim(dir.path()).unwrap();
        let b = Uids::claim(dir.path()).unwrap();
        assert_ne!(a.own(Own::Tps), b.own(Own::Tps));
        let first = a.own(Own::Tps);
        drop(a);
        assert_eq!(Uids::claim(dir.path()).unwrap().own(Own::Tps), first);
    }

    #[test]
    fn no_compartment_shares_a_uid_with_a_process_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let uids = Uids::claim(dir.path()).unwrap();
        let ours = [Own::Sessiond, Own::Signer, Own::Tps, Own::Keyer, Own::Tpe]
            .into_iter()
            .chain((1..4096).flat_map(|s| [Own::Vault(s), Own::Snapshot(s), Own::Copy(s)]))
            .chain((1..4096).flat_map(|s| [Own::Stack(s), Own::Witness(s)]));
        let all: Vec<u32> = ours.map(|who| uids.own(who)).collect();
        let distinct: std::collections::BTreeSet<u32> = all.iter().copied().collect();
        assert_eq!(all.len(), distinct.len());
        assert!(distinct.iter().all(|uid| *uid < uids.compartment(1)));
        assert!(uids.compartment(4095).checked_add(PER_SLOT).is_some());
    }
}
