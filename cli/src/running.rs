//! Which server or workstation of this host is meant, where nobody says.

use std::fs;
use std::path::{Path, PathBuf};

/// Said where no run directory is found.
const NOTHING: &str =
    "nothing runs here; `levee up SITE-FILE` starts a server (if it was given --run, say so here too)";

/// The run directory that is meant when none is given: the only one with a lock.
pub fn only_run() -> Result<PathBuf, String> {
    only_with(Path::new("/run/levee"), "lock")
}

/// The only run directory below `runs` that has this file.
pub fn only_with(runs: &Path, file: &str) -> Result<PathBuf, String> {
    let entries = match fs::read_dir(runs) {
        Ok(entries) => entries,
        // Made by the first `levee up`.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(NOTHING.to_owned()),
        Err(e) => return Err(format!("{}: {e}; say which with --run", runs.display())),
    };
    let mut found: Vec<PathBuf> =
        entries.filter_map(Result::ok).map(|e| e.path()).filter(|path| path.join(file).exists()).collect();
    found.sort();
    match found.as_slice() {
        [] => Err(NOTHING.to_owned()),
        [one] => Ok(one.clone()),
        several => {
            let names: Vec<String> = several.iter().map(|path| path.display().to_string()).collect();
            Err(format!("several run here; say which with --run: {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_run_directory_is_meant_and_where_it_is_not_the_only_one_they_are_named() {
        let place = tempfile::tempdir().unwrap();
        let found = || only_with(place.path(), "lock");
        assert_eq!(only_with(&place.path().join("none"), "lock").unwrap_err(), NOTHING);
        assert_eq!(found().unwrap_err(), NOTHING);
        fs::create_dir(place.path().join("harbour")).unwrap();
        assert_eq!(found().unwrap_err(), NOTHING, "a directory in which nothing ever ran");
        fs::write(place.path().join("harbour/lock"), "1").unwrap();
        assert_eq!(found().unwrap(), place.path().join("harbour"));
        fs::create_dir(place.path().join("fleet")).unwrap();
        fs::write(place.path().join("fleet/lock"), "2").unwrap();
        let said = found().unwrap_err();
        assert!(said.contains("--run") && said.contains("/fleet, ") && said.ends_with("/harbour"), "{said}");
    }
}
