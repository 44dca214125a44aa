//! How long the end of a session takes: from the person's word until it is acknowledged. With another server of the federation,
//! that is when it has cut the session, too.

use crate::host::now;
use crate::place::Home;
use crate::stand::Stand;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const FILE: &str = "endings.ndjson";

/// One end of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ending {
    /// When it was over, RFC 3339.
    pub at: String,
    /// Who held the session that was used.
    pub session: Home,
    /// Until it was acknowledged; nothing when it was not as it should be.
    pub seconds: Option<f64>,
    /// What was wrong.
    pub why: Option<String>,
}

/// Those of a run so far. A last line that a kill cut short is left out.
///
/// # Errors
/// When the file cannot be read.
pub fn endings(dir: &Path) -> io::Result<Vec<Ending>> {
    match fs::read_to_string(dir.join(FILE)) {
        Ok(text) => Ok(text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// Has sessions end until each of levee's sites has seen so many, in random order within each round. A site where one went wrong is
/// left alone from then on.
///
/// # Errors
/// When what was measured cannot be kept.
pub(crate) fn measure(
    dir: &Path,
    stand: &mut Stand,
    count: usize,
    seed: u64,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut all = endings(dir)?;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for round in 0..count {
        let mut sites = stand.sites();
        sites.shuffle(&mut rng);
        for session in sites {
            let of = |ending: &&Ending| ending.session == session;
            let done = all.iter().filter(of).count() > round;
            if done || all.iter().filter(of).any(|ending| ending.seconds.is_none()) {
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let (seconds, why) = match stand.end(session) {
                Ok(seconds) => (Some(seconds), None),
                Err(e) => (None, Some(e.to_string())),
            };
            all.push(Ending { at: now(), session, seconds, why });
        }
        let lines: Result<Vec<_>, _> = all.iter().map(serde_json::to_string).collect();
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(dir.join(FILE))?;
        file.write_all((lines?.join("\n") + "\n").as_bytes())?;
    }
    Ok(())
}
