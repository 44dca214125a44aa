//! What each of levee's own processes may use: a control group for each, in which no other process is. Who reaches the limit on
//! memory is killed, alone, and started again by the rule for what has ended; beyond the limit on processes nothing is started.

use levee_sys::Result;
use levee_sys::cgroup::{Cgroup, Limits};
use levee_sys::pidfd::{Child, Exit};
use std::time::Duration;

/// Where the groups are, below each hierarchy's top.
const PARENT: &str = "levee/daemons";
/// Percent of a processor that a logger has at most: a program can have it work without end, and it runs at any time, in whosever slot.
const WRITES: u32 = 10;
/// How long a group's removal may keep the warden: what is in it has been killed. One that stays is removed when it is made anew.
const REMOVAL: Duration = Duration::from_millis(200);

/// Every kind of process that the warden keeps running, as its log calls it: its memory in MiB (its own, the kernel's for it, and what it has
/// read and written of files as far as that is not given back), and how many processes and threads it may have. Why each has so much, the same table in ARCHITECTURE says. No process has more than
/// half of the host's memory.
pub const BOUNDS: [(&str, u64, u64); 18] = [
    ("sessiond", 1536, 16),
    ("signer", 192, 8),
    ("tps", 8192, 16_384),
    ("keyer", 512, 8),
    ("fsd", 256, 16),
    ("tpe", 1024, 80),
    ("vault", 256, 8),
    ("gate", 128, 8),
    ("stack", 256, 8),
    ("witness", 256, 8),
    ("mediator", 768, 8),
    ("upflow-snapshot", 128, 8),
    ("upflow-copy", 256, 8),
    ("channel", 192, 4),
    ("guard", 192, 4),
    ("layer", 768, 4),
    ("frames", 64, 4),
    ("logger", 64, 4),
];

/// A process's own group; it goes with the value.
#[derive(Debug)]
pub struct Group {
    group: Cgroup,
    name: &'static str,
    /// Bytes.
    limit: u64,
}

impl Group {
    /// Makes the group of a process by its row in [`BOUNDS`] and its uid, which no other process on this host has, and where it is to run.
    ///
    /// # Errors
    /// The kernel's; the host has no controller for it.
    pub fn make(name: &str, uid: u32, processors: Option<&str>) -> Result<Self> {
        let (name, memory, processes) = of(name);
        let limits = Limits {
            memory: (memory << 20).min(half_of_the_host()),
            processes,
            cpu_percent: if name == "logger" { WRITES } else { Limits::ANY_TIME },
        };
        let group = Cgroup::create_own(&format!("{PARENT}/{name}-{uid:x}"), limits)?;
        let mut made = Self { group, name, limit: limits.memory };
        processors.map_or(Ok(()), |numbers| made.group.keep_to(numbers))?;
        Ok(made)
    }

    /// To start a process in it.
    pub fn cgroup(&self) -> &Cgroup {
        &self.group
    }

    /// Whether the process in it has ended, and how, in words.
    pub fn exit(&self, child: &Child) -> Option<String> {
        let Self { name, limit, .. } = self;
        let most = limit >> 20;
        Some(match child.try_wait() {
            Ok(None) => return None,
            Ok(Some(Exit::Status(status))) => format!("status {status}"),
            Ok(Some(Exit::Signal(signal))) if self.group.ran_out_of_memory() => {
                format!("killed by signal {signal}: it had used all the memory that {name} may, {most}M")
            }
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

fn of(name: &str) -> (&'static str, u64, u64) {
    // What had no row would have the least.
    let [.., least] = BOUNDS;
    BOUNDS.into_iter().find(|(known, ..)| *known == name).unwrap_or(least)
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
            (include_str!("../../../conf/systemd/levee-gateway.service"), WARDEN, 64),
        ];
        for (text, memory, processes) in units {
            for line in [format!("MemoryMax={memory}M"), format!("TasksMax={processes}")] {
                assert_eq!(text.lines().filter(|one| **one == line).count(), 1, "no {line} in\n{text}");
            }
        }
    }
}
