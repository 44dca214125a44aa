//! What a key sends to a program's terminal: xterm's codes.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The attention key, Ctrl-]: no program ever sees it.
pub fn is_attention(key: &KeyEvent) -> bool {
    // As a byte it is 0x1d, which crossterm shows as Ctrl-5.
    key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char(']' | '5'))
}

/// The bytes of a key; `application` is the terminal's cursor key mode (DECCKM).
pub fn encode(key: &KeyEvent, application: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    if key.modifiers.contains(KeyModifiers::ALT) {
        bytes.push(0x1b);
    }
    let cursor = |letter: u8| vec![0x1b, if application { b'O' } else { b'[' }, letter];
    let tilde = |number: u8| format!("\x1b[{number}~").into_bytes();
    match key.code {
        KeyCode::Char(character) if key.modifiers.contains(KeyModifiers::CONTROL) => {
            bytes.push(match character {
                // crossterm's names of 0x1c to 0x1f.
                '4'..='7' => character as u8 - b'4' + 0x1c,
                ' ' => 0,
                other if other.is_ascii() => other.to_ascii_uppercase() as u8 & 0x1f,
                _ => return Vec::new(),
            });
        }
        KeyCode::Char(character) => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        KeyCode::Enter => bytes.push(b'\r'),
        KeyCode::Tab => bytes.push(b'\t'),
        KeyCode::BackTab => bytes.extend_from_slice(b"\x1b[Z"),
        KeyCode::Backspace => bytes.push(0x7f),
        KeyCode::Esc => bytes.push(0x1b),
        KeyCode::Up => bytes.extend(cursor(b'A')),
        KeyCode::Down => bytes.extend(cursor(b'B')),
        KeyCode::Right => bytes.extend(cursor(b'C')),
        KeyCode::Left => bytes.extend(cursor(b'D')),
        KeyCode::Home => bytes.extend(cursor(b'H')),
        KeyCode::End => bytes.extend(cursor(b'F')),
        KeyCode::Insert => bytes.extend(tilde(2)),
        KeyCode::Delete => bytes.extend(tilde(3)),
        KeyCode::PageUp => bytes.extend(tilde(5)),
        KeyCode::PageDown => bytes.extend(tilde(6)),
        KeyCode::F(number @ 1..=4) => bytes.extend([0x1b, b'O', b'P' + number - 1]),
        KeyCode::F(number @ 5..=12) => {
            let codes = [15, 17, 18, 19, 20, 21, 23, 24];
            bytes.extend(codes.get(usize::from(number - 5)).map(|&code| tilde(code)).unwrap_or_default());
        }
        _ => return Vec::new(),
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode, modifiers: KeyModifiers) -> KeyEvent {
        KeyEvent::new(code, modifiers)
    }

    #[test]
    fn keys_send_what_xterm_sends() {
        let none = KeyModifiers::NONE;
        assert_eq!(encode(&key(KeyCode::Char('é'), none), false), "é".as_bytes());
        assert_eq!(encode(&key(KeyCode::Char('c'), KeyModifiers::CONTROL), false), [3]);
        assert_eq!(encode(&key(KeyCode::Char('4'), KeyModifiers::CONTROL), false), [0x1c]);
        assert_eq!(encode(&key(KeyCode::Char('x'), KeyModifiers::ALT), false), [0x1b, b'x']);
        assert_eq!(encode(&key(KeyCode::Up, none), false), b"\x1b[A");
        assert_eq!(encode(&key(KeyCode::Up, none), true), b"\x1bOA");
        assert_eq!(encode(&key(KeyCode::F(1), none), false), b"\x1bOP");
        assert_eq!(encode(&key(KeyCode::F(12), none), false), b"\x1b[24~");
        assert_eq!(encode(&key(KeyCode::Delete, none), false), b"\x1b[3~");
    }

    #[test]
    fn the_attention_key_is_known_in_both_of_its_names() {
        for name in [']', '5'] {
            assert!(is_attention(&key(KeyCode::Char(name), KeyModifiers::CONTROL)));
        }
        assert!(!is_attention(&key(KeyCode::Char(']'), KeyModifiers::NONE)));
    }
}
