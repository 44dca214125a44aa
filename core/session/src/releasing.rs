//! Messages that wait at a guard for two people: offered → shown → released or refused by a person, which is recorded → may pass → settled.
//!
//! A person's word is a grant of the policy for this very message; two of them, of two people at two workstations, make the grant by which
//! it passes. Until it has, which may be hours after that, either word can cease to count. What waits is in memory alone: with this process,
//! or with the guard's, it is refused.

use crate::connecting::grant_of;
use crate::event::*;
use crate::sessions::{NO_SESSION, NOT_RECORDED, Sessions};
use crate::state::*;
use crate::{SessionId, Time, rules};
use levee_policy::audit::{Event as Entry, Verdict};
use levee_policy::decision::{Message, Release, Session as Permission};
use levee_policy::{ChannelName, Grant, HostName, UserName};
use std::collections::BTreeMap;

/// Messages of one guard that wait at once, at most.
pub const MOST_WAITING: usize = 16;
/// Of what waits so much is listed in one answer, the oldest.
pub const MOST_LISTED: usize = 32;
/// Octets of a message that one answer shows.
pub const PART: usize = 8 << 10;

/// How many numbers each guard's messages have.
const NUMBERS: u64 = 1_000_000;

const NO_MESSAGE: &str = "no such message waits for you here: levee-tpe release lists those that do";
const NOT_SHOWN: &str = "it has not been shown here as a whole: levee-tpe release NUMBER shows it";

/// A message that waits.
pub(crate) struct Held {
    message: Message,
    /// The guard's own number.
    ticket: u64,
    content: Vec<u8>,
    until: Time,
    /// How much of it each person has been shown, from the beginning, and in which session.
    shown: BTreeMap<UserName, (SessionId, usize)>,
    /// Whose word is in the log.
    words: Vec<Grant<Release>>,
}

/// A message that two people have released, and that waits at its guard until so much may pass.
pub(crate) struct MayPass {
    channel: ChannelName,
    ticket: u64,
    by: Vec<(UserName, HostName)>,
    /// The record of it.
    entry: Entry,
}

impl Held {
    /// Why this word adds nothing to those that there are.
    fn again(&self, word: &Release) -> Option<&'static str> {
        let given = |is: &dyn Fn(&Release) -> bool| self.words.iter().any(|other| is(other.action()));
        if given(&|other| other.user() == word.user()) {
            Some("you have released it: it waits for another person")
        } else if given(&|other| other.host() == word.host()) {
            Some("it has been released at this workstation: the other person has one of their own")
        } else {
            None
        }
    }
}

impl Sessions {
    /// A guard's filter has let a message through, and the site has people asked.
    pub(crate) fn offered(
        &mut self,
        channel: ChannelName,
        ticket: u64,
        digest: [u8; 32],
        content: Vec<u8>,
        now: Time,
    ) {
        let site = std::sync::Arc::clone(&self.site);
        let release = site.guard(&channel).and_then(|(of, guard)| Some((of.size(), guard.release()?)));
        let of_guard = self.held.values().filter(|held| held.message.channel == channel).count();
        let may_pass = self.may_pass.values().filter(|one| one.channel == channel).count();
        let (Some((most, release)), Ok(octets)) = (release, u32::try_from(content.len())) else {
            return self.say(Output::NotReleased(channel, ticket));
        };
        if octets > most || of_guard + may_pass >= MOST_WAITING {
            return self.say(Output::NotReleased(channel, ticket));
        }
        let until = now.after(release.within());
        let id = self.release_id(&channel);
        self.set_timer(until, Timer::Release(id));
        let message = Message { channel, digest, octets };
        let told: Vec<ClientId> = match of_guard {
            0 => self.clients.keys().copied().filter(|client| self.may_release(*client, &message)).collect(),
            _ => Vec::new(),
        };
        for client in told {
            let what = format!("a message waits at the guard {}: levee-tpe release", message.channel);
            self.reply(client, Reply::Notice(what));
        }
        let (shown, words) = (BTreeMap::new(), Vec::new());
        self.held.insert(id, Held { message, ticket, content, until, shown, words });
    }

    fn release_id(&mut self, channel: &ChannelName) -> ReleaseId {
        let place = self.site.channels().iter().take_while(|other| other.name() != channel).count();
        let first = NUMBERS.saturating_mul(u64::try_from(place).unwrap_or(u64::MAX));
        let last = self.numbered.entry(channel.clone()).or_default();
        // So few wait that one is free.
        loop {
            *last = (*last + 1) % NUMBERS;
            let id = ReleaseId(first.saturating_add(*last));
            if !self.held.contains_key(&id) && !self.may_pass.contains_key(&id) {
                return id;
            }
        }
    }

    /// A guard's process is another one: it knows of nothing that waits.
    pub(crate) fn guard_lost(&mut self, channel: &ChannelName) {
        self.may_pass.retain(|_, one| one.channel != *channel);
        let lost = self.held.iter().filter(|(_, held)| held.message.channel == *channel);
        for id in lost.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.take(id);
        }
    }

    /// What people have released waits no more at its guard.
    pub(crate) fn settled(&mut self, channel: &ChannelName, ticket: u64) {
        self.may_pass.retain(|_, one| one.channel != *channel || one.ticket != ticket);
    }

    /// It waits no more, and nothing waits for its time: that can be a day, and its writer makes as many as the guard's quota lets it.
    fn take(&mut self, id: ReleaseId) -> Option<Held> {
        let held = self.held.remove(&id)?;
        self.timers.remove(&(held.until, Timer::Release(id)));
        Some(held)
    }

    pub(crate) fn release_due(&mut self, id: ReleaseId, now: Time) {
        if self.held.get(&id).is_some_and(|held| held.until <= now) {
            self.not_released(id);
        }
    }

    fn not_released(&mut self, id: ReleaseId) {
        if let Some(held) = self.take(id) {
            self.say(Output::NotReleased(held.message.channel, held.ticket));
        }
    }

    /// The word of somebody who may not sign on, or of a workstation that is out, counts for nothing that has not passed.
    pub(crate) fn withdraw_releases(&mut self, user: Option<&UserName>, device: Option<&HostName>) {
        for held in self.held.values_mut() {
            held.words
                .retain(|word| user != Some(word.action().user()) && device != Some(word.action().host()));
        }
        self.hold_back(|_, _, by, at| user != Some(by) && device != Some(at));
    }

    /// Nor does the word of who may have no session now at the label of a guard's writer, or none from that workstation.
    pub(crate) fn withdraw_barred_releases(&mut self) {
        let mut held = std::mem::take(&mut self.held);
        for Held { message, words, .. } in held.values_mut() {
            words.retain(|word| {
                self.is_admitted(&message.channel, word.action().user(), word.action().host())
            });
        }
        self.held = held;
        self.hold_back(Self::is_admitted);
    }

    /// What may pass, and has not by what its guard says, does not where the word of one of those who released it counts no more.
    fn hold_back(&mut self, counts: impl Fn(&Self, &ChannelName, &UserName, &HostName) -> bool) {
        let counts = |one: &MayPass| one.by.iter().all(|(user, host)| counts(self, &one.channel, user, host));
        let back = self.may_pass.iter().filter(|(_, one)| !counts(one)).map(|(id, _)| *id);
        for id in back.collect::<Vec<_>>() {
            let Some(MayPass { channel, ticket, entry, .. }) = self.may_pass.remove(&id) else { continue };
            let reason = format!(
                "a word for it counts no more, and its guard has not said that it passed: {}",
                entry.reason
            );
            self.say(Output::Audit(Entry { verdict: Verdict::Denied, reason, ..entry }));
            self.say(Output::NotReleased(channel, ticket));
        }
    }

    /// Whether somebody may have a session now at the label of this guard's writer, from that workstation.
    fn is_admitted(&self, channel: &ChannelName, user: &UserName, host: &HostName) -> bool {
        let from = self.site.guard(channel).and_then(|(channel, _)| self.site.channel_labels(channel));
        from.and_then(|[from, _]| self.posture_at(&from)).is_none_or(|one| one.admits(user, host))
    }

    /// What the session that is open over this trusted path permits, while nothing bars it.
    pub(crate) fn permission(&self, client: ClientId) -> Option<&Grant<Permission>> {
        if self.lock_of(client).is_none_or(Lock::bars) {
            return None;
        }
        grant_of(&self.sessions.get(&self.own_session(client)?)?.phase)
    }

    fn may_release(&self, client: ClientId, message: &Message) -> bool {
        self.permission(client).is_some_and(|session| rules::release(&self.site, session, message).is_ok())
    }

    /// What waits for the person at this client.
    pub(crate) fn releases(&mut self, client: ClientId, now: Time) {
        if self.permission(client).is_none() {
            return self.refuse(client, RefusalKind::NoSession, NO_SESSION);
        }
        let mine = self.held.iter().filter(|(_, held)| self.may_release(client, &held.message));
        let shown = |(id, held): (&ReleaseId, &Held)| {
            let (channel, _) = self.site.guard(&held.message.channel)?;
            let [_, to] = self.site.channel_labels(channel)?;
            Some(Waiting {
                id: *id,
                message: held.message.clone(),
                to,
                left: held.until.since(now),
                by: held.words.iter().map(|word| word.action().user().clone()).collect(),
            })
        };
        let waiting = mine.filter_map(shown).take(MOST_LISTED).collect();
        self.reply(client, Reply::Releases(waiting));
    }

    /// The next part of a message.
    pub(crate) fn show_release(&mut self, client: ClientId, id: ReleaseId, from: u32) {
        let session = self.own_session(client);
        let may = (self.held.get(&id))
            .is_some_and(|held| self.may_release(client, &held.message))
            .then(|| Some((session?, self.permission(client)?.action().user().clone())))
            .flatten();
        let part = self.held.get_mut(&id).zip(may).and_then(|(held, (session, user))| {
            let from = usize::try_from(from).ok()?;
            let rest = held.content.get(from..)?;
            let part = rest.get(..PART).unwrap_or(rest).to_vec();
            // Only what was shown in order has been shown, and to who is here now.
            let (to, shown) = held.shown.entry(user).or_insert((session, 0));
            if from == 0 {
                (*to, *shown) = (session, 0);
            }
            if *to == session && *shown == from {
                *shown = from.saturating_add(part.len());
            }
            Some(part)
        });
        match part {
            Some(part) => self.reply(client, Reply::Part(part)),
            None => self.refuse(client, RefusalKind::NoMessage, NO_MESSAGE),
        }
    }

    /// A person says that this message may pass, or may not.
    pub(crate) fn release(&mut self, client: ClientId, id: ReleaseId, digest: [u8; 32], consent: Consent) {
        let Some(session) = self.permission(client) else {
            return self.refuse(client, RefusalKind::NoSession, NO_SESSION);
        };
        // One answer, and one count, for a message that there is not and for one that does not wait for this person: who knows what a
        // guard's writer may say could learn by others what it did say, at a label where nothing of it may be known.
        let found = self.held.get(&id).filter(|held| held.message.digest == digest);
        let found =
            found.and_then(|held| Some((held, rules::release(&self.site, session, &held.message).ok()?)));
        let Some((held, word)) = found else {
            let session = session.action();
            let (device, user) = (session.host().clone(), session.user().clone());
            self.count("a word about a message that does not wait for this person", Some(device), Some(user));
            return self.refuse(client, RefusalKind::NoMessage, NO_MESSAGE);
        };
        let shown = held.shown.get(word.action().user());
        if shown
            .is_none_or(|(to, shown)| self.own_session(client) != Some(*to) || *shown != held.content.len())
        {
            return self.refuse(client, RefusalKind::Protocol, NOT_SHOWN);
        }
        let entry = match consent {
            Consent::Refuse => {
                let reason = format!("refused by `{}`", word.action().user());
                Entry { verdict: Verdict::Denied, reason, ..word.audit().clone() }
            }
            Consent::Pass => match held.again(word.action()) {
                Some(why) => return self.refuse(client, RefusalKind::Unavailable, why),
                None => word.audit().clone(),
            },
        };
        let commit = self.commit(Purpose::Release(client), vec![entry], vec![]);
        if let Some(path) = self.clients.get_mut(&client) {
            path.busy = Some(Busy::Releasing(word, id, consent, commit));
        }
    }

    /// The one place where a person's word counts: it consumes the grant.
    pub(crate) fn release_recorded(&mut self, client: ClientId, commit: CommitId, durable: bool) {
        let Some(path) = self.clients.get_mut(&client) else { return };
        if !matches!(&path.busy, Some(Busy::Releasing(.., of)) if *of == commit) {
            return;
        }
        let Some(Busy::Releasing(word, id, consent, _)) = path.busy.take() else { return };
        if !durable {
            return self.refuse(client, RefusalKind::Unavailable, NOT_RECORDED);
        }
        if self.permission(client).is_none() {
            return self.refuse(client, RefusalKind::NoSession, NO_SESSION);
        }
        let Some(held) = self.held.get_mut(&id) else {
            return self.refuse(client, RefusalKind::NoMessage, NO_MESSAGE);
        };
        if consent == Consent::Refuse {
            self.not_released(id);
            return self.answer(client, Reply::Released(Released::Refused));
        }
        // Another's word may have come meanwhile.
        if let Some(why) = held.again(word.action()) {
            return self.refuse(client, RefusalKind::Unavailable, why);
        }
        held.words.push(word);
        if held.words.len() < 2 {
            return self.answer(client, Reply::Released(Released::Waits));
        }
        let Some(Held { message, ticket, words, .. }) = self.take(id) else { return };
        let channel = message.channel.clone();
        let by =
            words.iter().map(|word| (word.action().user().clone(), word.action().host().clone())).collect();
        match rules::pass(&self.site, message, words) {
            Ok(grant) => {
                let entry = grant.audit().clone();
                self.may_pass.insert(id, MayPass { channel, ticket, by, entry });
                self.say(Output::Pass(grant, ticket));
                self.answer(client, Reply::Released(Released::Passes));
            }
            Err(denial) => {
                self.say(Output::Audit(denial.audit().clone()));
                self.say(Output::NotReleased(channel, ticket));
                self.refuse(client, RefusalKind::Unavailable, denial.reason());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_policy::Site;

    #[test]
    fn nothing_waits_for_the_time_of_what_waits_no_more() {
        let partition = |name, label| {
            format!("[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/usr/bin/true\"]\n")
        };
        let parts = [("high", "SECRET"), ("filter", "SECRET"), ("low", "UNCLASSIFIED")];
        let parts = parts.map(|(name, label)| partition(name, label)).concat();
        let guard = "[[channel]]\nname = \"down\"\nkind = \"guard\"\nfrom = \"high\"\nto = \"low\"\nfilter = \"filter\"\n\
            messages = \"10 in 60s\"\nrelease = [\"ada\", \"mia\"]\nrelease-within = \"24h\"\n";
        let small = include_str!("../../../conf/small/site.toml")
            .replace("\"UNCLASSIFIED..CONFIDENTIAL//MED\"", "\"UNCLASSIFIED..SECRET//NATO,MED\"")
            .replace("\"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\"", "\"UNCLASSIFIED..SECRET//NATO,MED\"")
            .replace("clearance = \"UNCLASSIFIED\"", "clearance = \"UNCLASSIFIED..SECRET\"");
        let site = Site::parse(&format!("{small}\n{parts}{guard}")).unwrap();
        let now = Time::from_millis(1_000_000_000);
        let mut machine = Sessions::new(std::sync::Arc::new(site), vec![], [], [], [7; 16], now);
        let channel: ChannelName = "down".parse().unwrap();
        let before = machine.timers.len();
        for ticket in 0..100 {
            machine.offered(channel.clone(), ticket, [9; 32], b"tide".to_vec(), now);
            let id = *machine.held.keys().next().expect("it waits");
            assert_eq!(machine.timers.len(), before + 1);
            match ticket % 2 {
                0 => machine.not_released(id),
                _ => machine.guard_lost(&channel),
            }
            assert_eq!((machine.held.len(), machine.timers.len()), (0, before));
        }
    }
}
