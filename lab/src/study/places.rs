//! What keeps programs apart, and what it costs (`levee lab run partition`, `labelled`): the same program (`lab/operations`) does its
//! operations natively, as a service in a compartment of levee's, and in what others use.

use super::directions::{self, Directions};
use super::emulated::Machine;
use super::mpi::{self, End, Mpi};
use super::others::{self, Left};
use super::split::Split;
use super::{Arm, Measured, Row, Stand};
use crate::compartment::{Compartment, EDGE, ENDS, Link, Service, leave};
use crate::host::processors;
use crate::levee;
use crate::netns::{Namespace, inside, tool};
use crate::operate::{Removed, text, visible, wait_for};
use crate::partitions::{Partition, Partitions, USUAL};
use crate::role::stay_on;
use crate::server::Server;
use levee_stats::quantile;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{fs, thread};

pub(super) const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/operations"));
const PORT: u16 = 7200;

/// Of the plain arm's link.
const LINK: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 215, 0, 1), Ipv4Addr::new(10, 215, 0, 2)];
/// As large as a compartment's store.
const STORE: u64 = 32 << 20;

/// The partition of an arm's application, and the one that attacks it.
const PARTITIONS: [&str; 2] = ["one", "other"];
/// The arm whose partition has the largest share of the processors that there is, and what attacks it the usual one.
const FAVOURED: &str = "favoured";
const MOST: u32 = 10_000;
/// What the names of the arms whose partitions have frames begin with; then come the milliseconds of a slot.
const FRAMED: &str = "framed-";
/// Rows that are by the clock, so that a trial must hold many slots.
const CLOCKED: [&str; 2] = ["steady", "woken"];
/// What these count of a partition with frames.
const KEEPER: &str = "what keeps the frames, % of a processor";

/// Where what attacks a place's application is, by the place's name.
fn beside(arm: &str) -> String {
    format!("beside {arm}")
}

/// One running program of operations: jobs in, answers out.
pub(super) struct Running {
    /// A directory that lasts, where it is not the compartment's own.
    pub(super) store: Option<String>,
    /// On which processor it does them.
    pub(super) processor: u64,
    /// Until the end: a program that reads no more jobs ends by itself.
    to: Option<Box<dyn Write>>,
    answers: Receiver<String>,
    child: Option<Child>,
}

/// The last processor: interrupts tend to come to the first.
fn last() -> u64 {
    processors().saturating_sub(1) as u64
}

/// A job's first words.
fn words(row: &str, seconds: f64, processor: u64) -> String {
    format!("{row} {} {processor}", (seconds * 1e3).ceil() as u64)
}

impl Running {
    fn new(to: Box<dyn Write>, from: Box<dyn Read + Send>, child: Option<Child>) -> Running {
        let (tell, answers) = channel();
        // The thread ends with what it reads.
        thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                // A machine's console ends lines as terminals do.
                if tell.send(line.trim_end_matches('\r').to_owned()).is_err() {
                    return;
                }
            }
        });
        Running { store: None, processor: last(), to: Some(to), answers, child }
    }

    fn of(stream: TcpStream) -> io::Result<Running> {
        stream.set_nodelay(true)?;
        Ok(Running::new(Box::new(stream.try_clone()?), Box::new(stream), None))
    }

    /// A program that does jobs on its standard input.
    pub(super) fn spawn(mut command: Command) -> io::Result<Running> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let missing = || io::Error::other("no pipe");
        let (to, from) = (child.stdin.take().ok_or_else(missing)?, child.stdout.take().ok_or_else(missing)?);
        Ok(Running::new(Box::new(to), Box::new(from), Some(child)))
    }

    pub(super) fn ask(&mut self, row: &str, seconds: f64) -> io::Result<Measured> {
        self.tell(row, seconds)?;
        self.hear(seconds)
    }

    fn tell(&mut self, row: &str, seconds: f64) -> io::Result<()> {
        let store = self.store.as_deref().unwrap_or_default();
        let job = format!("{} {store}", words(row, seconds, self.processor));
        self.say(&job)
    }

    /// One line.
    pub(super) fn say(&mut self, line: &str) -> io::Result<()> {
        let to = self.to.as_mut().ok_or_else(|| io::Error::other("it has been told to end"))?;
        to.write_all(format!("{line}\n").as_bytes())?;
        to.flush()
    }

    /// Of a machine at whose console a shell is: waits until it says this between `<<` and `>>`.
    pub(super) fn expect(&mut self, word: &str, patience: Duration) -> io::Result<()> {
        let (end, mut said) = (Instant::now() + patience, String::new());
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line =
                self.answers.recv_timeout(left).map_err(|e| io::Error::other(format!("{e}; {said}")))?;
            let found = line.split_once("<<").and_then(|(_, rest)| rest.split_once(">>"));
            match found {
                Some((status, _)) if status == word => return Ok(()),
                Some((status, _)) => return Err(io::Error::other(format!("it answers {status}; {said}"))),
                None => said.push_str(&format!("{line} ")),
            }
        }
    }

    fn hear(&mut self, seconds: f64) -> io::Result<Measured> {
        let patience = Duration::from_secs_f64(30.0 + 20.0 * seconds);
        let said = self.answers.recv_timeout(patience).map_err(|e| match e {
            RecvTimeoutError::Timeout => io::Error::other("no answer in time"),
            RecvTimeoutError::Disconnected => io::Error::other("it has ended"),
        })?;
        if let Some(why) = said.strip_prefix("refused: ") {
            return Err(io::Error::other(why.to_owned()));
        }
        let mut words = said.split(' ');
        let (ns, preempted) = (words.next().and_then(|w| w.parse::<f64>().ok()), words.next());
        let ns = ns.ok_or_else(|| io::Error::other(format!("it said {said:?}")))?;
        let preempted = preempted.and_then(|w| w.parse().ok());
        let counted = words.filter_map(|word| {
            let (name, value) = word.split_once('=')?;
            let name = COUNTED.iter().find(|(short, _)| *short == name)?.1;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Ok(Measured { seconds: ns / 1e9, preempted, counted: counted.collect() })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.to = None;
        if let Some(child) = &mut self.child {
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end && matches!(child.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(10));
            }
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// A trial of the periodic application, and of what is by the clock, takes so many times as long as others: periods and slots are long, and so are
/// the kernel's ticks.
const PERIODIC: f64 = 16.0;

/// What the program counts besides, and what it is called.
const COUNTED: [(&str, &str); 4] = [
    ("missed", "missed deadlines, %"),
    ("late", "99th percentile, ms"),
    ("packets", "packets"),
    ("octets", "octets on the wire"),
];

/// How the last processor has spent its time so far, in clock ticks (proc_stat(5)): its parts as the paper's figure 2 has them, then all.
fn spent() -> io::Result<[f64; 6]> {
    let line = format!("cpu{} ", processors() - 1);
    let all = fs::read_to_string("/proc/stat")?;
    let line = all
        .lines()
        .find_map(|l| l.strip_prefix(&line))
        .ok_or_else(|| io::Error::other("no such processor"))?;
    let ticks: Vec<f64> = line.split_whitespace().filter_map(|w| w.parse().ok()).collect();
    let [user, nice, system, _, _, hard, soft, ..] = ticks[..] else {
        return Err(io::Error::other("/proc/stat is not as it should be"));
    };
    Ok([user, system, nice, hard, soft, ticks.iter().take(8).sum()])
}

/// The parts, in their order.
const PARTS: [&str; 5] =
    ["user, %", "system, %", "nice, %", "hardware interrupts, %", "software interrupts, %"];

/// A mount, undone when dropped; then its directory goes.
struct Mounted(Removed);

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(e) = tool("umount", &[&text(&self.0.0)]) {
            crate::said::warning(&e);
        }
    }
}

/// The program as a plain service over a link like the compartment's, with a store of the same kind and size. Fields drop in
/// order.
struct Plain {
    _served: Server,
    store: Mounted,
    _image: Removed,
    client: Namespace,
    server: Namespace,
}

impl Plain {
    fn start(program: &Path) -> io::Result<Plain> {
        let (client, server) = (Namespace::new("pc")?, Namespace::new("ps")?);
        client.link(&server, LINK[0], LINK[1], "eth0")?;
        let listener = inside(&server.path(), || TcpListener::bind((LINK[1], PORT)))?;
        let mut serve = Command::new("sh");
        serve.args(["-c", "exec \"$0\" serve 3<&0 </dev/null"]).arg(program);
        let served = Server::of(serve.stdin(OwnedFd::from(listener)).process_group(0).spawn()?);
        let beside = |what: &str| std::env::temp_dir().join(format!("levlab{}{what}", std::process::id()));
        let image = Removed(beside("image"));
        let file = fs::File::create_new(&image.0)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, STORE)?;
        tool("mkfs.ext4", &["-q", "-F", &text(&image.0)])?;
        let directory = Removed(beside("store"));
        fs::create_dir(&directory.0)?;
        tool("mount", &["-o", "loop,nosuid,nodev", &text(&image.0), &text(&directory.0)])?;
        Ok(Plain { _served: served, store: Mounted(directory), _image: image, client, server })
    }

    fn connect(&self) -> io::Result<TcpStream> {
        inside(&self.client.path(), || {
            TcpStream::connect_timeout(&(LINK[1], PORT).into(), Duration::from_secs(2))
        })
    }
}

/// The row of a stream in which each packet goes alone.
const ALONE: &str = "link-packets";

/// Interfaces at both ends of a link that take no super-segments (TSO), as many network cards do not, until it is dropped.
struct Alone<'a>(&'a [End; 2]);

impl Alone<'_> {
    fn make(link: &[End; 2]) -> io::Result<Alone<'_>> {
        let alone = Alone(link);
        alone.together("off").map(|()| alone)
    }

    /// (`gso_max_segs` of one would have TCP wait for each.)
    fn together(&self, switch: &str) -> io::Result<()> {
        for end in self.0 {
            let net = format!("--net={}", text(&end.netns));
            tool("nsenter", &[&net, "ethtool", "-K", end.device, "tso", switch, "gso", switch])?;
        }
        Ok(())
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // As Linux has it of itself.
        if let Err(e) = self.together("on") {
            crate::said::warning(&e);
        }
    }
}

/// A stream from an arm's program, or requests of a byte to it, over the arm's link: seconds for a byte, or for a request.
fn link(mut stream: TcpStream, row: &str, job: &str, seconds: f64) -> io::Result<Measured> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs_f64(10.0 + 10.0 * seconds)))?;
    stream.write_all(job.as_bytes())?;
    let mut piece = vec![0_u8; 128 << 10];
    // the first answer is no part of what is measured
    stream.read_exact(piece.get_mut(..1).unwrap_or_default())?;
    let begin = Instant::now();
    if row == "link-stream" {
        // All of it: the two have one processor, and what is read without a pause was written before.
        let mut done = 0_u64;
        loop {
            match stream.read(&mut piece)? {
                0 => break,
                n => done += n as u64,
            }
        }
        if done == 0 {
            return Err(io::Error::other("too little came"));
        }
        return Ok(Measured { seconds: begin.elapsed().as_secs_f64() / done as f64, ..Measured::default() });
    }
    // As the program does: a quarter were as quick.
    let mut each = Vec::new();
    while begin.elapsed().as_secs_f64() < seconds {
        let last = Instant::now();
        stream.write_all(b"x")?;
        stream.read_exact(piece.get_mut(..1).unwrap_or_default())?;
        each.push(last.elapsed().as_secs_f64());
    }
    let quarter = quantile(&each, 0.25).ok_or_else(|| io::Error::other("too little came"))?;
    Ok(Measured { seconds: quarter, ..Measured::default() })
}

/// Everything that stands during a run. Fields drop in order.
pub(super) struct Places {
    places: BTreeMap<String, Running>,
    absent: Vec<(String, String)>,
    directions: Directions,
    /// Whether there are rows of directions.
    is_directed: bool,
    mpi: Option<Mpi>,
    compartments: BTreeMap<String, Compartment>,
    partitions: BTreeMap<String, Partitions>,
    machine: Option<Machine>,
    /// Where the kernel's package for it is.
    kernel_root: Option<PathBuf>,
    plain: Option<Plain>,
    _roots: Vec<Left>,
    _program: Removed,
}

impl Places {
    /// Builds the arms.
    ///
    /// # Errors
    /// When the program cannot be left where compartments see it.
    pub(super) fn build(arms: &[&Arm], rows: &[&Row]) -> io::Result<Places> {
        let program = visible("operations");
        let removed = Removed(program.clone());
        leave(&program, PROGRAM)?;
        let mut p = Places {
            places: BTreeMap::new(),
            absent: Vec::new(),
            directions: Directions::default(),
            is_directed: rows.iter().any(|r| r.id.starts_with(directions::PREFIX)),
            mpi: None,
            compartments: BTreeMap::new(),
            partitions: BTreeMap::new(),
            machine: None,
            kernel_root: arms.iter().find_map(|arm| arm.kernel_root.clone()),
            plain: None,
            _roots: Vec::new(),
            _program: removed,
        };
        for arm in arms {
            let place = p.place(&arm.name, &arm.name, &program).and_then(|mut place| {
                // an arm that starts and cannot do the least is no arm
                place
                    .ask("null-call", 0.001)
                    .map_err(|e| io::Error::other(format!("it does not run here: {e}")))?;
                Ok(place)
            });
            match place {
                Ok(place) => drop(p.places.insert(arm.name.clone(), place)),
                Err(e) if matches!(arm.name.as_str(), "native" | "plain") => return Err(e),
                Err(e) => p.absent.push((arm.name.clone(), e.to_string())),
            }
        }
        for server in p.partitions.values() {
            server.rest(server.go()?)?;
        }
        if p.is_directed {
            let here: Vec<&str> = p.places.keys().map(String::as_str).collect();
            p.directions.build(&here)?;
        }
        if rows.iter().any(|r| r.id.starts_with(mpi::PREFIX)) {
            p.mpi = Some(Mpi::build()?);
        }
        Ok(p)
    }

    /// The two ends of an arm's link.
    fn ends(&self, arm: &str) -> io::Result<[End; 2]> {
        let end = |netns, at, device| End { netns, at, device };
        match (&self.plain, self.compartments.get(arm)) {
            (Some(p), _) if arm == "plain" => {
                Ok([end(p.client.path(), LINK[0], "eth0"), end(p.server.path(), LINK[1], "eth0")])
            }
            (_, Some(c)) => {
                let [near, far] = c.ends();
                Ok([end(near, ENDS[1], EDGE), end(far, ENDS[0], EDGE)])
            }
            _ => Err(io::Error::other("it has no link")),
        }
    }

    /// The application in its place, while another place of the same kind takes all that it can of the processor.
    fn attacked(&mut self, arm: &str, row: &str, seconds: f64) -> io::Result<Measured> {
        let key = beside(arm);
        if !self.places.contains_key(&key) {
            let program = self._program.0.clone();
            let place = self.place(arm, &key, &program)?;
            self.places.insert(key.clone(), place);
        }
        let longer = seconds + 0.3;
        let missing = || io::Error::other("the arm was not built");
        self.places.get_mut(&key).ok_or_else(missing)?.tell("hog", longer)?;
        thread::sleep(Duration::from_millis(100));
        let measured = self.places.get_mut(arm).ok_or_else(missing)?.ask(row, seconds);
        // So that it does not attack the next trial, too.
        self.places.get_mut(&key).ok_or_else(missing)?.hear(longer)?;
        measured
    }

    /// The link's own interfaces, as [`Places::ends`] has its ends: on a labelled network there are levee's wires between the two.
    fn interfaces(&self, arm: &str) -> io::Result<[End; 2]> {
        let mut ends = self.ends(arm)?;
        if let Some(c) = self.compartments.get(arm) {
            for (end, netns) in ends.iter_mut().zip(c.link()) {
                end.netns = netns;
            }
        }
        Ok(ends)
    }

    /// A new connection over an arm's link.
    fn connect(&self, arm: &str) -> io::Result<TcpStream> {
        match (&self.plain, self.compartments.get(arm)) {
            (Some(p), _) if arm == "plain" => p.connect(),
            (_, Some(c)) => c.connect(PORT),
            _ => Err(io::Error::other("it has no link")),
        }
    }

    /// A stream or requests over an arm's link, with what its packets are beside.
    fn over_link(&self, arm: &str, row: &str, seconds: f64) -> io::Result<Measured> {
        let stream = self.connect(arm)?;
        // The program stays on the last processor, and who asks is beside it: to wake another one costs more than a link does.
        let cpu = processors() - 1;
        let (row, job) = (row.to_owned(), format!("{}\n", words(row, seconds, last())));
        let [near, _] = self.interfaces(arm)?;
        let before = mpi::passed(&near)?;
        let asked = thread::spawn(move || stay_on(cpu).and_then(|()| link(stream, &row, &job, seconds)));
        let mut measured = asked.join().map_err(|_| io::Error::other("the link's client failed"))??;
        let after = mpi::passed(&near)?;
        let [packets, octets] = [after[0] - before[0], after[1] - before[1]];
        measured.counted.insert("octets a packet".to_owned(), octets / packets.max(1.0));
        Ok(measured)
    }

    /// The server of an arm of partitions.
    fn server(&self, arm: &str) -> Option<&Partitions> {
        let split = self.directions.split.as_ref().filter(|_| arm == "partition");
        self.partitions.get(arm).or(split.map(|split| &split.partitions))
    }

    /// The program in a partition: the arm's own, or the one that attacks it.
    fn partition(&mut self, arm: &str, key: &str, program: &Path) -> io::Result<Running> {
        if self.server(arm).is_none() {
            let slot = arm.strip_prefix(FRAMED).map(|ms| ms.parse().map_err(io::Error::other)).transpose()?;
            let command: Vec<String> = vec![text(program), "listen".into(), PORT.to_string()];
            let partition =
                |name, weight| Partition { name, command: command.clone(), software: Vec::new(), weight };
            let [one, other] = PARTITIONS;
            let both = [partition(one, if arm == FAVOURED { MOST } else { USUAL }), partition(other, USUAL)];
            if arm == "partition" && self.is_directed {
                self.directions.split = Some(Split::start(&both)?);
            } else {
                let part = format!("q{}", self.partitions.len());
                let space = Namespace::new(&format!("{part}u"))?;
                let made = Partitions::start(&part, space, &both, "", slot)?;
                self.partitions.insert(arm.to_owned(), made);
            }
        }
        let server = self.server(arm).ok_or_else(|| io::Error::other("its server was not started"))?;
        let network = server.network(PARTITIONS[usize::from(key != arm)])?;
        let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, PORT));
        Running::of(wait_for("the partition's program", || inside(&network, connect).ok())?)
    }

    /// A job in an arm's place, while what keeps its frames runs, if it has any: what was measured, and which part of a processor the
    /// keeper took.
    fn ask(&mut self, arm: &str, row: &str, seconds: f64) -> io::Result<Measured> {
        let keeper = self.server(arm).map_or(Ok(None), Partitions::go)?;
        let spent = || keeper.map(|pid| (levee::seconds(pid), Instant::now()));
        let before = spent();
        let place = self.places.get_mut(arm);
        let measured = place.ok_or_else(|| io::Error::other("the arm was not built"))?.ask(row, seconds);
        let after = spent();
        self.server(arm).map_or(Ok(()), |server| server.rest(keeper))?;
        let mut measured = measured?;
        if let Some((before, after)) = before.zip(after).filter(|_| CLOCKED.contains(&row)) {
            let part = (after.0 - before.0) / (after.1 - before.1).as_secs_f64();
            measured.counted.insert(KEEPER.to_owned(), 100.0 * part);
        }
        Ok(measured)
    }

    /// Starts the program in an arm; `key` tells it from another of the same arm.
    fn place(&mut self, arm: &str, key: &str, program: &Path) -> io::Result<Running> {
        let named = |what: &str, e: io::Error| io::Error::new(e.kind(), format!("{what}: {e}"));
        match arm {
            "native" => {
                let mut c = Command::new(program);
                c.arg("jobs");
                Running::spawn(c).map_err(|e| named("the program", e))
            }
            "plain" => {
                let plain = Plain::start(program)?;
                let stream = wait_for("the plain service", || plain.connect().ok())?;
                let mut place = Running::of(stream)?;
                place.store = Some(text(&plain.store.0.0));
                self.plain = Some(plain);
                Ok(place)
            }
            "compartment" | "labelled" | "bare" => {
                let link = match arm {
                    "labelled" => Link::Labelled,
                    "bare" => Link::Bare,
                    _ => Link::SingleLevel,
                };
                let software = Path::new("/usr/bin/openssl").exists().then(|| "openssl".to_owned());
                let services = [Service {
                    name: "operations".into(),
                    port: PORT,
                    word: "serve".into(),
                    software: software.into_iter().collect(),
                }];
                let part = key.get(..1).unwrap_or_default();
                let c = Compartment::start(part, program, &services, link)?;
                let stream = wait_for("the compartment's service", || c.connect(PORT).ok())?;
                self.compartments.insert(key.to_owned(), c);
                Running::of(stream)
            }
            arm if arm == "partition" || arm == FAVOURED || arm.starts_with(FRAMED) => {
                self.partition(arm, key, program)
            }
            "machine" => {
                let root = self.kernel_root.clone().unwrap_or_else(|| PathBuf::from("/"));
                let machine = Machine::start(program, PORT, &root)?;
                let stream = machine.connect();
                self.machine = Some(machine);
                Running::of(stream?)
            }
            "bubblewrap" => Running::spawn(others::bubblewrap(program)).map_err(|e| named("bwrap", e)),
            "nspawn" => {
                let (c, root) = others::nspawn(program, self._roots.len())?;
                self._roots.push(Left::Root(root));
                Running::spawn(c).map_err(|e| named("systemd-nspawn", e))
            }
            "podman" => {
                let (c, podman) = others::podman(program, self._roots.len())?;
                self._roots.push(Left::Podman(podman));
                Running::spawn(c).map_err(|e| named("podman", e))
            }
            other => Err(io::Error::other(format!("no way is known to build {other:?}"))),
        }
    }
}

impl Stand for Places {
    fn absent(&self) -> &[(String, String)] {
        &self.absent
    }

    fn measure(&mut self, arm: &str, row: &str, seconds: f64) -> io::Result<Measured> {
        if row.starts_with(directions::PREFIX) {
            return self.directions.measure(arm, row, seconds);
        }
        if row.starts_with(mpi::PREFIX) {
            let mpi = self.mpi.as_ref().ok_or_else(|| io::Error::other("MPI was not built"))?;
            let mut opened = Vec::new();
            if let Some(c) = self.compartments.get(arm) {
                for (netns, _) in c.ends().iter().zip(c.is_levee()).filter(|(_, is_levee)| *is_levee) {
                    opened.extend(mpi::open(netns, EDGE)?);
                }
            }
            let ends = self.ends(arm)?;
            // A capture costs the processor: it has a run of its own.
            let is_labelled = self.compartments.get(arm).is_some_and(Compartment::is_labelled);
            let [near, _] = self.interfaces(arm)?;
            let seen = mpi::seen(mpi, &ends, &near.netns, is_labelled)?;
            let mut measured = mpi.measure(&ends, row, seconds)?;
            measured.counted.extend(seen);
            return Ok(measured);
        }
        if row == ALONE {
            let link = self.interfaces(arm)?;
            let _packets = Alone::make(&link)?;
            return self.over_link(arm, "link-stream", seconds);
        }
        if row.starts_with("link-") {
            return self.over_link(arm, row, seconds);
        }
        if row == "find-cold" {
            // names and inodes of the whole host, and the pages of what is forgotten
            fs::write("/proc/sys/vm/drop_caches", "2")?;
        }
        if let Some(units) = row.strip_prefix("attacked/") {
            return self.attacked(arm, &format!("periodic/{units}"), PERIODIC * seconds);
        }
        if CLOCKED.contains(&row) {
            return self.ask(arm, row, PERIODIC * seconds);
        }
        if !row.starts_with("periodic/") {
            return self.ask(arm, row, seconds);
        }
        let before = spent()?;
        let mut measured = self.ask(arm, row, PERIODIC * seconds)?;
        let after = spent()?;
        let all = (after[5] - before[5]).max(1.0);
        for (name, (after, before)) in PARTS.into_iter().zip(after.into_iter().zip(before)) {
            measured.counted.insert(name.to_owned(), 100.0 * (after - before) / all);
        }
        Ok(measured)
    }
}
