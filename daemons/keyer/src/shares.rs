//! The time that each host takes, and what each label's vaults ask for. What a host's IKE SAs ask for costs what it likes, by the groups that
//! it chooses, as often as it likes; a vault that is taken over has each pair of keys replaced as soon as it has it.

use levee_ipc::Rate;
use levee_policy::{HostName, LabelName};
use std::collections::BTreeMap;
use std::time::Duration;

/// A host has one of so many parts of the time.
const PART: u32 = 6;
/// So much of what it will have it can have at once.
const AHEAD: Duration = Duration::from_millis(300);
/// What takes less does not count. It is no key exchange that keeps others waiting, and may be somebody else's: whoever is on the way can repeat
/// what the host has said, or make up datagrams for its IKE SAs, and shall not use its time up.
const COSTLY: Duration = Duration::from_millis(1);

/// What hosts have had; those that have had nothing lately are not kept.
#[derive(Debug, Default)]
pub struct Shares(BTreeMap<HostName, Duration>);

impl Shares {
    /// Whether this host has had its part.
    pub fn is_spent(&self, host: &HostName, now: Duration) -> bool {
        self.0.get(host).is_some_and(|paid| paid.saturating_sub(now) >= AHEAD)
    }

    /// Something for this host took so long. No one thing takes longer than [`AHEAD`]: what did was not at work all the time.
    pub fn spend(&mut self, host: &HostName, took: Duration, now: Duration) {
        if took < COSTLY {
            return;
        }
        self.0.retain(|_, paid| *paid > now);
        let paid = self.0.entry(host.clone()).or_default();
        *paid = (*paid).max(now).saturating_add(took.min(AHEAD).saturating_mul(PART));
    }
}

/// So many exchanges a label's vaults may ask for at once. One that was started again has the keys of none of its sessions.
const AT_ONCE: u32 = 1_024;
/// And so many more in a second, for ever.
const A_SECOND: u32 = 64;

/// The exchanges that were begun because a vault of a label said so; labels with none lately are not kept.
#[derive(Debug, Default)]
pub struct AtTheirWord(BTreeMap<LabelName, Rate>);

impl AtTheirWord {
    /// Whether this label's vaults may ask for one more.
    pub fn may(&mut self, label: &LabelName, now: Duration) -> bool {
        self.0.get_mut(label).is_none_or(|rate| rate.has(now))
    }

    /// One has been begun.
    pub fn begun(&mut self, label: &LabelName, now: Duration) {
        self.0.retain(|_, rate| !rate.is_full(now));
        self.0.entry(label.clone()).or_insert_with(|| Rate::new(AT_ONCE, A_SECOND, now)).take(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn each_host_has_a_part_of_the_time_and_what_is_soon_done_takes_none_of_it() {
        let hosts = ["ws1", "ws2"].map(|name| HostName::new(name).unwrap());
        let (mut shares, now) = (Shares::default(), at(1_000));
        for _ in 0..1_000 {
            shares.spend(&hosts[0], COSTLY - Duration::from_nanos(1), now);
        }
        assert!(shares.0.is_empty());
        for spent in 1..=10 {
            assert!(!shares.is_spent(&hosts[0], now));
            shares.spend(&hosts[0], at(5), now);
            assert_eq!(shares.is_spent(&hosts[0], now), spent == 10);
        }
        assert!(!shares.is_spent(&hosts[1], now) && !shares.is_spent(&hosts[0], now + at(1)));
        // It stood still.
        shares.spend(&hosts[1], Duration::from_secs(600), now);
        assert!(shares.is_spent(&hosts[1], now + at(1_499)) && !shares.is_spent(&hosts[1], now + at(1_501)));
        shares.spend(&hosts[0], at(1), now + at(5_000));
        assert_eq!(shares.0.len(), 1, "what is paid is forgotten");
    }
}
