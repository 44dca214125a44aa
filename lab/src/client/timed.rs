//! A transaction, repeated and timed, and what a workload hands back.

use crate::workload::{Latency, Task, UdpCount};
use hdrhistogram::Histogram;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The longest one answer may take before the trial fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Where the two ports of the server are.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Every workload but TCP_CC, TCP and UDP.
    pub all: SocketAddr,
    /// TCP_CC.
    pub close: SocketAddr,
}

/// What a workload hands back before counters and processor time are added.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    pub seconds: f64,
    pub bytes: u64,
    pub transactions: u64,
    pub latency: Option<Latency>,
    pub udp: Option<UdpCount>,
    pub congestion: Option<String>,
    /// Overrides the rate of bytes or transactions (UDP_STREAM: at the highest rate without loss).
    pub value: Option<f64>,
}

/// A recorder from 1 ns to 60 s with two significant digits: to 1 %, finer than any floor.
pub(crate) fn recorder() -> io::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 2).map_err(|e| io::Error::other(e.to_string()))
}

/// Repeats a transaction, which says how many bytes it carried, for the warm-up.
pub(super) fn warm_up(task: &Task, one: &mut impl FnMut() -> io::Result<u64>) -> io::Result<()> {
    let warm = Instant::now() + Duration::from_secs_f64(task.warmup);
    while Instant::now() < warm {
        one()?;
    }
    Ok(())
}

/// Repeats it for the measured time, and times each.
pub(super) fn timed(task: &Task, mut one: impl FnMut() -> io::Result<u64>) -> io::Result<Measured> {
    let mut h = recorder()?;
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(task.seconds);
    let (mut transactions, mut bytes) = (0, 0);
    let mut before = start;
    while before < end {
        bytes += one()?;
        let now = Instant::now();
        h.saturating_record((now - before).as_nanos() as u64);
        before = now;
        transactions += 1;
    }
    let (seconds, latency) = ((before - start).as_secs_f64(), Some(Latency::of(&h)));
    Ok(Measured { seconds, bytes, transactions, latency, ..Measured::default() })
}
