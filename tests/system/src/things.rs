//! What a process is born with and has, to see what two have in common.

use crate::host::Process;
use crate::text;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

fn read(pid: u32, file: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a process has, each as what it is and where: open files, files of which it has pages, directories, namespaces, mounts, control
/// groups, its process group and session, uids and gids.
pub fn things(process: &Process) -> BTreeMap<String, Vec<String>> {
    let mut things: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut add = |thing: String, place: String| things.entry(thing).or_default().push(place);
    let pid = process.pid;
    let place = |what: &str| format!("{what} of {} {pid}", process.name);
    let link =
        |path: &str| fs::read_link(format!("/proc/{pid}/{path}")).map(|l| text(&l)).unwrap_or_default();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let number = entry.file_name().to_string_lossy().into_owned();
        // Of a file that has no name any more as well.
        if let Ok(seen) = fs::metadata(entry.path()) {
            let name = link(&format!("fd/{number}"));
            let name = if name.starts_with('/') || name.starts_with("anon") { name } else { String::new() };
            add(format!("inode {}:{} {name}", seen.dev(), seen.ino()), place(&format!("fd {number}")));
        }
    }
    for line in read(pid, "maps").lines() {
        // «7f01-7f02 r-xp 00000000 08:01 1234    /usr/lib/libc.so.6»: what is of no file has no inode.
        let mut fields = line.split_whitespace().skip(3);
        let (Some(device), Some(inode)) = (fields.next(), fields.next().filter(|inode| *inode != "0")) else {
            continue;
        };
        add(format!("page {device}:{inode} {}", fields.next().unwrap_or_default()), place("mapped"));
    }
    for what in ["cwd", "root"] {
        if let Ok(seen) = fs::metadata(format!("/proc/{pid}/{what}")) {
            add(format!("directory {what} {}:{}", seen.dev(), seen.ino()), place(what));
        }
    }
    for kind in ["mnt", "pid", "pid_for_children", "net", "ipc", "uts", "cgroup", "user", "time"] {
        add(format!("namespace {}", link(&format!("ns/{kind}")).replace('[', " ")), place(kind));
    }
    for line in read(pid, "mountinfo").lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        add(format!("mount {}", fields[2]), place(fields[4]));
    }
    for line in read(pid, "cgroup").lines() {
        // «4:memory:/levee/…»; in hierarchies that limit nothing of ours, everything is at the top.
        let (hierarchy, path) = line.rsplit_once(':').expect("a hierarchy and a path");
        let ours = hierarchy.starts_with("0:")
            || ["memory", "pids", "cpu"].iter().any(|c| hierarchy.split([':', ',']).any(|part| part == *c));
        if ours {
            add(format!("control group {hierarchy} {path}"), place("cgroup"));
        }
    }
    let stat = read(pid, "stat");
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    add(format!("process group {}", fields[2]), place("group"));
    add(format!("session {}", fields[3]), place("session"));
    // Keyrings of a user, counts of a user's processes, files and pipes.
    for uid in process.status("Uid").split_whitespace() {
        add(format!("uid {uid}"), place("uid"));
    }
    for gid in process.status("Gid").split_whitespace() {
        add(format!("gid {gid}"), place("gid"));
    }
    things
}

/// What a program of this crate says of these lines.
#[track_caller]
pub fn told(script: &str, lines: String) -> String {
    let mut child = Command::new("python3")
        .arg(format!("{}/src/{script}", env!("CARGO_MANIFEST_DIR")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start python3");
    let mut input = child.stdin.take().expect("its input");
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let out = child.wait_with_output().expect("its output");
    writer.join().expect("the writer").expect("all lines are asked about");
    assert!(out.status.success());
    String::from_utf8_lossy(&out.stdout).into_owned()
}
