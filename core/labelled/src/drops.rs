//! Why packets are dropped, and how many were.

use crate::Fault;

/// Why a packet was dropped. Each is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Drop {
    /// Not IPv4 or IPv6, or shorter than it says, or with headers where none may stand.
    Malformed,
    /// The IPv4 header's checksum is wrong.
    Checksum,
    /// It carries no label.
    Unlabelled,
    /// It carries more than one.
    Duplicate,
    /// An option goes on behind the header's end.
    Truncated,
    /// The label's option is not as it must be.
    BadOption,
    /// The label is of another domain.
    OtherDomain,
    /// A tag that is not understood, or that means something on the sending host alone.
    UnknownTag,
    /// The domain knows no such level or category.
    UnknownLabel,
    /// The label is not one of the link's.
    OutOfRange,
    /// Another option or header that says where the packet goes, or what is not understood.
    OtherOption,
    /// A fragment whose label is not the first one's.
    Disagrees,
    /// A compartment's packet that carries a label of its own making.
    Forged,
    /// A compartment's packet that speaks of the link (RFC 4861), which is not a compartment's.
    Neighbour,
    /// A label from a single-level host, which has none to write.
    Claimed,
    /// A compartment's packet to a single-level host at another label.
    Elsewhere,
    /// The link's domain cannot say the compartment's label whole.
    Unwritable,
    /// With its label it is larger than the link takes.
    TooLarge,
}

impl Drop {
    /// All there are, in their order.
    pub const ALL: [Self; 18] = [
        Self::Malformed,
        Self::Checksum,
        Self::Unlabelled,
        Self::Duplicate,
        Self::Truncated,
        Self::BadOption,
        Self::OtherDomain,
        Self::UnknownTag,
        Self::UnknownLabel,
        Self::OutOfRange,
        Self::OtherOption,
        Self::Disagrees,
        Self::Forged,
        Self::Neighbour,
        Self::Claimed,
        Self::Elsewhere,
        Self::Unwritable,
        Self::TooLarge,
    ];

    /// In words, for operators.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "not a whole packet",
            Self::Checksum => "a wrong checksum",
            Self::Unlabelled => "no label",
            Self::Duplicate => "two labels",
            Self::Truncated => "a truncated option",
            Self::BadOption => "a label that is not as it must be",
            Self::OtherDomain => "a label of another domain",
            Self::UnknownTag => "an unknown tag",
            Self::UnknownLabel => "an unknown label",
            Self::OutOfRange => "a label that the link does not have",
            Self::OtherOption => "another option",
            Self::Disagrees => "a fragment at another label than the first",
            Self::Forged => "a label of the compartment's own making",
            Self::Neighbour => "what is the link's own",
            Self::Claimed => "a label from a single-level host",
            Self::Elsewhere => "to a single-level host at another label",
            Self::Unwritable => "a label that the domain cannot say",
            Self::TooLarge => "too large with its label",
        }
    }
}

impl From<Fault> for Drop {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Domain(_) => Self::OtherDomain,
            Fault::Tag(_) | Fault::Local(_) => Self::UnknownTag,
            Fault::Number(_) | Fault::Untranslated(_) => Self::UnknownLabel,
            Fault::Room(_) => Self::Unwritable,
            Fault::Length | Fault::Several | Fault::Alignment | Fault::Order | Fault::Checksum => {
                Self::BadOption
            }
        }
    }
}

/// How many packets were dropped, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; Drop::ALL.len()]);

impl Drops {
    /// Packets dropped for this reason.
    pub fn of(&self, reason: Drop) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or(0)
    }

    /// All packets dropped.
    pub fn all(&self) -> u64 {
        self.0.iter().fold(0, |all, one| all.saturating_add(*one))
    }

    pub(crate) fn count(&mut self, reason: Drop) {
        if let Some(count) = self.0.get_mut(reason as usize) {
            *count = count.saturating_add(1);
        }
    }
}
