//! What goes to the terminal.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use levee_ipc::steers;
use serde::Serialize;
use serde_json::json;

/// What every command takes.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Manner {
    /// Print JSON: one value where the command has a form of its own, else an object a line. A failure is `{"error", "reason"}`
    #[arg(long, global = true)]
    json: bool,
    /// Say nothing that was not asked for: what was done is seen by the exit status; refusals and warnings are said
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Say on standard error which files are read and which server is asked
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

    /// The same for a program that this one becomes.
    pub fn words() -> Vec<&'static str> {
        let Self { json, quiet, verbose } = Self::get();
        [(json, "--json"), (quiet, "--quiet"), (verbose, "--verbose")]
            .into_iter()
            .filter_map(|(asked, word)| asked.then_some(word))
            .collect()
    }

    fn get() -> Self {
        MANNER.get().copied().unwrap_or_default()
    }
}

/// Text from a file, fit to be shown: a control character could move the cursor or change what is read.
pub fn shown(text: &str) -> String {
    text.chars()
        .map(|char| match char {
            '\t' => ' ',
            char if steers(char) => '\u{fffd}',
            char => char,
        })
        .collect()
}

/// Microseconds as JSON has every time: in milliseconds.
pub fn milliseconds<S: serde::Serializer>(microseconds: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(*microseconds as f64 / 1e3)
}

/// The same of what may not be.
pub fn some_milliseconds<S: serde::Serializer>(microseconds: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
    microseconds.map(|microseconds| microseconds as f64 / 1e3).serialize(to)
}

/// The exit code of an answer, or of why there is none: 2.
pub fn exit(answer: Result<ExitCode, String>) -> ExitCode {
    answer.unwrap_or_else(|message| {
        fault("Failed", &message);
        ExitCode::from(2)
    })
}

/// The exit code of what failed, and why it did: 2.
pub fn fail(why: impl std::fmt::Display) -> ExitCode {
    exit(Err(why.to_string()))
}

/// What is said of a command line that is not understood, in the form that it asks for; help that it asks for is said as it is.
pub fn misunderstood(fault: &clap::Error) -> ExitCode {
    let mut words = std::env::args_os().take_while(|word| word != "--");
    if fault.use_stderr() && words.any(|word| word == "--json") {
        Manner { json: true, ..Manner::default() }.set();
        let why = fault.render().to_string();
        return exit(Err(why.strip_prefix("error: ").unwrap_or(&why).trim_end().to_owned()));
    }
    // Whether or not anybody reads it, the exit code says so.
    let _ = fault.print();
    ExitCode::from(u8::try_from(fault.exit_code()).unwrap_or(2))
}

/// The exit code of what a server refused, and what it said: 1.
pub fn refused(reason: &str) -> ExitCode {
    fault("Refused", &shown(reason));
    ExitCode::FAILURE
}

/// Says why there is no answer: where a program looks for the answer, or on standard error.
pub fn fault(kind: &str, message: &str) {
    if Manner::get().json {
        // Whether or not anybody reads it, the exit code says so.
        let _ = json_line(&json!({ "error": kind, "reason": message })).and_then(|line| raw(&line));
    } else {
        eprintln!("levee: {}", message.lines().map(shown).collect::<Vec<_>>().join("\n"));
    }
}

/// Whether nothing is to be said that was not asked for.
pub fn is_quiet() -> bool {
    Manner::get().quiet
}

/// What only who wonders wants to know.
pub fn detail(text: &dyn std::fmt::Display) {
    if Manner::get().verbose {
        eprintln!("levee: {text}");
    }
}

/// Says what was done.
pub fn said(text: &str) -> Result<(), String> {
    if Manner::get().quiet { Ok(()) } else { print(text) }
}

/// Text as it is printed: with --json, each of its lines is an object.
pub fn form(text: &str) -> String {
    if !Manner::get().json {
        return text.to_owned();
    }
    text.lines().map(|line| escaped(&json!({ "said": line }).to_string()) + "\n").collect()
}

/// Prints a value as JSON.
pub fn json(value: &impl Serialize) -> Result<(), String> {
    let text = serde_json::to_string_pretty(value).map_err(|e| e.to_string())?;
    raw(&format!("{}\n", escaped(&text)))
}

/// A value as one line of JSON.
pub fn json_line(value: &impl Serialize) -> Result<String, String> {
    serde_json::to_string(value).map(|text| escaped(&text) + "\n").map_err(|e| e.to_string())
}

/// JSON that a terminal shows as it stands, and that means the same. JSON itself lets through 0x7f to 0x9f, some of which terminals obey.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for char in json.chars() {
        if steers(char) && char != '\n' {
            // What is left of these stands in strings alone, and writing to a string does not fail.
            for unit in char.encode_utf16(&mut [0; 2]) {
                let _ = std::fmt::Write::write_fmt(&mut text, format_args!("\\u{unit:04x}"));
            }
        } else {
            text.push(char);
        }
    }
    text
}

/// Prints again and again what `next` gives, a second apart, until the reader goes away.
pub fn watch(mut next: impl FnMut() -> Result<String, String>) -> Result<ExitCode, String> {
    loop {
        let mut out = io::stdout().lock();
        match out.write_all(next()?.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            Err(e) => return Err(format!("standard output: {e}")),
        }
        drop(out);
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// Prints an answer that has no form of its own in JSON.
pub fn print(text: &str) -> Result<(), String> {
    raw(&form(text))
}

/// Prints what has a form of its own; that the reader has gone away is no fault.
pub fn raw(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("standard output: {e}")),
        _ => Ok(()),
    }
}

/// Escape sequences for emphasis, if the terminal shall have any.
#[derive(Clone, Copy)]
pub struct Paint(bool);

impl Paint {
    /// For standard output: in colour on a terminal, unless `NO_COLOR` is set.
    pub fn stdout() -> Self {
        use std::io::IsTerminal;
        Self(io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }

    /// Without any.
    #[cfg(test)]
    pub fn plain() -> Self {
        Self(false)
    }

    /// Bold red.
    pub fn error(self, text: &str) -> String {
        self.with("1;31", text)
    }

    /// Bold.
    pub fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    /// Bold blue, for what only guides the eye.
    pub fn guide(self, text: &str) -> String {
        self.with("1;34", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// So many of something.
pub fn count<N: std::fmt::Display + PartialEq + From<u8>>(number: N, one: &str, many: &str) -> String {
    let word = if number == N::from(1) { one } else { many };
    format!("{number} {word}")
}

/// Bytes as levee(1) has sizes: below 1024 as they are, else with K, M, G, T for powers of 1024, to a tenth, and never less than it is.
pub fn size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let Some((bits, unit)) = units.into_iter().find(|(bits, _)| bytes >> bits > 0) else {
        return bytes.to_string();
    };
    let tenths = (u128::from(bytes) * 10).div_ceil(1 << bits);
    match tenths % 10 {
        0 => format!("{}{unit}", tenths / 10),
        tenth => format!("{}.{tenth}{unit}", tenths / 10),
    }
}

/// Rows under a heading, each column as wide as it needs; where there is no row, that is said.
pub fn table(heading: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return "  none\n".to_owned();
    }
    let all: Vec<Vec<String>> =
        std::iter::once(heading.iter().map(|word| (*word).to_owned()).collect()).chain(rows).collect();
    let width = |column: usize| {
        all.iter().filter_map(|row: &Vec<String>| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..heading.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in &all {
        let line: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{:width$}", shown(cell))).collect();
        out.push_str(&format!("  {}\n", line.join("  ").trim_end()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_the_unit_that_the_manual_names_and_is_never_less_than_it_is() {
        let sizes = [
            (0, "0"),
            (1_023, "1023"),
            (1_024, "1K"),
            (257 << 20, "257M"),
            ((257 << 20) + 1, "257.1M"),
            (64 << 30, "64G"),
            (3 << 39, "1.5T"),
            (u64::MAX, "16777216T"),
        ];
        for (bytes, shown) in sizes {
            assert_eq!(size(bytes), shown, "{bytes}");
        }
    }

    #[test]
    fn what_a_file_says_cannot_steer_the_terminal() {
        let value = serde_json::json!({"why\u{9b}31m": ["a\x1b[31mb\u{85}\u{7f}\n\u{202e}d\u{2028}\u{e0041}", "größer"]});
        let text = escaped(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.contains(|char| steers(char) && char != '\n') && text.contains("größer"), "{text:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
        assert_eq!(shown("a\x1b[31mb\tc\u{202e}d\u{e0041}"), "a\u{fffd}[31mb c\u{fffd}d\u{fffd}");
        // The Arabic letter mark turns text round as well; a soft hyphen and a filler are not seen.
        assert_eq!(shown("a\u{61c}b\u{ad}c\u{3164}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
    }
}
