//! levee-plan: prints how a label's compartment would be started. `levee plan` starts it, as whoever asks.
//!
//! `levee-plan LABEL`, and then what the warden of the site would be started with.
#![forbid(unsafe_code)]

use levee_warden::{Options, planned};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let planned = || -> Result<String, String> {
        let label = arguments.next().ok_or("usage: levee-plan LABEL --server SITE-FILE ...")?;
        planned::plan(&Options::parse(arguments)?, &label).map_err(|e| e.to_string())
    };
    match planned().map(|plan| write!(std::io::stdout(), "{plan}")) {
        // That the reader has gone away is no fault.
        Ok(Err(e)) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("levee-plan: standard output: {e}");
            ExitCode::FAILURE
        }
        Ok(_) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("levee-plan: {e}");
            ExitCode::FAILURE
        }
    }
}
