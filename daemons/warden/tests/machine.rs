//! Needs root, e2fsprogs, nginx, qemu-system-x86 and what `scripts/guest` makes: a real machine, booted once for all of these.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use levee_policy::LabelName;
use levee_policy::site::{Mode, Needs, Program, Protocol};
use levee_sys::cgroup::Limits;
use levee_sys::{clock, ns, tun};
use levee_warden::compartment::service::Served;
use levee_warden::compartment::{Compartment, Event, Files, Interface, Network, Programs, Spec, Store};
use levee_warden::machine::image::Recipe;
use levee_warden::machine::proto::Wire;
use levee_warden::machine::{self, Accelerator, DocumentPorts, MachinePlan};
use levee_warden::programs::{Wanted, make as make_programs};

/// How long anything may take on a loaded machine without hardware support.
const PATIENCE: Duration = Duration::from_secs(120);

const SERVER: &str = "10.80.0.1";
const CLIENT: &str = "10.81.0.7";

fn programs() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_levee-init")).parent().unwrap().to_owned()
}

fn kernel_root() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target")), PathBuf::from);
    let root = target.join("guest/root");
    assert!(root.exists(), "{} is not there: run scripts/guest", root.display());
    std::fs::canonicalize(root).unwrap()
}

struct Lab {
    _directory: tempfile::TempDir,
    network: Network,
    _tun: tun::Queue,
    spec: machine::MachineSpec,
    events: Vec<Event>,
}

impl Lab {
    fn new() -> Self {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let own = directory.path().join("own.img");
        Store::create(&own, 16 << 20).unwrap();
        let wanted = Wanted::new(["/usr/sbin/nginx".to_owned()], []);
        make_programs(&wanted, File::open(directory.path()).unwrap()).unwrap();
        let recipe = Recipe { kernel_root: kernel_root(), programs: programs() };
        let image = recipe.place(directory.path());
        recipe.make(&image).unwrap();
        assert_eq!(recipe.place(directory.path()), image, "the same programs, the same image");

        let network = Network::new().unwrap();
        let (server, client): (IpAddr, IpNet) =
            (SERVER.parse().unwrap(), format!("{CLIENT}/32").parse().unwrap());
        let vault = Interface {
            name: "levee0".into(),
            mtu: 1400,
            // As if the person's workstation were here.
            addresses: vec![client],
            routes: vec!["10.81.0.0/16".parse().unwrap()],
        };
        let options = tun::Options { multi_queue: false, exclusive: true, vnet_header: true };
        let tun = network.add(&vault, || tun::open("levee0", options)).unwrap();

        let label = LabelName::new("SECRET").unwrap();
        let nginx = Served {
            name: "web".parse().unwrap(),
            label: label.clone(),
            program: Program::Nginx,
            mode: Mode::Direct,
            protocol: Protocol::Tcp,
            addresses: vec![SocketAddr::new(server, 80)],
            uploads: true,
            below: Vec::new(),
            more: false,
            needs: Needs::default(),
        };
        let spec = machine::MachineSpec {
            compartment: Spec {
                label,
                cgroup: format!("levee-test/machine-{}", std::process::id()),
                uid_base: 0x7100_0000,
                limits: Limits { memory: 128 << 20, processes: 64, cpu_percent: 100 },
                processors: None,
                hostname: "harbour".into(),
                hosts: vec![(server, vec!["files.example".parse().unwrap()])],
                files: Files::Store { own, below: None },
                pages: true,
                scratch: 8 << 20,
                programs: Programs::Image(directory.path().join(wanted.file_name())),
                needs: Needs::default(),
                contexts: None,
            },
            image,
            accelerator: Accelerator::Tcg { counter_khz: clock::counter_khz(Duration::from_millis(100)) },
            wire: Wire {
                mtu: 1400,
                addresses: vec![IpNet::from(server)],
                routes: vec!["10.81.0.0/16".parse().unwrap()],
            },
            services: vec![nginx],
            read: true,
        };
        Self { _directory: directory, network, _tun: tun, spec, events: Vec::new() }
    }

    fn boot(&mut self) -> (Compartment, DocumentPorts) {
        let plan = MachinePlan::new(self.spec.clone()).unwrap();
        let begun = Instant::now();
        let init = programs().join("levee-init");
        let (log, stderr) = (std::io::stderr(), std::io::stderr());
        let logs = vec![stderr.as_fd().try_clone_to_owned().unwrap()];
        let (mut machine, documents) =
            machine::begin(&plan, &self.network, &init, log.as_fd(), logs).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(self.next(&mut machine), Event::Built);
        println!("built after {:?}", begun.elapsed());
        (machine, documents)
    }

    fn next(&mut self, machine: &mut Compartment) -> Event {
        let until = Instant::now() + PATIENCE;
        while self.events.is_empty() {
            assert!(Instant::now() < until, "nothing happens in the machine");
            self.events = machine.events().unwrap_or_else(|e| panic!("{e}"));
            std::thread::sleep(Duration::from_millis(2));
        }
        self.events.remove(0)
    }

    fn connect(&self) -> TcpStream {
        let stream =
            ns::in_net(self.network.ns(), || TcpStream::connect(format!("{SERVER}:80"))).unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn fetch(&self, method: &str, path: &str, body: &[u8]) -> String {
        let mut stream = self.connect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: files.example\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn a_label_with_a_kernel_of_its_own_serves_cuts_stops_and_keeps_its_documents() {
    let mut lab = Lab::new();
    let (mut machine, _documents) = lab.boot();

    // The first connection starts the service; the page is its label's.
    let page = lab.fetch("GET", "/", b"");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("<h1>SECRET</h1>") && page.contains("X-Label: SECRET"), "{page}");
    let Event::Service(0, report) = lab.next(&mut machine) else { panic!("it is not told") };
    assert_eq!((report.starts, report.told, report.trouble), (1, None, None));
    // What runs for a while has started.
    let Event::Service(0, report) = lab.next(&mut machine) else { panic!("it is not told") };
    assert!(report.told.is_some_and(|told| told.done && told.reason == "started by its first connection"));
    let answer = lab.fetch("PUT", "/own/dir/plan.txt", b"attack at dawn");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");

    // A session's end ends its connections.
    let mut held = lab.connect();
    held.write_all(b"GET /own/dir/plan.txt HTTP/1.1\r\nHost: files.example\r\n\r\n").unwrap();
    let mut some = [0; 64];
    assert!(held.read(&mut some).unwrap() > 0);
    machine.cut(7, CLIENT.parse().unwrap()).unwrap();
    let sockets = match lab.next(&mut machine) {
        Event::Cut(7, Some(sockets)) => sockets,
        other => panic!("no cut but {other:?}"),
    };
    assert!(sockets >= 1);
    let mut rest = Vec::new();
    assert!(held.read_to_end(&mut rest).is_err(), "a reset, not an end");

    // What is written is there when the machine has stopped in good order and another one has started.
    machine.ask_to_stop().unwrap();
    let until = Instant::now() + PATIENCE;
    while !machine.has_ended() {
        assert!(Instant::now() < until, "the machine does not stop");
        std::thread::sleep(Duration::from_millis(5));
    }
    machine.stop().unwrap();
    let (machine, _documents) = lab.boot();
    assert!(lab.fetch("GET", "/own/dir/plan.txt", b"").ends_with("attack at dawn"));
    machine.stop().unwrap();
}
