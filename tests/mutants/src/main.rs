//! Which changes of a crate's code no test of it notices.
//!
//! Every change is written into a copy of the code, each behind a switch, so that one build has all of them; then each is turned on alone,
//! for the tests that come by it. It may not change the tree: what it writes lies below `out/mutants`. It is trusted with nothing.
//!
//! The changes are those of cargo-mutants: other operators, a condition turned round, a match arm or its guard taken away, a function's body
//! replaced by a plain value of its type. What is within macros, or reckoned when it is compiled, is left as it is.
//!
//! Begin reading with `changes.rs` (what is changed, and how), then `tree.rs` (the copy and its build) and `trial.rs` (the tests).
#![forbid(unsafe_code)]

mod changes;
mod touched;
mod tree;
mod trial;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

/// Changes that change nothing, and why.
const EQUAL: &str = include_str!("../equal.txt");

/// Change a crate's code in every place, and show which changes no test of it notices
#[derive(Debug, Parser)]
struct Arguments {
    /// The crate's directory, such as core/ike
    path: PathBuf,
    /// Only files whose path has this in it
    #[arg(long, value_name = "TEXT")]
    file: Vec<String>,
    /// Directories of other crates whose tests count as well
    #[arg(long, value_name = "DIR")]
    with: Vec<PathBuf>,
    /// Only what lived in an earlier run: a file of what that printed
    #[arg(long, value_name = "FILE")]
    again: Option<PathBuf>,
    /// Only lines that are others than in this commit
    #[arg(long, value_name = "COMMIT")]
    since: Option<String>,
    /// Try no more after so many seconds, and say how many were
    #[arg(long, value_name = "SECONDS")]
    at_most: Option<u64>,
    /// Leave out tests that take longer than this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    longest: f64,
}

fn run(arguments: &Arguments) -> Result<bool, String> {
    let mut tree = tree::Tree::copy(&arguments.path, &arguments.file)?;
    if let Some(commit) = &arguments.since {
        let touched = touched::since(commit, &arguments.path)?;
        if !tree.leave_only(|file, line| touched.has(file, line)) {
            println!(
                "{}: nothing that can be changed stands in a line that is another since {commit}",
                arguments.path.display()
            );
            return Ok(true);
        }
    }
    let programs = tree.build(&arguments.with)?;
    let tests = trial::tests(&programs, arguments.longest)?;
    let mut all = tree.changes();
    if let Some(path) = &arguments.again {
        let before = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        // Lines may have moved since.
        let lived = |line: &str| {
            let (place, what) = line.split_once(": ")?;
            Some((place.rsplit_once(':')?.0.to_owned(), what.rsplit_once(" (")?.0.to_owned()))
        };
        let lived: BTreeSet<(String, String)> = before.lines().filter_map(lived).collect();
        all.retain(|(file, change)| lived.contains(&(file.display().to_string(), change.what.clone())));
    }
    let (mut lived, mut equal) = (0, 0);
    let until = arguments.at_most.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    for (number, (file, change)) in all.iter().enumerate() {
        if until.is_some_and(|until| Instant::now() >= until) {
            println!("{number} of {} were tried in the time there is", all.len());
            break;
        }
        if EQUAL.contains(&format!("\n{}: {} = ", file.display(), change.what)) {
            equal += 1;
        } else if let Some(how) = trial::try_one(&tests, change.id)? {
            lived += 1;
            println!("{}:{}: {} ({how})", file.display(), change.line, change.what);
        }
        if number % 50 == 49 {
            eprintln!("{} of {} tried, {lived} lived", number + 1, all.len());
        }
    }
    match arguments.since {
        // What no commit has touched is no part of it.
        Some(_) => println!("{} that compile, {lived} lived, {equal} known to change nothing", all.len()),
        None => println!("{}, {equal} known to change nothing", tree.table(lived)),
    }
    Ok(lived == 0)
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
