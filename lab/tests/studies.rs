//! The studies' engine: on samples of known costs, and on what the host has without levee.

use levee_lab::analysis::Verdict;
use levee_lab::host::Env;
use levee_lab::study::run::{Manifest, Sample, is_study, manifest, report, samples};
use levee_lab::study::{self, Goal, Study};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const LAB: &str = env!("CARGO_BIN_EXE_levee-lab");

/// Four rows, of which one costs half as much again in a compartment, one two thirds, and two nothing.
fn made_up(dir: &Path, slower: f64, quicker: f64) {
    let mut study = Study::named("partition").expect("it comes with the program").expect("it can be read");
    study.goals.push(Goal {
        arm: "compartment".into(),
        rows: ["fork", "null-call"].map(str::to_owned).to_vec(),
        most: None,
    });
    let mut form = study.forms["quick"].clone();
    form.rows = Some(["fork", "stat", "null-call", "int-add"].map(str::to_owned).to_vec());
    form.arms = Some(vec!["native".into(), "compartment".into()]);
    let m = Manifest {
        study,
        form_name: "quick".into(),
        form,
        seed: 4,
        absent: Vec::new(),
        env: vec![Env::default()],
        links: Vec::new(),
    };
    std::fs::create_dir_all(dir).expect("a directory");
    std::fs::write(dir.join("study.json"), serde_json::to_vec(&m).expect("JSON")).expect("written");
    let mut lines = Vec::new();
    for (trial, t) in m.plan().iter().enumerate() {
        // some noise, the same each time, and what slows a whole block
        let noise = 1.0 + 0.01 * ((trial * 7919 % 13) as f64 - 6.0) / 6.0 + 0.3 * (t.block % 3) as f64;
        let factor = match (t.arm.as_str(), t.workload.as_str()) {
            ("compartment", "fork") => slower,
            ("compartment", "stat") => quicker,
            _ => 1.0,
        };
        let sample = Sample {
            trial,
            at: String::new(),
            block: t.block,
            row: t.workload.clone(),
            arm: t.arm.clone(),
            copy: t.copy,
            seconds: Some(1e-6 * noise * factor),
            preempted: Some(0),
            counted: BTreeMap::new(),
            why: None,
        };
        lines.extend(serde_json::to_vec(&sample).expect("JSON"));
        lines.push(b'\n');
    }
    std::fs::write(dir.join("samples.ndjson"), lines).expect("written");
}

#[test]
fn a_planted_cost_and_a_planted_gain_are_told_first_and_nothing_else_is() {
    let dir = tempfile::tempdir().expect("a directory");
    made_up(dir.path(), 1.5, 0.66);
    let page = std::fs::read_to_string(report(dir.path()).expect("a report")).expect("it was written");
    let sentence = page.lines().nth(2).expect("a first sentence");
    let told = "Here, in levee's compartment, 1 of 4 rows are dearer: fork (×1.50); 1 cheaper: stat (×0.66); the others within \
                this machine's noise. The noise of the middle row is ±";
    assert!(sentence.starts_with(told), "{sentence}");
    assert!(
        page.contains("| fork, compartment | at most ×1.05 | ×1.50") && page.contains("**not reached**"),
        "{page}"
    );
    let of = |row: &str| {
        page.lines().find(|l| l.starts_with(&format!("| {row}, compartment | within the floor, ±")))
    };
    assert!(of("fork").is_some_and(|l| l.ends_with("| **not reached** |")), "{page}");
    assert!(of("null call").is_some_and(|l| l.ends_with("| reached: no more than noise |")), "{page}");
    // the paper's own figures beside ours
    assert!(page.contains("| fork | 188 | 698 | 432 | ×2.30 |"), "{page}");
}

#[test]
fn the_same_against_the_same_is_told_to_be_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    made_up(dir.path(), 1.0, 1.0);
    let page = std::fs::read_to_string(report(dir.path()).expect("a report")).expect("it was written");
    let sentence = page.lines().nth(2).expect("a first sentence");
    assert!(
        sentence.contains("none of 4 rows differs by more than this machine differs from itself"),
        "{sentence}"
    );
    let summary: levee_lab_summary::Summary =
        serde_json::from_slice(&std::fs::read(dir.path().join("summary.json")).expect("written"))
            .expect("JSON");
    assert!(summary.effects.iter().all(|e| e.verdict == Verdict::Floor), "{summary:?}");
}

/// The part of `summary.json` that is looked at here.
mod levee_lab_summary {
    #[derive(Debug, serde::Deserialize)]
    pub struct Summary {
        pub effects: Vec<levee_lab::analysis::Effect>,
    }
}

/// A run of `protections` in which everything costs what its block's number says, and the link's round trip a microsecond.
fn priced(dir: &Path, env: Vec<Env>, blocks: usize) {
    let study = Study::named("protections").expect("it comes with the program").expect("it can be read");
    let mut form = study.forms["quick"].clone();
    form.blocks = blocks;
    let (form_name, absent, links) = ("quick".into(), Vec::new(), Vec::new());
    let m = Manifest { study, form_name, form, seed: 4, absent, env, links };
    std::fs::write(dir.join("study.json"), serde_json::to_vec(&m).expect("JSON")).expect("written");
    let mut lines = Vec::new();
    for (trial, t) in m.plan().iter().enumerate() {
        let each = match t.arm.as_str() {
            "chacha20-poly1305" => 2e6,
            _ => 1e6,
        } + t.block as f64;
        let counted: &[&str] = match t.workload.as_str() {
            "stream" => &["the vault, µs/GB"],
            "wire" => &["on the wire, octets for 1,000"],
            "request" => &["the vault, ns a packet"],
            _ => &["the vault, µs a second", "on the wire, octets a second"],
        };
        let failed = t.block == 1 && t.workload == "stream";
        let sample = Sample {
            trial,
            at: String::new(),
            block: t.block,
            row: t.workload.clone(),
            arm: t.arm.clone(),
            copy: t.copy,
            seconds: (!failed).then_some(if t.arm == "link" { 1e-6 } else { 3e-6 + 1e-9 * t.block as f64 }),
            preempted: None,
            // The baseline's second copy is no part of a price.
            counted: counted.iter().map(|what| ((*what).to_owned(), each * f64::from(1 + t.copy))).collect(),
            why: failed.then(|| "a trial that failed".into()),
        };
        lines.extend(serde_json::to_vec(&sample).expect("JSON"));
        lines.push(b'\n');
    }
    std::fs::write(dir.join("samples.ndjson"), lines).expect("written");
}

/// When and where.
fn env(kernel: &str) -> Env {
    let facts = [
        ("processor", "A Processor"),
        ("processors of the machine", "2"),
        ("kernel", kernel),
        ("program laboratory, version", "0.1.0"),
    ];
    let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Env { at: "2026-11-25T00:00:00Z".into(), facts }
}

#[test]
fn the_prices_of_a_run_are_the_middle_of_its_blocks_and_a_run_that_tells_none_has_none() {
    let dir = tempfile::tempdir().expect("a directory");
    let prices = || study::prices::of(dir.path()).map_err(|e| e.to_string());
    priced(dir.path(), vec![env("6.1.0"), env("6.1.0")], 7);
    let text = prices().expect("prices");
    let said: toml::Table = text.parse().expect("TOML");
    assert_eq!(
        (said["version"].as_integer(), said["measured"].as_integer()),
        (Some(1), Some(1_795_564_800)),
        "{text}"
    );
    assert_eq!(said["host"]["kernel"].as_str(), Some("6.1.0"), "{text}");
    let rows = said["price"].as_array().expect("prices");
    assert_eq!(rows.len(), 4, "{text}");
    let of = |row: usize, name: &str| -> Option<Vec<i64>> {
        let values = rows[row].get(name)?.as_array()?.iter();
        Some(values.map(|value| value.as_integer().expect("a number")).collect())
    };
    // Of blocks 0 to 6, without the one whose trial failed.
    assert_eq!(of(0, "gigabyte"), Some(vec![1_000_001, 1_000_004, 1_000_006]), "{text}");
    assert_eq!(of(2, "gigabyte"), Some(vec![2_000_001, 2_000_004, 2_000_006]), "{text}");
    assert_eq!(of(1, "trip"), Some(vec![2_000, 2_003, 2_006]), "{text}");
    assert_eq!((of(0, "standing"), of(3, "gigabyte"), of(3, "packet")), (None, None, None), "{text}");
    assert_eq!(of(3, "standing-wire"), Some(vec![1_000_000, 1_000_003, 1_000_006]), "{text}");
    assert_eq!(rows[3]["interval"].as_integer(), Some(4_000), "{text}");

    priced(dir.path(), vec![env("6.1.0")], 4);
    assert!(prices().expect_err("too few blocks").contains("no tunnel was measured"));
    priced(dir.path(), vec![env("6.1.0"), env("6.1.1")], 7);
    assert!(prices().expect_err("two kernels").contains("resumed on another host"));
    priced(dir.path(), vec![Env::default()], 7);
    assert!(prices().is_err(), "nobody knows where");
    made_up(dir.path(), 1.5, 0.66);
    assert!(prices().expect_err("another study").contains("not of protections"));
}

#[test]
fn prices_are_put_among_sessionds_files_and_nothing_there_is_followed() {
    let dir = tempfile::tempdir().expect("a directory");
    assert!(study::prices::put(dir.path(), "a").expect_err("no server").to_string().contains("levee up"));
    let own = dir.path().join("sessiond");
    std::fs::create_dir(&own).expect("a directory");
    let precious = dir.path().join("precious");
    std::fs::write(&precious, "kept").expect("a file");
    for name in ["prices.toml", "prices.toml.new"] {
        std::os::unix::fs::symlink(&precious, own.join(name)).expect("a link");
    }
    let path = study::prices::put(dir.path(), "prices").expect("written");
    assert_eq!(std::fs::read_to_string(&precious).expect("there"), "kept");
    assert_eq!(std::fs::read_to_string(&path).expect("there"), "prices");
    let found = std::fs::symlink_metadata(&path).expect("there");
    assert!(
        found.is_file() && std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o777 == 0o644
    );
    assert_eq!(std::fs::read_dir(&own).expect("there").count(), 1);
}

#[test]
fn the_paper_on_labels_left_the_loopback_out_of_its_average() {
    let study = Study::named("labelled").expect("it comes with the program").expect("it can be read");
    let r = &study.recomputed[0];
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    assert!((mean(&r.values) + 10.685).abs() < 1e-9, "{r:?}");
    assert!((mean(&r.values[r.left_out..]) - r.printed).abs() < 0.05, "{r:?}");
    // the loopback's loss as the paper's own rates have it
    let (table, row) = study.rows().find(|(_, r)| r.id == "loopback-stream").expect("a row");
    let ratio = table.ratio(row).expect("two values");
    assert!(((1.0 / ratio - 1.0) * 100.0 - r.values[0]).abs() < 0.01, "{ratio}");
}

#[test]
fn what_the_paper_on_layers_hid_behind_a_login_of_ten_seconds_is_as_its_report_says() {
    let study = Study::named("layers").expect("it comes with the program").expect("it can be read");
    let without = |id: &str| -> Vec<String> {
        let (_, row) = study.rows().find(|(_, r)| r.id == id).expect("a row");
        let [bare, ssl, ipsec, both] = row.paper[..] else { panic!("{row:?}") };
        [ipsec, ssl, both].map(|v| format!("×{:.2}", (v - 1e4) / (bare - 1e4))).to_vec()
    };
    let [ssh, sftp] = ["ssh", "sftp"].map(without);
    let said = format!(
        "SSH costs {} in IPsec, {} in TLS, {} in both (printed: ×1.002, ×1.003, ×1.005); SFTP {}, {}, {}.",
        ssh[0], ssh[1], ssh[2], sftp[0], sftp[1], sftp[2]
    );
    assert!(study.faults[0].ends_with(&said), "{said}");
    let large = |id: &str| study.rows().find(|(_, r)| r.id == id).expect("a row").1.paper.clone();
    let (down, up) = (large("sftp-down@1024"), large("sftp-up@1024"));
    assert_eq!(
        format!("{:.2} {:.2}", 100.0 - 100.0 * down[3] / down[2], 100.0 - 100.0 * up[3] / up[2]),
        "3.65 2.02"
    );
}

#[test]
fn a_line_that_a_kill_cut_short_is_no_sample() {
    let dir = tempfile::tempdir().expect("a directory");
    made_up(dir.path(), 1.0, 1.0);
    let path = dir.path().join("samples.ndjson");
    let whole = std::fs::read(&path).expect("written");
    std::fs::write(&path, &whole[..whole.len() - 9]).expect("cut");
    let plan = manifest(dir.path()).expect("there").plan().len();
    assert_eq!(samples(dir.path()).expect("readable").len(), plan - 1);
}

/// A study with a form of three blocks of short trials, as a file.
fn smallest(dir: &Path, name: &str, rows: &[&str], arms: &[&str]) -> std::path::PathBuf {
    let mut study = Study::named(name).expect("it comes with the program").expect("it can be read");
    let quick = study.forms.get_mut("quick").expect("a quick form");
    (quick.blocks, quick.seconds) = (3, 0.004);
    quick.rows = Some(rows.iter().map(|r| (*r).to_owned()).collect());
    quick.arms = Some(arms.iter().map(|a| (*a).to_owned()).collect());
    let path = dir.join(format!("{name}.toml"));
    std::fs::write(&path, toml::to_string(&study).expect("TOML")).expect("written");
    path
}

#[test]
fn operations_are_done_natively_and_a_stopped_run_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let rows = [
        "int64-mod",
        "double-bogo",
        "null-call",
        "signal-handle",
        "fork",
        "switch-2p-0K",
        "delete-10K",
        "mmap",
    ];
    let file = smallest(dir.path(), "partition", &rows, &["native"]);
    let out = dir.path().join("run");
    let run = |more: &[&str]| {
        let o = Command::new(LAB)
            .arg("run")
            .arg(&file)
            .args(["--seed", "1"])
            .args(more)
            .arg("--out")
            .arg(&out)
            .output();
        let o = o.expect("the laboratory runs");
        assert!(o.status.success(), "{}", String::from_utf8_lossy(&o.stderr));
    };
    run(&[]);
    let first = samples(&out).expect("samples");
    let failed: Vec<&Sample> =
        // a switch may be lost in the noise of a busy host; nothing else may fail
        first.iter().filter(|s| s.seconds.is_none() && !s.row.starts_with("switch")).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert_eq!(first.len(), 3 * 2 * rows.len());
    // as after a kill: the last trials are missing, and the rest is kept
    let lines = std::fs::read_to_string(out.join("samples.ndjson")).expect("written");
    let kept: String = lines.lines().take(first.len() - 5).map(|l| format!("{l}\n")).collect();
    std::fs::write(out.join("samples.ndjson"), kept + "{\"trial\":").expect("cut");
    run(&["--resume"]);
    let second = samples(&out).expect("samples");
    assert_eq!(second.len(), first.len());
    assert_eq!(second[..first.len() - 5], first[..first.len() - 5]);
    assert!(is_study(&out) && out.join("report.md").exists());
}

#[test]
fn a_goal_holds_for_the_rows_that_it_names_or_whose_names_begin_so_and_one_that_names_none_is_refused() {
    let goal = |name: &str| Goal { arm: "compartment".into(), rows: vec![name.to_owned()], most: None };
    assert!(goal("openssl/").names("openssl/evp/md5") && goal("fork").names("fork"));
    assert!(!goal("openssl").names("openssl/evp/md5") && !goal("fork").names("forks"));
    let mut study = Study::named("labelled").expect("it comes with the program").expect("it can be read");
    study.goals = vec![goal("openssl/")];
    let parsed = |study: &Study| Study::parse(&toml::to_string(study).expect("TOML"));
    parsed(&study).expect("rows begin so");
    for wrong in ["opensslx/", "openssl"] {
        study.goals = vec![goal(wrong)];
        assert!(parsed(&study).is_err(), "{wrong}");
    }
}
