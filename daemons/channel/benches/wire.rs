//! How much passes by a one-way channel from one host to another: two processes as the warden starts them, two network namespaces, and a pair of
//! virtual interfaces between them. A line of JSON for each case: Gbit/s of messages in each stretch of time, and their median.
//!
//! Needs root, ip and nft. `cargo bench --bench wire`, or `make bench`. Writer, reader and both processes share the host's processors.

use levee_ipc::Channel;
use levee_ipc::warden::channel::{ChannelPart, Counted, Shape, Wire};
use levee_ipc::warden::{Order, Place, Said};
use levee_sys::net::Net;
use levee_sys::pidfd::Child;
use levee_sys::spawn::Program;
use levee_sys::{ns, pipe, udp};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown, socketpair,
};
use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const MESSAGE: usize = 64 << 10;
const MAC: [u8; 6] = [2, 0, 0x5e, 0, 0x53, 2];
/// Stretches of time, and how long each is, where Cargo measures; and where it tests, which is to see that all of it runs.
const MEASURED: (usize, Duration) = (7, Duration::from_secs(2));
const TRIED: (usize, Duration) = (1, Duration::from_millis(300));

/// A process of the channel, and the warden's end.
struct Running {
    _child: Child,
    control: Channel,
}

/// The other end of a partition's, and which half of the channel's own is shut.
fn end(shut: Shutdown) -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC;
    let (theirs, ours) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
    for end in [&theirs, &ours] {
        rustix::net::sockopt::set_socket_send_buffer_size_force(end, 16 << 20).expect("a queue");
    }
    shutdown(&ours, shut).expect("one way");
    (theirs, ours)
}

fn start(wire: Wire, socket: &OwnedFd, part: ChannelPart, end: &OwnedFd) -> Running {
    let (control, theirs) = Channel::pair().expect("a channel");
    let mut program = Program::new(env!("CARGO_BIN_EXE_levee-channel"));
    program.fds = vec![theirs.as_fd()];
    let (input, output) = pipe::dead_ends().expect("dead ends");
    program.stdio = [Some(input.as_fd()), Some(output.as_fd()), Some(output.as_fd())];
    let child = program.start().expect("start levee-channel");
    let mut key =
        File::from(rustix::fs::memfd_create("key", rustix::fs::MemfdFlags::CLOEXEC).expect("a key"));
    key.write_all("5a".repeat(32).as_bytes()).and_then(|()| key.rewind()).expect("a key");
    let shape = Shape { size: 64 << 10, rate: 1 << 30, numbered: true };
    control.send(&Order::Give(ChannelPart::Shape(shape))).expect("it reads");
    let heard = rustix::fs::memfd_create("heard", rustix::fs::MemfdFlags::CLOEXEC).expect("a file");
    let all = [socket.as_fd(), key.as_fd(), heard.as_fd()];
    let all = if wire.sends { &all[..2] } else { &all };
    control.send_with(&Order::Give(ChannelPart::Wire(wire)), all).expect("it reads");
    control.send(&Order::<ChannelPart>::Begin(Place::Server)).expect("it reads");
    let said = control.recv::<Said<Counted>>().expect("it says that it is ready").message;
    assert!(matches!(said, Said::Ready), "{said:?}");
    control.send_with(&Order::Give(part), &[end.as_fd()]).expect("it reads");
    Running { _child: child, control }
}

/// What it has counted.
fn counted(running: &Running, what: &str) -> u64 {
    running.control.send(&Order::Give(ChannelPart::Report)).expect("it reads");
    match running.control.recv::<Said<Counted>>().expect("it answers").message {
        Said::Says(Counted(all)) => {
            all.into_iter().find(|(name, _)| name == what).map_or(0, |(_, count)| count)
        }
        Said::Ready => 0,
    }
}

fn run_in(net: &OwnedFd, program: &str, arguments: &[&str], input: &str) {
    let path = format!("--net=/proc/{}/fd/{}", std::process::id(), net.as_raw_fd());
    let mut command = Command::new("nsenter");
    let mut child = command
        .arg(path)
        .arg(program)
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("nsenter");
    child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success(), "{program} {arguments:?}");
}

/// A pair of namespaces with a wire that loses so many of a thousand datagrams.
fn hosts(mtu: u32, loss: u32) -> [OwnedFd; 2] {
    let (below, above) = (ns::new_net().expect("a namespace"), ns::new_net().expect("a namespace"));
    let mut net = Net::in_ns(below.as_fd()).expect("its network");
    net.add_veth("eth7", "eth3", Some(above.as_fd())).expect("a wire");
    run_in(&above, "ip", &["link", "set", "eth3", "address", "02:00:5e:00:53:02"], "");
    if loss > 0 {
        // Of a super-segment, all would be lost at once.
        run_in(&below, "ip", &["link", "set", "eth7", "gso_max_segs", "1"], "");
        let rules = format!(
            "table netdev loss {{\n chain in {{\n type filter hook ingress device \"eth3\" priority 0\n numgen random mod 1000 < {loss} drop\n }}\n }}\n"
        );
        run_in(&above, "nft", &["-f", "-"], &rules);
    }
    for (ns, name, address) in [(&below, "eth7", "10.9.0.1/30"), (&above, "eth3", "10.9.0.2/30")] {
        let mut net = Net::in_ns(ns.as_fd()).expect("its network");
        net.set_mtu(name, mtu).expect("its MTU");
        net.add_address(name, address.parse().expect("an address")).expect("its address");
        net.set_up(name).expect("it is up");
    }
    net.add_neighbour("eth7", "10.9.0.2".parse().expect("an address"), MAC).expect("its neighbour");
    [below, above]
}

/// Gbit/s in each stretch, and the messages that were sent, that did not come, and that came and found no room at the reader.
fn measure(
    (stretches, stretch): (usize, Duration),
    mtu: u32,
    loss: u32,
    repair: u32,
) -> (Vec<f64>, [u64; 3]) {
    let [below, above] = hosts(mtu, loss);
    let at = |last: u8| SocketAddr::from(([10, 9, 0, last], 4_700));
    let socket = |ns: &OwnedFd, own, peer, sends| {
        let made = ns::in_net(ns.as_fd(), || udp::one_way(own, peer, 16 << 20, sends));
        made.expect("its namespace").expect("a socket")
    };
    let (out, into) = (socket(&below, at(1), at(2), true), socket(&above, at(2), at(1), false));
    let wire = |sends| Wire {
        name: "bench".parse().expect("a name"),
        sends,
        peer: at(if sends { 2 } else { 1 }),
        datagram: mtu - 28,
        repair,
    };
    let ((writer, from), (reader, to)) = (end(Shutdown::Write), end(Shutdown::Read));
    let receives = start(wire(false), &into, ChannelPart::Above, &to);
    let sends = start(wire(true), &out, ChannelPart::Below, &from);
    let (over, octets) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut rates = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let message = vec![7; MESSAGE];
            while !over.load(Ordering::Relaxed) {
                let _ = send(&writer, &message, SendFlags::NOSIGNAL);
            }
        });
        scope.spawn(|| {
            let mut room = vec![0; MESSAGE + 8];
            while !over.load(Ordering::Relaxed) {
                // A message, and its number.
                if let Ok((length, _)) = recv(&reader, &mut room, RecvFlags::empty()) {
                    octets.fetch_add(length.saturating_sub(8) as u64, Ordering::Relaxed);
                }
            }
        });
        std::thread::sleep(stretch);
        for _ in 0..stretches {
            let (before, since) = (octets.load(Ordering::Relaxed), Instant::now());
            std::thread::sleep(stretch);
            let passed = octets.load(Ordering::Relaxed) - before;
            rates.push(passed as f64 * 8.0 / since.elapsed().as_secs_f64() / 1e9);
        }
        over.store(true, Ordering::Relaxed);
        // Who waits is woken.
        let _ = (shutdown(&writer, Shutdown::Both), shutdown(&reader, Shutdown::Both));
    });
    assert!(octets.load(Ordering::Relaxed) > 0, "nothing passed");
    let missing = counted(&receives, "messages that are missing");
    let unread = counted(&receives, "messages that the reader had no room for");
    (rates, [counted(&sends, "messages sent"), missing, unread])
}

fn main() {
    let effort = if std::env::args().any(|word| word == "--bench") { MEASURED } else { TRIED };
    for (mtu, loss, repair) in [(1_500, 0, 10), (1_500, 10, 10), (9_000, 0, 10), (9_000, 10, 10)] {
        let (mut rates, [sent, missing, unread]) = measure(effort, mtu, loss, repair);
        rates.sort_by(f64::total_cmp);
        let shown: Vec<f64> = rates.iter().map(|rate| (rate * 100.0).round() / 100.0).collect();
        println!(
            "{{\"case\": \"one-way channel between hosts\", \"mtu\": {mtu}, \"lost of 1000\": {loss}, \"repair\": \"{repair}%\", \"Gbit/s\": {shown:?}, \
             \"median\": {:?}, \"messages sent\": {sent}, \"messages missing\": {missing}, \"without room at the reader\": {unread}}}",
            shown[shown.len() / 2]
        );
    }
}
