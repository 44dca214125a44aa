//! Partitions with a root file system of their own: a directory, or an image as squashfs or EROFS.
//!
//! Needs root, busybox (static), python3, squashfs-tools, erofs-utils, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{World, eventually, sh, text};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PATIENCE: Duration = Duration::from_secs(180);

/// What runs in each: it says what it finds, tries what it may not, and stays. It waits, that all that it says is kept.
const SAYS: &str = "cat /mark; test -e /usr/bin/python3 && echo has the host; \
    for f in /new /etc/new /bin/new /mark /dev/new /dev/null/x; do (echo x >$f) 2>/dev/null && echo wrote $f; done; \
    cat /dev/planted 2>/dev/null && echo read a device; cat /outside/hostname 2>/dev/null; \
    echo x >/tmp/new && echo x >/run/new && echo x >/var/new && echo x >/srv/own/new && echo keeps; \
    hostname; cat /etc/hostname; grep -c root /etc/passwd; echo done; exec sleep 100000";

/// A root of one program, with links that lead to what the warden is to write, and that would lead out of it.
fn tree(at: &Path, mark: &str, outside: &Path) {
    for directory in ["bin", "etc", "opt"] {
        fs::create_dir_all(at.join(directory)).expect("a directory");
    }
    fs::copy("/usr/bin/busybox", at.join("bin/busybox")).expect("busybox (package busybox-static)");
    for name in ["sh", "cat", "sleep", "hostname", "grep", "test"] {
        symlink("busybox", at.join("bin").join(name)).expect("a link");
    }
    fs::write(at.join("mark"), format!("{mark}\n")).expect("a file");
    symlink(outside.join("hostname"), at.join("etc/hostname")).expect("a link");
    symlink("../run/gone/resolv.conf", at.join("etc/resolv.conf")).expect("a link");
    symlink(outside, at.join("outside")).expect("a link");
}

fn partition(name: &str, label: &str, root: &Path, more: &str) -> String {
    format!(
        "\n[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\nroot = \"{}\"\ncommand = [\"/bin/sh\", \"-c\", '''{SAYS}''']\n\
         memory = \"64M\"\ndisk = \"8M\"\n{more}\n",
        root.display()
    )
}

fn of(world: &World, name: &str) -> Value {
    let all = world.status()["partitions"].clone();
    let found = all.as_array().and_then(|all| all.iter().find(|one| one["name"] == name));
    found.expect("the partition").clone()
}

fn said(world: &World, name: &str) -> String {
    let directory = world.path(&format!("state/logs/labels/partition+{name}"));
    ["0.log", "1.log"].map(|file| fs::read_to_string(directory.join(file)).unwrap_or_default()).concat()
}

fn image(command: &str, arguments: &[&str]) {
    let made = sh(command, arguments);
    assert_eq!(made.status, 0, "{command}: {}", made.err);
}

#[test]
fn a_directory_a_squashfs_and_an_erofs_are_roots_of_partitions_and_what_is_none_is_told() {
    let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let outside = place.path().join("outside");
    fs::create_dir(&outside).expect("a directory");
    fs::write(outside.join("hostname"), "the host's").expect("a file");
    let at = |name: &str| place.path().join(name);
    tree(&at("tree"), "first", &outside);
    let (from, squash, erofs) = (text(&at("tree")), text(&at("squash")), text(&at("erofs")));
    image(
        "mksquashfs",
        &[&from, &squash, "-quiet", "-no-progress", "-p", "dev d 755 0 0", "-p", "dev/planted c 666 0 0 1 5"],
    );
    image("mkfs.erofs", &["--quiet", &erofs, &from]);
    // It begins as a squashfs does, and is none.
    fs::write(at("broken"), b"hsqs and nothing more").expect("a file");
    let base = SITE.replace("\"harbour\"", "\"roots\"");
    let labels =
        [("directory", "tree", "SECRET"), ("squash", "squash", "UNCLASSIFIED"), ("erofs", "erofs", "SECRET")];
    let sound = labels.map(|(name, file, label)| partition(name, label, &at(file), "")).concat();
    let broken = partition("broken", "SECRET", &at("broken"), "restart = \"1 in 1h\"");
    let mut world = World::new("roots", &(base + &sound + &broken), &[]);
    let site = text(&world.path("site.toml"));

    // What is not there, or is no image, is told before anything starts.
    let written = fs::read_to_string(&site).expect("the site");
    fs::write(at("text"), "no image\n").expect("a file");
    for (wrong, said) in [(at("none"), "No such file"), (at("text"), "neither a directory nor an image")] {
        let wrong = written.replace(&squash, &text(&wrong));
        fs::write(&site, wrong).expect("the site");
        let told = world.levee(&["check", "--state", &text(&world.path("state")), &site]).refused();
        assert!(told.contains(said) && told.contains("partition squash"), "{told}");
        let told = world.levee(&[
            "up",
            "--state",
            &text(&world.path("state")),
            "--run",
            &text(&world.path("run")),
            &site,
        ]);
        let told = told.refused();
        assert!(told.contains(said) && told.contains("partition squash"), "{told}");
    }
    fs::write(&site, written).expect("the site");
    world.start_server();
    let run = text(&world.path("run"));

    for (name, ..) in labels {
        eventually(PATIENCE, "it has said all", || said(&world, name).contains("done"));
        let said = said(&world, name);
        let lines: Vec<&str> =
            said.lines().map(|line| line.rsplit_once("] ").map_or(line, |(_, line)| line)).collect();
        assert!(lines.iter().any(|line| line.ends_with("first")), "{name}: {said}");
        assert!(lines.iter().any(|line| line.ends_with("keeps")), "{name}: {said}");
        assert_eq!(
            lines.iter().filter(|line| line.ends_with(name)).count(),
            2,
            "{name}: its host name\n{said}"
        );
        for wrong in ["has the host", "wrote", "read a device", "the host's"] {
            assert!(!said.contains(wrong), "{name}: {said}");
        }
    }
    assert_eq!(fs::read_to_string(outside.join("hostname")).expect("a file"), "the host's");
    assert_eq!(fs::read_dir(&outside).expect("a directory").count(), 1);

    // One whose root cannot be unpacked is off, says so, and keeps no other waiting.
    eventually(PATIENCE, "it is off", || {
        of(&world, "broken")["state"].as_str().is_some_and(|is| is.starts_with("off"))
    });
    let why = of(&world, "broken").to_string();
    assert!(why.contains("unsquashfs") && world.status()["alarms"].to_string().contains("broken"), "{why}");
    for (name, ..) in labels {
        assert_eq!(
            (of(&world, name)["state"].clone(), of(&world, name)["starts"].clone()),
            ("runs".into(), 1.into())
        );
    }

    // Replaced, it is what is there when the partition starts again; no other is another.
    fs::write(at("tree").join("mark"), "second\n").expect("a file");
    sh("touch", &[&from]);
    let before = of(&world, "directory")["init"].as_u64().expect("a process");
    let told = world.levee(&["partition", "replace", "--run", &run, "directory"]).ok();
    assert!(told.contains("begins anew"), "{told}");
    assert!(!Path::new(&format!("/proc/{before}")).exists(), "what ran before runs still");
    eventually(PATIENCE, "it has the new root", || said(&world, "directory").contains("second"));
    let others = ["squash", "erofs"].map(|name| of(&world, name)["starts"].clone());
    assert_eq!(others, [1.into(), 1.into()] as [Value; 2], "no other has begun anew");
    world.levee(&["partition", "stop", "--run", &run, "squash"]).ok();
    world.levee(&["partition", "start", "--run", &run, "squash"]).ok();
    eventually(PATIENCE, "it runs again", || said(&world, "squash").matches("done").count() == 2);
    assert_eq!(said(&world, "squash").matches("first").count(), 2, "{}", said(&world, "squash"));
    world.stop_server();
}

/// An empty directory on a file system of its own, until it is told to answer nothing any more.
struct Silent {
    place: PathBuf,
    program: Child,
}

impl Silent {
    fn new(place: &Path) -> Self {
        let (directory, script) = (place.join("silent"), place.join("silent.py"));
        fs::create_dir(&directory).expect("a directory");
        fs::write(&script, include_str!("../src/silent.py")).expect("a file");
        let words = [&script, &directory, &place.join("stop"), &place.join("asked")];
        let program = Command::new("python3").args(words).stdout(Stdio::piped()).spawn();
        let mut silent = Self { place: place.to_owned(), program: program.expect("start python3") };
        let mut line = String::new();
        let mut said = BufReader::new(silent.program.stdout.take().expect("what it says"));
        said.read_line(&mut line).expect("a line");
        assert_eq!(line, "mounted\n");
        silent
    }

    fn directory(&self) -> PathBuf {
        self.place.join("silent")
    }

    fn answers_nothing_more(&self) {
        fs::write(self.place.join("stop"), "").expect("a file");
    }

    fn is_asked(&self) -> bool {
        self.place.join("asked").exists()
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        self.program.kill().expect("end it");
        self.program.wait().expect("its end");
        sh("umount", &["--lazy", &text(&self.directory())]);
    }
}

#[test]
fn a_root_whose_file_system_does_not_answer_keeps_nobody_waiting_but_its_partition() {
    let place = tempfile::tempdir_in("/var/tmp").expect("a directory");
    let outside = place.path().join("outside");
    fs::create_dir(&outside).expect("a directory");
    let at = |name: &str| place.path().join(name);
    tree(&at("tree"), "first", &outside);
    let (from, erofs) = (text(&at("tree")), text(&at("erofs")));
    image("mkfs.erofs", &["--quiet", &erofs, &from]);
    // Two partitions, one image.
    let sound = ["one", "two"].map(|name| partition(name, "SECRET", &at("erofs"), "")).concat();
    let silent_one = partition("silent", "SECRET", &at("silent"), "restart = \"1 in 1h\"");
    let base = SITE.replace("\"harbour\"", "\"silent\"");
    let mut world = World::new("silent", &(base + &silent_one + &sound), &[]);
    // It goes before the server does, and lets go whoever waits for it.
    let silent = Silent::new(place.path());
    world.start_server();
    let run = text(&world.path("run"));
    for name in ["one", "two"] {
        eventually(PATIENCE, "it has said all", || said(&world, name).contains("done"));
    }
    // Each has a block device of its own of the one image, whose name begins with what stands for its path.
    let name = sh("sh", &["-c", &format!("printf %s {erofs} | sha256sum | cut -c 1-24")]).ok();
    let devices = fs::read_dir("/sys/block").expect("block devices").filter(|entry| {
        let backing = entry.as_ref().expect("a device").path().join("loop/backing_file");
        fs::read_to_string(backing).is_ok_and(|file| file.contains(name.trim()))
    });
    assert_eq!(devices.count(), 2);
    let state = |name| of(&world, name)["state"].as_str().unwrap_or_default().to_owned();
    eventually(PATIENCE, "its root has no program, and it is off", || state("silent").starts_with("off"));

    silent.answers_nothing_more();
    let order = |what: &str, name: &str| {
        let begun = Instant::now();
        world.levee(&["partition", what, "--run", &run, name]).ok();
        assert!(begun.elapsed() < Duration::from_secs(5), "{what} {name}: {:?}", begun.elapsed());
    };
    order("start", "silent");
    eventually(PATIENCE, "it is looked at", || silent.is_asked());
    // Others stop, and start again: with what they had, and with what is new.
    for round in 2..4 {
        for name in ["one", "two"] {
            order("stop", name);
            order("start", name);
            eventually(PATIENCE, "it runs again", || said(&world, name).matches("done").count() == round);
        }
        sh("touch", &[&erofs]).ok();
    }
    assert_eq!(state("silent"), "waits");
    // Who looks at it cannot be ended. It is off all the same, and at its next start it is told why not.
    order("stop", "silent");
    assert!(state("silent").starts_with("off"), "{}", state("silent"));
    order("start", "silent");
    eventually(PATIENCE, "it is told", || state("silent").contains("its file system does not answer"));
    order("stop", "one");
    let begun = Instant::now();
    world.stop_server();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    drop(silent);
}
