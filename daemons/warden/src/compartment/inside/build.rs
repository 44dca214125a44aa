//! Carries out the inner half of a plan, step by step, on the process itself.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use levee_sys::mount::{self, Attributes, Mount};
use levee_sys::sandbox::{self, Access};
use levee_sys::seccomp::Filter;
use levee_sys::{Error, Result, creds, ns, selinux};
use rustix::fs::{CWD, FileType, Mode};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::thread::{CapabilitySet, Gid, Uid};

use crate::compartment::Contexts;
use crate::compartment::{Inside, PAGES};
use crate::there::there;

/// Where the new root is built: a directory that every host has and that no step needs of the host.
const NEW_ROOT: &str = "/tmp";

/// Where programs inside may write; everything else they may read and execute. Message queues are named beside all
/// paths and so are not beneath `/dev`.
const WRITABLE: [&str; 9] = ["/dev", "/dev/mqueue", "/home", "/proc", "/run", "/srv", "/tmp", "/var", PAGES];

/// The inner half of a compartment's start. On an error the process must end.
pub(super) fn carry_out(steps: &[Inside], user: &OwnedFd, images: Vec<OwnedFd>) -> Result<()> {
    rustix::process::umask(Mode::empty());
    let images: Vec<Mount> = images.into_iter().map(Mount::from_fd).collect();
    let mut labels = Labels::default();
    for step in steps {
        carry_out_one(step, user, &images, &mut labels)
            .map_err(|e| Error::invalid(step.to_string(), e.to_string()))?;
    }
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    Ok(())
}

/// What SELinux is told of the steps that follow.
#[derive(Default)]
struct Labels<'s> {
    contexts: Option<&'s Contexts>,
    /// Opened while the host's `/proc` is there.
    own: Option<selinux::Own>,
}

impl Labels<'_> {
    /// A file system in which everything has the context of files.
    fn mount(&self, kind: &str, options: &[(&str, &str)], attributes: Attributes) -> Result<Mount> {
        Mount::in_context(kind, options, attributes, self.contexts.map(|contexts| contexts.files.as_str()))
    }

    /// A file system in memory for what is small.
    fn memory(&self, bytes: u64, attributes: Attributes) -> Result<Mount> {
        let size = bytes.to_string();
        self.mount("tmpfs", &[("size", &size), ("nr_inodes", "4096"), ("mode", "755")], attributes)
    }
}

fn carry_out_one<'s>(
    step: &'s Inside,
    user: &OwnedFd,
    images: &[Mount],
    labels: &mut Labels<'s>,
) -> Result<()> {
    match step {
        Inside::PrivateMounts => mount::make_private(),
        Inside::Root(bytes) => {
            labels.memory(*bytes, Attributes { devices: true, ..Attributes::default() })?.attach(NEW_ROOT)
        }
        Inside::RootImage { number, bytes } => root_image(image(images, *number)?, *bytes, labels),
        Inside::Directory(path) => match rustix::fs::mkdir(new(path), mode(0o755)) {
            // A partition's root can have it.
            Err(Errno::EXIST) if Path::new(&new(path)).is_dir() => Ok(()),
            made => made.map_err(|e| Error::new("make the directory", e)),
        },
        Inside::Link { path, to } => {
            rustix::fs::symlink(to.as_str(), new(path)).map_err(|e| Error::new("make the link", e))
        }
        Inside::File { path, content } => write(path, content.as_bytes()),
        Inside::Copy(path) => copy(path),
        Inside::Programs { from, path } => programs(from, path, labels),
        Inside::Device { path, major, minor } => {
            let device = rustix::fs::makedev(*major, *minor);
            rustix::fs::mknodat(CWD, new(path), FileType::CharacterDevice, mode(0o666), device)
                .map_err(|e| Error::new("make the device", e))
        }
        Inside::Tmpfs { path, bytes, owner, mode } => tmpfs(path, *bytes, *owner, *mode, labels),
        Inside::Proc => Mount::new("proc", &[("subset", "pid"), ("hidepid", "invisible")], Attributes::DATA)?
            .attach(&new("/proc")),
        Inside::Terminals => terminals(labels),
        Inside::Queues => {
            Mount::new("mqueue", &[], Attributes::DATA)?.attach(&new("/dev/mqueue"))?;
            labels.contexts.map_or(Ok(()), |contexts| label(&new("/dev/mqueue"), &contexts.files))
        }
        Inside::Image { number, path } => image(images, *number)?.attach(&new(path)),
        Inside::ChangeRoot => {
            mount::change_root(NEW_ROOT)?;
            mount::seal_root()
        }
        Inside::HostName(name) => {
            rustix::system::sethostname(name.as_bytes()).map_err(|e| Error::new("set it", e))
        }
        Inside::AuditSession(uid) => audit_session(*uid),
        Inside::Time => ns::new_time(),
        Inside::HideControlGroups => ns::hide_cgroups(),
        Inside::JoinUserNamespace => ns::join_user(user.as_fd()),
        Inside::Identity => creds::become_identity(Uid::ROOT, Gid::ROOT),
        Inside::DropCapabilities => {
            creds::keep_capabilities(CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL)
        }
        Inside::Contexts(contexts) => {
            *labels = Labels { contexts: Some(contexts), own: Some(selinux::Own::open()?) };
            Ok(())
        }
        Inside::Context(context) => {
            let own = labels.own.take();
            own.ok_or_else(|| Error::invalid("change its context", "no step has opened it"))?
                .become_context(context)
        }
        Inside::TieToWarden => tie_to_warden(),
        Inside::Landlock => landlock(),
        Inside::SystemCalls(groups) => {
            let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
            Filter::compile_with(super::filters::SERVICE, &groups)?.apply()
        }
    }
}

fn image(images: &[Mount], number: usize) -> Result<&Mount> {
    images.get(number).ok_or_else(|| Error::invalid("find the image", "the warden gave fewer"))
}

/// An image as the root below an overlay, which is then at [`NEW_ROOT`] within itself, too: every link in it that a later step follows
/// ends in it. Devices are none there but those of a tmpfs at `/dev`.
fn root_image(image: &Mount, bytes: u64, labels: &Labels<'_>) -> Result<()> {
    labels.memory(bytes, Attributes::default())?.attach(NEW_ROOT)?;
    let [lower, upper, work] = ["/lower", "/upper", "/work"].map(new);
    for path in [&lower, &upper, &work] {
        rustix::fs::mkdir(path, mode(0o755)).map_err(|e| Error::new("make a layer", e))?;
    }
    image.attach(&lower)?;
    let options = [("source", "levee"), ("lowerdir", &lower), ("upperdir", &upper), ("workdir", &work)];
    labels.mount("overlay", &options, Attributes::default())?.attach(NEW_ROOT)?;
    mount::change_root(NEW_ROOT)?;
    for path in [NEW_ROOT, "/dev"] {
        // What is there and is no directory fails the next step.
        let _ = rustix::fs::mkdir(path, mode(0o755));
    }
    mount::same("/", NEW_ROOT)?;
    labels.memory(bytes, Attributes { devices: true, ..Attributes::default() })?.attach(&new("/dev"))
}

/// The host's programs, to be read.
fn programs(from: &str, path: &str, labels: &Labels<'_>) -> Result<()> {
    // Two layers, the first of them empty: an overlay wants two where nothing is to be written. The
    // first also answers statfs, so that the host's free space is not shown.
    let layers = format!("{}:{from}", new(path));
    let context = labels.contexts.map(|contexts| contexts.programs.as_str());
    let options = [("source", "levee"), ("lowerdir", layers.as_str())];
    Mount::in_context("overlay", &options, Attributes::READ_ONLY, context)?.attach(&new(path))
}

/// A file system in memory, with as many inodes as its size allows.
fn tmpfs(path: &str, bytes: u64, owner: u32, mode: u32, labels: &Labels<'_>) -> Result<()> {
    let (size, mode, owner) = (bytes.to_string(), format!("{mode:o}"), owner.to_string());
    // An inode costs about a kilobyte of the kernel's memory.
    let inodes = (bytes >> 10).max(64).to_string();
    let options = [
        ("size", size.as_str()),
        ("nr_inodes", inodes.as_str()),
        ("mode", mode.as_str()),
        ("uid", owner.as_str()),
        ("gid", owner.as_str()),
    ];
    labels.mount("tmpfs", &options, Attributes::default())?.attach(&new(path))
}

fn terminals(labels: &Labels<'_>) -> Result<()> {
    // Each belongs to who opens it, and to no group `tty`: a compartment has one person, and on older kernels
    // (6.1) the option for that group takes no id from 2^31 on. The kernel has a few thousand for all
    // instances together: none may have them all.
    let options = [("mode", "600"), ("ptmxmode", "666"), ("max", "64")];
    let attributes = Attributes { no_exec: true, devices: true, ..Attributes::default() };
    labels.mount("devpts", &options, attributes)?.attach(&new("/dev/pts"))
}

/// It ends when the warden does, and gains nothing by executing.
fn tie_to_warden() -> Result<()> {
    sandbox::forbid_dumps()?;
    rustix::thread::set_no_new_privs(true).map_err(|e| Error::new("set no_new_privs", e))?;
    // Cleared by every change of identity before. Should the warden have died already, its end of the
    // channel is closed, and that ends process 1 as well.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| Error::new("set the death signal", e))
}

/// Gives a directory an SELinux context, where the file system was there before its mount and so takes none by an option.
fn label(path: &str, context: &str) -> Result<()> {
    rustix::fs::setxattr(path, "security.selinux", context.as_bytes(), rustix::fs::XattrFlags::empty())
        .map_err(|e| Error::new(format!("give {path} the context {context}"), e))
}

/// Once it is set, only who may write the audit log's settings can set it again (audit(7), CAP_AUDIT_CONTROL).
fn audit_session(uid: u32) -> Result<()> {
    // There is none in a kernel without auditing.
    let written = there(fs::write("/proc/self/loginuid", uid.to_string()));
    written.map(drop).map_err(|e| Error::new("write /proc/self/loginuid", e))
}

fn landlock() -> Result<()> {
    let open = |path: &str| {
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map_err(|e| Error::new(format!("open {path}"), e))
    };
    let root = open("/")?;
    // The last is there where a service needs it.
    let writable = WRITABLE
        .iter()
        .filter(|path| Path::new(path).exists())
        .map(|path| open(path))
        .collect::<Result<Vec<_>>>()?;
    let mut files = vec![(root.as_fd(), Access::ReadExecute)];
    files.extend(writable.iter().map(|fd| (fd.as_fd(), Access::All)));
    sandbox::restrict(&files, true)
}

fn write(path: &str, content: &[u8]) -> Result<()> {
    if let Some(parent) = Path::new(&new(path)).parent() {
        fs::create_dir_all(parent).map_err(|e| Error::new("make its directory", e))?;
    }
    // In a partition's root it can be a link to what is not there.
    there(fs::remove_file(new(path))).map_err(|e| Error::new("replace the file", e))?;
    fs::write(new(path), content).map_err(|e| Error::new("write the file", e))?;
    rustix::fs::chmod(new(path), mode(0o644)).map_err(|e| Error::new("set its mode", e))
}

/// A file of the host's, followed to its contents, where the host has it.
fn copy(path: &str) -> Result<()> {
    let content = there(fs::read(path)).map_err(|e| Error::new(format!("copy {path}"), e))?;
    content.map_or(Ok(()), |content| write(path, &content))
}

fn new(path: &str) -> String {
    format!("{NEW_ROOT}{path}")
}

fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}
