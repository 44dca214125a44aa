//! A host in front of the server, at which the second tunnel ends: `[gateway]`.

use super::problem::ProblemKind;
use super::read::{At, Reader, Table};
use super::reference;
use super::tables::DraftServer;
use super::vault::Vault;
use std::net::IpAddr;

const ADDRESS: &str = "an IPv4 or IPv6 address, such as \"192.0.2.1\"";

/// The host at which the second tunnel ends, where that is not the server itself: whoever has taken one of the two over has one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gateway {
    addresses: Vec<IpAddr>,
    inside: IpAddr,
}

impl Gateway {
    /// Where workstations find it; at least one.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// Its address on the network that it has in common with the server.
    pub fn inside(&self) -> IpAddr {
        self.inside
    }

    /// Reads `[gateway]`, where there is one.
    pub(super) fn read(
        reader: &mut Reader<'_>,
        root: &Table<'_>,
        vault: Option<&Vault>,
        server: Option<&DraftServer>,
    ) -> Option<Option<Self>> {
        let Some(value) = root.get("gateway") else { return Some(None) };
        let keys = reader.subtable(value, "[gateway]", &reference::GATEWAY.names())?;
        let addresses = (reader.need(&keys, "addresses", "[\"192.0.2.1\"]"))
            .and_then(|value| reader.parsed_list::<IpAddr>(value, ("addresses", "address"), ADDRESS));
        let inside = (reader.need(&keys, "inside", "\"10.0.0.2\""))
            .and_then(|value| reader.parsed::<IpAddr>(value, "address", ADDRESS));
        if vault.is_some_and(|vault| !vault.is_layered()) {
            let what =
                "a gateway is where the second tunnel ends, and `[vault] layers` has none for all hosts";
            let remedy = "write `layers = [\"esp\", \"quic\"]` in `[vault]`, or take `[gateway]` out";
            reader.problem(ProblemKind::BadValue, &keys.span(), what, remedy);
        }
        let (addresses, inside) = (addresses?, inside?);
        if addresses.is_empty() {
            let remedy = "list at least one under `addresses`";
            reader.problem(ProblemKind::TooSmall, &keys.span(), "the gateway has no address", remedy);
        }
        check(reader, &addresses, &inside, server);
        let addresses = addresses.into_iter().map(|address| address.value).collect();
        Some(Some(Self { addresses, inside: inside.value }))
    }
}

/// Each address is a host's, and none is another's.
fn check(
    reader: &mut Reader<'_>,
    addresses: &[At<IpAddr>],
    inside: &At<IpAddr>,
    server: Option<&DraftServer>,
) {
    let mut taken: Vec<IpAddr> =
        server.iter().flat_map(|server| &server.addresses).map(|address| address.value).collect();
    for address in addresses.iter().chain([inside]) {
        let at = address.value;
        if at.is_unspecified() || at.is_multicast() || at.is_loopback() {
            let what = format!("{at} is not an address by which others reach a host");
            reader.problem(ProblemKind::BadValue, &address.span, what, "write one that the gateway has");
        }
        if taken.contains(&at) {
            let what = format!("{at} is the server's address, or stands here twice");
            let remedy = "the gateway is another host than the server, and has another address towards it than outside";
            reader.problem(ProblemKind::Duplicate, &address.span, what, remedy);
        }
        taken.push(at);
    }
    let first = server.and_then(|server| server.addresses.first());
    if first.is_some_and(|first| first.value.is_ipv4() != inside.value.is_ipv4()) {
        let what = "the gateway has no address of the family of the server's first one towards it";
        reader.problem(ProblemKind::BadValue, &inside.span, what, "write `inside` in that family");
    }
}
