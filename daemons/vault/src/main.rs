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
//! It may not have a key of another label, a long-term key or a file. Begin reading with `serve.rs`, then `plane.rs`.
#![forbid(unsafe_code)]

mod aggregate;
mod batch;
mod convert;
mod device;
mod lease;
mod looking;
mod plane;
mod posture;
mod serve;
mod stack;
mod start;

use std::process::ExitCode;

fn main() -> ExitCode {
    levee_daemon::run("levee-vault", || {
        if stack::is_wanted(std::env::args().skip(1)) {
            return stack::run();
        }
        start::start()?.map_or(Ok(()), serve::serve)
    })
}
