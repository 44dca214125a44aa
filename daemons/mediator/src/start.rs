//! From the first instruction to the sandbox.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use levee_ipc::Channel;
use levee_ipc::tunnel::{self, Fatal};
use levee_ipc::warden::{Attachment, CONTROL_FD, Place, Role, ToWarden};
use levee_policy::ServiceName;
use levee_policy::site::Mode;
use levee_sys::sandbox::Sandbox;
use levee_sys::seccomp;
use rustix::event::epoll;

/// A service's listener.
pub struct Listener {
    /// The service.
    pub service: ServiceName,
    /// Whether its connections are relayed and not handed off.
    pub relayed: bool,
    /// Where it listens, and in the mediator's own network the daemon.
    pub address: SocketAddr,
    /// The listener, non-blocking.
    pub fd: OwnedFd,
}

/// Everything that the mediator works with.
pub struct Started {
    /// To the warden.
    pub control: Channel,
    /// To sessiond.
    pub sessiond: Option<Channel>,
    /// To process 1 of the compartment.
    pub starter: Channel,
    /// The services' listeners.
    pub listeners: Vec<Listener>,
    /// Waits for relayed connections.
    pub epoll: OwnedFd,
    /// Connections that are handed off at a time, at most.
    pub most: usize,
}

/// Collects the attachments, enters the sandbox and tells the warden.
///
/// # Errors
/// The step that failed; the process must then end.
pub fn start() -> Result<Started, Fatal> {
    let most = most(std::env::args().skip(1))?;
    let control =
        levee_sys::fork::inherited(CONTROL_FD).map_err(|why| Fatal::new("take over the channel", why))?;
    let control = Channel::from_fd(control);
    let (mut sessiond, mut starter, mut listeners) = (None, None, Vec::new());
    let place = tunnel::attachments(&control, |attachment, fd| {
        match attachment {
            Attachment::Peer { role: Role::Sessiond, .. } => sessiond = Some(Channel::from_fd(fd)),
            Attachment::Starter => starter = Some(Channel::from_fd(fd)),
            Attachment::Service { name, mode, address } => {
                let relayed = match mode {
                    Mode::Handoff(_) => false,
                    Mode::Relay => true,
                    Mode::Direct => return Err(Fatal::new("take a listener", "nothing mediates `direct`")),
                };
                listeners.push(Listener { service: name, relayed, address, fd });
            }
            other => return Err(tunnel::not_for("mediator", &other)),
        }
        Ok(())
    })?;
    if place != Place::Server {
        return Err(Fatal::new("begin", "a mediator is a server's"));
    }
    let starter = starter.ok_or_else(|| Fatal::new("begin", "no channel to the compartment was attached"))?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|why| Fatal::new("make an epoll", why))?;
    // Only to the daemons in a network of its own; one that relays nothing connects to nobody.
    let tcp = listeners.iter().any(|listener| listener.relayed);
    Sandbox { tcp, ..Sandbox::new(seccomp::MEDIATOR) }
        .enter()
        .map_err(|why| Fatal::new("enter the sandbox", why))?;
    control.send(&ToWarden::Ready).map_err(|why| Fatal::new("tell the warden", why))?;
    Ok(Started { control, sessiond, starter, listeners, epoll, most })
}

/// The one argument, `--most N`.
fn most(mut arguments: impl Iterator<Item = String>) -> Result<usize, Fatal> {
    let wrong = |what: &str| Fatal::new("read the arguments", what);
    match (arguments.next().as_deref(), arguments.next(), arguments.next()) {
        (Some("--most"), Some(number), None) => {
            number.parse().ok().filter(|most| *most > 0).ok_or_else(|| wrong("--most takes a number from 1"))
        }
        _ => Err(wrong("they must be --most and a number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_connections_must_be_said_and_nothing_else() {
        let read = |words: &[&str]| most(words.iter().map(|word| (*word).to_owned()));
        assert_eq!(read(&["--most", "128"]).ok(), Some(128));
        for wrong in [&[][..], &["--most"], &["--most", "0"], &["--most", "x"], &["--most", "1", "2"], &["5"]]
        {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
