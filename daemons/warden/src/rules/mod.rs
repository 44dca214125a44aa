//! The rules of labels' networks, which levee-rules loads and reads: a process in the label's namespace that has power over that
//! namespace's network and nothing else, runs `nft`, and ends. The warden neither writes rules nor reads what `nft` prints.
//!
//! | file | idea |
//! |---|---|
//! | here | the warden's side |
//! | `behind` | the rules of a session with a machine behind the workstation |
//! | `inside` | what levee-rules does |
//! | `ruleset` | the rules of a label's networks or a partition's, as data |
//! | `text` | they, as text that `nft -f` takes |
//! | `partition` | those of a partition |
//! | `labelled` | those of a labelled network, where its interface is |
//! | `wire` | those of a one-way channel's wire |

mod behind;
mod inside;
mod labelled;
mod partition;
mod ruleset;
mod text;
mod wire;

pub use inside::main;
pub use ruleset::{Reason, Ruleset};

use crate::log;
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
        self.run("load", label, ns)
    }

    /// Loads the rules of a session's network in which a machine behind the workstation is, and waits until that is done. Of the text that
    /// this was made with, [`crate::behind::Behind`] as JSON.
    ///
    /// # Errors
    /// Why they are not loaded.
    pub fn behind(&self, label: &LabelName, ns: BorrowedFd<'_>) -> Result<()> {
        self.run("behind", label, ns)
    }

    fn run(&self, what: &str, label: &LabelName, ns: BorrowedFd<'_>) -> Result<()> {
        let text = self.site()?;
        Maker::run(self.program(what, label, &text, ns), PATIENCE)
            .map_err(|why| Error::invalid(format!("load the rules of {label}'s networks"), why))
    }

    /// Has a label's counters read, which come by a pipe. Nobody waits.
    ///
    /// # Errors
    /// The kernel's.
    fn count(&self, label: &LabelName, ns: BorrowedFd<'_>, waits: &mut Waits) -> Result<(Maker, OwnedFd)> {
        let pipe = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK);
        let (counts, counted) = pipe.map_err(|e| Error::new("make a pipe", e))?;
        let site = self.site()?;
        let mut program = self.program("count", label, &site, ns);
        program.stdio[1] = Some(counted.as_fd());
        Ok((Maker::start(program, PATIENCE, waits)?, counts))
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

/// What rules have counted, as it was read last.
#[derive(Debug, Default)]
pub struct Counts {
    counting: Option<(Maker, OwnedFd)>,
    /// What is not 0, each with its name, for operators.
    pub counted: Vec<(String, u64)>,
}

impl Counts {
    /// Has it read again, where that does not go on already.
    pub fn begin(&mut self, rules: &Rules, name: &LabelName, ns: BorrowedFd<'_>, waits: &mut Waits) {
        if self.counting.is_none() {
            let counting = rules.count(name, ns, waits);
            self.counting = counting.inspect_err(|e| log!("{name}: what its networks dropped: {e}")).ok();
        }
    }

    /// Takes what has been read.
    pub fn take(&mut self, name: &LabelName) {
        let Some((maker, counts)) = &self.counting else { return };
        let Some(over) = maker.over() else { return };
        let counted = over.and_then(|()| read(counts));
        self.counting = None;
        match counted {
            Ok(counted) => self.counted = counted,
            Err(why) => log!("{name}: what its networks dropped: {why}"),
        }
    }
}

/// What was counted: what is not 0, each with its name.
fn read(counts: &OwnedFd) -> std::result::Result<Vec<(String, u64)>, String> {
    let mut text = vec![0; COUNTS];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(counts, &mut text));
    text.truncate(length.map_err(|e| e.to_string())?);
    let one = |line: &str| {
        let (count, what) = line.split_once(' ')?;
        Some((what.to_owned(), count.parse().ok()?))
    };
    // It may have been cut, or be for a terminal to obey.
    let text = String::from_utf8(text)
        .ok()
        .filter(|text| text.lines().flat_map(str::chars).all(|c| !c.is_control()));
    let counted = text.and_then(|text| text.lines().map(one).collect());
    counted.ok_or_else(|| "it says what is no count".to_owned())
}
