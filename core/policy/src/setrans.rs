//! SELinux's translation file (`setrans.conf`, as mcstransd reads it): a line `s5:c0,c7=NAME` for each level that has a name.
//!
//! Read and written for the names of single levels. Lines of ranges (`s0-s15=…`) are checked, and name nothing here. A file that
//! composes names (`Base=`, `ModifierGroup=`, …) or includes others is refused: what its names mean is not in its lines.

use std::collections::BTreeMap;
use std::fmt;

use crate::label::Class;
use crate::selinux::{SelinuxError, parse_classes, print_class};

/// The names of a translation file, and the level of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translations(BTreeMap<String, Class>);

/// Why a translation file is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoTranslation {
    /// The line, from 1.
    pub line: usize,
    /// Why.
    pub kind: NoTranslationKind,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoTranslationKind {
    /// It has no `=`.
    NoName,
    /// What stands before `=` is neither a level nor a range.
    Level(SelinuxError),
    /// The name cannot stand in a file: it is empty, or has `=`, `#`, `-`, a control character, or blanks at its ends.
    Name,
    /// An earlier line gives another level this name.
    Twice,
    /// It composes names, or includes a file.
    Composed,
}

impl fmt::Display for NoTranslation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match &self.kind {
            NoTranslationKind::NoName => f.write_str("no name: write `s5:c0,c7=NAME`"),
            NoTranslationKind::Level(why) => write!(f, "{why}"),
            NoTranslationKind::Name => {
                f.write_str("a name is not empty and has no `=`, `#`, `-` or control character")
            }
            NoTranslationKind::Twice => f.write_str("an earlier line gives another level this name"),
            NoTranslationKind::Composed => {
                f.write_str("names that are composed are not read; list each level's")
            }
        }
    }
}

impl std::error::Error for NoTranslation {}

/// Words that stand where a level does, and make the file one that composes names.
const COMPOSING: [&str; 9] =
    ["Base", "Domain", "Default", "Include", "Join", "ModifierGroup", "Prefix", "Suffix", "Whitespace"];

impl Translations {
    /// Reads a file. Lines are cut at `\n`; blanks about a level or a name do not count, nor do lines that begin with `#`.
    ///
    /// # Errors
    /// The first line that is refused.
    pub fn parse(text: &str) -> Result<Self, NoTranslation> {
        let mut names = BTreeMap::new();
        for (line, number) in text.split('\n').zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fault = |kind| NoTranslation { line: number, kind };
            let (level, name) = line.split_once('=').ok_or_else(|| fault(NoTranslationKind::NoName))?;
            let (level, name) = (level.trim_end(), name.trim_start());
            if COMPOSING.contains(&level) {
                return Err(fault(NoTranslationKind::Composed));
            }
            let ends = parse_classes(level).map_err(|why| fault(NoTranslationKind::Level(why)))?;
            if level.contains('-') {
                continue;
            }
            let [class, _] = ends;
            if !is_name(name) {
                return Err(fault(NoTranslationKind::Name));
            }
            if names.get(name).is_some_and(|earlier| *earlier != class) {
                return Err(fault(NoTranslationKind::Twice));
            }
            names.insert(name.to_owned(), class);
        }
        Ok(Self(names))
    }

    /// The level that a name means.
    pub fn class(&self, name: &str) -> Option<&Class> {
        self.0.get(name)
    }

    /// All names with their levels, in the names' order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Class)> {
        self.0.iter().map(|(name, class)| (name.as_str(), class))
    }
}

/// The line of a level, without its end; `None` if the name cannot stand in one.
pub fn line(class: &Class, name: &str) -> Option<String> {
    is_name(name).then(|| format!("{}={name}", print_class(class)))
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.trim() == name
        && !name.contains(|c: char| matches!(c, '=' | '#' | '-') || c.is_control())
}
