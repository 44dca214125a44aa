//! What is to be done at which time.
//!
//! A child's times go with it: a peer may have its children replaced as often as it likes, and what they have to wait for is more than an hour off.

use levee_ike::IkeId;
use levee_policy::LabelName;
use levee_session::SessionId;
use std::collections::BTreeSet;
use std::time::Duration;

/// The most pairs of one session that its vault is told to keep for what may still arrive, the newest; it has no room for more.
const FORGOTTEN: usize = 64;

/// Something to do at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// This child has lived as long as it should.
    Rekey(u32),
    /// It may not live longer, by its session's protection.
    Expire(u32),
    /// Packets under whatever this session had before have arrived.
    Settle(SessionId),
    /// No packet that was under way when this pair of a session was replaced can still arrive.
    Forget(LabelName, SessionId, u32),
    /// This session's IKE SA is to be made anew.
    Connect(SessionId),
    /// No packet that was under way when another took this IKE SA's place can still arrive.
    Leave(SessionId, IkeId),
    /// Look whether this part of a session has keys whose packets go as they may.
    Change(SessionId),
    /// Tell what was dropped.
    Report,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Timers {
    due: BTreeSet<(Duration, Timer)>,
    /// Those of children, by inbound SPI.
    children: BTreeSet<(u32, Duration, Timer)>,
    /// Pairs that were replaced and are about to be deleted, by session and by when.
    forgotten: BTreeSet<(SessionId, Duration, u32)>,
}

impl Timers {
    /// Sets one.
    pub fn set(&mut self, at: Duration, timer: Timer) {
        match &timer {
            Timer::Rekey(inbound) | Timer::Expire(inbound) => {
                self.children.insert((*inbound, at, timer.clone()));
            }
            Timer::Forget(_, session, spi) => {
                self.forgotten.insert((*session, at, *spi));
            }
            _ => {}
        }
        self.due.insert((at, timer));
    }

    /// When the first is due.
    pub fn first(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Takes one that is due.
    pub fn due(&mut self, now: Duration) -> Option<Timer> {
        self.first().filter(|at| *at <= now)?;
        let (at, timer) = self.due.pop_first()?;
        match &timer {
            Timer::Rekey(inbound) | Timer::Expire(inbound) => {
                self.children.remove(&(*inbound, at, timer.clone()));
            }
            Timer::Forget(_, session, spi) => {
                self.forgotten.remove(&(*session, at, *spi));
            }
            _ => {}
        }
        Some(timer)
    }

    /// This child is gone.
    pub fn gone(&mut self, inbound: u32) {
        while let Some(first) =
            self.children.range((inbound, Duration::ZERO, Timer::Rekey(0))..).next().cloned()
            && first.0 == inbound
        {
            self.children.remove(&first);
            self.due.remove(&(first.1, first.2));
        }
    }

    /// The pairs of a session that were replaced and are about to be deleted.
    pub fn forgotten(&self, session: SessionId) -> impl Iterator<Item = u32> {
        let all = (session, Duration::ZERO, 0)..=(session, Duration::MAX, u32::MAX);
        self.forgotten.range(all).rev().take(FORGOTTEN).map(|(_, _, spi)| *spi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn after(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn of_a_child_that_is_gone_no_time_is_left_however_many_there_were() {
        let mut timers = Timers::default();
        timers.set(after(9_000), Timer::Report);
        for inbound in 256..2_256 {
            timers.set(after(4_200), Timer::Rekey(inbound));
            timers.set(after(60), Timer::Rekey(inbound));
            timers.set(after(300), Timer::Expire(inbound));
            timers.gone(inbound);
        }
        assert_eq!((timers.due.len(), timers.children.len()), (1, 0));
        timers.set(after(1), Timer::Rekey(7));
        timers.set(after(2), Timer::Expire(8));
        timers.gone(9);
        assert_eq!((timers.due(after(0)), timers.due(after(1))), (None, Some(Timer::Rekey(7))));
        timers.gone(7);
        assert_eq!((timers.first(), timers.due(after(3))), (Some(after(2)), Some(Timer::Expire(8))));
        assert_eq!((timers.due.len(), timers.children.len()), (1, 0));
    }

    #[test]
    fn a_vault_hears_of_its_own_sessions_pairs_and_of_no_more_than_it_has_room_for() {
        let mut timers = Timers::default();
        let [one, other] = [1, 2].map(|n| SessionId::from_random([n; 16]));
        let label: LabelName = "LOW".parse().unwrap();
        for spi in 0..20_000 {
            timers.set(after(u64::from(spi)), Timer::Forget(label.clone(), one, spi));
        }
        timers.set(after(30_000), Timer::Forget(label.clone(), other, 7));
        let newest: Vec<u32> = timers.forgotten(one).collect();
        assert_eq!((newest.len(), newest.first()), (FORGOTTEN, Some(&19_999)));
        assert_eq!(timers.forgotten(other).collect::<Vec<_>>(), [7]);
        while timers.due(after(40_000)).is_some() {}
        assert_eq!((timers.forgotten(one).count(), timers.forgotten.len()), (0, 0));
    }
}
