//! What was read, with its places, before the parts are held against each other.

use super::services::DraftService;
use super::tables::{DraftHost, DraftNetwork, DraftServer, DraftUser, Part};
use super::{federation, partition};
use crate::vocabulary::Vocabulary;

/// Everything of a file.
///
/// A part that could not be read is missing here, and a problem says so.
pub(super) struct Draft {
    pub vocabulary: Option<Vocabulary>,
    pub server: Option<DraftServer>,
    pub users: Part<DraftUser>,
    pub hosts: Part<DraftHost>,
    pub services: Part<DraftService>,
    pub networks: Part<DraftNetwork>,
    pub federation: Option<federation::Draft>,
    pub parts: Option<partition::Draft>,
}
