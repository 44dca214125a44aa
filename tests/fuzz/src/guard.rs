//! A guard between a filter that says anything and a sessiond that answers anything.
//!
//! Input: a byte of options (a schema, or none; numbered or not; people who release, or none), then actions: a byte for its kind, a byte of length, octets.
//! What the reader gets was said by the filter in answer to a question, fits the schema in its one spelling, is within the bounds, and was let through by
//! sessiond under its digest, once.

use levee_bounds::Schema;
use levee_guard::passage::Passage;
use levee_ipc::guard::{GuardToSessiond, SessiondToGuard};
use levee_ipc::warden::channel::Shape;
use levee_ipc::warden::guard::Bounds;
use levee_policy::site::Quota;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// Octets of one message.
const SIZE: u32 = 200;
/// Messages, and octets of them, that may pass.
const MESSAGES: u64 = 4;
const OCTETS: u64 = 500;

const SCHEMAS: [&str; 3] = [
    r#"{"type": "object", "required": ["depth"], "additionalProperties": false,
        "properties": {"depth": {"type": "number", "minimum": 0}, "at": {"pattern": "^[A-Z]{3}$"}}}"#,
    "true",
    r#"{"type": "array", "uniqueItems": true, "items": {"type": ["number", "string", "array"]}}"#,
];

/// Each read once, as a guard does in its life: what the library had for one it does not give back whole.
static READ: LazyLock<[Arc<Schema>; 3]> =
    LazyLock::new(|| SCHEMAS.map(|text| Arc::new(Schema::new(text).expect("a schema"))));

fn pair() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair of sockets")
}

struct World {
    passage: Passage,
    schema: Option<Arc<Schema>>,
    numbered: bool,
    /// Whether people release what passes.
    people: bool,
    filter: (OwnedFd, OwnedFd),
    reader: OwnedFd,
    /// What waits for sessiond's word.
    asked: BTreeMap<u64, [u8; 32]>,
    /// Messages and octets that sessiond was asked about.
    passed: u64,
    octets: u64,
}

impl World {
    fn new(options: u8) -> Self {
        let text = SCHEMAS.get(usize::from(options & 3));
        let numbered = options & 4 != 0;
        let quota = |most| Quota { most, within: Duration::from_secs(3_600) };
        let bounds = Bounds {
            shape: Shape { size: SIZE, rate: 1 << 20, numbered },
            messages: quota(MESSAGES),
            octets: quota(OCTETS),
            answer: Duration::from_secs(3_600),
            hours: None,
            schema: text.map(|text| (*text).to_owned()),
            release: (options & 8 != 0).then_some(Duration::from_secs(3_600)),
        };
        let schema = || READ.get(usize::from(options & 3)).cloned();
        let mut passage = Passage::new(bounds, schema(), 7);
        let (reader, given) = pair();
        passage.reader_came(given);
        Self {
            passage,
            schema: schema(),
            numbered,
            people: options & 8 != 0,
            filter: pair(),
            reader,
            asked: BTreeMap::new(),
            passed: 0,
            octets: 0,
        }
    }

    /// The filter's end is of no use: it gets another.
    fn filter_lost(&mut self) {
        self.passage.filter_lost();
        self.filter = pair();
    }

    /// The filter says this, whether it was asked or not.
    fn says(&mut self, answer: &[u8]) {
        let mut room = [0; 256];
        let was_asked = recv(&self.filter.1, &mut room[..], RecvFlags::DONTWAIT).is_ok();
        let _ = send(&self.filter.1, answer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        let said = self.passage.hear_filter(&self.filter.0, false).map(|said| match said {
            // Sessiond has the whole of what people release, and no word of the guard's about it.
            Some(GuardToSessiond::Offer { ticket, content }) => {
                let octets = u32::try_from(content.len()).expect("no more than may pass");
                Some((true, ticket, Sha256::digest(&content).into(), octets))
            }
            Some(GuardToSessiond::Ask { ticket, digest, octets }) => Some((false, ticket, digest, octets)),
            Some(refused) => panic!("{refused:?} is no question"),
            None => None,
        });
        match said {
            Ok(None) => {}
            Ok(Some((offered, ticket, digest, octets))) => {
                assert_eq!(offered, self.people);
                assert!(was_asked && octets <= SIZE && octets > 0);
                let content = match &self.schema {
                    Some(schema) => schema.rewrite(answer).expect("it fits"),
                    None => answer.to_vec(),
                };
                assert_eq!(<[u8; 32]>::from(Sha256::digest(&content)), digest);
                assert_eq!(u32::try_from(content.len()), Ok(octets));
                assert!(self.asked.insert(ticket, digest).is_none(), "each has a number of its own");
                (self.passed, self.octets) = (self.passed + 1, self.octets + u64::from(octets));
                assert!(self.passed <= MESSAGES && self.octets <= OCTETS);
            }
            Err(_) => self.filter_lost(),
        }
    }

    /// Sessiond answers about this number; what the reader then has.
    fn answers(&mut self, ticket: u64, pass: bool) {
        let let_through = self.asked.remove(&ticket).filter(|_| pass);
        let answer = if pass { SessiondToGuard::Pass(ticket) } else { SessiondToGuard::Refuse(ticket) };
        self.passage.answered(&answer);
        self.passage.pass();
        let mut room = [0; 512];
        let got = recv(&self.reader, &mut room[..], RecvFlags::DONTWAIT).ok().map(|(_, length)| length);
        assert_eq!(got.is_some(), let_through.is_some(), "what was let through is there, and nothing else");
        let (Some(length), Some(digest)) = (got, let_through) else { return };
        let content = &room[if self.numbered { 8 } else { 0 }..length];
        assert_eq!(<[u8; 32]>::from(Sha256::digest(content)), digest, "it is what sessiond has");
        if let Some(schema) = &self.schema {
            assert_eq!(schema.rewrite(content).as_deref(), Some(content), "in its one spelling");
        }
    }

    fn act(&mut self, kind: u8, octets: &[u8]) {
        match kind % 8 {
            0 => self.passage.came(Some(octets.to_vec())),
            1 => self.says(octets),
            2 | 3 => {
                let at = usize::from(octets.first().copied().unwrap_or(0));
                let ticket = self.asked.keys().nth(at).copied().unwrap_or(at as u64);
                self.answers(ticket, kind % 8 == 2);
            }
            4 => self.passage.came(None),
            5 => self.filter_lost(),
            6 => {
                self.passage.sessiond_lost();
                self.asked.clear();
            }
            // Nobody has taken longer than it may.
            _ => self.passage.expire(Instant::now()),
        }
        if !self.passage.ask_filter(&self.filter.0) {
            self.filter_lost();
        }
        let mut room = [0; 512];
        let more = recv(&self.reader, &mut room[..], RecvFlags::DONTWAIT);
        assert!(more.is_err(), "nothing passes without sessiond's word");
    }
}

/// Runs the target on one input, and says how many messages were put before sessiond.
pub fn passed(input: &[u8]) -> u64 {
    let Some((&options, mut rest)) = input.split_first() else { return 0 };
    let mut world = World::new(options);
    while let Some((&[kind, length], behind)) = rest.split_first_chunk::<2>() {
        let (octets, after) = behind.split_at(usize::from(length).min(behind.len()));
        world.act(kind, octets);
        rest = after;
    }
    assert!(world.passage.counts().iter().all(|(_, count)| *count > 0));
    world.passed
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    passed(input);
}
