//! Between two partitions: what is taken, and what is given.

use crate::above::Above;
use crate::filter::FILTER;
use levee_daemon::below::Below;
use levee_daemon::pace::{Pace, Turns};
use levee_daemon::{Beginning, Events, Fatal, Order, Warden};
use levee_ipc::warden::channel::{ChannelPart, Counted, Shape};
use levee_sys::sandbox::Sandbox;
use std::time::Instant;

/// What is waited for.
#[derive(Clone, Copy, Debug)]
enum Source {
    Warden,
    /// The writer's end with this number.
    Below(u64),
}

/// Carries messages until the warden says stop or is gone.
///
/// # Errors
/// A sandbox that cannot be entered, or what the warden said.
pub fn run(shape: Shape, beginning: Beginning<ChannelPart>) -> Result<(), Fatal> {
    let mut events = Events::new()?;
    let confined = beginning.confine(&Sandbox::new(FILTER))?;
    let mut warden = confined.ready(&mut events, Source::Warden)?;
    let (mut turns, mut pace) = (Turns::new(Instant::now()), Pace::new(shape.rate));
    let most = usize::try_from(shape.size).map_err(|why| Fatal::new("read from the writer", why))?;
    let mut room = vec![0; most];
    let (mut below, mut above) = (Below::default(), Above::new(shape));
    loop {
        let now = Instant::now();
        let (next, due) = (turns.next(), now >= turns.next());
        below.wait(due)?;
        let turn = (!due || below.is_ending()).then_some(next);
        let until = [turn, above.due()].into_iter().flatten().min();
        let mut readable = below.is_ending();
        for (source, can) in events.wait(until.map(|until| until.saturating_duration_since(now)))? {
            match source {
                Source::Warden if !hear(&mut warden, &mut events, &mut below, &mut above)? => return Ok(()),
                Source::Warden => {}
                Source::Below(number) => {
                    readable = true;
                    if can.gone {
                        below.gone(number, &mut room, &mut above.counts.dropped);
                    }
                }
            }
        }
        // By the clock and by what the writer has written: the reader has no part in when a turn begins, nor in how much it takes.
        let now = Instant::now();
        if now >= next && readable {
            turns.begin(&mut pace, now);
            let taken = below.take(&mut pace, &mut room, &mut above.counts.dropped);
            turns.end(&pace);
            taken.into_iter().for_each(|message| above.take(message));
        }
        above.tell();
    }
}

/// Does what the warden says; false when it is time to end.
fn hear(
    warden: &mut Warden<ChannelPart>,
    events: &mut Events<Source>,
    below: &mut Below,
    above: &mut Above,
) -> Result<bool, Fatal> {
    while let Some(order) = warden.hear()? {
        match order {
            Order::Stop => return Ok(false),
            Order::Take(ChannelPart::Below, with) => below.came(with.one()?, events, Source::Below)?,
            Order::Take(ChannelPart::Above, with) => above.came(with.one()?),
            Order::Take(ChannelPart::Report, _) => warden.say(Counted(above.all())),
            Order::Take(part, _) => return Err(Warden::unwanted(&part)),
        }
    }
    Ok(true)
}
