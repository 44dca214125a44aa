//! `[isolation]`: which labels have a kernel of their own, and whether they have an SELinux level.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeValue;

use super::draft::Draft;
use super::problem::ProblemKind;
use super::read::{At, Reader, Table};
use super::services::DraftService;
use super::values::unknown_word;
use super::vault::ranges;
use super::{partition, reference};
use crate::domain::Domain;
use crate::label::{Label, Range};
use crate::vocabulary::Vocabulary;

/// How sure a site wants to be that labels tell each other nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assurance {
    /// `normal`: nothing overt flows between labels.
    #[default]
    Normal,
    /// `high`: nothing but what hardware tells.
    High,
}

/// How the processor of a machine is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processor {
    /// `emulated`: by translation, on any host.
    #[default]
    Emulated,
    /// `kvm`: by the host's hardware.
    Kvm,
}

/// Whether compartments carry their labels' SELinux levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selinux {
    /// `auto`: where the host's SELinux has levee's module.
    #[default]
    Auto,
    /// `required`: nothing is served where SELinux does not enforce it.
    Required,
    /// `off`: no.
    Off,
}

/// How the labels of the site are kept apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    own_kernel: Vec<Range>,
    assurance: Assurance,
    processor: Processor,
    kernel_root: PathBuf,
    selinux: Selinux,
    pub(super) selinux_domain: Option<u32>,
}

impl Default for Isolation {
    fn default() -> Self {
        Self {
            own_kernel: Vec::new(),
            assurance: Assurance::default(),
            processor: Processor::default(),
            kernel_root: PathBuf::from("/"),
            selinux: Selinux::default(),
            selinux_domain: None,
        }
    }
}

impl Isolation {
    const ASSURANCES: [(&str, Assurance); 2] = [("normal", Assurance::Normal), ("high", Assurance::High)];
    const PROCESSORS: [(&str, Processor); 2] = [("emulated", Processor::Emulated), ("kvm", Processor::Kvm)];
    const SELINUX: [(&str, Selinux); 3] =
        [("auto", Selinux::Auto), ("required", Selinux::Required), ("off", Selinux::Off)];

    /// Whether a label's compartment is a virtual machine.
    pub fn has_own_kernel(&self, label: &Label) -> bool {
        self.own_kernel.iter().any(|range| range.contains(label))
    }

    /// How sure the site wants to be.
    pub fn assurance(&self) -> Assurance {
        self.assurance
    }

    /// How machines' processors are made.
    pub fn processor(&self) -> Processor {
        self.processor
    }

    /// Where the machines' kernel is installed or unpacked: `boot/vmlinuz-VERSION` and `lib/modules/VERSION` beneath it.
    pub fn kernel_root(&self) -> &Path {
        &self.kernel_root
    }

    /// Whether compartments carry their labels' SELinux levels.
    pub fn selinux(&self) -> Selinux {
        self.selinux
    }

    pub(super) fn read(
        reader: &mut Reader<'_>,
        root: &Table<'_>,
        vocabulary: Option<&Vocabulary>,
    ) -> Option<(Self, Vec<At<Range>>)> {
        let Some(value) = root.get("isolation") else { return Some((Self::default(), Vec::new())) };
        let keys = reader.subtable(value, "[isolation]", &reference::ISOLATION.names())?;
        let own_kernel = ranges(reader, &keys, "own-kernel", vocabulary);
        let assurance = word(reader, &keys, "assurance", "assurance", &Self::ASSURANCES);
        let processor = word(reader, &keys, "processor", "kind of processor", &Self::PROCESSORS);
        let kernel_root = match keys.get("kernel-root") {
            None => Some(PathBuf::from("/")),
            Some(value) => reader.string(value, "kernel-root").and_then(|text| {
                let good = text.value.starts_with('/') && !text.value.contains('\0');
                if !good {
                    reader.problem(
                        ProblemKind::BadValue,
                        &text.span,
                        format!("`{}` is not an absolute path", text.value.escape_default()),
                        "write where linux-image-cloud-amd64 is installed (\"/\") or unpacked",
                    );
                }
                good.then(|| PathBuf::from(text.value))
            }),
        };
        let selinux = word(reader, &keys, "selinux", "choice", &Self::SELINUX);
        let selinux_domain = selinux_domain(reader, &keys);
        let (own_kernel, assurance, processor, kernel_root) =
            (own_kernel?, assurance?, processor?, kernel_root?);
        let (selinux, selinux_domain) = (selinux?, selinux_domain?);
        let values = own_kernel.iter().map(|range| range.value.clone()).collect();
        let isolation =
            Self { own_kernel: values, assurance, processor, kernel_root, selinux, selinux_domain };
        Some((isolation, own_kernel))
    }

    /// That the levels can be said: their domain is there, and no label has what SELinux has no word for.
    pub(super) fn check_selinux(
        &self,
        reader: &mut Reader<'_>,
        place: Option<&Spanned<DeValue<'_>>>,
        vocabulary: Option<&Vocabulary>,
        domains: Option<&[Domain]>,
    ) {
        let Some(place) = place else { return };
        if let (Some(doi), Some(domains)) = (self.selinux_domain, domains)
            && !domains.iter().any(|domain| domain.doi() == doi)
        {
            reader.problem(
                ProblemKind::UnknownName,
                &place.span(),
                format!("there is no [[domain]] with doi = {doi}"),
                "add it, or leave `selinux-domain` out: then numbers are places in the site's lists",
            );
        }
        if self.selinux == Selinux::Required && vocabulary.is_some_and(Vocabulary::has_integrity) {
            reader.problem(
                ProblemKind::BadValue,
                &place.span(),
                "SELinux levels have no integrity, and this site's labels have: it would be lost",
                "write `selinux = \"off\"`, or remove the integrity levels",
            );
        }
    }
}

fn selinux_domain(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Option<u32>> {
    let Some(value) = keys.get("selinux-domain") else { return Some(None) };
    let doi = reader.integer(value, "selinux-domain", 1..=u64::from(u32::MAX))?;
    Some(Some(u32::try_from(doi).ok()?))
}

fn word<T: Copy + Default>(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    key: &str,
    what: &str,
    known: &[(&str, T)],
) -> Option<T> {
    let Some(value) = keys.get(key) else { return Some(T::default()) };
    let word = reader.string(value, key)?;
    let meant = known.iter().find(|(name, _)| *name == word.value).map(|(_, meant)| *meant);
    if meant.is_none() {
        unknown_word(reader, &word, what, known.iter().map(|(name, _)| *name));
    }
    meant
}

/// What a machine does not have yet: mediators, single-level networks and partitions.
pub(super) fn check(reader: &mut Reader<'_>, own_kernel: &[At<Range>], draft: &Draft) {
    draft.parts.iter().for_each(|parts| partition::outside(reader, parts, own_kernel));
    for range in own_kernel {
        let mediated = |service: &&DraftService| {
            service.mode.is_mediated() && service.range.value.intersection(&range.value).is_some()
        };
        if let Some(service) = draft.services.read.iter().find(mediated) {
            reader.problem(
                ProblemKind::Overlap,
                &range.span,
                format!(
                    "the service `{}` is mediated at labels of this range, and a label with a kernel of its own has no mediator",
                    service.name.value
                ),
                "write `mode = \"direct\"` for the service, or part the two ranges",
            );
        }
        if let Some(network) =
            draft.networks.read.iter().find(|one| one.labels.value.intersection(&range.value).is_some())
        {
            reader.problem(
                ProblemKind::Overlap,
                &range.span,
                format!(
                    "the network `{}` is at a label of this range, and a label with a kernel of its own has no network but its tunnel",
                    network.interface.value
                ),
                "leave the network's label out of `own-kernel`",
            );
        }
    }
}
