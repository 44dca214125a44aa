//! Files that a person carries out of a session or into one: granted → recorded → let through.

use crate::event::*;
use crate::pace::{Paced, TOO_FAST};
use crate::sessions::{NO_SESSION, NOT_RECORDED, Sessions};
use crate::state::*;
use crate::{Time, rules};
use levee_policy::decision::Carry;

impl Sessions {
    pub(crate) fn carry(&mut self, client: ClientId, file: Carry, now: Time) {
        let session = self.own_session(client).and_then(|id| self.sessions.get(&id));
        let Some(record) = session.map(|session| session.record.clone()) else {
            return self.refuse(client, RefusalKind::NoSession, NO_SESSION);
        };
        match rules::carry(&self.site, &record.user, &record.device, &record.label, file) {
            Ok(grant) if !self.keeps_pace(Paced::File, &record.user, grant.audit(), now) => {
                self.refuse(client, RefusalKind::Carry, TOO_FAST);
            }
            Ok(grant) => {
                let commit = self.commit(Purpose::Carry(client), vec![grant.audit().clone()], vec![]);
                if let Some(path) = self.clients.get_mut(&client) {
                    path.busy = Some(Busy::Carrying(grant, commit));
                }
            }
            Err(denial) => {
                self.say(Output::Audit(denial.audit().clone()));
                self.refuse(client, RefusalKind::Carry, denial.reason());
            }
        }
    }

    /// The one place where a file is let through: it consumes the grant.
    pub(crate) fn carry_recorded(&mut self, client: ClientId, commit: CommitId, durable: bool) {
        let Some(path) = self.clients.get_mut(&client) else { return };
        if !matches!(&path.busy, Some(Busy::Carrying(_, of)) if *of == commit) {
            return;
        }
        let Some(Busy::Carrying(grant, _)) = path.busy.take() else { return };
        if durable {
            let _ = grant.into_parts();
            self.answer(client, Reply::Carried);
        } else {
            self.refuse(client, RefusalKind::Unavailable, NOT_RECORDED);
        }
    }
}
