//! What the tests of this crate look at: the tree as git has it, read as text.
//!
//! Begin reading with `tests/house.rs` (crates, sizes, files that nothing reaches) and `tests/documents.rs` (what the documents name).
#![forbid(unsafe_code)]

pub mod imports;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of the tree.
#[derive(Clone, Debug)]
pub struct Source {
    /// Relative to the tree's root, with `/`.
    pub path: String,
    /// Its text; files that are no text are not in the list.
    pub text: String,
}

/// The root of the tree.
pub fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("the crate lies two directories down").to_path_buf()
}

/// Every text file of the tree that git knows or does not ignore.
pub fn tree() -> Vec<Source> {
    let listed = command("git", &["ls-files", "--cached", "--others", "--exclude-standard"]);
    let paths = listed.lines().map(str::to_owned);
    paths
        .filter_map(|path| std::fs::read_to_string(root().join(&path)).ok().map(|text| Source { path, text }))
        .collect()
}

/// What a command prints that must succeed, run at the root.
pub fn command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).output();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// Fails with all of `problems`, one a line.
#[track_caller]
pub fn none(problems: &[String]) {
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

impl Source {
    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The lines before the file's own unit tests.
    pub fn code(&self) -> impl Iterator<Item = &str> {
        let mut lines = self.text.lines().peekable();
        std::iter::from_fn(move || {
            let line = lines.next()?;
            let is_module =
                |line: &&str| line.starts_with("mod ") || (line.starts_with("pub") && line.contains(" mod "));
            let tests = line == "#[cfg(test)]" && lines.peek().is_some_and(is_module);
            (!tests).then_some(line)
        })
    }

    /// Whether it is of tests alone: of a directory of them, or a file of unit tests.
    pub fn is_of_tests(&self) -> bool {
        let mut parts = self.path.split('/');
        parts.any(|part| ["tests", "benches", "examples", "tests.rs"].contains(&part))
    }

    /// Whether it is of a file's own unit tests, in a file apart.
    pub fn is_of_unit_tests(&self) -> bool {
        let within = self.path.split_once("/src/").map_or("", |(_, within)| within);
        within.split('/').any(|part| ["tests", "tests.rs"].contains(&part))
    }

    /// Its functions: name, and how many lines each has.
    pub fn functions(&self) -> Vec<(String, usize)> {
        functions(self.text.lines().collect())
    }

    /// The same without those of its own unit tests.
    pub fn own_functions(&self) -> Vec<(String, usize)> {
        functions(self.code().collect())
    }
}

/// The functions of some lines. One ends at the brace that stands as far in as it began.
fn functions(lines: Vec<&str>) -> Vec<(String, usize)> {
    let named = lines.iter().enumerate().filter_map(|(at, line)| Some((at, line, function(line)?)));
    named
        .filter_map(|(at, line, name)| {
            let margin = line.len() - line.trim_start().len();
            let end = format!("{}}}", " ".repeat(margin));
            let length = lines.iter().skip(at).position(|line| *line == end)?;
            Some((name, length + 1))
        })
        .collect()
}

/// The name of the function that begins on this line and does not end on it.
fn function(line: &str) -> Option<String> {
    if line.trim_end().ends_with([';', '}']) {
        return None;
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "fn")?;
    let before = |word: &&str| matches!(*word, "const" | "async" | "unsafe") || word.starts_with("pub");
    if !words.iter().take(at).all(before) {
        return None;
    }
    let name = words.get(at + 1)?.split(['(', '<']).next()?;
    Some(name.to_owned())
}
