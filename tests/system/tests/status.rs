//! What an operator sees: who is there, what runs, and every packet that was dropped, with why.

use levee_system::{World, eventually, sh, text};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
const LOW: &str = "UNCLASSIFIED";
const HIGH: &str = "SECRET//NATO,MED";
/// RFC 4303 2.1: reserved.
const NOBODYS: u32 = 0xfe;
/// SPIs that are tried: of 64 slots each gets some 32, and none only once in 10^13 times.
const TRIED: u32 = 2_048;

/// Runs `datagrams.py` at a workstation, outside every compartment.
fn send(world: &World, datagrams: &[String]) {
    let script = text(&world.path("datagrams.py"));
    let mut arguments = vec![script.as_str(), "send"];
    arguments.extend(datagrams.iter().map(String::as_str));
    world.outside("ws2", "python3", &arguments).ok();
}

/// An ESP datagram of the session at ws1, in hexadecimal.
fn caught(world: &World) -> String {
    let net = format!("--net=/run/netns/{}", world.namespace("ws1"));
    let mut command = Command::new("nsenter");
    command.args([&net, "python3", &text(&world.path("datagrams.py")), "catch"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("start python3");
    let mut out = BufReader::new(child.stdout.take().expect("its output")).lines();
    assert_eq!(out.next().expect("a line").expect("text"), "ready");
    world.fetch("ws1", PAGE).ok();
    let datagram = out.next().expect("a datagram").expect("text");
    assert!(child.wait().expect("its end").success());
    datagram
}

/// A counter of a label's vault.
fn counter(status: &Value, label: &str, name: &str) -> u64 {
    status["vaults"][label]["counters"][name]
        .as_u64()
        .unwrap_or_else(|| panic!("no counter {name} in {status}"))
}

fn compartment<'a>(status: &'a Value, label: &str) -> &'a Value {
    let all = status["compartments"].as_array().expect("compartments");
    all.iter().find(|row| row["label"] == label).expect("the label runs")
}

/// The SPI of the label's session at the server, in hexadecimal.
fn inbound_spi(status: &Value, label: &str) -> String {
    status["vaults"][label]["sas"][0]["inbound_spi"].as_str().expect("an SPI").to_owned()
}

/// An inner address that no session has.
fn nobody(status: &Value) -> String {
    let mut all = (1..255).map(|last| format!("10.80.1.{last}"));
    all.find(|address| !status["sessions"].to_string().contains(&format!("\"{address}\"")))
        .expect("one is free")
}

/// Beyond any sequence number so far, within what ESN infers from the low half.
fn later(datagram: &str) -> String {
    let sequence = u32::from_str_radix(&datagram[8..16], 16).expect("a number") + 1_000;
    format!("{}{sequence:08x}{}", &datagram[..8], &datagram[16..])
}

#[test]
fn every_bad_packet_is_dropped_counted_by_reason_and_shown_and_harms_nobody() {
    let world = World::up("status", SITE, &["ws1", "ws2"]);
    std::fs::write(world.path("datagrams.py"), include_str!("../src/datagrams.py")).expect("write it");
    world.login("ws1", "ada").ok();
    world.level("ws1", HIGH).ok();
    world.login("ws2", "ugo").ok();
    world.level("ws2", LOW).ok();
    assert!(world.fetch("ws2", PAGE).ok().contains(LOW));
    let good = caught(&world);
    let before = world.status();
    let (high, low) = (inbound_spi(&before, HIGH), inbound_spi(&before, LOW));
    assert_eq!(good[..8], high, "it is a datagram of that session");

    let (body, new) = (&good[8..], later(&good));
    let cases: Vec<(&str, &str, u64, Vec<String>)> = vec![
        (HIGH, "replay", 3, vec![good.clone(); 3]),
        (HIGH, "truncated", 2, vec![good[..16].to_owned(), new[..new.len() - 2].to_owned()]),
        // A changed byte; and one that is many packets long and comes in fragments.
        (HIGH, "auth-failed", 2, vec![format!("{}00000000", &new[..new.len() - 8]), format!("{new}*60000")]),
        // What was sealed for one label, sent to another.
        (LOW, "auth-failed", 1, vec![format!("{low}{}", &new[8..])]),
    ];
    for (label, reason, count, datagrams) in &cases {
        send(&world, datagrams);
        let wanted = counter(&before, label, reason) + count;
        eventually(Duration::from_secs(10), reason, || counter(&world.status(), label, reason) == wanted);
    }
    // What belongs to nobody does not reach a process.
    send(&world, &[format!("{NOBODYS:08x}{body}")]);
    let steering = |status: &Value, why: &str| status["steering"][why].as_u64().unwrap_or(0);
    let nobodys = "an SPI that none may have";
    let wanted = steering(&before, nobodys) + 1;
    eventually(Duration::from_secs(10), nobodys, || steering(&world.status(), nobodys) == wanted);
    // Who has not the key cannot choose a slot: of SPIs taken at random each label's vault gets some, which it does not know, and most
    // are of slots that nobody serves.
    let random =
        (1..=TRIED).map(|n| format!("{:08x}{}", (n | 0x100).wrapping_mul(0x9e37_79b1) | 0x100, &body[..64]));
    let random: Vec<String> = random.collect();
    random.chunks(512).for_each(|some| send(&world, some));
    let idle = "an SPI of a slot that is idle or whose queue is full";
    let most = steering(&before, idle) + u64::from(TRIED / 2);
    eventually(Duration::from_secs(10), idle, || steering(&world.status(), idle) > most);
    for label in [LOW, HIGH] {
        let had = counter(&before, label, "unknown-spi");
        eventually(Duration::from_secs(10), label, || counter(&world.status(), label, "unknown-spi") > had);
    }
    // What leaves a compartment is looked at as well: the session's selectors allow TCP from 10.80.0.1:80 to its address.
    let net = format!("--net=/proc/{}/ns/net", compartment(&before, HIGH)["init"]);
    let client = before["sessions"].as_array().expect("sessions").iter().find(|row| row["label"] == HIGH);
    let client = client.expect("the session")["inner"][0].as_str().expect("its address").to_owned();
    let script = text(&world.path("datagrams.py"));
    // Longer than the tunnel takes, which the kernel would not let anybody send.
    sh("nsenter", &[&net, "ip", "link", "set", "levee0", "mtu", "9000"]).ok();
    let outward: [(&str, &str, &str); 6] = [
        ("selector", "another source", "10.80.0.99 80 CLIENT 6 0 40"),
        ("selector", "another port", "10.80.0.1 81 CLIENT 6 0 40"),
        ("selector", "another protocol", "10.80.0.1 80 CLIENT 17 0 40"),
        ("no-session", "another destination", "10.80.0.1 80 NOBODY 6 0 40"),
        ("fragment", "a fragment without ports", "10.80.0.1 80 CLIENT 6 5 40"),
        ("oversize", "a packet that is too long", "10.80.0.1 80 CLIENT 6 0 1500"),
    ];
    let nobody = nobody(&before);
    for (reason, what, packet) in outward {
        let had = counter(&world.status(), HIGH, reason);
        let packet = packet.replace("CLIENT", &client).replace("NOBODY", &nobody);
        let arguments = [net.as_str(), "python3", script.as_str(), "stray"].into_iter();
        sh("nsenter", &arguments.chain(packet.split(' ')).collect::<Vec<_>>()).ok();
        eventually(Duration::from_secs(10), what, || counter(&world.status(), HIGH, reason) > had);
    }
    sh("nsenter", &[&net, "ip", "link", "set", "levee0", "mtu", "1400"]).ok();
    // A document that is none stays where it is, and is counted.
    let init = compartment(&before, LOW)["init"].to_string();
    let pipe = [
        "--target",
        &init,
        "--user",
        "--mount",
        "--setuid",
        "1000",
        "--setgid",
        "1000",
        "mkfifo",
        "/srv/own/pipe",
    ];
    sh("nsenter", &pipe).ok();
    let left = "documents not given upward: neither file nor directory";
    eventually(Duration::from_secs(10), left, || {
        compartment(&world.status(), LOW)["counters"].to_string().contains(left)
    });

    // Nothing of it passed, and everybody goes on.
    let after = world.status();
    assert_eq!(counter(&after, LOW, "packets-in"), counter(&before, LOW, "packets-in"));
    for (workstation, label) in [("ws1", HIGH), ("ws2", LOW)] {
        assert!(world.fetch(workstation, PAGE).ok().contains(label));
    }
    // All of it in words as well.
    let run = text(&world.path("run"));
    let shown = world.levee(&["status", "--run", &run]).ok();
    let all = cases.iter().map(|(label, reason, ..)| (*label, *reason));
    for (label, reason) in all.chain(outward.map(|(reason, ..)| (HIGH, reason))) {
        let of = format!("vault {label}");
        assert!(
            shown.lines().any(|line| line.contains(&of) && line.contains(reason)),
            "{of} {reason}:\n{shown}"
        );
    }
    for words in ["an SPI that none may have", "idle or whose queue is full", left] {
        assert!(shown.contains(words), "{words}:\n{shown}");
    }
    operators_look(&world, &run);
}

/// The commands that only look.
fn operators_look(world: &World, run: &str) {
    let listed = world.levee(&["session", "list", "--json", "--run", run]).ok();
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let mut users: Vec<&str> =
        listed.as_array().expect("a list").iter().filter_map(|s| s["user"].as_str()).collect();
    users.sort_unstable();
    assert_eq!(users, ["ada", "ugo"]);
    let words = world.levee(&["session", "list", "--run", run]).ok();
    assert!(words.contains("ada") && words.contains(HIGH) && words.contains("attached"), "{words}");

    // It shows again what has changed meanwhile.
    let mut watch = Command::new(levee_system::programs().join("levee"));
    watch.args(["status", "--watch", "--json", "--run", run]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut watch = watch.spawn().expect("start levee status --watch");
    let mut lines = BufReader::new(watch.stdout.take().expect("its output")).lines();
    let mut next = || -> Value {
        let line = lines.next().expect("a line").expect("text");
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"))
    };
    assert_eq!(next()["session_count"], 2);
    world.tpe("ws2", &["logout"]).ok();
    eventually(Duration::from_secs(10), "the watch shows the end", || next()["session_count"] == 1);
    // Whoever has read enough goes away, and the watch ends by itself.
    drop(lines);
    eventually(Duration::from_secs(10), "the watch ends", || {
        watch.try_wait().expect("look at the watch").is_some_and(|status| status.success())
    });

    let (site, state) = (text(&world.path("site.toml")), text(&world.path("state")));
    let plan = world.levee(&["plan", &site, HIGH, "--state", &state]).ok();
    for step in ["make control group", "join the user namespace", "load the system-call filter"] {
        assert!(plan.contains(step), "{step}:\n{plan}");
    }
    let unknown = world.levee(&["plan", &site, "SECRT", "--state", &state]).refused();
    assert!(unknown.contains("did you mean `SECRET`?"), "{unknown}");
    // Whoever looks in the wrong place is told what to do.
    assert!(world.levee(&["plan", "/nonexistent", HIGH]).refused().contains("levee plan SITE"));
    let nothing = world.levee(&["status", "--run", "/nonexistent"]).refused();
    assert!(nothing.contains("levee up"), "{nothing}");
}
