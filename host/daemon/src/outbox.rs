//! A channel that is never waited for, with a bound on what waits in it.

use crate::share::Share;
use crate::{Events, Fatal, Watched};
use levee_ipc::{Channel, Received, RecvError, SendError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Serialize, de::DeserializeOwned};
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// The most that waits for a peer that does not read just now: beyond it the peer counts as gone. One message may always wait.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Messages.
    pub messages: usize,
    /// Bytes of all of them, as they are sent.
    pub bytes: usize,
}

impl Bound {
    /// For a peer to which everything about 10,000 sessions is said at once.
    pub const SESSIONS: Self = Self { messages: 32_768, bytes: 8 * 1024 * 1024 };
    /// For one of many, which hears little more than answers.
    pub const ANSWERS: Self = Self { messages: 8, bytes: 16 * 1024 };
}

/// Why there is no peer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It has closed its end.
    Gone,
    /// It does not read what it is told.
    Deaf,
    /// It said what is no message, or came with descriptors where none belong.
    Malformed,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the peer is gone",
            Self::Deaf => "the peer does not read its messages",
            Self::Malformed => "a malformed message",
        })
    }
}

/// A channel to another process, with the messages that it has not taken yet.
#[derive(Debug)]
pub struct Outbox<M> {
    channel: Option<Watched<Channel>>,
    /// With the size of each.
    waiting: VecDeque<(M, usize)>,
    bytes: usize,
    bound: Bound,
    /// Why the peer is as good as gone, until that is heard.
    lost: Option<Lost>,
    /// The peer is not heard for now.
    held: bool,
    /// What it has had of its share, where it has no more than that.
    share: Option<Share>,
    /// Until when it is not heard because it has had it.
    rests: Option<Instant>,
}

impl<M: Serialize> Default for Outbox<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Serialize> Outbox<M> {
    /// Without a peer; what is sent is dropped.
    pub fn new() -> Self {
        Self::with(Bound::SESSIONS)
    }

    /// As [`Outbox::new`], with another bound.
    pub fn with(bound: Bound) -> Self {
        let (share, rests) = (None, None);
        Self {
            channel: None,
            waiting: VecDeque::new(),
            bytes: 0,
            bound,
            lost: None,
            held: false,
            share,
            rests,
        }
    }

    /// As [`Outbox::new`], for a peer that is one label's, or one channel's: it takes no more than its share of the time that all have.
    pub fn of_one() -> Self {
        Self { share: Some(Share::new(Instant::now())), ..Self::new() }
    }

    /// Whether there is a peer.
    pub fn is_open(&self) -> bool {
        self.channel.is_some() && self.lost.is_none()
    }

    /// Whether the peer has taken everything.
    pub fn is_clear(&self) -> bool {
        self.waiting.is_empty()
    }

    /// A new peer takes the place of the old one, and gets nothing that was meant for it.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn replace<T: Clone>(
        &mut self,
        channel: Channel,
        events: &mut Events<T>,
        source: T,
    ) -> Result<(), Fatal> {
        self.close();
        let watched = events.watch(channel, source).map_err(|why| Fatal::new("wait for a channel", why))?;
        self.channel = Some(watched);
        Ok(())
    }

    /// There is no peer any more.
    pub fn close(&mut self) {
        (self.channel, self.lost, self.held, self.rests) = (None, None, false, None);
        self.clear();
    }

    /// Sends now, or as soon as the peer reads.
    pub fn send(&mut self, message: M) {
        let Some(channel) = self.channel.as_ref().filter(|_| self.lost.is_none()) else { return };
        if self.waiting.is_empty() {
            match channel.try_send(&message) {
                Ok(()) => return,
                Err(SendError::Full) => {}
                Err(why) => return self.lose(of(&why)),
            }
        }
        let Ok(size) = postcard::experimental::serialized_size(&message) else {
            return self.lose(Lost::Malformed);
        };
        let (messages, bytes) = (self.waiting.len() + 1, self.bytes + size);
        if messages > 1 && (messages > self.bound.messages || bytes > self.bound.bytes) {
            return self.lose(Lost::Deaf);
        }
        self.bytes = bytes;
        self.waiting.push_back((message, size));
        self.interest();
    }

    /// Sends now, with descriptors; false if the peer does not take it now, for these do not wait.
    #[must_use]
    pub fn send_with(&mut self, message: &M, fds: &[BorrowedFd<'_>]) -> bool {
        let channel = self.channel.as_ref().filter(|_| self.lost.is_none() && self.waiting.is_empty());
        let Some(channel) = channel else { return false };
        match channel.try_send_with(message, fds) {
            Ok(()) => true,
            Err(SendError::Full) => false,
            Err(why) => {
                self.lose(of(&why));
                false
            }
        }
    }

    /// Waits for something to hear, or for at most `limit`: for a process that ends, and has nobody else to hear. False if nothing came.
    pub fn wait(&self, limit: Duration) -> bool {
        let Some(channel) = &self.channel else { return false };
        let limit = Timespec::try_from(limit).ok();
        poll(&mut [PollFd::new(&**channel, PollFlags::IN)], limit.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Does not hear the peer, and so holds it back, until it is heard again. That it is gone is seen all the same.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
        self.interest();
    }

    /// The next message; `None` if there is none now. To be called when an event says so, at most [`TURN`](crate::TURN) times, since
    /// what waits for the peer is sent here, too.
    ///
    /// # Errors
    /// Why there is no peer any more. Said once.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Lost> {
        match self.hear_with::<T>()? {
            Some(Received { message, fds }) if fds.is_empty() => Ok(Some(message)),
            Some(_) => {
                self.close();
                Err(Lost::Malformed)
            }
            None => Ok(None),
        }
    }

    /// As [`Outbox::hear`], for a peer that sends descriptors: the caller says how many belong to which message.
    ///
    /// # Errors
    /// As there.
    pub fn hear_with<T: DeserializeOwned>(&mut self) -> Result<Option<Received<T>>, Lost> {
        self.flush();
        let is_held = self.held || self.rests();
        let Some(channel) = &self.channel else { return Ok(None) };
        let lost = match (self.lost, is_held) {
            (Some(lost), _) => lost,
            (None, true) => return Ok(None),
            (None, false) => match channel.try_recv_measured() {
                Ok((received, octets)) => {
                    self.share.iter_mut().for_each(|share| share.spend(octets, Instant::now()));
                    return Ok(Some(received));
                }
                Err(RecvError::Empty) => return Ok(None),
                Err(RecvError::Malformed) => Lost::Malformed,
                Err(RecvError::Closed | RecvError::Io(_)) => Lost::Gone,
            },
        };
        self.close();
        Err(lost)
    }

    /// Whether the peer has had its share, and is heard again later. What one has said that is gone is heard at once: no more comes.
    fn rests(&mut self) -> bool {
        let (Some(share), Some(channel)) = (&self.share, &self.channel) else { return false };
        let now = Instant::now();
        let until = self.rests.filter(|until| *until > now).or_else(|| share.rests(now));
        let until = until.filter(|_| !channel.is_at_its_end());
        if self.rests != until {
            until.into_iter().for_each(|until| channel.wake_at(until));
            self.rests = until;
            self.interest();
        }
        until.is_some()
    }

    fn flush(&mut self) {
        while let (Some(channel), None, Some((first, size))) =
            (&self.channel, self.lost, self.waiting.front())
        {
            match channel.try_send(first) {
                Ok(()) => {
                    self.bytes = self.bytes.saturating_sub(*size);
                    self.waiting.pop_front();
                }
                Err(SendError::Full) => return,
                Err(why) => return self.lose(of(&why)),
            }
            if self.waiting.is_empty() {
                self.interest();
            }
        }
    }

    /// Waits for what there is to do.
    fn interest(&mut self) {
        if let Some(channel) = &self.channel
            && channel.wait_for(!self.held && self.rests.is_none(), !self.waiting.is_empty()).is_err()
        {
            self.lose(Lost::Gone);
        }
    }

    /// Nothing more is said. The channel stays until it is heard that the peer is lost, for it may have said something before.
    fn lose(&mut self, why: Lost) {
        self.clear();
        // One that has closed its end is heard to the end.
        if why != Lost::Gone {
            self.lost = Some(why);
        }
        if let Some(channel) = &self.channel {
            channel.wake();
        }
    }

    fn clear(&mut self) {
        self.waiting = VecDeque::new();
        self.bytes = 0;
    }
}

fn of(error: &SendError) -> Lost {
    match error {
        SendError::Full => Lost::Deaf,
        SendError::TooLarge => Lost::Malformed,
        SendError::Closed | SendError::Io(_) => Lost::Gone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;
    use std::time::Instant;

    fn open(bound: Bound) -> (Outbox<Vec<u8>>, Events<()>, Channel) {
        let (ours, theirs) = Channel::pair().unwrap();
        let (mut outbox, mut events) = (Outbox::with(bound), Events::new().unwrap());
        outbox.replace(ours, &mut events, ()).unwrap();
        (outbox, events, theirs)
    }

    /// Sends until something waits.
    fn fill(outbox: &mut Outbox<Vec<u8>>) {
        while outbox.is_clear() {
            outbox.send(vec![7; 1_000]);
        }
    }

    #[test]
    fn what_a_peer_does_not_take_now_it_gets_later_in_order_and_whole() {
        let (mut outbox, mut events, peer) = open(Bound::SESSIONS);
        let all: Vec<Vec<u8>> = (0..2_000u16).map(|n| n.to_be_bytes().repeat(500)).collect();
        all.iter().for_each(|message| outbox.send(message.clone()));
        assert!(!outbox.is_clear());
        let (mut heard, began) = (Vec::new(), Instant::now());
        while heard.len() < all.len() {
            assert!(began.elapsed() < Duration::from_secs(20));
            while let Ok(received) = peer.try_recv::<Vec<u8>>() {
                heard.push(received.message);
            }
            for _ in events.wait(Some(Duration::from_millis(10))).unwrap() {
                assert_eq!(outbox.hear::<u8>(), Ok(None));
            }
        }
        assert!(heard == all && outbox.is_clear());
    }

    #[test]
    fn a_peer_that_does_not_read_is_lost_at_the_bound_and_nothing_of_what_waited_is_kept() {
        let bounds =
            [Bound { messages: 100, bytes: usize::MAX }, Bound { messages: usize::MAX, bytes: 100_000 }];
        for bound in bounds {
            let (mut outbox, mut events, _peer) = open(bound);
            fill(&mut outbox);
            while outbox.is_open() {
                assert!(outbox.waiting.len() <= 100);
                outbox.send(vec![7; 1_000]);
            }
            assert!(outbox.waiting.is_empty());
            assert_eq!(events.wait(None).unwrap().len(), 1, "somebody must see to it");
            assert_eq!(outbox.hear::<u8>(), Err(Lost::Deaf));
            assert_eq!(outbox.hear::<u8>(), Ok(None), "said once");
        }
    }

    #[test]
    fn one_message_may_wait_however_large_it_is() {
        let (mut outbox, _events, _peer) = open(Bound { messages: 1, bytes: 10 });
        fill(&mut outbox);
        assert!(outbox.is_open());
        outbox.send(vec![1]);
        assert!(!outbox.is_open());
    }

    #[test]
    fn what_a_peer_said_before_it_ended_is_heard_and_what_is_no_message_ends_it() {
        let (mut outbox, mut events, peer) = open(Bound::ANSWERS);
        peer.send(&5u8).unwrap();
        drop(peer);
        outbox.send(vec![1]);
        assert_eq!(events.wait(None).unwrap().len(), 2, "woken, and readable");
        assert_eq!(outbox.hear::<u8>(), Ok(Some(5)));
        assert_eq!(outbox.hear::<u8>(), Err(Lost::Gone));
        let (mut outbox, _events, peer) = open(Bound::ANSWERS);
        peer.send(&[1u8, 2, 3]).unwrap();
        assert_eq!(outbox.hear::<u8>(), Err(Lost::Malformed));
        let (mut outbox, _events, peer) = open(Bound::ANSWERS);
        peer.send_with(&1u8, &[peer.as_fd()]).unwrap();
        assert_eq!(outbox.hear::<u8>(), Err(Lost::Malformed), "descriptors where none belong");
    }

    #[test]
    fn one_that_is_held_back_is_not_heard_until_it_is_again() {
        let (mut outbox, mut events, peer) = open(Bound::ANSWERS);
        outbox.hold(true);
        peer.send(&1u8).unwrap();
        assert_eq!(outbox.hear::<u8>(), Ok(None));
        assert!(events.wait(Some(Duration::ZERO)).unwrap().is_empty());
        outbox.hold(false);
        assert_eq!(events.wait(None).unwrap().len(), 1);
        assert_eq!(outbox.hear::<u8>(), Ok(Some(1)));
    }

    /// What one turn hears.
    fn turn(outbox: &mut Outbox<Vec<u8>>) -> usize {
        let mut heard = 0;
        while heard < crate::TURN && outbox.hear::<Vec<u8>>().expect("a peer").is_some() {
            heard += 1;
        }
        heard
    }

    #[test]
    fn who_speaks_without_end_is_heard_in_part_and_told_everything_and_who_ends_then_is_heard_to_the_end() {
        let (ours, theirs) = Channel::pair().unwrap();
        let (mut outbox, mut events) = (Outbox::<Vec<u8>>::of_one(), Events::new().unwrap());
        outbox.replace(ours, &mut events, ()).unwrap();
        let (mut heard, mut turns, begun) = (0, 0, Instant::now());
        let speak = || while theirs.try_send(&vec![7u8; 30_000]).is_ok() {};
        while begun.elapsed() < Duration::from_secs(1) {
            speak();
            for _ in events.wait(Some(Duration::from_millis(100))).unwrap() {
                (heard, turns) = (heard + turn(&mut outbox), turns + 1);
            }
        }
        // Two seconds' share and another's, of 469 pieces each.
        assert!((69..130).contains(&heard), "{heard}");
        assert!(turns < heard + 110, "{turns} turns");
        speak();
        while turn(&mut outbox) > 0 {}
        assert!(begun.elapsed() < Duration::from_secs(2), "it has had its share");
        // It is told all the same, and what it does not take waits.
        let mut told = 0;
        while outbox.is_clear() {
            outbox.send(vec![1]);
            told += 1;
        }
        for _ in 0..told {
            assert_eq!(theirs.recv::<Vec<u8>>().unwrap().message, [1]);
            outbox.hear::<Vec<u8>>().unwrap();
        }
        assert!(outbox.is_clear());
        // What it has said is no more than a channel has room for.
        drop(theirs);
        assert!(events.wait(Some(Duration::ZERO)).unwrap().iter().any(|(_, can)| can.gone));
        let mut last = 0;
        while let Ok(said) = outbox.hear::<Vec<u8>>() {
            assert!(said.is_some(), "a turn for nothing");
            last += 1;
        }
        assert!((1..20).contains(&last), "{last}");
    }
}
