//! What may stand in a log, or on a terminal.

use std::fmt::Write as _;

/// Adds `bytes` to `line` so that no terminal and no reader takes them for anything but text: what is not printable (control and
/// format characters, escape sequences, bytes that are not UTF-8) is written as `\x1b` or `\u{202e}`, a backslash as two.
pub fn visible(bytes: &[u8], line: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                // As they are; `escape_debug` would mark them.
                '"' | '\'' | ' '..='!' | '#'..='&' | '('..='[' | ']'..='~' => line.push(c),
                '\\' => line.push_str("\\\\"),
                c if c.is_ascii() => hex(c as u8, line),
                // Letters as they are; what is not printable, and what would stand on the character before, as `\u{…}`.
                c => line.extend(c.escape_debug()),
            }
        }
        chunk.invalid().iter().for_each(|byte| hex(*byte, line));
    }
}

/// Whether a character could move a terminal's cursor or change what is read: a control character, one that shows text in another order than it
/// stands, ends a line, or is not seen (Unicode's Bidi_Control, its format characters, and letters that are blank).
pub fn steers(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(char, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
        || matches!(char, '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}')
        || matches!(char, '\u{e0000}'..='\u{e007f}')
}

fn hex(byte: u8, line: &mut String) {
    // A String takes all that is written to it.
    let _ = write!(line, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> String {
        let mut line = String::new();
        visible(bytes, &mut line);
        line
    }

    #[test]
    fn what_people_write_stays_as_it_is() {
        for text in ["GET /a?b='c' \"200\"", "größer: 日本語", "[error] {1} ~"] {
            assert_eq!(shown(text.as_bytes()), text);
        }
    }

    #[test]
    fn no_byte_that_a_terminal_obeys_comes_through() {
        assert_eq!(shown(b"\x1b]52;c;cGFzcw==\x07"), "\\x1b]52;c;cGFzcw==\\x07");
        assert_eq!(shown(b"a\rb\tc\0\x7f"), "a\\x0db\\x09c\\x00\\x7f");
        assert_eq!(shown(b"\x9b31m \xff"), "\\x9b31m \\xff");
        // C1 controls, direction overrides, line separators and what hides itself, as UTF-8.
        for c in
            ['\u{9b}', '\u{202e}', '\u{2066}', '\u{2028}', '\u{200b}', '\u{feff}', '\u{e0041}', '\u{301}']
        {
            assert_eq!(shown(c.to_string().as_bytes()), format!("\\u{{{:x}}}", c as u32));
        }
    }

    #[test]
    fn whatever_the_bytes_are_the_line_is_printable_and_tells_them_apart() {
        let mut seen = std::collections::BTreeSet::new();
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                let line = shown(&[a, b]);
                assert!(line.chars().all(|c| !c.is_control()), "{line:?}");
                assert!(seen.insert(line.clone()), "{line} stands for two things");
            }
        }
        assert_ne!(shown(b"\\x1b"), shown(b"\x1b"));
    }
}
