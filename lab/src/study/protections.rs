//! What a session's tunnel costs the server (`levee lab run protections`), by the same ledger that `levee status --cost` shows: so that what is
//! predicted from it and what is really used are one measure.

use super::vaulted::Vaulted;
use super::{Arm, Measured, Stand, task};
use crate::levee::{Ledger, Levee, Variant};
use crate::run::client;
use crate::workload::{Kind, Outcome};
use std::collections::BTreeMap;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The vault's processor time for a gigabyte within the tunnel, in microseconds.
pub(super) const GIGABYTE: &str = "the vault, µs/GB";
/// The same for a packet, in nanoseconds.
pub(super) const PACKET: &str = "the vault, ns a packet";
/// The same for a second, in microseconds.
pub(super) const STANDING: &str = "the vault, µs a second";
/// Octets on the wire for a thousand within.
pub(super) const WIRE: &str = "on the wire, octets for 1,000";
/// Octets on the wire in a second.
pub(super) const STANDING_WIRE: &str = "on the wire, octets a second";

/// Times that a processor is given to levee's processes, both ends', in a second.
pub(super) const WAKES: &str = "wakes of levee's processes a second, both ends'";

const fn under(part: &'static str, tables: &'static str, posture: &'static str) -> Variant {
    Variant { part, tables, posture: Some(posture), vault: None }
}

/// A site for each arm.
const VARIANTS: [(&str, Variant); 4] = [
    ("aes-256-gcm", under("pa", "[[posture]]\nname = \"long\"\nciphers = [\"aes-256-gcm\"]\n\n", "long")),
    ("aes-128-gcm", under("pb", "[[posture]]\nname = \"short\"\nciphers = [\"aes-128-gcm\"]\n\n", "short")),
    (
        "chacha20-poly1305",
        under("pc", "[[posture]]\nname = \"other\"\nciphers = [\"chacha20-poly1305\"]\n\n", "other"),
    ),
    (
        "constant",
        under(
            "pd",
            "[vault]\nconstant-rate = [\"LOW\"]\n\n[[posture]]\nname = \"long\"\nciphers = [\"aes-256-gcm\"]\n\n",
            "long",
        ),
    ),
];

/// Everything that stands during a run.
pub(super) struct Protections(Vaulted);

impl Protections {
    /// Builds the arms.
    ///
    /// # Errors
    /// When the plain link cannot be had.
    pub(super) fn build(arms: &[&Arm]) -> io::Result<Protections> {
        Ok(Protections(Vaulted::of(arms, &VARIANTS)?))
    }

    fn workload(&self, arm: &str, kind: Kind, seconds: f64) -> io::Result<Outcome> {
        client(&self.0.at(arm)?, &task(kind, seconds))
    }

    /// As many seconds of this, and what the tunnel has used meanwhile.
    fn used(&self, arm: &str, kind: Kind, seconds: f64) -> io::Result<(Outcome, Ledger)> {
        let levee = self.0.levee(arm)?;
        let before = levee.ledger()?;
        let outcome = self.workload(arm, kind, seconds)?;
        Ok((outcome, levee.ledger()?.since(before)))
    }

    fn stream(&self, arm: &str, seconds: f64) -> io::Result<Measured> {
        let (outcome, used) = self.used(arm, Kind::TcpStream, seconds)?;
        let each = 1e15 * used.vault / used.octets.max(1.0);
        Ok(measured(8e-6 / outcome.value, [(GIGABYTE, each)]))
    }

    fn wire(&self, arm: &str, seconds: f64) -> io::Result<Measured> {
        let levee = self.0.levee(arm)?;
        levee.segment(true)?;
        let before = levee.wire();
        let trial = self.used(arm, Kind::TcpStream, seconds);
        let after = levee.wire();
        levee.segment(false)?;
        let (outcome, used) = trial?;
        let each = 1e3 * (after? - before?) / used.octets.max(1.0);
        Ok(measured(8e-6 / outcome.value, [(WIRE, each)]))
    }

    fn request(&self, arm: &str, seconds: f64) -> io::Result<Measured> {
        let (outcome, used) = match arm {
            "link" => (self.workload(arm, Kind::TcpRr, seconds)?, None),
            _ => self.used(arm, Kind::TcpRr, seconds).map(|(outcome, used)| (outcome, Some(used)))?,
        };
        let middle = outcome.latency.and_then(|l| l.quantile(0.5));
        let middle = middle.ok_or_else(|| io::Error::other("nothing was answered"))?;
        let each = used.map(|used| (PACKET, 1e9 * used.vault / used.packets.max(1.0)));
        Ok(measured(middle as f64 / 1e9, each))
    }
}

fn measured(seconds: f64, counted: impl IntoIterator<Item = (&'static str, f64)>) -> Measured {
    let counted: BTreeMap<String, f64> =
        counted.into_iter().map(|(what, value)| (what.to_owned(), value)).collect();
    Measured { seconds, preempted: None, counted }
}

/// Nothing, for so long.
fn idle(levee: &Levee, seconds: f64) -> io::Result<Measured> {
    let (before, sent, since) = (levee.ledger()?, levee.wire()?, Instant::now());
    // What asks levee is not in between.
    let woken = levee.wakes();
    sleep(Duration::from_secs_f64(seconds));
    let (woken, wire) = (levee.wakes().saturating_sub(woken), levee.wire()? - sent);
    let took = since.elapsed().as_secs_f64();
    let used = levee.ledger()?.since(before);
    let each =
        [(STANDING, 1e6 * used.vault / took), (STANDING_WIRE, wire / took), (WAKES, woken as f64 / took)];
    Ok(measured(used.processor / took, each))
}

impl Stand for Protections {
    fn absent(&self) -> &[(String, String)] {
        self.0.absent()
    }

    fn measure(&mut self, arm: &str, row: &str, seconds: f64) -> io::Result<Measured> {
        match row {
            "stream" => self.stream(arm, seconds),
            "wire" => self.wire(arm, seconds),
            "request" => self.request(arm, seconds),
            "idle" => idle(self.0.levee(arm)?, seconds),
            _ => Err(io::Error::other(format!("no row is called {row:?}"))),
        }
    }
}
