//! How often one person is given what leaves a record: beyond the site's rate it is refused, so that nobody fills the audit log by
//! what they may do.

use crate::event::*;
use crate::sessions::Sessions;
use crate::{Rate, Time};
use levee_policy::UserName;
use levee_policy::audit::{Event as Entry, Verdict};
use std::collections::BTreeMap;
use std::time::Duration;

/// So many minutes' worth may be used at once.
const BURST: u32 = 2;

/// What is counted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Paced {
    /// A change of level.
    Change,
    /// A file that is carried.
    File,
    /// A word about who reaches a service.
    Access,
}

/// People who have used some of what they may. No more than the site has.
#[derive(Debug, Default)]
pub(crate) struct Pace(BTreeMap<(UserName, Paced), Rate>);

impl Pace {
    fn take(&mut self, key: (UserName, Paced), a_minute: u32, now: Time) -> bool {
        let now = Duration::from_millis(now.as_millis());
        self.0.retain(|other, rate| *other == key || !rate.is_full(now));
        let fresh = || Rate::a_minute(a_minute.saturating_mul(BURST), a_minute, now);
        self.0.entry(key).or_insert_with(fresh).take(now)
    }
}

/// Said to a person who is too fast.
pub(crate) const TOO_FAST: &str = "more than the site allows this person in a minute: wait";

impl Sessions {
    /// Whether a person may have one more grant now, which is about this record; if not, it is counted as refused.
    pub(crate) fn keeps_pace(&mut self, paced: Paced, user: &UserName, granted: &Entry, now: Time) -> bool {
        let limits = self.site.limits();
        let a_minute = match paced {
            Paced::Change | Paced::Access => limits.changes,
            Paced::File => limits.carried,
        };
        let may = self.pace.take((user.clone(), paced), a_minute, now);
        if !may {
            let refused = Entry { verdict: Verdict::Denied, reason: TOO_FAST.into(), ..granted.clone() };
            self.say(Output::Audit(refused));
        }
        may
    }
}
