//! The process that reads what programs write to their terminal. It has that terminal's output and a channel back,
//! and whatever a program's bytes make of it, all that comes out is text with colours inside the program's own rows.

use super::text::Kept;
use levee_ipc::{Channel, Received, RecvError};
use levee_sys::fork::Forker;
use levee_sys::sandbox::Sandbox;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::{Deserialize, Serialize};
use std::io;
use std::num::NonZeroU16;
use std::os::fd::OwnedFd;

/// The system calls that the reader may make.
const FILTER: &str = include_str!("../../../conf/seccomp/screen.toml");

/// Rows and columns are held to this, so that a row fits a message.
pub const MAX_SIZE: u16 = 500;
/// Bytes read at a time, and how often before what they made is sent.
const CHUNK: usize = 16 * 1024;
const CHUNKS: usize = 8;
/// And how often at most when the program has ended: what others write to its terminal then does not count.
const LAST: usize = 256;

/// A colour as programs name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Colour {
    /// The terminal's own.
    Default,
    /// Of the palette of 256.
    Index(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

/// How text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// Of the text.
    pub foreground: Colour,
    /// Behind it.
    pub background: Colour,
    /// Bold.
    pub bold: bool,
    /// Italic.
    pub italic: bool,
    /// Underlined.
    pub underline: bool,
    /// Foreground and background exchanged.
    pub inverse: bool,
}

/// Text of one look.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The text: what the terminal shows, no control characters.
    pub text: String,
    /// Its look.
    pub look: Look,
}

/// What the parser says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// A row has changed.
    Row {
        /// Which, from the top.
        row: u16,
        /// What is in it now.
        spans: Vec<Span>,
    },
    /// Where the cursor is, and what the keys should send.
    Cursor {
        /// From the top.
        row: u16,
        /// From the left.
        column: u16,
        /// Whether it is to be seen.
        visible: bool,
        /// Whether arrow keys send application codes.
        application: bool,
    },
    /// So many orders to the terminal that are not about text, place and look have been dropped by now: clipboard, title,
    /// questions about the terminal, its size and the like.
    Dropped(u64),
    /// After [`Order::Finish`]: a line of all that the program has written to the ordinary screen, or of the last of it.
    Line(String),
    /// There is no other line.
    End,
}

/// What the parser is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// The terminal has this size now.
    Size(Size),
    /// The program has ended: read what is left, send what it has written as lines, and end.
    Finish,
}

/// The size of the program's terminal: rows and columns.
pub type Size = (u16, u16);

/// A parser's process.
pub struct Parser {
    pid: Pid,
    /// To it and from it.
    pub channel: Channel,
}

impl Parser {
    /// Forks a parser for this terminal's output.
    ///
    /// # Errors
    /// If no process can be made.
    pub fn start(forker: &Forker, output: OwnedFd, size: Size) -> io::Result<Self> {
        let (channel, theirs) = Channel::pair()?;
        let pid = forker.fork(vec![output, theirs.into_fd()], move |kept| {
            let Ok([output, channel]) = <[OwnedFd; 2]>::try_from(kept) else { return 1 };
            // A session of its own: signals of the person's terminal are none of its business.
            if rustix::process::setsid().is_err() || Sandbox::new(FILTER).enter().is_err() {
                return 2;
            }
            serve(&output, &Channel::from_fd(channel), size);
            0
        })?;
        Ok(Self { pid, channel })
    }

    /// Tells the size of the terminal.
    pub fn resize(&self, size: Size) {
        // A parser that is gone is found when it is read.
        let _ = self.channel.try_send(&Order::Size(size));
    }

    /// The program has ended: asks for what it has written.
    pub fn finish(&self) {
        // As above.
        let _ = self.channel.try_send(&Order::Finish);
    }
}

impl Drop for Parser {
    fn drop(&mut self) {
        // Not reaped before, so the number is still its own.
        let _ = kill_process(self.pid, Signal::KILL);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

pub(super) fn bounded(size: u16) -> NonZeroU16 {
    NonZeroU16::new(size.min(MAX_SIZE)).unwrap_or(NonZeroU16::MIN)
}

fn serve(output: &OwnedFd, channel: &Channel, (rows, columns): Size) {
    let mut parser = vt100::Parser::new_with_callbacks(bounded(rows), bounded(columns), 0, Kept::default());
    let mut dropped = 0;
    let mut sent: Vec<News> = Vec::new();
    let mut chunk = vec![0u8; CHUNK];
    let mut ended = false;
    loop {
        let mut fds = vec![PollFd::new(channel, PollFlags::IN)];
        if !ended {
            fds.push(PollFd::new(output, PollFlags::IN));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
        drop(fds);
        let mut over = false;
        loop {
            match channel.try_recv::<Order>() {
                Ok(Received { message: Order::Size((rows, columns)), .. }) => {
                    parser.screen_mut().set_size(bounded(rows), bounded(columns));
                    sent.clear();
                }
                Ok(Received { message: Order::Finish, .. }) => over = true,
                Err(RecvError::Empty) => break,
                Err(_) => return,
            }
        }
        for _ in 0..if over { LAST } else { CHUNKS } {
            match rustix::io::read(output, &mut chunk) {
                Ok(bytes @ 1..) => parser.process(chunk.get(..bytes).unwrap_or_default()),
                Err(Errno::AGAIN | Errno::INTR) => break,
                Ok(0) | Err(_) => {
                    ended = true;
                    break;
                }
            }
        }
        if over {
            return finish(&parser, channel);
        }
        let count = parser.callbacks().dropped();
        if count != dropped && channel.send(&News::Dropped(count)).is_err() {
            return;
        }
        dropped = count;
        let now = picture(parser.screen());
        for (index, news) in now.iter().enumerate() {
            // Waits for a reader that is slower than the program.
            if sent.get(index) != Some(news) && channel.send(news).is_err() {
                return;
            }
        }
        sent = now;
    }
}

/// Sends what the program has written as lines of text.
fn finish(parser: &vt100::Parser<Kept>, channel: &Channel) {
    let dropped = News::Dropped(parser.callbacks().dropped());
    let lines = parser.callbacks().lines(parser.screen()).into_iter().map(News::Line);
    for news in std::iter::once(dropped).chain(lines).chain([News::End]) {
        if channel.send(&news).is_err() {
            return;
        }
    }
}

/// Every row, and the cursor at the end.
pub(super) fn picture(screen: &vt100::Screen) -> Vec<News> {
    let (rows, columns) = screen.size();
    let mut news: Vec<News> = (0..rows.get())
        .map(|row| {
            let mut spans: Vec<Span> = Vec::new();
            for column in 0..columns.get() {
                let Some(cell) = screen.cell(row, column) else { continue };
                if cell.is_wide_continuation() {
                    continue;
                }
                let look = Look {
                    foreground: colour(cell.fgcolor()),
                    background: colour(cell.bgcolor()),
                    bold: cell.bold(),
                    italic: cell.italic(),
                    underline: cell.underline(),
                    inverse: cell.inverse(),
                };
                let text = if cell.has_contents() { cell.contents() } else { " " };
                match spans.last_mut() {
                    Some(last) if last.look == look => last.text.push_str(text),
                    _ => spans.push(Span { text: text.to_owned(), look }),
                }
            }
            News::Row { row, spans }
        })
        .collect();
    let (row, column) = screen.cursor_position();
    let (visible, application) = (!screen.hide_cursor(), screen.application_cursor());
    news.push(News::Cursor { row, column, visible, application });
    news
}

fn colour(colour: vt100::Color) -> Colour {
    match colour {
        vt100::Color::Default => Colour::Default,
        vt100::Color::Idx(index) => Colour::Index(index),
        vt100::Color::Rgb(red, green, blue) => Colour::Rgb(red, green, blue),
    }
}
