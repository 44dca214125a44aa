//! The guard's process. See the library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    levee_daemon::run("levee-guard", levee_guard::run)
}
