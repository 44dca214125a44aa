//! The services of the machine's label: their listeners, opened here, and the programs that the first connection starts.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use levee_policy::site::Protocol;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::output::Output;
use super::shorten;
use crate::compartment::{Compartment, Event, Network};
use crate::label::datagrams;
use crate::machine::proto::{FromGuest, Offered};
use crate::service::PAUSE as REST;

/// All of them.
#[derive(Debug)]
pub struct Services {
    all: Vec<Service>,
    /// The last number given to a program inside.
    tickets: u64,
}

#[derive(Debug)]
struct Service {
    offered: Offered,
    listeners: Vec<OwnedFd>,
    ticket: Option<u64>,
    /// Not to be tried again before this.
    resting: Option<Instant>,
    output: Option<Output>,
}

impl Services {
    /// Opens every listener.
    ///
    /// # Errors
    /// The kernel's, in words.
    pub fn open(offered: Vec<Offered>, network: &Network) -> Result<Self, String> {
        let open = |offered: Offered| -> Result<Service, String> {
            let listen = |address: &std::net::SocketAddr| match offered.protocol {
                Protocol::Tcp => network.listen(*address),
                Protocol::Udp => datagrams(network, *address),
            };
            let listeners: levee_sys::Result<Vec<OwnedFd>> = offered.listen.iter().map(listen).collect();
            let listeners = listeners.map_err(|e| e.to_string())?;
            Ok(Service { offered, listeners, ticket: None, resting: None, output: None })
        };
        let all = offered.into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { all, tickets: 0 })
    }

    /// What is to be waited on: the listeners of services that do not run, and the output of those that do.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let now = Instant::now();
        let waiting =
            self.all.iter().filter(|s| s.waits(now)).flat_map(|s| s.listeners.iter().map(AsFd::as_fd));
        waiting.chain(self.all.iter().filter_map(|s| s.output.as_ref().map(Output::fd))).collect()
    }

    /// How long until a service that rests may be started again.
    pub fn rest(&self) -> Option<Duration> {
        let now = Instant::now();
        let resting = self.all.iter().filter(|s| s.ticket.is_none()).filter_map(|s| s.resting);
        resting.filter(|until| *until > now).map(|until| until - now).min()
    }

    /// Takes what has happened in the compartment.
    pub fn event(&mut self, event: Event) -> Option<FromGuest> {
        let (ticket, how) = match event {
            Event::Refused(ticket, reason) => (ticket, format!("does not start: {reason}")),
            Event::Exited(ticket, status) => (ticket, format!("ended with status {status}")),
            Event::Built | Event::Failed(_) | Event::Started(_) => return None,
        };
        let (place, service) = (0..).zip(&mut self.all).find(|(_, s)| s.ticket == Some(ticket))?;
        service.ticket = None;
        service.resting = Some(Instant::now() + REST);
        Some(FromGuest::Ended { service: place, how: shorten(&how) })
    }

    /// Starts the services to which a first connection has come.
    pub fn wanted(&mut self, compartment: &mut Compartment) -> Vec<FromGuest> {
        let now = Instant::now();
        let tickets = &mut self.tickets;
        let wanted = (0..).zip(&mut self.all).filter(|(_, s)| s.waits(now) && s.is_wanted());
        wanted
            .map(|(place, service)| {
                *tickets += 1;
                match service.start(*tickets, compartment) {
                    Ok(()) => FromGuest::Started { service: place },
                    Err(how) => {
                        service.resting = Some(now + REST);
                        FromGuest::Ended { service: place, how: shorten(&how) }
                    }
                }
            })
            .collect()
    }

    /// What services have written.
    pub fn said(&mut self) -> Vec<FromGuest> {
        let mut all = Vec::new();
        for (place, service) in (0..).zip(&mut self.all) {
            let Some(output) = &mut service.output else { continue };
            let (lines, more) = output.read();
            all.extend(lines.into_iter().map(|line| FromGuest::Said { service: place, line }));
            if !more {
                service.output = None;
            }
        }
        all
    }
}

impl Service {
    fn waits(&self, now: Instant) -> bool {
        self.ticket.is_none() && self.resting.is_none_or(|until| until <= now)
    }

    fn is_wanted(&self) -> bool {
        let mut fds: Vec<PollFd<'_>> = self.listeners.iter().map(|l| PollFd::new(l, PollFlags::IN)).collect();
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    fn start(&mut self, ticket: u64, compartment: &mut Compartment) -> Result<(), String> {
        let (output, end) = Output::new().map_err(|e| format!("does not start: {e}"))?;
        let mut fds = vec![end.as_fd(), end.as_fd()];
        fds.extend(self.listeners.iter().map(AsFd::as_fd));
        let mut start = self.offered.start.clone();
        start.ticket = ticket;
        compartment.run(start, &fds).map_err(|e| format!("does not start: {e}"))?;
        self.ticket = Some(ticket);
        self.output = Some(output);
        Ok(())
    }
}
