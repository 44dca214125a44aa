//! What an image is to have: what the warden has told of it, and what the site file that came along asks for.

use super::{inventory, short, state};
use levee_policy::Site;
use levee_policy::site::Program;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Counts up when the same files would be packed otherwise.
pub(super) const FORM: &str = "1";

/// What an image is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Paths of programs, and words that may be.
    pub programs: Vec<String>,
    /// Packages, and paths that come as they are.
    pub software: Vec<String>,
    /// What a partition's root is made from, and then nothing else is.
    pub root: Option<PathBuf>,
    /// Whether that is only looked at.
    pub(super) only_looks: bool,
    /// What stands for all this.
    pub(super) key: String,
    /// What the warden calls it in memory, where that is something else.
    pub(super) called: Option<String>,
}

impl Wanted {
    /// What a site's services and partitions need.
    pub fn of(site: &Site) -> Self {
        let mut programs = BTreeSet::new();
        let mut software = BTreeSet::new();
        for service in site.services() {
            match service.program() {
                Program::Nginx => drop(programs.insert("/usr/sbin/nginx".to_owned())),
                Program::Command(words) => {
                    programs.extend(words.iter().flat_map(|word| inventory::paths(word)).map(str::to_owned));
                }
            }
            software.extend(service.software().iter().cloned());
        }
        for partition in site.partitions().iter().filter(|one| one.root().is_none()) {
            let words = partition.command().iter();
            programs.extend(words.flat_map(|word| inventory::paths(word)).map(str::to_owned));
            software.extend(partition.software().iter().cloned());
        }
        Self::new(programs, software)
    }

    /// These, of the host as it is now.
    pub fn new(
        programs: impl IntoIterator<Item = String>,
        software: impl IntoIterator<Item = String>,
    ) -> Self {
        let (programs, software) = (Vec::from_iter(programs), Vec::from_iter(software));
        let mut hash = Sha256::new();
        let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        for word in
            [&own(&[FORM, "programs"]), &programs, &own(&["software"]), &software].into_iter().flatten()
        {
            hash.update(word);
            hash.update([0]);
        }
        hash.update(state());
        let digest = hash.finalize();
        let key = levee_policy::audit::hex(digest.get(..12).unwrap_or_default());
        Self { programs, software, root: None, only_looks: false, key, called: None }
    }

    /// A partition's root, made from `path`, which is not looked at here.
    pub fn root(path: &Path) -> Self {
        let (programs, software, root) = (Vec::new(), Vec::new(), Some(path.to_owned()));
        let key = short(path.as_os_str().as_encoded_bytes());
        Self { programs, software, root, only_looks: false, key, called: None }
    }

    /// What the maker is told on its command line; `site` is what comes along, of which it makes the image of the programs.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn told(arguments: impl IntoIterator<Item = String>, site: impl Read) -> Result<Self, String> {
        let arguments = Vec::from_iter(arguments);
        match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            [key] if !key.starts_with('-') => {
                let text = std::io::read_to_string(site).map_err(|e| format!("read the site file: {e}"))?;
                let site = Site::parse(&text);
                let site = site.map_err(|all| format!("problems of the site file: {}", all.len()))?;
                Ok(Self { called: Some((*key).to_owned()), ..Self::of(&site) })
            }
            [flag @ ("--root" | "--look"), path] => {
                Ok(Self { only_looks: *flag == "--look", ..Self::root(Path::new(path)) })
            }
            _ => Err("usage: levee-programs NAME <SITE-FILE | --root PATH | --look PATH".to_owned()),
        }
    }

    /// What stands for a root's path in its image's name.
    pub(super) fn path(&self) -> &str {
        self.key.split('-').next().unwrap_or_default()
    }

    /// The image's own name, by which the cache has that of programs.
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.key, if self.root.is_some() { "root" } else { "erofs" })
    }

    /// Its name in memory.
    pub(super) fn name_in_memory(&self) -> String {
        self.called.as_ref().map_or_else(|| self.file_name(), |called| format!("{called}.erofs"))
    }
}
