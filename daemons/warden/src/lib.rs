//! The warden: starts levee's processes and compartments, and hands each the descriptors of its job.
#![forbid(unsafe_code)]

pub mod compartment;
