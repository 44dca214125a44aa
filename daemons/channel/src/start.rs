//! What the warden gives before a channel works, and which of its three forms that makes it.

use crate::{far, receive, send, serve};
use levee_daemon::{Descriptors, Fatal, Kit, One, begin};
use levee_ipc::warden::channel::{ChannelPart, Shape, Wire};
use std::os::fd::OwnedFd;

#[derive(Default)]
struct Given {
    shape: One<Shape>,
    wire: One<(Wire, Vec<OwnedFd>)>,
    next: One<OwnedFd>,
}

impl Kit for Given {
    type Part = ChannelPart;

    fn take(&mut self, part: ChannelPart, with: Descriptors) -> Result<(), Fatal> {
        match part {
            ChannelPart::Shape(shape) => self.shape.put(shape),
            ChannelPart::Wire(wire) => self.wire.put((wire, with.all())),
            ChannelPart::Next => self.next.put(with.one()?),
            other => Err(Fatal::new("take a part", format!("{other:?} comes later"))),
        }
    }
}

/// Takes what the warden gives, then carries messages until the warden says stop or is gone.
///
/// # Errors
/// What is missing or wrong with what the warden gave, or a sandbox that cannot be entered.
pub fn run() -> Result<(), Fatal> {
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(()) };
    let shape = given.shape.needed("shape of messages")?;
    match given.wire.get() {
        None => serve::run(shape, beginning),
        Some((wire, with)) => {
            let mut with = with.into_iter();
            let (Some(socket), Some(key)) = (with.next(), with.next()) else {
                return Err(Fatal::new("begin", "a wire has a socket and a key"));
            };
            let far = far::begin(shape, wire, (socket, with.next()), &key, given.next.get().as_ref())?;
            if far.wire.sends {
                send::run(shape, far, beginning)
            } else {
                receive::run(shape, far, beginning)
            }
        }
    }
}
