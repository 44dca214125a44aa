//! SELinux MLS syntax: `s2:c0.c3,c7`, ranges `s0-s2:c0.c3`. Lossless both ways, or refused.
//!
//! A level's number is its position in the site's list, a category's likewise. The printed form is the one
//! the kernel prints (security/selinux/ss/mls.c): a run of three or more is `c0.c2`, of two `c0,c1`.

use std::fmt;

use crate::categories::{CategorySet, MAX_CATEGORIES};
use crate::label::{Class, Label};
use crate::vocabulary::Vocabulary;

/// Why a label or text has no equivalent on the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelinuxError {
    /// SELinux levels have no integrity part: translating this label would lose it.
    Integrity,
    /// The site does not declare this level or category.
    Unknown,
    /// The text is not a level or range, from this byte on.
    Syntax(usize),
    /// The range's high end does not dominate its low end.
    EmptyRange,
}

impl fmt::Display for SelinuxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integrity => f.write_str("SELinux levels have no integrity part, which would be lost"),
            Self::Unknown => f.write_str("a level or category that the site does not declare"),
            Self::Syntax(at) => {
                write!(f, "not an SELinux level from byte {at} on; write `s0` or `s2:c0.c3,c7`")
            }
            Self::EmptyRange => f.write_str("the range's high end does not dominate its low end"),
        }
    }
}

impl std::error::Error for SelinuxError {}

/// The label as an SELinux level.
pub fn print(vocabulary: &Vocabulary, label: &Label) -> Result<String, SelinuxError> {
    if vocabulary.has_integrity() || label.integrity != Class::bottom() {
        return Err(SelinuxError::Integrity);
    }
    if !vocabulary.knows(label) {
        return Err(SelinuxError::Unknown);
    }
    Ok(print_class(&label.confidentiality))
}

/// Reads an SELinux level as the numbers that stand in it, of which a [`Domain`](crate::Domain) says what they mean.
///
/// # Errors
/// [`SelinuxError::Syntax`]; [`SelinuxError::Unknown`] for a level above 255 or a category above 1023.
pub fn parse_class(text: &str) -> Result<Class, SelinuxError> {
    let mut reader = Reader { text, at: 0 };
    let class = reader.class()?;
    reader.end()?;
    Ok(class)
}

/// Reads an SELinux range (`s0-s2:c0.c3`), or a level as a range of one: the numbers of its two ends, of which the second dominates the first.
///
/// # Errors
/// As [`parse_class`]; [`SelinuxError::EmptyRange`].
pub fn parse_classes(text: &str) -> Result<[Class; 2], SelinuxError> {
    let mut reader = Reader { text, at: 0 };
    let low = reader.class()?;
    let high = if reader.eat('-') { reader.class()? } else { low.clone() };
    reader.end()?;
    if high.dominates(&low) { Ok([low, high]) } else { Err(SelinuxError::EmptyRange) }
}

/// The ends of a range as an SELinux range; two that are the same as that level alone.
pub fn print_classes([low, high]: &[Class; 2]) -> String {
    let one = print_class(low);
    if low == high { one } else { format!("{one}-{}", print_class(high)) }
}

/// Numbers of a [`Domain`](crate::Domain) as an SELinux level: `s5:c0.c1023`.
pub fn print_class(class: &Class) -> String {
    let mut text = format!("s{}", class.level);
    let mut separator = ':';
    let mut numbers = class.categories.iter().peekable();
    while let Some(first) = numbers.next() {
        let mut last = first;
        while let Some(next) = numbers.next_if(|next| *next == last + 1) {
            last = next;
        }
        text.push_str(&format!("{separator}c{first}"));
        separator = ',';
        match last - first {
            0 => {}
            1 => text.push_str(&format!(",c{last}")),
            _ => text.push_str(&format!(".c{last}")),
        }
    }
    text
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    /// A letter and a number without leading zeros, so that every level has one spelling.
    fn number(&mut self, letter: char) -> Result<u16, SelinuxError> {
        let start = self.at;
        if !self.eat(letter) {
            return Err(SelinuxError::Syntax(start));
        }
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let text = self.rest().get(..digits).unwrap_or("");
        if text.len() > 1 && text.starts_with('0') {
            return Err(SelinuxError::Syntax(start));
        }
        let number = text.parse().map_err(|_| SelinuxError::Syntax(start))?;
        self.at += digits;
        Ok(number)
    }

    fn class(&mut self) -> Result<Class, SelinuxError> {
        let level = u8::try_from(self.number('s')?).map_err(|_| SelinuxError::Unknown)?;
        let mut categories = CategorySet::empty();
        let mut more = self.eat(':');
        while more {
            let start = self.at;
            let first = self.number('c')?;
            let last = if self.eat('.') { self.number('c')? } else { first };
            if usize::from(first.max(last)) >= MAX_CATEGORIES {
                return Err(SelinuxError::Unknown);
            }
            if last < first {
                return Err(SelinuxError::Syntax(start));
            }
            for number in first..=last {
                categories.insert(number);
            }
            more = self.eat(',');
        }
        Ok(Class::new(level, categories))
    }

    fn end(&self) -> Result<(), SelinuxError> {
        if self.at == self.text.len() { Ok(()) } else { Err(SelinuxError::Syntax(self.at)) }
    }
}
