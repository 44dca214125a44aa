//! A label whose stacks must agree: a gate in its vault's place, and two stacks that know nobody but the gate.

use crate::Fatal;
use crate::options::Options;
use crate::process::{Key, Process, Start};
use crate::supervisor::Processes;
use crate::uids::{Own, Uids};
use levee_ipc::Channel;
use levee_ipc::warden::{Attachment, LabelEvent, Place, Role};
use levee_policy::LabelName;
use std::time::{Duration, Instant};

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
    options: &Options,
    uids: &Uids,
    processes: &mut Processes,
) -> Result<(), Fatal> {
    for role in ROLES {
        let (own, arguments) = match role {
            Role::Stack => (Own::Stack(slot), &["--stack"][..]),
            _ => (Own::Witness(slot), &[][..]),
        };
        let process = Process::start(Start {
            key: Key::at(role, name),
            programs: &options.programs,
            program: None,
            arguments,
            uid: uids.own(own),
            network: None,
        })
        .map_err(|e| Fatal::new(format!("start {} for {name}", role.program()), e))?;
        let peer = |role| Attachment::Peer { role, label: Some(name.clone()), slot: Some(slot) };
        let wire = || -> Result<(), Box<dyn std::error::Error>> {
            let (ours, theirs) = Channel::pair()?;
            gate.give(peer(role), ours.into_fd())?;
            process.give(peer(Role::Vault), theirs.into_fd())?;
            process.begin(Place::Server)?;
            Ok(())
        };
        wire().map_err(|e| Fatal::new(format!("hand {} its channel", process.key), e))?;
        // None that runs is wired to it.
        processes.admit(process, |_| None).map_err(|e| Fatal::new("keep a stack", e))?;
    }
    Ok(())
}

/// How long a stack may take to end when its gate has.
const BY_ITSELF: Duration = Duration::from_millis(500);

/// Ends both stacks of a label whose gate has ended: their keys are gone when this returns. Answers what the audit log is to
/// say of it.
pub fn end(name: &LabelName, gate: &str, processes: &mut Processes) -> Vec<LabelEvent> {
    let mut notes = Vec::new();
    for role in ROLES {
        let Some(stack) = processes.remove(&Key::at(role, name)) else { continue };
        // It ends by itself with its gate; one that ended first is why the gate did, and its end may be on its way still.
        let until = Instant::now() + BY_ITSELF;
        let mut how = stack.exit();
        while how.is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
            how = stack.exit();
        }
        match how {
            Some(how) => notes.push(note(role, name, &how)),
            None => {
                stack.kill();
                stack.wait(Duration::from_secs(5));
            }
        }
    }
    notes.push(note(Role::Vault, name, gate));
    notes
}

/// What the audit log is to say of a gate or stack that ended.
pub fn note(role: Role, name: &LabelName, how: &str) -> LabelEvent {
    let which = match role {
        Role::Stack => "first one",
        Role::Witness => "second one",
        _ => "gate",
    };
    LabelEvent::Note {
        label: Some(name.clone()),
        object: "redundant stacks".into(),
        done: false,
        reason: format!("the {which} ended ({how}): nothing passes until all are there again"),
    }
}
