//! `levee-tpe run`: a program in the session's compartment, with pipes or a terminal made for it.
//!
//! The person's own terminal never enters the compartment: what a program could do to a terminal it does to one
//! that is thrown away with it.

use crate::command::{Agent, Fault};
use levee_ipc::RecvError;
use levee_ipc::tpe::{Answer, Command};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr, tcsetwinsize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Bytes moved at a time: PIPE_BUF, so that a pipe which has room takes them without waiting.
const CHUNK: usize = 4096;
/// After the program's end its last output is there at once; what others still write does not count.
const DRAIN: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

fn fault(what: &str, error: impl std::fmt::Display) -> Fault {
    Fault::Local(format!("{what}: {error}"))
}

/// Bytes from one descriptor to another.
struct Flow {
    from: Option<OwnedFd>,
    /// Closed once `from` has ended and everything is written.
    to: Option<OwnedFd>,
    waiting: Vec<u8>,
    /// Whether the program's end waits for this flow's.
    output: bool,
}

impl Flow {
    fn new(from: OwnedFd, to: OwnedFd, output: bool) -> Self {
        Self { from: Some(from), to: Some(to), waiting: Vec::new(), output }
    }

    fn interest(&self) -> Option<(&OwnedFd, PollFlags)> {
        match (&self.from, &self.to) {
            (_, Some(to)) if !self.waiting.is_empty() => Some((to, PollFlags::OUT)),
            (Some(from), Some(_)) => Some((from, PollFlags::IN)),
            _ => None,
        }
    }

    fn turn(&mut self) {
        if self.waiting.is_empty() {
            let mut chunk = [0u8; CHUNK];
            let read = self.from.as_ref().map(|from| rustix::io::read(from, &mut chunk));
            match read {
                Some(Ok(bytes @ 1..)) => {
                    self.waiting.extend_from_slice(chunk.get(..bytes).unwrap_or_default())
                }
                Some(Err(Errno::INTR | Errno::AGAIN)) => {}
                // The end; a terminal whose last program is gone gives EIO.
                Some(Ok(0) | Err(_)) | None => self.end(),
            }
        } else if let Some(to) = &self.to {
            match rustix::io::write(to, &self.waiting) {
                Ok(bytes) => drop(self.waiting.drain(..bytes.min(self.waiting.len()))),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => self.end(),
            }
        }
    }

    fn end(&mut self) {
        self.waiting.clear();
        (self.from, self.to) = (None, None);
    }
}

/// The person's terminal, raw while this lives.
struct Raw {
    terminal: OwnedFd,
    before: Termios,
}

impl Raw {
    fn new(terminal: OwnedFd) -> rustix::io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&terminal, OptionalActions::Drain, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(&self.terminal, OptionalActions::Drain, &self.before);
    }
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
pub fn run(agent: &Agent, argv: Vec<String>) -> Result<u8, Fault> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let own = |fd: &dyn AsFd| fd.as_fd().try_clone_to_owned().map_err(|e| fault("a descriptor", e));
    let pipe = || io::pipe().map_err(|e| fault("a pipe", e));
    let signals =
        Signals::new(&[SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH]).map_err(|e| fault("signals", e))?;
    let terminal = isatty(&stdin) && isatty(&stdout);
    // What a program needs to know of the terminal that it does not get.
    let env = ["TERM", "LANG"]
        .into_iter()
        .filter_map(|name| std::env::var(name).ok().map(|value| format!("{name}={value}")))
        .collect();
    let command = Command::Run { argv, env, terminal };
    let send = |fds: [&OwnedFd; 3]| {
        agent.channel().send_with(&command, &fds.map(AsFd::as_fd)).map_err(|e| fault("the agent", e))
    };
    if terminal {
        let (master, slave) = pseudo_terminal().map_err(|e| fault("a pseudo-terminal", e))?;
        resize(&master);
        send([&slave, &slave, &slave])?;
        drop(slave);
        let flows = vec![
            Flow::new(own(&stdin)?, own(&master)?, false),
            Flow::new(own(&master)?, own(&stdout)?, true),
        ];
        let raw = Raw::new(own(&stdin)?).map_err(|e| fault("the terminal", e))?;
        let result = relay(agent, flows, &signals, Some(&master));
        drop(raw);
        result
    } else {
        let (theirs_in, ours_in) = pipe()?;
        let (ours_out, theirs_out) = pipe()?;
        let (ours_err, theirs_err) = pipe()?;
        let (theirs_in, theirs_out, theirs_err) =
            (OwnedFd::from(theirs_in), OwnedFd::from(theirs_out), OwnedFd::from(theirs_err));
        send([&theirs_in, &theirs_out, &theirs_err])?;
        drop((theirs_in, theirs_out, theirs_err));
        let flows = vec![
            Flow::new(own(&stdin)?, ours_in.into(), false),
            Flow::new(ours_out.into(), own(&stdout)?, true),
            Flow::new(ours_err.into(), own(&stderr)?, true),
        ];
        relay(agent, flows, &signals, None)
    }
}

/// A new pseudo-terminal: its master, which does not block, and the side for programs.
pub fn pseudo_terminal() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let slave = ioctl_tiocgptpeer(&master, flags)?;
    rustix::io::ioctl_fionbio(&master, true)?;
    Ok((master, slave))
}

fn resize(master: &OwnedFd) {
    // A size that is not known is left alone.
    if let Ok(size) = tcgetwinsize(io::stdout()) {
        let _ = tcsetwinsize(master, size);
    }
}

fn relay(
    agent: &Agent,
    mut flows: Vec<Flow>,
    signals: &Signals,
    master: Option<&OwnedFd>,
) -> Result<u8, Fault> {
    let mut ended: Option<Result<u8, Fault>> = None;
    loop {
        let mut fds = vec![PollFd::new(
            agent.channel(),
            if ended.is_none() { PollFlags::IN } else { PollFlags::empty() },
        )];
        fds.extend(signals.0.iter().map(|(_, stream)| PollFd::new(stream, PollFlags::IN)));
        let first = fds.len();
        let mut moving = Vec::new();
        for (index, flow) in flows.iter().enumerate() {
            if let Some((fd, flags)) = flow.interest()
                && (ended.is_none() || flow.output)
            {
                moving.push(index);
                fds.push(PollFd::new(fd, flags));
            }
        }
        let over = ended.is_some();
        if over && moving.is_empty() {
            return ended.unwrap_or(Ok(0));
        }
        let came = match poll(&mut fds, over.then_some(&DRAIN)) {
            Ok(0) => return ended.unwrap_or(Ok(0)),
            Ok(_) => true,
            Err(Errno::INTR) => false,
            Err(error) => return Err(fault("poll", error)),
        };
        if !came {
            continue;
        }
        let ready: Vec<usize> = moving
            .iter()
            .zip(fds.get(first..).unwrap_or_default())
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|(index, _)| *index)
            .collect();
        let agent_ready = fds.first().is_some_and(|fd| !fd.revents().is_empty());
        drop(fds);
        for index in ready {
            if let Some(flow) = flows.get_mut(index) {
                flow.turn();
            }
        }
        for signal in signals.take() {
            match (signal, master) {
                (SIGWINCH, Some(master)) => resize(master),
                (SIGWINCH, None) => {}
                // An agent that is gone says so below.
                _ => drop(agent.channel().try_send(&Command::Signal(signal))),
            }
        }
        if agent_ready && !over {
            ended = match agent.channel().try_recv::<Answer>() {
                Ok(received) => Some(match received.message {
                    Answer::Exited(status) => Ok(status),
                    Answer::Refused { kind, reason } => Err(Fault::Refused(kind, reason)),
                    _ => Err(Fault::Local("the agent answered something else".into())),
                }),
                Err(RecvError::Empty) => None,
                Err(_) => Some(Err(Fault::Local("the agent ended, and the program with it".into()))),
            };
        } else if over && agent_ready && moving.is_empty() {
            return ended.unwrap_or(Ok(0));
        }
    }
}
