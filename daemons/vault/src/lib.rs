//! levee: the IPsec stack of one label.
//!
//! One thread, one loop. Everything it works with is handed to it by the warden before it begins: a TUN queue, UDP
//! sockets, channels to sessiond (on a workstation: the TPE) and to the keyer. It then gives up every other power.
//!
//! Where a label's stacks must agree, `levee-vault --stack` is one of them.
//!
//! A packet passes only with keys from the keyer *and* a session record from sessiond. When sessiond or the keyer is
//! gone, what is established runs on; when the warden is gone, the vault ends.
//!
//! `src/main.rs` is levee's, `src/bin/levee-lab-vault.rs` the laboratory's, which does not encrypt.
//!
//! It may not have a key of another label, a long-term key or a file. Begin reading with `serve.rs`, then `plane.rs`.
#![forbid(unsafe_code)]

mod aggregate;
mod batch;
mod convert;
mod device;
mod lease;
mod looking;
mod plane;
mod serve;
mod stack;
mod start;

use std::process::ExitCode;

use levee_esp::Aead;

/// Runs a vault: `main` of levee-vault, whose AEAD keys are used as they are, and of levee-lab-vault, which makes others of them.
pub fn run(name: &'static str, aead: fn(Box<dyn Aead>) -> Box<dyn Aead>) -> ExitCode {
    levee_daemon::run(name, || {
        if stack::is_wanted(std::env::args().skip(1)) {
            return stack::run();
        }
        start::start()?.map_or(Ok(()), |started| serve::serve(started, aead))
    })
}
