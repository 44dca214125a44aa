//! Domains of interpretation: which numbers others' labels have for the levels and categories of this site.
//!
//! A packet or an SELinux context carries numbers. A domain says, by name, what each of them means here. Translation is
//! lossless both ways: a label that the other side has no numbers for is refused, and so is a number that means nothing here.

use std::collections::BTreeMap;
use std::fmt;

use crate::categories::CategorySet;
use crate::label::{Class, Label, Range};

/// In which of CIPSO's tags a domain's labels are written (FIPS 188, draft-ietf-cipso-ipsecurity-01 3.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagForm {
    /// Tag 1: a bit for each category, below 240.
    #[default]
    Bitmap,
    /// Tag 2: the numbers of at most 15 categories.
    Enumerated,
    /// Tag 5: at most 7 ranges of categories, or 8 where the lowest begins with 0.
    Ranged,
    /// Tag 6: a bit for each category that the label does *not* have, below 240. The bits say to whom something may be released.
    Permissive,
}

impl TagForm {
    /// All there are, by their words in a site file.
    pub const ALL: [(&str, Self); 4] = [
        ("bitmap", Self::Bitmap),
        ("enumerated", Self::Enumerated),
        ("ranged", Self::Ranged),
        ("permissive", Self::Permissive),
    ];
}

/// Why a label has no equivalent on the other side. Each names what would be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Untranslated {
    /// The label has integrity, which others' labels cannot say.
    Integrity(Label),
    /// The domain has no number for the label's level.
    Level(Label),
    /// The domain has no number for this category of the label.
    Category(Label, u16),
    /// No level here has this number.
    ForeignLevel(u8),
    /// No category here has this number.
    ForeignCategory(u16),
}

impl fmt::Display for Untranslated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integrity(label) => write!(f, "label {label:?} has integrity, which would be lost"),
            Self::Level(label) => {
                write!(f, "label {label:?} would be lost: the domain has no number for its level")
            }
            Self::Category(label, category) => {
                write!(f, "label {label:?} would be lost: the domain has no number for category {category}")
            }
            Self::ForeignLevel(number) => write!(f, "level {number} means nothing in the domain"),
            Self::ForeignCategory(number) => write!(f, "category {number} means nothing in the domain"),
        }
    }
}

impl std::error::Error for Untranslated {}

/// A domain of interpretation.
///
/// Both tables are one to one, and that of the levels keeps their order: so a label dominates another exactly where its
/// translation dominates the other's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    doi: u32,
    form: TagForm,
    levels: BTreeMap<u8, u8>,
    categories: BTreeMap<u16, u16>,
    foreign_levels: BTreeMap<u8, u8>,
    foreign_categories: BTreeMap<u16, u16>,
    all_foreign: CategorySet,
}

impl Domain {
    /// A domain from pairs of a number of this site (a position in its list) and the one that others have for it.
    ///
    /// `None` if the DOI is 0, which says "none" (RFC 5570 5.1), if there is no level, if a number stands twice on
    /// either side, if a level that is higher here is not higher there, or if a category is not below
    /// [`MAX_CATEGORIES`](crate::MAX_CATEGORIES).
    pub fn new(
        doi: u32,
        form: TagForm,
        levels: impl IntoIterator<Item = (u8, u8)>,
        categories: impl IntoIterator<Item = (u16, u16)>,
    ) -> Option<Self> {
        let levels = one_to_one(levels)?;
        let categories = one_to_one(categories)?;
        let rising = levels.0.values().zip(levels.0.values().skip(1)).all(|(low, high)| low < high);
        let ours = CategorySet::from_numbers(categories.0.keys().copied());
        let all_foreign = CategorySet::from_numbers(categories.1.keys().copied())?;
        (doi != 0 && !levels.0.is_empty() && rising && ours.is_some()).then_some(Self {
            doi,
            form,
            levels: levels.0,
            categories: categories.0,
            foreign_levels: levels.1,
            foreign_categories: categories.1,
            all_foreign,
        })
    }

    /// The number that packets name the domain by.
    pub fn doi(&self) -> u32 {
        self.doi
    }

    /// How its labels are written in CIPSO.
    pub fn form(&self) -> TagForm {
        self.form
    }

    /// Every category of the other side that means something here.
    pub fn foreign_categories(&self) -> &CategorySet {
        &self.all_foreign
    }

    /// Every level of the other side that means something here, low first.
    pub fn foreign_levels(&self) -> impl Iterator<Item = u8> + '_ {
        self.foreign_levels.keys().copied()
    }

    /// The label in the other side's numbers.
    ///
    /// # Errors
    /// [`Untranslated`] with the label, if the other side cannot say it whole.
    pub fn foreign(&self, label: &Label) -> Result<Class, Untranslated> {
        if label.integrity != Class::bottom() {
            return Err(Untranslated::Integrity(label.clone()));
        }
        let class = &label.confidentiality;
        let level = *self.levels.get(&class.level).ok_or_else(|| Untranslated::Level(label.clone()))?;
        let mut categories = CategorySet::empty();
        for number in class.categories.iter() {
            let foreign = self.categories.get(&number);
            categories.insert(*foreign.ok_or_else(|| Untranslated::Category(label.clone(), number))?);
        }
        Ok(Class::new(level, categories))
    }

    /// The ends of a range in the other side's numbers. Every label of the range is found between them.
    ///
    /// # Errors
    /// [`Untranslated`] with a label of the range that the other side cannot say.
    pub fn foreign_range(&self, range: &Range) -> Result<[Class; 2], Untranslated> {
        let (low, high) = (range.low(), range.high());
        let ends = [self.foreign(low)?, self.foreign(high)?];
        for level in low.confidentiality.level..high.confidentiality.level {
            self.foreign(&Label::confidential(level, low.confidentiality.categories.clone()))?;
        }
        Ok(ends)
    }

    /// The range whose ends these numbers are; numbers between them that mean nothing here are nobody's. `None` if the second does not dominate the first.
    ///
    /// # Errors
    /// [`Untranslated`] with the number that means nothing here.
    pub fn range(&self, [low, high]: &[Class; 2]) -> Result<Option<Range>, Untranslated> {
        Ok(Range::new(self.label(low)?, self.label(high)?))
    }

    /// Whether a label can be said in a packet: the domain has numbers for it, and the 30 octets that a CIPSO tag has for
    /// categories are enough in the domain's form.
    pub fn has_room(&self, label: &Label) -> bool {
        let Ok(class) = self.foreign(label) else { return false };
        let bits = |set: &CategorySet| set.last().is_none_or(|last| last < 240);
        let set = &class.categories;
        match self.form {
            TagForm::Bitmap => bits(set),
            TagForm::Permissive => bits(&self.all_foreign.difference(set)),
            TagForm::Enumerated => set.len() <= 15,
            TagForm::Ranged => {
                let ranges = set.iter().filter(|n| *n == 0 || !set.contains(n - 1)).count();
                ranges <= 7 || ranges == 8 && set.contains(0)
            }
        }
    }

    /// The label that the other side's numbers mean.
    ///
    /// # Errors
    /// [`Untranslated`] with the number that means nothing here.
    pub fn label(&self, class: &Class) -> Result<Label, Untranslated> {
        let level = self.foreign_levels.get(&class.level);
        let level = *level.ok_or(Untranslated::ForeignLevel(class.level))?;
        let mut categories = CategorySet::empty();
        for number in class.categories.iter() {
            let ours = self.foreign_categories.get(&number);
            categories.insert(*ours.ok_or(Untranslated::ForeignCategory(number))?);
        }
        Ok(Label::confidential(level, categories))
    }
}

type BothWays<T> = (BTreeMap<T, T>, BTreeMap<T, T>);

/// The pairs by their first and by their second number; `None` if one stands twice.
fn one_to_one<T: Copy + Ord>(pairs: impl IntoIterator<Item = (T, T)>) -> Option<BothWays<T>> {
    let (mut there, mut back) = (BTreeMap::new(), BTreeMap::new());
    for (ours, theirs) in pairs {
        if there.insert(ours, theirs).is_some() || back.insert(theirs, ours).is_some() {
            return None;
        }
    }
    Some((there, back))
}
