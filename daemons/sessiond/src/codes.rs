//! Codes of a second factor: TOTP (RFC 6238) by HMAC-SHA-1, six digits, steps of 30 seconds, as every telephone's program has it.
//!
//! `second-factors/USER` has one line, `totp` and the seed in base32 (RFC 4648 6); `levee user totp` writes it.

use data_encoding::BASE32_NOPAD;
use ring::hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY, Key, sign};
use std::time::{SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// Seconds of a step (RFC 6238 4.1: X).
const STEP: u64 = 30;
/// Codes are below it: six digits.
const CODES: u32 = 1_000_000;
/// A clock may be so many steps away (RFC 6238 5.2).
const AWAY: u64 = 1;
/// The most bytes that are taken of what was typed.
const MOST_TYPED: usize = 16;

/// The seed in a file's text; `None` if it is none.
pub fn seed(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let encoded = text.trim_end().strip_prefix("totp ")?;
    // RFC 4226 4, R6: at least 128 bits.
    BASE32_NOPAD.decode(encoded.as_bytes()).ok().map(Zeroizing::new).filter(|seed| seed.len() >= 16)
}

/// The step of now.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / STEP
}

/// The last of the steps around `now` whose code was typed. The last, for whoever takes a code once takes none before its step either.
pub fn step(seed: &[u8], typed: &[u8], now: u64) -> Option<u64> {
    let typed = digits(typed);
    let key = Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, seed);
    let mut found = None;
    // Each of them is worked out, whatever was found.
    for step in now.saturating_sub(AWAY)..=now.saturating_add(AWAY) {
        if typed == Some(code(&key, step)) {
            found = Some(step);
        }
    }
    found
}

/// Six digits; spaces between them count for nothing.
fn digits(typed: &[u8]) -> Option<u32> {
    let mut number = 0u32;
    let mut count = 0;
    for byte in typed.iter().take(MOST_TYPED).filter(|byte| **byte != b' ') {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        number = number.checked_mul(10)?.checked_add(u32::from(digit))?;
        count += 1;
    }
    (count == 6 && typed.len() <= MOST_TYPED).then_some(number)
}

/// RFC 4226 5.3, with the step as the counter.
fn code(key: &Key, step: u64) -> u32 {
    let tag = sign(key, &step.to_be_bytes());
    let bytes = tag.as_ref();
    let at = bytes.last().map_or(0, |last| usize::from(last & 0xf));
    let chosen = bytes.get(at..at + 4).and_then(|four| <[u8; 4]>::try_from(four).ok()).unwrap_or_default();
    (u32::from_be_bytes(chosen) & 0x7fff_ffff) % CODES
}

/// The code of a step, as it is typed.
#[cfg(test)]
pub(crate) fn good(seed: &[u8], step: u64) -> String {
    format!("{:06}", code(&Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, seed), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6238 appendix B, SHA-1, the last six of its eight digits.
    const VECTORS: [(u64, &str); 6] = [
        (59, "287082"),
        (1_111_111_109, "081804"),
        (1_111_111_111, "050471"),
        (1_234_567_890, "005924"),
        (2_000_000_000, "279037"),
        (20_000_000_000, "353130"),
    ];
    const SEED: &[u8] = b"12345678901234567890";

    #[test]
    fn codes_are_those_of_rfc_6238() {
        for (time, code) in VECTORS {
            assert_eq!(step(SEED, code.as_bytes(), time / STEP), Some(time / STEP), "{code}");
        }
    }

    #[test]
    fn a_code_is_good_one_step_early_and_late_and_no_longer() {
        let (time, code) = VECTORS[3];
        let at = |now| step(SEED, code.as_bytes(), now);
        let of = time / STEP;
        assert_eq!(
            [at(of - 2), at(of - 1), at(of), at(of + 1), at(of + 2)],
            [None, Some(of), Some(of), Some(of), None]
        );
        assert_eq!(step(b"another seed of 20 by", code.as_bytes(), of), None);
    }

    #[test]
    fn nothing_but_six_digits_is_a_code() {
        assert_eq!(digits(b"005924"), Some(5924));
        assert_eq!(digits(b" 005 924 "), Some(5924));
        // Of sixteen that were typed all are looked at, and of more none.
        assert_eq!(digits(b"0 0 5 9 2 4     "), Some(5924));
        assert_eq!(digits(b"0 0 5 9 2 4      "), None);
        for wrong in [
            "",
            "5924",
            "0059240",
            "00592a",
            "-05924",
            "005924\n",
            "99999999999999999999",
            "           005924",
        ] {
            assert_eq!(digits(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_seed_is_base32_of_at_least_128_bits() {
        assert_eq!(seed("totp GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ\n").unwrap().as_slice(), SEED);
        // Sixteen octets, and one fewer.
        assert_eq!(seed("totp GEZDGNBVGY3TQOJQGEZDGNBVGY").unwrap().len(), 16);
        assert!(seed("totp GEZDGNBVGY3TQOJQGEZDGNBV").is_none());
        for wrong in [
            "",
            "totp ",
            "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ",
            "totp GEZDGNBVGY3TQOJQ",
            "totp gezdgnbvgy3tqojqgezdgnbvgy3tqojq",
        ] {
            assert!(seed(wrong).is_none(), "{wrong}");
        }
    }
    #[test]
    fn a_step_is_thirty_seconds_of_the_clock() {
        let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let (before, step, after) = (seconds(), now(), seconds());
        assert!((before / 30..=after / 30).contains(&step), "{before} {step} {after}");
    }
}
