//! What somebody meets who does not know levee yet: help, manual and remedies.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn levee(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_levee"));
    let output = command.args(arguments).current_dir(root()).output().unwrap();
    levee_system::schema::hold("levee", arguments, text(&output.stdout));
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The words that begin a command in `--help` of a program.
fn commands(help: &str) -> Vec<&str> {
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

#[test]
fn how_a_program_ends_is_called_its_exit_status_everywhere_and_help_says_it() {
    let help = levee(&["--help"]);
    assert!(text(&help.stdout).contains("Exit status 0: done"), "{}", text(&help.stdout));
    let pages = tempfile::tempdir().unwrap();
    assert!(levee(&["man", pages.path().to_str().unwrap()]).status.success());
    for page in std::fs::read_dir(pages.path()).unwrap() {
        let path = page.unwrap().path();
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(!page.contains("Exit code"), "{}", path.display());
    }
    let page = std::fs::read_to_string(pages.path().join("levee.1")).unwrap();
    assert_eq!(page.matches("line was not understood").count(), 1, "what help says of it is not said twice");
}

#[test]
fn the_manual_of_the_laboratory_has_its_commands_and_exit_statuses() {
    let pages = tempfile::tempdir().unwrap();
    assert!(levee(&["man", pages.path().to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(pages.path().join("levee-lab.1")).unwrap();
    assert!(page.contains(".SH \"EXIT STATUS\""), "{page}");
    let help = levee(&["lab", "--help"]);
    let all = commands(text(&help.stdout));
    assert!(all.len() >= 10, "{all:?}");
    for command in all {
        let is_it = |line: &str| {
            line.strip_prefix("\\fB")
                .is_some_and(|term| term.split([' ', ',', '\\']).any(|word| word == command))
        };
        assert!(page.lines().any(is_it), "levee-lab(1) does not have {command}");
    }
    // More is said there where it is said to levee.
    let listed = levee(&["lab", "list", "-v"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
}

#[test]
fn a_password_comes_by_standard_input_where_that_is_said_and_help_says_so() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let levee = env!("CARGO_BIN_EXE_levee");
    let add =
        format!("{levee} user add conf/small/site.toml ada --password-stdin --state {}", state.display());
    // script(1) gives it a terminal, which is not asked.
    let mut child = Command::new("script")
        .args(["--quiet", "--return", "--command", &add, "/dev/null"])
        .current_dir(root())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("apt-get install bsdutils");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"correct horse\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("ada: password set"), "{said}");
    assert!(!said.contains("Password for"), "{said}");
    for command in ["add", "passwd"] {
        let help = self::levee(&["user", command, "--help"]);
        let help = text(&help.stdout);
        assert!(help.contains("first line of standard input") && help.contains("--password-stdin"), "{help}");
    }
}

#[test]
fn who_names_the_site_file_to_a_command_of_the_running_server_is_told_that_it_takes_the_person_alone() {
    for command in ["disable", "enable"] {
        let wrong = levee(&["user", command, "/etc/levee/site.toml", "ugo"]);
        let said = text(&wrong.stderr);
        assert_eq!(wrong.status.code(), Some(2), "{said}");
        assert!(
            said.contains("asks the running server")
                && said.ends_with(&format!("levee user {command} ugo\n")),
            "{said}"
        );
    }
}

#[test]
fn what_is_started_in_another_way_than_it_was_called_says_how() {
    if !levee(&["down", "--run", "/nonexistent"]).stderr.starts_with(b"levee: nothing runs") {
        return; // Without root nothing of it is looked at.
    }
    let place = tempfile::tempdir().unwrap();
    let up = |path: &Path| text(&levee(&["up", path.to_str().unwrap()]).stderr).to_owned();
    assert!(up(place.path()).contains("is a directory, and no site file"), "{}", up(place.path()));
    for (file, flag) in [("gateway.toml", "--gateway"), ("workstation.toml", "--workstation")] {
        std::fs::write(place.path().join(file), "").unwrap();
        let remedy = format!("levee up {flag} {}\n", place.path().display());
        assert!(up(place.path()).ends_with(&remedy), "{}", up(place.path()));
    }
    // Where it runs, as far as the host shows it.
    let site = place.path().join("site.toml");
    std::fs::copy(root().join("conf/small/site.toml"), &site).unwrap();
    let run = place.path().join("run");
    std::fs::create_dir(&run).unwrap();
    let mut warden = Command::new("sh");
    warden.args(["-c", "read end", "levee-warden", "--server"]).arg(&site).args(["--state", "/nonexistent"]);
    let mut warden = warden.stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::fs::write(run.join("lock"), warden.id().to_string()).unwrap();
    let (site, run) = (site.to_str().unwrap(), run.to_str().unwrap());
    let said = levee(&["up", site, "--run", run, "--state", place.path().to_str().unwrap()]);
    warden.kill().unwrap();
    warden.wait().unwrap();
    let said = text(&said.stderr);
    assert!(said.contains("harbour runs already") && said.contains("`levee reload`"), "{said}");
}

#[test]
fn a_doctor_that_is_to_be_quiet_says_what_is_lacking_and_nothing_else() {
    let loud = levee(&["doctor"]);
    let quiet = levee(&["doctor", "--quiet"]);
    assert_eq!(quiet.status.code(), loud.status.code());
    let lacking = text(&loud.stdout).lines().filter(|line| line.starts_with("lacks")).count();
    let said = text(&quiet.stdout);
    assert_eq!(said.lines().filter(|line| !line.starts_with(' ')).count(), lacking, "{said}");
    assert!(!said.contains("levee can") && !said.contains("has    "), "{said}");
}

#[test]
fn what_a_key_means_is_there_for_programs_too() {
    let explained = levee(&["check", "--explain", "grace", "--json"]);
    assert_eq!(explained.status.code(), Some(0), "{}", text(&explained.stdout));
    let all: serde_json::Value = serde_json::from_slice(&explained.stdout).unwrap();
    assert_eq!((&all[0]["table"], &all[0]["keys"][0]["name"]), (&"[server]".into(), &"grace".into()));
    assert_eq!(all[0]["keys"][0]["default"], "\"30s\"");
    let whole = levee(&["check", "--explain", "all", "--json"]);
    let whole: serde_json::Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert!(whole.as_array().unwrap().len() > 20, "{whole}");
    assert_eq!(levee(&["check", "--explain", "grase", "--json"]).status.code(), Some(2));
}

/// Words of the book's own that a reader has not met elsewhere.
const WORDS: [&str; 16] = [
    "bundle",
    "authority",
    "auditor",
    "checkpoint",
    "posture",
    "partition",
    "channel",
    "guard",
    "federation",
    "passport",
    "PPK",
    "seal",
    "frame",
    "floor",
    "token",
    "gateway",
];

#[test]
fn the_glossary_has_the_words_that_the_book_uses_in_order() {
    let text = std::fs::read_to_string(root().join("docs/book/src/glossary.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let terms: Vec<&str> = rows.skip(1).collect();
    for word in WORDS {
        assert!(terms.contains(&word), "{word} is not in the glossary");
    }
    let folded: Vec<String> = terms.iter().map(|term| term.to_lowercase()).collect();
    assert!(folded.is_sorted(), "{folded:?}");
}

#[test]
fn a_plan_and_a_log_have_fields_for_programs() {
    let planned = levee(&["plan", "conf/small/site.toml", "secret", "--json"]);
    let plan: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    assert_eq!((&plan["label"], &plan["form"]), (&"SECRET".into(), &"compartment".into()), "{plan}");
    let steps = plan["steps"].as_array().unwrap();
    let printed = levee(&["plan", "conf/small/site.toml", "secret"]);
    assert_eq!(steps.len() + 1, text(&printed.stdout).lines().count());
    assert!(steps.iter().all(|step| !step["step"].as_str().unwrap().is_empty()), "{plan}");

    let state = tempfile::tempdir().unwrap();
    let logs = state.path().join("logs/labels/SECRET");
    std::fs::create_dir_all(&logs).unwrap();
    std::fs::create_dir(state.path().join("logs/levee")).unwrap();
    let log = |more: &[&str]| levee(&[&["log", "--state", state.path().to_str().unwrap()], more].concat());
    let nothing = log(&[]);
    assert_eq!(
        (nothing.status.code(), text(&nothing.stdout)),
        (Some(0), "levee's own processes have said nothing yet\n")
    );
    assert_eq!(text(&log(&["--quiet"]).stdout), "");
    assert_eq!(text(&log(&["--json"]).stdout), "");
    std::fs::write(logs.join("0.log"), "2026-01-31T12:00:00.000Z web: GET / 200\n").unwrap();
    let said: serde_json::Value = serde_json::from_slice(&log(&["secret", "--json"]).stdout).unwrap();
    assert_eq!(
        said,
        serde_json::json!({"time": 1_769_860_800_000_u64, "source": "web", "text": "GET / 200"})
    );
}
