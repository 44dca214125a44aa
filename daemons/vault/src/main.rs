//! levee's vault: see the crate's first page.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    levee_vault::run("levee-vault", std::convert::identity)
}
