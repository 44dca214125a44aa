//! Two files used in turn.
//!
//! The logger opens nothing and renames nothing: it was given two files. When one is full, the other is emptied and written.

use std::fs::File;
use std::io::{self, Write};

/// A log of at most twice `limit` bytes; at least `limit` of what was written last is there.
#[derive(Debug)]
pub struct Pair {
    files: [File; 2],
    current: usize,
    size: u64,
    limit: u64,
}

impl Pair {
    /// Goes on in the file that was written last, as long as it has room.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(files: [File; 2], limit: u64) -> io::Result<Self> {
        let [first, second] = [files[0].metadata()?, files[1].metadata()?];
        // Within one tick of the kernel's clock both look alike: then the one with less in it was begun last.
        let when = |of: &std::fs::Metadata| Ok::<_, io::Error>((of.modified()?, std::cmp::Reverse(of.len())));
        let current = usize::from(second.len() > 0 && when(&second)? > when(&first)?);
        let size = if current == 0 { first.len() } else { second.len() };
        Ok(Self { files, current, size, limit })
    }

    /// Adds a line, which has its end.
    ///
    /// # Errors
    /// The kernel's: the disk is full. Then the line is not there.
    pub fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        if self.size.saturating_add(length) > self.limit {
            let next = 1 - self.current;
            if let Some(file) = self.files.get(next) {
                file.set_len(0)?;
            }
            (self.current, self.size) = (next, 0);
        }
        if let Some(file) = self.files.get_mut(self.current) {
            // One call: a line is there or not.
            let written = file.write(line)?;
            self.size = self.size.saturating_add(written as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn open(directory: &Path) -> [File; 2] {
        ["0", "1"]
            .map(|name| File::options().create(true).append(true).open(directory.join(name)).expect("a file"))
    }

    fn sizes(directory: &Path) -> [u64; 2] {
        ["0", "1"].map(|name| fs::metadata(directory.join(name)).expect("a file").len())
    }

    #[test]
    fn the_files_never_have_more_than_their_bound_and_always_what_came_last() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut pair = Pair::new(open(directory.path()), 1_000).expect("two files");
        for number in 0..1_000 {
            pair.write(format!("line {number:04}\n").as_bytes()).expect("room");
            assert!(sizes(directory.path()).iter().all(|size| *size <= 1_000));
            let all = ["0", "1"].map(|name| fs::read_to_string(directory.path().join(name)).expect("text"));
            let from = usize::saturating_sub(number, 99);
            assert!((from..=number).all(|n| all.iter().any(|text| text.contains(&format!("line {n:04}")))));
        }
    }

    #[test]
    fn a_logger_that_comes_again_goes_on_where_the_last_one_was() {
        let directory = tempfile::tempdir().expect("a directory");
        for number in 0..150 {
            let mut pair = Pair::new(open(directory.path()), 1_000).expect("two files");
            pair.write(format!("line {number:04}\n").as_bytes()).expect("room");
            // Files are told apart by when they were written.
            if number % 100 == 0 {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
        assert_eq!(sizes(directory.path()), [1_000, 500]);
    }
}
