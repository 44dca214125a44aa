//! Two compartments of a running server, a service in each that was taken over: it does what the meter tells it, under the services'
//! own uid and filter. Each label has a single-level network, which keeps its compartment running and by which jobs reach it.

use std::io::{self, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use super::attacker::{self, End};
use crate::levee::{Removed, Up, programs, quiet, text, wait_for};
use crate::netns::{Namespace, tool};

/// Above and below.
const LABELS: [&str; 2] = ["HIGH", "LOW"];
const PORT: u16 = 7000;
/// The first of the services that end after each connection.
const ONCE: u16 = 7100;
const ONCES: u16 = 8;

/// Where a label's services answer.
fn address(side: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 79, if side == 0 { 2 } else { 1 }, 1)
}

fn site(program: &str, grant: &[String]) -> String {
    let mut out = String::from(
        "[site]\nname = \"leak\"\n\n[labels]\nlevels = [\"LOW\", \"HIGH\"]\ncategories = []\nintegrity-levels = []\n\
         integrity-categories = []\n\n[server]\nname = \"server.lab.example\"\naddresses = [\"10.77.0.1\"]\n\
         trusted-path-port = 7443\nike-port = 500\ntunnel-port = 4500\ninner-address = \"10.80.0.1\"\n\
         inner-pool = \"10.80.1.0/24\"\nnames = [\"services.lab.example\"]\nslots = 16\ngrace = \"30s\"\n\n\
         [limits]\nmemory = \"512M\"\nprocesses = 256\ncpu = \"800%\"\nstore = \"32M\"\n\n\
         [[user]]\nname = \"lab\"\nclearance = \"LOW..HIGH\"\n\n[[host]]\nname = \"ws1\"\naccreditation = \"LOW..HIGH\"\n\n",
    );
    let mut names = Vec::new();
    let mut service = |name: String, port: u16, word: &str| {
        out.push_str(&format!(
            "[[service]]\nname = \"{name}\"\nport = {port}\nprotocol = \"tcp\"\nrange = \"LOW..HIGH\"\nmode = \"direct\"\n\
             command = [\"{program}\", \"{word}\"]\n"
        ));
        if !grant.is_empty() {
            out.push_str(&format!("needs = {grant:?}\n"));
        }
        out.push('\n');
        names.push(name);
    };
    service("attacker".into(), PORT, "serve");
    for i in 0..ONCES {
        service(format!("once-{i}"), ONCE + i, "once");
    }
    for (side, label) in LABELS.iter().enumerate() {
        out.push_str(&format!(
            "[[network]]\ninterface = \"edge{side}\"\nlabel = \"{label}\"\naddress = \"{}/24\"\nservices = {names:?}\n\n",
            address(side)
        ));
    }
    out
}

/// The running server. Fields drop in order.
#[derive(Debug)]
pub struct Stand {
    _server: Up,
    hosts: [Namespace; 2],
    _namespace: Namespace,
    _directory: Removed,
    _program: Removed,
}

impl Stand {
    /// Brings the server up in namespaces of its own, and both services in it, which ask for these groups of system calls.
    ///
    /// # Errors
    /// The step that failed; what was made until then is removed.
    pub fn start(grant: &[String]) -> io::Result<Stand> {
        let dir = programs()?;
        let program = attacker::visible();
        let removed = Removed(program.clone());
        attacker::place(&program)?;
        let directory = Removed(std::env::temp_dir().join(format!("levleak{}", std::process::id())));
        fs::create_dir(&directory.0)?;
        let path = |name: &str| text(&directory.0.join(name));
        let server = Namespace::new("u")?;
        let hosts = [Namespace::new("a")?, Namespace::new("b")?];
        for (side, host) in hosts.iter().enumerate() {
            let [a, b, c, _] = address(side).octets();
            server.link(host, address(side), Ipv4Addr::new(a, b, c, 9), &format!("edge{side}"))?;
        }
        // Where workstations would come from; there are none.
        tool("ip", &["-n", &server.name, "addr", "add", "10.77.0.1/32", "dev", "lo"])?;
        fs::write(path("site.toml"), site(&text(&program), grant))?;
        let levee = dir.join("levee");
        let (file, state, run) = (path("site.toml"), path("state"), path("server"));
        tool(&text(&levee), &["enrol", "all", &file, "--state", &state])?;
        let net = format!("--net={}", server.path().display());
        let up = [&net, &text(&levee), "up", &file, "--state", &state, "--run", &run];
        quiet("nsenter", &up, &directory.0.join("log"))?;
        let server_up = Up { levee, run: directory.0.join("server") };
        let stand =
            Stand { _server: server_up, hosts, _namespace: server, _directory: directory, _program: removed };
        for side in 0..2 {
            wait_for("a label's services", || stand.end(side).ok())?;
        }
        Ok(stand)
    }

    /// A connection to the service above (0) or below (1).
    ///
    /// # Errors
    /// When nobody answers.
    pub fn end(&self, side: usize) -> io::Result<End> {
        let host = self.hosts.get(side).ok_or_else(|| io::Error::other("no such side"))?;
        let stream = connect(&host.path(), SocketAddr::from((address(side), PORT)))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(600)))?;
        Ok(End { to: Box::new(stream.try_clone()?), from: BufReader::new(Box::new(stream)) })
    }
}

/// Connects from a network namespace.
fn connect(namespace: &Path, to: SocketAddr) -> io::Result<TcpStream> {
    let namespace = fs::File::open(namespace)?;
    // a thread of its own enters the namespace, and ends there
    thread::spawn(move || {
        rustix::thread::move_into_link_name_space(
            namespace.as_fd(),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )?;
        TcpStream::connect_timeout(&to, Duration::from_secs(2))
    })
    .join()
    .map_err(|_| io::Error::other("a connection's thread failed"))?
}

/// Keeps every processor busy until dropped, as other people's work would.
#[derive(Debug)]
pub struct Load {
    stop: std::sync::Arc<std::sync::atomic::AtomicBool>,
    threads: Vec<thread::JoinHandle<u64>>,
}

impl Load {
    /// One thread a processor, which works and rests by turns of about ten milliseconds.
    pub fn start() -> Load {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let work = |i: usize| {
            let stop = stop.clone();
            move || {
                let (mut sum, mut turn) = (0_u64, 0_u64);
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let until = Instant::now() + Duration::from_millis(3 + (turn * 7 + i as u64) % 13);
                    while Instant::now() < until {
                        sum = sum.wrapping_mul(31).wrapping_add(turn);
                    }
                    thread::sleep(Duration::from_millis((turn * 5) % 11));
                    turn += 1;
                }
                sum
            }
        };
        let threads = (0..crate::host::processors()).map(|i| thread::spawn(work(i))).collect();
        Load { stop, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for t in self.threads.drain(..) {
            if t.join().is_err() {
                eprintln!("levee-lab: a thread of the load failed");
            }
        }
    }
}
