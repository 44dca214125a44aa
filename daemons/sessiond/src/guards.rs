//! Guards: what is about to pass is in the audit log first, on the disk. Where the site says so, two people release it before.

use crate::audit::Weight;
use crate::daemon::{Daemon, Source};
use crate::known::digest_of;
use levee_daemon::{Fatal, Outbox, TURN};
use levee_ipc::Channel;
use levee_ipc::guard::{GuardToSessiond, SessiondToGuard};
use levee_ipc::warden::SessiondRequest;
use levee_policy::audit::Event as Entry;
use levee_policy::decision::{Message, Pass};
use levee_policy::site::Refusal;
use levee_policy::{ChannelName, Grant, LabelName};
use levee_session::{Event, Time};
use std::collections::BTreeMap;

/// Of what the site lets pass at a guard in its time, so many times as much is recorded. A guard holds that bound itself, in any stretch of time,
/// and what it lets pass may be heard here sooner or later.
const ROOM: u64 = 2;

/// Every guard.
#[derive(Default)]
pub(crate) struct Guards {
    /// Their channels, by the names that their processes have.
    links: BTreeMap<LabelName, Outbox<SessiondToGuard>>,
    /// How many were recorded since when, whatever process it was.
    recorded: BTreeMap<ChannelName, (Time, u64)>,
}

/// A message that may pass as soon as that is in the log.
pub(crate) struct Passing {
    grant: Grant<Pass>,
    ticket: u64,
}

impl Passing {
    /// With the weight of a connection: a guard's writer causes as many as the site's bounds let it, and they are not to take the room
    /// of grants.
    pub(crate) fn entry(&self) -> (Weight, Entry) {
        (Weight::Connection, self.grant.audit().clone())
    }
}

impl Daemon {
    /// A guard has come, in the place of one that is dead.
    pub(crate) fn guard_came(&mut self, name: LabelName, channel: Channel) -> Result<(), Fatal> {
        self.guard_gone(&name);
        let guard = self.guards.links.entry(name.clone()).or_insert_with(Outbox::of_one);
        guard.replace(channel, &mut self.events, Source::Guard(name))
    }

    pub(crate) fn hear_guard(&mut self, name: &LabelName) {
        for _ in 0..TURN {
            let Some(guard) = self.guards.links.get_mut(name) else { return };
            match guard.hear::<GuardToSessiond>() {
                Ok(Some(GuardToSessiond::Ask { ticket, digest, octets })) => {
                    let channel = channel_of(name).filter(|channel| self.has_room(channel));
                    let granted = channel.and_then(|channel| {
                        let message = Message { channel, digest, octets };
                        // Without anybody's word: enough where nobody is to be asked.
                        self.site.decide_pass(message, Vec::new()).ok()
                    });
                    match granted {
                        Some(grant) => self.passes(grant, ticket),
                        None => self.answer_guard(name, SessiondToGuard::Refuse(ticket)),
                    }
                }
                Ok(Some(GuardToSessiond::Offer { ticket, content })) => match channel_of(name) {
                    Some(channel) => {
                        let digest = digest_of(&content);
                        self.handle(Event::Offered { channel, ticket, digest, content });
                    }
                    None => self.answer_guard(name, SessiondToGuard::Refuse(ticket)),
                },
                Ok(Some(GuardToSessiond::Settled(ticket))) => {
                    if let Some(channel) = channel_of(name) {
                        self.handle(Event::Settled { channel, ticket });
                    }
                }
                Ok(Some(GuardToSessiond::Refused(why, count))) => self.refused_by(name, why, count),
                Ok(None) => return,
                Err(why) => {
                    let what = format!("a guard's process: {why}");
                    self.guards.links.remove(name);
                    self.guard_gone(name);
                    self.counts.add_many(&what, 1, self.clock.now());
                    if why != levee_daemon::Lost::Gone {
                        self.ask_warden(SessiondRequest::Kill(name.clone()));
                    }
                    return;
                }
            }
        }
    }

    /// Whether another message of this guard may be recorded: its process, taken over, would fill the log's disk else.
    fn has_room(&mut self, channel: &ChannelName) -> bool {
        let Some(quota) = self.site.guard(channel).map(|(_, guard)| guard.messages()) else { return false };
        let now = self.clock.now();
        let (since, count) = self.guards.recorded.entry(channel.clone()).or_insert((now, 0));
        if now.since(*since) >= quota.within {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        let has_room = *count <= quota.most.saturating_mul(ROOM);
        if !has_room {
            self.counts.add_many("messages of a guard's process beyond what it may have recorded", 1, now);
        }
        has_room
    }

    /// What a filter and its writer cause is counted, and not recorded one by one.
    fn refused_by(&mut self, name: &LabelName, why: Refusal, count: u64) {
        let what = format!("messages at {name} {}", why.as_str());
        self.counts.add_many(&what, count, self.clock.now());
    }

    /// The one place where a guard is told to let a message pass: its record is in the log if it is `recorded`, and on the disk.
    pub(crate) fn let_through(&mut self, passing: Passing, recorded: bool) {
        let Passing { grant, ticket } = passing;
        let (pass, _) = grant.into_parts();
        let answer = if recorded { SessiondToGuard::Pass(ticket) } else { SessiondToGuard::Refuse(ticket) };
        if let Some(name) = process_of(&pass.message().channel) {
            self.answer_guard(&name, answer);
        }
    }

    /// This may pass once that is in the log.
    pub(crate) fn passes(&mut self, grant: Grant<Pass>, ticket: u64) {
        self.pending.passing.push(Passing { grant, ticket });
    }

    /// People have not released a message.
    pub(crate) fn not_released(&mut self, channel: &ChannelName, ticket: u64) {
        if let Some(name) = process_of(channel) {
            self.answer_guard(&name, SessiondToGuard::NotReleased(ticket));
        }
    }

    /// What waits for people waited at a process that is no more.
    fn guard_gone(&mut self, name: &LabelName) {
        if let Some(channel) = channel_of(name) {
            self.handle(Event::GuardLost(channel));
        }
    }

    fn answer_guard(&mut self, name: &LabelName, answer: SessiondToGuard) {
        if let Some(guard) = self.guards.links.get_mut(name) {
            guard.send(answer);
        }
    }
}

/// The channel of the guard whose process has this name.
fn channel_of(name: &LabelName) -> Option<ChannelName> {
    name.as_str().strip_prefix("guard/")?.parse().ok()
}

/// The name of the process of the guard with this channel.
fn process_of(channel: &ChannelName) -> Option<LabelName> {
    format!("guard/{channel}").parse().ok()
}
