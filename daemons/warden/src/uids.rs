//! User ids: a block for each warden on a host, so that two never share one. A server's has uids for thousands of labels, a
//! workstation's for its one session.

use crate::Fatal;
use crate::compartment::SERVICE_UID;
use crate::state::UIDS;
use levee_ipc::warden::{Place, Role};
use levee_sys::lock::Lock;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The first uid that levee uses, above what distributions hand out (systemd's containers end below it).
const BASE: u32 = 0x8000_0000;
/// Uids of one slot.
pub const PER_SLOT: u32 = 0x1_0000;
/// Uids in a server's block: those of 4,096 slots.
const BLOCK: u32 = 4096 * PER_SLOT;
/// How many servers' blocks there are.
const BLOCKS: u32 = 6;
/// The first uid of workstations.
const WORKSTATIONS: u32 = BASE + BLOCKS * BLOCK;
/// Uids in a workstation's block: its own processes', and those of the one slot it uses.
const SMALL_BLOCK: u32 = 2 * PER_SLOT;
/// How many workstations' blocks there are below the reserved end of the range.
const SMALL_BLOCKS: u32 = 2048;

/// Who makes images ([`crate::maker`]), for whichever warden of the host. Above all blocks.
pub const MAKERS: u32 = WORKSTATIONS + SMALL_BLOCKS * SMALL_BLOCK;

// Whose the keys of the second tunnel are on the disk: no process's.
const _: () = assert!(levee_ipc::warden::layer::KEYS_UID > MAKERS);

/// Below the top of the control groups: groups without a process, which are claimed as [`UIDS`] are.
const GROUPS: &str = "levee/uids";

/// A block of uids that is this warden's as long as this value lives.
#[derive(Debug)]
pub struct Uids {
    base: u32,
    block: u32,
    _locks: Vec<Lock>,
}

impl Uids {
    /// Claims a block below `/run`, and in the control groups, whose names have uids in them. So wardens that have either in common share
    /// no uid, and none ends what runs in another's groups.
    ///
    /// # Errors
    /// As [`Uids::claim`]; or the host has no control groups.
    pub fn claim_on_this_host(place: Place) -> Result<Self, Fatal> {
        let fatal = |e: &dyn std::fmt::Display| Fatal::new("claim user ids", e);
        let groups = levee_sys::cgroup::top().map_err(|e| fatal(&e))?.join(GROUPS);
        Self::claim(&[Path::new(UIDS), &groups], place).map_err(|e| fatal(&e))
    }

    /// Claims the first block of its kind that no other warden has in any of these directories.
    ///
    /// # Errors
    /// When one of them cannot be written, or every block is taken.
    pub fn claim(registries: &[impl AsRef<Path>], place: Place) -> io::Result<Self> {
        let (kind, prefix, first, size, blocks) = match place {
            Place::Server => ("servers", "", BASE, BLOCK, BLOCKS),
            Place::Workstation => ("workstations", "ws", WORKSTATIONS, SMALL_BLOCK, SMALL_BLOCKS),
        };
        for registry in registries {
            fs::create_dir_all(registry)?;
            // Who can open what is in it can lock it.
            fs::set_permissions(registry, Permissions::from_mode(0o700))?;
        }
        for block in 0..blocks {
            let name = format!("{prefix}{block}");
            let locks = registries.iter().map(|registry| lock(&registry.as_ref().join(&name)));
            // With none where any is another's; what was locked before that is let go.
            if let Some(locks) = locks.collect::<io::Result<Option<Vec<Lock>>>>()? {
                return Ok(Self { base: first + block * size, block, _locks: locks });
            }
        }
        Err(io::Error::other(format!("{blocks} {kind} run on this host already; stop one with `levee down`")))
    }

    /// A server's first block, without claiming it: for showing what would be done.
    pub fn first() -> Self {
        Self { base: BASE, block: 0, _locks: Vec::new() }
    }

    /// The number of the block: no two running wardens of a kind on a host have the same.
    pub fn block(&self) -> u32 {
        self.block
    }

    /// The uid (and gid) of a process of this role, of what has this slot; of a role that is there once the slot counts for nothing. They are
    /// among the first slot's uids, which belong to no compartment.
    pub fn of(&self, role: Role, slot: u16) -> u32 {
        let (block, place) = match role {
            Role::Sessiond => (0, 1),
            Role::Signer => (0, 2),
            Role::Tps => (0, 3),
            Role::Keyer => (0, 4),
            Role::Tpe => (0, 5),
            Role::Fsd => (0, 6),
            Role::Layer => (0, 8),
            Role::Frames => (0, 9),
            Role::Vault => (1, slot),
            Role::Snapshot => (2, slot),
            Role::Copy => (3, slot),
            Role::Stack => (4, slot),
            Role::Witness => (5, slot),
            Role::Mediator => (6, slot),
            // The place in the site file of the channel that it carries.
            Role::Channel | Role::Guard => (8, slot),
        };
        self.place(block, place)
    }

    /// That of the logger of the label, or partition, in this slot; without one, of levee's own standing processes.
    pub fn logger(&self, slot: Option<u16>) -> u32 {
        slot.map_or_else(|| self.place(0, 7), |slot| self.place(7, slot))
    }

    /// That of a signer that tries new keys.
    pub fn trial(&self) -> u32 {
        self.place(0, 10)
    }

    fn place(&self, block: u32, place: u16) -> u32 {
        self.base + block * 0x1000 + u32::from(place & 0xfff)
    }

    /// The uid of the services in the compartment in this slot.
    pub fn service(&self, slot: u16) -> u32 {
        self.compartment(slot) + SERVICE_UID
    }

    /// The first of the [`PER_SLOT`] uids of the compartment in this slot (1 to 4,095; on a workstation 1).
    pub fn compartment(&self, slot: u16) -> u32 {
        self.base + u32::from(slot & 0xfff) * PER_SLOT
    }
}

/// Locks a directory, the only thing that can be made among control groups too; none if somebody else has. It stays when nobody has it: of
/// one that were removed, two could have the lock.
fn lock(path: &Path) -> io::Result<Option<Lock>> {
    match fs::create_dir(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => Err(e),
        _ => Lock::try_at(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Place; 2] = [Place::Server, Place::Workstation];

    #[test]
    fn two_wardens_have_different_uids_and_a_block_comes_back() {
        for place in KINDS {
            let dir = tempfile::tempdir().unwrap();
            let a = Uids::claim(&[dir.path()], place).unwrap();
            let b = Uids::claim(&[dir.path()], place).unwrap();
            assert_ne!(a.of(Role::Tps, 0), b.of(Role::Tps, 0));
            let first = a.of(Role::Tps, 0);
            drop(a);
            assert_eq!(Uids::claim(&[dir.path()], place).unwrap().of(Role::Tps, 0), first);
        }
    }

    #[test]
    fn a_block_that_is_claimed_in_any_of_the_registries_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let [run, other_run, groups] = ["run", "other", "groups"].map(|name| dir.path().join(name));
        for place in KINDS {
            let one = Uids::claim(&[&run, &groups], place).unwrap();
            let beside = Uids::claim(&[&other_run, &groups], place).unwrap();
            assert_eq!([one.block(), beside.block()], [0, 1], "the groups are common");
            drop(one);
            // The second's, whose place below its own /run is free.
            assert_eq!(Uids::claim(&[&run, &groups], place).unwrap().block(), 0);
            let _one = Uids::claim(&[&run], place).unwrap();
            assert_eq!(Uids::claim(&[&groups, &run], place).unwrap().block(), 2);
        }
    }

    #[test]
    fn servers_and_a_great_many_workstations_of_one_host_share_no_uid() {
        let dir = tempfile::tempdir().unwrap();
        let claim = |place| Uids::claim(&[dir.path()], place).unwrap();
        let mut next = BASE;
        for uids in (0..BLOCKS).map(|_| claim(Place::Server)).collect::<Vec<_>>() {
            assert_eq!(uids.base, next);
            next = uids.compartment(4095) + PER_SLOT;
        }
        for uids in (0..200).map(|_| claim(Place::Workstation)).collect::<Vec<_>>() {
            assert_eq!(uids.base, next);
            // The last process of ours that a workstation has, and the last uid in its session.
            assert!(uids.logger(Some(1)) < uids.compartment(1));
            next = uids.compartment(1) + PER_SLOT;
        }
        assert!(WORKSTATIONS.checked_add(SMALL_BLOCKS * SMALL_BLOCK).is_some(), "all blocks are uids");
    }

    #[test]
    fn no_compartment_shares_a_uid_with_a_process_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let uids = Uids::claim(&[dir.path()], Place::Server).unwrap();
        use Role::{
            Channel, Copy, Frames, Fsd, Keyer, Layer, Mediator, Sessiond, Signer, Snapshot, Stack, Tpe, Tps,
            Vault, Witness,
        };
        let once = [Sessiond, Signer, Tps, Keyer, Tpe, Fsd, Layer, Frames].map(|role| uids.of(role, 7));
        let many = [Vault, Stack, Witness, Mediator, Snapshot, Copy];
        let at = |slot| many.map(|role| uids.of(role, slot)).into_iter().chain([uids.logger(Some(slot))]);
        let all: Vec<u32> = once
            .into_iter()
            .chain([uids.logger(None), uids.trial()])
            .chain((1..4096).flat_map(at))
            .chain((0..4096).map(|place| uids.of(Channel, place)))
            .collect();
        let distinct: std::collections::BTreeSet<u32> = all.iter().copied().collect();
        assert_eq!(all.len(), distinct.len());
        assert!(distinct.iter().all(|uid| *uid < uids.compartment(1)));
    }
}
