//! Site files and the directories that go with a site.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use levee_policy::{Site, SiteName};

/// A site file is not read beyond this many bytes; the parser refuses it long before.
const MAX_TEXT: u64 = 8 << 20;

/// Reads a site file's text; `-` is standard input.
pub fn text(path: &Path) -> Result<String, String> {
    let fault = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let mut bytes = Vec::new();
    crate::output::detail(&format_args!("reads {}", path.display()));
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(MAX_TEXT).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(MAX_TEXT).read_to_end(&mut bytes))
    };
    read.map_err(|e| fault(&e))?;
    String::from_utf8(bytes).map_err(|e| fault(&not_utf8(&e)))
}

/// Where a file stops being UTF-8, and what to do about it.
fn not_utf8(error: &std::string::FromUtf8Error) -> String {
    let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
    let line = good.iter().filter(|byte| **byte == b'\n').count() + 1;
    let before =
        String::from_utf8_lossy(good.rsplit(|byte| *byte == b'\n').next().unwrap_or_default()).into_owned();
    format!(
        "line {line}, column {}: this is not UTF-8 text; write it in UTF-8 (from Latin-1: `iconv -f latin1 -t utf-8`)",
        before.chars().count() + 1
    )
}

/// Reads a site, which must have no problem.
pub fn read(path: &Path) -> Result<Site, String> {
    Site::parse(&text(path)?).map_err(|problems| {
        format!(
            "{} has {} problem{}; `levee check {}` shows each with its remedy",
            path.display(),
            problems.len(),
            if problems.len() == 1 { "" } else { "s" },
            path.display()
        )
    })
}

/// A remedy with the site file that is meant, where it says `SITE`.
pub fn named(remedy: &str, path: &Path) -> String {
    let words: Vec<String> = remedy
        .split(' ')
        .map(|word| if word == "SITE" { path.display().to_string() } else { word.to_owned() })
        .collect();
    words.join(" ")
}

/// What runs here, a directory for each.
pub const RUNS: &str = "/run/levee";

/// Sites' state, a directory for each.
pub const STATES: &str = "/var/lib/levee";

/// Where a site's keys, credentials, sessions, audit log and stores are kept unless the operator says
/// otherwise.
pub fn state(chosen: Option<&Path>, site: &SiteName) -> PathBuf {
    let state = chosen.map_or_else(|| state_of(site.as_str()), Path::to_owned);
    crate::output::detail(&format_args!("state in {}", state.display()));
    state
}

/// The same, of a site of this name.
pub fn state_of(name: &str) -> PathBuf {
    Path::new(STATES).join(name)
}
