//! The store of sessions: one file, synced at each change, so that sessions survive sessiond.

use levee_policy::site::Placed;
use levee_policy::{LabelName, PostureName, ServiceName, UserName};
use levee_session::federation::Setting;
use levee_session::{Access, Change, InForce, REST, SessionId, Stored, Time};
use redb::{
    BackendError, Database, ReadableDatabase as _, ReadableTable as _, StorageBackend, TableDefinition,
};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, openat};
use std::fs::File;
use std::net::IpAddr;
use std::ops::Bound;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

/// Session's name → postcard of [`Stored`]. The table `sessions` of versions before had records without a protection: nobody reads it.
const SESSIONS: TableDefinition<'_, [u8; 16], &[u8]> = TableDefinition::new("protected sessions");
/// Label and inner address, a space between them → milliseconds since the epoch until which it rests there.
const RESTING: TableDefinition<'_, &str, u64> = TableDefinition::new("resting");
/// Names of sessions that are locked.
const LOCKED: TableDefinition<'_, [u8; 16], ()> = TableDefinition::new("locked");
/// Names of other servers' sessions that operators have ended here → milliseconds since the epoch when they did.
const ENDED_HERE: TableDefinition<'_, [u8; 16], u64> = TableDefinition::new("ended here");
/// Users who may not sign on.
const DISABLED: TableDefinition<'_, &str, ()> = TableDefinition::new("disabled");
/// What others write → the digest of it that the log knows.
const KNOWN: TableDefinition<'_, &str, [u8; 32]> = TableDefinition::new("known");
/// User → the last step of time of which a code of theirs was taken.
const CODES: TableDefinition<'_, &str, u64> = TableDefinition::new("codes");
/// One row, under an empty key: postcard of the list of [`InForce`]. Of before postures had ranges it has another form; no list with something in
/// it reads as both, so that a program of then does not start with half of what it does not know.
const POSTURES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("postures");
/// Beside the postures themselves, which have no name there: when and where they were set.
const SET: &str = "set";
/// The same: there, where something of before may be left.
const LEFT: &str = "left";
/// Label, service and user, a line each → whether that user reaches that service there, as somebody has said.
const ACCESSES: TableDefinition<'_, &str, bool> = TableDefinition::new("accesses");
/// Label → who was the first there.
const FIRSTS: TableDefinition<'_, &str, &str> = TableDefinition::new("firsts");
const FILE: &str = "sessions.redb";
/// Bytes that the store keeps on the disk to grow into, at least; else as many as it has, since it doubles when it grows.
const SPARE: u64 = 2 << 20;

/// The store cannot be read or written.
#[derive(Debug)]
pub struct StoreError(String);

impl std::fmt::Display for StoreError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the store of sessions: {}", self.0)
    }
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        Self(error.into().to_string())
    }
}

fn other(error: impl std::fmt::Display) -> StoreError {
    StoreError(error.to_string())
}

/// A file whose blocks are allocated before they are used: on a disk that is full, growing it fails cleanly and
/// what it has can still be changed, so that sessions can end.
#[derive(Debug)]
struct Allocated(File);

impl Allocated {
    fn new(file: File) -> std::io::Result<Self> {
        let length = file.metadata()?.len();
        let this = Self(file);
        this.allocate(length)?;
        Ok(this)
    }

    /// Blocks for so many bytes and, if the disk has them, as many more to grow into, [`SPARE`] at least.
    fn allocate(&self, length: u64) -> std::io::Result<()> {
        if length > 0 {
            fallocate(&self.0, FallocateFlags::empty(), 0, length)?;
        }
        let spare = length.max(SPARE);
        let _ = fallocate(&self.0, FallocateFlags::KEEP_SIZE, 0, length.saturating_add(spare));
        Ok(())
    }
}

impl StorageBackend for Allocated {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        let before = self.0.metadata()?;
        if len < before.len() {
            self.0.set_len(len)?;
            // What it had it keeps: on a full disk nobody else is to have it.
            let _ = fallocate(&self.0, FallocateFlags::KEEP_SIZE, 0, before.blocks().saturating_mul(512));
        }
        self.allocate(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    /// One sessiond at a time: the lock is on the whole file, whatever range is asked for.
    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        match self.0.try_lock() {
            Ok(()) => Ok(true),
            Err(std::fs::TryLockError::WouldBlock) => Ok(false),
            Err(std::fs::TryLockError::Error(error)) => Err(error.into()),
        }
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(self.0.unlock()?)
    }

    fn close(&self) -> std::io::Result<()> {
        self.0.unlock()
    }
}

/// What the row of postures says, in either form.
fn read_in_force(row: &[u8]) -> Result<Vec<InForce>, StoreError> {
    let before = || {
        let names: Vec<(PostureName, Option<Time>)> = postcard::from_bytes(row).map_err(other)?;
        let everywhere = |(name, until)| InForce { what: Placed::everywhere(name), until };
        Ok(names.into_iter().map(everywhere).collect())
    };
    postcard::from_bytes(row).or_else(|_| before())
}

/// What the store has.
pub type Contents = (Vec<Stored>, Vec<(LabelName, IpAddr, Time)>);

/// The open store.
pub struct Store {
    file: File,
    /// None after a failure: the library trusts a file no more whose disk has failed once, and nor do we, so it is
    /// opened anew, which also takes back what was half done.
    database: Option<Database>,
    /// The last changes could not be made.
    failed: bool,
}

impl Store {
    /// Opens the store in this directory, or makes an empty one.
    pub fn open(directory: BorrowedFd<'_>) -> Result<Self, StoreError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(openat(directory, FILE, flags, Mode::RUSR | Mode::WUSR).map_err(other)?);
        let mut store = Self { file, database: None, failed: false };
        let change = store.database()?.begin_write()?;
        change.open_table(SESSIONS)?;
        change.open_table(RESTING)?;
        change.open_table(LOCKED)?;
        change.open_table(ENDED_HERE)?;
        change.open_table(DISABLED)?;
        change.open_table(KNOWN)?;
        change.open_table(CODES)?;
        change.open_table(POSTURES)?;
        change.open_table(ACCESSES)?;
        change.open_table(FIRSTS)?;
        change.commit()?;
        rustix::fs::fsync(directory).map_err(other)?;
        Ok(store)
    }

    fn database(&mut self) -> Result<&Database, StoreError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => {
                let file = Allocated::new(self.file.try_clone().map_err(other)?).map_err(other)?;
                Database::builder().create_with_backend(file)?
            }
        };
        Ok(self.database.insert(database))
    }

    /// Every session, and every address that rests still; those whose rest is over are dropped.
    ///
    /// # Errors
    /// A record that cannot be read is an error: to go on without it would leave its session running unseen.
    pub fn read(&mut self, now: Time) -> Result<Contents, StoreError> {
        let change = self.database()?.begin_write()?;
        let mut sessions = Vec::new();
        let mut resting = Vec::new();
        {
            for row in change.open_table(SESSIONS)?.iter()? {
                let (key, value) = row?;
                let record: Stored = postcard::from_bytes(value.value()).map_err(other)?;
                if record.id != SessionId::from_random(key.value()) {
                    return Err(other("a session is kept under another's name"));
                }
                sessions.push(record);
            }
            let mut table = change.open_table(RESTING)?;
            table.retain(|_, until| until > now.as_millis())?;
            for row in table.iter()? {
                let (key, value) = row?;
                // Without a label it is of a run that knew none, and of all labels: nobody waits for it any more.
                let Some((label, address)) = key.value().rsplit_once(' ') else { continue };
                let label = LabelName::new(label).map_err(other)?;
                resting.push((label, address.parse().map_err(other)?, Time::from_millis(value.value())));
            }
        }
        change.commit()?;
        Ok((sessions, resting))
    }

    /// The sessions that are locked.
    pub fn locked(&mut self) -> Result<Vec<SessionId>, StoreError> {
        let read = self.database()?.begin_read()?;
        let mut locked = Vec::new();
        for row in read.open_table(LOCKED)?.iter()? {
            locked.push(SessionId::from_random(row?.0.value()));
        }
        Ok(locked)
    }

    /// Other servers' sessions that operators have ended here, and when.
    pub fn ended_here(&mut self) -> Result<Vec<(SessionId, Time)>, StoreError> {
        let read = self.database()?.begin_read()?;
        let mut ended = Vec::new();
        for row in read.open_table(ENDED_HERE)?.iter()? {
            let (id, at) = row?;
            ended.push((SessionId::from_random(id.value()), Time::from_millis(at.value())));
        }
        Ok(ended)
    }

    /// Every user who may not sign on.
    pub fn disabled(&mut self) -> Result<Vec<UserName>, StoreError> {
        let read = self.database()?.begin_read()?;
        let mut users = Vec::new();
        for row in read.open_table(DISABLED)?.iter()? {
            users.push(UserName::new(row?.0.value()).map_err(other)?);
        }
        Ok(users)
    }

    /// What the log knows of what others write.
    pub fn known(&mut self) -> Result<Vec<(String, [u8; 32])>, StoreError> {
        let read = self.database()?.begin_read()?;
        let mut rows = Vec::new();
        for row in read.open_table(KNOWN)?.iter()? {
            let (key, digest) = row?;
            rows.push((key.value().to_owned(), digest.value()));
        }
        Ok(rows)
    }

    /// The last step of time of which each user's code was taken.
    pub fn codes(&mut self) -> Result<Vec<(UserName, u64)>, StoreError> {
        let read = self.database()?.begin_read()?;
        let mut taken = Vec::new();
        for row in read.open_table(CODES)?.iter()? {
            let (user, step) = row?;
            taken.push((UserName::new(user.value()).map_err(other)?, step.value()));
        }
        Ok(taken)
    }

    /// Who was the first at which label.
    pub fn firsts(&mut self) -> Result<Vec<(LabelName, UserName)>, StoreError> {
        let read = self.database()?.begin_read()?;
        let mut firsts = Vec::new();
        for row in read.open_table(FIRSTS)?.iter()? {
            let (label, user) = row?;
            firsts.push((
                LabelName::new(label.value()).map_err(other)?,
                UserName::new(user.value()).map_err(other)?,
            ));
        }
        Ok(firsts)
    }

    /// The postures in force, and when and where they were set; and whether nothing of before is left.
    pub fn postures(&mut self) -> Result<(Setting, bool), StoreError> {
        let read = self.database()?.begin_read()?;
        let table = read.open_table(POSTURES)?;
        let Some(row) = table.get("")? else { return Ok((Setting::default(), true)) };
        let in_force = read_in_force(row.value())?;
        // A store of before servers told each other has not this one.
        let (number, at) = match table.get(SET)? {
            None => (0, None),
            Some(row) => postcard::from_bytes(row.value()).map_err(other)?,
        };
        Ok((Setting { number, at, in_force }, table.get(LEFT)?.is_none()))
    }

    /// What has been said of who reaches a service.
    pub fn accesses(&mut self) -> Result<Vec<Access>, StoreError> {
        let read = self.database()?.begin_read()?;
        let mut said = Vec::new();
        for row in read.open_table(ACCESSES)?.iter()? {
            let (key, admits) = row?;
            let mut parts = key.value().split('\n');
            let (Some(label), Some(service), Some(user), None) =
                (parts.next(), parts.next(), parts.next(), parts.next())
            else {
                return Err(other("a word about a service is not about one person"));
            };
            let label = LabelName::new(label).map_err(other)?;
            let (service, user) =
                (ServiceName::new(service).map_err(other)?, UserName::new(user).map_err(other)?);
            said.push(Access { label, service, user, admits: admits.value() });
        }
        Ok(said)
    }

    /// That the last changes could not be made.
    pub fn alarm(&self) -> Option<String> {
        let why = "the store of sessions could not be written: no session begins, or ends in good order, until it is";
        self.failed.then(|| why.to_owned())
    }

    /// Makes the changes, all or none, and syncs them.
    pub fn apply(&mut self, changes: &[Change], now: Time) -> Result<(), StoreError> {
        let applied = self.try_apply(changes, now);
        self.failed = applied.is_err();
        if self.failed {
            self.database = None;
        }
        applied
    }

    fn try_apply(&mut self, changes: &[Change], now: Time) -> Result<(), StoreError> {
        let transaction = self.database()?.begin_write()?;
        {
            let mut sessions = transaction.open_table(SESSIONS)?;
            let mut resting = transaction.open_table(RESTING)?;
            let mut locked = transaction.open_table(LOCKED)?;
            let mut ended_here = transaction.open_table(ENDED_HERE)?;
            let mut disabled = transaction.open_table(DISABLED)?;
            let mut known = transaction.open_table(KNOWN)?;
            let mut codes = transaction.open_table(CODES)?;
            let mut postures = transaction.open_table(POSTURES)?;
            let mut accesses = transaction.open_table(ACCESSES)?;
            let mut firsts = transaction.open_table(FIRSTS)?;
            for change in changes {
                match change {
                    Change::Locked(id, true) => drop(locked.insert(*id.as_bytes(), ())?),
                    Change::Locked(id, false) => drop(locked.remove(*id.as_bytes())?),
                    Change::EndedHere(id, Some(at)) => {
                        ended_here.insert(*id.as_bytes(), at.as_millis())?;
                    }
                    Change::EndedHere(id, None) => drop(ended_here.remove(*id.as_bytes())?),
                    Change::Disabled(user, true) => drop(disabled.insert(user.as_str(), ())?),
                    Change::Disabled(user, false) => drop(disabled.remove(user.as_str())?),
                    Change::Code(user, step) => drop(codes.insert(user.as_str(), *step)?),
                    Change::Known(key, Some(digest)) => drop(known.insert(key.as_str(), *digest)?),
                    Change::First(label, user) => {
                        firsts.insert(label.as_str(), user.as_str())?;
                    }
                    Change::Known(key, None) => drop(known.remove(key.as_str())?),
                    Change::Postures(Setting { number, at, in_force }) => {
                        let bytes = postcard::to_allocvec(in_force).map_err(other)?;
                        postures.insert("", bytes.as_slice())?;
                        let bytes = postcard::to_allocvec(&(number, at)).map_err(other)?;
                        postures.insert(SET, bytes.as_slice())?;
                        postures.insert(LEFT, [].as_slice())?;
                    }
                    Change::Followed => drop(postures.remove(LEFT)?),
                    Change::Access(Access { label, service, user, admits }, counts) => {
                        let key = format!("{label}\n{service}\n{user}");
                        if *counts {
                            accesses.insert(key.as_str(), admits)?;
                        } else {
                            accesses.remove(key.as_str())?;
                        }
                    }
                    Change::Put(record) => {
                        let bytes = postcard::to_allocvec(record).map_err(other)?;
                        sessions.insert(*record.id.as_bytes(), bytes.as_slice())?;
                    }
                    Change::Remove(id, label, addresses) => {
                        sessions.remove(*id.as_bytes())?;
                        locked.remove(*id.as_bytes())?;
                        for address in addresses {
                            let key = format!("{label} {address}");
                            resting.insert(key.as_str(), now.after(REST).as_millis())?;
                        }
                    }
                }
            }
        }
        transaction.commit()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_policy::{DomainName, HostName};
    use levee_sys::mount::{Attributes, Mount};
    use std::os::fd::{AsFd as _, AsRawFd as _};

    const NOW: Time = Time::from_millis(1_000_000);

    fn record(n: u8) -> Stored {
        Stored {
            id: SessionId::from_random([n; 16]),
            user: UserName::new("ann").unwrap(),
            device: HostName::new("ws1").unwrap(),
            fingerprint: [n; 32],
            label: LabelName::new("SECRET//NATO").unwrap(),
            inner: vec!["10.9.0.7".parse().unwrap(), "fd00::7".parse().unwrap()],
            opened: NOW,
            protection: None,
        }
    }

    #[test]
    fn what_was_applied_is_there_after_opening_anew() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let mut store = Store::open(directory.as_fd()).unwrap();
        store.apply(&[Change::Put(record(1)), Change::Put(record(2))], NOW).unwrap();
        store.apply(&[Change::Remove(record(1).id, record(1).label, record(1).inner)], NOW).unwrap();
        drop(store);
        let mut store = Store::open(directory.as_fd()).unwrap();
        let (sessions, resting) = store.read(NOW).unwrap();
        assert_eq!(sessions, [record(2)]);
        assert_eq!(resting.len(), 2);
        assert!(
            resting.iter().all(|(label, _, until)| *label == record(1).label && *until == NOW.after(REST))
        );
        let (_, resting) = store.read(NOW.after(REST)).unwrap();
        assert!(resting.is_empty());
    }

    #[test]
    fn that_an_operator_has_ended_anothers_session_here_is_kept_until_it_is_forgotten() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let mut store = Store::open(directory.as_fd()).unwrap();
        let ended = |n, at| Change::EndedHere(record(n).id, at);
        let later = NOW.after(REST);
        store.apply(&[ended(1, Some(NOW)), ended(2, Some(later)), ended(3, Some(NOW))], NOW).unwrap();
        drop(store);
        let mut store = Store::open(directory.as_fd()).unwrap();
        store.apply(&[ended(3, None)], NOW).unwrap();
        assert_eq!(store.ended_here().unwrap(), [(record(1).id, NOW), (record(2).id, later)]);
    }

    #[test]
    fn a_lock_is_kept_until_it_is_taken_off_or_its_session_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let ids = |numbers: &[u8]| -> Vec<SessionId> { numbers.iter().map(|n| record(*n).id).collect() };
        let mut store = Store::open(directory.as_fd()).unwrap();
        for n in 1..=3 {
            store.apply(&[Change::Put(record(n)), Change::Locked(record(n).id, true)], NOW).unwrap();
        }
        drop(store);
        let mut store = Store::open(directory.as_fd()).unwrap();
        assert_eq!(store.locked().unwrap(), ids(&[1, 2, 3]));
        let gone = Change::Remove(record(2).id, record(2).label, record(2).inner);
        store.apply(&[Change::Locked(record(1).id, false), gone], NOW).unwrap();
        assert_eq!(store.locked().unwrap(), ids(&[3]));
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error_not_a_gap() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let mut store = Store::open(directory.as_fd()).unwrap();
        let change = store.database().unwrap().begin_write().unwrap();
        change.open_table(SESSIONS).unwrap().insert([1; 16], &b"rubbish"[..]).unwrap();
        change.commit().unwrap();
        assert!(store.read(NOW).is_err());
    }

    #[test]
    fn what_is_known_beside_sessions_is_there_after_opening_anew_and_can_be_taken_back() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let user = |name: &str| UserName::new(name).unwrap();
        let access = |name: &str, admits| Access {
            label: record(1).label,
            service: ServiceName::new("wiki").unwrap(),
            user: user(name),
            admits,
        };
        let siege = PostureName::new("siege").unwrap();
        let ranges = |ranges: &[&str]| Some(ranges.iter().map(|range| range.parse().unwrap()).collect());
        let all = InForce { what: Placed::everywhere(siege.clone()), until: Some(NOW) };
        let some =
            Placed { posture: Some(siege), labels: ranges(&["SECRET", "CONFIDENTIAL..SECRET//NATO,MED"]) };
        let default = Placed { posture: None, labels: ranges(&["UNCLASSIFIED"]) };
        let placed = [some, default].map(|what| InForce { what, until: None });
        let at = Some(DomainName::new("server.example").unwrap());
        let setting = Setting { number: 7, at, in_force: [all].into_iter().chain(placed).collect() };
        let mut store = Store::open(directory.as_fd()).unwrap();
        assert_eq!(store.postures().unwrap(), (Setting::default(), true));
        let said = [
            Change::Disabled(user("ann"), true),
            Change::Disabled(user("bob"), true),
            Change::Code(user("ann"), 3),
            Change::Code(user("ann"), 4),
            Change::Known("passwords".into(), Some([1; 32])),
            Change::Known("codes".into(), Some([2; 32])),
            Change::Postures(setting.clone()),
            Change::Access(access("ann", true), true),
            Change::Access(access("bob", false), true),
            Change::First(LabelName::new("SECRET//NATO").unwrap(), user("ann")),
        ];
        store.apply(&said, NOW).unwrap();
        drop(store);
        let mut store = Store::open(directory.as_fd()).unwrap();
        assert_eq!(store.disabled().unwrap(), [user("ann"), user("bob")]);
        assert_eq!(store.codes().unwrap(), [(user("ann"), 4)]);
        assert_eq!(
            store.known().unwrap(),
            [("codes".to_owned(), [2; 32]), ("passwords".to_owned(), [1; 32])]
        );
        assert_eq!(store.postures().unwrap(), (setting.clone(), false));
        assert_eq!(store.accesses().unwrap(), [access("ann", true), access("bob", false)]);
        assert_eq!(store.firsts().unwrap(), [(LabelName::new("SECRET//NATO").unwrap(), user("ann"))]);
        let back = [
            Change::Disabled(user("ann"), false),
            Change::Known("codes".into(), None),
            Change::Access(access("ann", true), false),
            Change::Followed,
        ];
        store.apply(&back, NOW).unwrap();
        assert_eq!(store.postures().unwrap(), (setting, true));
        assert_eq!(store.disabled().unwrap(), [user("bob")]);
        assert_eq!(store.known().unwrap(), [("passwords".to_owned(), [1; 32])]);
        assert_eq!(store.accesses().unwrap(), [access("bob", false)]);
    }

    /// As it was before postures could be set at some labels.
    type Before = Vec<(PostureName, Option<Time>)>;

    #[test]
    fn postures_of_a_store_of_before_there_were_ranges_count_everywhere_and_a_program_of_then_does_not_obey_half()
     {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let mut store = Store::open(directory.as_fd()).unwrap();
        let mut row = |bytes: &[u8]| {
            let change = store.database().unwrap().begin_write().unwrap();
            change.open_table(POSTURES).unwrap().insert("", bytes).unwrap();
            change.commit().unwrap();
            store.postures().map(|(setting, _)| setting.in_force)
        };
        // A name of one letter looks most like what is there now.
        for name in ["s", "siege", "0", &"p".repeat(32)] {
            let name = PostureName::new(name).unwrap();
            for until in [None, Some(NOW), Some(Time::from_millis(u64::MAX))] {
                let before: Before = vec![(name.clone(), until); 2];
                let now = vec![InForce { what: Placed::everywhere(name.clone()), until }; 2];
                assert_eq!(row(&postcard::to_allocvec(&before).unwrap()).unwrap(), now);
                let bytes = postcard::to_allocvec(&now).unwrap();
                assert!(postcard::from_bytes::<Before>(&bytes).is_err());
                assert_eq!(row(&bytes).unwrap(), now);
            }
        }
        let default = Placed { posture: None, labels: Some(vec!["SECRET".parse().unwrap()]) };
        let bytes = postcard::to_allocvec(&vec![InForce { what: default, until: None }]).unwrap();
        assert!(postcard::from_bytes::<Before>(&bytes).is_err());
        assert_eq!(row(&[0]).unwrap(), [], "of nothing both are the same");
        for wrong in [&[][..], &[1], &[1, 1], &[1, 5, b's'], b"rubbish"] {
            assert!(row(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_session_under_anothers_name_and_a_word_about_a_service_that_is_about_nobody_are_errors() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let mut store = Store::open(directory.as_fd()).unwrap();
        for key in ["SECRET", "SECRET\nwiki", "SECRET\nwiki\nann\nbob", "SECRET\nwiki\n", "\nwiki\nann"] {
            let change = store.database().unwrap().begin_write().unwrap();
            change.open_table(ACCESSES).unwrap().insert(key, true).unwrap();
            change.commit().unwrap();
            assert!(store.accesses().is_err(), "{key:?}");
            let change = store.database().unwrap().begin_write().unwrap();
            change.open_table(ACCESSES).unwrap().remove(key).unwrap();
            change.commit().unwrap();
        }
        assert!(store.accesses().unwrap().is_empty() && store.read(NOW).is_ok());
        let change = store.database().unwrap().begin_write().unwrap();
        let bytes = postcard::to_allocvec(&record(1)).unwrap();
        change.open_table(SESSIONS).unwrap().insert([2; 16], bytes.as_slice()).unwrap();
        change.commit().unwrap();
        assert!(store.read(NOW).is_err());
    }

    #[test]
    fn one_process_at_a_time_has_the_store_and_after_a_failure_it_is_opened_anew() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let mut store = Store::open(directory.as_fd()).unwrap();
        assert!(Store::open(directory.as_fd()).is_err());
        store.apply(&[Change::Put(record(1))], NOW).unwrap();
        store.database = None;
        store.apply(&[Change::Put(record(2))], NOW).unwrap();
        assert_eq!(store.read(NOW).unwrap().0, [record(1), record(2)]);
        // It has room for more than it uses, also on a disk that is full. It is nobody else's to read.
        let file = std::fs::metadata(place.path().join(FILE)).unwrap();
        assert_eq!(file.mode() & 0o777, 0o600);
        assert!(file.blocks() * 512 >= file.len() + SPARE, "{} {}", file.blocks(), file.len());
    }

    #[test]
    fn a_file_that_shrinks_keeps_its_room() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(FILE);
        let file = Allocated::new(File::create_new(&path).unwrap()).unwrap();
        file.set_len(3 * SPARE).unwrap();
        let before = std::fs::metadata(&path).unwrap().blocks();
        file.set_len(1).unwrap();
        let after = std::fs::metadata(&path).unwrap();
        assert_eq!((after.len(), after.blocks() >= before), (1, true), "{} {before}", after.blocks());
    }

    #[test]
    fn however_many_there_are_on_a_full_disk_all_of_them_can_end_at_once() {
        const MANY: u32 = 20_000;
        let disk =
            Mount::new("tmpfs", &[("size", "64m")], Attributes::DATA).expect("a small disk: it needs root");
        let place = std::path::PathBuf::from(format!("/proc/self/fd/{}", disk.root().as_raw_fd()));
        let directory = File::open(&place).unwrap();
        let numbered = |n: u32| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&n.to_be_bytes());
            let address = std::net::Ipv4Addr::from(0x0a00_0000 + n).into();
            Stored { id: SessionId::from_random(id), inner: vec![address], ..record(1) }
        };
        let mut store = Store::open(directory.as_fd()).unwrap();
        for begin in (0..MANY).step_by(1_000) {
            let some: Vec<_> = (begin..begin + 1_000).map(|n| Change::Put(numbered(n))).collect();
            store.apply(&some, NOW).unwrap();
        }
        let filler = File::create(place.join("filler")).unwrap();
        std::io::copy(&mut std::io::repeat(0), &mut &filler).expect_err("it has room without end");
        let ended = |record: Stored| Change::Remove(record.id, record.label, record.inner);
        let all: Vec<_> = (0..MANY).map(|n| ended(numbered(n))).collect();
        store.apply(&all, NOW).unwrap();
        let (sessions, resting) = store.read(NOW).unwrap();
        assert_eq!((sessions.len(), resting.len()), (0, MANY as usize));
    }
}
