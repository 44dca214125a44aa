//! The environment of a run, for the report: enough to judge it, nothing that names the machine.

use crate::netns::tool;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;

/// One entry of `env.json`; a run that was resumed has several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Env {
    /// When it was looked at, RFC 3339.
    pub at: String,
    /// Facts by name.
    pub facts: BTreeMap<String, String>,
}

/// Now, RFC 3339, to the second.
pub fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
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

/// Looks at the host, and at the offloads of a device in each of the given namespaces.
pub fn look(namespaces: &[(&str, &str)]) -> Env {
    let mut facts = BTreeMap::new();
    let mut put = |k: &str, v: Option<String>| drop(v.map(|v| facts.insert(k.to_owned(), v)));
    put("kernel", first("/proc/sys/kernel/osrelease"));
    put("kernel build", first("/proc/sys/kernel/version"));
    put("machine", rustix_machine());
    put("processor", field("/proc/cpuinfo", "model name"));
    put("processors", Some(processors().to_string()));
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
    for (i, (ns, device)) in namespaces.iter().enumerate() {
        let part: String = ns.chars().rev().take_while(char::is_ascii_alphabetic).collect();
        let part: String = part.chars().rev().collect();
        put(
            &format!("links {i} {part}"),
            tool("ip", &["-n", ns, "-d", "-o", "link"]).ok().map(|t| t.trim().to_owned()),
        );
        put(
            &format!("offloads {i} {part}"),
            Some(tool("ip", &["netns", "exec", ns, "ethtool", "-k", device]).map_or_else(
                |e| format!("not known: {e}"),
                |t| t.lines().filter(|l| l.contains(": on")).map(str::trim).collect::<Vec<_>>().join("; "),
            )),
        );
    }
    Env { at: now(), facts }
}

fn rustix_machine() -> Option<String> {
    Some(rustix::system::uname().machine().to_string_lossy().into_owned())
}
