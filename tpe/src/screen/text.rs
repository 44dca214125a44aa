//! What a program writes to its terminal beside what the screen shows: the text that has left it, and the orders to the
//! terminal that are none of a program's business.

use vt100::capture::{
    BasicFormattedCaptureRange, BasicFormattedCaptureState, RowContents, basic_formatted_to_plain,
};
use vt100::{Callbacks, Screen};

/// So much of what a program has written is kept, in bytes of text, for when it has ended.
const MAX_TEXT: usize = 512 * 1024;
/// A longer line is given in parts of so many bytes.
const MAX_LINE: usize = 16 * 1024;

/// What the parser keeps beside the screen.
#[derive(Default)]
pub struct Kept {
    /// What has left the screen at its top, with its looks.
    text: String,
    state: BasicFormattedCaptureState,
    dropped: u64,
}

impl Kept {
    /// Orders to the terminal that were dropped by now.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// What was written to the ordinary screen, as lines of text: the last of it where that was much.
    pub fn lines(&self, screen: &Screen) -> Vec<String> {
        let (mut text, mut state) = (self.text.clone(), self.state.clone());
        if !screen.alternate_screen() {
            // Writing to a string does not fail.
            let _ = screen
                .write_contents_formatted_basic(&mut text, BasicFormattedCaptureRange::Full(&mut state));
        }
        let plain: String = basic_formatted_to_plain(&text).collect();
        plain.trim_end().lines().flat_map(parts).map(str::to_owned).collect()
    }

    fn drop_one(&mut self) {
        self.dropped = self.dropped.saturating_add(1);
    }
}

impl Callbacks for Kept {
    fn resize(&mut self, _: &mut Screen, _: (u16, u16)) {
        self.drop_one();
    }

    fn set_window_icon_name(&mut self, _: &mut Screen, _: &[u8]) {
        self.drop_one();
    }

    fn set_window_title(&mut self, _: &mut Screen, _: &[u8]) {
        self.drop_one();
    }

    fn copy_to_clipboard(&mut self, _: &mut Screen, _: &[u8], _: &[u8]) {
        self.drop_one();
    }

    fn paste_from_clipboard(&mut self, _: &mut Screen, _: &[u8]) {
        self.drop_one();
    }

    fn unhandled_escape(&mut self, _: &mut Screen, _: Option<u8>, _: Option<u8>, _: u8) {
        self.drop_one();
    }

    fn unhandled_csi(&mut self, _: &mut Screen, _: Option<u8>, _: Option<u8>, _: &[&[u16]], _: char) {
        self.drop_one();
    }

    fn unhandled_osc(&mut self, _: &mut Screen, _: &[&[u8]]) {
        self.drop_one();
    }

    fn on_scroll(&mut self, row: RowContents<'_>, alternate_screen: bool) {
        if alternate_screen {
            return;
        }
        // Writing to a string does not fail.
        let _ = row.write_formatted_basic(&mut self.text, &mut self.state);
        if self.text.len() > MAX_TEXT {
            let half = self.text.split_at_checked(MAX_TEXT / 2).map_or(MAX_TEXT / 2, |(head, _)| head.len());
            let line = self.text.bytes().skip(half).position(|byte| byte == b'\n');
            self.text.drain(..line.map_or(self.text.len(), |line| half + line + 1));
        }
    }
}

/// A line, or its parts.
fn parts(mut line: &str) -> Vec<&str> {
    let mut all = Vec::new();
    while let Some(cut) = line.char_indices().map(|(at, _)| at).find(|at| *at >= MAX_LINE) {
        let (head, tail) = line.split_at(cut);
        all.push(head);
        line = tail;
    }
    all.push(line);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8]) -> (Vec<String>, u64) {
        let size = |n| std::num::NonZeroU16::new(n).unwrap();
        let mut parser = vt100::Parser::new_with_callbacks(size(4), size(10), 0, Kept::default());
        parser.process(bytes);
        let kept = parser.callbacks();
        (kept.lines(parser.screen()), kept.dropped())
    }

    #[test]
    fn all_lines_are_kept_whole_though_they_have_left_the_screen() {
        let text: String =
            (0..20).map(|line| format!("\x1b[31mline {line} is longer than a row\x1b[0m\r\n")).collect();
        let (lines, dropped) = written(text.as_bytes());
        assert_eq!(lines.len(), 20);
        assert_eq!(
            (lines[0].as_str(), lines[19].as_str()),
            ("line 0 is longer than a row", "line 19 is longer than a row")
        );
        assert_eq!(dropped, 0);
    }

    #[test]
    fn orders_to_the_terminal_are_counted_and_none_is_in_the_text() {
        let orders: [&[u8]; 6] = [
            b"\x1b]52;c;c2VjcmV0\x07",
            b"\x1b]2;title\x07",
            b"\x1b[6n",
            b"\x1b[c",
            b"\x1b]777;notify;a;b\x07",
            b"\x1b[8;1;1t",
        ];
        for order in orders {
            let (lines, dropped) = written(&[b"before ", order, b"after"].concat());
            assert_eq!((lines.concat().as_str(), dropped), ("before after", 1), "{order:?}");
        }
    }

    #[test]
    fn what_is_kept_has_a_bound_and_it_is_the_last_that_stays() {
        let (lines, _) = written("0123456789\r\n".repeat(200_000).as_bytes());
        assert!(lines.len() * 11 <= MAX_TEXT + 100, "{}", lines.len());
        assert!(lines.iter().all(|line| line == "0123456789"));
        let (lines, _) = written(&[b'x'; 3 * MAX_LINE]);
        assert!(lines.iter().all(|line| line.len() <= MAX_LINE));
    }
}
