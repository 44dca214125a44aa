//! levee-init: process 1 of a compartment. The warden starts it; nobody else has a use for it.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match levee_warden::compartment::inside::main() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Standard error may be gone.
            let _ = writeln!(std::io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}
