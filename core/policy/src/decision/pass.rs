//! Guards: which message passes, and who releases it where the site has people asked.

use super::{Ask, Denial, DenialKind, Grant, Session, Who};
use crate::audit::{Action, hex};
use crate::names::{ChannelName, HostName, LabelName, PartitionName, UserName};
use crate::site::{Channel, Guard, Site};

/// What a guard's filter has let through.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Message {
    /// Which guard's.
    pub channel: ChannelName,
    /// SHA-256 of what would pass.
    pub digest: [u8; 32],
    /// Octets of it.
    pub octets: u32,
}

/// One person's word for one message. It lets nothing pass by itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Release {
    message: Message,
    user: UserName,
    host: HostName,
}

impl Release {
    /// Whose word it is.
    pub fn user(&self) -> &UserName {
        &self.user
    }

    /// The workstation that it came from.
    pub fn host(&self) -> &HostName {
        &self.host
    }
}

/// To let one message of a guard pass.
#[derive(Debug, PartialEq, Eq)]
pub struct Pass {
    message: Message,
}

impl Pass {
    /// Which.
    pub fn message(&self) -> &Message {
        &self.message
    }
}

impl Site {
    /// The guard of this name, with its channel.
    pub fn guard(&self, name: &ChannelName) -> Option<(&Channel, &Guard)> {
        let channel = self.channels().iter().find(|channel| channel.name() == name)?;
        Some((channel, channel.guard()?))
    }

    /// The labels from and to which a channel leads.
    pub fn channel_labels(&self, channel: &Channel) -> Option<[LabelName; 2]> {
        let label = |name: &PartitionName| {
            let partition = self.partitions().iter().find(|partition| partition.name() == name)?;
            self.label_name(partition.label())
        };
        Some([label(channel.from()?)?, label(channel.to()?)?])
    }

    /// May the person of this session be shown this message, and release or refuse it: only if the site names them for its guard, and the
    /// session is at the label of the guard's writer. So what is shown is shown where everything that there is has that label.
    pub fn decide_release(
        &self,
        session: &Grant<Session>,
        message: &Message,
    ) -> Result<Grant<Release>, Box<Denial>> {
        let Session { user, host, name, .. } = session.action();
        let who = Who { user: Some(user), host: Some(host) };
        let Message { channel, digest, octets } = message;
        let object = format!("guard/{channel}: {octets} octets, SHA-256 {}", hex(digest));
        let ask = Ask { who, label: Some(name.clone()), verb: Action::Release, object };
        let found = self
            .guard(channel)
            .and_then(|(channel, guard)| Some((guard.release()?, self.channel_labels(channel)?)));
        let Some((release, [from, to])) = found else {
            let why = format!("the site has no guard `{channel}` whose messages people release");
            return Err(ask.deny(DenialKind::UnknownChannel, why));
        };
        if !release.by().contains(user) {
            let why = format!("the site does not name `{user}` for the guard `{channel}`");
            return Err(ask.deny(DenialKind::NotReleaser, why));
        }
        if *name != from {
            let why = format!("what `{channel}` lets through is released in a session at {from}");
            return Err(ask.deny(DenialKind::OtherLabel, why));
        }
        let release = Release { message: message.clone(), user: user.clone(), host: host.clone() };
        Ok(ask.grant(release, format!("`{user}` is one of those who release what goes to {to}")))
    }

    /// May this message pass its guard, whose filter and bounds have let it through: where the site has people asked, only with the word
    /// of two of them for this very message, from two workstations.
    pub fn decide_pass(
        &self,
        message: Message,
        words: Vec<Grant<Release>>,
    ) -> Result<Grant<Pass>, Box<Denial>> {
        let Message { channel: name, digest, octets } = &message;
        let mut ask =
            Ask { who: Who::default(), label: None, verb: Action::Pass, object: format!("guard/{name}") };
        let found =
            self.guard(name).and_then(|(channel, guard)| Some((guard, self.channel_labels(channel)?)));
        let Some((guard, [from, to])) = found else {
            return Err(ask.deny(DenialKind::UnknownChannel, format!("the site has no guard `{name}`")));
        };
        ask.label = Some(from.clone());
        let mut by = "by its filter".to_owned();
        if let Some(release) = guard.release() {
            let words: Vec<Release> = words.into_iter().map(|word| word.into_parts().0).collect();
            let both = match words.as_slice() {
                [one, other] if one.user != other.user && one.host != other.host => Some([one, other]),
                _ => None,
            };
            let sound = |word: &Release| word.message == message && release.by().contains(&word.user);
            let Some([one, other]) = both.filter(|both| both.iter().all(|word| sound(word))) else {
                let why = "two people have not released it, each from a workstation of their own";
                return Err(ask.deny(DenialKind::NotReleased, why.to_owned()));
            };
            by = format!(
                "by its filter, and released by `{}` at {} and `{}` at {}",
                one.user, one.host, other.user, other.host
            );
        }
        let reason =
            format!("{octets} octets from {from} to {to}, SHA-256 {}, let through {by}", hex(digest));
        Ok(ask.grant(Pass { message }, reason))
    }
}
