//! The steps by which a compartment starts, each in words.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::spec::{Contexts, UIDS};

/// A step of the warden's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outside {
    /// Make the control group and set its limits.
    ControlGroup {
        /// Relative to each hierarchy's root.
        name: String,
        /// Bytes of memory.
        memory: u64,
        /// Processes and threads.
        processes: u64,
        /// Hundredths of one processor.
        cpu_percent: u32,
    },
    /// Have what will be in the control group run on these processors alone, before anything is.
    Processors(String),
    /// Have the source ports of its connections drawn without the machine's counters.
    SourcePorts,
    /// Make the user namespace, for idmapped mounts now and to be joined last. The host's uid for 0 inside; there are [`UIDS`].
    UserNamespace(u32),
    /// Mount everything from here on in these SELinux contexts.
    Contexts(Contexts),
    /// Mount an image, detached, with its ids mapped. Process 1 gets it.
    Image {
        /// The image.
        path: PathBuf,
        /// Whether only to read.
        read_only: bool,
    },
    /// Mount the image of the services' programs, detached, by a block device of its own. Process 1 gets it, behind the others.
    Programs(PathBuf),
    /// Have nothing that runs there write a file beyond this size. Who is given an image as a file could make it larger than it was made,
    /// at the expense of the host's disk.
    FilesUpTo(u64),
    /// Start process 1 in new mount, pid, IPC and UTS namespaces and the compartment's network namespace, in
    /// the control group, with a session keyring of its own.
    Process1,
}

/// A step of process 1's, still with the host's privileges until [`Inside::JoinUserNamespace`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inside {
    /// Cut the mounts off from the host's.
    PrivateMounts,
    /// Mount everything from here on in these SELinux contexts.
    Contexts(Contexts),
    /// An empty tmpfs to build the root in, which may hold so many bytes.
    Root(u64),
    /// An image that the warden mounted as the root, below an overlay in memory, and a directory for devices: what it has by its names can lead
    /// nowhere else from here on.
    RootImage {
        /// Which, counted from 0.
        number: usize,
        /// Bytes that the memory may hold.
        bytes: u64,
    },
    /// A directory, owned by the host's root.
    Directory(String),
    /// A symbolic link.
    Link {
        /// Where.
        path: String,
        /// To what.
        to: String,
    },
    /// A file with this content.
    File {
        /// Where.
        path: String,
        /// What is in it.
        content: String,
    },
    /// A copy of a file of the host's at the same path, where the host has it.
    Copy(String),
    /// A directory with the host's programs, read-only, through an overlay so that locks on them are not shared.
    Programs {
        /// The host's directory.
        from: String,
        /// Where.
        path: String,
    },
    /// A character device of its own (not the host's inode).
    Device {
        /// Where.
        path: String,
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A tmpfs.
    Tmpfs {
        /// Where.
        path: String,
        /// Bytes it may hold.
        bytes: u64,
        /// The host's uid of its owner.
        owner: u32,
        /// Mode of its root.
        mode: u32,
    },
    /// The compartment's own `/proc`: processes only, and each only to its own uid.
    Proc,
    /// Pseudo-terminals of its own.
    Terminals,
    /// The message queues of its own IPC namespace.
    Queues,
    /// One of the images that the warden mounted.
    Image {
        /// Which, counted from 0.
        number: usize,
        /// Where.
        path: String,
    },
    /// Make the new root the root, detach the host's, and make the new one read-only.
    ChangeRoot,
    /// Set the host name.
    HostName(String),
    /// Fix the audit session that everything inside belongs to, so that nobody inside can begin another. The host's uid that it is counted
    /// under.
    AuditSession(u32),
    /// Make a time namespace, with the host's clocks, for everything that is started inside.
    Time,
    /// Make the compartment's control group the root of what it sees.
    HideControlGroups,
    /// Join the user namespace: no power over anything made so far is left.
    JoinUserNamespace,
    /// Become its root, without groups.
    Identity,
    /// Empty the bounding set and keep only SETUID, SETGID and KILL, within the user namespace.
    DropCapabilities,
    /// Take on this SELinux context, with everything that is started from here on.
    Context(String),
    /// No dumps, `no_new_privs`, and die when the warden does.
    TieToWarden,
    /// Landlock on everything from here on.
    Landlock,
    /// The filter of `conf/seccomp/service.toml` on everything from here on, with these groups: what any service may have, and what process 1
    /// itself needs.
    SystemCalls(Vec<String>),
}

impl fmt::Display for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlGroup { name, memory, processes, cpu_percent } => write!(
                f,
                "make control group {name}: memory {}M, {processes} processes, {cpu_percent} % of a processor",
                memory / (1 << 20)
            ),
            Self::Processors(numbers) => write!(f, "run on processors {numbers} alone"),
            Self::SourcePorts => f.write_str("draw its connections' source ports apart from others'"),
            Self::UserNamespace(base) => {
                write!(f, "make a user namespace: 0 to {} inside are {base} on", UIDS - 1)
            }
            Self::Contexts(contexts) => write!(f, "{contexts}"),
            Self::Image { path, read_only } => {
                let how = if *read_only { "read-only" } else { "read-write" };
                write!(f, "mount image {} {how}, no devices, no set-uid, ids mapped", path.display())
            }
            Self::Programs(path) => {
                write!(f, "mount the programs {} read-only, by a block device of its own", path.display())
            }
            Self::FilesUpTo(bytes) => write!(f, "write no file beyond {bytes} bytes"),
            Self::Process1 => f.write_str(
                "start process 1: new mount, pid, IPC and UTS namespaces, the compartment's network, its control \
                 group, a fresh session keyring",
            ),
        }
    }
}

impl fmt::Display for Contexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, programs, .. } = self;
        write!(f, "mount from here on with SELinux contexts: files {files}, programs {programs}")
    }
}

impl Inside {
    /// Steps in as many messages as they need, each with at most so many bytes of them.
    pub(crate) fn batches(steps: &[Self], bytes: usize) -> Vec<Vec<Self>> {
        let (mut batches, mut room) = (vec![Vec::new()], bytes);
        for step in steps {
            // As JSON it has its names beside, and so is longer than in a message.
            let size = serde_json::to_vec(step).map_or(bytes, |text| text.len());
            if size > room {
                batches.push(Vec::new());
                room = bytes;
            }
            room = room.saturating_sub(size);
            batches.last_mut().into_iter().for_each(|batch| batch.push(step.clone()));
        }
        batches
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PrivateMounts => f.write_str("cut its mounts off from the host's"),
            Self::Root(bytes) => write!(f, "mount a tmpfs of {}K to build the root in", bytes >> 10),
            Self::RootImage { number, bytes } => {
                let (image, size) = (number + 1, bytes >> 10);
                write!(f, "change the root to image {image} below an overlay of {size}K in memory")
            }
            Self::Directory(path) => write!(f, "make directory {path}"),
            Self::Link { path, to } => write!(f, "link {path} to {to}"),
            Self::File { path, content } => write!(f, "write {path} ({} bytes)", content.len()),
            Self::Copy(path) => write!(f, "copy the host's {path} to {path}"),
            Self::Programs { from, path } => {
                write!(f, "mount the host's {from} at {path}: overlay, read-only, no devices, no set-uid")
            }
            Self::Device { path, major, minor } => {
                write!(f, "make device {path} (character {major}:{minor})")
            }
            Self::Tmpfs { path, bytes, owner, mode } => {
                write!(f, "mount a tmpfs of {}K at {path}, mode {mode:o}, owner {owner}", bytes >> 10)
            }
            Self::Proc => f.write_str("mount proc at /proc: subset=pid, hidepid=invisible"),
            Self::Terminals => f.write_str("mount devpts at /dev/pts"),
            Self::Queues => f.write_str("mount mqueue at /dev/mqueue"),
            Self::Image { number, path } => write!(f, "attach image {} at {path}", number + 1),
            Self::ChangeRoot => f.write_str("change the root, detach the host's, make the new one read-only"),
            Self::HostName(name) => write!(f, "set the host name {name}"),
            Self::AuditSession(uid) => write!(f, "fix its audit session, as uid {uid}"),
            Self::Time => f.write_str("make a time namespace, with the host's clocks"),
            Self::HideControlGroups => f.write_str("make a control-group namespace"),
            Self::JoinUserNamespace => f.write_str("join the user namespace"),
            Self::Identity => f.write_str("become its uid and gid 0, without supplementary groups"),
            Self::DropCapabilities => {
                f.write_str("empty the bounding set; keep SETUID, SETGID and KILL in the user namespace")
            }
            Self::Contexts(contexts) => write!(f, "{contexts}"),
            Self::Context(context) => write!(f, "take on the SELinux context {context}"),
            Self::TieToWarden => f.write_str("forbid dumps, set no_new_privs, die with the warden"),
            Self::Landlock => {
                f.write_str("restrict by Landlock: files of this root, no signal or socket outward")
            }
            Self::SystemCalls(groups) => {
                write!(f, "load the system-call filter service, with {}", groups.join(", "))
            }
        }
    }
}
