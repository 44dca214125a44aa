//! Carries what the site's servers say to each other: etcd's parser, and nothing of the decisions.
//!
//! sessiond asks, this process writes to etcd over TLS and tells what it reads there. It has no file, no credential and no key:
//! the signer signs its handshakes, and nothing else for it. Nothing that it says is believed without another server's signature.
//!
//! It may not decide anything, nor look into a value that it carries. Begin reading with `serve.rs`, then `etcd.rs`.
#![forbid(unsafe_code)]

mod etcd;
mod http;
mod serve;
mod start;

use levee_daemon::Fatal;
use levee_policy::site::Suites;

/// The program's arguments: `--suites NAME`, as the site says.
fn suites(mut arguments: impl Iterator<Item = String>) -> Result<Suites, Fatal> {
    let fault = |why: String| Fatal::new("read the arguments", why);
    match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (None, None, None) => Ok(Suites::default()),
        (Some("--suites"), Some(name), None) => name.parse().map_err(|e| fault(format!("--suites: {e}"))),
        _ => Err(fault("it takes `--suites NAME` and no other arguments".to_owned())),
    }
}

fn main() -> std::process::ExitCode {
    levee_daemon::run("levee-fsd", || match start::start(suites(std::env::args().skip(1))?)? {
        Some(started) => serve::serve(started),
        None => Ok(()),
    })
}
