//! Notices of changes, of a process without privileges among others' files.

use levee_sys::notices::Notices;
use std::fs::{self, File};
use std::os::fd::AsFd;

#[test]
fn every_change_in_a_watched_directory_is_noticed_once_and_reading_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::create_dir(path("below")).unwrap();
    fs::write(path("old"), b"1").unwrap();
    let notices = Notices::new().unwrap();
    notices.watch(File::open(directory.path()).unwrap().as_fd()).unwrap();
    notices.watch(File::open(directory.path()).unwrap().as_fd()).unwrap();
    assert!(!notices.take().unwrap());
    let changes: [(&str, &dyn Fn()); 7] = [
        ("a new file", &|| fs::write(path("new"), b"").unwrap()),
        ("its content", &|| fs::write(path("old"), b"22").unwrap()),
        ("its mode", &|| fs::set_permissions(path("old"), fs::metadata("/").unwrap().permissions()).unwrap()),
        ("another name", &|| fs::rename(path("old"), path("below/moved")).unwrap()),
        ("a new directory", &|| fs::create_dir(path("made")).unwrap()),
        ("no directory any more", &|| fs::remove_dir(path("made")).unwrap()),
        ("no file any more", &|| fs::remove_file(path("new")).unwrap()),
    ];
    for (what, change) in changes {
        change();
        assert!(notices.take().unwrap(), "{what}");
        assert!(!notices.take().unwrap(), "{what}");
    }
    fs::read_dir(directory.path()).unwrap().for_each(drop);
    fs::read(path("below/moved")).unwrap();
    fs::write(path("below/moved"), b"333").unwrap();
    assert!(!notices.take().unwrap(), "what is read, or is in a directory below");
}

#[test]
fn more_notices_than_the_kernel_keeps_are_still_a_notice() {
    let directory = tempfile::tempdir().unwrap();
    let notices = Notices::new().unwrap();
    notices.watch(File::open(directory.path()).unwrap().as_fd()).unwrap();
    for round in 0..20_000 {
        let name = directory.path().join(format!("{}", round % 400));
        if round % 800 < 400 { File::create(name).map(drop).unwrap() } else { fs::remove_file(name).unwrap() }
    }
    assert!(notices.take().unwrap());
    assert!(!notices.take().unwrap());
    fs::write(directory.path().join("1"), b"x").unwrap();
    assert!(notices.take().unwrap());
}
