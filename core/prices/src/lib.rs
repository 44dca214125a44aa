//! What tunnels cost on a host: the laboratory measures it there and writes one small file (`levee lab prices`), and whoever asks for more
//! protection is told of it.
//!
//! It may not be asked by who decides: it is for telling alone. No crate that decides depends on this one (a test of the tree holds that), and what is wrong with the file is a
//! price that nobody is told. It guesses nothing: what was not measured has no price.
//!
//! Begin reading with `lib.rs` ([`Book`]), then `price.rs` and `file.rs`.

mod file;
mod price;
mod words;

pub use price::{Carried, Host, MOST_OCTETS, MOST_PRICES, Measured, Price, Prices};
pub use words::Date;

use levee_policy::site::Cipher;
use serde::{Deserialize, Serialize};

/// Seconds after which what was measured counts as old: the host's load and its neighbours are others by then.
const OLD: u64 = 180 * DAY;
/// So far the clock of whoever measured may be ahead, in seconds.
const AHEAD: u64 = DAY;
const DAY: u64 = 86_400;

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
