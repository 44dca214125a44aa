//! Names, each valid by construction wherever it came from.
//!
//! They pass between processes as plain strings and are checked again on the way in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a string is not a name of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName {
    what: &'static str,
    rule: &'static str,
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a valid {}: {}", self.what, self.rule)
    }
}

impl std::error::Error for InvalidName {}

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $rule:expr, $valid:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Box<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Checks and takes the name.
            pub fn new(text: &str) -> Result<Self, InvalidName> {
                let valid: fn(&str) -> bool = $valid;
                if valid(text) { Ok(Self(text.into())) } else { Err(InvalidName { what: $what, rule: $rule }) }
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;
            fn try_from(text: String) -> Result<Self, InvalidName> {
                Self::new(&text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, InvalidName> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0.into()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

/// What a name of a person, a service and the like is made of.
pub(crate) const NAME: &str = "1 to 32 of a-z, 0-9, '.', '_' and '-', the first a letter or digit";
/// What the name of a partition, a channel or a link is made of.
pub(crate) const PARTITION_NAME: &str = "a lower-case letter, then up to 31 of a-z, 0-9 and '-'";

fn lower_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// `[a-z0-9][a-z0-9._-]*`, at most `max` bytes: safe as one component of a path.
fn plain(text: &str, max: usize) -> bool {
    text.len() <= max
        && text.bytes().next().is_some_and(lower_or_digit)
        && text.bytes().all(|byte| lower_or_digit(byte) || b"._-".contains(&byte))
}

name_type! {
    /// A site's name: it goes into interface, namespace and cgroup names, hence so short.
    SiteName, "site name", "a lower-case letter, then up to 11 of a-z, 0-9 and '-'",
    |text| text.len() <= 12
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())
        && text.bytes().all(|byte| lower_or_digit(byte) || byte == b'-')
}

name_type! {
    /// A person's name at the site.
    UserName, "user name", NAME,
    |text| plain(text, 32)
}

name_type! {
    /// A workstation's (TPE's) name, as in its certificate.
    HostName, "host name", "1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit",
    |text| plain(text, 64)
}

name_type! {
    /// A post-quantum preshared key's name on the wire: PPK_ID_FIXED of RFC 8784 5.1.
    PpkId, "PPK_ID", "1 to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit",
    |text| plain(text, 64)
}

/// `[a-z][a-z0-9-]*`, at most 32 bytes: safe as a host's name and as one component of a path.
fn word(text: &str) -> bool {
    text.len() <= 32
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())
        && text.bytes().all(|byte| lower_or_digit(byte) || byte == b'-')
}

name_type! {
    /// A partition's name, which is its host name, too.
    PartitionName, "partition name", PARTITION_NAME, word
}

name_type! {
    /// The name of a channel between partitions.
    ChannelName, "channel name", PARTITION_NAME, word
}

/// The hardware address of an Ethernet interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareAddress([u8; 6]);

impl HardwareAddress {
    /// Its octets.
    pub fn octets(self) -> [u8; 6] {
        self.0
    }

    /// Whether one interface can have it: it is neither a group's nor nobody's.
    pub fn is_usable(self) -> bool {
        let [first, ..] = self.0;
        first & 1 == 0 && self.0 != [0; 6]
    }
}

impl FromStr for HardwareAddress {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let wrong = InvalidName { what: "hardware address", rule: "six octets, such as 02:00:5e:00:53:02" };
        // (A number may begin with a plus sign.)
        let is_octet = |part: &&str| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
        let octet =
            |part: &str| Some(part).filter(is_octet).and_then(|part| u8::from_str_radix(part, 16).ok());
        let octets: Option<Vec<u8>> = text.split(':').map(octet).collect();
        octets.and_then(|octets| octets.try_into().ok()).map(Self).ok_or(wrong)
    }
}

impl fmt::Display for HardwareAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

name_type! {
    /// A posture's name.
    PostureName, "posture's name", NAME,
    |text| plain(text, 32)
}

name_type! {
    /// A protection's name.
    ProtectionName, "protection's name", NAME,
    |text| plain(text, 32)
}

name_type! {
    /// A service's name.
    ServiceName, "service name", NAME,
    |text| plain(text, 32)
}

name_type! {
    /// A name in the sense of the DNS, in lower case: letters, digits, hyphens and dots.
    DomainName, "domain name", "labels of 1 to 63 of a-z, 0-9 and inner '-', joined by '.', 253 bytes in all",
    |text| !text.is_empty() && text.len() <= 253 && text.split('.').all(|part| {
        (1..=63).contains(&part.len())
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|byte| lower_or_digit(byte) || byte == b'-')
    })
}

name_type! {
    /// A network interface's name as Linux takes it (IFNAMSIZ less the NUL).
    InterfaceName, "interface name", "1 to 15 of A-Z, a-z, 0-9, '.', '_', '-' and '@', not '.' or '..'",
    |text| (1..=15).contains(&text.len())
        && text != "." && text != ".."
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte))
}

name_type! {
    /// A label in the site's own words, in canonical form as [`crate::Vocabulary::print`] gives it.
    ///
    /// This is what passes between processes, and on the wire as the security label of RFC 9478 2.2. That
    /// it is well formed says nothing about whether the site knows it: ask [`crate::Site::label`].
    LabelName, "label", "1 to 255 of A-Z, a-z, 0-9, '_', '-', '/', ',' and '@', the first a letter or digit",
    |text| text.len() <= LabelName::MAX
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-/,@".contains(&byte))
}

name_type! {
    /// A range of labels in the site's own words, as [`crate::Vocabulary::print_range`] gives it.
    ///
    /// That it is well formed says nothing about whether the site knows it: ask [`crate::Site::range`].
    RangeName, "range of labels", "one label, or two with `..` between them, the lower first",
    |text| match text.split_once("..") {
        Some((low, high)) => LabelName::new(low).is_ok() && LabelName::new(high).is_ok(),
        None => LabelName::new(text).is_ok(),
    }
}

impl PostureName {
    /// The name of what counts where nobody can know what does.
    pub(crate) fn in_doubt() -> Self {
        Self("in-doubt".into())
    }
}

impl LabelName {
    /// Most bytes a label's name can have.
    pub const MAX: usize = 255;

    /// The name with `+` for each `/`: one component of a path, different for different labels.
    pub fn file_name(&self) -> String {
        self.as_str().replace('/', "+")
    }
}
