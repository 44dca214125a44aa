//! A vault against strongSwan's user-mode ESP (libipsec), with keys that the two agreed by IKEv2.
//!
//! libipsec knows no extended sequence numbers; `kernel.rs` has those.

mod common;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use common::*;
use levee_ike::{
    ChildProposal, Childless, Config, Encryption, EspKeys, Identity, LocalAuth, Peer, RemoteAuth, RemoteId,
};
use levee_ike_interop::{Host as Ike, Net as Wire, OURS, OURS6, Swan, THEIRS, THEIRS6, Tuning};
use levee_ipc::Secret;
use levee_ipc::vault::{Cipher, KeyerToVault, Sa, Selector, SessionRecord, VaultToKeyer};
use levee_ipc::warden::Place;
use levee_sys::net::Net;
use levee_sys::udp::{self, SteeringGroup};
use levee_sys::{ns, tun};

const PATIENCE: Duration = Duration::from_secs(30);
const LENGTH: usize = 300_000;
/// The inner addresses of both ends, ours first.
const INSIDE: [(&str, &str); 2] = [("10.9.1.1", "10.9.2.1"), ("fd00:1::1", "fd00:2::1")];

fn configuration(ours: IpAddr, theirs: IpAddr) -> String {
    format!(
        "connections {{ c {{
  version = 2
  local_addrs = {theirs}
  remote_addrs = {ours}
  proposals = aes256gcm16-prfsha384-x25519
  local {{ auth = psk
  id = swan.test }}
  remote {{ auth = psk
  id = levee.test }}
  children {{ net {{
    local_ts = 10.9.2.0/24, fd00:2::/64
    remote_ts = 10.9.1.0/24, fd00:1::/64
    esp_proposals = aes128gcm16-x25519, aes256gcm16-x25519, chacha20poly1305-x25519
  }} }}
}} }}
secrets {{ ike-1 {{ id-1 = swan.test
  id-2 = levee.test
  secret = \"a shared key of some length\" }} }}
"
    )
}

/// What we ask for: this algorithm and no other.
fn config(encryption: Encryption) -> Config {
    let key = b"a shared key of some length".to_vec();
    let mut config = Config::new(vec![Peer {
        local_id: Identity::Fqdn("levee.test".into()),
        remote_id: RemoteId::Exactly(Identity::Fqdn("swan.test".into())),
        local_auth: LocalAuth::SharedKey(key.clone().into()),
        remote_auth: RemoteAuth::SharedKey(key.into()),
        childless: Childless::Never,
        ppk: None,
    }]);
    config.child =
        vec![ChildProposal { encryption: vec![encryption], esn: vec![false], ..ChildProposal::default() }];
    config
}

struct World {
    wire: Wire,
    swan: Swan,
    /// Of port 500. One for all children: a program that another thread starts meanwhile may hold the port for a moment longer.
    plain: UdpSocket,
    compartment: OwnedFd,
    group: SteeringGroup,
    vault: Vault,
    _tun: tun::Queue,
}

impl World {
    fn new(ours: IpAddr, theirs: IpAddr) -> Self {
        let wire = Wire::new();
        let [outer, _] = wire.spaces().map(OwnedFd::from);
        let swan = Swan::start(&wire, &configuration(ours, theirs), &Tuning::default(), &[], &[]);
        let compartment = ns::new_net().unwrap();
        let options = tun::Options { multi_queue: false, exclusive: true, vnet_header: true };
        let tun = ns::in_net(compartment.as_fd(), || tun::open("tun0", options)).unwrap().unwrap();
        let mut net = Net::in_ns(compartment.as_fd()).unwrap();
        net.set_up("lo").unwrap();
        net.set_mtu("tun0", u32::from(MTU)).unwrap();
        net.add_address("tun0", prefix("10.9.1.1/32")).unwrap();
        net.set_up("tun0").unwrap();
        net.add_address("tun0", prefix("fd00:1::1/128")).unwrap();
        net.add_route(prefix("10.9.2.0/24"), None, "tun0").unwrap();
        net.add_route(prefix("fd00:2::/64"), None, "tun0").unwrap();
        let group = ns::in_net(outer.as_fd(), || {
            udp::steering_group(SocketAddr::new(ours, 4500), SLOTS, 4 << 20, &steering_key()).unwrap()
        })
        .unwrap();
        group.admit(SLOT).unwrap();
        let vault = Vault::start(Place::Server, tun.as_fd(), &[(group.address(), group.slot(SLOT).unwrap())]);
        let row = |local: &str, remote: &str| Selector {
            local: prefix(local),
            remote: prefix(remote),
            protocol: None,
            local_ports: (0, 65_535),
            remote_ports: (0, 65_535),
        };
        vault.open(SessionRecord {
            id: session(1),
            inner: vec![ip(INSIDE[0].1), ip(INSIDE[1].1)],
            selectors: vec![row("10.9.1.0/24", "10.9.2.0/24"), row("fd00:1::/64", "fd00:2::/64")],
            ciphers: None,
            layered: false,
        });
        let plain = ns::in_net(outer.as_fd(), || UdpSocket::bind("192.0.2.1:500")).unwrap().unwrap();
        plain.set_nonblocking(true).unwrap();
        Self { wire, swan, plain, compartment, group, vault, _tun: tun }
    }

    /// Agrees on a child with this algorithm and gives its keys to the vault.
    /// The `n`-th has an SPI of its own: strongSwan lets go of a deleted child's a moment after it says so.
    fn child(&self, n: u32, encryption: Encryption, cipher: Cipher, theirs: IpAddr) -> Ike {
        let plain = self.plain.try_clone().unwrap();
        let shared = UdpSocket::from(self.group.first().unwrap().try_clone_to_owned().unwrap());
        let mut ike = Ike::with(plain, shared, config(encryption), None);
        let subnet = |text: &str| {
            let net = prefix(text);
            levee_ike::Selector::subnet(net.addr(), net.prefix_len()).unwrap()
        };
        ike.local = vec![subnet("10.9.1.0/24"), subnet("fd00:1::/64")];
        ike.remote = vec![subnet("10.9.2.0/24"), subnet("fd00:2::/64")];
        let mut child = ike.child(None);
        child.spi = spi_of(SLOTS, SLOT, n);
        ike.connect_between(self.group.address(), SocketAddr::new(theirs, 4500), Some(child));
        let came = ike.run(PATIENCE, |ike| !ike.children().is_empty());
        assert!(came, "no child: {:?}\n{}", ike.events, self.swan.log());
        let child = ike.children()[0];
        assert_eq!((child.suite.encryption, child.suite.esn), (encryption, false));
        let sa = |spi, keys: &EspKeys| {
            let material = [&keys.encryption[..], &keys.salt[..]].concat();
            Sa { spi, keying_material: Secret::new(material).unwrap() }
        };
        self.vault
            .keyer
            .send(&KeyerToVault::Install {
                session: session(1),
                cipher,
                esn: false,
                inbound: sa(child.inbound, &child.inbound_keys),
                outbound: sa(child.outbound, &child.outbound_keys),
                answered: false,
                peer: Some(child.path.remote),
                aggregation: None,
            })
            .unwrap();
        loop {
            match hear(&self.vault.keyer) {
                VaultToKeyer::Installed { .. } => break,
                VaultToKeyer::Acquire(_) => {}
                other => panic!("{other:?}"),
            }
        }
        ike
    }

    fn delete(&self, spi: u32) {
        self.vault.keyer.send(&KeyerToVault::Delete { spi }).unwrap();
        self.swan.swanctl(&["--terminate", "--ike", "c", "--force"]);
    }
}

/// Pings until an answer comes; the other end may not have the keys yet.
fn pings(space: &OwnedFd, to: &str) -> bool {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let one = || Command::new("ping").args(["-n", "-c", "1", "-W", "1", "-s", "900", to]).output();
        let out = ns::in_net(space.as_fd(), one).unwrap().expect("install iputils-ping");
        if out.status.success() {
            return true;
        }
    }
    false
}

fn every_suite(ours: IpAddr, theirs: IpAddr) {
    let world = World::new(ours, theirs);
    let [_, swan] = world.wire.spaces().map(OwnedFd::from);
    for (n, encryption, cipher) in [
        (1, Encryption::Aes128Gcm16, Cipher::Aes128Gcm),
        (2, Encryption::Aes256Gcm16, Cipher::Aes256Gcm),
        (3, Encryption::ChaCha20Poly1305, Cipher::ChaCha20Poly1305),
    ] {
        let ike = world.child(n, encryption, cipher, theirs);
        for (ours, theirs) in INSIDE {
            for (from, to) in [(&world.compartment, theirs), (&swan, ours)] {
                assert!(
                    pings(from, to),
                    "{cipher:?} {to}\n{:?}\n{}",
                    world.vault.counters(),
                    world.swan.log()
                );
            }
            stream(swan.as_fd(), world.compartment.as_fd(), SocketAddr::new(ip(ours), 8080), LENGTH);
            stream(world.compartment.as_fd(), swan.as_fd(), SocketAddr::new(ip(theirs), 8081), LENGTH);
        }
        world.delete(ike.children()[0].inbound);
    }
    let counters = world.vault.counters();
    for drop in ["auth-failed", "bad-padding", "bad-next-header", "malformed", "selector", "truncated"] {
        assert_eq!(counters[drop], 0, "{counters:?}");
    }
}

#[test]
fn strongswan_and_a_vault_exchange_pings_and_streams_in_every_suite_over_ipv4() {
    every_suite(OURS.into(), THEIRS.into());
}

#[test]
fn strongswan_and_a_vault_exchange_pings_and_streams_in_every_suite_over_ipv6() {
    every_suite(OURS6.into(), THEIRS6.into());
}
