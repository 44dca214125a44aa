//! What a server of a federation is told by another, which has its key and says what it likes.
//!
//! Input: actions, each a byte that says what it is, behind it two bytes with its length. 0: a statement as it is written. 1: a
//! page of the other's. 2: the other states a page, and it comes. Any other: so many hundredths of a second pass.

use std::collections::BTreeSet;
use std::time::Duration;

use levee_policy::DomainName;
use levee_session::federation::{Federation, PAGES, PEERS, SIGNATURE, Said, Setting, Statement, Word};
use levee_session::{SessionId, Stored, Time};
use sha2::{Digest as _, Sha256};

const TTL: Duration = Duration::from_secs(8);
/// The most that a server uses of the only other one.
const SHARE: usize = 12_288;

fn name(text: &str) -> DomainName {
    text.parse().expect("a name")
}

/// What the other says of a page with these octets, when it says nothing else.
fn stating(number: u64, page: &[u8], granted: u64) -> Statement {
    let word = Word { server: name("one.example"), epoch: 1_000_000, heard: granted, granted, done: 0 };
    Statement {
        site: "harbour".parse().expect("a site"),
        server: name("two.example"),
        epoch: 1,
        number,
        words: vec![word],
        pages: vec![Sha256::digest(page).into()],
        setting: Setting::default(),
        is_kept: true,
        signed: None,
        postures: [0; 32],
    }
}

/// An honest statement, as it is written.
pub fn honest() -> Vec<u8> {
    stating(1, b"\0", 1).encode()
}

/// A page with one session.
pub fn session() -> Vec<u8> {
    let record = Stored {
        id: SessionId::from_random([7; 16]),
        user: "ada".parse().expect("a name"),
        device: "ws1".parse().expect("a name"),
        fingerprint: [1; 32],
        label: "SECRET".parse().expect("a label"),
        inner: vec![[10, 80, 2, 7].into()],
        opened: Time::default(),
        protection: None,
    };
    postcard::to_allocvec(&[record].to_vec()).expect("a page")
}

fn read(bytes: &[u8]) -> Option<Statement> {
    let statement = Statement::decode(bytes)?;
    assert!(statement.words.len() <= PEERS && statement.pages.len() <= PAGES);
    Some(statement)
}

/// Does what the server wants. How many of the other's sessions appeared.
fn serve(server: &mut Federation, used: &mut BTreeSet<SessionId>, last: &mut u64, now: Time) -> usize {
    let mut appeared = 0;
    while let Some(said) = server.poll() {
        match said {
            Said::Join { attempt } => server.joined(attempt, now),
            Said::State { attempt, statement, .. } => {
                *last = statement.number;
                server.written(attempt, statement.number, now);
                server.hear(attempt, *statement, now);
            }
            Said::Appeared(shared) => {
                assert_eq!(shared.owner, name("two.example"), "nobody else has a session");
                assert!(used.insert(shared.record.id), "it appeared before");
                appeared += 1;
            }
            Said::Vanished(owner, id) => {
                assert!(used.remove(&id), "it was not here");
                server.cut(&owner, id, now);
            }
            Said::Until(_, until) => assert!(until <= now.after(TTL), "longer than a lease"),
            Said::Set(_, setting) => {
                assert!(setting.number > 0 && setting.in_force.len() <= 16, "what no operator can have set");
                let ranges = setting.in_force.iter().flat_map(|one| one.what.ranges());
                assert!(ranges.map(|range| range.as_str().len()).sum::<usize>() <= 1_024, "nor this");
                server.set(setting, now.after(TTL), false, now);
                server.kept(now);
            }
            Said::Witness(server, signed) => {
                assert!(server == name("two.example") && signed.signature.len() <= SIGNATURE);
            }
            Said::Unlike(_) | Said::Kept(_) => {}
            Said::Fence(_) | Said::Published(..) | Said::Clash(_) | Said::Withdrawn(_) => {}
        }
    }
    assert!(used.len() <= SHARE && server.shown().2 <= used.len());
    appeared
}

/// Runs the target on one input.
pub fn run(input: &[u8]) {
    appeared(input);
}

/// As there; how many of the other's sessions were used for a while.
pub fn appeared(input: &[u8]) -> usize {
    let mut now = Time::from_millis(1_000_000);
    let site = "harbour".parse().expect("a site");
    let mut server = Federation::new(site, name("one.example"), [name("two.example")], TTL, now);
    let (mut used, mut last, mut number, mut rest) = (BTreeSet::new(), 0, 0, input);
    let mut all = 0;
    server.tick(now);
    serve(&mut server, &mut used, &mut last, now);
    while let Some((&[kind, high, low], tail)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([high, low])).min(tail.len());
        let (bytes, tail) = tail.split_at(length);
        rest = tail;
        match kind {
            0 => {
                if let Some(statement) = read(bytes) {
                    number = number.max(statement.number);
                    server.hear(1, statement, now);
                }
            }
            1 => server.page(1, &name("two.example"), u16::from(high), bytes, now),
            2 => {
                number = number.saturating_add(1);
                server.hear(1, stating(number, bytes, last), now);
                server.page(1, &name("two.example"), 0, bytes, now);
            }
            hundredths => now = now.after(Duration::from_millis(u64::from(hundredths) * 10)),
        }
        server.tick(now);
        all += serve(&mut server, &mut used, &mut last, now);
    }
    all
}
