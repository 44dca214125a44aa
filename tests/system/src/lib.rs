//! A server and workstations in network namespaces of their own, run by levee's real programs as an operator
//! would run them. Outside of the namespaces and one temporary directory they touch what levee does on any host: its control groups, which go with
//! them, the list of uids in `/run/levee`, and images of programs in `/var/cache/levee`.
//!
//! ```text
//!  ┌─ NAME-ws1 ─┐   veth    ┌─ NAME-server ─┐
//!  │ 10.77.0.11 ├───────────┤ 10.77.0.1     │   (each workstation has a veth to a bridge in the server's
//!  └────────────┘           └───────────────┘    namespace)
//! ```
//!
//! Begin reading with `host.rs`, then a test of `tests/`.
#![forbid(unsafe_code)]

pub mod calls;
pub mod capture;
pub mod channel;
pub mod crowd;
mod done;
mod ending;
pub mod federation;
pub mod host;
pub mod libreswan;
pub mod prompt;
pub mod schema;
pub mod senders;
pub mod soak;
mod stalled;
pub mod swan;
pub mod things;

pub use done::{Done, sh};
pub use ending::{Ended, ends_what_it_started};
pub use stalled::Stalled;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The password of every user that [`World::new`] adds.
pub const PASSWORD: &str = "correct horse battery staple";

/// How many servers the tests of one program run at once: a host has uids for sixteen, and programs run beside each other.
const SERVERS: usize = 4;

/// How long to wait for uids that servers of another program have.
const UIDS: Duration = Duration::from_secs(300);

/// What a warden says that finds none.
const NO_UIDS: &str = "cannot claim user ids";

/// How many of them may still be started.
static ROOM: (Mutex<usize>, Condvar) = (Mutex::new(SERVERS), Condvar::new());

/// Room for one server, while this lives.
#[derive(Debug)]
struct Room;

impl Room {
    fn take() -> Self {
        // A test that failed holding the lock leaves a number that is right.
        let room = ROOM.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wait = ROOM.1.wait_while(room, |room| *room < 1);
        *wait.unwrap_or_else(PoisonError::into_inner) -= 1;
        Self
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        *ROOM.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        ROOM.1.notify_all();
    }
}

/// A running site.
#[derive(Debug)]
pub struct World {
    name: String,
    _room: Room,
    directory: tempfile::TempDir,
    workstations: Vec<String>,
    server: Option<Child>,
    agents: Vec<(String, Child)>,
    path: Option<PathBuf>,
    under: Vec<String>,
    /// Where the warden is told that levee's programs are, if not where they are.
    replaced: Option<PathBuf>,
    /// The namespace of another's server, in which this one's is, too.
    beside: Option<String>,
}

/// Where the programs under test are: beside this program, or above it where it is a test.
pub fn programs() -> PathBuf {
    let own = std::env::current_exe().expect("the program's own path");
    let mut above = own.ancestors().skip(1).map(Path::to_path_buf);
    let directory = above.find(|directory| !directory.ends_with("deps")).expect("the target directory");
    for program in ["levee", "levee-warden", "levee-vault", "levee-tpe", "levee-sessiond"] {
        let path = directory.join(program);
        assert!(path.exists(), "{} is missing: run `cargo build --workspace --bins` first", path.display());
    }
    directory
}

/// Copies a program. Another process does, since a descriptor of this one to write it, inherited by what another test starts at
/// that moment, would keep it from being executed ("text file busy").
#[track_caller]
pub fn copy_program(from: &Path, to: &Path) {
    sh("install", &["-m", "755", &from.to_string_lossy(), &to.to_string_lossy()]).ok();
}

/// Writes a script that can be executed at once.
#[track_caller]
pub fn write_script(to: &Path, script: &str) {
    let text = to.with_extension("text");
    fs::write(&text, script).expect("write the script");
    copy_program(&text, to);
}

/// Runs a command with one line on its standard input.
pub fn typed(command: &mut Command, line: &str) -> Done {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("start the command");
    let mut input = child.stdin.take().expect("standard input");
    // It may end without reading; what it then says is what counts.
    let _ = writeln!(input, "{line}");
    drop(input);
    child.wait_with_output().expect("wait for the command").into()
}

/// Waits until `what` holds; fails the test when it does not within `limit`.
#[track_caller]
pub fn eventually(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < until, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl World {
    /// Makes the namespaces, issues the certificates, gives every user of the site [`PASSWORD`]. `name` is unique
    /// among the tests that run at once, and short.
    #[track_caller]
    pub fn new(name: &str, site: &str, workstations: &[&str]) -> Self {
        let world = Self::without_network(name, site, workstations, None);
        let server = world.namespace("server");
        sh("ip", &["netns", "add", &server]).ok();
        world.server_sh("ip", &["link", "set", "lo", "up"]).ok();
        world.server_sh("ip", &["link", "add", "outer", "type", "bridge"]).ok();
        world.server_sh("ip", &["address", "add", "10.77.0.1/16", "dev", "outer"]).ok();
        world.server_sh("ip", &["address", "add", "fd77::1/64", "dev", "outer", "nodad"]).ok();
        world.server_sh("ip", &["link", "set", "outer", "up"]).ok();
        world.enrol(11)
    }

    /// As [`World::new`], with the server on the host of another's: in one network, at the address 10.77.0.2, which the site has to say.
    #[track_caller]
    pub fn beside(other: &Self, name: &str, site: &str, workstations: &[&str]) -> Self {
        let world = Self::without_network(name, site, workstations, Some(other.namespace("server")));
        world.server_sh("ip", &["address", "add", "10.77.0.2/16", "dev", "outer"]).ok();
        world.enrol(11 + other.workstations.len())
    }

    fn without_network(name: &str, site: &str, workstations: &[&str], beside: Option<String>) -> Self {
        assert!(
            fs::metadata("/proc/self/ns/net").is_ok() && sh("id", &["-u"]).ok().trim() == "0",
            "these tests make namespaces: run them as root"
        );
        let name = format!("{}{name}", ending::name());
        let world = Self {
            name,
            _room: Room::take(),
            directory: tempfile::Builder::new()
                .prefix(&ending::prefix())
                .tempdir()
                .expect("a temporary directory"),
            workstations: workstations.iter().map(|w| (*w).to_owned()).collect(),
            server: None,
            agents: Vec::new(),
            path: None,
            under: Vec::new(),
            replaced: None,
            beside,
        };
        fs::write(world.path("site.toml"), in_form(&carrying(site))).expect("write the site file");
        world
    }

    /// Gives the workstations their networks, the first this number in it, and everybody their keys and passwords.
    #[track_caller]
    fn enrol(self, first: usize) -> Self {
        for (index, workstation) in self.workstations.iter().enumerate() {
            let namespace = self.namespace(workstation);
            sh("ip", &["netns", "add", &namespace]).ok();
            let host = first + index;
            let port = format!("p{}", host - 11);
            let address = format!("10.77.{}.{}/16", host / 256, host % 256);
            let veth = ["link", "add", &port, "type", "veth", "peer", "name", "outer", "netns", &namespace];
            self.server_sh("ip", &veth).ok();
            self.server_sh("ip", &["link", "set", &port, "master", "outer", "up"]).ok();
            self.outside(workstation, "ip", &["link", "set", "lo", "up"]).ok();
            self.outside(workstation, "ip", &["address", "add", &address, "dev", "outer"]).ok();
            let address = format!("fd77::{:x}/64", 6 + host);
            self.outside(workstation, "ip", &["address", "add", &address, "dev", "outer", "nodad"]).ok();
            self.outside(workstation, "ip", &["link", "set", "outer", "up"]).ok();
        }
        let (site, state) = (self.path("site.toml"), self.path("state"));
        self.levee(&["enrol", "all", &text(&site), "--state", &text(&state)]).ok();
        // To whoever reviews the log: else each status begins with a warning.
        fs::rename(state.join("auditor"), self.path("auditor")).expect("move the auditor's key");
        for user in users_of(&fs::read_to_string(&site).expect("the site file")) {
            self.add_user(&user, PASSWORD);
        }
        self
    }

    /// As [`World::new`], with the server and every workstation running.
    #[track_caller]
    pub fn up(name: &str, site: &str, workstations: &[&str]) -> Self {
        let mut world = Self::new(name, site, workstations);
        world.start_server();
        for workstation in workstations {
            world.start_workstation(workstation);
        }
        world
    }

    /// A site with two layers, up: its server on a network of its own with the gateway `gw`, which alone has a way out, and one workstation
    /// outside.
    #[track_caller]
    pub fn behind_a_gateway(name: &str, site: &str, workstation: &str) -> Self {
        let site = ["10.77.0.1", "fd77::1"]
            .iter()
            .fold(site.to_owned(), |site, address| site.replace(&format!("\"{address}\""), "\"10.78.0.1\""));
        let site = site + "\n[gateway]\naddresses = [\"10.77.0.12\"]\ninside = \"10.78.0.2\"\n";
        let mut world = Self::new(name, &site, &[workstation, "gw"]);
        // What was the server's link to everybody only joins others from here on.
        world.server_sh("ip", &["address", "flush", "dev", "outer"]).ok();
        let gateway = world.namespace("gw");
        let veth = ["link", "add", "inside", "type", "veth", "peer", "name", "inside", "netns", &gateway];
        world.server_sh("ip", &veth).ok();
        for (of, address) in [("server", "10.78.0.1/24"), ("gw", "10.78.0.2/24")] {
            world.outside(of, "ip", &["address", "add", address, "dev", "inside"]).ok();
            world.outside(of, "ip", &["link", "set", "inside", "up"]).ok();
        }
        // Of the trusted path the gateway's kernel is the router, and of nothing else.
        let rules = "add table ip way; add chain ip way f { type filter hook forward priority 0; policy drop; }; \
                     add rule ip way f tcp dport 7443 accept; add rule ip way f tcp sport 7443 accept";
        world.outside("gw", "nft", &[rules]).ok();
        world
            .outside("gw", "sysctl", &["-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=1"])
            .ok();
        world.outside(workstation, "ip", &["route", "add", "10.78.0.0/24", "via", "10.77.0.12"]).ok();
        world.server_sh("ip", &["route", "add", "10.77.0.0/16", "via", "10.78.0.2"]).ok();
        world.start_server();
        world.start_gateway("gw");
        world.start_workstation(workstation);
        world
    }

    /// A path in the test's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The namespace of the server or a workstation.
    pub fn namespace(&self, of: &str) -> String {
        match &self.beside {
            Some(other) if of == "server" => other.clone(),
            _ => format!("{}-{of}", self.name),
        }
    }

    /// Gives a user a password.
    #[track_caller]
    pub fn add_user(&self, user: &str, password: &str) {
        let (site, state) = (text(&self.path("site.toml")), text(&self.path("state")));
        let mut command = Command::new(programs().join("levee"));
        command.args(["user", "add", &site, user, "--state", &state]);
        typed(&mut command, password).ok();
    }

    /// Has what is started afterwards find this host's programs in `directory` first.
    pub fn find_programs_first_in(&mut self, directory: &Path) {
        self.path = Some(directory.to_path_buf());
    }

    /// Has wardens that are started afterwards be started by this command, such as `setpriv` with its options.
    pub fn start_by(&mut self, command: &[&str]) {
        self.under = command.iter().map(|word| (*word).to_owned()).collect();
    }

    /// Has a server that is started afterwards find these of levee's programs to be the twin (`tests/hostile`), which is the real one
    /// until `hostile` in the directory that this gives says otherwise.
    #[track_caller]
    pub fn replace_by_twins(&mut self, names: &[&str]) -> PathBuf {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let (real, directory) = (programs(), self.path("programs"));
        // Processes of every uid look for the file in it.
        for open in [self.directory.path(), &directory, &directory.join("real")] {
            fs::create_dir_all(open).expect("a directory");
            fs::set_permissions(open, fs::Permissions::from_mode(0o755)).expect("open to all");
        }
        for entry in fs::read_dir(&real).expect("the programs").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("levee") && entry.path().is_file() && !name.contains('.') {
                let twin = names.contains(&name.as_str());
                symlink(entry.path(), directory.join(if twin { "real" } else { "" }).join(&name))
                    .expect("a link");
                if twin {
                    // It looks for what lies beside it, so it lies there itself.
                    copy_program(&real.join("levee-twin"), &directory.join(&name));
                }
            }
        }
        self.replaced = Some(directory.clone());
        directory
    }

    /// Starts the server's warden and waits until it is at work.
    #[track_caller]
    pub fn start_server(&mut self) {
        let (site, state, run) = (self.path("site.toml"), self.path("state"), self.path("run"));
        self.server = Some(self.warden("server", ["--server", &text(&site)], &state, &run));
    }

    /// Starts a workstation's warden and waits until it is at work.
    #[track_caller]
    pub fn start_workstation(&mut self, workstation: &str) {
        let bundle = self.path("state").join("hosts").join(workstation);
        let (state, run) =
            (self.path(&format!("{workstation}-state")), self.path(&format!("{workstation}-run")));
        let agent = self.warden(workstation, ["--workstation", &text(&bundle)], &state, &run);
        self.agents.push((workstation.to_owned(), agent));
    }

    /// Starts the gateway's warden in the network of a workstation, and waits until it is at work.
    #[track_caller]
    pub fn start_gateway(&mut self, of: &str) {
        let bundle = self.path("state/gateway");
        let (state, run) = (self.path(&format!("{of}-state")), self.path(&format!("{of}-run")));
        let warden = self.warden(of, ["--gateway", &text(&bundle)], &state, &run);
        self.agents.push((of.to_owned(), warden));
    }

    /// Has a workstation that is started afterwards leave its tunnel to another IPsec client (`tunnel = "other"`).
    #[track_caller]
    pub fn leave_tunnel_to_others(&self, workstation: &str) {
        let bundle = self.path("state").join("hosts").join(workstation).join("workstation.toml");
        let text = fs::read_to_string(&bundle).expect("the bundle");
        fs::write(&bundle, format!("{text}tunnel = \"other\"\n")).expect("write the bundle");
    }

    #[track_caller]
    fn warden(&self, namespace: &str, what: [&str; 2], state: &Path, run: &Path) -> Child {
        let replaced = self.replaced.clone().filter(|_| namespace == "server");
        let programs = replaced.unwrap_or_else(programs);
        let log = self.log(namespace);
        let net = format!("--net=/run/netns/{}", self.namespace(namespace));
        let until = Instant::now() + UIDS;
        let path = std::env::var("PATH").expect("PATH");
        let path =
            self.path.iter().map(|first| format!("{}:", text(first))).chain([path]).collect::<String>();
        loop {
            let mut words = self.under.iter().map(String::as_str).chain(["nsenter"]);
            let mut child = Command::new(words.next().unwrap_or("nsenter"))
                .args(words)
                .env("PATH", &path)
                .arg(&net)
                .arg(programs.join("levee-warden"))
                .args(what)
                .args(["--state".as_ref(), state.as_os_str(), "--run".as_ref(), run.as_os_str()])
                .args(["--programs".as_ref(), programs.as_os_str()])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(fs::OpenOptions::new().create(true).append(true).open(&log).expect("the log"))
                .spawn()
                .expect("start a warden");
            let mut line = String::new();
            let out = child.stdout.take().expect("standard output");
            BufReader::new(out).read_line(&mut line).expect("read from the warden");
            if line.trim() == "ready" {
                return child;
            }
            child.wait().expect("wait for the warden");
            let said = fs::read_to_string(&log).unwrap_or_default();
            let full = said.lines().last().is_some_and(|last| last.contains(NO_UIDS));
            assert!(full && Instant::now() < until, "{namespace} does not start:\n{said}");
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// What the server's or a workstation's processes have logged.
    pub fn log(&self, of: &str) -> PathBuf {
        self.path(&format!("{of}.log"))
    }

    /// The server's warden, to be killed.
    pub fn server_pid(&self) -> u32 {
        self.server.as_ref().expect("a running server").id()
    }

    /// The wardens of the workstations.
    pub fn workstation_pids(&self) -> impl Iterator<Item = u32> {
        self.agents.iter().map(|(_, agent)| agent.id())
    }

    /// Kills the server's warden without warning.
    pub fn kill_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().expect("kill the warden");
            server.wait().expect("reap the warden");
        }
    }

    /// Kills a workstation's warden without warning.
    #[track_caller]
    pub fn kill_workstation(&mut self, workstation: &str) {
        let mut warden = self.take_workstation(workstation);
        warden.kill().expect("kill the warden");
        warden.wait().expect("reap the warden");
    }

    /// Stops a workstation in good order.
    #[track_caller]
    pub fn stop_workstation(&mut self, workstation: &str) {
        terminate(self.take_workstation(workstation));
    }

    fn take_workstation(&mut self, workstation: &str) -> Child {
        let at = self.agents.iter().position(|(name, _)| name == workstation).expect("a running workstation");
        self.agents.remove(at).1
    }

    /// Stops the server in good order.
    #[track_caller]
    pub fn stop_server(&mut self) {
        if let Some(server) = self.server.take() {
            terminate(server);
        }
    }

    /// Runs `levee` as an operator of this host.
    #[track_caller]
    pub fn levee(&self, arguments: &[&str]) -> Done {
        let done = sh(&text(&programs().join("levee")), arguments);
        schema::hold("levee", arguments, &done.out);
        done
    }

    /// `levee COMMAND --run …`, parsed as JSON.
    #[track_caller]
    pub fn status(&self) -> serde_json::Value {
        let out = self.levee(&["status", "--json", "--run", &text(&self.path("run"))]).ok();
        serde_json::from_str(&out).expect("levee status --json prints JSON")
    }

    /// Runs `levee-tpe` at a workstation.
    #[track_caller]
    pub fn tpe(&self, workstation: &str, arguments: &[&str]) -> Done {
        let done: Done = self.tpe_command(workstation, arguments).output().expect("run levee-tpe").into();
        schema::hold("levee-tpe", arguments, &done.out);
        done
    }

    /// `levee-tpe` at a workstation, not started yet.
    pub fn tpe_command(&self, workstation: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(programs().join("levee-tpe"));
        command.args(arguments).stdin(Stdio::null());
        command.env("LEVEE_TPE_SOCKET", self.path(&format!("{workstation}-run")).join("tpe.sock"));
        command
    }

    /// Signs a user on with [`PASSWORD`].
    #[track_caller]
    pub fn login(&self, workstation: &str, user: &str) -> Done {
        self.login_with(workstation, user, PASSWORD)
    }

    /// Signs a user on.
    #[track_caller]
    pub fn login_with(&self, workstation: &str, user: &str, password: &str) -> Done {
        let mut command = self.tpe_command(workstation, &["login", user, "--password-stdin"]);
        typed(&mut command, password)
    }

    /// Opens a session at a label.
    #[track_caller]
    pub fn level(&self, workstation: &str, label: &str) -> Done {
        self.tpe(workstation, &["level", label])
    }

    /// Runs a program in a workstation's session. What it writes is carried out of it when it has ended.
    #[track_caller]
    pub fn run(&self, workstation: &str, argv: &[&str]) -> Done {
        let mut arguments = vec!["run", "--export", "--"];
        arguments.extend(argv);
        self.tpe(workstation, &arguments)
    }

    /// A program in a workstation's compartment, not started yet, as only the workstation's root can start one: with
    /// whatever standard input and output a test gives it.
    #[track_caller]
    pub fn inside(&self, workstation: &str, argv: &[&str]) -> Command {
        let warden =
            self.agents.iter().find(|(name, _)| name == workstation).expect("a running workstation").1.id();
        let children =
            fs::read_to_string(format!("/proc/{warden}/task/{warden}/children")).expect("its children");
        let is_init = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "levee-init")
        };
        let init = children.split_whitespace().find(is_init).expect("a compartment");
        let mut command = Command::new("nsenter");
        command.args(["--target", init, "--all", "--setuid", "1000", "--setgid", "1000"]).args(argv);
        command
    }

    /// Fetches a page in a workstation's session.
    #[track_caller]
    pub fn fetch(&self, workstation: &str, url: &str) -> Done {
        self.run(workstation, &["curl", "--silent", "--show-error", "--fail", "--max-time", "10", url])
    }

    /// Packets that leave a workstation in two seconds in which nobody does anything there.
    #[track_caller]
    pub fn idle(&self, workstation: &str) -> u64 {
        let sent = || {
            let shown = self.outside(workstation, "ip", &["-s", "-j", "link", "show", "outer"]).ok();
            let shown: serde_json::Value = serde_json::from_str(&shown).expect("ip -j prints JSON");
            shown[0]["stats64"]["tx"]["packets"].as_u64().expect("a counter")
        };
        let before = sent();
        std::thread::sleep(Duration::from_secs(2));
        sent() - before
    }

    /// Runs a program of this host in the server's outer namespace.
    #[track_caller]
    pub fn server_sh(&self, program: &str, arguments: &[&str]) -> Done {
        self.outside("server", program, arguments)
    }

    /// Runs a program of this host in a namespace, outside every compartment; a server that finds no uids, as soon as another program's has
    /// ended.
    #[track_caller]
    pub fn outside(&self, of: &str, program: &str, arguments: &[&str]) -> Done {
        let net = format!("--net=/run/netns/{}", self.namespace(of));
        let mut all = vec![net.as_str(), program];
        all.extend(arguments);
        let until = Instant::now() + UIDS;
        loop {
            let done = sh("nsenter", &all);
            if done.status == 0 || !done.err.contains(NO_UIDS) || Instant::now() > until {
                return done;
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for of in std::iter::once("server").chain(self.workstations.iter().map(String::as_str)) {
                let mut log = String::new();
                if fs::File::open(self.log(of)).and_then(|mut f| f.read_to_string(&mut log)).is_ok() {
                    eprintln!("--- log of {of}\n{log}");
                }
                let state = if of == "server" { "state".to_owned() } else { format!("{of}-state") };
                for log in sh("find", &[&text(&self.path(&state).join("logs")), "-name", "?.log"]).out.lines()
                {
                    eprintln!("--- {log}\n{}", fs::read_to_string(log).unwrap_or_default());
                }
            }
        }
        for warden in self.agents.drain(..).map(|(_, agent)| agent).chain(self.server.take()) {
            terminate(warden);
        }
        let own = self.beside.is_none().then_some("server");
        for of in own.into_iter().chain(self.workstations.iter().map(String::as_str)) {
            let _ = Command::new("ip").args(["netns", "delete", &self.namespace(of)]).status();
        }
    }
}

/// Asks a process to end; kills it when it does not.
fn terminate(mut child: Child) {
    let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    let until = Instant::now() + Duration::from_secs(15);
    while Instant::now() < until {
        if let Ok(Some(_)) = child.try_wait() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// A path as an argument.
pub fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// The site, with every user allowed to carry what programs write out of their sessions: that is how tests see it.
fn carrying(site: &str) -> String {
    let lines = site.lines().filter(|line| !line.starts_with("export = ") && !line.starts_with("import = "));
    let line = |line: &str| match line.strip_prefix("clearance") {
        Some(range) => format!("{line}\nexport{range}\n"),
        None => format!("{line}\n"),
    };
    lines.map(line).collect()
}

/// The site with a kernel of its own for every label, where `LEVEE_TEST_FORM=machine` asks for it and the site leaves it open.
fn in_form(site: &str) -> String {
    match std::env::var("LEVEE_TEST_FORM").as_deref() {
        Err(_) => site.to_owned(),
        Ok("machine") => with_own_kernels(site, "UNCLASSIFIED..SECRET//NATO,MED"),
        Ok(other) => panic!("LEVEE_TEST_FORM is {other}: it can be `machine`"),
    }
}

/// The site with a kernel of its own for these labels: the one that scripts/guest has unpacked.
#[track_caller]
#[must_use]
pub fn with_own_kernels(site: &str, range: &str) -> String {
    let root = programs().join("../guest/root");
    let root =
        fs::canonicalize(&root).unwrap_or_else(|e| panic!("{}: {e}: run scripts/guest", root.display()));
    let own = site.replace("own-kernel = []", &format!("own-kernel = [\"{range}\"]"));
    own.replace("kernel-root = \"/\"", &format!("kernel-root = \"{}\"", root.display()))
}

/// The names under `[[user]]` in a site file.
fn users_of(site: &str) -> Vec<String> {
    let mut users = Vec::new();
    let mut inside = false;
    for line in site.lines().map(str::trim) {
        if line.starts_with('[') {
            inside = line == "[[user]]";
        } else if inside && let Some(name) = line.strip_prefix("name").and_then(|rest| rest.split('"').nth(1))
        {
            users.push(name.to_owned());
        }
    }
    users
}
