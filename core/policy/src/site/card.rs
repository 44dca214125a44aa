//! Networks of partitions: `partition` in `[[network]]`, and `ports` and `hosts` in `[[link]]`, by which a partition without a network
//! reaches one through its neighbour (004: a partition without a network card).

use std::collections::BTreeSet;

use super::Protocol;
use super::draft;
use super::link::ReadLink;
use super::partition::DraftParts;
use super::problem::ProblemKind;
use super::read::{At, Reader};
use super::tables::DraftNetwork;
use crate::label::Label;
use crate::names::PartitionName;
use crate::vocabulary::{Vocabulary, nearest};

/// Holds the networks of partitions, and what links forward, against the rest.
pub(super) fn check(
    reader: &mut Reader<'_>,
    draft: &draft::Draft,
    parts: &DraftParts,
    vocabulary: &Vocabulary,
) {
    let networks = &draft.networks.read;
    for network in networks {
        match &network.partition {
            Some(owner) => owned(reader, network, owner, parts, vocabulary),
            None => {
                for port in network.ports.iter().take(1) {
                    let what =
                        format!("the network at `{}` has `ports` and no partition", network.interface.value);
                    let remedy =
                        "name the partition with `partition`, or list services of the site under `services`";
                    reader.problem(ProblemKind::BadValue, &port.span, what, remedy);
                }
            }
        }
    }
    for link in &parts.links {
        apart(reader, link, networks);
        if draft.networks.whole && !(link.ports.is_empty() && link.hosts.is_empty()) {
            forwarded(reader, link, networks);
        }
    }
    for (name, ..) in &parts.partitions {
        ports(reader, &name.value, networks, &parts.links);
    }
}

/// A partition's network is at its label alone, and its partition is there for it.
fn owned(
    reader: &mut Reader<'_>,
    network: &DraftNetwork,
    owner: &At<PartitionName>,
    parts: &DraftParts,
    vocabulary: &Vocabulary,
) {
    let interface = &network.interface.value;
    if network.domain.is_some() {
        let what = format!("the network at `{interface}` is labelled, and a partition has one label");
        reader.problem(ProblemKind::BadValue, &owner.span, what, "remove `partition`, or write `label`");
        return;
    }
    for service in network.services.iter().take(1) {
        let what =
            format!("`{}` runs in the compartment of its label, and not in a partition", service.value);
        let remedy = "remove `services`, and list what hosts there may reach under `ports`";
        reader.problem(ProblemKind::BadValue, &service.span, what, remedy);
    }
    let known = || parts.partitions.iter().map(|(name, ..)| name.value.as_str());
    let Some((_, label, _)) = parts.partitions.iter().find(|(name, ..)| name.value == owner.value) else {
        let near = nearest(owner.value.as_str(), known());
        let remedy = match &near {
            Some(near) => format!("did you mean `{near}`?"),
            None => "declare it under [[partition]], or remove `partition`".to_owned(),
        };
        let what = format!("the site has no partition `{}`", owner.value);
        reader.problem_near(ProblemKind::UnknownName, &owner.span, what, near, remedy);
        return;
    };
    if *network.labels.value.low() != label.value {
        let words = |label: &Label| vocabulary.text(label).unwrap_or_default();
        let (here, there) = (words(network.labels.value.low()), words(&label.value));
        let what = format!(
            "the network at `{interface}` is at {here}, and its partition `{}` at {there}",
            owner.value
        );
        let remedy = "give both one label: a network goes both ways";
        reader.problem(ProblemKind::Flow, &network.labels.span, what, remedy);
    }
    if parts.filters().any(|filter| *filter == owner.value) {
        let what = format!("`{}` is the filter of a guard, and has a network", owner.value);
        let remedy = "give the network to another partition: a filter has to do with its guard alone";
        reader.problem(ProblemKind::Flow, &owner.span, what, remedy);
    }
}

fn of<'a>(
    networks: &'a [DraftNetwork],
    partition: &'a PartitionName,
) -> impl Iterator<Item = &'a DraftNetwork> + Clone {
    networks
        .iter()
        .filter(move |network| network.partition.as_ref().is_some_and(|one| one.value == *partition))
}

/// In one partition a link's interface and addresses are no network's.
fn apart(reader: &mut Reader<'_>, link: &ReadLink, networks: &[DraftNetwork]) {
    let [first, _] = &link.addresses;
    for network in link.ends.iter().flat_map(|end| of(networks, &end.value)) {
        let (name, interface) = (&link.name.value, &network.interface.value);
        if name.as_str() == interface.as_str() {
            let what = format!("`{name}` is an interface of a network of the same partition");
            reader.problem(ProblemKind::Duplicate, &link.name.span, what, "give the link another name");
        }
        let shared = |net: &&At<ipnet::IpNet>| {
            net.value.contains(&first.value.trunc()) || first.value.contains(&net.value.trunc())
        };
        if let Some(net) = network.addresses.iter().find(shared) {
            let what = format!(
                "the link `{name}` and the network at `{interface}` share addresses: {}",
                net.value.trunc()
            );
            reader.problem(ProblemKind::Overlap, &first.span, what, "choose networks that share no address");
        }
    }
}

/// What a link forwards is between a partition with a network and one without.
fn forwarded(reader: &mut Reader<'_>, link: &ReadLink, networks: &[DraftNetwork]) {
    let has_card = link.ends.each_ref().map(|end| of(networks, &end.value).next().is_some());
    let [one, other] = link.ends.each_ref().map(|end| &end.value);
    let (router, place) = match has_card {
        [true, false] => (one, &link.name.span),
        [false, true] => (other, &link.name.span),
        both => {
            let how = if both[0] { "each has a network of its own" } else { "neither has a network" };
            let what = format!("`{one}` and `{other}` forward nothing for each other: {how}");
            let remedy =
                "remove `ports` and `hosts` of the link, or give one of the two a network with `partition`";
            reader.problem(ProblemKind::BadValue, &link.name.span, what, remedy);
            return;
        }
    };
    let is_ipv4 = link.addresses[0].value.addr().is_ipv4();
    let nets = || of(networks, router).flat_map(|network| &network.addresses).map(|net| net.value);
    if !nets().any(|net| net.addr().is_ipv4() == is_ipv4) {
        let what =
            format!("the networks of `{router}` have no address of the family of `{}`", link.name.value);
        let remedy = "give the link or the network addresses of both families, or of the same";
        reader.problem(ProblemKind::BadValue, place, what, remedy);
        return;
    }
    for (at, host) in link.hosts.iter().enumerate() {
        let address = host.value.address;
        if address.is_ipv4() != is_ipv4 || !nets().any(|net| net.contains(&address)) {
            let what =
                format!("{address} is on no network of `{router}` that `{}` leads to", link.name.value);
            let remedy = "choose an address on one of its networks, of the family of the link's addresses";
            reader.problem(ProblemKind::BadValue, &host.span, what, remedy);
        }
        if nets().any(|net| net.addr() == address) {
            let what = format!("{address} is the interface's own address");
            let remedy =
                format!("name the other host's address; `{router}` is reached at the link's address");
            reader.problem(ProblemKind::Duplicate, &host.span, what, remedy);
        }
        if link.hosts.iter().take(at).any(|earlier| earlier.value == host.value) {
            let what = "this address, protocol and port stand twice";
            reader.problem(ProblemKind::Duplicate, &host.span, what, "remove one of them");
        }
    }
}

/// A port at a partition's networks is its own or that of one neighbour.
fn ports(reader: &mut Reader<'_>, partition: &PartitionName, networks: &[DraftNetwork], links: &[ReadLink]) {
    let mut own = BTreeSet::new();
    for network in of(networks, partition) {
        let mut here = BTreeSet::new();
        for port in network.ports.iter().filter(|port| !here.insert(port.value)) {
            twice(reader, port);
        }
        own.extend(here);
    }
    if of(networks, partition).next().is_none() {
        return;
    }
    let mut taken: BTreeSet<(bool, (Protocol, u16))> =
        own.iter().flat_map(|port| [true, false].map(|family| (family, *port))).collect();
    for link in links.iter().filter(|link| link.ends.iter().any(|end| end.value == *partition)) {
        let is_ipv4 = link.addresses[0].value.addr().is_ipv4();
        for port in link.ports.iter().filter(|port| !taken.insert((is_ipv4, port.value))) {
            twice(reader, port);
        }
    }
}

fn twice(reader: &mut Reader<'_>, port: &At<(Protocol, u16)>) {
    let (protocol, number) = port.value;
    let what = format!("{} port {number} of one partition's networks stands twice", protocol.as_str());
    let remedy = "list it once: a port is the partition's own or that of one neighbour";
    reader.problem(ProblemKind::Duplicate, &port.span, what, remedy);
}
