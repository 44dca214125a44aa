//! For how long nobody watched over the sessions: since when sessiond has not run.
//!
//! A small file says when it last ran, by the clock that goes on while the host is suspended, and by the wall clock for when the host
//! has been started since. A session is as old as it is: the time without levee counts as any other.

use levee_sys::clock::since_boot;
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The file, in sessiond's directory.
const FILE: &str = "last-ran";
/// Its last word where the run ended in good order.
const ENDED: &str = "end";
/// Its length in bytes: a boot's name (a UUID), two times in milliseconds, padded.
const LENGTH: usize = 96;
/// How often it is written, at most; where the grace time is short, an eighth of that.
const BEAT: Duration = Duration::from_secs(5);

/// The time without sessiond, and the file that says until when it ran.
#[derive(Debug)]
pub struct Away {
    file: File,
    boot: String,
    every: Duration,
    /// When it was written last, since the host's start.
    written: Duration,
    /// The host has been started since the last run, which had not ended in good order.
    host_failed: bool,
}

/// A moment, by both clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Moment {
    boot: String,
    since_boot: u64,
    wall: u64,
    /// The run ended then, in good order.
    ended: bool,
}

/// What the kernel calls this run of the host. To be asked before the sandbox is entered.
///
/// # Errors
/// `/proc` is not there.
pub fn boot() -> io::Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(name.trim().chars().filter(|c| c.is_ascii_graphic()).take(36).collect())
}

impl Away {
    /// Opens the file, and says how long ago it was written last; `None` where nobody knows: there is none, it is not whole, or a
    /// clock went back. `grace` is how long a session outlives its trusted path.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(
        directory: BorrowedFd<'_>,
        boot: String,
        grace: Duration,
    ) -> io::Result<(Self, Option<Duration>)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(openat(directory, FILE, flags, Mode::RUSR | Mode::WUSR)?);
        let every = BEAT.min(grace / 8);
        let now = Moment::now(&boot, false);
        let mut bytes = [0; LENGTH];
        let last = file.read_exact_at(&mut bytes, 0).ok().and_then(|()| Moment::parse(&bytes));
        let away = last.as_ref().and_then(|last| now.after(last));
        let host_failed = last.is_some_and(|last| !last.ended && last.boot != now.boot);
        let mut this = Self { file, boot, every, written: Duration::ZERO, host_failed };
        this.write()?;
        // If the host fails before the next write, the disk must not say that a run had ended.
        this.file.sync_all()?;
        Ok((this, away))
    }

    /// When it is to be written again, as a time from now.
    pub fn due(&self) -> Duration {
        self.written.saturating_add(self.every).saturating_sub(since_boot())
    }

    /// Writes that sessiond runs. One that is not on the disk when the host fails is only older: more time counts.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&mut self) -> io::Result<()> {
        self.written = since_boot();
        self.file.write_all_at(&Moment::now(&self.boot, false).bytes(), 0)
    }

    /// Writes that sessiond ends in good order: everything else is on the disk.
    ///
    /// # Errors
    /// The kernel's.
    pub fn end(&mut self) -> io::Result<()> {
        self.file.write_all_at(&Moment::now(&self.boot, true).bytes(), 0)
    }

    /// Whether the host went down under the last run: what was not on the disk is lost.
    pub fn host_failed(&self) -> bool {
        self.host_failed
    }
}

impl Moment {
    fn now(boot: &str, ended: bool) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self { boot: boot.to_owned(), since_boot: millis(since_boot()), wall: millis(wall), ended }
    }

    /// How long after `earlier`; `None` where a clock went back.
    fn after(&self, earlier: &Self) -> Option<Duration> {
        let span = match self.boot == earlier.boot {
            true => self.since_boot.checked_sub(earlier.since_boot),
            false => self.wall.checked_sub(earlier.wall),
        };
        span.map(Duration::from_millis)
    }

    fn bytes(&self) -> [u8; LENGTH] {
        let mut bytes = [b' '; LENGTH];
        let ended = if self.ended { ENDED } else { "" };
        let text = format!("{} {} {} {ended} ", self.boot, self.since_boot, self.wall);
        bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
        if let Some(last) = bytes.last_mut() {
            *last = b'\n';
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let mut words = text.split_ascii_whitespace();
        let boot = words.next()?.to_owned();
        let mut number = || words.next()?.parse().ok();
        let (since_boot, wall) = (number()?, number()?);
        let ended = match words.next() {
            None => false,
            Some(ENDED) => words.next().is_none().then_some(true)?,
            Some(_) => return None,
        };
        Some(Self { boot, since_boot, wall, ended })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    const GRACE: Duration = Duration::from_secs(30);

    fn moment(boot: &str, since_boot: u64, wall: u64) -> Moment {
        Moment { boot: boot.into(), since_boot, wall, ended: false }
    }

    #[test]
    fn within_one_run_of_the_host_the_wall_clock_does_not_matter() {
        let last = moment("a", 1_000, 5_000_000);
        assert_eq!(moment("a", 201_000, 1).after(&last), Some(Duration::from_secs(200)));
        assert_eq!(moment("a", 999, 9_000_000).after(&last), None);
    }

    #[test]
    fn over_a_start_of_the_host_the_wall_clock_counts_and_one_that_went_back_denies() {
        let last = moment("a", 1_000, 5_000_000);
        assert_eq!(moment("b", 10, 5_200_000).after(&last), Some(Duration::from_secs(200)));
        assert_eq!(moment("b", 10, 4_999_999).after(&last), None);
    }

    #[test]
    fn what_is_written_is_read_and_what_is_not_whole_is_not_believed() {
        let now = moment("0f5c1f9e-6d3b-4c63-9d1a-5b6c7d8e9f00", u64::MAX, u64::MAX);
        assert_eq!(Moment::parse(&now.bytes()), Some(now.clone()));
        let ended = Moment { ended: true, ..now.clone() };
        assert_eq!(Moment::parse(&ended.bytes()), Some(ended));
        let bytes = now.bytes();
        assert_eq!(Moment::parse(&bytes[..LENGTH - 1]), None);
        assert_eq!(Moment::parse(&[0; LENGTH]), None);
        let mut more = bytes;
        more[LENGTH - 2] = b'7';
        assert_ne!(Moment::parse(&more), Some(now));
    }

    #[test]
    fn the_host_has_failed_if_it_was_started_since_and_the_run_before_had_not_ended() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let open = |boot: &str| Away::open(directory.as_fd(), boot.to_owned(), GRACE).unwrap().0;
        assert!(!open("a").host_failed(), "the first run");
        assert!(!open("a").host_failed(), "a crash of sessiond");
        assert!(open("b").host_failed());
        let mut last = open("b");
        last.end().unwrap();
        assert!(!open("c").host_failed());
        assert!(open("d").host_failed(), "that it runs is written at the start");
    }

    #[test]
    fn a_first_run_knows_nothing_and_the_next_one_how_long_ago_it_was() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let open = || Away::open(directory.as_fd(), boot().unwrap(), GRACE).unwrap();
        let (first, away) = open();
        assert_eq!(away, None);
        assert!(first.due() <= GRACE / 8);
        drop(first);
        std::thread::sleep(Duration::from_millis(30));
        let (_, away) = open();
        assert!(away.is_some_and(|away| (Duration::from_millis(30)..GRACE).contains(&away)), "{away:?}");
    }
}
