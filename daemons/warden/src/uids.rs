//! User ids: a block for each warden on a host, so that two never share one. It has as many slots as its labels and partitions need, or
//! as a workstation's one session does.

use crate::Fatal;
use crate::compartment::SERVICE_UID;
use crate::state::UIDS;
use levee_ipc::warden::Role;
use levee_sys::lock::Lock;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The first uid that levee uses, above what distributions hand out (systemd's containers end below it).
const BASE: u32 = 0x8000_0000;
/// Uids of one slot.
pub const PER_SLOT: u32 = 0x1_0000;
/// Uids of 4,096 slots.
const LOT: u32 = 4096 * PER_SLOT;

/// The blocks there are: how their names begin, how many slots one has, the first of which is levee's own, the first uid, and how many there
/// are. The smallest that suffices is taken.
const BLOCKS: [(&str, u16, u32, u32); 3] =
    [("ws", 2, BASE + 6 * LOT, 2048), ("few", 256, BASE + 5 * LOT, 16), ("", 4096, BASE, 5)];

/// Who makes images ([`crate::maker`]), for whichever warden of the host. Above all blocks.
pub const MAKERS: u32 = BASE + 7 * LOT;

// Whose the keys of the second tunnel are on the disk: no process's.
const _: () = assert!(levee_ipc::warden::layer::KEYS_UID > MAKERS);

/// Below the top of the control groups: groups without a process, which are claimed as [`UIDS`] are.
const GROUPS: &str = "levee/uids";

/// A block of uids that is this warden's as long as this value lives.
#[derive(Debug)]
pub struct Uids {
    base: u32,
    slots: u16,
    _locks: Vec<Lock>,
}

impl Uids {
    /// Claims a block below `/run`, and in the control groups, whose names have uids in them. So wardens that have either in common share
    /// no uid, and none ends what runs in another's groups.
    ///
    /// # Errors
    /// As [`Uids::claim`]; or the host has no control groups.
    pub fn claim_on_this_host(slots: u16) -> Result<Self, Fatal> {
        let fatal = |e: &dyn std::fmt::Display| Fatal::new("claim user ids", e);
        let groups = levee_sys::cgroup::top().map_err(|e| fatal(&e))?.join(GROUPS);
        Self::claim(&[Path::new(UIDS), &groups], slots).map_err(|e| fatal(&e))
    }

    /// Claims the first block with slots 1 to `slots` that no other warden has in any of these directories.
    ///
    /// # Errors
    /// When one of them cannot be written, or every such block is taken.
    pub fn claim(registries: &[impl AsRef<Path>], slots: u16) -> io::Result<Self> {
        for registry in registries {
            fs::create_dir_all(registry)?;
            // Who can open what is in it can lock it.
            fs::set_permissions(registry, Permissions::from_mode(0o700))?;
        }
        let (prefix, has, first, blocks) = kind(slots);
        for block in 0..blocks {
            let name = format!("{prefix}{block}");
            let locks = registries.iter().map(|registry| lock(&registry.as_ref().join(&name)));
            // With none where any is another's; what was locked before that is let go.
            if let Some(locks) = locks.collect::<io::Result<Option<Vec<Lock>>>>()? {
                let base = first + block * u32::from(has) * PER_SLOT;
                return Ok(Self { base, slots: has, _locks: locks });
            }
        }
        let why = format!("{blocks} for up to {} labels run here already; stop one: `levee down`", has - 1);
        Err(io::Error::other(why))
    }

    /// The first block with these slots, without claiming it: for showing what would be done.
    pub fn first(slots: u16) -> Self {
        let (_, slots, base, _) = kind(slots);
        Self { base, slots, _locks: Vec::new() }
    }

    /// The number of the block: no two running wardens on a host have the same.
    pub fn block(&self) -> u32 {
        (self.base - BASE) / PER_SLOT
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

    /// The first of the [`PER_SLOT`] uids of the compartment in this slot, one of those claimed: any other's are another warden's.
    pub fn compartment(&self, slot: u16) -> u32 {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        self.base + u32::from(slot) * PER_SLOT
    }
}

/// The smallest blocks with slots 1 to `slots`, or the largest there are.
fn kind(slots: u16) -> (&'static str, u16, u32, u32) {
    let [.., largest] = BLOCKS;
    BLOCKS.into_iter().find(|(_, has, ..)| slots < *has).unwrap_or(largest)
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

    /// A workstation, a server, and one for thousands of labels.
    const KINDS: [u16; 3] = [1, 255, 256];

    #[test]
    fn two_wardens_have_different_uids_and_a_block_comes_back() {
        for slots in KINDS {
            let dir = tempfile::tempdir().unwrap();
            let a = Uids::claim(&[dir.path()], slots).unwrap();
            let b = Uids::claim(&[dir.path()], slots).unwrap();
            assert_ne!(a.of(Role::Tps, 0), b.of(Role::Tps, 0));
            let first = a.of(Role::Tps, 0);
            drop(a);
            assert_eq!(Uids::claim(&[dir.path()], slots).unwrap().of(Role::Tps, 0), first);
        }
    }

    #[test]
    fn a_block_that_is_claimed_in_any_of_the_registries_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let [run, other_run, groups] = ["run", "other", "groups"].map(|name| dir.path().join(name));
        for slots in KINDS {
            let one = Uids::claim(&[&run, &groups], slots).unwrap();
            let beside = Uids::claim(&[&other_run, &groups], slots).unwrap();
            let (first, second) = (one.block(), beside.block());
            assert_ne!(first, second, "the groups are common");
            drop(one);
            // The second's, whose place below its own /run is free.
            assert_eq!(Uids::claim(&[&run, &groups], slots).unwrap().block(), first);
            let _one = Uids::claim(&[&run], slots).unwrap();
            let third = Uids::claim(&[&groups, &run], slots).unwrap().block();
            assert!(![first, second].contains(&third));
        }
    }

    #[test]
    fn every_server_and_workstation_that_a_host_has_room_for_has_its_own_uids() {
        let dir = tempfile::tempdir().unwrap();
        let (mut held, mut taken) = (Vec::new(), Vec::new());
        // (Of the workstations some, since each looks at all before it.)
        for (slots, most) in [(4095, 5), (255, 16), (1, 200)] {
            for _ in 0..most {
                let uids = Uids::claim(&[dir.path()], slots).unwrap();
                // The last process of ours, and the last uid of the last slot.
                assert!(uids.place(8, 0xfff) < uids.compartment(1));
                taken.push((uids.base, uids.compartment(slots) + PER_SLOT));
                held.push(uids);
            }
        }
        for slots in [4095, 255] {
            let refused = Uids::claim(&[dir.path()], slots).unwrap_err().to_string();
            assert!(refused.contains("stop one: `levee down`"), "{refused}");
        }
        taken.sort_unstable();
        // One behind the other, from the first uid on.
        assert!(taken.windows(2).all(|pair| pair[0].1 == pair[1].0), "{taken:?}");
        assert_eq!(taken[0].0, BASE);
        let ends = BLOCKS.map(|(_, has, first, blocks)| first + blocks * u32::from(has) * PER_SLOT);
        assert_eq!(ends, [MAKERS, BASE + 6 * LOT, BASE + 5 * LOT]);
    }

    #[test]
    #[should_panic(expected = "slot 256 of 256")]
    fn a_slot_that_was_not_claimed_has_no_uids() {
        Uids::first(255).compartment(256);
    }

    #[test]
    fn no_compartment_shares_a_uid_with_a_process_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let uids = Uids::claim(&[dir.path()], 4095).unwrap();
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
