//! Holds the parts of a site against each other.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::draft::Draft;
use super::problem::ProblemKind;
use super::read::{At, Reader};
use super::tables::{DraftNetwork, DraftServer};
use super::{card, partition, ways};
use crate::label::Range;
use crate::names::LabelName;
use crate::vocabulary::{Vocabulary, nearest};

pub(super) fn all(reader: &mut Reader<'_>, draft: &Draft) {
    let overlapping = overlaps(reader, draft);
    duplicates(reader, "user", draft.users.read.iter().map(|user| &user.name));
    duplicates(reader, "host", draft.hosts.read.iter().map(|host| &host.name));
    duplicates(reader, "PPK", draft.hosts.read.iter().filter_map(|host| host.ppk.as_ref()));
    duplicates(reader, "service", draft.services.read.iter().map(|service| &service.name));
    let wires = draft.parts.iter().flat_map(|parts| &parts.channels).filter_map(|read| read.wire.as_ref());
    let interfaces = draft.networks.read.iter().map(|network| &network.interface);
    duplicates(reader, "interface", interfaces.chain(wires.map(|wire| &wire.interface)));
    if let Some(parts) = &draft.parts {
        duplicates(reader, "partition", parts.partitions.iter().map(|(name, ..)| name));
        duplicates(reader, "channel", parts.channels.iter().map(|read| &read.name));
        duplicates(reader, "link", parts.links.iter().map(|read| &read.name));
    }
    if let Some(vocabulary) = &draft.vocabulary {
        let clearances = draft.users.read.iter().map(|user| &user.clearance);
        for range in clearances {
            name_length(reader, vocabulary, range);
        }
        for network in &draft.networks.read {
            name_length(reader, vocabulary, &network.labels);
        }
        if !reader.is_broken() {
            unreachable(reader, draft, vocabulary);
        }
        service_ports(reader, draft, vocabulary);
        people(reader, draft, vocabulary);
        networks(reader, draft, vocabulary, &overlapping);
        if let Some(parts) = &draft.parts {
            for (_, label, _) in &parts.partitions {
                let range = At::new(Range::single(label.value.clone()), label.span.clone());
                name_length(reader, vocabulary, &range);
            }
            let slots = draft.server.as_ref().map(|server| server.slots);
            ways::check(reader, parts, &draft.networks.read, slots, vocabulary);
            card::check(reader, draft, parts, vocabulary);
            releasers(reader, draft, parts, vocabulary);
        }
    }
    if let Some(server) = &draft.server {
        server_addresses(reader, server, draft.hosts.read.len());
        let others = draft.federation.iter().flat_map(|federation| &federation.names);
        let names = std::iter::once(&server.name).chain(&server.names).chain(others);
        duplicates(reader, "name of the server or another", names);
    }
}

fn duplicates<'a, T: AsRef<str> + 'a>(
    reader: &mut Reader<'_>,
    what: &str,
    names: impl Iterator<Item = &'a At<T>>,
) {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        let line = reader.line(&name.span);
        match seen.get(name.value.as_ref()) {
            Some(first) => reader.problem(
                ProblemKind::Duplicate,
                &name.span,
                format!("a second {what} `{}`; the first is on line {first}", name.value.as_ref()),
                "remove or rename one of them",
            ),
            None => {
                seen.insert(name.value.as_ref(), line);
            }
        }
    }
}

/// Every label that a session could have must have a name that fits RFC 9478 and our messages.
fn name_length(reader: &mut Reader<'_>, vocabulary: &Vocabulary, range: &At<Range>) {
    let longest = longest_name(vocabulary, &range.value);
    if longest > LabelName::MAX {
        reader.problem(
            ProblemKind::TooLarge,
            &range.span,
            format!("a label in this range has a name of {longest} bytes, where {} can be", LabelName::MAX),
            "shorten the names of categories, or narrow the range",
        );
    }
}

fn longest_name(vocabulary: &Vocabulary, range: &Range) -> usize {
    fn class<'a>(
        low: u8,
        high: u8,
        levels: impl Iterator<Item = &'a str>,
        categories: impl Iterator<Item = &'a str>,
    ) -> usize {
        let count = usize::from(high.saturating_sub(low)) + 1;
        let level = levels.skip(usize::from(low)).take(count).map(str::len).max().unwrap_or(0);
        let categories: usize = categories.map(|name| name.len() + 1).sum();
        level + if categories == 0 { 0 } else { categories + 1 }
    }
    let (low, high) = (range.low(), range.high());
    let (c_low, c_high) = (&low.confidentiality, &high.confidentiality);
    // A range's low end has the higher integrity.
    let (i_low, i_high) = (&high.integrity, &low.integrity);
    let confidentiality = class(
        c_low.level,
        c_high.level,
        vocabulary.levels(),
        (0u16..).zip(vocabulary.categories()).filter(|(at, _)| c_high.categories.contains(*at)).map(|c| c.1),
    );
    if !vocabulary.has_integrity() {
        return confidentiality;
    }
    let integrity = class(
        i_low.level,
        i_high.level,
        vocabulary.integrity_levels(),
        (0u16..)
            .zip(vocabulary.integrity_categories())
            .filter(|(at, _)| i_high.categories.contains(*at))
            .map(|c| c.1),
    );
    confidentiality + 1 + integrity
}

/// What nobody could ever use is a mistake, and most often one in a range. A user, host or network that could not be read
/// might be the one who could.
fn unreachable(reader: &mut Reader<'_>, draft: &Draft, vocabulary: &Vocabulary) {
    let words = |range: &Range| vocabulary.print_range(range).unwrap_or_default();
    let Draft { users, hosts, networks, .. } = draft;
    for service in draft.services.read.iter().filter(|_| users.whole && networks.whole) {
        let cleared = users.read.iter().any(|user| meets(&user.clearance, &service.range));
        let networked = networks.read.iter().any(|network| {
            meets(&network.labels, &service.range)
                && network.services.iter().any(|name| name.value == service.name.value)
        });
        if !cleared && !networked {
            reader.problem(
                ProblemKind::Unreachable,
                &service.range.span,
                format!(
                    "the service `{}` at {} is outside every clearance",
                    service.name.value,
                    words(&service.range.value)
                ),
                "widen its range or a user's clearance, or remove the service",
            );
        }
    }
    for user in users.read.iter().filter(|_| hosts.whole) {
        if !hosts.read.is_empty()
            && !hosts.read.iter().any(|host| meets(&host.accreditation, &user.clearance))
        {
            reader.problem(
                ProblemKind::Unreachable,
                &user.clearance.span,
                format!(
                    "no host is accredited for any label in the clearance {} of `{}`",
                    words(&user.clearance.value),
                    user.name.value
                ),
                "widen the clearance or a host's accreditation, or remove the user",
            );
        }
    }
    for host in hosts.read.iter().filter(|_| users.whole) {
        if !users.read.is_empty()
            && !users.read.iter().any(|user| meets(&host.accreditation, &user.clearance))
        {
            reader.problem(
                ProblemKind::Unreachable,
                &host.accreditation.span,
                format!(
                    "no user is cleared for any label in the accreditation {} of `{}`",
                    words(&host.accreditation.value),
                    host.name.value
                ),
                "widen the accreditation or a user's clearance, or remove the host",
            );
        }
    }
}

/// Who releases a guard's messages is shown them in a session at the label of its writer, each at a workstation of their own.
fn releasers(reader: &mut Reader<'_>, draft: &Draft, parts: &partition::DraftParts, vocabulary: &Vocabulary) {
    let Draft { users, hosts, services, networks, .. } = draft;
    for (names, label) in parts.released() {
        let words = vocabulary.text(label).unwrap_or_default();
        for name in names.iter().filter(|_| users.whole) {
            let known = || users.read.iter().map(|user| user.name.value.as_str());
            match users.read.iter().find(|user| user.name.value == name.value) {
                None => {
                    let near = nearest(name.value.as_str(), known());
                    let remedy = match &near {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "declare them under [[user]], or remove the name".to_owned(),
                    };
                    let what = format!("the site has no user `{}`", name.value);
                    reader.problem_near(ProblemKind::UnknownName, &name.span, what, near, remedy);
                }
                Some(user) if !user.clearance.value.contains(label) => {
                    let what =
                        format!("`{}` is not cleared for {words}, the label of what is released", name.value);
                    let remedy = "widen the clearance, or name somebody else";
                    reader.problem(ProblemKind::Unreachable, &name.span, what, remedy);
                }
                Some(_) => {}
            }
        }
        let Some(first) = names.first().filter(|_| hosts.whole && services.whole && networks.whole) else {
            continue;
        };
        let accredited = hosts.read.iter().filter(|host| host.accreditation.value.contains(label));
        if accredited.count() < 2 {
            let what = format!(
                "fewer than two workstations are accredited for {words}, the label of what is released"
            );
            let remedy = "accredit another: each of the two people has one of their own";
            reader.problem(ProblemKind::Unreachable, &first.span, what, remedy);
        }
        if !services.read.iter().any(|service| service.range.value.contains(label))
            && !(networks.read.iter())
                .any(|network| network.partition.is_none() && network.labels.value.contains(label))
        {
            let what = format!("nobody can have a session at {words}, where messages are released");
            let remedy = "offer a service there: a session is at a label where something can be reached";
            reader.problem(ProblemKind::Unreachable, &first.span, what, remedy);
        }
    }
}

fn meets(one: &At<Range>, other: &At<Range>) -> bool {
    one.value.intersection(&other.value).is_some()
}

/// Whom a service names is cleared for some label at which it runs, and owners change what one server knows.
fn people(reader: &mut Reader<'_>, draft: &Draft, vocabulary: &Vocabulary) {
    for service in &draft.services.read {
        let (name, range) = (&service.name, &service.range);
        for named in service.access.people().into_iter().flatten().chain(service.access.owners()) {
            let user = draft.users.read.iter().find(|user| user.name.value == *named);
            if user.is_some_and(|user| !meets(&user.clearance, range)) {
                let at = vocabulary.print_range(&range.value).unwrap_or_default();
                let what = format!("`{}` names `{named}`, who is cleared for no label of {at}", name.value);
                let remedy = "widen the clearance, or take the name out";
                reader.problem(ProblemKind::Unreachable, &name.span, what, remedy);
                break;
            }
        }
        if !service.access.owners().is_empty() && draft.federation.is_some() {
            let what =
                format!("`{}` has owners, whose word is one server's, and this site has several", name.value);
            let remedy = "write `people` alone, which every server reads";
            reader.problem(ProblemKind::BadValue, &name.span, what, remedy);
        }
    }
}

/// At one label, one port belongs to one service.
fn service_ports(reader: &mut Reader<'_>, draft: &Draft, vocabulary: &Vocabulary) {
    for (at, service) in draft.services.read.iter().enumerate() {
        for earlier in draft.services.read.iter().take(at) {
            if earlier.port.value != service.port.value || earlier.protocol != service.protocol {
                continue;
            }
            if let Some(both) = earlier.range.value.intersection(&service.range.value) {
                reader.problem(
                    ProblemKind::Duplicate,
                    &service.port.span,
                    format!(
                        "`{}` of line {} and `{}` both take {} port {} at {}",
                        earlier.name.value,
                        reader.line(&earlier.name.span),
                        service.name.value,
                        service.protocol.as_str(),
                        service.port.value,
                        vocabulary.print_range(&both).unwrap_or_default()
                    ),
                    "give one of them another port, or part their ranges",
                );
            }
        }
    }
}

fn networks(
    reader: &mut Reader<'_>,
    draft: &Draft,
    vocabulary: &Vocabulary,
    overlapping: &[std::ops::Range<usize>],
) {
    for network in &draft.networks.read {
        // An address that is wrong itself says nothing of who is on its network.
        let sound = !network.addresses.iter().any(|net| overlapping.contains(&net.span));
        let labels = match network.domain {
            None => vocabulary.text(network.labels.value.low()),
            Some(_) => vocabulary.print_range(&network.labels.value),
        };
        let labels = labels.unwrap_or_default();
        if network.addresses.is_empty() {
            reader.problem(
                ProblemKind::TooSmall,
                &network.interface.span,
                format!("the network at `{}` has no address", network.interface.value),
                "give the interface an address with its prefix length",
            );
        }
        duplicates(reader, "service of this network", network.services.iter());
        for name in &network.services {
            let Some(service) = draft.services.read.iter().find(|service| service.name.value == name.value)
            else {
                let near =
                    nearest(name.value.as_str(), draft.services.read.iter().map(|s| s.name.value.as_str()));
                if draft.services.whole {
                    reader.problem_near(
                        ProblemKind::UnknownName,
                        &name.span,
                        format!("the site has no service `{}`", name.value),
                        near.clone(),
                        match near {
                            Some(near) => format!("did you mean `{near}`?"),
                            None => "declare it under [[service]], or remove it here".to_owned(),
                        },
                    );
                }
                continue;
            };
            if !meets(&network.labels, &service.range) {
                reader.problem(
                    ProblemKind::Unreachable,
                    &name.span,
                    format!("`{}` does not run at {labels}, the label of this network", name.value),
                    "widen the service's range, or remove it here",
                );
            }
            if service.access.is_limited() {
                let what =
                    format!("`{}` is for some people alone, and a host of a network is nobody", name.value);
                let remedy = "remove it here, or the service's `people` and `owners`";
                reader.problem(ProblemKind::Unreachable, &name.span, what, remedy);
            }
        }
        network_hosts(reader, network, sound);
    }
}

/// The hosts of a network; `sound` says that its own address is no other's.
fn network_hosts(reader: &mut Reader<'_>, network: &DraftNetwork, sound: bool) {
    for (at, host) in network.hosts.iter().enumerate() {
        if sound && !network.addresses.iter().any(|net| net.value.contains(&host.value.address)) {
            reader.problem(
                ProblemKind::BadValue,
                &host.span,
                format!("{} is not on this network", host.value.address),
                format!("choose an address in {}", list(&network.addresses)),
            );
        }
        if network.addresses.iter().any(|net| net.value.addr() == host.value.address) {
            reader.problem(
                ProblemKind::Duplicate,
                &host.span,
                format!("{} is the interface's own address", host.value.address),
                "name the other host's address; the site's services are listed under `services`",
            );
        }
        if network.hosts.iter().take(at).any(|earlier| earlier.value == host.value) {
            reader.problem(
                ProblemKind::Duplicate,
                &host.span,
                "this address, protocol and port stand twice",
                "remove one of them",
            );
        }
    }
}

fn list(networks: &[At<IpNet>]) -> String {
    networks.iter().map(|net| net.value.trunc().to_string()).collect::<Vec<_>>().join(", ")
}

fn family(address: &IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn server_addresses(reader: &mut Reader<'_>, server: &DraftServer, hosts: usize) {
    if server.addresses.is_empty() {
        reader.problem(
            ProblemKind::TooSmall,
            &server.span,
            "the server has no outer address",
            "list at least one under `addresses`",
        );
    }
    if server.ike_port.value == server.tunnel_port.value {
        reader.problem(
            ProblemKind::Duplicate,
            &server.tunnel_port.span,
            format!("`ike-port` and `tunnel-port` are both {}", server.tunnel_port.value),
            "give them different ports, such as 500 and 4500",
        );
    }
    if [server.ike_port.value, server.tunnel_port.value].contains(&server.layer_port.value) {
        reader.problem(
            ProblemKind::Duplicate,
            &server.layer_port.span,
            format!("`layer-port` is {}, which IKE or the tunnel has", server.layer_port.value),
            "give it a port of its own, such as 4433",
        );
    }
    let texts: Vec<At<String>> = (server.addresses.iter().chain(&server.inner_addresses))
        .map(|address| At::new(address.value.to_string(), address.span.clone()))
        .collect();
    duplicates(reader, "address", texts.iter());
    reached(reader, server);
    one_per_family(reader, server);
    // One address in use for each host, and as long as an address rests after a session, some more for
    // those who sign on again.
    let wanted = (hosts as u128).saturating_mul(4).max(4);
    for pool in &server.inner_pools {
        if pool.value.trunc() != pool.value {
            reader.problem(
                ProblemKind::BadValue,
                &pool.span,
                format!("{} has bits behind its prefix", pool.value),
                format!("write {}", pool.value.trunc()),
            );
        }
        let bits = u32::from(pool.value.max_prefix_len() - pool.value.prefix_len());
        let usable = 1u128.checked_shl(bits).unwrap_or(u128::MAX).saturating_sub(2);
        if usable < wanted {
            reader.problem(
                ProblemKind::TooSmall,
                &pool.span,
                format!("the pool {} has {usable} addresses for {hosts} hosts", pool.value),
                format!("choose a shorter prefix, for {wanted} addresses at least: four for each host"),
            );
        }
    }
}

/// That the server's addresses are a host's, and its names no addresses.
fn reached(reader: &mut Reader<'_>, server: &DraftServer) {
    for address in server.addresses.iter().chain(&server.inner_addresses) {
        if address.value.is_unspecified() || address.value.is_multicast() {
            reader.problem(
                ProblemKind::BadValue,
                &address.span,
                format!("{} is not the address of a host", address.value),
                "write the address that the server is to have",
            );
        }
    }
    for address in &server.addresses {
        if matches!(address.value, IpAddr::V6(six) if six.is_unicast_link_local()) {
            let what =
                format!("{} is a link-local address, which means something on one link alone", address.value);
            let remedy = "write the address at which workstations reach the server, such as \"2001:db8::1\"";
            reader.problem(ProblemKind::BadValue, &address.span, what, remedy);
        }
    }
    for name in std::iter::once(&server.name).chain(&server.names) {
        if name.value.as_str().parse::<IpAddr>().is_ok() {
            let what = format!("`{}` is an address, and no DNS name", name.value);
            let remedy = "write the name that stands in the server's certificate, such as \"server.harbour.example\"; addresses stand under `addresses`";
            reader.problem(ProblemKind::BadValue, &name.span, what, remedy);
        }
    }
}

fn one_per_family(reader: &mut Reader<'_>, server: &DraftServer) {
    if server.inner_addresses.is_empty() {
        reader.problem(
            ProblemKind::TooSmall,
            &server.span,
            "the server has no inner address",
            "give one under `inner-address`",
        );
    }
    for (at, address) in server.inner_addresses.iter().enumerate() {
        let name = family(&address.value);
        if server.inner_addresses.iter().take(at).any(|other| family(&other.value) == name) {
            reader.problem(
                ProblemKind::Duplicate,
                &address.span,
                format!("a second inner {name} address"),
                "give one of each family at most",
            );
        }
        if !server.inner_pools.iter().any(|pool| family(&pool.value.addr()) == name) {
            reader.problem(
                ProblemKind::MissingKey,
                &address.span,
                format!("no inner pool is {name}, as {} is", address.value),
                format!("add an {name} network to `inner-pool`"),
            );
        }
    }
    for (at, pool) in server.inner_pools.iter().enumerate() {
        let name = family(&pool.value.addr());
        if server.inner_pools.iter().take(at).any(|other| family(&other.value.addr()) == name) {
            reader.problem(
                ProblemKind::Duplicate,
                &pool.span,
                format!("a second {name} pool"),
                "give one of each family at most, with a prefix as short as you need",
            );
        }
        if !server.inner_addresses.is_empty()
            && !server.inner_addresses.iter().any(|address| family(&address.value) == name)
        {
            reader.problem(
                ProblemKind::MissingKey,
                &pool.span,
                format!("no inner address is {name}, as {} is", pool.value),
                format!("add an {name} address to `inner-address`"),
            );
        }
    }
}

/// Every address of the site belongs to one thing. Where those stand that belong to two.
fn overlaps(reader: &mut Reader<'_>, draft: &Draft) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut taken: Vec<(String, At<IpNet>)> = Vec::new();
    if let Some(server) = &draft.server {
        for address in &server.addresses {
            let span = address.span.clone();
            taken.push(("the server's address".to_owned(), At::new(IpNet::from(address.value), span)));
        }
        for address in &server.inner_addresses {
            let span = address.span.clone();
            taken.push(("the inner address".to_owned(), At::new(IpNet::from(address.value), span)));
        }
        for pool in &server.inner_pools {
            taken.push(("the inner pool".to_owned(), pool.clone()));
        }
    }
    taken.extend(draft.federation.iter().flat_map(|federation| federation.taken.iter().cloned()));
    for network in &draft.networks.read {
        for address in &network.addresses {
            taken.push((format!("the network at `{}`", network.interface.value), address.clone()));
        }
    }
    for (at, (what, net)) in taken.iter().enumerate() {
        for (earlier_what, earlier) in taken.iter().take(at) {
            let (one, other) = (net.value.trunc(), earlier.value.trunc());
            // Two single addresses that are equal have been told as duplicates.
            let single = one.prefix_len() == one.max_prefix_len() && one == other;
            if !single && (one.contains(&other) || other.contains(&one)) {
                let line = reader.line(&earlier.span);
                reader.problem(
                    ProblemKind::Overlap,
                    &net.span,
                    format!("{what} {one} overlaps {earlier_what} {other} of line {line}"),
                    "choose networks that share no address",
                );
                found.push(net.span.clone());
            }
        }
    }
    found
}
