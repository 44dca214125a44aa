//! Real vaults at both ends; the bench plays warden, sessiond and keyer over the real channels.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use levee_esp::{Spi, Steering};
use levee_ipc::vault::{
    Aggregation, Cipher, KeyerToVault, Sa, Selector, SessionRecord, SessiondToVault, VaultToKeyer,
    VaultToSessiond,
};
use levee_ipc::warden::stack::StackPart;
use levee_ipc::warden::vault::{GatePart, VaultPart};
use levee_ipc::warden::{Nothing, Order, Place as End, Said};
use levee_ipc::{Channel, RecvError, Secret};
use levee_session::SessionId;
use levee_sys::net::Net;
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use levee_sys::udp::{self, SteeringGroup, SteeringKey};
use levee_sys::{ns, tun};
use serde::de::DeserializeOwned;

use crate::arms::Variant;
use crate::link::{self, Link};
use crate::peers::Place;
use crate::tunnel::{Held, Tunnel};

/// Bytes of each socket's queues, as the warden asks for them.
const QUEUE: usize = 4 << 20;
/// The same at a workstation, whose one socket has all of a session's streams.
const QUEUE_OF_ONE: usize = 4 * QUEUE;
/// The longest super-segment of a TUN device, as the warden sets it.
const SUPER_SEGMENT: u32 = 60_000;
/// Inner MTU where packets are cut and put together by AGGFRAG, not by their senders.
const LARGE_MTU: u16 = 32_000;
/// Bytes of UDP payload in a packet of the link.
const OUTER_PAYLOAD: u16 = 1_472;

fn other(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// A running vault, or a gate with its stacks, and our ends of its channels.
#[derive(Debug)]
pub struct Vault {
    child: Child,
    stacks: Vec<(Child, Channel)>,
    _warden: Channel,
    sessiond: Channel,
    keyer: Channel,
}

impl Drop for Vault {
    fn drop(&mut self) {
        // Gone already when it failed.
        let _ = self.child.kill();
        for (stack, _) in &self.stacks {
            let _ = stack.kill();
        }
    }
}

/// Starts a program of levee's with one channel; answers our end.
fn spawn(program: &Path, arguments: &[&str]) -> io::Result<(Child, Channel)> {
    let (ours, theirs) = Channel::pair().map_err(other)?;
    let mut program = Program::new(program);
    program.args.extend(arguments.iter().map(Into::into));
    program.new_namespaces = Program::ISOLATED;
    let stderr = io::stderr();
    program.stdio[2] = Some(stderr.as_fd());
    program.fds = vec![theirs.as_fd()];
    Ok((program.start().map_err(other)?, ours))
}

fn hear<T: DeserializeOwned>(channel: &Channel) -> io::Result<T> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match channel.try_recv() {
            Ok(received) => return Ok(received.message),
            Err(RecvError::Empty) if Instant::now() < end => std::thread::sleep(Duration::from_micros(200)),
            Err(error) => return Err(other(error)),
        }
    }
}

/// What one vault is made of.
struct Parts<'a> {
    end: End,
    tun: BorrowedFd<'a>,
    mtu: u16,
    socket: (SocketAddr, BorrowedFd<'a>),
}

impl Vault {
    /// A vault; with `redundant` a gate and two stacks that must agree, whose programs lie beside the vault's.
    fn start(program: &Path, arguments: &[&str], redundant: bool, parts: &Parts<'_>) -> io::Result<Self> {
        let gate = program.with_file_name("levee-gate");
        let (child, warden) = if redundant { spawn(&gate, &[]) } else { spawn(program, arguments) }?;
        let mut vault_stacks = Vec::new();
        let (sessiond, sessiond_end) = Channel::pair().map_err(other)?;
        let (keyer, keyer_end) = Channel::pair().map_err(other)?;
        // A gate is given what a vault is, and two stacks.
        let give = |part, fd: BorrowedFd<'_>| warden.send_with(&Order::Give(part), &[fd]).map_err(other);
        let give_gate = |part, fd: BorrowedFd<'_>| warden.send_with(&Order::Give(part), &[fd]).map_err(other);
        let (address, socket) = parts.socket;
        if redundant {
            give_gate(GatePart::Sessiond, sessiond_end.as_fd())?;
            give_gate(GatePart::Keyer, keyer_end.as_fd())?;
            give_gate(GatePart::Tun, parts.tun)?;
            give_gate(GatePart::Udp(address), socket)?;
        } else {
            give(VaultPart::Sessiond, sessiond_end.as_fd())?;
            give(VaultPart::Keyer, keyer_end.as_fd())?;
            give(VaultPart::Tun { mtu: parts.mtu }, parts.tun)?;
            give(VaultPart::Udp(address), socket)?;
        }
        let witness = program.with_file_name("levee-witness");
        let stacks: [(GatePart, &Path, &[&str]); 2] =
            [(GatePart::First, program, &["--stack"]), (GatePart::Second, &witness, &[])];
        for (part, program, arguments) in stacks.into_iter().filter(|_| redundant) {
            let (stack, control) = spawn(program, arguments)?;
            let (near, far) = Channel::pair().map_err(other)?;
            give_gate(part, near.as_fd())?;
            let gate = Order::Give(StackPart::Gate);
            control.send_with(&gate, &[far.as_fd()]).map_err(other)?;
            control.send(&Order::<StackPart>::Begin(parts.end)).map_err(other)?;
            match hear::<Said<Nothing>>(&control)? {
                Said::Ready => vault_stacks.push((stack, control)),
                message => return Err(other(format!("{message:?} from a stack that begins"))),
            }
        }
        warden.send(&Order::<VaultPart>::Begin(parts.end)).map_err(other)?;
        match hear::<Said<Nothing>>(&warden)? {
            Said::Ready => Ok(Self { child, stacks: vault_stacks, _warden: warden, sessiond, keyer }),
            message => Err(other(format!("{message:?} from a vault that begins"))),
        }
    }

    fn open(&self, record: SessionRecord) -> io::Result<()> {
        let id = record.id;
        self.sessiond.send(&SessiondToVault::Open(record)).map_err(other)?;
        match hear(&self.sessiond)? {
            VaultToSessiond::Opened(opened) if opened == id => Ok(()),
            message => Err(other(format!("{message:?} where a session was to open"))),
        }
    }

    fn install(
        &self,
        session: SessionId,
        inbound: Sa,
        outbound: Sa,
        peer: Option<SocketAddr>,
        aggregation: Option<Aggregation>,
    ) -> io::Result<()> {
        let cipher = Cipher::Aes256Gcm;
        let message = KeyerToVault::Install {
            session,
            cipher,
            esn: true,
            inbound,
            outbound,
            answered: false,
            peer,
            aggregation,
        };
        self.keyer.send(&message).map_err(other)?;
        loop {
            match hear(&self.keyer)? {
                VaultToKeyer::Installed { .. } => return Ok(()),
                VaultToKeyer::Acquire(_) => {}
                message => return Err(other(format!("{message:?} where keys were to be installed"))),
            }
        }
    }
}

/// An inner device with a queue for each worker, up.
fn device(
    space: &File,
    name: &str,
    address: Ipv4Addr,
    mtu: u16,
    workers: u16,
    most: tun::Offload,
) -> io::Result<Vec<tun::Queue>> {
    let open = |number| {
        let options = tun::Options { multi_queue: workers > 1, exclusive: number == 0, vnet_header: true };
        let mut queue = tun::open(name, options)?;
        tun::limit_offload(&mut queue, most)?;
        Ok(queue)
    };
    let queues: io::Result<_> =
        ns::in_net(space.as_fd(), || (0..workers).map(open).collect()).map_err(other)?;
    let queues = queues?;
    let set = || -> levee_sys::Result<()> {
        let mut net = Net::in_ns(space.as_fd())?;
        net.set_mtu(name, u32::from(mtu))?;
        net.set_gso_max_size(name, SUPER_SEGMENT)?;
        net.add_address(name, IpNet::new_assert(IpAddr::V4(address), 24))?;
        net.set_up(name)
    };
    set().map_err(other)?;
    Ok(queues)
}

/// By which the kernel steers.
const KEY: [u8; 16] = [8; 16];

/// An SPI, of some that are this number's alone, that names this slot of so many.
fn spi_of(slots: u16, slot: u16, number: u32) -> io::Result<u32> {
    let steering = Steering::new(&KEY, slots).ok_or_else(|| other("no such slots"))?;
    let mut next = (number + 1) << 12;
    let number = || {
        next += 1;
        next
    };
    steering.spi(slot, number).map(Spi::get).ok_or_else(|| other("no SPI of this slot"))
}

fn group(space: &File, address: SocketAddr, slots: u16, queue: usize) -> io::Result<SteeringGroup> {
    let key = SteeringKey::new(KEY);
    let group =
        ns::in_net(space.as_fd(), || udp::steering_group(address, slots, queue, &key)).map_err(other)??;
    for slot in 1..=slots {
        group.admit(slot)?;
    }
    Ok(group)
}

fn session(label: u16, number: u32) -> SessionId {
    let mut bytes = [7; 16];
    let (head, tail) = bytes.split_at_mut(4);
    head.copy_from_slice(&number.to_be_bytes());
    if let Some(tail) = tail.first_chunk_mut::<2>() {
        *tail = label.to_be_bytes();
    }
    SessionId::from_random(bytes)
}

fn sa(spi: u32, of: u32) -> io::Result<Sa> {
    // AES-256-GCM: the key, then a salt of 4 bytes (RFC 4106 8.1).
    let length = 32 + 4_u32;
    let octets = of.to_be_bytes();
    let bytes = octets.into_iter().cycle().zip(0..length).map(|(octet, n)| octet ^ (n * 7) as u8).collect();
    Ok(Sa { spi, keying_material: Secret::new(bytes).ok_or_else(|| other("no such secret"))? })
}

/// Builds what the variant asks for.
///
/// # Errors
/// The step that failed.
pub fn build(link: &Link, program: &Path, variant: Variant, place: Place) -> io::Result<Tunnel> {
    let (mut labels, mut associations, mut workers) = (1, 1, 1);
    let (mut mtu, mut aggregation, mut agree) = (place.mtu, None, false);
    let mut arguments: Vec<&str> = Vec::new();
    match variant {
        Variant::Plain | Variant::Before => {}
        Variant::Blocking => arguments.extend(["--poll", "0"]),
        Variant::Aead(library) => arguments.extend(["--aead", library]),
        Variant::Labels(count) => labels = count,
        Variant::Associations(count) => associations = count,
        Variant::Workers(count) => workers = count,
        Variant::Agree => agree = true,
        Variant::Aggfrag => {
            mtu = LARGE_MTU;
            aggregation = Some(Aggregation { packet: OUTER_PAYLOAD, interval: None, fragment: true });
        }
    }
    let (server_space, client_space) = (link::open(&link.server)?, link::open(&link.client)?);
    let group_of_all =
        group(&server_space, SocketAddr::from((place.outer.0, place.port())), labels * workers, QUEUE)?;
    let mut tunnel = Tunnel::default();
    let any = IpNet::new_assert(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    for label in 1..=labels {
        let number_of_label = u8::try_from(label).map_err(other)?;
        let (server, client) = place.inner(number_of_label);
        let names = ['s', 'c'].map(|letter| place.device(letter, number_of_label));
        let all = tun::Offload::TcpAndUdp;
        let most = if agree { tun::Offload::None } else { all };
        let mut queues_at_server = device(&server_space, &names[0], server, mtu, workers, most)?.into_iter();
        let mut queues_at_client = device(&client_space, &names[1], client, mtu, workers, all)?.into_iter();
        let group_of_one = group(&client_space, SocketAddr::from((place.outer.1, 0)), workers, QUEUE_OF_ONE)?;
        for worker in 0..workers {
            let mut start = |end, queue: Option<tun::Queue>, slot, group: &SteeringGroup| {
                let queue = queue.ok_or_else(|| other("a device without the queue"))?;
                let socket = group.slot(slot).ok_or_else(|| other("a group without the slot"))?;
                let socket = (group.address(), socket);
                let parts = Parts { end, tun: queue.as_fd(), mtu, socket };
                let redundant = agree && end == End::Server;
                let vault = Vault::start(program, &arguments, redundant, &parts)?;
                let processes =
                    std::iter::once(&vault.child).chain(vault.stacks.iter().map(|(child, _)| child));
                let numbers = processes.map(|child| child.pid.as_raw_nonzero().get().unsigned_abs());
                tunnel.way.processes.extend(numbers);
                tunnel.held.push(Box::new(queue));
                io::Result::Ok(vault)
            };
            let slots = ((label - 1) * workers + worker + 1, worker + 1);
            let at_server = start(End::Server, queues_at_server.next(), slots.0, &group_of_all)?;
            let at_client = start(End::Workstation, queues_at_client.next(), slots.1, &group_of_one)?;
            // The session that is used comes last, behind all others.
            for number in (0..associations).rev() {
                let inner = match number {
                    0 => client,
                    _ => Ipv4Addr::from_bits(Ipv4Addr::new(10, 200, 0, 0).to_bits() + number),
                };
                let one = IpNet::from(IpAddr::V4(inner));
                let id = session(label, number);
                let record = |local, remote| SessionRecord {
                    id,
                    inner: vec![inner.into()],
                    ciphers: None,
                    layered: false,
                    selectors: vec![Selector {
                        local,
                        remote,
                        protocol: None,
                        local_ports: (0, 65_535),
                        remote_ports: (0, 65_535),
                    }],
                };
                // No two pairs have a key in common.
                let material =
                    |spi: u32, from: u32| sa(spi, number * 2 + from + u32::from(slots.0) * 131_072);
                at_server.open(record(any, one))?;
                let peer = (number > 0).then(|| SocketAddr::from((place.outer.1, 9)));
                let there = spi_of(labels * workers, slots.0, number)?;
                let back = spi_of(workers, slots.1, number)?;
                at_server.install(id, material(there, 0)?, material(back, 1)?, peer, aggregation)?;
                if number == 0 {
                    at_client.open(record(one, any))?;
                    let peer = Some(group_of_all.address());
                    at_client.install(id, material(back, 1)?, material(there, 0)?, peer, aggregation)?;
                }
            }
            // They end before the descriptors that they have.
            tunnel.held.splice(0..0, [at_server, at_client].map(|vault| Box::new(vault) as Box<dyn Held>));
        }
        tunnel.held.push(Box::new(group_of_one));
        tunnel.way.servers.push(server);
    }
    tunnel.held.push(Box::new(group_of_all));
    Ok(tunnel)
}
