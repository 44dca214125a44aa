//! levee-rules: loads the rules of a label's networks, or reads their counters, in the label's namespace. The warden starts it, with
//! power over that namespace's network alone; nobody else has a use for it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match levee_warden::rules::main(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
