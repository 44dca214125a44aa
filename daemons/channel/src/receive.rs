//! From another host: what comes is put together, and given to the reader in order and in time.

use crate::above::{Above, counted};
use crate::far::{self, Far};
use crate::filter::FILTER;
use levee_aead::Library;
use levee_daemon::{Beginning, Events, Fatal, Order, Warden};
use levee_ipc::warden::channel::{self, ChannelPart, Counted, Shape};
use levee_oneway::{Heard, Reached, Receiver};
use levee_sys::sandbox::Sandbox;
use levee_sys::udp;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Receives of one turn, at most: each brings 64 KiB at the most.
const TURN: usize = 32;
const ROOM: usize = 64 << 10;

/// What is late is given up when all that has come was taken, or after this time, if there is always more.
const LONGEST: Duration = Duration::from_millis(250);

/// What is waited for.
#[derive(Clone, Copy, Debug)]
enum Source {
    Warden,
    Wire,
}

/// The lower side: the wire.
#[derive(Debug)]
struct Wire {
    receiver: Receiver<Library>,
    told: channel::Wire,
    no_keys: u64,
    /// Up to where the sender was heard, as the file has it that whoever comes after this process begins with.
    place: Option<Reached>,
    kept: OwnedFd,
    started: Instant,
    /// When something of the sender's came last.
    heard: Instant,
    /// When what is late was given up last.
    settled: Instant,
    datagrams: u64,
}

/// Carries messages until the warden says stop or is gone.
///
/// # Errors
/// A sandbox that cannot be entered, or what the warden said.
pub fn run(shape: Shape, far: Far, beginning: Beginning<ChannelPart>) -> Result<(), Fatal> {
    let Far { wire: told, form, keys, no_keys, heard: kept, socket } = far;
    let kept = kept.ok_or_else(|| Fatal::new("begin", "it is not told up to where it has heard"))?;
    // A receiver that was taken over may have written more: what is behind a place keeps none after it from beginning.
    let mut octets = [0; Reached::LENGTH];
    let length = rustix::io::retry_on_intr(|| rustix::io::pread(&kept, &mut octets, 0));
    let length = length.map_err(|why| Fatal::new("read up to where it has heard", why))?;
    let place = octets.get(..length).and_then(Reached::read);
    let receiver = Receiver::after(place, form, keys, Library::Ring);
    let mut events = Events::new()?;
    let socket = events.watch(socket, Source::Wire).map_err(|why| Fatal::new("wait for the wire", why))?;
    let confined = beginning.confine(&Sandbox::new(FILTER))?;
    let mut warden = confined.ready(&mut events, Source::Warden)?;
    let started = Instant::now();
    let (heard, settled) = (started, started);
    let mut wire = Wire { receiver, told, no_keys, place, kept, started, heard, settled, datagrams: 0 };
    let (mut above, mut room) = (Above::new(shape), vec![0; ROOM]);
    loop {
        let now = Instant::now();
        let due = wire.receiver.due().map(|due| started + due);
        let until = [due, above.due()].into_iter().flatten().min();
        let mut is_empty = true;
        for (source, _) in events.wait(until.map(|until| until.saturating_duration_since(now)))? {
            match source {
                Source::Warden if !hear(&mut warden, &mut above, &mut wire)? => return Ok(()),
                Source::Warden => {}
                Source::Wire => is_empty = wire.take(&socket, &mut room, &mut above)?,
            }
        }
        if is_empty || wire.settled.elapsed() > LONGEST {
            wire.settle(&mut above)?;
        }
        above.tell();
    }
}

/// Does what the warden says; false when it is time to end.
fn hear(warden: &mut Warden<ChannelPart>, above: &mut Above, wire: &mut Wire) -> Result<bool, Fatal> {
    while let Some(order) = warden.hear()? {
        match order {
            Order::Stop => return Ok(false),
            Order::Take(ChannelPart::Above, with) => above.came(with.one()?),
            Order::Take(ChannelPart::Keys { .. }, with) => match far::keys(with, &wire.told) {
                Ok(keys) => wire.receiver.rekey(keys),
                Err(_) => wire.no_keys += 1,
            },
            Order::Take(ChannelPart::Report, _) => {
                warden.say(Counted([above.all(), wire.counted()].concat()))
            }
            Order::Take(part, _) => return Err(Warden::unwanted(&part)),
        }
    }
    Ok(true)
}

impl Wire {
    /// Takes what has come, so much in a turn; whether that was all.
    fn take(&mut self, socket: &OwnedFd, room: &mut [u8], above: &mut Above) -> Result<bool, Fatal> {
        for _ in 0..TURN {
            // Nothing waits; or an error that is of no consequence to what waits.
            let Ok(received) = udp::receive(socket.as_fd(), room) else { return Ok(true) };
            let now = Instant::now();
            let Some(all) = room.get_mut(..received.length).filter(|all| !all.is_empty()) else { continue };
            let size = received.segment.map_or(all.len(), usize::from).max(1);
            for datagram in all.chunks_mut(size) {
                self.datagrams += 1;
                if self.receiver.receive(now.saturating_duration_since(self.started), datagram) {
                    self.heard = now;
                }
            }
            let ready = self.receiver.ready();
            self.give(ready, above)?;
        }
        Ok(false)
    }

    /// Gives up what is late, and gives on what is behind it.
    fn settle(&mut self, above: &mut Above) -> Result<(), Fatal> {
        self.settled = Instant::now();
        let heard = self.receiver.heard(self.settled.saturating_duration_since(self.started));
        self.give(heard, above)
    }

    /// Gives on what is in the file as heard: where this process ends in between, it is missing, and does not come a second time.
    fn give(&mut self, all: Vec<Heard>, above: &mut Above) -> Result<(), Fatal> {
        let place = self.receiver.reached();
        if let Some(now) = place.filter(|_| place != self.place) {
            let written = rustix::io::retry_on_intr(|| rustix::io::pwrite(&self.kept, &now.write(), 0));
            written.map_err(|why| Fatal::new("keep up to where it has heard", why))?;
            self.place = place;
        }
        for heard in all {
            match heard {
                Heard::Message(number, message) => above.give(number, &message),
                Heard::Missing(next) => above.missing_before(next),
            }
        }
        Ok(())
    }

    fn counted(&self) -> Vec<(String, u64)> {
        let counts = self.receiver.counts();
        // Of each key, also that it has opened none: so both hosts' can be held against each other.
        let keys = self.receiver.opened().map(|(key, opened)| (opened_with(&key), opened));
        let counts = counted([
            ("messages that are missing", counts.missing),
            ("blocks that are missing", counts.lost),
            ("blocks that were repaired", counts.repaired),
            ("datagrams received", self.datagrams),
            ("datagrams that nobody needed", counts.spare),
            ("datagrams that are none of its form", counts.malformed),
            ("datagrams that were made without its key", counts.forged),
            ("datagrams of an earlier sender", counts.earlier),
            ("seconds since the sender was heard", silence(self.heard)),
            ("keys that it was given and that are none", self.no_keys),
        ]);
        keys.chain(counts).collect()
    }
}

fn opened_with(key: &str) -> String {
    format!("datagrams opened with the key {key}")
}

/// Of a sender that is there, none.
fn silence(heard: Instant) -> u64 {
    heard.elapsed().saturating_sub(Duration::from_secs(1)).as_secs()
}
