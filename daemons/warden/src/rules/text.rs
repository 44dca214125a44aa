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

/// How many connections to hosts of a network one session may begin. All sessions of a label leave by the 64,512 ports of one address, of which Linux
/// keeps each for up to two minutes when nothing more is said (nf_conntrack-sysctl.rst); and the table in which they are has 262,144 entries on a large
/// host. It goes by what is begun and not by what there is, since what is left of one session would count against whoever has its address next. What is
/// not answered is new for as long as it goes on; its first packet alone is not confirmed yet.
const OF_ONE_SESSION: &str = "50/second burst 4096 packets";
/// How many flows of UDP all hosts of all networks of a label may begin in a second, and how many of them at once: Linux keeps one that was answered for two
/// minutes, and gives none of these up for another. So hosts of up to ten networks have fewer than 160,000 of the 262,144, and those of one network their part. Of TCP the table
/// keeps what a service has; what is half open, or over, gives way.
const OF_HOSTS: [u32; 2] = [1_000, 32_768];
/// However many networks there are, those of one may begin so many in a second; those of more than twenty can then fill the table together.
const OF_ONE_NETWORK: u32 = 100;
/// Nobody needs longer until all of that is there again.
const FORGOTTEN: &str = "2m";

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
    /// The chains of a label's compartment. Where a packet comes from, or goes to, is looked up once in each place, and its interface's own chain
    /// has the rest: each rule that it meets costs a part of a hundred of what the packet does.
    fn compartment(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In front of all else, since a connection that is known is known whatever interface a packet of it comes by. IPv6 has no other
        // look at where a sender belongs.
        self.by_interface(f, "origin", |text, index, edge| {
            let _ = writeln!(text, "    meta nfproto ipv6 {NEIGHBOURS}");
            Self::others(text, index, edge, Reason::Service, "");
        })?;
        self.by_interface(f, "input", |text, index, edge| {
            let _ = writeln!(text, "    ct state established,related accept");
            let part = |all: u32| all / u32::try_from(self.edges.len()).unwrap_or(u32::MAX).max(1);
            let [rate, burst] = OF_HOSTS.map(|all| part(all).max(OF_ONE_NETWORK));
            let _ = writeln!(
                text,
                "    meta l4proto udp ct status & (confirmed | dnat) == dnat ct state new limit rate over {rate}/second burst {burst} packets counter name {} drop",
                Self::counter(index, Reason::Crowd)
            );
            Self::solicited(text, index, "");
            for (own, inner) in self.pairs(edge) {
                for (protocol, port) in &edge.services {
                    let (ip, net) = (family(inner), own.trunc());
                    let _ = writeln!(
                        text,
                        "    {ip} saddr {net} {ip} daddr {inner} {} dport {port} ct status dnat ct state new {}accept",
                        protocol.as_str(),
                        Self::known(index, ip)
                    );
                }
            }
            let _ = writeln!(text, "    counter name {} drop", Self::counter(index, Reason::Service));
        })?;
        self.by_interface(f, "output", |text, index, edge| {
            let _ = writeln!(text, "    meta nfproto ipv6 {NEIGHBOURS}");
            Self::others(text, index, edge, Reason::Own, "");
            let _ = writeln!(text, "    ct state established,related accept");
            let _ = writeln!(text, "    counter name {} drop", Self::counter(index, Reason::Own));
        })?;
        // Connections of sessions with services need no tracking, nor does what the compartment says to itself: the vault's selectors have
        // decided, or nobody needs to, nothing of them is translated, and hosts on the network would find the table full that others fill.
        writeln!(f, "  chain loopback {{\n    notrack accept\n  }}")?;
        for (chain, end) in [("from_sessions", "daddr"), ("to_sessions", "saddr")] {
            writeln!(f, "  chain {chain} {{")?;
            for inner in &self.inner {
                writeln!(f, "    {} {end} {inner} notrack", family(*inner))?;
            }
            writeln!(f, "  }}")?;
        }
        writeln!(f, "  chain origin {{\n    type filter hook prerouting priority raw; policy accept;")?;
        self.look_up(f, "iifname", ["goto loopback", "goto from_sessions"], Some("origin"))?;
        writeln!(f, "  }}\n  chain untracked {{\n    type filter hook output priority raw; policy accept;")?;
        self.look_up(f, "oifname", ["goto loopback", "goto to_sessions"], None)?;
        writeln!(f, "  }}\n  chain input {{\n    type filter hook input priority filter; policy drop;")?;
        self.look_up(f, "iifname", ["accept", "accept"], Some("input"))?;
        writeln!(f, "  }}\n  chain output {{\n    type filter hook output priority filter; policy drop;")?;
        self.look_up(f, "oifname", ["accept", "accept"], Some("output"))?;
        writeln!(f, "  }}")?;
        self.translated(f)?;
        self.forwarded_to_hosts(f)
    }

    /// Each interface's own chain of what stands for its packets at one place.
    fn by_interface(
        &self,
        f: &mut fmt::Formatter<'_>,
        place: &str,
        rules: impl Fn(&mut String, usize, &Edge),
    ) -> fmt::Result {
        self.each(f, |text, index, edge| {
            let _ = writeln!(text, "  chain n{index}_{place} {{");
            rules(text, index, edge);
            text.push_str("  }\n");
        })
    }

    /// A rule that looks up what becomes of a packet by its interface: the loopback's and the tunnel's, and where a place is named each network's,
    /// which go to their chains there. What has another interface goes on to the next rule.
    fn look_up(
        &self,
        f: &mut fmt::Formatter<'_>,
        way: &str,
        [loopback, tunnel]: [&str; 2],
        place: Option<&str>,
    ) -> fmt::Result {
        write!(f, "    {way} vmap {{ \"lo\" : {loopback}, \"{TUNNEL}\" : {tunnel}")?;
        for (place, (index, edge)) in
            place.iter().flat_map(|place| self.edges.iter().enumerate().map(move |edge| (place, edge)))
        {
            write!(f, ", \"{}\" : goto n{index}_{place}", edge.interface)?;
        }
        writeln!(f, " }}")
    }

    /// Whom networks and sessions know under another address.
    fn translated(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  chain prerouting {{\n    type nat hook prerouting priority dstnat; policy accept;")?;
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
        writeln!(f, "  }}")
    }

    /// What passes between sessions and hosts.
    fn forwarded_to_hosts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.each(f, |text, index, _| {
            for (ip, addresses) in [("ip", "ipv4_addr"), ("ip6", "ipv6_addr")] {
                let _ = writeln!(
                    text,
                    "  set n{index}_of_{ip} {{ type {addresses}; size 65535; flags dynamic,timeout; timeout {FORGOTTEN}; }}"
                );
            }
        })?;
        writeln!(f, "  chain forward {{\n    type filter hook forward priority filter; policy drop;")?;
        self.each(f, |text, index, edge| {
            let (name, many) = (&edge.interface, Self::counter(index, Reason::Many));
            for ip in ["ip", "ip6"] {
                let _ = writeln!(
                    text,
                    "    iifname \"{TUNNEL}\" oifname \"{name}\" ct state new ct status & confirmed == 0 update @n{index}_of_{ip} {{ {ip} saddr limit rate over \
                     {OF_ONE_SESSION} }} counter name {many} drop"
                );
            }
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
        writeln!(f, "  }}")
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

    /// As [`NEIGHBOURS`], of what comes from a network; `which` says so, in a chain that others' packets meet too. Who asks becomes known; who answers, or looks whether an address is free, does not.
    pub(super) fn solicited(text: &mut String, index: usize, which: &str) {
        let from = format!("    {which}icmpv6 type");
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

    /// Drops what comes from, or goes to, anybody but the interface's own network, and what has options. `which` says so of a packet, in a
    /// chain that others' meet too.
    pub(super) fn others(text: &mut String, index: usize, edge: &Edge, reason: Reason, which: &str) {
        let counter = Self::counter(index, reason);
        let end = if reason == Reason::Own { "daddr" } else { "saddr" };
        for (protocol, ip, is_v4) in [("ipv4", "ip", true), ("ipv6", "ip6", false)] {
            let own = edge.addresses.iter().filter(|own| own.addr().is_ipv4() == is_v4);
            let own: String = own.map(|own| format!(" {ip} {end} != {}", own.trunc())).collect();
            let _ = writeln!(text, "    {which}meta nfproto {protocol}{own} counter name {counter} drop");
        }
        Self::optioned(text, index, which);
    }

    /// Drops what has options, one of which may be a label: a router would read it, and an answer repeats it.
    pub(super) fn optioned(text: &mut String, index: usize, which: &str) {
        let counter = Self::counter(index, Reason::Options);
        for has in ["ip hdrlength > 5", "exthdr hbh exists"] {
            let _ = writeln!(text, "    {which}{has} counter name {counter} drop");
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
