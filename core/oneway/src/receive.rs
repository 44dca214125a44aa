//! The receiver: datagrams into blocks, blocks into messages, in order and in time; within bounds, whatever comes.

use crate::Form;
use crate::block::{self, Added, Gathering};
use crate::header::{Header, Kind, OVERHEAD, Run, long};
use crate::keys::{Key, Keys, Opened, Opener, dropped};
use levee_esp::AeadProvider;
use std::collections::BTreeMap;
use std::time::Duration;

/// Blocks that are put together at a time: each has its own octets once, and of its repair symbols as many again at most.
const BLOCKS: u64 = 8;
/// A block that is not whole so long after something behind it came is given up.
const BEHIND: Duration = Duration::from_millis(100);
/// A block that is not whole so long after its first symbol came is given up, even if nothing is behind it.
const LATEST: Duration = Duration::from_secs(1);

/// What became of datagrams, blocks and messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that are none of a channel's, or have another size than this channel's.
    pub malformed: u64,
    /// Datagrams that whoever has the channel's key did not make.
    pub forged: u64,
    /// Datagrams of a sender that another has taken the place of.
    pub earlier: u64,
    /// Datagrams that were not needed: of a block that was whole without them, or given up; or that came twice.
    pub spare: u64,
    /// Blocks that were put together although symbols of them were missing.
    pub repaired: u64,
    /// Blocks that were given up.
    pub lost: u64,
    /// Messages that are missing.
    pub missing: u64,
}

/// What is to be given on.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// The message of this number.
    Message(u64, Vec<u8>),
    /// Messages before this number, and behind those that were given on, are missing.
    Missing(u64),
}

/// Up to where a sender was heard: whoever begins with it takes nothing of before a second time, and knows what is missing since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    run: Run,
    /// The next block.
    block: u64,
    /// The number of the next message, once it is known.
    message: Option<u64>,
    /// Of the keys that count, or counted then, and opened something of this run.
    by: Opened,
}

impl Reached {
    /// Octets of one that is written.
    pub const LENGTH: usize = 64;

    /// Reads one; `None` where nobody was heard yet, or it is none.
    pub fn read(octets: &[u8]) -> Option<Self> {
        let octets: &[u8; Self::LENGTH] = octets.try_into().ok()?;
        let [began, random, block, message] = [0, 8, 16, 24].map(|at| long(octets, at).unwrap_or(0));
        let by = [32, 48].map(|at| (long(octets, at).unwrap_or(0), long(octets, at + 8).unwrap_or(0)));
        let message = (message != u64::MAX).then_some(message);
        let place = Self { run: Run { began, random }, block, message, by };
        (*octets != [0; Self::LENGTH]).then_some(place)
    }

    /// Writes it.
    pub fn write(&self) -> [u8; Self::LENGTH] {
        let [first, second] = self.by;
        let message = self.message.unwrap_or(u64::MAX);
        let all =
            [self.run.began, self.run.random, self.block, message, first.0, first.1, second.0, second.1];
        let mut octets = [0; Self::LENGTH];
        octets.iter_mut().zip(all.into_iter().flat_map(u64::to_be_bytes)).for_each(|(to, from)| *to = from);
        octets
    }
}

/// A block of the sender's.
#[derive(Debug)]
enum Block {
    Gathering(Box<Gathering>),
    Whole(Vec<u8>),
}

/// The receiver.
#[derive(Debug)]
pub struct Receiver<L> {
    form: Form,
    keys: Vec<Key>,
    library: L,
    heard: Option<Hearing>,
    ready: Vec<Heard>,
    counts: Counts,
}

/// The sender that is heard.
#[derive(Debug)]
struct Hearing {
    opener: Opener,
    /// The next block to be given on.
    next: u64,
    /// Those from `next` on of which something came, each with when that was: fewer than [`BLOCKS`] numbers.
    blocks: BTreeMap<u64, (Duration, Block)>,
    /// The newest that a beat said: when, the next block, the next message.
    beat: Option<(Duration, u64, u64)>,
    /// The number of the next message, once it is known.
    message: Option<u64>,
    /// Somebody may have said it whose key counts no more: the next block says it again.
    is_doubtful: bool,
}

impl<L: AeadProvider> Receiver<L> {
    /// Of a channel.
    pub fn new(form: Form, keys: impl Into<Keys>, library: L) -> Self {
        Self::after(None, form, keys, library)
    }

    /// The same, which goes on from a place, if a key counts yet that opened something there: else it may be of whoever had one that does not.
    pub fn after(place: Option<Reached>, form: Form, keys: impl Into<Keys>, library: L) -> Self {
        let keys = Key::all(keys.into(), &[]);
        let heard = place.and_then(|Reached { run, block, message, by }| {
            let opener = Opener::after(&library, &keys, run, by).ok().flatten()?;
            let mut heard = Hearing::new(opener, block, message);
            heard.doubt(dropped(&by, &keys));
            Some(heard)
        });
        Self { form, keys, library, heard, ready: Vec::new(), counts: Counts::default() }
    }

    /// Up to where the sender was heard, with all that [`Receiver::ready`] and [`Receiver::heard`] have to give on by now.
    pub fn reached(&self) -> Option<Reached> {
        let heard = self.heard.as_ref()?;
        let by = heard.opener.by_which(&self.keys);
        let message = heard.message.filter(|_| !heard.is_doubtful);
        Some(Reached { run: heard.opener.run, block: heard.next, message, by })
    }

    /// Takes what is sealed with these keys from now on, and with no other. A sender of whom nothing was sealed with any of them is not heard
    /// any more: another may be. Of one that is, nothing holds that was sealed with a key that counts no more and did not come to pass.
    pub fn rekey(&mut self, keys: Keys) {
        let by = self.heard.as_ref().map(|heard| heard.opener.by_which(&self.keys));
        self.keys = Key::all(keys, &self.keys);
        let Some((mut heard, by)) = self.heard.take().zip(by) else { return };
        match Opener::after(&self.library, &self.keys, heard.opener.run, by) {
            Ok(Some(opener)) => {
                heard.opener = opener;
                let lost = heard.doubt(dropped(&by, &self.keys));
                self.counts.lost = self.counts.lost.saturating_add(lost);
                self.heard = Some(heard);
            }
            Ok(None) | Err(_) => {
                let left = u64::try_from(heard.blocks.len()).unwrap_or(u64::MAX);
                self.counts.lost = self.counts.lost.saturating_add(left);
            }
        }
    }

    /// What each key is known by, and how many datagrams were opened with it: of the current, and of the next, if there is one.
    pub fn opened(&self) -> impl Iterator<Item = (String, u64)> {
        self.keys.iter().map(|key| (key.fingerprint(), key.opened))
    }

    /// Takes a datagram, which it may change. Whether the sender made it, and it was of use.
    pub fn receive(&mut self, now: Duration, datagram: &mut [u8]) -> bool {
        let read = datagram.first_chunk().map(Header::read);
        let Some(Ok(header)) = read else {
            self.counts.malformed += 1;
            return false;
        };
        let length = match header.kind {
            Kind::Symbol { .. } => self.form.datagram(),
            Kind::Beat(_) => OVERHEAD + 8,
        };
        if datagram.len() != length {
            self.counts.malformed += 1;
            return false;
        }
        match self.heard.as_ref().map(|heard| heard.opener.run) {
            Some(run) if run == header.run => self.known(now, &header, datagram),
            // What is not newer is not believed, whoever made it: somebody may say it a second time.
            Some(run) if header.run.began <= run.began => {
                self.counts.earlier += 1;
                false
            }
            _ => self.unknown(now, &header, datagram),
        }
    }

    /// Of a sender that is not heard yet: the first that it sealed makes it heard.
    fn unknown(&mut self, now: Duration, header: &Header, datagram: &mut [u8]) -> bool {
        let opener = Opener::new(&self.library, &self.keys, header.run).ok();
        let Some(opener) = opener.filter(|opener| opener.opens(header, datagram)) else {
            self.counts.forged += 1;
            return false;
        };
        let (next, message) = if self.heard.is_some() {
            // Nothing more of the one before it is waited for: what has come of it goes on, and what has not is told.
            self.settle(Some(Duration::MAX));
            (0, Some(0))
        } else {
            // Of the first that is ever heard nobody knows how long it has been sending.
            (header.block, (header.block == 0).then_some(0))
        };
        self.heard = Some(Hearing::new(opener, next, message));
        self.known(now, header, datagram)
    }

    fn known(&mut self, now: Duration, header: &Header, datagram: &mut [u8]) -> bool {
        let Some(heard) = &mut self.heard else { return false };
        if let Kind::Symbol { length, number } = header.kind
            && !heard.wants(&self.form, header.block, length, number)
        {
            self.counts.spare += 1;
            return false;
        }
        let Ok(text) = heard.opener.open(&mut self.keys, header, datagram) else {
            self.counts.forged += 1;
            return false;
        };
        match header.kind {
            Kind::Beat(_) => {
                let Ok(message) = long(text, 0) else { return false };
                heard.beat(now, header.block, message);
            }
            Kind::Symbol { length, number } => {
                let symbol = text.to_vec();
                self.make_room(header.block);
                self.symbol(now, header.block, length, number, &symbol);
            }
        }
        self.settle(None);
        true
    }

    /// Goes on from the oldest blocks, whole or not, where this one is too far behind them.
    fn make_room(&mut self, block: u64) {
        let first = block.saturating_sub(BLOCKS - 1);
        while self.heard.as_ref().is_some_and(|heard| heard.next < first) && self.step(true, Some(first)) {}
    }

    fn symbol(&mut self, now: Duration, block: u64, length: u32, number: u32, symbol: &[u8]) {
        let Some(heard) = self.heard.as_mut().filter(|heard| heard.next <= block) else { return };
        let new = || (now, Block::Gathering(Box::new(Gathering::new(&self.form, length))));
        let (_, one) = heard.blocks.entry(block).or_insert_with(new);
        let Block::Gathering(gathering) = one else { return };
        match gathering.add(&self.form, number, symbol) {
            Added::Whole(whole) => {
                self.counts.repaired += u64::from(gathering.lacked());
                *one = Block::Whole(whole);
            }
            Added::More | Added::Nothing => {}
        }
    }

    /// Gives up what is due, and answers what is to be given on. Whoever has datagrams still to be taken takes those first: what is in
    /// them is not late.
    pub fn heard(&mut self, now: Duration) -> Vec<Heard> {
        self.settle(Some(now));
        self.ready()
    }

    /// What is to be given on by now, without giving anything up.
    pub fn ready(&mut self) -> Vec<Heard> {
        std::mem::take(&mut self.ready)
    }

    /// When something is given up next, if nothing comes.
    pub fn due(&self) -> Option<Duration> {
        self.heard.as_ref()?.due()
    }

    /// What became of everything so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The sender that is heard.
    pub fn run(&self) -> Option<Run> {
        self.heard.as_ref().map(|heard| heard.opener.run)
    }

    /// Blocks that it has something of.
    pub fn blocks(&self) -> usize {
        self.heard.as_ref().map_or(0, |heard| heard.blocks.len())
    }

    /// Gives on what is next, as far as that is known, and gives up what is due, where it is told the time.
    fn settle(&mut self, now: Option<Duration>) {
        loop {
            let Some(heard) = &self.heard else { return };
            let is_due = heard.due().zip(now).is_some_and(|(due, now)| due <= now);
            let beat = heard.beat.map(|(_, block, _)| block);
            if !self.step(is_due, beat) {
                break;
            }
        }
        let Some(heard) = &mut self.heard else { return };
        if let Some((.., message)) = heard.beat.filter(|(_, block, _)| heard.next == *block) {
            let known = heard.message.get_or_insert(message);
            if std::mem::take(&mut heard.is_doubtful) {
                *known = message.min(*known);
            }
            if *known < message {
                self.counts.missing = self.counts.missing.saturating_add(message - *known);
                *known = message;
                self.ready.push(Heard::Missing(message));
            }
        }
    }

    /// Goes on by one block: by one that is whole; and, where it is due, by whatever is next: at most to `to`, or to the next of which something
    /// has come. Whether there was one.
    fn step(&mut self, is_due: bool, to: Option<u64>) -> bool {
        let Some(heard) = &mut self.heard else { return false };
        let next = heard.next;
        match heard.blocks.remove(&next) {
            Some((_, Block::Whole(block))) => {
                heard.next = next.saturating_add(1);
                self.give(&block);
            }
            Some((since, gathering @ Block::Gathering(_))) if !is_due => {
                heard.blocks.insert(next, (since, gathering));
                return false;
            }
            Some((_, Block::Gathering(_))) => {
                heard.next = next.saturating_add(1);
                self.counts.lost = self.counts.lost.saturating_add(1);
            }
            None => {
                let known = heard.blocks.keys().next().copied();
                let Some(then) = known.into_iter().chain(to).filter(|then| is_due && *then > next).min()
                else {
                    return false;
                };
                self.counts.lost = self.counts.lost.saturating_add(then - next);
                heard.next = then;
            }
        }
        true
    }

    /// Gives on the messages of a block.
    fn give(&mut self, block: &[u8]) {
        let Some(heard) = &mut self.heard else { return };
        let read = block::read(block, self.form.message);
        // Numbers do not go back, but for one that may be made up.
        let forward =
            |(first, _): &(u64, _)| heard.is_doubtful || heard.message.is_none_or(|known| known <= *first);
        let Some((first, messages)) = read.ok().filter(forward) else {
            self.counts.lost = self.counts.lost.saturating_add(1);
            return;
        };
        heard.is_doubtful = false;
        let before = first.saturating_sub(heard.message.unwrap_or(first));
        self.counts.missing = self.counts.missing.saturating_add(before);
        let mut number = first;
        for message in messages {
            let this = number;
            number = number.saturating_add(1);
            match message {
                Some(message) => self.ready.push(Heard::Message(this, message)),
                None => {
                    self.counts.missing = self.counts.missing.saturating_add(1);
                    self.ready.push(Heard::Missing(number));
                }
            }
        }
        heard.message = Some(number);
    }
}

impl Hearing {
    fn new(opener: Opener, next: u64, message: Option<u64>) -> Self {
        Self { opener, next, blocks: BTreeMap::new(), beat: None, message, is_doubtful: false }
    }

    /// A key counts no more that has opened something up to there: what whoever has it may have made up of what is to come is forgotten.
    /// How many blocks are lost by that.
    fn doubt(&mut self, dropped: Option<u64>) -> u64 {
        let Some(dropped) = dropped else { return 0 };
        let next = self.next.min(self.opener.to().unwrap_or(0));
        let is_made_up = dropped > next;
        (self.next, self.beat, self.is_doubtful) = (next, None, true);
        let lost = if is_made_up { std::mem::take(&mut self.blocks).len() } else { 0 };
        u64::try_from(lost).unwrap_or(u64::MAX)
    }

    /// Whether a symbol could be of use.
    fn wants(&self, form: &Form, block: u64, length: u32, number: u32) -> bool {
        // The last has no number behind it.
        if block < self.next || block == u64::MAX || number >= form.sent(length) {
            return false;
        }
        match self.blocks.get(&block) {
            Some((_, Block::Gathering(gathering))) => gathering.wants(length, number),
            Some(_) => false,
            None => true,
        }
    }

    fn beat(&mut self, now: Duration, block: u64, message: u64) {
        // One that comes late says nothing new.
        if self.beat.is_none_or(|(_, known, _)| known < block) {
            self.beat = Some((now, block, message));
        }
    }

    /// When the next block is given up.
    fn due(&self) -> Option<Duration> {
        let own = self.blocks.get(&self.next).map(|(since, _)| since.saturating_add(LATEST));
        let behind = self.blocks.iter().filter(|(number, _)| **number > self.next);
        let behind = behind.map(|(_, (since, _))| since.saturating_add(BEHIND));
        let beat = self.beat.filter(|(_, block, _)| *block > self.next);
        let beat = beat.map(|(at, ..)| at.saturating_add(BEHIND));
        own.into_iter().chain(behind).chain(beat).min()
    }
}
