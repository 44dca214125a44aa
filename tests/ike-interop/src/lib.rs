//! A real strongSwan in a network namespace, and an [`Endpoint`](levee_ike::Endpoint) on real sockets in another, joined by a veth pair.
//! Needs root, iproute2, util-linux and Debian's `strongswan`, `strongswan-swanctl`, `libcharon-extra-plugins`,
//! `libstrongswan-standard-plugins` and `libstrongswan-extra-plugins`; without them everything here panics and says so.
//!
//! Begin reading with `swan.rs`, the peer.

mod esp;
mod host;
mod net;
mod pki;
mod swan;

pub use esp::Tunnel;
pub use host::{Host, label};
pub use net::{Behind, INSIDE, Net, OURS, OURS6, THEIRS, THEIRS6};
pub use pki::{Authority, Key, KeyKind};
pub use swan::{Swan, Tuning};

/// Runs a program and gives its output; a failure ends the test with what it said.
fn run(program: &str, args: &[&str]) -> String {
    let out = std::process::Command::new(program).args(args).output().unwrap_or_else(|e| {
        panic!("cannot run {program}: {e}; install iproute2, util-linux, openssl and strongSwan")
    });
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{program} {}: {text}", args.join(" "));
    text
}
