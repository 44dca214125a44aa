//! The person's terminal: as large as it says it is, up to what a screen is.
//!
//! Whatever is at the other end says the size: a line over which somebody else's program speaks may say 65,535 rows and columns, for
//! which no memory is enough.

use super::parser::MAX_SIZE;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{DisableLineWrap, EnableLineWrap, EnterAlternateScreen};
use ratatui::layout::Rect;
use ratatui::{DefaultTerminal, TerminalOptions, Viewport};
use std::io;

/// What terminals were, for one that does not know its size, which says zero.
const USUAL: (u16, u16) = (24, 80);

/// Rows and columns, as the terminal says they are now.
///
/// # Errors
/// Standard output is no terminal.
pub fn size() -> io::Result<(u16, u16)> {
    let size = rustix::termios::tcgetwinsize(io::stdout())?;
    Ok(bounded((size.ws_row, size.ws_col)))
}

fn bounded((rows, columns): (u16, u16)) -> (u16, u16) {
    let held = |said: u16, usual| if said == 0 { usual } else { said.min(MAX_SIZE) };
    (held(rows, USUAL.0), held(columns, USUAL.1))
}

/// Takes the terminal, of this size; [`give_back`] gives it back. How wide a character is each terminal has its own opinion of: one that does not
/// fit behind the others of its row goes nowhere. Else a program's would go on in the next row, and behind the last one all rows move up, the
/// banner out of sight.
///
/// # Errors
/// The terminal's.
pub fn take(size: (u16, u16)) -> io::Result<DefaultTerminal> {
    // Of what is drawn by itself ratatui would make two of what the terminal says.
    let terminal = ratatui::try_init_with_options(TerminalOptions { viewport: Viewport::Fixed(area(size)) })?;
    execute!(io::stdout(), EnterAlternateScreen, DisableLineWrap)?;
    Ok(terminal)
}

/// What [`take`] has taken.
pub fn give_back() {
    // As for ratatui's own: there is nothing else to be done about it.
    let _ = execute!(io::stdout(), EnableLineWrap);
    ratatui::restore();
}

/// The whole of it.
pub fn area((rows, columns): (u16, u16)) -> Rect {
    Rect::new(0, 0, columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_terminal_is_larger_than_a_screen_or_without_room() {
        assert_eq!(bounded((0, 0)), (24, 80));
        assert_eq!(bounded((1, 25)), (1, 25));
        assert_eq!(bounded((80, 300)), (80, 300));
        assert_eq!(bounded((u16::MAX, u16::MAX)), (MAX_SIZE, MAX_SIZE));
    }
}
