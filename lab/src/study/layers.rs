//! Protocols in layers (`levee lab run layers`): a session of SSH, files by SFTP and a page by HTTPS, bare and within one or two more
//! layers: TLS (stunnel), ESP (levee's vaults), both, ESP within QUIC (levee's two layers), WireGuard, DTLS and a data channel of WebRTC; over a link that only carries, and
//! over links that are far away, uneven and lose packets.
//!
//! Each way has the same programs at both ends: OpenSSH's server started for each connection as by inetd, nginx with TLS, and stunnel on
//! both sides. Behind levee's vaults they are in the network of a compartment, outside of it, with the listeners of services that leave
//! them alone, so that nothing differs but the way.

use super::daemon::{Ended, daemon};
use super::tunnels::{self, Tunnel};
use super::{Arm, Form, Measured, Stand, Study, over};
use crate::badlink::{Asked, BadLink, Did};
use crate::federation::OUTER;
use crate::netns::{Namespace, inside, tool};
use crate::operate::{Removed, text, this_program, wait_for};
use crate::processes::running;
use crate::serve::borrow;
use crate::site::{Signed, USER};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

/// Of the plain link: the client's end and the server's.
const LINK: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 217, 0, 1), Ipv4Addr::new(10, 217, 0, 2)];
/// Where the services of levee's sites answer.
const INNER: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 1);
const LABEL: &str = "LOW";
/// What is served, each with its port: SSH, HTTPS, and each of them within TLS.
pub(super) const SERVED: [(&str, u16); 4] =
    [("ssh", 7301), ("https", 7302), ("tls-ssh", 7303), ("tls-https", 7304)];
/// At the server, for its stunnel alone; and at the client, where its stunnel listens: the same two numbers on each one's loopback.
const WITHIN: [u16; 2] = [7311, 7312];
/// Octets of the page.
const PAGE: usize = 16 << 10;
/// Octets of the small file.
const SMALL: usize = 64;
/// The paper's commands, of its appendix A.
pub(super) const SESSION: &str = "ls -la; mkdir testingdirectory; cd testingdirectory; touch testing.txt; echo 'hello world!'>testing.txt; \
                       pwd; ls; rm testing.txt; cd ..; rmdir testingdirectory; ls; exit";
/// And of its appendix B, with the file of the client's by its name here.
const TYPICAL: &str = "ls\nmkdir testingdir\nchdir testingdir\nput small\nget ../small smallDw\nrm small\nchdir ..\nrmdir testingdir\nls\n";

/// What the two ends are made of: keys, certificates, configurations and files, the same for every way. On memory where the host has
/// such a place, since the disk is no part of what is compared.
pub(super) struct Kit {
    directory: Removed,
}

impl Kit {
    pub(super) fn make() -> io::Result<Kit> {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let kit = Kit { directory: Removed(place.join(format!("levlab{}layers", process::id()))) };
        for dir in ["", "server", "client"] {
            fs::create_dir(kit.directory.0.join(dir))?;
            fs::set_permissions(kit.directory.0.join(dir), fs::Permissions::from_mode(0o755))?;
        }
        for key in ["host-key", "key"] {
            tool("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &kit.at(key)])?;
        }
        let (key, cert) = (kit.at("tls.key"), kit.at("tls.crt"));
        let request =
            ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
        let name = ["-subj", "/CN=server.lab.example", "-addext", "subjectAltName=DNS:server.lab.example"];
        tool("openssl", &[&request[..], &name, &["-keyout", &key, "-out", &cert]].concat())?;
        let host = fs::read_to_string(kit.at("host-key.pub"))?;
        fs::write(kit.at("known"), format!("lab {host}"))?;
        fs::write(kit.at("server/page"), vec![b'x'; PAGE])?;
        fs::write(kit.at("server/small"), vec![b'x'; SMALL])?;
        fs::write(kit.at("client/small"), vec![b'x'; SMALL])?;
        fs::write(kit.at("typical"), TYPICAL)?;
        fs::write(kit.at("sshd.conf"), kit.sshd())?;
        Ok(kit)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory.0
    }

    fn at(&self, name: &str) -> String {
        text(&self.directory.0.join(name))
    }

    fn sshd(&self) -> String {
        format!(
            "HostKey {}\nAuthorizedKeysFile {}\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nUsePAM no\nStrictModes no\n\
             UseDNS no\nPrintMotd no\nPrintLastLog no\nMaxStartups 100\nSubsystem sftp internal-sftp -d {}\n",
            self.at("host-key"),
            self.at("key.pub"),
            self.at("server")
        )
    }

    pub(super) fn nginx(&self, way: &str, listen: Ipv4Addr) -> io::Result<String> {
        let path = self.at(&format!("{way}-nginx.conf"));
        let (served, within) = (SERVED[1].1, WITHIN[1]);
        let (key, cert, root) = (self.at("tls.key"), self.at("tls.crt"), self.at("server"));
        let (pid, temporary) = (self.at(&format!("{way}-nginx.pid")), self.at(&format!("{way}-temporary")));
        fs::create_dir(&temporary)?;
        let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {temporary}/{what};\n"))
            .concat();
        let configuration = format!(
            "daemon off;\nuser root;\nworker_processes 1;\npid {pid};\nevents {{ worker_connections 256; }}\nhttp {{\naccess_log off;\n{paths}\
             server {{\nlisten {listen}:{served} ssl;\nlisten 127.0.0.1:{within} ssl;\nssl_certificate {cert};\nssl_certificate_key {key};\n\
             ssl_protocols TLSv1.3;\nroot {root};\n}}\n}}\n"
        );
        fs::write(&path, configuration)?;
        Ok(path)
    }

    /// stunnel's configuration on one side: what each of two services accepts and where it goes.
    fn stunnel(&self, name: &str, client: bool, services: [(String, String); 2]) -> io::Result<String> {
        let path = self.at(name);
        let mut all = format!(
            "foreground = yes\npid =\nsyslog = no\ndebug = warning\noutput = {}.log\n",
            self.at(name)
        );
        if client {
            all.push_str(&format!("client = yes\nverifyChain = yes\nCAfile = {}\n", self.at("tls.crt")));
        } else {
            all.push_str(&format!("cert = {}\nkey = {}\n", self.at("tls.crt"), self.at("tls.key")));
        }
        all.push_str("sslVersionMin = TLSv1.3\nTIMEOUTclose = 0\n");
        for (name, (accept, connect)) in ["ssh", "https"].into_iter().zip(services) {
            all.push_str(&format!("[{name}]\naccept = {accept}\nconnect = {connect}\n"));
        }
        fs::write(&path, all)?;
        Ok(path)
    }
}

/// What keeps a way: a plain link, or a running site.
enum Kept {
    Link(Option<BadLink>, [Namespace; 2]),
    Site(Box<Signed>, u32),
}

/// A way from client to server, with the programs at both ends. Fields drop in order.
struct Way {
    _daemons: Vec<Ended>,
    _left: Vec<Removed>,
    kept: Kept,
    at: Ipv4Addr,
    /// The inside of another's tunnel, at the client.
    device: Option<String>,
}

/// What is counted of what comes out of the wire at both ends, by what it is: a rule of nftables, and the name in a report. WireGuard's data begin
/// with its type and three octets of nothing (its protocol, 5.4.6), DTLS 1.2's with their type and version (RFC 6347, 4.1).
const KINDS: [(&str, &str, &str); 4] = [
    ("tcp_packets", "meta l4proto tcp", "seen as TCP"),
    ("udp_packets", "meta l4proto udp", "seen as UDP"),
    ("wireguard_data", "meta l4proto udp @th,64,32 0x04000000", "seen as data of WireGuard"),
    ("dtls_data", "meta l4proto udp @th,64,24 0x17fefd", "seen as data of DTLS"),
];

/// Over which links a form has rows.
pub(super) struct Links {
    /// Over one that only carries.
    plain: bool,
    /// Over these.
    bad: Vec<Asked>,
}

impl Links {
    pub(super) fn of(study: &Study, form: &Form) -> Links {
        let rows: Vec<&str> = study.rows_of(form).map(|(_, r)| r.id.as_str()).collect();
        let used = |a: &&Asked| rows.iter().any(|r| over(r).1 == Some(&a.name));
        Links {
            plain: rows.iter().any(|r| over(r).1.is_none()),
            bad: study.links.iter().filter(used).cloned().collect(),
        }
    }

    /// What ways are built over, each by whether it is bad.
    fn each(&self) -> Vec<(bool, Option<&[Asked]>)> {
        let bad = (!self.bad.is_empty()).then_some((true, Some(self.bad.as_slice())));
        self.plain.then_some((false, None)).into_iter().chain(bad).collect()
    }
}

/// levee's site: services that leave their listeners alone.
fn site(program: &Path, layers: &[&str]) -> String {
    let services: String = SERVED
        .iter()
        .map(|(name, port)| {
            format!(
                "[[service]]\nname = \"{name}\"\nport = {port}\nprotocol = \"tcp\"\nrange = \"{LABEL}\"\nmode = \"direct\"\n\
                 command = [\"{}\", \"serve\", \"--idle\", \"{name}\"]\n\n",
                program.display()
            )
        })
        .collect();
    format!(
        "[site]\nname = \"lab\"\n\n[labels]\nlevels = [\"{LABEL}\"]\ncategories = []\nintegrity-levels = []\nintegrity-categories = []\n\n\
         [server]\nname = \"server.lab.example\"\naddresses = [\"10.77.0.1\"]\ntrusted-path-port = 7443\nike-port = 500\ntunnel-port = 4500\n\
         inner-address = \"{INNER}\"\ninner-pool = \"10.80.1.0/24\"\nnames = [\"services.lab.example\"]\nslots = 16\ngrace = \"30s\"\n\n\
         [limits]\nmemory = \"512M\"\nprocesses = 256\ncpu = \"800%\"\nstore = \"16M\"\n\n[vault]\nlayers = {layers:?}\n\n\
         [[user]]\nname = \"{USER}\"\nclearance = \"{LABEL}\"\n\n[[host]]\nname = \"ws1\"\naccreditation = \"{LABEL}\"\n\n{services}"
    )
}

/// Starts OpenSSH's server for each connection, until the listener is shut.
fn serve_ssh(listener: TcpListener, configuration: String) {
    thread::spawn(move || {
        // A run that ends takes the process with it, and the listener's namespace.
        for connection in listener.incoming().map_while(Result::ok) {
            let Ok(again) = connection.try_clone() else { return };
            let mut sshd = Command::new("/usr/sbin/sshd");
            sshd.args(["-i", "-f", &configuration]).stdin(OwnedFd::from(connection));
            let Ok(mut child) = sshd.stdout(OwnedFd::from(again)).stderr(Stdio::null()).spawn() else {
                return;
            };
            thread::spawn(move || drop(child.wait()));
        }
    });
}

impl Way {
    /// The client's network and the server's.
    fn ends(&self) -> [PathBuf; 2] {
        match &self.kept {
            Kept::Link(_, [client, server]) => [client.path(), server.path()],
            Kept::Site(site, init) => [site.client(), PathBuf::from(format!("/proc/{init}/ns/net"))],
        }
    }

    /// The two ends of the wire between them.
    fn wire(&self) -> [PathBuf; 2] {
        match &self.kept {
            Kept::Link(_, both) => both.each_ref().map(Namespace::path),
            Kept::Site(site, _) => site.namespaces.each_ref().map(Namespace::path),
        }
    }

    /// What is between, where something is asked of it.
    fn bad(&self) -> Option<&BadLink> {
        match &self.kept {
            Kept::Link(link, _) => link.as_ref(),
            Kept::Site(site, _) => site.link.as_ref(),
        }
    }

    /// A link, and where it is asked for another's tunnel over it.
    fn link(part: &str, tunnel: &str, links: Option<&[Asked]>, kit: &Kit) -> io::Result<(Way, Vec<OwnedFd>)> {
        let (client, server) = (Namespace::new(&format!("{part}c"))?, Namespace::new(&format!("{part}s"))?);
        let link = BadLink::or_plain(&client, &server, LINK, OUTER, links)?;
        let (ends, directory) = ([&client, &server], &kit.directory.0);
        let tunnel = match tunnel {
            "wireguard" => Some(tunnels::wireguard(part, ends, LINK, directory)?),
            "dtls" => Some(tunnels::dtls(ends, LINK, &kit.at("tls.crt"), &kit.at("tls.key"))?),
            "webrtc" => Some(tunnels::webrtc(part, ends, LINK, directory)?),
            _ => None,
        };
        let at = if tunnel.is_some() { tunnels::WITHIN[1] } else { LINK[1] };
        let bind = |(_, port): (&str, u16)| {
            inside(&server.path(), move || TcpListener::bind((at, port))).map(OwnedFd::from)
        };
        let listeners = SERVED.into_iter().map(bind).collect::<io::Result<_>>()?;
        let (mut daemons, mut left, mut device) = (Vec::new(), Vec::new(), None);
        if let Some(Tunnel { daemons: d, left: l, device: name }) = tunnel {
            (daemons, left, device) = (d, l, Some(name));
        }
        let kept = Kept::Link(link, [client, server]);
        Ok((Way { _daemons: daemons, _left: left, kept, at, device }, listeners))
    }

    fn levee(
        part: &str,
        layers: &[&str],
        links: Option<&[Asked]>,
        program: &Path,
    ) -> io::Result<(Way, Vec<OwnedFd>)> {
        let server = Namespace::new(&format!("{part}u"))?;
        let site = Signed::start_over(part, server, &site(program, layers), LABEL, links)?;
        let init = site.compartment(LABEL)?;
        for (_, port) in SERVED {
            // each is started by its first connection
            inside(&site.client(), move || {
                TcpStream::connect_timeout(&SocketAddr::from((INNER, port)), Duration::from_secs(10))
                    .map(drop)
            })?;
        }
        let idle = |name: &str| {
            let holds = |w: &[String]| w.windows(2).any(|w| w == ["--idle", name]);
            running(program, init).into_iter().find(|(_, w)| holds(w)).map(|(pid, _)| pid)
        };
        let lend = |(name, _): (&str, u16)| borrow(wait_for("the services", || idle(name))? as i32);
        let listeners = SERVED.into_iter().map(lend).collect::<io::Result<_>>()?;
        let kept = Kept::Site(Box::new(site), init);
        Ok((Way { _daemons: Vec::new(), _left: Vec::new(), kept, at: INNER, device: None }, listeners))
    }

    /// Starts the programs at both ends.
    fn furnish(mut self, name: &str, listeners: Vec<OwnedFd>, kit: &Kit) -> io::Result<Way> {
        let [client, server] = self.ends();
        let Ok([ssh, https, tls_ssh, tls_https]) = <[OwnedFd; 4]>::try_from(listeners) else {
            return Err(io::Error::other("not every service has a listener"));
        };
        for listener in [&ssh, &tls_ssh, &tls_https] {
            rustix::io::ioctl_fionbio(listener, false)?;
        }
        serve_ssh(ssh.into(), kit.at("sshd.conf"));
        let own = inside(&server, || TcpListener::bind((Ipv4Addr::LOCALHOST, WITHIN[0])))?;
        serve_ssh(own, kit.at("sshd.conf"));
        rustix::io::ioctl_fionbio(&https, true)?;
        let nginx = kit.nginx(name, self.at)?;
        self._daemons.push(daemon(
            &server,
            vec![https],
            "NGINX='3;'",
            "/usr/sbin/nginx",
            &["-e", "stderr", "-c", &nginx],
        )?);
        let (loopback, at) = (Ipv4Addr::LOCALHOST, self.at);
        let far = WITHIN.map(|port| format!("{loopback}:{port}"));
        let accept = [SERVED[2], SERVED[3]].map(|(_, port)| format!("{at}:{port}"));
        let [a, b] = accept.clone();
        let [c, d] = far.clone();
        let conf = kit.stunnel(&format!("{name}-stunnel-server"), false, [(a, c), (b, d)])?;
        let passed = "export LISTEN_FDS=2 LISTEN_PID=$$;";
        self._daemons.push(daemon(&server, vec![tls_ssh, tls_https], passed, "/usr/bin/stunnel4", &[&conf])?);
        let [a, b] = accept;
        let [c, d] = far;
        let conf = kit.stunnel(&format!("{name}-stunnel-client"), true, [(c, a), (d, b)])?;
        self._daemons.push(daemon(&client, Vec::new(), "", "/usr/bin/stunnel4", &[&conf])?);
        for end in self.wire() {
            // a queue that counts what goes out as it is on the wire: a super-segment as so many packets
            let net = format!("--net={}", text(&end));
            tool(
                "nsenter",
                &[&net, "tc", "qdisc", "replace", "dev", OUTER, "root", "pfifo", "limit", "100000"],
            )?;
            let counters: String = KINDS.map(|(name, ..)| format!("counter {name} {{ }}\n")).concat();
            let rules: String = KINDS.map(|(name, what, _)| format!("{what} counter name {name}\n")).concat();
            let hook = format!("type filter hook input priority -300;\niifname != \"{OUTER}\" return\n");
            let table = format!("table inet lab {{\n{counters}chain in {{\n{hook}{rules}}}\n}}\n");
            tool("nsenter", &[&net, "nft", &table])?;
        }
        Ok(self)
    }

    /// What passed so far, by name: packets and octets on the wire, both ways; what came out of it, by what it was seen as; and the octets of
    /// another's tunnel, by its inner device.
    fn counted(&self) -> io::Result<BTreeMap<&'static str, f64>> {
        let mut all = BTreeMap::new();
        let mut add = |what, value: Option<f64>| -> io::Result<()> {
            let value =
                value.ok_or_else(|| io::Error::other(format!("nobody says of {what} what passed")))?;
            *all.entry(what).or_insert(0.0) += value;
            Ok(())
        };
        let number =
            |said: &serde_json::Value, at: &str| said.pointer(at).and_then(serde_json::Value::as_f64);
        for end in self.wire() {
            let net = format!("--net={}", text(&end));
            let ask = |args: &[&str]| -> io::Result<serde_json::Value> {
                Ok(serde_json::from_str(&tool("nsenter", &[&[net.as_str()], args].concat())?)?)
            };
            let said = ask(&["tc", "-s", "-j", "qdisc", "show", "dev", OUTER])?;
            add("packets", number(&said, "/0/packets"))?;
            add("octets on the wire", number(&said, "/0/bytes"))?;
            let said = ask(&["nft", "-j", "list", "counters", "table", "inet", "lab"])?;
            let counters = said.pointer("/nftables").and_then(serde_json::Value::as_array);
            for (name, _, what) in KINDS {
                let of = |c: &serde_json::Value| {
                    let named = c.pointer("/counter/name").and_then(serde_json::Value::as_str) == Some(name);
                    named.then(|| number(c, "/counter/packets")).flatten()
                };
                add(what, counters.into_iter().flatten().find_map(of))?;
            }
        }
        if let Some(device) = &self.device {
            let net = format!("--net={}", text(&self.ends()[0]));
            let said = tool("nsenter", &[&net, "ip", "-s", "-j", "link", "show", "dev", device])?;
            let said: serde_json::Value = serde_json::from_str(&said)?;
            for way in ["/0/stats64/rx/bytes", "/0/stats64/tx/bytes"] {
                add("octets within the tunnel", number(&said, way))?;
            }
        }
        Ok(all)
    }
}

/// Everything that stands during a run. Fields drop in order.
pub(super) struct Layers {
    absent: Vec<(String, String)>,
    /// By name, and by whether something is asked of the link.
    ways: BTreeMap<(String, bool), Way>,
    /// What the bad links did before the first trial.
    did: Vec<Did>,
    kit: Kit,
    _program: Option<Removed>,
}

/// Which way an arm takes, and whether TLS is within it.
fn of(arm: &str) -> (&str, bool) {
    match arm.split_once('+') {
        Some(("tls", way)) => (way, true),
        _ if arm == "tls" => ("bare", true),
        _ => (arm, false),
    }
}

impl Layers {
    /// Builds the arms.
    ///
    /// # Errors
    /// When the plain link or its programs cannot be had; another arm is absent then, with the reason.
    pub(super) fn build(arms: &[&Arm], links: &Links) -> io::Result<Layers> {
        // sshd wants it, and is not started by a system that makes it
        fs::create_dir_all("/run/sshd")?;
        let (program, copy) = this_program()?;
        let kit = Kit::make()?;
        let mut l =
            Layers { absent: Vec::new(), ways: BTreeMap::new(), did: Vec::new(), kit, _program: copy };
        for (arm, (bad, asked)) in arms.iter().flat_map(|arm| links.each().into_iter().map(move |l| (arm, l)))
        {
            let (name, _) = of(&arm.name);
            if l.ways.contains_key(&(name.to_owned(), bad)) || l.absent.iter().any(|(a, _)| *a == arm.name) {
                continue;
            }
            let part = |plain: &str, other: &str| if bad { other.to_owned() } else { plain.to_owned() };
            let way = match name {
                "bare" => Way::link(&part("l", "m"), name, asked, &l.kit),
                "wireguard" => Way::link(&part("w", "x"), name, asked, &l.kit),
                "dtls" => Way::link(&part("d", "e"), name, asked, &l.kit),
                "webrtc" => Way::link(&part("r", "s"), name, asked, &l.kit),
                "esp" => Way::levee(&part("le", "me"), &["esp"], asked, &program),
                "esp-quic" => Way::levee(&part("lq", "mq"), &["esp", "quic"], asked, &program),
                other => Err(io::Error::other(format!("no way is known to build {other:?}"))),
            };
            let files = format!("{name}{}", if bad { "-bad" } else { "" });
            let way = way.and_then(|(way, listeners)| way.furnish(&files, listeners, &l.kit));
            match way.and_then(|way| l.answers(&way).map(|()| way)) {
                Ok(way) => drop(l.ways.insert((name.to_owned(), bad), way)),
                Err(e) if name == "bare" => return Err(e),
                Err(e) => l.absent.push((arm.name.clone(), e.to_string())),
            }
        }
        l.did = l.probe()?;
        let wrong: Vec<String> = l.did.iter().filter_map(|d| d.as_asked().err()).collect();
        if wrong.is_empty() {
            return Ok(l);
        }
        Err(io::Error::other(format!("a link does not do what it is asked: {}", wrong.join("; "))))
    }

    /// What datagrams of our own say of each link that something is asked of.
    fn probe(&self) -> io::Result<Vec<Did>> {
        let mut all = Vec::new();
        for ((name, _), way) in &self.ways {
            all.extend(way.bad().map(|link| link.probe(name)).transpose()?.unwrap_or_default());
        }
        Ok(all)
    }

    /// Waits until everything at a way's ends answers.
    fn answers(&self, way: &Way) -> io::Result<()> {
        let mut last = None;
        let answered = wait_for("SSH and HTTPS, bare and in TLS", || {
            for (row, tls) in [("https", false), ("https", true), ("ssh", false), ("ssh", true)] {
                if let Err(e) = self.once(way, row, tls) {
                    last = Some(format!("{row}{}: {e}", if tls { " in TLS" } else { "" }));
                    return None;
                }
            }
            Some(())
        });
        answered.map_err(|e| io::Error::other(format!("{e}: {}", last.unwrap_or_default())))
    }

    /// One iteration of a row: units of work done in it.
    fn once(&self, way: &Way, row: &str, tls: bool) -> io::Result<f64> {
        let place = |index: usize| {
            if tls { (Ipv4Addr::LOCALHOST, WITHIN[index]) } else { (way.at, SERVED[index].1) }
        };
        let [client, _] = way.ends();
        let run = |mut c: Command| {
            c.stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .current_dir(self.kit.at("client"));
            inside(&client, move || {
                let out = c.output()?;
                let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
                if out.status.success() { Ok(()) } else { Err(io::Error::other(said)) }
            })
        };
        let (what, size) = (row.split('@').next().unwrap_or(row), megabytes(row)? << 20);
        match what {
            "https" => {
                let (at, port) = place(1);
                let mut c = Command::new("curl");
                c.args(["-sS", "--fail", "--noproxy", "*", "--cacert", &self.kit.at("tls.crt")]);
                c.arg("--resolve").arg(format!("server.lab.example:{port}:{at}"));
                c.arg(format!("https://server.lab.example:{port}/page"));
                run(c).map(|()| 1.0)
            }
            "ssh" => {
                let (at, port) = place(0);
                let mut c = Command::new("ssh");
                self.identify(&mut c).args(["-T", "-p", &port.to_string()]).arg(format!("root@{at}"));
                c.arg(format!("cd {}; {SESSION}", self.kit.at("server")));
                run(c).map(|()| 1.0)
            }
            "sftp" | "sftp-down" | "sftp-up" => {
                let (at, port) = place(0);
                let batch = if what == "sftp" { self.kit.at("typical") } else { self.transfer(what, size)? };
                let mut c = Command::new("sftp");
                self.identify(&mut c)
                    .args(["-q", "-b", &batch, "-P", &port.to_string()])
                    .arg(format!("root@{at}"));
                run(c)?;
                Ok(if size > 0 { size as f64 } else { 1.0 })
            }
            _ => Err(io::Error::other(format!("no row is called {row:?}"))),
        }
    }

    /// The options by which OpenSSH's client knows the server and itself.
    fn identify<'a>(&self, c: &'a mut Command) -> &'a mut Command {
        c.args(["-F", "none", "-i", &self.kit.at("key"), "-o", "BatchMode=yes", "-o", "HostKeyAlias=lab"]);
        c.args(["-o", &format!("UserKnownHostsFile={}", self.kit.at("known"))])
    }

    /// The batch of a transfer, with its large file where it comes from.
    fn transfer(&self, what: &str, size: u64) -> io::Result<String> {
        let (from, batch) = match what {
            "sftp-down" => (self.kit.at("server/large"), "get large largeDw\n"),
            _ => (self.kit.at("client/large"), "put large largeUp\nrm largeUp\n"),
        };
        if fs::metadata(&from).map(|m| m.len()).ok() != Some(size) {
            // nothing that a layer could make shorter
            let file = fs::File::create(&from)?;
            io::copy(&mut io::Read::take(fs::File::open("/dev/urandom")?, size), &mut &file)?;
        }
        let path = self.kit.at(what);
        fs::write(&path, batch)?;
        Ok(path)
    }
}

impl Stand for Layers {
    fn absent(&self) -> &[(String, String)] {
        &self.absent
    }

    fn measure(&mut self, arm: &str, row: &str, seconds: f64) -> io::Result<Measured> {
        let (name, tls) = of(arm);
        let (row, link) = over(row);
        let way = self.ways.get(&(name.to_owned(), link.is_some()));
        let way = way.ok_or_else(|| io::Error::other("the arm was not built"))?;
        if row.starts_with("sftp-") {
            // one that makes the large file, and is not counted
            self.transfer(row.split('@').next().unwrap_or(row), megabytes(row)? << 20)?;
        }
        if let Some(bad) = way.bad() {
            bad.be(link)?;
        }
        let (before, mut spent, mut units, mut times) = (way.counted()?, 0.0, 0.0, 0.0);
        while times == 0.0 || spent < seconds {
            let begin = Instant::now();
            units += self.once(way, row, tls)?;
            spent += begin.elapsed().as_secs_f64();
            times += 1.0;
            if row.starts_with("sftp-down") {
                fs::remove_file(self.kit.at("client/largeDw"))?;
            }
        }
        let mut counted = BTreeMap::new();
        for (what, after) in way.counted()? {
            let passed = after - before.get(what).copied().unwrap_or_default();
            if passed > 0.0 {
                counted.insert(what.to_owned(), passed / times);
            }
        }
        Ok(Measured { seconds: spent / units, preempted: None, counted })
    }

    fn links(&mut self) -> io::Result<Vec<Did>> {
        let mut all = std::mem::take(&mut self.did);
        for ((name, _), way) in &self.ways {
            all.extend(way.bad().map(|link| link.counted(name)).transpose()?.unwrap_or_default());
        }
        all.extend(self.probe()?);
        Ok(all)
    }
}

/// The size in a row's name.
fn megabytes(row: &str) -> io::Result<u64> {
    row.split_once('@').map_or(Ok(0), |(_, size)| size.parse().map_err(io::Error::other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arms_name_says_its_way_and_whether_tls_is_within() {
        for (arm, way) in [
            ("bare", ("bare", false)),
            ("tls", ("bare", true)),
            ("esp", ("esp", false)),
            ("tls+esp", ("esp", true)),
            ("esp-quic", ("esp-quic", false)),
            ("tls+wireguard", ("wireguard", true)),
        ] {
            assert_eq!(of(arm), way, "{arm}");
        }
    }
}
