//! Labels, the lattice they form, the site file, and every decision that follows from them.
//!
//! It decides and may not act: no unsafe code, no input or output, no clock. It builds for
//! `wasm32-unknown-unknown`. The invariant it keeps: a [`decision::Grant`] exists only if a decision in
//! [`decision`] made it, and a [`Site`] exists only if its file had no problem at all.
//!
//! Begin reading with `label.rs`, then `decision.rs`; `site/` reads the file, `site/reference.rs` says what each key means.

pub mod audit;
pub mod between;
mod carry;
mod categories;
pub mod decision;
mod domain;
pub mod flow;
mod label;
pub mod layers;
mod names;
pub mod selinux;
pub mod setrans;
pub mod site;
mod vocabulary;

pub use categories::{CategorySet, MAX_CATEGORIES};
pub use decision::{Denial, DenialKind, Grant, Who};
pub use domain::{Domain, TagForm, Untranslated};
pub use label::{Class, Label, Range, flow_allowed};
pub use names::{
    ChannelName, DomainName, HardwareAddress, HostName, InterfaceName, InvalidName, LabelName, PartitionName,
    PostureName, PpkId, ProtectionName, RangeName, ServiceName, SiteName, UserName,
};
pub use site::{Problem, Site};
pub use vocabulary::{MAX_LEVELS, NameList, SyntaxError, SyntaxKind, Vocabulary, VocabularyError, nearest};
