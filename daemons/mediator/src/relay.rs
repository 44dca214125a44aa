//! One connection that the mediator stays in the middle of: what comes on one socket goes out on the other, both ways.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::rc::Rc;

use crate::kept;
use levee_sys::tcp;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use rustix::pipe::{PipeFlags, SpliceFlags, splice};

/// Bytes asked for at a time: what a pipe holds (pipe(7)).
const PIECE: usize = 64 << 10;

/// The same while so many pipes hold something that the memory behind them counts: clients who do not read must not have
/// 10,000 times as much as one may.
const SMALL_PIECE: usize = 4 << 10;

/// From how many pipes that hold something on pieces are small: 64 MiB.
const MANY: usize = 1_024;

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

/// A pipe in use, which is counted until it is put back or dropped with what it holds.
#[derive(Debug)]
struct Lent {
    pipe: Pipe,
    _counted: Counted,
}

#[derive(Debug)]
struct Counted(Rc<Cell<usize>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

/// Pipes with nothing in them, and how many others are in use.
#[derive(Debug, Default)]
pub struct Pipes {
    empty: Vec<Pipe>,
    lent: Rc<Cell<usize>>,
}

impl Pipes {
    fn take(&mut self) -> Result<Lent, Errno> {
        let pipe = match self.empty.pop() {
            Some(pipe) => pipe,
            None => {
                let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
                Pipe { read, write }
            }
        };
        self.lent.set(self.lent.get() + 1);
        Ok(Lent { pipe, _counted: Counted(Rc::clone(&self.lent)) })
    }

    fn put_back(&mut self, lent: Lent) {
        if self.empty.len() < KEPT {
            self.empty.push(lent.pipe);
        }
    }

    /// Bytes of the next piece, of a connection of which little is kept or not.
    fn piece(&self, little: bool) -> usize {
        if little || self.lent.get() > MANY { SMALL_PIECE } else { PIECE }
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
    held: Option<(Lent, usize)>,
    /// Nothing more comes.
    ended: bool,
    /// And that has been passed on.
    done: bool,
    /// It stopped at our bound and not at the kernel's, which does not know that it is waited for.
    full: bool,
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
    /// Sides of which it is waited for that they can be written to, too.
    watched: Vec<Side>,
    /// Whether it is looked at how much waits in a socket ([`kept::little`]).
    little: bool,
    /// Octets that have gone through it, both ways.
    pub moved: u64,
}

impl Relay {
    /// Connects to the daemon at `to` from the client's own address `from`, both in the caller's network, for the client
    /// behind `front`, whose pieces go on as they come (its listener has said so), and who has so many connections with this one. It may still be connecting; what does not
    /// succeed shows when it is used.
    ///
    /// # Errors
    /// The kernel's.
    pub fn connect(front: OwnedFd, from: IpAddr, to: SocketAddr, held: usize) -> Result<Self, Errno> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let back = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        tcp::bind_address_alone(&back).map_err(errno)?;
        rustix::net::bind(&back, &SocketAddr::new(from, 0))?;
        rustix::net::sockopt::set_tcp_nodelay(&back, true)?;
        kept::bound(&back, held)?;
        match rustix::net::connect(&back, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(why) => return Err(why),
        }
        let (up, down) = (Way::default(), Way::default());
        Ok(Self { front, back, up, down, watched: Vec::new(), little: kept::little(held), moved: 0 })
    }

    /// Sides that cannot be written to now, and of which this was not said before, or which are to be looked at again: they are to be waited for
    /// from now on. Most connections never have one.
    pub fn blocked(&mut self) -> Vec<Side> {
        let mut new = Vec::new();
        for (side, way) in [(Side::Front, &mut self.down), (Side::Back, &mut self.up)] {
            let known = self.watched.contains(&side);
            if way.held.is_none() || known && !way.full {
                continue;
            }
            way.full = false;
            new.push(side);
            if !known {
                self.watched.push(side);
            }
        }
        new
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
        let (mut more, mut moved) = (false, 0);
        if reads {
            more |= out.go(from, to, back.done, self.little, pipes, &mut moved)?;
        }
        // Into this side goes what could not before.
        if writes && back.held.is_some() {
            more |= back.go(to, from, out.done, self.little, pipes, &mut moved)?;
        }
        self.moved += moved;
        Ok(match () {
            () if self.up.done && self.down.done => Turn::Over,
            () if more => Turn::More,
            () => Turn::Waits,
        })
    }

    /// Both ways are over, or one cannot go on. Whether it stays nevertheless, since one end has not taken what was written: that may be some MiB, which
    /// the kernel would have for minutes if the socket were closed, as nobody's. There is an event when it is taken.
    pub fn lingers(&mut self) -> bool {
        let over = || Way { ended: true, done: true, ..Way::default() };
        (self.up, self.down) = (over(), over());
        let ends = [&self.front, &self.back];
        let lingers = ends.into_iter().any(|socket| tcp::kept(socket).is_ok_and(|kept| kept.unsent > 0));
        if lingers {
            for socket in ends {
                // Who is not connected any more needs no end.
                let _ = rustix::net::shutdown(socket, Shutdown::Both);
            }
        }
        lingers
    }

    /// How much memory is kept of it: by the kernel, at both ends, and in pipes.
    pub fn kept(&self) -> usize {
        let sockets = [&self.front, &self.back].map(|socket| {
            // One that nothing is known of has an event that ends it.
            tcp::kept(socket).map_or(0, |kept| kept.unread.saturating_add(kept.unsent))
        });
        let pipes = [&self.up, &self.down].map(|way| way.held.as_ref().map_or(0, |(_, octets)| *octets));
        sockets.into_iter().chain(pipes).sum()
    }

    /// Ends it both ways, at both ends, at once: what the kernel still has of it goes nowhere. Closing alone would have it go out for as long as its receiver
    /// keeps it waiting.
    pub fn abort(&self) {
        for socket in [&self.front, &self.back] {
            // Who is not connected any more has nothing under way.
            let _ = rustix::net::connect_unspec(socket);
        }
    }
}

fn errno(why: std::io::Error) -> Errno {
    Errno::from_io_error(&why).unwrap_or(Errno::IO)
}

impl Way {
    /// Whether it stopped only for others to get their turn. `last`: the other way has ended.
    fn go(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        last: bool,
        little: bool,
        pipes: &mut Pipes,
        went: &mut u64,
    ) -> Result<bool, Errno> {
        const FLAGS: SpliceFlags = SpliceFlags::MOVE.union(SpliceFlags::NONBLOCK);
        for _ in 0..TURN {
            if let Some((lent, mut left)) = self.held.take() {
                let now = if little { tcp::kept(to).map_err(errno)?.room().min(left) } else { left };
                if now == 0 {
                    (self.held, self.full) = (Some((lent, left)), true);
                    return Ok(false);
                }
                match splice(&lent.pipe.read, None, to, None, now, FLAGS) {
                    Ok(moved) => (left, *went) = (left.saturating_sub(moved), *went + moved as u64),
                    Err(Errno::AGAIN) => {
                        self.held = Some((lent, left));
                        return Ok(false);
                    }
                    Err(Errno::INTR) => {}
                    // What is in the pipe goes with it.
                    Err(why) => return Err(why),
                }
                if left > 0 {
                    self.held = Some((lent, left));
                } else {
                    pipes.put_back(lent);
                }
                continue;
            }
            if self.ended {
                // The other way goes on; or both are over, and closing says the same.
                if !std::mem::replace(&mut self.done, true) && !last {
                    match rustix::net::shutdown(to, Shutdown::Write) {
                        Ok(()) | Err(Errno::NOTCONN) => {}
                        Err(why) => return Err(why),
                    }
                }
                return Ok(false);
            }
            let lent = pipes.take()?;
            match splice(from, None, &lent.pipe.write, None, pipes.piece(little), FLAGS) {
                Ok(0) => {
                    pipes.put_back(lent);
                    self.ended = true;
                }
                Ok(came) => self.held = Some((lent, came)),
                Err(Errno::AGAIN | Errno::INTR) => {
                    pipes.put_back(lent);
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
    use rustix::event::{Timespec, epoll};
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
        pair_of(1)
    }

    /// Of somebody who has so many.
    fn pair_of(held: usize) -> Pair {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (front, back) = (TcpListener::bind(any).unwrap(), TcpListener::bind(any).unwrap());
        let client = TcpStream::connect(front.local_addr().unwrap()).unwrap();
        let (accepted, _) = front.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        kept::bound(&accepted, held).unwrap();
        let from = IpAddr::from([127, 0, 0, 77]);
        let relay = Relay::connect(accepted.into(), from, back.local_addr().unwrap(), held).unwrap();
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
        assert_eq!(pair.relay.blocked(), [], "nothing had to be waited for");
        // Both ways are over: closing tells the client.
        drop(pair.relay);
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
        assert_eq!(pair.relay.blocked(), [Side::Back], "it is to be waited for");
        assert_eq!(pair.relay.blocked(), [], "said once");
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
    fn of_one_among_many_that_does_not_read_little_is_kept_and_it_is_woken_once_it_reads() {
        for (held, most) in [(33, 18 << 10), (1_025, 8 << 10)] {
            let mut pair = pair_of(held);
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            let wants = epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&epoll, &pair.relay.front, epoll::EventData::new_u64(0), epoll::EventFlags::ET)
                .unwrap();
            let event = |wait: i64| {
                let mut events = Vec::with_capacity(4);
                let wait = Timespec { tv_sec: wait, tv_nsec: 100_000_000 };
                epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), Some(&wait)).unwrap() > 0
            };
            // The daemon sends much, as it comes free, and the client, whose window was large once, reads nothing.
            pair.daemon.set_nonblocking(true).unwrap();
            let (mut sent, mut still, mut before) = (0, 0, None);
            while still < 5 {
                sent += pair.daemon.write(&[7; 1 << 20]).unwrap_or(0);
                pair.all().unwrap();
                // The client's kernel waits a moment with an acknowledgement.
                std::thread::sleep(Duration::from_millis(50));
                let now = (sent, tcp::kept(&pair.relay.front).unwrap());
                still = if before.replace(now) == Some(now) { still + 1 } else { 0 };
            }
            let kept = tcp::kept(&pair.relay.front).unwrap().unsent;
            assert!(kept > 0 && kept <= most, "{held}: {kept} of {sent} octets wait");
            let (_, in_pipe) = pair.relay.down.held.as_ref().unwrap();
            assert!(*in_pipe <= SMALL_PIECE, "{held}: {in_pipe}");
            assert!(pair.relay.blocked().contains(&Side::Front));
            let look = |pair: &Pair| {
                epoll::modify(&epoll, &pair.relay.front, epoll::EventData::new_u64(0), wants).unwrap()
            };
            look(&pair);
            assert!(!event(0), "{held}: nothing is said to be possible that is not");
            let arrives = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, &pair.relay.back, epoll::EventData::new_u64(1), arrives).unwrap();
            // All of it comes, by what epoll says alone.
            pair.client.set_nonblocking(true).unwrap();
            let (mut got, mut piece) = (0, vec![0; 1 << 20]);
            while got < sent {
                match pair.client.read(&mut piece) {
                    Ok(octets) => got += octets,
                    Err(_) => assert!(event(5), "{held}: {got} of {sent}, and nobody was woken"),
                }
                let turn = pair.relay.turn(Side::Front, false, true, &mut pair.pipes).unwrap();
                pair.relay.turn(Side::Back, true, false, &mut pair.pipes).unwrap();
                if turn == Turn::Waits && pair.relay.blocked().contains(&Side::Front) {
                    look(&pair);
                }
            }
        }
    }

    #[test]
    fn pieces_are_small_while_many_pipes_hold_something_and_one_that_is_dropped_counts_no_more() {
        let mut pipes = Pipes::default();
        // No test has descriptors for so many.
        pipes.lent.set(MANY);
        assert_eq!(pipes.piece(false), PIECE);
        let (one, other) = (pipes.take().unwrap(), pipes.take().unwrap());
        assert_eq!(pipes.piece(false), SMALL_PIECE);
        pipes.put_back(one);
        drop(other);
        assert_eq!((pipes.piece(false), pipes.lent.get(), pipes.empty.len()), (PIECE, MANY, 1));
    }

    #[test]
    fn what_was_written_and_not_taken_stays_until_it_is_and_nothing_does_that_was() {
        for (how, broken) in [("both ways are over", false), ("the daemon resets it", true)] {
            let mut pair = pair();
            let sent = vec![7; 1 << 20];
            pair.client.write_all(b"a question").unwrap();
            if !broken {
                pair.client.shutdown(std::net::Shutdown::Write).unwrap();
            }
            let mut daemon = pair.daemon.try_clone().unwrap();
            // More than the client's kernel takes before it reads.
            rustix::net::sockopt::set_socket_recv_buffer_size(&pair.client, 64 << 10).unwrap();
            daemon.set_nonblocking(true).unwrap();
            let mut left = sent.as_slice();
            for _ in 0..50 {
                let octets = daemon.write(left).unwrap_or(0);
                left = left.get(octets..).unwrap();
                let _ = pair.all().unwrap();
            }
            if broken {
                rustix::net::sockopt::set_socket_linger(&daemon, Some(Duration::ZERO)).unwrap();
            } else {
                daemon.read_exact(&mut [0; 10]).unwrap();
            }
            drop((daemon, std::mem::replace(&mut pair.daemon, pair.client.try_clone().unwrap())));
            assert_eq!(pair.all().is_err(), broken, "{how}");
            assert!(pair.relay.lingers(), "{how}: the client has read nothing");
            pair.client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let mut got = Vec::new();
            pair.client.read_to_end(&mut got).unwrap();
            assert!(!got.is_empty(), "{how}: what was on its way came");
            let ends = std::time::Instant::now() + Duration::from_secs(5);
            while pair.relay.lingers() {
                assert!(std::time::Instant::now() < ends, "{how}: all of it was taken");
            }
        }
    }

    #[test]
    fn once_aborted_neither_end_hears_what_the_kernel_still_had_for_it() {
        let mut pair = pair();
        pair.client.set_nonblocking(true).unwrap();
        // The daemon does not read: some waits for it at its own end, and some at the mediator's.
        for _ in 0..50 {
            let _ = pair.client.write(&[7; 1 << 20]);
            pair.all().unwrap();
        }
        let waits = tcp::kept(&pair.relay.back).unwrap().unsent;
        assert!(waits > 0);
        let there = rustix::io::ioctl_fionread(&pair.daemon).unwrap();
        pair.relay.abort();
        drop(pair.relay);
        let mut rest = Vec::new();
        let _ = pair.daemon.read_to_end(&mut rest);
        assert_eq!(rest.len() as u64, there, "{waits} octets waited for it");
    }

    #[test]
    fn once_aborted_neither_end_hears_more_than_the_end() {
        let mut pair = pair();
        pair.client.write_all(b"too late").unwrap();
        pair.relay.abort();
        let _ = pair.all();
        drop(pair.relay);
        let mut rest = Vec::new();
        // A reset is an end, too.
        let _ = pair.daemon.read_to_end(&mut rest);
        assert!(rest.is_empty());
        assert!(matches!(pair.client.read(&mut [0; 8]), Ok(0) | Err(_)));
    }
}
