//! The posture is changed while sessions at two levels carry traffic: every tunnel has new keys, and nothing is lost.

use levee_system::swan::{Offers, Peer, Swan, child};
use levee_system::{Done, World, eventually, host, sh, text};
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SITE: &str = concat!(
    include_str!("../../../conf/small/site.toml"),
    r#"
[[posture]]
name = "siege"
ciphers = ["chacha20-poly1305"]
follow = "20s"
[[posture]]
name = "alert"
labels = ["UNCLASSIFIED"]
ciphers = ["aes-128-gcm"]
follow = "20s"
[[posture]]
name = "curve"
exchanges = ["P-384"]
follow = "20s"
[[posture]]
name = "quantum"
ml-kem = true
follow = "3s"
[[posture]]
name = "even"
labels = ["CONFIDENTIAL..SECRET//NATO,MED"]
constant-rate = true
follow = "20s"
[[posture]]
name = "both"
labels = ["CONFIDENTIAL..SECRET//NATO,MED"]
constant-rate = true
ciphers = ["chacha20-poly1305"]
follow = "20s"
[[posture]]
name = "packed"
labels = ["UNCLASSIFIED", "CONFIDENTIAL..SECRET//NATO,MED"]
aggfrag = true
follow = "20s"
[[posture]]
name = "quiet"
services = ["orders"]
[[posture]]
name = "dark"
labels = ["SECRET//NATO,MED"]
services = []
[[posture]]
name = "few"
people = ["mia"]
[[service]]
name = "orders"
port = 8080
protocol = "tcp"
range = "CONFIDENTIAL//MED..SECRET//NATO,MED"
mode = "relay"
program = "nginx"
[[posture]]
name = "two"
labels = ["SECRET//NATO,MED"]
agree = true
ciphers = ["chacha20-poly1305"]
follow = "20s"
[[posture]]
name = "again"
labels = ["SECRET//NATO,MED"]
agree = true
ciphers = ["aes-128-gcm"]
follow = "20s"
[[posture]]
name = "many"
labels = ["SECRET//NATO,MED"]
workers = 3
follow = "20s"
[[posture]]
name = "swift"
ciphers = ["chacha20-poly1305"]
follow = "3s"
"#
);
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//NATO,MED";
const OTHER: &str = "CONFIDENTIAL//MED";
const PAGE: &str = "http://www.harbour.example/";
const ORDERS: &str = "http://www.harbour.example:8080/";

fn posture(world: &World, arguments: &[&str]) -> Done {
    let run = text(&world.path("run"));
    world.levee(&[&["posture"], arguments, &["--run", &run]].concat())
}

fn audit(world: &World) -> String {
    world.levee(&["audit", "show", "--state", &text(&world.path("state"))]).ok()
}

/// The suites of every pair at a label.
fn suites(status: &Value, label: &str) -> Vec<String> {
    let sas = status["vaults"][label]["sas"].as_array().into_iter().flatten();
    sas.map(|sa| sa["suite"].as_str().expect("a suite").to_owned()).collect()
}

/// How packets go under every pair at a label: whether in AGGFRAG payloads, and at which constant rate.
fn carried(world: &World, label: &str) -> Vec<(bool, Option<f64>)> {
    let status = world.status();
    let sas = status["vaults"][label]["sas"].as_array().into_iter().flatten();
    sas.map(|sa| (sa["aggfrag"].as_bool().expect("said"), sa["interval_ms"].as_f64())).collect()
}

/// Every packet that a vault could not open, or let through.
fn lost(world: &World, label: &str) -> u64 {
    let counters = world.status()["vaults"][label]["counters"].clone();
    let names = ["unknown-spi", "auth-failed", "replay", "selector", "no-session", "no-sa", "malformed"];
    names.iter().filter_map(|name| counters[*name].as_u64()).sum()
}

/// A file goes to the label's own store and comes back the same, again and again until it is over.
fn carry(world: &World, workstation: &str, over: &AtomicBool, rounds: &AtomicU64) {
    let there_and_back = format!(
        "head -c 400000 /dev/urandom >/tmp/a && curl --silent --show-error --fail --max-time 30 -T /tmp/a {PAGE}own/a && \
         curl --silent --show-error --fail --max-time 30 --output /tmp/b {PAGE}own/a && cmp /tmp/a /tmp/b"
    );
    while !over.load(Ordering::Relaxed) {
        world.run(workstation, &["sh", "-c", &there_and_back]).ok();
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// What a posture would change is shown before, by label and session, and changes nothing.
fn planned_is_only_shown(world: &World) {
    let plan = |name: &str| posture(world, &["plan", name, "--json"]);
    let outcomes = |name: &str| {
        let plan: Value = serde_json::from_str(&plan(name).ok()).expect("JSON");
        let sessions = plan["sessions"].as_array().expect("sessions").clone();
        assert!(
            sessions.iter().all(|session| session["now"] == serde_json::json!(["aes-256-gcm"])),
            "{plan}"
        );
        sessions.iter().map(|session| session["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = audit(world);
    assert_eq!(outcomes("siege"), ["new-cipher", "new-cipher"]);
    // By the same cipher, and every pair of keys is agreed anew.
    assert_eq!(outcomes("curve"), ["new-keys", "new-keys"]);
    assert!(posture(world, &["plan", "quantum"]).ok().contains("P-384 with ML-KEM"));
    // It does not name their labels.
    assert_eq!(outcomes("alert"), ["stays", "stays"]);
    let all = "siege alert curve quantum even both packed quiet dark few two again many swift default";
    assert!(plan("seige").refused().contains(all));
    let words = posture(world, &["plan", "siege"]).ok();
    assert!(words.contains("new keys by another cipher") && words.contains("20.0 s"), "{words}");
    assert!(posture(world, &["show"]).ok().contains("default"));
    assert_eq!(audit(world).matches("posture").count(), before.matches("posture").count());
}

#[test]
fn two_levels_in_traffic_change_their_ciphers_and_change_back_without_losing_a_packet() {
    let mut world = World::up("posture", SITE, &["ws1", "ws2"]);
    for (workstation, user, label) in [("ws1", "ada", HIGH), ("ws2", "mia", OTHER)] {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
        assert!(world.fetch(workstation, PAGE).ok().contains(label));
        assert_eq!(suites(&world.status(), label), ["aes-256-gcm"]);
    }
    planned_is_only_shown(&world);
    let (over, rounds) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    std::thread::scope(|scope| {
        for (workstation, rounds) in ["ws1", "ws2"].into_iter().zip(&rounds) {
            let (world, over) = (&world, &over);
            scope.spawn(move || carry(world, workstation, over, rounds));
        }
        // However it ends, the threads do.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for (name, suite) in
                [("siege", "chacha20-poly1305"), ("curve", "aes-256-gcm"), ("default", "aes-256-gcm")]
            {
                let before: u64 = rounds.iter().map(|one| one.load(Ordering::Relaxed)).sum();
                let said = posture(&world, &["set", name, "--reason", "a drill"]).ok();
                assert!(said.contains("no tunnel has keys from before"), "{said}");
                let status = world.status();
                for label in [HIGH, OTHER] {
                    let suites = suites(&status, label);
                    assert!(
                        !suites.is_empty() && suites.iter().all(|one| one == suite),
                        "{name}: {suites:?}"
                    );
                }
                eventually(Duration::from_secs(60), "files go to and fro", || {
                    rounds.iter().map(|one| one.load(Ordering::Relaxed)).sum::<u64>() > before + 2
                });
            }
        }));
        over.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
    assert!(rounds.iter().all(|rounds| rounds.load(Ordering::Relaxed) > 0));
    for label in [HIGH, OTHER] {
        assert_eq!(lost(&world, label), 0, "{label}: {}", world.status()["vaults"][label]["counters"]);
    }
    assert_eq!(world.status()["session_count"], 2);
    let log = audit(&world);
    assert!(log.contains("a drill") && log.contains("every session followed"), "{log}");

    // It ends by itself, or stays over a restart.
    posture(&world, &["set", "siege", "--for", "5s"]).ok();
    eventually(Duration::from_secs(60), "the posture is over", || {
        let status = world.status();
        status["postures"].as_array().is_some_and(Vec::is_empty) && status["moving"] == false
    });
    assert!(audit(&world).contains("the time of siege is over"));
    posture(&world, &["set", "seige"]).refused();
    posture(&world, &["set", "siege"]).ok();
    world.kill_server();
    world.start_server();
    assert!(posture(&world, &["show"]).ok().contains("siege"));
    let shown: serde_json::Value = serde_json::from_str(&posture(&world, &["show", "--json"]).ok()).unwrap();
    assert_eq!((&shown[0]["name"], &shown[0]["seconds"]), (&"siege".into(), &serde_json::Value::Null));
    let history = world.levee(&["posture", "history", "--json", "--state", &text(&world.path("state"))]).ok();
    let history: Vec<Value> = history.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(
        history.len() >= 5 && history.iter().all(|record| record["event"]["action"] == "posture"),
        "{history:?}"
    );
    let verify = world.levee(&["audit", "verify", "--json", "--state", &text(&world.path("state"))]);
    assert!(verify.out.contains("\"checkpoints\""), "{}{}", verify.out, verify.err);
}

#[test]
fn tunnels_in_traffic_begin_to_go_at_a_constant_rate_and_end_to_and_who_comes_meanwhile_has_it() {
    let world = World::up("rate", SITE, &["ws1", "ws2"]);
    for (workstation, user, label) in [("ws1", "ada", HIGH), ("ws2", "mia", LOW)] {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
    }
    let plan = |name: &str| {
        let plan = posture(&world, &["plan", name, "--json"]).ok();
        let plan: Value = serde_json::from_str(&plan).expect("JSON");
        let sessions = plan["sessions"].as_array().expect("sessions").clone();
        let of = |label: &str| {
            sessions.iter().find(|one| one["label"] == label).expect("listed")["outcome"].clone()
        };
        (of(HIGH), of(LOW))
    };
    assert_eq!(plan("even"), ("new-keys".into(), "stays".into()));
    assert_eq!(plan("packed"), ("new-keys".into(), "new-keys".into()));
    let (over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| carry(&world, "ws1", &over, &rounds));
        let after = |count: u64| {
            let until = rounds.load(Ordering::Relaxed) + count;
            eventually(Duration::from_secs(60), "files go on", || rounds.load(Ordering::Relaxed) >= until);
        };
        after(2);
        posture(&world, &["set", "even", "--reason", "a drill"]).ok();
        after(2);
        // Also with another cipher at once; and in AGGFRAG payloads as they come.
        let (each, even, packed) = ((false, None), (true, Some(4.0)), (true, None));
        for (name, expected) in [
            ("default", each),
            ("both", even),
            ("packed", packed),
            ("default", each),
            ("packed", packed),
            ("even", even),
        ] {
            posture(&world, &["set", name]).ok();
            let is_so = || {
                let carried = carried(&world, HIGH);
                !carried.is_empty() && carried.iter().all(|one| *one == expected)
            };
            // Who is late with AGGFRAG payloads has other keys first.
            assert!(name == "packed" || is_so(), "{name}: {:?}", carried(&world, HIGH));
            eventually(Duration::from_secs(20), "packets go so", is_so);
            after(2);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(lost(&world, HIGH), 0, "{}", world.status()["vaults"][HIGH]["counters"]);
    assert_eq!(plan("even"), ("stays".into(), "stays".into()));
    // At the other label the one that was set before it counts.
    assert_eq!(plan("default"), ("new-keys".into(), "new-keys".into()));
    // 250 a second were 500; a busy host sends fewer. At a label that the posture does not name they leave as they come.
    assert!(world.idle("ws1") > 150 && world.idle("ws2") < 100);
    // Who comes now has it from the beginning.
    world.level("ws2", OTHER).ok();
    assert!(world.fetch("ws2", PAGE).ok().contains(OTHER));
    assert!(world.idle("ws2") > 150);
    posture(&world, &["set", "default"]).ok();
    for (workstation, label) in [("ws1", HIGH), ("ws2", OTHER)] {
        assert!(world.idle(workstation) < 100, "{workstation}");
        assert!(world.fetch(workstation, PAGE).ok().contains(label));
    }
}

#[test]
fn strongswan_follows_to_a_cipher_that_it_has_and_is_cut_where_it_has_none() {
    let mut world = World::new("follow", SITE, &["ws1"]);
    world.leave_tunnel_to_others("ws1");
    world.start_server();
    world.start_workstation("ws1");
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    let both = Peer { id: "ws1", offers: Offers::TwoCurves, ..Peer::default() };
    let swan = Swan::as_peer(&world, "ws1", &[LOW], &both);
    swan.initiate(&child(LOW)).unwrap_or_else(|e| panic!("no child: {e}"));
    eventually(Duration::from_secs(20), "the first child is replaced", || {
        let sas = swan.sas();
        sas.contains("AES_GCM_16-256/CURVE_25519") && sas.matches("INSTALLED").count() == 1
    });
    let fetch = || {
        let url = ["--silent", "--show-error", "--fail", "--max-time", "5", "http://10.80.0.1/"];
        world.outside("ws1", "curl", &url)
    };
    assert!(fetch().ok().contains(LOW));
    posture(&world, &["set", "alert"]).ok();
    assert_eq!(suites(&world.status(), LOW), ["aes-128-gcm"]);
    let sas = swan.sas();
    assert!(sas.contains("AES_GCM_16-128/CURVE_25519"), "{sas}");
    assert!(
        sas.contains("ESTABLISHED") && sas.contains("AES_GCM_16-128/PRF_HMAC_SHA2_384"),
        "IKE's own: {sas}"
    );
    assert!(fetch().ok().contains(LOW));

    // It knows no AGGFRAG payloads: it gets new keys, and its packets go as before.
    posture(&world, &["set", "packed"]).ok();
    assert_eq!(carried(&world, LOW), [(false, None)]);
    assert!(fetch().ok().contains(LOW));

    // Its IKE SA was agreed by another curve: it gets other keys first, and then its child does.
    posture(&world, &["set", "curve"]).ok();
    let sas = swan.sas();
    assert!(sas.contains("ESTABLISHED") && sas.contains("AES_GCM_16-256/PRF_HMAC_SHA2_384/ECP_384"), "{sas}");
    let mut installed = sas.lines().filter(|line| line.contains("INSTALLED"));
    assert!(
        sas.contains("INSTALLED") && installed.all(|line| line.contains("AES_GCM_16-256/ECP_384")),
        "{sas}"
    );
    assert!(fetch().ok().contains(LOW));

    // It has no ChaCha20-Poly1305: its session is over, and the log says why.
    posture(&world, &["set", "swift"]).ok();
    assert!(suites(&world.status(), LOW).is_empty());
    eventually(Duration::from_secs(20), "the session is over", || world.status()["session_count"] == 0);
    fetch().refused();
    let log = audit(&world);
    assert!(log.contains("did not follow in time when the posture became swift"), "{log}");
    swan.initiate(&child(LOW)).expect_err("there is no session");

    // Nor has it ML-KEM, which levee's own hosts have at any time.
    posture(&world, &["set", "default"]).ok();
    world.level("ws1", LOW).ok();
    swan.initiate(&child(LOW)).unwrap_or_else(|e| panic!("no child: {e}"));
    eventually(Duration::from_secs(20), "keys of its own", || fetch().status == 0);
    posture(&world, &["set", "quantum"]).ok();
    eventually(Duration::from_secs(20), "the session is over", || world.status()["session_count"] == 0);
    fetch().refused();
    let log = audit(&world);
    assert!(log.contains("did not follow in time when the posture became quantum"), "{log}");
}

#[test]
fn who_does_not_follow_loses_its_keys_though_its_labels_mediator_begins_anew_meanwhile() {
    let world = World::up("anew", SITE, &["ws1"]);
    world.login("ws1", "ada").ok();
    world.level("ws1", OTHER).ok();
    assert!(world.fetch("ws1", PAGE).ok().contains(OTHER));
    assert_eq!(suites(&world.status(), OTHER), ["aes-256-gcm"]);
    let own = world.workstation_pids().next().expect("a workstation");
    let keyer = host::child(own, "levee-keyer");
    keyer.signal("STOP");
    let set = std::thread::scope(|scope| {
        let (levee, run) = (text(&levee_system::programs().join("levee")), text(&world.path("run")));
        let set =
            scope.spawn(move || sh("timeout", &["15", &levee, "posture", "set", "swift", "--run", &run]));
        std::thread::sleep(Duration::from_secs(1));
        host::child(world.server_pid(), "levee-mediator").kill();
        set.join().expect("it is answered")
    });
    keyer.signal("CONT");
    set.ok();
    assert!(!suites(&world.status(), OTHER).contains(&"aes-256-gcm".to_owned()));
    assert!(audit(&world).contains("did not follow in time when the posture became swift"));

    // Nor is it kept by a sessiond that is started again.
    posture(&world, &["set", "default"]).ok();
    world.level("ws1", OTHER).ok();
    assert!(world.fetch("ws1", PAGE).ok().contains(OTHER));
    eventually(Duration::from_secs(20), "keys", || suites(&world.status(), OTHER) == ["aes-256-gcm"]);
    keyer.signal("STOP");
    std::thread::scope(|scope| {
        let set = scope.spawn(|| posture(&world, &["set", "swift"]));
        std::thread::sleep(Duration::from_secs(1));
        host::child(world.server_pid(), "levee-sessiond").kill();
        set.join().expect("it ends").refused();
    });
    eventually(Duration::from_secs(35), "old keys are erased", || {
        let run = text(&world.path("run"));
        let status = world.levee(&["status", "--json", "--run", &run]);
        serde_json::from_str(&status.out).is_ok_and(|status| suites(&status, OTHER).is_empty())
    });
    keyer.signal("CONT");
    eventually(Duration::from_secs(20), "the log says why", || {
        audit(&world).matches("did not follow in time when the posture became swift").count() == 2
    });
}

/// The gates of a server, its witnesses, and its vaults with those that are the first of two stacks.
fn stacks(world: &World) -> [usize; 3] {
    ["levee-gate", "levee-witness", "levee-vault"].map(|name| host::children(world.server_pid(), name).len())
}

#[test]
fn a_posture_has_two_stacks_agree_or_more_workers_at_its_label_from_when_it_is_acknowledged_and_the_other_label_goes_on()
 {
    let mut world = World::up("two", SITE, &["ws1", "ws2"]);
    for (workstation, user, label) in [("ws1", "ada", HIGH), ("ws2", "mia", OTHER)] {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
    }
    let (one, two) = ([0, 0, 2], [1, 1, 2]);
    assert_eq!(stacks(&world), one);
    let plan: Value = serde_json::from_str(&posture(&world, &["plan", "two", "--json"]).ok()).expect("JSON");
    let agree = |label: &str| {
        let rows = plan["labels"].as_array().expect("labels").iter();
        rows.filter(|row| row["label"] == label).map(|row| row["agree"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((agree(HIGH), agree(OTHER)), (vec![true.into()], vec![false.into()]), "{plan}");

    let (over, rounds) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    std::thread::scope(|scope| {
        for (workstation, rounds) in ["ws1", "ws2"].into_iter().zip(&rounds) {
            let (world, over) = (&world, &over);
            scope.spawn(move || carry(world, workstation, over, rounds));
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for (name, suite, expected) in [
                ("two", "chacha20-poly1305", two),
                ("again", "aes-128-gcm", two),
                ("default", "aes-256-gcm", one),
                ("many", "aes-256-gcm", [0, 0, 4]),
                ("two", "chacha20-poly1305", two),
            ] {
                let before = rounds.each_ref().map(|one| one.load(Ordering::Relaxed));
                let were_lost = lost(&world, HIGH);
                posture(&world, &["set", name]).ok();
                assert_eq!(stacks(&world), expected, "{name}");
                eventually(Duration::from_secs(60), "files go to and fro", || {
                    let now = rounds.each_ref().map(|one| one.load(Ordering::Relaxed));
                    now[0] > before[0] + 2 && now[1] > before[1]
                });
                assert_eq!(stacks(&world), expected, "{name}");
                // A vault that has much to do is left out of a status until it has answered.
                let mut status = world.status();
                eventually(Duration::from_secs(60), "the vault says what it seals with", || {
                    status = world.status();
                    !suites(&status, HIGH).is_empty()
                });
                let suites = suites(&status, HIGH);
                assert!(suites.iter().all(|one| one == suite), "{name}: {suites:?}");
                let disagreed = &status["vaults"][HIGH]["counters"]["disagreed"];
                assert_eq!(disagreed.as_u64(), (expected == two).then_some(0), "{name}");
                // Where another vault begins, what comes by the keys of the one before is lost; here the stacks stay.
                assert!(name != "again" || lost(&world, HIGH) == were_lost, "{name}: {status}");
            }
        }));
        over.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
    assert_eq!(lost(&world, OTHER), 0);
    assert_eq!(world.status()["session_count"], 2);
    let log = audit(&world);
    assert!(log.contains("another begins, as the posture asks"), "{log}");
    assert!(!log.contains("nothing passes until all are there again"), "nobody took it for a fault: {log}");

    // It stays over a restart, and a label that starts has it.
    world.kill_server();
    world.start_server();
    eventually(Duration::from_secs(60), "the session is back", || world.fetch("ws1", PAGE).status == 0);
    assert_eq!(stacks(&world)[..2], two[..2]);
    posture(&world, &["set", "default"]).ok();
    assert_eq!(stacks(&world)[..2], one[..2]);
    world.stop_server();
}

/// What `levee posture plan` says of a session at this label, and of the label: the outcome, what is off, and whether all programs end.
fn planned(world: &World, name: &str, label: &str) -> (Value, Value, Value) {
    let plan = posture(world, &["plan", name, "--json"]).ok();
    let plan: Value = serde_json::from_str(&plan).expect("JSON");
    let of = |what: &str| {
        let rows = plan[what].as_array().expect("rows");
        rows.iter().find(|row| row["label"] == label).unwrap_or_else(|| panic!("{label}: {plan}")).clone()
    };
    (of("sessions")["outcome"].clone(), of("labels")["off"].clone(), of("labels")["restarts"].clone())
}

/// What runs in the compartment of a label beside its process 1.
fn programs(world: &World, label: &str) -> Vec<u32> {
    let status = world.status();
    let all = status["compartments"].as_array().into_iter().flatten();
    let init = all.filter(|one| one["label"] == label).find_map(|one| one["init"].as_u64());
    let init = u32::try_from(init.expect("it runs")).expect("a process");
    host::below(init).into_iter().map(|process| process.pid).filter(|pid| *pid != init).collect()
}

/// What is off at a label, by `levee status`.
fn off(world: &World, label: &str) -> String {
    let status = world.status();
    let all = status["compartments"].as_array().into_iter().flatten();
    all.filter(|one| one["label"] == label).map(|one| one["off"].to_string()).collect()
}

/// A page at ws1 that nobody answers for.
fn no_answer(world: &World, url: &str) {
    world.run("ws1", &["curl", "--silent", "--fail", "--max-time", "2", url]).refused();
}

#[test]
fn services_that_a_posture_has_off_and_people_that_it_does_not_allow_are_out_when_it_is_acknowledged() {
    let mut world = World::up("off", SITE, &["ws1", "ws2"]);
    for (workstation, user, label) in [("ws1", "ada", HIGH), ("ws2", "mia", OTHER)] {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
    }
    for url in [PAGE, ORDERS] {
        assert!(world.fetch("ws1", url).ok().contains(HIGH));
    }
    assert!(!programs(&world, HIGH).is_empty());

    // Everything at one label, and nothing at the other.
    assert_eq!(planned(&world, "dark", HIGH), ("stays".into(), ["orders", "web"].into(), true.into()));
    posture(&world, &["set", "dark"]).ok();
    assert_eq!(programs(&world, HIGH), Vec::<u32>::new());
    for url in [PAGE, ORDERS] {
        no_answer(&world, url);
    }
    assert!(world.fetch("ws2", PAGE).ok().contains(OTHER));
    assert_eq!(programs(&world, HIGH), Vec::<u32>::new());
    posture(&world, &["set", "default"]).ok();
    for url in [PAGE, ORDERS] {
        assert!(world.fetch("ws1", url).ok().contains(HIGH));
    }

    // One service alone, and what is off stays so when all of levee is killed.
    posture(&world, &["set", "quiet", "--reason", "a drill"]).ok();
    let quiet = |world: &World| {
        no_answer(world, PAGE);
        assert!(world.fetch("ws1", ORDERS).ok().contains(HIGH));
        assert!(off(world, HIGH).contains("posture `quiet` has `web` off"), "{}", off(world, HIGH));
    };
    quiet(&world);
    world.kill_server();
    world.start_server();
    eventually(Duration::from_secs(60), "the session is back", || world.fetch("ws1", ORDERS).status == 0);
    quiet(&world);
    posture(&world, &["set", "default"]).ok();
    assert!(world.fetch("ws1", PAGE).ok().contains(HIGH));

    // People.
    assert_eq!(planned(&world, "few", HIGH).0, "not-allowed");
    assert_eq!(planned(&world, "few", OTHER).0, "stays");
    posture(&world, &["set", "few"]).ok();
    assert_eq!(world.status()["session_count"], 1);
    assert!(world.fetch("ws2", PAGE).ok().contains(OTHER));
    let refused = world.level("ws1", HIGH).refused();
    assert!(refused.contains("posture `few` does not let `ada` have sessions"), "{refused}");
    posture(&world, &["set", "default"]).ok();
    world.level("ws1", HIGH).ok();
    assert!(world.fetch("ws1", PAGE).ok().contains(HIGH));
    let log = audit(&world);
    for said in
        ["off: posture `quiet` has `web` off", "on again: a connection may start it", "not allow: 1 ended"]
    {
        assert!(log.contains(said), "{said}: {log}");
    }
}

/// The names of every pair of keys at a label, once its vault has said so.
fn keys(world: &World, label: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    eventually(Duration::from_secs(60), "the vault says what keys it has", || {
        let status = world.status();
        let sas = status["vaults"][label]["sas"].as_array().into_iter().flatten();
        let said = |sa: &Value, key: &str| sa[key].as_str().expect("a word").to_owned();
        all = sas.map(|sa| (said(sa, "suite"), said(sa, "inbound_spi"))).collect();
        !all.is_empty()
    });
    all
}

#[test]
fn a_posture_that_is_set_at_one_of_two_labels_changes_that_ones_tunnel_alone_and_the_default_gives_it_back() {
    let mut world = World::up("range", SITE, &["ws1", "ws2"]);
    for (workstation, user, label) in [("ws1", "ada", HIGH), ("ws2", "mia", OTHER)] {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
        assert!(world.fetch(workstation, PAGE).ok().contains(label));
    }
    let plan: Value = serde_json::from_str(
        &posture(&world, &["plan", "siege", "--labels", &HIGH.to_lowercase(), "--json"]).ok(),
    )
    .expect("JSON");
    let outcome = |label: &str| {
        let sessions = plan["sessions"].as_array().expect("sessions").iter();
        sessions.filter(|one| one["label"] == label).map(|one| one["outcome"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((outcome(HIGH), outcome(OTHER)), (vec!["new-cipher".into()], vec!["stays".into()]), "{plan}");
    assert!(
        posture(&world, &["set", "siege", "--labels", "SECERT"]).refused().contains("did you mean `SECRET`")
    );
    let others = keys(&world, OTHER);
    let (over, rounds) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    std::thread::scope(|scope| {
        for (workstation, rounds) in ["ws1", "ws2"].into_iter().zip(&rounds) {
            let (world, over) = (&world, &over);
            scope.spawn(move || carry(world, workstation, over, rounds));
        }
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            // One label, and a range with it; the last is given back alone.
            for (what, suite) in [
                (["siege", "SECRET..SECRET//NATO,MED"], "chacha20-poly1305"),
                (["default", HIGH], "aes-256-gcm"),
            ] {
                let before = rounds.each_ref().map(|one| one.load(Ordering::Relaxed));
                let said =
                    posture(&world, &["set", what[0], "--labels", what[1], "--reason", "a drill"]).ok();
                assert!(said.starts_with(&format!("posture {} at {}: ", what[0], what[1])), "{said}");
                assert!(keys(&world, HIGH).iter().all(|(of, _)| of == suite), "{what:?}");
                eventually(Duration::from_secs(60), "files go to and fro", || {
                    let now = rounds.each_ref().map(|one| one.load(Ordering::Relaxed));
                    now[0] > before[0] + 1 && now[1] > before[1] + 1
                });
                assert_eq!(keys(&world, OTHER), others, "{what:?}: nothing of it is agreed anew");
            }
        }));
        over.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|why| std::panic::resume_unwind(why));
    });
    for label in [HIGH, OTHER] {
        assert_eq!(lost(&world, label), 0, "{label}: {}", world.status()["vaults"][label]["counters"]);
    }
    let log = audit(&world);
    for said in ["siege at SECRET..SECRET//NATO,MED", &format!("default at {HIGH}"), "every session followed"]
    {
        assert!(log.contains(said), "{said}: {log}");
    }

    // A service that is off there alone, over a restart too.
    posture(&world, &["set", "quiet", "--labels", &HIGH.to_lowercase()]).ok();
    let quiet = |world: &World| {
        no_answer(world, PAGE);
        assert!(world.fetch("ws1", ORDERS).ok().contains(HIGH));
        assert!(off(world, HIGH).contains("posture `quiet` has `web` off") && off(world, OTHER) == "[]");
        assert!(world.fetch("ws2", PAGE).ok().contains(OTHER));
        assert!(posture(world, &["show"]).ok().contains(&format!("  quiet at {HIGH}\n")));
        let shown: Value = serde_json::from_str(&posture(world, &["show", "--json"]).ok()).expect("JSON");
        let last = shown.as_array().and_then(|all| all.last()).expect("one").clone();
        assert_eq!((&last["name"], &last["ranges"]), (&"quiet".into(), &serde_json::json!([HIGH])));
    };
    quiet(&world);
    world.kill_server();
    world.start_server();
    for (workstation, url) in [("ws1", ORDERS), ("ws2", PAGE)] {
        eventually(Duration::from_secs(60), "the session is back", || {
            world.fetch(workstation, url).status == 0
        });
    }
    quiet(&world);
    posture(&world, &["set", "default", "--labels", HIGH]).ok();
    assert!(world.fetch("ws1", PAGE).ok().contains(HIGH));
    let history = world.levee(&["posture", "history", "--state", &text(&world.path("state"))]).ok();
    assert!(history.contains(&format!("quiet at {HIGH}")), "{history}");
    world.stop_server();
}

/// Changes level again and again, signs on again where they were signed off, and asks for what is there, until it is over.
fn restless(world: &World, (workstation, user): (&str, &str), labels: [&str; 2], over: &AtomicBool) -> u64 {
    let mut seen = 0;
    for label in labels.iter().cycle() {
        if over.load(Ordering::Relaxed) {
            return seen;
        }
        if world.level(workstation, label).status != 0 {
            // Signed on still, mostly.
            let _ = world.login(workstation, user);
            continue;
        }
        for url in [PAGE, ORDERS] {
            let asked = world.run(workstation, &["curl", "--silent", "--fail", "--max-time", "1", url]);
            seen += u64::from(asked.out.contains(label));
        }
    }
    seen
}

/// Kills something of a label's that comes again, from time to time.
fn unkind(world: &World, over: &AtomicBool) {
    for name in ["levee-vault", "levee-mediator", "levee-init", "levee-keyer"].iter().cycle() {
        for _ in 0..20 {
            if over.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        if let Some(one) = host::children(world.server_pid(), name).pop() {
            one.kill();
        }
    }
}

#[test]
fn a_posture_holds_from_when_it_is_acknowledged_whatever_opens_starts_or_dies_meanwhile() {
    let mut world = World::up("race", SITE, &["ws1", "ws2"]);
    world.login("ws1", "ada").ok();
    world.login("ws2", "mia").ok();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (world, over) = (&world, &over);
        let restless = [(("ws1", "ada"), [HIGH, OTHER]), (("ws2", "mia"), [OTHER, LOW])]
            .map(|(who, labels)| scope.spawn(move || restless(world, who, labels, over)));
        scope.spawn(move || unkind(world, over));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..6 {
                for name in ["dark", "few", "quiet", "two"] {
                    posture(world, &["set", name]).ok();
                    let holds = || {
                        let status = world.status();
                        let rows = |name: &str| status[name].as_array().cloned().unwrap_or_default();
                        let ada = rows("sessions").iter().filter(|one| one["user"] == "ada").count();
                        assert!(name != "few" || ada == 0, "{round} {name}: {status}");
                        // What passes there, both have agreed about.
                        let vault = &status["vaults"][HIGH]["counters"];
                        assert!(
                            name != "two" || vault.is_null() || vault["disagreed"] == 0,
                            "{round} {name}: {status}"
                        );
                        for one in rows("compartments").iter().filter(|_| name != "few") {
                            let init = one["init"].as_u64().and_then(|pid| u32::try_from(pid).ok());
                            let here = one["label"] == HIGH;
                            let programs = init.map(host::below).unwrap_or_default();
                            let own = programs.iter().filter(|program| Some(program.pid) != init).count();
                            assert!(
                                name != "dark" || !here || own == 0,
                                "{round} {name}: {programs:?} {status}"
                            );
                        }
                    };
                    for _ in 0..6 {
                        holds();
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    posture(world, &["set", "default"]).ok();
                }
            }
        }));
        over.store(true, Ordering::Relaxed);
        let seen = restless.map(|one| one.join().expect("it ends"));
        result.unwrap_or_else(|why| std::panic::resume_unwind(why));
        assert!(seen.iter().all(|seen| *seen > 0), "{seen:?}");
    });
    let over = Duration::from_secs(90);
    for (workstation, user, label) in [("ws1", "ada", HIGH), ("ws2", "mia", OTHER)] {
        eventually(over, "everything is as before", || {
            let _ = world.login(workstation, user);
            world.level(workstation, label).status == 0 && world.fetch(workstation, PAGE).out.contains(label)
        });
    }
    world.stop_server();
}
