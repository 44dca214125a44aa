//! Messages on a byte stream: a big-endian `u32` length, then that many bytes of postcard.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest message, in bytes.
pub const MAX_STREAMED: usize = 64 << 10;

/// Bytes of the length before each message.
const HEADER: usize = 4;

/// Bytes taken from the descriptor at a time.
const CHUNK: usize = 16 << 10;

/// One end of a stream of messages, on a descriptor that does not block.
#[derive(Debug)]
pub struct Stream<F = OwnedFd> {
    fd: F,
    read: Vec<u8>,
}

/// What a sender does when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// It is an error: who does not read is not waited for.
    Fails,
    /// It waits.
    Waits,
}

impl<F: AsFd> Stream<F> {
    /// Takes over a descriptor that does not block.
    pub fn new(fd: F) -> Self {
        Self { fd, read: Vec::new() }
    }

    /// Its descriptor.
    pub fn descriptor(&self) -> &F {
        &self.fd
    }

    /// Whether there is something to receive that the kernel does not know of any more.
    pub fn has_more(&self) -> bool {
        self.whole().is_some_and(|whole| whole.is_none_or(|end| self.read.len() >= end))
    }

    /// Sends one message, whole.
    ///
    /// # Errors
    /// It is too large, the other end is gone, or there is no room and nobody is to wait. A message that went in part is
    /// the end of the stream.
    pub fn send<T: Serialize>(&self, message: &T, full: Full) -> io::Result<()> {
        let mut frame = vec![0; HEADER + MAX_STREAMED];
        let body = frame.get_mut(HEADER..).unwrap_or_default();
        let length = postcard::to_slice(message, body).map_err(io::Error::other)?.len();
        let prefix = u32::try_from(length).map_err(io::Error::other)?.to_be_bytes();
        frame.iter_mut().zip(prefix).for_each(|(to, from)| *to = from);
        frame.truncate(HEADER.saturating_add(length));
        let mut rest = frame.as_slice();
        while !rest.is_empty() {
            match rustix::io::write(&self.fd, rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => rest = rest.get(n..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if full == Full::Waits => {
                    match poll(&mut [PollFd::new(&self.fd, PollFlags::OUT)], None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(e) => return Err(e.into()),
                    }
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// The next message, if a whole one is there.
    ///
    /// # Errors
    /// `UnexpectedEof` when the other end is gone, `InvalidData` for what is no message of this type, the kernel's.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let mut chunk = [0; CHUNK];
            match rustix::io::read(&self.fd, &mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // Never more than one whole message and a chunk is kept.
                Ok(n) => self.read.extend_from_slice(chunk.get(..n).unwrap_or_default()),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn take<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let invalid = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let end = match self.whole() {
            None => return Ok(None),
            Some(None) => return Err(invalid("a message that is too long")),
            Some(Some(end)) => end,
        };
        let Some(body) = self.read.get(HEADER..end) else { return Ok(None) };
        let (message, rest) = postcard::take_from_bytes(body).map_err(|_| invalid("a malformed message"))?;
        if !rest.is_empty() {
            return Err(invalid("a message with more behind it"));
        }
        self.read.drain(..end);
        Ok(Some(message))
    }

    /// Where the first message ends, once its length is there; `Some(None)` where it is too long.
    fn whole(&self) -> Option<Option<usize>> {
        let prefix = self.read.first_chunk::<HEADER>()?;
        let length = usize::try_from(u32::from_be_bytes(*prefix)).unwrap_or(usize::MAX);
        Some((length <= MAX_STREAMED).then_some(HEADER.saturating_add(length)))
    }
}

impl<F: AsFd> AsFd for Stream<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (Stream, Stream) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        (Stream::new(a), Stream::new(b))
    }

    #[test]
    fn messages_arrive_whole_and_in_order_however_they_are_cut() {
        let (a, mut b) = pair();
        assert!(b.receive::<String>().unwrap().is_none());
        a.send(&"one", Full::Fails).unwrap();
        a.send(&"two", Full::Fails).unwrap();
        assert_eq!(b.receive::<String>().unwrap().unwrap(), "one");
        assert_eq!(b.receive::<String>().unwrap().unwrap(), "two");
        for byte in [0, 0, 0, 4, 3, b'a', b'b', b'c'] {
            assert!(b.receive::<String>().unwrap().is_none());
            rustix::io::write(&a, &[byte]).unwrap();
        }
        assert_eq!(b.receive::<String>().unwrap().unwrap(), "abc");
        drop(a);
        assert_eq!(b.receive::<String>().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_has_been_read_and_not_been_received_is_known_though_the_kernel_has_nothing_more() {
        let (a, mut b) = pair();
        (0..100).for_each(|n| a.send(&n, Full::Fails).unwrap());
        let mut received = 0;
        assert!(!b.has_more());
        while let Some(n) = b.receive::<i32>().unwrap() {
            assert_eq!(n, received);
            received += 1;
            assert_eq!(b.has_more(), received < 100);
        }
        assert_eq!(received, 100);
        // A piece is nothing to be received, an end that must be told is.
        rustix::io::write(&a, &[0, 0, 0]).unwrap();
        assert!(b.receive::<i32>().unwrap().is_none() && !b.has_more());
        rustix::io::write(&a, &[9]).unwrap();
        assert!(b.receive::<i32>().unwrap().is_none() && !b.has_more());
    }

    #[test]
    fn what_is_no_message_ends_the_stream_and_who_does_not_read_is_not_waited_for() {
        for bad in [&[0, 1, 0, 1][..], &[0, 0, 0, 3, 9, b'a', b'b'], &[0, 0, 0, 3, 1, b'a', b'b']] {
            let (a, mut b) = pair();
            rustix::io::write(&a, bad).unwrap();
            assert_eq!(b.receive::<String>().unwrap_err().kind(), io::ErrorKind::InvalidData, "{bad:?}");
        }
        let (a, _b) = pair();
        let long = "x".repeat(MAX_STREAMED - 8);
        let refused = (0..100).map(|_| a.send(&long, Full::Fails)).find(Result::is_err);
        assert_eq!(refused.unwrap().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert!(a.send(&"x".repeat(MAX_STREAMED), Full::Fails).is_err());
    }
}
