//! levee: the second IPsec stack of a label whose stacks must agree.
//!
//! Another library (aws-lc-rs) and packet code written a second time (`levee-second`). It has the label's keys, which the
//! gate passes on from the keyer, one channel to the gate and one to the warden: all it can do is answer.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::process::ExitCode;

use levee_aead::Library;
use levee_ipc::agree::{self, Batch, FromStack, ToStack};
use levee_ipc::tunnel;
use levee_ipc::vault::{Refusal, Sa, Selector, SessionRecord, Suite};
use levee_ipc::warden::{Attachment, CONTROL_FD, Place, Role, ToWarden};
use levee_ipc::{Channel, Received, RecvError};
use levee_second::{Half, Refused, Row, Second};
use levee_session::SessionId;
use levee_sys::sandbox::Sandbox;
use levee_sys::seccomp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// The library of the second stack; the first one has the other.
const LIBRARY: Library = Library::AwsLc;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Standard error may be gone; the exit status says it too.
            let _ = writeln!(std::io::stderr(), "levee-witness: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let control =
        levee_sys::fork::inherited(CONTROL_FD).map_err(|why| format!("take over the channel: {why}"))?;
    let control = Channel::from_fd(control);
    let (gate, slot) = attachments(&control)?;
    Sandbox::new(seccomp::STACK).enter().map_err(|why| format!("enter the sandbox: {why}"))?;
    control.send(&ToWarden::Ready).map_err(|why| format!("tell the warden: {why}"))?;
    let gate = Channel::from_fd(gate);
    gate.send(&FromStack::Ready).map_err(|why| format!("tell the gate: {why}"))?;
    let mut second = Second::new(slot);
    loop {
        let mut fds = [PollFd::new(&control, PollFlags::IN), PollFd::new(&gate, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(why) => return Err(format!("wait: {why}")),
        }
        let [told, asked] = fds.map(|fd| !fd.revents().is_empty());
        if told {
            // It says nothing to a running stack but that it is over.
            return Ok(());
        }
        if asked {
            match gate.try_recv::<ToStack>() {
                Ok(Received { message, .. }) => {
                    let answer = answer(&mut second, message)?;
                    gate.send(&answer).map_err(|why| format!("answer the gate: {why}"))?;
                }
                Err(RecvError::Empty) => {}
                Err(RecvError::Closed) => return Ok(()),
                Err(why) => return Err(format!("hear the gate: {why}")),
            }
        }
    }
}

/// The channel to the gate and our slot.
fn attachments(control: &Channel) -> Result<(OwnedFd, Option<u16>), String> {
    let mut gate = None;
    let place = tunnel::attachments(control, |attachment, fd| match attachment {
        Attachment::Peer { role: Role::Vault, slot, .. } => {
            gate = Some((fd, slot));
            Ok(())
        }
        other => Err(tunnel::not_for("stack", &other)),
    });
    match (place.map_err(|why| why.to_string())?, gate) {
        (Place::Server, Some(gate)) => Ok(gate),
        (Place::Server, None) => Err("begin: no channel to the gate was attached".to_owned()),
        (Place::Workstation, _) => Err("begin: stacks are a server's".to_owned()),
    }
}

fn answer(second: &mut Second<SessionId>, question: ToStack) -> Result<FromStack, String> {
    Ok(match question {
        ToStack::Open(SessionRecord { id, inner, selectors }) => {
            let rows = selectors.into_iter().map(row).collect();
            FromStack::Taken(second.open_session(id, inner, rows))
        }
        ToStack::Close(id) => {
            second.close_session(id);
            FromStack::Taken(true)
        }
        ToStack::Install { now: _, session, suite, esn, inbound, outbound, peer } => {
            let suite = match suite {
                Suite::Aes128Gcm => levee_esp::Suite::Aes128Gcm,
                Suite::Aes256Gcm => levee_esp::Suite::Aes256Gcm,
                Suite::ChaCha20Poly1305 => levee_esp::Suite::ChaCha20Poly1305,
            };
            let (inbound, outbound) = (half(&inbound), half(&outbound));
            let taken = second.install(session, suite, esn, inbound, outbound, peer.map(place), &LIBRARY);
            FromStack::Installed(taken.map_err(|refused| match refused {
                Refused::NoSession => Refusal::NoSession,
                Refused::Spi => Refusal::Spi,
                Refused::SpiInUse => Refusal::SpiInUse,
                Refused::Keys => Refusal::KeyLength,
            }))
        }
        ToStack::Delete { spi } => {
            second.delete(spi);
            FromStack::Taken(true)
        }
        ToStack::Datagrams(datagrams) => {
            let mut packets = Batch::new();
            for (from, datagram) in datagrams.iter() {
                let packet = second.open(datagram, place(from.outer), from.ecn);
                if !packets.add((), packet.as_ref().map_or(&[][..], |packet| packet.as_slice())) {
                    return Err("answer the gate: the answer is too large".to_owned());
                }
            }
            FromStack::Opened(packets)
        }
        ToStack::Check { packets, sealed } => {
            let mut verdicts = Batch::new();
            for (((), packet), (to, datagram)) in packets.iter().zip(sealed.iter()) {
                let agrees = second.agrees(packet, datagram, place(to.outer), to.ecn);
                if !verdicts.add(agrees, &[]) {
                    return Err("answer the gate: the answer is too large".to_owned());
                }
            }
            FromStack::Agreed(verdicts)
        }
        ToStack::Packets { .. } | ToStack::Report => {
            return Err("answer the gate: this is the second stack".to_owned());
        }
    })
}

fn row(selector: Selector) -> Row {
    let Selector { local, remote, protocol, local_ports, remote_ports } = selector;
    Row { local, remote, protocol, local_ports, remote_ports }
}

fn half(sa: &Sa) -> Half<'_> {
    Half { spi: sa.spi, material: sa.keying_material.expose() }
}

fn place(outer: agree::Outer) -> levee_second::Place {
    levee_second::Place { address: outer.address, socket: outer.socket }
}
