//! What a client or server process does to itself before it measures: enter its namespace, its control
//! group, its processor. Done by the process itself, while it has one thread, so that the runner forks
//! nothing and nothing here is unsafe.

use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;

fn only(cpu: usize) -> io::Result<CpuSet> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::other(format!("no processor {cpu}")));
    }
    set.set(cpu);
    Ok(set)
}

/// Keeps this thread on one processor.
///
/// # Errors
/// When there is no such processor, or the kernel refuses.
pub(crate) fn stay_on(cpu: usize) -> io::Result<()> {
    Ok(sched_setaffinity(None, &only(cpu)?)?)
}

/// Keeps running processes, every thread of each and what they start from now on, on one processor. One that has ended meanwhile
/// is left out.
///
/// # Errors
/// When there is no such processor, or the kernel refuses.
pub fn keep_on(pids: impl Iterator<Item = u32>, cpu: usize) -> io::Result<()> {
    keep_within(pids, &only(cpu)?)
}

/// The same on any of these processors.
///
/// # Errors
/// As for [`keep_on`].
pub fn keep_within(pids: impl Iterator<Item = u32>, set: &CpuSet) -> io::Result<()> {
    for pid in pids {
        for t in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let name = t.file_name();
            let Some(tid) = name.to_str().and_then(|n| n.parse().ok()).and_then(Pid::from_raw) else {
                continue;
            };
            match sched_setaffinity(Some(tid), set) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    Ok(())
}

/// Where a process of the laboratory runs.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub struct Role {
    /// Network namespace to enter (a file, as under /run/netns)
    #[arg(long)]
    pub netns: Option<PathBuf>,
    /// Control group (cgroup v2 directory) to enter, for its processor time
    #[arg(long)]
    pub cgroup: Option<PathBuf>,
    /// Processor to stay on
    #[arg(long)]
    pub cpu: Option<usize>,
    /// End when the process that started this one ends
    #[arg(long)]
    pub with_parent: bool,
}

impl Role {
    /// Takes the role. Call it before any thread is made.
    ///
    /// # Errors
    /// Which step failed, and on what.
    pub fn take(&self) -> io::Result<()> {
        let named = |what: String| move |e: io::Error| io::Error::new(e.kind(), format!("{what}: {e}"));
        if self.with_parent {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        }
        if let Some(dir) = &self.cgroup {
            fs::write(dir.join("cgroup.procs"), "0")
                .map_err(named(format!("entering control group {}", dir.display())))?;
        }
        if let Some(path) = &self.netns {
            let what = || format!("entering network namespace {}", path.display());
            let ns = File::open(path).map_err(named(what()))?;
            move_into_link_name_space(ns.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|e| named(what())(e.into()))?;
        }
        if let Some(cpu) = self.cpu {
            sched_setaffinity(None, &only(cpu)?)
                .map_err(|e| named(format!("staying on processor {cpu}"))(e.into()))?;
        }
        Ok(())
    }

    /// The same as arguments for a command line.
    pub fn args(&self) -> Vec<String> {
        let mut a = Vec::new();
        if let Some(n) = &self.netns {
            a.extend(["--netns".into(), n.display().to_string()]);
        }
        if let Some(c) = &self.cgroup {
            a.extend(["--cgroup".into(), c.display().to_string()]);
        }
        if let Some(c) = self.cpu {
            a.extend(["--cpu".into(), c.to_string()]);
        }
        if self.with_parent {
            a.push("--with-parent".into());
        }
        a
    }
}
