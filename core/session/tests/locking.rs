//! A session that is locked: by whom, when, what holds, and by what it is used again.

use levee_policy::Site;
use levee_policy::audit::{Action, Verdict};
use levee_policy::site::Reach;
use levee_session::*;
use std::sync::Arc;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const CLIENT: ClientId = ClientId(1);
const IDLE: Duration = Duration::from_secs(300);

fn id() -> SessionId {
    SessionId::from_random([7; 16])
}

fn label() -> levee_policy::LabelName {
    "SECRET".parse().unwrap()
}

/// A server with one vault that does what it is told, on which everything is durable while `writes` says so, and the password is what
/// `password` says.
struct Server {
    machine: Sessions,
    now: Time,
    said: Vec<Output>,
    password: Verified,
    writes: bool,
    /// Whether the vault answers.
    answers: bool,
    /// What the vault lets pass of the session, as it was told last.
    passes: Vec<Reach>,
}

impl Server {
    fn of(site: &str) -> Self {
        let now = Time::from_millis(1_000_000_000);
        let machine = Sessions::new(Arc::new(Site::parse(site).unwrap()), vec![], [], [], [7; 16], now);
        let (said, passes) = (Vec::new(), Vec::new());
        let password = Verified::Right(None);
        let mut server = Self { machine, now, said, password, writes: true, answers: true, passes };
        server.hear(Event::Hello { client: CLIENT, device: "ws1".parse().unwrap(), fingerprint: [1; 32] });
        server.hear(Event::Request(CLIENT, Request::Login("ada".parse().unwrap())));
        server
    }

    /// With a session that is open, at a site that locks what is not used.
    fn open() -> Self {
        Self::open_at("idle-lock = \"5m\"\nslots = 64")
    }

    /// The same, where the site has this instead of its slots.
    fn open_at(instead: &str) -> Self {
        let mut server = Self::of(&SITE.replacen("slots = 64", instead, 1));
        server.hear(Event::Request(
            CLIENT,
            Request::Level { label: label(), protection: None, id: id(), random: 1 },
        ));
        server.hear(Event::LabelUp(label()));
        assert!(server.has_said(|output| matches!(output, Output::Reply(_, Reply::Opened { .. }))));
        assert!(!server.passes.is_empty());
        server
    }

    fn hear(&mut self, event: Event) {
        self.machine.handle(event, self.now);
        while let Some(output) = self.machine.poll() {
            let answer = match &output {
                Output::Commit(commit, ..) => Some(Event::Committed(*commit, self.writes)),
                Output::Verify(client, _) => Some(Event::Verified(*client, self.password)),
                Output::Vault(of, ToVault::Open { id, reach, .. }) if self.answers => {
                    self.passes.clone_from(reach);
                    Some(Event::VaultOpened(of.clone(), *id))
                }
                Output::Vault(of, ToVault::Ping(number)) if self.answers => {
                    Some(Event::VaultPong(of.clone(), *number))
                }
                _ => None,
            };
            self.said.push(output);
            if let Some(answer) = answer {
                self.machine.handle(answer, self.now);
            }
        }
    }

    fn asks(&mut self, request: Request) {
        self.hear(Event::Request(CLIENT, request));
    }

    /// Time passes.
    fn after(&mut self, time: Duration) {
        let until = self.now.after(time);
        while self.now < until {
            self.now = self.now.after(Duration::from_secs(1)).min(until);
            self.hear(Event::Tick);
        }
    }

    /// Whether it has said that since it was last asked.
    fn has_said(&mut self, wanted: impl Fn(&Output) -> bool) -> bool {
        std::mem::take(&mut self.said).iter().any(wanted)
    }

    fn is_locked(&self) -> bool {
        self.machine.live(id()).unwrap().locked
    }

    fn wrong(&mut self) {
        self.password = Verified::Wrong;
        self.asks(Request::Unlock);
        self.after(levee_session::LONGEST_DELAY);
        self.password = Verified::Right(None);
    }
}

fn is_lock(output: &Output) -> bool {
    matches!(output, Output::Reply(CLIENT, Reply::LockedUnasked(_)))
}

fn refused(kind: RefusalKind) -> impl Fn(&Output) -> bool {
    move |output| matches!(output, Output::Reply(CLIENT, Reply::Refused(why, _)) if *why == kind)
}

/// Whether it is a record of this action with this verdict, written or waited for.
fn records(action: Action, verdict: Verdict) -> impl Fn(&Output) -> bool {
    move |output| {
        let is = |entry: &levee_policy::audit::Event| entry.action == action && entry.verdict == verdict;
        match output {
            Output::Audit(entry) => is(entry),
            Output::Commit(_, entries, _) => entries.iter().any(is),
            _ => false,
        }
    }
}

#[test]
fn a_session_that_nobody_uses_is_locked_by_the_servers_clock_and_what_its_person_does_puts_that_off() {
    let mut server = Server::open();
    server.after(IDLE - Duration::from_secs(2));
    server.asks(Request::Active);
    // What keeps the path alive, or asks how things are, is nobody's doing.
    for _ in 0..IDLE.as_secs() - 1 {
        server.after(Duration::from_secs(1));
        server.asks(Request::KeepAlive);
        server.asks(Request::Status);
    }
    assert!(!server.has_said(is_lock) && !server.is_locked());
    server.after(Duration::from_secs(1));
    assert!(server.is_locked() && server.passes.is_empty(), "its vault has no selector of it");
    assert!(server.said.iter().any(records(Action::Lock, Verdict::Noted)));
    assert!(server.has_said(is_lock));
    assert_eq!(server.machine.reach(id()), Some(vec![]), "a mediator has no service of it either");
}

#[test]
fn a_locked_session_opens_nothing_carries_nothing_and_is_used_again_by_the_password_alone() {
    let mut server = Server::open();
    server.asks(Request::Lock);
    assert!(server.has_said(|output| matches!(output, Output::Reply(CLIENT, Reply::Locked))));
    let other = SessionId::from_random([8; 16]);
    let file = levee_policy::decision::Carry {
        direction: levee_policy::decision::Direction::Export,
        bytes: 1,
        digest: [0; 32],
    };
    for request in [
        Request::Level { label: label(), protection: None, id: other, random: 2 },
        Request::Passwd,
        Request::Carry(file),
    ] {
        server.asks(request.clone());
        assert!(server.has_said(refused(RefusalKind::Locked)), "{request:?}");
    }
    server.asks(Request::Active);
    assert!(server.is_locked());
    server.wrong();
    assert!(server.said.iter().any(records(Action::Unlock, Verdict::Denied)));
    assert!(server.has_said(refused(RefusalKind::Credentials)) && server.is_locked());
    server.asks(Request::Unlock);
    server.after(levee_session::LONGEST_DELAY);
    assert!(server.said.iter().any(records(Action::Unlock, Verdict::Granted)));
    assert!(server.has_said(|output| matches!(output, Output::Reply(CLIENT, Reply::Unlocked))));
    assert!(!server.is_locked() && !server.passes.is_empty());
    // And it is watched again.
    server.after(IDLE);
    assert!(server.is_locked() && server.passes.is_empty());
}

#[test]
fn wrong_passwords_wait_as_at_sign_on() {
    let mut server = Server::open();
    server.asks(Request::Lock);
    server.password = Verified::Wrong;
    let is_looked_at = |output: &Output| matches!(output, Output::Verify(..));
    let mut looked_at = 0;
    loop {
        server.asks(Request::Unlock);
        if !server.has_said(is_looked_at) {
            break;
        }
        looked_at += 1;
        assert!(looked_at < 100, "as many guesses as one likes");
    }
    server.after(levee_session::LONGEST_DELAY);
    assert!(server.has_said(is_looked_at), "in a while it is");
    server.password = Verified::Right(None);
    server.asks(Request::Unlock);
    server.after(levee_session::LONGEST_DELAY);
    assert!(!server.is_locked());
}

#[test]
fn who_guesses_at_a_locked_session_has_its_workstation_wait_no_longer_than_that_keeps_it() {
    // The site's grace time, less what the question before may have been earlier. Beyond it the workstation ends the session.
    const LONGEST: Duration = Duration::from_secs(30 - 5);
    let mut server = Server::open();
    server.asks(Request::Lock);
    server.password = Verified::Wrong;
    let (mut looked_at, mut put_off) = (0, 0);
    for _ in 0..40 {
        server.said.clear();
        server.asks(Request::Unlock);
        let mut waited = Duration::ZERO;
        while !server.said.iter().any(|said| matches!(said, Output::Reply(_, Reply::Refused(..)))) {
            assert!(waited < LONGEST, "no answer in {waited:?}");
            server.after(Duration::from_secs(1));
            waited += Duration::from_secs(1);
        }
        if server.has_said(refused(RefusalKind::Credentials)) {
            looked_at += 1;
        } else {
            put_off += 1;
            server.after(Duration::from_secs(1));
        }
    }
    assert!(looked_at > 10 && put_off > 0, "{looked_at} {put_off}");
    assert!(server.is_locked());
    // Who is put off is not put off for longer by asking.
    server.after(levee_session::LONGEST_DELAY);
    server.password = Verified::Right(None);
    server.asks(Request::Unlock);
    assert!(!server.is_locked());
}

#[test]
fn an_unlocking_that_cannot_be_recorded_is_none() {
    let mut server = Server::open();
    server.asks(Request::Lock);
    server.writes = false;
    server.asks(Request::Unlock);
    assert!(server.has_said(refused(RefusalKind::Unavailable)));
    assert!(server.is_locked() && server.passes.is_empty());
}

#[test]
fn a_vault_that_does_not_lock_is_killed_and_the_next_one_never_passes_anything() {
    let mut server = Server::open();
    server.answers = false;
    server.asks(Request::Lock);
    server.after(SILENCE + Duration::from_secs(1));
    assert!(server.has_said(|output| matches!(output, Output::Kill(_))));
    server.hear(Event::LabelDied(label()));
    server.answers = true;
    server.hear(Event::LabelUp(label()));
    assert!(server.is_locked() && server.passes.is_empty());
    assert!(server.has_said(|output| matches!(output, Output::Reply(CLIENT, Reply::Locked))));
}

#[test]
fn a_locked_session_whose_path_was_lost_comes_back_locked() {
    let mut server = Server::open();
    server.asks(Request::Lock);
    server.hear(Event::Gone(CLIENT));
    let next = ClientId(2);
    server.hear(Event::Hello { client: next, device: "ws1".parse().unwrap(), fingerprint: [1; 32] });
    server.hear(Event::Request(next, Request::Resume(id())));
    assert!(server.has_said(
        |output| matches!(output, Output::Reply(_, Reply::Resumed(status)) if status.locked && status.session.is_some())
    ));
    assert!(server.passes.is_empty());
}

#[test]
fn after_a_restart_nobody_knows_who_sits_there_so_sessions_of_a_site_that_locks_come_back_locked() {
    for (site, locked) in
        [(SITE.to_owned(), false), (SITE.replacen("slots = 64", "idle-lock = \"5m\"\nslots = 64", 1), true)]
    {
        let mut server = Server::of(&site);
        server.hear(Event::Request(
            CLIENT,
            Request::Level { label: label(), protection: None, id: id(), random: 1 },
        ));
        server.hear(Event::LabelUp(label()));
        let stored = server.said.iter().find_map(|output| match output {
            Output::Commit(_, _, changes) => changes.iter().find_map(|change| match change {
                Change::Put(stored) => Some(stored.clone()),
                _ => None,
            }),
            _ => None,
        });
        let site = Arc::new(Site::parse(&site).unwrap());
        server.machine = Sessions::new(site, vec![stored.unwrap()], [], [], [7; 16], server.now);
        server.passes.clear();
        server.hear(Event::Tick);
        server.hear(Event::LabelUp(label()));
        assert_eq!((server.is_locked(), server.passes.is_empty()), (locked, locked));
    }
}

#[test]
fn what_its_person_has_locked_comes_back_locked_from_a_restart_until_they_have_proved_themself() {
    // At this site nobody else locks anything.
    let mut server = Server::of(SITE);
    let (mut stored, mut locked) = (None, false);
    let mut keep = |server: &mut Server| {
        for output in std::mem::take(&mut server.said) {
            let Output::Commit(_, _, changes) = output else { continue };
            for change in changes {
                match change {
                    Change::Put(of) => stored = Some(of),
                    Change::Locked(of, is) if of == id() => locked = is,
                    _ => {}
                }
            }
        }
        (stored.clone(), locked)
    };
    server.hear(Event::Request(
        CLIENT,
        Request::Level { label: label(), protection: None, id: id(), random: 1 },
    ));
    server.hear(Event::LabelUp(label()));
    let comes_back = |server: &mut Server, (stored, locked): (Option<Stored>, bool)| {
        let site = Arc::new(Site::parse(SITE).unwrap());
        server.machine = Sessions::new(site, vec![stored.unwrap()], [], [], [7; 16], server.now);
        server.machine.remember_locked(locked.then(id));
        server.passes.clear();
        server.hear(Event::Tick);
        server.hear(Event::LabelUp(label()));
        (server.is_locked(), server.passes.is_empty())
    };
    server.asks(Request::Lock);
    let kept = keep(&mut server);
    assert_eq!(comes_back(&mut server, kept), (true, true));
    // Its workstation comes back, whatever it says, and its person proves themself.
    server.hear(Event::Hello { client: CLIENT, device: "ws1".parse().unwrap(), fingerprint: [1; 32] });
    server.asks(Request::Resume(id()));
    assert!(server.is_locked() && server.passes.is_empty());
    server.wrong();
    assert!(server.is_locked() && server.passes.is_empty());
    server.asks(Request::Unlock);
    server.after(levee_session::LONGEST_DELAY);
    assert!(!server.is_locked() && !server.passes.is_empty());
    let kept = keep(&mut server);
    assert_eq!(comes_back(&mut server, kept), (false, false));
}

#[test]
fn who_is_signed_on_without_a_session_and_does_nothing_is_signed_off() {
    let mut server = Server::of(&SITE.replacen("slots = 64", "idle-lock = \"5m\"\nslots = 64", 1));
    server.after(IDLE - Duration::from_secs(1));
    let is_off = |output: &Output| matches!(output, Output::Reply(CLIENT, Reply::SignedOff(_)));
    assert!(!server.has_said(is_off));
    server.after(Duration::from_secs(1));
    assert!(server.has_said(is_off));
}

#[test]
fn a_session_that_ends_while_its_person_proves_themself_opens_nobody_anything() {
    let mut server = Server::open();
    server.asks(Request::Lock);
    // The password is being looked at.
    server.machine.handle(Event::Request(CLIENT, Request::Unlock), server.now);
    while server.machine.poll().is_some() {}
    server.machine.handle(Event::End(OperatorId(1), id().to_string()), server.now);
    while server.machine.poll().is_some() {}
    server.hear(Event::Verified(CLIENT, Verified::Right(None)));
    assert!(server.has_said(refused(RefusalKind::NoSession)));
    assert!(server.machine.live(id()).is_none());
}

#[test]
fn an_answer_to_what_a_vault_was_told_before_a_lock_is_not_the_locks() {
    let mut server = Server::open();
    server.hear(Event::LabelDied(label()));
    // The next vault is told of the session as it was, and has not answered when it is locked.
    server.answers = false;
    server.hear(Event::LabelUp(label()));
    assert!(server.has_said(
        |output| matches!(output, Output::Vault(_, ToVault::Open { reach, .. }) if !reach.is_empty())
    ));
    server.asks(Request::Lock);
    assert!(server.has_said(
        |output| matches!(output, Output::Vault(_, ToVault::Open { reach, .. }) if reach.is_empty())
    ));
    let locked = |output: &Output| matches!(output, Output::Reply(CLIENT, Reply::Locked));
    server.hear(Event::VaultOpened(label(), id()));
    assert!(!server.has_said(locked), "it passes packets still");
    server.hear(Event::VaultOpened(label(), id()));
    assert!(server.has_said(locked));
    // One that says more than it was asked unlocks nothing.
    server.hear(Event::VaultOpened(label(), id()));
    assert!(server.is_locked() && !server.has_said(|output| matches!(output, Output::Reply(..))));
}

#[test]
fn a_session_that_ends_while_it_is_locked_leaves_nobody_signed_on() {
    let operator = || Event::End(OperatorId(1), id().to_string());
    let vault = || Event::VaultClosed(label(), id());
    let failed = || Event::LabelFailed(label(), "its store is broken".into());
    let too_long = || Event::Tick;
    let ends: [(&str, &dyn Fn() -> Event); 4] = [
        ("an operator ends it", &operator),
        ("its vault says that it has not taken it", &vault),
        ("its label cannot run", &failed),
        ("it has lasted for too long", &too_long),
    ];
    for (how, end) in ends {
        for settled in [true, false] {
            let mut server = Server::open_at("idle-lock = \"5m\"\nlongest-session = \"1h\"\nslots = 64");
            server.answers = settled;
            server.asks(Request::Lock);
            if how.ends_with("too long") {
                server.answers = true;
                server.now = server.now.after(Duration::from_secs(3600));
            }
            server.said.clear();
            server.hear(end());
            assert!(
                server.said.iter().any(|output| matches!(output, Output::Reply(CLIENT, Reply::SignedOff(_)))),
                "{how}, {settled}: who sits there has not proved themself"
            );
            assert!(server.said.iter().any(records(Action::SignOff, Verdict::Noted)), "{how}");
            server.said.clear();
            for request in [
                Request::Level {
                    label: "UNCLASSIFIED".parse().unwrap(),
                    protection: None,
                    id: SessionId::from_random([8; 16]),
                    random: 2,
                },
                Request::Passwd,
            ] {
                server.asks(request.clone());
                assert!(server.has_said(refused(RefusalKind::NotLoggedIn)), "{how}, {settled}: {request:?}");
            }
        }
    }
}

#[test]
fn a_session_that_ends_while_it_is_in_use_leaves_its_person_signed_on() {
    let mut server = Server::open();
    server.hear(Event::End(OperatorId(1), id().to_string()));
    assert!(!server.has_said(|output| matches!(output, Output::Reply(CLIENT, Reply::SignedOff(_)))));
}

#[test]
fn who_does_something_without_a_session_is_signed_off_that_much_later() {
    let mut server = Server::of(&SITE.replacen("slots = 64", "idle-lock = \"5m\"\nslots = 64", 1));
    let is_off = |output: &Output| matches!(output, Output::Reply(CLIENT, Reply::SignedOff(_)));
    server.after(IDLE - Duration::from_secs(100));
    server.asks(Request::Active);
    server.after(IDLE - Duration::from_secs(1));
    assert!(!server.has_said(is_off));
    server.after(Duration::from_secs(1));
    assert!(server.has_said(is_off));
}

#[test]
fn who_asks_for_a_lock_is_answered_once_and_while_it_is_there_at_once() {
    let mut server = Server::open();
    server.said.clear();
    server.asks(Request::Lock);
    assert!(!server.said.iter().any(is_lock), "they have asked");
    let locked = |output: &Output| matches!(output, Output::Reply(CLIENT, Reply::Locked));
    assert!(server.has_said(locked));
    server.asks(Request::Lock);
    assert!(!server.said.iter().any(|output| matches!(output, Output::Vault(..))), "its vault has it");
    assert!(server.has_said(locked));
}

#[test]
fn a_vault_has_its_second_to_lock_whatever_else_is_due() {
    let mut server = Server::open();
    // A minute after a session was asked for it would have been too late for its making.
    server.after(Duration::from_millis(59_500));
    server.answers = false;
    server.asks(Request::Lock);
    server.said.clear();
    let killed = |output: &Output| matches!(output, Output::Kill(_));
    server.after(Duration::from_millis(500));
    assert!(!server.has_said(killed));
    server.after(Duration::from_millis(500));
    assert!(server.has_said(killed));
}

#[test]
fn what_is_being_locked_is_unlocked_when_it_is_locked_and_what_is_not_locked_is_not() {
    let mut server = Server::open();
    server.asks(Request::Unlock);
    assert!(server.has_said(refused(RefusalKind::Protocol)));
    server.after(IDLE - Duration::from_secs(1));
    server.answers = false;
    server.after(Duration::from_secs(1));
    assert!(server.has_said(is_lock));
    server.asks(Request::Unlock);
    assert!(server.has_said(refused(RefusalKind::Unavailable)));
}

#[test]
fn a_code_that_was_used_unlocks_nothing() {
    let site = SITE.replacen("name = \"ada\"", "name = \"ada\"\nsecond-factor = \"totp\"", 1);
    let mut server = Server::of(&site);
    server.password = Verified::Right(Some(5));
    server.asks(Request::Login("ada".parse().unwrap()));
    server.after(levee_session::LONGEST_DELAY);
    assert!(server.has_said(|output| matches!(output, Output::Reply(CLIENT, Reply::LoggedIn(_)))));
    let level = Request::Level { label: label(), protection: None, id: id(), random: 1 };
    server.asks(level);
    server.hear(Event::LabelUp(label()));
    server.asks(Request::Lock);
    for (step, good) in [(Some(5), false), (None, false), (Some(6), true)] {
        server.password = Verified::Right(step);
        server.said.clear();
        server.asks(Request::Unlock);
        server.after(levee_session::LONGEST_DELAY);
        assert_eq!(server.is_locked(), !good, "{step:?}");
        assert_eq!(server.has_said(refused(RefusalKind::Credentials)), !good, "{step:?}");
    }
}

/// How many such records were made of what was done so often.
fn made(server: &mut Server, action: &Action, mut done: impl FnMut(&mut Server)) -> (usize, usize) {
    server.said.clear();
    (0..200).for_each(|_| done(server));
    let count = |verdict: Verdict| {
        let is_one = records(action.clone(), verdict);
        server.said.iter().filter(|output| is_one(output)).count()
    };
    (count(Verdict::Granted), count(Verdict::Denied))
}

#[test]
fn whoever_signs_on_unlocks_or_comes_back_again_and_again_leaves_no_more_records_than_the_sites_rate() {
    let mut server = Server::open();
    let unlocked = |server: &mut Server| {
        server.asks(Request::Lock);
        server.asks(Request::Unlock);
    };
    assert_eq!(made(&mut server, &Action::Unlock, unlocked), (60, 140));
    server.now = server.now.after(Duration::from_secs(60));
    assert_eq!(made(&mut server, &Action::Unlock, unlocked), (30, 170), "a minute later");
    server.now = server.now.after(Duration::from_secs(180));
    server.asks(Request::Unlock);
    let password = |server: &mut Server| {
        server.asks(Request::Passwd);
        server.hear(Event::PasswordStored(CLIENT, true));
    };
    assert_eq!(made(&mut server, &Action::ChangePassword, password), (60, 140));
    let mut client = 100;
    let back = |server: &mut Server| {
        client += 1;
        let (client, device) = (ClientId(client), "ws1".parse().unwrap());
        server.hear(Event::Hello { client, device, fingerprint: [1; 32] });
        server.hear(Event::Request(client, Request::Resume(id())));
        server.hear(Event::Gone(client));
    };
    assert_eq!(made(&mut server, &Action::Resume, back), (60, 140));
    assert!(server.machine.live(id()).is_some(), "the session stays, for as long as the site keeps it");

    let mut server = Server::of(SITE);
    server.asks(Request::Logout);
    let on = |server: &mut Server| {
        server.asks(Request::Login("ada".parse().unwrap()));
        server.asks(Request::Logout);
    };
    // One was to begin with.
    assert_eq!(made(&mut server, &Action::SignOn, on), (59, 141));
    // Who has somebody's password keeps them from signing on at no other workstation.
    let elsewhere = ClientId(2);
    server.hear(Event::Hello { client: elsewhere, device: "ws2".parse().unwrap(), fingerprint: [2; 32] });
    server.said.clear();
    server.hear(Event::Request(elsewhere, Request::Login("ada".parse().unwrap())));
    assert!(server.has_said(|output| matches!(output, Output::Reply(_, Reply::LoggedIn(_)))));
}
