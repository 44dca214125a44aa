//! The services of the machine's label: their listeners, opened here, with which process 1 of the compartment in the machine starts them.
//! What they write is told outside, as far as there is room for it.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;

use levee_policy::ServiceName;
use levee_policy::site::{Mode, Protocol};

use super::output::Output;
use crate::compartment::proto::ToInit;
use crate::compartment::service::Served;
use crate::compartment::{Given, Network};
use crate::label::datagrams;
use crate::machine::proto::FromGuest;

/// What services write.
#[derive(Debug)]
pub struct Outputs(Vec<Output>);

impl Outputs {
    /// Opens every listener; these services are off. What process 1 is given of each, in order.
    ///
    /// # Errors
    /// The kernel's, in words.
    pub fn open(
        services: Vec<Served>,
        off: &BTreeSet<ServiceName>,
        network: &Network,
    ) -> Result<(Vec<Given>, Self), String> {
        let open = |served: Served| -> Result<(Given, Output), String> {
            let listen = |address: &std::net::SocketAddr| match served.protocol {
                Protocol::Tcp => network.listen(*address),
                Protocol::Udp => datagrams(network, *address),
            };
            let addresses = served.addresses.iter().filter(|_| served.mode != Mode::Itself);
            let listeners = addresses.map(listen).collect::<levee_sys::Result<Vec<_>>>();
            let (output, end) = Output::new().map_err(|e| format!("make a service's output: {e}"))?;
            let fds = std::iter::once(end).chain(listeners.map_err(|e| e.to_string())?).collect();
            let off = off.contains(&served.name);
            Ok(((ToInit::Service { served, off }, fds), output))
        };
        let all = services.into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let (given, outputs) = all.into_iter().unzip();
        Ok((given, Self(outputs)))
    }

    /// To be waited on.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(Output::fd)
    }

    /// What services have written.
    pub fn said(&mut self) -> Vec<FromGuest> {
        let all = (0..).zip(&mut self.0);
        let said = all.flat_map(|(service, output)| {
            output.read().into_iter().map(move |line| FromGuest::Said { service, line })
        });
        said.collect()
    }
}
