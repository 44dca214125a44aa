//! `levee-tpe run`: a program in the session's compartment, with a terminal made for it, or with files that are recorded.
//!
//! The person's own terminal never enters the compartment: what a program could do to a terminal it does to one
//! that is thrown away with it, and what it writes there goes through the screen's parser.

use crate::command::{Agent, Fault};
use crate::screen;
use levee_ipc::tpe::{Answer, Command, Input, MAX_CARRIED, Output};
use levee_ipc::{RecvError, steers};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::termios::isatty;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Bytes moved at a time.
const CHUNK: usize = 64 * 1024;

fn fault(what: &str, error: impl std::fmt::Display) -> Fault {
    Fault::Local(format!("{what}: {error}"))
}

/// What the person allows to be carried.
#[derive(Clone, Copy, Debug)]
pub struct Carried {
    /// Out of the session.
    pub export: bool,
    /// Into it.
    pub import: bool,
}

/// Signals, each as a stream that is readable once it came.
struct Signals(Vec<(i32, UnixStream)>);

impl Signals {
    fn new(signals: &[i32]) -> io::Result<Self> {
        let mut streams = Vec::new();
        for &signal in signals {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, writer)?;
            streams.push((signal, reader));
        }
        Ok(Self(streams))
    }

    fn take(&self) -> Vec<i32> {
        let came = |stream: &UnixStream| matches!(rustix::io::read(stream, &mut [0u8; 64]), Ok(1..));
        self.0.iter().filter(|(_, stream)| came(stream)).map(|(signal, _)| *signal).collect()
    }
}

/// Runs `argv` to its end; its exit status, or 128 plus the number of the signal that ended it.
///
/// At a terminal, the program has a terminal of its own, and what it writes there is shown under the level's banner. Anything
/// else than a terminal is outside every level: nothing passes to it or from it that the server has not recorded.
///
/// # Errors
/// What would pass unrecorded, and what the agent or the server refuses.
pub fn run(socket: &Path, argv: Vec<String>, carried: Carried) -> Result<u8, Fault> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let output = match (carried.export, isatty(&stdout), is_null(&stdout)) {
        (true, ..) => Output::Export,
        (false, true, _) => Output::Terminal,
        (false, false, true) => Output::Discard,
        (false, false, false) => return Err(Fault::Local(UNRECORDED_OUT.into())),
    };
    let (input, file) = match (carried.import, isatty(&stdin), is_null(&stdin)) {
        (true, ..) => (Input::Import, Some(taken_in(&stdin)?)),
        (false, true, _) if output == Output::Terminal => (Input::Terminal, None),
        (false, true, _) | (false, false, true) => (Input::None, None),
        (false, false, false) => return Err(Fault::Local(UNRECORDED_IN.into())),
    };
    if output == Output::Terminal {
        return screen::run_once(socket, argv, input, file);
    }
    let signals = Signals::new(&[SIGHUP, SIGINT, SIGQUIT, SIGTERM]).map_err(|e| fault("signals", e))?;
    // What a program needs to know of the person.
    let env = std::env::var("LANG").ok().map(|language| format!("LANG={language}")).into_iter().collect();
    let agent = Agent::connect(socket)?;
    let fds: Vec<_> = file.iter().map(AsFd::as_fd).collect();
    let command = Command::Run { argv, env, input, output };
    agent.say(&command, &fds)?;
    let (status, files) = ended(&agent, &signals)?;
    if let [out, err] = files.as_slice() {
        pour(out, &stdout).map_err(|e| fault("standard output", e))?;
        let err_to = io::stderr();
        if isatty(&err_to) {
            // It is a program's word, and this terminal is not its.
            say(&text(err).map_err(|e| fault("what the program said", e))?);
        } else {
            pour(err, &err_to).map_err(|e| fault("standard error", e))?;
        }
    }
    Ok(status)
}

const UNRECORDED_OUT: &str = "standard output is no terminal: with --export what the program writes is carried out of the \
    session when it has ended, and recorded; to /dev/null it is discarded";
const UNRECORDED_IN: &str = "standard input is no terminal: with --import what it has is carried into the session, and \
    recorded; from /dev/null there is nothing";

/// Whether what is written here stays on a terminal, or nowhere.
pub fn is_shown(fd: impl AsFd) -> bool {
    isatty(&fd) || is_null(&fd)
}

/// Whether this is /dev/null.
fn is_null(fd: impl AsFd) -> bool {
    use rustix::fs::{FileType, fstat, major, minor};
    fstat(fd).is_ok_and(|stat| {
        let device = (major(stat.st_rdev), minor(stat.st_rdev));
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && device == (1, 3)
    })
}

/// All of standard input, as a file in memory.
fn taken_in(stdin: impl AsFd) -> Result<OwnedFd, Fault> {
    let file = rustix::fs::memfd_create("import", rustix::fs::MemfdFlags::CLOEXEC);
    let file = file.map_err(|e| fault("a file in memory", e))?;
    let mut all = 0u64;
    let mut chunk = vec![0; CHUNK];
    loop {
        let n = match rustix::io::read(&stdin, &mut chunk) {
            Ok(0) => return Ok(file),
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(e) => return Err(fault("standard input", e)),
        };
        all = all.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
        if all > MAX_CARRIED {
            let most = MAX_CARRIED >> 20;
            return Err(Fault::Local(format!(
                "no more than {most}M can be carried into a session at a time"
            )));
        }
        write_all(&file, chunk.get(..n).unwrap_or_default()).map_err(|e| fault("a file in memory", e))?;
    }
}

fn write_all(to: impl AsFd, mut rest: &[u8]) -> rustix::io::Result<()> {
    while !rest.is_empty() {
        match rustix::io::write(&to, rest) {
            Ok(n) => rest = rest.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // Waits until whoever reads it has read some.
                let _ = poll(&mut [PollFd::new(&to, PollFlags::OUT)], None);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Writes out a file that was carried out of the session.
fn pour(from: &OwnedFd, to: impl AsFd) -> rustix::io::Result<()> {
    let (mut at, mut chunk) = (0, vec![0; CHUNK]);
    loop {
        match rustix::io::pread(from, &mut chunk, at) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                write_all(&to, chunk.get(..n).unwrap_or_default())?;
                at = at.saturating_add(u64::try_from(n).unwrap_or(u64::MAX));
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// What a program said, without what a terminal would take for an order.
fn text(from: &OwnedFd) -> rustix::io::Result<String> {
    let mut bytes = vec![0; CHUNK];
    let n = rustix::io::pread(from, &mut bytes, 0)?;
    let text = String::from_utf8_lossy(bytes.get(..n).unwrap_or_default()).into_owned();
    Ok(text.chars().map(|c| if c == '\n' || !steers(c) { c } else { ' ' }).collect())
}

/// Each line with who said it before it, so that none is taken for ours.
fn say(text: &str) {
    for line in text.lines() {
        // What was done is done, whether or not anybody reads of it.
        let _ = writeln!(io::stderr(), "program: {line}");
    }
}

/// Waits for the program's end, and passes signals on meanwhile: its status, and what came out.
fn ended(agent: &Agent, signals: &Signals) -> Result<(u8, Vec<OwnedFd>), Fault> {
    loop {
        let mut fds = vec![PollFd::new(agent.channel(), PollFlags::IN)];
        fds.extend(signals.0.iter().map(|(_, stream)| PollFd::new(stream, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(fault("poll", error)),
        }
        drop(fds);
        for signal in signals.take() {
            // An agent that is gone says so below.
            drop(agent.channel().try_send(&Command::Signal(signal)));
        }
        match agent.channel().try_recv::<Answer>() {
            Ok(received) => {
                return match received.message {
                    Answer::Exited(status) => Ok((status, received.fds)),
                    Answer::Refused { kind, reason } => Err(Fault::Refused(kind, reason)),
                    _ => Err(Fault::Local("the agent answered something else".into())),
                };
            }
            Err(RecvError::Empty) => {}
            Err(_) => return Err(Fault::Local("the agent ended, and the program with it".into())),
        }
    }
}
