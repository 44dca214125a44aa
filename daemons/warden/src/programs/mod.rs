//! The programs of services: an image of what they need of the host's `/usr`, kept in memory once, of which every label has a
//! block device and a file system of its own.
//!
//! | file | idea |
//! |---|---|
//! | `inventory` | which files: the packages of the programs that the site names, and what those need |
//! | `build` | how an image is made, by a process of its own (levee-programs), and put into memory |
//! | `root` | how the image of a partition's own root is made, by the same process |
//! | `wanted` | what an image is to have, as that process finds out |
//! | here | the warden's side: that the images are there, and are others when the host's packages are |
//!
//! Labels that ran programs from one file system would share its inodes and the pages of its files: a page that one has read, or a
//! sleeper on a word in one, tells the other. The image lies in memory whole and is never swapped out, so that what one label
//! reads of it is not felt by another's read; what a label has read of it are pages of its own file system.

mod build;
mod inventory;
mod root;
mod wanted;

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use levee_sys::mount::{Attributes, Mount};
use levee_sys::spawn::Program;
use levee_sys::{Error, Result};
use rustix::thread::CapabilitySet;
use sha2::{Digest, Sha256};

pub use root::make;
pub use wanted::Wanted;

use crate::Fatal;
use crate::maker::{self, Maker};
use crate::memfile::sealed;
use crate::waits::Waits;

/// Images that have been made on this host, by name.
pub const CACHE: &str = "/var/cache/levee/programs";

/// Bytes that images in memory may have together.
pub const MEMORY: u64 = 4 << 30;

/// How long making an image may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// What changes when the host's packages do.
const STATE: [&str; 6] =
    ["/var/lib/dpkg/status", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/local/bin", "/usr/local/lib"];

/// What its maker reads beside `/usr`.
pub const READS: [&str; 2] = ["/var/lib/dpkg", inventory::ALTERNATIVES];

/// The images in memory, and the one that is being made.
#[derive(Debug)]
pub struct Images {
    /// A tmpfs that has no place in any tree: it ends with the warden.
    memory: Mount,
    maker: Option<Maker>,
    /// The site file, of which the maker finds out what an image needs.
    site: String,
    programs: PathBuf,
}

impl Images {
    /// No image yet, for the site file with this text; they are made by the program in the directory `programs`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(site: &str, programs: &Path) -> Result<Self> {
        let (size, owner) = (MEMORY.to_string(), maker::UID.to_string());
        let options = [("size", size.as_str()), ("mode", "700"), ("uid", &owner), ("gid", &owner)];
        // Never to be swapped out, which a kernel before 6.4 cannot promise; there the host should have no swap.
        let memory = Mount::new("tmpfs", &[&options[..], &[("noswap", "")]].concat(), Attributes::DATA)
            .or_else(|_| Mount::new("tmpfs", &options, Attributes::DATA))?;
        Ok(Self { memory, maker: None, site: site.to_owned(), programs: programs.to_owned() })
    }

    fn directory(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.memory.root().as_raw_fd()).into()
    }

    /// What stands for the site and the host as it is now.
    fn key(&self) -> String {
        short((self.site.clone() + &state()).as_bytes())
    }

    /// Where the image of the programs is, if it is there.
    pub fn find(&self) -> Option<PathBuf> {
        Some(self.directory().join(format!("{}.erofs", self.key()))).filter(|path| path.exists())
    }

    /// The image of a partition's root that was looked at last: whoever makes it leaves no older one. The path is not looked at: it may be on a
    /// file system that does not answer, and it is its maker who waits for that.
    pub fn find_root(&self, root: &Path) -> Option<PathBuf> {
        let key = format!("{}-", short(root.as_os_str().as_encoded_bytes()));
        let is_of_root = |name: &[u8]| name.starts_with(key.as_bytes()) && name.ends_with(b".root");
        let mut all = std::fs::read_dir(self.directory()).into_iter().flatten().flatten();
        all.find(|entry| is_of_root(entry.file_name().as_encoded_bytes())).map(|entry| entry.path())
    }

    /// Has the image of the programs made, unless one is being made.
    ///
    /// # Errors
    /// The maker cannot be started.
    pub fn begin(&mut self, waits: &mut Waits) -> std::result::Result<(), Fatal> {
        if self.maker.is_none() {
            let maker = self.start(&[self.key().as_ref()], &self.site, waits);
            let maker = maker.map_err(|e| Fatal::new("make the image of the services' programs", e))?;
            self.maker = Some(maker);
        }
        Ok(())
    }

    /// Has a partition's root looked at: if it is as it was, its image is there when that is over, and if not, no other.
    ///
    /// # Errors
    /// The maker cannot be started.
    pub fn look(&self, root: &Path, waits: &mut Waits) -> std::result::Result<Maker, Fatal> {
        self.of_root("--look", root, waits)
    }

    /// Has a partition's root made.
    ///
    /// # Errors
    /// The maker cannot be started.
    pub fn make(&self, root: &Path, waits: &mut Waits) -> std::result::Result<Maker, Fatal> {
        self.of_root("--root", root, waits)
    }

    fn of_root(&self, what: &str, root: &Path, waits: &mut Waits) -> std::result::Result<Maker, Fatal> {
        let maker = self.start(&[what.as_ref(), root.as_os_str()], "", waits);
        maker.map_err(|e| Fatal::new("make a partition's root", e))
    }

    fn start(&self, arguments: &[&OsStr], site: &str, waits: &mut Waits) -> Result<Maker> {
        maker::directory(Path::new(CACHE))?;
        let site = sealed("site", site.as_bytes()).map_err(|e| Error::new("hand over the site file", e))?;
        let mut program = Program::new(self.programs.join("levee-programs"));
        program.args.extend(arguments.iter().map(Into::into));
        program.stdio[0] = Some(site.as_fd());
        program.fds = vec![self.memory.root()];
        // A few files of packages are not for everybody to read.
        program.capabilities = CapabilitySet::DAC_READ_SEARCH;
        Maker::start(program, PATIENCE, waits)
    }

    /// Whether an image is being made.
    pub fn is_making(&self) -> bool {
        self.maker.is_some()
    }

    /// What became of the image that was being made, once.
    pub fn ended(&mut self) -> Option<std::result::Result<(), String>> {
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

/// The host's programs as they are now.
fn state() -> String {
    // What is not there changes nothing until it is.
    let one = |path| Path::new(path).metadata().map(|m| (m.mtime(), m.mtime_nsec(), m.size(), m.ino())).ok();
    STATE.map(|path| format!("{path} {:?}", one(path))).concat()
}

fn short(what: &[u8]) -> String {
    levee_policy::audit::hex(Sha256::digest(what).get(..12).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn all_images_in_memory_have_four_gib_together() {
        let images = Images::new("", Path::new("/")).unwrap();
        let room = rustix::fs::fstatvfs(images.memory.root()).unwrap();
        assert_eq!((room.f_blocks * room.f_frsize, MEMORY), (4 << 30, 4 << 30));
    }

    #[test]
    fn who_makes_a_partitions_root_is_not_given_the_site_file() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let maker = place.path().join("levee-programs");
        fs::write(&maker, "#!/bin/sh\ncat > /proc/self/fd/3/given\n").unwrap();
        for open in [place.path(), &maker] {
            fs::set_permissions(open, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let mut images = Images::new("[site]", place.path()).unwrap();
        let mut waits = Waits::new().unwrap();
        let given = |images: &Images, over: &dyn Fn() -> Option<std::result::Result<(), String>>| {
            while over().is_none() {
                std::thread::sleep(Duration::from_millis(10));
            }
            fs::read_to_string(images.directory().join("given")).unwrap()
        };
        for maker in [images.look(place.path(), &mut waits), images.make(place.path(), &mut waits)] {
            let maker = maker.unwrap();
            assert_eq!(given(&images, &|| maker.over()), "");
        }
        images.begin(&mut waits).unwrap();
        assert_eq!(given(&images, &|| images.maker.as_ref().and_then(Maker::over)), "[site]");
    }

    #[test]
    fn of_a_root_the_image_is_found_whatever_it_was_made_from_and_no_others() {
        let place = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| place.path().join(name));
        fs::create_dir_all(&one).unwrap();
        let images = Images::new("", Path::new("/")).unwrap();
        let wanted = Wanted::root(&one);
        let write = |name: &str| {
            let memory = format!("/proc/self/fd/{}", images.memory.root().as_raw_fd());
            fs::write(Path::new(&memory).join(name), "x").unwrap();
        };
        let name = wanted.as_is(&one.metadata().unwrap()).file_name();
        for wrong in [format!("{name}.new"), Wanted::root(&other).file_name(), "x.erofs".into()] {
            write(&wrong);
            assert_eq!(images.find_root(&one), None, "{wrong}");
        }
        write(&name);
        assert_eq!(images.find_root(&one).unwrap().file_name().unwrap(), name.as_str());
        // Another time, another image: looked at, the one before it goes.
        fs::write(one.join("more"), "").unwrap();
        let looks = Wanted { only_looks: true, ..wanted.clone() };
        make(&looks, images.memory.root()).unwrap();
        assert_eq!(images.find_root(&one), None);
        let name = wanted.as_is(&one.metadata().unwrap()).file_name();
        write(&name);
        make(&looks, images.memory.root()).unwrap();
        assert!(images.find_root(&one).is_some());
        fs::remove_dir_all(&one).unwrap();
        assert!(make(&looks, images.memory.root()).unwrap_err().contains("No such file"));
    }
}
