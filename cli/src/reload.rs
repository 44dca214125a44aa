//! `levee reload`: have what runs go on with the keys that it has now and read the authority's revocation list anew, and say what it reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::Signal;
use time::OffsetDateTime;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::output::{self, count};
use crate::{running, up};

/// Have a running server, or a workstation's part, go on with new keys, and read the authority's revocation list anew: whoever it names is cut
///
/// It says what it read. A server goes on with keys that were rotated or enrolled anew at once; nobody loses a session. A workstation whose bundle was enrolled anew goes on with the new keys and certificates once nobody is signed
/// on there. Nothing else is read anew: a changed site file counts from the next `levee down` and `levee up`.
#[derive(Debug, clap::Args)]
pub struct Reload {
    /// Its run directory [default: the only one below /run/levee]
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
}

impl Reload {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let reload = || -> Result<(), String> {
            up::must_be_root()?;
            let run = self.run.map_or_else(running::only_run, Ok)?;
            let running = Running::of(&run)?;
            let bundle = running.config.is_dir();
            let keys = running.new_keys(&run);
            let rotated = running.has_rotated();
            let servers = running.list.with_file_name("federation-ca.crl");
            let of_servers = (!bundle && servers.exists()).then(|| told(&servers)).transpose()?;
            let read = match told(&running.list) {
                // A bundle need not have one, and new keys are reason enough.
                Err(_)
                    if (bundle || rotated || !keys.is_empty() || of_servers.is_some())
                        && !running.list.exists() =>
                {
                    String::new()
                }
                Err(nothing) if running.is_changed(&run) => {
                    return Err(format!("{nothing}. {}", running.not_read()));
                }
                read => read?,
            };
            let read = read + of_servers.as_deref().unwrap_or_default();
            up::signal(&run, Signal::USR1)?;
            output::said(&read)?;
            for path in keys {
                output::said(&format!(
                    "{}: newer than the start; the server goes on with the key that it has now (`levee status` says so if it cannot use it)\n",
                    path.display()
                ))?;
            }
            if bundle {
                let path = running.config.display();
                output::said(&format!(
                    "{path}: if it was enrolled anew, its keys and certificates count as soon as nobody is signed on\n"
                ))?;
            }
            if running.is_changed(&run) {
                output::said(&format!("{}\n", running.not_read()))?;
            }
            Ok(())
        };
        reload().map_or_else(up::fail, |()| ExitCode::SUCCESS)
    }
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
    /// The site file, or a workstation's bundle.
    pub config: PathBuf,
    /// The revocation list that it reads.
    list: PathBuf,
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
    fn not_read(&self) -> String {
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
        if let Some(bundle) = after("--workstation") {
            return Some(Self { list: bundle.join("ca.crl"), config: bundle });
        }
        Some(Self { config: after("--server")?, list: after("--state")?.join("authority/ca.crl") })
    }

    /// A server's state directory.
    pub fn state(&self) -> Option<&Path> {
        self.list.parent().and_then(Path::parent).filter(|_| self.config.is_file())
    }

    /// A server's public halves that are newer than its start.
    fn new_keys(&self, run: &Path) -> Vec<PathBuf> {
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
    fn has_rotated(&self) -> bool {
        let all = self.state().and_then(|state| fs::read_dir(state.join("rotated")).ok());
        all.is_some_and(|mut all| all.next().is_some())
    }

    /// Whether the site file is newer than the server.
    pub fn is_changed(&self, run: &Path) -> bool {
        let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
        self.config.is_file() && changed(&self.config) > changed(&run.join("lock"))
    }
}

/// What a revocation list says, or why it says nothing.
fn told(path: &Path) -> Result<String, String> {
    let fault = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let pem = fs::read(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            format!(
                "there is no {}, so that there is nothing to read anew: `levee enrol revoke` makes it",
                path.display()
            )
        }
        _ => fault(&e),
    })?;
    let (_, pem) = parse_x509_pem(&pem).map_err(|_| fault(&"it is no revocation list"))?;
    let (_, list) =
        CertificateRevocationList::from_der(&pem.contents).map_err(|_| fault(&"it is no revocation list"))?;
    let until = list
        .next_update()
        .map(|time| time.to_datetime())
        .ok_or_else(|| fault(&"it does not say how long it is good"))?;
    if until <= OffsetDateTime::now_utc() {
        return Err(fault(&format!(
            "it was good until {}: `levee enrol revoke` makes it anew",
            until.date()
        )));
    }
    let number = count(list.iter_revoked_certificates().count(), "certificate is", "certificates are");
    Ok(format!("{}: {number} revoked; it is good until {}\n", path.display(), until.date()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_is_known_by_its_command_line() {
        let server =
            Running::read(b"/usr/lib/levee/levee-warden\0--server\0/etc/a.toml\0--state\0/s\0--run\0/r\0")
                .unwrap();
        assert_eq!((server.config, server.list), ("/etc/a.toml".into(), "/s/authority/ca.crl".into()));
        let workstation = Running::read(b"levee-warden\0--workstation\0/b\0--state\0/s\0").unwrap();
        assert_eq!(workstation.list, PathBuf::from("/b/ca.crl"));
        assert!(Running::read(b"sleep\x0010\x00").is_none() && Running::read(b"").is_none());
    }

    #[test]
    fn where_there_is_no_list_nothing_is_done_and_that_is_said() {
        let place = tempfile::tempdir().unwrap();
        let said = told(&place.path().join("ca.crl")).unwrap_err();
        assert!(said.contains("nothing to read anew"), "{said}");
        fs::write(place.path().join("ca.crl"), "x").unwrap();
        assert!(told(&place.path().join("ca.crl")).unwrap_err().contains("no revocation list"));
    }
}
