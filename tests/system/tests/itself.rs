//! Services that bind their port themselves (`mode = "itself"`): they run as long as their label does, and are reached as any other.

use levee_system::{World, eventually, host};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//NATO,MED";

/// One as people write them, that knows nothing of levee; and one that ends at once.
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
name = "broken"
port = 8001
protocol = "tcp"
range = "UNCLASSIFIED"
mode = "itself"
software = ["python3"]
command = ["/usr/bin/python3", "-c", "raise SystemExit('no configuration')"]
"#;

/// One that binds its port, where the site says that it is handed it.
const MISTAKEN: &str = r#"
[[service]]
name = "mistaken"
port = 8002
protocol = "tcp"
range = "UNCLASSIFIED"
mode = "direct"
software = ["python3"]
command = ["/usr/bin/python3", "-m", "http.server", "8002"]
"#;

/// How often it has been started at a label, as `levee status` says.
fn starts(world: &World, label: &str, service: &str) -> u64 {
    let status = world.status();
    let compartments = status["compartments"].as_array().expect("compartments");
    let one = compartments.iter().find(|one| one["label"] == label).expect("the label");
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
