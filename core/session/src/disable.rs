//! People who may not sign on until an operator enables them: it holds at once and after a start.

use crate::Time;
use crate::event::*;
use crate::sessions::Sessions;
use crate::state::*;
use levee_policy::UserName;
use levee_policy::audit::{Action, Event as Entry, Verdict};

/// Why they have no session.
pub(crate) const DISABLED: &str = "an operator has disabled the person";

impl Sessions {
    pub(crate) fn disable(&mut self, operator: OperatorId, user: UserName, disable: bool) {
        if self.site.user(&user).is_none() && (disable || !self.disabled.contains(&user)) {
            let why = format!("the site has no user `{user}`");
            return self.say(Output::Operator(operator, Err(why)));
        }
        let entry = Entry {
            user: Some(user.clone()),
            host: None,
            label: None,
            action: if disable { Action::Disable } else { Action::Enable },
            object: "person".into(),
            verdict: Verdict::Noted,
            reason: "by an operator".into(),
        };
        let change = Change::Disabled(user.clone(), disable);
        self.commit(Purpose::Disable(operator, user, disable), vec![entry], vec![change]);
    }

    pub(crate) fn disable_recorded(
        &mut self,
        operator: OperatorId,
        user: &UserName,
        disable: bool,
        durable: bool,
        now: Time,
    ) {
        const LOST: &str = "it is not recorded: the audit log or the store cannot be written";
        if !disable {
            // What cannot be written is not allowed.
            let result = if durable { Ok(()) } else { Err(LOST.to_owned()) };
            if durable {
                self.disabled.remove(user);
            }
            return self.say(Output::Operator(operator, result));
        }
        // What cannot be written is forbidden all the same, until the next start.
        self.disabled.insert(user.clone());
        self.withdraw_releases(Some(user), None);
        let theirs = |client: &Client| {
            client.person.as_ref() == Some(user)
                || matches!(&client.busy, Some(Busy::Proving(_, who, _) | Busy::SigningOn(who, _)) if who == user)
        };
        let clients: Vec<ClientId> =
            self.clients.iter().filter(|(_, client)| theirs(client)).map(|(id, _)| *id).collect();
        let sessions: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.record.user == *user)
            .map(|(id, _)| *id)
            .collect();
        match (durable, sessions.len()) {
            (false, _) => self.say(Output::Operator(operator, Err(format!("they are cut off; but {LOST}")))),
            (true, 0) => self.say(Output::Operator(operator, Ok(()))),
            (true, count) => drop(self.disabling.insert(operator, count)),
        }
        for id in sessions {
            let waiter = durable.then_some(Waiter::Operator(operator));
            self.close(id, DISABLED, waiter, now);
        }
        for client in clients {
            if self.clients.get(&client).is_some_and(|client| client.person.is_some()) {
                self.reply(client, Reply::SignedOff(DISABLED.to_owned()));
            }
            self.gone(client, now);
            self.say(Output::Disconnect(client));
        }
    }

    /// A session that an operator waits for has ended, or cannot be ended in good order.
    pub(crate) fn tell_operator(&mut self, operator: OperatorId, result: Result<(), String>) {
        if result.is_ok()
            && let Some(left) = self.disabling.get_mut(&operator)
        {
            *left = left.saturating_sub(1);
            if *left > 0 {
                return;
            }
        }
        self.disabling.remove(&operator);
        self.say(Output::Operator(operator, result));
    }
}
