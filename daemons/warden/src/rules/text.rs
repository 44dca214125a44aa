//! The rules of a label's networks, as text that `nft -f` takes.
//!
//! Whatever needs no memory of earlier packets has none. Hosts reach a TCP service without connection tracking: in, what comes
//! from the network's own addresses to the interface's own address and a listed port, with the service's address in that
//! one's place; out, what goes from there back to the network, with the addresses changed back. That a packet going out is an
//! answer, its flags say: the first segment of a connection has SYN and no ACK (RFC 9293 3.5), and that one is dropped. Nobody in a
//! compartment can make another without a connection that a host has begun, for segments are the kernel's to make: raw and packet
//! sockets, and TCP_REPAIR, need a capability over the namespace, which belongs to the host's user namespace. Nor does a segment go
//! elsewhere than to its connection's peer: source routes (IP_OPTIONS, and over IPv6 IPV6_RTHDR, which need no capability) would take one
//! of a connection between two programs of the compartment to a host, so what has options or extension headers is dropped, both ways.
//! Fragments are, too, before the kernel keeps them: nothing here puts together what the rules see in pieces. What is lost are
//! ICMP errors about such connections, which matter between ends that are not on one link; these are, by their addresses.
//!
//! Connections are tracked where an answer cannot be told from a question: UDP services; sessions that use hosts on the network
//! (masquerade), and then all of that interface, since a session may choose a service's port for its own; and an
//! interface with several addresses of a family, to one of which an answer must go back. Where nothing is, the kernel tracks nothing in
//! this namespace, for no rule asks it to.

use crate::ruleset::{Edge, Reason, Ruleset, TABLE, TUNNEL};
use ipnet::IpNet;
use levee_policy::site::Protocol;
use std::collections::BTreeSet;
use std::fmt::{self, Display, Write};
use std::net::IpAddr;

/// The keyword for an address's family.
fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ip" } else { "ip6" }
}

/// Neighbours are found by ICMPv6 (RFC 4861), and only from the link itself: hence the hop limit.
const NEIGHBOURS: &str = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 255 accept";

/// What is no first segment of a connection.
const ANSWERS: &str = "tcp flags & (syn | ack) != syn";

/// TCP right behind the IP header, which has no options: no source route, of which the rules would see one address and the end another.
fn bare(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ip hdrlength 5" } else { "ip6 nexthdr tcp" }
}

/// Fragments, of either family.
const FRAGMENTS: [&str; 2] = ["ip frag-off & 0x3fff != 0", "exthdr frag exists"];

/// What hosts reach at one of an interface's addresses by one protocol.
struct Way {
    ip: &'static str,
    /// The interface's, by which hosts call the services.
    own: IpAddr,
    net: IpNet,
    /// Where the services are.
    inner: IpAddr,
    protocol: Protocol,
    /// As nft writes a set of them.
    ports: String,
    is_tracked: bool,
}

impl Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Naming the table before deleting it makes the deletion succeed where there is none; all is one transaction.
        writeln!(f, "table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{")?;
        self.each(f, |text, index, _| {
            for reason in Reason::ALL {
                let _ = writeln!(text, "  counter {} {{ }}", Self::counter(index, reason));
            }
        })?;
        self.arriving(f)?;
        if self.edges.iter().any(|edge| self.is_tracked(edge)) {
            self.tracked(f)?;
        }
        self.input(f)?;
        self.forward(f)?;
        self.output(f)?;
        writeln!(f, "}}")
    }
}

impl Ruleset {
    /// Before connections are tracked: those that need not be get to their service.
    fn arriving(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  chain arriving {{\n    type filter hook prerouting priority raw; policy accept;")?;
        self.each(f, |text, index, edge| {
            // Where connections are tracked, their fragments have been put together already.
            let (name, counter) = (&edge.interface, Self::counter(index, Reason::Service));
            for fragments in FRAGMENTS {
                let _ = writeln!(text, "    iifname \"{name}\" {fragments} counter name {counter} drop");
            }
        })?;
        self.each(f, |text, _, edge| {
            for Way { ip, own, net, inner, ports, .. } in self.ways(edge).filter(|way| !way.is_tracked) {
                let (name, bare) = (&edge.interface, bare(inner));
                let _ = writeln!(
                    text,
                    "    iifname \"{name}\" {bare} {ip} saddr {net} {ip} daddr {own} tcp dport {ports} notrack {ip} daddr \
                     set {inner} accept"
                );
            }
        })?;
        self.each(f, |text, index, edge| {
            // Nobody on a network calls a service by another address: behind this chain, who comes to it came by a rule.
            let (name, counter) = (&edge.interface, Self::counter(index, Reason::Service));
            for inner in &self.inner {
                let ip = family(*inner);
                let _ =
                    writeln!(text, "    iifname \"{name}\" {ip} daddr {inner} counter name {counter} drop");
            }
        })?;
        writeln!(f, "    iifname \"lo\" notrack")?;
        for inner in &self.inner {
            writeln!(f, "    iifname \"{TUNNEL}\" {} daddr {inner} notrack", family(*inner))?;
        }
        writeln!(f, "  }}")
    }

    /// Translation by connection.
    fn tracked(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  chain leaving {{\n    type filter hook output priority raw; policy accept;")?;
        writeln!(f, "    oifname {{ \"lo\", \"{TUNNEL}\" }} notrack")?;
        self.each(f, |text, _, edge| {
            for Way { ip, net, inner, ports, .. } in self.ways(edge).filter(|way| !way.is_tracked) {
                let name = &edge.interface;
                let _ = writeln!(
                    text,
                    "    oifname \"{name}\" {ip} saddr {inner} {ip} daddr {net} tcp sport {ports} notrack"
                );
            }
        })?;
        writeln!(
            f,
            "  }}\n  chain prerouting {{\n    type nat hook prerouting priority dstnat; policy accept;"
        )?;
        self.each(f, |text, _, edge| {
            for way in self.ways(edge).filter(|way| way.is_tracked) {
                let Way { ip, own, net, inner, protocol, ports, .. } = way;
                let (name, protocol) = (&edge.interface, protocol.as_str());
                let _ = writeln!(
                    text,
                    "    iifname \"{name}\" {ip} saddr {net} {ip} daddr {own} {protocol} dport {ports} dnat {ip} to {inner}"
                );
            }
        })?;
        writeln!(
            f,
            "  }}\n  chain postrouting {{\n    type nat hook postrouting priority srcnat; policy accept;"
        )?;
        self.each(f, |text, _, edge| {
            for pool in self.pools.iter().filter(|_| !edge.hosts.is_empty()) {
                let (name, ip) = (&edge.interface, family(pool.addr()));
                let _ = writeln!(text, "    oifname \"{name}\" {ip} saddr {pool} masquerade");
            }
        })?;
        writeln!(f, "  }}")
    }

    fn input(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  chain input {{\n    type filter hook input priority filter; policy drop;")?;
        writeln!(f, "    iifname {{ \"lo\", \"{TUNNEL}\" }} accept")?;
        self.each(f, |text, index, edge| {
            let name = &edge.interface;
            if self.is_tracked(edge) {
                let _ = writeln!(text, "    iifname \"{name}\" ct state established,related accept");
            }
            for way in self.ways(edge) {
                let Way { ip, net, inner, protocol, ports, is_tracked, .. } = way;
                let (protocol, new) =
                    (protocol.as_str(), if is_tracked { " ct status dnat ct state new" } else { "" });
                let _ = writeln!(
                    text,
                    "    iifname \"{name}\" {ip} saddr {net} {ip} daddr {inner} {protocol} dport {ports}{new} accept"
                );
            }
            let _ = writeln!(text, "    iifname \"{name}\" {NEIGHBOURS}");
            let counter = Self::counter(index, Reason::Service);
            let _ = writeln!(text, "    iifname \"{name}\" counter name {counter} drop");
        })?;
        writeln!(f, "  }}")
    }

    fn forward(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  chain forward {{\n    type filter hook forward priority filter; policy drop;")?;
        self.each(f, |text, index, edge| {
            let name = &edge.interface;
            for host in &edge.hosts {
                let ip = family(host.address);
                for pool in self.pools.iter().filter(|pool| pool.addr().is_ipv4() == host.address.is_ipv4()) {
                    let _ = writeln!(
                        text,
                        "    iifname \"{TUNNEL}\" oifname \"{name}\" {ip} saddr {pool} {ip} daddr {} {} dport {} ct \
                         state new,established accept",
                        host.address,
                        host.protocol.as_str(),
                        host.port
                    );
                }
            }
            if !edge.hosts.is_empty() {
                let _ = writeln!(
                    text,
                    "    iifname \"{name}\" oifname \"{TUNNEL}\" ct state established,related accept"
                );
            }
            let (through, host) = (Self::counter(index, Reason::Through), Self::counter(index, Reason::Host));
            let _ = writeln!(text, "    iifname \"{name}\" counter name {through} drop");
            let _ = writeln!(text, "    iifname \"{TUNNEL}\" oifname \"{name}\" counter name {host} drop");
        })?;
        writeln!(f, "  }}")
    }

    fn output(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  chain output {{\n    type filter hook output priority filter; policy drop;")?;
        writeln!(f, "    oifname {{ \"lo\", \"{TUNNEL}\" }} accept")?;
        self.each(f, |text, index, edge| {
            let name = &edge.interface;
            for Way { ip, own, net, inner, ports, .. } in self.ways(edge).filter(|way| !way.is_tracked) {
                let bare = bare(inner);
                let _ = writeln!(
                    text,
                    "    oifname \"{name}\" {bare} {ip} saddr {inner} {ip} daddr {net} tcp sport {ports} {ANSWERS} {ip} \
                     saddr set {own} accept"
                );
            }
            if self.is_tracked(edge) {
                let _ = writeln!(text, "    oifname \"{name}\" ct state established,related accept");
            }
            let _ = writeln!(text, "    oifname \"{name}\" {NEIGHBOURS}");
            let counter = Self::counter(index, Reason::Own);
            let _ = writeln!(text, "    oifname \"{name}\" counter name {counter} drop");
        })?;
        writeln!(f, "  }}")
    }

    /// Lines for each edge.
    fn each(&self, f: &mut fmt::Formatter<'_>, line: impl Fn(&mut String, usize, &Edge)) -> fmt::Result {
        let mut text = String::new();
        for (index, edge) in self.edges.iter().enumerate() {
            line(&mut text, index, edge);
        }
        f.write_str(&text)
    }

    /// Whether any of an interface's connections is tracked.
    fn is_tracked(&self, edge: &Edge) -> bool {
        !edge.hosts.is_empty() || self.ways(edge).any(|way| way.is_tracked)
    }

    /// What hosts reach: each of an interface's addresses, with the inner address of its family, by each protocol.
    fn ways<'a>(&'a self, edge: &'a Edge) -> impl Iterator<Item = Way> + 'a {
        let pairs = edge.addresses.iter().filter_map(|own| {
            let same = |address: IpAddr| address.is_ipv4() == own.addr().is_ipv4();
            let inner = self.inner.iter().copied().find(|inner| same(*inner))?;
            let is_only = edge.addresses.iter().filter(|other| same(other.addr())).count() == 1;
            Some((own, inner, is_only))
        });
        pairs.flat_map(move |(own, inner, is_only)| {
            [Protocol::Tcp, Protocol::Udp].into_iter().filter_map(move |protocol| {
                let of_it = edge.services.iter().filter(|(one, _)| *one == protocol);
                let ports: BTreeSet<String> = of_it.map(|(_, port)| port.to_string()).collect();
                (!ports.is_empty()).then(|| Way {
                    ip: family(inner),
                    own: own.addr(),
                    net: own.trunc(),
                    inner,
                    protocol,
                    ports: format!("{{ {} }}", Vec::from_iter(ports).join(", ")),
                    is_tracked: protocol == Protocol::Udp || !is_only || !edge.hosts.is_empty(),
                })
            })
        })
    }
}
