//! The `levee-lab` command as somebody runs it who does not know it yet.

use std::process::{Command, Output};

fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_levee-lab")).args(arguments).output().expect("run levee-lab")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn verbose_has_its_short_form_here_too() {
    let listed = lab(&["list", "-v"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    assert!(text(&lab(&["--help"]).stdout).contains("Exit status 0: done"));
}

#[test]
fn who_asks_for_what_there_is_not_is_told_all_that_the_list_has() {
    let listed = text(&lab(&["list", "--json"]).stdout);
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let unknown = lab(&["run", "nosuch"]);
    let said = text(&unknown.stderr);
    assert_eq!(unknown.status.code(), Some(2), "{said}");
    let names = listed.as_array().expect("a list").iter().map(|one| one["name"].as_str().expect("a name"));
    let names: Vec<&str> = names.collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        assert!(said.contains(&format!(" {name}")), "{name}: {said}");
    }
}

#[test]
fn a_place_for_results_whose_parent_is_not_there_is_refused_before_anything_runs() {
    let place = tempfile::tempdir().expect("a directory");
    let out = place.path().join("none/x").display().to_string();
    for words in [&["run", "mysea"][..], &["run", "same"], &["leak", "--quick"]] {
        let refused = lab(&[words, &["--out", &out]].concat());
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("there is no directory") && said.contains("mkdir -p"), "{words:?}: {said}");
        assert!(!place.path().join("none").exists(), "{words:?}");
    }
}
