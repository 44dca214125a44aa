//! What a server says to the others of its site: one signed statement, and pages with its sessions, which the statement names by
//! their digests. Whoever carries them can keep them back, and can change nothing in them.

use super::setting::Setting;
use crate::{SessionId, Stored};
use levee_policy::{DomainName, SiteName};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The most other servers in a statement.
pub const PEERS: usize = 64;
/// The most pages of one server.
pub const PAGES: usize = 256;
/// The most octets of a signature of a log's end.
pub const SIGNATURE: usize = 128;
/// The most octets of a page.
pub const PAGE: usize = 8192;
/// The most pages that are written with one statement.
pub(super) const AT_ONCE: usize = 3;
/// What begins the octets that are signed. Nothing else that a signer signs begins so.
const PREFIX: &[u8] = b"levee federation statement\0";

/// SHA-256 of a page; all zero where there is none.
pub type Digest = [u8; 32];
/// Instead of a page without sessions.
pub(super) const NONE: Digest = [0; 32];

/// What a server says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// The site.
    pub site: SiteName,
    /// Who says it.
    pub server: DomainName,
    /// Its run: larger than that of any run before.
    pub epoch: u64,
    /// The statement's number in this run: larger than that of any before.
    pub number: u64,
    /// How it stands to the others; each is named at most once.
    pub words: Vec<Word>,
    /// The pages with its live sessions, by digest.
    pub pages: Vec<Digest>,
    /// Which postures are in force at it.
    pub setting: Setting,
    /// Nothing is left at it that these do not allow.
    pub is_kept: bool,
    /// SHA-256 of the postures of its site file: where they are others, a name means something else.
    pub postures: Digest,
    /// How far its audit log was when its signer signed it last.
    pub signed: Option<Signed>,
}

/// A checkpoint of a server's audit log, which the others keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    /// How many records.
    pub count: u64,
    /// The running hash after them.
    pub hash: Digest,
    /// The signature, at most [`SIGNATURE`] octets. Who can read the signer's audit key checks it; nobody else believes it.
    pub signature: Vec<u8>,
}

/// How a server stands to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// The other.
    pub server: DomainName,
    /// The run of it that is spoken of.
    pub epoch: u64,
    /// The last of its statements that was heard in whole.
    pub heard: u64,
    /// A statement of its that was heard while it was fresh: from when that was made, the other may use this server's sessions for a
    /// lease. 0: it may not.
    pub granted: u64,
    /// No packet passes here of sessions that this statement of the other, or one before it, had no more.
    pub done: u64,
}

impl Statement {
    /// As it is written, and signed behind a prefix.
    pub fn encode(&self) -> Vec<u8> {
        // It cannot fail; and what is empty is nobody's statement.
        postcard::to_allocvec(self).unwrap_or_default()
    }

    /// Reads one, to the last octet.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (statement, rest): (Self, _) = postcard::take_from_bytes(bytes).ok()?;
        let bounded = statement.words.len() <= PEERS && statement.pages.len() <= PAGES;
        let signed = statement.signed.as_ref().is_none_or(|signed| signed.signature.len() <= SIGNATURE);
        let bounded = bounded && signed && statement.setting.is_sound();
        // No second spelling of one thing.
        (bounded && rest.is_empty() && statement.encode() == bytes).then_some(statement)
    }

    /// The octets that are signed for these.
    pub fn message(encoded: &[u8]) -> Vec<u8> {
        [PREFIX, encoded].concat()
    }

    /// By which it is known again.
    pub fn digest(&self) -> Digest {
        Sha256::digest(self.encode()).into()
    }
}

/// The sessions of a page that has this digest; `None` if it is another one.
pub(super) fn read(bytes: &[u8], digest: &Digest) -> Option<Vec<Stored>> {
    if bytes.len() > PAGE || Sha256::digest(bytes)[..] != digest[..] {
        return None;
    }
    let (sessions, rest): (Vec<Stored>, _) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(sessions)
}

/// This server's sessions, as the others have them or are to have them.
#[derive(Debug, Default)]
pub(super) struct Book {
    leaves: Vec<Leaf>,
    /// The page that is looked at first for what is to be written, so that each has its turn.
    first: usize,
}

#[derive(Debug, Default)]
struct Leaf {
    sessions: Vec<Stored>,
    size: usize,
    /// What the last statement said of it.
    stated: Digest,
    /// It is to be written.
    dirty: bool,
}

/// What a page's length is kept in.
const LENGTH: usize = 3;

fn size(record: &Stored) -> usize {
    postcard::experimental::serialized_size(record).unwrap_or(PAGE)
}

impl Book {
    /// Takes a session in; its page, or `None` if there is no room.
    pub(super) fn add(&mut self, record: &Stored) -> Option<u16> {
        let size = size(record);
        let fits = |leaf: &Leaf| LENGTH + leaf.size + size <= PAGE;
        let place = match self.leaves.iter().position(fits) {
            Some(place) => place,
            None if self.leaves.len() < PAGES && LENGTH + size <= PAGE => {
                self.leaves.push(Leaf::default());
                self.leaves.len() - 1
            }
            None => return None,
        };
        let leaf = self.leaves.get_mut(place)?;
        leaf.sessions.push(record.clone());
        (leaf.size, leaf.dirty) = (leaf.size + size, true);
        u16::try_from(place).ok()
    }

    pub(super) fn remove(&mut self, page: u16, id: SessionId) {
        let Some(leaf) = self.leaves.get_mut(usize::from(page)) else { return };
        leaf.sessions.retain(|record| record.id != id);
        (leaf.size, leaf.dirty) = (leaf.sessions.iter().map(size).sum(), true);
    }

    /// What was said to be written may not have been.
    pub(super) fn doubt(&mut self, pages: &[u16]) {
        for page in pages {
            if let Some(leaf) = self.leaves.get_mut(usize::from(*page)) {
                leaf.dirty = true;
            }
        }
    }

    /// Has some pages written anew with the next statement: whoever has missed them gets them in the end.
    pub(super) fn refresh(&mut self, all_hear: bool) {
        let count = self.leaves.len();
        let places = (0..count).map(|step| (self.first + step) % count);
        let used =
            places.filter(|place| self.leaves.get(*place).is_some_and(|leaf| !leaf.sessions.is_empty()));
        for place in used.take(if all_hear { 1 } else { AT_ONCE }).collect::<Vec<_>>() {
            if let Some(leaf) = self.leaves.get_mut(place) {
                leaf.dirty = true;
            }
        }
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.leaves.iter().any(|leaf| leaf.dirty)
    }

    /// The digests for the next statement, and the pages that are written with it.
    pub(super) fn state(&mut self) -> (Vec<Digest>, Vec<(u16, Vec<u8>)>) {
        let mut written = Vec::new();
        let count = self.leaves.len();
        for place in (0..count).map(|step| (self.first + step) % count) {
            let (Some(leaf), Ok(page)) = (self.leaves.get_mut(place), u16::try_from(place)) else { continue };
            if !leaf.dirty || written.len() >= AT_ONCE {
                continue;
            }
            leaf.dirty = false;
            let bytes = postcard::to_allocvec(&leaf.sessions).unwrap_or_default();
            leaf.stated = if leaf.sessions.is_empty() { NONE } else { Sha256::digest(&bytes).into() };
            written.push((page, bytes));
        }
        self.first = written.last().map_or(0, |(page, _)| usize::from(*page) + 1);
        (self.leaves.iter().map(|leaf| leaf.stated).collect(), written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    /// A session of so many octets in a page: as many addresses as fit, and a time that makes up the rest.
    fn record(octets: usize) -> Stored {
        let mut record = Stored {
            id: SessionId::from_random([7; 16]),
            user: "ada".parse().unwrap(),
            device: "ws1".parse().unwrap(),
            fingerprint: [1; 32],
            label: "SECRET".parse().unwrap(),
            inner: vec![],
            opened: Time::default(),
            protection: None,
        };
        while size(&record) + 5 <= octets {
            record.inner.push("10.80.2.7".parse().unwrap());
        }
        while size(&record) < octets {
            let more = record.opened.as_millis().max(1) << 7;
            record.opened = Time::from_millis(more);
        }
        assert_eq!(size(&record), octets);
        record
    }

    #[test]
    fn a_page_is_as_long_as_it_may_be_and_no_longer() {
        // What a page's length is kept in is three octets at most, and here two or one.
        for (octets, good) in [(PAGE - 1, true), (PAGE, true), (PAGE + 1, false)] {
            let sessions = vec![record(octets - 1)];
            let bytes = postcard::to_allocvec(&sessions).unwrap();
            assert_eq!(bytes.len(), octets);
            assert_eq!(read(&bytes, &Sha256::digest(&bytes).into()), good.then_some(sessions));
        }
    }

    #[test]
    fn sessions_fill_page_after_page_up_to_the_last() {
        let mut book = Book::default();
        assert_eq!(book.add(&record(PAGE - LENGTH + 1)), None);
        assert_eq!(book.leaves.len(), 0);
        // Two that fill one, to an octet.
        let (half, rest) = (record(PAGE / 2), record(PAGE - LENGTH - PAGE / 2));
        assert_eq!([&half, &rest, &record(100)].map(|record| book.add(record)), [Some(0), Some(0), Some(1)]);
        let mut book = Book::default();
        assert_eq!([&half, &record(size(&rest) + 1)].map(|record| book.add(record)), [Some(0), Some(1)]);
        let mut book = Book::default();
        let whole = record(PAGE - LENGTH);
        for page in 0..PAGES {
            assert_eq!(book.add(&whole), u16::try_from(page).ok());
        }
        assert_eq!(book.add(&record(100)), None);
        book.remove(17, whole.id);
        assert_eq!(book.add(&record(100)), Some(17));
    }

    #[test]
    fn with_a_statement_three_pages_go_and_each_has_its_turn() {
        let mut book = Book::default();
        let whole = record(PAGE - LENGTH);
        let pages: Vec<_> = (0..5).map(|_| book.add(&whole)).collect();
        assert_eq!(pages, (0..5).map(Some).collect::<Vec<_>>());
        let written = |book: &mut Book| -> Vec<u16> {
            let (digests, pages) = book.state();
            assert_eq!(digests.len(), 5);
            pages.into_iter().map(|(page, _)| page).collect()
        };
        assert_eq!([&[0, 1, 2][..], &[3, 4], &[]].map(|pages| written(&mut book) == pages), [true; 3]);
        assert!(!book.is_dirty());
        for page in [0, 1] {
            book.refresh(true);
            assert_eq!(written(&mut book), [page]);
        }
        book.doubt(&[0, 1, 2, 3, 4]);
        assert_eq!(written(&mut book), [2, 3, 4]);
        assert_eq!(written(&mut book), [0, 1]);
        book.refresh(false);
        assert_eq!(written(&mut book), [2, 3, 4]);
        // One that nobody has a session in is none.
        book.remove(0, whole.id);
        assert_eq!(written(&mut book), [0]);
        book.doubt(&[4]);
        assert_eq!(written(&mut book), [4]);
        book.refresh(true);
        assert_eq!(written(&mut book), [1]);
        book.doubt(&[4]);
        assert_eq!(written(&mut book), [4]);
        book.refresh(false);
        assert_eq!(written(&mut book), [1, 2, 3]);
        book.refresh(false);
        assert_eq!(written(&mut book), [4, 1, 2]);
    }
}
