//! A running server with a session at each of two labels, in each of which a service was taken over: it does what the meter tells it,
//! under the services' own uid and filter. Where it is asked for, the label above has a kernel of its own.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, process};

use super::attacker::{self, End};
use super::channels::From;
use crate::netns::{Namespace, inside, tool};
use crate::operate::{PATIENCE, Removed, Up, programs, quiet, text, told};
use crate::processes::{descendants, name, processes, words};

/// Lowest first.
const LABELS: [&str; 2] = ["LOW", "HIGH"];
/// Where services answer, at both labels.
const INNER: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 1);
const PORT: u16 = 7000;
/// Of who says again what it is told; and behind a mediator, which a label with a kernel of its own does not have.
const ECHO: u16 = 7001;
const MEDIATED: u16 = 7002;
/// The first of the services that end after each connection.
const ONCE: u16 = 7100;
const ONCES: u16 = 8;
/// With a channel from the first to the second.
const PARTITIONS: [&str; 2] = ["writer", "reader"];
/// Of users that exist for the length of one run.
const PASSWORD: &str = "measured only in the laboratory";
/// How long a machine may take to boot with an emulated processor on a loaded host.
const BOOT: Duration = Duration::from_secs(180);
/// How often a clock is asked for.
const ASKED: usize = 20;

/// What the label above runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// The kernel that all have.
    Compartment,
    /// One of its own, with an emulated processor, from the package below this directory.
    Machine(PathBuf),
}

/// What differs between one stand and another.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// What the label above runs on.
    pub form: Form,
    /// Milliseconds of the slot that each label has in turn, where time is cut into frames.
    pub slot: Option<u32>,
    /// The processor that the label above has for itself.
    pub processor: Option<usize>,
    /// Octets a second that the partitions' channel takes.
    pub rate: &'a str,
}

/// The number of the last processor.
pub fn last_processor() -> usize {
    crate::host::processors() - 1
}

/// Between two slots, in microseconds.
const MARGIN: u32 = 500;

/// Seconds of a frame in which each label has a slot of so many milliseconds.
pub fn frame(slot: u32) -> f64 {
    f64::from(slot * 1000 + MARGIN) * LABELS.len() as f64 / 1e6
}

fn site(program: &str, needs: &[String], plan: &Plan<'_>) -> String {
    let Plan { form, slot, processor, rate } = plan;
    let mut out = format!(
        "[site]\nname = \"lab\"\n\n[labels]\nlevels = {LABELS:?}\ncategories = []\nintegrity-levels = []\n\
         integrity-categories = []\n\n[server]\nname = \"server.lab.example\"\naddresses = [\"10.77.0.1\"]\n\
         trusted-path-port = 7443\nike-port = 500\ntunnel-port = 4500\ninner-address = \"{INNER}\"\n\
         inner-pool = \"10.80.1.0/24\"\nnames = [\"services.lab.example\"]\nslots = 16\ngrace = \"30s\"\n\n\
         [limits]\nmemory = \"512M\"\nprocesses = 256\ncpu = \"800%\"\nstore = \"32M\"\nconnections = 100000\n\n"
    );
    if let Form::Machine(root) = form {
        out.push_str(&format!(
            "[isolation]\nown-kernel = [\"{}\"]\nprocessor = \"emulated\"\nkernel-root = {:?}\n\n",
            LABELS[1],
            text(root)
        ));
    }
    if let Some(number) = processor {
        out.push_str(&format!("[[processors]]\nnumbers = \"{number}\"\nlabels = [\"{}\"]\n\n", LABELS[1]));
    }
    if let Some(slot) = slot {
        out.push_str(&format!("[frames]\nmargin = \"{MARGIN}us\"\n\n"));
        for label in LABELS {
            out.push_str(&format!("[[frames.slot]]\nlabels = [\"{label}\"]\ntime = \"{slot}ms\"\n\n"));
        }
    }
    for (side, label) in LABELS.iter().rev().enumerate() {
        out.push_str(&format!(
            "[[user]]\nname = \"lab{side}\"\nclearance = \"{label}\"\n\n\
             [[host]]\nname = \"ws{side}\"\naccreditation = \"{label}\"\n\n"
        ));
    }
    let mut service = |name: &str, port: u16, mode: &str, word: &str| {
        out.push_str(&format!(
            "[[service]]\nname = \"{name}\"\nport = {port}\nprotocol = \"tcp\"\nrange = \"LOW..HIGH\"\nmode = \"{mode}\"\n\
             command = [\"{program}\", \"{word}\"]\n"
        ));
        if !needs.is_empty() {
            out.push_str(&format!("needs = {needs:?}\n"));
        }
        out.push('\n');
    };
    service("attacker", PORT, "direct", "serve");
    service("echo", ECHO, "direct", "echo");
    if *form == Form::Compartment {
        service("mediated", MEDIATED, "relay", "echo");
    }
    for i in 0..ONCES {
        service(&format!("once-{i}"), ONCE + i, "direct", "once");
    }
    if *form == Form::Compartment {
        for (name, label) in PARTITIONS.iter().zip(LABELS) {
            out.push_str(&format!(
                "[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"{program}\", \"listen\", \"{name}\"]\n\
                 memory = \"96M\"\ndisk = \"8M\"\n\n"
            ));
        }
        let [writer, reader] = PARTITIONS;
        out.push_str(&format!(
            "[[channel]]\nname = \"upward\"\nkind = \"oneway\"\nfrom = \"{writer}\"\nto = \"{reader}\"\nrate = \"{rate}\"\n"
        ));
    }
    out
}

/// The running server and its workstations. Fields drop in order.
#[derive(Debug)]
pub struct Stand {
    /// The network namespaces of the sessions above (0) and below (1).
    sessions: [PathBuf; 2],
    _workstations: Vec<Up>,
    _server: Up,
    _namespaces: Vec<Namespace>,
    _directory: Removed,
    program: Removed,
    own_kernel: bool,
}

impl Stand {
    /// Brings the server up in namespaces of its own, and a session at each label; services ask for these groups of system calls.
    ///
    /// # Errors
    /// The step that failed; what was made until then is removed.
    pub fn start(grant: &[String], plan: &Plan<'_>) -> io::Result<Stand> {
        let program = Removed(attacker::visible());
        attacker::place(&program.0)?;
        let dir = programs()?;
        let directory = Removed(std::env::temp_dir().join(format!("levlab{}site", process::id())));
        fs::create_dir(&directory.0)?;
        let root = directory.0.clone();
        let path = |name: &str| text(&root.join(name));
        let server = Namespace::new("u")?;
        let (levee, file, state) = (dir.join("levee"), path("site.toml"), path("state"));
        fs::write(&file, site(&text(&program.0), grant, plan))?;
        tool(&text(&levee), &["enrol", "all", &file, "--state", &state])?;
        let up = |namespace: &Namespace, run: &str, arguments: &[&str]| -> io::Result<Up> {
            let net = format!("--net={}", namespace.path().display());
            let (levee_, run_) = (text(&levee), path(run));
            let words = [&[net.as_str(), &levee_, "up"], arguments, &["--run", &run_]].concat();
            quiet("nsenter", &words, &root.join("log"))?;
            Ok(Up { levee: levee.clone(), run: root.join(run) })
        };
        let hosts = [Namespace::new("h0")?, Namespace::new("h1")?];
        for (side, host) in (0_u8..).zip(&hosts) {
            let there = Ipv4Addr::new(10, 77 + side, 0, 11);
            let here = Ipv4Addr::new(10, 77 + side, 0, 1);
            server.link(host, here, there, &format!("outer{side}"))?;
            if side > 0 {
                let via = here.to_string();
                tool("ip", &["-n", &host.name, "route", "add", "10.77.0.1/32", "via", &via])?;
            }
            told(
                &levee,
                &["user", "add", "--state", &state, &file, &format!("lab{side}")],
                &root.join("none"),
                PASSWORD,
            )?;
        }
        let server_up = up(&server, "server", &[&file, "--state", &state])?;
        let (mut sessions, mut workstations) = ([PathBuf::new(), PathBuf::new()], Vec::new());
        for (side, host) in hosts.iter().enumerate() {
            let (bundle, own) = (format!("{state}/hosts/ws{side}"), format!("{state}-ws{side}"));
            let run = format!("ws{side}");
            let arguments = ["--workstation", bundle.as_str(), "--state", own.as_str()];
            workstations.push(up(host, &run, &arguments)?);
            let (tpe, socket) = (dir.join("levee-tpe"), root.join(&run).join("tpe.sock"));
            told(&tpe, &["login", &format!("lab{side}"), "--password-stdin"], &socket, PASSWORD)?;
            told(&tpe, &["level", LABELS[1 - side]], &socket, "")?;
            let session = within(PATIENCE, "the session's compartment", || {
                let below = descendants(&processes(), &path(&run));
                below.into_iter().find(|p| name(*p).as_deref() == Some("levee-init"))
            })?;
            sessions[side] = PathBuf::from(format!("/proc/{session}/ns/net"));
        }
        let _namespaces = hosts.into_iter().chain([server]).collect();
        let stand = Stand {
            sessions,
            _workstations: workstations,
            _server: server_up,
            _namespaces,
            _directory: directory,
            program,
            own_kernel: plan.form != Form::Compartment,
        };
        for side in 0..2 {
            within(BOOT, "a label's services", || stand.end(side).ok())?;
        }
        if plan.form != Form::Compartment {
            // What the attacker above asks for within is not the host's processor: its emulator is kept on the one that it would have.
            let all = descendants(&processes(), &path(""));
            let emulator = all.into_iter().filter(|p| name(*p).is_some_and(|n| n.starts_with("qemu")));
            crate::role::keep_on(emulator, plan.processor.unwrap_or(0))?;
        }
        Ok(stand)
    }

    fn connect(&self, side: usize) -> io::Result<TcpStream> {
        let session = self.sessions.get(side).ok_or_else(|| io::Error::other("no such side"))?;
        connect(session, INNER)
    }

    /// A connection to the program of the partition above (0) or below (1), in its own network.
    fn partition(&self, side: usize) -> io::Result<End> {
        let name = PARTITIONS.iter().rev().nth(side).ok_or_else(|| io::Error::other("no such side"))?;
        let program = text(&self.program.0);
        let all = processes().into_keys().map(|pid| (pid, words(pid)));
        let is_it =
            |words: &[String]| words.first() == Some(&program) && words.get(2).is_some_and(|w| w == name);
        let (pid, _) = all
            .into_iter()
            .find(|(_, words)| is_it(words))
            .ok_or_else(|| io::Error::other(format!("the partition {name} does not run")))?;
        let stream = connect(&PathBuf::from(format!("/proc/{pid}/ns/net")), Ipv4Addr::LOCALHOST)?;
        Ok(End { to: Box::new(stream.try_clone()?), from: BufReader::new(Box::new(stream)), behind: 0 })
    }

    /// A connection to the service above (0) or below (1).
    ///
    /// # Errors
    /// When nobody answers.
    pub fn end(&self, side: usize) -> io::Result<End> {
        let behind = if side == 0 && self.own_kernel { behind(&self.connect(side)?)? } else { 0 };
        let stream = self.connect(side)?;
        Ok(End { to: Box::new(stream.try_clone()?), from: BufReader::new(Box::new(stream)), behind })
    }

    /// A program at the workstation above (0) or below (1), in its session's network.
    fn client(&self, side: usize) -> io::Result<End> {
        let session = self.sessions.get(side).ok_or_else(|| io::Error::other("no such side"))?;
        let mut child = Command::new("nsenter")
            .arg(format!("--net={}", session.display()))
            .arg(&self.program.0)
            .arg("job")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        // It ends with its pipes.
        thread::spawn(move || child.wait());
        let (to, from) = pipes.ok_or_else(|| io::Error::other("a program without pipes"))?;
        Ok(End { to: Box::new(to), from: BufReader::new(Box::new(from)), behind: 0 })
    }

    /// An end for a channel.
    ///
    /// # Errors
    /// When nobody answers.
    pub fn end_for(&self, side: usize, from: From) -> io::Result<End> {
        match from {
            From::Service => self.end(side),
            From::Workstation => self.client(side),
            From::Partition => self.partition(side),
        }
    }
}

/// Who takes jobs at this address of a network.
fn connect(network: &Path, at: Ipv4Addr) -> io::Result<TcpStream> {
    let to = SocketAddr::from((at, PORT));
    let stream = inside(network, move || TcpStream::connect_timeout(&to, Duration::from_secs(5)))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(600)))?;
    Ok(stream)
}

/// By how many nanoseconds the clock of who answers is behind this host's.
fn behind(stream: &TcpStream) -> io::Result<i64> {
    let (mut to, mut from) = (stream.try_clone()?, BufReader::new(stream));
    let now = || -> io::Result<i64> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        i64::try_from(since.as_nanos()).map_err(io::Error::other)
    };
    let mut best = (i64::MAX, 0);
    for _ in 0..ASKED {
        let asked = now()?;
        to.write_all(b"clock\n")?;
        let mut said = String::new();
        from.read_line(&mut said)?;
        let answered = now()?;
        let there: i64 = said.trim().parse().map_err(|e| io::Error::other(format!("{said:?}: {e}")))?;
        best = best.min((answered - asked, asked + (answered - asked) / 2 - there));
    }
    Ok(best.1)
}

/// Looks until something is there.
fn within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> io::Result<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        if Instant::now() > end {
            return Err(io::Error::other(format!("not within {} s: {what}", limit.as_secs())));
        }
        thread::sleep(Duration::from_millis(50));
    }
}
/// Keeps every processor busy until dropped, as other people's work would.
#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<u64>>,
}

impl Load {
    /// One thread a processor, which works and rests by turns of about ten milliseconds.
    pub fn start() -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let work = |i: usize| {
            let stop = stop.clone();
            move || {
                let (mut sum, mut turn) = (0_u64, 0_u64);
                while !stop.load(Ordering::Relaxed) {
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
        self.stop.store(true, Ordering::Relaxed);
        for t in self.threads.drain(..) {
            if t.join().is_err() {
                crate::said::warning(&"a thread of the load failed");
            }
        }
    }
}
