//! Site files with one typical mistake each, as somebody made them who had read README alone: what `levee check` says of each.

use std::fs;
use std::path::Path;
use std::process::Command;

/// What `levee check` says first of a file: its exit code, then the line, what is wrong, and the remedy.
fn said(directory: &Path, file: &str) -> String {
    let check = Command::new(env!("CARGO_BIN_EXE_levee"))
        .args(["check", "--json", file])
        .current_dir(directory)
        .output()
        .expect("run levee check");
    let code = check.status.code().expect("an exit code");
    if code == 2 {
        let failure: serde_json::Value = serde_json::from_slice(&check.stdout).expect("JSON");
        let reason = failure["reason"].as_str().expect("a reason");
        return format!("2: {}", reason.trim_start_matches(&format!("{file}: ")));
    }
    let answer: serde_json::Value = serde_json::from_slice(&check.stdout).expect("JSON");
    let first = |what: &str| answer[what].as_array().and_then(|all| all.first()).cloned();
    let text = |first: &serde_json::Value, key: &str| first[key].as_str().unwrap_or_default().to_owned();
    match (first("problems"), first("unfit")) {
        (Some(first), _) => {
            format!("{code}: line {}: {}; {}", first["line"], text(&first, "what"), text(&first, "remedy"))
        }
        (None, Some(first)) => format!("{code}: {}; {}", text(&first, "what"), text(&first, "remedy")),
        (None, None) => format!("{code}: {}", answer["warnings"][0].as_str().unwrap_or("sound")),
    }
}

#[test]
fn of_each_typical_mistake_check_says_the_line_what_is_wrong_and_the_remedy() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong-sites");
    let expected = fs::read_to_string(directory.join("expected.txt")).expect("what is expected");
    let mut files = 0;
    for line in expected.lines() {
        let (file, expected) = line.split_once(": ").expect("a file, then what is said of it");
        assert_eq!(said(&directory, file), expected, "{file}");
        files += 1;
    }
    let there = fs::read_dir(&directory).expect("the sites").count() - 1;
    assert_eq!(files, there, "a file of which nothing is expected");
}

/// Files with one mistake, from which other faults would follow if nobody thought of it.
const ALONE: [&str; 10] = [
    "12-tabs",
    "24-dup-port",
    "28-dup-table",
    "41-users-plural",
    "44-spaces",
    "49-hostip-taken",
    "57-quotes",
    "58-levels-dup",
    "114-addresses-string",
    "115-uploads-yes",
];

#[test]
fn what_only_follows_from_a_mistake_is_not_told_beside_it() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong-sites");
    for name in ALONE {
        let file = format!("{name}.toml");
        let mut check = Command::new(env!("CARGO_BIN_EXE_levee"));
        let check = check.args(["check", &file]).current_dir(&directory).output().expect("run levee check");
        let said = String::from_utf8_lossy(&check.stdout);
        assert!(said.ends_with(&format!("{file}: 1 problem\n")), "{said}");
    }
    let mut all = Command::new(env!("CARGO_BIN_EXE_levee"));
    let all = all.args(["check", "40-single-bracket.toml"]).current_dir(&directory).output().expect("run it");
    let said = String::from_utf8_lossy(&all.stdout);
    assert!(said.contains("the first is on line 25"), "{said}");
}
