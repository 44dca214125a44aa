//! One connection that the mediator stays in the middle of: what comes on one socket goes out on the other, both ways.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use levee_sys::tcp;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, SpliceFlags, splice};

/// Bytes asked for at a time: what a pipe holds (pipe(7)).
const PIECE: usize = 64 << 10;

/// Pieces of one way before others get their turn.
const TURN: usize = 16;

/// Empty pipes that are kept for the next piece. A pipe holds nothing while it is in here.
const KEPT: usize = 64;

/// A pipe: what is read from, and what is written to.
#[derive(Debug)]
struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
}

/// Pipes with nothing in them.
#[derive(Debug, Default)]
pub struct Pipes(Vec<Pipe>);

impl Pipes {
    fn take(&mut self) -> Result<Pipe, Errno> {
        if let Some(pipe) = self.0.pop() {
            return Ok(pipe);
        }
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Pipe { read, write })
    }

    fn put_back(&mut self, pipe: Pipe) {
        if self.0.len() < KEPT {
            self.0.push(pipe);
        }
    }
}

/// A side of a relayed connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client's.
    Front,
    /// The daemon's.
    Back,
}

/// One way.
#[derive(Debug, Default)]
struct Way {
    /// What has come and not gone yet: a pipe, and how many bytes are in it.
    held: Option<(Pipe, usize)>,
    /// Nothing more comes.
    ended: bool,
    /// And that has been passed on.
    done: bool,
}

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It goes on when one of the sockets is ready.
    Waits,
    /// There may be more at once.
    More,
    /// Both ways have ended in good order.
    Over,
}

/// A relayed connection.
#[derive(Debug)]
pub struct Relay {
    /// The client's socket, non-blocking.
    pub front: OwnedFd,
    /// The daemon's, non-blocking.
    pub back: OwnedFd,
    /// From the client.
    up: Way,
    /// To the client.
    down: Way,
}

impl Relay {
    /// Connects to the daemon at `to` from the client's own address `from`, both in the caller's network, for the client
    /// behind `front`. It may still be connecting; what does not succeed shows when it is used.
    ///
    /// # Errors
    /// The kernel's.
    pub fn connect(front: OwnedFd, from: IpAddr, to: SocketAddr) -> Result<Self, Errno> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let back = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        let refused = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
        tcp::bind_address_alone(&back).map_err(refused)?;
        rustix::net::bind(&back, &SocketAddr::new(from, 0))?;
        for socket in [&front, &back] {
            // Pieces go on as they come.
            rustix::net::sockopt::set_tcp_nodelay(socket, true)?;
        }
        match rustix::net::connect(&back, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(why) => return Err(why),
        }
        Ok(Self { front, back, up: Way::default(), down: Way::default() })
    }

    /// Moves what can be moved now that one side can be read, or written to, again.
    ///
    /// # Errors
    /// What is wrong with a socket: the connection is to be dropped, both sides of it.
    pub fn turn(&mut self, side: Side, reads: bool, writes: bool, pipes: &mut Pipes) -> Result<Turn, Errno> {
        let (from, to, out, back) = match side {
            Side::Front => (&self.front, &self.back, &mut self.up, &mut self.down),
            Side::Back => (&self.back, &self.front, &mut self.down, &mut self.up),
        };
        let mut more = false;
        if reads {
            more |= out.go(from, to, pipes)?;
        }
        // Into this side goes what could not before.
        if writes && back.held.is_some() {
            more |= back.go(to, from, pipes)?;
        }
        Ok(match () {
            () if self.up.done && self.down.done => Turn::Over,
            () if more => Turn::More,
            () => Turn::Waits,
        })
    }

    /// Ends it both ways, at both ends.
    pub fn shut(&self) {
        for socket in [&self.front, &self.back] {
            // Who is not connected any more needs no end.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
    }
}

impl Way {
    /// Whether it stopped only for others to get their turn.
    fn go(&mut self, from: &OwnedFd, to: &OwnedFd, pipes: &mut Pipes) -> Result<bool, Errno> {
        const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);
        for _ in 0..TURN {
            if let Some((pipe, mut left)) = self.held.take() {
                match splice(&pipe.read, None, to, None, left, FLAGS) {
                    Ok(moved) => left = left.saturating_sub(moved),
                    Err(Errno::AGAIN) => {
                        self.held = Some((pipe, left));
                        return Ok(false);
                    }
                    Err(Errno::INTR) => {}
                    // What is in the pipe goes with it.
                    Err(why) => return Err(why),
                }
                if left > 0 {
                    self.held = Some((pipe, left));
                } else {
                    pipes.put_back(pipe);
                }
                continue;
            }
            if self.ended {
                if !self.done {
                    self.done = true;
                    // The other way goes on.
                    match rustix::net::shutdown(to, Shutdown::Write) {
                        Ok(()) | Err(Errno::NOTCONN) => {}
                        Err(why) => return Err(why),
                    }
                }
                return Ok(false);
            }
            let pipe = pipes.take()?;
            match splice(from, None, &pipe.write, None, PIECE, FLAGS) {
                Ok(0) => {
                    pipes.put_back(pipe);
                    self.ended = true;
                }
                Ok(came) => self.held = Some((pipe, came)),
                Err(Errno::AGAIN | Errno::INTR) => {
                    pipes.put_back(pipe);
                    return Ok(false);
                }
                Err(why) => return Err(why),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::Duration;

    struct Pair {
        relay: Relay,
        client: TcpStream,
        daemon: TcpStream,
        pipes: Pipes,
    }

    fn pair() -> Pair {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (front, back) = (TcpListener::bind(any).unwrap(), TcpListener::bind(any).unwrap());
        let client = TcpStream::connect(front.local_addr().unwrap()).unwrap();
        let (accepted, _) = front.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        let from = IpAddr::from([127, 0, 0, 77]);
        let relay = Relay::connect(accepted.into(), from, back.local_addr().unwrap()).unwrap();
        let (daemon, peer) = back.accept().unwrap();
        assert_eq!(peer.ip(), from, "the daemon sees the client's own address");
        for socket in [&client, &daemon] {
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        }
        Pair { relay, client, daemon, pipes: Pipes::default() }
    }

    impl Pair {
        /// Moves whatever can be moved.
        fn all(&mut self) -> Result<Turn, Errno> {
            let mut last = Turn::Waits;
            for _ in 0..100 {
                for side in [Side::Front, Side::Back] {
                    last = self.relay.turn(side, true, true, &mut self.pipes)?;
                    if last == Turn::Over {
                        return Ok(last);
                    }
                }
            }
            Ok(last)
        }
    }

    #[test]
    fn what_comes_on_one_side_goes_out_on_the_other_and_an_end_leaves_the_other_way_open() {
        let mut pair = pair();
        pair.client.write_all(b"a question").unwrap();
        pair.client.shutdown(std::net::Shutdown::Write).unwrap();
        pair.all().unwrap();
        let mut question = String::new();
        pair.daemon.read_to_string(&mut question).unwrap();
        assert_eq!(question, "a question");
        pair.daemon.write_all(b"an answer").unwrap();
        assert_eq!(pair.all().unwrap(), Turn::Waits);
        let mut answer = [0; 9];
        pair.client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"an answer");
        drop(pair.daemon.shutdown(std::net::Shutdown::Write));
        assert_eq!(pair.all().unwrap(), Turn::Over);
        assert_eq!(pair.client.read(&mut answer).unwrap(), 0);
    }

    #[test]
    fn a_side_that_does_not_read_holds_the_other_back_and_nothing_is_lost() {
        let mut pair = pair();
        pair.client.set_nonblocking(true).unwrap();
        // More than the kernel keeps for four sockets (tcp(7), tcp_rmem and tcp_wmem), in pieces that tell where they belong.
        for socket in [&pair.client, &pair.daemon] {
            rustix::net::sockopt::set_socket_send_buffer_size(socket, 64 << 10).unwrap();
            rustix::net::sockopt::set_socket_recv_buffer_size(socket, 64 << 10).unwrap();
        }
        let sent: Vec<u8> = (0..=250).cycle().take(64 << 20).collect();
        let mut written = 0;
        let mut stuck = 0;
        while stuck < 3 {
            assert!(written < sent.len(), "something holds it back");
            match pair.client.write(sent.get(written..).unwrap()) {
                Ok(n) => (written, stuck) = (written + n, 0),
                Err(_) => stuck += 1,
            }
            pair.all().unwrap();
        }
        assert!(pair.relay.up.held.is_some(), "{written} bytes are somewhere");
        pair.client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut daemon = pair.daemon.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            daemon.read_to_end(&mut all).unwrap();
            all
        });
        while !reader.is_finished() {
            pair.all().unwrap();
        }
        let got = reader.join().unwrap();
        assert!(got == sent.get(..written).unwrap(), "{} of {written} bytes", got.len());
    }

    #[test]
    fn once_shut_neither_end_hears_more_than_the_end() {
        let mut pair = pair();
        pair.client.write_all(b"too late").unwrap();
        pair.relay.shut();
        let _ = pair.all();
        drop(pair.relay);
        let mut rest = Vec::new();
        // A reset is an end, too.
        let _ = pair.daemon.read_to_end(&mut rest);
        assert!(rest.is_empty());
        assert!(matches!(pair.client.read(&mut [0; 8]), Ok(0) | Err(_)));
    }
}
