//! What is stopped, let run and killed: a control group, by four of its files.

use levee_policy::site::Quota;
use rustix::io::{Errno, pread, pwrite};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// A group of processes.
#[derive(Debug)]
pub struct Group {
    pub number: u64,
    slots: Vec<u16>,
    freeze: OwnedFd,
    events: OwnedFd,
    kill: OwnedFd,
    usage: OwnedFd,
    /// Microseconds that it had used a processor when it had stopped.
    used: Option<u64>,
    /// What it was told last.
    pub runs: bool,
    /// It has been killed, and is not waited for any more.
    pub over: bool,
    /// When it was late, as far as that matters still.
    late: VecDeque<Instant>,
}

/// Why a group cannot be told something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not there any more.
    Gone,
    /// The kernel's.
    Kernel(Errno),
}

impl From<Errno> for Fault {
    fn from(why: Errno) -> Self {
        // What is open of a control group that was removed says this.
        if why == Errno::NODEV { Self::Gone } else { Self::Kernel(why) }
    }
}

impl Group {
    /// One that runs, for all that is known.
    pub fn new(number: u64, slots: Vec<u16>, [freeze, events, kill, usage]: [OwnedFd; 4]) -> Self {
        let late = VecDeque::new();
        Self { number, slots, freeze, events, kill, usage, used: None, runs: true, over: false, late }
    }

    /// Whether it runs in this slot.
    pub fn is_for(&self, slot: u16) -> bool {
        !self.over && self.slots.contains(&slot)
    }

    /// It is late at the end of its slot; whether it is for the last time.
    pub fn is_late(&mut self, now: Instant, allowed: Option<Quota>) -> bool {
        let Some(Quota { most, within }) = allowed else { return false };
        let counts = |then: &Instant| now.saturating_duration_since(*then) < within;
        while self.late.front().is_some_and(|then| !counts(then)) {
            self.late.pop_front();
        }
        self.late.push_back(now);
        self.late.len() as u64 > most
    }

    /// Tells it to run, or to stop, which takes its time.
    ///
    /// # Errors
    /// It is gone, or the kernel's.
    pub fn tell(&mut self, run: bool) -> Result<(), Fault> {
        pwrite(&self.freeze, if run { b"0" } else { b"1" }, 0)?;
        self.runs = run;
        if run {
            self.used = None;
        }
        Ok(())
    }

    /// Whether nothing in it runs.
    ///
    /// # Errors
    /// As above.
    pub fn has_stopped(&self) -> Result<bool, Fault> {
        Ok(self.says(stopped)?)
    }

    /// Whether something keeps it from running.
    ///
    /// # Errors
    /// As above.
    pub fn is_held(&self) -> Result<bool, Fault> {
        Ok(self.says(|line| line == b"frozen 1")?)
    }

    fn says(&self, what: impl Fn(&[u8]) -> bool) -> Result<bool, Errno> {
        let mut room = [0; 128];
        let length = pread(&self.events, &mut room, 0)?;
        Ok(says(room.get(..length).unwrap_or(&[]), what))
    }

    /// Whether it has stopped since it was looked at by [`Group::has_used`].
    pub fn is_fresh(&self) -> bool {
        !self.runs && self.used.is_none()
    }

    /// It has stopped, or is looked at again: for how many microseconds it has used a processor since it was looked at last. What is stopped does so where
    /// it dies, by a signal that was due: it frees its memory then.
    ///
    /// # Errors
    /// As above.
    pub fn has_used(&mut self) -> Result<u64, Fault> {
        let mut room = [0; 64];
        let length = pread(&self.usage, &mut room, 0)?;
        let now = usage(room.get(..length).unwrap_or(&[]));
        let before = std::mem::replace(&mut self.used, now);
        Ok(now.zip(before).map_or(0, |(now, before)| now.saturating_sub(before)))
    }

    /// Kills everything in it, which takes its time.
    ///
    /// # Errors
    /// As above.
    pub fn kill(&self) -> Result<(), Fault> {
        pwrite(&self.kill, b"1", 0)?;
        Ok(())
    }
}

/// Whether a line of a control group's `cgroup.events` says that nothing in it runs: all is frozen, or there is nothing.
fn stopped(line: &[u8]) -> bool {
    line == b"frozen 1" || line == b"populated 0"
}

/// The microseconds in the first line of a control group's `cpu.stat`.
fn usage(stat: &[u8]) -> Option<u64> {
    let line = stat.split(|byte| *byte == b'\n').next()?.strip_prefix(b"usage_usec ")?;
    std::str::from_utf8(line).ok()?.parse().ok()
}

fn says(events: &[u8], what: impl Fn(&[u8]) -> bool) -> bool {
    events.split(|byte| *byte == b'\n').any(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_group_is_late_so_often_in_such_a_time_and_no_more() {
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let late = |moments: &[u64], allowed| {
            let mut group = Group::new(1, vec![0], [file(), file(), file(), file()]);
            let start = Instant::now();
            let at = |second: &u64| start + Duration::from_secs(*second);
            moments.iter().map(|second| group.is_late(at(second), allowed)).collect::<Vec<_>>()
        };
        let allowed = Some(Quota { most: 2, within: Duration::from_secs(60) });
        assert_eq!(late(&[0, 1, 60, 61, 100], allowed), [false, false, false, false, true]);
        assert_eq!(late(&[0, 1, 59], allowed), [false, false, true]);
        assert_eq!(late(&[0; 5], None), [false; 5]);
    }

    #[test]
    fn what_a_group_has_used_is_read_from_the_first_line_and_nothing_else_is_believed() {
        assert_eq!(usage(b"usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n"), Some(1234));
        for wrong in [&b""[..], b"user_usec 9\nusage_usec 1\n", b"usage_usec \n", b"usage_usec 1x\n"] {
            assert_eq!(usage(wrong), None);
        }
    }

    #[test]
    fn a_group_has_stopped_when_the_kernel_says_so_and_not_in_doubt() {
        assert!(says(b"populated 1\nfrozen 1\n", stopped));
        assert!(says(b"populated 0\nfrozen 0\n", stopped));
        assert!(!says(b"populated 1\nfrozen 0\n", stopped));
        assert!(!says(b"", stopped));
        assert!(!says(b"frozen 10\n", stopped));
    }
}
