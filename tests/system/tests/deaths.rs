//! Processes that are killed without warning while the traffic of three labels flows.

use levee_system::host::{self, Process};
use levee_system::senders::{MORE, now, start, stop};
use levee_system::{World, eventually, sh, text};
use std::process::Command;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";

/// Who is where.
const SESSIONS: [(&str, &str, &str); 3] =
    [("ws1", "ada", "SECRET//NATO,MED"), ("ws2", "mia", "CONFIDENTIAL//MED"), ("ws3", "ugo", "UNCLASSIFIED")];

/// Every session's workstation, and its label.
fn everywhere() -> [(&'static str, &'static str); 3] {
    SESSIONS.map(|(workstation, _, label)| (workstation, label))
}

fn with_sessions(name: &str, slots: u16) -> World {
    let site = format!("{}{MORE}", SITE.replace("\"harbour\"", &format!("\"port-{name}\"")));
    let site = site.replace("slots = 64", &format!("slots = {slots}"));
    let world = World::up(name, &site, &["ws1", "ws2", "ws3"]);
    for (workstation, user, label) in SESSIONS {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
    }
    world
}

/// The sessions' names, as an operator sees them.
fn sessions(world: &World) -> Vec<String> {
    let status = world.status();
    let rows = status["sessions"].as_array().expect("sessions").iter();
    let mut names: Vec<String> = rows.map(|row| row["id"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names
}

fn vault(world: &World, label: &str) -> Process {
    let status = world.status();
    let all = status["compartments"].as_array().expect("compartments");
    let this = all.iter().find(|row| row["label"] == label).expect("the label runs");
    let pid = this["vault"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process number");
    Process::find(pid).expect("the vault runs")
}

#[test]
fn a_killed_vault_costs_its_own_label_a_moment_and_the_others_no_packet() {
    let world = with_sessions("vault", 64);
    let senders = start(&world, everywhere());
    let before = sessions(&world);
    assert_eq!(before.len(), 3);
    let victim = SESSIONS[1].2;
    let process = vault(&world, victim);
    let killed = now();
    process.kill();
    eventually(Duration::from_secs(10), "another vault runs", || {
        let status = world.status();
        let all = status["compartments"].as_array().cloned().unwrap_or_default();
        let this = all.iter().find(|row| row["label"] == victim);
        this.is_some_and(|row| row["vault"] != process.pid && row["vault"] != 0)
            && status["vaults"][victim]["sa_count"].as_u64().is_some_and(|count| count > 0)
    });
    std::thread::sleep(Duration::from_secs(3));
    let over = now();
    for (label, lost) in stop(senders) {
        if label == victim {
            let last = lost.last().copied().unwrap_or(killed);
            println!("{label} was back {:.0} ms after its vault was killed", (last - killed) * 1e3);
            assert!(lost.iter().all(|at| *at > killed - 0.5), "{lost:?}");
            assert!(last < over - 1.0, "it never came back: {lost:?}");
        } else {
            assert!(
                lost.is_empty(),
                "{label} lost packets, so many seconds after the kill: {:?}",
                lost.iter().map(|at| at - killed).collect::<Vec<_>>()
            );
        }
    }
    assert_eq!(sessions(&world), before);
}

#[test]
fn no_label_loses_a_packet_when_any_process_but_a_vault_is_killed_and_sessions_survive() {
    let world = with_sessions("daemon", 64);
    let senders = start(&world, everywhere());
    let before = sessions(&world);
    let warden = world.server_pid();
    let standing = ["levee-keyer", "levee-tps", "levee-signer", "levee-sessiond"];
    // Each label that another could read has a first stage of upflow, and those that dominate others a second one.
    let stages = host::children(warden, "levee-upflow");
    assert_eq!(stages.len(), 4);
    let victims: Vec<Process> =
        standing.map(|name| host::child(warden, name)).into_iter().chain(stages).collect();
    let mut kills = Vec::new();
    for process in &victims {
        let name = process.name.as_str();
        let before_it = host::children(warden, name).len();
        kills.push((name, now()));
        process.kill();
        eventually(Duration::from_secs(10), "it is started again", || {
            // As many of them as before, and it is not among them.
            let now = host::children(warden, name);
            now.len() == before_it && !now.contains(process)
        });
        // sessiond, who answers, may be the one.
        let status = ["status", "--json", "--run", &text(&world.path("run"))].map(ToOwned::to_owned);
        let status: Vec<&str> = status.iter().map(String::as_str).collect();
        eventually(Duration::from_secs(10), "the server answers", || world.levee(&status).status == 0);
        assert_eq!(sessions(&world), before, "after the death of {name}");
    }
    eventually(Duration::from_secs(20), "every workstation's trusted path is up again", || {
        let status = world.status();
        let rows = status["sessions"].as_array().cloned().unwrap_or_default();
        rows.len() == 3 && rows.iter().all(|row| row["attached"] == true)
    });
    for (label, lost) in stop(senders) {
        let when: Vec<String> = lost
            .iter()
            .filter_map(|at| {
                let (name, killed) = kills.iter().rev().find(|(_, killed)| *killed <= at + 0.05)?;
                Some(format!("{:.2} s after {name}", at - killed))
            })
            .collect();
        assert!(lost.is_empty(), "{label} lost {} packets: {when:?}", lost.len());
    }
    // Every one of them does its work again: people sign on, change level, have keys agreed, and sign off.
    let (workstation, user, _) = SESSIONS[0];
    world.level(workstation, "CONFIDENTIAL").ok();
    assert!(world.fetch(workstation, PAGE).ok().contains("CONFIDENTIAL"));
    world.tpe(workstation, &["logout"]).ok();
    world.login(workstation, user).ok();
    world.level(workstation, "SECRET").ok();
    assert!(world.fetch(workstation, PAGE).ok().contains("SECRET"));
    world.levee(&["audit", "verify", "--state", &text(&world.path("state"))]).ok();
}

/// Packets, both ways, of a label's pairs of associations.
fn lanes(world: &World, label: &str) -> Vec<(u64, u64)> {
    let status = world.status();
    let rows = status["vaults"][label]["sas"].as_array().cloned().unwrap_or_default();
    let count = |row: &serde_json::Value, name: &str| row[name].as_u64().expect("a number");
    rows.iter().map(|row| (count(row, "packets_received"), count(row, "packets_sent"))).collect()
}

#[test]
fn two_workers_share_a_labels_sessions_die_together_come_back_and_are_both_cut() {
    let site = format!("{}{MORE}", SITE.replace("\"harbour\"", "\"port-work\""));
    let site = site.replace("workers = 1", "workers = 2");
    let world = World::up("work", &site, &["ws1", "ws2", "ws3"]);
    let both = "UNCLASSIFIED";
    for (workstation, user, label) in
        [("ws1", "ada", both), ("ws3", "ugo", both), ("ws2", "mia", "CONFIDENTIAL//MED")]
    {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
    }
    let warden = world.server_pid();
    let vaults = || -> Vec<Process> {
        let all = host::below(warden).into_iter().filter(|process| process.name == "levee-vault");
        all.collect()
    };
    assert_eq!(vaults().len(), 4, "two labels, two workers each");
    let senders = start(&world, ["ws1", "ws3", "ws2"].map(|workstation| (workstation, workstation)));

    // Each session is at a worker of its own.
    eventually(Duration::from_secs(10), "both sessions' packets pass", || {
        lanes(&world, both).iter().filter(|(there, back)| *there > 0 && *back > 0).count() == 2
    });
    // An idle worker is woken by nothing but questions for its status; 50 packets a second wake one that is not.
    let woken =
        |process: &Process| process.status("voluntary_ctxt_switches").parse::<u64>().expect("a number");
    let all = vaults();
    let before_moment: Vec<u64> = all.iter().map(woken).collect();
    eventually(Duration::from_secs(10), "each worker of a label with two sessions has one of them", || {
        let busy = all.iter().zip(&before_moment).filter(|(process, before)| woken(process) > *before + 20);
        busy.count() >= 3
    });

    // One worker dies: its vault does, and comes back whole; the other label notices nothing.
    let first = vault(&world, both);
    let before = sessions(&world);
    let killed = now();
    first.kill();
    // (Which worker has which session now depends on which of them the keyer had back when the keys were asked for.)
    eventually(Duration::from_secs(60), "both workers are back, and both sessions have keys", || {
        let busy = lanes(&world, both).into_iter().filter(|(there, back)| *there > 0 && *back > 0);
        vaults().len() == 4 && busy.count() >= 2
    });
    std::thread::sleep(Duration::from_secs(2));
    let over = now();
    for (workstation, lost) in stop(senders) {
        if workstation == "ws2" {
            assert!(lost.is_empty(), "the other label lost packets: {lost:?}");
            continue;
        }
        let last = lost.last().copied().unwrap_or(killed);
        println!("{workstation} was back {:.0} ms after a worker was killed", (last - killed) * 1e3);
        assert!(lost.iter().all(|at| *at > killed - 0.5), "{lost:?}");
        assert!(last < over - 1.0, "it never came back: {lost:?}");
    }
    assert_eq!(sessions(&world), before);

    // What ends, ends at both.
    for workstation in ["ws1", "ws3"] {
        assert!(world.fetch(workstation, PAGE).ok().contains(both));
        world.tpe(workstation, &["logout"]).ok();
        world.fetch(workstation, PAGE).refused();
    }
    assert!(lanes(&world, both).is_empty());
    assert!(world.fetch("ws2", PAGE).ok().contains("CONFIDENTIAL"));
}

/// What a process that was taken over might try: to move the steering, or to get out.
const FORBIDDEN: [&str; 7] = [
    "setsockopt SO_ATTACH_REUSEPORT_CBPF",
    "setsockopt SO_DETACH_REUSEPORT_BPF",
    "connect",
    "bind",
    "shutdown",
    "ioctl",
    "ptrace",
];

#[test]
fn a_vault_or_keyer_that_makes_a_forbidden_call_dies_and_steering_is_unmoved() {
    let world = with_sessions("forbid", 64);
    let victim = SESSIONS[1].2;
    let others = start(&world, everywhere().into_iter().filter(|(_, label)| *label != victim));
    let inject = world.path("inject.py");
    std::fs::write(&inject, include_str!("../src/inject.py")).expect("write inject.py");
    let before = sessions(&world);
    let warden = world.server_pid();
    for call in FORBIDDEN {
        let victims = [vault(&world, victim), host::child(warden, "levee-keyer")];
        for process in &victims {
            let came = sh("python3", &[&text(&inject), &process.pid.to_string(), call]).ok();
            assert_eq!(came.trim(), "killed by signal 31", "{call} by {}", process.name);
        }
        eventually(Duration::from_secs(10), "both are dead and others run in their places", || {
            let all = host::below(warden);
            let others = |of: &Process| all.iter().any(|one| one.name == of.name && one.pid != of.pid);
            victims.iter().all(|process| !process.runs() && others(process))
        });
        eventually(Duration::from_secs(20), "what arrives reaches its own label", || {
            SESSIONS.iter().all(|(workstation, _, label)| world.fetch(workstation, PAGE).out.contains(label))
        });
    }
    for (label, lost) in stop(others) {
        assert!(lost.is_empty(), "{label} lost {} packets", lost.len());
    }
    assert_eq!(sessions(&world), before);
}

#[test]
fn when_the_warden_is_killed_nothing_runs_on_and_the_sessions_are_there_after_a_start() {
    // No more slots than labels, so that after the start each meets what the last run left of it.
    let mut world = with_sessions("warden", 3);
    for (workstation, _, label) in SESSIONS {
        assert!(world.fetch(workstation, PAGE).ok().contains(label));
    }
    let before = sessions(&world);
    assert_eq!(before.len(), 3);
    let all = host::below(world.server_pid());
    let named = |name: &str| all.iter().filter(|process| process.name == name).count();
    assert!(named("nginx") >= 3 && named("levee-vault") == 3, "{all:#?}");
    // The namespaces of labels, where their TUN devices are.
    let inside: Vec<String> = all
        .iter()
        .filter(|process| process.name == "nginx")
        .map(|process| process.namespace("net"))
        .collect();

    world.kill_server();
    eventually(Duration::from_secs(5), "nothing of the server runs", || {
        all.iter().all(|process| !process.runs())
    });
    let left = host::namespaces("net");
    assert!(inside.iter().all(|namespace| !left.contains(namespace)));
    for group in host::cgroups("port-warden") {
        let file = std::path::Path::new(&group).join("cgroup.procs");
        let held = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(held.trim().is_empty(), "{group} holds {held}");
    }
    world.fetch("ws1", PAGE).refused();

    world.start_server();
    assert_eq!(sessions(&world), before);
    eventually(Duration::from_secs(30), "every session is used again", || {
        SESSIONS.iter().all(|(workstation, _, label)| world.fetch(workstation, PAGE).out.contains(label))
    });
    assert_eq!(sessions(&world), before);
    world.levee(&["audit", "verify", "--state", &text(&world.path("state"))]).ok();
}

#[test]
fn every_process_but_the_warden_is_confined_unprivileged_and_has_a_uid_of_its_own() {
    let world = World::up("apart", &SITE.replace("\"harbour\"", "\"port-apart\""), &["ws1"]);
    world.login("ws1", "ada").ok();
    for label in ["SECRET//NATO,MED", "UNCLASSIFIED"] {
        world.level("ws1", label).ok();
        world.fetch("ws1", PAGE).ok();
    }
    // A stage of upflow may have been begun just now: until it has confined itself, it has read nothing.
    let mut all = Vec::new();
    eventually(Duration::from_secs(30), "whatever was begun has confined itself", || {
        all = host::below(world.server_pid());
        all.iter().filter(|process| is_one_of_ours(process)).all(Process::is_filtered)
    });
    let count = |name: &str| all.iter().filter(|process| process.name == name).count();
    for name in ["levee-signer", "levee-sessiond", "levee-keyer", "levee-tps"] {
        assert!(count(name) >= 1, "no {name} in {all:#?}");
    }
    // The level that was left lingers.
    assert_eq!(count("levee-vault"), 2, "{all:#?}");
    let mut uids = std::collections::BTreeMap::new();
    for process in &all {
        let Some(role) = process.name.strip_prefix("levee-") else { continue };
        if role == "init" {
            // It starts a compartment's programs with uids of their own, as root of a user namespace.
            assert_ne!(process.namespace("user"), own("user"));
            continue;
        }
        println!("{:<15} pid {:>7} uid {:>10}", process.name, process.pid, uid(process));
        assert_eq!(process.status("Seccomp"), "2", "{process:?}");
        assert_eq!(process.status("NoNewPrivs"), "1", "{process:?}");
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
            assert_eq!(process.status(set), "0000000000000000", "{set} of {process:?}");
        }
        assert!(uid(process) >= 0x8000_0000, "{process:?} has uid {}", uid(process));
        assert_ne!(process.namespace("net"), own("net"), "{process:?}");
        // tps's children have its uid: they are told apart by their channels.
        if let Some(other) = uids.insert(uid(process), process.name.clone()) {
            assert_eq!((other.as_str(), role), ("levee-tps", "tps"), "{process:?} shares a uid with {other}");
        }
    }
}

/// Whether this is a process of levee's with one job; levee-init starts others.
fn is_one_of_ours(process: &Process) -> bool {
    process.name.starts_with("levee-") && process.name != "levee-init"
}

/// The real uid; all four must be one.
fn uid(process: &Process) -> u32 {
    let line = process.status("Uid");
    let uids: Vec<u32> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(uids.len() == 4 && uids.iter().all(|uid| *uid == uids[0]), "{process:?}: {line}");
    uids[0]
}

fn own(kind: &str) -> String {
    Process::find(std::process::id()).expect("this process").namespace(kind)
}

#[test]
fn a_password_is_replaced_where_a_server_was_killed_and_left_its_socket() {
    let world = World::up("left", SITE, &["ws1"]);
    let (site, state, run) =
        (text(&world.path("site.toml")), text(&world.path("state")), text(&world.path("run")));
    let replace = || {
        let mut levee = Command::new(levee_system::programs().join("levee"));
        levee.args(["user", "passwd", &site, "ada", "--state", &state, "--run", &run]);
        levee_system::typed(&mut levee, "another horse").ok()
    };
    assert_eq!(replace(), "ada: password replaced; the audit log says so\n");
    sh("kill", &["-KILL", &world.server_pid().to_string()]).ok();
    eventually(Duration::from_secs(10), "the server is gone", || replace() == "ada: password replaced\n");
    assert!(world.path("run/control").exists(), "what a killed server leaves");
}

#[test]
fn who_is_told_of_hundreds_of_things_before_it_reads_one_is_not_taken_for_deaf() {
    let mut world = World::up("told", SITE, &[]);
    let sessiond = || {
        let mut below = host::below(world.server_pid()).into_iter();
        below.find(|process| process.name == "levee-sessiond").expect("it runs")
    };
    let before = sessiond();
    before.signal("STOP");
    let warden = world.server_pid().to_string();
    // Of each the warden has something in the log.
    for _ in 0..400 {
        sh("kill", &["-USR1", &warden]).ok();
        std::thread::sleep(Duration::from_millis(5));
    }
    before.signal("CONT");
    world.status();
    assert_eq!(sessiond().pid, before.pid);
    world.stop_server();
}
