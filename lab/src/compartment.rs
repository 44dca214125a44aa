//! Compartments of a running server, one a label, with a program of the laboratory's as services in each: under the services' own
//! uid, filter, control group and namespaces. Each label has a single-level network, which keeps its compartment running and
//! by which the laboratory reaches it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, process, thread};

use crate::netns::{Namespace, tool};
use crate::site::{Removed, Up, programs, quiet, text};

/// A service of every label.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) port: u16,
    /// The program's argument.
    pub(crate) word: String,
    /// Packages of the host that it wants besides.
    pub(crate) software: Vec<String>,
}

/// Where the services of the label at `index` answer.
fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 79, index as u8 + 1, 1)
}

fn site(labels: &[&str], program: &str, services: &[Service], needs: &[String]) -> String {
    let (lowest, highest) = (labels.first().unwrap_or(&""), labels.last().unwrap_or(&""));
    let mut out = format!(
        "[site]\nname = \"lab\"\n\n[labels]\nlevels = {labels:?}\ncategories = []\nintegrity-levels = []\n\
         integrity-categories = []\n\n[server]\nname = \"server.lab.example\"\naddresses = [\"10.77.0.1\"]\n\
         trusted-path-port = 7443\nike-port = 500\ntunnel-port = 4500\ninner-address = \"10.80.0.1\"\n\
         inner-pool = \"10.80.1.0/24\"\nnames = [\"services.lab.example\"]\nslots = 16\ngrace = \"30s\"\n\n\
         [limits]\nmemory = \"512M\"\nprocesses = 256\ncpu = \"800%\"\nstore = \"32M\"\n\n\
         [[user]]\nname = \"lab\"\nclearance = \"{lowest}..{highest}\"\n\n\
         [[host]]\nname = \"ws1\"\naccreditation = \"{lowest}..{highest}\"\n\n",
    );
    for Service { name, port, word, software } in services {
        out.push_str(&format!(
            "[[service]]\nname = \"{name}\"\nport = {port}\nprotocol = \"tcp\"\nrange = \"{lowest}..{highest}\"\nmode = \"direct\"\n\
             command = [\"{program}\", \"{word}\"]\n"
        ));
        if !software.is_empty() {
            out.push_str(&format!("software = {software:?}\n"));
        }
        if !needs.is_empty() {
            out.push_str(&format!("needs = {needs:?}\n"));
        }
        out.push('\n');
    }
    let names: Vec<&String> = services.iter().map(|s| &s.name).collect();
    for (index, label) in labels.iter().enumerate() {
        out.push_str(&format!(
            "[[network]]\ninterface = \"edge{index}\"\nlabel = \"{label}\"\naddress = \"{}/24\"\nservices = {names:?}\n\n",
            address(index)
        ));
    }
    out
}

/// Where a compartment sees a program of this run's.
pub(crate) fn visible(name: &str) -> PathBuf {
    PathBuf::from(format!("/usr/local/bin/levlab{}{name}", process::id()))
}

/// Leaves a program at `path`, for everybody to run.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn leave(path: &Path, program: &[u8]) -> io::Result<()> {
    fs::write(path, program)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

/// The running server. Fields drop in order.
#[derive(Debug)]
pub(crate) struct Compartments {
    _server: Up,
    hosts: Vec<Namespace>,
    _namespace: Namespace,
    _directory: Removed,
}

impl Compartments {
    /// Brings the server up in namespaces of its own with these labels, lowest first, and the services in each, which run `program` and
    /// ask for these groups of system calls.
    ///
    /// # Errors
    /// The step that failed; what was made until then is removed.
    pub(crate) fn start(
        labels: &[&str],
        program: &Path,
        services: &[Service],
        needs: &[String],
    ) -> io::Result<Compartments> {
        let dir = programs()?;
        let directory = Removed(std::env::temp_dir().join(format!("levlab{}site", process::id())));
        fs::create_dir(&directory.0)?;
        let path = |name: &str| text(&directory.0.join(name));
        let server = Namespace::new("u")?;
        let mut hosts = Vec::new();
        for index in 0..labels.len() {
            let host = Namespace::new(&format!("h{index}"))?;
            let [a, b, c, _] = address(index).octets();
            server.link(&host, address(index), Ipv4Addr::new(a, b, c, 9), &format!("edge{index}"))?;
            hosts.push(host);
        }
        // Where workstations would come from; there are none.
        tool("ip", &["-n", &server.name, "addr", "add", "10.77.0.1/32", "dev", "lo"])?;
        fs::write(path("site.toml"), site(labels, &text(program), services, needs))?;
        let levee = dir.join("levee");
        let (file, state, run) = (path("site.toml"), path("state"), path("server"));
        tool(&text(&levee), &["enrol", "all", &file, "--state", &state])?;
        let net = format!("--net={}", server.path().display());
        let up = [&net, &text(&levee), "up", &file, "--state", &state, "--run", &run];
        quiet("nsenter", &up, &directory.0.join("log"))?;
        let up = Up { levee, run: directory.0.join("server") };
        Ok(Compartments { _server: up, hosts, _namespace: server, _directory: directory })
    }

    /// A connection to a service of the label at `index`.
    ///
    /// # Errors
    /// When nobody answers.
    pub(crate) fn connect(&self, index: usize, port: u16) -> io::Result<TcpStream> {
        let host = self.hosts.get(index).ok_or_else(|| io::Error::other("no such label"))?;
        let to = SocketAddr::from((address(index), port));
        inside(&host.path(), move || TcpStream::connect_timeout(&to, Duration::from_secs(2)))
    }
}

/// Does something within a network namespace: in a thread of its own, which enters it and ends there.
///
/// # Errors
/// When the namespace cannot be entered, and what `work` says.
pub(crate) fn inside<T: Send + 'static>(
    namespace: &Path,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let namespace = fs::File::open(namespace)?;
    let done = thread::spawn(move || {
        let network = rustix::thread::LinkNameSpaceType::Network;
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(network))?;
        work()
    });
    done.join().map_err(|_| io::Error::other("a thread in a namespace failed"))?
}
