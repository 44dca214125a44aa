//! What a test sees of this host's processes, namespaces and mounts.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A process, told from a later one with the same number by when it started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its name, at most 15 bytes of it.
    pub name: String,
    parent: u32,
    started: u64,
}

impl Process {
    /// The process with this number, unless it has ended.
    pub fn find(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses, and may hold any byte itself.
        let (before, after) = stat.rsplit_once(')')?;
        let name = before.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = after.split_whitespace().collect();
        let parent = fields.get(1)?.parse().ok()?;
        let started = fields.get(19)?.parse().ok()?;
        (fields.first() != Some(&"Z")).then_some(Self { pid, name, parent, started })
    }

    /// Whether it still runs.
    pub fn runs(&self) -> bool {
        Self::find(self.pid).is_some_and(|now| now.started == self.started)
    }

    /// A line of its `/proc/PID/status`.
    #[track_caller]
    pub fn status(&self, key: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("a running process");
        let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {key} in its status")).trim().to_owned()
    }

    /// Whether it has a filter of system calls; one that has ended has none.
    pub fn is_filtered(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        status.lines().any(|line| line.starts_with("Seccomp:") && line.ends_with('2'))
    }

    /// How long it has had a processor; nothing of one that has ended.
    pub fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, after)| after).split_whitespace();
        // User's and system's, in hundredths of a second.
        let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 10)
    }

    /// How long its threads that are there have had a processor, in nanoseconds (more exact than [`Process::processor_time`], for what hardly runs), and how
    /// often they have gone to sleep; nothing of one that has ended.
    pub fn threads(&self) -> (u64, u64) {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).into_iter().flatten().flatten();
        let of = |file: PathBuf| fs::read_to_string(file).unwrap_or_default();
        let first =
            |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0);
        tasks.fold((0, 0), |(time, wakes), task| {
            let status = of(task.path().join("status"));
            let slept = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            (time + first(&of(task.path().join("schedstat"))), wakes + slept.map_or(0, first))
        })
    }

    /// The number of one of its namespaces, such as `net`.
    #[track_caller]
    pub fn namespace(&self, kind: &str) -> String {
        let link = fs::read_link(format!("/proc/{}/ns/{kind}", self.pid)).expect("a running process");
        link.to_string_lossy().into_owned()
    }

    /// What it can write to: each part's address and content.
    fn memory(&self) -> impl Iterator<Item = (u64, Vec<u8>)> + use<> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).expect("a running process");
        let memory = fs::File::open(format!("/proc/{}/mem", self.pid)).expect("root reads memory");
        let parts: Vec<(u64, u64)> = maps
            .lines()
            .filter_map(|line| {
                let mut fields = line.split_whitespace();
                let (range, mode) = (fields.next()?, fields.next()?);
                let number = |text: &str| u64::from_str_radix(text, 16).expect("an address");
                let (start, end) = range.split_once('-')?;
                mode.starts_with("rw").then(|| (number(start), number(end)))
            })
            .collect();
        parts.into_iter().filter_map(move |(start, end)| {
            let mut bytes = vec![0; usize::try_from(end - start).expect("memory that fits in memory")];
            // Parts of a mapping may be without memory, and some mappings cannot be read at all.
            memory.read_exact_at(&mut bytes, start).is_ok().then_some((start, bytes))
        })
    }

    /// Whether these bytes are anywhere in its memory.
    #[track_caller]
    pub fn remembers(&self, secret: &[u8]) -> bool {
        let mut searched = 0;
        for (_, bytes) in self.memory() {
            searched += bytes.len();
            if bytes.windows(secret.len()).any(|window| window == secret) {
                return true;
            }
        }
        assert!(searched > 100_000, "only {searched} bytes of {self:?} could be read");
        false
    }

    /// Overwrites these bytes wherever they are in its memory, as a fault in it might; how often they were.
    #[track_caller]
    pub fn overwrite(&self, old: &[u8], new: &[u8]) -> usize {
        assert_eq!(old.len(), new.len());
        let memory = fs::OpenOptions::new().write(true).open(format!("/proc/{}/mem", self.pid));
        let memory = memory.expect("root writes memory");
        let mut found = 0;
        for (start, bytes) in self.memory() {
            let places = bytes.windows(old.len()).enumerate().filter(|(_, window)| *window == old);
            for (place, _) in places {
                memory.write_all_at(new, start + place as u64).expect("memory that can be written");
                found += 1;
            }
        }
        found
    }

    /// Kills it without warning.
    #[track_caller]
    pub fn kill(&self) {
        self.signal("KILL");
    }

    /// Sends it a signal.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        crate::sh("kill", &[&format!("-{name}"), &self.pid.to_string()]).ok();
    }
}

/// Everything that runs on this host, as far as it can be seen from here.
pub fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("/proc");
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.filter_map(Process::find).collect()
}

/// The processes below `pid`, children's children included.
pub fn below(pid: u32) -> Vec<Process> {
    let all = processes();
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for child in all.iter().filter(|process| process.parent == parent) {
            parents.push(child.pid);
            found.push(child.clone());
        }
    }
    found
}

/// The children of `pid` with this name.
pub fn children(pid: u32, name: &str) -> Vec<Process> {
    processes().into_iter().filter(|process| process.parent == pid && process.name == name).collect()
}

/// A child of `pid` with this name; there must be one.
#[track_caller]
pub fn child(pid: u32, name: &str) -> Process {
    children(pid, name).pop().unwrap_or_else(|| panic!("{pid} has no child {name}"))
}

/// The namespaces of this kind that a process is in.
pub fn namespaces(kind: &str) -> BTreeSet<String> {
    let link = |process: Process| fs::read_link(format!("/proc/{}/ns/{kind}", process.pid)).ok();
    processes().into_iter().filter_map(link).map(|link| link.to_string_lossy().into_owned()).collect()
}

/// Mounts that this process sees and whose line has `word` in it.
pub fn mounts(word: &str) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    mounts.lines().filter(|line| line.contains(word)).map(ToOwned::to_owned).collect()
}

/// Control groups of a site: `levee/SITE-N`, where `N` is a warden's number on the host, and what is below.
pub fn cgroups(site: &str) -> Vec<String> {
    groups(&format!("levee/{site}-"))
}

/// Control groups whose path, below a hierarchy's top, begins so; in every hierarchy.
pub fn groups(beginning: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![Path::new("/sys/fs/cgroup").to_owned()];
    let wanted = format!("/{beginning}");
    while let Some(directory) = directories.pop() {
        // It may go away while it is read.
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let path = entry.path();
                if path.display().to_string().contains(&wanted) {
                    found.push(path.display().to_string());
                }
                directories.push(path);
            }
        }
    }
    found
}

/// Loop devices that hold a file below `directory`.
pub fn loops(directory: &Path) -> Vec<String> {
    let devices = fs::read_dir("/sys/block").expect("/sys/block").flatten();
    let file = |path: &Path| fs::read_to_string(path.join("loop/backing_file")).ok();
    let files = devices.filter_map(|device| file(&device.path()));
    files.filter(|file| Path::new(file.trim()).starts_with(directory)).collect()
}

/// The memory of these processes in KiB, what several share counted once (proportional set size). One that has just ended has none.
pub fn memory(processes: &[Process]) -> u64 {
    let rollup = |process: &Process| fs::read_to_string(format!("/proc/{}/smaps_rollup", process.pid)).ok();
    let part = |text: String| {
        text.lines()
            .find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next()?.parse::<u64>().ok())
    };
    processes.iter().filter_map(|process| part(rollup(process)?)).sum()
}

/// The group of a process below `levee/daemons`, if it is in one.
pub fn group(pid: u32) -> Option<String> {
    let lines = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let groups: Vec<&str> =
        lines.lines().filter_map(|line| line.split_once("/levee/daemons/")).map(|(_, g)| g).collect();
    assert!(groups.iter().all(|group| *group == groups[0]), "{lines}");
    groups.first().map(|group| (*group).to_owned())
}

/// Where such a group's memory is shown, and where it is limited.
#[track_caller]
pub fn group_memory(group: &str) -> (PathBuf, PathBuf) {
    let places =
        [("memory", "memory.usage_in_bytes", "memory.limit_in_bytes"), ("", "memory.current", "memory.max")];
    let of = |(controller, usage, limit): (&str, &str, &str)| {
        let at = PathBuf::from("/sys/fs/cgroup").join(controller).join("levee/daemons").join(group);
        (at.join(usage), at.join(limit))
    };
    places.map(of).into_iter().find(|(_, limit)| limit.exists()).expect("a limit on memory")
}

/// As [`processor_time`] says it: of those that run by their processor clocks (clock_getcpuclockid(3): ~pid << 3 | 2), of their ended children by proc_pid_stat(5).
const BELOW: &str = r#"
import glob, sys, time
parent, ended = {}, {}
for path in glob.glob("/proc/[0-9]*/stat"):
    try:
        fields = open(path).read().rsplit(")", 1)[1].split()
    except OSError:
        continue
    pid = int(path.split("/")[2])
    parent[pid], ended[pid] = int(fields[1]), (int(fields[13]) + int(fields[14])) / 100
def below(pid):
    while pid and pid != int(sys.argv[1]):
        pid = parent.get(pid, 0)
    return pid != 0
total = 0
for pid in filter(below, parent):
    try:
        total += time.clock_gettime(~pid << 3 | 2) + ended[pid]
    except OSError:
        pass
print(total)
"#;

/// Seconds of processor time that the kernel says a process and all below it have used, those that have ended included.
#[track_caller]
pub fn processor_time(pid: u32) -> f64 {
    let out = crate::sh("python3", &["-c", BELOW, &pid.to_string()]).ok();
    out.trim().parse().expect("seconds")
}
