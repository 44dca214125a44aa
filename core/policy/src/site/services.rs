//! Reads `[[service]]`.

use super::draft::DraftService;
use super::needs;
use super::problem::ProblemKind;
use super::read::{Keys, Reader};
use super::values::command;
use super::values::{NAME, port, protocol, range, unknown_word};
use super::{Mode, Passed, Program, Protocol, Recorded};
use crate::vocabulary::{Vocabulary, nearest};

/// One of them; `None` where something is missing or wrong, which a problem says.
pub(super) fn service(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    keys: &Keys<'_>,
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
fn mode(reader: &mut Reader<'_>, keys: &Keys<'_>) -> Option<Mode> {
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
fn recorded(reader: &mut Reader<'_>, keys: &Keys<'_>, mode: Option<Mode>) -> Option<Recorded> {
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

fn program(reader: &mut Reader<'_>, keys: &Keys<'_>) -> Option<Program> {
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
