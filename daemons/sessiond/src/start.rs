//! Start-up: descriptors from the warden, the sandbox, then the files; only then is anything heard.

use crate::audit::{AuditLog, Syncer};
use crate::auditor::Auditor;
use crate::away::{self, Away};
use crate::clock::Clock;
use crate::daemon::{Daemon, Source};
use crate::devices::Devices;
use crate::federation::Federated;
use crate::known::{Digest, digest_of};
use crate::passwords::Passwords;
use crate::prices::{self, Prices};
use crate::statements::Statements;
use crate::store::Store;
use levee_daemon::{Descriptors, Events, Fatal, Kit, Many, One, begin};
use levee_ipc::signer::{FromSigner, ToSigner};
use levee_ipc::warden::sessiond::SessiondPart;
use levee_ipc::{Channel, Received};
use levee_policy::Site;
use levee_policy::audit::{Chain, Hash};
use levee_sys::sandbox::{Access, Sandbox};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, mkdirat, openat};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

/// The system calls that sessiond may make.
const FILTER: &str = include_str!("../../../conf/seccomp/sessiond.toml");

/// The most bytes that a site file has.
const MAX_SITE: usize = 4 << 20;
/// How long the signer may take to begin, in seconds.
const PATIENCE: i64 = 30;

/// The most channels to begin with: to standing processes, and to each worker and mediator of each label that runs.
const MOST_CHANNELS: usize = 8_192;

/// What the warden gives.
#[derive(Default)]
struct Given {
    site: One<OwnedFd>,
    directory: One<OwnedFd>,
    auditor: One<OwnedFd>,
    authority: One<OwnedFd>,
    federation: One<OwnedFd>,
    federation_authority: One<OwnedFd>,
    revoked: One<OwnedFd>,
    revoked_servers: One<OwnedFd>,
    signer: One<Channel>,
    /// To be taken like any that come later.
    others: Many<(SessiondPart, Descriptors), MOST_CHANNELS>,
}

impl Kit for Given {
    type Part = SessiondPart;

    fn take(&mut self, part: SessiondPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            SessiondPart::Site => self.site.put(with.one()?),
            SessiondPart::Directory => self.directory.put(with.one()?),
            SessiondPart::Auditor => self.auditor.put(with.one()?),
            SessiondPart::Authority => self.authority.put(with.one()?),
            SessiondPart::Federation => self.federation.put(with.one()?),
            SessiondPart::FederationAuthority => self.federation_authority.put(with.one()?),
            SessiondPart::Revocations => self.revoked.put(with.one()?),
            SessiondPart::FederationRevocations => self.revoked_servers.put(with.one()?),
            SessiondPart::Signer => self.signer.put(with.channel()?),
            part => self.others.put((part, with)),
        }
    }
}

/// Takes part in the warden's start-up, then serves until the warden says stop or is gone.
///
/// # Errors
/// Why it cannot go on.
pub fn serve() -> Result<(), Fatal> {
    let fault = |why: String| Fatal::new("begin", why);
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(()) };
    let site = given.site.needed("site file")?;
    let directory = given.directory.needed("directory")?;
    let auditor = Auditor::read(given.auditor.needed("auditor's key")?).map_err(fault)?;
    let signer = given.signer.needed("channel to levee-signer")?;
    let known = log_of(&signer).map_err(fault)?;
    let bell = Passwords::bell().map_err(|e| Fatal::new("start the password threads", e))?;
    let synced = Syncer::bell().map_err(|e| Fatal::new("start what syncs the audit log", e))?;
    let boot = away::boot().map_err(|e| Fatal::new("read the host's name for this run", e))?;
    let here = prices::here();
    let mut events = Events::new()?;
    let files = [(directory.as_fd(), Access::ReadWrite)];
    let sandbox = Sandbox { filter: FILTER, files: &files, tcp: false };
    let confined = beginning.confine(&sandbox)?;

    let (site, site_digest) = read_site(site).map_err(fault)?;
    let authority = given.authority.needed("certificate of the authority")?;
    let devices =
        Devices::new(site.server().name().clone(), authority, given.revoked.get()).map_err(fault)?;
    let statements = match site.federation() {
        None => None,
        Some(_) => {
            let own = given.federation.needed("passport for the federation")?;
            let authority = given.federation_authority.needed("authority of the federation")?;
            let list = given.revoked_servers.get();
            Some(Statements::new(site.server().name(), own, authority, list).map_err(fault)?)
        }
    };
    let clock = Clock::start();
    let away = Away::open(directory.as_fd(), boot, site.server().grace(), clock)
        .map_err(|e| Fatal::new("read when it ran last", e))?;
    let store = Store::open(directory.as_fd()).map_err(|e| Fatal::new("open the store", e))?;
    let mut audit = AuditLog::open(directory.as_fd(), &auditor, known, away.0.host_failed(), clock.now())
        .map_err(|e| Fatal::new("open the audit log", e))?;
    audit.sync_by(Syncer::start(synced).map_err(|e| Fatal::new("start what syncs the audit log", e))?);
    let open = |name| place(directory.as_fd(), name).map_err(|e| Fatal::new("open the credentials", e));
    let passwords = Passwords::start(open("credentials")?, open("second-factors")?, bell)
        .map_err(|e| Fatal::new("start the password threads", e))?;
    let federated = Federated::new(statements);
    let own = directory.try_clone().map_err(|e| Fatal::new("keep the directory", e))?;
    let prices = Prices::new(own, here);
    let warden = confined.ready(&mut events, Source::Warden)?;
    let mut daemon = Daemon::new(
        events,
        warden,
        site,
        clock,
        (store, away, site_digest),
        federated,
        audit,
        passwords,
        (devices, prices),
    )?;
    daemon.signer_came(signer)?;
    for (part, with) in given.others.all() {
        daemon.take(part, with)?;
    }
    daemon.run()
}

/// How far the audit log is, as the signer knows it: no record is believed without that.
fn log_of(signer: &Channel) -> Result<Chain, String> {
    signer.send(&ToSigner::AuditChain).map_err(|e| format!("to levee-signer: {e}"))?;
    let mut fds = [PollFd::new(signer, PollFlags::IN)];
    let patience = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
    if poll(&mut fds, Some(&patience)).map_err(|e| e.to_string())? == 0 {
        return Err(format!("levee-signer has not said in {PATIENCE} s how far the audit log is"));
    }
    match signer.try_recv::<FromSigner>() {
        Ok(Received { message: FromSigner::Chained { count, hash }, .. }) => {
            Ok(Chain { count, hash: Hash(hash) })
        }
        Ok(_) => Err("levee-signer does not say how far the audit log is".into()),
        Err(error) => Err(format!("from levee-signer: {error}")),
    }
}

fn read_site(fd: OwnedFd) -> Result<(Site, Digest), String> {
    let mut text = levee_daemon::whole(&fd, MAX_SITE).map_err(|e| format!("the site file: {e}"))?;
    let digest = digest_of(&text);
    let text = String::from_utf8(std::mem::take(&mut text)).map_err(|e| format!("the site file: {e}"))?;
    let site = Site::parse(&text).map_err(|problems| {
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        format!("problems of the site file: {}; the first: {first}", problems.len())
    })?;
    Ok((site, digest))
}

/// A directory with one file for each user; made if it is not there.
fn place(directory: BorrowedFd<'_>, name: &str) -> rustix::io::Result<OwnedFd> {
    match mkdirat(directory, name, Mode::RWXU) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(e) => return Err(e),
    }
    openat(directory, name, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
}
