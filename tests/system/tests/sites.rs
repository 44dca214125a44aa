//! Two sites on one host, at once and one after the other; and what is left when a site has been taken down.

use levee_system::host;
use levee_system::{World, eventually, text};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";

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

#[test]
fn two_sites_at_once_on_one_host_know_nothing_of_each_other() {
    let one = World::up("one", &named("port-one"), &["ws1"]);
    let mut two = World::up("two", &named("port-two"), &["ws1"]);
    is_used(&one, "SECRET//NATO,MED");
    is_used(&two, "SECRET//NATO,MED");
    let write = format!("echo of one only >/tmp/d && curl --silent --fail -T /tmp/d {PAGE}own/one.txt");
    one.run("ws1", &["sh", "-c", &write]).ok();
    assert!(one.fetch("ws1", &format!("{PAGE}own/")).ok().contains("one.txt"));
    assert!(!two.fetch("ws1", &format!("{PAGE}own/")).ok().contains("one.txt"));
    assert_eq!(one.status()["session_count"], 1);
    assert_eq!(two.status()["session_count"], 1);
    assert_eq!(one.status()["site"], "port-one");
    assert_eq!(two.status()["site"], "port-two");
    // A person of one site is nobody at the other.
    let (here, there) = (host::below(one.server_pid()), host::below(two.server_pid()));
    let uids = |all: &[host::Process]| -> std::collections::BTreeSet<String> {
        all.iter().map(|process| process.status("Uid")).collect()
    };
    assert!(uids(&here).is_disjoint(&uids(&there)), "a uid is used by both");
    // The end of one is no event for the other.
    two.stop_server();
    assert!(one.fetch("ws1", PAGE).ok().contains("SECRET"));
    assert!(here.iter().filter(|process| process.name.starts_with("levee-")).all(host::Process::runs));
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
