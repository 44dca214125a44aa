//! The keys that a receiver takes: the channel's, and while it is followed by another that one, too.

use crate::header::{Header, Kind, Run};
use crate::seal::{Sealed, Secret, fingerprint};
use levee_esp::{AeadError, AeadProvider};

/// Up to where a key that counts no more says that a run was sent, if there is such a key.
pub(crate) fn dropped(by: &Opened, keys: &[Key]) -> Option<u64> {
    let counts = |mark: u64| mark == 0 || keys.iter().any(|key| key.mark == mark);
    by.iter().filter(|(mark, _)| !counts(*mark)).map(|(_, to)| *to).max()
}

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
    /// By each key, in their order; and up to which block what it has opened of this run says that this was sent.
    by: Vec<(Sealed, Option<u64>)>,
}

/// Up to which blocks a run was sent as keys say that opened something of it: each by its mark, which is 0 for none.
pub(crate) type Opened = [(u64, u64); 2];

impl Opener {
    pub fn new(library: &dyn AeadProvider, keys: &[Key], run: Run) -> Result<Self, AeadError> {
        let by = keys.iter().map(|key| Ok((key.secret.of_run(library, run)?, None)));
        Ok(Self { run, by: by.collect::<Result<_, _>>()? })
    }

    /// Of a run of which keys with these marks have opened something; nothing where none of them is there: then it may be of whoever had a
    /// key that counts no more.
    pub fn after(
        library: &dyn AeadProvider,
        keys: &[Key],
        run: Run,
        by: Opened,
    ) -> Result<Option<Self>, AeadError> {
        let mut opener = Self::new(library, keys, run)?;
        for ((_, to), key) in opener.by.iter_mut().zip(keys) {
            *to = by.iter().find(|(mark, _)| *mark == key.mark).map(|(_, to)| *to);
        }
        Ok(Some(opener).filter(|opener| opener.to().is_some()))
    }

    /// Up to which block those keys that count say that the run was sent.
    pub fn to(&self) -> Option<u64> {
        self.by.iter().filter_map(|(_, to)| *to).max()
    }

    /// The same of each key that has opened something of this run.
    pub fn by_which(&self, keys: &[Key]) -> Opened {
        let mut all = self.by.iter().zip(keys).filter_map(|((_, to), key)| Some((key.mark, (*to)?)));
        [all.next().unwrap_or_default(), all.next().unwrap_or_default()]
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
        let ((sealed, to), key) = opens.ok_or(AeadError)?;
        let text = sealed.open(header, datagram)?;
        let behind = header.block.saturating_add(u64::from(!matches!(header.kind, Kind::Beat(_))));
        *to = (*to).max(Some(behind));
        key.opened = key.opened.saturating_add(1);
        Ok(text)
    }
}
