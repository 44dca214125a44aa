//! The start of a compartment as data: every step in order, readable, and exactly what is carried out.

use levee_policy::LabelName;
use levee_policy::site::{Need, Needs};
use levee_sys::cgroup::Limits;

use super::rootfs;
use super::spec::{Files, Programs, SERVICE_UID, Spec};
use super::step::{Inside, Outside};

/// The start of one compartment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The label, for people to read.
    pub label: LabelName,
    /// What the warden does.
    pub outside: Vec<Outside>,
    /// What process 1 of the compartment then does to itself.
    pub inside: Vec<Inside>,
}

impl Plan {
    /// Every step that starting `spec` takes.
    pub fn new(spec: &Spec) -> Self {
        let Limits { memory, processes, cpu_percent } = spec.limits;
        let mut outside = vec![
            Outside::ControlGroup { name: spec.cgroup.clone(), memory, processes, cpu_percent },
            Outside::SourcePorts,
            Outside::UserNamespace(spec.uid_base),
        ];
        outside.extend(spec.processors.clone().map(Outside::Processors));
        outside.extend(spec.contexts.clone().map(Outside::Contexts));
        if let Files::Store { own, below } = &spec.files {
            outside.push(Outside::Image { path: own.clone(), read_only: false });
            if let Some(below) = below {
                outside.push(Outside::Image { path: below.clone(), read_only: true });
            }
        }
        if let Programs::Image(path) | Programs::Root(path) = &spec.programs {
            outside.push(Outside::Programs(path.clone()));
        }
        outside.push(Outside::Process1);

        let mut inside = vec![
            // While the host's `/proc` is there.
            Inside::AuditSession(spec.uid_base.saturating_add(SERVICE_UID)),
            Inside::PrivateMounts,
        ];
        inside.extend(spec.contexts.clone().map(Inside::Contexts));
        inside.extend(rootfs::steps(spec));
        inside.extend([
            Inside::ChangeRoot,
            Inside::HostName(spec.hostname.clone()),
            Inside::Time,
            Inside::HideControlGroups,
            Inside::JoinUserNamespace,
            Inside::Identity,
            Inside::DropCapabilities,
        ]);
        inside.extend(spec.contexts.iter().map(|contexts| Inside::Context(contexts.processes.clone())));
        inside.extend([Inside::TieToWarden, Inside::Landlock, Inside::SystemCalls(groups(&spec.needs))]);
        Self { label: spec.label.clone(), outside, inside }
    }

    /// The same, of which nothing writes a file beyond this size.
    #[must_use]
    pub fn with_files_up_to(mut self, bytes: u64) -> Self {
        let last = self.outside.iter().position(|step| *step == Outside::Process1);
        self.outside.insert(last.unwrap_or(self.outside.len()), Outside::FilesUpTo(bytes));
        self
    }
}

/// The groups of the compartment's filter. Process 1 knows its children by descriptor; what it starts does not have that
/// from it.
fn groups(needs: &Needs) -> Vec<String> {
    needs
        .and(&Needs::from_iter([Need::OwnSandbox, Need::Pidfd]))
        .iter()
        .map(|need| need.to_string())
        .collect()
}
