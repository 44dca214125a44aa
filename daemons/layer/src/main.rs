//! See the library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    levee_daemon::run("levee-layer", levee_layer::run)
}
