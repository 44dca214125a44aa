//! From the first instruction to the sandbox.

use crate::{Descriptors, Events, Fatal, Warden};
use levee_ipc::warden::{CONTROL_FD, Order, Part, Place, Said};
use levee_ipc::{Channel, RecvError};
use levee_sys::sandbox::Sandbox;
use std::marker::PhantomData;

/// Everything that a process is given before it begins. Its fields are [`One`]s and [`Many`]s, empty at first.
pub trait Kit: Default {
    /// One thing of it.
    type Part: Part;

    /// Puts a part in its place.
    ///
    /// # Errors
    /// It has come before, or cannot be used.
    fn take(&mut self, part: Self::Part, with: Descriptors) -> Result<(), Fatal>;
}

/// A part of which there is one.
#[derive(Debug)]
pub struct One<T>(Option<T>);

impl<T> Default for One<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> One<T> {
    /// Takes it.
    ///
    /// # Errors
    /// It has come before.
    pub fn put(&mut self, part: T) -> Result<(), Fatal> {
        if self.0.is_some() {
            let what = std::any::type_name::<T>();
            return Err(Fatal::new("take a part", format!("what there is one of came twice ({what})")));
        }
        self.0 = Some(part);
        Ok(())
    }

    /// What must have come; in an error it is called `what`.
    ///
    /// # Errors
    /// It has not.
    pub fn needed(self, what: &str) -> Result<T, Fatal> {
        self.0.ok_or_else(|| Fatal::new("begin", format!("the warden gave no {what}")))
    }

    /// What may have come.
    pub fn get(self) -> Option<T> {
        self.0
    }

    /// As [`One::get`], to look at it.
    pub fn as_ref(&self) -> Option<&T> {
        self.0.as_ref()
    }
}

/// A part of which there are several, `MOST` of them at most.
#[derive(Debug)]
pub struct Many<T, const MOST: usize>(Vec<T>);

impl<T, const MOST: usize> Default for Many<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T, const MOST: usize> Many<T, MOST> {
    /// Takes one more.
    ///
    /// # Errors
    /// There are too many.
    pub fn put(&mut self, part: T) -> Result<(), Fatal> {
        if self.0.len() >= MOST {
            let what = std::any::type_name::<T>();
            return Err(Fatal::new("take a part", format!("there are more than {MOST} of a kind ({what})")));
        }
        self.0.push(part);
        Ok(())
    }

    /// All of them, at least one; in an error they are called `what`.
    ///
    /// # Errors
    /// There is none.
    pub fn needed(self, what: &str) -> Result<Vec<T>, Fatal> {
        if self.0.is_empty() {
            return Err(Fatal::new("begin", format!("the warden gave no {what}")));
        }
        Ok(self.0)
    }

    /// All of them, or none.
    pub fn all(self) -> Vec<T> {
        self.0
    }
}

/// A process that has its kit and is not confined yet.
#[derive(Debug)]
pub struct Beginning<P> {
    /// Server or workstation.
    pub place: Place,
    control: Channel,
    of: PhantomData<P>,
}

/// A kit, and the beginning of the process that it is for.
pub type Begun<K> = (K, Beginning<<K as Kit>::Part>);

/// Takes what the warden gives until it is time to begin. `None`: the warden does not need this process any more.
///
/// # Errors
/// What came is not the role's, or not as it should be.
pub fn begin<K: Kit>() -> Result<Option<Begun<K>>, Fatal> {
    let control =
        levee_sys::fork::inherited(CONTROL_FD).map_err(|e| Fatal::new("take over the channel", e))?;
    gather(Channel::from_fd(control))
}

fn gather<K: Kit>(control: Channel) -> Result<Option<Begun<K>>, Fatal> {
    let mut kit = K::default();
    loop {
        let received = match control.recv::<Order<K::Part>>() {
            Ok(received) => received,
            Err(RecvError::Closed) => return Ok(None),
            Err(why) => return Err(Fatal::new("hear the warden", why)),
        };
        match received.message {
            Order::Give(part) => {
                let with = Descriptors::of(&part, received.fds)?;
                kit.take(part, with)?;
            }
            Order::Begin(place) => return Ok(Some((kit, Beginning { place, control, of: PhantomData }))),
            Order::Stop => return Ok(None),
        }
    }
}

impl<P: Part> Beginning<P> {
    /// Says why it cannot begin.
    ///
    /// # Errors
    /// The warden does not take it.
    pub fn say(&self, what: P::Says) -> Result<(), Fatal> {
        self.control.send(&Said::Says(what)).map_err(|why| Fatal::new("tell the warden", why))
    }

    /// Enters the sandbox.
    ///
    /// # Errors
    /// It cannot be entered.
    pub fn confine(self, sandbox: &Sandbox<'_>) -> Result<Confined<P>, Fatal> {
        sandbox.enter().map_err(|why| Fatal::new("enter the sandbox", why))?;
        Ok(Confined { control: self.control, of: PhantomData })
    }
}

/// A process in its sandbox, which has not said so yet.
#[derive(Debug)]
pub struct Confined<P> {
    control: Channel,
    of: PhantomData<P>,
}

impl<P: Part> Confined<P> {
    /// Says that it is at work. From now on the warden is heard with everybody else, as `source`.
    ///
    /// # Errors
    /// The warden is gone.
    pub fn ready<T: Clone>(self, events: &mut Events<T>, source: T) -> Result<Warden<P>, Fatal> {
        Warden::new(self.control, events, source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_ipc::warden::mediator::MediatorPart;
    use levee_ipc::warden::tps::TpsPart;
    use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

    #[derive(Debug, Default)]
    struct Given {
        listeners: Many<OwnedFd, 2>,
        sessiond: One<Channel>,
    }

    impl Kit for Given {
        type Part = TpsPart;

        fn take(&mut self, part: TpsPart, with: Descriptors) -> Result<(), Fatal> {
            match part {
                TpsPart::Listener => self.listeners.put(with.one()?),
                TpsPart::Sessiond => self.sessiond.put(with.channel()?),
                other => Err(Fatal::new("take a part", format!("{other:?}"))),
            }
        }
    }

    /// What becomes of a process that is told this, with so many descriptors each.
    fn told(orders: Vec<(Order<TpsPart>, usize)>) -> Result<Option<Given>, Fatal> {
        let (warden, control) = Channel::pair().unwrap();
        for (order, descriptors) in orders {
            let fds: Vec<BorrowedFd<'_>> = (0..descriptors).map(|_| control.as_fd()).collect();
            warden.send_with(&order, &fds).unwrap();
        }
        // What is in flight has a descriptor of this very channel, which would keep it open.
        warden.send(&Order::<TpsPart>::Stop).unwrap();
        Ok(gather::<Given>(control)?.map(|(kit, _)| kit))
    }

    fn give(part: TpsPart) -> (Order<TpsPart>, usize) {
        (Order::Give(part), 1)
    }

    #[test]
    fn a_whole_kit_is_taken_and_what_is_missing_is_named() {
        let begin = || (Order::Begin(Place::Server), 0);
        let kit = told(vec![give(TpsPart::Listener), give(TpsPart::Sessiond), begin()]).unwrap().unwrap();
        assert_eq!(kit.listeners.needed("listener").unwrap().len(), 1);
        kit.sessiond.needed("channel").unwrap();
        let kit = told(vec![begin()]).unwrap().unwrap();
        assert!(kit.listeners.needed("listener").unwrap_err().to_string().contains("gave no listener"));
        assert!(kit.sessiond.needed("channel").unwrap_err().to_string().contains("gave no channel"));
    }

    #[test]
    fn what_comes_twice_or_too_often_or_with_another_number_of_descriptors_ends_the_process() {
        for orders in [
            vec![give(TpsPart::Sessiond), give(TpsPart::Sessiond)],
            vec![give(TpsPart::Listener), give(TpsPart::Listener), give(TpsPart::Listener)],
            vec![(Order::Give(TpsPart::Listener), 0)],
            vec![(Order::Give(TpsPart::Listener), 2)],
        ] {
            assert!(told(orders).is_err());
        }
    }

    #[test]
    fn what_is_no_part_of_the_role_ends_the_process_and_one_that_is_not_needed_ends_in_peace() {
        let (warden, control) = Channel::pair().unwrap();
        let other = MediatorPart::Service {
            name: "web".parse().unwrap(),
            mode: levee_policy::site::Mode::Relay,
            address: "10.0.0.1:80".parse().unwrap(),
        };
        warden.send_with(&Order::Give(other), &[warden.as_fd()]).unwrap();
        assert!(gather::<Given>(control).is_err());
        assert!(told(vec![]).unwrap().is_none());
        let (warden, control) = Channel::pair().unwrap();
        drop(warden);
        assert!(gather::<Given>(control).unwrap().is_none());
    }
}
