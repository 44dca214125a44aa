//! A second server of a site, and the etcd that both share, in namespaces of their own on the first one's bridge.
//!
//! ```text
//!  NAME-ws1 10.77.0.11 ─┐
//!  NAME-etcd 10.77.0.9 ─┼─ bridge in NAME-server 10.77.0.1
//!  NAME-two 10.77.0.2 ──┘
//! ```

use crate::{Done, World, eventually, sh, terminate, text};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The enemy between etcd and the servers.
const CARRIER: &str = include_str!("carrier.py");

/// What the first server's site file has more, and what the second's has in the place of its own.
const FIRST: &str = r#"
[federation]
etcd = ["10.77.0.9:2379"]
etcd-name = "etcd.harbour.example"
lease = "3s"

[[federation.peer]]
name = "two.harbour.example"
address = "10.77.0.2"
inner-address = "10.80.0.2"
inner-pool = "10.80.2.0/24"
"#;

/// The site files of both servers, by that of a site with one.
fn sites(site: &str) -> (String, String) {
    let first = format!("{site}{FIRST}");
    // Each is the other's peer.
    let second = first
        .replace("server.harbour.example", "ONE")
        .replace("two.harbour.example", "server.harbour.example")
        .replace("ONE", "two.harbour.example")
        .replace("www.harbour.example", "www2.harbour.example");
    let swap = |text: String, one: &str, two: &str| {
        text.replace(one, "\u{0}").replace(two, one).replace('\u{0}', two)
    };
    let second = swap(second, "\"10.77.0.1\"", "\"10.77.0.2\"");
    let second = swap(second, "\"10.80.0.1\"", "\"10.80.0.2\"");
    (first, swap(second, "\"10.80.1.0/24\"", "\"10.80.2.0/24\""))
}

/// Two servers of one site, and a workstation of the first.
#[derive(Debug)]
pub struct Two {
    second: Option<Child>,
    etcd: Option<Child>,
    /// Who stands between etcd and the servers.
    carrier: Option<Child>,
    namespaces: Vec<String>,
    /// The first server and the workstations.
    pub world: World,
}

impl Two {
    /// All of it running; both servers are members.
    #[track_caller]
    pub fn up(name: &str, site: &str, workstations: &[&str]) -> Self {
        Self::up_by(name, site, workstations, false, &[])
    }

    /// As [`Two::up`]; the first server is started by this command ([`World::start_by`]).
    #[track_caller]
    pub fn up_started_by(name: &str, site: &str, command: &[&str]) -> Self {
        Self::up_by(name, site, &[], false, command)
    }

    /// As [`Two::up`]; between etcd and the servers stands an enemy ([`Two::order`]), who begins by being honest.
    #[track_caller]
    pub fn up_by_an_enemy(name: &str, site: &str, workstations: &[&str]) -> Self {
        Self::up_by(name, site, workstations, true, &[])
    }

    #[track_caller]
    fn up_by(name: &str, site: &str, workstations: &[&str], enemy: bool, command: &[&str]) -> Self {
        let (first, second) = sites(site);
        let world = World::new(name, &first, workstations);
        fs::write(world.path("second.toml"), second).expect("write the site file");
        let mut two = Self { second: None, etcd: None, carrier: None, namespaces: Vec::new(), world };
        two.host("etcd", "10.77.0.9/24");
        two.host("two", "10.77.0.2/24");
        two.start_etcd(enemy);
        let (site, state) = (text(&two.world.path("second.toml")), text(&two.world.path("second-state")));
        fs::create_dir_all(&state).expect("the second server's state");
        let authority = text(&two.world.path("state").join("authority"));
        sh("cp", &["-r", &authority, &state]).ok();
        two.world.levee(&["enrol", "server", &site, "--state", &state]).ok();
        two.world.levee(&["enrol", "auditor", &site, "--state", &state]).ok();
        two.world.start_by(command);
        two.world.start_server();
        two.world.start_by(&[]);
        two.start_second();
        for workstation in workstations {
            two.world.start_workstation(workstation);
        }
        two.joined();
        two
    }

    /// Waits until both servers are members of the federation.
    #[track_caller]
    pub fn joined(&self) {
        let knows = |run: &str| {
            let status = self.status(run);
            status["federation"]["others"].as_array().is_some_and(|others| others.len() == 1)
        };
        eventually(Duration::from_secs(20), "both servers are members", || {
            knows("run") && knows("second-run")
        });
    }

    #[track_caller]
    fn host(&mut self, of: &str, address: &str) {
        let namespace = self.world.namespace(of);
        sh("ip", &["netns", "add", &namespace]).ok();
        self.namespaces.push(namespace.clone());
        let port = format!("p-{of}");
        let veth = ["link", "add", &port, "type", "veth", "peer", "name", "outer", "netns", &namespace];
        self.world.server_sh("ip", &veth).ok();
        self.world.server_sh("ip", &["link", "set", &port, "master", "outer", "up"]).ok();
        self.world.outside(of, "ip", &["link", "set", "lo", "up"]).ok();
        self.world.outside(of, "ip", &["address", "add", address, "dev", "outer"]).ok();
        self.world.outside(of, "ip", &["link", "set", "outer", "up"]).ok();
    }

    /// Starts etcd, with what it had before; with an enemy before it, where only that one reaches it.
    #[track_caller]
    fn start_etcd(&mut self, enemy: bool) {
        let state = self.world.path("state").join("etcd");
        let file = |name: &str| text(&state.join(name));
        let log = fs::File::create(self.world.log("etcd")).expect("etcd's log");
        let in_namespace = || {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/run/netns/{}", self.world.namespace("etcd")));
            command.stdin(Stdio::null()).stdout(Stdio::null());
            command
        };
        let mut etcd = in_namespace();
        etcd.args(["etcd", "--log-level", "warn", "--unsafe-no-fsync", "--data-dir"])
            .arg(self.world.path("etcd-data"))
            .args(["--listen-peer-urls", "http://127.0.0.1:2380", "--listen-client-urls"]);
        match enemy {
            true => {
                etcd.args(["http://127.0.0.1:23790", "--advertise-client-urls", "http://127.0.0.1:23790"])
            }
            false => etcd
                .args(["https://10.77.0.9:2379", "--advertise-client-urls", "https://10.77.0.9:2379"])
                .args([
                    "--client-cert-auth",
                    "--cert-file",
                    &file("chain.pem"),
                    "--key-file",
                    &file("tls.key"),
                ])
                .args(["--trusted-ca-file", &file("authority.pem")]),
        };
        let log_of_enemy = log.try_clone().expect("etcd's log");
        self.etcd = Some(etcd.stderr(log).spawn().expect("start etcd (scripts/need test installs it)"));
        if enemy {
            let mut carrier = in_namespace();
            carrier.args(["python3", "-c", CARRIER]).arg(state).arg(self.world.path("orders"));
            self.carrier = Some(carrier.stderr(log_of_enemy).spawn().expect("start the carrier"));
        }
    }

    /// Stops etcd, and starts it with the certificates that lie there now.
    #[track_caller]
    pub fn etcd_again(&mut self) {
        self.etcd.take().into_iter().for_each(terminate);
        self.start_etcd(false);
    }

    /// What the enemy is to do from now on: lines as its first page says.
    #[track_caller]
    pub fn order(&self, orders: &str) {
        let (next, file) = (self.world.path("orders-next"), self.world.path("orders"));
        fs::write(&next, orders).and_then(|()| fs::rename(next, file)).expect("the enemy's orders");
    }

    #[track_caller]
    fn start_second(&mut self) {
        let (site, state, run) =
            (self.world.path("second.toml"), self.world.path("second-state"), self.world.path("second-run"));
        self.second = Some(self.world.warden("two", ["--server", &text(&site)], &state, &run));
    }

    /// `levee status` of the server with this run directory.
    #[track_caller]
    pub fn status(&self, run: &str) -> serde_json::Value {
        let out = self.world.levee(&["status", "--json", "--run", &text(&self.world.path(run))]).ok();
        serde_json::from_str(&out).expect("levee status --json prints JSON")
    }

    /// Cuts a host off from etcd, or lets it reach etcd again.
    #[track_caller]
    pub fn cut_off(&self, of: &str, cut: bool) {
        let drop =
            "table inet cut { chain out { type filter hook output priority 0; ip daddr 10.77.0.9 drop; }; }";
        let done: Done = match cut {
            true => self.world.outside(of, "nft", &[drop]),
            false => self.world.outside(of, "nft", &["delete", "table", "inet", "cut"]),
        };
        done.ok();
    }

    /// The second server's warden.
    pub fn second_pid(&self) -> u32 {
        self.second.as_ref().expect("a running server").id()
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for of in ["two", "etcd"] {
                eprintln!("--- log of {of}\n{}", fs::read_to_string(self.world.log(of)).unwrap_or_default());
            }
        }
        let children = [self.second.take(), self.carrier.take(), self.etcd.take()];
        for child in children.into_iter().flatten() {
            terminate(child);
        }
        for namespace in &self.namespaces {
            let _ = Command::new("ip").args(["netns", "delete", namespace]).status();
        }
    }
}
