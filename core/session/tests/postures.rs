//! A change of posture: recorded first, told to every vault and then the keyer, over when no vault has keys from before.

use levee_policy::Site;
use levee_policy::site::{Cipher, Placed, Protected};
use levee_session::federation::Setting;
use levee_session::*;
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
name = "elsewhere"
labels = ["UNCLASSIFIED"]
ciphers = ["aes-128-gcm"]
[[posture]]
name = "brief"
key-life = "5m"
[[posture]]
name = "briefer"
key-life = "2m"
[[posture]]
name = "curve"
exchanges = ["P-384"]
[[posture]]
name = "quantum"
ml-kem = true
[[posture]]
name = "even"
constant-rate = true
[[posture]]
name = "packed"
aggfrag = true
[[posture]]
name = "quiet"
services = []
[[posture]]
name = "few"
people = ["mia"]
[[posture]]
name = "desk"
labels = ["SECRET"]
hosts = ["ws2"]
[[protection]]
name = "strong"
ciphers = ["aes-256-gcm"]
key-life = "5m"
"#
);
const LABEL: &str = "SECRET";
const CLIENT: ClientId = ClientId(1);
const OPERATOR: OperatorId = OperatorId(9);

/// A server with a session at a label that is up; what it is to record waits for the test.
struct Server {
    machine: Sessions,
    now: Time,
    durable: bool,
    said: Vec<Output>,
    log: Vec<(String, String)>,
    stored: Vec<Setting>,
    /// What was said as the session was opened.
    opened: Vec<Output>,
    /// The warden has said nothing of these postures yet.
    unkept: Option<Vec<(u64, Vec<String>)>>,
}

impl Server {
    fn new() -> (Self, SessionId) {
        Self::protected(None)
    }

    fn protected(protection: Option<&str>) -> (Self, SessionId) {
        Self::of(SITE, protection)
    }

    fn of(site: &str, protection: Option<&str>) -> (Self, SessionId) {
        let now = Time::from_millis(1_000_000_000);
        let machine = Sessions::new(Arc::new(Site::parse(site).unwrap()), vec![], [], [], [7; 16], now);
        let (said, log, stored, opened) = (vec![], vec![], vec![], vec![]);
        let mut server = Self { machine, now, durable: true, said, log, stored, opened, unkept: None };
        let (device, label) = ("ws1".parse().unwrap(), LABEL.parse().unwrap());
        server.hear(Event::Hello { client: CLIENT, device, fingerprint: [1; 32] });
        server.hear(Event::Request(CLIENT, Request::Login("ada".parse().unwrap())));
        let (id, protection) =
            (SessionId::from_random([7; 16]), protection.map(|name| name.parse().unwrap()));
        server.hear(Event::Request(CLIENT, Request::Level { label, protection, id, random: 1 }));
        let said = server.hear(Event::LabelUp(LABEL.parse().unwrap()));
        // What it may have is known before the session is.
        let first =
            said.iter().position(|one| matches!(one, Output::Vault(_, ToVault::Ciphers(..)))).unwrap();
        let open = said.iter().position(|one| matches!(one, Output::Vault(_, ToVault::Open { .. }))).unwrap();
        assert!(first < open, "{said:?}");
        server.opened = said;
        server.hear(Event::VaultOpened(LABEL.parse().unwrap(), id));
        assert!(server.machine.live(id).is_some());
        (server, id)
    }

    /// This client asks for the label anew.
    fn level(&mut self, number: u8) -> (SessionId, Vec<Output>) {
        let (label, id) = (LABEL.parse().unwrap(), SessionId::from_random([number; 16]));
        let level = Request::Level { label, protection: None, id, random: number.into() };
        (id, self.hear(Event::Request(CLIENT, level)))
    }

    fn hear(&mut self, event: Event) -> Vec<Output> {
        self.machine.handle(event, self.now);
        while let Some(output) = self.machine.poll() {
            match output {
                Output::Commit(commit, entries, changes) => {
                    self.log.extend(entries.into_iter().map(|entry| (entry.object, entry.reason)));
                    for change in changes {
                        if let Change::Postures(setting) = change {
                            self.stored.push(setting);
                        }
                    }
                    self.machine.handle(Event::Committed(commit, self.durable), self.now);
                }
                Output::Audit(entry) => self.log.push((entry.object, entry.reason)),
                Output::Verify(client, _) => {
                    self.machine.handle(Event::Verified(client, Verified::Right(None)), self.now);
                }
                Output::Cut(cut, ..) => self.machine.handle(Event::Cut(cut, Some(0)), self.now),
                Output::Postures(number, in_force) => match &mut self.unkept {
                    None => self.machine.handle(Event::PosturesKept(number), self.now),
                    Some(unkept) => unkept.push((number, in_force.iter().map(ToString::to_string).collect())),
                },
                output => self.said.push(output),
            }
        }
        std::mem::take(&mut self.said)
    }

    fn wish(&mut self, posture: Option<&str>, lasting: Option<Duration>) -> Vec<Output> {
        let what = Placed { posture: posture.map(|name| name.parse().unwrap()), labels: None };
        self.hear(Event::Posture(OPERATOR, Wish { what, lasting, reason: "a drill".into() }))
    }

    fn later(&mut self, time: Duration) -> Vec<Output> {
        self.now = self.now.after(time);
        self.hear(Event::Tick)
    }

    fn moved(&mut self, number: u64, severed: Vec<SessionId>) -> Vec<Output> {
        self.hear(Event::Moved(LABEL.parse().unwrap(), number, severed))
    }

    fn in_force(&self) -> Vec<String> {
        self.machine.postures().0.iter().map(|one| one.what.to_string()).collect()
    }
}

/// These are in force since they were set for this time, here.
fn set_here(number: u64, names: &[&str]) -> Setting {
    let in_force = |name: &&str| InForce { what: Placed::everywhere(name.parse().unwrap()), until: None };
    let at = Some("server.harbour.example".parse().unwrap());
    Setting { number, at, in_force: names.iter().map(in_force).collect() }
}

/// What the vault was told, which must be what the keyer was told after it.
fn told(said: &[Output]) -> Option<(u64, Vec<Cipher>)> {
    let vault = said.iter().position(|one| matches!(one, Output::Vault(_, ToVault::Ciphers(..))))?;
    let keyer = said.iter().position(|one| matches!(one, Output::Keying(..))).expect("the keyer is told");
    assert!(vault < keyer, "{said:?}");
    match (&said[vault], &said[keyer]) {
        (Output::Vault(_, ToVault::Ciphers(number, ciphers, _)), Output::Keying(_, keying)) => {
            assert_eq!(*ciphers, keying.ciphers);
            Some((*number, ciphers.clone()))
        }
        _ => None,
    }
}

fn answer(said: &[Output]) -> Option<Result<(), String>> {
    said.iter().find_map(|one| match one {
        Output::Operator(OPERATOR, result) => Some(result.clone()),
        _ => None,
    })
}

#[test]
fn a_session_has_the_protection_that_was_asked_for_and_ends_when_a_posture_takes_it_away() {
    let (mut server, id) = Server::protected(Some("strong"));
    let told = server.opened.iter().find_map(|one| match one {
        Output::Vault(_, ToVault::Open { ciphers, .. }) => Some(ciphers.clone()),
        _ => None,
    });
    assert_eq!(told, Some(Some(vec![Cipher::Aes256Gcm])));
    assert!(server.log.iter().any(|(_, why)| why.contains("protection strong")), "{:?}", server.log);
    let names =
        |server: &Server| server.machine.shown().flat_map(|shown| shown.protections).collect::<Vec<_>>();
    assert_eq!(names(&server), ["strong".parse().unwrap()]);
    // Another label's posture takes nothing from it.
    let said = server.wish(Some("elsewhere"), None);
    assert_eq!((answer(&said), server.machine.live(id).is_some()), (Some(Ok(())), true));
    server.wish(Some("siege"), None);
    assert!(server.machine.live(id).is_none());
    server.hear(Event::VaultClosed(LABEL.parse().unwrap(), id));
    assert!(
        server.log.iter().any(|(_, why)| why.contains("under which protection strong cannot be had")),
        "{:?}",
        server.log
    );
    // And none opens with it while that lasts, nor one without it instead.
    let (label, other) = (LABEL.parse().unwrap(), SessionId::from_random([8; 16]));
    let protection = Some("strong".parse().unwrap());
    let said =
        server.hear(Event::Request(CLIENT, Request::Level { label, protection, id: other, random: 2 }));
    let refused = said.iter().any(
        |one| matches!(one, Output::Reply(_, Reply::Refused(RefusalKind::Label, why)) if why.contains("protection strong")),
    );
    assert!(refused && server.machine.live(other).is_none(), "{said:?}");
}

#[test]
fn a_session_that_waits_for_the_end_of_another_does_not_begin_under_a_posture_that_takes_its_protection_away()
{
    let (mut server, before) = Server::new();
    let (label, id) = (LABEL.parse().unwrap(), SessionId::from_random([8; 16]));
    let protection = Some("strong".parse().unwrap());
    server.hear(Event::Request(CLIENT, Request::Level { label, protection, id, random: 2 }));
    assert!(server.machine.live(before).is_none() && server.machine.live(id).is_none(), "its vault is slow");
    server.wish(Some("siege"), None);
    server.hear(Event::VaultClosed(LABEL.parse().unwrap(), before));
    server.hear(Event::VaultOpened(LABEL.parse().unwrap(), id));
    server.hear(Event::VaultClosed(LABEL.parse().unwrap(), id));
    assert!(server.machine.live(id).is_none());
    let why = "under which protection strong cannot be had";
    assert!(server.log.iter().any(|(_, said)| said.contains(why)), "{:?}", server.log);
}

#[test]
fn a_change_is_recorded_first_and_acknowledged_when_the_vault_has_nothing_old() {
    let (mut server, id) = Server::new();
    let said = server.wish(Some("siege"), None);
    let (number, ciphers) = told(&said).unwrap();
    assert_eq!((ciphers, answer(&said)), (vec![Cipher::ChaCha20Poly1305], None));
    assert!(server.log.iter().any(|(object, why)| object == "siege" && why.contains("a drill")));
    assert_eq!((server.in_force(), server.stored.len()), (vec!["siege".to_owned()], 1));
    // One at a time.
    assert!(matches!(answer(&server.wish(None, None)), Some(Err(why)) if why.contains("under way")));
    // Another number is no answer, nor is another label's.
    assert_eq!(answer(&server.moved(number + 100, vec![id])), None);
    assert_eq!(answer(&server.moved(number, vec![])), Some(Ok(())));
    assert!(server.machine.live(id).is_some());
    // Back, and nothing to do where nothing changes.
    let (number, ciphers) = told(&server.wish(None, None)).unwrap();
    assert_eq!(ciphers.len(), 3);
    assert_eq!(answer(&server.moved(number, vec![])), Some(Ok(())));
    let said = server.wish(Some("elsewhere"), None);
    assert_eq!((told(&said), answer(&said)), (None, Some(Ok(()))));
}

#[test]
fn what_cannot_be_recorded_is_not_done() {
    let (mut server, _) = Server::new();
    server.durable = false;
    let said = server.wish(Some("siege"), None);
    assert_eq!(told(&said), None);
    assert!(matches!(answer(&said), Some(Err(_))));
    assert!(server.in_force().is_empty() && !server.machine.postures().1);
}

#[test]
fn who_does_not_follow_in_time_is_severed_and_its_session_ends_with_the_reason() {
    let (mut server, id) = Server::new();
    let (number, _) = told(&server.wish(Some("siege"), None)).unwrap();
    let severs = |said: &[Output]| {
        said.iter().any(|one| matches!(one, Output::Vault(_, ToVault::Sever(of)) if *of == number))
    };
    assert!(!severs(&server.later(Duration::from_millis(3_900))));
    assert!(severs(&server.later(Duration::from_millis(200))));
    assert!(!severs(&server.later(Duration::from_millis(200))), "once");
    assert_eq!(answer(&server.moved(number, vec![id])), Some(Ok(())));
    assert!(server.machine.live(id).is_none());
    let said = server.hear(Event::VaultClosed(LABEL.parse().unwrap(), id));
    let ended =
        |one: &Output| matches!(one, Output::Reply(_, Reply::Ended(why)) if why.contains("did not follow"));
    assert!(said.iter().any(ended), "{said:?}");
}

#[test]
fn a_vault_that_dies_has_nothing_old_and_the_next_is_told_what_is_in_force() {
    let (mut server, _) = Server::new();
    told(&server.wish(Some("siege"), None)).unwrap();
    let said = server.hear(Event::LabelDied(LABEL.parse().unwrap()));
    assert_eq!(answer(&said), Some(Ok(())));
    let (_, ciphers) = told(&server.hear(Event::LabelUp(LABEL.parse().unwrap()))).unwrap();
    assert_eq!(ciphers, [Cipher::ChaCha20Poly1305]);
    // And so is a keyer that is new.
    let said = server.hear(Event::KeyerCame);
    assert!(
        matches!(&said[0], Output::Keying(_, keying) if keying.ciphers == [Cipher::ChaCha20Poly1305]),
        "{said:?}"
    );
}

#[test]
fn a_posture_ends_in_its_time_after_a_restart_as_well() {
    let (mut server, _) = Server::new();
    let (number, _) = told(&server.wish(Some("siege"), Some(Duration::from_secs(60)))).unwrap();
    server.moved(number, vec![]);
    assert_eq!(told(&server.later(Duration::from_secs(59))), None);
    let stored = server.stored.last().unwrap().clone();
    let (_, ciphers) = told(&server.later(Duration::from_secs(2))).unwrap();
    assert_eq!(ciphers.len(), 3);
    assert!(server.in_force().is_empty() && server.stored.last().unwrap().in_force.is_empty());

    let (mut server, _) = Server::new();
    server.machine.take_postures((stored, true), server.now);
    assert_eq!(server.in_force(), ["siege"]);
    let (_, ciphers) = told(&server.later(Duration::from_secs(61))).unwrap();
    assert_eq!(ciphers.len(), 3);
}

#[test]
fn a_wish_that_makes_no_sense_changes_nothing() {
    let (mut server, _) = Server::new();
    assert!(matches!(answer(&server.wish(Some("seige"), None)), Some(Err(why)) if why.contains("siege")));
    for reason in ["x".repeat(201), "two\nlines".into(), "\u{1b}[2J".into()] {
        let wish = Wish { what: Placed::everywhere("siege".parse().unwrap()), lasting: None, reason };
        let said = server.hear(Event::Posture(OPERATOR, wish));
        assert!(matches!(answer(&said), Some(Err(_))) && told(&said).is_none());
    }
    assert!(server.in_force().is_empty() && server.stored.is_empty());
}

fn refused(said: &[Output], why: &str) -> bool {
    let is =
        |one: &Output| matches!(one, Output::Reply(CLIENT, Reply::Refused(_, said)) if said.contains(why));
    said.iter().any(is)
}

const NOT_ALLOWED: &str = "does not let `ada` have sessions at SECRET from `ws1`";

#[test]
fn whom_a_posture_does_not_allow_has_no_session_when_it_is_acknowledged_and_gets_none_while_it_lasts() {
    for posture in ["few", "desk"] {
        let (mut server, id) = Server::new();
        let said = server.wish(Some(posture), None);
        assert!(server.log.iter().any(|(object, _)| object == posture), "written ahead");
        let closes = |one: &Output| matches!(one, Output::Vault(_, ToVault::Close(of)) if *of == id);
        assert!(said.iter().any(closes) && server.machine.live(id).is_none(), "{said:?}");
        // Its vault has it still.
        assert_eq!((answer(&said), server.machine.postures().1), (None, true));
        let said = server.hear(Event::VaultClosed(LABEL.parse().unwrap(), id));
        assert_eq!(answer(&said), Some(Ok(())), "{said:?}");
        let told = |one: &Output| matches!(one, Output::Reply(CLIENT, Reply::Ended(why)) if why.contains(NOT_ALLOWED));
        assert!(said.iter().any(told), "{said:?}");
        assert!(server.log.iter().any(|(_, why)| why.ends_with("not allow: 1 ended")), "{:?}", server.log);

        let (other, said) = server.level(8);
        assert!(refused(&said, NOT_ALLOWED) && server.machine.live(other).is_none(), "{said:?}");
        assert_eq!(answer(&server.wish(None, None)), Some(Ok(())));
        let (other, _) = server.level(9);
        server.hear(Event::LabelUp(LABEL.parse().unwrap()));
        server.hear(Event::VaultOpened(LABEL.parse().unwrap(), other));
        assert!(server.machine.live(other).is_some(), "{posture}");
    }
}

#[test]
fn where_a_posture_needs_two_layers_sessions_with_one_end_and_those_with_two_stay() {
    const BASE: &str = include_str!("../../../conf/small/site.toml");
    let site = |host: &str| {
        let name = format!("name = \"{host}\"");
        let layered = BASE.replace(&name, &format!("{name}\nlayers = [\"esp\", \"quic\"]"));
        layered + "[[posture]]\nname = \"sealed\"\nlayers = [\"esp\", \"quic\"]\n"
    };
    let within = |said: &[Output]| {
        said.iter().find_map(|one| match one {
            Output::Vault(_, ToVault::Open { layered, .. }) => Some(*layered),
            _ => None,
        })
    };
    // The workstation of the session has one layer.
    let (mut server, id) = Server::of(&site("ws2"), None);
    assert_eq!(within(&server.opened), Some(false));
    let said = server.wish(Some("sealed"), None);
    assert!(server.machine.live(id).is_none() && answer(&said).is_none(), "{said:?}");
    let said = server.hear(Event::VaultClosed(LABEL.parse().unwrap(), id));
    assert_eq!(answer(&said), Some(Ok(())), "{said:?}");
    const WHY: &str = "needs the layers esp and quic at SECRET, and sessions from `ws1` have esp alone";
    let told = |one: &Output| matches!(one, Output::Reply(CLIENT, Reply::Ended(why)) if why.contains(WHY));
    assert!(said.iter().any(told), "{said:?}");
    let (other, said) = server.level(8);
    assert!(refused(&said, WHY) && server.machine.live(other).is_none(), "{said:?}");
    // With less it has one again.
    assert_eq!(answer(&server.wish(None, None)), Some(Ok(())));
    let (other, _) = server.level(9);
    server.hear(Event::LabelUp(LABEL.parse().unwrap()));
    server.hear(Event::VaultOpened(LABEL.parse().unwrap(), other));
    assert!(server.machine.live(other).is_some());

    // It has two: nothing of it changes.
    let (mut server, id) = Server::of(&site("ws1"), None);
    assert_eq!(within(&server.opened), Some(true));
    let said = server.wish(Some("sealed"), None);
    assert_eq!(answer(&said), Some(Ok(())), "{said:?}");
    assert!(server.machine.live(id).is_some() && within(&said).is_none(), "{said:?}");
}

#[test]
fn a_change_whose_sessions_cannot_be_ended_says_so_and_is_in_force() {
    let (mut server, id) = Server::new();
    server.wish(Some("few"), None);
    server.durable = false;
    let said = server.hear(Event::VaultClosed(LABEL.parse().unwrap(), id));
    let says = |why: &String| why.contains("the posture is few") && why.contains("could not be recorded");
    assert!(matches!(answer(&said), Some(Err(why)) if says(&why)), "{said:?}");
    assert_eq!(server.in_force(), ["few"]);
    let kept = |said: &[Output]| said.iter().any(|one| matches!(one, Output::Kept));
    assert!(!kept(&said));
    // Its end is still pursued; other servers are told when it is over.
    server.durable = true;
    let said = server.later(Duration::from_secs(2));
    assert!(server.machine.shown().next().is_none() && kept(&said), "{said:?}");
}

#[test]
fn a_session_that_begins_while_the_posture_changes_is_over_before_its_vault_hears_of_it() {
    let (mut server, before) = Server::new();
    // It waits for the end of the one before, and was granted.
    let (id, _) = server.level(8);
    let said = server.wish(Some("few"), None);
    assert_eq!(answer(&said), None, "{said:?}");
    let mut said = server.hear(Event::VaultClosed(LABEL.parse().unwrap(), before));
    said.extend(server.hear(Event::VaultOpened(LABEL.parse().unwrap(), id)));
    let opens = |one: &Output| matches!(one, Output::Vault(_, ToVault::Open { .. }));
    assert!(!said.iter().any(opens) && server.machine.live(id).is_none(), "{said:?}");
    assert!(refused(&said, NOT_ALLOWED), "{said:?}");
    assert_eq!((answer(&said), server.machine.shown().count()), (Some(Ok(())), 0));
}

#[test]
fn a_stored_session_that_the_posture_does_not_allow_does_not_come_back() {
    let (site, now) = (Arc::new(Site::parse(SITE).unwrap()), Time::from_millis(1_000_000_000));
    const MED: &str = "CONFIDENTIAL//MED";
    let stored = |user: &str, device: &str, label: &str, number: u8| Stored {
        id: SessionId::from_random([number; 16]),
        user: user.parse().unwrap(),
        device: device.parse().unwrap(),
        fingerprint: [1; 32],
        label: label.parse().unwrap(),
        inner: vec![std::net::IpAddr::from([10, 80, 1, number])],
        opened: now,
        protection: None,
    };
    let both = vec![stored("ada", "ws1", LABEL, 1), stored("mia", "ws2", MED, 2)];
    let mut machine = Sessions::new(site, both, [], [], [7; 16], now);
    machine.take_postures((set_here(1, &["few"]), true), now);
    let (mut log, mut opened) = (vec![], vec![]);
    while let Some(output) = machine.poll() {
        match output {
            Output::Commit(commit, entries, _) => {
                log.extend(entries.into_iter().map(|entry| entry.reason));
                machine.handle(Event::Committed(commit, true), now);
            }
            Output::Need(label) => machine.handle(Event::LabelUp(label), now),
            Output::Vault(label, ToVault::Close(id)) => machine.handle(Event::VaultClosed(label, id), now),
            Output::Vault(_, ToVault::Open { id, .. }) => opened.push(id),
            Output::Cut(cut, ..) => machine.handle(Event::Cut(cut, Some(0)), now),
            _ => {}
        }
    }
    assert_eq!(opened, [SessionId::from_random([2; 16])]);
    let left: Vec<String> = machine.shown().map(|shown| shown.user.to_string()).collect();
    assert_eq!(left, ["mia"]);
    assert!(log.iter().any(|why| why.contains(NOT_ALLOWED)), "{log:?}");
}

/// What a vault is told that a session may reach.
fn reach_told(said: &[Output]) -> Option<usize> {
    said.iter().find_map(|one| match one {
        Output::Vault(_, ToVault::Open { reach, .. }) => Some(reach.len()),
        _ => None,
    })
}

#[test]
fn nothing_of_a_service_that_is_off_passes_or_runs_when_the_change_is_acknowledged() {
    let (label, mut server, id) = {
        let (server, id) = Server::new();
        (LABEL.parse::<levee_policy::LabelName>().unwrap(), server, id)
    };
    let whole = server.machine.reach(id).unwrap();
    assert!(!whole.is_empty());
    server.unkept = Some(vec![]);
    let said = server.wish(Some("quiet"), None);
    assert_eq!((reach_told(&said), answer(&said), told(&said)), (Some(0), None, None), "{said:?}");
    assert_eq!(server.machine.reach(id), Some(vec![]));
    let (number, names) = server.unkept.as_mut().unwrap().pop().unwrap();
    assert_eq!(names, ["quiet"]);
    // The vault has it, and the warden has not said so; nor is another number an answer.
    assert_eq!(answer(&server.hear(Event::VaultOpened(label.clone(), id))), None);
    assert_eq!(answer(&server.hear(Event::PosturesKept(number + 100))), None);
    assert_eq!(answer(&server.hear(Event::PosturesKept(number))), Some(Ok(())));
    assert!(server.machine.live(id).is_some(), "the session stays");

    // On again: the session reaches all that its grant has.
    let said = server.wish(None, None);
    assert_eq!(reach_told(&said), Some(whole.len()), "{said:?}");
    let (number, names) = server.unkept.as_mut().unwrap().pop().unwrap();
    assert!(names.is_empty());
    assert_eq!(answer(&server.hear(Event::PosturesKept(number))), None, "its vault does not know yet");
    assert_eq!(answer(&server.hear(Event::VaultOpened(label.clone(), id))), Some(Ok(())));
    assert_eq!(server.machine.reach(id), Some(whole));

    // A vault that dies meanwhile passes nothing, and the next is told.
    server.unkept = None;
    assert_eq!(answer(&server.wish(Some("quiet"), None)), None);
    assert_eq!(answer(&server.hear(Event::LabelDied(label.clone()))), Some(Ok(())));
    assert_eq!(reach_told(&server.hear(Event::LabelUp(label))), Some(0));
}

#[test]
fn the_warden_is_told_of_stored_postures_before_it_is_asked_for_a_label() {
    let (mut server, _) = Server::new();
    server.unkept = Some(vec![]);
    server.machine.take_postures((set_here(1, &["quiet"]), true), server.now);
    server.hear(Event::Tick);
    assert_eq!(server.unkept.unwrap().pop().unwrap().1, ["quiet"]);
}

#[test]
fn a_shorter_life_of_keys_replaces_all_that_there_are_and_a_longer_one_none() {
    let (mut server, _) = Server::new();
    let life = |said: &[Output]| {
        let of = |one: &Output| match one {
            Output::Keying(_, keying) => Some(keying.key_life.map(|life| life.as_secs())),
            _ => None,
        };
        said.iter().find_map(of)
    };
    let anew = |said: &[Output]| {
        said.iter().any(|one| matches!(one, Output::Vault(_, ToVault::Ciphers(_, _, true))))
    };
    for (posture, seconds) in [("brief", 300), ("briefer", 120)] {
        let said = server.wish(Some(posture), None);
        assert_eq!((life(&said), anew(&said), answer(&said)), (Some(Some(seconds)), true, None), "{said:?}");
        let (number, _) = told(&said).unwrap();
        assert_eq!(answer(&server.moved(number, vec![])), Some(Ok(())));
    }
    // The keyer is told, for keys that come; those that there are may stay.
    let said = server.wish(Some("brief"), None);
    assert_eq!((life(&said), anew(&said), answer(&said)), (Some(Some(300)), false, Some(Ok(()))), "{said:?}");
    // A keyer and a vault that are new are told as well, and nothing is old there.
    assert_eq!(life(&server.hear(Event::KeyerCame)), Some(Some(300)));
    server.hear(Event::LabelDied(LABEL.parse().unwrap()));
    let said = server.hear(Event::LabelUp(LABEL.parse().unwrap()));
    assert_eq!((life(&said), anew(&said)), (Some(Some(300)), false));
    assert_eq!(life(&server.wish(None, None)), Some(None));
}

#[test]
fn what_keys_are_agreed_by_replaces_all_that_there_are_where_it_is_less_and_none_where_it_is_more() {
    let (mut server, _) = Server::new();
    let keyed = |said: &[Output]| {
        said.iter().find_map(|one| match one {
            Output::Keying(_, keying) => Some(keying.exchanges.to_string()),
            _ => None,
        })
    };
    let anew = |said: &[Output]| {
        said.iter().any(|one| matches!(one, Output::Vault(_, ToVault::Ciphers(_, _, true))))
    };
    // The last counts, and says nothing of what the one before it said.
    for (posture, by) in [("curve", "P-384"), ("quantum", "X25519 P-256 P-384 with ML-KEM")] {
        let said = server.wish(Some(posture), None);
        assert_eq!((keyed(&said).as_deref(), anew(&said), answer(&said)), (Some(by), true, None), "{said:?}");
        let (number, _) = told(&said).unwrap();
        assert_eq!(answer(&server.moved(number, vec![])), Some(Ok(())));
    }
    assert_eq!(keyed(&server.hear(Event::KeyerCame)).as_deref(), Some("X25519 P-256 P-384 with ML-KEM"));
    // The keyer is told, for what comes; what there is may stay.
    let said = server.wish(None, None);
    let all = Some("X25519 P-256 P-384".to_owned());
    assert_eq!((keyed(&said), anew(&said), answer(&said)), (all, false, Some(Ok(()))), "{said:?}");
}

/// How the keyer is to have packets go, and how the workstation: at which interval; none: as they come.
fn intervals(said: &[Output]) -> (Option<Option<u64>>, Option<Option<u64>>) {
    let millis = |protected: &Protected| protected.interval.map(|time| time.as_millis() as u64);
    let keyer = said.iter().find_map(|one| match one {
        Output::Renew(record) => Some(millis(&record.protected)),
        _ => None,
    });
    let client = said.iter().find_map(|one| match one {
        Output::Reply(CLIENT, Reply::Renew(protected) | Reply::Opened { protected, .. }) => {
            Some(millis(protected))
        }
        _ => None,
    });
    (keyer, client)
}

#[test]
fn a_constant_rate_is_told_to_keyer_and_workstation_and_acknowledged_when_nothing_goes_otherwise() {
    let (mut server, id) = Server::new();
    let change = |server: &mut Server, posture, expected| {
        let said = server.wish(posture, None);
        let keyer = said.iter().position(|one| matches!(one, Output::Renew(_)));
        let client = said.iter().position(|one| matches!(one, Output::Reply(_, Reply::Renew(_))));
        assert!(keyer < client, "the keyer knows what counts before the workstation comes: {said:?}");
        assert_eq!((intervals(&said), answer(&said)), ((Some(expected), Some(expected)), None), "{said:?}");
        let anew = |one: &Output| matches!(one, Output::Vault(_, ToVault::Ciphers(_, _, true)));
        assert!(said.iter().any(anew), "what there is is old: {said:?}");
        let (number, _) = told(&said).unwrap();
        assert_eq!(answer(&server.moved(number, vec![])), Some(Ok(())));
    };
    change(&mut server, Some("even"), Some(4));
    // A keyer that is new, and keys that are asked for.
    assert_eq!(intervals(&server.hear(Event::KeyerCame)).0, Some(Some(4)));
    let keys = |server: &mut Server| {
        let said = server.hear(Event::Wanted {
            ticket: 1,
            device: "ws1".parse().unwrap(),
            label: LABEL.parse().unwrap(),
            accreditation: Some("UNCLASSIFIED..SECRET//NATO,MED".into()),
        });
        said.iter().find_map(|one| match one {
            Output::Keys(1, Some(record)) => Some(record.protected.interval),
            _ => None,
        })
    };
    assert_eq!(keys(&mut server), Some(Some(Duration::from_millis(4))));
    // Whose trusted path is lost meanwhile hears of it when they are back.
    server.hear(Event::Gone(CLIENT));
    let said = server.wish(None, None);
    assert_eq!(intervals(&said), (Some(None), None), "{said:?}");
    let (device, again) = ("ws1".parse().unwrap(), ClientId(2));
    server.hear(Event::Hello { client: again, device, fingerprint: [1; 32] });
    let said = server.hear(Event::Request(again, Request::Resume(id)));
    let renewed = |one: &Output| matches!(one, Output::Reply(to, Reply::Renew(protected)) if *to == again && protected.interval.is_none());
    assert!(said.iter().any(renewed), "{said:?}");
    assert_eq!(keys(&mut server), Some(None));
}

#[test]
fn aggfrag_payloads_are_told_to_keyer_and_workstation_and_come_and_go_with_the_posture() {
    let (mut server, _) = Server::new();
    // A constant rate goes in AGGFRAG payloads of its own kind.
    for (posture, expected) in [(Some("packed"), true), (Some("even"), false), (None, false)] {
        let said = server.wish(posture, None);
        let keyer = |one: &Output| matches!(one, Output::Renew(to) if to.protected.aggfrag == expected);
        let client =
            |one: &Output| matches!(one, Output::Reply(CLIENT, Reply::Renew(to)) if to.aggfrag == expected);
        assert!(said.iter().any(keyer) && said.iter().any(client), "{posture:?}: {said:?}");
        assert_eq!(answer(&server.moved(told(&said).unwrap().0, vec![])), Some(Ok(())));
    }
}

#[test]
fn a_session_that_is_opened_under_a_constant_rate_has_it_from_the_beginning() {
    let (mut server, before) = Server::new();
    let said = server.wish(Some("even"), None);
    server.moved(told(&said).unwrap().0, vec![]);
    let (id, said) = server.level(8);
    assert!(intervals(&said).1.is_none(), "{said:?}");
    server.hear(Event::VaultClosed(LABEL.parse().unwrap(), before));
    let said = server.hear(Event::VaultOpened(LABEL.parse().unwrap(), id));
    assert_eq!(intervals(&said).1, Some(Some(4)), "{said:?}");
}

/// With a session of mia's at another label, too.
fn with_another(site: &str) -> (Server, SessionId, SessionId) {
    let (mut server, first) = Server::of(site, None);
    let (client, other, second) =
        (ClientId(2), || "CONFIDENTIAL".parse().unwrap(), SessionId::from_random([8; 16]));
    server.hear(Event::Hello { client, device: "ws2".parse().unwrap(), fingerprint: [1; 32] });
    server.hear(Event::Request(client, Request::Login("mia".parse().unwrap())));
    let level = Request::Level { label: other(), protection: None, id: second, random: 2 };
    server.hear(Event::Request(client, level));
    server.hear(Event::LabelUp(other()));
    server.hear(Event::VaultOpened(other(), second));
    assert!(server.machine.live(first).is_some() && server.machine.live(second).is_some());
    server.log.clear();
    (server, first, second)
}

#[test]
fn only_sessions_of_a_label_whose_packets_go_otherwise_now_come_with_other_keys() {
    let site = SITE.to_owned()
        + "[[posture]]\nname = \"there\"\nlabels = [\"CONFIDENTIAL\"]\nconstant-rate = true\n";
    let (mut server, ..) = with_another(&site);
    let said = server.wish(Some("there"), None);
    let renewed = said.iter().filter_map(|one| match one {
        Output::Reply(to, Reply::Renew(_)) => Some(*to),
        _ => None,
    });
    assert_eq!(renewed.collect::<Vec<_>>(), [ClientId(2)]);
    let keyer = said.iter().filter(|one| matches!(one, Output::Renew(_)));
    assert_eq!(keyer.count(), 1, "{said:?}");
}

#[test]
fn each_change_is_written_with_what_was_in_force_before_and_what_came_of_it() {
    let (mut server, id) = Server::new();
    server.log.clear();
    let mut change = |posture: Option<&str>, severed: Vec<SessionId>| {
        let number = told(&server.wish(posture, None)).map(|(number, _)| number);
        number.into_iter().for_each(|number| drop(server.moved(number, severed.clone())));
        (server.in_force(), std::mem::take(&mut server.log))
    };
    let log = |name: &str, before: &str, result: &str| {
        let over = format!("no keys from before are left, after 0 ms; {result}");
        vec![(name.to_owned(), format!("by an operator, after {before}: a drill")), (name.to_owned(), over)]
    };
    let all = "every session followed";
    assert_eq!(change(Some("siege"), vec![]), (vec!["siege".into()], log("siege", "default", all)));
    // Another one is in force beside it, and the first again behind that.
    let (in_force, said) = change(Some("brief"), vec![]);
    assert_eq!((in_force.join(" "), said), ("siege brief".into(), log("brief", "siege", all)));
    let (in_force, said) = change(Some("siege"), vec![]);
    assert_eq!((in_force.join(" "), said), ("brief siege".into(), log("siege", "siege, brief", all)));
    let (in_force, said) = change(None, vec![id]);
    assert_eq!((in_force, &said[..1]), (vec![], &log("default", "brief, siege", all)[..1]));
    let late = "1 sessions did not follow, and end";
    assert!(said[1..].contains(&log("default", "", late)[1]), "{said:?}");
    // One whose time is over.
    let (mut server, _) = Server::new();
    let (number, _) = told(&server.wish(Some("siege"), Some(Duration::from_secs(60)))).unwrap();
    server.moved(number, vec![]);
    server.log.clear();
    server.later(Duration::from_secs(60));
    assert_eq!(server.log[0], ("default".to_owned(), "the time of siege is over".to_owned()));
}

#[test]
fn keys_of_before_may_stay_where_other_ciphers_come_and_keys_live_as_long() {
    let site = SITE.to_owned()
        + "[[posture]]\nname = \"both\"\nciphers = [\"chacha20-poly1305\"]\nkey-life = \"5m\"\n";
    let (mut server, _) = Server::of(&site, None);
    let (number, _) = told(&server.wish(Some("brief"), None)).unwrap();
    server.moved(number, vec![]);
    let said = server.wish(Some("both"), None);
    let anew = |one: &Output| match one {
        Output::Vault(_, ToVault::Ciphers(_, _, anew)) => Some(*anew),
        _ => None,
    };
    assert_eq!(said.iter().find_map(anew), Some(false), "{said:?}");
}

#[test]
fn a_reason_has_200_octets_at_most_and_what_is_due_is_done_then() {
    let (mut server, _) = Server::new();
    let wish = |octets| Wish {
        what: Placed::everywhere("siege".parse().unwrap()),
        lasting: Some(Duration::from_secs(60)),
        reason: "x".repeat(octets),
    };
    assert!(matches!(answer(&server.hear(Event::Posture(OPERATOR, wish(201)))), Some(Err(_))));
    let begun = server.now;
    let (number, _) = told(&server.hear(Event::Posture(OPERATOR, wish(200)))).unwrap();
    // Whoever has not followed by then is severed when the four seconds are over, and the posture ends after its minute.
    let severs = |said: &[Output]| said.iter().any(|one| matches!(one, Output::Vault(_, ToVault::Sever(_))));
    assert!(!severs(&server.later(Duration::from_millis(3_999))));
    assert!(severs(&server.later(Duration::from_millis(1))));
    server.moved(number, vec![]);
    assert_eq!(told(&server.later(Duration::from_millis(55_999))), None);
    assert!(told(&server.later(Duration::from_millis(1))).is_some());
    assert_eq!(server.now, begun.after(Duration::from_secs(60)));
}

#[test]
fn a_vault_says_of_no_other_labels_session_that_it_did_not_follow() {
    let (mut server, first, second) = with_another(SITE);
    let (number, _) = told(&server.wish(Some("siege"), None)).unwrap();
    for number in [number, number + 1, number.saturating_sub(1)] {
        server.moved(number, vec![second]);
    }
    assert!(server.machine.live(first).is_some() && server.machine.live(second).is_some());
}
