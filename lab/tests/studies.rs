//! The studies' engine: on samples of known costs, and on what the host has without levee.

use levee_lab::analysis::Verdict;
use levee_lab::host::Env;
use levee_lab::study::Study;
use levee_lab::study::run::{Manifest, Sample, is_study, manifest, report, samples};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const LAB: &str = env!("CARGO_BIN_EXE_levee-lab");

/// Four rows, of which one costs half as much again in a compartment, one two thirds, and two nothing.
fn made_up(dir: &Path, slower: f64, quicker: f64) {
    let study = Study::named("partition").expect("it comes with the program").expect("it can be read");
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
