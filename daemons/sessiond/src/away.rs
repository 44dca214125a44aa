//! For how long nobody watched over the sessions: since when sessiond has not run.
//!
//! A small file says when it last ran, by the clock that goes on while the host is suspended, and by sessiond's own ([`Clock`]) for when the
//! host has been started since. A session is as old as it is: the time without levee counts as any other. How old it is the wall clock says
//! at the next start; so one that was set back since the last would have it last longer than the site says, and nobody knows then.

use crate::clock::{Clock, MOST_SET};
use levee_session::Time;
use levee_sys::clock::since_boot;
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// The file, in sessiond's directory.
const FILE: &str = "last-ran";
/// Its last word where the run ended in good order, and where the host has failed under one and the log does not say so yet.
const ENDED: &str = "end";
const UNSAID: &str = "unsaid";
/// Its length in bytes: a boot's name (a UUID), two times in milliseconds, padded.
const LENGTH: usize = 96;
/// How often it is written, at most; where the grace time is short, an eighth of that.
const BEAT: Duration = Duration::from_secs(5);

/// The time without sessiond, and the file that says until when it ran.
#[derive(Debug)]
pub struct Away {
    file: File,
    boot: String,
    clock: Clock,
    every: Duration,
    /// When it was written last, since the host's start.
    written: Duration,
    /// The host has been started since a run that had not ended in good order, and the log does not say so.
    host_failed: bool,
}

/// A moment, by both clocks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Moment {
    boot: String,
    since_boot: u64,
    wall: u64,
    run: Run,
}

/// What is known of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    /// It goes on, or did not end in good order.
    Began,
    /// The same; and that the host had failed before it is not in the log.
    Unsaid,
    /// It ended in good order.
    Ended,
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
        clock: Clock,
    ) -> io::Result<(Self, Option<Duration>)> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(openat(directory, FILE, flags, Mode::RUSR | Mode::WUSR)?);
        let every = BEAT.min(grace / 8);
        let now = Moment::now(&boot, Run::Began, clock.now());
        let mut bytes = [0; LENGTH];
        let last = file.read_exact_at(&mut bytes, 0).ok().and_then(|()| Moment::parse(&bytes));
        let away = last.as_ref().and_then(|last| now.after(last));
        let host_failed = match &last {
            Some(last) => last.run == Run::Unsaid || (last.run == Run::Began && last.boot != now.boot),
            // One that is not whole says nothing; before the first run there is none.
            None => file.metadata()?.len() > 0,
        };
        let mut this = Self { file, boot, clock, every, written: Duration::ZERO, host_failed };
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
        let run = if self.host_failed { Run::Unsaid } else { Run::Began };
        self.file.write_all_at(&Moment::now(&self.boot, run, self.clock.now()).bytes(), 0)
    }

    /// Writes that sessiond ends in good order: everything else is on the disk.
    ///
    /// # Errors
    /// The kernel's.
    pub fn end(&mut self) -> io::Result<()> {
        let run = if self.host_failed { Run::Unsaid } else { Run::Ended };
        self.file.write_all_at(&Moment::now(&self.boot, run, self.clock.now()).bytes(), 0)
    }

    /// Whether the host went down under an earlier run, and the log does not say so yet: what was not on the disk then is lost.
    pub fn host_failed(&self) -> bool {
        self.host_failed
    }

    /// It is in the log, on the disk.
    pub fn said(&mut self) {
        self.host_failed = false;
    }
}

impl Moment {
    fn now(boot: &str, run: Run, now: Time) -> Self {
        let since_boot = u64::try_from(since_boot().as_millis()).unwrap_or(u64::MAX);
        Self { boot: boot.to_owned(), since_boot, wall: now.as_millis(), run }
    }

    /// How long after `earlier`; `None` where a clock went back.
    fn after(&self, earlier: &Self) -> Option<Duration> {
        let span = match self.boot == earlier.boot {
            true => self.since_boot.checked_sub(earlier.since_boot).filter(|span| {
                self.wall.saturating_add(MOST_SET * 1_000) >= earlier.wall.saturating_add(*span)
            }),
            false => self.wall.checked_sub(earlier.wall),
        };
        span.map(Duration::from_millis)
    }

    fn bytes(&self) -> [u8; LENGTH] {
        let mut bytes = [b' '; LENGTH];
        let run = match self.run {
            Run::Began => "",
            Run::Unsaid => UNSAID,
            Run::Ended => ENDED,
        };
        let text = format!("{} {} {} {run} ", self.boot, self.since_boot, self.wall);
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
        let run = match words.next() {
            None => Run::Began,
            Some(ENDED) => Run::Ended,
            Some(UNSAID) => Run::Unsaid,
            Some(_) => return None,
        };
        words.next().is_none().then_some(Self { boot, since_boot, wall, run })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd as _;

    const GRACE: Duration = Duration::from_secs(30);

    fn moment(boot: &str, since_boot: u64, wall: u64) -> Moment {
        Moment { boot: boot.into(), since_boot, wall, run: Run::Began }
    }

    #[test]
    fn within_one_run_of_the_host_the_wall_clock_does_not_matter_but_that_it_was_set_back_denies() {
        let last = moment("a", 1_000, 5_000_000);
        let after = |since_boot, wall| moment("a", since_boot, wall).after(&last);
        for wall in [5_200_000, 5_170_000, 90_000_000] {
            assert_eq!(after(201_000, wall), Some(Duration::from_secs(200)), "{wall}");
        }
        // Sessions are as old as they were, less what it was set back by.
        assert_eq!(after(201_000, 5_169_999), None);
        assert_eq!(after(999, 9_000_000), None);
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
        for run in [Run::Began, Run::Unsaid, Run::Ended] {
            let now = Moment { run, ..now.clone() };
            assert_eq!(Moment::parse(&now.bytes()), Some(now));
        }
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
        let open =
            |boot: &str| Away::open(directory.as_fd(), boot.to_owned(), GRACE, Clock::start()).unwrap().0;
        assert!(!open("a").host_failed(), "the first run");
        assert!(!open("a").host_failed(), "a crash of sessiond");
        let mut last = open("b");
        assert!(last.host_failed());
        last.said();
        last.end().unwrap();
        assert!(!open("c").host_failed());
        assert!(open("d").host_failed(), "that it runs is written at the start");
    }

    #[test]
    fn that_the_host_failed_is_known_until_the_log_says_so_however_often_it_is_begun_or_ended() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let open =
            |boot: &str| Away::open(directory.as_fd(), boot.to_owned(), GRACE, Clock::start()).unwrap().0;
        drop(open("a"));
        // Runs that end before they can write to the log, or in good order without it.
        assert!(open("b").host_failed());
        assert!(open("b").host_failed());
        open("b").write().unwrap();
        open("b").end().unwrap();
        let mut last = open("b");
        assert!(last.host_failed());
        last.said();
        last.write().unwrap();
        assert!(!open("b").host_failed());
        // One that the crash has torn.
        std::fs::write(place.path().join(FILE), [0; LENGTH]).unwrap();
        assert!(open("b").host_failed());
    }

    #[test]
    fn after_a_migration_nobody_knows_how_long_ago_it_was_though_how_the_run_ended_is_known() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let open =
            |boot: &str| Away::open(directory.as_fd(), boot.to_owned(), GRACE, Clock::start()).unwrap();
        // As `levee state migrate` writes it.
        for (run, boot, failed) in
            [("end", "a", false), ("end", "b", false), ("", "a", false), ("", "b", true)]
        {
            let text = format!("{:<95}\n", format!("a {0} {0} {run}", u64::MAX));
            std::fs::write(place.path().join(FILE), text).unwrap();
            let (last, away) = open(boot);
            assert_eq!((away, last.host_failed()), (None, failed), "{run} {boot}");
        }
    }

    #[test]
    fn a_first_run_knows_nothing_and_the_next_one_how_long_ago_it_was() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let open = || Away::open(directory.as_fd(), boot().unwrap(), GRACE, Clock::start()).unwrap();
        let (first, away) = open();
        assert_eq!(away, None);
        assert!(first.due() <= GRACE / 8);
        drop(first);
        std::thread::sleep(Duration::from_millis(30));
        let (_, away) = open();
        assert!(away.is_some_and(|away| (Duration::from_millis(30)..GRACE).contains(&away)), "{away:?}");
    }
}
