//! What the two stages of upflow are given: each the directories of its job, seen so that it needs no capability.
//!
//! The first stage reads the store through a mount in which the services' files are its own; the second writes the
//! copies through one in which they will be the services'. Snapshots lie in directories of the state directory.

use crate::compartment::SERVICE_UID;
use crate::label::Label;
use crate::options::Options;
use crate::process::{Key, Process, Start};
use crate::state;
use crate::uids::{Own, Uids};
use levee_ipc::MAX_FDS;
use levee_ipc::warden::{Attachment, FromWarden, Role};
use levee_policy::LabelName;
use levee_sys::mount::Attributes;
use levee_sys::ns::IdRange;
use std::fs::Permissions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

/// The two stages.
pub const ROLES: [Role; 2] = [Role::Snapshot, Role::Copy];

/// How long the last pass over a store may take.
const LAST_PASS: Duration = Duration::from_secs(2);

/// Starts a stage for a label that runs; `None` if there is nothing that it would do.
///
/// # Errors
/// The step that failed, and why.
pub fn start(
    role: Role,
    name: &LabelName,
    label: &Label,
    options: &Options,
    uids: &Uids,
) -> Result<Option<Process>, Box<dyn std::error::Error>> {
    let slot = label.slot();
    let uid = uids.own(if role == Role::Snapshot { Own::Snapshot(slot) } else { Own::Copy(slot) });
    let seen = Some(IdRange { inside: SERVICE_UID, outside: uid, count: 1 });
    let start = || {
        let (key, programs) = (Key::at(role, name), &options.programs);
        Process::start(Start { key, programs, program: None, arguments: &[], uid, network: None })
    };
    if role == Role::Snapshot {
        let Some(own) = label.own() else { return Ok(None) };
        let store = own.mount(Attributes::READ_ONLY_DATA, seen)?;
        let path = place(options, name);
        let snapshot = state::own_directory(&path, uid)?;
        // The second stages read it, under uids of their own; nobody else comes as far as here.
        std::fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        let process = start()?;
        process.give(Attachment::Store(name.clone()), store.into_fd())?;
        process.give(Attachment::Snapshot(name.clone()), snapshot)?;
        return Ok(Some(process));
    }
    let Some((image, below)) = label.below() else { return Ok(None) };
    let copies = image.mount(Attributes::DATA, seen)?;
    let snapshots = below.iter().map(|name| existing(options, name)).collect::<io::Result<Vec<OwnedFd>>>()?;
    let process = start()?;
    process.give(Attachment::Copies, copies.into_fd())?;
    for (names, fds) in below.chunks(MAX_FDS).zip(snapshots.chunks(MAX_FDS)) {
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        process.attach_all(Attachment::Snapshots(names.to_vec()), &fds)?;
    }
    Ok(Some(process))
}

/// Has the first stage make its last pass, over a store that nobody writes to any more, and ends it.
pub fn finish(snapshot: &Process) {
    if snapshot.tell(&FromWarden::Stop).is_ok() && snapshot.ends_within(LAST_PASS) {
        return;
    }
    // Its snapshot stays as the last whole pass left it.
    snapshot.kill();
    snapshot.wait(Duration::from_secs(5));
}

fn place(options: &Options, name: &LabelName) -> PathBuf {
    options.state.join("snapshots").join(name.file_name())
}

/// The directory of a label's snapshot, whether that label has run yet or not: it stays the same one.
fn existing(options: &Options, name: &LabelName) -> io::Result<OwnedFd> {
    let path = place(options, name);
    std::fs::create_dir_all(&path)?;
    Ok(std::fs::File::open(path)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compartment::Store;
    use crate::label::{self, Resources};
    use levee_ipc::warden::{Place, ToWarden};
    use levee_policy::Site;
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;
    use std::time::Instant;

    const SITE: &str = include_str!("../../../conf/small/site.toml");

    struct Running {
        name: LabelName,
        label: Label,
        stages: Vec<Process>,
    }

    fn run(name: &str, slot: u16, options: &Options, uids: &Uids) -> Running {
        let site = Site::parse(SITE).expect("the small site is one");
        let name: LabelName = name.parse().unwrap();
        let slots = [slot];
        let resources = Resources { options, site: &site, uids, slots: &slots, attached: None };
        for (path, bytes) in label::missing(&name, &resources).unwrap() {
            Store::create(&path, bytes).unwrap();
        }
        let label = Label::start(&name, resources).unwrap();
        let mut stages = Vec::new();
        for role in ROLES {
            let Some(process) = start(role, &name, &label, options, uids).unwrap() else { continue };
            process.begin(Place::Server).unwrap();
            let until = Instant::now() + Duration::from_secs(10);
            while !matches!(process.hear().map(|r| r.message), Ok(ToWarden::Ready)) {
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
        for program in ["levee-init", "levee-upflow"] {
            let path = programs.join(program);
            assert!(
                path.exists(),
                "{} is missing: run `cargo build --workspace --bins` first",
                path.display()
            );
        }
        let options = Options {
            place: Place::Server,
            config: directory.path().join("site.toml"),
            state: directory.path().join("state"),
            run: directory.path().join("run"),
            programs,
            plan: None,
            passphrase: false,
        };
        let uids = Uids::claim(&directory.path().join("uids"), Place::Server).unwrap();
        let low = run("UNCLASSIFIED", 3001, &options, &uids);
        assert_eq!(low.stages.len(), 1, "the lowest label has nothing below it to copy");
        let high = run("SECRET", 3002, &options, &uids);
        assert_eq!(high.stages.len(), 2);

        // As the low label's service would: its own uid, readable for nobody else.
        let as_service = Some(IdRange { inside: SERVICE_UID, outside: 0, count: 1 });
        let store = low.label.own().unwrap().mount(Attributes::DATA, as_service).unwrap().into_fd();
        let below = high.label.below().unwrap().0.mount(Attributes::READ_ONLY_DATA, None).unwrap().into_fd();
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
        low.label.stop().unwrap();
        finish(&low.stages[0]);
        wait_for(&at(&below, "UNCLASSIFIED/last"), b"word");
        assert_eq!(low.name.as_str(), "UNCLASSIFIED");

        drop(below);
        for process in &high.stages {
            process.kill();
            process.wait(Duration::from_secs(5));
        }
        high.label.stop().unwrap();
    }
}
