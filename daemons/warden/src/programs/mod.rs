//! The programs of services: an image of what they need of the host's `/usr`, kept in memory once, of which every label has a
//! block device and a file system of its own.
//!
//! | file | idea |
//! |---|---|
//! | `inventory` | which files: the packages of the programs that the site names, and what those need |
//! | `build` | how an image is made, by a process of its own (levee-programs), and put into memory |
//! | `root` | how the image of a partition's own root is made, by the same process |
//! | here | the warden's side: which image a site wants, and that it is there |
//!
//! Labels that ran programs from one file system would share its inodes and the pages of its files: a page that one has read, or a
//! sleeper on a word in one, tells the other. The image lies in memory whole and is never swapped out, so that what one label
//! reads of it is not felt by another's read; what a label has read of it are pages of its own file system.

mod build;
mod inventory;
mod root;

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use levee_policy::Site;
use levee_policy::site::Program as Runs;
use levee_sys::mount::{Attributes, Mount};
use levee_sys::spawn::Program;
use rustix::thread::CapabilitySet;
use sha2::{Digest, Sha256};

pub use root::make;

use crate::Fatal;
use crate::maker::{self, Maker};
use crate::waits::Waits;

/// Images that have been made on this host, by name.
pub const CACHE: &str = "/var/cache/levee/programs";

/// Bytes that images in memory may have together.
pub const MEMORY: u64 = 4 << 30;

/// How long making an image may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// Counts up when the same files would be packed otherwise.
const FORM: &str = "1";

/// What changes when the host's packages do.
const STATE: [&str; 6] =
    ["/var/lib/dpkg/status", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/local/bin", "/usr/local/lib"];

/// What its maker reads beside `/usr`.
pub const READS: [&str; 2] = ["/var/lib/dpkg", inventory::ALTERNATIVES];

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
    only_looks: bool,
    key: String,
}

impl Wanted {
    /// What a site's services and partitions need.
    pub fn of(site: &Site) -> Self {
        let mut programs = BTreeSet::new();
        let mut software = BTreeSet::new();
        for service in site.services() {
            match service.program() {
                Runs::Nginx => drop(programs.insert("/usr/sbin/nginx".to_owned())),
                Runs::Command(words) => {
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
        for path in STATE {
            // What is not there changes nothing until it is.
            let state = Path::new(path).metadata().map(|m| (m.mtime(), m.mtime_nsec(), m.size(), m.ino()));
            hash.update(format!("{path} {:?}", state.ok()));
        }
        let digest = hash.finalize();
        let key = levee_policy::audit::hex(digest.get(..12).unwrap_or_default());
        Self { programs, software, root: None, only_looks: false, key }
    }

    /// A partition's root, made from `path`. The path is not looked at: it may be on a file system that does not answer, and it is its maker
    /// who waits for that.
    pub fn root(path: &Path) -> Self {
        let key = short(path.as_os_str().as_encoded_bytes());
        Self {
            programs: Vec::new(),
            software: Vec::new(),
            root: Some(path.to_owned()),
            only_looks: false,
            key,
        }
    }

    /// What stands for a root's path in its image's name.
    fn path(&self) -> &str {
        self.key.split('-').next().unwrap_or_default()
    }

    /// Whether an image of this name is one of this root, whole.
    fn is_root(&self, name: &[u8]) -> bool {
        let rest = name.strip_prefix(self.path().as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"-") && rest.ends_with(b".root"))
    }

    /// What a maker is told on its command line.
    fn arguments(&self) -> impl Iterator<Item = &str> {
        let programs = self.programs.iter().flat_map(|word| ["--program", word]);
        let software = self.software.iter().flat_map(|word| ["--software", word]);
        let flag = if self.only_looks { "--look" } else { "--root" };
        let root = self.root.iter().filter_map(|root| root.to_str()).flat_map(move |root| [flag, root]);
        std::iter::once(self.key.as_str()).chain(programs).chain(software).chain(root)
    }

    /// The image's name in memory; the cache has the programs' by it, too.
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.key, if self.root.is_some() { "root" } else { "erofs" })
    }
}

/// The images in memory, and the one that is being made.
#[derive(Debug)]
pub struct Images {
    /// A tmpfs that has no place in any tree: it ends with the warden.
    memory: Mount,
    maker: Option<Maker>,
}

impl Images {
    /// No image yet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> levee_sys::Result<Self> {
        let (size, owner) = (MEMORY.to_string(), maker::UID.to_string());
        let options = [("size", size.as_str()), ("mode", "700"), ("uid", &owner), ("gid", &owner)];
        // Never to be swapped out, which a kernel before 6.4 cannot promise; there the host should have no swap.
        let memory = Mount::new("tmpfs", &[&options[..], &[("noswap", "")]].concat(), Attributes::DATA)
            .or_else(|_| Mount::new("tmpfs", &options, Attributes::DATA))?;
        Ok(Self { memory, maker: None })
    }

    /// Where the image is, if it is there. Of a root it is the one that was looked at last: whoever makes it leaves no older one.
    pub fn find(&self, wanted: &Wanted) -> Option<PathBuf> {
        let directory = format!("/proc/self/fd/{}", self.memory.root().as_raw_fd());
        if wanted.root.is_some() {
            let all = std::fs::read_dir(directory).into_iter().flatten().flatten();
            let mut of_root = all.filter(|entry| wanted.is_root(entry.file_name().as_encoded_bytes()));
            return of_root.next().map(|entry| entry.path());
        }
        let path = Path::new(&directory).join(wanted.file_name());
        path.exists().then_some(path)
    }

    /// Has the image made, unless one is being made.
    ///
    /// # Errors
    /// The maker cannot be started.
    pub fn begin(&mut self, wanted: &Wanted, programs: &Path, waits: &mut Waits) -> Result<(), Fatal> {
        if self.maker.is_none() {
            let maker = start(wanted, programs, self.memory.root(), waits);
            self.maker = Some(maker.map_err(|e| Fatal::new("make the image of the services' programs", e))?);
        }
        Ok(())
    }

    /// Has a partition's root looked at: if it is as it was, its image is there when that is over, and if not, no other.
    ///
    /// # Errors
    /// The maker cannot be started.
    pub fn look(&self, root: &Wanted, programs: &Path, waits: &mut Waits) -> Result<Maker, Fatal> {
        self.make(&Wanted { only_looks: true, ..root.clone() }, programs, waits)
    }

    /// Has a partition's root made.
    ///
    /// # Errors
    /// The maker cannot be started.
    pub fn make(&self, root: &Wanted, programs: &Path, waits: &mut Waits) -> Result<Maker, Fatal> {
        start(root, programs, self.memory.root(), waits).map_err(|e| Fatal::new("make a partition's root", e))
    }

    /// Whether an image is being made.
    pub fn is_making(&self) -> bool {
        self.maker.is_some()
    }

    /// What became of the image that was being made, once.
    pub fn ended(&mut self) -> Option<Result<(), String>> {
        let result = self.maker.as_ref()?.over()?;
        self.maker = None;
        Some(result)
    }

    /// Ends the maker.
    pub fn stop(&mut self) {
        if let Some(maker) = self.maker.take() {
            maker.kill();
        }
    }
}

fn short(what: &[u8]) -> String {
    levee_policy::audit::hex(Sha256::digest(what).get(..12).unwrap_or_default())
}

fn start(
    wanted: &Wanted,
    programs: &Path,
    memory: BorrowedFd<'_>,
    waits: &mut Waits,
) -> levee_sys::Result<Maker> {
    maker::directory(Path::new(CACHE))?;
    let mut program = Program::new(programs.join("levee-programs"));
    program.args.extend(wanted.arguments().map(Into::into));
    program.fds = vec![memory];
    // A few files of packages are not for everybody to read.
    program.capabilities = CapabilitySet::DAC_READ_SEARCH;
    Maker::start(program, PATIENCE, waits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn all_images_in_memory_have_four_gib_together() {
        let images = Images::new().unwrap();
        let room = rustix::fs::fstatvfs(images.memory.root()).unwrap();
        assert_eq!((room.f_blocks * room.f_frsize, MEMORY), (4 << 30, 4 << 30));
    }

    #[test]
    fn of_a_root_the_image_is_found_whatever_it_was_made_from_and_no_others() {
        let place = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| place.path().join(name));
        fs::create_dir_all(&one).unwrap();
        let images = Images::new().unwrap();
        let wanted = Wanted::root(&one);
        let write = |name: &str| {
            let memory = format!("/proc/self/fd/{}", images.memory.root().as_raw_fd());
            fs::write(Path::new(&memory).join(name), "x").unwrap();
        };
        let name = wanted.as_is(&one.metadata().unwrap()).file_name();
        for wrong in [format!("{name}.new"), Wanted::root(&other).file_name(), "x.erofs".into()] {
            write(&wrong);
            assert_eq!(images.find(&wanted), None, "{wrong}");
        }
        write(&name);
        assert_eq!(images.find(&wanted).unwrap().file_name().unwrap(), name.as_str());
        // Another time, another image: looked at, the one before it goes.
        fs::write(one.join("more"), "").unwrap();
        let looks = Wanted { only_looks: true, ..wanted.clone() };
        make(&looks, images.memory.root()).unwrap();
        assert_eq!(images.find(&wanted), None);
        let name = wanted.as_is(&one.metadata().unwrap()).file_name();
        write(&name);
        make(&looks, images.memory.root()).unwrap();
        assert!(images.find(&wanted).is_some());
        fs::remove_dir_all(&one).unwrap();
        assert!(make(&looks, images.memory.root()).unwrap_err().contains("No such file"));
    }
}
