//! What a service asks for beyond what every service has: named groups of system calls, each of which shares something of the
//! kernel's with other labels.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ProblemKind;
use super::read::{Reader, Table};
use super::values::unknown_word;

/// A group of system calls, or `/proc` or terminals. What each is for and what it leaks is said in `conf/seccomp/service.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// `async-io`: asynchronous input and output by io_setup(2).
    AsyncIo,
    /// `corked-sends`: what is sent in parts (MSG_MORE, UDP_CORK).
    CorkedSends,
    /// `locks`: advisory locks, by fcntl(2) and flock(2).
    Locks,
    /// `message-queues`: POSIX message queues.
    MessageQueues,
    /// `netlink`: routing netlink, and the table of neighbours.
    Netlink,
    /// `own-sandbox`: filters of system calls, and Landlock, that a program puts on itself.
    OwnSandbox,
    /// `pidfd`: processes as descriptors.
    Pidfd,
    /// `proc`: the compartment's own `/proc`.
    Proc,
    /// `shared-futex`: to wake who waits on memory that processes share.
    SharedFutex,
    /// `sysv-ipc`: System V message queues, semaphores and shared memory.
    SysvIpc,
    /// `terminals`: pseudo-terminals of its own.
    Terminals,
}

impl Need {
    /// All there are, by name.
    pub const ALL: [Self; 11] = [
        Self::AsyncIo,
        Self::CorkedSends,
        Self::Locks,
        Self::MessageQueues,
        Self::Netlink,
        Self::OwnSandbox,
        Self::Pidfd,
        Self::Proc,
        Self::SharedFutex,
        Self::SysvIpc,
        Self::Terminals,
    ];

    /// Its name, in the site file and among the filter's groups.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AsyncIo => "async-io",
            Self::CorkedSends => "corked-sends",
            Self::Locks => "locks",
            Self::MessageQueues => "message-queues",
            Self::Netlink => "netlink",
            Self::OwnSandbox => "own-sandbox",
            Self::Pidfd => "pidfd",
            Self::Proc => "proc",
            Self::SharedFutex => "shared-futex",
            Self::SysvIpc => "sysv-ipc",
            Self::Terminals => "terminals",
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What one service asks for, or all services of a label together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Needs(BTreeSet<Need>);

impl Needs {
    /// Everything there is.
    pub fn all() -> Self {
        Self(Need::ALL.into())
    }

    /// Whether this is among them.
    pub fn has(&self, need: Need) -> bool {
        self.0.contains(&need)
    }

    /// Each, by name.
    pub fn iter(&self) -> impl Iterator<Item = Need> + '_ {
        self.0.iter().copied()
    }

    /// These and others.
    #[must_use]
    pub fn and(&self, others: &Self) -> Self {
        Self(self.0.union(&others.0).copied().collect())
    }
}

impl FromIterator<Need> for Needs {
    fn from_iter<I: IntoIterator<Item = Need>>(needs: I) -> Self {
        Self(needs.into_iter().collect())
    }
}

/// A service's `needs`; none without the key.
pub(super) fn needs(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Needs> {
    let Some(value) = keys.get("needs") else { return Some(Needs::default()) };
    let words = reader.strings(value, "needs")?;
    let mut known = true;
    let needs = words.iter().filter_map(|word| {
        let need = Need::ALL.into_iter().find(|need| need.as_str() == word.value);
        if need.is_none() {
            known = false;
            unknown_word(reader, word, "need of a service", Need::ALL.iter().map(|need| need.as_str()));
        }
        need
    });
    let needs = needs.collect();
    known.then_some(needs)
}

/// Whether people may write by nginx; no without the key.
pub(super) fn uploads(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<bool> {
    let Some(value) = keys.get("uploads") else { return Some(false) };
    let uploads = reader.boolean(value, "uploads")?;
    if uploads && keys.get("command").is_some() {
        reader.problem(
            ProblemKind::BadValue,
            &value.span(),
            "`uploads` says what levee configures nginx for, and a command runs here",
            "remove it, or write `program = \"nginx\"`",
        );
        return None;
    }
    Some(uploads)
}

/// A service's `software`; none without the key.
pub(super) fn software(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Vec<String>> {
    let Some(value) = keys.get("software") else { return Some(Vec::new()) };
    let words = reader.strings(value, "software")?;
    let mut sound = true;
    for word in &words {
        let path = word.value.starts_with("/usr/") && !word.value.split('/').any(|part| part == "..");
        // Debian Policy 5.6.7.
        let of_a_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
        let package = word.value.len() > 1
            && word.value.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && word.value.chars().all(of_a_name);
        if !path && !package || word.value.contains('\0') {
            sound = false;
            reader.problem(
                ProblemKind::BadValue,
                &word.span,
                format!("`{}` is neither a package's name nor a path beneath /usr", word.value),
                "write, for instance, \"dovecot-imapd\" or \"/usr/local/lib/app\"",
            );
        }
    }
    sound.then(|| words.iter().map(|word| word.value.to_owned()).collect())
}
