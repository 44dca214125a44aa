//! `[[link]]`: a network of two partitions at one label, and what one of the two forwards for the other.

use ipnet::IpNet;

use super::networks;
use super::problem::ProblemKind;
use super::read::{At, Reader, Table};
use super::values::PARTITION_NAME;
use super::{NetworkHost, Protocol};
use crate::label::Label;
use crate::names::{ChannelName, PartitionName};

/// Links at most.
pub(super) const MOST: usize = 64;
/// What an interface's name may be long (the kernel's IFNAMSIZ, without its end).
const LENGTH: usize = 15;
/// Names that a network has already, or that stand for all interfaces.
const TAKEN: [&str; 3] = ["lo", "all", "default"];

/// A network of two partitions at one label: an interface in each, and between them a wire that nobody else has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    name: ChannelName,
    ends: [(PartitionName, IpNet); 2],
    ports: Vec<(Protocol, u16)>,
    hosts: Vec<NetworkHost>,
}

impl Link {
    /// Its name, which both interfaces have.
    pub fn name(&self) -> &ChannelName {
        &self.name
    }

    /// Its two partitions, each with its address there.
    pub fn ends(&self) -> &[(PartitionName, IpNet); 2] {
        &self.ends
    }

    /// The ports of the end without a network that hosts on the other's networks may reach; none means none.
    pub fn ports(&self) -> &[(Protocol, u16)] {
        &self.ports
    }

    /// The hosts on the other's networks that the end without a network may reach; none means none.
    pub fn hosts(&self) -> &[NetworkHost] {
        &self.hosts
    }

    /// Whether anything is forwarded between the end without a network and the other's networks.
    pub fn is_routed(&self) -> bool {
        !self.ports.is_empty() || !self.hosts.is_empty()
    }
}

/// A link as read, with the places of its name, its partitions and its addresses.
pub(super) struct ReadLink {
    pub name: At<ChannelName>,
    pub ends: [At<PartitionName>; 2],
    pub addresses: [At<IpNet>; 2],
    pub ports: Vec<At<(Protocol, u16)>>,
    pub hosts: Vec<At<NetworkHost>>,
}

impl ReadLink {
    /// As it is known from now on.
    pub(super) fn into_link(self) -> Link {
        let ([one, other], [first, second]) = (self.ends, self.addresses);
        Link {
            name: self.name.value,
            ends: [(one.value, first.value), (other.value, second.value)],
            ports: self.ports.into_iter().map(|port| port.value).collect(),
            hosts: self.hosts.into_iter().map(|host| host.value).collect(),
        }
    }
}

pub(super) fn read(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<ReadLink> {
    let name = (reader.need(keys, "name", "\"bus\""))
        .and_then(|value| reader.parsed::<ChannelName>(value, "link name", PARTITION_NAME));
    if let Some(name) = &name
        && (name.value.as_str().len() > LENGTH || TAKEN.contains(&name.value.as_str()))
    {
        let what = format!("no interface can be called `{}`", name.value);
        let remedy = format!("write {LENGTH} letters at most, and not one of {}", TAKEN.join(", "));
        reader.problem(ProblemKind::BadValue, &name.span, what, remedy);
    }
    let between = (reader.need(keys, "between", "[\"front\", \"desk\"]")).and_then(|value| {
        Some((value.span(), reader.parsed_list(value, ("between", "partition name"), PARTITION_NAME)?))
    });
    let addresses = reader.need(keys, "addresses", "[\"10.9.0.1/30\", \"10.9.0.2/30\"]").and_then(|value| {
        let form = "an address with its prefix length, such as \"10.9.0.1/30\"";
        Some((value.span(), reader.parsed_list(value, ("addresses", "address"), form)?))
    });
    let two = "name two, in the order of the partitions";
    let (ends, addresses) = (pair(reader, between, two), pair(reader, addresses, two));
    let (ports, hosts) = (networks::ports(reader, keys), networks::hosts(reader, keys));
    Some(ReadLink { name: name?, ends: ends?, addresses: addresses?, ports: ports?, hosts: hosts? })
}

fn pair<T>(
    reader: &mut Reader<'_>,
    read: Option<(std::ops::Range<usize>, Vec<At<T>>)>,
    remedy: &str,
) -> Option<[At<T>; 2]> {
    let (span, list) = read?;
    let count = list.len();
    let pair = list.try_into().ok();
    if pair.is_none() {
        let what = format!("a link has two ends, and here are {count}");
        reader.problem(ProblemKind::BadValue, &span, what, remedy);
    }
    pair
}

/// Holds links against partitions, of which `label` knows the labels, and against each other.
pub(super) fn check<'a>(
    reader: &mut Reader<'_>,
    links: &[ReadLink],
    label: impl Fn(&PartitionName) -> Option<&'a Label>,
) {
    for (at, link) in links.iter().enumerate() {
        let [one, other] = &link.ends;
        if one.value == other.value {
            let what = format!("the link `{}` leads from a partition to itself", link.name.value);
            reader.problem(ProblemKind::BadValue, &other.span, what, "name two partitions");
        }
        if let (Some(first), Some(second)) = (label(&one.value), label(&other.value))
            && first != second
        {
            let what =
                format!("`{}` and `{}` are at two labels, and a link goes both ways", one.value, other.value);
            let remedy = "put both at one label, or declare a [[channel]] from the lower to the higher";
            reader.problem(ProblemKind::Flow, &link.name.span, what, remedy);
        }
        let [first, second] = &link.addresses;
        if first.value.trunc() != second.value.trunc() || first.value.addr() == second.value.addr() {
            let what = format!("{} and {} are not two addresses of one network", first.value, second.value);
            reader.problem(
                ProblemKind::BadValue,
                &second.span,
                what,
                "give both one network, and each its own address",
            );
        }
        if let Some(bad) = link.addresses.iter().find(|address| !is_usable(&address.value)) {
            let what = format!("{} is no address that an interface can have", bad.value);
            reader.problem(ProblemKind::BadValue, &bad.span, what, "write an address of one host");
        }
        for earlier in links.iter().take(at) {
            let shares =
                link.ends.iter().any(|end| earlier.ends.iter().any(|there| there.value == end.value));
            let [theirs, _] = &earlier.addresses;
            if shares && (theirs.value.contains(&first.value) || first.value.contains(&theirs.value)) {
                let what = format!(
                    "the links `{}` and `{}` of one partition have addresses in common",
                    earlier.name.value, link.name.value
                );
                reader.problem(ProblemKind::Overlap, &first.span, what, "give each a network of its own");
            }
        }
    }
}

/// Whether an interface can have this address.
pub(super) fn is_usable(address: &IpNet) -> bool {
    let host = address.addr();
    let whole = address.prefix_len() == address.max_prefix_len();
    let ends = [address.network(), address.broadcast()];
    // Of two addresses each may be a host's (RFC 3021).
    let edge = address.prefix_len() + 1 < address.max_prefix_len() && ends.contains(&host);
    !(host.is_loopback() || host.is_multicast() || host.is_unspecified() || whole || edge)
}
