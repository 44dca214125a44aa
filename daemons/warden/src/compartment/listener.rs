//! A listener that refuses who comes, and listens again.

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, SocketType, listen, recv, shutdown, sockopt};
use std::os::fd::OwnedFd;

/// Connections that may wait at a listener.
const BACKLOG: i32 = 511;
/// Datagrams that are thrown away at most when who waits is refused.
const DATAGRAMS: usize = 1_024;

/// Refuses who waits at a listener and who comes: a stream socket that is shut down listens no more and keeps its address. Datagrams
/// that wait are thrown away.
///
/// Nobody else gets the address meanwhile: with SO_REUSEADDR, which it was bound with, whoever sets that too may have the address of one
/// that does not listen (tcp(7); `inet_bind_conflict`), and would be taken for the service.
///
/// # Errors
/// The kernel's.
pub fn refuse(listener: &OwnedFd) -> rustix::io::Result<()> {
    if sockopt::socket_type(listener)? == SocketType::STREAM {
        sockopt::set_socket_reuseaddr(listener, false)?;
        // One that does not listen is left alone: that it was shut down would stay with it, and what it accepts later could not be written.
        if !sockopt::socket_acceptconn(listener)? {
            return Ok(());
        }
        return shutdown(listener, Shutdown::Both);
    }
    for _ in 0..DATAGRAMS {
        match recv(listener, &mut [0u8; 1][..], RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    Ok(())
}

/// Listens again. One that listens already stays as it is.
///
/// # Errors
/// The kernel's.
pub fn offer(listener: &OwnedFd) -> rustix::io::Result<()> {
    if sockopt::socket_type(listener)? == SocketType::STREAM {
        // Else connections of before, which wait for their ends, are in the way.
        sockopt::set_socket_reuseaddr(listener, true)?;
        return listen(listener, BACKLOG);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn nobody_else_gets_the_address_of_a_listener_that_refuses() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = OwnedFd::from(TcpListener::bind(address).unwrap());
        // It sets SO_REUSEADDR, as whoever is after an address does.
        let take = || TcpListener::bind(address).map_err(|e| e.kind());
        for _ in 0..2 {
            assert_eq!(take().unwrap_err(), ErrorKind::AddrInUse);
            refuse(&listener).unwrap();
            assert_eq!(take().unwrap_err(), ErrorKind::AddrInUse);
            // Once more, of one that does not listen.
            refuse(&listener).unwrap();
            assert_eq!(take().unwrap_err(), ErrorKind::AddrInUse);
            offer(&listener).unwrap();
        }
    }

    #[test]
    fn who_waits_is_refused_and_the_listener_can_be_used_again() {
        // A port that the kernel chose would go back to it.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = TcpListener::bind(address).unwrap();
        let waits = TcpStream::connect(address).unwrap();
        let listener = OwnedFd::from(listener);
        refuse(&listener).unwrap();
        refuse(&listener).unwrap();
        let gone = std::io::Read::read(&mut &waits, &mut [0; 1]).unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::ConnectionReset);
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        offer(&listener).unwrap();
        offer(&listener).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = TcpListener::from(listener).accept().unwrap();
        std::io::Write::write_all(&mut server, b"x").unwrap();
        assert_eq!(std::io::Read::read(&mut client, &mut [0; 1]).unwrap(), 1);

        // The connection, which is this end's to remember for a minute, is not in the way of listening again.
        drop(server);
        drop(client);
        let listener = OwnedFd::from(TcpListener::bind(address).unwrap());
        refuse(&listener).unwrap();
        offer(&listener).unwrap();

        let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..3 {
            sender.send_to(b"anybody?", datagrams.local_addr().unwrap()).unwrap();
        }
        let datagrams = OwnedFd::from(datagrams);
        refuse(&datagrams).unwrap();
        offer(&datagrams).unwrap();
        let left = recv(&datagrams, &mut [0u8; 8][..], RecvFlags::DONTWAIT);
        assert_eq!(left.map(|(_, n)| n), Err(Errno::AGAIN));
    }
}
