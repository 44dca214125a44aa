//! A command at a terminal of its own, where somebody reads what it asks and types.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A command that runs at a terminal, which script(1) makes.
#[derive(Debug)]
pub struct Prompt {
    child: Child,
    shown: String,
}

impl Prompt {
    /// Runs it by a shell, in this directory.
    pub fn of(command: &str, directory: &Path) -> Self {
        // Whoever started the tests may have them ignore Ctrl-C.
        let mut script = Command::new("env");
        script.args(["--default-signal", "script", "--quiet", "--return", "--command", command, "/dev/null"]);
        script.current_dir(directory);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self { child: script.spawn().expect("apt-get install bsdutils"), shown: String::new() }
    }

    /// Waits until this has been shown, behind all that was waited for before.
    pub fn shows(&mut self, what: &str) {
        let output = self.child.stdout.as_mut().expect("its output");
        let from = self.shown.len();
        while !self.shown[from..].contains(what) {
            let mut byte = [0];
            assert_eq!(output.read(&mut byte).expect("read"), 1, "no {what:?} in {:?}", &self.shown[from..]);
            self.shown.push(byte[0].into());
        }
    }

    /// Types this.
    pub fn types(&mut self, what: &str) {
        self.child.stdin.as_mut().expect("its input").write_all(what.as_bytes()).expect("type");
    }

    /// How it ends, and all that it has shown.
    pub fn ends(mut self) -> (Option<i32>, String) {
        drop(self.child.stdin.take());
        let mut rest = Vec::new();
        self.child.stdout.take().expect("its output").read_to_end(&mut rest).expect("read");
        self.shown.push_str(&String::from_utf8_lossy(&rest));
        (self.child.wait().expect("its end").code(), self.shown)
    }
}
