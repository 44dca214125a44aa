//! Compartments: one place per label, with its own network, mounts, processes, uids and limits.
//!
//! | file | idea |
//! |---|---|
//! | [`spec`](Spec) | what a compartment is to be, as data |
//! | [`plan`](Plan) | every step of its start, in order: what `levee plan` prints is what is carried out |
//! | `step` | the steps, as data and in words |
//! | `rootfs` | the steps that build its root file system |
//! | [`network`](Network) | its network namespace, which outlives it |
//! | [`store`](Store) | an image that holds a label's files |
//! | [`fill`] | how it is made, by levee-store |
//! | [`listener`] | a listener that refuses who comes |
//! | `start` | the warden's side: one function that carries the plan out or leaves nothing behind |
//! | `wait` | the same, waited for |
//! | [`inside`] | the other side: process 1 of the compartment, which shuts the door behind itself |
//! | [`proto`] | what the two sides say to each other |
//! | [`service`] | unmodified services, as process 1 is told of them |
//!
//! The order keeps privilege out. Network, mounts and process numbers belong to the host's user namespace, so
//! that nothing inside has power over them whatever its uid; the compartment's user namespace is joined last,
//! when there is nothing left to set up.

mod fill;
pub mod inside;
pub mod listener;
mod network;
mod plan;
pub mod proto;
mod rootfs;
pub mod service;
mod spec;
mod start;
mod step;
mod store;
mod wait;

pub use fill::fill;
pub(crate) use network::set;
pub use network::{Interface, Network};
pub use plan::Plan;
pub use proto::FromInit as Event;
pub(crate) use rootfs::{COPIED, MERGED};
pub use spec::{Contexts, Files, PAGES, Programs, SERVICE_UID, Spec, UIDS};
pub(crate) use start::{BATCH, CUT};
pub use start::{Compartment, Given};
pub use step::{Inside, Outside};
pub use store::{Store, Unfinished};
