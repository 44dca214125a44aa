//! Three threads: one hears the warden, one carries out what sessiond asks, one watches the table.

use crate::etcd::{Batch, Client, Done, Fault, Lease, Place, Watch, WatchFault};
use crate::http::Target;
use crate::start::Started;
use levee_ipc::federation::{Ask, Heard};
use levee_ipc::warden::{Attachment, FromWarden, Role};
use levee_ipc::{Channel, RecvError, SendError};
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Octets of entries or changes in one message: well below what a message may have.
const PART: usize = levee_ipc::MAX_MESSAGE / 2;
/// Before a watch that broke is taken up again.
const AGAIN: Duration = Duration::from_millis(200);

/// Works until the warden says stop or is gone, or sessiond is.
///
/// # Errors
/// When the warden or sessiond sends what is no message.
pub fn serve(started: Started) -> Result<(), String> {
    let Started { control, sessiond, signer, target, place } = started;
    let sessiond = Arc::new(sessiond);
    let (asks, asked) = channel();
    let worker = Worker {
        sessiond: Arc::clone(&sessiond),
        client: Client::new(target.clone(), place.clone()),
        target,
        place,
        attempt: Arc::new(AtomicU64::new(0)),
        lease: None,
        doubtful: false,
    };
    let spawn = std::thread::Builder::new().spawn(move || worker.run(&asked));
    spawn.map_err(|e| format!("a thread: {e}"))?;
    loop {
        let mut fds = [PollFd::new(&control, PollFlags::IN), PollFd::new(&*sessiond, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("poll: {error}")),
        }
        match control.try_recv::<FromWarden>() {
            Ok(received) => match received.message {
                FromWarden::Stop => return Ok(()),
                // Another sessiond knows nothing of what this process was asked: it gets another one of us, too.
                FromWarden::Attach(Attachment::Peer { role: Role::Sessiond, .. }) => return Ok(()),
                FromWarden::Attach(
                    Attachment::SignerClient(_) | Attachment::Peer { role: Role::Signer, .. },
                ) => {
                    if let Some(fd) = received.into_fd() {
                        signer.set(Channel::from_fd(fd));
                    }
                }
                _ => {}
            },
            Err(RecvError::Closed) => return Ok(()),
            Err(RecvError::Empty) => {}
            Err(error) => return Err(format!("from the warden: {error}")),
        }
        match sessiond.try_recv::<Ask>() {
            Ok(received) => {
                if asks.send(received.message).is_err() {
                    return Err("the working thread has ended".to_owned());
                }
            }
            Err(RecvError::Closed) => return Ok(()),
            Err(RecvError::Empty) => {}
            Err(error) => return Err(format!("from sessiond: {error}")),
        }
    }
}

struct Worker {
    sessiond: Arc<Channel>,
    client: Client,
    target: Target,
    place: Place,
    /// The try that counts, for the watching thread.
    attempt: Arc<AtomicU64>,
    lease: Option<(u64, Lease)>,
    /// A publishing may still be under way.
    doubtful: bool,
}

fn tell(sessiond: &Channel, heard: &Heard) {
    match sessiond.send(heard) {
        // It being gone is noticed where it is heard.
        Ok(()) | Err(SendError::Closed) => {}
        // What it does not learn it must not take for told: without us it has no lease.
        Err(error) => {
            eprintln!("levee-fsd: to sessiond: {error}");
            std::process::exit(1);
        }
    }
}

/// `all` in parts that each fit a message.
fn parts<T: serde::Serialize>(all: Vec<T>) -> Vec<Vec<T>> {
    let (mut parts, mut part, mut size) = (Vec::new(), Vec::new(), 0);
    for one in all {
        // Nothing that cannot be written was ever read.
        let bytes = postcard::experimental::serialized_size(&one).unwrap_or(PART);
        if size + bytes > PART && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
            size = 0;
        }
        size += bytes;
        part.push(one);
    }
    parts.push(part);
    parts
}

impl Worker {
    fn run(mut self, asked: &Receiver<Ask>) {
        while let Ok(ask) = asked.recv() {
            self.carry_out(ask);
        }
    }

    fn lost(&mut self, attempt: u64, reason: String) {
        self.lease = None;
        self.attempt.store(0, Ordering::SeqCst);
        tell(&self.sessiond, &Heard::Lost { attempt, reason });
    }

    /// The lease of a try that still counts.
    fn lease(&self, of: u64) -> Option<Lease> {
        self.lease.as_ref().filter(|(attempt, _)| *attempt == of).map(|(_, lease)| lease.clone())
    }

    fn carry_out(&mut self, ask: Ask) {
        match ask {
            Ask::Join { attempt, ttl } => {
                (self.lease, self.doubtful) = (None, false);
                self.attempt.store(0, Ordering::SeqCst);
                if let Err(fault) = self.join(attempt, ttl) {
                    self.lost(attempt, fault.to_string());
                }
            }
            Ask::Beat { attempt, number, cut } => {
                let Some(lease) = self.lease(attempt) else { return };
                let done = self.client.beat(&lease, number, cut);
                self.see(attempt, done);
            }
            Ask::Renew { attempt, number } => {
                let Some(lease) = self.lease(attempt) else { return };
                let done = self.client.renew(&lease);
                if self.see(attempt, done).is_some() {
                    tell(&self.sessiond, &Heard::Renewed { attempt, number });
                }
            }
            Ask::Publish { attempt, session } => {
                let id = session.record.id;
                let done = self.lease(attempt).and_then(|_| self.sure(attempt)).and_then(|lease| {
                    let done = self.client.publish(&lease, &session);
                    self.doubtful |= matches!(done, Err(Fault::Unknown(_)));
                    self.see(attempt, done)
                });
                tell(&self.sessiond, &Heard::Published { attempt, session: id, done });
            }
            Ask::Withdraw { attempt, session } => {
                let id = session.record.id;
                let revision = self.lease(attempt).and_then(|_| self.sure(attempt)).and_then(|_| {
                    let done = self.client.withdraw(&session);
                    self.see(attempt, done)
                });
                tell(&self.sessiond, &Heard::Withdrawn { attempt, session: id, revision });
            }
        }
    }

    /// The lease, once nothing that was asked before can still be carried out.
    fn sure(&mut self, attempt: u64) -> Option<Lease> {
        let lease = self.lease(attempt)?;
        if !self.doubtful {
            return Some(lease);
        }
        let done = self.client.new_epoch(&lease);
        let epoch = self.see(attempt, done)?;
        self.doubtful = false;
        let lease = Lease { epoch, ..lease };
        self.lease = Some((attempt, lease.clone()));
        Some(lease)
    }

    /// What a request gave. One of which nothing is known is for sessiond to repeat; a refusal is the end of this try.
    fn see<T>(&mut self, attempt: u64, done: Done<T>) -> Option<T> {
        match done {
            Ok(value) => Some(value),
            Err(Fault::Unknown(_)) => None,
            Err(fault) => {
                self.lost(attempt, fault.to_string());
                None
            }
        }
    }

    fn join(&mut self, attempt: u64, ttl: u64) -> Done<()> {
        let lease = self.client.join(ttl)?;
        let id = lease.id;
        self.lease = Some((attempt, lease));
        let sessiond = Arc::clone(&self.sessiond);
        let (revision, strange) = self.client.table(|entries| {
            for entries in parts(entries) {
                tell(&sessiond, &Heard::There { attempt, entries });
            }
        })?;
        self.attempt.store(attempt, Ordering::SeqCst);
        tell(&self.sessiond, &Heard::Joined { attempt, lease: id, revision });
        if strange > 0 {
            tell(&self.sessiond, &Heard::Strange { attempt, count: strange });
        }
        let watcher = Watcher {
            sessiond,
            target: self.target.clone(),
            place: self.place.clone(),
            current: Arc::clone(&self.attempt),
            attempt,
            seen: revision,
        };
        let spawn = std::thread::Builder::new().spawn(move || watcher.run());
        spawn.map(drop).map_err(|e| Fault::Unknown(format!("a thread: {e}")))
    }
}

struct Watcher {
    sessiond: Arc<Channel>,
    target: Target,
    place: Place,
    current: Arc<AtomicU64>,
    attempt: u64,
    /// Everything up to this change has been told.
    seen: u64,
}

impl Watcher {
    fn counts(&self) -> bool {
        self.current.load(Ordering::SeqCst) == self.attempt
    }

    fn run(mut self) {
        let mut first = 0;
        while self.counts() {
            if let Ok(watch) = Watch::open(&self.target, &self.place, self.seen + 1, first)
                && let Err(reason) = self.follow(watch)
            {
                tell(&self.sessiond, &Heard::Lost { attempt: self.attempt, reason });
                return;
            }
            first += 1;
            std::thread::sleep(AGAIN);
        }
    }

    /// Until the watch breaks.
    fn follow(&mut self, mut watch: Watch) -> Result<(), String> {
        while self.counts() {
            match watch.next(&self.place) {
                Ok(Some(batch)) => self.tell(batch),
                Ok(None) => {}
                Err(WatchFault::Broken) => return Ok(()),
                Err(WatchFault::Lost(reason)) => return Err(reason),
            }
        }
        Ok(())
    }

    fn tell(&mut self, batch: Batch) {
        let attempt = self.attempt;
        if batch.strange > 0 {
            tell(&self.sessiond, &Heard::Strange { attempt, count: batch.strange });
        }
        let parts = parts(batch.changes);
        let last = parts.len().saturating_sub(1);
        for (number, changes) in parts.into_iter().enumerate() {
            // Only the last part brings what has been seen up to the message's end.
            let revision = if number == last { batch.revision.max(self.seen) } else { self.seen };
            if !changes.is_empty() || revision > self.seen {
                tell(&self.sessiond, &Heard::Changed { attempt, revision, changes });
            }
        }
        self.seen = self.seen.max(batch.revision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_one_message_comes_in_several_and_nothing_is_left_out() {
        let all: Vec<Vec<u8>> = (0..300u16).map(|n| vec![n as u8; 3_000]).collect();
        let told = parts(all.clone());
        assert!(told.len() > 20);
        let (a, b) = Channel::pair().unwrap();
        for part in &told {
            a.try_send(part).unwrap();
            assert_eq!(b.recv::<Vec<Vec<u8>>>().unwrap().message, *part);
        }
        assert_eq!(told.concat(), all);
        assert_eq!(parts(Vec::<u8>::new()), [Vec::<u8>::new()]);
    }
}
