//! What the process may ask of the kernel.

/// The system calls that it may make, in each form.
pub const FILTER: &str = include_str!("../../../conf/seccomp/channel.toml");
