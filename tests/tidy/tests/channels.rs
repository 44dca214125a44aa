//! The inventory of channels (`docs/CHANNELS.md`) has every system call that services may make, and every channel that is measured.

use levee_tidy::{none, root};
use std::collections::BTreeSet;

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn table(path: &str) -> toml::Table {
    read(path).parse().unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The calls that `[allow]` of this part of a filter names.
fn allowed(part: &toml::Value) -> BTreeSet<String> {
    part["allow"].as_table().expect("calls").keys().cloned().collect()
}

/// The words in backticks of the first cells of the tables below a heading.
fn first_cells(text: &str, heading: &str) -> BTreeSet<String> {
    let part = text.split("\n## ").find(|part| part.starts_with(heading)).expect("a part of the inventory");
    let cells = part.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

#[test]
fn every_call_that_a_service_may_make_is_in_the_inventory_and_no_other() {
    let filter = toml::Value::Table(table("conf/seccomp/service.toml"));
    let inventory = read("docs/CHANNELS.md");
    let mut problems = Vec::new();
    let mut compare = |calls: &BTreeSet<String>, listed: &BTreeSet<String>, what: &str| {
        problems.extend(calls.difference(listed).map(|c| format!("{c}: missing among {what}")));
        let beyond = listed.difference(calls).filter(|c| !c.starts_with('/'));
        problems.extend(beyond.map(|c| format!("{c}: not allowed, but among {what}")));
    };
    let every = allowed(&filter);
    assert!(every.len() > 200, "{} calls", every.len());
    compare(&every, &first_cells(&inventory, "System calls of every service"), "the calls of every service");
    let groups = filter["group"].as_table().expect("groups");
    let grouped: BTreeSet<String> = groups.values().flat_map(allowed).collect();
    compare(&grouped, &first_cells(&inventory, "Groups"), "the groups' calls");
    for name in groups.keys() {
        if !inventory.contains(&format!("| `{name}` |")) {
            problems.push(format!("{name}: a group that is missing"));
        }
    }
    none(&problems);
}

#[test]
fn every_channel_that_is_measured_is_in_the_inventory() {
    let channels = toml::Value::Table(table("lab/leak/channels.toml"));
    let inventory = read("docs/CHANNELS.md");
    let names = channels["channel"].as_array().expect("channels").iter();
    let missing =
        names.filter_map(|c| c["name"].as_str()).filter(|name| !inventory.contains(&format!("`{name}`")));
    none(&missing.map(|name| format!("{name}: measured, but not in the inventory")).collect::<Vec<_>>());
}
