//! A server's whose second tunnel ends at a gateway: from there to the steering group, and back. It has no key and knows nobody.

use crate::loopback::{Loopback, between, from_between};
use crate::serve::{LONGEST, Source};
use crate::together::Together;
use levee_daemon::tunnel::Socket;
use levee_daemon::{Events, Fatal, Order, TURN, Warden, Watched};
use levee_ipc::warden::layer::LayerPart;
use levee_sys::udp;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd as _, OwnedFd};

/// What it works with.
pub struct Relay {
    pub events: Events<Source>,
    pub warden: Warden<LayerPart>,
    /// Where the gateway's datagrams come.
    pub outer: Socket,
    /// On the loopback interface.
    pub inner: Watched<OwnedFd>,
    /// From where they come.
    pub gateway: SocketAddr,
    /// The steering group.
    pub tunnel: SocketAddrV4,
}

impl Relay {
    /// Works until the warden says stop or is gone.
    ///
    /// # Errors
    /// When the warden sends what is no message, or what can be waited for cannot be any more.
    pub fn work(mut self) -> Result<(), Fatal> {
        let (mut buffer, mut together) = (vec![0; LONGEST], Together::default());
        loop {
            for (source, _) in self.events.wait(None)? {
                match source {
                    Source::Warden => match self.warden.hear()? {
                        Some(Order::Stop) => return Ok(()),
                        Some(Order::Take(part, _)) => return Err(Warden::unwanted(&part)),
                        None => {}
                    },
                    Source::Outer(_) => {
                        self.inward(&mut buffer, &mut together);
                        together.leave(self.inner.as_fd());
                    }
                    Source::Inner => {
                        self.outward(&mut buffer, &mut together);
                        together.leave(self.outer.fd.as_fd());
                    }
                }
            }
        }
    }

    /// What the gateway sends, and nobody else. What the kernel does not take is lost like any other.
    fn inward(&self, buffer: &mut [u8], together: &mut Together) {
        for _ in 0..TURN {
            let received = match udp::receive(self.outer.fd.as_fd(), buffer) {
                Ok(received) if !received.truncated => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                // What ICMP says about an earlier send: anyone could have said it.
                _ => continue,
            };
            if received.from != self.gateway {
                continue;
            }
            for datagram in received.datagrams(buffer) {
                if let Some((loopback, flow, packet)) = from_between(datagram) {
                    let from = Some(loopback.address(flow));
                    together.add(self.inner.as_fd(), from, self.tunnel.into(), packet);
                }
            }
        }
    }

    /// What keyer and vaults send.
    fn outward(&self, buffer: &mut [u8], together: &mut Together) {
        for _ in 0..TURN {
            let received = match udp::receive(self.inner.as_fd(), buffer) {
                Ok(received) if !received.truncated => received,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                _ => continue,
            };
            if received.from != SocketAddr::V4(self.tunnel) {
                continue;
            }
            let Some((loopback, flow)) = received.to.and_then(Loopback::of) else { continue };
            for packet in received.datagrams(buffer) {
                let datagram = between(loopback, flow, packet);
                together.add(self.outer.fd.as_fd(), None, self.gateway, &datagram);
            }
        }
    }
}
