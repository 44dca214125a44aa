//! Which files of the host's a site's services need: by the packages that dpkg knows, or all of `/usr` on a host without it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where dpkg keeps what it knows.
const DPKG: &str = "/var/lib/dpkg";

/// The host's links of programs that have alternatives (update-alternatives(1)).
pub const ALTERNATIVES: &str = "/etc/alternatives";

/// What no service needs to run.
const LEFT_OUT: [&str; 10] = [
    "/usr/include",
    "/usr/lib/debug",
    "/usr/share/bug",
    "/usr/share/doc",
    "/usr/share/doc-base",
    "/usr/share/info",
    "/usr/share/lintian",
    "/usr/share/locale",
    "/usr/share/man",
    "/usr/src",
];

/// Packages of the same source that are for people who build programs.
const FOR_BUILDERS: [&str; 5] = ["-dev", "-dbg", "-dbgsym", "-doc", "-examples"];

/// An installed package, as far as it matters.
#[derive(Debug, Default)]
struct Package {
    source: String,
    essential: bool,
    /// Each a list of alternatives.
    needs: Vec<Vec<String>>,
}

/// What is installed.
#[derive(Debug)]
pub struct Inventory {
    packages: BTreeMap<String, Package>,
    /// Packages by the names that they stand in for.
    provided: BTreeMap<String, String>,
    /// Files of each package, as they are found in `/usr`.
    files: BTreeMap<String, Vec<PathBuf>>,
}

impl Inventory {
    /// What dpkg knows; `None` on a host without it.
    ///
    /// # Errors
    /// Its files cannot be read.
    pub fn read() -> io::Result<Option<Self>> {
        let status = match fs::read(Path::new(DPKG).join("status")) {
            Ok(status) => String::from_utf8_lossy(&status).into_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let mut inventory = Self::of(&status);
        for entry in fs::read_dir(Path::new(DPKG).join("info"))? {
            let path = entry?.path();
            if path.extension() != Some(OsStr::new("list")) {
                continue;
            }
            // PACKAGE.list, or PACKAGE:ARCHITECTURE.list.
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let name = stem.split(':').next().unwrap_or_default().to_owned();
            if inventory.packages.contains_key(&name) {
                let list = fs::read(&path)?;
                let files =
                    list.split(|byte| *byte == b'\n').filter_map(|line| in_usr(OsStr::from_bytes(line)));
                inventory.files.entry(name).or_default().extend(files);
            }
        }
        Ok(Some(inventory))
    }

    /// The packages of dpkg's status file (deb-control(5)) that are installed whole.
    fn of(status: &str) -> Self {
        let (mut packages, mut provided) = (BTreeMap::new(), BTreeMap::new());
        for paragraph in status.split("\n\n") {
            let field = |name: &str| {
                let line = |line: &&str| line.split_once(':').is_some_and(|(key, _)| key == name);
                paragraph
                    .lines()
                    .find(line)
                    .and_then(|line| line.split_once(':'))
                    .map_or("", |(_, v)| v.trim())
            };
            let name = field("Package");
            if name.is_empty() || field("Status") != "install ok installed" {
                continue;
            }
            for other in field("Provides").split(',').filter_map(first_word) {
                provided.entry(other.to_owned()).or_insert_with(|| name.to_owned());
            }
            let all = ["Pre-Depends", "Depends"].map(field);
            let needs = all
                .iter()
                .flat_map(|list| list.split(','))
                .map(|any| any.split('|').filter_map(first_word).map(str::to_owned).collect::<Vec<_>>());
            let source = first_word(field("Source")).unwrap_or(name).to_owned();
            let needs = needs.filter(|any| !any.is_empty()).collect();
            let package = Package { source, essential: field("Essential") == "yes", needs };
            packages.insert(name.to_owned(), package);
        }
        Self { packages, provided, files: BTreeMap::new() }
    }

    /// Every file of the essential packages, and of those that programs and further packages need.
    ///
    /// A program brings the package that owns it, with the others of its source that are installed (a server's modules, an
    /// interpreter's library); a path that no package owns comes as it is.
    ///
    /// # Errors
    /// A package that is not installed, or a path that is not there.
    pub fn closure(&self, programs: &[String], software: &[String]) -> Result<BTreeSet<PathBuf>, String> {
        let essential = self.packages.iter().filter(|(_, package)| package.essential);
        let mut wanted: Vec<&str> = essential.map(|(name, _)| name.as_str()).collect();
        let mut files = BTreeSet::new();
        let owned = |path: &Path| {
            let owners = self.files.iter().filter(|(_, files)| files.iter().any(|file| file == path));
            owners.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        };
        for program in programs {
            // Of words that only look like a program's path, nothing comes.
            let Some(path) = in_usr(OsStr::new(program)).filter(|path| path.is_file()) else { continue };
            let owners = owned(&path);
            if owners.is_empty() {
                files.insert(path);
            }
            wanted.extend(owners.into_iter().flat_map(|owner| self.of_one_source(owner)));
        }
        for word in software {
            if !word.starts_with('/') {
                let name =
                    self.installed(word).ok_or_else(|| format!("the package {word} is not installed"))?;
                wanted.extend(self.of_one_source(name));
            } else {
                let path = in_usr(OsStr::new(word)).filter(|path| path.exists());
                let path = path.ok_or_else(|| format!("{word} is not there, or not beneath /usr"))?;
                tree(&path, &mut files).map_err(|e| format!("{word}: {e}"))?;
            }
        }
        let mut seen = BTreeSet::new();
        while let Some(name) = wanted.pop() {
            let Some((name, package)) = self.packages.get_key_value(name) else { continue };
            if seen.insert(name) {
                let of = |any: &Vec<String>| any.iter().find_map(|name| self.installed(name));
                wanted.extend(package.needs.iter().filter_map(of));
                files.extend(self.files.get(name).into_iter().flatten().cloned());
            }
        }
        files.retain(|file| !is_left_out(file));
        Ok(files)
    }

    /// The package of this name, or one that stands in for it.
    fn installed(&self, name: &str) -> Option<&str> {
        let own = self.packages.get_key_value(name).map(|(name, _)| name);
        own.or_else(|| self.provided.get(name)).map(String::as_str)
    }

    fn of_one_source(&self, name: &str) -> Vec<&str> {
        let Some(source) = self.packages.get(name).map(|package| &package.source) else { return Vec::new() };
        let for_builders = |name: &str| FOR_BUILDERS.iter().any(|end| name.ends_with(end));
        let same = self.packages.iter().filter(|(_, package)| package.source == *source);
        same.map(|(name, _)| name.as_str()).filter(|other| *other == name || !for_builders(other)).collect()
    }
}

/// Every file of `/usr` but what is left out, for a host whose packages are not known.
///
/// # Errors
/// A directory cannot be read.
pub fn everything() -> io::Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    tree(Path::new("/usr"), &mut files)?;
    Ok(files)
}

/// What belongs to files without being any package's: compiled Python.
pub fn compiled(files: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    let python = files.iter().filter(|file| file.extension() == Some(OsStr::new("py")));
    let directories: BTreeSet<&Path> = python.filter_map(|file| file.parent()).collect();
    directories.into_iter().flat_map(|directory| entries(&directory.join("__pycache__"))).collect()
}

/// Everything in a directory; nothing, if it cannot be read.
pub fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}

/// What is beneath `path`, itself among it, without what is left out and without following links.
fn tree(path: &Path, files: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    if is_left_out(path) {
        return Ok(());
    }
    files.insert(path.to_owned());
    if path.symlink_metadata()?.is_dir() {
        for entry in fs::read_dir(path)? {
            tree(&entry?.path(), files)?;
        }
    }
    Ok(())
}

/// Words of a text that could be paths of programs, as in a shell's script.
pub fn paths(text: &str) -> impl Iterator<Item = &str> {
    let part_of_a_path = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    text.split(move |c: char| !part_of_a_path(c)).filter(|word| in_usr(OsStr::new(word)).is_some())
}

/// A path as it is found in `/usr`, with the directories that are merged into it; `None` for what lies elsewhere.
fn in_usr(path: &OsStr) -> Option<PathBuf> {
    let path = Path::new(path);
    let below = |top: &str| path.strip_prefix(top).ok().filter(|rest| !rest.as_os_str().is_empty());
    if below("/usr").is_some() {
        return Some(path.to_owned());
    }
    let merged = ["/bin", "/sbin", "/lib", "/lib64"].into_iter().find(|top| below(top).is_some())?;
    Some(Path::new("/usr").join(merged.trim_start_matches('/')).join(below(merged)?))
}

fn is_left_out(path: &Path) -> bool {
    LEFT_OUT.iter().any(|top| path.starts_with(top)) || path.extension() == Some(OsStr::new("a"))
}

/// The name in `name (>= version)` or `name:arch`.
fn first_word(text: &str) -> Option<&str> {
    text.split_whitespace().next().and_then(|word| word.split(':').next()).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Package: base\nStatus: install ok installed\nEssential: yes\nDepends: lib (>= 2)\n\n\
        Package: lib\nStatus: install ok installed\n\n\
        Package: server\nSource: suite (1)\nStatus: install ok installed\nDepends: gone | transport, lib\n\n\
        Package: server-module\nSource: suite\nStatus: install ok installed\n\n\
        Package: server-dev\nSource: suite\nStatus: install ok installed\n\n\
        Package: post\nStatus: install ok installed\nProvides: transport\n\n\
        Package: half\nStatus: install ok half-installed\n\n\
        Package: other\nStatus: install ok installed\n";

    fn inventory() -> Inventory {
        let mut inventory = Inventory::of(STATUS);
        for name in inventory.packages.keys() {
            let files = vec![format!("/usr/lib/{name}").into(), format!("/usr/share/doc/{name}").into()];
            inventory.files.insert(name.clone(), files);
        }
        inventory
    }

    fn names(files: &BTreeSet<PathBuf>) -> Vec<String> {
        files.iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_site_brings_essential_packages_and_what_it_names_with_all_that_they_need() {
        let files = inventory().closure(&[], &["server".into()]).unwrap();
        assert_eq!(names(&files), ["base", "lib", "post", "server", "server-module"]);
        assert_eq!(names(&inventory().closure(&[], &[]).unwrap()), ["base", "lib"]);
    }

    #[test]
    fn what_is_not_installed_is_an_error_by_name() {
        for word in ["none", "half", "/usr/lib/none/such", "/etc/passwd"] {
            assert!(inventory().closure(&[], &[word.into()]).unwrap_err().contains(word));
        }
    }

    #[test]
    fn paths_are_found_in_a_script_and_where_the_merged_directories_lead() {
        let found: Vec<&str> =
            paths("cat >/run/x <<E\nexec /usr/sbin/dovecot -F; (/bin/true)'/etc/x'").collect();
        assert_eq!(found, ["/usr/sbin/dovecot", "/bin/true"]);
        assert_eq!(in_usr(OsStr::new("/lib64/ld.so")), Some("/usr/lib64/ld.so".into()));
        assert_eq!(in_usr(OsStr::new("/usr")), None);
        assert_eq!(in_usr(OsStr::new("/library/x")), None);
    }

    #[test]
    fn on_this_host_a_program_brings_what_it_runs_with() {
        let Some(inventory) = Inventory::read().unwrap() else { return };
        let files = inventory.closure(&["/bin/sh".into(), "/usr/sbin/nginx".into()], &[]).unwrap();
        let has = |end: &str| files.iter().any(|file| file.ends_with(end));
        assert!(has("sbin/nginx") && has("libc.so.6") && has("bin/dash"));
        assert!(!files.iter().any(|file| file.starts_with("/usr/share/doc")));
    }
}
