//! A label whose stacks must agree: a gate in its vault's place, and two stacks that know nobody but the gate.

use crate::Fatal;
use crate::key::Key;
use crate::logs::Logs;
use crate::options::Options;
use crate::process::{Process, Start};
use crate::supervisor::Processes;
use crate::uids::Uids;
use levee_ipc::Channel;
use levee_ipc::warden::stack::StackPart;
use levee_ipc::warden::{Peer, Place, Role};
use levee_policy::LabelName;
use std::time::Duration;

/// The gate's program.
pub const GATE: &str = "levee-gate";

/// The two stacks.
pub const ROLES: [Role; 2] = [Role::Stack, Role::Witness];

/// Starts both stacks of a label, each with a channel to `gate`.
///
/// # Errors
/// The step that failed, and why.
pub fn start(
    gate: &Process,
    name: &LabelName,
    slot: u16,
    logs: &Logs,
    options: &Options,
    uids: &Uids,
    processes: &mut Processes,
) -> Result<(), Fatal> {
    for role in ROLES {
        let arguments: &[&str] = if role == Role::Stack { &["--stack"] } else { &[] };
        let start = Start::new(Key::at(role, name), slot, uids, options, logs);
        let process = Process::start_as::<StackPart>(Start { arguments, ..start })
            .map_err(|e| Fatal::new(format!("start {} for {name}", role.program()), e))?;
        let peer = |role| Peer { role, label: Some(name.clone()), slot: None };
        let process = process.into_process();
        let wire = || -> Result<(), Box<dyn std::error::Error>> {
            let (ours, theirs) = Channel::pair()?;
            gate.connect(&peer(role), ours.into_fd())?;
            process.connect(&peer(Role::Vault), theirs.into_fd())?;
            process.begin(Place::Server)?;
            Ok(())
        };
        wire().map_err(|e| Fatal::new(format!("hand {} its channel", process.key), e))?;
        // None that runs is wired to it.
        processes.keep(process, |_| None).map_err(|e| Fatal::new("keep a stack", e))?;
    }
    Ok(())
}

/// How long stacks may take to end when their gate has: how they do by themselves says what was wrong.
pub const BY_THEMSELVES: Duration = Duration::from_millis(500);

/// Those of a label's stacks that run.
pub fn running<'a>(name: &LabelName, processes: &'a Processes) -> impl Iterator<Item = &'a Process> {
    ROLES.map(|role| Key::at(role, name)).into_iter().filter_map(move |key| processes.get(&key))
}

/// What the audit log calls them.
pub const NOTED: &str = "redundant stacks";

/// What the audit log is to say of a gate or stack that ended.
pub fn note(role: Role, how: &str) -> String {
    let which = match role {
        Role::Stack => "first one",
        Role::Witness => "second one",
        _ => "gate",
    };
    format!("the {which} ended ({how}): nothing passes until all are there again")
}
