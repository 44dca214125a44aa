//! What the documents name is there: links, files, tests.

use levee_tidy::{Source, none, tree};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Reports are of the day on which they were written, but for this one, which says what holds now.
const KEPT: &str = "docs/reports/first-attack.md";

fn documents(all: &[Source]) -> impl Iterator<Item = &Source> {
    all.iter().filter(|f| {
        let report = f.path.starts_with("docs/reports/") && f.path != KEPT;
        f.path.ends_with(".md") && f.path != "CHANGELOG.md" && !report
    })
}

/// `path` without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

#[test]
fn every_link_leads_somewhere() {
    let all = tree();
    let mut problems = Vec::new();
    for document in documents(&all) {
        let targets = document.text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|t| !t.starts_with("http")) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let here = Path::new(&document.path);
            let to = if file.is_empty() {
                here.to_path_buf()
            } else {
                plain(&here.parent().unwrap_or(Path::new("")).join(file))
            };
            let there = levee_tidy::root().join(&to);
            if !there.exists() {
                problems.push(format!("{}: {target}", document.path));
            } else if !anchor.is_empty() {
                let text = std::fs::read_to_string(&there).unwrap_or_default();
                let headings =
                    text.lines().filter(|l| l.starts_with('#')).map(|l| slug(l.trim_start_matches('#')));
                if !headings.collect::<Vec<_>>().contains(&anchor.to_owned()) {
                    problems.push(format!("{}: {target}: no such heading", document.path));
                }
            }
        }
    }
    none(&problems);
}

/// A heading as links call it.
fn slug(heading: &str) -> String {
    let kept = heading
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .collect::<String>();
    kept.replace(' ', "-")
}

/// The words in backticks, but for those in blocks of code.
fn quoted(text: &str) -> Vec<String> {
    let mut quoted = Vec::new();
    let mut code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            quoted.extend(line.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    quoted
}

#[test]
fn every_file_that_a_document_names_is_there() {
    let all = tree();
    let paths: Vec<&str> = all.iter().map(|f| f.path.as_str()).collect();
    let is_path = |word: &str| {
        let ours = [
            "core/", "host/", "daemons/", "tests/", "conf/", "docs/", "scripts/", "lab/", "cli/", "tpe/",
            "fuzz/", "tests.rs",
        ];
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
        plain && (ours.iter().any(|o| word.starts_with(o)) || word.ends_with(".rs"))
    };
    let there = |word: &str| {
        let word = word.trim_end_matches('/');
        paths.iter().any(|p| {
            *p == word
                || p.starts_with(&format!("{word}/"))
                || p.ends_with(&format!("/{word}"))
                || p.contains(&format!("/{word}/"))
        })
    };
    let mut problems = BTreeSet::new();
    for document in documents(&all) {
        for words in quoted(&document.text) {
            for word in words.split([' ', ',', ';']).filter(|w| is_path(w)) {
                if !there(word) {
                    problems.insert(format!("{}: `{word}` is not there", document.path));
                }
            }
        }
    }
    none(&problems.into_iter().collect::<Vec<_>>());
}

#[test]
fn every_test_that_a_document_names_is_there() {
    let all = tree();
    let tests: BTreeSet<String> = all.iter().filter(|f| f.is_rust()).flat_map(names).collect();
    assert!(tests.len() > 700, "{} tests", tests.len());
    let mut problems = BTreeSet::new();
    for document in documents(&all) {
        for word in quoted(&document.text) {
            let parts: Vec<&str> = word.split('…').filter(|p| !p.is_empty()).collect();
            let sentence = word.matches('_').count() >= 3
                && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_…".contains(c));
            let named = |test: &String| {
                parts
                    .iter()
                    .try_fold(test.as_str(), |rest, part| rest.split_once(part).map(|(_, after)| after))
                    .is_some()
            };
            // An item, or a system call.
            let code = |f: &&Source| f.is_rust() || f.path.starts_with("conf/seccomp/");
            let item = || all.iter().filter(code).any(|f| f.text.contains(&word));
            if sentence && !tests.iter().any(named) && !item() {
                problems.insert(format!("{}: no test `{word}`", document.path));
            }
        }
    }
    none(&problems.into_iter().collect::<Vec<_>>());
}

/// Names of systemd's, which units have or cannot have.
const OTHERS: [&str; 7] = [
    "IPAddressDeny",
    "MemoryDenyWriteExecute",
    "PrivateNetwork",
    "PrivateTmp",
    "ProtectSystem",
    "RestrictNamespaces",
    "RestrictSUIDSGID",
];

/// Whether it is a name as Rust has them of types and of what belongs to them: `Grant::entry`, `RunningLabel`.
fn is_symbol(word: &str) -> bool {
    let parts: Vec<&str> = word.split("::").collect();
    let is_name = |part: &&str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let is_type = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_uppercase())
            && part
                .as_bytes()
                .windows(2)
                .any(|two| two[0].is_ascii_lowercase() && two[1].is_ascii_uppercase())
    };
    parts.iter().all(is_name) && (parts.len() > 1 || is_type(word))
}

#[test]
fn every_symbol_that_a_document_names_is_there() {
    let all = tree();
    let ours: Vec<&Source> = all.iter().filter(|f| f.is_rust()).collect();
    let is_there = |part: &str| ours.iter().any(|f| f.text.contains(part));
    let mut problems = BTreeSet::new();
    // CHANNELS.md is about the kernel's.
    for document in documents(&all).filter(|f| f.path != "docs/CHANNELS.md") {
        for word in quoted(&document.text) {
            let known = OTHERS.contains(&word.as_str());
            if is_symbol(&word) && !known && !word.split("::").all(is_there) {
                problems.insert(format!("{}: `{word}` is nowhere", document.path));
            }
        }
    }
    none(&problems.into_iter().collect::<Vec<_>>());
}

/// An assessor has each claim with its number and its evidence. What a log says of that evidence is looked at for one claim of each kind.
#[test]
fn every_claim_of_the_accreditation_pack_names_its_evidence_and_what_it_gave() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/accreditation");
    let pack = |log: &[&Path]| {
        let out = Command::new(&script).args(log).output().expect("apt-get install python3");
        (out.status.code(), String::from_utf8(out.stdout).expect("text"))
    };
    let (code, page) = pack(&[]);
    let lacking: Vec<&str> = page.lines().filter(|line| line.contains("no evidence is named")).collect();
    assert_eq!((code, lacking), (Some(0), vec![]));
    let rows = |page: &str| -> Vec<String> {
        let is_row = |line: &&str| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit();
        page.lines().filter(is_row).map(str::to_owned).collect()
    };
    assert!(rows(&page).len() > 150, "{}", rows(&page).len());
    for chapter in ["## Channels that remain", "## What is missing", "## Promises"] {
        assert!(page.contains(chapter), "{chapter}");
    }
    let log = tempfile::NamedTempFile::new().expect("a file");
    let test = "a_session_lasts_no_longer_than_the_site_says_whoever_uses_it";
    for (ended, expected) in [("ok", "| passed |"), ("FAILED", "| **failed** |")] {
        let text = format!("     Running core/session: sessions-0123456789abcdef\ntest {test} ... {ended}\n");
        std::fs::write(log.path(), text).expect("a log");
        let (code, page) = pack(&[log.path()]);
        let row = rows(&page).into_iter().find(|row| row.contains(test)).expect("its claim");
        assert!(code == Some(1) && row.ends_with(expected), "{row}");
        let others = rows(&page).iter().filter(|row| row.ends_with("| **not run in full** |")).count();
        assert!(others > 100, "{others}: what was not run is not taken for passed");
    }
}

/// A field of JSON that is a time ends with `_ms`, or is an instant, and has milliseconds.
fn times(schema: &serde_json::Value, problems: &mut Vec<String>) {
    let properties = schema.get("properties").and_then(serde_json::Value::as_object);
    for (name, field) in properties.into_iter().flatten() {
        let means = field.get("description").and_then(serde_json::Value::as_str).unwrap_or_default();
        let other_unit = ["_us", "_ns", "_s", "_sec", "seconds", "age", "minutes", "hours"];
        let is_instant = means.contains("since 1970");
        if other_unit.iter().any(|unit| name.ends_with(unit) && name != "usage" && name != "message")
            || means.contains("seconds") && !(name.ends_with("_ms") || is_instant)
            || (means.replace("milliseconds", "").contains("seconds"))
        {
            problems.push(format!("{name}: {means}"));
        }
    }
    match schema {
        serde_json::Value::Object(parts) => parts.values().for_each(|part| times(part, problems)),
        serde_json::Value::Array(parts) => parts.iter().for_each(|part| times(part, problems)),
        _ => {}
    }
}

#[test]
fn every_time_in_json_is_in_milliseconds_and_its_name_says_so() {
    let mut problems = Vec::new();
    let schemas: Vec<Source> = tree()
        .into_iter()
        .filter(|f| f.path.starts_with("docs/schemas/") && f.path.ends_with(".json"))
        .collect();
    assert!(schemas.len() > 15, "{} schemas", schemas.len());
    for file in schemas {
        let mut here = Vec::new();
        times(&serde_json::from_str(&file.text).expect("JSON"), &mut here);
        problems.extend(here.into_iter().map(|problem| format!("{}: {problem}", file.path)));
    }
    none(&problems);
}

/// What must never fail is tried by exhaustion: which tests do that, the specification says, each where it is, and it leaves none out.
#[test]
fn the_table_of_what_is_tried_by_exhaustion_is_what_there_is() {
    let all = tree();
    let text = all.iter().find(|f| f.path == "docs/SPECIFICATION.md").map_or("", |f| &f.text);
    let (_, table) = text.split_once("## By exhaustion").expect("the chapter");
    let rows = table.lines().filter(|line| line.starts_with("| `")).map(quoted);
    let named: BTreeSet<(String, String)> =
        rows.filter_map(|row| Some((row.first()?.clone(), row.get(1)?.clone()))).collect();
    assert!(named.len() >= 20, "{} tests", named.len());
    let tests = |file: &Source| {
        let after = file.text.split("#[test]").skip(1).map(str::to_owned);
        let name = |rest: String| Some(rest.split_once("fn ")?.1.split_once('(')?.0.to_owned());
        after.filter_map(name).map(|name| (file.path.clone(), name)).collect::<Vec<_>>()
    };
    let rust: Vec<&Source> = all.iter().filter(|f| f.is_rust()).collect();
    let there: BTreeSet<(String, String)> = rust.iter().flat_map(|f| tests(f)).collect();
    let exhaustive = there.iter().filter(|(path, _)| path.ends_with("/exhaustion.rs"));
    let lost = named.difference(&there).map(|(path, name)| format!("{path}: no test {name}"));
    let unnamed =
        exhaustive.filter(|test| !named.contains(*test)).map(|(_, name)| format!("not named: {name}"));
    none(&lost.chain(unnamed).collect::<Vec<_>>());
}

/// Of each process, a test shows what who takes it over does not get: which, the table says, and each is a test.
#[test]
fn every_row_of_what_a_process_that_is_taken_over_gets_names_a_test() {
    let all = tree();
    let text = all.iter().find(|f| f.path == "docs/ARCHITECTURE.md").map_or("", |f| &f.text);
    let (_, rest) = text.split_once("## If one of them is taken over").expect("the chapter");
    let table =
        rest.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let tests: Vec<String> = all.iter().filter(|f| f.is_rust()).flat_map(tests).collect();
    let is_test = |word: &String| {
        let file = word.starts_with("tests/") || word.contains("/tests/");
        let parts: Vec<&str> = word.split('…').collect();
        let (first, last) = (parts.first().copied().unwrap_or(""), parts.last().copied().unwrap_or(""));
        let named = |test: &String| test.starts_with(first) && test.ends_with(last);
        (file && all.iter().any(|f| f.path.ends_with(word.as_str()) && f.text.contains("#[test]")))
            || (word.len() > 20 && tests.iter().any(named))
    };
    let (mut problems, mut rows) = (Vec::new(), 0);
    for line in table.skip(2) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [process, bytes, can, shown] = cells[..] else {
            problems.push(format!("not four cells: {line}"));
            continue;
        };
        rows += 1;
        if [process, bytes, can].contains(&"") {
            problems.push(format!("{process}: an empty cell"));
        }
        let words = quoted(shown);
        if words.is_empty() {
            problems.push(format!("{process}: no test"));
        }
        problems.extend(
            words.iter().filter(|word| !is_test(word)).map(|word| format!("{process}: no test {word}")),
        );
    }
    assert!(rows >= 20, "{rows} rows");
    none(&problems);
}

/// The words in bold.
fn bold(text: &str) -> impl Iterator<Item = &str> {
    text.split("**").skip(1).step_by(2)
}

/// Against whom a claim holds is said in the words of the table of threats.
#[test]
fn every_claim_says_against_which_adversary_of_the_table_it_holds() {
    let all = tree();
    let text = all.iter().find(|f| f.path == "docs/SECURITY.md").map_or("", |f| &f.text);
    let rows = |head: &'static str| {
        let mut inside = false;
        text.lines().filter(move |line| {
            let begins = line.starts_with(head);
            inside = begins || inside && line.starts_with('|');
            inside && !begins && !line.starts_with("|---")
        })
    };
    let name = |row: &str| row.split('|').nth(1).unwrap_or_default().to_owned();
    let known: BTreeSet<String> = rows("| adversary | what it has |")
        .flat_map(|row| bold(&name(row)).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let bounded: BTreeSet<String> = rows("| adversary | keeping labels apart |")
        .flat_map(|row| bold(&name(row)).map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let (mut problems, mut used, mut claims) = (Vec::new(), BTreeSet::new(), 0);
    for row in rows("| claim | shown by | against whom |") {
        let against = row.trim_end_matches([' ', '|']).rsplit(" | ").next().unwrap_or_default();
        let named: Vec<String> = bold(against).map(str::to_owned).collect();
        if named.is_empty() && !against.starts_with("no adversary") {
            problems.push(format!("against whom? {row}"));
        }
        used.extend(named);
        claims += 1;
    }
    assert!(claims > 200 && known.len() > 20, "{claims} claims, {} adversaries", known.len());
    problems.extend(used.difference(&known).map(|name| format!("no such adversary: {name}")));
    problems.extend(bounded.difference(&known).map(|name| format!("no such adversary: {name}")));
    // What is said of all at once is bounded as each of them.
    let each = known.iter().filter(|name| !["daemon", "root"].contains(&name.as_str()));
    problems.extend(each.filter(|name| !bounded.contains(*name)).map(|name| format!("not bounded: {name}")));
    none(&problems);
}

/// The names of a file's tests.
fn tests(file: &Source) -> Vec<String> {
    let after = file.text.split("#[test]").skip(1);
    after.filter_map(|rest| Some(rest.split_once("fn ")?.1.split('(').next()?.to_owned())).collect()
}

/// The names of a file's functions.
fn names(file: &Source) -> Vec<String> {
    let after = file.text.split("fn ").skip(1);
    after.filter_map(|rest| rest.split(['(', '<']).next()).map(|n| n.trim().to_owned()).collect()
}
