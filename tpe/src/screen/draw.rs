//! What is on the screen: the banner in the first row, always; below it the form, the menu or the program.

use super::parser::{Colour, Look, Span};
use super::{Form, Menu, Pane};
use levee_ipc::tpe::Status;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Clear, Paragraph};

/// A session's colour as the terminal names it, and one to be read on it.
fn banner_style(colour: Option<&str>) -> Style {
    let (background, foreground) = match colour {
        Some("red") => (Color::Red, Color::White),
        Some("green") => (Color::Green, Color::Black),
        Some("yellow") => (Color::Yellow, Color::Black),
        Some("blue") => (Color::Blue, Color::White),
        Some("magenta") => (Color::Magenta, Color::White),
        Some("cyan") => (Color::Cyan, Color::Black),
        Some("orange") => (Color::Indexed(208), Color::Black),
        _ => (Color::White, Color::Black),
    };
    Style::default().bg(background).fg(foreground).add_modifier(Modifier::BOLD)
}

/// The banner's row, and what is left.
pub fn split(area: Rect) -> (Rect, Rect) {
    let [banner, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    (banner, rest)
}

/// Draws the banner.
pub fn banner(frame: &mut Frame<'_>, area: Rect, status: Option<&Status>, hint: &str) {
    let (style, left) = match status {
        None => (Style::default().bg(Color::DarkGray).fg(Color::White), "NO AGENT".to_owned()),
        Some(Status { session: Some(session), user, connected, .. }) => {
            let user = user.as_ref().map_or("", |user| user.as_str());
            let path = if *connected { "" } else { "  (trusted path down)" };
            (banner_style(session.colour.as_deref()), format!("{}  {user}{path}", session.label))
        }
        Some(Status { user, .. }) => {
            let who = user
                .as_ref()
                .map_or_else(|| "nobody is signed on".into(), |user| format!("{user} is signed on"));
            (Style::default().bg(Color::DarkGray).fg(Color::White), format!("NO SESSION  {who}"))
        }
    };
    let width = usize::from(area.width);
    let room = width.saturating_sub(left.chars().count() + 2);
    let right: String = if hint.chars().count() <= room { format!("{hint:>room$}") } else { String::new() };
    frame.render_widget(Paragraph::new(format!(" {left}{right} ")).style(style), area);
}

/// Draws the login form.
pub fn form(frame: &mut Frame<'_>, area: Rect, form: &Form, message: &str) {
    let stars = "*".repeat(form.password.chars().count());
    let mark = |on: bool| if on { ">" } else { " " };
    let text = vec![
        Line::raw(""),
        Line::styled("  Sign on", Style::default().add_modifier(Modifier::BOLD)),
        Line::raw(""),
        Line::raw(format!(" {} Name      {}", mark(!form.in_password), form.user)),
        Line::raw(format!(" {} Password  {stars}", mark(form.in_password))),
        Line::raw(""),
        Line::raw(format!("  {message}")),
    ];
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(Text::from(text)), area);
    let (row, typed) = if form.in_password { (4, stars.len()) } else { (3, form.user.chars().count()) };
    let column = u16::try_from(typed).unwrap_or(u16::MAX).saturating_add(13);
    frame.set_cursor_position(Position::new(
        area.x.saturating_add(column).min(area.right().saturating_sub(1)),
        area.y.saturating_add(row).min(area.bottom().saturating_sub(1)),
    ));
}

/// Draws the trusted menu.
pub fn menu(frame: &mut Frame<'_>, area: Rect, menu: &Menu, message: &str) {
    let mut text = vec![
        Line::raw(""),
        Line::styled("  Trusted menu", Style::default().add_modifier(Modifier::BOLD)),
        Line::raw(""),
    ];
    // The chosen one is kept in sight where there are more than fit.
    let room = usize::from(area.height).saturating_sub(6).max(1);
    let first = (menu.chosen + 1).saturating_sub(room);
    for (index, item) in menu.items.iter().enumerate().skip(first).take(room) {
        let line = format!(" {} {item} ", if index == menu.chosen { ">" } else { " " });
        let style = if index == menu.chosen {
            Style::default().add_modifier(Modifier::REVERSED)
        } else {
            Style::default()
        };
        text.push(Line::styled(line, style));
    }
    text.push(Line::raw(""));
    text.push(Line::raw(format!("  {message}")));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(Text::from(text)), area);
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
                text.chars().map(|character| if harmless(character) { character } else { ' ' }).collect();
            (x, _) = frame.buffer_mut().set_stringn(x, y, text, room, style(*look));
        }
    }
    let (row, column, visible) = pane.cursor;
    let (x, y) = (area.x.saturating_add(column), area.y.saturating_add(row));
    if visible && x < area.right() && y < area.bottom() {
        frame.set_cursor_position(Position::new(x, y));
    }
}

/// Not a control character, and none that turns the direction of writing.
pub fn harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
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
