//! A message as text: between two lines that say what it is, in hexadecimal digits. So it can stand behind certificates in a file.

use serde::{Serialize, de::DeserializeOwned};
use std::fmt::Write as _;

/// The most bytes of one.
const MAX: usize = 1024;

fn lines(kind: &str) -> (String, String) {
    (format!("-----BEGIN {kind}-----"), format!("-----END {kind}-----"))
}

/// The text; `None` if it cannot be written.
pub(crate) fn write(kind: &str, what: &impl Serialize) -> Option<String> {
    let bytes = postcard::to_allocvec(what).ok().filter(|bytes| bytes.len() <= MAX)?;
    let (begin, end) = lines(kind);
    let mut text = format!("{begin}\n");
    for line in bytes.chunks(32) {
        for byte in line {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    }
    text.push_str(&end);
    text.push('\n');
    Some(text)
}

/// The one in a text, to the last octet.
pub(crate) fn read<T: DeserializeOwned>(kind: &str, text: &[u8]) -> Option<T> {
    let (begin, end) = lines(kind);
    let (_, rest) = std::str::from_utf8(text).ok()?.split_once(&begin)?;
    let (digits, _) = rest.split_once(&end)?;
    let digits: Vec<u8> = digits.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    if digits.len() > 2 * MAX || !digits.len().is_multiple_of(2) {
        return None;
    }
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Vec<u8> = digits.chunks(2).map(byte).collect::<Option<_>>()?;
    let (what, rest) = postcard::take_from_bytes(&bytes).ok()?;
    rest.is_empty().then_some(what)
}
