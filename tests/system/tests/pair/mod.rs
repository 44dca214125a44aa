//! Two compartments, one above and one below, in which the laboratory's attacker runs as services do.
//! Each test program uses a part of it.
#![allow(dead_code)]

use std::cell::{Cell, RefCell};
use std::io::{self, BufReader, PipeReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use levee_lab::leak::attacker::{self, End};
use levee_policy::site::Needs;
use levee_policy::{Label, LabelName, Site};
use levee_warden::compartment::Event;
use levee_warden::compartment::service::{Launch, Profile};

use crate::places::{self, Room, room};

const SITE: &str = include_str!("../../../../conf/small/site.toml");

/// A compartment above (0) and one below (1), and what each program in them is given besides.
pub struct Pair {
    rooms: [RefCell<Room>; 2],
    program: PathBuf,
    ticket: Cell<u64>,
    pub planted: [Vec<OwnedFd>; 2],
    _directory: tempfile::TempDir,
}

impl Pair {
    /// Their places among those that a test program makes are `first` and the next; services ask for `needs`.
    pub fn new(first: usize, needs: &Needs, planted: [Vec<OwnedFd>; 2]) -> Self {
        let site = Site::parse(SITE).expect("the example site is sound");
        let directory = tempfile::Builder::new().prefix("levee-leaks-").tempdir_in("/var/tmp").unwrap();
        let program = directory.path().join("attacker");
        attacker::place(&program).unwrap();
        let labels: Vec<Label> = site.services().next().unwrap().range().labels(64).unwrap().collect();
        let at = |name: &str, number: usize| {
            let label = site.label(&LabelName::new(name).unwrap()).unwrap();
            RefCell::new(room(&site, directory.path(), &labels, &label, number, needs))
        };
        let rooms = [at("SECRET//NATO,MED", first), at("UNCLASSIFIED", first + 1)];
        Self { rooms, program, ticket: Cell::new(1), planted, _directory: directory }
    }

    /// A new program on one side.
    pub fn end(&self, side: usize, needs: &Needs) -> io::Result<End> {
        let (stdin, to) = io::pipe()?;
        let (from, stdout) = io::pipe()?;
        let ticket = self.ticket.replace(self.ticket.get() + 1);
        let words = [places::attacker().display().to_string(), "job".into()];
        let start = Launch {
            ticket,
            program: words[0].clone(),
            argv: words.to_vec(),
            env: Vec::new(),
            input: true,
            terminal: false,
            filter: Profile::Service(needs.clone()),
        };
        // A pipe each, as the warden gives.
        let (_, stderr) = io::pipe()?;
        let mut fds: Vec<BorrowedFd<'_>> = vec![stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
        fds.extend(self.planted[side].iter().map(AsFd::as_fd));
        let mut inside = self.rooms[side].borrow_mut();
        inside.compartment.run(start, &fds).map_err(io::Error::other)?;
        // Programs of earlier rounds may end meanwhile.
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            let events = inside.compartment.events().map_err(io::Error::other)?;
            if events.contains(&Event::Started(ticket)) {
                let from: Box<PipeReader> = Box::new(from);
                return Ok(End { to: Box::new(to), from: BufReader::new(from), behind: 0 });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err(io::Error::other("the program does not start"))
    }

    /// The attacker's program, on the host.
    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn stop(self) {
        for room in self.rooms {
            room.into_inner().compartment.stop().unwrap();
        }
    }
}
