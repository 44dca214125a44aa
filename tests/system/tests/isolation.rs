//! The isolation matrix: from inside a compartment at every label of a lattice of 3 levels and 2 categories, an
//! attempt on everything that every label has, and on the host. What should happen is asked of the policy; what
//! happened is observed: who answered, what was read, which files are there afterwards.
//!
//! Needs root, python3, e2fsprogs and levee's own programs (`cargo build --workspace --bins`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use levee_ipc::Channel;
use levee_ipc::warden::{Attachment, FromWarden, Place, ToWarden};
use levee_policy::{Label, LabelName, Site, Who};
use levee_sys::cgroup::Limits;
use levee_sys::mount::Attributes;
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use levee_sys::tun::{self, Queue};
use levee_warden::compartment::proto::Start;
use levee_warden::compartment::{
    Compartment, Event, Files, Interface, Network, Plan, SERVICE_UID, Spec, Store,
};
use rustix::thread::{Gid, Uid};
use serde_json::{Value, json};

const SITE: &str = include_str!("../../../conf/small/site.toml");
const SERVER: &str = "10.80.0.1";

/// Programs of the host's that are locked, one by each label.
const LOCKED: [&str; 12] = ["env", "cat", "ls", "cp", "mv", "rm", "ln", "dd", "df", "du", "id", "wc"];

/// What succeeds between these labels, by the policy: everything else that is tried must fail.
fn expected(site: &Site, subject: &Label, object: &Label, what: &str) -> bool {
    let who = Who::default();
    match what {
        "read a document" => site.decide_read(who, subject, object).is_ok(),
        "write a document" | "add a document" | "add a directory" | "change a document's mode" => {
            site.decide_write(who, subject, object).is_ok()
        }
        // Both ends of a conversation read and write: both decisions, both ways.
        "TCP over IPv4"
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
        | "read its memory through /proc" => {
            site.decide_write(who, subject, object).is_ok() && site.decide_write(who, object, subject).is_ok()
        }
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

/// One label with everything that runs for it.
struct Running {
    name: LabelName,
    label: Label,
    number: usize,
    compartment: Compartment,
    image: PathBuf,
    victim_pid: i32,
    inner_pid: i32,
    secret: u64,
    vault: Child,
    _vault_channel: Channel,
    _network: Network,
    _tun: Queue,
    _outer: UdpSocket,
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
            "host_word": directory.path().to_str().unwrap(),
        });
        for line in probe(&mut places[index].compartment, &world).lines() {
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

fn place(site: &Site, directory: &Path, labels: &[Label], label: &Label, number: usize) -> Running {
    let name = site.label_name(label).unwrap();
    let (image, below) =
        (directory.join(format!("own-{number}.img")), directory.join(format!("below-{number}.img")));
    Store::create(&image, 8 << 20).unwrap();
    Store::create(&below, 8 << 20).unwrap();
    copies(site, &below, labels, label);

    let network = Network::new().unwrap();
    let interface = Interface {
        name: "levee0".into(),
        mtu: 1400,
        addresses: vec![format!("{SERVER}/32").parse().unwrap()],
        routes: vec!["10.80.1.0/24".parse().unwrap()],
    };
    let options = tun::Options { multi_queue: false, exclusive: true, vnet_header: true };
    let tun = network.add(&interface, || tun::open("levee0", options)).unwrap();
    let mut net = network.net().unwrap();
    net.add_address("lo", format!("{}/32", ipv4(number)).parse().unwrap()).unwrap();
    net.add_address("lo", format!("{}/128", ipv6(number)).parse().unwrap()).unwrap();

    let base =
        0x6000_0000 + (std::process::id() % 256) * 0x40_0000 + u32::try_from(number).unwrap() * 0x1_0000;
    let probes = Path::new(env!("CARGO_MANIFEST_DIR")).join("probes");
    let script =
        |file: &str| (format!("/etc/levee-test/{file}"), fs::read_to_string(probes.join(file)).unwrap());
    let spec = Spec {
        label: name.clone(),
        cgroup: format!("levee-isolation/{}/{number}", std::process::id()),
        uid_base: base,
        limits: Limits { memory: 256 << 20, processes: 64, cpu_percent: 200 },
        hostname: "matrix".into(),
        hosts: Vec::new(),
        files: Files::Store { own: image.clone(), below: Some(below) },
        extra: ["common.py", "victim.py", "probe.py"].map(script).to_vec(),
        scratch: 8 << 20,
    };
    let init = program("levee-init");
    let mut compartment =
        Compartment::start(&Plan::new(&spec), &network, &init).unwrap_or_else(|e| panic!("{e}"));

    // The victim says the number it has inside; the host's number of it is the only other child of process 1.
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let locked = format!("/usr/bin/{}", LOCKED[number]);
    run(&mut compartment, 1, &["victim.py", name.as_str(), &number.to_string(), &locked], &null(), &writer);
    drop(writer);
    let mut line = String::new();
    BufReader::new(fs::File::from(reader)).read_line(&mut line).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["ready", inner_pid, secret] = words.as_slice() else { panic!("the victim at {name} said {line:?}") };
    let init_pid = compartment.process().unwrap().pid.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{init_pid}/task/{init_pid}/children")).unwrap();
    let victim_pid = children.split_whitespace().next().unwrap().parse().unwrap();

    let outer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (vault, channel) = vault(base + 0x1_0000 * 32, &tun, &outer);
    Running {
        label: label.clone(),
        number,
        compartment,
        image,
        victim_pid,
        inner_pid: inner_pid.parse().unwrap(),
        secret: secret.parse().unwrap(),
        vault,
        _vault_channel: channel,
        _network: network,
        _tun: tun,
        _outer: outer,
        name,
    }
}

/// The real vault, started as the warden does.
fn vault(uid: u32, tun: &Queue, udp: &UdpSocket) -> (Child, Channel) {
    let (ours, theirs) = Channel::pair().unwrap();
    let mut program = Program::new(program("levee-vault"));
    let stderr = std::io::stderr();
    program.stdio[2] = Some(stderr.as_fd());
    program.fds = vec![theirs.as_fd()];
    program.identity = Some((Uid::from_raw(uid), Gid::from_raw(uid)));
    program.new_namespaces = Program::ISOLATED;
    program.new_keyring = true;
    let child = program.start().unwrap();
    ours.send_with(&FromWarden::Attach(Attachment::Tun { mtu: 1400 }), &[tun.as_fd()]).unwrap();
    let address = udp.local_addr().unwrap();
    ours.send_with(&FromWarden::Attach(Attachment::Udp(address)), &[udp.as_fd()]).unwrap();
    ours.send(&FromWarden::Begin(Place::Server)).unwrap();
    assert!(matches!(ours.recv::<ToWarden>().unwrap().message, ToWarden::Ready));
    (child, ours)
}

/// The documents of every dominated label, as upflow leaves them.
fn copies(site: &Site, image: &Path, labels: &[Label], label: &Label) {
    let store = Store::open(image).unwrap();
    let mount = store.mount(Attributes::DATA, None).unwrap();
    for other in labels.iter().filter(|other| *other != label) {
        if site.decide_read(Who::default(), label, other).is_err() {
            continue;
        }
        let name = site.label_name(other).unwrap();
        rustix::fs::mkdirat(mount.root(), name.file_name(), 0o755.into()).unwrap();
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        let path = format!("{}/doc.txt", name.file_name());
        let fd = rustix::fs::openat(mount.root(), path, flags, 0o644.into()).unwrap();
        fs::File::from(fd).write_all(name.as_str().as_bytes()).unwrap();
    }
}

/// One of levee's programs, beside the test programs.
fn program(name: &str) -> PathBuf {
    let path = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join(name);
    assert!(path.exists(), "{} is missing: run `cargo build --workspace --bins` first", path.display());
    path
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

fn ipv4(number: usize) -> String {
    format!("10.81.0.{}", number + 1)
}

fn ipv6(number: usize) -> String {
    format!("fd81::{}", number + 1)
}

fn null() -> OwnedFd {
    fs::File::open("/dev/null").unwrap().into()
}

fn run(compartment: &mut Compartment, ticket: u64, arguments: &[&str], stdin: &OwnedFd, stdout: &OwnedFd) {
    let mut argv = vec!["python3".to_owned(), "-B".into(), format!("/etc/levee-test/{}", arguments[0])];
    argv.extend(arguments[1..].iter().map(|a| (*a).to_owned()));
    let env = vec!["PATH=/usr/bin".to_owned()];
    let start =
        Start { ticket, program: "/usr/bin/python3".into(), argv, env, uid: SERVICE_UID, terminal: false };
    let stderr = std::io::stderr();
    compartment.run(start, &[stdin.as_fd(), stdout.as_fd(), stderr.as_fd()]).unwrap();
    assert_eq!(next(compartment), Event::Started(ticket));
}

/// Runs the probe inside and answers all that it says.
fn probe(compartment: &mut Compartment, world: &Value) -> String {
    let (stdin, mut writer) = std::io::pipe().unwrap();
    let (mut reader, stdout) = std::io::pipe().unwrap();
    run(compartment, 2, &["probe.py"], &stdin.into(), &stdout.into());
    let text = world.to_string();
    let feed = std::thread::spawn(move || writer.write_all(text.as_bytes()).unwrap());
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    feed.join().unwrap();
    assert_eq!(next(compartment), Event::Exited(2, 0), "the probe ends in good order: {said}");
    said
}

fn next(compartment: &mut Compartment) -> Event {
    let until = Instant::now() + Duration::from_secs(60);
    while Instant::now() < until {
        // Here each event is waited for before the next can happen.
        let events = compartment.events().unwrap();
        assert!(events.len() <= 1, "{events:?}");
        if let Some(event) = events.into_iter().next() {
            return event;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("nothing happens inside");
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
