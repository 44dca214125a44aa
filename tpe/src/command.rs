//! The commands: each asks the agent for one thing and says what came of it, in words or as JSON.

use crate::{access, release};
use levee_ipc::Secret;
use levee_ipc::client::{Lattice, RefusalKind};
use levee_ipc::tpe::{Answer, Command, Session, Status};
use levee_ipc::{Channel, RecvError};
use levee_policy::LabelName;
use levee_prices::{Carried, Forecast, Measured, Price, Told};
use levee_sys::terminal::typed_unseen;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{self, BufRead, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Where `levee up` makes run directories.
pub const RUNS: &str = "/run/levee";
/// The agent's socket, in its run directory.
const SOCKET: &str = "tpe.sock";

/// More levels than these are not listed where they were not asked for.
const SAID: usize = 8;

/// Who may speak with an agent, for whoever may not.
const OPEN: &str =
    "`people = \"GROUP\"` in the bundle's workstation.toml opens it to a group; root may use it";

/// What starts an agent, for whoever finds none.
const START: &str = "`levee up --workstation BUNDLE` starts it, as root";

/// The agent's socket: the one that was named, or the only one in a run directory below `runs`.
///
/// # Errors
/// There is none, or more than one.
pub fn socket(named: Option<PathBuf>, runs: &Path) -> Result<PathBuf, Fault> {
    if let Some(named) = named {
        return Ok(named);
    }
    let entries = std::fs::read_dir(runs).into_iter().flatten().filter_map(Result::ok);
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.path().join(SOCKET)).filter(|path| path.exists()).collect();
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(_), false) => Err(Fault::Local(format!(
            "several sites' agents run here: say which with --socket {}/…/{SOCKET}",
            runs.display()
        ))),
        (None, _) if !rustix::process::geteuid().is_root() => {
            Err(Fault::Local(format!("no agent of this workstation is open to you: {OPEN}")))
        }
        (None, _) => Err(Fault::Local(format!("no agent runs at this workstation: {START}"))),
    }
}

/// The bundle with which the workstation's part was started whose agent has this socket.
pub fn bundle(socket: &Path) -> Option<PathBuf> {
    let warden = std::fs::read_to_string(socket.with_file_name("lock")).ok()?;
    let line = std::fs::read(format!("/proc/{}/cmdline", warden.trim())).ok()?;
    let mut words = line.split(|byte| *byte == 0).skip_while(|word| *word != b"--workstation");
    let bundle = words.nth(1).filter(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(bundle)))
}

/// Why a command failed.
#[derive(Debug)]
pub enum Fault {
    /// The agent, or the server behind it, says no.
    Refused(RefusalKind, String),
    /// It could not be asked.
    Local(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(_, reason) | Self::Local(reason) => f.write_str(reason),
        }
    }
}

impl Fault {
    /// As JSON.
    pub fn json(&self) -> Value {
        match self {
            Self::Refused(kind, reason) => json!({ "error": kind, "reason": reason }),
            Self::Local(reason) => json!({ "error": "Failed", "reason": reason }),
        }
    }
}

/// Whether an agent does not hear this person.
pub fn is_closed(why: &str) -> bool {
    why.ends_with(OPEN)
}

fn local(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Fault {
    let what = what.to_string();
    move |error| Fault::Local(format!("{what}: {error}"))
}

/// The agent's socket.
pub struct Agent(Channel);

impl Agent {
    /// Connects to the agent.
    pub fn connect(path: &Path) -> Result<Self, Fault> {
        let at = path.display();
        let connected = || -> io::Result<OwnedFd> {
            let address = SocketAddrUnix::new(path)?;
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
            connect(&socket, &address)?;
            Ok(socket)
        };
        connected().map(|socket| Self(Channel::from_fd(socket))).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                Fault::Local(format!("no agent answers at {at}: {START}"))
            }
            io::ErrorKind::PermissionDenied => {
                Fault::Local(format!("the agent at {at} is not open to you: {OPEN}"))
            }
            _ => Fault::Local(format!("the agent at {at}: {error}")),
        })
    }

    /// The channel itself.
    pub fn channel(&self) -> &Channel {
        &self.0
    }

    /// Says what is asked for, with what comes along. An agent that does not listen has said why.
    pub fn say(&self, command: &Command, fds: &[BorrowedFd<'_>]) -> Result<(), Fault> {
        let Err(error) = self.0.send_with(command, fds) else { return Ok(()) };
        match self.answer() {
            Err(refused @ Fault::Refused(..)) => Err(refused),
            _ => Err(Fault::Local(format!("the agent: {error}"))),
        }
    }

    /// Asks for one thing, and gives `waiting` what the agent says before it answers.
    pub fn ask(self, command: &Command, mut waiting: impl FnMut(&str)) -> Result<Answer, Fault> {
        self.say(command, &[])?;
        loop {
            match self.answer()? {
                Answer::Waiting(why) => waiting(&why),
                answer => return Ok(answer),
            }
        }
    }

    /// Waits for the answer, or for what is said before it.
    pub fn answer(&self) -> Result<Answer, Fault> {
        let heard = match self.0.recv::<Answer>() {
            // It closed without reading what it was sent; the kernel says so once, before what it said last.
            Err(RecvError::Io(_)) => self.0.recv::<Answer>(),
            heard => heard,
        };
        match heard {
            Ok(received) => match received.message {
                Answer::Refused { kind, reason } => Err(Fault::Refused(kind, reason)),
                answer => Ok(answer),
            },
            Err(RecvError::Closed) => Err(Fault::Local("the agent ended before it answered".into())),
            Err(error) => Err(Fault::Local(format!("the agent: {error}"))),
        }
    }
}

/// Where a password comes from.
pub enum PasswordSource {
    /// The first line of this file.
    File(PathBuf),
    /// The next line of standard input.
    Stdin,
    /// The person, without an echo.
    Prompt,
}

fn secret(mut line: Zeroizing<Vec<u8>>) -> Result<Secret, Fault> {
    let end = line.iter().position(|&byte| byte == b'\n').unwrap_or(line.len());
    line.truncate(end);
    Secret::new(line.to_vec()).ok_or_else(|| Fault::Local("the password is too long".into()))
}

fn line_of(mut source: impl BufRead) -> io::Result<Zeroizing<Vec<u8>>> {
    // Sized beforehand: a buffer that grows would leave unerased copies behind.
    let mut line = Zeroizing::new(Vec::with_capacity(Secret::MAX + 2));
    let mut byte = Zeroizing::new([0u8]);
    while line.len() <= Secret::MAX {
        match source.read(byte.as_mut()) {
            Ok(0) => break,
            Ok(_) if *byte == [b'\n'] => break,
            Ok(_) => line.extend_from_slice(byte.as_ref()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(line)
}

impl PasswordSource {
    /// Reads one password; `prompt` says which.
    pub fn read(&self, prompt: &str) -> Result<Secret, Fault> {
        match self {
            Self::File(path) => {
                let read = || {
                    let file = std::fs::File::open(path)?;
                    line_of(io::BufReader::new(file))
                };
                secret(read().map_err(local(path.display()))?)
            }
            Self::Stdin => secret(line_of(io::stdin().lock()).map_err(local("standard input"))?),
            Self::Prompt => {
                let terminal = std::fs::File::options().read(true).write(true).open("/dev/tty");
                let terminal = terminal
                    .map_err(local("no terminal to ask for the password (--password-stdin reads it)"))?;
                typed_unseen(terminal.as_fd(), || write!(&terminal, "{prompt}: "))
                    .map_err(|e| Fault::Local(e.to_string()))?;
                secret(line_of(io::BufReader::new(&terminal)).map_err(local("the terminal"))?)
            }
        }
    }
}

/// What was asked of its tunnel, where anything was.
fn protection(session: &Session) -> String {
    let names: Vec<&str> = session.protections.iter().map(|name| name.as_str()).collect();
    if names.is_empty() { String::new() } else { format!(" with protection {}", names.join(" and ")) }
}

/// What its tunnel costs, where something was asked of it.
fn costs(session: &Session) -> String {
    if session.protections.is_empty() {
        return String::new();
    }
    match &session.costs {
        Ok(forecast) => format!("\nwhat that costs here, {forecast}"),
        Err(why) => format!("\nwhat that costs here is {why}"),
    }
}

/// In milliseconds, as every time is in JSON; the file of prices has finer units.
fn costs_json(costs: &Told) -> Value {
    let price = |price: &Price| {
        let measured = |value: Option<Measured>| value.map(Measured::all);
        let milliseconds = |value: Option<Measured>, of_one: f64| {
            measured(value).map(|all| all.map(|one| one as f64 / of_one))
        };
        json!({
            "cipher": price.cipher,
            "interval_ms": match price.carried {
                Carried::Each => None,
                Carried::Constant(interval) => Some(interval as f64 / 1e3),
            },
            "gigabyte_ms": milliseconds(price.gigabyte, 1e3),
            "packet_ms": milliseconds(price.packet, 1e6),
            "trip_ms": milliseconds(price.trip, 1e6),
            "wire_permille": measured(price.wire),
            "standing_ms": milliseconds(price.standing, 1e3),
            "standing_wire": measured(price.standing_wire),
        })
    };
    match costs {
        Ok(Forecast { measured, price: with, without }) => json!({
            "measured": measured.saturating_mul(1_000),
            "price": price(with),
            "without": without.as_ref().map(price),
        }),
        Err(why) => json!({ "unpredicted": why }),
    }
}

fn session_json(session: &Session) -> Value {
    json!({
        "id": session.id,
        "label": session.label,
        "colour": session.colour,
        "inner": session.inner,
        "services": session.services,
        "protections": session.protections,
        "costs": costs_json(&session.costs),
    })
}

/// An answer as JSON.
pub fn to_json(answer: &Answer) -> Value {
    match answer {
        Answer::LoggedIn { labels, lattice, clearance } => {
            json!({ "labels": labels, "lattice": lattice, "clearance": clearance })
        }
        Answer::Opened(session) => session_json(session),
        Answer::Exited(status) => json!({ "status": status }),
        Answer::Status(Status { connected, user, labels, lattice, session, locked, ended, notice }) => {
            json!({
                "connected": connected,
                "user": user,
                "labels": labels,
                "lattice": lattice,
                "session": session.as_ref().map(session_json),
                "locked": locked,
                "ended": ended,
                "notice": notice,
            })
        }
        Answer::PasswordChanged => json!({ "changed": true }),
        Answer::Releases(waiting) => release::list_json(waiting),
        Answer::Message(content) => release::message_json(content),
        Answer::Released(released) => json!({ "released": released }),
        Answer::Accesses(services) => access::json(services),
        Answer::AccessChanged => json!({ "changed": true }),
        Answer::Locked => json!({ "locked": true }),
        Answer::Unlocked => json!({ "locked": false }),
        Answer::LoggedOut => json!({ "signed_off": true }),
        Answer::Waiting(why) => json!({ "waiting": why }),
        Answer::Refused { kind, reason } => json!({ "error": kind, "reason": reason }),
    }
}

/// The levels that may be chosen, as JSON; what they are made of, where they are too many to list.
pub fn labels_json(status: &Status) -> Value {
    json!({ "labels": status.labels, "lattice": status.lattice })
}

/// The levels that may be chosen, one a line; where they are too many to list, what they are made of as well.
pub fn labels_text(status: &Status) -> String {
    let mut lines: Vec<String> = status.labels.iter().map(LabelName::to_string).collect();
    if let Some(lattice) = &status.lattice {
        lines.insert(
            0,
            format!("# the lowest and the highest of {}; any of these may be typed:", lattice.count),
        );
        lines.push(format!("# levels: {}", lattice.levels.join(" ")));
        lines.push(format!("# categories: {}", lattice.categories.join(" ")));
    }
    lines.join("\n")
}

/// A person's levels in words: all of them, or how many there are.
fn levels(labels: &[LabelName], lattice: Option<&Lattice>) -> String {
    match (lattice, labels.len()) {
        (Some(lattice), _) => {
            format!(
                "{} levels, from {}: `levee-tpe labels` says of what they are made",
                lattice.count,
                list(labels).replacen(' ', " to ", 1)
            )
        }
        (None, 0) => "no level may be chosen from this workstation".into(),
        (None, 1) => format!("level: {}", list(labels)),
        (None, 2..=SAID) => format!("{} levels: {}", labels.len(), list(labels)),
        (None, many) => format!("{many} levels: `levee-tpe labels` lists them"),
    }
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

/// An answer in words.
pub fn to_text(answer: &Answer) -> String {
    match answer {
        Answer::LoggedIn { labels, lattice, clearance } => {
            format!("signed on; clearance {clearance}; {}", levels(labels, lattice.as_ref()))
        }
        Answer::Opened(session) => format!(
            "session {} at {}{}; own address {}; services at {}: levee-tpe services lists them{}",
            session.id,
            session.label,
            protection(session),
            list(&session.inner),
            list(&session.services),
            costs(session)
        ),
        Answer::Exited(status) => format!("ended with status {status}"),
        Answer::Status(Status { connected, user, session, locked, ended, notice, .. }) => {
            let path = match (connected, user) {
                (true, _) => "up",
                (false, Some(_)) => "down",
                (false, None) => "none, since nobody is signed on",
            };
            let mut lines = vec![format!("trusted path: {path}")];
            lines.push(
                user.as_ref()
                    .map_or_else(|| "nobody is signed on".into(), |user| format!("signed on: {user}")),
            );
            if let Some(session) = session {
                let locked = if *locked { ": locked; levee-tpe unlock" } else { "" };
                lines.push(format!("session {} at {}{locked}", session.id, session.label));
            }
            lines.extend(notice.clone());
            if let Some(reason) = ended {
                lines.push(format!("the last session or sign-on ended: {reason}"));
            }
            lines.join("\n")
        }
        Answer::PasswordChanged => "the password is changed".into(),
        Answer::Releases(waiting) => release::list_text(waiting),
        Answer::Message(content) => release::message_text(content, release::columns()),
        Answer::Released(released) => release::outcome(*released).into(),
        Answer::Accesses(services) => access::text(services),
        Answer::AccessChanged => "it is so: nothing passes by what was so before".into(),
        Answer::Locked => "locked: nothing of the session passes until levee-tpe unlock".into(),
        Answer::Unlocked => "unlocked".into(),
        Answer::LoggedOut => "signed off".into(),
        Answer::Waiting(why) => why.clone(),
        Answer::Refused { reason, .. } => reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_on_says_how_many_levels_there_are_and_never_a_part_as_if_it_were_all() {
        let labels = |many: usize| -> Vec<LabelName> {
            (0..many).map(|number| LabelName::new(&format!("L{number}")).unwrap()).collect()
        };
        let says = |many, lattice| {
            to_text(&Answer::LoggedIn { labels: labels(many), lattice, clearance: "L0..L9".into() })
        };
        assert_eq!(says(2, None), "signed on; clearance L0..L9; 2 levels: L0 L1");
        assert_eq!(says(128, None), "signed on; clearance L0..L9; 128 levels: `levee-tpe labels` lists them");
        assert!(says(0, None).contains("no level"));
        let lattice = Lattice { count: 12_288, ..Lattice::default() };
        assert!(
            says(2, Some(lattice)).contains("12288 levels, from L0 to L1:"),
            "never the ends as if they were all"
        );
    }

    #[test]
    fn the_only_agent_is_meant_and_where_there_is_none_or_more_it_is_said_what_to_do() {
        let place = tempfile::tempdir().unwrap();
        let found = || socket(None, place.path()).map_err(|fault| fault.to_string());
        let run = |name: &str| {
            let run = place.path().join(name);
            std::fs::create_dir(&run).unwrap();
            run.join(SOCKET)
        };
        let none = found().unwrap_err();
        assert!(none.contains("levee up --workstation") || none.contains("sudo"), "{none}");
        let server = run("harbour");
        assert!(found().is_err(), "a server has no agent");
        let first = run("harbour-ws");
        std::fs::write(&first, "").unwrap();
        assert_eq!(found().unwrap(), first);
        std::fs::write(run("fleet-ws"), "").unwrap();
        assert!(found().unwrap_err().contains("--socket"));
        assert_eq!(socket(Some(server.clone()), place.path()).ok(), Some(server.clone()));
        // What a named socket that nobody serves says.
        let dead = Agent::connect(&server).err().map(|fault| fault.to_string()).unwrap();
        assert!(dead.contains("harbour/tpe.sock") && dead.contains("levee up --workstation"), "{dead}");
    }
}
