//! Copies documents upward. See the library.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    match levee_upflow::serve() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            levee_ipc::say!("levee-upflow: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
