//! Services that bind their port themselves (`mode = "itself"`): they run as long as their label does, and are reached as any other.

use levee_system::{World, eventually, host};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//NATO,MED";

/// One as people write them, that knows nothing of levee; one that is there for its own host alone; and one that ends at once.
const SERVICES: &str = r#"
[[service]]
name = "files"
port = 8000
protocol = "tcp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "itself"
software = ["python3"]
command = ["/bin/sh", "-c", 'cd /srv/own && echo "$LEVEE_LABEL" > label && exec python3 -m http.server "$LEVEE_PORT"']

[[service]]
name = "lonely"
port = 8003
protocol = "tcp"
range = "UNCLASSIFIED"
mode = "itself"
software = ["python3"]
command = ["/usr/bin/python3", "-m", "http.server", "--bind", "127.0.0.1", "8003"]

[[service]]
name = "broken"
port = 8001
protocol = "tcp"
range = "UNCLASSIFIED"
mode = "itself"
software = ["python3"]
command = ["/usr/bin/python3", "-c", "raise SystemExit('no configuration')"]
"#;

/// A database as Debian has it, which binds its port and forks to write what it has to its disk.
const REDIS: &str = r#"
[[service]]
name = "redis"
port = 6379
protocol = "tcp"
range = "UNCLASSIFIED..SECRET//NATO,MED"
mode = "itself"
software = ["redis-server"]
command = ["/usr/bin/redis-server", "--bind", "0.0.0.0", "--protected-mode", "no", "--port", "6379", "--dir", "/srv/own"]
"#;

/// One that binds its port, where the site says that it is handed it; and one whose program is not there.
const MISTAKEN: &str = r#"
[[service]]
name = "missing"
port = 8004
protocol = "tcp"
range = "UNCLASSIFIED"
mode = "direct"
command = ["/opt/nowhere/webd"]

[[service]]
name = "mistaken"
port = 8002
protocol = "tcp"
range = "UNCLASSIFIED"
mode = "direct"
software = ["python3"]
command = ["/usr/bin/python3", "-m", "http.server", "8002"]
"#;

/// What `levee status` says of a label.
fn compartment(world: &World, label: &str) -> serde_json::Value {
    let status = world.status();
    let compartments = status["compartments"].as_array().expect("compartments");
    compartments.iter().find(|one| one["label"] == label).expect("the label").clone()
}

/// How often it has been started at a label.
fn starts(world: &World, label: &str, service: &str) -> u64 {
    let one = compartment(world, label);
    let services = one["services"].as_array().expect("services");
    services.iter().find(|one| one[0] == service).and_then(|one| one[1].as_u64()).unwrap_or(0)
}

#[test]
fn a_program_that_binds_its_port_itself_runs_with_its_label_and_is_started_again() {
    let world = World::up("itself", &format!("{SITE}{SERVICES}{MISTAKEN}"), &["ws1"]);
    let page = "http://www.harbour.example:8000/";
    world.login("ws1", "ada").ok();
    world.level("ws1", LOW).ok();
    let answers = || world.fetch("ws1", page).status == 0;
    let told_label = || world.fetch("ws1", &format!("{page}label")).ok();
    eventually(Duration::from_secs(30), "it is there without a first connection", answers);
    assert_eq!(starts(&world, LOW, "files"), 1);
    assert_eq!(told_label(), format!("{LOW}\n"));

    // Killed, it comes back, and the label with it stays.
    let mut below = host::below(world.server_pid()).into_iter();
    below.find(|process| process.name == "python3").expect("the program").signal("KILL");
    eventually(Duration::from_secs(30), "it is there again", || {
        starts(&world, LOW, "files") == 2 && answers()
    });
    let alarms = || world.status()["alarms"].to_string();
    eventually(Duration::from_secs(30), "what cannot run is told", || {
        alarms().contains("service broken does not start (ended with status 1, ")
    });
    let test = |service: &str| {
        let run = levee_system::text(&world.path("run"));
        world.levee(&["service", "test", service, &LOW.to_lowercase(), "--run", &run])
    };
    assert_eq!(test("files").ok(), "files runs at UNCLASSIFIED\n");
    assert_eq!(test("web").ok(), "web runs at UNCLASSIFIED\n");
    assert!(test("nosuch").refused().contains("site.toml has no service nosuch at UNCLASSIFIED; there are "));
    let lonely = test("lonely");
    assert_eq!(lonely.status, 1, "{}{}", lonely.out, lonely.err);
    assert!(lonely.out.contains("nothing listens at 10.80.0.1:8003"), "{}", lonely.out);
    let broken = test("broken");
    assert_eq!(broken.status, 1, "{}{}", broken.out, broken.err);
    assert!(broken.out.contains("ended with status 1") && !broken.out.contains("itself"), "{}", broken.out);
    let mistaken = test("mistaken");
    assert_eq!(mistaken.status, 1, "{}{}", mistaken.out, mistaken.err);
    assert!(
        mistaken.out.contains("a program that binds it itself wants `mode = \"itself\"`"),
        "{}",
        mistaken.out
    );
    let missing = test("missing");
    assert_eq!(missing.status, 1, "{}{}", missing.out, missing.err);
    assert!(missing.out.contains("`software`") && !missing.out.contains("itself"), "{}", missing.out);
    let broken =
        world.run("ws1", &["curl", "--silent", "--max-time", "5", "http://www.harbour.example:8001/"]);
    broken.refused();

    // Another label has an instance of its own.
    world.level("ws1", HIGH).ok();
    eventually(Duration::from_secs(30), "another label has it, too", answers);
    assert_eq!((starts(&world, HIGH, "files"), starts(&world, LOW, "files")), (1, 2));
    assert_eq!(told_label(), format!("{HIGH}\n"));
    let state = levee_system::text(&world.path("state"));
    let told = || {
        let shown = world.levee(&["audit", "show", "--state", &state]).ok();
        shown.lines().any(|line| line.contains("service files") && line.contains("started with its label"))
    };
    eventually(Duration::from_secs(30), "that it started is recorded", told);
}

#[test]
fn a_database_that_binds_its_port_itself_keeps_what_it_was_told_at_each_label() {
    let world = World::up("itself-redis", &format!("{SITE}{REDIS}"), &["ws1"]);
    let say = |what: &str| {
        let script = format!(
            "printf '{what}\\r\\n' | socat -t 3 -T 3 - TCP4:www.harbour.example:6379,connect-timeout=3"
        );
        world.run("ws1", &["sh", "-c", &script]).out.trim().replace("\r\n", " ")
    };
    world.login("ws1", "ada").ok();
    for (label, other) in [(HIGH, LOW), (LOW, HIGH)] {
        world.level("ws1", label).ok();
        eventually(Duration::from_secs(30), "it answers", || say("PING") == "+PONG");
        assert_eq!(say(&format!("GET {other}")), "$-1", "{label} has what was said at {other}");
        assert_eq!(say(&format!("SET {label} kept")), "+OK");
        // By a process of its own, which it forks.
        assert_eq!(say("BGSAVE"), "+Background saving started");
        eventually(Duration::from_secs(30), "it is on the disk", || {
            say("INFO persistence").contains("rdb_bgsave_in_progress:0 ")
        });
        assert!(say("INFO persistence").contains("rdb_last_bgsave_status:ok"), "{}", say("INFO persistence"));
        let init = compartment(&world, label)["init"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let mut all = host::below(init.expect("a compartment")).into_iter();
        all.find(|process| process.name == "redis-server").expect("the program").signal("KILL");
        eventually(Duration::from_secs(30), "started again it knows what it was told", || {
            starts(&world, label, "redis") == 2 && say(&format!("GET {label}")) == "$4 kept"
        });
    }
}
