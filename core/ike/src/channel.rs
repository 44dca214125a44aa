//! The protected exchange of messages between two peers: windows of message IDs, retransmission, encryption, fragments
//! (RFC 7296 2.1 to 2.3, 3.14; RFC 7383).

use crate::api::{Now, Output, Path, Role};
use crate::config::Timers;
use crate::crypto::Secret;
use crate::crypto::cipher::Cipher;
use crate::crypto::keys::IkeKeys;
use crate::crypto::suite::IkeSuite;
use crate::drops::Drop;
use crate::endpoint::Ctx;
use crate::wire::{Chain, Exchange, GENERIC, HEADER, Header, Notify, NotifyKind, Shape, kind, shape};
use std::collections::BTreeMap;
use std::time::Duration;

/// What is protected is a multiple of so many octets long: a request for a child with a label of up to some 300 octets in both
/// selectors fits into one, and one into a datagram.
const CLASS: usize = 1_024;
/// A notification without data.
const SMALLEST_NOTIFY: usize = GENERIC + 4;

/// Fragments of one message beyond which it is dropped, and octets of what they hold. A chain of ten certificates fits.
const MOST_FRAGMENTS: u16 = 64;
const MOST_REASSEMBLED: usize = 65_536;

/// A request on its way, sent again until it is answered.
#[derive(Debug)]
pub(crate) struct Retransmit {
    datagrams: Vec<Vec<u8>>,
    tries: u32,
    wait: Duration,
    pub(crate) due: Duration,
}

/// What a timer says about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Still within patience.
    Yes,
    /// The peer did not answer any of them.
    Silent,
}

impl Retransmit {
    pub(crate) fn start(datagrams: Vec<Vec<u8>>, path: Path, ctx: &mut Ctx<'_>) -> Self {
        for d in &datagrams {
            transmit(ctx, path, d.clone());
        }
        let wait = ctx.config.timers.retransmit;
        Self { datagrams, tries: 0, wait, due: ctx.now.monotonic.saturating_add(wait) }
    }

    pub(crate) fn on_timer(&mut self, path: Path, ctx: &mut Ctx<'_>) -> Waiting {
        if ctx.now.monotonic < self.due {
            return Waiting::Yes;
        }
        let Timers { tries, .. } = ctx.config.timers;
        if self.tries >= tries {
            return Waiting::Silent;
        }
        self.tries += 1;
        // The factor is strongSwan's: it doubles the patience of a linear wait with few packets.
        self.wait = self.wait.saturating_mul(9) / 5;
        self.due = ctx.now.monotonic.saturating_add(self.wait);
        for d in &self.datagrams {
            transmit(ctx, path, d.clone());
        }
        Waiting::Yes
    }
}

/// Queues a datagram, behind the non-ESP marker where the socket needs it.
pub(crate) fn transmit(ctx: &mut Ctx<'_>, path: Path, mut message: Vec<u8>) {
    if path.marker {
        message.splice(0..0, [0; 4]);
    }
    ctx.out.push_back(Output::Transmit { path, datagram: message });
}

/// A message that came whole, in order and from the peer.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) id: u32,
    pub(crate) exchange: Exchange,
    pub(crate) response: bool,
    pub(crate) first: u8,
    pub(crate) plain: Secret,
    /// The octets that RFC 9242 3.3.2 authenticates: header and Encrypted payload's header as if unfragmented, then the payloads.
    pub(crate) intermediate: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Pending {
    id: u32,
    exchange: Exchange,
    retransmit: Retransmit,
}

#[derive(Debug)]
struct Reassembly {
    id: u32,
    response: bool,
    exchange: Exchange,
    total: u16,
    first: u8,
    parts: BTreeMap<u16, Secret>,
    octets: usize,
}

/// The protected side of one IKE SA. It has no policy; it delivers each request and each response once.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Who began this IKE SA (after a rekeying: who began that).
    pub(crate) role: Role,
    pub(crate) spi_i: u64,
    pub(crate) spi_r: u64,
    pub(crate) suite: IkeSuite,
    pub(crate) sk_d: Secret,
    seal: Cipher,
    open: Cipher,
    /// The keys before the last of RFC 9370's key exchanges: the request that brought the change may come again under them.
    open_before: Option<Cipher>,
    pub(crate) path: Path,
    /// Both sides said that they take fragments.
    pub(crate) fragments: bool,
    /// The way is followed where the peer's authenticated messages come from (RFC 7296 2.23).
    pub(crate) follow: bool,
    next_send: u32,
    pending: Option<Pending>,
    next_expected: u32,
    answering: Option<u32>,
    answered: Vec<Vec<u8>>,
    reassembly: Option<Reassembly>,
    /// When something authentic came last.
    pub(crate) heard: Duration,
}

impl Channel {
    #[expect(clippy::too_many_arguments, reason = "each is a fact about the SA, none has a default")]
    pub(crate) fn new(
        role: Role,
        spi_i: u64,
        spi_r: u64,
        suite: IkeSuite,
        keys: &IkeKeys,
        path: Path,
        fragments: bool,
        now: Now,
        next_send: u32,
        next_expected: u32,
    ) -> Self {
        let (from_initiator, from_responder) = keys.ciphers(&suite);
        let (seal, open) = match role {
            Role::Initiator => (from_initiator, from_responder),
            Role::Responder => (from_responder, from_initiator),
        };
        Self {
            role,
            spi_i,
            spi_r,
            suite,
            sk_d: keys.d.clone(),
            seal,
            open,
            open_before: None,
            path,
            fragments,
            follow: true,
            next_send,
            pending: None,
            next_expected,
            answering: None,
            answered: Vec::new(),
            reassembly: None,
            heard: now.monotonic,
        }
    }

    /// Takes new keys between two exchanges (RFC 9370 2.2.2).
    pub(crate) fn rekey(&mut self, keys: &IkeKeys) {
        let (from_initiator, from_responder) = keys.ciphers(&self.suite);
        let (seal, open) = match self.role {
            Role::Initiator => (from_initiator, from_responder),
            Role::Responder => (from_responder, from_initiator),
        };
        self.seal = seal.after(&self.seal);
        self.open_before = Some(std::mem::replace(&mut self.open, open));
        self.sk_d = keys.d.clone();
    }

    /// The time of the next retransmission.
    pub(crate) fn timer(&self) -> Option<Duration> {
        self.pending.as_ref().map(|p| p.retransmit.due)
    }

    pub(crate) fn on_timer(&mut self, ctx: &mut Ctx<'_>) -> Waiting {
        let path = self.path;
        self.pending.as_mut().map_or(Waiting::Yes, |p| p.retransmit.on_timer(path, ctx))
    }

    /// Takes a message apart. Nothing comes of what is not new, not whole yet or not from the peer.
    pub(crate) fn receive(
        &mut self,
        header: &Header,
        message: &[u8],
        from: Path,
        ctx: &mut Ctx<'_>,
    ) -> Option<Received> {
        match self.try_receive(header, message, from, ctx) {
            Ok(received) => received,
            Err(why) => {
                ctx.counters.count(why);
                None
            }
        }
    }

    fn try_receive(
        &mut self,
        header: &Header,
        message: &[u8],
        from: Path,
        ctx: &mut Ctx<'_>,
    ) -> Result<Option<Received>, Drop> {
        // RFC 7296 3.1: the I flag tells the original initiator's messages.
        if header.from_initiator != (self.role == Role::Responder) {
            return Err(Drop::Unexpected);
        }
        let again = if header.response {
            match &self.pending {
                Some(p) if p.id == header.message_id && p.exchange == header.exchange => false,
                _ => return Err(Drop::MessageId),
            }
        } else if self.answering == Some(header.message_id) {
            return Err(Drop::InProgress);
        } else if header.message_id == self.next_expected && self.answering.is_none() {
            false
        } else if header.message_id.checked_add(1) == Some(self.next_expected) && !self.answered.is_empty() {
            true
        } else {
            return Err(Drop::MessageId);
        };
        let body = message.get(HEADER..).ok_or(Drop::Malformed)?;
        match shape(header.next, body).map_err(|_| Drop::Malformed)? {
            Shape::Clear(_) => Err(Drop::Unexpected),
            Shape::Sealed { first, data } => {
                let plain = self.unseal(message, data, again)?;
                self.authentic(header, from, ctx);
                if again {
                    self.answer_again(ctx);
                    return Ok(None);
                }
                self.reassembly = None;
                Ok(Some(self.deliver(header, first, plain)))
            }
            Shape::Fragment { first, number, total, data } => {
                if !self.fragments || total > MOST_FRAGMENTS {
                    return Err(Drop::Fragment);
                }
                let plain = self.unseal(message, data, again)?;
                self.authentic(header, from, ctx);
                if again {
                    // RFC 7383 2.6.1: only the first fragment of a repeated request is answered.
                    if number == 1 {
                        self.answer_again(ctx);
                    }
                    return Ok(None);
                }
                self.reassemble(header, first, number, total, plain)
            }
        }
    }

    fn unseal(&self, message: &[u8], data: &[u8], again: bool) -> Result<Secret, Drop> {
        let before = self.open_before.as_ref().filter(|_| again);
        let opened = self.open.open(message, data);
        opened.or_else(|e| before.map_or(Err(e), |c| c.open(message, data))).map_err(|_| Drop::Forged)
    }

    fn authentic(&mut self, header: &Header, from: Path, ctx: &mut Ctx<'_>) {
        self.heard = ctx.now.monotonic;
        // RFC 7296 2.23: only a message that is new may move the way, or a replayed one would.
        let new = header.response || header.message_id == self.next_expected;
        if self.follow && new {
            self.path = from;
        }
    }

    fn reassemble(
        &mut self,
        header: &Header,
        first: u8,
        number: u16,
        total: u16,
        plain: Secret,
    ) -> Result<Option<Received>, Drop> {
        let fits = |r: &Reassembly| {
            r.id == header.message_id && r.response == header.response && r.exchange == header.exchange
        };
        let mut r = match self.reassembly.take() {
            // RFC 7383 2.6: a larger total means that the peer fragments anew; a smaller one is old.
            Some(r) if fits(&r) && r.total >= total => {
                if r.total > total {
                    self.reassembly = Some(r);
                    return Err(Drop::Fragment);
                }
                r
            }
            _ => Reassembly {
                id: header.message_id,
                response: header.response,
                exchange: header.exchange,
                total,
                first: 0,
                parts: BTreeMap::new(),
                octets: 0,
            },
        };
        if number == 1 {
            r.first = first;
        }
        let n = plain.len();
        if r.octets.saturating_add(n) > MOST_REASSEMBLED {
            return Err(Drop::Fragment);
        }
        if r.parts.contains_key(&number) {
            self.reassembly = Some(r);
            return Err(Drop::Fragment);
        }
        r.octets += n;
        r.parts.insert(number, plain);
        if r.parts.len() < usize::from(total) {
            self.reassembly = Some(r);
            return Ok(None);
        }
        let mut whole = Secret::new(Vec::with_capacity(r.octets));
        for part in r.parts.values() {
            whole.extend_from_slice(part);
        }
        Ok(Some(self.deliver(header, r.first, whole)))
    }

    fn deliver(&mut self, header: &Header, first: u8, plain: Secret) -> Received {
        if header.response {
            self.pending = None;
        } else {
            self.answering = Some(header.message_id);
        }
        let intermediate =
            (header.exchange == Exchange::Intermediate).then(|| authenticated(*header, first, &plain));
        Received {
            id: header.message_id,
            exchange: header.exchange,
            response: header.response,
            first,
            plain,
            intermediate,
        }
    }

    fn answer_again(&mut self, ctx: &mut Ctx<'_>) {
        for d in &self.answered {
            transmit(ctx, self.path, d.clone());
        }
    }

    /// Sends a request. The one before must have been answered; if it was not, or the message IDs or IVs are used up, nothing is
    /// sent and the answer is `None`. Otherwise it is what RFC 9242 authenticates.
    pub(crate) fn request(
        &mut self,
        exchange: Exchange,
        chain: &Chain,
        ctx: &mut Ctx<'_>,
    ) -> Option<Vec<u8>> {
        if self.pending.is_some() {
            return None;
        }
        let id = self.next_send;
        self.next_send = id.checked_add(1)?;
        let header = self.header(exchange, false, id);
        let datagrams = self.seal(header, chain, ctx)?;
        let retransmit = Retransmit::start(datagrams, self.path, ctx);
        self.pending = Some(Pending { id, exchange, retransmit });
        Some(authenticated(header, chain.first(), chain.bytes()))
    }

    /// Answers the request that was delivered last. Gives what RFC 9242 authenticates.
    pub(crate) fn respond(
        &mut self,
        exchange: Exchange,
        chain: &Chain,
        ctx: &mut Ctx<'_>,
    ) -> Option<Vec<u8>> {
        let id = self.answering.take()?;
        self.next_expected = id.checked_add(1)?;
        let header = self.header(exchange, true, id);
        self.answered = self.seal(header, chain, ctx)?;
        self.answer_again(ctx);
        Some(authenticated(header, chain.first(), chain.bytes()))
    }

    fn header(&self, exchange: Exchange, response: bool, message_id: u32) -> Header {
        Header {
            spi_i: self.spi_i,
            spi_r: self.spi_r,
            next: 0,
            exchange,
            from_initiator: self.role == Role::Initiator,
            response,
            message_id,
        }
    }

    /// The payloads, with a notification behind them that makes them a multiple of [`CLASS`] octets: the length of a name or label
    /// inside does not show. Left as they are where nothing inside varies with one (IKE_INTERMEDIATE), and where a peer that takes no
    /// fragments would get a longer datagram than need be.
    fn padded(&self, exchange: Exchange, chain: &Chain, most: usize) -> Chain {
        let mut padded = chain.clone();
        let length = chain.bytes().len().saturating_add(SMALLEST_NOTIFY);
        // What fits into one datagram stays in one, where a path's are smaller than a class.
        let room = most.saturating_sub(HEADER + GENERIC + self.seal.sealed_length(0));
        let smallest = CLASS.min(room);
        if exchange == Exchange::Intermediate || (length > smallest && !self.fragments) {
            return padded;
        }
        let class = if length <= smallest { smallest } else { length.next_multiple_of(CLASS) };
        let filler = vec![0; class - length];
        padded.push(kind::NOTIFY, Notify::write(NotifyKind::LeveePadding, &filler));
        padded
    }

    fn seal(&mut self, header: Header, chain: &Chain, ctx: &mut Ctx<'_>) -> Option<Vec<Vec<u8>>> {
        let most = ctx.config.limits.fragment_above.max(256);
        let chain = &self.padded(header.exchange, chain, most);
        let whole = HEADER + GENERIC + self.seal.sealed_length(chain.bytes().len());
        if whole <= most || !self.fragments {
            return Some(vec![self.seal_one(header, kind::SK, chain.first(), &[], chain.bytes(), ctx)?]);
        }
        // RFC 7383 2.5.1: as many octets in each as the datagram has room for.
        let overhead = HEADER + GENERIC + 4 + self.seal.sealed_length(0);
        let parts: Vec<&[u8]> = chain.bytes().chunks(most.saturating_sub(overhead).max(64)).collect();
        let total = u16::try_from(parts.len()).ok().filter(|n| *n <= MOST_FRAGMENTS)?;
        let mut out = Vec::with_capacity(parts.len());
        for (number, part) in (1u16..).zip(parts) {
            let first = if number == 1 { chain.first() } else { 0 };
            let [a, b] = number.to_be_bytes();
            let [c, d] = total.to_be_bytes();
            out.push(self.seal_one(header, kind::SKF, first, &[a, b, c, d], part, ctx)?);
        }
        Some(out)
    }

    fn seal_one(
        &mut self,
        mut header: Header,
        kind: u8,
        first: u8,
        numbers: &[u8],
        plain: &[u8],
        ctx: &mut Ctx<'_>,
    ) -> Option<Vec<u8>> {
        let payload = GENERIC + numbers.len() + self.seal.sealed_length(plain.len());
        header.next = kind;
        let mut head = header.write(HEADER + payload).to_vec();
        head.extend_from_slice(&[first, 0]);
        head.extend_from_slice(&u16::try_from(payload).ok()?.to_be_bytes());
        head.extend_from_slice(numbers);
        let mut iv = [0; 16];
        ctx.rng.fill(&mut iv);
        self.seal.seal(head, plain, iv)
    }
}

/// RFC 9242 3.3.2: IntAuth_*A | IntAuth_*P, with the lengths of a message that is neither encrypted nor fragmented.
fn authenticated(mut header: Header, first: u8, plain: &[u8]) -> Vec<u8> {
    header.next = kind::SK;
    let mut out = header.write(HEADER + GENERIC + plain.len()).to_vec();
    out.extend_from_slice(&[first, 0]);
    out.extend_from_slice(&u16::try_from(GENERIC + plain.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend_from_slice(plain);
    out
}

#[cfg(test)]
mod tests;
