//! `levee state`: what labels have on the disk. `migrate`: a state directory whose site has other words for its labels. No document is lowered.

use crate::output;
use crate::pin::{self, Lattice, Pin};
use crate::site;
use clap::{Args, Subcommand};
use levee_policy::{LabelName, Site};
use rustix::fs::OFlags;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod place;
mod stores;

use place::{PARTITIONS, STORES, alone};

/// What a server keeps: show it, bring it to another site file, remove what is of no use any more
#[derive(Debug, Args)]
pub struct State {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    List(stores::List),
    Migrate(Migrate),
    Remove(stores::Remove),
}

/// Bring the labels' stores to a site file in which levels or categories have other names or places
///
/// A label's store, and those of its partitions, go to the label of its name, to that which --renamed makes of it, or to that which --move says; only where nobody can read them
/// who could not before. If there is no such place, nothing is done. Copies and snapshots of stores are removed: they are made anew. Sessions do not come back.
/// A posture that was set at some labels counts at those that are called so then: set `default` before, and afterwards what is to be.
/// The server must be down.
#[derive(Debug, Args)]
struct Migrate {
    /// The site file as it is to be
    site: PathBuf,
    /// Where the stores are kept [default: /var/lib/levee/NAME]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// A level or category that has another name now, and means what it did
    #[arg(long, value_name = "OLD=NEW", value_parser = pair)]
    renamed: Vec<(String, String)>,
    /// A label whose store goes to another label, which is at least as high
    #[arg(long = "move", value_name = "OLD=NEW", value_parser = pair)]
    moved: Vec<(String, String)>,
    /// The site itself was called so
    #[arg(long, value_name = "NAME")]
    site_was: Option<String>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (old, new) = text.split_once('=').ok_or("write OLD=NEW")?;
    Ok((old.to_owned(), new.to_owned()))
}

/// What is done.
#[derive(Debug, Serialize)]
struct Done {
    /// Labels whose stores have another label now.
    moved: Vec<(LabelName, LabelName)>,
    /// Labels whose stores stay.
    stay: Vec<LabelName>,
    /// Copies and snapshots that go.
    removed: Vec<String>,
    dry_run: bool,
}

/// Labels, and what they are called from then on.
type Places = Vec<(LabelName, LabelName)>;

/// Ends the name of a label's own store.
const OWN: &str = ".img";
/// Behind the name of an image that a virtual machine has had as a disk: the host does not mount it, whatever it is called.
const OF_A_MACHINE: &str = ".machine";
/// Ends the name of an image that is on its way.
const ON_ITS_WAY: &str = ".moving";

impl State {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let migrate = match self.what {
            What::List(list) => return output::exit(list.run()),
            What::Remove(remove) => return output::exit(remove.run()),
            What::Migrate(migrate) => migrate,
        };
        output::exit(migrate.migrate().and_then(|done| {
            if migrate.json {
                output::json(&done)?
            } else {
                output::print(&render(&done))?
            }
            Ok(ExitCode::SUCCESS)
        }))
    }
}

fn render(done: &Done) -> String {
    let mut text: String = done.moved.iter().map(|(old, new)| format!("{old} -> {new}\n")).collect();
    text.extend(done.stay.iter().map(|label| format!("{label} stays\n")));
    text.extend(done.removed.iter().map(|file| format!("{file} is removed: it is made anew\n")));
    if done.dry_run {
        text.push_str("nothing has been done: --dry-run\n");
    }
    text
}

impl Migrate {
    fn migrate(&self) -> Result<Done, String> {
        let site = site::read(&self.site)?;
        let state = site::state(self.state.as_deref(), site.name());
        let _alone = (alone(&state)?, state.is_dir().then(|| pin::alone(&state)).transpose()?);
        let pin = Pin::read(&state)?.ok_or_else(|| {
            format!("{} is not there: nothing is known of the state's labels", pin::path(&state).display())
        })?;
        let expected = self.site_was.as_deref().unwrap_or(site.name().as_str());
        if pin.site != expected && pin.site != site.name().as_str() {
            return Err(format!("the state is that of the site `{}`; say --site-was {}", pin.site, pin.site));
        }
        if pin.is_moving() {
            return finish(pin, &site, &state);
        }
        let (own, removed) = images(&state.join(STORES))?;
        let (moving, mut stay) = self.places(own, &pin, &site)?;
        let (partitions, other) = self.places(directories(&state.join(PARTITIONS))?, &pin, &site)?;
        let mut moved: Vec<_> = moving.iter().chain(&partitions).cloned().collect();
        stay.extend(other);
        // A label of both kinds is said once.
        moved.sort();
        moved.dedup();
        stay.sort();
        stay.dedup();
        let done = Done { moved, stay, removed, dry_run: self.dry_run };
        if done.dry_run {
            return Ok(done);
        }
        let names = |all: Places, end: &str| -> Vec<(String, String)> {
            all.iter().map(|(old, new)| (old.file_name() + end, new.file_name() + end)).collect()
        };
        let (moving, partitions) = (names(moving, OWN), names(partitions, ""));
        let begun = Pin { moving, partitions, ..pin };
        begun.write(&state)?;
        finish(begun, &site, &state).map(|_| done)
    }

    /// Where what these labels have goes, and what stays where it is.
    fn places(
        &self,
        all: Vec<LabelName>,
        pin: &Pin,
        site: &Site,
    ) -> Result<(Places, Vec<LabelName>), String> {
        let (mut moved, mut stay, mut taken) = (Vec::new(), Vec::new(), BTreeSet::new());
        for old in all {
            let new = self.place(&old, pin, &Lattice::of(site))?;
            if !taken.insert(new.clone()) {
                return Err(format!(
                    "two stores would be that of {new}: move one of them elsewhere with --move"
                ));
            }
            if new == old { stay.push(old) } else { moved.push((old, new)) }
        }
        Ok((moved, stay))
    }

    /// Where a label's store goes.
    fn place(&self, old: &LabelName, pin: &Pin, now: &Lattice) -> Result<LabelName, String> {
        let unknown = || format!("{old}: no lattice of this state has such a label");
        let lattice = pin.lattices.iter().rev().find(|l| l.label(old).is_some()).ok_or_else(unknown)?;
        let words: BTreeMap<&str, &str> =
            self.renamed.iter().map(|(old, new)| (old.as_str(), new.as_str())).collect();
        let target = match self.moved.iter().find(|(from, _)| from == old.as_str()) {
            Some((_, to)) => to.clone(),
            None => translated(old.as_str(), &words),
        };
        let why = |why: String| {
            format!(
                "the store of {old} would become that of {target}: {why}. Say where it goes with --move {old}=LABEL"
            )
        };
        let new = LabelName::new(&target).map_err(|e| why(e.to_string()))?;
        if now.label(&new).is_none() {
            return Err(why("the site file has no such label".into()));
        }
        lowered(old, &new, lattice, now, &words).map_or(Ok(new), |reason| Err(why(reason)))
    }
}

/// A label's name in new words.
fn translated(name: &str, words: &BTreeMap<&str, &str>) -> String {
    let mut out = String::new();
    let mut rest = name;
    while !rest.is_empty() {
        let end = rest.find(['/', ',', '@']).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        out.push_str(words.get(word).unwrap_or(&word));
        let next = behind.find(|c| !matches!(c, '/' | ',' | '@')).unwrap_or(behind.len());
        let (marks, after) = behind.split_at(next);
        out.push_str(marks);
        rest = after;
    }
    out
}

/// Who could read a label's documents at its new place and not at its old one, in words; none where there is nobody. People keep
/// their level by its name, as the renamed words have it.
fn lowered(
    old: &LabelName,
    new: &LabelName,
    before: &Lattice,
    now: &Lattice,
    words: &BTreeMap<&str, &str>,
) -> Option<String> {
    let (old, new) = (Parts::of(old.as_str()), Parts::of(new.as_str()));
    let word = |name: &str| (*words.get(name).unwrap_or(&name)).to_owned();
    let place = |levels: &[String], name: &str| levels.iter().position(|level| level == name);
    let (was, is) = (place(&before.levels, &old.level)?, place(&now.levels, &new.level)?);
    for (index, level) in before.levels.iter().enumerate() {
        let today = place(&now.levels, &word(level));
        if today.is_some_and(|today| today >= is) && index < was {
            return Some(format!("who works at {} could read it then, and could not before", word(level)));
        }
    }
    let missing = old.categories.iter().map(|category| word(category)).find(|c| !new.categories.contains(c));
    if let Some(category) = missing {
        return Some(format!("who is not cleared for {category} could read it then"));
    }
    let integrity = translated(&old.integrity, words);
    (integrity != new.integrity).then(|| "its integrity would be another".to_owned())
}

/// The parts of a label's name.
struct Parts {
    level: String,
    categories: BTreeSet<String>,
    integrity: String,
}

impl Parts {
    fn of(name: &str) -> Self {
        let (secrecy, integrity) = name.split_once('@').unwrap_or((name, ""));
        let (level, categories) = secrecy.split_once("//").unwrap_or((secrecy, ""));
        let categories = categories.split(',').filter(|c| !c.is_empty()).map(str::to_owned).collect();
        Self { level: level.to_owned(), categories, integrity: integrity.to_owned() }
    }
}

/// The labels that have a store, and the other images.
fn images(stores: &Path) -> Result<(Vec<LabelName>, Vec<String>), String> {
    let mut found = (Vec::new(), Vec::new());
    let entries = match fs::read_dir(stores) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(format!("{}: {e}", stores.display())),
    };
    for entry in entries {
        let entry = entry.map_err(|e| format!("{}: {e}", stores.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(stem) = name.strip_suffix(OWN) else { continue };
        match LabelName::new(&stem.replace('+', "/")) {
            // No label's name has a dot in it; those of copies and snapshots have.
            Ok(label) => found.0.push(label),
            Err(_) => found.1.push(name),
        }
    }
    found.0.sort();
    found.1.sort();
    Ok(found)
}

/// The labels whose partitions have stores.
fn directories(partitions: &Path) -> Result<Vec<LabelName>, String> {
    let at = |e: std::io::Error| format!("{}: {e}", partitions.display());
    let entries = match fs::read_dir(partitions) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(at(e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(at)?.file_name().to_string_lossy().replace('+', "/");
        found.push(LabelName::new(&name).map_err(|e| format!("{}: {name}: {e}", partitions.display()))?);
    }
    found.sort();
    Ok(found)
}

/// When sessiond ran last, in the state directory: a boot's name, two times, and how that run ended, in so many octets.
const LAST_RAN: &str = "sessiond/last-ran";
const LAST_RAN_LENGTH: usize = 96;

/// Has no session come back: what the store has it at, by name, may be another label now. sessiond takes up none where it does not know for how long
/// it was away, as after a time that has not come.
fn end_sessions(state: &Path) -> Result<(), String> {
    let path = state.join(LAST_RAN);
    let write = || -> std::io::Result<()> {
        // (The directory is sessiond's.)
        let flags = i32::try_from(OFlags::NOFOLLOW.bits()).map_err(std::io::Error::other)?;
        let file = File::options().read(true).write(true).custom_flags(flags).open(&path)?;
        let mut text = String::new();
        (&file).take(LAST_RAN_LENGTH as u64).read_to_string(&mut text)?;
        let mut words = text.split_ascii_whitespace();
        let (boot, run) = (words.next().unwrap_or_default(), words.nth(2).unwrap_or_default());
        let said = format!("{boot} {0} {0} {run}", u64::MAX);
        file.write_all_at(format!("{said:<width$}\n", width = LAST_RAN_LENGTH - 1).as_bytes(), 0)?;
        file.sync_all()
    };
    match write() {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {e}", path.display())),
        _ => Ok(()),
    }
}

/// Carries out what the pin says is begun: first all that move get names of their own, then those that they are to have.
fn finish(mut pin: Pin, site: &Site, state: &Path) -> Result<Done, String> {
    let (stores, partitions) = (&state.join(STORES), &state.join(PARTITIONS));
    let at = |name: &str| stores.join(name);
    let failed = |path: &Path, e: std::io::Error| format!("{}: {e}; run this again", path.display());
    let on_its_way = |of: &Path, name: &str| of.join(format!("{name}{ON_ITS_WAY}"));
    let mark = |image: &Path| PathBuf::from(format!("{}{OF_A_MACHINE}", image.display()));
    let rename_one = |from: &Path, to: &Path| if from.exists() { fs::rename(from, to) } else { Ok(()) };
    // What says of an image that it is not to be mounted is at its new place first.
    let rename =
        |from: &Path, to: &Path| rename_one(&mark(from), &mark(to)).and_then(|()| rename_one(from, to));
    let moving: Vec<(&PathBuf, String, String)> = [(stores, &pin.moving), (partitions, &pin.partitions)]
        .into_iter()
        .flat_map(|(of, all)| all.iter().map(move |(old, new)| (of, old.clone(), new.clone())))
        .collect();
    let sync = || {
        let one = |of: &&PathBuf| File::open(of).and_then(|of| of.sync_all()).map_err(|e| failed(of, e));
        [stores, partitions].iter().filter(|of| of.exists()).try_for_each(one)
    };
    end_sessions(state)?;
    let (_, removed) = images(stores)?;
    for name in &removed {
        fs::remove_file(at(name)).map_err(|e| failed(&at(name), e))?;
        match fs::remove_file(mark(&at(name))) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(&mark(&at(name)), e)),
            _ => {}
        }
    }
    if !pin.halfway && !moving.is_empty() {
        for (of, old, new) in &moving {
            rename(&of.join(old), &on_its_way(of, new)).map_err(|e| failed(&of.join(old), e))?;
        }
        sync()?;
        pin.halfway = true;
        pin.write(state)?;
    }
    for (of, _, new) in &moving {
        rename(&on_its_way(of, new), &of.join(new)).map_err(|e| failed(&of.join(new), e))?;
    }
    if !moving.is_empty() {
        sync()?;
    }
    Pin::of(site).write(state)?;
    Ok(Done { moved: Vec::new(), stay: Vec::new(), removed, dry_run: false })
}
