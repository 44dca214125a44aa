//! What others write and sessiond goes by: each change is in the log before anything follows from it.

use super::Daemon;
use crate::audit::Weight;
use crate::known::{Known, Subject};
use levee_policy::UserName;
use levee_session::Change;
use std::collections::BTreeSet;

const LOST: &str = "the change is made, but not recorded: the audit log or the store cannot be written";

impl Daemon {
    /// At the start: what was changed while sessiond did not run.
    pub(super) fn look_at_all(&mut self) -> std::io::Result<()> {
        self.look_at(&Subject::Site);
        self.look_at(&Subject::Revocations);
        let there = self.passwords.people()?.into_iter();
        let people: BTreeSet<UserName> = there.chain(self.known.people()).collect();
        for user in people {
            self.look_at(&Subject::Password(user));
        }
        Ok(())
    }

    /// Records a change of this, if there was one.
    pub(super) fn look_at(&mut self, subject: &Subject) {
        let now = match subject {
            Subject::Site => Some(self.site_digest),
            Subject::Revocations => self.devices.list(),
            Subject::Password(user) => match self.passwords.digest(user) {
                Ok(now) => now,
                // Nor is it a password that anybody signs on with.
                Err(error) => {
                    return levee_ipc::say!("levee-sessiond: the credential file of {user}: {error}");
                }
            },
        };
        if let Some((entry, change)) = self.known.look(subject, now) {
            self.batch.entries.push((Weight::Grant, entry));
            self.batch.changes.push(change);
        }
    }

    /// Goes by what the store was told; or by what it has, where it was not.
    pub(super) fn keep_known(&mut self, changes: &[Change], durable: bool) {
        if !changes.iter().any(|change| matches!(change, Change::Known(..))) {
            return;
        }
        if durable {
            return changes.iter().for_each(|change| self.known.learn(change));
        }
        // What cannot be read is told anew.
        self.known = Known::new(self.store.known().unwrap_or_default());
    }

    /// An operator says that they have changed this person's credentials.
    pub(crate) fn changed(&mut self, user: UserName) -> Result<(), String> {
        let subject = Subject::Password(user);
        self.look_at(&subject);
        self.carry_out();
        let Subject::Password(user) = &subject else { return Err(LOST.to_owned()) };
        match self.passwords.digest(user) {
            Ok(now) if self.known.has(&subject, now) => Ok(()),
            Ok(_) => Err(LOST.to_owned()),
            Err(error) => Err(format!("the credential file of {user}: {error}")),
        }
    }
}
