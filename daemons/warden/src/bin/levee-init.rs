//! levee-init: process 1 of a compartment, and with `--machine` process 1 of a label's virtual machine. The warden starts
//! it, or the machine's kernel; nobody else has a use for it.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let machine = std::env::args().nth(1).is_some_and(|argument| argument == "--machine");
    let done = if machine {
        levee_warden::machine::guest::main()
    } else {
        levee_warden::compartment::inside::main()
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Standard error may be gone.
            let _ = writeln!(std::io::stderr(), "{why}");
            ExitCode::FAILURE
        }
    }
}
