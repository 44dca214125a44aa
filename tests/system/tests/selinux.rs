//! levee's compartments on a host whose SELinux enforces levels: Debian's kernel and its MLS policy with levee's module, in a machine of
//! its own, emulated. What namespaces, mounts and uids keep apart is taken away piece by piece; SELinux alone still holds it.

use levee_guest::Guest;
use std::path::{Path, PathBuf};
use std::process::Command;

const SITE: &str = include_str!("../../../conf/small/site.toml");
/// The labels, and their SELinux levels by their places in the site's lists.
const LOW: (&str, &str) = ("UNCLASSIFIED", "s0");
const HIGH: (&str, &str) = ("SECRET//NATO", "s2:c0");
const WARDEN: &str = "system_u:system_r:levee_t:s0-s15:c0.c1023";

fn process(level: &str) -> String {
    format!("system_u:system_r:levee_compartment_t:{level}")
}

fn file(level: &str) -> String {
    format!("system_u:object_r:levee_compartment_file_t:{level}")
}

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A program of ours without what debuggers read, and the libraries that it names.
fn program(name: &str, place: &Path) -> Vec<(String, PathBuf)> {
    let stripped = place.join(name);
    done(Command::new("strip").arg("-o").arg(&stripped).arg(levee_system::programs().join(name)));
    let libraries = done(Command::new("ldd").arg(&stripped));
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    let mut files: Vec<_> = libraries.map(|path| (path.to_owned(), PathBuf::from(path))).collect();
    files.push((format!("/levee/{name}"), stripped));
    files
}

/// What the machine has beside its own: two of levee's programs, a site that requires SELinux, programs for compartments, and stores.
fn files(place: &Path) -> Vec<(String, PathBuf)> {
    let mut files: Vec<_> =
        ["levee-init", "levee-guest-labels"].into_iter().flat_map(|name| program(name, place)).collect();
    let bin = place.join("usr/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::copy("/usr/bin/busybox", bin.join("busybox")).expect("install busybox-static");
    for name in ["sh", "cat", "ls", "mkfifo", "nc", "sleep", "timeout"] {
        std::os::unix::fs::symlink("busybox", bin.join(name)).unwrap();
    }
    done(Command::new("mkfs.erofs").arg(place.join("programs.erofs")).arg(place.join("usr")));
    std::fs::write(place.join("site.toml"), SITE.replace("selinux = \"auto\"", "selinux = \"required\""))
        .unwrap();
    for store in ["low.img", "high.img"] {
        levee_warden::compartment::Store::create(&place.join(store), 8 << 20).unwrap();
    }
    let ours = ["programs.erofs", "site.toml", "low.img", "high.img"];
    files.extend(ours.map(|name| (format!("/levee/{name}"), place.join(name))));
    files
}

/// Has the program with the compartments do one line; what it says, and the status.
fn ask(guest: &mut Guest, line: &str) -> (String, String) {
    guest.run(&format!("echo '{line}' >&8"));
    answer(guest)
}

fn answer(guest: &mut Guest) -> (String, String) {
    let said = guest.run(
        "while read -r -t 120 line <&9; do echo \"$line\"; case \"$line\" in '=> '*) break;; esac; done",
    );
    let Some((said, status)) = said.trim_end().rsplit_once("=> ") else {
        panic!("no status: {said}\n{}", denials(guest).join("\n"));
    };
    (said.to_owned(), status.to_owned())
}

/// What was refused since the last time.
fn denials(guest: &mut Guest) -> Vec<String> {
    let said = guest.run("dmesg -c");
    said.lines().filter(|line| line.contains("avc:  denied")).map(str::to_owned).collect()
}

/// That a refusal names these: what was not permitted, and the contexts of both.
fn is_denied(all: &[String], what: &str, from: &str, to: &str) -> bool {
    let has = |line: &String, word: &str| line.split([' ', '\t']).any(|one| one == word);
    all.iter().any(|line| {
        line.contains(&format!("{{ {what} }}"))
            && has(line, &format!("scontext={from}"))
            && has(line, &format!("tcontext={to}"))
            && line.contains("permissive=0")
    })
}

/// Starts the program with the compartments, as a server's warden runs; what it says first.
fn serve(guest: &mut Guest) -> (String, String) {
    let labels = format!("{}=/levee/low.img {}=/levee/high.img", LOW.0, HIGH.0);
    let program = "/levee/levee-guest-labels /levee/site.toml /levee/levee-init /levee/programs.erofs";
    let start = format!("echo -n {WARDEN} > /proc/self/attr/current; exec {program} {labels}");
    guest.run(&format!("sh -c '{start}' </to >/from 2>&1 & exec 8>/to 9</from"));
    answer(guest)
}

/// A signal (one that nobody ends by) to a process of a compartment, with the host's process numbers, as root with every capability, in this context.
fn signalled(guest: &mut Guest, from: &str, pid: &str) -> bool {
    guest.attempt(&format!("sh -c 'echo -n {from} > /proc/self/attr/current && kill -URG {pid}'")).0
}

/// What a program may do in its own compartment: files in its store, in memory and in a queue's place; programs, processes, sockets. (What it
/// kills executes nothing: one that is killed while it does has the kernel ask for a module, which is refused and said.)
const WORK: &str = "echo $LEVEL > /srv/own/plan && cat /srv/own/plan && echo x > /tmp/x && : > /dev/mqueue/q && mkfifo /run/f && \
                    ls -l /dev /usr/bin > /dev/null; timeout 1 nc 127.0.0.1 $PORT </dev/null 2> /dev/null; (while :; do :; done) & kill $!; \
                    cat /proc/self/attr/current";

#[test]
fn what_namespaces_mounts_and_uids_keep_from_a_label_selinux_keeps_from_it_alone() {
    let place = tempfile::tempdir().unwrap();
    let mut guest = Guest::boot_host(&files(place.path()));
    guest.run("mount -t cgroup2 cgroup2 /sys/fs/cgroup && modprobe -a loop erofs && mkfifo /to /from");

    // The site requires it: where SELinux lets pass what it would refuse, nothing starts.
    guest.run("dd if=/policy-mls of=/sys/fs/selinux/load bs=8M");
    let refused = guest.attempt("sh -c 'echo -n system_u:system_r:levee_t:s0 > /proc/self/attr/current; exec /levee/levee-guest-labels /levee/site.toml i p'");
    assert!(
        !refused.0 && refused.1.contains("the host's SELinux is permissive: setenforce 1"),
        "{refused:?}"
    );

    // (Every refusal is to be said.)
    guest.run("echo 0 > /proc/sys/kernel/printk_ratelimit");
    guest.run("echo 1 > /sys/fs/selinux/enforce && dmesg -c > /dev/null");
    let (said, status) = serve(&mut guest);
    assert_eq!(status, "0", "{said}");
    let pid = |label: &str| -> String {
        let line = said.lines().find_map(|line| line.strip_prefix(label));
        line.unwrap_or_else(|| panic!("no {label} in {said}")).trim().to_owned()
    };
    let (low, high) = (pid(LOW.0), pid(HIGH.0));

    // Process 1, what it starts, and the listeners that the warden makes are at their label's level; and each can do its work.
    for ((label, level), pid) in [(LOW, &low), (HIGH, &high)] {
        let context = guest.run(&format!("cat /proc/{pid}/attr/current"));
        assert_eq!(context.trim_end_matches('\0').trim(), process(level));
        let said = ask(&mut guest, &format!("listener {label}"));
        assert_eq!(said, (format!("{}\n", process(level)), "0".into()));
        let (said, status) = ask(&mut guest, &format!("run {label} LEVEL={level}; {WORK}"));
        let all = denials(&mut guest);
        let ours: Vec<_> =
            all.iter().filter(|line| line.contains("scontext=system_u:system_r:levee_")).collect();
        assert!(ours.is_empty(), "{said}{ours:#?}");
        assert_eq!(
            (said.trim_end_matches(['\0', '\n']), status.as_str()),
            (format!("{level}\n{}", process(level)).as_str(), "0")
        );
    }

    // The store of the one, mounted in the other's compartment with the other's uids. Below: not a name of what is above.
    assert_eq!(ask(&mut guest, &format!("mount {} {}", HIGH.0, LOW.0)).1, "0");
    let read = format!("run {} cat /srv/below/plan", LOW.0);
    for attempt in
        ["ls /srv/below", "cat /srv/below/plan", "echo x > /srv/below/plan", "echo x > /srv/below/new"]
    {
        let (said, status) = ask(&mut guest, &format!("run {} {attempt}", LOW.0));
        assert!(status != "0" && said.contains("Permission denied"), "{attempt}: {status}: {said}");
    }
    let all = denials(&mut guest);
    assert!(is_denied(&all, "search", &process(LOW.1), &file(HIGH.1)), "{all:#?}");
    // Above: what is below can be read, and not written.
    assert_eq!(ask(&mut guest, &format!("mount {} {}", LOW.0, HIGH.0)).1, "0");
    let (said, status) = ask(&mut guest, &format!("run {} cat /srv/below/plan", HIGH.0));
    assert_eq!((said.as_str(), status.as_str()), ("s0\n", "0"));
    for attempt in ["echo x > /srv/below/plan", "echo x > /srv/below/new"] {
        let (said, status) = ask(&mut guest, &format!("run {} {attempt}", HIGH.0));
        assert!(status != "0" && said.contains("Permission denied"), "{attempt}: {status}: {said}");
    }
    let all = denials(&mut guest);
    assert!(is_denied(&all, "write", &process(HIGH.1), &file(LOW.1)), "{all:#?}");

    // Process numbers of the host, and root's power: a signal reaches its own level and no other.
    for (from, own, other) in [(LOW, &low, (HIGH, &high)), (HIGH, &high, (LOW, &low))] {
        assert!(signalled(&mut guest, &process(from.1), own));
        assert!(!signalled(&mut guest, &process(from.1), other.1));
        let all = denials(&mut guest);
        assert!(is_denied(&all, "signal", &process(from.1), &process(other.0.1)), "{all:#?}");
    }

    // It was SELinux that held, and nothing else.
    guest.run("echo 0 > /sys/fs/selinux/enforce");
    assert_eq!(ask(&mut guest, &read), (format!("{}\n", HIGH.1), "0".into()));
    assert!(signalled(&mut guest, &process(LOW.1), &high));
}
