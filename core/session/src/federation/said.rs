//! What comes of what servers say to each other.

use super::Shared;
use super::setting::Setting;
use super::statement::{Signed, Statement};
use crate::{SessionId, Time};
use levee_policy::DomainName;

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// By the table's client: give up whatever a try before has, tell all of the table, and then what changes in it.
    Join {
        /// Which try.
        attempt: u64,
    },
    /// This is to be signed, and written with these pages.
    State {
        /// Which try.
        attempt: u64,
        /// What is signed.
        statement: Box<Statement>,
        /// Pages by number.
        pages: Vec<(u16, Vec<u8>)>,
    },
    /// Packets of all sessions, or of this other server's, may pass until then, and no longer unless this is said again.
    Until(Option<DomainName>, Time),
    /// Every session of this server is to end: it cannot be proved any more that it may go on.
    Fence(String),
    /// A session of another server may be used here.
    Appeared(Shared),
    /// A session of this other server's is over: answered by [`Federation::cut`] when it is here.
    Vanished(DomainName, SessionId),
    /// A session of this server may begin, or why not.
    Published(SessionId, Publication),
    /// A session of this server is to end: its workstation has one at another server, too.
    Clash(SessionId),
    /// A session of this server is over at every other.
    Withdrawn(SessionId),
    /// Postures that were set at another server are to be in force here, as this one says.
    Set(DomainName, Setting),
    /// Postures that were set at another server cannot be: its site file has others by these names.
    Unlike(DomainName),
    /// What this server has set is in force at all others, and nothing of before is left there, but for these, which have not said so in time.
    Kept(Vec<DomainName>),
    /// Another server's audit log was so far when its signer signed it: to be kept here.
    Witness(DomainName, Signed),
}

/// What became of publishing a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Publication {
    /// The others have it.
    Done,
    /// They do not, and will not.
    Refused(String),
    /// They may have it: it is to be withdrawn.
    Unknown(String),
}
