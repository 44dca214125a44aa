//! What an operator sets, and where: a posture or the default, at all labels or at some.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::posture::Posture;
use crate::names::{PostureName, RangeName};

/// A posture, or the default, and where it is to count. Of a list of them the last that has a label counts there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Placed {
    /// Which posture; `None`: the default.
    pub posture: Option<PostureName>,
    /// At which labels of those that it is for: one range at least. `None`: at all of them.
    pub labels: Option<Vec<RangeName>>,
}

impl Placed {
    /// This posture, at all labels that it is for.
    pub fn everywhere(posture: PostureName) -> Self {
        Self { posture: Some(posture), labels: None }
    }

    /// Whether each range of the other, as it is written, is one of this; all of them where this has none.
    pub fn includes(&self, other: &Self) -> bool {
        let is_one = |range: &RangeName| self.ranges().any(|own| own == range);
        self.labels.is_none() || other.labels.is_some() && other.ranges().all(is_one)
    }

    /// The posture's name, or that of the default.
    pub fn name(&self) -> &str {
        self.posture.as_ref().map_or(Posture::DEFAULT, PostureName::as_str)
    }

    /// The ranges that were named.
    pub fn ranges(&self) -> impl Iterator<Item = &RangeName> {
        self.labels.iter().flatten()
    }

    /// Whether it says something: the default at all labels is a list without it, and no range at all is nowhere.
    pub fn is_sound(&self) -> bool {
        self.labels.as_ref().map_or(self.posture.is_some(), |labels| !labels.is_empty())
    }
}

/// `siege`, or `siege at SECRET and CONFIDENTIAL..CONFIDENTIAL//MED`.
impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        for (number, range) in self.ranges().enumerate() {
            write!(f, "{}{range}", if number == 0 { " at " } else { " and " })?;
        }
        Ok(())
    }
}
