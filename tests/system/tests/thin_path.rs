//! The main job, whole: sign on, choose a level, use an unmodified service there, change level, sign off.

use levee_system::host::{self, Process};
use levee_system::{World, eventually, text};
use std::collections::BTreeMap;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";

fn works(world: &World) {
    world.login("ws1", "ada").ok();
    for label in ["UNCLASSIFIED", "SECRET//NATO,MED"] {
        world.level("ws1", label).ok();
        let page = world.fetch("ws1", PAGE).ok();
        assert!(page.contains(&format!("<h1>{label}</h1>")), "{page}");
    }
    world.tpe("ws1", &["logout"]).ok();
    world.run("ws1", &["true"]).refused();
}

#[test]
fn a_person_signs_on_and_uses_a_service_at_two_levels() {
    works(&World::up("thin", SITE, &["ws1"]));
}

#[test]
fn a_label_that_was_stopped_because_nobody_used_it_starts_again() {
    let world = World::up("again", SITE, &["ws1"]);
    works(&world);
    eventually(Duration::from_secs(60), "compartments without sessions are stopped", || {
        world.status()["compartments"].as_array().is_some_and(Vec::is_empty)
    });
    works(&world);
}

#[test]
fn it_is_the_same_over_ipv6_outside_and_inside_and_over_one_in_the_other() {
    let six_outside = SITE.replace("\"10.77.0.1\"", "\"fd77::1\"");
    let six_inside = |site: &str| {
        site.replace("\"10.80.0.1\"", "\"fd80::1\"").replace("\"10.80.1.0/24\"", "\"fd80:1::/64\"")
    };
    for (name, site) in [
        ("six-in-six", six_inside(&six_outside)),
        ("four-in-six", six_outside),
        ("six-in-four", six_inside(SITE)),
    ] {
        println!("{name}");
        let world = World::up(name, &site, &["ws1"]);
        world.levee(&["check", &text(&world.path("site.toml"))]).ok();
        works(&world);
    }
}

#[test]
fn labels_that_nobody_uses_hardly_wake() {
    const LABELS: [(&str, &str); 3] = [("ws1", "UNCLASSIFIED"), ("ws2", "CONFIDENTIAL"), ("ws3", "SECRET")];
    const WINDOW: Duration = Duration::from_secs(6);
    let site = SITE.replace("UNCLASSIFIED..CONFIDENTIAL//NATO,MED", "UNCLASSIFIED..SECRET//NATO,MED");
    let third = "[[host]]\nname = \"ws3\"\naccreditation = \"UNCLASSIFIED..SECRET//NATO,MED\"\n";
    let site = format!("{site}\n{third}");
    let world = World::up("asleep", &site, &["ws1", "ws2", "ws3"]);
    for (workstation, label) in LABELS {
        world.login(workstation, "ada").ok();
        world.level(workstation, label).ok();
        world.fetch(workstation, PAGE).ok();
    }
    // What belongs to labels; nobody counts those that began or ended meanwhile.
    let of_labels = || {
        let all = host::below(world.server_pid()).into_iter();
        let names = ["levee-vault", "levee-mediator", "levee-upflow", "levee-logger", "levee-init", "nginx"];
        all.filter(|process| names.contains(&process.name.as_str()))
            .map(|process| {
                let wakes: u64 = process.status("voluntary_ctxt_switches").parse().expect("a number");
                (process, wakes)
            })
            .collect::<BTreeMap<Process, u64>>()
    };
    // A document this fresh is copied twice.
    std::thread::sleep(Duration::from_secs(3));
    let before = of_labels();
    std::thread::sleep(WINDOW);
    let mut wakes: BTreeMap<String, u64> = BTreeMap::new();
    for (process, after) in of_labels() {
        *wakes.entry(process.name.clone()).or_default() +=
            before.get(&process).map_or(0, |before| after - before);
    }
    let most = 5 * WINDOW.as_secs() * LABELS.len() as u64;
    println!("{wakes:?} in {WINDOW:?}, and {most} are allowed");
    assert!(wakes.values().sum::<u64>() <= most, "{wakes:?} in {WINDOW:?}");
    assert!(wakes.len() >= 4, "{wakes:?}: whose are they?");
}
