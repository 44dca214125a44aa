//! Processes of this host, by what /proc says of them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::{fs, process};

/// A process's arguments.
pub(crate) fn words(pid: u32) -> Vec<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|b| *b == 0).map(|w| String::from_utf8_lossy(w).into_owned()).collect()
}

/// Processes of `program` in the same network namespace as process `other`, each with its arguments.
pub(crate) fn running(program: &Path, other: u32) -> Vec<(u32, Vec<String>)> {
    let ns = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let here = ns(other);
    processes()
        .into_keys()
        .filter(|pid| here.is_some() && ns(*pid) == here)
        .map(|pid| (pid, words(pid)))
        .filter(|(_, w)| w.first().is_some_and(|w| Path::new(OsStr::new(w)) == program))
        .collect()
}

/// Every process with its parent.
pub(crate) fn processes() -> BTreeMap<u32, u32> {
    let mut out = BTreeMap::new();
    for e in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = e.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // pid (name) state ppid …: the name may hold anything, so count from its last parenthesis
        let parent = stat.rsplit_once(')').and_then(|(_, r)| r.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            out.insert(pid, parent);
        }
    }
    out
}

/// Processes whose command line has `mark` in it, and all that they started.
pub(crate) fn descendants(all: &BTreeMap<u32, u32>, mark: &str) -> Vec<u32> {
    let marked = |p: &u32| {
        let line = fs::read(format!("/proc/{p}/cmdline")).unwrap_or_default();
        *p != process::id() && String::from_utf8_lossy(&line).contains(mark)
    };
    below(all, all.keys().copied().filter(marked).collect())
}

/// These and all that they started.
pub(crate) fn below(all: &BTreeMap<u32, u32>, these: Vec<u32>) -> Vec<u32> {
    let mut ours = these;
    let mut i = 0;
    while let Some(p) = ours.get(i).copied() {
        let below: Vec<u32> =
            all.iter().filter(|(c, q)| **q == p && !ours.contains(c)).map(|(c, _)| *c).collect();
        ours.extend(below);
        i += 1;
    }
    ours
}

/// How often threads of a process have been given a processor so far, and had given it back: those that are there.
pub(crate) fn wakes(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("status")).ok())
        .flat_map(|status| {
            let switches = status.lines().filter(|line| line.contains("ctxt_switches:"));
            switches
                .filter_map(|line| line.rsplit(':').next()?.trim().parse::<u64>().ok())
                .collect::<Vec<_>>()
        })
        .sum()
}

/// A process's name.
pub(crate) fn name(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned())
}
