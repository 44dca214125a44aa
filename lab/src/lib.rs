//! levee's laboratory.
//!
//! What does each protection cost on this host, per connection, per request, per byte? An experiment is
//! data ([`experiment`]); it is laid out in randomised complete blocks ([`design`]), run on real network
//! namespaces ([`run`]) with workloads of our own ([`workload`], [`client`], [`serve`]), and analysed
//! ([`stats`], [`analysis`]) into one self-contained page ([`report`]).
//!
//! The laboratory uses levee's programs from outside, as a person would: it may not link any of levee's crates.
//!
//! Begin reading with `experiment.rs`, then `run.rs`.

pub mod analysis;
pub mod badlink;
mod block;
pub mod client;
mod compartment;
pub mod counters;
pub mod design;
pub mod endings;
pub mod experiment;
mod federation;
pub mod host;
pub mod leak;
pub mod levee;
pub mod mediate;
pub mod netns;
mod operate;
pub mod paper;
mod partitions;
pub mod place;
mod processes;
pub mod report;
pub mod role;
pub mod run;
pub mod said;
pub mod sample;
pub mod serve;
mod server;
mod site;
pub mod stand;
pub mod station;
pub mod study;
pub mod tools;
pub mod workload;
