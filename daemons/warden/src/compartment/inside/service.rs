//! A service's life: its listeners, when it is started, and the truth about what came of it.

use super::filters::Filters;
use super::program::begin;
use super::serving;
use crate::compartment::listener::{offer, refuse};
use crate::compartment::service::{Report, Served, Told};
use crate::rest::Rest;
use levee_policy::ServiceName;
use levee_policy::site::Mode;
use levee_sys::spawn;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// What runs so long after its start has started.
const SETTLED: Duration = Duration::from_secs(2);
/// How long a service that ended well rests before a connection may start it again.
const PAUSE: Duration = Duration::from_secs(1);
/// Starts are told one by one no more often than this; those between are counted.
const TOLD: Duration = Duration::from_secs(60);

/// A service's listeners, and whether it runs.
#[derive(Debug)]
pub(super) struct Offered {
    served: Served,
    /// Its standard output and error: one.
    log: Vec<OwnedFd>,
    listeners: Vec<OwnedFd>,
    life: Life,
    /// Whether its program could be executed.
    report: Option<spawn::Report>,
    /// The warden is to hear of it.
    is_news: bool,
}

/// What a service does, without its descriptors.
#[derive(Debug, Default)]
struct Life {
    /// It binds its port itself, and runs as long as its label does.
    itself: bool,
    /// It is not to be started.
    off: bool,
    pid: Option<i32>,
    starts: u32,
    /// When it was started, as long as it is not clear whether it runs.
    unsettled: Option<Instant>,
    /// How it ended, and whether well; as long as nothing has been made of it.
    ended: Option<(String, bool)>,
    /// Why it does not run, where it could not be started; told once.
    trouble: Option<String>,
    rest: Rest,
    /// After a good end.
    pause: Option<Instant>,
    /// When a start was told last, and how many were not since.
    told: Option<Instant>,
    untold: u32,
}

/// What is to become of a service that has settled.
#[derive(Debug, PartialEq, Eq)]
enum Settled {
    /// Nothing is to be done.
    No,
    /// It has started, and this is to be told of it.
    Started(String),
    /// It did not start: who waits is refused; told where it is new.
    Failed(Option<String>),
}

impl Life {
    fn begin(&mut self, now: Instant) {
        self.starts = self.starts.saturating_add(1);
        self.rest.began(now);
        (self.unsettled, self.pause) = (Some(now), None);
    }

    fn settle(&mut self, now: Instant) -> Settled {
        let soon = self.unsettled.is_some_and(|since| now.saturating_duration_since(since) < SETTLED);
        match self.ended.take() {
            Some((why, false)) if soon => {
                self.unsettled = None;
                self.rest.ended(now);
                let told = self.trouble.replace(why.clone()).is_some();
                Settled::Failed((!told).then(|| format!("failed to start: {why}")))
            }
            Some(_) => {
                self.pause = Some(now + PAUSE);
                self.has_started(now)
            }
            None if soon => Settled::No,
            None => self.has_started(now),
        }
    }

    fn has_started(&mut self, now: Instant) -> Settled {
        if self.unsettled.take().is_none() {
            return Settled::No;
        }
        let was_in_trouble = self.trouble.take().is_some();
        let recently = self.told.is_some_and(|at| now.saturating_duration_since(at) < TOLD);
        if recently && !was_in_trouble {
            self.untold = self.untold.saturating_add(1);
            return Settled::No;
        }
        self.told = Some(now);
        let by = if self.itself { "with its label" } else { "by its first connection" };
        Settled::Started(match std::mem::take(&mut self.untold) {
            0 => format!("started {by}"),
            count => format!("started {by}, and {count} times before since the last record"),
        })
    }

    /// How long until it is to be settled, or offered again.
    fn next(&self, now: Instant) -> Option<Duration> {
        if self.ended.is_some() {
            return Some(Duration::ZERO);
        }
        let settles = self.unsettled.map(|since| since + SETTLED);
        let rests = (self.pid.is_none() && self.unsettled.is_none()).then(|| now + self.rest.left(now));
        let next = [settles, self.pause, rests].into_iter().flatten();
        next.filter(|at| *at > now).min().map(|at| at.saturating_duration_since(now))
    }

    /// Whether a connection may start it.
    fn is_offered(&self, now: Instant) -> bool {
        let idle = !self.off && self.pid.is_none() && self.ended.is_none() && self.unsettled.is_none();
        idle && self.rest.is_over(now) && self.pause.is_none_or(|until| until <= now)
    }
}

impl Offered {
    /// One that does not run, with what it writes to and its listeners.
    pub fn new(served: Served, off: bool, mut fds: Vec<OwnedFd>) -> Result<Self, String> {
        if fds.is_empty() {
            return Err(format!("{} comes without what it writes to", served.name));
        }
        let listeners = fds.split_off(1);
        let life = Life { itself: served.mode == Mode::Itself, off, ..Life::default() };
        let service = Self { served, log: fds, listeners, life, report: None, is_news: false };
        if service.life.off {
            service.each_listener("refuse who comes to", refuse);
        }
        Ok(service)
    }

    /// Its listeners, where one that has somebody waiting would start it.
    fn waiting(&self, now: Instant) -> impl Iterator<Item = BorrowedFd<'_>> {
        let offered = self.life.is_offered(now);
        self.listeners.iter().filter(move |_| offered).map(AsFd::as_fd)
    }

    fn ended(&mut self, pid: i32, status: u8) {
        if self.life.pid == Some(pid) {
            match self.report.take().and_then(|report| report.failure()) {
                Some(why) => self.has_ended(&why.to_string(), false),
                None => self.has_ended(&format!("ended with status {status}"), status == 0),
            }
        }
    }

    fn has_ended(&mut self, how: &str, well: bool) {
        eprintln!("service {} {how}", self.served.name);
        (self.life.pid, self.life.ended) = (None, Some((how.to_owned(), well)));
    }

    /// Makes of its end, or of that it runs, what it is, and starts it if somebody waits for it. Who waits for one that does not start
    /// is refused by the kernel until it has rested. What is to be told, if anything is.
    fn see_to(&mut self, filters: &mut Filters, now: Instant) -> Option<Report> {
        let told = match self.life.settle(now) {
            Settled::No => None,
            Settled::Started(reason) => Some(Told { done: true, reason }),
            Settled::Failed(told) => {
                self.each_listener("refuse who waits for", refuse);
                self.is_news = true;
                told.map(|reason| Told { done: false, reason })
            }
        };
        // (A listener that listens already stays as it is.)
        if self.life.trouble.is_some() && self.life.is_offered(now) {
            self.each_listener("offer", offer);
        }
        if self.is_wanted(now) {
            self.start(filters, now);
        }
        let is_news = std::mem::take(&mut self.is_news) || told.is_some();
        let trouble = || Some((self.life.trouble.clone()?, self.life.rest.left(now)));
        is_news.then(|| Report { starts: self.life.starts, told, trouble: trouble() })
    }

    /// Whether it is to be started: it binds its port itself and does not run, or a connection or a datagram waits for it.
    fn is_wanted(&self, now: Instant) -> bool {
        if self.life.itself {
            return self.life.is_offered(now);
        }
        let mut fds: Vec<PollFd<'_>> =
            self.waiting(now).map(|listener| PollFd::from_borrowed_fd(listener, PollFlags::IN)).collect();
        !fds.is_empty() && poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn start(&mut self, filters: &mut Filters, now: Instant) {
        self.life.begin(now);
        self.is_news = true;
        // Standard output and error are one.
        let fds: Vec<_> = self.log.iter().chain(&self.log).chain(&self.listeners).map(AsFd::as_fd).collect();
        match begin(&serving::start(&self.served), &fds, filters) {
            Ok((pid, report)) => {
                (self.life.pid, self.report) = (Some(pid.as_raw_nonzero().get()), Some(report));
            }
            Err(why) => self.has_ended(&why, false),
        }
    }

    fn each_listener(&self, what: &str, act: fn(&OwnedFd) -> rustix::io::Result<()>) {
        if let Err(e) = self.listeners.iter().try_for_each(act) {
            eprintln!("cannot {what} {}: {e}", self.served.name);
        }
    }
}

/// All of a compartment's services.
#[derive(Debug, Default)]
pub(super) struct Services(Vec<Offered>);

impl Services {
    /// One more, which has the next place.
    pub fn add(&mut self, service: Offered) {
        self.0.push(service);
    }

    /// Writes what they need written.
    pub fn write(&self) -> Result<(), String> {
        self.0.iter().try_for_each(|service| serving::write(&service.served))
    }

    /// The listeners of those that a connection would start.
    pub fn waiting(&self, now: Instant) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().flat_map(move |service| service.waiting(now))
    }

    /// When one is to be seen to though nothing happens.
    pub fn next(&self, now: Instant) -> Option<Duration> {
        self.0.iter().filter_map(|service| service.life.next(now)).min()
    }

    /// A process has ended, perhaps one of these.
    pub fn ended(&mut self, pid: i32, status: u8) {
        self.0.iter_mut().for_each(|service| service.ended(pid, status));
    }

    /// Has these off and no others. Whether one that was on is off now.
    pub fn turn(&mut self, off: &BTreeSet<ServiceName>) -> bool {
        let mut ends = false;
        for service in &mut self.0 {
            let is_off = off.contains(&service.served.name);
            ends |= is_off && !service.life.off;
            service.life.off = is_off;
        }
        ends
    }

    /// Nothing of any of them runs, and that is no fault of theirs.
    pub fn ended_all(&mut self) {
        for service in &mut self.0 {
            service.report = None;
            let life = &mut service.life;
            (life.pid, life.unsettled, life.ended, life.pause) = (None, None, None, None);
        }
    }

    /// Who comes to one that is off is refused, and to one that is on no more than where it has to rest. What waited at one that was off is
    /// thrown away.
    pub fn refuse_those_off(&self, before: &BTreeSet<ServiceName>) {
        for service in &self.0 {
            let (was_off, is_off) = (before.contains(&service.served.name), service.life.off);
            if is_off || was_off {
                service.each_listener("refuse who comes to", refuse);
            }
            if was_off && !is_off && service.life.trouble.is_none() {
                service.each_listener("offer", offer);
            }
        }
    }

    /// Those that are off.
    pub fn off(&self) -> BTreeSet<ServiceName> {
        self.0.iter().filter(|service| service.life.off).map(|service| service.served.name.clone()).collect()
    }

    /// Sees to each. What is to be told of which.
    pub fn see_to(&mut self, filters: &mut Filters, now: Instant) -> Vec<(u16, Report)> {
        let all = (0..).zip(&mut self.0);
        all.filter_map(|(place, service)| Some((place, service.see_to(filters, now)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(life: &mut Life, now: Instant) {
        assert!(life.is_offered(now));
        (life.unsettled, life.pid) = (Some(now), Some(1));
        life.rest.began(now);
    }

    fn end(life: &mut Life, well: bool) {
        (life.pid, life.ended) = (None, Some(("ended with status 7".into(), well)));
    }

    #[test]
    fn that_it_started_is_told_once_it_has_run_for_a_while() {
        let (mut life, now) = (Life::default(), Instant::now());
        start(&mut life, now);
        assert_eq!(life.settle(now + Duration::from_secs(1)), Settled::No);
        assert!(matches!(life.settle(now + SETTLED), Settled::Started(_)));
        assert_eq!(life.settle(now + SETTLED * 2), Settled::No);
        // It ends later, however: it had started, and may be started again soon.
        end(&mut life, false);
        assert!(!life.is_offered(now + SETTLED * 3));
        assert_eq!(life.settle(now + SETTLED * 3), Settled::No);
        assert!(life.is_offered(now + SETTLED * 3 + PAUSE));
    }

    #[test]
    fn one_that_cannot_start_is_told_once_and_rests_longer_each_time() {
        let (mut life, mut now) = (Life::default(), Instant::now());
        let mut rests = Vec::new();
        for round in 0..6 {
            start(&mut life, now);
            end(&mut life, false);
            let settled = life.settle(now);
            let told = (round == 0).then(|| "failed to start: ended with status 7".to_owned());
            assert_eq!(settled, Settled::Failed(told), "round {round}");
            assert!(!life.is_offered(now));
            rests.push(life.rest.left(now).as_secs());
            now += life.rest.left(now);
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32]);
        // Mended, that is told, too.
        start(&mut life, now);
        assert!(matches!(life.settle(now + SETTLED), Settled::Started(_)));
        assert!(life.trouble.is_none());
    }

    #[test]
    fn one_that_ends_well_after_each_connection_is_told_once_a_minute_with_their_number() {
        let (mut life, mut now) = (Life::default(), Instant::now());
        let mut told = Vec::new();
        for _ in 0..122 {
            start(&mut life, now);
            end(&mut life, true);
            if let Settled::Started(reason) = life.settle(now) {
                told.push(reason);
            }
            now += PAUSE;
        }
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[1].contains("and 59 times before"), "{told:?}");
    }
}
