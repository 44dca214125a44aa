//! Guards: what is about to pass is in the audit log first, on the disk.

use crate::audit::Weight;
use crate::daemon::{Daemon, Source};
use levee_daemon::{Fatal, Outbox, TURN};
use levee_ipc::Channel;
use levee_ipc::guard::{GuardToSessiond, SessiondToGuard};
use levee_ipc::warden::SessiondRequest;
use levee_policy::audit::{Action, Event as Entry, Verdict};
use levee_policy::site::Refusal;
use levee_policy::{LabelName, PartitionName, Site};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The guards' channels, by the names that their processes have.
pub(crate) type Guards = BTreeMap<LabelName, Outbox<SessiondToGuard>>;

/// A message that may pass as soon as that is in the log.
pub(crate) struct Passing {
    guard: LabelName,
    ticket: u64,
    entry: Entry,
}

impl Passing {
    /// With the weight of a connection: a guard's writer causes as many as the site's bounds let it, and they are not to take the room
    /// of grants.
    pub(crate) fn entry(&self) -> (Weight, Entry) {
        (Weight::Connection, self.entry.clone())
    }
}

impl Daemon {
    /// A guard has come, in the place of one that is dead.
    pub(crate) fn guard_came(&mut self, name: LabelName, channel: Channel) -> Result<(), Fatal> {
        let guard = self.guards.entry(name.clone()).or_default();
        guard.replace(channel, &mut self.events, Source::Guard(name))
    }

    pub(crate) fn hear_guard(&mut self, name: &LabelName) {
        for _ in 0..TURN {
            let Some(guard) = self.guards.get_mut(name) else { return };
            match guard.hear::<GuardToSessiond>() {
                Ok(Some(GuardToSessiond::Ask { ticket, digest, octets })) => {
                    let entry = passing(&self.site, name, digest, octets, "by its filter");
                    match entry {
                        Some(entry) => {
                            self.batch.passing.push(Passing { guard: name.clone(), ticket, entry })
                        }
                        None => self.answer_guard(name, SessiondToGuard::Refuse(ticket)),
                    }
                }
                Ok(Some(GuardToSessiond::Refused(why, count))) => self.refused_by(name, why, count),
                Ok(None) => return,
                Err(why) => {
                    let what = format!("a guard's process: {why}");
                    self.guards.remove(name);
                    self.counts.add_many(&what, 1, self.clock.now());
                    if why != levee_daemon::Lost::Gone {
                        self.ask_warden(SessiondRequest::Kill(name.clone()));
                    }
                    return;
                }
            }
        }
    }

    /// What a filter and its writer cause is counted, and not recorded one by one.
    fn refused_by(&mut self, name: &LabelName, why: Refusal, count: u64) {
        let what = format!("messages at {name} {}", why.as_str());
        self.counts.add_many(&what, count, self.clock.now());
    }

    /// The one place where a guard is told to let a message pass: its record is in the log if it is `recorded`, and on the disk.
    pub(crate) fn let_through(&mut self, passing: Passing, recorded: bool) {
        let Passing { guard, ticket, .. } = passing;
        let answer = if recorded { SessiondToGuard::Pass(ticket) } else { SessiondToGuard::Refuse(ticket) };
        self.answer_guard(&guard, answer);
    }

    fn answer_guard(&mut self, name: &LabelName, answer: SessiondToGuard) {
        if let Some(guard) = self.guards.get_mut(name) {
            guard.send(answer);
        }
    }
}

/// The record of a message that passes; nothing if the site has no such guard.
fn passing(site: &Site, name: &LabelName, digest: [u8; 32], octets: u32, by: &str) -> Option<Entry> {
    let own = name.as_str().strip_prefix("guard/")?;
    let channel = site.channels().iter().find(|channel| channel.name().as_str() == own)?;
    channel.guard()?;
    let label = |name: &PartitionName| {
        let partition = site.partitions().iter().find(|partition| partition.name() == name)?;
        site.label_name(partition.label())
    };
    let (from, to) = (label(channel.from())?, label(channel.to())?);
    let mut hex = String::with_capacity(64);
    for octet in digest {
        write!(hex, "{octet:02x}").ok()?;
    }
    Some(Entry {
        user: None,
        host: None,
        label: Some(from.clone()),
        action: Action::Pass,
        object: name.to_string(),
        verdict: Verdict::Granted,
        reason: format!("{octets} octets from {from} to {to}, SHA-256 {hex}, let through {by}"),
    })
}
