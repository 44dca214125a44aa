//! The house is in order: dependencies point one way, files and functions stay within what a reader takes in at once, and
//! nothing lies about that nothing reaches.

use levee_tidy::{Source, command, none, root, tree};
use std::collections::{BTreeMap, BTreeSet};

/// Lines of a file before its unit tests: some twelve screens. Longer ones had become two ideas wherever they were looked at.
const FILE: usize = 780;
/// Lines of a function.
const FUNCTION: usize = 80;
/// Lines of one that only tests have: a test tells a whole story.
const TEST_FUNCTION: usize = 120;

/// Files that are longer, each with its reason.
const LONG_FILES: [(&str, &str); 0] = [];

/// Functions that are longer, each with its reason.
const LONG_FUNCTIONS: [(&str, &str, &str); 0] = [];

/// Where a crate lies, by the directory it is in, and on what of ours it may depend (besides its own directory's).
const MAY: [(&str, &[&str]); 7] = [
    ("core", &["core"]),
    ("host", &["core", "host"]),
    ("daemons", &["core", "host"]),
    ("tpe", &["core", "host"]),
    ("cli", &["core", "host"]),
    ("lab", &["lab"]),
    ("tests", &["core", "host", "daemons", "tpe", "cli", "lab", "tests"]),
];

/// A crate of the workspace: where it lies, and which others of it the product needs (tests' needs are free).
fn crates() -> BTreeMap<String, (String, Vec<String>)> {
    let text = command("cargo", &["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let all: serde_json::Value = serde_json::from_str(&text).expect("cargo prints JSON");
    let packages = all["packages"].as_array().expect("packages");
    let root = root().display().to_string();
    let one = |package: &serde_json::Value| {
        let manifest = package["manifest_path"].as_str().expect("a path");
        let path = manifest.strip_prefix(&root).expect("in the tree").trim_start_matches('/');
        let needs = package["dependencies"].as_array().expect("dependencies").iter();
        let needs = needs.filter(|d| d["kind"].is_null() && !d["path"].is_null());
        let needs = needs.map(|d| d["name"].as_str().expect("a name").to_owned()).collect();
        let place = path.trim_end_matches("/Cargo.toml").to_owned();
        (package["name"].as_str().expect("a name").to_owned(), (place, needs))
    };
    packages.iter().map(one).collect()
}

/// All that a crate needs of ours, with what that needs, by where they lie.
fn linked(crates: &BTreeMap<String, (String, Vec<String>)>, name: &str) -> BTreeSet<String> {
    let (mut all, mut new) = (BTreeSet::new(), vec![name.to_owned()]);
    while let Some(one) = new.pop() {
        let needs = crates[&one].1.iter();
        new.extend(needs.filter(|need| all.insert(crates[*need].0.clone())).cloned());
    }
    all
}

#[test]
fn what_root_links_of_ours_is_what_architecture_says() {
    let text = std::fs::read_to_string(root().join("docs/ARCHITECTURE.md")).expect("it is there");
    let (_, said) = text.split_once("The warden links of ours ").expect("the list");
    let (said, _) = said.split_once("; `tests/tidy`").expect("its end");
    let said: BTreeSet<String> = said.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert_eq!(linked(&crates(), "levee-warden"), said);
}

#[test]
fn dependencies_point_one_way() {
    let crates = crates();
    assert!(crates.len() > 20, "{} crates", crates.len());
    let area = |place: &str| place.split('/').next().unwrap_or_default().to_owned();
    let mut problems = Vec::new();
    for (name, (place, needs)) in &crates {
        let allowed = MAY.iter().find(|(from, _)| *from == area(place));
        let allowed = allowed.unwrap_or_else(|| panic!("{place}: no rule for this directory")).1;
        for need in needs {
            let (to, _) = &crates[need];
            if !allowed.contains(&area(to).as_str()) {
                problems.push(format!("{name} ({place}) depends on {need} ({to})"));
            }
        }
        let bare = ["core/policy", "host/sys"].contains(&place.as_str());
        if bare && !needs.is_empty() {
            problems.push(format!("{name} ({place}) must depend on nothing of ours"));
        }
        if area(place) == "core" && place != "core/session" && place != "core/ike" {
            let beyond = needs.iter().filter(|need| !["levee-policy", "levee-esp"].contains(&need.as_str()));
            problems.extend(beyond.map(|need| format!("{name} depends on {need}")));
        }
        // What decides does not know what anything costs.
        if area(place) == "core" && needs.iter().any(|need| need == "levee-prices") {
            problems.push(format!("{name} depends on levee-prices"));
        }
    }
    none(&problems);
}

/// `lengths` against the most there may be; exceptions that none needs any more are problems too.
fn too_long(lengths: &[(String, usize)], most: usize, exceptions: &BTreeSet<String>) -> Vec<String> {
    let long: BTreeMap<&String, usize> =
        lengths.iter().filter(|(_, n)| *n > most).map(|(p, n)| (p, *n)).collect();
    let unknown = long.iter().filter(|(what, _)| !exceptions.contains(**what));
    let mut problems: Vec<String> =
        unknown.map(|(what, n)| format!("{what}: {n} lines, at most {most}")).collect();
    let done = exceptions.iter().filter(|what| !long.contains_key(what));
    problems.extend(done.map(|what| format!("{what}: no exception is needed any more")));
    problems
}

#[test]
fn files_are_no_longer_than_one_idea() {
    let lengths: Vec<(String, usize)> =
        tree().iter().filter(|f| f.is_rust()).map(|f| (f.path.clone(), f.code().count())).collect();
    assert!(lengths.len() > 300, "{} files", lengths.len());
    none(&too_long(&lengths, FILE, &LONG_FILES.iter().map(|(path, _)| (*path).to_owned()).collect()));
}

#[test]
fn functions_are_no_longer_than_a_screen() {
    let of = |functions: Vec<(String, usize)>, file: &Source| {
        let path = file.path.clone();
        functions.into_iter().map(move |(name, lines)| (format!("{path} {name}"), lines)).collect::<Vec<_>>()
    };
    let all = tree();
    let (tests, product): (Vec<&Source>, Vec<&Source>) =
        all.iter().filter(|f| f.is_rust()).partition(|f| f.is_of_tests());
    let lengths: Vec<_> = product.iter().flat_map(|f| of(f.own_functions(), f)).collect();
    assert!(lengths.len() > 3000, "{} functions", lengths.len());
    let named = LONG_FUNCTIONS.iter().map(|(path, name, _)| format!("{path} {name}")).collect();
    let mut problems = too_long(&lengths, FUNCTION, &named);
    let told: Vec<_> = tests.iter().chain(&product).flat_map(|f| of(f.functions(), f)).collect();
    problems.extend(too_long(&told, TEST_FUNCTION, &BTreeSet::new()));
    none(&problems);
}

/// The modules that some file of the tree declares.
fn modules(all: &[Source]) -> BTreeSet<&str> {
    let lines = all.iter().filter(|f| f.is_rust()).flat_map(|f| f.text.lines());
    let declared = lines.filter_map(|line| line.trim().strip_suffix(';')?.rsplit_once("mod "));
    declared
        .filter(|(before, _)| before.is_empty() || before.starts_with("pub"))
        .map(|(_, name)| name)
        .collect()
}

#[test]
fn every_file_is_reached() {
    let all = tree();
    let modules = modules(&all);
    let text: String = all.iter().filter(|f| f.path != "Cargo.lock").map(|f| f.text.as_str()).collect();
    let reached = |file: &Source| {
        let parts: Vec<&str> = file.path.split('/').collect();
        let [.., parent, name] = parts.as_slice() else { return true };
        if let Some(stem) = name.strip_suffix(".rs") {
            // cargo finds the first ones by itself.
            return ["main", "lib", "build"].contains(&stem)
                || ["tests", "bin", "benches", "examples", "fuzz_targets"].contains(parent)
                || modules.contains(if stem == "mod" { *parent } else { stem });
        }
        let looked_for = ["scripts", "conf", "probes"].iter().any(|directory| parts.contains(directory));
        // Where a whole directory is installed or tried, its name stands for its files.
        !looked_for || text.contains(name) || text.contains(&format!("{parent}/*"))
    };
    none(
        &all.iter()
            .filter(|f| !reached(f))
            .map(|f| format!("{}: nothing reaches it", f.path))
            .collect::<Vec<_>>(),
    );
}

/// Each crate's first page says what the crate is for, what it may not do (tests may do anything) and where to begin. The files
/// that it names are its own.
#[test]
fn every_crate_says_what_it_is_for_what_it_may_not_do_and_where_to_begin_reading() {
    let all = tree();
    let mut problems = Vec::new();
    for (name, (place, _)) in crates() {
        let page = ["lib.rs", "main.rs"].map(|file| format!("{place}/src/{file}"));
        let Some(first) = all.iter().find(|f| page.contains(&f.path)) else { continue };
        let text: String = first.text.lines().map_while(|l| l.strip_prefix("//!")).collect();
        let purpose = text.split('.').next().unwrap_or_default();
        if purpose.split_whitespace().count() < 2 || purpose.contains("Begin reading") {
            problems.push(format!("{name}: {} does not say first what the crate is for", first.path));
        }
        if !text.contains("may not") && !place.starts_with("tests/") {
            problems.push(format!("{name}: {} does not say what the crate may not do", first.path));
        }
        let Some((_, rest)) = text.split_once("Begin reading with ") else {
            problems.push(format!("{name}: {} does not say where to begin reading", first.path));
            continue;
        };
        for word in rest.split('`').skip(1).step_by(2).filter(|word| word.ends_with(".rs")) {
            let there = all
                .iter()
                .any(|f| f.path == format!("{place}/src/{word}") || f.path == format!("{place}/{word}"));
            if !there {
                problems.push(format!("{name}: {} begins with `{word}`, which is not there", first.path));
            }
        }
    }
    none(&problems);
}

/// The library of a PKCS#11 token is its maker's code: `levee enrol` loads it, and no other part of levee can.
#[test]
fn tokens_are_reached_by_levee_enrol_alone() {
    let all = tree();
    let called = concat!("crypto", "ki");
    let speaks = |file: &&Source| {
        (file.is_rust() && file.code().any(|line| line.contains(&format!("{called}::"))))
            || (file.path.ends_with("/Cargo.toml") && file.text.lines().any(|line| line.starts_with(called)))
    };
    let found: BTreeSet<&str> = all.iter().filter(speaks).map(|file| file.path.as_str()).collect();
    let may = ["cli/Cargo.toml", "cli/src/enrol/token.rs", "cli/src/enrol/token/tokens.rs"];
    assert_eq!(found, BTreeSet::from(may));
}

/// The crate `rsa` can tell a private key by the time that its use takes (RUSTSEC-2023-0071, deny.toml): levee gives it public ones alone.
#[test]
fn rsa_is_for_public_keys_alone() {
    let all = tree();
    let called = concat!("rs", "a::");
    let mut used = BTreeSet::new();
    for file in all.iter().filter(|file| file.is_rust()) {
        for line in file.code() {
            let after = line.match_indices(called).filter(|(at, _)| {
                !line[..*at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
            });
            for (at, _) in after {
                let name =
                    line[at + called.len()..].split(|c: char| !c.is_alphanumeric() && c != ':' && c != '_');
                used.insert((
                    file.path.as_str(),
                    name.map(|name| name.trim_end_matches(':')).next().unwrap_or(""),
                ));
            }
        }
    }
    let file = "core/ike/src/crypto/sign.rs";
    let public = [
        "Pkcs1v15Sign::new",
        "Pss",
        "RsaPublicKey",
        "RsaPublicKey::from_pkcs1_der",
        "pkcs1::DecodeRsaPublicKey",
        "traits::PublicKeyParts",
    ];
    assert_eq!(used, public.map(|name| (file, name)).into());
}

/// Files that write tags by hand, each with its reason.
const TAGS: [(&str, &str); 1] = [(
    "daemons/warden/src/compartment/inside/nginx.rs",
    "one page of names of labels, in process 1 of the label's compartment",
)];

/// A page is made by macros that escape what they are given.
#[test]
fn no_page_is_written_by_hand() {
    let all = tree();
    let product = || all.iter().filter(|f| f.is_rust() && !f.is_of_tests());
    let tags = [
        "</td", "</tr", "</table", "</p>", "</h", "</li", "</a>", "</span", "</svg", "</body", "<td>", "<li>",
    ];
    let mut problems = Vec::new();
    for file in product() {
        let by_hand =
            |line: &&str| !line.trim_start().starts_with("//") && tags.iter().any(|tag| line.contains(tag));
        let found = file.code().any(|line| by_hand(&line));
        match (found, TAGS.iter().any(|(path, _)| *path == file.path)) {
            (true, false) => problems.push(format!("{}: it writes tags by hand", file.path)),
            (false, true) => problems.push(format!("{}: no exception is needed any more", file.path)),
            _ => {}
        }
    }
    none(&problems);
}

#[test]
fn the_repository_speaks_of_levee_alone() {
    let forbidden = [
        concat!("/wo", "rk/"),
        concat!("/home/", "user/."),
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("DESIGN", ".md"),
    ];
    let mut problems = Vec::new();
    for file in tree() {
        for (number, line) in file.text.lines().enumerate() {
            let found = forbidden.iter().filter(|word| line.contains(**word));
            problems.extend(found.map(|word| format!("{}:{}: {word}", file.path, number + 1)));
        }
    }
    none(&problems);
}

/// Lines that may run as root on a host. Who needs more takes others away, or says here why not: the last 60 end what programs that a posture has ended had still
/// to send, which nobody else in a label's network may, wait for a label that ends meanwhile, set one more switch of a machine's wire, have another vault begin
/// where a posture asks for one, and have labels that nobody uses give way where slots are few. A gateway's warden is another 130, which no server and no workstation
/// runs; the sockets between the two, and which of three kinds of host this is, are 40.
const ROOT: usize = 10_000;

/// Where the warden's files are.
const WARDEN: &str = "daemons/warden/src/";

/// Of a file of the warden's: the part of the table in ARCHITECTURE that it counts in; `None` for the short programs and tests.
fn part(path: &str) -> Option<&'static str> {
    let path = path.strip_prefix(WARDEN).filter(|path| path.ends_with(".rs"))?;
    let is_of = |directory: &str| path.starts_with(directory);
    Some(match path {
        _ if is_of("bin/") || path.contains("/tests") => return None,
        "compartment/inside/build.rs" | "compartment/inside/mod.rs" => "| `compartment/inside/build.rs`",
        _ if is_of("compartment/inside") => "| the rest of `compartment/inside`",
        "machine/qemu.rs" => "| `machine/qemu.rs`",
        "compartment/fill.rs" | "maker/confine.rs" => "| `machine/image`",
        _ if is_of("machine/image") => "| `machine/image`",
        "programs/build.rs" | "programs/inventory.rs" | "programs/root.rs" | "programs/wanted.rs" => {
            "| `programs/build.rs`"
        }
        "rules/mod.rs" => "| everything else",
        _ if is_of("rules/") => "| `rules`",
        "planned.rs" => "| `planned.rs`",
        "gateway.rs" => "| `gateway.rs`",
        "compartment/wait.rs" => "| `compartment/wait.rs`",
        _ if is_of("machine/guest") => "| `machine/guest`",
        _ if is_of("machine") => "| `machine` but",
        _ => "| everything else",
    })
}

/// The warden's files, below its `src`, that no server runs.
const WORKSTATION_ALONE: [&str; 3] = ["behind.rs", "session.rs", "workstation.rs"];
/// That neither does.
const GATEWAY_ALONE: [&str; 1] = ["gateway.rs"];
/// Those that no workstation runs: files, and directories.
const SERVER_ALONE: [&str; 27] = [
    "below.rs",
    "channels.rs",
    "compartment/listener.rs",
    "compartment/store.rs",
    "framed.rs",
    "held.rs",
    "label.rs",
    "label/",
    "labelled/",
    "leavings.rs",
    "links.rs",
    "machine/",
    "making.rs",
    "mediation.rs",
    "networks.rs",
    "partition.rs",
    "placed.rs",
    "programs/",
    "rooting.rs",
    "selinux.rs",
    "server.rs",
    "server/",
    "service.rs",
    "stacks.rs",
    "tended.rs",
    "upflow.rs",
    "wires.rs",
];

#[test]
fn so_much_runs_as_root_as_architecture_says_and_no_more_than_it_may() {
    let all = tree();
    let mut counted: BTreeMap<&str, usize> = BTreeMap::new();
    let roots = ["| everything else", "| `machine` but", "| `compartment/inside/build.rs`", "| `gateway.rs`"];
    let (mut on_servers, mut on_workstations) = (0, 0);
    for (file, part) in all.iter().filter_map(|file| Some((file, part(&file.path)?))) {
        let lines = file.text.lines().map(str::trim).take_while(|line| !line.starts_with("#[cfg(test)]"));
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        *counted.entry(part).or_default() += lines;
        let is_in =
            |those: &[&str]| those.iter().any(|those| file.path.starts_with(&format!("{WARDEN}{those}")));
        if roots.contains(&part) && !is_in(&GATEWAY_ALONE) {
            on_servers += if is_in(&WORKSTATION_ALONE) { 0 } else { lines };
            on_workstations += if is_in(&SERVER_ALONE) { 0 } else { lines };
        }
    }
    let text = all.iter().find(|file| file.path == "docs/ARCHITECTURE.md").map_or("", |file| &file.text);
    let (_, table) = text.split_once("What runs as root, and as what.").expect("the table");
    // Lines in the last column, rounded to tens.
    let said = |part: &str| {
        let line = table.lines().find(|line| line.starts_with(part)).unwrap_or_else(|| panic!("no {part}"));
        let last = line.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        last.trim().replace(',', "").parse::<usize>().unwrap_or_else(|e| panic!("{line}: {e}"))
    };
    let wrong = |part: &str, lines: usize| {
        (said(part).abs_diff(lines) > 10).then(|| format!("{part}: {lines} lines, it says {}", said(part)))
    };
    let mut problems: Vec<String> = counted.iter().filter_map(|(part, lines)| wrong(part, *lines)).collect();
    let root = roots.iter().map(|part| counted.get(part).copied().unwrap_or(0)).sum();
    problems.extend(wrong("| in all, as root", root));
    problems.extend(wrong("| of these on a server", on_servers));
    problems.extend(wrong("| of these on a workstation", on_workstations));
    problems.extend((root > ROOT).then(|| format!("{root} lines run as root, at most {ROOT}")));
    none(&problems);
}
