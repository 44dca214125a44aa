//! Single-level networks with real peers: nginx in the label's namespace, curl and socat on an unmodified host on the
//! network and at a session's end of the tunnel.

use levee_policy::{LabelName, Site};
use levee_sys::net::Net;
use levee_sys::ns;
use levee_warden::Options;
use levee_warden::edges::Edges;
use levee_warden::networks::{Attached, Networks};
use levee_warden::pinned::release_others;
use levee_warden::rules::Reason;
use levee_warden::rules::Rules;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LABEL: &str = "SECRET";

/// The small site, with IPv6 and one network.
fn site() -> Site {
    Site::parse(&text()).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn text() -> String {
    let text = include_str!("../../../conf/small/site.toml")
        .replace("inner-address = \"10.80.0.1\"", "inner-address = [\"10.80.0.1\", \"fd80::1\"]")
        .replace("inner-pool = \"10.80.1.0/24\"", "inner-pool = [\"10.80.1.0/24\", \"fd80:1::/64\"]");
    let network = r#"
[[network]]
interface = "ship0"
label = "SECRET"
address = ["192.168.7.1/24", "fd07::1/64"]
services = ["web"]
neighbours = 12
hosts = [
    { address = "192.168.7.9", port = 8080, protocol = "tcp" },
    { address = "fd07::9", port = 8080, protocol = "tcp" },
]
"#;
    format!("{text}{network}")
}

/// How many hosts the network's part of the table of neighbours has room for.
const KNOWN: usize = 12;

/// Who loads and reads the rules.
const RULES: &str = env!("CARGO_BIN_EXE_levee-rules");

fn rules() -> Rules {
    Rules::new(&text(), Path::new(RULES).parent().unwrap())
}

/// Outside, a host on the network, and the session's end of the tunnel: each a namespace.
struct World {
    directory: tempfile::TempDir,
    site: Site,
    outer: OwnedFd,
    remote: OwnedFd,
    session: OwnedFd,
    children: Vec<Child>,
}

impl World {
    fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test makes network namespaces: run it as root");
        let world = Self {
            directory: tempfile::tempdir().unwrap(),
            site: site(),
            outer: ns::new_net().unwrap(),
            remote: ns::new_net().unwrap(),
            session: ns::new_net().unwrap(),
            children: Vec::new(),
        };
        Net::in_ns(world.outer.as_fd())
            .unwrap()
            .add_veth("ship0", "eth0", Some(world.remote.as_fd()))
            .unwrap();
        let mut remote = Net::in_ns(world.remote.as_fd()).unwrap();
        for address in ["192.168.7.9/24", "192.168.7.10/24", "fd07::9/64"] {
            remote.add_address("eth0", address.parse().unwrap()).unwrap();
        }
        remote.set_up("lo").unwrap();
        remote.set_up("eth0").unwrap();
        world
    }

    fn pins(&self) -> PathBuf {
        self.directory.path().join("net")
    }

    fn label(&self) -> LabelName {
        LABEL.parse().unwrap()
    }

    fn attach(&self) -> levee_sys::Result<Option<Attached>> {
        let label = self.site.label(&self.label()).unwrap();
        Attached::attach(&self.site, &rules(), &self.label(), &label, self.outer.as_fd(), &self.pins())
    }

    /// A link in the tunnel's place, with a session's end; then forwarding, as when a label starts.
    fn tunnel(&self, attached: &Attached) {
        let network = attached.network().unwrap();
        let mut inside = network.net().unwrap();
        inside.add_veth("levee0", "tun", Some(self.session.as_fd())).unwrap();
        for address in ["10.80.0.1/32", "fd80::1/128"] {
            inside.add_address("levee0", address.parse().unwrap()).unwrap();
        }
        inside.set_up("levee0").unwrap();
        for pool in ["10.80.1.0/24", "fd80:1::/64"] {
            inside.add_route(pool.parse().unwrap(), None, "levee0").unwrap();
        }
        let mut session = Net::in_ns(self.session.as_fd()).unwrap();
        session.set_up("lo").unwrap();
        for address in ["10.80.1.5/32", "fd80:1::5/128"] {
            session.add_address("tun", address.parse().unwrap()).unwrap();
        }
        session.set_up("tun").unwrap();
        for reach in ["10.80.0.1/32", "192.168.7.0/24", "fd80::1/128", "fd07::/64"] {
            session.add_route(reach.parse().unwrap(), None, "tun").unwrap();
        }
        // A TUN has no neighbours to be found; a link in its place has, and finds them for addresses beyond itself.
        sysctl(network.ns(), "ipv4/conf/levee0/proxy_arp", "1");
        sysctl(network.ns(), "ipv6/conf/levee0/proxy_ndp", "1");
        ok(network.ns(), "ip", &["-6", "neigh", "add", "proxy", "fd07::9", "dev", "levee0"]);
        attached.forward().unwrap();
    }

    /// A real nginx where the label's services are.
    fn nginx(&mut self, attached: &Attached) {
        let root = self.directory.path().join("web");
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("index.html"), "page at SECRET\n").unwrap();
        let configuration = self.directory.path().join("nginx.conf");
        let at = self.directory.path().display();
        let text = format!(
            "daemon off; master_process off; user root; pid {at}/pid; error_log stderr; events {{}}\nhttp {{ access_log {at}/access; \
             client_body_temp_path {at}/1; proxy_temp_path {at}/2; fastcgi_temp_path {at}/3; uwsgi_temp_path {at}/4; \
             scgi_temp_path {at}/5;\nserver {{ listen 10.80.0.1:80; listen [fd80::1]:80; root {at}/web; }} }}\n"
        );
        fs::write(&configuration, text).unwrap();
        let network = attached.network().unwrap();
        attached.forward().unwrap();
        let configuration = configuration.to_str().unwrap().to_owned();
        self.spawn(network.ns(), "nginx", &["-e", "stderr", "-c", &configuration]);
        eventually("nginx listens", || run(network.ns(), "curl", &["-s", "-m1", "http://10.80.0.1/"]).0);
    }

    fn spawn(&mut self, ns: BorrowedFd<'_>, program: &str, arguments: &[&str]) {
        let start =
            || Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = ns::in_net(ns, start).unwrap();
        self.children
            .push(child.unwrap_or_else(|e| panic!("{program}: {e} (scripts/need test installs it)")));
    }

    fn remote_curl(&self, arguments: &[&str]) -> (bool, String) {
        run(self.remote.as_fd(), "curl", &[&["-s", "-g", "-m1"], arguments].concat())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        // A test that failed leaves its pin behind otherwise.
        let _ = release_others::<&str>(&self.pins(), &[], self.outer.as_fd());
    }
}

fn run(ns: BorrowedFd<'_>, program: &str, arguments: &[&str]) -> (bool, String) {
    let output =
        ns::in_net(ns, || Command::new(program).args(arguments).stdin(Stdio::null()).output()).unwrap();
    let output = output.unwrap_or_else(|e| panic!("{program}: {e} (scripts/need test installs it)"));
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn ok(ns: BorrowedFd<'_>, program: &str, arguments: &[&str]) {
    let (done, said) = run(ns, program, arguments);
    assert!(done, "{program} {arguments:?}: {said}");
}

fn sysctl(ns: BorrowedFd<'_>, name: &str, value: &str) {
    ns::in_net(ns, || fs::write(format!("/proc/sys/net/{name}"), value)).unwrap().unwrap();
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < until, "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// What levee-rules counts of the one interface.
fn dropped(attached: &Attached, reason: Reason) -> u64 {
    let count = || {
        let mut child = Command::new(RULES)
            .args(["count", LABEL])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let output = ns::in_net(attached.network().unwrap().ns(), count).unwrap();
    assert!(output.status.success());
    let counts = String::from_utf8(output.stdout).unwrap();
    let what = format!(" dropped at ship0: {}", reason.as_str());
    counts.lines().find_map(|line| line.strip_suffix(&what)).map_or(0, |count| count.parse().unwrap())
}

fn names(ns: BorrowedFd<'_>) -> Vec<String> {
    let mut names: Vec<_> = Net::in_ns(ns).unwrap().links().unwrap().into_iter().map(|l| l.name).collect();
    names.sort();
    names
}

#[test]
fn hosts_on_the_network_reach_listed_services_and_nothing_else() {
    let mut world = World::new();
    let attached = world.attach().unwrap().unwrap();
    world.tunnel(&attached);
    world.nginx(&attached);
    for address in ["192.168.7.1", "[fd07::1]"] {
        let url = format!("http://{address}/");
        // The host's kernel takes up to a second to notice that the link has a carrier.
        eventually("the link is up", || world.remote_curl(&[&url]).0);
        let (done, page) = world.remote_curl(&[&url]);
        assert!(done && page == "page at SECRET\n", "{address}: {page}");
    }
    // A port that is open inside, but not listed.
    let network = attached.network().unwrap();
    attached.forward().unwrap();
    let _open = ns::in_net(network.ns(), || TcpListener::bind("0.0.0.0:2222")).unwrap().unwrap();
    let before = dropped(&attached, Reason::Service);
    assert!(!world.remote_curl(&["http://192.168.7.1:2222/"]).0);
    assert!(dropped(&attached, Reason::Service) > before);

    // The inner address itself, by a route of the host's own.
    let mut remote = Net::in_ns(world.remote.as_fd()).unwrap();
    remote.add_route("10.80.0.0/16".parse().unwrap(), Some("192.168.7.1".parse().unwrap()), "eth0").unwrap();
    let before = dropped(&attached, Reason::Service);
    assert!(!world.remote_curl(&["http://10.80.0.1/"]).0);
    assert!(dropped(&attached, Reason::Service) > before);

    // A session's address behind the compartment.
    let _at_session =
        ns::in_net(world.session.as_fd(), || TcpListener::bind("10.80.1.5:80")).unwrap().unwrap();
    let before = dropped(&attached, Reason::Through);
    assert!(!world.remote_curl(&["http://10.80.1.5/"]).0);
    assert!(dropped(&attached, Reason::Through) > before);

    // A session's address as the sender's.
    remote.add_address("eth0", "10.80.1.5/32".parse().unwrap()).unwrap();
    assert!(!world.remote_curl(&["--interface", "10.80.1.5", "http://192.168.7.1/"]).0);

    // The listed port by another protocol.
    let before = dropped(&attached, Reason::Service);
    let datagram =
        || UdpSocket::bind("192.168.7.9:0").and_then(|socket| socket.send_to(b"x", "192.168.7.1:80"));
    ns::in_net(world.remote.as_fd(), datagram).unwrap().unwrap();
    assert!(dropped(&attached, Reason::Service) > before);

    // An address of another interface, asked for by ARP.
    remote.add_route("10.80.0.1/32".parse().unwrap(), None, "eth0").unwrap();
    assert!(!world.remote_curl(&["http://10.80.0.1/"]).0);
    let neighbours = run(world.remote.as_fd(), "ip", &["neigh", "show", "10.80.0.1"]).1;
    assert!(!neighbours.contains("lladdr"), "{neighbours}");
    drop(network);
    attached.detach(world.outer.as_fd()).unwrap();
}

#[test]
fn from_a_services_own_port_a_program_of_the_compartment_begins_no_connection() {
    let mut world = World::new();
    let attached = world.attach().unwrap().unwrap();
    world.tunnel(&attached);
    let remote = world.remote.try_clone().unwrap();
    for (kind, six) in [("TCP4", ""), ("TCP6", ",ipv6only=1")] {
        let listen = format!("{kind}-LISTEN:8081,fork,reuseaddr{six}");
        world.spawn(remote.as_fd(), "socat", &[&listen, "SYSTEM:echo here"]);
    }
    let network = attached.network().unwrap();
    attached.forward().unwrap();
    let ask = |ns: BorrowedFd<'_>, host: &str, bind: &str| {
        run(ns, "socat", &["-u", &format!("TCP:{host}:8081,connect-timeout=1{bind}"), "-"]).1
    };
    let ways = [
        ("192.168.7.9", "10.80.0.1:80"),
        ("192.168.7.9", "192.168.7.1:80"),
        ("[fd07::9]", "[fd80::1]:80"),
        ("[fd07::9]", "[fd07::1]:80"),
    ];
    for (host, own) in ways {
        eventually("socat listens", || ask(remote.as_fd(), host, "").contains("here"));
        let bind = format!(",bind={own},reuseaddr");
        let before = dropped(&attached, Reason::Own);
        assert!(!ask(network.ns(), host, &bind).contains("here"), "{own}");
        // An address that is not set up yet cannot be bound to; then nothing would have been tried.
        eventually("it is dropped", || {
            ask(network.ns(), host, &bind);
            dropped(&attached, Reason::Own) > before
        });
    }
    drop(network);
    attached.detach(world.outer.as_fd()).unwrap();
}

#[test]
fn what_sessions_say_to_services_is_not_tracked_and_fills_no_table_that_hosts_on_the_network_need() {
    let mut world = World::new();
    let attached = world.attach().unwrap().unwrap();
    world.tunnel(&attached);
    world.nginx(&attached);
    let network = attached.network().unwrap();
    let tracked = || {
        let (done, count) = run(network.ns(), "cat", &["/proc/sys/net/netfilter/nf_conntrack_count"]);
        assert!(done, "{count}");
        count.trim().parse::<u32>().unwrap()
    };
    let session = world.session.try_clone().unwrap();
    let page = |ns: BorrowedFd<'_>, at: &str| {
        run(ns, "curl", &["-s", "-g", "-m1", &format!("http://{at}/")]).1 == "page at SECRET\n"
    };
    for inner in ["10.80.0.1", "[fd80::1]"] {
        eventually("a session has its page", || page(session.as_fd(), inner));
        eventually("a program of the compartment has its page", || page(network.ns(), inner));
    }
    // What it says to itself by other addresses, too, where nobody listens.
    for own in ["127.0.0.1", "::1", "192.168.7.1", "fd07::1"] {
        let said = run(network.ns(), "bash", &["-c", &format!("echo x > /dev/udp/{own}/9")]);
        assert!(said.0, "{own}: {}", said.1);
    }
    assert_eq!(tracked(), 0);
    let mut before = 0;
    for edge in ["192.168.7.1", "[fd07::1]"] {
        eventually("a host on the network has its page", || page(world.remote.as_fd(), edge));
        assert!(tracked() > before, "{edge}: tracking cannot be seen here");
        before = tracked();
    }
    drop(network);
    attached.detach(world.outer.as_fd()).unwrap();
}

#[test]
fn a_host_in_made_up_names_fills_its_networks_part_of_the_table_of_neighbours_and_no_more() {
    let mut world = World::new();
    let attached = world.attach().unwrap().unwrap();
    world.tunnel(&attached);
    world.nginx(&attached);
    let network = attached.network().unwrap();
    let known = |six: &str| {
        let (done, all) = run(network.ns(), "ip", &[six, "neigh", "show", "dev", "ship0"]);
        assert!(done, "{all}");
        all.lines().count()
    };
    let page = |from: &str, at: &str| {
        let url = format!("http://{at}/");
        run(world.remote.as_fd(), "curl", &["-s", "-g", "-m0.5", "--interface", from, &url]).1
            == "page at SECRET\n"
    };
    for (version, own, server) in [("-4", "192.168.7.9", "192.168.7.1"), ("-6", "fd07::9", "[fd07::1]")] {
        eventually("a host has its page", || page(own, server));
        // Each name asks for the server, or begins a connection, as any host does; all are this one's.
        let mut remote = Net::in_ns(world.remote.as_fd()).unwrap();
        let names: Vec<String> = (100..130)
            .map(|n| if version == "-4" { format!("192.168.7.{n}") } else { format!("fd07::{n}") })
            .collect();
        for name in &names {
            let prefix = if version == "-4" { format!("{name}/24") } else { format!("{name}/64") };
            remote.add_address("eth0", prefix.parse().unwrap()).unwrap();
        }
        let heard = names.iter().filter(|name| page(name, server)).count();
        assert!((1..=KNOWN).contains(&heard), "{version}: {heard} had their page");
        let entries = known(version);
        // (The host's own addresses of the link are among them.)
        assert!((heard..=2 * KNOWN).contains(&entries), "{version}: {entries} are known");
        // Who was there before still is, once its kernel asks in its own name.
        eventually("the host has its page again", || page(own, server));
    }
    drop(network);
    attached.detach(world.outer.as_fd()).unwrap();
}

/// Asks in thirty made-up names where the server is: by ARP, and by neighbour solicitation (RFC 4861).
const ASKS: &str = include_str!("../../../tests/system/probes/asks.py");

#[test]
fn who_asks_for_the_server_in_made_up_names_is_known_by_no_more_of_them_than_there_is_room_for() {
    let world = World::new();
    let attached = world.attach().unwrap().unwrap();
    let network = attached.network().unwrap();
    let known = |six: &str| {
        let (done, all) = run(network.ns(), "ip", &[six, "neigh", "show", "dev", "ship0"]);
        assert!(done, "{all}");
        all.lines().filter(|line| line.contains("lladdr")).count()
    };
    // An address that is being looked at does not answer yet.
    eventually("some are known", || {
        ok(world.remote.as_fd(), "python3", &["-c", ASKS]);
        known("-4") > 0 && known("-6") > 0
    });
    for version in ["-4", "-6"] {
        assert!(known(version) <= KNOWN, "{version}: {} are known", known(version));
    }
    drop(network);
    attached.detach(world.outer.as_fd()).unwrap();
}

/// As the site's network, but for two labels, whose packets carry them.
fn labelled() -> String {
    let domain = "\n[[domain]]\ndoi = 16\nlevels = { UNCLASSIFIED = 1, CONFIDENTIAL = 2, SECRET = 5 }\ncategories = { NATO = 0, MED = 9 }\n";
    let labels = "labels = \"CONFIDENTIAL..SECRET\"\ndomain = 16";
    let (before, network) =
        text().split_once("[[network]]").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    format!("{before}{domain}\n[[network]]{}", network.replace("label = \"SECRET\"", labels))
}

/// Begins connections at SECRET in thirty made-up names: with CIPSO's label, and with CALIPSO's.
const BEGINS: &str = include_str!("../../../tests/system/probes/begins.py");

#[test]
fn on_a_labelled_network_made_up_names_fill_its_part_of_the_table_of_neighbours_and_no_more() {
    let mut world = World::new();
    world.site = Site::parse(&labelled()).unwrap_or_else(|problems| panic!("{problems:?}"));
    ns::in_net(world.outer.as_fd(), || made_up_names_on_a_labelled_network(&world)).unwrap();
}

/// In the network where the interface is.
fn made_up_names_on_a_labelled_network(world: &World) {
    let (place, programs) = (world.directory.path().to_str().unwrap(), Path::new(RULES).parent().unwrap());
    let words =
        ["--server", "site.toml", "--state", place, "--run", place, "--programs", programs.to_str().unwrap()];
    let options = Options::parse(words.map(str::to_owned)).unwrap();
    let mut networks = Networks::attach(&world.site, &labelled(), &options).unwrap();
    world.tunnel(networks.at(&world.label()).expect("it has a network"));
    let link = fs::File::open(world.directory.path().join("labelled/ship0")).unwrap();
    let shown = run(link.as_fd(), "ip", &["-br", "link", "show", "ship0"]).1;
    let address = shown.split_ascii_whitespace().nth(2).expect("an address").to_owned();
    let known = |six: &str| {
        let (done, all) = run(link.as_fd(), "ip", &[six, "neigh", "show", "dev", "ship0", "nud", "all"]);
        assert!(done, "{all}");
        all.lines().filter(|line| !line.contains("NOARP")).count()
    };
    // An address that is being looked at does not answer yet.
    eventually("some are known", || {
        ok(world.remote.as_fd(), "python3", &["-c", ASKS]);
        known("-4") > 0 && known("-6") > 0
    });
    for version in ["-4", "-6"] {
        assert!(known(version) <= KNOWN, "{version}: {} are known that asked", known(version));
    }
    let asked = [known("-4"), known("-6")];
    eventually("who begins connections is known", || {
        ok(world.remote.as_fd(), "python3", &["-c", BEGINS, &address]);
        known("-4") > asked[0] && known("-6") > asked[1]
    });
    for version in ["-4", "-6"] {
        // Of two labels each has half.
        assert!(known(version) <= KNOWN + KNOWN / 2, "{version}: {} are known", known(version));
    }
    networks.detach();
}

/// Says what comes to the interface eth0 of a network, for two seconds, after it has said that it looks.
const LOOK: &str = "
import socket, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(('eth0', 0))
print('looks', flush=True)
s.settimeout(0.1)
until = time.monotonic() + 2
while time.monotonic() < until:
    try:
        frame = s.recv(2048)
    except TimeoutError:
        continue
    print('a word' if b'what is no answer' in frame else 'another', flush=True)
";

/// A connection between two programs of the compartment, one of which then wants its segments to go by way of a host.
const DETOUR: &str = "
import socket, struct, sys, time
inner, host, way = sys.argv[1:]
family = socket.AF_INET6 if ':' in inner else socket.AF_INET
listener = socket.socket(family)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((inner, 80))
listener.listen()
other = socket.create_connection((inner, 80))
one = listener.accept()[0]
if way == 'by-way':
    final, first = socket.inet_pton(family, inner), socket.inet_pton(family, host)
    if family == socket.AF_INET6:
        IPV6_RTHDR = 57
        one.setsockopt(socket.IPPROTO_IPV6, IPV6_RTHDR, struct.pack('!BBBBBBH', 0, 4, 4, 1, 1, 0, 0) + final + first)
    else:
        one.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([131, 7, 4]) + first + bytes(1))
        # Only what changes the route has it looked for again.
        one.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 8)
one.send(b'what is no answer')
time.sleep(0.5)
";

#[test]
fn by_a_source_route_nothing_reaches_a_host_that_is_no_answer() {
    let world = World::new();
    let attached = world.attach().unwrap().unwrap();
    world.tunnel(&attached);
    let network = attached.network().unwrap();
    for (inner, host) in [("10.80.0.1", "192.168.7.9"), ("fd80::1", "fd07::9")] {
        eventually("the address is there", || {
            let (done, said) = run(network.ns(), "python3", &["-c", DETOUR, inner, host, "straight"]);
            assert!(done || said.contains("assign"), "{said}");
            done
        });
        let mut look = ns::in_net(world.remote.as_fd(), || {
            Command::new("python3").args(["-c", LOOK]).stdout(Stdio::piped()).spawn()
        })
        .unwrap()
        .unwrap();
        let mut said = BufReader::new(look.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "looks\n");
        // The route is an option of IPv4's.
        let why = if inner.contains(':') { Reason::Own } else { Reason::Options };
        let before = dropped(&attached, why);
        ok(network.ns(), "python3", &["-c", DETOUR, inner, host, "by-way"]);
        let mut seen = String::new();
        said.read_to_string(&mut seen).unwrap();
        assert!(look.wait().unwrap().success());
        assert!(!seen.contains("a word"), "{inner}: {seen}");
        assert!(dropped(&attached, why) > before, "it was tried");
    }
    drop(network);
    attached.detach(world.outer.as_fd()).unwrap();
}

/// A service that answers each datagram, and says something more to who sent it by way of the interface ship0.
const ASIDE: &str = "
import socket, struct, sys
six = sys.argv[1] == '6'
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('fd80::1' if six else '10.80.0.1', 7))
ship0 = struct.pack('i', socket.if_nametoindex('ship0'))
if six: way = (socket.IPPROTO_IPV6, 50, socket.inet_pton(socket.AF_INET6, 'fd80::1') + ship0)
else: way = (socket.IPPROTO_IP, 8, ship0 + socket.inet_aton('10.80.0.1') + bytes(4))
print('serves', flush=True)
while True:
    said, sender = s.recvfrom(100)
    print(said.decode(), flush=True)
    s.sendto(b'answer', sender)
    for _ in range(3):
        try: s.sendmsg([b'aside'], [way], 0, sender)
        except OSError: pass
";

/// A host that takes another's address, says something in its name for two seconds, and then what it has heard.
const MASK: &str = "
import socket, sys, time
six = sys.argv[1] == '6'
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('fd08::9' if six else '192.168.8.9', 5000))
s.settimeout(0.1)
until = time.monotonic() + 2
heard = set()
print('speaks', flush=True)
while time.monotonic() < until:
    s.sendto(b'forged', ('fd08::1' if six else '192.168.8.1', 7))
    try: heard.add(s.recv(100).decode())
    except OSError: pass
print('heard', *heard)
";

/// A host that asks the service something, and says what it answers.
const ASK: &str = "
import socket, sys
six = sys.argv[1] == '6'
s = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('fd08::9' if six else '192.168.8.9', 5000))
s.settimeout(1)
s.sendto(sys.argv[2].encode(), ('fd08::1' if six else '192.168.8.1', 7))
print(s.recv(100).decode())
";

#[test]
fn a_host_of_one_network_says_and_hears_nothing_in_a_connection_of_another() {
    let mut world = World::new();
    // A second network of the label's, which has another service.
    let second = r#"
[[service]]
name = "answer"
port = 7
protocol = "udp"
range = "SECRET"
mode = "direct"
command = ["/usr/bin/true"]

[[network]]
interface = "ship1"
label = "SECRET"
address = ["192.168.8.1/24", "fd08::1/64"]
services = ["answer"]
"#;
    let text = format!("{}{second}", text());
    world.site = Site::parse(&text).unwrap_or_else(|problems| panic!("{problems:?}"));
    let honest = ns::new_net().unwrap();
    Net::in_ns(world.outer.as_fd()).unwrap().add_veth("ship1", "eth0", Some(honest.as_fd())).unwrap();
    for (host, addresses) in
        [(&honest, ["192.168.8.9/24", "fd08::9/64"]), (&world.remote, ["192.168.8.9/32", "fd08::9/128"])]
    {
        let mut net = Net::in_ns(host.as_fd()).unwrap();
        addresses.into_iter().for_each(|address| net.add_address("eth0", address.parse().unwrap()).unwrap());
        net.set_up("eth0").unwrap();
    }
    let rules = Rules::new(&text, Path::new(RULES).parent().unwrap());
    let label = world.site.label(&world.label()).unwrap();
    let attached =
        Attached::attach(&world.site, &rules, &world.label(), &label, world.outer.as_fd(), &world.pins());
    let attached = attached.unwrap().unwrap();
    world.tunnel(&attached);
    let mut remote = Net::in_ns(world.remote.as_fd()).unwrap();
    for (to, by) in [("192.168.8.1/32", "192.168.7.1"), ("fd08::1/128", "fd07::1")] {
        remote.add_route(to.parse().unwrap(), Some(by.parse().unwrap()), "eth0").unwrap();
    }
    let network = attached.network().unwrap();
    for (family, by) in [("4", "192.168.7.1"), ("6", "fd07::1")] {
        let ask =
            |what: &str| run(honest.as_fd(), "python3", &["-c", ASK, family, what]).1.ends_with("answer\n");
        let serve = || Command::new("python3").args(["-c", ASIDE, family]).stdout(Stdio::piped()).spawn();
        let mut said = None;
        eventually("the service's address is there", || {
            let mut service = ns::in_net(network.ns(), serve).unwrap().unwrap();
            let mut lines = BufReader::new(service.stdout.take().unwrap()).lines().map(Result::unwrap);
            world.children.push(service);
            let is_there = lines.next().is_some_and(|line| line == "serves");
            said = Some(lines);
            is_there
        });
        eventually("the service answers its own network", || ask("question"));
        // The other network's host is there, and reached where it may be.
        eventually("the other network is up", || {
            run(world.remote.as_fd(), "ping", &["-c1", "-W1", by]);
            run(world.remote.as_fd(), "ip", &["neigh", "show", by]).1.contains("lladdr")
        });
        let mask = || Command::new("python3").args(["-c", MASK, family]).stdout(Stdio::piped()).spawn();
        let mut mask = ns::in_net(world.remote.as_fd(), mask).unwrap().unwrap();
        let mut heard = BufReader::new(mask.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(heard.next().as_deref(), Some("speaks"));
        // What the service says aside goes to who asked last, also while the other listens.
        eventually("the service answers still", || ask("last"));
        assert_eq!(heard.next().as_deref(), Some("heard"), "IPv{family}");
        mask.wait().unwrap();
        eventually("the service answers still", || ask("end"));
        let spoken: Vec<String> = said.unwrap().take_while(|line| line != "end").collect();
        let own = |line: &String| line == "question" || line == "last";
        assert!(spoken.iter().all(own), "IPv{family}: {spoken:?} in its name");
    }
    drop(network);
    attached.detach(world.outer.as_fd()).unwrap();
}

#[test]
fn sessions_reach_listed_hosts_under_the_interfaces_address_and_nothing_else() {
    let mut world = World::new();
    let attached = world.attach().unwrap().unwrap();
    world.tunnel(&attached);
    let remote = world.remote.try_clone().unwrap();
    for (kind, port) in [("TCP4", 8080), ("TCP4", 8081), ("TCP6", 8080)] {
        let listen =
            format!("{kind}-LISTEN:{port},fork,reuseaddr{}", if kind == "TCP6" { ",ipv6only=1" } else { "" });
        // socat tells what it sees of the peer.
        world.spawn(remote.as_fd(), "socat", &[&listen, "SYSTEM:echo for $SOCAT_PEERADDR"]);
    }
    let ask = |ns: BorrowedFd<'_>, address: &str| {
        run(ns, "socat", &["-u", &format!("TCP:{address},connect-timeout=1"), "-"]).1
    };
    for address in ["[fd07::9]:8080", "192.168.7.9:8080", "192.168.7.9:8081"] {
        eventually("socat listens", || ask(remote.as_fd(), address).starts_with("for "));
    }
    assert_eq!(ask(world.session.as_fd(), "192.168.7.9:8080"), "for 192.168.7.1\n");
    assert_eq!(
        ask(world.session.as_fd(), "[fd07::9]:8080"),
        "for [fd07:0000:0000:0000:0000:0000:0000:0001]\n"
    );
    assert_eq!(dropped(&attached, Reason::Host), 0);
    // Another port of the same host, and another host.
    for address in ["192.168.7.9:8081", "192.168.7.10:8080"] {
        let before = dropped(&attached, Reason::Host);
        assert!(!ask(world.session.as_fd(), address).starts_with("for "));
        assert!(dropped(&attached, Reason::Host) > before, "{address}");
    }
    // A program in the compartment is no session.
    let network = attached.network().unwrap();
    attached.forward().unwrap();
    let before = dropped(&attached, Reason::Own);
    assert!(!ask(network.ns(), "192.168.7.9:8080").starts_with("for "));
    assert!(dropped(&attached, Reason::Own) > before);
    drop(network);
    attached.detach(world.outer.as_fd()).unwrap();
}

#[test]
fn an_interface_stays_with_its_label_when_the_warden_is_killed_and_is_given_back_down() {
    let mut world = World::new();
    let attached = world.attach().unwrap().unwrap();
    assert_eq!(names(world.outer.as_fd()), ["lo"]);
    // Killed: nothing is said to anybody.
    drop(attached);
    assert_eq!(names(world.outer.as_fd()), ["lo"]);
    let attached = world.attach().unwrap().unwrap();
    world.tunnel(&attached);
    world.nginx(&attached);
    assert!(world.remote_curl(&["http://192.168.7.1/"]).0);
    attached.detach(world.outer.as_fd()).unwrap();
    let link = Net::in_ns(world.outer.as_fd()).unwrap().find("ship0").unwrap().expect("it is back");
    assert!(!link.up);
    assert_eq!(fs::read_dir(world.pins()).unwrap().count(), 0);
}

#[test]
fn no_interface_of_a_label_takes_a_route_from_a_redirect_or_sends_one() {
    let world = World::new();
    let attached = world.attach().unwrap().unwrap();
    world.tunnel(&attached);
    let list = "cd /proc/sys/net && grep -H . ipv4/conf/*/*_redirects ipv6/conf/*/accept_redirects";
    let (done, all) = run(attached.network().unwrap().ns(), "sh", &["-c", list]);
    assert!(done, "{all}");
    for interface in ["ship0", "levee0", "default", "all"] {
        for family in ["ipv4", "ipv6"] {
            assert!(all.contains(&format!("{family}/conf/{interface}/accept_redirects:0")), "{all}");
        }
    }
    assert!(all.lines().all(|line| line.ends_with(":0")), "{all}");
}

#[test]
fn an_interface_of_a_network_that_the_site_has_no_more_is_given_back() {
    let world = World::new();
    drop(world.attach().unwrap().unwrap());
    release_others(&world.pins(), &[world.label().file_name()], world.outer.as_fd()).unwrap();
    assert_eq!(names(world.outer.as_fd()), ["lo"], "wanted: it stays");
    release_others::<&str>(&world.pins(), &[], world.outer.as_fd()).unwrap();
    assert_eq!(names(world.outer.as_fd()), ["lo", "ship0"]);
    assert!(!Net::in_ns(world.outer.as_fd()).unwrap().find("ship0").unwrap().unwrap().up);
}

#[test]
fn an_interface_that_is_not_there_is_an_error_that_names_it_and_leaves_nothing() {
    let world = World::new();
    Net::in_ns(world.outer.as_fd()).unwrap().rename("ship0", "other0").unwrap();
    let error = world.attach().unwrap_err().to_string();
    assert!(error.contains("ship0"), "{error}");
    assert_eq!(fs::read_dir(world.pins()).unwrap().count(), 0);
    assert_eq!(names(world.outer.as_fd()), ["lo", "other0"]);
}

#[test]
fn a_label_without_a_network_has_no_rules_and_no_pin() {
    let world = World::new();
    let name: LabelName = "UNCLASSIFIED".parse().unwrap();
    let label = world.site.label(&name).unwrap();
    let attached =
        Attached::attach(&world.site, &rules(), &name, &label, world.outer.as_fd(), &world.pins()).unwrap();
    assert!(attached.is_none());
    assert!(!world.pins().exists());
    assert_eq!(Edges::named(&world.site, &name), None);
}
