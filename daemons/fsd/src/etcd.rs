//! The table in etcd (v3 API, JSON gateway): its keys, and the few requests that are made of it.
//!
//! | key under `/levee/SITE/server/` | value |
//! |---|---|
//! | `NAME` | what this server has said last: a signed envelope |
//! | `NAME/PAGE` | a page with sessions of this server, which the envelope names by its digest |
//!
//! No value is looked into. What is no such key, of a server of the site, is counted and passed over.

use super::http::{Answer, Connection, Target};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use levee_ipc::federation::{ENVELOPE, PAGE, PAGES, PEERS};
use levee_policy::{DomainName, SiteName};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::time::Duration;

/// Bytes of one message of the watch: etcd's own bound on a request is 1.5 MiB.
const MOST_OF_A_MESSAGE: usize = 16 << 20;
/// Keys in one answer. So many fit it, however long they are.
const AT_ONCE: usize = 128;
/// The most keys that are read of a table.
const MOST_KEYS: usize = (PEERS + 1) * (PAGES + 1) + 1024;

/// Why a request came to nothing.
#[derive(Debug)]
pub enum Fault {
    /// Nobody knows whether it was carried out.
    Unknown(String),
    /// It was refused: etcd does not do such things.
    Refused(String),
    /// What etcd says makes no sense.
    Nonsense(String),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(why) | Self::Refused(why) => f.write_str(why),
            Self::Nonsense(why) => write!(f, "etcd's answer: {why}"),
        }
    }
}

pub type Done<T> = Result<T, Fault>;

fn nonsense<T>(why: impl std::fmt::Display) -> Done<T> {
    Err(Fault::Nonsense(why.to_string()))
}

/// Who we are in the table.
#[derive(Clone)]
pub struct OwnKeys {
    pub site: SiteName,
    pub me: DomainName,
}

/// Whose keys are read.
pub struct Table {
    prefix: String,
    servers: BTreeSet<DomainName>,
}

/// What a key says.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Envelope(Vec<u8>),
    Page { server: DomainName, page: u16, bytes: Vec<u8> },
}

fn number<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    // The gateway writes 64-bit numbers as strings.
    let text = String::deserialize(from)?;
    text.parse().map_err(serde::de::Error::custom)
}

#[derive(Debug, Deserialize)]
struct Header {
    #[serde(default, deserialize_with = "number")]
    revision: u64,
}

#[derive(Debug, Deserialize)]
struct Written {
    #[serde(default)]
    succeeded: bool,
}

#[derive(Debug, Deserialize)]
struct KeyValue {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default, deserialize_with = "number")]
    mod_revision: u64,
}

#[derive(Debug, Deserialize)]
struct Range {
    header: Header,
    #[serde(default)]
    kvs: Vec<KeyValue>,
    #[serde(default)]
    more: bool,
}

#[derive(Debug, Deserialize)]
struct Watched {
    result: WatchedResult,
}

#[derive(Debug, Deserialize)]
struct WatchedResult {
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    events: Vec<WatchedEvent>,
}

#[derive(Debug, Deserialize)]
struct WatchedEvent {
    #[serde(default, rename = "type")]
    kind: Option<String>,
    kv: KeyValue,
}

/// What one message of the watch says: everything up to a revision.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct News {
    /// It.
    pub revision: u64,
    pub found: Vec<Found>,
    /// Things that no server of the site writes.
    pub strange: u64,
}

impl OwnKeys {
    fn prefix(&self) -> String {
        format!("/levee/{}/server/", self.site)
    }

    fn envelope(&self) -> String {
        BASE64.encode(format!("{}{}", self.prefix(), self.me))
    }

    fn page(&self, page: u16) -> String {
        BASE64.encode(format!("{}{}/{page}", self.prefix(), self.me))
    }
}

impl Table {
    pub fn new(own: &OwnKeys, servers: Vec<DomainName>) -> Self {
        Self { prefix: own.prefix(), servers: servers.into_iter().collect() }
    }

    /// All keys of the table, as etcd wants a range.
    fn all(&self) -> (String, String) {
        // '0' follows '/'.
        let end = format!("{}0", self.prefix.trim_end_matches('/'));
        (BASE64.encode(&self.prefix), BASE64.encode(end))
    }

    /// What a key says; `None`: nothing that a server of the site writes.
    fn found(&self, kv: &KeyValue) -> Option<Found> {
        let key = String::from_utf8(BASE64.decode(&kv.key).ok()?).ok()?;
        let (name, page) = match key.strip_prefix(&self.prefix)?.split_once('/') {
            Some((name, page)) => (name, Some(page)),
            None => (key.strip_prefix(&self.prefix)?, None),
        };
        let server = self.servers.get(&DomainName::new(name).ok()?)?.clone();
        // As base64 has it, four characters for three bytes.
        let fits = |most: usize| (1..=most.div_ceil(3) * 4).contains(&kv.value.len());
        let value = |most: usize| {
            let bytes = fits(most).then(|| BASE64.decode(&kv.value).ok())??;
            (bytes.len() <= most).then_some(bytes)
        };
        Some(match page {
            None => Found::Envelope(value(ENVELOPE)?),
            Some(text) => {
                let page: u16 = text.parse().ok().filter(|page| usize::from(*page) < PAGES)?;
                // Another spelling of a number would be another key for one thing.
                if page.to_string() != text {
                    return None;
                }
                Found::Page { server, page, bytes: value(PAGE)? }
            }
        })
    }
}

/// The connection for requests, made again when it breaks.
pub struct Client {
    target: Target,
    own: OwnKeys,
    connection: Option<Connection>,
    /// Which member is tried first.
    first: usize,
}

impl Client {
    pub fn new(target: Target, own: OwnKeys) -> Self {
        Self { target, own, connection: None, first: 0 }
    }

    fn ask<T: serde::de::DeserializeOwned>(&mut self, path: &str, body: &Value) -> Done<T> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connection::open(&self.target, self.first)
                .map_err(|why| Fault::Unknown(format!("etcd: {why}")))?,
        };
        match connection.ask(path, body.to_string().as_bytes()) {
            Ok((200, answer)) => {
                self.connection = Some(connection);
                serde_json::from_slice(&answer).or_else(nonsense)
            }
            Ok((status, answer)) => {
                self.connection = Some(connection);
                let text = String::from_utf8_lossy(&answer).chars().take(200).collect::<String>();
                let why = format!("etcd: {status}: {text}");
                // 4xx: a request that is wrong. Anything else may have been carried out.
                if (400..500).contains(&status) { Err(Fault::Refused(why)) } else { Err(Fault::Unknown(why)) }
            }
            Err(why) => {
                // Another member may be better.
                self.first = self.first.wrapping_add(1) % self.target.members.len().max(1);
                Err(Fault::Unknown(format!("etcd: {why}")))
            }
        }
    }

    /// Writes this server's keys, by one change: the envelope before the pages that it names.
    pub fn put(&mut self, envelope: &[u8], pages: &[(u16, Vec<u8>)]) -> Done<()> {
        let put = |key: String, value: &[u8]| json!({ "request_put": { "key": key, "value": BASE64.encode(value) } });
        let mut all = vec![put(self.own.envelope(), envelope)];
        all.extend(pages.iter().map(|(page, bytes)| put(self.own.page(*page), bytes)));
        let written: Written = self.ask("/v3/kv/txn", &json!({ "success": all }))?;
        if written.succeeded { Ok(()) } else { nonsense("what has no condition has failed") }
    }

    /// All of the table, at one revision, and how many keys of it no server of the site writes.
    pub fn read(&mut self, table: &Table, mut take: impl FnMut(Found)) -> Done<(u64, u64)> {
        let (mut from, end) = table.all();
        let (mut at, mut strange) = (0, 0);
        for _ in 0..MOST_KEYS / AT_ONCE {
            let limit = AT_ONCE.to_string();
            let range = json!({ "key": from, "range_end": end, "limit": limit, "revision": at.to_string() });
            let found: Range = self.ask("/v3/kv/range", &range)?;
            if at == 0 {
                at = found.header.revision;
            }
            for kv in &found.kvs {
                match table.found(kv) {
                    Some(found) => take(found),
                    None => strange += 1,
                }
            }
            let Some(last) = found.kvs.last().filter(|_| found.more) else { return Ok((at, strange)) };
            let mut next = BASE64.decode(&last.key).or_else(nonsense)?;
            next.push(0);
            from = BASE64.encode(next);
        }
        nonsense("a table with more keys than all servers have")
    }
}

/// The watch from a revision on.
pub struct Watch<C = Connection> {
    connection: C,
    answer: Answer,
    rest: Vec<u8>,
}

impl Watch {
    pub fn open(target: &Target, table: &Table, from: u64, first: usize) -> std::io::Result<Self> {
        let mut connection = Connection::open(target, first)?;
        let (key, end) = table.all();
        let create =
            json!({ "create_request": { "key": key, "range_end": end, "start_revision": from.to_string() } });
        let answer = connection.post("/v3/watch", create.to_string().as_bytes())?;
        if answer.status != 200 {
            return Err(std::io::Error::other(format!("etcd refuses the watch: {}", answer.status)));
        }
        connection.patience(Duration::from_millis(500))?;
        Ok(Self::over(connection, answer))
    }
}

impl<S: Read + Write> Watch<Connection<S>> {
    /// What this answer on this connection goes on saying.
    pub fn over(connection: Connection<S>, answer: Answer) -> Self {
        Self { connection, answer, rest: Vec::new() }
    }

    /// The next message; `None` if none has come in a while.
    pub fn next(&mut self, table: &Table) -> Result<Option<News>, WatchFault> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return read(table, &line).map(Some);
            }
            if self.rest.len() > MOST_OF_A_MESSAGE {
                return Err(WatchFault::Lost("etcd's watch: a message that is too long".to_owned()));
            }
            match self.connection.chunk(&mut self.answer) {
                Ok(Some(chunk)) => self.rest.extend_from_slice(&chunk),
                Ok(None) => return Err(WatchFault::Broken),
                Err(e)
                    if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
                {
                    return Ok(None);
                }
                Err(_) => return Err(WatchFault::Broken),
            }
        }
    }
}

/// Why the watch does not go on.
pub enum WatchFault {
    /// The connection: it can be taken up where it was.
    Broken,
    /// It cannot.
    Lost(String),
}

fn read(table: &Table, line: &[u8]) -> Result<News, WatchFault> {
    let lost = |why: &dyn std::fmt::Display| WatchFault::Lost(format!("etcd's watch: {why}"));
    let watched: Watched = serde_json::from_slice(line).map_err(|e| lost(&e))?;
    let WatchedResult { canceled, events } = watched.result;
    if canceled {
        return Err(lost(&"it was ended, and what has changed since is not to be had"));
    }
    let mut batch = News::default();
    for WatchedEvent { kind, kv } in events {
        // Only what has been told counts as seen: the header's is etcd's own state, which may be ahead of this watch.
        batch.revision = batch.revision.max(kv.mod_revision);
        // No server takes a key away.
        match table.found(&kv).filter(|_| kind.as_deref() != Some("DELETE")) {
            Some(found) => batch.found.push(found),
            None => batch.strange += 1,
        }
    }
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let name = |text: &str| DomainName::new(text).unwrap();
        let own = OwnKeys { site: SiteName::new("harbour").unwrap(), me: name("one.example") };
        Table::new(&own, vec![name("one.example"), name("two.example")])
    }

    fn event(key: &str, value: &[u8], kind: &str) -> Value {
        let kv = json!({ "key": BASE64.encode(key), "value": BASE64.encode(value), "mod_revision": "9" });
        json!({ "type": kind, "kv": kv })
    }

    fn message(events: &[Value]) -> Vec<u8> {
        json!({ "result": { "header": { "revision": "12" }, "events": events } }).to_string().into_bytes()
    }

    fn watched(events: &[Value]) -> News {
        read(&table(), &message(events)).ok().expect("it is read")
    }

    #[test]
    fn what_the_watch_says_is_read_in_order_and_counts_as_seen_as_far_as_it_was_told() {
        let batch = watched(&[
            event("/levee/harbour/server/two.example", b"signed", "PUT"),
            event("/levee/harbour/server/two.example/7", b"page", "PUT"),
            event("/levee/harbour/server/one.example", b"own", "PUT"),
        ]);
        let server = "two.example".parse().unwrap();
        let found = vec![
            Found::Envelope(b"signed".to_vec()),
            Found::Page { server, page: 7, bytes: b"page".to_vec() },
            Found::Envelope(b"own".to_vec()),
        ];
        assert_eq!(batch, News { revision: 9, found, strange: 0 });
        let created = br#"{"result":{"header":{"revision":"12"},"created":true}}"#;
        assert!(matches!(read(&table(), created), Ok(batch) if batch == News::default()));
    }

    #[test]
    fn what_no_server_of_the_site_writes_is_counted_and_passed_over() {
        let long = vec![7; 70_000];
        let strange = [
            event("/levee/harbour/server/stranger.example", b"signed", "PUT"),
            event("/levee/harbour/server/two.example/07", b"page", "PUT"),
            event("/levee/harbour/server/two.example/256", b"page", "PUT"),
            event("/levee/harbour/server/two.example/x", b"page", "PUT"),
            event("/levee/harbour/server/two.example/1/1", b"page", "PUT"),
            event("/levee/harbour/server/../two.example", b"signed", "PUT"),
            event("/levee/other/server/two.example", b"signed", "PUT"),
            event("/levee/harbour/session/ws1", b"", "PUT"),
            event("/levee/harbour/server/two.example", b"", "DELETE"),
            event("/levee/harbour/server/two.example/1", b"", "DELETE"),
            // 70 kB, as it ended fsd once; and nothing.
            event("/levee/harbour/server/two.example", &long, "PUT"),
            event("/levee/harbour/server/two.example/1", &long, "PUT"),
            event("/levee/harbour/server/two.example/1", &[7; PAGE + 1], "PUT"),
            event("/levee/harbour/server/two.example", b"", "PUT"),
        ];
        let count = strange.len() as u64;
        assert_eq!(watched(&strange), News { revision: 9, found: vec![], strange: count });
        // What is as long as it may be passes.
        let whole = watched(&[
            event("/levee/harbour/server/two.example", &[7; ENVELOPE], "PUT"),
            event("/levee/harbour/server/two.example/255", &[7; PAGE], "PUT"),
        ]);
        assert_eq!((whole.found.len(), whole.strange), (2, 0));
    }

    #[test]
    fn what_makes_no_sense_ends_the_watch_instead_of_leaving_a_gap() {
        for bad in
            [b"{}".to_vec(), b"\xff\n".to_vec(), br#"{"result":{"header":{},"canceled":true}}"#.to_vec()]
        {
            assert!(
                matches!(read(&table(), &bad), Err(WatchFault::Lost(_))),
                "{}",
                String::from_utf8_lossy(&bad)
            );
        }
    }
}
