//! The files that services need, by the package lists of the distribution (dpkg): those of the packages that their programs
//! belong to, and of all that these depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// dpkg's own list: another one when a package has changed.
pub const STATUS: &str = "/var/lib/dpkg/status";

/// What runs when packages are installed, and what it needs: no program asks for it.
const INSTALLING: [&str; 6] = ["debconf", "dpkg", "init-system-helpers", "lsb-base", "perl-base", "tar"];

/// What no program needs of `/usr`.
const LEFT_OUT: [&str; 9] = [
    "/usr/share/doc/",
    "/usr/share/man/",
    "/usr/share/locale/",
    "/usr/share/info/",
    "/usr/share/lintian/",
    "/usr/share/bug/",
    "/usr/share/bash-completion/",
    "/usr/lib/systemd/",
    "/usr/src/",
];

/// The C library's package: what every program needs.
const EVERYBODY: &str = "libc6";

/// All paths beneath `/usr` that these programs need, directories first.
///
/// # Errors
/// A program is not there, or dpkg does not answer.
pub fn files(programs: &BTreeSet<String>) -> Result<BTreeSet<PathBuf>, String> {
    let installed = Installed::read()?;
    let mut packages = BTreeSet::new();
    let mut files = BTreeSet::new();
    installed.with_dependencies(EVERYBODY, &mut packages);
    for program in programs {
        let path = Path::new(program);
        if !path.exists() {
            return Err(format!("{program}: there is no such program"));
        }
        let mut owned = false;
        for package in owners(path)? {
            installed.with_dependencies(&package, &mut packages);
            owned = true;
        }
        if !owned {
            // Not of the distribution: itself, and the libraries that it names.
            files.insert(path.to_owned());
            libraries(path, &mut files)?;
        }
    }
    if !packages.is_empty() {
        let listed = dpkg(&["-L"], packages.iter().map(String::as_str))?;
        files.extend(listed.lines().filter_map(wanted));
    }
    Ok(files)
}

/// Adds the shared libraries that a program names, and its interpreter.
///
/// # Errors
/// They cannot be found out.
pub fn libraries(program: &Path, files: &mut BTreeSet<PathBuf>) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("the libraries of {}: {e}", program.display());
    let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output().map_err(|e| failed(&e))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("not found") {
        return Err(failed(&text.trim()));
    }
    // «libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)», «/lib64/ld-linux-x86-64.so.2 (0x…)»; for a static program or a
    // script, words without a path.
    for word in text.split_whitespace().filter(|word| word.starts_with('/')) {
        let mut path = merged(word);
        files.insert(path.clone());
        // With what a link leads to.
        while let Ok(next) = fs::read_link(&path) {
            path = merged(&path.parent().unwrap_or(Path::new("/")).join(next).display().to_string());
            if !files.insert(path.clone()) {
                break;
            }
        }
    }
    Ok(())
}

/// What is installed, and what each package depends on.
struct Installed {
    depends: BTreeMap<String, Vec<Vec<String>>>,
    provided: BTreeMap<String, String>,
}

impl Installed {
    fn read() -> Result<Self, String> {
        let form = "-f=${db:Status-Abbrev}#${Package}#${Depends}, ${Pre-Depends}#${Provides}\n";
        let text = dpkg(&["-W", form], std::iter::empty())?;
        let mut this = Self { depends: BTreeMap::new(), provided: BTreeMap::new() };
        for line in text.lines() {
            let fields: Vec<&str> = line.split('#').collect();
            let [status, package, depends, provides] = fields.as_slice() else { continue };
            if !status.starts_with("ii") {
                continue;
            }
            let alternatives =
                |text: &str| text.split('|').map(bare).filter(|name| !name.is_empty()).collect();
            this.depends.insert((*package).to_owned(), depends.split(',').map(alternatives).collect());
            for name in provides.split(',').map(bare).filter(|name| !name.is_empty()) {
                this.provided.insert(name, (*package).to_owned());
            }
        }
        Ok(this)
    }

    fn with_dependencies(&self, package: &str, all: &mut BTreeSet<String>) {
        let Some(depends) = self.depends.get(package) else { return };
        if INSTALLING.contains(&package) || !all.insert(package.to_owned()) {
            return;
        }
        for alternatives in depends {
            let installed = alternatives.iter().find_map(|name| {
                if self.depends.contains_key(name) { Some(name) } else { self.provided.get(name) }
            });
            if let Some(name) = installed {
                self.with_dependencies(name, all);
            }
        }
    }
}

/// The packages that a path belongs to; none for one of nobody's.
fn owners(path: &Path) -> Result<BTreeSet<String>, String> {
    let mut places: Vec<PathBuf> = vec![path.to_owned()];
    places.extend(fs::canonicalize(path));
    // dpkg knows a path as its package has it, which may be from before /bin and /lib went into /usr.
    let before: Vec<PathBuf> =
        places.iter().filter_map(|path| Some(Path::new("/").join(path.strip_prefix("/usr").ok()?))).collect();
    places.extend(before);
    let mut owners = BTreeSet::new();
    for place in places {
        let output = Command::new("dpkg-query").arg("-S").arg(&place).env("LC_ALL", "C").output();
        let output = output.map_err(|e| format!("run dpkg-query: {e}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // «dash: /bin/sh», «libc6:amd64: /lib/…», «a, b: /usr/share/x»; what diverts a path is no owner.
        for line in text.lines().filter(|line| !line.starts_with("diversion ")) {
            if let Some((packages, _)) = line.rsplit_once(": ") {
                owners.extend(packages.split(',').map(bare));
            }
        }
    }
    Ok(owners)
}

/// A package's name without version, architecture and spaces.
fn bare(text: &str) -> String {
    text.trim().chars().take_while(|c| !matches!(c, ' ' | '(' | ':')).collect()
}

/// A path as it is since /bin and /lib are in /usr.
fn merged(path: &str) -> PathBuf {
    let old = ["/bin/", "/sbin/", "/lib/", "/lib64/"].iter().any(|prefix| path.starts_with(prefix));
    if old && fs::symlink_metadata("/lib").is_ok_and(|lib| lib.is_symlink()) {
        PathBuf::from(format!("/usr{path}"))
    } else {
        PathBuf::from(path)
    }
}

fn wanted(path: &str) -> Option<PathBuf> {
    let path = merged(path);
    let text = path.to_str()?;
    let needed = text.starts_with("/usr/") && !LEFT_OUT.iter().any(|prefix| text.starts_with(prefix));
    // What the administrator has removed is not missed.
    (needed && fs::symlink_metadata(&path).is_ok()).then_some(path)
}

fn dpkg<'a>(arguments: &[&str], more: impl Iterator<Item = &'a str>) -> Result<String, String> {
    let output = Command::new("dpkg-query").args(arguments).args(more).env("LC_ALL", "C").output();
    let output = output.map_err(|e| {
        format!(
            "run dpkg-query: {e}; a kernel of its own needs Debian's package lists to find a service's files"
        )
    })?;
    if !output.status.success() {
        return Err(format!("dpkg-query: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_comes_with_the_libraries_of_its_packages() {
        let nginx = BTreeSet::from(["/usr/sbin/nginx".to_owned()]);
        let files = files(&nginx).unwrap();
        let has = |end: &str| files.iter().any(|path| path.to_string_lossy().ends_with(end));
        assert!(has("/usr/sbin/nginx") && has("/libc.so.6") && has("/ld-linux-x86-64.so.2"), "{files:?}");
        let mut named = BTreeSet::new();
        libraries(Path::new("/usr/sbin/nginx"), &mut named).unwrap();
        assert!(named.iter().any(|path| path.to_string_lossy().contains("libc.so.6")));
        // Beneath /usr alone, and each is there.
        assert!(files.iter().all(|path| path.starts_with("/usr") && fs::symlink_metadata(path).is_ok()));
        let none = BTreeSet::from(["/usr/sbin/no-such-program".to_owned()]);
        assert!(super::files(&none).unwrap_err().contains("no such program"));
    }
}
