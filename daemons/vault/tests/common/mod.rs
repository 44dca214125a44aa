//! Two hosts joined by a veth pair, each with a compartment behind a TUN device and a real vault process; the test
//! plays warden, sessiond and keyer over the real channels. Needs root.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod peer;

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use levee_esp::Steering;
use levee_ipc::vault::{
    Aggregation, Cipher, KeyerToVault, Report, Sa, Selector, SessionRecord, SessiondToVault, VaultToKeyer,
    VaultToSessiond,
};
use levee_ipc::warden::vault::VaultPart;
use levee_ipc::warden::{Nothing, Order, Place, Said};
use levee_ipc::{Channel, RecvError, Secret};
use levee_session::SessionId;
use levee_sys::net::Net;
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use levee_sys::udp::{self, SteeringGroup, SteeringKey};
use levee_sys::{ns, tun};
use serde::de::DeserializeOwned;

pub const SLOT: u16 = 3;
pub const OTHER_SLOT: u16 = 4;
/// Slots of a server.
pub const SLOTS: u16 = 5;
pub const KEY: [u8; 16] = [5; 16];
pub const SERVER_INNER: &str = "10.9.0.1";
pub const CLIENT_INNER: &str = "10.0.0.2";
pub const SERVER_INNER6: &str = "fd00:9::1";
pub const CLIENT_INNER6: &str = "fd00::2";
pub const MTU: u16 = 1400;

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn prefix(text: &str) -> IpNet {
    text.parse().unwrap()
}

pub fn session(n: u8) -> SessionId {
    SessionId::from_random([n; 16])
}

/// The key by which the kernel steers.
pub fn steering_key() -> SteeringKey {
    SteeringKey::new(KEY)
}

/// The `n`th SPI that names this slot of so many: all are different.
pub fn spi_of(slots: u16, slot: u16, n: u32) -> u32 {
    let mut next = n << 12;
    let number = || {
        next += 1;
        next
    };
    Steering::new(&KEY, slots).unwrap().spi(slot, number).unwrap().get()
}

/// Waits up to `limit` for a message.
pub fn hear_within<T: DeserializeOwned>(channel: &Channel, limit: Duration) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        match channel.try_recv() {
            Ok(received) => return Some(received.message),
            Err(RecvError::Empty) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
            Err(RecvError::Empty | RecvError::Closed) => return None,
            Err(error) => panic!("{error}"),
        }
    }
}

pub fn hear<T: DeserializeOwned>(channel: &Channel) -> T {
    hear_within(channel, Duration::from_secs(5)).expect("a message within 5 s")
}

/// A running vault and the other ends of its channels.
pub struct Vault {
    pub child: Child,
    pub warden: Channel,
    pub sessiond: Channel,
    pub keyer: Channel,
}

impl Vault {
    /// Starts a vault with these descriptors; returns once it is ready.
    pub fn start(place: Place, tun: BorrowedFd<'_>, sockets: &[(SocketAddr, BorrowedFd<'_>)]) -> Self {
        Self::start_with(place, tun, sockets, &[])
    }

    pub fn start_with(
        place: Place,
        tun: BorrowedFd<'_>,
        sockets: &[(SocketAddr, BorrowedFd<'_>)],
        arguments: &[&str],
    ) -> Self {
        Self::start_program(env!("CARGO_BIN_EXE_levee-vault"), place, tun, sockets, arguments)
    }

    /// The same with another program.
    pub fn start_program(
        program: &str,
        place: Place,
        tun: BorrowedFd<'_>,
        sockets: &[(SocketAddr, BorrowedFd<'_>)],
        arguments: &[&str],
    ) -> Self {
        let (warden, theirs) = Channel::pair().unwrap();
        let mut program = Program::new(program);
        program.args.extend(arguments.iter().map(Into::into));
        program.new_namespaces = Program::ISOLATED;
        // The tests start it from threads that end before it should.
        program.die_with_parent = false;
        let stderr = io::stderr();
        program.stdio[2] = Some(stderr.as_fd());
        program.fds = vec![theirs.as_fd()];
        let child = program.start().expect("needs root");
        drop(program);
        drop(theirs);
        let (sessiond, sessiond_end) = Channel::pair().unwrap();
        let (keyer, keyer_end) = Channel::pair().unwrap();
        let give = |part, fd: BorrowedFd<'_>| {
            warden.send_with(&Order::Give(part), &[fd]).unwrap();
        };
        give(VaultPart::Sessiond, sessiond_end.as_fd());
        give(VaultPart::Keyer, keyer_end.as_fd());
        give(VaultPart::Tun { mtu: MTU }, tun);
        for (address, socket) in sockets {
            give(VaultPart::Udp(*address), *socket);
        }
        warden.send(&Order::<VaultPart>::Begin(place)).unwrap();
        assert!(matches!(hear(&warden), Said::<Nothing>::Ready));
        Self { child, warden, sessiond, keyer }
    }

    pub fn open(&self, record: SessionRecord) {
        let id = record.id;
        self.sessiond.send(&SessiondToVault::Open(record)).unwrap();
        assert!(matches!(hear(&self.sessiond), VaultToSessiond::Opened(opened) if opened == id));
    }

    pub fn close(&self, id: SessionId) {
        self.sessiond.send(&SessiondToVault::Close(id)).unwrap();
        assert!(matches!(hear(&self.sessiond), VaultToSessiond::Closed(closed) if closed == id));
    }

    pub fn report(&self) -> Report {
        self.sessiond.send(&SessiondToVault::Report).unwrap();
        match hear(&self.sessiond) {
            VaultToSessiond::Report(report) => report,
            other => panic!("{other:?}"),
        }
    }

    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.report().counters.into_iter().collect()
    }

    pub fn count(&self, name: &str) -> u64 {
        self.counters()[name]
    }

    /// Waits until this counter is at least `value`.
    pub fn reaches(&self, name: &str, value: u64) {
        let end = Instant::now() + Duration::from_secs(5);
        while self.count(name) < value {
            assert!(Instant::now() < end, "{name} stays below {value}: {:?}", self.counters());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Vault {
    fn drop(&mut self) {
        // Gone already when the test ended it.
        let _ = self.child.kill();
    }
}

/// One host: the outer namespace with the sockets, the compartment with the TUN device.
pub struct Host {
    pub outer: OwnedFd,
    pub compartment: OwnedFd,
    pub tun: tun::Queue,
    pub group: SteeringGroup,
    pub vault: Vault,
    /// Workers beside it, each with its queue, in the slots after its own.
    pub more: Vec<(tun::Queue, Vault)>,
}

impl Host {
    /// A worker by number, from 0.
    pub fn worker(&self, number: usize) -> &Vault {
        number.checked_sub(1).map_or(&self.vault, |after| &self.more[after].1)
    }
}

/// Bytes of keying material: the key, then a salt of 4 bytes (RFC 4106 8.1, RFC 7634 2).
pub fn material_length(cipher: Cipher) -> u32 {
    match cipher {
        Cipher::Aes128Gcm => 16 + 4,
        Cipher::Aes256Gcm | Cipher::ChaCha20Poly1305 => 32 + 4,
    }
}

pub struct Bench {
    pub server: Host,
    pub client: Host,
    /// The client asked for the keys to come in the older ones' place.
    pub answered: bool,
    next: u32,
}

pub fn record(id: SessionId, place: Place) -> SessionRecord {
    let row = |server: &str, client: &str| {
        let (local, remote) = match place {
            Place::Server => (server, client),
            Place::Workstation => (client, server),
        };
        Selector {
            local: prefix(local),
            remote: prefix(remote),
            protocol: None,
            local_ports: (0, 65_535),
            remote_ports: (0, 65_535),
        }
    };
    SessionRecord {
        id,
        inner: vec![ip(CLIENT_INNER), ip(CLIENT_INNER6)],
        selectors: vec![row("10.9.0.0/16", "10.0.0.2/32"), row("fd00:9::/32", "fd00::2/128")],
        ciphers: None,
        layered: false,
    }
}

impl Bench {
    pub fn new() -> Self {
        Self::with(false, false)
    }

    /// `vnet`: with offloads; `outer6`: over IPv6 outside.
    pub fn with(vnet: bool, outer6: bool) -> Self {
        Self::with_arguments(vnet, outer6, &[])
    }

    /// As [`Bench::with`], both vaults called with these arguments.
    pub fn with_arguments(vnet: bool, outer6: bool, arguments: &[&str]) -> Self {
        Self::with_workers(vnet, outer6, arguments, 1)
    }

    /// As [`Bench::with_arguments`], with so many workers at each end.
    pub fn with_workers(vnet: bool, outer6: bool, arguments: &[&str], workers: u16) -> Self {
        let spaces: Vec<OwnedFd> = (0..4).map(|_| ns::new_net().expect("needs root")).collect();
        let [server_outer, client_outer, server_inner, client_inner]: [OwnedFd; 4] =
            spaces.try_into().unwrap();
        let mut net = Net::in_ns(server_outer.as_fd()).unwrap();
        net.add_veth("up", "up", Some(client_outer.as_fd())).unwrap();
        for (space, v4, v6) in [
            (&server_outer, "192.0.2.1/24", "2001:db8::1/64"),
            (&client_outer, "192.0.2.2/24", "2001:db8::2/64"),
        ] {
            let mut net = Net::in_ns(space.as_fd()).unwrap();
            net.set_up("lo").unwrap();
            net.add_address("up", prefix(v4)).unwrap();
            net.set_up("up").unwrap();
            net.add_address("up", prefix(v6)).unwrap();
        }
        let host = |outer: OwnedFd, compartment: OwnedFd, place: Place| {
            let queue = |exclusive| {
                let options = tun::Options { multi_queue: workers > 1, exclusive, vnet_header: vnet };
                ns::in_net(compartment.as_fd(), || tun::open("tun0", options)).unwrap().unwrap()
            };
            let tun = queue(true);
            let mut net = Net::in_ns(compartment.as_fd()).unwrap();
            let (v4, v6, routes) = match place {
                Place::Server => ("10.9.0.1/32", "fd00:9::1/128", ["10.0.0.0/24", "fd00::/64"]),
                Place::Workstation => ("10.0.0.2/32", "fd00::2/128", ["10.9.0.0/16", "fd00:9::/32"]),
            };
            net.set_up("lo").unwrap();
            net.set_mtu("tun0", u32::from(MTU)).unwrap();
            if vnet {
                net.set_gso_max_size("tun0", 60_000).unwrap();
            }
            net.add_address("tun0", prefix(v4)).unwrap();
            net.set_up("tun0").unwrap();
            net.add_address("tun0", prefix(v6)).unwrap();
            for route in routes {
                net.add_route(prefix(route), None, "tun0").unwrap();
            }
            let (address, slots) = match (place, outer6) {
                (Place::Server, false) => ("192.0.2.1:4500", SLOTS),
                (Place::Server, true) => ("[2001:db8::1]:4500", SLOTS),
                (Place::Workstation, false) => ("192.0.2.2:0", workers),
                (Place::Workstation, true) => ("[2001:db8::2]:0", workers),
            };
            let group = ns::in_net(outer.as_fd(), || {
                udp::steering_group(address.parse().unwrap(), slots, 4 << 20, &steering_key()).unwrap()
            })
            .unwrap();
            let worker = |number: u16, tun: &tun::Queue| {
                let slot = Self::slot(place) + number;
                group.admit(slot).unwrap();
                let sockets = [(group.address(), group.slot(slot).unwrap())];
                Vault::start_with(place, tun.as_fd(), &sockets, arguments)
            };
            let vault = worker(0, &tun);
            let beside = |number| {
                let tun = queue(false);
                let vault = worker(number, &tun);
                (tun, vault)
            };
            let more = (1..workers).map(beside).collect();
            Host { outer, compartment, tun, group, vault, more }
        };
        let server = host(server_outer, server_inner, Place::Server);
        let client = host(client_outer, client_inner, Place::Workstation);
        Self { server, client, answered: false, next: 1 }
    }

    /// A bench of hosts that are there.
    pub fn of(server: Host, client: Host) -> Self {
        Self { server, client, answered: false, next: 1 }
    }

    pub fn slot(place: Place) -> u16 {
        match place {
            Place::Server => SLOT,
            Place::Workstation => 1,
        }
    }

    /// Session 1 open at both ends.
    pub fn sessions(&self) {
        self.server.vault.open(record(session(1), Place::Server));
        self.client.vault.open(record(session(1), Place::Workstation));
    }

    /// A pair between the workers of this number at both ends.
    pub fn keys_of_worker(
        &mut self,
        worker: u16,
        id: SessionId,
        aggregation: Option<Aggregation>,
    ) -> (u32, u32) {
        let by = self.server.group.address();
        self.install_at(worker, id, Cipher::Aes256Gcm, true, by, [aggregation; 2])
    }

    /// A new pair for session `id` at both ends; answers the server's and the client's inbound SPI.
    pub fn keys(&mut self, id: SessionId, cipher: Cipher, esn: bool) -> (u32, u32) {
        self.keys_by(id, cipher, esn, self.server.group.address())
    }

    /// As [`Bench::keys`], with the server behind `by`.
    pub fn keys_by(&mut self, id: SessionId, cipher: Cipher, esn: bool, by: SocketAddr) -> (u32, u32) {
        self.keys_with(id, cipher, esn, by, None)
    }

    /// As [`Bench::keys_by`], in AGGFRAG payloads.
    pub fn keys_with(
        &mut self,
        id: SessionId,
        cipher: Cipher,
        esn: bool,
        by: SocketAddr,
        aggregation: Option<Aggregation>,
    ) -> (u32, u32) {
        self.install(id, cipher, esn, by, [aggregation; 2])
    }

    /// A pair of whose carriage server and client think differently.
    pub fn keys_at_odds(&mut self, id: SessionId, server: Option<Aggregation>, client: Option<Aggregation>) {
        let by = self.server.group.address();
        self.install(id, Cipher::Aes256Gcm, true, by, [server, client]);
    }

    fn install(
        &mut self,
        id: SessionId,
        cipher: Cipher,
        esn: bool,
        by: SocketAddr,
        aggregation: [Option<Aggregation>; 2],
    ) -> (u32, u32) {
        self.install_at(0, id, cipher, esn, by, aggregation)
    }

    fn install_at(
        &mut self,
        worker: u16,
        id: SessionId,
        cipher: Cipher,
        esn: bool,
        by: SocketAddr,
        aggregation: [Option<Aggregation>; 2],
    ) -> (u32, u32) {
        let n = self.next;
        self.next += 1;
        let spi = |place, slots| spi_of(slots, Self::slot(place) + worker, n);
        let workers = self.client.more.len() as u16 + 1;
        let spis = (spi(Place::Server, SLOTS), spi(Place::Workstation, workers));
        let worker = usize::from(worker);
        let sa = |spi: u32, from_client: bool| {
            let length = material_length(cipher);
            let bytes = (0..length).map(|b| (b * 7 + n * 31 + u32::from(from_client)) as u8).collect();
            Sa { spi, keying_material: Secret::new(bytes).unwrap() }
        };
        let [server, client] = aggregation;
        let answered = self.answered;
        for (vault, inbound, outbound, answered, peer, aggregation) in [
            (self.server.worker(worker), sa(spis.0, true), sa(spis.1, false), answered, None, server),
            (self.client.worker(worker), sa(spis.1, false), sa(spis.0, true), false, Some(by), client),
        ] {
            let spi = inbound.spi;
            vault
                .keyer
                .send(&KeyerToVault::Install {
                    session: id,
                    cipher,
                    esn,
                    inbound,
                    outbound,
                    answered,
                    peer,
                    aggregation,
                })
                .unwrap();
            loop {
                match hear(&vault.keyer) {
                    VaultToKeyer::Installed { spi: installed } if installed == spi => break,
                    VaultToKeyer::Acquire(_) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        spis
    }

    /// Sessions and keys: traffic flows.
    pub fn up(vnet: bool) -> Self {
        let mut bench = Self::with(vnet, false);
        bench.sessions();
        bench.keys(session(1), Cipher::Aes256Gcm, true);
        bench
    }

    /// Sends one ICMP echo from the client's compartment; whether the answer came within `limit`.
    pub fn ping(&self, limit: Duration) -> bool {
        ns::in_net(self.client.compartment.as_fd(), || ping(SERVER_INNER.parse().unwrap(), 56, limit))
            .unwrap()
    }
}

/// Sends `length` bytes each way over one TCP connection and compares them.
pub fn tcp(bench: &Bench, to: &str, length: usize) -> Duration {
    let address: SocketAddr = SocketAddr::new(ip(to), 8080);
    let data: Vec<u8> = (0..length).map(|n| (n * 31 + n / 253) as u8).collect();
    let listener =
        ns::in_net(bench.server.compartment.as_fd(), || TcpListener::bind(address)).unwrap().unwrap();
    let start = Instant::now();
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            let mut got = vec![0; length];
            stream.read_exact(&mut got).unwrap();
            stream.write_all(&got).unwrap();
            got
        });
        let mut stream = ns::in_net(bench.client.compartment.as_fd(), || {
            TcpStream::connect_timeout(&address, Duration::from_secs(20))
        })
        .unwrap()
        .unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let sent = &data;
        scope.spawn(move || writer.write_all(sent).unwrap());
        let mut back = vec![0; length];
        stream.read_exact(&mut back).unwrap();
        assert!(echo.join().unwrap() == data && back == data, "bytes changed on the way");
    });
    start.elapsed()
}

/// One ICMP echo with a payload of `length` bytes; whether the answer came within `limit`.
pub fn ping(to: Ipv4Addr, length: usize, limit: Duration) -> bool {
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
    static NUMBER: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(1);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::ICMP)).unwrap();
    let mut echo = vec![8, 0, 0, 0, 0x4c, 0x56];
    echo.extend(number.to_be_bytes());
    echo.resize(8 + length, 0x61);
    let sum = checksum(&echo);
    echo[2..4].copy_from_slice(&sum.to_be_bytes());
    let to = SocketAddr::new(to.into(), 0);
    rustix::net::sendto(&socket, &echo, SendFlags::empty(), &to).unwrap();
    let end = Instant::now() + limit;
    let mut buffer = vec![0; 65_536];
    while Instant::now() < end {
        match rustix::net::recv(&socket, &mut buffer[..], RecvFlags::empty()) {
            Ok((_, length)) if buffer[20] == 0 && buffer[24..length] == echo[4..] => return true,
            Ok(_) => {}
            Err(_) => std::thread::sleep(Duration::from_micros(200)),
        }
    }
    false
}

pub fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// One TCP connection from one network namespace to a listener in another: `length` bytes go there and come back.
///
/// # Panics
/// When they do not within a minute, or when one of them has changed.
pub fn stream(from: BorrowedFd<'_>, to: BorrowedFd<'_>, address: SocketAddr, length: usize) {
    const LIMIT: Duration = Duration::from_secs(60);
    let data: Vec<u8> = (0..length).map(|n| (n * 31 + n / 253) as u8).collect();
    // A child that another thread has just forked has the listener of before until it executes its program.
    let until = Instant::now() + LIMIT;
    let listener = loop {
        match ns::in_net(to, || TcpListener::bind(address)).unwrap() {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(20));
            }
            bound => break bound.unwrap(),
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let mut got = vec![0; length];
            stream.read_exact(&mut got).unwrap();
            stream.write_all(&got).unwrap();
        });
        let mut stream = ns::in_net(from, || TcpStream::connect_timeout(&address, LIMIT)).unwrap().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let sent = &data;
        scope.spawn(move || writer.write_all(sent).unwrap());
        let mut back = vec![0; length];
        stream.read_exact(&mut back).unwrap();
        assert!(back == data, "bytes changed on the way");
    });
}
