//! What runs on this host: which server or workstation is meant where nobody says, what it was started with, and telling it something.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Said where no run directory is found.
const NOTHING: &str =
    "nothing runs here; `levee up SITE-FILE` starts a server (if it was given --run, say so here too)";

/// The run directory that is meant when none is given: the only one with a lock.
pub fn only_run() -> Result<PathBuf, String> {
    only_with(Path::new(crate::site::RUNS), "lock")
}

/// The only run directory below `runs` that has this file.
pub fn only_with(runs: &Path, file: &str) -> Result<PathBuf, String> {
    let entries = match fs::read_dir(runs) {
        Ok(entries) => entries,
        // Made by the first `levee up`.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(NOTHING.to_owned()),
        Err(e) => return Err(format!("{}: {e}; say which with --run", runs.display())),
    };
    let mut found: Vec<PathBuf> =
        entries.filter_map(Result::ok).map(|e| e.path()).filter(|path| path.join(file).exists()).collect();
    found.sort();
    match found.as_slice() {
        [] => Err(NOTHING.to_owned()),
        [one] => Ok(one.clone()),
        several => {
            let names: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            Err(format!("several run here; say which with --run: {}", names.join(", ")))
        }
    }
}

/// What is said of a run directory in which something else runs than a server; none where nothing does.
pub fn no_server(run: &Path) -> Option<String> {
    let running = Running::of(run).ok()?;
    let at = run.display();
    let is = |file: &str| running.config.join(file).is_file();
    match () {
        () if is("workstation.toml") => Some(format!(
            "a workstation's part runs in {at}, and no server: `levee-tpe status` shows what it has"
        )),
        () if is("gateway.toml") => {
            Some(format!("a gateway's part runs in {at}, and no server: `levee log` shows what it says"))
        }
        () => None,
    }
}

/// The run directory of the only server below `runs`; where there is none, what runs there instead.
pub fn only_server(runs: &Path, control: &str) -> Result<PathBuf, String> {
    only_with(runs, control).map_err(|nothing| {
        let entries = fs::read_dir(runs).into_iter().flatten().flatten();
        let instead = entries.map(|entry| entry.path()).find_map(|run| no_server(&run));
        instead.filter(|_| nothing == NOTHING).unwrap_or(nothing)
    })
}

/// What stands for the keys of a server, below its state directory.
const KEYS: [&str; 8] = [
    "authority/ca.pem",
    "server/chain.pem",
    "server/ike-chain.pem",
    "server/audit.pub",
    "server/federation-chain.pem",
    "server/federation-authority.pem",
    "layer/chain.pem",
    "layer/authority.pem",
];

/// What a warden was started with.
pub struct Running {
    /// The site file, or a workstation's bundle, or a gateway's.
    pub config: PathBuf,
    /// The revocation list that it reads.
    pub list: PathBuf,
}

impl Running {
    /// What runs with this run directory.
    pub fn of(run: &Path) -> Result<Self, String> {
        let nothing = || format!("nothing runs in {}", run.display());
        let pid = fs::read_to_string(run.join("lock")).map_err(|_| nothing())?;
        let line = fs::read(format!("/proc/{}/cmdline", pid.trim())).map_err(|_| nothing())?;
        Self::read(&line).ok_or_else(nothing)
    }

    /// What is said of a site file that has changed.
    pub fn not_read(&self) -> String {
        format!(
            "{} has changed since the start and is not read anew: `levee down`, then `levee up`",
            self.config.display()
        )
    }

    /// From a command line as /proc has it.
    fn read(line: &[u8]) -> Option<Self> {
        let words: Vec<&str> =
            line.split(|byte| *byte == 0).map(std::str::from_utf8).collect::<Result<_, _>>().ok()?;
        let after = |flag: &str| {
            let at = words.iter().position(|word| *word == flag)?;
            words.get(at + 1).map(PathBuf::from)
        };
        if let Some(bundle) = after("--workstation").or_else(|| after("--gateway")) {
            return Some(Self { list: bundle.join("ca.crl"), config: bundle });
        }
        Some(Self { config: after("--server")?, list: after("--state")?.join("authority/ca.crl") })
    }

    /// A server's state directory.
    pub fn state(&self) -> Option<&Path> {
        self.list.parent().and_then(Path::parent).filter(|_| self.config.is_file())
    }

    /// A server's public halves that are newer than its start.
    pub fn new_keys(&self, run: &Path) -> Vec<PathBuf> {
        let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
        let Some(state) = self.state() else { return Vec::new() };
        let started = changed(&run.join("lock"));
        let ppks = state.join("server/ppk");
        let channels = state.join("channels");
        let places = [ppks.clone(), ppks.join("former"), channels.clone(), channels.join("next")];
        let ppks = places.iter().flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten());
        let all = KEYS.iter().map(|file| state.join(file)).chain(ppks.map(|entry| entry.path()));
        all.filter(|path| path.is_file() && changed(path) > started).collect()
    }

    /// Whether a key was rotated that the server has not told its audit log of.
    pub fn has_rotated(&self) -> bool {
        let all = self.state().and_then(|state| fs::read_dir(state.join("rotated")).ok());
        all.is_some_and(|mut all| all.next().is_some())
    }

    /// Whether the site file is newer than the server.
    pub fn is_changed(&self, run: &Path) -> bool {
        let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
        self.config.is_file() && changed(&self.config) > changed(&run.join("lock"))
    }
}

/// What root alone can do.
pub fn must_be_root() -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err("this needs root, to make namespaces and give each process its own uid: run it with sudo. \
         `levee doctor` shows what else this host has and lacks"
        .to_owned())
}

/// Sends a signal to the warden that runs in a directory; its lock, and its number.
pub fn signal(run: &Path, signal: Signal) -> Result<(File, Pid), String> {
    let path = run.join("lock");
    let at = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let file = File::open(&path).map_err(|_| format!("nothing runs in {}", run.display()))?;
    let pid = fs::read_to_string(&path).map_err(|e| at(&e))?;
    let pid = pid.trim().parse().ok().and_then(Pid::from_raw).ok_or_else(|| at(&"it names no process"))?;
    // Opened before the lock is tried: if the lock is held then, this is the process that holds it.
    let warden = pidfd_open(pid, PidfdFlags::empty());
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        return Err(format!("nothing runs in {}", run.display()));
    }
    let warden = warden.map_err(|e| at(&e))?;
    pidfd_send_signal(&warden, signal).map_err(|e| at(&e))?;
    Ok((file, pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_run_directory_is_meant_and_where_it_is_not_the_only_one_they_are_named() {
        let place = tempfile::tempdir().unwrap();
        let found = || only_with(place.path(), "lock");
        assert_eq!(only_with(&place.path().join("none"), "lock").unwrap_err(), NOTHING);
        assert_eq!(found().unwrap_err(), NOTHING);
        fs::create_dir(place.path().join("harbour")).unwrap();
        assert_eq!(found().unwrap_err(), NOTHING, "a directory in which nothing ever ran");
        fs::write(place.path().join("harbour/lock"), "1").unwrap();
        assert_eq!(found().unwrap(), place.path().join("harbour"));
        fs::create_dir(place.path().join("fleet")).unwrap();
        fs::write(place.path().join("fleet/lock"), "2").unwrap();
        let said = found().unwrap_err();
        assert!(said.contains("--run") && said.contains("/fleet, ") && said.ends_with("/harbour"), "{said}");
    }

    #[test]
    fn where_a_workstations_part_runs_who_asks_for_a_server_is_told_whom_to_ask() {
        let place = tempfile::tempdir().unwrap();
        let (bundle, run) = (place.path().join("bundle"), place.path().join("run/quay-ws"));
        fs::create_dir_all(&bundle).unwrap();
        fs::create_dir_all(&run).unwrap();
        let found = || only_server(run.parent().unwrap(), "control").unwrap_err();
        assert_eq!(found(), NOTHING);
        // It has the words of a warden; what it is does not matter.
        let mut part = std::process::Command::new("sh");
        part.args(["-c", "read end", "levee-warden", "--workstation"]).arg(&bundle);
        let mut part = part.stdin(std::process::Stdio::piped()).spawn().unwrap();
        fs::write(run.join("lock"), part.id().to_string()).unwrap();
        for (file, remedy) in [("workstation.toml", "`levee-tpe status`"), ("gateway.toml", "`levee log`")] {
            fs::write(bundle.join(file), "").unwrap();
            // Its words are there a moment after it has begun.
            let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
            while !found().contains(remedy) && std::time::Instant::now() < until {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            assert!(found().contains(remedy), "{}", found());
            fs::remove_file(bundle.join(file)).unwrap();
        }
        assert_eq!(found(), NOTHING);
        part.kill().unwrap();
        part.wait().unwrap();
    }

    #[test]
    fn what_runs_is_known_by_its_command_line() {
        let server =
            Running::read(b"/usr/lib/levee/levee-warden\0--server\0/etc/a.toml\0--state\0/s\0--run\0/r\0")
                .unwrap();
        assert_eq!((server.config, server.list), ("/etc/a.toml".into(), "/s/authority/ca.crl".into()));
        let workstation = Running::read(b"levee-warden\0--workstation\0/b\0--state\0/s\0").unwrap();
        assert_eq!(workstation.list, PathBuf::from("/b/ca.crl"));
        let gateway = Running::read(b"levee-warden\0--gateway\0/g\0--state\0/s\0").unwrap();
        assert_eq!(gateway.config, PathBuf::from("/g"));
        assert!(Running::read(b"sleep\x0010\x00").is_none() && Running::read(b"").is_none());
    }
}
