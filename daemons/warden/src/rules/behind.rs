//! The rules of a session's network while a machine is behind the workstation.

use crate::behind::Behind;
use crate::edges::TUNNEL;

use super::ruleset::TABLE;
use super::text::{NEIGHBOURS, family};
use std::net::{IpAddr, Ipv4Addr};

/// As text that `nft -f` takes.
///
/// The machine is looked for, and looks for the workstation, under its own address alone: who spoke under many would fill a table of
/// neighbours that the workstation has once, and its way to the server would be in it no more. (By IPv6 also under link-local ones, slowly.)
///
/// The machine, under its own address, begins connections by the tunnel, and nobody begins one to it: neither the session's programs nor
/// the server. What it reaches is what the session's selectors have: the vault drops the rest. It reaches nothing of the workstation.
pub(super) fn text(behind: &Behind) -> String {
    let (name, ip, machine) = (&behind.interface, family(behind.machine), behind.machine);
    let out = format!("iifname \"{name}\" oifname \"{TUNNEL}\" {ip} saddr {machine}");
    let back = format!("iifname \"{TUNNEL}\" oifname \"{name}\" {ip} daddr {machine}");
    let (asks, near) = match machine {
        IpAddr::V4(machine) => (machine, String::new()),
        IpAddr::V6(_) => (
            Ipv4Addr::UNSPECIFIED,
            format!(
                "iifname \"{name}\" ip6 saddr fe80::/10 limit rate 5/second burst 5 packets {NEIGHBOURS}"
            ),
        ),
    };
    format!(
        "table arp {TABLE} {{
  chain input {{
    type filter hook input priority filter; policy accept;
    iifname \"{name}\" arp saddr ip != {asks} drop
  }}
}}
table inet {TABLE} {{
  chain origin {{
    type filter hook prerouting priority raw; policy accept;
    {near}
    iifname \"{name}\" {ip} saddr {machine} accept
    iifname \"{name}\" drop
  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname \"{TUNNEL}\" {ip} saddr {machine} masquerade
  }}
  chain input {{
    type filter hook input priority filter; policy drop;
    iifname {{ \"lo\", \"{TUNNEL}\" }} accept
    iifname \"{name}\" {NEIGHBOURS}
  }}
  chain forward {{
    type filter hook forward priority filter; policy drop;
    {out} tcp flags syn tcp option maxseg size set rt mtu
    {out} ct direction original ct state new,established,related accept
    {back} ct direction reply ct state established,related accept
  }}
  chain output {{
    type filter hook output priority filter; policy drop;
    oifname {{ \"lo\", \"{TUNNEL}\" }} accept
    oifname \"{name}\" {NEIGHBOURS}
    oifname \"{name}\" {ip} daddr {machine} ct state related accept
  }}
}}
"
    )
}
