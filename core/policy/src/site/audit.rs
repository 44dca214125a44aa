//! `[audit]`: what becomes of the audit log's checkpoints.

use std::path::PathBuf;

use super::problem::ProblemKind;
use super::read::{Reader, Table};
use super::reference;

/// The most places that checkpoints are sent to.
const MOST_PLACES: usize = 4;
/// The longest path, in bytes.
const MAX_PATH: usize = 1024;

/// A place that each signed checkpoint of the audit log is sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointPlace {
    /// A line is appended to this file, at an absolute path.
    File(PathBuf),
    /// The host's syslog, at `/dev/log`.
    Syslog,
}

/// What the site says about its audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    checkpoints: Vec<CheckpointPlace>,
}

impl Audit {
    /// Where checkpoints are sent to, besides the log itself.
    pub fn checkpoints(&self) -> &[CheckpointPlace] {
        &self.checkpoints
    }

    pub(super) fn read(reader: &mut Reader<'_>, root: &Table<'_>) -> Option<Self> {
        let Some(value) = root.get("audit") else { return Some(Self::default()) };
        let table = reader.subtable(value, "[audit]", &reference::AUDIT.names())?;
        let Some(value) = table.get("checkpoints") else { return Some(Self::default()) };
        let texts = reader.strings(value, "checkpoints")?;
        if texts.len() > MOST_PLACES {
            let what = format!("`checkpoints` has {} places", texts.len());
            let remedy = format!("name at most {MOST_PLACES}");
            reader.problem(ProblemKind::OutOfBounds, &value.span(), what, remedy);
            return None;
        }
        let mut checkpoints = Vec::new();
        for text in texts {
            match text.value {
                "syslog" => checkpoints.push(CheckpointPlace::Syslog),
                path if path.starts_with('/')
                    && path.len() <= MAX_PATH
                    && !path.ends_with('/')
                    && !path.chars().any(char::is_control) =>
                {
                    checkpoints.push(CheckpointPlace::File(PathBuf::from(path)));
                }
                other => {
                    let what = format!("`{other}` is no place for checkpoints");
                    let remedy = "write \"syslog\", or a file's absolute path";
                    reader.problem(ProblemKind::BadValue, &text.span, what, remedy);
                    return None;
                }
            }
        }
        Some(Self { checkpoints })
    }
}
