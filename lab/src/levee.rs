//! levee for the arms that need it: a site of its own in namespaces of the laboratory, run by levee's programs
//! as an operator and a person would run them (`levee enrol`, `levee up`, `levee-tpe login`, `levee-tpe level`).
//!
//! The client is the same process as in every other arm; it only enters another network namespace: through the
//! tunnel, that of its session; over a plain link, that of a host on a single-level network, which is how levee lets
//! a plain link reach a service. The two paths end at two labels, so that the network's packet filter stands in the
//! way of no tunnel. Where another server holds the session, the site has two, of one federation: the person is signed on at the
//! first, and what is measured is the second's (`federation.rs`). The server is started by levee, in its compartment, by its first connection; a bare one borrows
//! the listeners of a service that leaves them alone, so that nothing differs but the compartment around the process.

use crate::client::Target;
use crate::counters::Net;
use crate::experiment::{Drive, Mediation, Path as Way};
use crate::federation::OUTER;
use crate::federation::{FIRST, Member, SECOND};
use crate::netns::{Group, Namespace, inside, pin_congestion, tool, usage};
use crate::operate::{PATIENCE, Removed, Up, text, this_program, wait_for};
use crate::place::Home;
use crate::processes::{below, descendants, name, processes, running, wakes};
use crate::role::{Role, keep_on};
use crate::sample::Tunnel;
use crate::server::{Server, give_pool, serve_as};
use crate::site::{Beside, Signed, USER};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first port of the services.
const PORT: u16 = 12_865;
/// Where the services answer hosts on the single-level network.
const EDGE: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 1);
const EDGE_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 79, 0, 9);
/// Of the session, behind the tunnel.
const LABEL: &str = "LOW";
/// Of the single-level network.
const OTHER: &str = "HIGH";

/// The modes of mediation that can be had here, each with its services' first port.
const MODES: [(Mediation, u16); 9] = [
    (Mediation::None, PORT),
    (Mediation::Direct, PORT + 10),
    (Mediation::Inetd, PORT + 20),
    (Mediation::Proxy, PORT + 30),
    (Mediation::SpawnCopy, PORT + 40),
    (Mediation::Handoff, PORT + 50),
    (Mediation::Relay, PORT + 60),
    (Mediation::HandoffWritten, PORT + 70),
    (Mediation::RelayWritten, PORT + 80),
];

/// Processes of the services in a mode that stay from one connection to the next.
fn standing(mode: Mediation) -> usize {
    match mode {
        Mediation::Handoff | Mediation::HandoffWritten => 0,
        _ if mode.is_by_connection() => 2,
        _ => 3,
    }
}

/// A server's site file, with the services of the modes that are wanted, each for connections, for connections that are closed at
/// once, and (where the mode knows datagrams) for datagrams. One with a single-level network offers them there, too.
fn site(
    program: &str,
    modes: &[(Mediation, u16)],
    tables: &str,
    server: &Member,
    has_network: bool,
) -> String {
    let mut services = String::new();
    let mut names = Vec::new();
    for &(mode, port) in modes {
        let words = |close: bool, what: &str| -> Vec<String> {
            let mut w: Vec<&str> = match mode {
                Mediation::None => return vec!["serve".into(), "--idle".into(), what.into()],
                Mediation::Inetd | Mediation::Proxy | Mediation::SpawnCopy => {
                    vec!["mediate", "--scheme", mode.name()]
                }
                Mediation::Handoff | Mediation::HandoffWritten => vec!["serve", "--inetd"],
                _ => vec!["serve", "--passed"],
            };
            w.extend(close.then_some("--close"));
            w.into_iter().map(str::to_owned).collect()
        };
        let all = [("all", port, "tcp"), ("close", port + 1, "tcp"), ("datagrams", port, "udp")];
        for (what, port, protocol) in all {
            if protocol == "udp" && mode.is_by_connection() {
                continue;
            }
            let name = format!("{}-{what}", mode.name());
            let mut command = vec![program.to_owned()];
            command.extend(words(what == "close", what));
            let levees = match mode {
                Mediation::Handoff => "mode = \"handoff\"",
                Mediation::HandoffWritten => "mode = \"handoff\"\naudit = \"written\"",
                Mediation::Relay => "mode = \"relay\"",
                Mediation::RelayWritten => "mode = \"relay\"\naudit = \"written\"",
                _ => "mode = \"direct\"",
            };
            services.push_str(&format!(
                "[[service]]\nname = \"{name}\"\nport = {port}\nprotocol = \"{protocol}\"\nrange = \"LOW..HIGH\"\n\
                 {levees}\ncommand = {command:?}\n\n"
            ));
            names.push(name);
        }
    }
    let network = format!(
        "[[network]]\ninterface = \"edge\"\nlabel = \"{OTHER}\"\naddress = \"{EDGE}/24\"\nservices = {names:?}\n\n"
    );
    let network = if has_network { network } else { String::new() };
    format!(
        "[site]\nname = \"lab\"\n\n[labels]\nlevels = [\"{LABEL}\", \"{OTHER}\"]\ncategories = []\nintegrity-levels = []\n\
         integrity-categories = []\n\n{}\
         [limits]\nmemory = \"512M\"\nprocesses = 256\ncpu = \"800%\"\nstore = \"16M\"\nchanges = 100000\nconnections = 100000\n\n\
         {tables}[[user]]\nname = \"{USER}\"\nclearance = \"LOW..HIGH\"\n\n\
         [[host]]\nname = \"ws1\"\naccreditation = \"LOW..HIGH\"\n\n{network}{services}",
        server.table()
    )
}

/// How a site differs from the plain one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Variant {
    /// Tells it from another of the same run.
    pub part: &'static str,
    /// More tables of its site file.
    pub tables: &'static str,
    /// What its tunnels must have, once the person is signed on.
    pub posture: Option<&'static str>,
    /// Another program in the place of levee-vault.
    pub vault: Option<&'static str>,
}

/// One label's compartment, and how clients come to it.
#[derive(Debug)]
struct Compartment {
    /// The client's network namespace.
    client: PathBuf,
    /// Where the services are.
    server: Ipv4Addr,
    /// The first process of the compartment, for its network namespace and its processor time.
    init: u32,
    /// The service processes.
    services: Vec<u32>,
    /// The bare server in the compartment's network, where an arm wants one.
    bare: Option<Server>,
}

/// A running site with a person signed on, and what the arms need of it. Fields drop in order.
#[derive(Debug)]
pub struct Levee {
    places: BTreeMap<bool, Compartment>,
    /// Of a service that answers the session.
    first_port: Option<u16>,
    site: Signed,
    /// The host on the single-level network.
    host: Namespace,
    _program: Option<Removed>,
    pinned: std::cell::Cell<Option<usize>>,
    /// Processes on both sides that are in no compartment of the server: vaults, warden and the others.
    between: Vec<u32>,
    /// Addresses of the host on the single-level network.
    pub(crate) sources: Vec<Ipv4Addr>,
}

/// Processor seconds of all threads of a process (`/proc/PID/task/*/schedstat`).
pub(crate) fn seconds(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|t| {
            let s = fs::read_to_string(t.path().join("schedstat")).ok()?;
            s.split_whitespace().next()?.parse::<f64>().ok()
        })
        .sum::<f64>()
        / 1e9
}

/// Opens a connection, and a datagram where there is a service for them, in a network namespace: whatever listens
/// there is started by it. A bare server's datagrams are not waited for, since nobody answers them yet.
fn wake(ns: &Path, server: Ipv4Addr, modes: &[(Mediation, u16)], answered: bool) -> io::Result<()> {
    let ns = fs::File::open(ns)?;
    let modes = modes.to_vec();
    // a thread of its own enters the namespace, and ends there
    std::thread::spawn(move || -> io::Result<()> {
        rustix::thread::move_into_link_name_space(
            std::os::fd::AsFd::as_fd(&ns),
            Some(rustix::thread::LinkNameSpaceType::Network),
        )?;
        for (mode, port) in modes {
            let at = |port: u16| SocketAddr::from((server, port));
            let refused =
                |e: io::Error| io::Error::new(e.kind(), format!("{} at {server}: {e}", mode.name()));
            TcpStream::connect_timeout(&at(port), PATIENCE).map_err(refused)?;
            TcpStream::connect_timeout(&at(port + 1), PATIENCE).map_err(refused)?;
            if mode.is_by_connection() {
                continue;
            }
            let u = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            u.connect(at(port))?;
            u.set_read_timeout(Some(Duration::from_millis(500)))?;
            let mut heard = false;
            for _ in 0..20 {
                u.send(b"e")?;
                heard = u.recv(&mut [0; 8]).is_ok();
                if heard || (mode == Mediation::None && !answered) {
                    break;
                }
            }
            if answered && !heard {
                return Err(io::Error::other(format!("{}: datagrams are not answered", mode.name())));
            }
        }
        Ok(())
    })
    .join()
    .map_err(|_| io::Error::other("the first connections failed"))?
}

impl Levee {
    /// Brings the site up with the services that the arms need, by levee's `programs` if not those beside this one, and signs on. With arms whose session another server holds
    /// (all of them are, or none) it has two servers.
    ///
    /// # Errors
    /// The step that failed, in words; what was made until then is removed.
    pub fn start(
        drives: &[Drive],
        congestion: &str,
        group: Option<&Group>,
        variant: Variant,
        programs: Option<&Path>,
    ) -> io::Result<Levee> {
        let modes: Vec<(Mediation, u16)> =
            MODES.into_iter().filter(|(m, _)| drives.iter().any(|d| d.mediation == *m)).collect();
        let (program, copy) = this_program()?;
        let Variant { part, posture, .. } = variant;
        let is_elsewhere = drives.iter().any(|d| d.session == Home::Elsewhere);
        let (serving, host) = (Namespace::new(&format!("{part}u"))?, Namespace::new(&format!("{part}n"))?);
        serving.link(&host, EDGE, EDGE_CLIENT, "edge")?;
        let sources = give_pool(&host, &serving, EDGE_CLIENT, "edge")?;
        let file = |tables: &str, server: &Member, has_network: bool| {
            site(&text(&program), &modes, &format!("{}{tables}", variant.tables), server, has_network)
        };
        let signed = if is_elsewhere {
            let first = (Namespace::new(&format!("{part}f"))?, &*file(&SECOND.as_peer(), &FIRST, false));
            let second = (serving, &*file(&FIRST.as_peer(), &SECOND, true));
            let beside = Beside { second: Some(second), vault: variant.vault, programs, ..Beside::default() };
            Signed::bring_up(part, first, LABEL, beside)?
        } else {
            let beside = Beside { vault: variant.vault, programs, ..Beside::default() };
            Signed::bring_up(part, (serving, &file("", &FIRST, true)), LABEL, beside)?
        };
        let mut l = Levee {
            places: BTreeMap::new(),
            first_port: None,
            site: signed,
            host,
            _program: copy,
            pinned: std::cell::Cell::new(None),
            between: Vec::new(),
            sources,
        };
        if let Some(posture) = posture {
            let run = text(&l.site.server.run);
            let set = ["posture", "set", posture, "--reason", "an arm of a study", "--run", &run];
            tool(&text(&l.site.server.levee), &set)?;
        }
        l.stand(drives, &modes, (&program, congestion, group))?;
        let all = processes();
        let inside: Vec<u32> = l.places.values().flat_map(|p| below(&all, vec![p.init])).collect();
        l.between = descendants(&all, &l.mark());
        l.between.retain(|p| !inside.contains(p));
        Ok(l)
    }

    /// Both labels, as far as arms need them.
    fn stand(
        &mut self,
        drives: &[Drive],
        modes: &[(Mediation, u16)],
        what: (&Path, &str, Option<&Group>),
    ) -> io::Result<()> {
        for (tunnel, label) in [(true, LABEL), (false, OTHER)] {
            let used = |m: &(Mediation, u16)| {
                drives.iter().any(|d| d.mediation == m.0 && (d.path == Way::Tunnel) == tunnel)
            };
            let modes: Vec<_> = modes.iter().copied().filter(used).collect();
            let Some((_, port)) = modes.first().copied() else { continue };
            if tunnel {
                self.first_port = Some(port);
                self.reach(port)?;
            }
            let init = self.serving().0.compartment(label)?;
            let at = if tunnel { (self.site.client(), self.inner()) } else { (self.host.path(), EDGE) };
            let place = self.stand_at(at, init, &modes, what)?;
            self.places.insert(tunnel, place);
        }
        Ok(())
    }

    /// Whether an arm uses the session.
    pub fn has_session(&self) -> bool {
        self.first_port.is_some()
    }

    /// Ends the session, which the server whose services are measured serves, and signs on again; seconds until the end was acknowledged.
    /// The places of the tunnel's arms are gone with it.
    ///
    /// # Errors
    /// The step that failed; that the server still serves what is acknowledged to be over, for one.
    pub fn end(&mut self) -> io::Result<f64> {
        drop(self.places.remove(&true));
        self.reach(self.first_port.ok_or_else(|| io::Error::other("no service answers a session"))?)?;
        let used = self.in_force()?;
        if used.0 != 1 || used.1 == 0 {
            return Err(io::Error::other(format!("the server does not serve the one session: {used:?}")));
        }
        let seconds = self.site.sign_off()?;
        let left = self.in_force()?;
        if left != (0, 0) {
            return Err(io::Error::other(format!("the end is acknowledged, and not in force: {left:?}")));
        }
        self.site.sign_on_again(LABEL)?;
        Ok(seconds)
    }

    /// Sessions at the server whose services are measured, and security associations of its vault.
    fn in_force(&self) -> io::Result<(usize, usize)> {
        let said = self.serving().0.status()?;
        let count = |at: &str| said.pointer(at)?.as_array().map(Vec::len);
        let sessions = count("/sessions");
        let sessions = sessions.ok_or_else(|| io::Error::other("levee status shows no sessions"))?;
        Ok((sessions, count(&format!("/vaults/{LABEL}/sas")).unwrap_or(0)))
    }

    /// The server whose services are measured, and its namespace.
    fn serving(&self) -> (&Up, &Namespace) {
        let [_, first] = &self.site.namespaces;
        let second = self.site.second.as_ref().map(|second| (&second.server, &second.namespace));
        second.unwrap_or((&self.site.server, first))
    }

    /// Where its services answer the session.
    fn inner(&self) -> Ipv4Addr {
        if self.site.second.is_some() { SECOND.inner } else { FIRST.inner }
    }

    /// Part of the command line of each process of the site's, and of no other's of the run.
    fn mark(&self) -> String {
        format!("{}/", text(&self.site.directory.0))
    }

    /// Waits until a service answers the session. With a second server, the first packet has the workstation agree on keys with it, and
    /// it begins at the label.
    fn reach(&self, port: u16) -> io::Result<()> {
        let (client, to) = (self.site.client(), SocketAddr::from((self.inner(), port)));
        let connect = move || TcpStream::connect_timeout(&to, Duration::from_secs(2));
        wait_for("a service to answer the session", || inside(&client, connect).ok()).map(drop)
    }

    /// What is compared at one label, whose compartment is `init`'s: the client's network and the server's address, and the services
    /// that stand there.
    fn stand_at(
        &self,
        (client, server): (PathBuf, Ipv4Addr),
        init: u32,
        modes: &[(Mediation, u16)],
        (program, congestion, group): (&Path, &str, Option<&Group>),
    ) -> io::Result<Compartment> {
        let inside = PathBuf::from(format!("/proc/{init}/ns/net"));
        for ns in [&client, &inside] {
            pin_congestion(ns, congestion)?;
        }
        // Those of both labels; a relayed daemon's own hop is in its mediator's network.
        let mediators: Vec<u32> = descendants(&processes(), &self.mark())
            .into_iter()
            .filter(|p| name(*p).as_deref() == Some("levee-mediator"))
            .collect();
        for pid in &mediators {
            pin_congestion(Path::new(&format!("/proc/{pid}/ns/net")), congestion)?;
        }
        wake(&client, server, modes, false)?;
        let expected: usize = modes.iter().map(|m| standing(m.0)).sum();
        let first = |w: &[String]| w.iter().any(|w| w == "--idle" || w == "--passed" || w == "--scheme");
        let services = wait_for("the services in the compartment", || {
            let all: Vec<_> = running(program, init).into_iter().filter(|(_, w)| first(w)).collect();
            (all.len() >= expected).then_some(all)
        })?;
        let idle = |what: &str| {
            services.iter().find(|(_, w)| w.windows(2).any(|w| w == ["--idle", what])).map(|(p, _)| *p)
        };
        let bare = match (idle("all"), idle("close"), idle("datagrams")) {
            (Some(a), Some(c), Some(d)) => {
                let role = Role {
                    netns: Some(inside),
                    cgroup: group.map(Group::path),
                    cpu: None,
                    with_parent: true,
                };
                let from = [a, c, d].map(|p| p.to_string());
                Some(serve_as(&role, &["--borrow", &from[0], &from[1], &from[2]])?)
            }
            _ => None,
        };
        wake(&client, server, modes, true)?;
        // those that stay, and the daemon behind a proxy; not those of one connection
        let stays = |w: &[String]| first(w) || w.iter().any(|w| w == "--listen");
        let services = running(program, init).into_iter().filter(|(_, w)| stays(w)).map(|(p, _)| p);
        let mut services: Vec<u32> = services.collect();
        // What the services' processes have between them and the client in levee's own modes, and who starts them.
        services.extend(mediators);
        services.push(init);
        Ok(Compartment { client, server, init, services, bare })
    }

    fn at(&self, drive: Drive) -> io::Result<&Compartment> {
        let place = self.places.get(&(drive.path == Way::Tunnel));
        place.ok_or_else(|| io::Error::other("levee was not started for this path"))
    }

    /// Where an arm's client runs, what it talks to, and a process in the server's network namespace.
    ///
    /// # Errors
    /// When levee was not started for such an arm.
    pub fn place(&self, drive: Drive) -> io::Result<(PathBuf, Target, u32)> {
        let p = self.at(drive)?;
        let mode = MODES.iter().find(|(m, _)| *m == drive.mediation);
        let (_, port) = *mode.ok_or_else(|| io::Error::other("no service in this mode"))?;
        let at = |port: u16| SocketAddr::from((p.server, port));
        Ok((p.client.clone(), Target { all: at(port), close: at(port + 1) }, p.init))
    }

    /// What moved in the tunnel so far: by the count of the server's vault, and by the kernel's outside of the vaults.
    ///
    /// # Errors
    /// When levee does not say, or a namespace cannot be read.
    pub fn tunnel(&self) -> io::Result<Tunnel> {
        let vault = self.vault()?;
        let mut dropped = 0;
        for namespace in self.outside() {
            dropped += Net::within(&namespace.path())?.since(&Net::default()).dropped();
        }
        Ok(Tunnel { dropped, ..of_vault(&vault)? })
    }

    /// What `levee status` says of the session's vault.
    fn vault(&self) -> io::Result<serde_json::Value> {
        let mut said = self.serving().0.status()?;
        let vault = said.pointer_mut(&format!("/vaults/{LABEL}")).map(serde_json::Value::take);
        vault.ok_or_else(|| io::Error::other(format!("levee status shows no vault {LABEL}")))
    }

    /// What `levee status --cost` says that the session's label has used so far, and the server in all.
    ///
    /// # Errors
    /// When levee does not say.
    pub fn ledger(&self) -> io::Result<Ledger> {
        let Up { levee, run } = self.serving().0;
        let said = tool(&text(levee), &["status", "--cost", "--json", "--run", &text(run)])?;
        Ledger::read(&serde_json::from_str(&said)?)
    }

    /// How often a processor has been given to levee's processes at both ends so far, the first processes of compartments with them.
    pub fn wakes(&self) -> u64 {
        let inits = self.places.values().map(|place| &place.init);
        self.between.iter().chain(inits).map(|pid| wakes(*pid)).sum()
    }

    /// Octets that have passed the server's end of the tunnel's link, both ways, with their Ethernet headers.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn wire(&self) -> io::Result<f64> {
        let [_, server] = self.outside();
        let said = inside(&server.path(), || fs::read_to_string("/proc/thread-self/net/dev"))?;
        let line = said.lines().find_map(|line| line.trim().strip_prefix(OUTER)?.strip_prefix(':'));
        let numbers: Vec<f64> =
            line.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let both = numbers.first().zip(numbers.get(8)).map(|(received, sent)| received + sent);
        both.ok_or_else(|| io::Error::other("the tunnel's link has no counters"))
    }

    /// Has both ends of the tunnel's link take packets of any length, or each by itself, so that the octets counted are those of the wire.
    ///
    /// # Errors
    /// When `ethtool` refuses.
    pub fn segment(&self, each: bool) -> io::Result<()> {
        let word = if each { "off" } else { "on" };
        for space in self.outside() {
            let net = format!("--net={}", space.path().display());
            tool("nsenter", &[&net, "ethtool", "-K", OUTER, "tx-udp-segmentation", word])?;
        }
        Ok(())
    }

    /// Octets of inner packets that the server's vault has passed so far, both ways.
    ///
    /// # Errors
    /// When levee does not say.
    pub fn carried(&self) -> io::Result<f64> {
        let vault = self.vault()?;
        let count =
            |name: &str| vault.pointer(&format!("/counters/{name}")).and_then(serde_json::Value::as_f64);
        let both = count("bytes-in").zip(count("bytes-out")).map(|(a, b)| a + b);
        both.ok_or_else(|| io::Error::other("levee status does not say what a vault passed"))
    }

    /// The namespaces of the paths through levee, each with what it is.
    pub fn namespaces(&self) -> Vec<(String, PathBuf)> {
        let [workstation, server] = self.outside();
        let outer =
            [("tunnel's outer end, workstation", workstation), ("tunnel's outer end, server", server)];
        let mut out: Vec<_> = outer.into_iter().map(|(what, ns)| (what.to_owned(), ns.path())).collect();
        out.push(("host on a single-level network".into(), self.host.path()));
        for (tunnel, place) in &self.places {
            let label = if *tunnel { LABEL } else { OTHER };
            out.push((format!("compartment {label}"), PathBuf::from(format!("/proc/{}/ns/net", place.init))));
            if *tunnel {
                out.push(("session".into(), place.client.clone()));
            }
        }
        if self.site.second.is_some() {
            out.iter_mut().for_each(|(what, _)| *what = format!("federation, {what}"));
        }
        out
    }

    /// The namespaces of the tunnel's outer ends: the workstation's, and that of the server whose services are measured.
    fn outside(&self) -> [&Namespace; 2] {
        let [workstation, _] = &self.site.namespaces;
        [workstation, self.serving().1]
    }

    /// Keeps the services on one processor, as every other server is. A process that ended since levee started was one of
    /// those that serve a single connection, and is left out.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn keep_services_on(&self, cpu: usize) -> io::Result<()> {
        if self.pinned.get() == Some(cpu) {
            return Ok(()); // what they start since then stays there too
        }
        let bare = self.places.values().filter_map(|p| p.bare.as_ref()).map(Server::id);
        keep_on(self.places.values().flat_map(|p| p.services.iter().copied()).chain(bare), cpu)?;
        self.pinned.set(Some(cpu));
        Ok(())
    }

    /// Processor seconds so far of (compartments of the server, everything else of levee on both sides).
    pub fn seconds(&self) -> (f64, f64) {
        let services = self.places.values().filter_map(|p| group_seconds(p.init)).sum();
        (services, self.between.iter().map(|p| seconds(*p)).sum())
    }
}

/// What the session's label has used of the server, by `levee status --cost`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ledger {
    /// Processor seconds of all processes of the server.
    pub processor: f64,
    /// Those of the label's vault.
    pub vault: f64,
    /// Packets within the tunnel, both ways.
    pub packets: f64,
    /// Their octets.
    pub octets: f64,
}

impl Ledger {
    fn read(said: &serde_json::Value) -> io::Result<Ledger> {
        let wrong = || io::Error::other("levee status --cost does not say what it should");
        let number = |of: &serde_json::Value, name: &str| of.get(name)?.as_f64();
        let time = |of: &serde_json::Value| Some((number(of, "user_ms")? + number(of, "system_ms")?) / 1e3);
        let read = || {
            let vault = said.get("roles")?.as_array()?.iter().find(|row| {
                let is = |name: &str, word: &str| row.get(name).and_then(|v| v.as_str()) == Some(word);
                is("role", "vault") && is("label", LABEL)
            })?;
            let label = said.get("labels")?.get(LABEL)?;
            Some(Ledger {
                processor: time(said.get("processor")?)?,
                vault: time(vault)?,
                packets: number(label, "packets_in")? + number(label, "packets_out")?,
                octets: number(label, "octets_in")? + number(label, "octets_out")?,
            })
        };
        read().ok_or_else(wrong)
    }

    /// What was used since.
    pub fn since(self, before: Ledger) -> Ledger {
        Ledger {
            processor: self.processor - before.processor,
            vault: self.vault - before.vault,
            packets: self.packets - before.packets,
            octets: self.octets - before.octets,
        }
    }
}

/// A vault's counts of what passed, in what `levee status --json` says of it; all others are of drops, by reason.
const PASSED: [&str; 4] = ["packets-in", "bytes-in", "packets-out", "bytes-out"];

fn of_vault(vault: &serde_json::Value) -> io::Result<Tunnel> {
    let wrong = || io::Error::other("levee status does not say of a vault what it should");
    let counters = vault.get("counters").and_then(serde_json::Value::as_object).ok_or_else(wrong)?;
    let number = |v: &serde_json::Value| v.as_i64().ok_or_else(wrong);
    let mut out =
        Tunnel { opened: number(counters.get("packets-in").ok_or_else(wrong)?)?, ..Tunnel::default() };
    for (_, count) in counters.iter().filter(|(name, _)| !PASSED.contains(&name.as_str())) {
        out.refused += number(count)?;
    }
    Ok(out)
}

/// Processor seconds of all that ever ran in a process's control group (v2): a process that has ended counts too.
fn group_seconds(pid: u32) -> Option<f64> {
    let root = Group::root()?;
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let path = text.lines().find_map(|l| l.strip_prefix("0::/"))?;
    usage(&fs::read_to_string(root.join(path).join("cpu.stat")).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_ledger_the_sessions_label_is_read_and_its_vault() {
        let said = serde_json::json!({
            "processor": {"user_ms": 5_000.0, "system_ms": 1_000.0},
            "roles": [
                {"role": "vault", "label": "HIGH", "user_ms": 0.009, "system_ms": 0.009},
                {"role": "services", "label": "LOW", "user_ms": 0.008, "system_ms": 0.008},
                {"role": "vault", "label": "LOW", "user_ms": 300.0, "system_ms": 200.0},
            ],
            "labels": {"LOW": {"packets_in": 1, "packets_out": 2, "octets_in": 30, "octets_out": 40}},
        });
        let ledger = Ledger::read(&said).expect("a ledger");
        assert_eq!(ledger, Ledger { processor: 6.0, vault: 0.5, packets: 3.0, octets: 70.0 });
        assert_eq!(ledger.since(ledger), Ledger::default());
        assert!(Ledger::read(&serde_json::json!({"roles": []})).is_err());
    }

    #[test]
    fn what_a_vault_passed_on_is_told_from_what_it_dropped() {
        let said = serde_json::json!({"counters": {
            "packets-in": 12, "bytes-in": 9_000, "packets-out": 4, "bytes-out": 70, "replay": 2, "not-taken": 3,
        }});
        let t = of_vault(&said).expect("counts");
        assert_eq!(t, Tunnel { opened: 12, refused: 5, dropped: 0 });
        for wrong in
            [serde_json::json!({"counters": {}}), serde_json::json!({"counters": {"packets-in": "12"}})]
        {
            assert!(of_vault(&wrong).is_err(), "{wrong}");
        }
    }
}
