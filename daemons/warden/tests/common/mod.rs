//! A label with a network, a store and copies of its own, for tests. Each test program uses a part of it.
#![allow(dead_code)]

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use levee_policy::LabelName;
use levee_policy::site::{Mode, Needs, Program, Protocol};
use levee_sys::cgroup::Limits;
use levee_sys::mount::Attributes;
use levee_sys::ns;
use levee_warden::compartment::proto::ToInit;
use levee_warden::compartment::service::{Launch, Profile, Served};
use levee_warden::compartment::{Compartment, Event, Files, Network, Plan, Programs, Spec, Store};

/// A label of its own for one test.
pub struct Lab {
    pub directory: tempfile::TempDir,
    pub spec: Spec,
    pub network: Network,
    nginx: Served,
    listener: OwnedFd,
    address: SocketAddr,
    /// What comes of nginx is nobody's question.
    serves: AtomicBool,
    /// What has happened and was not asked for yet.
    events: Mutex<VecDeque<Event>>,
}

/// A service that is a command.
pub fn served(name: &str, address: SocketAddr, argv: &[&str]) -> Served {
    Served {
        name: name.parse().unwrap(),
        label: LabelName::new("SECRET").unwrap(),
        program: Program::Command(argv.iter().map(|word| (*word).to_owned()).collect()),
        mode: Mode::Direct,
        protocol: Protocol::Tcp,
        addresses: vec![address],
        uploads: false,
        below: Vec::new(),
        more: false,
        needs: Needs::default(),
    }
}

static COUNT: AtomicU32 = AtomicU32::new(0);

impl Lab {
    pub fn new(name: &str) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let (own, below) = (directory.path().join("own.img"), directory.path().join("below.img"));
        Store::create(&own, 16 << 20).unwrap();
        Store::create(&below, 16 << 20).unwrap();
        let network = Network::new().unwrap();
        let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
        let listener = network.listen(address).unwrap();
        let label = LabelName::new("SECRET").unwrap();
        let nginx = Served {
            program: Program::Nginx,
            below: vec![LabelName::new("U").unwrap()],
            uploads: true,
            ..served("web", address, &[])
        };
        let spec = Spec {
            label,
            cgroup: format!("levee-test/{}-{number}", std::process::id()),
            uid_base: 0x7000_0000 + number * 0x1_0000,
            limits: Limits { memory: 128 << 20, processes: 64, cpu_percent: 100 },
            processors: None,
            hostname: format!("compartment-{name}"),
            hosts: vec![("10.0.0.1".parse::<IpAddr>().unwrap(), vec!["files.example".parse().unwrap()])],
            files: Files::Store { own, below: Some(below) },
            pages: true,
            scratch: 8 << 20,
            programs: Programs::Host,
            needs: Needs::all(),
            contexts: None,
        };
        let serves = AtomicBool::new(false);
        Self { directory, spec, network, nginx, listener, address, serves, events: Mutex::default() }
    }

    pub fn try_start(&self, plan: &Plan) -> levee_sys::Result<Compartment> {
        Compartment::start(plan, &self.network, Path::new(env!("CARGO_BIN_EXE_levee-init")))
    }

    pub fn start(&self) -> Compartment {
        self.try_start(&Plan::new(&self.spec)).unwrap_or_else(|e| panic!("{e}"))
    }

    /// With nginx, which the first connection starts.
    pub fn start_serving(&self) -> Compartment {
        self.serves.store(true, Ordering::Relaxed);
        let fds =
            vec![std::io::stderr().as_fd().try_clone_to_owned().unwrap(), self.listener.try_clone().unwrap()];
        let given = vec![(ToInit::Service { served: self.nginx.clone(), off: false }, fds)];
        let init = Path::new(env!("CARGO_BIN_EXE_levee-init"));
        Compartment::start_with(&Plan::new(&self.spec), &self.network, init, given)
            .unwrap_or_else(|e| panic!("{e}"))
    }

    /// The next thing that happens inside.
    pub fn next(&self, compartment: &mut Compartment) -> Event {
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            if let Some(event) = self.events.lock().unwrap().pop_front() {
                return event;
            }
            let events = compartment.events().unwrap().into_iter();
            let asked = events
                .filter(|event| !self.serves.load(Ordering::Relaxed) || !matches!(event, Event::Service(..)));
            self.events.lock().unwrap().extend(asked);
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("nothing happens inside");
    }

    /// A shell script to start inside.
    pub fn program(&self, ticket: u64, script: &str) -> Launch {
        Launch {
            ticket,
            program: "sh".into(),
            argv: vec!["sh".into(), "-c".into(), script.into()],
            env: vec!["PATH=/usr/bin:/usr/sbin".into()],
            input: true,
            terminal: false,
            filter: Profile::Service(Needs::all()),
        }
    }

    /// What a shell script inside writes, and its status.
    pub fn shell(&self, compartment: &mut Compartment, script: &str) -> (String, u8) {
        let null = fs::File::open("/dev/null").unwrap();
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        compartment.run(self.program(77, script), &[null.as_fd(), writer.as_fd(), writer.as_fd()]).unwrap();
        drop(writer);
        assert_eq!(self.next(compartment), Event::Started(77));
        let mut out = Vec::new();
        fs::File::from(reader).read_to_end(&mut out).unwrap();
        let Event::Exited(77, status) = self.next(compartment) else { panic!("the shell does not end") };
        (String::from_utf8_lossy(&out).into_owned(), status)
    }

    /// Writes a file to the copies, as upflow would.
    pub fn put_below(&self, path: &str, content: &str) {
        let Files::Store { below: Some(image), .. } = &self.spec.files else { panic!("no copies") };
        let store = Store::open(image).unwrap();
        let mount = store.mount(Attributes::DATA, None).unwrap();
        let path = PathBuf::from(path);
        let directory = path.parent().unwrap().to_str().unwrap();
        rustix::fs::mkdirat(mount.root(), directory, 0o755.into()).unwrap();
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        let fd = rustix::fs::openat(mount.root(), &path, flags, 0o644.into()).unwrap();
        fs::File::from(fd).write_all(content.as_bytes()).unwrap();
    }
}

/// One HTTP request to the compartment's listener, from within its network; the whole answer.
pub fn fetch(lab: &Lab, method: &str, path: &str, body: &[u8]) -> String {
    let mut stream = ns::in_net(lab.network.ns(), || TcpStream::connect(lab.address)).unwrap().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    )
    .unwrap();
    stream.write_all(body).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// What this test process could leave behind on the host.
#[derive(Debug, PartialEq, Eq)]
pub struct Host {
    mounts: BTreeSet<String>,
    loops: BTreeSet<PathBuf>,
    groups: BTreeSet<PathBuf>,
    children: BTreeSet<String>,
    descriptors: usize,
}

impl Host {
    pub fn look(lab: &Lab) -> Self {
        // Others may mount things on the same host meanwhile: what counts is the lab's own directory, and the
        // place where a root is built.
        let built =
            ["usr", "etc", "dev", "proc", "tmp", "run", "var", "srv", "home"].map(|d| format!("/tmp/{d}"));
        let ours = |point: &str| {
            point == "/tmp"
                || built.iter().any(|b| point == b || point.starts_with(&format!("{b}/")))
                || point.starts_with(lab.directory.path().to_str().unwrap())
        };
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts =
            mounts.lines().filter(|l| l.split(' ').nth(4).is_some_and(ours)).map(String::from).collect();
        let me = std::process::id();
        let mut groups = BTreeSet::new();
        for hierarchy in ["unified", "memory", "pids", "cpu", ""] {
            for entry in fs::read_dir(Path::new("/sys/fs/cgroup").join(hierarchy).join("levee-test"))
                .into_iter()
                .flatten()
            {
                let path = entry.unwrap().path();
                if path.to_string_lossy().ends_with(&lab.spec.cgroup) {
                    groups.insert(path);
                }
            }
        }
        let mut loops = BTreeSet::new();
        for entry in fs::read_dir("/sys/block").unwrap() {
            let backing = entry.unwrap().path().join("loop/backing_file");
            let file = fs::read_to_string(&backing).unwrap_or_default();
            if Path::new(file.trim()).starts_with(lab.directory.path()) {
                loops.insert(file.trim().into());
            }
        }
        let mut children = BTreeSet::new();
        for task in fs::read_dir(format!("/proc/{me}/task")).unwrap() {
            let list = fs::read_to_string(task.unwrap().path().join("children")).unwrap_or_default();
            children.extend(list.split_whitespace().map(String::from));
        }
        let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
        Self { mounts, loops, groups, children, descriptors }
    }

    /// Fails if anything is there that was not there before, after a moment for the kernel to let go.
    pub fn unchanged(&self, lab: &Lab) {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            let now = Self::look(lab);
            if now == *self {
                return;
            }
            assert!(Instant::now() < until, "before: {self:#?}\nnow: {now:#?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
