//! `levee check --beside`: the site files of hosts between which one-way channels lead.

use crate::keys::Unfit;
use crate::site;
use levee_policy::{Site, between};
use std::path::{Path, PathBuf};

/// What does not fit between these sites, and what nothing is known of.
///
/// # Errors
/// A file that cannot be read, or is not sound.
pub fn findings(own: &Site, path: &Path, others: &[PathBuf]) -> Result<(Vec<Unfit>, Vec<String>), String> {
    if others.is_empty() && own.channels().iter().all(|channel| channel.wire().is_none()) {
        return Ok((Vec::new(), Vec::new()));
    }
    let others = others.iter().map(|other| site::read(other)).collect::<Result<Vec<Site>, String>>()?;
    let all: Vec<&Site> = std::iter::once(own).chain(&others).collect();
    let found = between::check(&all);
    let unfit = |(what, remedy)| Unfit { file: path.to_owned(), what, remedy };
    let alone = found.alone.into_iter().map(|what| {
        format!("{what}: name it with --beside, and the flow is closed over both (levee check --help)")
    });
    Ok((found.wrong.into_iter().map(unfit).collect(), alone.collect()))
}
