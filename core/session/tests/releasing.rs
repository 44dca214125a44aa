//! Messages of a guard that wait for two people: who is asked, whose word counts, and what ends the waiting.

use levee_policy::Site;
use levee_policy::audit::{Action, Verdict};
use levee_policy::site::Placed;
use levee_session::*;
use std::sync::Arc;
use std::time::Duration;

const SMALL: &str = include_str!("../../../conf/small/site.toml");
const DIGEST: [u8; 32] = [9; 32];
const TICKET: u64 = 77;

fn site() -> Site {
    let small = SMALL
        .replace("\"UNCLASSIFIED..CONFIDENTIAL//MED\"", "\"UNCLASSIFIED..SECRET//NATO,MED\"")
        .replace("\"UNCLASSIFIED..CONFIDENTIAL//NATO,MED\"", "\"UNCLASSIFIED..SECRET//NATO,MED\"")
        .replace("clearance = \"UNCLASSIFIED\"", "clearance = \"UNCLASSIFIED..SECRET\"");
    let partition = |name, label| {
        format!("[[partition]]\nname = \"{name}\"\nlabel = \"{label}\"\ncommand = [\"/usr/bin/true\"]\n")
    };
    let parts = ["high", "filter"].map(|name| partition(name, "SECRET")).concat();
    let low = partition("low", "UNCLASSIFIED");
    let host = "[[host]]\nname = \"ws3\"\naccreditation = \"UNCLASSIFIED..SECRET\"\n";
    let guard = "[[channel]]\nname = \"down\"\nkind = \"guard\"\nfrom = \"high\"\nto = \"low\"\nfilter = \"filter\"\nmessages = \"10 in 60s\"\n";
    let release = "release = [\"ada\", \"mia\"]\nrelease-within = \"60s\"\n";
    let postures = "[[posture]]\nname = \"few\"\npeople = [\"mia\"]\n[[posture]]\nname = \"desk\"\nhosts = [\"ws2\"]\n\
         [[posture]]\nname = \"both\"\npeople = [\"ada\", \"mia\"]\n";
    Site::parse(&format!("{small}\n{host}{parts}{low}{guard}{release}{postures}")).unwrap()
}

/// A server whose vaults do what they are told, and on which everything is durable while `writes` says so.
struct Server {
    machine: Sessions,
    now: Time,
    said: Vec<Output>,
    writes: bool,
    sessions: u8,
}

impl Server {
    fn new() -> Self {
        let now = Time::from_millis(1_000_000_000);
        let machine = Sessions::new(Arc::new(site()), vec![], [], [], [7; 16], now);
        Self { machine, now, said: Vec::new(), writes: true, sessions: 0 }
    }

    fn hear(&mut self, event: Event) {
        self.machine.handle(event, self.now);
        while let Some(output) = self.machine.poll() {
            let answer = match &output {
                Output::Commit(commit, ..) => Some(Event::Committed(*commit, self.writes)),
                Output::Verify(client, _) => Some(Event::Verified(*client, Verified::Right(None))),
                Output::Need(label) => Some(Event::LabelUp(label.clone())),
                Output::Vault(of, ToVault::Open { id, .. }) => Some(Event::VaultOpened(of.clone(), *id)),
                Output::Vault(of, ToVault::Close(id)) => Some(Event::VaultClosed(of.clone(), *id)),
                Output::Cut(cut, ..) => Some(Event::Cut(*cut, Some(0))),
                _ => None,
            };
            self.said.push(output);
            if let Some(answer) = answer {
                self.machine.handle(answer, self.now);
            }
        }
    }

    fn asks(&mut self, client: u64, request: Request) -> Reply {
        self.said.clear();
        self.hear(Event::Request(ClientId(client), request));
        let mut replies = self.said.iter().filter_map(|output| match output {
            Output::Reply(ClientId(to), reply) if *to == client => Some(reply.clone()),
            _ => None,
        });
        replies.next_back().expect("an answer")
    }

    /// Signs this person on at this workstation, with a session at this label.
    fn sits(&mut self, client: u64, user: &str, device: &str, label: &str) {
        let device = device.parse().unwrap();
        self.hear(Event::Hello { client: ClientId(client), device, fingerprint: [1; 32] });
        let signed_on = self.asks(client, Request::Login(user.parse().unwrap()));
        assert!(matches!(signed_on, Reply::LoggedIn(_)), "{signed_on:?}");
        self.level(client, label);
    }

    fn level(&mut self, client: u64, label: &str) {
        self.sessions += 1;
        let id = SessionId::from_random([self.sessions; 16]);
        let opened = self.asks(
            client,
            Request::Level {
                label: label.parse().unwrap(),
                protection: None,
                id,
                random: self.sessions.into(),
            },
        );
        assert!(matches!(opened, Reply::Opened { .. }), "{opened:?}");
    }

    fn offer(&mut self, content: &[u8]) {
        let channel = "down".parse().unwrap();
        self.hear(Event::Offered { channel, ticket: TICKET, digest: DIGEST, content: content.to_vec() });
    }

    fn waiting(&mut self, client: u64) -> Vec<Waiting> {
        match self.asks(client, Request::Releases) {
            Reply::Releases(waiting) => waiting,
            other => panic!("{other:?}"),
        }
    }

    /// Reads the whole of the only message that waits.
    fn reads(&mut self, client: u64) -> (ReleaseId, Vec<u8>) {
        let Waiting { id, message, .. } = self.waiting(client).remove(0);
        let mut content = Vec::new();
        while content.len() < message.octets as usize {
            match self.asks(client, Request::ShowRelease(id, content.len().try_into().unwrap())) {
                Reply::Part(part) => content.extend(part),
                other => panic!("{other:?}"),
            }
        }
        (id, content)
    }

    fn says(&mut self, client: u64, consent: Consent) -> Reply {
        let (id, _) = self.reads(client);
        self.asks(client, Request::Release(id, DIGEST, consent))
    }

    fn has_passed(&self) -> bool {
        self.said.iter().any(|output| matches!(output, Output::Pass(_, TICKET)))
    }

    fn has_refused(&self) -> bool {
        self.said.iter().any(|output| matches!(output, Output::NotReleased(_, TICKET)))
    }

    fn has_recorded(&self, verdict: Verdict) -> bool {
        let is =
            |entry: &levee_policy::audit::Event| entry.action == Action::Release && entry.verdict == verdict;
        self.said.iter().any(|output| match output {
            Output::Commit(_, entries, _) => entries.iter().any(is),
            Output::Audit(entry) => is(entry),
            _ => false,
        })
    }
}

fn is_refused(reply: &Reply, of: RefusalKind) -> bool {
    matches!(reply, Reply::Refused(kind, _) if *kind == of)
}

/// ada at ws1 and mia at ws2, both at SECRET.
fn both() -> Server {
    let mut server = Server::new();
    server.sits(1, "ada", "ws1", "SECRET");
    server.sits(2, "mia", "ws2", "SECRET");
    server
}

#[test]
fn two_people_are_shown_a_message_and_release_it_and_each_word_is_recorded_before_it_counts() {
    let mut server = both();
    let content: Vec<u8> = (0..PART * 2 + 5).map(|n| u8::try_from(n % 251).unwrap()).collect();
    server.offer(&content);
    for client in [1, 2] {
        let told = |output: &Output| matches!(output, Output::Reply(ClientId(to), Reply::Notice(what)) if *to == client && what.contains("guard down"));
        assert!(server.said.iter().any(told), "{:?}", server.said);
    }
    let (id, shown) = server.reads(1);
    assert_eq!(shown, content);
    assert_eq!(server.asks(1, Request::Release(id, DIGEST, Consent::Pass)), Reply::Released(Released::Waits));
    assert!(server.has_recorded(Verdict::Granted) && !server.has_passed());
    let waiting = server.waiting(2);
    assert_eq!(waiting[0].by, ["ada".parse().unwrap()]);
    assert_eq!(waiting[0].to.as_str(), "UNCLASSIFIED");
    assert_eq!(server.says(2, Consent::Pass), Reply::Released(Released::Passes));
    assert!(server.has_recorded(Verdict::Granted) && server.has_passed());
    assert!(server.waiting(1).is_empty());
}

#[test]
fn what_cannot_be_recorded_is_no_word() {
    let mut server = both();
    server.offer(b"tide");
    server.says(1, Consent::Pass);
    server.writes = false;
    assert!(is_refused(&server.says(2, Consent::Pass), RefusalKind::Unavailable));
    assert!(!server.has_passed());
    server.writes = true;
    assert_eq!(server.says(2, Consent::Pass), Reply::Released(Released::Passes));
}

#[test]
fn one_person_refuses_for_all_and_nobody_releases_twice_or_at_a_workstation_where_it_was_released() {
    let mut server = both();
    server.offer(b"tide");
    server.says(1, Consent::Pass);
    assert!(is_refused(&server.says(1, Consent::Pass), RefusalKind::Unavailable), "twice");
    server.sits(3, "ada", "ws3", "SECRET");
    assert!(
        is_refused(&server.says(3, Consent::Pass), RefusalKind::Unavailable),
        "twice, from another place"
    );
    server.asks(1, Request::Logout);
    server.asks(2, Request::Logout);
    server.hear(Event::Gone(ClientId(1)));
    server.sits(4, "mia", "ws1", "SECRET");
    let same = server.says(4, Consent::Pass);
    assert!(is_refused(&same, RefusalKind::Unavailable), "at the workstation where ada did: {same:?}");
    assert!(!server.has_passed());
    assert_eq!(server.says(4, Consent::Refuse), Reply::Released(Released::Refused));
    assert!(server.has_refused() && server.has_recorded(Verdict::Denied));
    assert!(server.waiting(3).is_empty());
}

#[test]
fn a_word_is_for_what_was_shown_whole_here_and_for_its_digest() {
    let mut server = both();
    server.offer(&vec![b'x'; PART + 1]);
    let id = server.waiting(1)[0].id;
    let pass = |id, digest| Request::Release(id, digest, Consent::Pass);
    assert!(is_refused(&server.asks(1, pass(id, DIGEST)), RefusalKind::Protocol), "nothing was shown");
    server.asks(1, Request::ShowRelease(id, 0));
    assert!(is_refused(&server.asks(1, pass(id, DIGEST)), RefusalKind::Protocol), "the end was not");
    let end = u32::try_from(PART).unwrap();
    server.asks(1, Request::ShowRelease(id, end));
    assert!(is_refused(&server.asks(1, pass(id, [8; 32])), RefusalKind::NoMessage), "another message");
    assert!(is_refused(&server.asks(1, pass(ReleaseId(id.0 + 1), DIGEST)), RefusalKind::NoMessage));
    // Who jumps to the end has not seen it.
    server.asks(2, Request::ShowRelease(id, end));
    assert!(is_refused(&server.asks(2, pass(id, DIGEST)), RefusalKind::Protocol));
    assert!(is_refused(&server.asks(2, Request::ShowRelease(id, end + 2)), RefusalKind::NoMessage));
    // Another session of the same person has not, either.
    server.level(1, "UNCLASSIFIED");
    server.level(1, "SECRET");
    assert!(is_refused(&server.asks(1, pass(id, DIGEST)), RefusalKind::Protocol));
    assert!(!server.has_passed());
}

#[test]
fn nobody_else_learns_of_it_and_a_locked_session_neither() {
    let mut server = both();
    server.sits(3, "ugo", "ws3", "SECRET");
    server.level(2, "UNCLASSIFIED");
    server.offer(b"tide");
    let told: Vec<u64> = (server.said.iter())
        .filter_map(|output| match output {
            Output::Reply(ClientId(to), Reply::Notice(_)) => Some(*to),
            _ => None,
        })
        .collect();
    assert_eq!(told, [1]);
    let id = server.waiting(1)[0].id;
    let mut answers = std::collections::BTreeSet::new();
    for client in [2, 3] {
        assert!(server.waiting(client).is_empty());
        let shown = server.asks(client, Request::ShowRelease(id, 0));
        assert!(is_refused(&shown, RefusalKind::NoMessage), "{shown:?}");
        // Who knows what the filter may have let through learns nothing by trying it: each is answered as what there is not.
        let none = ReleaseId(id.0 + 1);
        for (id, digest) in [(id, DIGEST), (id, [8; 32]), (none, DIGEST)] {
            for consent in [Consent::Pass, Consent::Refuse] {
                let word = server.asks(client, Request::Release(id, digest, consent));
                answers.insert(format!("{word:?}, {:?}", server.said));
                assert!(is_refused(&word, RefusalKind::NoMessage), "{word:?}");
            }
        }
        assert_eq!(answers.len(), 1, "{answers:#?}");
        answers.clear();
    }
    let (id, _) = server.reads(1);
    server.asks(1, Request::Lock);
    for request in
        [Request::Releases, Request::ShowRelease(id, 0), Request::Release(id, DIGEST, Consent::Pass)]
    {
        assert!(is_refused(&server.asks(1, request), RefusalKind::Locked));
    }
    assert!(!server.has_passed() && !server.has_refused());
}

#[test]
fn who_is_disabled_and_a_workstation_that_is_revoked_have_released_nothing() {
    for withdrawn in [
        Event::Disable(OperatorId(1), "ada".parse().unwrap(), true),
        Event::Revoked("ws1".parse().unwrap()),
        Event::Unproved("ws1".parse().unwrap()),
    ] {
        let mut server = both();
        server.offer(b"tide");
        assert_eq!(server.says(1, Consent::Pass), Reply::Released(Released::Waits));
        server.hear(withdrawn);
        assert_eq!(server.says(2, Consent::Pass), Reply::Released(Released::Waits));
        assert!(!server.has_passed());
    }
}

#[test]
fn whom_a_posture_lets_have_no_session_there_has_released_nothing() {
    for posture in ["few", "desk"] {
        let mut server = both();
        server.offer(b"tide");
        assert_eq!(server.says(1, Consent::Pass), Reply::Released(Released::Waits));
        let what = Placed::everywhere(posture.parse().unwrap());
        let wish = Wish { what, lasting: None, reason: "a drill".into() };
        server.hear(Event::Posture(OperatorId(1), wish));
        assert_eq!(server.says(2, Consent::Pass), Reply::Released(Released::Waits), "{posture}");
        assert!(!server.has_passed());
    }
}

/// What one of two people who have released a message is, when that counts no more.
fn withdrawn() -> Vec<Event> {
    let posture = |name: &str| {
        let what = Placed::everywhere(name.parse().unwrap());
        Event::Posture(OperatorId(1), Wish { what, lasting: None, reason: "a drill".into() })
    };
    vec![
        Event::Disable(OperatorId(1), "ada".parse().unwrap(), true),
        Event::Revoked("ws1".parse().unwrap()),
        Event::Unproved("ws1".parse().unwrap()),
        posture("few"),
        posture("desk"),
    ]
}

#[test]
fn what_two_have_released_passes_no_more_once_the_word_of_one_counts_no_more_and_it_has_not_passed() {
    for event in withdrawn() {
        let (mut server, mut through) = (both(), both());
        for server in [&mut server, &mut through] {
            server.offer(b"tide");
            server.says(1, Consent::Pass);
            assert_eq!(server.says(2, Consent::Pass), Reply::Released(Released::Passes));
        }
        server.said.clear();
        server.hear(event.clone());
        assert!(server.has_refused(), "{event:?}");
        let said = server.said.iter().any(|output| {
            matches!(output, Output::Audit(entry) if entry.action == Action::Pass && entry.verdict == Verdict::Denied)
        });
        assert!(said, "{event:?}: {:?}", server.said);
        // What its guard has said to be through is nobody's to hold back.
        through.hear(Event::Settled { channel: "down".parse().unwrap(), ticket: TICKET });
        through.said.clear();
        through.hear(event);
        assert!(!through.has_refused());
    }
}

#[test]
fn nothing_that_others_do_holds_back_what_two_have_released_or_says_that_it_has_passed() {
    let released = || {
        let mut server = both();
        server.offer(b"tide");
        server.says(1, Consent::Pass);
        assert_eq!(server.says(2, Consent::Pass), Reply::Released(Released::Passes));
        server.said.clear();
        server
    };
    let what = Placed::everywhere("both".parse().unwrap());
    for event in [
        Event::Disable(OperatorId(1), "ugo".parse().unwrap(), true),
        Event::Revoked("ws3".parse().unwrap()),
        Event::Unproved("ws3".parse().unwrap()),
        Event::Posture(OperatorId(1), Wish { what, lasting: None, reason: "a drill".into() }),
    ] {
        let mut server = released();
        server.hear(event.clone());
        assert!(!server.has_refused(), "{event:?}");
    }
    for (channel, ticket) in [("down", TICKET + 1), ("other", TICKET)] {
        let mut server = released();
        server.hear(Event::Settled { channel: channel.parse().unwrap(), ticket });
        server.hear(withdrawn().remove(0));
        assert!(server.has_refused(), "{channel} {ticket}");
    }
}

#[test]
fn what_may_pass_counts_among_what_waits_until_it_has_passed_or_its_guard_is_another() {
    let channel = || "down".parse().unwrap();
    for over in [Event::GuardLost(channel()), Event::Settled { channel: channel(), ticket: TICKET }] {
        let mut server = both();
        for _ in 0..MOST_WAITING {
            server.offer(b"tide");
            server.says(1, Consent::Pass);
            assert_eq!(server.says(2, Consent::Pass), Reply::Released(Released::Passes));
        }
        server.offer(b"tide");
        assert!(server.has_refused() && server.waiting(1).is_empty());
        server.hear(over);
        server.offer(b"tide");
        assert_eq!(server.waiting(1).len(), 1);
    }
}

#[test]
fn what_waits_too_long_or_is_too_much_or_whose_guard_is_gone_does_not_pass() {
    let mut server = both();
    server.offer(b"tide");
    server.says(1, Consent::Pass);
    server.now = server.now.after(Duration::from_secs(60));
    server.said.clear();
    server.hear(Event::Tick);
    assert!(server.has_refused());
    assert!(server.waiting(2).is_empty());
    for _ in 0..MOST_WAITING {
        server.offer(b"tide");
    }
    assert_eq!(server.waiting(2).len(), MOST_WAITING);
    server.said.clear();
    server.offer(b"tide");
    assert!(server.has_refused());
    server.said.clear();
    server.hear(Event::GuardLost("down".parse().unwrap()));
    assert!(server.waiting(2).is_empty() && !server.has_refused(), "there is nobody to tell");
    // A guard whose messages nobody releases, or that the site does not have, has nothing to offer.
    let channel = "up".parse().unwrap();
    server.hear(Event::Offered { channel, ticket: TICKET, digest: DIGEST, content: vec![1] });
    assert!(server.has_refused());
}

#[test]
fn a_messages_number_tells_nothing_of_what_else_the_server_does() {
    let mut server = both();
    server.offer(b"one");
    // What others do, at other labels.
    server.sits(3, "ugo", "ws3", "UNCLASSIFIED");
    for label in ["CONFIDENTIAL", "SECRET", "UNCLASSIFIED"] {
        server.level(3, label);
    }
    server.offer(b"two");
    let numbers: Vec<u64> = server.waiting(1).iter().map(|waiting| waiting.id.0).collect();
    assert_eq!(numbers, [1, 2]);
    // One that waits no more has had its number.
    assert_eq!(server.says(1, Consent::Refuse), Reply::Released(Released::Refused));
    server.offer(b"three");
    let numbers: Vec<u64> = server.waiting(1).iter().map(|waiting| waiting.id.0).collect();
    assert_eq!(numbers, [2, 3]);
}

#[test]
fn what_is_larger_than_a_message_of_the_guard_may_be_is_not_kept() {
    let mut server = both();
    server.offer(&vec![b'x'; (32 << 10) + 1]);
    assert!(server.has_refused() && server.waiting(1).is_empty());
    server.offer(&vec![b'x'; 32 << 10]);
    assert_eq!(server.waiting(1).len(), 1);
}
