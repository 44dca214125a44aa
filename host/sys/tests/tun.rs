//! TUN devices; needs root (CAP_NET_ADMIN) and /dev/net/tun.

use std::os::fd::AsFd;

use levee_sys::tun::{self, Offload, Options};

const PLAIN: Options = Options { multi_queue: false, exclusive: true, vnet_header: false };

#[test]
fn an_exclusive_device_is_ours_alone_and_ends_with_its_queue() {
    let name = format!("lvt{}", std::process::id());
    let queue = tun::open(&name, PLAIN).expect("needs root and /dev/net/tun");
    assert_eq!(queue.name(), name);
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
fn a_name_that_the_kernel_would_read_otherwise_is_refused() {
    for name in ["", "abcdefghijklmnop", "a/b", "tun%d", "a\0b"] {
        assert_eq!(tun::open(name, PLAIN).unwrap_err().kind(), std::io::ErrorKind::InvalidInput, "{name:?}");
    }
}
