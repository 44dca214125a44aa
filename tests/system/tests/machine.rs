//! A label with a kernel of its own is used like any other; needs qemu-system-x86 and what `scripts/guest` makes. Its machine is
//! emulated: on a loaded host it takes half a minute to boot, so one test asks it everything.

use levee_system::{Done, World, eventually, host, programs};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";
const OWN_KERNEL: &str = "SECRET";
const HIGH: &str = "SECRET//NATO";

/// How long a machine may take to boot, and whatever else, on a loaded host.
const PATIENCE: Duration = Duration::from_secs(120);

fn site() -> String {
    let root = programs().join("../guest/root");
    let root =
        std::fs::canonicalize(&root).unwrap_or_else(|e| panic!("{}: {e}: run scripts/guest", root.display()));
    let own = SITE.replace("own-kernel = []", &format!("own-kernel = [\"{OWN_KERNEL}\"]"));
    own.replace("kernel-root = \"/\"", &format!("kernel-root = \"{}\"", root.display()))
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

/// Packets that a machine has sent by its wire.
fn wire(qemu: &host::Process) -> u64 {
    let all = std::fs::read_to_string(format!("/proc/{}/net/dev", qemu.pid)).expect("its network");
    let counters = all.lines().find_map(|line| line.trim().strip_prefix("machine0:")).expect("its wire");
    let received = counters.split_whitespace().nth(1).and_then(|packets| packets.parse().ok());
    received.expect("a number of packets")
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
    // QEMU runs as the label's service would: no rights, its own namespaces, the label's network.
    let qemu = machine(&world).expect("a machine");
    assert_eq!(qemu.status("CapEff"), "0000000000000000");
    assert_eq!(qemu.status("Seccomp"), "2");
    let warden = host::Process::find(world.server_pid()).expect("the warden");
    for kind in ["net", "mnt", "pid", "ipc", "uts", "user", "cgroup"] {
        assert_ne!(qemu.namespace(kind), warden.namespace(kind), "{kind}");
    }

    // Upward from the machine, too.
    world.level("ws1", HIGH).ok();
    let plan = url(&format!("/below/{OWN_KERNEL}/plan"));
    eventually(PATIENCE, "what the machine has is with the label above", || {
        world.fetch("ws1", &plan).out == "attack at dawn"
    });

    // A machine that dies is that label's trouble alone: others go on, and it comes again.
    world.login("ws2", "mia").ok();
    world.level("ws2", LOW).ok();
    assert_eq!(world.fetch("ws2", &url("/own/tide")).ok(), "high water at nine");
    world.level("ws1", OWN_KERNEL).ok();
    let before = machine(&world).expect("a machine");
    before.kill();
    assert_eq!(world.fetch("ws2", &url("/own/tide")).ok(), "high water at nine");
    eventually(PATIENCE, "the machine comes again", || {
        machine(&world).is_some_and(|now| now.pid != before.pid)
            && world.fetch("ws1", &url("/")).out.contains(&format!("<h1>{OWN_KERNEL}</h1>"))
    });

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
    assert_eq!(wire(&qemu), spoken, "nobody in the machine sends to the session any more");
    assert_eq!(world.fetch("ws2", &url("/own/tide")).ok(), "high water at nine");
}
