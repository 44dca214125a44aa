//! Partitions of a running server, each with a program of the laboratory's in it: under the services' uid and filter, in a control group, files
//! and a network of its own. The laboratory reaches the programs over the loopback of that network, which it enters from outside.

use crate::compartment::{Server, head};
use crate::netns::Namespace;
use crate::processes::{descendants, name, processes};
use crate::site::{text, wait_for};
use std::io;
use std::path::PathBuf;

/// The partitions' label.
pub(crate) const LABEL: &str = "LOW";
/// Whose the other slots are, where there are frames; nothing runs at it.
const OTHER: &str = "HIGH";
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
    for Partition { name, command, software } in partitions {
        out.push_str(&format!(
            "[[partition]]\nname = \"{name}\"\nlabel = \"{LABEL}\"\ncommand = {command:?}\ndisk = \"32M\"\nsoftware = {software:?}\n\n"
        ));
    }
    out + tables
}

/// A running server with partitions. Fields drop in order.
#[derive(Debug)]
pub(crate) struct Partitions {
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
        Ok(Partitions { server, _namespace: namespace })
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

    /// What keeps its frames, if anything does.
    pub(crate) fn keeper(&self) -> Option<u32> {
        let all = descendants(&processes(), &format!("{}/", text(&self.server.directory.0)));
        all.into_iter().find(|p| name(*p).as_deref() == Some("levee-frames"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_frames_only_where_they_are_asked_for() {
        let one = Partition { name: "one", command: vec!["/bin/true".into()], software: Vec::new() };
        let plain = site(&[one.clone()], "", None);
        assert!(plain.contains("name = \"one\"") && !plain.contains("[frames]"), "{plain}");
        let framed = site(&[one], "", Some(5));
        assert_eq!(framed.matches("time = \"5ms\"").count(), 2, "{framed}");
    }
}
