//! Which groups of processes run on which of the host's processors (`[[processors]]`).

use crate::Fatal;
use crate::framed::Member;
use levee_policy::Site;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;

/// What has been told the kernel.
#[derive(Debug)]
pub struct Placed {
    /// What no label has for itself, as the kernel writes it.
    others: String,
    /// The numbers of the groups that have their place.
    done: BTreeSet<u64>,
}

impl Placed {
    /// What the host has is held against what the site says, and this process, with all that it starts, leaves the processors that are
    /// somebody's. `None` where the site says nothing.
    ///
    /// # Errors
    /// The host lacks one of them, or has no other.
    pub fn begin(site: &Site) -> Result<Option<Self>, Fatal> {
        let own: BTreeSet<u16> = site.processors().iter().flat_map(|some| some.numbers()).copied().collect();
        if own.is_empty() {
            return Ok(None);
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
        Ok(Some(Self { others: list(&left), done: BTreeSet::new() }))
    }

    /// Gives each group its place that has none yet. One that cannot have it is killed. Answers of which that was, and why.
    pub fn place<'a>(
        &mut self,
        site: &Site,
        members: impl Iterator<Item = Member<'a>>,
    ) -> Vec<(String, levee_sys::Error)> {
        let before = std::mem::take(&mut self.done);
        let mut killed = Vec::new();
        for Member { who, group } in members {
            self.done.insert(group.number());
            if before.contains(&group.number()) {
                continue;
            }
            let own = who.label(site).and_then(|label| site.processors_of(&label));
            let numbers = own.map(|own| list(own.numbers()));
            if let Err(why) = group.keep_to(numbers.as_ref().unwrap_or(&self.others)) {
                // It can be killed, or is gone.
                let _ = group.kill();
                killed.push((who.to_string(), why));
            }
        }
        killed
    }
}

fn list<'a>(numbers: impl IntoIterator<Item = &'a u16>) -> String {
    numbers.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
