//! The host's monotonic clock, which every process reads alike.

use std::time::Duration;

/// CLOCK_MONOTONIC: time since some beginning, the same for all processes of this host; nobody sets it.
pub fn monotonic() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for a timespec, written before the call returns; the clock is one that every kernel has.
    if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) } != 0 {
        // It cannot fail; were it to, every deadline has passed.
        return Duration::MAX;
    }
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_goes_forward() {
        let before = super::monotonic();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(super::monotonic() >= before + std::time::Duration::from_millis(2));
    }
}
