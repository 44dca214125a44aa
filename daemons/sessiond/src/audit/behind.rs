//! A thread that syncs the log's file while the log goes on, for records that nobody waits for: a sync takes as long as a connection and more, and
//! everybody would wait for it.

use rustix::event::{EventfdFlags, eventfd};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// The thread. It ends with the process.
#[derive(Debug)]
pub struct Syncer {
    files: SyncSender<Arc<File>>,
    done: Receiver<io::Result<()>>,
    bell: Arc<OwnedFd>,
}

impl Syncer {
    /// What wakes the loop when a sync has ended; made outside the sandbox, which makes no descriptors of this kind.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bell() -> io::Result<OwnedFd> {
        Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
    }

    /// Starts the thread. Call it inside the sandbox, which threads inherit.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(bell: OwnedFd) -> io::Result<Self> {
        let bell = Arc::new(bell);
        // One at a time: the log asks for no other before it has heard of the last.
        let (files, queue) = sync_channel::<Arc<File>>(1);
        let (report, done) = sync_channel(1);
        let wake = Arc::clone(&bell);
        // Without a name: the sandbox has no prctl.
        std::thread::Builder::new().spawn(move || {
            while let Ok(file) = queue.recv() {
                let synced = file.sync_data();
                // The file may be a full one, which goes with its last holder.
                drop(file);
                if report.send(synced).is_err() || rustix::io::write(&*wake, &1u64.to_ne_bytes()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { files, done, bell })
    }

    /// What is readable when a sync has ended.
    pub fn waited_for(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.bell)
    }

    /// Has a file synced as it is now. False if there is nobody to do it.
    #[must_use]
    pub fn begin(&self, file: Arc<File>) -> bool {
        self.files.try_send(file).is_ok()
    }

    /// What came of the sync that was begun; `None` while it is under way.
    pub fn ended(&self) -> Option<io::Result<()>> {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&*self.bell, &mut count);
        match self.done.try_recv() {
            Ok(synced) => Some(synced),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(gone())),
        }
    }

    /// The same, waited for.
    ///
    /// # Errors
    /// The disk's, or that nobody syncs any more.
    pub fn end(&self) -> io::Result<()> {
        self.done.recv().unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that syncs is gone")
}
