//! Who of those cleared for a label reaches a service there: by the site's word, and by its owners' since.

use levee_policy::audit::Verdict;
use levee_policy::decision::{ChangeAccess, Session};
use levee_policy::{DenialKind, Grant, LabelName, ServiceName, Site, UserName};

const SMALL: &str = include_str!("../../../conf/small/site.toml");

fn service(name: &str, mode: &str, port: u16, more: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nport = {port}\nprotocol = \"tcp\"\nrange = \"UNCLASSIFIED..CONFIDENTIAL//MED\"\n\
         mode = \"{mode}\"\nprogram = \"nginx\"\n{more}\n"
    )
}

fn site() -> Site {
    let plans = service("plans", "relay", 8080, "owners = [\"ada\"]");
    let list = service("list", "direct", 8081, "people = [\"mia\"]");
    let begun = service("begun", "direct", 8082, "owners = [\"ada\"]\npeople = [\"mia\"]");
    Site::parse(&format!("{SMALL}\n{plans}{list}{begun}")).unwrap()
}

fn session(site: &Site, user: &str, label: &str) -> Grant<Session> {
    site.decide_session(&user.parse().unwrap(), &"ws1".parse().unwrap(), &label.parse().unwrap()).unwrap()
}

fn admits(site: &Site, service: &str, user: &str, said: Option<bool>) -> bool {
    let service: ServiceName = service.parse().unwrap();
    site.service(&service).unwrap().access().admits(&user.parse().unwrap(), said)
}

#[test]
fn an_owners_word_counts_where_there_are_owners_and_never_against_one() {
    let site = site();
    for (service, user, without, allowed, denied) in [
        ("web", "ugo", true, true, true),
        ("plans", "ada", true, true, true),
        ("plans", "mia", false, true, false),
        ("list", "mia", true, true, true),
        ("list", "ada", false, false, false),
        ("begun", "mia", true, true, false),
        ("begun", "ugo", false, true, false),
        ("begun", "ada", true, true, true),
    ] {
        let found = [None, Some(true), Some(false)].map(|said| admits(&site, service, user, said));
        assert_eq!(found, [without, allowed, denied], "{service} and {user}");
    }
}

#[test]
fn a_sessions_grant_has_no_service_that_could_never_be_for_its_person() {
    let site = site();
    let ports = |user: &str| -> Vec<u16> {
        session(&site, user, "UNCLASSIFIED").action().reach().iter().map(|reach| reach.port).collect()
    };
    let sorted = |user: &str| {
        let mut ports = ports(user);
        ports.sort_unstable();
        ports
    };
    assert_eq!(sorted("mia"), [80, 8080, 8081, 8082]);
    assert_eq!(sorted("ugo"), [80, 8080, 8082], "`list` is for mia alone, for ever");
}

#[test]
fn a_connection_is_granted_by_the_word_that_counts_now() {
    let site = site();
    let plans: ServiceName = "plans".parse().unwrap();
    let mia = session(&site, "mia", "UNCLASSIFIED");
    let decide = |said| site.decide_connection(&mia, &plans, None, said).map_err(|denial| denial.kind());
    assert_eq!(decide(None).unwrap_err(), DenialKind::NotAdmitted);
    assert_eq!(decide(Some(false)).unwrap_err(), DenialKind::NotAdmitted);
    assert!(decide(Some(true)).is_ok());
    let ada = session(&site, "ada", "UNCLASSIFIED");
    assert!(site.decide_connection(&ada, &plans, None, Some(false)).is_ok());
}

#[test]
fn only_an_owner_says_who_reaches_a_service_and_at_the_label_of_their_session_alone() {
    let site = site();
    let say = |user: &str, label: &str, service: &str, whom: &str| {
        let (service, whom): (ServiceName, UserName) = (service.parse().unwrap(), whom.parse().unwrap());
        site.decide_access(&session(&site, user, label), &service, &whom, true)
    };
    let grant = say("ada", "CONFIDENTIAL", "plans", "mia").unwrap();
    let change = grant.action();
    assert_eq!((change.label().as_str(), change.service().as_str()), ("CONFIDENTIAL", "plans"));
    assert_eq!((change.user().as_str(), change.admits()), ("mia", true));
    let event = grant.audit();
    assert_eq!(
        (event.action.as_str(), event.object.as_str(), event.verdict),
        ("access", "plans", Verdict::Granted)
    );
    assert_eq!(event.user.as_ref().map(|user| user.as_str()), Some("ada"));
    assert!(event.reason.contains("`mia` reaches it at CONFIDENTIAL"), "{}", event.reason);
    for (user, label, service, whom, kind) in [
        ("mia", "CONFIDENTIAL", "plans", "mia", DenialKind::NotOwner),
        // It has owners, but there is no instance at this label.
        ("ada", "SECRET", "plans", "mia", DenialKind::NotOwner),
        ("ada", "CONFIDENTIAL", "web", "mia", DenialKind::NotOwner),
        ("ada", "CONFIDENTIAL", "list", "ada", DenialKind::NotOwner),
        ("ada", "CONFIDENTIAL", "nothing", "mia", DenialKind::NotOwner),
        ("ada", "CONFIDENTIAL", "plans", "nobody", DenialKind::UnknownUser),
        ("ada", "CONFIDENTIAL", "plans", "ada", DenialKind::IsOwner),
    ] {
        assert_eq!(
            say(user, label, service, whom).unwrap_err().kind(),
            kind,
            "{user} {label} {service} {whom}"
        );
    }
}

#[test]
fn an_operator_says_so_of_services_that_have_owners_and_of_no_others() {
    let site = site();
    let say = |label: &str, service: &str, whom: &str| {
        let (label, service): (LabelName, ServiceName) = (label.parse().unwrap(), service.parse().unwrap());
        let change = site.decide_access_by_operator(&label, &service, &whom.parse().unwrap(), false);
        let said = |grant: Grant<ChangeAccess>| (grant.action().admits(), grant.audit().user.is_none());
        change.map(said).map_err(|denial| denial.kind())
    };
    assert_eq!(say("CONFIDENTIAL", "plans", "mia"), Ok((false, true)));
    for (label, service, whom, kind) in [
        ("NOWHERE", "plans", "mia", DenialKind::UnknownLabel),
        ("SECRET", "plans", "mia", DenialKind::NotOffered),
        ("CONFIDENTIAL", "list", "mia", DenialKind::NotOwner),
        ("CONFIDENTIAL", "plans", "nobody", DenialKind::UnknownUser),
        ("CONFIDENTIAL", "plans", "ada", DenialKind::IsOwner),
    ] {
        assert_eq!(say(label, service, whom), Err(kind), "{label} {service} {whom}");
    }
}

#[test]
fn what_could_mean_nothing_is_refused_in_the_site_file() {
    let network = "[[network]]\ninterface = \"ship0\"\nlabel = \"UNCLASSIFIED\"\naddress = \"192.168.7.1/24\"\nservices = [\"plans\"]\n";
    for (more, after, said) in [
        ("owners = [\"eve\"]", "", "no user of the site"),
        ("owners = [\"ada\", \"ada\"]", "", "twice"),
        ("owners = []", "", "nobody owns the service"),
        ("people = []", "", "nobody could reach the service"),
        ("owners = [\"ada\"]", network, "a host of a network is nobody"),
        ("people = [\"ada\"]", network, "a host of a network is nobody"),
    ] {
        let text = format!("{SMALL}\n{}{after}", service("plans", "direct", 8080, more));
        let problems = format!("{:?}", Site::parse(&text).unwrap_err());
        assert!(problems.contains(said), "{more}: {problems}");
    }
    let only =
        service("plans", "direct", 8080, "people = [\"ugo\"]").replace("UNCLASSIFIED..", "CONFIDENTIAL..");
    let problems = format!("{:?}", Site::parse(&format!("{SMALL}\n{only}")).unwrap_err());
    assert!(problems.contains("`ugo`, who is cleared for no label of"), "{problems}");
}
