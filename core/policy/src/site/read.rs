//! Reads a TOML tree key by key, noting every fault with its place and going on.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, ProblemKind, locate};
use crate::vocabulary::{SyntaxError, SyntaxKind, article, enumerate, nearest};

/// A value and where it stands in the file, in bytes.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub value: T,
    pub span: Range<usize>,
}

impl<T> At<T> {
    pub fn new(value: T, span: Range<usize>) -> Self {
        Self { value, span }
    }
}

/// A table whose keys have been checked against those it may have.
pub(super) struct Table<'t> {
    table: &'t DeTable<'t>,
    span: Range<usize>,
    title: String,
}

impl<'t> Table<'t> {
    pub fn get(&self, key: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        self.table.iter().find(|(name, _)| name.get_ref() == key).map(|(_, value)| value)
    }

    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub fn iter(&self) -> impl Iterator<Item = (At<&'t str>, &'t Spanned<DeValue<'t>>)> + use<'t> {
        self.table.iter().map(|(key, value)| (At::new(key.get_ref().as_ref(), key.span()), value))
    }
}

/// What to do about the faults that are made most often.
fn syntax_remedy(message: &str) -> &'static str {
    if message.contains("duplicate key") {
        "a table or a key stands once in its place: join the two, or take one out"
    } else if message.contains("expected `\"`") {
        "close the string with a quote, on the same line"
    } else if message.contains("string values must be quoted") {
        "write strings in straight quotes: \"…\""
    } else if message.contains("expected `]`") || message.contains("unclosed array") {
        "close the list with `]`"
    } else {
        "correct it as https://toml.io describes"
    }
}

/// The file's text, and the problems found in it so far.
pub(super) struct Reader<'a> {
    text: &'a str,
    problems: Vec<Problem>,
    /// Whether the TOML itself is broken: then what seems missing may only have been lost with it.
    broken: bool,
}

impl<'a> Reader<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, problems: Vec::new(), broken: false }
    }

    /// The problems in the order of the file.
    pub fn finish(mut self) -> Vec<Problem> {
        self.problems.sort();
        self.problems.dedup();
        self.problems
    }

    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Whether parts of the file may have been lost, because it is not TOML.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    pub fn line(&self, span: &Range<usize>) -> usize {
        locate(self.text, span.clone()).0
    }

    pub fn problem(
        &mut self,
        kind: ProblemKind,
        span: &Range<usize>,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.problem_near(kind, span, what, None, remedy);
    }

    pub fn problem_near(
        &mut self,
        kind: ProblemKind,
        span: &Range<usize>,
        what: impl Into<String>,
        nearest: Option<String>,
        remedy: impl Into<String>,
    ) {
        let (line, column, length) = locate(self.text, span.clone());
        let (what, remedy) = (what.into(), remedy.into());
        self.problems.push(Problem { line, column, length, kind, what, nearest, remedy });
    }

    pub fn syntax(&mut self, error: &toml::de::Error) {
        self.broken = true;
        let span = error.span().unwrap_or(0..0);
        self.problem(
            ProblemKind::Syntax,
            &span,
            format!("this is not TOML: {}", error.message()),
            self.single(&span).unwrap_or_else(|| syntax_remedy(error.message()).to_owned()),
        );
    }

    /// What to do where `[[name]]` cannot be, since an earlier one was written `[name]`.
    fn single(&self, span: &Range<usize>) -> Option<String> {
        let name = self.text.get(span.clone())?;
        let (before, header) = (self.text.get(..span.start)?, format!("[{name}]"));
        let earlier = before.ends_with("[[") && before.lines().any(|line| line.starts_with(&header));
        earlier.then(|| format!("write two brackets everywhere, at the first one too: [[{name}]]"))
    }

    /// A table with no other keys than these.
    pub fn table<'t>(
        &mut self,
        table: &'t DeTable<'t>,
        span: Range<usize>,
        title: &str,
        known: &[&str],
    ) -> Table<'t> {
        for (key, _) in table.iter() {
            let name = key.get_ref().as_ref();
            if known.contains(&name) {
                continue;
            }
            let near = nearest(name, known.iter().copied());
            let remedy = match &near {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("remove it; {title} takes {}", enumerate(known)),
            };
            self.problem_near(
                ProblemKind::UnknownKey,
                &key.span(),
                format!("unknown key `{name}` in {title}"),
                near,
                remedy,
            );
        }
        Table { table, span, title: title.to_owned() }
    }

    /// The value as a table with no other keys than these.
    pub fn subtable<'t>(
        &mut self,
        value: &'t Spanned<DeValue<'t>>,
        title: &str,
        known: &[&str],
    ) -> Option<Table<'t>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(self.table(table, value.span(), title, known)),
            other => {
                self.wrong_type(value, other, title, "a table");
                None
            }
        }
    }

    /// The value as an array of tables.
    pub fn tables<'t>(
        &mut self,
        value: Option<&'t Spanned<DeValue<'t>>>,
        title: &str,
        known: &[&str],
    ) -> Vec<Table<'t>> {
        let Some(value) = value else { return Vec::new() };
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong_type(
                value,
                value.get_ref(),
                title,
                &format!("an array of tables, each under [{title}]"),
            );
            return Vec::new();
        };
        items.iter().filter_map(|item| self.subtable(item, title, known)).collect()
    }

    /// A key that must be there.
    pub fn need<'t>(
        &mut self,
        keys: &Table<'t>,
        key: &str,
        example: &str,
    ) -> Option<&'t Spanned<DeValue<'t>>> {
        let found = keys.get(key);
        if found.is_none() && !self.broken && !self.misspelt(keys, key) {
            self.problem(
                ProblemKind::MissingKey,
                &keys.span,
                format!("{} has no `{key}`", keys.title),
                format!("add, for instance, `{key} = {example}`"),
            );
        }
        found
    }

    /// Whether the table has a key that was taken for a misspelt one of this name: that is one fault, and said once.
    fn misspelt(&self, keys: &Table<'_>, key: &str) -> bool {
        let near = |problem: &&Problem| problem.nearest.as_deref() == Some(key);
        let unknown =
            self.problems.iter().filter(|problem| problem.kind == ProblemKind::UnknownKey).filter(near);
        let places: Vec<_> = unknown.map(|problem| (problem.line, problem.column)).collect();
        keys.iter().any(|(name, _)| {
            let (line, column, _) = locate(self.text, name.span.clone());
            places.contains(&(line, column))
        })
    }

    pub fn string<'t>(&mut self, value: &'t Spanned<DeValue<'t>>, key: &str) -> Option<At<&'t str>> {
        self.text(value, key, "a string in quotes")
    }

    /// A string; whoever wrote something else is told to write `form`.
    pub fn text<'t>(
        &mut self,
        value: &'t Spanned<DeValue<'t>>,
        key: &str,
        form: &str,
    ) -> Option<At<&'t str>> {
        match value.get_ref() {
            DeValue::String(text) => Some(At::new(text.as_ref(), value.span())),
            other => {
                self.wrong_type(value, other, &format!("`{key}`"), form);
                None
            }
        }
    }

    pub fn boolean(&mut self, value: &Spanned<DeValue<'_>>, key: &str) -> Option<bool> {
        match value.get_ref() {
            DeValue::Boolean(truth) => Some(*truth),
            other => {
                self.wrong_type(value, other, &format!("`{key}`"), "true or false");
                None
            }
        }
    }

    pub fn integer(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        key: &str,
        bounds: RangeInclusive<u64>,
    ) -> Option<u64> {
        let DeValue::Integer(number) = value.get_ref() else {
            self.wrong_type(value, value.get_ref(), &format!("`{key}`"), "an integer");
            return None;
        };
        let parsed = u64::from_str_radix(number.as_str(), number.radix()).ok();
        let found = parsed.filter(|number| bounds.contains(number));
        if found.is_none() {
            self.problem(
                ProblemKind::OutOfBounds,
                &value.span(),
                format!("`{key}` is {number}"),
                format!("choose a number from {} to {}", bounds.start(), bounds.end()),
            );
        }
        found
    }

    pub fn port(&mut self, value: &Spanned<DeValue<'_>>, key: &str) -> Option<u16> {
        self.integer(value, key, 1..=u64::from(u16::MAX)).and_then(|port| u16::try_from(port).ok())
    }

    pub fn list<'t>(
        &mut self,
        value: &'t Spanned<DeValue<'t>>,
        key: &str,
    ) -> Option<&'t [Spanned<DeValue<'t>>]> {
        match value.get_ref() {
            DeValue::Array(items) => Some(items),
            other => {
                self.wrong_type(value, other, &format!("`{key}`"), "a list in brackets");
                None
            }
        }
    }

    pub fn strings<'t>(&mut self, value: &'t Spanned<DeValue<'t>>, key: &str) -> Option<Vec<At<&'t str>>> {
        let items = self.list(value, key)?;
        // Go through all of them before giving up, so that each fault is told.
        let read: Vec<_> = items.iter().map(|item| self.string(item, key)).collect();
        read.into_iter().collect()
    }

    /// A string that a type of its own reads, such as a name or an address.
    pub fn parsed<T: FromStr>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        key: &str,
        remedy: &str,
    ) -> Option<At<T>>
    where
        T::Err: Display,
    {
        let text = self.text(value, key, &format!("a string in quotes: {remedy}"))?.value;
        match text.parse() {
            Ok(parsed) => Some(At::new(parsed, value.span())),
            Err(_) => {
                self.problem(
                    ProblemKind::BadValue,
                    &value.span(),
                    format!("`{text}` is not a valid {key}"),
                    format!("write {remedy}"),
                );
                None
            }
        }
    }

    pub fn parsed_list<T: FromStr>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        key: &str,
        remedy: &str,
    ) -> Option<Vec<At<T>>>
    where
        T::Err: Display,
    {
        let DeValue::Array(items) = value.get_ref() else {
            self.wrong_type(value, value.get_ref(), &format!("`{key}`"), "a list in brackets");
            return None;
        };
        let read: Vec<_> = items.iter().map(|item| self.parsed(item, key, remedy)).collect();
        read.into_iter().collect()
    }

    /// One such string, or a list of them.
    pub fn one_or_more<T: FromStr>(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        key: &str,
        remedy: &str,
    ) -> Option<Vec<At<T>>>
    where
        T::Err: Display,
    {
        if let DeValue::Array(_) = value.get_ref() {
            self.parsed_list(value, key, remedy)
        } else {
            self.parsed(value, key, remedy).map(|one| vec![one])
        }
    }

    /// Reports a fault within the text of a label or range at its own place.
    pub fn label_fault(&mut self, text: &At<&str>, error: SyntaxError) {
        let kind = match error.kind {
            SyntaxKind::EmptyRange => ProblemKind::EmptyRange,
            SyntaxKind::UnknownName => ProblemKind::UnknownName,
            SyntaxKind::Malformed => ProblemKind::BadValue,
        };
        // Offsets within the value are offsets in the file only if it is written without escapes.
        let inner = text.span.start + 1..text.span.end.saturating_sub(1);
        let span = if self.text.get(inner.clone()) == Some(text.value) && error.at < text.value.len() {
            let start = inner.start + error.at;
            let word = text.value.get(error.at..).unwrap_or("");
            let length = if kind == ProblemKind::UnknownName {
                word.find(['/', ',', '@', '.']).unwrap_or(word.len()).max(1)
            } else {
                word.len()
            };
            start..start + length
        } else {
            text.span.clone()
        };
        self.problem_near(kind, &span, error.what, error.nearest, error.remedy);
    }

    fn wrong_type(&mut self, value: &Spanned<DeValue<'_>>, found: &DeValue<'_>, title: &str, wanted: &str) {
        let is = found.type_str();
        self.problem(
            ProblemKind::WrongType,
            &value.span(),
            format!("{title} is {} {is}", article(is)),
            format!("write {wanted}"),
        );
    }
}
