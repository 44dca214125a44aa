//! Until when sessions may pass packets, on the host's monotonic clock: all of them, where the site has several servers, and those of
//! another server besides.

use levee_policy::DomainName;
use levee_session::SessionId;
use std::collections::BTreeMap;
use std::time::Duration;

/// What sessiond has said.
#[derive(Debug, Default)]
pub struct Leases {
    /// `None` if sessions need no lease.
    all: Option<Duration>,
    owners: BTreeMap<DomainName, Duration>,
    /// Sessions of other servers.
    theirs: BTreeMap<SessionId, DomainName>,
    /// The first end of a lease that sessions have.
    next: Option<Duration>,
}

impl Leases {
    /// The last word counts.
    pub fn set(&mut self, owner: Option<DomainName>, until: Duration) {
        match owner {
            None => self.all = Some(until),
            Some(owner) => drop(self.owners.insert(owner, until)),
        }
        self.look();
    }

    /// A session is to be taken, of this other server or of none. False if it has no lease.
    pub fn take(&mut self, session: SessionId, owner: Option<DomainName>, now: Duration) -> bool {
        self.theirs.remove(&session);
        let runs = |until: &Duration| *until > now;
        let taken = match &owner {
            None => self.all.as_ref().is_none_or(runs),
            Some(owner) => self.all.as_ref().is_some_and(runs) && self.owners.get(owner).is_some_and(runs),
        };
        if let Some(owner) = owner.filter(|_| taken) {
            self.theirs.insert(session, owner);
        }
        self.look();
        taken
    }

    /// A session is over.
    pub fn forget(&mut self, session: SessionId) {
        if self.theirs.remove(&session).is_some() {
            self.look();
        }
    }

    fn look(&mut self) {
        let of = |owner: &DomainName| self.owners.get(owner).copied().unwrap_or_default();
        self.next = self.theirs.values().map(of).chain(self.all).min();
    }

    /// When a lease ends that sessions have.
    pub fn next(&self) -> Option<Duration> {
        self.next
    }

    /// Whether this session, which is here, has no lease any more.
    pub fn is_late(&self, session: SessionId, now: Duration) -> bool {
        let late = |until: &Duration| *until <= now;
        let theirs = self.theirs.get(&session);
        self.all.as_ref().is_some_and(late)
            || theirs.is_some_and(|owner| self.owners.get(owner).is_none_or(late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn id(n: u8) -> SessionId {
        SessionId::from_random([n; 16])
    }

    #[test]
    fn a_session_of_another_server_needs_that_servers_lease_besides() {
        let mut leases = Leases::default();
        let two = || Some("two.example".parse::<DomainName>().unwrap());
        assert!(leases.take(id(1), None, at(1)), "where nobody speaks of leases there are none");
        assert!(!leases.take(id(2), two(), at(1)), "but another server's session needs one");
        leases.set(None, at(10));
        assert!(!leases.take(id(2), two(), at(1)));
        leases.set(two(), at(5));
        assert!(leases.take(id(2), two(), at(1)));
        assert_eq!(leases.next(), Some(at(5)));
        assert!(
            !leases.is_late(id(2), at(4)) && leases.is_late(id(2), at(5)) && !leases.is_late(id(1), at(5))
        );
        leases.forget(id(2));
        assert_eq!(leases.next(), Some(at(10)));
        assert!(!leases.take(id(2), two(), at(5)) && leases.take(id(1), None, at(9)));
        assert!(leases.is_late(id(1), at(10)) && !leases.take(id(1), None, at(10)));
        // It cannot last longer than all do.
        leases.set(two(), at(50));
        assert!(!leases.take(id(2), two(), at(20)));
    }
}
