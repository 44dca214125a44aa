//! What may pass a guard, whatever its filter says: the schema, the time of day, and how much in what time.
//!
//! It may not read a clock or a file: time is an argument. Begin reading with `lib.rs`.
#![forbid(unsafe_code)]

use jsonschema::{PatternOptions, Validator};
use levee_policy::site::{Hours, Quota, Refusal};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// Octets that the program of one of a schema's patterns may have.
const PATTERN: usize = 1 << 20;
/// The draft of JSON Schema that is read.
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

/// A JSON Schema that what passes must fit.
#[derive(Debug)]
pub struct Schema(Validator);

impl Schema {
    /// Reads a schema, of draft 2020-12. It refers to nothing outside itself; its patterns are matched in time linear in the text. JSON Schema takes
    /// a word that it does not know for a remark, so that a bound which is misspelled would be none: here that is no schema. `format` is held, too.
    ///
    /// # Errors
    /// It is no JSON, or no schema, or has a word that no schema has, or refers to another document.
    pub fn new(text: &str) -> Result<Self, String> {
        let schema: Value = serde_json::from_str(text).map_err(|e| format!("the schema is no JSON: {e}"))?;
        let none = |why: &dyn std::fmt::Display| format!("the schema is none: {why}");
        if schema.get("$schema").is_some_and(|draft| draft != DRAFT) {
            return Err(none(&format!("leave out `$schema`, or write {DRAFT}")));
        }
        // As the draft's own schema of schemas, but closed, at every depth (its `$dynamicRef` comes back to this one).
        let closed = json!({
            "$schema": DRAFT, "$id": "levee:schema", "$dynamicAnchor": "meta", "$ref": DRAFT,
            "unevaluatedProperties": false,
        });
        jsonschema::validator_for(&closed)
            .map_err(|why| none(&why))?
            .validate(&schema)
            .map_err(|why| none(&format!("{why} (at {:?})", why.instance_path().as_str())))?;
        let patterns = PatternOptions::regex().size_limit(PATTERN).dfa_size_limit(PATTERN);
        let options = jsonschema::options()
            .with_pattern_options(patterns)
            .should_validate_formats(true)
            .should_ignore_unknown_formats(false);
        options.build(&schema).map(Self).map_err(|why| none(&why))
    }

    /// What passes of this message: the same value, as levee writes it; nothing if it is no JSON, or does not fit. Spaces, the order of
    /// keys, a key that is there twice, how a number is written and the like do not pass: the reader sees what was checked, and no more.
    pub fn rewrite(&self, message: &[u8]) -> Option<Vec<u8>> {
        let mut value: Value = serde_json::from_slice(message).ok()?;
        spell(&mut value);
        if !self.0.is_valid(&value) {
            return None;
        }
        serde_json::to_vec(&value).ok()
    }
}

/// The first whole number that no signed integer of 64 bits holds.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// Gives each number one form: 7, 7.0 and 70e-1 are one to a schema, as are 0 and -0.0. A whole one is an integer where one can hold it.
fn spell(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|float| number.is_f64() && float.fract() == 0.0);
            // In 64 bits it has but one integer that is the same, and none beyond. It is not written out: 300 digits take long.
            let integer = whole.and_then(|float| match float {
                float if (-TWO_TO_63..TWO_TO_63).contains(&float) => Some((float as i64).into()),
                float if (0.0..2.0 * TWO_TO_63).contains(&float) => Some((float as u64).into()),
                _ => None,
            });
            if let Some(integer) = integer {
                *number = integer;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(spell),
        Value::Object(entries) => entries.values_mut().for_each(spell),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
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
        if !self.fits(octets, now) {
            return Err(Refusal::Quota);
        }
        self.all.push_back((now, octets));
        Ok(())
    }

    fn fits(&self, octets: u64, now: Duration) -> bool {
        let within = |quota: Quota| {
            self.all.iter().rev().take_while(move |(at, _)| now.saturating_sub(*at) < quota.within)
        };
        let messages = u64::try_from(within(self.messages).count()).unwrap_or(u64::MAX);
        let sum = within(self.octets).fold(octets, |sum, (_, octets)| sum.saturating_add(*octets));
        messages < self.messages.most && sum <= self.octets.most
    }

    /// When a message of so many octets may pass, at the earliest, if nothing passes before; `None`: never, it is larger than all that may.
    pub fn next(&self, octets: usize, now: Duration) -> Option<Duration> {
        let octets = u64::try_from(octets).unwrap_or(u64::MAX);
        let ends = [self.messages.within, self.octets.within];
        let mut moments: Vec<Duration> = (self.all.iter())
            .flat_map(|(at, _)| ends.map(|within| at.saturating_add(within)))
            .filter(|moment| *moment > now)
            .chain([now])
            .collect();
        moments.sort_unstable();
        // Once it fits it fits for good.
        let first = moments.partition_point(|moment| !self.fits(octets, *moment));
        moments.get(first).copied()
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
    fn a_number_passes_in_one_spelling_alone() {
        let schema = Schema::new(SCHEMA).unwrap();
        let seven: &[u8] = br#"{"depth":7}"#;
        for spelling in ["7", "7.0", "70e-1", "0.7e1", "7.000"] {
            let message = format!(r#"{{"depth":{spelling}}}"#);
            assert_eq!(schema.rewrite(message.as_bytes()).as_deref(), Some(seven), "{spelling}");
        }
        for spelling in ["0", "-0", "0.0", "-0.0", "-0e9", "0e-7"] {
            let message = format!(r#"{{"depth":{spelling}}}"#);
            let passed = schema.rewrite(message.as_bytes());
            assert_eq!(passed.as_deref(), Some(&br#"{"depth":0}"#[..]), "{spelling}");
        }
        let any = Schema::new("{}").unwrap();
        let written = |message: &str| String::from_utf8(any.rewrite(message.as_bytes()).unwrap()).unwrap();
        for alike in [
            &["100000000000000000", "1e17", "100000000000000000.0", "0.1e18"][..],
            &["18446744073709549568", "18446744073709549568.0", "1.8446744073709549568e19"],
            &["-9223372036854775808", "-9223372036854775808.0", "-9.223372036854775808e18"],
            &["18446744073709551616", "1.8446744073709551616e19", "18446744073709551616.0"],
            &["1e100", "10e99", "1.0e100"],
            &["0.1", "1e-1", "0.10"],
        ] {
            let in_depth = |number: &&str| written(&format!("[[{{\"a\":{number}}}]]"));
            let first = alike.first().map(in_depth);
            assert!(alike.iter().map(in_depth).all(|all| Some(all) == first), "{alike:?}");
        }
        assert_eq!(written("[1.5,-7.0,18446744073709551615]"), "[1.5,-7,18446744073709551615]");
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
            // Bounds that would be none, if they were taken for remarks.
            r#"{"maxLenght": 3}"#,
            r#"{"properties": {"at": {"items": {"not": {"additionalProperites": false}}}}}"#,
            r##"{"$defs": {"at": {"enumeration": [1]}}, "$ref": "#/$defs/at"}"##,
            r#"{"format": "dat"}"#,
            r##"{"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMinimum": true}"##,
            // Beyond the octets that a pattern's program may have.
            r#"{"pattern": "^(\\w{100}){1000}$"}"#,
        ] {
            assert!(Schema::new(wrong).is_err(), "{wrong}");
        }
        for sound in [
            SCHEMA,
            r##"{"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A depth", "$comment": "metres", "type": "object",
                "$defs": {"depth": {"description": "below the keel", "type": "number", "multipleOf": 0.5}}, "unevaluatedProperties": false,
                "properties": {"depth": {"$ref": "#/$defs/depth"}}, "patternProperties": {"^at": {"type": "string", "format": "date"}}}"##,
        ] {
            assert!(Schema::new(sound).is_ok(), "{:?}", Schema::new(sound).err());
        }
    }

    #[test]
    fn a_format_is_a_bound() {
        let schema = Schema::new(r#"{"type": "string", "format": "date"}"#).unwrap();
        assert!(schema.rewrite(br#""2026-11-24""#).is_some() && schema.rewrite(br#""tide table""#).is_none());
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
    fn a_pattern_of_a_thousand_letters_is_within_what_a_pattern_may_have() {
        let schema = Schema::new(r#"{"pattern": "^([a-z]+-[0-9]{2,9}){1,40}$"}"#).unwrap();
        assert_eq!(schema.rewrite(br#""tide-07""#).as_deref(), Some(&br#""tide-07""#[..]));
        assert_eq!(schema.rewrite(br#""tide-0""#), None);
    }

    #[test]
    fn what_passed_counts_for_as_long_as_the_quota_says_and_no_longer() {
        let quota = Quota { most: 1, within: Duration::from_secs(10) };
        let long = Quota { most: 9, within: Duration::from_secs(60) };
        let mut passed = Passed::new(quota, long);
        let at = Duration::from_millis;
        assert_eq!(
            [0, 9_999, 10_000, 19_999, 20_000].map(|now| passed.take(1, at(now)).is_ok()),
            [true, false, true, false, true]
        );
    }

    #[test]
    fn it_is_said_when_a_message_may_pass_and_it_may_then_and_no_sooner() {
        let quota = |most, seconds| Quota { most, within: Duration::from_secs(seconds) };
        let mut passed = Passed::new(quota(3, 60), quota(100, 10));
        let (mut now, mut waited) = (Duration::ZERO, 0);
        for octets in [60, 60, 1, 40, 100, 100, 7, 7, 7, 7, 93].repeat(9) {
            let next = passed.next(octets, now).unwrap();
            assert!(next >= now);
            if let Some(before) = next.checked_sub(Duration::from_millis(1)).filter(|before| *before >= now) {
                assert_eq!(passed.take(octets, before), Err(Refusal::Quota), "{octets} at {before:?}");
                waited += 1;
            }
            assert_eq!(passed.take(octets, next), Ok(()), "{octets} at {next:?}");
            now = next;
        }
        assert!(waited > 30, "{waited}");
        assert_eq!(passed.next(101, now), None);
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
