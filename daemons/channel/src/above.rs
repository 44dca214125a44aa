//! The upper side: what the reader is given, or told, and what is counted.

use levee_daemon::below::{Dropped, Taken};
use levee_ipc::warden::channel::Shape;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How often a reader is told again that something is missing, until it has room for that.
const TOLD: Duration = Duration::from_secs(1);

/// What happened so far, for operators.
#[derive(Debug, Default)]
pub struct Counts {
    passed: u64,
    bytes: u64,
    too_large: u64,
    /// What the lower side has dropped.
    pub dropped: Dropped,
    no_room: u64,
    no_reader: u64,
}

impl Counts {
    fn all(&self) -> Vec<(String, u64)> {
        let all = [
            ("messages passed", self.passed),
            ("bytes passed", self.bytes),
            ("messages too large", self.too_large),
            ("messages with nothing in them", self.dropped.empty),
            ("messages of writers that are gone, more than there may be", self.dropped.left),
            ("messages that the reader had no room for", self.no_room),
            ("messages without a reader", self.no_reader),
        ];
        counted(all)
    }
}

/// The upper side.
#[derive(Debug)]
pub struct Above {
    shape: Shape,
    fd: Option<OwnedFd>,
    /// The number of the next message.
    next: u64,
    /// When the reader is to be told that something is missing.
    missing: Option<Instant>,
    /// What happened so far.
    pub counts: Counts,
}

impl Above {
    /// Of messages of this shape, without a reader yet.
    pub fn new(shape: Shape) -> Self {
        Self { shape, fd: None, next: 0, missing: None, counts: Counts::default() }
    }

    /// Gives the reader a message, which has the next number, or counts why not.
    pub fn take(&mut self, message: Taken) {
        match message {
            Some(message) => self.give(self.next, &message),
            None => {
                self.counts.too_large += 1;
                self.missing_before(self.next.wrapping_add(1));
            }
        }
    }

    /// Messages are missing before this number.
    pub fn missing_before(&mut self, next: u64) {
        self.next = next;
        self.lost();
    }

    /// Gives the reader the message of this number, or counts why not.
    pub fn give(&mut self, number: u64, message: &[u8]) {
        self.next = number.wrapping_add(1);
        let length = message.len();
        if self.put(number, message) {
            self.counts.passed += 1;
            self.counts.bytes = self.counts.bytes.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
            // It has a number, from which the reader knows what was before.
            self.missing = None;
        } else {
            self.lost();
        }
    }

    fn lost(&mut self) {
        if self.shape.numbered && self.missing.is_none() {
            self.missing = Some(Instant::now() + TOLD);
        }
    }

    /// Whether the reader has it now.
    fn put(&mut self, number: u64, message: &[u8]) -> bool {
        let Some(fd) = &self.fd else {
            self.counts.no_reader += 1;
            return false;
        };
        let with_number;
        let bytes = if self.shape.numbered {
            with_number = [&number.to_be_bytes()[..], message].concat();
            &with_number
        } else {
            message
        };
        match send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(_) => true,
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {
                self.counts.no_room += 1;
                false
            }
            Err(_) => {
                self.counts.no_reader += 1;
                self.fd = None;
                false
            }
        }
    }

    /// Tells the reader the number of the next message, where those before it are missing and none came that would say so.
    pub fn tell(&mut self) {
        let Some(due) = self.missing.filter(|due| *due <= Instant::now()) else { return };
        let told = self.fd.as_ref().is_some_and(|fd| {
            send(fd, &self.next.to_be_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
        });
        self.missing = (!told).then_some(due + TOLD);
    }

    /// When there is something to tell.
    pub fn due(&self) -> Option<Instant> {
        self.missing
    }

    /// There is a reader, in the place of one before it.
    pub fn came(&mut self, fd: OwnedFd) {
        self.fd = Some(fd);
    }

    /// What was counted.
    pub fn all(&self) -> Vec<(String, u64)> {
        self.counts.all()
    }
}

/// Those that are not none.
pub fn counted<const N: usize>(all: [(&str, u64); N]) -> Vec<(String, u64)> {
    let some = all.into_iter().filter(|(_, count)| *count > 0);
    some.map(|(what, count)| (what.to_owned(), count)).collect()
}
