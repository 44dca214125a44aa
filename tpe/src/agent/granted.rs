//! What the server gives a session, looked at before anything is made of it: it is to be at the label that was asked for, and what it
//! may reach is to be something that a session can reach. The vault then lets nothing else pass, protocol and port included.

use levee_ipc::client::{Opened, Reached};
use levee_ipc::tpe::{MAX_REACHED, Reachable};
use levee_ipc::vault::{Selector, SessionRecord};
use levee_policy::site::Cipher;
use levee_policy::{LabelName, ProtectionName};
use levee_session::SessionId;
use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

/// Inner addresses of a session at most: one of each family.
const MOST_INNER: usize = 2;
/// What a session may reach at one server at most.
const MOST: usize = 1_024;
/// TCP and UDP: what a service of a site can be.
const PROTOCOLS: [u8; 2] = [6, 17];

/// Whether the server gave what was asked for, and nothing that no session has.
///
/// # Errors
/// What is wrong with it, in words for a person.
pub fn check(asked: &LabelName, protection: Option<&ProtectionName>, opened: &Opened) -> Result<(), String> {
    if words(asked) != words(&opened.label) {
        return Err(format!("the server opened {}, and {asked} was asked for", opened.label));
    }
    if let Some(name) = protection.filter(|name| !opened.protected.names.contains(name)) {
        return Err(format!("the server opened {asked} without protection {name}, which was asked for"));
    }
    let families: BTreeSet<bool> = opened.inner.iter().map(IpAddr::is_ipv4).collect();
    if opened.inner.is_empty() || opened.inner.len() > MOST_INNER || families.len() != opened.inner.len() {
        return Err("the server gave the session no inner address, or too many".into());
    }
    if let Some(wrong) = opened.inner.iter().find(|address| !is_host(**address)) {
        return Err(format!("the server gave the session {wrong}, which is no host's address"));
    }
    let mut elsewhere = BTreeSet::new();
    for all in std::iter::once(&opened.reach).chain(opened.others.iter().map(|other| &other.reach)) {
        if all.len() > MOST {
            return Err(format!("the server lets the session reach more than {MOST} things"));
        }
        let sound = |reached: &Reached| {
            PROTOCOLS.contains(&reached.protocol)
                && reached.port > 0
                && is_host(reached.address)
                && !opened.inner.contains(&reached.address)
        };
        if let Some(Reached { address, protocol, port }) = all.iter().find(|reached| !sound(reached)) {
            return Err(format!(
                "the server lets the session reach port {port} of {address} by protocol {protocol}"
            ));
        }
        // A packet's destination says which server it goes to.
        let here: BTreeSet<IpAddr> = all.iter().map(|reached| reached.address).collect();
        if let Some(twice) = here.iter().find(|address| elsewhere.contains(*address)) {
            return Err(format!("two servers answer at {twice}"));
        }
        elsewhere.extend(here);
    }
    Ok(())
}

/// A label's parts, however they were typed: in any case, categories in any order.
fn words(label: &LabelName) -> BTreeSet<String> {
    let parts = label.as_str().split(['/', ',', ' ']).filter(|part| !part.is_empty());
    parts.map(str::to_uppercase).collect()
}

/// Whether one host can have this address in a network.
fn is_host(address: IpAddr) -> bool {
    let special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    !special
        && match address {
            IpAddr::V4(v4) => !v4.is_broadcast() && !v4.is_link_local(),
            IpAddr::V6(v6) => !v6.is_unicast_link_local() && v6.to_ipv4_mapped().is_none(),
        }
}

/// What a session reaches, as its person is told, and how much more there is.
pub fn reachable(opened: &Opened) -> (Vec<Reachable>, usize) {
    let here = (&opened.services, &opened.names, &opened.reach);
    let elsewhere = opened.others.iter().map(|other| (&other.services, &other.names, &other.reach));
    let all = std::iter::once(here).chain(elsewhere).flat_map(|(services, names, reach)| {
        reach.iter().map(move |&Reached { address, protocol, port }| {
            let is_here = services.contains(&address);
            let mut known = opened.offered.iter().filter(|_| is_here);
            Reachable {
                service: known
                    .find(|offered| (offered.protocol, offered.port) == (protocol, port))
                    .map(|offered| offered.service.clone()),
                // The first of the addresses has the names.
                host: names.first().filter(|_| services.first() == Some(&address)).cloned(),
                protocol,
                port,
                address,
            }
        })
    });
    let mut all: Vec<Reachable> = all.collect();
    let more = all.len().saturating_sub(MAX_REACHED);
    all.truncate(MAX_REACHED);
    (all, more)
}

/// The addresses at which it is: each once.
pub fn addresses(reach: &[Reached]) -> Vec<IpNet> {
    let all: BTreeSet<IpAddr> = reach.iter().map(|reached| reached.address).collect();
    all.into_iter().map(IpNet::from).collect()
}

/// The session as the local vault is to know it: from any port of its own to exactly what it may reach.
pub fn record(
    id: SessionId,
    inner: &[IpAddr],
    reach: &[Reached],
    ciphers: Option<Vec<Cipher>>,
) -> SessionRecord {
    let from = |inner: IpAddr| {
        let same = reach.iter().filter(move |reached| reached.address.is_ipv4() == inner.is_ipv4());
        same.map(move |reached| Selector {
            local: inner.into(),
            remote: reached.address.into(),
            protocol: Some(reached.protocol),
            local_ports: (0, u16::MAX),
            remote_ports: (reached.port, reached.port),
        })
    };
    let selectors = inner.iter().copied().flat_map(from).collect();
    // The vault here has one socket alone, which is within the second tunnel where there is one.
    SessionRecord { id, inner: inner.to_vec(), selectors, ciphers, layered: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use levee_ipc::client::{Offered, OtherServer};
    use levee_ipc::vault::Carriage;
    use levee_policy::site::Protected;
    use std::time::Duration;

    fn reached(address: &str, protocol: u8, port: u16) -> Reached {
        Reached { address: address.parse().unwrap(), protocol, port }
    }

    #[test]
    fn a_person_is_told_by_name_what_their_session_reaches_and_never_more_than_there_is_room_for() {
        let mut opened = opened();
        opened.names.push("www.example".parse().unwrap());
        // Another host's port 80 is not the site's service.
        opened.reach.push(reached("10.9.0.9", 6, 80));
        let (all, more) = reachable(&opened);
        let said: Vec<String> = all
            .iter()
            .map(|one| {
                let name = one.service.as_ref().map_or("-", |service| service.as_str());
                let host = one.host.as_ref().map_or("-", |host| host.as_str());
                format!("{name} {host} {} {} {}", one.protocol, one.port, one.address)
            })
            .collect();
        assert_eq!(
            said,
            [
                "wiki www.example 6 80 10.80.0.1",
                "- www.example 17 7 10.80.0.1",
                "- - 6 80 fd00:80::1",
                "- - 6 80 10.9.0.9",
                "wiki - 6 80 10.80.0.2",
            ]
        );
        assert_eq!(more, 0);
        opened.services.push("fd00:80::1".parse().unwrap());
        assert!(reachable(&opened).0[2].service.is_some());
        opened.reach = (1..=200).map(|port| reached("10.80.0.1", 6, port)).collect();
        let (all, more) = reachable(&opened);
        assert_eq!((all.len(), more), (MAX_REACHED, 201 - MAX_REACHED));
    }

    #[test]
    fn a_session_without_the_protection_that_was_asked_for_is_not_taken() {
        let mut opened = opened();
        let (label, strong) = (opened.label.clone(), "strong".parse().unwrap());
        assert!(check(&label, Some(&strong), &opened).unwrap_err().contains("without protection strong"));
        opened.protected.names.push(strong.clone());
        assert_eq!(check(&label, Some(&strong), &opened), Ok(()));
        // A service may have asked for it.
        assert_eq!(check(&label, None, &opened), Ok(()));
    }

    fn opened() -> Opened {
        Opened {
            session: SessionId::from_random([1; 16]),
            label: "SECRET//NATO,MED".parse().unwrap(),
            colour: None,
            inner: vec!["10.81.0.5".parse().unwrap(), "fd00:81::5".parse().unwrap()],
            services: vec!["10.80.0.1".parse().unwrap()],
            names: Vec::new(),
            reach: vec![
                reached("10.80.0.1", 6, 80),
                reached("10.80.0.1", 17, 7),
                reached("fd00:80::1", 6, 80),
            ],
            offered: vec![Offered { service: "wiki".parse().unwrap(), protocol: 6, port: 80 }],
            mtu: 1_400,
            carriage: Carriage::Each,
            protected: Protected::default(),
            costs: Err(levee_prices::Unpriced::Absent),
            tunnel_port: 4_500,
            others: vec![OtherServer {
                name: "other.example".parse().unwrap(),
                tunnel: "192.0.2.1:4500".parse().unwrap(),
                services: vec!["10.80.0.2".parse().unwrap()],
                names: Vec::new(),
                reach: vec![reached("10.80.0.2", 6, 80)],
            }],
            grace: Duration::from_secs(30),
            passes: Vec::new(),
        }
    }

    fn checked(asked: &str, change: impl FnOnce(&mut Opened)) -> Result<(), String> {
        let mut opened = opened();
        change(&mut opened);
        check(&asked.parse().unwrap(), None, &opened)
    }

    #[test]
    fn the_label_that_was_asked_for_is_taken_however_it_was_typed_and_no_other() {
        for asked in ["SECRET//NATO,MED", "SECRET//MED,NATO", "secret//nato,med"] {
            assert_eq!(checked(asked, |_| {}), Ok(()), "{asked}");
        }
        for asked in ["SECRET", "SECRET//NATO", "CONFIDENTIAL//NATO,MED", "SECRET//NATO,MED,CRYPTO"] {
            assert!(checked(asked, |_| {}).is_err(), "{asked}");
        }
    }

    #[test]
    fn what_no_session_can_have_is_not_taken() {
        let asked = "SECRET//NATO,MED";
        let first = |change: fn(&mut Reached)| move |opened: &mut Opened| change(&mut opened.reach[0]);
        for (change, why) in [
            (first(|reached| reached.protocol = 1), "another protocol"),
            (first(|reached| reached.protocol = 0), "none"),
            (first(|reached| reached.port = 0), "no port"),
            (first(|reached| reached.address = "0.0.0.0".parse().unwrap()), "anywhere"),
            (first(|reached| reached.address = "127.0.0.1".parse().unwrap()), "the workstation itself"),
            (first(|reached| reached.address = "169.254.169.254".parse().unwrap()), "the host's own link"),
            (first(|reached| reached.address = "224.0.0.1".parse().unwrap()), "many"),
            (
                first(|reached| reached.address = "::ffff:10.0.0.1".parse().unwrap()),
                "one family as the other",
            ),
            (first(|reached| reached.address = "10.81.0.5".parse().unwrap()), "its own address"),
        ] {
            assert!(checked(asked, change).is_err(), "{why}");
        }
        assert!(checked(asked, |opened| opened.inner.clear()).is_err());
        assert!(checked(asked, |opened| opened.inner[1] = "10.81.0.6".parse().unwrap()).is_err());
        assert!(checked(asked, |opened| opened.inner[0] = "127.0.0.1".parse().unwrap()).is_err());
        assert!(checked(asked, |opened| opened.others[0].reach[0].port = 0).is_err());
        let same = |opened: &mut Opened| opened.others[0].reach[0].address = "10.80.0.1".parse().unwrap();
        assert!(checked(asked, same).is_err(), "one address at two servers");
        let many = |opened: &mut Opened| opened.reach = vec![reached("10.80.0.1", 6, 80); MOST + 1];
        assert!(checked(asked, many).is_err());
    }

    #[test]
    fn the_vault_is_told_protocol_and_port_of_each_thing_and_no_more() {
        let Opened { session, inner, reach, .. } = opened();
        let record = record(session, &inner, &reach, None);
        let shown = record.selectors.iter().map(|s| {
            assert_eq!(s.local_ports, (0, u16::MAX));
            format!("{} {} {:?} {:?}", s.local, s.remote, s.protocol, s.remote_ports)
        });
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                "10.81.0.5/32 10.80.0.1/32 Some(6) (80, 80)",
                "10.81.0.5/32 10.80.0.1/32 Some(17) (7, 7)",
                "fd00:81::5/128 fd00:80::1/128 Some(6) (80, 80)",
            ]
        );
        assert_eq!(addresses(&reach).len(), 2);
    }
}
