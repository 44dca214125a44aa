//! A virtual network and a virtual clock, both driven by one seed, and the invariants that must hold whatever the network does.
//!
//! Begin reading with `network.rs`; the promises are in `tests/`.

pub mod ike;
mod network;
mod random;

pub use network::{Faults, Network};
pub use random::Dice;
