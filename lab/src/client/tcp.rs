//! The TCP workloads, client's side.

use super::timed::{Measured, PATIENCE, Target, recorder, timed, warm_up};
use crate::block::Block;
use crate::serve::crr_verb;
use crate::workload::{Closer, Kind, Latency, Task};
use nix::sys::select::{FdSet, select};
use nix::sys::time::TimeVal;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// A connection with the congestion control set before the handshake. The n-th comes from the n-th of the addresses,
/// and the kernel picks the port when it knows the other end (ip(7), IP_BIND_ADDRESS_NO_PORT): each address has all
/// ports for each server. Where the address is the route's, the same calls are made, at the same price.
fn connect(task: &Task, to: SocketAddr, n: usize) -> io::Result<TcpStream> {
    let s = socket(task, to, n)?;
    s.connect(&to.into())?;
    Ok(s.into())
}

/// The same, but the handshake is still under way when it returns, and nothing ever waits for it.
fn begin(task: &Task, to: SocketAddr, n: usize) -> io::Result<TcpStream> {
    let s = socket(task, to, n)?;
    s.set_nonblocking(true)?;
    match s.connect(&to.into()) {
        Err(e) if e.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => Err(e),
        _ => Ok(s.into()),
    }
}

fn socket(task: &Task, to: SocketAddr, n: usize) -> io::Result<Socket> {
    let s = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    match sockopt::set_tcp_congestion(&s, &task.congestion) {
        // Who may not choose has the route's, as a partition's program: streams look in the end which was in force.
        Err(Errno::PERM) if matches!(task.kind, Kind::TcpStream | Kind::TcpMaerts) => {}
        set => set?,
    }
    s.set_tcp_nodelay(true)?;
    if to.is_ipv4() {
        nix::sys::socket::setsockopt(&s, nix::sys::socket::sockopt::IpBindAddressNoPort, &true)?;
        let from = task.sources.get(n % task.sources.len().max(1)).copied().unwrap_or(Ipv4Addr::UNSPECIFIED);
        s.bind(&SocketAddr::from((from, 0)).into())?;
    }
    Ok(s)
}

fn patient(task: &Task, to: SocketAddr) -> io::Result<TcpStream> {
    let s = connect(task, to, 0)?;
    s.set_read_timeout(Some(PATIENCE + Duration::from_secs_f64(task.seconds)))?;
    s.set_write_timeout(Some(PATIENCE))?;
    Ok(s)
}

/// What congestion control the server's end of a connection uses.
pub(super) fn server_congestion(task: &Task, to: SocketAddr) -> io::Result<String> {
    let mut s = patient(task, to)?;
    s.write_all(b"a")?;
    let mut name = String::new();
    s.take(64).read_to_string(&mut name)?;
    Ok(name)
}

fn closed_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed where an answer was due")
}

/// Sends until `end`, waiting in `write`, as netperf does.
fn send(s: &mut TcpStream, block: &[u8], end: Instant) -> io::Result<()> {
    while Instant::now() < end {
        s.write_all(block)?;
    }
    Ok(())
}

/// Sends until `end` as iperf3 does: waits by `select`, then writes without waiting ten times, each time until a block is
/// written or the buffer is full.
fn send_by_select(s: &mut TcpStream, block: &[u8], end: Instant) -> io::Result<()> {
    // what iperf3 waits for besides: its control connection, silent meanwhile; its descriptor comes first, so that the kernel
    // looks at it first
    let (silent, _other) = UnixStream::pair()?;
    let s = &mut s.try_clone()?;
    let mut at = 0;
    s.set_nonblocking(true)?;
    while Instant::now() < end {
        let (mut readable, mut writable) = (FdSet::new(), FdSet::new());
        readable.insert(silent.as_fd());
        writable.insert(s.as_fd());
        select(None, &mut readable, &mut writable, None, &mut TimeVal::new(1, 0))?;
        if !writable.contains(s.as_fd()) {
            continue;
        }
        for _ in 0..10 {
            while let Some(rest @ [_, ..]) = block.get(at..) {
                match s.write(rest) {
                    Ok(n) => at += n,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e),
                }
            }
            if at == block.len() {
                at = 0;
            }
        }
    }
    s.set_nonblocking(false)
}

/// Sends for `seconds` on a connection of its own; the receiver says bytes and seconds.
fn stream_once(task: &Task, to: SocketAddr, seconds: f64) -> io::Result<(u64, f64, String)> {
    let mut s = patient(task, to)?;
    let block = Block::new(0x5a, task.write_size);
    let by_select = task.kind == Kind::TcpStreamSelect;
    s.set_nodelay(false)?; // a stream is sent as TCP does by itself: so do netperf and iperf3
    s.write_all(if by_select { b"S" } else { b"s" })?;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    if by_select { send_by_select(&mut s, &block, end) } else { send(&mut s, &block, end) }?;
    let congestion = sockopt::tcp_congestion(&s)?;
    s.shutdown(Shutdown::Write)?;
    let (mut bytes, mut nanos) = ([0; 8], [0; 8]);
    s.read_exact(&mut bytes)?;
    s.read_exact(&mut nanos)?;
    Ok((u64::from_be_bytes(bytes), u64::from_be_bytes(nanos) as f64 / 1e9, congestion))
}

pub(super) fn stream(task: &Task, to: SocketAddr) -> io::Result<Measured> {
    stream_once(task, to, task.warmup)?;
    let (bytes, seconds, congestion) = stream_once(task, to, task.seconds)?;
    Ok(Measured { seconds, bytes, congestion: Some(congestion), ..Measured::default() })
}

pub(super) fn maerts(task: &Task, to: SocketAddr) -> io::Result<Measured> {
    let mut s = patient(task, to)?;
    let total = Duration::from_secs_f64(task.warmup + task.seconds);
    let mut ask = vec![b'm'];
    ask.extend_from_slice(&(total.as_millis() as u32).saturating_add(5_000).to_be_bytes());
    s.write_all(&ask)?;
    let mut buf = Block::new(0, 131_072);
    let warm = Instant::now() + Duration::from_secs_f64(task.warmup);
    while Instant::now() < warm {
        if s.read(&mut buf)? == 0 {
            return Err(closed_early());
        }
    }
    let start = Instant::now();
    let mut bytes = 0_u64;
    let seconds = loop {
        let n = s.read(&mut buf)?;
        if n == 0 {
            return Err(closed_early());
        }
        bytes += n as u64;
        let t = start.elapsed().as_secs_f64();
        if t >= task.seconds {
            break t;
        }
    };
    let congestion = sockopt::tcp_congestion(&s)?;
    // What is still under way is of no use to anyone: reset, and wait for nothing. (In a compartment that cannot be said; what was not
    // read by then resets as well.)
    let _ = socket2::SockRef::from(&s).set_linger(Some(Duration::ZERO));
    Ok(Measured { seconds, bytes, congestion: Some(congestion), ..Measured::default() })
}

pub(super) fn rr(task: &Task, to: SocketAddr) -> io::Result<Measured> {
    let mut s = patient(task, to)?;
    let mut byte = [0_u8; 1];
    let congestion = Some(sockopt::tcp_congestion(&s)?);
    let mut one = || {
        s.write_all(b"e")?;
        s.read_exact(&mut byte)?;
        Ok(0)
    };
    warm_up(task, &mut one)?;
    let m = match task.open_rate {
        Some(rate) => open_loop(task, s, rate)?,
        None => timed(task, one)?,
    };
    Ok(Measured { congestion, ..m })
}

/// Requests leave when they are due, whether or not the last was answered; latency counts from when a
/// request was due, so a stall is charged to every request it delays (no coordinated omission).
fn open_loop(task: &Task, s: TcpStream, rate: f64) -> io::Result<Measured> {
    if !(rate.is_finite() && rate > 0.0) {
        return Err(io::Error::other("an open-loop rate must be above zero"));
    }
    let total = (rate * task.seconds).ceil() as u64;
    let start = Instant::now() + Duration::from_millis(2);
    let due = |i: u64| start + Duration::from_secs_f64(i as f64 / rate);
    let mut reader = s.try_clone()?;
    thread::scope(|scope| {
        let sender = scope.spawn(move || -> io::Result<()> {
            let mut s = s;
            for i in 0..total {
                let wait = due(i).saturating_duration_since(Instant::now());
                if !wait.is_zero() {
                    thread::sleep(wait);
                }
                s.write_all(b"e")?;
            }
            Ok(())
        });
        let mut h = recorder()?;
        let mut buf = [0_u8; 4096];
        let mut got = 0_u64;
        while got < total {
            let n = reader.read(&mut buf)?;
            if n == 0 {
                return Err(closed_early());
            }
            let now = Instant::now();
            for i in got..got + n as u64 {
                h.saturating_record(now.saturating_duration_since(due(i)).as_nanos() as u64);
            }
            got += n as u64;
        }
        let seconds = start.elapsed().as_secs_f64();
        sender.join().map_err(|_| io::Error::other("the sender died"))??;
        Ok(Measured { seconds, transactions: got, latency: Some(Latency::of(&h)), ..Measured::default() })
    })
}

/// Repeats a whole transaction, which is told its number, for the warm-up, then for the measured time.
fn repeat(task: &Task, mut nth: impl FnMut(usize) -> io::Result<u64>) -> io::Result<Measured> {
    let mut n = 0;
    let mut one = || {
        n += 1;
        nth(n)
    };
    warm_up(task, &mut one)?;
    timed(task, one)
}

/// Reads to the end of the stream: the server has closed.
fn to_end(s: &mut TcpStream, buf: &mut [u8]) -> io::Result<u64> {
    let mut bytes = 0;
    loop {
        match s.read(buf)? {
            0 => return Ok(bytes),
            n => bytes += n as u64,
        }
    }
}

pub(super) fn cc(task: &Task, to: Target) -> io::Result<Measured> {
    let mut buf = [0_u8; 16];
    let congestion = {
        let mut s = connect(task, to.close, 0)?;
        to_end(&mut s, &mut buf)?; // or this side would close first
        Some(sockopt::tcp_congestion(&s)?)
    };
    let m = match task.closer {
        Closer::Server => repeat(task, |n| to_end(&mut connect(task, to.close, n)?, &mut buf))?,
        Closer::Client => repeat(task, |n| {
            let mut s = connect(task, to.all, n)?;
            s.shutdown(Shutdown::Write)?;
            to_end(&mut s, &mut buf)
        })?,
    };
    Ok(Measured { congestion, bytes: 0, ..m })
}

pub(super) fn crr(task: &Task, to: SocketAddr) -> io::Result<Measured> {
    let mut buf = [0_u8; 16];
    let verb = [crr_verb(task.closer)];
    let m = repeat(task, |n| {
        let mut s = connect(task, to, n)?;
        s.write_all(&verb)?;
        if task.closer == Closer::Client {
            s.read_exact(&mut [0])?;
            s.shutdown(Shutdown::Write)?;
            return Ok(1 + to_end(&mut s, &mut buf)?);
        }
        match to_end(&mut s, &mut buf)? {
            1 => Ok(1),
            _ => Err(closed_early()),
        }
    })?;
    Ok(Measured { congestion: Some(task.congestion.clone()), ..m })
}

pub(super) fn fetch(task: &Task, to: SocketAddr) -> io::Result<Measured> {
    let mut buf = Block::new(0, 131_072);
    let mut ask = vec![b'f'];
    ask.extend_from_slice(&task.fetch.to_be_bytes());
    let m = repeat(task, |n| {
        let mut s = connect(task, to, n)?;
        s.write_all(&ask)?;
        match to_end(&mut s, &mut buf)? {
            got if got == u64::from(task.fetch) => Ok(got),
            _ => Err(closed_early()),
        }
    })?;
    Ok(Measured { congestion: Some(task.congestion.clone()), ..m })
}

/// As wrk does with `Connection: close`: it waits by `epoll` for the connection, then for the answer, and never in a call
/// that connects, writes or reads. (But it reads to the end, so that the server always closes first; wrk closes as soon
/// as it has the answer.)
pub(super) fn http(task: &Task, to: SocketAddr) -> io::Result<Measured> {
    let mut buf = [0_u8; 4096];
    let ask = format!("GET / HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let nothing = epoll::EventData::new_u64(0);
    let wait = || -> io::Result<()> {
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: nothing }];
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        match epoll::wait(&epoll, &mut events, Some(&patience))? {
            0 => Err(io::ErrorKind::TimedOut.into()),
            _ => Ok(()),
        }
    };
    let m = repeat(task, |n| {
        let mut s = begin(task, to, n)?;
        let (both, readable) = (epoll::EventFlags::IN | epoll::EventFlags::OUT, epoll::EventFlags::IN);
        epoll::add(&epoll, &s, nothing, both)?;
        wait()?;
        s.write_all(ask.as_bytes())?;
        epoll::modify(&epoll, &s, nothing, readable)?;
        let mut got = 0;
        loop {
            wait()?;
            match s.read(&mut buf) {
                Ok(0) => break,
                Ok(n) => got += n as u64,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        epoll::delete(&epoll, &s)?;
        if got == 0 { Err(closed_early()) } else { Ok(got) }
    })?;
    Ok(Measured { congestion: Some(task.congestion.clone()), ..m })
}
