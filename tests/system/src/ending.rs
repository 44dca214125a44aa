//! The end of what was started, where nobody's destructor runs: a release build ends at a panic without them.

use crate::{host, sh};
use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

/// What temporary directories of this process's worlds are called, up to what differs.
pub(crate) fn prefix() -> String {
    format!("levee-test-{}-", std::process::id())
}

/// What the namespaces of this process's worlds are called, up to what differs: not longer, since interfaces have such names.
pub(crate) fn name() -> String {
    format!("lv{}", std::process::id() % 10_000)
}

/// Has a panic, in whichever thread, end every server and workstation of this process, and take its namespaces and directories away,
/// before the process itself ends. For programs; tests unwind.
pub fn ends_what_it_started() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |what| {
        usual(what);
        end();
    }));
}

/// Ends them, as `World` does when it goes. What cannot be ended is left: nothing here may fail.
fn end() {
    let wardens = || host::children(std::process::id(), "levee-warden");
    for signal in ["-TERM", "-KILL"] {
        wardens().iter().for_each(|warden| drop(sh("kill", &[signal, &warden.pid.to_string()])));
        let until = Instant::now() + Duration::from_secs(15);
        while !wardens().is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let name = name();
    let ours = |other: &str| {
        other.strip_prefix(&name).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let listed = |directory: &std::path::Path| fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in listed("/run/netns".as_ref()) {
        if let Some(namespace) = entry.file_name().to_str().filter(|name| ours(name)) {
            drop(sh("ip", &["netns", "delete", namespace]));
        }
    }
    for entry in listed(&std::env::temp_dir()) {
        if entry.file_name().to_string_lossy().starts_with(&prefix()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A process that is killed when this goes.
#[derive(Debug)]
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
