//! The tests, each alone: which changes it comes by, and whether it notices one.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::tree::Program;

/// One test.
#[derive(Debug)]
pub struct Test {
    program: PathBuf,
    directory: PathBuf,
    name: String,
    /// How long it takes without a change.
    took: Duration,
    /// The changes that it comes by.
    seen: BTreeSet<u32>,
}

impl Test {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--exact", &self.name, "--test-threads=1", "--quiet"]).current_dir(&self.directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Whether it passes within this time.
    fn passes(&self, command: &mut Command, within: Duration) -> Result<bool, String> {
        let began = Instant::now();
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", self.program.display()))?;
        loop {
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                return Ok(status.success());
            }
            if began.elapsed() > within {
                child.kill().and_then(|()| child.wait()).map_err(|e| e.to_string())?;
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Every test that passes and takes no longer than this many seconds, the quickest first.
pub fn tests(programs: &[Program], longest: f64) -> Result<Vec<Test>, String> {
    let record = std::path::absolute("out/mutants/seen").map_err(|e| e.to_string())?;
    let longest = Duration::from_secs_f64(longest);
    let mut tests = Vec::new();
    for program in programs {
        let mut list = Command::new(&program.path);
        list.args(["--list", "--format", "terse"]).current_dir(&program.directory);
        let listed = list.output().map_err(|e| format!("{}: {e}", program.path.display()))?;
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        for name in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
            let (path, directory) = (program.path.clone(), program.directory.clone());
            let (took, seen) = (Duration::ZERO, BTreeSet::new());
            let mut test = Test { program: path, directory, name: name.to_owned(), took, seen };
            let _ = std::fs::remove_file(&record);
            let began = Instant::now();
            if !test.passes(test.command().env("LEVEE_MUTANTS_SEEN", &record), longest)? {
                eprintln!("{name} fails or takes too long without any change: left out");
                continue;
            }
            test.took = began.elapsed();
            let seen = std::fs::read_to_string(&record).unwrap_or_default();
            test.seen = seen.lines().filter_map(|line| line.parse().ok()).collect();
            tests.push(test);
        }
    }
    tests.sort_by_key(|test| test.took);
    eprintln!("{} tests", tests.len());
    Ok(tests)
}

/// Tries one change; how it lived, or nothing where a test noticed it.
pub fn try_one(tests: &[Test], id: u32) -> Result<Option<&'static str>, String> {
    let mut reached = false;
    for test in tests.iter().filter(|test| test.seen.contains(&id)) {
        reached = true;
        let within = test.took.saturating_mul(8) + Duration::from_secs(5);
        if !test.passes(test.command().env("LEVEE_MUTANT", id.to_string()), within)? {
            return Ok(None);
        }
    }
    Ok(Some(if reached { "no test notices" } else { "no test comes by" }))
}
