//! What may pass a guard, whatever its filter says: the schema, the time of day, and how much in what time.
#![forbid(unsafe_code)]

use jsonschema::{PatternOptions, Validator};
use levee_policy::site::{Hours, Quota, Refusal};
use serde_json::Value;
use std::collections::VecDeque;
use std::time::Duration;

/// Octets that the program of one of a schema's patterns may have.
const PATTERN: usize = 1 << 20;

/// A JSON Schema that what passes must fit.
#[derive(Debug)]
pub struct Schema(Validator);

impl Schema {
    /// Reads a schema. It refers to nothing outside itself; its patterns are matched in time linear in the text.
    ///
    /// # Errors
    /// It is no JSON, or no schema, or refers to another document.
    pub fn new(text: &str) -> Result<Self, String> {
        let schema: Value = serde_json::from_str(text).map_err(|e| format!("the schema is no JSON: {e}"))?;
        let patterns = PatternOptions::regex().size_limit(PATTERN).dfa_size_limit(PATTERN);
        let options = jsonschema::options().with_pattern_options(patterns);
        options.build(&schema).map(Self).map_err(|e| format!("the schema is none: {e}"))
    }

    /// What passes of this message: the same value, as levee writes it; nothing if it is no JSON, or does not fit. Spaces, the order of
    /// keys, a key that is there twice and the like do not pass: the reader sees what was checked, and no more.
    pub fn rewrite(&self, message: &[u8]) -> Option<Vec<u8>> {
        let value: Value = serde_json::from_slice(message).ok()?;
        if !self.0.is_valid(&value) {
            return None;
        }
        serde_json::to_vec(&value).ok()
    }
}

/// How much has passed lately.
#[derive(Debug)]
pub struct Passed {
    messages: Quota,
    octets: Quota,
    /// When each passed, since the beginning, and how large it was.
    all: VecDeque<(Duration, u64)>,
}

impl Passed {
    /// Nothing yet.
    pub fn new(messages: Quota, octets: Quota) -> Self {
        Self { messages, octets, all: VecDeque::new() }
    }

    /// Counts a message of so many octets, if it may pass now: in no stretch of time of a quota's length is there more than that.
    ///
    /// # Errors
    /// It may not.
    pub fn take(&mut self, octets: usize, now: Duration) -> Result<(), Refusal> {
        let octets = u64::try_from(octets).unwrap_or(u64::MAX);
        let longest = self.messages.within.max(self.octets.within);
        while self.all.front().is_some_and(|(at, _)| now.saturating_sub(*at) >= longest) {
            self.all.pop_front();
        }
        let within = |quota: Quota| {
            self.all.iter().rev().take_while(move |(at, _)| now.saturating_sub(*at) < quota.within)
        };
        let messages = u64::try_from(within(self.messages).count()).unwrap_or(u64::MAX);
        let sum = within(self.octets).fold(octets, |sum, (_, octets)| sum.saturating_add(*octets));
        if messages >= self.messages.most || sum > self.octets.most {
            return Err(Refusal::Quota);
        }
        self.all.push_back((now, octets));
        Ok(())
    }
}

/// Whether it is one of these hours, so long after 1970 (UTC).
///
/// # Errors
/// It is not.
pub fn open(hours: Option<Hours>, since_1970: Duration) -> Result<(), Refusal> {
    let minute = u16::try_from(since_1970.as_secs() / 60 % 1_440).unwrap_or(u16::MAX);
    if hours.is_none_or(|hours| hours.contains(minute)) { Ok(()) } else { Err(Refusal::Hours) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"type": "object", "required": ["depth"], "additionalProperties": false,
        "properties": {"depth": {"type": "integer", "minimum": 0, "maximum": 99}, "at": {"pattern": "^[A-Z]{3}$"}}}"#;

    #[test]
    fn what_fits_passes_in_one_spelling_alone() {
        let schema = Schema::new(SCHEMA).unwrap();
        let one: &[u8] = br#"{"at":"ABC","depth":7}"#;
        for spelling in [
            &br#"{"at":"ABC","depth":7}"#[..],
            br#" { "depth" : 7, "at" : "\u0041BC" } "#,
            br#"{"depth":99,"at":"ABC","depth":7}"#,
        ] {
            assert_eq!(schema.rewrite(spelling).as_deref(), Some(one));
        }
    }

    #[test]
    fn what_does_not_fit_or_is_no_json_does_not_pass() {
        let schema = Schema::new(SCHEMA).unwrap();
        let deep = "[".repeat(10_000);
        for wrong in [
            "",
            "7",
            "{}",
            r#"{"depth":100}"#,
            r#"{"depth":7,"more":1}"#,
            r#"{"depth":7}{"depth":7}"#,
            r#"{"depth":7,"at":"abc"}"#,
            "{\"depth\":7}\0",
            &deep,
        ] {
            assert_eq!(schema.rewrite(wrong.as_bytes()), None, "{wrong:.40}");
        }
        assert_eq!(schema.rewrite(b"\xff\xfe"), None);
    }

    #[test]
    fn a_schema_that_is_none_or_asks_others_is_refused() {
        for wrong in [
            "{",
            r#"{"type": "objct"}"#,
            r#"{"$ref": "https://www.harbour.example/schema.json"}"#,
            r#"{"$ref": "file:///etc/passwd"}"#,
            r#"{"pattern": "("}"#,
        ] {
            assert!(Schema::new(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_more_passes_in_any_stretch_of_time_than_may() {
        let quota = |most, seconds| Quota { most, within: Duration::from_secs(seconds) };
        let (mut passed, mut at) = (Passed::new(quota(5, 60), quota(100, 10)), Vec::new());
        for tenths in 0..6_000u64 {
            let now = Duration::from_millis(tenths * 100);
            if passed.take(30, now).is_ok() {
                at.push(now);
            }
        }
        for (i, from) in at.iter().enumerate() {
            let within = |seconds| {
                at.iter().skip(i).filter(|now| **now < *from + Duration::from_secs(seconds)).count()
            };
            assert!(within(60) <= 5 && within(10) <= 3, "{from:?}");
        }
        assert!(at.len() >= 45, "{}", at.len());
        // One that is too large for the quota never passes, and one that was refused counts for nothing.
        assert_eq!(passed.take(101, Duration::from_secs(10_000)), Err(Refusal::Quota));
        assert_eq!(passed.take(100, Duration::from_secs(10_000)), Ok(()));
    }

    #[test]
    fn outside_its_hours_nothing_passes() {
        let hours = Some(Hours { from: 480, until: 1_080 });
        let at = |hour: u64| Duration::from_secs(20_000 * 86_400 + hour * 3_600);
        assert_eq!(
            [open(hours, at(7)), open(hours, at(8)), open(hours, at(18)), open(None, at(7))],
            [Err(Refusal::Hours), Ok(()), Err(Refusal::Hours), Ok(())]
        );
    }
}
