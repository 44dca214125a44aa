//! The other servers of the site, and the etcd through which all of them share their sessions.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;

use super::Vault;
use super::problem::ProblemKind;
use super::quantity;
use super::read::{At, Reader, Table};
use super::reference;
use super::values::{port_or, quantity as read_quantity};
use crate::names::DomainName;

/// Members of etcd at most.
const MOST_MEMBERS: usize = 9;
/// Other servers at most.
const MOST_PEERS: usize = 64;

/// How this server is one of several.
#[derive(Clone, Debug)]
pub struct Federation {
    etcd: Vec<SocketAddr>,
    etcd_name: DomainName,
    lease: Duration,
    peers: Vec<Peer>,
}

impl Federation {
    /// Where etcd's members answer clients: at least one, tried in this order.
    pub fn etcd(&self) -> &[SocketAddr] {
        &self.etcd
    }

    /// The name in their certificates.
    pub fn etcd_name(&self) -> &DomainName {
        &self.etcd_name
    }

    /// How long a server that is cut off from etcd may go on, and how long the others wait for it: whole seconds.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// The other servers of the site.
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }
}

/// Another server of the site, as far as this one must know it.
#[derive(Clone, Debug)]
pub struct Peer {
    name: DomainName,
    address: IpAddr,
    tunnel_port: u16,
    inner_addresses: Vec<IpAddr>,
    inner_pools: Vec<IpNet>,
    names: Vec<DomainName>,
}

impl Peer {
    /// The name in its certificate.
    pub fn name(&self) -> &DomainName {
        &self.name
    }

    /// Where it receives the tunnel.
    pub fn tunnel(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.tunnel_port)
    }

    /// Where its services answer at every label.
    pub fn inner_addresses(&self) -> &[IpAddr] {
        &self.inner_addresses
    }

    /// Networks that its own sessions' inner addresses come from.
    pub fn inner_pools(&self) -> &[IpNet] {
        &self.inner_pools
    }

    /// Every name of its inner addresses, its own first.
    pub fn all_names(&self) -> impl Iterator<Item = &DomainName> {
        std::iter::once(&self.name).chain(&self.names)
    }
}

/// As read, with places.
pub(super) struct DraftFederation {
    pub federation: Federation,
    /// Addresses and networks of the peers, and what they are.
    pub taken: Vec<(String, At<IpNet>)>,
    pub names: Vec<At<DomainName>>,
}

const NAME: &str = "a DNS name in lower case, such as \"two.harbour.example\"";
const ADDRESS: &str = "an IPv4 or IPv6 address, such as \"192.0.2.2\"";

/// Reads `[federation]`, where there is one.
pub(super) fn read(
    reader: &mut Reader<'_>,
    root: &Table<'_>,
    vault: Option<&Vault>,
) -> Option<Option<DraftFederation>> {
    let Some(value) = root.get("federation") else { return Some(None) };
    let keys = reader.subtable(value, "[federation]", &reference::FEDERATION.names())?;
    let etcd = (reader.need(&keys, "etcd", "[\"192.0.2.9:2379\"]")).and_then(|value| {
        let form = "an address with its port, such as \"192.0.2.9:2379\"";
        let members = reader.parsed_list::<SocketAddr>(value, ("etcd", "etcd"), form)?;
        if members.is_empty() || members.len() > MOST_MEMBERS {
            let what = format!("`etcd` has {} members", members.len());
            reader.problem(ProblemKind::OutOfBounds, &value.span(), what, "list 1 to 9, best 3 or 5");
        }
        Some(members.into_iter().map(|member| member.value).collect())
    });
    let etcd_name = (reader.need(&keys, "etcd-name", "\"etcd.harbour.example\""))
        .and_then(|value| reader.parsed(value, "etcd-name", NAME));
    let lease = match keys.get("lease") {
        Some(value) => read_quantity(
            reader,
            value,
            "lease",
            // etcd counts in seconds, and gives no lease below two.
            |text| quantity::duration(text).map(|time| time.as_millis() as u64).filter(|ms| ms % 1000 == 0),
            3_000..=60_000,
            "whole seconds from \"3s\" to \"60s\"",
        ),
        None => Some(10_000),
    };
    let peers = reader.tables(keys.get("peer"), "federation.peer", &reference::PEER.names());
    let (mut taken, mut names) = (Vec::new(), Vec::new());
    let peers: Vec<_> = peers.iter().map(|keys| peer(reader, keys, &mut taken, &mut names)).collect();
    if peers.is_empty() || peers.len() > MOST_PEERS {
        let what = format!("the federation has {} other servers", peers.len());
        let remedy = "list 1 to 64 of them, each under [[federation.peer]]";
        reader.problem(ProblemKind::OutOfBounds, &keys.span(), what, remedy);
    }
    if vault.is_some_and(Vault::agrees_anywhere) {
        reader.problem(
            ProblemKind::BadValue,
            &keys.span(),
            "a server of a federation has redundant stacks (`agree` in [vault])",
            "take `agree` out: stacks that must agree keep no lease",
        );
    }
    if vault.is_some_and(Vault::is_layered) {
        reader.problem(
            ProblemKind::BadValue,
            &keys.span(),
            "a server of a federation has a second tunnel (`layers` in [vault])",
            "take \"quic\" out of `layers`: a workstation reaches the site's other servers without it",
        );
    }
    let peers: Vec<Peer> = peers.into_iter().collect::<Option<_>>()?;
    let federation =
        Federation { etcd: etcd?, etcd_name: etcd_name?.value, lease: Duration::from_millis(lease?), peers };
    Some(Some(DraftFederation { federation, taken, names }))
}

fn peer(
    reader: &mut Reader<'_>,
    keys: &Table<'_>,
    taken: &mut Vec<(String, At<IpNet>)>,
    all_names: &mut Vec<At<DomainName>>,
) -> Option<Peer> {
    let name = (reader.need(keys, "name", "\"two.harbour.example\""))
        .and_then(|value| reader.parsed::<DomainName>(value, "peer name", NAME));
    let address = (reader.need(keys, "address", "\"192.0.2.2\""))
        .and_then(|value| reader.parsed::<IpAddr>(value, "address", ADDRESS));
    let tunnel_port = port_or(reader, keys, "tunnel-port", 4500);
    let inner = (reader.need(keys, "inner-address", "\"10.80.0.2\""))
        .and_then(|value| reader.one_or_more::<IpAddr>(value, "inner-address", ADDRESS));
    let pools = (reader.need(keys, "inner-pool", "\"10.80.2.0/24\"")).and_then(|value| {
        let form = "a network with its prefix length, such as \"10.80.2.0/24\"";
        reader.one_or_more::<IpNet>(value, "inner-pool", form)
    });
    let names = match keys.get("names") {
        Some(value) => reader.parsed_list::<DomainName>(value, ("names", "name"), NAME),
        None => Some(Vec::new()),
    };
    let (name, address, inner, pools, names) = (name?, address?, inner?, pools?, names?);
    let one =
        |what: &str, at: &At<IpAddr>| (what.to_owned(), At::new(IpNet::from(at.value), at.span.clone()));
    taken.push(one("another server's address", &address));
    taken.extend(inner.iter().map(|at| one("another server's inner address", at)));
    taken.extend(pools.iter().map(|at| ("another server's inner pool".to_owned(), at.clone())));
    all_names.push(name.clone());
    all_names.extend(names.iter().cloned());
    Some(Peer {
        name: name.value,
        address: address.value,
        tunnel_port: tunnel_port?.value,
        inner_addresses: inner.into_iter().map(|at| at.value).collect(),
        inner_pools: pools.into_iter().map(|at| at.value).collect(),
        names: names.into_iter().map(|at| at.value).collect(),
    })
}
