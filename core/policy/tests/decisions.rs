//! Decisions: what is granted, what is denied and why, and what is to be audited.

use levee_policy::audit::{Action, Verdict};
use levee_policy::decision::{Carry, Direction};
use levee_policy::site::{Destination, Protocol};
use levee_policy::{DenialKind, HostName, Label, LabelName, ServiceName, Site, UserName, Who};

/// Three levels, two categories, integrity, and every kind of thing that a site can have.
const SITE: &str = r#"
[site]
name = "decide"
[labels]
levels = ["LOW", "MID", "HIGH"]
categories = ["A", "B"]
integrity-levels = ["DIRTY", "CLEAN"]
[server]
name = "server.example"
addresses = ["192.0.2.1"]
inner-address = ["10.80.0.1", "fd00::1"]
inner-pool = ["10.80.1.0/24", "fd00:1::/64"]
[[user]]
name = "ada"
clearance = "LOW@CLEAN..HIGH//A,B@DIRTY"
export = "LOW@CLEAN..MID@DIRTY"
[[user]]
name = "mia"
clearance = "LOW@CLEAN..MID//A@DIRTY"
[[host]]
name = "ws1"
accreditation = "LOW@CLEAN..HIGH//A,B@DIRTY"
[[host]]
name = "ws2"
accreditation = "LOW@CLEAN..MID//A,B@DIRTY"
[[service]]
name = "web"
port = 80
protocol = "tcp"
range = "LOW@CLEAN..MID//A,B@DIRTY"
mode = "direct"
program = "nginx"
[[service]]
name = "log"
port = 514
protocol = "udp"
range = "MID@CLEAN..MID//A,B@DIRTY"
mode = "direct"
command = ["/usr/sbin/syslogd", "-n"]
[[network]]
interface = "ship0"
label = "HIGH//A@DIRTY"
address = "192.168.7.1/24"
hosts = [{ address = "192.168.7.9", port = 443, protocol = "tcp" }]
"#;

fn site() -> Site {
    Site::parse(SITE).unwrap()
}

fn all_labels(site: &Site) -> Vec<Label> {
    site.vocabulary().parse_range("LOW@CLEAN..HIGH//A,B@DIRTY").unwrap().labels(1_000).unwrap().collect()
}

#[test]
fn reading_needs_dominance_at_every_pair_of_labels() {
    let site = site();
    let labels = all_labels(&site);
    assert_eq!(labels.len(), 3 * 4 * 2);
    for subject in &labels {
        for object in &labels {
            let (c, i) = (
                subject.confidentiality.dominates(&object.confidentiality),
                object.integrity.dominates(&subject.integrity),
            );
            let read = site.decide_read(Who::default(), subject, object);
            assert_eq!(read.is_ok(), c && i, "{subject:?} reads {object:?}");
            match read {
                Ok(grant) => {
                    assert_eq!((grant.action().subject(), grant.action().object()), (subject, object))
                }
                Err(denial) => assert_eq!(denial.kind(), DenialKind::NotDominated),
            }
        }
    }
}

#[test]
fn a_session_opens_exactly_where_clearance_accreditation_and_something_to_reach_meet() {
    let site = site();
    for user in site.users() {
        for host in site.hosts() {
            let mut granted = Vec::new();
            for label in all_labels(&site) {
                let name = site.label_name(&label).unwrap();
                let wanted = if !user.clearance().contains(&label) {
                    Err(DenialKind::NotCleared)
                } else if !host.accreditation().contains(&label) {
                    Err(DenialKind::NotAccredited)
                } else if site.services_at(&label).count() + site.networks_at(&label).count() == 0 {
                    Err(DenialKind::NothingThere)
                } else {
                    granted.push(name.clone());
                    Ok(())
                };
                let found = site.decide_session(user.name(), host.name(), &name);
                assert_eq!(found.map(|_| ()).map_err(|denial| denial.kind()), wanted, "{name}");
            }
            assert!(!granted.is_empty());
            assert_eq!(site.session_labels(user.name(), host.name(), 1_000), Some(granted));
        }
    }
    assert_eq!(site.session_labels(&"ada".parse().unwrap(), &"ws1".parse().unwrap(), 5), None);
}

#[test]
fn who_and_what_the_site_does_not_know_is_denied() {
    let site = site();
    let ask = |user: &str, host: &str, label: &str| {
        let (user, host) = (UserName::new(user).unwrap(), HostName::new(host).unwrap());
        let denial = site.decide_session(&user, &host, &LabelName::new(label).unwrap()).unwrap_err();
        assert_eq!(denial.audit().verdict, Verdict::Denied);
        assert_eq!(denial.audit().user, Some(user));
        denial.kind()
    };
    assert_eq!(ask("eve", "ws1", "LOW@CLEAN"), DenialKind::UnknownUser);
    assert_eq!(ask("ada", "ws9", "LOW@CLEAN"), DenialKind::UnknownHost);
    assert_eq!(ask("ada", "ws1", "LOW"), DenialKind::UnknownLabel);
    assert_eq!(ask("ada", "ws1", "MID//B,A@DIRTY"), DenialKind::UnknownLabel, "not the canonical name");
    let low = site.vocabulary().parse("LOW@CLEAN").unwrap();
    let beyond = Label::confidential(9, levee_policy::CategorySet::empty());
    for (subject, object) in [(&low, &beyond), (&beyond, &low), (&beyond, &beyond)] {
        let read = site.decide_read(Who::default(), subject, object).unwrap_err();
        assert_eq!(read.kind(), DenialKind::UnknownLabel);
    }
    let nothing = ServiceName::new("ftp").unwrap();
    let denial = site.decide_connect(Who::default(), &low, &nothing).unwrap_err();
    assert_eq!(denial.kind(), DenialKind::UnknownService);
}

#[test]
fn a_service_is_reached_at_the_sessions_label_only_where_it_is_offered() {
    let site = site();
    for label in all_labels(&site) {
        for service in site.services() {
            let found = site.decide_connect(Who::default(), &label, service.name());
            assert_eq!(found.is_ok(), service.range().contains(&label));
            if let Ok(grant) = found {
                assert_eq!(grant.action().label(), &label);
            }
        }
    }
}

#[test]
fn a_session_reaches_its_services_and_the_hosts_of_its_networks_and_nothing_else() {
    let site = site();
    let reach = |label: &str| {
        let label = site.vocabulary().parse(label).unwrap();
        let mut all: Vec<String> = (site.reachable(&label).into_iter())
            .map(|reach| {
                let kind = match reach.destination {
                    Destination::Service(name) => format!("service {name}"),
                    Destination::Network(interface) => format!("network {interface}"),
                };
                assert!(matches!(reach.protocol, Protocol::Tcp | Protocol::Udp));
                format!("{} {} {} {kind}", reach.protocol.as_str(), reach.address, reach.port)
            })
            .collect();
        all.sort();
        all
    };
    assert_eq!(reach("LOW@CLEAN"), ["tcp 10.80.0.1 80 service web", "tcp fd00::1 80 service web"]);
    assert_eq!(
        reach("MID//A@DIRTY"),
        [
            "tcp 10.80.0.1 80 service web",
            "tcp fd00::1 80 service web",
            "udp 10.80.0.1 514 service log",
            "udp fd00::1 514 service log"
        ]
    );
    assert_eq!(reach("HIGH//A@DIRTY"), ["tcp 192.168.7.9 443 network ship0"]);
    assert_eq!(reach("HIGH//A@CLEAN"), [""; 0], "another label's network");
}

#[test]
fn a_grant_says_what_must_be_audited() {
    let site = site();
    let (ada, ws1) = (UserName::new("ada").unwrap(), HostName::new("ws1").unwrap());
    let label = LabelName::new("MID//A@DIRTY").unwrap();
    let grant = site.decide_session(&ada, &ws1, &label).unwrap();
    assert_eq!(grant.action().label_name(), &label);
    let (session, event) = grant.into_parts();
    assert_eq!((session.user(), session.host()), (&ada, &ws1));
    assert_eq!(
        session.reach(),
        site.reachable(session.label()),
        "and the session reaches what the site says"
    );
    assert!(!session.reach().is_empty());
    assert_eq!((event.user, event.host, event.label), (Some(ada), Some(ws1), Some(label)));
    assert_eq!((&event.action, event.verdict), (&Action::Session, Verdict::Granted));
    assert_eq!(event.reason, "`ada` is cleared and `ws1` accredited for MID//A@DIRTY");
}

#[test]
fn a_denial_says_why_in_words() {
    let site = site();
    let words = |user: &str, host: &str, label: &str| {
        let label = LabelName::new(label).unwrap();
        site.decide_session(&user.parse().unwrap(), &host.parse().unwrap(), &label).unwrap_err().to_string()
    };
    assert_eq!(
        words("mia", "ws1", "HIGH@DIRTY"),
        "`mia` is cleared for LOW@CLEAN..MID//A@DIRTY, not for HIGH@DIRTY"
    );
    assert_eq!(
        words("ada", "ws2", "HIGH@DIRTY"),
        "`ws2` is accredited for LOW@CLEAN..MID//A,B@DIRTY, not for HIGH@DIRTY"
    );
    assert_eq!(words("ada", "ws1", "HIGH@CLEAN"), "nothing can be reached at HIGH@CLEAN");
    let high = site.vocabulary().parse("HIGH@DIRTY").unwrap();
    let denial = site.decide_connect(Who::default(), &high, &"web".parse().unwrap()).unwrap_err();
    assert_eq!(denial.to_string(), "`web` is offered at LOW@CLEAN..MID//A,B@DIRTY, not at HIGH@DIRTY");
}

#[test]
fn a_file_is_carried_only_where_the_site_says_so_of_this_person_and_this_way() {
    let site = Site::parse(SITE).unwrap();
    let decide = |user: &str, label: &str, direction| {
        let file = Carry { direction, bytes: 3, digest: [0xab; 32] };
        let (user, host) = (UserName::new(user).unwrap(), HostName::new("ws1").unwrap());
        site.decide_carry(&user, &host, &LabelName::new(label).unwrap(), file)
    };
    let grant = decide("ada", "MID@DIRTY", Direction::Export).unwrap();
    let record = grant.audit();
    assert_eq!((&record.action, record.verdict), (&Action::Export, Verdict::Granted));
    assert_eq!(record.object, format!("3 bytes, SHA-256 {}", "ab".repeat(32)));
    assert_eq!(record.label.as_ref().map(LabelName::as_str), Some("MID@DIRTY"));
    for (user, label, direction, kind) in [
        ("ada", "HIGH@DIRTY", Direction::Export, DenialKind::NotCarried),
        ("ada", "MID//A@DIRTY", Direction::Export, DenialKind::NotCarried),
        // Nothing said is nothing allowed.
        ("ada", "MID@DIRTY", Direction::Import, DenialKind::NotCarried),
        ("mia", "LOW@DIRTY", Direction::Export, DenialKind::NotCarried),
        ("eve", "LOW@DIRTY", Direction::Export, DenialKind::UnknownUser),
        ("ada", "NOWHERE", Direction::Export, DenialKind::UnknownLabel),
    ] {
        let denial = decide(user, label, direction).unwrap_err();
        assert_eq!(denial.kind(), kind, "{user} {label}");
        assert_eq!(denial.audit().verdict, Verdict::Denied);
    }
}
