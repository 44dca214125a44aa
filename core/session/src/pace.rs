//! How often one person is given what leaves a record: beyond the site's rate it is refused, so that nobody fills the audit log by
//! what they may do.

use crate::event::*;
use crate::sessions::Sessions;
use crate::{Rate, Time};
use levee_policy::audit::{Event as Entry, Verdict};
use levee_policy::{HostName, UserName};
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
    /// A sign-on, by the right password.
    SignOn,
    /// The same, to unlock a session.
    Unlock,
    /// A new password.
    Password,
    /// A session that is taken up again over another trusted path.
    Resume,
}

impl Paced {
    /// Whether it counts at each workstation for itself: else who has somebody's password, or a workstation of theirs, could keep them from
    /// signing on at another.
    fn is_of_one_workstation(self) -> bool {
        matches!(self, Self::SignOn | Self::Unlock | Self::Password | Self::Resume)
    }
}

/// People who have used some of what they may. No more than the site has, each at each workstation.
#[derive(Debug, Default)]
pub(crate) struct Pace(BTreeMap<(UserName, Option<HostName>, Paced), Rate>);

impl Pace {
    fn take(&mut self, key: (UserName, Option<HostName>, Paced), a_minute: u32, now: Time) -> bool {
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
            Paced::File => limits.carried,
            _ => limits.changes,
        };
        let host = granted.host.clone().filter(|_| paced.is_of_one_workstation());
        let may = self.pace.take((user.clone(), host, paced), a_minute, now);
        if !may {
            let refused = Entry { verdict: Verdict::Denied, reason: TOO_FAST.into(), ..granted.clone() };
            self.say(Output::Audit(refused));
        }
        may
    }
}
