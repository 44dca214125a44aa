//! The table in etcd (v3 API, JSON gateway): its keys, and the few requests that are made of it.
//!
//! | key under `/levee/SITE/` | value (postcard) | lease |
//! |---|---|---|
//! | `server/NAME/LEASE` | the last beat's number, and what has been cut | the server's |
//! | `epoch/NAME/LEASE` | nothing: written again, it makes every publishing that is still under way fail | the server's |
//! | `session/HOST` | the session of this TPE, and whose it is | its server's |

use super::http::{Answer, Connection, Target};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use levee_ipc::federation::{Entry, Shared, TableChange};
use levee_policy::{DomainName, HostName, SiteName};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{Read, Write};

/// What a server says of itself.
type Beat = (u64, u64);

/// Bytes of one message of the watch: etcd's own bound on a request is 1.5 MiB.
const MOST_OF_A_MESSAGE: usize = 16 << 20;

/// Octets of a key's value: a record has a few hundred.
const MOST_OF_A_VALUE: usize = 4096;

/// Why a request came to nothing.
#[derive(Debug)]
pub enum Fault {
    /// Nobody knows whether it was carried out.
    Unknown(String),
    /// It was refused: the lease is gone, or etcd does not do such things.
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
pub struct Place {
    pub site: SiteName,
    pub me: DomainName,
}

/// A place in the table under a lease.
#[derive(Clone, Debug)]
pub struct Lease {
    pub id: u64,
    /// The change by which our epoch key was written last.
    pub epoch: u64,
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
struct Granted {
    #[serde(rename = "ID", deserialize_with = "number")]
    id: u64,
}

#[derive(Debug, Deserialize)]
struct Kept {
    result: KeptResult,
}

#[derive(Debug, Deserialize)]
struct KeptResult {
    /// Left out when the lease is gone.
    #[serde(default, rename = "TTL", deserialize_with = "number")]
    ttl: u64,
}

#[derive(Debug, Deserialize)]
struct Written {
    header: Header,
}

#[derive(Debug, Deserialize)]
struct Compared {
    header: Header,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<Response>,
}

#[derive(Debug, Deserialize)]
struct Response {
    #[serde(default, rename = "response_range")]
    range: Option<Found>,
}

#[derive(Debug, Deserialize)]
struct KeyValue {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default, deserialize_with = "number")]
    create_revision: u64,
    #[serde(default, deserialize_with = "number")]
    mod_revision: u64,
}

#[derive(Debug, Deserialize)]
struct Found {
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
pub struct Batch {
    /// It.
    pub revision: u64,
    /// Each with the change that it was.
    pub changes: Vec<(u64, TableChange)>,
    /// Keys that no server of the site writes.
    pub strange: u64,
}

enum Key {
    Server(DomainName, u64),
    Session(HostName),
    Epoch,
    /// No server of the site writes such a key.
    Strange,
}

/// What a key says.
enum Said {
    Entry(Entry),
    Nothing,
    /// No server of the site says such a thing of this key.
    Nonsense(Key),
}

impl Place {
    fn prefix(&self) -> String {
        format!("/levee/{}/", self.site)
    }

    fn server(&self, lease: u64) -> String {
        format!("{}server/{}/{lease}", self.prefix(), self.me)
    }

    fn epoch(&self, lease: u64) -> String {
        format!("{}epoch/{}/{lease}", self.prefix(), self.me)
    }

    fn session(&self, host: &HostName) -> String {
        format!("{}session/{host}", self.prefix())
    }

    /// All keys of the table, as etcd wants a range.
    fn all(&self) -> (String, String) {
        let prefix = self.prefix();
        // '0' follows '/'.
        let end = format!("{}0", prefix.trim_end_matches('/'));
        (BASE64.encode(prefix), BASE64.encode(end))
    }

    fn key(&self, text: &str) -> Key {
        self.known(text).unwrap_or(Key::Strange)
    }

    fn known(&self, text: &str) -> Option<Key> {
        let key = String::from_utf8(BASE64.decode(text).ok()?).ok()?;
        let rest: Vec<&str> = key.strip_prefix(&self.prefix())?.split('/').collect();
        match rest.as_slice() {
            ["server", name, lease] => {
                let number: u64 = lease.parse().ok()?;
                // Another spelling of a number would be another key for one thing.
                let one = number.to_string() == **lease;
                one.then_some(Key::Server(DomainName::new(name).ok()?, number))
            }
            ["session", host] => Some(Key::Session(HostName::new(host).ok()?)),
            ["epoch", _, _] => Some(Key::Epoch),
            _ => None,
        }
    }

    fn said(&self, kv: &KeyValue) -> Said {
        match self.key(&kv.key) {
            Key::Server(name, lease) => match decoded::<Beat>(&kv.value) {
                Some((beat, cut)) => {
                    Said::Entry(Entry::Server { name, lease, joined: kv.create_revision, beat, cut })
                }
                None => Said::Nonsense(Key::Server(name, lease)),
            },
            Key::Session(host) => match decoded::<Shared>(&kv.value) {
                Some(shared) if shared.record.device == host => Said::Entry(Entry::Session(shared)),
                _ => Said::Nonsense(Key::Session(host)),
            },
            Key::Epoch => Said::Nothing,
            Key::Strange => Said::Nonsense(Key::Strange),
        }
    }
}

/// A value that is exactly what we would have written, to the last octet.
fn decoded<T: serde::Serialize + serde::de::DeserializeOwned>(text: &str) -> Option<T> {
    let bytes = BASE64.decode(text).ok().filter(|bytes| bytes.len() <= MOST_OF_A_VALUE)?;
    let value = postcard::from_bytes(&bytes).ok()?;
    (postcard::to_allocvec(&value).ok()? == bytes).then_some(value)
}

fn encoded(value: &impl serde::Serialize) -> Done<String> {
    postcard::to_allocvec(value).map(|bytes| BASE64.encode(bytes)).or_else(nonsense)
}

/// The connection for requests, made again when it breaks.
pub struct Client {
    target: Target,
    pub place: Place,
    connection: Option<Connection>,
    /// Which member is tried first.
    first: usize,
}

impl Client {
    pub fn new(target: Target, place: Place) -> Self {
        Self { target, place, connection: None, first: 0 }
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
                // 4xx: a lease that is gone, a request that is wrong. Anything else may have been carried out.
                if (400..500).contains(&status) { Err(Fault::Refused(why)) } else { Err(Fault::Unknown(why)) }
            }
            Err(why) => {
                // Another member may be better.
                self.first = self.first.wrapping_add(1) % self.target.members.len().max(1);
                Err(Fault::Unknown(format!("etcd: {why}")))
            }
        }
    }

    /// Takes a lease, and this server's keys under it.
    pub fn join(&mut self, ttl: u64) -> Done<Lease> {
        let granted: Granted = self.ask("/v3/lease/grant", &json!({ "TTL": ttl.to_string() }))?;
        let mut lease = Lease { id: granted.id, epoch: 0 };
        self.beat(&lease, 0, 0)?;
        lease.epoch = self.new_epoch(&lease)?;
        Ok(lease)
    }

    /// Makes every publishing fail that may still be under way.
    pub fn new_epoch(&mut self, lease: &Lease) -> Done<u64> {
        let key = BASE64.encode(self.place.epoch(lease.id));
        let put = json!({ "key": key, "lease": lease.id.to_string() });
        self.ask::<Written>("/v3/kv/put", &put).map(|written| written.header.revision)
    }

    pub fn beat(&mut self, lease: &Lease, number: u64, cut: u64) -> Done<()> {
        let key = BASE64.encode(self.place.server(lease.id));
        let value = encoded(&(number, cut))?;
        let put = json!({ "key": key, "value": value, "lease": lease.id.to_string() });
        self.ask::<Written>("/v3/kv/put", &put).map(drop)
    }

    pub fn renew(&mut self, lease: &Lease) -> Done<()> {
        let kept: Kept = self.ask("/v3/lease/keepalive", &json!({ "ID": lease.id.to_string() }))?;
        if kept.result.ttl == 0 { Err(Fault::Refused("the lease has run out".to_owned())) } else { Ok(()) }
    }

    /// Writes a session's key unless there is one of its TPE; whether it was written.
    pub fn publish(&mut self, lease: &Lease, shared: &Shared) -> Done<bool> {
        let key = BASE64.encode(self.place.session(&shared.record.device));
        let epoch = BASE64.encode(self.place.epoch(lease.id));
        let put = json!({ "key": key, "value": encoded(shared)?, "lease": lease.id.to_string() });
        let txn = json!({
            "compare": [
                { "key": key, "target": "CREATE", "create_revision": "0" },
                { "key": epoch, "target": "MOD", "mod_revision": lease.epoch.to_string() },
            ],
            "success": [{ "request_put": put }],
        });
        self.ask::<Compared>("/v3/kv/txn", &txn).map(|compared| compared.succeeded)
    }

    /// Deletes a session's key if it is this session's; the change at which it is not there. A key that says something else of this
    /// session is not ours any more: then nobody knows, and the table is given up.
    pub fn withdraw(&mut self, shared: &Shared) -> Done<u64> {
        let key = BASE64.encode(self.place.session(&shared.record.device));
        let txn = json!({
            "compare": [{ "key": key, "target": "VALUE", "value": encoded(shared)? }],
            "success": [{ "request_delete_range": { "key": key } }],
            "failure": [{ "request_range": { "key": key } }],
        });
        let compared: Compared = self.ask("/v3/kv/txn", &txn)?;
        if !compared.succeeded {
            let there = compared.responses.iter().filter_map(|r| r.range.as_ref()).flat_map(|r| &r.kvs);
            for kv in there {
                match self.place.said(kv) {
                    Said::Entry(Entry::Session(other)) if other.record.id != shared.record.id => {}
                    _ => {
                        let why = "a session's key says what this server did not write";
                        return Err(Fault::Refused(why.to_owned()));
                    }
                }
            }
            // It answers for one key, which is either there or not.
            if compared.responses.len() != 1 {
                return nonsense("a question without its answer");
            }
        }
        Ok(compared.header.revision)
    }

    /// All of the table, at one revision, and how many keys of it no server of the site writes.
    pub fn table(&mut self, mut take: impl FnMut(Vec<Entry>)) -> Done<(u64, u64)> {
        let (mut from, end) = self.place.all();
        let (mut at, mut strange) = (0, 0);
        loop {
            let range = json!({ "key": from, "range_end": end, "limit": "256", "revision": at.to_string() });
            let found: Found = self.ask("/v3/kv/range", &range)?;
            if at == 0 {
                at = found.header.revision;
            }
            let mut entries = Vec::new();
            for kv in &found.kvs {
                match self.place.said(kv) {
                    Said::Entry(entry) => entries.push(entry),
                    Said::Nothing => {}
                    Said::Nonsense(_) => strange += 1,
                }
            }
            take(entries);
            match found.kvs.last().filter(|_| found.more) {
                Some(last) => {
                    let mut next = BASE64.decode(&last.key).or_else(nonsense)?;
                    next.push(0);
                    let next = BASE64.encode(next);
                    if next == from {
                        return nonsense("a table without an end");
                    }
                    from = next;
                }
                None => return Ok((at, strange)),
            }
        }
    }
}

/// The watch from a revision on.
pub struct Watch<C = Connection> {
    connection: C,
    answer: Answer,
    rest: Vec<u8>,
}

impl Watch {
    pub fn open(target: &Target, place: &Place, from: u64, first: usize) -> std::io::Result<Self> {
        let mut connection = Connection::open(target, first)?;
        let (key, end) = place.all();
        let create =
            json!({ "create_request": { "key": key, "range_end": end, "start_revision": from.to_string() } });
        let answer = connection.post("/v3/watch", create.to_string().as_bytes())?;
        if answer.status != 200 {
            return Err(std::io::Error::other(format!("etcd refuses the watch: {}", answer.status)));
        }
        connection.patience(std::time::Duration::from_millis(500))?;
        Ok(Self::over(connection, answer))
    }
}

impl<S: Read + Write> Watch<Connection<S>> {
    /// What this answer on this connection goes on saying.
    pub fn over(connection: Connection<S>, answer: Answer) -> Self {
        Self { connection, answer, rest: Vec::new() }
    }

    /// The next message; `None` if none has come within half a second.
    pub fn next(&mut self, place: &Place) -> Result<Option<Batch>, WatchFault> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return read(place, &line).map(Some);
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

fn read(place: &Place, line: &[u8]) -> Result<Batch, WatchFault> {
    let lost = |why: &dyn std::fmt::Display| WatchFault::Lost(format!("etcd's watch: {why}"));
    let watched: Watched = serde_json::from_slice(line).map_err(|e| lost(&e))?;
    let WatchedResult { canceled, events } = watched.result;
    if canceled {
        return Err(lost(&"it was ended, and what has changed since is not to be had"));
    }
    let mut batch = Batch::default();
    for WatchedEvent { kind, kv } in events {
        let at = kv.mod_revision;
        // Only what has been told counts as seen: the header's is etcd's own state, which may be ahead of this watch.
        batch.revision = batch.revision.max(at);
        let deleted = kind.as_deref() == Some("DELETE");
        let said = if deleted { Said::Nonsense(place.key(&kv.key)) } else { place.said(&kv) };
        let change = match said {
            Said::Entry(entry) => Some(TableChange::Put(entry)),
            Said::Nothing => None,
            Said::Nonsense(Key::Server(name, lease)) if deleted => Some(TableChange::ServerGone(name, lease)),
            Said::Nonsense(Key::Server(name, lease)) => Some(TableChange::Spoilt(name, lease)),
            // No session stands in it any more, whatever does.
            Said::Nonsense(Key::Session(host)) => {
                batch.strange += u64::from(!deleted);
                Some(TableChange::SessionGone(host))
            }
            Said::Nonsense(Key::Epoch) => None,
            Said::Nonsense(Key::Strange) => {
                batch.strange += 1;
                None
            }
        };
        batch.changes.extend(change.map(|change| (at, change)));
    }
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_session::{SessionId, Stored, Time};

    fn place() -> Place {
        Place { site: SiteName::new("harbour").unwrap(), me: DomainName::new("one.example").unwrap() }
    }

    fn shared(device: &str) -> Shared {
        let record = Stored {
            id: SessionId::from_random([7; 16]),
            user: "ada".parse().unwrap(),
            device: device.parse().unwrap(),
            fingerprint: [1; 32],
            label: "SECRET//NATO".parse().unwrap(),
            inner: vec!["10.80.1.7".parse().unwrap()],
            opened: Time::default(),
        };
        Shared { owner: "two.example".parse().unwrap(), record }
    }

    fn event(key: &str, value: &str, kind: &str) -> Value {
        let kv =
            json!({ "key": BASE64.encode(key), "value": value, "create_revision": "3", "mod_revision": "9" });
        json!({ "type": kind, "kv": kv })
    }

    fn message(events: &[Value]) -> Vec<u8> {
        json!({ "result": { "header": { "revision": "12" }, "events": events } }).to_string().into_bytes()
    }

    #[test]
    fn what_the_watch_says_is_read_and_counts_as_seen_as_far_as_it_was_told() {
        let events = [
            event("/levee/harbour/server/two.example/77", &encoded(&(5u64, 4u64)).unwrap(), "PUT"),
            event("/levee/harbour/session/ws1", &encoded(&shared("ws1")).unwrap(), "PUT"),
            event("/levee/harbour/epoch/two.example/77", "", "PUT"),
            event("/levee/harbour/session/ws2", "", "DELETE"),
            event("/levee/harbour/server/two.example/76", "", "DELETE"),
        ];
        let Ok(batch) = read(&place(), &message(&events)) else { panic!("not read") };
        let two: DomainName = "two.example".parse().unwrap();
        let server = Entry::Server { name: two.clone(), lease: 77, joined: 3, beat: 5, cut: 4 };
        let told = [
            TableChange::Put(server),
            TableChange::Put(Entry::Session(shared("ws1"))),
            TableChange::SessionGone("ws2".parse().unwrap()),
            TableChange::ServerGone(two, 76),
        ];
        let changes = told.into_iter().map(|change| (9, change)).collect();
        assert_eq!(batch, Batch { revision: 9, changes, strange: 0 });
        let created = br#"{"result":{"header":{"revision":"12"},"created":true}}"#;
        assert!(matches!(read(&place(), created), Ok(batch) if batch == Batch::default()));
    }

    #[test]
    fn a_session_that_is_not_said_to_the_last_octet_as_a_server_says_it_is_none() {
        let whole = postcard::to_allocvec(&shared("ws1")).unwrap();
        let longer = [&whole[..], &[0]].concat();
        let huge = [&whole[..], &vec![0; 70_000]].concat();
        let (host, ws2): (HostName, _) = ("ws1".parse().unwrap(), encoded(&shared("ws2")).unwrap());
        for value in
            [BASE64.encode(longer), BASE64.encode(huge), "AAAA".into(), "*".into(), String::new(), ws2]
        {
            let batch = read(&place(), &message(&[event("/levee/harbour/session/ws1", &value, "PUT")]));
            let gone = vec![(9, TableChange::SessionGone(host.clone()))];
            let expected = Batch { revision: 9, changes: gone, strange: 1 };
            assert!(matches!(batch, Ok(batch) if batch == expected), "{value:.40}");
        }
    }

    #[test]
    fn keys_that_no_server_writes_are_counted_and_end_nothing() {
        let session = encoded(&shared("ws1")).unwrap();
        let strange = [
            event("/levee/harbour/session/../ws1", &session, "PUT"),
            event("/levee/harbour/server/two.example/x", &session, "PUT"),
            event("/levee/harbour/server/two.example/077", &session, "PUT"),
            event("/levee/other/session/ws1", &session, "PUT"),
            event("/levee/harbour/else", "", "DELETE"),
        ];
        let batch = read(&place(), &message(&strange));
        assert!(matches!(batch, Ok(Batch { strange: 5, changes, .. }) if changes.is_empty()));
        let spoilt = event("/levee/harbour/server/two.example/77", "AA==", "PUT");
        let batch = read(&place(), &message(&[spoilt]));
        let two = TableChange::Spoilt("two.example".parse().unwrap(), 77);
        assert!(matches!(batch, Ok(Batch { changes, .. }) if changes == [(9, two)]));
    }

    #[test]
    fn what_makes_no_sense_ends_the_watch_instead_of_leaving_a_gap() {
        for bad in
            [b"{}".to_vec(), b"\xff\n".to_vec(), br#"{"result":{"header":{},"canceled":true}}"#.to_vec()]
        {
            assert!(
                matches!(read(&place(), &bad), Err(WatchFault::Lost(_))),
                "{}",
                String::from_utf8_lossy(&bad)
            );
        }
    }
}
