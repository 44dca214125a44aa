//! Domains of interpretation: lossless both ways, or refused.

use levee_policy::site::ProblemKind;
use levee_policy::{CategorySet, Class, Domain, Label, Range, Site, TagForm, Untranslated, selinux};
use proptest::prelude::*;

const SITE: &str = r#"
site = { name = "harbour" }
labels = { levels = ["LOW", "MIDDLE", "HIGH"], categories = ["A", "B", "C"] }
[server]
name = "server.harbour.example"
addresses = ["192.0.2.1"]
inner-address = "10.80.0.1"
inner-pool = "10.80.1.0/24"
[[user]]
name = "ada"
clearance = "LOW"
[[host]]
name = "ws1"
accreditation = "LOW"
[[service]]
name = "web"
port = 80
protocol = "tcp"
range = "LOW"
mode = "handoff"
command = ["/bin/cat"]
[[domain]]
doi = 16
levels = { LOW = 0, HIGH = 5 }
categories = { A = 7, B = 0 }
"#;

fn label(level: u8, categories: &[u16]) -> Label {
    Label::confidential(level, CategorySet::from_numbers(categories.iter().copied()).unwrap())
}

#[test]
fn a_site_s_domain_translates_by_name_and_refuses_what_it_would_lose() {
    let site = Site::parse(SITE).unwrap();
    let domain = site.domain(16).unwrap();
    assert_eq!((domain.doi(), domain.form()), (16, TagForm::Bitmap));
    assert!(site.domain(17).is_none());
    // HIGH//A,B
    let high = label(2, &[0, 1]);
    let class = domain.foreign(&high).unwrap();
    assert_eq!(selinux::print_class(&class), "s5:c0,c7");
    assert_eq!(selinux::parse_class("s5:c0,c7").unwrap(), class);
    assert_eq!(domain.label(&class).unwrap(), high);
    assert_eq!(domain.foreign(&label(1, &[])), Err(Untranslated::Level(label(1, &[]))));
    assert_eq!(domain.foreign(&label(0, &[2])), Err(Untranslated::Category(label(0, &[2]), 2)));
    let trusted = Label::new(Class::bottom(), Class::new(1, CategorySet::empty()));
    assert_eq!(domain.foreign(&trusted), Err(Untranslated::Integrity(trusted)));
    let class = |text| selinux::parse_class(text).unwrap();
    assert_eq!(domain.label(&class("s1")), Err(Untranslated::ForeignLevel(1)));
    assert_eq!(domain.label(&class("s5:c1")), Err(Untranslated::ForeignCategory(1)));
}

#[test]
fn a_domain_that_would_lose_labels_is_a_problem_of_the_site() {
    let kinds = |from: &str, to: &str| -> Vec<ProblemKind> {
        assert!(SITE.contains(from));
        let problems = Site::parse(&SITE.replace(from, to)).unwrap_err();
        problems.into_iter().map(|problem| problem.kind).collect()
    };
    let levels = "levels = { LOW = 0, HIGH = 5 }";
    for bad in ["levels = { LOW = 5, HIGH = 5 }", "levels = { LOW = 5, HIGH = 0 }", "levels = {}"] {
        assert_eq!(kinds(levels, bad), [ProblemKind::BadValue], "{bad}");
    }
    assert_eq!(kinds(levels, "levels = { LOW = 256 }"), [ProblemKind::OutOfBounds]);
    assert_eq!(kinds(levels, "levels = { LOVE = 1 }"), [ProblemKind::UnknownKey]);
    assert_eq!(kinds(levels, ""), [ProblemKind::MissingKey]);
    assert_eq!(kinds("A = 7, B = 0", "A = 7, B = 7"), [ProblemKind::BadValue]);
    assert_eq!(kinds("A = 7, B = 0", "A = 1024"), [ProblemKind::OutOfBounds]);
    assert_eq!(kinds("doi = 16", "doi = 0"), [ProblemKind::OutOfBounds]);
    assert_eq!(kinds("doi = 16", "doi = 16\ntag = \"ranked\""), [ProblemKind::UnknownName]);
    let again = "[[domain]]\ndoi = 16\nlevels = { LOW = 0 }\n[[domain]]";
    assert_eq!(kinds("[[domain]]", again), [ProblemKind::Duplicate]);
    let integrity = "categories = [\"A\", \"B\", \"C\"], integrity-levels = [\"L\", \"H\"] }";
    let site =
        SITE.replace("categories = [\"A\", \"B\", \"C\"] }", integrity).replace("= \"LOW\"", "= \"LOW@L\"");
    let problems = Site::parse(&site).unwrap_err();
    assert!(problems.iter().any(|problem| problem.what.contains("integrity")), "{problems:?}");
}

#[test]
fn a_label_has_room_in_a_packet_to_the_last_category_of_its_form() {
    let numbers = 0..300_u16;
    let has_room = |form, of: &[u16]| {
        let domain = Domain::new(9, form, [(0, 0)], numbers.clone().map(|n| (n, n))).unwrap();
        assert_eq!(domain.form(), form);
        domain.has_room(&label(0, of))
    };
    let some = |from: u16, count: u16, step: usize| {
        (from..).step_by(step).take(usize::from(count)).collect::<Vec<_>>()
    };
    for (form, of, is) in [
        (TagForm::Bitmap, vec![], true),
        (TagForm::Bitmap, some(0, 240, 1), true),
        (TagForm::Bitmap, vec![239], true),
        (TagForm::Bitmap, vec![240], false),
        (TagForm::Bitmap, vec![0, 299], false),
        // What the label has not is written: nothing from 240 on may be.
        (TagForm::Permissive, vec![], false),
        (TagForm::Permissive, some(240, 60, 1), true),
        (TagForm::Permissive, some(239, 61, 1), true),
        (TagForm::Permissive, some(241, 59, 1), false),
        (TagForm::Permissive, some(0, 300, 1), true),
        (TagForm::Enumerated, vec![], true),
        (TagForm::Enumerated, some(0, 14, 20), true),
        (TagForm::Enumerated, some(285, 15, 1), true),
        (TagForm::Enumerated, some(284, 16, 1), false),
        (TagForm::Ranged, vec![], true),
        (TagForm::Ranged, some(0, 300, 1), true),
        (TagForm::Ranged, some(1, 6, 2), true),
        (TagForm::Ranged, some(1, 7, 2), true),
        (TagForm::Ranged, some(1, 8, 2), false),
        (TagForm::Ranged, some(0, 8, 2), true),
        (TagForm::Ranged, some(0, 9, 2), false),
        (TagForm::Ranged, [some(0, 8, 2), vec![15]].concat(), true),
        (TagForm::Ranged, [some(0, 2, 1), some(3, 7, 2)].concat(), true),
        (TagForm::Ranged, [some(0, 2, 1), some(3, 8, 2)].concat(), false),
        (TagForm::Ranged, [some(1, 7, 2), vec![14, 16]].concat(), false),
    ] {
        assert_eq!(has_room(form, &of), is, "{form:?} {of:?}");
    }
    // Of what has no number there nothing is said at all.
    let few = Domain::new(9, TagForm::Enumerated, [(0, 0)], [(0, 0)]).unwrap();
    assert!(
        few.has_room(&label(0, &[0])) && !few.has_room(&label(0, &[1])) && !few.has_room(&label(1, &[0]))
    );
}

#[test]
fn every_category_that_selinux_has_can_be_written() {
    let domain = Domain::new(1, TagForm::Bitmap, [(0, 0)], (0..1024).map(|n| (n, 1023 - n))).unwrap();
    let all = Label::confidential(0, CategorySet::from_numbers(0..1024).unwrap());
    assert_eq!(selinux::print_class(&domain.foreign(&all).unwrap()), "s0:c0.c1023");
    assert_eq!(domain.label(&selinux::parse_class("s0:c0.c1023").unwrap()), Ok(all));
    assert!(selinux::parse_class("s0:c0.c1024").is_err());
    assert!(selinux::parse_class("s256").is_err());
}

fn class() -> impl Strategy<Value = Class> {
    (0u8..6, proptest::collection::vec(0u16..12, 0..6))
        .prop_map(|(level, numbers)| Class::new(level, CategorySet::from_numbers(numbers).unwrap()))
}

proptest! {
    #[test]
    fn what_is_translated_comes_back_and_dominates_as_before(a in class(), b in class()) {
        let levels = [(0, 3), (2, 4), (3, 200), (5, 255)];
        let domain = Domain::new(9, TagForm::Ranged, levels, (0..10).map(|n| (n, 100 - 7 * n))).unwrap();
        let label = |class: &Class| Label::new(class.clone(), Class::bottom());
        let (a, b) = (label(&a), label(&b));
        let there = |label: &Label| {
            let said = [0, 2, 3, 5].contains(&label.confidentiality.level)
                && label.confidentiality.categories.iter().all(|n| n < 10);
            let class = domain.foreign(label).ok();
            assert_eq!(class.is_some(), said);
            class.inspect(|class| assert_eq!(domain.label(class).as_ref(), Ok(label)))
        };
        if let (Some(x), Some(y)) = (there(&a), there(&b)) {
            prop_assert_eq!(a.dominates(&b), x.dominates(&y));
        }
    }

    /// A range that can be said comes back as the same one; a label is in it exactly where its translation is between the ends.
    #[test]
    fn a_range_that_is_translated_comes_back_and_holds_what_it_held(a in class(), b in class(), c in class()) {
        let levels = [(0, 3), (1, 4), (2, 6), (4, 200), (5, 255)];
        let domain = Domain::new(9, TagForm::Ranged, levels, (0..10).map(|n| (n, 100 - 7 * n))).unwrap();
        let label = |class: Class| Label::new(class, Class::bottom());
        let range = Range::new(label(a.meet(&b)), label(a.join(&b))).unwrap();
        let every = range.labels(u64::MAX).unwrap().all(|label| domain.foreign(&label).is_ok());
        let said = domain.foreign_range(&range);
        prop_assert_eq!(said.is_ok(), every);
        if let Ok([low, high]) = said {
            prop_assert_eq!(domain.range(&[low.clone(), high.clone()]), Ok(Some(range.clone())));
            prop_assert_eq!(selinux::parse_classes(&selinux::print_classes(&[low.clone(), high.clone()])), Ok([low.clone(), high.clone()]));
            let c = label(c);
            if let Ok(class) = domain.foreign(&c) {
                prop_assert_eq!(range.contains(&c), class.dominates(&low) && high.dominates(&class));
            }
        }
    }

    #[test]
    fn any_text_that_is_an_selinux_level_is_printed_as_one_that_means_the_same(text in "s[0-9]{1,3}(:c[0-9]{1,4}([.,]c[0-9]{1,4}){0,3})?") {
        if let Ok(class) = selinux::parse_class(&text) {
            prop_assert_eq!(selinux::parse_class(&selinux::print_class(&class)), Ok(class));
        }
    }
}
