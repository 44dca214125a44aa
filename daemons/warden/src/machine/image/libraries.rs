//! The shared libraries of levee's own programs, which are no package's.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Adds the shared libraries that a program names, and its interpreter.
///
/// # Errors
/// They cannot be found out.
pub fn add(program: &Path, files: &mut BTreeSet<PathBuf>) -> Result<(), String> {
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

/// A path as it is since /bin and /lib are in /usr.
fn merged(path: &str) -> PathBuf {
    let old = ["/bin/", "/sbin/", "/lib/", "/lib64/"].iter().any(|prefix| path.starts_with(prefix));
    if old && fs::symlink_metadata("/lib").is_ok_and(|lib| lib.is_symlink()) {
        PathBuf::from(format!("/usr{path}"))
    } else {
        PathBuf::from(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_comes_with_its_libraries_and_the_loader() {
        let mut named = BTreeSet::new();
        add(Path::new("/usr/sbin/nginx"), &mut named).unwrap();
        let has = |end: &str| named.iter().any(|path| path.to_string_lossy().contains(end));
        assert!(has("libc.so.6") && has("ld-linux"), "{named:?}");
        assert!(named.iter().all(|path| path.starts_with("/usr") && fs::symlink_metadata(path).is_ok()));
    }
}
