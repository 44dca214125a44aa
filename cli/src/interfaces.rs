//! Where the interfaces are that a site's networks and one-way channels name.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use levee_policy::Site;
use levee_sys::net::Net;

/// Below a run directory: where the warden pins the namespaces of labels, partitions and labelled networks.
const PINS: [&str; 3] = ["net", "labelled", "wires"];

/// Each interface that the site names, with the table that does, and where it is: in this host's network, or in a namespace that a warden keeps; `None` where it is
/// in neither.
pub fn found(site: &Site) -> Vec<(String, &'static str, Option<String>)> {
    let kept = pinned();
    let found = |name: &str| {
        if Net::here().is_ok_and(|mut net| has(&mut net, name)) {
            return Some("in this host's network".to_owned());
        }
        let keeps = |pin: &&PathBuf| {
            let net = File::open(pin).ok().and_then(|file| Net::in_ns(file.as_fd()).ok());
            net.is_some_and(|mut net| has(&mut net, name))
        };
        kept.iter().find(keeps).map(|pin| format!("in use: {}", pin.display()))
    };
    let wires = site.channels().iter().filter_map(|channel| channel.wire());
    let names = site.networks().iter().map(|network| (network.interface().as_str(), "[[network]]"));
    let names = names.chain(wires.map(|wire| (wire.interface().as_str(), "[[channel]]")));
    names.map(|(name, table)| (name.to_owned(), table, found(name))).collect()
}

fn has(net: &mut Net, name: &str) -> bool {
    net.find(name).is_ok_and(|found| found.is_some())
}

/// Namespaces that wardens pin.
fn pinned() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let is_pin = |path: &&str| {
        let directory = Path::new(path).parent().and_then(Path::file_name);
        directory.is_some_and(|name| PINS.iter().any(|pins| name == *pins))
    };
    let points = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        (words.next() == Some("nsfs")).then(|| words.next()).flatten()
    });
    points.filter(is_pin).map(PathBuf::from).collect()
}
