//! One labelled network: its interface in a namespace of its own, and from there a wire to the compartment of each label.
//!
//! In that namespace no process runs. It answers ARP and neighbour solicitations for the interface's addresses, and finds the
//! neighbours that compartments send to; every other packet is a program's ([`super::programs`]), or dropped. The namespace is pinned, as those of labels are.

use super::programs::{Dropped, LinkPrograms};
use crate::compartment::set;
use crate::edges::Edge;
use crate::pinned::{self, Pinned};
use levee_labelled::kernel::WIRE;
use levee_policy::{Domain, Label};
use levee_sys::net::{Hook, Link, Net, Offload};
use levee_sys::{Error, Result};
use std::os::fd::BorrowedFd;
use std::path::Path;

/// What the names of wires' outer ends begin with. No interface of the host's that is given to a network may.
const OUTER: &str = "levee";

/// Settings of the namespace, under `/proc/sys/net`.
const SETTINGS: [(&str, &str); 4] = [
    ("ipv4/conf/all/forwarding", "0"),
    // Answer for this interface's addresses alone, from this interface's addresses alone.
    ("ipv4/conf/all/arp_ignore", "1"),
    ("ipv4/conf/all/arp_announce", "2"),
    ("ipv6/conf/default/disable_ipv6", "1"),
];

/// Settings of the interface, where it has IPv6. No router says anything about it.
const SIX_SETTINGS: [(&str, &str); 4] =
    [("accept_ra", "0"), ("autoconf", "0"), ("accept_redirects", "0"), ("disable_ipv6", "0")];

/// A labelled network.
#[derive(Debug)]
pub struct LabelledWire {
    /// Its interface, whose name the compartments' ends have, too.
    link: Link,
    place: Pinned,
    with_six: bool,
    labels: u32,
    programs: LinkPrograms,
}

/// The shortest packet that every link must take that carries IPv6 (RFC 8200 5).
const SHORTEST_SIX: u32 = 1_280;

impl LabelledWire {
    /// Moves the network's interface from the namespace `outer` into its own, pinned in the directory `pins`, for so many labels of
    /// a domain. It stays down, and has nothing but drops at it.
    ///
    /// # Errors
    /// The step that failed; then the interface is back.
    pub fn take(
        edge: &Edge,
        domain: &Domain,
        labels: u32,
        outer: BorrowedFd<'_>,
        pins: &Path,
    ) -> Result<Self> {
        let interface = edge.interface.as_str();
        if interface == "lo" || interface.starts_with(OUTER) {
            return Err(Error::invalid(
                format!("part the packets of {interface}"),
                "levee needs such names itself",
            ));
        }
        let place = Pinned::open(pins.join(interface))?;
        let with_six = edge.addresses.iter().any(|address| address.addr().is_ipv6());
        match Self::prepare(edge, &place, domain, labels, with_six, outer) {
            Ok((link, programs)) => Ok(Self { link, place, with_six, labels: 0, programs }),
            Err(e) => {
                place.release(outer)?;
                Err(e)
            }
        }
    }

    fn prepare(
        edge: &Edge,
        place: &Pinned,
        domain: &Domain,
        labels: u32,
        with_six: bool,
        outer: BorrowedFd<'_>,
    ) -> Result<(Link, LinkPrograms)> {
        let interface = edge.interface.as_str();
        set(place.ns(), &SETTINGS)?;
        place.take(outer, interface, &"its labels")?;
        let mut inside = place.net()?;
        let link = inside.find(interface)?.ok_or_else(|| Error::invalid("find the link", "it is gone"))?;
        let programs = LinkPrograms::new(domain, labels, link.index, with_six, &edge.unlabelled)?;
        inside.add_program_hooks(interface)?;
        inside.add_program(interface, Hook::From, programs.ingress()?.as_fd())?;
        inside.add_program(interface, Hook::To, programs.egress(link.mtu)?.as_fd())?;
        if with_six {
            set(
                place.ns(),
                &SIX_SETTINGS.map(|(name, value)| (format!("ipv6/conf/{interface}/{name}"), value)),
            )?;
        }
        Ok((link, programs))
    }

    /// Lays the wire to the compartment of a label, whose namespace is `to`. Its end there has the interface's name, and is down.
    /// Where rules are, they are there already.
    ///
    /// # Errors
    /// The step that failed.
    pub fn lay(&mut self, label: &Label, to: BorrowedFd<'_>) -> Result<()> {
        let mark = self.labels.saturating_add(1);
        let outer = format!("{OUTER}w{mark}");
        let (mut here, mut there) = (self.place.net()?, Net::in_ns(to)?);
        here.add_veth(&outer, &self.link.name, Some(to))?;
        let cost = self.programs.add(label, mark, here.index(&outer)?)?;
        let room = self.link.mtu.saturating_sub(cost);
        if self.with_six && room < SHORTEST_SIX {
            let why = format!(
                "a packet of {} octets has room for {room} beside a label, and IPv6 needs {SHORTEST_SIX}: raise the interface's MTU",
                self.link.mtu
            );
            return Err(Error::invalid(format!("carry IPv6 with labels at {}", self.link.name), why));
        }
        here.make_wire(&outer, WIRE)?;
        there.make_wire(&self.link.name, WIRE)?;
        there.set_offload(&self.link.name, Offload::Joined, true)?;
        here.set_offload(&outer, Offload::SuperSegments, false)?;
        there.set_mtu(&self.link.name, room)?;
        here.add_program_hooks(&outer)?;
        here.add_program(&outer, Hook::From, self.programs.compartment(mark)?.as_fd())?;
        here.set_up(&outer)?;
        self.labels = mark;
        Ok(())
    }

    /// Sets the interface up, with its addresses: from here on packets pass.
    ///
    /// # Errors
    /// The kernel's.
    pub fn raise(&self, edge: &Edge) -> Result<()> {
        pinned::raise(&mut self.place.net()?, &self.link.name, &edge.addresses)
    }

    /// The namespace that the interface is in.
    pub fn ns(&self) -> BorrowedFd<'_> {
        self.place.ns()
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.link.name
    }

    /// What the programs dropped, for operators.
    pub fn counters(&self) -> Result<Vec<(String, u64)>> {
        let named = |Dropped { arrived, reason, packets }| {
            let way = if arrived { "from" } else { "to" };
            (format!("dropped {way} {}: {}", self.link.name, reason.as_str()), packets)
        };
        Ok(self.programs.dropped()?.into_iter().map(named).collect())
    }

    /// Takes every wire away, gives the interface back to the namespace `outer`, down, and unpins its own.
    ///
    /// # Errors
    /// The step that failed; then the interface stays where it is.
    pub fn take_away(&self, outer: BorrowedFd<'_>) -> Result<()> {
        cut(&self.place)?;
        self.place.release(outer)
    }
}

/// Deletes the wires that a namespace has an outer end of.
fn cut(place: &Pinned) -> Result<()> {
    let mut net = place.net()?;
    for link in net.links()?.into_iter().filter(|link| link.name.starts_with(OUTER)) {
        net.delete(&link.name)?;
    }
    Ok(())
}

/// Cuts the wires that a warden that was killed left behind, so that no label's namespace has an end of one, and gives back the
/// interfaces that are not `wanted` any more. The others stay, down.
///
/// # Errors
/// The first that failed.
pub fn clear(pins: &Path, wanted: &[&str], outer: BorrowedFd<'_>) -> Result<()> {
    Pinned::all(pins)?.iter().try_for_each(cut)?;
    pinned::release_others(pins, wanted, outer)
}
