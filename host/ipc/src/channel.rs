//! One end of a `SOCK_SEQPACKET` pair: whole messages, descriptors beside them.

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
    sockopt::set_socket_send_buffer_size_force,
};
use serde::{Serialize, de::DeserializeOwned};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::room::Room;

/// The most descriptors one message may carry.
pub const MAX_FDS: usize = 16;

/// What may be under way in each direction of a pair with room, as the kernel counts it, which gives twice as much as it is asked for. A small message
/// counts as 768 octets: so these are 43,000 of them, where any other pair takes 278.
const ROOM: usize = 16 << 20;

/// Why a message could not be sent.
#[derive(Debug)]
pub enum SendError {
    /// The peer is gone.
    Closed,
    /// The peer does not read: its queue is full (non-blocking sends only).
    Full,
    /// The message does not fit [`MAX_MESSAGE`], or carries more than [`MAX_FDS`] descriptors.
    TooLarge,
    /// Anything else the kernel said.
    Io(io::Error),
}

/// Why no message was received.
#[derive(Debug)]
pub enum RecvError {
    /// The peer is gone; nothing more will come.
    Closed,
    /// Nothing is there yet (non-blocking receives only).
    Empty,
    /// A message came that is not of the expected type, is cut off, or has bytes left over.
    Malformed,
    /// Anything else the kernel said.
    Io(io::Error),
}

impl std::fmt::Display for SendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the peer is gone"),
            Self::Full => f.write_str("the peer does not read its messages"),
            Self::TooLarge => f.write_str("the message is too large"),
            Self::Io(e) => write!(f, "sending: {e}"),
        }
    }
}
impl std::error::Error for SendError {}

impl std::fmt::Display for RecvError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("the peer is gone"),
            Self::Empty => f.write_str("no message yet"),
            Self::Malformed => f.write_str("a malformed message"),
            Self::Io(e) => write!(f, "receiving: {e}"),
        }
    }
}
impl std::error::Error for RecvError {}

/// A message and the descriptors that came with it.
#[derive(Debug)]
pub struct Received<T> {
    /// The message, already of its type.
    pub message: T,
    /// Its descriptors, in the sender's order, close-on-exec.
    pub fds: Vec<OwnedFd>,
}

impl<T> Received<T> {
    /// The only descriptor, or `None` if there is not exactly one.
    pub fn into_fd(mut self) -> Option<OwnedFd> {
        if self.fds.len() == 1 { self.fds.pop() } else { None }
    }
}

/// One end of a private, connected `SOCK_SEQPACKET` pair.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Two connected ends, both close-on-exec.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(a), Self(b)))
    }

    /// As [`Channel::pair`], where each may have to say something about many thousands before the other reads any of it. What is under way counts as
    /// the sender's memory. It is made by who may (capabilities(7), CAP_NET_ADMIN).
    pub fn pair_with_room() -> io::Result<(Self, Self)> {
        let (a, b) = Self::pair()?;
        for end in [&a, &b] {
            set_socket_send_buffer_size_force(end, ROOM)?;
        }
        Ok((a, b))
    }

    /// Takes over a descriptor that was inherited or received.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// The descriptor, to hand it on.
    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// Sends one message, waiting while the peer's queue is full.
    pub fn send<T: Serialize>(&self, message: &T) -> Result<(), SendError> {
        self.transmit(message, &[], SendFlags::NOSIGNAL)
    }

    /// Sends one message and descriptors, waiting while the peer's queue is full.
    pub fn send_with<T: Serialize>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> Result<(), SendError> {
        self.transmit(message, fds, SendFlags::NOSIGNAL)
    }

    /// Sends one message now or says [`SendError::Full`]: for senders that must never wait for a peer.
    pub fn try_send<T: Serialize>(&self, message: &T) -> Result<(), SendError> {
        self.transmit(message, &[], SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    /// As [`Channel::try_send`], with descriptors.
    pub fn try_send_with<T: Serialize>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> Result<(), SendError> {
        self.transmit(message, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    fn transmit<T: Serialize>(
        &self,
        message: &T,
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> Result<(), SendError> {
        if fds.len() > MAX_FDS {
            return Err(SendError::TooLarge);
        }
        let mut room = Room::new();
        let length = postcard::to_slice(message, room.all()).map_err(|_| SendError::TooLarge)?.len();
        room.used(length);
        let bytes = room.filled();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(SendError::TooLarge);
        }
        loop {
            match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, flags) {
                Ok(n) if n == bytes.len() => return Ok(()),
                // SOCK_SEQPACKET sends whole messages or none.
                Ok(_) => return Err(SendError::Io(io::ErrorKind::WriteZero.into())),
                Err(Errno::INTR) => {}
                Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => return Err(SendError::Closed),
                Err(Errno::AGAIN) => return Err(SendError::Full),
                Err(e) => return Err(SendError::Io(e.into())),
            }
        }
    }

    /// Waits for one message.
    pub fn recv<T: DeserializeOwned>(&self) -> Result<Received<T>, RecvError> {
        self.receive(RecvFlags::CMSG_CLOEXEC).map(|(received, _)| received)
    }

    /// Takes one message if one is there, else says [`RecvError::Empty`].
    pub fn try_recv<T: DeserializeOwned>(&self) -> Result<Received<T>, RecvError> {
        self.try_recv_measured().map(|(received, _)| received)
    }

    /// As [`Channel::try_recv`], with the message's length as it was sent.
    pub fn try_recv_measured<T: DeserializeOwned>(&self) -> Result<(Received<T>, usize), RecvError> {
        self.receive(RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT)
    }

    fn receive<T: DeserializeOwned>(&self, flags: RecvFlags) -> Result<(Received<T>, usize), RecvError> {
        let mut room = Room::new();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let result = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(room.all())], &mut ancillary, flags) {
                Ok(result) => break result,
                // The peer ended with something of ours unread. The kernel says so once, before what the peer said last (which is
                // why it ended, often) and the end.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(Errno::AGAIN) => {
                    room.used(0);
                    return Err(RecvError::Empty);
                }
                Err(e) => return Err(RecvError::Io(e.into())),
            }
        };
        room.used(result.bytes);
        // Collected before anything is judged, so that descriptors of a bad message are closed, not leaked.
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        if result.bytes == 0 {
            // No message of ours is empty, so this is the end of the stream.
            return Err(RecvError::Closed);
        }
        if result.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(RecvError::Malformed);
        }
        decode(room.filled()).map(|message| (Received { message, fds }, result.bytes))
    }
}

/// What a whole message says.
///
/// # Errors
/// [`RecvError::Malformed`]: it is none of this type, or has bytes left over.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RecvError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        _ => Err(RecvError::Malformed),
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::room;
    use std::io::Read;

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (a, b) = Channel::pair().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        a.send_with(&(7u32, String::from("seven")), &[writer.as_fd()]).unwrap();
        drop(writer);
        let got = b.recv::<(u32, String)>().unwrap();
        assert_eq!(got.message, (7, String::from("seven")));
        drop(got.into_fd().expect("one descriptor"));
        let mut rest = Vec::new();
        let mut reader = reader;
        reader.read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    }

    #[test]
    fn a_message_of_another_type_is_malformed_and_costs_nothing_else() {
        let (a, b) = Channel::pair().unwrap();
        a.send(&[1u8, 2, 3, 4, 5].to_vec()).unwrap();
        assert!(matches!(b.try_recv::<u8>(), Err(RecvError::Malformed)));
        a.send(&9u8).unwrap();
        assert_eq!(b.try_recv::<u8>().unwrap().message, 9);
        assert!(matches!(b.try_recv::<u8>(), Err(RecvError::Empty)));
        drop(a);
        assert!(matches!(b.recv::<u8>(), Err(RecvError::Closed)));
        assert!(matches!(b.send(&1u8), Err(SendError::Closed)));
    }

    #[test]
    fn what_a_peer_said_last_is_heard_though_it_ended_with_something_unread() {
        let (a, b) = Channel::pair().unwrap();
        b.send(&1u8).unwrap();
        a.send(&2u8).unwrap();
        drop(a);
        assert_eq!(b.try_recv::<u8>().unwrap().message, 2);
        assert!(matches!(b.try_recv::<u8>(), Err(RecvError::Closed)));
    }

    #[test]
    fn nothing_of_a_message_stays_in_the_memory_that_the_thread_keeps_for_the_next() {
        let (a, b) = Channel::pair().unwrap();
        a.send(&vec![0xa5u8; 3_000]).unwrap();
        assert!(matches!(a.send(&vec![0xa5u8; room::MAX_MESSAGE]), Err(SendError::TooLarge)));
        assert_eq!(room::kept(), (true, 1));
        b.recv::<Vec<u8>>().unwrap();
        a.send(&vec![0xa5u8; 3_000]).unwrap();
        assert!(matches!(b.recv::<u8>(), Err(RecvError::Malformed)));
        assert!(matches!(b.try_recv::<u8>(), Err(RecvError::Empty)));
        assert_eq!(room::kept(), (true, 1));
    }

    #[test]
    fn in_a_pair_with_room_something_about_each_of_twenty_thousand_is_said_before_anybody_reads() {
        let (a, b) = Channel::pair_with_room().unwrap();
        let (reader, _writer) = io::pipe().unwrap();
        for (from, to) in [(&a, &b), (&b, &a)] {
            (0..20_000u32).for_each(|number| from.try_send(&number).unwrap());
            from.try_send_with(&20_000u32, &[reader.as_fd()]).unwrap();
            for number in 0..=20_000 {
                let received = to.try_recv::<u32>().unwrap();
                assert_eq!((received.message, received.fds.len()), (number, usize::from(number == 20_000)));
            }
        }
    }

    #[test]
    fn a_sender_that_must_not_wait_learns_that_the_peer_does_not_read() {
        let (a, _b) = Channel::pair().unwrap();
        let mut sent = 0;
        loop {
            match a.try_send(&vec![0u8; 1000]) {
                Ok(()) => sent += 1,
                Err(SendError::Full) => break,
                Err(e) => panic!("{e}"),
            }
            assert!(sent < 100_000);
        }
        assert!(sent > 0);
    }
}
