//! What each of levee's own processes may use: a control group for each, in which no other process is. Who reaches the limit on
//! memory is killed, alone, and started again by the rule for what has ended; beyond the limit on processes nothing is started.

use levee_sys::Result;
use levee_sys::cgroup::{Cgroup, Limits};
use levee_sys::pidfd::{Child, Exit};
use std::time::Duration;

/// Where the groups are, below each hierarchy's top.
const PARENT: &str = "levee/daemons";
/// How long a group's removal may keep the warden: what is in it has been killed. One that stays is removed when it is made anew.
const REMOVAL: Duration = Duration::from_millis(200);

/// What one kind of process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// As its log calls it.
    pub name: &'static str,
    /// Memory in MiB: its own, the kernel's for it, and what it has read and written of files as far as that is not given back.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u64,
}

const fn bound(name: &'static str, memory: u64, processes: u64) -> Bound {
    Bound { name, memory, processes }
}

/// Every kind of process that the warden keeps running; why each has so much, the same table in ARCHITECTURE says. No process has more than
/// half of the host's memory.
pub const BOUNDS: [Bound; 18] = [
    bound("sessiond", 1536, 16),
    bound("signer", 192, 8),
    bound("tps", 8192, 16_384),
    bound("keyer", 512, 8),
    bound("fsd", 256, 16),
    bound("tpe", 1024, 80),
    bound("vault", 256, 8),
    bound("gate", 128, 8),
    bound("stack", 256, 8),
    bound("witness", 256, 8),
    bound("mediator", 768, 8),
    bound("upflow-snapshot", 128, 8),
    bound("upflow-copy", 128, 8),
    bound("channel", 192, 4),
    bound("guard", 192, 4),
    bound("layer", 768, 4),
    bound("frames", 64, 4),
    bound("logger", 64, 4),
];

/// A process's own group; it goes with the value.
#[derive(Debug)]
pub struct Group {
    group: Cgroup,
    bound: Bound,
    /// Bytes.
    limit: u64,
}

impl Group {
    /// Makes the group of a process by its row in [`BOUNDS`] and its uid, which no other process on this host has, and where it is to run.
    ///
    /// # Errors
    /// The kernel's; the host has no controller for it.
    pub fn make(name: &str, uid: u32, processors: Option<&str>) -> Result<Self> {
        let bound = of(name);
        let limits = Limits {
            memory: (bound.memory << 20).min(half_of_the_host()),
            processes: bound.processes,
            cpu_percent: Limits::ANY_TIME,
        };
        let group = Cgroup::create_own(&format!("{PARENT}/{name}-{uid:x}", name = bound.name), limits)?;
        let mut made = Self { group, bound, limit: limits.memory };
        processors.map_or(Ok(()), |numbers| made.group.keep_to(numbers))?;
        Ok(made)
    }

    /// To start a process in it.
    pub fn cgroup(&self) -> &Cgroup {
        &self.group
    }

    /// Whether the process in it has ended, and how, in words.
    pub fn exit(&self, child: &Child) -> Option<String> {
        Some(match child.try_wait() {
            Ok(None) => return None,
            Ok(Some(Exit::Status(status))) => format!("status {status}"),
            Ok(Some(Exit::Signal(signal))) if self.group.ran_out_of_memory() => format!(
                "killed by signal {signal}: it had used all the memory that {} may, {} MiB",
                self.bound.name,
                self.limit >> 20
            ),
            Ok(Some(Exit::Signal(signal))) => format!("killed by signal {signal}"),
            Err(e) => format!("its status cannot be had: {e}"),
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The next one of this name ends what is left.
        let _ = self.group.remove_within(REMOVAL);
    }
}

fn of(name: &str) -> Bound {
    // What had no row would have the least.
    let [.., least] = BOUNDS;
    BOUNDS.into_iter().find(|bound| bound.name == name).unwrap_or(least)
}

fn half_of_the_host() -> u64 {
    let host = rustix::system::sysinfo();
    host.totalram.saturating_mul(host.mem_unit.into()) / 2
}

#[cfg(test)]
mod tests {
    use crate::{making, programs};

    /// MiB for the warden and `levee up`, and what they have read of files and not been asked to give back.
    const WARDEN: u64 = 512;
    /// MiB for one that makes an image.
    const MAKER: u64 = 256;
    /// Processes and threads of one that makes an image, with the programs that it runs.
    const MAKER_PROCESSES: u64 = 32;
    /// Makers at a time: of labels' stores, of partitions' files, of the programs' image, of a partition's root, of a network's rules.
    const MAKERS: u64 = 2 * making::AT_ONCE as u64 + 3;

    #[test]
    fn the_units_bound_what_runs_in_their_own_group_by_the_sum_of_what_that_may_use() {
        // `levee up`, the warden and those that make images: every other process has a group elsewhere. The images of services' programs
        // lie in the server's memory; a workstation makes none.
        let server = (programs::MEMORY >> 20) + WARDEN + MAKERS * MAKER;
        let units = [
            (include_str!("../../../conf/systemd/levee@.service"), server, 64 + MAKERS * MAKER_PROCESSES),
            (include_str!("../../../conf/systemd/levee-workstation.service"), WARDEN, 64),
        ];
        for (text, memory, processes) in units {
            for line in [format!("MemoryMax={memory}M"), format!("TasksMax={processes}")] {
                assert_eq!(text.lines().filter(|one| **one == line).count(), 1, "no {line} in\n{text}");
            }
        }
    }
}
