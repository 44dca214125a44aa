//! levee's compartments on a host whose SELinux enforces levels: Debian's kernel and its MLS policy with levee's module, in a machine of
//! its own, emulated. What namespaces, mounts and uids keep apart is taken away piece by piece; SELinux alone still holds it.

use levee_guest::{Guest, made};
use levee_policy::{Label, Site, Who};
use std::collections::BTreeMap;
use std::io::Write as _;
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

/// What the machine has beside its own: three of levee's programs, a site that requires SELinux, programs for compartments, and stores.
fn files(place: &Path) -> Vec<(String, PathBuf)> {
    let mut files: Vec<_> = ["levee-init", "levee-guest-labels", "levee-guest-bpf"]
        .into_iter()
        .flat_map(|name| program(name, place))
        .collect();
    let bin = place.join("usr/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::copy("/usr/bin/busybox", bin.join("busybox")).expect("install busybox-static");
    for name in ["sh", "cat", "ls", "mkfifo", "nc", "sleep", "timeout"] {
        std::os::unix::fs::symlink("busybox", bin.join(name)).unwrap();
    }
    std::fs::copy(made().join("crossing"), bin.join("crossing")).expect("run scripts/guest");
    done(Command::new("mkfs.erofs").arg(place.join("programs.erofs")).arg(place.join("usr")));
    std::fs::write(place.join("site.toml"), SITE.replace("selinux = \"auto\"", "selinux = \"required\""))
        .unwrap();
    levee_warden::compartment::Store::create(&place.join("store.img"), 8 << 20).unwrap();
    let ours = ["programs.erofs", "site.toml", "store.img"];
    files.extend(ours.map(|name| (format!("/levee/{name}"), place.join(name))));
    files
}

/// Every label of the lattice, with its name.
fn labels() -> Vec<(String, Label)> {
    let site = Site::parse(SITE).expect("the example site is sound");
    let range = site.services().next().expect("a service").range().clone();
    let all = range.labels(64).expect("as many");
    all.map(|label| (site.label_name(&label).expect("a name").as_str().to_owned(), label)).collect()
}

/// What SELinux's own rules let a process of one label do to what is another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// At its own level alone.
    Equal,
    /// At its own level and at those that it dominates.
    Down,
    /// To nobody, its own label included: levee's module does not let it.
    Nobody,
    /// Nothing is held: packets carry no label.
    Any,
}

/// The kinds of namespaces, as the guest's program has them.
const KINDS: [(&str, &str); 5] = [
    ("m", "the other's mount namespace"),
    ("n", "the other's network namespace"),
    ("i", "the other's IPC namespace"),
    ("p", "the other's pid namespace"),
    ("u", "the other's user namespace, and its uid"),
];

/// Packets of the loopback carry labels.
const LABELLED: [&str; 4] = [
    "netlabelctl cipsov4 add pass doi:16 tags:1",
    "netlabelctl map del default",
    "netlabelctl map add default address:127.0.0.0/8 protocol:cipsov4,16",
    "netlabelctl map add default address:0.0.0.0/0 protocol:unlbl",
];

/// The kind of namespace that alone leads to what is tried.
fn through(what: &str) -> &'static str {
    match what {
        "read a document"
        | "list a directory"
        | "read a file in /dev/shm"
        | "write a document"
        | "write a file in /dev/shm"
        | "Unix socket by path" => "m",
        "TCP" | "UDP" | "Unix socket by abstract name" => "n",
        "read System V memory"
        | "write System V memory"
        | "look at a System V queue"
        | "put into a System V queue"
        | "read a System V semaphore"
        | "set a System V semaphore"
        | "open a POSIX queue to read"
        | "open a POSIX queue to write" => "i",
        "read how a process is scheduled" => "p",
        // It wants the other's uid besides.
        _ => "",
    }
}

/// What no single kind of namespace leads to.
fn within(what: &str) -> Rule {
    if rule(what) == Rule::Nobody { Rule::Nobody } else { Rule::Equal }
}

fn rule(what: &str) -> Rule {
    match what {
        "write a document"
        | "add a document"
        | "write a file in /dev/shm"
        | "Unix socket by path"
        | "Unix socket by abstract name"
        | "write System V memory"
        | "put into a System V queue"
        | "set a System V semaphore"
        | "open a POSIX queue to write"
        | "signal a process"
        | "signal a process by pidfd"
        | "set how a process is scheduled"
        | "set a process's limits" => Rule::Equal,
        "read a document"
        | "list a directory"
        | "read a file in /dev/shm"
        | "read System V memory"
        | "look at a System V queue"
        | "read a System V semaphore"
        | "open a POSIX queue to read"
        | "see a process in /proc"
        | "read how a process is scheduled" => Rule::Down,
        "trace a process" | "read a process's memory" | "take a process's descriptor" => Rule::Nobody,
        "TCP" | "UDP" => Rule::Any,
        other => panic!("an attempt that the table does not know: {other}"),
    }
}

/// How often an attempt got what it wanted, of a label's own things, of those below, and of all others'.
type Tally = BTreeMap<String, [[usize; 2]; 3]>;

/// Every label tries everything on every label's, from its own namespaces but for those of `kinds`, which are the other's.
/// Every label of `every`, that is: fewer are enough where a refusal takes long.
fn cross(guest: &mut Guest, kinds: &str, every: usize, mut seen: impl FnMut(&str, usize, bool)) -> Tally {
    let attempts: Vec<String> = guest.run("crossing list").lines().map(str::to_owned).collect();
    let (said, status) =
        ask(guest, &format!("cross {kinds} {} {every}", if every > 1 { 300 } else { 3_000 }));
    assert_eq!(status, "0", "{said}");
    let (site, all) = (Site::parse(SITE).unwrap(), labels());
    let label = |name: &str| &all.iter().find(|(one, _)| one == name).expect("a label").1;
    let mut tally = Tally::new();
    let mut pairs = 0;
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [subject, object, digits] = words.as_slice() else { panic!("{line}") };
        assert_eq!(digits.len(), attempts.len(), "{line}");
        pairs += 1;
        let reads = site.decide_read(Who::default(), label(subject), label(object)).is_ok();
        let kind = if subject == object {
            0
        } else if reads {
            1
        } else {
            2
        };
        for (what, digit) in attempts.iter().zip(digits.chars()) {
            seen(what, kind, digit == '1');
            let of = &mut tally.entry(what.clone()).or_default()[kind];
            of[0] += usize::from(digit == '1');
            of[1] += 1;
        }
    }
    assert_eq!(pairs, all.len().div_ceil(every).pow(2), "{said}");
    tally
}

fn report(title: &str, tally: &Tally) {
    let mut table =
        format!("{title}\n{:<34} {:>10} {:>10} {:>10}\n", "attempt", "its own", "below", "others");
    for (what, [own, below, others]) in tally {
        let part = |of: &[usize; 2]| format!("{}/{}", of[0], of[1]);
        table.push_str(&format!("{what:<34} {:>10} {:>10} {:>10}\n", part(own), part(below), part(others)));
    }
    std::io::stdout().write_all(table.as_bytes()).unwrap();
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
    let images = labels().len();
    guest.run(&format!(
        "n=0; while [ $n -lt {images} ]; do cp /levee/store.img /levee/$n.img; n=$((n+1)); done"
    ));
    let images = labels().into_iter().enumerate().map(|(n, (name, _))| format!("{name}=/levee/{n}.img"));
    let labels = images.collect::<Vec<_>>().join(" ");
    let program = "/levee/levee-guest-labels /levee/site.toml /levee/levee-init /levee/programs.erofs";
    let start = format!("echo -n {WARDEN} > /proc/self/attr/current; exec {program} {labels}");
    guest.run(&format!("sh -c '{start}' </to >/from 2>&1 & exec 8>/to 9</from"));
    answer(guest)
}

/// A signal (one that nobody ends by) to a process of a compartment, with the host's process numbers, as root with every capability, in this context.
fn signalled(guest: &mut Guest, from: &str, pid: &str) -> bool {
    guest.attempt(&format!("sh -c 'echo -n {from} > /proc/self/attr/current && kill -URG {pid}'")).0
}

/// What a program may do in its own compartment: files in its store, in memory and in a queue's place; programs, processes, sockets; and ask for its
/// level, of itself and of a socket. (What it
/// kills executes nothing: one that is killed while it does has the kernel ask for a module, which is refused and said.)
const WORK: &str = "echo $LEVEL > /srv/own/plan && cat /srv/own/plan && echo x > /tmp/x && : > /dev/mqueue/q && mkfifo /run/f && \
                    ls -l /dev /usr/bin > /dev/null; timeout 1 nc 127.0.0.1 $PORT </dev/null 2> /dev/null; (while :; do :; done) & kill $!; \
                    cat /proc/self/attr/current; echo; crossing level";

#[test]
fn what_namespaces_mounts_and_uids_keep_from_a_label_selinux_keeps_from_it_alone() {
    let place = tempfile::tempdir().unwrap();
    let mut guest = Guest::boot_host(&files(place.path()));
    guest.run("mount -t cgroup2 cgroup2 /sys/fs/cgroup && modprobe -a loop erofs && mkfifo /to /from");
    // This kernel, too, takes levee's programs, and those of labelled links do what the filter does. (It is Debian's, and older than most.)
    guest.run("ip link set lo up");
    println!("on {}: {}", guest.run("cat /proc/version"), guest.run("/levee/levee-guest-bpf 4000"));

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
        let own = process(level);
        assert_eq!((said.replace('\0', ""), status), (format!("{level}\n{own}\n{own}\n"), "0".into()));
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

    alone(&mut guest);

    // It was SELinux that held, and nothing else.
    guest.run("echo 0 > /sys/fs/selinux/enforce");
    let mut held = Vec::new();
    let all = cross(&mut guest, "mnipu", 1, |what, _, did| {
        if !did {
            held.push(what.to_owned());
        }
    });
    report("the other's namespaces and uid, SELinux permissive", &all);
    assert!(held.is_empty(), "{held:#?}");
    assert_eq!(ask(&mut guest, &read), (format!("{}\n", HIGH.1), "0".into()));
    assert!(signalled(&mut guest, &process(LOW.1), &high));
}

/// The isolation matrix with the help of namespaces switched off, one kind at a time and then all with the uids.
fn alone(guest: &mut Guest) {
    assert_eq!(ask(guest, "victims").1, "0");
    let mut wrong = Vec::new();
    let mut expect =
        |guest: &mut Guest, kinds: &str, title: &str, every: usize, rule: &dyn Fn(&str) -> Rule| {
            let all = cross(guest, kinds, every, |what, kind, did| {
                let should = match rule(what) {
                    Rule::Equal => kind == 0,
                    Rule::Down => kind < 2,
                    Rule::Nobody => false,
                    Rule::Any => true,
                };
                if should != did {
                    wrong.push(format!("{title}: {what}, {kind}: should be {should}, was {did}"));
                }
            });
            report(title, &all);
        };
    for (kind, title) in KINDS {
        let of = |what: &str| if through(what).contains(kind) { rule(what) } else { within(what) };
        expect(guest, kind, title, 1, &of);
    }
    expect(guest, "mnipu", "the other's namespaces, and its uid", 1, &rule);

    // Where the host labels packets, they say who speaks, on the loopback too.
    for command in LABELLED {
        guest.run(command);
    }
    assert_eq!(ask(guest, "victims"), (String::new(), "0".into()));
    let labelled = |what: &str| if rule(what) == Rule::Any { Rule::Equal } else { rule(what) };
    expect(guest, "mnipu", "the same, and packets carry labels (NetLabel)", 5, &labelled);
    assert!(wrong.is_empty(), "{wrong:#?}");
}
