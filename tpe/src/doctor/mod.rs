//! `levee-tpe doctor`: why this workstation reaches its server or does not, found out by trying, each lack with its remedy.
//!
//! It needs no key and no agent: the public files of the bundle say where the server is and whom to believe.

mod certificates;
mod finding;
mod network;

use self::finding::{Bundle, Finding, State, TUNNEL};
use crate::command;
use levee_ipc::steers;
use levee_ipc::tpe::{Answer, Command, Status};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Where `levee-workstation.service` looks for the bundle.
pub const BUNDLE: &str = "/etc/levee/workstation";
/// IKE's UDP port (RFC 7296 2).
const IKE: u16 = 500;

/// What was found of a workstation.
pub struct Diagnosis(Vec<Finding>);

impl Diagnosis {
    /// Whether a session can come about.
    pub fn is_fit(&self) -> bool {
        self.0.iter().all(|found| found.state != State::Lacks)
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({ "fit": self.is_fit(), "findings": self.0 })
    }

    /// In words, of those alone that want something done where `quiet`.
    pub fn text(&self, quiet: bool) -> String {
        let mut lines = Vec::new();
        for Finding { what, state, detail, remedy } in &self.0 {
            if quiet && matches!(state, State::Has) {
                continue;
            }
            let state = match state {
                State::Has => "has    ",
                State::Lacks => "lacks  ",
                State::Weaker => "weaker ",
                State::Untried => "untried",
            };
            lines.push(format!("{state} {what}: {}", printable(detail)));
            if !remedy.is_empty() {
                lines.push(format!("        {remedy}"));
            }
        }
        if !quiet {
            lines.push(
                match self.is_fit() {
                    true => "this workstation reaches its server",
                    false => "no session comes about from here yet",
                }
                .into(),
            );
        }
        lines.join("\n")
    }
}

/// What came from elsewhere moves no cursor.
fn printable(text: &str) -> String {
    text.chars().filter(|&character| !steers(character)).collect()
}

/// Examines the workstation of this bundle.
///
/// # Errors
/// The bundle cannot be read.
pub fn examine(bundle: &Path, socket: Option<PathBuf>) -> Result<Diagnosis, String> {
    let read = |name: &str| std::fs::read(bundle.join(name));
    let path = bundle.join("workstation.toml");
    let file = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            format!(
                "{}: {error}; run this as root, or let root do `chmod 755 {}`: the private keys in it stay root's alone",
                path.display(),
                bundle.display()
            )
        }
        _ => format!(
            "{}: {error}; the bundle is the directory that `levee enrol` made for this host: copy it there, or name it with --bundle",
            path.display()
        ),
    })?;
    let site: Bundle = toml::from_str(&file).map_err(|error| format!("{}: {error}", path.display()))?;
    let authority = read("authority.pem").map_err(|error| format!("the bundle's authority.pem: {error}"))?;
    let revoked = read("ca.crl").ok();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let address = *site.addresses.first().ok_or_else(|| format!("{}: no address", path.display()))?;

    let agent = command::socket(socket, command::RUNS.as_ref())
        .and_then(|socket| command::Agent::connect(&socket))
        .and_then(|agent| agent.ask(&Command::Status, |_| {}))
        .map_err(|why| why.to_string());
    let mut found = vec![
        Finding::has("bundle", bundle.display().to_string()),
        network::name(&site.server_name, &site.addresses),
    ];
    found.extend(certificates::own(bundle, &authority, revoked.as_deref(), now));
    let to = |port| SocketAddr::new(address, port);
    let (answers, stream) = network::tcp(to(site.trusted_path_port));
    found.push(answers);
    found.extend(match stream {
        Some(stream) => {
            let own = shown(&read, &agent);
            certificates::server(stream, &site, (&authority, revoked.as_deref()), own, now)
        }
        None => certificates::SERVER
            .iter()
            .map(|what| Finding::untried(what, "the server is not reached"))
            .collect(),
    });
    found.extend(match site.layer_port {
        Some(port) => second_tunnel(port, site.gateway),
        None => tunnel(&to),
    });
    found.push(running(agent));
    Ok(Diagnosis(found))
}

/// The certificate and its key that the server is shown; or why it is not.
fn shown(
    read: &dyn Fn(&str) -> std::io::Result<Vec<u8>>,
    agent: &Result<Answer, String>,
) -> Result<certificates::Own, Finding> {
    let [.., welcome] = certificates::SERVER;
    if let Ok(Answer::Status(status)) = agent
        && status.connected
    {
        // A second path of one workstation's would be in the first one's way.
        return Err(Finding::has(welcome, "the trusted path is up"));
    }
    let cannot = |error: &dyn std::fmt::Display| {
        Finding::untried(welcome, format!("the workstation's own key cannot be read: {error}"))
    };
    // Before the key is in this process's memory.
    levee_sys::sandbox::forbid_dumps().map_err(|error| cannot(&error))?;
    match (read("chain.pem"), read("device.key").map(Zeroizing::new)) {
        (Ok(chain), Ok(key)) => Ok((chain, key)),
        (Err(error), _) | (_, Err(error)) => Err(cannot(&error)),
    }
}

/// Whether the tunnel's ports answer, and how much passes.
fn tunnel(to: &impl Fn(u16) -> SocketAddr) -> Vec<Finding> {
    let tunnel = network::udp("UDP 4500", to(TUNNEL));
    let path_mtu = match tunnel.state == State::Has {
        true => network::path_mtu(to(TUNNEL)),
        false => Finding::untried("path MTU", "UDP 4500 does not pass"),
    };
    vec![network::udp("UDP 500", to(IKE)), tunnel, path_mtu]
}

/// Nothing but the second tunnel itself has the keys to try it.
fn second_tunnel(port: u16, gateway: Option<IpAddr>) -> Vec<Finding> {
    let at = gateway.map_or_else(String::new, |gateway| format!(" at {gateway}"));
    let why = format!(
        "everything goes through the second tunnel, UDP {port}{at}; its own log says whether it is up and what the path carries"
    );
    ["UDP 500", "UDP 4500", "path MTU"].into_iter().map(|what| Finding::untried(what, why.clone())).collect()
}

/// Whether an agent runs here, and what it says of the trusted path.
fn running(agent: Result<Answer, String>) -> Finding {
    let what = "agent";
    match agent {
        Ok(Answer::Status(status)) if status.connected => Finding::has(what, "runs; the trusted path is up"),
        Ok(Answer::Status(Status { user: Some(user), .. })) => Finding::lacks(
            what,
            format!("{user} is signed on, and the trusted path to the server is down"),
            "the session ends unless the server is reached again: see what else is lacking here; `levee-tpe login` says what the server says",
        ),
        Ok(_) => Finding::has(what, "runs; nobody is signed on"),
        Err(why) if command::is_closed(&why) => Finding::weaker(
            what,
            why,
            "run this as root, or as somebody of that group; who looks after this workstation may make you one",
        ),
        Err(why) => Finding::weaker(
            what,
            why,
            "start it: systemctl enable --now levee-workstation, or levee up --workstation BUNDLE",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_makes_a_workstation_unfit_and_is_said_with_its_remedy() {
        let weak = || Finding::weaker("path MTU", "1400", "raise it");
        let fit = Diagnosis(vec![Finding::has("name", "resolves"), weak()]);
        assert!(fit.is_fit());
        assert_eq!(fit.text(true), "weaker  path MTU: 1400\n        raise it");
        let unfit = Diagnosis(vec![weak(), Finding::lacks("UDP 500", "no\u{1b}[2J answer", "open it")]);
        assert!(!unfit.is_fit());
        assert_eq!(unfit.json()["findings"][1]["state"], "lacks");
        assert!(
            unfit.text(false).contains("lacks   UDP 500: no[2J answer\n        open it"),
            "{}",
            unfit.text(false)
        );
    }
}
