//! `[vault]`: how the vaults of the server work.

use std::time::Duration;

use super::parse::{quantity, unknown_word};
use super::quantity::brief;
use super::read::{Keys, Reader};

/// The longest time to poll: beyond it a processor burns for next to nothing.
const LONGEST_POLL: Duration = Duration::from_millis(10);

/// The cryptographic library of the vaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AeadLibrary {
    /// The faster one for each suite, measured at each start.
    #[default]
    Fastest,
    /// `ring`
    Ring,
    /// `aws-lc`
    AwsLc,
}

/// What every vault of the server is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vault {
    pub(super) aead: AeadLibrary,
    pub(super) poll: Duration,
}

impl Vault {
    const LIBRARIES: [(&str, AeadLibrary); 3] =
        [("fastest", AeadLibrary::Fastest), ("ring", AeadLibrary::Ring), ("aws-lc", AeadLibrary::AwsLc)];

    /// Its cryptographic library.
    pub fn aead(self) -> AeadLibrary {
        self.aead
    }

    /// How long a vault looks for more before it blocks, at most 10 ms; zero, unless the site says otherwise. Round
    /// trips get shorter, and a processor is busy for that long after each packet.
    pub fn poll(self) -> Duration {
        self.poll
    }

    /// The same as arguments of `levee-vault`; what is not said is left out.
    pub fn arguments(self) -> Vec<String> {
        let mut arguments = Vec::new();
        let named = Self::LIBRARIES.into_iter().find(|(_, library)| *library == self.aead);
        if let Some((name, _)) = named.filter(|_| self.aead != AeadLibrary::Fastest) {
            arguments.extend(["--aead".to_owned(), name.to_owned()]);
        }
        if !self.poll.is_zero() {
            arguments.extend(["--latency".to_owned(), self.poll.as_micros().to_string()]);
        }
        arguments
    }

    pub(super) fn read(reader: &mut Reader<'_>, root: &Keys<'_>) -> Option<Self> {
        let Some(value) = root.get("vault") else { return Some(Self::default()) };
        let keys = reader.subtable(value, "[vault]", &["aead", "poll"])?;
        let aead = match keys.get("aead") {
            None => Some(AeadLibrary::default()),
            Some(value) => reader.string(value, "aead").and_then(|word| {
                let known = Self::LIBRARIES.into_iter().find(|(name, _)| *name == word.value);
                if known.is_none() {
                    unknown_word(
                        reader,
                        &word,
                        "AEAD library",
                        Self::LIBRARIES.iter().map(|(name, _)| *name),
                    );
                }
                known.map(|(_, library)| library)
            }),
        };
        let poll = match keys.get("poll") {
            None => Some(0),
            Some(value) => {
                let read = |text: &str| brief(text).and_then(|time| u64::try_from(time.as_micros()).ok());
                let longest = u64::try_from(LONGEST_POLL.as_micros()).unwrap_or(0);
                quantity(reader, value, "poll", read, 0..=longest, "a time from \"0us\" to \"10ms\"")
            }
        };
        Some(Self { aead: aead?, poll: Duration::from_micros(poll?) })
    }
}
