//! What a daemon calls first in `main`: give up, for good, everything that its job does not need.

use std::os::fd::BorrowedFd;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit};

use crate::error::Step;
use crate::seccomp::Filter;
use crate::{Error, Result};

/// What may be done beneath a directory, or with a file, through Landlock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Read files and list directories.
    Read,
    /// Read, and execute programs.
    ReadExecute,
    /// Everything but executing.
    ReadWrite,
    /// Everything.
    All,
}

/// What a process keeps. The default keeps no file, no TCP and no system call but what `filter` lists.
pub struct Sandbox<'a> {
    /// The system-call filter: one of the texts in [`crate::seccomp`].
    pub filter: &'a str,
    /// Directories (or files) that may still be opened, by descriptor, with what may be done beneath them.
    /// Descriptors that are open already are not affected.
    pub files: &'a [(BorrowedFd<'a>, Access)],
    /// Whether TCP sockets may still be bound and connected.
    pub tcp: bool,
}

impl<'a> Sandbox<'a> {
    /// No files, no TCP.
    pub fn new(filter: &'a str) -> Self {
        Self { filter, files: &[], tcp: false }
    }

    /// Enters the sandbox: the code of the start given back, no core dumps and no tracing by others, `no_new_privs`, Landlock with all scopes
    /// (no signals and no abstract sockets outward), then the system-call filter on every thread.
    ///
    /// Landlock binds the calling thread and what it starts: call this before starting threads.
    ///
    /// # Errors
    /// Names the step. Then the process must end: it is only partly confined. A kernel without Landlock is
    /// an error.
    pub fn enter(&self) -> Result<()> {
        let filter = Filter::compile(self.filter)?;
        // While `/proc/self` is still ours.
        crate::code::give_back();
        forbid_dumps()?;
        rustix::thread::set_no_new_privs(true).step(|| "set no_new_privs".into())?;
        restrict(self.files, self.tcp)?;
        filter.apply()
    }
}

/// The limit on core files, in bytes, at which no memory is written anywhere. With 0 a host's handler (a `core_pattern` that begins
/// with `|`) is given all of it: core(5), "Piping core dumps to a program". The kernel takes 1 for a crash of such a handler, and starts none
/// (fs/coredump.c); no file has room for less than a page.
pub const NO_CORE: u64 = 1;

/// No core dumps, no `/proc/PID` for the same uid, no ptrace by it.
pub fn forbid_dumps() -> Result<()> {
    let none = Rlimit { current: Some(NO_CORE), maximum: Some(NO_CORE) };
    rustix::process::setrlimit(Resource::Core, none).step(|| "forbid core dumps".into())?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .step(|| "make the process undumpable".into())
}

/// Landlock: nothing but `files` by path, TCP only if `tcp`, no signal and no abstract socket outward, as far
/// as the kernel's version of Landlock goes. `no_new_privs` must be set.
pub fn restrict(files: &[(BorrowedFd<'_>, Access)], tcp: bool) -> Result<()> {
    let abi = landlock_abi()?;
    let all = AccessFs::from_all(abi);
    let failed =
        |e: &dyn std::fmt::Display| Error::invalid("restrict the process by Landlock", e.to_string());
    let restrict = || -> std::result::Result<RulesetStatus, landlock::RulesetError> {
        let mut ruleset =
            Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(all)?;
        if !tcp && abi >= ABI::V4 {
            ruleset = ruleset.handle_access(AccessNet::from_all(ABI::V4))?;
        }
        if abi >= ABI::V6 {
            ruleset = ruleset.scope(Scope::from_all(ABI::V6))?;
        }
        let mut created = ruleset.create()?;
        for (fd, access) in files {
            let read = AccessFs::from_read(abi) & !AccessFs::Execute;
            let access = match access {
                Access::Read => read,
                Access::ReadExecute => AccessFs::from_read(abi),
                Access::ReadWrite => all & !AccessFs::Execute,
                Access::All => all,
            };
            // For a plain file, only the rights that files have.
            let access = if is_directory(*fd) { access } else { access & AccessFs::from_file(abi) };
            created = created.add_rule(PathBeneath::new(fd, access))?;
        }
        Ok(created.restrict_self()?.ruleset)
    };
    match restrict().map_err(|e| failed(&e))? {
        RulesetStatus::FullyEnforced => Ok(()),
        other => Err(failed(&format!("only {other:?}"))),
    }
}

/// The kernel's version of Landlock, at most what this crate knows.
pub fn landlock_abi() -> Result<ABI> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with the VERSION flag the call takes a null pointer and size 0 and only returns a number.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0usize, VERSION)
    };
    match version {
        1 => Ok(ABI::V1),
        2 => Ok(ABI::V2),
        3 => Ok(ABI::V3),
        4 => Ok(ABI::V4),
        5 => Ok(ABI::V5),
        6 => Ok(ABI::V6),
        7.. => Ok(ABI::V7),
        _ => Err(Error::new(
            "ask the kernel for Landlock (CONFIG_SECURITY_LANDLOCK=y, and landlock in lsm=)",
            std::io::Error::last_os_error(),
        )),
    }
}

fn is_directory(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| {
        rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory
    })
}
