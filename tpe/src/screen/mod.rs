//! `levee-tpe` without arguments: the whole terminal, with the session's level above everything at all times.
//!
//! Programs never write to the person's terminal. What they write goes to a sandboxed process ([`parser`]), and what
//! comes from there is drawn below the banner. Ctrl-] leads back to the trusted menu from anywhere.

mod banner;
mod choices;
mod draw;
mod form;
mod keys;
mod labels;
mod locked;
mod once;
mod parser;
mod terminal;
mod text;

use crate::command::{Agent, Fault};
use crate::pty::pseudo_terminal;
use choices::{Choice, Chosen, Menu, Search};
use form::{Form, Typed};
use labels::{Offer, Picker};
use levee_ipc::RecvError;
use levee_ipc::client::RefusalKind;
use levee_ipc::tpe::{Answer, Command, Input, Output, Status};
use levee_policy::UserName;
use levee_sys::fork::Forker;
use parser::{News, Parser, Span};
use ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{Winsize, tcsetwinsize};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The banner is never older than this.
const REFRESH: Duration = Duration::from_secs(1);
/// So much of what a program's reader says is taken in a turn: then keys and the banner have theirs.
const TURN: usize = 64;
/// Bytes that keys may have waiting for a program that does not read.
const MAX_TYPED: usize = 64 * 1024;

/// What a program's terminal shows.
#[derive(Default)]
struct Pane {
    rows: Vec<Vec<Span>>,
    /// Row, column, and whether it is to be seen.
    cursor: (u16, u16, bool),
    application: bool,
}

/// A program that runs.
struct Program {
    agent: Agent,
    master: OwnedFd,
    parser: Parser,
    pane: Pane,
    typed: Vec<u8>,
    /// Orders to the terminal that the parser has dropped.
    dropped: u64,
}

/// How a program ended.
enum Over {
    Exited(u8),
    /// It could not be run, or not to its end.
    Fault(Fault),
}

impl Over {
    fn words(self) -> String {
        match self {
            Self::Exited(0) => "The program has ended.".into(),
            Self::Exited(status) => format!("The program has ended with status {status}."),
            Self::Fault(fault) => fault.to_string(),
        }
    }
}

enum View {
    Form(Form),
    Menu(Menu),
    Pick(Box<Picker>),
    Search(Box<Search>),
    Program,
    /// Nothing of the session is shown.
    Locked(Form),
}

struct Screen {
    socket: PathBuf,
    forker: Forker,
    status: Option<Status>,
    refreshed: Instant,
    /// Whether a key was pressed since the agent was asked last.
    touched: bool,
    program: Option<Program>,
    view: View,
    message: String,
    /// The whole terminal: rows, columns.
    size: (u16, u16),
    /// What is left of it for a program below the banner.
    room: (u16, u16),
    leave: bool,
    /// This screen is for one program and ends with it.
    once: Option<once::Outcome>,
}

pub use once::run as run_once;

/// Holds the terminal until the person leaves.
pub fn run(socket: &Path) -> Result<(), Fault> {
    let failed = |error: io::Error| Fault::Local(format!("the terminal: {error}"));
    let forker = Forker::new().map_err(failed)?;
    let size = terminal::size().map_err(failed)?;
    let mut terminal = terminal::take(size).map_err(failed)?;
    let mut screen = Screen::new(socket, forker, size);
    screen.refresh();
    if screen.status.as_ref().is_some_and(|status| status.user.is_some()) {
        screen.open_menu();
    }
    let result = screen.serve(&mut terminal);
    terminal::give_back();
    result.map_err(failed)
}

impl Screen {
    fn new(socket: &Path, forker: Forker, size: (u16, u16)) -> Self {
        Self {
            socket: socket.to_owned(),
            forker,
            status: None,
            refreshed: Instant::now(),
            touched: false,
            program: None,
            view: View::Form(Form::new(String::new())),
            message: String::new(),
            size,
            room: (size.0.saturating_sub(1), size.1),
            leave: false,
            once: None,
        }
    }

    fn serve(&mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        while !self.leave {
            self.resize(terminal)?;
            self.draw(terminal)?;
            self.wait()?;
            while event::poll(Duration::ZERO)? {
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => self.key(&key, terminal)?,
                    _ => {}
                }
            }
            self.hear_program();
            if self.refreshed.elapsed() >= REFRESH {
                self.refresh();
            }
        }
        Ok(())
    }

    fn draw(&self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        terminal.draw(|frame| {
            let hint = matches!(self.view, View::Program);
            let banner = banner::of(self.status.as_ref(), hint, frame.area().width);
            let (top, area) = draw::split(frame.area(), banner.rows.len());
            let (message, keys) = (self.message.as_str(), self.keys());
            let list = |frame: &mut Frame<'_>, title, lines: &[String], chosen, pinned| {
                draw::list(frame, area, &draw::List { title, lines, chosen, pinned }, message, &keys);
            };
            match (&self.view, &self.program) {
                (View::Program, Some(program)) => draw::pane(frame, area, &program.pane),
                (View::Form(form) | View::Locked(form), _) => draw::form(frame, area, form, message, &keys),
                (View::Menu(menu), _) => list(frame, "Trusted menu", &menu.items, menu.chosen, menu.pinned),
                (View::Pick(picker), _) => {
                    list(frame, "Level and categories", &picker.lines(), picker.chosen, 1);
                }
                (View::Search(search), _) => {
                    list(frame, &format!("Level: {}_", search.typed), &search.lines(), search.chosen, 0);
                }
                (View::Program, None) => {}
            }
            // Last, so that nothing is drawn over it.
            draw::banner(frame, top, &banner);
        })?;
        Ok(())
    }

    /// What can be pressed, as the line at the bottom says it.
    fn keys(&self) -> Vec<&'static str> {
        let back = self.program.is_some();
        let mut keys = match &self.view {
            View::Form(_) => return vec!["Tab: other field", "Enter: go on", "Esc, Ctrl-C: leave"],
            View::Menu(_) => vec!["Up Down Home End: move", "letter: jump", "Enter: choose"],
            View::Pick(_) => {
                vec!["Up Down Home End: move", "letter: jump", "Space, Enter: choose", "Esc: back"]
            }
            View::Search(_) => vec!["type a part, or all", "Up Down: move", "Enter: open", "Esc: back"],
            View::Program => return vec![],
            View::Locked(_) if self.once.is_some() => {
                return vec!["type your password", "Enter: unlock"];
            }
            View::Locked(_) => {
                return vec!["type your password", "Enter: unlock", "Ctrl-D: sign off", "Ctrl-C: leave"];
            }
        };
        if matches!(self.view, View::Menu(_)) && back {
            keys.push("Esc: back");
        }
        if self.once.is_none() {
            if !matches!(self.view, View::Search(_)) {
                keys.push("/: search");
            }
            keys.extend(["Ctrl-D: sign off", "Ctrl-C: leave"]);
        }
        keys
    }

    fn wait(&self) -> io::Result<()> {
        let stdin = io::stdin();
        let mut fds = vec![PollFd::new(&stdin, PollFlags::IN)];
        if let Some(program) = &self.program {
            fds.push(PollFd::new(&program.parser.channel, PollFlags::IN));
            fds.push(PollFd::new(program.agent.channel(), PollFlags::IN));
            if !program.typed.is_empty() {
                fds.push(PollFd::new(&program.master, PollFlags::OUT));
            }
        }
        let left = REFRESH.saturating_sub(self.refreshed.elapsed());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            // A signal such as SIGWINCH; crossterm knows which.
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn ask(&self, command: &Command) -> Result<Answer, Fault> {
        Agent::connect(&self.socket)?.ask(command, |_| {})
    }

    fn refresh(&mut self) {
        self.refreshed = Instant::now();
        let before = self.status.take();
        let touched = std::mem::take(&mut self.touched);
        self.status = match self.ask(if touched { &Command::Active } else { &Command::Status }) {
            Ok(Answer::Status(status)) => Some(status),
            _ => None,
        };
        let id = |status: &Option<Status>| {
            status.as_ref().and_then(|status| status.session.as_ref()).map(|session| session.id.clone())
        };
        if id(&before).is_some() && id(&before) != id(&self.status) {
            // The programs of a session end with it; so does what they wrote.
            self.program = None;
            self.end_once(Over::Fault(Fault::Local("the session ended, and its programs with it".into())));
            if let Some(reason) = self.status.as_ref().and_then(|status| status.ended.clone()) {
                self.message = format!("The session was ended: {reason}");
            }
            self.leave_program();
        }
        // Somebody signed on in another place meanwhile, such as the command line.
        if matches!(self.view, View::Form(_))
            && self.status.as_ref().is_some_and(|status| status.user.is_some())
        {
            self.message.clear();
            self.open_menu();
        }
        self.follow_lock();
        self.fit();
    }

    /// Gives a program the room that the banner leaves it.
    fn fit(&mut self) {
        let (rows, columns) = self.size;
        let above = banner::of(self.status.as_ref(), true, columns).rows.len();
        let room = (rows.saturating_sub(u16::try_from(above).unwrap_or(u16::MAX)).max(1), columns);
        if room != self.room {
            self.room = room;
            if let Some(program) = &mut self.program {
                set_size(&program.master, room);
                program.parser.resize(room);
            }
        }
    }

    /// To where somebody is who has no program in front of them.
    fn leave_program(&mut self) {
        if self.is_locked() {
            return self.follow_lock();
        }
        if self.status.as_ref().is_some_and(|status| status.user.is_some()) {
            self.open_menu();
        } else if !matches!(self.view, View::Form(_)) {
            self.view = View::Form(Form::new(String::new()));
        }
    }

    fn open_menu(&mut self) {
        let session = self.status.as_ref().and_then(|status| status.session.as_ref());
        let mut choices = Vec::new();
        if self.program.is_some() {
            choices.push(Choice::Return);
        } else if session.is_some() {
            choices.push(Choice::Shell);
        }
        if self.once.is_some() {
            choices.extend([Choice::Lock, Choice::End]);
            return self.show_menu(choices);
        }
        let offer = self.offer();
        match offer.is_few() {
            true => {
                let others = offer.labels.iter().filter(|label| session.is_none_or(|s| s.label != **label));
                choices.extend(others.cloned().map(Choice::Level));
            }
            false => choices.extend([Choice::Pick, Choice::Search]),
        }
        if session.is_some() {
            choices.push(Choice::Lock);
        }
        choices.extend([Choice::SignOff, Choice::Leave]);
        self.show_menu(choices);
    }

    /// What the person may choose from.
    fn offer(&self) -> Offer {
        let status = self.status.as_ref();
        Offer {
            labels: status.map(|status| status.labels.clone()).unwrap_or_default(),
            lattice: status.and_then(|status| status.lattice.clone()),
        }
    }

    fn show_menu(&mut self, choices: Vec<Choice>) {
        self.view = View::Menu(Menu::new(choices, &self.offer()));
    }

    fn key(&mut self, key: &KeyEvent, terminal: &mut DefaultTerminal) -> io::Result<()> {
        self.touched = true;
        if keys::is_attention(key) {
            self.message.clear();
            self.refresh();
            self.leave_program();
            return Ok(());
        }
        let leaves = choices::is_control(key, 'c') && self.once.is_none();
        if leaves && !matches!(self.view, View::Program) {
            self.leave = true;
            return Ok(());
        }
        let signs_off = choices::is_control(key, 'd') && self.once.is_none();
        if signs_off && !matches!(self.view, View::Program | View::Form(_)) {
            return self.choose(&Choice::SignOff, terminal);
        }
        let chosen = match &mut self.view {
            View::Program => {
                if let Some(program) = &mut self.program {
                    let bytes = keys::encode(key, program.pane.application);
                    if program.typed.len() + bytes.len() <= MAX_TYPED {
                        program.typed.extend(bytes);
                    }
                }
                return Ok(());
            }
            View::Menu(menu) => menu.key(key),
            View::Pick(picker) => picker.key(key),
            View::Search(search) => search.key(key),
            View::Form(_) => return self.type_into_form(key, terminal),
            View::Locked(form) => {
                if form.key(key) == Typed::Whole {
                    self.unlock(terminal)?;
                }
                return Ok(());
            }
        };
        match chosen {
            Chosen::Nothing => {}
            Chosen::This(Choice::Search) if self.once.is_some() => {}
            Chosen::This(choice) => self.choose(&choice, terminal)?,
            Chosen::Back if !matches!(self.view, View::Menu(_)) => {
                self.message.clear();
                self.open_menu();
            }
            Chosen::Back if self.program.is_some() => self.view = View::Program,
            Chosen::Back => {}
            Chosen::Say(what) => self.message = what.into(),
        }
        Ok(())
    }

    fn type_into_form(&mut self, key: &KeyEvent, terminal: &mut DefaultTerminal) -> io::Result<()> {
        let View::Form(form) = &mut self.view else { return Ok(()) };
        match form.key(key) {
            Typed::Nothing => {}
            Typed::Whole => self.sign_on(terminal)?,
            Typed::Leave => self.leave = true,
        }
        Ok(())
    }

    fn sign_on(&mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        let View::Form(form) = &mut self.view else { return Ok(()) };
        let (user, password, code) = form.whole();
        self.message = "signing on …".into();
        self.draw(terminal)?;
        let answer = match (UserName::new(&user), password) {
            (Ok(user), Some(password)) => {
                let agent = Agent::connect(&self.socket);
                agent.and_then(|agent| {
                    agent.ask(&Command::Login { user, password, code }, |why| {
                        self.message = why.to_owned();
                        // What cannot be drawn now is drawn with the answer.
                        let _ = self.draw(terminal);
                    })
                })
            }
            _ => Err(Fault::Local("not a name".into())),
        };
        match answer {
            Ok(Answer::LoggedIn { clearance, .. }) => {
                self.refresh();
                self.message = format!("Clearance {clearance}; levels: {}", self.offer().count());
                self.open_menu();
            }
            Ok(_) => self.message = "the agent answered something else".into(),
            Err(Fault::Refused(RefusalKind::Code, _)) => {
                if let View::Form(form) = &mut self.view {
                    form.ask_code();
                }
                self.message = "Type the code that your second factor shows; Enter if you have none".into();
            }
            Err(fault) => {
                if let View::Form(form) = &mut self.view {
                    form.clear();
                }
                self.message = fault.to_string();
            }
        }
        Ok(())
    }

    fn choose(&mut self, choice: &Choice, terminal: &mut DefaultTerminal) -> io::Result<()> {
        if !self.is_open_to(choice) {
            self.follow_lock();
            return Ok(());
        }
        self.message.clear();
        match choice {
            Choice::Return => self.view = View::Program,
            Choice::Leave => self.leave = true,
            Choice::End => {
                // Its connection's end is its own (SIGHUP).
                self.program = None;
                self.end_once(Over::Exited(128 + 1));
            }
            Choice::Shell => self.start_shell(),
            Choice::Pick => self.view = View::Pick(Box::new(Picker::new(self.offer()))),
            Choice::Search => self.view = View::Search(Box::new(Search::new(self.offer()))),
            Choice::Level(label) => {
                self.message = format!("opening a session at {label} …");
                self.draw(terminal)?;
                let agent = Agent::connect(&self.socket);
                let opened = agent.and_then(|agent| {
                    agent.ask(&Command::Level(label.clone(), None), |why| {
                        self.message = why.to_owned();
                        // What cannot be drawn now is drawn with the answer.
                        let _ = self.draw(terminal);
                    })
                });
                match opened {
                    Ok(_) => {
                        self.program = None;
                        self.message.clear();
                        self.refresh();
                        self.start_shell();
                    }
                    Err(fault) => {
                        self.message = fault.to_string();
                        self.refresh();
                    }
                }
            }
            Choice::Lock => self.lock(terminal)?,
            Choice::SignOff => {
                self.message = "signing off …".into();
                self.draw(terminal)?;
                self.message = match self.ask(&Command::Logout) {
                    Ok(_) => "Signed off".into(),
                    Err(fault) => fault.to_string(),
                };
                self.program = None;
                let message = std::mem::take(&mut self.message);
                self.refresh();
                self.leave_program();
                self.message = message;
            }
        }
        Ok(())
    }

    fn start_shell(&mut self) {
        match self.shell() {
            Ok(program) => {
                self.program = Some(program);
                self.view = View::Program;
            }
            Err(fault) => {
                self.message = fault.to_string();
                self.open_menu();
            }
        }
    }

    fn shell(&self) -> Result<Program, Fault> {
        let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into());
        self.start(vec![shell], Input::Terminal, None)
    }

    fn start(&self, argv: Vec<String>, input: Input, file: Option<OwnedFd>) -> Result<Program, Fault> {
        let failed = |error: io::Error| Fault::Local(format!("a terminal for the shell: {error}"));
        let (master, slave) = pseudo_terminal().map_err(|error| failed(error.into()))?;
        set_size(&master, self.room);
        let agent = Agent::connect(&self.socket)?;
        // What the parser understands, whatever the person's own terminal is.
        let mut env = vec!["TERM=xterm-256color".to_owned()];
        env.extend(std::env::var("LANG").ok().map(|language| format!("LANG={language}")));
        let command = Command::Run { argv, env, input, output: Output::Terminal };
        let fds: Vec<_> = std::iter::once(slave.as_fd()).chain(file.iter().map(AsFd::as_fd)).collect();
        agent.say(&command, &fds)?;
        let output = master.try_clone().map_err(failed)?;
        let parser = Parser::start(&self.forker, output, self.room).map_err(failed)?;
        Ok(Program { agent, master, parser, pane: Pane::default(), typed: Vec::new(), dropped: 0 })
    }

    /// Takes the size that the terminal has now.
    fn resize(&mut self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        let size = terminal::size()?;
        if size == self.size {
            return Ok(());
        }
        self.size = size;
        terminal.resize(terminal::area(self.size))?;
        self.fit();
        Ok(())
    }

    fn hear_program(&mut self) {
        let Some(program) = &mut self.program else { return };
        let over = program.turn(self.room);
        if let Some(over) = over {
            let program = self.program.take();
            if let (Some(outcome), Some(program)) = (&mut self.once, program) {
                outcome.take(program, over);
                self.leave = true;
                return;
            }
            self.message = over.words();
            self.refresh();
            self.leave_program();
        }
    }
}

fn set_size(master: &OwnedFd, (rows, columns): (u16, u16)) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // A terminal that is gone needs no size.
    let _ = tcsetwinsize(master, size);
}

impl Program {
    /// Moves keys to the program and news to the pane; how it is over, if it is.
    fn turn(&mut self, (rows, columns): (u16, u16)) -> Option<Over> {
        if !self.typed.is_empty() {
            match rustix::io::write(&self.master, &self.typed) {
                Ok(bytes) => drop(self.typed.drain(..bytes.min(self.typed.len()))),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => self.typed.clear(),
            }
        }
        for _ in 0..TURN {
            match self.parser.channel.try_recv::<News>() {
                Ok(received) => match received.message {
                    News::Row { row, mut spans } if row < rows => {
                        // The parser is not believed.
                        spans.truncate(columns.into());
                        let row = usize::from(row);
                        if self.pane.rows.len() <= row {
                            self.pane.rows.resize(row + 1, Vec::new());
                        }
                        if let Some(place) = self.pane.rows.get_mut(row) {
                            *place = spans;
                        }
                    }
                    News::Row { .. } => {}
                    News::Cursor { row, column, visible, application } => {
                        self.pane.cursor = (row, column, visible);
                        self.pane.application = application;
                    }
                    News::Dropped(count) => self.dropped = count,
                    News::Line(_) | News::End => {}
                },
                Err(RecvError::Empty) => break,
                Err(_) => return local("the program's output could not be shown; it was ended"),
            }
        }
        match self.agent.channel().try_recv::<Answer>() {
            Ok(received) => match received.message {
                Answer::Exited(status) => Some(Over::Exited(status)),
                Answer::Refused { kind, reason } => Some(Over::Fault(Fault::Refused(kind, reason))),
                _ => local("the agent answered something else"),
            },
            Err(RecvError::Empty) => None,
            Err(_) => local("the agent ended, and the program with it"),
        }
    }
}

fn local(what: &str) -> Option<Over> {
    Some(Over::Fault(Fault::Local(what.into())))
}
