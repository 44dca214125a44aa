//! What a run of the meter found.

use super::channels::Channel;
use levee_stats::capacity::{Capacity, Windows};
use serde::{Deserialize, Serialize};

/// The most octets a second that a one-way channel may have.
pub(super) const FASTEST: &str = "1G";

fn fastest() -> String {
    FASTEST.into()
}

/// What a channel carried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// Seconds a window.
    pub window: f64,
    /// Values of one.
    pub symbols: usize,
    /// How many were tried.
    pub windows: usize,
    /// How many of them the sender and the receiver overslept.
    pub overslept: [usize; 2],
    /// Bit/s: the estimate without its bias.
    pub rate: f64,
    /// Its 95 % interval.
    pub interval: [f64; 2],
    /// What 95 of 100 silent senders stay below.
    pub zero: f64,
    /// Seconds for 128 bits; nothing where nothing was found.
    pub seconds_of_128_bits: Option<f64>,
}

/// A channel with what was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Which.
    pub channel: Channel,
    /// What it carried, or what refused it.
    pub carried: Result<Carried, String>,
}

impl Finding {
    /// Whether it certainly carries more than is allowed.
    pub fn beyond(&self) -> bool {
        self.carried.as_ref().is_ok_and(|c| c.found() && c.interval[0] > self.channel.allowed)
    }
}

impl Carried {
    pub(super) fn of(windows: &Windows, window: f64, c: Capacity) -> Carried {
        let rate = c.bits / window;
        Carried {
            window,
            symbols: windows.symbols,
            windows: windows.sent.len(),
            overslept: [windows.late, windows.seen.iter().filter(|s| s.is_none()).count()],
            rate,
            interval: [c.lo / window, c.hi / window],
            zero: c.zero / window,
            seconds_of_128_bits: c.found().then(|| 128.0 / rate),
        }
    }

    /// Whether something came through.
    pub fn found(&self) -> bool {
        self.seconds_of_128_bits.is_some()
    }
}

/// A run, as `leak.json` and `--json` have it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// When, RFC 3339.
    pub at: String,
    /// What the host was, as in other runs' `env.json`.
    pub host: std::collections::BTreeMap<String, String>,
    /// Whether work ran besides.
    pub loaded: bool,
    /// Groups of system calls that both services had.
    pub granted: Vec<String>,
    /// Whether each label had processors of its own.
    #[serde(default)]
    pub apart: bool,
    /// Whether the server gave the label above a processor for itself.
    #[serde(default)]
    pub processors: bool,
    /// Milliseconds of each label's slot, where time was cut into frames.
    #[serde(default)]
    pub frames: Option<u32>,
    /// Octets a second of the partitions' one-way channel.
    #[serde(default = "fastest")]
    pub one_way_rate: String,
    /// Whether the label above had a kernel of its own.
    #[serde(default)]
    pub machine: bool,
    /// Whether it was the quick form.
    pub quick: bool,
    /// By channel.
    pub findings: Vec<Finding>,
}
