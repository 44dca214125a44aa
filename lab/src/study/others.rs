//! What others use to keep programs apart: bubblewrap, systemd-nspawn and podman, as Debian has them, with the host's programs read-only in each.

use crate::netns::tool;
use crate::operate::{Removed, text};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, id};
use std::{fs, io};

/// What podman is to have start its containers, where the host has it.
const RUNC: &str = "/usr/sbin/runc";

/// What is to be removed behind a place.
pub(super) enum Left {
    Root(#[expect(dead_code, reason = "it is dropped")] Removed),
    Podman(#[expect(dead_code, reason = "it is dropped")] Podman),
}

/// Bubblewrap as its manual has it for an untrusted program: every namespace, the host's programs read-only, a new uid.
pub(super) fn bubblewrap(program: &Path) -> Command {
    let mut c = Command::new("bwrap");
    c.args(["--unshare-all", "--die-with-parent", "--new-session", "--uid", "1000", "--gid", "1000"]);
    c.args(["--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"]);
    c.args(["--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]);
    c.arg(program).arg("jobs");
    c
}

/// A root with nothing in it but places for mounts.
fn root(number: usize) -> io::Result<Removed> {
    let path = std::env::temp_dir().join(format!("levlab{}root{number}", id()));
    // Not where somebody else has made one of this name, with links in it.
    fs::create_dir(&path)?;
    let root = Removed(path);
    for dir in ["usr", "etc", "tmp", "proc", "sys", "dev", "run", "root", "var"] {
        fs::create_dir(root.0.join(dir))?;
    }
    for dir in ["bin", "lib", "lib64", "sbin"] {
        std::os::unix::fs::symlink(format!("usr/{dir}"), root.0.join(dir))?;
    }
    Ok(root)
}

/// systemd-nspawn with users of its own, no network but the loopback, and the host's programs read-only.
pub(super) fn nspawn(program: &Path, number: usize) -> io::Result<(Command, Removed)> {
    let root = root(number)?;
    // it refuses a directory that does not say which system it is
    fs::write(root.0.join("etc/os-release"), "ID=laboratory\n")?;
    let mut c = Command::new("systemd-nspawn");
    c.args(["--quiet", "--register=no", "--keep-unit", "--private-network", "--as-pid2", "--pipe", "-U"]);
    c.args(["--bind-ro=/usr", "--directory", &text(&root.0)]).arg(program).arg("jobs");
    Ok((c, root))
}

/// What podman keeps of a container, and its control groups.
pub(super) struct Podman {
    store: Removed,
    _root: Removed,
    group: String,
}

impl Podman {
    /// podman with a store of its own, so that nothing is in the host's.
    fn command(&self) -> Command {
        let mut c = Command::new("podman");
        c.args(["--cgroup-manager", "cgroupfs", "--events-backend", "none"]);
        // crun, which podman takes first, refuses a host with control groups of both versions.
        if Path::new(RUNC).exists() {
            c.args(["--runtime", RUNC]);
        }
        for (option, directory) in [("--root", "store"), ("--runroot", "run"), ("--tmpdir", "state")] {
            c.arg(option).arg(self.store.0.join(directory));
        }
        c
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        let ended =
            self.command().args(["rm", "--all", "--force", "--time", "0"]).stdout(Stdio::null()).status();
        if !ended.is_ok_and(|status| status.success()) {
            crate::said::warning(&"podman did not remove its container");
        }
        // Of cgroup v1 one for each controller.
        let mounted =
            fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        for above in mounted.chain([PathBuf::from("/sys/fs/cgroup")]) {
            let group = above.join(&self.group);
            let within = fs::read_dir(&group).into_iter().flatten().flatten().map(|entry| entry.path());
            for directory in within.filter(|path| path.is_dir()).chain([group.clone()]) {
                // One that is not there needs no removing.
                let _ = fs::remove_dir(directory);
            }
        }
    }
}

/// podman as its manual has it: its own filter of system calls, capabilities and control groups, a read-only root, no network but the loopback.
pub(super) fn podman(program: &Path, number: usize) -> io::Result<(Command, Podman)> {
    tool("which", &["podman"]).map_err(|_| io::Error::other("podman is not installed"))?;
    let (root, name) = (root(number)?, format!("levlab{}podman{number}", id()));
    let rootfs = text(&root.0);
    fs::create_dir(std::env::temp_dir().join(&name))?;
    let podman = Podman { store: Removed(std::env::temp_dir().join(&name)), _root: root, group: name };
    let mut c = podman.command();
    c.args(["run", "--rm", "--interactive", "--log-driver", "none", "--network", "none", "--read-only"]);
    // Its own are more than a host may have to give.
    c.args(["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"]);
    c.args(["--cgroup-parent", &format!("/{}", podman.group), "--volume", "/usr:/usr:ro"]);
    c.args(["--rootfs", &rootfs]).arg(program).arg("jobs");
    Ok((c, podman))
}
