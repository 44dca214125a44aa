//! `levee-tpe access`: what it is given, and how services are listed.

use levee_ipc::client::Accessible;
use levee_ipc::tpe::Command;
use levee_policy::{ServiceName, UserName};
use serde_json::{Value, json};

/// What the agent is asked for. With a service and nobody's name, the same as without: all are listed.
pub fn command(service: Option<&ServiceName>, allow: Option<&UserName>, deny: Option<&UserName>) -> Command {
    let said = allow.map(|user| (user, true)).or_else(|| deny.map(|user| (user, false)));
    match (service, said) {
        (Some(service), Some((user, admits))) => {
            Command::Access { service: service.clone(), user: user.clone(), admits }
        }
        _ => Command::Accesses,
    }
}

/// Services that are for some people alone, as JSON.
pub fn json(services: &[Accessible]) -> Value {
    let one = |shown: &Accessible| {
        let Accessible { service, mine, people, more } = shown;
        json!({ "service": service, "mine": mine, "people": people, "more": more })
    };
    json!({ "services": services.iter().map(one).collect::<Vec<_>>() })
}

/// The same, one a line.
pub fn text(services: &[Accessible]) -> String {
    let one = |shown: &Accessible| {
        let Accessible { service, mine, people, more } = shown;
        let people: Vec<&str> = people.iter().map(AsRef::as_ref).collect();
        match (mine, people.as_slice()) {
            (true, people) => {
                let more = if *more { " and more" } else { "" };
                format!("{service}: yours; for {}{more}", people.join(" "))
            }
            (false, []) => format!("{service}: not for you"),
            (false, _) => format!("{service}: for you"),
        }
    };
    match services {
        [] => "every service of this level is for everybody who may be here".into(),
        some => some.iter().map(one).collect::<Vec<_>>().join("\n"),
    }
}
