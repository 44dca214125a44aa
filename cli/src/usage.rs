//! What each of levee's own processes uses of what it may: asked of the kernel, by the warden's children.

use levee_ipc::warden::CompartmentStatus;
use levee_policy::LabelName;
use levee_sys::cgroup::Usage;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// A process of levee's, with what is in its control group.
#[derive(Debug, Serialize)]
pub struct Daemon {
    /// As its log calls it.
    pub name: String,
    /// Its label, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Its number on this host.
    pub pid: u32,
    /// Bytes.
    pub memory: u64,
    /// Bytes; beyond it the process is killed, and started again.
    pub memory_limit: Option<u64>,
    /// Processes and threads.
    pub processes: u64,
    /// Beyond it none is started.
    pub process_limit: Option<u64>,
}

/// Those of the server that runs in this directory, in the order of their names.
///
/// # Errors
/// Why its warden is not found. A process that ends meanwhile is left out.
pub fn daemons(run: &Path, compartments: &[CompartmentStatus]) -> Result<Vec<Daemon>, String> {
    let numbers = children(warden(run)?)?;
    let mut all: Vec<Daemon> = numbers.into_iter().filter_map(|pid| daemon(pid, compartments)).collect();
    all.sort_by(|a, b| (&a.label, &a.name, a.pid).cmp(&(&b.label, &b.name, b.pid)));
    Ok(all)
}

/// The warden of the server that runs in this directory.
///
/// # Errors
/// Why it is not found.
pub fn warden(run: &Path) -> Result<u32, String> {
    let lock = run.join("lock");
    let text = fs::read_to_string(&lock).map_err(|e| format!("{}: {e}", lock.display()))?;
    text.trim().parse().map_err(|_| format!("{}: it names no process", lock.display()))
}

/// The processes that a warden has started and not yet heard the end of.
///
/// # Errors
/// It runs no more.
pub fn children(warden: u32) -> Result<Vec<u32>, String> {
    let path = format!("/proc/{warden}/task/{warden}/children");
    let children = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    Ok(children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

/// What a control group of levee's own processes says of who is in it: the process's name, and its label if it has one.
pub fn whose<'a>(
    group: &'a str,
    compartments: &'a [CompartmentStatus],
) -> Option<(&'a str, Option<&'a LabelName>)> {
    // «levee/daemons/vault-80001007»: the uid's fourth digit from the right counts what has a label, 1 to 7, and the last three are its slot.
    let (name, uid) = group.strip_prefix("levee/daemons/")?.rsplit_once('-')?;
    let uid = u32::from_str_radix(uid, 16).ok()?;
    let has_label = (0x1000..0x8000).contains(&(uid & 0xf000));
    let label = compartments.iter().find(|c| has_label && u32::from(c.slot) == uid & 0xfff);
    Some((name, label.map(|compartment| &compartment.label)))
}

fn daemon(pid: u32, compartments: &[CompartmentStatus]) -> Option<Daemon> {
    let usage = Usage::of(pid).ok()?;
    let (name, label) = whose(&usage.group, compartments)?;
    Some(Daemon {
        name: name.to_owned(),
        label: label.map(ToString::to_string),
        pid,
        memory: usage.memory.0,
        memory_limit: usage.memory.1,
        processes: usage.processes.0,
        process_limit: usage.processes.1,
    })
}
