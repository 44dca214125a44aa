//! Labels with everything that runs for one: a compartment, a vault, a process that others could want to reach.
//! Each test program uses a part of it.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use levee_ipc::Channel;
use levee_ipc::warden::vault::VaultPart;
use levee_ipc::warden::{Nothing, Order, Place, Said};
use levee_policy::site::Needs;
use levee_policy::{Label, LabelName, Site, Who};
use levee_sys::cgroup::Limits;
use levee_sys::mount::{Attributes, Mount};
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use levee_sys::tun::{self, Queue};
use levee_warden::compartment::service::{Launch, Profile};
use levee_warden::compartment::{Compartment, Event, Files, Interface, Network, Plan, Programs, Spec, Store};
use levee_warden::programs::Wanted;
use rustix::thread::{Gid, Uid};
use serde_json::Value;

/// The inner address of every label's server.
pub const SERVER: &str = "10.80.0.1";

/// Programs of the host's that are locked, one by each label.
pub const LOCKED: [&str; 12] = ["env", "cat", "ls", "cp", "mv", "rm", "ln", "dd", "df", "du", "id", "wc"];

/// One label with everything that runs for it.
pub struct Running {
    pub name: LabelName,
    pub label: Label,
    pub number: usize,
    pub compartment: Compartment,
    pub image: PathBuf,
    pub victim_pid: i32,
    pub inner_pid: i32,
    pub secret: u64,
    pub vault: Child,
    _vault_channel: Channel,
    _network: Network,
    _tun: Queue,
    _outer: UdpSocket,
}

/// A compartment as a label's, with the network of one.
pub struct Room {
    pub compartment: Compartment,
    name: LabelName,
    image: PathBuf,
    base: u32,
    network: Network,
    tun: Queue,
}

/// A compartment whose services ask for this, with the probes in it.
pub fn room(
    site: &Site,
    directory: &Path,
    labels: &[Label],
    label: &Label,
    number: usize,
    needs: &Needs,
) -> Room {
    let name = site.label_name(label).unwrap();
    let (image, below) =
        (directory.join(format!("own-{number}.img")), directory.join(format!("below-{number}.img")));
    Store::create(&image, 8 << 20).unwrap();
    Store::create(&below, 8 << 20).unwrap();
    scripts(&image);
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
    let spec = Spec {
        label: name.clone(),
        cgroup: format!("levee-isolation/{}/{number}", std::process::id()),
        uid_base: base,
        limits: Limits { memory: 256 << 20, processes: 64, cpu_percent: 200 },
        processors: None,
        hostname: "matrix".into(),
        hosts: Vec::new(),
        files: Files::Store { own: image.clone(), below: Some(below) },
        pages: false,
        scratch: 8 << 20,
        programs: Programs::Image(programs()),
        needs: needs.clone(),
        contexts: None,
    };
    let init = program("levee-init");
    let compartment =
        Compartment::start(&Plan::new(&spec), &network, &init).unwrap_or_else(|e| panic!("{e}"));
    Room { compartment, name, image, base, network, tun }
}

/// A label whose services may do all that any site can let them, with its vault and a process that others could want to reach.
pub fn place(site: &Site, directory: &Path, labels: &[Label], label: &Label, number: usize) -> Running {
    let Room { mut compartment, name, image, base, network, tun } =
        room(site, directory, labels, label, number, &Needs::all());

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

/// The laboratory's attacker, as compartments see it.
pub fn attacker() -> PathBuf {
    // An image that is kept is known by this name.
    static BEGUN: OnceLock<u128> = OnceLock::new();
    let begun = BEGUN.get_or_init(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos());
    format!("/usr/local/share/levee-attacker-{}-{begun:x}", std::process::id()).into()
}

/// The image of the programs that probes need, in memory as the warden keeps it, once for all tests of a program.
fn programs() -> PathBuf {
    static IMAGE: OnceLock<(Mount, PathBuf)> = OnceLock::new();
    let make = || {
        let memory = Mount::tmpfs(1 << 30, 16, 0o700, Attributes::DATA).unwrap();
        let attacker = attacker();
        levee_lab::leak::attacker::place(&attacker).unwrap();
        let wanted = Wanted::new(["/usr/bin/python3".to_owned()], [attacker.display().to_string()]);
        levee_warden::programs::make(&wanted, memory.root()).unwrap_or_else(|e| panic!("{e}"));
        fs::remove_file(&attacker).unwrap();
        let path = format!("/proc/self/fd/{}/{}", memory.root().as_raw_fd(), wanted.file_name());
        (memory, path.into())
    };
    IMAGE.get_or_init(make).1.clone()
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
    ours.send_with(&Order::Give(VaultPart::Tun { mtu: 1400 }), &[tun.as_fd()]).unwrap();
    let address = udp.local_addr().unwrap();
    ours.send_with(&Order::Give(VaultPart::Udp(address)), &[udp.as_fd()]).unwrap();
    ours.send(&Order::<VaultPart>::Begin(Place::Server)).unwrap();
    assert!(matches!(ours.recv::<Said<Nothing>>().unwrap().message, Said::Ready));
    (child, ours)
}

/// The probes, in the label's own store.
fn scripts(image: &Path) {
    let store = Store::open(image).unwrap();
    let mount = store.mount(Attributes::DATA, None).unwrap();
    rustix::fs::mkdirat(mount.root(), "probes", 0o755.into()).unwrap();
    let probes = Path::new(env!("CARGO_MANIFEST_DIR")).join("probes");
    for name in ["common.py", "victim.py", "probe.py", "observe.py", "work.py", "attack.py"] {
        write(&mount, &format!("probes/{name}"), &fs::read(probes.join(name)).unwrap());
    }
}

fn write(mount: &Mount, path: &str, content: &[u8]) {
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let fd = rustix::fs::openat(mount.root(), path, flags, 0o644.into()).unwrap();
    fs::File::from(fd).write_all(content).unwrap();
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
        write(&mount, &format!("{}/doc.txt", name.file_name()), name.as_str().as_bytes());
    }
}

/// One of levee's programs, beside the test programs.
pub fn program(name: &str) -> PathBuf {
    let path = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join(name);
    assert!(path.exists(), "{} is missing: run `cargo build --workspace --bins` first", path.display());
    path
}

pub fn ipv4(number: usize) -> String {
    format!("10.81.0.{}", number + 1)
}

pub fn ipv6(number: usize) -> String {
    format!("fd81::{}", number + 1)
}

pub fn null() -> OwnedFd {
    fs::File::open("/dev/null").unwrap().into()
}

pub fn run(
    compartment: &mut Compartment,
    ticket: u64,
    arguments: &[&str],
    stdin: &OwnedFd,
    stdout: &OwnedFd,
) {
    run_with(compartment, ticket, arguments, stdin, stdout, Needs::all());
}

pub fn run_with(
    compartment: &mut Compartment,
    ticket: u64,
    arguments: &[&str],
    stdin: &OwnedFd,
    stdout: &OwnedFd,
    needs: Needs,
) {
    let mut argv = vec!["python3".to_owned(), "-B".into(), format!("/srv/own/probes/{}", arguments[0])];
    argv.extend(arguments[1..].iter().map(|a| (*a).to_owned()));
    let env = vec!["PATH=/usr/bin".to_owned()];
    let program = "/usr/bin/python3".into();
    let filter = Profile::Service(needs);
    let start = Launch { ticket, program, argv, env, input: true, terminal: false, filter };
    let stderr = std::io::stderr();
    compartment.run(start, &[stdin.as_fd(), stdout.as_fd(), stderr.as_fd()]).unwrap();
    assert_eq!(next(compartment), Event::Started(ticket));
}

/// Runs a script of `probes/` inside, hands it `world` as JSON, and answers all that it says.
pub fn probe(compartment: &mut Compartment, script: &str, world: &Value) -> String {
    Probe::start(compartment, script, world, Needs::all()).said(compartment)
}

/// A script that runs inside and has been handed its world.
pub struct Probe {
    said: std::io::PipeReader,
    feed: std::thread::JoinHandle<()>,
}

impl Probe {
    /// Starts one as a service that asks for this.
    pub fn start(compartment: &mut Compartment, script: &str, world: &Value, needs: Needs) -> Self {
        let (stdin, mut writer) = std::io::pipe().unwrap();
        let (said, stdout) = std::io::pipe().unwrap();
        run_with(compartment, 2, &[script], &stdin.into(), &stdout.into(), needs);
        let text = world.to_string();
        Self { said, feed: std::thread::spawn(move || writer.write_all(text.as_bytes()).unwrap()) }
    }

    /// All that it says, once it has ended.
    pub fn said(mut self, compartment: &mut Compartment) -> String {
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        self.feed.join().unwrap();
        assert_eq!(next(compartment), Event::Exited(2, 0), "the probe ends in good order: {said}");
        said
    }
}

pub fn next(compartment: &mut Compartment) -> Event {
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
