//! A machine behind a workstation: it reaches what the session reaches, at the labels that it is for, while a session is open.
//!
//! Needs root, curl, socat, iproute2, nftables, and levee's own programs (`cargo build --workspace --bins`).

use levee_system::{World, eventually};
use std::fs;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");

/// For one label of those that the person may have.
const BEHIND: &str = "
[behind]
interface = \"eth1\"
address = \"192.168.9.1/24\"
machine = \"192.168.9.2\"
labels = [\"SECRET\"]
";

/// The page that the machine gets, under this of its addresses.
fn page(world: &World, own: &str) -> String {
    let to = "www.harbour.example:80:10.80.0.1";
    let arguments = ["-s", "-m2", "--interface", own, "--resolve", to, "http://www.harbour.example/"];
    world.outside("pc", "curl", &arguments).out
}

fn reaches(world: &World) -> bool {
    page(world, "192.168.9.2").contains("<h1>SECRET</h1>")
}

/// Its own kernel takes a moment to use a wire that has come up.
#[track_caller]
fn comes_to_reach(world: &World) {
    eventually(Duration::from_secs(20), "the machine reaches the session's service", || reaches(world));
}

/// Whether the machine sees that there is anybody at the other end of its wire.
fn has_carrier(world: &World) -> bool {
    let link = world.outside("pc", "ip", &["-o", "link", "show", "eth0"]).ok();
    link.contains("LOWER_UP")
}

fn world(name: &str) -> World {
    let world = World::new(name, &SITE.replace("\"harbour\"", &format!("\"{name}\"")), &["ws1", "pc"]);
    let (workstation, machine) = (world.namespace("ws1"), world.namespace("pc"));
    let veth = [
        "-n",
        &workstation,
        "link",
        "add",
        "eth1",
        "type",
        "veth",
        "peer",
        "name",
        "eth0",
        "netns",
        &machine,
    ];
    levee_system::sh("ip", &veth).ok();
    // It has no other way to anywhere; and it lies about who it is.
    world.outside("pc", "ip", &["link", "set", "outer", "down"]).ok();
    for address in ["192.168.9.2/24", "192.168.9.3/24", "10.80.1.9/32", "10.77.0.99/32"] {
        world.outside("pc", "ip", &["address", "add", address, "dev", "eth0"]).ok();
    }
    world.outside("pc", "ip", &["link", "set", "eth0", "up"]).ok();
    world.outside("pc", "ip", &["route", "add", "default", "via", "192.168.9.1"]).ok();
    let file = world.path("state/hosts/ws1/workstation.toml");
    let text = fs::read_to_string(&file).expect("the bundle");
    fs::write(&file, text + BEHIND).expect("write the bundle");
    world
}

#[test]
fn a_machine_behind_a_workstation_reaches_the_sessions_services_while_one_is_open_at_a_label_that_it_is_for()
{
    let mut world = world("behind");
    world.start_server();
    world.start_workstation("ws1");
    // The workstation's own network does not have the interface, and nobody is signed on.
    world.outside("ws1", "ip", &["link", "show", "eth1"]).refused();
    assert!(!reaches(&world) && !has_carrier(&world));
    world.login("ws1", "ada").ok();
    assert!(!reaches(&world) && !has_carrier(&world), "somebody is signed on, and no session is open");

    world.level("ws1", "SECRET").ok();
    comes_to_reach(&world);
    // The person's own programs are where they were.
    assert!(world.fetch("ws1", "http://www.harbour.example/").ok().contains("<h1>SECRET</h1>"));
    // Under no other address, of its network or of the tunnel's.
    for own in ["192.168.9.3", "10.80.1.9", "10.77.0.99"] {
        assert_eq!(page(&world, own), "", "as {own}");
    }
    // Nothing of the workstation's, nor of the server's outside the tunnel.
    let asks = |to: &str| {
        world
            .outside("pc", "socat", &["-u", &format!("TCP:{to},connect-timeout=1,bind=192.168.9.2"), "-"])
            .out
    };
    let listener =
        world.inside("ws1", &["socat", "TCP4-LISTEN:7000,fork,reuseaddr", "SYSTEM:echo the session hears"]);
    let mut listener = { listener }.spawn().expect("start socat in the session");
    eventually(Duration::from_secs(10), "a program of the session serves its own", || {
        world.run("ws1", &["socat", "-u", "TCP:127.0.0.1:7000", "-"]).out.contains("the session hears")
    });
    let inner = world.run("ws1", &["hostname", "-I"]).out;
    let inner = inner
        .split_whitespace()
        .find(|address| address.starts_with("10.80.1."))
        .unwrap_or_default()
        .to_owned();
    for to in
        ["192.168.9.1:7000", &format!("{inner}:7000"), "10.77.0.11:22", "10.77.0.1:7443", "10.80.0.1:2222"]
    {
        assert_eq!(asks(to), "", "{to}");
    }
    world.outside("pc", "ping", &["-c1", "-W1", "192.168.9.1"]).refused();
    let _ = (listener.kill(), listener.wait());

    // Another label is nothing for it; that is so as soon as the change is acknowledged.
    world.level("ws1", "CONFIDENTIAL").ok();
    assert!(!has_carrier(&world), "its wire is up at another label");
    assert_eq!(page(&world, "192.168.9.2"), "");
    world.level("ws1", "SECRET").ok();
    comes_to_reach(&world);
    world.tpe("ws1", &["logout"]).ok();
    assert!(!has_carrier(&world), "its wire is up after the end");
    assert_eq!(page(&world, "192.168.9.2"), "");
}

#[test]
fn the_interface_of_a_machine_behind_passes_nothing_when_the_warden_is_killed_and_is_given_back_at_its_end() {
    let mut world = world("aside");
    world.start_server();
    world.start_workstation("ws1");
    world.login("ws1", "ada").ok();
    world.level("ws1", "SECRET").ok();
    comes_to_reach(&world);
    world.kill_workstation("ws1");
    assert_eq!(page(&world, "192.168.9.2"), "");
    world.outside("ws1", "ip", &["link", "show", "eth1"]).refused();

    world.start_workstation("ws1");
    assert!(!has_carrier(&world) && page(&world, "192.168.9.2").is_empty());
    world.login("ws1", "ada").ok();
    world.level("ws1", "SECRET").ok();
    comes_to_reach(&world);
    world.stop_workstation("ws1");
    let link = world.outside("ws1", "ip", &["-o", "link", "show", "eth1"]).ok();
    assert!(link.contains("state DOWN"), "{link}");
    assert_eq!(page(&world, "192.168.9.2"), "");
}

/// Asks the workstation for its address in the name of each address of the network, as root of the machine can.
const ASKS_AS_ALL: &str = "
import socket, struct
wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
wire.bind(('eth0', 0))
own = wire.getsockname()[4]
for n in range(3, 254):
    ask = struct.pack('!HHBBH', 1, 0x800, 6, 4, 1) + own + bytes([192, 168, 9, n]) + bytes(6) + bytes([192, 168, 9, 1])
    wire.send(b'\\xff' * 6 + own + b'\\x08\\x06' + ask)
print('asked')
";

#[test]
fn a_machine_behind_a_workstation_is_one_neighbour_whoever_it_says_that_it_is() {
    let mut world = world("crowd");
    world.start_server();
    world.start_workstation("ws1");
    world.login("ws1", "ada").ok();
    world.level("ws1", "SECRET").ok();
    comes_to_reach(&world);
    assert!(world.outside("pc", "python3", &["-c", ASKS_AS_ALL]).ok().contains("asked"));
    // What it asks next is answered after all of that.
    world.outside("pc", "ip", &["neighbour", "flush", "dev", "eth0"]).ok();
    comes_to_reach(&world);
    let known = world.run("ws1", &["ip", "-4", "neighbour", "show", "dev", "eth1"]).ok();
    let known: Vec<&str> = known.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(known, ["192.168.9.2"]);
    world.stop_workstation("ws1");
}
