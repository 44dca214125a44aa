//! A compartment of a running server, with a program of the laboratory's as services in it: under the services' own uid, filter, control
//! group and namespaces. A network keeps it running, and by it the laboratory reaches it: a single-level one from a plain host, or a
//! labelled one, whose packets carry the label, from the compartment of another server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, process};

use crate::netns::{Namespace, inside, tool};
use crate::operate::{Removed, Up, compartment, programs, quiet, text};

const LABEL: &str = "LOW";
/// The network's interface.
pub(crate) const EDGE: &str = "edge0";
/// Of the server on the network, and of who reaches it.
pub(crate) const ENDS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 79, 1, 1), Ipv4Addr::new(10, 79, 1, 9)];

const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 79, 1, 0);

/// A service of the label.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) port: u16,
    /// The program's argument.
    pub(crate) word: String,
    /// Packages of the host that it wants besides.
    pub(crate) software: Vec<String>,
}

/// The tables of a site that has these levels, lowest first, before what runs there; its person and workstation are at the lowest.
pub(crate) fn head(levels: &[&str]) -> String {
    let lowest = levels.first().copied().unwrap_or_default();
    format!(
        "[site]\nname = \"lab\"\n\n[labels]\nlevels = {levels:?}\ncategories = []\nintegrity-levels = []\n\
         integrity-categories = []\n\n[server]\nname = \"server.lab.example\"\naddresses = [\"10.77.0.1\"]\n\
         trusted-path-port = 7443\nike-port = 500\ntunnel-port = 4500\ninner-address = \"10.80.0.1\"\n\
         inner-pool = \"10.80.1.0/24\"\nnames = [\"services.lab.example\"]\nslots = 16\ngrace = \"30s\"\n\n\
         [limits]\nmemory = \"512M\"\nprocesses = 256\ncpu = \"800%\"\nstore = \"32M\"\n\n\
         [[user]]\nname = \"lab\"\nclearance = \"{lowest}\"\n\n\
         [[host]]\nname = \"ws1\"\naccreditation = \"{lowest}\"\n\n",
    )
}

/// The network of a compartment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Of one label; a plain host is at the other end.
    SingleLevel,
    /// Labelled: each packet carries the label. A second server, alike, is at the other end.
    Labelled,
    /// The same devices and programs, with no label in any packet: each end takes the other for a single-level host.
    Bare,
}

fn site(program: &str, services: &[Service], address: Ipv4Addr, link: Link) -> String {
    let mut out = head(&[LABEL]);
    for Service { name, port, word, software } in services {
        out.push_str(&format!(
            "[[service]]\nname = \"{name}\"\nport = {port}\nprotocol = \"tcp\"\nrange = \"{LABEL}\"\nmode = \"direct\"\n\
             command = [\"{program}\", \"{word}\"]\n"
        ));
        if !software.is_empty() {
            out.push_str(&format!("software = {software:?}\n"));
        }
        out.push('\n');
    }
    let names: Vec<&String> = services.iter().map(|s| &s.name).collect();
    let label = if link == Link::SingleLevel {
        format!("label = \"{LABEL}\"")
    } else {
        out.push_str(&format!("[[domain]]\ndoi = 16\nlevels = {{ {LABEL} = 1 }}\n\n"));
        let hosts = format!("\nunlabelled = [{{ address = \"{}/24\", label = \"{LABEL}\" }}]", NETWORK);
        format!("labels = \"{LABEL}\"\ndomain = 16{}", if link == Link::Bare { &hosts } else { "" })
    };
    let network = format!(
        "[[network]]\ninterface = \"{EDGE}\"\n{label}\naddress = \"{address}/24\"\nservices = {names:?}\n"
    );
    out + &network
}

/// Leaves a program at `path`, for everybody to run.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn leave(path: &Path, program: &[u8]) -> io::Result<()> {
    fs::write(path, program)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) up: Up,
    pub(crate) directory: Removed,
}

impl Server {
    /// In a namespace that has the interfaces of its networks already.
    ///
    /// # Errors
    /// The step that failed; what was made until then is removed.
    pub(crate) fn start(part: &str, namespace: &Namespace, site: &str) -> io::Result<Server> {
        let levee = programs()?.join("levee");
        let directory = Removed(std::env::temp_dir().join(format!("levlab{}site{part}", process::id())));
        fs::create_dir(&directory.0)?;
        let path = |name: &str| text(&directory.0.join(name));
        // Where workstations would come from; there are none.
        tool("ip", &["-n", &namespace.name, "addr", "add", "10.77.0.1/32", "dev", "lo"])?;
        fs::write(path("site.toml"), site)?;
        let (file, state, run) = (path("site.toml"), path("state"), path("server"));
        tool(&text(&levee), &["enrol", "all", &file, "--state", &state])?;
        let net = format!("--net={}", namespace.path().display());
        let up = [&net, &text(&levee), "up", &file, "--state", &state, "--run", &run];
        quiet("nsenter", &up, &directory.0.join("log"))?;
        Ok(Server { up: Up { levee, run: directory.0.join("server") }, directory })
    }
}

/// The running server, and who reaches it. Fields drop in order.
#[derive(Debug)]
pub(crate) struct Compartment {
    servers: Vec<Server>,
    /// The network of whoever connects, and the compartment's.
    ends: [PathBuf; 2],
    link: Link,
    _namespaces: [Namespace; 2],
}

impl Compartment {
    /// Brings a server up in namespaces of its own with these services, which run `program`. `part` tells it from another of the same
    /// run.
    ///
    /// # Errors
    /// The step that failed; what was made until then is removed.
    pub(crate) fn start(
        part: &str,
        program: &Path,
        services: &[Service],
        link: Link,
    ) -> io::Result<Compartment> {
        let namespaces = [Namespace::new(&format!("{part}u"))?, Namespace::new(&format!("{part}h"))?];
        let [server, host] = &namespaces;
        server.link(host, ENDS[0], ENDS[1], EDGE)?;
        let site = |address| site(&text(program), services, address, link);
        let mut servers = vec![Server::start(part, server, &site(ENDS[0]))?];
        let net = |s: &Server| -> io::Result<PathBuf> {
            let init = compartment(&s.up.levee, &text(&s.up.run), LABEL)?;
            Ok(PathBuf::from(format!("/proc/{init}/ns/net")))
        };
        let here = net(&servers[0])?;
        let mut from = host.path();
        if link != Link::SingleLevel {
            let other = Server::start(&format!("{part}other"), host, &site(ENDS[1]))?;
            from = net(&other)?;
            // levee lets sessions out to a network, and services not at all; what asks here is neither.
            for Service { port, .. } in services {
                let (net, port) = (format!("--net={}", text(&from)), port.to_string());
                let rule = ["output", "oifname", EDGE, "tcp", "dport", &port, "accept"];
                tool("nsenter", &[&[&net, "nft", "insert", "rule", "inet", "levee"], &rule[..]].concat())?;
            }
            servers.push(other);
        }
        Ok(Compartment { servers, ends: [from, here], link, _namespaces: namespaces })
    }

    /// The network of whoever connects, and the compartment's.
    pub(crate) fn ends(&self) -> [PathBuf; 2] {
        self.ends.clone()
    }

    /// The networks of the link's own interfaces ([`EDGE`]): those of the two ends, or, where packets have labels, of each server's side of the wires
    /// that lead there.
    pub(crate) fn link(&self) -> [PathBuf; 2] {
        match self.servers.as_slice() {
            [here, other] => [other, here].map(|s| s.up.run.join("labelled").join(EDGE)),
            _ => self.ends(),
        }
    }

    /// Whether every packet on the link has its label; else none has.
    pub(crate) fn is_labelled(&self) -> bool {
        self.link == Link::Labelled
    }

    /// Whether each of the two is a compartment's, with levee's packet filter.
    pub(crate) fn is_levee(&self) -> [bool; 2] {
        [self.servers.len() > 1, true]
    }

    /// A connection to a service.
    ///
    /// # Errors
    /// When nobody answers.
    pub(crate) fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let to = SocketAddr::from((ENDS[0], port));
        inside(&self.ends[0], move || TcpStream::connect_timeout(&to, Duration::from_secs(2)))
    }
}
