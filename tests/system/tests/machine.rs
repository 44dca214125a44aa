//! A label with a kernel of its own is used like any other; needs qemu-system-x86 and what `scripts/guest` makes. Its machine is
//! emulated: on a loaded host it takes half a minute to boot, so one test asks it everything.

mod shell;

use levee_system::channel::{self, APART};
use levee_system::{Done, World, eventually, host};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";
const OWN_KERNEL: &str = "SECRET";
const HIGH: &str = "SECRET//NATO";
const BETWEEN: &str = "CONFIDENTIAL";

/// There the web is off, and what runs the tests' programs is on.
const POSTURE: &str =
    "\n[[posture]]\nname = \"quiet\"\nlabels = [\"SECRET\"]\nagree = true\nservices = [\"shell\"]\n";

/// How long a machine may take to boot, and whatever else, on a loaded host.
const PATIENCE: Duration = Duration::from_secs(120);

fn site() -> String {
    let own = levee_system::with_own_kernels(SITE, OWN_KERNEL);
    // Services are assumed taken over, and may do what any may.
    own + POSTURE + &shell::site("needs = [\"locks\", \"netlink\", \"pidfd\", \"proc\", \"shared-futex\"]")
}

fn url(path: &str) -> String {
    format!("http://www.harbour.example{path}")
}

fn put(world: &World, workstation: &str, path: &str, content: &str) -> Done {
    let arguments = ["curl", "-sS", "--fail", "--max-time", "60", "-X", "PUT", "--data-binary", content];
    world.run(workstation, &[arguments.as_slice(), &[&url(path)]].concat())
}

/// Bytes that a label's vault has sealed.
fn sent(world: &World, label: &str) -> u64 {
    let status = world.status();
    let sas = status["vaults"][label]["sas"].as_array().cloned().unwrap_or_default();
    sas.iter().filter_map(|sa| sa["bytes_sent"].as_u64()).sum()
}

/// Bytes that a machine has sent by its wire.
fn wire(qemu: &host::Process) -> u64 {
    let all = std::fs::read_to_string(format!("/proc/{}/net/dev", qemu.pid)).expect("its network");
    let counters = all.lines().find_map(|line| line.trim().strip_prefix("machine0:")).expect("its wire");
    let received = counters.split_whitespace().next().and_then(|bytes| bytes.parse().ok());
    received.expect("a number of bytes")
}

/// Channels between two labels by what a kernel keeps for both, each with its window in seconds. Between two compartments whose
/// services may do all this, the first three are open.
const CHANNELS: [(&str, f64); 8] = [
    ("locks on an eventfd", 0.03),
    ("numbers of eventfds", 0.03),
    ("neighbours looked up", 0.03),
    ("locks on an epoll", 0.03),
    ("whole locks on an eventfd", 0.03),
    ("inode of a pidfd", 0.03),
    ("futex on a shared page of a program", 0.03),
    ("page cache, timed", 0.03),
];

/// What a program at the label of `ws1` sends, one at that of `ws2` does not hear, if either has a kernel of its own; otherwise it does.
fn is_not_heard(world: &World) {
    assert_eq!(
        heard(world, &CHANNELS),
        Vec::<&str>::new(),
        "a program in a compartment hears one in a machine"
    );
    world.level("ws1", BETWEEN).ok();
    let open = &CHANNELS[..3];
    // Others on the host use them, too: noise must not make a channel that is there look as if it were not.
    let heard = (0..3).any(|_| heard(world, open).len() == open.len());
    assert!(heard, "a program in a compartment hears one in another");
    world.level("ws1", OWN_KERNEL).ok();
}

/// The channels by which ones and zeros that are sent at `ws1` are told apart at `ws2`.
fn heard<'n>(world: &World, channels: &[(&'n str, f64)]) -> Vec<&'n str> {
    // Programs may take long to start, within a machine above all.
    let all = [4.0, 8.0, 16.0, 32.0].into_iter().find_map(|lead| heard_after(world, channels, lead));
    all.expect("both programs are there when the first window begins")
}

/// The same, with windows that begin after so many seconds; `None` if one of the two programs was late.
fn heard_after<'n>(world: &World, channels: &[(&'n str, f64)], lead: f64) -> Option<Vec<&'n str>> {
    let bits = channel::bits(16);
    // A machine's clock is not the host's.
    let behind = shell::behind(world, "ws1");
    let first = shell::now() + lead;
    let mut next = first;
    let mut windows = Vec::new();
    for (name, window) in channels {
        windows.push((*name, next, *window));
        next += bits.len() as f64 * window + 0.25;
    }
    let program = |end: &str, behind: f64| {
        let channels: Vec<_> = windows.iter().map(|(name, at, window)| (name, at - behind, window)).collect();
        let job = json!({"end": end, "channels": channels, "bits": bits}).to_string();
        let attack = include_str!("../probes/attack.py").replace("from common import *", "");
        let attack = attack.replace("json.load(sys.stdin)", &format!("json.loads('{job}')"));
        let late =
            format!("if time.time() > {}:\n    sys.exit(print('late'))\nall = {{}}\n", first - behind - 0.2);
        assert!(attack.contains("\nall = {}\n"), "the program has changed");
        include_str!("../probes/common.py").to_owned() + &attack.replace("all = {}\n", &late)
    };
    let (send, receive) = (program("send", behind), program("receive", 0.0));
    let (sent, said) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| shell::inside(world, "ws1", &send));
        let said = shell::inside(world, "ws2", &receive);
        (sender.join().expect("the program above"), said)
    });
    if sent.trim() == "late" || said.trim() == "late" {
        return None;
    }
    assert!(sent.contains(channels[0].0), "the program above has done all: {sent}");
    let seen: BTreeMap<String, Vec<Option<f64>>> =
        serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    let apart = |name: &str| channel::separation(&bits, &seen[name]);
    Some(channels.iter().map(|(name, _)| *name).filter(|name| apart(name) > APART).collect())
}

/// QEMU runs as the label's service would: no rights, its own namespaces, the label's network, and descriptors alone.
fn is_confined(world: &World) {
    let qemu = machine(world).expect("a machine");
    let warden = host::Process::find(world.server_pid()).expect("the warden");
    let uids = qemu.status("Uid");
    let uids: BTreeSet<u32> = uids.split_whitespace().map(|uid| uid.parse().expect("a uid")).collect();
    assert!(uids.len() == 1 && uids.first() > Some(&65_535), "one uid, and no person's: {uids:?}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(qemu.status(set), "0000000000000000", "{set}");
    }
    assert_eq!((qemu.status("NoNewPrivs").as_str(), qemu.status("Seccomp").as_str()), ("1", "2"));
    let filters =
        |process: &host::Process| process.status("Seccomp_filters").parse::<u32>().expect("a number");
    assert_eq!(filters(&qemu), filters(&warden) + 3, "the compartment's, levee's of a machine, QEMU's own");
    for kind in ["net", "mnt", "pid", "ipc", "uts", "user", "cgroup", "time"] {
        assert_ne!(qemu.namespace(kind), warden.namespace(kind), "{kind}");
    }
    let proc = |name: &str| format!("/proc/{}/{name}", qemu.pid);
    let read = |name: &str| std::fs::read_to_string(proc(name)).expect("what it has");

    // Each with whether it could be written to (O_WRONLY, O_RDWR).
    let entries = std::fs::read_dir(proc("fd")).expect("its descriptors").flatten();
    let links = entries.filter_map(|entry| {
        let info = read(&format!("fdinfo/{}", entry.file_name().to_string_lossy()));
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).map(str::trim);
        let flags = u32::from_str_radix(flags.expect("its flags"), 8).expect("a number");
        let link = std::fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        assert!(!link.ends_with(".erofs") || flags & 3 == 0, "the programs are to be read");
        Some(link)
    });
    let links: Vec<String> = links.collect();
    let known = |link: &String| {
        let anonymous = ["pipe:", "socket:", "anon_inode:"].iter().any(|kind| link.starts_with(kind));
        let device = ["/dev/null", "/dev/net/tun", "/dev/urandom"].contains(&link.as_str());
        let disks = ["/SECRET.img", "/SECRET.below.img", ".erofs"];
        anonymous || device || disks.iter().any(|disk| link.ends_with(disk))
    };
    assert!(links.iter().all(known), "{links:?}");
    let count = |what: &str| links.iter().filter(|link| link.starts_with(what)).count();
    assert_eq!(
        (count("socket:"), count("/dev/net/tun")),
        (3, 1),
        "a port each for process 1 and documents: {links:?}"
    );

    // What is behind the end of its disks is the host's.
    let disks = std::fs::read_dir(proc("fd")).expect("its descriptors").flatten().map(|entry| entry.path());
    let disks =
        disks.filter(|fd| std::fs::read_link(fd).is_ok_and(|to| to.to_string_lossy().ends_with(".img")));
    let largest = disks.filter_map(|fd| Some(std::fs::metadata(fd).ok()?.len())).max().expect("a disk");
    let limits = read("limits");
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max file size")).expect("a limit");
    let limit: Vec<&str> = limit.split_whitespace().take(2).collect();
    assert_eq!(limit, [&*largest.to_string(); 2]);

    // Nor does the host's kernel cut what the vault writes for the machine into packets, as the vault says.
    let of_vault = ["-t", &qemu.pid.to_string(), "-n", "ip", "-details", "link", "show", "levee0"];
    let of_vault = std::process::Command::new("nsenter").args(of_vault).output().expect("its device");
    let of_vault = String::from_utf8(of_vault.stdout).expect("text");
    assert!(of_vault.contains("vnet_hdr off"), "{of_vault}");

    for line in read("mountinfo").lines() {
        let (place, source) = line.split_once(" - ").expect("a mount");
        let fields: Vec<&str> = place.split(' ').collect();
        let (point, options, kind) = (fields[4], fields[5], source.split(' ').next().expect("its kind"));
        assert!(["tmpfs", "overlay", "devpts", "mqueue"].contains(&kind), "{line}");
        if kind == "overlay" {
            assert!(["/usr", "/etc/alternatives", "/machine"].contains(&point), "{line}");
            assert!(options.split(',').any(|option| option == "ro"), "{line}");
        }
    }
    let devices = read("net/dev");
    let devices: BTreeSet<&str> =
        devices.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    assert!(
        devices.is_subset(&BTreeSet::from(["lo", "levee0", "machine0", "sit0", "ip6tnl0", "tunl0"])),
        "{devices:?}"
    );
}

/// What a program at the label of `ws1` sees of its web server: whether it runs, and whether it answers.
const WEB: &str = r#"
import glob,socket
try:
    socket.create_connection(("10.80.0.1",80),5).close(); answers=True
except OSError:
    answers=False
print(any(open(one).read()=="nginx\n" for one in glob.glob("/proc/[0-9]*/comm")), answers)
"#;

/// A posture ends what runs in the machine, which goes on; one that boots while it is in force begins so.
fn what_a_posture_has_off_is_off_in_the_machine(world: &World) {
    let run = levee_system::text(&world.path("run"));
    let set = |name: &str| world.levee(&["posture", "set", name, "--run", &run]).ok();
    // Its vault passes nothing to it, so who is within is asked.
    let web = || shell::inside(world, "ws1", WEB).trim().to_owned();
    world.fetch("ws1", &url("/")).ok();
    assert_eq!(web(), "True True");
    let before = machine(world).expect("a machine");
    set("quiet");
    assert_eq!(web(), "False False");
    world.fetch("ws1", &url("/")).refused();
    assert_eq!(machine(world).map(|now| now.pid), Some(before.pid), "the machine goes on");
    // A machine that dies is that label's trouble alone: others go on, and it comes again.
    let others_go_on = || assert_eq!(world.fetch("ws2", &url("/own/tide")).ok(), "high water at nine");
    others_go_on();
    before.kill();
    others_go_on();
    eventually(PATIENCE, "the machine comes again", || {
        machine(world).is_some_and(|now| now.pid != before.pid)
            && world.run("ws1", &["/usr/bin/python3", "-c", shell::CLIENT, "print(7)"]).out.contains('7')
    });
    assert_eq!(web(), "False False");
    set("default");
    assert!(world.fetch("ws1", &url("/")).ok().contains(&format!("<h1>{OWN_KERNEL}</h1>")));
    assert_eq!(web(), "True True");
    // One that does not answer is ended, and not asked to end by itself, for which it would have as long again.
    let silent = machine(world).expect("a machine");
    silent.signal("STOP");
    let begun = Instant::now();
    set("quiet");
    assert!(begun.elapsed() < Duration::from_secs(17), "{:?}", begun.elapsed());
    assert!(!silent.runs(), "it was said that nothing of what is off runs");
    // One that does not come to stand, as where its disk is made to keep its kernel from it, is not waited for: it has begun with what is off,
    // and is to begin with what is on; and for what is to be off anew it has no longer than another.
    eventually(PATIENCE, "the machine begins", || machine(world).is_some());
    machine(world).expect("a machine").signal("STOP");
    for (name, most) in [("default", 3), ("quiet", 17), ("default", 3)] {
        let begun = Instant::now();
        set(name);
        assert!(begun.elapsed() < Duration::from_secs(most), "{name}: {:?}", begun.elapsed());
    }
    eventually(PATIENCE, "the machine comes once more", || {
        world.fetch("ws1", &url("/")).out.contains(&format!("<h1>{OWN_KERNEL}</h1>"))
    });
}

fn machine(world: &World) -> Option<host::Process> {
    host::below(world.server_pid()).into_iter().find(|process| process.name.starts_with("qemu"))
}

#[test]
fn a_label_with_a_kernel_of_its_own_is_used_like_any_other_and_its_death_is_its_own() {
    let site = site();
    assert!(site.contains("own-kernel = [\"SECRET\"]"), "the small site has changed");
    let world = World::up("machine", &site, &["ws1", "ws2"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    put(&world, "ws1", "/own/tide", "high water at nine").ok();

    world.login("ws2", "mia").ok();
    world.level("ws2", LOW).ok();

    // The first connection starts nginx in the machine. What is below arrives there, and cannot be changed.
    world.level("ws1", OWN_KERNEL).ok();
    let page = world.fetch("ws1", &url("/")).ok();
    assert!(page.contains(&format!("<h1>{OWN_KERNEL}</h1>")), "{page}");
    let tide = url(&format!("/below/{LOW}/tide"));
    eventually(PATIENCE, "what is below is with the machine", || {
        world.fetch("ws1", &tide).out == "high water at nine"
    });
    put(&world, "ws1", &format!("/below/{LOW}/tide"), "never").refused();
    put(&world, "ws1", "/own/plan", "attack at dawn").ok();

    let form = |label: &str| {
        let status = world.status();
        let all = status["compartments"].as_array().cloned().unwrap_or_default();
        all.iter().find(|one| one["label"] == label).map(|one| one["form"].clone())
    };
    assert_eq!(form(OWN_KERNEL), Some("machine".into()));
    assert_eq!(form(LOW).unwrap_or("compartment".into()), "compartment");
    // What services write is in the label's log, and what they do in the status.
    let services = world.status()["compartments"].to_string();
    assert!(services.contains("[\"web\",1]"), "{services}");

    // The host has neither file system of the machine's mounted, nor on a loop device.
    let loops = host::loops(&world.path("state")).join(" ");
    assert!(loops.contains("SECRET.snapshot.img"), "what the host has written it has mounted: {loops}");
    let own = ["SECRET.img", "SECRET.below.img"];
    assert!(own.iter().all(|image| !loops.contains(image)), "{loops}");
    is_confined(&world);

    is_not_heard(&world);

    // Upward from the machine, too.
    world.level("ws1", HIGH).ok();
    let plan = url(&format!("/below/{OWN_KERNEL}/plan"));
    eventually(PATIENCE, "what the machine has is with the label above", || {
        world.fetch("ws1", &plan).out == "attack at dawn"
    });

    world.level("ws1", OWN_KERNEL).ok();
    what_a_posture_has_off_is_off_in_the_machine(&world);

    // The end of a session is acknowledged when the machine says that its connections are cut: from then on its wire is silent,
    // though a download was under way.
    let size = (8 << 20).to_string();
    let upload = format!("head -c {size} /dev/zero >large && curl -sS --fail -T large {}", url("/own/large"));
    world.run("ws1", &["sh", "-c", &upload]).ok();
    let before = sent(&world, OWN_KERNEL);
    let download =
        ["run", "--export", "--", "curl", "-sS", "--fail", "--limit-rate", "100k", "-o", "/dev/null"];
    let mut download = world.tpe_command("ws1", &[&download[..], &[&url("/own/large")]].concat());
    let mut download = download.spawn().expect("a download");
    eventually(PATIENCE, "the download is under way", || sent(&world, OWN_KERNEL) > before + (256 << 10));
    assert!(download.try_wait().expect("its state").is_none(), "it goes on");
    world.tpe("ws1", &["logout"]).ok();
    let qemu = machine(&world).expect("it lingers");
    let spoken = wire(&qemu);
    assert!(!download.wait().expect("the download ends").success(), "it is cut");
    std::thread::sleep(Duration::from_secs(1));
    // A segment of the download has more than a kilobyte. What a kernel says by itself (router solicitations) is shorter.
    let more = wire(&qemu) - spoken;
    assert!(more < 1_000, "nobody in the machine sends to the session any more, but {more} bytes were sent");
    assert_eq!(world.fetch("ws2", &url("/own/tide")).ok(), "high water at nine");
}
