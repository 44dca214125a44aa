//! A posture that is set at some labels changes what is there alone; a range that the site does not have any more denies.

mod server;

use levee_policy::audit::Verdict;
use levee_policy::site::{Placed, Posture};
use levee_policy::{LabelName, Site};
use levee_session::federation::{Setting, Statement};
use levee_session::*;
use server::{BEGIN, CLIENT, Server, cuts, has, label};
use std::sync::Arc;
use std::time::Duration;

const SITE: &str = concat!(
    include_str!("../../../conf/small/site.toml"),
    r#"
[[posture]]
name = "siege"
ciphers = ["chacha20-poly1305"]
follow = "4s"
[[posture]]
name = "brief"
key-life = "5m"
[[posture]]
name = "quiet"
services = []
[[posture]]
name = "few"
people = ["mia"]
"#
);
const OPERATOR: OperatorId = OperatorId(9);
const OTHER: &str = "CONFIDENTIAL";
const MIA: ClientId = ClientId(2);

fn other() -> LabelName {
    OTHER.parse().unwrap()
}

/// A posture or the default, or one `at` ranges.
fn placed(what: &str) -> Placed {
    let (name, ranges) = what.split_once(" at ").map_or((what, None), |(name, at)| (name, Some(at)));
    let labels = ranges.map(|ranges| ranges.split(" and ").map(|range| range.parse().unwrap()).collect());
    Placed { posture: (name != Posture::DEFAULT).then(|| name.parse().unwrap()), labels }
}

fn setting(all: &[&str]) -> Setting {
    let at = Some("server.harbour.example".parse().unwrap());
    let in_force = all.iter().map(|what| InForce { what: placed(what), until: None });
    Setting { number: 1, at, in_force: in_force.collect() }
}

/// With a session of ada's at one label and one of mia's at another.
fn with_two() -> (Server, SessionId, SessionId) {
    let (mut server, first) = Server::with_a_session_at(SITE);
    let second = SessionId::from_random([8; 16]);
    server.hear(Event::Hello { client: MIA, device: "ws2".parse().unwrap(), fingerprint: [1; 32] });
    server.hear(Event::Request(MIA, Request::Login("mia".parse().unwrap())));
    let level = Request::Level { label: other(), protection: None, id: second, random: 2 };
    server.hear(Event::Request(MIA, level));
    server.hear(Event::LabelUp(other()));
    server.hear(Event::VaultOpened(other(), second));
    assert!(server.machine.live(first).is_some() && server.machine.live(second).is_some());
    (server, first, second)
}

/// The operator's wish, and all that comes of it; the warden does at once what it is told.
fn set(server: &mut Server, what: &str, lasting: Option<Duration>) -> Vec<Output> {
    let wish = Wish { what: placed(what), lasting, reason: "a drill".into() };
    let mut said = server.hear(Event::Posture(OPERATOR, wish));
    answer_warden(server, &mut said);
    said
}

fn answer_warden(server: &mut Server, said: &mut Vec<Output>) {
    let number = |one: &Output| match one {
        Output::Postures(number, _) => Some(*number),
        _ => None,
    };
    for number in said.iter().filter_map(number).collect::<Vec<_>>() {
        said.extend(server.hear(Event::PosturesKept(number)));
    }
}

/// The labels whose vaults are told of ciphers, each with the number by which it is to answer.
fn told(said: &[Output]) -> Vec<(LabelName, u64)> {
    let of = |one: &Output| match one {
        Output::Vault(label, ToVault::Ciphers(number, ..)) => Some((label.clone(), *number)),
        _ => None,
    };
    said.iter().filter_map(of).collect()
}

/// What is set, where these vaults alone are told of it and answer; the records of that.
fn changes(server: &mut Server, what: &str, labels: &[LabelName]) -> Vec<(String, String)> {
    let mut said = set(server, what, None);
    let told = told(&said);
    assert_eq!(told.iter().map(|(label, _)| label.clone()).collect::<Vec<_>>(), labels, "{what}: {said:?}");
    let keyer = said.iter().filter(|one| matches!(one, Output::Keying(..))).count();
    assert_eq!(keyer, labels.len(), "{what}: {said:?}");
    for (label, number) in told {
        said.extend(server.hear(Event::Moved(label, number, vec![])));
    }
    assert!(has(&said, |one| matches!(one, Output::Operator(OPERATOR, Ok(())))), "{what}: {said:?}");
    records(&said)
}

fn records(said: &[Output]) -> Vec<(String, String)> {
    let of = |one: &Output| match one {
        Output::Commit(_, entries, _) => entries.clone(),
        Output::Audit(entry) => vec![entry.clone()],
        _ => vec![],
    };
    said.iter().flat_map(of).map(|entry| (entry.object, entry.reason)).collect()
}

fn in_force(server: &Server) -> Vec<String> {
    server.machine.postures().0.iter().map(|one| one.what.to_string()).collect()
}

#[test]
fn a_posture_that_is_set_at_one_of_two_labels_changes_that_ones_tunnels_alone_and_the_default_gives_it_back()
{
    let (mut server, first, second) = with_two();
    let log = changes(&mut server, "siege at SECRET..SECRET//NATO", &[label()]);
    let begun =
        ("siege at SECRET..SECRET//NATO".to_owned(), "by an operator, after default: a drill".to_owned());
    assert!(log.contains(&begun), "{log:?}");
    // Of another one at the other label the first hears nothing.
    let log = changes(&mut server, "brief at CONFIDENTIAL", &[other()]);
    assert!(
        log.contains(&(
            "brief at CONFIDENTIAL".into(),
            "by an operator, after siege at SECRET..SECRET//NATO: a drill".into()
        )),
        "{log:?}"
    );
    assert_eq!(in_force(&server), ["siege at SECRET..SECRET//NATO", "brief at CONFIDENTIAL"]);
    // The default at one label, and what is left stays.
    changes(&mut server, "default at SECRET", &[label()]);
    assert_eq!(
        in_force(&server),
        ["siege at SECRET..SECRET//NATO", "brief at CONFIDENTIAL", "default at SECRET"]
    );
    changes(&mut server, "default at UNCLASSIFIED", &[]);
    changes(&mut server, "siege", &[other(), label()]);
    changes(&mut server, "default at CONFIDENTIAL", &[other()]);
    assert_eq!(in_force(&server), ["siege", "default at CONFIDENTIAL"]);
    changes(&mut server, "default", &[label()]);
    assert!(in_force(&server).is_empty());
    assert!(server.machine.live(first).is_some() && server.machine.live(second).is_some());
}

#[test]
fn services_and_people_follow_the_range_and_what_the_warden_is_told_has_it() {
    let (mut server, first, second) = with_two();
    let (whole, others) = (server.machine.reach(first).unwrap(), server.machine.reach(second).unwrap());
    let mut said = set(&mut server, "quiet at SECRET", None);
    let told = said.iter().find_map(|one| match one {
        Output::Postures(_, in_force) => Some(in_force.clone()),
        _ => None,
    });
    assert_eq!(told.unwrap(), [placed("quiet at SECRET")]);
    assert_eq!((server.machine.reach(first), server.machine.reach(second)), (Some(vec![]), Some(others)));
    let opened = |one: &Output| match one {
        Output::Vault(label, ToVault::Open { .. }) => Some(label.clone()),
        _ => None,
    };
    assert_eq!(said.iter().filter_map(opened).collect::<Vec<_>>(), [label()], "{said:?}");
    said.extend(server.hear(Event::VaultOpened(label(), first)));
    assert!(has(&said, |one| matches!(one, Output::Operator(OPERATOR, Ok(())))));
    set(&mut server, "default at SECRET", None);
    server.hear(Event::VaultOpened(label(), first));
    assert_eq!((server.machine.reach(first), in_force(&server)), (Some(whole), vec![]));
    // Mia's is hers to have, and ada's ends at the label that is named alone.
    set(&mut server, "few at CONFIDENTIAL", None);
    assert!(server.machine.live(first).is_some() && server.machine.live(second).is_some());
    set(&mut server, "few at CONFIDENTIAL..SECRET", None);
    assert!(server.machine.live(first).is_none() && server.machine.live(second).is_some());
}

/// What is in force names labels, and who may be below may not know of those above.
#[test]
fn whose_session_ends_is_told_of_the_posture_at_their_own_label_alone() {
    let (mut server, first, second) = with_two();
    let why = |said: &[Output]| {
        let all = said.iter().map(|one| format!("{one:?}"));
        all.filter(|one| one.contains("the posture became")).collect::<Vec<_>>()
    };
    for (label, number) in told(&set(&mut server, "brief at CONFIDENTIAL", None)) {
        server.hear(Event::Moved(label, number, vec![]));
    }
    let mut said = set(&mut server, &format!("few at {}", label()), None);
    said.extend(server.hear(Event::VaultClosed(label(), first)));
    for cut in cuts(&said) {
        said.extend(server.hear(Event::Cut(cut, Some(0))));
    }
    let reasons = why(&said);
    let is_own = |one: &String| one.contains("the posture became few, ");
    assert!(!reasons.is_empty() && reasons.iter().all(is_own), "{reasons:?} {said:?}");
    assert!(!reasons.concat().contains("brief"), "{reasons:?}");
    assert!(server.machine.live(first).is_none() && server.machine.live(second).is_some());
}

#[test]
fn what_was_set_for_a_time_ends_at_its_labels_and_what_was_below_it_counts_there_again() {
    let (mut server, ..) = with_two();
    changes(&mut server, "siege", &[other(), label()]);
    let said = set(&mut server, "brief at SECRET", Some(Duration::from_secs(60)));
    for (label, number) in told(&said) {
        server.hear(Event::Moved(label, number, vec![]));
    }
    assert_eq!(in_force(&server), ["siege", "brief at SECRET"]);
    server.now = server.now.after(Duration::from_secs(60));
    let said = server.hear(Event::Tick);
    assert_eq!(told(&said).iter().map(|(label, _)| label.clone()).collect::<Vec<_>>(), [label()]);
    assert!(
        records(&said).contains(&("siege".into(), "the time of brief at SECRET is over".into())),
        "{said:?}"
    );
    assert_eq!(in_force(&server), ["siege"]);
}

#[test]
fn a_range_that_makes_no_sense_changes_nothing_and_the_answer_says_what_to_write() {
    let (mut server, ..) = with_two();
    for (what, why) in [
        ("siege at SECERT", "did you mean `SECRET`"),
        ("default at SECRET..CONFIDENTIAL", "write the dominated label first"),
        ("flood at SECRET", "the site has no posture `flood`"),
    ] {
        let said = set(&mut server, what, None);
        let refused =
            |one: &Output| matches!(one, Output::Operator(OPERATOR, Err(said)) if said.contains(why));
        assert!(has(&said, refused) && in_force(&server).is_empty(), "{what}: {said:?}");
    }
}

#[test]
fn so_much_is_in_force_and_no_more_and_the_answer_says_what_to_do() {
    let site = SITE.replace(
        "\ncategories = [",
        "\ncategories = [\"C01\", \"C02\", \"C03\", \"C04\", \"C05\", \"C06\", \"C07\", \"C08\", \"C09\", ",
    );
    let (mut server, _) = Server::with_a_session_at(&site);
    let wish = |server: &mut Server, what: &str| {
        let said = set(server, what, None);
        for (label, number) in told(&said) {
            server.hear(Event::Moved(label, number, vec![]));
        }
        said.into_iter().find_map(|one| match one {
            Output::Operator(OPERATOR, result) => Some(result),
            _ => None,
        })
    };
    let labels: Vec<String> = ["UNCLASSIFIED", "CONFIDENTIAL"]
        .iter()
        .flat_map(|level| (1..=9).map(move |number| format!("{level}//C0{number}")))
        .collect();
    for at in &labels[..16] {
        assert_eq!(wish(&mut server, &format!("quiet at {at}")), Some(Ok(())), "{at}");
    }
    assert_eq!(in_force(&server).len(), 16);
    let refused = wish(&mut server, &format!("quiet at {}", labels[16])).unwrap().unwrap_err();
    assert!(refused.contains("more than 16") && refused.contains("`levee posture set default`"), "{refused}");
    assert_eq!(wish(&mut server, "default"), Some(Ok(())));
    // Octets.
    let without = |level: &str, out: usize| {
        let categories: Vec<String> =
            (1..=9).filter(|one| *one != out).map(|one| format!("C0{one}")).collect();
        format!("{level}//{}", categories.join(","))
    };
    let long = |n: usize| {
        let levels = ["CONFIDENTIAL", "UNCLASSIFIED", "SECRET"];
        let all = levels.iter().flat_map(|level| (1..=9).map(|out| without(level, out)));
        all.take(n).collect::<Vec<_>>().join(" and ")
    };
    assert_eq!(wish(&mut server, &format!("quiet at {}", long(21))), Some(Ok(())));
    let refused = wish(&mut server, &format!("brief at {} and UNCLASSIFIED", long(22))).unwrap().unwrap_err();
    assert!(refused.contains("1024 octets of ranges"), "{refused}");
    assert_eq!(in_force(&server).len(), 1);
}

/// The site file has other words since: nobody can know where it is to count.
#[test]
fn after_a_start_with_a_site_file_that_does_not_have_the_range_nobody_has_a_session_where_it_may_count_until_it_is_set_anew()
 {
    let stored = |user: &str, device: &str, at: LabelName, number: u8| Stored {
        id: SessionId::from_random([number; 16]),
        user: user.parse().unwrap(),
        device: device.parse().unwrap(),
        fingerprint: [1; 32],
        label: at,
        inner: vec![std::net::IpAddr::from([10, 80, 1, number])],
        opened: BEGIN,
        protection: None,
    };
    let all = || vec![stored("ada", "ws1", label(), 7), stored("mia", "ws2", other(), 8)];
    let low = "[[posture]]\nname = \"low\"\nlabels = [\"CONFIDENTIAL\"]\nkey-life = \"5m\"\n";
    let start = |in_force: &[&str]| {
        let site = Arc::new(Site::parse(&(SITE.to_owned() + low)).unwrap());
        let machine = Sessions::new(site, all(), [], [], [7; 16], BEGIN);
        let mut server = Server { machine, now: BEGIN };
        server.machine.take_postures((setting(in_force), true), BEGIN);
        let said = server.hear(Event::Tick);
        let users: Vec<String> = server
            .machine
            .shown()
            .filter(|shown| server.machine.live(shown.id).is_some())
            .map(|shown| shown.user.to_string())
            .collect();
        (server, said, users)
    };
    let (server, _, users) = start(&["siege at SECRET"]);
    assert_eq!((users.join(" "), server.machine.posture_alarm()), ("ada mia".into(), None));
    // All labels of its posture, and no others.
    assert_eq!(start(&["low at GONE"]).2, ["ada"]);
    assert_eq!(start(&["siege at GONE"]).2, [""; 0]);
    assert_eq!(start(&["siege at GONE", "brief at SECRET"]).2, ["ada"], "what is over it is known");
    let (mut server, said, users) = start(&["siege at SECRET", "default at GONE", "quiet at CONFIDENTIAL"]);
    assert_eq!(users, ["mia"], "it may be the default, or siege");
    let denied = said.iter().find_map(|one| match one {
        Output::Audit(entry) if entry.object == "default at GONE" => Some(entry.clone()),
        _ => None,
    });
    let denied = denied.expect("the log has it");
    assert!(
        denied.verdict == Verdict::Denied && denied.reason.contains("is set without ranges"),
        "{denied:?}"
    );
    let alarm = server.machine.posture_alarm().unwrap();
    assert!(alarm.starts_with("posture default at GONE: the site file does not have this range"), "{alarm}");
    // None opens there either, until somebody says what is to be.
    let opens = |server: &mut Server, client: ClientId, device: &str, number: u8| {
        let (device, id) = (device.parse().unwrap(), SessionId::from_random([number; 16]));
        server.hear(Event::Hello { client, device, fingerprint: [1; 32] });
        server.hear(Event::Request(client, Request::Login("ada".parse().unwrap())));
        let level = Request::Level { label: label(), protection: None, id, random: 1 };
        server.hear(Event::Request(client, level))
    };
    for cut in cuts(&server.hear(Event::VaultClosed(label(), SessionId::from_random([7; 16])))) {
        server.hear(Event::Cut(cut, Some(0)));
    }
    let said = opens(&mut server, CLIENT, "ws1", 9);
    let why = "does not have a range any more that was set";
    let refused = |one: &Output| matches!(one, Output::Reply(_, Reply::Refused(RefusalKind::Label, said)) if said.contains(why));
    assert!(has(&said, refused), "{said:?}");
    set(&mut server, "default at SECRET", None);
    assert_eq!(in_force(&server), ["quiet at CONFIDENTIAL"], "what nobody sees any more is gone");
    assert_eq!(server.machine.posture_alarm(), None);
    let said = opens(&mut server, ClientId(3), "ws1", 10);
    assert!(!has(&said, refused), "{said:?}");
}

/// What operators cannot have set is no statement; and one of before postures had ranges is none where something is in force.
#[test]
fn what_a_server_says_of_ranges_is_within_bounds_or_nothing() {
    let of = |setting: Setting| Statement {
        site: "harbour".parse().unwrap(),
        server: "one.example".parse().unwrap(),
        epoch: 1,
        number: 1,
        words: vec![],
        pages: vec![],
        setting,
        is_kept: true,
        signed: None,
        postures: [0; 32],
    };
    let is_read = |setting: &Setting| Statement::decode(&of(setting.clone()).encode()).is_some();
    for good in
        [&[][..], &["siege"], &["siege", "default at SECRET"], &["siege at A..B and C"], &["siege"; 16]]
    {
        assert!(is_read(&setting(good)), "{good:?}");
    }
    for wrong in [&["default"][..], &["siege"; 17]] {
        assert!(!is_read(&setting(wrong)), "{wrong:?}");
    }
    let mut nowhere = setting(&["siege"]);
    nowhere.in_force[0].what.labels = Some(vec![]);
    assert!(!is_read(&nowhere));
    let one = |octets: usize| {
        setting(&[
            &format!("siege at {}", ["A"; 256].join(" and ")),
            &format!("siege at {}", "A".repeat(octets)),
        ])
    };
    assert!(is_read(&one(254)) && !is_read(&one(255)));
    // As it was: a name, and until when.
    let before: Vec<(levee_policy::PostureName, Option<Time>)> = vec![("siege".parse().unwrap(), None)];
    let (whole, list) =
        (of(setting(&["siege"])).encode(), postcard::to_allocvec(&setting(&["siege"]).in_force).unwrap());
    let at = whole.windows(list.len()).position(|part| part == list).unwrap();
    let as_before =
        [&whole[..at], &postcard::to_allocvec(&before).unwrap(), &whole[at + list.len()..]].concat();
    assert_eq!(Statement::decode(&as_before), None);
}
