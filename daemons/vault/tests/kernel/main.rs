//! A vault against the Linux kernel's own ESP (net/xfrm), which runs in a virtual machine with keys by hand; then transport
//! mode and AH, which no vault speaks, by `levee-esp` alone.

#[path = "../common/mod.rs"]
mod common;
mod endpoint;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use common::*;
use levee_guest::{Guest, TAP};
use levee_ipc::Secret;
use levee_ipc::vault::{Cipher, KeyerToVault, Sa, VaultToKeyer};
use levee_ipc::warden::Place;
use levee_sys::net::Net;
use levee_sys::udp::{self, SteeringGroup};
use levee_sys::{ns, tun};

/// Each family's addresses outside: the vault's and the guest's.
const OUTSIDE: [(&str, &str); 2] = [("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2")];
/// And inside.
const INSIDE: [(&str, &str); 2] = [(SERVER_INNER, CLIENT_INNER), (SERVER_INNER6, CLIENT_INNER6)];

/// Bytes of each transfer; the guest's processor is slow.
const LENGTH: usize = 100_000;
const LIMIT: Duration = Duration::from_secs(60);

/// A vault with its TUN device, and the guest at the other end of its card.
struct World {
    guest: Guest,
    outer: OwnedFd,
    compartment: OwnedFd,
    vault: Vault,
    next: u32,
    /// Whether the vault is the laboratory's, which does not encrypt.
    in_clear: bool,
    tun: tun::Queue,
    groups: [SteeringGroup; 2],
}

impl World {
    fn new() -> Self {
        let outer = ns::new_net().expect("needs root");
        let compartment = ns::new_net().unwrap();
        let mut guest = Guest::boot(outer.as_fd());
        let mut net = Net::in_ns(outer.as_fd()).unwrap();
        net.set_up("lo").unwrap();
        net.add_address(TAP, prefix("192.0.2.1/24")).unwrap();
        net.add_address(TAP, prefix("2001:db8::1/64")).unwrap();

        let options = tun::Options { multi_queue: false, exclusive: true, vnet_header: true };
        let tun = ns::in_net(compartment.as_fd(), || tun::open("tun0", options)).unwrap().unwrap();
        let mut net = Net::in_ns(compartment.as_fd()).unwrap();
        net.set_up("lo").unwrap();
        net.set_mtu("tun0", u32::from(MTU)).unwrap();
        net.add_address("tun0", prefix("10.9.0.1/32")).unwrap();
        net.set_up("tun0").unwrap();
        net.add_address("tun0", prefix("fd00:9::1/128")).unwrap();
        net.add_route(prefix("10.0.0.0/24"), None, "tun0").unwrap();
        net.add_route(prefix("fd00::/64"), None, "tun0").unwrap();

        let groups = ["192.0.2.1:4500", "[2001:db8::1]:4500"].map(|address| {
            let group = ns::in_net(outer.as_fd(), || {
                udp::steering_group(address.parse().unwrap(), SLOTS, 4 << 20, &steering_key()).unwrap()
            })
            .unwrap();
            group.admit(SLOT).unwrap();
            group
        });
        let sockets = [&groups[0], &groups[1]].map(|group| (group.address(), group.slot(SLOT).unwrap()));
        let vault = Vault::start(Place::Server, tun.as_fd(), &sockets);
        vault.open(record(session(1), Place::Server));

        for command in [
            "ip link set lo up",
            "ip addr add 192.0.2.2/24 dev eth0",
            "ip addr add 2001:db8::2/64 dev eth0 nodad",
            "ip addr add 10.0.0.2/32 dev lo",
            "ip addr add fd00::2/128 dev lo nodad",
            "ip link set eth0 up",
            "ip route add 10.9.0.0/16 via 192.0.2.1 src 10.0.0.2",
            "ip route add fd00:9::/32 via 2001:db8::1 src fd00::2",
            "dd if=/dev/urandom of=/tmp/data bs=1000 count=100 2>/dev/null",
            "socat TCP6-LISTEN:8080,ipv6only=0,fork,reuseaddr EXEC:cat &",
            // UDP_ENCAP, UDP_ENCAP_ESPINUDP (include/uapi/linux/udp.h): what comes in here is ESP.
            "socat -u UDP4-RECVFROM:4500,setsockopt-listen=17:100:i2 - &",
            "socat -u UDP6-RECVFROM:4500,ipv6only=1,setsockopt-listen=17:100:i2 - &",
        ] {
            guest.run(command);
        }
        Self { guest, outer, compartment, vault, next: 1, in_clear: false, tun, groups }
    }

    /// Another vault in its place, the laboratory's.
    fn without_encryption(&mut self) {
        self.vault.child.kill().unwrap();
        let sockets = [0, 1].map(|n| (self.groups[n].address(), self.groups[n].slot(SLOT).unwrap()));
        let program = env!("CARGO_BIN_EXE_levee-lab-vault");
        self.vault = Vault::start_program(program, Place::Server, self.tun.as_fd(), &sockets, &[]);
        self.vault.open(record(session(1), Place::Server));
        self.in_clear = true;
    }

    /// New keys at both ends, in datagrams of one family.
    fn keys(&mut self, cipher: Cipher, esn: bool, outside: (&str, &str)) {
        let n = self.next;
        self.next += 1;
        let (to_vault, to_guest) = (spi_of(SLOTS, SLOT, n), 1 << 20 | n);
        let material = |way: u32| -> Vec<u8> {
            (0..material_length(cipher)).map(|b| (b * 5 + n * 37 + way * 101) as u8).collect()
        };
        let sa = |spi, way| Sa { spi, keying_material: Secret::new(material(way)).unwrap() };
        let install = KeyerToVault::Install {
            session: session(1),
            cipher,
            esn,
            inbound: sa(to_vault, 0),
            outbound: sa(to_guest, 1),
            answered: false,
            peer: None,
            aggregation: None,
        };
        self.vault.keyer.send(&install).unwrap();
        loop {
            match hear(&self.vault.keyer) {
                VaultToKeyer::Installed { .. } => break,
                VaultToKeyer::Acquire(_) => {}
                other => panic!("{other:?}"),
            }
        }
        let algorithm = match cipher {
            Cipher::Aes128Gcm | Cipher::Aes256Gcm if self.in_clear => "rfc4543(gcm(aes))",
            Cipher::Aes128Gcm | Cipher::Aes256Gcm => "rfc4106(gcm(aes))",
            Cipher::ChaCha20Poly1305 => "rfc7539esp(chacha20,poly1305)",
        };
        let numbers = if esn { "replay-window 64 flag esn" } else { "replay-window 32" };
        let (vault, guest) = outside;
        let mut lines = vec!["xfrm state flush".to_owned(), "xfrm policy flush".to_owned()];
        for (spi, way, from, to) in [(to_vault, 0, guest, vault), (to_guest, 1, vault, guest)] {
            let key: String = material(way).iter().map(|byte| format!("{byte:02x}")).collect();
            // (af-unspec: packets of both families.)
            lines.push(format!(
                "xfrm state add src {from} dst {to} proto esp spi {spi:#x} reqid 1 mode tunnel {numbers} \
                 flag af-unspec aead {algorithm} 0x{key} 128 encap espinudp 4500 4500 0.0.0.0"
            ));
        }
        for (there, here) in [("10.9.0.0/16", "10.0.0.2/32"), ("fd00:9::/32", "fd00::2/128")] {
            for (dir, src, dst, from, to) in
                [("out", here, there, guest, vault), ("in", there, here, vault, guest)]
            {
                lines.push(format!(
                    "xfrm policy add dir {dir} src {src} dst {dst} tmpl src {from} dst {to} proto esp reqid 1 \
                     mode tunnel"
                ));
            }
        }
        self.guest.run(&format!("printf '{}\\n' | ip -batch -", lines.join("\\n")));
    }

    /// Pings by the guest in both families, a stream begun at each end, in another family than the last time.
    fn exchange(&mut self, case: &str) {
        for (vault, _) in INSIDE {
            let six = if vault.contains(':') { "6" } else { "" };
            let (good, said) = self.guest.attempt(&format!("ping{six} -c 1 -W 10 {vault}"));
            if !good {
                let states = self.guest.run("ip -s xfrm state; cat /proc/net/xfrm_stat");
                panic!("{case}: {said}\n{:?}\n{states}", self.vault.counters());
            }
        }
        let number = self.next as usize;
        self.guest_streams(INSIDE[number % 2].0, case);
        self.vault_streams(INSIDE[(number + 1) % 2].1, case);
    }

    /// The guest connects, sends, and gets everything back.
    fn guest_streams(&mut self, to: &str, case: &str) {
        let address = SocketAddr::new(ip(to), 8080);
        let listener = ns::in_net(self.compartment.as_fd(), || TcpListener::bind(address)).unwrap().unwrap();
        let to = if address.is_ipv6() { format!("TCP6:[{to}]") } else { format!("TCP4:{to}") };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                let mut got = Vec::new();
                stream.read_to_end(&mut got).unwrap();
                assert_eq!(got.len(), LENGTH, "{case}");
                stream.write_all(&got).unwrap();
            });
            let sums = self.guest.run(&format!(
                "md5sum < /tmp/data; socat -t 60 - {to}:8080,connect-timeout=30 < /tmp/data | md5sum"
            ));
            let sums: Vec<&str> = sums.lines().collect();
            assert!(sums.len() == 2 && sums[0] == sums[1], "{case}: {sums:?}");
        });
    }

    /// The vault's side connects, sends, and gets everything back.
    fn vault_streams(&self, to: &str, case: &str) {
        let address = SocketAddr::new(ip(to), 8080);
        let data: Vec<u8> = (0..LENGTH).map(|n| (n * 31 + n / 253) as u8).collect();
        let mut stream = ns::in_net(self.compartment.as_fd(), || TcpStream::connect_timeout(&address, LIMIT))
            .unwrap()
            .unwrap_or_else(|error| panic!("{case}: {error}"));
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut writer = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                writer.write_all(&data).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            let mut back = Vec::new();
            stream.read_to_end(&mut back).unwrap();
            assert!(back == data, "{case}: {} bytes came back, or changed", back.len());
        });
    }
}

/// One test, because the guest takes seconds to boot.
#[test]
fn the_linux_kernel_understands_our_esp_and_ah_and_we_understand_its() {
    let mut world = World::new();
    streams_and_pings_pass_in_every_suite_family_and_number_size(&mut world);
    the_laboratorys_vault_speaks_aes_gmac(&mut world);
    endpoint::every_case(&mut world.guest, world.outer.as_fd());
}

fn streams_and_pings_pass_in_every_suite_family_and_number_size(world: &mut World) {
    for cipher in [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
        for esn in [true, false] {
            world.keys(cipher, esn, OUTSIDE[0]);
            world.exchange(&format!("{cipher:?}, esn {esn}, IPv4 outside"));
        }
    }
    for (cipher, esn) in [(Cipher::Aes256Gcm, true), (Cipher::ChaCha20Poly1305, false)] {
        world.keys(cipher, esn, OUTSIDE[1]);
        world.exchange(&format!("{cipher:?}, esn {esn}, IPv6 outside"));
    }
    no_drops(world);
}

/// The vault of the laboratory: what the kernel takes for AES-GMAC is what RFC 4543 says, readable and authenticated.
fn the_laboratorys_vault_speaks_aes_gmac(world: &mut World) {
    world.without_encryption();
    for (esn, outside) in [(true, OUTSIDE[0]), (false, OUTSIDE[1])] {
        world.keys(Cipher::Aes256Gcm, esn, outside);
        world.exchange(&format!("AES-GMAC, esn {esn}"));
    }
    no_drops(world);
}

fn no_drops(world: &World) {
    let counters = world.vault.counters();
    for drop in
        ["auth-failed", "bad-padding", "bad-next-header", "malformed", "selector", "replay", "truncated"]
    {
        assert_eq!(counters[drop], 0, "{counters:?}");
    }
}
