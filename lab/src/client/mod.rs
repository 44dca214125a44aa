//! The client's part of every workload: one trial, one [`Outcome`].

mod tcp;
mod timed;
mod udp;

pub use timed::Target;

use crate::counters::Net;
use crate::workload::{Kind, Outcome, Task};
use nix::sys::resource::{UsageWho, getrusage};
use std::io;

/// Processor seconds, user and system, by getrusage: of this process, or of those it started and waited for.
pub(crate) fn processor_time(who: UsageWho) -> f64 {
    getrusage(who).map_or(0.0, |r| {
        let s = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
        s(r.user_time()) + s(r.system_time())
    })
}

/// Seconds spent runnable on the run queue (Documentation/scheduler/sched-stats.rst).
fn waited() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split_whitespace().nth(1)?.parse::<f64>().ok().map(|ns| ns / 1e9)
}

/// Runs one trial against a server that is ready.
///
/// # Errors
/// When a connection fails, the server breaks off, or the congestion control asked for is not in force.
pub fn run(task: &Task, target: Target) -> io::Result<Outcome> {
    let cpu0 = processor_time(UsageWho::RUSAGE_SELF);
    let waited0 = waited();
    let server_congestion =
        task.kind.is_tcp().then(|| tcp::server_congestion(task, target.all)).transpose()?;
    let net0 = Net::read("self").ok();
    let m = match task.kind {
        Kind::TcpStream | Kind::TcpStreamSelect => tcp::stream(task, target.all)?,
        Kind::TcpMaerts => tcp::maerts(task, target.all)?,
        Kind::TcpRr => tcp::rr(task, target.all)?,
        Kind::TcpCc => tcp::cc(task, target)?,
        Kind::TcpCrr => tcp::crr(task, target.all)?,
        Kind::TcpFetch => tcp::fetch(task, target.all)?,
        Kind::TcpHttp => tcp::http(task, target.all)?,
        Kind::UdpStream => udp::stream(task, target.all)?,
        Kind::UdpRr => udp::rr(task, target.all)?,
    };
    for (side, c) in [("client", &m.congestion), ("server", &server_congestion)] {
        if let Some(c) = c.as_ref().filter(|c| **c != task.congestion) {
            let what = format!("the {side}'s congestion control is {c}, not {}", task.congestion);
            return Err(io::Error::other(what));
        }
    }
    let cpu_seconds = processor_time(UsageWho::RUSAGE_SELF) - cpu0;
    let net1 = Net::read("self").ok();
    let rate = if task.kind.is_bulk() {
        m.bytes as f64 * 8.0 / 1e6 / m.seconds
    } else {
        m.transactions as f64 / m.seconds
    };
    let value = m.value.unwrap_or(rate);
    if !(value.is_finite() && value > 0.0) {
        return Err(io::Error::other("nothing was measured: no transaction and no byte arrived"));
    }
    Ok(Outcome {
        kind: task.kind,
        seconds: m.seconds,
        bytes: m.bytes,
        transactions: m.transactions,
        value,
        latency: m.latency,
        udp: m.udp,
        congestion: m.congestion,
        server_congestion,
        cpu_seconds,
        waited: waited0.zip(waited()).map(|(a, b)| b - a),
        time_wait: net0.as_ref().zip(net1.as_ref()).map(|(a, b)| (a.time_wait, b.time_wait)),
        net: net0.zip(net1).map(|(a, b)| b.since(&a)),
    })
}
