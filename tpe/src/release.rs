//! `levee-tpe release`: what it is given, and how messages are shown. Their octets are text on a terminal, whatever they are.

use levee_ipc::client::{Consent, Release, ReleaseId, Released};
use levee_ipc::tpe::Command;
use levee_ipc::visible;
use levee_policy::audit::hex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::str::FromStr;

/// SHA-256, as a person gives it: 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl FromStr for Digest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "it has 64 hexadecimal digits: `levee-tpe release NUMBER` shows them";
        let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
        let digits = digits.ok_or(WRONG)?;
        let octets = digits.chunks_exact(2).filter_map(|pair| match pair {
            [high, low] => u8::try_from(high * 16 + low).ok(),
            _ => None,
        });
        let octets: Vec<u8> = octets.collect();
        if digits.len() != 64 {
            return Err(WRONG);
        }
        octets.try_into().map(Self).map_err(|_| WRONG)
    }
}

/// What the agent is asked for.
pub fn command(number: Option<u64>, pass: Option<Digest>, refuse: Option<Digest>) -> Command {
    let Some(id) = number.map(ReleaseId) else { return Command::Releases };
    match (pass, refuse) {
        (Some(Digest(digest)), _) => Command::Release { id, digest, consent: Consent::Pass },
        (None, Some(Digest(digest))) => Command::Release { id, digest, consent: Consent::Refuse },
        (None, None) => Command::ShowRelease(id),
    }
}

/// Messages that wait, as JSON.
pub fn list_json(waiting: &[Release]) -> Value {
    let one = |release: &Release| {
        json!({
            "number": release.id,
            "guard": release.channel,
            "to": release.to,
            "octets": release.octets,
            "sha256": hex(&release.digest),
            "left_ms": u64::try_from(release.left.as_millis()).unwrap_or(u64::MAX),
            "released_by": release.by,
        })
    };
    json!({ "messages": waiting.iter().map(one).collect::<Vec<_>>() })
}

/// The same, one a line.
pub fn list_text(waiting: &[Release]) -> String {
    let one = |release: &Release| {
        let Release { id: ReleaseId(id), channel, to, octets, left, by, .. } = release;
        let by: Vec<String> = by.iter().map(ToString::to_string).collect();
        let by = if by.is_empty() { "nobody yet".into() } else { by.join(" ") };
        format!(
            "{id}: {octets} octets at guard {channel} to {to}, for {} s; released by {by}",
            left.as_secs()
        )
    };
    match waiting {
        [] => "no message waits for you".into(),
        some => some.iter().map(one).collect::<Vec<_>>().join("\n"),
    }
}

/// A message, as JSON.
pub fn message_json(content: &[u8]) -> Value {
    let mut text = String::new();
    visible(content, &mut text);
    json!({ "octets": content.len(), "sha256": hex(&Sha256::digest(content)), "content": text })
}

/// The same, for a terminal of so many columns: each of its lines behind a bar, and what does not fit in a row behind a colon in the next, so that no row is
/// taken for what levee says: a terminal would begin one itself, with what the message has there. Two messages that differ are to look different
/// to who releases them: spaces at the end of a line, which nobody would see, are written out. Letters that look alike (a Cyrillic
/// and a Latin one) cannot be told apart so; that there are letters beyond ASCII is said.
pub fn message_text(content: &[u8], columns: usize) -> String {
    let (mut text, mut line) = (String::new(), String::new());
    // Two for the mark, and the last is left free: some terminals go to the next row when it is written.
    let room = columns.saturating_sub(3).max(2);
    for octets in content.split(|octet| *octet == b'\n') {
        line.clear();
        let spaces = octets.iter().rev().take_while(|octet| **octet == b' ').count();
        visible(octets.get(..octets.len().saturating_sub(spaces)).unwrap_or(octets), &mut line);
        line.push_str(&"\\x20".repeat(spaces));
        text.push_str("| ");
        let mut left = room;
        for c in line.chars() {
            // No character has more than two.
            let wide = if c.is_ascii() { 1 } else { 2 };
            if wide > left {
                text.push_str("\n: ");
                left = room;
            }
            text.push(c);
            left -= wide;
        }
        text.push('\n');
    }
    let letters =
        content.utf8_chunks().flat_map(|chunk| chunk.valid().chars()).filter(|c| !c.is_ascii()).count();
    if letters > 0 {
        let _ =
            writeln!(text, "{letters} of its characters are beyond ASCII: such a one can look like another");
    }
    let (octets, digest) = (content.len(), hex(&Sha256::digest(content)));
    let _ = write!(text, "{octets} octets, SHA-256 {digest}");
    text
}

/// Columns of the terminal that standard output is; as many as most have, where it does not say.
pub fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    if size == 0 { 80 } else { size }
}

/// Said to who wants to see a message somewhere else.
pub const NO_TERMINAL: &str = "standard output is no terminal: a message is shown on one alone, since what leaves a session for a \
    file or a pipe is recorded, and this would not be";

/// What has become of a message, in words.
pub fn outcome(released: Released) -> &'static str {
    match released {
        Released::Waits => "released by you: it waits for another person",
        Released::Passes => {
            "released by two people: it passes within its guard's bounds, once that is recorded"
        }
        Released::Refused => "refused: it does not pass",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_64_hexadecimal_digits_and_nothing_else() {
        let good = "0a".repeat(32);
        assert_eq!(good.parse(), Ok(Digest([10; 32])));
        assert_eq!(good.to_uppercase().parse(), Ok(Digest([10; 32])));
        for wrong in
            ["", "0", &"0a".repeat(31), &"0a".repeat(33), &"0g".repeat(32), &format!("+{}", &good[1..])]
        {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_message_cannot_pass_for_what_levee_says_and_no_octet_of_it_reaches_a_terminal() {
        let text = message_text(b"tide\x1b[2J\nreleased by two people\n", 80);
        assert!(
            text.starts_with("| tide\\x1b[2J\n| released by two people\n| \n32 octets, SHA-256 "),
            "{text}"
        );
        assert!(!text.contains("beyond ASCII"), "{text}");
        let json = message_json(b"\x1b]52;c;x\x07\n").to_string();
        assert!(!json.contains('\u{1b}') && json.contains("\\\\x1b]52"), "{json}");
    }

    #[test]
    fn no_row_of_a_terminal_begins_with_what_a_message_says() {
        let said = "32 octets, SHA-256 .";
        for columns in [1, 20, 80, 200] {
            // Whatever stands before it, ASCII or two columns wide.
            for before in
                (0..columns + 8).map(|n| " ".repeat(n)).chain((0..columns + 8).map(|n| "日".repeat(n)))
            {
                let text = message_text(format!("{before}{said}{before}.\n{said}").as_bytes(), columns);
                let (mut message, own) = text.rsplit_once('\n').unwrap();
                assert!(own.contains(" octets, SHA-256 "));
                if !before.is_ascii() {
                    message = message.rsplit_once('\n').unwrap().0;
                }
                let mut whole = String::new();
                for row in message.lines() {
                    let wide: usize = row.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum();
                    assert!(wide < columns.max(6), "{columns}: {row}");
                    match row.split_at(2) {
                        ("| ", rest) => whole.push_str(&format!("\n{rest}")),
                        (": ", rest) => whole.push_str(rest),
                        (other, _) => panic!("{other}"),
                    }
                }
                assert_eq!(whole, format!("\n{before}{said}{before}.\n{said}"), "nothing is left out");
            }
        }
    }

    #[test]
    fn messages_that_differ_in_what_nobody_would_see_are_shown_differently() {
        let shown =
            |content: &str| message_text(content.as_bytes(), 80).rsplit_once('\n').unwrap().0.to_owned();
        let alike = [
            "tide 7",
            "tide 7 ",
            "tide 7  ",
            "tide\u{a0}7",
            "tide\u{2003}7",
            "tide 7\u{200b}",
            "tide\t7",
            "tide 7\r",
        ];
        for (place, one) in alike.iter().enumerate() {
            for other in &alike[place + 1..] {
                assert_ne!(shown(one), shown(other), "{one:?} and {other:?}");
            }
        }
        // Every line alone, and one of spaces only.
        assert_eq!(shown("a \n  \nb"), "| a\\x20\n| \\x20\\x20\n| b");
        // What is written as it would be shown is not taken for it.
        assert_ne!(shown("a "), shown("a\\x20"));
        // A letter that looks like a Latin one.
        assert_eq!(
            shown("t\u{456}de"),
            "| t\u{456}de\n1 of its characters are beyond ASCII: such a one can look like another"
        );
    }
}
