//! Labelled networks: an interface whose packets carry a label each, and the wires from it to the compartments.

pub mod programs;
pub mod wire;
