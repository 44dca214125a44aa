//! What is on the screen: the banner above everything, always; below it the form, a list or the program.

use super::banner::{Banner, wrapped};
use super::parser::{Colour, Look, Span};
use super::{Form, Pane};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Clear, Paragraph};

/// The banner's rows, and what is left.
pub fn split(area: Rect, rows: usize) -> (Rect, Rect) {
    let rows = u16::try_from(rows).unwrap_or(u16::MAX);
    let [banner, rest] = Layout::vertical([Constraint::Length(rows), Constraint::Min(0)]).areas(area);
    (banner, rest)
}

/// Draws the banner.
pub fn banner(frame: &mut Frame<'_>, area: Rect, banner: &Banner) {
    let lines: Vec<Line<'_>> = banner.rows.iter().map(|row| Line::raw(row.as_str())).collect();
    frame.render_widget(Paragraph::new(lines).style(banner.style), area);
}

/// What is below the banner: something, a message, and the keys that there are, in as many rows as they take.
fn parts(frame: &mut Frame<'_>, area: Rect, message: &str, keys: &[&str]) -> Rect {
    frame.render_widget(Clear, area);
    let room = usize::from(area.width).saturating_sub(2);
    // A key and what it does stay together.
    let mut rows: Vec<String> = Vec::new();
    for key in keys {
        match rows.last_mut() {
            Some(row) if row.chars().count() + 3 + key.chars().count() <= room => {
                row.push_str("   ");
                row.push_str(key);
            }
            _ => rows.extend(wrapped(key, room)),
        }
    }
    let said: Vec<String> = if message.is_empty() { vec![] } else { wrapped(message, room) };
    let height = |lines: &[String]| u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let layout = [Constraint::Min(1), Constraint::Length(height(&said)), Constraint::Length(height(&rows))];
    let [body, middle, bottom] = Layout::vertical(layout).areas(area);
    let lines = |rows: Vec<String>| -> Vec<Line<'static>> {
        rows.into_iter().map(|row| Line::raw(format!(" {row}"))).collect()
    };
    frame.render_widget(Paragraph::new(lines(said)), middle);
    let dim = Style::default().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(lines(rows)).style(dim), bottom);
    body
}

/// Draws the login form.
pub fn form(frame: &mut Frame<'_>, area: Rect, form: &Form, message: &str, keys: &[&str]) {
    let body = parts(frame, area, message, keys);
    let (rows, at) = form.shown();
    let mut text = vec![
        Line::raw(""),
        Line::styled("  Sign on", Style::default().add_modifier(Modifier::BOLD)),
        Line::raw(""),
    ];
    let (mut row, mut typed) = (0, 0);
    for (number, (name, value)) in rows.iter().enumerate() {
        let mark = if number == at { ">" } else { " " };
        if number == at {
            (row, typed) = (u16::try_from(text.len()).unwrap_or(u16::MAX), value.chars().count());
        }
        text.push(Line::raw(format!(" {mark} {name:<9} {value}")));
    }
    frame.render_widget(Paragraph::new(Text::from(text)), body);
    let column = u16::try_from(typed).unwrap_or(u16::MAX).saturating_add(13);
    frame.set_cursor_position(Position::new(
        body.x.saturating_add(column).min(body.right().saturating_sub(1)),
        body.y.saturating_add(row).min(body.bottom().saturating_sub(1)),
    ));
}

/// A list of which one is chosen.
pub struct List<'a> {
    /// What it is a list of.
    pub title: &'a str,
    /// What can be chosen.
    pub lines: &'a [String],
    /// Which is.
    pub chosen: usize,
    /// So many at the end are in sight wherever the others are.
    pub pinned: usize,
}

/// Draws a list. Nothing of an entry is cut: it takes as many rows as it needs.
pub fn list(frame: &mut Frame<'_>, area: Rect, list: &List<'_>, message: &str, keys: &[&str]) {
    let body = parts(frame, area, message, keys);
    let room = usize::from(body.width).saturating_sub(4);
    let bold = Style::default().add_modifier(Modifier::BOLD);
    let rows = |(at, line): (usize, &String)| -> Vec<Line<'static>> {
        let on = at == list.chosen;
        let style = if on { Style::default().add_modifier(Modifier::REVERSED) } else { Style::default() };
        let row = |(part, text): (usize, String)| {
            let mark = if on && part == 0 { ">" } else { " " };
            Line::styled(format!(" {mark} {text} "), style)
        };
        wrapped(line, room).into_iter().enumerate().map(row).collect()
    };
    let height = usize::from(body.height);
    let mut text = Vec::new();
    if height > 8 {
        text.extend([Line::raw(""), Line::styled(format!("  {}", list.title), bold), Line::raw("")]);
    }
    let entries: Vec<Vec<Line<'static>>> = list.lines.iter().enumerate().map(rows).collect();
    let free = entries.len().saturating_sub(list.pinned);
    let tall = |entries: &[Vec<Line<'static>>]| entries.iter().map(Vec::len).sum::<usize>();
    let (upper, lower) = entries.split_at(free);
    let space = height.saturating_sub(text.len() + tall(lower)).max(1);
    // Where not all fit, a row says so.
    let is_cut = tall(upper) > space && space > 2;
    let space = space.saturating_sub(usize::from(is_cut));
    // The chosen one is kept in sight where there are more than fit.
    let chosen = list.chosen.min(free.saturating_sub(1));
    let mut first = 0;
    while first < chosen && upper.get(first..=chosen).is_some_and(|shown| tall(shown) > space) {
        first += 1;
    }
    let (mut shown, mut last): (Vec<Line<'static>>, _) = (Vec::new(), first);
    for entry in upper.iter().skip(first) {
        if shown.len() + entry.len() > space && !shown.is_empty() {
            break;
        }
        shown.extend(entry.iter().cloned());
        last += 1;
    }
    text.extend(shown);
    if is_cut {
        text.push(Line::raw(format!("   … {first} above, {} below", upper.len().saturating_sub(last))));
    }
    text.extend(lower.iter().flatten().cloned());
    frame.render_widget(Paragraph::new(Text::from(text)), body);
}

/// Draws a program's terminal.
pub fn pane(frame: &mut Frame<'_>, area: Rect, pane: &Pane) {
    frame.render_widget(Clear, area);
    for (y, spans) in (area.y..area.bottom()).zip(&pane.rows) {
        let mut x = area.x;
        for Span { text, look } in spans {
            let room = usize::from(area.right().saturating_sub(x));
            if room == 0 {
                break;
            }
            // The parser is not believed: what could move the terminal's cursor is not passed on.
            let text: String =
                text.chars().map(|character| if is_in_a_pane(character) { character } else { ' ' }).collect();
            (x, _) = frame.buffer_mut().set_stringn(x, y, text, room, style(*look));
        }
    }
    let (row, column, visible) = pane.cursor;
    let (x, y) = (area.x.saturating_add(column), area.y.saturating_add(row));
    if visible && x < area.right() && y < area.bottom() {
        frame.set_cursor_position(Position::new(x, y));
    }
}

/// What a program may have in its own rows: no control character, and none that turns the direction of writing. What is not seen stays, since it
/// has the width there that the parser counted.
fn is_in_a_pane(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{206f}')
}

fn style(look: Look) -> Style {
    let colour = |colour| match colour {
        Colour::Default => Color::Reset,
        Colour::Index(index) => Color::Indexed(index),
        Colour::Rgb(red, green, blue) => Color::Rgb(red, green, blue),
    };
    let mut style = Style::default().fg(colour(look.foreground)).bg(colour(look.background));
    for (on, modifier) in [
        (look.bold, Modifier::BOLD),
        (look.italic, Modifier::ITALIC),
        (look.underline, Modifier::UNDERLINED),
        (look.inverse, Modifier::REVERSED),
    ] {
        if on {
            style = style.add_modifier(modifier);
        }
    }
    style
}
