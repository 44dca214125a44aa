//! The signer's loop.

use crate::away::Away;
use crate::content;
use crate::keys::Keys;
use crate::ledger::Ledger;
use crate::ppk::Ppks;
use levee_daemon::{Bound, Descriptors, Events, Fatal, Kit, Many, One, Order, Outbox, Warden, begin};
use levee_ipc::federation::Statement;
use levee_ipc::signer::{FromSigner, ToSigner, Use};
use levee_ipc::warden::Place;
use levee_ipc::warden::signer::{SignerPart as Part, Unusable};
use levee_ipc::{Channel, Received, Secret};
use levee_sys::sandbox::Sandbox;
use std::collections::BTreeMap;
use std::time::Instant;

/// The system calls that the signer may make.
const FILTER: &str = include_str!("../../../conf/seccomp/signer.toml");

/// The most channels at a time: one for each client of the trusted path, and a few more.
const MAX_CLIENTS: usize = 4096;
/// The most places that checkpoints are sent to.
const MAX_AWAY: usize = 4;

/// What the warden gives. Keys are read as they come, so that the passphrase is gone before anything else is done.
#[derive(Default)]
struct Given {
    passphrase: Option<Secret>,
    keys: Keys,
    ppks: Ppks,
    ledger: One<Ledger>,
    away: Many<Away, MAX_AWAY>,
    clients: Many<(Use, Channel), MAX_CLIENTS>,
    /// The first file that cannot be used, and why.
    unusable: Option<String>,
}

impl Kit for Given {
    type Part = Part;

    fn take(&mut self, part: Part, with: Descriptors) -> Result<(), Fatal> {
        if self.unusable.is_some() {
            return Ok(());
        }
        let read = match part {
            Part::AuditChain => match Ledger::open(with.one()?) {
                Ok(ledger) => return self.ledger.put(ledger),
                Err(why) => Err(format!("the file of the audit log's hash {why}")),
            },
            Part::Checkpoints => return self.away.put(Away::new(with.one()?)),
            Part::Passphrase(secret) => {
                self.passphrase = Some(secret);
                return Ok(());
            }
            Part::Client(key_use) => return self.clients.put((key_use, with.channel()?)),
            Part::PrivateKey(key_use) => {
                let read = self.keys.read(key_use, with.one()?, self.passphrase.as_ref());
                read.map_err(|why| format!("the file of the key for {key_use:?} {why}"))
            }
            Part::Ppk(id) => {
                let read = self.ppks.read(id.clone(), with.one()?, self.passphrase.as_ref());
                read.map_err(|why| format!("the file of the PPK {id} {why}"))
            }
        };
        if let Err(why) = read {
            self.unusable.get_or_insert(why);
        }
        Ok(())
    }
}

struct Client {
    channel: Outbox<FromSigner>,
    key_use: Use,
    /// Whether the warden gave it: the trusted path server's own channel, which may introduce others.
    parent: bool,
}

#[derive(Clone, Copy)]
enum Source {
    Warden,
    Client(u64),
}

struct Signer {
    keys: Keys,
    ppks: Ppks,
    ledger: Option<Ledger>,
    away: Vec<Away>,
    place: Place,
    /// The run and number of the last statement that was signed.
    stated: (u64, u64),
    events: Events<Source>,
    clients: BTreeMap<u64, Client>,
    next: u64,
}

/// Takes part in the warden's start-up, then serves until the warden says stop or is gone.
///
/// # Errors
/// Why it cannot go on.
pub fn serve() -> Result<(), Fatal> {
    let Some((mut given, beginning)) = begin::<Given>()? else { return Ok(()) };
    if let Some(why) = given.unusable {
        beginning.say(Unusable(why.clone()))?;
        return Err(Fatal::new("read the keys", why));
    }
    drop(given.passphrase.take());
    levee_sys::wipe::scrub_stack();
    let place = beginning.place;
    let mut events = Events::new()?;
    let confined = beginning.confine(&Sandbox::new(FILTER))?;
    let mut warden: Warden<Part> = confined.ready(&mut events, Source::Warden)?;
    let (keys, ppks, clients) = (given.keys, given.ppks, BTreeMap::new());
    let (ledger, away) = (given.ledger.get(), given.away.all());
    let mut signer = Signer { keys, ppks, ledger, away, place, stated: (0, 0), events, clients, next: 0 };
    for (key_use, channel) in given.clients.all() {
        signer.join(channel, key_use, true);
    }
    loop {
        let due = signer.ledger.as_ref().and_then(Ledger::due);
        let limit = due.map(|due| due.saturating_duration_since(Instant::now()));
        let ready = signer.events.wait(limit)?;
        if due.is_some_and(|due| due <= Instant::now())
            && signer.ledger.as_mut().is_some_and(|ledger| !ledger.sync())
        {
            return Err(Fatal::new("sync the audit log's hash", "the disk says no"));
        }
        for (source, _) in ready {
            match source {
                Source::Warden => match warden.hear()? {
                    None => {}
                    Some(Order::Stop) => return Ok(()),
                    Some(Order::Take(Part::Client(key_use), with)) => {
                        signer.join(with.channel()?, key_use, true);
                    }
                    Some(Order::Take(part, _)) => return Err(Warden::unwanted(&part)),
                },
                // One request of each client a turn, so that none waits for more than one of each other.
                Source::Client(number) => signer.hear(number),
            }
        }
    }
}

impl Signer {
    /// Takes a channel. One that replaces another comes when that one's end is closed.
    fn join(&mut self, channel: Channel, key_use: Use, parent: bool) {
        let mut client = Client { channel: Outbox::with(Bound::ANSWERS), key_use, parent };
        let opened = client.channel.replace(channel, &mut self.events, Source::Client(self.next));
        if opened.is_ok() && (parent || self.clients.len() < MAX_CLIENTS) {
            self.clients.insert(self.next, client);
            self.next += 1;
        }
    }

    /// Answers one request. A channel that is closed, malformed, or not read by its client is done with.
    fn hear(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        match client.channel.hear_with::<ToSigner>() {
            Ok(None) => {}
            Ok(Some(Received { message: ToSigner::Join, mut fds })) => {
                // The one request without an answer. A client that was itself introduced introduces nobody.
                let (key_use, may) = (client.key_use, client.parent && client.key_use == Use::Tls);
                match (fds.pop(), fds.is_empty()) {
                    (Some(fd), true) if may => self.join(Channel::from_fd(fd), key_use, false),
                    _ => drop(self.clients.remove(&number)),
                }
            }
            Ok(Some(Received { message, fds })) if fds.is_empty() => {
                let answer = match message {
                    ToSigner::MixPpk { id, prf, keys } if client.key_use == Use::Ike => {
                        self.ppks.mix(&id, prf, &keys).map(FromSigner::Mixed)
                    }
                    ToSigner::Statement(statement)
                        if client.key_use == Use::Audit && self.place == Place::Server =>
                    {
                        Some(state(&statement, &mut self.stated, &self.keys))
                    }
                    request if client.key_use == Use::Audit => {
                        self.ledger.as_mut().and_then(|ledger| audit(request, ledger, &self.keys, &self.away))
                    }
                    request => content::check(request, client.key_use, self.place)
                        .and_then(|content| self.keys.sign(client.key_use, &content))
                        .map(FromSigner::Signature),
                };
                client.channel.send(answer.unwrap_or(FromSigner::Refused));
            }
            Ok(Some(_)) | Err(_) => drop(self.clients.remove(&number)),
        }
    }
}

/// What sessiond says to other servers. What was said once is not said otherwise, and never taken back.
fn state(statement: &Statement, stated: &mut (u64, u64), keys: &Keys) -> FromSigner {
    let (epoch, number) = (statement.epoch, statement.number);
    let signature = ((epoch, number) > *stated)
        .then(|| keys.sign(Use::Federation, &content::statement(statement)))
        .flatten();
    if signature.is_some() {
        *stated = (epoch, number);
    }
    FromSigner::Stated { epoch, number, signature }
}

/// What sessiond asks about its log.
fn audit(request: ToSigner, ledger: &mut Ledger, keys: &Keys, away: &[Away]) -> Option<FromSigner> {
    let chain = match request {
        ToSigner::AuditChain => ledger.chain(),
        ToSigner::AuditRecords { from, digests } => ledger.extend(from, &digests, Instant::now())?,
        ToSigner::AuditCheckpoint => {
            // What was signed is never gone back on.
            if !ledger.sync() {
                return None;
            }
            let chain = ledger.chain();
            let signature = keys.sign(Use::Audit, &content::checkpoint(&chain))?;
            // Each of them, whatever the others say.
            let kept_back = away.iter().filter(|away| !away.send(&chain, &signature)).count() > 0;
            let (count, hash) = (chain.count, chain.hash.0);
            return Some(FromSigner::Checkpoint { count, hash, signature, kept_back });
        }
        _ => return None,
    };
    Some(FromSigner::Chained { count: chain.count, hash: chain.hash.0 })
}
