//! What a label's vault may take its time for, and what it may not.

use levee_policy::Site;
use levee_session::*;
use std::sync::Arc;
use std::time::Duration;

const SITE: &str = include_str!("../../../conf/small/site.toml");
const CLIENT: ClientId = ClientId(1);

/// A server on which everything is durable at once, every password is right, and the test is warden and vault.
struct Server {
    machine: Sessions,
    now: Time,
    said: Vec<Output>,
}

impl Server {
    /// With a person who has asked for a session at a label that does not run yet.
    fn with_a_session_asked_for() -> (Self, SessionId) {
        Self::of(SITE)
    }

    fn of(site: &str) -> (Self, SessionId) {
        let now = Time::from_millis(1_000_000_000);
        let machine = Sessions::new(Arc::new(Site::parse(site).unwrap()), vec![], [], [], [7; 16], now);
        let mut server = Self { machine, now, said: Vec::new() };
        let device = "ws1".parse().unwrap();
        server.hear(Event::Hello { client: CLIENT, device, fingerprint: [1; 32] });
        server.hear(Event::Request(CLIENT, Request::Login("ada".parse().unwrap())));
        let id = SessionId::from_random([7; 16]);
        let label = "SECRET".parse().unwrap();
        server.hear(Event::Request(CLIENT, Request::Level { label, protection: None, id, random: 1 }));
        assert!(server.has_said(|output| matches!(output, Output::Need(_))));
        (server, id)
    }

    fn hear(&mut self, event: Event) {
        self.machine.handle(event, self.now);
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Commit(commit, ..) => self.machine.handle(Event::Committed(commit, true), self.now),
                Output::Verify(client, _) => {
                    self.machine.handle(Event::Verified(client, Verified::Right(None)), self.now);
                }
                output => self.said.push(output),
            }
        }
    }

    /// It is this late; the vault has lived until then.
    fn at(&mut self, time: Time) {
        self.now = time;
        self.hear(Event::Tick);
        let ping = |output: &Output| match output {
            Output::Vault(_, ToVault::Ping(number)) => Some(*number),
            _ => None,
        };
        let pings: Vec<u64> = self.said.iter().filter_map(ping).collect();
        self.said.retain(|output| ping(output).is_none());
        for number in pings {
            self.hear(Event::VaultPong("SECRET".parse().unwrap(), number));
        }
    }

    /// Time passes, and nobody says anything.
    fn silence(&mut self, time: Duration) {
        let until = self.now.after(time);
        while self.now < until {
            self.now = self.now.after(Duration::from_millis(100));
            self.hear(Event::Tick);
        }
    }

    /// Whether it has said that since it was last asked.
    fn has_said(&mut self, wanted: impl Fn(&Output) -> bool) -> bool {
        std::mem::take(&mut self.said).iter().any(wanted)
    }

    fn up(&mut self) {
        self.hear(Event::LabelUp("SECRET".parse().unwrap()));
        assert!(self.has_said(|output| matches!(output, Output::Vault(_, ToVault::Open { .. }))));
    }

    fn opened(&mut self, id: SessionId) {
        self.hear(Event::VaultOpened("SECRET".parse().unwrap(), id));
        assert!(self.has_said(|output| matches!(output, Output::Reply(_, Reply::Opened { .. }))));
    }
}

fn is_kill(output: &Output) -> bool {
    matches!(output, Output::Kill(_))
}

fn is_refusal_or_kill(output: &Output) -> bool {
    is_kill(output) || matches!(output, Output::Reply(_, Reply::Refused(..)))
}

#[test]
fn a_vault_on_a_busy_host_may_take_seconds_to_have_a_new_session_and_to_say_that_it_lives() {
    let (mut server, id) = Server::with_a_session_asked_for();
    server.up();
    server.silence(Duration::from_secs(4));
    assert!(!server.has_said(is_refusal_or_kill));
    server.opened(id);
    for _ in 0..3 {
        let mut asked = None;
        while asked.is_none() {
            server.silence(Duration::from_millis(100));
            asked = std::mem::take(&mut server.said).into_iter().find_map(|output| match output {
                Output::Vault(_, ToVault::Ping(number)) => Some(number),
                output if is_kill(&output) => panic!("it was killed"),
                _ => None,
            });
        }
        // With all others that are due then, whenever they answered last.
        assert!(server.now.as_millis() % 1_000 < 100, "{:?}", server.now);
        server.silence(Duration::from_millis(4_130));
        assert!(!server.has_said(is_kill));
        server.hear(Event::VaultPong("SECRET".parse().unwrap(), asked.unwrap()));
    }
}

#[test]
fn a_vault_that_hangs_is_killed_and_the_next_one_gets_the_session_that_was_asked_for() {
    let (mut server, id) = Server::with_a_session_asked_for();
    server.up();
    server.silence(2 * PING + Duration::from_secs(1));
    let said = std::mem::take(&mut server.said);
    assert!(said.iter().any(is_kill), "{said:?}");
    assert!(!said.iter().any(|output| matches!(output, Output::Reply(..))), "{said:?}");
    server.hear(Event::LabelDied("SECRET".parse().unwrap()));
    server.up();
    server.opened(id);
}

#[test]
fn a_vault_that_says_it_lives_and_never_takes_the_session_is_given_up() {
    let (mut server, _) = Server::with_a_session_asked_for();
    server.up();
    let until = server.now.after(OPENING + Duration::from_secs(1));
    let (mut refused, mut killed) = (false, false);
    while server.now < until {
        server.silence(Duration::from_millis(100));
        for output in std::mem::take(&mut server.said) {
            killed |= is_kill(&output);
            match output {
                Output::Vault(label, ToVault::Ping(number)) => server.hear(Event::VaultPong(label, number)),
                // Its death is what ends the session that it may have.
                Output::Kill(label) => server.hear(Event::LabelDied(label)),
                Output::Cut(cut, ..) => server.hear(Event::Cut(cut, Some(0))),
                Output::Reply(_, Reply::Refused(..)) => refused = true,
                _ => {}
            }
        }
    }
    server.silence(Duration::from_millis(100));
    refused |= server.has_said(|output| matches!(output, Output::Reply(_, Reply::Refused(..))));
    assert!(killed && refused, "killed: {killed}, refused: {refused}");
}

#[test]
fn nobody_waits_longer_than_a_second_for_a_vault_to_end_a_session() {
    let (mut server, id) = Server::with_a_session_asked_for();
    server.up();
    server.opened(id);
    server.hear(Event::Request(CLIENT, Request::Logout));
    assert!(server.has_said(|output| matches!(output, Output::Vault(_, ToVault::Close(_)))));
    server.silence(SILENCE - Duration::from_millis(100));
    assert!(!server.has_said(is_kill));
    server.silence(Duration::from_millis(100));
    assert!(server.has_said(is_kill));
}

#[test]
fn a_session_lasts_no_longer_than_the_site_says_whoever_uses_it() {
    let site = SITE.replacen("slots = 64", "longest-session = \"8h\"\nslots = 64", 1);
    let (mut server, id) = Server::of(&site);
    server.up();
    server.opened(id);
    let is_close = |output: &Output| matches!(output, Output::Vault(_, ToVault::Close(_)));
    server.now = server.now.after(Duration::from_secs(8 * 3600 - 1));
    server.hear(Event::Tick);
    assert!(!server.has_said(is_close));
    server.now = server.now.after(Duration::from_secs(1));
    server.hear(Event::Tick);
    assert!(server.has_said(is_close));
}

#[test]
fn who_has_stayed_as_long_as_the_site_lets_a_session_last_signs_on_again_whatever_level_they_changed_to() {
    let site = SITE.replacen("slots = 64", "longest-session = \"8h\"\nslots = 64", 1);
    let (mut server, id) = Server::of(&site);
    let begin = server.now;
    server.up();
    server.opened(id);
    let label = || "SECRET".parse().unwrap();
    let is_off = |output: &Output| matches!(output, Output::Reply(CLIENT, Reply::SignedOff(_)));
    let is_notice = |output: &Output| matches!(output, Output::Reply(CLIENT, Reply::Notice(_)));
    // Another session an hour before the end: the time is the person's and not the session's.
    server.at(begin.after(Duration::from_secs(7 * 3600)));
    let next = SessionId::from_random([8; 16]);
    server.hear(Event::Request(
        CLIENT,
        Request::Level { label: label(), protection: None, id: next, random: 2 },
    ));
    server.hear(Event::VaultClosed(label(), id));
    while let Some(Output::Cut(cut, ..)) =
        server.said.iter().rposition(|o| matches!(o, Output::Cut(..))).map(|at| server.said.remove(at))
    {
        server.hear(Event::Cut(cut, Some(0)));
    }
    server.hear(Event::VaultOpened(label(), next));
    assert!(server.has_said(|output| matches!(output, Output::Reply(_, Reply::Opened { .. }))));
    server.at(begin.after(Duration::from_secs(8 * 3600 - 301)));
    assert!(!server.has_said(is_notice));
    server.at(begin.after(Duration::from_secs(8 * 3600 - 300)));
    assert!(server.has_said(is_notice), "five minutes before");
    server.at(begin.after(Duration::from_secs(8 * 3600)));
    let said = std::mem::take(&mut server.said);
    assert!(said.iter().any(is_off), "{said:?}");
    assert!(
        said.iter()
            .any(|output| matches!(output, Output::Vault(_, ToVault::Close(closed)) if *closed == next))
    );
    let again = SessionId::from_random([9; 16]);
    server.hear(Event::Request(
        CLIENT,
        Request::Level { label: label(), protection: None, id: again, random: 3 },
    ));
    let is_refused =
        |output: &Output| matches!(output, Output::Reply(_, Reply::Refused(RefusalKind::NotLoggedIn, _)));
    assert!(server.has_said(is_refused), "nobody is signed on");
}

#[test]
fn who_has_no_session_is_signed_off_all_the_same() {
    let site = SITE.replacen("slots = 64", "longest-session = \"8h\"\nslots = 64", 1);
    let (mut server, _) = Server::of(&site);
    let other = ClientId(2);
    server.hear(Event::Hello { client: other, device: "ws2".parse().unwrap(), fingerprint: [2; 32] });
    server.hear(Event::Request(other, Request::Login("ugo".parse().unwrap())));
    server.now = server.now.after(Duration::from_secs(8 * 3600));
    server.hear(Event::Tick);
    assert!(
        server.has_said(
            |output| matches!(output, Output::Reply(client, Reply::SignedOff(_)) if *client == other)
        )
    );
    server.hear(Event::Request(other, Request::Login("ugo".parse().unwrap())));
    assert!(
        server.has_said(
            |output| matches!(output, Output::Reply(client, Reply::LoggedIn(_)) if *client == other)
        )
    );
}
