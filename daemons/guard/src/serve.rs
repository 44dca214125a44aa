//! The loop: who is heard, and what for.

use crate::passage::Passage;
use levee_bounds::Schema;
use levee_daemon::below::{Below, Dropped};
use levee_daemon::pace::Pace;
use levee_daemon::{Descriptors, Events, Fatal, Kit, One, Order, Outbox, TURN, Warden, Watched, begin};
use levee_ipc::Channel;
use levee_ipc::guard::{GuardToSessiond, SessiondToGuard};
use levee_ipc::warden::guard::{Bounds, GuardPart, GuardSays};
use levee_sys::sandbox::Sandbox;
use rustix::rand::{GetRandomFlags, getrandom};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

const FILTER: &str = include_str!("../../../conf/seccomp/guard.toml");

/// What the warden gives before the guard works.
#[derive(Default)]
struct Given {
    bounds: One<Bounds>,
    sessiond: One<Channel>,
}

impl Kit for Given {
    type Part = GuardPart;

    fn take(&mut self, part: GuardPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            GuardPart::Bounds(bounds) => self.bounds.put(bounds),
            GuardPart::Sessiond => self.sessiond.put(with.channel()?),
            other => Err(Fatal::new("take a part", format!("{other:?} comes later"))),
        }
    }
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
enum Source {
    Warden,
    Sessiond,
    /// The writer's end with this number.
    Below(u64),
    /// The filter's end with this number.
    Filter(u64),
}

struct Guard {
    events: Events<Source>,
    warden: Warden<GuardPart>,
    sessiond: Outbox<GuardToSessiond>,
    below: Below,
    dropped: Dropped,
    filter: Option<Watched<OwnedFd>>,
    /// The number of the filter's end.
    filters: u64,
    passage: Passage,
}

/// Takes the bounds, then lets messages through until the warden says stop or is gone.
///
/// # Errors
/// What is missing or wrong with what the warden gave, or a sandbox that cannot be entered.
pub fn run() -> Result<(), Fatal> {
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(()) };
    let bounds = given.bounds.needed("bounds of messages")?;
    let fault = |why| Fatal::new("read the bounds", why);
    let schema = bounds.schema.as_deref().map(Schema::new).transpose().map_err(fault)?.map(Arc::new);
    let most = usize::try_from(bounds.shape.size).map_err(|why| Fatal::new("read the bounds", why))?;
    // What was asked by one before it is not what this one asks.
    let mut first = [0; 8];
    getrandom(&mut first, GetRandomFlags::empty()).map_err(|why| Fatal::new("draw a number", why))?;
    let mut events = Events::new()?;
    let confined = beginning.confine(&Sandbox::new(FILTER))?;
    let warden = confined.ready(&mut events, Source::Warden)?;
    let (started, mut pace) = (Instant::now(), Pace::new(bounds.shape.rate));
    let mut room = vec![0; most];
    let mut guard = Guard {
        events,
        warden,
        sessiond: Outbox::new(),
        below: Below::default(),
        dropped: Dropped::default(),
        filter: None,
        filters: 0,
        passage: Passage::new(bounds, schema, u64::from_be_bytes(first)),
    };
    if let Some(sessiond) = given.sessiond.get() {
        guard.sessiond.replace(sessiond, &mut guard.events, Source::Sessiond)?;
    }
    // The next turn begins at this moment at the earliest.
    let mut next = started;
    loop {
        let now = Instant::now();
        let due = now >= next;
        guard.below.wait(due)?;
        let turn = (!due || guard.below.is_ending()).then_some(next);
        let until = [turn, guard.passage.deadline()].into_iter().flatten().min();
        let limit = until.map(|until| until.saturating_duration_since(now));
        let Some(readable) = guard.hear(limit, &mut room)? else { return Ok(()) };
        // By the clock and by what the writer has written, as for a one-way channel.
        let now = Instant::now();
        if now >= next && readable {
            pace.begin(now.saturating_duration_since(started));
            let taken = guard.below.take(&mut pace, &mut room, &mut guard.dropped);
            next = now + pace.rest();
            taken.into_iter().for_each(|message| guard.passage.came(message));
        }
        guard.go_on(now);
    }
}

impl Guard {
    /// Hears everybody; whether the writer has something, or nothing when it is time to end.
    fn hear(&mut self, limit: Option<std::time::Duration>, room: &mut [u8]) -> Result<Option<bool>, Fatal> {
        let mut readable = self.below.is_ending();
        for (source, can) in self.events.wait(limit)? {
            match source {
                Source::Warden if !self.hear_warden()? => return Ok(None),
                Source::Warden => {}
                Source::Sessiond => self.hear_sessiond(),
                Source::Below(number) => {
                    readable = true;
                    if can.gone {
                        self.below.gone(number, room, &mut self.dropped);
                    }
                }
                Source::Filter(number) if number == self.filters => self.hear_filter(can.gone),
                Source::Filter(_) => {}
            }
        }
        Ok(Some(readable))
    }

    /// Does what the warden says; false when it is time to end.
    fn hear_warden(&mut self) -> Result<bool, Fatal> {
        while let Some(order) = self.warden.hear()? {
            match order {
                Order::Stop => return Ok(false),
                Order::Take(GuardPart::Below, with) => {
                    self.below.came(with.one()?, &mut self.events, Source::Below)?;
                }
                Order::Take(GuardPart::Above, with) => self.passage.reader_came(with.one()?),
                Order::Take(GuardPart::Filter(number), with) => self.filter_came(number, with.one()?)?,
                Order::Take(GuardPart::Sessiond, with) => {
                    self.passage.sessiond_lost();
                    self.sessiond.replace(with.channel()?, &mut self.events, Source::Sessiond)?;
                }
                Order::Take(GuardPart::Report, _) => {
                    let mut counts = self.passage.counts();
                    let dropped = [
                        ("messages with nothing in them", self.dropped.empty),
                        ("messages of writers that are gone, more than there may be", self.dropped.left),
                    ];
                    let dropped = dropped.into_iter().filter(|(_, count)| *count > 0);
                    counts.extend(dropped.map(|(what, count)| (what.to_owned(), count)));
                    self.warden.say(GuardSays::Counted(counts));
                }
                Order::Take(part @ GuardPart::Bounds(_), _) => return Err(Warden::unwanted(&part)),
            }
        }
        Ok(true)
    }

    fn hear_sessiond(&mut self) {
        for _ in 0..TURN {
            match self.sessiond.hear::<SessiondToGuard>() {
                Ok(Some(answer)) => self.passage.answered(&answer),
                Ok(None) => return,
                Err(_) => {
                    self.sessiond.close();
                    return self.passage.sessiond_lost();
                }
            }
        }
    }

    fn filter_came(&mut self, number: u64, fd: OwnedFd) -> Result<(), Fatal> {
        self.passage.filter_lost();
        self.filters = number;
        let watched = self.events.watch(fd, Source::Filter(self.filters));
        self.filter = Some(watched.map_err(|why| Fatal::new("wait for the filter", why))?);
        Ok(())
    }

    fn hear_filter(&mut self, gone: bool) {
        let Some(filter) = &self.filter else { return };
        match self.passage.hear_filter(&**filter, gone) {
            Ok(None) => {}
            Ok(Some(asked)) => self.ask(asked),
            Err(why) => self.filter_lost(why),
        }
    }

    /// Its end is closed, so that nothing that it says late is taken for an answer to what it is asked next; the warden starts it again.
    fn filter_lost(&mut self, why: &str) {
        if self.filter.take().is_some() {
            self.passage.filter_lost();
            self.warden.say(GuardSays::Stuck(self.filters, why.to_owned()));
        }
    }

    fn ask(&mut self, asked: GuardToSessiond) {
        if self.sessiond.is_open() {
            self.sessiond.send(asked);
        } else {
            self.passage.sessiond_lost();
        }
    }

    /// Does what it is time for.
    fn go_on(&mut self, now: Instant) {
        if self.passage.is_stuck(now) {
            self.filter_lost("it does not answer in time");
        }
        let useful = self.filter.as_ref().is_none_or(|filter| self.passage.ask_filter(&**filter));
        if !useful {
            self.filter_lost("it takes nothing");
        }
        self.passage.expire(now);
        self.passage.pass();
        for refused in self.passage.untold(now) {
            self.sessiond.send(refused);
        }
    }
}
