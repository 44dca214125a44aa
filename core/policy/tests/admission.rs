//! What a person, a workstation and a session may have beyond a session itself: to be signed on, keys, one connection.

use levee_policy::audit::{Action, Verdict};
use levee_policy::decision::Session;
use levee_policy::site::Recorded;
use levee_policy::{
    DenialKind, Grant, HostName, InterfaceName, Label, LabelName, ServiceName, Site, UserName,
};

const SITE: &str = r#"
[site]
name = "admit"
[labels]
levels = ["LOW", "MID", "HIGH"]
[server]
name = "server.example"
addresses = ["192.0.2.1"]
inner-address = ["10.80.0.1"]
inner-pool = ["10.80.1.0/24"]
[[user]]
name = "ada"
clearance = "LOW..HIGH"
[[host]]
name = "ws1"
accreditation = "LOW..HIGH"
[[host]]
name = "ws2"
accreditation = "LOW..HIGH"
[[service]]
name = "web"
port = 80
protocol = "tcp"
range = "LOW..MID"
mode = "direct"
program = "nginx"
[[service]]
name = "mail"
port = 143
protocol = "tcp"
range = "MID..HIGH"
mode = "relay"
command = ["/usr/bin/cat"]
[[network]]
interface = "ship0"
label = "HIGH"
address = "192.168.7.1/24"
services = ["mail"]
"#;

fn site() -> Site {
    Site::parse(SITE).unwrap_or_else(|e| panic!("{e:?}"))
}

fn user(name: &str) -> UserName {
    UserName::new(name).unwrap()
}

fn host(name: &str) -> HostName {
    HostName::new(name).unwrap()
}

fn label(name: &str) -> LabelName {
    LabelName::new(name).unwrap()
}

fn service(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}

fn session(site: &Site, at: &str) -> Grant<Session> {
    site.decide_session(&user("ada"), &host("ws1"), &label(at)).unwrap()
}

#[test]
fn whom_the_site_knows_may_sign_on_where_it_knows_the_host_unless_an_operator_says_otherwise() {
    let site = site();
    let ask = |who: &str, at: &str, disabled| site.decide_sign_on(&user(who), &host(at), disabled);
    let grant = ask("ada", "ws1", false).unwrap();
    assert_eq!((grant.action().user(), grant.action().host()), (&user("ada"), &host("ws1")));
    let event = grant.audit();
    assert_eq!((event.action.as_str(), event.object.as_str()), ("sign-on", "ws1"));
    assert_eq!((event.verdict, event.user.as_ref()), (Verdict::Granted, Some(&user("ada"))));
    for (who, at, disabled, kind) in [
        ("ada", "ws1", true, DenialKind::Disabled),
        ("eve", "ws1", false, DenialKind::UnknownUser),
        ("ada", "ws9", false, DenialKind::UnknownHost),
    ] {
        let denial = ask(who, at, disabled).unwrap_err();
        assert_eq!((denial.kind(), denial.audit().verdict), (kind, Verdict::Denied));
    }
}

#[test]
fn a_password_is_changed_by_whom_the_site_knows_where_it_knows_the_host() {
    let site = site();
    let grant = site.decide_password(&user("ada"), &host("ws1")).unwrap();
    assert_eq!(grant.action().user(), &user("ada"));
    let event = grant.audit();
    assert_eq!((event.action.as_str(), event.object.as_str()), ("change-password", "ws1"));
    assert_eq!((event.verdict, event.user.as_ref()), (Verdict::Granted, Some(&user("ada"))));
    for (who, at, kind) in [("eve", "ws1", DenialKind::UnknownUser), ("ada", "ws9", DenialKind::UnknownHost)]
    {
        let denial = site.decide_password(&user(who), &host(at)).unwrap_err();
        assert_eq!((denial.kind(), denial.audit().verdict), (kind, Verdict::Denied));
    }
}

#[test]
fn an_entry_of_a_grant_differs_from_the_decisions_in_nothing_but_action_object_and_reason() {
    let grant = session(&site(), "MID");
    let entry = grant.entry(Action::Unlock, "an object".to_owned(), "a reason".to_owned());
    let decided = grant.audit();
    assert_eq!((&entry.user, &entry.host, &entry.label), (&decided.user, &decided.host, &decided.label));
    assert_eq!((entry.action, entry.verdict), (Action::Unlock, Verdict::Granted));
    assert_eq!((entry.object.as_str(), entry.reason.as_str()), ("an object", "a reason"));
}

#[test]
fn keys_are_the_sessions_own_at_its_label_on_its_host_and_a_certificate_can_only_narrow_that() {
    let site = site();
    let open = session(&site, "MID");
    let ask =
        |at: &str, name: &str, range: Option<&str>| site.decide_keys(&open, &host(at), &label(name), range);
    let grant = ask("ws1", "MID", Some("LOW..HIGH")).unwrap();
    assert_eq!((grant.action().host(), grant.action().label()), (&host("ws1"), &label("MID")));
    assert_eq!(grant.action().reach(), ["10.80.0.1".parse::<std::net::IpAddr>().unwrap()]);
    let again = open.keys_again();
    assert_eq!(again.action(), grant.action(), "for the same, and nothing else");
    for (at, name, range, kind) in [
        ("ws1", "MID", None, DenialKind::NoAccreditation),
        ("ws1", "MID", Some("of another site"), DenialKind::NoAccreditation),
        ("ws1", "MID", Some("LOW..LOW"), DenialKind::NotAccredited),
        ("ws1", "HIGH", Some("LOW..HIGH"), DenialKind::OtherLabel),
        ("ws1", "ELSEWHERE", Some("LOW..HIGH"), DenialKind::UnknownLabel),
        ("ws2", "MID", Some("LOW..HIGH"), DenialKind::UnknownHost),
    ] {
        let denial = ask(at, name, range).unwrap_err();
        assert_eq!(denial.kind(), kind, "{at} {name} {range:?}");
        let event = denial.audit();
        assert_eq!((event.action.as_str(), event.object.as_str()), ("negotiate", name));
        assert_eq!((event.verdict, event.host.as_ref()), (Verdict::Denied, Some(&host(at))));
    }
}

#[test]
fn a_connection_is_one_that_the_sessions_grant_reaches_and_a_mediator_decides_about() {
    let site = site();
    let (low, high) = (session(&site, "LOW"), session(&site, "HIGH"));
    let grant = site.decide_connection(&high, &service("mail"), None, None).unwrap();
    assert_eq!((grant.action().label(), grant.action().service()), (high.action().label(), &service("mail")));
    assert_eq!(grant.audit().user, Some(user("ada")));
    assert_eq!(grant.action().recorded(), Recorded::Synced);
    let soon = SITE.replace("mode = \"relay\"", "mode = \"relay\"\naudit = \"written\"");
    let soon = Site::parse(&soon).unwrap_or_else(|e| panic!("{e:?}"));
    let other = soon.decide_connection(&session(&soon, "HIGH"), &service("mail"), None, None).unwrap();
    assert_eq!(other.action().recorded(), Recorded::Written, "as the site says of this service");
    for (open, name, kind) in [
        (&low, "mail", DenialKind::NotOffered),
        (&low, "web", DenialKind::NotOffered),
        (&high, "web", DenialKind::NotOffered),
        (&high, "ftp", DenialKind::UnknownService),
    ] {
        assert_eq!(
            site.decide_connection(open, &service(name), None, None).unwrap_err().kind(),
            kind,
            "{name}"
        );
    }
}

#[test]
fn a_network_has_the_services_that_the_site_gives_it_at_its_label_and_no_others() {
    let site = site();
    let point = |name: &str| -> Label { site.vocabulary().parse(name).unwrap() };
    let ask = |at: &str, interface: &str, name: &str| {
        let posture = None;
        let interface = InterfaceName::new(interface).unwrap();
        site.decide_network_connection(&point(at), &interface, &service(name), posture)
            .map_err(|denial| denial.kind())
    };
    assert_eq!(ask("HIGH", "ship0", "mail").unwrap().action().service(), &service("mail"));
    assert_eq!(ask("MID", "ship0", "mail").unwrap_err(), DenialKind::NotOffered, "another label's");
    assert_eq!(ask("HIGH", "ship1", "mail").unwrap_err(), DenialKind::NotOffered);
    assert_eq!(ask("HIGH", "ship0", "web").unwrap_err(), DenialKind::NotOffered);
    assert_eq!(ask("HIGH", "ship0", "ftp").unwrap_err(), DenialKind::UnknownService);
}

#[test]
fn what_a_posture_has_off_is_started_for_nobody_and_has_no_connection() {
    let site = SITE.to_owned() + "\n[[posture]]\nname = \"quiet\"\nservices = []\n";
    let site = Site::parse(&site).unwrap_or_else(|e| panic!("{e:?}"));
    let (high, mail) = (session(&site, "HIGH"), service("mail"));
    let point: Label = site.vocabulary().parse("HIGH").unwrap();
    let interface = InterfaceName::new("ship0").unwrap();
    for (posture, expected) in [(site.postures().first(), Err(DenialKind::Posture)), (None, Ok(()))] {
        let kind = |denial: Box<levee_policy::Denial>| denial.kind();
        assert_eq!(site.decide_connection(&high, &mail, posture, None).map(drop).map_err(kind), expected);
        let network = site.decide_network_connection(&point, &interface, &mail, posture);
        assert_eq!(network.map(drop).map_err(kind), expected);
        let start = site.decide_start(&point, site.service(&mail).unwrap(), posture);
        let started = start.map(|grant| (grant.action().label().clone(), grant.action().service().clone()));
        assert_eq!(
            started.map(|what| assert_eq!(what, (point.clone(), mail.clone()))).map_err(kind),
            expected
        );
        // The session's own grant stays as it is: what may pass is less.
        let left = Site::on_under(high.action().reach(), posture).len();
        assert_eq!((left > 0, high.action().reach().is_empty()), (expected.is_ok(), false));
    }
}
