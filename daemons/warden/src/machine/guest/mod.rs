//! Process 1 of a label's virtual machine. What the warden does for a compartment on the host, it does here, for this one
//! label: it builds the compartment, opens the services' listeners, and cuts a session's connections. The services run as on the host: in namespaces, under the filter, without rights.

mod boot;
mod documents;
mod output;
mod services;

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use levee_ipc::{Full, Stream};
use levee_sys::signals::Signals;
use levee_sys::{ns, sockdiag};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_settime};

use super::image::PROGRAMS;
use super::proto::{CONTROL_PORT, FromGuest, ToGuest, WIRE, Whole};
use crate::compartment::proto::shorten;
use crate::compartment::{Compartment, Event, Interface, Network, Plan};
use boot::port;
use documents::Documents;
use services::Outputs;

/// The machine's network card.
const CARD: &str = "eth0";

/// All of process 1. Returns when the machine is to end.
///
/// # Errors
/// In words; the warden has been told, where there was a way to.
pub fn main() -> Result<(), String> {
    boot::prepare()?;
    let mut warden = Stream::new(port(CONTROL_PORT)?);
    let outcome = serve(&mut warden);
    if let Err(reason) = &outcome {
        // The warden sees the end in any case.
        let _ = warden.send(&FromGuest::Failed { reason: shorten(reason) }, Full::Waits);
    }
    boot::end();
    outcome
}

/// Waits until one of these can be read.
fn wait(fds: &[BorrowedFd<'_>]) -> Result<(), String> {
    let mut fds: Vec<PollFd<'_>> =
        fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    match poll(&mut fds, None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(format!("wait: {e}")),
    }
}

/// What the machine is to be: the plan of its compartment, and the rest.
fn told(warden: &mut Stream) -> Result<(Plan, Whole), String> {
    let mut inside = Vec::new();
    loop {
        match warden.receive::<ToGuest>().map_err(|e| format!("listen to the warden: {e}"))? {
            Some(ToGuest::Steps(more)) => inside.extend(more),
            Some(ToGuest::Begin(whole)) => {
                let plan = Plan { label: whole.label.clone(), outside: whole.outside.clone(), inside };
                return Ok((plan, *whole));
            }
            Some(_) => return Err("the warden wants something of a machine that is not built".into()),
            None => wait(&[warden.as_fd()])?,
        }
    }
}

fn network(whole: &Whole) -> Result<Network, String> {
    let here = ns::current_net().map_err(|e| e.to_string())?;
    let network = Network::in_ns(here).map_err(|e| e.to_string())?;
    let wire = Interface {
        name: CARD.into(),
        mtu: whole.wire.mtu,
        addresses: whole.wire.addresses.clone(),
        routes: whole.wire.routes.clone(),
    };
    network.net().and_then(|mut net| net.make_wire(CARD, WIRE)).map_err(|e| e.to_string())?;
    network.add(&wire, || Ok(())).map_err(|e| e.to_string())?;
    Ok(network)
}

fn serve(warden: &mut Stream) -> Result<(), String> {
    tell(warden, &FromGuest::Booted)?;
    let (plan, whole) = told(warden)?;
    let now = Timespec::try_from(whole.time).map_err(|e| e.to_string())?;
    clock_settime(ClockId::Realtime, now).map_err(|e| format!("set the clock: {e}"))?;
    let signals = Signals::new(&[Signal::CHILD]).map_err(|e| e.to_string())?;
    let network = network(&whole)?;
    let init = PathBuf::from(PROGRAMS).join("levee-init");
    let label = whole.label;
    let (given, mut outputs) = Outputs::open(whole.services, &whole.off, &network)?;
    let compartment = Compartment::start_with(&plan, &network, &init, given);
    let mut compartment = compartment.map_err(|e| e.to_string())?;
    let documents = Documents::start(&label, whole.read, whole.below, &compartment)?;
    tell(warden, &FromGuest::Built)?;
    loop {
        let mut fds = vec![warden.as_fd(), compartment.channel().as_fd(), signals.as_fd()];
        fds.extend(compartment.process().map(|child| child.pidfd.as_fd()));
        fds.extend(outputs.descriptors());
        wait(&fds)?;
        while signals.next().map_err(|e| e.to_string())?.is_some() {}
        for event in compartment.events().map_err(|e| e.to_string())? {
            match event {
                Event::Service(place, report) => tell(warden, &FromGuest::Service(place, report))?,
                Event::Turned(ticket) => {
                    // What had still to be sent ends, too. With a kernel that does not do that it goes on, and vaults pass nothing of it.
                    let _ =
                        sockdiag::Doomed::left(network.ns()).and_then(|mut left| left.destroy(usize::MAX));
                    tell(warden, &FromGuest::Turned(ticket))?;
                }
                _ => {}
            }
        }
        outputs.said().iter().try_for_each(|said| tell(warden, said))?;
        while let Some(message) =
            warden.receive::<ToGuest>().map_err(|e| format!("listen to the warden: {e}"))?
        {
            match message {
                ToGuest::Cut(ticket, address) => {
                    let sockets = sockdiag::destroy(network.ns(), address).ok();
                    let sockets = sockets.map(|sockets| u32::try_from(sockets).unwrap_or(u32::MAX));
                    tell(warden, &FromGuest::Cut { ticket, sockets })?;
                }
                ToGuest::Services(ticket, off) => {
                    compartment.turn(ticket, off).map_err(|e| e.to_string())?;
                }
                ToGuest::Stop => {
                    // Nobody writes to the store any more when what is in it is told for the last time.
                    compartment.kill().map_err(|e| e.to_string())?;
                    documents.finish();
                    return compartment.stop().map_err(|e| e.to_string());
                }
                ToGuest::Steps(_) | ToGuest::Begin(_) => return Err("the machine is built already".into()),
            }
        }
    }
}

fn tell(warden: &Stream, message: &FromGuest) -> Result<(), String> {
    warden.send(message, Full::Waits).map_err(|e| format!("tell the warden: {e}"))
}
