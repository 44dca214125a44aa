//! The rules of a partition that has networks of its own, or links.
//!
//! By a link it speaks to the other end's address alone, and to who is reached through that. Else one that asks for address after address would fill a table of neighbours that
//! the machine has once, and others could speak to nobody.

use super::ruleset::{LinkEdge, Reason, Ruleset};
use crate::edges::Edge;
use ipnet::IpNet;
use levee_policy::site::NetworkHost;
use std::fmt::{self, Write};
use std::net::IpAddr;

use super::text::{NEIGHBOURS, family};

impl Ruleset {
    /// The chains of a partition.
    pub(super) fn partition(&self, f: &mut fmt::Formatter<'_>, links: &[LinkEdge]) -> fmt::Result {
        // In front of all else, since a connection that is known is known whatever interface a packet of it comes by.
        writeln!(f, "  chain origin {{\n    type filter hook prerouting priority raw; policy accept;")?;
        self.each(f, |text, index, edge| {
            let from = format!("iifname \"{}\" ", edge.interface);
            let _ = writeln!(text, "    {from}{NEIGHBOURS}");
            Self::others(text, index, edge, Reason::Service, &from);
        })?;
        self.each_link(f, links, |text, link, index| {
            let (name, ip) = (&link.interface, family(link.peer));
            let _ = writeln!(text, "    iifname \"{name}\" {NEIGHBOURS}");
            // What is forwarded to a network meets its chain of output no more.
            Self::optioned(text, index, &format!("iifname \"{name}\" "));
            for other in link.others() {
                let _ = writeln!(text, "    iifname \"{name}\" {ip} saddr {other} accept");
            }
            let _ = writeln!(
                text,
                "    iifname \"{name}\" counter name {} drop",
                Self::counter(index, Reason::Service)
            );
        })?;
        // Without it the kernel remembers no connections.
        if links.iter().any(LinkEdge::forwards) {
            self.translation(f, links)?;
        }
        self.own(f, links)?;
        self.forwarded(f, links)
    }

    /// Whom the partition's networks and links know under another address.
    fn translation(&self, f: &mut fmt::Formatter<'_>, links: &[LinkEdge]) -> fmt::Result {
        writeln!(
            f,
            "  }}\n  chain prerouting {{\n    type nat hook prerouting priority dstnat; policy accept;"
        )?;
        self.pairs_with(f, links, |text, edge, link| {
            let (name, ip, peer) = (&edge.interface, family(link.peer), link.peer);
            for own in own(edge, peer) {
                for (protocol, port) in &link.ports {
                    let (net, own, protocol) = (own.trunc(), own.addr(), protocol.as_str());
                    let _ = writeln!(
                        text,
                        "    iifname \"{name}\" {ip} saddr {net} {ip} daddr {own} {protocol} dport {port} dnat {ip} to {peer}"
                    );
                }
            }
        })?;
        writeln!(
            f,
            "  }}\n  chain postrouting {{\n    type nat hook postrouting priority srcnat; policy accept;"
        )?;
        self.pairs_with(f, links, |text, edge, link| {
            let (name, ip, peer) = (&edge.interface, family(link.peer), link.peer);
            let _ = writeln!(text, "    oifname \"{name}\" {ip} saddr {peer} masquerade");
        })
    }

    /// What the partition's programs hear and say.
    fn own(&self, f: &mut fmt::Formatter<'_>, links: &[LinkEdge]) -> fmt::Result {
        writeln!(f, "  }}\n  chain input {{\n    type filter hook input priority filter; policy drop;")?;
        writeln!(f, "    iifname \"lo\" accept")?;
        self.each(f, |text, index, edge| {
            let name = &edge.interface;
            Self::solicited(text, index, &format!("iifname \"{name}\" "));
            for own in &edge.addresses {
                let (ip, net, own) = (family(own.addr()), own.trunc(), own.addr());
                let to = format!("    iifname \"{name}\" {ip} saddr {net} {ip} daddr {own}");
                let _ = writeln!(text, "{to} ct state established,related accept");
                let known = Self::known(index, ip);
                for (protocol, port) in &edge.services {
                    let _ =
                        writeln!(text, "{to} {} dport {port} ct state new {known}accept", protocol.as_str());
                }
            }
            let counter = Self::counter(index, Reason::Service);
            let _ = writeln!(text, "    iifname \"{name}\" counter name {counter} drop");
        })?;
        self.each_link(f, links, |text, link, index| {
            let (name, ip) = (&link.interface, family(link.peer));
            let _ = writeln!(text, "    iifname \"{name}\" {NEIGHBOURS}");
            for other in link.others() {
                let own = link.own;
                let _ = writeln!(text, "    iifname \"{name}\" {ip} saddr {other} {ip} daddr {own} accept");
            }
            let _ = writeln!(
                text,
                "    iifname \"{name}\" counter name {} drop",
                Self::counter(index, Reason::Service)
            );
        })?;

        writeln!(f, "  }}\n  chain output {{\n    type filter hook output priority filter; policy drop;")?;
        writeln!(f, "    oifname \"lo\" accept")?;
        self.each(f, |text, index, edge| {
            let name = &edge.interface;
            let to = format!("oifname \"{name}\" ");
            let _ = writeln!(text, "    {to}{NEIGHBOURS}");
            Self::others(text, index, edge, Reason::Own, &to);
            for own in &edge.addresses {
                let (ip, own) = (family(own.addr()), own.addr());
                let from = format!("    oifname \"{name}\" {ip} saddr {own}");
                let _ = writeln!(text, "{from} ct state established,related accept");
                for NetworkHost { address, protocol, port } in on(edge, &edge.hosts, own) {
                    let protocol = protocol.as_str();
                    let _ = writeln!(
                        text,
                        "{from} {ip} daddr {address} {protocol} dport {port} ct state new accept"
                    );
                }
            }
            let counter = Self::counter(index, Reason::Own);
            let _ = writeln!(text, "    oifname \"{name}\" counter name {counter} drop");
        })?;
        self.each_link(f, links, |text, link, index| {
            let (name, ip) = (&link.interface, family(link.peer));
            let _ = writeln!(text, "    oifname \"{name}\" {NEIGHBOURS}");
            for other in link.others() {
                let own = link.own;
                let _ = writeln!(text, "    oifname \"{name}\" {ip} saddr {own} {ip} daddr {other} accept");
            }
            let _ = writeln!(
                text,
                "    oifname \"{name}\" counter name {} drop",
                Self::counter(index, Reason::Own)
            );
        })
    }

    /// What passes through the partition without its programs.
    fn forwarded(&self, f: &mut fmt::Formatter<'_>, links: &[LinkEdge]) -> fmt::Result {
        writeln!(f, "  }}\n  chain forward {{\n    type filter hook forward priority filter; policy drop;")?;
        self.pairs_with(f, links, |text, edge, link| {
            let (card, wire, ip, peer) = (&edge.interface, &link.interface, family(link.peer), link.peer);
            let out = format!("    iifname \"{wire}\" oifname \"{card}\" {ip} saddr {peer}");
            let inwards = format!("    iifname \"{card}\" oifname \"{wire}\" {ip} daddr {peer}");
            for NetworkHost { address, protocol, port } in on(edge, &link.hosts, peer) {
                let protocol = protocol.as_str();
                let _ = writeln!(
                    text,
                    "{out} {ip} daddr {address} {protocol} dport {port} ct direction original ct state new,established accept"
                );
            }
            let _ = writeln!(text, "{inwards} ct direction reply ct state established,related accept");
            for own in own(edge, peer) {
                for (protocol, port) in &link.ports {
                    let (net, protocol) = (own.trunc(), protocol.as_str());
                    let _ = writeln!(
                        text,
                        "{inwards} {ip} saddr {net} {protocol} dport {port} ct status dnat ct direction original ct state \
                         new,established accept"
                    );
                }
            }
            let _ = writeln!(text, "{out} ct direction reply ct state established,related accept");
        })?;
        self.each(f, |text, index, edge| {
            let counter = Self::counter(index, Reason::Through);
            let _ = writeln!(text, "    iifname \"{}\" counter name {counter} drop", edge.interface);
        })?;
        self.each_link(f, links, |text, link, index| {
            let counter = Self::counter(index, Reason::Host);
            let _ = writeln!(text, "    iifname \"{}\" counter name {counter} drop", link.interface);
        })?;
        writeln!(f, "  }}")
    }

    /// Lines for each link; each is told the place of its counters.
    fn each_link(
        &self,
        f: &mut fmt::Formatter<'_>,
        links: &[LinkEdge],
        line: impl Fn(&mut String, &LinkEdge, usize),
    ) -> fmt::Result {
        let mut text = String::new();
        for (index, link) in (self.edges.len()..).zip(links) {
            line(&mut text, link, index);
        }
        f.write_str(&text)
    }

    /// Lines for each link that is forwarded for, with each network.
    fn pairs_with(
        &self,
        f: &mut fmt::Formatter<'_>,
        links: &[LinkEdge],
        line: impl Fn(&mut String, &Edge, &LinkEdge),
    ) -> fmt::Result {
        let mut text = String::new();
        for link in links.iter().filter(|link| link.forwards()) {
            self.edges.iter().for_each(|edge| line(&mut text, edge, link));
        }
        f.write_str(&text)
    }
}

/// An interface's addresses of a family.
fn own(edge: &Edge, like: IpAddr) -> impl Iterator<Item = &IpNet> {
    edge.addresses.iter().filter(move |own| own.addr().is_ipv4() == like.is_ipv4())
}

/// Those of these hosts that are on the network, of a family.
fn on<'a>(edge: &'a Edge, hosts: &'a [NetworkHost], like: IpAddr) -> impl Iterator<Item = &'a NetworkHost> {
    hosts.iter().filter(move |host| own(edge, like).any(|own| own.contains(&host.address)))
}
