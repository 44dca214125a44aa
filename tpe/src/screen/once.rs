//! `levee-tpe run` at a terminal: the screen for one program, and then its text under the level's name.
//!
//! The text is what the parser made of the program's output. It is printed between two lines of our own, so that what looks
//! like a prompt there is seen to be a program's, and of which level.

use super::parser::News;
use super::{Over, Program, Screen, View, terminal};
use crate::command::Fault;
use levee_ipc::tpe::Input;
use levee_ipc::{RecvError, steers};
use levee_sys::fork::Forker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// What a program has written is there at once when it has ended.
const PATIENCE: Duration = Duration::from_secs(3);
/// So much is taken of it, each line counted with some octets more, and whatever is no line as so many: what the reader keeps is less. It is not believed.
const MOST: usize = 16 << 20;
/// See [`MOST`].
const BESIDE: [usize; 2] = [16, 32 << 10];

/// What came of the program.
#[derive(Default)]
pub struct Outcome {
    over: Option<Over>,
    lines: Vec<String>,
    dropped: u64,
}

impl Outcome {
    /// The program has ended: takes what it has written.
    pub fn take(&mut self, program: Program, over: Over) {
        self.dropped = program.dropped;
        if matches!(over, Over::Exited(_)) {
            self.read(&program);
        }
        self.over = Some(over);
    }

    fn read(&mut self, program: &Program) {
        program.parser.finish();
        let (until, mut taken) = (Instant::now() + PATIENCE, 0);
        while taken < MOST {
            let said = program.parser.channel.try_recv::<News>().map(|received| received.message);
            taken += match &said {
                Ok(News::Line(line)) => line.len() + BESIDE[0],
                _ => BESIDE[1],
            };
            match said {
                Ok(News::Line(line)) => self.lines.push(line),
                Ok(News::Dropped(count)) => self.dropped = count,
                Ok(News::End) => return,
                Ok(News::Row { .. } | News::Cursor { .. }) => {}
                Err(RecvError::Empty) => {
                    let left = until.saturating_duration_since(Instant::now());
                    let Ok(wait) = Timespec::try_from(left) else { return };
                    let mut fds = [PollFd::new(&program.parser.channel, PollFlags::IN)];
                    if matches!(poll(&mut fds, Some(&wait)), Ok(0)) {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    fn print(&self, label: &str, status: u8) -> io::Result<()> {
        if self.lines.is_empty() && self.dropped == 0 {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        // In reverse: no line of the program's can be that.
        let mut rule = |words: &str| writeln!(out, "\x1b[7m {label} \x1b[0m {words}");
        rule("a program's words follow")?;
        for line in &self.lines {
            // The parser is not believed.
            let line: String = line.chars().map(|c| if steers(c) { ' ' } else { c }).collect();
            writeln!(out, "{line}")?;
        }
        let mut rule = |words: &str| writeln!(out, "\x1b[7m {label} \x1b[0m {words}");
        match self.dropped {
            0 => rule(&format!("end of its words, status {status}")),
            many => {
                rule(&format!("end of its words, status {status}; orders to the terminal dropped: {many}"))
            }
        }
    }
}

impl Screen {
    /// The one program that this screen is for has come to an end otherwise than by itself.
    pub(super) fn end_once(&mut self, over: Over) {
        if let Some(outcome) = &mut self.once {
            outcome.over.get_or_insert(over);
            self.leave = true;
        }
    }
}

/// Runs `argv` on the whole terminal, under the level's banner, to its end; its exit status, or 128 plus the number of the
/// signal that ended it.
///
/// # Errors
/// What the agent or the server refuses, and a terminal that cannot be used.
pub fn run(socket: &Path, argv: Vec<String>, input: Input, file: Option<OwnedFd>) -> Result<u8, Fault> {
    let failed = |error: io::Error| Fault::Local(format!("the terminal: {error}"));
    let forker = Forker::new().map_err(failed)?;
    let size = terminal::size().map_err(failed)?;
    let mut screen = Screen::new(socket, forker, size);
    screen.once = Some(Outcome::default());
    screen.refresh();
    let session = screen.status.as_ref().and_then(|status| status.session.as_ref());
    let label = session.map(|session| session.label.to_string()).unwrap_or_default();
    // What the agent refuses it says before the screen is taken.
    screen.program = Some(screen.start(argv, input, file)?);
    screen.view = View::Program;
    // As large as it is by now: what the agent had to say took its time.
    screen.size = terminal::size().map_err(failed)?;
    let mut terminal = terminal::take(screen.size).map_err(failed)?;
    screen.fit();
    let served = screen.serve(&mut terminal);
    terminal::give_back();
    served.map_err(failed)?;
    let outcome = screen.once.take().unwrap_or_default();
    match outcome.over {
        Some(Over::Exited(status)) => {
            // What was done is done, whether or not anybody reads of it.
            let _ = outcome.print(&label, status);
            Ok(status)
        }
        Some(Over::Fault(fault)) => Err(fault),
        None => Err(Fault::Local("the program was left".into())),
    }
}
