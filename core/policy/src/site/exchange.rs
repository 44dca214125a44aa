//! What keys are agreed by.

use std::time::Duration;

use super::cipher::Cipher;
use serde::{Deserialize, Serialize};

/// An elliptic curve that keys are agreed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Exchange {
    /// Curve25519 (RFC 8031).
    #[serde(rename = "X25519")]
    X25519,
    /// The NIST curve P-256 (RFC 5903).
    #[serde(rename = "P-256")]
    P256,
    /// The NIST curve P-384 (RFC 5903).
    #[serde(rename = "P-384")]
    P384,
}

impl Exchange {
    pub(super) const ALL: [(&str, Self); 3] =
        [("X25519", Self::X25519), ("P-256", Self::P256), ("P-384", Self::P384)];

    /// The word for it in a site file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::X25519 => "X25519",
            Self::P256 => "P-256",
            Self::P384 => "P-384",
        }
    }
}

impl std::fmt::Display for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What keys may be agreed by: the IKE SA's and those of each child SA of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchanges {
    /// Any of these; at least one.
    pub curves: Vec<Exchange>,
    /// Whether the IKE SA's are agreed by ML-KEM as well (RFC 9370), whoever the peer is.
    pub ml_kem: bool,
}

impl Exchanges {
    /// Whether whatever was agreed by these could have been agreed by those.
    pub fn within(&self, those: &Self) -> bool {
        self.curves.iter().all(|curve| those.curves.contains(curve)) && (self.ml_kem || !those.ml_kem)
    }
}

/// The same in words: `P-384 with ML-KEM`.
impl std::fmt::Display for Exchanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let curves: Vec<&str> = self.curves.iter().map(|curve| curve.as_str()).collect();
        write!(f, "{}{}", curves.join(" "), if self.ml_kem { " with ML-KEM" } else { "" })
    }
}

/// How the keys of a label's tunnels are agreed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keying {
    /// What they are for, the preferred first; at least one.
    pub ciphers: Vec<Cipher>,
    /// What they are agreed by.
    pub exchanges: Exchanges,
    /// How old they may become; `None`: as old as any. A session's own counts where it is less.
    pub key_life: Option<Duration>,
}

impl Keying {
    /// Whether keys that were agreed like that may not be kept, though their cipher may be: they could become too old, or were agreed by
    /// what does not count any more.
    pub fn is_narrower_than(&self, that: &Self) -> bool {
        self.key_life.is_some_and(|life| that.key_life.is_none_or(|before| life < before))
            || !that.exchanges.within(&self.exchanges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_where_they_may_become_no_older_and_were_agreed_by_what_counts_still() {
        let minutes = |minutes: u64| Some(Duration::from_secs(60 * minutes));
        let of = |ml_kem, key_life| Keying {
            ciphers: vec![Cipher::Aes256Gcm],
            exchanges: Exchanges { curves: vec![Exchange::P384], ml_kem },
            key_life,
        };
        for (now, before, narrower) in [
            (of(false, None), of(false, None), false),
            (of(false, minutes(5)), of(false, None), true),
            (of(false, minutes(5)), of(false, minutes(5)), false),
            (of(false, minutes(5)), of(false, minutes(6)), true),
            (of(false, minutes(6)), of(false, minutes(5)), false),
            (of(false, None), of(false, minutes(5)), false),
            (of(true, None), of(false, None), true),
            (of(false, None), of(true, None), false),
            (of(true, minutes(6)), of(false, minutes(5)), true),
        ] {
            assert_eq!(now.is_narrower_than(&before), narrower, "{now:?} after {before:?}");
        }
        // Another cipher is not narrower: a vault knows what each of its keys is for.
        let other = Keying { ciphers: vec![Cipher::Aes128Gcm], ..of(false, None) };
        assert!(!other.is_narrower_than(&of(false, None)));
    }

    #[test]
    fn what_was_agreed_by_fewer_or_with_ml_kem_is_within_what_asks_for_no_more() {
        let of = |curves: &[Exchange], ml_kem| Exchanges { curves: curves.to_vec(), ml_kem };
        let all = Exchange::ALL.map(|(_, curve)| curve);
        for (these, those, within) in [
            (of(&all, false), of(&all, false), true),
            (of(&[Exchange::P384], false), of(&all, false), true),
            (of(&all, false), of(&[Exchange::P384], false), false),
            (of(&[Exchange::X25519], false), of(&[Exchange::P384], false), false),
            (of(&all, true), of(&all, false), true),
            (of(&all, false), of(&all, true), false),
            (of(&[Exchange::P384], true), of(&all, true), true),
        ] {
            assert_eq!(these.within(&those), within, "{these} within {those}");
        }
    }
}
