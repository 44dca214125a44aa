//! Which groups of processes run on which of the host's processors (`[[processors]]`).

use crate::Fatal;
use levee_policy::{LabelName, Site};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;

/// Where what is at each label runs. The default is a host whose processors are everybody's.
#[derive(Clone, Debug, Default)]
pub struct Places(Option<Apart>);

#[derive(Clone, Debug)]
struct Apart {
    site: Box<Site>,
    /// What no label has for itself, as the kernel writes it.
    others: String,
}

impl Places {
    /// What the host has is held against what the site says, and this process, with all that it starts, leaves the processors that are
    /// somebody's.
    ///
    /// # Errors
    /// The host lacks one of them, or has no other.
    pub fn begin(site: &Site) -> Result<Self, Fatal> {
        let own: BTreeSet<u16> = site.processors().iter().flat_map(|some| some.numbers()).copied().collect();
        if own.is_empty() {
            return Ok(Self::default());
        }
        let step = "give labels processors of their own";
        let all = sched_getaffinity(None).map_err(|e| Fatal::new(step, e))?;
        let has = |number: &u16| usize::from(*number) < CpuSet::MAX_CPU && all.is_set(usize::from(*number));
        if let Some(absent) = own.iter().find(|number| !has(number)) {
            let why = format!("[[processors]] names {absent}, which levee may not use or this host has not");
            return Err(Fatal::new(step, why));
        }
        let mut others = CpuSet::new();
        let left: Vec<u16> = (0..=u16::MAX).filter(|number| has(number) && !own.contains(number)).collect();
        if left.is_empty() {
            return Err(Fatal::new(step, "[[processors]] leaves none for all others: name one less"));
        }
        left.iter().for_each(|number| others.set(usize::from(*number)));
        sched_setaffinity(None, &others).map_err(|e| Fatal::new(step, e))?;
        Ok(Self(Some(Apart { site: Box::new(site.clone()), others: list(&left) })))
    }

    /// The processors of a group at this label, which it is to have before anything is in it; `None`: all that there are.
    pub fn of(&self, name: &LabelName) -> Option<String> {
        let Apart { site, others } = self.0.as_ref()?;
        let label = site.label(name);
        let own = label.and_then(|label| site.processors_of(&label).map(|own| list(own.numbers())));
        Some(own.unwrap_or_else(|| others.clone()))
    }
}

fn list<'a>(numbers: impl IntoIterator<Item = &'a u16>) -> String {
    numbers.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
