//! The lower side of a channel: what its writers wrote, taken at the site's rate, whatever becomes of it above.

use crate::pace::Pace;
use crate::{Events, Fatal, Watched};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// Writers, each started after the one before had ended, whose messages wait to be taken.
const ENDS: usize = 8;
/// So many messages with nothing in them, one behind the other, are taken for a writer's end where it is gone.
const NOTHING: u64 = 64;
/// Octets of what writers that are gone have left, at most, each message counted with [`BESIDES`].
const LEFT: usize = 48 << 20;
const BESIDES: usize = 64;

/// A message as it was taken: what is in it, or nothing where it was larger than it may be.
pub type Taken = Option<Vec<u8>>;

/// Messages that were not taken whole.
#[derive(Debug, Default)]
pub struct Dropped {
    /// With nothing in them.
    pub empty: u64,
    /// Of writers that are gone, more than there may be.
    pub left: u64,
}

/// The lower side: the writer's end and, where the writer was started anew, what those before it left, first.
#[derive(Debug, Default)]
pub struct Below {
    ends: VecDeque<End>,
    /// How many there have been.
    came: u64,
    /// Octets that those that are gone have left, as [`LEFT`] counts them.
    left: usize,
}

/// A writer's end.
#[derive(Debug)]
struct End {
    number: u64,
    writer: Writer,
}

/// Whether the writer at an end is there.
#[derive(Debug)]
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
    /// A writer has come, behind those that there were; `source` says what its end, of this number, is waited for as.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn came<T: Clone>(
        &mut self,
        fd: OwnedFd,
        events: &mut Events<T>,
        source: impl FnOnce(u64) -> T,
    ) -> Result<(), Fatal> {
        if self.ends.len() >= ENDS
            && let Some(End { writer: Writer::Gone(left), .. }) = self.ends.pop_front()
        {
            let octets = left.iter().map(|(message, _)| message.as_ref().map_or(0, Vec::len) + BESIDES);
            self.left = self.left.saturating_sub(octets.sum());
        }
        self.came = self.came.wrapping_add(1);
        let (fd, number) = (Rc::new(fd), self.came);
        let watched = events.watch(fd.clone(), source(number));
        let watched = watched.map_err(|why| Fatal::new("wait for the writer", why))?;
        self.ends.push_back(End { number, writer: Writer::There { fd, watched } });
        Ok(())
    }

    /// Has the first end waited for, or none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, due: bool) -> Result<(), Fatal> {
        for (end, is_first) in self.ends.iter().zip(std::iter::once(true).chain(std::iter::repeat(false))) {
            if let Writer::There { watched, .. } = &end.writer {
                let waited = watched.wait_for(due && is_first, false);
                waited.map_err(|why| Fatal::new("wait for the writer", why))?;
            }
        }
        Ok(())
    }

    /// The writer at this end is gone; what it left is kept, to be taken turn by turn.
    pub fn gone(&mut self, number: u64, room: &mut [u8], counts: &mut Dropped) {
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
    pub fn is_ending(&self) -> bool {
        self.ends.front().is_some_and(|end| matches!(end.writer, Writer::Gone(_)))
    }

    /// Takes what the pace allows.
    pub fn take(&mut self, pace: &mut Pace, room: &mut [u8], counts: &mut Dropped) -> Vec<Taken> {
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
fn take(fd: &OwnedFd, pace: &mut Pace, room: &mut [u8], counts: &mut Dropped, all: &mut Vec<Taken>) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::SendFlags;
    use rustix::net::send;
    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SocketFlags, SocketType, sendmsg,
        socketpair,
    };
    use std::io::IoSlice;
    use std::os::fd::AsFd;
    use std::time::Duration;

    #[test]
    fn what_writers_that_are_gone_left_is_taken_one_behind_the_other_at_any_rate() {
        for rate in [1 << 10, 1 << 20, 1 << 30] {
            let (mut events, mut below) = (Events::new().unwrap(), Below::default());
            let (mut pace, mut room, mut counts) = (Pace::new(rate), vec![0; 4_096], Dropped::default());
            for number in 1..=3u8 {
                let (theirs, ours) =
                    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                        .unwrap();
                for message in [&[number][..], &[], &[number; 5_000], &[number, number]] {
                    send(&theirs, message, SendFlags::empty()).unwrap();
                }
                below.came(ours, &mut events, drop).unwrap();
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
        let (mut pace, mut room, mut counts) = (Pace::new(1 << 10), vec![0; 4_096], Dropped::default());
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
        below.came(ours, &mut events, drop).unwrap();
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
        assert_eq!((below.left, below.ends.len(), counts.empty, counts.left), (0, 0, 0, 0));
    }

    #[test]
    fn messages_with_nothing_in_them_are_not_the_end_of_a_writer_that_is_there() {
        let (mut events, mut below) = (Events::new().unwrap(), Below::default());
        let (mut pace, mut room, mut counts) = (Pace::new(1 << 30), vec![0; 4_096], Dropped::default());
        let (theirs, ours) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        for _ in 0..100 {
            send(&theirs, &[], SendFlags::empty()).unwrap();
        }
        send(&theirs, b"more", SendFlags::empty()).unwrap();
        below.came(ours, &mut events, drop).unwrap();
        pace.begin(Duration::from_secs(1));
        let taken = below.take(&mut pace, &mut room, &mut counts);
        assert_eq!((taken, counts.empty, below.ends.len()), (vec![Some(b"more".to_vec())], 100, 1));
    }
}
