//! What a state directory belongs to: the site's name, and every lattice that its labels have had. A site file in which a label means
//! something else than it did would give a person documents that were written higher: it is refused.

use levee_policy::{Label, LabelName, Site, Vocabulary};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file, in a state directory.
pub const FILE: &str = "site-pin.toml";
/// Whoever reads it to change it has this locked.
const LOCK: &str = "site-pin.lock";
/// What a running warden has locked (`levee-warden`), and whoever moves what it would use.
const WARDENS: &str = "lock";

/// So many lattices are kept. A site changes its levels now and then.
const MOST: usize = 64;

/// What a state directory belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    /// The site's name.
    pub site: String,
    /// A migration that has begun: which images have which names after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moving: Vec<(String, String)>,
    /// And which directories of partitions' stores, a label's each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<(String, String)>,
    /// All that move have names of the migration's own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub halfway: bool,
    /// The lattices that its labels have had, the oldest first.
    #[serde(default, rename = "lattice", skip_serializing_if = "Vec::is_empty")]
    pub lattices: Vec<Lattice>,
}

/// The words that labels are made of, levels lowest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lattice {
    /// Levels.
    pub levels: Vec<String>,
    /// Categories.
    pub categories: Vec<String>,
    /// Levels of integrity.
    pub integrity_levels: Vec<String>,
    /// Categories of integrity.
    pub integrity_categories: Vec<String>,
}

impl Lattice {
    /// A site's.
    pub fn of(site: &Site) -> Self {
        let words = site.vocabulary();
        Self {
            levels: words.levels().map(str::to_owned).collect(),
            categories: words.categories().map(str::to_owned).collect(),
            integrity_levels: words.integrity_levels().map(str::to_owned).collect(),
            integrity_categories: words.integrity_categories().map(str::to_owned).collect(),
        }
    }

    /// A label's meaning in it; none where it has no such label.
    pub fn label(&self, name: &LabelName) -> Option<Label> {
        self.vocabulary()?.parse_name(name)
    }

    /// The words in which its labels are read.
    pub fn vocabulary(&self) -> Option<Vocabulary> {
        let Self { levels, categories, integrity_levels, integrity_categories } = self.clone();
        Vocabulary::new(levels, categories, integrity_levels, integrity_categories).ok()
    }

    /// In what the other one gives the same words another meaning.
    fn differs(&self, other: &Self) -> Option<String> {
        for (what, old, new) in [
            ("levels", &self.levels, &other.levels),
            ("integrity-levels", &self.integrity_levels, &other.integrity_levels),
        ] {
            let before: Vec<&str> = common(old, new);
            if before != common(new, old) {
                return Some(format!("its `{what}` had the order {}", quoted(&before)));
            }
        }
        let had = |lattice: &Self| !lattice.integrity_levels.is_empty();
        (had(self) != had(other)).then(|| match had(self) {
            true => "its labels had an integrity part".to_owned(),
            false => "its labels had no integrity part".to_owned(),
        })
    }
}

/// The words of one list that another has, too, in their order.
fn common<'a>(of: &'a [String], with: &[String]) -> Vec<&'a str> {
    of.iter().filter(|word| with.contains(word)).map(String::as_str).collect()
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

impl Pin {
    /// Of a state that has only this.
    pub fn of(site: &Site) -> Self {
        let name = site.name().to_string();
        let (moving, partitions) = (Vec::new(), Vec::new());
        Self { site: name, moving, partitions, halfway: false, lattices: vec![Lattice::of(site)] }
    }

    /// What a state directory has; none where nothing has been pinned.
    ///
    /// # Errors
    /// It cannot be read, or is no pin.
    pub fn read(state: &Path) -> Result<Option<Self>, String> {
        let path = state.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(format!("{}: {e}", path.display())),
        };
        toml::from_str(&text).map(Some).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Writes it: it is there whole, or as it was.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&self, state: &Path) -> Result<(), String> {
        let (path, new) = (state.join(FILE), state.join(format!("{FILE}.new")));
        let text = toml::to_string(self).map_err(|e| e.to_string())?;
        let write = || -> io::Result<()> {
            let mut file = File::options().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(state)?.sync_all()
        };
        write().map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Whether a migration has begun.
    pub fn is_moving(&self) -> bool {
        !(self.moving.is_empty() && self.partitions.is_empty())
    }

    /// What of a site does not fit it, each with what to do.
    pub fn misfits(&self, site: &Site) -> Vec<(String, String)> {
        let mut all = Vec::new();
        if self.is_moving() {
            let what = "`levee state migrate` was interrupted".to_owned();
            all.push((what, "run it again with the same site file".to_owned()));
        }
        if self.site != site.name().as_str() {
            let what = format!("the state is that of the site `{}`, not of `{}`", self.site, site.name());
            let remedy = "give each site a state directory of its own; if this one was only renamed: levee state migrate SITE \
                          --site-was "
                .to_owned();
            all.push((what, remedy + &self.site));
        }
        let new = Lattice::of(site);
        let found = self.lattices.iter().find_map(|old| old.differs(&new));
        all.extend(found.map(|what| {
            let remedy =
                "put it back; or see `levee state migrate --help`, which lowers no document".to_owned();
            (format!("labels of this state mean something else in the site file: {what}"), remedy)
        }));
        all
    }

    /// Keeps the lattice of a site that fits. Whether that is new.
    fn learn(&mut self, site: &Site) -> Result<bool, String> {
        let lattice = Lattice::of(site);
        if self.lattices.contains(&lattice) {
            return Ok(false);
        }
        if self.lattices.len() >= MOST {
            return Err(format!(
                "{FILE}: the labels have had {MOST} lattices; `levee state migrate` keeps the last one"
            ));
        }
        self.lattices.push(lattice);
        Ok(true)
    }
}

/// Where the pin is.
pub fn path(state: &Path) -> PathBuf {
    state.join(FILE)
}

/// Locks a file of the state directory's, made if need be, for as long as what comes back is open.
fn locked(path: &Path, how: FlockOperation) -> Result<File, String> {
    let lock = || -> io::Result<File> {
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        flock(&file, how)?;
        Ok(file)
    };
    lock().map_err(|e| format!("{}: {e}", path.display()))
}

/// Has no warden begin with this state, and nobody hold it to a site, for as long as what comes back is open.
///
/// # Errors
/// A warden has it.
pub fn alone(state: &Path) -> Result<[File; 2], String> {
    let wardens = locked(&state.join(WARDENS), FlockOperation::NonBlockingLockExclusive);
    let wardens = wardens.map_err(|e| format!("{e}: a server runs with this state: `levee down` first"))?;
    Ok([wardens, locked(&state.join(LOCK), FlockOperation::LockExclusive)?])
}

/// Holds a state directory to this site: what it was before must fit, and is kept. Of two that come at once with site files that do not fit
/// each other one is refused: each would have found what was there before both. Answers what is kept, as it is written.
///
/// # Errors
/// What does not fit, with what to do.
pub fn hold(site: &Site, state: &Path) -> Result<String, String> {
    // (Who enrols has the directory locked.)
    let _alone = locked(&state.join(LOCK), FlockOperation::LockExclusive)?;
    fit(site, state)?;
    fs::read_to_string(path(state)).map_err(|e| format!("{}: {e}", path(state).display()))
}

/// What [`hold`] does, with the lock.
fn fit(site: &Site, state: &Path) -> Result<(), String> {
    let Some(mut pin) = Pin::read(state)? else { return Pin::of(site).write(state) };
    let misfits = pin.misfits(site);
    if !misfits.is_empty() {
        let all = misfits.iter().map(|(what, remedy)| format!("{what}\n  help: {remedy}"));
        return Err(format!("{}: {}", path(state).display(), all.collect::<Vec<_>>().join("\n")));
    }
    if pin.learn(site)? { pin.write(state) } else { Ok(()) }
}
