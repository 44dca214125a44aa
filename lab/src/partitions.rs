//! Partitions of a running server, each with a program of the laboratory's in it: under the services' uid and filter, in a control group, files
//! and a network of its own. The laboratory reaches the programs over the loopback of that network, which it enters from outside.

use crate::compartment::{Server, head};
use crate::netns::Namespace;
use crate::operate::{text, wait_for};
use crate::processes::{descendants, name, processes};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::path::PathBuf;

/// The partitions' label.
pub(crate) const LABEL: &str = "LOW";
/// Whose the other slots are, where there are frames; nothing runs at it.
const OTHER: &str = "HIGH";
/// The share that a partition has where nothing is said.
pub(crate) const USUAL: u32 = 100;
/// Between two slots.
const MARGIN: &str = "500us";

/// A partition, and what runs in it.
#[derive(Clone, Debug)]
pub(crate) struct Partition {
    pub(crate) name: &'static str,
    /// The program's path, then its arguments.
    pub(crate) command: Vec<String>,
    /// Packages of the host that it wants besides.
    pub(crate) software: Vec<String>,
    /// Its share of the processors beside others'.
    pub(crate) weight: u32,
}

/// A site with these partitions at one label, and these tables besides. Where there are frames, the label and another one have slots of
/// so many milliseconds in turn.
fn site(partitions: &[Partition], tables: &str, slot: Option<u32>) -> String {
    let mut out = head(&[LABEL, OTHER]);
    if let Some(slot) = slot {
        out.push_str(&format!("[frames]\nmargin = \"{MARGIN}\"\n\n"));
        for label in [LABEL, OTHER] {
            out.push_str(&format!("[[frames.slot]]\nlabels = [\"{label}\"]\ntime = \"{slot}ms\"\n\n"));
        }
    }
    for Partition { name, command, software, weight } in partitions {
        out.push_str(&format!(
            "[[partition]]\nname = \"{name}\"\nlabel = \"{LABEL}\"\ncommand = {command:?}\ndisk = \"32M\"\nsoftware = {software:?}\nweight = {weight}\n\n"
        ));
    }
    out + tables
}

/// A running server with partitions. Fields drop in order.
#[derive(Debug)]
pub(crate) struct Partitions {
    has_frames: bool,
    server: Server,
    _namespace: Namespace,
}

impl Partitions {
    /// Brings a server up in this namespace. `part` tells it from another of the same run.
    ///
    /// # Errors
    /// The step that failed; what was made until then is removed.
    pub(crate) fn start(
        part: &str,
        namespace: Namespace,
        partitions: &[Partition],
        tables: &str,
        slot: Option<u32>,
    ) -> io::Result<Partitions> {
        let server = Server::start(part, &namespace, &site(partitions, tables, slot))?;
        Ok(Partitions { has_frames: slot.is_some(), server, _namespace: namespace })
    }

    /// The network of a partition, once it runs.
    ///
    /// # Errors
    /// When it does not in time.
    pub(crate) fn network(&self, name: &str) -> io::Result<PathBuf> {
        wait_for(&format!("the partition {name}"), || {
            let said = self.server.up.status().ok()?;
            let all = said.get("partitions")?.as_array()?;
            let it = all.iter().find(|p| p.get("name").and_then(|n| n.as_str()) == Some(name))?;
            let init = it.get("init")?.as_u64().filter(|pid| *pid > 0)?;
            Some(PathBuf::from(format!("/proc/{init}/ns/net")))
        })
    }

    /// What keeps its frames, if it has any: it runs from now on.
    ///
    /// # Errors
    /// When nothing keeps them.
    pub(crate) fn go(&self) -> io::Result<Option<u32>> {
        if !self.has_frames {
            return Ok(None);
        }
        let all = descendants(&processes(), &format!("{}/", text(&self.server.directory.0)));
        let keeper = all.into_iter().find(|p| name(*p).as_deref() == Some("levee-frames"));
        let keeper = keeper.ok_or_else(|| io::Error::other("nothing keeps the frames"))?;
        tell(keeper, Signal::CONT)?;
        Ok(Some(keeper))
    }

    /// Has what keeps its frames stand still, so that it takes nothing from others' trials.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn rest(&self, keeper: Option<u32>) -> io::Result<()> {
        keeper.map_or(Ok(()), |pid| tell(pid, Signal::STOP))
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        // Or the server would wait for it.
        if let Err(e) = self.go() {
            crate::said::warning(&e);
        }
    }
}

fn tell(pid: u32, signal: Signal) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    Ok(kill_process(pid.ok_or_else(|| io::Error::other("no such process"))?, signal)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_frames_only_where_they_are_asked_for() {
        let one =
            Partition { name: "one", command: vec!["/bin/true".into()], software: Vec::new(), weight: USUAL };
        let plain = site(std::slice::from_ref(&one), "", None);
        assert!(plain.contains("name = \"one\"") && !plain.contains("[frames]"), "{plain}");
        let framed = site(&[one], "", Some(5));
        assert_eq!(framed.matches("time = \"5ms\"").count(), 2, "{framed}");
    }
}
