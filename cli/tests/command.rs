//! The `levee` command as an operator runs it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn levee(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_levee"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses at once ends without reading; what it says is what counts.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    levee_system::schema::hold("levee", arguments, text(&output.stdout));
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn check_says_0_of_a_sound_site_1_of_one_with_problems_2_of_none() {
    for site in ["conf/small/site.toml", "conf/large/site.toml"] {
        let sound = levee(&["check", site], "");
        assert_eq!(sound.status.code(), Some(0), "{}", text(&sound.stdout));
        assert!(text(&sound.stdout).contains("is sound"));
    }
    let faulty = std::fs::read_to_string(root().join("conf/small/site.toml")).unwrap();
    let faulty = faulty.replace("clearance = \"UNCLASSIFIED\"", "clearance = \"UNCLASIFIED\"");
    let problems = levee(&["check", "-"], &faulty);
    assert_eq!(problems.status.code(), Some(1));
    assert!(text(&problems.stdout).contains("did you mean `UNCLASSIFIED`?"), "{}", text(&problems.stdout));
    let none = levee(&["check", "/nonexistent/site.toml"], "");
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("/nonexistent/site.toml"), "{}", text(&none.stderr));
    assert_eq!(levee(&["check"], "").status.code(), Some(2));
}

#[test]
fn check_says_which_keys_and_bundles_do_not_fit_the_site_file() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let small = std::fs::read_to_string(root().join("conf/small/site.toml")).unwrap();
    let before = "keys = \"P-256\"";
    assert!(small.contains(before));
    let site = |name: &str, keys: &str| {
        let path = place.path().join(name);
        let text = small.replace("suites = \"default\"", "").replace(before, keys);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (old, p384) = (site("old.toml", before), site("p384.toml", "keys = \"P-384\""));
    let cnsa = site("cnsa.toml", "suites = \"cnsa\"");
    let state = state.to_str().unwrap();
    let run = |arguments: &[&str]| levee(&[arguments, &["--state", state]].concat(), "");
    let fit = |site: &str| {
        let output = run(&["check", site, "--json"]);
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["sound"], true);
        let files = answer["unfit"].as_array().map_or(0, Vec::len);
        assert_eq!(output.status.code(), Some(i32::from(files > 0)));
        files
    };
    assert_eq!([&old, &p384, &cnsa].map(|site| fit(site)), [0; 3], "there are no keys yet");
    assert_eq!(run(&["enrol", "all", &old]).status.code(), Some(0));
    // Certificates of authority, server (two) and hosts (two each), and the audit log's key; and what the bundles say.
    assert_eq!([fit(&old), fit(&p384), fit(&cnsa)], [0, 1 + 2 + 4 + 1, 1 + 2 + 4 + 1 + 2]);
    let said = run(&["check", &p384]);
    let said = text(&said.stdout);
    assert!(said.contains("server/chain.pem: its key is not on P-384"), "{said}");
    assert!(said.contains(&format!("levee enrol all {p384} --force")), "{said}");
    assert_eq!(run(&["enrol", "all", &p384, "--force"]).status.code(), Some(0));
    assert_eq!([fit(&old), fit(&p384), fit(&cnsa)], [0, 0, 2]);
    assert_eq!(run(&["enrol", "host", &cnsa, "ws1", "--force"]).status.code(), Some(0));
    assert_eq!(fit(&cnsa), 1);
    assert_eq!(run(&["enrol", "host", &cnsa, "ws2", "--force"]).status.code(), Some(0));
    assert_eq!(fit(&cnsa), 0);
    std::fs::write(place.path().join("state/server/audit.pub"), "nothing").unwrap();
    assert_eq!(fit(&cnsa), 1);
}

#[test]
fn check_says_where_the_site_has_changed_since_its_keys_were_made() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let small = include_str!("../../conf/small/site.toml");
    let ask = |change: [&str; 2], command: &[&str]| {
        let path = place.path().join("site.toml");
        assert!(small.contains(change[0]));
        std::fs::write(&path, small.replacen(change[0], change[1], 1)).unwrap();
        let path = path.to_str().unwrap();
        let output = levee(&[command, &[path, "--state", state.to_str().unwrap()]].concat(), "");
        (output.status.code(), text(&output.stdout).to_owned())
    };
    assert_eq!(ask(["", ""], &["enrol", "all"]).0, Some(0));
    assert_eq!(ask(["", ""], &["check"]).0, Some(0));
    let cases = [
        (
            "name = \"server.harbour.example\"",
            "name = \"other.harbour.example\"",
            1,
            "calls the server other.harbour.example",
        ),
        (
            "addresses = [\"10.77.0.1\"]",
            "addresses = [\"10.77.0.2\"]",
            1,
            "looks for the server at other addresses",
        ),
        (
            "accreditation = \"UNCLASSIFIED..SECRET//NATO,MED\"",
            "accreditation = \"UNCLASSIFIED..SECRET\"",
            1,
            "the site file says UNCLASSIFIED..SECRET",
        ),
        (
            "[[host]]\nname = \"ws1\"",
            "[[host]]\nname = \"ws9\"\naccreditation = \"UNCLASSIFIED\"\n\n[[host]]\nname = \"ws1\"",
            0,
            "the host ws9 has no bundle",
        ),
    ];
    for (before, after, code, words) in cases {
        let (status, said) = ask([before, after], &["check"]);
        assert!(status == Some(code) && said.contains(words), "{status:?} {said}");
    }
    // What is new is added, and nothing else is touched.
    let (status, added) = ask([cases[3].0, cases[3].1], &["enrol", "all"]);
    assert!(
        status == Some(0)
            && added.lines().count() == 6
            && added.lines().all(|line| line.contains("hosts/ws9")),
        "{added}"
    );
}

#[test]
fn check_gives_programs_every_problem_as_json() {
    let output = levee(&["check", "--json", "-"], "[labels]\nlevels = [\"A\", \"A\"]\nx = 1\n");
    assert_eq!(output.status.code(), Some(1));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["sound"], false);
    let kinds: Vec<&str> =
        answer["problems"].as_array().unwrap().iter().map(|p| p["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["missing-key", "missing-key", "duplicate", "unknown-key"]);
    assert_eq!(
        (answer["problems"][2]["line"].as_u64(), answer["problems"][2]["column"].as_u64()),
        (Some(2), Some(16))
    );
    let sound: serde_json::Value =
        serde_json::from_slice(&levee(&["check", "--json", "conf/small/site.toml"], "").stdout).unwrap();
    assert_eq!((&sound["sound"], &sound["site"]["users"]), (&true.into(), &3.into()));
}

/// Line and column, from 1, of the first place where the text is.
fn place(text: &str, wanted: &str) -> (u64, u64) {
    let at = text.find(wanted).unwrap_or_else(|| panic!("{wanted:?} is not in the file"));
    let (line, start) = (text[..at].matches('\n').count() + 1, text[..at].rfind('\n').map_or(0, |at| at + 1));
    (line as u64, (at - start + 1) as u64)
}

#[test]
fn check_tells_faults_of_every_kind_at_once_each_with_its_place_the_nearest_name_and_the_remedy() {
    let mut text = std::fs::read_to_string(root().join("conf/small/site.toml")).unwrap();
    for (from, to) in [
        ("[\"NATO\", \"MED\"]", "[\"NATO\", \"MED\", \"NATO\"]"),
        ("slots = 64", "slts = 64"),
        ("clearance = \"UNCLASSIFIED..SECRET//NATO,MED\"", "clearance = \"UNCLASSIFIED..SECRET//NATO\""),
        ("\"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\"", "\"CONFIDENTIAL//MED..CONFIDENTIAL//NATO\""),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    text.push_str(
        r#"
[[service]]
name = "plans"
port = 81
protocol = "tcp"
range = "SECRET//NATO,MED"
mode = "direct"
program = "nginx"

[[network]]
interface = "ship0"
label = "SECRET"
address = "192.168.7.1/24"
services = ["wbe"]

[[network]]
interface = "ship1"
label = "SECRET"
address = "192.168.7.129/25"
"#,
    );
    // In the order of the file: kind, where, nearest, remedy.
    let wanted = [
        ("duplicate", "\"NATO\"]", None, "remove or rename"),
        ("unknown-key", "slts", Some("slots"), "did you mean `slots`?"),
        ("empty-range", "CONFIDENTIAL//MED..", None, "`CONFIDENTIAL//MED..CONFIDENTIAL//NATO,MED`"),
        ("unreachable", "\"SECRET//NATO,MED\"", None, "widen its range or a user's clearance"),
        ("unknown-name", "\"wbe\"", Some("web"), "did you mean `web`?"),
        ("overlap", "\"192.168.7.129/25\"", None, "share no address"),
    ];
    let output = levee(&["check", "--json", "-"], &text);
    assert_eq!(output.status.code(), Some(1));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = answer["problems"].as_array().unwrap();
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    let words = levee(&["check", "-"], &text);
    assert_eq!(words.status.code(), Some(1));
    let words = self::text(&words.stdout);
    for (problem, (kind, at, nearest, remedy)) in found.iter().zip(wanted) {
        let (line, column) = place(&text, at);
        assert_eq!(problem["kind"], kind, "{problem:#}");
        assert_eq!(
            (problem["line"].as_u64(), problem["column"].as_u64()),
            (Some(line), Some(column)),
            "{kind}"
        );
        assert_eq!(problem["nearest"].as_str(), nearest, "{kind}");
        assert!(problem["remedy"].as_str().is_some_and(|told| told.contains(remedy)), "{problem:#}");
        assert!(words.contains(&format!("error[{kind}]")), "{kind}:\n{words}");
        assert!(words.contains(&format!("--> -:{line}:{column}\n")), "{kind}:\n{words}");
    }
    assert!(words.ends_with("-: 6 problems\n"), "{words}");
}

#[test]
fn a_person_gets_a_password_once_and_it_is_replaced_only_on_demand() {
    let state = tempfile::tempdir().unwrap();
    let run = |command: &str, user: &str, input: &str| {
        let state = state.path().to_str().unwrap();
        levee(&["user", command, "conf/small/site.toml", user, "--state", state], input)
    };
    assert_eq!(run("passwd", "ada", "correct horse\n").status.code(), Some(2), "there is none to replace");
    let added = run("add", "ada", "correct horse\n");
    assert_eq!(added.status.code(), Some(0), "{}", text(&added.stderr));
    assert!(!text(&added.stdout).contains("horse") && !text(&added.stderr).contains("horse"));
    let file = state.path().join("sessiond/credentials/ada");
    let before = std::fs::read(&file).unwrap();
    assert!(before.starts_with(b"$argon2id$"));
    assert_eq!(run("add", "ada", "correct horse\n").status.code(), Some(2));
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_eq!(run("passwd", "ada", "short\n").status.code(), Some(2));
    assert_eq!(std::fs::read(&file).unwrap(), before);
    assert_eq!(run("passwd", "ada", "another horse\n").status.code(), Some(0));
    assert_ne!(std::fs::read(&file).unwrap(), before);
    let unknown = run("add", "adda", "correct horse\n");
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("did you mean `ada`?"), "{}", text(&unknown.stderr));
    let outside = run("add", "../ada", "correct horse\n");
    assert_eq!(outside.status.code(), Some(2));
    assert_eq!(std::fs::read_dir(state.path().join("sessiond/credentials")).unwrap().count(), 1);
}

#[test]
fn that_nobody_reads_what_a_command_says_is_no_fault() {
    let state = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_levee"));
    command.args(["enrol", "all", "conf/small/site.toml", "--state"]).arg(state.path());
    let output = command.current_dir(root()).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn completions_come_for_every_shell() {
    let words = |kind: &str| {
        let words = levee(&["words", kind, "--site", "conf/small/site.toml"], "");
        text(&words.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(
        words("labels").contains(&"SECRET//NATO".to_owned()) && words("users").contains(&"ada".to_owned())
    );
    assert!(words("hosts").contains(&"ws1".to_owned()) && words("services").contains(&"web".to_owned()));
    assert_eq!(levee(&["words", "labels", "--site", "/nonexistent"], "").stdout, b"");
    bash_completes(&["put", "SECRET//N"], "SECRET//NATO");
    bash_completes(&["why", "ada", "ws"], "ws1");
    bash_completes(&["why", "--site", "conf/small/site.toml", "ada", "ws1", "secret//n"], "SECRET//NATO");
    bash_completes(&["plan", "conf/small/site.toml", "SECRET//N"], "SECRET//NATO");
    bash_completes(&["user", "add", "conf/small/site.toml", "ad"], "ada");
    bash_completes(&["sta"], "status");
    bash_completes(&["audit", "show", "--user", "ad"], "ada");
    bash_completes(&["audit", "show", "--label", "SECRET//N"], "SECRET//NATO");
    bash_completes(&["posture", "set", "siege", "--labels", "SECRET//N"], "SECRET//NATO");
    bash_completes(&["posture", "plan", "--labels", "CONFIDENTIAL..SECRET//N"], "CONFIDENTIAL..SECRET//NATO");
    bash_completes(&["matrix", "conf/small/site.toml", "--host", "ws"], "ws1");
    let offered = [
        ("sta", "status"),
        ("put SECRET//N", "SECRET//NATO"),
        ("why ada ws", "ws1"),
        ("put secret//n", "SECRET//NATO"),
        ("plan conf/small/site.toml SECRET//N", "SECRET//NATO"),
        ("user add conf/small/site.toml ad", "ada"),
        ("user disable ad", "ada"),
        ("enrol host conf/small/site.toml ws", "ws1"),
        ("posture set ", "default"),
        ("posture set siege --labels SECRET//N", "SECRET//NATO"),
        ("audit show --user ad", "ada"),
        ("audit show --host ws", "ws1"),
        ("audit show --label SECRET//N", "SECRET//NATO"),
    ];
    let definitions = tempfile::tempdir().unwrap();
    for (shell, file) in [("fish", "levee.fish"), ("zsh", "_levee")] {
        let output = levee(&["completions", shell], "");
        std::fs::write(definitions.path().join(file), output.stdout).unwrap();
    }
    for (words, offered) in offered {
        let line = format!("levee {words}");
        let fish = "set PATH $argv[1] $PATH; source $argv[2]/levee.fish; complete -C $argv[3] | string match -r \"^$argv[4]\\b\"";
        completes(&["fish", "--no-config", "-c", fish], definitions.path(), &line, offered);
        completes(&["zsh", "-f", "cli/tests/complete.zsh"], definitions.path(), &line, offered);
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = levee(&["completions", shell], "");
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stdout).contains("doctor"), "{shell}");
    }
}

/// `levee init` with two levels, answered on the command line.
fn init(file: &Path, more: &[&str]) -> Output {
    let words = ["--name", "quay", "--server", "server.quay.example", "--address", "192.0.2.1"];
    let all = ["--levels", "LOW,HIGH", "--people", "ada", "--workstations", "ws1"];
    levee(&[&["init", file.to_str().unwrap()], &words[..], &all, more].concat(), "")
}

#[test]
fn a_wrong_answer_at_the_terminal_is_asked_for_again_and_those_before_it_are_kept() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("site.toml");
    let command = format!("{} init {}", env!("CARGO_BIN_EXE_levee"), file.display());
    // script(1) gives it a terminal.
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("apt-get install bsdutils");
    let answers = "Not A Site\nquay\n\n192.0.2\n192.0.2.1\nLOW,low\nLOW,HIGH\nMED/\nMED,NATO\nada,no body\nada\n\nperhaps\nno\n";
    child.stdin.take().unwrap().write_all(answers.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}");
    for again in [
        "`Not A Site`: ",
        "`192.0.2` is no IPv4",
        "`low` differs",
        "`MED/` cannot be",
        "`no body`: ",
        "`perhaps` is neither yes nor no",
    ] {
        assert!(said.contains(again), "{again}: {said}");
    }
    let site = std::fs::read_to_string(&file).unwrap();
    for kept in [
        "\"quay\"",
        "server.quay.example",
        "192.0.2.1",
        "\"HIGH\"",
        "\"MED\"",
        "HIGH//MED,NATO",
        "\"ada\"",
        "\"ws1\"",
    ] {
        assert!(site.contains(kept), "{kept}: {site}");
    }
}

#[test]
fn labels_that_are_too_many_to_list_are_completed_category_by_category() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("site.toml");
    assert!(init(&file, &[]).status.success());
    let names: Vec<String> = (0..12).map(|number| format!("CAT{number:02}")).collect();
    let site = std::fs::read_to_string(&file).unwrap();
    let site = site.replace("categories = []", &format!("categories = {names:?}"));
    let site = site.replace("range = \"LOW..HIGH\"", &format!("range = \"LOW..HIGH//{}\"", names.join(",")));
    std::fs::write(&file, site).unwrap();
    let offered = |start: &str| {
        let words = levee(&["words", "labels", "--site", file.to_str().unwrap(), "--start", start], "");
        text(&words.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let first = offered("");
    assert_eq!(first.len(), 2 + 2 * 12);
    for label in ["LOW", "HIGH", "HIGH//CAT07"] {
        assert!(first.contains(&label.to_owned()), "{label}: {first:?}");
    }
    let further = offered("HIGH//CAT07,C");
    assert!(further.contains(&"HIGH//CAT07,CAT03".to_owned()), "{further:?}");
    assert_eq!(further.len(), 11, "what it has already is not offered: {further:?}");
}

#[test]
fn a_first_site_has_its_keys_with_it_where_that_is_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let (file, state) = (place.path().join("site.toml"), place.path().join("state"));
    let state = state.to_str().unwrap();
    let done = init(&file, &["--enrol", "--state", state]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let said = text(&done.stdout);
    for written in ["authority/ca.pem", "server/chain.pem", "hosts/ws1/workstation.toml"] {
        assert!(Path::new(state).join(written).exists() && said.contains(written), "{written}: {said}");
    }
    // What is left to do begins behind the keys, and is seven steps with this one and what installs levee.
    assert!(said.contains("  1. levee user add ") && !said.contains("levee enrol all"), "{said}");
    assert!(said.contains("  5. levee-tpe login") && !said.contains("  6. "), "{said}");
    let again = levee(&["enrol", "all", file.to_str().unwrap(), "--state", state], "");
    assert!(text(&again.stdout).contains("nothing is missing"), "{}", text(&again.stdout));
    let check = || levee(&["check", file.to_str().unwrap(), "--state", state], "");
    let warned =
        |said: &str| said.contains("auditor.key: this is the auditor's alone: move it off this host");
    assert!(warned(text(&check().stdout)), "{}", text(&check().stdout));
    std::fs::rename(Path::new(state).join("auditor/auditor.key"), place.path().join("away")).unwrap();
    let check = check();
    assert!(check.status.success() && !warned(text(&check.stdout)), "{}", text(&check.stdout));
    assert!(text(&check.stdout).contains("certificates: the first to end is "), "{}", text(&check.stdout));
    let without = place.path().join("without.toml");
    assert!(text(&init(&without, &[]).stdout).contains("  1. levee enrol all "));
}

#[test]
fn a_command_line_that_is_not_understood_is_told_as_json_where_that_is_asked_for() {
    for words in [&["--json", "nosuch"][..], &["status", "--json", "--bogus"], &["why", "--json"]] {
        let output = levee(words, "");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), ""), "{words:?}");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(value["error"], "Failed", "{words:?}");
        assert!(value["reason"].as_str().unwrap().contains("Usage: levee"), "{value}");
    }
    // What stands behind `--` is another program's.
    let theirs = levee(&["exec", "--bogus", "--", "--json"], "");
    assert_eq!((theirs.status.code(), text(&theirs.stdout)), (Some(2), ""));
    assert!(text(&theirs.stderr).starts_with("error: "));
    let help = levee(&["--json", "--help"], "");
    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("Usage: levee"));
}

/// docs/SECURITY.md says how exposed the units are, and why not less. In tenths, as systemd has it.
#[test]
fn no_systemd_unit_is_more_exposed_than_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let mut units = 0;
    for unit in std::fs::read_dir(root().join("conf/systemd")).unwrap() {
        let unit = unit.unwrap();
        let written = std::fs::read_to_string(unit.path()).unwrap().replace("@bindir@", "/usr/bin");
        let installed = directory.path().join(unit.file_name());
        std::fs::write(&installed, written).unwrap();
        let mut one = Command::new("systemd-analyze");
        one.args(["security", "--offline=true", "--no-pager", "--threshold=66"]).arg(&installed);
        let said = one.output().expect("systemd-analyze: install systemd");
        assert_eq!(said.status.code(), Some(0), "{}{}", text(&said.stdout), text(&said.stderr));
        units += 1;
    }
    assert_eq!(units, 3);
}

#[test]
fn the_systemd_units_call_levee_as_it_can_be_called() {
    let mut calls = 0;
    for unit in std::fs::read_dir(root().join("conf/systemd")).unwrap() {
        let unit = std::fs::read_to_string(unit.unwrap().path()).unwrap();
        let commands = unit.lines().filter_map(|line| line.strip_prefix("ExecStart")?.split_once('='));
        for (_, command) in commands {
            let command = command.replace("%i", "harbour");
            let mut words = command.split(' ');
            assert_eq!(words.next(), Some("@bindir@/levee"));
            // With --help last, everything before it is read and nothing is done.
            let arguments: Vec<&str> = words.chain(["--help"]).collect();
            let output = levee(&arguments, "");
            assert_eq!(output.status.code(), Some(0), "{command}: {}", text(&output.stderr));
            calls += 1;
        }
    }
    assert_eq!(calls, 4);
    assert_ne!(
        levee(&["up", "--no-such-flag", "--help"], "").status.code(),
        Some(0),
        "the test proves nothing"
    );
}

#[test]
fn lab_becomes_the_laboratory_beside_it_and_says_so_where_there_is_none() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("levee");
    // By another process: a descriptor of this one that another test's child inherits would keep the copy from being executed.
    let install = |from: &str, to: &Path| {
        assert!(Command::new("install").args(["-m", "755", from]).arg(to).status().unwrap().success());
    };
    install(env!("CARGO_BIN_EXE_levee"), &program);
    let lab = |arguments: &[&str]| Command::new(&program).arg("lab").args(arguments).output().unwrap();
    let none = lab(&["list"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(text(&none.stderr).contains("levee-lab"), "{}", text(&none.stderr));
    // every word goes on to it, those that look like options too
    let script = directory.path().join("script");
    std::fs::write(&script, "#!/bin/sh\necho \"$@\"\nexit 7\n").unwrap();
    install(script.to_str().unwrap(), &directory.path().join("levee-lab"));
    let there = lab(&["run", "mysea", "--quick", "--help"]);
    assert_eq!((there.status.code(), text(&there.stdout)), (Some(7), "run mysea --quick --help\n"));
}

#[test]
fn doctor_adds_up_what_a_sites_labels_could_take_of_the_kernels_tables() {
    let done = levee(&["doctor", "--json", "conf/large/site.toml"], "");
    let answer: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let findings = answer["findings"].as_array().unwrap();
    for what in
        ["processes and threads", "open files", "pages of TCP's buffers", "TCP connections that nobody holds"]
    {
        let one =
            findings.iter().find(|one| one["what"] == what).unwrap_or_else(|| panic!("{what}: {answer}"));
        assert!(one["detail"].as_str().unwrap().contains("1000 at once"), "{one}");
    }
    let wrong = levee(&["doctor", "no/such/file"], "");
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
}

#[test]
fn check_says_each_declared_exception_with_its_bounds_and_refuses_a_schema_that_is_none() {
    let partition = |name: &str, label: &str| {
        format!(
            "\n[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/bin/sleep\", \"9\"]\n"
        )
    };
    let guard = r#"
[[channel]]
name = "downgrade"
kind = "guard"
from = "vault"
filter = "checker"
to = "desk"
messages = "10 in 60s"
hours = "08:00-18:00"
schema = '{"type": "object"}'
"#;
    let site = std::fs::read_to_string(root().join("conf/small/site.toml")).unwrap();
    let site = site
        + &partition("vault", "SECRET")
        + &partition("checker", "SECRET")
        + &partition("desk", "UNCLASSIFIED");
    let with = |guard: &str| levee(&["check", "-"], &format!("{site}{guard}"));
    let checked = with(guard);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
    let line = "declared exception: SECRET to UNCLASSIFIED by guard downgrade: bounds: messages of 32768 bytes, 10 in 60 s of them, \
                bytes 327680 in 60 s, JSON of its schema, at 08:00-18:00 UTC; filter checker, 5 s a message";
    assert!(text(&checked.stdout).contains(line), "{}", text(&checked.stdout));
    for (from, to, what) in [
        ("{\"type\": \"object\"}", "{\"type\": \"objct\"}", "the schema is none"),
        ("filter = \"checker\"", "filter = \"vault\"", "has another channel"),
        ("filter = \"checker\"", "", "filter"),
        ("filter = \"checker\"", "filter = \"nobody\"", "no partition `nobody`"),
        ("kind = \"guard\"", "kind = \"oneway\"", "only a guard has"),
    ] {
        let checked = with(&guard.replace(from, to));
        assert_eq!(checked.status.code(), Some(1), "{to}: {}", text(&checked.stdout));
        assert!(text(&checked.stdout).contains(what), "{to}: {}", text(&checked.stdout));
    }
    // Another way down is refused all the same.
    let other = "\n[[channel]]\nname = \"other\"\nkind = \"oneway\"\nfrom = \"vault\"\nto = \"desk\"\n";
    let checked = with(other);
    assert!(
        text(&checked.stdout).contains("information gets where the lattice forbids it"),
        "{}",
        text(&checked.stdout)
    );
}

#[test]
fn every_command_that_prints_json_prints_what_its_schema_says() {
    let site = "conf/small/site.toml";
    let keys = tempfile::tempdir().unwrap();
    for arguments in [
        &["enrol", "request", keys.path().to_str().unwrap(), "--host", "ws1", "--json"],
        &["why", "--site", site, "ada", "ws1", "SECRET", "--json"][..],
        &["matrix", site, "--json"],
        &["doctor", "--json"],
    ] {
        let output = levee(arguments, "");
        assert!(!output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stderr));
    }
    // It fails where something is printed that the schema does not know.
    let more = r#"{ "fit": true, "findings": [], "more": 1 }"#;
    assert!(
        std::panic::catch_unwind(|| levee_system::schema::hold("levee", &["doctor", "--json"], more))
            .is_err()
    );
}

/// Whether a shell that is given the programs' directory, the one of the definitions, a line, and what is to be offered for it, finds it.
fn completes(shell: &[&str], definitions: &Path, line: &str, offered: &str) {
    let programs = Path::new(env!("CARGO_BIN_EXE_levee")).parent().unwrap();
    let mut command = Command::new("timeout");
    command.arg("60").args(shell).args([programs, definitions]).args([line, offered]).current_dir(root());
    let command = command.env("LEVEE_SITE", root().join("conf/small/site.toml"));
    let output = command.stdin(std::process::Stdio::null()).output().unwrap();
    let said = text(&output.stdout);
    assert!(
        output.status.success() && !said.is_empty(),
        "{}: {line}: {said} {}",
        shell[0],
        text(&output.stderr)
    );
}

fn bash_completes(words: &[&str], offered: &str) {
    let script =
        "source <(\"$1\" completions bash); levee=$1; shift; COMP_WORDS=(\"$levee\" \"$@\"); COMP_CWORD=$#
        _levee-names \"$levee\" \"${@: -1}\" \"\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let site = root().join("conf/small/site.toml");
    let mut bash = Command::new("bash");
    bash.args(["-c", script, "bash", env!("CARGO_BIN_EXE_levee")]).args(words).current_dir(root());
    let output = bash.env("LEVEE_SITE", site).output().unwrap();
    let all = text(&output.stdout);
    assert!(all.lines().any(|line| line == offered), "{words:?}: {all:?} {}", text(&output.stderr));
}

/// Each command, asked for what cannot be: nothing is there.
const IN_VAIN: &[&[&str]] = &[
    &[
        "init",
        "NONE/site.toml",
        "--name",
        "quay",
        "--server",
        "quay.example",
        "--address",
        "192.0.2.1",
        "--levels",
        "LOW",
        "--people",
        "ada",
        "--workstations",
        "ws1",
    ],
    &["up", "NONE/site.toml"],
    &["down", "--run", "NONE"],
    &["reload", "--run", "NONE"],
    &["plan", "NONE/site.toml", "LOW"],
    &["enrol", "all", "NONE/site.toml"],
    &["enrol", "auditor", "NONE/site.toml", "--public", "NONE/key.pub"],
    &["enrol", "authority", "NONE/site.toml"],
    &["enrol", "channel", "NONE/site.toml", "readings"],
    &["enrol", "etcd", "NONE/site.toml"],
    &["enrol", "host", "NONE/site.toml", "ws1"],
    &["enrol", "ppk", "NONE/site.toml", "peer"],
    &["enrol", "request", "NONE/request", "--host", "ws1"],
    &["enrol", "revoke", "NONE/site.toml", "ws1"],
    &["enrol", "rotate", "NONE/site.toml", "ike"],
    &["enrol", "server", "NONE/site.toml"],
    &["enrol", "sign", "NONE/site.toml", "NONE/request.pem", "--host", "ws1"],
    &["status", "--run", "NONE"],
    &["log", "--state", "NONE"],
    &["session", "list", "--run", "NONE"],
    &["session", "end", "0123456789ab", "--run", "NONE"],
    &["partition", "list", "--run", "NONE"],
    &["partition", "replace", "one", "--run", "NONE"],
    &["partition", "start", "one", "--run", "NONE"],
    &["partition", "stop", "one", "--run", "NONE"],
    &["service", "test", "web", "LOW", "--run", "NONE"],
    &["exec", "LOW", "--run", "NONE", "--state", "NONE", "--", "/bin/true"],
    &["put", "LOW", "NONE/file", "file", "--run", "NONE"],
    &["check", "NONE/site.toml"],
    &["why", "--site", "NONE/site.toml", "ada", "ws1", "LOW"],
    &["matrix", "NONE/site.toml"],
    &["label", "translate", "NONE/site.toml", "1", "LOW"],
    &["label", "check", "NONE/site.toml", "NONE/labels"],
    &["posture", "set", "siege", "--run", "NONE"],
    &["posture", "plan", "siege", "--run", "NONE"],
    &["posture", "show", "--run", "NONE"],
    &["posture", "history", "--state", "NONE"],
    &["access", "allow", "ada", "web", "LOW", "--run", "NONE"],
    &["access", "deny", "ada", "web", "LOW", "--run", "NONE"],
    &["access", "show", "LOW", "--run", "NONE"],
    &["audit", "key", "NONE/auditor.key"],
    &["audit", "show", "--state", "NONE"],
    &["audit", "verify", "--state", "NONE"],
    &["user", "add", "NONE/site.toml", "ada"],
    &["user", "passwd", "NONE/site.toml", "ada"],
    &["user", "totp", "NONE/site.toml", "ada"],
    &["user", "disable", "ada", "--run", "NONE"],
    &["user", "enable", "ada", "--run", "NONE"],
    &["state", "list", "NONE/site.toml"],
    &["state", "migrate", "NONE/site.toml"],
    &["state", "remove", "NONE/site.toml", "SECRET"],
    &["man", "NONE/man"],
];

#[test]
fn every_command_says_that_there_is_no_answer_in_the_same_way() {
    let place = tempfile::tempdir().unwrap();
    // A file where a directory would have to be: nothing can be below it.
    let none = place.path().join("none");
    std::fs::write(&none, "").unwrap();
    let none = none.to_str().unwrap();
    let mut tried = std::collections::BTreeSet::new();
    for arguments in IN_VAIN {
        let arguments: Vec<String> = arguments.iter().map(|word| word.replace("NONE", none)).collect();
        let run = |more: &[&str]| {
            let mut words: Vec<&str> = more.to_vec();
            words.extend(arguments.iter().map(String::as_str));
            levee(&words, "")
        };
        let expected = Some(if arguments[0] == "exec" { 255 } else { 2 });
        let (plain, quiet, json) = (run(&[]), run(&["--quiet"]), run(&["--json"]));
        for output in [&plain, &quiet] {
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), expected, "{arguments:?}: {said}");
            assert_eq!(text(&output.stdout), "", "{arguments:?}");
            assert!(said.starts_with("levee: ") && !said.contains('\x1b'), "{arguments:?}: {said}");
        }
        assert_eq!(json.status.code(), expected, "{arguments:?}");
        assert_eq!(text(&json.stderr), "", "{arguments:?}");
        let value: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(value["error"], "Failed", "{arguments:?}");
        assert_eq!(format!("levee: {}\n", value["reason"].as_str().unwrap()), text(&plain.stderr));
        let groups = "access audit enrol label partition posture service session state user";
        let words = if groups.split(' ').any(|group| group == arguments[0]) { 2 } else { 1 };
        tried.insert(arguments[..words].join("-"));
    }
    // The laboratory is another program, whose own tests have it fail; what is asked of levee is asked of it.
    assert!(levee(&["--json", "lab", "list"], "").status.success(), "levee-lab must be built");
    // What has no such failure of its own: it answers always, is another program's, or prints what is in it.
    tried.extend(["doctor", "lab", "completions"].map(str::to_owned));
    let pages = place.path().join("pages");
    assert!(levee(&["man", pages.to_str().unwrap()], "").status.success());
    for page in std::fs::read_dir(&pages).unwrap() {
        let page = page.unwrap().file_name().into_string().unwrap();
        let Some(command) = page.strip_prefix("levee-").and_then(|page| page.strip_suffix(".1")) else {
            continue;
        };
        let is_group = tried.iter().any(|tried| tried.starts_with(&format!("{command}-")));
        assert!(is_group || tried.contains(command), "`levee {command}` was not tried");
    }
}

#[test]
fn what_was_done_is_said_unless_it_is_to_be_quiet_and_more_is_said_on_demand() {
    let place = tempfile::tempdir().unwrap();
    let key = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let told = levee(&["audit", "key", &key("one")], "");
    assert_eq!(text(&told.stdout), format!("{0}\n{0}.pub\n", key("one")));
    let quiet = levee(&["audit", "key", &key("two"), "-q"], "");
    assert!(quiet.status.success() && quiet.stdout.is_empty() && quiet.stderr.is_empty());
    let json = levee(&["audit", "key", &key("three"), "--json"], "");
    assert_eq!(text(&json.stdout).lines().count(), 2);
    assert!(text(&json.stdout).starts_with("{\"said\":\""), "{}", text(&json.stdout));
    // An answer is what was asked for.
    let matrix = |flag: &str| levee(&["matrix", "conf/small/site.toml", flag], "");
    assert!(text(&matrix("--quiet").stdout).starts_with("USER"));
    assert!(text(&matrix("--verbose").stderr).contains("levee: reads conf/small/site.toml\n"));
    // The laboratory as every other.
    let nowhere = key("nowhere");
    let lab = levee(&["lab", "report", &nowhere, "--verbose"], "");
    assert!(text(&lab.stderr).contains(&format!("levee-lab: reads {nowhere}/manifest.json\n")), "{lab:?}");
}
