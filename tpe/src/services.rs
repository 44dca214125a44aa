//! `levee-tpe services`: what the session reaches, by name where it has one.

use levee_ipc::tpe::{Reachable, Session};
use serde_json::{Value, json};

/// What the session reaches, as JSON.
pub fn json(session: &Session) -> Value {
    let one = |reachable: &Reachable| {
        json!({
            "service": reachable.service,
            "host": reachable.host,
            "protocol": protocol(reachable),
            "port": reachable.port,
            "address": reachable.address,
        })
    };
    json!({
        "label": session.label,
        "reach": session.reach.iter().map(one).collect::<Vec<_>>(),
        "more": session.more,
    })
}

/// The same, one service at one host a line.
pub fn text(session: &Session) -> String {
    if session.reach.is_empty() {
        return format!("a session at {} reaches nothing", session.label);
    }
    // The addresses of one host, one behind the other.
    let mut lines: Vec<(String, String)> = Vec::new();
    for reachable in &session.reach {
        let name = reachable.service.as_ref().map_or("-", |service| service.as_str());
        let what = format!("{name} {} {}", protocol(reachable), reachable.port);
        let host = reachable.host.as_ref().map_or_else(String::new, |host| format!(" {host}"));
        match lines.iter_mut().find(|(known, _)| *known == what) {
            Some((_, at)) => at.push_str(&format!("{host} {}", reachable.address)),
            None => lines.push((what, format!("{host} {}", reachable.address))),
        }
    }
    let mut said: Vec<String> = lines.into_iter().map(|(what, at)| format!("{what} at{at}")).collect();
    if session.more > 0 {
        said.push(format!("# and {} more, which are not listed", session.more));
    }
    said.join("\n")
}

fn protocol(reachable: &Reachable) -> &'static str {
    match reachable.protocol {
        17 => "udp",
        _ => "tcp",
    }
}
