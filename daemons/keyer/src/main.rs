//! Agrees keys and hands each pair to the one vault of its label.
//!
//! Until IKEv2 does it, the two sides' public values travel over the trusted path, by way of sessiond and the TPE.
#![forbid(unsafe_code)]

mod agree;
mod keyer;

fn main() -> std::process::ExitCode {
    match keyer::serve() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("levee-keyer: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
