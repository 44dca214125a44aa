//! Copies documents upward. See the library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    levee_daemon::run("levee-upflow", || levee_upflow::serve(std::env::args().skip(1)))
}
