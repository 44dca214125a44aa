//! What services write to their standard output and error, in lines, as far as there is room for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};

use crate::compartment::proto::{REASON_MAX, shorten};

/// Lines that one service may have in one [`PERIOD`]; what is beyond is not told.
const LINES: u32 = 20;
/// See [`LINES`].
const PERIOD: Duration = Duration::from_secs(1);

/// The reading end of a service's output.
#[derive(Debug)]
pub struct Output {
    pipe: OwnedFd,
    line: Vec<u8>,
    since: Instant,
    told: u32,
}

impl Output {
    /// A new one, and the writing end for the service, which waits while it is full.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> rustix::io::Result<(Self, OwnedFd)> {
        let (pipe, end) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok((Self { pipe, line: Vec::new(), since: Instant::now(), told: 0 }, end))
    }

    /// To be waited on.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// What has been written, in lines.
    pub fn read(&mut self) -> Vec<String> {
        let mut chunk = [0; 4096];
        // (It has no end: the service may be started again.) What cannot be read is lost, and shows in the next lines.
        if let Ok(n) = rustix::io::read(&self.pipe, &mut chunk) {
            self.line.extend_from_slice(chunk.get(..n).unwrap_or_default());
        }
        let mut lines = Vec::new();
        while let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.line.drain(..=end).collect();
            self.keep(&line, &mut lines);
        }
        if self.line.len() >= REASON_MAX {
            let line = std::mem::take(&mut self.line);
            self.keep(&line, &mut lines);
        }
        lines
    }

    fn keep(&mut self, line: &[u8], lines: &mut Vec<String>) {
        if self.since.elapsed() > PERIOD {
            (self.since, self.told) = (Instant::now(), 0);
        }
        let text = shorten(String::from_utf8_lossy(line).trim_end());
        if !text.is_empty() && self.told < LINES {
            self.told += 1;
            lines.push(text);
        }
    }
}
