//! What a compartment is to be.

use std::net::IpAddr;
use std::path::PathBuf;

use levee_policy::site::Needs;
use levee_policy::{DomainName, LabelName};
use levee_sys::cgroup::Limits;
use serde::{Deserialize, Serialize};

/// Uids and gids in a compartment: its 0 to 65,535 are the host's from its base on.
pub const UIDS: u32 = 65_536;

/// The uid and gid inside that services run as, and that owns the store.
pub const SERVICE_UID: u32 = 1000;

/// Where process 1 writes what its services need, and nobody else may.
pub const PAGES: &str = "/etc/nginx/levee";

/// A compartment, before it is planned.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Its label, for people to read.
    pub label: LabelName,
    /// Its control group, relative to each hierarchy's root, such as `levee/site/2`. Unique on the host.
    pub cgroup: String,
    /// The first of its [`UIDS`] uids on the host, which are nobody else's.
    pub uid_base: u32,
    /// What it may use.
    pub limits: Limits,
    /// The processors that it runs on, as the kernel writes them; `None`: all that the warden has.
    pub processors: Option<String>,
    /// Its host name.
    pub hostname: String,
    /// Its `/etc/hosts`, beside `localhost`.
    pub hosts: Vec<(IpAddr, Vec<DomainName>)>,
    /// What is at `/srv` and in home directories.
    pub files: Files,
    /// Whether its services need files written, which process 1 writes beneath [`PAGES`].
    pub pages: bool,
    /// Bytes that `/tmp`, `/run`, `/var` and `/dev/shm` may hold, each.
    pub scratch: u64,
    /// Where its programs come from.
    pub programs: Programs,
    /// What its services ask for, all together.
    pub needs: Needs,
    /// What SELinux is told of it, where the host has SELinux.
    pub contexts: Option<Contexts>,
}

/// The SELinux contexts of a compartment: each at its label's level.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contexts {
    /// Of its processes, and of the sockets that are made for them.
    pub processes: String,
    /// Of its files: store, copies, and what is in memory.
    pub files: String,
    /// Of the programs that it runs.
    pub programs: String,
}

/// Where a compartment's programs come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Programs {
    /// An image (EROFS), of which it has a block device and a file system of its own: nothing of it is shared with another
    /// compartment.
    Image(PathBuf),
    /// An image with all of the root file system, by such a device, too: a partition's own. In it are no devices of anybody's, and it can be
    /// written in memory alone.
    Root(PathBuf),
    /// The host's `/usr`, through an overlay. Whoever else has the host's programs shares their inodes and pages: for a
    /// compartment that has no neighbours.
    Host,
}

/// What a compartment's programs keep their data in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Files {
    /// A label's own store, read-write at `/srv/own`, and copies of the stores that it dominates, read-only at
    /// `/srv/below`.
    Store {
        /// The image of the own store.
        own: PathBuf,
        /// The image with the copies, one directory per label; `None` for a label that dominates no other.
        below: Option<PathBuf>,
    },
    /// A scratch file system at `/home/user` that ends with the compartment (a workstation's session).
    Scratch {
        /// Its size in bytes.
        bytes: u64,
    },
}
