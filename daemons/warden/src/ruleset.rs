//! What may pass between a label's compartment and its single-level networks: the whole nftables ruleset of the
//! compartment's namespace, as text that `nft -f` takes.
//!
//! Everything that is not listed is dropped and counted. A listed service answers at the interface's own addresses,
//! which are translated to the service's inner address, so that hosts on the network need no route. Sessions reach
//! listed hosts under the interface's address (masquerade), for the same reason. Traffic of the tunnel is not
//! filtered again: the vault has checked every packet of it against its session's selectors.

use ipnet::IpNet;
use levee_policy::site::{Network, NetworkHost, Protocol};
use levee_policy::{InterfaceName, Label, Site};
use std::fmt::{self, Display, Write};
use std::net::IpAddr;

/// The TUN device of a compartment.
pub const TUNNEL: &str = "levee0";

/// The table's name; there is no other in the namespace.
pub const TABLE: &str = "levee";

/// What one label's namespace lets pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    /// Where services listen, at most one address of each family.
    pub inner: Vec<IpAddr>,
    /// Where sessions' own addresses come from.
    pub pools: Vec<IpNet>,
    /// The networks.
    pub edges: Vec<Edge>,
}

/// One interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// Its name.
    pub interface: InterfaceName,
    /// Its addresses with prefix lengths.
    pub addresses: Vec<IpNet>,
    /// Services that hosts on the network reach.
    pub services: Vec<(Protocol, u16)>,
    /// Hosts on the network that sessions reach.
    pub hosts: Vec<NetworkHost>,
    /// Its packets carry labels: what the label's namespace has is the end of a wire.
    pub is_labelled: bool,
}

impl Edge {
    /// What the site says of a network at a label.
    pub fn of(site: &Site, network: &Network, label: &Label) -> Self {
        Self {
            interface: network.interface().clone(),
            addresses: network.addresses().to_vec(),
            services: (network.services().iter())
                .filter_map(|name| site.service(name))
                .filter(|service| service.range().contains(label))
                .map(|service| (service.protocol(), service.port()))
                .collect(),
            hosts: network.hosts().to_vec(),
            is_labelled: network.domain().is_some(),
        }
    }
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// From the network, for nothing that the site lists.
    Service,
    /// From the network, for somewhere beyond the compartment.
    Through,
    /// From a session, to a host or port that the site does not list.
    Host,
    /// From a program in the compartment that answers nobody.
    Own,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Service, Self::Through, Self::Host, Self::Own];

    /// In words, for operators.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Service => "no listed service",
            Self::Through => "beyond the compartment",
            Self::Host => "no listed host",
            Self::Own => "a program of the compartment",
        }
    }
}

impl Ruleset {
    /// What the site says for a label.
    pub fn of(site: &Site, label: &Label) -> Self {
        let edges = site.networks_at(label).map(|network| Edge::of(site, network, label));
        Self {
            inner: site.server().inner_addresses().to_vec(),
            pools: site.session_pools(),
            edges: edges.collect(),
        }
    }

    /// The name of the counter of what was dropped at the interface at `index` for this reason.
    pub fn counter(index: usize, reason: Reason) -> String {
        let reason = match reason {
            Reason::Service => "service",
            Reason::Through => "through",
            Reason::Host => "host",
            Reason::Own => "own",
        };
        format!("n{index}_{reason}")
    }

    /// Lines for each edge.
    fn each(&self, f: &mut fmt::Formatter<'_>, line: impl Fn(&mut String, usize, &Edge)) -> fmt::Result {
        let mut text = String::new();
        for (index, edge) in self.edges.iter().enumerate() {
            line(&mut text, index, edge);
        }
        f.write_str(&text)
    }
}

/// The keyword for an address's family.
fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ip" } else { "ip6" }
}

/// Neighbours are found by ICMPv6 (RFC 4861), and only from the link itself: hence the hop limit.
const NEIGHBOURS: &str = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } ip6 hoplimit 255 accept";

impl Display for Ruleset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Naming the table before deleting it makes the deletion succeed where there is none; all is one transaction.
        writeln!(f, "table inet {TABLE}\ndelete table inet {TABLE}\ntable inet {TABLE} {{")?;
        self.each(f, |text, index, _| {
            for reason in Reason::ALL {
                let _ = writeln!(text, "  counter {} {{ }}", Self::counter(index, reason));
            }
        })?;

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

        writeln!(f, "  }}\n  chain input {{\n    type filter hook input priority filter; policy drop;")?;
        writeln!(f, "    iifname {{ \"lo\", \"{TUNNEL}\" }} accept")?;
        self.each(f, |text, index, edge| {
            let name = &edge.interface;
            let _ = writeln!(text, "    iifname \"{name}\" ct state established,related accept");
            let _ = writeln!(text, "    iifname \"{name}\" {NEIGHBOURS}");
            for (own, inner) in self.pairs(edge) {
                for (protocol, port) in &edge.services {
                    let (ip, net) = (family(inner), own.trunc());
                    let _ = writeln!(
                        text,
                        "    iifname \"{name}\" {ip} saddr {net} {ip} daddr {inner} {} dport {port} ct status dnat ct \
                         state new accept",
                        protocol.as_str()
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
            let _ = writeln!(text, "    oifname \"{name}\" ct state established,related accept");
            let _ = writeln!(text, "    oifname \"{name}\" {NEIGHBOURS}");
            let counter = Self::counter(index, Reason::Own);
            let _ = writeln!(text, "    oifname \"{name}\" counter name {counter} drop");
        })?;
        writeln!(f, "  }}\n}}")
    }
}

impl Ruleset {
    /// An interface's addresses, each with the inner address of its family.
    fn pairs<'a>(&'a self, edge: &'a Edge) -> impl Iterator<Item = (IpNet, IpAddr)> + 'a {
        edge.addresses.iter().filter_map(|own| {
            let inner = self.inner.iter().find(|inner| inner.is_ipv4() == own.addr().is_ipv4())?;
            Some((*own, *inner))
        })
    }
}
