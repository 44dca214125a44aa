//! The warden → a stack that must agree with another.

use super::{Nothing, Part, Peer, Role};
use serde::{Deserialize, Serialize};

/// What either of the two stacks is given.
#[derive(Debug, Serialize, Deserialize)]
pub enum StackPart {
    /// The channel to the label's gate.
    Gate,
}

impl Part for StackPart {
    const ROLES: &[Role] = &[Role::Stack, Role::Witness];
    type Says = Nothing;

    fn channel(to: &Peer) -> Option<Self> {
        (to.role == Role::Vault).then_some(Self::Gate)
    }

    fn is_late(&self) -> bool {
        false
    }
}
