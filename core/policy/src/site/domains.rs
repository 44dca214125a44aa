//! `[[domain]]`: which numbers other hosts' labels have for this site's levels and categories.

use std::ops::Range as Span;

use toml::Spanned;
use toml::de::DeValue;

use super::problem::ProblemKind;
use super::read::{Reader, Table};
use super::reference;
use super::values::unknown_word;
use crate::categories::MAX_CATEGORIES;
use crate::domain::{Domain, TagForm};
use crate::vocabulary::Vocabulary;

/// Every `[[domain]]`; `None` if one could not be read.
pub(super) fn read(
    reader: &mut Reader<'_>,
    root: &Table<'_>,
    vocabulary: Option<&Vocabulary>,
) -> Option<Vec<Domain>> {
    let tables = reader.tables(root.get("domain"), "[domain]", &reference::DOMAIN.names());
    let read: Vec<_> = tables.iter().map(|keys| domain(reader, keys, vocabulary)).collect();
    let read: Vec<(Domain, Span<usize>)> = read.into_iter().collect::<Option<_>>()?;
    let mut domains: Vec<Domain> = Vec::new();
    for (domain, span) in read {
        if domains.iter().any(|other| other.doi() == domain.doi()) {
            reader.problem(
                ProblemKind::Duplicate,
                &span,
                format!("there are two domains {}", domain.doi()),
                "a DOI stands for one domain: join the two",
            );
        }
        domains.push(domain);
    }
    Some(domains)
}

fn domain(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    vocabulary: Option<&Vocabulary>,
) -> Option<(Domain, Span<usize>)> {
    let doi = reader.need(keys, "doi", "16");
    let place = doi.map_or(keys.span(), Spanned::span);
    // RFC 5570 5.1: 0 says that there is none.
    let doi = doi.and_then(|value| reader.integer(value, "doi", 1..=u64::from(u32::MAX)));
    let form = match keys.get("tag") {
        Some(value) => tag(reader, value),
        None => Some(TagForm::default()),
    };
    let levels = reader.need(keys, "levels", "{ LOW = 0, HIGH = 5 }");
    let vocabulary = vocabulary?;
    if vocabulary.has_integrity() {
        reader.problem(
            ProblemKind::BadValue,
            &keys.span(),
            "other hosts' labels have no integrity, and this site's have: it would be lost",
            "remove the domain, or the integrity levels",
        );
        return None;
    }
    let names: Vec<&str> = vocabulary.levels().collect();
    let levels = levels.and_then(|value| table(reader, value, "levels", &names, u64::from(u8::MAX)));
    let names: Vec<&str> = vocabulary.categories().collect();
    let categories = match keys.get("categories") {
        Some(value) => table(reader, value, "categories", &names, MAX_CATEGORIES as u64 - 1),
        None => Some(Vec::new()),
    };
    let (doi, form, levels, categories) = (u32::try_from(doi?).ok()?, form?, levels?, categories?);
    let levels = levels.iter().filter_map(|(a, b)| Some((u8::try_from(*a).ok()?, u8::try_from(*b).ok()?)));
    let domain = Domain::new(doi, form, levels, categories);
    if domain.is_none() {
        reader.problem(
            ProblemKind::BadValue,
            &keys.span(),
            format!("the tables of domain {doi} would lose labels"),
            "give at least one level; each number to one name alone; to a higher level a higher number",
        );
    }
    Some((domain?, place))
}

fn tag(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Option<TagForm> {
    let word = reader.string(value, "tag")?;
    let known = TagForm::ALL.into_iter().find(|(name, _)| *name == word.value);
    if known.is_none() {
        unknown_word(reader, &word, "tag", TagForm::ALL.iter().map(|(name, _)| *name));
    }
    known.map(|(_, form)| form)
}

/// `{ NAME = NUMBER }`: each name's position in the site's list, and its number.
fn table(
    reader: &mut Reader<'_>,
    value: &Spanned<DeValue<'_>>,
    key: &str,
    names: &[&str],
    most: u64,
) -> Option<Vec<(u16, u16)>> {
    let keys = reader.subtable(value, &format!("`{key}`"), names)?;
    let mut pairs = Vec::new();
    for (name, value) in keys.iter() {
        let number = reader.integer(value, name.value, 0..=most);
        // A name that the site does not have has been told as an unknown key.
        let position = names.iter().position(|one| *one == name.value);
        pairs.push(position.zip(number));
    }
    let pairs: Option<Vec<_>> = pairs.into_iter().collect();
    pairs?
        .into_iter()
        .map(|(at, number)| Some((u16::try_from(at).ok()?, u16::try_from(number).ok()?)))
        .collect()
}
