//! What is asked at a terminal: two prompts, nothing shown of what is typed, and a terminal that shows again what is typed however it ends.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

fn root() -> &'static std::path::Path {
    std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// A command at a terminal of its own, which script(1) makes.
struct Terminal {
    child: Child,
    shown: String,
}

impl Terminal {
    fn of(command: &str) -> Self {
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", command, "/dev/null"]).current_dir(root());
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self { child: script.spawn().expect("apt-get install bsdutils"), shown: String::new() }
    }

    /// Reads until `what` has been shown, which nothing before has.
    fn shows(&mut self, what: &str) {
        let output = self.child.stdout.as_mut().expect("its output");
        let from = self.shown.len();
        while !self.shown[from..].contains(what) {
            let mut byte = [0];
            assert_eq!(output.read(&mut byte).expect("read"), 1, "no {what:?} in {:?}", &self.shown[from..]);
            self.shown.push(byte[0].into());
        }
    }

    fn types(&mut self, what: &str) {
        self.child.stdin.as_mut().expect("its input").write_all(what.as_bytes()).expect("type");
    }

    /// Its exit code, when everything has been shown.
    fn ends(mut self) -> (Option<i32>, String) {
        drop(self.child.stdin.take());
        let mut rest = Vec::new();
        self.child.stdout.take().expect("its output").read_to_end(&mut rest).expect("read");
        self.shown.push_str(&String::from_utf8_lossy(&rest));
        (self.child.wait().expect("its end").code(), self.shown)
    }
}

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
        let mut terminal = Terminal::of(&command(what));
        for (prompt, typed) in ["Password for ada: ", "The same again: "].iter().zip(twice) {
            terminal.shows(prompt);
            terminal.types(typed);
        }
        let (ended, shown) = terminal.ends();
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
    let mut terminal = Terminal::of(&asks);
    terminal.shows("Password for ada: ");
    terminal.types("correct\u{3}");
    terminal.shows("ended 130");
    let (_, shown) = terminal.ends();
    assert!(!shown.contains("-echo") && !shown.contains("correct"), "{shown}");
}
