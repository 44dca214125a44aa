//! `floor` of a posture: the labels at which nothing less counts, whatever operators set.

use std::collections::BTreeSet;

use super::Posture;
use crate::label::{Label, Range};
use crate::site::draft::Draft;
use crate::site::problem::ProblemKind;
use crate::site::read::{Reader, Table};
use crate::site::vault::{overlap, ranges};

impl Posture {
    /// Whether at this label no posture before it in the file counts, nor the default.
    pub fn is_floor_of(&self, label: &Label) -> bool {
        self.floor.iter().any(|range| range.contains(label))
    }

    /// The labels of which it is the floor.
    pub fn floor(&self) -> &[Range] {
        &self.floor
    }

    /// The first key in which another asks for less than this one. Which library seals, how long a vault looks and how many workers it has
    /// is no matter of more or less.
    fn asked_less_by(&self, other: &Self) -> Option<&'static str> {
        fn within<T: PartialEq>(own: Option<&[T]>, other: Option<&[T]>) -> bool {
            own.is_none_or(|own| other.is_some_and(|other| other.iter().all(|one| own.contains(one))))
        }
        fn among<T: Ord>(own: &Option<BTreeSet<T>>, other: &Option<BTreeSet<T>>) -> bool {
            own.as_ref().is_none_or(|own| other.as_ref().is_some_and(|other| other.is_subset(own)))
        }
        let as_short = self.key_life.is_none_or(|own| other.key_life.is_some_and(|other| other <= own));
        let holds = [
            ("ciphers", within(self.ciphers(), other.ciphers())),
            ("exchanges", within(self.exchanges(), other.exchanges())),
            ("ml-kem", other.ml_kem || !self.ml_kem),
            ("key-life", as_short),
            ("constant-rate", other.constant || !self.constant),
            // At a constant rate packets go so, too.
            ("aggfrag", other.aggfrag || other.constant || !self.aggfrag),
            ("agree", other.agree || !self.agree),
            ("people", among(&self.people, &other.people)),
            ("hosts", among(&self.hosts, &other.hosts)),
            ("layers", among(&self.layered, &other.layered)),
            ("services", among(&self.services, &other.services)),
        ];
        holds.into_iter().find(|(_, holds)| !holds).map(|(key, _)| key)
    }
}

/// The labels of which a posture is the floor, each one that it is for.
pub(super) fn read(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    draft: &Draft,
    labels: Option<&[Range]>,
) -> Option<Vec<Range>> {
    if keys.get("floor").is_none() {
        return Some(Vec::new());
    }
    let read = ranges(reader, keys, "floor", draft.vocabulary.as_ref())?;
    for range in &read {
        let is_own = labels.is_none_or(|own| own.iter().any(|own| own.includes(&range.value)));
        if !is_own {
            let what = "the posture is to be the floor of labels that it is not for";
            let remedy = "write them in its `labels` as well, or take them out of `floor`";
            reader.problem(ProblemKind::OutOfBounds, &range.span, what, remedy);
        }
    }
    Some(read.into_iter().map(|range| range.value).collect())
}

/// Nothing that an operator can set is less than a floor: a posture that stands after one asks for as much.
pub(super) fn fits(reader: &mut Reader<'_>, keys: &Table<'_>, posture: &Posture, before: &[Posture]) {
    let floors = before.iter().filter(|one| overlap(&one.floor, posture.labels.as_deref()));
    for floor in floors {
        if let Some(key) = floor.asked_less_by(posture) {
            let what = format!(
                "`{}` stands after `{}`, the floor of labels of it, and its `{key}` asks for less",
                posture.name, floor.name
            );
            let remedy = format!(
                "give it a `{key}` that asks for as much as that of `{0}`, put it before `{0}`, or give it `labels` without these",
                floor.name
            );
            reader.problem(ProblemKind::Overlap, &keys.span(), what, remedy);
        }
    }
}
