//! Whether two layers of protection are two: what they share, by evidence that somebody else has collected.
//!
//! Each requirement is one [`Part`] with one [`Rule`]. What is not known counts as shared. Nothing here looks at a host.

use std::collections::BTreeMap;
use std::fmt;

/// The cipher of the second tunnel, which it always has: what `levee-layer` takes and offers.
pub const SECOND_CIPHER: &str = "ChaCha20-Poly1305";
/// Its key exchange.
pub const SECOND_EXCHANGE: &str = "P-384";

/// Something of which each layer has its own, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// Cryptographic libraries in the programs that have keys or seal packets.
    Library,
    /// What packets are sealed by.
    Cipher,
    /// What keys are agreed by.
    Exchange,
    /// Who vouches for the other end.
    Authority,
    /// The private key by which an end is known.
    Key,
    /// What kind of key that is.
    KeyType,
    /// The uid whose the private keys are on the disk.
    Store,
    /// The processes that work with keys.
    Process,
    /// Their uids.
    Uid,
    /// The local addresses at which tunnels begin and end: a layer that can be reached without the other is no layer.
    Way,
    /// The network namespaces of the tunnels' sockets, each an IP stack.
    Stack,
    /// The host.
    Host,
    /// Who operates them.
    Operator,
    /// Where randomness is from.
    Randomness,
    /// The kernel.
    Kernel,
    /// The processor.
    Processor,
    /// What the programs were compiled by.
    Compiler,
}

/// What it means when both layers have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// There are not two layers.
    Refused,
    /// There are, and one attack may reach both.
    Warned,
    /// It cannot be otherwise on one host, and is said.
    Allowed,
}

impl Part {
    /// Every part, in the order in which they are told.
    pub const ALL: [Self; 17] = [
        Self::Library,
        Self::Authority,
        Self::Key,
        Self::KeyType,
        Self::Store,
        Self::Process,
        Self::Uid,
        Self::Way,
        Self::Cipher,
        Self::Exchange,
        Self::Stack,
        Self::Host,
        Self::Operator,
        Self::Randomness,
        Self::Kernel,
        Self::Processor,
        Self::Compiler,
    ];

    /// What sharing it means.
    pub fn rule(self) -> Rule {
        match self {
            Self::Library
            | Self::Authority
            | Self::Key
            | Self::KeyType
            | Self::Store
            | Self::Process
            | Self::Uid
            | Self::Way => Rule::Refused,
            Self::Cipher | Self::Exchange | Self::Stack | Self::Host | Self::Operator | Self::Randomness => {
                Rule::Warned
            }
            Self::Kernel | Self::Processor | Self::Compiler => Rule::Allowed,
        }
    }

    /// In a word or two.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Library => "cryptographic library",
            Self::Cipher => "cipher",
            Self::Exchange => "key exchange",
            Self::Authority => "authority",
            Self::Key => "private key",
            Self::KeyType => "type of key",
            Self::Store => "store of private keys",
            Self::Process => "process",
            Self::Uid => "uid",
            Self::Way => "way in",
            Self::Stack => "IP stack",
            Self::Host => "host",
            Self::Operator => "operator",
            Self::Randomness => "source of randomness",
            Self::Kernel => "kernel",
            Self::Processor => "processor",
            Self::Compiler => "compiler",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How something is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seen {
    /// By files: the site's, programs and keys on the disk.
    OnDisk,
    /// By what runs.
    Running,
}

/// What a layer has of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// All of it, at least one, each with where it was found.
    Found(BTreeMap<String, String>, Seen),
    /// It could not be found out: why.
    Unknown(String),
}

impl Evidence {
    /// Some of these, each found in the same place.
    pub fn found<T: Into<String>>(values: impl IntoIterator<Item = T>, place: &str, seen: Seen) -> Self {
        Self::Found(values.into_iter().map(|value| (value.into(), place.to_owned())).collect(), seen)
    }
}

/// One layer, by what is known of it. A part without evidence is unknown.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    parts: BTreeMap<Part, Evidence>,
}

impl Layer {
    /// Adds what is known of a part. More of the same part is more of it; what is unknown of it stays unknown.
    pub fn add(&mut self, part: Part, evidence: Evidence) {
        let joined = match (self.parts.remove(&part), evidence) {
            (None, evidence) => evidence,
            (Some(Evidence::Unknown(why)), _) | (Some(_), Evidence::Unknown(why)) => Evidence::Unknown(why),
            (Some(Evidence::Found(mut all, a)), Evidence::Found(more, b)) => {
                all.extend(more);
                Evidence::Found(all, a.min(b))
            }
        };
        self.parts.insert(part, joined);
    }

    fn of(&self, part: Part) -> Result<(&BTreeMap<String, String>, Seen), String> {
        match self.parts.get(&part) {
            None => Err("nothing is known of it".to_owned()),
            Some(Evidence::Unknown(why)) => Err(why.clone()),
            // An empty list is no evidence of anything.
            Some(Evidence::Found(values, _)) if values.is_empty() => Err("none was found".to_owned()),
            Some(Evidence::Found(values, seen)) => Ok((values, *seen)),
        }
    }
}

/// Whether a requirement is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Judgement {
    /// By what runs.
    Proved,
    /// By what is on the disk; what runs was not seen.
    Assessed,
    /// The layers share it, or it is not known that they do not.
    Unmet,
}

impl Judgement {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proved => "proved",
            Self::Assessed => "assessed",
            Self::Unmet => "unmet",
        }
    }
}

/// One requirement, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Of what each layer should have its own.
    pub part: Part,
    /// What it means that it is not so.
    pub rule: Rule,
    /// Whether it is so.
    pub verdict: Judgement,
    /// By what that is known.
    pub evidence: String,
}

impl Line {
    /// Whether there are not two layers for this alone.
    pub fn refuses(&self) -> bool {
        self.verdict == Judgement::Unmet && self.rule == Rule::Refused
    }
}

/// Holds the layer within against the one around it: a line for each requirement.
pub fn judge(within: &Layer, around: &Layer) -> Vec<Line> {
    Part::ALL.into_iter().map(|part| line(part, within, around)).collect()
}

fn line(part: Part, within: &Layer, around: &Layer) -> Line {
    let (verdict, evidence) = match (within.of(part), around.of(part)) {
        (Err(why), _) => (Judgement::Unmet, format!("unknown of the layer within: {why}")),
        (_, Err(why)) => (Judgement::Unmet, format!("unknown of the layer around: {why}")),
        (Ok((ours, a)), Ok((theirs, b))) => {
            let both: Vec<String> = ours
                .iter()
                .filter_map(|(value, here)| Some(format!("{value} ({})", places(here, theirs.get(value)?))))
                .collect();
            if both.is_empty() {
                let seen = if a.min(b) == Seen::Running { Judgement::Proved } else { Judgement::Assessed };
                (seen, format!("{} within, {} around", list(ours), list(theirs)))
            } else {
                (Judgement::Unmet, format!("both have {}", both.join(", ")))
            }
        }
    };
    Line { part, rule: part.rule(), verdict, evidence }
}

/// Where it was found in each layer.
fn places(here: &str, there: &str) -> String {
    if here == there { here.to_owned() } else { format!("{here}; {there}") }
}

fn list(values: &BTreeMap<String, String>) -> String {
    values.keys().cloned().collect::<Vec<_>>().join(", ")
}
