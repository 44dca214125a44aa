//! `[vault]`: how the vaults of the server work.

use std::time::Duration;

use super::problem::ProblemKind;
use super::quantity::brief;
use super::read::{At, Reader, Table};
use super::reference;
use super::values::{quantity, unknown_word};
use crate::label::{Label, Range};
use crate::vocabulary::Vocabulary;

/// The longest time to poll: beyond it a processor burns for next to nothing.
const LONGEST_POLL: Duration = Duration::from_millis(10);

/// And unless the site says otherwise: about what a wake costs at both ends.
const POLL: Duration = Duration::from_micros(100);

/// The most workers of one label's vault. Each is a process with a slot, a TUN queue and associations of its own.
const MOST_WORKERS: u64 = 16;
/// Bytes of the longest inner packet: what ESP in UDP adds still fits 1,500, with room for one more tunnel beneath.
pub const INNER_MTU: u16 = 1_400;
/// The same where ESP travels within a second tunnel: what every IPv6 link must carry (RFC 8200 5), and no more.
pub const LAYERED_MTU: u16 = 1_280;
/// The same where packets go in pieces, unless the site says otherwise.
const AGGFRAG_MTU: u16 = 9_000;
/// What super-segments and their headers leave room for.
const LONGEST: u64 = 60_000;
/// Packets a second, each way, where the rate is constant, unless the site says otherwise: 2.9 Mbit/s.
const RATE: u32 = 250;
/// The highest constant rate, 230 Mbit/s: a vault spends its time on those of one session then.
const HIGHEST_RATE: u64 = 20_000;

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

/// A tunnel that sessions' packets travel in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Tunnel {
    /// ESP in UDP, from vault to vault.
    Esp,
    /// Around it, QUIC datagrams (RFC 9221), from `levee-layer` to `levee-layer`.
    Quic,
}

impl Tunnel {
    const ALL: [(&str, Self); 2] = [("esp", Self::Esp), ("quic", Self::Quic)];
}

/// What stands at a label's tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VaultKind {
    /// A gate, and two stacks with a library each that must agree about every packet.
    Agreeing,
    /// A vault.
    One {
        /// Its cryptographic library.
        aead: AeadLibrary,
        /// The longest time for which it looks for more before it sleeps.
        poll: Duration,
        /// How many processes work side by side, 1 to 16.
        workers: u16,
    },
}

impl Default for VaultKind {
    fn default() -> Self {
        Self::One { aead: AeadLibrary::default(), poll: POLL, workers: 1 }
    }
}

impl VaultKind {
    /// How many processes work side by side, each with a slot, a TUN queue and associations of its own; a gate is one.
    pub fn workers(&self) -> u16 {
        match self {
            Self::Agreeing => 1,
            Self::One { workers, .. } => *workers,
        }
    }

    /// The same as arguments of its program; what is not said is left out.
    pub fn arguments(&self) -> Vec<String> {
        let Self::One { aead, poll, .. } = self else { return Vec::new() };
        let mut arguments = Vec::new();
        let named = Vault::LIBRARIES.into_iter().find(|(_, library)| library == aead);
        if let Some((name, _)) = named.filter(|_| *aead != AeadLibrary::Fastest) {
            arguments.extend(["--aead".to_owned(), name.to_owned()]);
        }
        if *poll != POLL {
            arguments.extend(["--poll".to_owned(), poll.as_micros().to_string()]);
        }
        arguments
    }
}

/// What every vault of the server is told.
#[derive(Clone, Debug)]
pub struct Vault {
    /// The tunnels that sessions' packets travel in, the innermost first: ESP, and around it QUIC where the site says so.
    pub(super) layers: Vec<Tunnel>,
    /// Some hosts have more of these than `layers` says.
    pub(super) beside: bool,
    pub(super) aead: AeadLibrary,
    /// The longest time for which a vault looks for more before it sleeps, at most 10 ms. It looks only while packets come so soon and
    /// nobody else wants the processor; with zero it never does.
    pub(super) poll: Duration,
    pub(super) workers: u16,
    pub(super) agree: Vec<Range>,
    pub(super) aggfrag: Vec<Range>,
    pub(super) aggfrag_mtu: u16,
    pub(super) constant: Vec<Range>,
    pub(super) rate: u32,
}

impl Default for Vault {
    fn default() -> Self {
        let (agree, aggfrag, constant) = (Vec::new(), Vec::new(), Vec::new());
        let (aead, poll) = (AeadLibrary::default(), POLL);
        let layers = vec![Tunnel::Esp];
        Self {
            layers,
            beside: false,
            aead,
            poll,
            workers: 1,
            agree,
            aggfrag,
            aggfrag_mtu: AGGFRAG_MTU,
            constant,
            rate: RATE,
        }
    }
}

impl Vault {
    const LIBRARIES: [(&str, AeadLibrary); 3] =
        [("fastest", AeadLibrary::Fastest), ("ring", AeadLibrary::Ring), ("aws-lc", AeadLibrary::AwsLc)];

    /// Whether all ESP travels within a second tunnel.
    pub fn is_layered(&self) -> bool {
        self.layers.contains(&Tunnel::Quic)
    }

    /// Whether ESP of some hosts travels within a second tunnel, and of others does not.
    pub fn has_layer_beside(&self) -> bool {
        self.beside
    }

    /// Whether there is a second tunnel, for all hosts or for some.
    pub fn has_second_tunnel(&self) -> bool {
        self.is_layered() || self.beside
    }

    /// Its cryptographic library.
    pub fn aead(&self) -> AeadLibrary {
        self.aead
    }

    /// Whether some label has two stacks.
    pub fn agrees_anywhere(&self) -> bool {
        !self.agree.is_empty()
    }

    /// Whether a label has two stacks, written separately and with a library each, that must agree about every packet
    /// before it passes. Then neither library nor poll is the site's choice.
    pub fn agrees(&self, label: &Label) -> bool {
        self.agree.iter().any(|range| range.contains(label))
    }

    /// Whether a label's packets go in AGGFRAG payloads (RFC 9347) where the peer takes them, which levee's workstations do.
    pub fn aggregates(&self, label: &Label) -> bool {
        self.aggfrag.iter().chain(&self.constant).any(|range| range.contains(label))
    }

    /// Time from one packet of a session to the next, each way, where they are of one size and leave at a constant rate, so
    /// that they say nothing of what goes on (traffic-flow confidentiality); `None` where they leave as they come.
    pub fn constant_interval(&self, label: &Label) -> Option<Duration> {
        let constant = self.constant.iter().any(|range| range.contains(label));
        constant.then(|| self.interval())
    }

    /// The same, for sessions at other labels that have it by a protection.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.rate.max(1)
    }

    /// Bytes of the longest inner packet at a label.
    pub fn inner_mtu(&self, label: &Label) -> u16 {
        match () {
            () if self.has_second_tunnel() => LAYERED_MTU,
            () if self.aggregates(label) => self.aggfrag_mtu,
            () => INNER_MTU,
        }
    }

    /// `slots` is how many the server has.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        root: &Table<'_>,
        vocabulary: Option<&Vocabulary>,
        slots: u16,
    ) -> Option<Self> {
        let Some(value) = root.get("vault") else { return Some(Self::default()) };
        let keys = reader.subtable(value, "[vault]", &reference::VAULT.names())?;
        let aead = aead(reader, &keys);
        let layers = layers(reader, &keys);
        let poll = poll(reader, &keys);
        let workers = workers(reader, &keys, slots);
        let agree = ranges(reader, &keys, "agree", vocabulary);
        let aggfrag = ranges(reader, &keys, "aggfrag", vocabulary);
        let mtu = match keys.get("aggfrag-mtu") {
            None => Some(u64::from(AGGFRAG_MTU)),
            Some(value) => reader.integer(value, "aggfrag-mtu", u64::from(INNER_MTU)..=LONGEST),
        };
        let constant = ranges(reader, &keys, "constant-rate", vocabulary);
        let rate = match keys.get("constant-rate-packets") {
            None => Some(u64::from(RATE)),
            Some(value) => reader.integer(value, "constant-rate-packets", 1..=HIGHEST_RATE),
        };
        let (agree, aggfrag, constant) = (agree?, aggfrag?, constant?);
        let layers = layers?;
        check_pieces(reader, &agree, &aggfrag, &constant, &layers);
        let values = |ranges: Vec<At<Range>>| ranges.into_iter().map(|range| range.value).collect();
        Some(Self {
            layers,
            beside: false,
            aead: aead?.unwrap_or_default(),
            poll: poll?.unwrap_or(POLL),
            workers: workers?.unwrap_or(1),
            agree: values(agree),
            aggfrag: values(aggfrag),
            aggfrag_mtu: u16::try_from(mtu?).ok()?,
            constant: values(constant),
            rate: u32::try_from(rate?).ok()?,
        })
    }
}

/// Whether some of these ranges have a label of `labels`; `None`: of all.
pub(super) fn overlap(ranges: &[Range], labels: Option<&[Range]>) -> bool {
    let with = |labels: &[Range]| {
        let mut pairs = ranges.iter().flat_map(|one| labels.iter().map(move |other| (one, other)));
        pairs.any(|(one, other)| one.intersection(other).is_some())
    };
    labels.map_or(!ranges.is_empty(), with)
}

/// Labels whose packets go in pieces of one size have neither two stacks nor a second tunnel.
fn check_pieces(
    reader: &mut Reader<'_>,
    agree: &[At<Range>],
    aggfrag: &[At<Range>],
    constant: &[At<Range>],
    layers: &[Tunnel],
) {
    for both in aggfrag
        .iter()
        .chain(constant)
        .filter(|one| agree.iter().any(|two| one.value.intersection(&two.value).is_some()))
    {
        reader.problem(
            ProblemKind::Overlap,
            &both.span,
            "`agree` has labels of this range as well, and stacks that must agree know no AGGFRAG",
            "take these labels out of `agree`, or out of `aggfrag` and `constant-rate`",
        );
    }
    if let Some(pieces) = aggfrag.iter().chain(constant).next().filter(|_| layers.contains(&Tunnel::Quic)) {
        reader.problem(
            ProblemKind::Overlap,
            &pieces.span,
            "`layers` has \"quic\", whose datagrams have no room for packets of this size",
            "take \"quic\" out of `layers`, or empty `aggfrag` and `constant-rate`",
        );
    }
}

/// `aead`, where it stands.
pub(super) fn aead(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Option<AeadLibrary>> {
    let Some(value) = keys.get("aead") else { return Some(None) };
    let word = reader.string(value, "aead")?;
    let known = Vault::LIBRARIES.into_iter().find(|(name, _)| *name == word.value);
    if known.is_none() {
        unknown_word(reader, &word, "AEAD library", Vault::LIBRARIES.iter().map(|(name, _)| *name));
    }
    known.map(|(_, library)| Some(library))
}

/// `poll`, where it stands.
pub(super) fn poll(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Option<Duration>> {
    let Some(value) = keys.get("poll") else { return Some(None) };
    let read = |text: &str| brief(text).and_then(|time| u64::try_from(time.as_micros()).ok());
    let longest = u64::try_from(LONGEST_POLL.as_micros()).unwrap_or(0);
    let poll = quantity(reader, value, "poll", read, 0..=longest, "a time from \"0us\" to \"10ms\"")?;
    Some(Some(Duration::from_micros(poll)))
}

/// `workers`, where it stands. `slots` is how many the server has: each takes one.
pub(super) fn workers(reader: &mut Reader<'_>, keys: &Table<'_>, slots: u16) -> Option<Option<u16>> {
    let Some(value) = keys.get("workers") else { return Some(None) };
    let workers = reader.integer(value, "workers", 1..=MOST_WORKERS.min(u64::from(slots)))?;
    Some(Some(u16::try_from(workers).ok()?))
}

/// `layers`: the innermost first. ESP is always there, since labels are its.
pub(super) fn layers(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Vec<Tunnel>> {
    let Some(value) = keys.get("layers") else { return Some(vec![Tunnel::Esp]) };
    let words = reader.strings(value, "layers")?;
    let mut read = Vec::new();
    for word in &words {
        let known = Tunnel::ALL.into_iter().find(|(name, _)| *name == word.value);
        if known.is_none() {
            unknown_word(reader, word, "layer", Tunnel::ALL.iter().map(|(name, _)| *name));
        }
        read.push(known?.1);
    }
    if read == [Tunnel::Esp] || read == [Tunnel::Esp, Tunnel::Quic] {
        return Some(read);
    }
    let what = "`layers` is [\"esp\"] or [\"esp\", \"quic\"], the innermost first";
    reader.problem(ProblemKind::BadValue, &value.span(), what, "write one of the two");
    None
}

/// A list of label ranges; none where the key is missing.
pub(super) fn ranges(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    key: &str,
    vocabulary: Option<&Vocabulary>,
) -> Option<Vec<At<Range>>> {
    let Some(value) = keys.get(key) else { return Some(Vec::new()) };
    let texts = reader.strings(value, key)?;
    let read = |text: At<&str>| match vocabulary?.parse_range(text.value) {
        Ok(range) => Some(At::new(range, text.span)),
        Err(error) => {
            reader.label_fault(&text, error);
            None
        }
    };
    // Each fault is told.
    let all: Vec<Option<At<Range>>> = texts.into_iter().map(read).collect();
    all.into_iter().collect()
}
