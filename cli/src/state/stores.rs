//! `levee state list` and `levee state remove`: what labels have on the disk, also those that the site has no more.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use levee_policy::{LabelName, Site};
use serde::Serialize;

use super::place::{PARTITIONS, STORES, alone};
use crate::output::{self, shown, size, table};
use crate::pin;
use crate::site;

/// Show what each label has on the disk, and which the site has no more
///
/// Stores, snapshots of them and copies of lower ones count in `[limits] stores`, also those of labels that the site has no more.
#[derive(Debug, Args)]
pub struct List {
    /// The site file
    site: PathBuf,
    /// Where the stores are kept [default: /var/lib/levee/NAME]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Remove all that a label has on the disk: its documents, copies and snapshots of them, what its partitions have, and what its programs have logged
///
/// Only what the site has no more, unless --force says otherwise. Blocks of the disk are given back, and not written over. All labels' copies of lower
/// stores go, too: they are made anew. The server must be down.
#[derive(Debug, Args)]
pub struct Remove {
    /// The site file
    site: PathBuf,
    /// The label, as `levee state list` shows it
    label: LabelName,
    /// Where the stores are kept [default: /var/lib/levee/NAME]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Also a label that the site has: it begins with nothing
    #[arg(long)]
    force: bool,
}

/// What a label has.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Kept {
    label: String,
    /// Whether the site has it.
    known: bool,
    /// Octets that count in `[limits] stores`: its store, snapshots, and copies of lower ones.
    images: u64,
    /// Octets of what its partitions have.
    partitions: u64,
    /// Octets of the disk that all of it takes.
    disk: u64,
}

/// Where the logs of labels' programs are.
const LOGS: &str = "logs/labels";
/// What ends the name of an image of copies.
const COPIES: &str = ".below.img";

impl List {
    /// Runs the command.
    pub fn run(&self) -> Result<ExitCode, String> {
        let site = site::read(&self.site)?;
        let kept = kept(&site, &site::state(self.state.as_deref(), site.name()))?;
        if self.json {
            output::json(&kept)?;
        } else {
            output::print(&render(&site, &kept))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn render(site: &Site, kept: &[Kept]) -> String {
    let row = |one: &Kept| {
        let known = if one.known { "yes" } else { "no" };
        vec![
            shown(&one.label).to_string(),
            known.to_owned(),
            size(one.images),
            size(one.partitions),
            size(one.disk),
        ]
    };
    let images = kept.iter().map(|one| one.images).fold(0, u64::saturating_add);
    format!(
        "{}images have {} of {} (`[limits] stores`)\n",
        table(
            &["LABEL", "IN THE SITE", "IMAGES", "PARTITIONS", "ON THE DISK"],
            kept.iter().map(row).collect()
        ),
        size(images),
        size(site.limits().stores)
    )
}

/// The entries of a directory, each with the label whose name it begins with; what begins with none is nobody's.
fn entries(directory: &Path) -> Result<Vec<(LabelName, PathBuf)>, String> {
    let fault = |e: std::io::Error| format!("{}: {e}", directory.display());
    let all = match fs::read_dir(directory) {
        Ok(all) => all,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(fault(e)),
    };
    let mut found = Vec::new();
    for entry in all {
        let path = entry.map_err(fault)?.path();
        // No label's name has a dot in it.
        let name = path.file_name().and_then(OsStr::to_str).and_then(|name| name.split('.').next());
        let label = name.and_then(|name| LabelName::new(&name.replace('+', "/")).ok());
        found.extend(label.map(|label| (label, path)));
    }
    found.sort();
    Ok(found)
}

/// Octets in a file or in all files of a directory, and those of the disk.
fn sizes(path: &Path) -> Result<(u64, u64), String> {
    let fault = |e: std::io::Error| format!("{}: {e}", path.display());
    let meta = fs::symlink_metadata(path).map_err(fault)?;
    let mut sum = (if meta.is_file() { meta.len() } else { 0 }, meta.blocks().saturating_mul(512));
    if meta.is_dir() {
        for entry in fs::read_dir(path).map_err(fault)? {
            let one = sizes(&entry.map_err(fault)?.path())?;
            sum = (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1));
        }
    }
    Ok(sum)
}

fn kept(site: &Site, state: &Path) -> Result<Vec<Kept>, String> {
    let mut all: BTreeMap<LabelName, Kept> = BTreeMap::new();
    for directory in [STORES, PARTITIONS, LOGS] {
        for (label, path) in entries(&state.join(directory))? {
            let (octets, disk) = sizes(&path)?;
            let fresh = || {
                let (label, known) = (label.to_string(), site.label(&label).is_some());
                Kept { label, known, images: 0, partitions: 0, disk: 0 }
            };
            let kept = all.entry(label.clone()).or_insert_with(fresh);
            let counted = path.extension().is_some_and(|extension| extension == "img");
            match directory {
                PARTITIONS => kept.partitions = kept.partitions.saturating_add(octets),
                STORES if counted => kept.images = kept.images.saturating_add(octets),
                _ => {}
            }
            kept.disk = kept.disk.saturating_add(disk);
        }
    }
    Ok(all.into_values().collect())
}

impl Remove {
    /// Runs the command.
    pub fn run(mut self) -> Result<ExitCode, String> {
        let site = site::read(&self.site)?;
        self.label = site.typed_name(self.label);
        let state = site::state(self.state.as_deref(), site.name());
        let _alone = (alone(&state)?, state.is_dir().then(|| pin::alone(&state)).transpose()?);
        if site.label(&self.label).is_some() && !self.force {
            return Err(format!(
                "the site has {}: its documents would be lost; say --force if they are to be",
                self.label
            ));
        }
        let stores = entries(&state.join(STORES))?;
        let beside = [entries(&state.join(PARTITIONS))?, entries(&state.join(LOGS))?].concat();
        let own = |all: Vec<(LabelName, PathBuf)>| -> Vec<PathBuf> {
            all.into_iter().filter(|(label, _)| *label == self.label).map(|(_, path)| path).collect()
        };
        let is_copies = |path: &Path| path.to_string_lossy().ends_with(COPIES);
        let copies: Vec<PathBuf> =
            stores.iter().map(|(_, path)| path.clone()).filter(|path| is_copies(path)).collect();
        let own: Vec<PathBuf> = own(stores).into_iter().chain(own(beside)).collect();
        if own.is_empty() {
            return Err(format!("{} has nothing in {}", self.label, state.display()));
        }
        // Copies first: broken off, the label is still listed, and removed by the same command.
        let mut said = String::new();
        for path in copies.iter().chain(own.iter().filter(|path| !is_copies(path))) {
            let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            removed.map_err(|e| format!("{}: {e}; run this again", shown(&path.display().to_string())))?;
            said.push_str(&format!("{} is removed\n", shown(&path.display().to_string())));
        }
        output::said(&said)?;
        Ok(ExitCode::SUCCESS)
    }
}
