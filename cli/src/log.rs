//! `levee log`: what the processes of a label said, or levee's own.

use crate::instants::{is_instant, since};
use crate::operator::Which;
use crate::output;
use crate::pin::Pin;
use levee_policy::{LabelName, nearest};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// The most bytes that are read of one of a log's two files.
const MOST: u64 = 4 << 20;
/// So many labels are named to whoever typed another.
const NAMED: usize = 16;
/// How often --follow looks.
const TURN: Duration = Duration::from_millis(250);

/// Show what services, process 1 and levee's processes of a label have said
///
/// Each label has a log of its own, kept in the state directory and bounded in size; so do levee's standing processes (signer,
/// sessiond, keyer, tps, the warden). Nothing in it is obeyed by a terminal: control characters are shown as \x1b.
#[derive(Debug, clap::Args)]
pub struct Log {
    /// The label [default: levee's own standing processes]
    label: Option<LabelName>,
    /// The site's state directory [default: that of the server that runs here, or else the only one below /var/lib/levee]
    #[arg(long, value_name = "DIR", conflicts_with = "run")]
    state: Option<PathBuf>,
    #[command(flatten)]
    which: Which,
    /// Go on with what is said from now on
    #[arg(long)]
    follow: bool,
    /// Print JSON, an object a line
    #[arg(long)]
    json: bool,
}

/// A line of a log.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Line<'a> {
    /// When, in milliseconds since 1970.
    time: Option<u64>,
    /// Who said it.
    source: Option<&'a str>,
    text: &'a str,
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Self {
        let instant = |(time, rest)| Some((is_instant(time).then(|| since(time).ok()).flatten()?, rest));
        let parts = line.split_once(' ').and_then(instant);
        let Some((time, rest)) = parts else { return Self { time: None, source: None, text: line } };
        match rest.split_once(": ") {
            Some((source, text)) => Self { time: Some(time), source: Some(source), text },
            None => Self { time: Some(time), source: None, text: rest },
        }
    }
}

impl Log {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        output::exit(self.show())
    }

    fn show(&self) -> Result<ExitCode, String> {
        let directory = typed(self.directory()?, self.label.as_ref());
        let shown = read(&directory).map_err(|e| match e.kind() {
            ErrorKind::NotFound => nothing(&directory, self.label.as_ref()),
            ErrorKind::PermissionDenied => ROOT.to_owned(),
            _ => format!("{}: {e}", directory.display()),
        })?;
        if shown.is_empty() && !self.json {
            let who =
                self.label.as_ref().map_or("levee's own processes have", |_| "the label's processes have");
            output::said(&format!("{who} said nothing yet\n"))?;
        }
        output::raw(&self.form(&shown)?)?;
        if !self.follow {
            return Ok(ExitCode::SUCCESS);
        }
        let mut followed = Followed { directory, shown };
        loop {
            std::thread::sleep(TURN);
            let said = followed.more().map_err(|e| format!("{}: {e}", followed.directory.display()))?;
            // Until its reader goes away.
            let mut out = std::io::stdout().lock();
            if out.write_all(self.form(&said)?.as_bytes()).and_then(|()| out.flush()).is_err() {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }

    /// Where it is: of the state named, or of the server that runs in the directory named, or of the one that is meant.
    fn directory(&self) -> Result<PathBuf, String> {
        let named = self.which.run.as_ref().map(|run| {
            crate::running::must_be_root().map_err(|_| ROOT.to_owned())?;
            let nothing =
                || format!("no server runs in {}; --state names its state directory", run.display());
            self.which.state().ok_or_else(nothing)
        });
        let state = named.transpose()?.or_else(|| self.state.clone());
        directory(state, self.label.as_ref())
    }

    /// Lines as they are printed.
    fn form(&self, said: &str) -> Result<String, String> {
        if !self.json {
            return Ok(said.to_owned());
        }
        said.lines().map(|line| output::json_line(&Line::read(line))).collect()
    }
}

const ROOT: &str = "only root can read logs; run this with sudo";

/// Where the log of a label is, or that of levee's own standing processes.
pub fn directory(state: Option<PathBuf>, label: Option<&LabelName>) -> Result<PathBuf, String> {
    let only = || {
        let states = Path::new(crate::site::STATES);
        crate::running::only_with(states, "logs").map_err(|_| match rustix::process::geteuid().is_root() {
            true => {
                format!("{} does not have the logs of one site; say which with --state", states.display())
            }
            // What others cannot look into seems to be nothing.
            false => ROOT.to_owned(),
        })
    };
    // Many states may lie there, and one server run.
    let logs = state.or_else(|| Which { run: None }.state()).map_or_else(only, Ok)?.join("logs");
    Ok(match label {
        Some(label) => logs.join("labels").join(label.file_name()),
        None => logs.join("levee"),
    })
}

/// The log of the label that a person means: typed in any case, with its categories in any order.
fn typed(directory: PathBuf, label: Option<&LabelName>) -> PathBuf {
    let (Some(label), Some(logs), false) = (label, directory.parent(), directory.exists()) else {
        return directory;
    };
    let names = fs::read_dir(logs).into_iter().flatten().flatten();
    let meant = names.map(|entry| entry.path()).find(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| means(label, name))
    });
    meant.unwrap_or(directory)
}

/// Why there is nothing to show, and which labels have said something.
fn nothing(directory: &Path, label: Option<&LabelName>) -> String {
    let Some(label) = label else {
        return format!("{}: levee has not said anything here", directory.display());
    };
    // Beside labels there are partitions, whose names the state does not have.
    let state = directory.ancestors().nth(3).filter(|_| !label.as_str().starts_with("partition/"));
    if let Some(why) = state.and_then(|state| unknown(state, label)) {
        return format!("no such label: {why}");
    }
    let beside =
        directory.parent().into_iter().filter_map(|logs| fs::read_dir(logs).ok()).flatten().flatten();
    let mut there: Vec<String> =
        beside.filter_map(|entry| Some(entry.file_name().to_str()?.replace('+', "/"))).collect();
    there.sort();
    let remedy = match nearest(label.as_str(), there.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None if there.is_empty() => "no label has yet".to_owned(),
        None => format!(
            "these have: {}",
            there.get(..NAMED).map_or_else(|| there.join(", "), |first| format!("{}, …", first.join(", ")))
        ),
    };
    format!("{}: `{label}` has not said anything here; {remedy}", directory.display())
}

/// What is wrong with a label that the site of this state does not have, and what was probably meant; `None` where it has it, or that cannot be found out.
fn unknown(state: &Path, label: &LabelName) -> Option<String> {
    let lattice = Pin::read(state).ok()??.lattices.pop()?;
    let fault = lattice.vocabulary()?.parse_typed(label.as_str()).err()?;
    Some(output::shown(&format!("{}; {}", fault.what, fault.remedy)))
}

/// Whether a person who types a label may mean the one whose directory has this name.
pub fn means(typed: &LabelName, name: &str) -> bool {
    parts(name) == parts(&typed.file_name())
}

/// A label's parts, from the name of its directory.
fn parts(name: &str) -> (String, Vec<String>) {
    let name = name.to_ascii_uppercase();
    let (level, categories) = name.split_once("++").unwrap_or((&name, ""));
    let mut categories: Vec<String> = categories.split(',').map(str::to_owned).collect();
    categories.sort();
    (level.to_owned(), categories)
}

/// A log that is read as it grows.
pub struct Followed {
    directory: PathBuf,
    shown: String,
}

impl Followed {
    /// What is said from now on; there may be no log yet.
    pub fn from_now(directory: PathBuf) -> Self {
        let shown = read(&directory).unwrap_or_default();
        Self { directory, shown }
    }

    /// What was said since the last time.
    pub fn more(&mut self) -> std::io::Result<String> {
        let now = read(&self.directory)?;
        let said = more(&self.shown, &now).to_owned();
        self.shown = now;
        Ok(said)
    }
}

/// Both files of a log, older lines first. Who writes them leaves nothing in them that a terminal obeys; taken over, by what it reads, it may.
fn read(directory: &Path) -> std::io::Result<String> {
    let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        files.push((entry.metadata()?.modified()?, entry.path()));
    }
    files.sort();
    let mut text = Vec::new();
    for (_, path) in files {
        File::open(path)?.take(MOST).read_to_end(&mut text)?;
    }
    let text = String::from_utf8_lossy(&text);
    Ok(text.split('\n').map(output::shown).collect::<Vec<_>>().join("\n"))
}

/// What of `now` was not in `before`: a file that became full meanwhile has taken lines off its beginning. What is in a line has no say in where that
/// is, since whoever is followed has written it: all that is left of `before` stands at the beginning of `now`, or nothing is left.
fn more<'a>(before: &str, now: &'a str) -> &'a str {
    let lines = std::iter::once(0).chain(before.match_indices('\n').map(|(end, _)| end + 1));
    let left = lines.filter_map(|at| before.get(at..)).find_map(|left| now.strip_prefix(left));
    left.unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_are_one_log_with_the_older_lines_first() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("1.log"), "one\ntwo\n").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        fs::write(directory.path().join("0.log"), "three\n").unwrap();
        assert_eq!(read(directory.path()).unwrap(), "one\ntwo\nthree\n");
    }

    #[test]
    fn a_logger_that_is_taken_over_steers_no_terminal() {
        let directory = tempfile::tempdir().unwrap();
        let log = |text: &[u8]| fs::write(directory.path().join("0.log"), text).unwrap();
        log(b"one\n\x1b]52;c;cm0gLXJm\x07\x9b2J\xe2\x80\xae two\n");
        let mut followed = Followed::from_now(directory.path().into());
        let shown = followed.shown.clone();
        assert!(shown.starts_with("one\n") && shown.ends_with(" two\n"), "{shown:?}");
        assert!(
            !shown.contains(|char: char| char.is_control() && char != '\n' || char == '\u{202e}'),
            "{shown:?}"
        );
        log(b"one\n\x1b]52;c;cm0gLXJm\x07\x9b2J\xe2\x80\xae two\nthree\r\n");
        assert_eq!(followed.more().unwrap(), "three\u{fffd}\n");
    }

    #[test]
    fn who_mistypes_a_label_is_told_which_have_said_something() {
        let logs = tempfile::tempdir().unwrap();
        let said = |label: &str| {
            let label = label.parse::<LabelName>().unwrap();
            nothing(&logs.path().join(label.file_name()), Some(&label))
        };
        assert!(said("SECRET").ends_with("`SECRET` has not said anything here; no label has yet"));
        for label in ["SECRET++MED,NATO", "UNCLASSIFIED"] {
            fs::create_dir(logs.path().join(label)).unwrap();
        }
        assert!(said("UNCLASIFIED").ends_with("did you mean `UNCLASSIFIED`?"), "{}", said("UNCLASIFIED"));
        assert!(said("PUBLIC").ends_with("these have: SECRET//MED,NATO, UNCLASSIFIED"), "{}", said("PUBLIC"));
    }

    #[test]
    fn a_label_that_the_site_does_not_have_is_called_so_with_what_was_probably_meant() {
        let state = tempfile::tempdir().unwrap();
        let site = levee_policy::Site::parse(include_str!("../../conf/small/site.toml")).unwrap();
        Pin::of(&site).write(state.path()).unwrap();
        let said = |label: &str| {
            let label = label.parse::<LabelName>().unwrap();
            nothing(&directory(Some(state.path().to_owned()), Some(&label)).unwrap(), Some(&label))
        };
        let wrong = said("secrte");
        assert!(wrong.starts_with("no such label: `secrte` is not a level"), "{wrong}");
        assert!(wrong.contains("did you mean `SECRET`?"), "{wrong}");
        assert!(said("nosuch").contains("the site declares `UNCLASSIFIED`, "), "{}", said("nosuch"));
        for right in ["secret", "SECRET//MED,NATO", "partition/desk"] {
            assert!(said(right).contains("has not said anything here"), "{}", said(right));
        }
    }

    #[test]
    fn a_line_is_an_instant_who_said_it_and_what_was_said() {
        let line = |time, source, text| Line { time, source, text };
        let instant = 1_769_860_800_007;
        assert_eq!(
            Line::read("2026-01-31T12:00:00.007Z service web: GET /: 200"),
            line(Some(instant), Some("service web"), "GET /: 200")
        );
        assert_eq!(Line::read("2026-01-31T12:00:00.007Z word"), line(Some(instant), None, "word"));
        for whole in [
            "",
            "word word: x",
            "2026-01-31T12:00:00Z web: x",
            "2026-02-31T12:00:00.000Z web: x",
            "90s web: x",
        ] {
            assert_eq!(Line::read(whole), line(None, None, whole));
        }
    }

    #[test]
    fn what_follows_is_shown_once_also_when_the_oldest_lines_have_gone() {
        assert_eq!(more("", "a\n"), "a\n");
        assert_eq!(more("a\nb\n", "a\nb\n"), "");
        assert_eq!(more("a\nb\n", "a\nb\nc\n"), "c\n");
        assert_eq!(more("a\nb\n", "b\nc\n"), "c\n");
        assert_eq!(more("a\nb\n", "x\n"), "x\n");
    }

    #[test]
    fn who_is_followed_hides_no_line_and_begins_none_by_repeating_another() {
        let before = "0.001Z a: x\n";
        // It has written what its line before looked like, after another's.
        for said in ["0.002Z b: stolen\n0.003Z a: 0.001Z a: x\n", "0.001Z b: stolen\n0.001Z a: x\n"] {
            assert_eq!(more(before, &format!("{before}{said}")), said);
        }
        // What comes behind the repetition would be a line of anybody's.
        let forged = "0.002Z a: 0.001Z a: x0.003Z b: all is well\n";
        assert_eq!(more(before, &format!("{before}{forged}")), forged);
        assert_eq!(more(&format!("0.000Z a: y\n{before}"), &format!("{before}{forged}")), forged);
    }
}
