//! Messages by MPI between two hosts (the labelled study's rows `mpi-…`): Debian's MPICH, one process in the network at each end of an arm's link.
//! MPICH speaks TCP between them; left to itself it would find that both are on one machine, and use its memory.

use super::Measured;
use crate::host::processors;
use crate::netns::tool;
use crate::operate::{Removed, text};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io, process};

const PROGRAM: &str = include_str!("../../mpi/ring.c");
/// Of a shell, before what it becomes: MPICH's library looks for a network's devices in /sys, which shows those of whoever mounted it.
const OWN: &str = "mount -t sysfs none /sys && exec \"$@\"";
/// What rows of this kind begin with.
pub(super) const PREFIX: &str = "mpi-";

/// One end of a link: its network, address and device, whose name is the same at both ends.
pub(super) struct End {
    pub(super) netns: PathBuf,
    pub(super) at: Ipv4Addr,
    pub(super) device: &'static str,
}

/// The program, built once.
pub(super) struct Mpi {
    directory: Removed,
}

impl Mpi {
    /// Builds it.
    ///
    /// # Errors
    /// Without MPICH and its compiler.
    pub(super) fn build() -> io::Result<Mpi> {
        let directory = Removed(std::env::temp_dir().join(format!("levlab{}mpi", process::id())));
        fs::create_dir(&directory.0)?;
        let mpi = Mpi { directory };
        fs::write(mpi.at("ring.c"), PROGRAM)?;
        tool("mpicc.mpich", &["-O2", "-Wall", "-Wextra", "-o", &mpi.at("ring"), &mpi.at("ring.c")])?;
        Ok(mpi)
    }

    fn at(&self, name: &str) -> String {
        text(&self.directory.0.join(name))
    }

    /// What mpirun calls in ssh's place, `[OPTION…] HOST COMMAND…`: the command in the host's network, on its processor.
    fn launcher(&self, ends: &[End; 2]) -> io::Result<String> {
        let path = self.at("launch");
        let [near, far] = ends.each_ref().map(|end| text(&end.netns));
        let script = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1; shift\ncase $host in\n\
             {}) net={near} cpu=0 ;;\n{}) net={far} cpu={} ;;\n*) exit 1 ;;\nesac\n\
             exec nsenter --net=\"$net\" unshare -m sh -c '{OWN}' sh taskset -c \"$cpu\" sh -c \"$*\"\n",
            ends[0].at,
            ends[1].at,
            processors() - 1
        );
        fs::write(&path, script)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path)
    }

    /// One trial of `mpi-WHAT@OCTETS`: seconds of a round, with packets and octets at the near end's device.
    ///
    /// # Errors
    /// When the two do not come together.
    pub(super) fn measure(&self, ends: &[End; 2], row: &str, seconds: f64) -> io::Result<Measured> {
        let (what, octets) = row.trim_start_matches(PREFIX).split_once('@').unwrap_or(("ring", "4"));
        let launcher = self.launcher(ends)?;
        let [near, far] = ends;
        let (enter, here) = (format!("--net={}", text(&near.netns)), near.at.to_string());
        let hosts = format!("{here},{}", far.at);
        let (program, time) = (self.at("ring"), (seconds * 1e3).ceil().to_string());
        // two that wait for each other without rest, on a host that is busy, may not come together at all
        let patience = (20.0 + 10.0 * seconds).to_string();
        let start =
            [&*patience, "nsenter", &enter, "unshare", "-m", "sh", "-c", OWN, "sh", "taskset", "-c", "0"];
        let mpirun = ["mpirun.mpich", "-launcher", "ssh", "-launcher-exec", &launcher];
        let between = ["-localhost", &here, "-iface", near.device, "-genv", "UCX_TLS", "tcp,self"];
        let over = ["-genv", "UCX_NET_DEVICES", near.device, "-hosts", &hosts, "-n", "2"];
        let all = [&start[..], &mpirun, &between, &over, &[&program, what, octets, &time]].concat();
        let before = passed(near)?;
        let said = tool("timeout", &all)?;
        let after = passed(near)?;
        // what its library warns of stands before it
        let last = said.lines().last().unwrap_or_default();
        let mut words = last.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(ns)), Some(Ok(rounds))) = (words.next(), words.next()) else {
            return Err(io::Error::other(format!("the ring said {said:?}")));
        };
        let [packets, octets] = [after[0] - before[0], after[1] - before[1]];
        let counted = [("packets a round", packets / rounds), ("octets a packet", octets / packets.max(1.0))];
        let counted: BTreeMap<String, f64> = counted.map(|(name, v)| (name.to_owned(), v)).into();
        Ok(Measured { seconds: ns / 1e9, preempted: None, counted })
    }
}

/// What a run of the ring's packets carry on the link: so many with an option of CIPSO, and so many without. `link` is the network of its own
/// interface; all there are to carry one, or none.
///
/// # Errors
/// When the link is not as its arm says.
pub(super) fn seen(
    mpi: &Mpi,
    ends: &[End; 2],
    link: &Path,
    is_labelled: bool,
) -> io::Result<[(String, f64); 2]> {
    let near = &ends[0];
    let at = format!("--net={}", text(link));
    let file = mpi.at("capture");
    let mut capture = Command::new("nsenter");
    // It writes what it has when it ends, and says when it listens.
    capture.args([
        &at,
        "tcpdump",
        "-i",
        near.device,
        "-Z",
        "root",
        "--immediate-mode",
        "-U",
        "-s",
        "80",
        "-w",
        &file,
        "tcp",
    ]);
    let mut capture = capture.stderr(Stdio::piped()).stdin(Stdio::null()).spawn()?;
    let mut said = String::new();
    if let Some(error) = capture.stderr.take() {
        BufReader::new(error).read_line(&mut said)?;
    }
    let ran = mpi.measure(ends, "mpi-ring@4", 0.001);
    if let Some(pid) = Pid::from_raw(capture.id().cast_signed()) {
        kill_process(pid, Signal::INT)?;
    }
    capture.wait()?;
    ran?;
    // IPv4 alone is spoken there. The option stands behind the header.
    let count = |filter: &str| -> io::Result<f64> {
        Ok(tool("tcpdump", &["-n", "-r", &file, filter])?.lines().count() as f64)
    };
    let (with, all) = (count("ip[0] & 15 > 5 and ip[20] = 134")?, count("ip")?);
    let is_so = all > 0.0 && with == if is_labelled { all } else { 0.0 };
    if !is_so {
        return Err(io::Error::other(format!("of {all} packets {with} carry a label; tcpdump: {said}")));
    }
    Ok([("packets with a label", with), ("packets without", all - with)]
        .map(|(name, n)| (name.to_owned(), n)))
}

/// Packets and octets that one end's device has passed, both ways.
pub(super) fn passed(end: &End) -> io::Result<[f64; 2]> {
    let net = format!("--net={}", text(&end.netns));
    let said = tool("nsenter", &[&net, "ip", "-s", "-j", "link", "show", "dev", end.device])?;
    let said: serde_json::Value = serde_json::from_str(&said)?;
    let number = |at: &str| said.pointer(at).and_then(serde_json::Value::as_f64);
    let both = |what: &str| {
        let ways = ["rx", "tx"].map(|way| number(&format!("/0/stats64/{way}/{what}")));
        ways[0].zip(ways[1]).map(|(a, b)| a + b)
    };
    let found = both("packets").zip(both("bytes")).map(|(p, o)| [p, o]);
    found.ok_or_else(|| io::Error::other("ip does not say what a device passed"))
}

/// A rule of a packet filter, gone when dropped.
pub(super) struct Opened {
    net: String,
    chain: &'static str,
    handle: String,
}

impl Drop for Opened {
    fn drop(&mut self) {
        let rule = ["nft", "delete", "rule", "inet", "levee", self.chain, "handle", &self.handle];
        if let Err(e) = tool("nsenter", &[&[self.net.as_str()], &rule[..]].concat()) {
            crate::said::warning(&e);
        }
    }
}

/// Lets everything pass at a device of a compartment's network, whose filter knows nothing of MPI's ports, for as long as the answer is kept:
/// no other row is measured with it.
///
/// # Errors
/// When `nft` refuses.
pub(super) fn open(netns: &Path, device: &str) -> io::Result<Vec<Opened>> {
    let net = format!("--net={}", text(netns));
    let one = |(chain, on): (&'static str, &str)| {
        let rule = ["nft", "-a", "-e", "insert", "rule", "inet", "levee", chain, on, device, "accept"];
        let said = tool("nsenter", &[&[net.as_str()], &rule[..]].concat())?;
        let handle = said.split("# handle ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let handle = handle.ok_or_else(|| io::Error::other(format!("nft does not name its rule: {said}")))?;
        Ok(Opened { net: net.clone(), chain, handle: handle.to_owned() })
    };
    [("input", "iifname"), ("output", "oifname")].into_iter().map(one).collect()
}
