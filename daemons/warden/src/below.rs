//! The labels whose documents one label reads: those that it dominates, by the policy's own decision on each.

use crate::options::Options;
use levee_policy::site::Service;
use levee_policy::{Label, LabelName, Range, Site, Who};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Ends the name of the image of a label's own store.
pub const OWN: &str = ".img";
/// Ends the name of the image with the copies that a label reads. (No label's name has a dot in it.)
pub const COPIES: &str = ".below.img";
/// Ends the name of the image with the snapshot of a label's store.
pub const SNAPSHOT: &str = ".snapshot.img";

/// So many bytes an image for a snapshot has beside those of the store: for what upflow itself keeps there.
pub const SNAPSHOT_BESIDES: u64 = 1 << 20;

/// Where a label's snapshot is.
pub fn snapshot(name: &LabelName, options: &Options) -> PathBuf {
    options.state.join("stores").join(format!("{}{}", name.file_name(), SNAPSHOT))
}

/// Of no more labels than this in one service's range is it said that they could have documents before they have run:
/// each costs its readers a descriptor, a look at every pass, and a place on the page. (Seven categories give more.)
const MOST: u64 = 128;

/// The labels below one label.
#[derive(Debug)]
pub struct Below {
    label: Label,
    /// Sorted.
    names: Vec<LabelName>,
    /// Every label below is named; otherwise only those that have run.
    whole: bool,
    /// How many there are in all.
    most: u64,
}

impl Below {
    /// The labels that `label` reads and at which the site has a service, and so perhaps documents. Where there are too many to
    /// name, those that have run: their images are in the directory `stores`.
    pub fn of(label: &Label, site: &Site, stores: &Path) -> Self {
        let (mut names, mut whole, mut most) = (BTreeSet::new(), true, 0_u64);
        let mut runs = BTreeSet::new();
        for range in site.services().filter_map(|service| under(label, service)) {
            most = most.saturating_add(range.count().unwrap_or(u64::MAX));
            match range.labels(MOST) {
                Some(labels) => names.extend(labels.filter_map(|other| readable(label, &other, site))),
                None => {
                    whole = false;
                    if runs.is_empty() {
                        runs = run_before(stores, site);
                    }
                    let inside = runs.iter().filter(|other| range.contains(other));
                    names.extend(inside.filter_map(|other| readable(label, other, site)));
                }
            }
        }
        // The label itself is in each of the ranges.
        Self { label: label.clone(), names: names.into_iter().collect(), whole, most: most.saturating_sub(1) }
    }

    /// Their names.
    pub fn names(&self) -> &[LabelName] {
        &self.names
    }

    /// Whether these are all that there could be.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether there could be any.
    pub fn is_any(&self) -> bool {
        !self.whole || !self.names.is_empty()
    }

    /// How many there could be, at most.
    pub fn most(&self) -> u64 {
        if self.whole { u64::try_from(self.names.len()).unwrap_or(u64::MAX) } else { self.most }
    }

    /// A label has run for the first time; whether it is a new one here.
    pub fn learns_of(&mut self, other: &Label, site: &Site) -> bool {
        if self.whole {
            return false;
        }
        let Some(name) = readable(&self.label, other, site) else { return false };
        match self.names.binary_search(&name) {
            Ok(_) => false,
            Err(place) => {
                self.names.insert(place, name);
                true
            }
        }
    }
}

/// Whether there is a label that could read this one's documents: one that dominates it and at which the site has a service.
pub fn is_read(label: &Label, site: &Site) -> bool {
    // Where any label of a range dominates it, the highest does.
    site.services().map(|service| service.range().high()).any(|high| high != label && high.dominates(label))
}

/// The labels of a service that a label dominates, itself included; `None` if it dominates none of them.
fn under(label: &Label, service: &Service) -> Option<Range> {
    Range::new(service.range().low().clone(), service.range().high().meet(label))
}

/// The name of another label whose documents may be read.
fn readable(reader: &Label, other: &Label, site: &Site) -> Option<LabelName> {
    if reader == other {
        return None;
    }
    let grant = site.decide_read(Who::default(), reader, other).ok()?;
    site.label_name(grant.action().object())
}

/// The labels that have a store.
fn run_before(stores: &Path, site: &Site) -> BTreeSet<Label> {
    // There is none before the first label has run.
    let entries = std::fs::read_dir(stores).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let file = entry.file_name();
            // No label's name has a `+` in it: see LabelName::file_name.
            let name = file.to_str()?.strip_suffix(OWN)?.replace('+', "/");
            site.label(&LabelName::new(&name).ok()?)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = include_str!("../../../conf/small/site.toml");
    const LARGE: &str = include_str!("../../../conf/large/site.toml");

    fn names(below: &Below) -> Vec<&str> {
        below.names().iter().map(LabelName::as_str).collect()
    }

    #[test]
    fn in_a_small_site_every_label_that_is_dominated_is_named_before_it_has_run() {
        let site = Site::parse(SMALL).unwrap();
        let below =
            |text: &str| Below::of(&site.vocabulary().parse(text).unwrap(), &site, Path::new("/nowhere"));
        let of = below("CONFIDENTIAL//MED");
        assert_eq!(names(&of), ["CONFIDENTIAL", "UNCLASSIFIED", "UNCLASSIFIED//MED"]);
        assert!(of.is_whole() && of.is_any());
        assert_eq!(below("SECRET//NATO,MED").names().len(), 11);
        assert!(!below("UNCLASSIFIED").is_any());
        let is_read = |text: &str| is_read(&site.vocabulary().parse(text).unwrap(), &site);
        assert!(is_read("UNCLASSIFIED") && is_read("SECRET//NATO") && !is_read("SECRET//NATO,MED"));
    }

    #[test]
    fn in_a_large_site_a_label_reads_those_that_have_run_and_learns_of_others_when_they_do() {
        let site = Site::parse(LARGE).unwrap();
        let label = |text: &str| site.vocabulary().parse(text).unwrap();
        let place = tempfile::tempdir().unwrap();
        // Few are below, though the services' ranges are beyond counting.
        let few = Below::of(&label("L02//NATO@UNVERIFIED"), &site, place.path());
        assert!(few.is_whole());
        assert_eq!(few.names().len(), 3 * 2 * 2 - 1);

        let wide = SMALL.replace("\"MED\"]", "\"MED\", \"A\", \"B\", \"C\", \"D\", \"E\", \"F\"]");
        let wide = wide.replace("SECRET//NATO,MED\"\nmode", "SECRET//NATO,MED,A,B,C,D,E,F\"\nmode");
        let site = Site::parse(&wide).unwrap();
        let label = |text: &str| site.vocabulary().parse(text).unwrap();
        let high = label("SECRET//NATO,MED,A,B,C,D,E");
        let none = Below::of(&high, &site, place.path());
        assert!(none.is_any() && !none.is_whole() && none.names().is_empty(), "{none:?}");
        assert_eq!(none.most(), 3 * 128 - 1);
        for file in [
            "CONFIDENTIAL++NATO.img",
            "CONFIDENTIAL++NATO.below.img",
            "CONFIDENTIAL++MED.snapshot.img",
            "CONFIDENTIAL++F.img",
            "SECRET++NATO,MED,A,B,C,D,E.img",
            "of-another-site.img",
            "notes.txt",
        ] {
            std::fs::write(place.path().join(file), "").unwrap();
        }
        let mut some = Below::of(&high, &site, place.path());
        assert_eq!(names(&some), ["CONFIDENTIAL//NATO"], "not what it does not dominate, and not itself");
        assert!(some.learns_of(&label("UNCLASSIFIED"), &site));
        assert!(!some.learns_of(&label("UNCLASSIFIED"), &site), "it knows");
        assert!(!some.learns_of(&label("UNCLASSIFIED//F"), &site), "not dominated");
        assert!(!some.learns_of(&high, &site));
        assert_eq!(names(&some), ["CONFIDENTIAL//NATO", "UNCLASSIFIED"]);
    }
}
