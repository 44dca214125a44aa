//! Labels, the lattice they form, and ranges in it.
//!
//! Confidentiality follows Bell and LaPadula, integrity Biba. Both are put into one order by the question
//! that matters: may information flow from here to there.

use std::fmt;

use crate::categories::CategorySet;

/// A level and a set of categories: a point in one of the two lattices.
///
/// Level 0 is the lowest. All 256 values are valid; which of them a site uses is the vocabulary's matter.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Class {
    /// Position in the site's list of levels, lowest 0.
    pub level: u8,
    /// Categories, by position in the site's list.
    pub categories: CategorySet,
}

impl Class {
    /// The point with this level and these categories.
    pub fn new(level: u8, categories: CategorySet) -> Self {
        Self { level, categories }
    }

    /// Level 0, no category: what every other point dominates.
    pub fn bottom() -> Self {
        Self::default()
    }

    /// At least as high, and with every category of the other.
    pub fn dominates(&self, other: &Self) -> bool {
        self.level >= other.level && self.categories.is_superset(&other.categories)
    }

    /// The least point that dominates both.
    pub fn join(&self, other: &Self) -> Self {
        Self { level: self.level.max(other.level), categories: self.categories.union(&other.categories) }
    }

    /// The greatest point that both dominate.
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            level: self.level.min(other.level),
            categories: self.categories.intersection(&other.categories),
        }
    }
}

impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.level, self.categories)
    }
}

/// A sensitivity label: how secret information is, and how far it can be trusted.
///
/// The derived `Ord` only serves sorted collections. Policy asks [`Label::dominates`], which is a partial
/// order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Label {
    /// Who may learn it: it flows upwards only.
    pub confidentiality: Class,
    /// Who may rely on it: it flows downwards only. The bottom class where a site declares no integrity.
    pub integrity: Class,
}

impl Label {
    /// A label of both parts.
    pub fn new(confidentiality: Class, integrity: Class) -> Self {
        Self { confidentiality, integrity }
    }

    /// A label of a site that declares no integrity levels.
    pub fn confidential(level: u8, categories: CategorySet) -> Self {
        Self { confidentiality: Class::new(level, categories), integrity: Class::bottom() }
    }

    /// Whether information at `other` may flow to this label: confidentiality at least as high, and
    /// integrity at most as high.
    ///
    /// This is a partial order. A subject may read what its label dominates.
    pub fn dominates(&self, other: &Self) -> bool {
        self.confidentiality.dominates(&other.confidentiality) && other.integrity.dominates(&self.integrity)
    }

    /// The least label to which information of both may flow.
    pub fn join(&self, other: &Self) -> Self {
        Self {
            confidentiality: self.confidentiality.join(&other.confidentiality),
            integrity: self.integrity.meet(&other.integrity),
        }
    }

    /// The greatest label from which information may flow to both.
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            confidentiality: self.confidentiality.meet(&other.confidentiality),
            integrity: self.integrity.join(&other.integrity),
        }
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.confidentiality)?;
        if self.integrity != Class::bottom() {
            write!(f, "@{:?}", self.integrity)?;
        }
        Ok(())
    }
}

/// Whether information may flow from one label to another: the same as `to.dominates(from)`.
pub fn flow_allowed(from: &Label, to: &Label) -> bool {
    to.dominates(from)
}

/// Every label between a low and a high one, both included. Never empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    low: Label,
    high: Label,
}

impl Range {
    /// The range from `low` to `high`; `None` if `high` does not dominate `low`.
    pub fn new(low: Label, high: Label) -> Option<Self> {
        high.dominates(&low).then_some(Self { low, high })
    }

    /// The range of one label.
    pub fn single(label: Label) -> Self {
        Self { low: label.clone(), high: label }
    }

    /// The least range that has both labels.
    pub fn around(one: &Label, other: &Label) -> Self {
        Self { low: one.meet(other), high: one.join(other) }
    }

    /// The lowest label of the range.
    pub fn low(&self) -> &Label {
        &self.low
    }

    /// The highest label of the range.
    pub fn high(&self) -> &Label {
        &self.high
    }

    /// Whether the label dominates the low end and is dominated by the high end.
    pub fn contains(&self, label: &Label) -> bool {
        label.dominates(&self.low) && self.high.dominates(label)
    }

    /// Whether every label of `other` is in this range.
    pub fn includes(&self, other: &Self) -> bool {
        self.contains(&other.low) && self.contains(&other.high)
    }

    /// The labels in both ranges; `None` if there are none.
    pub fn intersection(&self, other: &Self) -> Option<Self> {
        Self::new(self.low.join(&other.low), self.high.meet(&other.high))
    }

    /// How many labels the range holds; `None` above `u64::MAX` (each free category doubles it).
    pub fn count(&self) -> Option<u64> {
        let classes = |low: &Class, high: &Class| {
            let free = high.categories.difference(&low.categories).len();
            let levels = u64::from(high.level.saturating_sub(low.level)) + 1;
            1u64.checked_shl(u32::try_from(free).ok()?)?.checked_mul(levels)
        };
        classes(&self.low.confidentiality, &self.high.confidentiality)?
            .checked_mul(classes(&self.high.integrity, &self.low.integrity)?)
    }

    /// Every label of the range, low first, each before any that dominates it strictly; `None` if there
    /// are more than `limit`, since a range with many free categories cannot be walked.
    pub fn labels(&self, limit: u64) -> Option<impl Iterator<Item = Label> + use<>> {
        if self.count()? > limit {
            return None;
        }
        let confidentiality = classes_between(&self.low.confidentiality, &self.high.confidentiality);
        let mut integrity = classes_between(&self.high.integrity, &self.low.integrity);
        integrity.reverse();
        Some(confidentiality.into_iter().flat_map(move |class| {
            integrity.clone().into_iter().map(move |integrity| Label::new(class.clone(), integrity))
        }))
    }
}

/// Every class from `low` to `high`, in an order that extends dominance. The caller has bounded the number.
fn classes_between(low: &Class, high: &Class) -> Vec<Class> {
    let free: Vec<u16> = high.categories.difference(&low.categories).iter().collect();
    let subsets = 1u64.checked_shl(free.len() as u32).unwrap_or(0);
    let mut classes = Vec::new();
    for level in low.level..=high.level {
        for subset in 0..subsets {
            let mut categories = low.categories.clone();
            for (bit, number) in free.iter().enumerate() {
                if subset & (1 << bit) != 0 {
                    categories.insert(*number);
                }
            }
            classes.push(Class::new(level, categories));
        }
    }
    classes
}

impl fmt::Debug for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{:?}", self.low, self.high)
    }
}
