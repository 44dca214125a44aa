//! The UDP workloads, client's side: paced datagrams no larger than the path MTU, each accounted for.

use super::timed::{Measured, PATIENCE, timed, warm_up};
use crate::workload::{Task, UdpCount, UdpStep};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Halvings of the interval between a rate without loss and one with loss.
const HALVINGS: u32 = 5;
/// How long datagrams under way have to arrive before they are asked for.
const SETTLE: Duration = Duration::from_millis(20);

fn bound(to: SocketAddr) -> io::Result<UdpSocket> {
    let s = match to {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        SocketAddr::V6(_) => UdpSocket::bind((std::net::Ipv6Addr::UNSPECIFIED, 0))?,
    };
    s.connect(to)?;
    Ok(s)
}

/// (delivered, bytes, duplicates) of a trial, from the receiving program. Asked over a socket of its own: an
/// answer that is lost is asked for again. What this took is counted.
fn delivered(to: SocketAddr, trial: u64, count: &mut UdpCount) -> io::Result<(u64, u64, u64)> {
    let s = bound(to)?;
    s.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut question = vec![b'q'];
    question.extend_from_slice(&trial.to_be_bytes());
    let end = Instant::now() + PATIENCE;
    let mut buf = [0_u8; 32];
    while Instant::now() < end {
        s.send(&question)?;
        count.asked += 1;
        match s.recv(&mut buf) {
            Ok(32) => {
                let mut words =
                    buf.chunks_exact(8).map(|c| c.iter().fold(0_u64, |n, b| n << 8 | u64::from(*b)));
                if words.next() == Some(trial)
                    && let (Some(a), Some(b), Some(c)) = (words.next(), words.next(), words.next())
                {
                    count.answered += 1;
                    return Ok((a, b, c));
                }
            }
            Ok(_) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the server does not say what arrived"))
}

/// Asks until the count stands still: what was queued has been read.
fn settled(to: SocketAddr, trial: u64, count: &mut UdpCount) -> io::Result<(u64, u64, u64)> {
    let mut last = (u64::MAX, 0, 0);
    for _ in 0..50 {
        thread::sleep(SETTLE);
        let now = delivered(to, trial, count)?;
        if now == last {
            break;
        }
        last = now;
    }
    Ok(last)
}

struct Sweep<'a> {
    socket: UdpSocket,
    to: SocketAddr,
    payload: Vec<u8>,
    count: UdpCount,
    task: &'a Task,
    next_trial: u64,
}

impl Sweep<'_> {
    /// Sends at `rate` datagrams per second (unpaced at 0) for `seconds`, and asks what arrived.
    fn step(&mut self, rate: f64, seconds: f64) -> io::Result<UdpStep> {
        let trial = self.next_trial;
        self.next_trial += 1;
        for (d, b) in self.payload.iter_mut().skip(1).zip(trial.to_be_bytes()) {
            *d = b;
        }
        let start = Instant::now();
        let end = start + Duration::from_secs_f64(seconds);
        let mut sent = 0_u64;
        loop {
            let now = Instant::now();
            if now >= end {
                break;
            }
            let due =
                if rate > 0.0 { ((now - start).as_secs_f64() * rate) as u64 } else { sent.saturating_add(1) };
            if sent >= due {
                // With both ends on one processor a spinning sender starves its receiver: give way.
                thread::yield_now();
                continue;
            }
            while sent < due {
                for (d, b) in self.payload.iter_mut().skip(9).zip(sent.to_be_bytes()) {
                    *d = b;
                }
                match self.socket.send(&self.payload) {
                    Ok(_) => sent += 1,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let (got, _, duplicates) = settled(self.to, trial, &mut self.count)?;
        self.count.sent += sent;
        self.count.delivered += got;
        self.count.duplicates += duplicates;
        let step = UdpStep { offered: rate, sent, delivered: got, seconds };
        self.count.steps.push(step);
        Ok(step)
    }
}

/// Searches the highest rate without loss: unpaced first, for an upper bound, then by halving.
pub(super) fn stream(task: &Task, to: SocketAddr) -> io::Result<Measured> {
    if task.datagram < 17 {
        return Err(io::Error::other("a counted datagram has at least 17 bytes"));
    }
    let mut payload = vec![0_u8; task.datagram];
    if let Some(first) = payload.first_mut() {
        *first = b'd';
    }
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    let mut s = Sweep { socket: bound(to)?, to, payload, count: UdpCount::default(), task, next_trial: seed };
    let each = s.task.seconds / f64::from(HALVINGS + 1);
    s.step(0.0, task.warmup.max(0.02))?;
    let top = s.step(0.0, each)?;
    let mut best: Option<UdpStep> = (top.sent == top.delivered && top.sent > 0).then_some(top);
    let (mut low, mut high) = (0.0, top.sent as f64 / top.seconds);
    if best.is_none() {
        for _ in 0..HALVINGS {
            let rate = f64::midpoint(low, high);
            let step = s.step(rate, each)?;
            if step.sent == step.delivered && step.sent > 0 {
                low = rate;
                best = Some(step);
            } else {
                high = rate;
            }
        }
    }
    // No rate without loss: the value is the lowest rate that was tried, and the steps show it.
    let step = match best {
        Some(b) => b,
        None => *s.count.steps.last().ok_or_else(|| io::Error::other("no step was made"))?,
    };
    let bytes = step.delivered * task.datagram as u64;
    Ok(Measured {
        seconds: step.seconds,
        bytes,
        transactions: step.delivered,
        udp: Some(s.count),
        ..Measured::default()
    })
}

/// One datagram each way; a lost one ends the trial, for no path of an experiment may lose at this rate.
pub(super) fn rr(task: &Task, to: SocketAddr) -> io::Result<Measured> {
    let s = bound(to)?;
    s.set_read_timeout(Some(PATIENCE))?;
    let mut buf = [0_u8; 64];
    let mut count = UdpCount::default();
    let mut one = || {
        s.send(b"e")?;
        count.sent += 1;
        s.recv(&mut buf)?;
        count.delivered += 1;
        Ok(0)
    };
    warm_up(task, &mut one)?;
    let m = timed(task, one)?;
    Ok(Measured { udp: Some(count), ..m })
}
