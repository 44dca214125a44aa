//! What a `[[channel]]` of kind `guard` has beside: the program that filters, and the bounds that levee holds behind it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeValue;

use super::problem::ProblemKind;
use super::quantity;
use super::quota::{Quota, quota};
use super::read::{At, Reader, Table};
use super::values::{NAME, PARTITION_NAME, quantity as read_quantity};
use crate::names::{PartitionName, UserName};

/// Octets that one message of a guard may have: it travels whole between levee's processes.
const MOST_SIZE: u64 = 32 << 10;
/// Octets of a schema.
const MOST_SCHEMA: usize = 16 << 10;
/// Keys that only guards have.
const OWN: [&str; 8] =
    ["filter", "messages", "octets", "answer", "hours", "schema", "release", "release-within"];
/// People who may release a guard's messages, at most.
const MOST_PEOPLE: usize = 64;

/// A part of each day, in minutes since midnight UTC. Where the end is before the beginning it goes on over midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hours {
    /// The first minute of it.
    pub from: u16,
    /// The first that is not of it.
    pub until: u16,
}

impl Hours {
    /// From `08:00-18:00`.
    fn parse(text: &str) -> Option<Self> {
        let minute = |text: &str| {
            let (hour, minute) =
                text.split_once(':').filter(|(hour, minute)| hour.len() == 2 && minute.len() == 2)?;
            let digits =
                |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u16>().ok())?;
            let (hour, minute) = (digits(hour)?, digits(minute)?);
            (hour < 24 && minute < 60).then_some(hour * 60 + minute)
        };
        let (from, until) = text.split_once('-')?;
        let hours = Self { from: minute(from)?, until: minute(until)? };
        (hours.from != hours.until).then_some(hours)
    }

    /// Whether this minute of the day is of it. (None is where both ends are the same.)
    pub fn contains(&self, minute: u16) -> bool {
        let Self { from, until } = *self;
        if from <= until { (from..until).contains(&minute) } else { minute >= from || minute < until }
    }
}

impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, until } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02} UTC", from / 60, from % 60, until / 60, until % 60)
    }
}

/// Why a guard lets a message not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Refusal {
    /// It was larger than it may be, before the filter or behind it.
    Size,
    /// The filter said so.
    Filter,
    /// The filter did not answer in time, was gone, or spoke without being asked.
    Silent,
    /// It does not fit the schema.
    Schema,
    /// It is beyond what may pass in this time.
    Quota,
    /// It is not the time of day.
    Hours,
    /// It is not in the audit log, or nobody could be asked.
    Audit,
    /// So many waited before it.
    Full,
    /// Not two people have released it in time, or one has refused it.
    People,
}

impl Refusal {
    /// As counters and records have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Size => "larger than it may be",
            Self::Filter => "refused by the filter",
            Self::Silent => "without an answer of the filter",
            Self::Schema => "not of the schema",
            Self::Quota => "beyond what may pass in this time",
            Self::Hours => "not at its time of day",
            Self::Audit => "not in the audit log",
            Self::Full => "with too many before it",
            Self::People => "not released by two people",
        }
    }
}

/// Who decides about each message that the filter lets through: two of these people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Releasers {
    by: Vec<UserName>,
    within: Duration,
}

impl Releasers {
    /// Of whom two release each message, each from a workstation of their own.
    pub fn by(&self) -> &[UserName] {
        &self.by
    }

    /// How long a message waits for them.
    pub fn within(&self) -> Duration {
        self.within
    }
}

/// What a guard has beside what every channel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    filter: PartitionName,
    messages: Quota,
    octets: Quota,
    answer: Duration,
    hours: Option<Hours>,
    schema: Option<String>,
    release: Option<Releasers>,
}

impl Guard {
    /// The partition whose program sees each message before it passes. It has no other channel.
    pub fn filter(&self) -> &PartitionName {
        &self.filter
    }

    /// Messages that may pass.
    pub fn messages(&self) -> Quota {
        self.messages
    }

    /// Octets that may pass.
    pub fn octets(&self) -> Quota {
        self.octets
    }

    /// How long the filter may take for one message.
    pub fn answer(&self) -> Duration {
        self.answer
    }

    /// When messages may pass; always, where there is none.
    pub fn hours(&self) -> Option<Hours> {
        self.hours
    }

    /// The JSON Schema that what passes fits; anything may pass where there is none.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// Which people release each message; nobody is asked where there is none.
    pub fn release(&self) -> Option<&Releasers> {
        self.release.as_ref()
    }
}

/// A guard as read, with the places of its filter's name and of those who release.
pub(super) struct ReadGuard {
    pub filter: At<PartitionName>,
    pub releasers: Vec<At<UserName>>,
    pub guard: Guard,
}

/// What another kind of channel has not. `None` if it has one all the same.
pub(super) fn refuse(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<()> {
    let mut sound = Some(());
    for (key, value) in OWN.into_iter().filter_map(|key| Some((key, keys.get(key)?))) {
        let remedy = "remove it, or write `kind = \"guard\"`";
        reader.problem(ProblemKind::BadValue, &value.span(), format!("only a guard has `{key}`"), remedy);
        sound = None;
    }
    sound
}

/// Reads what a guard has beside, where its messages have this size at most.
pub(super) fn guard(reader: &mut Reader<'_>, keys: &Table<'_>, size: Option<u64>) -> Option<ReadGuard> {
    let filter = (reader.need(keys, "filter", "\"checker\""))
        .and_then(|value| reader.parsed::<PartitionName>(value, "partition name", PARTITION_NAME));
    let messages = reader
        .need(keys, "messages", "\"10 in 60s\"")
        .and_then(|value| quota(reader, value, "messages", |text| text.parse().ok()));
    let octets = match keys.get("octets") {
        Some(value) => quota(reader, value, "octets", quantity::size),
        None => messages.map(|messages| Quota {
            most: messages.most.saturating_mul(size.unwrap_or(MOST_SIZE)),
            within: messages.within,
        }),
    };
    if let (Some(value), Some(octets), Some(size)) = (keys.get("size"), octets, size)
        && octets.most < size
    {
        let what = format!("no message of `size` passes: `octets` are {} in all", octets.most);
        reader.problem(ProblemKind::BadValue, &value.span(), what, "lower `size`, or raise `octets`");
    }
    let mut time = |key, default: u64, bounds: std::ops::RangeInclusive<u64>, form: &str| match keys.get(key)
    {
        Some(value) => {
            let millis =
                |text: &str| quantity::duration(text).and_then(|time| u64::try_from(time.as_millis()).ok());
            read_quantity(reader, value, key, millis, bounds, form)
        }
        None => Some(default),
    };
    let answer = time("answer", 5_000, 100..=600_000, "a time from \"100ms\" to \"10m\"");
    let hours = match keys.get("hours") {
        Some(value) => hours(reader, value).map(Some),
        None => Some(None),
    };
    let schema = match keys.get("schema") {
        Some(value) => schema(reader, value).map(Some),
        None => Some(None),
    };
    let release = release(reader, keys);
    let filter = filter?;
    let (releasers, within) = release?;
    let by: Vec<UserName> = releasers.iter().map(|name| name.value.clone()).collect();
    let guard = Guard {
        filter: filter.value.clone(),
        messages: messages?,
        octets: octets?,
        answer: Duration::from_millis(answer?),
        hours: hours?,
        schema: schema?,
        release: (!by.is_empty()).then_some(Releasers { by, within }),
    };
    Some(ReadGuard { filter, releasers, guard })
}

/// Who releases, if anybody is to, and how long a message waits for them.
fn release(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<(Vec<At<UserName>>, Duration)> {
    const WITHIN: &str = "release-within";
    let millis = |text: &str| quantity::duration(text).and_then(|time| u64::try_from(time.as_millis()).ok());
    let within = match keys.get(WITHIN) {
        Some(value) => {
            let form = "a time from \"10s\" to \"24h\"";
            read_quantity(reader, value, WITHIN, millis, 10_000..=86_400_000, form)
        }
        None => Some(3_600_000),
    };
    let Some(value) = keys.get("release") else {
        if let Some(value) = keys.get(WITHIN) {
            let what = "nobody releases this guard's messages, so that none waits for it";
            reader.problem(
                ProblemKind::MissingKey,
                &value.span(),
                what,
                "name two people or more in `release`, or remove it",
            );
            return None;
        }
        return Some((Vec::new(), Duration::ZERO));
    };
    let names = reader.parsed_list::<UserName>(value, ("release", "user name"), NAME)?;
    for (at, name) in names.iter().enumerate() {
        if names.iter().take(at).any(|known| known.value == name.value) {
            let what = format!("`{}` is named twice", name.value);
            let remedy = "name each person once: two different ones decide";
            reader.problem(ProblemKind::Duplicate, &name.span, what, remedy);
        }
    }
    if !(2..=MOST_PEOPLE).contains(&names.len()) {
        let what = format!("{} of the site's people release this guard's messages", names.len());
        let remedy = format!("name 2 to {MOST_PEOPLE}: two different ones decide about each message");
        reader.problem(ProblemKind::BadValue, &value.span(), what, remedy);
        return None;
    }
    Some((names, Duration::from_millis(within?)))
}

/// What one message of a guard may have.
pub(super) fn size(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<u64> {
    match keys.get("size") {
        Some(value) => {
            let form = "a size from \"1K\" to \"32K\", for a guard";
            read_quantity(reader, value, "size", quantity::size, 1 << 10..=MOST_SIZE, form)
        }
        None => Some(MOST_SIZE),
    }
}

fn hours(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Option<Hours> {
    let text = reader.string(value, "hours")?;
    let hours = Hours::parse(text.value);
    if hours.is_none() {
        let what = format!("`{}` is no time of day", text.value);
        reader.problem(ProblemKind::BadValue, &text.span, what, "write it in UTC, such as \"08:00-18:00\"");
    }
    hours
}

fn schema(reader: &mut Reader<'_>, value: &Spanned<DeValue<'_>>) -> Option<String> {
    let text = reader.string(value, "schema")?;
    if text.value.len() > MOST_SCHEMA {
        let what = format!("the schema has {} octets", text.value.len());
        reader.problem(ProblemKind::TooLarge, &text.span, what, format!("have {MOST_SCHEMA} at most"));
        return None;
    }
    Some(text.value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_day_goes_over_midnight_and_is_no_other() {
        let hours = |text| Hours::parse(text);
        let (day, night) = (hours("08:00-18:30").unwrap(), hours("22:00-06:00").unwrap());
        assert!(day.contains(480) && day.contains(1_109) && !day.contains(1_110) && !day.contains(479));
        assert!(night.contains(1_320) && night.contains(0) && night.contains(359) && !night.contains(360));
        for wrong in ["8:00-18:00", "08:00", "24:00-08:00", "08:00-08:00", "08:60-09:00", "+8:00-09:00", ""] {
            assert_eq!(hours(wrong), None, "{wrong}");
        }
    }
}
