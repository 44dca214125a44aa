//! `levee-logger`: see the library. The warden starts it; nobody else has a use for it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    match levee_logger::serve() {
        Ok(()) => ExitCode::SUCCESS,
        // Nobody would read what it said: its standard error is its own.
        Err(_) => ExitCode::FAILURE,
    }
}
