//! What tunnels cost on a host: the laboratory measures it there and writes one small file (`levee lab prices`), and whoever asks for more
//! protection is told of it.
//!
//! It may not be asked by who decides: it is for telling alone. No crate that decides depends on this one (a test of the tree holds that), and what is wrong with the file is a
//! price that nobody is told. It guesses nothing: what was not measured has no price.
//!
//! Begin reading with `lib.rs` ([`Book`]), then `file.rs`.

mod file;
mod words;

pub use words::Date;

use levee_policy::site::Cipher;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most octets of a file of prices.
pub const MOST_OCTETS: usize = 16 << 10;
/// The most prices in one.
pub const MOST_PRICES: usize = 24;
/// The largest number in one: beyond it, something is wrong.
const MOST: u64 = 1_000_000_000_000;
/// Seconds after which what was measured counts as old: the host's load and its neighbours are others by then.
const OLD: u64 = 180 * DAY;
/// So far the clock of whoever measured may be ahead, in seconds.
const AHEAD: u64 = DAY;
const DAY: u64 = 86_400;

/// What was measured: the middle of the blocks of a run, and where nine of ten of them lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "[u64; 3]", into = "[u64; 3]")]
pub struct Measured {
    low: u64,
    middle: u64,
    high: u64,
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
    prices: Vec<Price>,
}

impl Prices {
    /// What a tunnel of this kind costs.
    pub fn of(&self, cipher: Cipher, carried: Carried) -> Option<&Price> {
        self.prices.iter().find(|price| price.cipher == cipher && price.carried == carried)
    }
}

/// Why there is no price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unpriced {
    /// No file.
    Absent,
    /// It cannot be read.
    Damaged,
    /// It is of another host, or of this one with another kernel, processor or levee.
    OtherHost,
    /// It is more than half a year old, or from the future.
    Old,
    /// The run has no tunnel of this kind.
    NotMeasured,
    /// Tunnels at this label are of a kind that the laboratory does not measure: of two layers, of stacks that must agree, of several workers,
    /// with AGGFRAG, with settings of `[vault]` that are not levee's own.
    Otherwise,
}

/// What a session's tunnel costs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// When that was measured, in seconds since 1970.
    pub measured: u64,
    /// The tunnel as it is to be.
    pub price: Price,
    /// The same without what was asked of it, where that is another kind of tunnel and was measured.
    pub without: Option<Price>,
}

/// What is told of a tunnel.
pub type Told = Result<Forecast, Unpriced>;

/// A kind of tunnel; `None`: the laboratory has nothing like it.
pub type Kind = Option<(Cipher, Carried)>;

/// The prices that this host has, if it has any.
#[derive(Clone, Debug)]
pub struct Book(Result<Prices, Unpriced>);

impl Book {
    /// By the file's text, if there is one, for this host.
    pub fn read(text: Option<&[u8]>, here: &Host) -> Self {
        let Some(text) = text else { return Self(Err(Unpriced::Absent)) };
        let read = file::parse(text).ok_or(Unpriced::Damaged);
        Self(
            read.and_then(|(host, prices)| if host == *here { Ok(prices) } else { Err(Unpriced::OtherHost) }),
        )
    }

    /// What it has at this time, in seconds since 1970.
    ///
    /// # Errors
    /// Why there is nothing.
    pub fn at(&self, now: u64) -> Result<&Prices, Unpriced> {
        let prices = self.0.as_ref().map_err(|why| *why)?;
        let measured = prices.measured;
        if measured > now.saturating_add(AHEAD) || now.saturating_sub(measured) > OLD {
            return Err(Unpriced::Old);
        }
        Ok(prices)
    }

    /// What a tunnel costs that is to be of this kind, and would be of that one without what was asked of it.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn forecast(&self, now: u64, kind: Kind, without: Kind) -> Told {
        let prices = self.at(now)?;
        let (cipher, carried) = kind.ok_or(Unpriced::Otherwise)?;
        let price = prices.of(cipher, carried).ok_or(Unpriced::NotMeasured)?.clone();
        let without = without.filter(|_| without != kind);
        let without = without.and_then(|(cipher, carried)| prices.of(cipher, carried)).cloned();
        Ok(Forecast { measured: prices.measured, price, without })
    }
}
