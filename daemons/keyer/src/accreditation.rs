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

#[cfg(test)]
mod tests {
    use super::*;

    /// A UTF8String of so many octets, its length in so many octets behind the first where it has more than one.
    fn string(length: usize, octets: usize) -> Vec<u8> {
        let long = (length as u32).to_be_bytes();
        let length = match octets {
            0 => vec![length as u8],
            octets => [&[0x80 | octets as u8][..], &long[4 - octets..]].concat(),
        };
        [&[0x0c][..], &length].concat()
    }

    fn with_text(length: usize, octets: usize) -> Vec<u8> {
        [string(length, octets), vec![b'x'; length]].concat()
    }

    /// X.690 10.1: a length has the shortest form, and one text has one encoding.
    #[test]
    fn a_text_of_up_to_1024_octets_is_read_in_the_shortest_form_of_its_length_alone() {
        for length in 0..=1_100 {
            let shortest = match length {
                0..=0x7f => 0,
                0x80..=0xff => 1,
                _ => 2,
            };
            for octets in 0..=4 {
                if (octets == 0 && length > 0x7f) || (octets == 1 && length > 0xff) {
                    continue;
                }
                let expected = (octets == shortest && length <= LONGEST).then(|| "x".repeat(length));
                assert_eq!(read(&with_text(length, octets)), expected, "{length} in {octets}");
            }
        }
    }

    #[test]
    fn what_is_no_whole_text_is_none() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 1_024] {
            let good = with_text(length, usize::from(length > 0x7f) + usize::from(length > 0xff));
            assert!(read(&good).is_some());
            assert_eq!(read(&[&good[..], b"x"].concat()), None, "{length} and one more");
            assert_eq!(read(&good[..good.len() - 1]), None, "{length} cut short");
            // Another type: an octet string, a printable one.
            for kind in [0x04, 0x13, 0x1e, 0x2c] {
                assert_eq!(read(&[&[kind], &good[1..]].concat()), None, "{kind}");
            }
        }
        assert_eq!(read(&[0x0c, 2, 0xc3, 0xa9]).as_deref(), Some("é"));
        assert_eq!(read(&[0x0c, 1, 0xc3]), None, "half a letter");
        assert_eq!((read(&[]), read(&[0x0c]), read(&[0x0c, 0x80])), (None, None, None));
    }
}
