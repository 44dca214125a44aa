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
            ToStack::Install { now, session, cipher, esn, inbound, outbound, answered, peer } => {
                let sas = [&inbound, &outbound];
                let pair = convert::install(session, cipher, esn, sas, answered, peer.map(place), None);
                let install = |pair| self.sad.install(now, pair, &LIBRARY).map_err(convert::refusal);
                FromStack::Installed(pair.and_then(install))
            }
            ToStack::Retire { now, spi } => {
                FromStack::Taken(levee_esp::Spi::new(spi).is_some_and(|spi| self.sad.retire(now, spi)))
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
                held: Default::default(),
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

#[cfg(test)]
mod tests {
    use levee_daemon::tunnel::Stack as _;
    use levee_esp::{AddressRange, PortRange, SaKeys, Selector, SelectorSet, SessionPolicy, Spi, Suite};
    use levee_ipc::Secret;
    use levee_ipc::vault::{self, Cipher, Sa, SessionRecord};

    use super::*;

    const SPIS: [u32; 2] = [0x100, 0x200];
    const NOW: Duration = Duration::from_secs(7);

    fn id() -> SessionId {
        SessionId::from_random([1; 16])
    }

    fn key(spi: u32) -> Vec<u8> {
        vec![(spi >> 8) as u8; Suite::Aes256Gcm.keying_material()]
    }

    fn record(ports: (u16, u16)) -> SessionRecord {
        let selector = vault::Selector {
            local: "10.0.0.1/32".parse().unwrap(),
            remote: "10.0.0.2/32".parse().unwrap(),
            protocol: Some(17),
            local_ports: ports,
            remote_ports: (0, u16::MAX),
        };
        let inner = vec!["10.0.0.2".parse().unwrap()];
        SessionRecord { id: id(), inner, selectors: vec![selector], ciphers: None, layered: false }
    }

    fn peer() -> agree::Outer {
        agree::Outer { address: "192.0.2.9:4500".parse().unwrap(), socket: 1 }
    }

    /// The session's other end.
    fn client() -> Sad<SessionId> {
        let one = |address: &str| AddressRange::prefix(address.parse().unwrap(), 32).unwrap();
        let all = Selector {
            local: one("10.0.0.2"),
            remote: one("10.0.0.1"),
            protocol: None,
            local_ports: PortRange::ANY,
            remote_ports: PortRange::ANY,
        };
        let policy = SessionPolicy {
            inner: vec!["10.0.0.2".parse().unwrap()],
            selectors: SelectorSet::new(vec![all]),
            only: None,
        };
        let mut sad = Sad::new(Side::Workstation);
        sad.open_session(id(), policy).unwrap();
        let sa = |spi: u32| (Spi::new(spi).unwrap(), SaKeys::new(Suite::Aes256Gcm, &key(spi)).unwrap());
        let pair = levee_esp::Install {
            session: id(),
            extended: true,
            inbound: sa(SPIS[1]),
            outbound: sa(SPIS[0]),
            answered: false,
            peer: Some(place(peer())),
            aggregation: None,
        };
        sad.install(NOW, pair, &Library::AwsLc).unwrap();
        sad
    }

    /// UDP of these ports, with the ECN field ECT(0), between these ends of 10.0.0.0/24.
    fn packet([from, to]: [u8; 2], [source, destination]: [u16; 2]) -> Vec<u8> {
        let mut packet = vec![0x45, 2, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, to];
        packet.extend(source.to_be_bytes().into_iter().chain(destination.to_be_bytes()));
        packet.extend([0, 12, 0, 0, b't', b'i', b'd', b'e']);
        packet
    }

    fn install() -> ToStack {
        install_as(SPIS, false)
    }

    fn install_as([inbound, outbound]: [u32; 2], answered: bool) -> ToStack {
        let sa = |spi: u32| Sa { spi, keying_material: Secret::new(key(spi)).unwrap() };
        let (inbound, outbound, peer) = (sa(inbound), sa(outbound), Some(peer()));
        ToStack::Install {
            now: NOW,
            session: id(),
            cipher: Cipher::Aes256Gcm,
            esn: true,
            inbound,
            outbound,
            answered,
            peer,
        }
    }

    fn taken(stack: &mut Stack, question: ToStack) -> bool {
        matches!(stack.answer(question), Ok(FromStack::Taken(true)))
    }

    /// What becomes of these packets, in words; nothing of them stays, and no keys are near their end.
    fn leave(stack: &mut Stack, all: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
        leave_at(NOW, stack, all)
    }

    fn leave_at(now: Duration, stack: &mut Stack, all: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
        let mut packets = Items::new();
        assert!(all.iter().all(|packet| packets.add((), packet)));
        let answer = stack.answer(ToStack::Packets { now, packets }).unwrap();
        assert!(stack.used == 0 && stack.buffer.iter().all(|octet| *octet == 0), "it is erased");
        let FromStack::Sealed { outgoing, expiring } = answer else { panic!("{answer:?}") };
        assert!(expiring.is_empty());
        outgoing.iter().map(|(what, bytes)| (said(*what), bytes.to_vec())).collect()
    }

    fn said(what: Outgoing) -> String {
        format!("{what:?}")
    }

    #[test]
    fn what_a_session_may_send_is_sealed_for_its_peer_and_nothing_else_is() {
        let mut stack = Stack::new();
        assert!(!taken(&mut stack, ToStack::Open(record((81, 80)))), "a row that makes no sense");
        assert!(taken(&mut stack, ToStack::Open(record((80, 81)))));
        let (allowed, other, nobodys) =
            (packet([1, 2], [80, 9]), packet([1, 2], [82, 9]), packet([1, 3], [80, 9]));
        assert_eq!(leave(&mut stack, &[&allowed]), [(said(Outgoing::Wanted(id())), vec![])]);
        assert!(matches!(stack.answer(install()), Ok(FromStack::Installed(Ok(())))));
        assert!(matches!(stack.answer(install()), Ok(FromStack::Installed(Err(_)))), "once");

        // Behind its end a packet may have padding, which goes nowhere.
        let padded = [&allowed[..], b"padding"].concat();
        let all = [&allowed[..], &other, &padded, &nobodys, &allowed[..27], &[]];
        let left = leave(&mut stack, &all);
        let mut client = client();
        for (number, (what, bytes)) in left.into_iter().enumerate() {
            if ![0, 2].contains(&number) {
                assert_eq!((what, bytes), (said(Outgoing::Nothing), vec![]), "{number}");
                continue;
            }
            assert_eq!(what, said(Outgoing::Send(Ends { outer: peer(), ecn: 2 })));
            let mut datagram = bytes;
            assert_eq!(datagram.len(), levee_esp::sealed_length(allowed.len()), "{number}");
            let opened = client.open(NOW, &mut datagram, 0, place(peer()), 0).unwrap();
            assert_eq!(datagram.get(..opened.inner.length), Some(&allowed[..]));
        }
        let FromStack::Report(report) = stack.answer(ToStack::Report).unwrap() else { panic!("no report") };
        let count = |name: &str| report.counters.iter().find(|(one, _)| one == name).map(|(_, count)| *count);
        assert_eq!((report.sas.len(), report.sa_count), (1, 1));
        assert_eq!([count("no-sa"), count("selector"), count("malformed")], [Some(1), Some(1), Some(2)]);

        // What is deleted, or over, is sealed no more.
        for spi in [0, SPIS[1]] {
            assert!(!taken(&mut stack, ToStack::Delete { spi }), "{spi}");
        }
        assert!(taken(&mut stack, ToStack::Delete { spi: SPIS[0] }));
        assert_eq!(leave(&mut stack, &[&allowed]), [(said(Outgoing::Wanted(id())), vec![])]);
        assert!(taken(&mut stack, ToStack::Close(id())));
        assert_eq!(leave(&mut stack, &[&allowed]), [(said(Outgoing::Nothing), vec![])]);
    }

    #[test]
    fn keys_that_the_peer_asked_for_wait_to_be_heard_and_others_for_no_more_than_a_moment() {
        let allowed = packet([1, 2], [80, 9]);
        for (answered, then) in [(false, 0x400_u32), (true, SPIS[1])] {
            let mut stack = Stack::new();
            assert!(taken(&mut stack, ToStack::Open(record((80, 80)))));
            stack.answer(install()).unwrap();
            stack.answer(install_as([0x300, 0x400], answered)).unwrap();
            for (after, by) in [(Duration::ZERO, SPIS[1]), (Duration::from_secs(60), then)] {
                let left = leave_at(NOW + after, &mut stack, &[&allowed]);
                let spi = left.first().and_then(|(_, bytes)| bytes.first_chunk::<4>().copied());
                assert_eq!(spi.map(u32::from_be_bytes), Some(by), "{answered} {after:?}");
            }
            // Or until the peer has closed the older for a moment.
            let mut retire = |spi| taken(&mut stack, ToStack::Retire { now: NOW, spi });
            assert_eq!([0, 7, SPIS[0]].map(&mut retire), [false, false, true]);
            let left = leave_at(NOW + Sad::<SessionId>::SETTLE, &mut stack, &[&allowed]);
            assert!(left.iter().all(|(_, bytes)| bytes.starts_with(&0x400_u32.to_be_bytes())), "{left:?}");
        }
    }

    #[test]
    fn of_what_came_the_authentic_is_opened_and_nothing_of_it_stays() {
        let mut stack = Stack::new();
        assert!(taken(&mut stack, ToStack::Open(record((80, 80)))));
        stack.answer(install()).unwrap();
        let mut client = client();
        let sealed = |client: &mut Sad<SessionId>, packet: &[u8]| {
            let Ok(Route::Through(mut lane)) = client.route(NOW, &Inner::parse(packet).unwrap()) else {
                panic!("no way")
            };
            let mut datagram = vec![0; levee_esp::sealed_length(packet.len())];
            datagram[ESP_HEADER..][..packet.len()].copy_from_slice(packet);
            lane.seal(&mut datagram, packet.len()).unwrap();
            datagram
        };
        let (allowed, other) = (packet([2, 1], [9, 80]), packet([2, 1], [9, 81]));
        let good = sealed(&mut client, &allowed);
        let (outside, marked) = (sealed(&mut client, &other), sealed(&mut client, &allowed));
        let mut forged = sealed(&mut client, &allowed);
        *forged.last_mut().unwrap() ^= 1;
        let mut datagrams = Items::new();
        let from = Ends { outer: peer(), ecn: 0 };
        for datagram in [&good[..], &good, &outside, &forged, &[]] {
            assert!(datagrams.add(from, datagram));
        }
        // What was marked outside is marked within (RFC 6040 4.2).
        assert!(datagrams.add(Ends { ecn: 3, ..from }, &marked));
        let answer = stack.answer(ToStack::Datagrams { now: NOW, datagrams }).unwrap();
        assert!(stack.used == 0 && stack.buffer.iter().all(|octet| *octet == 0), "it is erased");
        let FromStack::Opened(packets) = answer else { panic!("{answer:?}") };
        let packets: Vec<&[u8]> = packets.iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(packets[..5], [&allowed[..], &[], &[], &[], &[]]);
        assert_eq!((packets[5].len(), packets[5][1]), (allowed.len(), 3));
    }

    #[test]
    fn the_first_stack_checks_nothing_for_the_second() {
        let check = ToStack::Check { now: NOW, packets: Items::new(), sealed: Items::new() };
        assert!(Stack::new().answer(check).is_err());
        for (whole, is_told) in [(true, true), (false, false)] {
            assert_eq!(answer(whole, FromStack::Taken(true)).is_ok(), is_told);
        }
    }
}
