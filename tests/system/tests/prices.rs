//! What a protection costs: measured here by the laboratory, told to whoever asks for one, and held beside what the session then used. What
//! is wrong with the file of prices is said, and keeps nobody from a session.

use levee_system::{World, eventually, sh, text};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

const SITE: &str = concat!(
    include_str!("../../../conf/small/site.toml"),
    r#"
[[protection]]
name = "other"
ciphers = ["chacha20-poly1305"]
[[protection]]
name = "quiet"
constant-rate = true
"#
);
const STUDY: &str = include_str!("../../../lab/studies/protections.toml");
const HIGH: &str = "SECRET//NATO,MED";
const LOW: &str = "UNCLASSIFIED";
const PAGE: &str = "http://www.harbour.example/";

/// The session with this protection, and what it is said to cost.
fn asked(world: &World, label: &str, protection: &str) -> Value {
    let said = world.tpe("ws1", &["--json", "level", label, "--protection", protection]).ok();
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(said["protections"], json!([protection]), "{said}");
    said["costs"].clone()
}

/// The one session's row of the ledger.
fn ledger(world: &World) -> Value {
    let out = world.levee(&["status", "--cost", "--json", "--run", &text(&world.path("run"))]).ok();
    let out: Value = serde_json::from_str(&out).expect("JSON");
    let rows = out["sessions"].as_array().expect("sessions");
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows[0].clone()
}

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or_else(|| panic!("{name}: {of}"))
}

/// What is told is what stands in the file. A host that was busy may have too few trials of one, and a price of which nothing is known then.
fn as_measured(prices: &str, told: &Value) {
    let file: toml::Table = prices.parse().expect("a file of prices");
    let measured = file["price"].as_array().expect("prices");
    let measured = measured
        .iter()
        .find(|price| price["cipher"].as_str() == told["cipher"].as_str() && price.get("interval").is_none());
    let measured = measured.unwrap_or_else(|| panic!("{told} was not measured: {prices}"));
    assert_eq!(told["wire_permille"], json!(measured.get("wire")), "{told} {prices}");
    // The file has microseconds and nanoseconds, what is told milliseconds.
    for (name, key, of_one) in
        [("gigabyte_ms", "gigabyte", 1e3), ("packet_ms", "packet", 1e6), ("trip_ms", "trip", 1e6)]
    {
        let in_file = measured.get(key).and_then(toml::Value::as_array).map(|all| {
            all.iter().map(|one| one.as_integer().expect("a time") as f64 / of_one).collect::<Vec<_>>()
        });
        assert_eq!(told[name], json!(in_file), "{name}: {told} {prices}");
    }
    assert!(told["gigabyte_ms"][1].as_f64().is_some_and(|middle| middle > 0.0), "{told}");
}

/// The laboratory's own study in its smallest form that tells a spread, and the prices of that run.
fn measure(world: &World) -> String {
    let mut study = STUDY.replace("blocks = 12\nseconds = 0.3", "blocks = 8\nseconds = 0.2");
    assert_ne!(study, STUDY);
    // Nobody asks for this one here, and each has a server.
    let arm = study.find("[[arm]]\nname = \"aes-128-gcm\"").expect("an arm");
    let next = study[arm + 1..].find("[[arm]]").expect("the next");
    study.replace_range(arm..=arm + next, "");
    let study = study.replace("\"aes-128-gcm\", ", "");
    assert!(!study.contains("aes-128-gcm"), "{study}");
    let (file, run) = (text(&world.path("short.toml")), text(&world.path("lab")));
    fs::write(&file, study).expect("a study");
    world.levee(&["lab", "run", &file, "--quick", "--out", &run]).ok();
    // Nobody sends anything: at a constant rate levee's processes wake for each packet, else hardly.
    let samples = fs::read_to_string(world.path("lab").join("samples.ndjson")).expect("samples");
    let wakes = |arm: &str| -> Vec<f64> {
        let all = samples.lines().map(|line| serde_json::from_str::<Value>(line).expect("a sample"));
        all.filter(|sample| sample["row"] == "idle" && sample["arm"] == arm)
            .filter_map(|sample| {
                sample["counted"]["wakes of levee's processes a second, both ends'"].as_f64()
            })
            .collect()
    };
    let (seldom, always) = (wakes("aes-256-gcm"), wakes("constant"));
    assert!(seldom.len() >= 4 && always.len() >= 4, "{seldom:?} {always:?}");
    assert!(
        seldom.iter().sum::<f64>() > 0.0 && always.iter().all(|one| *one > 100.0),
        "{seldom:?} {always:?}"
    );
    // A busy host may cost a trial or two, and no more.
    let report = fs::read_to_string(world.path("lab/report.md")).expect("a report");
    assert!(report.contains("TCP_RR") && !report.contains("Absent here"), "{report}");
    world.levee(&["lab", "prices", &run]).ok()
}

#[test]
fn a_protection_has_the_price_that_was_measured_here_and_what_was_used_stands_beside_it() {
    // As the laboratory's own site: the vaults look on before they sleep.
    let site = SITE.replace("poll = \"0us\"", "");
    assert_ne!(site, SITE);
    let world = World::up("prices", &site, &["ws1"]);
    world.login("ws1", "ada").ok();

    // Nothing was measured, and nothing is guessed.
    assert_eq!(asked(&world, HIGH, "other"), json!({"unpredicted": "absent"}));
    assert_eq!(ledger(&world)["unpredicted"], "absent");
    let said = world.tpe("ws1", &["level", HIGH, "--protection", "other"]).ok();
    assert!(said.contains("not known: nothing was measured on this host"), "{said}");

    let prices = measure(&world);
    let file = world.path("state/sessiond/prices.toml");
    let put = world
        .levee(&["lab", "prices", &text(&world.path("lab")), "--state", &text(&world.path("state"))])
        .ok();
    assert_eq!((put.trim(), &fs::read_to_string(&file).expect("the file")), (&*text(&file), &prices));

    // The server was not started anew. The answer names the price, and that of what would have been without it.
    let costs = asked(&world, HIGH, "other");
    let [price, without] = ["price", "without"].map(|name| costs[name].clone());
    assert_eq!(
        (&price["cipher"], &without["cipher"]),
        (&json!("chacha20-poly1305"), &json!("aes-256-gcm")),
        "{costs}"
    );
    for one in [&price, &without] {
        as_measured(&prices, one);
        let wire = one["wire_permille"][1].as_u64().expect("octets");
        assert!((1_020..1_400).contains(&wire), "{wire} octets for a thousand");
    }
    let said = world.tpe("ws1", &["level", HIGH, "--protection", "other"]).ok();
    assert!(said.contains("by the laboratory's run of 20") && said.contains("chacha20-poly1305; "), "{said}");
    assert!(said.contains("s of the server's processor time for a gigabyte in a stream"), "{said}");

    // Streams, as those that were measured.
    let there_and_back = format!(
        "head -c 20000000 /dev/zero >/tmp/a && for n in 1 2 3 4 5 6; do curl --silent --show-error --fail -T /tmp/a {PAGE}own/a && \
         curl --silent --show-error --fail --output /tmp/b {PAGE}own/a; done"
    );
    world.run("ws1", &["sh", "-c", &there_and_back]).ok();
    let row = ledger(&world);
    let [predicted, most, used] =
        ["predicted_ms", "predicted_most_ms", "used_ms"].map(|name| number(&row, name));
    // 240 MB at the price of a gigabyte.
    let each = price["gigabyte_ms"][1].as_f64().expect("a price");
    assert!(predicted > 0.2 * each && predicted < 0.4 * each && most >= predicted, "{row} {price}");
    // How near they are is the host's matter; a unit that is mistaken is a thousand times off.
    let ratio = number(&row, "ratio_permille") / 1e3;
    assert!((ratio - used / predicted).abs() < 0.01 && ratio > 0.03 && ratio < 30.0, "{row}");
    let words = world.levee(&["status", "--cost", "--run", &text(&world.path("run"))]).ok();
    assert!(
        words.contains("USED/PREDICTED") && words.contains("predicted: seconds of the label's vault"),
        "{words}"
    );

    constant(&world);
    wrong(&world, &file, &prices);
}

/// At a constant rate time costs, and not what is sent.
fn constant(world: &World) {
    let costs = asked(world, LOW, "quiet");
    let price = &costs["price"];
    assert_eq!((&price["interval_ms"], &price["gigabyte_ms"]), (&json!(4.0), &Value::Null), "{costs}");
    let wire = price["standing_wire"][1].as_f64().expect("octets");
    // 250 packets a second each way of 1,436 octets and some headers.
    assert!((500_000.0..900_000.0).contains(&wire), "{wire} octets a second");
    eventually(Duration::from_secs(60), "some seconds are paid for", || {
        let row = ledger(world);
        let ratio = row["ratio_permille"].as_f64().unwrap_or_default() / 1e3;
        let paid = row["predicted_ms"] == row["predicted_most_ms"] && number(&row, "used_ms") > 100.0;
        paid && ratio > 0.03 && ratio < 30.0
    });
}

/// A price that is not to be believed is not told, and sessions are opened and refused as before.
fn wrong(world: &World, file: &std::path::Path, prices: &str) {
    let kernel = sh("uname", &["-r"]).ok();
    let measured = prices.lines().find(|line| line.starts_with("measured = ")).expect("a time");
    for (text, why) in [
        (prices.replace(kernel.trim(), "6.0.0"), "other-host"),
        (prices.replace(measured, "measured = 86400"), "old"),
        (prices.replace("[host]", "[guest]"), "damaged"),
        (format!("{prices}{}", "# long\n".repeat(4_000)), "damaged"),
    ] {
        assert_ne!(text, prices, "{why}");
        fs::write(file, text).expect("the file is written");
        assert_eq!(asked(world, HIGH, "other"), json!({"unpredicted": why}));
        assert!(world.fetch("ws1", PAGE).ok().contains(HIGH));
    }
    fs::remove_file(file).expect("the file is there");
    assert_eq!(asked(world, HIGH, "other"), json!({"unpredicted": "absent"}));
    let refused = world.tpe("ws1", &["level", HIGH, "--protection", "stronger"]).refused();
    assert!(refused.contains("the site has no protection `stronger`"), "{refused}");
}
