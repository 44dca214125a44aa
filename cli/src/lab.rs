//! `levee lab`: the laboratory, a program of its own beside this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::output;

/// Measure what each protection costs on this host
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Lab {
    /// What the laboratory is to do: list, run NAME, report DIR, compare DIR DIR, prices DIR, leak, record; --help says all
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl Lab {
    /// Becomes the laboratory; returns only if that cannot be done.
    pub fn run(self) -> ExitCode {
        let program = match beside() {
            Ok(program) => program,
            Err(e) => {
                return output::exit(Err(format!("where this program is: {e}")));
            }
        };
        let e = Command::new(&program).args(output::Manner::words()).args(self.arguments).exec();
        output::exit(Err(format!(
            "{}: {e}; the laboratory is installed beside levee (by the package levee-lab, or `make install`)",
            program.display()
        )))
    }
}

/// The laboratory lies where this program does, not where a path variable points.
fn beside() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("levee-lab"))
}
