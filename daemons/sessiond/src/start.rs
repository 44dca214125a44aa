//! Start-up: descriptors from the warden, the sandbox, then the files; only then is anything heard.

use crate::audit::AuditLog;
use crate::auditor::Auditor;
use crate::away::{self, Away};
use crate::clock::Clock;
use crate::daemon::Daemon;
use crate::devices::Devices;
use crate::link::Link;
use crate::passwords::Passwords;
use crate::store::Store;
use levee_ipc::signer::{FromSigner, ToSigner};
use levee_ipc::warden::{Attachment, CONTROL_FD, FromWarden, Role, ToWarden};
use levee_ipc::{Channel, Received, RecvError};
use levee_policy::Site;
use levee_policy::audit::{Chain, Hash};
use levee_sys::sandbox::{Access, Sandbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

/// The most bytes that a site file has.
const MAX_SITE: usize = 4 << 20;
/// How long the signer may take to begin, in seconds.
const PATIENCE: i64 = 30;

/// Takes part in the warden's start-up, then serves until the warden says stop or is gone.
pub fn serve() -> Result<(), String> {
    let control = levee_sys::fork::inherited(CONTROL_FD).map_err(|e| e.to_string())?;
    let control = Channel::from_fd(control);
    let mut attached: Vec<(Attachment, OwnedFd)> = Vec::new();
    loop {
        match control.recv::<FromWarden>() {
            Ok(Received { message: FromWarden::Begin(_), .. }) => break,
            Ok(Received { message: FromWarden::Stop, .. }) | Err(RecvError::Closed) => return Ok(()),
            Ok(Received { message: FromWarden::Attach(attachment), mut fds }) => match (fds.pop(), fds.pop())
            {
                (Some(fd), None) => attached.push((attachment, fd)),
                _ => return Err(format!("the warden attached {attachment:?} without its one descriptor")),
            },
            Ok(_) => {}
            Err(error) => return Err(format!("from the warden: {error}")),
        }
    }
    let mut site = None;
    let mut directory = None;
    let (mut auditor, mut authority, mut revoked) = (None, None, None);
    let mut channels = Vec::new();
    for (attachment, fd) in attached {
        match attachment {
            Attachment::Site => site = Some(fd),
            Attachment::Directory => directory = Some(fd),
            Attachment::Auditor => auditor = Some(fd),
            Attachment::Authority => authority = Some(fd),
            Attachment::Revocations => revoked = Some(fd),
            _ => channels.push((attachment, fd)),
        }
    }
    let site = site.ok_or("the warden attached no site file")?;
    let directory = directory.ok_or("the warden attached no directory")?;
    let auditor = Auditor::read(auditor.ok_or("the warden attached no auditor's key")?)?;
    let known = log_of_signer(&channels)?;
    let bell = Passwords::bell().map_err(|e| format!("the password threads: {e}"))?;
    let boot = away::boot().map_err(|e| format!("the host's name for this run: {e}"))?;
    let files = [(directory.as_fd(), Access::ReadWrite)];
    Sandbox { filter: levee_sys::seccomp::SESSIOND, files: &files, tcp: false }
        .enter()
        .map_err(|e| e.to_string())?;

    let site = read_site(site)?;
    let authority = authority.ok_or("the warden attached no certificate of the authority")?;
    let devices = Devices::new(site.server().name().clone(), authority, revoked)?;
    let clock = Clock::start();
    let away = Away::open(directory.as_fd(), boot, site.server().grace())
        .map_err(|e| format!("when it ran last: {e}"))?;
    let store = Store::open(directory.as_fd()).map_err(|e| e.to_string())?;
    let audit = AuditLog::open(directory.as_fd(), &auditor, known, clock.now())
        .map_err(|e| format!("the audit log: {e}"))?;
    let credentials = credentials(directory.as_fd()).map_err(|e| format!("the credentials: {e}"))?;
    let passwords = Passwords::start(credentials, bell).map_err(|e| format!("the password threads: {e}"))?;
    let mut warden = Link::new(control.into_fd());
    warden.send(ToWarden::Ready);
    let mut daemon = Daemon::new(warden, site, clock, (store, away), audit, passwords, devices)?;
    for (attachment, fd) in channels {
        daemon.attach(attachment, fd);
    }
    daemon.run()
}

/// How far the audit log is, as the signer knows it: no record is believed without that.
fn log_of_signer(channels: &[(Attachment, OwnedFd)]) -> Result<Chain, String> {
    let signer = channels.iter().rev().find_map(|(attachment, fd)| match attachment {
        Attachment::Peer { role: Role::Signer, .. } => Some(fd),
        _ => None,
    });
    let signer = signer.ok_or("the warden attached no channel to levee-signer")?;
    let channel = Channel::from_fd(signer.try_clone().map_err(|e| e.to_string())?);
    channel.send(&ToSigner::AuditChain).map_err(|e| format!("to levee-signer: {e}"))?;
    let mut fds = [PollFd::new(&channel, PollFlags::IN)];
    let patience = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
    if poll(&mut fds, Some(&patience)).map_err(|e| e.to_string())? == 0 {
        return Err(format!("levee-signer has not said in {PATIENCE} s how far the audit log is"));
    }
    match channel.try_recv::<FromSigner>() {
        Ok(Received { message: FromSigner::Chained { count, hash }, .. }) => {
            Ok(Chain { count, hash: Hash(hash) })
        }
        Ok(_) => Err("levee-signer does not say how far the audit log is".into()),
        Err(error) => Err(format!("from levee-signer: {error}")),
    }
}

fn read_site(fd: OwnedFd) -> Result<Site, String> {
    let file = File::from(fd);
    let mut text = vec![0u8; MAX_SITE];
    let mut length = 0;
    while let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, length as u64) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(format!("the site file: {e}")),
        }
    }
    text.truncate(length);
    let text = String::from_utf8(text).map_err(|e| format!("the site file: {e}"))?;
    Site::parse(&text).map_err(|problems| {
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        format!("the site file has {} problems; the first: {first}", problems.len())
    })
}

/// The directory with one file for each user; made if it is not there.
fn credentials(directory: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    const NAME: &str = "credentials";
    match mkdirat(directory, NAME, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(e) => return Err(e),
    }
    openat(directory, NAME, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
}
