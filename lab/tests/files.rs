//! What is done with a run once it is made: the program on the runs under `docs/reports`, and the files that it writes
//! beside what `docs/laboratory.md` says of them. Needs xz.

use levee_lab::analysis::Summary;
use levee_lab::endings::Ending;
use levee_lab::host::Env;
use levee_lab::place::Home;
use levee_lab::sample::{Manifest, SCHEMA, Sample};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LAB: &str = env!("CARGO_BIN_EXE_levee-lab");
const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs");

fn committed(run: &str) -> PathBuf {
    Path::new(DOCS).join("reports").join(run)
}

/// The lines of a committed run's samples.
fn lines(run: &str) -> Vec<String> {
    let file = committed(run).join("samples.ndjson.xz");
    let out = Command::new("xz").arg("-dc").arg(file).output().expect("apt-get install xz-utils");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("text").lines().map(str::to_owned).collect()
}

/// A committed run as it was before its report: without what is made from its samples.
fn unmade(run: &str, dir: &Path, samples: &[String]) -> PathBuf {
    let to = dir.join(run);
    fs::create_dir(&to).expect("a directory");
    for file in ["manifest.json", "env.json"] {
        fs::copy(committed(run).join(file), to.join(file)).expect(file);
    }
    fs::write(to.join("samples.ndjson"), samples.join("\n") + "\n").expect("samples");
    to
}

fn lab(args: &[&str]) -> Output {
    Command::new(LAB).args(args).output().expect("run the laboratory")
}

fn said(args: &[&str]) -> String {
    let o = lab(args);
    assert!(o.status.success(), "{args:?}: {}", String::from_utf8_lossy(&o.stderr));
    String::from_utf8(o.stdout).expect("text")
}

/// What it says when it fails.
fn refused(args: &[&str]) -> String {
    let o = lab(args);
    assert!(o.status.code() == Some(2) && o.stdout.is_empty(), "{args:?}");
    String::from_utf8(o.stderr).expect("text")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name in UTF-8")
}

fn json<T: DeserializeOwned>(path: &Path) -> T {
    serde_json::from_slice(&fs::read(path).expect("the file"))
        .unwrap_or_else(|e| panic!("{}: {e}", text(path)))
}

/// The cells of the rows of a Markdown table that have as many.
fn rows(table: &str, cells: usize) -> Vec<Vec<String>> {
    let row = |l: &str| l.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect::<Vec<_>>();
    let all = table.lines().filter(|l| l.starts_with('|') && !l.starts_with("|---")).map(row);
    all.filter(|r| r.len() == cells).skip(1).collect()
}

/// Whether two values are the same but for the last digits of numbers, which are those of the C library's logarithms.
fn same(a: &Value, b: &Value, at: &str) {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            assert_eq!(x.keys().collect::<Vec<_>>(), y.keys().collect::<Vec<_>>(), "{at}");
            x.iter().for_each(|(k, v)| same(v, &y[k], &format!("{at}/{k}")));
        }
        (Value::Array(x), Value::Array(y)) => {
            assert_eq!(x.len(), y.len(), "{at}");
            x.iter().zip(y).enumerate().for_each(|(i, (v, w))| same(v, w, &format!("{at}/{i}")));
        }
        (Value::Number(x), Value::Number(y)) => {
            let (x, y) = (x.as_f64().expect("finite"), y.as_f64().expect("finite"));
            assert!((x - y).abs() <= 1e-9 * x.abs().max(y.abs()), "{at}: {x} {y}");
        }
        _ => assert_eq!(a, b, "{at}"),
    }
}

#[test]
fn a_report_is_made_again_from_the_samples_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let samples = lines("agree-quick");
    let run = unmade("agree-quick", dir.path(), &samples);
    let page = said(&["report", text(&run)]);
    assert_eq!(page.trim(), text(&run.join("report.html")));
    let (ours, theirs): (Value, Value) =
        (json(&run.join("summary.json")), json(&committed("agree-quick").join("summary.json")));
    same(&ours, &theirs, "");
    let csv = fs::read_to_string(run.join("samples.csv")).expect("samples.csv");
    assert_eq!(csv.lines().count(), samples.len() + 1);
    let first: Sample = serde_json::from_str(&samples[0]).expect("a sample");
    let row: Vec<&str> = csv.lines().nth(1).expect("a row").split(',').collect();
    assert_eq!(csv.lines().next().expect("names").split(',').count(), row.len());
    assert!(row.contains(&first.workload.as_str()) && row.contains(&first.arm.as_str()), "{row:?}");
    assert!(row.contains(&first.value().expect("accepted").to_string().as_str()), "{row:?}");
    let page = fs::read_to_string(run.join("report.html")).expect("report.html");
    for part in
        ["within the noise floor?", "iperf3", "×0.97", "TCP_HTTP", "noise floor", "Threats to validity"]
    {
        assert!(page.contains(part), "the page has no {part:?}");
    }
    // with the bootstrap's draws, too
    let full = unmade("agree-full", dir.path(), &lines("agree-full"));
    said(&["report", text(&full)]);
    let (ours, theirs): (Value, Value) =
        (json(&full.join("summary.json")), json(&committed("agree-full").join("summary.json")));
    same(&ours, &theirs, "");
    // and not from anything else
    // Its first words are the answer, and only what answers is open.
    let modes = unmade("modes-quick", dir.path(), &lines("modes-quick"));
    said(&["report", text(&modes)]);
    let page = fs::read_to_string(modes.join("report.html")).expect("report.html");
    let first = page.split("<p class=\"lead\">").nth(1).expect("an answer");
    assert!(
        first.starts_with("<strong>Through the tunnel, a byte of a stream takes 6.0 times as long"),
        "{:.300}",
        first
    );
    assert!(page.contains(
        "<li>Behind the tunnel, decided by selectors (direct): that adds nothing that this machine can tell."
    ));
    let open: usize = page
        .split("<section id=")
        .filter(|one| !one.contains("<details><summary>Show"))
        .map(|one| one.matches("<figure>").count())
        .sum();
    assert!((1..=10).contains(&open), "{open} figures are open");
    // One whose samples are packed is not taken for one without any.
    fs::rename(modes.join("samples.ndjson"), modes.join("samples.ndjson.xz")).expect("rename");
    assert!(refused(&["report", text(&modes)]).contains("unxz --keep samples.ndjson.xz"));
    let none = refused(&["report", text(dir.path())]);
    assert!(none.contains("is it a run's directory?"), "{none}");
}

#[test]
fn a_run_whose_baseline_differs_from_itself_is_said_first_to_be_too_noisy_to_cite() {
    let dir = tempfile::tempdir().expect("a directory");
    let uneven = |line: &String| {
        let mut s: Value = serde_json::from_str(line).expect("a sample");
        if s["copy"] == 1 {
            let odd = s["block"].as_u64().is_some_and(|block| block % 2 == 1);
            let value = s["outcome"]["value"].as_f64().expect("a rate");
            s["outcome"]["value"] = (if odd { value / 2.0 } else { value * 2.0 }).into();
        }
        s.to_string()
    };
    let samples: Vec<String> = lines("agree-quick").iter().map(uneven).collect();
    let run = unmade("agree-quick", dir.path(), &samples);
    said(&["report", text(&run)]);
    let page = fs::read_to_string(run.join("report.html")).expect("report.html");
    let lead = page.split("<p class=\"lead\">").nth(1).expect("an answer");
    assert!(lead.starts_with("<strong>This run is too noisy to cite: "), "{lead:.200}");
}

#[test]
fn no_name_of_an_experiment_becomes_markup_in_its_report() {
    const NAMES: [&str; 5] = ["I- M- F-", "I M- F-", "I- M(relay) F-", "a plain link", "The MYSEA study"];
    let dir = tempfile::tempdir().expect("a directory");
    let run = unmade("modes-quick", dir.path(), &lines("modes-quick"));
    let marked = |text: &str| {
        let text = text.replace("\"name\": \"I\"", "\"name\": \"<i>I\"");
        NAMES.iter().fold(text, |text, name| text.replace(name, &format!("<i>{name}")))
    };
    for file in ["manifest.json", "samples.ndjson"] {
        let path = run.join(file);
        let text = fs::read_to_string(&path).expect(file);
        fs::write(&path, marked(&text)).expect(file);
    }
    said(&["report", text(&run)]);
    let page = fs::read_to_string(run.join("report.html")).expect("report.html");
    assert!(page.contains("&lt;i&gt;I M- F-") && page.contains("&lt;i&gt;The MYSEA study"));
    let raw: Vec<&str> = page.split("<i>").skip(1).map(|rest| rest.get(..40).unwrap_or(rest)).collect();
    assert!(raw.is_empty(), "{raw:?}");
}

/// That this JSON is as the schema of this name says.
fn hold(schema: &str, printed: &str) {
    let schema: Value = json(&Path::new(DOCS).join("schemas").join(schema).with_extension("json"));
    let schema = jsonschema::draft202012::new(&schema).expect("a schema");
    let value: Value = serde_json::from_str(printed).expect("JSON");
    let faults: Vec<String> = schema.iter_errors(&value).map(|e| e.to_string()).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn the_laboratory_answers_and_fails_as_other_commands_do_whoever_reads_it() {
    hold("levee-lab-list", &said(&["--json", "list"]));
    let none = ["report", "/nonexistent"];
    let plain = refused(&none);
    assert!(plain.starts_with("levee-lab: "), "{plain}");
    for args in [&["--json", none[0], none[1]][..], &[none[0], none[1], "--json"], &["--json", "no-such"]] {
        let failed = lab(args);
        assert_eq!((failed.status.code(), &*failed.stderr), (Some(2), &b""[..]), "{args:?}");
        let value: Value = serde_json::from_slice(&failed.stdout).expect("an object");
        assert_eq!(value["error"], "Failed", "{args:?}");
        hold("levee-said", &String::from_utf8(failed.stdout).expect("text"));
    }
    // A reader that goes is no failure, and what cannot be said ends nothing.
    for args in [&["list"][..], &["--json", "list"], &none] {
        let nobody = || rustix::pipe::pipe().expect("a pipe").1;
        let status =
            Command::new(LAB).args(args).stdout(nobody()).stderr(nobody()).status().expect("it runs");
        assert_eq!(status.code(), Some(if args == none { 2 } else { 0 }), "{args:?}");
    }
}

#[test]
fn two_runs_are_compared_effect_by_effect() {
    let dir = tempfile::tempdir().expect("a directory");
    let samples = lines("agree-quick");
    let before = unmade("agree-quick", dir.path(), &samples);
    let itself = said(&["compare", text(&before), text(&before)]);
    let table = rows(&itself, 6);
    assert_eq!(table.len(), 6, "{itself}");
    assert!(table.iter().all(|r| r[3] == r[4] && r[5] == "overlap"), "{itself}");
    let of = |table: &[Vec<String>], workload: &str, arm: &str| {
        table.iter().find(|r| r[0] == workload && r[2] == arm).unwrap_or_else(|| panic!("{table:?}")).clone()
    };
    assert_eq!(of(&table, "TCP_STREAM_SELECT", "iperf3")[3], "×0.966 (0.944–0.988)");
    assert!(of(&table, "TCP_RR", "netperf")[3].ends_with(", ≤ floor"), "{itself}");

    // the same run, had iperf3 been half as fast
    let slower = |line: &String| {
        let mut s: Value = serde_json::from_str(line).expect("a sample");
        if s["arm"] == "iperf3" {
            s["outcome"]["value"] = (s["outcome"]["value"].as_f64().expect("a rate") / 2.0).into();
        }
        s.to_string()
    };
    let other = dir.path().join("other");
    fs::create_dir(&other).expect("a directory");
    let after = unmade("agree-quick", &other, &samples.iter().map(slower).collect::<Vec<_>>());
    let table = rows(&said(&["compare", text(&before), text(&after)]), 6);
    assert_eq!(of(&table, "TCP_STREAM_SELECT", "iperf3")[5], "apart: dearer after");
    assert_eq!(table.iter().filter(|r| r[5] == "overlap").count(), 5);
    let table = rows(&said(&["compare", text(&after), text(&before)]), 6);
    assert_eq!(of(&table, "TCP_STREAM_SELECT", "iperf3")[5], "apart: cheaper after");
    let compared = said(&["compare", text(&before), text(&after), "--json"]);
    hold("levee-lab-compare", &compared);
    let all: Vec<Value> = serde_json::from_str(&compared).expect("JSON");
    let iperf3 = all.iter().find(|c| c["arm"] == "iperf3").expect("its effect");
    let ratio = |when: &str| iperf3[when][0].as_f64().expect("a ratio");
    assert!((ratio("after") / ratio("before") - 2.0).abs() < 1e-6, "{iperf3}");
    assert_eq!(iperf3["after_verdict"], "cost");

    let study = unmade("mysea-quick", dir.path(), &lines("mysea-quick"));
    let apples = refused(&["compare", text(&before), text(&study)]);
    assert!(apples.contains("these are runs of agree and of mysea"), "{apples}");
}

#[test]
fn work_is_priced_in_every_arm_that_has_the_prices() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = unmade("mysea-quick", dir.path(), &lines("mysea-quick"));
    let table = said(&["cost", text(&run), "--connections", "2", "--requests", "20", "--bytes", "1e6"]);
    let summary: Summary = json(&committed("mysea-quick").join("summary.json"));
    let price = |arm: &str| {
        let p = summary.prices.iter().find(|p| p.arm == arm).unwrap_or_else(|| panic!("no price of {arm}"));
        p.connection.expect("connects") * 2.0 + p.request.expect("asks") * 20.0 + p.byte.expect("sends") * 1e6
    };
    let all = rows(&table, 4);
    assert_eq!(all.len(), summary.prices.len(), "{table}");
    for row in &all {
        let more = (price(&row[1]) / price("I- M- F-") - 1.0) * 100.0;
        let expected = if row[1] == "I- M- F-" { "–".to_owned() } else { format!("{more:+.1} %") };
        assert_eq!(row[3], expected, "{table}");
    }
    // datagrams are priced where the arm sees any
    let packets = rows(&said(&["cost", text(&run), "--packets", "1000"]), 4);
    assert!(!packets.is_empty() && packets.iter().all(|r| !r[1].contains("spawn-copy")), "{packets:?}");

    let agree = unmade("agree-quick", dir.path(), &lines("agree-quick"));
    let unmeasured = refused(&["cost", text(&agree), "--connections", "1"]);
    assert!(unmeasured.contains("has not measured every kind of work"), "{unmeasured}");
    assert!(refused(&["cost", text(&run), "--requests=-1"]).contains("a count is zero or more"));
}

#[test]
fn the_list_says_how_large_each_form_of_each_experiment_is() {
    let table = said(&["list"]);
    let all: Vec<Value> = serde_json::from_str(&said(&["list", "--json"])).expect("JSON");
    let names: Vec<_> = all.iter().map(|e| e["name"].as_str().expect("a name")).collect();
    let studies =
        ["partition", "frames", "labelled", "selinux", "vaulted", "layers", "macsec", "protections"];
    assert_eq!(names, [&["agree", "mysea", "same"][..], &studies].concat());
    for e in &all {
        assert!(table.contains(e["question"].as_str().expect("a question")), "{table}");
        for (f, least) in e["forms"].as_array().expect("forms").iter().zip([12, 30, 100]) {
            assert!(
                f["blocks"].as_u64() >= Some(least) && f["arms_here"].as_u64() <= f["arms"].as_u64(),
                "{f}"
            );
            assert!(table.contains(&format!("{} trials", f["trials"])), "{table}");
        }
    }
    let form =
        |name: &str, form: usize| &all[names.iter().position(|n| *n == name).expect(name)]["forms"][form];
    // 12 blocks of 7 workloads, the baseline twice and another arm
    assert_eq!(form("same", 0)["trials"], 12 * 7 * 3);
    assert!(form("mysea", 0)["minutes"].as_f64() < Some(2.0), "{table}");
    assert_eq!(form("mysea", 1)["arms"], 36);
}

fn value(v: &impl serde::Serialize) -> Value {
    serde_json::to_value(v).expect("JSON")
}

/// The fields of each object, as the table in the document names them.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let doc = fs::read_to_string(Path::new(DOCS).join("laboratory.md")).expect("docs/laboratory.md");
    assert!(doc.contains(&format!("(schema {SCHEMA})")), "the document is of another schema");
    let (_, table) = doc.split_once("| object | its fields |").expect("the table of fields");
    let words = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let mut out = BTreeMap::new();
    for line in table.lines().skip(2).take_while(|l| l.starts_with('|')) {
        let (object, fields) = line.trim_matches('|').split_once('|').expect("two cells");
        let fields = words(fields);
        let set: BTreeSet<_> = fields.iter().cloned().collect();
        assert_eq!(set.len(), fields.len(), "a field is named twice: {line}");
        words(object).into_iter().for_each(|o| drop(out.insert(o, set.clone())));
    }
    out
}

#[test]
fn the_documented_fields_are_those_that_are_written() {
    let mut written: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut saw = |object: &'static str, value: &Value| {
        let each: Vec<&Value> = value.as_array().map_or_else(|| vec![value], |all| all.iter().collect());
        for fields in each.into_iter().filter_map(Value::as_object) {
            written.entry(object).or_default().extend(fields.keys().cloned());
        }
    };
    for run in ["agree-quick", "mysea-quick"] {
        let mut m: Manifest = json(&committed(run).join("manifest.json"));
        // what is written only where it is set
        m.form.budget = Some(1.0);
        m.form.endings = Some(1);
        m.experiment.workloads[0].datagram = Some(256);
        let m = value(&m);
        saw("manifest.json", &m);
        for part in ["experiment", "form", "rules", "common"] {
            saw(part, &m[part]);
        }
        let e = &m["experiment"];
        for part in ["factor", "arm", "workload"] {
            saw(part, &e[part]);
        }
        saw("drive", &e["arm"][0]["drive"]);
        let env: Vec<Env> = json(&committed(run).join("env.json"));
        saw("env.json", &value(&env));
        for line in lines(run).iter().take(60) {
            let s = value(&serde_json::from_str::<Sample>(line).expect("a sample"));
            let o = &s["outcome"];
            saw("sample", &s);
            saw("outcome", o);
            saw("latency", &o["latency"]);
            saw("udp", &o["udp"]);
            saw("step", &o["udp"]["steps"]);
            saw("net", &o["net"]);
            saw("net", &s["server_net"]);
            saw("ledger", &s["ledger"]);
            saw("load", &s["load"]);
        }
        let s = value(&json::<Summary>(&committed(run).join("summary.json")));
        saw("summary.json", &s);
        saw("cell", &s["cells"]);
        saw("floor", &s["floors"]);
        saw("effect", &s["effects"]);
        saw("interval", &s["effects"][0]["cost"]);
        saw("attribution", &s["attribution"]);
        saw("price", &s["prices"]);
        saw("check", &s["calculator"]);
        let (session, at) = (Home::Elsewhere, String::new());
        saw("ending", &value(&Ending { at, session, seconds: None, why: None }));
    }
    let documented = documented();
    for (object, fields) in &written {
        assert_eq!(documented.get(*object), Some(fields), "{object}: left, what the document says");
    }
    assert_eq!(documented.len(), written.len(), "{:?}", documented.keys());
}

/// The figures of the Vaulted VPN's study: every point of a line is in the file, and each is where its rate and time are.
#[test]
fn the_figures_of_a_study_are_drawn_from_its_samples() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = dir.path().join("vaulted");
    fs::create_dir(&run).expect("a directory");
    fs::copy(committed("vaulted-quick").join("study.json"), run.join("study.json")).expect("study.json");
    fs::write(run.join("samples.ndjson"), lines("vaulted-quick").join("\n") + "\n").expect("samples");
    said(&["report", text(&run)]);
    let report = fs::read_to_string(run.join("report.md")).expect("a report");
    for (figure, arms) in [("7", 5), ("8", 3)] {
        assert!(report.contains(&format!("(figure-{figure}.svg)")), "{report}");
        let svg = fs::read_to_string(run.join(format!("figure-{figure}.svg"))).expect("a figure");
        // Three rates, times above and errors below.
        assert_eq!(svg.matches("<circle").count(), arms * 3 * 2, "{svg}");
        assert!(svg.contains("prefers-color-scheme:dark") && svg.contains("var(--c2)"), "{svg}");
    }
}
