//! What the two stages of upflow are given: each the directories of its job, seen so that it needs no capability; and
//! how the first stage ends.
//!
//! The first stage reads the store through a mount in which the services' files are its own, and writes the snapshot, an
//! image beside the store, through another; the second writes the copies through one in which they will be the services'.

use crate::below;
use crate::compartment::{SERVICE_UID, Store};
use crate::key::Key;
use crate::label::RunningLabel;
use crate::log;
use crate::options::Options;
use crate::process::{Process, Start};
use crate::selinux;
use crate::uids::Uids;
use crate::waits::{Source, Waits, WatchedChild};
use levee_ipc::MAX_FDS;
use levee_ipc::warden::Role;
use levee_ipc::warden::upflow::{CopyPart, SnapshotPart};
use levee_policy::{LabelName, Site};
use levee_sys::mount::{Attributes, Mount};
use levee_sys::ns::IdRange;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The two stages.
pub const ROLES: [Role; 2] = [Role::Snapshot, Role::Copy];

/// How long the last pass over a store may take.
const LAST_PASS: Duration = Duration::from_secs(2);

/// Asks a stage for a report.
pub fn ask(stage: &Process) {
    match stage.key.role {
        Role::Copy => stage.tell(CopyPart::Report, &[]),
        _ => stage.tell(SnapshotPart::Report, &[]),
    };
}

/// The snapshots that are in use, and the first stages that make their last pass.
#[derive(Debug, Default)]
pub struct Upflow {
    snapshots: BTreeMap<LabelName, Snapshot>,
    /// Readers whose second stage is to be started, with what is to be opened for it before.
    opening: BTreeMap<LabelName, Vec<LabelName>>,
    finishing: BTreeMap<LabelName, Finishing>,
}

/// A snapshot in use: one file system, however many read it.
#[derive(Debug)]
struct Snapshot {
    store: Store,
    /// Keeps the file system mounted, which is what takes time.
    view: Mount,
    /// By which its first stage tells the second ones of changes: to be advanced, and to be looked at.
    generation: (OwnedFd, OwnedFd),
    /// The labels whose stages have it.
    users: BTreeSet<LabelName>,
}

/// A first stage whose label has ended.
#[derive(Debug)]
struct Finishing {
    process: Process,
    _ended: Option<WatchedChild>,
    until: Instant,
}

impl Upflow {
    /// A label's second stage is to be started once the snapshots that it reads are open, of which there may be many:
    /// [`Upflow::opens_one`] opens them one at a time, so that nobody waits for all.
    pub fn prepare(&mut self, name: &LabelName, label: &RunningLabel) {
        let Some(below) = label.reads_below() else { return };
        self.opening.insert(name.clone(), below.iter().rev().cloned().collect());
    }

    /// Whether snapshots are to be opened.
    pub fn is_opening(&self) -> bool {
        !self.opening.is_empty()
    }

    /// Opens one more snapshot. Answers the label whose second stage has all that there are.
    pub fn opens_one(&mut self, site: &Site, options: &Options) -> Option<LabelName> {
        let (reader, mut below) = self.opening.pop_first()?;
        while let Some(lower) = below.pop() {
            if self.has(&reader, &lower) {
                continue;
            }
            let opened = self.used(&lower, &reader, site, options).map(|snapshot| snapshot.is_some());
            if opened.inspect_err(|e| log!("{reader} does not read {lower}: {e}")).unwrap_or(true) {
                self.opening.insert(reader, below);
                return None;
            }
        }
        Some(reader)
    }

    /// Starts a stage for a label that runs; `None` if there is nothing that it would do. A second stage reads the snapshots
    /// that have been opened for it.
    ///
    /// # Errors
    /// The step that failed, and why.
    pub fn start(
        &mut self,
        role: Role,
        name: &LabelName,
        label: &RunningLabel,
        site: &Site,
        options: &Options,
        uids: &Uids,
    ) -> Result<Option<Process>, Box<dyn std::error::Error>> {
        let start = Start::new(Key::at(role, name), label.slot(), uids, options, &label.logs);
        let seen = Some(IdRange { inside: SERVICE_UID, outside: start.uid, count: 1 });
        if role == Role::Snapshot {
            let Some(used) = self.used(name, name, site, options)? else { return Ok(None) };
            let snapshot = used.store.mount(Attributes::DATA, seen)?;
            let (what, from) = match (label.own(), label.documents(role)) {
                (Some(own), _) => {
                    let store = own.mount(Attributes::READ_ONLY_DATA, seen)?;
                    (SnapshotPart::Store(name.clone()), store.into_fd())
                }
                // Its other half is within the label's machine, and tells this one.
                (None, Some(documents)) => {
                    (SnapshotPart::Documents(name.clone()), documents.try_clone_to_owned()?)
                }
                (None, None) => return Ok(None),
            };
            let process = Process::start_as(start)?;
            process.give(what, from)?;
            let snapshot = [snapshot.root(), used.generation.0.as_fd()];
            process.give_with(SnapshotPart::Snapshot(name.clone()), &snapshot)?;
            return Ok(Some(process.into_process()));
        }
        let Some(below) = label.reads_below() else { return Ok(None) };
        let (what, copies) = match (label.copies(), label.documents(role)) {
            (Some(image), _) => (CopyPart::Copies, image.mount(Attributes::DATA, seen)?.into_fd()),
            (None, Some(documents)) => (CopyPart::Documents(name.clone()), documents.try_clone_to_owned()?),
            (None, None) => return Ok(None),
        };
        let (mut names, mut snapshots) = (Vec::new(), Vec::new());
        for lower in below {
            // One that has not run yet has none: its first start has the readers' stages started again.
            if let Some(snapshot) = self.snapshots.get(lower).filter(|of| of.users.contains(name)) {
                snapshots.extend([snapshot.view.root(), snapshot.generation.1.as_fd()]);
                names.push(lower.clone());
            }
        }
        let process = Process::start_as(Start { arguments: &["--copy"], ..start })?;
        process.give(what, copies)?;
        for (names, fds) in names.chunks(MAX_FDS / 2).zip(snapshots.chunks(MAX_FDS)) {
            process.give_with(CopyPart::Snapshots(names.to_vec()), fds)?;
        }
        Ok(Some(process.into_process()))
    }

    /// The snapshot of `name`, used by `user` from now on; `None` if there is none.
    fn used(
        &mut self,
        name: &LabelName,
        user: &LabelName,
        site: &Site,
        options: &Options,
    ) -> Result<Option<&Snapshot>, Box<dyn std::error::Error>> {
        if !self.snapshots.contains_key(name) {
            let path = below::snapshot(name, options);
            if !path.exists() {
                return Ok(None);
            }
            // What is in it is the label's, as what is in its store.
            let label = site.vocabulary().parse(name.as_str()).map_err(|e| e.to_string())?;
            let context = selinux::contexts(site, &label)?.map(|contexts| contexts.files);
            let store = Store::open(&path)?.in_context(context);
            let view = store.mount(Attributes::READ_ONLY_DATA, None)?;
            let snapshot =
                Snapshot { store, view, generation: levee_sys::generation::make()?, users: BTreeSet::new() };
            self.snapshots.insert(name.clone(), snapshot);
        }
        Ok(self.snapshots.get_mut(name).map(|snapshot| {
            snapshot.users.insert(user.clone());
            &*snapshot
        }))
    }

    /// Whether this label reads that snapshot already.
    pub fn has(&self, user: &LabelName, snapshot: &LabelName) -> bool {
        self.snapshots.get(snapshot).is_some_and(|snapshot| snapshot.users.contains(user))
    }

    /// A label's compartment has ended, and nobody writes to its store any more: its first stage, if it has one, makes its
    /// last pass. Nobody waits for that; [`Upflow::ended`] says when it is over.
    pub fn finish(&mut self, name: &LabelName, snapshot: Option<Process>, waits: &mut Waits) {
        if let Some(process) = snapshot {
            process.stop();
            // One that cannot be waited for is found when the time is looked at.
            let _ended = waits.watch(process.pidfd(), Source::Made).ok();
            let until = Instant::now() + LAST_PASS;
            self.finishing.insert(name.clone(), Finishing { process, _ended, until });
        }
        self.opening.remove(name);
        self.unused(name);
    }

    /// A label uses no snapshot any more, but its own while its first stage makes its last pass. What nobody uses goes.
    fn unused(&mut self, name: &LabelName) {
        let finishes = self.finishing.contains_key(name);
        self.snapshots.retain(|other, snapshot| {
            if other != name || !finishes {
                snapshot.users.remove(name);
            }
            !snapshot.users.is_empty()
        });
    }

    /// A label is wanted: whether its last pass is in the way. If so it is cut short, since the label's first stage makes
    /// the next one, and [`Upflow::ended`] says when the label may start.
    pub fn is_in_the_way(&self, name: &LabelName) -> bool {
        self.finishing.get(name).inspect(|finishing| finishing.process.kill()).is_some()
    }

    /// Whether a last pass goes on: the time must be looked at.
    pub fn is_finishing(&self) -> bool {
        !self.finishing.is_empty()
    }

    /// Takes the last passes that are over, and ends those that take too long: then the snapshot stays as the last whole
    /// pass left it. Answers their labels.
    pub fn ended(&mut self) -> Vec<LabelName> {
        let now = Instant::now();
        for finishing in self.finishing.values().filter(|finishing| finishing.until <= now) {
            finishing.process.kill();
        }
        let over = self.finishing.iter().filter(|(_, finishing)| finishing.process.exit().is_some());
        let over: Vec<LabelName> = over.map(|(name, _)| name.clone()).collect();
        for name in &over {
            self.finishing.remove(name);
            self.unused(name);
        }
        over
    }

    /// Waits for the last passes, at the server's end.
    pub fn stop(self) {
        for Finishing { process, until, .. } in self.finishing.into_values() {
            if !process.ends_within(until.saturating_duration_since(Instant::now())) {
                process.reap();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::{self, Resources};
    use crate::process::Heard;
    use crate::programs::Wanted;
    use levee_ipc::warden::Place;
    use levee_policy::Site;
    use std::fs::{self, File, Permissions};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::time::Instant;

    const SITE: &str = include_str!("../../../conf/small/site.toml");

    struct Running {
        name: LabelName,
        label: RunningLabel,
        stages: Vec<Process>,
    }

    fn run(upflow: &mut Upflow, name: &str, slot: u16, options: &Options, uids: &Uids) -> Running {
        let site = Site::parse(SITE).expect("the small site is one");
        let name: LabelName = name.parse().unwrap();
        let slots = [slot];
        let wanted = Wanted::of(&site);
        std::fs::create_dir_all(&options.state).unwrap();
        let directory = std::fs::File::open(&options.state).unwrap();
        crate::programs::make(&wanted, directory).unwrap();
        let image = options.state.join(wanted.file_name());
        let resources =
            Resources { options, site: &site, uids, slots: &slots, attached: None, image, in_force: None };
        for (path, bytes) in label::missing(&name, &resources).unwrap() {
            Store::create(&path, bytes).unwrap();
        }
        let label = RunningLabel::start(&name, resources).unwrap();
        let mut stages = Vec::new();
        upflow.prepare(&name, &label);
        while upflow.is_opening() {
            let _ = upflow.opens_one(&site, options);
        }
        for role in ROLES {
            let started = upflow.start(role, &name, &label, &site, options, uids).unwrap();
            let Some(mut process) = started else { continue };
            process.begin(Place::Server).unwrap();
            let until = Instant::now() + Duration::from_secs(10);
            while !matches!(process.hear().map(|r| r.message), Ok(Heard::Ready)) {
                assert!(Instant::now() < until, "{} is not ready", process.key);
                std::thread::sleep(Duration::from_millis(10));
            }
            stages.push(process);
        }
        Running { name, label, stages }
    }

    fn wait_for(path: &std::path::Path, content: &[u8]) {
        let until = Instant::now() + Duration::from_secs(3);
        while fs::read(path).ok().as_deref() != Some(content) {
            assert!(Instant::now() < until, "{} does not arrive", path.display());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn what_a_low_service_writes_for_itself_alone_is_with_the_high_one_and_the_last_word_stays() {
        assert!(rustix::process::geteuid().is_root(), "this test starts compartments: run it as root");
        let directory = tempfile::tempdir().unwrap();
        let programs = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_path_buf();
        for program in ["levee-init", "levee-logger", "levee-upflow"] {
            let path = programs.join(program);
            assert!(
                path.exists(),
                "{} is missing: run `cargo build --workspace --bins` first",
                path.display()
            );
        }
        let options = Options {
            of: crate::options::Of::Server,
            config: directory.path().join("site.toml"),
            state: directory.path().join("state"),
            run: directory.path().join("run"),
            programs,
            passphrase: false,
            checked: None,
            background: false,
            places: Default::default(),
        };
        let uids = Uids::claim(&[directory.path().join("uids")], 4095).unwrap();
        let (mut upflow, mut waits) = (Upflow::default(), Waits::new().unwrap());
        let low = run(&mut upflow, "UNCLASSIFIED", 3001, &options, &uids);
        assert_eq!(low.stages.len(), 1, "the lowest label has nothing below it to copy");
        let high = run(&mut upflow, "SECRET", 3002, &options, &uids);
        assert_eq!(high.stages.len(), 2);

        // As the low label's service would: its own uid, readable for nobody else.
        let as_service = Some(IdRange { inside: SERVICE_UID, outside: 0, count: 1 });
        let store = low.label.own().unwrap().mount(Attributes::DATA, as_service).unwrap().into_fd();
        let below = high.label.copies().unwrap().mount(Attributes::READ_ONLY_DATA, None).unwrap().into_fd();
        let at = |fd: &OwnedFd, name: &str| PathBuf::from(format!("/proc/self/fd/{}/{name}", fd.as_raw_fd()));
        let note = at(&store, "note");
        fs::write(&note, b"from below").unwrap();
        fs::set_permissions(&note, Permissions::from_mode(0o600)).unwrap();
        let copy = at(&below, "UNCLASSIFIED/note");
        wait_for(&copy, b"from below");
        let seen = fs::metadata(&copy).unwrap();
        assert_eq!((seen.uid(), seen.mode() & 0o7777), (SERVICE_UID, 0o644));
        assert!(
            File::create(at(&below, "UNCLASSIFIED/x")).is_err(),
            "copies are read-only where they are read"
        );

        // The low label stops right after its last write; a reader that starts later finds it.
        fs::write(at(&store, "last"), b"word").unwrap();
        drop(store);
        low.label.stop().1.unwrap();
        let mut stages = low.stages;
        upflow.finish(&low.name, stages.pop(), &mut waits);
        assert!(upflow.is_finishing());
        wait_for(&at(&below, "UNCLASSIFIED/last"), b"word");
        let until = Instant::now() + Duration::from_secs(5);
        while upflow.is_finishing() {
            assert!(Instant::now() < until);
            upflow.ended();
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(upflow.has(&high.name, &low.name) && !upflow.has(&low.name, &low.name));

        // Nobody waits for a last pass, however long it takes; whoever wants the label again cuts it short.
        let low = run(&mut upflow, "UNCLASSIFIED", 3001, &options, &uids);
        let mut stages = low.stages;
        let snapshot = stages.pop().unwrap();
        let pid = rustix::process::Pid::from_raw(snapshot.pid().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        low.label.stop().1.unwrap();
        let begun = Instant::now();
        upflow.finish(&low.name, Some(snapshot), &mut waits);
        assert!(upflow.ended().is_empty() && upflow.is_finishing());
        assert!(begun.elapsed() < LAST_PASS / 2, "finishing is not waiting");
        assert!(upflow.is_in_the_way(&low.name));
        let until = Instant::now() + Duration::from_secs(5);
        while upflow.ended() != [low.name.clone()] {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!upflow.is_in_the_way(&low.name));

        // Neither can what a label's program writes make the snapshot larger than it was from the beginning.
        let snapshot = fs::metadata(crate::below::snapshot(&low.name, &options)).unwrap();
        assert_eq!(
            snapshot.len(),
            Site::parse(SITE).unwrap().limits().store + crate::below::SNAPSHOT_BESIDES
        );

        drop(below);
        for process in &high.stages {
            process.kill();
            process.wait(Duration::from_secs(5));
        }
        high.label.stop().1.unwrap();
    }
}
