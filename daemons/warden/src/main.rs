//! `levee-warden`: see the library.

use levee_warden::{Options, run};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(e) => {
            eprintln!("levee-warden: {e}");
            return ExitCode::from(2);
        }
    };
    if !rustix::process::geteuid().is_root() {
        eprintln!("levee-warden: must run as root, to make namespaces and give each process its own uid");
        return ExitCode::from(2);
    }
    // `levee up` reads this line from standard output, and waits for it.
    let ready = || {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "ready").and_then(|()| out.flush());
    };
    match run(options, ready) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // Who started it may be gone.
            let _ = writeln!(std::io::stderr(), "levee-warden: {e}");
            ExitCode::FAILURE
        }
    }
}
