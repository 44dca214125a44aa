//! One message after another, from the writer through the filter to the reader. What is not let through by a word is refused, and counted.

use levee_bounds::{Passed, Schema, open};
use levee_ipc::guard::{GuardToSessiond, MOST_WAITING, SessiondToGuard};
use levee_ipc::warden::guard::Bounds;
use levee_policy::site::Refusal;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Messages that wait for the filter, and that wait to be recorded or released, at most.
const WAITING: usize = 64;
const HELD: usize = MOST_WAITING;
/// How long sessiond may take for a record.
const RECORD: Duration = Duration::from_secs(10);
/// How often it is told what was refused.
const TOLD: Duration = Duration::from_secs(1);

/// A message that was asked for, and waits.
#[derive(Debug)]
struct Held {
    content: Vec<u8>,
    until: Instant,
}

/// What the filter's end says next.
enum Answer {
    /// Nothing yet.
    None,
    /// It refuses, or its end is closed.
    Nothing,
    /// What may pass; `None` where it is larger than it may be.
    This(Option<Vec<u8>>),
    Gone,
}

/// All messages on their way.
#[derive(Debug)]
pub struct Passage {
    bounds: Bounds,
    schema: Option<Arc<Schema>>,
    /// What the filter has let through, as it did.
    asked_for: Passed,
    /// What the reader has been given, as it was: what people release can wait for hours, and all of it for one moment.
    passed: Passed,
    started: Instant,
    room: Vec<u8>,
    waiting: VecDeque<Vec<u8>>,
    /// Until when the filter may answer what it has been given.
    asked: Option<Instant>,
    held: BTreeMap<u64, Held>,
    /// What may pass by sessiond's word, and waits until the bounds let it.
    granted: VecDeque<(u64, Vec<u8>)>,
    /// Of what people have released: what waits no more, and sessiond does not know it yet.
    settled: Vec<u64>,
    ticket: u64,
    above: Option<OwnedFd>,
    /// The number of the next message that passes.
    next: u64,
    given: u64,
    octets: u64,
    lost: u64,
    refused: BTreeMap<Refusal, u64>,
    untold: BTreeMap<Refusal, u64>,
    tell: Option<Instant>,
}

impl Passage {
    /// Nothing is on its way.
    pub fn new(bounds: Bounds, schema: Option<Arc<Schema>>, ticket: u64) -> Self {
        let passed = || Passed::new(bounds.messages, bounds.octets);
        let (asked_for, passed) = (passed(), passed());
        let room = vec![0; usize::try_from(bounds.shape.size).unwrap_or(0)];
        Self {
            bounds,
            schema,
            asked_for,
            passed,
            started: Instant::now(),
            room,
            waiting: VecDeque::new(),
            asked: None,
            held: BTreeMap::new(),
            granted: VecDeque::new(),
            settled: Vec::new(),
            ticket,
            above: None,
            next: 0,
            given: 0,
            octets: 0,
            lost: 0,
            refused: BTreeMap::new(),
            untold: BTreeMap::new(),
            tell: None,
        }
    }

    /// The reader's end, in the place of the one before.
    pub fn reader_came(&mut self, fd: OwnedFd) {
        self.above = Some(fd);
    }

    /// A message of the writer's: it waits for the filter. `None` is one that is too large.
    pub fn came(&mut self, message: Option<Vec<u8>>) {
        match message {
            None => self.refuse(Refusal::Size),
            Some(_) if self.waiting.len() >= WAITING => self.refuse(Refusal::Full),
            Some(message) => self.waiting.push_back(message),
        }
    }

    /// Gives the filter the next message, if it has none. False if its end is of no use any more.
    pub fn ask_filter(&mut self, filter: &impl AsFd) -> bool {
        if self.asked.is_some() {
            return true;
        }
        let Some(message) = self.waiting.front() else { return true };
        match send(filter, message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => {
                self.waiting.pop_front();
                self.asked = Some(Instant::now() + self.bounds.answer);
                true
            }
            Err(Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Hears the filter; what it lets through goes on to sessiond. An error says why its end is of no use any more: it has said what nobody
    /// asked, is gone, or is silent for too long.
    pub fn hear_filter(
        &mut self,
        filter: &impl AsFd,
        gone: bool,
    ) -> Result<Option<GuardToSessiond>, &'static str> {
        let answer = match recv(filter, &mut *self.room, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, 0)) if gone => Answer::Gone,
            Ok((_, 0)) => Answer::Nothing,
            Ok((_, length)) => Answer::This(self.room.get(..length).map(<[u8]>::to_vec)),
            Err(Errno::AGAIN | Errno::INTR) if gone => Answer::Gone,
            Err(Errno::AGAIN | Errno::INTR) => Answer::None,
            Err(_) => Answer::Gone,
        };
        match answer {
            Answer::None => Ok(None),
            Answer::Gone => Err("it has closed its end"),
            _ if self.asked.take().is_none() => Err("it speaks without being asked"),
            Answer::Nothing => {
                self.refuse(Refusal::Filter);
                Ok(None)
            }
            Answer::This(content) => Ok(self.hold(content).map_err(|why| self.refuse(why)).ok()),
        }
    }

    /// The filter's end is no more: what it was asked has no answer.
    pub fn filter_lost(&mut self) {
        if self.asked.take().is_some() {
            self.refuse(Refusal::Silent);
        }
    }

    /// Whether the filter has taken too long.
    pub fn is_stuck(&self, now: Instant) -> bool {
        self.asked.is_some_and(|until| until <= now)
    }

    /// Holds what the filter lets through to the bounds, and keeps it until sessiond has answered.
    fn hold(&mut self, content: Option<Vec<u8>>) -> Result<GuardToSessiond, Refusal> {
        let content = content.ok_or(Refusal::Size)?;
        let content = match &self.schema {
            Some(schema) => schema.rewrite(&content).ok_or(Refusal::Schema)?,
            None => content,
        };
        if content.len() > self.room.len() {
            return Err(Refusal::Size);
        }
        let octets = u32::try_from(content.len()).map_err(|_| Refusal::Size)?;
        self.is_open()?;
        if self.held.len() + self.granted.len() >= HELD {
            return Err(Refusal::Full);
        }
        self.asked_for.take(content.len(), self.started.elapsed())?;
        let ticket = self.ticket;
        self.ticket = ticket.wrapping_add(1);
        let digest = Sha256::digest(&content).into();
        let (asked, wait) = match self.bounds.release {
            // Sessiond says when they have waited too long.
            Some(within) => (GuardToSessiond::Offer { ticket, content: content.clone() }, within + RECORD),
            None => (GuardToSessiond::Ask { ticket, digest, octets }, RECORD),
        };
        self.held.insert(ticket, Held { content, until: Instant::now() + wait });
        Ok(asked)
    }

    /// Sessiond has answered: what is in the log passes, as soon as the bounds let it ([`Self::pass`]); what people have released also has to
    /// be so still.
    pub fn answered(&mut self, answer: &SessiondToGuard) {
        let (SessiondToGuard::Pass(ticket)
        | SessiondToGuard::Refuse(ticket)
        | SessiondToGuard::NotReleased(ticket)) = answer;
        let Some(held) = self.held.remove(ticket) else { return self.answered_again(answer) };
        match answer {
            SessiondToGuard::Refuse(_) => {
                self.settle(*ticket);
                self.refuse(Refusal::Audit);
            }
            SessiondToGuard::NotReleased(_) => self.refuse(Refusal::People),
            SessiondToGuard::Pass(_) => self.granted.push_back((*ticket, held.content)),
        }
    }

    /// Of what it does not hold.
    fn answered_again(&mut self, answer: &SessiondToGuard) {
        let before = self.granted.len();
        match answer {
            SessiondToGuard::Pass(ticket) | SessiondToGuard::Refuse(ticket) => self.settle(*ticket),
            SessiondToGuard::NotReleased(ticket) => self.granted.retain(|(granted, _)| granted != ticket),
        }
        for _ in self.granted.len()..before {
            self.refuse(Refusal::People);
        }
    }

    /// Sessiond is to know that it waits no more.
    fn settle(&mut self, ticket: u64) {
        if self.bounds.release.is_some() {
            self.settled.push(ticket);
        }
    }

    /// Gives the reader what may pass, one after another, as far as the bounds let it now.
    pub fn pass(&mut self) {
        while let Some((ticket, content)) = self.granted.pop_front() {
            match self.is_open() {
                Err(why) => self.refuse(why),
                Ok(()) if self.passed.take(content.len(), self.started.elapsed()).is_err() => {
                    return self.granted.push_front((ticket, content));
                }
                Ok(()) => self.give(&content),
            }
            self.settle(ticket);
        }
    }

    /// When the next of these may pass.
    fn next(&self) -> Option<Instant> {
        let (_, content) = self.granted.front()?;
        // What could never pass is not held in the first place.
        let at = self.passed.next(content.len(), self.started.elapsed())?;
        self.started.checked_add(at)
    }

    fn is_open(&self) -> Result<(), Refusal> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| Refusal::Hours)?;
        open(self.bounds.hours, now)
    }

    /// Nobody will answer any more, nor say that people's words count no more.
    pub fn sessiond_lost(&mut self) {
        self.settled.clear();
        for _ in std::mem::take(&mut self.held) {
            self.refuse(Refusal::Audit);
        }
        if self.bounds.release.is_some() {
            for _ in std::mem::take(&mut self.granted) {
                self.refuse(Refusal::People);
            }
        }
    }

    /// Sessiond has taken too long for what is refused now.
    pub fn expire(&mut self, now: Instant) {
        let before = self.held.len();
        self.held.retain(|_, held| held.until > now);
        for _ in self.held.len()..before {
            self.refuse(Refusal::Audit);
        }
    }

    /// What waits no more, and what has been refused since this was asked last, where it is time to tell.
    pub fn untold(&mut self, now: Instant) -> Vec<GuardToSessiond> {
        let mut all: Vec<_> = self.settled.drain(..).map(GuardToSessiond::Settled).collect();
        if self.tell.is_some_and(|tell| tell <= now) {
            self.tell = None;
            let untold = std::mem::take(&mut self.untold);
            all.extend(untold.into_iter().map(|(why, count)| GuardToSessiond::Refused(why, count)));
        }
        all
    }

    /// When there is something to do though nobody says anything.
    pub fn deadline(&self) -> Option<Instant> {
        let held = self.held.values().map(|held| held.until).min();
        [self.asked, held, self.tell, self.next()].into_iter().flatten().min()
    }

    fn refuse(&mut self, why: Refusal) {
        *self.refused.entry(why).or_default() += 1;
        *self.untold.entry(why).or_default() += 1;
        self.tell = self.tell.or_else(|| Some(Instant::now() + TOLD));
    }

    fn give(&mut self, content: &[u8]) {
        let number = self.next;
        self.next = number.wrapping_add(1);
        let with_number;
        let message = if self.bounds.shape.numbered {
            with_number = [&number.to_be_bytes()[..], content].concat();
            &with_number
        } else {
            content
        };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match self.above.as_ref().map(|fd| send(fd, message, flags)) {
            Some(Ok(_)) => {
                self.given += 1;
                self.octets = self.octets.saturating_add(u64::try_from(content.len()).unwrap_or(u64::MAX));
            }
            Some(Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR)) => self.lost += 1,
            _ => {
                self.above = None;
                self.lost += 1;
            }
        }
    }

    /// What happened so far, for operators.
    pub fn counts(&self) -> Vec<(String, u64)> {
        let refused = self.refused.iter().map(|(why, count)| (format!("messages {}", why.as_str()), *count));
        let waiting = self.bounds.release.map_or(0, |_| self.held.len());
        let all = [
            ("messages that wait for people".to_owned(), u64::try_from(waiting).unwrap_or(u64::MAX)),
            (
                "messages that wait until so much may pass".to_owned(),
                u64::try_from(self.granted.len()).unwrap_or(u64::MAX),
            ),
            ("messages passed".to_owned(), self.given),
            ("bytes passed".to_owned(), self.octets),
            ("messages that the reader did not take".to_owned(), self.lost),
        ];
        all.into_iter().chain(refused).filter(|(_, count)| *count > 0).collect()
    }
}
