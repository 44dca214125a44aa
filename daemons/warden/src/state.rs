//! Files: where what outlives a run is kept, and how it is handed to processes that can open none.

use crate::Fatal;
use crate::memfile::sealed;
use crate::options::Options;
use crate::there::{entries, there};
use levee_ipc::signer::PPK_ID;
use levee_policy::audit::hex;
use levee_policy::site::CheckpointPlace;
use levee_policy::{HostName, PpkId, Site};
use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Uid, chownat, flock};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Below the state directory: whom the authority believes no more.
pub const REVOCATIONS: &str = "authority/ca.crl";
/// As there: of the authority by which the site's servers believe each other.
pub const FEDERATION_REVOCATIONS: &str = "authority/federation-ca.crl";
/// The same in a workstation's bundle, if an operator has put it there.
pub const WORKSTATION_REVOCATIONS: &str = "ca.crl";
/// Below the state directory: the public key that the audit log's first key is sealed for.
pub const AUDITOR: &str = "server/auditor.pub";
/// Where wardens on one host claim their uids; the same for all, whatever their site.
pub const UIDS: &str = "/run/levee/.uids";
/// The file that a running warden holds locked, with its process number: in the run directory, where `levee down` looks for it, and in
/// the state directory.
pub const LOCK: &str = "lock";
/// In the state directory: which site it belongs to, and what its labels meant (`levee` writes it, and only while no warden has claimed the state).
const PIN: &str = "site-pin.toml";
/// The operators' socket, in the run directory.
pub const CONTROL: &str = "control";
/// Where the namespaces of single-level networks are pinned, in the run directory.
pub const NETWORKS: &str = "net";
/// As there: those of labelled networks. No label has such a name.
pub const LABELLED: &str = "labelled";
/// The socket of `levee-tpe`'s commands, in the run directory.
pub const TPE: &str = "tpe.sock";

/// Reads and checks the site file.
///
/// # Errors
/// It cannot be read, or has problems: `levee check` shows them all.
pub fn site(path: &Path) -> Result<(String, Site), Fatal> {
    let step = format!("read the site file {}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| Fatal::new(&step, e))?;
    let site = Site::parse(&text).map_err(|problems| {
        let (count, shown) = (problems.len(), path.display());
        Fatal::new(step, format!("problems: {count}; `levee check {shown}` shows each with its remedy"))
    })?;
    Ok((text, site))
}

/// That a run directory and a state directory are this warden's, as long as this value lives.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "held for its locks")] [File; 2]);

/// Makes the directories of a run, for root alone, and claims both. With one state directory, two wardens would write the same audit log
/// and mount the same stores. Where `levee up` has held a site file to its state, it is this one, and the state what it was then.
///
/// # Errors
/// Which cannot be made, and why; that another warden has the directory; or that site file or state are others.
pub fn prepare(options: &Options, site: &str) -> Result<Lock, Fatal> {
    for path in [&options.state, &options.run] {
        let make = || -> io::Result<()> {
            std::fs::create_dir_all(path)?;
            std::fs::set_permissions(path, Permissions::from_mode(0o700))
        };
        make().map_err(|e| Fatal::new(format!("make {}", path.display()), e))?;
    }
    let run = claim(&options.run, "another warden runs there; `levee down` stops it")?;
    let other = "another warden runs with this state; stop it with `levee down`, or give this one a directory of its own by --state";
    let lock = Lock([run, claim(&options.state, other)?]);
    // Without one it is what it was only if there was none.
    let pin = std::fs::read(options.state.join(PIN)).unwrap_or_default();
    let found = hex(&Sha256::digest([site.as_bytes(), &pin].concat()));
    if options.checked.as_ref().is_some_and(|checked| *checked != found) {
        let why = "site file or state were changed while `levee up` looked at them: run `levee up` again";
        return Err(Fatal::new("hold the site to its state", why));
    }
    Ok(lock)
}

/// How long a claim is waited for. A child that a killed warden was just starting has it, too, until it executes its own program.
const LEFT_BEHIND: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Locks a directory for this warden, or says so if one has it.
fn claim(directory: &Path, other: &str) -> Result<File, Fatal> {
    let path = directory.join(LOCK);
    let lock = || -> io::Result<File> {
        let end = Instant::now() + LEFT_BEHIND;
        loop {
            let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            // Who can open it can lock it, and then none starts here and none is known to have ended; accounts of a workstation enter its
            // run directory. One of before may have another mode.
            file.set_permissions(Permissions::from_mode(0o600))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // `levee down` takes it away when it has it: what has no name any more claims nothing.
                Ok(()) if file.metadata()?.nlink() == 0 => {}
                Ok(()) => {
                    file.set_len(0)?;
                    writeln!(file, "{}", std::process::id())?;
                    return Ok(file);
                }
                Err(Errno::WOULDBLOCK) if Instant::now() < end => thread::sleep(LOOK_AGAIN),
                Err(Errno::WOULDBLOCK) => return Err(io::Error::other(other)),
                Err(e) => return Err(e.into()),
            }
        }
    };
    lock().map_err(|e| Fatal::new(format!("claim {}", directory.display()), e))
}

/// Where it is kept why a run ended by itself.
const LAST_RUN: &str = "ended-by-itself";

/// Keeps why this run ends by itself, for the next one.
pub fn ends_by_itself(state: &Path, why: &str) {
    let keep = || std::fs::write(state.join(LAST_RUN), why.lines().next().unwrap_or_default());
    if let Err(e) = keep() {
        crate::log!("why it ends is not kept: {e}");
    }
}

/// Why the last run ended by itself, if it did.
pub fn last_run(state: &Path) -> Option<String> {
    String::from_utf8(read(&state.join(LAST_RUN), 1_024).ok()?).ok()
}

/// The last run's end has been told.
pub fn forget_last_run(state: &Path) {
    // One that stays is told again.
    let _ = std::fs::remove_file(state.join(LAST_RUN));
}

/// Below the state directory: what `levee enrol rotate` has done, a file for each, until the audit log says it.
pub const ROTATIONS: &str = "rotated";
/// So many are told at a time: the others with the next `levee reload`, or start.
const MOST_ROTATIONS: usize = 64;

/// What has been rotated and not been told, oldest first: what each file says, and whether it is not known to have ended. It is told once.
pub fn rotations(state: &Path) -> Vec<(Vec<u8>, bool)> {
    let Ok(entries) = std::fs::read_dir(state.join(ROTATIONS)) else { return Vec::new() };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).take(MOST_ROTATIONS).collect();
    paths.sort();
    let told = |path: std::path::PathBuf| {
        // What cannot be read is told of all the same.
        let text = read(&path, 1_024).unwrap_or_default();
        // One that stays would be told without end.
        std::fs::remove_file(&path).ok()?;
        Some((text, path.extension().is_some_and(|end| end == "begun")))
    };
    paths.into_iter().filter_map(told).collect()
}

/// Reads a small public file.
///
/// # Errors
/// The kernel's.
pub fn public(path: &Path) -> io::Result<Vec<u8>> {
    read(path, 1 << 20)
}

/// The beginning of a file.
fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(path)?, most), &mut text)?;
    Ok(text)
}

/// Opens a file for reading, to hand it on.
///
/// # Errors
/// The kernel's, with the path and where the file comes from.
pub fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(File::open(path).map_err(|e| hint(path, &e))?.into())
}

fn hint(path: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e} (`levee check` says what makes it)", path.display()))
}

/// Opens a file with a secret, as [`open`] does: one that others than its owner may read or write is not taken.
///
/// # Errors
/// As [`open`]; or its mode, with the remedy.
pub fn secret(path: &Path) -> io::Result<OwnedFd> {
    let fd = open(path)?;
    let mode = rustix::fs::fstat(&fd)?.st_mode & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(fd);
    }
    let shown = path.display();
    let why = format!("{shown}: others than its owner may use it (mode {mode:o}): chmod 600 {shown}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Pins of the namespaces of one-way channels' wires, below the run directory.
pub const WIRES: &str = "wires";

/// The key of a one-way channel from or to another host, below the state directory.
pub fn channel_key(state: &Path, channel: &levee_policy::ChannelName) -> std::path::PathBuf {
    state.join("channels").join(format!("{channel}.key"))
}

/// The keys of a channel, to be given on: the one in use, and where one was made (`levee enrol rotate`) the one that will follow it.
///
/// # Errors
/// As [`secret`].
pub fn channel_keys(
    state: &Path,
    channel: &levee_policy::ChannelName,
) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    // No channel's name has a slash, so that it is no other channel's.
    let next = there(secret(&state.join(format!("channels/next/{channel}.key"))))?;
    Ok((secret(&channel_key(state, channel))?, next))
}

/// The file that says up to where the other host of a one-way channel was heard, below the state directory; begun where there is none.
///
/// # Errors
/// The kernel's.
pub fn channel_heard(state: &Path, channel: &levee_policy::ChannelName) -> io::Result<OwnedFd> {
    let path = state.join("channels").join(format!("{channel}.heard"));
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Where the server's halves of the PPKs are, below the state directory: `HOST.key`, and those before them in `former/`.
pub const PPKS: &str = "server/ppk";

/// The name of the PPK in a file, which `levee enrol` writes above it; none where the site file's, or the bundle's, is its name.
///
/// # Errors
/// The kernel's; or the name is none.
pub fn ppk_id(path: &Path) -> io::Result<Option<PpkId>> {
    // No more than the first line: the key is not this process's to have.
    let (begins, mut line, mut byte) = (PPK_ID.as_bytes(), Vec::new(), [0]);
    let mut file = File::open(path)?;
    while line.len() < 128 && io::Read::read(&mut file, &mut byte)? == 1 && byte != *b"\n" {
        line.extend(byte);
        if !begins.starts_with(&line) && !line.starts_with(begins) {
            return Ok(None);
        }
    }
    let id = line.strip_prefix(begins).and_then(|id| PpkId::new(std::str::from_utf8(id).ok()?.trim()).ok());
    let shown = path.display();
    id.map(Some).ok_or_else(|| {
        io::Error::other(format!("{shown}: its first line has no PPK_ID (`levee enrol ppk` makes it)"))
    })
}

/// The PPKs that there are, and their names: a line for each file, in order.
///
/// # Errors
/// The kernel's.
pub fn ppk_ids(state: &Path) -> io::Result<Vec<u8>> {
    let directory = state.join(PPKS);
    let mut files = Vec::new();
    for place in ["", "former"] {
        for entry in entries(&directory.join(place))? {
            let path = Path::new(place).join(entry.file_name());
            files.extend(path.extension().is_some_and(|end| end == "key").then_some(path));
        }
    }
    files.sort();
    let mut text = Vec::new();
    for path in files {
        let id = ppk_id(&directory.join(&path)).ok().flatten();
        let id = id.as_ref().map_or("", PpkId::as_str);
        text.extend(format!("{} {id}\n", path.display()).into_bytes());
    }
    Ok(text)
}

/// A PPK of a host: its file below [`PPKS`], and its name.
#[derive(Debug)]
pub struct HostPpk {
    /// The file.
    pub file: String,
    /// Its name.
    pub id: PpkId,
}

/// The PPKs of a host by such lines: the one that it has from the site file, by the name that its file says, and the one before it
/// while one follows the other.
pub fn ppks_of(ids: &[u8], host: &HostName, by_site: &PpkId) -> Vec<HostPpk> {
    let text = String::from_utf8_lossy(ids);
    let said = |file: &str| text.lines().find_map(|line| line.strip_prefix(file)?.strip_prefix(' '));
    let now = format!("{host}.key");
    let before = format!("former/{host}.key");
    let id = said(&now).and_then(|id| PpkId::new(id).ok()).unwrap_or_else(|| by_site.clone());
    let former = said(&before).and_then(|id| PpkId::new(id).ok());
    let former = former.map(|id| HostPpk { file: before, id });
    std::iter::once(HostPpk { file: now, id }).chain(former).collect()
}

/// A sealed copy of a small public file.
///
/// # Errors
/// As [`open`].
pub fn copy(path: &Path) -> io::Result<OwnedFd> {
    sealed("copy", &public(path).map_err(|e| hint(path, &e))?)
}

/// The signer's file in which it keeps how far the audit log is; made if need be, durably.
///
/// # Errors
/// The kernel's.
pub fn audit_chain(state: &Path) -> io::Result<OwnedFd> {
    let directory = state.join("signer");
    std::fs::create_dir_all(&directory)?;
    std::fs::set_permissions(&directory, Permissions::from_mode(0o700))?;
    let path = directory.join("audit.chain");
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    File::open(&directory)?.sync_all()?;
    Ok(file.into())
}

/// A place that checkpoints of the audit log are sent to.
///
/// # Errors
/// It cannot be opened: with what it is.
pub fn checkpoints(place: &CheckpointPlace) -> io::Result<OwnedFd> {
    let hint = |path: &Path, e: io::Error| {
        io::Error::new(e.kind(), format!("{}, where checkpoints are sent ([audit]): {e}", path.display()))
    };
    match place {
        CheckpointPlace::File(path) => {
            let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
            Ok(file.map_err(|e| hint(path, e))?.into())
        }
        CheckpointPlace::Syslog => {
            let path = Path::new("/dev/log");
            let socket = UnixDatagram::unbound()?;
            socket.connect(path).map_err(|e| hint(path, e))?;
            Ok(socket.into())
        }
    }
}

/// A sealed copy of the authority's revocation list, where there is one; one that cannot be read is an error.
///
/// # Errors
/// The kernel's.
pub fn revocations(list: &Path) -> io::Result<Option<OwnedFd>> {
    there(copy(list))
}

/// Opens a directory whose files are one process's own, made if need be, and gives that uid every file in it
/// (a warden's uids can differ from run to run).
///
/// # Errors
/// The kernel's.
pub fn own_directory(path: &Path, uid: u32) -> io::Result<OwnedFd> {
    std::fs::create_dir_all(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o700))?;
    let directory: OwnedFd = File::open(path)?.into();
    give(directory.as_fd(), path, uid)?;
    Ok(directory)
}

/// Changes the owner of a directory and all in it, through descriptors, following no link.
fn give(directory: std::os::fd::BorrowedFd<'_>, path: &Path, uid: u32) -> io::Result<()> {
    let (owner, group) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)));
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let inner: OwnedFd = File::open(entry.path())?.into();
            give(inner.as_fd(), &entry.path(), uid)?;
        } else {
            chownat(directory, entry.file_name(), owner, group, AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(rustix::fs::fchown(directory, owner, group)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_file_that_is_another_than_the_one_that_was_looked_at_is_not_used_nor_over_a_state_that_was_changed_since()
     {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
        let (site, turned) = ("the levels", "the same levels, turned round");
        let prepared = |checked: &str, site: &str| {
            let line = [
                "--server",
                "x",
                "--programs",
                "x",
                "--state",
                &at("state"),
                "--run",
                &at("run"),
                "--checked",
            ];
            let line = line.into_iter().chain([checked]).map(str::to_owned);
            prepare(&Options::parse(line).unwrap(), site).map(drop).map_err(|e| e.to_string())
        };
        let digest = |site: &str, pin: &str| hex(&Sha256::digest(format!("{site}{pin}")));
        // There was nothing yet, and is nothing.
        assert_eq!(prepared(&digest(site, ""), site), Ok(()));
        assert!(prepared(&digest(site, ""), turned).unwrap_err().contains("were changed while"));
        std::fs::write(place.path().join("state").join(PIN), "before").unwrap();
        assert_eq!(prepared(&digest(site, "before"), site), Ok(()));
        // `levee state migrate` was faster.
        std::fs::write(place.path().join("state").join(PIN), "moved").unwrap();
        assert!(prepared(&digest(site, "before"), site).unwrap_err().contains("were changed while"));
    }

    #[test]
    fn a_claim_is_for_root_alone_and_has_a_name_also_where_who_ends_the_one_before_takes_that_away() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(LOCK);
        std::fs::write(&path, "1").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        // `levee down`, which has waited for the end of the one before.
        let before = File::open(&path).unwrap();
        flock(&before, FlockOperation::LockExclusive).unwrap();
        let gone = path.clone();
        let down = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            std::fs::remove_file(gone).unwrap();
            drop(before);
        });
        let _claimed = claim(place.path(), "another").unwrap();
        down.join().unwrap();
        let named = File::open(&path).unwrap();
        assert_eq!(named.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(flock(&named, FlockOperation::NonBlockingLockExclusive), Err(Errno::WOULDBLOCK));
        let said = claim(place.path(), "another runs there").unwrap_err().to_string();
        assert!(said.contains("another runs there"), "{said}");
    }

    #[test]
    fn a_ppks_name_is_what_its_file_says_or_the_site_files_and_nothing_of_the_key() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join(PPKS);
        std::fs::create_dir_all(directory.join("former")).unwrap();
        let write = |file: &str, text: &str| std::fs::write(directory.join(file), text).unwrap();
        let key = "-----BEGIN PRESHARED KEY-----\nb2N0ZXRz\n-----END PRESHARED KEY-----\n";
        write("ws1.key", &format!("PPK_ID: one.00c0ffee\n{key}"));
        write("former/ws1.key", &format!("PPK_ID: one\n{key}"));
        write("ws2.key", key);
        write("ws3.key", &format!("PPK_ID: no name\n{key}"));
        write("ws4.key.new-1", &format!("PPK_ID: four\n{key}"));
        let ids = ppk_ids(state.path()).unwrap();
        let text = String::from_utf8(ids.clone()).unwrap();
        assert_eq!(text, "former/ws1.key one\nws1.key one.00c0ffee\nws2.key \nws3.key \n");
        ppk_id(&directory.join("ws3.key")).unwrap_err();
        let by_site = PpkId::new("by-site").unwrap();
        let of = |host: &str| -> Vec<(String, String)> {
            let all = ppks_of(&ids, &HostName::new(host).unwrap(), &by_site);
            all.into_iter().map(|ppk| (ppk.file, ppk.id.to_string())).collect()
        };
        let pair = |file: &str, id: &str| (file.to_owned(), id.to_owned());
        assert_eq!(of("ws1"), [pair("ws1.key", "one.00c0ffee"), pair("former/ws1.key", "one")]);
        assert_eq!(
            (of("ws2"), of("ws")),
            (vec![pair("ws2.key", "by-site")], vec![pair("ws.key", "by-site")])
        );
    }

    #[test]
    fn what_was_rotated_is_told_once_and_in_order_with_whether_it_may_not_have_ended() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(rotations(state.path()), []);
        let directory = state.path().join(ROTATIONS);
        std::fs::create_dir(&directory).unwrap();
        for name in ["3", "2.begun", "1"] {
            std::fs::write(directory.join(name), name).unwrap();
        }
        let told = [("1", false), ("2.begun", true), ("3", false)];
        assert_eq!(rotations(state.path()), told.map(|(text, begun)| (text.into(), begun)));
        assert_eq!(rotations(state.path()), []);
    }
}
