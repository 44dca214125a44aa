//! `[[network]]`: interfaces that belong to one label, or whose packets carry one each.

use std::net::IpAddr;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use super::problem::ProblemKind;
use super::reach::{NetworkHost, Protocol};
use super::read::{At, Reader, Table};
use super::reference;
use super::services::DraftService;
use super::tables::DraftNetwork;
use super::values::{NAME, PARTITION_NAME, port, protocol, range};
use crate::domain::Domain;
use crate::label::{Label, Range};
use crate::names::{InterfaceName, PartitionName, ServiceName};
use crate::vocabulary::Vocabulary;

/// A network: an interface that belongs to one label, or whose packets carry one of several each.
#[derive(Clone, Debug)]
pub struct Network {
    pub(super) interface: InterfaceName,
    pub(super) labels: Range,
    pub(super) domain: Option<u32>,
    pub(super) unlabelled: Vec<(IpNet, Label)>,
    pub(super) partition: Option<PartitionName>,
    pub(super) addresses: Vec<IpNet>,
    pub(super) services: Vec<ServiceName>,
    pub(super) ports: Vec<(Protocol, u16)>,
    pub(super) hosts: Vec<NetworkHost>,
    pub(super) neighbours: Option<u16>,
}

impl Network {
    /// The interface: it is moved into the label's compartment, into a partition or, where it has several labels, to where their packets are parted.
    pub fn interface(&self) -> &InterfaceName {
        &self.interface
    }

    /// Its labels: one, which everything on it has, or those that its packets carry.
    pub fn labels(&self) -> &Range {
        &self.labels
    }

    /// The domain that its packets' labels are of; `None` for a single-level network, whose packets carry none.
    pub fn domain(&self) -> Option<u32> {
        self.domain
    }

    /// Its single-level hosts, whose packets carry no label though others' do: by the prefix of their addresses, their label. Where
    /// prefixes are within each other, the longest counts.
    pub fn unlabelled(&self) -> &[(IpNet, Label)] {
        &self.unlabelled
    }

    /// The partition that has the interface; `None` where the compartment of its label has it.
    pub fn partition(&self) -> Option<&PartitionName> {
        self.partition.as_ref()
    }

    /// The interface's own addresses there, with the network's prefix length.
    pub fn addresses(&self) -> &[IpNet] {
        &self.addresses
    }

    /// The services that hosts on it may reach at its label; none means none.
    pub fn services(&self) -> &[ServiceName] {
        &self.services
    }

    /// The ports of its partition that hosts on it may reach; none means none.
    pub fn ports(&self) -> &[(Protocol, u16)] {
        &self.ports
    }

    /// The hosts on it that sessions at its label, or its partition, may reach; none means none.
    pub fn hosts(&self) -> &[NetworkHost] {
        &self.hosts
    }

    /// How many hosts of it are known at once, at most, if the site says so.
    pub fn neighbours(&self) -> Option<u16> {
        self.neighbours
    }
}

/// Labels that one network has at most: each has a compartment that runs.
pub(super) const MOST: u64 = 64;

/// Prefixes of single-level hosts that a labelled network has at most.
const MOST_PREFIXES: usize = 64;

pub(super) fn read(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    keys: &Table<'_>,
) -> Option<DraftNetwork> {
    let interface = reader.need(keys, "interface", "\"ship0\"").and_then(|value| {
        reader.parsed(value, "interface name", "1 to 15 letters, digits, '.', '_', '-' or '@'")
    });
    let labels = labels(reader, vocabulary, keys);
    let unlabelled = unlabelled(reader, vocabulary, keys);
    let addresses = reader.need(keys, "address", "\"192.168.7.1/24\"").and_then(|value| {
        reader.one_or_more(value, "address", "an address with its prefix length, such as \"192.168.7.1/24\"")
    });
    let services = match keys.get("services") {
        Some(value) => reader.parsed_list(value, ("services", "service name"), NAME),
        None => Some(Vec::new()),
    };
    let partition = match keys.get("partition") {
        Some(value) => reader.parsed(value, "partition name", PARTITION_NAME).map(Some),
        None => Some(None),
    };
    let (ports, hosts) = (ports(reader, keys), hosts(reader, keys));
    let neighbours = neighbours(reader, keys);
    Some(DraftNetwork {
        interface: interface?,
        labels: labels.0?,
        domain: labels.1,
        unlabelled: unlabelled?,
        addresses: addresses?,
        partition: partition?,
        services: services?,
        ports: ports?,
        hosts: hosts?,
        neighbours: neighbours?,
    })
}

/// `neighbours`, the hosts that are known at once.
fn neighbours(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Option<u16>> {
    let Some(value) = keys.get("neighbours") else { return Some(None) };
    let number = reader.integer(value, "neighbours", 1..=u64::from(u16::MAX))?;
    u16::try_from(number).ok().map(Some)
}

/// `ports`, which others may reach.
pub(super) fn ports(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Vec<At<(Protocol, u16)>>> {
    let Some(value) = keys.get("ports") else { return Some(Vec::new()) };
    let items = reader.list(value, "ports")?;
    let read: Vec<_> = items
        .iter()
        .map(|item| {
            let keys = reader.subtable(item, "a port", &reference::OPEN_PORT.names())?;
            let (port, protocol) = (port(reader, &keys), protocol(reader, &keys));
            let port = port?;
            Some(At::new((protocol?, port.value), port.span))
        })
        .collect();
    read.into_iter().collect()
}

/// `hosts`, which may be reached.
pub(super) fn hosts(reader: &mut Reader<'_>, keys: &Table<'_>) -> Option<Vec<At<NetworkHost>>> {
    let Some(value) = keys.get("hosts") else { return Some(Vec::new()) };
    let items = reader.list(value, "hosts")?;
    let read: Vec<_> = items
        .iter()
        .map(|item| {
            let keys = reader.subtable(item, "a network's host", &reference::NETWORK_HOST.names())?;
            let address = reader.need(&keys, "address", "\"192.168.7.9\"").and_then(|value| {
                reader.parsed::<IpAddr>(value, "address", "an IPv4 or IPv6 address, such as \"192.168.7.9\"")
            });
            let port = port(reader, &keys);
            let protocol = protocol(reader, &keys);
            let (address, port, protocol) = (address?, port?, protocol?);
            let host = NetworkHost { address: address.value, port: port.value, protocol };
            Some(At::new(host, address.span))
        })
        .collect();
    read.into_iter().collect()
}

/// `label`, or `labels` with `domain`.
fn labels(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    keys: &Table<'_>,
) -> (Option<At<Range>>, Option<At<u32>>) {
    let Some(labels) = keys.get("labels") else {
        if let Some(domain) = keys.get("domain") {
            let what = "a network of one label has no domain: nothing on it carries a label";
            reader.problem(
                ProblemKind::BadValue,
                &domain.span(),
                what,
                "remove it, or write `labels` for `label`",
            );
            return (None, None);
        }
        return (single(reader, vocabulary, keys), None);
    };
    if let Some(label) = keys.get("label") {
        reader.problem(
            ProblemKind::Duplicate,
            &label.span(),
            "both `label` and `labels` say what is on the network",
            "keep `label` where everything on it is at one label, `labels` where each packet carries one",
        );
        return (None, None);
    }
    let domain = reader.need(keys, "domain", "16");
    let place = domain.map_or(labels.span(), Spanned::span);
    let number = domain.and_then(|value| reader.integer(value, "domain", 1..=u64::from(u32::MAX)));
    let number = number.and_then(|number| u32::try_from(number).ok());
    let range = range(reader, vocabulary, keys, "labels");
    match number {
        Some(number) => (range, Some(At::new(number, place))),
        None => (None, None),
    }
}

/// `unlabelled`, the single-level hosts of a labelled network.
fn unlabelled(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    keys: &Table<'_>,
) -> Option<Vec<At<(IpNet, Label)>>> {
    let Some(value) = keys.get("unlabelled") else { return Some(Vec::new()) };
    let items = reader.list(value, "unlabelled")?;
    if keys.get("labels").is_none() && !items.is_empty() {
        let what = "on a network of one label no packet carries one";
        let remedy = "remove it, or write `labels` for `label`";
        reader.problem(ProblemKind::BadValue, &value.span(), what, remedy);
        return None;
    }
    let mut read = Some(Vec::new());
    for item in items {
        let one = prefix(reader, vocabulary, item);
        // All are read, so that each fault is told.
        read = read.zip(one).map(|(mut all, one)| {
            all.push(one);
            all
        });
    }
    read
}

fn prefix(
    reader: &mut Reader<'_>,
    vocabulary: Option<&Vocabulary>,
    item: &Spanned<DeValue<'_>>,
) -> Option<At<(IpNet, Label)>> {
    let keys = reader.subtable(item, "single-level hosts", &reference::SINGLE_LEVEL.names())?;
    let address = reader.need(&keys, "address", "\"192.168.7.64/26\"").and_then(|value| {
        reader.parsed::<IpNet>(value, "address", "a prefix with its length, such as \"192.168.7.64/26\"")
    });
    let label = single(reader, vocabulary, &keys);
    let (address, label) = (address?, label?);
    Some(At::new((address.value, label.value.low().clone()), address.span))
}

/// What holds for the single-level hosts of a labelled network.
fn check_unlabelled(reader: &mut Reader<'_>, network: &DraftNetwork, vocabulary: &Vocabulary) {
    if network.unlabelled.len() > MOST_PREFIXES {
        let what =
            format!("the network `{}` has more than {MOST_PREFIXES} prefixes", network.interface.value);
        let remedy = "join those of one label, or give it an interface of its own";
        reader.problem(ProblemKind::TooLarge, &network.interface.span, what, remedy);
    }
    for (at, hosts) in network.unlabelled.iter().enumerate() {
        let (prefix, label) = &hosts.value;
        let words = vocabulary.text(label).unwrap_or_default();
        if !network.labels.value.contains(label) {
            let what = format!("{words} is not among the labels of the network");
            reader.problem(ProblemKind::OutOfBounds, &hosts.span, what, "widen `labels`, or remove it here");
        }
        if prefix.trunc() != *prefix {
            let what = format!("{prefix} has bits behind its length");
            let remedy = format!("write {}", prefix.trunc());
            reader.problem(ProblemKind::BadValue, &hosts.span, what, remedy);
        }
        if !network.addresses.iter().any(|net| net.value.contains(prefix)) {
            let what = format!("{prefix} is not on this network");
            let remedy = "choose a prefix within one of its own";
            reader.problem(ProblemKind::BadValue, &hosts.span, what, remedy);
        }
        if network.unlabelled.iter().take(at).any(|earlier| earlier.value.0 == *prefix) {
            let remedy = "remove one of them";
            reader.problem(ProblemKind::Duplicate, &hosts.span, "this prefix stands twice", remedy);
        }
    }
}

fn single(reader: &mut Reader<'_>, vocabulary: Option<&Vocabulary>, keys: &Table<'_>) -> Option<At<Range>> {
    let value = reader.need(keys, "label", "\"SECRET\"")?;
    let text = reader.string(value, "label")?;
    match vocabulary?.parse(text.value) {
        Ok(label) => Some(At::new(Range::single(label), text.span)),
        Err(error) => {
            reader.label_fault(&text, error);
            None
        }
    }
}

/// What holds for networks whose packets carry labels. `domains` is `None` if one could not be read.
pub(super) fn check_labelled(
    reader: &mut Reader<'_>,
    (networks, services): (&[DraftNetwork], &[DraftService]),
    vocabulary: Option<&Vocabulary>,
    domains: Option<&[Domain]>,
) {
    let (Some(vocabulary), Some(domains)) = (vocabulary, domains) else { return };
    for network in networks {
        let Some(doi) = &network.domain else { continue };
        let Some(labels) = network.labels.value.labels(MOST) else {
            reader.problem(
                ProblemKind::TooLarge,
                &network.labels.span,
                format!("the network `{}` has more than {MOST} labels", network.interface.value),
                "narrow the range: at each label a compartment runs",
            );
            continue;
        };
        let Some(domain) = domains.iter().find(|domain| domain.doi() == doi.value) else {
            reader.problem(
                ProblemKind::UnknownName,
                &doi.span,
                format!("the site has no domain {}", doi.value),
                "declare it under [[domain]]",
            );
            continue;
        };
        check_unlabelled(reader, network, vocabulary);
        for label in labels {
            let words = vocabulary.text(&label).unwrap_or_default();
            if !domain.has_room(&label) {
                reader.problem(
                    ProblemKind::BadValue,
                    &network.labels.span,
                    format!("{words} has no option in domain {}: it would be lost", doi.value),
                    "give its level and categories numbers there, in a form that has room, or narrow the range",
                );
            }
        }
        let mediated = |name: &&At<ServiceName>| {
            services.iter().any(|service| service.name.value == name.value && service.mode.is_mediated())
        };
        for name in network.services.iter().filter(mediated) {
            reader.problem(
                ProblemKind::BadValue,
                &name.span,
                format!("`{}` is mediated, and a labelled network has no mediated services", name.value),
                "write `mode = \"direct\"` for the service, or remove it here",
            );
        }
    }
}
