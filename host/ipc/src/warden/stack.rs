//! The warden → a stack that must agree with another.

use super::{Nothing, Part, Peer, Role};
use serde::{Deserialize, Serialize};

/// What either of the two stacks is given.
#[derive(Debug, Serialize, Deserialize)]
pub enum StackPart {
    /// The channel to the label's gate.
    Gate {
        /// The label's steering slot.
        slot: u16,
    },
}

impl Part for StackPart {
    const ROLES: &[Role] = &[Role::Stack, Role::Witness];
    type Says = Nothing;

    fn channel(to: &Peer) -> Option<Self> {
        match (to.role, to.slot) {
            (Role::Vault, Some(slot)) => Some(Self::Gate { slot }),
            _ => None,
        }
    }

    fn is_late(&self) -> bool {
        false
    }
}
