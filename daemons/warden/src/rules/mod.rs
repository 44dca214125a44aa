//! The rules of labels' networks, which levee-rules loads and reads: a process in the label's namespace that has power over that
//! namespace's network and nothing else, runs `nft`, and ends. The warden neither writes rules nor reads what `nft` prints.
//!
//! | file | idea |
//! |---|---|
//! | here | the warden's side |
//! | `behind` | the rules of a session with a machine behind the workstation |
//! | `inside` | what levee-rules does |
//! | `text` | the rules, as text that `nft -f` takes |
//! | `partition` | those of a partition |
//! | `labelled` | those of a labelled network, where its interface is |
//! | `wire` | those of a one-way channel's wire |

mod behind;
mod inside;
mod labelled;
mod partition;
mod text;
mod wire;

pub use inside::main;

use crate::maker::Maker;
use crate::memfile::sealed;
use crate::waits::Waits;
use levee_policy::LabelName;
use levee_sys::spawn::Program;
use levee_sys::{Error, Result};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::CapabilitySet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long loading or reading a label's rules may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of counts that are read, of which a pipe holds as many.
const COUNTS: usize = 64 << 10;

/// What levee-rules is started with.
#[derive(Debug)]
pub struct Rules {
    site: String,
    programs: PathBuf,
}

/// A label's rules being read.
#[derive(Debug)]
pub struct Counting {
    maker: Maker,
    counts: OwnedFd,
}

impl Rules {
    /// Of the site file with this text, by the program in the directory `programs`.
    pub fn new(site: &str, programs: &Path) -> Self {
        Self { site: site.to_owned(), programs: programs.to_owned() }
    }

    /// Loads a label's rules in its namespace `ns`, and waits until that is done.
    ///
    /// # Errors
    /// Why they are not loaded.
    pub fn load(&self, label: &LabelName, ns: BorrowedFd<'_>) -> Result<()> {
        let site = self.site()?;
        Maker::run(self.program("load", label, &site, ns), PATIENCE)
            .map_err(|why| Error::invalid(format!("load the rules of {label}'s networks"), why))
    }

    /// Loads the rules of a session's network in which a machine behind the workstation is, and waits until that is done. Of the text that
    /// this was made with, [`crate::behind::Behind`] as JSON.
    ///
    /// # Errors
    /// Why they are not loaded.
    pub fn behind(&self, label: &LabelName, ns: BorrowedFd<'_>) -> Result<()> {
        let machine = self.site()?;
        Maker::run(self.program("behind", label, &machine, ns), PATIENCE)
            .map_err(|why| Error::invalid("load the rules of the machine behind this workstation", why))
    }

    /// Has a label's counters read. Nobody waits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn count(&self, label: &LabelName, ns: BorrowedFd<'_>, waits: &mut Waits) -> Result<Counting> {
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        let (counts, counted) = pipe.map_err(|e| Error::new("make a pipe", e))?;
        let site = self.site()?;
        let mut program = self.program("count", label, &site, ns);
        program.stdio[1] = Some(counted.as_fd());
        Ok(Counting { maker: Maker::start(program, PATIENCE, waits)?, counts })
    }

    fn site(&self) -> Result<OwnedFd> {
        sealed("site", self.site.as_bytes()).map_err(|e| Error::new("hand over the site file", e))
    }

    fn program<'fd>(
        &self,
        what: &str,
        label: &LabelName,
        site: &'fd OwnedFd,
        ns: BorrowedFd<'fd>,
    ) -> Program<'fd> {
        let mut program = Program::new(self.programs.join("levee-rules"));
        program.args.extend([what.into(), label.as_str().into()]);
        program.stdio[0] = Some(site.as_fd());
        program.net = Some(ns);
        program.capabilities = CapabilitySet::NET_ADMIN;
        program
    }
}

impl Counting {
    /// What was counted, once it is known: of each interface, in the order of [`crate::ruleset::Reason::ALL`].
    pub fn over(&self) -> Option<std::result::Result<Vec<u64>, String>> {
        let read = |()| {
            let mut text = vec![0; COUNTS];
            let length = rustix::io::retry_on_intr(|| rustix::io::read(&self.counts, &mut text));
            let text = text.get(..length.map_err(|e| e.to_string())?).unwrap_or_default();
            let numbers = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let number = |line: &[u8]| std::str::from_utf8(line).ok()?.parse().ok();
            numbers.map(number).collect::<Option<_>>().ok_or_else(|| "it says what is no number".to_owned())
        };
        Some(self.maker.over()?.and_then(read))
    }
}
