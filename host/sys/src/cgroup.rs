//! Control groups: limits on memory, processes and processor time, and killing everything in one.
//!
//! On a host with the unified hierarchy alone, one directory does all. On a hybrid host the limits go through
//! the v1 controllers and the unified hierarchy, which has none, only kills.

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::Step;
use crate::{Error, Result};

/// What a group may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory in bytes, page cache included; no swap on top. On a hybrid host the buffers of sockets are not in it, and are limited to a
    /// quarter of it besides.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u64,
    /// Processor time in hundredths of one processor: 150 is one and a half. [`Limits::ANY_TIME`] is no limit.
    pub cpu_percent: u32,
}

impl Limits {
    /// As much processor time as there is.
    pub const ANY_TIME: u32 = u32::MAX;
}

/// A group of processes, in every hierarchy that the host has for it. Dropping it removes nothing.
#[derive(Debug)]
pub struct Cgroup {
    /// In the unified hierarchy.
    unified: PathBuf,
    /// The v1 controllers' directories on a hybrid host.
    v1: Vec<PathBuf>,
    /// `cgroup.procs` of each.
    procs: Vec<File>,
    /// No other that this process has made has it.
    number: u64,
    /// The v1 directory that says where it runs, once it has one.
    placed: Option<PathBuf>,
}

/// Where the hierarchies are mounted.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchies {
    unified: PathBuf,
    /// Mount point of the v1 controllers `memory`, `pids` and `cpu`; `None` where they are unified.
    v1: Option<[PathBuf; 3]>,
    /// Mount point of the v1 controller `cpuset`, where there is one.
    cpuset: Option<PathBuf>,
}

const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];
/// On a hybrid host, the part of a group's memory that its sockets may have on top: a quarter.
const SOCKETS: u64 = 4;
/// Period of processor limits, in microseconds.
const PERIOD: u64 = 100_000;
/// How long processes that were killed may take to be gone.
const KILLED: Duration = Duration::from_secs(10);
/// Groups that this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);
/// So often a group is made that others' removals get in the way of.
const TRIES: u32 = 8;
/// How long those that nobody here killed may take: they end with whoever was killed who had begun them.
const REMAINS: Duration = Duration::from_secs(5);

impl Cgroup {
    /// Makes the group `name` (a relative path, such as `levee/site/2`) with its limits.
    ///
    /// # Errors
    /// If the group exists and is in use, a limit cannot be set, or the host has no controller for it. Then nothing is
    /// left. A group whose processes are ending is waited for.
    pub fn create(name: &str, limits: Limits) -> Result<Self> {
        if Path::new(name).components().any(|c| !matches!(c, Component::Normal(_))) || name.is_empty() {
            return Err(Error::invalid(format!("make the control group {name:?}"), "not a relative path"));
        }
        let hierarchies = Hierarchies::find()?;
        let mut group = Self {
            unified: hierarchies.unified.join(name),
            v1: hierarchies.v1.iter().flatten().map(|mount| mount.join(name)).collect(),
            procs: Vec::new(),
            number: MADE.fetch_add(1, Ordering::Relaxed),
            placed: None,
        };
        // Who was killed leaves its groups; their processes are ending or gone. One that stays in use is
        // somebody's: it is not made room for, and not removed below either.
        let placed = hierarchies.cpuset.iter().map(|mount| mount.join(name)).filter(|left| left.exists());
        for directory in group.directories().chain(placed.collect::<Vec<_>>().iter().map(PathBuf::as_path)) {
            vanish(directory, REMAINS).step(|| format!("make {} anew", directory.display()))?;
        }
        for left in (0..TRIES).rev() {
            match group.fill(&hierarchies, limits) {
                Ok(()) => break,
                // Another process has removed a directory above, which was empty for a moment.
                Err(e) if left > 0 && e.raw_os_error() == Some(libc::ENOENT) => group.clear(),
                Err(e) => {
                    // The first error is the one to report.
                    let _ = group.remove();
                    return Err(e);
                }
            }
        }
        Ok(group)
    }

    /// As [`Cgroup::create`], for a name that nobody else can have: what a run before has left there is ended first.
    ///
    /// # Errors
    /// As there.
    pub fn create_own(name: &str, limits: Limits) -> Result<Self> {
        let left = Hierarchies::find()?.unified.join(name);
        if left.exists() {
            set(&left, "cgroup.kill", "1")?;
        }
        Self::create(name, limits)
    }

    /// Removes its directories as far as they are there, and none above.
    fn clear(&self) {
        self.directories().for_each(|directory| drop(fs::remove_dir(directory)));
    }

    fn fill(&mut self, hierarchies: &Hierarchies, limits: Limits) -> Result<()> {
        if hierarchies.v1.is_none() {
            for parent in self.unified.ancestors().skip(1) {
                if !parent.starts_with(&hierarchies.unified) {
                    break;
                }
                fs::create_dir_all(parent).step(|| format!("make {}", parent.display()))?;
            }
            let mut above: Vec<_> = self.unified.ancestors().skip(1).collect();
            above.retain(|p| p.starts_with(&hierarchies.unified));
            for parent in above.into_iter().rev() {
                for controller in CONTROLLERS {
                    set(parent, "cgroup.subtree_control", &format!("+{controller}"))?;
                }
            }
        }
        for directory in self.directories() {
            if let Some(parent) = directory.parent() {
                fs::create_dir_all(parent).step(|| format!("make {}", parent.display()))?;
            }
            fs::create_dir(directory).step(|| format!("make {}", directory.display()))?;
        }
        // A quota of none is for the kernel to refuse.
        let quota = (limits.cpu_percent != Limits::ANY_TIME)
            .then(|| PERIOD.saturating_mul(limits.cpu_percent.into()) / 100);
        let (memory, processes) = (limits.memory.to_string(), limits.processes.to_string());
        match self.v1.as_slice() {
            [memory_dir, pids_dir, cpu_dir] => {
                set(memory_dir, "memory.limit_in_bytes", &memory)?;
                // Without swap accounting the file is missing, and with it the means to swap beyond the limit.
                if memory_dir.join("memory.memsw.limit_in_bytes").exists() {
                    set(memory_dir, "memory.memsw.limit_in_bytes", &memory)?;
                }
                // v1 charges what waits in TCP's and UDP's sockets to this counter alone. Without a limit nothing counts it, and a
                // group holds what the whole machine may.
                set(memory_dir, "memory.kmem.tcp.limit_in_bytes", &(limits.memory / SOCKETS).to_string())?;
                set(pids_dir, "pids.max", &processes)?;
                if let Some(quota) = quota {
                    set(cpu_dir, "cpu.cfs_period_us", &PERIOD.to_string())?;
                    set(cpu_dir, "cpu.cfs_quota_us", &quota.to_string())?;
                }
            }
            _ => {
                set(&self.unified, "memory.max", &memory)?;
                if self.unified.join("memory.swap.max").exists() {
                    set(&self.unified, "memory.swap.max", "0")?;
                }
                set(&self.unified, "pids.max", &processes)?;
                if let Some(quota) = quota {
                    set(&self.unified, "cpu.max", &format!("{quota} {PERIOD}"))?;
                }
            }
        }
        self.procs = self.directories().map(open_procs).collect::<Result<_>>()?;
        Ok(())
    }

    /// Gives the group its share of the processors while others want them, too (a group that nobody gave one has 100), and bytes of
    /// memory that others' need does not take from it; `of_all` is the sum of what its siblings have so. Version 1 has for the latter
    /// only a soft limit, which is no guarantee.
    ///
    /// # Errors
    /// The kernel's.
    pub fn share(&self, weight: u32, reserved: u64, of_all: u64) -> Result<()> {
        if let [memory, _, cpu] = self.v1.as_slice() {
            // There a group has 1024.
            set(cpu, "cpu.shares", &(u64::from(weight) * 1024 / 100).max(2).to_string())?;
            return match reserved {
                0 => Ok(()),
                bytes => set(memory, "memory.soft_limit_in_bytes", &bytes.to_string()),
            };
        }
        set(&self.unified, "cpu.weight", &weight.to_string())?;
        if reserved == 0 {
            return Ok(());
        }
        // No group has more kept for it than those above it; the topmost has no such file.
        for above in self.unified.ancestors().skip(1).take_while(|path| path.join("memory.min").exists()) {
            if number(&above.join("memory.min"))?.is_some_and(|kept| kept < of_all) {
                set(above, "memory.min", &of_all.to_string())?;
            }
        }
        set(&self.unified, "memory.min", &reserved.to_string())
    }

    /// Has whatever will be in the group run on these processors alone (as in cpuset(7), "List format"), what it starts too. To be said before
    /// anything is in it: then nothing has ever run elsewhere, and nothing has to be moved.
    ///
    /// # Errors
    /// The kernel's: the host has no such processor, or no control over where groups run.
    pub fn keep_to(&mut self, processors: &str) -> Result<()> {
        let hierarchies = Hierarchies::find()?;
        if hierarchies.v1.is_none() {
            let below = |path: &&Path| path.starts_with(&hierarchies.unified);
            let above: Vec<_> = self.unified.ancestors().skip(1).take_while(below).collect();
            for parent in above.into_iter().rev() {
                set(parent, "cgroup.subtree_control", "+cpuset")?;
            }
            return set(&self.unified, "cpuset.cpus", processors);
        }
        let mount = hierarchies.cpuset.ok_or_else(|| {
            Error::invalid("find the control groups' cpuset controller", "the host has none")
        })?;
        let name = self.unified.strip_prefix(&hierarchies.unified).unwrap_or(&self.unified);
        let directory = mount.join(name);
        self.placed = Some(directory.clone());
        // There a new group may run nowhere until it is said.
        let mut path = mount;
        for part in name {
            let above = path.clone();
            path.push(part);
            if !path.exists() {
                fs::create_dir(&path).step(|| format!("make {}", path.display()))?;
            }
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let read = |path: &Path| fs::read_to_string(path.join(file)).unwrap_or_default();
                if read(&path).trim().is_empty() {
                    set(&path, file, read(&above).trim())?;
                }
            }
        }
        set(&directory, "cpuset.cpus", processors)?;
        self.procs.push(open_procs(&directory)?);
        Ok(())
    }

    /// `cgroup.procs` of every hierarchy: a process that writes `0` to each is in the group.
    pub fn procs(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.procs.iter().map(AsFd::as_fd)
    }

    /// A number that no other group has that this process has made, whatever its name.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// `cgroup.freeze` to write, `cgroup.events` to read, `cgroup.kill` to write and `cpu.stat` to read: who has them can stop what is in the
    /// group, let it run again and kill it, and know how long it has run, and nothing else.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reins(&self) -> Result<[File; 4]> {
        let open = |name: &str, write: bool| {
            let path = self.unified.join(name);
            OpenOptions::new()
                .read(!write)
                .write(write)
                .open(&path)
                .step(|| format!("open {}", path.display()))
        };
        let [freeze, events, kill] =
            [("cgroup.freeze", true), ("cgroup.events", false), ("cgroup.kill", true)]
                .map(|(name, write)| open(name, write));
        Ok([freeze?, events?, kill?, open("cpu.stat", false)?])
    }

    /// Tells everything in the group to stop, which takes its time; who has its [reins](Cgroup::reins) can let it run again.
    pub fn freeze(&self) -> Result<()> {
        set(&self.unified, "cgroup.freeze", "1")
    }

    /// Kills every process in the group, at once and whatever they do.
    pub fn kill(&self) -> Result<()> {
        set(&self.unified, "cgroup.kill", "1")
    }

    /// Whether the kernel has killed anybody in it because there was no memory left for the group.
    pub fn ran_out_of_memory(&self) -> bool {
        let (directory, file) = match self.v1.first() {
            Some(memory) => (memory, "memory.oom_control"),
            None => (&self.unified, "memory.events"),
        };
        let text = fs::read_to_string(directory.join(file)).unwrap_or_default();
        text.lines().filter_map(|line| line.strip_prefix("oom_kill ")).any(|count| count.trim() != "0")
    }

    /// Kills what is left in the group and removes it, and the directories above it that are then empty.
    /// Removing a group that was removed already is no error.
    pub fn remove(&mut self) -> Result<()> {
        self.remove_within(KILLED)
    }

    /// As [`Cgroup::remove`], waiting no longer than this for what was killed.
    ///
    /// # Errors
    /// As there; and where something is not gone in time.
    pub fn remove_within(&mut self, limit: Duration) -> Result<()> {
        self.procs.clear();
        if self.unified.exists() {
            self.kill()?;
        }
        for directory in self.directories() {
            vanish(directory, limit).step(|| format!("remove {}", directory.display()))?;
            let above = directory.ancestors().skip(1).take_while(|p| fs::remove_dir(p).is_ok());
            above.for_each(drop);
        }
        Ok(())
    }

    /// Its directory in the unified hierarchy.
    pub(crate) fn unified(&self) -> &Path {
        &self.unified
    }

    fn directories(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.unified).chain(&self.v1).chain(&self.placed).map(PathBuf::as_path)
    }
}

/// Where the unified hierarchy is mounted: who has the same directory there has the same groups.
///
/// # Errors
/// The host has no control groups.
pub fn top() -> Result<PathBuf> {
    Ok(Hierarchies::find()?.unified)
}

/// How many bytes may wait in the sockets of a group that may have this much memory: within it, or on a hybrid host on top of it.
///
/// # Errors
/// The host has no control groups.
pub fn sockets(memory: u64) -> Result<u64> {
    Ok(if Hierarchies::find()?.v1.is_some() { memory / SOCKETS } else { memory })
}

/// What a group of processes uses, and may use; `None` where there is no limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The group's name: a relative path.
    pub group: String,
    /// Bytes of memory.
    pub memory: (u64, Option<u64>),
    /// Processes and threads.
    pub processes: (u64, Option<u64>),
}

impl Usage {
    /// Of the group that this process is in.
    ///
    /// # Errors
    /// It is gone, or a file of the group cannot be read.
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/cgroup");
        let groups = fs::read_to_string(&path).step(|| format!("read {path}"))?;
        let group = |controller: &str| {
            groups.lines().find_map(|line| {
                // «4:memory:/levee/…», and «0::/levee/…» for the unified one.
                let mut parts = line.splitn(3, ':').skip(1);
                let is_it = parts.next()?.split(',').any(|part| part == controller);
                is_it.then(|| parts.next().map(|name| name.trim_start_matches('/').to_owned()))?
            })
        };
        let none = || Error::invalid(format!("find the control group of {pid}"), "it has none");
        let hierarchies = Hierarchies::find()?;
        let (memory, pids, group) = match &hierarchies.v1 {
            Some([memory, pids, _]) => {
                let name = group("memory").ok_or_else(none)?;
                let within = pids.join(group("pids").ok_or_else(none)?);
                let memory = memory.join(&name);
                ((memory.join("memory.usage_in_bytes"), memory.join("memory.limit_in_bytes")), within, name)
            }
            None => {
                let name = group("").ok_or_else(none)?;
                let at = hierarchies.unified.join(&name);
                ((at.join("memory.current"), at.join("memory.max")), at, name)
            }
        };
        let both = |(now, most): (PathBuf, PathBuf)| Ok((number(&now)?.unwrap_or(0), number(&most)?));
        let pids = (pids.join("pids.current"), pids.join("pids.max"));
        Ok(Self { group, memory: both(memory)?, processes: both(pids)? })
    }
}

/// Processor time that a group of processes has used since it was made, by those also that have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processor {
    /// The group's name in the unified hierarchy: a relative path.
    pub group: String,
    /// Microseconds in programs.
    pub user: u64,
    /// Microseconds in the kernel, for them.
    pub system: u64,
}

impl Processor {
    /// Of the group that this process is in. The unified hierarchy counts it with or without a controller (cgroup-v2, "CPU Interface
    /// Files").
    ///
    /// # Errors
    /// It is gone, or a file of the group cannot be read or says nothing of it, as that of the topmost group of a hybrid host.
    pub fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/cgroup");
        let groups = fs::read_to_string(&path).step(|| format!("read {path}"))?;
        let group = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default().to_owned();
        let path = Hierarchies::find()?.unified.join(&group).join("cpu.stat");
        let text = fs::read_to_string(&path).step(|| format!("read {}", path.display()))?;
        let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        match (of("user_usec "), of("system_usec ")) {
            (Some(user), Some(system)) => Ok(Self { group, user, system }),
            _ => {
                Err(Error::invalid(format!("read {}", path.display()), "it has no user_usec and system_usec"))
            }
        }
    }
}

/// The number in a file; none where it is `max`.
fn number(path: &Path) -> Result<Option<u64>> {
    let text = fs::read_to_string(path).step(|| format!("read {}", path.display()))?;
    // A limit that v1 does not have is one of about 2^63.
    Ok(text.trim().parse().ok().filter(|value| *value < 1 << 62))
}

impl Hierarchies {
    fn find() -> Result<Self> {
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").step(|| "read /proc/self/mountinfo".into())?;
        let available =
            |unified: &Path| fs::read_to_string(unified.join("cgroup.controllers")).unwrap_or_default();
        Self::parse(&mounts, available)
    }

    fn parse(mountinfo: &str, available: impl Fn(&Path) -> String) -> Result<Self> {
        let missing = |what: &str| {
            Error::invalid("find the control groups", format!("the host has no {what} hierarchy mounted"))
        };
        // «36 35 98:0 /root /mount/point options - type source super-options»
        let mounts: Vec<(&str, &str, &str)> = mountinfo
            .lines()
            .filter_map(|line| {
                let (mount, fs) = line.split_once(" - ")?;
                let mut fs = fs.split(' ');
                Some((mount.split(' ').nth(4)?, fs.next()?, fs.nth(1)?))
            })
            .collect();
        let unified = mounts
            .iter()
            .find(|(_, kind, _)| *kind == "cgroup2")
            .map(|(point, ..)| PathBuf::from(point))
            .ok_or_else(|| missing("unified (cgroup2)"))?;
        let controllers = available(&unified);
        if CONTROLLERS.iter().all(|c| controllers.split_whitespace().any(|a| a == *c)) {
            return Ok(Self { unified, v1: None, cpuset: None });
        }
        let v1 = |controller: &str| {
            mounts
                .iter()
                .find(|(_, kind, options)| *kind == "cgroup" && options.split(',').any(|o| o == controller))
                .map(|(point, ..)| PathBuf::from(point))
                .ok_or_else(|| missing(controller))
        };
        let [memory, pids, cpu] = CONTROLLERS;
        let cpuset = v1("cpuset").ok();
        Ok(Self { unified, v1: Some([v1(memory)?, v1(pids)?, v1(cpu)?]), cpuset })
    }
}

/// Removes a group's directory if it is there, waiting for at most `limit` for the processes in it to be gone.
fn vanish(directory: &Path, limit: Duration) -> std::io::Result<()> {
    let until = Instant::now() + limit;
    loop {
        match fs::remove_dir(directory) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(e) => return Err(e),
        }
    }
}

fn open_procs(directory: &Path) -> Result<File> {
    let path = directory.join("cgroup.procs");
    OpenOptions::new().write(true).open(&path).step(|| format!("open {}", path.display()))
}

fn set(directory: &Path, file: &str, value: &str) -> Result<()> {
    let path = directory.join(file);
    fs::write(&path, value).step(|| format!("write {value} to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unified_host_needs_no_v1_and_a_hybrid_one_takes_its_limits_from_v1() {
        let unified = "29 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let all = |_: &Path| "cpuset cpu io memory pids".to_owned();
        let found = Hierarchies::parse(unified, all).unwrap();
        assert_eq!(found, Hierarchies { unified: "/sys/fs/cgroup".into(), v1: None, cpuset: None });

        let hybrid = "30 24 0:27 / /cg/unified rw - cgroup2 cgroup2 rw\n\
            31 24 0:28 / /cg/memory rw - cgroup cgroup rw,memory\n\
            32 24 0:29 / /cg/pids rw shared:3 - cgroup cgroup rw,pids\n\
            33 24 0:30 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        let found = Hierarchies::parse(hybrid, |_| String::new()).unwrap();
        assert_eq!(found.unified, Path::new("/cg/unified"));
        assert_eq!(
            found.v1.unwrap().map(|p| p.display().to_string()),
            ["/cg/memory", "/cg/pids", "/cg/cpu,cpuacct"]
        );
    }

    #[test]
    fn a_host_without_a_needed_controller_is_an_error_that_names_it() {
        let hybrid = "30 24 0:27 / /cg/unified rw - cgroup2 cgroup2 rw\n\
            31 24 0:28 / /cg/memory rw - cgroup cgroup rw,memory\n";
        let error = Hierarchies::parse(hybrid, |_| String::new()).unwrap_err();
        assert!(error.to_string().contains("pids"), "{error}");
        assert!(Hierarchies::parse("", |_| String::new()).unwrap_err().to_string().contains("cgroup2"));
    }
}
