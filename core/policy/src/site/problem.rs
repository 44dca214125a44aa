//! What is wrong with a site file, and where.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of a problem, for a program to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemKind {
    /// The file is not TOML.
    Syntax,
    /// A key that means nothing here.
    UnknownKey,
    /// A key that must be there is not.
    MissingKey,
    /// A value of another type than the key takes.
    WrongType,
    /// A value that is not what the key takes.
    BadValue,
    /// A number or size outside its bounds.
    OutOfBounds,
    /// A name that nothing in the site has.
    UnknownName,
    /// Two things with one name, address or interface.
    Duplicate,
    /// A range whose high end does not dominate its low end.
    EmptyRange,
    /// Two networks that share addresses.
    Overlap,
    /// Something that nobody could ever reach or use.
    Unreachable,
    /// A way for information to where the lattice forbids it.
    Flow,
    /// Not enough of something.
    TooSmall,
    /// Too much of something.
    TooLarge,
}

/// One problem of a site file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Characters at fault on that line, at least 1.
    pub length: usize,
    /// Kind of problem.
    pub kind: ProblemKind,
    /// What is wrong, in words.
    pub what: String,
    /// The nearest valid name, where one is like what the file says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.line, self.column, self.what, self.remedy)
    }
}

impl std::error::Error for Problem {}

/// Line, column and length in characters of a byte span of a text.
pub(super) fn locate(text: &str, span: std::ops::Range<usize>) -> (usize, usize, usize) {
    let start = floor(text, span.start);
    let end = floor(text, span.end).max(start);
    let before = text.get(..start).unwrap_or("");
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    let inside = text.get(start..end).unwrap_or("");
    let length = inside.lines().next().unwrap_or("").chars().count().max(1);
    (line, column, length)
}

fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_within_a_letter_is_that_letters_and_one_behind_the_end_is_the_end() {
        let text = "a\nb\u{1f600}c";
        // The letter of four octets is at 3.
        for inside in 3..7 {
            assert_eq!(locate(text, inside..inside), (2, 2, 1), "{inside}");
        }
        assert_eq!(locate(text, 2..7), (2, 1, 2));
        assert_eq!(locate(text, 7..99), (2, 3, 1));
        assert_eq!(locate(text, 99..99), (2, 4, 1));
    }
}
