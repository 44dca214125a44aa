//! To another host: what is taken below is sent, at the site's rate, whatever becomes of it.

use crate::above::counted;
use crate::far::{self, Far};
use crate::filter::FILTER;
use levee_aead::Library;
use levee_daemon::below::{Below, Dropped};
use levee_daemon::pace::{Pace, Turns};
use levee_daemon::{Beginning, Descriptors, Events, Fatal, Order, Warden};
use levee_ipc::warden::channel::{self, ChannelPart, Counted, Shape};
use levee_oneway::{Run, Sender};
use levee_sys::sandbox::Sandbox;
use levee_sys::udp;
use ring::rand::{SecureRandom, SystemRandom};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

/// How often it tells that it is there, and what it has sent: so the other host knows of what is missing although nothing follows.
const BEAT: Duration = Duration::from_millis(250);

/// What is waited for.
#[derive(Clone, Copy, Debug)]
enum Source {
    Warden,
    /// The writer's end with this number.
    Below(u64),
}

/// What happened so far, for operators.
#[derive(Debug, Default)]
struct Counts {
    sent: u64,
    bytes: u64,
    too_large: u64,
    datagrams: u64,
    no_room: u64,
    dropped: Dropped,
    no_keys: u64,
    /// What the key is known by, and how many datagrams were sealed with it.
    sealed: (String, u64),
}

impl Counts {
    fn all(&self) -> Vec<(String, u64)> {
        let (key, sealed) = &self.sealed;
        let sealed = (format!("datagrams sealed with the key {key}"), *sealed);
        let counts = counted([
            ("messages sent", self.sent),
            ("bytes sent", self.bytes),
            ("messages too large", self.too_large),
            ("messages with nothing in them", self.dropped.empty),
            ("messages of writers that are gone, more than there may be", self.dropped.left),
            ("datagrams sent", self.datagrams),
            ("datagrams that the interface did not take", self.no_room),
            ("keys that it was given and that are none", self.no_keys),
        ]);
        std::iter::once(sealed).chain(counts).collect()
    }
}

/// The wire.
#[derive(Debug)]
struct Wire {
    socket: OwnedFd,
    peer: SocketAddr,
    /// Octets of each of a block's datagrams.
    datagram: usize,
    /// Whether the kernel takes many at a time.
    together: bool,
}

/// Carries messages until the warden says stop or is gone.
///
/// # Errors
/// A sandbox that cannot be entered, what the warden said, or the library's.
pub fn run(shape: Shape, far: Far, beginning: Beginning<ChannelPart>) -> Result<(), Fatal> {
    let fault = |why: &dyn std::fmt::Display| Fatal::new("send to the other host", why);
    let mut sender =
        Sender::new(far.form, &far.keys.current, this_run()?, &Library::Ring).map_err(|e| fault(&e))?;
    let (datagram, told) = (far.form.datagram(), far.wire);
    let mut wire = Wire { socket: far.socket, peer: told.peer, datagram, together: true };
    let mut events = Events::new()?;
    let confined = beginning.confine(&Sandbox::new(FILTER))?;
    let mut warden = confined.ready(&mut events, Source::Warden)?;
    let started = Instant::now();
    let (mut turns, mut pace) = (Turns::new(started), Pace::new(shape.rate));
    let most = usize::try_from(shape.size).map_err(|why| Fatal::new("read from the writer", why))?;
    let (mut room, mut below) = (vec![0; most], Below::default());
    let sealed = (far.keys.current.fingerprint(), 0);
    let mut counts = Counts { sealed, no_keys: far.no_keys, ..Counts::default() };
    // The next beat goes at this moment at the earliest.
    let mut beat = started;
    loop {
        let now = Instant::now();
        let (next, due) = (turns.next(), now >= turns.next());
        below.wait(due)?;
        let until = if !due || below.is_ending() { beat.min(next) } else { beat };
        let mut readable = below.is_ending();
        for (source, can) in events.wait(Some(until.saturating_duration_since(now)))? {
            match source {
                Source::Warden => {
                    let sending = (&mut sender, &told, &mut counts);
                    if !hear(&mut warden, &mut events, &mut below, sending)? {
                        return Ok(());
                    }
                }
                Source::Below(number) => {
                    readable = true;
                    if can.gone {
                        below.gone(number, &mut room, &mut counts.dropped);
                    }
                }
            }
        }
        // By the clock and by what the writer has written: whoever is above, or on the wire, has no part in it.
        let now = Instant::now();
        if now >= next && readable {
            turns.begin(&mut pace, now);
            let taken = below.take(&mut pace, &mut room, &mut counts.dropped);
            turns.end(&pace);
            taken.iter().for_each(|message| counts.take(message.as_deref()));
            let messages = taken.iter().map(Option::as_deref);
            sender.send(messages, &mut |block| wire.put(block, &mut counts)).map_err(|e| fault(&e))?;
        }
        if now >= beat {
            beat = now + BEAT;
            let datagram = sender.beat().map_err(|e| fault(&e))?;
            wire.put(&datagram, &mut counts);
        }
    }
}

/// What this process' life is called. Nobody else's is called the same: its keys are made of it.
fn this_run() -> Result<Run, Fatal> {
    let mut random = [0; 8];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|_| Fatal::new("begin", "the kernel has no random numbers"))?;
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let began = began.ok().and_then(|time| u64::try_from(time.as_nanos()).ok());
    let began = began.ok_or_else(|| Fatal::new("begin", "the clock is before 1970, or after 2554"))?;
    Ok(Run { began, random: u64::from_be_bytes(random) })
}

/// Does what the warden says; false when it is time to end.
fn hear(
    warden: &mut Warden<ChannelPart>,
    events: &mut Events<Source>,
    below: &mut Below,
    (sender, told, counts): (&mut Sender, &channel::Wire, &mut Counts),
) -> Result<bool, Fatal> {
    while let Some(order) = warden.hear()? {
        match order {
            Order::Stop => return Ok(false),
            Order::Take(ChannelPart::Below, with) => below.came(with.one()?, events, Source::Below)?,
            Order::Take(ChannelPart::Keys { .. }, with) => {
                if rekey(sender, with, told, counts).is_err() {
                    counts.no_keys += 1;
                }
            }
            Order::Take(ChannelPart::Report, _) => warden.say(Counted(counts.all())),
            Order::Take(part, _) => return Err(Warden::unwanted(&part)),
        }
    }
    Ok(true)
}

/// Goes on with the key that is the current one now, if it is another. Of the next it makes no use.
fn rekey(
    sender: &mut Sender,
    with: Descriptors,
    told: &channel::Wire,
    counts: &mut Counts,
) -> Result<(), Fatal> {
    let current = far::keys(with, told)?.current;
    let key = current.fingerprint();
    if counts.sealed.0 != key {
        sender.rekey(&current, &Library::Ring).map_err(|e| Fatal::new("seal with another key", e))?;
        counts.sealed = (key, 0);
    }
    Ok(())
}

impl Counts {
    fn gone(&mut self, datagrams: u64) {
        self.datagrams = self.datagrams.saturating_add(datagrams);
        self.sealed.1 = self.sealed.1.saturating_add(datagrams);
    }

    fn take(&mut self, message: Option<&[u8]>) {
        match message {
            Some(message) => {
                self.sent += 1;
                self.bytes = self.bytes.saturating_add(u64::try_from(message.len()).unwrap_or(u64::MAX));
            }
            None => self.too_large += 1,
        }
    }
}

impl Wire {
    /// Sends datagrams of one size, many at a time where the kernel can. What it does not take is counted and gone: nobody waits.
    fn put(&mut self, datagrams: &[u8], counts: &mut Counts) {
        let at_once = udp::MAX_SEGMENTS.min(udp::MAX_SEND / self.datagram.max(1)).max(1);
        let segment = u16::try_from(self.datagram).ok();
        for many in datagrams.chunks(at_once * self.datagram) {
            let number = u64::try_from(many.len().div_ceil(self.datagram)).unwrap_or(0);
            if self.together || number == 1 {
                match udp::send(self.socket.as_fd(), many, self.peer, segment, 0) {
                    Ok(()) => {
                        counts.gone(number);
                        continue;
                    }
                    // A device, or a kernel, that cannot: one by one from now on.
                    Err(e) if number > 1 && e.kind() != std::io::ErrorKind::WouldBlock => {
                        self.together = false
                    }
                    Err(_) => {
                        counts.no_room += number;
                        continue;
                    }
                }
            }
            for one in many.chunks(self.datagram) {
                match udp::send(self.socket.as_fd(), one, self.peer, None, 0) {
                    Ok(()) => counts.gone(1),
                    Err(_) => counts.no_room += 1,
                }
            }
        }
    }
}
