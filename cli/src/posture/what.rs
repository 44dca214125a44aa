//! A posture and ranges of labels, as they are typed.

use levee_policy::site::{Placed, Posture};
use levee_policy::{PostureName, RangeName};

use crate::output;

/// What somebody wants to be in force, and where.
#[derive(Debug, clap::Args)]
pub struct What {
    /// The posture, as the site file names it; `default` ends all of them, or with --labels has none count at these
    pub posture: String,
    /// Only at these labels: one, or a range such as CONFIDENTIAL..SECRET//NATO, as the site file writes it; may be given again
    #[arg(long, value_name = "RANGE")]
    pub labels: Vec<RangeName>,
}

impl What {
    /// The same, read.
    pub fn placed(&self) -> Result<Placed, String> {
        let posture = match self.posture.as_str() {
            Posture::DEFAULT => None,
            name => {
                Some(PostureName::new(name).map_err(|e| format!("{}: {e}", output::shown(&self.posture)))?)
            }
        };
        Ok(Placed { posture, labels: (!self.labels.is_empty()).then(|| self.labels.clone()) })
    }
}
