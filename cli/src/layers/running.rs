//! A running server: its warden, the processes below it, and their sockets, as /proc shows them.

use super::program;
use levee_policy::layers::{Evidence, Layer, Part, Seen};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// The processes of one server.
pub struct ServerProcesses {
    warden: u32,
    /// Name and number of each below it.
    below: Vec<(String, u32)>,
}

impl ServerProcesses {
    /// The server whose state directory this is, if it runs and may be looked at.
    pub fn find(state: &Path) -> Option<Self> {
        let state = fs::canonicalize(state).ok()?;
        let numbers = || fs::read_dir("/proc").into_iter().flatten().flatten();
        let all: Vec<u32> = numbers().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let warden = all.iter().copied().find(|pid| is_warden(*pid, &state))?;
        let child = |pid: &u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (before, after) = stat.rsplit_once(')')?;
            let parent: u32 = after.split_whitespace().nth(1)?.parse().ok()?;
            (parent == warden).then(|| (before.split_once('(').map_or("", |(_, name)| name).to_owned(), *pid))
        };
        Some(Self { warden, below: all.iter().filter_map(child).collect() })
    }

    /// What runs of a program: its libraries, those that it has mapped since, process and uid. False if it does not run.
    pub fn add(&self, layer: &mut Layer, name: &str) -> bool {
        let mut runs = false;
        for (_, pid) in self.below.iter().filter(|(below, _)| below == name) {
            runs = true;
            let (place, seen) = (format!("{name}, process {pid}"), Seen::Running);
            layer.add(Part::Process, Evidence::found([format!("process {pid}")], &place, seen));
            layer.add(
                Part::Uid,
                match uid(*pid) {
                    Some(uid) => Evidence::found([format!("uid {uid}")], &place, seen),
                    None => Evidence::Unknown(format!("{place}: its uid cannot be read")),
                },
            );
            // The file that it runs, whatever has become of it on the disk.
            program::add(layer, &PathBuf::from(format!("/proc/{pid}/exe")), &place, seen);
            match mapped(*pid) {
                Ok(libraries) if libraries.is_empty() => {}
                Ok(libraries) => layer.add(Part::Library, Evidence::found(libraries, &place, seen)),
                Err(why) => layer.add(Part::Library, Evidence::Unknown(format!("{place}: {why}"))),
            }
        }
        runs
    }

    /// The network namespace of its sockets.
    pub fn namespace(&self) -> String {
        let link = fs::read_link(format!("/proc/{}/ns/net", self.warden));
        link.map_or_else(|_| "the warden's".to_owned(), |link| link.to_string_lossy().into_owned())
    }

    /// The local addresses of the warden's UDP sockets at these ports.
    pub fn sockets(&self, ports: &[u16]) -> Evidence {
        let own: BTreeSet<String> = fs::read_dir(format!("/proc/{}/fd", self.warden))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok())
            .filter_map(|link| {
                Some(link.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())
            })
            .collect();
        let mut found = BTreeMap::new();
        for table in ["udp", "udp6"] {
            let path = format!("/proc/{}/net/{table}", self.warden);
            let Ok(text) = fs::read_to_string(&path) else {
                return Evidence::Unknown(format!("{path} cannot be read"));
            };
            for line in text.lines().skip(1) {
                let fields: Vec<&str> = line.split_whitespace().collect();
                let (Some(local), Some(inode)) = (fields.get(1), fields.get(9)) else { continue };
                let Some((address, port)) = address(local) else { continue };
                if ports.contains(&port) && own.contains(*inode) {
                    found.insert(address.to_string(), format!("the warden's socket at port {port}"));
                }
            }
        }
        Evidence::Found(found, Seen::Running)
    }
}

fn is_warden(pid: u32, state: &Path) -> bool {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    let words: Vec<&[u8]> = line.split(|octet| *octet == 0).collect();
    let text = |word: &&[u8]| String::from_utf8_lossy(word).into_owned();
    let is = |word: Option<&&[u8]>, end: &str| word.map(text).is_some_and(|word| word.ends_with(end));
    let after = words.iter().position(|word| *word == b"--state").and_then(|at| words.get(at + 1)).map(text);
    is(words.first(), "levee-warden")
        && words.contains(&&b"--server"[..])
        && after.and_then(|path| fs::canonicalize(path).ok()).is_some_and(|path| path == state)
}

fn uid(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()
}

/// Cryptographic libraries among the shared ones that are mapped, however they came.
fn mapped(pid: u32) -> Result<BTreeSet<String>, String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(|e| e.to_string())?;
    let files = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let names = files.filter_map(|file| Path::new(file).file_name()?.to_str());
    let names: BTreeSet<&str> = names.filter(|name| name.contains(".so")).collect();
    let mut libraries = BTreeSet::new();
    for name in names {
        libraries.extend(program::shared(name)?.map(str::to_owned));
    }
    Ok(libraries)
}

/// proc(5): words of the address as the host has them, and the port.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = address.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?].concat();
            let octets: [u8; 16] = words.try_into().ok()?;
            Ipv6Addr::from(octets).into()
        }
        _ => return None,
    };
    Some((ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_kernels_table_is_read() {
        if cfg!(target_endian = "little") {
            assert_eq!(address("0100007F:1194"), Some(("127.0.0.1".parse().unwrap(), 4500)));
        }
        for nonsense in ["", "0100007F", "0100007:1194", "x100007F:1194"] {
            assert_eq!(address(nonsense), None, "{nonsense}");
        }
    }
}
