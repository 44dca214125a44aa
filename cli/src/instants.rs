//! Instants, as they are typed and shown.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// RFC 3339 with milliseconds, always as wide.
pub fn instant(milliseconds: u64) -> String {
    let Ok(time) = OffsetDateTime::from_unix_timestamp_nanos(i128::from(milliseconds) * 1_000_000) else {
        return milliseconds.to_string();
    };
    let (date, clock) = (time.date(), time.time());
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        clock.hour(),
        clock.minute(),
        clock.second(),
        clock.millisecond()
    )
}

/// Milliseconds since 1970, of a time or a time ago.
pub fn since(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3_600),
        "d" => Some(86_400),
        _ => None,
    };
    if let (Some(factor), Ok(number)) = (factor, number.parse::<u64>()) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|e| e.to_string())?;
        let then = now.saturating_sub(Duration::from_secs(number.saturating_mul(factor)));
        return u64::try_from(then.as_millis()).map_err(|e| e.to_string());
    }
    let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| {
        "write a time ago such as 90s, 10m, 2h, 7d, or a time such as 2026-01-31T12:00:00Z".to_owned()
    })?;
    u64::try_from(time.unix_timestamp_nanos() / 1_000_000).map_err(|_| "before 1970".to_owned())
}

/// Whether a word is an instant as logs have it: `2026-01-31T12:00:00.000Z`.
pub fn is_instant(word: &str) -> bool {
    let form = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        10 => byte == b'T',
        13 | 16 => byte == b':',
        19 => byte == b'.',
        23 => byte == b'Z',
        _ => byte.is_ascii_digit(),
    };
    word.len() == 24 && word.bytes().enumerate().all(form)
}
