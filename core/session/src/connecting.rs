//! Connections that a mediator asks about, and what a session may reach: by the grant that the session has.

use crate::rules;
use crate::sessions::Sessions;
use crate::state::*;
use crate::{SessionId, Time};
use levee_policy::decision::Connect;
use levee_policy::site::Reach;
use levee_policy::{Grant, LabelName, ServiceName, Site, decision};
use std::collections::BTreeSet;
use std::net::IpAddr;

impl Sessions {
    /// The grant of a connection of this session's, which comes from one of its inner addresses; `None` if it has none.
    pub fn connect(
        &self,
        id: SessionId,
        label: &LabelName,
        from: IpAddr,
        service: &ServiceName,
    ) -> Option<Grant<Connect>> {
        let session = self.sessions.get(&id)?;
        let is_its = session.record.label == *label && session.record.inner.contains(&from);
        let grant = grant_of(&session.phase).filter(|_| is_its && !is_locked(&session.phase))?;
        let said = self.said_of(label, service, &session.record.user);
        rules::connection(&self.site, grant, service, self.posture_at(label), said).ok()
    }

    /// All that a session that lives may reach now: nothing, while it is locked, and no service that a posture has off or that is not for
    /// its person.
    pub fn reach(&self, id: SessionId) -> Option<Vec<Reach>> {
        let Session { record, phase, .. } = self.sessions.get(&id)?;
        if is_locked(phase) {
            return Some(Vec::new());
        }
        let reach = grant_of(phase)?.action().reach();
        let on = Site::on_under(reach, self.posture_at(&record.label));
        Some(self.admitted(&record.user, &record.label, on))
    }

    /// Tells the vaults of sessions that can reach something else than before. Answers of which it is to be awaited that no vault passes
    /// packets by another word than what counts now: of these, and of all whose vault was told something before and has not said that it has
    /// it. A vault that cannot be told now, because it is lost or was there before this process, may pass packets until it is told or dead; so
    /// may that of a session that ends, until it has closed it.
    pub(crate) fn tell_changed(
        &mut self,
        before: Vec<(SessionId, Option<Vec<Reach>>)>,
        now: Time,
    ) -> BTreeSet<SessionId> {
        let mut awaited = BTreeSet::new();
        for (id, before) in before {
            let known = self.sessions.get(&id).filter(|session| session.vault != InVault::Absent);
            let Some(session) = known else { continue };
            let Some(used) = self.used_labels.get(&session.record.label) else { continue };
            let is_up = matches!(used.vault, Vault::Up { .. });
            let has_it = session.vault == InVault::Ready && is_up && grant_of(&session.phase).is_some();
            let changed = self.reach(id).is_some_and(|now| before.is_some_and(|before| before != now));
            if changed && is_up {
                self.tell_vault(id, now);
            }
            if changed || !has_it {
                awaited.insert(id);
            }
        }
        awaited
    }
}

fn is_locked(phase: &Phase) -> bool {
    matches!(phase, Phase::Open(open) if open.lock.bars())
}

/// What a session was opened by, as long as it is not used up. A session that is on its way out has no permission left, and one that comes back
/// has none yet.
pub(crate) fn grant_of(phase: &Phase) -> Option<&Grant<decision::Session>> {
    match phase {
        Phase::Making { grant, .. } | Phase::Open(Open { grant, .. }) => Some(grant),
        Phase::Returning { .. } | Phase::Closing(_) => None,
    }
}
