//! Sessions of a site with several servers: nothing passes that the others could not be made to end, and an end waits for them.

use levee_policy::audit::{Action, Verdict};
use levee_policy::site::Placed;
use levee_policy::{DomainName, Site};
use levee_session::federation::{Publication, Shared};
use levee_session::*;
use std::sync::Arc;
use std::time::Duration;

const SITE: &str = concat!(
    include_str!("../../../conf/small/site.toml"),
    r#"
[federation]
etcd = ["10.77.0.9:2379"]
etcd-name = "etcd.harbour.example"
lease = "4s"
[[federation.peer]]
name = "two.harbour.example"
address = "10.77.0.2"
inner-address = "10.80.0.2"
inner-pool = "10.80.2.0/24"
"#
);
const CLIENT: ClientId = ClientId(1);
const LABEL: &str = "SECRET";

/// A server on which everything is durable at once and every password is right.
struct Server {
    machine: Sessions,
    now: Time,
    said: Vec<Output>,
    log: Vec<(Action, Verdict)>,
    stored: Vec<Change>,
}

impl Server {
    fn new(stored: Vec<Stored>) -> Self {
        Self::at(SITE, stored)
    }

    fn at(site: &str, stored: Vec<Stored>) -> Self {
        let now = Time::from_millis(1_000_000_000);
        let machine = Sessions::new(Arc::new(Site::parse(site).unwrap()), stored, [], [], [7; 16], now);
        let mut server = Self { machine, now, said: Vec::new(), log: Vec::new(), stored: Vec::new() };
        server.hear(Event::Tick);
        server
    }

    fn hear(&mut self, event: Event) -> Vec<Output> {
        self.machine.handle(event, self.now);
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Commit(commit, entries, changes) => {
                    self.stored.extend(changes);
                    self.log.extend(entries.into_iter().map(|entry| (entry.action, entry.verdict)));
                    self.machine.handle(Event::Committed(commit, true), self.now);
                }
                Output::Audit(entry) => self.log.push((entry.action, entry.verdict)),
                Output::Verify(client, _) => {
                    self.machine.handle(Event::Verified(client, Verified::Right(None)), self.now);
                }
                Output::Cut(cut, ..) => self.machine.handle(Event::Cut(cut, Some(0)), self.now),
                output => self.said.push(output),
            }
        }
        std::mem::take(&mut self.said)
    }

    /// Somebody asks for a session; the label comes up.
    fn asked_for(&mut self) -> (SessionId, Vec<Output>) {
        let device = "ws1".parse().unwrap();
        self.hear(Event::Hello { client: CLIENT, device, fingerprint: [1; 32] });
        self.hear(Event::Request(CLIENT, Request::Login("ada".parse().unwrap())));
        let (id, label) = (SessionId::from_random([7; 16]), LABEL.parse().unwrap());
        let mut said =
            self.hear(Event::Request(CLIENT, Request::Level { label, protection: None, id, random: 1 }));
        said.extend(self.hear(Event::LabelUp(LABEL.parse().unwrap())));
        (id, said)
    }

    fn opened(&mut self) -> SessionId {
        let (id, _) = self.asked_for();
        let said = self.hear(Event::Published(id, Publication::Done));
        assert!(is_opened_in_vault(&said), "{said:?}");
        let said = self.hear(Event::VaultOpened(LABEL.parse().unwrap(), id));
        assert!(
            said.iter().any(|output| matches!(output, Output::Reply(_, Reply::Opened { .. }))),
            "{said:?}"
        );
        id
    }

    /// The keyer asks for keys of the workstation's session.
    fn wanted(&mut self, ticket: u64, accreditation: &str) -> Vec<Output> {
        let (device, label) = ("ws1".parse().unwrap(), LABEL.parse().unwrap());
        self.hear(Event::Wanted { ticket, device, label, accreditation: Some(accreditation.to_owned()) })
    }
}

fn is_opened_in_vault(said: &[Output]) -> bool {
    said.iter().any(|output| matches!(output, Output::Vault(_, ToVault::Open { .. })))
}

fn has(said: &[Output], wanted: impl Fn(&Output) -> bool) -> bool {
    said.iter().any(wanted)
}

fn theirs(user: &str, label: &str, inner: &str) -> Box<Shared> {
    let record = Stored {
        id: SessionId::from_random([9; 16]),
        user: user.parse().unwrap(),
        device: "ws1".parse().unwrap(),
        fingerprint: [1; 32],
        label: label.parse().unwrap(),
        inner: vec![inner.parse().unwrap()],
        opened: Time::default(),
        protection: None,
    };
    Box::new(Shared { owner: "two.harbour.example".parse().unwrap(), record })
}

/// Whose session that is.
fn two() -> DomainName {
    "two.harbour.example".parse().unwrap()
}

/// So many questions about one session may wait.
const TICKETS: u64 = 8;
const ALL: &str = "UNCLASSIFIED..SECRET//NATO,MED";

#[test]
fn no_vault_has_a_session_before_the_others_know_it_and_one_that_they_refuse_is_refused() {
    for what in [Publication::Refused("taken".into()), Publication::Unknown("no answer".into())] {
        let mut server = Server::new(vec![]);
        let (id, said) = server.asked_for();
        assert!(has(&said, |output| matches!(output, Output::Publish(record) if record.id == id)));
        assert!(!is_opened_in_vault(&said), "{said:?}");
        let unknown = matches!(what, Publication::Unknown(_));
        let mut said = server.hear(Event::Published(id, what));
        assert_eq!(has(&said, |output| matches!(output, Output::Withdraw(_))), unknown, "{said:?}");
        if unknown {
            said = server.hear(Event::Withdrawn(id));
        }
        assert!(has(&said, |output| matches!(output, Output::Reply(_, Reply::Refused(..)))), "{said:?}");
        assert!(!is_opened_in_vault(&said), "{said:?}");
    }
}

#[test]
fn a_sign_off_is_acknowledged_when_no_other_server_passes_anything() {
    let mut server = Server::new(vec![]);
    let id = server.opened();
    let logged_out = |output: &Output| matches!(output, Output::Reply(_, Reply::LoggedOut));
    let said = server.hear(Event::Request(CLIENT, Request::Logout));
    assert!(
        has(&said, |output| matches!(output, Output::Withdraw(_))),
        "they need not wait for the vault here"
    );
    let said = server.hear(Event::VaultClosed(LABEL.parse().unwrap(), id));
    assert!(!has(&said, logged_out), "{said:?}");
    assert!(has(&server.hear(Event::Withdrawn(id)), logged_out));
}

#[test]
fn who_waits_for_another_server_is_told_in_the_end_that_it_is_not_known() {
    let mut server = Server::new(vec![]);
    let id = server.opened();
    server.hear(Event::Request(CLIENT, Request::Logout));
    server.hear(Event::VaultClosed(LABEL.parse().unwrap(), id));
    let refused =
        |output: &Output| matches!(output, Output::Reply(_, Reply::Refused(RefusalKind::Unavailable, _)));
    // When the vault had its second, and at the end of three leases.
    let begun = server.now;
    server.now = begun.after(SILENCE);
    assert!(!has(&server.hear(Event::Tick), refused));
    server.now = begun.after(Duration::from_secs(3 * 4));
    let said = server.hear(Event::Tick);
    assert!(has(&said, refused), "{said:?}");
    assert_eq!(server.machine.shown().len(), 1, "and still it is pursued");
    server.hear(Event::Withdrawn(id));
    assert_eq!(server.machine.shown().len(), 0);
}

#[test]
fn a_session_of_another_server_starts_its_label_here_when_keys_are_wanted_and_goes_when_it_is_over_there() {
    let mut server = Server::new(vec![]);
    let id = theirs("ada", LABEL, "10.80.2.7").record.id;
    let said = server.hear(Event::Appeared(theirs("ada", LABEL, "10.80.2.7")));
    assert!(said.is_empty(), "nothing runs for it yet: {said:?}");
    assert!(server.log.contains(&(Action::Session, Verdict::Granted)), "{:?}", server.log);
    assert!(
        has(&server.wanted(1, "UNCLASSIFIED"), |output| matches!(output, Output::Keys(1, None))),
        "not accredited"
    );
    let said = server.wanted(2, ALL);
    assert!(matches!(said[..], [Output::Need(_)]), "{said:?}");
    assert!(is_opened_in_vault(&server.hear(Event::LabelUp(LABEL.parse().unwrap()))));
    let said = server.hear(Event::VaultOpened(LABEL.parse().unwrap(), id));
    assert!(
        has(&said, |output| matches!(output, Output::Keys(2, Some(record)) if record.id == id)),
        "{said:?}"
    );
    // Nobody takes it up at this server.
    let device = "ws1".parse().unwrap();
    server.hear(Event::Hello { client: CLIENT, device, fingerprint: [1; 32] });
    let said = server.hear(Event::Request(CLIENT, Request::Resume(id)));
    assert!(has(&said, |output| matches!(output, Output::Reply(_, Reply::Refused(..)))), "{said:?}");
    let over = |output: &Output| matches!(output, Output::Over(_, of) if *of == id);
    let said = server.hear(Event::Vanished(two(), id));
    assert!(!has(&said, over), "its vault has it still: {said:?}");
    let said = server.hear(Event::VaultClosed(LABEL.parse().unwrap(), id));
    assert!(has(&said, over) && !has(&said, |output| matches!(output, Output::Withdraw(_))), "{said:?}");
    // This server never had it, but the label's store for its person's sake.
    assert!(matches!(&server.stored[..], [Change::First(..)]), "{:?}", server.stored);
}

#[test]
fn where_nobody_was_a_person_of_another_server_is_the_first_at_as_many_labels_as_one_of_this_one() {
    let site = SITE.replace("first-labels = 128", "first-labels = 1");
    assert_ne!(site, SITE);
    let other = "CONFIDENTIAL";
    let keys = |was_first: &str| {
        let mut server = Server::at(&site, vec![]);
        server.machine.remember_firsts([(was_first.parse().unwrap(), "ada".parse().unwrap())]);
        server.hear(Event::Appeared(theirs("ada", LABEL, "10.80.2.7")));
        server.wanted(1, ALL)
    };
    assert!(matches!(keys(LABEL)[..], [Output::Need(_)]), "she was the first there herself");
    let said = keys(other);
    assert!(has(&said, |output| matches!(output, Output::Keys(1, None))), "{said:?}");
    assert!(!has(&said, |output| matches!(output, Output::Need(_))), "{said:?}");
}

#[test]
fn what_of_anothers_session_could_not_go_on_here_is_missing_and_what_somebody_ended_is_over() {
    let label = || LABEL.parse().unwrap();
    let begun = || {
        let mut server = Server::new(vec![]);
        let shared = theirs("ada", LABEL, "10.80.2.7");
        let id = shared.record.id;
        server.hear(Event::Appeared(shared));
        server.wanted(1, ALL);
        (server, id)
    };
    let missing =
        |said: &[Output], id| has(said, |output| matches!(output, Output::Missing(_, of) if *of == id));
    let over = |said: &[Output], id| has(said, |output| matches!(output, Output::Over(_, of) if *of == id));
    let (mut server, id) = begun();
    let said = server.hear(Event::LabelFailed(label(), "its image is broken".into()));
    assert!(missing(&said, id) && !over(&said, id), "{said:?}");
    // It may be used again.
    server.hear(Event::Appeared(theirs("ada", LABEL, "10.80.2.7")));
    assert!(matches!(server.wanted(2, ALL)[..], [Output::Need(_)]));
    server.hear(Event::LabelUp(label()));
    let said = server.hear(Event::VaultClosed(label(), id));
    assert!(missing(&said, id) && !over(&said, id), "its vault did not take it: {said:?}");
    // An operator of this server has ended it.
    let (mut server, id) = begun();
    let said = server.hear(Event::End(OperatorId(1), id.to_string()));
    assert!(over(&said, id) && !missing(&said, id), "{said:?}");
    // Also where it was ending by itself just then.
    let (mut server, id) = begun();
    server.hear(Event::LabelUp(label()));
    server.machine.handle(Event::VaultClosed(label(), id), server.now);
    let said = server.hear(Event::End(OperatorId(1), id.to_string()));
    assert!(over(&said, id) && !missing(&said, id), "{said:?}");
}

#[test]
fn what_an_operator_has_ended_here_is_not_used_here_again_whatever_its_own_server_says() {
    let begun = || {
        let mut server = Server::new(vec![]);
        let shared = theirs("ada", LABEL, "10.80.2.7");
        let id = shared.record.id;
        server.hear(Event::Appeared(shared));
        (server, id)
    };
    let told = |said: &[Output]| has(said, |output| matches!(output, Output::Operator(_, Ok(()))));
    let comes_back = |server: &mut Server| {
        server.log.clear();
        server.hear(Event::Appeared(theirs("ada", LABEL, "10.80.2.7")));
        let verdicts: Vec<Verdict> = server.log.iter().map(|(_, verdict)| *verdict).collect();
        assert_eq!(verdicts.len(), 1, "{verdicts:?}");
        verdicts == [Verdict::Granted]
    };
    let (mut server, id) = begun();
    assert!(told(&server.hear(Event::End(OperatorId(1), id.to_string()))));
    let kept = [Change::EndedHere(id, Some(server.now))];
    assert_eq!(server.stored, kept);
    // It is over there, or seems to be, and is there again: it was locked, or a server was cut off.
    for _ in 0..3 {
        assert!(!comes_back(&mut server));
        server.hear(Event::Vanished(two(), id));
    }
    // So it is for who comes after this process.
    let mut next = Server::new(vec![]);
    next.machine.remember_ended_here([(id, server.now)]);
    assert!(!comes_back(&mut next));

    // Where its end is being recorded just then, for another reason, that is not told before it is kept.
    let (mut server, id) = begun();
    server.machine.handle(Event::Vanished(two(), id), server.now);
    let Some(Output::Commit(commit, ..)) =
        std::iter::from_fn(|| server.machine.poll()).find(|output| matches!(output, Output::Commit(..)))
    else {
        panic!("its end is recorded")
    };
    server.machine.handle(Event::End(OperatorId(1), id.to_string()), server.now);
    server.machine.handle(Event::Tick, server.now);
    assert!(told(&server.hear(Event::Committed(commit, true))));
    assert_eq!(server.stored, kept);
    assert!(!comes_back(&mut server));

    // What has ended without an operator's word comes back.
    let (mut server, id) = begun();
    server.hear(Event::Vanished(two(), id));
    assert!(comes_back(&mut server));
}

#[test]
fn of_sessions_that_operators_have_ended_here_so_many_are_kept_and_no_more() {
    let mut server = Server::new(vec![]);
    let ids = (0..16_384u16).map(|n| {
        let mut name = [3; 16];
        name[..2].copy_from_slice(&n.to_be_bytes());
        (SessionId::from_random(name), Time::from_millis(u64::from(n) + 1))
    });
    let ids: Vec<_> = ids.collect();
    server.machine.remember_ended_here(ids.clone());
    let shared = theirs("ada", LABEL, "10.80.2.7");
    let id = shared.record.id;
    server.hear(Event::Appeared(shared));
    server.hear(Event::End(OperatorId(1), id.to_string()));
    server.stored.sort_by_key(|change| matches!(change, Change::EndedHere(_, Some(_))));
    let oldest = ids[0].0;
    assert_eq!(server.stored, [Change::EndedHere(oldest, None), Change::EndedHere(id, Some(server.now))]);
}

#[test]
fn the_policy_is_asked_here_as_well_and_nobody_gets_an_address_or_a_session_of_this_server() {
    for (user, label, inner) in [
        ("ugo", LABEL, "10.80.2.7"),
        ("nobody", LABEL, "10.80.2.7"),
        ("ada", "SECRET//CRYPTO", "10.80.2.7"),
        ("ada", LABEL, "10.80.1.7"),
        // Nobody's, everybody's, a server's own, no pool's, a network's.
        ("ada", LABEL, "0.0.0.0"),
        ("ada", LABEL, "10.80.0.1"),
        ("ada", LABEL, "10.80.0.2"),
        ("ada", LABEL, "192.0.2.7"),
        ("ada", LABEL, "10.80.2.0"),
        ("ada", LABEL, "10.80.2.255"),
        ("ada", LABEL, "fd00::7"),
    ] {
        let mut server = Server::new(vec![]);
        server.hear(Event::Appeared(theirs(user, label, inner)));
        assert_eq!(server.log, [(Action::Session, Verdict::Denied)], "{user} {label} {inner}");
        assert!(has(&server.wanted(1, ALL), |output| matches!(output, Output::Keys(1, None))));
        let id = theirs(user, label, inner).record.id;
        assert!(has(&server.hear(Event::Vanished(two(), id)), |output| matches!(output, Output::Over(..))));
    }
    let mut server = Server::new(vec![]);
    let own = server.opened();
    server.log.clear();
    server.hear(Event::Appeared(theirs("ada", LABEL, "10.80.2.7")));
    assert!(server.machine.shown().map(|shown| shown.id).eq([own]), "the workstation has one here");
    assert_eq!(server.log, [(Action::Session, Verdict::Denied)]);
    // An owner that is no other server of the site; two addresses of one family, or none.
    let other = |owner: &str, inner: &[&str]| {
        let mut shared = theirs("ada", LABEL, "10.80.2.7");
        shared.owner = owner.parse().unwrap();
        shared.record.inner = inner.iter().map(|address| address.parse().unwrap()).collect();
        shared
    };
    for (owner, inner) in [
        ("three.harbour.example", &["10.80.2.7"][..]),
        ("server.harbour.example", &["10.80.2.7"]),
        ("two.harbour.example", &["10.80.2.7", "10.80.2.8"]),
        ("two.harbour.example", &[]),
    ] {
        let mut server = Server::new(vec![]);
        server.hear(Event::Appeared(other(owner, inner)));
        assert_eq!(server.log, [(Action::Session, Verdict::Denied)], "{owner} {inner:?}");
    }
}

#[test]
fn without_a_lease_everything_ends_and_what_another_run_left_is_not_taken_up() {
    let mut server = Server::new(vec![]);
    let id = server.opened();
    let said = server.hear(Event::Fence("cut off".into()));
    let close = |output: &Output| matches!(output, Output::Vault(_, ToVault::Close(of)) if *of == id);
    assert!(has(&said, close), "{said:?}");
    assert!(
        has(&said, |output| matches!(output, Output::Reply(_, Reply::Ended(_))))
            || server.machine.live(id).is_none()
    );
    let stored =
        Stored { inner: vec!["10.80.1.7".parse().unwrap()], ..theirs("ada", LABEL, "10.80.1.7").record };
    let server = Server::new(vec![stored.clone()]);
    assert!(server.machine.live(stored.id).is_none());
}

#[test]
fn a_person_who_is_disabled_here_has_no_session_here_of_another_server_either() {
    let (operator, ada) = (OperatorId(1), || "ada".parse().unwrap());
    let id = theirs("ada", LABEL, "10.80.2.7").record.id;
    let mut server = Server::new(vec![]);
    server.hear(Event::Disable(operator, ada(), true));
    server.log.clear();
    server.hear(Event::Appeared(theirs("ada", LABEL, "10.80.2.7")));
    assert_eq!(server.log, [(Action::Session, Verdict::Denied)]);
    assert!(has(&server.wanted(1, ALL), |output| matches!(output, Output::Keys(1, None))));
    assert!(has(&server.hear(Event::Vanished(two(), id)), |output| matches!(output, Output::Over(..))));
    // Enabled, they have the next one.
    server.hear(Event::Disable(operator, ada(), false));
    server.hear(Event::Appeared(theirs("ada", LABEL, "10.80.2.7")));
    assert_eq!(server.log.last(), Some(&(Action::Session, Verdict::Granted)));
    // One that is there ends.
    server.wanted(2, ALL);
    server.hear(Event::LabelUp(LABEL.parse().unwrap()));
    server.hear(Event::VaultOpened(LABEL.parse().unwrap(), id));
    let said = server.hear(Event::Disable(operator, ada(), true));
    assert!(
        has(&said, |output| matches!(output, Output::Vault(_, ToVault::Close(of)) if *of == id)),
        "{said:?}"
    );
}

#[test]
fn a_vault_is_told_whose_session_it_has_and_one_that_clashes_ends() {
    let owner = |said: &[Output]| {
        said.iter().find_map(|output| match output {
            Output::Vault(_, ToVault::Open { owner, .. }) => Some(owner.clone()),
            _ => None,
        })
    };
    let mut server = Server::new(vec![]);
    server.hear(Event::Appeared(theirs("ada", LABEL, "10.80.2.7")));
    server.wanted(1, ALL);
    let said = server.hear(Event::LabelUp(LABEL.parse().unwrap()));
    assert_eq!(owner(&said), Some(Some("two.harbour.example".parse().unwrap())));
    let mut server = Server::new(vec![]);
    let (id, _) = server.asked_for();
    assert_eq!(owner(&server.hear(Event::Published(id, Publication::Done))), Some(None));
    server.hear(Event::VaultOpened(LABEL.parse().unwrap(), id));
    let said = server.hear(Event::Clash(id));
    assert!(
        has(&said, |output| matches!(output, Output::Vault(_, ToVault::Close(of)) if *of == id)),
        "{said:?}"
    );
    assert!(has(&said, |output| matches!(output, Output::Withdraw(_))), "{said:?}");
}

#[test]
fn a_locked_session_is_withdrawn_everywhere_and_passes_again_once_it_is_known_everywhere() {
    let mut server = Server::new(vec![]);
    let id = server.opened();
    let label = || LABEL.parse().unwrap();
    let said = server.hear(Event::Request(CLIENT, Request::Lock));
    assert!(
        said.iter().any(|output| matches!(output, Output::Withdraw(record) if record.id == id)),
        "{said:?}"
    );
    let bare =
        |output: &Output| matches!(output, Output::Vault(_, ToVault::Open { reach, .. }) if reach.is_empty());
    assert!(said.iter().any(bare), "{said:?}");
    let said = server.hear(Event::VaultOpened(label(), id));
    assert!(said.iter().any(|output| matches!(output, Output::Reply(_, Reply::Locked))), "{said:?}");
    // The others have not said that they have ended it: it cannot be told to them anew.
    let said = server.hear(Event::Request(CLIENT, Request::Unlock));
    let is_refused =
        |output: &Output| matches!(output, Output::Reply(_, Reply::Refused(RefusalKind::Unavailable, _)));
    assert!(said.iter().any(is_refused) && !is_opened_in_vault(&said), "{said:?}");
    server.hear(Event::Withdrawn(id));
    let said = server.hear(Event::Request(CLIENT, Request::Unlock));
    assert!(
        said.iter().any(|output| matches!(output, Output::Publish(record) if record.id == id)),
        "{said:?}"
    );
    assert!(!is_opened_in_vault(&said), "not before they can be made to end it: {said:?}");
    let said = server.hear(Event::Published(id, Publication::Done));
    assert!(is_opened_in_vault(&said) && !said.iter().any(bare), "{said:?}");
    let said = server.hear(Event::VaultOpened(label(), id));
    assert!(said.iter().any(|output| matches!(output, Output::Reply(_, Reply::Unlocked))), "{said:?}");
}

#[test]
fn a_session_of_another_server_is_locked_by_that_server_and_not_here() {
    let site = SITE.replacen("slots = 64", "idle-lock = \"5m\"\nslots = 64", 1);
    let mut server = Server::at(&site, vec![]);
    let id = theirs("ada", LABEL, "10.80.2.7").record.id;
    server.hear(Event::Appeared(theirs("ada", LABEL, "10.80.2.7")));
    server.wanted(1, ALL);
    server.hear(Event::LabelUp(LABEL.parse().unwrap()));
    server.hear(Event::VaultOpened(LABEL.parse().unwrap(), id));
    let until = server.now.after(Duration::from_secs(600));
    while let Some(due) = server.machine.deadline().filter(|due| *due <= until) {
        server.now = due.max(server.now);
        for output in server.hear(Event::Tick) {
            match output {
                Output::Vault(label, ToVault::Ping(number)) => {
                    server.hear(Event::VaultPong(label, number));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(server.machine.live(id).is_some_and(|shown| !shown.locked));
}

/// A session of the other server at a label at which each workstation may have one.
fn lower(number: u8, device: &str, label: &str, inner: &str) -> Box<Shared> {
    let mut shared = theirs("ada", label, inner);
    (shared.record.id, shared.record.device) =
        (SessionId::from_random([number; 16]), device.parse().unwrap());
    shared
}

#[test]
fn a_name_and_at_its_label_an_address_are_one_sessions_recorded_or_not() {
    for recorded in [true, false] {
        for (number, label, inner, verdict) in [
            (2, "CONFIDENTIAL", "10.80.2.7", Verdict::Denied),
            (2, "CONFIDENTIAL", "10.80.2.8", Verdict::Granted),
            (2, "UNCLASSIFIED", "10.80.2.7", Verdict::Granted),
            (1, "CONFIDENTIAL", "10.80.2.8", Verdict::Denied),
        ] {
            let mut server = Server::new(vec![]);
            let first = Event::Appeared(lower(1, "ws1", "CONFIDENTIAL", "10.80.2.7"));
            if recorded {
                server.hear(first);
            } else {
                server.machine.handle(first, server.now);
                while server.machine.poll().is_some() {}
            }
            server.log.clear();
            server.hear(Event::Appeared(lower(number, "ws2", label, inner)));
            assert_eq!(server.log, [(Action::Session, verdict)], "{recorded} {number} {label} {inner}");
        }
    }
}

#[test]
fn what_was_said_while_a_session_of_another_server_was_recorded_counts() {
    let appeared = |server: &mut Server| {
        server.machine.handle(Event::Appeared(lower(1, "ws1", LABEL, "10.80.2.7")), server.now);
        let commit = std::iter::from_fn(|| server.machine.poll()).find_map(|output| match output {
            Output::Commit(commit, ..) => Some(commit),
            _ => None,
        });
        commit.expect("it is to be recorded")
    };
    let id = SessionId::from_random([1; 16]);
    for (durable, disabled, taken) in [(true, false, true), (false, false, false), (true, true, false)] {
        let mut server = Server::new(vec![]);
        let commit = appeared(&mut server);
        if disabled {
            server.hear(Event::Disable(OperatorId(1), "ada".parse().unwrap(), true));
        }
        server.hear(Event::Committed(commit, durable));
        assert_eq!(server.machine.live(id).is_some(), taken, "{durable} {disabled}");
    }
    // A posture is in force by now, which was recorded before: both in one turn, as a group of records is.
    let posture = "[[posture]]\nname = \"siege\"\npeople = [\"mia\"]\n";
    for (wished, taken) in [("siege", false), ("", true)] {
        let mut server = Server::at(&format!("{SITE}{posture}"), vec![]);
        let what = Placed { posture: wished.parse().ok(), labels: None };
        let wish = Wish { what, lasting: None, reason: String::new() };
        server.machine.handle(Event::Posture(OperatorId(1), wish), server.now);
        let commits = |server: &mut Server| -> Vec<CommitId> {
            let said = std::iter::from_fn(|| server.machine.poll());
            said.filter_map(|output| match output {
                Output::Commit(commit, ..) => Some(commit),
                _ => None,
            })
            .collect()
        };
        server.machine.handle(Event::Appeared(lower(1, "ws1", LABEL, "10.80.2.7")), server.now);
        let commits = commits(&mut server);
        assert_eq!(commits.len(), 2);
        for commit in commits {
            server.hear(Event::Committed(commit, true));
        }
        assert_eq!(server.machine.live(id).is_some(), taken, "{wished}");
        let ended = server.log.contains(&(Action::End, Verdict::Noted));
        assert_eq!(ended, !taken, "{:?}", server.log);
    }
    // Somebody has a session there by now.
    let mut server = Server::new(vec![]);
    let commit = appeared(&mut server);
    let own = server.opened();
    server.hear(Event::Committed(commit, true));
    assert!(server.machine.shown().map(|shown| shown.id).eq([own]));
}

#[test]
fn so_many_questions_wait_for_a_label_and_all_are_refused_when_its_session_is_over() {
    let mut server = Server::new(vec![]);
    let id = theirs("ada", LABEL, "10.80.2.7").record.id;
    server.hear(Event::Appeared(theirs("ada", LABEL, "10.80.2.7")));
    let refused = |said: &[Output]| -> Vec<u64> {
        let of = |output: &Output| match output {
            Output::Keys(ticket, None) => Some(*ticket),
            _ => None,
        };
        said.iter().filter_map(of).collect()
    };
    for ticket in 1..=TICKETS {
        assert!(refused(&server.wanted(ticket, ALL)).is_empty(), "{ticket}");
    }
    assert_eq!(refused(&server.wanted(TICKETS + 1, ALL)), [TICKETS + 1]);
    assert_eq!(refused(&server.hear(Event::Vanished(two(), id))), (1..=TICKETS).collect::<Vec<_>>());
}

#[test]
fn a_session_of_another_server_may_have_an_address_of_each_family() {
    let site = SITE
        .replacen("inner-address = \"10.80.0.2\"", "inner-address = [\"10.80.0.2\", \"fd00:80::2\"]", 1)
        .replacen("inner-pool = \"10.80.2.0/24\"", "inner-pool = [\"10.80.2.0/24\", \"fd00:82::/64\"]", 1)
        .replacen("inner-address = \"10.80.0.1\"", "inner-address = [\"10.80.0.1\", \"fd00:80::1\"]", 1)
        .replacen("inner-pool = \"10.80.1.0/24\"", "inner-pool = [\"10.80.1.0/24\", \"fd00:81::/64\"]", 1);
    for (inner, verdict) in [
        (&["10.80.2.7", "fd00:82::7"][..], Verdict::Granted),
        (&["fd00:82::7"], Verdict::Granted),
        (&["fd00:82::7", "fd00:82::8"], Verdict::Denied),
        (&["10.80.2.7", "fd00:81::7"], Verdict::Denied),
    ] {
        let mut server = Server::at(&site, vec![]);
        let mut shared = theirs("ada", LABEL, "10.80.2.7");
        shared.record.inner = inner.iter().map(|address| address.parse().unwrap()).collect();
        server.hear(Event::Appeared(shared));
        assert_eq!(server.log, [(Action::Session, verdict)], "{inner:?}");
    }
}

#[test]
fn a_session_of_another_server_ends_by_no_third_ones_word() {
    let (mut server, shared) = (Server::new(vec![]), theirs("ada", LABEL, "10.80.2.7"));
    let id = shared.record.id;
    server.hear(Event::Appeared(shared));
    assert!(server.machine.live(id).is_some());
    let three: DomainName = "three.harbour.example".parse().unwrap();
    let said = server.hear(Event::Vanished(three.clone(), id));
    assert!(matches!(&said[..], [Output::Over(of, over)] if *of == three && *over == id), "{said:?}");
    assert!(server.machine.live(id).is_some(), "it goes on");
    server.hear(Event::Vanished(two(), id));
    assert!(server.machine.live(id).is_none());
    // So it is as long as it is being recorded.
    for (owner, goes_on) in [("three.harbour.example".parse().unwrap(), true), (two(), false)] {
        let (mut server, shared) = (Server::new(vec![]), theirs("ada", LABEL, "10.80.2.7"));
        let id = shared.record.id;
        server.machine.handle(Event::Appeared(shared), server.now);
        server.hear(Event::Vanished(owner, id));
        assert_eq!(server.machine.live(id).is_some(), goes_on);
    }
}
