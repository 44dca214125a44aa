//! A run of `protections` as a file of prices, which levee's servers read: the middle of the blocks, and where nine of ten of them lie.

use super::protections::{GIGABYTE, PACKET, STANDING, STANDING_WIRE, WIRE};
use super::record::{Manifest, Sample};
use super::run::{manifest, samples};
use levee_stats::quantile;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io::Error};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Fewer blocks than these say nothing of their spread.
const FEWEST: usize = 5;
/// The arms, each with what seals its tunnel and with the microseconds from one packet to the next where the rate is constant.
const ARMS: [(&str, &str, Option<u64>); 4] = [
    ("aes-256-gcm", "aes-256-gcm", None),
    ("aes-128-gcm", "aes-128-gcm", None),
    ("chacha20-poly1305", "chacha20-poly1305", None),
    ("constant", "aes-256-gcm", Some(4_000)),
];

/// Lowest, middle and highest.
type Spread = [u64; 3];

#[derive(Debug, Serialize)]
struct File {
    version: u64,
    /// Seconds since 1970.
    measured: u64,
    host: Host,
    price: Vec<Price>,
}

/// What a price depends on.
#[derive(Debug, PartialEq, Serialize)]
struct Host {
    processor: String,
    processors: u64,
    kernel: String,
    levee: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Price {
    cipher: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    interval: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gigabyte: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    packet: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trip: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wire: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    standing: Option<Spread>,
    #[serde(skip_serializing_if = "Option::is_none")]
    standing_wire: Option<Spread>,
}

fn spread(values: &[f64]) -> Option<Spread> {
    let whole: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).map(|v| v.max(0.0)).collect();
    let at = |q| quantile(&whole, q).map(|v| v.round() as u64);
    let all = [at(0.05)?, at(0.5)?, at(0.95)?];
    (whole.len() >= FEWEST).then_some(all)
}

/// Where it was measured: every time that the run was begun or resumed, the same.
fn host(m: &Manifest) -> io::Result<Host> {
    let one = |facts: &BTreeMap<String, String>| {
        let fact = |name: &str| facts.get(name).cloned();
        Some(Host {
            processor: fact("processor").unwrap_or_default(),
            processors: fact("processors of the machine")?.parse().ok()?,
            kernel: fact("kernel")?,
            levee: fact("program laboratory, version")?,
        })
    };
    let mut all = m.env.iter().map(|env| one(&env.facts));
    let first = all.next().flatten().ok_or_else(|| Error::other("the run does not say where it was made"))?;
    if all.any(|other| other.as_ref() != Some(&first)) {
        return Err(Error::other("the run was resumed on another host, or with another kernel or levee"));
    }
    Ok(first)
}

fn price((arm, cipher, interval): (&str, &'static str, Option<u64>), samples: &[Sample]) -> Option<Price> {
    let of = |arm: &str, row: &str| -> Vec<&Sample> {
        samples
            .iter()
            .filter(|s| s.arm == arm && s.row == row && s.copy == 0 && s.seconds.is_some())
            .collect()
    };
    let counted = |row: &str, what: &str| -> Option<Spread> {
        spread(&of(arm, row).iter().filter_map(|s| s.counted.get(what).copied()).collect::<Vec<_>>())
    };
    // Within a block, so that what slows all of it is in no difference.
    let links: BTreeMap<usize, f64> =
        of("link", "request").iter().filter_map(|s| Some((s.block, s.seconds?))).collect();
    let longer = of(arm, "request");
    let longer: Vec<f64> =
        longer.iter().filter_map(|s| Some(1e9 * (s.seconds? - links.get(&s.block)?))).collect();
    // At a constant rate a vault does the same whether there is something to send or not.
    let paced = interval.is_some();
    let price = Price {
        cipher,
        interval,
        gigabyte: counted("stream", GIGABYTE),
        packet: counted("request", PACKET).filter(|_| !paced),
        trip: spread(&longer),
        wire: counted("wire", WIRE),
        standing: counted("idle", STANDING).filter(|_| paced),
        standing_wire: counted("idle", STANDING_WIRE).filter(|_| paced),
    };
    (price.gigabyte.is_some() || price.standing.is_some()).then_some(price)
}

/// The prices of the run in this directory, as a file's text.
///
/// # Errors
/// When it is no run of `protections`, or one that measured too little.
pub fn of(dir: &Path) -> io::Result<String> {
    let (m, samples) = (manifest(dir)?, samples(dir)?);
    if m.study.study != "protections" {
        return Err(Error::other(format!(
            "{} is a run of {}, not of protections",
            dir.display(),
            m.study.study
        )));
    }
    let price: Vec<Price> = ARMS.into_iter().filter_map(|arm| price(arm, &samples)).collect();
    if price.is_empty() {
        return Err(Error::other(format!("no tunnel was measured in {FEWEST} blocks of {}", dir.display())));
    }
    let last = m.env.last().map(|env| env.at.as_str()).unwrap_or_default();
    let at = OffsetDateTime::parse(last, &Rfc3339).map_err(Error::other)?;
    let measured = u64::try_from(at.unix_timestamp()).map_err(Error::other)?;
    toml::to_string(&File { version: 1, measured, host: host(&m)?, price }).map_err(Error::other)
}

/// Gives the prices to the server that has this state directory: among the files of its sessiond, whole or not at all.
///
/// # Errors
/// When it has none, or the file cannot be written.
pub fn put(state: &Path, text: &str) -> io::Result<PathBuf> {
    let directory = state.join("sessiond");
    let path = directory.join("prices.toml");
    let at =
        |e: Error| Error::new(e.kind(), format!("{}: {e} (`levee up` makes the directory)", path.display()));
    // The directory is sessiond's: what it may have put there under this name is not followed, and not written to.
    let new = directory.join("prices.toml.new");
    match fs::remove_file(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at(e)),
        _ => {}
    }
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new);
    let mut file = file.map_err(at)?;
    // Whatever root's mask is: sessiond is to read it.
    file.set_permissions(fs::Permissions::from_mode(0o644)).map_err(at)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(at)?;
    fs::rename(&new, &path).map_err(at)?;
    Ok(path)
}
