//! What a fault of the site file is called, where it is, and what is said to do about it.

use levee_policy::site::{ProblemKind, reference};
use levee_policy::{Problem, Site};

const SMALL: &str = include_str!("../../../conf/small/site.toml");

fn problems(text: &str) -> Vec<Problem> {
    Site::parse(text).err().unwrap_or_default()
}

/// The one problem of the small site with this in place of that, and more at its end.
#[track_caller]
fn only(from: &str, to: &str, more: &str) -> Problem {
    assert!(SMALL.contains(from), "{from} is not in the small site");
    let found = problems(&format!("{}\n{more}", SMALL.replacen(from, to, 1)));
    let [one] = &found[..] else { panic!("{to} {more}: {found:#?}") };
    one.clone()
}

fn partition(more: &str) -> String {
    format!("[[partition]]\nname = \"p\"\n{more}\n")
}

#[test]
fn a_range_in_place_of_a_label_is_called_that_and_a_wrong_name_is_not() {
    let label = |text: &str| only("", "", &partition(&format!("label = \"{text}\"\ncommand = [\"/x\"]")));
    let range = label("CONFIDENTIAL..SECRET");
    assert_eq!(range.kind, ProblemKind::BadValue);
    assert!(range.what.contains("is a range of labels") && range.remedy.contains("write one label"));
    let name = label("SECRT");
    assert_eq!((name.kind, name.nearest.as_deref()), (ProblemKind::UnknownName, Some("SECRET")));
    let both = label("CONFIDENTIAL..SECRT");
    assert_eq!(both.kind, ProblemKind::UnknownName, "{both}");
}

#[test]
fn a_command_has_no_nul_which_would_end_an_argument() {
    for command in ["[\"/x\\u0000y\"]", "[\"/x\", \"-n\", \"a\\u0000b\"]"] {
        let told = only("", "", &partition(&format!("label = \"SECRET\"\ncommand = {command}")));
        assert!(told.what.contains("a NUL in `command`"), "{told}");
    }
}

#[test]
fn who_writes_a_unit_in_full_is_told_its_letter_where_that_is_what_they_mean() {
    let remedy = |key: &str, from: &str, value: &str| {
        only(&format!("{key} = \"{from}\""), &format!("{key} = \"{value}\""), "").remedy
    };
    for (value, meant) in [("512MB", "512M"), ("512 M", "512M"), ("2 Gigabytes", "2G")] {
        assert!(remedy("memory", "512M", value).starts_with(&format!("write `{meant}`, a size")), "{value}");
    }
    assert!(remedy("grace", "30s", "30 sec").starts_with("write `30s`, a time"));
    // Of bits it is not, and of what is no unit neither.
    for value in ["512 Mbit", "512 Xb", "512", "M", "five M", ""] {
        assert!(remedy("memory", "512M", value).starts_with("write a size"), "{value}");
    }
}

#[test]
fn what_is_no_toml_is_told_with_what_to_do_about_it() {
    let remedy = |text: &str| {
        let found = problems(text);
        let syntax: Vec<_> = found.iter().filter(|problem| problem.kind == ProblemKind::Syntax).collect();
        syntax.first().unwrap_or_else(|| panic!("{text}: {found:?}")).remedy.clone()
    };
    for unclosed in ["[site]\nname = \"x\"\n[labels]\nlevels = [\"A\", \"B\"\n", "[site\nname = \"x\"\n"] {
        assert!(remedy(unclosed).contains("with `]`"), "{unclosed}: {}", remedy(unclosed));
    }
    assert!(remedy("[site]\nname = \"x\n").contains("close the string with a quote"));
    // A table twice is another fault than a table that is one of many at its second place.
    let two_brackets = "write two brackets everywhere";
    assert!(remedy("[user]\nname = \"a\"\n[[user]]\nname = \"b\"\n").contains(two_brackets));
    assert!(remedy("[site]\nname = \"a\"\n[site]\nname = \"b\"\n").contains("stands once in its place"));
    assert!(remedy("user = 1\n[[user]]\nname = \"b\"\n").contains("stands once in its place"));
}

#[test]
fn a_file_in_another_format_is_called_by_its_name_and_one_that_has_a_colon_somewhere_is_not() {
    let first = |text: &str| problems(text)[0].what.clone();
    for yaml in ["a_b-1:\n", "site: x\n", "---\n"] {
        assert!(first(yaml).contains("YAML"), "{yaml}");
    }
    for other in [": x\n", ":\n", "a b: c\n", "a/b: c\n", "x\n"] {
        assert!(first(other).contains("this is not TOML"), "{other}: {}", first(other));
    }
}

#[test]
fn a_misspelt_key_is_one_fault_and_what_else_is_missing_another() {
    let misspelt = only("levels = [", "levls = [", "");
    assert_eq!((misspelt.kind, misspelt.nearest.as_deref()), (ProblemKind::UnknownKey, Some("levels")));
    // One that is like another key says nothing of this.
    let text = SMALL.replacen("inner-pool = \"10.80.1.0/24\"", "slotz = 7", 1);
    let kinds: Vec<_> = problems(&text).iter().map(|problem| problem.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == ProblemKind::MissingKey).count(), 1, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == ProblemKind::UnknownKey).count(), 1, "{kinds:?}");
    // The tables of others are no tables of the file's own.
    for (key, name) in [
        ("\"frames.slot\"", "frames.slot"),
        ("\"`ppk`\"", "`ppk`"),
        ("\"a network's host\"", "a network's host"),
    ] {
        let told = only("[site]", &format!("{key} = 1\n[site]"), "");
        assert_eq!(
            (told.kind, told.what.contains(&format!("unknown key `{name}`"))),
            (ProblemKind::UnknownKey, true),
            "{told}"
        );
    }
}

/// Line, column and length.
#[test]
fn a_fault_within_a_label_is_told_at_its_own_place_as_long_as_it_is() {
    let ada = "clearance = \"UNCLASSIFIED..SECRET//NATO,MED\"";
    let line = SMALL.lines().position(|line| line == ada).unwrap() + 1;
    // The value begins behind this, with its quote.
    let quote = "clearance = ".len() + 1;
    let place = |text: &str| {
        let mut found = problems(&SMALL.replacen(ada, &format!("clearance = \"{text}\""), 1));
        found.retain(|problem| problem.line == line);
        let [one] = &found[..] else { panic!("{text}: {found:#?}") };
        (one.column - quote, one.length, one.kind)
    };
    use ProblemKind::{BadValue, EmptyRange, UnknownName};
    // A name alone is at fault, up to what ends it.
    assert_eq!(place("UNCLASSIFIED..SECRT//NATO,MED"), (15, 5, UnknownName));
    assert_eq!(place("UNCLASSIFIED..SECRET//NATT,MED"), (23, 4, UnknownName));
    // Whatever else it is goes to the end.
    assert_eq!(place("SECRET..UNCLASSIFIED"), (1, 20, EmptyRange));
    assert_eq!(place("SECRET@GOOD"), (7, 5, BadValue));
    // Where nothing is left to point at, or the file writes it in another way, it is the whole value with its quotes.
    assert_eq!(place("SECRET//NATO,"), (0, 15, UnknownName));
    assert_eq!(place("SECRET//NATO,\\u004dET"), (0, 23, UnknownName));
}

#[test]
fn the_reference_finds_tables_keys_and_keys_of_a_table() {
    let found = |name: &str| {
        let all = reference::find(name);
        all.into_iter().map(|(section, key)| (section.word(), key.map(|key| key.name))).collect::<Vec<_>>()
    };
    assert_eq!(found("server"), [("server", None)]);
    assert_eq!(found("grace"), [("server", Some("grace"))]);
    assert_eq!(found("server.grace"), [("server", Some("grace"))]);
    assert_eq!(found("frames.slot"), [("frames", Some("slot")), ("frames.slot", None)]);
    assert!(
        found("memory").contains(&("limits", Some("memory")))
            && found("memory").contains(&("partition", Some("memory")))
    );
    for nothing in ["limits.grace", "grase", "", "server.", ".grace"] {
        assert_eq!(found(nothing), [], "{nothing}");
    }
}
