//! What operators do within a label: put a file into its store, run a program there. Both are recorded first, and neither takes
//! anything with it but what was said.

use levee_system::{Stalled, World, eventually, programs, text};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
/// O_NONBLOCK, fcntl(2).
const NONBLOCK: i32 = 0o4000;
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//NATO,MED";

/// A service that brings an interpreter.
const SERVICES: &str = r#"
[[service]]
name = "shell"
port = 8000
protocol = "tcp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "direct"
software = ["python3"]
command = ["/bin/sh", "-c", "exec sleep 1"]
"#;

fn exec(world: &World, label: &str, argv: &[&str]) -> levee_system::Done {
    world.levee(&[&["exec", label, "--run", &text(&world.path("run")), "--"], argv].concat())
}

fn put(world: &World, label: &str, file: &str, path: &str) -> levee_system::Done {
    world.levee(&["put", label, file, path, "--run", &text(&world.path("run"))])
}

/// The number of the label's process 1, if it runs.
fn init(world: &World) -> Option<String> {
    let status = world.status();
    let all = status["compartments"].as_array().expect("compartments");
    all.iter().find(|one| one["label"] == HIGH).map(|one| one["init"].to_string())
}

fn audit(world: &World) -> String {
    world.levee(&["audit", "show", "--state", &text(&world.path("state"))]).ok()
}

#[test]
fn an_operator_puts_a_file_into_a_labels_store_and_runs_programs_there_and_both_are_recorded() {
    let world = World::up("entering", &format!("{SITE}{SERVICES}"), &["ws1"]);
    let page = world.path("page");
    fs::write(&page, "from the operator\n").unwrap();
    // Nobody has a session: the label is started for it.
    assert!(put(&world, HIGH, &text(&page), "news/today.html").ok().contains("18 bytes"));
    world.login("ws1", "ada").ok();
    world.level("ws1", HIGH).ok();
    let fetched = world.fetch("ws1", "http://www.harbour.example/own/news/today.html");
    assert_eq!(fetched.ok(), "from the operator\n");
    // A label is understood in any case.
    put(&world, &HIGH.to_lowercase(), &text(&page), "news/typed.html").ok();
    assert!(
        exec(&world, &HIGH.to_lowercase(), &["/usr/bin/python3", "-c", "print('typed')"])
            .ok()
            .contains("typed")
    );
    let state = text(&world.path("state"));
    assert!(world.levee(&["log", &HIGH.to_lowercase(), "--state", &state]).ok().contains("typed"));
    // At no other label.
    world.level("ws1", LOW).ok();
    world.fetch("ws1", "http://www.harbour.example/own/news/today.html").refused();

    let python = |program: &str| exec(&world, HIGH, &["/usr/bin/python3", "-c", program]);
    let said = python("print(open('/srv/own/news/today.html').read(), end='')").ok();
    assert_eq!(said, "from the operator\n");
    // It is what a service is there: no root, nothing to read, nothing of the host's, its exit status told.
    let who = "import os,sys
print(os.getuid() != 0, sys.stdin.read() == '', sorted(os.listdir('/proc/self/fd')) if os.path.exists('/proc/self') else 'no proc')
print('\\x1b]0;title\\x07')
sys.exit(7)";
    let done = python(who);
    assert_eq!(done.status, 7, "{}{}", done.out, done.err);
    assert!(done.out.starts_with("True True no proc\n"), "{}", done.out);
    assert!(!done.out.contains('\x1b') && done.out.contains("title"), "{:?}", done.out);
    let missing = exec(&world, HIGH, &["/usr/bin/no-such-program"]).refused();
    assert!(missing.contains("`software` of a service brings more"), "{missing}");
    let unknown = exec(&world, &HIGH.replace("SEC", "SECC"), &["/usr/bin/python3"]).refused();
    assert!(unknown.contains("did you mean"), "{unknown}");
    assert!(put(&world, HIGH, &text(&page), "../page").refused().contains("names with slashes"));

    // A label's own program has made a link of a directory: nothing is written where it leads.
    python("import os; os.symlink('/tmp', '/srv/own/link')").ok();
    put(&world, HIGH, &text(&page), "link/page").refused();
    assert!(python("import os; print(os.path.exists('/tmp/page'))").ok().contains("False"));

    let log = audit(&world);
    let recorded = |action: &str, object: &str| {
        log.lines().any(|line| line.contains(action) && line.contains(object) && line.contains(HIGH))
    };
    assert!(recorded("put", "news/today.html, 18 bytes, SHA-256"), "{log}");
    assert!(recorded("exec", "/usr/bin/no-such-program"), "{log}");
}

#[test]
fn a_label_stays_while_a_program_runs_for_an_operator_and_goes_when_it_has_ended() {
    let world = World::up("staying", &format!("{SITE}{SERVICES}"), &["ws1"]);
    let runs = || init(&world).is_some();
    // Longer than a label lingers that nobody needs.
    exec(&world, HIGH, &["/usr/bin/python3", "-c", "import time; time.sleep(14)"]).ok();
    eventually(Duration::from_secs(30), "the label has gone", || !runs());
}

/// An operator's command that runs, until it is killed or dropped.
struct Running(Child);

impl Running {
    fn python(world: &World, program: &str) -> Self {
        let mut command = Command::new(programs().join("levee"));
        command.args(["exec", HIGH, "--run"]).arg(world.path("run")).arg("--state").arg(world.path("state"));
        command.args(["--", "/usr/bin/python3", "-c", program]).stdout(Stdio::piped());
        Self(command.spawn().expect("levee exec"))
    }

    /// The lines that it prints, as they come.
    fn lines(&mut self) -> impl Iterator<Item = String> {
        let out = BufReader::new(self.0.stdout.take().expect("its output"));
        out.lines().map(|line| line.expect("text"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn operators_at_one_label_see_their_own_programs_words_and_a_program_ends_with_its_operator() {
    let world = World::up("operators", &format!("{SITE}{SERVICES}"), &["ws1"]);
    let speaks = |word: &str| {
        format!("import time\nfor n in range(6):\n  print('{word}', flush=True)\n  time.sleep(0.3)")
    };
    let mut both = ["one", "other"].map(|word| (word, Running::python(&world, &speaks(word))));
    for (word, running) in &mut both {
        let said: Vec<String> = running.lines().collect();
        assert_eq!(said, vec![word.to_owned(); 6]);
    }
    // What a program leaves running is not heard in the next one's place.
    let leaves = "import os, time\nprint('begun', flush=True)\nif os.fork(): os._exit(0)\nos.setsid()\nwhile True:\n  print('ghost', flush=True)\n  time.sleep(0.1)";
    assert!(exec(&world, HIGH, &["/usr/bin/python3", "-c", leaves]).ok().starts_with("begun\n"));
    for _ in 0..2 {
        let waits = "import time\ntime.sleep(1)\nprint('alone', flush=True)";
        assert_eq!(exec(&world, HIGH, &["/usr/bin/python3", "-c", waits]).ok(), "alone\n");
    }
    // As many as there may be, none of which would end.
    let stuck = "import time\nprint('here', flush=True)\nwhile True: time.sleep(1)";
    let mut all = [(); 4].map(|()| Running::python(&world, stuck));
    for one in &mut all {
        assert_eq!(one.lines().next().as_deref(), Some("here"));
    }
    let another = || exec(&world, HIGH, &["/usr/bin/python3", "-c", "print('well')"]);
    assert!(another().refused().contains("4 programs run for operators at this label already"));
    // Interrupted, as a terminal does it, or killed.
    for (one, signal) in all.iter().zip(["INT", "TERM", "KILL", "HUP"]) {
        let pid = one.0.id().to_string();
        levee_system::sh("kill", &[&format!("-{signal}"), &pid]).ok();
    }
    eventually(Duration::from_secs(20), "there is room again", || another().status == 0);
}

#[test]
fn a_program_of_an_operators_begins_with_nothing_but_what_a_service_has() {
    let world = World::up("beginning", &format!("{SITE}{SERVICES}"), &["ws1"]);
    let shows = "import os, signal, stat
def kind(fd):
    try: mode = os.fstat(fd).st_mode
    except OSError: return None
    return 'device' if stat.S_ISCHR(mode) else 'pipe' if stat.S_ISFIFO(mode) else 'other'
print([(fd, kind(fd)) for fd in range(256) if kind(fd)])
print(sorted(name for name in os.environ if name != 'LC_CTYPE'))
print(os.getcwd(), oct(os.umask(0)), os.getgroups(), os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid())
print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), [os.isatty(fd) for fd in range(3)])
print(os.stat('/dev/null').st_dev == os.fstat(0).st_dev, os.get_inheritable(1))";
    let said = exec(&world, HIGH, &["/usr/bin/python3", "-c", shows]).ok();
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said[0], "[(0, 'device'), (1, 'pipe'), (2, 'pipe')]", "{said:#?}");
    assert_eq!(said[1], "[]", "{said:#?}");
    assert_eq!(said[2], "/ 0o22 [] True True", "{said:#?}");
    assert_eq!(said[3], "[] [False, False, False]", "{said:#?}");
    assert!(said[4].starts_with("True"), "{said:#?}");
}

#[test]
fn a_label_that_is_long_about_its_end_keeps_no_other_waiting() {
    let world = World::up("stalled", &format!("{SITE}{SERVICES}"), &["ws1"]);
    // It stays when the operator's program has ended, and writes.
    let writes = "import os, time
if os.fork(): os._exit(0)
os.setsid()
while True:
  with open('/srv/own/file', 'w') as file: file.write('x')
  time.sleep(0.01)";
    exec(&world, HIGH, &["/usr/bin/python3", "-c", writes]).ok();
    let stalled = Stalled::store(&init(&world).expect("it runs"));
    let runs = || init(&world).is_some();
    eventually(Duration::from_secs(40), "the label is told to end", || !runs());
    assert!(stalled.is_there());
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    assert!(world.fetch("ws1", "http://www.harbour.example/").ok().contains(LOW));
    assert!(stalled.is_there(), "it has ended, so that this shows nothing");
    // What a warden says that has waited for it.
    let said = fs::read_to_string(world.log("server")).expect("the server's log");
    assert!(!said.contains("did not end within"), "{said}");
    drop(stalled);
    // It runs again once it is gone.
    exec(&world, HIGH, &["/usr/bin/python3", "-c", "pass"]).ok();
}

#[test]
fn a_store_that_an_operator_has_open_still_keeps_its_own_label_waiting_and_no_other() {
    let world = World::up("held", &format!("{SITE}{SERVICES}"), &["ws1"]);
    exec(&world, HIGH, &["/usr/bin/python3", "-c", "pass"]).ok();
    // As a command does that is stopped in the middle (Ctrl-Z), or somebody's shell.
    let init = || init(&world);
    let open = fs::File::open(format!("/proc/{}/root/srv/own", init().expect("it runs"))).expect("its store");
    eventually(Duration::from_secs(40), "the label has ended", || init().is_none());
    let mut wanted = Running::python(&world, "print('well')");
    let begun = |log: &str| log.matches("print(").count() == 1;
    eventually(Duration::from_secs(30), "it is wanted again", || begun(&audit(&world)));
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    assert!(world.fetch("ws1", "http://www.harbour.example/").ok().contains(LOW));
    drop(open);
    assert_eq!(wanted.lines().collect::<Vec<_>>(), ["well"]);
}

#[test]
fn a_put_leaves_nothing_where_the_store_is_full_or_it_is_killed() {
    let world = World::up("full", &format!("{SITE}{SERVICES}"), &["ws1"]);
    let listed = || {
        let lists = "import os\nfor at, _, names in os.walk('/srv/own'):\n  for name in names: print('file', os.path.join(at, name))";
        let said = exec(&world, HIGH, &["/usr/bin/python3", "-c", lists]).ok();
        said.lines().filter(|line| line.starts_with("file")).map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let (small, large) = (world.path("small"), world.path("large"));
    fs::write(&small, "small\n").unwrap();
    // More than any label's store has.
    let file = fs::File::create(&large).unwrap();
    file.set_len(256 << 20).unwrap();
    put(&world, HIGH, &text(&small), "page").ok();
    let why = put(&world, HIGH, &text(&large), "page").refused();
    assert!(why.contains("No space") || why.contains("large"), "{why}");
    let files = |names: &[&str]| names.iter().map(|name| format!("file /srv/own/{name}")).collect();
    assert_eq!(listed(), files(&["page"]));
    put(&world, HIGH, &text(&small), "other").ok();
    // Killed while it writes: what it reads has not come to its end.
    let slow = world.path("slow");
    levee_system::sh("mkfifo", &[&text(&slow)]).ok();
    let mut command = Command::new(programs().join("levee"));
    command.args(["put", HIGH]).arg(&slow).args(["third", "--run"]).arg(world.path("run"));
    let mut running = command.spawn().expect("levee put");
    let mut fed = Feeding::begin(&slow);
    fed.feed();
    drop(fed);
    // Again, once it is recorded.
    eventually(Duration::from_secs(30), "it is recorded", || audit(&world).contains("third, "));
    let mut fed = Feeding::begin(&slow);
    fed.feed();
    running.kill().expect("levee put");
    running.wait().expect("levee put");
    drop(fed);
    assert_eq!(listed(), files(&["other", "page"]));
    // As one is left that was killed when its file had a second name: the next put anywhere in the store removes it.
    let leaves = "open('/srv/own/.levee-put-4194305', 'w').close()";
    exec(&world, HIGH, &["/usr/bin/python3", "-c", leaves]).ok();
    assert_eq!(listed(), files(&[".levee-put-4194305", "other", "page"]));
    put(&world, HIGH, &text(&small), "other").ok();
    put(&world, HIGH, &text(&small), "in/page").ok();
    assert_eq!(listed(), files(&["in/page", "other", "page"]));
}

/// Who writes into a pipe with a name that somebody reads.
struct Feeding(fs::File);

impl Feeding {
    fn begin(path: &Path) -> Self {
        let mut opened = None;
        eventually(Duration::from_secs(30), "somebody reads", || {
            opened = fs::OpenOptions::new().write(true).custom_flags(NONBLOCK).open(path).ok();
            opened.is_some()
        });
        Self(opened.expect("the pipe"))
    }

    /// Has half a MiB read, but for what the pipe holds.
    fn feed(&mut self) {
        let mut left = 8;
        eventually(Duration::from_secs(30), "it is read", || {
            // What does not fit is tried again: a pipe takes so much whole, or in part.
            while left > 0 && self.0.write(&[7; 64 << 10]).is_ok() {
                left -= 1;
            }
            left == 0
        });
    }
}
