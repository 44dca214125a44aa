//! What a record of the audit log is about.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// The actions of one version of levee, and their text in the log. A text never changes: old logs have it.
macro_rules! actions {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// What was wanted, or happened. In the log it is a word.
        ///
        /// They stand in the order of their words.
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Action {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $name,)+
            /// One that this version does not know. It is read from logs, and no process writes one.
            #[serde(untagged)]
            Unknown(Unknown),
        }

        impl Action {
            /// All that this version writes.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Its word in the log.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$name => $text,)+
                    Self::Unknown(Unknown(text)) => text,
                }
            }

            /// What it stands for; nothing of one that this version does not know.
            pub fn meaning(&self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                    Self::Unknown(_) => "",
                }
            }
        }
    };
}

actions! {
    /// Whom a service at a label is for.
    Access = "access",
    /// The audit log itself: its parts, its disk, its key.
    Audit = "audit",
    /// A person's or a site's secret was set, replaced or removed by an operator.
    Change = "change",
    /// A person changes their own password.
    ChangePassword = "change-password",
    /// A connection to a service, or one to the trusted path that came to nothing.
    Connect = "connect",
    /// Refusals that were counted, and not written one by one.
    Count = "count",
    /// A person may not sign on until they are enabled.
    Disable = "disable",
    /// They may again.
    Enable = "enable",
    /// The end of a session.
    End = "end",
    /// An operator runs a program at a label.
    Exec = "exec",
    /// A file is carried out of a session.
    Export = "export",
    /// A file is carried into a session.
    Import = "import",
    /// A session is locked.
    Lock = "lock",
    /// Keys for a session.
    Negotiate = "negotiate",
    /// Packets that a label's stacks disagreed about; a message that passes a guard.
    Pass = "pass",
    /// The posture in force.
    Posture = "posture",
    /// An operator puts a file into a label's store.
    Put = "put",
    /// A subject reads an object.
    Read = "read",
    /// A person releases a message that waits at a guard, or refuses it.
    Release = "release",
    /// A session goes on after a restart.
    Restore = "restore",
    /// A workstation comes back to its session.
    Resume = "resume",
    /// What the warden starts and stops.
    Run = "run",
    /// A session is opened.
    Session = "session",
    /// A person signs off.
    SignOff = "sign-off",
    /// A person signs on.
    SignOn = "sign-on",
    /// The server starts.
    Start = "start",
    /// The server stops.
    Stop = "stop",
    /// An operator tries whether a label starts.
    Trial = "trial",
    /// A session is unlocked.
    Unlock = "unlock",
    /// How far another server's log was when its signer signed it: kept here, so that who becomes root there cannot take it back.
    Witness = "witness",
}

/// The word of an action that this version does not know. Only a log that is read has one:
///
/// ```compile_fail
/// let _ = levee_policy::audit::Unknown("session".to_owned());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Unknown(String);

impl<'de> Deserialize<'de> for Unknown {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
