//! A workstation that the server does not hear ends its session by its own clock, no later than the server does: no program
//! goes on at the level, and no file of it stays.

use levee_system::{World, eventually, sh, typed};
use std::process::Stdio;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";

/// A workstation at the lowest level, with a program of ada's that would run for ten minutes.
fn world(name: &str) -> (World, std::process::Child) {
    let site = SITE.replace("grace = \"30s\"", "grace = \"9s\"");
    let world = World::up(name, &site, &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    let mut program = world.tpe_command("ws1", &["run", "--", "sleep", "600"]);
    let program = program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually(Duration::from_secs(10), "the program runs", || !inside(&world).is_empty());
    (world, program)
}

/// Programs of the person that run at the workstation: by number, of the name `sleep`, below its warden.
fn inside(world: &World) -> Vec<u32> {
    let mut found: Vec<u32> = world.workstation_pids().collect();
    let mut at = 0;
    while let Some(parent) = found.get(at) {
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        found.extend(
            children.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()),
        );
        at += 1;
    }
    found.retain(|pid| comm(*pid) == "sleep");
    found
}

fn comm(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

#[test]
fn a_workstation_whose_cable_is_out_purges_its_session_no_later_than_the_server_ends_it() {
    let (world, mut program) = world("cable");
    world.outside("ws1", "ip", &["link", "set", "outer", "down"]).ok();
    eventually(Duration::from_secs(30), "the program is ended", || program.try_wait().unwrap().is_some());
    assert!(inside(&world).is_empty());
    // The server's time began when it missed the workstation, which is later.
    assert_eq!(world.status()["sessions"].as_array().unwrap().len(), 1, "{}", world.status());
    world.run("ws1", &["true"]).refused();
    let said = world.tpe("ws1", &["status"]).ok();
    assert!(said.contains("longer than"), "{said}");
    // The cable is back: what is over is over, and a new session can be had.
    world.outside("ws1", "ip", &["link", "set", "outer", "up"]).ok();
    eventually(Duration::from_secs(30), "signed on again", || world.login("ws1", "ada").status == 0);
    world.level("ws1", LOW).ok();
}

#[test]
fn a_session_ends_though_the_agent_that_should_have_ended_it_hangs() {
    let (world, mut program) = world("hangs");
    let wardens: Vec<u32> = world.workstation_pids().collect();
    let warden = wardens[0];
    let children = std::fs::read_to_string(format!("/proc/{warden}/task/{warden}/children")).unwrap();
    let mut agents = children.split_whitespace().filter(|pid| comm(pid.parse().unwrap()) == "levee-tpe");
    let agent = agents.next().expect("an agent");
    sh("kill", &["-STOP", agent]).ok();
    eventually(Duration::from_secs(30), "the program is ended", || inside(&world).is_empty());
    sh("kill", &["-CONT", agent]).ok();
    eventually(Duration::from_secs(10), "its person hears of it", || program.try_wait().unwrap().is_some());
    world.run("ws1", &["true"]).refused();
}

#[test]
fn who_guesses_at_a_locked_session_does_not_have_its_workstation_take_the_server_for_gone() {
    let (world, mut program) = world("guesses");
    world.tpe("ws1", &["lock"]).ok();
    // After a few each waits twice as long as the one before, and the workstation keeps its session for nine seconds without an answer.
    for guess in 0..12 {
        let mut unlock = world.tpe_command("ws1", &["unlock", "--password-stdin"]);
        typed(&mut unlock, "a guess at it").refused();
        assert!(program.try_wait().unwrap().is_none() && !inside(&world).is_empty(), "guess {guess}");
        std::thread::sleep(Duration::from_secs(1));
    }
    assert_eq!(world.status()["sessions"][0]["locked"], true);
}
