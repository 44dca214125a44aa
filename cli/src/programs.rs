//! Whether levee's programs are those that were installed: each against its digest in a manifest beside them.
//!
//! The manifest is what `sha256sum` writes, a line a program. Who installs levee makes it; a build directory has none. It finds a program that was
//! changed, or is of another version, before the server starts. It does not find what root changes afterwards, manifest and all.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};

use crate::output::shown;

/// The manifest's name.
pub const MANIFEST: &str = "MANIFEST";
/// Octets of a manifest, at most.
const MOST: u64 = 64 << 10;
/// What a host may lack, by the packages of `scripts/packages`: the laboratory, what is of servers alone and what is of workstations alone.
const OF_THE_LABORATORY: [&str; 3] = ["levee-lab", "levee-lab-vault", "levee-lab-datachannel"];
const OF_SERVERS: [&str; 11] = [
    "levee-sessiond",
    "levee-tps",
    "levee-store",
    "levee-programs",
    "levee-plan",
    "levee-channel",
    "levee-frames",
    "levee-fsd",
    "levee-guard",
    "levee-mediator",
    "levee-upflow",
];
const OF_WORKSTATIONS: [&str; 1] = ["levee-tpe"];
const REMEDY: &str = "install levee again";
/// Of a directory in which each may rename or remove their own alone, as /tmp is.
const STICKY: u32 = 0o1000;
/// Root's uid.
const ROOT: u32 = 0;

/// What a host does with levee's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Server,
    Workstation,
    /// Nobody has said: it has what every host has.
    Any,
}

impl Use {
    /// Whether this host has all that it needs without this program.
    fn lacks(self, program: &str) -> bool {
        OF_THE_LABORATORY.contains(&program)
            || (self != Self::Server && OF_SERVERS.contains(&program))
            || (self != Self::Workstation && OF_WORKSTATIONS.contains(&program))
    }
}

/// Where levee's programs are: beside this one.
pub fn directory() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| format!("finding levee's programs: {e}"))?;
    own.parent().map(Path::to_owned).ok_or_else(|| "levee's programs are not found".to_owned())
}

/// Holds the programs in a directory to their manifest: how many there are, `None` where there is no manifest. Those that the host has
/// a use for must all be there; others may be in a package that it does not have.
///
/// # Errors
/// The first program that is not as it was installed, or what is wrong with the manifest; each with the remedy.
pub fn check(directory: &Path, host: Use) -> Result<Option<usize>, String> {
    let path = directory.join(MANIFEST);
    let file = match File::open(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| format!("{}: {e}", path.display()))?,
    };
    let listed = read(&path, file)?;
    alone(directory, ROOT)?;
    let mut found = 0;
    for (name, digest) in &listed {
        let path = directory.join(name);
        let file = match File::open(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                if !host.lacks(name) {
                    return Err(format!("{} is missing: {REMEDY}", path.display()));
                }
                continue;
            }
            opened => opened.map_err(|e| format!("{}: {e}", path.display()))?,
        };
        // What it leads to is in a directory that nobody has looked at.
        if fs::symlink_metadata(&path).map_err(|e| format!("{}: {e}", path.display()))?.is_symlink() {
            return Err(format!("{} is a link: {REMEDY}", path.display()));
        }
        let about = file.metadata().map_err(|e| format!("{}: {e}", path.display()))?;
        is_roots(&path, &about)?;
        if digest_of(file).map_err(|e| format!("{}: {e}", path.display()))? != *digest {
            return Err(format!("{} is not the program that was installed: {REMEDY}", path.display()));
        }
        found += 1;
    }
    let entries = fs::read_dir(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    for entry in entries {
        let name = entry.map_err(|e| format!("{}: {e}", directory.display()))?.file_name();
        let known = name.to_str().is_some_and(|name| name == MANIFEST || listed.contains_key(name));
        if !known {
            let path = directory.join(name);
            return Err(format!("{} was not installed with the others: remove it", shown_path(&path)));
        }
    }
    Ok(Some(found))
}

/// The name without links of what nobody but root, and this uid, can change, nor put another in its place: who can rename a directory
/// above can.
///
/// # Errors
/// It is not there, or somebody else can; with the remedy.
pub fn alone(path: &Path, whose: u32) -> Result<PathBuf, String> {
    let whole = fs::canonicalize(path).map_err(|e| format!("{}: {e}", path.display()))?;
    for above in whole.ancestors() {
        let about = fs::metadata(above).map_err(|e| format!("{}: {e}", above.display()))?;
        let sticky = above != whole && about.uid() == 0 && about.mode() & STICKY != 0;
        let own = about.uid() == whose && about.mode() & 0o022 == 0;
        if !sticky && !own {
            is_roots(above, &about)?;
        }
    }
    Ok(whole)
}

fn shown_path(path: &Path) -> String {
    shown(&path.display().to_string())
}

/// The digests by name.
fn read(path: &Path, file: File) -> Result<BTreeMap<String, String>, String> {
    let fault = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    is_roots(path, &file.metadata().map_err(|e| fault(&e))?)?;
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text).map_err(|e| fault(&e))?;
    if u64::try_from(text.len()).is_ok_and(|octets| octets > MOST) {
        return Err(fault(&"too large"));
    }
    let line = |line: &str| {
        let (digest, name) = line.split_once("  ")?;
        let hex = |octet: u8| octet.is_ascii_digit() || (b'a'..=b'f').contains(&octet);
        let plain = |octet: u8| octet.is_ascii_lowercase() || octet == b'-';
        let sound =
            digest.len() == 64 && digest.bytes().all(hex) && !name.is_empty() && name.bytes().all(plain);
        sound.then(|| (name.to_owned(), digest.to_owned()))
    };
    let mut listed = BTreeMap::new();
    for (text, number) in text.lines().zip(1..) {
        let (name, digest) =
            line(text).ok_or_else(|| fault(&format!("line {number} is no digest and name: {REMEDY}")))?;
        if listed.insert(name, digest).is_some() {
            return Err(fault(&format!("line {number} names a program again: {REMEDY}")));
        }
    }
    Ok(listed)
}

/// Nobody but root may change it.
fn is_roots(path: &Path, about: &Metadata) -> Result<(), String> {
    if about.uid() == 0 && about.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(format!("{}: somebody but root can change it: chown root, chmod go-w", path.display()))
}

fn digest_of(mut file: File) -> std::io::Result<String> {
    let (mut chunk, mut digest) = (vec![0; 64 << 10], Context::new(&SHA256));
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(levee_policy::audit::hex(digest.finish().as_ref())),
            Ok(n) => digest.update(chunk.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host has the package of its use, and what every host has.
    #[test]
    fn a_host_may_lack_what_is_in_another_hosts_package_and_nothing_else() {
        let packages = include_str!("../../scripts/packages");
        let (_, rest) = packages.split_once("case $1 in").unwrap();
        let (cases, _) = rest.split_once("*) echo levee-common").unwrap();
        let mut by_package = BTreeMap::new();
        for case in cases.split(";;") {
            let Some((files, package)) = case.rsplit_once("echo ") else { continue };
            let program =
                |word: &str| word.trim_end_matches(')').strip_prefix("libexec/levee/").map(str::to_owned);
            let mut programs: Vec<String> = files.split_whitespace().filter_map(program).collect();
            programs.sort();
            by_package.insert(package.trim().trim_matches('"').to_owned(), programs);
        }
        let held = [
            ("levee-lab", &OF_THE_LABORATORY[..]),
            ("levee-server", &OF_SERVERS[..]),
            ("levee-workstation", &OF_WORKSTATIONS[..]),
        ];
        for (package, programs) in held {
            let mut programs = programs.to_vec();
            programs.sort_unstable();
            assert_eq!(by_package.get(package).unwrap(), &programs, "{package}");
        }
        for program in OF_SERVERS {
            assert!(!Use::Server.lacks(program) && Use::Workstation.lacks(program), "{program}");
        }
        assert!(Use::Server.lacks("levee-tpe") && !Use::Workstation.lacks("levee-tpe"));
        for host in [Use::Server, Use::Workstation, Use::Any] {
            assert!(host.lacks("levee-lab") && !host.lacks("levee-vault") && !host.lacks("levee-warden"));
        }
    }
}
