//! The process: takes its files and its channel, shuts itself in, and reads pipes until the warden is gone.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime};

use levee_ipc::log::{CHANNEL_FD, FILES, LARGEST, ToLogger};
use levee_ipc::{Channel, RecvError};
use levee_sys::fork::inherited;
use levee_sys::sandbox::Sandbox;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use time::OffsetDateTime;

use crate::pair::Pair;
use crate::source::Source;

/// The system calls that a logger may make.
const FILTER: &str = include_str!("../../../conf/seccomp/logger.toml");

/// Bytes taken from one pipe in one turn.
const TURN: usize = 16 << 10;
/// Messages of the warden's that are heard in one turn.
const MESSAGES: usize = 64;
/// Turns that are made over what is left when the warden is gone.
const LAST_TURNS: usize = 8;
/// Processes whose pipes are read, at most: the warden gives a few for each service.
const SOURCES: usize = 1_024;

/// A process's pipe.
struct Pipe {
    name: String,
    end: OwnedFd,
    source: Source,
}

/// The log and what was lost of it.
struct Log {
    pair: Pair,
    /// From when on time is counted, on a clock that does not step.
    began: Instant,
    /// Lines that the disk did not take.
    lost: u64,
}

/// All of it. Returns when the warden is gone or closes its end, when all that was in the pipes has been written.
///
/// # Errors
/// In words: what was not inherited, or a sandbox that cannot be entered.
pub fn serve() -> Result<(), String> {
    let take = |number| inherited(number).map_err(|e| e.to_string());
    let channel = Channel::from_fd(take(CHANNEL_FD)?);
    let files = [File::from(take(FILES[0])?), File::from(take(FILES[1])?)];
    let pair = Pair::new(files, LARGEST).map_err(|e| e.to_string())?;
    Sandbox::new(FILTER).enter().map_err(|e| e.to_string())?;
    let mut log = Log { pair, began: Instant::now(), lost: 0 };
    let mut pipes: Vec<Pipe> = Vec::new();
    while turn(&channel, &mut pipes, &mut log)? {}
    for _ in 0..LAST_TURNS {
        pipes.retain_mut(|pipe| pipe.read(&mut log));
    }
    let now = log.now();
    pipes.iter_mut().for_each(|pipe| pipe.source.finish(now, &mut |line| log.write(line)));
    Ok(())
}

/// One turn: waits, takes what the warden gives, reads each pipe once. False when the warden is gone.
fn turn(channel: &Channel, pipes: &mut Vec<Pipe>, log: &mut Log) -> Result<bool, String> {
    let mut fds = vec![PollFd::new(channel, PollFlags::IN)];
    fds.extend(pipes.iter().map(|pipe| PollFd::new(&pipe.end, PollFlags::IN)));
    let waiting = pipes.iter().any(|pipe| pipe.source.is_waiting());
    let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
    match poll(&mut fds, waiting.then_some(&limit)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(e) => return Err(format!("wait: {e}")),
    }
    let ready: Vec<bool> = fds.iter().skip(1).map(|fd| !fd.revents().is_empty()).collect();
    drop(fds);
    let mut open = ready.into_iter();
    // One whose every writer is gone is closed; it comes again if there is another.
    pipes.retain_mut(|pipe| !open.next().unwrap_or(false) || pipe.read(log));
    let now = log.now();
    pipes.iter_mut().for_each(|pipe| pipe.source.tick(now, &mut |line| log.write(line)));
    for _ in 0..MESSAGES {
        match channel.try_recv::<ToLogger>() {
            Ok(received) => {
                let ToLogger::Source(name) = received.message.clone();
                let Some(end) = received.into_fd() else {
                    return Err("the warden gave a source without a pipe".into());
                };
                pipes.retain(|pipe| pipe.name != name);
                if pipes.len() < SOURCES {
                    pipes.push(Pipe { source: Source::new(&name, now), name, end });
                }
            }
            Err(RecvError::Empty) => return Ok(true),
            Err(RecvError::Closed) => return Ok(false),
            Err(e) => return Err(e.to_string()),
        }
    }
    Ok(true)
}

impl Pipe {
    /// Takes what is there, up to [`TURN`] bytes. False when nobody can write any more.
    fn read(&mut self, log: &mut Log) -> bool {
        let mut bytes = [0; TURN];
        let now = log.now();
        match rustix::io::read(&self.end, &mut bytes) {
            Ok(0) => {
                self.source.finish(now, &mut |line| log.write(line));
                false
            }
            Ok(length) => {
                let bytes = bytes.get(..length).unwrap_or_default();
                self.source.take(bytes, now, &mut |line| log.write(line));
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }
}

impl Log {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn write(&mut self, line: &str) {
        if self.lost > 0 {
            let count = format!("[{} lines lost: the disk did not take them]", self.lost);
            if self.pair.write(stamped(&count).as_bytes()).is_err() {
                self.lost = self.lost.saturating_add(1);
                return;
            }
            self.lost = 0;
        }
        if self.pair.write(stamped(line).as_bytes()).is_err() {
            self.lost = 1;
        }
    }
}

/// A line with the time before it (RFC 3339, UTC, milliseconds) and its end.
fn stamped(line: &str) -> String {
    let at = OffsetDateTime::from(SystemTime::now());
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second, milli) = at.to_hms_milli();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z {line}\n")
}
