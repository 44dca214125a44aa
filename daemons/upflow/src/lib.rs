//! Copies a label's documents to the labels that dominate it, so that no inode is ever shared between labels: a
//! reader's opens, locks and leases, watches and access times touch its own copy alone.
//!
//! Two stages, each a process under a uid of its own:
//!
//! 1. *Snapshot*, one per label, while that label runs: from the label's store to a [`area::Area`] that no
//!    compartment sees. It sleeps until the kernel tells it of a change in the store. Its schedule depends on the store alone ([`schedule`]), so a writer learns nothing from it
//!    about who reads.
//! 2. *Copy*, one per reading label, while that label runs: from the snapshots of the labels it dominates to areas of
//!    its own, whose trees its compartment mounts read-only.
//!
//! A label with a kernel of its own has its file systems in its virtual machine, and the host's kernel mounts none of them. There each
//! stage is two processes, one within and one outside: [`send`] tells what has changed, [`receive`] keeps a copy of it.
//!
//! What is copied: regular files and directories, by name and content, with the modification time; readable by
//! everyone, writable by nobody else; holes stay holes. Everything else (links, FIFOs, sockets, devices, owners, modes, extended
//! attributes) stays where it is. A snapshot lies in an image as large as its label's store, and nothing that is
//! copied takes more room than the file system that it comes from has. Permissions within a label are the label's own affair and are not carried
//! upward: who dominates a label may read its documents.
//!
//! It may not follow a link, leave its two directories or write below. Begin reading with `serve.rs`, then `mirror.rs`.
#![forbid(unsafe_code)]

pub mod area;
mod beneath;
mod file;
pub mod mirror;
pub mod receive;
pub mod schedule;
pub mod send;
mod serve;
mod start;

pub use start::serve;
