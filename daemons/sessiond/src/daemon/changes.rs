//! What others write and sessiond goes by: each change is in the log before anything follows from it.

use super::Daemon;
use crate::audit::Weight;
use crate::known::{Digest, Known, Subject};
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
            self.look_at_person(user);
        }
        Ok(())
    }

    /// Records what was changed of what this person signs on with.
    pub(super) fn look_at_person(&mut self, user: UserName) {
        self.look_at(&Subject::Password(user.clone()));
        self.look_at(&Subject::SecondFactor(user));
    }

    /// Records a change of this, if there was one.
    pub(super) fn look_at(&mut self, subject: &Subject) {
        let now = match self.is_now(subject) {
            Ok(now) => now,
            // Nor does anybody sign on with it.
            Err(error) => return levee_ipc::say!("levee-sessiond: {error}"),
        };
        if let Some((entry, change)) = self.known.look(subject, now) {
            self.pending.say(Weight::Grant, entry);
            self.pending.changes.push(change);
        }
    }

    fn is_now(&self, subject: &Subject) -> Result<Option<Digest>, String> {
        match subject {
            Subject::Site => Ok(Some(self.site_digest)),
            Subject::Revocations => Ok(self.devices.list()),
            Subject::Password(user) => {
                self.passwords.digest(user).map_err(|e| format!("the credential file of {user}: {e}"))
            }
            Subject::SecondFactor(user) => {
                self.passwords.factor_digest(user).map_err(|e| format!("the second factor of {user}: {e}"))
            }
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
        self.look_at_person(user.clone());
        self.carry_out();
        for subject in [Subject::Password(user.clone()), Subject::SecondFactor(user)] {
            let now = self.is_now(&subject)?;
            if !self.known.has(&subject, now) {
                return Err(LOST.to_owned());
            }
        }
        Ok(())
    }
}
