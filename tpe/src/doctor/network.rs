//! What the network lets through: a name, a TCP connection, datagrams of IKE, and how large they may be.

use super::finding::{self, Finding};
use levee_policy::DomainName;
use rustix::net::sockopt;
use rustix::net::sockopt::{Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

/// For one connection.
const CONNECT: Duration = Duration::from_secs(4);
/// A datagram without an answer for so long is lost.
const ANSWER: Duration = Duration::from_millis(700);
/// So many in a row mean that none passes.
const TRIES: usize = 4;
/// Octets of the IKE header (RFC 7296 3.1).
const HEADER: usize = 28;
/// Of a message with an error alone: header, payload header, notification.
const SHORTEST_ANSWER: usize = HEADER + 8;
/// A tunnel's outer packet without its IP header: UDP, SPI, sequence number, IV, 1,400 octets, padding, its length, next header, ICV.
const TUNNEL: usize = 8 + 8 + 8 + 1_400 + 4 + 16;
/// IP packets that are tried, in octets, largest first: Ethernet, PPPoE, common tunnels, the least of IPv6 and of IPv4.
const SIZES: [usize; 8] = [1_500, 1_492, 1_484, 1_464, 1_420, 1_400, 1_280, 576];

/// The server's name: the trusted path goes by address, people and their programs go by name.
pub fn name(name: &DomainName, addresses: &[IpAddr]) -> Finding {
    let what = "name";
    let resolved: Vec<IpAddr> = match (name.as_str(), 0u16).to_socket_addrs() {
        Ok(found) => found.map(|address| address.ip()).collect(),
        Err(_) => {
            return Finding::has(
                what,
                format!("{name} does not resolve here; the bundle's address {} is used", shown(addresses)),
            );
        }
    };
    if resolved.iter().any(|address| addresses.contains(address)) {
        return Finding::has(what, format!("{name} is {}", shown(addresses)));
    }
    Finding::weaker(
        what,
        format!("{name} resolves to {}, the bundle says {}", shown(&resolved), shown(addresses)),
        "the bundle's addresses are used: if the server has moved, enrol this host anew (levee enrol host) and copy the bundle",
    )
}

fn shown(addresses: &[IpAddr]) -> String {
    addresses.iter().take(8).map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether the trusted path's port answers.
pub fn tcp(server: SocketAddr) -> (Finding, Option<TcpStream>) {
    let what = "TCP";
    match TcpStream::connect_timeout(&server, CONNECT) {
        Ok(stream) => (Finding::has(what, format!("{server} answers")), Some(stream)),
        Err(error) => {
            let remedy = match error.kind() {
                ErrorKind::ConnectionRefused => {
                    "the host is there and nothing listens: start levee on the server (levee up, levee status)".into()
                }
                ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
                    format!("there is no way to {}: see the routes of this host and `addresses` of the site file", server.ip())
                }
                _ => format!(
                    "let TCP port {} pass in every firewall between here and {}, and see that the server runs",
                    server.port(),
                    server.ip()
                ),
            };
            let why = match error.kind() {
                ErrorKind::TimedOut => format!("{server} does not answer"),
                _ => format!("{server}: {error}"),
            };
            (Finding::lacks(what, why, remedy), None)
        }
    }
}

/// Whether a datagram of IKE comes back. What is sent is the header of an IKE_SA_INIT request of version 3, which RFC 7296 2.5 has
/// answered and which leaves nothing at the server.
pub fn udp(what: &'static str, server: SocketAddr) -> Finding {
    let remedy = format!(
        "let UDP port {} pass, both ways, in every firewall between here and {}",
        server.port(),
        server.ip()
    );
    let socket = match socket(server) {
        Ok(socket) => socket,
        Err(error) => return Finding::lacks(what, error.to_string(), remedy),
    };
    let mut refused = false;
    for _ in 0..TRIES {
        match ask(&socket, server, HEADER) {
            Asked::Answered => return Finding::has(what, format!("{server} answers")),
            Asked::Refused => refused = true,
            Asked::Silence => {}
            Asked::Failed(error) => return Finding::lacks(what, format!("{server}: {error}"), remedy),
        }
    }
    match refused {
        true => Finding::lacks(
            what,
            format!("{server} says that nothing listens"),
            "start levee on the server (levee up, levee status), or see who else rejects it",
        ),
        false => Finding::lacks(what, format!("{server} does not answer"), remedy),
    }
}

/// How large a packet passes unfragmented.
pub fn path_mtu(server: SocketAddr) -> Finding {
    let what = "path MTU";
    let (ip, needed) = match server {
        SocketAddr::V4(_) => (20, 20 + TUNNEL),
        SocketAddr::V6(_) => (40, 40 + TUNNEL),
    };
    let whole = socket(server).and_then(|socket| {
        match server {
            SocketAddr::V4(_) => sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::PROBE)?,
            SocketAddr::V6(_) => sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::PROBE)?,
        }
        Ok(socket)
    });
    let socket = match whole {
        Ok(socket) => socket,
        Err(error) => return Finding::untried(what, error.to_string()),
    };
    // Behind IP and UDP headers and the marker of RFC 3948 2.2.
    let passes = |size: usize| {
        let length = size.saturating_sub(ip + 8 + 4);
        (0..2).any(|_| matches!(ask(&socket, server, length), Asked::Answered))
    };
    match SIZES.into_iter().find(|&size| passes(size)) {
        Some(size) if size >= needed => Finding::has(what, format!("{size} octets or more")),
        other => Finding::weaker(
            what,
            match other {
                Some(size) => format!("{size} octets pass, {needed} do not"),
                None => "no packet passes that may not be fragmented".into(),
            },
            format!(
                "raise the MTU of the links between here and the server to {needed}, or let fragments pass"
            ),
        ),
    }
}

fn socket(server: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Nobody else's datagrams are heard.
    socket.connect(server)?;
    socket.set_read_timeout(Some(ANSWER))?;
    Ok(socket)
}

enum Asked {
    Answered,
    Silence,
    Refused,
    Failed(std::io::Error),
}

/// Sends one question of `length` octets, the marker not counted, and waits for its answer.
fn ask(socket: &UdpSocket, server: SocketAddr, length: usize) -> Asked {
    let marker: &[u8] = if server.port() == finding::TUNNEL { &[0; 4] } else { &[] };
    let question = question(length);
    if let Err(error) = socket.send(&[marker, &question].concat()) {
        return match error.kind() {
            // Of a datagram before this one.
            ErrorKind::ConnectionRefused => Asked::Refused,
            // EMSGSIZE: larger than the first link.
            _ if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => Asked::Silence,
            _ => Asked::Failed(error),
        };
    }
    let mut buffer = [0; 2_048];
    match socket.recv(&mut buffer) {
        Ok(length) => {
            let whole = buffer.get(..length).unwrap_or_default();
            match whole.strip_prefix(marker).is_some_and(|answer| answers(answer, &question)) {
                true => Asked::Answered,
                false => Asked::Silence,
            }
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Asked::Refused,
        Err(_) => Asked::Silence,
    }
}

/// An IKE header of an exchange that no version has: RFC 7296 3.1, filled up with zeros.
fn question(length: usize) -> Vec<u8> {
    let mut octets = vec![0; length.max(HEADER)];
    let spi = std::process::id().wrapping_mul(0x9e37_79b9) | 1;
    // Initiator's SPI; version 3.0, IKE_SA_INIT, from the initiator; the length.
    let size = u32::try_from(octets.len()).unwrap_or(u32::MAX);
    for (at, part) in
        [(0, spi.to_be_bytes()), (4, spi.to_be_bytes()), (16, [0, 0x30, 34, 0x08]), (24, size.to_be_bytes())]
    {
        if let Some(place) = octets.get_mut(at..at + 4) {
            place.copy_from_slice(&part);
        }
    }
    octets
}

/// A response of the same exchange to the same initiator.
fn answers(answer: &[u8], question: &[u8]) -> bool {
    answer.len() >= SHORTEST_ANSWER
        && answer.get(..8) == question.get(..8)
        && answer.get(18) == Some(&34)
        && answer.get(19).is_some_and(|flags| flags & 0x20 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_response_to_what_was_asked_is_an_answer() {
        let question = question(200);
        assert_eq!(
            (question.len(), &question[16..20], &question[24..28]),
            (200, &[0, 0x30, 34, 8][..], &[0, 0, 0, 200][..])
        );
        let mut answer = question[..HEADER].to_vec();
        answer.extend([0, 0, 0, 8, 0, 0, 0, 5]);
        assert!(!answers(&answer, &question), "a request is no answer");
        answer[19] = 0x20;
        assert!(answers(&answer, &question));
        answer[0] ^= 1;
        assert!(!answers(&answer, &question), "another's");
        assert!(!answers(&question[..10], &question));
    }

    #[test]
    fn a_port_at_which_nothing_listens_is_told_from_one_that_does_not_answer() {
        let there = UdpSocket::bind("127.0.0.1:0").unwrap();
        let silent = there.local_addr().unwrap();
        assert!(udp("UDP", silent).detail.contains("does not answer"));
        drop(there);
        assert!(udp("UDP", silent).detail.contains("nothing listens"));
        assert!(tcp(silent).0.remedy.contains("nothing listens"));
    }
}
