//! The solver: z3, as a process that reads a script to its end.

use std::io::Write;
use std::process::{Command, Stdio};

/// Milliseconds for one question, many times what any takes here: what takes longer is told as `unknown`.
const PATIENCE: &str = "-t:120000";

/// The lines that it answers, as many as are expected.
pub(crate) fn answers(script: &str, expected: usize) -> Vec<String> {
    let begun =
        Command::new("z3").args(["-in", PATIENCE]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut z3 = begun.unwrap_or_else(|e| panic!("install z3 (Debian: apt-get install z3): {e}"));
    let mut input = z3.stdin.take().expect("its input");
    let output = std::thread::scope(|scope| {
        // It answers before it has read all.
        scope.spawn(move || input.write_all(script.as_bytes()));
        z3.wait_with_output().expect("its output")
    });
    let text = String::from_utf8(output.stdout).expect("it answers in text");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let errors: Vec<&String> = lines.iter().filter(|line| line.contains("error")).take(3).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(lines.len(), expected, "answers: {:?}…", lines.last());
    lines
}
