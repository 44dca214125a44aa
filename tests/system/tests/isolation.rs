//! The isolation matrix: from inside a compartment at every label of a lattice of 3 levels and 2 categories, an
//! attempt on everything that every label has, and on the host. What should happen is asked of the policy; what
//! happened is observed: who answered, what was read, which files are there afterwards.
//!
//! Needs root, python3, e2fsprogs and levee's own programs (`cargo build --workspace --bins`).

mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::path::Path;

use levee_policy::{Label, Site, Who};
use levee_sys::mount::Attributes;
use places::{LOCKED, Running, SERVER, ipv4, ipv6, place, probe};
use serde_json::{Value, json};

const SITE: &str = include_str!("../../../conf/small/site.toml");

/// What succeeds between these labels, by the policy: everything else that is tried must fail.
fn expected(site: &Site, subject: &Label, object: &Label, what: &str) -> bool {
    match what {
        "read a document" => site.decide_read(Who::default(), subject, object).is_ok(),
        // The *-property, with equality: a blind write up destroys what its writer cannot see. Both ends of a conversation write.
        "write a document"
        | "add a document"
        | "add a directory"
        | "change a document's mode"
        | "TCP over IPv4"
        | "TCP over IPv6"
        | "UDP over IPv4"
        | "UDP over IPv6"
        | "the same server address"
        | "Unix socket by path"
        | "Unix socket by abstract name"
        | "System V shared memory"
        | "System V message queue"
        | "System V semaphore"
        | "POSIX message queue"
        | "POSIX shared memory"
        | "meet its lock on a program"
        | "signal its process"
        | "signal its process by pidfd"
        | "see its process in /proc"
        | "see its store among the mounts"
        | "read its memory through /proc" => subject == object,
        // What no service may do to anyone, its own label included.
        "take a write lease on a document"
        | "watch a document"
        | "open the store's image"
        | "open the store's block device"
        | "read its memory"
        | "trace its process"
        | "take its descriptors"
        | "enter through its process 1's root"
        | "join its network namespace"
        | "join its user namespace"
        | "signal its vault"
        | "take its vault's descriptors"
        | "open its vault's descriptors in /proc"
        | "see its control group" => false,
        other => panic!("an attempt that the table does not know: {other}"),
    }
}

#[test]
fn nothing_reaches_another_label_but_reading_what_is_dominated() {
    let site = Site::parse(SITE).expect("the example site is sound");
    let directory = tempfile::Builder::new().prefix("levee-isolation-").tempdir_in("/var/tmp").unwrap();
    let range = site.services().next().expect("a service").range().clone();
    let labels: Vec<Label> = range.labels(64).unwrap().collect();
    assert_eq!(labels.len(), 12, "3 levels and the 4 sets of 2 categories");

    let mut places: Vec<Running> = labels
        .iter()
        .enumerate()
        .map(|(number, label)| place(&site, directory.path(), &labels, label, number))
        .collect();
    let host = Host::open(directory.path());
    let objects: Vec<Value> = places.iter().map(object).collect();

    let mut tally: BTreeMap<String, Tally> = BTreeMap::new();
    let mut wrong = Vec::new();
    for index in 0..places.len() {
        let (me, label) = (places[index].name.clone(), places[index].label.clone());
        let world = json!({
            "me": me.as_str(),
            "number": index,
            "server": SERVER,
            "objects": objects,
            "host": host.description,
        });
        for line in probe(&mut places[index].compartment, "probe.py", &world).lines() {
            let attempt: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
            let text = |key: &str| attempt[key].as_str().unwrap().to_owned();
            let (on, what) = (text("object"), text("what"));
            let should = match places.iter().find(|place| place.name.as_str() == on) {
                Some(place) => expected(&site, &label, &place.label, &what),
                None => false, // the host
            };
            let did = attempt["ok"].as_bool().unwrap();
            let row = if on == "host" { format!("host: {what}") } else { what.clone() };
            tally.entry(row).or_default().count(should, did);
            if should != did {
                let detail = text("detail");
                wrong.push(format!("{me} on {on}: {what}: should be {should}, was {did} {detail}"));
            }
        }
    }

    report(&tally);
    assert!(wrong.is_empty(), "{} attempts went wrong:\n{}", wrong.len(), wrong.join("\n"));
    let refused: usize = tally.values().map(|t| t.refused).sum();
    let allowed: usize = tally.values().map(|t| t.allowed).sum();
    assert!(refused >= 150, "only {refused} attempts had to fail");
    // Each label reads itself and what it dominates, and has all its own.
    assert_eq!(tally["read a document"].allowed, pairs_that_read(&site, &labels));
    assert!(allowed > 200, "only {allowed} attempts had to succeed");
    unharmed(&mut places);
    host.untouched();
    for place in places {
        place.vault.kill().unwrap();
        place.compartment.stop().unwrap();
    }
}

fn pairs_that_read(site: &Site, labels: &[Label]) -> usize {
    let may = |s: &Label, o: &Label| usize::from(site.decide_read(Who::default(), s, o).is_ok());
    labels.iter().map(|s| labels.iter().map(|o| may(s, o)).sum::<usize>()).sum()
}

/// How often an attempt had to succeed and did, and had to fail and did.
#[derive(Default)]
struct Tally {
    allowed: usize,
    refused: usize,
    wrong: usize,
}

impl Tally {
    fn count(&mut self, should: bool, did: bool) {
        match (should, did) {
            (true, true) => self.allowed += 1,
            (false, false) => self.refused += 1,
            _ => self.wrong += 1,
        }
    }
}

/// The table, on the test's own standard output whether it passes or not.
fn report(tally: &BTreeMap<String, Tally>) {
    let mut all = Tally::default();
    let mut table = format!("{:<48} {:>9} {:>9} {:>6}\n", "attempt", "succeeded", "refused", "wrong");
    for (what, t) in tally {
        table.push_str(&format!("{what:<48} {:>9} {:>9} {:>6}\n", t.allowed, t.refused, t.wrong));
        all.allowed += t.allowed;
        all.refused += t.refused;
        all.wrong += t.wrong;
    }
    table.push_str(&format!("{:<48} {:>9} {:>9} {:>6}\n", "all", all.allowed, all.refused, all.wrong));
    std::io::stdout().write_all(table.as_bytes()).unwrap();
}

fn object(place: &Running) -> Value {
    json!({
        "label": place.name.as_str(),
        "file_name": place.name.file_name(),
        "number": place.number,
        "image": place.image,
        "device": place.compartment.images()[0].device(),
        "ipv4": ipv4(place.number),
        "ipv6": ipv6(place.number),
        "locked": format!("/usr/bin/{}", LOCKED[place.number]),
        "victim_pid": place.victim_pid,
        "inner_pid": place.inner_pid,
        "secret": place.secret,
        "init_pid": place.compartment.process().unwrap().pid.as_raw_nonzero().get(),
        "vault_pid": place.vault.pid.as_raw_nonzero().get(),
        "cgroup": format!("/sys/fs/cgroup/unified/levee-isolation/{}/{}", std::process::id(), place.number),
    })
}

/// What the attempts must have left: every victim and vault alive, every store with its own label's files alone.
fn unharmed(places: &mut [Running]) {
    for place in places {
        assert!(place.compartment.events().unwrap().is_empty(), "the victim at {} still runs", place.name);
        assert!(place.vault.try_wait().unwrap().is_none(), "the vault at {} still runs", place.name);
        let root = place.compartment.images()[0].mount(Attributes::READ_ONLY_DATA, None).unwrap();
        let mut names = BTreeSet::new();
        let listed = rustix::fs::openat(root.root(), ".", rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
        for entry in rustix::fs::Dir::new(listed).unwrap() {
            names.insert(entry.unwrap().file_name().to_str().unwrap().to_owned());
        }
        let own = [
            ".".to_owned(),
            "..".to_owned(),
            "dir".to_owned(),
            "doc.txt".to_owned(),
            "probes".to_owned(),
            format!("by-{}", place.number),
            format!("directory-by-{}", place.number),
        ];
        assert_eq!(names, BTreeSet::from(own), "files in the store of {}", place.name);
        let flags = rustix::fs::OFlags::RDONLY;
        let document = rustix::fs::openat(root.root(), "doc.txt", flags, 0.into()).unwrap();
        let mut text = String::new();
        fs::File::from(document).read_to_string(&mut text).unwrap();
        assert_eq!(text, place.name.as_str());
    }
}

/// What of the host's is tried, and must not have been reached.
struct Host {
    description: Value,
    tcp: Vec<TcpListener>,
    unix: Vec<UnixListener>,
}

impl Host {
    fn open(directory: &Path) -> Self {
        let socket = directory.join("host.sock");
        let file = directory.join("host-file");
        fs::write(&file, "host").unwrap();
        let loopback = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = loopback.local_addr().unwrap().port();
        // The address of a real interface, where the host has one.
        let address = UdpSocket::bind("0.0.0.0:0")
            .and_then(|s| s.connect("192.0.2.1:9").and_then(|()| s.local_addr()))
            .map_or_else(|_| "127.0.0.2".to_owned(), |a| a.ip().to_string());
        let outward = TcpListener::bind((address.as_str(), port)).unwrap();
        let abstract_name = format!("levee-isolation-{}", std::process::id());
        let unix = vec![
            UnixListener::bind(&socket).unwrap(),
            UnixListener::bind_addr(&UnixAddress::from_abstract_name(&abstract_name).unwrap()).unwrap(),
        ];
        let tcp = vec![loopback, outward];
        tcp.iter().for_each(|l| l.set_nonblocking(true).unwrap());
        unix.iter().for_each(|l| l.set_nonblocking(true).unwrap());
        let description = json!({
            "port": port,
            "address": address,
            "socket": socket,
            "abstract": abstract_name,
            "file": file,
            "warden": std::process::id(),
        });
        Self { description, tcp, unix }
    }

    fn untouched(&self) {
        for listener in &self.tcp {
            assert!(listener.accept().is_err(), "something connected to the host");
        }
        for listener in &self.unix {
            assert!(listener.accept().is_err(), "something connected to the host");
        }
    }
}
