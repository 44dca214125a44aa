//! The stand: namespaces, links and servers that the arms of a run need, made once and removed at its end.

use crate::client::Target;
use crate::counters::Net;
use crate::design::Layout;
use crate::experiment::{Arm, Drive, Path};
use crate::host::processors;
use crate::levee::{Levee, Variant};
use crate::netns::{Group, Namespace, pin_congestion};
use crate::place::{Home, Place, Site};
use crate::role::{Role, keep_on};
use crate::sample::Tunnel;
use crate::server::{Server, give_pool, serve_as, usable};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path as FilePath, PathBuf};

/// First port of a server; each layout has two of its own.
const PORT: u16 = 12_865;
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 213, 1, 1);
const HERE: Ipv4Addr = Ipv4Addr::new(10, 213, 1, 2);
const CLIENT2: Ipv4Addr = Ipv4Addr::new(10, 213, 2, 1);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 213, 2, 2);

/// How many addresses a client over a plain link takes one after the other.
pub fn sources_over_a_link() -> usize {
    usable(CLIENT).count()
}

/// Ports that a connection may come from before the kernel takes one again: those of one parity of the default range, 32,768 to 60,999
/// (ip-sysctl, ip_local_port_range), which `connect` goes through first.
pub const PORTS: usize = 28_232 / 2;

/// Processors of (client, server), or why not.
fn processors_of(layout: Layout) -> Result<(usize, usize), String> {
    match layout {
        Layout::Apart if processors() < 2 => Err("client and server apart need two processors".into()),
        Layout::Apart => Ok((0, 1)),
        Layout::Together => Ok((0, 0)),
    }
}

fn target(layout: Layout, server: Ipv4Addr) -> Target {
    let port = match layout {
        Layout::Apart => PORT,
        Layout::Together => PORT + 2,
    };
    Target { all: SocketAddr::from((server, port)), close: SocketAddr::from((server, port + 1)) }
}

/// The site of levee's that an arm needs.
fn site_of(drive: Drive) -> Site {
    (drive.session, drive.before)
}

/// Everything that stands during a run. Fields drop in order: servers, then groups, then namespaces.
#[derive(Debug)]
pub struct Stand {
    levees: BTreeMap<Site, Levee>,
    /// Arms that could not be built here, and why.
    pub absent: Vec<(String, String)>,
    tools: Vec<Server>,
    /// Of the client for (here, elsewhere).
    sources: [Vec<Ipv4Addr>; 2],
    servers: BTreeMap<(String, Layout), Server>,
    /// Processor time of clients.
    pub client_group: Option<Group>,
    /// Processor time of servers.
    pub server_group: Option<Group>,
    client: Namespace,
    here: Namespace,
    elsewhere: Namespace,
}

fn start(role: &Role, target: Target, congestion: &str) -> io::Result<Server> {
    let (all, close) = (target.all.to_string(), target.close.to_string());
    serve_as(role, &["--listen", &all, "--close", &close, "--congestion", congestion])
}

impl Stand {
    /// Builds what the arms need.
    ///
    /// # Errors
    /// Which step failed; what was made until then is removed.
    pub fn build(
        arms: &[&Arm],
        layouts: &[Layout],
        congestion: &str,
        before: Option<&FilePath>,
    ) -> io::Result<Stand> {
        let client = Namespace::new("c")?;
        let here = Namespace::new("s")?;
        let elsewhere = Namespace::new("t")?;
        client.link(&here, CLIENT, HERE, "eth0")?;
        client.link(&elsewhere, CLIENT2, ELSEWHERE, "eth1")?;
        let sources =
            [give_pool(&client, &here, CLIENT, "eth0")?, give_pool(&client, &elsewhere, CLIENT2, "eth1")?];
        for ns in [&client, &here, &elsewhere] {
            pin_congestion(&ns.path(), congestion)?;
        }
        let mut stand = Stand {
            levees: BTreeMap::new(),
            absent: Vec::new(),
            tools: Vec::new(),
            sources,
            servers: BTreeMap::new(),
            client_group: Group::new("c")?,
            server_group: Group::new("s")?,
            client,
            here,
            elsewhere,
        };
        stand.raise(arms, congestion, before);
        for arm in arms.iter().filter(|a| !a.drive.needs_levee()) {
            for &layout in layouts {
                let (_, cpu) = processors_of(layout).map_err(io::Error::other)?;
                let (ns, addr) = stand.server_of(arm.drive);
                let key = (ns.name.clone(), layout);
                if stand.servers.contains_key(&key) {
                    continue;
                }
                let role = Role {
                    netns: Some(ns.path()),
                    cgroup: stand.server_group.as_ref().map(Group::path),
                    cpu: Some(cpu),
                    with_parent: true,
                };
                let server = start(&role, target(layout, addr), congestion)?;
                stand.servers.insert(key, server);
            }
        }
        for arm in arms {
            let Some(tool) = arm.tool else { continue };
            if let Some(why) = tool.absent() {
                stand.absent.push((arm.name.clone(), why));
            } else {
                let role = Role {
                    netns: Some(stand.here.path()),
                    cgroup: stand.server_group.as_ref().map(Group::path),
                    cpu: None, // as the layout of each trial says
                    with_parent: true,
                };
                stand.tools.extend(tool.serve(&role)?.map(Server::of));
            }
        }
        Ok(stand)
    }

    /// Brings up levee's sites that arms need. Where one does not come up, its arms are absent.
    fn raise(&mut self, arms: &[&Arm], congestion: &str, before: Option<&FilePath>) {
        let sites = [
            ((Home::Here, false), ""),
            ((Home::Elsewhere, false), "f"),
            ((Home::Here, true), "b"),
            ((Home::Elsewhere, true), "bf"),
        ];
        for (site, part) in sites {
            let wanting = || arms.iter().filter(|a| a.drive.needs_levee() && site_of(a.drive) == site);
            let drives: Vec<Drive> = wanting().map(|a| a.drive).collect();
            if drives.is_empty() {
                continue;
            }
            let variant = Variant { part, ..Variant::default() };
            let programs = before.filter(|_| site.1);
            match Levee::start(&drives, congestion, self.server_group.as_ref(), variant, programs) {
                Ok(l) => drop(self.levees.insert(site, l)),
                Err(e) => {
                    let why = format!("levee did not come up here: {e}");
                    self.absent.extend(wanting().map(|a| (a.name.clone(), why.clone())));
                }
            }
        }
    }

    fn server_of(&self, drive: Drive) -> (&Namespace, Ipv4Addr) {
        match drive.session {
            Home::Here => (&self.here, HERE),
            // On a bare link the paper's F is a second machine that serves; the session is nobody's.
            Home::Elsewhere => (&self.elsewhere, ELSEWHERE),
        }
    }

    /// Where an arm runs.
    ///
    /// # Errors
    /// When it was not built.
    pub fn place(&self, arm: &Arm, layout: Layout) -> io::Result<Place> {
        let (client_cpu, server_cpu) = processors_of(layout).map_err(io::Error::other)?;
        let role = |netns: PathBuf| Role {
            netns: Some(netns),
            cgroup: self.client_group.as_ref().map(Group::path),
            cpu: Some(client_cpu),
            with_parent: true,
        };
        if arm.drive.needs_levee() {
            let site = site_of(arm.drive);
            let l = self.levees.get(&site);
            let l = l.ok_or_else(|| io::Error::other("levee is not up"))?;
            l.keep_services_on(server_cpu)?;
            let (netns, target, server) = l.place(arm.drive)?;
            let tunnel = arm.drive.path == Path::Tunnel;
            // a session has the one address that levee gives it, and its selectors let no other pass
            let sources = if tunnel { Vec::new() } else { l.sources.clone() };
            return Ok(Place { role: role(netns), target, sources, server, tunnel, levee: Some(site) });
        }
        if arm.tool.is_some() {
            keep_on(self.tools.iter().map(Server::id), server_cpu)?;
        }
        let (ns, addr) = self.server_of(arm.drive);
        let server = self
            .servers
            .get(&(ns.name.clone(), layout))
            .ok_or_else(|| io::Error::other(format!("no server for {}", arm.name)))?;
        Ok(Place {
            role: role(self.client.path()),
            target: target(layout, addr),
            sources: match (arm.drive.session, &self.sources) {
                (Home::Here, [here, _]) => here.clone(),
                (Home::Elsewhere, [_, elsewhere]) => elsewhere.clone(),
            },
            server: server.id(),
            tunnel: false,
            levee: None,
        })
    }

    /// Processor seconds so far of (levee's services, the rest of levee) where a trial goes; nothing where levee takes no part.
    pub fn levee_seconds(&self, place: &Place) -> (f64, f64) {
        self.levee_of(place).map_or((0.0, 0.0), Levee::seconds)
    }

    /// What moved in the tunnel so far where a trial goes; nothing where there is none, or levee does not say.
    pub fn tunnel(&self, place: &Place) -> Option<Tunnel> {
        self.levee_of(place)?.tunnel().ok()
    }

    /// levee's sites that stand, of the present programs and by who holds the session, where a session is used.
    pub fn sites(&self) -> Vec<Home> {
        let used = self.levees.iter().filter(|((_, before), levee)| !before && levee.has_session());
        used.map(|((home, _), _)| *home).collect()
    }

    /// Has the session of a site end ([`Levee::end`]); seconds until that was acknowledged.
    ///
    /// # Errors
    /// What went wrong.
    pub fn end(&mut self, site: Home) -> io::Result<f64> {
        let levee = self.levees.get_mut(&(site, false));
        levee.ok_or_else(|| io::Error::other("levee is not up"))?.end()
    }

    fn levee_of(&self, place: &Place) -> Option<&Levee> {
        self.levees.get(&place.levee?)
    }

    /// The namespaces whose links `env.json` describes, each with what it is.
    pub fn namespaces(&self) -> Vec<(String, PathBuf)> {
        let link = [("client", &self.client), ("server", &self.here), ("second server", &self.elsewhere)];
        let mut all: Vec<_> = link.into_iter().map(|(what, ns)| (what.to_owned(), ns.path())).collect();
        all.extend(self.levees.values().flat_map(Levee::namespaces));
        all
    }
}

/// Counters of a server's namespace, where they can be read.
pub fn counters(server: u32) -> Option<Net> {
    Net::read(&server.to_string()).ok()
}
