//! The client of the table that a site's servers share: etcd's parser, and nothing of the decisions.
//!
//! sessiond asks, this process carries it out over TLS with etcd and says what came of it. It has no file, no credential and no key:
//! the signer signs its handshakes. What sessiond makes of what it says is `levee_session::federation`.
#![forbid(unsafe_code)]

mod etcd;
mod http;
mod serve;
mod start;

use levee_policy::site::Suites;

/// The program's arguments: `--suites NAME`, as the site says.
fn suites(mut arguments: impl Iterator<Item = String>) -> Result<Suites, String> {
    match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (None, None, None) => Ok(Suites::default()),
        (Some("--suites"), Some(name), None) => name.parse().map_err(|e| format!("--suites: {e}")),
        _ => Err("it takes `--suites NAME` and no other arguments".to_owned()),
    }
}

fn main() -> std::process::ExitCode {
    let started = suites(std::env::args().skip(1)).and_then(start::start);
    match started.and_then(|started| started.map_or(Ok(()), serve::serve)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            levee_ipc::say!("levee-fsd: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
