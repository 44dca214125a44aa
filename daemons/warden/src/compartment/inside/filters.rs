//! The system-call filters of programs that process 1 starts: each has what it asked for, on top of what the compartment has.

use std::collections::BTreeMap;

use levee_sys::Result;
use levee_sys::seccomp::Filter;

use crate::compartment::service::Profile;

/// What services in a compartment run under.
pub(super) const SERVICE: &str = include_str!("../../../../../conf/seccomp/service.toml");

/// What the virtual machine of a label with a kernel of its own runs under, beside what services do.
const MACHINE: &str = include_str!("../../../../../conf/seccomp/machine.toml");

/// Compiled when first wanted; there are as many as services that ask for different things.
#[derive(Debug, Default)]
pub(super) struct Filters {
    compiled: BTreeMap<Profile, Filter>,
}

impl Filters {
    /// The filter of this kind.
    pub fn of(&mut self, profile: &Profile) -> Result<&Filter> {
        if !self.compiled.contains_key(profile) {
            let filter = match profile {
                Profile::Service(needs) => {
                    let groups: Vec<&str> = needs.iter().map(|need| need.as_str()).collect();
                    Filter::compile_with(SERVICE, &groups)?
                }
                Profile::Machine => Filter::compile(MACHINE)?,
            };
            self.compiled.insert(profile.clone(), filter);
        }
        self.compiled
            .get(profile)
            .ok_or_else(|| levee_sys::Error::invalid("find a program's filter", "it was compiled just now"))
    }
}
