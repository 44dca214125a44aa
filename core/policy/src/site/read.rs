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

/// What people write for a truth value that TOML has no such word for.
const TRUTHS: [&str; 4] = ["yes", "on", "True", "TRUE"];
const UNTRUTHS: [&str; 4] = ["no", "off", "False", "FALSE"];
const DUPLICATE: &str = "duplicate key";
const UNQUOTED: &str = "string values must be quoted";

/// What to do about the faults that are made most often.
fn syntax_remedy(message: &str) -> &'static str {
    if message.contains(DUPLICATE) {
        "a table or a key stands once in its place: join the two, or take one out"
    } else if message.contains("expected `\"`") {
        "close the string with a quote, on the same line"
    } else if message.contains(UNQUOTED) {
        "write strings in straight quotes: \"…\""
    } else if message.contains("invalid boolean") {
        "write true or false"
    } else if message.contains("expected `]`") || message.contains("unclosed array") {
        "close the list with `]`"
    } else {
        "correct it as https://toml.io describes"
    }
}

/// Whether a text is one thing, which a list could have as it stands.
fn is_one_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:/@".contains(&byte))
}

/// The file's text, and the problems found in it so far.
pub(super) struct Reader<'a> {
    text: &'a str,
    problems: Vec<Problem>,
    /// Whether the TOML itself is broken: then what seems missing may only have been lost with it.
    broken: bool,
    /// Lines of table headers that stand a second time: what is below one is no further fault.
    repeated: Vec<usize>,
    /// Whether a level or category is declared twice: a name that is unknown may be the one that was meant.
    doubtful: bool,
}

impl<'a> Reader<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, problems: Vec::new(), broken: false, repeated: Vec::new(), doubtful: false }
    }

    /// The problems in the order of the file. Of what is no TOML nothing more is said.
    pub fn finish(mut self) -> Vec<Problem> {
        let place = |problem: &Problem| (problem.line, problem.column);
        let broken = self.problems.iter().filter(|problem| problem.kind == ProblemKind::Syntax);
        let broken: Vec<_> = broken.map(place).collect();
        self.problems.retain(|one| one.kind == ProblemKind::Syntax || !broken.contains(&place(one)));
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
        let mut what = format!("this is not TOML: {}", error.message());
        if error.message().contains(DUPLICATE) {
            match self.first(&span) {
                Some(line) => what.push_str(&format!("; the first is on line {line}")),
                // It is below a table that stands a second time.
                None if self.is_below_repeated(&span) => return,
                None => {}
            }
        }
        let truth = || self.truth(&span).filter(|_| error.message().contains(UNQUOTED));
        let remedy = self.single(&span).or_else(truth);
        let remedy = remedy.unwrap_or_else(|| syntax_remedy(error.message()).to_owned());
        self.problem(ProblemKind::Syntax, &span, what, remedy);
    }

    /// The lines up to the one in which this begins, by their numbers.
    fn lines_to(&self, span: &Range<usize>) -> Vec<(usize, &str)> {
        let lines = (1..).zip(self.text.lines().map(str::trim));
        lines.take_while(|(number, _)| *number <= self.line(span)).collect()
    }

    /// Whether this is a key of a table whose header stands a second time.
    fn is_below_repeated(&self, span: &Range<usize>) -> bool {
        let lines = self.lines_to(span);
        let Some(((_, own), before)) = lines.split_last() else { return false };
        let header = before.iter().rev().find(|(_, line)| line.starts_with('['));
        !own.starts_with('[') && header.is_some_and(|(number, _)| self.repeated.contains(number))
    }

    /// The line of the key or table header that stands here a second time, where it is in the same form.
    fn first(&mut self, span: &Range<usize>) -> Option<usize> {
        let lines = self.lines_to(span);
        let ((own, line), before) = lines.split_last()?;
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            // Of two that are written `[[name]]` the second is no fault.
            let (single, many) = (format!("[{}]", name.trim_start_matches('[')), format!("[[{name}]]"));
            let is_it =
                |line: &str| line.starts_with(&single) || (!name.starts_with('[') && line.starts_with(&many));
            let found = before.iter().find(|(_, line)| is_it(line)).map(|(number, _)| *number);
            let own = *own;
            self.repeated.push(own);
            return found;
        }
        let name = self.text.get(span.clone())?;
        let table = before.iter().rev().take_while(|(_, line)| !line.starts_with('['));
        let is_it = |line: &str| line.split_once('=').is_some_and(|(key, _)| key.trim() == name);
        table.filter(|(_, line)| is_it(line)).map(|(number, _)| *number).last()
    }

    /// What to write for a word that means true or false elsewhere.
    fn truth(&self, span: &Range<usize>) -> Option<String> {
        let word = self.text.get(span.clone())?;
        let truth = TRUTHS.contains(&word) || UNTRUTHS.contains(&word).then_some(false)?;
        let before = self.text.get(..span.start)?.lines().next_back()?;
        let key = before.trim_end().strip_suffix('=')?.rsplit(['{', ',']).next()?.trim();
        Some(format!("write `{key} = {truth}`; a string stands in straight quotes"))
    }

    /// A level or category is declared twice: of names that are like none nothing is said until it is known what the second is.
    pub fn doubt_words(&mut self) {
        self.doubtful = true;
    }

    /// Whether one is.
    pub fn doubts_words(&self) -> bool {
        self.doubtful
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
        self.needed(keys, key, &format!("add, for instance, `{key} = {example}`"))
    }

    /// A table that the site file must have, `with` these keys for instance.
    pub fn need_table<'t>(
        &mut self,
        root: &Table<'t>,
        key: &str,
        with: &str,
    ) -> Option<&'t Spanned<DeValue<'t>>> {
        let remedy = format!(
            "add a table `[{key}]` with, for instance, {with}; `levee init` writes a whole site file to begin with"
        );
        self.needed(root, key, &remedy)
    }

    fn needed<'t>(&mut self, keys: &Table<'t>, key: &str, remedy: &str) -> Option<&'t Spanned<DeValue<'t>>> {
        let found = keys.get(key);
        if found.is_none() && !self.broken && !self.misspelt(keys, key) {
            let what = format!("{} has no `{key}`", keys.title);
            self.problem(ProblemKind::MissingKey, &keys.span, what, remedy);
        }
        found
    }

    /// Whether the tables of this name that were read are all that somebody has written: under a misspelt name or in another form there may be more.
    pub fn has_all(&self, root: &Table<'_>, key: &str) -> bool {
        match root.get(key) {
            Some(value) => matches!(value.get_ref(), DeValue::Array(_)),
            None => !self.misspelt(root, key),
        }
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
            DeValue::String(text) if is_one_word(text) => {
                let wanted = format!("a list in brackets: `{key} = [\"{text}\"]`");
                self.wrong_type(value, value.get_ref(), &format!("`{key}`"), &wanted);
                None
            }
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
        let DeValue::String(text) = value.get_ref() else {
            let wanted = format!("a string in quotes: {remedy}");
            self.wrong_type(value, value.get_ref(), &format!("the {key}"), &wanted);
            return None;
        };
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
        (key, one): (&str, &str),
        remedy: &str,
    ) -> Option<Vec<At<T>>>
    where
        T::Err: Display,
    {
        let items = self.list(value, key)?;
        let read: Vec<_> = items.iter().map(|item| self.parsed(item, one, remedy)).collect();
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
            self.parsed_list(value, (key, key), remedy)
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
        if self.doubtful && kind == ProblemKind::UnknownName && error.nearest.is_none() {
            return;
        }
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
