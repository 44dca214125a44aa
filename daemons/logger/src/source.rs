//! From the bytes that a process wrote to lines.

use std::time::Duration;

use levee_ipc::Rate;

use levee_ipc::visible;

/// The most bytes of a line that are kept; the rest is counted.
pub const LINE: usize = 1_024;

/// Lines that one process may have written down at once.
const BURST: u32 = 400;
/// Lines a second in the long run: with the longest ones, 80 KiB/s.
const LINES: u32 = 20;

/// A line that has not ended is written down after so long.
const WAIT: Duration = Duration::from_secs(2);

/// What one process says.
#[derive(Debug)]
pub struct Source {
    name: String,
    /// The line that has not ended yet, and since when there is one.
    partial: Vec<u8>,
    since: Option<Duration>,
    /// Bytes of that line that were cut off.
    cut: u64,
    rate: Rate,
    /// Lines that were not written down since the last one that was.
    left_out: u64,
}

impl Source {
    /// Of the process that the log is to call `name`.
    pub fn new(name: &str, now: Duration) -> Self {
        let mut shown = String::new();
        visible(name.as_bytes(), &mut shown);
        Self {
            name: shown,
            partial: Vec::new(),
            since: None,
            cut: 0,
            rate: Rate::new(BURST, LINES, now),
            left_out: 0,
        }
    }

    /// Takes bytes as they came, and gives each line that is to be written down to `write`.
    pub fn take(&mut self, bytes: &[u8], now: Duration, write: &mut impl FnMut(&str)) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            self.add(line, now);
            self.end(now, write);
            rest = after.get(1..).unwrap_or_default();
        }
        self.add(rest, now);
    }

    /// Writes down what has waited long enough: a line that does not end, and how many were left out.
    pub fn tick(&mut self, now: Duration, write: &mut impl FnMut(&str)) {
        if self.since.is_some_and(|since| now.saturating_sub(since) >= WAIT) {
            self.end(now, write);
        }
        if self.left_out > 0 && self.rate.take(now) {
            self.say_left_out(write);
        }
    }

    /// Whether [`Source::tick`] will have something to do.
    pub fn is_waiting(&self) -> bool {
        self.since.is_some() || self.left_out > 0
    }

    /// The end: what is there is written down.
    pub fn finish(&mut self, now: Duration, write: &mut impl FnMut(&str)) {
        if self.since.is_some() {
            self.end(now, write);
        }
        if self.left_out > 0 {
            self.say_left_out(write);
        }
    }

    fn add(&mut self, bytes: &[u8], now: Duration) {
        if bytes.is_empty() {
            return;
        }
        self.since.get_or_insert(now);
        let room = LINE.saturating_sub(self.partial.len()).min(bytes.len());
        let (kept, cut) = bytes.split_at(room);
        self.partial.extend_from_slice(kept);
        self.cut = self.cut.saturating_add(cut.len() as u64);
    }

    fn end(&mut self, now: Duration, write: &mut impl FnMut(&str)) {
        let (line, cut) = (std::mem::take(&mut self.partial), std::mem::take(&mut self.cut));
        self.since = None;
        if !self.rate.take(now) {
            self.left_out = self.left_out.saturating_add(1);
            return;
        }
        if self.left_out > 0 {
            self.say_left_out(write);
        }
        let mut text = format!("{}: ", self.name);
        visible(&line, &mut text);
        if cut > 0 {
            text.push_str(&format!(" [and {cut} bytes more]"));
        }
        write(&text);
    }

    fn say_left_out(&mut self, write: &mut impl FnMut(&str)) {
        let count = std::mem::take(&mut self.left_out);
        write(&format!("{}: [{count} lines left out: it says too much]", self.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(50);

    fn said(pieces: &[&[u8]]) -> Vec<String> {
        let (mut source, mut lines) = (Source::new("web", NOW), Vec::new());
        let mut write = |line: &str| lines.push(line.to_owned());
        pieces.iter().for_each(|piece| source.take(piece, NOW, &mut write));
        source.finish(NOW, &mut write);
        lines
    }

    #[test]
    fn lines_are_the_same_however_the_bytes_come() {
        let text = b"one\n\ntwo\nthree";
        let whole = said(&[text]);
        assert_eq!(whole, ["web: one", "web: ", "web: two", "web: three"]);
        for at in 0..text.len() {
            assert_eq!(said(&[&text[..at], &text[at..]]), whole);
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(said(&single), whole);
    }

    #[test]
    fn a_long_line_is_cut_and_what_was_cut_is_counted() {
        let mut long = vec![b'x'; 5_000];
        long.push(b'\n');
        let lines = said(&[&long, b"next\n"]);
        assert_eq!(lines[0], format!("web: {} [and {} bytes more]", "x".repeat(LINE), 5_000 - LINE));
        assert_eq!(lines[1], "web: next");
    }

    #[test]
    fn no_line_pretends_to_be_another_processs() {
        assert_eq!(said(&[b"a\rvault: b\x1b[2K\n"]), ["web: a\\x0dvault: b\\x1b[2K"]);
        let (mut source, mut lines) = (Source::new("a\nvault", NOW), Vec::new());
        source.take(b"b\n", NOW, &mut |line: &str| lines.push(line.to_owned()));
        assert_eq!(lines, ["a\\x0avault: b"]);
    }

    #[test]
    fn lines_beyond_the_rate_are_counted_and_not_written() {
        let (mut source, mut lines) = (Source::new("web", NOW), Vec::new());
        let mut write = |line: &str| lines.push(line.to_owned());
        for _ in 0..100_000 {
            source.take(b"again\n", NOW, &mut write);
        }
        assert!(source.is_waiting());
        source.tick(NOW + Duration::from_secs(5), &mut write);
        source.take(b"at last\n", NOW + Duration::from_secs(5), &mut write);
        assert_eq!(lines.len(), 402);
        assert_eq!(lines[400], "web: [99600 lines left out: it says too much]");
        assert_eq!(lines[401], "web: at last");
    }

    #[test]
    fn a_line_that_does_not_end_is_written_all_the_same() {
        let (mut source, mut lines) = (Source::new("web", NOW), Vec::new());
        let mut write = |line: &str| lines.push(line.to_owned());
        source.take(b"Password: ", NOW, &mut write);
        source.tick(NOW + Duration::from_secs(1), &mut write);
        assert!(source.is_waiting());
        source.tick(NOW + Duration::from_secs(3), &mut write);
        assert!(!source.is_waiting());
        assert_eq!(lines, ["web: Password: "]);
    }
}
