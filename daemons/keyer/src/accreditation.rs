//! A host's accreditation as its certificate has it: `docs/accreditation.md`.

/// The longest accreditation that is passed on, in bytes.
const LONGEST: usize = 1_024;

/// The text of a DER UTF8String (X.690 8.23), whose length has the shortest form; `None` if it is none, or too long.
pub fn read(value: &[u8]) -> Option<String> {
    let text = match value {
        [0x0c, length @ 0..=0x7f, text @ ..] if text.len() == usize::from(*length) => text,
        [0x0c, 0x81, length @ 0x80..=0xff, text @ ..] if text.len() == usize::from(*length) => text,
        [0x0c, 0x82, high @ 1..=0xff, low, text @ ..]
            if text.len() == usize::from(u16::from_be_bytes([*high, *low])) =>
        {
            text
        }
        _ => return None,
    };
    std::str::from_utf8(text).ok().filter(|text| text.len() <= LONGEST).map(ToOwned::to_owned)
}
