//! From samples to effects.
