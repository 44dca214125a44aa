//! TUN devices; needs root (CAP_NET_ADMIN) and /dev/net/tun.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use levee_sys::net::Net;
use levee_sys::ns;
use levee_sys::tun::{self, Offload, Options};

const PLAIN: Options = Options { multi_queue: false, exclusive: true, vnet_header: false };

#[test]
fn an_exclusive_device_is_ours_alone_and_ends_with_its_queue() {
    let name = format!("lvt{}", std::process::id());
    let mut queue = tun::open(&name, PLAIN).expect("needs root and /dev/net/tun");
    assert_eq!(queue.name(), name);
    // Also where it is asked for: nobody would be told what is left to do.
    tun::limit_offload(&mut queue, Offload::TcpAndUdp).unwrap();
    assert_eq!(queue.offload(), Offload::None);
    assert_eq!(tun::open(&name, PLAIN).unwrap_err().raw_os_error(), Some(16), "EBUSY");
    drop(queue);
    drop(tun::open(&name, PLAIN).unwrap());
}

#[test]
fn a_device_with_vnet_headers_takes_tcp_super_segments_and_more_queues() {
    let name = format!("lvm{}", std::process::id());
    let first = Options { multi_queue: true, exclusive: true, vnet_header: true };
    let mut queue = tun::open(&name, first).expect("needs root and /dev/net/tun");
    let most = queue.offload();
    assert_ne!(most, Offload::None);
    // What is given up is had again.
    for (limit, left) in [(Offload::None, Offload::None), (Offload::TcpAndUdp, most)] {
        tun::limit_offload(&mut queue, limit).unwrap();
        assert_eq!(queue.offload(), left);
    }
    let second = tun::open(&name, Options { exclusive: false, ..first }).unwrap();
    let mut buffer = [0; 64];
    let error = rustix::io::read(second.as_fd(), &mut buffer).unwrap_err();
    assert!(
        error == rustix::io::Errno::AGAIN || error == rustix::io::Errno::IO,
        "non-blocking or down: {error}"
    );
}

#[test]
fn a_queue_that_is_detached_is_given_no_packet_until_it_is_attached_again() {
    let space = ns::new_net().expect("needs root");
    let first = Options { multi_queue: true, exclusive: true, vnet_header: true };
    let open = |options| ns::in_net(space.as_fd(), || tun::open("two", options)).unwrap().unwrap();
    let mut queues = [open(first), open(Options { exclusive: false, ..first })];
    let mut net = Net::in_ns(space.as_fd()).unwrap();
    net.add_address("two", "10.9.0.1/24".parse().unwrap()).unwrap();
    net.set_up("two").unwrap();
    let socket = ns::in_net(space.as_fd(), || UdpSocket::bind("10.9.0.1:0")).unwrap().unwrap();
    // Datagrams of 64 flows: how many each queue has.
    let spread = |queues: &[tun::Queue; 2]| {
        for port in 5_000..5_064 {
            socket.send_to(b"levee", ("10.9.0.2", port)).unwrap();
        }
        queues.each_ref().map(|queue| {
            let mut buffer = [0; 200];
            let reads = std::iter::from_fn(|| rustix::io::read(queue.as_fd(), &mut buffer).ok());
            // A vnet header, then IPv4 and UDP; and no packet of the kernel's own.
            reads.filter(|length| *length == tun::VNET_HEADER + 28 + 5).count()
        })
    };
    assert!(spread(&queues).iter().all(|count| *count > 0), "both are given some");
    let most = queues[0].offload();
    for _ in 0..2 {
        tun::share(&mut queues, 1, most).unwrap();
        assert_eq!(spread(&queues), [64, 0]);
    }
    tun::share(&mut queues, 2, most).unwrap();
    let again = spread(&queues);
    assert!(again.iter().all(|count| *count > 0) && again.iter().sum::<usize>() == 64, "{again:?}");
}

#[test]
fn a_name_that_the_kernel_would_read_otherwise_is_refused() {
    for name in ["", "abcdefghijklmnop", "a/b", "tun%d", "a\0b"] {
        assert_eq!(tun::open(name, PLAIN).unwrap_err().kind(), std::io::ErrorKind::InvalidInput, "{name:?}");
    }
}
