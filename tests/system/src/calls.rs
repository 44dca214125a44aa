//! Which system calls levee's processes make once they are under their filters, by strace(1), which follows every process and writes a
//! file for each. It is told apart from what they do before by their own call that loads the filter.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

/// What the kernel's filters are called in `conf/seccomp`, and the calls that were made under each.
pub type Seen = BTreeMap<String, BTreeSet<String>>;

/// The command that has wardens recorded ([`crate::World::start_by`]): beside its parent's children, not between them.
pub fn recorder(directory: &Path) -> Vec<String> {
    let to = directory.join("trace").display().to_string();
    ["strace", "-D", "-f", "-ff", "-qq", "-e", "signal=none", "-s", "40", "-o", &to].map(str::to_owned).into()
}

/// What a process is while it makes a call.
#[derive(Clone, Debug, Default)]
struct State {
    /// Which program runs, with what tells its kinds apart.
    program: Option<String>,
    /// It is a fork of the process that executed the program.
    forked: bool,
    /// Filters that were loaded since.
    filters: Vec<String>,
}

impl State {
    fn executes(path: &str, line: &str) -> Self {
        let name = path.rsplit('/').next().unwrap_or_default();
        let stack = name == "levee-witness" || (name == "levee-vault" && line.contains("\"--stack\""));
        let agent = name == "levee-tpe" && line.contains("\"agent\"");
        let program = name.strip_prefix("levee-").map(|name| match name {
            _ if stack => "stack",
            _ if agent => "agent",
            name => name,
        });
        Self { program: program.map(str::to_owned), ..Self::default() }
    }

    /// The filter that this program loads now.
    fn loads(&mut self) {
        let filter = match (self.program.as_deref(), self.forked) {
            (Some("tps"), true) => "tps-child",
            // Who reads what a program writes to its terminal.
            (Some("tpe"), true) => "screen",
            // Who takes connections of commands, and who hears one.
            (Some("agent"), true) if self.filters.is_empty() => "acceptor",
            (Some("agent"), true) => "connection",
            (Some("agent"), false) => "tpe",
            (Some(program), _) => program,
            (None, _) => return,
        };
        self.filters.push(filter.to_owned());
    }

    /// Whether forks are followed: not in a compartment, where process numbers are others.
    fn is_followed(&self) -> bool {
        self.program.as_deref().is_some_and(|program| program != "init")
    }
}

/// The calls in what was recorded in `directory`.
pub fn seen(directory: &Path) -> Seen {
    let files = fs::read_dir(directory).expect("what was recorded").flatten().filter_map(|file| {
        let pid: u32 = file.path().extension()?.to_str()?.parse().ok()?;
        Some((pid, String::from_utf8_lossy(&fs::read(file.path()).ok()?).into_owned()))
    });
    let mut files: HashMap<u32, String> = files.collect();
    let mut states: HashMap<u32, State> = HashMap::new();
    let children: BTreeSet<u32> = files.values().flat_map(|text| text.lines().filter_map(forked)).collect();
    let mut next: Vec<u32> = files.keys().copied().filter(|pid| !children.contains(pid)).collect();
    let mut seen = Seen::new();
    loop {
        // Of those whose numbers seem to be somebody's children and whose parents say nothing of it, any.
        let Some(pid) = next.pop().or_else(|| files.keys().min().copied()) else { return seen };
        let Some(text) = files.remove(&pid) else { continue };
        let mut state = states.remove(&pid).unwrap_or_default();
        for line in text.lines() {
            for filter in &state.filters {
                let call = line.split('(').next().unwrap_or_default();
                if !call.is_empty() && call.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
                    seen.entry(filter.clone()).or_default().insert(call.to_owned());
                }
            }
            if let Some(path) = executed(line) {
                state = State::executes(path, line);
            } else if line.ends_with(" = 0") && LOADS.iter().any(|load| line.starts_with(load)) {
                state.loads();
            } else if let Some(child) = forked(line).filter(|_| state.is_followed()) {
                let thread = line.contains("CLONE_THREAD");
                let forked = state.forked || !thread;
                states.insert(child, State { forked, ..state.clone() });
                next.push(child);
            }
        }
    }
}

/// How a filter is loaded.
const LOADS: [&str; 2] = ["seccomp(SECCOMP_SET_MODE_FILTER", "prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER"];

/// The program that this line says is executed from now on.
fn executed(line: &str) -> Option<&str> {
    line.strip_prefix("execve(\"").filter(|_| line.ends_with(" = 0"))?.split('"').next()
}

/// The child that this line says is there.
fn forked(line: &str) -> Option<u32> {
    let forks = ["clone(", "clone3(", "fork(", "vfork("].iter().any(|call| line.starts_with(call));
    forks.then(|| line.rsplit_once(" = ")?.1.parse().ok())?
}
