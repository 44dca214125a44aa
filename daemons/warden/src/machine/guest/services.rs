//! The services of the machine's label: their listeners, opened here, and the programs that the first connection starts. They live
//! as a compartment's do on the host, and the warden outside is told each start and each end, of which it makes the same.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use levee_policy::site::Protocol;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::output::Output;
use super::shorten;
use crate::compartment::{Compartment, Event, Network};
use crate::label::datagrams;
use crate::machine::proto::{FromGuest, Offered};
use crate::service::Service;

/// How often what has been started, or rests, is looked at.
const TURN: Duration = Duration::from_millis(250);

/// All of them.
#[derive(Debug)]
pub struct Services {
    all: Vec<(Service, Output)>,
    /// The last number given to a program inside.
    tickets: u64,
}

impl Services {
    /// Opens every listener.
    ///
    /// # Errors
    /// The kernel's, in words.
    pub fn open(offered: Vec<Offered>, network: &Network) -> Result<Self, String> {
        let open = |offered: Offered| -> Result<(Service, Output), String> {
            let listen = |address: &std::net::SocketAddr| match offered.protocol {
                Protocol::Tcp => network.listen(*address),
                Protocol::Udp => datagrams(network, *address),
            };
            let listeners: levee_sys::Result<Vec<_>> = offered.listen.iter().map(listen).collect();
            let listeners = listeners.map_err(|e| e.to_string())?;
            let (output, end) = Output::new().map_err(|e| format!("make a service's output: {e}"))?;
            let itself = offered.listen.is_empty();
            Ok((Service::within(offered.name, offered.launch, listeners, end).itself(itself), output))
        };
        let all = offered.into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Self { all, tickets: 0 })
    }

    /// What is to be waited on: the listeners of services that do not run, and the output of all.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let now = Instant::now();
        let waiting = self.all.iter().flat_map(|(service, _)| service.waiting(now));
        waiting.chain(self.all.iter().map(|(_, output)| output.fd())).collect()
    }

    /// How long until something is to be done without being asked for.
    pub fn turn(&self) -> Option<Duration> {
        let now = Instant::now();
        let due = |service: &Service| service.is_unsettled() || service.rests(now);
        self.all.iter().any(|(service, _)| due(service)).then_some(TURN)
    }

    /// Takes what has happened in the compartment.
    pub fn event(&mut self, event: Event) -> Option<FromGuest> {
        let (ticket, how, well) = match event {
            Event::Refused(ticket, reason) => (ticket, reason, false),
            Event::Exited(ticket, status) => (ticket, format!("ended with status {status}"), status == 0),
            Event::Built | Event::Failed(_) | Event::Started(_) => return None,
        };
        let mut all = (0..).zip(&mut self.all);
        let place =
            all.find_map(|(place, (service, _))| service.ended(ticket, &how, well).then_some(place))?;
        Some(FromGuest::Ended { service: place, how: shorten(&how), well })
    }

    /// Starts the services to which a first connection has come, and refuses who waits for one that does not start.
    pub fn see_to(&mut self, compartment: &mut Compartment) -> Vec<FromGuest> {
        let now = Instant::now();
        let mut started = Vec::new();
        for (place, (service, _)) in (0..).zip(&mut self.all) {
            // What is to be told of it, the warden finds by itself.
            service.settle(now);
            if is_wanted(service, now) {
                self.tickets += 1;
                service.start(self.tickets, compartment, now);
                started.push(FromGuest::Started { service: place });
            }
        }
        started
    }

    /// What services have written.
    pub fn said(&mut self) -> Vec<FromGuest> {
        let all = (0..).zip(&mut self.all);
        let said = all.flat_map(|(service, (_, output))| {
            output.read().into_iter().map(move |line| FromGuest::Said { service, line })
        });
        said.collect()
    }
}

fn is_wanted(service: &Service, now: Instant) -> bool {
    if service.is_due(now) {
        return true;
    }
    let mut fds: Vec<PollFd<'_>> =
        service.waiting(now).map(|listener| PollFd::from_borrowed_fd(listener, PollFlags::IN)).collect();
    !fds.is_empty() && poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}
