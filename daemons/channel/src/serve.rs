//! What is taken, what is given, and what is counted.

use crate::pace::Pace;
use levee_daemon::{Descriptors, Events, Fatal, Kit, One, Order, Warden, Watched, begin};
use levee_ipc::warden::channel::{ChannelPart, Shape};
use levee_sys::sandbox::Sandbox;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

const FILTER: &str = include_str!("../../../conf/seccomp/channel.toml");
/// How often a reader is told again that something is missing, until it has room for that.
const TOLD: Duration = Duration::from_secs(1);
/// Writers, each started after the one before had ended, whose messages wait to be taken.
const ENDS: usize = 8;
/// So many messages with nothing in them, one behind the other, are taken for a writer's end where it is gone.
const NOTHING: u64 = 64;
/// Octets of what writers that are gone have left, at most, each message counted with [`BESIDES`].
const LEFT: usize = 48 << 20;
const BESIDES: usize = 64;

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
    empty: u64,
    left: u64,
    no_room: u64,
    no_reader: u64,
}

impl Counts {
    fn all(&self) -> Vec<(String, u64)> {
        let all = [
            ("messages passed", self.passed),
            ("bytes passed", self.bytes),
            ("messages too large", self.too_large),
            ("messages with nothing in them", self.empty),
            ("messages of writers that are gone, more than there may be", self.left),
            ("messages that the reader had no room for", self.no_room),
            ("messages without a reader", self.no_reader),
        ];
        all.into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| (what.to_owned(), count))
            .collect()
    }
}

/// The lower side: the writer's end and, where the writer was started anew, what those before it left, first.
#[derive(Default)]
struct Below {
    ends: VecDeque<End>,
    /// How many there have been.
    came: u64,
    /// Octets that those that are gone have left, as [`LEFT`] counts them.
    left: usize,
}

/// A writer's end.
struct End {
    number: u64,
    writer: Writer,
}

/// Whether the writer at an end is there.
enum Writer {
    There {
        fd: Rc<OwnedFd>,
        watched: Watched<Rc<OwnedFd>>,
    },
    /// What it had written when it ended, each with its length. The socket is closed then: with the messages, whatever descriptors were sent
    /// with them would live on, and what they hold is nobody's any more who could be made to pay for it.
    Gone(VecDeque<(Taken, usize)>),
}

impl Below {
    fn came(&mut self, fd: OwnedFd, events: &mut Events<Source>) -> Result<(), Fatal> {
        if self.ends.len() >= ENDS
            && let Some(End { writer: Writer::Gone(left), .. }) = self.ends.pop_front()
        {
            let octets = left.iter().map(|(message, _)| message.as_ref().map_or(0, Vec::len) + BESIDES);
            self.left = self.left.saturating_sub(octets.sum());
        }
        self.came = self.came.wrapping_add(1);
        let (fd, number) = (Rc::new(fd), self.came);
        let watched = events.watch(fd.clone(), Source::Below(number));
        let watched = watched.map_err(|why| Fatal::new("wait for the writer", why))?;
        self.ends.push_back(End { number, writer: Writer::There { fd, watched } });
        Ok(())
    }

    /// Has the first end waited for, or none.
    fn wait(&self, due: bool) -> Result<(), Fatal> {
        for (end, is_first) in self.ends.iter().zip(std::iter::once(true).chain(std::iter::repeat(false))) {
            if let Writer::There { watched, .. } = &end.writer {
                let waited = watched.wait_for(due && is_first, false);
                waited.map_err(|why| Fatal::new("wait for the writer", why))?;
            }
        }
        Ok(())
    }

    /// The writer at this end is gone; what it left is kept, to be taken turn by turn.
    fn gone(&mut self, number: u64, room: &mut [u8], counts: &mut Counts) {
        let end = self.ends.iter_mut().find(|end| end.number == number);
        let Some(End { writer, .. }) = end else { return };
        let Writer::There { fd, .. } = writer else { return };
        let (mut left, mut nothing) = (VecDeque::new(), 0);
        while nothing < NOTHING {
            match recv(&*fd, &mut *room, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
                Ok((_, 0)) => nothing += 1,
                Ok((_, length)) => {
                    counts.empty += std::mem::take(&mut nothing);
                    let message = room.get(..length).map(<[u8]>::to_vec);
                    let octets = message.as_ref().map_or(0, Vec::len) + BESIDES;
                    if self.left + octets > LEFT {
                        counts.left += 1;
                        continue;
                    }
                    self.left += octets;
                    left.push_back((message, length));
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        *writer = Writer::Gone(left);
    }

    /// Whether what a writer that is gone has left is to be taken next.
    fn is_ending(&self) -> bool {
        self.ends.front().is_some_and(|end| matches!(end.writer, Writer::Gone(_)))
    }

    /// Takes what the pace allows.
    fn take(&mut self, pace: &mut Pace, room: &mut [u8], counts: &mut Counts) -> Vec<Taken> {
        let mut all = Vec::new();
        while let Some(end) = self.ends.front_mut() {
            match &mut end.writer {
                Writer::There { fd, .. } => {
                    take(fd, pace, room, counts, &mut all);
                    break;
                }
                Writer::Gone(left) => {
                    while pace.allows()
                        && let Some((message, length)) = left.pop_front()
                    {
                        pace.took(length);
                        self.left = self.left.saturating_sub(message.as_ref().map_or(0, Vec::len) + BESIDES);
                        all.push(message);
                    }
                    if !left.is_empty() {
                        break;
                    }
                    self.ends.pop_front();
                }
            }
        }
        all
    }
}

/// Takes from a writer that is there what the pace allows.
fn take(fd: &OwnedFd, pace: &mut Pace, room: &mut [u8], counts: &mut Counts, all: &mut Vec<Taken>) {
    while pace.allows() {
        match recv(fd, &mut *room, RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, 0)) => {
                pace.took(0);
                counts.empty += 1;
            }
            Ok((_, length)) => {
                pace.took(length);
                all.push(room.get(..length).map(<[u8]>::to_vec));
            }
            Err(Errno::INTR) => {}
            // Whatever it is, there is nothing to be had now.
            Err(_) => break,
        }
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
                        below.gone(number, &mut room, &mut above.counts);
                    }
                }
            }
        }
        // By the clock and by what the writer has written: the reader has no part in when a turn begins, nor in how much it takes.
        let now = Instant::now();
        if now >= next && readable {
            pace.begin(now.saturating_duration_since(started));
            let taken = below.take(&mut pace, &mut room, &mut above.counts);
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
            Order::Take(ChannelPart::Below, with) => below.came(with.one()?, events)?,
            Order::Take(ChannelPart::Above, with) => above.fd = Some(with.one()?),
            Order::Take(ChannelPart::Report, _) => warden.say(above.counts.all()),
            Order::Take(part, _) => return Err(Warden::unwanted(&part)),
        }
    }
    Ok(true)
}

/// A message as it was taken: what is in it, or nothing where it was larger than it may be.
type Taken = Option<Vec<u8>>;

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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SocketFlags, SocketType, sendmsg,
        socketpair,
    };
    use std::io::IoSlice;
    use std::os::fd::AsFd;

    #[test]
    fn what_writers_that_are_gone_left_is_taken_one_behind_the_other_at_any_rate() {
        for rate in [1 << 10, 1 << 20, 1 << 30] {
            let (mut events, mut below) = (Events::new().unwrap(), Below::default());
            let (mut pace, mut room, mut counts) = (Pace::new(rate), vec![0; 4_096], Counts::default());
            for number in 1..=3u8 {
                let (theirs, ours) =
                    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                        .unwrap();
                for message in [&[number][..], &[], &[number; 5_000], &[number, number]] {
                    send(&theirs, message, SendFlags::empty()).unwrap();
                }
                below.came(ours, &mut events).unwrap();
                drop(theirs);
                below.gone(number.into(), &mut room, &mut counts);
            }
            let (mut taken, mut now) = (Vec::new(), Duration::ZERO);
            for _ in 0..10_000 {
                pace.begin(now);
                taken.extend(below.take(&mut pace, &mut room, &mut counts));
                now += pace.rest();
            }
            let expected: Vec<Taken> =
                (1..=3).flat_map(|number| [Some(vec![number]), None, Some(vec![number; 2])]).collect();
            assert_eq!((taken, counts.empty, below.ends.len()), (expected, 3, 0), "{rate}");
        }
    }

    #[test]
    fn what_a_writer_that_is_gone_sent_with_its_messages_lives_no_longer_than_it() {
        let (mut events, mut below) = (Events::new().unwrap(), Below::default());
        let (mut pace, mut room, mut counts) = (Pace::new(1 << 10), vec![0; 4_096], Counts::default());
        let (theirs, ours) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        for _ in 0..16 {
            send(&theirs, &[7; 4_096], SendFlags::empty()).unwrap();
        }
        let (reads, writes) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::NONBLOCK).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        let descriptors = [writes.as_fd()];
        assert!(with.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&theirs, &[IoSlice::new(b"last")], &mut with, SendFlags::empty()).unwrap();
        drop(writes);
        below.came(ours, &mut events).unwrap();
        drop(theirs);
        assert_eq!(rustix::io::read(&reads, &mut [0; 1]), Err(Errno::AGAIN));
        below.gone(1, &mut room, &mut counts);
        // Nobody has the other end any more.
        assert_eq!(rustix::io::read(&reads, &mut [0; 1]), Ok(0));
        // Its messages are taken at the pace of the channel all the same: less than one in four seconds.
        let (mut taken, mut now) = (Vec::new(), Duration::ZERO);
        while now < Duration::from_secs(30) {
            pace.begin(now);
            taken.extend(below.take(&mut pace, &mut room, &mut counts));
            now += pace.rest();
        }
        assert!((7..=9).contains(&taken.len()), "{}", taken.len());
        while now < Duration::from_secs(600) {
            pace.begin(now);
            taken.extend(below.take(&mut pace, &mut room, &mut counts));
            now += pace.rest();
        }
        assert_eq!((taken.len(), taken.last()), (17, Some(&Some(b"last".to_vec()))));
        assert_eq!((below.left, below.ends.len(), counts.all()), (0, 0, Vec::new()));
    }

    #[test]
    fn messages_with_nothing_in_them_are_not_the_end_of_a_writer_that_is_there() {
        let (mut events, mut below) = (Events::new().unwrap(), Below::default());
        let (mut pace, mut room, mut counts) = (Pace::new(1 << 30), vec![0; 4_096], Counts::default());
        let (theirs, ours) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        for _ in 0..100 {
            send(&theirs, &[], SendFlags::empty()).unwrap();
        }
        send(&theirs, b"more", SendFlags::empty()).unwrap();
        below.came(ours, &mut events).unwrap();
        pace.begin(Duration::from_secs(1));
        let taken = below.take(&mut pace, &mut room, &mut counts);
        assert_eq!((taken, counts.empty, below.ends.len()), (vec![Some(b"more".to_vec())], 100, 1));
    }
}
