//! Files of a crate do not take from each other in a circle: whoever reads one has not to have read all.

use levee_tidy::imports::{Imports, circle, imports};
use levee_tidy::{none, tree};
use std::collections::BTreeSet;

/// Files from which those that they need take, too: in what they are of one piece. What is taken from them is not counted.
const OF_ONE_PIECE: [(&str, &str, &str); 13] = [
    ("core/esp", "sad.rs", METHODS),
    ("core/ike", "endpoint.rs", "every step of every state gets `Ctx`, and makes what the endpoint keeps"),
    ("core/ike", "sa/mod.rs", "a state machine: `State` has every state, and each state names the next"),
    ("core/ike", "sa/established.rs", "the same of the exchanges of an SA that is established"),
    ("core/session", "federation/mod.rs", METHODS),
    ("core/session", "sessions.rs", METHODS),
    ("daemons/keyer", "keyer.rs", METHODS),
    ("daemons/sessiond", "daemon.rs", METHODS),
    ("daemons/warden", "label.rs", METHODS),
    ("daemons/warden", "server.rs", METHODS),
    (
        "host/sys",
        "spawn.rs",
        "a program that waits for its connection is begun as any is, and gone on with in the child's part of that",
    ),
    ("tpe", "agent/mod.rs", METHODS),
    ("tpe", "screen/mod.rs", METHODS),
];

/// The reason of most of them.
const METHODS: &str = "one type, whose methods are in several files, by what happens to it: its fields are seen by these files \
                       and by no other crate";

#[test]
fn no_files_of_a_crate_take_from_each_other_in_a_circle() {
    let all = tree();
    let places: BTreeSet<&str> = (all.iter().filter_map(|file| file.path.strip_suffix("/Cargo.toml")))
        .filter(|place| *place != "fuzz")
        .collect();
    assert!(places.len() > 30, "{} crates", places.len());
    let mut problems = Vec::new();
    for place in places {
        let imports = imports(&all, place);
        let of_one_piece = OF_ONE_PIECE.iter().filter(|(crate_, ..)| *crate_ == place);
        let files: BTreeSet<&str> = of_one_piece.map(|(_, file, _)| *file).collect();
        problems.extend(circle(&imports, &files).map(|circle| format!("{place}: {circle}")));
        for file in &files {
            let others = files.iter().copied().filter(|other| other != file).collect();
            if circle(&imports, &others).is_none() {
                problems.push(format!("{place}: {file}: no exception is needed any more"));
            }
        }
    }
    none(&problems);
}

#[test]
fn a_circle_is_found_through_what_others_hand_on_and_in_what_macros_are_given() {
    let file = |path: &str, text: &str| levee_tidy::Source {
        path: format!("core/one/src/{path}"),
        text: text.to_owned(),
    };
    let lib = "mod one; mod two; mod three; pub use two::Two; pub use three::*;";
    let of = |one: &str, two: &str| -> Imports {
        let three = file("three.rs", "pub struct Three;");
        imports(&[file("lib.rs", lib), file("one.rs", one), file("two.rs", two), three], "core/one")
    };
    let circles = |one: &str, two: &str| circle(&of(one, two), &BTreeSet::new());
    // The crate's root hands on and takes nothing itself.
    let found = circles(
        "use crate::Two; pub fn one() -> Two { Two }",
        "pub struct Two; fn f() { super::one::one(); }",
    );
    assert_eq!(found.unwrap(), "one.rs -[Two]-> two.rs -[one]-> one.rs");
    let found =
        circles("use crate::two; fn f() { page!({ (two::g()) }) }", "use crate::one::F; pub fn g() {}");
    assert_eq!(found.unwrap(), "one.rs -[g]-> two.rs -[F]-> one.rs");
    for (one, two) in [
        ("use crate::{Three, Two};", "pub struct Two; use crate::three::Three;"),
        ("use crate::Two;", "pub struct Two; #[cfg(test)] mod tests { use crate::one::F; }"),
        ("use crate::Two;", "pub struct Two; pub(in crate::one) fn f() {}"),
        ("use crate::Two;", "pub struct Two; // crate::one::F\n"),
    ] {
        assert_eq!(circles(one, two), None, "{one} {two}");
    }
    let imports = of("use crate::Two;", "pub struct Two; use crate::one::F;");
    assert_eq!(circle(&imports, &BTreeSet::from(["one.rs"])), None);
}
