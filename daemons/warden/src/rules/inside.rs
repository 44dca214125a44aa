//! levee-rules itself.

use super::ruleset::{Ruleset, TABLE};
use super::{labelled, wire};
use crate::memfile::sealed;
use levee_policy::{LabelName, Site};
use serde::Deserialize;
use std::fs::File;
use std::io::{Read, Write};
use std::process::Command;

/// What levee-rules does: `load LABEL` or `count LABEL`, with the site file as standard input, or `behind LABEL`, with a workstation's
/// `[behind]` as JSON.
///
/// # Errors
/// What is wrong or failed, in words.
pub fn main(arguments: &[String]) -> Result<(), String> {
    let [what, label] = arguments else {
        return Err("usage: levee-rules load|count|behind LABEL <SITE-FILE".into());
    };
    crate::maker::confine(&[], &[])?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|e| format!("read standard input: {e}"))?;
    if what == "behind" {
        let behind = serde_json::from_str(&text).map_err(|e| format!("read [behind]: {e}"))?;
        return nft(&["-f", "-"], &super::behind::text(&behind)).map(drop);
    }
    let site =
        Site::parse(&text).map_err(|problems| format!("problems of the site file: {}", problems.len()))?;
    let name: LabelName = label.parse().map_err(|e| format!("{label}: {e}"))?;
    if let Some(rules) = labelled::LabelledRules::named(&site, &name)
        && what == "load"
    {
        return nft(&["-f", "-"], &rules.to_string()).map(drop);
    }
    let (text, kind, counters) = match (wire::WireRules::named(&site, &name), Ruleset::named(&site, &name)) {
        (Some(rules), _) => (rules.to_string(), "netdev", rules.counters().collect::<Vec<_>>()),
        (None, Some(rules)) => (rules.to_string(), "inet", rules.counters().collect()),
        (None, None) => return Err(format!("{name} is no label, partition or channel of the site")),
    };
    match what.as_str() {
        "load" => nft(&["-f", "-"], &text).map(drop),
        "count" => {
            let counts = count(kind, &counters)?;
            std::io::stdout().write_all(counts.as_bytes()).map_err(|e| format!("say what was counted: {e}"))
        }
        _ => Err(format!("unknown argument {what}")),
    }
}

/// A line for each that is not 0: how many packets, and what they are.
fn count(kind: &str, counters: &[(String, String)]) -> Result<String, String> {
    let output = nft(&["-j", "list", "counters", "table", kind, TABLE], "")?;
    let listing: Listing =
        serde_json::from_slice(&output).map_err(|e| format!("read the counters of nft: {e}"))?;
    let all: Vec<Counter> = listing.nftables.into_iter().filter_map(|item| item.counter).collect();
    let line = |(name, what): &(String, String)| {
        let counter = all.iter().find(|counter| counter.name == *name && counter.packets > 0)?;
        Some(format!("{} {what}\n", counter.packets))
    };
    Ok(counters.iter().filter_map(line).collect())
}

/// Runs `nft`. Answers what it prints.
fn nft(arguments: &[&str], input: &str) -> Result<Vec<u8>, String> {
    let run = || -> std::io::Result<std::process::Output> {
        let input = File::from(sealed("rules", input.as_bytes())?);
        Command::new("nft").args(arguments).stdin(input).output()
    };
    let step = || format!("run nft {} (package nftables)", arguments.join(" "));
    let output = run().map_err(|e| format!("{}: {e}", step()))?;
    if !output.status.success() {
        return Err(format!("{}: {}", step(), String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(output.stdout)
}

/// What `nft -j` prints, as far as it is needed.
#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    counter: Option<Counter>,
}

#[derive(Deserialize)]
struct Counter {
    name: String,
    packets: u64,
}
