//! The file of prices: TOML, small, and nothing in it that is not known.

use crate::{Carried, Host, MOST_OCTETS, MOST_PRICES, Measured, Price, Prices};
use levee_policy::site::Cipher;
use serde::Deserialize;

/// The form of the file; another is not read.
const VERSION: u64 = 1;
/// The longest word of a host.
const MOST_WORD: usize = 128;
/// The longest interval of a constant rate, in microseconds: a packet a second.
const MOST_INTERVAL: u64 = 1_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u64,
    measured: u64,
    host: Host,
    #[serde(default, rename = "price")]
    prices: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Row {
    cipher: Cipher,
    /// Of a constant rate, in microseconds.
    #[serde(default)]
    interval: Option<u64>,
    #[serde(default)]
    gigabyte: Option<Measured>,
    #[serde(default)]
    packet: Option<Measured>,
    #[serde(default)]
    trip: Option<Measured>,
    #[serde(default)]
    wire: Option<Measured>,
    #[serde(default)]
    standing: Option<Measured>,
    #[serde(default)]
    standing_wire: Option<Measured>,
}

/// The host and its prices; `None`: it is no file of prices, or one with something in it that nobody knows.
pub fn parse(text: &[u8]) -> Option<(Host, Prices)> {
    let text = Some(text).filter(|text| text.len() <= MOST_OCTETS)?;
    let file: File = toml::from_str(std::str::from_utf8(text).ok()?).ok()?;
    let File { version, measured, host, prices: rows } = file;
    let words = [&host.processor, &host.kernel, &host.levee];
    let plain = |word: &&String| word.len() <= MOST_WORD && !word.chars().any(char::is_control);
    if version != VERSION || rows.len() > MOST_PRICES || !words.iter().all(plain) {
        return None;
    }
    let mut prices: Vec<Price> = Vec::new();
    for row in rows {
        let price = price(row)?;
        if prices.iter().any(|one| one.cipher == price.cipher && one.carried == price.carried) {
            return None;
        }
        prices.push(price);
    }
    Some((host, Prices { measured, prices }))
}

fn price(row: Row) -> Option<Price> {
    let Row { cipher, interval, gigabyte, packet, trip, wire, standing, standing_wire } = row;
    let carried = match interval {
        None => Carried::Each,
        Some(interval @ 1..=MOST_INTERVAL) => Carried::Constant(interval),
        Some(_) => return None,
    };
    Some(Price { cipher, carried, gigabyte, packet, trip, wire, standing, standing_wire })
}
