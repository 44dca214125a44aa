//! What can be wrong with an option, or with a label that is to be written in one.

use std::fmt;

use levee_policy::Untranslated;

/// Why an option says no label, or a label has no option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The option or a tag in it ends before its length says, or has octets too many.
    Length,
    /// Another domain of interpretation.
    Domain(u32),
    /// A tag that is not understood.
    Tag(u8),
    /// Tag 128 names a number of the sending host's own memory: it means nothing on another.
    Local(u32),
    /// More than one tag: which of them holds would be a guess.
    Several,
    /// The alignment octet is not 0.
    Alignment,
    /// Categories that do not rise (tag 2), or ranges that do not fall or meet (tag 5): one set would have many spellings.
    Order,
    /// A category number that no domain can have.
    Number(u16),
    /// CALIPSO's checksum is wrong.
    Checksum,
    /// The domain does not know the numbers, or not the label.
    Untranslated(Untranslated),
    /// The label needs more room than the option has.
    Room(levee_policy::Label),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => f.write_str("the option's lengths disagree"),
            Self::Domain(doi) => write!(f, "the option is of domain {doi}"),
            Self::Tag(tag) => write!(f, "tag {tag} is not understood"),
            Self::Local(number) => {
                write!(f, "tag 128 with number {number} means something on the sending host alone")
            }
            Self::Several => f.write_str("the option has more than one tag"),
            Self::Alignment => f.write_str("the alignment octet is not 0"),
            Self::Order => f.write_str("the categories are not in order"),
            Self::Number(number) => write!(f, "category {number} is beyond every domain"),
            Self::Checksum => f.write_str("the checksum is wrong"),
            Self::Untranslated(why) => why.fmt(f),
            Self::Room(label) => {
                write!(f, "label {label:?} would be lost: it needs more room than the option has")
            }
        }
    }
}

impl std::error::Error for Fault {}

impl From<Untranslated> for Fault {
    fn from(why: Untranslated) -> Self {
        Self::Untranslated(why)
    }
}
