//! The environment of a run, for the report: enough to judge it, nothing that names the machine.

use crate::netns::tool;
use crate::tools::Tool;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use time::OffsetDateTime;

/// One entry of `env.json`; a run that was resumed has several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Env {
    /// When it was looked at, RFC 3339.
    pub at: String,
    /// Facts by name.
    pub facts: BTreeMap<String, String>,
}

/// Now, RFC 3339 in UTC with milliseconds, 24 signs, as every command of levee's has it.
pub fn now() -> String {
    let now = OffsetDateTime::now_utc();
    let (date, (hour, minute, second, milli)) = (now.date(), now.to_hms_milli());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

fn first(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned()).filter(|s| !s.is_empty())
}

fn field(path: &str, key: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().find_map(|l| {
        let (k, v) = l.split_once(':')?;
        (k.trim() == key).then(|| v.trim().to_owned())
    })
}

/// How many processors this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The first line that a program says of its version; some end with an error after it.
fn version(program: &str, argument: &str) -> Option<String> {
    let out = Command::new(program).arg(argument).output().ok()?;
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    said.lines().map(str::trim).find(|l| !l.is_empty()).map(str::to_owned)
}

/// The names of the devices in what `ip -o link` says, without the loopback device.
fn devices(said: &str) -> Vec<String> {
    let name = |line: &str| line.split_whitespace().nth(1)?.split([':', '@']).next().map(str::to_owned);
    said.lines().filter_map(name).filter(|d| d != "lo").collect()
}

/// Links of a network namespace, and which offloads each of its devices has.
fn links(what: &str, namespace: &Path, mut put: impl FnMut(&str, Option<String>)) {
    let net = format!("--net={}", namespace.display());
    let unknown = |e: std::io::Error| format!("not known: {e}");
    let said = tool("nsenter", &[&net, "ip", "-d", "-o", "link"]);
    for device in said.as_deref().map(devices).unwrap_or_default() {
        let on = tool("nsenter", &[&net, "ethtool", "-k", &device]).map_or_else(unknown, |t| {
            t.lines().filter(|l| l.contains(": on")).map(str::trim).collect::<Vec<_>>().join("; ")
        });
        put(&format!("offloads {what}, {device}"), Some(on));
    }
    put(&format!("links {what}"), Some(said.map_or_else(unknown, |t| t.trim().to_owned())));
}

/// Looks at the host, at the programs of a run, and at links and offloads of the given namespaces, each with what it is.
pub fn look(namespaces: &[(String, PathBuf)]) -> Env {
    let mut facts = BTreeMap::new();
    let mut put = |k: &str, v: Option<String>| drop(v.map(|v| facts.insert(k.to_owned(), v)));
    put("kernel", first("/proc/sys/kernel/osrelease"));
    put("kernel build", first("/proc/sys/kernel/version"));
    put("machine", rustix_machine());
    put("processor", field("/proc/cpuinfo", "model name"));
    put("processors", Some(processors().to_string()));
    put("processors of the machine", machine_processors());
    put(
        "hypervisor",
        fs::read_to_string("/proc/cpuinfo").ok().map(|t| {
            if t.contains(" hypervisor") { "yes: a virtual machine" } else { "no sign of one" }.to_owned()
        }),
    );
    put("memory", field("/proc/meminfo", "MemTotal"));
    put("load average", first("/proc/loadavg"));
    put("frequency governor", first("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
    put("clock source", first("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
    put("congestion controls", first("/proc/sys/net/ipv4/tcp_available_congestion_control"));
    put("congestion control by default", first("/proc/sys/net/ipv4/tcp_congestion_control"));
    put("largest receive buffer", first("/proc/sys/net/core/rmem_max"));
    put("default receive buffer", first("/proc/sys/net/core/rmem_default"));
    put("receive backlog", first("/proc/sys/net/core/netdev_max_backlog"));
    put(
        "distribution",
        fs::read_to_string("/etc/os-release").ok().and_then(|t| {
            t.lines().find_map(|l| l.strip_prefix("PRETTY_NAME=")).map(|v| v.trim_matches('"').to_owned())
        }),
    );
    if let Ok(dir) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") {
        for e in dir.flatten() {
            let name = format!("mitigation {}", e.file_name().to_string_lossy());
            put(&name, first(&e.path().display().to_string()).filter(|v| v != "Not affected"));
        }
    }
    for (what, namespace) in namespaces {
        links(what, namespace, &mut put);
    }
    put("program laboratory, version", Some(env!("CARGO_PKG_VERSION").into()));
    put("program laboratory, commit", Some(env!("LAB_COMMIT").into()));
    put("program laboratory, compiler", Some(env!("LAB_RUSTC").into()));
    for (program, argument) in
        [("ip", "-V"), ("ethtool", "--version"), ("nsenter", "--version"), ("nft", "--version")]
    {
        put(&format!("program {program}"), version(program, argument));
    }
    for tool in Tool::ALL {
        let (program, argument) = tool.version();
        put(&format!("program {program}"), version(program, argument));
    }
    Env { at: now(), facts }
}

/// How many the machine has, whether or not this process may use them all.
fn machine_processors() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let of = |line: &&str| line.split_once(':').is_some_and(|(name, _)| name.trim() == "processor");
    Some(text.lines().filter(of).count().to_string())
}

fn rustix_machine() -> Option<String> {
    Some(rustix::system::uname().machine().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Namespace;

    #[test]
    fn every_device_but_the_loopback_is_found() {
        let said = "1: lo: <LOOPBACK,UP> mtu 65536\n2: outer@if7: <BROADCAST> mtu 1500\n9: levee0: <POINTOPOINT> mtu 1400\n";
        assert_eq!(devices(said), ["outer", "levee0"]);
    }

    #[test]
    fn the_environment_holds_links_offloads_and_the_versions_of_what_measures() {
        let (a, b) = (Namespace::new("ea").expect("root and iproute2"), Namespace::new("eb").expect("root"));
        let at = |d| std::net::Ipv4Addr::new(10, 249, 0, d);
        a.link(&b, at(1), at(2), "veth7").expect("veth");
        tool("ip", &["-n", &b.name, "tuntap", "add", "dev", "tun7", "mode", "tun"]).expect("a TUN device");
        let env = look(&[("near".into(), a.path()), ("far".into(), b.path())]);
        let fact = |name: &str| env.facts.get(name).unwrap_or_else(|| panic!("no {name} in {env:?}"));
        assert!(fact("links far").contains("tun7") && fact("links near").contains("veth7"));
        assert!(fact("offloads near, veth7").contains("tcp-segmentation-offload: on"));
        assert!(!fact("offloads far, tun7").contains("not known"));
        for program in ["ip", "ethtool", "nsenter", "iperf3", "qperf", "wrk"] {
            assert!(fact(&format!("program {program}")).contains(|c: char| c.is_ascii_digit()), "{program}");
        }
        assert!(fact("program laboratory, compiler").starts_with("rustc 1."));
        assert!(!fact("program laboratory, commit").is_empty());
    }
}
