//! Sets of categories, the need-to-know half of a level.

use std::fmt;

/// Categories a site can declare at most, in each of the two lattices.
pub const MAX_CATEGORIES: usize = 1024;

const WORD: usize = u64::BITS as usize;

/// A set of category numbers below [`MAX_CATEGORIES`].
///
/// Sites rarely have more than 64 categories, so the first word stands in place and sets of that size
/// never allocate. The form is canonical (no trailing zero words): equal sets compare and hash equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CategorySet {
    first: u64,
    rest: Box<[u64]>,
}

impl CategorySet {
    /// The set of no category.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The set of the given numbers; `None` if one of them is not below [`MAX_CATEGORIES`].
    pub fn from_numbers(numbers: impl IntoIterator<Item = u16>) -> Option<Self> {
        let mut set = Self::default();
        for number in numbers {
            if !set.insert(number) {
                return None;
            }
        }
        Some(set)
    }

    /// Adds one category; false, and nothing done, if the number is not below [`MAX_CATEGORIES`].
    pub fn insert(&mut self, number: u16) -> bool {
        let number = usize::from(number);
        if number >= MAX_CATEGORIES {
            return false;
        }
        let (word, bit) = (number / WORD, 1u64 << (number % WORD));
        if word == 0 {
            self.first |= bit;
            return true;
        }
        if self.rest.len() < word {
            let mut grown = self.rest.to_vec();
            grown.resize(word, 0);
            self.rest = grown.into_boxed_slice();
        }
        if let Some(slot) = self.rest.get_mut(word - 1) {
            *slot |= bit;
        }
        true
    }

    /// Whether the category is in the set.
    pub fn contains(&self, number: u16) -> bool {
        let number = usize::from(number);
        self.word(number / WORD) & (1 << (number % WORD)) != 0
    }

    /// Whether every category of `other` is in this set.
    pub fn is_superset(&self, other: &Self) -> bool {
        other.first & !self.first == 0
            && other.rest.iter().enumerate().all(|(at, word)| word & !self.word(at + 1) == 0)
    }

    /// Categories in either.
    pub fn union(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    /// Categories in both.
    pub fn intersection(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// Categories in this set and not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// Number of categories in the set.
    pub fn len(&self) -> usize {
        self.words().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is no category in the set.
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.rest.is_empty()
    }

    /// The numbers in the set, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.words().enumerate().flat_map(|(at, word)| {
            // at < 16, so the product stays below MAX_CATEGORIES and fits.
            let base = (at * WORD) as u16;
            (0..u64::BITS as u16).filter(move |bit| word & (1 << bit) != 0).map(move |bit| base + bit)
        })
    }

    /// The highest number in the set.
    pub fn last(&self) -> Option<u16> {
        self.iter().last()
    }

    fn word(&self, at: usize) -> u64 {
        match at.checked_sub(1) {
            None => self.first,
            Some(at) => self.rest.get(at).copied().unwrap_or(0),
        }
    }

    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.first).chain(self.rest.iter().copied())
    }

    fn zip(&self, other: &Self, op: impl Fn(u64, u64) -> u64) -> Self {
        if self.rest.is_empty() && other.rest.is_empty() {
            return Self { first: op(self.first, other.first), rest: Box::default() };
        }
        let words = 1 + self.rest.len().max(other.rest.len());
        Self::from_words((0..words).map(|at| op(self.word(at), other.word(at))))
    }

    fn from_words(words: impl Iterator<Item = u64>) -> Self {
        let mut words = words;
        let first = words.next().unwrap_or(0);
        let mut rest: Vec<u64> = words.collect();
        while rest.last() == Some(&0) {
            rest.pop();
        }
        Self { first, rest: rest.into_boxed_slice() }
    }
}

impl fmt::Debug for CategorySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
