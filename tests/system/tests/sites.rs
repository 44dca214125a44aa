//! Two sites on one host, at once and one after the other; and what is left when a site has been taken down.

use levee_system::host::{self, Process};
use levee_system::things::{things, told};
use levee_system::{World, eventually, sh, text};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
const HIGH: &str = "SECRET//NATO,MED";

fn named(name: &str) -> String {
    let site = SITE.replace("\"harbour\"", &format!("\"{name}\""));
    assert_ne!(site, SITE);
    site
}

fn is_used(world: &World, label: &str) {
    world.login("ws1", "ada").ok();
    world.level("ws1", label).ok();
    assert!(world.fetch("ws1", PAGE).ok().contains(label));
}

/// What processes of two sites may have in common: what every process of a host has or may have, so that nobody has it of the other.
fn is_anybodys(thing: &str) -> bool {
    // The host's, in which the wardens are: levee's own processes can open nothing by a name there, nor see another process.
    let hosts = ["mnt", "pid", "pid_for_children", "cgroup", "user", "net", "ipc", "uts", "time"];
    let hosts = hosts.iter().any(|kind| {
        let own = fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
        thing == format!("namespace {}", text(&own).replace('[', " "))
    });
    let named = thing.starts_with("inode ")
        && ["anon_inode:", "/dev/net/tun", "/dev/null"].iter().any(|name| thing.contains(name));
    // Levee's own programs and their libraries, which the host has once, and of whose pages no filter of theirs lets them wait or wake.
    let program =
        thing.strip_prefix("page ").and_then(|page| page.split_once(' ')).is_some_and(|(at, path)| {
            let inode = fs::metadata(path).map(|seen| seen.ino().to_string());
            inode.is_ok_and(|inode| at.ends_with(&format!(":{inode}")))
        });
    hosts || named || program || thing.starts_with("mount ") || thing.starts_with("directory ")
}

/// All processes below a server's warden.
fn all(world: &World) -> Vec<Process> {
    host::below(world.server_pid())
}

fn files(of: &[Process]) -> Vec<(u32, u32)> {
    let of = of.iter().flat_map(|process| {
        let entries = fs::read_dir(format!("/proc/{}/fd", process.pid)).into_iter().flatten().flatten();
        entries.filter_map(move |e| Some((process.pid, e.file_name().to_str()?.parse().ok()?)))
    });
    of.collect()
}

/// Whether the uids of one site may do anything to processes and files of the other's.
fn reach(one: &World, two: &World) -> String {
    let uids: BTreeSet<String> = all(one)
        .iter()
        .flat_map(|process| process.status("Uid").split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert!(uids.len() > 8 && !uids.contains("0"), "{uids:?}");
    let uids = uids.iter().map(|uid| format!("uid {uid}\n"));
    let warden = std::iter::once(two.server_pid());
    let pids =
        all(two).into_iter().map(|process| process.pid).chain(warden).map(|pid| format!("pid {pid}\n"));
    let below =
        |directory: &str| sh("find", &[directory]).ok().lines().map(str::to_owned).collect::<Vec<_>>();
    let (state, run) = (text(&two.path("state")), text(&two.path("run")));
    // What wardens claim their uids by, and with it whether one can.
    let claims = below("/run/levee/.uids").into_iter().chain(host::groups("levee/uids"));
    let paths = below(&state).into_iter().chain(below(&run)).chain(claims);
    let paths = paths.map(|path| format!("path {path}\n"));
    told("neighbour.py", uids.chain(pids).chain(paths).collect())
}

#[test]
fn two_sites_at_once_on_one_host_share_nothing_and_neither_harms_or_reads_the_other() {
    let one = World::up("one", &named("port-one"), &["ws1"]);
    let site = named("port-two").replace("\"10.77.0.1\"", "\"10.77.0.2\"");
    let mut two = World::beside(&one, "two", &site, &["ws1"]);
    // With the first one's state it does not start, whatever its run directory.
    let state = [("--server", "site.toml"), ("--state", "state"), ("--run", "other-run")];
    let state = state.iter().flat_map(|(flag, path)| [(*flag).to_owned(), text(&one.path(path))]);
    let programs = ["--programs".to_owned(), text(&levee_system::programs())];
    let words: Vec<String> = state.chain(programs).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = one.server_sh(&text(&levee_system::programs().join("levee-warden")), &words).refused();
    assert!(said.contains("another warden runs with this state") && said.contains("--state"), "{said}");

    two.start_server();
    two.start_workstation("ws1");
    is_used(&one, HIGH);
    is_used(&two, HIGH);
    let write = format!("echo of one only >/tmp/d && curl --silent --fail -T /tmp/d {PAGE}own/one.txt");
    one.run("ws1", &["sh", "-c", &write]).ok();
    assert!(one.fetch("ws1", &format!("{PAGE}own/")).ok().contains("one.txt"));
    assert!(!two.fetch("ws1", &format!("{PAGE}own/")).ok().contains("one.txt"));
    assert_eq!(one.status()["session_count"], 1);
    assert_eq!(two.status()["session_count"], 1);
    assert_eq!(one.status()["site"], "port-one");
    assert_eq!(two.status()["site"], "port-two");

    let (here, there) = (all(&one), all(&two));
    let of = |processes: &[Process]| -> BTreeMap<String, Vec<String>> {
        processes.iter().flat_map(things).collect()
    };
    let (ours, theirs) = (of(&here), of(&there));
    let common: Vec<_> = ours.iter().filter(|(thing, _)| theirs.contains_key(*thing)).collect();
    let common: Vec<_> = common.into_iter().filter(|(thing, _)| !is_anybodys(thing)).collect();
    assert!(common.is_empty(), "two sites have in common: {common:#?}");
    let (ours, theirs) = (files(&here), files(&there));
    let pairs = ours.iter().flat_map(|(p, f)| theirs.iter().map(move |(q, g)| format!("{p} {f} {q} {g}\n")));
    assert!(ours.len() > 50 && theirs.len() > 50);
    assert_eq!(told("shared.py", pairs.collect()), "", "the same open file");
    assert_eq!(reach(&one, &two) + &reach(&two, &one), "");

    // The end of one is no event for the other, in good order or not; nor is its next start.
    let levees: Vec<_> = here.iter().filter(|process| process.name.starts_with("levee-")).collect();
    two.kill_server();
    two.start_server();
    two.stop_server();
    assert!(one.fetch("ws1", PAGE).ok().contains("SECRET"));
    assert!(levees.iter().all(|process| process.runs()));
}

#[test]
fn two_servers_that_share_control_groups_and_not_run_have_no_uid_and_no_group_in_common() {
    let mut one = World::new("box", &named("port-box"), &[]);
    one.start_server();
    let site = named("port-box").replace("\"10.77.0.1\"", "\"10.77.0.2\"");
    let mut two = World::beside(&one, "cox", &site, &[]);
    // As in two containers that have the host's control groups.
    two.start_by(&["unshare", "--mount", "sh", "-c", "mount -t tmpfs none /run/levee && exec \"$@\"", "sh"]);
    let here = all(&one);
    two.start_server();
    assert!(here.iter().all(Process::runs), "the second has ended something of the first");
    let of = |world: &World| -> BTreeSet<String> {
        let things = all(world).into_iter().flat_map(|process| things(&process).into_keys());
        things.filter(|thing| thing.starts_with("uid ") || thing.starts_with("control group ")).collect()
    };
    let (ours, theirs) = (of(&one), of(&two));
    assert!(ours.len() > 8 && theirs.len() > 8, "{ours:?} {theirs:?}");
    assert_eq!(ours.intersection(&theirs).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn a_site_that_is_taken_down_leaves_nothing_and_another_can_run_after_it() {
    for name in ["port-first", "port-second"] {
        let directory;
        let all;
        {
            let world = World::up(name.trim_start_matches("port-"), &named(name), &["ws1"]);
            directory = world.path("state");
            for label in ["UNCLASSIFIED", "SECRET//NATO,MED"] {
                is_used(&world, label);
                world.tpe("ws1", &["logout"]).ok();
            }
            is_used(&world, "CONFIDENTIAL");
            all = host::below(world.server_pid());
            // Open, so that no namespace of another test's gets the number of one that is gone.
            let open = |process: &host::Process| {
                std::fs::File::open(format!("/proc/{}/ns/net", process.pid)).expect("a namespace")
            };
            let _open: Vec<std::fs::File> = all.iter().map(open).collect();
            let namespaces: Vec<String> = all.iter().map(|process| process.namespace("net")).collect();
            assert!(!host::cgroups(name).is_empty() && !host::loops(&directory).is_empty());

            world.levee(&["down", "--run", &text(&world.path("run"))]).ok();
            eventually(Duration::from_secs(5), "nothing of the server runs", || {
                all.iter().all(|process| !process.runs())
            });
            eventually(Duration::from_secs(5), "nobody is in a namespace of the server's", || {
                let left = host::namespaces("net");
                namespaces.iter().all(|namespace| !left.contains(namespace))
            });
            assert_eq!(host::cgroups(name), Vec::<String>::new());
            eventually(Duration::from_secs(5), "no image is mounted", || host::loops(&directory).is_empty());
            assert_eq!(host::mounts(&text(&directory)), Vec::<String>::new());
            world.levee(&["down", "--run", &text(&world.path("run"))]).refused();
        }
        // The workstation has been stopped as well, and the namespaces of the test are gone.
        assert!(!directory.exists());
    }
}
