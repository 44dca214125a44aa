//! Who reaches a service changes: recorded first, told to the vault of each session that it concerns, and answered when these have it.

use levee_policy::audit::Action;
use levee_policy::{LabelName, ServiceName, Site, UserName};
use levee_session::*;
use std::sync::Arc;
use std::time::Duration;

const SITE: &str = concat!(
    include_str!("../../../conf/small/site.toml"),
    r#"
[[service]]
name = "plans"
port = 8080
protocol = "tcp"
range = "UNCLASSIFIED..CONFIDENTIAL//MED"
mode = "relay"
program = "nginx"
owners = ["ada"]
"#
);
const LABEL: &str = "CONFIDENTIAL";
const ADA: ClientId = ClientId(1);
const MIA: ClientId = ClientId(2);
const OPERATOR: OperatorId = OperatorId(9);

/// A server with a session of ada's, who owns `plans`, and one of mia's.
struct Server {
    machine: Sessions,
    now: Time,
    durable: bool,
    said: Vec<Output>,
    log: Vec<(Action, String)>,
    stored: Vec<(Access, bool)>,
}

fn label() -> LabelName {
    LABEL.parse().unwrap()
}

fn id(client: ClientId) -> SessionId {
    SessionId::from_random([u8::try_from(client.0).unwrap(); 16])
}

fn access(user: &str, admits: bool) -> Access {
    Access { label: label(), service: "plans".parse().unwrap(), user: user.parse().unwrap(), admits }
}

impl Server {
    fn new(stored: Vec<Access>) -> Self {
        Self::at(SITE, stored)
    }

    fn at(site: &str, stored: Vec<Access>) -> Self {
        let now = Time::from_millis(1_000_000_000);
        let mut machine = Sessions::new(Arc::new(Site::parse(site).unwrap()), vec![], [], [], [7; 16], now);
        machine.take_accesses(stored);
        let mut server = Self { machine, now, durable: true, said: vec![], log: vec![], stored: vec![] };
        for (client, user, device) in [(ADA, "ada", "ws1"), (MIA, "mia", "ws2")] {
            server.hear(Event::Hello { client, device: device.parse().unwrap(), fingerprint: [1; 32] });
            server.hear(Event::Request(client, Request::Login(user.parse().unwrap())));
            let level = Request::Level { label: label(), protection: None, id: id(client), random: client.0 };
            server.hear(Event::Request(client, level));
            if client == ADA {
                server.hear(Event::LabelUp(label()));
            }
            let said = server.hear(Event::VaultOpened(label(), id(client)));
            assert!(matches!(answer(&said, client), Some(Reply::Opened { .. })), "{user}: {said:?}");
        }
        server
    }

    fn hear(&mut self, event: Event) -> Vec<Output> {
        self.machine.handle(event, self.now);
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Commit(commit, entries, changes) => {
                    self.log.extend(entries.into_iter().map(|entry| (entry.action, entry.reason)));
                    self.stored.extend(changes.into_iter().filter_map(|change| match change {
                        Change::Access(access, counts) => Some((access, counts)),
                        _ => None,
                    }));
                    self.machine.handle(Event::Committed(commit, self.durable), self.now);
                }
                Output::Verify(client, _) => {
                    self.machine.handle(Event::Verified(client, Verified::Right(None)), self.now);
                }
                output => self.said.push(output),
            }
        }
        std::mem::take(&mut self.said)
    }

    fn say(&mut self, client: ClientId, user: &str, admits: bool) -> Vec<Output> {
        let (service, user): (ServiceName, UserName) = ("plans".parse().unwrap(), user.parse().unwrap());
        self.hear(Event::Request(client, Request::Access(service, user, admits)))
    }

    /// The ports that a session reaches now.
    fn ports(&self, client: ClientId) -> Vec<u16> {
        self.machine.reach(id(client)).unwrap().iter().map(|reach| reach.port).collect()
    }

    fn connects(&self, client: ClientId) -> bool {
        let from = self.machine.live(id(client)).unwrap().inner[0];
        self.machine.connect(id(client), &label(), from, &"plans".parse().unwrap()).is_some()
    }
}

fn answer(said: &[Output], client: ClientId) -> Option<&Reply> {
    said.iter().find_map(|one| match one {
        Output::Reply(to, reply) if *to == client => Some(reply),
        _ => None,
    })
}

/// Which sessions' vaults were told, and of how many things that they reach.
fn told(said: &[Output]) -> Vec<(SessionId, usize)> {
    let of = |one: &Output| match one {
        Output::Vault(_, ToVault::Open { id, reach, .. }) => Some((*id, reach.len())),
        _ => None,
    };
    said.iter().filter_map(of).collect()
}

#[test]
fn a_word_counts_once_it_is_recorded_and_is_answered_once_the_vault_has_it() {
    let mut server = Server::new(vec![]);
    assert_eq!((server.ports(ADA), server.ports(MIA)), (vec![8080, 80], vec![80]));
    assert!(server.connects(ADA) && !server.connects(MIA));

    let said = server.say(ADA, "mia", true);
    assert_eq!(told(&said), [(id(MIA), 2)], "{said:?}");
    assert_eq!(answer(&said, ADA), None, "mia's vault does not know yet");
    let Some(Reply::Notice(notice)) = answer(&said, MIA) else { panic!("{said:?}") };
    assert_eq!(notice, "ada lets you reach plans at CONFIDENTIAL");
    assert_eq!(answer(&server.hear(Event::VaultOpened(label(), id(MIA))), ADA), Some(&Reply::AccessChanged));
    assert!(server.connects(MIA));
    assert_eq!(server.stored, [(access("mia", true), true)]);
    let (action, reason) = server.log.last().unwrap();
    assert_eq!(
        (action, reason.as_str()),
        (&Action::Access, "`mia` reaches it at CONFIDENTIAL, by `ada`, who owns it")
    );

    // Taken back: nothing passes when it is answered, and a vault that is dead passes nothing.
    let said = server.say(ADA, "mia", false);
    assert_eq!((told(&said), answer(&said, ADA)), (vec![(id(MIA), 1)], None));
    assert!(!server.connects(MIA), "a mediator hears so at once");
    assert_eq!(answer(&server.hear(Event::LabelDied(label())), ADA), Some(&Reply::AccessChanged));
    assert_eq!(told(&server.hear(Event::LabelUp(label()))), [(id(ADA), 2), (id(MIA), 1)]);

    // A vault that is lost may pass packets until it is dead: then alone it is so.
    server.hear(Event::VaultOpened(label(), id(ADA)));
    server.hear(Event::VaultOpened(label(), id(MIA)));
    server.say(ADA, "mia", true);
    assert_eq!(answer(&server.hear(Event::VaultOpened(label(), id(MIA))), ADA), Some(&Reply::AccessChanged));
    server.hear(Event::VaultLost(label()));
    let said = server.say(ADA, "mia", false);
    assert_eq!((told(&said), answer(&said, ADA)), (vec![], None), "{said:?}");
    assert_eq!(answer(&server.hear(Event::LabelDied(label())), ADA), Some(&Reply::AccessChanged));
    server.hear(Event::LabelUp(label()));
    server.hear(Event::VaultOpened(label(), id(MIA)));

    // What changes nothing tells nobody, and a person without a session needs none.
    for (user, admits) in [("mia", false), ("ugo", true)] {
        let said = server.say(ADA, user, admits);
        assert_eq!((told(&said), answer(&said, ADA)), (vec![], Some(&Reply::AccessChanged)));
    }
}

#[test]
fn who_says_the_same_is_answered_no_sooner_than_who_said_it_first_and_a_vault_that_says_nothing_is_killed() {
    let mut server = Server::new(vec![access("mia", true)]);
    let done = |said: &[Output]| said.iter().any(|one| matches!(one, Output::Operator(OPERATOR, Ok(()))));
    let killed = |said: &[Output]| said.iter().any(|one| matches!(one, Output::Kill(of) if *of == label()));
    server.say(ADA, "mia", false);
    let said = server.hear(Event::Access(OPERATOR, access("mia", false)));
    assert!(told(&said).is_empty() && !done(&said), "it passes packets still: {said:?}");
    server.now = server.now.after(Duration::from_millis(999));
    assert!(!killed(&server.hear(Event::Tick)));
    server.now = server.now.after(Duration::from_millis(1));
    let said = server.hear(Event::Tick);
    assert!(killed(&said) && !done(&said), "{said:?}");
    let said = server.hear(Event::LabelDied(label()));
    assert!(done(&said) && answer(&said, ADA) == Some(&Reply::AccessChanged), "{said:?}");
    server.hear(Event::LabelUp(label()));
    server.hear(Event::VaultOpened(label(), id(MIA)));

    // A session that ends may pass packets until its vault has closed it.
    server.say(ADA, "mia", true);
    server.hear(Event::VaultOpened(label(), id(MIA)));
    server.hear(Event::Request(MIA, Request::Logout));
    let said = server.hear(Event::Access(OPERATOR, access("mia", false)));
    assert!(!done(&said), "{said:?}");
    assert!(done(&server.hear(Event::VaultClosed(label(), id(MIA)))));
}

#[test]
fn what_cannot_be_recorded_is_not_allowed_and_is_forbidden_all_the_same() {
    let mut server = Server::new(vec![access("mia", true)]);
    assert!(server.connects(MIA));
    server.durable = false;
    let said = server.say(ADA, "ugo", true);
    assert!(matches!(answer(&said, ADA), Some(Reply::Refused(RefusalKind::Unavailable, _))), "{said:?}");
    let said = server.say(ADA, "mia", false);
    assert!(matches!(answer(&said, ADA), Some(Reply::Refused(RefusalKind::Unavailable, _))), "{said:?}");
    assert_eq!(told(&said), [(id(MIA), 1)]);
    assert!(!server.connects(MIA));
    server.hear(Event::VaultOpened(label(), id(MIA)));
    let listed = server.machine.accesses_at(&label(), None);
    assert_eq!(listed[0].people, ["ada".parse::<UserName>().unwrap()]);
}

#[test]
fn who_does_not_own_a_service_says_nothing_of_it_and_sees_nobody_else() {
    let mut server = Server::new(vec![access("mia", true), access("ugo", true)]);
    for (client, user) in [(MIA, "ugo"), (MIA, "mia"), (ADA, "ada"), (ADA, "nobody")] {
        let said = server.say(client, user, false);
        assert!(matches!(answer(&said, client), Some(Reply::Refused(RefusalKind::Access, _))), "{said:?}");
    }
    assert_eq!(server.stored, []);
    let shown = |server: &mut Server, client| {
        let said = server.hear(Event::Request(client, Request::Accesses));
        let Some(Reply::Accesses(shown)) = answer(&said, client) else { panic!("{said:?}") };
        let one = &shown[0];
        assert_eq!((shown.len(), one.service.as_str(), one.more), (1, "plans", false));
        (one.mine, one.people.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(shown(&mut server, ADA), (true, vec!["ada".into(), "mia".into(), "ugo".into()]));
    assert_eq!(shown(&mut server, MIA), (false, vec!["mia".into()]));
    // Nobody says anything without a session, or while it is locked.
    server.hear(Event::Request(ADA, Request::Lock));
    server.hear(Event::VaultOpened(label(), id(ADA)));
    let said = server.say(ADA, "mia", false);
    assert!(matches!(answer(&said, ADA), Some(Reply::Refused(RefusalKind::Locked, _))), "{said:?}");
    assert!(server.connects(MIA));
}

#[test]
fn an_operator_may_say_so_and_is_answered_alike() {
    let mut server = Server::new(vec![]);
    let said = server.hear(Event::Access(OPERATOR, access("mia", true)));
    let done = |said: &[Output]| said.iter().any(|one| matches!(one, Output::Operator(OPERATOR, Ok(()))));
    assert!(!done(&said));
    assert!(done(&server.hear(Event::VaultOpened(label(), id(MIA)))));
    assert!(server.connects(MIA));
    let wrong = Access { service: "web".parse().unwrap(), ..access("mia", true) };
    let said = server.hear(Event::Access(OPERATOR, wrong));
    assert!(said.iter().any(|one| matches!(one, Output::Operator(OPERATOR, Err(_)))), "{said:?}");
}

#[test]
fn what_was_said_counts_after_a_start_and_only_of_who_and_what_the_site_has() {
    let other = |service: &str, at: &str, user: &str| Access {
        label: at.parse().unwrap(),
        service: service.parse().unwrap(),
        user: user.parse().unwrap(),
        admits: true,
    };
    let stale = [
        other("web", LABEL, "mia"),
        other("plans", "SECRET", "mia"),
        other("plans", LABEL, "eve"),
        other("gone", LABEL, "mia"),
    ];
    let mut stored = stale.to_vec();
    stored.push(access("mia", true));
    let server = Server::new(stored);
    assert!(server.connects(MIA));
    assert_eq!(server.stored, stale.map(|access| (access, false)), "nobody who comes later has it");
}

#[test]
fn what_is_due_for_something_else_does_not_kill_a_vault_that_has_its_time_yet() {
    let mut server = Server::new(vec![]);
    let killed = |said: &[Output]| said.iter().any(|one| matches!(one, Output::Kill(of) if *of == label()));
    // A minute after a session was asked for it would have been too late for its making.
    server.now = server.now.after(Duration::from_millis(59_500));
    server.hear(Event::Tick);
    assert_eq!(told(&server.say(ADA, "mia", true)), [(id(MIA), 2)]);
    server.now = server.now.after(Duration::from_millis(500));
    assert!(!killed(&server.hear(Event::Tick)));
    server.now = server.now.after(Duration::from_millis(500));
    assert!(killed(&server.hear(Event::Tick)));
}

#[test]
fn an_owner_says_no_more_in_a_minute_than_the_site_allows() {
    let mut server = Server::new(vec![]);
    let of = |said: &[Output]| match answer(said, ADA) {
        Some(Reply::AccessChanged) => true,
        Some(Reply::Refused(RefusalKind::Unavailable, _)) => false,
        _ => panic!("{said:?}"),
    };
    // A person without a session: no vault is to be told.
    let good = (0..200).take_while(|n| of(&server.say(ADA, "ugo", n % 2 == 0))).count();
    assert_eq!(good, 60, "30 in a minute, twice as many at once");
    assert_eq!(server.stored.len(), good);
    server.now = server.now.after(Duration::from_secs(2));
    assert!(of(&server.say(ADA, "ugo", false)));
}

#[test]
fn no_more_people_are_listed_than_there_is_room_for_and_where_some_are_left_out_that_is_said() {
    let service = SITE.split_once("\n[[service]]\nname = \"plans\"").unwrap().1;
    let people: Vec<String> = (0..100).map(|n| format!("p{n:03}")).collect();
    let mut site = SITE.to_owned();
    for (name, port) in [("books", 8081), ("charts", 8082)] {
        let named = service.replace("8080", &port.to_string());
        site += &format!("\n[[service]]\nname = \"{name}\"{named}people = {people:?}\n");
    }
    for name in &people {
        site += &format!("[[user]]\nname = \"{name}\"\nclearance = \"CONFIDENTIAL\"\n");
    }
    let server = Server::at(&site, vec![]);
    let listed = server.machine.accesses_at(&label(), None);
    let listed: Vec<_> =
        listed.iter().map(|one| (one.service.as_str(), one.people.len(), one.more)).collect();
    // ada, who owns each, is one of them.
    assert_eq!(listed, [("books", 101, false), ("charts", 27, true), ("plans", 0, true)]);
}
