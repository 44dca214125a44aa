//! `levee audit`: what the log says, and whether it is the log that was written.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use levee_policy::audit::{
    Action, AuditKey, Body, Checkpoint, Event, Hex, PPK, Record, Report, Sealer, Verdict, Verifier,
    part_first, ppk_used,
};
use levee_policy::site::Curve;
use levee_policy::{HostName, LabelName, PpkId, UserName};

use crate::enrol::files::{self, Mode};
use crate::enrol::pki;
use crate::enrolment::asked as passphrase_of;
use crate::instants::{instant, since};
use crate::operator;
use crate::output::{self, Paint, shown};

mod first_key;
mod read;
mod signers;

use read::{Log, fault, parts, small};
use signers::Signers;

/// Read the audit log, and prove that it is the one that was written
#[derive(Debug, clap::Args)]
pub struct Audit {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Verify(Verify),
    Show(Show),
    Key(Key),
}

/// Make the auditor's key pair, on a machine of theirs: FILE, and FILE.pub for `levee enrol auditor --public`
#[derive(Debug, clap::Args)]
struct Key {
    /// Where the private key goes
    file: PathBuf,
    /// Encrypt it with a passphrase, which is asked for on the terminal or is the first line of standard input
    #[arg(long)]
    passphrase: bool,
}

/// Which log.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Which {
    /// The log's files, oldest first [default: those of the state directory]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The site's state directory [default: the only one below /var/lib/levee]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// Find altered, missing, moved and cut-off records, and say what is proved
///
/// Exit status 0: nothing was found wrong. 1: the log is not the one that was written. 2: it could not be read.
#[derive(Debug, clap::Args)]
struct Verify {
    #[command(flatten)]
    which: Which,
    /// The signer's public key, in PEM, and those that followed it when it was rotated [default: server/audit.pub of the state directory]
    #[arg(long, value_name = "FILE")]
    signer: Option<PathBuf>,
    /// The auditor's private key: with it seals are checked, too. One that is encrypted takes its passphrase from the terminal or the
    /// first line of standard input
    #[arg(long, value_name = "FILE")]
    auditor: Option<PathBuf>,
    /// The log's first key, sealed for the auditor [default: sessiond/audit.first-key of the state directory]
    #[arg(long, value_name = "FILE")]
    first_key: Option<PathBuf>,
    /// How many records there must be at least [default: as many as sessiond/audit.state says]
    #[arg(long, value_name = "N")]
    records: Option<u64>,
    /// Checkpoints of this log that were kept elsewhere: a file or the syslog that they were sent to, or the audit log of another server of the
    /// site; others' are left out
    #[arg(long, value_name = "FILE")]
    kept: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Print records, one a line, as far as they match
///
/// Exit status 0: there were some. 1: there was none, or a line is no record. 2: the log could not be read.
#[derive(Debug, clap::Args)]
struct Show {
    #[command(flatten)]
    which: Which,
    /// Only this person's
    #[arg(long)]
    user: Option<UserName>,
    /// Only from this workstation
    #[arg(long)]
    host: Option<HostName>,
    /// Only at this label, in any case and with its categories in any order
    #[arg(long)]
    label: Option<LabelName>,
    /// Only of this kind: sign-on, session, run, ...
    #[arg(long)]
    action: Option<String>,
    /// Only what went so
    #[arg(long)]
    verdict: Option<Went>,
    /// Only from then on: a time ago such as 90s, 10m, 2h, 7d, or a time such as 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = since)]
    since: Option<u64>,
    /// Only until then: as --since
    #[arg(long, value_name = "TIME", value_parser = since)]
    until: Option<u64>,
    /// Go on with what is written from now on, until interrupted
    #[arg(long, conflicts_with = "until")]
    follow: bool,
    /// Print each record as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Went {
    /// It was granted
    Granted,
    /// It was denied
    Denied,
    /// It was no decision
    Noted,
}

/// Shows all records of a kind.
///
/// # Errors
/// The log cannot be read.
pub(crate) fn history(
    action: &str,
    which: &Which,
    since: Option<u64>,
    json: bool,
) -> Result<ExitCode, String> {
    let (user, host, label, verdict, until) = (None, None, None, None, None);
    let (which, action) = (which.clone(), Some(action.to_owned()));
    Show { which, user, host, label, action, verdict, since, until, follow: false, json }.answer()
}

impl Audit {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(match self.command {
            Command::Verify(verify) => verify.answer(),
            Command::Show(show) => show.answer(),
            Command::Key(key) => key.make(),
        })
    }
}

/// The only directory below `all` in which a server has logged something.
fn only_site(all: &Path) -> Result<PathBuf, String> {
    let entries =
        std::fs::read_dir(all).map_err(|e| format!("{}: {e}; say which with --state", all.display()))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|state| state.join("sessiond/audit.jsonl").exists())
        .collect();
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(_), false) => {
            Err(format!("{} has logs of several sites; say which with --state", all.display()))
        }
        (None, _) if !rustix::process::geteuid().is_root() => {
            Err("only root can read the log of this host; run this with sudo, or name a file".to_owned())
        }
        (None, _) => Err(format!("{} has no log of any site; say which with --state", all.display())),
    }
}

impl Which {
    fn state(&self) -> Result<PathBuf, String> {
        if let Some(state) = self.state.clone().or_else(|| operator::Which { run: None }.state()) {
            return Ok(state);
        }
        only_site(Path::new(crate::site::STATES))
    }

    fn log(&self) -> Result<Log, String> {
        self.log_from(0)
    }

    /// The log from the file on that has the record of this number, or a later one.
    fn log_from(&self, next: u64) -> Result<Log, String> {
        if !self.files.is_empty() {
            return Log::open(self.files.clone());
        }
        let directory = self.state()?.join("sessiond");
        // A file that becomes full meanwhile gets another name, and another one its own.
        loop {
            let names = parts(&directory)?;
            let first = |path: &PathBuf| part_first(path.file_name()?.to_str()?);
            let read = names.iter().skip(1).take_while(|path| first(path).is_some_and(|first| first <= next));
            let log = Log::open(names.iter().skip(read.count()).cloned().collect())?;
            if parts(&directory)? == names {
                return Ok(log);
            }
        }
    }
}

/// Whether the log of this state directory says that a host has used this PPK.
///
/// # Errors
/// It cannot be read; in words.
pub fn has_ppk_used(state: &Path, host: &HostName, id: &PpkId) -> Result<bool, String> {
    let (which, wanted) = (Which { files: Vec::new(), state: Some(state.to_owned()) }, ppk_used(id));
    let mut found = false;
    which.log()?.read(|line| {
        if let Ok(Record { body: Body::Event(event), .. }) = serde_json::from_slice::<Record>(line) {
            found |= event.host.as_ref() == Some(host)
                && event.action == Action::Negotiate
                && event.object == PPK
                && event.verdict == Verdict::Noted
                && event.reason == wanted;
        }
        Ok(())
    })?;
    Ok(found)
}

impl Verify {
    fn answer(&self) -> Result<ExitCode, String> {
        let (log, report) = self.report()?;
        if self.json {
            output::json(&report)?;
        } else {
            output::print(&render(&log, &report, Paint::stdout()))?;
        }
        Ok(if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn report(&self) -> Result<(Log, Report), String> {
        let signer = match &self.signer {
            Some(file) => file.clone(),
            None if !self.which.files.is_empty() && self.which.state.is_none() => {
                return Err(
                    "say which key the checkpoints are signed with: --signer FILE, or --state DIR".to_owned()
                );
            }
            _ => self.which.state()?.join("server/audit.pub"),
        };
        let mut signers = Signers::read(&signer)?;
        // Before the log is read: it may grow meanwhile.
        let (first, records) = self.known()?;
        let mut verifier =
            Verifier::new(first, |message: &[u8], signature: &[u8]| signers.has_signed(message, signature));
        for file in &self.kept {
            keep(file, &mut verifier)?;
        }
        let mut log = self.which.log()?;
        log.read(|line| {
            verifier.line(line);
            Ok(())
        })?;
        Ok((log, verifier.finish(records)))
    }

    /// The first key and the number of records, as far as they are given or in the state directory.
    fn known(&self) -> Result<(Option<AuditKey>, Option<u64>), String> {
        let state = match (self.which.files.is_empty(), &self.which.state) {
            (false, None) => None,
            _ => Some(self.which.state()?.join("sessiond")),
        };
        let there = |name: &str| state.as_ref().map(|state| state.join(name)).filter(|path| path.exists());
        let first = match (&self.auditor, self.first_key.clone().or_else(|| there("audit.first-key"))) {
            (None, _) => None,
            (Some(auditor), Some(path)) => Some(first_key(auditor, &path)?),
            (Some(_), None) => return Err("say where the log's first key is: --first-key FILE".to_owned()),
        };
        let records = match (self.records, there("audit.state")) {
            (Some(records), _) => Some(records),
            (None, Some(path)) => {
                let saved = small(&path, Sealer::STATE as u64)?;
                Some(Sealer::restore(&saved).ok_or_else(|| fault(&path, &"not a state"))?.count())
            }
            (None, None) => None,
        };
        Ok((first, records))
    }
}

/// Takes the checkpoints in a file that are of this log's signer; there is one at least, or nothing would be checked.
fn keep<F: FnMut(&[u8], &[u8]) -> bool>(file: &Path, verifier: &mut Verifier<F>) -> Result<(), String> {
    let (mut found, mut own) = (0u64, 0u64);
    Log::open(vec![file.to_owned()])?.read(|line| {
        if let Some(checkpoint) = Checkpoint::in_line(&String::from_utf8_lossy(line)) {
            found += 1;
            own += u64::from(verifier.keep(&checkpoint));
        }
        Ok(())
    })?;
    match (own, found) {
        (0, 0) => Err(fault(file, &"there is no checkpoint in it")),
        (0, _) => Err(fault(file, &"no checkpoint in it is of this log's signer")),
        _ => Ok(()),
    }
}

/// The log's first key, which this auditor's private key opens.
fn first_key(auditor: &Path, sealed: &Path) -> Result<AuditKey, String> {
    let text = small(auditor, 64 << 10)?;
    let text = std::str::from_utf8(&text).map_err(|e| fault(auditor, &e))?;
    let passphrase = text.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----");
    let passphrase =
        passphrase.then(|| passphrase_of("Passphrase of the auditor's key: ", false)).transpose()?;
    let key = pki::read_key(text, passphrase.as_ref().map(|text| text.as_slice()));
    let key = key.map_err(|e| fault(auditor, &e))?;
    let sealed_text = small(sealed, 4096)?;
    let wrong = || fault(sealed, &"not a first key that was sealed for this auditor");
    let sealed_key = std::str::from_utf8(sealed_text.trim_ascii()).ok().map(str::to_owned);
    let Hex(sealed_key) = sealed_key.and_then(|text| Hex::try_from(text).ok()).ok_or_else(wrong)?;
    first_key::open(&key, &sealed_key).map(AuditKey::from_bytes).ok_or_else(wrong)
}

impl Key {
    fn make(&self) -> Result<ExitCode, String> {
        let passphrase =
            self.passphrase.then(|| passphrase_of("Passphrase of the key: ", true)).transpose()?;
        let key = pki::key(Curve::P384).map_err(|e| e.to_string())?;
        let passphrase = passphrase.as_ref().map(|text| (text.as_slice(), pki::ROUNDS));
        let text = pki::write_key(&key, passphrase).map_err(|e| e.to_string())?;
        let public = PathBuf::from(format!("{}.pub", self.file.display()));
        let write = |path: &Path, text: &str, mode| {
            files::write(path, text.as_bytes(), mode, false).map_err(|e| fault(path, &e))
        };
        write(&self.file, &text, Mode::Private)?;
        write(&public, &key.public_key_pem(), Mode::Public)?;
        output::said(&format!("{}\n{}\n", self.file.display(), public.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn render(log: &Log, report: &Report, paint: Paint) -> String {
    /// A log can have any number of faults; `--json` has them all.
    const SHOWN: usize = 100;
    let mut out = String::new();
    for fault in report.faults.iter().take(SHOWN) {
        let (path, line) = log.place(fault.line);
        let place = format!("{}:{line}", path.display());
        out.push_str(&format!("{} {}\n", paint.error(&format!("{}:", shown(&place))), shown(&fault.what)));
    }
    if report.faults.len() > SHOWN {
        out.push_str(&format!("and {} more\n", report.faults.len() - SHOWN));
    }
    for said in &report.statement {
        out.push_str(&format!("{}\n", shown(said)));
    }
    out
}

/// What has been printed.
#[derive(Clone, Copy, Default)]
struct Told {
    shown: u64,
    /// Lines that are no records.
    unread: u64,
    /// The number of the next record.
    next: u64,
    /// Whether any record was of the person who is asked for.
    of_user: bool,
}

/// How often a log that is followed is looked at.
const FOLLOW: Duration = Duration::from_millis(500);

/// False where nobody reads standard output any more.
fn flushed(done: std::io::Result<()>) -> Result<bool, String> {
    match done {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(format!("standard output: {e}")),
    }
}

impl Show {
    fn answer(&self) -> Result<ExitCode, String> {
        let paint = Paint::stdout();
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        let mut told = Told::default();
        let (mut next, mut seen) = (0, None);
        loop {
            let mut log = self.which.log_from(next)?;
            if log.may_have_grown(&mut seen) {
                log.read(|line| self.tell(line, next, &mut told, paint, &mut out))?;
            }
            // Whoever reads this has gone.
            if !flushed(out.flush())? {
                return Ok(ExitCode::SUCCESS);
            }
            if !self.follow {
                break;
            }
            next = told.next;
            std::thread::sleep(FOLLOW);
        }
        if told.unread > 0 {
            let unread = told.unread;
            output::fault(
                "Unread",
                &format!("{unread} lines are no records; `levee audit verify` says more"),
            );
            return Ok(ExitCode::FAILURE);
        }
        if told.shown > 0 {
            return Ok(ExitCode::SUCCESS);
        }
        output::fault("Nothing", &self.nothing(&told));
        Ok(ExitCode::FAILURE)
    }

    /// Why nothing was shown.
    fn nothing(&self, told: &Told) -> String {
        match &self.user {
            Some(user) if !told.of_user => format!("the log has no record of a person `{user}`"),
            _ => "no record of the log matches".to_owned(),
        }
    }

    /// Prints a line's record, if it is wanted and its number is not below `next`.
    fn tell(
        &self,
        line: &[u8],
        next: u64,
        told: &mut Told,
        paint: Paint,
        out: &mut impl Write,
    ) -> Result<(), String> {
        let Ok(record) = serde_json::from_slice::<Record>(line) else {
            // The end of what is being written.
            told.unread += u64::from(!self.follow);
            return Ok(());
        };
        if record.seq < next {
            return Ok(());
        }
        told.next = record.seq.saturating_add(1);
        let user = match &record.body {
            Body::Event(event) => event.user.as_ref(),
            Body::Checkpoint(_) => None,
        };
        told.of_user |= user.is_some() && user == self.user.as_ref();
        if !self.wants(&record) {
            return Ok(());
        }
        told.shown += 1;
        let text = match self.json {
            true => output::json_line(&record)?,
            false => one_line(&record, paint) + "\n",
        };
        flushed(write!(out, "{text}")).map(drop)
    }

    fn wants(&self, record: &Record) -> bool {
        let event = match &record.body {
            Body::Event(event) => Some(event),
            Body::Checkpoint(_) => None,
        };
        fn is<T: PartialEq + ?Sized>(wanted: Option<&T>, found: Option<&T>) -> bool {
            wanted.is_none_or(|wanted| found == Some(wanted))
        }
        let verdict = self.verdict.map(|went| match went {
            Went::Granted => Verdict::Granted,
            Went::Denied => Verdict::Denied,
            Went::Noted => Verdict::Noted,
        });
        let label = event.and_then(|event| event.label.as_ref());
        is(self.user.as_ref(), event.and_then(|event| event.user.as_ref()))
            && is(self.host.as_ref(), event.and_then(|event| event.host.as_ref()))
            && self
                .label
                .as_ref()
                .is_none_or(|wanted| label.is_some_and(|label| crate::log::means(wanted, &label.file_name())))
            && is(self.action.as_deref(), event.map(|event| event.action.as_str()))
            && is(verdict.as_ref(), event.map(|event| &event.verdict))
            && self.since.is_none_or(|since| record.time >= since)
            && self.until.is_none_or(|until| record.time <= until)
    }
}

fn one_line(record: &Record, paint: Paint) -> String {
    let time = instant(record.time);
    match &record.body {
        Body::Checkpoint(checkpoint) => {
            format!("{time} checkpoint of the first {} records", checkpoint.count)
        }
        Body::Event(Event { user, host, label, action, object, verdict, reason }) => {
            let verdict = match verdict {
                Verdict::Granted => "granted".to_owned(),
                Verdict::Denied => paint.error("denied"),
                Verdict::Noted => "noted".to_owned(),
            };
            let who = match (user, host) {
                (Some(user), Some(host)) => format!("{user}@{host}"),
                (Some(user), None) => user.to_string(),
                (None, Some(host)) => format!("@{host}"),
                (None, None) => "-".to_owned(),
            };
            let label = label.as_ref().map_or("-", |label| label.as_str());
            shown(&format!("{time} {who} {label} {action} {object}: "))
                + &verdict
                + &shown(&format!(": {reason}"))
        }
    }
}

#[cfg(test)]
mod tests;
