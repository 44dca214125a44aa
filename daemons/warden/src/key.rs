//! By what the warden knows the processes that it starts.

use levee_ipc::warden::Role;
use levee_policy::LabelName;
use std::fmt;

/// Which process: there is one of each role, and one vault and so on for each label; of vaults so many as the site has
/// workers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Its role.
    pub role: Role,
    /// Its label, for roles that have one.
    pub label: Option<LabelName>,
    /// Which of several that share a label's work, from 0.
    pub worker: u16,
}

impl Key {
    /// The one process of `role`.
    pub fn of(role: Role) -> Self {
        Self { role, label: None, worker: 0 }
    }

    /// The process of `role` at `label`.
    pub fn at(role: Role, label: &LabelName) -> Self {
        Self { role, label: Some(label.clone()), worker: 0 }
    }

    /// One worker of the vault at `label`.
    pub fn vault(label: &LabelName, worker: u16) -> Self {
        Self { worker, ..Self::at(Role::Vault, label) }
    }

    /// What its role is called.
    pub fn name(&self) -> &'static str {
        match self.role {
            Role::Stack => "stack",
            Role::Snapshot => "upflow-snapshot",
            Role::Copy => "upflow-copy",
            role => role.program().trim_start_matches("levee-"),
        }
    }

    /// How the log of its label calls it.
    pub fn source(&self) -> String {
        let name = self.name();
        if self.worker > 0 { format!("{name}-{}", self.worker + 1) } else { name.to_owned() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.role.program())?;
        self.label.iter().try_for_each(|label| write!(f, " at {label}"))?;
        if self.worker > 0 { write!(f, ", worker {}", self.worker + 1) } else { Ok(()) }
    }
}
