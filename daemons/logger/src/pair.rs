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
    /// The kernel's: the disk is full. Then nothing of the line is there.
    pub fn write(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        if self.size.saturating_add(length) > self.limit {
            let next = 1 - self.current;
            if let Some(file) = self.files.get(next) {
                file.set_len(0)?;
            }
            (self.current, self.size) = (next, 0);
        }
        let Some(file) = self.files.get_mut(self.current) else { return Ok(()) };
        if let Err(error) = file.write_all(line) {
            // A disk that fills up takes the beginning of a line: the next one would stand behind that, and not be seen to begin.
            file.set_len(self.size)?;
            return Err(error);
        }
        self.size = self.size.saturating_add(length);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_sys::mount::{Attributes, Mount};
    use std::fs;
    use std::os::fd::AsRawFd as _;
    use std::path::{Path, PathBuf};

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

    #[test]
    fn of_a_line_that_the_disk_does_not_take_nothing_stands_before_the_next() {
        let disk = Mount::new("tmpfs", &[("size", "8192")], Attributes::DATA)
            .expect("a disk of two pages: it needs root");
        let at = PathBuf::from(format!("/proc/self/fd/{}", disk.root().as_raw_fd()));
        let mut pair = Pair::new(open(&at), 1 << 20).expect("two files");
        // It has room for eight of them and the half of another.
        let long = |number| format!("{number} {}\n", "x".repeat(961));
        let written: Vec<bool> = (0..10).map(|number| pair.write(long(number).as_bytes()).is_ok()).collect();
        assert_eq!(written.iter().filter(|written| **written).count(), 8, "{written:?}");
        pair.write(b"short, and whole\n").expect("room for this one");
        let text = fs::read_to_string(at.join("0")).expect("text");
        assert!(text.lines().all(|line| line.len() == 963 || line == "short, and whole"), "{text}");
        assert_eq!((text.lines().count(), text.len() as u64), (9, pair.size));
    }
}
