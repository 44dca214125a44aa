//! A site's words for its levels and categories, and the human syntax of labels made from them.
//!
//! `LEVEL[//CATEGORY,...]`, then `@LEVEL[//CATEGORY,...]` for integrity exactly where the site declares
//! integrity levels. A range is `LOW..HIGH`, or one label.

use std::collections::HashMap;
use std::fmt;

use crate::categories::{CategorySet, MAX_CATEGORIES};
use crate::label::{Class, Label, Range};
use crate::names::LabelName;

/// Levels a site can declare at most, in each of the two lattices.
pub const MAX_LEVELS: usize = 256;

/// Kind of a fault in the text of a label or range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyntaxKind {
    /// A level or category that the site does not declare.
    UnknownName,
    /// A range whose high end does not dominate its low end.
    EmptyRange,
    /// Something else is not as the syntax has it.
    Malformed,
}

/// What is wrong with the text of a label or range, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Kind of the fault.
    pub kind: SyntaxKind,
    /// Byte offset in the text at which the fault begins.
    pub at: usize,
    /// What is wrong, in words.
    pub what: String,
    /// The nearest valid name, where the fault is a name the site does not know.
    pub nearest: Option<String>,
    /// What to write instead.
    pub remedy: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at byte {}): {}", self.what, self.at, self.remedy)
    }
}

impl std::error::Error for SyntaxError {}

/// Which of a site's four lists of names a fault lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameList {
    /// `levels`
    Levels,
    /// `categories`
    Categories,
    /// `integrity-levels`
    IntegrityLevels,
    /// `integrity-categories`
    IntegrityCategories,
}

impl NameList {
    /// The list's key in the site file.
    pub fn key(self) -> &'static str {
        match self {
            Self::Levels => "levels",
            Self::Categories => "categories",
            Self::IntegrityLevels => "integrity-levels",
            Self::IntegrityCategories => "integrity-categories",
        }
    }
}

/// A fault in the lists of names a vocabulary is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VocabularyError {
    /// The list at fault.
    pub list: NameList,
    /// The entry at fault, counted from 0; `None` if it is the list as a whole.
    pub index: Option<usize>,
    /// Whether the entry has an earlier one's name, so that the name has a meaning all the same: the earlier one's.
    pub again: bool,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for VocabularyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.list.key(), self.what, self.remedy)
    }
}

impl std::error::Error for VocabularyError {}

/// One list of names, and where each stands in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Names {
    list: Vec<String>,
    number: HashMap<String, u16>,
}

impl Names {
    fn new(list: NameList, names: Vec<String>, max: usize, errors: &mut Vec<VocabularyError>) -> Self {
        if names.len() > max {
            errors.push(VocabularyError {
                list,
                index: None,
                again: false,
                what: format!("{} names, where at most {max} can be", names.len()),
                remedy: format!("declare at most {max}"),
            });
        }
        let mut number = HashMap::new();
        let mut folded: HashMap<String, usize> = HashMap::new();
        for (index, name) in names.iter().enumerate() {
            let mut fault = |again: bool, what: String, remedy: &str| {
                let (index, remedy) = (Some(index), remedy.to_owned());
                errors.push(VocabularyError { list, index, again, what, remedy });
            };
            if !valid_name(name) {
                fault(
                    false,
                    format!("`{name}` cannot be a name here"),
                    "use 1 to 32 of A-Z, a-z, 0-9, '_' and '-', the first a letter or digit",
                );
            }
            // Two names that only differ in case would be told apart by the machine and not by a person.
            match folded.insert(name.to_lowercase(), index) {
                Some(earlier) if names.get(earlier) == Some(name) => {
                    fault(true, format!("`{name}` is declared twice"), "remove or rename one of them");
                }
                Some(_) => fault(
                    false,
                    format!("`{name}` differs from an earlier name only in case"),
                    "choose names that a person can tell apart",
                ),
                None => {}
            }
            if let Ok(at) = u16::try_from(index) {
                number.entry(name.clone()).or_insert(at);
            }
        }
        Self { list: names, number }
    }

    fn name(&self, number: u16) -> Option<&str> {
        self.list.get(usize::from(number)).map(String::as_str)
    }

    fn find(&self, name: &str) -> Option<u16> {
        self.number.get(name).copied()
    }

    /// The name as the site declares it, where what is typed is one but for case and spaces around it.
    fn as_declared(&self, typed: &str) -> String {
        let typed = typed.trim();
        self.list
            .iter()
            .find(|name| name.eq_ignore_ascii_case(typed))
            .map_or(typed, String::as_str)
            .to_owned()
    }
}

fn valid_name(name: &str) -> bool {
    name.len() <= 32
        && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

/// The names of a site's levels and categories, and with them the only readers and printers of labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vocabulary {
    levels: Names,
    categories: Names,
    integrity_levels: Names,
    integrity_categories: Names,
}

impl Vocabulary {
    /// The vocabulary of these names, levels lowest first; or everything that is wrong with them.
    ///
    /// There must be at least one level. Integrity categories need an integrity level.
    pub fn new(
        levels: Vec<String>,
        categories: Vec<String>,
        integrity_levels: Vec<String>,
        integrity_categories: Vec<String>,
    ) -> Result<Self, Vec<VocabularyError>> {
        let (vocabulary, errors) = Self::read(levels, categories, integrity_levels, integrity_categories);
        if errors.is_empty() { Ok(vocabulary) } else { Err(errors) }
    }

    /// As [`Vocabulary::new`], with what there is of a vocabulary where something is wrong.
    pub(crate) fn read(
        levels: Vec<String>,
        categories: Vec<String>,
        integrity_levels: Vec<String>,
        integrity_categories: Vec<String>,
    ) -> (Self, Vec<VocabularyError>) {
        let mut errors = Vec::new();
        if levels.is_empty() {
            errors.push(VocabularyError {
                list: NameList::Levels,
                index: None,
                again: false,
                what: "no level is declared".to_owned(),
                remedy: "name at least one level, lowest first".to_owned(),
            });
        }
        if integrity_levels.is_empty() && !integrity_categories.is_empty() {
            errors.push(VocabularyError {
                list: NameList::IntegrityCategories,
                index: None,
                again: false,
                what: "integrity categories without an integrity level".to_owned(),
                remedy: "declare integrity-levels, or no integrity-categories".to_owned(),
            });
        }
        let vocabulary = Self {
            levels: Names::new(NameList::Levels, levels, MAX_LEVELS, &mut errors),
            categories: Names::new(NameList::Categories, categories, MAX_CATEGORIES, &mut errors),
            integrity_levels: Names::new(
                NameList::IntegrityLevels,
                integrity_levels,
                MAX_LEVELS,
                &mut errors,
            ),
            integrity_categories: Names::new(
                NameList::IntegrityCategories,
                integrity_categories,
                MAX_CATEGORIES,
                &mut errors,
            ),
        };
        (vocabulary, errors)
    }

    /// Whether labels of this site carry an integrity part.
    pub fn has_integrity(&self) -> bool {
        !self.integrity_levels.list.is_empty()
    }

    /// The levels, lowest first.
    pub fn levels(&self) -> impl ExactSizeIterator<Item = &str> {
        self.levels.list.iter().map(String::as_str)
    }

    /// The categories, by number.
    pub fn categories(&self) -> impl ExactSizeIterator<Item = &str> {
        self.categories.list.iter().map(String::as_str)
    }

    /// The integrity levels, lowest first; none where the site has no integrity.
    pub fn integrity_levels(&self) -> impl ExactSizeIterator<Item = &str> {
        self.integrity_levels.list.iter().map(String::as_str)
    }

    /// The integrity categories, by number.
    pub fn integrity_categories(&self) -> impl ExactSizeIterator<Item = &str> {
        self.integrity_categories.list.iter().map(String::as_str)
    }

    /// Whether every level and category of the label is one the site declares.
    pub fn knows(&self, label: &Label) -> bool {
        self.text(label).is_some()
    }

    /// The range of all labels.
    pub fn whole(&self) -> Range {
        let top = |levels: &Names, categories: &Names| {
            let level = u8::try_from(levels.list.len().saturating_sub(1)).unwrap_or(u8::MAX);
            let numbers = (0..=u16::MAX).take(categories.list.len());
            Class::new(level, CategorySet::from_numbers(numbers).unwrap_or_default())
        };
        let top = Label::new(
            top(&self.levels, &self.categories),
            top(&self.integrity_levels, &self.integrity_categories),
        );
        Range::around(
            &Label::new(top.confidentiality, Class::bottom()),
            &Label::new(Class::bottom(), top.integrity),
        )
    }

    /// The number of a level by its name.
    pub fn level(&self, name: &str) -> Option<u8> {
        self.levels.find(name).and_then(|number| u8::try_from(number).ok())
    }

    /// The label's text in canonical form: categories in the order the site declares them.
    ///
    /// `None` if the label has a level or category the site does not, or an integrity part where the site
    /// has none. The text may be longer than a [`LabelName`] can be.
    pub fn text(&self, label: &Label) -> Option<String> {
        let mut text = String::new();
        print_class(&mut text, &label.confidentiality, &self.levels, &self.categories)?;
        if self.has_integrity() {
            text.push('@');
            print_class(&mut text, &label.integrity, &self.integrity_levels, &self.integrity_categories)?;
        } else if label.integrity != Class::bottom() {
            return None;
        }
        Some(text)
    }

    /// The label's canonical name; `None` where [`Vocabulary::text`] has none or one that is too long.
    pub fn print(&self, label: &Label) -> Option<LabelName> {
        LabelName::new(&self.text(label)?).ok()
    }

    /// The range's text: `LOW..HIGH`, or one label where the two are the same.
    pub fn print_range(&self, range: &Range) -> Option<String> {
        let low = self.text(range.low())?;
        if range.low() == range.high() {
            return Some(low);
        }
        Some(format!("{low}..{}", self.text(range.high())?))
    }

    /// Reads a label. Categories may stand in any order, each once.
    pub fn parse(&self, text: &str) -> Result<Label, SyntaxError> {
        self.parse_at(text, 0)
    }

    /// Reads a label as a person types it: in any case, with spaces around its names, categories in any order. No two names of a list
    /// differ in case alone, so that it means one label. Nothing that machines say to each other is read like this.
    pub fn parse_typed(&self, text: &str) -> Result<Label, SyntaxError> {
        self.parse(&self.declared(text))
    }

    /// Reads a range as a person types it: its ends as [`Vocabulary::parse_typed`] reads a label.
    pub fn parse_typed_range(&self, text: &str) -> Result<Range, SyntaxError> {
        let ends: Vec<String> = text.splitn(2, "..").map(|end| self.declared(end)).collect();
        self.parse_range(&ends.join(".."))
    }

    /// What a person typed, its names as the site declares them.
    fn declared(&self, text: &str) -> String {
        let class = |text: &str, levels: &Names, categories: &Names| match text.split_once("//") {
            None => levels.as_declared(text),
            Some((level, list)) => {
                let list: Vec<String> = list.split(',').map(|name| categories.as_declared(name)).collect();
                format!("{}//{}", levels.as_declared(level), list.join(","))
            }
        };
        match text.split_once('@') {
            None => class(text, &self.levels, &self.categories),
            Some((before, after)) => format!(
                "{}@{}",
                class(before, &self.levels, &self.categories),
                class(after, &self.integrity_levels, &self.integrity_categories)
            ),
        }
    }

    /// Reads a label's canonical name and nothing else, so that equal labels have equal names.
    pub fn parse_name(&self, name: &LabelName) -> Option<Label> {
        let label = self.parse(name.as_str()).ok()?;
        (self.text(&label)? == name.as_str()).then_some(label)
    }

    /// Reads a range: `LOW..HIGH`, or one label, which is a range of one.
    pub fn parse_range(&self, text: &str) -> Result<Range, SyntaxError> {
        let Some((low, high)) = text.split_once("..") else {
            return Ok(Range::single(self.parse(text)?));
        };
        // All spaces are told at once: without the first the second would be the next fault.
        let (bare_low, bare_high) = (low.trim(), high.trim());
        if (bare_low, bare_high) != (low, high)
            && self.parse(bare_low).is_ok()
            && self.parse(bare_high).is_ok()
        {
            return Err(SyntaxError {
                kind: SyntaxKind::Malformed,
                at: 0,
                what: format!("`{text}` has spaces beside its names"),
                nearest: None,
                remedy: format!("write it without them: `{bare_low}..{bare_high}`"),
            });
        }
        let from = self.parse_at(low, 0)?;
        let to = self.parse_at(high, low.len() + 2)?;
        Range::new(from.clone(), to.clone()).ok_or_else(|| SyntaxError {
            kind: SyntaxKind::EmptyRange,
            at: 0,
            what: format!("the range `{text}` is empty: `{high}` does not dominate `{low}`"),
            nearest: None,
            remedy: if from.dominates(&to) {
                format!("write the dominated label first: `{high}..{low}`")
            } else {
                format!(
                    "choose ends of which one dominates the other, such as `{low}..{}`",
                    self.text(&from.join(&to)).unwrap_or_default()
                )
            },
        })
    }

    fn parse_at(&self, text: &str, base: usize) -> Result<Label, SyntaxError> {
        let (confidentiality, integrity) = match text.split_once('@') {
            Some((before, after)) => (before, Some((after, base + before.len() + 1))),
            None => (text, None),
        };
        let confidentiality =
            parse_class(confidentiality, base, &self.levels, &self.categories, ["level", "category"])?;
        let integrity = match (integrity, self.has_integrity()) {
            (Some((text, at)), true) => parse_class(
                text,
                at,
                &self.integrity_levels,
                &self.integrity_categories,
                ["integrity level", "integrity category"],
            )?,
            (None, false) => Class::bottom(),
            (None, true) => {
                return Err(SyntaxError {
                    kind: SyntaxKind::Malformed,
                    at: base,
                    what: format!("`{text}` says nothing of integrity"),
                    nearest: None,
                    remedy: format!(
                        "this site declares integrity levels: add `@` and one of {}",
                        enumerate(&self.integrity_levels.list)
                    ),
                });
            }
            (Some((_, at)), false) => {
                return Err(SyntaxError {
                    kind: SyntaxKind::Malformed,
                    at: at - 1,
                    what: "an integrity part, where the site declares no integrity levels".to_owned(),
                    nearest: None,
                    remedy: "remove `@` and what follows it, or declare integrity-levels".to_owned(),
                });
            }
        };
        Ok(Label::new(confidentiality, integrity))
    }
}

fn print_class(text: &mut String, class: &Class, levels: &Names, categories: &Names) -> Option<()> {
    text.push_str(levels.name(u16::from(class.level))?);
    for (index, number) in class.categories.iter().enumerate() {
        text.push_str(if index == 0 { "//" } else { "," });
        text.push_str(categories.name(number)?);
    }
    Some(())
}

fn parse_class(
    text: &str,
    base: usize,
    levels: &Names,
    categories: &Names,
    [level_word, category_word]: [&str; 2],
) -> Result<Class, SyntaxError> {
    let (level, list) = match text.split_once("//") {
        Some((level, list)) => (level, Some((list, base + level.len() + 2))),
        None => (text, None),
    };
    let number = levels.find(level).ok_or_else(|| unknown(level, base, level_word, levels))?;
    let level = u8::try_from(number).map_err(|_| unknown(level, base, level_word, levels))?;
    let mut set = CategorySet::empty();
    if let Some((list, mut at)) = list {
        for name in list.split(',') {
            let number = categories.find(name).ok_or_else(|| unknown(name, at, category_word, categories))?;
            if set.contains(number) {
                return Err(SyntaxError {
                    kind: SyntaxKind::Malformed,
                    at,
                    what: format!("the {category_word} `{name}` stands twice"),
                    nearest: None,
                    remedy: "name each category once".to_owned(),
                });
            }
            set.insert(number);
            at += name.len() + 1;
        }
    }
    Ok(Class::new(level, set))
}

fn unknown(name: &str, at: usize, word: &str, names: &Names) -> SyntaxError {
    let nearest = nearest(name, names.list.iter().map(String::as_str));
    let what = if name.is_empty() {
        format!("an empty {word}")
    } else {
        format!("`{name}` is not {} {word} of this site", article(word))
    };
    let remedy = match &nearest {
        _ if names.list.is_empty() => format!("this site declares no {word}: remove it, or declare it"),
        Some(near) => format!("did you mean `{near}`? The site declares {}", enumerate(&names.list)),
        None => format!("the site declares {}", enumerate(&names.list)),
    };
    let remedy = miswritten(name, names).unwrap_or(remedy);
    SyntaxError { kind: SyntaxKind::UnknownName, at, what, nearest, remedy }
}

/// What is meant, where known names were put together in a way that is not the syntax.
fn miswritten(name: &str, names: &Names) -> Option<String> {
    let known = |name: &str| names.find(name).is_some();
    let trimmed = name.trim();
    if trimmed != name && known(trimmed) {
        return Some(format!("write it without the space: `{trimmed}`"));
    }
    if let Some((before, after)) = name.split_once('/').filter(|(before, _)| known(before)) {
        return Some(format!("two slashes stand before categories: `{before}//{after}`"));
    }
    // Names may have dashes themselves.
    let dashes = name.match_indices('-').filter_map(|(at, _)| Some((name.get(..at)?, name.get(at + 1..)?)));
    let (low, high) = dashes.into_iter().find(|(low, high)| known(low) && known(high))?;
    Some(format!("a range has two dots: `{low}..{high}`"))
}

pub(crate) fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// The first few names in words.
pub(crate) fn enumerate<T: AsRef<str>>(names: &[T]) -> String {
    const SHOWN: usize = 8;
    // One that stands twice is named once.
    let mut named: Vec<&str> = Vec::new();
    for name in names.iter().map(AsRef::as_ref) {
        if named.len() <= SHOWN && !named.contains(&name) {
            named.push(name);
        }
    }
    let mut text = named.into_iter().take(SHOWN).map(|name| format!("`{name}`")).collect::<Vec<_>>();
    if names.len() > SHOWN {
        text.push(format!("{} more", names.len() - SHOWN));
    }
    text.join(", ")
}

/// The candidate most like the name, if one is like it at all: at most a third of its letters wrong, left
/// out, too many or exchanged with their neighbours; one in a short name. Case does not count.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    let folded = name.to_lowercase();
    let most = (folded.chars().count() / 3).max(1);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(&folded, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= most && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate.to_owned())
}
