//! A store to which nothing can be written.

use std::fs::File;
use std::path::Path;

/// A store to which nothing can be written: what writes there does not end either, killed or not.
#[derive(Debug)]
pub struct Stalled {
    /// Process 1 of its compartment.
    init: String,
    file: File,
}

impl Stalled {
    /// The store of the compartment whose process 1 has this number.
    pub fn store(init: &str) -> Self {
        // Open before: there is no such path once process 1 is dying.
        let file = File::open(format!("/proc/{init}/root/srv/own")).expect("its store");
        let stalled = Self { init: init.to_owned(), file };
        stalled.tell("freeze");
        stalled
    }

    fn tell(&self, what: &str) {
        let place = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.file));
        rustix::io::fcntl_setfd(&self.file, rustix::io::FdFlags::empty()).expect("its descriptor");
        crate::sh("fsfreeze", &[&format!("--{what}"), &place]).ok();
    }

    /// Whether anything of the compartment is there still.
    pub fn is_there(&self) -> bool {
        Path::new("/proc").join(&self.init).exists()
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.tell("unfreeze");
    }
}
