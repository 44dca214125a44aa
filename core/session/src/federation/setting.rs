//! What operators have set: which postures are in force at all servers, and where.

use crate::Time;
use levee_policy::DomainName;
use levee_policy::site::Placed;
use serde::{Deserialize, Serialize};

/// The most that is in force.
const MOST: usize = 16;
/// The most octets of all ranges of labels in it together, each with what its length takes.
const RANGES: usize = 1_024;

/// No server says a number beyond it.
const LAST: u64 = u64::MAX >> 1;

/// A posture in force, or the default over one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InForce {
    /// Which, and where.
    pub what: Placed,
    /// Until then, where there is an end.
    pub until: Option<Time>,
}

fn fits(in_force: &[InForce]) -> bool {
    let ranges = in_force.iter().flat_map(|one| one.what.ranges());
    in_force.len() <= MOST && ranges.map(|range| range.as_str().len() + 2).sum::<usize>() <= RANGES
}

/// What operators have set: so many times at all servers together, the last time at this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Which time.
    pub number: u64,
    /// At which server; nothing where none was set ever.
    pub at: Option<DomainName>,
    /// What is in force from then on: the last that has a label counts there.
    pub in_force: Vec<InForce>,
}

impl Setting {
    /// Whether it counts in the place of another. Of two that were set at once one does, at every server the same; so it is of two that
    /// say different things by one number and name, as who has a server's key can make them.
    pub fn is_after(&self, other: &Self) -> bool {
        self.number > 0
            && (self.number, &self.at, &self.in_force) > (other.number, &other.at, &other.in_force)
    }

    /// The next one.
    ///
    /// # Errors
    /// There is no greater number, or this is more than can be in force.
    pub fn next(&self, at: &DomainName, in_force: Vec<InForce>) -> Result<Self, String> {
        if !fits(&in_force) {
            return Err(format!(
                "more than {MOST} postures and defaults, or more than {RANGES} octets of ranges, would be in force: say fewer ranges, or \
                 begin anew with `levee posture set default`"
            ));
        }
        let number = self.number.checked_add(1).filter(|number| *number <= LAST);
        let number = number.ok_or("postures were set as often as can be counted")?;
        Ok(Self { number, at: Some(at.clone()), in_force })
    }

    pub(super) fn is_sound(&self) -> bool {
        let is_set = self.number > 0;
        let is_said = self.in_force.iter().all(|one| one.what.is_sound()) && fits(&self.in_force);
        is_set == self.at.is_some() && self.number <= LAST && is_said
    }
}
