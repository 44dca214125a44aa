//! `levee up`, `levee down`, `levee plan`: start and stop a warden.

use crate::output::fail;
use crate::plan::Planned;
use crate::programs::Use;
use crate::running::{Running, must_be_root, only_run, signal};
use crate::typed::{ask, line};
use levee_ipc::warden::layer::KEYS_UID;
use levee_policy::site::Assurance;
use levee_policy::{LabelName, Range, Site};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// How long a server may take to end its sessions and compartments.
const PATIENCE: Duration = Duration::from_secs(30);

/// Start a server, or a workstation's or a gateway's part
///
/// A server's host is looked at first, as `levee doctor` does, and one label is started on trial; of a workstation, `levee-tpe doctor` says
/// what it lacks.
#[derive(Debug, clap::Args)]
pub struct Up {
    /// The site file (with --workstation or --gateway: the directory made by `levee enrol`)
    #[arg(value_name = "SITE")]
    config: PathBuf,
    /// Be a workstation instead of a server
    #[arg(long)]
    workstation: bool,
    /// Be the gateway in front of a server, at which the second tunnel ends
    #[arg(long, conflicts_with = "workstation")]
    gateway: bool,
    /// Where keys, credentials, sessions, audit log, logs and stores are kept [default: /var/lib/levee/NAME]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Where sockets and lock are made [default: /run/levee/NAME]
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Stay in the foreground, where the warden's own lines go to standard error as well; what the other processes say is in their
    /// logs (`levee log`) alone. No label is started on trial: `levee service test` starts one
    #[arg(long)]
    foreground: bool,
    /// Do not wait until one label has been started on trial
    #[arg(long, conflicts_with = "foreground")]
    no_trial: bool,
    /// Read the passphrase of encrypted private keys from the first line of this file; `-` is standard input. Without it the
    /// passphrase is asked for on the terminal, where a key is encrypted
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
}

/// Stop a server, or a workstation's part: nothing passes any more, nothing is left running
///
/// A server's sessions stay in its store. Each comes back if the server is up again, and its workstation with it, within the site's
/// `grace`; the time between counts. `levee session end` ends one for good.
#[derive(Debug, clap::Args)]
pub struct Down {
    /// Its run directory [default: the only one below /run/levee]
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
}

/// Print, step by step, how the compartment of a label would be started
#[derive(Debug, clap::Args)]
pub struct Plan {
    /// The site file
    site: PathBuf,
    /// The label
    label: String,
    /// Where keys, credentials, sessions, audit log and stores are kept [default: /var/lib/levee/NAME]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is started.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Server,
    Workstation,
    Gateway,
}

impl What {
    /// Whether its bundle is.
    fn is_whole(self, bundle: &Path) -> Result<(), String> {
        match self {
            Self::Server => Ok(()),
            Self::Workstation => crate::bundle::of_a_workstation(bundle),
            Self::Gateway => crate::bundle::of_a_gateway(bundle),
        }
    }

    /// The file of its bundle, and what its name ends in; a server has none, and is called as the site is.
    fn bundle(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Server => None,
            Self::Workstation => Some(("workstation.toml", "-ws")),
            Self::Gateway => Some(("gateway.toml", "-gw")),
        }
    }

    /// What its host does with levee's programs.
    fn host(self) -> Use {
        match self {
            Self::Server => Use::Server,
            Self::Workstation => Use::Workstation,
            Self::Gateway => Use::Any,
        }
    }

    /// How the warden is told.
    fn flag(self) -> &'static str {
        match self {
            Self::Server => "--server",
            Self::Workstation => "--workstation",
            Self::Gateway => "--gateway",
        }
    }
}

/// The site's name, to find the default directories; the warden checks the rest.
fn name_of(config: &Path, what: What) -> Result<String, String> {
    let bundle = what.bundle();
    if bundle.is_none() && config.is_dir() {
        return Err(no_site_file(config));
    }
    let file = bundle.map_or_else(|| config.to_owned(), |(file, _)| config.join(file));
    let text = fs::read_to_string(&file).map_err(|e| match bundle {
        Some(_) => format!(
            "{}: {e}; the bundle is the directory that `levee enrol` made for this host",
            file.display()
        ),
        None => format!("{}: {e}", file.display()),
    })?;
    let value: toml::Table = text.parse().map_err(|e| format!("{}: {e}", file.display()))?;
    let site = value.get("site");
    let name = if bundle.is_some() { site } else { site.and_then(|site| site.get("name")) };
    let name = name.and_then(toml::Value::as_str).unwrap_or_default();
    let valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || !name.bytes().all(valid) {
        return Err(format!("{}: it gives the site no valid name; `levee check` says more", file.display()));
    }
    Ok(format!("{name}{}", bundle.map_or("", |(_, end)| end)))
}

/// Whose it must be what root starts by.
const ROOT: u32 = 0;
/// Where the second tunnel's keys are, in a bundle and in a server's state.
const SECOND: &str = "layer";

/// That nobody but root can change a directory, or put another in its place; of one that is not there yet, that where it will be.
fn held(directory: &Path) -> Result<(), String> {
    directory
        .ancestors()
        .find(|above| above.exists())
        .map_or(Ok(()), |there| crate::programs::alone(there, ROOT).map(drop))
}

/// The same of a directory with keys, and of all that is in it: whose a key is, is whose identity it is. The second tunnel's keys are another
/// uid's, which has nothing else: `second` is the name of what has them in it.
fn held_whole(directory: &Path, whose: u32, second: Option<&str>) -> Result<(), String> {
    // Where a link leads, if it is one.
    let directory = crate::programs::alone(directory, whose)?;
    let at = |e: std::io::Error| format!("{}: {e}", directory.display());
    for entry in fs::read_dir(&directory).map_err(at)? {
        let entry = entry.map_err(at)?;
        let whose = if second.is_some_and(|name| entry.file_name() == name) { KEYS_UID } else { whose };
        if entry.file_type().map_err(at)?.is_dir() {
            held_whole(&entry.path(), whose, None)?;
        } else {
            crate::programs::alone(&entry.path(), whose)?;
        }
    }
    Ok(())
}

/// That nobody but root can change what this goes by; of the site file, which many keep elsewhere, it is said who can.
fn held_all((config, what): (&Path, What), state: &Path, run: &Path) -> Result<(), String> {
    for directory in [state, run] {
        held(directory)?;
    }
    if what != What::Server {
        held_whole(config, ROOT, Some(SECOND))?;
    } else {
        let kept = [
            ("authority", ROOT, None),
            ("server", ROOT, None),
            (SECOND, KEYS_UID, None),
            ("gateway", ROOT, Some(SECOND)),
        ];
        for (keys, whose, second) in kept {
            let keys = state.join(keys);
            if keys.is_dir() {
                held_whole(&keys, whose, second)?;
            }
        }
        if let Err(why) = crate::programs::alone(config, ROOT) {
            eprintln!(
                "levee: warning: {}; whoever can decides who may have which sessions",
                crate::output::shown(&why)
            );
        }
    }
    Ok(())
}

/// The passphrase of the private keys in a directory; none where none of them is encrypted and no file is given.
fn passphrase(file: Option<&Path>, keys: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
    if let Some(path) = file {
        let read = match path.to_str() {
            Some("-") => line(std::io::stdin().lock()),
            _ => File::open(path).map_err(|e| e.to_string()).and_then(|file| line(BufReader::new(file))),
        };
        return read.map(Some).map_err(|e| format!("{}: {e}", path.display()));
    }
    let encrypted = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "key")
            && fs::read(path).is_ok_and(|text| crate::enrol::pki::is_encrypted(&text))
    };
    let files = fs::read_dir(keys).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let Some(key) = files.into_iter().find(encrypted) else { return Ok(None) };
    if !std::io::stdin().is_terminal() {
        return Err(format!("{} is encrypted: give its passphrase with --passphrase-file", key.display()));
    }
    ask(&format!("Passphrase of the keys in {}: ", keys.display())).map(Some)
}

/// A pipe that has this text in it and nobody at its other end: no longer than a pipe's buffer, so that nobody waits.
fn filled(text: &[u8]) -> Result<Stdio, String> {
    let fault = |e: &dyn std::fmt::Display| format!("handing over the passphrase: {e}");
    let (out, mut into) = std::io::pipe().map_err(|e| fault(&e))?;
    into.write_all(text).map_err(|e| fault(&e))?;
    Ok(out.into())
}

/// The label that is started on trial: the lowest at which somebody may have a session, and none that boots a kernel for it if there is another.
fn to_try(config: &Path) -> Option<LabelName> {
    let site = crate::site::read(config).ok()?;
    let pairs = site.users().flat_map(|user| site.hosts().map(move |host| (user.name(), host.name())));
    let ranges: Vec<Range> = pairs.filter_map(|(user, host)| site.session_range(user, host)).collect();
    let lowest = ranges.iter().map(Range::low).filter(|label| !site.reachable(label).is_empty());
    let label = lowest.min_by_key(|label| site.isolation().has_own_kernel(label))?;
    site.label_name(label)
}

/// Says which of the kernel's tables one label could take half of: that two labels together take it all is then a matter of wanting it.
fn warn_of_pools(site: &levee_policy::Site, file: &Path) {
    let Some((_, pools)) = crate::pools::of(site) else { return };
    for pool in pools.iter().filter(|pool| pool.is_one_labels()) {
        eprintln!(
            "levee: warning: one label alone could take {} of this machine's {} {}: {}, or lower its limits \
             (`levee doctor {}` shows all)",
            pool.one,
            pool.host,
            pool.what,
            pool.raise,
            file.display()
        );
    }
}

impl Up {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        match self.start() {
            Ok(code) => code,
            Err(e) => fail(e),
        }
    }

    fn what(&self) -> What {
        match (self.workstation, self.gateway) {
            (false, false) => What::Server,
            (true, _) => What::Workstation,
            (false, true) => What::Gateway,
        }
    }

    fn start(self) -> Result<ExitCode, String> {
        must_be_root()?;
        let what = self.what();
        let is_server = what == What::Server;
        let name = name_of(&self.config, what)?;
        // What runs later has another working directory.
        let absolute =
            |path: PathBuf| std::path::absolute(&path).map_err(|e| format!("{}: {e}", path.display()));
        let state = absolute(self.state.unwrap_or_else(|| crate::site::state_of(&name)))?;
        let run = absolute(self.run.unwrap_or_else(|| Path::new(crate::site::RUNS).join(&name)))?;
        if let Ok(running) = Running::of(&run) {
            return Err(runs_already(&name, &running, &run));
        }
        held_all((&self.config, what), &state, &run)?;
        let programs = crate::programs::directory()?;
        let checked = crate::programs::check(&programs, what.host())?;
        // Read once: what is looked at here is what the warden has to find there.
        let text = if is_server { Some(crate::site::text(&self.config)?) } else { None };
        let held = text
            .as_ref()
            .map(|text| may_serve((text, &self.config), &state, &programs, checked.is_some()))
            .transpose()?;
        let to_try = if is_server && !self.no_trial { to_try(&self.config) } else { None };
        let mut warden = Command::new(programs.join("levee-warden"));
        warden
            .arg(what.flag())
            .arg(fs::canonicalize(&self.config).map_err(|e| format!("{}: {e}", self.config.display()))?)
            .arg("--state")
            .arg(&state)
            .arg("--run")
            .arg(&run)
            .arg("--programs")
            .arg(&programs);
        if let (Some(text), Some(held)) = (&text, &held) {
            // A state that becomes another's meanwhile is no more to be used than another site file.
            let both = [text.as_bytes(), held.as_bytes()].concat();
            let digest = ring::digest::digest(&ring::digest::SHA256, &both);
            warden.args(["--checked", &levee_policy::audit::hex(digest.as_ref())]);
        }
        what.is_whole(&self.config)?;
        let keys = if is_server { state.join("server") } else { self.config.clone() };
        let passphrase = passphrase(self.passphrase_file.as_deref(), &keys)?;
        if passphrase.is_some() {
            warden.arg("--passphrase");
        }
        if let Ok(why) = fs::read_to_string(state.join("ended-by-itself")) {
            let why: String = why.trim_end().chars().take(1_024).collect();
            eprintln!("levee: the last run ended by itself: {}", crate::output::shown(&why));
        }
        if self.foreground {
            if let Some(passphrase) = &passphrase {
                warden.stdin(filled(passphrase)?);
            }
            return Err(format!("{}: {}", programs.join("levee-warden").display(), warden.exec()));
        }
        warden.arg("--background");
        warden.stdin(passphrase.as_ref().map_or_else(|| Ok(Stdio::null()), |text| filled(text))?);
        warden.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = warden.spawn().map_err(|e| format!("levee-warden: {e}"))?;
        // With it goes our end of the pipe.
        drop((warden, passphrase));
        let said = child.stderr.take().map(|error| std::thread::spawn(move || beginning(error)));
        if is_server && !Path::new(PROGRAMS).is_dir() {
            // Nothing depends on whether anybody reads it.
            let _ = crate::output::said(FIRST);
        }
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            // Ends when the warden does.
            BufReader::new(out).read_line(&mut line).map_err(|e| e.to_string())?;
        }
        let log = log_of(&state);
        if line.trim() == "ready" {
            return is_up(&name, run, to_try.as_ref(), &log);
        }
        let _ = child.wait();
        let said = said.and_then(|thread| thread.join().ok()).unwrap_or_default();
        Err(format!("{name} does not start:\n{}\n`{log}` shows what its processes said", said.trim_end()))
    }
}

/// What is said of a directory in a site file's place.
fn no_site_file(directory: &Path) -> String {
    let path = directory.display();
    let of =
        [("workstation.toml", "a workstation", "--workstation"), ("gateway.toml", "a gateway", "--gateway")];
    match of.iter().find(|(file, ..)| directory.join(file).exists()) {
        Some((_, whose, flag)) => format!("{path} is the bundle of {whose}: levee up {flag} {path}"),
        None => format!(
            "{path} is a directory, and no site file; a workstation's bundle is started by levee up --workstation DIR"
        ),
    }
}

/// What is said where it runs.
fn runs_already(name: &str, running: &Running, run: &Path) -> String {
    let changed = if running.is_changed(run) {
        format!("; {}", running.not_read())
    } else {
        "; `levee reload` has it go on with new keys, `levee down` stops it".to_owned()
    };
    format!("{name} runs already{changed}")
}

/// The command that shows what the processes of this state say.
fn log_of(state: &Path) -> String {
    match crate::running::only_with(Path::new(crate::site::STATES), "logs") {
        Ok(only) if only == state => "levee log".to_owned(),
        _ => format!("levee log --state {}", state.display()),
    }
}

/// Where images of services' programs are kept.
const PROGRAMS: &str = "/var/cache/levee/programs";

const FIRST: &str = "making an image of the programs that the site's services need: some seconds, and again after packages of the \
                     host have changed\n";

/// What a warden says while it starts, as far as anybody would read it; the rest is taken, so that it need not wait.
fn beginning(mut error: impl Read) -> String {
    let mut said = Vec::new();
    // What could not be read is not shown.
    let _ = error.by_ref().take(64 << 10).read_to_end(&mut said);
    let _ = std::io::copy(&mut error, &mut std::io::sink());
    String::from_utf8_lossy(&said).into_owned()
}

impl Down {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        match self.stop() {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => fail(e),
        }
    }

    fn stop(self) -> Result<(), String> {
        must_be_root()?;
        let run = self.run.map_or_else(only_run, Ok)?;
        let (file, pid) = signal(&run, Signal::TERM)?;
        let until = Instant::now() + PATIENCE;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() > until {
                return Err(format!("process {} has not ended within {PATIENCE:?}", pid.as_raw_nonzero()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        for name in ["control", "tpe.sock", "lock"] {
            let _ = fs::remove_file(run.join(name));
        }
        Ok(())
    }
}

impl Plan {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let run = || -> Result<ExitCode, String> {
            if !self.site.exists() {
                return Err(format!(
                    "there is no {}; the site file comes first: levee plan SITE LABEL",
                    self.site.display()
                ));
            }
            let name = name_of(&self.site, What::Server)?;
            let state = self.state.unwrap_or_else(|| crate::site::state_of(&name));
            let state = std::path::absolute(&state).map_err(|e| format!("{}: {e}", state.display()))?;
            let programs = crate::programs::directory()?;
            let mut plan = Command::new(programs.join("levee-plan"));
            plan.arg(&self.label).arg("--server").arg(&self.site).arg("--state").arg(&state);
            plan.arg("--run").arg(Path::new(crate::site::RUNS).join(&name)).arg("--programs").arg(&programs);
            let planned = plan.stderr(Stdio::piped()).output().map_err(|e| format!("levee-plan: {e}"))?;
            if !planned.status.success() {
                return Err(String::from_utf8_lossy(&planned.stderr).trim_end().to_owned());
            }
            let text = String::from_utf8_lossy(&planned.stdout);
            if self.json {
                crate::output::json(&Planned::read(&text)?)?;
            } else {
                crate::output::print(&text)?;
            }
            Ok(ExitCode::SUCCESS)
        };
        crate::output::exit(run())
    }
}

/// Whether a server of this site may run on this host, with these keys and programs; `held` says that the programs are those of a manifest.
/// Answers what the state is held to, which is nothing where there is none.
fn may_serve(
    (text, file): (&str, &Path),
    state: &Path,
    programs: &Path,
    held: bool,
) -> Result<String, String> {
    let mut kept = String::new();
    // A site file with problems is the warden's to tell of.
    if let Ok(site) = Site::parse(text) {
        if state.is_dir() {
            kept = crate::pin::hold(&site, state).map_err(|why| crate::site::named(&why, file))?;
            for unfit in crate::keys::findings(&site, state).unfit {
                eprintln!("levee: warning: {}: {}; {}", unfit.file.display(), unfit.what, unfit.remedy);
            }
            if let Some(why) = crate::keys::auditors_key(state) {
                eprintln!("levee: warning: {why}");
            }
        }
        if let Some(unfit) = crate::roots::unfit(&site).first() {
            return Err(format!("{}: {}; {}", unfit.file.display(), unfit.what, unfit.remedy));
        }
        if let Some(line) = crate::layers::lines(&site, state, programs).iter().find(|line| line.refuses()) {
            return Err(format!(
                "the site claims two layers, and they are one by their {}: {} (`levee check` shows every requirement)",
                line.part, line.evidence
            ));
        }
        if !held && site.isolation().assurance() == Assurance::High {
            let path = programs.join(crate::programs::MANIFEST);
            return Err(format!(
                "the site wants high assurance, and there is no {} to hold levee's programs to: install levee (`make install`, or its packages), and run \
                 the one that is installed",
                path.display()
            ));
        }
        if ["authority/ca.pem", "server/chain.pem", "server/tls.key"]
            .iter()
            .all(|key| !state.join(key).exists())
        {
            let named = state != crate::site::state_of(site.name().as_str());
            return Err(crate::keys::none_yet(file, state, named));
        }
        for missing in crate::check::missing_programs(&site) {
            eprintln!("levee: warning: {}", crate::output::shown(&missing));
        }
        warn_of_pools(&site, file);
    }
    crate::doctor::fit()?;
    Ok(kept)
}

/// Tells that it is up, when the label that is tried has started; stops it otherwise.
fn is_up(name: &str, run: PathBuf, to_try: Option<&LabelName>, log: &str) -> Result<ExitCode, String> {
    let tried = match to_try {
        Some(label) => format!("; {label} was started on trial"),
        None => String::new(),
    };
    if let Some(label) = to_try
        && let Err(why) = crate::operator::try_label(&run, label)
    {
        // What cannot serve does not stay, and nothing is hidden behind «is up».
        let stopped = match (Down { run: Some(run) }).stop() {
            Ok(()) => "is stopped again".to_owned(),
            Err(e) => format!("cannot serve, and cannot be stopped ({e})"),
        };
        return Err(format!(
            "{name} {stopped}: {label} was started on trial, and does not start: {}\n\
             `{log}` shows what its processes said; with --no-trial the server stays up all the same",
            crate::output::shown(&why)
        ));
    }
    // It is up, whether or not anybody reads of it.
    let _ = crate::output::said(&format!("{name} is up{tried}; `{log}` shows what it says\n"));
    Ok(ExitCode::SUCCESS)
}
