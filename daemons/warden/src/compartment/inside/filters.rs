//! The system-call filters of programs that process 1 starts: each has what it asked for, on top of what the compartment has.

use std::collections::BTreeMap;

use levee_policy::site::Needs;
use levee_sys::Result;
use levee_sys::seccomp::{self, Filter};

/// Compiled when first wanted; there are as many as services that ask for different things.
#[derive(Debug, Default)]
pub(super) struct Filters {
    compiled: BTreeMap<Needs, Filter>,
}

impl Filters {
    /// The filter of a program that asks for this.
    pub fn of(&mut self, needs: &Needs) -> Result<&Filter> {
        if !self.compiled.contains_key(needs) {
            let groups: Vec<&str> = needs.iter().map(|need| need.as_str()).collect();
            let filter = Filter::compile_with(seccomp::SERVICE, &groups)?;
            self.compiled.insert(needs.clone(), filter);
        }
        self.compiled
            .get(needs)
            .ok_or_else(|| levee_sys::Error::invalid("find a program's filter", "it was compiled just now"))
    }
}
