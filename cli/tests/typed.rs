//! What is asked at a terminal: two prompts, nothing shown of what is typed, and a terminal that shows again what is typed however it ends.

use levee_system::prompt::Prompt;
use std::path::Path;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn a_password_is_asked_for_twice_and_neither_is_shown() {
    let state = tempfile::tempdir().unwrap();
    let command = |what: &str| {
        let state = state.path().display();
        format!("{} user {what} conf/small/site.toml ada --state {state}", env!("CARGO_BIN_EXE_levee"))
    };
    for (what, twice, code) in [
        ("add", ["correct horse\n", "correct house\n"], 2),
        ("add", ["correct horse\n", "correct horse\n"], 0),
        ("passwd", ["another horse\n", "another horse\n"], 0),
    ] {
        let mut prompt = Prompt::of(&command(what), Path::new(ROOT));
        for (asked, typed) in ["Password for ada: ", "The same again: "].iter().zip(twice) {
            prompt.shows(asked);
            prompt.types(typed);
        }
        let (ended, shown) = prompt.ends();
        assert_eq!(ended, Some(code), "{shown}");
        assert!(!shown.contains("hors") && shown.contains("the same") == (code == 2), "{shown}");
    }
}

#[test]
fn who_is_asked_and_interrupts_has_a_terminal_that_shows_what_is_typed() {
    let state = tempfile::tempdir().unwrap();
    let (levee, state) = (env!("CARGO_BIN_EXE_levee"), state.path().display());
    let asks = format!(
        "sh -c 'trap : INT; stty; {levee} user add conf/small/site.toml ada --state {state}; echo ended $?; stty'"
    );
    let mut prompt = Prompt::of(&asks, Path::new(ROOT));
    prompt.shows("Password for ada: ");
    prompt.types("correct\u{3}");
    prompt.shows("ended 130");
    let (_, shown) = prompt.ends();
    assert!(!shown.contains("-echo") && !shown.contains("correct"), "{shown}");
}
