//! Needs root, e2fsprogs, erofs-utils, squashfs-tools and busybox (static): compartments whose root file system is an image of their own.

mod common;

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use common::{Host, Lab};
use levee_sys::loopdev::LoopDevice;
use levee_sys::mount::{Attributes, Mount};
use levee_warden::compartment::{Plan, Programs};
use levee_warden::programs::{self, Wanted};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};

/// The descriptors and children of this process are compared, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A label whose root is an image of what `fill` adds to a directory with busybox.
fn lab(name: &str, fill: impl FnOnce(&Path)) -> Lab {
    let mut lab = Lab::new(name);
    let (tree, image) = (lab.directory.path().join("tree"), lab.directory.path().join("image"));
    fs::create_dir_all(tree.join("usr/bin")).unwrap();
    fs::copy("/usr/bin/busybox", tree.join("usr/bin/busybox")).expect("busybox (package busybox-static)");
    for name in ["sh", "cat", "ls", "stat", "touch", "mkdir", "rm"] {
        symlink("busybox", tree.join("usr/bin").join(name)).unwrap();
    }
    fill(&tree);
    let made = Command::new("mkfs.erofs").arg("-x-1").args([&image, &tree]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    lab.spec.programs = Programs::Root(image);
    lab.spec.pages = false;
    lab
}

/// A directory of the host's that nobody inside is to reach, and what is in it.
fn outside(lab: &str) -> (tempfile::TempDir, PathBuf) {
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = outside.path().join("file");
    fs::write(&file, lab).unwrap();
    (outside, file)
}

#[test]
fn a_root_of_its_own_is_read_below_memory_and_its_devices_are_levees() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (host, file) = outside("untouched");
    let lab = lab("root", |tree| {
        fs::create_dir_all(tree.join("etc")).unwrap();
        fs::write(tree.join("mark"), "its own\n").unwrap();
        fs::write(tree.join("etc/passwd"), "its own\n").unwrap();
        // Links where the warden writes: one that leads to the host, one that leads nowhere.
        symlink(&file, tree.join("etc/hostname")).unwrap();
        symlink("../run/gone/resolv.conf", tree.join("etc/resolv.conf")).unwrap();
        mknodat(
            CWD,
            tree.join("planted"),
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o666),
            makedev(1, 3),
        )
        .unwrap();
        fs::set_permissions(tree.join("planted"), PermissionsExt::from_mode(0o666)).unwrap();
    });
    let before = Host::look(&lab);
    let mut running = lab.start();
    let mut says = |script: &str| lab.shell(&mut running, script).0;
    assert_eq!(says("cat /mark; cat /etc/hostname"), "its own\ncompartment-root\n");
    assert!(says("cat /etc/passwd").starts_with("root:"), "the warden's own files are there");
    assert_eq!(says("ls /usr/bin/python3 /home/user 2>&1").matches("No such file").count(), 2);
    // A device in the image is none; the root's own are.
    let device = says("cat /planted 2>&1 && echo reads");
    assert!(device.contains("Permission denied"), "{device}");
    assert_eq!(says("cat /dev/null && echo reads"), "reads\n");
    // Its programs write nothing but what every compartment's may.
    for path in ["/new", "/etc/new", "/usr/new", "/mark", "/etc/hostname", "/dev/../new"] {
        let (_, status) = lab.shell(&mut running, &format!("echo x >{path}"));
        assert_ne!(status, 0, "{path} can be written");
    }
    let written = lab.shell(&mut running, "touch /tmp/new /run/new /var/new /srv/own/new && echo written").0;
    assert_eq!(written, "written\n");
    running.stop().unwrap();
    before.unchanged(&lab);
    assert_eq!(fs::read_to_string(&file).unwrap(), "untouched");
    drop(host);
}

#[test]
fn a_root_whose_directories_lead_to_the_hosts_writes_nothing_there() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for name in ["etc", "dev", "tmp", "srv", "run", "var", "home", "proc", "root"] {
        let (host, file) = outside("untouched");
        let modes =
            || fs::metadata(host.path()).map(|m| (m.mode(), m.uid(), m.ctime(), m.ctime_nsec())).unwrap();
        let lab = lab(&format!("link-{name}"), |tree| symlink(host.path(), tree.join(name)).unwrap());
        let (remains, before) = (Host::look(&lab), modes());
        // It leads to nothing in the root, and so none starts.
        let error = lab.try_start(&Plan::new(&lab.spec)).err();
        assert!(error.is_some(), "{name} leads somewhere");
        remains.unchanged(&lab);
        assert_eq!(modes(), before, "{name}: {error:?}");
        let names: Vec<_> = fs::read_dir(host.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!((names, fs::read_to_string(&file).unwrap()), (vec![file], "untouched".into()), "{name}");
    }
}

#[test]
fn two_labels_with_one_root_share_neither_its_file_system_nor_what_they_have_read_of_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let first = lab("one", |tree| fs::write(tree.join("mark"), vec![7; 1 << 20]).unwrap());
    let mut second = Lab::new("two");
    second.spec.programs = first.spec.programs.clone();
    second.spec.pages = false;
    let (mut one, mut two) = (first.start(), second.start());
    let Programs::Root(image) = &first.spec.programs else { panic!("no root") };
    // A file system of a block device has pages of its own, and there is one for each device.
    let devices = fs::read_dir("/sys/block").unwrap().filter(|entry| {
        let backing = entry.as_ref().unwrap().path().join("loop/backing_file");
        fs::read_to_string(backing).is_ok_and(|file| Path::new(file.trim()) == image)
    });
    assert_eq!(devices.count(), 2);
    for (lab, running) in [(&first, &mut one), (&second, &mut two)] {
        assert_eq!(lab.shell(running, "stat -c %s /mark").0, "1048576\n");
    }
    one.stop().unwrap();
    two.stop().unwrap();
}

/// A directory in memory with so much room.
fn memory(size: &str) -> Mount {
    Mount::new("tmpfs", &[("size", size)], Attributes::DATA).unwrap()
}

/// The names in it.
fn names(memory: &Mount) -> Vec<String> {
    let listed = fs::read_dir(format!("/proc/self/fd/{}", memory.root().as_raw_fd())).unwrap();
    listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_root_that_has_no_room_in_memory_takes_none_from_others() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (root, memory) = (tempfile::tempdir().unwrap(), memory("1m"));
    fs::write(root.path().join("large"), vec![7; 2 << 20]).unwrap();
    let why = programs::make(&Wanted::root(root.path()), memory.root()).unwrap_err();
    assert!(why.contains("No space left"), "{why}");
    assert_eq!(names(&memory), Vec::<String>::new());
    // There is room for another's, then; for that, too, which one that was killed had left.
    let left = format!("/proc/self/fd/{}/of-another.root.new", memory.root().as_raw_fd());
    fs::write(left, vec![7; 900 << 10]).unwrap();
    fs::write(root.path().join("large"), vec![7; 1 << 19]).unwrap();
    programs::make(&Wanted::root(root.path()), memory.root()).unwrap();
    assert_eq!(names(&memory).len(), 1);
}

#[test]
fn an_image_with_a_file_that_has_holes_is_as_large_as_it_reads() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (made, memory) = (tempfile::tempdir().unwrap(), memory("1m"));
    let (tree, image) = (made.path().join("tree"), made.path().join("image"));
    fs::create_dir_all(&tree).unwrap();
    fs::File::create(tree.join("holes")).unwrap().set_len(programs::MEMORY + 1).unwrap();
    let packed = Command::new("mksquashfs").args([&tree, &image]).args(["-quiet", "-no-progress"]).output();
    let packed = packed.expect("mksquashfs (package squashfs-tools)");
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    assert!(image.metadata().unwrap().len() < 1 << 20, "an image of holes is small");
    let why = programs::make(&Wanted::root(&image), memory.root()).unwrap_err();
    assert!(why.contains("it is larger than 4G"), "{why}");
}

#[test]
fn roots_have_the_room_in_memory_together_and_one_that_does_not_fit_leaves_the_others_whole() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (place, memory) = (tempfile::tempdir().unwrap(), memory("3m"));
    let [first, second] = ["first", "second"].map(|name| place.path().join(name));
    for (root, octet) in [(&first, 7), (&second, 8)] {
        fs::create_dir(root).unwrap();
        fs::write(root.join("file"), vec![octet; 2 << 20]).unwrap();
    }
    let make = |root: &Path| programs::make(&Wanted::root(root), memory.root());
    make(&first).unwrap();
    let [name] = &names(&memory)[..] else { panic!("{:?}", names(&memory)) };
    let image = format!("/proc/self/fd/{}/{name}", memory.root().as_raw_fd());
    let before = fs::read(&image).unwrap();
    let why = make(&second).unwrap_err();
    assert!(why.contains("No space left") && why.contains("second"), "{why}");
    assert!(names(&memory) == [name.clone()] && fs::read(&image).unwrap() == before);
    // There is room once the first has become smaller.
    fs::remove_file(first.join("file")).unwrap();
    make(&first).unwrap();
    make(&second).unwrap();
    assert_eq!(names(&memory).len(), 2);
}

#[test]
fn a_device_is_no_root_and_an_erofs_with_one_in_it_is_none_either() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (place, memory) = (tempfile::tempdir().unwrap(), memory("3m"));
    let node = |at: &Path, kind| {
        mknodat(CWD, at, kind, Mode::from_raw_mode(0o666), makedev(7, 0)).unwrap();
    };
    let (tree, image) = (place.path().join("tree"), place.path().join("image"));
    fs::create_dir(&tree).unwrap();
    for kind in [FileType::BlockDevice, FileType::CharacterDevice, FileType::Fifo] {
        let device = place.path().join(format!("{kind:?}"));
        node(&device, kind);
        let why = programs::make(&Wanted::root(&device), memory.root()).unwrap_err();
        assert!(why.contains("neither a directory nor an image"), "{kind:?}: {why}");
    }
    node(&tree.join("device"), FileType::BlockDevice);
    let made = Command::new("mkfs.erofs").arg("-x-1").args([&image, &tree]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // As levee-programs, which can make no devices.
    let unpacks = || {
        remove_capability_from_bounding_set(CapabilitySet::MKNOD).unwrap();
        programs::make(&Wanted::root(&image), memory.root())
    };
    let why = std::thread::scope(|scope| scope.spawn(unpacks).join().unwrap()).unwrap_err();
    assert!(why.contains("fsck.erofs"), "{why}");
    assert_eq!(names(&memory), Vec::<String>::new());
}

#[test]
fn a_program_deep_in_a_directory_that_is_replaced_without_dpkg_is_in_the_next_image() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (place, memory) = (
        tempfile::Builder::new().prefix("levee-test-").tempdir_in("/usr/local/share").unwrap(),
        memory("1g"),
    );
    let deep = place.path().join("a/b");
    fs::create_dir_all(&deep).unwrap();
    let image = || {
        let wanted = Wanted::new([], [place.path().display().to_string()]);
        programs::make(&wanted, memory.root()).unwrap();
        let [name] = &names(&memory)[..] else { panic!("{:?}", names(&memory)) };
        let image = fs::File::open(format!("/proc/self/fd/{}/{name}", memory.root().as_raw_fd())).unwrap();
        let device = LoopDevice::attach(&image, true).unwrap();
        let usr = Mount::new("erofs", &[("source", device.path()), ("ro", "")], Attributes::READ_ONLY_DATA)
            .unwrap();
        let below = deep.strip_prefix("/usr").unwrap();
        let read = |name| {
            fs::read_to_string(
                Path::new("/proc/self/fd").join(format!("{}", usr.root().as_raw_fd())).join(below).join(name),
            )
        };
        ["program", "other"].map(|name| read(name).unwrap_or_default())
    };
    fs::write(deep.join("program"), "a program as it was").unwrap();
    assert_eq!(image(), ["a program as it was", ""]);
    assert_eq!(image(), ["a program as it was", ""]);
    fs::write(deep.join("new"), "a program as it is.").unwrap();
    fs::rename(deep.join("new"), deep.join("program")).unwrap();
    assert_eq!(image(), ["a program as it is.", ""]);
    fs::write(deep.join("other"), "another one").unwrap();
    assert_eq!(image(), ["a program as it is.", "another one"]);
}
