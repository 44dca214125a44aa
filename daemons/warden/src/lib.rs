//! The warden: starts levee's processes, hands each the descriptors of its job and nothing else, and starts
//! again what ends. It reads a checked site file and its children's small messages, and speaks to no network.
//!
//! It alone makes and keeps the steering groups, TUN devices, listeners and network namespaces, so that any other
//! process can die without moving, losing or exposing what another label has.
//!
//! It may not decide who may do what, hold a key or read a client's byte. Begin reading with `wiring.rs` and `process.rs`: who there is; then `server.rs`, and of a
//! label `label.rs`.
#![forbid(unsafe_code)]

pub mod behind;
mod below;
pub mod bounds;
mod channels;
pub mod compartment;
pub mod edges;
mod fatal;
mod framed;
mod gateway;
mod held;
mod key;
mod label;
pub mod labelled;
mod layer;
mod leavings;
mod links;
mod logs;
pub mod machine;
pub mod maker;
mod making;
mod mediation;
mod memfile;
pub mod networks;
mod options;
mod outer;
mod partition;
pub mod pinned;
mod placed;
pub mod planned;
mod process;
pub mod programs;
mod rest;
mod rooting;
pub mod rules;
pub mod selinux;
mod server;
mod service;
mod session;
mod stacks;
mod standing;
mod state;
mod supervisor;
mod tended;
mod there;
mod uids;
mod upflow;
mod voice;
mod waits;
mod wires;
mod wiring;
mod workstation;

pub use fatal::Fatal;
pub use options::{Options, USAGE};
pub(crate) use voice::log;
pub use workstation::Bundle;

use levee_ipc::Secret;
use levee_sys::signals::Signals;
use options::Of;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};

/// All of standard input. The warden keeps it: a signer that ends is started again.
fn passphrase() -> Result<Secret, Fatal> {
    let step = |e: &dyn std::fmt::Display| Fatal::new("read the passphrase from standard input", e);
    // Room for all of it, and a little more to see whether it is too long: what grows leaves copies behind.
    let mut text = vec![0; Secret::MAX];
    let mut length = 0;
    loop {
        let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) else {
            drop(Secret::new(text));
            return Err(step(&"it is too long"));
        };
        match rustix::io::read(rustix::stdio::stdin(), rest) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(step(&e)),
        }
    }
    text.truncate(length);
    Secret::new(text).ok_or_else(|| step(&"it is too long"))
}

/// Takes leave to have as many descriptors as the kernel gives a process: some forty go to each label that runs, and how the warden
/// was started should not decide how many labels that is. (What it starts has limits of its own.)
fn descriptors() {
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|most| most.trim().parse().ok());
    let hard = getrlimit(Resource::Nofile).maximum;
    // Root may raise what it was started with, but for a kernel or a container that has it otherwise.
    for limit in [most, hard].into_iter().flatten() {
        if setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum: Some(limit) }).is_ok() {
            return;
        }
    }
}

/// Runs a warden until it is asked to stop. `ready` is called once everything is at work.
///
/// # Errors
/// What could not be started, or what failed for good; then nothing is left running.
pub fn run(options: Options, ready: impl FnOnce()) -> Result<(), Fatal> {
    // Whatever who started it has: what is made without a mode of its own is for root alone to change.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    let signals = Signals::new(&[Signal::TERM, Signal::INT, Signal::HUP, Signal::USR1])
        .map_err(|e| Fatal::new("start", e))?;
    levee_sys::sandbox::forbid_dumps().map_err(|e| Fatal::new("start", e))?;
    let passphrase = options.passphrase.then(passphrase).transpose()?;
    descriptors();
    let background = options.background;
    let ready = || {
        ready();
        if background {
            voice::leave_standard_error();
        }
    };
    match options.of {
        Of::Server => {
            let mut server = server::Server::start(options, passphrase)?;
            let state = server.state().to_owned();
            let result = server.run(&signals, ready);
            server.stop();
            result.inspect_err(|why| state::ends_by_itself(&state, &why.to_string()))
        }
        Of::Workstation => {
            let mut workstation = workstation::Workstation::start(options, passphrase)?;
            let result = workstation.run(&signals, ready);
            workstation.stop();
            result
        }
        Of::Gateway => {
            let mut gateway = gateway::Gateway::start(options)?;
            let result = gateway.run(&signals, ready);
            gateway.stop();
            result
        }
    }
}
