//! `levee exec` and `levee put`: an operator does something within a label, after it is in the audit log.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use levee_ipc::operator::{Answer, Command, Entering};
use levee_policy::LabelName;
use ring::digest::{Context, SHA256};
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::thread::{Gid, Uid};

use crate::log::{self, Followed};
use crate::operator::Which;
use crate::output::{self, shown};
use crate::running::must_be_root;

/// Where a label's store is, within the label.
const STORE: &str = "srv/own";
/// How often the log is looked at.
const TURN: Duration = Duration::from_millis(250);
const CHUNK: usize = 64 << 10;
/// What a file that replaces another is called for a moment, in the store's first directory; this process's number follows.
const BESIDE: &str = ".levee-put-";
/// Exit status of `exec` where the program could not be run: no common program ends with it.
const NOT_RUN: u8 = 255;
const OTHER: &str = "the server answered another question";

/// Run a program within a label, as its services run
///
/// The program must be among those that the label's services have; it has the services' rights, nothing to read, and at most ten
/// minutes; it is killed where this command ends before it. What it writes goes into the label's log, and is shown from there. The label is
/// started for it where it does not run. It is in the audit log before it begins. The exit status is the program's, or 255 where it could not be run.
#[derive(Debug, clap::Args)]
pub struct Exec {
    #[command(flatten)]
    which: Which,
    /// The label
    label: LabelName,
    /// The server's state directory, for the label's log [default: that of the server that runs]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The program's absolute path, and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    argv: Vec<String>,
}

/// Put a file into a label's store
///
/// Its path, length and SHA-256 are in the audit log before it is there. It appears whole or not at all, in place of one of that name, and
/// belongs to the label's services. The label is started for it where it does not run.
#[derive(Debug, clap::Args)]
pub struct Put {
    #[command(flatten)]
    which: Which,
    /// The label
    label: LabelName,
    /// The file
    file: PathBuf,
    /// Where, in the store: names with slashes between them, such as reports/today.pdf, the file's own last; directories that are not there are made.
    /// A service with `program = "nginx"` serves the store as /own/
    path: PathBuf,
}

impl Exec {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        self.execute().unwrap_or_else(|message| {
            output::fault("Failed", &message);
            ExitCode::from(NOT_RUN)
        })
    }

    fn execute(self) -> Result<ExitCode, String> {
        must_be_root()?;
        let what = Entering::Execute(self.argv);
        if !what.is_bounded() {
            let (words, octets) = (Entering::WORDS, Entering::OCTETS);
            return Err(format!("a command has at most {words} words and {octets} octets"));
        }
        let (which, label) = (self.which, self.label);
        let label = which.typed(label)?;
        // Of the server that is asked, wherever its state is.
        let state = self.state.or_else(|| which.state());
        let mut log = Followed::from_now(log::directory(state, Some(&label))?);
        let asked = which.begin(&Command::Enter(label, what))?;
        let source = match asked.next()? {
            Answer::Began(source) => format!("{source}: "),
            Answer::Failed(why) => return Err(shown(&why)),
            _ => return Err(OTHER.to_owned()),
        };
        let asked = std::thread::spawn(move || asked.next());
        let said = |log: &mut Followed| {
            let said = log.more().unwrap_or_default();
            // A line begins with its instant.
            let ours = said.lines().filter_map(|line| line.split_once(' ')?.1.strip_prefix(&source));
            let ours: String = ours.map(|line| format!("{line}\n")).collect();
            output::print(&ours).map(|()| !ours.is_empty())
        };
        while !asked.is_finished() {
            std::thread::sleep(TURN);
            said(&mut log)?;
        }
        // Its last words are on their way to the log when it has ended.
        for _ in 0..8 {
            std::thread::sleep(TURN);
            if !said(&mut log)? {
                break;
            }
        }
        match asked.join().map_err(|_| "the question failed".to_owned())?? {
            Answer::Exited(status) => Ok(ExitCode::from(status)),
            Answer::Failed(why) => Err(not_run(&why)),
            _ => Err(OTHER.to_owned()),
        }
    }
}

/// Why a program was not run; where it is not there, what is.
fn not_run(why: &str) -> String {
    let there = match io::Error::from(rustix::io::Errno::NOENT).to_string().split(" (").next() {
        Some(missing) if why.contains(missing) => {
            "; at a label there is what its services need: `software` of a service brings more (site.toml(5))"
        }
        _ => "",
    };
    format!("{}{there}", shown(why))
}

impl Put {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(self.put())
    }

    fn put(mut self) -> Result<ExitCode, String> {
        self.label = self.which.typed(self.label)?;
        // The label's services and its copies are to read it, whatever this shell says.
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let names = names(&self.path)?;
        let from = |e: io::Error| format!("{}: {e}", self.file.display());
        let mut file = File::open(&self.file).map_err(from)?;
        let (bytes, sha256) = copy(&mut file, &mut io::sink()).map_err(from)?;
        let path = names.join("/");
        let what = Entering::Put { path: path.clone(), bytes, sha256 };
        if !what.is_bounded() {
            return Err(format!("a path has at most {} octets", Entering::OCTETS));
        }
        match self.which.ask(&Command::Enter(self.label.clone(), what))? {
            Answer::Ended => {}
            Answer::Failed(why) => return Ok(output::refused(&why)),
            _ => return Err(OTHER.to_owned()),
        }
        let store = self.store()?;
        let mut again = File::open(&self.file).map_err(from)?;
        // Who writes there is nobody but a service of the label: what the label has prepared there is met with its own rights.
        let written = std::thread::scope(|scope| {
            let written = scope.spawn(|| {
                become_owner(&store)?;
                write_at(&store, &names, &mut again, (bytes, sha256))
            });
            written.join().map_err(|_| "writing failed".to_owned())?
        });
        written.map_err(|e| format!("{path} at {}: {e}", self.label))?;
        output::said(&format!("{path} at {}: {bytes} bytes\n", self.label))?;
        Ok(ExitCode::SUCCESS)
    }

    /// The label's store, which it has as long as it runs.
    fn store(&self) -> Result<OwnedFd, String> {
        let init = || {
            let status = self.which.status()?;
            let running = status.compartments.iter().find(|one| one.label == self.label);
            running
                .map(|one| one.init)
                .filter(|init| *init > 0)
                .ok_or_else(|| format!("{} does not run any more; see `levee status`", self.label))
        };
        let pid = init()?;
        let fault = |e: rustix::io::Errno| format!("the store of {}: {e}", self.label);
        let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let process = rustix::fs::open(format!("/proc/{pid}"), path, Mode::empty()).map_err(fault)?;
        // A directory of /proc is of one process: if the number is that of the label still, it was when this was opened.
        if init()? != pid {
            return Err(format!("{} has just been started anew; try again", self.label));
        }
        let root = rustix::fs::openat(&process, "root", path, Mode::empty()).map_err(fault)?;
        beneath(&root, Path::new(STORE), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).map_err(fault)
    }
}

/// The names of a path in a store.
fn names(path: &Path) -> Result<Vec<String>, String> {
    let typed = shown(&path.display().to_string());
    // Who knows its address by nginx would have it in a directory of that name.
    let own = "; the store is what nginx serves as /own/, so that /own/today.pdf is today.pdf here";
    let own = if typed.trim_start_matches('/').starts_with("own/") { own } else { "" };
    if path.is_absolute() {
        return Err(format!("{typed}: a path in a store begins with a name: leave out the first slash{own}"));
    }
    // Of a path with a slash at its end components say nothing.
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(format!("{typed}: this names a directory: name the file too, as {typed}today.pdf{own}"));
    }
    let names = path.components().map(|part| match part {
        Component::Normal(name) => name.to_str().map(str::to_owned),
        _ => None,
    });
    let names: Option<Vec<String>> = names.collect();
    names.filter(|names| !names.is_empty()).ok_or_else(|| {
        format!("{typed}: a path in a store is names with slashes between them, such as reports/today.pdf")
    })
}

/// Copies to the end: how much it was, and its SHA-256.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<(u64, [u8; 32])> {
    let (mut chunk, mut bytes, mut digest) = (vec![0; CHUNK], 0u64, Context::new(&SHA256));
    loop {
        let n = match from.read(&mut chunk) {
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        let piece = chunk.get(..n).unwrap_or_default();
        if piece.is_empty() {
            let digest = digest.finish();
            return Ok((bytes, digest.as_ref().try_into().map_err(io::Error::other)?));
        }
        digest.update(piece);
        bytes = bytes.saturating_add(n as u64);
        to.write_all(piece)?;
    }
}

/// This thread becomes who owns the store, and nobody else: it has no capability afterwards.
fn become_owner(store: &OwnedFd) -> Result<(), String> {
    let fault = |e: rustix::io::Errno| e.to_string();
    let owner = rustix::fs::fstat(store).map_err(fault)?;
    if owner.st_uid == 0 || owner.st_gid == 0 {
        return Err("its store is root's, and no label's".to_owned());
    }
    let (uid, gid) = (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid));
    rustix::thread::set_thread_groups(&[]).map_err(fault)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(fault)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(fault)
}

/// Opens what is beneath a directory, by no link of any kind.
fn beneath(at: impl AsFd, path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(at, path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode, resolve)
}

/// Removes what commands before this one left when they were killed between their last two steps. Who still works has its file locked.
fn sweep(store: &OwnedFd) -> rustix::io::Result<()> {
    for entry in Dir::read_from(store)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_bytes().strip_prefix(BESIDE.as_bytes());
        if !number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit)) {
            continue;
        }
        // The label's programs can have made anything of such a name: what is no file is theirs, and stays.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let Ok(file) = rustix::fs::openat(store, name, flags, Mode::empty()) else { continue };
        let plain = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) == FileType::RegularFile;
        if plain && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            match rustix::fs::unlinkat(store, name, AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

/// Writes the file whole before it has a name: what is killed until then leaves nothing, and what is killed later the next one sweeps.
fn write_at(store: &OwnedFd, names: &[String], from: &mut File, said: (u64, [u8; 32])) -> Result<(), String> {
    let fault = |e: rustix::io::Errno| e.to_string();
    sweep(store).map_err(fault)?;
    let Some((name, directories)) = names.split_last() else { return Err("it has no name".to_owned()) };
    let mut at = store.try_clone().map_err(|e| e.to_string())?;
    for directory in directories {
        match rustix::fs::mkdirat(&at, directory, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(format!("{}: {e}", shown(directory))),
        }
        let inner = beneath(&at, Path::new(directory), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        at = inner.map_err(|e| format!("{}: {e}", shown(directory)))?;
    }
    let nameless = OFlags::WRONLY | OFlags::TMPFILE;
    let mut file =
        File::from(beneath(&at, Path::new("."), nameless, Mode::from_raw_mode(0o644)).map_err(fault)?);
    let written = copy(from, &mut file).and_then(|copied| file.sync_all().map(|()| copied));
    if written.map_err(|e| e.to_string())? != said {
        return Err("the file has changed since it was recorded; nothing was put there".to_owned());
    }
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = |at: &OwnedFd, name: &str| {
        rustix::fs::linkat(rustix::fs::CWD, &own, at, name, AtFlags::SYMLINK_FOLLOW)
    };
    match link(&at, name) {
        Err(rustix::io::Errno::EXIST) => {}
        placed => return placed.map_err(fault),
    }
    // In place of another: it has a name of its own for a moment, always in the same directory, where it is swept if this is killed.
    let beside = format!("{BESIDE}{}", std::process::id());
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(fault)?;
    link(store, &beside).map_err(fault)?;
    let placed = rustix::fs::renameat(store, &beside, &at, name).map_err(fault);
    if placed.is_err() {
        // What is not there any more need not go.
        let _ = rustix::fs::unlinkat(store, &beside, AtFlags::empty());
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn opened(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    #[test]
    fn a_path_in_a_store_has_names_alone() {
        assert_eq!(names(Path::new("a/b.html")).unwrap(), ["a", "b.html"]);
        for (wrong, remedy) in [
            ("", "such as reports/today.pdf"),
            ("/a", "leave out the first slash"),
            ("../a", "names with slashes between them"),
            ("a/../b", "names with slashes between them"),
            (".", "names with slashes between them"),
            ("/own/a.txt", "/own/today.pdf is today.pdf here"),
            ("own/", "name the file too, as own/today.pdf; the store is what nginx serves as /own/"),
            ("a/b//", "name the file too"),
        ] {
            let said = names(Path::new(wrong)).unwrap_err();
            assert!(said.contains(remedy), "{wrong}: {said}");
        }
    }

    #[test]
    fn a_file_appears_whole_by_no_link_and_not_where_it_is_another_than_was_recorded() {
        let (place, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let source = place.path().join("source");
        fs::write(&source, "three words here").unwrap();
        let open = || File::open(&source).unwrap();
        let said = copy(&mut open(), &mut io::sink()).unwrap();
        let put = |names: &[&str], said| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            write_at(&opened(store.path()), &names, &mut open(), said)
        };
        put(&["a", "b", "c"], said).unwrap();
        assert_eq!(fs::read_to_string(store.path().join("a/b/c")).unwrap(), "three words here");
        // A label's program has made a link to elsewhere of a directory, and of the name itself.
        symlink(place.path(), store.path().join("link")).unwrap();
        assert!(put(&["link", "c"], said).is_err());
        symlink(&source, store.path().join("c")).unwrap();
        put(&["c"], said).unwrap();
        assert!(store.path().join("c").symlink_metadata().unwrap().is_file());
        let other = (said.0, [0; 32]);
        assert!(put(&["d"], other).unwrap_err().contains("has changed"));
        let left: Vec<_> =
            fs::read_dir(store.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 3, "{left:?}");
    }

    #[test]
    fn a_file_has_no_name_in_the_store_until_it_is_whole() {
        let (place, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let source = place.path().join("source");
        rustix::fs::mknodat(rustix::fs::CWD, &source, rustix::fs::FileType::Fifo, Mode::RWXU, 0).unwrap();
        let mut both = fs::OpenOptions::new().read(true).write(true).open(&source).unwrap();
        let mut from = File::open(&source).unwrap();
        both.write_all(b"half").unwrap();
        let said = copy(&mut &b"half and half"[..], &mut io::sink()).unwrap();
        std::thread::scope(|scope| {
            let writes =
                scope.spawn(|| write_at(&opened(store.path()), &["page".to_owned()], &mut from, said));
            // The first half has been read.
            while rustix::io::ioctl_fionread(&both).unwrap() > 0 {
                std::thread::yield_now();
            }
            assert_eq!(fs::read_dir(store.path()).unwrap().count(), 0);
            both.write_all(b" and half").unwrap();
            drop(both);
            writes.join().unwrap().unwrap();
        });
        assert_eq!(fs::read_to_string(store.path().join("page")).unwrap(), "half and half");
    }

    #[test]
    fn what_a_command_that_was_killed_left_is_swept_and_what_another_is_at_stays() {
        let (place, store) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let source = place.path().join("source");
        fs::write(&source, "words").unwrap();
        let at = |name: &str| store.path().join(name);
        fs::write(at(".levee-put-4000001"), "left").unwrap();
        fs::write(at(".levee-put-4000002"), "at work").unwrap();
        let working = File::open(at(".levee-put-4000002")).unwrap();
        rustix::fs::flock(&working, FlockOperation::LockExclusive).unwrap();
        // The label's own.
        fs::write(at(".levee-put-notes"), "").unwrap();
        fs::create_dir(at(".levee-put-4000003")).unwrap();
        symlink(&source, at(".levee-put-4000004")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at(".levee-put-4000005"), FileType::Fifo, Mode::RWXU, 0)
            .unwrap();
        let put = |words: &str, names: &[&str]| {
            fs::write(&source, words).unwrap();
            let said = copy(&mut words.as_bytes(), &mut io::sink()).unwrap();
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            write_at(&opened(store.path()), &names, &mut File::open(&source).unwrap(), said).unwrap();
        };
        let there = || {
            let names = fs::read_dir(store.path()).unwrap().map(|entry| entry.unwrap().file_name());
            let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        put("first", &["a", "page"]);
        let theirs =
            [".levee-put-4000003", ".levee-put-4000004", ".levee-put-4000005", ".levee-put-notes", "a"];
        assert_eq!(there(), [&[".levee-put-4000002"][..], &theirs].concat());
        // It has ended, killed.
        drop(working);
        put("second", &["a", "page"]);
        assert_eq!(there(), theirs);
        assert_eq!(fs::read_to_string(at("a/page")).unwrap(), "second");
        assert_eq!(fs::read_dir(at("a")).unwrap().count(), 1);
    }
}
