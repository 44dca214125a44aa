//! A second server of a site and the etcd that both share, in namespaces of their own.
//!
//! ```text
//! workstation 10.77.0.11 ── 10.77.0.1 first ──┐
//!             │                               etcd 10.77.0.9
//!             └──────────── 10.77.0.2 second ─┘
//! ```
//!
//! Each line is a virtual link of its own. The second server is as far from the workstation as the first, and neither
//! forwards anything for another.

use crate::netns::{Namespace, tool};
use crate::operate::{Up, text, wait_for};
use crate::role::Role;
use crate::server::Server;
use crate::tools::within;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::{fs, io};

/// The link between workstation and server.
pub(crate) const OUTER: &str = "outer";

/// The server's outer address, which its site names, and the workstation's.
pub(crate) const OUTSIDE: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 77, 0, 1), Ipv4Addr::new(10, 77, 0, 11)];

/// A server of the laboratory's sites, as its site file has it.
#[derive(Debug)]
pub(crate) struct Member {
    name: &'static str,
    outer: Ipv4Addr,
    /// Where its services answer a session, at every label.
    pub(crate) inner: Ipv4Addr,
    pool: &'static str,
    /// Of its services.
    alias: &'static str,
}

/// The server where the person signs on.
pub(crate) const FIRST: Member = Member {
    name: "server.lab.example",
    outer: OUTSIDE[0],
    inner: Ipv4Addr::new(10, 80, 0, 1),
    pool: "10.80.1.0/24",
    alias: "services.lab.example",
};

/// The other one of its federation.
pub(crate) const SECOND: Member = Member {
    name: "second.lab.example",
    outer: Ipv4Addr::new(10, 77, 0, 2),
    inner: Ipv4Addr::new(10, 80, 0, 2),
    pool: "10.80.2.0/24",
    alias: "second-services.lab.example",
};

const ETCD: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);
const ETCD_NAME: &str = "etcd.lab.example";

impl Member {
    /// The table `[server]` of its site file.
    pub(crate) fn table(&self) -> String {
        let Member { name, outer, inner, pool, alias } = self;
        format!(
            "[server]\nname = \"{name}\"\naddresses = [\"{outer}\"]\ntrusted-path-port = 7443\nike-port = 500\n\
             tunnel-port = 4500\ninner-address = \"{inner}\"\ninner-pool = \"{pool}\"\nnames = [\"{alias}\"]\n\
             slots = 16\ngrace = \"30s\"\n\n"
        )
    }

    /// The table `[federation]` of a server whose only peer this is; the lease is levee's default.
    pub(crate) fn as_peer(&self) -> String {
        let Member { name, outer, inner, pool, alias } = self;
        format!(
            "[federation]\netcd = [\"{ETCD}:2379\"]\netcd-name = \"{ETCD_NAME}\"\n\n[[federation.peer]]\n\
             name = \"{name}\"\naddress = \"{outer}\"\ninner-address = \"{inner}\"\ninner-pool = \"{pool}\"\n\
             names = [\"{alias}\"]\n\n"
        )
    }
}

/// A link to a host that has this address, without a network around it: each end knows the other's address alone.
fn reach(ends: [&Namespace; 2], at: [Ipv4Addr; 2], devices: [&str; 2]) -> io::Result<()> {
    let ip = |space: &Namespace, args: &[&str]| tool("ip", &[&["-n", &space.name], args].concat()).map(drop);
    let veth =
        ["link", "add", devices[0], "type", "veth", "peer", "name", devices[1], "netns", &ends[1].name];
    ip(ends[0], &veth)?;
    for end in [0, 1] {
        // The address may be there already, on a link to somebody else.
        let (own, other) = (format!("{}/32", at[end]), at[1 - end].to_string());
        ip(ends[end], &["address", "replace", &own, "dev", "lo"])?;
        ip(ends[end], &["link", "set", devices[end], "up"])?;
        let src = at[end].to_string();
        ip(ends[end], &["route", "add", &other, "dev", devices[end], "src", &src])?;
    }
    Ok(())
}

/// The second server, and etcd. Fields drop in order.
#[derive(Debug)]
pub(crate) struct Second {
    pub(crate) server: Up,
    _etcd: Server,
    _between: Namespace,
    pub(crate) namespace: Namespace,
}

impl Second {
    /// Brings both up: `site` is the second server's file, in a namespace that has its single-level network already. `ends` are the
    /// namespaces of the first server and of the workstation, `directory` has the first server's state.
    ///
    /// # Errors
    /// The step that failed, in words; what was made until then is removed.
    pub(crate) fn start(
        part: &str,
        namespace: Namespace,
        (levee, site): (&Path, &str),
        ends: [&Namespace; 2],
        directory: &Path,
    ) -> io::Result<Second> {
        let [first, workstation] = ends;
        let between = Namespace::new(&format!("{part}e"))?;
        reach([workstation, &namespace], [OUTSIDE[1], SECOND.outer], ["second", OUTER])?;
        reach([first, &between], [FIRST.outer, ETCD], ["etcd", "first"])?;
        reach([&namespace, &between], [SECOND.outer, ETCD], ["etcd", "second"])?;
        let state = directory.join("state");
        let etcd = etcd(&between, &state.join("etcd"), directory)?;
        // Both servers are of one authority. Each has keys of its own, and an auditor.
        let own = directory.join("second-state");
        fs::create_dir(&own)?;
        tool("cp", &["-r", &text(&state.join("authority")), &text(&own)])?;
        let (file, own) = (text(&directory.join("second.toml")), text(&own));
        fs::write(&file, site)?;
        for what in ["server", "auditor"] {
            tool(&text(levee), &["enrol", what, &file, "--state", &own])?;
        }
        let server = Up::start(levee.into(), &namespace, directory, "second", &[&file, "--state", &own])?;
        Ok(Second { server, _etcd: etcd, _between: between, namespace })
    }

    /// Waits until each server believes the other.
    ///
    /// # Errors
    /// When they do not in time.
    pub(crate) fn joined(&self, first: &Up) -> io::Result<()> {
        wait_for("the two servers to be members of one federation", || {
            let knows = |server: &Up| {
                let status = server.status().ok()?;
                Some(status.pointer("/federation/others")?.as_array()?.len() == 1)
            };
            (knows(first)? && knows(&self.server)?).then_some(())
        })
    }
}

/// etcd as an operator runs it for levee: it knows its clients by the site's authority for that, and syncs what it writes.
fn etcd(namespace: &Namespace, keys: &Path, directory: &Path) -> io::Result<Server> {
    let at = format!("https://{ETCD}:2379");
    let file = |name: &str| text(&keys.join(name));
    // Only etcd itself is in its namespace.
    let (data, itself) = (text(&directory.join("etcd")), "http://127.0.0.1:2380");
    let args = [
        ["--data-dir", &data],
        ["--log-level", "error"],
        ["--auto-compaction-retention", "1"],
        ["--listen-peer-urls", itself],
        ["--listen-client-urls", &at],
        ["--advertise-client-urls", &at],
        ["--cert-file", &file("chain.pem")],
        ["--key-file", &file("tls.key")],
        ["--trusted-ca-file", &file("authority.pem")],
    ];
    let args: Vec<String> =
        ["--client-cert-auth"].iter().chain(args.iter().flatten()).map(|word| (*word).to_owned()).collect();
    if tool("etcd", &["--version"]).is_err() {
        return Err(io::Error::other("etcd is not in PATH: apt-get install etcd-server"));
    }
    let role = Role { netns: Some(namespace.path()), with_parent: true, ..Role::default() };
    let log = fs::File::create(directory.join("etcd.log"))?;
    let mut command = within(&role, "etcd", &args)?;
    Ok(Server::of(command.stdout(Stdio::null()).stderr(log).process_group(0).spawn()?))
}
