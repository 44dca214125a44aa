//! A peer that says anything at any rate and never reads, and what that costs the process that hears it.
//!
//! Begin reading with `lib.rs`.
#![forbid(unsafe_code)]

pub mod siege;

use levee_ipc::{Channel, SendError};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What one peer may cost the process that hears it, in KiB: what waits for it, 32,768 messages or 8 MiB as they are sent, whatever is
/// less; as they are kept they take a few times as much, and the allocator keeps some of it.
pub const MOST: u64 = 48 * 1024;

/// The memory that a process has, in KiB.
///
/// # Panics
/// There is no such process.
pub fn resident(pid: i32) -> u64 {
    memory(pid).expect("it runs")
}

/// The same; `None`: it has ended.
fn memory(pid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What an attack gave, and the most memory that the process which bears it took meanwhile beyond what it had, in KiB. It may end by that.
///
/// # Panics
/// There is no such process.
pub fn watched<R>(pid: i32, attack: impl FnOnce() -> R) -> (R, u64) {
    let over = AtomicBool::new(false);
    let before = resident(pid);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = before;
            while !over.load(Ordering::Relaxed) {
                most = most.max(memory(pid).unwrap_or(0));
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        });
        let came = attack();
        over.store(true, Ordering::Relaxed);
        (came, watcher.join().expect("it watches") - before)
    })
}

/// A flood that costs the process which hears it a bounded amount of memory, at its height too.
///
/// # Panics
/// Nothing was taken, or it costs more.
pub fn bears(pid: i32, what: &str, attack: impl FnOnce() -> Flood) -> Flood {
    let (flood, grown) = watched(pid, attack);
    println!("{what}: {flood:?}, {grown} KiB more");
    assert!(flood.said > 0, "{what}");
    assert!(grown < MOST, "{what}: {flood:?} cost {grown} KiB");
    flood
}

/// What came of a flood.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// Messages that were taken.
    pub said: u64,
    /// Whether the other end closed the channel.
    pub cut: bool,
}

/// Says this over and over, without ever reading, until it is cut off or for so long.
pub fn flood<T: Serialize>(channel: &Channel, limit: Duration, message: impl Fn(u64) -> T) -> Flood {
    let until = Instant::now() + limit;
    // What was said before may fill the queue for longer, where the other end has much to do for it.
    let late = until + Duration::from_secs(10);
    let mut said = 0;
    while Instant::now() < if said == 0 { late } else { until } {
        match channel.try_send(&message(said)) {
            Ok(()) => said += 1,
            // Its queue is full: as fast as it hears.
            Err(SendError::Full) => std::thread::sleep(Duration::from_micros(50)),
            Err(_) => return Flood { said, cut: true },
        }
    }
    Flood { said, cut: false }
}

/// Sends octets that are no message on all of these channels in turn, for so long or until all are cut off; how many were taken.
pub fn flood_all(channels: &[&Channel], limit: Duration, octets: &Vec<u8>) -> u64 {
    let until = Instant::now() + limit;
    let (mut said, mut open) = (0, channels.to_vec());
    while Instant::now() < until && !open.is_empty() {
        let mut full = true;
        open.retain(|channel| match channel.try_send(octets) {
            Ok(()) => {
                (said, full) = (said + 1, false);
                true
            }
            Err(SendError::Full) => true,
            Err(_) => false,
        });
        if full {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    said
}
