//! SELinux's translation file, read and written.

use levee_policy::setrans::{NoTranslationKind, Translations, line};
use levee_policy::{CategorySet, Class, selinux};
use proptest::prelude::*;

/// As reference policy's MLS has it.
const REFERENCE: &str = "\
# Multi-Level Security translation table for SELinux
#
# Objects can be labeled with one of 16 levels and be categorized with 0-1023
s0=SystemLow
s15:c0.c1023=SystemHigh
s0-s15:c0.c1023=SystemLow-SystemHigh

# Unclassified level
s1=Unclassified
  s2 = Secret
s2:c0=A
s2:c0,c1=AB
s2:c0.c2=A B C
";

fn kind(text: &str) -> (usize, NoTranslationKind) {
    let fault = Translations::parse(text).unwrap_err();
    (fault.line, fault.kind)
}

#[test]
fn each_name_of_a_single_level_has_it_and_a_range_names_none() {
    let names = Translations::parse(REFERENCE).unwrap();
    let level = |name: &str| names.class(name).map(selinux::print_class);
    for (name, expected) in [
        ("SystemLow", "s0"),
        ("SystemHigh", "s15:c0.c1023"),
        ("Secret", "s2"),
        ("AB", "s2:c0,c1"),
        ("A B C", "s2:c0.c2"),
    ] {
        assert_eq!(level(name).as_deref(), Some(expected), "{name}");
    }
    assert_eq!((level("SystemLow-SystemHigh"), level("secret"), level("")), (None, None, None));
    assert_eq!(names.iter().count(), 7);
}

#[test]
fn what_a_line_does_not_say_by_itself_is_refused_with_its_line() {
    assert_eq!(kind("s0=LOW\ns1"), (2, NoTranslationKind::NoName));
    for composed in ["Base=Levels", "Include=/etc/other", "ModifierGroup=G", "Domain=D"] {
        assert_eq!(kind(&format!("\n{composed}\n")), (2, NoTranslationKind::Composed), "{composed}");
    }
    for level in ["c0", "s256", "s01", "s1:c1024", "s1:c2.c1", "s1:", "", "s2-s1", "s1-", "s0-s1-s2", "~c1"] {
        assert!(matches!(kind(&format!("{level}=NAME")), (1, NoTranslationKind::Level(_))), "{level}");
    }
    for name in ["", "  ", "A=B", "A#B", "LOW-HIGH", "A\u{1b}[2J", "A\tB"] {
        assert_eq!(kind(&format!("s1={name}")), (1, NoTranslationKind::Name), "{name:?}");
    }
    assert_eq!(kind("s0=LOW\ns1=LOW\n"), (2, NoTranslationKind::Twice));
    // The same once more, and another name for the same, are no contradiction.
    assert_eq!(Translations::parse("s0=LOW\ns0=LOW\ns0=NONE\n").unwrap().iter().count(), 2);
}

proptest! {
    #[test]
    fn a_line_that_is_written_is_read_as_what_it_was(
        level in any::<u8>(),
        numbers in prop::collection::btree_set(0_u16..1024, 0..20),
        name in "[A-Z][A-Z0-9 /,=#-]{0,12}",
    ) {
        let class = Class::new(level, CategorySet::from_numbers(numbers).unwrap());
        match line(&class, &name) {
            Some(line) => {
                let read = Translations::parse(&line).unwrap();
                prop_assert_eq!(read.class(&name), Some(&class));
            }
            None => prop_assert!(name.contains(['=', '#', '-']) || name.ends_with(' ')),
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(s[0-9]{0,3}(:c[0-9.,c]{0,6})?(-s1)?[= #]{0,2}[A-B]{0,2}\n?){0,5}|\\PC{0,40}") {
        if let Ok(names) = Translations::parse(&text) {
            for (name, class) in names.iter() {
                let again = line(class, name).unwrap();
                let read = Translations::parse(&again).unwrap();
                prop_assert_eq!(read.class(name), Some(class));
            }
        }
    }
}
