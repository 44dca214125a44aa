//! Locking a session: the local vault has its record without a selector, so that no packet of it passes, no program is started and no
//! file carried, until the server says that its person has proved themself.

use super::operations::{Done, IS_LOCKED, NotDone, VAULT, refused, unavailable};
use super::{Agent, Live};
use levee_ipc::Secret;
use levee_ipc::client::{RefusalKind, Reply, Request};
use levee_ipc::tpe::Answer;
use levee_ipc::vault::{SessionRecord, SessiondToVault, VaultToSessiond};

/// Why nobody is signed on any more who has left this host without signing off.
const LEFT: &str = "the login of this host in which they had signed on is over: signed off";

impl Agent {
    /// Signs off whoever is signed on, where the login of this host is over in which they did.
    pub(super) fn sign_off_who_left(&mut self) -> Done<()> {
        if !std::mem::take(&mut self.due.left) || self.login.is_none() {
            return Ok(());
        }
        // The server first: it cuts what the session still sends.
        let told = self.abandon(LEFT);
        let purged = self.close_here();
        self.notice = None;
        told.and(purged)
    }

    /// Whether there is a session, and it is locked.
    pub(super) fn is_locked(&self) -> bool {
        self.session.as_ref().is_some_and(|live| live.locked)
    }

    pub(super) fn not_while_locked(&self) -> Done<()> {
        match self.is_locked() {
            true => Err(NotDone::Refused(RefusalKind::Locked, IS_LOCKED.into())),
            false => Ok(()),
        }
    }

    fn need_session(&self) -> Done<()> {
        match self.session {
            Some(_) => Ok(()),
            None => Err(NotDone::Refused(RefusalKind::NoSession, "no session is open".into())),
        }
    }

    /// The person locks the session: here first, so that it holds even where the server is not reached.
    pub(super) fn lock(&mut self) -> Done<Answer> {
        self.need_login()?;
        self.need_session()?;
        self.lock_here()?;
        match self.ask(&Request::Lock) {
            Ok(Reply::Locked) => Ok(Answer::Locked),
            Ok(other) => refused(other),
            Err(NotDone::Refused(kind, reason)) => {
                let reason = format!("locked here; the server is told when it is reached again: {reason}");
                Err(NotDone::Refused(kind, reason))
            }
            Err(fatal) => Err(fatal),
        }
    }

    /// The person proves themself to the server, which decides.
    pub(super) fn unlock(&mut self, password: Secret, code: Option<Secret>) -> Done<Answer> {
        self.need_login()?;
        self.need_session()?;
        // What is said from here on is said of the session as the server has it then.
        self.due.lock = false;
        match self.ask(&Request::Unlock { password, code })? {
            Reply::Unlocked => {
                self.unlock_here()?;
                Ok(Answer::Unlocked)
            }
            other => refused(other),
        }
    }

    /// No packet of the session passes the local vault when this returns; a vault that does not say so costs the session.
    pub(super) fn lock_here(&mut self) -> Done<()> {
        let Some(live) = self.session.as_mut().filter(|live| !live.locked) else { return Ok(()) };
        live.locked = true;
        let bare = |record: &SessionRecord| SessionRecord { selectors: Vec::new(), ..record.clone() };
        let records = live.records.iter().map(bare).collect();
        self.renew_records(records)
    }

    fn unlock_here(&mut self) -> Done<()> {
        let Some(live) = self.session.as_mut() else { return Ok(()) };
        let records = live.records.clone();
        self.renew_records(records)?;
        if let Some(live) = self.session.as_mut() {
            live.locked = false;
        }
        Ok(())
    }

    /// Has the local vault take these records in place of those that it has.
    fn renew_records(&mut self, records: Vec<SessionRecord>) -> Done<()> {
        if self.no_tunnel {
            return Ok(());
        }
        self.mail.vault.clear();
        let mut missing: Vec<_> = records.iter().map(|record| record.id).collect();
        let Some((_, vault)) = &mut self.vault else { return unavailable("the vault is gone") };
        records.into_iter().for_each(|record| vault.send(SessiondToVault::Open(record)));
        let taken = self.wait_for(VAULT, "the vault does not answer", |agent| {
            match agent.mail.vault.pop_front()? {
                VaultToSessiond::Opened(opened) => missing.retain(|id| *id != opened),
                VaultToSessiond::Closed(_) => {
                    return Some(unavailable("the vault does not take the session"));
                }
                _ => {}
            }
            missing.is_empty().then_some(Ok(()))
        });
        if let Err(NotDone::Refused(_, reason)) = &taken {
            let closed = self.close_here();
            self.abandon(reason)?;
            closed?;
        }
        taken
    }

    /// The trusted path is up again: both sides are locked if either was.
    pub(super) fn lock_as_the_server(&mut self, locked_there: bool) -> Done<()> {
        match (self.session.as_ref().map(|Live { locked, .. }| *locked), locked_there) {
            (Some(false), true) => self.lock_here(),
            (Some(true), false) => match self.ask(&Request::Lock)? {
                Reply::Locked => Ok(()),
                other => refused(other),
            },
            _ => Ok(()),
        }
    }
}
