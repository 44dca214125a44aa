//! The files of an audit log, line by line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use levee_policy::audit::{MAX_LINE, part_first};
use zeroize::Zeroizing;

/// A record that is being written is there after this, many times over.
const WRITTEN: Duration = Duration::from_millis(200);

pub(super) fn fault(path: &Path, what: &dyn std::fmt::Display) -> String {
    format!("{}: {what}", path.display())
}

/// The first so many bytes of a file.
pub(super) fn small(path: &Path, most: u64) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(4096));
    File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(|e| fault(path, &e))?;
    Ok(bytes)
}

/// The files of the log in sessiond's directory, oldest first: those that are full are named by the number of their first
/// record.
pub(super) fn parts(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(directory).map_err(|e| fault(directory, &e))?;
    let mut names: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| part_first(name).is_some())
        .map(|name| directory.join(name))
        .collect();
    names.sort();
    names.push(directory.join("audit.jsonl"));
    Ok(names)
}

/// The log's files, which follow each other.
pub(super) struct Log {
    files: Vec<(PathBuf, File)>,
    /// Lines of each file, as far as they have been read.
    lines: Vec<u64>,
}

impl Log {
    pub(super) fn open(names: Vec<PathBuf>) -> Result<Self, String> {
        let open = |path: PathBuf| match File::open(&path) {
            Ok(file) => Ok((path, file)),
            Err(e) => Err(fault(&path, &e)),
        };
        Ok(Self { files: names.into_iter().map(open).collect::<Result<_, _>>()?, lines: Vec::new() })
    }

    /// Whether anything may have been written since this was asked last. Records are written over space, so that the files' lengths do not tell; and by what
    /// is a tick of the clock ago, two that come one after the other look like one.
    pub(super) fn may_have_grown(&self, seen: &mut Option<(usize, SystemTime)>) -> bool {
        let times = self.files.iter().filter_map(|(_, file)| file.metadata().ok()?.modified().ok());
        let now = times.max().map(|last| (self.files.len(), last));
        let same = now.is_some() && now == *seen;
        *seen = now.filter(|(_, last)| last.elapsed().is_ok_and(|ago| ago > Duration::from_secs(1)));
        !same
    }

    /// Gives `each` every line with its end; of one that is too long, only its beginning.
    pub(super) fn read(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), String>) -> Result<(), String> {
        for (path, file) in &self.files {
            let mut count = 0;
            lines(path, file, |line| {
                count += 1;
                each(line)
            })?;
            self.lines.push(count);
        }
        Ok(())
    }

    /// Where a line of the whole is: its file, and its number there. One behind the last is the last file's.
    pub(super) fn place(&self, mut line: u64) -> (&Path, u64) {
        let mut last = Path::new("");
        for (at, (path, _)) in self.files.iter().enumerate() {
            last = path;
            let lines = self.lines.get(at).copied().unwrap_or(0);
            if line <= lines || at + 1 == self.files.len() {
                break;
            }
            line = line.saturating_sub(lines);
        }
        (last, line)
    }
}

/// Gives `each` every line of a file with its end; of one that is too long, only its beginning.
pub(super) fn lines(
    path: &Path,
    file: &File,
    mut each: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    let mut again = true;
    loop {
        line.clear();
        let mut next = |line: &mut Vec<u8>| {
            let mut part = reader.by_ref().take(MAX_LINE as u64 + 1);
            part.read_until(b'\n', line).map_err(|e| fault(path, &e))
        };
        let length = next(&mut line)?;
        if length == 0 {
            return Ok(());
        }
        // The file has space ahead of the log's end. Before anything else it would be part of that line, which is none then.
        if line.iter().all(|byte| *byte == b' ') {
            continue;
        }
        // One that is being written over space now may be seen in part: it is looked at once more.
        let in_part = line.last() != Some(&b'\n') || line.first() == Some(&b' ');
        if in_part && std::mem::take(&mut again) {
            std::thread::sleep(WRITTEN);
            let back = i64::try_from(length).map_or(0, |length| -length);
            reader.seek(SeekFrom::Current(back)).map_err(|e| fault(path, &e))?;
            continue;
        }
        if line.len() > MAX_LINE && line.last() != Some(&b'\n') {
            let mut rest = Vec::new();
            while rest.last() != Some(&b'\n') {
                rest.clear();
                if next(&mut rest)? == 0 {
                    break;
                }
            }
            line.push(b'\n');
        }
        each(&line)?;
    }
}
