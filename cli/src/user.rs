//! `levee user`: passwords, each as an argon2id hash in a file of its own, apart from the site file.
//!
//! `STATE/sessiond/credentials/USER` has one line, a PHC string. sessiond reads it, and writes it anew when
//! the person changes the password over the trusted path.

use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use argon2::password_hash::{PasswordHasher, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use data_encoding::BASE32_NOPAD;
use levee_ipc::operator::{self, Answer};
use levee_policy::{Site, UserName, nearest};
use levee_sys::lock::Lock;
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use crate::enrol::files::{self, Mode};
use crate::operator::Which;
use crate::typed::{ask, line};
use crate::{output, site};

/// Passwords are of so many bytes, here as over the trusted path.
const LENGTH: std::ops::RangeInclusive<usize> = 8..=256;

/// Give people of the site passwords
#[derive(Debug, clap::Args)]
pub struct User {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Give a person of the site file a first password
    ///
    /// It is asked for at a terminal, without echo; elsewhere it is the first line of standard input.
    Add(Password),
    /// Replace a person's password
    ///
    /// The new one is asked for at a terminal, without echo; elsewhere it is the first line of standard input.
    Passwd(Password),
    /// Make the seed of the codes that a person shows beside their password (TOTP), and show it, once
    Totp(Totp),
    /// Cut a person off: their sessions end at once, and they cannot sign on until they are enabled, restarts or not
    Disable(Person),
    /// Let a person sign on again
    Enable(Person),
}

/// Asked of the running server.
#[derive(Debug, clap::Args)]
struct Person {
    /// The person, as the site file names them
    user: String,
    /// More than that is not understood, and is told so
    #[arg(hide = true)]
    more: Vec<String>,
    #[command(flatten)]
    which: Which,
}

/// The seed is printed as an otpauth:// address, which programs that show codes take; at a terminal as a picture for a camera, too.
#[derive(Debug, clap::Args)]
struct Totp {
    #[command(flatten)]
    of: Args,
    /// Make another one where there is one: what shows codes by that is of no use any more
    #[arg(long)]
    replace: bool,
}

impl Totp {
    fn make(&self) -> Result<ExitCode, String> {
        let site = site::read(&self.of.site)?;
        let name = self.of.known(&site)?;
        let directory = site::state(self.of.state.as_deref(), site.name()).join("sessiond/second-factors");
        let file = directory.join(name.as_str());
        if file.exists() && !self.replace {
            return Err(format!("`{name}` has a seed; --replace makes another"));
        }
        // RFC 4226 4, R6: 160 bits are recommended.
        let mut seed = Zeroizing::new([0u8; 20]);
        SystemRandom::new().fill(&mut *seed).map_err(|_| "no random bytes".to_owned())?;
        let seed = Zeroizing::new(BASE32_NOPAD.encode(&*seed));
        let line = Zeroizing::new(format!("totp {}\n", *seed));
        write(&directory, &name, line.as_bytes(), self.replace)
            .map_err(|e| format!("{}: {e}", file.display()))?;
        let recorded = self.of.record(&site, &name)?;
        let place = site.name();
        let address =
            Zeroizing::new(format!("otpauth://totp/{place}:{name}?secret={}&issuer={place}", *seed));
        output::print(&format!("{}\n", *address))?;
        if io::stdout().is_terminal() {
            let picture = QrCode::new(address.as_bytes()).map_err(|e| e.to_string())?;
            output::print(&format!("{}\n", picture.render::<Dense1x2>().build()))?;
        }
        output::print(&format!("{name}: this is shown once{recorded}\n"))?;
        if site.user(&name).and_then(|user| user.second_factor()).is_none() {
            output::print(&format!(
                "{name} is asked for no code before the site file says second-factor = \"totp\"\n"
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Person {
    fn set(&self, disable: bool) -> Result<ExitCode, String> {
        if let Some(last) = self.more.last() {
            let word = if disable { "disable" } else { "enable" };
            return Err(format!(
                "`levee user {word}` asks the running server, which knows its site, and takes the person alone: levee user {word} {}",
                output::shown(last)
            ));
        }
        let name = UserName::new(&self.user).map_err(|e| format!("{}: {e}", output::shown(&self.user)))?;
        match self.which.ask(&operator::Command::Disable(name.clone(), disable))? {
            Answer::Ended if disable => {
                output::said(&format!("{name}: disabled, and no session of theirs is left\n"))?
            }
            Answer::Ended => output::said(&format!("{name}: enabled\n"))?,
            Answer::Failed(why) => return Ok(output::refused(&why)),
            _ => return Err("the server answered another question".to_owned()),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// How long a change waits for sessiond, which puts a password there that somebody has chosen, or for another operator's.
const OTHERS: Duration = Duration::from_secs(5);

/// Whose password, and where it comes from.
#[derive(Debug, clap::Args)]
struct Password {
    #[command(flatten)]
    of: Args,
    /// Read the password from the first line of standard input, also at a terminal
    #[arg(long)]
    password_stdin: bool,
}

/// Who is meant, and of which site.
#[derive(Debug, clap::Args)]
struct Args {
    /// The site file
    site: PathBuf,
    /// The person, as the site file names them
    user: String,
    /// The state directory [default: /var/lib/levee/SITE]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The run directory of the server, which records the change [default: /run/levee/SITE]
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
}

impl User {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(match &self.command {
            Command::Add(args) => args.set(false),
            Command::Passwd(args) => args.set(true),
            Command::Totp(totp) => totp.make(),
            Command::Disable(person) => person.set(true),
            Command::Enable(person) => person.set(false),
        })
    }
}

impl Password {
    fn set(&self, replace: bool) -> Result<ExitCode, String> {
        let of = &self.of;
        let site = site::read(&of.site)?;
        let name = of.known(&site)?;
        let directory = site::state(of.state.as_deref(), site.name()).join("sessiond/credentials");
        let file = directory.join(name.as_str());
        match (replace, file.exists()) {
            (false, true) => {
                return Err(format!("`{name}` has a password; `levee user passwd` replaces it"));
            }
            (true, false) => {
                return Err(format!("`{name}` has no password; `levee user add` gives a first one"));
            }
            _ => {}
        }
        let password = password(&name, self.password_stdin)?;
        store(&directory, &name, &password, replace).map_err(|e| format!("{}: {e}", file.display()))?;
        let recorded = of.record(&site, &name)?;
        let done = if replace { "replaced" } else { "set" };
        output::said(&format!("{name}: password {done}{recorded}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Args {
    /// Has the running server record the change; one that does not run does so when it starts.
    fn record(&self, site: &Site, name: &UserName) -> Result<&'static str, String> {
        let run = self.run.clone().unwrap_or_else(|| Path::new(crate::site::RUNS).join(site.name().as_str()));
        let which = Which { run: Some(run) };
        if !which.runs() {
            return Ok("");
        }
        match which.ask(&operator::Command::Changed(name.clone()))? {
            Answer::Ended => Ok("; the audit log says so"),
            Answer::Failed(why) => Err(why),
            _ => Err("the server answered another question".to_owned()),
        }
    }

    /// The person, if the site file names them.
    fn known(&self, site: &Site) -> Result<UserName, String> {
        if let Some(name) = UserName::new(&self.user).ok().filter(|name| site.user(name).is_some()) {
            return Ok(name);
        }
        let remedy = match nearest(&self.user, site.users().map(|user| user.name().as_str())) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "declare it under [[user]] with a clearance first".to_owned(),
        };
        Err(format!("{} has no user `{}`; {remedy}", self.site.display(), output::shown(&self.user)))
    }
}

fn store(directory: &Path, name: &UserName, password: &[u8], replace: bool) -> io::Result<()> {
    let line = Zeroizing::new(format!("{}\n", hash(password)?.as_str()));
    write(directory, name, line.as_bytes(), replace)
}

/// A person's file in a directory of sessiond's.
fn write(directory: &Path, name: &UserName, content: &[u8], replace: bool) -> io::Result<()> {
    files::directory(directory)?;
    // sessiond, which puts there what people have chosen, does so under this lock, and only in the place of what it has looked at.
    let lock = Lock::within(directory, OTHERS)?;
    let _lock = lock.ok_or_else(|| io::Error::other(held(Lock::holder(directory))))?;
    files::write(&directory.join(name.as_str()), content, Mode::Private, replace)?;
    // While levee is up the directory is sessiond's, under a uid of its own; at the next start all in it is
    // given to sessiond again.
    let owner = std::fs::metadata(directory)?;
    std::os::unix::fs::lchown(directory.join(name.as_str()), Some(owner.uid()), Some(owner.gid()))
}

/// Why nothing was changed. sessiond, taken over, could keep the lock for as long as it lives.
fn held(holder: Option<u32>) -> String {
    let what = "changing credentials there";
    let Some(process) = holder else { return format!("something else is {what}") };
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let name = output::shown(name.trim());
    format!(
        "process {process} ({name}) is {what}: if it does not end that, kill it (levee starts its own anew)"
    )
}

fn hash(password: &[u8]) -> io::Result<Zeroizing<String>> {
    let mut bytes = [0u8; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("no random bytes"))?;
    let salt = SaltString::encode_b64(&bytes).map_err(|e| io::Error::other(e.to_string()))?;
    // The crate's own parameters, which are the least that OWASP gives: 19 MiB, 2 passes, 1 lane.
    let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::DEFAULT);
    argon
        .hash_password(password, &salt)
        .map(|hash| Zeroizing::new(hash.to_string()))
        .map_err(|e| io::Error::other(e.to_string()))
}

fn password(name: &UserName, from_input: bool) -> Result<Zeroizing<Vec<u8>>, String> {
    let stdin = io::stdin();
    let password = if stdin.is_terminal() && !from_input {
        let once = ask(&format!("Password for {name}: "))?;
        if *once != *ask("The same again: ")? {
            return Err("the two are not the same".to_owned());
        }
        once
    } else {
        line(stdin.lock())?
    };
    if !LENGTH.contains(&password.len()) {
        return Err(format!("a password has {} to {} bytes", LENGTH.start(), LENGTH.end()));
    }
    Ok(password)
}

#[cfg(test)]
mod tests {
    use super::*;
    use argon2::password_hash::{PasswordHash, PasswordVerifier};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_password_is_stored_as_a_salted_argon2id_hash_that_only_its_owner_can_read() {
        let directory = tempfile::tempdir().unwrap();
        let (ada, mia) = (UserName::new("ada").unwrap(), UserName::new("mia").unwrap());
        store(directory.path(), &ada, b"correct horse", false).unwrap();
        store(directory.path(), &mia, b"correct horse", false).unwrap();
        let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap();
        assert_ne!(read("ada"), read("mia"), "equal passwords must not have equal files");
        let text = read("ada");
        assert!(text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$") && text.ends_with('\n'), "{text}");
        let parsed = PasswordHash::new(text.trim_end()).unwrap();
        assert!(Argon2::default().verify_password(b"correct horse", &parsed).is_ok());
        assert!(Argon2::default().verify_password(b"correct house", &parsed).is_err());
        let mode = std::fs::metadata(directory.path().join("ada")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }

    #[test]
    fn whoever_keeps_the_lock_is_named_and_nothing_is_changed() {
        let directory = tempfile::tempdir().unwrap();
        let ada = UserName::new("ada").unwrap();
        let held = Lock::at(directory.path()).unwrap();
        let why = store(directory.path(), &ada, b"correct horse", false).unwrap_err().to_string();
        assert!(why.starts_with(&format!("process {} (", std::process::id())), "{why}");
        assert!(!directory.path().join("ada").exists());
        drop(held);
        store(directory.path(), &ada, b"correct horse", false).unwrap();
    }

    #[test]
    fn a_first_password_never_replaces_one() {
        let directory = tempfile::tempdir().unwrap();
        let ada = UserName::new("ada").unwrap();
        store(directory.path(), &ada, b"correct horse", false).unwrap();
        let before = std::fs::read(directory.path().join("ada")).unwrap();
        assert!(store(directory.path(), &ada, b"another one", false).is_err());
        assert_eq!(std::fs::read(directory.path().join("ada")).unwrap(), before);
        store(directory.path(), &ada, b"another one", true).unwrap();
        assert_ne!(std::fs::read(directory.path().join("ada")).unwrap(), before);
    }
}
