//! The server's part of every workload.
//!
//! It can be a bare daemon or a service under a mediator: it listens itself; it takes listeners passed by
//! `LISTEN_FDS` (sd_listen_fds(3)); it serves the one connection it was started for, on descriptor 0 (inetd) or
//! passed by `LISTEN_FDS`; or it borrows the listeners of another, to serve where only that one may listen.

use crate::block::Block;
use crate::workload::Closer;
use listenfd::ListenFd;
use nix::sys::select::{FdSet, select};
use nix::sys::time::TimeVal;
use rustix::net::sockopt;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Connections served at once: more than any workload of the laboratory's opens, so that none waits for another's end.
pub const WORKERS: usize = 8;
/// Trials whose datagram counts are kept.
const TRIALS: usize = 64;
/// Bytes that a stream's receiver reads at once.
const READ_SIZE: usize = 131_072;
/// The longest a `m` request may ask for, milliseconds.
const LONGEST_SEND: u32 = 600_000;

/// How the server gets its connections.
#[derive(Clone, Debug)]
pub enum Source {
    /// Own listeners: everything on the first address (TCP and UDP); the second closes what it accepts.
    Listen {
        /// Every workload but TCP_CC.
        all: SocketAddr,
        /// TCP_CC.
        close: Option<SocketAddr>,
        /// Connections at once.
        workers: usize,
    },
    /// `LISTEN_FDS`: listeners serve, or close at once; a datagram socket counts. Also one connection.
    Passed {
        /// Close at once what connects (TCP_CC).
        close: bool,
    },
    /// Nothing: hold the sockets that were passed, so that another may borrow them.
    Idle,
    /// Sockets passed to other processes (their descriptor 3): everything, TCP_CC, datagrams.
    Borrowed {
        /// Those processes.
        from: [i32; 3],
    },
    /// One connection on descriptor 0.
    Inetd {
        /// Close it at once (TCP_CC).
        close: bool,
    },
}

/// Datagrams of one trial.
#[derive(Clone, Debug, Default)]
struct Count {
    delivered: u64,
    bytes: u64,
    duplicates: u64,
    highest: u64,
}

type Counts = Arc<Mutex<HashMap<u64, Count>>>;

fn big_endian<const N: usize>(s: &mut impl Read) -> io::Result<[u8; N]> {
    let mut b = [0; N];
    s.read_exact(&mut b)?;
    Ok(b)
}

/// Sends until `until` says stop; true means go on.
fn send_while(s: &mut TcpStream, mut more: impl FnMut(usize) -> usize) -> io::Result<()> {
    let block = Block::new(0x5a, 65_536);
    loop {
        let n = more(block.len());
        match block.get(..n) {
            None | Some([]) => return Ok(()),
            Some(part) => s.write_all(part)?,
        }
    }
}

/// Reads to the end of the stream, waiting in the call that reads, as netperf does.
fn receive(s: &mut TcpStream, block: &mut [u8]) -> io::Result<u64> {
    let mut bytes = 0;
    loop {
        match s.read(block)? {
            0 => return Ok(bytes),
            n => bytes += n as u64,
        }
    }
}

/// Reads to the end of the stream as iperf3's receiver does: waits by `select`, then reads without waiting until the block is
/// full or nothing is there. (How soon a receiver sleeps again decides how often the sender must wake it, which on a bare
/// link costs the sender as much as anything else it does.)
fn receive_by_select(s: &mut TcpStream, block: &mut [u8]) -> io::Result<u64> {
    // what iperf3 waits for besides: its listener and its control connection, silent meanwhile; their descriptors come first,
    // so that the kernel looks at them first
    let silent = UnixStream::pair()?;
    let s = &mut s.try_clone()?;
    let mut bytes = 0;
    s.set_nonblocking(true)?;
    'stream: loop {
        let mut ready = FdSet::new();
        for fd in [silent.0.as_fd(), silent.1.as_fd(), s.as_fd()] {
            ready.insert(fd);
        }
        select(None, &mut ready, None, None, &mut TimeVal::new(10, 0))?;
        let mut at = 0;
        while let Some(rest @ [_, ..]) = block.get_mut(at..) {
            match s.read(rest) {
                Ok(0) => {
                    bytes += at as u64;
                    break 'stream;
                }
                Ok(n) => at += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        bytes += at as u64;
    }
    s.set_nonblocking(false)?;
    Ok(bytes)
}

/// Sets the congestion control; without one, that of the listener or of the route stays.
fn prefer(s: impl AsFd, congestion: Option<&str>) -> io::Result<()> {
    match congestion {
        Some(c) => sockopt::set_tcp_congestion(s, c)
            .map_err(|e| io::Error::other(format!("setting congestion control {c}: {e}"))),
        None => Ok(()),
    }
}

/// Serves one connection to its end, by its first byte.
fn connection(mut s: TcpStream, congestion: Option<&str>) -> io::Result<()> {
    let mut verb = [0_u8; 1];
    if s.read(&mut verb)? == 0 {
        return Ok(()); // TCP_CC with the client closing first
    }
    // a stream is sent as TCP does by itself; what a mediator hands on may be no TCP connection
    if verb != *b"m" && s.local_addr().is_ok() {
        s.set_nodelay(true)?;
    }
    match verb {
        [b'e'] => {
            s.write_all(b"e")?;
            let mut buf = [0_u8; 4096];
            loop {
                let n = s.read(&mut buf)?;
                match buf.get(..n) {
                    None | Some([]) => return Ok(()),
                    Some(part) => s.write_all(part)?,
                }
            }
        }
        [b'c'] => s.write_all(b"c"),
        [b'C'] => {
            // TCP_CRR with the client closing first
            s.write_all(b"C")?;
            s.read(&mut verb).map(|_| ())
        }
        [how @ (b's' | b'S')] => {
            let start = Instant::now();
            let mut block = Block::new(0, READ_SIZE);
            let bytes = match how {
                b's' => receive(&mut s, &mut block)?,
                _ => receive_by_select(&mut s, &mut block)?,
            };
            s.write_all(&bytes.to_be_bytes())?;
            s.write_all(&(start.elapsed().as_nanos() as u64).to_be_bytes())
        }
        [b'm'] => {
            prefer(&s, congestion)?;
            let ms = u32::from_be_bytes(big_endian(&mut s)?).min(LONGEST_SEND);
            let end = Instant::now() + Duration::from_millis(ms.into());
            // the client closes when it has enough: not an error
            match send_while(&mut s, |n| if Instant::now() < end { n } else { 0 }) {
                Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                    Ok(())
                }
                r => r,
            }
        }
        [b'f'] => {
            let asked = u32::from_be_bytes(big_endian(&mut s)?) as usize;
            send(&mut s, asked)
        }
        [b'a'] => {
            let name = sockopt::tcp_congestion(&s)?;
            s.write_all(name.as_bytes())
        }
        [b'G'] => page(&mut s),
        _ => Ok(()), // an unknown verb gets no answer
    }
}

/// Answers a request of HTTP that begins with the `G` that has been read, with as many octets as it asks for.
fn page(s: &mut TcpStream) -> io::Result<()> {
    let mut buf = [0_u8; 4096];
    let mut seen: Vec<u8> = b"G".to_vec();
    while !seen.ends_with(b"\r\n\r\n") && seen.len() < 16_384 {
        let n = s.read(&mut buf)?;
        match buf.get(..n) {
            None | Some([]) => return Ok(()),
            Some(part) => seen.extend_from_slice(part),
        }
    }
    let asked = octets(&seen);
    s.write_all(
        format!("HTTP/1.1 200 OK\r\nContent-Length: {asked}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    if asked == 0 { Ok(()) } else { send(s, asked) }
}

/// Sends so many octets.
fn send(s: &mut TcpStream, mut left: usize) -> io::Result<()> {
    send_while(s, |n| {
        let now = left.min(n);
        left -= now;
        now
    })
}

/// How many octets a request asks for, whose path is their number: a MiB at most, and none by any other path.
fn octets(request: &[u8]) -> usize {
    let path = request.strip_prefix(b"GET /").unwrap_or_default().split(|byte| *byte == b' ').next();
    let number = path.and_then(|path| std::str::from_utf8(path).ok()?.parse::<usize>().ok());
    number.unwrap_or(0).min(1 << 20)
}

/// Reads datagrams for ever: `e…` is sent back, `d` with trial and sequence number is counted, `q` with a
/// trial is answered with its counts.
fn datagrams(s: &UdpSocket, counts: &Counts) -> io::Result<()> {
    let mut buf = vec![0_u8; 65_536];
    loop {
        let (n, from) = match s.recv_from(&mut buf) {
            Ok(r) => r,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        match buf.get(..n) {
            Some(all @ [b'e', ..]) => drop(s.send_to(all, from)), // a lost answer is the client's to count
            Some([b'd', rest @ ..]) => {
                let mut r = rest;
                let (Ok(trial), Ok(seq)) = (big_endian::<8>(&mut r), big_endian::<8>(&mut r)) else {
                    continue;
                };
                let (trial, seq) = (u64::from_be_bytes(trial), u64::from_be_bytes(seq));
                let mut all = counts.lock().unwrap_or_else(PoisonError::into_inner);
                if all.len() >= TRIALS && !all.contains_key(&trial) {
                    all.clear();
                }
                let c = all.entry(trial).or_default();
                c.delivered += 1;
                c.bytes += n as u64;
                if c.delivered > 1 && seq <= c.highest {
                    c.duplicates += 1; // or out of order: on one path with one queue, neither may be
                }
                c.highest = c.highest.max(seq);
            }
            Some([b'q', rest @ ..]) => {
                let mut r = rest;
                let Ok(trial) = big_endian::<8>(&mut r) else { continue };
                let trial = u64::from_be_bytes(trial);
                let c = counts
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .get(&trial)
                    .cloned()
                    .unwrap_or_default();
                let answer = [trial, c.delivered, c.bytes, c.duplicates].map(u64::to_be_bytes).concat();
                drop(s.send_to(&answer, from)); // the client asks again
            }
            _ => {}
        }
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let s = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    s.set_reuse_address(true)?;
    s.bind(&addr.into())?;
    s.listen(1024)?;
    Ok(s.into())
}

/// The receive buffer asked for; the kernel grants up to `net.core.rmem_max`, and `granted` is recorded.
pub const RECEIVE_BUFFER: usize = 4 << 20;

fn udp_ready(s: UdpSocket) -> io::Result<UdpSocket> {
    let s = Socket::from(s);
    s.set_nonblocking(false)?; // one that was passed may be otherwise
    s.set_recv_buffer_size(RECEIVE_BUFFER)?;
    Ok(s.into())
}

fn accept_for_ever(l: &TcpListener, each: impl Fn(TcpStream)) -> io::Result<()> {
    loop {
        match l.accept() {
            Ok((s, _)) => each(s),
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) => {}
            Err(e) => return Err(e),
        }
    }
}

fn run_daemon(
    all: Vec<TcpListener>,
    close: Vec<TcpListener>,
    udp: Option<UdpSocket>,
    congestion: Option<&str>,
    workers: usize,
) -> io::Result<()> {
    let counts = Counts::default();
    for l in all.iter().chain(&close) {
        prefer(l, congestion)?;
        rustix::io::ioctl_fionbio(l, false)?;
    }
    thread::scope(|scope| {
        let counts = &counts;
        let mut threads = Vec::new();
        for l in &all {
            for _ in 0..workers {
                threads.push(scope.spawn(move || accept_for_ever(l, |s| drop(connection(s, congestion)))));
            }
        }
        for l in &close {
            threads.push(scope.spawn(move || accept_for_ever(l, drop)));
        }
        if let Some(u) = &udp {
            threads.push(scope.spawn(move || datagrams(u, counts)));
        }
        println!("ready");
        for t in threads {
            match t.join() {
                Ok(r) => r?,
                Err(_) => return Err(io::Error::other("a worker died")),
            }
        }
        Ok(())
    })
}

/// Descriptor 3 of another process, the first that `LISTEN_FDS` passes.
pub(crate) fn borrow(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::other("no such process"))?;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    Ok(pidfd_getfd(process, 3, PidfdGetfdFlags::empty())?)
}

/// Serves until killed, or until the one connection ends. Prints `ready` when it listens.
///
/// # Errors
/// When it cannot listen, set the congestion control, or was passed nothing.
pub fn serve(source: &Source, congestion: Option<&str>) -> io::Result<()> {
    let one = |s: OwnedFd, close: bool| -> io::Result<()> {
        let s = TcpStream::from(s);
        rustix::io::ioctl_fionbio(&s, false)?;
        if close {
            return Ok(());
        }
        prefer(&s, congestion)?;
        connection(s, congestion)
    };
    match source {
        Source::Listen { all, close, workers } => {
            let udp = udp_ready(UdpSocket::bind(all)?)?;
            run_daemon(
                vec![listen(*all)?],
                close.map(listen).transpose()?.into_iter().collect(),
                Some(udp),
                congestion,
                *workers,
            )
        }
        Source::Idle => loop {
            thread::park();
        },
        Source::Borrowed { from: [all, close, udp] } => run_daemon(
            vec![borrow(*all)?.into()],
            vec![borrow(*close)?.into()],
            Some(udp_ready(borrow(*udp)?.into())?),
            congestion,
            WORKERS,
        ),
        Source::Inetd { close } => one(io::stdin().as_fd().try_clone_to_owned()?, *close),
        Source::Passed { close } => {
            let mut env = ListenFd::from_env();
            let mut tcp = Vec::new();
            let mut udp = None;
            for i in 0..env.len() {
                if let Ok(Some(u)) = env.take_udp_socket(i) {
                    udp = Some(udp_ready(u)?);
                } else if let Some(t) = env.take_tcp_listener(i)? {
                    if !sockopt::socket_acceptconn(&t)? {
                        return one(t.into(), *close);
                    }
                    tcp.push(t);
                }
            }
            if tcp.is_empty() && udp.is_none() {
                return Err(io::Error::other("LISTEN_FDS passed no socket"));
            }
            let (all, close) = if *close { (Vec::new(), tcp) } else { (tcp, Vec::new()) };
            run_daemon(all, close, udp, congestion, WORKERS)
        }
    }
}

/// The verb of a TCP_CRR request: who closes first is the client's choice.
pub fn crr_verb(closer: Closer) -> u8 {
    match closer {
        Closer::Server => b'c',
        Closer::Client => b'C',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_is_a_number_has_so_many_octets() {
        assert_eq!(octets(b"GET /1024 HTTP/1.1\r\n\r\n"), 1024);
        assert_eq!(octets(b"GET /9999999999 HTTP/1.1\r\n\r\n"), 1 << 20);
        for none in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"GET /page HTTP/1.1\r\n\r\n", b"GET", b""] {
            assert_eq!(octets(none), 0, "{}", String::from_utf8_lossy(none));
        }
    }
}
