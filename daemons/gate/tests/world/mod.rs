//! A gate with its two stacks, a compartment behind its TUN device, and a client that speaks ESP by `levee-esp`.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use levee_aead::Library;
use levee_esp::{
    ESP_HEADER, Inner, Install, Outer, Route, SaKeys, Sad, SelectorSet, SessionPolicy, Side, Spi, Steering,
};
use levee_ipc::agree::{FromStack, ToStack};
use levee_ipc::vault::{
    Cipher, KeyerToVault, Sa, Selector, SessionRecord, SessiondToVault, VaultToKeyer, VaultToSessiond,
};
use levee_ipc::warden::stack::StackPart;
use levee_ipc::warden::vault::GatePart;
use levee_ipc::warden::{Nothing, Order, Place, Said};
use levee_ipc::{Channel, RecvError, Secret};
use levee_session::SessionId;
use levee_sys::net::Net;
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use levee_sys::udp::{self, SteeringGroup, SteeringKey};
use levee_sys::{ns, tun};
use serde::de::DeserializeOwned;

const SLOT: u16 = 3;
const SLOTS: u16 = 5;
/// By which the kernel steers.
const KEY: [u8; 16] = [6; 16];
const PATIENCE: Duration = Duration::from_secs(20);

/// One of the stacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    First,
    Second,
}

/// Changes what the gate asks a stack.
pub type Change = Box<dyn FnMut(ToStack) -> ToStack + Send>;
/// What is said behind an answer, after so many words.
pub type Unasked = fn(&FromStack, usize) -> Option<FromStack>;

pub fn session(n: u8) -> SessionId {
    SessionId::from_random([n; 16])
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
    hear_within(channel, PATIENCE).expect("a message in time")
}

/// Whether a process ends within `limit`.
pub fn ends(child: &Child, limit: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let limit = Timespec::try_from(limit).unwrap();
    poll(&mut [PollFd::new(&child.pidfd, PollFlags::IN)], Some(&limit)) == Ok(1)
}

/// How often `secret` occurs in the process's writable memory.
pub fn occurrences(child: &Child, secret: &[u8]) -> usize {
    let pid = child.pid.as_raw_nonzero();
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let mut memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let (from, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        let mut bytes = vec![0; (to - from) as usize];
        memory.seek(SeekFrom::Start(from)).unwrap();
        memory.read_exact(&mut bytes).unwrap();
        found += bytes.windows(secret.len()).filter(|window| *window == secret).count();
    }
    found
}

/// The same association under a key that differs in one bit.
pub fn other_key(sa: &Sa) -> Sa {
    let mut material = sa.keying_material.expose().to_vec();
    material[3] ^= 1;
    Sa { spi: sa.spi, keying_material: Secret::new(material).unwrap() }
}

/// Starts a program of levee's with one channel; answers our end.
fn start(program: &str, arguments: &[&str]) -> (Child, Channel) {
    let directory = Path::new(env!("CARGO_BIN_EXE_levee-gate")).parent().unwrap();
    let path = directory.join(program);
    assert!(path.exists(), "{} is missing: run `cargo build --workspace --bins` first", path.display());
    let (ours, theirs) = Channel::pair().unwrap();
    let mut program = Program::new(path);
    program.args.extend(arguments.iter().map(Into::into));
    program.new_namespaces = Program::ISOLATED;
    // The tests start it from threads that end before it should.
    program.die_with_parent = false;
    let stderr = std::io::stderr();
    program.stdio[2] = Some(stderr.as_fd());
    program.fds = vec![theirs.as_fd()];
    (program.start().expect("needs root"), ours)
}

/// A stack alone; the ends of its channels to the warden and to its gate.
pub fn stack_alone(which: Which) -> (Child, Channel, Channel) {
    let (program, arguments) = match which {
        Which::First => ("levee-vault", &["--stack"][..]),
        Which::Second => ("levee-witness", &[][..]),
    };
    let (child, control) = start(program, arguments);
    let (gate, theirs) = Channel::pair().unwrap();
    control.send_with(&Order::Give(StackPart::Gate), &[theirs.as_fd()]).unwrap();
    control.send(&Order::<StackPart>::Begin(Place::Server)).unwrap();
    assert!(matches!(hear(&control), Said::<Nothing>::Ready));
    assert!(matches!(hear(&gate), FromStack::Ready));
    (child, control, gate)
}

/// Everything.
pub struct World {
    pub gate: Child,
    pub sessiond: Channel,
    pub keyer: Channel,
    stacks: [(Child, Channel); 2],
    pub warden: Channel,
    outer: OwnedFd,
    compartment: OwnedFd,
    tun: tun::Queue,
    group: SteeringGroup,
    client: UdpSocket,
    sad: Sad<SessionId>,
    pairs: u32,
    /// The client asked for the keys to come in the older ones' place.
    pub answered: bool,
    /// What the session is opened with: the ciphers of a protection.
    pub ciphers: Option<Vec<Cipher>>,
    echoes: u16,
}

impl World {
    pub fn new() -> Self {
        Self::with(None)
    }

    /// With somebody between the gate and one stack who changes what it is asked.
    pub fn with(between: Option<(Which, Change)>) -> Self {
        Self::taken_over(between, |_, _| None)
    }

    /// As [`World::with`], and what this gives is said behind each answer, unasked.
    pub fn taken_over(between: Option<(Which, Change)>, unasked: Unasked) -> Self {
        Self::over(true, between, unasked)
    }

    /// Over a device whose packets have no header, as before a machine.
    pub fn without_headers() -> Self {
        Self::over(false, None, |_, _| None)
    }

    fn over(vnet_header: bool, between: Option<(Which, Change)>, unasked: Unasked) -> Self {
        let [outer, compartment] = [(); 2].map(|()| ns::new_net().expect("needs root"));
        Net::in_ns(outer.as_fd()).unwrap().set_up("lo").unwrap();
        let options = tun::Options { multi_queue: false, exclusive: true, vnet_header };
        let mut tun = ns::in_net(compartment.as_fd(), || tun::open("tun0", options)).unwrap().unwrap();
        tun::limit_offload(&mut tun, tun::Offload::None).unwrap();
        let mut net = Net::in_ns(compartment.as_fd()).unwrap();
        let prefix = |text: &str| text.parse::<IpNet>().unwrap();
        net.set_up("lo").unwrap();
        net.set_mtu("tun0", 1_400).unwrap();
        net.add_address("tun0", prefix("10.9.0.1/32")).unwrap();
        net.set_up("tun0").unwrap();
        net.add_route(prefix("10.0.0.0/24"), None, "tun0").unwrap();
        let group = ns::in_net(outer.as_fd(), || {
            udp::steering_group("127.0.0.1:4500".parse().unwrap(), SLOTS, 1 << 20, &SteeringKey::new(KEY))
                .unwrap()
        })
        .unwrap();
        group.admit(SLOT).unwrap();
        let client = ns::in_net(outer.as_fd(), || UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
        client.set_nonblocking(true).unwrap();

        let (gate, warden) = start("levee-gate", &[]);
        let give = |to: &Channel, part: GatePart, fd: &dyn std::os::fd::AsFd| {
            to.send_with(&Order::Give(part), &[fd.as_fd()]).unwrap();
        };
        let (sessiond, theirs) = Channel::pair().unwrap();
        give(&warden, GatePart::Sessiond, &theirs);
        let (keyer, theirs) = Channel::pair().unwrap();
        give(&warden, GatePart::Keyer, &theirs);
        give(&warden, GatePart::Tun, &tun);
        give(&warden, GatePart::Udp(group.address()), &group.slot(SLOT).unwrap());
        let mut between = between;
        let stacks =
            [(Which::First, "levee-vault", &["--stack"][..]), (Which::Second, "levee-witness", &[][..])].map(
                |(which, program, arguments)| {
                    let part = || if which == Which::First { GatePart::First } else { GatePart::Second };
                    let (child, control) = start(program, arguments);
                    let (gates, stacks) = Channel::pair().unwrap();
                    if between.as_ref().is_some_and(|(target, _)| *target == which) {
                        let (_, change) = between.take().unwrap();
                        let (near, far) = Channel::pair().unwrap();
                        give(&warden, part(), &near);
                        std::thread::spawn(move || relay(&far, &gates, change, unasked));
                    } else {
                        give(&warden, part(), &gates);
                    }
                    control.send_with(&Order::Give(StackPart::Gate), &[stacks.as_fd()]).unwrap();
                    control.send(&Order::<StackPart>::Begin(Place::Server)).unwrap();
                    assert!(matches!(hear(&control), Said::<Nothing>::Ready));
                    (child, control)
                },
            );
        warden.send(&Order::<GatePart>::Begin(Place::Server)).unwrap();
        assert!(matches!(hear(&warden), Said::<Nothing>::Ready));
        let sad = Sad::new(Side::Workstation);
        Self {
            gate,
            sessiond,
            keyer,
            stacks,
            warden,
            outer,
            compartment,
            tun,
            group,
            client,
            sad,
            pairs: 0,
            answered: false,
            ciphers: None,
            echoes: 0,
        }
    }

    pub fn stack(&self, which: Which) -> &Child {
        &self.stacks[which as usize].0
    }

    /// The session at both ends.
    pub fn open(&mut self) {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let row = Selector {
            local: net("10.9.0.0/16"),
            remote: net("10.0.0.2/32"),
            protocol: None,
            local_ports: (0, 65_535),
            remote_ports: (0, 65_535),
        };
        let inner: Vec<IpAddr> = vec!["10.0.0.2".parse().unwrap()];
        let record = SessionRecord {
            id: session(1),
            inner: inner.clone(),
            selectors: vec![row],
            ciphers: self.ciphers.clone(),
            layered: false,
        };
        self.sessiond.send(&SessiondToVault::Open(record)).unwrap();
        assert!(matches!(hear(&self.sessiond), VaultToSessiond::Opened(id) if id == session(1)));
        let range = |text, length| levee_esp::AddressRange::prefix(text, length).unwrap();
        let row = levee_esp::Selector {
            local: range("10.0.0.2".parse().unwrap(), 32),
            remote: range("10.9.0.0".parse().unwrap(), 16),
            protocol: None,
            local_ports: levee_esp::PortRange::ANY,
            remote_ports: levee_esp::PortRange::ANY,
        };
        let selectors = SelectorSet::new(vec![row]);
        self.sad.open_session(session(1), SessionPolicy { inner, selectors, only: None }).unwrap();
    }

    /// Keying material towards the server and back, of the newest pair; as long as the longest.
    pub fn material(&self) -> [Vec<u8>; 2] {
        let byte = |n: u32, way: u32| (n * 11 + self.pairs * 37 + way * 101 + 7) as u8;
        [0, 1].map(|way| (0..36).map(|n| byte(n, way)).collect())
    }

    /// A new pair at both ends; answers what the gate says.
    pub fn install(&mut self, cipher: Cipher, esn: bool) -> VaultToKeyer {
        self.pairs += 1;
        let suite = match cipher {
            Cipher::Aes128Gcm => levee_esp::Suite::Aes128Gcm,
            Cipher::Aes256Gcm => levee_esp::Suite::Aes256Gcm,
            Cipher::ChaCha20Poly1305 => levee_esp::Suite::ChaCha20Poly1305,
        };
        let material = self.material().map(|bytes| bytes[..suite.keying_material()].to_vec());
        let mut next = self.pairs << 12;
        let number = || {
            next += 1;
            next
        };
        let to_slot = Steering::new(&KEY, SLOTS).unwrap().spi(SLOT, number).unwrap();
        let spis = (to_slot.get(), 0x0010_0000 | self.pairs);
        let sa = |spi, material: &[u8]| Sa { spi, keying_material: Secret::new(material.to_vec()).unwrap() };
        let install = KeyerToVault::Install {
            session: session(1),
            cipher,
            esn,
            inbound: sa(spis.0, &material[0]),
            outbound: sa(spis.1, &material[1]),
            answered: self.answered,
            peer: None,
            aggregation: None,
        };
        self.keyer.send(&install).unwrap();
        let half = |spi, material: &[u8]| (Spi::new(spi).unwrap(), SaKeys::new(suite, material).unwrap());
        let peer = Outer { address: self.group.address(), socket: 0 };
        let pair = Install {
            session: session(1),
            extended: esn,
            inbound: half(spis.1, &material[1]),
            outbound: half(spis.0, &material[0]),
            answered: false,
            peer: Some(peer),
            aggregation: None,
        };
        self.sad.install(Duration::ZERO, pair, &Library::Ring).unwrap();
        hear(&self.keyer)
    }

    pub fn keys(&mut self, cipher: Cipher, esn: bool) {
        assert!(matches!(self.install(cipher, esn), VaultToKeyer::Installed { .. }));
    }

    /// The keyer says that the client is about to erase this pair.
    pub fn retire(&self, spi: u32) {
        self.keyer.send(&KeyerToVault::Retire { spi }).unwrap();
    }

    /// Session and keys.
    pub fn up(&mut self, cipher: Cipher, esn: bool) {
        self.open();
        self.keys(cipher, esn);
    }

    pub fn counters(&self) -> BTreeMap<String, u64> {
        self.sessiond.send(&SessiondToVault::Report).unwrap();
        loop {
            match hear(&self.sessiond) {
                VaultToSessiond::Report(report) => return report.counters.into_iter().collect(),
                VaultToSessiond::Disagreed(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// An echo request of the client's, sealed, with a payload of `length` bytes.
    pub fn request(&mut self, length: usize) -> Vec<u8> {
        self.echoes += 1;
        let mut packet = vec![0x45, 0];
        packet.extend((28 + length as u16).to_be_bytes());
        packet.extend([0, 1, 0x40, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 9, 0, 1]);
        let sum = checksum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut echo = vec![8, 0, 0, 0, 0x4c, 0x56];
        echo.extend(self.echoes.to_be_bytes());
        echo.resize(8 + length, 0x61);
        let sum = checksum(&echo);
        echo[2..4].copy_from_slice(&sum.to_be_bytes());
        packet.extend(echo);
        let inner = Inner::parse(&packet).unwrap();
        let Ok(Route::Through(mut lane)) = self.sad.route(Duration::from_secs(9), &inner) else {
            panic!("the client has no way out")
        };
        let mut buffer = vec![0; levee_esp::sealed_length(packet.len())];
        buffer[ESP_HEADER..ESP_HEADER + packet.len()].copy_from_slice(&packet);
        let sealed = lane.seal(&mut buffer, packet.len()).unwrap();
        buffer.truncate(sealed.length);
        buffer
    }

    pub fn send(&self, datagram: &[u8]) {
        self.client.send_to(datagram, self.group.address()).unwrap();
    }

    /// Lets the client receive together what comes together; [`World::answers`] takes it apart.
    pub fn receive_together(&self) {
        udp::set_aggregates(self.client.as_fd(), true).unwrap();
    }

    /// Sends datagrams, all as long as the first, as one.
    pub fn send_together(&self, datagrams: &[Vec<u8>]) {
        let segment = u16::try_from(datagrams[0].len()).unwrap();
        udp::send(self.client.as_fd(), &datagrams.concat(), self.group.address(), Some(segment), 0).unwrap();
    }

    /// The numbers of the echo requests that are answered, in order, until `wanted` are or for `limit`; and how many answers
    /// came together at most.
    pub fn answers(&mut self, wanted: usize, limit: Duration) -> (Vec<u16>, usize) {
        let end = Instant::now() + limit;
        let mut buffer = vec![0; 65_536];
        let from = Outer { address: self.group.address(), socket: 0 };
        let (mut answers, mut together) = (Vec::new(), 0);
        while Instant::now() < end && answers.len() < wanted {
            let Ok(got) = udp::receive(self.client.as_fd(), &mut buffer) else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            let step = got.segment.map_or(got.length, usize::from);
            together = together.max(got.length.div_ceil(step));
            for datagram in buffer[..got.length].chunks_mut(step) {
                let opened = self.sad.open(Duration::ZERO, datagram, 0, from, 0).expect("an answer");
                let packet = &datagram[..opened.inner.length];
                if packet[20] == 0 {
                    answers.push(u16::from_be_bytes([packet[26], packet[27]]));
                }
            }
        }
        (answers, together)
    }

    /// Lets the gate read nothing until [`World::wake`].
    pub fn hold(&self) {
        rustix::process::kill_process(self.gate.pid, rustix::process::Signal::STOP).unwrap();
    }

    /// The end of [`World::hold`].
    pub fn wake(&self) {
        rustix::process::kill_process(self.gate.pid, rustix::process::Signal::CONT).unwrap();
    }

    /// Sets the MTU of the network outside.
    pub fn set_outer_mtu(&self, mtu: u32) {
        Net::in_ns(self.outer.as_fd()).unwrap().set_mtu("lo", mtu).unwrap();
    }

    /// What the kernel may leave to the reader of the device.
    pub fn limit_offload(&mut self, most: tun::Offload) {
        tun::limit_offload(&mut self.tun, most).unwrap();
    }

    /// A datagram from the compartment to the client.
    pub fn send_inside(&self) {
        let send = || UdpSocket::bind("10.9.0.1:0")?.send_to(b"inside", "10.0.0.2:9");
        ns::in_net(self.compartment.as_fd(), send).unwrap().unwrap();
    }

    /// Whether an echo request from the client is answered within `limit`.
    pub fn ping(&mut self, length: usize, limit: Duration) -> bool {
        let request = self.request(length);
        self.send(&request);
        let end = Instant::now() + limit;
        let mut buffer = vec![0; 65_536];
        let from = Outer { address: self.group.address(), socket: 0 };
        while Instant::now() < end {
            match self.client.recv(&mut buffer) {
                Ok(got) => {
                    let Ok(opened) = self.sad.open(Duration::ZERO, &mut buffer[..got], 0, from, 0) else {
                        continue;
                    };
                    let packet = &buffer[..opened.inner.length];
                    if packet.len() == 28 + length
                        && packet[20] == 0
                        && packet[26..28] == self.echoes.to_be_bytes()
                    {
                        return true;
                    }
                }
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        false
    }

    /// Packets that have come to the compartment through its device.
    pub fn seen_inside(&self) -> u64 {
        let read = || fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let text = ns::in_net(self.compartment.as_fd(), read).unwrap();
        let line = text.lines().find_map(|line| line.trim().strip_prefix("tun0:")).expect("the device");
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for child in [&self.gate, &self.stacks[0].0, &self.stacks[1].0] {
            // Gone already when the test ended it.
            let _ = child.kill();
        }
    }
}

/// Carries questions one way, changed, and answers the other way, until either end is gone.
fn relay(gate: &Channel, stack: &Channel, mut change: Change, unasked: Unasked) {
    use rustix::event::{PollFd, PollFlags, poll};
    loop {
        let mut fds = [PollFd::new(gate, PollFlags::IN), PollFd::new(stack, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        let [asked, answered] = fds.map(|fd| !fd.revents().is_empty());
        let carried = (!asked
            || gate.try_recv().is_ok_and(|question| stack.send(&change(question.message)).is_ok()))
            && (!answered
                || stack.try_recv::<FromStack>().is_ok_and(|answer| {
                    let more = (0..).map_while(|number| unasked(&answer.message, number));
                    gate.send(&answer.message).is_ok()
                        && more.into_iter().all(|more| gate.send(&more).is_ok())
                }));
        if !carried {
            return;
        }
    }
}

pub fn checksum(bytes: &[u8]) -> u16 {
    let pairs = bytes.chunks(2);
    let mut sum: u32 =
        pairs.map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0))).sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
