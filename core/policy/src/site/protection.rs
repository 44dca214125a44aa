//! `[[protection]]`: what a person, or a service, may ask of a session's tunnel beyond what every tunnel at its label has.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cipher::Cipher;
use super::crypto::{Crypto, ciphers_of};
use super::problem::ProblemKind;
use super::read::{Reader, Table};
use super::reference;
use super::services::DraftService;
use super::values::{NAME, key_life, unknown_word};
use super::vault::{Vault, overlap, ranges};
use crate::label::{Label, Range};
use crate::names::ProtectionName;
use crate::vocabulary::Vocabulary;

/// The most protections of a site.
const MOST: usize = 16;

/// What may be asked for. It only takes away from what tunnels may be without it.
#[derive(Clone, Debug)]
pub struct Protection {
    name: ProtectionName,
    pub(super) labels: Option<Vec<Range>>,
    ciphers: Option<Vec<Cipher>>,
    key_life: Option<Duration>,
    pub(super) constant: bool,
}

impl Protection {
    /// Its name.
    pub fn name(&self) -> &ProtectionName {
        &self.name
    }

    /// Whether it may be asked for at this label.
    pub fn covers(&self, label: &Label) -> bool {
        self.labels.as_ref().is_none_or(|ranges| ranges.iter().any(|range| range.contains(label)))
    }

    /// Whether it may be asked for at every label of this range.
    fn includes(&self, range: &Range) -> bool {
        self.labels.as_ref().is_none_or(|ranges| ranges.iter().any(|one| one.includes(range)))
    }
}

/// What one session's tunnel must have, by all that was asked for it; and, out of [`Site::protected_under`](super::Site::protected_under),
/// by its label and the posture, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protected {
    /// The protections that say so, each once: the person's first. None: nothing was asked for.
    pub names: Vec<ProtectionName>,
    /// It is sealed by one of these, the preferred first; `None`: by whatever its label has.
    pub ciphers: Option<Vec<Cipher>>,
    /// Its keys are replaced before they are so old, and erased when they are.
    pub key_life: Option<Duration>,
    /// Its packets are of one size and leave at this interval, each way, whether there is something to send or not.
    pub interval: Option<Duration>,
    /// Its packets go in AGGFRAG payloads (RFC 9347) where its peer takes them, as they come. No protection asks for it.
    pub aggfrag: bool,
}

impl Protected {
    /// Whether it may be sealed by this.
    pub fn allows(&self, cipher: Cipher) -> bool {
        self.ciphers.as_ref().is_none_or(|ciphers| ciphers.contains(&cipher))
    }

    /// What it may be sealed by where its label may have these, in the label's order.
    pub fn among(&self, label: &[Cipher]) -> Vec<Cipher> {
        label.iter().copied().filter(|cipher| self.allows(*cipher)).collect()
    }

    /// The names, as one reads them.
    pub fn words(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(ProtectionName::as_str).collect();
        names.join(" and ")
    }

    /// With what another protection asks for, at this interval where it asks for a constant rate.
    pub(super) fn and(mut self, other: &Protection, interval: Option<Duration>) -> Self {
        if self.names.contains(&other.name) {
            return self;
        }
        self.names.push(other.name.clone());
        self.ciphers = match (self.ciphers, &other.ciphers) {
            (Some(ours), Some(theirs)) => Some(ours.into_iter().filter(|one| theirs.contains(one)).collect()),
            (ours, theirs) => ours.or_else(|| theirs.clone()),
        };
        self.key_life = self.key_life.into_iter().chain(other.key_life).min();
        self.interval = self.interval.or(interval.filter(|_| other.constant));
        self
    }
}

/// Why a protection cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unprotected {
    /// The site has none of this name.
    Unknown(ProtectionName),
    /// It is not for this label.
    NotHere(ProtectionName),
    /// Nothing is left that the tunnel could be sealed by: these protections want something else than each other, or than what may be had.
    NoCipher(Vec<ProtectionName>),
}

impl std::fmt::Display for Unprotected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "the site has no protection `{name}`"),
            Self::NotHere(name) => write!(f, "the site has no protection `{name}` at this label"),
            Self::NoCipher(names) => {
                let names: Vec<&str> = names.iter().map(ProtectionName::as_str).collect();
                write!(
                    f,
                    "no cipher that may be used now at this label is one of protection {}",
                    names.join(" and ")
                )
            }
        }
    }
}

/// Every `[[protection]]`; `None` if one could not be read.
pub(super) fn read(
    reader: &mut Reader<'_>,
    root: &Table<'_>,
    vocabulary: Option<&Vocabulary>,
    vault: Option<&Vault>,
    crypto: Option<&Crypto>,
) -> Option<Vec<Protection>> {
    let tables = reader.tables(root.get("protection"), "[protection]", &reference::PROTECTION.names());
    let read: Vec<_> =
        tables.iter().map(|keys| protection(reader, keys, vocabulary, vault, crypto)).collect();
    let read: Vec<Protection> = read.into_iter().collect::<Option<_>>()?;
    for (number, (one, keys)) in read.iter().zip(&tables).enumerate() {
        if read.iter().take(number).any(|other| other.name == one.name) {
            let what = format!("there are two protections `{}`", one.name);
            reader.problem(ProblemKind::Duplicate, &keys.span(), what, "give one of them another name");
        }
        if number == MOST {
            let what = format!("there are more than {MOST} protections");
            reader.problem(ProblemKind::OutOfBounds, &keys.span(), what, "remove some");
        }
    }
    Some(read)
}

fn protection(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    vocabulary: Option<&Vocabulary>,
    vault: Option<&Vault>,
    crypto: Option<&Crypto>,
) -> Option<Protection> {
    let name = reader.need(keys, "name", "\"strong\"");
    let name = name.and_then(|value| reader.parsed::<ProtectionName>(value, "protection's name", NAME));
    let labels = match keys.get("labels") {
        None => Some(None),
        Some(_) => ranges(reader, keys, "labels", vocabulary).map(Some),
    };
    let ciphers = match keys.get("ciphers") {
        None => Some(None),
        Some(value) => ciphers_of(reader, value, crypto, "protection").map(Some),
    };
    let key_life = key_life(reader, keys);
    let constant = match keys.get("constant-rate") {
        None => Some(false),
        Some(value) => reader.boolean(value, "constant-rate"),
    };
    let (name, labels, ciphers, key_life, constant) = (name?, labels?, ciphers?, key_life?, constant?);
    let suites = crypto.map(|crypto| crypto.suites().ciphers());
    let narrows = ciphers
        .as_ref()
        .is_some_and(|ciphers| suites.is_none_or(|all| all.iter().any(|one| !ciphers.contains(one))));
    if !narrows && key_life.is_none() && !constant {
        let what = "it asks for nothing that not every tunnel has";
        let remedy = "leave some of the suites' ciphers out of `ciphers`, or write `key-life` or `constant-rate = true`";
        reader.problem(ProblemKind::BadValue, &name.span, what, remedy);
    }
    let labels: Option<Vec<Range>> =
        labels.map(|ranges| ranges.into_iter().map(|range| range.value).collect());
    if let Some(vault) = vault.filter(|_| constant) {
        if overlap(&vault.agree, labels.as_deref()) {
            let what = "`[vault] agree` has labels of this protection, and stacks that must agree know no constant rate";
            let remedy = "give the protection `labels` without these";
            reader.problem(ProblemKind::Overlap, &keys.span(), what, remedy);
        }
        fits_a_rate(reader, keys, vault);
    }
    Some(Protection { name: name.value, labels, ciphers, key_life, constant })
}

/// What the vaults must be like for a constant rate.
pub(super) fn fits_a_rate(reader: &mut Reader<'_>, keys: &Table<'_>, vault: &Vault) {
    if vault.has_second_tunnel() {
        let what = "`layers` has \"quic\", in `[vault]` or at a host, whose datagrams have no room for packets of a constant rate";
        reader.problem(
            ProblemKind::Overlap,
            &keys.span(),
            what,
            "take \"quic\" out of `layers`, or `constant-rate` out of it",
        );
    }
    if vault.workers > 1 {
        let what =
            "`[vault] workers` are several, each with a rate of its own, and when it begins would show";
        reader.problem(
            ProblemKind::Overlap,
            &keys.span(),
            what,
            "write `workers = 1`, or take `constant-rate` out of it",
        );
    }
}

/// That what services ask for is there, and can be had together.
pub(super) fn check_services(reader: &mut Reader<'_>, services: &[DraftService], protections: &[Protection]) {
    let of = |service: &DraftService| {
        let name = &service.protection.as_ref()?.value;
        protections.iter().find(|one| one.name == *name)
    };
    for (number, service) in services.iter().enumerate() {
        let Some(name) = &service.protection else { continue };
        let Some(found) = of(service) else {
            let known = protections.iter().map(|one| one.name.as_str());
            let word = super::read::At::new(name.value.as_str(), name.span.clone());
            unknown_word(reader, &word, "protection of the site", known);
            continue;
        };
        if !found.includes(&service.range.value) {
            let what =
                format!("`{}` is at labels where protection `{}` is not", service.name.value, found.name);
            let remedy = "widen the protection's `labels`, or narrow the service's `range`";
            reader.problem(ProblemKind::BadValue, &name.span, what, remedy);
        }
        let clash = services.iter().take(number).find(|other| {
            let together = other.range.value.intersection(&service.range.value).is_some();
            let theirs = of(other).and_then(|other| other.ciphers.as_ref());
            together
                && theirs
                    .zip(found.ciphers.as_ref())
                    .is_some_and(|(a, b)| !a.iter().any(|one| b.contains(one)))
        });
        if let Some(other) = clash {
            let what = format!(
                "`{}` and `{}` are at one label, and their protections have no cipher in common",
                other.name.value, service.name.value
            );
            let remedy = "give the protections a common cipher, or the services ranges of their own";
            reader.problem(ProblemKind::Overlap, &name.span, what, remedy);
        }
    }
}
