//! The banner: the session's level, in its colour and with a pattern beside it, over as many rows as that takes.

use levee_ipc::tpe::Status;
use ratatui::style::{Color, Modifier, Style};

/// What leads from a program to the trusted menu.
pub const HINT: &str = "Ctrl-]: trusted menu";

/// What is in the rows above everything else.
pub struct Banner {
    /// How they look.
    pub style: Style,
    /// What they say: nothing of it is cut.
    pub rows: Vec<String>,
}

/// A session's colour as the terminal names it, one to be read on it, and a pattern for whom colours do not differ.
fn look(colour: Option<&str>) -> (Color, Color, &'static str) {
    match colour {
        Some("red") => (Color::Red, Color::White, "####"),
        Some("green") => (Color::Green, Color::Black, "===="),
        Some("yellow") => (Color::Yellow, Color::Black, "////"),
        Some("blue") => (Color::Blue, Color::White, "~~~~"),
        Some("magenta") => (Color::Magenta, Color::White, "****"),
        Some("cyan") => (Color::Cyan, Color::Black, "::::"),
        Some("orange") => (Color::Indexed(208), Color::Black, "%%%%"),
        Some("white") => (Color::White, Color::Black, "++++"),
        _ => (Color::White, Color::Black, "----"),
    }
}

/// Whether the person wants no colours (no-color.org).
fn is_plain() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

fn style(background: Color, foreground: Color, plain: bool) -> Style {
    let style = Style::default().add_modifier(Modifier::BOLD);
    if plain { style.add_modifier(Modifier::REVERSED) } else { style.bg(background).fg(foreground) }
}

/// The banner of a terminal so wide; what there is to press is in its last row where there is room, else in rows of its own.
pub fn of(status: Option<&Status>, hint: bool, width: u16) -> Banner {
    let plain = is_plain();
    let idle = style(Color::DarkGray, Color::White, plain);
    let (style, text) = match status {
        None => (idle, "NO AGENT".to_owned()),
        Some(Status { session: Some(session), user, connected, locked, notice, .. }) => {
            let (background, foreground, pattern) = look(session.colour.as_deref());
            let user = user.as_ref().map_or("", |user| user.as_str());
            let path = if *connected { "" } else { "  (trusted path down)" };
            let locked = if *locked { "  LOCKED" } else { "" };
            let notice = notice.as_ref().map_or_else(String::new, |notice| format!("  {notice}"));
            (
                style(background, foreground, plain),
                format!("{pattern} {}  {user}{locked}{path}{notice}", session.label),
            )
        }
        Some(Status { user, .. }) => {
            let who = user.as_ref();
            let who = who.map_or_else(|| "nobody is signed on".into(), |user| format!("{user} is signed on"));
            (idle, format!("NO SESSION  {who}"))
        }
    };
    let room = usize::from(width).saturating_sub(2).max(1);
    let mut rows = wrapped(&text, room);
    // The rows are as many with the hint as without it, so that a program below never moves.
    let last = rows.last().map_or(0, |row| row.chars().count());
    let shown = if hint { HINT } else { "" };
    let right = room.saturating_sub(last);
    match (right >= HINT.len() + 2, rows.last_mut()) {
        (true, Some(row)) => row.push_str(&format!("{shown:>right$}")),
        _ => rows.extend(wrapped(HINT, room).into_iter().map(|row| if hint { row } else { String::new() })),
    }
    Banner { style, rows: rows.into_iter().map(|row| format!(" {row} ")).collect() }
}

/// The text in rows of at most so many characters, broken behind spaces, commas and slashes where that can be.
pub fn wrapped(text: &str, room: usize) -> Vec<String> {
    let room = room.max(1);
    let (mut rows, mut row) = (Vec::new(), String::new());
    for piece in text.split_inclusive([' ', ',', '/']) {
        let length = piece.trim_end().chars().count();
        if !row.is_empty() && row.chars().count() + length > room {
            rows.push(std::mem::take(&mut row));
        }
        for character in piece.chars() {
            if row.chars().count() >= room {
                if character == ' ' {
                    continue;
                }
                rows.push(std::mem::take(&mut row));
            }
            if character != ' ' || !row.is_empty() {
                row.push(character);
            }
        }
    }
    if !row.is_empty() || rows.is_empty() {
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_ipc::tpe::Session;
    use levee_policy::LabelName;

    #[test]
    fn a_marking_is_whole_at_every_width() {
        let label = "TOP-SECRET//ALPHA,BRAVO,CHARLIE,DELTA,ECHO,FOXTROT,GOLF,HOTEL,INDIA,JULIETT,A-VERY-LONG-NAME-OF-A-CATEGORY";
        let session = Session {
            id: "1".into(),
            label: LabelName::new(label).unwrap(),
            colour: Some("red".into()),
            inner: vec![],
            services: vec![],
            reach: vec![],
            more: 0,
            protections: Vec::new(),
            costs: Err(levee_prices::Unpriced::Absent),
        };
        let status = Status {
            connected: true,
            user: Some("ada".parse().unwrap()),
            labels: vec![],
            lattice: None,
            session: Some(session),
            locked: false,
            ended: None,
            notice: None,
        };
        for width in 25..=300 {
            let with = of(Some(&status), true, width);
            assert!(with.rows.iter().all(|row| row.chars().count() <= usize::from(width)), "{width}");
            let whole: String = with.rows.concat().chars().filter(|character| *character != ' ').collect();
            assert!(
                whole.contains(label) && whole.contains("####") && whole.contains("Ctrl-]:"),
                "{width} {whole}"
            );
            assert_eq!(with.rows.len(), of(Some(&status), false, width).rows.len(), "{width}");
        }
        assert_eq!(of(Some(&status), true, 300).rows.len(), 1);
    }

    #[test]
    fn no_two_colours_have_one_pattern() {
        let colours = ["red", "green", "yellow", "blue", "magenta", "cyan", "orange", "white", "none"];
        let patterns: std::collections::BTreeSet<&str> =
            colours.iter().map(|colour| look(Some(colour)).2).collect();
        assert_eq!(patterns.len(), colours.len());
    }

    #[test]
    fn text_is_broken_between_words_and_inside_of_one_that_is_longer_than_a_row() {
        assert_eq!(wrapped("one two, three", 8), ["one two,", "three"]);
        assert_eq!(wrapped("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrapped("", 3), [""]);
    }
}
