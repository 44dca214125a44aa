//! A service: how it is started, reached and recorded; and how `[[service]]` is read.

use serde::{Deserialize, Serialize};

use super::access::{self, Access};
use super::needs::{self, Needs};
use super::problem::ProblemKind;
use super::reach::Protocol;
use super::read::{At, Reader, Table};
use super::tables::{DraftUser, ReadTables};
use super::values::{NAME, command, port, protocol, range, unknown_word};
use crate::label::Range;
use crate::names::{ProtectionName, ServiceName};
use crate::vocabulary::{Vocabulary, nearest};

/// How a service is mediated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The daemon listens in its compartment; the security association's selectors decide.
    Direct,
    /// As there, but the program binds its port itself: it takes no socket that is there already. So no first connection can start it,
    /// and it runs as long as its label does.
    Itself,
    /// The label's mediator accepts each connection, has it granted and recorded, and hands it to a server process of its
    /// own.
    Handoff(Passed),
    /// The label's mediator accepts each connection, has it granted and recorded, and stays between it and the daemon, which
    /// nobody else reaches.
    Relay,
}

impl Mode {
    /// Its name in the site file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Itself => "itself",
            Self::Handoff(_) => "handoff",
            Self::Relay => "relay",
        }
    }

    /// Whether a mediator decides about each connection.
    pub fn is_mediated(self) -> bool {
        !matches!(self, Self::Direct | Self::Itself)
    }
}

/// When the record of a mediated connection's grant is as good as kept, so that the connection may go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recorded {
    /// When it is on the disk.
    #[default]
    Synced,
    /// When it is written, in its order; it is on the disk within 10 ms, where the disk syncs in 5. A crash of the host may lose that much, and the log then
    /// says so; a crash of levee loses nothing.
    Written,
}

/// How a server process finds the connection that it was started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passed {
    /// As standard input and output, as inetd(8) does it.
    Stdio,
    /// As descriptor 3, as systemd does it with `Accept=yes` (sd_listen_fds(3)).
    ListenFds,
}

/// What runs as a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// nginx with levee's configuration: the label's and the dominated documents.
    Nginx,
    /// A command line; the first word is an absolute path. It finds its listener as `LISTEN_FDS` says.
    Command(Vec<String>),
}

/// A service.
#[derive(Clone, Debug)]
pub struct Service {
    pub(super) name: ServiceName,
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    pub(super) range: Range,
    pub(super) mode: Mode,
    pub(super) program: Program,
    pub(super) uploads: bool,
    pub(super) needs: Needs,
    pub(super) software: Vec<String>,
    pub(super) recorded: Recorded,
    pub(super) protection: Option<ProtectionName>,
    pub(super) access: Access,
}

impl Service {
    /// Its name.
    pub fn name(&self) -> &ServiceName {
        &self.name
    }

    /// The port at which it answers, on the inner addresses.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port's protocol.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// The labels at which an instance of its own runs.
    pub fn range(&self) -> &Range {
        &self.range
    }

    /// How it is mediated.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// What runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Whether people may change the label's documents by it: nginx alone has this to decide.
    pub fn uploads(&self) -> bool {
        self.uploads
    }

    /// What of the host's software it needs beside the program itself: names of packages, and paths beneath `/usr`.
    pub fn software(&self) -> &[String] {
        &self.software
    }

    /// When a connection's record is as good as kept, where a mediator decides about each.
    pub fn recorded(&self) -> Recorded {
        self.recorded
    }

    /// Who of those cleared for a label reaches it there.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// What it asks for beyond what every service has.
    pub fn needs(&self) -> &Needs {
        &self.needs
    }
}

pub(super) struct DraftService {
    pub name: At<ServiceName>,
    pub port: At<u16>,
    pub protocol: Protocol,
    pub range: At<Range>,
    pub mode: Mode,
    pub program: Program,
    pub uploads: bool,
    pub needs: Needs,
    pub software: Vec<String>,
    pub recorded: Recorded,
    pub protection: Option<At<ProtectionName>>,
    pub access: Access,
}

/// One of them; `None` where something is missing or wrong, which a problem says.
pub(super) fn service(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    users: &ReadTables<DraftUser>,
    keys: &Table<'_>,
) -> Option<DraftService> {
    let name = reader.need(keys, "name", "\"web\"");
    let name = name.and_then(|value| reader.parsed(value, "service name", NAME));
    let port = port(reader, keys);
    let protocol = protocol(reader, keys);
    let range = range(reader, vocabulary, keys, "range");
    let mode = mode(reader, keys);
    let program = program(reader, keys);
    let uploads = needs::uploads(reader, keys);
    let needs = needs::needs(reader, keys);
    let software = needs::software(reader, keys);
    let recorded = recorded(reader, keys, mode);
    let protection = match keys.get("protection") {
        None => Some(None),
        Some(value) => reader.parsed(value, "protection's name", NAME).map(Some),
    };
    let access = access::read(reader, keys, users);
    let service = DraftService {
        name: name?,
        port: port?,
        protocol: protocol?,
        range: range?,
        mode: mode?,
        program: program?,
        uploads: uploads?,
        needs: needs?,
        software: software?,
        recorded: recorded?,
        protection: protection?,
        access: access?,
    };
    if service.program == Program::Nginx && service.protocol != Protocol::Tcp {
        reader.problem(
            ProblemKind::BadValue,
            &service.name.span,
            format!("`{}` runs nginx over udp", service.name.value),
            "write `protocol = \"tcp\"`",
        );
    }
    if service.mode.is_mediated() && service.protocol != Protocol::Tcp {
        reader.problem(
            ProblemKind::BadValue,
            &service.name.span,
            format!(
                "`{}` has no connections, so that none can go by `{}`",
                service.name.value,
                service.mode.as_str()
            ),
            "write `mode = \"direct\"`, by which every packet is checked, or `protocol = \"tcp\"`",
        );
    }
    if service.program == Program::Nginx && service.mode == Mode::Itself {
        reader.problem(
            ProblemKind::BadValue,
            &service.name.span,
            format!("`{}` runs nginx, which levee gives its sockets", service.name.value),
            "write `mode = \"direct\"`, by which it is started when somebody comes",
        );
    }
    if service.program == Program::Nginx && matches!(service.mode, Mode::Handoff(_)) {
        reader.problem(
            ProblemKind::BadValue,
            &service.name.span,
            format!(
                "`{}` runs nginx, which takes no connection that somebody else has accepted",
                service.name.value
            ),
            "write `mode = \"relay\"` or `mode = \"direct\"`",
        );
    }
    Some(service)
}

/// How a service is mediated, and how its connections are passed on.
fn mode(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Mode> {
    const MODES: [&str; 4] = ["direct", "itself", "handoff", "relay"];
    const SOCKETS: [&str; 2] = ["stdio", "listen-fds"];
    let word = reader.need(keys, "mode", "\"direct\"").and_then(|value| reader.string(value, "mode"))?;
    let socket = match keys.get("socket") {
        Some(value) => Some(reader.string(value, "socket")?),
        None => None,
    };
    let passed = match socket.as_ref().map(|word| word.value) {
        None | Some("stdio") => Passed::Stdio,
        Some("listen-fds") => Passed::ListenFds,
        Some(_) => {
            socket
                .iter()
                .for_each(|word| unknown_word(reader, word, "way to pass a socket", SOCKETS.into_iter()));
            return None;
        }
    };
    let mode = match word.value {
        "direct" => Mode::Direct,
        "itself" => Mode::Itself,
        "handoff" => Mode::Handoff(passed),
        "relay" => Mode::Relay,
        _ => {
            unknown_word(reader, &word, "mediation mode", MODES.into_iter());
            return None;
        }
    };
    if let (Some(socket), Mode::Direct | Mode::Itself | Mode::Relay) = (&socket, mode) {
        reader.problem(
            ProblemKind::BadValue,
            &socket.span,
            format!("`socket` says how connections are handed off, and the mode is `{}`", mode.as_str()),
            "remove `socket`, or write `mode = \"handoff\"`",
        );
    }
    Some(mode)
}

/// When a mediated connection's record is as good as kept.
fn recorded(reader: &mut Reader<'_>, keys: &Table<'_>, mode: Option<Mode>) -> Option<Recorded> {
    let Some(value) = keys.get("audit") else { return Some(Recorded::default()) };
    let word = reader.string(value, "audit")?;
    let recorded = match word.value {
        "synced" => Recorded::Synced,
        "written" => Recorded::Written,
        _ => {
            unknown_word(reader, &word, "way to record", ["synced", "written"].into_iter());
            return None;
        }
    };
    if let Some(mode) = mode.filter(|mode| !mode.is_mediated()) {
        reader.problem(
            ProblemKind::BadValue,
            &word.span,
            format!("`audit` says how connections are recorded, and by `{}` none is", mode.as_str()),
            "remove `audit`, or write `mode = \"relay\"` or `mode = \"handoff\"`",
        );
    }
    Some(recorded)
}

fn program(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Program> {
    match (keys.get("program"), keys.get("command")) {
        (Some(value), None) => {
            let word = reader.string(value, "program")?;
            if word.value == "nginx" {
                return Some(Program::Nginx);
            }
            let near = nearest(word.value, ["nginx"].into_iter());
            reader.problem_near(
                ProblemKind::UnknownName,
                &word.span,
                format!("`{}` is no program that levee configures", word.value),
                near,
                "write `program = \"nginx\"`, or `command = [\"/path/to/program\", \"argument\"]`",
            );
            None
        }
        (None, Some(value)) => command(reader, value).map(Program::Command),
        (None, None) => {
            reader.need(keys, "program", "\"nginx\"` or `command = [\"/path/to/program\"]");
            None
        }
        (Some(_), Some(command)) => {
            reader.problem(
                ProblemKind::Duplicate,
                &command.span(),
                "both `program` and `command` say what runs",
                "keep one of them",
            );
            None
        }
    }
}
