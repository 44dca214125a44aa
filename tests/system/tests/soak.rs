//! Everything that belongs to one label is hostile for a while. The form of `make soak` that has the time.

use levee_hostile::MOST;
use levee_ipc::log::LARGEST;
use levee_system::{host, soak};
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_label_of_which_everything_is_hostile_costs_no_other_label_anything() {
    let found = soak::run(Duration::from_secs(20));
    println!("{found:#?}");
    assert!(found.ends > 3, "the twins were at work: {}", found.ends);
    assert!(found.pages.values().all(|pages| *pages > 3), "{:?}", found.pages);
    assert_eq!(found.lost, Vec::<String>::new());
    assert!(found.grown(MOST).is_empty(), "{:?}", found.grown(MOST));
    assert!(
        found.largest_log <= LARGEST,
        "a logger that is taken over fills the disk: {}",
        found.largest_log
    );
    assert!(!found.alarms.is_empty(), "and the operator is told");
}

#[test]
fn a_program_that_panics_and_unwinds_nothing_leaves_no_server_no_namespace_and_no_directory() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_panics"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start it");
    let pid = child.id();
    let mut out = String::new();
    child.stdout.take().expect("its output").read_to_string(&mut out).expect("read it");
    let done = child.wait_with_output().expect("wait for it");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.signal(), Some(6), "it aborted: {out}{said}");
    assert!(said.contains("the server runs: ") && !said.contains("the server runs: 0"), "{said}");
    let warden = out.lines().find_map(|line| line.trim().parse::<u32>().ok()).expect("the warden's number");
    assert_eq!(host::Process::find(warden), None);
    assert_eq!(host::below(warden), []);
    let left = |directory: &Path, name: String| {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&name)).count()
    };
    assert_eq!(left("/run/netns".as_ref(), format!("lv{}panic", pid % 10_000)), 0);
    assert_eq!(left(&std::env::temp_dir(), format!("levee-test-{pid}-")), 0);
}
