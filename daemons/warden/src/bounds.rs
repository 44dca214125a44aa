//! What each of levee's own processes may use: a control group for each, in which no other process is. Who reaches the limit on
//! memory is killed, alone, and started again by the rule for what has ended; beyond the limit on processes nothing is started.

use levee_sys::Result;
use levee_sys::cgroup::{Cgroup, Limits};
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
    /// Why so much.
    pub why: &'static str,
}

const fn bound(name: &'static str, memory: u64, processes: u64, why: &'static str) -> Bound {
    Bound { name, memory, processes, why }
}

/// Every kind of process that the warden keeps running. No process has more than half of the host's memory.
pub const BOUNDS: [Bound; 18] = [
    bound(
        "sessiond",
        1536,
        16,
        "10,000 sessions; two hashes at a time, at most 256 MiB each; 8 MiB of outbox for each peer; messages that wait for people, 16 of 32 KiB for each of 64 guards",
    ),
    bound(
        "signer",
        192,
        8,
        "a few keys; scrypt while it decrypts them; 8 MiB of outbox for each of five peers",
    ),
    bound(
        "tps",
        8192,
        16_384,
        "12,288 clients with a process each, which has half a MiB, and 4,096 that wait",
    ),
    bound("keyer", 512, 8, "10,000 IKE SAs have 34 MiB; 8 MiB of outbox for each vault"),
    bound("fsd", 256, 16, "10,000 sessions of other servers; answers of etcd, 64 KiB each"),
    bound(
        "tpe",
        1024,
        80,
        "what a program writes before it is recorded: 64 MiB each; a process for each of 64 connections",
    ),
    bound("vault", 256, 8, "an idle one has 3 MiB; packets that wait for keys; super-segments"),
    bound("gate", 128, 8, "one question at a time, 64 packets"),
    bound("stack", 256, 8, "as a vault"),
    bound("witness", 256, 8, "as a vault"),
    bound(
        "mediator",
        768,
        8,
        "12,500 relayed connections; 1,024 pipes with 64 KiB, the other 24,000 with 4 KiB; the sockets that are stuck",
    ),
    bound("upflow-snapshot", 128, 8, "one document's copy at a time; pages of files are given back"),
    bound("upflow-copy", 128, 8, "one document's copy at a time; pages of files are given back"),
    bound(
        "channel",
        192,
        4,
        "messages of one turn, 10 MiB at the highest rate; what the reader has not taken yet; what writers that ended left, 48 MiB",
    ),
    bound(
        "guard",
        192,
        4,
        "as a channel; 64 messages before the filter and 16 behind it, 32 KiB each; what a schema's patterns have, 2 MiB each",
    ),
    bound("layer", 768, 4, "2,048 tunnels with 128 KiB of datagrams each way, and what TLS has of each"),
    bound("frames", 64, 4, "three descriptors of each group; 4,096 times"),
    bound("logger", 64, 4, "lines of 1 KiB; two files of 1 MiB"),
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

    /// What to add to how a process ended, where it was for its limit.
    pub fn reached(&self) -> String {
        if !self.group.ran_out_of_memory() {
            return String::new();
        }
        format!(": it had used all the memory that {} may, {} MiB", self.bound.name, self.limit >> 20)
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
