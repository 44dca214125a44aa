//! The channel to the warden, while the process works.

use crate::{Descriptors, Events, Fatal, Lost, Outbox};
use levee_ipc::Channel;
use levee_ipc::warden::{self, Part, Said};
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

/// What the warden says to a process that works.
#[derive(Debug)]
pub enum Order<P> {
    /// Take this: a channel in the place of one whose other end has died, or news.
    Take(P, Descriptors),
    /// It is time to end, or the warden is gone.
    Stop,
}

/// The warden, to a process of the role whose parts these are.
#[derive(Debug)]
pub struct Warden<P: Part> {
    outbox: Outbox<Said<P::Says>>,
    of: PhantomData<P>,
}

impl<P: Part> Warden<P> {
    /// The warden at the other end of this channel. It is told that the process is at work.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn new<T: Clone>(control: Channel, events: &mut Events<T>, source: T) -> Result<Self, Fatal> {
        let mut outbox = Outbox::new();
        outbox.replace(control, events, source)?;
        let mut warden = Self { outbox, of: PhantomData };
        warden.outbox.send(Said::Ready);
        Ok(warden)
    }

    /// Says something.
    pub fn say(&mut self, what: P::Says) {
        self.outbox.send(Said::Says(what));
    }

    /// Says something now, with descriptors; false if the warden does not take it.
    #[must_use]
    pub fn say_with(&mut self, what: P::Says, fds: &[BorrowedFd<'_>]) -> bool {
        self.outbox.send_with(&Said::Says(what), fds)
    }

    /// What the warden says next, if anything.
    ///
    /// # Errors
    /// It says what is not for this role, or not for one that works, or does not read what it is told.
    pub fn hear(&mut self) -> Result<Option<Order<P>>, Fatal> {
        let received = match self.outbox.hear_with::<warden::Order<P>>() {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(None),
            Err(Lost::Gone) => return Ok(Some(Order::Stop)),
            Err(why) => return Err(Fatal::new("hear the warden", why)),
        };
        match received.message {
            warden::Order::Give(part) if part.is_late() => {
                let with = Descriptors::of(&part, received.fds)?;
                Ok(Some(Order::Take(part, with)))
            }
            warden::Order::Stop => Ok(Some(Order::Stop)),
            other => Err(Fatal::new("hear the warden", format!("{other:?} is not for a process at work"))),
        }
    }

    /// What is wrong with a part that [`Warden::hear`] gave and the process has no use for.
    pub fn unwanted(part: &P) -> Fatal {
        Fatal::new("hear the warden", format!("there is no use for {part:?}"))
    }
}
