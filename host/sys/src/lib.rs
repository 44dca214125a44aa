//! What only the host's kernel can do: namespaces, mounts, network set-up, processes and their sandboxes.
//!
//! This is levee's only crate with unsafe code. Each module is one idea; each unsafe block states the
//! invariant that makes it sound. It may not know what a label is.
//!
//! Begin reading with `spawn.rs` and `sandbox.rs`: how a process comes to have nothing but what it is given.

mod error;

pub mod fork;
pub mod lease;

pub mod bpf;
pub mod cgroup;
pub mod clock;
pub mod code;
pub mod creds;
pub mod generation;
pub mod lock;
pub mod loopdev;
pub mod mount;
pub mod net;
pub mod notices;
pub mod ns;
pub mod pidfd;
pub mod pipe;
pub mod ports;
pub mod power;
pub mod reach;
pub mod sandbox;
pub mod seccomp;
pub mod selinux;
pub mod signals;
pub mod sockdiag;
pub mod spawn;
pub mod tcp;
pub mod terminal;
pub mod tun;
pub mod udp;
pub mod wipe;

pub use error::{Error, Result};
