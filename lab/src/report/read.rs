//! A run as it is on the disk, and its arms as figures and rows call them.

use crate::analysis::{Summary, summarise};
use crate::endings::{Ending, endings};
use crate::experiment::{Arm, Drive, Mediation, Path as Way};
use crate::host::Env;
use crate::place::Home;
use crate::run::{manifest, samples};
use crate::sample::{Manifest, Sample};
use std::path::Path;
use std::{fs, io};

/// Everything a page is made of.
pub(crate) struct Run {
    pub manifest: Manifest,
    pub samples: Vec<Sample>,
    pub env: Vec<Env>,
    pub endings: Vec<Ending>,
    pub summary: Summary,
}

impl Run {
    pub(super) fn read(dir: &Path) -> io::Result<Run> {
        let manifest = manifest(dir)?;
        let samples = samples(dir)?;
        let env = match fs::read(dir.join("env.json")) {
            Ok(t) => serde_json::from_slice(&t)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(e),
        };
        if samples.is_empty() && dir.join("samples.ndjson.xz").exists() {
            let what = "its samples are packed: unxz --keep samples.ndjson.xz there first";
            return Err(io::Error::other(format!("{}: {what}", dir.display())));
        }
        let summary = summarise(&manifest, &samples).map_err(io::Error::other)?;
        Ok(Run { manifest, samples, env, endings: endings(dir)?, summary })
    }
}

/// The arms that were run, in the order of the experiment; their place is their colour.
pub fn arms(run: &Run) -> Vec<String> {
    run.manifest
        .experiment
        .arms_of(&run.manifest.form)
        .iter()
        .map(|a| a.name.clone())
        .filter(|n| run.manifest.absent.iter().all(|(a, _)| a != n))
        .collect()
}

/// An arm as figures and rows show it: in few words, and by its name where another arm has the same.
pub fn in_words(run: &Run, name: &str) -> String {
    let all = &run.manifest.experiment.arms;
    let Some(arm) = all.iter().find(|arm| arm.name == name) else { return name.to_owned() };
    let words = few_words(arm);
    let others = all.iter().filter(|other| few_words(other) == words).count();
    if others > 1 { format!("{words} ({name})") } else { words }
}

/// An arm in few words, for figures and the heads of rows.
pub fn few_words(arm: &Arm) -> String {
    let Drive { path, mediation, session, before } = arm.drive;
    let path = match path {
        Way::Link if mediation == Mediation::None && session == Home::Here => "plain link",
        Way::Link => "link",
        Way::Tunnel => "tunnel",
    };
    let session = if session == Home::Elsewhere { ", second server" } else { "" };
    let mode = few_words_of(mediation).map(|mode| format!(", {mode}")).unwrap_or_default();
    let tool = arm.tool.map(|tool| format!(", by {}", tool.version().0)).unwrap_or_default();
    let before = if before { ", before" } else { "" };
    format!("{path}{session}{mode}{tool}{before}")
}

/// A mode of mediation in few words; `None` where nothing mediates.
pub fn few_words_of(how: Mediation) -> Option<&'static str> {
    Some(match how {
        Mediation::None => return None,
        Mediation::Direct => "direct",
        Mediation::Handoff => "handoff",
        Mediation::HandoffWritten => "handoff, written",
        Mediation::Relay => "relay",
        Mediation::RelayWritten => "relay, written",
        Mediation::Inetd => "inetd",
        Mediation::Proxy => "copying proxy",
        Mediation::SpawnCopy => "as in the paper",
    })
}
