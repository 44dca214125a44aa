//! Messages of guards that wait for the person signed on, and who reaches services that they own. The agent fetches a message whole, and holds it to the digest it was listed with;
//! it keeps nothing of it.

use super::Agent;
use super::operations::{Done, NotDone, refused};
use levee_ipc::client::{Consent, RefusalKind, Release, ReleaseId, Reply, Request};
use levee_ipc::tpe::Answer;
use levee_policy::{ServiceName, UserName};
use sha2::{Digest as _, Sha256};

impl Agent {
    pub(super) fn releases(&mut self) -> Done<Answer> {
        self.waiting().map(Answer::Releases)
    }

    fn waiting(&mut self) -> Done<Vec<Release>> {
        self.need_login()?;
        self.not_while_locked()?;
        match self.ask(&Request::Releases)? {
            Reply::Releases(waiting) => Ok(waiting),
            other => refused(other),
        }
    }

    /// Shows the whole of a message.
    pub(super) fn show_release(&mut self, id: ReleaseId) -> Done<Answer> {
        let Some(release) = self.waiting()?.into_iter().find(|release| release.id == id) else {
            let why = "no such message waits for you here: levee-tpe release lists those that do";
            return Err(NotDone::Refused(RefusalKind::NoMessage, why.into()));
        };
        let mut content = Vec::new();
        while let Ok(from) = u32::try_from(content.len())
            && from < release.octets
        {
            match self.ask(&Request::ShowRelease { id, from })? {
                Reply::Part(part) if !part.is_empty() => content.extend(part),
                other => return refused(other),
            }
        }
        if <[u8; 32]>::from(Sha256::digest(&content)) != release.digest {
            let why = "what the server shows is not the message that it has listed";
            return Err(NotDone::Refused(RefusalKind::Protocol, why.into()));
        }
        Ok(Answer::Message(content))
    }

    pub(super) fn release(&mut self, id: ReleaseId, digest: [u8; 32], consent: Consent) -> Done<Answer> {
        self.need_login()?;
        self.not_while_locked()?;
        match self.ask(&Request::Release { id, digest, consent })? {
            Reply::Released(released) => Ok(Answer::Released(released)),
            other => refused(other),
        }
    }

    /// Services at the session's level that are for some people alone.
    pub(super) fn accesses(&mut self) -> Done<Answer> {
        self.need_login()?;
        self.not_while_locked()?;
        match self.ask(&Request::Accesses)? {
            Reply::Accesses(services) => Ok(Answer::Accesses(services)),
            other => refused(other),
        }
    }

    /// Somebody reaches a service of the person's, or does not.
    pub(super) fn access(&mut self, service: ServiceName, user: UserName, admits: bool) -> Done<Answer> {
        self.need_login()?;
        self.not_while_locked()?;
        match self.ask(&Request::Access { service, user, admits })? {
            Reply::AccessChanged => Ok(Answer::AccessChanged),
            other => refused(other),
        }
    }
}
