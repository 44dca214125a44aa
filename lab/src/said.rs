//! What the laboratory says, and how: as levee's other commands do. Answers go to standard output, progress and failures to
//! standard error; whoever reads neither changes nothing.

use serde::Serialize;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

/// What every command takes.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Manner {
    /// Print JSON: one value where the command has a form of its own, else an object a line. A failure is `{"error", "reason"}`
    #[arg(long, global = true)]
    json: bool,
    /// Say nothing that was not asked for: no progress
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Say more, on standard error: which files are read
    #[arg(long, short, global = true)]
    verbose: bool,
}

static MANNER: OnceLock<Manner> = OnceLock::new();

impl Manner {
    /// From here on the whole program talks like this.
    pub fn set(self) {
        // It is said once.
        let _ = MANNER.set(self);
    }

    fn get() -> Self {
        MANNER.get().copied().unwrap_or_default()
    }
}

/// Whether an answer is to be JSON.
pub fn is_json() -> bool {
    Manner::get().json
}

/// Text as it is, of an answer.
///
/// # Errors
/// When it cannot be written. That nobody reads on is none.
pub fn raw(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(e),
        _ => Ok(()),
    }
}

/// A line of an answer; with `--json` an object.
///
/// # Errors
/// As for [`raw`].
pub fn line(text: &dyn std::fmt::Display) -> io::Result<()> {
    let text = text.to_string();
    raw(&if is_json() { format!("{}\n", serde_json::json!({ "said": text })) } else { text + "\n" })
}

/// An answer that has a form of its own.
///
/// # Errors
/// As for [`raw`].
pub fn value(value: &impl Serialize) -> io::Result<()> {
    raw(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// That a file is read.
pub fn reads(path: &std::path::Path) {
    if Manner::get().verbose {
        let _ = writeln!(io::stderr(), "levee-lab: reads {}", path.display());
    }
}

/// A line of progress.
pub fn progress(text: &str) {
    if !Manner::get().quiet {
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// Progress that the next one takes the place of.
pub fn passing(text: &str) {
    if !Manner::get().quiet {
        let _ = write!(io::stderr(), "\r\x1b[K{text}");
    }
}

/// What is to be known whether or not it was asked for.
pub fn warning(text: &dyn std::fmt::Display) {
    let _ = writeln!(io::stderr(), "levee-lab: {text}");
}

/// Why there is no answer, and the exit code of that.
pub fn fault(why: &dyn std::fmt::Display) -> ExitCode {
    if is_json() {
        let _ = raw(&format!("{}\n", serde_json::json!({ "error": "Failed", "reason": why.to_string() })));
    } else {
        warning(why);
    }
    ExitCode::from(2)
}

/// What is said of a command line that is not understood, in the form that it asks for; help that it asks for is said as it is.
pub fn misunderstood(fault_of: &clap::Error) -> ExitCode {
    let mut words = std::env::args_os().take_while(|word| word != "--");
    if fault_of.use_stderr() && words.any(|word| word == "--json") {
        Manner { json: true, ..Manner::default() }.set();
        let why = fault_of.render().to_string();
        return fault(&why.strip_prefix("error: ").unwrap_or(&why).trim_end());
    }
    let _ = fault_of.print();
    ExitCode::from(u8::try_from(fault_of.exit_code()).unwrap_or(2))
}
