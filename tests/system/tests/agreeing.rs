//! A label whose stacks must agree, run by the real programs as an operator would run them.

use levee_system::host::{self, Process};
use levee_system::{World, eventually, text};
use std::net::Ipv4Addr;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
const LABEL: &str = "SECRET//NATO,MED";

/// The process of this name below the server's warden.
fn process(world: &World, name: &str) -> Option<Process> {
    host::below(world.server_pid()).into_iter().find(|process| process.name == name)
}

fn audit(world: &World) -> String {
    world.levee(&["audit", "show", "--state", &text(&world.path("state"))]).ok()
}

#[test]
fn a_label_whose_stacks_must_agree_serves_its_sessions_outlives_each_of_the_three_and_alarms_when_one_is_wrong()
 {
    let site = SITE.replace("\"harbour\"", "\"port-agree\"");
    let site = site.replace("agree = []", "agree = [\"SECRET..SECRET//NATO,MED\"]");
    assert_ne!(site, SITE.replace("\"harbour\"", "\"port-agree\""), "the example site names the key");
    let world = World::up("agree", &site, &["ws1", "ws2"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LABEL).ok();
    world.login("ws2", "mia").ok();
    world.level("ws2", "CONFIDENTIAL//MED").ok();
    assert!(
        world.fetch("ws1", PAGE).ok().contains("<title>SECRET//NATO,MED</title>"),
        "the page of its label"
    );
    let counters = |label: &str| world.status()["vaults"][label]["counters"].clone();
    let here = counters(LABEL);
    assert_eq!(here["disagreed"], 0, "{here}");
    assert!(here["packets-in"].as_u64() > Some(3) && here["packets-out"].as_u64() > Some(3), "{here}");
    // The other label has one vault, with nobody to agree with.
    assert!(counters("CONFIDENTIAL//MED").get("disagreed").is_none());
    let names = || -> Vec<String> {
        let ours = ["levee-gate", "levee-vault", "levee-witness"];
        let mut names: Vec<String> = host::below(world.server_pid()).into_iter().map(|p| p.name).collect();
        names.retain(|name| ours.contains(&name.as_str()));
        names.sort();
        names
    };
    assert_eq!(names(), ["levee-gate", "levee-vault", "levee-vault", "levee-witness"]);
    // One that hangs ends neither when it is asked nor with its gate.
    for (victim, signal) in [("levee-witness", "KILL"), ("levee-gate", "KILL"), ("levee-witness", "STOP")] {
        let before = process(&world, victim).expect("it runs");
        before.signal(signal);
        eventually(Duration::from_secs(60), "the page comes again", || world.fetch("ws1", PAGE).status == 0);
        let after = process(&world, victim).expect("it runs again");
        assert!(!before.runs() && after.pid != before.pid);
        assert_eq!(names(), ["levee-gate", "levee-vault", "levee-vault", "levee-witness"]);
    }
    // The other label has noticed nothing.
    world.fetch("ws2", PAGE).ok();
    eventually(Duration::from_secs(20), "the end of a stack is in the audit log", || {
        let log = audit(&world);
        log.contains("redundant stacks") && log.contains("the second one ended (killed by signal 9)")
    });

    // One stack comes to hold another address for the session's, as a fault in memory might have it.
    let own = world.run("ws1", &["ip", "-4", "-o", "address", "show", "levee0"]).ok();
    let own = own.split("inet ").nth(1).and_then(|rest| rest.split(['/', ' ']).next()).expect("an address");
    let own: Ipv4Addr = own.parse().expect("an address");
    let [a, b, c, d] = own.octets();
    let witness = process(&world, "levee-witness").expect("it runs");
    assert!(witness.overwrite(&[a, b, c, d], &[a, b, c, d ^ 0x40]) > 0, "it knows the session's address");
    let passed = counters(LABEL)["packets-in"].clone();
    world.run("ws1", &["curl", "--silent", "--max-time", "2", PAGE]).refused();
    let status = || world.levee(&["status", "--run", &text(&world.path("run"))]).ok();
    let alarm = format!("ALARM: the redundant stacks at {LABEL} disagreed about");
    assert!(status().starts_with(&alarm), "{}", status());
    let here = counters(LABEL);
    assert!(here["disagreed"].as_u64() > Some(0), "{here}");
    assert!(here["packets-in"].as_u64() >= passed.as_u64(), "the gate and its stacks are those that were");
    eventually(Duration::from_secs(20), "the disagreement is in the audit log", || {
        audit(&world).contains("they disagreed about")
    });
    assert!(witness.runs(), "no stack ended over it");
    world.fetch("ws2", PAGE).ok();
    world.tpe("ws1", &["logout"]).ok();
}
