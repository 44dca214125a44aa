//! The store of sessions: one file, synced at each change, so that sessions survive sessiond.

use levee_session::{Change, REST, SessionId, Stored, Time};
use redb::backends::FileBackend;
use redb::{Database, ReadableTable as _, TableDefinition};
use rustix::fs::{Mode, OFlags, openat};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Session's name → postcard of [`Stored`].
const SESSIONS: TableDefinition<'_, [u8; 16], &[u8]> = TableDefinition::new("sessions");
/// Inner address as text → milliseconds since the epoch until which it rests.
const RESTING: TableDefinition<'_, &str, u64> = TableDefinition::new("resting");
const FILE: &str = "sessions.redb";

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

/// What the store has.
pub type Contents = (Vec<Stored>, Vec<(IpAddr, Time)>);

/// The open store.
pub struct Store {
    database: Database,
}

impl Store {
    /// Opens the store in this directory, or makes an empty one.
    pub fn open(directory: BorrowedFd<'_>) -> Result<Self, StoreError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(directory, FILE, flags, Mode::RUSR | Mode::WUSR).map_err(other)?;
        let database = Database::builder().create_with_backend(FileBackend::new(File::from(file))?)?;
        let change = database.begin_write()?;
        change.open_table(SESSIONS)?;
        change.open_table(RESTING)?;
        change.commit()?;
        rustix::fs::fsync(directory).map_err(other)?;
        Ok(Self { database })
    }

    /// Every session, and every address that rests still; those whose rest is over are dropped.
    ///
    /// # Errors
    /// A record that cannot be read is an error: to go on without it would leave its session running unseen.
    pub fn read(&self, now: Time) -> Result<Contents, StoreError> {
        let change = self.database.begin_write()?;
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
                resting.push((key.value().parse().map_err(other)?, Time::from_millis(value.value())));
            }
        }
        change.commit()?;
        Ok((sessions, resting))
    }

    /// Makes the changes, all or none, and syncs them.
    pub fn apply<'a>(
        &self,
        changes: impl IntoIterator<Item = &'a Change>,
        now: Time,
    ) -> Result<(), StoreError> {
        let transaction = self.database.begin_write()?;
        {
            let mut sessions = transaction.open_table(SESSIONS)?;
            let mut resting = transaction.open_table(RESTING)?;
            for change in changes {
                match change {
                    Change::Put(record) => {
                        let bytes = postcard::to_allocvec(record).map_err(other)?;
                        sessions.insert(*record.id.as_bytes(), bytes.as_slice())?;
                    }
                    Change::Remove(id, addresses) => {
                        sessions.remove(*id.as_bytes())?;
                        for address in addresses {
                            resting.insert(address.to_string().as_str(), now.after(REST).as_millis())?;
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
    use levee_policy::{HostName, LabelName, UserName};
    use std::os::fd::AsFd as _;

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
        }
    }

    #[test]
    fn what_was_applied_is_there_after_opening_anew() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let store = Store::open(directory.as_fd()).unwrap();
        store.apply(&[Change::Put(record(1)), Change::Put(record(2))], NOW).unwrap();
        store.apply(&[Change::Remove(record(1).id, record(1).inner)], NOW).unwrap();
        drop(store);
        let store = Store::open(directory.as_fd()).unwrap();
        let (sessions, resting) = store.read(NOW).unwrap();
        assert_eq!(sessions, [record(2)]);
        assert_eq!(resting.len(), 2);
        assert!(resting.iter().all(|(_, until)| *until == NOW.after(REST)));
        let (_, resting) = store.read(NOW.after(REST)).unwrap();
        assert!(resting.is_empty());
    }

    #[test]
    fn a_record_that_cannot_be_read_is_an_error_not_a_gap() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let store = Store::open(directory.as_fd()).unwrap();
        let change = store.database.begin_write().unwrap();
        change.open_table(SESSIONS).unwrap().insert([1; 16], &b"rubbish"[..]).unwrap();
        change.commit().unwrap();
        assert!(store.read(NOW).is_err());
    }
}
