//! Sets of categories and the order of labels against the plainest statement of each: sets of numbers, and the four comparisons that Bell,
//! LaPadula and Biba ask for. For every pair of sets of categories at the edges of words.

use std::collections::BTreeSet;

use levee_policy::{CategorySet, Class, Label, MAX_CATEGORIES};

/// On both sides of each edge of a word, and the last there can be.
const NUMBERS: [u16; 8] = [0, 1, 63, 64, 127, 128, 1022, 1023];

fn subsets() -> Vec<(BTreeSet<u16>, CategorySet)> {
    let of = |bits: u32| -> BTreeSet<u16> {
        (0..NUMBERS.len()).filter(|n| bits >> n & 1 == 1).map(|n| NUMBERS[n]).collect()
    };
    let both = |plain: BTreeSet<u16>| {
        let set = CategorySet::from_numbers(plain.iter().copied()).unwrap();
        (plain, set)
    };
    (0..1 << NUMBERS.len()).map(of).map(both).collect()
}

#[test]
fn sets_of_categories_are_sets_for_every_pair() {
    let all = subsets();
    assert_eq!(all.len(), 256);
    for (plain_a, a) in &all {
        assert_eq!(a.iter().collect::<BTreeSet<u16>>(), *plain_a);
        assert_eq!(
            (a.len(), a.is_empty(), a.last()),
            (plain_a.len(), plain_a.is_empty(), plain_a.last().copied())
        );
        assert!(NUMBERS.iter().all(|n| a.contains(*n) == plain_a.contains(n)));
        for (plain_b, b) in &all {
            let same = |set: CategorySet, plain: BTreeSet<u16>| {
                // Equal sets are equal values, however they were made.
                assert_eq!(
                    set,
                    CategorySet::from_numbers(plain.iter().copied()).unwrap(),
                    "{plain_a:?} {plain_b:?}"
                );
            };
            same(a.union(b), plain_a | plain_b);
            same(a.intersection(b), plain_a & plain_b);
            same(a.difference(b), plain_a - plain_b);
            assert_eq!(a.is_superset(b), plain_a.is_superset(plain_b));
            assert_eq!(a == b, plain_a == plain_b);
        }
    }
}

#[test]
fn a_number_that_no_site_can_declare_is_in_no_set() {
    for number in 0..=u16::MAX {
        let set = CategorySet::from_numbers([number]);
        assert_eq!(set.is_some(), usize::from(number) < MAX_CATEGORIES);
        assert!(set.is_none_or(|set| set.len() == 1 && set.contains(number)));
        assert!(!CategorySet::empty().contains(number));
    }
}

#[test]
fn all_below_a_number_are_those_and_no_others() {
    for count in 0..=1024 {
        let set = CategorySet::from_numbers(0..count).unwrap();
        assert_eq!(set.len(), usize::from(count), "{count}");
        assert_eq!(set.last(), count.checked_sub(1), "{count}");
        assert!(set.iter().eq(0..count), "{count}");
    }
    assert_eq!(CategorySet::from_numbers(0..1025), None);
}

/// Labels of every confidentiality and integrity out of few, at the edges of words.
fn labels() -> Vec<Label> {
    let classes: Vec<Class> = [0, 255]
        .into_iter()
        .flat_map(|level| {
            [&[][..], &[63], &[64], &[63, 64]]
                .map(|numbers| Class::new(level, CategorySet::from_numbers(numbers.iter().copied()).unwrap()))
        })
        .collect();
    let pair = |c: &Class| classes.iter().map(move |i| Label::new(c.clone(), i.clone())).collect::<Vec<_>>();
    classes.iter().flat_map(pair).collect()
}

/// May information flow from one label to the other, word for word.
fn may_flow(from: &Label, to: &Label) -> bool {
    let within = |low: &Class, high: &Class| {
        low.level <= high.level && low.categories.iter().all(|category| high.categories.contains(category))
    };
    // Bell and LaPadula: to where it stays as secret. Biba: to where it is trusted no more than it deserves.
    within(&from.confidentiality, &to.confidentiality) && within(&to.integrity, &from.integrity)
}

#[test]
fn dominance_join_and_meet_are_the_lattices_for_every_pair_of_labels() {
    let all = labels();
    assert_eq!(all.len(), 64);
    for a in &all {
        for b in &all {
            assert_eq!(a.dominates(b), may_flow(b, a));
            let (join, meet) = (a.join(b), a.meet(b));
            assert!(may_flow(a, &join) && may_flow(b, &join) && may_flow(&meet, a) && may_flow(&meet, b));
            // The least and the greatest of all that could stand there.
            for c in &all {
                if may_flow(a, c) && may_flow(b, c) {
                    assert!(may_flow(&join, c), "{a:?} {b:?} {c:?}");
                }
                if may_flow(c, a) && may_flow(c, b) {
                    assert!(may_flow(c, &meet), "{a:?} {b:?} {c:?}");
                }
            }
        }
    }
}
