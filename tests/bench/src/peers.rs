//! Other people's tunnels, each as its own documentation says, between the same two namespaces.
//!
//! Same inner MTU for all; AES-256-GCM where there is a choice. Their devices stand in the link's namespaces, as ours do
//! here.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use levee_lab::netns::{Namespace, tool};
use levee_sys::ns;

use crate::link::{self, CLIENT, CONGESTION, Guard, Link, SERVER};
use crate::tunnel::{Tunnel, Way};

/// How long a tunnel may take to carry something.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a tunnel stands in the address plan.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its number among the arms.
    pub number: u8,
    /// Inner MTU in bytes.
    pub mtu: u16,
    /// Outer addresses of vaults: the server's, the client's.
    pub outer: (Ipv4Addr, Ipv4Addr),
}

impl Place {
    /// The inner addresses in `label` (from 1): the server's, the client's.
    pub fn inner(self, label: u8) -> (Ipv4Addr, Ipv4Addr) {
        let address = |host| Ipv4Addr::new(10, 100 + self.number, label, host);
        (address(1), address(2))
    }

    /// Its UDP port.
    pub fn port(self) -> u16 {
        5_500 + u16::from(self.number)
    }

    /// A device's name, of at most 15 bytes.
    pub fn device(self, end: char, label: u8) -> String {
        format!("b{}{end}{label}", self.number)
    }
}

/// A directory with a tunnel's files, removed when dropped.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("levee-bench-{}-{name}", std::process::id()));
        fs::create_dir_all(&path)?;
        std::os::unix::fs::chown(&path, Some(0), Some(0))?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        Ok(Self(path))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What stays is found under the same name.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where the programs are.
#[derive(Debug)]
pub struct Programs(Option<PathBuf>);

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn start(
    space: &Namespace,
    program: &Path,
    args: &[&str],
    env: &[(&str, &str)],
    log: &Path,
) -> io::Result<Guard> {
    let out = File::create(log)?;
    let child = Command::new("nsenter")
        .arg(format!("--net={}", space.path().display()))
        .arg(program)
        .args(args)
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()?;
    Ok(Guard(child))
}

/// Waits until `there` holds; the log says why it does not.
fn until(what: &str, log: &Path, mut there: impl FnMut() -> bool) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !there() {
        if Instant::now() > end {
            let said = fs::read_to_string(log).unwrap_or_default();
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{what}: {}", said.trim())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn up(space: &Namespace, device: &str, address: Ipv4Addr, mtu: u16) -> io::Result<()> {
    let ip = |args: &[&str]| tool("ip", &[&["-n", &space.name], args].concat()).map(drop);
    ip(&["link", "set", device, "mtu", &mtu.to_string(), "up"])?;
    ip(&["addr", "replace", &format!("{address}/24"), "dev", device])
}

/// Waits until the workloads' server is reached at this address, and sees that it sends as it should.
///
/// # Errors
/// When it is not.
pub fn answers(link: &Link, server: Ipv4Addr) -> io::Result<()> {
    let client = link::open(&link.client)?;
    let to = link::served_at(server);
    ns::in_net(client.as_fd(), || {
        let end = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect_timeout(&to, Duration::from_secs(2)) {
                Ok(mut stream) => {
                    // The workloads' server says what the connection that it sends by uses.
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.write_all(b"a")?;
                    let mut used = String::new();
                    stream.read_to_string(&mut used)?;
                    if used != CONGESTION {
                        let why = format!("the congestion control is {used}, not {CONGESTION}");
                        return Err(io::Error::other(why));
                    }
                    return Ok(());
                }
                Err(error) if Instant::now() > end => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    })
    .map_err(|error| io::Error::other(error.to_string()))?
}

/// Processor seconds of these processes so far, user and system.
pub fn processor_seconds(processes: &[u32]) -> f64 {
    let ticks = |process: &u32| -> Option<f64> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // Behind the name, which may have anything in it (proc_pid_stat(5): fields 14 and 15).
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let (user, system): (f64, f64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(user + system)
    };
    processes.iter().filter_map(ticks).sum::<f64>() / 100.0
}

fn tunnel(server: Ipv4Addr, guards: Vec<Guard>, directory: Directory) -> Tunnel {
    let processes = guards.iter().map(|guard| guard.0.id()).collect();
    let way = Way { servers: vec![server], processes };
    Tunnel { way, guards, held: vec![Box::new(directory)] }
}

impl Programs {
    /// Looked for here first.
    pub fn new(directory: Option<&Path>) -> Self {
        Self(directory.map(Path::to_path_buf))
    }

    fn find(&self, name: &str) -> io::Result<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let system = ["/usr/sbin", "/sbin", "/usr/lib/ipsec"].map(PathBuf::from);
        let all = self.0.clone().into_iter().chain(std::env::split_paths(&path)).chain(system);
        all.map(|directory| directory.join(name)).find(|path| path.exists()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("{name} is not here: scripts/bench installs it"))
        })
    }

    /// What each program says of its version.
    pub fn versions(&self) -> BTreeMap<String, String> {
        let said = |program: &str, args: &[&str]| {
            let out = Command::new(self.find(program).ok()?).args(args).output().ok()?;
            let text = if out.stdout.is_empty() { out.stderr } else { out.stdout };
            String::from_utf8(text).ok()
        };
        let first = |program: &str, args: &[&str]| {
            said(program, args)?.lines().next().map(|line| line.trim().to_owned())
        };
        // Built by `go install`: the module's version is in the program.
        let module = self.find("wireguard").ok().and_then(|program| {
            let out = Command::new("go").args(["version", "-m"]).arg(program).output().ok()?;
            let text = String::from_utf8(out.stdout).ok()?;
            let line = text.lines().find(|line| line.trim_start().starts_with("mod"))?;
            Some(line.split_whitespace().skip(1).take(2).collect::<Vec<_>>().join(" "))
        });
        let mut versions = BTreeMap::new();
        let mut put = |name: &str, version: Option<String>| {
            if let Some(version) = version {
                versions.insert(name.to_owned(), version);
            }
        };
        put("wireguard-go", module);
        put("boringtun", first("boringtun-cli", &["--version"]));
        put("libipsec", first("charon", &["--version"]));
        put("openvpn", first("openvpn", &["--version"]));
        versions
    }

    /// A WireGuard in user mode, by whichever program: `NAME -f` and wg(8) are common to all.
    ///
    /// # Errors
    /// The step that failed.
    pub fn wireguard(&self, link: &Link, program: &str, place: Place) -> io::Result<Tunnel> {
        let binary = self.find(program)?;
        let directory = Directory::new(program)?;
        let wg = |args: &[&str]| tool("wg", args);
        let (server, client) = place.inner(1);
        let ends = [(&link.server, 's', server, SERVER), (&link.client, 'c', client, CLIENT)];
        let mut guards = Vec::new();
        let mut public = Vec::new();
        for (space, end, inner, _) in ends {
            let device = format!("b{}{}{end}", std::process::id(), place.number);
            let log = directory.at(&format!("{end}.log"));
            let args: &[&str] = match program {
                "boringtun-cli" => &["--foreground", "--disable-drop-privileges", &device],
                _ => &["-f", &device],
            };
            guards.push(start(space, &binary, args, &[("LOG_LEVEL", "error")], &log)?);
            let socket = PathBuf::from(format!("/var/run/wireguard/{device}.sock"));
            until("its control socket is not there", &log, || socket.exists())?;
            let key = directory.at(&format!("{end}.key"));
            let private = wg(&["genkey"])?;
            fs::write(&key, &private)?;
            let said = Command::new("sh").args(["-c", "wg pubkey < \"$0\""]).arg(&key).output()?;
            public.push(String::from_utf8_lossy(&said.stdout).trim().to_owned());
            let port = (place.port() + if end == 'c' { 100 } else { 0 }).to_string();
            until("it does not take its key", &log, || {
                wg(&["set", &device, "private-key", &text(&key), "listen-port", &port]).is_ok()
            })?;
            up(space, &device, inner, place.mtu)?;
        }
        public.reverse();
        for ((_, end, ..), other) in ends.iter().zip(&public) {
            let device = format!("b{}{}{end}", std::process::id(), place.number);
            let (peer, port) = match end {
                's' => (CLIENT, place.port() + 100),
                _ => (SERVER, place.port()),
            };
            wg(&[
                "set",
                &device,
                "peer",
                other,
                "allowed-ips",
                "0.0.0.0/0",
                "endpoint",
                &format!("{peer}:{port}"),
            ])?;
        }
        Ok(tunnel(server, guards, directory))
    }

    /// OpenVPN, point to point, its kernel module left out.
    ///
    /// # Errors
    /// The step that failed.
    pub fn openvpn(&self, link: &Link, place: Place) -> io::Result<Tunnel> {
        let binary = self.find("openvpn")?;
        let directory = Directory::new("openvpn")?;
        let mut prints = Vec::new();
        for end in ["s", "c"] {
            let (key, certificate) =
                (directory.at(&format!("{end}.key")), directory.at(&format!("{end}.pem")));
            tool(
                "openssl",
                &[
                    "req",
                    "-x509",
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:prime256v1",
                    "-nodes",
                    "-days",
                    "2",
                    "-subj",
                    &format!("/CN={end}"),
                    "-keyout",
                    &text(&key),
                    "-out",
                    &text(&certificate),
                ],
            )?;
            let print =
                tool("openssl", &["x509", "-in", &text(&certificate), "-noout", "-fingerprint", "-sha256"])?;
            prints.push(print.trim().rsplit_once('=').map_or("", |(_, print)| print).to_owned());
        }
        prints.reverse();
        let (server, client) = place.inner(1);
        let ends = [
            (&link.server, "s", (SERVER, CLIENT), (server, client)),
            (&link.client, "c", (CLIENT, SERVER), (client, server)),
        ];
        let mut guards = Vec::new();
        for ((space, end, (outer, peer), (inner, other)), print) in ends.into_iter().zip(prints) {
            let port = place.port().to_string();
            let role: &[&str] =
                if end == "s" { &["--tls-server", "--dh", "none"] } else { &["--tls-client"] };
            let device = place.device(if end == "s" { 's' } else { 'c' }, 1);
            let (outer, peer, inner, other) =
                (outer.to_string(), peer.to_string(), inner.to_string(), other.to_string());
            let (key, certificate, mtu) = (
                text(&directory.at(&format!("{end}.key"))),
                text(&directory.at(&format!("{end}.pem"))),
                place.mtu.to_string(),
            );
            let mut args = vec![
                "--dev",
                &device,
                "--dev-type",
                "tun",
                "--ifconfig",
                &inner,
                &other,
                "--local",
                &outer,
                "--lport",
                &port,
                "--remote",
                &peer,
                &port,
                "udp",
                "--cert",
                &certificate,
                "--key",
                &key,
                "--peer-fingerprint",
                &print,
                "--data-ciphers",
                "AES-256-GCM",
                "--disable-dco",
                "--tun-mtu",
                &mtu,
                "--mssfix",
                "0",
                "--sndbuf",
                "4194304",
                "--rcvbuf",
                "4194304",
                "--txqueuelen",
                "1000",
                "--verb",
                "3",
            ];
            args.extend(role);
            guards.push(start(space, &binary, &args, &[], &directory.at(&format!("{end}.log")))?);
        }
        for end in ["s", "c"] {
            let log = directory.at(&format!("{end}.log"));
            until("it does not come up", &log, || {
                fs::read_to_string(&log).is_ok_and(|said| said.contains("Initialization Sequence Completed"))
            })?;
        }
        Ok(tunnel(server, guards, directory))
    }

    /// strongSwan with kernel-libipsec, keys agreed by its own IKE.
    ///
    /// # Errors
    /// The step that failed.
    pub fn libipsec(&self, link: &Link, place: Place) -> io::Result<Tunnel> {
        let charon = self.find("charon")?;
        let directory = Directory::new("libipsec")?;
        let (server, client) = place.inner(1);
        let mut guards = Vec::new();
        for (space, end, (outer, peer), (inner, other)) in [
            (&link.server, "s", (SERVER, CLIENT), (server, client)),
            (&link.client, "c", (CLIENT, SERVER), (client, server)),
        ] {
            tool("ip", &["-n", &space.name, "addr", "add", &format!("{inner}/32"), "dev", "lo"])?;
            let own = directory.at(end);
            fs::create_dir_all(own.join("swanctl"))?;
            fs::write(
                own.join("swanctl/swanctl.conf"),
                format!(
                    "connections {{ peer {{ version = 2
  local_addrs = {outer}
  remote_addrs = {peer}
  proposals = aes256gcm16-prfsha384-x25519
  local {{ auth = psk }}
  remote {{ auth = psk }}
  children {{ inner {{ local_ts = {inner}/32
    remote_ts = {other}/32
    esp_proposals = aes256gcm128 }} }} }} }}
secrets {{ ike-1 {{ secret = \"of no worth\" }} }}
"
                ),
            )?;
            fs::write(
                own.join("strongswan.conf"),
                format!(
                    "charon {{ load = random nonce aes sha1 sha2 hmac kdf openssl curve25519 gcm kernel-libipsec kernel-netlink socket-default vici updown
  filelog {{ log {{ path = {log}
    default = 1
    flush_line = yes }} }}
  plugins {{ vici {{ socket = unix://{own}/vici }} }} }}
",
                    log = own.join("log").display(),
                    own = own.display(),
                ),
            )?;
            let (conf, swanctl) = (text(&own.join("strongswan.conf")), text(&own.join("swanctl")));
            let script = format!("mount -t tmpfs tmpfs /run && exec {}", charon.display());
            guards.push(start(
                space,
                Path::new("/usr/bin/unshare"),
                &["-m", "sh", "-c", &script],
                &[("STRONGSWAN_CONF", &conf), ("SWANCTL_DIR", &swanctl)],
                &own.join("out"),
            )?);
            until("charon does not start", &own.join("out"), || own.join("vici").exists())?;
            self.swanctl(&own, &["--load-all"])?;
        }
        self.swanctl(&directory.at("c"), &["--initiate", "--child", "inner", "--timeout", "15"])?;
        Ok(tunnel(server, guards, directory))
    }

    fn swanctl(&self, own: &Path, args: &[&str]) -> io::Result<()> {
        let out = Command::new(self.find("swanctl")?)
            .args(args)
            .args(["--uri", &format!("unix://{}/vici", own.display())])
            .env("STRONGSWAN_CONF", own.join("strongswan.conf"))
            .env("SWANCTL_DIR", own.join("swanctl"))
            .output()?;
        if out.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let log = fs::read_to_string(own.join("log")).unwrap_or_default();
        Err(io::Error::other(format!("swanctl {}: {said}{log}", args.join(" "))))
    }
}
