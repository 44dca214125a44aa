//! Connections that a mediator asks about, and what a session may reach: by the grant that the session has.

use crate::SessionId;
use crate::rules;
use crate::sessions::Sessions;
use crate::state::*;
use levee_policy::decision::Connect;
use levee_policy::site::Reach;
use levee_policy::{Grant, LabelName, ServiceName, Site, decision};
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
        rules::connection(&self.site, grant, service, self.posture_at(label)).ok()
    }

    /// All that a session that lives may reach now: nothing, while it is locked, and no service that a posture has off.
    pub fn reach(&self, id: SessionId) -> Option<Vec<Reach>> {
        let Session { record, phase, .. } = self.sessions.get(&id)?;
        if is_locked(phase) {
            return Some(Vec::new());
        }
        grant_of(phase).map(|grant| Site::on_under(grant.action().reach(), self.posture_at(&record.label)))
    }
}

fn is_locked(phase: &Phase) -> bool {
    matches!(phase, Phase::Open(open) if open.lock.bars())
}

/// A session that is on its way out has no permission left, and one that comes back has none yet.
/// What a session was opened by, as long as it is not used up.
pub(crate) fn grant_of(phase: &Phase) -> Option<&Grant<decision::Session>> {
    match phase {
        Phase::Making { grant, .. } | Phase::Open(Open { grant, .. }) => Some(grant),
        Phase::Returning { .. } | Phase::Closing(_) => None,
    }
}
