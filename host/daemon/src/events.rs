//! What a process waits for: descriptors, each with what it belongs to. A turn costs by what is ready, not by how many there are.

use crate::Fatal;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};
use std::{fmt, io};

/// The most descriptors that one turn sees to, beside those that it is woken for; the kernel puts those that were seen behind the others.
pub const MOST_SEEN: usize = 256;

/// What can be done at a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Can {
    /// There is something to read, or the end.
    pub reads: bool,
    /// Something can be written again.
    pub writes: bool,
    /// The other end is gone, or there is an error; it may have left something to read.
    pub gone: bool,
}

#[derive(Debug)]
struct Queue {
    epoll: OwnedFd,
    /// Numbers whose descriptor is not waited for any more.
    gone: RefCell<Vec<u64>>,
    /// Numbers that are to be seen to, whatever the kernel says.
    woken: RefCell<Vec<u64>>,
    /// The same, not before a time.
    later: RefCell<BTreeSet<(Instant, u64)>>,
    /// Numbers whose other end is gone, as the kernel has said.
    ended: RefCell<BTreeSet<u64>>,
}

impl Queue {
    /// Adds those whose time has come. How long it is to the next.
    fn due(&self, woken: &mut Vec<u64>) -> Option<Duration> {
        let mut later = self.later.borrow_mut();
        let first = *later.first()?;
        let now = Instant::now();
        if first.0 <= now {
            let after = later.split_off(&(now, u64::MAX));
            woken.extend(std::mem::replace(&mut *later, after).into_iter().map(|(_, number)| number));
        }
        later.first().map(|(at, _)| at.saturating_duration_since(now))
    }
}

/// Descriptors to wait for. `T` says what each belongs to. Level-triggered: what is left undone is said again.
pub struct Events<T> {
    queue: Rc<Queue>,
    sources: HashMap<u64, T>,
    next: u64,
    kernel: Vec<epoll::Event>,
}

impl<T> fmt::Debug for Events<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Events of {} descriptors", self.sources.len())
    }
}

impl<T: Clone> Events<T> {
    /// None yet. To be made before the sandbox is entered.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> Result<Self, Fatal> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(|why| Fatal::new("make an epoll", why))?;
        let queue = Queue {
            epoll,
            gone: RefCell::default(),
            woken: RefCell::default(),
            later: RefCell::default(),
            ended: RefCell::default(),
        };
        Ok(Self {
            queue: Rc::new(queue),
            sources: HashMap::new(),
            next: 0,
            kernel: Vec::with_capacity(MOST_SEEN),
        })
    }

    /// Waits for `fd` to be readable from now on, until it is dropped.
    ///
    /// # Errors
    /// The kernel's: it has no room for more.
    pub fn watch<F: AsFd>(&mut self, fd: F, source: T) -> io::Result<Watched<F>> {
        let (number, interest) = (self.next, EventFlags::IN);
        epoll::add(&self.queue.epoll, &fd, EventData::new_u64(number), interest)?;
        self.next += 1;
        self.sources.insert(number, source);
        Ok(Watched { fd, queue: Rc::clone(&self.queue), number, interest: Cell::new(interest) })
    }

    /// How many descriptors are waited for.
    pub fn count(&self) -> usize {
        self.sources.len()
    }

    /// Waits until something is ready, or for at most `limit`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&mut self, limit: Option<Duration>) -> Result<Vec<(T, Can)>, Fatal> {
        let mut turn = Vec::new();
        self.wait_into(&mut turn, limit)?;
        Ok(turn)
    }

    /// As [`Events::wait`], into memory that the caller keeps for the next turn.
    ///
    /// # Errors
    /// As there.
    pub fn wait_into(&mut self, turn: &mut Vec<(T, Can)>, limit: Option<Duration>) -> Result<(), Fatal> {
        turn.clear();
        for number in self.queue.gone.borrow_mut().drain(..) {
            self.sources.remove(&number);
            self.queue.ended.borrow_mut().remove(&number);
        }
        let mut woken = self.queue.woken.take();
        let next = self.queue.due(&mut woken);
        woken.sort_unstable();
        woken.dedup();
        let nothing = Can { reads: false, writes: false, gone: false };
        let source = |number: u64| self.sources.get(&number).cloned();
        turn.extend(woken.into_iter().filter_map(|number| Some((source(number)?, nothing))));
        let limit =
            if turn.is_empty() { [limit, next].into_iter().flatten().min() } else { Some(Duration::ZERO) };
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        self.kernel.clear();
        match epoll::wait(&self.queue.epoll, spare_capacity(&mut self.kernel), limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(Fatal::new("wait", why)),
        }
        turn.extend(self.kernel.iter().filter_map(|event| {
            let flags = event.flags;
            let ready = Can {
                reads: flags.contains(EventFlags::IN),
                writes: flags.contains(EventFlags::OUT),
                gone: flags.intersects(EventFlags::HUP | EventFlags::ERR),
            };
            let number = event.data.u64();
            if flags.contains(EventFlags::HUP) {
                self.queue.ended.borrow_mut().insert(number);
            }
            Some((source(number)?, ready))
        }));
        Ok(())
    }
}

/// A descriptor that is waited for until this is dropped.
#[derive(Debug)]
pub struct Watched<F: AsFd> {
    fd: F,
    queue: Rc<Queue>,
    number: u64,
    interest: Cell<EventFlags>,
}

impl<F: AsFd> Watched<F> {
    /// Waits for it to be readable, writable, both or neither. That the other end is gone is seen always.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait_for(&self, reads: bool, writes: bool) -> io::Result<()> {
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, reads);
        interest.set(EventFlags::OUT, writes);
        if self.interest.replace(interest) != interest {
            epoll::modify(&self.queue.epoll, &self.fd, EventData::new_u64(self.number), interest)?;
        }
        Ok(())
    }

    /// Has the next turn see to it, whatever the kernel says.
    pub fn wake(&self) {
        self.queue.woken.borrow_mut().push(self.number);
    }

    /// Whether a turn has seen that the other end is gone.
    pub fn is_at_its_end(&self) -> bool {
        self.queue.ended.borrow().contains(&self.number)
    }

    /// As [`Watched::wake`], as soon as it is so late.
    pub fn wake_at(&self, at: Instant) {
        self.queue.later.borrow_mut().insert((at, self.number));
    }
}

impl<F: AsFd> Deref for Watched<F> {
    type Target = F;

    fn deref(&self) -> &F {
        &self.fd
    }
}

impl<F: AsFd> AsFd for Watched<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl<F: AsFd> Drop for Watched<F> {
    fn drop(&mut self) {
        // The kernel forgets a descriptor by itself only when nobody else has it, and others may.
        let _ = epoll::delete(&self.queue.epoll, &self.fd);
        self.queue.gone.borrow_mut().push(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_ipc::Channel;

    const SOON: Option<Duration> = Some(Duration::ZERO);

    #[test]
    fn what_is_left_unread_is_said_again_and_what_is_dropped_is_not() {
        let (a, b) = Channel::pair().unwrap();
        // Somebody else has it, too.
        let _other = b.as_fd().try_clone_to_owned().unwrap();
        let mut events = Events::new().unwrap();
        let watched = events.watch(b, 'b').unwrap();
        assert!(events.wait(SOON).unwrap().is_empty());
        a.send(&1u8).unwrap();
        for _ in 0..2 {
            let turn = events.wait(None).unwrap();
            assert_eq!(turn, [('b', Can { reads: true, writes: false, gone: false })]);
        }
        drop(watched);
        assert!(events.wait(SOON).unwrap().is_empty());
    }

    #[test]
    fn one_that_is_not_read_for_a_while_is_held_back_and_its_end_is_seen_all_the_same() {
        let (a, b) = Channel::pair().unwrap();
        let mut events = Events::new().unwrap();
        let watched = events.watch(b, ()).unwrap();
        watched.wait_for(false, false).unwrap();
        a.send(&1u8).unwrap();
        assert!(events.wait(SOON).unwrap().is_empty());
        watched.wake();
        assert_eq!(events.wait(None).unwrap().len(), 1);
        drop(a);
        assert!(events.wait(None).unwrap()[0].1.gone);
        watched.wait_for(true, false).unwrap();
        assert!(events.wait(None).unwrap()[0].1.reads);
    }
}
