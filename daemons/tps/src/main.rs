//! The trusted path's server: a listener that reads no client's bytes, and one sandboxed child for each client.
//!
//! | module | runs in |
//! |---|---|
//! | [`parent`] | the listener: accepts, forks, keeps count |
//! | [`admission`] | the listener: whose turn it is, and who gives way |
//! | [`child`] | the child: TLS, one client's messages, sessiond's answers |
#![forbid(unsafe_code)]

mod admission;
mod child;
mod parent;

fn main() -> std::process::ExitCode {
    match parent::serve() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("levee-tps: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
