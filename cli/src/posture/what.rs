//! A posture and ranges of labels, as they are typed.

use levee_policy::site::{Placed, Posture};
use levee_policy::{PostureName, RangeName, Site};

use crate::output;

/// What somebody wants to be in force, and where.
#[derive(Debug, clap::Args)]
pub struct What {
    /// The posture, as the site file names it; `default` ends all of them, or with --labels has none count at these
    pub posture: String,
    /// Only at these labels: one, or a range such as CONFIDENTIAL..SECRET//NATO, in any case; may be given again
    #[arg(long, value_name = "RANGE")]
    pub labels: Vec<RangeName>,
}

impl What {
    /// The same, read: its ranges in the words of the site, where it is known. Where it is not, or has no such range, the server says what is wrong.
    pub fn placed(&self, site: Option<&Site>) -> Result<Placed, String> {
        let posture = match self.posture.as_str() {
            Posture::DEFAULT => None,
            name => {
                Some(PostureName::new(name).map_err(|e| format!("{}: {e}", output::shown(&self.posture)))?)
            }
        };
        let meant = |range: &RangeName| match site {
            Some(site) => site.typed_range(range.clone()),
            None => range.clone(),
        };
        let labels: Vec<RangeName> = self.labels.iter().map(meant).collect();
        Ok(Placed { posture, labels: (!labels.is_empty()).then_some(labels) })
    }
}
