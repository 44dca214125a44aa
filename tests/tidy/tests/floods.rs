//! Each way in which one process speaks to another is tried by who says anything at any rate.
//!
//! The ways are those of the table in `docs/ARCHITECTURE.md`, which a test of the warden's holds to the channels that there are. A test
//! says in its comment what it floods: `Floods: a → b; c → d.`

use levee_tidy::{Source, none, tree};
use std::collections::{BTreeMap, BTreeSet};

/// Ways that no flood is tried in, each with its reason.
const NOT_TRIED: [(&str, &str); 2] = [
    ("sessiond → `levee`", "an operator's command takes one answer, and ends"),
    ("tpe's agent → `levee-tpe`", "a person's own command, which ends with the answer or with its program"),
];

/// Ways beside those of the table: within one program, or to who started it.
const BESIDE: [&str; 4] = [
    "connection process → tpe's agent",
    "every role → warden",
    "terminal's reader → `levee-tpe`",
    "tpe's acceptor → tpe's agent",
];

/// The ways of the table.
fn ways() -> BTreeSet<String> {
    let all = tree();
    let text = all.iter().find(|file| file.path == "docs/ARCHITECTURE.md").map_or("", |file| &file.text);
    let rows = text.lines().filter(|line| line.contains("| `host/ipc/src/"));
    let mut ways = BTreeSet::new();
    for row in rows {
        let pair = row.trim_start_matches("| ").split(" | ").next().unwrap_or_default();
        if let Some((a, b)) = pair.split_once(" ↔ ") {
            ways.insert(format!("{a} → {b}"));
            ways.insert(format!("{b} → {a}"));
        } else {
            assert!(pair.contains(" → "), "{pair}");
            ways.insert(pair.to_owned());
        }
    }
    assert!(ways.len() > 35, "{} ways", ways.len());
    ways
}

/// What the tests of a file say that they flood, each with whether it does: in a test, whose body says so.
fn tried(file: &Source) -> Vec<(String, bool)> {
    const SAYS: [&str; 5] = ["flood(", "send(&channel", ", without_end)", "is_at_work::<", "signer.bears("];
    let mut all = Vec::new();
    for (at, _) in file.text.match_indices("Floods: ") {
        let rest = &file.text[at..];
        let (said, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        // Its comment may go on; then it is a test's, which ends where nothing stands in.
        let mut lines = rest.lines().map(str::trim_end).skip_while(|line| line.trim().starts_with("///"));
        let is_test = lines.next().is_some_and(|line| line.trim() == "#[test]");
        let floods =
            lines.take_while(|line| *line != "}").any(|line| SAYS.iter().any(|word| line.contains(word)));
        let ways = said.trim_start_matches("Floods: ").trim_end_matches('.').split("; ");
        all.extend(ways.map(|way| (way.to_owned(), is_test && floods)));
    }
    all
}

#[test]
fn each_way_in_which_a_process_speaks_to_another_is_flooded_by_a_test() {
    let ways = ways();
    let mut problems = Vec::new();
    let mut flooded: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in tree().iter().filter(|file| file.is_rust() && (file.is_of_tests() || file.is_of_unit_tests()))
    {
        if file.path == "tests/tidy/tests/floods.rs" {
            continue;
        }
        for (way, does) in tried(file) {
            if !ways.contains(&way) && !BESIDE.contains(&way.as_str()) {
                problems.push(format!("{}: there is no way {way}", file.path));
            }
            if does {
                flooded.entry(way).or_default().push(file.path.clone());
            } else {
                problems.push(format!("{}: {way} is said, and nothing is flooded by a test", file.path));
            }
        }
    }
    let not: BTreeSet<&str> = NOT_TRIED.iter().map(|(way, _)| *way).collect();
    for way in ways.iter().map(String::as_str).chain(BESIDE) {
        match (flooded.contains_key(way), not.contains(way)) {
            (false, false) => problems.push(format!("{way}: no test floods it")),
            (true, true) => problems.push(format!("{way}: no exception is needed any more")),
            _ => {}
        }
    }
    problems.extend(
        not.iter().filter(|way| !ways.contains(**way)).map(|way| format!("{way}: there is no such way")),
    );
    none(&problems);
}
