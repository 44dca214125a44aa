//! What operators have set: which postures are in force at all servers.

use crate::Time;
use levee_policy::{DomainName, PostureName};
use serde::{Deserialize, Serialize};

/// The most postures in force.
const POSTURES: usize = 16;

/// No server says a number beyond it.
const LAST: u64 = u64::MAX >> 1;

/// A posture in force.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InForce {
    /// Which.
    pub name: PostureName,
    /// Until then, where there is an end.
    pub until: Option<Time>,
}

/// What operators have set: so many times at all servers together, the last time at this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Which time.
    pub number: u64,
    /// At which server; nothing where none was set ever.
    pub at: Option<DomainName>,
    /// The postures in force from then on.
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
    /// There is no greater number.
    pub fn next(&self, at: &DomainName, in_force: Vec<InForce>) -> Result<Self, String> {
        let number = self.number.checked_add(1).filter(|number| *number <= LAST);
        let number = number.ok_or("postures were set as often as can be counted")?;
        Ok(Self { number, at: Some(at.clone()), in_force })
    }

    pub(super) fn is_sound(&self) -> bool {
        let is_set = self.number > 0;
        is_set == self.at.is_some() && self.number <= LAST && self.in_force.len() <= POSTURES
    }
}
