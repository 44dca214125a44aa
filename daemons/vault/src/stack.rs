//! The first of two stacks that must agree: the same database and the same packet code as a vault's, with a channel to
//! the label's gate in place of a device and sockets. `levee-vault --stack`, started by the warden.

use std::time::Duration;

use levee_aead::Library;
use levee_daemon::{Fatal, tunnel};
use levee_esp::{DropReason, ESP_HEADER, Inner, Outer, Route, Sad, Side, ecn};
use levee_ipc::agree::{self, ARRIVING, Ends, FromStack, GROWTH, Items, LEAVING, MOST, Outgoing, ToStack};
use levee_ipc::vault::Report;
use levee_session::SessionId;

use crate::convert;

/// The library of the first stack; the second one has the other.
const LIBRARY: Library = Library::Ring;

/// Whether the warden asks for this with the vault's arguments.
pub fn is_wanted(mut arguments: impl Iterator<Item = String>) -> bool {
    arguments.next().as_deref() == Some("--stack")
}

/// Answers the gate until the warden says stop, or warden or gate is gone.
///
/// # Errors
/// The step that failed.
pub fn run() -> Result<(), Fatal> {
    tunnel::answer::<Stack>()
}

/// A datagram, or a packet with its header, padding and tag.
const BUFFER: usize = if ARRIVING > LEAVING + GROWTH { ARRIVING } else { LEAVING + GROWTH };
const _: () = {
    let mut length = 0;
    while length < 4 {
        assert!(levee_esp::sealed_length(length) <= length + GROWTH);
        length += 1;
    }
};

struct Stack {
    sad: Sad<SessionId>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that have been written to since it was erased.
    used: usize,
}

impl tunnel::Stack for Stack {
    fn new() -> Self {
        Self { sad: Sad::new(Side::Server), buffer: vec![0; BUFFER], used: 0 }
    }

    fn answer(&mut self, question: ToStack) -> Result<FromStack, Fatal> {
        Ok(match question {
            ToStack::Open(record) => {
                let id = record.id;
                let open = |policy| self.sad.open_session(id, policy).is_ok();
                FromStack::Taken(convert::policy(record, None).is_some_and(open))
            }
            ToStack::Close(id) => {
                self.sad.close_session(id);
                FromStack::Taken(true)
            }
            ToStack::Install { now, session, cipher, esn, inbound, outbound, peer } => {
                let pair = convert::install(session, cipher, esn, &inbound, &outbound, peer.map(place), None);
                let install = |pair| self.sad.install(now, pair, &LIBRARY).map_err(convert::refusal);
                FromStack::Installed(pair.and_then(install))
            }
            ToStack::Delete { spi } => {
                FromStack::Taken(levee_esp::Spi::new(spi).is_some_and(|spi| self.sad.delete(spi).is_some()))
            }
            ToStack::Datagrams { now, datagrams } => {
                let mut packets = Items::new();
                let mut whole = true;
                for (from, datagram) in datagrams.iter() {
                    let packet = self.open(now, datagram, from).unwrap_or(&[]);
                    whole &= packets.add((), packet);
                }
                self.erase();
                answer(whole, FromStack::Opened(packets))?
            }
            ToStack::Packets { now, packets } => {
                let mut outgoing = Items::new();
                let mut whole = true;
                for ((), packet) in packets.iter() {
                    let (what, datagram) = self.seal(now, packet);
                    whole &= outgoing.add(what, datagram);
                }
                self.erase();
                let next = || self.sad.next_expiring().map(|(spi, session)| (spi.get(), session));
                let expiring = std::iter::from_fn(next).take(MOST).collect();
                answer(whole, FromStack::Sealed { outgoing, expiring })?
            }
            ToStack::Report => FromStack::Report(Report {
                counters: self.sad.counters.iter().map(|(name, value)| (name.to_owned(), value)).collect(),
                sas: self.sad.pairs().take(Report::ROWS).map(convert::report).collect(),
                sa_count: self.sad.pair_count() as u64,
            }),
            ToStack::Check { .. } => return Err(Fatal::new("answer the gate", "this is the first stack")),
        })
    }
}

impl Stack {
    /// The packet in a datagram, if it may pass.
    fn open(&mut self, now: Duration, datagram: &[u8], from: &Ends) -> Option<&[u8]> {
        self.used = self.used.max(datagram.len());
        let buffer = self.buffer.get_mut(..datagram.len())?;
        buffer.copy_from_slice(datagram);
        // Why not is counted where it was found.
        let opened = self.sad.open(now, buffer, 0, place(from.outer), from.ecn).ok()?;
        buffer.get(..opened.inner.length)
    }

    /// What becomes of a packet, and the datagram that is to be sent.
    fn seal(&mut self, now: Duration, packet: &[u8]) -> (Outgoing, &[u8]) {
        match self.try_seal(now, packet) {
            Ok((what, length)) => (what, self.buffer.get(..length).unwrap_or(&[])),
            Err(reason) => {
                self.sad.counters.count(reason);
                (Outgoing::Nothing, &[])
            }
        }
    }

    fn try_seal(&mut self, now: Duration, packet: &[u8]) -> Result<(Outgoing, usize), DropReason> {
        let inner = Inner::parse(packet)?;
        let packet = packet.get(..inner.length).ok_or(DropReason::Malformed)?;
        // A reason that `route` or `seal` finds is counted there.
        let Ok(route) = self.sad.route(now, &inner) else { return Ok((Outgoing::Nothing, 0)) };
        let mut lane = match route {
            Route::Through(lane) => lane,
            Route::Wait(id) => {
                self.sad.counters.count(DropReason::NoSa);
                return Ok((Outgoing::Wanted(id), 0));
            }
            // No pair here carries AGGFRAG payloads.
            Route::Gather(_) => return Err(DropReason::NoSa),
        };
        self.used = self.used.max(packet.len() + GROWTH);
        let text = self.buffer.get_mut(ESP_HEADER..ESP_HEADER + packet.len()).ok_or(DropReason::Oversize)?;
        text.copy_from_slice(packet);
        let Ok(sealed) = lane.seal(&mut self.buffer, packet.len()) else {
            return Ok((Outgoing::Nothing, 0));
        };
        let socket = u8::try_from(sealed.peer.socket).map_err(|_| DropReason::NoPeer)?;
        let outer = agree::Outer { address: sealed.peer.address, socket };
        Ok((Outgoing::Send(Ends { outer, ecn: ecn::of(packet) }), sealed.length))
    }

    fn erase(&mut self) {
        if let Some(used) = self.buffer.get_mut(..std::mem::take(&mut self.used)) {
            levee_ipc::erase(used);
        }
    }
}

/// An answer with something about each item of the question. It always has, by the bounds of both; if it had not, the
/// gate would be told nothing.
fn answer(whole: bool, answer: FromStack) -> Result<FromStack, Fatal> {
    if whole { Ok(answer) } else { Err(Fatal::new("answer the gate", "the answer is too large")) }
}

fn place(outer: agree::Outer) -> Outer {
    Outer { address: outer.address, socket: outer.socket.into() }
}

impl Drop for Stack {
    fn drop(&mut self) {
        let all: Vec<_> = self.sad.sessions().collect();
        for id in all {
            self.sad.close_session(id);
        }
    }
}
