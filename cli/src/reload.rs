//! `levee reload`: have what runs go on with the keys that it has now and read the authority's revocation list anew, and say what it reads.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::Signal;
use time::OffsetDateTime;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;

use crate::bundle;
use crate::output::{self, count};
use crate::running::{self, Running};

/// Have a running server, or a workstation's part, go on with new keys, and read the authority's revocation list anew: whoever it names is cut
///
/// It says what it read. A server goes on with keys that were rotated or enrolled anew at once; nobody loses a session. A workstation whose bundle was enrolled anew goes on with the new keys and certificates once nobody is signed
/// on there; a gateway's, at once. Nothing else is read anew: a changed site file counts from the next `levee down` and `levee up`.
///
/// Exit status 0: what there is has been read. 1: the site file has changed, which is not read anew, and nothing else is new. 2: it could not be done.
#[derive(Debug, clap::Args)]
pub struct Reload {
    /// Its run directory [default: the only one below /run/levee]
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
}

impl Reload {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let reload = || -> Result<ExitCode, String> {
            running::must_be_root()?;
            let run = self.run.map_or_else(running::only_run, Ok)?;
            let running = Running::of(&run)?;
            let is_bundle = running.config.is_dir();
            let keys = running.new_keys(&run);
            let rotated = running.has_rotated();
            let changed = running.is_changed(&run);
            // What somebody most probably came for is said first.
            if changed {
                eprintln!("levee: warning: {}", output::shown(&running.not_read()));
            }
            let servers = running.list.with_file_name("federation-ca.crl");
            let of_servers = (!is_bundle && servers.exists()).then(|| told(&servers)).transpose()?;
            // Nobody need have been revoked: then there is no list.
            let read = if running.list.exists() { told(&running.list)? } else { String::new() };
            let nothing =
                read.is_empty() && of_servers.is_none() && keys.is_empty() && !rotated && !is_bundle;
            let gateway = is_bundle && running.config.join("gateway.toml").exists();
            let whole = match (is_bundle, gateway) {
                (_, true) => bundle::of_a_gateway(&running.config),
                (true, false) => bundle::of_a_workstation(&running.config),
                (false, false) => Ok(()),
            };
            whole.map_err(|why| {
                format!("{why}; nothing is read anew, and what runs goes on with what it has")
            })?;
            let read = read + of_servers.as_deref().unwrap_or_default();
            running::signal(&run, Signal::USR1)?;
            output::said(&read)?;
            if nothing {
                output::said(&nothing_new(&running.list, changed))?;
            }
            for path in keys {
                output::said(&format!(
                    "{}: newer than the start; the server goes on with the key that it has now (`levee status` says so if it cannot use it)\n",
                    path.display()
                ))?;
            }
            if is_bundle {
                let path = running.config.display();
                let when = if gateway { "from now on" } else { "as soon as nobody is signed on" };
                output::said(&format!(
                    "{path}: if it was enrolled anew, its keys and certificates count {when}\n"
                ))?;
            }
            Ok(if changed && nothing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
        };
        output::exit(reload())
    }
}

/// What is said where nothing is there that could be read anew.
fn nothing_new(list: &Path, changed: bool) -> String {
    let else_ = if changed { "nothing else" } else { "nothing" };
    format!(
        "{else_} is new: no key is newer than the start, and no certificate has been revoked (there is no {})\n",
        list.display()
    )
}

/// What a revocation list says, or why it says nothing.
fn told(path: &Path) -> Result<String, String> {
    let fault = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let pem = fs::read(path).map_err(|e| fault(&e))?;
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
    fn where_there_is_no_list_that_is_no_fault_and_nobody_is_told_to_revoke() {
        let place = tempfile::tempdir().unwrap();
        let said = nothing_new(&place.path().join("ca.crl"), false);
        assert!(said.starts_with("nothing is new") && !said.contains("enrol"), "{said}");
        assert!(nothing_new(&place.path().join("ca.crl"), true).starts_with("nothing else is new"));
        fs::write(place.path().join("ca.crl"), "x").unwrap();
        assert!(told(&place.path().join("ca.crl")).unwrap_err().contains("no revocation list"));
    }
}
