//! Labels as text: the site's own words, SELinux's syntax, and back.

use levee_policy::{CategorySet, Class, Label, LabelName, Range, SyntaxKind, Vocabulary, nearest, selinux};
use proptest::prelude::*;

fn words(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn plain() -> Vocabulary {
    Vocabulary::new(words(&["LOW", "MID", "HIGH"]), words(&["NATO", "MED", "EYES"]), vec![], vec![]).unwrap()
}

fn with_integrity() -> Vocabulary {
    Vocabulary::new(
        words(&["LOW", "HIGH"]),
        words(&["NATO"]),
        words(&["UNTRUSTED", "TRUSTED"]),
        words(&["OPS", "DEV"]),
    )
    .unwrap()
}

/// Names for everything that a label can have.
fn largest() -> Vocabulary {
    let names = |prefix: &str, count: usize| (0..count).map(|n| format!("{prefix}{n}")).collect();
    Vocabulary::new(names("L", 256), names("C", 1024), vec![], vec![]).unwrap()
}

#[test]
fn a_label_is_printed_in_the_sites_order_whatever_the_order_it_was_written_in() {
    let site = plain();
    let label = site.parse("HIGH//EYES,NATO").unwrap();
    assert_eq!(site.print(&label).unwrap().as_str(), "HIGH//NATO,EYES");
    assert_eq!(site.parse("HIGH//NATO,EYES").unwrap(), label);
    assert_eq!(site.parse_name(&LabelName::new("HIGH//NATO,EYES").unwrap()), Some(label));
    assert_eq!(site.parse_name(&LabelName::new("HIGH//EYES,NATO").unwrap()), None, "one label, one name");
}

#[test]
fn integrity_is_written_exactly_where_the_site_has_it() {
    let site = with_integrity();
    for text in ["LOW@TRUSTED", "HIGH//NATO@UNTRUSTED//OPS,DEV"] {
        let label = site.parse(text).unwrap();
        assert_eq!(site.print(&label).unwrap().as_str(), text);
    }
    let missing = site.parse("HIGH//NATO").unwrap_err();
    assert_eq!((missing.kind, missing.at), (SyntaxKind::Malformed, 0));
    assert!(missing.remedy.contains("`UNTRUSTED`, `TRUSTED`"), "{missing}");
    let unwanted = plain().parse("HIGH//NATO@TRUSTED").unwrap_err();
    assert_eq!((unwanted.kind, unwanted.at), (SyntaxKind::Malformed, 10));
    let foreign = Label::new(Class::bottom(), Class::new(1, CategorySet::empty()));
    assert_eq!(plain().print(&foreign), None, "an integrity part that the text would lose");
}

#[test]
fn what_is_not_a_label_is_refused_at_the_place_of_the_fault() {
    let site = plain();
    for (text, at, near) in [
        ("", 0, None),
        ("HIHG", 0, Some("HIGH")),
        ("high", 0, Some("HIGH")),
        ("HIGH//NATOO", 6, Some("NATO")),
        ("HIGH//NATO,MDE", 11, Some("MED")),
        ("HIGH//", 6, None),
        ("HIGH//NATO,", 11, None),
        ("HIGH//NATO,NATO", 11, None),
        ("HIGH/NATO", 0, None),
        (" HIGH", 0, Some("HIGH")),
        ("HIGH//NATO ", 6, Some("NATO")),
        ("HIGH//NATO//MED", 6, None),
    ] {
        let error = site.parse(text).unwrap_err();
        assert_eq!(error.at, at, "{text:?}: {error}");
        if near.is_some() {
            assert_eq!(error.nearest.as_deref(), near, "{text:?}: {error}");
        }
        assert!(!error.remedy.is_empty());
    }
}

#[test]
fn what_was_meant_is_told_where_it_can_be_and_nothing_else() {
    let remedy = |site: &Vocabulary, text: &str| site.parse(text).unwrap_err().remedy;
    let site = plain();
    for (text, says) in [
        (" HIGH", "write it without the space: `HIGH`"),
        ("HIGH//NATO ", "write it without the space: `NATO`"),
        ("HIGH/NATO", "two slashes stand before categories: `HIGH//NATO`"),
        ("LOW-HIGH", "a range has two dots: `LOW..HIGH`"),
        (" XY", "the site declares `LOW`, `MID`, `HIGH`"),
        ("XYZ/NATO", "the site declares `LOW`, `MID`, `HIGH`"),
        ("XYZ-HIGH", "the site declares `LOW`, `MID`, `HIGH`"),
        ("HIGH-XYZ", "the site declares `LOW`, `MID`, `HIGH`"),
        ("HIHG", "did you mean `HIGH`? The site declares `LOW`, `MID`, `HIGH`"),
    ] {
        assert_eq!(remedy(&site, text), says, "{text:?}");
    }
    let bare = Vocabulary::new(words(&["LOW", "HIGH"]), vec![], vec![], vec![]).unwrap();
    assert_eq!(remedy(&bare, "LOW//NATO"), "this site declares no category: remove it, or declare it");
}

#[test]
fn eight_names_are_told_and_of_more_how_many() {
    let levels = |count: u8| {
        (0..count).map(|n| ["Q", "V"][usize::from(n % 2)].repeat(usize::from(n) + 3)).collect::<Vec<_>>()
    };
    for (count, ends) in [(7, "`"), (8, "`"), (9, "`, 1 more"), (10, "`, 2 more")] {
        let site = Vocabulary::new(levels(count), vec![], vec![], vec![]).unwrap();
        let told = site.parse("A").unwrap_err().remedy;
        assert!(told.ends_with(ends) && told.matches('`').count() == 2 * usize::from(count.min(8)), "{told}");
    }
}

#[test]
fn a_name_is_like_another_by_a_third_of_its_letters_and_never_by_all_of_the_others() {
    let near = |name: &str, other: &'static str| nearest(name, [other].into_iter()).is_some();
    for (name, other, is) in [
        ("NATXX", "NATOE", false),
        ("NATXE", "NATOE", true),
        ("NATXXE", "NATOEE", true),
        ("NXTXXE", "NATOEE", false),
        ("NATXXXEE", "NATOEEEE", false),
        ("NATXXXEEE", "NATOYYEEE", true),
        ("X", "AX", true),
        ("X", "A", false),
        ("", "A", false),
        ("AX", "A", false),
        ("XY", "XA", true),
    ] {
        assert_eq!(near(name, other), is, "{name} {other}");
    }
}

#[test]
fn a_range_is_two_labels_or_one_and_never_empty() {
    let site = plain();
    let range = site.parse_range("LOW..HIGH//NATO,MED").unwrap();
    assert_eq!(site.print_range(&range).unwrap(), "LOW..HIGH//NATO,MED");
    let single = site.parse_range("MID//MED").unwrap();
    assert_eq!(single, Range::single(site.parse("MID//MED").unwrap()));
    assert_eq!(site.print_range(&single).unwrap(), "MID//MED");
    let reversed = site.parse_range("HIGH..LOW").unwrap_err();
    assert_eq!(reversed.kind, SyntaxKind::EmptyRange);
    assert!(reversed.remedy.ends_with("`LOW..HIGH`"), "{reversed}");
    let apart = site.parse_range("LOW//NATO..HIGH//MED").unwrap_err();
    assert_eq!(apart.kind, SyntaxKind::EmptyRange);
    assert!(apart.remedy.contains("`LOW//NATO..HIGH//NATO,MED`"), "{apart}");
    assert_eq!(site.parse_range("LOW..HIHG").unwrap_err().at, 5);
    assert!(site.parse_range("LOW..MID..HIGH").is_err());
    assert!(site.parse_range("LOW...HIGH").is_err());
    // Integrity falls as a range rises.
    assert!(with_integrity().parse_range("LOW@TRUSTED..HIGH@UNTRUSTED").is_ok());
    assert!(with_integrity().parse_range("LOW@UNTRUSTED..HIGH@TRUSTED").is_err());
}

#[test]
fn a_vocabulary_tells_every_fault_of_its_names() {
    let faults = Vocabulary::new(
        words(&["LOW", "HIGH", "LOW", "low", "", "-X", "A..B", "A/B", "A@B", &"X".repeat(33)]),
        words(&["Ä"]),
        vec![],
        words(&["OPS"]),
    )
    .unwrap_err();
    let at: Vec<_> = faults.iter().map(|fault| (fault.list.key(), fault.index)).collect();
    assert_eq!(
        at,
        [
            ("integrity-categories", None),
            ("levels", Some(2)),
            ("levels", Some(3)),
            ("levels", Some(4)),
            ("levels", Some(5)),
            ("levels", Some(6)),
            ("levels", Some(7)),
            ("levels", Some(8)),
            ("levels", Some(9)),
            ("categories", Some(0)),
        ]
    );
    assert!(Vocabulary::new(vec![], vec![], vec![], vec![]).is_err());
    let many = |count: usize| (0..count).map(|n| format!("N{n}")).collect::<Vec<_>>();
    assert!(Vocabulary::new(many(256), many(1024), vec![], vec![]).is_ok());
    assert!(Vocabulary::new(many(257), vec![], vec![], vec![]).is_err());
    assert!(Vocabulary::new(many(1), many(1025), vec![], vec![]).is_err());
}

#[test]
fn selinux_levels_are_printed_as_the_kernel_prints_them() {
    let site = largest();
    for text in ["s0", "s2:c0.c3,c7", "s255:c0,c1", "s1:c5,c7.c9,c1022,c1023", "s0:c0.c1023"] {
        let label = Label::new(selinux::parse_class(text).unwrap(), Class::bottom());
        assert_eq!(selinux::print(&site, &label).unwrap(), text);
    }
    let class = selinux::parse_class("s2:c7,c3,c0.c2").unwrap();
    assert_eq!(selinux::print_class(&class), "s2:c0.c3,c7");
    for text in ["s0-s2:c0.c3", "s1:c1-s1:c1,c2", "s2:c0.c3,c7"] {
        let ends = selinux::parse_classes(text).unwrap();
        assert_eq!(selinux::print_classes(&ends), text);
    }
    assert_eq!(selinux::parse_classes("s2:c0.c3,c7"), Ok([class.clone(), class]));
}

#[test]
fn what_is_not_an_selinux_level_is_refused() {
    for text in [
        "",
        "s",
        "c0",
        "s00",
        "s+1",
        "s1:",
        "s1:c",
        "s1:c0,",
        "s1:c2.c1",
        "s1:c0.",
        "s1 ",
        "S1",
        "s1:c0..c2",
        "s256",
        "s1:c0.c1024",
        "s99999999999",
        "s0-",
        "s1-s0",
        "s0-s1-s2",
    ] {
        assert!(selinux::parse_classes(text).is_err(), "{text:?} was taken");
    }
    for empty in ["s1-s0", "s1:c1-s1:c2", "s1:c1-s2"] {
        assert_eq!(selinux::parse_classes(empty), Err(selinux::SelinuxError::EmptyRange));
    }
}

#[test]
fn a_mapping_that_would_lose_integrity_is_refused() {
    let site = with_integrity();
    let label = site.parse("HIGH//NATO@TRUSTED").unwrap();
    assert_eq!(selinux::print(&site, &label), Err(selinux::SelinuxError::Integrity));
    assert_eq!(selinux::print(&plain(), &label), Err(selinux::SelinuxError::Integrity));
}

#[test]
fn a_label_name_is_a_file_name_of_its_own() {
    let name = LabelName::new("HIGH//NATO,MED@TRUSTED").unwrap();
    assert_eq!(name.file_name(), "HIGH++NATO,MED@TRUSTED");
    assert!(LabelName::new("").is_err());
    assert!(LabelName::new("//X").is_err());
    assert!(LabelName::new("A B").is_err());
    assert!(LabelName::new(&"A".repeat(255)).is_ok());
    assert!(LabelName::new(&"A".repeat(256)).is_err());
    assert!(serde_json::from_str::<LabelName>("\"A\\u0000\"").is_err(), "checked on the way in");
}

fn class(levels: u8, categories: u16) -> impl Strategy<Value = Class> {
    let numbers = prop::collection::vec(0..categories, 0..30);
    (0..levels, numbers)
        .prop_map(|(level, numbers)| Class::new(level, CategorySet::from_numbers(numbers).unwrap()))
}

proptest! {
    #[test]
    fn every_label_reads_back_from_both_syntaxes(class in class(255, 1024), other in class(255, 1024)) {
        let site = largest();
        let label = Label::new(class, Class::bottom());
        let text = site.text(&label).unwrap();
        prop_assert_eq!(&site.parse(&text).unwrap(), &label);
        prop_assert_eq!(&selinux::parse_class(&selinux::print(&site, &label).unwrap()).unwrap(), &label.confidentiality);
        let range = Range::new(label.clone(), label.join(&Label::new(other, Class::bottom()))).unwrap();
        prop_assert_eq!(&site.parse_range(&site.print_range(&range).unwrap()).unwrap(), &range);
        let ends = [range.low().confidentiality.clone(), range.high().confidentiality.clone()];
        prop_assert_eq!(selinux::parse_classes(&selinux::print_classes(&ends)), Ok(ends));
    }

    #[test]
    fn integrity_reads_back(c in class(2, 1), i in class(2, 2)) {
        let site = with_integrity();
        let label = Label::new(c, i);
        let name = site.print(&label).unwrap();
        prop_assert_eq!(site.parse_name(&name), Some(label));
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in "[A-Zs0-9c:.,/@ -]{0,40}|.{0,20}") {
        for site in [plain(), with_integrity()] {
            let _ = site.parse_range(&text);
        }
        let _ = selinux::parse_classes(&text);
        if let Ok(label) = plain().parse(&text) {
            prop_assert_eq!(plain().parse(&plain().text(&label).unwrap()).unwrap(), label);
        }
    }
}

#[test]
fn what_a_person_types_is_understood_in_any_case_and_order_and_means_one_label() {
    let site = with_integrity();
    let label = |text: &str| site.parse_typed(text);
    let meant = site.parse("HIGH//NATO@TRUSTED//OPS,DEV").unwrap();
    for typed in
        ["high//nato@trusted//dev,ops", "High // Nato @ Trusted // Ops , Dev", "HIGH//NATO@TRUSTED//DEV,OPS"]
    {
        assert_eq!(label(typed).as_ref(), Ok(&meant), "{typed}");
    }
    for wrong in ["", "hi gh@trusted", "high//nato,NATO@trusted", "high//", "high", "high@"] {
        assert!(label(wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(
        site.parse_name(&LabelName::new("high@trusted").unwrap()),
        None,
        "machines have one name for a label"
    );
    let range = |text: &str| site.parse_typed_range(text).map(|range| site.print_range(&range).unwrap());
    let meant = Ok("LOW@TRUSTED..HIGH//NATO@TRUSTED".to_owned());
    assert_eq!(range("low@trusted .. High//nato@Trusted"), meant);
    assert_eq!(range("low@trusted"), Ok("LOW@TRUSTED".to_owned()));
    for wrong in ["", "low@trusted..", "high@trusted..low@trusted", "low@trusted..high@trusted..high@trusted"]
    {
        assert!(range(wrong).is_err(), "{wrong:?}");
    }
}

/// Files in other formats are told once, and not line by line.
#[test]
fn a_file_that_is_no_toml_is_called_what_it_is() {
    for (text, format) in [
        ("{\"site\": {\"name\": \"x\"}}", "JSON"),
        ("# a comment\n\nsite:\n  name: hospital\n", "YAML"),
        ("---\nsite: x\n", "YAML"),
        ("<site name='x'/>", "XML"),
        ("\0\0\0", "no text"),
    ] {
        let problems = levee_policy::Site::parse(text).unwrap_err();
        assert_eq!(problems.len(), 1, "{text:?}: {problems:?}");
        assert!(problems[0].what.contains(format), "{text:?}: {}", problems[0].what);
    }
}
