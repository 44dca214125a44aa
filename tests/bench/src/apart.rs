//! Each end on a processor of its own: its program and what carries its tunnel.

use std::io;

use levee_lab::role::{keep_on, keep_within};
use rustix::thread::{CpuSet, sched_getaffinity};

/// As long as it lives.
#[derive(Debug)]
pub struct Apart {
    moved: Vec<u32>,
    before: CpuSet,
}

impl Apart {
    /// The server's program and the first of the `carriers` on one processor, this process and the second of them on another.
    ///
    /// # Errors
    /// There are not two processors, or the kernel refuses.
    pub fn new(server: u32, carriers: &[u32]) -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        let processors: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| before.is_set(*cpu)).take(2).collect();
        let [first, second] = processors[..] else {
            return Err(io::Error::other("ends with a processor to themselves need two"));
        };
        let ends = [(server, first), (std::process::id(), second)];
        let carriers = carriers.iter().copied().zip([first, second]);
        let all: Vec<(u32, usize)> = ends.into_iter().chain(carriers).collect();
        let apart = Self { moved: all.iter().map(|(pid, _)| *pid).collect(), before };
        all.into_iter().try_for_each(|(pid, cpu)| keep_on(std::iter::once(pid), cpu))?;
        Ok(apart)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // One that has ended stays where it is.
        let _ = keep_within(self.moved.iter().copied(), &self.before);
    }
}
