//! `[crypto]`: which algorithms a site's keys are for.

use super::parse::unknown_word;
use super::read::{Keys, Reader};

/// The curve of a site's keys, its authority's among them: ECDSA with the hash of its own size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Curve {
    /// P-256, with SHA-256.
    #[default]
    P256,
    /// P-384, with SHA-384.
    P384,
}

impl Curve {
    const ALL: [(&str, Self); 2] = [("P-256", Self::P256), ("P-384", Self::P384)];

    /// NIST's name (FIPS 186-5), as the site file has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::P256 => "P-256",
            Self::P384 => "P-384",
        }
    }
}

impl std::fmt::Display for Curve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What the site has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crypto {
    keys: Curve,
}

impl Crypto {
    /// The curve of every private key that is made for the site, from its authority's on.
    pub fn keys(&self) -> Curve {
        self.keys
    }

    pub(super) fn read(reader: &mut Reader<'_>, root: &Keys<'_>) -> Option<Self> {
        let Some(value) = root.get("crypto") else { return Some(Self::default()) };
        let keys = reader.subtable(value, "[crypto]", &["keys"])?;
        let curve = match keys.get("keys") {
            None => Some(Curve::default()),
            Some(value) => reader.string(value, "keys").and_then(|word| {
                let known = Curve::ALL.into_iter().find(|(name, _)| *name == word.value);
                if known.is_none() {
                    unknown_word(reader, &word, "curve", Curve::ALL.iter().map(|(name, _)| *name));
                }
                known.map(|(_, curve)| curve)
            }),
        };
        Some(Self { keys: curve? })
    }
}
