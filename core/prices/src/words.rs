//! Prices in words.

use crate::{Carried, Forecast, Measured, Price, Unpriced};
use std::fmt::{self, Display, Formatter};
use time::OffsetDateTime;

impl Display for Unpriced {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "not known: nothing was measured on this host (`levee lab run protections`, then `levee lab prices`)",
            Self::Damaged => "not known: the file of prices cannot be read (`levee lab prices` writes it anew)",
            Self::OtherHost => {
                "not known: the prices are of another host, or of another kernel, processor or levee than run here now"
            }
            Self::Old => "not known: the prices are more than half a year old, or from the future",
            Self::NotMeasured => "not measured: the laboratory's run has no tunnel of this kind",
            Self::Otherwise => {
                "not measured: the laboratory measures no tunnel like those at this label ([vault] says of what kind they are)"
            }
        })
    }
}

impl Display for Forecast {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "by the laboratory's run of {}: ", Date(self.measured))?;
        parts(f, &self.price)?;
        if let Some(without) = &self.without {
            write!(f, " (without it: ")?;
            parts(f, without)?;
            f.write_str(")")?;
        }
        Ok(())
    }
}

/// What one tunnel costs: each of it with where nine of ten blocks of the run lie, and what was not measured left out.
fn parts(f: &mut Formatter<'_>, price: &Price) -> fmt::Result {
    write!(f, "{}", price.cipher)?;
    match price.carried {
        Carried::Each => {}
        Carried::Constant(interval) => write!(f, ", a packet every {} ms", Thousandths(interval))?,
    }
    let part = |f: &mut Formatter<'_>, value: Option<Measured>, before: &str, what: &str| {
        let Some(value) = value else { return Ok(()) };
        let [low, middle, high] = value.all().map(Thousandths);
        write!(f, "; {before}{middle} {what} ({low} to {high})")
    };
    part(f, price.standing, "", "ms of the server's processor time in a second, used or not")?;
    part(f, price.standing_wire, "", "kB on the wire in a second, used or not")?;
    let gigabyte = price.gigabyte.map(thousandths);
    part(f, gigabyte, "", "s of the server's processor time for a gigabyte in a stream")?;
    part(f, price.packet, "", "µs for a packet that comes alone")?;
    part(f, price.trip, "a round trip ", "µs longer than without a tunnel")?;
    part(f, price.wire, "", "octets on the wire for one in a stream")
}

/// A thousandth of it, rounded down.
fn thousandths(value: Measured) -> Measured {
    let [low, middle, high] = value.all().map(|n| n / 1_000);
    Measured { low, middle, high }
}

/// A number of thousandths.
struct Thousandths(u64);

impl Display for Thousandths {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// A day, of seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub struct Date(pub u64);

impl Display for Date {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let seconds = i64::try_from(self.0).ok();
        let time = seconds.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
        let Some(time) = time else { return write!(f, "{} s after 1970", self.0) };
        write!(f, "{}-{:02}-{:02}", time.year(), u8::from(time.month()), time.day())
    }
}
