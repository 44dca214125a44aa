//! The rules of a one-way channel's wire: one way the channel's datagrams pass, the other way nothing, whatever its protocol.

use super::text::family;
use crate::edges::CHANNEL;
use levee_policy::site::Channel;
use levee_policy::{LabelName, Site};
use std::fmt;

/// The rules of a channel, and of its two counters the names: of what came, and of what would have left.
#[derive(Debug)]
pub struct WireRules<'a>(&'a Channel);

/// The counters, and what each is of.
const COUNTERS: [(&str, &str); 2] =
    [("in", "came in and is none of the channel's"), ("out", "would have left and is none of the channel's")];

impl<'a> WireRules<'a> {
    /// Of the channel whose name stands behind [`CHANNEL`]; `None` for what the site has not, or has no wire.
    pub fn named(site: &'a Site, name: &LabelName) -> Option<Self> {
        let name = name.as_str().strip_prefix(CHANNEL)?;
        let channel = site.channels().iter().find(|channel| channel.name().as_str() == name)?;
        channel.wire().map(|_| Self(channel))
    }

    /// As [`super::Ruleset::counters`].
    pub fn counters(&self) -> impl Iterator<Item = (String, String)> {
        let name = self.0.wire().map_or("", |wire| wire.interface().as_str());
        COUNTERS
            .into_iter()
            .map(move |(counter, what)| (counter.to_owned(), format!("dropped at {name}: {what}")))
    }
}

impl fmt::Display for WireRules<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(wire) = self.0.wire() else { return Ok(()) };
        let (name, ip, own, peer) =
            (wire.interface(), family(wire.peer()), wire.address().addr(), wire.peer());
        let (from, to) = if self.0.from().is_some() { (own, peer) } else { (peer, own) };
        let port = wire.port();
        let datagrams = format!("{ip} saddr {from} {ip} daddr {to} udp sport {port} udp dport {port} accept");
        let (out, inwards) =
            if self.0.from().is_some() { (datagrams.as_str(), "") } else { ("", datagrams.as_str()) };
        let table = super::ruleset::TABLE;
        // At the interface itself, in front of ARP and everything else (nft(8), netdev: ingress; egress since Linux 5.16).
        writeln!(f, "table netdev {table}\ndelete table netdev {table}\ntable netdev {table} {{")?;
        COUNTERS.iter().try_for_each(|(counter, _)| writeln!(f, "  counter {counter} {{ }}"))?;
        for (hook, lets, [counter]) in [("ingress", inwards, ["in"]), ("egress", out, ["out"])] {
            writeln!(
                f,
                "  chain {hook} {{\n    type filter hook {hook} device \"{name}\" priority filter; policy drop;\n    {lets}\n    \
                 counter name {counter} drop\n  }}"
            )?;
        }
        // And once more behind that, by address.
        writeln!(f, "}}\ntable inet {table}\ndelete table inet {table}\ntable inet {table} {{")?;
        for (hook, end, lets) in
            [("input", "iifname", inwards), ("output", "oifname", out), ("forward", "", "")]
        {
            let lets = if lets.is_empty() { String::new() } else { format!("    {end} \"{name}\" {lets}\n") };
            writeln!(
                f,
                "  chain {hook} {{\n    type filter hook {hook} priority filter; policy drop;\n{lets}  }}"
            )?;
        }
        writeln!(f, "}}")
    }
}
