//! Where a state directory has what labels keep, and that nobody is at it.

use std::fs::File;
use std::path::Path;

/// Where labels' stores are, in the state directory.
pub(super) const STORES: &str = "stores";
/// Where those of partitions are: a directory for each label.
pub(super) const PARTITIONS: &str = "partitions";

/// That no server runs on this state: sessiond holds its store while one does.
pub(super) fn alone(state: &Path) -> Result<Option<File>, String> {
    let path = state.join("sessiond/sessions.redb");
    let Ok(file) = File::open(&path) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(_) => Err(format!("{} is in use: `levee down` first", path.display())),
    }
}
