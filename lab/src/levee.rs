//! levee for the arms that need it: a site of its own in namespaces of the laboratory, run by levee's programs
//! as an operator and a person would run them (`levee enrol`, `levee up`, `levee-tpe login`, `levee-tpe level`).
//!
//! The client is the same process as in every other arm; it only enters the network namespace of the session
//! instead of the bare one. The server is started by levee, in its compartment, by its first connection.

use crate::client::Target;
use crate::netns::{Namespace, pin_congestion, tool};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, process};

/// Where the services of the site answer, at every label.
const INNER: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 1);
const PORT: u16 = 12_865;
const LABEL: &str = "LOW";
const USER: &str = "lab";
/// Of a user that exists for the length of one run.
const PASSWORD: &str = "measured only in the laboratory";
/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(30);

fn site(program: &str) -> String {
    let service = |name: &str, port: u16, protocol: &str, close: &str| {
        format!(
            "[[service]]\nname = \"{name}\"\nport = {port}\nprotocol = \"{protocol}\"\nrange = \"LOW..HIGH\"\n\
             mode = \"direct\"\ncommand = [\"{program}\", \"serve\", \"--passed\"{close}]\n\n"
        )
    };
    format!(
        "[site]\nname = \"lab\"\n\n[labels]\nlevels = [\"LOW\", \"HIGH\"]\ncategories = []\nintegrity-levels = []\n\
         integrity-categories = []\n\n[server]\nname = \"server.lab.example\"\naddresses = [\"10.77.0.1\"]\n\
         trusted-path-port = 7443\nike-port = 500\ntunnel-port = 4500\ninner-address = \"{INNER}\"\n\
         inner-pool = \"10.80.1.0/24\"\nnames = [\"services.lab.example\"]\nslots = 16\ngrace = \"30s\"\n\n\
         [limits]\nmemory = \"512M\"\nprocesses = 256\ncpu = \"800%\"\nstore = \"16M\"\n\n\
         [[user]]\nname = \"{USER}\"\nclearance = \"LOW..HIGH\"\n\n\
         [[host]]\nname = \"ws1\"\naccreditation = \"LOW..HIGH\"\n\n{}{}{}",
        service("all", PORT, "tcp", ""),
        service("close", PORT + 1, "tcp", ", \"--close\""),
        service("datagrams", PORT, "udp", ""),
    )
}

/// A directory removed when dropped.
#[derive(Debug)]
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let gone = if self.0.is_dir() { fs::remove_dir_all(&self.0) } else { fs::remove_file(&self.0) };
        if let Err(e) = gone {
            eprintln!("levee-lab: {}: {e}", self.0.display());
        }
    }
}

/// A part that `levee up` started: stopped by `levee down` when dropped.
#[derive(Debug)]
struct Up {
    levee: PathBuf,
    run: PathBuf,
}

impl Drop for Up {
    fn drop(&mut self) {
        if let Err(e) = tool(&text(&self.levee), &["down", "--run", &text(&self.run)]) {
            eprintln!("levee-lab: {e}");
        }
    }
}

/// A running site with a person signed on. Fields drop in order.
#[derive(Debug)]
pub struct Levee {
    _workstation: Up,
    _server: Up,
    _namespaces: [Namespace; 2],
    directory: Removed,
    _program: Option<Removed>,
    program: PathBuf,
    /// The first process of the session's compartment (`levee-init`), for its network namespace.
    session: u32,
    /// The service processes in the compartment.
    services: Vec<u32>,
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Where levee's programs are: beside this one.
fn programs() -> io::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let dir = exe.parent().unwrap_or(Path::new("/")).to_path_buf();
    for p in
        ["levee", "levee-warden", "levee-sessiond", "levee-keyer", "levee-vault", "levee-tps", "levee-tpe"]
    {
        if !dir.join(p).exists() {
            return Err(io::Error::other(format!("{p} is not beside levee-lab")));
        }
    }
    Ok(dir)
}

/// This program where a compartment can see it: below /usr. A copy, removed at the end, if it is elsewhere.
fn visible() -> io::Result<(PathBuf, Option<Removed>)> {
    let exe = std::env::current_exe()?;
    if exe.starts_with("/usr") {
        return Ok((exe, None));
    }
    let copy = PathBuf::from(format!("/usr/local/bin/levlab{}", process::id()));
    let guard = Removed(copy.clone());
    fs::copy(exe, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    Ok((copy, Some(guard)))
}

/// Process ids whose command line starts with `program` and goes on with `verb`.
fn running(program: &Path, verb: &str) -> Vec<u32> {
    processes()
        .into_keys()
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split(|b| *b == 0);
            words.next().is_some_and(|w| Path::new(OsStr::new(&*String::from_utf8_lossy(w))) == program)
                && words.next() == Some(verb.as_bytes())
        })
        .collect()
}

/// Every process with its parent.
fn processes() -> BTreeMap<u32, u32> {
    let mut out = BTreeMap::new();
    for e in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = e.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // pid (name) state ppid …: the name may hold anything, so count from its last parenthesis
        let parent = stat.rsplit_once(')').and_then(|(_, r)| r.split_whitespace().nth(1)?.parse().ok());
        if let Some(parent) = parent {
            out.insert(pid, parent);
        }
    }
    out
}

/// Processes whose command line has `mark` in it, and all that they started.
fn descendants(all: &BTreeMap<u32, u32>, mark: &str) -> Vec<u32> {
    let marked = |p: &u32| {
        let line = fs::read(format!("/proc/{p}/cmdline")).unwrap_or_default();
        *p != process::id() && String::from_utf8_lossy(&line).contains(mark)
    };
    let mut ours: Vec<u32> = all.keys().copied().filter(marked).collect();
    let mut i = 0;
    while let Some(p) = ours.get(i).copied() {
        let below: Vec<u32> =
            all.iter().filter(|(c, q)| **q == p && !ours.contains(c)).map(|(c, _)| *c).collect();
        ours.extend(below);
        i += 1;
    }
    ours
}

/// A process's name.
fn name(pid: u32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned())
}

/// Processor seconds of all threads of a process (`/proc/PID/task/*/schedstat`).
fn seconds(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|t| {
            let s = fs::read_to_string(t.path().join("schedstat")).ok()?;
            s.split_whitespace().next()?.parse::<f64>().ok()
        })
        .sum::<f64>()
        / 1e9
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> io::Result<T> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(t) = look() {
            return Ok(t);
        }
        if Instant::now() > end {
            return Err(io::Error::other(format!("not within {} s: {what}", PATIENCE.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs a program with a line on its standard input.
fn told(program: &Path, args: &[&str], socket: &Path, line: &str) -> io::Result<()> {
    let mut child = Command::new(program)
        .args(args)
        .env("LEVEE_TPE_SOCKET", socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(line.as_bytes())?;
    }
    let out = child.wait_with_output()?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    Err(io::Error::other(format!("{} {}: {said}", program.display(), args.join(" "))))
}

impl Levee {
    /// Brings the site up and signs on.
    ///
    /// # Errors
    /// The step that failed, in words; what was made until then is removed.
    pub fn start(congestion: &str) -> io::Result<Levee> {
        let dir = programs()?;
        let (program, copy) = visible()?;
        let directory = Removed(std::env::temp_dir().join(format!("levlab{}", process::id())));
        fs::create_dir(&directory.0)?;
        let path = |name: &str| directory.0.join(name);
        let server = Namespace::new("u")?;
        let workstation = Namespace::new("w")?;
        server.link(&workstation, Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 11), "outer")?;
        fs::write(path("site.toml"), site(&text(&program)))?;
        let (levee, state) = (dir.join("levee"), text(&path("state")));
        let file = text(&path("site.toml"));
        tool(&text(&levee), &["enrol", "all", &file, "--state", &state])?;
        told(&levee, &["user", "add", "--state", &state, &file, USER], &path("none"), PASSWORD)?;
        let up = |ns: &Namespace, run: &str, args: &[&str]| -> io::Result<Up> {
            let net = format!("--net={}", ns.path().display());
            let run = path(run);
            let (levee_, run_) = (text(&levee), text(&run));
            let mut all = vec![net.as_str(), &levee_, "up"];
            all.extend(args);
            all.extend(["--run", &run_]);
            quiet("nsenter", &all, &path("log"))?;
            Ok(Up { levee: levee.clone(), run })
        };
        let server_up = up(&server, "server", &[&file, "--state", &state])?;
        let bundle = text(&path("state").join("hosts").join("ws1"));
        let own_state = text(&path("ws1-state"));
        let workstation_up = up(&workstation, "ws1", &["--workstation", &bundle, "--state", &own_state])?;
        let (tpe, socket) = (dir.join("levee-tpe"), path("ws1").join("tpe.sock"));
        told(&tpe, &["login", USER, "--password-stdin"], &socket, PASSWORD)?;
        told(&tpe, &["level", LABEL], &socket, "")?;
        let session = wait_for("the session's compartment", || {
            let below = descendants(&processes(), &text(&path("ws1")));
            below.into_iter().find(|p| name(*p).as_deref() == Some("levee-init"))
        })?;
        let mut l = Levee {
            _workstation: workstation_up,
            _server: server_up,
            _namespaces: [workstation, server],
            directory,
            _program: copy,
            program,
            session,
            services: Vec::new(),
        };
        l.wake()?;
        pin_congestion(&l.session_namespace(), congestion)?;
        if let Some(s) = l.services.first() {
            pin_congestion(&PathBuf::from(format!("/proc/{s}/ns/net")), congestion)?;
        }
        Ok(l)
    }

    /// The file of the session's network namespace.
    pub fn session_namespace(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.session))
    }

    /// Where the services are.
    pub fn target(&self) -> Target {
        Target { all: SocketAddr::from((INNER, PORT)), close: SocketAddr::from((INNER, PORT + 1)) }
    }

    /// A service process, for its namespace's counters.
    pub fn service(&self) -> u32 {
        self.services.first().copied().unwrap_or(0)
    }

    /// Starts each service by its first connection.
    fn wake(&mut self) -> io::Result<()> {
        let ns = fs::File::open(self.session_namespace())?;
        let to = self.target();
        // a thread of its own enters the session's namespace, and ends there
        std::thread::spawn(move || -> io::Result<()> {
            rustix::thread::move_into_link_name_space(
                std::os::fd::AsFd::as_fd(&ns),
                Some(rustix::thread::LinkNameSpaceType::Network),
            )?;
            TcpStream::connect_timeout(&to.all, PATIENCE)?;
            TcpStream::connect_timeout(&to.close, PATIENCE)?;
            let u = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            u.connect(to.all)?;
            u.set_read_timeout(Some(Duration::from_millis(500)))?;
            for _ in 0..20 {
                u.send(b"e")?;
                if u.recv(&mut [0; 8]).is_ok() {
                    return Ok(());
                }
            }
            Err(io::Error::other("the datagram service does not answer through the tunnel"))
        })
        .join()
        .map_err(|_| io::Error::other("the first connections failed"))??;
        self.services = wait_for("three services in the compartment", || {
            Some(running(&self.program, "serve")).filter(|s| s.len() >= 3)
        })?;
        Ok(())
    }

    /// Keeps the services on one processor, as every other server is.
    ///
    /// # Errors
    /// When a service has ended.
    pub fn keep_services_on(&self, cpu: usize) -> io::Result<()> {
        let mut set = CpuSet::new();
        set.set(cpu.min(CpuSet::MAX_CPU - 1));
        for pid in &self.services {
            for t in fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
                let tid = t.file_name().to_str().and_then(|n| n.parse::<i32>().ok()).and_then(Pid::from_raw);
                sched_setaffinity(tid, &set)?;
            }
        }
        Ok(())
    }

    /// Processor seconds so far of (services, everything else of levee on both sides).
    pub fn seconds(&self) -> (f64, f64) {
        let ours = descendants(&processes(), &text(&self.directory.0));
        let services = self.services.iter().map(|p| seconds(*p)).sum();
        let between = ours.iter().filter(|p| !self.services.contains(p)).map(|p| seconds(*p)).sum();
        (services, between)
    }
}

/// Runs a program that may leave another running: its output goes to a file, since a pipe would stay open.
fn quiet(program: &str, args: &[&str], log: &Path) -> io::Result<()> {
    let file = fs::File::options().create(true).append(true).open(log)?;
    let status = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .process_group(0)
        .status()
        .map_err(|e| io::Error::new(e.kind(), format!("{program}: {e}")))?;
    if status.success() {
        return Ok(());
    }
    let said = fs::read_to_string(log).unwrap_or_default();
    let last: Vec<&str> = said.lines().rev().take(3).collect();
    Err(io::Error::other(format!("{program} {}: {}", args.join(" "), last.join("; "))))
}
