//! The rules of a labelled network, where its interface is: how many of those who ask for the server are known.

use super::ruleset::TABLE;
use super::text::KNOWN;
use crate::edges::NETWORK;
use levee_policy::site::Network;
use levee_policy::{LabelName, Site};
use std::fmt;

/// The rules of a labelled network.
#[derive(Debug)]
pub struct LabelledRules<'a> {
    network: &'a Network,
    most: u16,
}

impl<'a> LabelledRules<'a> {
    /// Of the network whose place in the site file stands behind [`NETWORK`]; `None` for what the site has not, or carries no labels.
    pub fn named(site: &'a Site, name: &LabelName) -> Option<Self> {
        let place: usize = name.as_str().strip_prefix(NETWORK)?.parse().ok()?;
        let network = site.networks().get(place).filter(|network| network.domain().is_some())?;
        Some(Self { network, most: site.neighbours(network) })
    }
}

impl fmt::Display for LabelledRules<'_> {
    /// The kernel's programs let nothing else in than ARP and how neighbours find each other (RFC 4861).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, most) = (self.network.interface(), self.most);
        let set = |addresses| {
            format!(
                "  set known {{ type {addresses}; size {most}; flags dynamic,timeout; timeout {KNOWN}; }}\n"
            )
        };
        let chain = |policy| {
            format!(
                "  chain input {{\n    type filter hook input priority filter; policy {policy};\n    iifname \"{name}\" "
            )
        };
        writeln!(f, "table arp {TABLE}\ndelete table arp {TABLE}\ntable arp {TABLE} {{")?;
        let request = "arp operation request";
        writeln!(
            f,
            "{}{}{request} update @known {{ arp saddr ip }} accept\n    iifname \"{name}\" {request} counter drop\n  }}\n}}",
            set("ipv4_addr"),
            chain("accept")
        )?;
        writeln!(f, "table ip6 {TABLE}\ndelete table ip6 {TABLE}\ntable ip6 {TABLE} {{")?;
        let solicit = "icmpv6 type nd-neighbor-solicit ip6 hoplimit 255";
        writeln!(
            f,
            "{}{}icmpv6 type nd-neighbor-advert ip6 hoplimit 255 accept\n    iifname \"{name}\" {solicit} ip6 saddr :: accept\n    \
             iifname \"{name}\" {solicit} update @known {{ ip6 saddr }} accept\n    counter drop\n  }}\n}}",
            set("ipv6_addr"),
            chain("drop")
        )
    }
}
