//! What goes into a program and comes out of it where that is no terminal: into memory files of the agent's own, which reach
//! the other side once the server has recorded size and digest. Nothing of a person's enters the compartment, and nothing
//! of the compartment's leaves it, but these bytes: no descriptor is on both sides.

use super::{Person, Source};
use levee_daemon::{Events, Watched};
use levee_ipc::tpe::MAX_CARRIED;
use levee_policy::decision::{Carry, Direction};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    FileType, MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fcntl_getfl, fstat,
    memfd_create,
};
use rustix::io::{Errno, pread, read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use sha2::{Digest as _, Sha256};
use std::os::fd::OwnedFd;

/// Bytes moved at a time.
const CHUNK: usize = 64 * 1024;

/// Nobody can change a file with these.
const SEALED: SealFlags =
    SealFlags::WRITE.union(SealFlags::GROW).union(SealFlags::SHRINK).union(SealFlags::SEAL);

/// A whole file that may be carried, in memory that nobody can change any more.
pub struct Whole {
    /// The file.
    pub file: OwnedFd,
    /// What the server is to record of it.
    pub record: Carry,
}

/// A file in the making.
struct Making {
    file: OwnedFd,
    digest: Sha256,
    bytes: u64,
}

impl Making {
    fn new() -> Result<Self, Errno> {
        let file = memfd_create("carried", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        Ok(Self { file, digest: Sha256::new(), bytes: 0 })
    }

    /// Takes more bytes; false if they are too many.
    fn take(&mut self, mut chunk: &[u8]) -> Result<bool, Errno> {
        self.bytes = self.bytes.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        if self.bytes > MAX_CARRIED {
            return Ok(false);
        }
        self.digest.update(chunk);
        while !chunk.is_empty() {
            match write(&self.file, chunk) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(n) => chunk = chunk.get(n..).ok_or(Errno::IO)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }

    fn finish(self, direction: Direction) -> Result<Whole, Errno> {
        fcntl_add_seals(&self.file, SEALED)?;
        rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Start(0))?;
        let record = Carry { direction, bytes: self.bytes, digest: self.digest.finalize().into() };
        Ok(Whole { file: self.file, record })
    }
}

/// Copies what a person wants to carry in. They may go on changing theirs; what is recorded is what the program gets. Theirs can be of a
/// file system that lets nobody go on: this is for a connection process alone.
///
/// # Errors
/// In words for the person.
pub fn import(theirs: &OwnedFd) -> Result<OwnedFd, String> {
    let stat = fstat(theirs).map_err(to_carry)?;
    // Reading anything else could wait for ever.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("what is to be carried in is no memory file".into());
    }
    let mut making = Making::new().map_err(to_carry)?;
    let mut chunk = vec![0; CHUNK];
    loop {
        match pread(theirs, &mut chunk, making.bytes) {
            Ok(0) => return making.finish(Direction::Import).map(|whole| whole.file).map_err(to_carry),
            Ok(n) => {
                if !making.take(chunk.get(..n).unwrap_or_default()).map_err(to_carry)? {
                    return Err(too_large());
                }
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(to_carry(e)),
        }
    }
}

fn to_carry(e: Errno) -> String {
    format!("the file to carry in: {e}")
}

fn too_large() -> String {
    format!("no more than {}M can be carried at a time", MAX_CARRIED >> 20)
}

/// What a connection process has copied, with what the server is to record of it.
///
/// # Errors
/// In words for the person.
pub fn imported(file: OwnedFd) -> Result<Whole, String> {
    // Memory files alone have seals, and those that nobody can change can be read without waiting for anybody.
    if fcntl_get_seals(&file).map_err(to_carry)? != SEALED {
        return Err("what is to be carried in is no sealed memory file".into());
    }
    let (mut digest, mut bytes, mut chunk) = (Sha256::new(), 0u64, vec![0; CHUNK]);
    loop {
        match pread(&file, &mut chunk, bytes) {
            Ok(0) => break,
            Ok(n) => {
                digest.update(chunk.get(..n).unwrap_or_default());
                bytes = bytes.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
                if bytes > MAX_CARRIED {
                    return Err(too_large());
                }
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(to_carry(e)),
        }
    }
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).map_err(to_carry)?;
    let record = Carry { direction: Direction::Import, bytes, digest: digest.finalize().into() };
    Ok(Whole { file, record })
}

/// The agent's end of a program's standard output or error.
pub struct Spool {
    /// Until the program has closed it, or has written too much.
    pipe: Option<Watched<OwnedFd>>,
    /// What has come; nothing is kept of what is discarded.
    kept: Result<Option<Making>, String>,
    chunk: Vec<u8>,
}

impl Spool {
    /// A spool that keeps what comes or discards it, and the program's end.
    pub fn new(keep: bool, program: Person, events: &mut Events<Source>) -> std::io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let ours = events.watch(ours, Source::Spool(program))?;
        let kept = if keep { Some(Making::new()?) } else { None };
        Ok((Self { pipe: Some(ours), kept: Ok(kept), chunk: vec![0; CHUNK] }, theirs))
    }

    /// Takes what has come, a little at a time; whether there was anything.
    pub fn turn(&mut self) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if !matches!(poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&now)), Ok(1..)) {
            return false;
        }
        match read(pipe, &mut self.chunk) {
            Ok(n @ 1..) => {
                let chunk = self.chunk.get(..n).unwrap_or_default();
                let taken = match &mut self.kept {
                    Ok(Some(making)) => {
                        making.take(chunk).map_err(|e| format!("what the program writes: {e}"))
                    }
                    _ => Ok(true),
                };
                let too_much =
                    || format!("the program wrote more than the {}M that can be carried", MAX_CARRIED >> 20);
                if let Err(why) = taken.and_then(|fits| if fits { Ok(()) } else { Err(too_much()) }) {
                    // The program hears of it by SIGPIPE.
                    (self.pipe, self.kept) = (None, Err(why));
                }
                true
            }
            Err(Errno::INTR) => true,
            Ok(_) | Err(_) => {
                self.pipe = None;
                false
            }
        }
    }

    /// The program has ended: what it has written, if it is kept. What others write from now on does not count.
    ///
    /// # Errors
    /// In words for the person.
    pub fn finish(mut self) -> Result<Option<Whole>, String> {
        // A pipe holds no more than this.
        for _ in 0..64 {
            if !self.turn() {
                break;
            }
        }
        match self.kept? {
            Some(making) => making.finish(Direction::Export).map(Some).map_err(|e| e.to_string()),
            None => Ok(None),
        }
    }
}

/// A standard input that has ended.
pub fn nothing() -> Result<OwnedFd, Errno> {
    pipe_with(PipeFlags::CLOEXEC).map(|(theirs, _)| theirs)
}

/// Whether this is the programs' side of a pseudo-terminal: what else it is could carry bytes past the record. For a connection process
/// alone, as [`import`] is.
pub fn is_terminal(fd: &OwnedFd) -> bool {
    // A descriptor that is only a name (O_PATH) has not opened the device: what its file system says of it need not be so.
    let is_open = || fcntl_getfl(fd).is_ok_and(|flags| !flags.contains(OFlags::PATH));
    // Major numbers 136 to 143 (Documentation/admin-guide/devices.txt: "Unix98 PTY slaves").
    let is_slave = || {
        fstat(fd).is_ok_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
                && (136..=143).contains(&rustix::fs::major(stat.st_rdev))
        })
    };
    is_open() && is_slave()
}
