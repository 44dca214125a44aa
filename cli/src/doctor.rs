//! `levee doctor`: what this host has and lacks, found out by trying it, each lack with its remedy.

mod tables;

use std::borrow::Cow;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use levee_policy::Site;
use levee_sys::cgroup::{Cgroup, Limits};
use levee_sys::loopdev::LoopDevice;
use levee_sys::mount::{Attributes, Mount};
use levee_sys::net::Net;
use levee_sys::ns::{self, IdRange};
use levee_sys::{ports, sandbox, selinux, sockdiag, tun, udp};
use serde::Serialize;

use crate::enrol;
use crate::output::{self, Paint, shown};
use crate::pools::Pool;

/// Say what this host has and lacks for levee, each lack with its remedy
///
/// With --quiet only what is lacking. Exit status 0: levee can serve here. 1: something is lacking.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Where state is kept, the audit log among it; a site's is below it
    #[arg(long, value_name = "DIR", default_value = crate::site::STATES)]
    state: PathBuf,
    /// A site file: say too whether its interfaces are there, and whether what the kernel has once for all labels is enough for its labels
    site: Option<PathBuf>,
}

/// How one thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// It is there.
    Has,
    /// It is not there, and levee cannot serve without.
    Lacks,
    /// It is not there, and levee does with less.
    Weaker,
    /// It can only be found out as root, or from elsewhere.
    Untried,
}

#[derive(Debug, Serialize)]
struct Finding {
    what: Cow<'static, str>,
    state: State,
    /// What was found, or what went wrong.
    detail: String,
    /// What to do; empty where nothing is to be done.
    #[serde(skip_serializing_if = "str::is_empty")]
    remedy: Cow<'static, str>,
}

#[derive(Serialize)]
struct Answer<'a> {
    fit: bool,
    findings: &'a [Finding],
}

/// What to try: its name, the trial, and the remedy if the trial fails.
struct Trial {
    what: &'static str,
    root: bool,
    needed: bool,
    try_it: fn() -> Result<String, String>,
    remedy: &'static str,
}

const TRIALS: &[Trial] = &[
    Trial {
        what: "root",
        root: false,
        needed: true,
        try_it: root,
        remedy: "run levee as root (sudo): it makes namespaces and gives each process its own uid",
    },
    Trial {
        what: "levee's programs",
        root: false,
        needed: true,
        try_it: programs,
        remedy: "a server does not start with a program that was changed, is missing, or is of another version",
    },
    Trial {
        what: "Linux 6.1",
        root: false,
        needed: true,
        try_it: kernel,
        remedy: "boot a kernel of version 6.1 or newer",
    },
    Trial {
        what: "network namespaces",
        root: true,
        needed: true,
        try_it: || tried(ns::new_net()),
        remedy: "raise user.max_net_namespaces (sysctl); the kernel needs CONFIG_NET_NS=y",
    },
    Trial {
        what: "user namespaces",
        root: true,
        needed: true,
        try_it: || tried(user_namespace()),
        remedy: "raise user.max_user_namespaces (sysctl); the kernel needs CONFIG_USER_NS=y",
    },
    Trial {
        what: "other namespaces",
        root: false,
        needed: true,
        try_it: || {
            files(&[
                "/proc/self/ns/mnt",
                "/proc/self/ns/pid",
                "/proc/self/ns/ipc",
                "/proc/self/ns/uts",
                "/proc/self/ns/cgroup",
            ])
        },
        remedy: "the kernel needs CONFIG_NAMESPACES=y with all kinds (mnt, pid, ipc, uts, cgroup)",
    },
    Trial {
        what: "stores: ext4 mounted by descriptor, with mapped ids",
        root: true,
        needed: true,
        try_it: mounts,
        remedy: "install e2fsprogs, and boot a kernel of version 6.1 or newer with ext4 and loop devices",
    },
    Trial {
        what: "ext4",
        root: false,
        needed: true,
        try_it: || listed("/proc/filesystems", "ext4"),
        remedy: "load the module ext4 (modprobe ext4)",
    },
    Trial {
        what: "loop devices",
        root: true,
        needed: true,
        try_it: loops,
        remedy: "load the module loop (modprobe loop); in a container, pass on /dev/loop-control and /dev/loop*",
    },
    Trial {
        what: "TUN devices",
        root: true,
        needed: true,
        try_it: || {
            if tun::available() { Ok(String::new()) } else { Err("/dev/net/tun cannot be opened".into()) }
        },
        remedy: "load the module tun (modprobe tun); in a container, pass on /dev/net/tun",
    },
    Trial {
        what: "TCP and UDP segments from TUN devices",
        root: true,
        needed: false,
        try_it: segments,
        remedy: "boot a kernel of version 6.2 or newer; until then vaults work packet by packet where it lacks, and slower",
    },
    Trial {
        what: "datagrams sent and received together (UDP_SEGMENT, UDP_GRO)",
        root: false,
        needed: false,
        try_it: together,
        remedy: "boot a kernel of version 6.1 or newer; until then vaults send and receive one by one, and slower",
    },
    Trial {
        what: "steering by SPI (SO_REUSEPORT with classic BPF)",
        root: false,
        needed: true,
        try_it: || {
            tried(udp::steering_group(
                SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                1,
                65_536,
                &udp::SteeringKey::new([0; 16]),
            ))
        },
        remedy: "boot a kernel of version 6.1 or newer that lets sockets take a BPF program",
    },
    Trial {
        what: "ending connections (SOCK_DESTROY)",
        root: true,
        needed: true,
        try_it: destroy,
        remedy: "the kernel needs CONFIG_INET_DIAG_DESTROY=y, CONFIG_INET_TCP_DIAG and CONFIG_INET_UDP_DIAG",
    },
    Trial {
        what: "limits (cgroups)",
        root: true,
        needed: true,
        try_it: limits,
        remedy: "mount the unified hierarchy with memory, pids and cpu (systemd does), or the v1 controllers of these names",
    },
    Trial {
        what: "source ports (programs for cgroups)",
        root: true,
        needed: true,
        try_it: source_ports,
        remedy: "mount the unified hierarchy where it is not (systemd does), so that groups can be made in it; the kernel needs CONFIG_CGROUP_BPF=y",
    },
    Trial {
        what: "seccomp filters",
        root: false,
        needed: true,
        try_it: || listed("/proc/sys/kernel/seccomp/actions_avail", "kill_process"),
        remedy: "the kernel needs CONFIG_SECCOMP_FILTER=y",
    },
    Trial {
        what: "Landlock",
        root: false,
        needed: true,
        try_it: || {
            sandbox::landlock_abi().map(|abi| format!("version {}", abi as i32)).map_err(|e| e.to_string())
        },
        remedy: "add landlock to lsm= on the kernel's command line; it needs CONFIG_SECURITY_LANDLOCK=y",
    },
    Trial {
        what: "Landlock of TCP, sockets and signals (version 6)",
        root: false,
        needed: false,
        try_it: landlock_scopes,
        remedy: "boot a kernel of version 6.12 or newer; until then namespaces and seccomp stand alone there",
    },
    Trial {
        what: "ip",
        root: false,
        needed: false,
        try_it: || program("ip"),
        remedy: "install iproute2, if the laboratory (`levee lab`) is to measure on this host",
    },
    Trial {
        what: "room for datagrams in pieces",
        root: false,
        needed: false,
        try_it: tables::pieces,
        remedy: "set net.ipv4.ipfrag_time and net.ipv6.ip6frag_time to 3 and net.ipv4.ipfrag_high_thresh and net.ipv6.ip6frag_high_thresh to 67108864 \
                 (sysctl), if workstations may come by paths that take less than 1,500 octets",
    },
    Trial {
        what: "descriptors waited for by epoll",
        root: false,
        needed: false,
        try_it: tables::watches,
        remedy: "set fs.epoll.max_user_watches to 65536 (sysctl), or more where a service has more connections: a label that had 200,000 held up a \
                 processor for 80 ms",
    },
    Trial { what: "nft", root: false, needed: true, try_it: || program("nft"), remedy: "install nftables" },
    Trial {
        what: "mkfs.ext4",
        root: false,
        needed: true,
        try_it: || program("mkfs.ext4"),
        remedy: "install e2fsprogs",
    },
    Trial {
        what: "mkfs.erofs",
        root: false,
        needed: true,
        try_it: || program("mkfs.erofs"),
        remedy: "install erofs-utils: labels have their programs from an image; the kernel needs CONFIG_EROFS_FS",
    },
    Trial {
        what: "the form machine: kernels of their own for labels (QEMU and a kernel image)",
        root: false,
        needed: false,
        try_it: machines,
        remedy: "if a label is to have a kernel of its own: install qemu-system-x86 and linux-image-cloud-amd64, or unpack the latter \
                 (dpkg-deb -x) and name the place as `kernel-root` in [isolation]",
    },
    Trial {
        what: "SELinux with levee's module",
        root: true,
        needed: false,
        try_it: selinux,
        remedy: "if the kernel's own mandatory checks are to hold labels too: boot with an MLS policy, and semodule -i levee.cil \
                 (share/doc/levee/selinux)",
    },
    Trial {
        what: "nginx",
        root: false,
        needed: false,
        try_it: || program("nginx"),
        remedy: "install nginx-light, if a service of the site says `program = \"nginx\"`",
    },
];

/// Directories in which people, or programs that serve them, write as much as there is room for.
const FILLED: [&str; 8] =
    ["/", "/home", "/tmp", "/var/tmp", "/var/log", "/var/spool", "/var/lib/docker", "/var/lib/containerd"];

/// Whether the audit log shares its file system with what people can fill: a log that cannot be written to lets nobody in.
fn room(state: &Path) -> Finding {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).ok().map(|meta| meta.dev());
    // It may not have been made yet.
    let own = state.ancestors().find_map(device);
    let shared: Vec<&str> =
        FILLED.into_iter().filter(|path| own.is_some() && device(path.as_ref()) == own).collect();
    let (state, detail, remedy) = match (own, shared.as_slice()) {
        (Some(_), []) => (State::Has, String::new(), ""),
        (None, _) => {
            let detail = format!("{} cannot be looked at", state.display());
            (State::Weaker, detail, "name the state directory: levee doctor --state DIR")
        }
        (Some(_), shared) => {
            let detail = format!("{} is on the file system of {}", state.display(), shared.join(", "));
            let remedy = "mount a file system of its own there: whoever fills this one keeps everybody from signing on";
            (State::Weaker, detail, remedy)
        }
    };
    Finding {
        what: "a file system of its own for the audit log".into(),
        state,
        detail,
        remedy: remedy.into(),
    }
}

/// Whether the private key of the site's authority, which signs for whoever it is said to, is in a file here.
fn authority(site: &Site, path: &Path, states: &Path) -> Option<Finding> {
    let (state, detail, remedy) = match enrol::whereabouts(&states.join(site.name().as_str())) {
        Ok(None) => return None,
        Ok(Some(file @ enrol::Whereabouts::File(..))) => {
            let remedy = "keep it off line, or have one in a token follow it: levee enrol rotate SITE authority --token URI";
            (State::Weaker, format!("it is {file}"), remedy)
        }
        Ok(Some(other)) => (State::Has, format!("it is {other}"), ""),
        Err(why) => (State::Weaker, why.to_string(), "put it right: levee enrol cannot sign with it"),
    };
    let what = "an authority whose private key is in no file here".into();
    Some(Finding { what, state, detail, remedy: crate::site::named(remedy, path).into() })
}

/// Only somebody at its other end can tell whether it is as it should be.
const WIRE: &str = "the wire";

/// What of the wire has to be let in.
fn wire(site: Option<&Site>) -> Finding {
    let (trusted, keys, tunnel) = site.map_or((7443, 500, 4500), |site| {
        let server = site.server();
        (server.trusted_path_port(), server.ike_port(), server.tunnel_port())
    });
    let layer = site.filter(|site| site.hosts().any(|host| host.is_layered()));
    let layer = layer.map_or_else(String::new, |site| format!(", and {}/udp", site.server().layer_port()));
    let detail = format!("{trusted}/tcp, {keys}/udp and {tunnel}/udp{layer} of this host, from workstations");
    let remedy = "let them in at the host's firewall; `levee-tpe doctor` at a workstation tries them";
    Finding { what: WIRE.into(), state: State::Untried, detail, remedy: remedy.into() }
}

/// The interfaces of the site's networks and one-way channels.
fn interfaces(site: &Site, is_root: bool) -> Vec<Finding> {
    let finding = |(name, table, place): (String, &'static str, Option<String>)| {
        let (state, remedy) = match &place {
            Some(_) => (State::Has, ""),
            // One that is in use is in a namespace, which root alone looks into.
            None if !is_root => (State::Untried, "run `levee doctor` as root"),
            None => (State::Lacks, "make it (ip link), or put `interface` in the site file right"),
        };
        Finding {
            what: format!("the interface {name} of {table}").into(),
            state,
            detail: place.unwrap_or_default(),
            remedy: remedy.into(),
        }
    };
    crate::interfaces::found(site).into_iter().map(finding).collect()
}

/// What the kernel has once for all labels, each pool with what the site's labels could take.
fn pools(site: &Site) -> Vec<Finding> {
    let Some((labels, pools)) = crate::pools::of(site) else { return Vec::new() };
    let finding = |pool: Pool| {
        let (short, own) = (pool.is_short(), pool.is_one_labels());
        let state = if short { State::Weaker } else { State::Has };
        let detail = format!(
            "{} for levee's labels: one may take {}, {labels} at once {}{}",
            pool.host,
            pool.one,
            pool.all,
            if own { "; one label alone can take half" } else { "" },
        );
        let remedy = if short {
            Cow::Owned(format!("{}, or lower memory, processes or slots in the site file", pool.raise))
        } else {
            Cow::Borrowed("")
        };
        Finding { what: pool.what.into(), state, detail, remedy }
    };
    pools.into_iter().map(finding).collect()
}

/// Whether compartments get SELinux levels, for root: a type that the policy lacks has no context.
fn selinux() -> Result<String, String> {
    let state = selinux::state();
    if state == selinux::State::Off {
        return Err("the host has no SELinux".into());
    }
    let known = selinux::knows("system_u:system_r:levee_compartment_t:s1").map_err(|e| e.to_string())?;
    match (known, state) {
        (false, _) => Err("its policy has no levee_compartment_t at level s1".into()),
        (true, selinux::State::Permissive) => Err("permissive".into()),
        (true, _) => Ok("enforcing".into()),
    }
}

/// What a TUN device leaves to its reader, in a network namespace of its own.
fn segments() -> Result<String, String> {
    let net = ns::new_net().map_err(|e| e.to_string())?;
    let options = tun::Options { multi_queue: false, exclusive: true, vnet_header: true };
    let queue = ns::in_net(net.as_fd(), || tun::open("doctor", options)).map_err(|e| e.to_string())?;
    match queue.map_err(|e| e.to_string())?.offload() {
        tun::Offload::TcpAndUdp => Ok(String::new()),
        tun::Offload::Tcp => Err("TCP alone".into()),
        tun::Offload::None => Err("none".into()),
    }
}

fn together() -> Result<String, String> {
    match udp::together().map_err(|e| e.to_string())? {
        udp::Together { sends: true, receives: true } => Ok(String::new()),
        udp::Together { sends: true, receives: false } => Err("sent alone".into()),
        udp::Together { sends: false, .. } => Err("neither".into()),
    }
}

impl Doctor {
    /// Runs the command.
    pub fn run(self) -> ExitCode {
        let is_root = rustix::process::geteuid().is_root();
        let site = match self.site.as_deref().map(crate::site::read).transpose() {
            Ok(site) => site,
            Err(e) => return output::exit(Err(e)),
        };
        let findings: Vec<Finding> = TRIALS
            .iter()
            .map(|trial| trial.find(is_root))
            .chain([room(&self.state), wire(site.as_ref())])
            .chain(site.iter().zip(&self.site).filter_map(|(site, path)| authority(site, path, &self.state)))
            .chain(site.iter().flat_map(|site| interfaces(site, is_root)))
            .chain(site.iter().flat_map(pools))
            .collect();
        let fit = findings
            .iter()
            .all(|finding| matches!(finding.state, State::Has | State::Weaker) || finding.what == WIRE);
        let shown = if self.json {
            output::json(&Answer { fit, findings: &findings })
        } else {
            output::print(&render(&findings, fit, output::is_quiet(), Paint::stdout()))
        };
        let code = if fit { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        output::exit(shown.map(|()| code))
    }
}

/// Whether levee can serve here; what is lacking, each with its remedy, if not.
pub fn fit() -> Result<(), String> {
    let findings: Vec<Finding> = TRIALS.iter().map(|trial| trial.find(true)).collect();
    let lacking: Vec<Finding> =
        findings.into_iter().filter(|finding| finding.state == State::Lacks).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let lines = lacking
        .iter()
        .map(|Finding { what, detail, remedy, .. }| format!("\n  {what}: {}: {remedy}", shown(detail)));
    Err(format!(
        "this host lacks what levee needs:{}\n`levee doctor` tries everything",
        lines.collect::<String>()
    ))
}

impl Trial {
    fn find(&self, is_root: bool) -> Finding {
        if self.root && !is_root {
            return Finding {
                what: self.what.into(),
                state: State::Untried,
                detail: "only root can find out".to_owned(),
                remedy: "run `levee doctor` as root".into(),
            };
        }
        match (self.try_it)() {
            Ok(detail) => Finding { what: self.what.into(), state: State::Has, detail, remedy: "".into() },
            Err(detail) => {
                let state = if self.needed { State::Lacks } else { State::Weaker };
                Finding { what: self.what.into(), state, detail, remedy: self.remedy.into() }
            }
        }
    }
}

/// In words; `quiet`: only what is lacking, since the exit status says the rest.
fn render(findings: &[Finding], fit: bool, quiet: bool, paint: Paint) -> String {
    let mut out = String::new();
    for finding in findings.iter().filter(|finding| !quiet || finding.state == State::Lacks) {
        let word = match finding.state {
            State::Has => "has    ".to_owned(),
            State::Lacks => paint.error("lacks  "),
            State::Weaker => paint.bold("without"),
            State::Untried => paint.bold("untried"),
        };
        out.push_str(&format!("{word} {}", finding.what));
        if !finding.detail.is_empty() {
            out.push_str(&format!(": {}", shown(&finding.detail)));
        }
        out.push('\n');
        if !finding.remedy.is_empty() {
            out.push_str(&format!("        {}\n", finding.remedy));
        }
    }
    if !quiet {
        out.push_str(if fit { "levee can serve here\n" } else { "levee cannot serve here yet\n" });
    }
    out
}

fn tried<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<String, String> {
    result.map(|_| String::new()).map_err(|e| e.to_string())
}

fn root() -> Result<String, String> {
    let uid = rustix::process::geteuid();
    if uid.is_root() { Ok(String::new()) } else { Err(format!("this is uid {}", uid.as_raw())) }
}

fn programs() -> Result<String, String> {
    let directory = crate::programs::directory()?;
    Ok(match crate::programs::check(&directory, crate::programs::Use::Any)? {
        Some(count) => format!("{count} in {}, as they were installed", directory.display()),
        None => format!("not held to anything: no {} in {}", crate::programs::MANIFEST, directory.display()),
    })
}

fn kernel() -> Result<String, String> {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    if version(&release).is_some_and(|version| version >= (6, 1)) { Ok(release) } else { Err(release) }
}

/// Major and minor number of a kernel release such as `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn user_namespace() -> levee_sys::Result<std::os::fd::OwnedFd> {
    ns::new_user(IdRange { inside: 0, outside: 1_000_000, count: 65_536 })
}

/// What a label's store is: an ext4 image of its own whose ids are mapped (tmpfs takes such mounts from Linux 6.3 on).
fn mounts() -> Result<String, String> {
    let device = image(false)?;
    let made = std::process::Command::new("mkfs.ext4")
        .args(["-q", "-F", "-O", "^has_journal", device.path()])
        .output()
        .map_err(|e| format!("mkfs.ext4: {e}"))?;
    if !made.status.success() {
        return Err(format!("mkfs.ext4: {}", String::from_utf8_lossy(&made.stderr).trim()));
    }
    let mount = Mount::new("ext4", &[("source", device.path())], Attributes::default());
    let user = user_namespace().map_err(|e| e.to_string())?;
    tried(mount.map_err(|e| e.to_string())?.map_ids(user.as_fd()))
}

fn loops() -> Result<String, String> {
    image(true).map(|device| device.path().to_owned())
}

/// A block device over a megabyte of memory, bound only as long as this value lives.
fn image(read_only: bool) -> Result<LoopDevice, String> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let image = rustix::fs::memfd_create("levee-doctor", flags).map_err(|e| e.to_string())?;
    let image = fs::File::from(image);
    image.set_len(1 << 20).map_err(|e| e.to_string())?;
    LoopDevice::attach(&image, read_only).map_err(|e| e.to_string())
}

fn destroy() -> Result<String, String> {
    // A socket of ours in a namespace of its own, so that nobody else's can be meant.
    let address = Ipv4Addr::LOCALHOST;
    let net = ns::new_net().map_err(|e| e.to_string())?;
    let mut links = Net::in_ns(net.as_fd()).map_err(|e| e.to_string())?;
    links.set_up("lo").map_err(|e| e.to_string())?;
    let socket = ns::in_net(net.as_fd(), || std::net::UdpSocket::bind((address, 0)));
    let _socket = socket.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    match sockdiag::destroy(net.as_fd(), IpAddr::V4(address)) {
        Ok(1) => Ok(String::new()),
        Ok(other) => Err(format!("{other} sockets were destroyed where there was one")),
        Err(e) => Err(e.to_string()),
    }
}

fn limits() -> Result<String, String> {
    let limits = Limits { memory: 16 << 20, processes: 8, cpu_percent: 100 };
    let mut group =
        Cgroup::create(&format!("levee-doctor-{}", std::process::id()), limits).map_err(|e| e.to_string())?;
    tried(group.remove())
}

fn source_ports() -> Result<String, String> {
    let limits = Limits { memory: 16 << 20, processes: 8, cpu_percent: 100 };
    let name = format!("levee-doctor-ports-{}", std::process::id());
    let mut group = Cgroup::create(&name, limits).map_err(|e| e.to_string())?;
    let drawn = ports::draw_apart(&group);
    let removed = group.remove();
    tried(drawn.and(removed))
}

fn landlock_scopes() -> Result<String, String> {
    let abi = sandbox::landlock_abi().map_err(|e| e.to_string())? as i32;
    if abi >= 6 { Ok(format!("version {abi}")) } else { Err(format!("version {abi}")) }
}

fn files(paths: &[&str]) -> Result<String, String> {
    match paths.iter().find(|path| !Path::new(path).exists()) {
        Some(missing) => Err(format!("there is no {missing}")),
        None => Ok(String::new()),
    }
}

/// Whether a file of the kernel lists a word.
fn listed(path: &str, word: &str) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
    if text.split_whitespace().any(|found| found == word) {
        Ok(String::new())
    } else {
        Err(format!("{path} does not list {word}"))
    }
}

/// Where a program is. Those of the administrator are looked for too, whatever PATH says.
fn program(name: &str) -> Result<String, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(Into::into))
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .map(|path| path.display().to_string())
        .ok_or_else(|| "not found".to_owned())
}

/// What a host with KVM is told.
const KVM: &str = "/dev/kvm is there: write processor = \"kvm\" in [isolation] for labels far apart";

/// Which of the two forms this host can serve beside compartments, which it must.
fn machines() -> Result<String, String> {
    program("qemu-system-x86_64").map_err(|e| format!("qemu-system-x86_64: {e}"))?;
    let boot = fs::read_dir("/boot").into_iter().flatten().flatten();
    let versions =
        boot.filter_map(|entry| Some(entry.file_name().to_str()?.strip_prefix("vmlinuz-")?.to_owned()));
    let modules = |version: &String| Path::new("/lib/modules").join(version).join("kernel").is_dir();
    let version = versions
        .filter(modules)
        .max()
        .ok_or("there is no kernel with its modules in /boot and /lib/modules")?;
    let processor = if Path::new("/dev/kvm").exists() {
        KVM
    } else {
        "without KVM processors are emulated: many times slower"
    };
    Ok(format!("{version}; {processor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_lacking_or_weaker_and_says_what_to_do() {
        let trial = |needed, root| Trial {
            what: "it",
            root,
            needed,
            try_it: || Err("gone".into()),
            remedy: "buy it",
        };
        let found = trial(true, false).find(true);
        assert_eq!((found.state, found.detail.as_str(), &*found.remedy), (State::Lacks, "gone", "buy it"));
        assert_eq!(trial(false, false).find(true).state, State::Weaker);
        assert_eq!(trial(true, true).find(false).state, State::Untried);
        let all = [trial(false, false).find(true), found];
        let said = render(&all, false, false, Paint::plain());
        assert_eq!(
            said,
            "without it: gone\n        buy it\nlacks   it: gone\n        buy it\nlevee cannot serve here yet\n"
        );
        assert_eq!(render(&all, false, true, Paint::plain()), "lacks   it: gone\n        buy it\n");
        assert_eq!(render(&all[..1], true, true, Paint::plain()), "");
    }

    #[test]
    fn a_state_directory_beside_what_people_fill_is_weaker_and_one_of_its_own_is_not() {
        let beside = room("/".as_ref());
        assert_eq!(beside.state, State::Weaker);
        assert!(beside.detail.contains("file system of /") && !beside.remedy.is_empty(), "{}", beside.detail);
        // /proc is a file system in which nobody can fill anything.
        let own = room("/proc/self".as_ref());
        assert_eq!((own.state, &*own.remedy), (State::Has, ""), "{}", own.detail);
        // A directory that is to be made is judged by where it will be.
        assert_eq!(room("/proc/self/no/such".as_ref()).state, State::Has);
    }

    #[test]
    fn an_authority_whose_key_is_in_a_file_is_weaker_and_one_in_a_token_or_elsewhere_is_not() {
        let states = tempfile::tempdir().unwrap();
        let site = Site::parse(include_str!("../../conf/small/site.toml")).unwrap();
        let directory = states.path().join("harbour/authority");
        let found = || authority(&site, "/etc/levee/site.toml".as_ref(), states.path());
        assert!(found().is_none(), "there is none yet");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("ca.pem"), "").unwrap();
        let said = |state: State, detail: &str| {
            let found = found().unwrap();
            assert_eq!((found.state, found.remedy.is_empty()), (state, state == State::Has), "{found:?}");
            assert!(found.detail.contains(detail), "{found:?}");
        };
        said(State::Has, "not in this state directory");
        fs::write(directory.join("ca.key"), "-----BEGIN PRIVATE KEY-----").unwrap();
        said(State::Weaker, "authority/ca.key, not encrypted");
        assert!(found().unwrap().remedy.contains("rotate /etc/levee/site.toml authority"));
        fs::write(directory.join("ca.key"), "-----BEGIN ENCRYPTED PRIVATE KEY-----").unwrap();
        said(State::Weaker, "authority/ca.key, encrypted");
        fs::write(directory.join("ca.uri"), "pkcs11:token=a;object=b?module-path=/c").unwrap();
        said(State::Weaker, "remove the one that is not its");
        fs::remove_file(directory.join("ca.key")).unwrap();
        said(State::Has, "in a token, pkcs11:token=a;object=b, by the library /c");
        fs::write(directory.join("ca.uri"), "pkcs11:token=a").unwrap();
        said(State::Weaker, "ca.uri");
    }

    #[test]
    fn every_trial_has_a_remedy_and_its_own_name() {
        for (at, trial) in TRIALS.iter().enumerate() {
            assert!(!trial.remedy.is_empty());
            assert!(TRIALS[..at].iter().all(|earlier| earlier.what != trial.what), "{}", trial.what);
        }
    }

    #[test]
    fn kernel_releases_are_compared_by_number() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("6.18"), Some((6, 18)));
        assert!(version("5.15.0-x").unwrap() < (6, 1) && version("6.18.1").unwrap() > (6, 9));
        assert_eq!(version("linux"), None);
    }

    #[test]
    fn this_host_where_the_system_tests_run_is_found_fit() {
        // The system tests need what levee needs: where they are to run, the doctor must find everything.
        let lacking: Vec<Finding> =
            TRIALS.iter().map(|trial| trial.find(true)).filter(|found| found.state == State::Lacks).collect();
        assert!(lacking.is_empty(), "{}", render(&lacking, false, false, Paint::plain()));
    }
}
