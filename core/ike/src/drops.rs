//! Why datagrams come to nothing, each reason with its counter.

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// Why a datagram, or a part of one, was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Drop {
            $($(#[$doc])* $name,)*
        }

        impl Drop {
            /// All reasons, in the order of their counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// In words, for operators.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// No IKE header, a wrong length, or no non-ESP marker where there must be one.
    Header => "no IKE header, or a wrong length",
    /// A higher major version (answered, RFC 7296 2.5).
    Version => "a higher major version",
    /// An exchange type that levee does not take part in.
    Exchange => "an unknown exchange",
    /// No IKE SA has the SPIs.
    UnknownSpi => "of no IKE SA there is",
    /// The flags contradict the SA's roles, or the message does not belong in the SA's state.
    Unexpected => "not for the state its SA is in",
    /// The message's form is wrong.
    Malformed => "wrong in its form",
    /// Not from the peer, or changed on the way.
    Forged => "not from the peer, or changed",
    /// Outside the window of message IDs, or a repeated response.
    MessageId => "an old or wrong message ID",
    /// A request that is being answered already came again.
    InProgress => "being answered already",
    /// A fragment that contradicts those before it, or too many.
    Fragment => "a fragment that does not fit",
    /// IKE_SA_INIT without a valid cookie while cookies are demanded (answered, RFC 7296 2.6).
    Cookie => "no valid cookie",
    /// Too many half-open IKE SAs, of which none could give way.
    HalfOpen => "too many half-open SAs",
    /// A half-open IKE SA was forgotten to make room for another (not a datagram).
    GaveWay => "a half-open SA that gave way",
    /// More from strangers in a moment than the key exchange is made for, or their proofs are looked at.
    Busy => "too many from strangers at once",
    /// Too many IKE SAs.
    Full => "too many IKE SAs",
    /// IKE_SA_INIT that did not fit or had a bad key share (answered).
    Refused => "a wrong key share or request",
    /// A request for an IKE or child SA with none of the algorithms that are taken here (answered, NO_PROPOSAL_CHOSEN).
    NoProposal => "no algorithm that is taken here",
}

/// How many datagrams were dropped, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters([u64; Drop::ALL.len()]);

impl Counters {
    pub(crate) fn count(&mut self, why: Drop) {
        if let Some(n) = self.0.get_mut(why as usize) {
            *n = n.saturating_add(1);
        }
    }

    /// The count of one reason.
    pub fn get(&self, why: Drop) -> u64 {
        self.0.get(why as usize).copied().unwrap_or(0)
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Drop, u64)> + '_ {
        Drop::ALL.iter().map(|d| (*d, self.get(*d)))
    }
}
