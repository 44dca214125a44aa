//! What was read, with its places, before the parts are held against each other.

use super::services::DraftService;
use super::tables::{DraftHost, DraftNetwork, DraftServer, DraftUser, ReadTables};
use super::{federation, partition};
use crate::vocabulary::Vocabulary;

/// Everything of a file.
///
/// A part that could not be read is missing here, and a problem says so.
pub(super) struct Draft {
    pub vocabulary: Option<Vocabulary>,
    pub server: Option<DraftServer>,
    pub users: ReadTables<DraftUser>,
    pub hosts: ReadTables<DraftHost>,
    pub services: ReadTables<DraftService>,
    pub networks: ReadTables<DraftNetwork>,
    pub federation: Option<federation::DraftFederation>,
    pub parts: Option<partition::DraftParts>,
}
