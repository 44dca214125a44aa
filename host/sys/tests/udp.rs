//! Steering, segmentation and aggregation on this host's kernel.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use levee_esp::{Spi, Steering};
use levee_sys::{ns, udp};

const LOCAL: &str = "127.0.0.1:0";

fn local() -> SocketAddr {
    LOCAL.parse().unwrap()
}

fn key() -> udp::SteeringKey {
    udp::SteeringKey::new([3; 16])
}

/// A datagram whose SPI names this slot of so many.
fn esp(slots: u16, slot: u16, filler: u8, length: usize) -> Vec<u8> {
    let mut next = 0x1234;
    let number = || {
        next += 1;
        next
    };
    let spi = Steering::new(key().expose(), slots).unwrap().spi(slot, number).unwrap();
    let mut bytes = spi.to_be_bytes().to_vec();
    bytes.resize(length, filler);
    bytes
}

/// Waits up to a second for one datagram.
fn wait(socket: BorrowedFd<'_>) -> io::Result<(udp::Received, Vec<u8>)> {
    let mut buffer = vec![0; 65_536];
    let end = Instant::now() + Duration::from_secs(1);
    loop {
        match udp::receive(socket, &mut buffer) {
            Ok(received) => {
                buffer.truncate(received.length);
                return Ok((received, buffer));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error),
        }
    }
}

fn nothing(socket: BorrowedFd<'_>) -> bool {
    std::thread::sleep(Duration::from_millis(30));
    let mut buffer = [0; 2048];
    matches!(udp::receive(socket, &mut buffer), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn each_datagram_reaches_the_socket_that_its_first_word_names() {
    let group = udp::steering_group(local(), 5, 1 << 20, &key()).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for slot in 1..=5 {
        group.admit(slot).unwrap();
    }
    for slot in [3, 1, 5, 2, 4] {
        peer.send_to(&esp(5, slot, 7, 100), group.address()).unwrap();
        let (received, bytes) = wait(group.slot(slot).unwrap()).unwrap();
        assert_eq!(bytes, esp(5, slot, 7, 100));
        assert_eq!(received.from, peer.local_addr().unwrap());
    }
    peer.send_to(&[0, 0, 0, 0, 1, 2], group.address()).unwrap();
    assert_eq!(wait(group.first().unwrap()).unwrap().1, [0, 0, 0, 0, 1, 2]);
    peer.send_to(&[0xff], group.address()).unwrap();
    assert_eq!(wait(group.first().unwrap()).unwrap().1, [0xff], "a NAT keepalive is the first socket's");
}

/// RFC 4303 2.1: 1 to 255 are reserved.
fn reserved() -> impl Iterator<Item = [u8; 64]> {
    (1..=255).map(|spi: u32| {
        let mut bytes = [1; 64];
        bytes[..4].copy_from_slice(&spi.to_be_bytes());
        bytes
    })
}

#[test]
fn a_reserved_spi_reaches_nobody() {
    let group = udp::steering_group(local(), 3, 1 << 20, &key()).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    for slot in 1..=3 {
        group.admit(slot).unwrap();
    }
    reserved().for_each(|bytes| assert_eq!(peer.send_to(&bytes, group.address()).unwrap(), 64));
    assert!(nothing(group.first().unwrap()));
    for slot in 1..=3 {
        assert!(nothing(group.slot(slot).unwrap()), "slot {slot}");
    }
    assert_eq!(group.dropped().unwrap(), udp::Dropped { first: 0, slots: 0, sink: 255 });
}

#[test]
fn what_nobody_gets_is_counted_by_where_it_was_steered() {
    let group = udp::steering_group(local(), 3, 1 << 20, &key()).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    group.admit(1).unwrap();
    assert_eq!(group.dropped().unwrap(), udp::Dropped::default());
    for slot in 1..=3 {
        peer.send_to(&esp(3, slot, 1, 64), group.address()).unwrap();
    }
    reserved().take(3).for_each(|bytes| assert_eq!(peer.send_to(&bytes, group.address()).unwrap(), 64));
    assert_eq!(wait(group.slot(1).unwrap()).unwrap().1, esp(3, 1, 1, 64));
    assert_eq!(group.dropped().unwrap(), udp::Dropped { first: 0, slots: 2, sink: 3 });
}

/// A small generator, so that a failure can be had again.
fn generator(mut seed: u64) -> impl FnMut() -> u32 {
    move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 16) as u32
    }
}

/// Sends each SPI to a group of so many slots and looks for it at the slot that `levee_esp::Steering` names.
fn compare(key: [u8; 16], slots: u16, spis: impl Iterator<Item = u32>) -> usize {
    let steering = Steering::new(&key, slots).unwrap();
    let group = udp::steering_group(local(), slots, 1 << 16, &udp::SteeringKey::new(key)).unwrap();
    (1..=slots).for_each(|slot| group.admit(slot).unwrap());
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.connect(group.address()).unwrap();
    let mut buffer = [0; 16];
    let mut compared = 0;
    for spi in spis {
        let Some(spi) = Spi::new(spi) else { continue };
        peer.send(&spi.to_be_bytes()).unwrap();
        let slot = steering.slot(spi);
        // What is sent over the loopback interface has arrived when the send returns.
        let received = udp::receive(group.slot(slot).unwrap(), &mut buffer)
            .unwrap_or_else(|e| panic!("{spi}, slot {slot} of {slots}, key {key:?}: {e}"));
        assert_eq!(buffer[..received.length], spi.to_be_bytes());
        compared += 1;
    }
    assert_eq!(group.dropped().unwrap(), udp::Dropped::default());
    compared
}

#[test]
fn the_kernel_finds_the_slot_that_the_keyers_function_names() {
    let mut random = generator(0x5eed_1234_5678_9abc);
    let edges: Vec<u32> = (0..32)
        .flat_map(|bit| {
            [1 << bit, !(1 << bit), (1_u32 << bit).wrapping_sub(1), u32::MAX << bit, (1 << bit) + 1]
        })
        .chain([0x0302_0100, 0x8000_0080, 256, u32::MAX])
        .collect();
    let mut keys = vec![[0; 16], [0xff; 16], [0x80; 16], [0x7f; 16], [0x40; 16]];
    for _ in 0..3 {
        keys.push([(); 16].map(|()| random() as u8));
    }
    let mut compared = 0;
    for (number, key) in keys.into_iter().enumerate() {
        let slots = [64, 1, 2, 7, 1_000, 16, 255, 4_095][number];
        let some: Vec<u32> = (0..16_000).map(|_| random()).collect();
        compared += compare(key, slots, edges.iter().copied().chain(some));
    }
    assert!(compared >= 100_000, "{compared}");
}

#[test]
fn a_slot_drops_until_it_is_admitted_and_again_when_it_is_idle() {
    let group = udp::steering_group(local(), 2, 1 << 20, &key()).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let socket = group.slot(2).unwrap();
    peer.send_to(&esp(2, 2, 1, 64), group.address()).unwrap();
    assert!(nothing(socket));
    group.admit(2).unwrap();
    peer.send_to(&esp(2, 2, 2, 64), group.address()).unwrap();
    assert_eq!(wait(socket).unwrap().1, esp(2, 2, 2, 64));
    peer.send_to(&esp(2, 2, 3, 64), group.address()).unwrap();
    peer.send_to(&esp(2, 2, 3, 64), group.address()).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    group.idle(2).unwrap();
    assert!(nothing(socket), "what waited is gone");
    peer.send_to(&esp(2, 2, 4, 64), group.address()).unwrap();
    assert!(nothing(socket));
}

#[test]
fn the_highest_slot_of_a_full_group_receives() {
    let group = udp::steering_group(local(), 1_000, 1 << 16, &key()).unwrap();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    group.admit(1_000).unwrap();
    peer.send_to(&esp(1_000, 1_000, 9, 64), group.address()).unwrap();
    assert_eq!(wait(group.slot(1_000).unwrap()).unwrap().1, esp(1_000, 1_000, 9, 64));
}

#[test]
fn a_group_needs_its_address_for_itself() {
    let group = udp::steering_group(local(), 1, 1 << 16, &key()).unwrap();
    let error = udp::steering_group(group.address(), 1, 1 << 16, &key()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert_eq!(udp::steering_group(local(), 0, 1, &key()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(
        udp::steering_group(local(), 4_096, 1, &key()).unwrap_err().kind(),
        io::ErrorKind::InvalidInput
    );
}

#[test]
fn groups_whose_port_the_kernel_chooses_never_share_one() {
    let space = ns::new_net().expect("needs root");
    ns::in_net(space.as_fd(), || {
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40003").unwrap();
        let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
        let groups = [(); 4].map(|()| udp::steering_group(any, 2, 1 << 16, &key()).unwrap());
        let mut ports = groups.each_ref().map(|group| group.address().port());
        ports.sort_unstable();
        assert_eq!(ports, [40_000, 40_001, 40_002, 40_003]);
        assert_eq!(
            udp::steering_group(any, 2, 1 << 16, &key()).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
    })
    .unwrap();
}

#[test]
fn groups_made_at_once_do_not_take_each_others_ports() {
    let space = ns::new_net().expect("needs root");
    ns::in_net(space.as_fd(), || {
        // `in_net` moves this thread alone, and threads of it are born there.
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40063").unwrap();
        let any: SocketAddr = "0.0.0.0:0".parse().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let groups = [(); 4].map(|()| udp::steering_group(any, 2, 1 << 12, &key()).unwrap());
                        drop(groups);
                    }
                });
            }
        });
    })
    .unwrap();
}

#[test]
fn a_segmented_send_arrives_whole_at_its_slot_with_its_ecn() {
    for address in [LOCAL, "[::1]:0"] {
        let group = udp::steering_group(address.parse().unwrap(), 2, 1 << 22, &key()).unwrap();
        group.admit(1).unwrap();
        let peer = udp::bind(address.parse().unwrap(), 1 << 22).unwrap();
        let mut burst = Vec::new();
        for n in 0..20 {
            burst.extend(esp(2, 1, n, 1_000));
        }
        burst.extend(esp(2, 1, 99, 500));
        udp::send(peer.as_fd(), &burst, group.address(), Some(1_000), 1).unwrap();
        let mut got = Vec::new();
        while got.len() < burst.len() {
            let (received, bytes) = wait(group.slot(1).unwrap()).unwrap();
            assert_eq!(received.ecn, 1);
            assert!(!received.truncated);
            if bytes.len() > 1_000 {
                assert_eq!(received.segment, Some(1_000));
            }
            got.extend(bytes);
        }
        assert_eq!(got, burst);
    }
}

#[test]
fn a_datagram_longer_than_the_buffer_is_reported_truncated() {
    let socket = udp::bind(local(), 1 << 20).unwrap();
    let to = udp::local_address(socket.as_fd()).unwrap();
    udp::send(socket.as_fd(), &[5; 300], to, None, 0).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut buffer = [0; 100];
    let received = udp::receive(socket.as_fd(), &mut buffer).unwrap();
    assert!(received.truncated);
    assert_eq!((received.length, received.segment, received.ecn), (100, None, 0));
}

#[test]
fn a_one_way_socket_sends_and_hears_nothing_or_hears_and_can_send_nothing() {
    let free = || {
        let socket = udp::bind("127.0.0.1:0".parse().unwrap(), 65_536).unwrap();
        udp::local_address(socket.as_fd()).unwrap()
    };
    let (below, above) = (free(), free());
    let sends = udp::one_way(below, above, 1 << 20, true).unwrap();
    // Nobody listens there: the kernel answers, and the sender is told nothing of it.
    for _ in 0..3 {
        udp::send(sends.as_fd(), b"lost", above, None, 0).unwrap();
    }
    let receives = udp::one_way(above, below, 1 << 20, false).unwrap();
    udp::send(sends.as_fd(), b"up", above, None, 0).unwrap();
    let mut room = [0; 100];
    let received = udp::receive(receives.as_fd(), &mut room).unwrap();
    assert_eq!(&room[..received.length], b"up");
    let refused = udp::send(receives.as_fd(), b"down", below, None, 0).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::BrokenPipe);
    // Whoever has that address: what comes to the sender is nowhere.
    drop(receives);
    let other = udp::bind(above, 65_536).unwrap();
    udp::send(other.as_fd(), b"down", below, None, 0).unwrap();
    assert!(!matches!(udp::receive(sends.as_fd(), &mut room), Ok(received) if received.length > 0));
}
