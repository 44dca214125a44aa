//! The laws of the lattice: by exhaustion on small ones, by properties on large ones.

use levee_policy::{CategorySet, Class, Label, Range, flow_allowed};
use proptest::prelude::*;

/// Every class of a lattice of so many levels and categories.
fn classes(levels: u8, categories: u16) -> Vec<Class> {
    (0..levels)
        .flat_map(|level| {
            (0u32..1 << categories).map(move |subset| {
                let numbers = (0..categories).filter(|number| subset & (1 << number) != 0);
                Class::new(level, CategorySet::from_numbers(numbers).unwrap())
            })
        })
        .collect()
}

/// The laws that make a set of elements with an order, a join and a meet a distributive lattice.
fn assert_lattice<T: PartialEq + std::fmt::Debug>(
    elements: &[T],
    dominates: impl Fn(&T, &T) -> bool,
    join: impl Fn(&T, &T) -> T,
    meet: impl Fn(&T, &T) -> T,
) {
    for a in elements {
        assert!(dominates(a, a), "{a:?} does not dominate itself");
        assert!(join(a, a) == *a && meet(a, a) == *a, "{a:?}: not idempotent");
        for b in elements {
            let (up, down) = (join(a, b), meet(a, b));
            assert!(!(dominates(a, b) && dominates(b, a)) || a == b, "{a:?} {b:?}: not antisymmetric");
            assert!(up == join(b, a) && down == meet(b, a), "{a:?} {b:?}: not commutative");
            assert!(dominates(&up, a) && dominates(&up, b), "{a:?} {b:?}: join is no upper bound");
            assert!(dominates(a, &down) && dominates(b, &down), "{a:?} {b:?}: meet is no lower bound");
            assert!(meet(a, &up) == *a && join(a, &down) == *a, "{a:?} {b:?}: no absorption");
            assert_eq!(dominates(a, b), up == *a, "{a:?} {b:?}: order and join disagree");
            assert_eq!(dominates(a, b), down == *b, "{a:?} {b:?}: order and meet disagree");
            for c in elements {
                assert!(!(dominates(a, b) && dominates(b, c)) || dominates(a, c), "{a:?} {b:?} {c:?}");
                // Least and greatest among the bounds.
                assert!(!(dominates(c, a) && dominates(c, b)) || dominates(c, &up), "{a:?} {b:?} {c:?}");
                assert!(!(dominates(a, c) && dominates(b, c)) || dominates(&down, c), "{a:?} {b:?} {c:?}");
                // One distributive law; the other follows from it in any lattice.
                assert_eq!(meet(a, &join(b, c)), join(&down, &meet(a, c)), "{a:?} {b:?} {c:?}");
            }
        }
    }
}

#[test]
fn every_lattice_of_up_to_four_levels_and_four_categories_keeps_the_laws() {
    for levels in 1..=4 {
        for categories in 0..=4 {
            assert_lattice(&classes(levels, categories), Class::dominates, Class::join, Class::meet);
        }
    }
}

#[test]
fn labels_of_both_parts_keep_the_laws_and_integrity_is_the_dual() {
    // All pairs of a confidentiality and an integrity class, from the lattices small enough for cubes.
    for (levels, categories) in [(1, 0), (2, 0), (1, 1), (2, 1), (3, 0)] {
        let classes = classes(levels, categories);
        let labels: Vec<Label> =
            (classes.iter()).flat_map(|c| classes.iter().map(|i| Label::new(c.clone(), i.clone()))).collect();
        assert_lattice(&labels, Label::dominates, Label::join, Label::meet);
        for a in &labels {
            for b in &labels {
                assert_eq!(flow_allowed(a, b), b.dominates(a));
            }
        }
    }
    // Biba is Bell and LaPadula upside down: on labels that differ in integrity alone, the order, and with
    // it join and meet, are those of confidentiality reversed.
    for a in classes(4, 4) {
        for b in classes(4, 4) {
            let conf = |class: &Class| Label::new(class.clone(), Class::bottom());
            let int = |class: &Class| Label::new(Class::bottom(), class.clone());
            assert_eq!(int(&a).dominates(&int(&b)), conf(&b).dominates(&conf(&a)));
            assert_eq!(int(&a).join(&int(&b)).integrity, conf(&a).meet(&conf(&b)).confidentiality);
            assert_eq!(int(&a).meet(&int(&b)).integrity, conf(&a).join(&conf(&b)).confidentiality);
        }
    }
}

#[test]
fn a_range_holds_exactly_the_labels_between_its_ends() {
    let labels: Vec<Label> = (classes(2, 2).iter())
        .flat_map(|c| classes(2, 1).into_iter().map(|i| Label::new(c.clone(), i)))
        .collect();
    for low in &labels {
        for high in &labels {
            let Some(range) = Range::new(low.clone(), high.clone()) else {
                assert!(!high.dominates(low), "{low:?}..{high:?} was refused");
                continue;
            };
            assert_eq!((range.low(), range.high()), (low, high));
            let inside: Vec<&Label> = labels.iter().filter(|label| range.contains(label)).collect();
            let listed: Vec<Label> = range.labels(u64::MAX).unwrap().collect();
            assert_eq!(range.count(), Some(inside.len() as u64));
            assert_eq!(listed.len(), inside.len());
            assert!(inside.iter().all(|label| listed.contains(label)));
            for (at, label) in listed.iter().enumerate() {
                assert!(listed[..at].iter().all(|earlier| !earlier.dominates(label)), "{listed:?}");
            }
            assert!(range.labels(inside.len() as u64 - 1).is_none(), "the limit was passed over");
            assert!(range.labels(inside.len() as u64).is_some(), "as many as there may be");
        }
    }
}

#[test]
fn the_intersection_of_two_ranges_holds_exactly_what_both_hold() {
    let labels: Vec<Label> =
        classes(2, 2).into_iter().map(|class| Label::new(class, Class::bottom())).collect();
    let ranges: Vec<Range> = (labels.iter())
        .flat_map(|low| labels.iter().filter_map(|high| Range::new(low.clone(), high.clone())))
        .collect();
    for one in &ranges {
        for other in &ranges {
            let both = one.intersection(other);
            for label in &labels {
                let wanted = one.contains(label) && other.contains(label);
                assert_eq!(both.as_ref().is_some_and(|both| both.contains(label)), wanted);
            }
            assert_eq!(one.includes(other), both.as_ref() == Some(other));
        }
    }
}

#[test]
fn a_range_too_large_to_count_is_not_walked() {
    let wide = CategorySet::from_numbers(0..1024).unwrap();
    let range = Range::new(Label::default(), Label::confidential(255, wide)).unwrap();
    assert_eq!(range.count(), None);
    assert!(range.labels(u64::MAX).is_none());
}

#[test]
fn categories_beyond_the_last_do_not_exist() {
    assert_eq!(CategorySet::from_numbers([1023]).unwrap().len(), 1);
    assert!(CategorySet::from_numbers([0, 1024]).is_none());
    assert!(!CategorySet::empty().contains(u16::MAX));
}

#[test]
fn a_category_that_is_added_again_is_in_the_set_as_before() {
    for number in [0, 1, 63, 64, 127, 128, 1023] {
        let once = CategorySet::from_numbers([number]).unwrap();
        let twice = CategorySet::from_numbers([number, number]).unwrap();
        assert!(twice.contains(number) && twice == once && twice.len() == 1, "{number}");
    }
}

fn any_set() -> impl Strategy<Value = CategorySet> {
    prop::collection::vec(0u16..1024, 0..40).prop_map(|numbers| CategorySet::from_numbers(numbers).unwrap())
}

fn any_label() -> impl Strategy<Value = Label> {
    (any::<u8>(), any_set(), any::<u8>(), any_set())
        .prop_map(|(c, cs, i, is)| Label::new(Class::new(c, cs), Class::new(i, is)))
}

proptest! {
    #[test]
    fn large_lattices_keep_the_laws(a in any_label(), b in any_label(), c in any_label()) {
        // Three unrelated labels are rarely comparable: their joins and meets are.
        let related = [a.clone(), b.clone(), c.clone(), a.join(&b), a.meet(&b), b.join(&c), b.meet(&c)];
        assert_lattice(&related, Label::dominates, Label::join, Label::meet);
    }

    #[test]
    fn sets_of_categories_are_sets(a in any_set(), b in any_set()) {
        use std::collections::BTreeSet;
        let (x, y): (BTreeSet<u16>, BTreeSet<u16>) = (a.iter().collect(), b.iter().collect());
        prop_assert_eq!(a.len(), x.len());
        prop_assert_eq!(a.union(&b).iter().collect::<Vec<_>>(), x.union(&y).copied().collect::<Vec<_>>());
        prop_assert_eq!(
            a.intersection(&b).iter().collect::<Vec<_>>(),
            x.intersection(&y).copied().collect::<Vec<_>>()
        );
        prop_assert_eq!(
            a.difference(&b).iter().collect::<Vec<_>>(),
            x.difference(&y).copied().collect::<Vec<_>>()
        );
        prop_assert_eq!(a.is_superset(&b), x.is_superset(&y));
        prop_assert_eq!(a.is_empty(), x.is_empty());
        prop_assert_eq!(a.last(), x.last().copied());
        // One set, one form: however it was made, it is equal.
        prop_assert_eq!(&a.union(&b).difference(&b).union(&a.intersection(&b)), &a);
    }
}
