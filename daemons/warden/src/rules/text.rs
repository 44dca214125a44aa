//! The rules of networks, as text that `nft -f` takes.

use super::ruleset::{Reason, Ruleset, TABLE};
use crate::edges::{Edge, TUNNEL};
use ipnet::IpNet;
use std::fmt::{self, Display, Write};
use std::net::IpAddr;

/// The keyword for an address's family.
pub(super) fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ip" } else { "ip6" }
}

/// Neighbours are found by ICMPv6 (RFC 4861), and only from the link itself: hence the hop limit.
pub(super) const NEIGHBOURS: &str =
    "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 255 accept";

/// How long a network's host is known that says nothing new: longer than Linux remembers it once its table is a part full.
pub(super) const KNOWN: &str = "5m";

impl Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requests(f)?;
        // Naming the table before deleting it makes the deletion succeed where there is none; all is one transaction.
        writeln!(f, "table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{")?;
        for (counter, _) in self.counters() {
            writeln!(f, "  counter {counter} {{ }}")?;
        }
        self.each(f, |text, index, edge| {
            for (ip, addresses) in [("ip", "ipv4_addr"), ("ip6", "ipv6_addr")] {
                text.push_str(&Self::set(index, edge, ip, addresses));
            }
        })?;
        match &self.links {
            Some(links) => self.partition(f, links)?,
            None => self.compartment(f)?,
        }
        writeln!(f, "}}")
    }
}

impl Ruleset {
    /// The chains of a label's compartment.
    fn compartment(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In front of all else, since a connection that is known is known whatever interface a packet of it comes by. IPv6 has no other
        // look at where a sender belongs.
        writeln!(f, "  chain origin {{\n    type filter hook prerouting priority raw; policy accept;")?;
        writeln!(f, "    iifname \"lo\" notrack accept")?;
        self.each(f, |text, index, edge| {
            let _ = writeln!(text, "    iifname \"{}\" {NEIGHBOURS}", edge.interface);
            Self::others(text, index, edge, Reason::Service);
        })?;
        // Connections of sessions with services need no tracking, nor does what the compartment says to itself: the vault's selectors have
        // decided, or nobody needs to, nothing of them is translated, and hosts on the network would find the table full that others fill.
        self.untracked(f, "iifname", "daddr")?;
        writeln!(f, "  }}\n  chain untracked {{\n    type filter hook output priority raw; policy accept;")?;
        writeln!(f, "    oifname \"lo\" notrack accept")?;
        self.untracked(f, "oifname", "saddr")?;

        writeln!(
            f,
            "  }}\n  chain prerouting {{\n    type nat hook prerouting priority dstnat; policy accept;"
        )?;
        self.each(f, |text, _, edge| {
            for (own, inner) in self.pairs(edge) {
                for (protocol, port) in &edge.services {
                    let (name, ip, net, own) = (&edge.interface, family(inner), own.trunc(), own.addr());
                    let _ = writeln!(
                        text,
                        "    iifname \"{name}\" {ip} saddr {net} {ip} daddr {own} {} dport {port} dnat {ip} to {inner}",
                        protocol.as_str()
                    );
                }
            }
        })?;
        writeln!(
            f,
            "  }}\n  chain postrouting {{\n    type nat hook postrouting priority srcnat; policy accept;"
        )?;
        self.each(f, |text, _, edge| {
            for pool in &self.pools {
                let (name, ip) = (&edge.interface, family(pool.addr()));
                let _ = writeln!(text, "    oifname \"{name}\" {ip} saddr {pool} masquerade");
            }
        })?;

        writeln!(f, "  }}\n  chain input {{\n    type filter hook input priority filter; policy drop;")?;
        writeln!(f, "    iifname {{ \"lo\", \"{TUNNEL}\" }} accept")?;
        self.each(f, |text, index, edge| {
            let name = &edge.interface;
            let _ = writeln!(text, "    iifname \"{name}\" ct state established,related accept");
            Self::solicited(text, index, edge);
            for (own, inner) in self.pairs(edge) {
                for (protocol, port) in &edge.services {
                    let (ip, net) = (family(inner), own.trunc());
                    let _ = writeln!(
                        text,
                        "    iifname \"{name}\" {ip} saddr {net} {ip} daddr {inner} {} dport {port} ct status dnat ct \
                         state new {}accept",
                        protocol.as_str(),
                        Self::known(index, ip)
                    );
                }
            }
            let counter = Self::counter(index, Reason::Service);
            let _ = writeln!(text, "    iifname \"{name}\" counter name {counter} drop");
        })?;

        writeln!(f, "  }}\n  chain forward {{\n    type filter hook forward priority filter; policy drop;")?;
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
            let _ = writeln!(
                text,
                "    iifname \"{name}\" oifname \"{TUNNEL}\" ct state established,related accept"
            );
            let (through, host) = (Self::counter(index, Reason::Through), Self::counter(index, Reason::Host));
            let _ = writeln!(text, "    iifname \"{name}\" counter name {through} drop");
            let _ = writeln!(text, "    iifname \"{TUNNEL}\" oifname \"{name}\" counter name {host} drop");
        })?;

        writeln!(f, "  }}\n  chain output {{\n    type filter hook output priority filter; policy drop;")?;
        writeln!(f, "    oifname {{ \"lo\", \"{TUNNEL}\" }} accept")?;
        self.each(f, |text, index, edge| {
            let name = &edge.interface;
            let _ = writeln!(text, "    oifname \"{name}\" {NEIGHBOURS}");
            Self::others(text, index, edge, Reason::Own);
            let _ = writeln!(text, "    oifname \"{name}\" ct state established,related accept");
            let counter = Self::counter(index, Reason::Own);
            let _ = writeln!(text, "    oifname \"{name}\" counter name {counter} drop");
        })?;
        writeln!(f, "  }}")
    }

    /// Has the tracking of connections leave out what passes between services and sessions.
    fn untracked(&self, f: &mut fmt::Formatter<'_>, way: &str, end: &str) -> fmt::Result {
        self.inner.iter().try_for_each(|inner| {
            writeln!(f, "    {way} \"{TUNNEL}\" {} {end} {inner} notrack", family(*inner))
        })
    }

    /// Whom ARP makes known: so many hosts of each network, since the machine has one table of neighbours for all of them and whoever is on a
    /// network can ask in any name. An answer makes nobody known whom this side has not asked for.
    fn requests(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table arp {TABLE}\ndelete table arp {TABLE}\ntable arp {TABLE} {{")?;
        // On a wire nobody asks: its other end is one neighbour, and knows them all ([`super::labelled`]).
        self.each(f, |text, index, edge| {
            if !edge.is_labelled {
                text.push_str(&Self::set(index, edge, "arp", "ipv4_addr"));
            }
        })?;
        writeln!(f, "  chain input {{\n    type filter hook input priority filter; policy accept;")?;
        self.each(f, |text, index, edge| {
            if !edge.is_labelled {
                let request = format!("    iifname \"{}\" arp operation request", edge.interface);
                let _ = writeln!(text, "{request} update @n{index}_arp {{ arp saddr ip }} accept");
                let _ = writeln!(text, "{request} counter drop");
            }
        })?;
        writeln!(f, "  }}\n}}")
    }

    /// The set of a network's hosts that are known.
    fn set(index: usize, edge: &Edge, ip: &str, addresses: &str) -> String {
        let most = edge.neighbours;
        format!(
            "  set n{index}_{ip} {{ type {addresses}; size {most}; flags dynamic,timeout; timeout {KNOWN}; }}\n"
        )
    }

    /// What a rule says of a sender that is to be answered: it is known, or there is room to know it. Else the rule does not hold.
    pub(super) fn known(index: usize, ip: &str) -> String {
        format!("update @n{index}_{ip} {{ {ip} saddr }} ")
    }

    /// As [`NEIGHBOURS`], of what comes from a network. Who asks becomes known; who answers, or looks whether an address is free, does not.
    pub(super) fn solicited(text: &mut String, index: usize, edge: &Edge) {
        let from = format!("    iifname \"{}\" icmpv6 type", edge.interface);
        let _ = writeln!(text, "{from} nd-neighbor-advert ip6 hoplimit 255 accept");
        let _ = writeln!(text, "{from} nd-neighbor-solicit ip6 hoplimit 255 ip6 saddr :: accept");
        let known = Self::known(index, "ip6");
        let _ = writeln!(text, "{from} nd-neighbor-solicit ip6 hoplimit 255 {known}accept");
    }

    /// Lines for each edge.
    pub(super) fn each(
        &self,
        f: &mut fmt::Formatter<'_>,
        line: impl Fn(&mut String, usize, &Edge),
    ) -> fmt::Result {
        let mut text = String::new();
        for (index, edge) in self.edges.iter().enumerate() {
            line(&mut text, index, edge);
        }
        f.write_str(&text)
    }

    /// Drops what comes from, or goes to, anybody but the interface's own network.
    pub(super) fn others(text: &mut String, index: usize, edge: &Edge, reason: Reason) {
        let counter = Self::counter(index, reason);
        let (way, end) = if reason == Reason::Own { ("oifname", "daddr") } else { ("iifname", "saddr") };
        for (protocol, ip, is_v4) in [("ipv4", "ip", true), ("ipv6", "ip6", false)] {
            let own = edge.addresses.iter().filter(|own| own.addr().is_ipv4() == is_v4);
            let own: String = own.map(|own| format!(" {ip} {end} != {}", own.trunc())).collect();
            let name = &edge.interface;
            let _ = writeln!(
                text,
                "    {way} \"{name}\" meta nfproto {protocol}{own} counter name {counter} drop"
            );
        }
    }

    /// An interface's addresses, each with the inner address of its family.
    fn pairs<'a>(&'a self, edge: &'a Edge) -> impl Iterator<Item = (IpNet, IpAddr)> + 'a {
        edge.addresses.iter().filter_map(|own| {
            let inner = self.inner.iter().find(|inner| inner.is_ipv4() == own.addr().is_ipv4())?;
            Some((*own, *inner))
        })
    }
}
