//! The trusted path's server: a listener that reads no client's bytes, and one sandboxed child for each client.
//!
//! | module | runs in |
//! |---|---|
//! | [`parent`] | the listener: accepts, forks, keeps count |
//! | [`admission`] | the listener: whose turn it is, and who gives way |
//! | [`ended`] | the listener: what came to nothing |
//! | [`child`] | the child: TLS, one client's messages, sessiond's answers |
//! | [`news`] | both: what a child says to the listener |
//!
//! It may not have a private key, nor decide anything. Begin reading with `parent.rs`.
#![forbid(unsafe_code)]

mod admission;
mod child;
mod ended;
mod news;
mod parent;

use levee_tls::Suites;

/// The program's arguments: `--suites NAME`, as the site says.
fn suites(mut arguments: impl Iterator<Item = String>) -> Result<Suites, String> {
    match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (None, None, None) => Ok(Suites::default()),
        (Some("--suites"), Some(name), None) => name.parse().map_err(|e| format!("--suites: {e}")),
        _ => Err("it takes `--suites NAME` and no other arguments".to_owned()),
    }
}

fn main() -> std::process::ExitCode {
    levee_daemon::run("levee-tps", || {
        suites(std::env::args().skip(1))
            .map_err(|why| levee_daemon::Fatal::new("read the arguments", why))
            .and_then(parent::serve)
    })
}
