//! Values that tables of several kinds have.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::Protocol;
use super::problem::ProblemKind;
use super::quantity::duration;
use super::read::{At, Reader, Table};
use crate::label::{Label, Range};
use crate::vocabulary::{Vocabulary, nearest};

pub(super) use crate::names::{NAME, PARTITION_NAME};

/// A table's `label`; nothing is said of it while the words themselves are at fault.
pub(super) fn label(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    keys: &Table<'_>,
) -> Option<At<Label>> {
    let value = reader.need(keys, "label", "\"SECRET\"")?;
    let text = reader.string(value, "label")?;
    let vocabulary = vocabulary?;
    match vocabulary.parse(text.value) {
        Ok(label) => Some(At::new(label, text.span)),
        Err(_) if vocabulary.parse_range(text.value).is_ok() => {
            let what = format!("`{}` is a range of labels", text.value);
            reader.problem(ProblemKind::BadValue, &text.span, what, "write one label");
            None
        }
        Err(error) => {
            reader.label_fault(&text, error);
            None
        }
    }
}

/// A program's absolute path, and its arguments.
pub(super) fn command(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Option<Vec<String>> {
    let words = reader.strings(value, "command")?;
    let fault = match words.first() {
        None => Some("`command` is empty".to_owned()),
        Some(first) if !first.value.starts_with('/') => {
            Some(format!("`{}` is not an absolute path", first.value))
        }
        // An argument ends at a NUL: what follows would be silently lost (execve(2)).
        Some(_) if words.iter().any(|word| word.value.contains('\0')) => {
            Some("a NUL in `command`".to_owned())
        }
        Some(_) => None,
    };
    if let Some(what) = fault {
        let remedy = "write the program's absolute path, then its arguments";
        reader.problem(ProblemKind::BadValue, &value.span(), what, remedy);
        return None;
    }
    Some(words.iter().map(|word| word.value.to_owned()).collect())
}

/// A range in the site's own words; nothing is said of it while the words themselves are at fault.
pub(super) fn range(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    keys: &Table<'_>,
    key: &str,
) -> Option<At<Range>> {
    let value = reader.need(keys, key, &format!("\"{}\"", example(vocabulary)))?;
    let text = reader.string(value, key)?;
    match vocabulary?.parse_range(text.value) {
        Ok(range) => Some(At::new(range, text.span)),
        Err(error) => {
            reader.label_fault(&text, error);
            None
        }
    }
}

/// A range in the site's own words for who wrote none.
fn example(vocabulary: Option<&Vocabulary>) -> String {
    let levels: Vec<&str> = vocabulary.iter().flat_map(|words| words.levels()).collect();
    match (vocabulary, levels.as_slice()) {
        (Some(words), _) if words.has_integrity() => words.print_range(&words.whole()).unwrap_or_default(),
        (_, [first, .., last]) => format!("{first}..{last}"),
        (_, [one]) => (*one).to_owned(),
        (_, []) => "LOW..HIGH".to_owned(),
    }
}

/// A string with a unit, read by `read` and kept within bounds.
pub(super) fn quantity(
    reader: &mut Reader<'_>,
    value: &Spanned<DeValue<'_>>,
    key: &str,
    read: impl Fn(&str) -> Option<u64>,
    bounds: std::ops::RangeInclusive<u64>,
    form: &str,
) -> Option<u64> {
    let text = reader.text(value, key, form)?;
    let Some(number) = read(text.value) else {
        let what = format!("`{}` is not a valid {key}", text.value);
        // "512 MB" for "512M", "30 sec" for "30s": the number and the unit's first letter.
        let digits = text.value.trim_end_matches(|c: char| !c.is_ascii_digit());
        let unit = text.value.get(digits.len()..).and_then(|unit| unit.trim_start().chars().next());
        // (Of bits there are eight in what is meant here.)
        let is_bits = text.value.to_ascii_lowercase().contains("bit");
        let meant =
            unit.map(|unit| format!("{digits}{unit}")).filter(|meant| !is_bits && read(meant).is_some());
        let remedy = meant.map_or_else(|| form.to_owned(), |meant| format!("`{meant}`, {form}"));
        reader.problem(ProblemKind::BadValue, &text.span, what, format!("write {remedy}"));
        return None;
    };
    if !bounds.contains(&number) {
        let what = format!("`{key}` is {}", text.value);
        reader.problem(ProblemKind::OutOfBounds, &text.span, what, format!("write {form}"));
        return None;
    }
    Some(number)
}

/// Says of a word that it is none of those `known`, and which is near to it.
pub(super) fn unknown_word<'a>(
    reader: &mut Reader<'_>,
    word: &At<&str>,
    what: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) {
    let near = nearest(word.value, known.clone());
    let list = known.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let remedy = match &near {
        Some(near) => format!("did you mean `{near}`? There are {list}"),
        None => format!("use one of {list}"),
    };
    reader.problem_near(
        ProblemKind::UnknownName,
        &word.span,
        format!("`{}` is no {what}", word.value),
        near,
        remedy,
    );
}

/// A table's `protocol`.
pub(super) fn protocol(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Protocol> {
    let value = reader.need(keys, "protocol", "\"tcp\"")?;
    let word = reader.string(value, "protocol")?;
    match word.value {
        "tcp" => Some(Protocol::Tcp),
        "udp" => Some(Protocol::Udp),
        _ => {
            unknown_word(reader, &word, "protocol", ["tcp", "udp"].into_iter());
            None
        }
    }
}

/// A table's `port`.
pub(super) fn port(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<At<u16>> {
    let value = reader.need(keys, "port", "80")?;
    reader.port(value, "port").map(|port| At::new(port, value.span()))
}

/// A port under this key; where there is none, `default`.
pub(super) fn port_or(reader: &mut Reader<'_>, keys: &Table<'_>, key: &str, default: u16) -> Option<At<u16>> {
    match keys.get(key) {
        Some(value) => reader.port(value, key).map(|port| At::new(port, value.span())),
        None => Some(At::new(default, keys.span())),
    }
}

/// A list of names of `what` that the site has; `known` is `None` where these could not be read.
pub(super) fn names<'a, T>(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    key: &str,
    (what, known): (&str, Option<impl Iterator<Item = &'a T> + Clone>),
) -> Option<Option<BTreeSet<T>>>
where
    T: FromStr + Display + Ord + Clone + 'a,
    T::Err: Display,
{
    let Some(value) = keys.get(key) else { return Some(None) };
    let read: Vec<At<T>> = reader.parsed_list(value, (key, &format!("{what}'s name")), NAME)?;
    let mut found = BTreeSet::new();
    for name in read {
        if let Some(known) = known.clone().filter(|known| !known.clone().any(|one| *one == name.value)) {
            let known: Vec<String> = known.map(ToString::to_string).collect();
            let text = name.value.to_string();
            let word = At::new(text.as_str(), name.span.clone());
            unknown_word(reader, &word, &format!("{what} of the site"), known.iter().map(String::as_str));
        } else if !found.insert(name.value.clone()) {
            let said = format!("`{}` stands here twice", name.value);
            reader.problem(ProblemKind::Duplicate, &name.span, said, "take it out once");
        }
    }
    Some(Some(found))
}

/// How old keys may become, in milliseconds: at most what they may without it.
const LIVES: std::ops::RangeInclusive<u64> = 60_000..=3_600_000;

/// How old keys may become, where it is said; `None` where it could not be read.
pub(super) fn key_life(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Option<Duration>> {
    let Some(value) = keys.get("key-life") else { return Some(None) };
    let read = |text: &str| duration(text).and_then(|time| u64::try_from(time.as_millis()).ok());
    let life = quantity(reader, value, "key-life", read, LIVES, "a time from \"1m\" to \"1h\"")?;
    Some(Some(Duration::from_millis(life)))
}
