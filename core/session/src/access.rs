//! Who reaches a service at a label, as its owners and operators have said: granted → recorded → every vault that passes by the word of
//! before has been told → answered.

use crate::event::*;
use crate::pace::{Paced, TOO_FAST};
use crate::sessions::{NO_SESSION, NOT_RECORDED, SILENCE, Sessions};
use crate::state::*;
use crate::{SessionId, Time, rules};
use levee_policy::decision::ChangeAccess;
use levee_policy::site::{Destination, Reach, Service};
use levee_policy::{Grant, LabelName, ServiceName, UserName};
use std::collections::{BTreeMap, BTreeSet};

/// So many services are listed in one answer.
const MOST_SERVICES: usize = 32;
/// And so many people, of all of them together.
const MOST_PEOPLE: usize = 128;

/// What has been said of people at each label's instance of a service, beyond what the site file says; no more than the site has of all.
#[derive(Default)]
pub(crate) struct Accesses {
    said: BTreeMap<(LabelName, ServiceName), BTreeMap<UserName, bool>>,
    /// Who waits until these vaults have been told.
    waiting: Vec<(Asker, BTreeSet<SessionId>)>,
}

impl Accesses {
    fn said(&self, label: &LabelName, service: &ServiceName, user: &UserName) -> Option<bool> {
        // The key is owned, and there are few.
        self.said.get(&(label.clone(), service.clone()))?.get(user).copied()
    }
}

impl Sessions {
    /// Takes up what the store has, before anything else happens. What was said of a service that has no owners any more, at a label where
    /// it is not, or of a person whom the site does not have, is forgotten: who takes their place has said nothing.
    pub fn take_accesses(&mut self, stored: impl IntoIterator<Item = Access>) {
        let mut stale = Vec::new();
        for Access { label, service, user, admits } in stored {
            let owned = self.owned(&label, &service).is_some();
            if owned && self.site.user(&user).is_some() {
                self.accesses.said.entry((label, service)).or_default().insert(user, admits);
            } else {
                stale.push(Change::Access(Access { label, service, user, admits }, false));
            }
        }
        if !stale.is_empty() {
            self.commit(Purpose::Nothing, vec![], stale);
        }
    }

    /// A service that runs at this label and has owners.
    fn owned(&self, label: &LabelName, service: &ServiceName) -> Option<&Service> {
        let label = self.site.label(label)?;
        let found = self.site.service(service)?;
        (found.range().contains(&label) && !found.access().owners().is_empty()).then_some(found)
    }

    /// What has been said of this person at a label's instance of a service.
    pub(crate) fn said_of(&self, label: &LabelName, service: &ServiceName, user: &UserName) -> Option<bool> {
        self.accesses.said(label, service, user)
    }

    /// Of what a session's grant lets it reach, what its person reaches now.
    pub(crate) fn admitted(&self, user: &UserName, label: &LabelName, mut reach: Vec<Reach>) -> Vec<Reach> {
        reach.retain(|one| match &one.destination {
            Destination::Service(name) => (self.site.service(name))
                .is_some_and(|service| service.access().admits(user, self.said_of(label, name, user))),
            Destination::Network(_) => true,
        });
        reach
    }

    /// The services at the session's label that are for some people alone, as far as they concern its person.
    pub(crate) fn accesses(&mut self, client: ClientId) {
        let Some(session) = self.permission(client).map(Grant::action) else {
            return self.refuse(client, RefusalKind::NoSession, NO_SESSION);
        };
        let shown = self.accesses_at(session.name(), Some(session.user()));
        self.reply(client, Reply::Accesses(shown));
    }

    /// The services at a label that are for some people alone, [`MOST_SERVICES`] of them: whom each is for, as far as this person may know.
    /// An owner, or an operator (`None`), may know all; another person whether it is for themself.
    pub fn accesses_at(&self, label: &LabelName, who: Option<&UserName>) -> Vec<Accessible> {
        let Some(point) = self.site.label(label) else { return Vec::new() };
        let limited = self.site.services_at(&point).filter(|service| service.access().is_limited());
        let mut room = MOST_PEOPLE;
        let shown = limited.take(MOST_SERVICES).map(|service| {
            let mine = who.is_some_and(|who| service.access().owners().contains(who));
            let mut people = self.admitted_to(label, service);
            if let Some(who) = who.filter(|_| !mine) {
                people.retain(|other| other == who);
            }
            let whole = people.len();
            let people: Vec<UserName> = people.into_iter().take(room).collect();
            room -= people.len();
            Accessible { service: service.name().clone(), mine, more: whole > people.len(), people }
        });
        shown.collect()
    }

    /// Whom a service at a label is for, by the site's word and what was said since.
    fn admitted_to(&self, label: &LabelName, service: &Service) -> BTreeSet<UserName> {
        let (name, access) = (service.name(), service.access());
        let said = self.accesses.said.get(&(label.clone(), name.clone()));
        let named = access.people().into_iter().flatten().chain(access.owners());
        let named = named.chain(said.into_iter().flat_map(BTreeMap::keys));
        named.filter(|user| access.admits(user, self.said_of(label, name, user))).cloned().collect()
    }

    /// A person says who reaches a service that they own, at the label of their session.
    pub(crate) fn access(
        &mut self,
        client: ClientId,
        (service, user, admits): (ServiceName, UserName, bool),
        now: Time,
    ) {
        let Some(session) = self.permission(client) else {
            return self.refuse(client, RefusalKind::NoSession, NO_SESSION);
        };
        let owner = session.action().user().clone();
        match rules::access(&self.site, session, &service, &user, admits) {
            Ok(grant) if !self.keeps_pace(Paced::Access, &owner, grant.audit(), now) => {
                self.refuse(client, RefusalKind::Unavailable, TOO_FAST);
            }
            Ok(grant) => {
                let number = self.number();
                self.record_access(Asker::Client(client, number), grant);
                if let Some(path) = self.clients.get_mut(&client) {
                    path.busy = Some(Busy::Accessing(number));
                }
            }
            // What there is not to be said is counted: it can be asked as often as one likes.
            Err(denial) => {
                let device = denial.audit().host.clone();
                self.count("a word about a service that is another's, or about nobody", device, Some(owner));
                self.refuse(client, RefusalKind::Access, denial.reason());
            }
        }
    }

    /// An operator says so.
    pub(crate) fn access_by_operator(&mut self, operator: OperatorId, wish: Access) {
        let Access { label, service, user, admits } = &wish;
        match rules::access_by_operator(&self.site, label, service, user, *admits) {
            Ok(grant) => self.record_access(Asker::Operator(operator), grant),
            Err(denial) => self.say(Output::Operator(operator, Err(denial.reason().to_owned()))),
        }
    }

    fn record_access(&mut self, asker: Asker, grant: Grant<ChangeAccess>) {
        let (entry, change) = (grant.audit().clone(), Change::Access(Access::of(grant.action()), true));
        self.commit(Purpose::Access(asker, grant), vec![entry], vec![change]);
    }

    /// The one place where who reaches a service changes: it consumes the grant.
    pub(crate) fn access_recorded(
        &mut self,
        asker: Asker,
        grant: Grant<ChangeAccess>,
        durable: bool,
        now: Time,
    ) {
        let (change, event) = grant.into_parts();
        let Access { label, service, user, admits } = Access::of(&change);
        // What cannot be written is not allowed, and forbidden all the same until the next start.
        if admits && !durable {
            return self.access_told(asker, Err(NOT_RECORDED));
        }
        let theirs = |session: &Session| session.record.user == user && session.record.label == label;
        let theirs: Vec<_> = self.sessions.iter().filter(|(_, session)| theirs(session)).collect();
        let before: Vec<_> = theirs.into_iter().map(|(id, _)| (*id, self.reach(*id))).collect();
        let people = self.accesses.said.entry((label.clone(), service.clone())).or_default();
        people.insert(user.clone(), admits);
        let awaited = self.tell_changed(before.clone(), now);
        let changed = before.into_iter().filter(|(id, before)| *before != self.reach(*id));
        let changed: Vec<SessionId> = changed.map(|(id, _)| id).collect();
        self.hurry(&awaited, now);
        let owner = event.user.map_or_else(|| "an operator".to_owned(), |owner| owner.to_string());
        let lets = if admits { "lets you reach" } else { "does not let you reach" };
        for id in &changed {
            if let Some(Session { phase: Phase::Open(Open { link: Link::Attached(client), .. }), .. }) =
                self.sessions.get(id)
            {
                self.reply(*client, Reply::Notice(format!("{owner} {lets} {service} at {label}")));
            }
        }
        if !durable {
            return self.access_told(asker, Err(NOT_RECORDED));
        }
        self.accesses.waiting.push((asker, awaited));
        self.finish_accesses();
    }

    /// Whoever waits for the vaults of these sessions does so for a moment: one that does not answer is killed.
    fn hurry(&mut self, awaited: &BTreeSet<SessionId>, now: Time) {
        let until = now.after(SILENCE);
        for id in awaited {
            if let Some(session) = self.sessions.get_mut(id)
                && let Some(answer) = session.answer.as_mut().filter(|answer| **answer > until)
            {
                *answer = until;
                self.timers.insert((until, Timer::Session(*id)));
            }
        }
    }

    /// A session's vault has what it was told last, or has nothing of it.
    pub(crate) fn access_reached(&mut self, id: SessionId) {
        self.accesses.waiting.iter_mut().for_each(|(_, left)| left.retain(|other| *other != id));
        self.finish_accesses();
    }

    /// A label's vault is dead or has no session left: the next one is told what may be reached.
    pub(crate) fn accesses_gone(&mut self, label: &LabelName) {
        let sessions = &self.sessions;
        let here = |id: &SessionId| sessions.get(id).is_some_and(|one| one.record.label == *label);
        self.accesses.waiting.iter_mut().for_each(|(_, left)| left.retain(|id| !here(id)));
        self.finish_accesses();
    }

    fn finish_accesses(&mut self) {
        let over = self.accesses.waiting.extract_if(.., |(_, left)| left.is_empty());
        let over: Vec<Asker> = over.map(|(asker, _)| asker).collect();
        over.into_iter().for_each(|asker| self.access_told(asker, Ok(())));
    }

    fn access_told(&mut self, asker: Asker, result: Result<(), &str>) {
        match asker {
            Asker::Operator(operator) => self.say(Output::Operator(operator, result.map_err(str::to_owned))),
            Asker::Client(client, number) => {
                let path = self.clients.get(&client);
                if !path.is_some_and(|path| matches!(path.busy, Some(Busy::Accessing(of)) if of == number)) {
                    return;
                }
                match result {
                    Ok(()) => self.answer(client, Reply::AccessChanged),
                    Err(why) => self.refuse(client, RefusalKind::Unavailable, why),
                }
            }
        }
    }
}
