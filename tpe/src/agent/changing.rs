//! A level is chosen, and another one later: the session there is ends when the server has the next level at hand, and what comes
//! of it where the next one fails after that.

use super::operations::{Done, NO_KEYER, NotDone, refused, unavailable};
use super::{Agent, Live, granted};
use levee_ipc::client::{self, Opened, RefusalKind, Reply, Request};
use levee_ipc::tpe::{Answer, Session};
use levee_policy::{LabelName, ProtectionName};

/// Where a change of level that came to nothing leaves its person.
enum After {
    /// Where they were, if anywhere.
    AsBefore,
    /// In the session that they had, at this level.
    Kept(LabelName),
    /// At the same level, in another session.
    Back(LabelName),
    /// Without the session at this level that there was.
    Nowhere(LabelName),
}

impl Agent {
    /// Opens a session at a level, in the place of the one there is.
    pub(super) fn level(&mut self, label: LabelName, protection: Option<ProtectionName>) -> Done<Answer> {
        self.need_login()?;
        self.not_while_locked()?;
        // There would be no keys for it: then the session that there is need not end.
        if !self.no_tunnel && !self.keyer.is_open() {
            return unavailable(NO_KEYER);
        }
        let before = self.session.as_ref().map(|live| (live.shown.label.clone(), live.asked.clone()));
        let opened = match self.ask(&Request::Level(label.clone(), protection.clone()))? {
            Reply::Opened(opened) => *opened,
            Reply::Refused { kind, reason } => {
                // What policy refuses has touched nothing, and needs no words of it.
                let after = match (kind, before) {
                    (RefusalKind::Label, _) | (_, None) => After::AsBefore,
                    (_, before) if self.was_lost_meanwhile()? => self.go_back(before)?,
                    (_, Some((label, _))) => After::Kept(label),
                };
                return Err(NotDone::Refused(kind, self.told(reason, &after)));
            }
            other => {
                self.was_lost_meanwhile()?;
                return refused(other);
            }
        };
        self.ended = None;
        let session = opened.session;
        // The server has ended the session there was, so whatever happens now it is over here too.
        let result = self.close_here();
        let result = result.and_then(|()| self.enter(&label, protection, opened));
        let (kind, reason) = match result {
            Ok(shown) => return Ok(Answer::Opened(shown)),
            Err(NotDone::Refused(kind, reason)) => (kind, reason),
            Err(fatal) => return Err(fatal),
        };
        // What had been started for it goes too.
        let purged = self.remove(session);
        // A server that gives something else than was asked for is not asked again.
        if purged.is_ok()
            && kind != RefusalKind::Protocol
            && let after @ After::Back(_) = self.go_back(before)?
        {
            return unavailable(self.told(reason, &after));
        }
        self.abandon(&reason)?;
        purged?;
        unavailable(self.told(reason, &After::AsBefore))
    }

    /// Makes of what the server has opened the session that there is.
    fn enter(
        &mut self,
        label: &LabelName,
        protection: Option<ProtectionName>,
        mut opened: Opened,
    ) -> Done<Session> {
        granted::check(label, protection.as_ref(), &opened)
            .map_err(|why| NotDone::Refused(RefusalKind::Protocol, why))?;
        self.open_here(&mut opened)?;
        let (keys, parts, records) = (self.key_record(&opened), self.parts(&opened), self.records(&opened));
        let (reach, more) = granted::reachable(&opened);
        let passes = opened.passes;
        let shown = Session {
            id: opened.session.to_string(),
            label: opened.label,
            colour: opened.colour,
            inner: opened.inner,
            services: opened.services,
            reach,
            more,
            protections: opened.protected.names,
            costs: opened.costs,
        };
        let patience = client::patience(opened.grace);
        self.session = Some(Live {
            id: opened.session,
            shown: shown.clone(),
            asked: protection,
            patience,
            keys,
            parts,
            records,
            locked: false,
            passes,
        });
        Ok(shown)
    }

    /// A level that was refused for another reason than the label may have cost the session that it was to replace.
    fn was_lost_meanwhile(&mut self) -> Done<bool> {
        let Some(session) = self.session.as_ref().map(|live| live.id) else {
            return Ok(false);
        };
        match self.ask(&Request::Status)? {
            Reply::Status(status) if status.session.as_ref().is_some_and(|(id, _)| *id == session) => {
                Ok(false)
            }
            _ => {
                self.ended = Some("it was to give way to another level, which could not be opened".into());
                self.close_here()?;
                Ok(true)
            }
        }
    }

    /// Opens a session at the level there was before a change that came to nothing, which had ended it: one session at a time is
    /// the rule, so the one before cannot wait. Where that fails too, nothing of it is left here.
    fn go_back(&mut self, before: Option<(LabelName, Option<ProtectionName>)>) -> Done<After> {
        let Some((label, protection)) = before else { return Ok(After::AsBefore) };
        let opened = match self.ask(&Request::Level(label.clone(), protection.clone())) {
            Ok(Reply::Opened(opened)) => *opened,
            Ok(_) | Err(NotDone::Refused(..)) => return Ok(After::Nowhere(label)),
            Err(fatal) => return Err(fatal),
        };
        let session = opened.session;
        match self.enter(&label, protection, opened) {
            Ok(_) => {
                self.ended = None;
                Ok(After::Back(label))
            }
            Err(NotDone::Refused(_, reason)) => {
                let purged = self.remove(session);
                self.abandon(&reason)?;
                purged?;
                Ok(After::Nowhere(label))
            }
            Err(fatal) => Err(fatal),
        }
    }

    /// Why a change of level came to nothing, and where that leaves the person.
    fn told(&self, reason: String, after: &After) -> String {
        let off = if self.login.is_none() { "; signed off" } else { "" };
        match after {
            After::Back(label) => {
                format!("{reason}; back at {label}, in a new session: what ran in the one before has ended")
            }
            After::Nowhere(label) => {
                format!("{reason}; the session at {label} has ended, and there could not be another{off}")
            }
            After::Kept(label) => format!("{reason}; the session at {label} goes on"),
            After::AsBefore => format!("{reason}{off}"),
        }
    }
}
