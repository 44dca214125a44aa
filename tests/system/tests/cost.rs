//! What a server costs: the ledger's sum is what the kernel says of these processes, each label's traffic is its own, and nobody but root learns of it.

use levee_system::{World, eventually, host, sh, text};
use serde_json::Value;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const PAGE: &str = "http://www.harbour.example/";
const HIGH: &str = "SECRET//NATO,MED";
const LOW: &str = "UNCLASSIFIED";
/// What the server is to have used at least, in seconds, before the sums are held against each other.
const ENOUGH: f64 = 4.0;

fn ledger(world: &World) -> Value {
    let run = text(&world.path("run"));
    let out = world.levee(&["status", "--cost", "--json", "--run", &run]).ok();
    serde_json::from_str(&out).expect("JSON")
}

/// Seconds.
fn time(of: &Value) -> f64 {
    let part = |name: &str| of[name].as_f64().expect("milliseconds") / 1e3;
    part("user_ms") + part("system_ms")
}

fn kernel(world: &World) -> f64 {
    host::processor_time(world.server_pid())
}

fn octets(ledger: &Value, label: &str) -> u64 {
    let of = &ledger["labels"][label];
    of["octets_in"].as_u64().unwrap_or(0) + of["octets_out"].as_u64().unwrap_or(0)
}

#[test]
fn the_ledger_is_what_the_kernel_says_and_a_labels_traffic_is_its_own() {
    let world = World::up("cost", SITE, &["ws1", "ws2"]);
    for (workstation, user, label) in [("ws1", "ada", HIGH), ("ws2", "ugo", LOW)] {
        world.login(workstation, user).ok();
        world.level(workstation, label).ok();
        assert!(world.fetch(workstation, PAGE).ok().contains(label));
    }
    let before = ledger(&world);
    // Traffic at one label alone.
    let there_and_back = format!(
        "head -c 20000000 /dev/zero >/tmp/a && for n in 1 2 3 4 5; do curl --silent --show-error --fail -T /tmp/a {PAGE}own/a && \
         curl --silent --show-error --fail --output /tmp/b {PAGE}own/a; done"
    );
    eventually(Duration::from_secs(200), "the server has used some time", || {
        world.run("ws1", &["sh", "-c", &there_and_back]).ok();
        time(&ledger(&world)["processor"]) > ENOUGH
    });
    // The kernel's before and after enclose what the ledger says, but for 5 %.
    let least = kernel(&world);
    let after = ledger(&world);
    let most = kernel(&world);
    let said = time(&after["processor"]);
    assert!(
        said >= least * 0.95 && said <= most * 1.05,
        "{said} s, and the kernel {least} to {most}: {after}"
    );
    let roles = after["roles"].as_array().expect("roles");
    let sum: f64 = roles.iter().map(time).sum();
    assert!((sum - said).abs() < 1e-3, "{sum} and {said}");
    for role in ["sessiond", "signer", "keyer", "tps", "vault", "logger", "services", "warden", "ended"] {
        assert!(roles.iter().any(|row| row["role"] == role), "no {role}: {roles:?}");
    }
    for role in ["vault", "services"] {
        for label in [HIGH, LOW] {
            assert!(roles.iter().any(|row| row["role"] == role && row["label"] == label), "{role} {label}");
        }
    }
    // What went there and back, and no more at the other label than its own people's.
    let grown = |label: &str| octets(&after, label) - octets(&before, label);
    assert!(grown(HIGH) > 200_000_000, "{}", grown(HIGH));
    assert!(grown(LOW) < 1_000_000, "{}", grown(LOW));
    assert!(time(&after["labels"][HIGH]) > time(&after["labels"][LOW]), "{after}");
    // A packet is in its vault for some time, and no vault keeps it for a second.
    for (label, way) in [(HIGH, "in"), (HIGH, "out"), (LOW, "in"), (LOW, "out")] {
        let latency = after["labels"][label][format!("latency_{way}_ms")].as_f64().expect("milliseconds");
        assert!(latency > 0.0 && latency < 1_000.0, "{label} {way}: {after}");
    }
    let sessions = after["sessions"].as_array().expect("sessions");
    for label in [HIGH, LOW] {
        assert_eq!(sessions.iter().filter(|row| row["label"] == label).count(), 1, "{sessions:?}");
    }
    // In words as well.
    let run = text(&world.path("run"));
    let words = world.levee(&["status", "--cost", "--run", &run]).ok();
    assert!(
        words.contains("by role") && words.contains(HIGH) && words.contains("MICROSECONDS IN THE VAULT"),
        "{words}"
    );

    // What one of levee's own processes has used is not forgotten when it has ended.
    let of = |ledger: &Value, role: &str, label: Value| {
        let rows = ledger["roles"].as_array().expect("roles").clone();
        rows.iter().filter(|row| row["role"] == role && row["label"] == label).map(time).sum::<f64>()
    };
    let last = ledger(&world);
    let (vault, ended) = (of(&last, "vault", HIGH.into()), of(&last, "ended", Value::Null));
    assert!(vault > 0.1, "{last}");
    world.tpe("ws1", &["logout"]).ok();
    eventually(Duration::from_secs(60), "the vault's time is with what has ended", || {
        let now = ledger(&world);
        of(&now, "vault", HIGH.into()) == 0.0 && of(&now, "ended", Value::Null) >= ended + vault * 0.9
    });
    hidden(&world);
}

/// Neither who is not root nor a service of a label reads it.
fn hidden(world: &World) {
    let run = text(&world.path("run"));
    let levee = text(&levee_system::programs().join("levee"));
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"];
    let asked = ["status", "--cost", "--run", &run];
    let refused = sh("setpriv", &[&nobody[..], &[levee.as_str()], &asked[..]].concat()).refused();
    assert!(refused.contains("denied") || refused.contains("root"), "{refused}");
    // A program of the other label's, as its services are run: no control group has a name there, and of processes it sees its own.
    let look = "find / -xdev -name 'cpu.stat*' -print 2>/dev/null; ls /sys/fs/cgroup 2>/dev/null; \
                grep -l levee-vault /proc/[0-9]*/comm 2>/dev/null; grep -h cgroup /proc/self/mounts 2>/dev/null; echo looked";
    let state = text(&world.path("state"));
    let seen =
        world.levee(&["exec", LOW, "--run", &run, "--state", &state, "--", "/bin/sh", "-c", look]).ok();
    let lines: Vec<&str> = seen.lines().filter(|line| !line.trim().is_empty()).collect();
    assert!(lines.len() == 1 && lines[0].contains("looked"), "{seen}");
}
