//! What a test sees of this host's processes, namespaces and mounts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

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

    /// The number of one of its namespaces, such as `net`.
    #[track_caller]
    pub fn namespace(&self, kind: &str) -> String {
        let link = fs::read_link(format!("/proc/{}/ns/{kind}", self.pid)).expect("a running process");
        link.to_string_lossy().into_owned()
    }

    /// Whether these bytes are anywhere in its memory.
    #[track_caller]
    pub fn remembers(&self, secret: &[u8]) -> bool {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).expect("a running process");
        let mut memory = fs::File::open(format!("/proc/{}/mem", self.pid)).expect("root reads memory");
        let mut searched = 0;
        for line in maps.lines() {
            let mut fields = line.split_whitespace();
            let (Some(range), Some(mode)) = (fields.next(), fields.next()) else { continue };
            let number = |text: &str| u64::from_str_radix(text, 16).expect("an address");
            let (start, end) = range.split_once('-').map(|(a, b)| (number(a), number(b))).expect("a range");
            let mut bytes = vec![0; usize::try_from(end - start).expect("memory that fits in memory")];
            // Parts of a mapping may be without memory, and some mappings cannot be read at all.
            let readable = mode.starts_with("rw") && memory.seek(SeekFrom::Start(start)).is_ok();
            if !readable || memory.read_exact(&mut bytes).is_err() {
                continue;
            }
            searched += bytes.len();
            if bytes.windows(secret.len()).any(|window| window == secret) {
                return true;
            }
        }
        assert!(searched > 100_000, "only {searched} bytes of {self:?} could be read");
        false
    }

    /// Kills it without warning.
    #[track_caller]
    pub fn kill(&self) {
        crate::sh("kill", &["-KILL", &self.pid.to_string()]).ok();
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

/// The child of `pid` with this name; there must be one.
#[track_caller]
pub fn child(pid: u32, name: &str) -> Process {
    let found = processes().into_iter().find(|process| process.parent == pid && process.name == name);
    found.unwrap_or_else(|| panic!("{pid} has no child {name}"))
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
    let mut found = Vec::new();
    let mut directories = vec![Path::new("/sys/fs/cgroup").to_owned()];
    let wanted = format!("/levee/{site}-");
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
