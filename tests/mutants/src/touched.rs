//! Which lines are others than in a commit.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines by file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Touched(BTreeMap<PathBuf, Vec<Range<usize>>>);

impl Touched {
    /// Whether this line, from 1, is another.
    pub fn has(&self, file: &Path, line: usize) -> bool {
        self.0.get(file).is_some_and(|lines| lines.iter().any(|range| range.contains(&line)))
    }

    /// Of what `git diff -U0` prints.
    fn read(printed: &str) -> Self {
        let (mut found, mut file) = (Self::default(), PathBuf::new());
        for line in printed.lines() {
            if let Some(path) = line.strip_prefix("+++ b/") {
                file = path.into();
            } else if let Some(range) = line.strip_prefix("@@ ").and_then(lines) {
                found.0.entry(file.clone()).or_default().push(range);
            }
        }
        found
    }
}

/// The new lines of `-A,B +FROM,COUNT @@`.
fn lines(head: &str) -> Option<Range<usize>> {
    let new = head.split(' ').find_map(|word| word.strip_prefix('+'))?;
    let (from, count) = new.split_once(',').unwrap_or((new, "1"));
    let (from, count): (usize, usize) = (from.parse().ok()?, count.parse().ok()?);
    Some(from..from + count)
}

/// The lines of a crate that are others than in a commit.
pub fn since(commit: &str, path: &Path) -> Result<Touched, String> {
    let mut git = Command::new("git");
    let output = git.args(["diff", "-U0", "--no-color", "--no-ext-diff", commit, "--"]).arg(path).output();
    let output = output.map_err(|e| format!("git: {e}"))?;
    if !output.status.success() {
        return Err(format!("git diff {commit}: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(Touched::read(&String::from_utf8_lossy(&output.stdout)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_a_diff_adds_are_touched_and_those_it_takes_away_are_nowhere() {
        let printed = "diff --git a/core/x/src/lib.rs b/core/x/src/lib.rs\n--- a/core/x/src/lib.rs\n+++ b/core/x/src/lib.rs\n\
                       @@ -3 +3,2 @@ fn one() {\n-a\n+b\n+c\n@@ -9,2 +10,0 @@\n-d\n-e\n@@ -20,0 +20 @@\n+f\n";
        let found = Touched::read(printed);
        let file = Path::new("core/x/src/lib.rs");
        let touched: Vec<usize> = (1..30).filter(|line| found.has(file, *line)).collect();
        assert_eq!(touched, [3, 4, 20]);
        assert!(!found.has(Path::new("core/x/src/other.rs"), 3));
        assert_eq!(Touched::read(""), Touched::default());
    }
}
