//! What is measured, of what kinds of tunnels, on which host.

use levee_policy::site::Cipher;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most octets of a file of prices.
pub const MOST_OCTETS: usize = 16 << 10;
/// The most prices in one.
pub const MOST_PRICES: usize = 24;
/// The largest number in one: beyond it, something is wrong.
const MOST: u64 = 1_000_000_000_000;

/// What was measured: the middle of the blocks of a run, and where nine of ten of them lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "[u64; 3]", into = "[u64; 3]")]
pub struct Measured {
    pub(crate) low: u64,
    pub(crate) middle: u64,
    pub(crate) high: u64,
}

impl Measured {
    /// Lowest, middle and highest.
    pub fn all(self) -> [u64; 3] {
        [self.low, self.middle, self.high]
    }

    /// The middle.
    pub fn middle(self) -> u64 {
        self.middle
    }
}

impl TryFrom<[u64; 3]> for Measured {
    type Error = &'static str;

    fn try_from([low, middle, high]: [u64; 3]) -> Result<Self, Self::Error> {
        if low <= middle && middle <= high && high <= MOST {
            Ok(Self { low, middle, high })
        } else {
            Err("a measure is its lowest, middle and highest, in this order")
        }
    }
}

impl From<Measured> for [u64; 3] {
    fn from(measured: Measured) -> Self {
        measured.all()
    }
}

/// How a tunnel's packets go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Carried {
    /// Each by itself, when it comes.
    #[default]
    Each,
    /// One every so many microseconds, whether there is something to send or not.
    Constant(u64),
}

impl Carried {
    /// At this interval; none: as they come.
    pub fn at(interval: Option<Duration>) -> Self {
        let micros = |interval: Duration| u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
        interval.map_or(Self::Each, |interval| Self::Constant(micros(interval)))
    }
}

/// What one kind of tunnel costs; each of it only where it was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// What it is sealed by.
    pub cipher: Cipher,
    /// How its packets go.
    pub carried: Carried,
    /// Processor time of the label's vault for a gigabyte within the tunnel, in a stream: microseconds.
    pub gigabyte: Option<Measured>,
    /// The same for a packet that comes alone: nanoseconds.
    pub packet: Option<Measured>,
    /// What a round trip takes longer than over a link without a tunnel: nanoseconds.
    pub trip: Option<Measured>,
    /// Octets on the wire for a thousand within, in a stream.
    pub wire: Option<Measured>,
    /// Processor time of the label's vault in a second in which nobody sends anything: microseconds.
    pub standing: Option<Measured>,
    /// Octets on the wire in such a second.
    pub standing_wire: Option<Measured>,
}

/// A host, as far as a price depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The processor's name.
    pub processor: String,
    /// How many there are.
    pub processors: u64,
    /// The kernel's release.
    pub kernel: String,
    /// levee's version.
    pub levee: String,
}

impl Host {
    /// By `/proc/cpuinfo` and `/proc/sys/kernel/osrelease`, with this version of levee.
    pub fn of(cpuinfo: &str, release: &str) -> Self {
        let values = |key: &'static str| {
            let pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            pairs.filter(move |(name, _)| name.trim() == key).map(|(_, value)| value.trim())
        };
        Self {
            processor: values("model name").next().unwrap_or_default().to_owned(),
            processors: values("processor").count() as u64,
            kernel: release.trim().to_owned(),
            levee: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Everything that one run measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// When, in seconds since 1970.
    pub measured: u64,
    pub(crate) prices: Vec<Price>,
}

impl Prices {
    /// What a tunnel of this kind costs.
    pub fn of(&self, cipher: Cipher, carried: Carried) -> Option<&Price> {
        self.prices.iter().find(|price| price.cipher == cipher && price.carried == carried)
    }
}
