//! What is taken, what is given, and what is counted.

use levee_daemon::below::{Below, Dropped, Taken};
use levee_daemon::pace::Pace;
use levee_daemon::{Descriptors, Events, Fatal, Kit, One, Order, Warden, begin};
use levee_ipc::warden::channel::{ChannelPart, Shape};
use levee_sys::sandbox::Sandbox;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const FILTER: &str = include_str!("../../../conf/seccomp/channel.toml");
/// How often a reader is told again that something is missing, until it has room for that.
const TOLD: Duration = Duration::from_secs(1);

/// What the warden gives before the channel works.
#[derive(Default)]
struct Given {
    shape: One<Shape>,
}

impl Kit for Given {
    type Part = ChannelPart;

    fn take(&mut self, part: ChannelPart, _: Descriptors) -> Result<(), Fatal> {
        match part {
            ChannelPart::Shape(shape) => self.shape.put(shape),
            other => Err(Fatal::new("take a part", format!("{other:?} comes later"))),
        }
    }
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
enum Source {
    Warden,
    /// The writer's end with this number.
    Below(u64),
}

/// What happened so far, for operators.
#[derive(Debug, Default)]
struct Counts {
    passed: u64,
    bytes: u64,
    too_large: u64,
    dropped: Dropped,
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
        all.into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| (what.to_owned(), count))
            .collect()
    }
}

/// The upper side.
#[derive(Debug)]
struct Above {
    shape: Shape,
    fd: Option<OwnedFd>,
    /// The number of the next message.
    next: u64,
    /// When the reader is to be told that something is missing.
    missing: Option<Instant>,
    counts: Counts,
}

/// Takes the shape, then carries messages until the warden says stop or is gone.
///
/// # Errors
/// What is missing or wrong with what the warden gave, or a sandbox that cannot be entered.
pub fn run() -> Result<(), Fatal> {
    let Some((given, beginning)) = begin::<Given>()? else { return Ok(()) };
    let shape = given.shape.needed("shape of messages")?;
    let mut events = Events::new()?;
    let confined = beginning.confine(&Sandbox::new(FILTER))?;
    let mut warden = confined.ready(&mut events, Source::Warden)?;
    let (started, mut pace) = (Instant::now(), Pace::new(shape.rate));
    let most = usize::try_from(shape.size).map_err(|why| Fatal::new("read from the writer", why))?;
    let mut room = vec![0; most];
    let (mut below, mut above) = (Below::default(), Above::new(shape));
    // The next turn begins at this moment at the earliest.
    let mut next = started;
    loop {
        let now = Instant::now();
        let due = now >= next;
        below.wait(due)?;
        let turn = (!due || below.is_ending()).then_some(next);
        let until = [turn, above.missing].into_iter().flatten().min();
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
            pace.begin(now.saturating_duration_since(started));
            let taken = below.take(&mut pace, &mut room, &mut above.counts.dropped);
            next = now + pace.rest();
            taken.into_iter().for_each(|message| above.give(message));
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
            Order::Take(ChannelPart::Above, with) => above.fd = Some(with.one()?),
            Order::Take(ChannelPart::Report, _) => warden.say(above.counts.all()),
            Order::Take(part, _) => return Err(Warden::unwanted(&part)),
        }
    }
    Ok(true)
}

impl Above {
    fn new(shape: Shape) -> Self {
        Self { shape, fd: None, next: 0, missing: None, counts: Counts::default() }
    }

    /// Gives the reader a message, or counts why not.
    fn give(&mut self, message: Taken) {
        let number = self.next;
        self.next = number.wrapping_add(1);
        let Some(message) = message else {
            self.counts.too_large += 1;
            return self.lost();
        };
        let length = message.len();
        if self.put(number, &message) {
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
    fn tell(&mut self) {
        let Some(due) = self.missing.filter(|due| *due <= Instant::now()) else { return };
        let told = self.fd.as_ref().is_some_and(|fd| {
            send(fd, &self.next.to_be_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok()
        });
        self.missing = (!told).then_some(due + TOLD);
    }
}
