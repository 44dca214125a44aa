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

    /// How many processes work at a label, side by side, 1 to 16; 1, unless the site says otherwise, and where two stacks
    /// must agree or the rate is constant: each worker has a rate of its own, and when it begins would show.
    pub fn workers(&self, label: &Label) -> u16 {
        if self.agrees(label) || self.constant_interval(label).is_some() { 1 } else { self.workers }
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

    /// Whether some label of this range has two stacks.
    pub(super) fn agrees_within(&self, range: &Range) -> bool {
        self.agree.iter().any(|agree| agree.intersection(range).is_some())
    }

    /// Whether labels of a range have their packets go in AGGFRAG payloads as they come.
    pub(super) fn aggregates_within(&self, range: &Range) -> bool {
        self.aggfrag.iter().any(|aggfrag| aggfrag.intersection(range).is_some())
    }

    /// Whether any labels have.
    pub(super) fn aggregates_anywhere(&self) -> bool {
        !self.aggfrag.is_empty()
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

    /// The same as arguments of `levee-vault`; what is not said is left out.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        let named = Self::LIBRARIES.into_iter().find(|(_, library)| *library == self.aead);
        if let Some((name, _)) = named.filter(|_| self.aead != AeadLibrary::Fastest) {
            arguments.extend(["--aead".to_owned(), name.to_owned()]);
        }
        if self.poll != POLL {
            arguments.extend(["--poll".to_owned(), self.poll.as_micros().to_string()]);
        }
        arguments
    }

    /// `slots` is how many the server has: each worker takes one.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        root: &Table<'_>,
        vocabulary: Option<&Vocabulary>,
        slots: u16,
    ) -> Option<Self> {
        let Some(value) = root.get("vault") else { return Some(Self::default()) };
        let keys = reader.subtable(value, "[vault]", &reference::VAULT.names())?;
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
        let layers = layers(reader, &keys);
        let poll = match keys.get("poll") {
            None => u64::try_from(POLL.as_micros()).ok(),
            Some(value) => {
                let read = |text: &str| brief(text).and_then(|time| u64::try_from(time.as_micros()).ok());
                let longest = u64::try_from(LONGEST_POLL.as_micros()).unwrap_or(0);
                quantity(reader, value, "poll", read, 0..=longest, "a time from \"0us\" to \"10ms\"")
            }
        };
        let workers = match keys.get("workers") {
            None => Some(1),
            Some(value) => reader.integer(value, "workers", 1..=MOST_WORKERS.min(u64::from(slots))),
        };
        let workers = workers.and_then(|workers| u16::try_from(workers).ok());
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
            aead: aead?,
            poll: Duration::from_micros(poll?),
            workers: workers?,
            agree: values(agree),
            aggfrag: values(aggfrag),
            aggfrag_mtu: u16::try_from(mtu?).ok()?,
            constant: values(constant),
            rate: u32::try_from(rate?).ok()?,
        })
    }
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
