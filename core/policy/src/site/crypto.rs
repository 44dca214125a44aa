//! `[crypto]`: which algorithms a site's keys are for, and which its protocols use.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::DeValue;

use super::cipher::Cipher;
use super::exchange::{Exchange, Exchanges};
use super::problem::ProblemKind;
use super::read::{At, Reader, Table};
use super::reference;
use super::values::unknown_word;

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

/// Which algorithms IKE, ESP and the trusted path use. Whatever else a peer offers is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Suites {
    /// levee's own choice: strong ones first, and several that other clients may have.
    #[default]
    Default,
    /// Those of the Commercial National Security Algorithm Suite alone: AES-256-GCM, SHA-384, P-384 (RFC 9206, RFC 9151). Between levee
    /// hosts ML-KEM-1024 comes on top.
    Cnsa,
    /// The same, with ML-KEM-1024 in every IKE SA, whoever the peer is.
    CnsaMlKem,
}

impl Suites {
    const ALL: [(&str, Self); 3] =
        [("default", Self::Default), ("cnsa", Self::Cnsa), ("cnsa-ml-kem", Self::CnsaMlKem)];

    /// The word for it in a site file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Cnsa => "cnsa",
            Self::CnsaMlKem => "cnsa-ml-kem",
        }
    }

    /// The ciphers that tunnels may have, the preferred first, where no posture says otherwise.
    pub fn ciphers(self) -> &'static [Cipher] {
        match self {
            Self::Default => &[Cipher::Aes256Gcm, Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305],
            Self::Cnsa | Self::CnsaMlKem => &[Cipher::Aes256Gcm],
        }
    }

    /// What keys may be agreed by where no posture says otherwise.
    pub fn exchanges(self) -> Exchanges {
        let curves = match self {
            Self::Default => Exchange::ALL.map(|(_, curve)| curve).to_vec(),
            Self::Cnsa | Self::CnsaMlKem => vec![Exchange::P384],
        };
        Exchanges { curves, ml_kem: self == Self::CnsaMlKem }
    }

    /// The same as arguments of the programs that need to know; by default there are none.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::Cnsa => &["--suites", "cnsa"],
            Self::CnsaMlKem => &["--suites", "cnsa-ml-kem"],
        }
    }

    /// The curve that keys must be on; `None` where it does not matter.
    pub fn curve(self) -> Option<Curve> {
        match self {
            Self::Default => None,
            Self::Cnsa | Self::CnsaMlKem => Some(Curve::P384),
        }
    }
}

impl Cipher {
    /// All there are, in levee's own order.
    pub fn all() -> &'static [Self] {
        Suites::Default.ciphers()
    }
}

impl std::fmt::Display for Suites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no suites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownSuites;

impl std::fmt::Display for UnknownSuites {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("suites are `default`, `cnsa` or `cnsa-ml-kem`")
    }
}
impl std::error::Error for UnknownSuites {}

impl FromStr for Suites {
    type Err = UnknownSuites;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|(name, _)| *name == word).map(|(_, suites)| suites).ok_or(UnknownSuites)
    }
}

/// What the site has chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crypto {
    keys: Curve,
    suites: Suites,
}

impl Crypto {
    /// The curve of every private key that is made for the site, from its authority's on.
    pub fn keys(&self) -> Curve {
        self.keys
    }

    /// What its protocols use.
    pub fn suites(&self) -> Suites {
        self.suites
    }

    pub(super) fn read(reader: &mut Reader<'_>, root: &Table<'_>) -> Option<Self> {
        let Some(value) = root.get("crypto") else { return Some(Self::default()) };
        let table = reader.subtable(value, "[crypto]", &reference::CRYPTO.names())?;
        let keys = word(reader, table.get("keys"), "keys", "curve", &Curve::ALL);
        let suites = word(reader, table.get("suites"), "suites", "name of suites", &Suites::ALL);
        let (keys, suites) = (keys?, suites?);
        let suites = suites.map_or(Suites::default(), |suites| suites.value);
        if let (Some(said), Some(needed)) = (&keys, suites.curve())
            && said.value != needed
        {
            reader.problem(
                ProblemKind::BadValue,
                &said.span,
                format!("`suites` is `{suites}`, and keys on {} do not fit it", said.value),
                format!("write `keys = \"{needed}\"`, and enrol anew: levee enrol all --force"),
            );
            return None;
        }
        let keys = keys.map(|keys| keys.value).or(suites.curve()).unwrap_or_default();
        Some(Self { keys, suites })
    }
}

/// One of these words, if the key is there.
fn word<T: Copy>(
    reader: &mut Reader<'_>,
    value: Option<&Spanned<DeValue<'_>>>,
    key: &str,
    what: &str,
    known: &[(&str, T)],
) -> Option<Option<At<T>>> {
    let Some(value) = value else { return Some(None) };
    let word = reader.string(value, key)?;
    match known.iter().find(|(name, _)| *name == word.value) {
        Some((_, meant)) => Some(Some(At::new(*meant, word.span))),
        None => {
            unknown_word(reader, &word, what, known.iter().map(|(name, _)| *name));
            None
        }
    }
}

/// What a site may choose some of.
struct Algorithms<'a, T> {
    /// The key in the file.
    key: &'a str,
    /// What one of them is called.
    kind: &'a str,
    /// All there are.
    all: &'a [(&'a str, T)],
    /// Those that suites have.
    had: fn(Suites) -> Vec<T>,
}

/// At least one, each once, and of those that the site's suites have.
pub(super) fn ciphers_of(
    reader: &mut Reader<'_>,
    value: &Spanned<DeValue<'_>>,
    crypto: Option<&Crypto>,
    whose: &str,
) -> Option<Vec<Cipher>> {
    let had = |suites: Suites| suites.ciphers().to_vec();
    some_of(
        reader,
        value,
        crypto,
        whose,
        &Algorithms { key: "ciphers", kind: "cipher", all: &Cipher::ALL, had },
    )
}

/// The same of curves.
pub(super) fn exchanges_of(
    reader: &mut Reader<'_>,
    value: &Spanned<DeValue<'_>>,
    crypto: Option<&Crypto>,
    whose: &str,
) -> Option<Vec<Exchange>> {
    let had = |suites: Suites| suites.exchanges().curves;
    some_of(
        reader,
        value,
        crypto,
        whose,
        &Algorithms { key: "exchanges", kind: "curve", all: &Exchange::ALL, had },
    )
}

fn some_of<T: Copy + PartialEq + std::fmt::Display>(
    reader: &mut Reader<'_>,
    value: &Spanned<DeValue<'_>>,
    crypto: Option<&Crypto>,
    whose: &str,
    of: &Algorithms<'_, T>,
) -> Option<Vec<T>> {
    let words = reader.strings(value, of.key)?;
    if words.is_empty() {
        let what = format!("a {whose} without a {} lets nothing pass", of.kind);
        reader.problem(ProblemKind::BadValue, &value.span(), what, "name at least one");
    }
    let suites = crypto.map(Crypto::suites);
    let mut some = Vec::new();
    for word in words {
        let known = of.all.iter().find(|(name, _)| *name == word.value);
        let Some((_, one)) = known else {
            unknown_word(reader, &word, of.kind, of.all.iter().map(|(name, _)| *name));
            continue;
        };
        if let Some(suites) = suites.filter(|suites| !(of.had)(*suites).contains(one)) {
            let what = format!("`suites` is `{suites}`, which has no {one}");
            reader.problem(ProblemKind::BadValue, &word.span, what, "take it out, or choose other suites");
        }
        if some.contains(one) {
            let what = format!("`{one}` stands here twice");
            reader.problem(ProblemKind::Duplicate, &word.span, what, "take it out once");
        }
        some.push(*one);
    }
    Some(some)
}
