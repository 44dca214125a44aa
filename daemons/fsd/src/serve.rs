//! Three threads: one hears the warden and sessiond, one carries out what sessiond asks, one watches the table.

use crate::etcd::{Client, Done, Fault, Found, News, OwnKeys, Table, Watch, WatchFault};
use crate::http::{Configured, Target};
use crate::start::{Keys, Source, Started};
use levee_daemon::{Fatal, Order, Outbox, TURN, Warden, late_pem};
use levee_ipc::federation::{Ask, Heard};
use levee_ipc::warden::fsd::FsdPart;
use levee_ipc::{Channel, SendError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TrySendError, sync_channel};
use std::time::Duration;

/// Before a watch that broke is taken up again.
const AGAIN: Duration = Duration::from_millis(200);
/// Questions of sessiond that wait for etcd. It asks a few times in a lease, and gives up what is not answered.
const ASKS: usize = 64;
/// The most watches at a time: of tries that are given up, too, until they notice.
const WATCHES: usize = 4;

/// Works until the warden says stop or is gone, or sessiond is.
///
/// # Errors
/// When the warden or sessiond sends what is no message, or sessiond asks more than there may be.
pub fn serve(started: Started) -> Result<(), Fatal> {
    let Started { mut events, mut warden, sessiond: (hears, tells), mut keys, target, own } = started;
    let mut sessiond: Outbox<()> = Outbox::new();
    sessiond.replace(hears, &mut events, Source::Sessiond)?;
    let (asks, asked) = sync_channel(ASKS);
    let config = target.config.clone();
    let newest = Arc::new(AtomicU64::new(0));
    let worker = Worker {
        sessiond: Arc::new(tells),
        client: Client::new(target.clone(), own.clone()),
        target,
        own,
        newest: Arc::clone(&newest),
        watches: Arc::new(AtomicUsize::new(0)),
    };
    let spawn = std::thread::Builder::new().spawn(move || worker.run(&asked));
    spawn.map_err(|why| Fatal::new("start a thread", why))?;
    loop {
        for (source, _) in events.wait(None)? {
            match source {
                Source::Warden => match warden.hear()? {
                    None => {}
                    // Another sessiond knows nothing of what this process was asked: it gets another one of us, too.
                    Some(Order::Stop | Order::Take(FsdPart::Sessiond, _)) => return Ok(()),
                    Some(Order::Take(FsdPart::Signer, with)) => keys.signer.set(with.channel()?),
                    Some(Order::Take(FsdPart::Chain, with)) => {
                        keys.chain = late_pem(&with.one()?)?;
                        go_on_with(&keys, &config);
                    }
                    Some(Order::Take(FsdPart::Authority, with)) => {
                        keys.authority = late_pem(&with.one()?)?;
                        go_on_with(&keys, &config);
                    }
                    Some(Order::Take(part, _)) => return Err(Warden::unwanted(&part)),
                },
                Source::Sessiond => {
                    for _ in 0..TURN {
                        let Ok(heard) = sessiond.hear::<Ask>() else { return Ok(()) };
                        let Some(ask) = heard else { break };
                        if let Ask::Join { attempt, .. } = &ask {
                            newest.store(*attempt, Ordering::SeqCst);
                        }
                        asks.try_send(ask).map_err(|why| match why {
                            TrySendError::Full(_) => Fatal::new("hear sessiond", "it asks too much at once"),
                            TrySendError::Disconnected(_) => {
                                Fatal::new("work", "the working thread has ended")
                            }
                        })?;
                    }
                }
            }
        }
    }
}

/// Connections begin with these from now on. The lease is the table's and not a connection's, so that no session notices.
fn go_on_with(keys: &Keys, config: &Configured) {
    match keys.config() {
        Ok(new) => config.set(new),
        // Those before them go on counting.
        Err(why) => levee_ipc::say!("levee-fsd: new certificates are not used: {why}"),
    }
}

fn tell(sessiond: &Channel, heard: &Heard) {
    // It waits for sessiond to read, and etcd waits for us.
    match sessiond.send(heard) {
        // It being gone is noticed where it is heard.
        Ok(()) | Err(SendError::Closed) => {}
        // What it does not learn it must not take for told: without us it has no lease.
        Err(error) => {
            levee_ipc::say!("levee-fsd: to sessiond: {error}");
            std::process::exit(1);
        }
    }
}

fn tell_found(sessiond: &Channel, attempt: u64, found: Found) {
    let heard = match found {
        Found::Envelope(envelope) => Heard::Told { attempt, envelope },
        Found::Page { server, page, bytes } => Heard::Page { attempt, server, page, bytes },
    };
    tell(sessiond, &heard);
}

fn tell_strange(sessiond: &Channel, attempt: u64, count: u64) {
    if count > 0 {
        tell(sessiond, &Heard::Strange { attempt, count });
    }
}

struct Worker {
    sessiond: Arc<Channel>,
    client: Client,
    target: Target,
    own: OwnKeys,
    /// The try that counts.
    newest: Arc<AtomicU64>,
    watches: Arc<AtomicUsize>,
}

impl Worker {
    fn run(mut self, asked: &Receiver<Ask>) {
        while let Ok(ask) = asked.recv() {
            match ask {
                Ask::Join { attempt, servers } => {
                    let table = Arc::new(Table::new(&self.own, servers));
                    if self.counts(attempt)
                        && let Err(fault) = self.join(attempt, &table)
                    {
                        tell(&self.sessiond, &Heard::Lost { attempt, reason: fault.to_string() });
                    }
                }
                Ask::Put { attempt, number, envelope, pages } => {
                    if !self.counts(attempt) {
                        continue;
                    }
                    match self.client.put(&envelope, &pages) {
                        Ok(()) => tell(&self.sessiond, &Heard::Written { attempt, number }),
                        // Nobody knows: sessiond says it again.
                        Err(Fault::Unknown(_)) => {}
                        Err(fault) => {
                            tell(&self.sessiond, &Heard::Lost { attempt, reason: fault.to_string() })
                        }
                    }
                }
            }
        }
    }

    fn counts(&self, attempt: u64) -> bool {
        self.newest.load(Ordering::SeqCst) == attempt
    }

    fn join(&mut self, attempt: u64, table: &Arc<Table>) -> Done<()> {
        let sessiond = Arc::clone(&self.sessiond);
        let (revision, strange) = self.client.read(table, |found| tell_found(&sessiond, attempt, found))?;
        tell_strange(&sessiond, attempt, strange);
        let watcher = Watcher {
            sessiond: Arc::clone(&sessiond),
            target: self.target.clone(),
            table: Arc::clone(table),
            newest: Arc::clone(&self.newest),
            attempt,
            seen: revision,
            _one: One::of(&self.watches).ok_or_else(|| Fault::Unknown("there are watches left".into()))?,
        };
        let spawn = std::thread::Builder::new().spawn(move || watcher.run());
        spawn.map_err(|why| Fault::Unknown(format!("a thread: {why}")))?;
        tell(&sessiond, &Heard::Joined { attempt });
        Ok(())
    }
}

/// One of as many as there may be.
struct One(Arc<AtomicUsize>);

impl One {
    fn of(count: &Arc<AtomicUsize>) -> Option<Self> {
        // One thread alone makes more.
        let one = Self(Arc::clone(count));
        (count.fetch_add(1, Ordering::SeqCst) < WATCHES).then_some(one)
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

struct Watcher {
    sessiond: Arc<Channel>,
    target: Target,
    table: Arc<Table>,
    newest: Arc<AtomicU64>,
    attempt: u64,
    /// Everything up to this change has been told.
    seen: u64,
    _one: One,
}

impl Watcher {
    fn counts(&self) -> bool {
        self.newest.load(Ordering::SeqCst) == self.attempt
    }

    fn run(mut self) {
        let mut first = 0;
        while self.counts() {
            if let Ok(watch) = Watch::open(&self.target, &self.table, self.seen.saturating_add(1), first)
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
            match watch.next(&self.table) {
                Ok(Some(batch)) => self.tell(batch),
                Ok(None) => {}
                Err(WatchFault::Broken) => return Ok(()),
                Err(WatchFault::Lost(reason)) => return Err(reason),
            }
        }
        Ok(())
    }

    fn tell(&mut self, batch: News) {
        tell_strange(&self.sessiond, self.attempt, batch.strange);
        for found in batch.found {
            tell_found(&self.sessiond, self.attempt, found);
        }
        self.seen = self.seen.max(batch.revision);
    }
}
