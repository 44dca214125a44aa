//! The keys that a receiver takes: the channel's, and while it is followed by another that one, too.

use crate::header::{Header, Run};
use crate::seal::{Sealed, Secret, fingerprint};
use levee_esp::{AeadError, AeadProvider};

/// The keys of a channel.
#[derive(Debug)]
pub struct Keys {
    /// The one that the sender uses.
    pub current: Secret,
    /// The one that it will use. What is sealed with either is taken: which of them the sender has come to nobody can tell the receiver.
    pub next: Option<Secret>,
}

impl From<Secret> for Keys {
    fn from(current: Secret) -> Self {
        Self { current, next: None }
    }
}

/// A key, and how many datagrams it has opened.
#[derive(Debug)]
pub(crate) struct Key {
    secret: Secret,
    /// What it is known by.
    mark: u64,
    pub opened: u64,
}

impl Key {
    /// Of these keys, with what those before them have opened.
    pub fn all(keys: Keys, before: &[Self]) -> Vec<Self> {
        let opened =
            |secret: &Secret| before.iter().find(|key| key.secret.is(secret)).map_or(0, |key| key.opened);
        let keys = [Some(keys.current), keys.next].into_iter().flatten();
        keys.map(|secret| Self { opened: opened(&secret), mark: secret.mark(), secret }).collect()
    }

    pub fn fingerprint(&self) -> String {
        fingerprint(self.mark)
    }
}

/// What opens a run's datagrams.
#[derive(Debug)]
pub(crate) struct Opener {
    pub run: Run,
    /// By each key, in their order; and whether it has opened one of this run.
    by: Vec<(Sealed, bool)>,
}

impl Opener {
    pub fn new(library: &dyn AeadProvider, keys: &[Key], run: Run) -> Result<Self, AeadError> {
        let by = keys.iter().map(|key| Ok((key.secret.of_run(library, run)?, false)));
        Ok(Self { run, by: by.collect::<Result<_, _>>()? })
    }

    /// Of a run of which keys with these marks have opened something; nothing where none of them is there: then it may be of whoever had a
    /// key that counts no more.
    pub fn after(
        library: &dyn AeadProvider,
        keys: &[Key],
        run: Run,
        by: [u64; 2],
    ) -> Result<Option<Self>, AeadError> {
        let mut opener = Self::new(library, keys, run)?;
        for ((_, has), key) in opener.by.iter_mut().zip(keys) {
            *has = by.contains(&key.mark);
        }
        Ok(Some(opener).filter(|opener| opener.by.iter().any(|(_, has)| *has)))
    }

    /// The marks of those keys that have opened something of this run; 0 for none.
    pub fn by_which(&self, keys: &[Key]) -> [u64; 2] {
        let mut marks = self.by.iter().zip(keys).filter(|((_, has), _)| *has).map(|(_, key)| key.mark);
        [marks.next().unwrap_or(0), marks.next().unwrap_or(0)]
    }

    /// Whether a key opens a datagram, which stays as it is.
    pub fn opens(&self, header: &Header, datagram: &[u8]) -> bool {
        self.by.iter().any(|(sealed, _)| sealed.open(header, &mut datagram.to_vec()).is_ok())
    }

    /// Opens a datagram in its place; answers what was sealed.
    pub fn open<'a>(
        &mut self,
        keys: &mut [Key],
        header: &Header,
        datagram: &'a mut [u8],
    ) -> Result<&'a [u8], AeadError> {
        let mut all = self.by.iter_mut().zip(keys);
        let opens = match all.len() {
            1 => all.next(),
            // One that does not open a datagram may leave it another than it was.
            _ => all.find(|((sealed, _), _)| sealed.open(header, &mut datagram.to_vec()).is_ok()),
        };
        let ((sealed, has), key) = opens.ok_or(AeadError)?;
        let text = sealed.open(header, datagram)?;
        *has = true;
        key.opened = key.opened.saturating_add(1);
        Ok(text)
    }
}
