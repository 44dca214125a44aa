//! `wire` in `[[channel]]`: the end of a one-way channel that is on another host.

use std::net::IpAddr;

use ipnet::IpNet;

use super::link::is_usable;
use super::problem::ProblemKind;
use super::read::{At, Reader, Table};
use super::values::{label, port, quantity as read_quantity};
use super::{quantity, reference};
use crate::label::Label;
use crate::names::{HardwareAddress, InterfaceName};
use crate::vocabulary::Vocabulary;

/// The network between two hosts that a one-way channel has for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    interface: InterfaceName,
    address: IpNet,
    peer: IpAddr,
    hardware: Option<HardwareAddress>,
    port: u16,
    label: Label,
    mtu: u16,
    repair: u32,
}

impl Wire {
    /// The interface, which the channel has for itself.
    pub fn interface(&self) -> &InterfaceName {
        &self.interface
    }

    /// This host's address there.
    pub fn address(&self) -> IpNet {
        self.address
    }

    /// The other host's.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// The other host's hardware address, where this one sends; `None` where it receives.
    pub fn hardware(&self) -> Option<HardwareAddress> {
        self.hardware
    }

    /// The UDP port, the same at both ends.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The label of the partition at the other end.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// Octets of the longest packet.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Repair symbols for a hundred others.
    pub fn repair(&self) -> u32 {
        self.repair
    }

    /// Octets of a datagram behind the headers of IP and UDP, at most.
    pub fn datagram(&self) -> usize {
        let headers = if self.peer.is_ipv4() { 20 + 8 } else { 40 + 8 };
        usize::from(self.mtu).saturating_sub(headers)
    }
}

/// A wire as read, with the places of its interface and its label.
pub(super) struct ReadWire {
    pub interface: At<InterfaceName>,
    pub label: At<Label>,
    pub wire: Wire,
}

/// Reads a channel's `wire`, whose other end is at this host: the writer's, where it sends. `Some(None)` where it has none.
pub(super) fn read(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    keys: &Table<'_>,
    sends: bool,
) -> Option<Option<ReadWire>> {
    let Some(value) = keys.get("wire") else { return Some(None) };
    let keys = reader.subtable(value, "a channel's wire", &reference::WIRE.names())?;
    let interface = reader.need(&keys, "interface", "\"eth7\"").and_then(|value| {
        reader.parsed::<InterfaceName>(
            value,
            "interface name",
            "1 to 15 letters, digits, '.', '_', '-' or '@'",
        )
    });
    let address = reader.need(&keys, "address", "\"10.77.0.1/30\"").and_then(|value| {
        let form = "an address with its prefix length, such as \"10.77.0.1/30\"";
        reader.parsed::<IpNet>(value, "address", form)
    });
    let peer = reader.need(&keys, "peer", "\"10.77.0.2\"").and_then(|value| {
        reader.parsed::<IpAddr>(value, "address", "the other host's address, such as \"10.77.0.2\"")
    });
    let hardware = hardware(reader, &keys, sends);
    let (port, label) = (port(reader, &keys), label(reader, vocabulary, &keys));
    let mtu = match keys.get("mtu") {
        Some(value) => reader.integer(value, "mtu", 1_280..=9_000),
        None => Some(1_500),
    };
    let repair = match keys.get("repair") {
        Some(value) => read_quantity(
            reader,
            value,
            "repair",
            quantity::percent,
            0..=100,
            "a share from \"0%\" to \"100%\"",
        ),
        None => Some(10),
    };
    let (interface, address, peer, label) = (interface?, address?, peer?, label?);
    addresses(reader, &address, &peer);
    let wire = Wire {
        interface: interface.value.clone(),
        address: address.value,
        peer: peer.value,
        hardware: hardware?,
        port: port?.value,
        label: label.value.clone(),
        mtu: u16::try_from(mtu?).ok()?,
        repair: u32::try_from(repair?).ok()?,
    };
    Some(Some(ReadWire { interface, label, wire }))
}

/// Who sends cannot ask for it: nothing comes back.
fn hardware(reader: &mut Reader<'_>, keys: &Table<'_>, sends: bool) -> Option<Option<HardwareAddress>> {
    const FORM: &str = "the hardware address of the other host's interface, such as \"02:00:5e:00:53:02\"";
    match keys.get("hardware") {
        Some(value) if !sends => {
            let what = "who receives sends nothing to `hardware`";
            reader.problem(ProblemKind::BadValue, &value.span(), what, "remove it: the sender's site has it");
            None
        }
        Some(value) => {
            let address = reader.parsed::<HardwareAddress>(value, "hardware address", FORM)?;
            if !address.value.is_usable() {
                let what = format!("{} is no address that an interface can have", address.value);
                reader.problem(ProblemKind::BadValue, &address.span, what, format!("write {FORM}"));
                return None;
            }
            Some(Some(address.value))
        }
        None if sends => reader.need(keys, "hardware", "\"02:00:5e:00:53:02\"").and(None),
        None => Some(None),
    }
}

fn addresses(reader: &mut Reader<'_>, own: &At<IpNet>, peer: &At<IpAddr>) {
    if !is_usable(&own.value) {
        let what = format!("{} is no address that an interface can have", own.value);
        reader.problem(ProblemKind::BadValue, &own.span, what, "write an address of one host");
    } else if !own.value.contains(&peer.value) || own.value.addr() == peer.value {
        let what = format!("{} is no other host of {}", peer.value, own.value.trunc());
        reader.problem(
            ProblemKind::BadValue,
            &peer.span,
            what,
            "give both one network, and each its own address",
        );
    } else if !IpNet::new(peer.value, own.value.prefix_len()).is_ok_and(|peer| is_usable(&peer)) {
        let what =
            format!("{} is no address that an interface of {} can have", peer.value, own.value.trunc());
        reader.problem(ProblemKind::BadValue, &peer.span, what, "write an address of one host");
    } else if let IpAddr::V6(address) = peer.value
        && (address.is_unicast_link_local() || address.to_ipv4_mapped().is_some())
    {
        let what = format!("{address} is a link-local address, or one of IPv4 in another form");
        let remedy = "give both an address of their own network, such as \"fd00::1/64\", or of IPv4";
        reader.problem(ProblemKind::BadValue, &peer.span, what, remedy);
    }
}
