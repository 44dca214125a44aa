//! The host's monotonic clock, which every process reads alike.

use std::time::Duration;

/// CLOCK_MONOTONIC: time since some beginning, the same for all processes of this host; nobody sets it. It stands still
/// while the host is suspended.
pub fn monotonic() -> Duration {
    read(libc::CLOCK_MONOTONIC)
}

/// CLOCK_BOOTTIME: as [`monotonic`], and the time for which the host was suspended counts.
pub fn since_boot() -> Duration {
    read(libc::CLOCK_BOOTTIME)
}

fn read(clock: libc::clockid_t) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for a timespec, written before the call returns; the clock is one of two that every kernel has.
    if unsafe { libc::clock_gettime(clock, &raw mut now) } != 0 {
        // It cannot fail; were it to, every deadline has passed.
        return Duration::MAX;
    }
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Kilohertz of the processor's time-stamp counter, measured against the monotonic clock for this long; `None` where the
/// processor has none. A virtual machine without hardware support sees this counter, and nothing in it to measure it by.
#[cfg(target_arch = "x86_64")]
pub fn counter_khz(over: Duration) -> Option<u32> {
    let both = || {
        // SAFETY: RDTSC reads a register, which every x86-64 processor has; it touches no memory.
        let counter = unsafe { core::arch::x86_64::_rdtsc() };
        (monotonic(), counter)
    };
    let (before, first) = both();
    std::thread::sleep(over);
    let (after, last) = both();
    let nanoseconds = after.checked_sub(before)?.as_nanos();
    let ticks = u128::from(last.checked_sub(first)?);
    u32::try_from(ticks.checked_mul(1_000_000)?.checked_div(nanoseconds)?).ok().filter(|khz| *khz > 0)
}

/// As on x86-64: here there is none.
#[cfg(not(target_arch = "x86_64"))]
pub fn counter_khz(_over: Duration) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_goes_forward() {
        for clock in [super::monotonic, super::since_boot] {
            let before = clock();
            std::thread::sleep(std::time::Duration::from_millis(2));
            assert!(clock() >= before + std::time::Duration::from_millis(2));
        }
    }
}
