//! Needs root: real network namespaces.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use levee_sys::net::Net;
use levee_sys::{ns, sockdiag};

#[test]
fn two_namespaces_talk_over_a_veth_pair_with_addresses_and_routes() {
    let (a, b) = (ns::new_net().unwrap(), ns::new_net().unwrap());
    let mut net_a = Net::in_ns(a.as_fd()).unwrap();
    let mut net_b = Net::in_ns(b.as_fd()).unwrap();
    net_a.add_veth("va", "vb", Some(b.as_fd())).unwrap();
    net_a.add_address("va", "10.9.0.1/24".parse().unwrap()).unwrap();
    net_b.add_address("vb", "10.9.0.2/24".parse().unwrap()).unwrap();
    net_a.add_address("va", "fd00:9::1/64".parse().unwrap()).unwrap();
    net_b.add_address("vb", "fd00:9::2/64".parse().unwrap()).unwrap();
    net_a.set_mtu("va", 1400).unwrap();
    for (net, name) in [(&mut net_a, "va"), (&mut net_b, "vb")] {
        net.set_up(name).unwrap();
        net.set_up("lo").unwrap();
    }
    net_b.add_address("lo", "192.0.2.7/32".parse().unwrap()).unwrap();
    net_a.add_route("192.0.2.0/24".parse().unwrap(), Some("10.9.0.2".parse().unwrap()), "va").unwrap();
    net_b.add_route("0.0.0.0/0".parse().unwrap(), None, "vb").unwrap();
    assert_eq!(net_a.find("va").unwrap().unwrap().mtu, 1400);

    for target in ["192.0.2.7:80", "[fd00:9::2]:80"] {
        let listener = ns::in_net(b.as_fd(), || TcpListener::bind(target)).unwrap().unwrap();
        let mut client = ns::in_net(a.as_fd(), || TcpStream::connect(target)).unwrap().unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"hello").unwrap();
        let mut got = [0; 5];
        server.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello");
    }
}

#[test]
fn an_interface_moves_to_another_namespace_under_a_new_name() {
    let (a, b) = (ns::new_net().unwrap(), ns::new_net().unwrap());
    let mut net_a = Net::in_ns(a.as_fd()).unwrap();
    net_a.add_veth("here", "there", None).unwrap();
    net_a.rename("there", "lan0").unwrap();
    net_a.move_to("lan0", b.as_fd()).unwrap();
    assert!(net_a.find("lan0").unwrap().is_none());
    let mut net_b = Net::in_ns(b.as_fd()).unwrap();
    assert!(!net_b.find("lan0").unwrap().unwrap().up);
    net_a.delete("here").unwrap();
    assert!(net_b.find("lan0").unwrap().is_none());
}

#[test]
fn an_error_names_the_step_and_the_cause() {
    let a = ns::new_net().unwrap();
    let mut net = Net::in_ns(a.as_fd()).unwrap();
    let error = net.set_up("nowhere").unwrap_err();
    assert!(error.to_string().contains("find interface nowhere"), "{error}");
    assert_eq!(error.raw_os_error(), Some(19));
    assert!(net.add_veth("name/with/slash", "b", None).is_err());
    assert!(net.add_veth("sixteen-letters-", "b", None).is_err());
}

#[test]
fn destroying_an_address_cuts_its_connections_and_no_others() {
    let net = ns::new_net().unwrap();
    let mut link = Net::in_ns(net.as_fd()).unwrap();
    link.set_up("lo").unwrap();
    let (listener, mut cut, mut kept, udp) = ns::in_net(net.as_fd(), || {
        // A dual-stack listener, as nginx has: its sockets carry IPv4-mapped addresses.
        let listener = TcpListener::bind("[::]:80").unwrap();
        let from = |last: u8| {
            let source = Ipv4Addr::new(127, 0, 0, last);
            let socket =
                rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None)
                    .unwrap();
            rustix::net::bind(&socket, &std::net::SocketAddr::from((source, 0))).unwrap();
            rustix::net::connect(&socket, &"127.0.0.1:80".parse::<std::net::SocketAddr>().unwrap()).unwrap();
            TcpStream::from(socket)
        };
        let udp = std::net::UdpSocket::bind("127.0.0.5:53").unwrap();
        (listener, from(5), from(6), udp)
    })
    .unwrap();
    let (mut first, _) = listener.accept().unwrap();
    let (mut second, _) = listener.accept().unwrap();

    // Both ends of the connection are in this namespace, so the first one's reset may end the second.
    assert!(matches!(sockdiag::destroy(net.as_fd(), "127.0.0.5".parse().unwrap()).unwrap(), 2 | 3));

    assert!(cut.write_all(b"x").is_err());
    assert!(first.read(&mut [0; 1]).is_err());
    assert!(udp.recv(&mut [0; 1]).is_err());
    kept.write_all(b"y").unwrap();
    let mut got = [0; 1];
    second.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"y");
    // The listener still listens.
    let _again = ns::in_net(net.as_fd(), || TcpStream::connect("127.0.0.6:80")).unwrap().unwrap();
}

#[test]
fn connections_that_nobody_has_accepted_are_counted_also_when_who_made_them_has_gone() {
    let net = ns::new_net().unwrap();
    Net::in_ns(net.as_fd()).unwrap().set_up("lo").unwrap();
    let waiting = || sockdiag::waiting(net.as_fd()).unwrap().unwrap();
    assert_eq!(waiting(), 0, "nobody listens");
    let listen = |at: &'static str| ns::in_net(net.as_fd(), || TcpListener::bind(at)).unwrap().unwrap();
    let connect = |to: &'static str| ns::in_net(net.as_fd(), || TcpStream::connect(to)).unwrap().unwrap();
    let (four, six) = (listen("0.0.0.0:80"), listen("[::1]:80"));
    assert_eq!(waiting(), 0);
    let all: Vec<TcpStream> = (0..20).flat_map(|_| ["127.0.0.1:80", "[::1]:80"].map(connect)).collect();
    assert_eq!(waiting(), 40);
    drop(all);
    assert_eq!(waiting(), 40, "what waits in them is still there");
    let accepted = four.accept().unwrap();
    assert_eq!(waiting(), 39);
    drop((four, six, accepted));
    assert_eq!(waiting(), 0);
}

#[test]
fn an_address_loses_as_many_sockets_at_a_time_as_are_wanted_however_many_there_are_and_others_are_not_even_listed()
 {
    let net = ns::new_net().unwrap();
    Net::in_ns(net.as_fd()).unwrap().set_up("lo").unwrap();
    let connected = |to: &'static str, number: usize| {
        let open = move || {
            let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = std::net::UdpSocket::bind(any).unwrap();
            socket.connect(to).unwrap();
            socket
        };
        ns::in_net(net.as_fd(), || (0..number).map(|_| open()).collect::<Vec<_>>()).unwrap()
    };
    let his = connected("127.0.0.5:9", 60)
        .into_iter()
        .chain(connected("[::ffff:127.0.0.5]:9", 40))
        .collect::<Vec<_>>();
    let others = connected("127.0.0.6:9", 80).into_iter().chain(connected("[::1]:9", 20)).collect::<Vec<_>>();
    let find = |most| sockdiag::Doomed::find(net.as_fd(), "127.0.0.5".parse().unwrap(), most).unwrap();
    // Some are listed at a time, and then it is looked again.
    let mut doomed = find(33);
    for so_far in [70, 80, 90, 99] {
        assert!(doomed.destroy(so_far - doomed.destroyed()).unwrap(), "there are more than {so_far}");
        assert_eq!(doomed.destroyed(), so_far);
    }
    assert!(!doomed.destroy(70).unwrap(), "that was all");
    assert_eq!(doomed.destroyed(), 100);
    assert!(his.iter().all(|socket| socket.peer_addr().is_err()), "each has lost its peer");
    assert!(others.iter().all(|socket| socket.peer_addr().is_ok()));
    assert!(!find(33).destroy(1).unwrap(), "nothing is left");
    assert_eq!(sockdiag::destroy(net.as_fd(), "::1".parse().unwrap()).unwrap(), 20);
}

#[test]
fn what_the_kernel_has_of_a_connection_that_its_program_has_ended_is_no_socket_when_nothing_is_left_to_send()
{
    let (here, there) = (ns::new_net().unwrap(), ns::new_net().unwrap());
    let mut nets = [&here, &there].map(|net| Net::in_ns(net.as_fd()).unwrap());
    nets[0].add_veth("va", "vb", Some(there.as_fd())).unwrap();
    for (net, (name, address)) in nets.iter_mut().zip([("va", "10.9.0.1/24"), ("vb", "10.9.0.2/24")]) {
        net.add_address(name, address.parse().unwrap()).unwrap();
        net.set_up(name).unwrap();
    }
    let listener = ns::in_net(here.as_fd(), || TcpListener::bind("10.9.0.1:80")).unwrap().unwrap();
    let connect = || {
        let client = ns::in_net(there.as_fd(), || TcpStream::connect("10.9.0.1:80")).unwrap().unwrap();
        (client, listener.accept().unwrap().0)
    };
    let destroyed = || sockdiag::destroy(here.as_fd(), "10.9.0.2".parse().unwrap()).unwrap();
    // The program here is gone, and the one there says no last word: the kernel waits a minute for that.
    let _clients: Vec<_> = (0..30).map(|_| connect().0).collect();
    let waits = || {
        let all = || std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        let all = ns::in_net(here.as_fd(), all).unwrap();
        // FIN_WAIT2. The last word is acknowledged a moment later.
        all.lines().filter(|line| line.split_whitespace().nth(3) == Some("05")).count()
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while waits() < 30 {
        assert!(std::time::Instant::now() < until, "{} wait", waits());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(destroyed(), 0);
    // One that a program has still is a socket, though it has said its own.
    let half: Vec<_> = (0..30).map(|_| connect()).collect();
    half.iter().for_each(|(_, server)| server.shutdown(std::net::Shutdown::Write).unwrap());
    assert_eq!(destroyed(), 30);
}

#[test]
fn what_is_nobodys_any_more_and_has_something_to_send_is_destroyed() {
    let net = ns::new_net().unwrap();
    Net::in_ns(net.as_fd()).unwrap().set_up("lo").unwrap();
    // Those that have sent a last word and still have something to send before it: FIN_WAIT1.
    let unsent = || {
        let all = |file| ns::in_net(net.as_fd(), move || std::fs::read_to_string(file)).unwrap().unwrap();
        let all = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"].map(all).concat();
        all.lines().filter(|line| line.split_whitespace().nth(3) == Some("04")).count()
    };
    let mut deaf = Vec::new();
    for to in ["127.0.0.1:80", "[::1]:80"] {
        let listener = ns::in_net(net.as_fd(), move || TcpListener::bind(to)).unwrap().unwrap();
        for _ in 0..10 {
            let mut client = ns::in_net(net.as_fd(), move || TcpStream::connect(to)).unwrap().unwrap();
            deaf.push(listener.accept().unwrap());
            client.set_nonblocking(true).unwrap();
            while client.write(&[7; 65_536]).is_ok() {}
        }
    }
    assert_eq!(unsent(), 20);
    let mut left = sockdiag::Doomed::left(net.as_fd()).unwrap();
    assert!(left.destroy(5).unwrap(), "there are more");
    assert!(unsent() > 0);
    while left.destroy(5).unwrap() {}
    assert_eq!(unsent(), 0);
    let mut none = sockdiag::Doomed::left(net.as_fd()).unwrap();
    assert!(!none.destroy(5).unwrap());
    assert_eq!(none.destroyed(), 0);
}

#[test]
fn in_a_range_that_is_local_every_address_is_ones_own_and_connections_to_one_place_are_destroyed_alone() {
    let net = ns::new_net().unwrap();
    let mut handle = Net::in_ns(net.as_fd()).unwrap();
    handle.set_up("lo").unwrap();
    for range in ["10.81.0.0/16", "fd81::/64"] {
        handle.add_local(range.parse().unwrap(), "lo").unwrap();
    }
    for (here, there) in [("10.81.3.4:80", "10.81.3.4:81"), ("[fd81::77]:80", "[fd81::77]:81")] {
        let open = |address: &'static str| {
            ns::in_net(net.as_fd(), move || {
                let listener = TcpListener::bind(address)?;
                let client = TcpStream::connect(address)?;
                let (server, _) = listener.accept()?;
                Ok::<_, std::io::Error>((listener, client, server))
            })
        };
        // In IPv6 nobody binds to what is local but no interface's, unless the namespace says so.
        let binds = "/proc/sys/net/ipv6/ip_nonlocal_bind";
        ns::in_net(net.as_fd(), || std::fs::write(binds, "1")).unwrap().unwrap();
        let (_listener, mut client, mut server) = open(here).unwrap().unwrap();
        let (_other_listener, mut kept, mut other) = open(there).unwrap().unwrap();
        assert_eq!(sockdiag::destroy_connections(net.as_fd(), here.parse().unwrap()).unwrap(), 1);
        assert!(server.read(&mut [0; 1]).is_err());
        assert!(!matches!(client.read(&mut [0; 1]), Ok(1..)));
        kept.write_all(b"y").unwrap();
        other.read_exact(&mut [0; 1]).unwrap();
        // The listener still listens.
        let _again = ns::in_net(net.as_fd(), || TcpStream::connect(here)).unwrap().unwrap();
    }
}
